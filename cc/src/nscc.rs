//! NSCC, the Network Signal-based Congestion Control of UE 1.0 (sections 3.6.13.3 to 3.6.13.7), which
//! is SMaRTT v2 (Bonato et al., "SMaRTT: Sender-based Marked Rapidly-adapting Trimmed & Timed
//! Transport"; algorithms and equations below are that paper's).
//!
//! Where the two differ the specification wins, and the line says so. Where the specification leaves a
//! choice to the implementation, [`NsccConfig`] names the choice.

mod config;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use squall_base::{Span, Time};

use crate::budget::{Action, Budget, Metrics};
use crate::feedback::{Feedback, Kind};
use crate::sender::SenderCc;
pub use config::{Averaging, NsccConfig, NsccParts, Scaling};

/// One NSCC context: 64 bytes, parameters shared.
///
/// Times are the low 32 bits of nanoseconds, only ever used as "time passed since". A pause of a
/// multiple of 4.29 s plus less than one base RTT is therefore taken for a short one; it delays one
/// adjustment by one base RTT and has no other effect.
#[derive(Clone, Debug)]
pub struct Nscc {
    config: Arc<NsccConfig>,
    /// Congestion window in bytes.
    cwnd: f32,
    /// Increase owed, times cwnd; paid by `fulfill`.
    inc: f32,
    /// Average queueing delay in nanoseconds.
    avg_delay: f32,
    /// Window from before the receiver's penalty; zero for none.
    saved_cwnd: f32,
    /// Largest window for this base round-trip time, in bytes.
    max_wnd: f32,
    /// Smallest round-trip time seen, in nanoseconds.
    base_rtt: u32,
    /// Bytes acknowledged in this QuickAdapt period.
    achieved: u32,
    /// Bytes acknowledged since the last adjustment.
    received: u32,
    /// What is left of `bytes_to_ignore - bytes_ignored` (algorithm 2 line 8, algorithm 4 line 6).
    to_ignore: u32,
    /// Uncongested bytes in a row (algorithm 3 line 3).
    fi_count: u32,
    last_adjust: u32,
    last_decrease: u32,
    /// When the QuickAdapt period began; zero before the first one (`end != 0` of algorithm 2 line 4).
    qa_start: u32,
    /// Fast increase is active (algorithm 3 line 6).
    increase: bool,
    /// A trim asked for QuickAdapt (algorithm 4 line 17).
    trigger_qa: bool,
    /// Acknowledgements since the latest one that was reacted to.
    skipped: u8,
    probe: Probe,
}

/// Where the one probe of a new context is: the first packets of flows that start together meet each
/// other's queue, and a base RTT that contains a queue takes more than its share (section 3.6.13.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Probe {
    /// Nothing came back yet.
    Early,
    /// To be asked for.
    Due,
    /// Asked for, or not wanted.
    Done,
}

/// What one report says to QuickAdapt.
struct Signs {
    loss: bool,
    marked: bool,
    /// Queueing delay in nanoseconds.
    delay: f32,
    in_flight: u64,
}

impl Nscc {
    /// A context that starts at the largest window at `now`. `config` must have passed
    /// [`Tunable::check`](crate::Tunable::check).
    #[must_use]
    pub fn new(config: Arc<NsccConfig>, now: Time) -> Self {
        let base_rtt = nanos(config.base_rtt);
        let mut nscc = Self {
            config,
            cwnd: 0.0,
            inc: 0.0,
            avg_delay: 0.0,
            saved_cwnd: 0.0,
            max_wnd: 0.0,
            base_rtt,
            achieved: 0,
            received: 0,
            to_ignore: 0,
            fi_count: 0,
            last_adjust: clock(now),
            last_decrease: clock(now),
            qa_start: 0,
            increase: false,
            trigger_qa: false,
            skipped: 0,
            probe: Probe::Early,
        };
        if !nscc.config.probe {
            nscc.probe = Probe::Done;
        }
        nscc.set_max_wnd();
        nscc.cwnd = nscc.max_wnd;
        nscc
    }

