//! BBR's model of the path, and the states that keep it up to date.

use alloc::sync::Arc;

use squall_base::{Rng, Span, Time};

use super::config::BbrConfig;
use super::filter::MaxFilter;
use crate::controller::{Budget, Feedback, FeedbackKind, FlowEvent, SenderCc, SenderMetrics};
use crate::math::up_to;

/// Gains of the pacing rate in the eight phases of ProbeBW (section 4.3.4.1).
pub(super) const CYCLE: [f32; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];

/// State of BBR's state machine for one context (section 3.4 of the draft).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BbrState {
    /// Doubles the rate in each round trip until the bandwidth stops growing.
    Startup,
    /// Sends slowly until the queue is gone that Startup built.
    Drain,
    /// Cycles the rate around the estimated bandwidth; the field is the index of the phase in
    /// [`CYCLE`].
    ProbeBw(u8),
    /// Keeps only a few packets in flight, to measure the propagation time without queues.
    ProbeRtt,
}

/// State of one BBR context, 136 bytes: model of the path, and the window and rate that follow from
/// it.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) config: Arc<BbrConfig>,
    pub(super) state: BbrState,
    /// Estimated bottleneck bandwidth (`BBR.BtlBw`), in bytes per nanosecond.
    pub(super) btl_bw: MaxFilter,
    /// Estimated propagation time (`BBR.RTprop`) in nanoseconds; `u64::MAX` before the first
    /// sample.
    pub(super) rt_prop: u64,
    pub(super) rt_prop_stamp: Time,
    /// Bytes acknowledged since the context opened.
    pub(super) delivered: u64,
    /// Value of `delivered` at the start of the round: the round ends with the first packet that
    /// left at or after it.
    pub(super) next_round_delivered: u64,
    pub(super) round_count: u32,
    round_start: bool,
    pub(super) filled_pipe: bool,
    /// Bandwidth when it last grew by a quarter, and the number of round trips since.
    pub(super) full_bw: f32,
    pub(super) full_bw_count: u8,
    pub(super) cycle_stamp: Time,
    pub(super) probe_rtt_done: Option<Time>,
    probe_rtt_round_done: bool,
    pub(super) idle_restart: bool,
    /// Pacing rate in bytes per nanosecond.
    pub(super) pacing_rate: f32,
    pub(super) cwnd: u64,
    pub(super) prior_cwnd: u64,
    /// Unresolved bytes of those in flight when a loss was found: while there are any, the context
    /// is in loss recovery.
    pub(super) recovery_left: u64,
    /// The first round trip of loss recovery is not over: packet conservation applies.
    pub(super) conserving: bool,
}

impl Model {
    /// Creates a model that starts in the state Startup at `now`.
    pub(super) fn new(config: Arc<BbrConfig>, now: Time) -> Self {
        let cwnd = config.start_bytes();
        // `BBRInitPacingRate`, with the network's base RTT in place of the first sample.
        let nominal = cwnd as f32 / (config.base_rtt.0 as f32).max(1.0);
        Self {
            state: BbrState::Startup,
            btl_bw: MaxFilter::default(),
            rt_prop: u64::MAX,
            rt_prop_stamp: now,
            delivered: 0,
            next_round_delivered: 0,
            round_count: 0,
            round_start: false,
            filled_pipe: false,
            full_bw: 0.0,
            full_bw_count: 0,
            cycle_stamp: now,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            idle_restart: false,
            pacing_rate: (config.high_gain * nominal).min(line(&config)),
            cwnd,
            prior_cwnd: 0,
            recovery_left: 0,
            conserving: false,
            config,
        }
    }

    fn pacing_gain(&self) -> f32 {
        match self.state {
            BbrState::Startup => self.config.high_gain,
            BbrState::Drain => 1.0 / self.config.high_gain,
            BbrState::ProbeBw(phase) => CYCLE[usize::from(phase) % CYCLE.len()],
            BbrState::ProbeRtt => 1.0,
        }
    }

    fn cwnd_gain(&self) -> f32 {
        match self.state {
            BbrState::Startup | BbrState::Drain => self.config.high_gain,
            BbrState::ProbeBw(_) => self.config.cwnd_gain,
            BbrState::ProbeRtt => 1.0,
        }
    }

