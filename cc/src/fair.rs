//! Variable Additive Increase (VAI) and Sampling Frequency (SF), for every algorithm that supports
//! them: J. Snyder, "Improving Congestion Control Convergence in RDMA Networks" (thesis, Duke
//! 2022), chapter 4; and the ablation of its section 3.3.4 that ignores feedback at random. Section
//! and algorithm numbers below are the thesis'.
//!
//! A flow that starts at line rate builds a queue of one bandwidth-delay product, so a long queue
//! indicates that bandwidth is shared unfairly. VAI then raises the additive increase for a while,
//! by tokens, and raises it less the longer queues persist (its dampener). SF lowers a flow's
//! reference after a number of acknowledged packets instead of once a round trip, so that a flow
//! with a larger share is lowered more often.
//!
//! Both need an algorithm that keeps a reference (window or rate) apart from what it allows now:
//! each acknowledgement derives the allowed value from the reference, and only some
//! acknowledgements move the reference ([`ReferenceUpdate::commit`]).

mod config;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::sync::Arc;

use squall_base::Time;

use crate::controller::{Budget, Feedback, SenderCc, SentPacket, Stamp, forward_to_inner};
use crate::math::{least, most};
pub use config::{FairConfig, FairParameters, VaiConfig};

/// Congestion that one acknowledgement reports, as the algorithm judges it: input of VAI and SF.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CongestionSample {
    /// Amount of congestion, in the unit of [`VaiConfig::threshold`].
    pub measure: f32,
    /// The algorithm itself would decrease window or rate on this acknowledgement.
    pub decrease: bool,
    /// Number of packets that the acknowledgement covers. SF counts packets, not acknowledgements.
    pub packets: u16,
    /// A round trip ended with this acknowledgement.
    pub round_end: bool,
    /// Current reference of the algorithm: a window in bytes or a rate.
    pub window: f32,
    /// Largest value that the reference can have.
    pub largest: f32,
}

/// Decision of Variable Additive Increase (VAI) and Sampling Frequency (SF) about an
/// acknowledgement: by how much to increase, and whether the result becomes the new reference.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ReferenceUpdate {
    /// The window or rate computed from this acknowledgement becomes the new reference.
    pub commit: bool,
    /// Factor by which VAI raises the additive increase, at least 1.
    pub gain: f32,
}

impl ReferenceUpdate {
    /// Returns the decision without VAI and SF: the reference moves once a round trip, by the plain
    /// increase.
    #[must_use]
    pub const fn plain(round_end: bool) -> Self {
        Self { commit: round_end, gain: 1.0 }
    }
}

/// Reference window in bytes of an algorithm that keeps none by itself. Each acknowledgement derives
/// its window from the reference, not from the window of the acknowledgement before. The value is
/// zero until the reference is set for the first time.
#[derive(Clone, Copy, Default, Debug)]
pub struct Reference(f32);

/// State of VAI and SF in a context: 24 bytes, and 8 more with a [`Reference`].
#[derive(Clone, Debug)]
pub struct Fairness<R> {
    config: Arc<FairConfig>,
    reference: R,
    /// Tokens that VAI holds, each of which raises an increase (`AI_Bank`).
    bank: f32,
    dampener: f32,
    /// Largest amount of congestion seen in this round trip (`Measured Congestion`).
    worst: f32,
    /// Packets acknowledged since the reference last moved, which SF counts.
    acked: u16,
    /// The algorithm saw congestion, and would decrease, in this round trip.
    congested: bool,
    /// Seed of the random numbers for ignoring feedback; each sample is mixed in.
    seed: u8,
}

impl Fairness<Reference> {
    /// Returns the reference window in bytes, or `window` if there is none yet.
    pub(crate) const fn reference(&self, window: f32) -> f32 {
        if self.reference.0 > 0.0 { self.reference.0 } else { window }
    }

    /// Sets the reference window to `window` bytes.
    pub(crate) const fn set_reference(&mut self, window: f32) {
        self.reference.0 = window;
    }
}

impl<R: Default> Fairness<R> {
    /// Creates the state of VAI and SF with no tokens, before any congestion.
    #[must_use]
    pub fn new(config: Arc<FairConfig>) -> Self {
        let (bank, dampener, worst) = (0.0, 0.0, 0.0);
        let reference = R::default();
        Self { config, reference, bank, dampener, worst, acked: 0, congested: false, seed: 0 }
    }

    /// Returns whether VAI or SF needs a reference from an algorithm that keeps none by itself.
    #[must_use]
    pub fn wants_reference(&self) -> bool {
        self.config.vai.is_some() || self.config.sf > 0
    }

    /// Decides how the algorithm reacts to an acknowledgement; `None` if it must ignore the
    /// acknowledgement.
    #[inline(always)]
    pub fn update(&mut self, sample: &CongestionSample) -> Option<ReferenceUpdate> {
        // Neither is NaN, which `max` would handle at extra cost.
        if sample.measure > self.worst {
            self.worst = sample.measure;
        }
        self.congested |= sample.decrease;
        self.acked = self.acked.saturating_add(sample.packets);
        if sample.round_end {
            self.end_round();
        }
        // Section 4.1.2: decreases after `sf` packets, increases never more often than once a round
        // trip.
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

    /// Ends a round trip of VAI: updates tokens and dampener (algorithm 1).
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

    /// Returns the factor of the additive increase (algorithm 2). Tokens are spent only when the
    /// reference moves.
    #[inline(always)]
    fn gain(&mut self, commit: bool) -> f32 {
        let (true, Some(vai)) = (self.bank > 0.0, &self.config.vai) else { return 1.0 };
        let tokens = least(self.bank, vai.cap);
        if commit {
            self.bank -= tokens;
        }
        most(tokens / (self.dampener / vai.dampener + 1.0), 1.0)
    }

    /// Returns whether to ignore this feedback at random (section 3.3.4): true if the window is
    /// smaller than a window drawn at random below the largest one. The sample is the seed of that
    /// draw, because this state has no other source of randomness.
    #[inline(always)]
    fn ignores(&mut self, sample: &CongestionSample) -> bool {
        let mixed = (sample.measure.to_bits() ^ u32::from(self.seed)).wrapping_mul(0x9e37_79b1);
        let drawn = (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca77);
        self.seed = (drawn >> 24) as u8;
        let share = (drawn >> 8 & 0xffff) as f32 / 65_536.0;
        sample.window / sample.largest < share
    }
}

/// A congestion control that supports Variable Additive Increase (VAI) and Sampling Frequency (SF).
pub trait FairCc: SenderCc {
    /// [`Reference`], or `()` if the algorithm keeps a reference by itself.
    type Reference: Clone + Default + core::fmt::Debug;

    /// Processes feedback as [`SenderCc::on_feedback`], with the decisions of VAI and SF.
    fn on_feedback_fairly(
        &mut self,
        feedback: &Feedback<'_>,
        fairness: &mut Fairness<Self::Reference>,
    );
}

/// A sender with Variable Additive Increase (VAI) or Sampling Frequency (SF) around its algorithm.
#[derive(Clone, Debug)]
pub struct FairSender<A: FairCc> {
    inner: A,
    fairness: Fairness<A::Reference>,
}

impl<A: FairCc> FairSender<A> {
    /// Creates a context that wraps a context of the algorithm.
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

    forward_to_inner!();
}
