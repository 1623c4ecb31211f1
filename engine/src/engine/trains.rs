//! Packets that arrive together in a GRO train, and the packet runs among them.
//!
//! Most packets of a long message form a packet run ([`PacketRun`]). After one of them was taken, those that follow it in the same train are compared with their expected headers, and
//! their payload is put into place, without parsing and looking up each. Packets that are not that
//! simple (a first packet, a last one, one that requests an acknowledgement, one behind a gap, a
//! message without room) are handled one by one. A message that is in one train from its first
//! packet to its last is taken as if it had come in one packet. [`PacketReceiver::process_delivered`]
//! decides.

use core::net::SocketAddr;

use super::packets::{DeliveredPacket, PacketMarks, PacketReceiver, conclude_delivery};
use super::{Engine, step};
use crate::base::{Psn, Time, Train, UserSlice};
use crate::channel::ChannelId;
use crate::inbox::RunMessage;
use crate::memory::Memory;
use crate::operation::PeerId;
use crate::outbound::RunRead;
use crate::packet_outcome::PacketOutcome;
use crate::reliability::cc::Hops;
use crate::reliability::{Arrival, Delivery, EndArrival, PdcId, RunArrival, hop_of};
use crate::wire::{
    Fragment, Opcode, PacketRun, PdsType, Request, Ses, StdRequest, Telemetry, TelemetryKind,
};

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
        let is_foreign = self.config.wire.is_some();
        while let Some(packet) = train.next() {
            let arrival = Arrival {
                ce: marks.ce,
                trimmed: marks.trimmed,
                last_hop: false,
                bytes: u32::try_from(packet.len()).unwrap_or(u32::MAX),
                // Receivers that count senders infer the end of a sender from its silence here.
                ..Arrival::default()
            };
            let arriving = PacketReceiver::new(self, mem, now, src);
            if is_foreign {
                arriving.handle_foreign(&arrival, packet);
            } else if packet.first().is_some_and(|first| first >> 3 >= Fragment::TYPE) {
                arriving.handle_prefixed(&arrival, packet, &mut train);
            } else {
                arriving.handle_one(&arrival, packet, &mut train);
            }
            self.drain_events(now);
        }
    }

    /// Handles a packet: a UDP payload without CRC trailer.
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
    #[inline]
    fn handle_one(self, arrival: &Arrival, packet: &[u8], train: &mut Train<'_>) {
        if arrival.trimmed {
            self.handle_trimmed(arrival, packet);
        } else {
            self.handle_untrimmed(arrival, packet, train);
        }
    }

    /// Handles a packet of a private type, or one that follows a private header.
    #[cold]
    fn handle_prefixed(mut self, arrival: &Arrival, bytes: &[u8], train: &mut Train<'_>) {
        if Telemetry::is_before(bytes) {
            self.handle_with_telemetry(arrival, bytes, train);
        } else if Fragment::is_before(bytes) {
            let Ok(fragment) = Fragment::read(bytes) else {
                self.engine.report.counters.rx_malformed += 1;
                return;
            };
            self.fragment = Some((fragment.original, fragment.count));
            self.handle_one(arrival, fragment.packet, train);
        } else {
            self.handle_one(arrival, bytes, train);
        }
    }

    /// Handles a packet that follows telemetry.
    fn handle_with_telemetry(self, arrival: &Arrival, bytes: &[u8], train: &mut Train<'_>) {
        let read = Telemetry::read(bytes).ok().filter(|read| {
            // Telemetry before an acknowledgement describes the acknowledged packet; before other
            // packets it describes the packet itself.
            let kind = read.packet.first().and_then(|first| PdsType::from_u8(first >> 3));
            let ack = matches!(kind, Some(PdsType::Ack | PdsType::AckCc | PdsType::AckCcx));
            ack == (read.kind == TelemetryKind::Echo)
        });
        let Some(read) = read else {
            self.engine.report.counters.rx_malformed += 1;
            return;
        };
        let hops: Hops = read.records().map(|record| hop_of(&record)).collect();
        // Congestion control counts the length with which the packet left its sender.
        let len = read.packet.len() + Telemetry::LEN;
        let arrival = Arrival { bytes: u32::try_from(len).unwrap_or(u32::MAX), ..*arrival };
        let Self { engine, mem, now, src, .. } = self;
        let arriving = PacketReceiver { engine, mem, now, src, telemetry: &hops, fragment: None };
        if Fragment::is_before(read.packet) {
            arriving.handle_prefixed(&arrival, read.packet, train);
        } else {
            arriving.handle_one(&arrival, read.packet, train);
        }
    }
}

