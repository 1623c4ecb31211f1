//! STrack (Le et al., "STrack: A Reliable Multipath Transport for AI/ML Clusters"); algorithms,
//! tables and sections below are that paper's. Its path selection is [`crate::StrackPaths`]; its
//! loss detection belongs to the packet delivery context.
//!
//! Decisions where the paper contradicts itself or gives no value:
//!
//! - Table 1 gives `beta` and `alpha` in bytes for a window counted in packets (algorithm 3 lines 6
//!   and 8 divide by it). In bytes each acknowledged byte adds `beta / cwnd`, so that a full window
//!   adds `beta`, five MTU, whatever its size.
//! - Section 3.2 increases by `beta` beyond twice the target delay, algorithm 3 line 5 beyond
//!   `target_Qhigh`, three times the target: this code follows the algorithm.
//! - `max_cwnd` is "roughly the BDP" (section 3): one BDP of the measured base RTT, rounded up to
//!   whole packets, because the link stands idle for the part of a packet that a window cannot use.
//! - An `achievedBDP` of zero is no measurement (so in uet-htsim `strack.h`), not a window.
//! - Probes overtake the queues here (control class), so an answer measures the base RTT but has no
//!   queueing delay by which to adjust the window.
//! - The algorithm does not react to a loss: on the paper's switches, which drop at 5 BDP of queue,
//!   the packets around a lost one have long shown more delay than `target_Qhigh`. Where queues are
//!   shorter than the target delay the window would never shrink, so a trimmed or lost packet
//!   counts as delayed by such a queue, and the loss threshold is that of the other algorithms.
//!   `loss_reaction=0` follows the paper to the letter.

mod config;
mod fairness;
mod paths;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use squall_base::{Span, Time};

use crate::controller::{
    Budget, Feedback, FeedbackKind, FlowEvent, SenderAction, SenderCc, SenderMetrics, SentPacket,
    Stamp,
};
use crate::math::{clock, float, least, most, nanos};
pub use config::StrackConfig;
pub use paths::{StrackPaths, StrackPathsConfig};

/// Unanswered probes in a row, after which only the retransmission timer is left; section 3.3 puts
/// it at "tens of RTTs".
const PROBES: u8 = 10;

/// One STrack context, parameters shared.
///
/// Times except the probe's are the low 32 bits of nanoseconds, only used for differences. A pause
/// of a multiple of 4.29 s plus less than one base RTT therefore looks short; it delays one
/// adjustment by one base RTT and has no other effect.
#[derive(Clone, Debug)]
pub struct Strack {
    config: Arc<StrackConfig>,
    /// Time at which the probe timer expires (`probe_timer_ts`); [`Time::NEVER`] while nothing is
    /// in flight.
    probe_at: Time,
    /// Congestion window in bytes.
    cwnd: f32,
    /// Largest congestion window that the measured base round-trip time allows, in bytes.
    max_wnd: f32,
    /// Moving average of the queueing delay in nanoseconds.
    avg_delay: f32,
    /// Smallest round-trip time seen, in nanoseconds.
    base_rtt: u32,
    /// Bytes acknowledged in the current period of algorithm 4 (line 3), about a round trip.
    rx_count: u32,
    /// Bytes acknowledged in the last full period of algorithm 4; zero before the first.
    achieved: u32,
    rx_count_clear: u32,
    last_decrease: u32,
    last_selfai: u32,
    /// The first report arrived, so the first period of algorithm 4 has begun.
    counting: bool,
    probe_due: bool,
    /// Probes sent since the last report arrived.
    probes: u8,
}

impl Strack {
    /// Creates a context that starts at the largest window at `now`. `config` must have passed its
    /// check.
    #[must_use]
    pub fn new(config: Arc<StrackConfig>, now: Time) -> Self {
        let base_rtt = nanos(config.base_rtt);
        let mut strack = Self {
            config,
            probe_at: Time::NEVER,
            cwnd: 0.0,
            max_wnd: 0.0,
            avg_delay: 0.0,
            base_rtt,
            rx_count: 0,
            achieved: 0,
            rx_count_clear: 0,
            last_decrease: clock(now),
            last_selfai: clock(now),
            counting: false,
            probe_due: false,
            probes: 0,
        };
        strack.set_max_wnd();
        strack.cwnd = strack.max_wnd;
        strack
    }

