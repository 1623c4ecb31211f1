//! What goes from one part of a network to another, where a network is taken apart.

use super::{Event, Network, NetworkConfig, Wheel};
use crate::Picos;
use crate::model::{Head, Note, Partition};
use crate::topology::{Node, Topology};

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

impl Network {
    /// The same, but only what is of one part of it happens here.
    ///
    /// # Errors
    /// As [`Network::new`].
    pub fn part(
        topology: Topology,
        config: NetworkConfig,
        tick: Picos,
        (partition, part): (&Partition, u32),
    ) -> Result<Self, String> {
        let mut network = Self::new(topology, config, tick)?;
        if partition.parts() > 1 {
            network.switches.confine(|node| partition.of(node) == part);
            network.silent = part > 0;
            // Timers of the programs were set.
            network.wheel = Wheel::new(tick.0.max(1).ilog2());
            let config = network.switches.config().clone();
            network.program(|switch| {
                let ours = partition.of(Node::Switch(switch)) == part;
                ours.then(|| config.program(switch)).flatten()
            });
        }
        Ok(network)
    }

    /// What left for other parts since this was asked last; see [`Network::hand_over`].
    pub fn drain_handed(&mut self, handed: &mut Vec<Handed>) {
        handed.append(&mut self.handed);
    }

    /// A packet that is on its way to another part is there from now on: its head and the host that sent it. What
    /// programs wrote stays readable until the next one is made.
    pub fn hand_over(&mut self, packet: u32) -> (Head, u32) {
        let (&head, source) = self.flights.take(packet);
        (head, source)
    }

    /// The switch to which something is handed over.
    #[must_use]
    pub fn destination(&self, what: &Handed) -> Node {
        match what.what {
            Crossing::Packet(_) => self.switches.topology().to(what.port),
            Crossing::Pause { .. } => self.switches.topology().from(what.port),
        }
    }

    /// A packet comes from another part: its head, the host that sent it and what programs wrote into it. Its number here.
    pub fn come(&mut self, what: &Handed, head: Head, source: u32, note: Option<&Note>) -> u32 {
        let packet = self.make(source, what.port, head, note);
        self.arrive(what.port, packet, what.at);
        packet
    }

    /// A pause frame comes from another part; nothing happens if it is something else.
    pub fn obey(&mut self, what: &Handed) {
        if let Crossing::Pause { lane, stop } = what.what {
            self.push(what.at, Event::Pause { port: what.port, lane, stop }, what.port);
        }
    }
}
