//! Shared-memory channels between two endpoints of one host. A channel is reliable and
//! ordered in both directions. It carries *records*: a semantic header
//! as on the wire with its payload, or an answer to a record (`record.rs`). A channel has no
//! sequence numbers, retransmission timers or windows, and a count takes the place of
//! acknowledgements:
//!
//! - Each end counts the records that it has *taken* and shows the count to the other end. When the
//!   count has passed the record of an operation, that record is acknowledged.
//! - A record whose result is more than "taken" (no room, unknown key) is answered by a record. The
//!   count does not pass the first record before the answer was taken. So an end that sees the
//!   count has already handled the answer, and need not look for records first.
//! - The payload of a long answer or of a long write stays where it is. The record refers to it,
//!   and the receiver copies it once, directly to its destination. The memory is lent like any
//!   payload. An owner that takes the memory back earlier revokes the reference, and what was
//!   copied by then is discarded. If a peer cannot access the memory, records carry the payload.
//! - A request of a peer that has more answers outstanding than slots to wait for them stays in the
//!   ring, with everything behind it. A message never stays in the ring, because answers of the
//!   same peer would wait behind it. There is always room for the messages in the ring. The
//!   receiver shows the peer when there is none for more ([`Room`]); the peer then starts no
//!   message, while its other records go on (`outbound/records.rs`).
//! - A message of one record is written in the call that sends it. The sender keeps nothing of it
//!   but the values for its completion ([`InFlight`]), so a receiver without memory cannot ask for
//!   it again (`inbox/short.rs`). The receiver keeps every such message, and shows when memory gets
//!   short. After that, messages that are not very short arrive only as far as the ring holds them
//!   already.
//!
//! # The change from packets to a channel
//!
//! Two endpoints that have verified each other (`handshake.rs`) may open a channel. Each proves to
//! the other that it is the verified peer, by a secret from the handshake
//! ([`crate::ShmInterface::proof`]). From then on new operations queue on the channel. The channel is
//! *held* until everything that was started on contexts to that peer is acknowledged. So nothing
//! arrives by packets after the first record, and the receiver, which matches messages as they
//! arrive, keeps the order without knowing of the change. Answers to requests that came by packets
//! go back by packets.
//!
//! # The end
//!
//! An endpoint that shuts down sends a close notification as its last record. Operations that the
//! peer has not started by then use packets. An end that closes the channel for another reason (it
//! no longer wants the peer, or received something invalid) reports that, and operations in flight
//! on the channel fail, like those on a context that the peer has forgotten. If the channel ends
//! without any report, the process has died, and its peer is lost like one that does not answer
//! packets.
//!
//! A peer that lives and takes no records is given up like one that answers no packets: after the
//! same time and by the same rule ([`Wait`]), applied to the first record that it has not taken. A
//! peer without room reports that each time it examines the record, and that restarts the wait.

pub(crate) mod record;

use std::collections::VecDeque;

use crate::base::{Span, Time};
use crate::channel::ShmId;
use crate::completion::{Completion, OpError, OpKind};
use crate::memory::Buf;
use crate::operation::{MatchSpace, PeerId, Visibility};
use crate::ops::{ReportTime, SesLabel, UserOp};
use crate::part::Part;
use crate::reliability::Wait;
use crate::wire::Response;

/// The payload of a shared-memory record.
#[derive(Clone, Copy, Debug)]
pub enum RecordPayload<'a> {
    /// Payload bytes that the engine owns.
    Copied(&'a [u8]),
    /// Payload in user memory that is lent until the record is sent.
    Lent {
        /// The user's buffer that contains the payload.
        buf: &'a Buf,
        /// Offset of the first payload byte in `buf`.
        offset: u64,
        /// Length of the payload in bytes.
        len: u64,
    },
}