    /// `BBRInflight`: returns `gain` bandwidth-delay products plus room for the bytes that are sent
    /// and acknowledged in one go.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a saturating cast
    fn inflight(&self, gain: f32) -> u64 {
        let bw = self.btl_bw.get();
        if bw == 0.0 || self.rt_prop == u64::MAX {
            return self.config.start_bytes();
        }
        let bdp = bw * self.rt_prop as f32;
        ((gain * bdp) as u64).saturating_add(3 * u64::from(self.config.quantum))
    }

    /// Returns the bytes in flight before this report was processed.
    fn prior_inflight(feedback: &Feedback<'_>) -> u64 {
        feedback.in_flight.saturating_add(u64::from(feedback.bytes))
    }

    /// Updates model and control parameters on an ACK (`BBRUpdateOnACK` of the draft).
    fn on_ack(&mut self, feedback: &Feedback<'_>) {
        self.delivered = self.delivered.saturating_add(u64::from(feedback.bytes));
        self.update_round(feedback);
        self.update_bandwidth(feedback);
        self.check_cycle_phase(feedback, false);
        self.check_full_pipe(feedback);
        self.check_drain(feedback);
        self.update_rt_prop_and_check_probe_rtt(feedback);
        self.set_pacing_rate(self.pacing_gain());
        self.set_cwnd(feedback);
    }

    /// `BBRUpdateRound`. The value of `delivered` when the packet left is today's value less the
    /// bytes delivered in between.
    fn update_round(&mut self, feedback: &Feedback<'_>) {
        self.round_start = match feedback.delivered {
            Some(since) => self.delivered.saturating_sub(since) >= self.next_round_delivered,
            None => feedback.round_end,
        };
        if self.round_start {
            self.next_round_delivered = self.delivered;
            self.round_count = self.round_count.wrapping_add(1);
            self.conserving = false;
        }
    }

    /// Updates the estimated bottleneck bandwidth (`BBRUpdateBtlBw`). The sender's own line bounds
    /// the bandwidth; delayed acknowledgements can make it appear faster.
    fn update_bandwidth(&mut self, feedback: &Feedback<'_>) {
        let (Some(delivered), Some(rtt)) = (feedback.delivered, feedback.rtt) else { return };
        let sample = (delivered as f32 / (rtt.0 as f32).max(1.0)).min(line(&self.config));
        if sample >= self.btl_bw.get() || !feedback.app_limited {
            self.btl_bw.update(sample, self.round_count, u32::from(self.config.bw_rounds));
        }
    }

    /// Moves to the next phase of ProbeBW's gain cycle when the current one is over
    /// (`BBRCheckCyclePhase`, `BBRIsNextCyclePhase` and `BBRAdvanceCyclePhase`).
    fn check_cycle_phase(&mut self, feedback: &Feedback<'_>, lost: bool) {
        let BbrState::ProbeBw(phase) = self.state else { return };
        let full_length = feedback.now.since(self.cycle_stamp) > Span(self.rt_prop);
        let before = Self::prior_inflight(feedback);
        let gain = self.pacing_gain();
        let next = if gain > 1.0 {
            full_length && (lost || before >= self.inflight(gain))
        } else if gain < 1.0 {
            full_length || before <= self.inflight(1.0)
        } else {
            full_length
        };
        if next {
            self.state = BbrState::ProbeBw((phase + 1) % CYCLE.len() as u8);
            self.cycle_stamp = feedback.now;
        }
    }

    /// Concludes that Startup has filled the pipe after three rounds in which the bandwidth did not
    /// grow by a quarter (`BBRCheckFullPipe`).
    fn check_full_pipe(&mut self, feedback: &Feedback<'_>) {
        if self.filled_pipe || !self.round_start || feedback.app_limited {
            return;
        }
        let bw = self.btl_bw.get();
        if bw >= self.full_bw * 1.25 {
            self.full_bw = bw;
            self.full_bw_count = 0;
            return;
        }
        self.full_bw_count += 1;
        self.filled_pipe = self.full_bw_count >= 3;
    }

    /// Enters Drain once the pipe is full, and leaves it once the queue is gone (`BBRCheckDrain`).
    fn check_drain(&mut self, feedback: &Feedback<'_>) {
        if self.state == BbrState::Startup && self.filled_pipe {
            self.state = BbrState::Drain;
        }
        if self.state == BbrState::Drain && feedback.in_flight <= self.inflight(1.0) {
            self.enter_probe_bw(feedback.now);
        }
    }

