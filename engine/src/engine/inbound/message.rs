//! Packets of two-sided messages.

use super::super::receive::finish_description;
use super::{Engine, Taken};
use crate::api::{Class, Completion, Notify, OpKind, PeerId};
use crate::base::Time;
use crate::matching::{Envelope, Waiting};
use crate::memory::Memory;
use crate::messages::{Message, Offer, Place, Pull, Target};
use crate::order::Seen;
use crate::reliability::PdcId;
use crate::wire::{Extension, NackCode, StdBody, StdRequest};

/// What keeping a message costs beside its bytes.
const HEADER_COST: u64 = 256;

/// A packet's place in its message.
#[derive(Clone, Copy)]
struct Piece<'a> {
    offset: u64,
    bytes: &'a [u8],
    first: bool,
}

impl Engine {
    /// A packet of a SEND, TAGGED_SEND or their rendezvous forms.
    pub(super) fn take_message<M: Memory>(
        &mut self,
        now: Time,
        mem: &mut M,
        id: PdcId,
        peer: PeerId,
        request: &StdRequest,
        payload: &[u8],
    ) -> Taken {
        let class = if request.opcode.is_tagged() { Class::Tagged } else { Class::Msg };
        let rendezvous = match request.extension {
            Extension::Rendezvous(r) => Some(r),
            _ => None,
        };
        let tag = if class == Class::Tagged { request.match_bits } else { 0 };
        let envelope = Envelope { class, source: peer, tag };
        let piece = match request.body {
            StdBody::First { .. } => Piece { offset: 0, bytes: payload, first: true },
            StdBody::Next { message_offset, .. } => {
                Piece { offset: u64::from(message_offset), bytes: payload, first: false }
            }
        };
        let total = u64::from(request.request_length);
        let eager = rendezvous.map_or(total, |r| u64::from(r.eager_length));
        let consistent = piece.offset + payload.len() as u64 <= eager
            && eager <= total
            && (rendezvous.is_none() || piece.first);
        if !consistent {
            return Taken::No;
        }
        let data = match request.body {
            StdBody::First { header_data } if request.header_data_present => Some(header_data),
            _ => None,
        };
        let Some(context) = self.context(id) else { return Taken::No };
        match context.order.seen(request.message_id) {
            None | Some(Seen::Done) => Taken::No,
            Some(Seen::Open(ix)) => {
                self.continue_message(now, mem, ix, &envelope, total, data, piece)
            }
            Some(Seen::No) => {
                let whole = piece.first && payload.len() as u64 == eager;
                let mut message = Message::new(id, peer, request.message_id, envelope, total);
                message.data = data;
                message.eager = eager;
                message.started = piece.first;
                if request.delivery_complete {
                    // Where the answer goes: see the engine's choices in `outbound`.
                    message.confirm = Some((request.buffer_offset & 0xffff) as u16);
                }
                if let Some(r) = rendezvous {
                    message.pull = Pull::Offered(Offer {
                        key: r.memory_key,
                        offset: r.read_offset,
                        resource: r.resource_index,
                    });
                }
                if piece.first && context.order.is_next(request.message_id) {
                    self.begin_next(now, mem, id, message, piece, whole)
                } else {
                    self.begin_early(now, id, message, piece)
                }
            }
        }
    }

    /// The first packet of the message whose turn it is.
    fn begin_next<M: Memory>(
        &mut self,
        now: Time,
        mem: &mut M,
        id: PdcId,
        mut message: Message,
        piece: Piece<'_>,
        whole: bool,
    ) -> Taken {
        if !whole {
            // The rest may never come.
            self.watch(now);
        }
        let slot = self.posted.find(&message.envelope);
        if let Some(slot) = slot {
            let Some(target) = self.claim_posted(slot, message.total) else { return Taken::No };
            self.counters.rx_expected += 1;
            self.write_piece(mem, &target, piece);
            if whole && message.pull == Pull::No {
                self.deliver_whole(&message, &target);
                if let Some(slot) = message.confirm {
                    self.confirm(id, message.peer, slot);
                }
                self.pass(now, mem, id, message.id, Seen::Done);
                return Taken::Yes(None);
            }
            message.received = piece.bytes.len() as u64;
            message.place = Place::User(target);
            let message_id = message.id;
            let ix = self.messages.add(message);
            self.pull(now, ix);
            self.settle_message(now, ix);
            self.pass(now, mem, id, message_id, if whole { Seen::Done } else { Seen::Open(ix) });
            return Taken::Yes(None);
        }
        if !self.stash(&mut message, piece) {
            return Taken::Later(NackCode::NoPktBuffer);
        }
        self.counters.rx_unexpected += 1;
        let (envelope, message_id) = (message.envelope, message.id);
        let ix = self.messages.add(message);
        self.unexpected.push(Waiting { envelope, message: ix });
        self.pass(now, mem, id, message_id, if whole { Seen::Done } else { Seen::Open(ix) });
        Taken::Yes(None)
    }

    /// A packet of a message whose turn has not come, or whose first packet has not.
    fn begin_early(
        &mut self,
        now: Time,
        id: PdcId,
        mut message: Message,
        piece: Piece<'_>,
    ) -> Taken {
        // Others must come before it.
        self.watch(now);
        if !self.stash(&mut message, piece) {
            return Taken::Later(NackCode::NoPktBuffer);
        }
        let message_id = message.id;
        let ix = self.messages.add(message);
        if let Some(context) = self.context_mut(id) {
            // Even a complete one stays open until it has been matched.
            context.order.set(message_id, Seen::Open(ix));
        }
        Taken::Yes(None)
    }

