//! Links: what two endpoints of one host have beside packets. A link is reliable and ordered, both ways. What travels
//! on it is a *frame*: a semantic header as on the wire and its payload, or an answer to a frame (`frame.rs`). There
//! are no numbers, acknowledgements, timers or windows:
//!
//! - Each end counts the frames that it has *taken*, and shows the other that count. An operation's frame is
//!   acknowledged when the count has passed it.
//! - A frame to which there is more to say than that (no room, no such key) is answered by a frame. The count does not
//!   pass it before that answer was taken, so that who sees the count has handled the answer, and need not look for frames
//!   first: what a peer sends in answer to a message comes behind that message's end.
//! - The payload of a long answer, or of a long write, stays where it is: the frame refers to it, and who takes the
//!   frame fetches it, with one copy, straight into its place. It is lent for as long as any payload is; whoever gives the
//!   memory back before that revokes the reference, and what was fetched by then counts for nothing. Where a peer cannot
//!   fetch, frames carry the payload.
//! - A request of a peer that has more answers to take than slots to wait for them in stays where it is, with all
//!   behind it. A message never stays so, for the peer's answers would wait behind it. There is room for those that are
//!   on the link; the peer is shown that there is none for others ([`Room`]), and begins no message then, while its
//!   other frames go on (`outbound/frames.rs`).
//! - A message that is one frame is written in the call that sends it: nothing of it is kept here but what its end has to
//!   say ([`InFlight`]), so a receiver without memory for it has nobody to ask for it later (`inbox/short.rs`). It
//!   keeps what comes, and shows when memory gets short: of messages that are not very short, no more than a link holds
//!   come after that.
//!
//! # The change from packets to a link
//!
//! Two endpoints that were introduced (`handshakes.rs`) may link: each proves to the other that it is the one it
//! was introduced as, by what both know since ([`crate::Linking::proof`]). From then on new operations queue on the link, but
//! none leaves before all that was begun on contexts to that peer has been acknowledged: *held*. So the first frame is
//! the mark behind which nothing comes by packets any more, and the receiver, which matches what arrives as it
//! arrives, keeps the order without knowing of the change. Answers to what came by packets go back by packets.
//!
//! # The end
//!
//! An endpoint that closes says farewell, with its last frame: what the peer has not begun by then goes by packets. Who
//! ends a link for another reason (it does not want to know the peer any more, it does not understand it) says that it
//! does: what travels on the link ends, as what travels on a context does that the peer has forgotten. Where nobody says
//! anything the process has died, and its peer is lost, as one that does not answer packets for long.
//!
//! A peer that lives and takes no frames is given up as one that answers no packets: after the same time, by the same
//! rule ([`Wait`]), for the first frame that it has not taken. One that has no room says so each time it looks at that
//! frame.

pub(crate) mod frame;

use std::collections::VecDeque;

use crate::api::{Completion, MatchSpace, OpError, OpKind, PeerId, Visibility};
use crate::base::{Span, Time};
use crate::channel::LinkId;
use crate::memory::Buf;
use crate::ops::{Part, ReportTime, SesLabel, UserOp};
use crate::reliability::Wait;
use crate::wire::Response;

/// A frame's payload.
#[derive(Clone, Copy, Debug)]
pub enum FramePayload<'a> {
    /// Bytes of the engine.
    Copied(&'a [u8]),
    /// User memory that is lent: `len` bytes from `offset` on.
    Lent {
        /// Where they are.
        buf: &'a Buf,
        /// Where in `buf` they begin, bytes.
        offset: u64,
        /// How many.
        len: u64,
    },
}

