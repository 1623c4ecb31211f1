//! HPCC (Li et al., "HPCC: High Precision Congestion Control", SIGCOMM 2019): a rate and a window
//! from switches' reports of their queues, by its algorithm 1, whose names are used below.
//!
//! Each packet returns one record per switch ([`crate::IntHop`]): the time at which it left, the
//! bytes that its port had sent until then and the bytes that remained in the queue. Two records of
//! one queue give the utilisation of its link in between.
//!
//! - Records are compared by queue, not by their place in the list: sprayed packets meet different
//!   queues at the same distance. A queue that was not met before, or was forgotten, gives a
//!   measurement only at the second meeting.
//! - The paper's network loses nothing. Here a loss of any kind halves the rate, at most once a
//!   round trip.
//! - Where no switch writes records the round trip replaces them: a link counts as full when a
//!   round trip takes four thirds of `T`. [`SenderMetrics::ungranted`] is then set.

mod config;
mod records;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::sync::Arc;

use squall_base::{Span, Time};

use crate::controller::{Budget, Feedback, FeedbackKind, SenderCc, SenderMetrics};
use crate::fair::{CongestionSample, FairCc, Fairness, ReferenceUpdate};
use crate::math::{float, least, most, up_to};
pub use config::HpccConfig;
use records::Records;

/// Value of [`Hpcc::least`] for a smallest round trip as long as the network's base RTT (`T`).
const WHOLE: u16 = u16::MAX;

/// One HPCC context: 104 bytes, and 12 for each queue above five; parameters shared.
#[derive(Clone, Debug)]
pub struct Hpcc {
    config: Arc<HpccConfig>,
    /// Last telemetry record of each queue; in a box, because it would enlarge the contexts of all
    /// algorithms.
    last: Box<Records>,
    /// Reference rate in bits per second (`W^c` over `T`), from which each ACK computes the rate.
    reference: f32,
    /// Sending rate in bits per second (`W` over `T`).
    rate: f32,
    /// `U`: bytes in flight over the bandwidth-delay product, smoothed over `T`.
    utilisation: f32,
    /// Smallest round trip of the flow as a share of the base RTT, in 65535ths; zero until
    /// something was acknowledged.
    least: u16,
    /// Additive increases since the last multiplicative one (`incStage`).
    stage: u8,
    /// A packet was lost in the current round trip, so a further loss does not cut the rate again.
    lost: bool,
}

/// Load of a path, measured from the telemetry records of one packet.
#[derive(Clone, Copy, Debug, Default)]
struct PathMeasurement {
    /// Utilisation `u` of the busiest link, 1 when it is full.
    utilisation: f32,
    /// Time between the two records of the busiest link that were compared, in nanoseconds.
    between: f32,
    /// Length of the longest queue on the path in bytes.
    longest: u32,
}

impl Hpcc {
    /// Creates a context that starts at line rate. `config` must have passed
    /// [`crate::Tunable::check`].
    #[must_use]
    pub fn new(config: Arc<HpccConfig>, _now: Time) -> Self {
        let line = config.line.0 as f32;
        Self {
            last: Box::new(Records::new(config.queues)),
            reference: line,
            rate: line,
            utilisation: 1.0,
            least: 0,
            stage: 0,
            lost: false,
            config,
        }
    }

    /// Returns the base round-trip time `T` of this flow in nanoseconds.
    fn base(&self) -> f32 {
        let base = float(self.config.base_rtt.0);
        if self.config.global_t || self.least == 0 {
            base
        } else {
            base * (f32::from(self.least) / f32::from(WHOLE))
        }
    }

    /// Returns the smallest round trip seen, including `rtt`, in the unit of [`Hpcc::least`].
    fn shortest(&self, rtt: Span) -> u16 {
        let base = self.config.base_rtt.0;
        // Clocks may return anything, so the product saturates.
        let trip = rtt.0.saturating_mul(WHOLE.into());
        // The comparison saves the division for most round trips, which are no shorter.
        if self.least != 0 && trip >= base.saturating_mul(self.least.into()) {
            return self.least;
        }
        // The value is at most [`WHOLE`].
        (trip / base.max(1)).clamp(1, WHOLE.into()) as u16
    }

    /// Processes an acknowledgement whose records are of the few queues met last, in the same
    /// order, when `T` is global.
    #[inline(always)]
    fn on_same_path(&mut self, feedback: &Feedback<'_>, fairness: Option<&mut Fairness<()>>) {
        self.lost &= !feedback.round_end;
        let base = float(self.config.base_rtt.0);
        if let Some((utilisation, between)) =
            self.last.advance(feedback.telemetry(), 1.0 / base).measurement()
        {
            let longest = if fairness.is_some() { feedback.telemetry().longest() } else { 0 };
            self.on_measurement(
                feedback,
                &PathMeasurement { utilisation, between, longest },
                base,
                fairness,
            );
        }
    }

