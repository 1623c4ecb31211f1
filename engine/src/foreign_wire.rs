//! The wires of other implementations: what an endpoint that talks to them does differently. The
//! wire belongs to the endpoint, because the first packet of an unknown peer must be judged before
//! anything is known of that peer.

use core::net::SocketAddr;

use crate::config::UET_PORT;
use crate::reliability::Dialect;

/// The fields by which requests name an endpoint of another implementation, besides its address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerAddress {
    /// PIDonFEP of the endpoint in request headers, 12 bits.
    pub pid_on_fep: u16,
    /// Resource index of the endpoint in request headers, 12 bits.
    pub index: u16,
    /// The id under which the peer knows this endpoint. The reference provider compares it when it
    /// matches messages.
    pub initiator: u32,
}

impl PeerAddress {
    /// The value for peers of this project, whose requests do not use these fields.
    pub(crate) const NONE: Self = Self { pid_on_fep: 0, index: 0, initiator: 0 };
}

/// The constants of a wire (packet formats and rules) that other implementations speak. Their
/// endpoints are called foreign peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForeignWire {
    /// UDP port on which every peer listens. `None` if a peer is the source address and port of its
    /// packets.
    pub port: Option<u16>,
    /// Requests of another JobID or to another PIDonFEP are refused. Otherwise both are ignored.
    pub checks_job: bool,
    /// True if an ICMP "port unreachable" is evidence that the peer has gone. It is none where
    /// peers receive without a UDP socket: their kernel then sends such a message for each packet
    /// that they receive.
    pub heeds_refusals: bool,
    /// Payload in bytes of every packet of a message but the last one.
    pub payload: u16,
    /// Address of a peer of which the user named only the IP address and the port.
    pub peer: PeerAddress,
    /// The forms of acknowledgements and control packets that the other implementation uses.
    pub dialect: Dialect,
}

impl ForeignWire {
    /// Packets that a sender may have outstanding on a context: the receive window of both
    /// implementations.
    pub(crate) const WINDOW: u16 = 128;

    /// Headers in bytes of a packet of a message: PDS and SES header.
    pub const HEADERS: u16 = 12 + 44;

    /// Returns the wire of the standard, as the reference provider speaks it, with packets of
    /// `payload` bytes: 1024, 2048, 4096 or 8192, the same at all endpoints.
    #[must_use]
    pub const fn standard(payload: u16) -> Self {
        Self {
            port: Some(UET_PORT),
            checks_job: true,
            heeds_refusals: false,
            payload,
            peer: PeerAddress { pid_on_fep: 0, index: 15, initiator: 16 },
            dialect: Dialect::STANDARD,
        }
    }

    /// Returns the wire format of SUET, with packets of `payload` bytes, as many as the datagrams
    /// of its provider have room for: 1416 over Ethernet.
    #[must_use]
    pub const fn suet(payload: u16) -> Self {
        Self {
            port: None,
            checks_job: false,
            heeds_refusals: true,
            payload,
            peer: PeerAddress { pid_on_fep: 0, index: 0, initiator: 0 },
            dialect: Dialect::SUET,
        }
    }

    /// Returns the address of the peer that sent a packet from `src`.
    pub(crate) fn peer_addr(&self, src: SocketAddr) -> SocketAddr {
        SocketAddr::new(src.ip(), self.port.unwrap_or(src.port()))
    }
}
