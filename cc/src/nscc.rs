//! NSCC, the Network Signal-based Congestion Control of UE 1.0 (sections 3.6.13.3 to 3.6.13.7),
//! which is SMaRTT v2 (Bonato et al., "SMaRTT: Sender-based Marked Rapidly-adapting Trimmed & Timed
//! Transport"; algorithms and equations below are that paper's).
//!
//! Where the two differ this code follows the specification, with a comment at the line. Where the
//! specification leaves a choice to the implementation, [`NsccConfig`] documents the choice.

mod config;
mod fairness;
mod receiver;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use squall_base::{Span, Time};

use crate::controller::{Budget, Feedback, FeedbackKind, SenderAction, SenderCc, SenderMetrics};
use crate::math::{clock, float, least, most, nanos};
pub use config::{Averaging, NsccConfig, NsccParts, Scaling};
pub use receiver::NsccReceiver;

/// One NSCC context: 64 bytes, parameters shared.
#[derive(Clone, Debug)]
pub struct Nscc {
    config: Arc<NsccConfig>,
    flow: FlowState,
}

/// State of one context.
///
/// Times are the low 32 bits of nanoseconds, only used for differences. A pause of a multiple of
/// 4.29 s plus less than one base RTT therefore looks short; it delays one adjustment by one base
/// RTT and has no other effect.
#[derive(Clone, Debug)]
struct FlowState {
    /// Congestion window in bytes.
    cwnd: f32,
    /// Increase of the window that `adjust` has not applied yet, in bytes, multiplied by `cwnd`.
    inc: f32,
    /// Moving average of the queueing delay in nanoseconds.
    avg_delay: f32,
    /// Congestion window from before the receiver's penalty, in bytes; zero if there is none.
    saved_cwnd: f32,
    /// Largest congestion window that the measured base round-trip time allows, in bytes.
    max_wnd: f32,
    /// Smallest round-trip time seen, in nanoseconds.
    base_rtt: u32,
    /// Bytes acknowledged since the QuickAdapt period began.
    achieved: u32,
    /// Bytes whose congestion signals are still ignored after QuickAdapt: `bytes_to_ignore -
    /// bytes_ignored` (algorithm 2 line 8, algorithm 4 line 6).
    to_ignore: u32,
    /// Consecutive bytes acknowledged without mark and delay (algorithm 3 line 3).
    fi_count: f32,
    /// Bytes acknowledged since the window was last adjusted.
    received: u32,
    last_adjust: u32,
    last_decrease: u32,
    /// Time at which the QuickAdapt period began, low 32 bits of nanoseconds.
    qa_start: u32,
    /// Fast increase is active (algorithm 3 line 6).
    increase: bool,
    /// Flags [`ARMED`] and [`TRIGGERED`] of QuickAdapt.
    qa: u8,
    /// Acknowledgements until the next one that NSCC reacts to. Zero for the algorithm as
    /// published, which reacts to each and takes the fast path.
    due: u8,
    probe: ProbeState,
}

/// A QuickAdapt period has begun (`end != 0` of algorithm 2 line 4).
const ARMED: u8 = 1;
/// A trimmed packet triggered QuickAdapt (algorithm 4 line 17).
const TRIGGERED: u8 = 2;

/// Progress of the one probe of a new context. The first packets of flows that start together meet
/// each other's queue, and a flow whose base RTT contains a queue takes more than its share
/// (section 3.6.13.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ProbeState {
    /// No acknowledgement has arrived yet on this context.
    Early,
    /// The caller must be asked for the probe.
    Due,
    /// The caller was asked for the probe, or none is needed.
    Done,
}

/// Signals of one acknowledgement that NSCC evaluates.
#[derive(Clone, Copy)]
struct AckReport {
    now: u32,
    bytes: f32,
    marked: bool,
    /// Time that the packet spent in queues: its round trip less the base round-trip time.
    delay: Span,
}

