//! The choices that Ultra Ethernet leaves to an endpoint, and that its peers must be able to handle.

/// The forms of acknowledgements and control packets that an endpoint sends. All endpoints of this
/// project handle [`Dialect::NATIVE`]; other implementations handle less.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dialect {
    /// ACKs carry SACK and congestion-control state (ACK_CC, ACK_CCX). Otherwise they are plain.
    pub ack_state: bool,
    /// The ACK of a data packet always carries the message layer's response, which the engine hands
    /// in by [`crate::Pdcs::answer`]. Otherwise an ACK without response stands for the default one.
    pub answers: bool,
    /// Probes ask a silent peer what arrived. Otherwise late packets are retransmitted instead.
    pub probes: bool,
    /// A target asks its initiator to close an idle context. Otherwise the target forgets it.
    pub asks_close: bool,
    /// A context whose peer answers on no path sends from other source ports. Otherwise the peer
    /// takes the source port for its sender's address, and drops what comes from another one.
    pub takes_detours: bool,
    /// Peers may open contexts of ordered delivery (ROD).
    pub takes_ordered: bool,
    /// An initiator reports [`crate::Event::Ready`] when everything is acknowledged, because the
    /// engine sends its messages one after the other.
    pub serial: bool,
}

impl Dialect {
    /// The forms that the endpoints of this project use among each other.
    pub const NATIVE: Self = Self {
        ack_state: true,
        answers: false,
        probes: true,
        asks_close: true,
        takes_detours: true,
        takes_ordered: false,
        serial: false,
    };
    /// The forms that the reference provider handles.
    pub const STANDARD: Self = Self {
        ack_state: false,
        answers: true,
        probes: false,
        asks_close: true,
        takes_detours: true,
        takes_ordered: true,
        serial: true,
    };
    /// The forms that SUET handles. It answers a Close Request with a NACK, takes messages one behind
    /// the other, and knows a peer by its IP address and source port.
    pub const SUET: Self =
        Self { asks_close: false, takes_detours: false, serial: false, ..Self::STANDARD };
}
