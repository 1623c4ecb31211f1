//! The choices that Ultra Ethernet leaves to an endpoint, and that its peers must be able to handle.

/// The forms of acknowledgements and control packets that an endpoint sends. All endpoints of this
/// project handle [`Dialect::NATIVE`]; other implementations handle less.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dialect {
    /// ACKs carry SACK and congestion-control state (ACK_CC, ACK_CCX). If false, this endpoint
    /// sends ACKs with neither.
    pub ack_state: bool,
    /// The ACK of a data packet always carries the message layer's response, which the engine hands
    /// in by [`crate::Pdcs::answer`]. If false, an ACK without a response stands for the default
    /// response.
    pub answers: bool,
    /// The sender probes a silent peer to learn what arrived. If false, it retransmits late packets
    /// instead.
    pub probes: bool,
    /// A target asks its initiator to close an idle context. If false, the target forgets the
    /// context without asking.
    pub asks_close: bool,
    /// Peers accept packets of a context from any UDP source port, so a context that gets no answer
    /// on its paths may send from other ports. False for peers that know an endpoint by IP address
    /// and source port, because they drop packets from other ports.
    pub takes_detours: bool,
    /// Peers may open contexts of ordered delivery (mode ROD) at this endpoint.
    pub takes_ordered: bool,
    /// An initiator reports [`crate::Event::Ready`] when everything is acknowledged, because the
    /// engine sends its messages one after the other.
    pub serial: bool,
}

impl Dialect {
    /// Everything optional in packets is used: the dialect of two endpoints of this project.
    pub const NATIVE: Self = Self {
        ack_state: true,
        answers: false,
        probes: true,
        asks_close: true,
        takes_detours: true,
        takes_ordered: false,
        serial: false,
    };
    /// The optional packet forms that UET's reference provider understands.
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