impl Nscc {
    /// Creates a context that starts at the largest window at `now`. `config` must have passed
    /// [`Tunable::check`](crate::Tunable::check).
    #[must_use]
    pub fn new(config: Arc<NsccConfig>, now: Time) -> Self {
        let mut flow = FlowState {
            cwnd: 0.0,
            inc: 0.0,
            avg_delay: 0.0,
            saved_cwnd: 0.0,
            max_wnd: 0.0,
            base_rtt: nanos(config.base_rtt),
            achieved: 0,
            received: 0,
            to_ignore: 0,
            fi_count: 0.0,
            last_adjust: clock(now),
            last_decrease: clock(now),
            // The period counts as long over, so that the first report opens the first one.
            qa_start: clock(now).wrapping_sub(1 << 31),
            increase: false,
            qa: 0,
            due: if config.is_published() { 0 } else { config.sample },
            probe: if config.probe { ProbeState::Early } else { ProbeState::Done },
        };
        flow.set_max_wnd(&config);
        flow.cwnd = flow.max_wnd;
        Self { config, flow }
    }

    /// Processes any report; this path supports all parameters, unlike the fast path.
    #[inline(never)]
    fn on_any(&mut self, feedback: &Feedback<'_>) {
        if let FeedbackKind::Nacked { trimmed, last_hop } = feedback.kind {
            if let Some(rtt) = feedback.rtt {
                self.on_sampled_nack(feedback, rtt, trimmed, last_hop);
            } else if trimmed {
                self.on_trim(feedback, last_hop);
            }
        } else if matches!(feedback.kind, FeedbackKind::Acked | FeedbackKind::ProbeAnswered) {
            self.on_ack(feedback);
        } else if matches!(feedback.kind, FeedbackKind::Lost | FeedbackKind::TimedOut) {
            self.on_loss(feedback);
        } // other kinds are signals of other algorithms
    }

    /// Processes an acknowledgement of any kind; this path supports all parameters.
    #[inline(never)]
    fn on_ack(&mut self, feedback: &Feedback<'_>) {
        let (flow, config) = (&mut self.flow, &*self.config);
        flow.acknowledge(config, feedback);
        flow.finish_report(config, feedback.in_flight);
    }

    /// Processes a packet that the peer refused and whose round-trip time is known.
    #[cold]
    #[inline(never)]
    fn on_sampled_nack(
        &mut self,
        feedback: &Feedback<'_>,
        rtt: Span,
        trimmed: bool,
        last_hop: bool,
    ) {
        self.flow.sample(&self.config, rtt);
        if trimmed {
            self.on_trim(feedback, last_hop);
        } else {
            self.flow.finish_report(&self.config, feedback.in_flight);
        }
    }

    /// Processes a packet whose payload a switch trimmed (section 3.6.13.6; algorithm 4 lines
    /// 15-21).
    #[inline(never)]
    fn on_trim(&mut self, feedback: &Feedback<'_>, last_hop: bool) {
        let (flow, config) = (&mut self.flow, &*self.config);
        // A trim means that the queue was full, so it counts as one base RTT of queueing delay.
        flow.average(config, float(config.base_rtt.0), feedback.bytes, feedback.packets);
        flow.count_ignored(feedback.bytes);
        // With RCCC the receiver's credits handle congestion at its own port.
        if !(last_hop && config.rccc) {
            flow.qa |= TRIGGERED;
            if !flow.quick_adapt(config, clock(feedback.now), true, Span::ZERO, feedback.in_flight)
            {
                flow.cwnd -= feedback.bytes as f32; // algorithm 4 line 16
            }
        }
        flow.finish_report(config, feedback.in_flight);
    }

    /// Processes a packet inferred to be lost (section 3.6.13.6).
    #[inline(never)]
    fn on_loss(&mut self, feedback: &Feedback<'_>) {
        let (flow, config) = (&mut self.flow, &*self.config);
        // Time-outs of packets that were sent before QuickAdapt carry no new information (section
        // III-E a).
        let stale = feedback.kind == FeedbackKind::TimedOut && flow.to_ignore > 0;
        flow.count_ignored(feedback.bytes);
        if !stale {
            flow.cwnd -= feedback.bytes as f32;
        }
        flow.finish_report(config, feedback.in_flight);
    }

    /// Completes the fast path for an acknowledgement that is marked and was delayed beyond the
    /// target.
    #[inline(never)]
    fn complete_decrease(&mut self, feedback: &Feedback<'_>) {
        let (flow, config, now) = (&mut self.flow, &*self.config, clock(feedback.now));
        flow.multiplicative_decrease::<true>(config, now, Span::ZERO);
        flow.adjust::<true>(config, now, 1.0);
        flow.cwnd = least(flow.cwnd, flow.max_wnd);
        flow.consider_probe(feedback.in_flight);
    }

