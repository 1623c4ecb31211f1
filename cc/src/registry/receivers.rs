//! The enum over the receivers' parts of all congestion controls.

use squall_base::Time;

use crate::baselines::NotifyReceiver;
use crate::controller::{
    AckSignals, ReceivedPacket, ReceiverAction, ReceiverCc, ReceiverConfig, RxFlow, SenderList,
};
use crate::eqds::CreditReceiver;
use crate::nscc::NsccReceiver;
#[cfg(feature = "research")]
use crate::research::DartReceiver;

/// The receiver's part of congestion control, of any kind.
#[derive(Clone, Debug)]
pub enum Receiver {
    /// Receiver that counts bytes and echoes marks; see [`NsccReceiver`].
    Plain(NsccReceiver),
    /// Receiver that notifies senders of marked packets; see [`NotifyReceiver`].
    Notifying(NotifyReceiver),
    /// Receiver that grants credit to senders; see [`CreditReceiver`].
    Credits(CreditReceiver),
    /// Receiver that divides its line among senders; see [`DartReceiver`].
    #[cfg(feature = "research")]
    Dart(DartReceiver),
}

impl Receiver {
    /// Creates the receiver's part of congestion control for an endpoint.
    #[must_use]
    pub fn new(config: &ReceiverConfig) -> Self {
        match config {
            // A build without the research feature has no sender that asks for shares.
            #[cfg(not(feature = "research"))]
            ReceiverConfig::Shares(_) => Self::Plain(NsccReceiver::default()),
            ReceiverConfig::Plain | ReceiverConfig::Rates => Self::Plain(NsccReceiver::default()),
            ReceiverConfig::Notifying { interval } => {
                Self::Notifying(NotifyReceiver::new(*interval))
            }
            ReceiverConfig::Credits(config) => Self::Credits(CreditReceiver::new(*config)),
            #[cfg(feature = "research")]
            ReceiverConfig::Shares(config) => Self::Dart(DartReceiver::new(*config)),
        }
    }
}

impl Default for Receiver {
    fn default() -> Self {
        Self::new(&ReceiverConfig::default())
    }
}

/// Calls a method of the kind of receiver that a [`Receiver`] holds.
macro_rules! each {
    ($self:expr, $receiver:ident => $call:expr) => {
        match $self {
            Receiver::Plain($receiver) => $call,
            Receiver::Notifying($receiver) => $call,
            Receiver::Credits($receiver) => $call,
            #[cfg(feature = "research")]
            Receiver::Dart($receiver) => $call,
        }
    };
}

impl ReceiverCc for Receiver {
    fn on_sender_list(&mut self, now: Time, ahead: &SenderList<'_>) -> bool {
        each!(self, receiver => receiver.on_sender_list(now, ahead))
    }

    fn on_rx(&mut self, now: Time, flow: &mut RxFlow, meta: &ReceivedPacket) {
        each!(self, receiver => receiver.on_rx(now, flow, meta));
    }

    #[inline]
    fn on_rx_run(&mut self, now: Time, flow: &mut RxFlow, meta: &ReceivedPacket, count: u16) {
        each!(self, receiver => receiver.on_rx_run(now, flow, meta, count));
    }

    fn on_request(&mut self, now: Time, flow: &mut RxFlow, target: u64) {
        each!(self, receiver => receiver.on_request(now, flow, target));
    }

    fn on_overflow(&mut self, lost: u64, buffer: u64) {
        each!(self, receiver => receiver.on_overflow(lost, buffer));
    }

    fn on_drained(&mut self) {
        each!(self, receiver => receiver.on_drained());
    }

    fn fill_ack(&mut self, now: Time, flow: &mut RxFlow, signals: &mut AckSignals) {
        each!(self, receiver => receiver.fill_ack(now, flow, signals));
    }

    fn on_close(&mut self, now: Time, flow: &mut RxFlow) {
        each!(self, receiver => receiver.on_close(now, flow));
    }

    fn poll(&mut self, now: Time) -> Option<ReceiverAction> {
        each!(self, receiver => receiver.poll(now))
    }

    fn next_timer(&self) -> Option<Time> {
        each!(self, receiver => receiver.next_timer())
    }
}
