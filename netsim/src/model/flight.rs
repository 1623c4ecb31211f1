//! Packets on their way, by number: what switches read of them. What they carry is the driver's, by the same
//! numbers.

use super::header::{Class, PacketHeader};

/// A packet as the network sees it.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(super) struct InFlight {
    pub(super) header: PacketHeader,
    /// The sending host.
    source: u32,
    /// The port it left by last; where it goes on at a switch with a program, its lanes too: see [`super::lane`].
    pub(super) port: u32,
    /// The port it will leave by, if that was found out ahead; else [`NO_ROUTE`].
    pub(super) route: u32,
}

/// No port.
pub(super) const NO_ROUTE: u32 = u32::MAX;

impl InFlight {
    /// Whether it was sent as data: trimmed packets are of the other class.
    pub(super) fn is_data(&self) -> bool {
        self.header.class == Class::Data || self.header.trimmed
    }
}

/// All packets on their way. Their memory is used again, the last first.
#[derive(Clone, Debug, Default)]
pub struct Flights {
    pub(super) flying: Vec<InFlight>,
    free: Vec<u32>,
}

impl Flights {
    /// A new packet from host `source`, which leaves it by `port`.
    pub(super) fn make(&mut self, source: u32, port: u32, header: PacketHeader) -> u32 {
        let flying = InFlight { header, source, port, route: NO_ROUTE };
        if let Some(packet) = self.free.pop() {
            self.flying[packet as usize] = flying;
            return packet;
        }
        self.flying.push(flying);
        // Four thousand million packets do not fit into memory.
        (self.flying.len() - 1) as u32
    }

    /// A copy of a packet.
    pub(super) fn copy(&mut self, packet: u32) -> u32 {
        let InFlight { header, source, port, .. } = self.flying[packet as usize];
        self.make(source, port, header)
    }

    /// The packet is gone.
    pub(super) fn free(&mut self, packet: u32) {
        self.free.push(packet);
    }

    /// The header of a packet that is on its way, or arrived and was not taken.
    #[must_use]
    pub fn header(&self, packet: u32) -> &PacketHeader {
        &self.flying[packet as usize].header
    }

    /// Takes header and source of a packet out of the network; they stay readable until the next one is made.
    pub(super) fn take(&mut self, packet: u32) -> (&PacketHeader, u32) {
        self.free.push(packet);
        let flying = &self.flying[packet as usize];
        (&flying.header, flying.source)
    }

    /// Forgets the routes that were found out ahead.
    pub(super) fn forget_routes(&mut self) {
        self.flying.iter_mut().for_each(|flying| flying.route = NO_ROUTE);
    }

    /// Packets on their way.
    pub(super) fn len(&self) -> usize {
        self.flying.len() - self.free.len()
    }

    /// Data packets on their way, trimmed ones too.
    #[must_use]
    pub fn data(&self) -> u64 {
        let all = self.flying.iter().filter(|flying| flying.is_data()).count();
        let gone = |&&packet: &&u32| self.flying[packet as usize].is_data();
        (all - self.free.iter().filter(gone).count()) as u64
    }
}