    /// Completes the fast path for an acknowledgement that triggers QuickAdapt.
    #[inline(never)]
    fn complete_quick_adapt(&mut self, feedback: &Feedback<'_>, delay: Span) {
        let (flow, config) = (&mut self.flow, &*self.config);
        let (now, marked) = (clock(feedback.now), feedback.ecn);
        if !flow.quick_adapt(config, now, marked, delay, feedback.in_flight) {
            let report = AckReport { now, bytes: feedback.bytes as f32, marked, delay };
            flow.react::<false>(config, report, false);
        }
        flow.finish_report(config, feedback.in_flight);
    }
}

impl FlowState {
    /// Sets the largest window to 1.5 bandwidth-delay products of the measured base RTT (section
    /// 3.6.13.5).
    #[cold]
    #[inline(never)]
    #[allow(clippy::cast_possible_truncation)] // the window is single precision
    fn set_max_wnd(&mut self, config: &NsccConfig) {
        let rtt = f64::from(self.base_rtt.max(nanos(config.min_base_rtt)));
        let bdp = config.link_rate.0 as f64 * rtt / 8e9;
        let window = f64::from(config.max_wnd_bdp) * bdp;
        self.max_wnd = (window as f32).max(config.min_max_wnd as f32).max(config.min_wnd);
    }

    /// Returns the factor of this flow's gains, and of its adjustment period, relative to those of
    /// the configured network. All of `target`, `alpha`, `fi`, `fi_scale` and `eta` are
    /// proportional to the base RTT (section 3.6.13.3 with `a` and `b` written out).
    fn gain_scale(&self, config: &NsccConfig) -> f32 {
        match config.scaling {
            Scaling::Network => 1.0,
            Scaling::Path => {
                let rtt = self.base_rtt.max(nanos(config.min_base_rtt));
                rtt as f32 / nanos(config.base_rtt) as f32
            }
        }
    }

    /// Counts the bytes of an acknowledgement towards the next adjustment and the QuickAdapt
    /// period.
    ///
    /// Both sums restart each round trip, so they stay far below 4 GB. If one wrapped, an
    /// adjustment would come a little later or QuickAdapt once too often.
    fn count_acked(&mut self, bytes: u32) {
        self.count_ignored(bytes);
        self.received = self.received.wrapping_add(bytes);
        self.achieved = self.achieved.wrapping_add(bytes); // algorithm 4 line 2
    }

    /// Subtracts acknowledged bytes from those to ignore (algorithm 4 line 3, counting down).
    const fn count_ignored(&mut self, bytes: u32) {
        if self.to_ignore > 0 {
            self.to_ignore = self.to_ignore.saturating_sub(bytes);
        }
    }

    /// Processes an acknowledgement of any kind, with the parameters `config`.
    fn acknowledge(&mut self, config: &NsccConfig, feedback: &Feedback<'_>) {
        self.count_acked(feedback.bytes);
        let limited = self.penalise(config, feedback);
        // Without a sample nothing else happens, as in UE 1.0. (uet-htsim then uses the average
        // delay, because it has no sample of a packet that was sent more than twice; here a sample
        // exists wherever switches trim.)
        let Some(rtt) = feedback.rtt else { return };
        let mut delay = self.sample(config, rtt);
        if feedback.kind == FeedbackKind::ProbeAnswered {
            // Probes overtake the queues on the control class: they measure the base RTT (section
            // 3.6.13.7), not congestion.
            return;
        }
        let (mut marked, mut bytes, mut packets) = (feedback.ecn, feedback.bytes, feedback.packets);
        if self.due > 0 {
            // Section III-G: one report in `sample` stands for all of them.
            self.due -= 1;
            if self.due > 0 {
                return;
            }
            self.due = config.sample;
            bytes = bytes.saturating_mul(config.sample.into());
            packets = packets.saturating_mul(config.sample.into());
            (marked, delay) = config.apply_ablations(marked, delay);
        }
        self.average(config, float(delay.0), bytes, packets);
        let report = AckReport { now: clock(feedback.now), bytes: bytes as f32, marked, delay };
        if !self.quick_adapt(config, report.now, marked, delay, feedback.in_flight) {
            self.react::<false>(config, report, limited);
        }
    }