/// What carries the frames of links to their peers.
pub trait FrameSink {
    /// Puts a frame, `head` and then `payload`, at the end of a link. False when there is no room now: nothing has
    /// happened then.
    fn send(&mut self, link: LinkId, head: &[u8], payload: FramePayload<'_>) -> bool;

    /// Returns whether the peer had room for another message when the channel last read the peer's [`Room`]. The
    /// channel reads it again if that was [`Room::None`], and before it sends more frames than the link holds.
    fn takes_messages(&mut self, link: LinkId) -> bool {
        let _ = link;
        true
    }

    /// Sends a message as [`FrameSink::send`] sends a frame. Returns false, and changes nothing, when there is no room
    /// now or the peer takes no messages.
    fn send_message(&mut self, link: LinkId, head: &[u8], payload: FramePayload<'_>) -> bool {
        self.takes_messages(link) && self.send(link, head, payload)
    }

    /// Puts a frame at the end of a link of which the peer is handed the head alone; it fetches the payload
    /// ([`crate::Memory::fetch`]) while it handles the frame. False, and nothing has happened, when there is no room now, or
    /// the peer has shown less than [`Room::Ample`].
    fn send_parted(&mut self, link: LinkId, head: &[u8], payload: FramePayload<'_>) -> bool {
        let _ = (link, head, payload);
        false
    }

    /// Puts a frame at the end of a link whose payload the peer fetches from where it is: `len` bytes of `buf` from
    /// `offset` on, which are lent until the frame is taken, or `tag` is revoked ([`crate::Linking::poll_revoked`]).
    fn refer(
        &mut self,
        link: LinkId,
        head: &[u8],
        (buf, offset, len): (&Buf, u64, u64),
        tag: u64,
    ) -> Referred {
        let _ = (link, head, (buf, offset, len), tag);
        Referred::Never
    }
}

/// The channels of an endpoint that has none: what [`crate::Engine::submit`] takes as `None`.
#[derive(Debug)]
pub enum NoChannels {}

impl FrameSink for NoChannels {
    fn send(&mut self, _: LinkId, _: &[u8], _: FramePayload<'_>) -> bool {
        match *self {}
    }
}

/// What came of an attempt to refer to a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Referred {
    /// The frame is on the link.
    Yes,
    /// There is no room now.
    Full,
    /// The peer cannot fetch: the payload has to be in frames.
    Never,
}

/// Bytes of the longest ring that may carry frames. After one end has shown that it has no room for messages, the other
/// end sends at most this many bytes of them.
pub(crate) const MAX_RING: u64 = 16 << 20;

/// The room of one end for messages of its peer that no receive matches. The end shows it to the peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Room {
    /// There is room for every message of one frame.
    #[default]
    Ample,
    /// There is room for very short messages and for headers only: the peer does not use [`FrameSink::send_parted`].
    Little,
    /// There is no room: the peer begins no message ([`FrameSink::takes_messages`]).
    None,
}

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameTaken {
    /// It is done with.
    Yes,
    /// There is no room: it is to be offered again, before any other of its link.
    Later,
    /// The link is not there, or the frame is none of an honest peer: the link ends.
    Never,
}

/// The progress of closing a channel: the close notification is not sent, waits to be sent, or is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClosingState {
    /// There is no reason for one.
    No,
    /// It is to be said.
    Due,
    /// It was.
    Said,
}

/// A message of one frame, of the user, whose end is still to be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ShortSend {
    pub(crate) context: u64,
    pub(crate) visibility: Visibility,
    pub(crate) space: MatchSpace,
    pub(crate) tag: u64,
    pub(crate) len: u64,
}

impl ShortSend {
    /// What the user is told when it ends.
    #[inline]
    pub(crate) fn completion(&self, peer: PeerId, error: Option<OpError>) -> Completion {
        let Self { context, visibility, space, tag, len } = *self;
        let user = UserOp { kind: OpKind::Send, context, visibility, when: ReportTime::AtEnd };
        user.completion(peer, &SesLabel { space, tag, data: None, len }, 0, error)
    }
}

/// Whose a frame is that the peer has not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InFlight {
    /// Nobody's: an answer, or the farewell; or of an operation that was answered.
    Nobody,
    /// A part of an operation.
    Part(Part),
    /// A message of one frame.
    Short(ShortSend),
    /// The same, whose sender was told that it is complete.
    Told,
}

