//! The fields and sizes of the packets of a context that its endpoint's wire determines. They are
//! chosen when the context is opened, so that building a packet does not depend on the wire.

use crate::config::Config;
use crate::peers::{Initiator, PeerState};

/// Largest payload of a packet in bytes: the field `payload_length` has 14 bits.
const MAX_PAYLOAD: u64 = 0x3fff;
/// Mask that rounds a payload length down to whole cache lines of 64 bytes.
const CACHE_LINES: u64 = !63;

/// The header fields and payload limits of a context's packets, which its wire format determines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketForm {
    /// Requests use relative addressing: their REL bit is set.
    pub(crate) relative: bool,
    pub(crate) job_id: u32,
    pub(crate) pid_on_fep: u16,
    /// The resource index of memory and messages. Other resources follow it.
    pub(crate) index: u16,
    pub(crate) initiator: u32,
    /// The last packet of each operation requests an acknowledgement.
    pub(crate) asks: bool,
    /// The context carries one operation at a time: the next begins when everything before it is
    /// acknowledged.
    pub(crate) serial: bool,
    most_payload: u64,
    payload_mask: u64,
}

impl PacketForm {
    /// Returns the form of the packets to a peer. This endpoint opened the context if `initiator` is
    /// set.
    pub(crate) fn new(config: &Config, peer: &PeerState, initiator: bool) -> Self {
        let Some(wire) = &config.wire else {
            let own = Initiator { port: config.port, tag: config.instance.tag() };
            return Self {
                relative: false,
                job_id: config.job_id,
                pid_on_fep: config.pid_on_fep,
                index: 0,
                initiator: own.field(),
                asks: false,
                serial: false,
                most_payload: MAX_PAYLOAD,
                payload_mask: CACHE_LINES,
            };
        };
        let address = peer.address();
        Self {
            relative: true,
            job_id: config.job_id,
            pid_on_fep: address.pid_on_fep,
            index: address.index,
            initiator: address.initiator,
            asks: true,
            serial: wire.dialect.serial && initiator,
            most_payload: wire.payload.into(),
            payload_mask: u64::MAX,
        }
    }

    /// Returns the number of payload bytes that a packet has room for, with `headers` bytes of
    /// headers in a packet of at most `max_packet` bytes.
    #[inline]
    pub(crate) fn max_payload(&self, max_packet: u32, headers: u64) -> u64 {
        let room = u64::from(max_packet).saturating_sub(headers);
        // Use whole cache lines, unless the packet is too small for that to matter.
        let room = if room >= 1024 { room & self.payload_mask } else { room };
        room.clamp(1, self.most_payload)
    }
}
