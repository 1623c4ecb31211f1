//! Packets of two-sided messages, and the order in which messages are matched.

use super::Inbox;
use super::ends::complete_receive;
use crate::channel::ChannelId;
use crate::matching::{Envelope, UnexpectedMessage};
use crate::memory::{Memory, Payload};
use crate::messages::{
    HeaderKind, Message, MessageBuffer, MessageExtent, MessageHeader, MessagePart, Offer, Pull,
    Target,
};
use crate::operation::{MatchSpace, PeerId};
use crate::ops::RESOURCE_COLLECTIVE;
use crate::order::{IdState, MAX_AHEAD_OUTSIDE};
use crate::packet_outcome::PacketOutcome;
use crate::slab::Key;
use crate::step::Step;
use crate::wire::{Extension, Rendezvous, StdBody, StdRequest};

impl Inbox {
    /// Handles a packet of a SEND, a TAGGED_SEND or their rendezvous forms.
    #[inline]
    pub(crate) fn handle_message_packet<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        (context, peer): (ChannelId, PeerId),
        request: &StdRequest,
        payload: Payload<'_>,
    ) -> PacketOutcome {
        let (payload, fetchable) = match payload {
            Payload::Here(bytes) => (bytes, false),
            Payload::Elsewhere(_) => (&[][..], true),
        };
        let rendezvous = match request.extension {
            Extension::Rendezvous(r) => Some(r),
            _ => None,
        };
        if rendezvous.is_none()
            && matches!(request.body, StdBody::First { .. })
            && payload.len() as u64 == u64::from(request.request_length)
            && self.take_whole(step, mem, (context, peer), request, core::iter::once(payload))
        {
            return PacketOutcome::Yes(None);
        }
        let piece = match request.body {
            StdBody::First { .. } => {
                MessagePart { offset: 0, bytes: payload, first: true, fetchable }
            }
            StdBody::Next { message_offset, .. } => {
                let offset = u64::from(message_offset);
                MessagePart { offset, bytes: payload, first: false, fetchable: false }
            }
        };
        let total = u64::from(request.request_length);
        let eager = rendezvous.map_or(total, |r| u64::from(r.eager_length));
        let consistent = piece.offset + payload.len() as u64 <= eager
            && eager <= total
            && rendezvous.is_none_or(|r| {
                // The range to read must end inside the address space.
                piece.first && r.read_offset.checked_add(total).is_some()
            });
        if !consistent {
            return PacketOutcome::No;
        }
        let data = data_of(request);
        let Some(order) = self.streams.order(context) else { return PacketOutcome::No };
        let seen = order.state(request.message_id);
        let in_turn = order.is_next(request.message_id);
        let envelope = envelope_of(request, peer);
        match seen {
            None | Some(IdState::Done) => PacketOutcome::No,
            Some(IdState::Open(key)) => {
                let claims = (&envelope, total, data);
                match rendezvous {
                    Some(offer) => self.handle_offer(step, mem, key, claims, offer),
                    None => self.continue_message(step, mem, key, claims, piece),
                }
            }
            Some(IdState::No) => {
                let head = MessageHeader {
                    context,
                    id: request.message_id,
                    envelope,
                    data,
                    extent: MessageExtent {
                        total,
                        eager,
                        received: 0,
                        started: piece.first,
                        deferred: false,
                    },
                    pull: rendezvous.map_or(Pull::No, |r| Pull::Offered(offer_of(&r))),
                    confirm: confirm_of(request),
                };
                if piece.first && in_turn {
                    self.begin_next_message(step, mem, head, piece)
                } else {
                    self.begin_early_message(step, head, piece, in_turn)
                }
            }
        }
    }

    /// Handles the first packet of the message whose turn it is.
    #[inline]
    fn begin_next_message<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        mut head: MessageHeader,
        piece: MessagePart<'_>,
    ) -> PacketOutcome {
        let len = piece.bytes.len() as u64;
        let whole = len == head.extent.eager;
        if !whole {
            // The other packets may never arrive, so the sender must be watched.
            step.start_liveness_timer();
        }
        // No receive matches a message that `take_whole` has left.
        let slot =
            if whole && head.pull == Pull::No { None } else { self.posted.find(&head.envelope) };
        let target = slot.and_then(|slot| self.posted.claim(slot, head.extent.total));
        let key = if let Some(target) = target {
            step.report.counters.rx_expected += 1;
            step.report.counters.rx_payload_bytes += len;
            target.write(mem, piece.offset, piece.bytes);
            let offer = piece.fetchable.then(|| fetch_offered(mem, &head, &target)).flatten();
            if let Some(offer) = offer {
                step.report.counters.rx_payload_bytes += head.extent.total;
                self.send_requests.request_end_of_pull(head.peer(), offer, head.extent.total);
                self.complete_message(step, &head, &target);
                self.finish_turn(step, mem, head.context, head.id, IdState::Done);
                return PacketOutcome::Yes(None);
            }
            head.extent.received = len;
            let key = self.messages.add(head.message(step.now, MessageBuffer::User(target)));
            if let Some(message) = self.messages.get_mut(key) {
                self.send_requests.request_pull(key, message);
            }
            // A rendezvous for which the receive has no room is complete now.
            self.finish_if_complete(step, key);
            key
        } else {
            let room = self.has_room(step, head.peer(), HeaderKind::Waiting);
            let Some(message) =
                self.buffer_unmatched(step, (HeaderKind::Waiting, room), head, piece)
            else {
                return self.streams.refuse_packet(step, &head);
            };
            step.report.counters.rx_unexpected += 1;
            let deferred = message.head.extent.deferred;
            let key = self.messages.add(message);
            self.unexpected.push(UnexpectedMessage { envelope: head.envelope, message: key });
            if deferred {
                self.finish_turn(step, mem, head.context, head.id, IdState::Open(key));
                return PacketOutcome::deferred(step.config.job_id, head.id);
            }
            key
        };
        let seen = if whole { IdState::Done } else { IdState::Open(key) };
        self.finish_turn(step, mem, head.context, head.id, seen);
        PacketOutcome::Yes(None)
    }

    /// Handles a packet of a message whose turn has not come, or whose first packet has not
    /// arrived.
    fn begin_early_message(
        &mut self,
        step: &mut Step<'_>,
        head: MessageHeader,
        piece: MessagePart<'_>,
        in_turn: bool,
    ) -> PacketOutcome {
        if head.context.context().is_none() {
            // A shared-memory channel delivers its records in order.
            return PacketOutcome::No;
        }
        let ahead = self.streams.order(head.context).map_or(0, |order| order.distance(head.id));
        if ahead > MAX_AHEAD_OUTSIDE && step.is_outside(head.peer()) {
            return self.streams.refuse_packet(step, &head);
        }
        // Earlier messages must arrive first, so the sender must be watched.
        step.start_liveness_timer();
        // A message whose turn it is may also use the room that early messages must leave free,
        // whichever of its packets arrives first. All kept messages may be early ones that wait for
        // it.
        let room = self.has_room(step, head.peer(), HeaderKind::Early)
            || in_turn && self.has_room(step, head.peer(), HeaderKind::Waiting);
        let Some(message) = self.buffer_unmatched(step, (HeaderKind::Early, room), head, piece)
        else {
            return self.streams.refuse_packet(step, &head);
        };
        let deferred = message.head.extent.deferred;
        let key = self.messages.add(message);
        if let Some(order) = self.streams.order(head.context) {
            // Even a complete message stays open until it is matched.
            order.set_state(head.id, IdState::Open(key));
        }
        if deferred {
            PacketOutcome::deferred(step.config.job_id, head.id)
        } else {
            PacketOutcome::Yes(None)
        }
    }

    fn has_room(&self, step: &Step<'_>, peer: PeerId, kind: HeaderKind) -> bool {
        self.budget.has_room((step.config, step.peers), peer, kind)
    }

    /// Keeps the part of an unmatched message that a packet carries, if there is `room` for the message's header or the
    /// message came on a shared-memory channel.
    fn buffer_unmatched(
        &mut self,
        step: &mut Step<'_>,
        (kind, room): (HeaderKind, bool),
        head: MessageHeader,
        piece: MessagePart<'_>,
    ) -> Option<Message> {
        let over_shm = head.context.context().is_none();
        if !room && !over_shm {
            return None;
        }
        if self.messages.len() == 0 {
            self.streams.clear_overflow();
        }
        let mut message = self.budget.buffer_unmatched(step, kind, head, piece)?;
        if !room {
            self.streams.report_overflow(step, &head);
            let len = piece.bytes.len() as u64;
            if !self.budget.charge_beyond_headers(head.peer(), &mut message.charge, len) {
                self.budget.release(step, &mut message);
                return None;
            }
        }
        Some(message)
    }

    /// Handles the rendezvous offer of a message that was deferred.
    fn handle_offer<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        key: Key,
        (envelope, total, data): (&Envelope, u64, Option<u64>),
        rendezvous: Rendezvous,
    ) -> PacketOutcome {
        let Some(message) = self.messages.get_mut(key) else { return PacketOutcome::No };
        let head = &mut message.head;
        let fits = head.extent.deferred
            && head.envelope == *envelope
            && head.extent.total == total
            && rendezvous.eager_length == 0;
        if !fits {
            return PacketOutcome::No;
        }
        head.extent =
            MessageExtent { total, eager: 0, received: 0, started: true, deferred: false };
        head.pull = Pull::Offered(offer_of(&rendezvous));
        head.data = data;
        message.touched = step.now;
        // A message that has matched already, or is to be discarded, is not matched again.
        let (context, id) = (head.context, head.id);
        if matches!(message.place, MessageBuffer::User(_) | MessageBuffer::Discard) {
            self.send_requests.request_pull(key, message);
        }
        self.messages.insert_awaited(context, id, key);
        self.advance_matching(step, mem, key, context, id);
        PacketOutcome::Yes(None)
    }

    /// Handles a further packet of a known message, with the envelope, length and data that it
    /// claims.
    fn continue_message<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        key: Key,
        (envelope, total, data): (&Envelope, u64, Option<u64>),
        piece: MessagePart<'_>,
    ) -> PacketOutcome {
        let len = piece.bytes.len() as u64;
        let Some(message) = self.messages.get_mut(key) else { return PacketOutcome::No };
        let extent = &mut message.head.extent;
        let fits = message.head.envelope == *envelope
            && extent.total == total
            && extent.received + len <= extent.eager
            && piece.offset + len <= extent.eager
            && !(piece.first && extent.started);
        if !fits {
            return PacketOutcome::No;
        }
        match &mut message.place {
            MessageBuffer::Stash(_) => return self.continue_unmatched(step, mem, key, data, piece),
            MessageBuffer::User(target) if !extent.deferred => {
                target.write(mem, piece.offset, piece.bytes);
                step.report.counters.rx_payload_bytes += len;
            }
            MessageBuffer::User(_) | MessageBuffer::None | MessageBuffer::Discard => {}
        }
        message.record_packet(step.now, len, piece.first.then_some(data));
        let (context, id) = (message.head.context, message.head.id);
        self.advance_matching(step, mem, key, context, id);
        PacketOutcome::Yes(None)
    }

    /// Copies a further packet into the buffer of an unmatched message, if the budget allows it to
    /// grow. Otherwise the message is deferred, or the packet refused.
    fn continue_unmatched<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        key: Key,
        data: Option<u64>,
        piece: MessagePart<'_>,
    ) -> PacketOutcome {
        let len = piece.bytes.len() as u64;
        let Some(message) = self.messages.get_mut(key) else { return PacketOutcome::No };
        let room = self.budget.grow_or_defer(step, message, piece.offset + len);
        if let MessageBuffer::Stash(bytes) = &mut message.place {
            if !room {
                let head = message.head;
                return self.streams.refuse_packet(step, &head);
            }
            let from = piece.offset as usize;
            bytes[from..from + piece.bytes.len()].copy_from_slice(piece.bytes);
            step.report.counters.rx_payload_bytes += len;
        }
        message.record_packet(step.now, len, piece.first.then_some(data));
        let (context, id) = (message.head.context, message.head.id);
        self.advance_matching(step, mem, key, context, id);
        if room {
            PacketOutcome::Yes(None)
        } else {
            PacketOutcome::deferred(step.config.job_id, id)
        }
    }

    /// Matches and completes messages as far as a packet that was just taken allows it.
    pub(super) fn advance_matching<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        key: Key,
        context: ChannelId,
        id: u16,
    ) {
        let arrived =
            self.messages.get(key).is_some_and(|message| message.head.extent.has_arrived());
        if let Some(order) = self.streams.order(context) {
            if order.next_open() == Some(key) {
                self.match_in_order(step, mem, context);
            } else if arrived && order.is_past(id) {
                order.set_state(id, IdState::Done);
            }
        }
        self.finish_if_complete(step, key);
    }

    /// Matches all messages whose turn has come and whose first packet has arrived.
    fn match_in_order<M: Memory>(&mut self, step: &mut Step<'_>, mem: &mut M, context: ChannelId) {
        while let Some(key) = self.streams.order(context).and_then(|order| order.next_open()) {
            let Some(message) = self.messages.get(key).filter(|m| m.head.extent.started) else {
                return;
            };
            let (id, envelope, extent) =
                (message.head.id, message.head.envelope, message.head.extent);
            if let Some(order) = self.streams.order(context) {
                order.advance();
                if extent.has_arrived() {
                    order.set_state(id, IdState::Done);
                }
            }
            let target =
                self.posted.find(&envelope).and_then(|slot| self.posted.claim(slot, extent.total));
            if let Some(target) = target {
                step.report.counters.rx_expected += 1;
                self.assign_receive(step, mem, key, MessageBuffer::User(target));
            } else {
                step.report.counters.rx_unexpected += 1;
                if let Some(message) = self.messages.get_mut(key) {
                    self.budget.begin_waiting(message);
                }
                self.unexpected.push(UnexpectedMessage { envelope, message: key });
            }
        }
    }

    /// Records that the message whose turn it was has been matched, and matches those behind it.
    #[inline]
    pub(super) fn finish_turn<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        context: ChannelId,
        id: u16,
        seen: IdState,
    ) {
        let Some(order) = self.streams.order(context) else { return };
        if seen == IdState::Done && order.advance_whole() {
            return;
        }
        order.set_state(id, seen);
        order.advance();
        self.match_in_order(step, mem, context);
    }

    /// Completes a message that arrived as a whole and matched at once.
    #[inline]
    pub(super) fn complete_message(
        &mut self,
        step: &mut Step<'_>,
        head: &MessageHeader,
        target: &Target,
    ) {
        let mut completion = head.completion();
        target.describe(&mut completion, head.extent.total, None);
        self.send_requests.request_confirmation(head);
        complete_receive(&mut self.posted, step, completion, target.multi);
    }
}