    /// Enters ProbeBW in a random phase, but not in the one that drains (`BBREnterProbeBW`, section
    /// 4.3.4.2).
    fn enter_probe_bw(&mut self, now: Time) {
        // Flows that enter together should not probe together; their delivered bytes distinguish
        // them.
        let mut rng = Rng::new(now.0 ^ self.delivered.rotate_left(32) ^ self.rt_prop);
        let last = CYCLE.len() as u32 - 1;
        // The result is 7 - (0..=6), plus one: 2..=7 and 0.
        let phase = (last - rng.below(last) + 1) % (last + 1);
        self.state = BbrState::ProbeBw(phase as u8);
        self.cycle_stamp = now;
    }

    /// Updates the estimated propagation time, and enters ProbeRTT when it is too old
    /// (`BBRUpdateRTprop` and `BBRCheckProbeRTT`).
    fn update_rt_prop_and_check_probe_rtt(&mut self, feedback: &Feedback<'_>) {
        let expired = feedback.now.since(self.rt_prop_stamp) > self.config.min_rtt_window;
        if let Some(rtt) = feedback.rtt.map(|rtt| rtt.0.max(1))
            && (rtt <= self.rt_prop || expired)
        {
            self.rt_prop = rtt;
            self.rt_prop_stamp = feedback.now;
        }
        if expired && !self.idle_restart && self.state != BbrState::ProbeRtt {
            self.prior_cwnd = self.save_cwnd();
            self.state = BbrState::ProbeRtt;
            self.probe_rtt_done = None;
        }
        if self.state == BbrState::ProbeRtt {
            self.handle_probe_rtt(feedback);
        }
        self.idle_restart = false;
    }

    /// Runs the state ProbeRTT: waits until little is in flight, then for its duration, and leaves
    /// it (`BBRHandleProbeRTT` and `BBRExitProbeRTT`).
    fn handle_probe_rtt(&mut self, feedback: &Feedback<'_>) {
        match self.probe_rtt_done {
            None if feedback.in_flight <= self.config.min_pipe_bytes() => {
                self.probe_rtt_done = Some(feedback.now + self.config.probe_rtt);
                self.probe_rtt_round_done = false;
                self.next_round_delivered = self.delivered;
            }
            None => {}
            Some(done) => {
                self.probe_rtt_round_done |= self.round_start;
                if self.probe_rtt_round_done && feedback.now > done {
                    self.rt_prop_stamp = feedback.now;
                    self.cwnd = self.cwnd.max(self.prior_cwnd);
                    if self.filled_pipe {
                        self.enter_probe_bw(feedback.now);
                    } else {
                        self.state = BbrState::Startup;
                    }
                }
            }
        }
    }

    /// Sets the pacing rate to `gain` times the bottleneck bandwidth (`BBRSetPacingRateWithGain`).
    fn set_pacing_rate(&mut self, gain: f32) {
        let rate = (gain * self.btl_bw.get()).min(line(&self.config));
        if rate > 0.0 && (self.filled_pipe || rate > self.pacing_rate) {
            self.pacing_rate = rate;
        }
    }

    /// Updates the congestion window on an ACK (`BBRSetCwnd`).
    fn set_cwnd(&mut self, feedback: &Feedback<'_>) {
        let bytes = u64::from(feedback.bytes);
        let target = self.inflight(self.cwnd_gain());
        if self.conserving {
            self.cwnd = self.cwnd.max(feedback.in_flight.saturating_add(bytes));
        } else {
            if self.filled_pipe {
                self.cwnd = self.cwnd.saturating_add(bytes).min(target);
            } else if self.cwnd < target || self.delivered < self.config.start_bytes() {
                self.cwnd = self.cwnd.saturating_add(bytes);
            }
            self.cwnd = self.cwnd.max(self.config.min_pipe_bytes());
        }
        self.limit_cwnd();
    }

