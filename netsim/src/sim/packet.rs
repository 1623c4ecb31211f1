//! Contents of packets, which only the hosts read.

use super::roce::{RoceKind, RocePacket};
use crate::Picos;
use squall_cc::Hops;
use squall_reliability::ControlPacket;

/// Body of a packet, which only its source and destination read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body {
    /// A data packet of this project's transport.
    Data {
        /// Delivery header (PDS) of the packet.
        pds: squall_wire::Request,
        /// Index of the flow that the packet belongs to.
        flow: u32,
        /// Payload bytes of the packet.
        payload: u32,
        /// UDP payload bytes of the packet when it was sent, before a switch may have trimmed it.
        bytes: u32,
    },
    /// Any packet of this project's transport that carries no data, such as an acknowledgement.
    Control(ControlPacket),
    /// A rate packet of this project's transport; the options of the packet hold it.
    Rates,
    /// A packet of the RoCEv2 baseline.
    Roce(RocePacket),
}

impl Body {
    /// Returns the flow whose data the packet carries.
    pub(super) const fn flow(&self) -> Option<u32> {
        match self {
            Self::Data { flow, .. }
            | Self::Roce(RocePacket { flow, kind: RoceKind::Data { .. }, .. }) => Some(*flow),
            Self::Control(_) | Self::Rates | Self::Roce(_) => None,
        }
    }

    /// Returns whether the packet carries data.
    pub(super) const fn is_data(&self) -> bool {
        matches!(
            self,
            Self::Data { .. } | Self::Roce(RocePacket { kind: RoceKind::Data { .. }, .. })
        )
    }
}

/// Everything that a packet carries, to be moved to another part of the simulation.
#[derive(Debug)]
pub(super) struct Whole {
    body: Body,
    echo: Option<Box<Hops>>,
    sent: Option<Picos>,
}

/// Contents of the packets in flight, by their numbers in the network.
#[derive(Debug, Default)]
pub(super) struct Bodies {
    bodies: Vec<Body>,
    /// Telemetry that acknowledgements carry back to the sender; empty if congestion control does
    /// not use it.
    echoes: Vec<Hops>,
    /// Time at which each packet was sent; empty if it is not recorded.
    sent: Vec<Picos>,
}

impl Bodies {
    /// Sets the body of a new packet.
    pub(super) fn put(&mut self, packet: u32, body: Body) {
        match self.bodies.get_mut(packet as usize) {
            Some(place) => *place = body,
            // Packet numbers have no gaps, so a new number is the next one.
            None => self.bodies.push(body),
        }
    }

    /// Sets the telemetry that a new packet carries back. Once this was called for one packet, it
    /// must be called for every packet, because numbers are reused.
    pub(super) fn put_echo(&mut self, packet: u32, echo: Hops) {
        let packet = packet as usize;
        if self.echoes.len() <= packet {
            self.echoes.resize(packet + 1, Hops::default());
        }
        self.echoes[packet] = echo;
    }

    /// Sets the time at which a new packet was sent. Once this was called for one packet, it must
    /// be called for every packet, because numbers are reused.
    pub(super) fn put_sent(&mut self, packet: u32, at: Picos) {
        let packet = packet as usize;
        if self.sent.len() <= packet {
            self.sent.resize(packet + 1, Picos::ZERO);
        }
        self.sent[packet] = at;
    }

    /// Returns the time at which a packet was sent, if it was recorded.
    pub(super) fn sent(&self, packet: u32) -> Option<Picos> {
        self.sent.get(packet as usize).copied()
    }

    /// Copies everything but the body from packet `from` to the new packet `to`.
    pub(super) fn copy_rest(&mut self, from: u32, to: u32) {
        if let Some(&echo) = self.echoes.get(from as usize) {
            self.put_echo(to, echo);
        }
        if let Some(at) = self.sent(from) {
            self.put_sent(to, at);
        }
    }

    /// Returns the complete contents of a packet.
    pub(super) fn whole(&self, packet: u32) -> Whole {
        let echo = self.echoes.get(packet as usize).map(|echo| Box::new(*echo));
        Whole { body: *self.of(packet), echo, sent: self.sent(packet) }
    }

    /// Sets the complete contents of a new packet.
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

    /// Returns the telemetry that a packet carries back.
    pub(super) fn echo(&self, packet: u32) -> &Hops {
        self.echoes.get(packet as usize).unwrap_or_default()
    }

    /// Returns the body of a packet.
    pub(super) fn of(&self, packet: u32) -> &Body {
        &self.bodies[packet as usize]
    }
}