/// The driver's output for shared-memory channels, which carries records to the peers.
pub trait RecordOutput {
    /// Appends a record, `head` followed by `payload`, to a channel. Returns false, and changes
    /// nothing, if the channel has no room now.
    fn send(&mut self, shm: ShmId, head: &[u8], payload: RecordPayload<'_>) -> bool;

    /// Returns whether the peer had room for another message when the channel last read the peer's [`Room`]. The
    /// channel reads it again if that was [`Room::None`], and before it sends more records than the ring holds.
    fn has_message_room(&mut self, shm: ShmId) -> bool {
        let _ = shm;
        true
    }

    /// Sends a message as [`RecordOutput::send`] sends a record. Returns false, and changes nothing, when there is no
    /// room now or the peer takes no messages.
    fn send_message(&mut self, shm: ShmId, head: &[u8], payload: RecordPayload<'_>) -> bool {
        self.has_message_room(shm) && self.send(shm, head, payload)
    }

    /// Appends a record of which the engine of the peer gets only the head; that engine copies the
    /// payload from the ring ([`crate::Memory::fetch`]) while it handles the record. Returns false,
    /// and changes nothing, when there is no room now, or when the peer has shown less than
    /// [`Room::Ample`].
    fn send_split(&mut self, shm: ShmId, head: &[u8], payload: RecordPayload<'_>) -> bool {
        let _ = (shm, head, payload);
        false
    }

    /// Appends a record whose payload the peer copies from the sender's memory: `len` bytes of
    /// `buf` from `offset` on. The memory is lent until the record is taken or `tag` is revoked
    /// ([`crate::ShmInterface::poll_revoked`]).
    fn send_reference(
        &mut self,
        shm: ShmId,
        head: &[u8],
        (buf, offset, len): (&Buf, u64, u64),
        tag: u64,
    ) -> ReferenceResult {
        let _ = (shm, head, (buf, offset, len), tag);
        ReferenceResult::Never
    }
}

/// The channel type of an endpoint without channels, for the argument of [`crate::Engine::submit`].
#[derive(Debug)]
pub enum NoChannels {}

impl RecordOutput for NoChannels {
    fn send(&mut self, _: ShmId, _: &[u8], _: RecordPayload<'_>) -> bool {
        match *self {}
    }
}

/// The result of an attempt to send a record that refers to its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReferenceResult {
    /// The record was appended to the channel.
    Yes,
    /// The channel has no room for the record now.
    Full,
    /// The peer cannot access the memory, so records must carry the payload.
    Never,
}

/// Largest ring of a channel in bytes. After one end has shown that it has no room for messages,
/// the other end sends at most this many bytes of them.
pub(crate) const MAX_RING: u64 = 16 << 20;

/// The room of one end of a channel for messages of its peer that no receive matches. The end
/// publishes it to the peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Room {
    /// The end has room for every message that fits into one record.
    #[default]
    Ample,
    /// The end has room for very short messages and for headers only: the peer does not use
    /// [`RecordOutput::send_split`].
    Little,
    /// The end has no room: the peer begins no message ([`RecordOutput::has_message_room`]).
    None,
}

/// The result of handling a record that arrived on a shared-memory channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordOutcome {
    /// The record was processed and counts as taken.
    Yes,
    /// The receiver has no room. The driver must offer the record again before any other of its
    /// channel.
    Later,
    /// The channel does not exist, or no honest peer sends such a record. The driver must end the
    /// channel.
    Never,
}

/// The progress of closing a channel: the close notification is not needed, waits to be sent, or is
/// sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClosingState {
    /// This end is not shutting down, so the peer needs no close notification.
    NotNeeded,
    /// This end must send a close notification.
    Due,
    /// This end has sent its close notification.
    Sent,
}

/// A user's message that was sent as one record and whose completion is still due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ShortSend {
    pub(crate) context: u64,
    pub(crate) visibility: Visibility,
    pub(crate) space: MatchSpace,
    pub(crate) tag: u64,
    pub(crate) len: u64,
}

impl ShortSend {
    /// Returns the completion of the message, with `error` if it failed.
    #[inline]
    pub(crate) fn completion(&self, peer: PeerId, error: Option<OpError>) -> Completion {
        let Self { context, visibility, space, tag, len } = *self;
        let user = UserOp { kind: OpKind::Send, context, visibility, when: ReportTime::AtEnd };
        user.completion(peer, &SesLabel { space, tag, data: None, len }, 0, error)
    }
}

/// The owner of a record that the peer has not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InFlight {
    /// No operation: the record is an answer or the close notification, or its operation was
    /// answered.
    Unowned,
    /// The record carries a part of an outbound operation.
    Part(Part),
    /// The record carries a whole message, whose completion is still due.
    Short(ShortSend),
    /// The record carries a whole message whose completion was reported already.
    Reported,
}