    /// A further packet of a message that is known.
    #[allow(clippy::too_many_arguments)] // one packet, in its parts
    fn continue_message<M: Memory>(
        &mut self,
        now: Time,
        mem: &mut M,
        ix: u32,
        envelope: &Envelope,
        total: u64,
        data: Option<u64>,
        piece: Piece<'_>,
    ) -> Taken {
        let len = piece.bytes.len() as u64;
        let Some(message) = self.messages.get_mut(ix) else { return Taken::Yes(None) };
        let fits = message.envelope == *envelope
            && message.total == total
            && message.received + len <= message.eager
            && !(piece.first && message.started);
        if !fits {
            return Taken::No;
        }
        message.received += len;
        if piece.first {
            message.started = true;
            message.data = data;
        }
        let (pdc, message_id, arrived) = (message.pdc, message.id, message.arrived());
        match &mut message.place {
            Place::Stash(bytes) => {
                let from = piece.offset as usize;
                bytes[from..from + piece.bytes.len()].copy_from_slice(piece.bytes);
                self.counters.rx_payload_bytes += len;
            }
            Place::User(target) => write_piece(mem, target, piece),
            Place::None | Place::Discard => {}
        }
        if matches!(self.messages.get(ix).map(|m| &m.place), Some(Place::User(_))) {
            self.counters.rx_payload_bytes += len;
        }
        let id = pdc;
        let waits_for_turn = self.context(id).is_some_and(|c| c.order.next_open() == Some(ix));
        if waits_for_turn {
            self.match_in_order(now, mem, id);
        } else if arrived
            && let Some(context) = self.context_mut(id)
            && context.order.is_past(message_id)
        {
            context.order.set(message_id, Seen::Done);
        }
        self.settle_message(now, ix);
        Taken::Yes(None)
    }

    /// Matches messages whose turn has come and whose first packet is here.
    fn match_in_order<M: Memory>(&mut self, now: Time, mem: &mut M, id: PdcId) {
        while let Some(ix) = self.context(id).and_then(|c| c.order.next_open()) {
            let Some(message) = self.messages.get(ix) else { return };
            if !message.started {
                return;
            }
            let (envelope, total, arrived) = (message.envelope, message.total, message.arrived());
            let message_id = message.id;
            if let Some(context) = self.context_mut(id) {
                context.order.matched();
                if arrived {
                    context.order.set(message_id, Seen::Done);
                }
            }
            let target =
                self.posted.find(&envelope).and_then(|slot| self.claim_posted(slot, total));
            if let Some(target) = target {
                self.counters.rx_expected += 1;
                self.attach(now, mem, ix, target);
            } else {
                self.counters.rx_unexpected += 1;
                self.unexpected.push(Waiting { envelope, message: ix });
            }
        }
    }

    /// The message whose turn it was has been matched; others may follow.
    fn pass<M: Memory>(&mut self, now: Time, mem: &mut M, id: PdcId, message: u16, seen: Seen) {
        let Some(context) = self.context_mut(id) else { return };
        if seen == Seen::Done && context.order.pass() {
            return;
        }
        context.order.set(message, seen);
        context.order.matched();
        self.match_in_order(now, mem, id);
    }

    /// Keeps a packet's bytes for a message without a receive. False when the budget is spent.
    fn stash(&mut self, message: &mut Message, piece: Piece<'_>) -> bool {
        let cost = message.eager + HEADER_COST;
        if self.counters.unexpected_bytes + cost > self.config.unexpected_bytes {
            return false;
        }
        message.charged = cost;
        self.counters.unexpected_bytes += cost;
        self.counters.unexpected_bytes_peak =
            self.counters.unexpected_bytes_peak.max(self.counters.unexpected_bytes);
        message.received = piece.bytes.len() as u64;
        self.counters.rx_payload_bytes += message.received;
        if message.eager == 0 {
            return true;
        }
        let bytes = if message.received == message.eager {
            piece.bytes.to_vec()
        } else {
            let mut bytes = vec![0; message.eager as usize];
            let from = piece.offset as usize;
            bytes[from..from + piece.bytes.len()].copy_from_slice(piece.bytes);
            bytes
        };
        message.place = Place::Stash(bytes);
        true
    }

    fn write_piece<M: Memory>(&mut self, mem: &mut M, target: &Target, piece: Piece<'_>) {
        self.counters.rx_payload_bytes += piece.bytes.len() as u64;
        write_piece(mem, target, piece);
    }

    /// Reports a message that came whole and was matched at once.
    fn deliver_whole(&mut self, message: &Message, target: &Target) {
        let mut completion = Completion {
            context: 0,
            kind: OpKind::Recv,
            class: message.envelope.class,
            len: message.total,
            buf: 0,
            data: message.data,
            tag: message.envelope.tag,
            peer: Some(message.peer),
            notify: Notify::Entry,
            released: false,
            status: Ok(()),
        };
        finish_description(&mut completion, target, message.total, None);
        self.deliver(completion, target.multi);
    }
}

/// Writes what fits of a packet into the receive's buffer.
fn write_piece<M: Memory>(mem: &mut M, target: &Target, piece: Piece<'_>) {
    let fits = target.room.saturating_sub(piece.offset).min(piece.bytes.len() as u64);
    target.buf.for_range(target.at + piece.offset, fits, |address, position, len| {
        let from = position as usize;
        mem.write(address, &piece.bytes[from..from + len as usize]);
    });
}