    /// Applies algorithm 1 and the adjustment. `PUBLISHED` leaves out the options that
    /// [`NsccConfig::is_published`] excludes.
    #[inline(always)]
    fn react<const PUBLISHED: bool>(
        &mut self,
        config: &NsccConfig,
        report: AckReport,
        limited: bool,
    ) {
        let AckReport { now, bytes, marked, delay } = report;
        let target = config.target_qdelay;
        let scale = if PUBLISHED { 1.0 } else { self.gain_scale(config) };
        let above = delay >= target;
        if !PUBLISHED && config.parts.fast_in_a_row && (marked || above) {
            // Algorithm 3 lines 9 to 11; the other lines are in `fast_increase`.
            self.fi_count = 0.0;
            self.increase = false;
        }
        // Section 3.6.13.5 adds "not limited by the receiver" to both increases.
        if marked {
            if above {
                self.multiplicative_decrease::<PUBLISHED>(config, now, delay);
            } else if !PUBLISHED && config.parts.early_decrease {
                self.cwnd -= bytes / 2.0;
            } // otherwise the path selector reacts (section III-I1)
        } else if !limited {
            if above {
                self.inc += config.fi * scale * bytes; // eq. 2
            } else if !self.fast_increase::<PUBLISHED>(config, bytes, delay, scale) {
                // eq. 3
                self.inc += config.alpha * scale * bytes * (float(target.0) - float(delay.0));
            }
        }
        self.adjust::<PUBLISHED>(config, now, scale);
    }

    /// Adds the pending increase to the window once enough bytes were acknowledged or a period is
    /// over (section 3.6.13.5).
    #[inline(always)]
    fn adjust<const PUBLISHED: bool>(&mut self, config: &NsccConfig, now: u32, scale: f32) {
        let elapsed = now.wrapping_sub(self.last_adjust);
        let period = if PUBLISHED {
            u64::from(elapsed) >= config.adjust_period.0
        } else {
            elapsed as f32 >= float(config.adjust_period.0) * scale
        };
        if period || self.received > config.adjust_bytes {
            // When the window is below one packet (`pace`), a packet is worth many round trips;
            // like Swift, do not let it earn more than a window of one packet would.
            let cwnd = if PUBLISHED { self.cwnd } else { most(self.cwnd, config.mtu as f32) };
            self.cwnd += self.inc / cwnd;
            self.inc = 0.0;
            self.received = 0;
            if period {
                self.last_adjust = now;
                self.cwnd += config.eta * scale;
            }
        }
    }

    /// Updates the base round-trip time with a sample, and returns the sample's queueing delay.
    fn sample(&mut self, config: &NsccConfig, rtt: Span) -> Span {
        let rtt = nanos(rtt);
        if rtt < self.base_rtt {
            self.base_rtt = rtt.max(1);
            self.set_max_wnd(config);
        }
        Span(rtt.saturating_sub(self.base_rtt).into())
    }

    /// Updates the average delay; an ACK that covers several packets weighs as much as their own
    /// ACKs would.
    #[inline]
    fn average(&mut self, config: &NsccConfig, delay: f32, bytes: u32, packets: u16) {
        let weight = match config.averaging {
            Averaging::Window => bytes as f32 / self.cwnd,
            Averaging::Packet(weight) => weight * f32::from(packets.max(1)),
        };
        self.avg_delay += least(weight, 1.0) * (delay - self.avg_delay);
    }

    /// Applies algorithm 2 under the conditions of section 3.6.13.5. Returns true if the report is
    /// used up.
    #[inline]
    fn quick_adapt(
        &mut self,
        config: &NsccConfig,
        now: u32,
        marked: bool,
        delay: Span,
        in_flight: u64,
    ) -> bool {
        let done = if self.ignores(marked) {
            true
        } else if self.qa_period_is_over(config, now) {
            let done = self.qa_is_called(config, delay) && self.adapt(config, in_flight);
            self.begin_qa_period(now);
            done
        } else {
            false
        };
        if done {
            self.inc = 0.0;
            self.received = 0;
        }
        done
    }

    /// Returns whether an ACK is ignored: the paper ignores every ACK here (algorithm 4 line 6),
    /// the specification only marked ones.
    const fn ignores(&self, marked: bool) -> bool {
        self.to_ignore > 0 && marked
    }

    /// Returns whether the QuickAdapt period is over (algorithm 2 line 3).
    fn qa_period_is_over(&self, config: &NsccConfig, now: u32) -> bool {
        let period = u64::from(self.base_rtt) + config.target_qdelay.0;
        u64::from(now.wrapping_sub(self.qa_start)) >= period
    }

