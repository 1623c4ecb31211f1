//! Variable Additive Increase and Sampling Frequency, for every algorithm that lends them its law: J. Snyder,
//! "Improving Congestion Control Convergence in RDMA Networks" (thesis, Duke 2022), chapter 4; and the ablation of
//! its section 3.3.4 that ignores feedback at random. Section and algorithm numbers below are the thesis'.
//!
//! A flow that starts at line rate makes a queue of a bandwidth-delay product, so a long queue means that bandwidth
//! is shared unfairly: then VAI raises the additive increase for a while, by tokens, and less so the longer
//! there are queues (its dampener). SF lowers what a flow has after so many acknowledged packets, instead
//! of once a round trip: who has more is lowered more often.
//!
//! Both ask of an algorithm that it keep a reference (window or rate) apart from what it allows now: each
//! acknowledgement makes the latter out of the former, and only some move the reference ([`ReferenceUpdate::commit`]).

mod config;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::sync::Arc;

use squall_base::{Span, Time};

use crate::controller::{
    Budget, Feedback, FlowEvent, SenderAction, SenderCc, SenderMetrics, SentPacket, Stamp,
};
use crate::math::{least, most};
pub use config::{FairConfig, FairParameters, VaiConfig};

/// What an acknowledgement says, in the eyes of the algorithm.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CongestionSample {
    /// How much congestion, in the unit of [`VaiConfig::threshold`].
    pub measure: f32,
    /// The algorithm would go down: to it this is congestion.
    pub decrease: bool,
    /// Packets acknowledged. Those, and not acknowledgements, are counted.
    pub packets: u16,
    /// A round trip ended.
    pub round_end: bool,
    /// The reference, a window or a rate.
    pub window: f32,
    /// The largest there may be.
    pub largest: f32,
}

/// What the algorithm is to make of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ReferenceUpdate {
    /// What is allowed now becomes the reference.
    pub commit: bool,
    /// What the additive increase is multiplied by, at least 1.
    pub gain: f32,
}

impl ReferenceUpdate {
    /// Without VAI and SF: once a round trip, by the plain increase.
    #[must_use]
    pub const fn plain(round_end: bool) -> Self {
        Self { commit: round_end, gain: 1.0 }
    }
}

/// The window that those of single acknowledgements are made from, of an algorithm that by itself keeps none: in bytes, zero before
/// the first.
#[derive(Clone, Copy, Default, Debug)]
pub struct Reference(f32);

/// The state of VAI and SF in a context: 24 bytes, and 8 with a [`Reference`].
#[derive(Clone, Debug)]
pub struct Fairness<R> {
    config: Arc<FairConfig>,
    reference: R,
    /// Tokens (`AI_Bank`).
    bank: f32,
    dampener: f32,
    /// Most congestion in this round trip (`Measured Congestion`).
    worst: f32,
    /// Packets acknowledged since the reference moved.
    acked: u16,
    /// Something in this round trip was congestion to the algorithm.
    congested: bool,
    /// Of the random numbers; what is sampled is mixed in.
    seed: u8,
}

impl Fairness<Reference> {
    /// The reference, in bytes: `window` where there was none yet.
    pub(crate) const fn reference(&self, window: f32) -> f32 {
        if self.reference.0 > 0.0 { self.reference.0 } else { window }
    }

    /// The reference is `window` bytes from now on.
    pub(crate) const fn set_reference(&mut self, window: f32) {
        self.reference.0 = window;
    }
}

impl<R: Default> Fairness<R> {
    /// At rest.
    #[must_use]
    pub fn new(config: Arc<FairConfig>) -> Self {
        let (bank, dampener, worst) = (0.0, 0.0, 0.0);
        let reference = R::default();
        Self { config, reference, bank, dampener, worst, acked: 0, congested: false, seed: 0 }
    }

    /// Whether the algorithm is to keep a reference although by itself it does not.
    #[must_use]
    pub fn wants_reference(&self) -> bool {
        self.config.vai.is_some() || self.config.sf > 0
    }