    /// Processes an acknowledgement that [`Self::on_same_path`] does not take.
    #[inline(never)]
    fn on_ack(&mut self, feedback: &Feedback<'_>, fairness: Option<&mut Fairness<()>>) {
        self.lost &= !feedback.round_end;
        let first = self.least == 0;
        self.least = match feedback.rtt {
            Some(rtt) => self.shortest(rtt),
            None if first => WHOLE,
            None => self.least,
        };
        let base = self.base();
        let hops = feedback.telemetry();
        let measured = if hops.is_empty() {
            // Three quarters of the round trip: otherwise the smallest delay of a host would count
            // as a full link.
            feedback.rtt.map(|rtt| {
                let utilisation = rtt.0 as f32 / base * 0.75;
                let longest = most(rtt.0 as f32 - base, 0.0) * float(self.config.line.0) / 8e9;
                PathMeasurement { utilisation, between: base, longest: longest as u32 }
            })
        } else {
            let found = self.last.compare_any(hops, 1.0 / base).measurement().filter(|_| !first);
            found.map(|(utilisation, between)| PathMeasurement {
                utilisation,
                between,
                longest: hops.longest(),
            })
        };
        if let Some(measured) = measured {
            self.on_measurement(feedback, &measured, base, fairness);
        }
    }

    #[inline(always)]
    fn on_measurement(
        &mut self,
        feedback: &Feedback<'_>,
        measured: &PathMeasurement,
        base: f32,
        fairness: Option<&mut Fairness<()>>,
    ) {
        let weight = least(measured.between, base) / base;
        self.utilisation += (measured.utilisation - self.utilisation) * weight;
        self.react(feedback, measured.longest, fairness);
    }

    /// Computes rate and reference from the utilisation (`ComputeWind` of algorithm 1).
    #[inline(always)]
    fn react(&mut self, feedback: &Feedback<'_>, queue: u32, fairness: Option<&mut Fairness<()>>) {
        let config = &*self.config;
        let line = float(config.line.0);
        let load = self.utilisation / config.eta;
        let decrease = load >= 1.0;
        let update = match fairness {
            None => ReferenceUpdate::plain(feedback.round_end),
            Some(fairness) => {
                let sample = CongestionSample {
                    measure: queue as f32,
                    decrease,
                    packets: feedback.packets,
                    round_end: feedback.round_end,
                    window: self.reference,
                    largest: line,
                };
                match fairness.update(&sample) {
                    Some(update) => update,
                    None => return,
                }
            }
        };
        let multiply = decrease || self.stage >= config.max_stage;
        let from = if multiply { self.reference / load } else { self.reference };
        let rate = from + float(config.ai.0) * update.gain;
        self.rate = least(most(rate, float(config.min_rate.0)), line);
        if update.commit {
            self.reference = self.rate;
            self.stage = if multiply { 0 } else { self.stage + 1 };
        }
    }

    fn on_loss(&mut self) {
        if !core::mem::replace(&mut self.lost, true) {
            self.rate = (self.rate.min(self.reference) / 2.0).max(self.config.min_rate.0 as f32);
            self.reference = self.rate;
            self.stage = 0;
        }
    }

    /// Processes any report; `fairness` is the state of VAI and SF if they are on.
    #[inline(always)]
    fn on_any_feedback(&mut self, feedback: &Feedback<'_>, fairness: Option<&mut Fairness<()>>) {
        let usual = feedback.kind == FeedbackKind::Acked && self.config.global_t;
        if usual && self.last.match_short_path(feedback.telemetry()) {
            self.on_same_path(feedback, fairness);
        } else {
            self.on_other_feedback(feedback, fairness);
        }
    }

    /// Processes a report whose telemetry is not of the queues met last, or that has none.
    #[inline(never)]
    fn on_other_feedback(&mut self, feedback: &Feedback<'_>, fairness: Option<&mut Fairness<()>>) {
        match feedback.kind {
            FeedbackKind::Acked => self.on_ack(feedback, fairness),
            FeedbackKind::Nacked { trimmed: true, .. }
            | FeedbackKind::Lost
            | FeedbackKind::TimedOut => self.on_loss(),
            // The receiver lacks room, a probe overtook the queues, or the signal belongs to other
            // algorithms.
            FeedbackKind::Nacked { trimmed: false, .. }
            | FeedbackKind::ProbeAnswered
            | FeedbackKind::Notified
            | FeedbackKind::Control => {}
        }
    }

    /// Returns the window `W` in bytes: what the rate sends in a base round-trip time `T`.
    fn window(&self) -> u64 {
        (f64::from(self.rate) * f64::from(self.base()) / 8e9 + 0.5) as u64
    }
}

impl SenderCc for Hpcc {
    fn budget(&self, _now: Time) -> Budget {
        let mtu = self.config.mtu;
        Budget {
            window: Some(self.window().max(mtu.into())),
            rate: Some(up_to(self.rate, self.config.line)),
            burst: mtu,
            ..Budget::default()
        }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.on_any_feedback(feedback, None);
    }

    fn metrics(&self) -> SenderMetrics {
        let line = self.config.line;
        let most = line.0 as f64 * self.config.base_rtt.as_f64() / 8e9;
        SenderMetrics {
            cwnd: Some(self.window()),
            max_cwnd: Some((most + 0.5) as u64),
            rate: Some(up_to(self.rate, line)),
            base_rtt: Some(self.config.base_rtt),
            // Acknowledgements arrived, and none had records.
            ungranted: self.least != 0 && self.last.is_empty(),
            ..SenderMetrics::default()
        }
    }

    fn base_rtt(&self) -> Option<squall_base::Span> {
        Some(self.config.base_rtt)
    }

    fn state_bytes(&self) -> usize {
        size_of_val(self) + self.last.bytes()
    }
}

impl FairCc for Hpcc {
    type Reference = ();

    fn on_feedback_fairly(&mut self, feedback: &Feedback<'_>, fairness: &mut Fairness<()>) {
        self.on_any_feedback(feedback, Some(fairness));
    }
}