/// Returns the envelope of a request, with which receives are compared.
#[inline]
pub(super) const fn envelope_of(request: &StdRequest, source: PeerId) -> Envelope {
    let tagged = request.opcode.is_tagged();
    let space = match (tagged, request.resource_index) {
        (false, _) => MatchSpace::Untagged,
        (true, RESOURCE_COLLECTIVE) => MatchSpace::Collective,
        (true, _) => MatchSpace::Tagged,
    };
    Envelope { space, source, tag: if tagged { request.match_bits } else { 0 } }
}

/// Returns the remote CQ data that a request carries, if any.
#[inline]
pub(super) const fn data_of(request: &StdRequest) -> Option<u64> {
    match request.body {
        StdBody::First { header_data } if request.header_data_present => Some(header_data),
        _ => None,
    }
}

/// Returns the slot to which the sender wants its confirmation sent; see the engine's choices in
/// `outbound`.
#[inline]
pub(super) const fn confirm_of(request: &StdRequest) -> Option<u16> {
    if request.delivery_complete { Some((request.buffer_offset & 0xffff) as u16) } else { None }
}

/// Copies an offered message that has matched a receive, if the memory of the peer can be accessed.
/// Returns the offer if the whole message was copied; otherwise the message must be read.
fn fetch_offered<M: Memory>(mem: &mut M, head: &MessageHeader, target: &Target) -> Option<Offer> {
    let Pull::Offered(offer) = head.pull else { return None };
    let total = head.extent.total;
    let had = total <= target.room && target.place(mem, Payload::Elsewhere(total));
    had.then_some(offer)
}

/// Returns the place at which the sender of a rendezvous offers its bytes.
const fn offer_of(rendezvous: &Rendezvous) -> Offer {
    Offer {
        key: rendezvous.memory_key,
        offset: rendezvous.read_offset,
        resource: rendezvous.resource_index,
    }
}