    /// What is to be made of an acknowledgement; `None` if it is to be ignored.
    #[inline(always)]
    pub fn update(&mut self, sample: &CongestionSample) -> Option<ReferenceUpdate> {
        // Neither is ever not a number, which `max` would look after.
        if sample.measure > self.worst {
            self.worst = sample.measure;
        }
        self.congested |= sample.decrease;
        self.acked = self.acked.saturating_add(sample.packets);
        if sample.round_end {
            self.end_round();
        }
        // Section 4.1.2: decreases after so many packets, increases never more often than once a round trip.
        let commit = match self.config.sf {
            sf if sample.decrease && sf > 0 => self.acked >= sf,
            _ => sample.round_end,
        };
        if commit {
            self.acked = 0;
        }
        if commit && sample.decrease && self.config.random && self.ignores(sample) {
            return None;
        }
        Some(ReferenceUpdate { commit, gain: self.gain(commit) })
    }

    /// Algorithm 1: tokens and dampener.
    #[inline(always)]
    fn end_round(&mut self) {
        let worst = core::mem::replace(&mut self.worst, 0.0);
        let congested = core::mem::replace(&mut self.congested, false);
        let Some(vai) = &self.config.vai else { return };
        if worst > vai.threshold {
            self.bank = least(self.bank + worst / vai.token, vai.bank);
            self.dampener += worst / vai.threshold;
        } else if self.bank == 0.0 {
            self.dampener = if congested { most(self.dampener - 1.0, 0.0) } else { 0.0 };
        }
    }

    /// Algorithm 2: what the additive increase is multiplied by; tokens are spent where it lasts.
    #[inline(always)]
    fn gain(&mut self, commit: bool) -> f32 {
        let (true, Some(vai)) = (self.bank > 0.0, &self.config.vai) else { return 1.0 };
        let tokens = least(self.bank, vai.cap);
        if commit {
            self.bank -= tokens;
        }
        most(tokens / (self.dampener / vai.dampener + 1.0), 1.0)
    }

    /// Section 3.3.4: feedback is disregarded if the window is less than a random one up to the largest. Drawn from
    /// what was sampled, as there is no other randomness here.
    #[inline(always)]
    fn ignores(&mut self, sample: &CongestionSample) -> bool {
        let mixed = (sample.measure.to_bits() ^ u32::from(self.seed)).wrapping_mul(0x9e37_79b1);
        let drawn = (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca77);
        self.seed = (drawn >> 24) as u8;
        let share = (drawn >> 8 & 0xffff) as f32 / 65_536.0;
        sample.window / sample.largest < share
    }
}

/// An algorithm that lends its law to VAI and SF.
pub trait FairCc: SenderCc {
    /// [`Reference`], or nothing where it has one by itself.
    type Reference: Clone + Default + core::fmt::Debug;

    /// [`SenderCc::on_feedback`] where VAI and SF say what is made of it.
    fn on_feedback_fairly(
        &mut self,
        feedback: &Feedback<'_>,
        fairness: &mut Fairness<Self::Reference>,
    );
}

/// An algorithm with VAI or SF.
#[derive(Clone, Debug)]
pub struct FairSender<A: FairCc> {
    inner: A,
    fairness: Fairness<A::Reference>,
}

impl<A: FairCc> FairSender<A> {
    /// A fresh context round one of the algorithm.
    #[must_use]
    pub fn new(inner: A, config: Arc<FairConfig>) -> Box<Self> {
        Box::new(Self { inner, fairness: Fairness::new(config) })
    }
}

impl<A: FairCc> SenderCc for FairSender<A> {
    fn budget(&self, now: Time) -> Budget {
        self.inner.budget(now)
    }

    fn on_send(&mut self, now: Time, sending: &SentPacket) -> Stamp {
        self.inner.on_send(now, sending)
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.inner.on_feedback_fairly(feedback, &mut self.fairness);
    }

    fn on_event(&mut self, now: Time, event: FlowEvent) {
        self.inner.on_event(now, event);
    }

    fn on_timer(&mut self, now: Time) {
        self.inner.on_timer(now);
    }

    fn next_timer(&self) -> Option<Time> {
        self.inner.next_timer()
    }

    fn poll(&mut self, now: Time) -> Option<SenderAction> {
        self.inner.poll(now)
    }

    fn metrics(&self) -> SenderMetrics {
        self.inner.metrics()
    }

    fn base_rtt(&self) -> Option<Span> {
        self.inner.base_rtt()
    }

    fn state_bytes(&self) -> usize {
        // The algorithm may itself have more than it holds here.
        size_of_val(self) - size_of_val(&self.inner) + self.inner.state_bytes()
    }
}
