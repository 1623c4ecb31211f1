//! Arriving packets. A data packet takes four steps, whether it comes alone, with the packets of its
//! train that continue it, or as a whole message:
//!
//! 1. `parse` reads and checks its headers, and finds the packets behind it that continue it.
//! 2. `classify` finds the sender and the context, and the transport says whether the packet is new.
//! 3. `place` hands the content to the part of the engine that it is for, which matches it and puts
//!    the payload into place.
//! 4. `conclude` reports to the transport what became of it.
//!
//! The headers of most messages that one packet carries are as those of the message before on the
//! same context predict. Then they are compared instead of parsed (`predict`), and all else is the same.
//!
//! Packets without data end with the second step. Packets that are not usual take the same steps
//! beside this path: those behind a private header (`prefixes`), those that a switch trimmed
//! (`trimmed`), handshakes (`handshakes`), and all packets on the wire of another implementation
//! (`foreign`).

mod classify;
mod conclude;
pub(super) mod foreign;
mod handshakes;
mod parse;
mod place;
mod predict;
mod prefixes;
mod requests;
#[cfg(test)]
mod tests;
mod trimmed;

use core::net::SocketAddr;

use super::Engine;
use crate::base::{Time, Train};
use crate::memory::Memory;
use crate::reliability::{Arrival, cc};
use crate::wire::{self, Packet};
pub(super) use classify::is_addressed_to_us;
use parse::DataPacket;

/// Marks that the network put on a packet, besides its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketMarks {
    /// A switch marked the packet Congestion Experienced (ECN).
    pub ce: bool,
    /// A switch removed the packet's payload, which the receiver knows from the DSCP.
    pub trimmed: bool,
}

/// State for processing one received packet or shared-memory record: the engine, the time, and the
/// source address.
pub(super) struct PacketReceiver<'a, M> {
    pub(super) engine: &'a mut Engine,
    pub(super) mem: &'a mut M,
    pub(super) now: Time,
    pub(super) src: SocketAddr,
}

impl Engine {
    /// Handles packets that arrived together, in this order. They are UDP payloads without CRC
    /// trailer.
    pub fn handle_train<M: Memory>(
        &mut self,
        now: Time,
        mem: &mut M,
        src: SocketAddr,
        marks: PacketMarks,
        mut train: Train<'_>,
    ) {
        if self.pdcs.is_overdue(now) {
            self.exclude_absence(now);
        }
        let unusual = marks.trimmed || self.config.wire.is_some();
        while let Some(packet) = train.next() {
            let arrival = Arrival {
                ce: marks.ce,
                trimmed: marks.trimmed,
                last_hop: false,
                bytes: u32::try_from(packet.len()).unwrap_or(u32::MAX),
                // Receivers that count senders infer the end of a sender from its silence here.
                ..Arrival::default()
            };
            let mut receiver = PacketReceiver { engine: self, mem, now, src };
            if unusual || prefixes::is_prefixed(packet) {
                receiver.handle_unusual(&arrival, packet);
            } else {
                receiver.handle_packet(&arrival, packet, &mut train);
            }
            self.drain_events(now);
        }
    }

    /// Handles one received packet: a UDP payload without CRC trailer.
    pub fn handle_packet<M: Memory>(
        &mut self,
        now: Time,
        mem: &mut M,
        src: SocketAddr,
        marks: PacketMarks,
        bytes: &[u8],
    ) {
        self.handle_train(now, mem, src, marks, Train::single(bytes));
    }
}

impl<M: Memory> PacketReceiver<'_, M> {
    /// Handles a packet, and the packets behind it in `train` that continue it.
    #[inline]
    fn handle_packet(&mut self, arrival: &Arrival, bytes: &[u8], train: &mut Train<'_>) {
        let (packet, context) = match self.predict(bytes) {
            Some((packet, context)) => (Ok(packet), Some(context)),
            None => (wire::parse(bytes), None),
        };
        let packet = match packet {
            Ok(Packet::Request { pds, ses, payload }) => {
                let data = DataPacket::new(&pds, &ses, bytes, payload);
                let origin = match context {
                    Some(context) => context.into(),
                    None => match self.find_origin(&data) {
                        Some(origin) => origin,
                        None => return,
                    },
                };
                let Some((peer, delivery)) = self.classify(origin, &data, arrival) else { return };
                if context.is_none() {
                    self.keep_template(&delivery, &data);
                }
                if self.engine.pdcs.has_fragments() {
                    return self.receive_beside_fragments(peer, None, &data, delivery);
                }
                let placed = self.place(peer, &delivery, &data, train);
                return self.conclude(delivery, &placed, arrival);
            }
            packet => packet,
        };
        self.handle_packet_without_data(packet, cc::Hops::NONE);
    }

    /// Handles a packet of a peer of another implementation, or a packet behind private headers.
    #[cold]
    fn handle_unusual(&mut self, arrival: &Arrival, bytes: &[u8]) {
        if self.engine.config.wire.is_some() {
            self.handle_foreign(arrival, bytes);
        } else {
            self.handle_prefixed(arrival, bytes);
        }
    }
}