/// The packets of a train that follow the first packet of a message, to the end of the message.
struct MessageTail<'a> {
    packets: Train<'a>,
    count: u16,
    /// Bytes of each packet's headers.
    headers: usize,
    /// PSN of the first packet.
    psn: Psn,
    /// The last packet. All others are as long as the first packet of the message.
    end: EndArrival,
}

impl<'a> MessageTail<'a> {
    /// Returns the packets of `train` that follow a message's first packet with these headers and
    /// `payload` bytes, if they complete the message.
    #[inline]
    fn find(
        (pds, request): (&Request, &StdRequest),
        (headers, payload): (&[u8], usize),
        train: &Train<'a>,
    ) -> Option<Self> {
        if !request.som || request.eom || request.opcode == Opcode::Write || payload == 0 {
            return None;
        }
        let left = (request.request_length as usize).checked_sub(payload)?;
        let count = left.div_ceil(payload);
        if count > train.count() {
            return None;
        }
        let mut run = PacketRun::after(headers, pds, payload)?;
        let (mut packets, psn) = (*train, run.psn());
        if count > run.max_packets() as usize + 1 {
            return None;
        }
        for _ in 1..count {
            if !run.is_next(packets.next()?) {
                return None;
            }
            run.advance();
        }
        let last = packets.next()?;
        Some(Self {
            packets: *train,
            // This is one more than the longest run, whose length fits into 16 bits.
            count: u16::try_from(count).ok()?,
            headers: run.headers_len(),
            psn,
            end: EndArrival { bytes: u32::try_from(last.len()).ok()?, ask: run.ends_with(last)? },
        })
    }

    /// Returns the payloads in order.
    fn payloads(&self) -> impl Iterator<Item = &'a [u8]> {
        let headers = self.headers;
        self.packets.take(self.count.into()).map(move |packet| &packet[headers..])
    }
}

/// The destination of the bytes of a run.
enum RunTarget {
    Message(RunMessage),
    Region(UserSlice),
    Read(RunRead),
}

