//! The sender's side: the trait, and the enum over every algorithm.

use alloc::sync::Arc;

use squall_base::Time;

use crate::budget::{Action, Budget, FlowEvent, Metrics, Sending, Stamp};
use crate::error::ConfigError;
use crate::feedback::Feedback;
use crate::fixed::{FixedWindow, FixedWindowConfig};
use crate::nscc::{Nscc, NsccConfig};

/// One congestion-control context at a sender; which flows share it is [`crate::Scope`]'s business.
///
/// Call order: [`on_event`](Self::on_event) when a flow joins; then, per packet that leaves,
/// [`budget`](Self::budget) and [`on_send`](Self::on_send); per thing learnt,
/// [`on_feedback`](Self::on_feedback). When [`next_timer`](Self::next_timer) is due, call
/// [`on_timer`](Self::on_timer). After each of the three `on_` calls, [`poll`](Self::poll) until
/// `None`. Time never runs backwards from call to call; if it does, it counts as standing still.
///
/// Nothing here allocates after construction. Configuration, and any state that the contexts of one
/// host share (1RC's epochs, 3CPO's tokens), hangs off one `Arc` per endpoint.
pub trait SenderCc {
    /// What may be sent now.
    fn budget(&self, now: Time) -> Budget;

    /// A packet leaves.
    fn on_send(&mut self, now: Time, sending: &Sending) -> Stamp {
        let (_, _) = (now, sending);
        Stamp::default()
    }

    /// Something was learnt.
    fn on_feedback(&mut self, feedback: &Feedback<'_>);

    /// Traffic started, paused or ended.
    fn on_event(&mut self, now: Time, event: FlowEvent) {
        let (_, _) = (now, event);
    }

    /// The time of [`next_timer`](Self::next_timer) has come.
    fn on_timer(&mut self, now: Time) {
        let _ = now;
    }

    /// When [`on_timer`](Self::on_timer) wants to be called; `None` for never.
    fn next_timer(&self) -> Option<Time> {
        None
    }

    /// The next thing to do, if any.
    fn poll(&mut self, now: Time) -> Option<Action> {
        let _ = now;
        None
    }

    /// What the context looks like.
    fn metrics(&self) -> Metrics;

    /// Congestion in the algorithm's own unit, for the decorators VAI and SF (thesis chapter 3).
    fn congestion(&self) -> f64 {
        0.0
    }

    /// Multiply the additive increase by `gain` (VAI).
    fn set_ai_gain(&mut self, gain: f64) {
        let _ = gain;
    }
}

/// The algorithm of an endpoint with its parameters: checked once, shared by all its contexts.
#[derive(Clone, Debug)]
pub enum SenderConfig {
    /// Network Signal-based Congestion Control of UE 1.0.
    Nscc(Arc<NsccConfig>),
    /// A window that never changes ("none").
    Fixed(FixedWindowConfig),
}

impl SenderConfig {
    /// NSCC with checked parameters.
    ///
    /// # Errors
    /// The parameter that is out of range.
    pub fn nscc(config: NsccConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self::Nscc(Arc::new(config)))
    }

    /// A fixed window of `window` bytes; `u64::MAX` for no limit.
    #[must_use]
    pub const fn fixed(window: u64) -> Self {
        Self::Fixed(FixedWindowConfig { window })
    }

    /// The name by which a user asks for it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Nscc(_) => "nscc",
            Self::Fixed(_) => "none",
        }
    }
}

/// A context of any algorithm.
#[derive(Clone, Debug)]
pub enum Sender {
    /// See [`Nscc`].
    Nscc(Nscc),
    /// See [`FixedWindow`].
    Fixed(FixedWindow),
}

impl Sender {
    /// A fresh context, opened at `now`.
    #[must_use]
    pub fn new(config: &SenderConfig, now: Time) -> Self {
        match config {
            SenderConfig::Nscc(config) => Self::Nscc(Nscc::new(Arc::clone(config), now)),
            SenderConfig::Fixed(config) => Self::Fixed(FixedWindow::new(*config)),
        }
    }
}

/// Hands a call to the algorithm inside.
macro_rules! each {
    ($self:expr, $cc:ident => $call:expr) => {
        match $self {
            Sender::Nscc($cc) => $call,
            Sender::Fixed($cc) => $call,
        }
    };
}

impl SenderCc for Sender {
    fn budget(&self, now: Time) -> Budget {
        each!(self, cc => cc.budget(now))
    }

    fn on_send(&mut self, now: Time, sending: &Sending) -> Stamp {
        each!(self, cc => cc.on_send(now, sending))
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        each!(self, cc => cc.on_feedback(feedback));
    }

    fn on_event(&mut self, now: Time, event: FlowEvent) {
        each!(self, cc => cc.on_event(now, event));
    }

    fn on_timer(&mut self, now: Time) {
        each!(self, cc => cc.on_timer(now));
    }

    fn next_timer(&self) -> Option<Time> {
        each!(self, cc => cc.next_timer())
    }

    fn poll(&mut self, now: Time) -> Option<Action> {
        each!(self, cc => cc.poll(now))
    }

    fn metrics(&self) -> Metrics {
        each!(self, cc => cc.metrics())
    }

    fn congestion(&self) -> f64 {
        each!(self, cc => cc.congestion())
    }

    fn set_ai_gain(&mut self, gain: f64) {
        each!(self, cc => cc.set_ai_gain(gain));
    }
}