    #[cold]
    #[inline(never)]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // positive and in range
    fn set_max_wnd(&mut self) {
        let config = &*self.config;
        let rtt = f64::from(self.base_rtt.max(nanos(config.min_base_rtt)));
        let window = config.line.0 as f64 * rtt / 8e9 * f64::from(config.max_wnd_bdp);
        let packets = (window as u64).div_ceil(u64::from(config.mtu));
        let floor = (config.min_max_wnd as f32).max(config.min_wnd);
        self.max_wnd = (packets as f32 * config.mtu as f32).max(floor);
    }

    /// Applies algorithm 1 (`on_receiving_ack`) to an ACK whose round-trip time is no new base RTT.
    #[inline]
    fn on_sample(&mut self, feedback: &Feedback<'_>, rtt: u32) {
        self.restart_probe_timer(feedback); // line 12
        self.update_achieved(clock(feedback.now), feedback.bytes); // line 16
        let delay = (rtt - self.base_rtt).into();
        self.adjust::<true>(clock(feedback.now), feedback.bytes, feedback.ecn, delay);
        self.clamp();
    }

    /// Processes any report without VAI and SF.
    #[inline(never)]
    fn on_any(&mut self, feedback: &Feedback<'_>) {
        if matches!(
            feedback.kind,
            FeedbackKind::Nacked { .. } | FeedbackKind::Lost | FeedbackKind::TimedOut
        ) {
            if feedback.rtt.is_some() {
                self.on_sampled_loss(feedback);
            } else {
                self.on_loss(feedback);
            }
        } else if matches!(feedback.kind, FeedbackKind::Acked | FeedbackKind::ProbeAnswered) {
            self.on_ack(feedback);
        } // other kinds are signals of other algorithms
    }

    fn clamp(&mut self) {
        self.cwnd = most(least(self.cwnd, self.max_wnd), self.config.min_wnd);
    }

    /// Applies algorithm 1 (`on_receiving_ack`) to an acknowledgement.
    #[inline(never)]
    fn on_ack(&mut self, feedback: &Feedback<'_>) {
        let now = clock(feedback.now);
        let probed = feedback.kind == FeedbackKind::ProbeAnswered;
        let delay = self.sample(feedback.rtt); // lines 8 to 11
        self.restart_probe_timer(feedback); // line 12
        self.update_achieved(now, if probed { 0 } else { feedback.bytes }); // line 16
        if let (Some(delay), false) = (delay, probed) {
            self.adjust::<true>(now, feedback.bytes, feedback.ecn, delay.into()); // line 17
        }
        self.clamp();
    }

    /// Processes a refused packet whose round-trip time is known.
    #[inline(never)]
    fn on_sampled_loss(&mut self, feedback: &Feedback<'_>) {
        self.sample(feedback.rtt);
        self.on_loss(feedback);
    }

    /// Processes a packet that the peer refused or that is lost.
    #[inline(never)]
    fn on_loss(&mut self, feedback: &Feedback<'_>) {
        let now = clock(feedback.now);
        self.restart_probe_timer(feedback);
        if let FeedbackKind::Nacked { trimmed: false, .. } = feedback.kind {
            self.clamp(); // refused because the receiver lacks room
            return;
        }
        self.update_achieved(now, 0);
        if self.config.loss_delay > Span::ZERO {
            self.adjust::<true>(now, 0, true, self.config.loss_delay.0);
        }
        self.clamp();
    }

    /// Updates the base round-trip time with a sample, and returns the sample's queueing delay in
    /// nanoseconds.
    fn sample(&mut self, rtt: Option<Span>) -> Option<u32> {
        let rtt = nanos(rtt?).max(1);
        if rtt < self.base_rtt {
            self.base_rtt = rtt;
            self.set_max_wnd();
        }
        Some(rtt - self.base_rtt)
    }

    /// Counts acknowledged bytes, and ends the period of algorithm 4 when it is over.
    fn update_achieved(&mut self, now: u32, acked: u32) {
        if !self.counting {
            self.counting = true;
            self.rx_count_clear = now;
        }
        self.rx_count = self.rx_count.saturating_add(acked); // line 3
        let passed = now.wrapping_sub(self.rx_count_clear);
        if u64::from(passed) > u64::from(self.base_rtt) + self.config.target_qdelay.0 {
            self.achieved = self.rx_count; // line 5
            self.rx_count = 0;
            self.rx_count_clear = now;
        }
    }

