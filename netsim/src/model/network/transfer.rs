//! Transfers between the parts of a network that is simulated in parts.

use super::{Event, Network};
use crate::Picos;
use crate::model::{PacketHeader, PacketOptions};
use crate::topology::Node;

/// A packet or a pause frame that goes from one part of a network to another.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Transfer {
    /// Time at which the packet or pause frame arrives at the part that takes it over.
    pub at: Picos,
    /// Port by which the packet left, or which the pause frame stops.
    pub port: u32,
    /// The packet or pause frame that is transferred.
    pub(super) what: TransferKind,
}

impl Transfer {
    /// Returns the packet, unless this is a pause frame.
    #[must_use]
    pub const fn packet(&self) -> Option<u32> {
        match self.what {
            TransferKind::Packet(packet) => Some(packet),
            TransferKind::Pause { .. } => None,
        }
    }
}

/// The content of a [`Transfer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TransferKind {
    /// A packet, by its number in the part of the network that it leaves.
    Packet(u32),
    /// A PFC pause frame, which stops a lane or lets it resume.
    Pause { lane: u8, stop: bool },
}

/// The border of a part of a network: packets and pause frames leave and enter the part here.
#[derive(Debug)]
pub struct Border<'a>(pub &'a mut Network);

impl Border<'_> {
    /// Moves what left for other parts since the last call into `transfers`; see
    /// [`Border::hand_over`].
    pub fn drain(&mut self, transfers: &mut Vec<Transfer>) {
        transfers.append(&mut self.0.transfers);
    }

    /// Removes a packet that left for another part. Returns its header, the host that sent it and
    /// its options.
    pub fn hand_over(&mut self, packet: u32) -> (PacketHeader, u32, Option<PacketOptions>) {
        let options = self.0.options(packet).copied();
        let (&header, source) = self.0.flights.take(packet);
        (header, source, options)
    }

    /// Returns the switch to which a packet or pause frame is handed over.
    #[must_use]
    pub fn destination(&self, what: &Transfer) -> Node {
        let topology = self.0.switches.topology();
        match what.what {
            TransferKind::Packet(_) => topology.to(what.port),
            TransferKind::Pause { .. } => topology.from(what.port),
        }
    }

    /// Accepts a packet that another part handed over. Returns its number in this part.
    pub fn accept_packet(
        &mut self,
        what: &Transfer,
        header: PacketHeader,
        source: u32,
        options: Option<&PacketOptions>,
    ) -> u32 {
        let packet = self.0.make(source, what.port, header, options);
        self.0.arrive(what.port, packet, what.at);
        packet
    }

    /// Accepts a pause frame of another part. Transfers of other kinds are ignored.
    pub fn apply_pause(&mut self, what: &Transfer) {
        let Transfer { at, port, what } = *what;
        if let TransferKind::Pause { lane, stop } = what {
            self.0.push(at, Event::Pause { port, lane, stop }, port);
        }
    }
}