    /// Limits the window to that of ProbeRTT in that state (`BBRModulateCwndForProbeRTT`), and to
    /// the largest window in any state.
    fn limit_cwnd(&mut self) {
        if self.state == BbrState::ProbeRtt {
            self.cwnd = self.cwnd.min(self.config.min_pipe_bytes());
        }
        self.cwnd = self.cwnd.min(self.config.max_bytes());
    }

    /// Returns the window to restore after loss recovery or ProbeRTT (`BBRSaveCwnd`).
    fn save_cwnd(&self) -> u64 {
        if self.recovery_left == 0 && self.state != BbrState::ProbeRtt {
            self.cwnd
        } else {
            self.cwnd.max(self.prior_cwnd)
        }
    }

    /// Processes a loss (section 4.2.3.4): the first of a window of data begins recovery, the
    /// others take their bytes off the window.
    fn on_loss(&mut self, feedback: &Feedback<'_>) {
        let bytes = u64::from(feedback.bytes);
        let packet = u64::from(self.config.mtu);
        if self.recovery_left == 0 {
            self.prior_cwnd = self.save_cwnd();
            self.recovery_left = feedback.in_flight.max(1);
            self.conserving = feedback.kind != FeedbackKind::TimedOut;
            self.cwnd = packet;
            if self.conserving {
                self.cwnd = self.cwnd.saturating_add(feedback.in_flight);
                self.cwnd = self.cwnd.min(self.config.max_bytes());
                self.next_round_delivered = self.delivered; // packet conservation lasts one round
            }
        } else {
            self.cwnd = self.cwnd.saturating_sub(bytes).max(packet);
            self.settle(bytes);
        }
        self.check_cycle_phase(feedback, true);
    }

    /// Subtracts `bytes` from those that recovery waits for, and restores the window when none are
    /// left (`BBRRestoreCwnd`).
    fn settle(&mut self, bytes: u64) {
        if self.recovery_left > 0 {
            self.recovery_left = self.recovery_left.saturating_sub(bytes);
            if self.recovery_left == 0 {
                self.conserving = false;
                self.cwnd = self.cwnd.max(self.prior_cwnd);
                self.limit_cwnd();
            }
        }
    }
}

impl SenderCc for Model {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // positive
    fn budget(&self, _now: Time) -> Budget {
        Budget {
            window: Some(self.cwnd),
            rate: Some(up_to(self.pacing_rate * 8e9, self.config.line)),
            burst: self.config.quantum,
            ..Budget::default()
        }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        match feedback.kind {
            FeedbackKind::Acked => {
                self.settle(u64::from(feedback.bytes));
                self.on_ack(feedback);
            }
            FeedbackKind::Nacked { trimmed: true, .. }
            | FeedbackKind::Lost
            | FeedbackKind::TimedOut => {
                self.on_loss(feedback);
            }
            // The receiver lacks room, which is no congestion: the packet has left the network.
            FeedbackKind::Nacked { trimmed: false, .. } => self.settle(u64::from(feedback.bytes)),
            // A probe overtakes the queues, so its round trip is the propagation time itself.
            FeedbackKind::ProbeAnswered => {
                if let Some(rtt) =
                    feedback.rtt.map(|rtt| rtt.0.max(1)).filter(|&r| r <= self.rt_prop)
                {
                    self.rt_prop = rtt;
                    self.rt_prop_stamp = feedback.now;
                }
            }
            FeedbackKind::Notified | FeedbackKind::Control => {}
        }
    }

    /// Paces at the estimated bandwidth after a pause in ProbeBW (`BBRHandleRestartFromIdle`).
    fn on_event(&mut self, _now: Time, event: FlowEvent) {
        if event == FlowEvent::Resumed {
            self.idle_restart = true;
            if matches!(self.state, BbrState::ProbeBw(_)) {
                self.set_pacing_rate(1.0);
            }
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // never negative
    fn metrics(&self) -> SenderMetrics {
        SenderMetrics {
            cwnd: Some(self.cwnd),
            max_cwnd: Some(self.config.max_bytes()),
            rate: Some(up_to(self.pacing_rate * 8e9, self.config.line)),
            base_rtt: Some(Span(self.rt_prop)).filter(|&span| span != Span::MAX),
            ..SenderMetrics::default()
        }
    }
}

/// Returns the rate of the sender's link in bytes per nanosecond.
fn line(config: &BbrConfig) -> f32 {
    config.line.0 as f32 / 8e9
}
