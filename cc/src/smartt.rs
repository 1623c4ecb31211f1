//! SMaRTT as first published (Bonato et al., "SMaRTT-REPS: Sender-based Marked Rapidly-adapting
//! Trimmed & Timed Transport with Recycled Entropies"); algorithms, equations and sections below
//! are that paper's. UE 1.0's NSCC descends from it: see [`crate::Nscc`].
//!
//! Decisions where the paper contradicts itself or gives no value:
//!
//! - Algorithm 1 line 36 bounds the window by one bandwidth-delay product, section 3.5 by 1.25, and
//!   Fig. 2 starts at 1.42 MiB, which is 1.25 on its network: 1.25 it is.
//! - Line 4 counts what a trimmed packet carried as `acked`; section 3.3 and Fig. 4 count what was
//!   received, so trims are left out.
//! - Section 3.3 lets QuickAdapt ignore all congestion information of what was in flight; algorithm
//!   1 takes a trimmed packet off the window (line 29) before it tests whether to ignore (line 32).
//!   This code follows the algorithm; [`SmarttConfig::ignore_trims`] selects the text.
//! - The weight of `avg_wtd` and "close to the base RTT" have no number: both are uet-htsim's.
//! - An ACK that covers several packets counts as separate ACKs would: `k MTU` per ACK becomes `k`
//!   per byte, and `avg_wtd` takes one step per packet.

mod config;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use squall_base::{Span, Time};

use crate::controller::{Budget, Feedback, FeedbackKind, SenderCc, SenderMetrics};
use crate::math::{clock, least, most, nanos};
pub use config::SmarttConfig;

/// One SMaRTT context, parameters shared.
///
/// Times are the low 32 bits of nanoseconds, only used for differences. A pause of a multiple of
/// 4.29 s plus less than one target RTT therefore looks short; it delays one QuickAdapt by one
/// target RTT and has no other effect.
#[derive(Clone, Debug)]
pub struct Smartt {
    config: Arc<SmarttConfig>,
    /// Congestion window in bytes.
    cwnd: f32,
    /// Largest congestion window that the measured base round-trip time allows, in bytes.
    max_wnd: f32,
    /// Factor `fd / bdp` of the fair decrease (eq. 1), per acknowledged byte.
    fd_per_bdp: f32,
    /// Moving average of the share of marked packets, 0 to 1 (section 3.6.1).
    avg_wtd: f32,
    /// Smallest round-trip time seen, in nanoseconds (`brtt`).
    base_rtt: u32,
    /// Target round-trip time, in nanoseconds (`trtt`).
    target: u32,
    /// Bytes acknowledged since the QuickAdapt period began.
    acked: u32,
    /// Bytes whose ACKs QuickAdapt still ignores (`bytes_to_ignore - bytes_ignored`).
    to_ignore: u32,
    /// Consecutive bytes acknowledged without mark and delay (algorithm 3 line 3).
    count: u32,
    /// Time at which the QuickAdapt period began; it ends a target RTT later (algorithm 2 line 11).
    period_start: u32,
    /// FastIncrease is active (algorithm 3 line 6).
    increase: bool,
    /// A loss triggered QuickAdapt (algorithm 1 line 30).
    trigger_qa: bool,
    /// A QuickAdapt period has begun (`end != 0` of algorithm 2 line 4).
    armed: bool,
    /// No part of the algorithm is switched off, so acknowledgements may take the fast path.
    published: bool,
}

impl Smartt {
    /// Creates a context that starts at the largest window. `config` must have passed its check.
    #[must_use]
    pub fn new(config: Arc<SmarttConfig>, now: Time) -> Self {
        let base_rtt = nanos(config.base_rtt);
        let published = config.is_published();
        let mut smartt = Self {
            config,
            cwnd: 0.0,
            max_wnd: 0.0,
            fd_per_bdp: 0.0,
            avg_wtd: 0.0,
            base_rtt,
            target: 0,
            acked: 0,
            to_ignore: 0,
            count: 0,
            // The period counts as long over, so that the first report begins the first one.
            period_start: clock(now).wrapping_sub(1 << 31),
            increase: false,
            trigger_qa: false,
            armed: false,
            published,
        };
        smartt.follow_base_rtt();
        smartt.cwnd = smartt.max_wnd;
        smartt
    }

