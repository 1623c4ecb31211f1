//! Sender that is limited by the receiver's credits and by its own window.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use squall_base::Time;

use super::{Eqds, EqdsConfig};
use crate::baselines::{Mprdma, MprdmaConfig};
use crate::controller::{
    AckStyle, Budget, Feedback, FeedbackKind, FlowEvent, LossThreshold, ReceiverConfig,
    RequestState, SenderAction, SenderCc, SenderMetrics, SenderParameters, SentPacket, Stamp,
};
use crate::error::ConfigError;
use crate::network::NetworkProfile;
use crate::nscc::{Nscc, NsccConfig};
use crate::smartt::{Smartt, SmarttConfig};
use crate::tuning::{Parameter, Setting, Tunable};

/// A window algorithm that can run beside the receiver's credits.
pub trait CreditWindow: SenderCc {
    /// Parameters of the window algorithm.
    type Parameters: SenderParameters + Clone;

    /// Returns the window's default parameters on `network` when credits run beside it.
    fn beside_credits(network: &NetworkProfile) -> Self::Parameters;

    /// Creates a context of the window algorithm, opened at `now`.
    fn open(parameters: Arc<Self::Parameters>, now: Time) -> Self;
}

impl CreditWindow for Nscc {
    type Parameters = NsccConfig;

    fn beside_credits(network: &NetworkProfile) -> NsccConfig {
        NsccConfig { rccc: true, ..NsccConfig::new(network) }
    }

    fn open(parameters: Arc<NsccConfig>, now: Time) -> Self {
        Self::new(parameters, now)
    }
}

impl CreditWindow for Smartt {
    type Parameters = SmarttConfig;

    fn beside_credits(network: &NetworkProfile) -> SmarttConfig {
        SmarttConfig::new(network)
    }

    fn open(parameters: Arc<SmarttConfig>, now: Time) -> Self {
        Self::new(parameters, now)
    }
}

impl CreditWindow for Mprdma {
    type Parameters = MprdmaConfig;

    fn beside_credits(network: &NetworkProfile) -> MprdmaConfig {
        MprdmaConfig::new(network)
    }

    fn open(parameters: Arc<MprdmaConfig>, now: Time) -> Self {
        Self::new(parameters, now)
    }
}

/// Parameters of [`CreditedSender`]: those of the credits and those of the window.
#[derive(Debug)]
pub struct CreditedConfig<W: CreditWindow> {
    /// Parameters of the credits, for sender and receiver.
    pub credits: Arc<EqdsConfig>,
    /// Parameters of the window algorithm.
    pub window: Arc<W::Parameters>,
}

impl<W: CreditWindow> Clone for CreditedConfig<W> {
    fn clone(&self) -> Self {
        Self { credits: Arc::clone(&self.credits), window: Arc::clone(&self.window) }
    }
}

impl<W: CreditWindow> CreditedConfig<W> {
    /// Returns the default parameters of credits and window for `network`.
    #[must_use]
    pub fn new(network: &NetworkProfile) -> Self {
        let credits = EqdsConfig { in_acks: false, ..EqdsConfig::new(network) };
        Self { credits: Arc::new(credits), window: Arc::new(W::beside_credits(network)) }
    }
}

/// The parameters are those of the credits and those of the window together.
impl<W: CreditWindow + 'static> Tunable for CreditedConfig<W> {
    const PARAMETERS: &'static [Parameter<Self>] = &[];

    fn check(&self) -> Result<(), ConfigError> {
        self.credits.check()?;
        self.window.check()
    }

    fn set(&mut self, name: &str, value: f64) -> Option<Result<(), ConfigError>> {
        let credits = Arc::make_mut(&mut self.credits).set(name, value);
        credits.or_else(|| Arc::make_mut(&mut self.window).set(name, value))
    }

    fn settings(&self) -> Vec<Setting> {
        let mut settings = self.credits.settings();
        settings.extend(self.window.settings());
        settings
    }
}

