//! What packets carry from end to end.

use super::roce::{RoceKind, RocePacket};
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

/// What each packet on its way carries, by its number in the network.
#[derive(Debug, Default)]
pub(super) struct Bodies(Vec<Body>);

impl Bodies {
    /// A new packet carries this.
    pub(super) fn put(&mut self, packet: u32, body: Body) {
        match self.0.get_mut(packet as usize) {
            Some(place) => *place = body,
            // The network counts them without gaps.
            None => self.0.push(body),
        }
    }

    /// What a packet carries.
    pub(super) fn of(&self, packet: u32) -> &Body {
        &self.0[packet as usize]
    }
}
