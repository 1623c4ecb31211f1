//! The traits that a congestion control implements, and what it exchanges with its caller. Nothing here names an
//! algorithm: [`crate::registry`] lists them.

mod budget;
mod credit;
mod feedback;
mod rate_packet;
mod receiver;
mod share;

use squall_base::{Span, Time};

use crate::network::NetworkProfile;
use crate::tuning::Tunable;
pub use budget::{
    Budget, FlowEvent, RequestState, Scope, SenderAction, SenderMetrics, SentPacket, Stamp,
};
pub use credit::{CREDIT_UNIT, CreditConfig, credit_bytes, credit_units};
pub(crate) use feedback::LANES;
pub use feedback::{Feedback, FeedbackKind, Grant, Hops, IntHop, MOST_HOPS};
pub use rate_packet::{
    LinkEntries, LinkEntry, LinkState, MOST_LINKS, RatePacket, Speculation, StartEpoch,
};
pub use receiver::{
    AckSignals, RCVD_UNIT, ReceivedPacket, ReceiverAction, ReceiverCc, ReceiverConfig, RxFlow,
    SenderList, received_between,
};
pub use share::{Congestion, LineShare, ShareConfig, WHOLE_SHARE};

/// One congestion-control context at a sender; which flows share it is [`crate::Scope`]'s business.
///
/// Call order: [`on_event`](Self::on_event) when a flow joins; then, per packet that leaves,
/// [`budget`](Self::budget) and [`on_send`](Self::on_send); per thing learnt,
/// [`on_feedback`](Self::on_feedback). When [`next_timer`](Self::next_timer) is due, call
/// [`on_timer`](Self::on_timer). After each of the three `on_` calls, [`poll`](Self::poll) until
/// `None`. Time never runs backwards from call to call; if it does, it counts as standing still.
///
/// Nothing here allocates after construction. Configuration, and any state that the contexts of one
/// host share (1RC's epochs), hangs off one `Arc` per endpoint.
pub trait SenderCc {
    /// What may be sent now.
    fn budget(&self, now: Time) -> Budget;

    /// A packet leaves.
    fn on_send(&mut self, now: Time, sending: &SentPacket) -> Stamp {
        let (_, _) = (now, sending);
        Stamp::default()
    }

    /// Packets leave back to back, each as `sending` says: up to `count` of them, at least one, until one wants
    /// something of its own. How many left, and what rides on the last; nothing rides on the others.
    #[inline]
    fn on_send_run(&mut self, now: Time, sending: &SentPacket, count: u16) -> (u16, Stamp) {
        for n in 1..count {
            let stamp = self.on_send(now, sending);
            if stamp != Stamp::default() {
                return (n, stamp);
            }
        }
        (count, self.on_send(now, sending))
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
    fn poll(&mut self, now: Time) -> Option<SenderAction> {
        let _ = now;
        None
    }

    /// What [`SenderAction::SendRatePacket`] asks to send, now; only of algorithms that ask.
    fn rate_packet(&mut self, now: Time) -> Option<RatePacket> {
        let _ = now;
        None
    }

    /// What the context looks like.
    fn metrics(&self) -> SenderMetrics;

    /// [`SenderMetrics::base_rtt`] alone, which every packet that leaves asks for.
    fn base_rtt(&self) -> Option<Span> {
        self.metrics().base_rtt
    }

    /// Bytes of state of this context, in boxes too; without what it shares with others.
    fn state_bytes(&self) -> usize {
        size_of_val(self)
    }
}

/// Parameters of a sender's algorithm. Besides the methods here it has `new(&NetworkProfile) -> Self`, its
/// defaults on a network, and the algorithm `new(Arc<Self>, Time)`.
pub trait SenderParameters: Tunable {
    /// What the receiver of an endpoint that runs this algorithm must do.
    fn receiver(&self, network: &NetworkProfile) -> ReceiverConfig {
        let _ = network;
        ReceiverConfig::Plain
    }

    /// How it wants to be acknowledged.
    fn acks(&self) -> AckStyle {
        AckStyle::default()
    }

    /// When packets out of order are a loss.
    fn loss_threshold(&self) -> LossThreshold {
        LossThreshold::default()
    }

    /// Which flows share a context where nobody says it ([`Scope::AUTO`]).
    fn scope(&self) -> Scope {
        Scope::PerFlow
    }

    /// Returns the parameters for another host. `None` where the contexts of a host share nothing but parameters, so that
    /// hosts may share them, too.
    fn of_another_host(&self) -> Option<Self> {
        None
    }

    /// Lets the window fall to `bytes`, possibly less than a packet, because a pacer watches over it
    /// (parameter `pace`). False when the algorithm has no such window; then it is not offered.
    fn set_floor(&mut self, bytes: u32) -> bool {
        let _ = bytes;
        false
    }
}

/// What an algorithm wants of its peers' acknowledgements, beyond what every packet delivery context
/// does. Endpoints of a job run the same algorithm, so each does for its peers what it wants itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AckStyle {
    /// Acknowledge as soon as one packet arrived, instead of after some bytes (MP-RDMA). Packets that
    /// arrive together still share an ACK.
    pub each_packet: bool,
    /// Show the segment of the receive bitmap in which the lowest packet lies that arrived since the
    /// last ACK, instead of the newest packets (STrack section 3.3.1).
    pub lowest_segment: bool,
    /// Send back what switches wrote into the packet that the ACK is about ([`crate::IntHop`]), and ask them to write it
    /// into packets that leave (HPCC).
    pub telemetry: bool,
}

/// How many packets the receiver may report out of order before an algorithm takes what they overtook for lost: so
/// many windows, and so many packets at least.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LossThreshold {
    /// Congestion windows.
    pub windows: f32,
    /// Packets.
    pub packets: u16,
}

impl Default for LossThreshold {
    /// uet-htsim's SLEEK: one and a half windows, five packets.
    fn default() -> Self {
        Self { windows: 1.5, packets: 5 }
    }
}