/// A link.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: PeerId,
    /// Operations that were begun on contexts have not all arrived.
    pub(crate) held: bool,
    /// Frames that the peer has not taken.
    in_flight: VecDeque<InFlight>,
    /// For how long the first of them has been that.
    waiting: Wait,
    /// Frames that it has.
    told: u64,
    /// Frames of the peer that we have taken.
    taken: u64,
    /// What there is to say to frames of the peer, by their numbers.
    answers: VecDeque<(u64, Response)>,
    /// The frames of the peer whose answers it has not taken, each with the number of its answer.
    answering: VecDeque<(u64, u64)>,
    pub(crate) farewell: ClosingState,
    /// The peer has said it.
    pub(crate) parted: bool,
    /// The kernel will report the end of the peer's process.
    pub(crate) watched: bool,
}

impl Link {
    /// A frame left.
    #[inline]
    pub(crate) fn sent(&mut self, now: Time, frame: InFlight) {
        if self.in_flight.is_empty() {
            self.waiting = Wait::begin(now);
        }
        self.in_flight.push_back(frame);
    }

    /// Whether the next frame is the next operation's, whichever that is.
    #[inline]
    pub(crate) fn is_clear(&self) -> bool {
        !self.held && self.farewell == ClosingState::No && self.answers.is_empty()
    }

    /// The frames that the peer has not taken and, as the link is over, will not take.
    pub(crate) fn lost(self) -> impl Iterator<Item = InFlight> {
        self.in_flight.into_iter()
    }

    /// The peer holds the first frame in flight back, or another is the first.
    #[inline]
    pub(crate) fn begin_wait(&mut self, now: Time) {
        self.waiting = Wait::begin(now);
    }

    /// For how long the peer has not taken a frame, if there is one.
    fn wait(&self) -> Option<Wait> {
        (!self.in_flight.is_empty()).then_some(self.waiting)
    }

    /// Takes note that the peer has taken `count` frames in all. Whether that many were sent.
    #[inline]
    pub(crate) fn is_told(&self, count: u64) -> bool {
        count >= self.told && count - self.told <= self.in_flight.len() as u64
    }

    /// Whether it is news that the peer has taken `count` frames.
    #[inline]
    pub(crate) const fn tells(&self, count: u64) -> bool {
        count > self.told
    }

    /// The next of the frames that the peer has taken, up to `count` of all.
    #[inline]
    pub(crate) fn next_acked(&mut self, count: u64) -> Option<InFlight> {
        if self.told >= count {
            return None;
        }
        self.told += 1;
        while self.answering.front().is_some_and(|(_, answer)| *answer < self.told) {
            self.answering.pop_front();
        }
        self.in_flight.pop_front()
    }

    /// The frame with this number is answered: its operation, which is not acknowledged any more.
    pub(crate) fn answered(&mut self, number: u64) -> Option<Part> {
        let at = usize::try_from(number.checked_sub(self.told)?).ok()?;
        let frame = self.in_flight.get_mut(at)?;
        let InFlight::Part(part) = *frame else { return None };
        *frame = InFlight::Nobody;
        Some(part)
    }

    /// A frame of the peer was taken, and there may be something to say to it.
    #[inline]
    pub(crate) fn take(&mut self, answer: Option<Response>) {
        if let Some(answer) = answer {
            self.answers.push_back((self.taken, answer));
        }
        self.taken += 1;
    }

    /// The next answer to send.
    #[inline]
    pub(crate) fn next_answer(&self) -> Option<&(u64, Response)> {
        self.answers.front()
    }

    /// It was sent.
    pub(crate) fn answer_sent(&mut self, now: Time) {
        if let Some((number, _)) = self.answers.pop_front() {
            self.answering.push_back((number, self.told + self.in_flight.len() as u64));
        }
        self.sent(now, InFlight::Nobody);
    }

    /// Frames that the peer may know to be taken.
    #[inline]
    fn acknowledged(&self) -> u64 {
        let unsent = self.answers.front().map_or(self.taken, |(number, _)| *number);
        self.answering.front().map_or(unsent, |(number, _)| *number)
    }