/// The state of one shared-memory channel.
#[derive(Debug)]
pub(crate) struct ShmChannel {
    pub(crate) peer: PeerId,
    /// Operations that were started on contexts to the peer are unacknowledged, so the channel may
    /// not send yet.
    pub(crate) held: bool,
    /// Index of the unacknowledged operation that was found last and for which the channel is held.
    pub(crate) held_by: u32,
    /// The owners of the records that this end has sent and the peer has not taken, oldest first.
    in_flight: VecDeque<InFlight>,
    /// Wait for the peer to take the first of these records.
    waiting: Wait,
    /// Number of records of this end that the peer has reported as taken.
    acked: u64,
    /// Number of the peer's records that this end has taken.
    taken: u64,
    /// Answers to the peer's records that are not sent yet, each with the number of the record.
    answers: VecDeque<(u64, Response)>,
    /// Records of the peer whose answers the peer has not taken yet, each with the number of its
    /// answer.
    answering: VecDeque<(u64, u64)>,
    pub(crate) closing: ClosingState,
    /// The peer has sent its close notification on this channel.
    pub(crate) peer_closed: bool,
    /// The kernel will report the end of the peer's process.
    pub(crate) watched: bool,
}

impl ShmChannel {
    /// Records that a shared-memory record was sent, which the peer has yet to take.
    #[inline]
    pub(crate) fn push_in_flight(&mut self, now: Time, record: InFlight) {
        if self.in_flight.is_empty() {
            self.waiting = Wait::start(now);
        }
        self.in_flight.push_back(record);
    }

    /// Returns whether the next record may be one of an operation: the channel is not held or
    /// closing, and no answer is due.
    #[inline]
    pub(crate) fn is_clear(&self) -> bool {
        !self.held && self.closing == ClosingState::NotNeeded && self.answers.is_empty()
    }

    /// Returns the owners of the records that the peer has not taken and, because the channel is
    /// over, never will take.
    pub(crate) fn into_unacknowledged(self) -> impl Iterator<Item = InFlight> {
        self.in_flight.into_iter()
    }

    /// Restarts the wait for the peer, because it reported that it has no room, or because another
    /// record is the first now.
    #[inline]
    pub(crate) fn begin_wait(&mut self, now: Time) {
        self.waiting = Wait::start(now);
    }

    /// Returns the wait for the peer to take a record, if there is one.
    fn wait(&self) -> Option<Wait> {
        (!self.in_flight.is_empty()).then_some(self.waiting)
    }

    /// Returns whether `count` is a possible number of taken records: no fewer than reported
    /// before, and no more than were sent.
    #[inline]
    pub(crate) fn is_valid_ack(&self, count: u64) -> bool {
        count >= self.acked && count - self.acked <= self.in_flight.len() as u64
    }

    /// Returns whether `count` is more than the number of taken records reported so far.
    #[inline]
    pub(crate) const fn is_new_ack(&self, count: u64) -> bool {
        count > self.acked
    }

    /// Returns the next record that the peer has taken, up to `count` of all.
    #[inline]
    pub(crate) fn pop_acked(&mut self, count: u64) -> Option<InFlight> {
        if self.acked >= count {
            return None;
        }
        self.acked += 1;
        while self.answering.front().is_some_and(|(_, answer)| *answer < self.acked) {
            self.answering.pop_front();
        }
        self.in_flight.pop_front()
    }

    /// Marks the record with this number as answered and returns its operation, which will not be
    /// acknowledged any more. Returns `None` if the number names no unanswered operation.
    pub(crate) fn mark_answered(&mut self, number: u64) -> Option<Part> {
        let at = usize::try_from(number.checked_sub(self.acked)?).ok()?;
        let record = self.in_flight.get_mut(at)?;
        let InFlight::Part(part) = *record else { return None };
        *record = InFlight::Unowned;
        Some(part)
    }

    /// Counts a record of the peer as taken, and queues the answer to it, if any.
    #[inline]
    pub(crate) fn record_taken(&mut self, answer: Option<Response>) {
        if let Some(answer) = answer {
            self.answers.push_back((self.taken, answer));
        }
        self.taken += 1;
    }

    /// Returns the next answer to a record of the peer that must be sent.
    #[inline]
    pub(crate) fn next_answer(&self) -> Option<&(u64, Response)> {
        self.answers.front()
    }

    /// Records that the answer from `next_answer` was sent.
    pub(crate) fn mark_answer_sent(&mut self, now: Time) {
        if let Some((number, _)) = self.answers.pop_front() {
            self.answering.push_back((number, self.acked + self.in_flight.len() as u64));
        }
        self.push_in_flight(now, InFlight::Unowned);
    }