    /// Updates the values that depend on the base round-trip time: target, largest window (section
    /// 3.5) and the gain of eq. 1.
    #[cold]
    #[inline(never)]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates; single precision
    fn follow_base_rtt(&mut self) {
        let config = &*self.config;
        self.target = (self.base_rtt as f32 * config.target) as u32;
        let rtt = f64::from(self.base_rtt.max(nanos(config.min_base_rtt)));
        let bdp = (config.line.0 as f64 * rtt / 8e9) as f32;
        let floor = (config.min_max_wnd as f32).max(config.min_wnd);
        self.max_wnd = (bdp * config.max_wnd_bdp).max(floor);
        // A window whose ceiling was raised must shrink as fast as on a network of that product.
        self.fd_per_bdp = config.fd * config.max_wnd_bdp / self.max_wnd;
    }

    /// Applies algorithm 1 to an ACK with a round-trip time, as published: [`Self::on_ack`] without
    /// its rare and optional parts.
    #[inline]
    fn on_sample(&mut self, feedback: &Feedback<'_>, rtt: u32) {
        let (config, now) = (&*self.config, clock(feedback.now));
        // Line 4. The bytes of a period stay far below 4 GB; if they wrapped, QuickAdapt would cut
        // too much once.
        self.acked = self.acked.wrapping_add(feedback.bytes);
        if now.wrapping_sub(self.period_start) >= self.target {
            if self.trigger_qa {
                self.acked = self.acked.wrapping_sub(feedback.bytes);
                self.on_any(feedback); // QuickAdapt
                return;
            }
            self.period_start = now; // algorithm 2 lines 11 and 12
            self.acked = 0;
            self.armed = true;
        }
        // Line 12.
        if feedback.packets > 1 {
            self.avg_wtd = share(self.avg_wtd, config.wtd_alpha, feedback.ecn, feedback);
        } else {
            let hit = if feedback.ecn { 1.0 } else { 0.0 };
            self.avg_wtd += config.wtd_alpha * (hit - self.avg_wtd);
        }
        let size = feedback.bytes as f32;
        let beyond = rtt > self.target;
        let mut cwnd = self.cwnd;
        if feedback.ecn {
            self.count = 0; // algorithm 3 lines 9 and 10
            self.increase = false;
            if self.avg_wtd >= config.wtd_threshold {
                if beyond {
                    // Line 22: eq. 2, followed by eq. 1.
                    let excess = (rtt - self.target) as f32;
                    cwnd -= least(excess * config.md * size / rtt as f32, size);
                }
                cwnd -= cwnd * self.fd_per_bdp * size; // line 20, eq. 1
            }
        } else if u64::from(rtt - self.base_rtt) < config.near.0 {
            // Algorithm 3, which need not count any further once it is active.
            if !self.increase {
                self.count = self.count.saturating_add(feedback.bytes);
                self.increase = self.count as f32 > cwnd;
            }
            cwnd += if self.increase { config.k * size } else { self.increase_at(size, rtt) };
        } else {
            self.count = 0;
            self.increase = false;
            cwnd += if beyond { self.fair_increase(size) } else { self.increase_at(size, rtt) };
        }
        self.cwnd = most(least(cwnd, self.max_wnd), config.min_wnd); // line 36
    }

    /// Returns the bytes that the multiplicative and the fair increase (eq. 4 and 3) add to the
    /// window.
    #[inline]
    fn increase_at(&self, size: f32, rtt: u32) -> f32 {
        let room = self.target.saturating_sub(rtt) as f32;
        let gain = self.config.mtu as f32 * self.config.mi;
        least(room * size * gain / (rtt as f32 * self.cwnd), size) + self.fair_increase(size)
    }

