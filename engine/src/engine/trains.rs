//! Packets that arrive together, and the runs among them.
//!
//! Most of a long message are packets that differ in their numbers alone ([`PacketRun`]). When one was taken, those
//! that follow it in the same train are compared with what they must be, and their bytes put into place, without
//! being read and looked up one by one. Whatever is not as simple (a first packet, a last one, one that asks for an
//! acknowledgement, a hole before it, a message without room) goes the way of a single packet. A message that is in
//! one train from its first packet to its last goes that way as a whole (`whole.rs`).

use core::net::SocketAddr;

use super::packets::{Arriving, PacketMarks};
use super::{Engine, step};
use crate::base::{Time, Train, UserSlice};
use crate::inbox::Filling;
use crate::memory::Memory;
use crate::outbound::Reading;
use crate::reliability::cc::Hops;
use crate::reliability::{Arrival, EndArrival, PdcId, RunArrival, hop_of};
use crate::wire::{Fragment, Opcode, PacketRun, PdsType, Request, Ses, Telemetry, TelemetryKind};

impl Engine {
    /// Packets arrived together, in this order. They are UDP payloads without CRC trailer.
    pub fn handle_train<M: Memory>(
        &mut self,
        now: Time,
        mem: &mut M,
        src: SocketAddr,
        marks: PacketMarks,
        mut train: Train<'_>,
    ) {
        if self.pdcs.is_tardy(now) {
            self.excuse_absence(now);
        }
        while let Some(packet) = train.next() {
            let arrival = Arrival {
                ce: marks.ce,
                trimmed: marks.trimmed,
                last_hop: false,
                bytes: u32::try_from(packet.len()).unwrap_or(u32::MAX),
                // Receivers that count senders go by their silence here.
                ..Arrival::default()
            };
            let arriving = Arriving::new(self, mem, now, src);
            if packet.first().is_some_and(|first| first >> 3 >= Fragment::TYPE) {
                arriving.prefixed(&arrival, packet, &mut train);
            } else {
                arriving.one(&arrival, packet, &mut train);
            }
            self.drain_events(now);
        }
    }

    /// A packet arrived: a UDP payload without CRC trailer.
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

impl<M: Memory> Arriving<'_, M> {
    #[inline]
    fn one(self, arrival: &Arrival, packet: &[u8], train: &mut Train<'_>) {
        if arrival.trimmed {
            self.trimmed(arrival, packet);
        } else {
            self.whole(arrival, packet, train);
        }
    }

    /// Handles a packet of a private type, or one that follows a private header.
    #[cold]
    fn prefixed(mut self, arrival: &Arrival, bytes: &[u8], train: &mut Train<'_>) {
        if Telemetry::is_before(bytes) {
            self.told(arrival, bytes, train);
        } else if Fragment::is_before(bytes) {
            let Ok(fragment) = Fragment::read(bytes) else {
                self.engine.report.counters.rx_malformed += 1;
                return;
            };
            self.fragment = Some((fragment.original, fragment.count));
            self.one(arrival, fragment.packet, train);
        } else {
            self.one(arrival, bytes, train);
        }
    }

    /// Handles a packet that follows telemetry.
    fn told(self, arrival: &Arrival, bytes: &[u8], train: &mut Train<'_>) {
        let read = Telemetry::read(bytes).ok().filter(|read| {
            // Before an acknowledgement it is about another packet, before others about this one.
            let kind = read.packet.first().and_then(|first| PdsType::from_u8(first >> 3));
            let ack = matches!(kind, Some(PdsType::Ack | PdsType::AckCc | PdsType::AckCcx));
            ack == (read.kind == TelemetryKind::Echo)
        });
        let Some(read) = read else {
            self.engine.report.counters.rx_malformed += 1;
            return;
        };
        let hops: Hops = read.records().map(|record| hop_of(&record)).collect();
        // As long as it left its sender.
        let len = read.packet.len() + Telemetry::LEN;
        let arrival = Arrival { bytes: u32::try_from(len).unwrap_or(u32::MAX), ..*arrival };
        let Self { engine, mem, now, src, .. } = self;
        let arriving = Arriving { engine, mem, now, src, telemetry: &hops, fragment: None };
        if Fragment::is_before(read.packet) {
            arriving.prefixed(&arrival, read.packet, train);
        } else {
            arriving.one(&arrival, read.packet, train);
        }
    }
}