    /// Returns the number of the peer's records that it may consider taken.
    #[inline]
    fn acknowledged(&self) -> u64 {
        let unsent = self.answers.front().map_or(self.taken, |(number, _)| *number);
        self.answering.front().map_or(unsent, |(number, _)| *number)
    }

    /// Returns whether the peer is owed an answer or a close notification, or has not taken a short
    /// message.
    fn has_output(&self) -> bool {
        let short = |record: &InFlight| matches!(record, InFlight::Short(_) | InFlight::Reported);
        !self.answers.is_empty()
            || self.closing == ClosingState::Due
            || self.in_flight.iter().any(short)
    }
}

/// An entry of the table of shared-memory channels.
#[derive(Debug, Default)]
struct Entry {
    generation: u32,
    shm: Option<ShmChannel>,
}

/// All shared-memory channels of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct ShmChannels {
    entries: Vec<Entry>,
    /// Number of channels that are held: they may not send yet.
    holding: u32,
    /// Channels that have ended here and of whose end the driver must be notified.
    ended: VecDeque<ShmId>,
    /// Channels that the engine must end.
    ending: VecDeque<ShmId>,
    /// Operations to whose memory records refer and that the peer must no longer access.
    revoked: VecDeque<(ShmId, u64)>,
    /// Peers that were verified since the driver last asked, and whether this endpoint started the
    /// handshake.
    verified: VecDeque<(PeerId, bool)>,
    /// Time of the next check whether peers take records; set while there are records that they
    /// have not taken.
    look_at: Option<Time>,
}

/// Largest number of verified peers kept until the driver asks. Later ones are dropped.
const MAX_VERIFIED: usize = 4096;

/// Time between two checks of channels whose peers take no records.
const LOOK_AGAIN: Span = Span::secs(10);

impl ShmChannels {
    /// Adds a channel to a peer. The channel is held until [`Self::release`].
    pub(crate) fn add(&mut self, now: Time, peer: PeerId) -> ShmId {
        let free = self.entries.iter().position(|entry| entry.shm.is_none());
        let slot = free.unwrap_or_else(|| {
            self.entries.push(Entry::default());
            self.entries.len() - 1
        });
        self.holding += 1;
        let entry = &mut self.entries[slot];
        entry.shm = Some(ShmChannel {
            peer,
            held: true,
            held_by: 0,
            in_flight: VecDeque::new(),
            waiting: Wait::start(now),
            acked: 0,
            taken: 0,
            answers: VecDeque::new(),
            answering: VecDeque::new(),
            closing: ClosingState::NotNeeded,
            peer_closed: false,
            watched: false,
        });
        // There are fewer channels than peers, so the number fits.
        ShmId::new(slot as u32, entry.generation)
    }

    /// Removes a channel and queues the notification of its end for the driver.
    pub(crate) fn remove(&mut self, id: ShmId) -> Option<ShmChannel> {
        self.release(id);
        self.get(id)?;
        let entry = self.entries.get_mut(id.index())?;
        entry.generation = entry.generation.wrapping_add(1);
        self.ended.push_back(id);
        entry.shm.take()
    }

    #[inline]
    pub(crate) fn get(&self, id: ShmId) -> Option<&ShmChannel> {
        let entry = self.entries.get(id.index())?;
        entry.shm.as_ref().filter(|_| id == ShmId::new(id.index() as u32, entry.generation))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: ShmId) -> Option<&mut ShmChannel> {
        let entry = self.entries.get_mut(id.index())?;
        let generation = entry.generation;
        entry.shm.as_mut().filter(|_| id == ShmId::new(id.index() as u32, generation))
    }