    /// Returns whether something triggered QuickAdapt: a trimmed packet, or without trimming the
    /// delay.
    fn qa_is_called(&self, config: &NsccConfig, delay: Span) -> bool {
        self.qa >= TRIGGERED || delay > config.qa_threshold
    }

    /// Begins a QuickAdapt period (algorithm 2 lines 11 and 12).
    const fn begin_qa_period(&mut self, now: u32) {
        self.qa |= ARMED;
        self.qa_start = now;
        self.achieved = 0;
    }

    /// Sets the window to the bytes achieved in the QuickAdapt period (algorithm 2 lines 4 to 9).
    fn adapt(&mut self, config: &NsccConfig, in_flight: u64) -> bool {
        // Computes 2 to the power of minus `qa_gate` from the bits of the number.
        let part = f32::from_bits((127 - u32::from(config.qa_gate)) << 23);
        let little = (self.achieved as f32) < self.max_wnd * part;
        if !(little && config.quick_adapt && self.qa & ARMED != 0) {
            return false;
        }
        self.cwnd = self.achieved as f32 * config.qa_scaling; // line 7
        if config.parts.ignore {
            self.to_ignore = nanos(Span(in_flight)); // lines 8-9
        }
        self.qa = ARMED;
        true
    }

    /// Applies algorithm 3, fast increase. `k MTU` per ACK is `fi_scale` per byte (section
    /// 3.6.13.5).
    #[inline(always)]
    fn fast_increase<const PUBLISHED: bool>(
        &mut self,
        config: &NsccConfig,
        bytes: f32,
        delay: Span,
        scale: f32,
    ) -> bool {
        let on = PUBLISHED || config.parts.fast_increase;
        if delay < config.fast_increase_below && on {
            self.fi_count += bytes;
            if self.increase || self.fi_count > self.cwnd {
                self.cwnd += bytes * config.fi_scale * scale;
                self.increase = true;
                return true;
            }
        } else {
            self.fi_count = 0.0;
        }
        self.increase = false;
        false
    }

    /// Applies the multiplicative decrease (eq. 1), at most once a base RTT.
    #[inline(always)]
    fn multiplicative_decrease<const PUBLISHED: bool>(
        &mut self,
        config: &NsccConfig,
        now: u32,
        delay: Span,
    ) {
        self.increase = false;
        self.fi_count = 0.0;
        if now.wrapping_sub(self.last_decrease) <= self.base_rtt {
            return;
        }
        let wait = PUBLISHED || config.parts.wait_to_decrease;
        let avg = if wait { self.avg_delay } else { float(delay.0) };
        let target = float(config.target_qdelay.0);
        if avg > target {
            self.cwnd *= decrease_factor(config, avg);
            self.cwnd = most(self.cwnd, config.min_wnd);
            self.last_decrease = now;
        }
    }

    /// Returns whether the receiver reports a penalty, or one is over whose window must be
    /// restored: receivers keep reporting that a penalty is over.
    #[inline(always)]
    fn is_penalised(&self, feedback: &Feedback<'_>) -> bool {
        feedback.penalty.unwrap_or(0) > 0 || feedback.restore_cwnd && self.saved_cwnd > 0.0
    }

    /// Lowers the window by the receiver's penalty (section 3.6.13.6). Returns true while there is
    /// one.
    fn penalise(&mut self, config: &NsccConfig, feedback: &Feedback<'_>) -> bool {
        let penalty = feedback.penalty.unwrap_or(0).min(127);
        if penalty > 0 {
            if self.saved_cwnd == 0.0 {
                self.saved_cwnd = self.cwnd;
            }
            let cut = (u64::from(penalty) * u64::from(feedback.bytes)) >> 7;
            let floor = config.min_wnd;
            self.cwnd = (self.cwnd.min(feedback.in_flight as f32) - cut as f32).max(floor);
        } else if feedback.restore_cwnd && self.saved_cwnd > 0.0 {
            self.cwnd = self.saved_cwnd;
            self.saved_cwnd = 0.0;
        }
        penalty > 0
    }

    /// Ends the processing of a report: bounds of the window (algorithm 4 line 23), and the probe.
    fn finish_report(&mut self, config: &NsccConfig, in_flight: u64) {
        self.cwnd = most(least(self.cwnd, self.max_wnd), config.min_wnd);
        self.consider_probe(in_flight);
    }

