//! What packets carry from end to end.

use super::roce::{RoceKind, RocePacket};
use crate::Picos;
use squall_cc::Hops;
use squall_reliability::ControlPacket;

/// What the ends read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body {
    /// Data of this project's transport.
    Data {
        /// Its delivery header.
        pds: squall_wire::Request,
        /// The flow, by index.
        flow: u32,
        /// Payload bytes.
        payload: u32,
        /// UDP payload length when it was sent.
        bytes: u32,
    },
    /// Anything else of this project's transport.
    Control(ControlPacket),
    /// A rate packet of this project's transport: it is in the options of the packet.
    Rates,
    /// A packet of the baseline.
    Roce(RocePacket),
}

impl Body {
    /// The flow whose data it carries.
    pub(super) const fn flow(&self) -> Option<u32> {
        match self {
            Self::Data { flow, .. }
            | Self::Roce(RocePacket { flow, kind: RoceKind::Data { .. }, .. }) => Some(*flow),
            Self::Control(_) | Self::Rates | Self::Roce(_) => None,
        }
    }

    /// Whether it carries data.
    pub(super) const fn is_data(&self) -> bool {
        matches!(
            self,
            Self::Data { .. } | Self::Roce(RocePacket { kind: RoceKind::Data { .. }, .. })
        )
    }
}

/// All that a packet carries.
#[derive(Debug)]
pub(super) struct Whole {
    body: Body,
    echo: Option<Box<Hops>>,
    sent: Option<Picos>,
}

/// What each packet on its way carries, by its number in the network.
#[derive(Debug, Default)]
pub(super) struct Bodies {
    bodies: Vec<Body>,
    /// What acknowledgements send back of switches' records; empty where nobody wants it.
    echoes: Vec<Hops>,
    /// When each was sent; empty where nobody asks.
    sent: Vec<Picos>,
}

impl Bodies {
    /// A new packet carries this.
    pub(super) fn put(&mut self, packet: u32, body: Body) {
        match self.bodies.get_mut(packet as usize) {
            Some(place) => *place = body,
            // The network counts them without gaps.
            None => self.bodies.push(body),
        }
    }

    /// A new packet sends this back. Once one did, each must say what it does.
    pub(super) fn put_echo(&mut self, packet: u32, echo: Hops) {
        let packet = packet as usize;
        if self.echoes.len() <= packet {
            self.echoes.resize(packet + 1, Hops::default());
        }
        self.echoes[packet] = echo;
    }

    /// A new packet was sent at `at`. Once one was, each must say when.
    pub(super) fn put_sent(&mut self, packet: u32, at: Picos) {
        let packet = packet as usize;
        if self.sent.len() <= packet {
            self.sent.resize(packet + 1, Picos::ZERO);
        }
        self.sent[packet] = at;
    }

    /// When a packet was sent, if that was said.
    pub(super) fn sent(&self, packet: u32) -> Option<Picos> {
        self.sent.get(packet as usize).copied()
    }

    /// Packet `to`, a new one, is as `from` but for its body.
    pub(super) fn copy_rest(&mut self, from: u32, to: u32) {
        if let Some(&echo) = self.echoes.get(from as usize) {
            self.put_echo(to, echo);
        }
        if let Some(at) = self.sent(from) {
            self.put_sent(to, at);
        }
    }

    /// All that a packet carries.
    pub(super) fn whole(&self, packet: u32) -> Whole {
        let echo = self.echoes.get(packet as usize).map(|echo| Box::new(*echo));
        Whole { body: *self.of(packet), echo, sent: self.sent(packet) }
    }

    /// A new packet carries all this.
    pub(super) fn put_whole(&mut self, packet: u32, whole: Whole) {
        let Whole { body, echo, sent } = whole;
        self.put(packet, body);
        if let Some(echo) = echo {
            self.put_echo(packet, *echo);
        }
        if let Some(at) = sent {
            self.put_sent(packet, at);
        }
    }

    /// What a packet sends back.
    pub(super) fn echo(&self, packet: u32) -> &Hops {
        self.echoes.get(packet as usize).unwrap_or_default()
    }

    /// What a packet carries.
    pub(super) fn of(&self, packet: u32) -> &Body {
        &self.bodies[packet as usize]
    }
}
