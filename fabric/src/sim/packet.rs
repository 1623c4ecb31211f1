//! Packets in flight: what switches read and what the ends read, in two pools side by side.

use super::roce::{RoceKind, RocePacket};
use crate::model::Head;
use crate::reliability::ControlPacket;
use crate::wire;

/// What the ends read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body {
    /// Data of this project's transport.
    Data {
        /// Its delivery header.
        pds: wire::Request,
        /// The flow, by index.
        flow: u32,
        /// Payload bytes.
        payload: u32,
        /// UDP payload length when it was sent.
        bytes: u32,
    },
    /// Anything else of this project's transport.
    Control(ControlPacket),
    /// A packet of the baseline.
    Roce(RocePacket),
}

impl Body {
    /// Whether it carries data.
    pub(super) const fn is_data(&self) -> bool {
        matches!(
            self,
            Self::Data { .. } | Self::Roce(RocePacket { kind: RoceKind::Data { .. }, .. })
        )
    }
}

/// A packet as the network sees it.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(super) struct InFlight {
    pub(super) head: Head,
    /// The sending host.
    source: u32,
    /// The port it left by last.
    pub(super) port: u32,
    /// The port it will leave by, if that was found out ahead; else [`NO_WAY`].
    pub(super) way: u32,
}

/// No port.
pub(super) const NO_WAY: u32 = u32::MAX;

/// All packets in flight, by number.
#[derive(Debug, Default)]
pub(super) struct Packets {
    pub(super) flying: Vec<InFlight>,
    bodies: Vec<Body>,
    free: Vec<u32>,
}

impl Packets {
    /// A new packet from host `source`, which left it by `port`.
    pub(super) fn make(&mut self, source: u32, port: u32, head: Head, body: Body) -> u32 {
        let flying = InFlight { head, source, port, way: NO_WAY };
        if let Some(packet) = self.free.pop() {
            let at = packet as usize;
            self.flying[at] = flying;
            self.bodies[at] = body;
            return packet;
        }
        self.flying.push(flying);
        self.bodies.push(body);
        // Four thousand million packets do not fit into memory.
        (self.flying.len() - 1) as u32
    }

    /// The packet is gone.
    pub(super) fn free(&mut self, packet: u32) {
        self.free.push(packet);
    }

    /// Takes the packet out of the network: its head, source and body. They stay readable until the next
    /// one is made.
    pub(super) fn take(&mut self, packet: u32) -> (&Head, u32, &Body) {
        let at = packet as usize;
        self.free.push(packet);
        (&self.flying[at].head, self.flying[at].source, &self.bodies[at])
    }

    pub(super) fn body(&self, packet: u32) -> &Body {
        &self.bodies[packet as usize]
    }

    /// Data packets in flight, trimmed ones too.
    pub(super) fn data_in_flight(&self) -> u64 {
        let data = self.bodies.iter().filter(|body| body.is_data()).count();
        let gone = self.free.iter().filter(|&&packet| self.body(packet).is_data()).count();
        (data - gone) as u64
    }
}