    /// Processes any report; this path supports all parameters, unlike the fast path.
    #[inline(never)]
    fn on_any(&mut self, feedback: &Feedback<'_>) {
        match feedback.kind {
            FeedbackKind::Acked | FeedbackKind::ProbeAnswered => self.on_ack(feedback),
            // Section 3.3: a time-out has the effect of a trimmed packet.
            FeedbackKind::Nacked { trimmed: true, .. }
            | FeedbackKind::Lost
            | FeedbackKind::TimedOut => {
                self.on_loss(feedback);
            }
            FeedbackKind::Nacked { trimmed: false, .. } => {
                self.sample(feedback.rtt);
            }
            FeedbackKind::Notified | FeedbackKind::Control => return,
        }
        self.clamp();
    }

    /// Applies algorithm 1 to an ACK; this path supports all parameters.
    fn on_ack(&mut self, feedback: &Feedback<'_>) {
        let size = feedback.bytes;
        self.acked = self.acked.saturating_add(size); // line 4
        self.to_ignore = self.to_ignore.saturating_sub(size); // line 5
        let rtt = self.sample(feedback.rtt);
        // A probe overtakes the queues on the control class: it measures the base RTT, not
        // congestion.
        if feedback.kind == FeedbackKind::ProbeAnswered || self.to_ignore > 0 {
            return; // lines 8 to 10
        }
        let (rtt, marked) = self.signals(rtt, feedback.ecn);
        let can_decrease = self.wait_to_decrease(marked, feedback); // line 12
        let adapted = self.quick_adapt(clock(feedback.now), feedback.in_flight); // line 13
        let Some(rtt) = rtt else { return };
        let increased = self.fast_increase(size, rtt, marked); // line 14
        if adapted || increased {
            return; // lines 15 to 17
        }
        // Lines 19 to 27.
        let size = size as f32;
        match (marked, rtt > self.target) {
            (true, _) if !can_decrease => {}
            (true, false) => self.fair_decrease(size),
            (true, true) => self.multiplicative_decrease(size, rtt),
            (false, true) => self.cwnd += self.fair_increase(size),
            (false, false) => self.cwnd += self.increase_at(size, rtt),
        }
    }

    /// Applies algorithm 1 to a trimmed packet or a loss (lines 28 to 34). The caller retransmits.
    fn on_loss(&mut self, feedback: &Feedback<'_>) {
        if feedback.rtt.is_some() {
            self.sample(feedback.rtt);
        }
        if self.to_ignore > 0 {
            self.to_ignore = self.to_ignore.saturating_sub(feedback.bytes); // line 5
        }
        let ignoring = self.to_ignore > 0;
        if !(ignoring && self.config.ignore_trims) {
            self.cwnd -= feedback.bytes as f32; // line 29
            self.trigger_qa = true; // line 30
        }
        if !ignoring {
            self.quick_adapt(clock(feedback.now), feedback.in_flight); // lines 32 to 34
        }
    }

    /// Updates the base round-trip time with a sample, and returns the sample in nanoseconds.
    fn sample(&mut self, rtt: Option<Span>) -> Option<u32> {
        let rtt = nanos(rtt?).max(1);
        if rtt < self.base_rtt {
            self.base_rtt = rtt;
            self.follow_base_rtt();
        }
        Some(rtt)
    }

    /// Returns the two signals, one derived from the other if it is switched off (Figs. 2 and 3).
    /// Without ECN a packet beyond the target counts as marked. Without delay a marked packet
    /// counts as a third beyond the target, which takes half of it off the window, and an unmarked
    /// one as at the target.
    fn signals(&self, rtt: Option<u32>, ecn: bool) -> (Option<u32>, bool) {
        match (self.config.ecn, self.config.delay) {
            (true, true) => (rtt, ecn),
            (false, _) => (rtt, rtt.is_some_and(|rtt| rtt > self.target)),
            (true, false) if ecn => (Some(self.target.saturating_add(self.target / 3)), true),
            (true, false) => (Some(self.target), false),
        }
    }