impl<W: CreditWindow + 'static> SenderParameters for CreditedConfig<W> {
    fn receiver(&self, network: &NetworkProfile) -> ReceiverConfig {
        self.credits.receiver(network)
    }

    fn acks(&self) -> AckStyle {
        self.window.acks()
    }

    fn loss_threshold(&self) -> LossThreshold {
        self.window.loss_threshold()
    }

    fn set_floor(&mut self, bytes: u32) -> bool {
        Arc::make_mut(&mut self.window).set_floor(bytes)
    }
}

/// Combination of the receiver's credits, which reflect its own port, with the sender's window,
/// which reflects the network between them (SMaRTT-REPS, first version, section 5.1: "limit its
/// sending rate by capping the congestion window"). Both budgets apply, and the sender asks for no
/// more credit than the window can use.
///
/// The ACKs carry the signals of the window; credit arrives in separate packets.
#[derive(Clone, Debug)]
pub struct CreditedSender<W>(Box<CreditedState<W>>);

#[derive(Clone, Debug)]
struct CreditedState<W> {
    credits: Eqds,
    window: W,
}

impl<W: CreditWindow> CreditedSender<W> {
    /// Creates a context, opened at `now`. `config` must have passed its check.
    #[must_use]
    #[allow(clippy::needless_pass_by_value)] // the signature that all algorithms share
    pub fn new(config: Arc<CreditedConfig<W>>, now: Time) -> Self {
        let credits = Eqds::new(Arc::clone(&config.credits), now);
        Self(Box::new(CreditedState { credits, window: W::open(Arc::clone(&config.window), now) }))
    }

    /// Returns the bytes of state that a context keeps on the heap.
    #[cfg(test)]
    pub(super) const fn boxed_bytes() -> usize {
        size_of::<CreditedState<W>>()
    }
}

impl<W: CreditWindow> SenderCc for CreditedSender<W> {
    fn budget(&self, now: Time) -> Budget {
        let CreditedState { credits, window } = &*self.0;
        let budget = window.budget(now);
        if credits.is_plain() {
            return budget;
        }
        Budget { credit: credits.budget(now).credit, ..budget }
    }

    fn on_send(&mut self, now: Time, sending: &SentPacket) -> Stamp {
        let CreditedState { credits, window } = &mut *self.0;
        let stamp = window.on_send(now, sending);
        let most = window.budget(now).window.unwrap_or(u64::MAX);
        // Asks for one packet more than the window (uet-htsim `computePullTarget`).
        let most = most.saturating_add(credits.packet());
        let target = credits.spend(now, sending, most);
        Stamp { state: Some(RequestState::Demand(target)), ..stamp }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.0.credits.on_credit_feedback(feedback);
        if feedback.kind != FeedbackKind::Control {
            self.0.window.on_feedback(feedback);
        }
    }

    fn on_event(&mut self, now: Time, event: FlowEvent) {
        self.0.credits.on_flow_event(now, event);
        self.0.window.on_event(now, event);
    }

    fn on_timer(&mut self, now: Time) {
        let CreditedState { credits, window } = &mut *self.0;
        credits.on_request_timer(now);
        if window.next_timer().is_some_and(|at| at <= now) {
            window.on_timer(now);
        }
    }

    fn next_timer(&self) -> Option<Time> {
        match (self.0.credits.request_timer(), self.0.window.next_timer()) {
            (Some(credits), Some(window)) => Some(credits.min(window)),
            (credits, window) => credits.or(window),
        }
    }

    fn poll(&mut self, now: Time) -> Option<SenderAction> {
        let CreditedState { credits, window } = &mut *self.0;
        credits.poll_request().or_else(|| window.poll(now))
    }

    fn state_bytes(&self) -> usize {
        size_of_val(self) + size_of_val(&*self.0)
    }

    fn metrics(&self) -> SenderMetrics {
        SenderMetrics { ungranted: self.0.credits.is_plain(), ..self.0.window.metrics() }
    }
}
