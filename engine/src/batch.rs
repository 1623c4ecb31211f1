//! What [`crate::Engine::poll_transmit`] fills and `net` sends.

use core::net::SocketAddr;
use core::ops::Range;

use crate::memory::Seg;

/// Packets ready to leave. Reused from call to call, so that a steady state allocates nothing.
#[derive(Debug, Default)]
pub struct Batch {
    /// The packets, in sending order. Packets of one train stand next to each other.
    pub packets: Vec<TxPacket>,
    /// Headers (and inline payload), named by [`TxPacket::header`].
    pub bytes: Vec<u8>,
    /// Payload pieces in user memory, named by [`TxPacket::payload`].
    pub segs: Vec<Seg>,
}

impl Batch {
    /// Forgets the packets, keeps the memory.
    pub fn clear(&mut self) {
        self.packets.clear();
        self.bytes.clear();
        self.segs.clear();
    }

    /// The header bytes of a packet.
    #[must_use]
    pub fn header(&self, packet: &TxPacket) -> &[u8] {
        &self.bytes[packet.header.start as usize..packet.header.end as usize]
    }

    /// The payload pieces of a packet.
    #[must_use]
    pub fn payload(&self, packet: &TxPacket) -> &[Seg] {
        &self.segs[packet.payload.start as usize..packet.payload.end as usize]
    }
}

/// One packet of a [`Batch`].
#[derive(Clone, Debug)]
pub struct TxPacket {
    /// Where to.
    pub dst: SocketAddr,
    /// The entropy: which source port.
    pub path: u16,
    /// ACK, NACK or control packet: sent with the control DSCP.
    pub control: bool,
    /// UDP payload length without a CRC trailer.
    pub len: u32,
    /// Header range in [`Batch::bytes`].
    pub header: Range<u32>,
    /// Payload range in [`Batch::segs`].
    pub payload: Range<u32>,
}
