//! Packets of two-sided messages, and the order in which messages are matched.

use super::{Ask, Inbox};
use crate::api::{MatchSpace, PeerId};
use crate::matching::{Envelope, Waiting};
use crate::memory::Memory;
use crate::messages::{Extent, Head, Message, Offer, Place, Pull, Target};
use crate::order::Seen;
use crate::reliability::PdcId;
use crate::slab::Key;
use crate::step::Step;
use crate::taken::Taken;
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

impl Inbox {
    /// A packet of a SEND, TAGGED_SEND or their rendezvous forms.
    #[inline]
    pub(crate) fn take_message<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        context: PdcId,
        peer: PeerId,
        request: &StdRequest,
        payload: &[u8],
    ) -> Taken {
        let tagged = request.opcode.is_tagged();
        let space = if tagged { MatchSpace::Tagged } else { MatchSpace::Untagged };
        let tag = if tagged { request.match_bits } else { 0 };
        let rendezvous = match request.extension {
            Extension::Rendezvous(r) => Some(r),
            _ => None,
        };
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
            && rendezvous.is_none_or(|r| {
                // Where it is read ends inside the address space.
                piece.first && r.read_offset.checked_add(total).is_some()
            });
        if !consistent {
            return Taken::No;
        }
        let data = match request.body {
            StdBody::First { header_data } if request.header_data_present => Some(header_data),
            _ => None,
        };
        let Some(order) = self.order(context) else { return Taken::No };
        let seen = order.seen(request.message_id);
        let in_turn = order.is_next(request.message_id);
        let envelope = Envelope { space, source: peer, tag };
        match seen {
            None | Some(Seen::Done) => Taken::No,
            Some(Seen::Open(key)) => {
                self.continue_message(step, mem, key, (&envelope, total, data), piece)
            }
            Some(Seen::No) => {
                let head = Head {
                    context,
                    id: request.message_id,
                    envelope,
                    data,
                    extent: Extent { total, eager, received: 0, started: piece.first },
                    pull: rendezvous.map_or(Pull::No, |r| {
                        Pull::Offered(Offer {
                            key: r.memory_key,
                            offset: r.read_offset,
                            resource: r.resource_index,
                        })
                    }),
                    // Where the answer goes: see the engine's choices in `outbound`.
                    confirm: request
                        .delivery_complete
                        .then_some((request.buffer_offset & 0xffff) as u16),
                };
                if piece.first && in_turn {
                    self.begin_in_turn(step, mem, head, piece)
                } else {
                    self.begin_early(step, head, piece)
                }
            }
        }
    }

    /// The first packet of the message whose turn it is.
    #[inline]
    fn begin_in_turn<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        mut head: Head,
        piece: Piece<'_>,
    ) -> Taken {
        let len = piece.bytes.len() as u64;
        let whole = len == head.extent.eager;
        if !whole {
            // The rest may never come.
            step.watch();
        }
        let target = self
            .posted
            .find(&head.envelope)
            .and_then(|slot| self.posted.claim(slot, head.extent.total));
        let key = if let Some(target) = target {
            step.report.counters.rx_expected += 1;
            step.report.counters.rx_payload_bytes += len;
            target.write(mem, piece.offset, piece.bytes);
            if whole && head.pull == Pull::No {
                self.deliver(step, &head, &target);
                self.pass(step, mem, head.context, head.id, Seen::Done);
                return Taken::Yes(None);
            }
            head.extent.received = len;
            let key = self.messages.add(head.message(step.now, Place::User(target)));
            self.pull(key);
            // A rendezvous for which there is no room has come as far as it will.
            self.finish_if_complete(step, key);
            key
        } else {
            let Some(message) = stash(step, head, piece) else {
                return self.hold_back(step, head.context);
            };
            step.report.counters.rx_unexpected += 1;
            let key = self.messages.add(message);
            self.unexpected.push(Waiting { envelope: head.envelope, message: key });
            key
        };
        let seen = if whole { Seen::Done } else { Seen::Open(key) };
        self.pass(step, mem, head.context, head.id, seen);
        Taken::Yes(None)
    }

    /// A packet of a message whose turn has not come, or whose first packet has not.
    fn begin_early(&mut self, step: &mut Step<'_>, head: Head, piece: Piece<'_>) -> Taken {
        // Others must come before it.
        step.watch();
        let Some(message) = stash(step, head, piece) else {
            return self.hold_back(step, head.context);
        };
        let key = self.messages.add(message);
        if let Some(order) = self.order(head.context) {
            // Even a complete one stays open until it has been matched.
            order.set(head.id, Seen::Open(key));
        }
        Taken::Yes(None)
    }

    /// There is no room for a message now.
    fn hold_back(&mut self, step: &Step<'_>, context: PdcId) -> Taken {
        if let Some(stream) = self.stream(context) {
            stream.held_back = step.now;
        }
        Taken::Later(NackCode::NoPktBuffer)
    }

    /// A further packet of a message that is known, with the envelope, length and data it claims.
    fn continue_message<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        key: Key,
        (envelope, total, data): (&Envelope, u64, Option<u64>),
        piece: Piece<'_>,
    ) -> Taken {
        let len = piece.bytes.len() as u64;
        let Some(message) = self.messages.get_mut(key) else { return Taken::No };
        let extent = &mut message.head.extent;
        let fits = message.head.envelope == *envelope
            && extent.total == total
            && extent.received + len <= extent.eager
            && piece.offset + len <= extent.eager
            && !(piece.first && extent.started);
        if !fits {
            return Taken::No;
        }
        match &mut message.place {
            Place::Stash(bytes) => {
                let from = piece.offset as usize;
                let Some(to) = bytes.get_mut(from..from + piece.bytes.len()) else {
                    return Taken::No;
                };
                to.copy_from_slice(piece.bytes);
                step.report.counters.rx_payload_bytes += len;
            }
            Place::User(target) => {
                target.write(mem, piece.offset, piece.bytes);
                step.report.counters.rx_payload_bytes += len;
            }
            Place::None | Place::Discard => {}
        }
        extent.received += len;
        message.touched = step.now;
        if piece.first {
            extent.started = true;
            message.head.data = data;
        }
        let (context, id, arrived) = (message.head.context, message.head.id, extent.arrived());
        if let Some(order) = self.order(context) {
            if order.next_open() == Some(key) {
                self.match_in_order(step, mem, context);
            } else if arrived && order.is_past(id) {
                order.set(id, Seen::Done);
            }
        }
        self.finish_if_complete(step, key);
        Taken::Yes(None)
    }

    /// Matches messages whose turn has come and whose first packet is here.
    fn match_in_order<M: Memory>(&mut self, step: &mut Step<'_>, mem: &mut M, context: PdcId) {
        while let Some(key) = self.order(context).and_then(|order| order.next_open()) {
            let Some(message) = self.messages.get(key).filter(|m| m.head.extent.started) else {
                return;
            };
            let (id, envelope, extent) =
                (message.head.id, message.head.envelope, message.head.extent);
            if let Some(order) = self.order(context) {
                order.matched();
                if extent.arrived() {
                    order.set(id, Seen::Done);
                }
            }
            let target =
                self.posted.find(&envelope).and_then(|slot| self.posted.claim(slot, extent.total));
            if let Some(target) = target {
                step.report.counters.rx_expected += 1;
                self.attach(step, mem, key, target);
            } else {
                step.report.counters.rx_unexpected += 1;
                self.unexpected.push(Waiting { envelope, message: key });
            }
        }
    }

    /// The message whose turn it was has been matched; others may follow.
    #[inline]
    fn pass<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        context: PdcId,
        id: u16,
        seen: Seen,
    ) {
        let Some(order) = self.order(context) else { return };
        if seen == Seen::Done && order.pass() {
            return;
        }
        order.set(id, seen);
        order.matched();
        self.match_in_order(step, mem, context);
    }

    /// A message that came whole was matched at once.
    #[inline]
    fn deliver(&mut self, step: &mut Step<'_>, head: &Head, target: &Target) {
        let mut completion = head.completion();
        target.describe(&mut completion, head.extent.total, None);
        self.confirm(head);
        self.complete_receive(step, completion, target.multi);
    }

    /// Tells a sender who waits for it that a receive has taken its message.
    #[inline]
    pub(super) fn confirm(&mut self, head: &Head) {
        if let Some(slot) = head.confirm {
            self.asks.push_back(Ask::Confirm { context: head.context, slot });
        }
    }
}

/// Keeps a packet's bytes for a message without a receive. `None` when the budget is spent.
fn stash(step: &mut Step<'_>, mut head: Head, piece: Piece<'_>) -> Option<Message> {
    let counters = &mut step.report.counters;
    let extent = &mut head.extent;
    let cost = extent.eager + HEADER_COST;
    if counters.unexpected_bytes + cost > step.config.unexpected_bytes {
        return None;
    }
    counters.unexpected_bytes += cost;
    counters.unexpected_bytes_peak = counters.unexpected_bytes_peak.max(counters.unexpected_bytes);
    extent.received = piece.bytes.len() as u64;
    counters.rx_payload_bytes += extent.received;
    let place = if extent.eager == 0 {
        Place::None
    } else if extent.received == extent.eager {
        Place::Stash(piece.bytes.to_vec())
    } else {
        let mut bytes = vec![0; extent.eager as usize];
        let from = piece.offset as usize;
        bytes[from..from + piece.bytes.len()].copy_from_slice(piece.bytes);
        Place::Stash(bytes)
    };
    Some(Message { charged: cost, ..head.message(step.now, place) })
}