    /// Whether the peer is owed an answer, or a farewell, or has not taken a short message.
    fn owes(&self) -> bool {
        let short = |frame: &InFlight| matches!(frame, InFlight::Short(_) | InFlight::Told);
        !self.answers.is_empty()
            || self.farewell == ClosingState::Due
            || self.in_flight.iter().any(short)
    }
}

/// A place for a link.
#[derive(Debug, Default)]
struct Entry {
    generation: u32,
    link: Option<Link>,
}

/// All links of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Links {
    entries: Vec<Entry>,
    /// How many are held.
    holding: u32,
    /// Links that ended here, of which whoever carries their frames is to learn.
    ended: VecDeque<LinkId>,
    /// Links that are to end.
    given_up: VecDeque<LinkId>,
    /// Operations whose memory frames refer to, and which is not to be fetched any more.
    revoked: VecDeque<(LinkId, u64)>,
    /// Peers that were introduced since somebody asked, and whether we asked for that.
    acquainted: VecDeque<(PeerId, bool)>,
    /// When to look whether peers take what is sent to them: running while they have not taken all.
    look_at: Option<Time>,
}

/// Acquaintances kept until somebody asks; of more, those that came first.
const MAX_ACQUAINTED: usize = 4096;

/// The time between two checks of links whose peers take no frames.
const LOOK_AGAIN: Span = Span::secs(10);

impl Links {
    /// Adds a link to a peer.
    pub(crate) fn add(&mut self, now: Time, peer: PeerId) -> LinkId {
        let free = self.entries.iter().position(|entry| entry.link.is_none());
        let slot = free.unwrap_or_else(|| {
            self.entries.push(Entry::default());
            self.entries.len() - 1
        });
        self.holding += 1;
        let entry = &mut self.entries[slot];
        entry.link = Some(Link {
            peer,
            held: true,
            in_flight: VecDeque::new(),
            waiting: Wait::begin(now),
            told: 0,
            taken: 0,
            answers: VecDeque::new(),
            answering: VecDeque::new(),
            farewell: ClosingState::No,
            parted: false,
            watched: false,
        });
        // Fewer than there are peers.
        LinkId::new(slot as u32, entry.generation)
    }

    /// Takes a link out.
    pub(crate) fn remove(&mut self, id: LinkId) -> Option<Link> {
        self.release(id);
        self.get(id)?;
        let entry = self.entries.get_mut(id.index())?;
        entry.generation = entry.generation.wrapping_add(1);
        self.ended.push_back(id);
        entry.link.take()
    }

    #[inline]
    pub(crate) fn get(&self, id: LinkId) -> Option<&Link> {
        let entry = self.entries.get(id.index())?;
        entry.link.as_ref().filter(|_| id == LinkId::new(id.index() as u32, entry.generation))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        let entry = self.entries.get_mut(id.index())?;
        let generation = entry.generation;
        entry.link.as_mut().filter(|_| id == LinkId::new(id.index() as u32, generation))
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LinkId, &Link)> {
        self.entries.iter().zip(0u32..).filter_map(|(entry, slot)| {
            entry.link.as_ref().map(|link| (LinkId::new(slot, entry.generation), link))
        })
    }

    /// Frames of the peer that it may know to be taken.
    #[inline]
    pub(crate) fn acknowledged(&self, id: LinkId) -> u64 {
        self.get(id).map_or(0, Link::acknowledged)
    }

    /// Whether a peer is owed an answer, or a farewell, or has not taken a short message.
    pub(crate) fn owe(&self) -> bool {
        self.iter().any(|(_, link)| link.owes())
    }

    /// Whether any is held.
    #[inline]
    pub(crate) const fn is_holding(&self) -> bool {
        self.holding > 0
    }

    /// Those that are held.
    pub(crate) fn held(&self) -> Vec<LinkId> {
        self.iter().filter(|(_, link)| link.held).map(|(id, _)| id).collect()
    }

