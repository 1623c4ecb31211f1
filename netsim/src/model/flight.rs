//! Packets in flight, by number, as far as switches read them. The driver keeps their contents by
//! the same numbers.

use super::header::{Class, PacketHeader};

/// A packet in flight: its header, the host that sent it, and its ports.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(super) struct InFlight {
    pub(super) header: PacketHeader,
    /// Number of the host that sent the packet.
    source: u32,
    /// Port by which the packet left last. At a switch with a program it includes the lanes: see
    /// [`super::lane`].
    pub(super) port: u32,
    /// Port by which the packet will leave, if it was computed in advance; else [`NO_ROUTE`].
    pub(super) route: u32,
}

/// Marks a packet whose next port was not computed in advance.
pub(super) const NO_ROUTE: u32 = u32::MAX;

impl InFlight {
    /// Returns whether the packet was sent as data. Trimmed packets are of the control class.
    pub(super) fn is_data(&self) -> bool {
        self.header.class == Class::Data || self.header.trimmed
    }
}

/// All packets in flight, by their numbers. A new packet gets the number that became free last.
#[derive(Clone, Debug, Default)]
pub struct Flights {
    pub(super) flying: Vec<InFlight>,
    free: Vec<u32>,
}

impl Flights {
    /// Adds a new packet from host `source`, which leaves it by `port`. Returns its number.
    pub(super) fn make(&mut self, source: u32, port: u32, header: PacketHeader) -> u32 {
        let flying = InFlight { header, source, port, route: NO_ROUTE };
        if let Some(packet) = self.free.pop() {
            self.flying[packet as usize] = flying;
            return packet;
        }
        self.flying.push(flying);
        // The number fits: 2^32 packets exceed the memory.
        (self.flying.len() - 1) as u32
    }

    /// Adds a copy of a packet. Returns its number.
    pub(super) fn copy(&mut self, packet: u32) -> u32 {
        let InFlight { header, source, port, .. } = self.flying[packet as usize];
        self.make(source, port, header)
    }

    /// Frees the number of a packet, so that another packet can get it.
    pub(super) fn free(&mut self, packet: u32) {
        self.free.push(packet);
    }

    /// Returns the header of a packet that is in flight, or that arrived and has not been removed
    /// yet.
    #[must_use]
    pub fn header(&self, packet: u32) -> &PacketHeader {
        &self.flying[packet as usize].header
    }

    /// Removes a packet from the network, and returns its header and source host. They stay
    /// readable until the next packet is made.
    pub(super) fn take(&mut self, packet: u32) -> (&PacketHeader, u32) {
        self.free.push(packet);
        let flying = &self.flying[packet as usize];
        (&flying.header, flying.source)
    }

    /// Discards the routes of all packets that were computed in advance, because routing has
    /// changed.
    pub(super) fn forget_routes(&mut self) {
        self.flying.iter_mut().for_each(|flying| flying.route = NO_ROUTE);
    }

    /// Returns the number of packets in flight.
    pub(super) fn len(&self) -> usize {
        self.flying.len() - self.free.len()
    }

    /// Returns the number of data packets in flight, trimmed ones too.
    #[must_use]
    pub fn data(&self) -> u64 {
        let all = self.flying.iter().filter(|flying| flying.is_data()).count();
        let gone = |&&packet: &&u32| self.flying[packet as usize].is_data();
        (all - self.free.iter().filter(gone).count()) as u64
    }
}