    /// 1.5 bandwidth-delay products of the measured base RTT (section 3.6.13.5).
    #[allow(clippy::cast_possible_truncation)] // single precision is the window's
    fn set_max_wnd(&mut self) {
        let config = &*self.config;
        let rtt = f64::from(self.base_rtt.max(nanos(config.min_base_rtt)));
        let bdp = config.link_rate.0 as f64 * rtt / 8e9;
        let window = f64::from(config.max_wnd_bdp) * bdp;
        self.max_wnd = (window as f32).max(config.min_max_wnd as f32).max(config.min_wnd as f32);
    }

    /// What times and gains of the configured network are multiplied by for this flow. All of
    /// `target`, `alpha`, `fi`, `fi_scale` and `eta` are proportional to the base RTT (section
    /// 3.6.13.3 with `a` and `b` written out).
    fn scale(&self) -> f32 {
        match self.config.scaling {
            Scaling::Network => 1.0,
            Scaling::Path => {
                let rtt = self.base_rtt.max(nanos(self.config.min_base_rtt));
                rtt as f32 / nanos(self.config.base_rtt) as f32
            }
        }
    }

    fn target(&self) -> f32 {
        self.config.target_qdelay.0 as f32
    }

    fn on_ack(&mut self, feedback: &Feedback<'_>) {
        let now = clock(feedback.now);
        let new = feedback.bytes;
        self.to_ignore = self.to_ignore.saturating_sub(new); // algorithm 4 line 3
        self.received = self.received.saturating_add(new);
        self.achieved = self.achieved.saturating_add(new); // algorithm 4 line 2
        let limited = self.penalise(feedback);
        let delay = match feedback.rtt {
            Some(rtt) => self.sample(rtt),
            None if self.config.stale_delay => self.avg_delay,
            None => return,
        };
        if feedback.kind == Kind::ProbeAnswered {
            // Probes overtake the queues on the control class: they tell the base RTT (section
            // 3.6.13.7), nothing about congestion.
            return;
        }
        // Section III-G: one report in `sample` stands for all of them.
        self.skipped += 1;
        if self.skipped < self.config.sample {
            return;
        }
        let count = core::mem::take(&mut self.skipped);
        let new = new.saturating_mul(count.into());
        let (marked, delay) = self.ablate(feedback.ecn, delay);
        if feedback.rtt.is_some() {
            self.average(delay, new, feedback.packets.saturating_mul(count.into()));
        }
        let scale = self.scale();
        let signs = Signs { loss: false, marked, delay, in_flight: feedback.in_flight };
        if self.quick_adapt(now, &signs) {
            return;
        }
        let target = self.target();
        // Algorithm 1, with section 3.6.13.5's "not limited by the receiver" on both increases.
        match (marked, delay >= target) {
            (true, true) => self.multiplicative_decrease(now, target, delay),
            (true, false) if self.config.parts.early_decrease => self.cwnd -= new as f32 / 2.0,
            (true, false) => {} // let the path selector act (section III-I1)
            (false, true) if !limited => {
                self.inc += self.config.fi * scale * new as f32; // eq. 2
            }
            (false, false) if !limited => {
                if !self.fast_increase(new, delay, scale) {
                    // eq. 3
                    self.inc += self.config.alpha * scale * new as f32 * (target - delay);
                }
            }
            (false, _) => {}
        }
        let period = self.config.adjust_period.0 as f32 * scale;
        let elapsed = now.wrapping_sub(self.last_adjust);
        if elapsed as f32 >= period || self.received > self.config.adjust_bytes {
            self.fulfill(now, elapsed as f32 >= period, scale);
        }
    }

    /// A refused packet (section 3.6.13.6; algorithm 4 lines 15-21).
    fn on_nack(&mut self, feedback: &Feedback<'_>, trimmed: bool, last_hop: bool) {
        if let Some(rtt) = feedback.rtt {
            self.sample(rtt);
        }
        if !trimmed {
            return;
        }
        // A trim says "the queue was full": one base RTT of queue.
        self.average(self.config.base_rtt.0 as f32, feedback.bytes, feedback.packets);
        self.to_ignore = self.to_ignore.saturating_sub(feedback.bytes);
        if last_hop && self.config.rccc {
            return; // the receiver's credits answer for its own port
        }
        self.trigger_qa = true;
        let signs = Signs { loss: true, marked: true, delay: 0.0, in_flight: feedback.in_flight };
        if !self.quick_adapt(clock(feedback.now), &signs) {
            self.cwnd -= feedback.bytes as f32; // algorithm 4 line 16
        }
    }