    /// A link is held no more.
    pub(crate) fn release(&mut self, id: LinkId) {
        if self.get_mut(id).is_some_and(|link| core::mem::replace(&mut link.held, false)) {
            self.holding -= 1;
        }
    }

    /// Frames left: it is looked after `first` whether they were taken.
    #[inline]
    pub(crate) fn watch(&mut self, now: Time, first: Span) {
        if self.look_at.is_none_or(|at| at > now + first) {
            self.look_at = Some(now + first);
        }
    }

    /// When to look whether peers take what is sent to them.
    #[inline]
    pub(crate) const fn deadline(&self) -> Option<Time> {
        self.look_at
    }

    /// Returns the peers that have not taken a frame for at least `first`, and for how long, if a check is due. The
    /// next check is due when one of them has not for `last`, and after [`LOOK_AGAIN`] while there is one.
    pub(crate) fn slow(&mut self, now: Time, first: Span, last: Span) -> Vec<(LinkId, Span)> {
        if self.look_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        let waits: Vec<(LinkId, Wait)> =
            self.iter().filter_map(|(id, link)| Some((id, link.wait()?))).collect();
        let ends = waits.iter().flat_map(|(_, wait)| [first, last].map(|span| wait.end(span)));
        let watched = |id: &LinkId| self.get(*id).is_some_and(|link| link.watched);
        let waited_for = |id: &LinkId, wait: &Wait| watched(id) || wait.waited(now) < last;
        let slow = waits.iter().any(|(id, wait)| wait.waited(now) >= first && waited_for(id, wait));
        let again = slow.then(|| now + LOOK_AGAIN);
        self.look_at = ends.filter(|end| *end > now).chain(again).min();
        let waited = waits.into_iter().map(|(id, wait)| (id, wait.waited(now)));
        waited.filter(|(_, waited)| *waited >= first).collect()
    }

    /// Nobody was here to listen for `absent`, until now.
    pub(crate) fn excuse(&mut self, now: Time, absent: Span) {
        for link in self.entries.iter_mut().filter_map(|entry| entry.link.as_mut()) {
            link.waiting.excuse(now, absent);
        }
    }

    /// Nothing of an operation is to be fetched any more.
    pub(crate) fn revoke(&mut self, id: LinkId, tag: u64) {
        self.revoked.push_back((id, tag));
    }

    /// The next operation of which nothing is to be fetched any more.
    #[inline]
    pub(crate) fn next_revoked(&mut self) -> Option<(LinkId, u64)> {
        self.revoked.pop_front()
    }

    /// A link is to end.
    pub(crate) fn give_up(&mut self, id: LinkId) {
        self.given_up.push_back(id);
    }

    /// Whether a link is to end.
    #[inline]
    pub(crate) fn has_given_up(&self) -> bool {
        !self.given_up.is_empty()
    }

    /// The next link that is to end.
    #[inline]
    pub(crate) fn next_given_up(&mut self) -> Option<LinkId> {
        self.given_up.pop_front()
    }

    /// The next link that ended.
    #[inline]
    pub(crate) fn next_ended(&mut self) -> Option<LinkId> {
        self.ended.pop_front()
    }

    /// A peer was introduced; `asked` when we asked for it.
    pub(crate) fn acquaint(&mut self, peer: PeerId, asked: bool) {
        if self.acquainted.len() < MAX_ACQUAINTED {
            self.acquainted.push_back((peer, asked));
        }
    }

    /// The next peer that was introduced.
    #[inline]
    pub(crate) fn next_acquainted(&mut self) -> Option<(PeerId, bool)> {
        self.acquainted.pop_front()
    }