    /// Returns whether the share of marked packets is so large that another path would not help
    /// (section 3.6.1).
    fn wait_to_decrease(&mut self, marked: bool, feedback: &Feedback<'_>) -> bool {
        self.avg_wtd = share(self.avg_wtd, self.config.wtd_alpha, marked, feedback);
        self.avg_wtd >= self.config.wtd_threshold
    }

    /// Applies algorithm 2, QuickAdapt. Returns true if it changed the window.
    fn quick_adapt(&mut self, now: u32, unacked: u64) -> bool {
        if self.armed && now.wrapping_sub(self.period_start) < self.target {
            return false; // line 3
        }
        let adapt = self.trigger_qa && self.armed && self.config.quick_adapt; // line 4
        if adapt {
            self.trigger_qa = false;
            self.cwnd = most(self.acked as f32, self.config.mtu as f32) * self.config.qa_scaling;
            if self.config.ignore {
                self.to_ignore = u32::try_from(unacked).unwrap_or(u32::MAX); // lines 8 and 9
            }
        }
        self.period_start = now; // line 11
        self.acked = 0;
        self.armed = true;
        adapt
    }

    /// Applies algorithm 3, FastIncrease. Returns true while it is active.
    fn fast_increase(&mut self, size: u32, rtt: u32, marked: bool) -> bool {
        let near = u64::from(rtt.saturating_sub(self.base_rtt)) < self.config.near.0;
        if marked || !near || !self.config.fast_increase {
            self.count = 0;
            self.increase = false;
            return false;
        }
        self.count = self.count.saturating_add(size);
        if self.increase || self.count as f32 > self.cwnd {
            self.cwnd += self.config.k * size as f32;
            self.increase = true;
        }
        self.increase
    }

    /// Applies the fair decrease (eq. 1) to the window.
    fn fair_decrease(&mut self, size: f32) {
        self.cwnd -= self.cwnd * self.fd_per_bdp * size;
    }

    /// Applies the multiplicative decrease (eq. 2) and then the fair decrease (eq. 1) to the
    /// window.
    fn multiplicative_decrease(&mut self, size: f32, rtt: u32) {
        let excess = (rtt - self.target) as f32;
        self.cwnd -= (excess / rtt as f32 * self.config.md * size).min(size);
        self.fair_decrease(size);
    }

    /// Returns the bytes that the fair increase (eq. 3) adds to the window.
    fn fair_increase(&self, size: f32) -> f32 {
        size * (self.config.mtu as f32 * self.config.fi) / self.cwnd
    }

    /// Keeps the window within the bounds of algorithm 1 line 36 and section 3.5.
    fn clamp(&mut self) {
        self.cwnd = most(least(self.cwnd, self.max_wnd), self.config.min_wnd);
    }
}

impl SenderCc for Smartt {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped to be positive
    fn budget(&self, _now: Time) -> Budget {
        Budget { window: Some(self.cwnd as u64), ..Budget::default() }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        if let (FeedbackKind::Acked, Some(rtt), true) =
            (feedback.kind, feedback.rtt, self.published)
        {
            let rtt = nanos(rtt);
            // The fast path needs nothing to ignore and no new base RTT.
            if self.to_ignore == 0 && rtt >= self.base_rtt {
                self.on_sample(feedback, rtt);
                return;
            }
        }
        self.on_any(feedback);
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // never negative
    fn metrics(&self) -> SenderMetrics {
        SenderMetrics {
            cwnd: Some(self.cwnd as u64),
            max_cwnd: Some(self.max_wnd as u64),
            base_rtt: Some(Span(u64::from(self.base_rtt))),
            ..SenderMetrics::default()
        }
    }
}

/// Returns the moving average of the share of marked packets after one more ACK, which may cover
/// several packets.
#[inline]
fn share(average: f32, weight: f32, marked: bool, feedback: &Feedback<'_>) -> f32 {
    let packets = f32::from(feedback.packets.max(1));
    let hits = match (marked, feedback.marked) {
        (false, _) => 0.0,
        (true, 0) => packets,
        (true, some) => least(f32::from(some), packets),
    };
    if weight * packets <= 1.0 {
        average + weight * (hits - packets * average)
    } else {
        hits / packets
    }
}
