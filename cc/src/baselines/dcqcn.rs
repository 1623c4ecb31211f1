//! DCQCN's reaction point (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments",
//! SIGCOMM 2015): a rate cut by congestion notifications and raised by a timer and a byte counter.
//! Sections and equations are that paper's. The notification point is [`crate::NotifyReceiver`].
//!
//! There are two variants: the paper's, and that of network cards ([`DcqcnVariant`]).
//!
//! Both assume a network without losses. A lost packet met a full queue, whose packets are marked,
//! so a loss counts as a notification ([`DcqcnConfig::react_to_loss`]), at most once per
//! [`DcqcnConfig::cnp_interval`].
//!
//! A peer may not know that it should notify. Its acknowledgements still report marks; after a few
//! of these the sender generates the notifications itself, until one arrives.

mod config;
mod receiver;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use squall_base::{Span, Time};

use crate::controller::{
    Budget, Feedback, FeedbackKind, SenderCc, SenderMetrics, SentPacket, Stamp,
};
use crate::math::{power, up_to};
pub use config::{DcqcnConfig, DcqcnVariant};
pub use receiver::NotifyReceiver;

/// Number of reports of marked packets without a notification after which the sender concludes that
/// the peer sends none. A notifying peer sends the first one with the first mark; if that was lost,
/// the next one corrects the conclusion.
const MAX_UNNOTIFIED_MARKS: u8 = 16;

/// One DCQCN context: 56 bytes, parameters shared.
///
/// `alpha` decays without a timer: its decay since the last notification is computed at the next
/// one. The timer runs only while the rate is below the line's, so idle flows cost nothing.
#[derive(Clone, Debug)]
pub struct Dcqcn {
    config: Arc<DcqcnConfig>,
    /// Time up to which the decay of `alpha` was computed.
    alpha_at: Time,
    /// Time at which the sending rate was last reduced.
    cut_at: Time,
    /// Time at which the increase timer next raises the rate; [`Time::NEVER`] at line rate.
    raise_at: Time,
    /// Current sending rate `R_C` in bits per second.
    rate: f32,
    /// Target rate `R_T` in bits per second, which increases approach.
    target: f32,
    /// Estimate of congestion, 0 to 1 (`alpha` of the paper); a cut takes half of it off the rate.
    alpha: f32,
    /// Bytes sent since the byte counter last expired (every `byte_counter` bytes).
    sent: u32,
    /// Expiries of the increase timer since the rate was last cut.
    timer_stage: u8,
    /// Expiries of the byte counter since the rate was last cut.
    byte_stage: u8,
    /// The vendor variant received a congestion notification since `alpha_at`.
    notified: bool,
    /// The vendor variant received a notification too soon after the last cut, so a cut is due
    /// later.
    cut_due: bool,
    /// The rate was cut at least once since the context opened.
    limited: bool,
    /// Reports of marked packets that arrived before the first notification, at most
    /// [`MAX_UNNOTIFIED_MARKS`].
    unnotified_marks: u8,
    /// At least one congestion notification arrived from the peer.
    notified_once: bool,
}

impl Dcqcn {
    /// Creates a context that starts at line rate. `config` must have passed
    /// [`crate::Tunable::check`].
    #[must_use]
    pub fn new(config: Arc<DcqcnConfig>, now: Time) -> Self {
        let line = config.line.0 as f32;
        Self {
            alpha_at: now,
            cut_at: Time::ZERO,
            raise_at: Time::NEVER,
            rate: line,
            target: line,
            alpha: 1.0,
            sent: 0,
            timer_stage: 0,
            byte_stage: 0,
            notified: false,
            cut_due: false,
            limited: false,
            unnotified_marks: 0,
            notified_once: false,
            config,
        }
    }

    /// Processes a congestion notification, or an event that counts as one.
    fn on_notified(&mut self, now: Time) {
        if !self.limited {
            self.alpha_at = now; // before the first cut no limiter existed whose alpha could age
        }
        self.age_alpha(now);
        match self.config.form {
            DcqcnVariant::Paper => {
                self.cut(now);
                self.alpha += self.config.g * (1.0 - self.alpha); // eq. 1
                self.alpha_at = now;
            }
            DcqcnVariant::Vendor => {
                self.notified = true;
                if self.may_cut(now, self.config.decrease_period) {
                    self.cut(now);
                } else {
                    self.cut_due = true;
                }
            }
        }
    }

    /// Processes a packet loss, which counts as a congestion notification.
    fn on_loss(&mut self, now: Time) {
        if self.config.react_to_loss && self.may_cut(now, self.config.cnp_interval) {
            self.on_notified(now);
        }
    }

    /// Processes a report of marked packets. While the peer has sent no notification, these reports
    /// are counted; from [`MAX_UNNOTIFIED_MARKS`] of them on, a report reduces the rate as a
    /// notification does.
    fn on_mark(&mut self, now: Time) {
        if self.notified_once {
            return;
        }
        self.unnotified_marks = (self.unnotified_marks + 1).min(MAX_UNNOTIFIED_MARKS);
        if self.peer_never_notifies() && self.may_cut(now, self.config.cnp_interval) {
            self.on_notified(now);
        }
    }

