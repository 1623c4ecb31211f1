//! The traits that a congestion control implements, and the types that it exchanges with its
//! caller.
//!
//! No algorithm is named here: [`crate::registry`] lists them.

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
pub use feedback::{Feedback, FeedbackExtension, FeedbackKind, Hops, IntHop, MOST_HOPS};
pub use rate_packet::{
    LinkEntries, LinkEntry, LinkState, MOST_LINKS, RatePacket, Speculation, StartEpoch,
};
pub use receiver::{
    AckSignals, RCVD_UNIT, ReceivedPacket, ReceiverAction, ReceiverCc, ReceiverConfig, RxFlow,
    SenderList, received_between,
};
pub use share::{Congestion, LineShare, ShareConfig, WHOLE_SHARE};

/// One congestion-control context at a sender. A [`crate::Scope`] says which flows share it.
///
/// Call order: [`on_event`](Self::on_event) when a flow joins; then, per packet that leaves,
/// [`budget`](Self::budget) and [`on_send`](Self::on_send); per report of the network or the peer,
/// [`on_feedback`](Self::on_feedback). When [`next_timer`](Self::next_timer) is due, call
/// [`on_timer`](Self::on_timer). After each of the three `on_` calls, [`poll`](Self::poll) until
/// `None`. The caller passes times that never decrease; an earlier time counts as no progress.
///
/// No method allocates after construction. One `Arc` per endpoint holds the configuration and any
/// state that the contexts of one host share (1RC's epochs).
pub trait SenderCc {
    /// Returns the limits that apply to sending at `now`.
    fn budget(&self, now: Time) -> Budget;

    /// Records that a packet leaves, and returns what the algorithm writes into it.
    fn on_send(&mut self, now: Time, sending: &SentPacket) -> Stamp {
        let (_, _) = (now, sending);
        Stamp::default()
    }

    /// Records that up to `count` packets, at least one, leave back to back, each as `sending`
    /// describes. The run ends early at the first packet to which the algorithm adds something.
    ///
    /// Returns how many packets left and the addition to the last one; the others carry none.
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

    /// Processes one report about sent packets: an ACK, a refusal, a loss or another signal.
    fn on_feedback(&mut self, feedback: &Feedback<'_>);

    /// Records that a flow's traffic started, paused or ended.
    fn on_event(&mut self, now: Time, event: FlowEvent) {
        let (_, _) = (now, event);
    }

    /// Processes the timer that [`next_timer`](Self::next_timer) announced.
    fn on_timer(&mut self, now: Time) {
        let _ = now;
    }

    /// Returns when to call [`on_timer`](Self::on_timer); `None` for never.
    fn next_timer(&self) -> Option<Time> {
        None
    }

    /// Returns the next action for the caller, if any.
    fn poll(&mut self, now: Time) -> Option<SenderAction> {
        let _ = now;
        None
    }

    /// Returns the rate packet that [`SenderAction::SendRatePacket`] asked for. Algorithms that
    /// never ask return `None`.
    fn rate_packet(&mut self, now: Time) -> Option<RatePacket> {
        let _ = now;
        None
    }

    /// Returns the state of the context for statistics and plots.
    fn metrics(&self) -> SenderMetrics;

    /// Returns [`SenderMetrics::base_rtt`] alone: a separate method because the caller needs it for
    /// every packet that leaves.
    fn base_rtt(&self) -> Option<Span> {
        self.metrics().base_rtt
    }

    /// Returns the bytes of state of this context: including heap memory, but not the state that it
    /// shares with others.
    fn state_bytes(&self) -> usize {
        size_of_val(self)
    }
}

/// Defines the methods of [`SenderCc`] that a wrapper leaves to the context in its field `inner`.
macro_rules! forward_to_inner {
    () => {
        fn on_event(&mut self, now: squall_base::Time, event: crate::controller::FlowEvent) {
            self.inner.on_event(now, event);
        }

        fn on_timer(&mut self, now: squall_base::Time) {
            self.inner.on_timer(now);
        }

        fn next_timer(&self) -> Option<squall_base::Time> {
            self.inner.next_timer()
        }

        fn poll(&mut self, now: squall_base::Time) -> Option<crate::controller::SenderAction> {
            self.inner.poll(now)
        }

        fn metrics(&self) -> crate::controller::SenderMetrics {
            self.inner.metrics()
        }

        fn base_rtt(&self) -> Option<squall_base::Span> {
            self.inner.base_rtt()
        }

        fn state_bytes(&self) -> usize {
            // The inner algorithm may own boxes, so its own count replaces its size.
            size_of_val(self) - size_of_val(&self.inner) + self.inner.state_bytes()
        }
    };
}
pub(crate) use forward_to_inner;

/// Parameters of a sender's algorithm. Besides these methods the type has `new(&NetworkProfile) ->
/// Self`, which returns the defaults on a network, and the algorithm has `new(Arc<Self>, Time)`.
pub trait SenderParameters: Tunable {
    /// Returns what the receiver of an endpoint that runs this algorithm must do.
    fn receiver(&self, network: &NetworkProfile) -> ReceiverConfig {
        let _ = network;
        ReceiverConfig::Plain
    }

    /// Returns how the peer should acknowledge packets for this algorithm.
    fn acks(&self) -> AckStyle {
        AckStyle::default()
    }

    /// Returns from how many packets out of order on the sender concludes that packets are lost.
    fn loss_threshold(&self) -> LossThreshold {
        LossThreshold::default()
    }

    /// Returns which flows share a context when the user does not choose ([`Scope::AUTO`]).
    fn scope(&self) -> Scope {
        Scope::PerFlow
    }

    /// Returns the parameters for another host. Returns `None` if the contexts of a host share
    /// nothing but parameters, so that hosts may share them, too.
    fn of_another_host(&self) -> Option<Self> {
        None
    }

    /// Lets the window fall to `bytes`, possibly less than a packet, because a pacer limits the
    /// rate (parameter `pace`). Returns false if the algorithm has no such window; `pace` is then
    /// not offered.
    fn set_floor(&mut self, bytes: u32) -> bool {
        let _ = bytes;
        false
    }
}

/// Acknowledgement behaviour that an algorithm needs beyond that of every packet delivery context.
/// Endpoints of a job run the same algorithm, so each endpoint acknowledges as it needs to be
/// acknowledged itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AckStyle {
    /// Acknowledge as soon as one packet arrived, instead of after a number of bytes (MP-RDMA).
    /// Packets that arrive together still share an ACK.
    pub each_packet: bool,
    /// Report the segment of the receive bitmap that holds the lowest packet that arrived since the
    /// last ACK, instead of the segment of the newest packets (STrack section 3.3.1).
    pub lowest_segment: bool,
    /// Echo what switches wrote into the packet that the ACK is about ([`crate::IntHop`]), and ask
    /// switches to write it into packets that leave (HPCC).
    pub telemetry: bool,
}

/// Threshold of reordering, in packets that the receiver reports out of order. Beyond the larger of
/// its two fields, the algorithm treats the overtaken packets as lost.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LossThreshold {
    /// Threshold in congestion windows: this multiple of the window, in packets.
    pub windows: f32,
    /// Lower bound of the threshold, in packets.
    pub packets: u16,
}

impl LossThreshold {
    /// The values of uet-htsim's SLEEK: one and a half windows, at least five packets.
    pub const SLEEK: Self = Self { windows: 1.5, packets: 5 };
}

impl Default for LossThreshold {
    fn default() -> Self {
        Self::SLEEK
    }
}