    /// An inferred loss (section 3.6.13.6).
    fn on_loss(&mut self, feedback: &Feedback<'_>) {
        // Time-outs of packets sent before QuickAdapt say nothing new (section III-E a).
        let stale = feedback.kind == Kind::TimedOut && self.to_ignore > 0;
        self.to_ignore = self.to_ignore.saturating_sub(feedback.bytes);
        if !stale {
            self.cwnd -= feedback.bytes as f32;
        }
    }

    /// What is left of the signals when [`NsccParts`] takes one out.
    fn ablate(&self, marked: bool, delay: f32) -> (bool, f32) {
        match (self.config.parts.ecn, self.config.parts.delay) {
            (true, true) => (marked, delay),
            (false, true) => (delay >= self.target(), delay),
            (true, false) => (marked, if marked { 2.0 * self.target() } else { 0.0 }),
            (false, false) => (false, 0.0),
        }
    }

    /// Takes a round-trip sample and returns the queueing delay in it, in nanoseconds.
    fn sample(&mut self, rtt: Span) -> f32 {
        let rtt = nanos(rtt).max(1);
        if rtt < self.base_rtt {
            self.base_rtt = rtt;
            self.set_max_wnd();
        }
        (rtt - self.base_rtt) as f32
    }

    /// The average delay; an ACK that covers several packets weighs as much as theirs would.
    fn average(&mut self, delay: f32, bytes: u32, packets: u16) {
        let weight = match self.config.averaging {
            Averaging::Window => bytes as f32 / self.cwnd,
            Averaging::Packet(weight) => weight * f32::from(packets.max(1)),
        };
        self.avg_delay += weight.min(1.0) * (delay - self.avg_delay);
    }

    /// Algorithm 2, with the gates of section 3.6.13.5. True when nothing else may be done with this
    /// report.
    fn quick_adapt(&mut self, now: u32, signs: &Signs) -> bool {
        let mut done = false;
        let period = self.base_rtt as f32 + self.target();
        if self.to_ignore > 0 && signs.marked {
            // The paper ignores every ACK here (algorithm 4 line 6), the specification marked ones.
            done = true;
        } else if self.qa_start == 0 || now.wrapping_sub(self.qa_start) as f32 >= period {
            let threshold = self.config.qa_threshold;
            let slow = threshold < Span::MAX && signs.delay > threshold.0 as f32;
            let gate = self.max_wnd / (1u32 << self.config.qa_gate.min(31)) as f32;
            if self.qa_start != 0
                && self.config.quick_adapt
                && (self.trigger_qa || signs.loss || slow)
                && (self.achieved as f32) < gate
            {
                self.cwnd = self.achieved as f32 * self.config.qa_scaling; // line 7
                if self.config.parts.ignore {
                    self.to_ignore = u32::try_from(signs.in_flight).unwrap_or(u32::MAX); // lines 8-9
                }
                self.trigger_qa = false;
                done = true;
            }
            self.achieved = 0; // line 12
            self.qa_start = now.max(1); // line 11
        }
        if done {
            self.inc = 0.0;
            self.received = 0;
        }
        done
    }

    /// Algorithm 3. `k MTU` for each ACK is, for bytes, `fi_scale` per byte (section 3.6.13.5).
    fn fast_increase(&mut self, new: u32, delay: f32, scale: f32) -> bool {
        let on = self.config.parts.fast_increase;
        if on && delay < self.config.fast_increase_below.0 as f32 {
            self.fi_count = self.fi_count.saturating_add(new);
            if self.fi_count as f32 > self.cwnd || self.increase {
                self.cwnd += new as f32 * self.config.fi_scale * scale;
                self.increase = true;
                return true;
            }
        } else {
            self.fi_count = 0;
        }
        self.increase = false;
        false
    }