    /// Peers that somebody may still ask about.
    pub(crate) fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        let linked = self.iter().map(|(_, link)| link.peer);
        self.acquainted.iter().map(|(peer, _)| *peer).chain(linked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;
    use crate::wire::{List, ResponseOpcode, ReturnCode};

    #[test]
    fn what_is_taken_is_acknowledged_in_order_and_once() {
        let mut slab = Slab::default();
        let part = |op| Part { op, offset: 0, len: 1 };
        let mut links = Links::default();
        let id = links.add(Time(1), PeerId(0));
        let link = links.get_mut(id).expect("it was added");
        let parts: Vec<Part> = (0..3).map(|n| part(slab.add(n))).collect();
        link.sent(Time(1), InFlight::Part(parts[0]));
        link.sent(Time(1), InFlight::Nobody);
        link.sent(Time(1), InFlight::Part(parts[1]));
        link.sent(Time(1), InFlight::Told);
        assert!(link.is_told(4) && !link.is_told(5));
        assert_eq!(link.answered(2), Some(parts[1]));
        assert_eq!((link.answered(2), link.answered(1), link.answered(9)), (None, None, None));
        assert_eq!(link.answered(3), None, "nothing is to be said to that");
        assert_eq!(link.next_acked(3), Some(InFlight::Part(parts[0])));
        let nobody = Some(InFlight::Nobody);
        assert_eq!((link.next_acked(3), link.next_acked(3)), (nobody, nobody));
        assert_eq!(link.next_acked(3), None);
        assert!(!link.is_told(2) && link.is_told(3) && link.is_told(4));
        assert_eq!(link.answered(2), None, "it is past");
    }

    #[test]
    fn who_does_not_take_the_first_frame_is_slow() {
        let (first, last) = (Span(10), Span(100));
        let mut links = Links::default();
        let id = links.add(Time(1), PeerId(0));
        assert_eq!(links.deadline(), None);
        for now in [5, 7] {
            links.get_mut(id).expect("here").sent(Time(now), InFlight::Nobody);
            links.watch(Time(now), first);
        }
        assert_eq!(links.deadline(), Some(Time(15)));
        assert_eq!(links.slow(Time(14), first, last), []);
        assert_eq!(links.slow(Time(15), first, last), [(id, Span(10))]);
        assert_eq!(links.deadline(), Some(Time(105)));
        links.excuse(Time(20), Span(3));
        assert_eq!(links.slow(Time(105), first, last), [(id, Span(97))]);
        let link = links.get_mut(id).expect("here");
        assert_eq!(link.next_acked(1), Some(InFlight::Nobody));
        link.begin_wait(Time(106));
        assert_eq!(links.slow(Time(108), first, last), []);
        assert_eq!(links.deadline(), Some(Time(116)), "the other one");
        assert_eq!(links.get_mut(id).expect("here").next_acked(2), Some(InFlight::Nobody));
        assert_eq!(links.slow(Time(116), first, last), []);
        assert_eq!(links.deadline(), None);
    }

    #[test]
    fn a_frame_is_not_counted_before_its_answer_was_taken() {
        let mut links = Links::default();
        let id = links.add(Time(1), PeerId(0));
        let answer = Response {
            list: List::Expected,
            opcode: ResponseOpcode::Response,
            return_code: ReturnCode::NoMatch,
            message_id: 1,
            ri_generation: 0,
            job_id: 1,
            modified_length: 0,
        };
        let link = links.get_mut(id).expect("it was added");
        for answer in [None, Some(answer), None] {
            link.take(answer);
        }
        assert_eq!((links.acknowledged(id), links.owe()), (1, true));
        links.get_mut(id).expect("here").answer_sent(Time(1));
        assert_eq!((links.acknowledged(id), links.owe()), (1, false));
        let link = links.get_mut(id).expect("here");
        assert!(link.is_told(1) && matches!(link.next_acked(1), Some(InFlight::Nobody)));
        assert_eq!(links.acknowledged(id), 3);
        assert!(links.remove(id).is_some() && links.remove(id).is_none());
        assert_eq!((links.next_ended(), links.get(id).is_none()), (Some(id), true));
        let next = links.add(Time(1), PeerId(1));
        assert_eq!((next.index(), next == id), (id.index(), false), "the place is used again");
    }
}