    /// Returns all shared-memory channels with their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ShmId, &ShmChannel)> {
        self.entries.iter().zip(0u32..).filter_map(|(entry, slot)| {
            entry.shm.as_ref().map(|shm| (ShmId::new(slot, entry.generation), shm))
        })
    }

    /// Returns the number of the peer's records that it may consider taken.
    #[inline]
    pub(crate) fn acknowledged(&self, id: ShmId) -> u64 {
        self.get(id).map_or(0, ShmChannel::acknowledged)
    }

    /// Returns whether any peer is owed an answer or a close notification, or has not taken a short
    /// message.
    pub(crate) fn has_output(&self) -> bool {
        self.iter().any(|(_, shm)| shm.has_output())
    }

    /// Returns whether any channel is held, that is, may not send yet.
    #[inline]
    pub(crate) const fn has_held(&self) -> bool {
        self.holding > 0
    }

    /// Returns the channels that are held, that is, may not send yet.
    pub(crate) fn held_channels(&self) -> Vec<ShmId> {
        self.iter().filter(|(_, shm)| shm.held).map(|(id, _)| id).collect()
    }

    /// Allows a held channel to send.
    pub(crate) fn release(&mut self, id: ShmId) {
        if self.get_mut(id).is_some_and(|shm| core::mem::replace(&mut shm.held, false)) {
            self.holding -= 1;
        }
    }

    /// Schedules the first check, after `first`, whether the records that were just sent are taken.
    #[inline]
    pub(crate) fn schedule_check(&mut self, now: Time, first: Span) {
        if self.look_at.is_none_or(|at| at > now + first) {
            self.look_at = Some(now + first);
        }
    }

    /// Returns the time of the next check whether peers take records.
    #[inline]
    pub(crate) const fn deadline(&self) -> Option<Time> {
        self.look_at
    }

    /// Returns the channels whose peers have not taken a record for at least `first`, and for how
    /// long, if a check is due. The next check is due when one of the waits reaches `first` or
    /// `last`, and after [`LOOK_AGAIN`] as long as a channel is slow and has not been given up.
    pub(crate) fn take_slow(&mut self, now: Time, first: Span, last: Span) -> Vec<(ShmId, Span)> {
        if self.look_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        let waits: Vec<(ShmId, Wait)> =
            self.iter().filter_map(|(id, shm)| Some((id, shm.wait()?))).collect();
        let ends = waits.iter().flat_map(|(_, wait)| [first, last].map(|span| wait.deadline(span)));
        let watched = |id: &ShmId| self.get(*id).is_some_and(|shm| shm.watched);
        let waited_for = |id: &ShmId, wait: &Wait| watched(id) || wait.elapsed(now) < last;
        let slow =
            waits.iter().any(|(id, wait)| wait.elapsed(now) >= first && waited_for(id, wait));
        let again = slow.then(|| now + LOOK_AGAIN);
        self.look_at = ends.filter(|end| *end > now).chain(again).min();
        let waited = waits.into_iter().map(|(id, wait)| (id, wait.elapsed(now)));
        waited.filter(|(_, waited)| *waited >= first).collect()
    }

    /// Extends all waits by `absent`, because this process did not run and could not hear the
    /// peers.
    pub(crate) fn exclude_absence(&mut self, now: Time, absent: Span) {
        for shm in self.entries.iter_mut().filter_map(|entry| entry.shm.as_mut()) {
            shm.waiting.exclude_absence(now, absent);
        }
    }

    /// Revokes the peer's reference to the memory of the operation `tag`.
    pub(crate) fn revoke(&mut self, id: ShmId, tag: u64) {
        self.revoked.push_back((id, tag));
    }

    /// Returns the next reference of a peer to user memory that the driver must revoke.
    #[inline]
    pub(crate) fn next_revoked(&mut self) -> Option<(ShmId, u64)> {
        self.revoked.pop_front()
    }

    /// Schedules the end of a channel, which the engine carries out later.
    pub(crate) fn schedule_end(&mut self, id: ShmId) {
        self.ending.push_back(id);
    }

    /// Returns whether the end of any channel is scheduled.
    #[inline]
    pub(crate) fn has_scheduled_end(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Returns the next channel whose end is scheduled.
    #[inline]
    pub(crate) fn next_scheduled_end(&mut self) -> Option<ShmId> {
        self.ending.pop_front()
    }

    /// Returns the next channel that ended and that the driver must be notified of.
    #[inline]
    pub(crate) fn next_ended(&mut self) -> Option<ShmId> {
        self.ended.pop_front()
    }

    /// Records that a peer was verified. `asked` says that this endpoint started the handshake.
    pub(crate) fn add_verified_peer(&mut self, peer: PeerId, asked: bool) {
        if self.verified.len() < MAX_VERIFIED {
            self.verified.push_back((peer, asked));
        }
    }

    /// Returns the next peer that passed the handshake, and whether this endpoint started it.
    #[inline]
    pub(crate) fn next_verified_peer(&mut self) -> Option<(PeerId, bool)> {
        self.verified.pop_front()
    }

    /// Returns the peers that must not be forgotten, because the driver may still ask about them.
    pub(crate) fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        let over_shm = self.iter().map(|(_, shm)| shm.peer);
        self.verified.iter().map(|(peer, _)| *peer).chain(over_shm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;
    use crate::wire::{List, ResponseOpcode, ReturnCode};

    #[test]
    fn taken_records_are_acknowledged_in_order_and_once() {
        let mut slab = Slab::default();
        let part = |op| Part { op, offset: 0, len: 1 };
        let mut channels = ShmChannels::default();
        let id = channels.add(Time(1), PeerId(0));
        let shm = channels.get_mut(id).expect("it was added");
        let parts: Vec<Part> = (0..3).map(|n| part(slab.add(n))).collect();
        shm.push_in_flight(Time(1), InFlight::Part(parts[0]));
        shm.push_in_flight(Time(1), InFlight::Unowned);
        shm.push_in_flight(Time(1), InFlight::Part(parts[1]));
        shm.push_in_flight(Time(1), InFlight::Reported);
        assert!(shm.is_valid_ack(4) && !shm.is_valid_ack(5));
        assert_eq!(shm.mark_answered(2), Some(parts[1]));
        assert_eq!(
            (shm.mark_answered(2), shm.mark_answered(1), shm.mark_answered(9)),
            (None, None, None)
        );
        assert_eq!(shm.mark_answered(3), None, "a reported message is not answered");
        assert_eq!(shm.pop_acked(3), Some(InFlight::Part(parts[0])));
        let nobody = Some(InFlight::Unowned);
        assert_eq!((shm.pop_acked(3), shm.pop_acked(3)), (nobody, nobody));
        assert_eq!(shm.pop_acked(3), None);
        assert!(!shm.is_valid_ack(2) && shm.is_valid_ack(3) && shm.is_valid_ack(4));
        assert_eq!(shm.mark_answered(2), None, "the record was taken already");
    }

    #[test]
    fn peer_that_does_not_take_the_first_record_is_slow() {
        let (first, last) = (Span(10), Span(100));
        let mut channels = ShmChannels::default();
        let id = channels.add(Time(1), PeerId(0));
        assert_eq!(channels.deadline(), None);
        for now in [5, 7] {
            channels.get_mut(id).expect("here").push_in_flight(Time(now), InFlight::Unowned);
            channels.schedule_check(Time(now), first);
        }
        assert_eq!(channels.deadline(), Some(Time(15)));
        assert_eq!(channels.take_slow(Time(14), first, last), []);
        assert_eq!(channels.take_slow(Time(15), first, last), [(id, Span(10))]);
        assert_eq!(channels.deadline(), Some(Time(105)));
        channels.exclude_absence(Time(20), Span(3));
        assert_eq!(channels.take_slow(Time(105), first, last), [(id, Span(97))]);
        let shm = channels.get_mut(id).expect("here");
        assert_eq!(shm.pop_acked(1), Some(InFlight::Unowned));
        shm.begin_wait(Time(106));
        assert_eq!(channels.take_slow(Time(108), first, last), []);
        assert_eq!(channels.deadline(), Some(Time(116)), "the next check is for the second record");
        assert_eq!(channels.get_mut(id).expect("here").pop_acked(2), Some(InFlight::Unowned));
        assert_eq!(channels.take_slow(Time(116), first, last), []);
        assert_eq!(channels.deadline(), None);
    }

    #[test]
    fn record_counts_as_taken_only_after_its_answer_was_taken() {
        let mut channels = ShmChannels::default();
        let id = channels.add(Time(1), PeerId(0));
        let answer = Response {
            list: List::Expected,
            opcode: ResponseOpcode::Response,
            return_code: ReturnCode::NoMatch,
            message_id: 1,
            ri_generation: 0,
            job_id: 1,
            modified_length: 0,
        };
        let shm = channels.get_mut(id).expect("it was added");
        for answer in [None, Some(answer), None] {
            shm.record_taken(answer);
        }
        assert_eq!((channels.acknowledged(id), channels.has_output()), (1, true));
        channels.get_mut(id).expect("here").mark_answer_sent(Time(1));
        assert_eq!((channels.acknowledged(id), channels.has_output()), (1, false));
        let shm = channels.get_mut(id).expect("here");
        assert!(shm.is_valid_ack(1) && matches!(shm.pop_acked(1), Some(InFlight::Unowned)));
        assert_eq!(channels.acknowledged(id), 3);
        assert!(channels.remove(id).is_some() && channels.remove(id).is_none());
        assert_eq!((channels.next_ended(), channels.get(id).is_none()), (Some(id), true));
        let next = channels.add(Time(1), PeerId(1));
        assert_eq!((next.index(), next == id), (id.index(), false), "the place is used again");
    }
}