    fn consider_probe(&mut self, in_flight: u64) {
        if self.probe == ProbeState::Early {
            self.request_probe(in_flight);
        }
    }

    #[cold]
    #[inline(never)]
    const fn request_probe(&mut self, in_flight: u64) {
        if in_flight > 0 {
            self.probe = ProbeState::Due;
        }
    }
}

impl NsccConfig {
    /// Returns whether the algorithm is the published one, in all parts, reacting to every
    /// acknowledgement.
    fn is_published(&self) -> bool {
        self.parts == NsccParts::PUBLISHED
            && self.sample == 1
            && self.scaling == Scaling::Network
            && self.averaging == Averaging::Window
            && self.min_wnd >= self.mtu as f32
    }

    /// Replaces mark or delay, where [`NsccParts`] switches its evaluation off.
    fn apply_ablations(&self, marked: bool, delay: Span) -> (bool, Span) {
        let target = self.target_qdelay;
        match (self.parts.ecn, self.parts.delay) {
            (true, true) => (marked, delay),
            (false, true) => (delay >= target, delay),
            (true, false) => (marked, if marked { target * 2 } else { Span::ZERO }),
            (false, false) => (false, Span::ZERO),
        }
    }
}

impl SenderCc for Nscc {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped to be positive
    fn budget(&self, _now: Time) -> Budget {
        Budget { window: Some(self.flow.cwnd as u64), ..Budget::default() }
    }

    #[inline]
    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        // Nearly every report takes this fast path: an acknowledgement with a sample, nothing to
        // ignore, no penalty, all parameters as in the paper. Everything else happens in functions
        // out of line, so that no registers need saving here.
        let (FeedbackKind::Acked, Some(rtt)) = (feedback.kind, feedback.rtt) else {
            return self.on_any(feedback);
        };
        let flow = &mut self.flow;
        // The fast path needs a delay that is neither negative (a new base RTT) nor seconds long.
        let delay = Span(rtt.0.wrapping_sub(flow.base_rtt.into()));
        let penalty = flow.is_penalised(feedback);
        if delay.0 > u32::MAX.into() || flow.due > 0 || flow.to_ignore > 0 || penalty {
            return self.on_any(feedback);
        }
        let config = &*self.config;
        let (now, bytes, marked) = (clock(feedback.now), feedback.bytes as f32, feedback.ecn);
        flow.count_acked(feedback.bytes);
        flow.avg_delay += least(bytes / flow.cwnd, 1.0) * (float(delay.0) - flow.avg_delay);
        if flow.qa_period_is_over(config, now) {
            if flow.qa_is_called(config, delay) {
                return self.complete_quick_adapt(feedback, delay);
            }
            flow.begin_qa_period(now);
        }
        if marked && delay >= config.target_qdelay {
            return self.complete_decrease(feedback);
        }
        flow.react::<true>(config, AckReport { now, bytes, marked, delay }, false);
        // The functions that decrease the window respect its floor themselves.
        flow.cwnd = least(flow.cwnd, flow.max_wnd);
        flow.consider_probe(feedback.in_flight);
    }

    fn poll(&mut self, _now: Time) -> Option<SenderAction> {
        if self.flow.probe != ProbeState::Due {
            return None;
        }
        self.flow.probe = ProbeState::Done;
        Some(SenderAction::Probe)
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // never negative
    fn metrics(&self) -> SenderMetrics {
        SenderMetrics {
            cwnd: Some(self.flow.cwnd as u64),
            max_cwnd: Some(self.flow.max_wnd as u64),
            base_rtt: Some(Span(u64::from(self.flow.base_rtt))),
            avg_delay: Some(Span(self.flow.avg_delay as u64)),
            ..SenderMetrics::default()
        }
    }

    #[inline]
    fn base_rtt(&self) -> Option<Span> {
        Some(Span(u64::from(self.flow.base_rtt)))
    }
}

/// Returns the factor by which the multiplicative decrease (eq. 1) changes the window at a delay
/// above the target.
#[inline(always)]
const fn decrease_factor(config: &NsccConfig, delay: f32) -> f32 {
    let target = float(config.target_qdelay.0);
    most(1.0 - config.gamma * (delay - target) / delay, config.max_md_jump)
}