    /// Returns whether the peer reports marks but does not notify.
    const fn peer_never_notifies(&self) -> bool {
        !self.notified_once && self.unnotified_marks >= MAX_UNNOTIFIED_MARKS
    }

    /// Returns whether the rate was last cut at least `distance` ago.
    fn may_cut(&self, now: Time, distance: Span) -> bool {
        !self.limited || now.since(self.cut_at) >= distance
    }

    /// Brings `alpha` up to `now`: eq. 2 for each period without a notification, and in the vendor
    /// variant eq. 1 for the period that had some.
    fn age_alpha(&mut self, now: Time) {
        let period = self.config.alpha_period.0.max(1);
        let periods = now.since(self.alpha_at).0 / period;
        if periods == 0 {
            return;
        }
        let mut decays = u32::try_from(periods).unwrap_or(u32::MAX);
        if self.notified {
            self.notified = false;
            self.alpha += self.config.g * (1.0 - self.alpha);
            decays -= 1;
        }
        self.alpha *= power(1.0 - self.config.g, decays);
        self.alpha_at += Span(periods * period);
    }

    /// Cuts the rate by eq. 1, and restarts all counters (figure 7).
    fn cut(&mut self, now: Time) {
        // In the vendor variant several cuts without an increase in between keep the target of the
        // first one.
        let raised = self.timer_stage > 0 || self.byte_stage > 0;
        if self.config.clamp_target || raised || self.raise_at == Time::NEVER {
            self.target = self.rate;
        }
        self.rate = (self.rate * (1.0 - self.alpha / 2.0)).max(self.config.min_rate.0 as f32);
        self.sent = 0;
        self.timer_stage = 0;
        self.byte_stage = 0;
        self.cut_at = now;
        self.limited = true;
        self.cut_due = false;
        self.raise_at = now + self.config.increase_period;
    }

    /// Processes an expiry of the timer or the byte counter (figure 7, eq. 3 and 4).
    fn raise(&mut self) {
        let config = &*self.config;
        let most = self.timer_stage.max(self.byte_stage);
        // Without a byte counter the timer alone decides about hyper increase.
        let least =
            if config.byte_counter == 0 { most } else { self.timer_stage.min(self.byte_stage) };
        if most >= config.stages {
            self.target += if least > config.stages {
                let steps = match config.form {
                    DcqcnVariant::Paper => f32::from(least - config.stages),
                    DcqcnVariant::Vendor => 1.0,
                };
                steps * config.hyper_step.0 as f32
            } else {
                config.additive_step.0 as f32
            };
        }
        let line = config.line.0 as f32;
        self.target = self.target.min(line);
        self.rate = (self.rate + self.target) / 2.0;
        // Halving a distance never ends, so the last thousandth of the line counts as reached.
        if self.rate >= line * 0.999 {
            self.rate = line;
            self.raise_at = Time::NEVER;
        }
    }
}

impl SenderCc for Dcqcn {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // positive
    fn budget(&self, _now: Time) -> Budget {
        Budget {
            rate: Some(up_to(self.rate, self.config.line)),
            window: self.config.window_bytes(),
            burst: self.config.burst,
            ..Budget::default()
        }
    }

    fn on_send(&mut self, _now: Time, sending: &SentPacket) -> Stamp {
        let limit = self.config.byte_counter;
        if limit > 0 && self.raise_at != Time::NEVER {
            self.sent = self.sent.saturating_add(sending.bytes);
            if self.sent >= limit {
                self.sent -= limit;
                self.byte_stage = self.byte_stage.saturating_add(1);
                self.raise();
            }
        }
        Stamp::default()
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        match feedback.kind {
            FeedbackKind::Notified => {
                self.notified_once = true;
                self.on_notified(feedback.now);
            }
            FeedbackKind::Acked if feedback.ecn => self.on_mark(feedback.now),
            FeedbackKind::Nacked { trimmed: true, .. }
            | FeedbackKind::Lost
            | FeedbackKind::TimedOut => {
                self.on_loss(feedback.now);
            }
            _ => {}
        }
    }

    fn on_timer(&mut self, now: Time) {
        if self.cut_due && self.may_cut(now, self.config.decrease_period) {
            self.age_alpha(now);
            self.cut(now);
        }
        if now >= self.raise_at {
            self.timer_stage = self.timer_stage.saturating_add(1);
            self.raise_at = now + self.config.increase_period;
            self.raise();
        }
    }

    fn next_timer(&self) -> Option<Time> {
        let cut =
            if self.cut_due { self.cut_at + self.config.decrease_period } else { Time::NEVER };
        Some(cut.min(self.raise_at)).filter(|&at| at != Time::NEVER)
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // never negative
    fn metrics(&self) -> SenderMetrics {
        let window = self.config.window_bytes();
        SenderMetrics {
            cwnd: window,
            max_cwnd: window,
            rate: Some(up_to(self.rate, self.config.line)),
            ungranted: self.peer_never_notifies(),
            ..SenderMetrics::default()
        }
    }
}
