//! What goes from one part of a network to another, where a network is taken apart.

use super::{Event, Network};
use crate::Picos;
use crate::model::{PacketHeader, PacketOptions};
use crate::topology::Node;

/// What goes from one part of a network to another: when it is there, and by which port.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Handed {
    /// When.
    pub at: Picos,
    /// The port: of a packet, by which it left; of a pause, which is to obey.
    pub port: u32,
    /// What.
    pub(super) what: Crossing,
}

impl Handed {
    /// The packet, if it is one.
    #[must_use]
    pub const fn packet(&self) -> Option<u32> {
        match self.what {
            Crossing::Packet(packet) => Some(packet),
            Crossing::Pause { .. } => None,
        }
    }
}

/// What goes from one part to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Crossing {
    /// A packet of this number, in the part that it leaves.
    Packet(u32),
    /// A pause frame.
    Pause { lane: u8, stop: bool },
}

/// Where a part of a network ends: what leaves it for others, and what comes from them.
#[derive(Debug)]
pub struct Border<'a>(pub &'a mut Network);

impl Border<'_> {
    /// What left for other parts since this was asked last; see [`Border::hand_over`].
    pub fn drain(&mut self, handed: &mut Vec<Handed>) {
        handed.append(&mut self.0.handed);
    }

    /// A packet that left is no more here: its header, the host that sent it and its options.
    pub fn hand_over(&mut self, packet: u32) -> (PacketHeader, u32, Option<PacketOptions>) {
        let options = self.0.options(packet).copied();
        let (&header, source) = self.0.flights.take(packet);
        (header, source, options)
    }

    /// The switch to which something is handed over.
    #[must_use]
    pub fn destination(&self, what: &Handed) -> Node {
        let topology = self.0.switches.topology();
        match what.what {
            Crossing::Packet(_) => topology.to(what.port),
            Crossing::Pause { .. } => topology.from(what.port),
        }
    }

    /// A packet comes from another part, as it was handed over there. Its number here.
    pub fn come(
        &mut self,
        what: &Handed,
        header: PacketHeader,
        source: u32,
        options: Option<&PacketOptions>,
    ) -> u32 {
        let packet = self.0.make(source, what.port, header, options);
        self.0.arrive(what.port, packet, what.at);
        packet
    }

    /// A pause frame comes from another part; nothing happens if it is something else.
    pub fn apply_pause(&mut self, what: &Handed) {
        let Handed { at, port, what } = *what;
        if let Crossing::Pause { lane, stop } = what {
            self.0.push(at, Event::Pause { port, lane, stop }, port);
        }
    }
}