impl<M: Memory> PacketReceiver<'_, M> {
    /// Takes a packet that the transport delivered, and the packets behind it in `train` that
    /// belong to it. Only this function decides how packets of a train are taken: a message that is
    /// in the train from its first packet to its last is taken as a whole; packets that differ only
    /// in their numbers are taken as a run behind the first of them; all others are taken one by
    /// one.
    #[inline(always)]
    pub(super) fn process_delivered(
        &mut self,
        packet: &DeliveredPacket<'_>,
        delivery: Delivery,
        arrival: &Arrival,
        train: &mut Train<'_>,
    ) {
        let &DeliveredPacket { id, peer, pds, ses, headers, payload, forward } = packet;
        let tail = match ses {
            Ses::Std(request) if forward && train.peek().is_some() => {
                self.take_whole((id, peer), (pds, request), (headers, payload), train)
            }
            _ => None,
        };
        let taken = match ses {
            _ if tail.is_some() => PacketOutcome::Yes(None),
            ses => self.deliver((ChannelId::Context(id), peer), forward, (ses, payload)),
        };
        conclude_delivery(&mut step!(self.engine, self.now), delivery, taken);
        if let Some(tail) = tail {
            return self.accept_rest(id, &tail, arrival, train);
        }
        if matches!(taken, PacketOutcome::Yes(None)) && train.peek().is_some() {
            self.take_run(id, (pds, ses), (headers, payload.len()), arrival, train);
        }
    }

    /// Takes a whole message if the packet with these headers and `payload` is its first and new,
    /// all others follow in `train`, and a receive waits for it. Returns the packets that
    /// [`PacketReceiver::accept_rest`] must accept after the first one.
    #[inline]
    fn take_whole<'t>(
        &mut self,
        (id, peer): (PdcId, PeerId),
        (pds, request): (&Request, &StdRequest),
        (headers, payload): (&[u8], &[u8]),
        train: &Train<'t>,
    ) -> Option<MessageTail<'t>> {
        let tail = MessageTail::find((pds, request), (headers, payload.len()), train)?;
        // If the first packet is the next one expected, all packets are new and no other packet can
        // come between them.
        if !self.telemetry.is_empty() || !self.engine.pdcs.run_is_next(id, pds.psn) {
            return None;
        }
        let payloads = core::iter::once(payload).chain(tail.payloads());
        let (mut step, from) = (step!(self.engine, self.now), (ChannelId::Context(id), peer));
        let inbox = &mut self.engine.inbox;
        inbox.take_whole(&mut step, self.mem, from, request, payloads).then_some(tail)
    }

    /// Accepts the packets that [`PacketReceiver::take_whole`] took behind the first one, and skips
    /// them in `train`. The first packet was accepted already; `arrival` describes it and holds for
    /// all.
    fn accept_rest(
        &mut self,
        id: PdcId,
        tail: &MessageTail<'_>,
        arrival: &Arrival,
        train: &mut Train<'_>,
    ) {
        let &MessageTail { psn, count, end, .. } = tail;
        let run = RunArrival { first: psn, count: count - 1, end: Some(end) };
        let accepted = self.engine.pdcs.accept_run(id, self.now, run, arrival);
        debug_assert!(accepted, "the run does not continue the context's PSNs");
        self.engine.report.counters.rx_run_packets += u64::from(count);
        train.nth(usize::from(count) - 1);
    }

    /// Takes the packets of `train` that follow, as a run, the packet with these headers and
    /// `payload` bytes, which was taken already.
    fn take_run(
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
        // The end of a write does more than place bytes, so it is handled as a single packet.
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
        let Some(place) = self.run_target(id, ses, (offset, len)) else { return };
        let arrived = RunArrival { first: psn, count: alike, end };
        if !self.engine.pdcs.accept_run(id, self.now, arrived, arrival) {
            return;
        }
        let payloads =
            train.by_ref().take(usize::from(count)).map(|packet| &packet[headers.len()..]);
        let mut step = step!(self.engine, self.now);
        step.report.counters.rx_run_packets += u64::from(count);
        match place {
            RunTarget::Message(filling) => {
                filling.copy_payloads(
                    &mut self.engine.inbox,
                    &mut step,
                    self.mem,
                    offset,
                    payloads,
                );
            }
            RunTarget::Read(reading) => {
                reading.copy_payloads(
                    &mut self.engine.outbound,
                    &mut step,
                    self.mem,
                    offset,
                    payloads,
                );
            }
            RunTarget::Region(piece) => {
                for (n, bytes) in (0..).zip(payloads) {
                    self.mem.write(piece.part(n * payload as u64, payload as u64), bytes);
                }
                step.report.counters.rx_payload_bytes += len;
            }
        }
    }

    /// Returns where the bytes of a run go, if they only have to be copied there.
    fn run_target(&mut self, id: PdcId, ses: &Ses, range: (u64, u64)) -> Option<RunTarget> {
        let mut step = step!(self.engine, self.now);
        match ses {
            Ses::Std(request) if request.opcode == Opcode::Write => {
                self.engine.target.write_target(self.mem, request, range).map(RunTarget::Region)
            }
            Ses::Std(request) => {
                let message = (id, request.message_id);
                RunMessage::find_run_message(&mut self.engine.inbox, &mut step, message, range)
                    .map(RunTarget::Message)
            }
            Ses::ResponseData(header) => {
                let slot = (id, header.read_request_message_id);
                RunRead::find_run_read(&mut self.engine.outbound, &step, slot, range)
                    .map(RunTarget::Read)
            }
            _ => None,
        }
    }
}