    /// Applies algorithm 3 of the STrack paper, with or without its decreases. `delay` is the queueing delay in
    /// nanoseconds.
    #[inline(always)]
    fn adjust<const LOWERS: bool>(&mut self, now: u32, bytes: u32, ecn: bool, delay: u64) {
        let config = &*self.config;
        let (target, high) = (config.target_qdelay.0, config.target_qhigh.0);
        self.avg_delay += config.ewma * (float(delay) - self.avg_delay); // line 4
        if !ecn && delay > high {
            self.cwnd += config.beta * bytes as f32 / self.cwnd; // line 6
        } else if !ecn && delay < target {
            let room = float(target - delay);
            self.cwnd += config.alpha * room * bytes as f32 / self.cwnd; // line 8
        } else if LOWERS
            && now.wrapping_sub(self.last_decrease) > self.base_rtt
            && delay > target.min(high)
            && let Some(cwnd) = self.decreased_window(delay)
        {
            self.cwnd = cwnd;
            self.last_decrease = now;
        }
        if now.wrapping_sub(self.last_selfai) > self.base_rtt {
            self.cwnd += config.eta; // lines 18 to 21
            self.last_selfai = now;
        }
    }

    /// Returns the window that algorithm 3 lines 9 to 16 reduces to at a queueing delay, in
    /// nanoseconds, that is no reason to increase; `None` if the window stays.
    #[inline(always)]
    fn decreased_window(&self, delay: u64) -> Option<f32> {
        let config = &*self.config;
        let (target, high) = (config.target_qdelay.0, config.target_qhigh.0);
        let above = self.avg_delay - float(target);
        let gate = self.max_wnd * config.achieved_gate;
        if above <= 0.0 {
            None // line 9: only some paths are congested
        } else if delay > high && self.achieved > 0 && (self.achieved as f32) < gate {
            Some(self.achieved as f32) // line 11
        } else if delay > target {
            // Line 14.
            let cut = config.gamma * above / self.avg_delay;
            Some(self.cwnd * most(1.0 - cut, config.max_md_jump))
        } else {
            None
        }
    }

    /// Restarts the probe timer while something is in flight (algorithm 1 line 12).
    fn restart_probe_timer(&mut self, feedback: &Feedback<'_>) {
        self.probes = 0;
        self.probe_at = if feedback.in_flight > 0 {
            feedback.now + self.config.probe_after
        } else {
            Time::NEVER
        };
    }
}

impl SenderCc for Strack {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped to be positive
    fn budget(&self, _now: Time) -> Budget {
        Budget { window: Some(self.cwnd as u64), ..Budget::default() }
    }

    fn on_send(&mut self, now: Time, _sending: &SentPacket) -> Stamp {
        if self.probe_at == Time::NEVER {
            self.probe_at = now + self.config.probe_after;
        }
        Stamp::default()
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        if let (FeedbackKind::Acked, Some(rtt)) = (feedback.kind, feedback.rtt) {
            let rtt = nanos(rtt);
            if rtt >= self.base_rtt {
                self.on_sample(feedback, rtt);
                return;
            }
        }
        self.on_any(feedback);
    }

    fn on_event(&mut self, _now: Time, event: FlowEvent) {
        if event == FlowEvent::Idle {
            self.probe_at = Time::NEVER;
        }
    }

    /// Sends a probe after three base round trips of silence, and another if that is lost, too
    /// (section 3.3.2).
    fn on_timer(&mut self, now: Time) {
        if now >= self.probe_at {
            self.probe_due = true;
            self.probes += 1;
            self.probe_at =
                if self.probes < PROBES { now + self.config.probe_after } else { Time::NEVER };
        }
    }

    fn next_timer(&self) -> Option<Time> {
        (self.probe_at < Time::NEVER).then_some(self.probe_at)
    }

    fn poll(&mut self, _now: Time) -> Option<SenderAction> {
        core::mem::take(&mut self.probe_due).then_some(SenderAction::Probe)
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // never negative
    fn metrics(&self) -> SenderMetrics {
        SenderMetrics {
            cwnd: Some(self.cwnd as u64),
            max_cwnd: Some(self.max_wnd as u64),
            rate: None,
            base_rtt: Some(Span(u64::from(self.base_rtt))),
            avg_delay: Some(Span(self.avg_delay as u64)),
            ungranted: false,
        }
    }
}