    /// Eq. 1, at most once a base RTT.
    fn multiplicative_decrease(&mut self, now: u32, target: f32, delay: f32) {
        self.increase = false;
        self.fi_count = 0;
        let avg = if self.config.parts.wait_to_decrease { self.avg_delay } else { delay };
        if avg > target && now.wrapping_sub(self.last_decrease) > self.base_rtt {
            let factor = 1.0 - self.config.gamma * (avg - target) / avg;
            let floor = self.config.min_wnd as f32;
            self.cwnd = (self.cwnd * factor.max(self.config.max_md_jump)).max(floor);
            self.last_decrease = now;
        }
    }

    /// Pays out the increase owed (section 3.6.13.5), and `eta` once a period.
    fn fulfill(&mut self, now: u32, period: bool, scale: f32) {
        // Of a window below one packet (`pace`) a packet is many round trips' worth; like Swift, do not
        // let it earn more than a window of one packet would.
        self.cwnd += self.inc / self.cwnd.max(self.config.mtu as f32);
        if period {
            self.last_adjust = now;
            self.cwnd += self.config.eta * scale;
        }
        self.inc = 0.0;
        self.received = 0;
    }

    /// The receiver's penalty (section 3.6.13.6). True while there is one.
    fn penalise(&mut self, feedback: &Feedback<'_>) -> bool {
        let penalty = feedback.penalty.unwrap_or(0).min(127);
        if penalty > 0 {
            if self.saved_cwnd == 0.0 {
                self.saved_cwnd = self.cwnd;
            }
            let cut = (u64::from(penalty) * u64::from(feedback.bytes)) >> 7;
            let floor = self.config.min_wnd as f32;
            self.cwnd = (self.cwnd.min(feedback.in_flight as f32) - cut as f32).max(floor);
        } else if feedback.restore_cwnd && self.saved_cwnd > 0.0 {
            self.cwnd = self.saved_cwnd;
            self.saved_cwnd = 0.0;
        }
        penalty > 0
    }

    /// Algorithm 4 line 23.
    fn clamp(&mut self) {
        self.cwnd = self.cwnd.min(self.max_wnd).max(self.config.min_wnd as f32);
    }
}

impl SenderCc for Nscc {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped to be positive
    fn budget(&self, _now: Time) -> Budget {
        Budget { window: Some(self.cwnd as u64), ..Budget::default() }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        match feedback.kind {
            Kind::Acked | Kind::ProbeAnswered => self.on_ack(feedback),
            Kind::Nacked { trimmed, last_hop } => self.on_nack(feedback, trimmed, last_hop),
            Kind::Lost | Kind::TimedOut => self.on_loss(feedback),
            Kind::Notified | Kind::Control | Kind::RemoteGroup => return,
        }
        self.clamp();
        if self.probe == Probe::Early && feedback.in_flight > 0 {
            self.probe = Probe::Due;
        }
    }

    fn poll(&mut self, _now: Time) -> Option<Action> {
        if self.probe != Probe::Due {
            return None;
        }
        self.probe = Probe::Done;
        Some(Action::Probe)
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // never negative
    fn metrics(&self) -> Metrics {
        Metrics {
            cwnd: Some(self.cwnd as u64),
            max_cwnd: Some(self.max_wnd as u64),
            rate: None,
            base_rtt: Some(Span(u64::from(self.base_rtt))),
            avg_delay: Some(Span(self.avg_delay as u64)),
            ungranted: false,
        }
    }

    /// Average queueing delay over its target.
    fn congestion(&self) -> f64 {
        f64::from(self.avg_delay / self.target())
    }
}

/// A span in 32 bits of nanoseconds, at most 4.29 s.
fn nanos(span: Span) -> u32 {
    u32::try_from(span.0).unwrap_or(u32::MAX)
}

/// The low bits of a moment, for differences.
const fn clock(now: Time) -> u32 {
    (now.0 & 0xffff_ffff) as u32
}
