//! Messages that are in one train from their first packet to their last: they are taken as if they had come in one packet.

use super::packets::Arriving;
use super::step;
use crate::api::PeerId;
use crate::base::{Psn, Train};
use crate::channel::ChannelId;
use crate::memory::Memory;
use crate::reliability::{Arrival, EndArrival, PdcId, RunArrival};
use crate::wire::{Opcode, PacketRun, Request, StdRequest};

/// What of a train follows the first packet of a message, to its end.
pub(super) struct Tail<'a> {
    packets: Train<'a>,
    count: u16,
    /// Bytes of each packet's headers.
    headers: usize,
    /// The number of the first.
    psn: Psn,
    /// The last; the others are as long as the first packet of the message.
    end: EndArrival,
}

impl<'a> Tail<'a> {
    /// What of `train` follows a message's first packet with these headers and `payload` bytes, if that is all there is
    /// of the message.
    #[inline]
    fn of(
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
            // One more than a run has at most, which 16 bits number.
            count: u16::try_from(count).ok()?,
            headers: run.headers_len(),
            psn,
            end: EndArrival { bytes: u32::try_from(last.len()).ok()?, ask: run.ends_with(last)? },
        })
    }

    /// The payloads, in order.
    fn payloads(&self) -> impl Iterator<Item = &'a [u8]> {
        let headers = self.headers;
        self.packets.take(self.count.into()).map(move |packet| &packet[headers..])
    }
}

impl<M: Memory> Arriving<'_, M> {
    /// Takes a message of which a packet with these headers and `payload` is the first and new, if all others follow in
    /// `train`, and a receive waits for it; what [`Arriving::accept_tail`] is to accept once the first packet is.
    #[inline]
    pub(super) fn take_whole<'t>(
        &mut self,
        (id, peer): (PdcId, PeerId),
        (pds, request): (&Request, &StdRequest),
        (headers, payload): (&[u8], &[u8]),
        train: &Train<'t>,
    ) -> Option<Tail<'t>> {
        let tail = Tail::of((pds, request), (headers, payload.len()), train)?;
        // Then all of it is new, and nothing can come in between.
        if !self.telemetry.is_empty() || !self.engine.pdcs.runs(id).go_on_at(pds.psn) {
            return None;
        }
        let payloads = core::iter::once(payload).chain(tail.payloads());
        let (mut step, from) = (step!(self.engine, self.now), (ChannelId::Context(id), peer));
        let inbox = &mut self.engine.inbox;
        inbox.take_whole(&mut step, self.mem, from, request, payloads).then_some(tail)
    }

    /// Accepts what [`Arriving::take_whole`] took besides the first packet, which was accepted and is like `arrival`, and goes
    /// past it in `train`.
    pub(super) fn accept_tail(
        &mut self,
        id: PdcId,
        tail: &Tail<'_>,
        arrival: &Arrival,
        train: &mut Train<'_>,
    ) {
        let &Tail { psn, count, end, .. } = tail;
        let run = RunArrival { first: psn, count: count - 1, end: Some(end) };
        let accepted = self.engine.pdcs.runs(id).accept(self.now, run, arrival);
        debug_assert!(accepted, "the context does not go on where it did");
        self.engine.report.counters.rx_run_packets += u64::from(count);
        train.nth(usize::from(count) - 1);
    }
}