/// Where the bytes of a run go.
enum Place {
    Message(Filling),
    Region(UserSlice),
    Read(Reading),
}

impl<M: Memory> Arriving<'_, M> {
    /// Takes the packets of `train` that follow, in a run, the one with these headers and `payload` bytes, which
    /// was taken.
    pub(super) fn follow(
        &mut self,
        id: PdcId,
        (pds, ses): (&Request, &Ses),
        (headers, payload): (&[u8], usize),
        arrival: &Arrival,
        train: &mut Train<'_>,
    ) {
        let Some(mut run) = PacketRun::after(headers, pds, payload) else { return };
        let (psn, offset) = (run.psn(), u64::from(run.offset()));
        let most = u16::try_from(run.max_packets()).unwrap_or(u16::MAX);
        let (mut rest, mut alike) = (*train, 0);
        while alike < most && rest.peek().is_some_and(|packet| run.is_next(packet)) {
            rest.next();
            run.advance();
            alike += 1;
        }
        // A write's end is more than its bytes.
        let message = matches!(ses, Ses::Std(request) if request.opcode != Opcode::Write);
        let end = rest.peek().filter(|_| message).and_then(|last| {
            let (ask, bytes) = (run.ends_with(last)?, u32::try_from(last.len()).ok()?);
            Some(EndArrival { bytes, ask })
        });
        let count = alike + u16::from(end.is_some());
        if count == 0 {
            return;
        }
        let last = end.map_or(0, |end| u64::from(end.bytes) - headers.len() as u64);
        let len = u64::from(alike) * payload as u64 + last;
        let Some(place) = self.place_of_run(id, ses, (offset, len)) else { return };
        let arrived = RunArrival { first: psn, count: alike, end };
        if !self.engine.pdcs.runs(id).accept(self.now, arrived, arrival) {
            return;
        }
        let payloads =
            train.by_ref().take(usize::from(count)).map(|packet| &packet[headers.len()..]);
        let mut step = step!(self.engine, self.now);
        step.report.counters.rx_run_packets += u64::from(count);
        match place {
            Place::Message(filling) => {
                filling.take(&mut self.engine.inbox, &mut step, self.mem, offset, payloads);
            }
            Place::Read(reading) => {
                reading.take(&mut self.engine.outbound, &mut step, self.mem, offset, payloads);
            }
            Place::Region(piece) => {
                for (n, bytes) in (0..).zip(payloads) {
                    self.mem.write(piece.part(n * payload as u64, payload as u64), bytes);
                }
                step.report.counters.rx_payload_bytes += len;
            }
        }
    }

    /// Where the bytes of a run go, if there is nothing to it but to put them there.
    fn place_of_run(&mut self, id: PdcId, ses: &Ses, range: (u64, u64)) -> Option<Place> {
        let mut step = step!(self.engine, self.now);
        match ses {
            Ses::Std(request) if request.opcode == Opcode::Write => {
                self.engine.target.piece(self.mem, request, range).map(Place::Region)
            }
            Ses::Std(request) => {
                let message = (id, request.message_id);
                Filling::of(&mut self.engine.inbox, &mut step, message, range).map(Place::Message)
            }
            Ses::ResponseData(header) => {
                let slot = (id, header.read_request_message_id);
                Reading::of(&mut self.engine.outbound, &step, slot, range).map(Place::Read)
            }
            _ => None,
        }
    }
}
