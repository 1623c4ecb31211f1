//! What is outstanding: the PSN window, and what is known of each packet in it.

use std::collections::VecDeque;
use std::collections::vec_deque::{Drain, Iter};

use super::loss_timer::MAX_BACKOFF;
use super::nominal;
use crate::base::{Psn, Time};
use crate::config::Config;
use crate::shared::Shared;

/// A packet that was sent again so often, while its peer answered others, is not lost by chance.
const OFTEN: u8 = 24;

/// The reason why a packet is sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RetransmitCause {
    Trimmed,
    Nacked,
    OutOfOrder,
    Overtaken,
    Probe,
    Timeout,
    /// A switch dropped it, as was to be expected (1RC).
    Speculative,
}

impl RetransmitCause {
    /// The peer, or a switch, said that this transmission did not arrive; otherwise it is inferred.
    pub(super) const fn is_told(self) -> bool {
        matches!(self, Self::Trimmed | Self::Nacked | Self::Speculative)
    }
}

/// The state of an outstanding packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlotState {
    /// In the network, as far as one knows.
    InFlight,
    /// Waiting to be sent again.
    Queued(RetransmitCause),
    /// The peer has it; packets before it are missing.
    Acked,
}

/// One outstanding packet. Read anywhere in the sending half, changed by its ring alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<D> {
    pub(super) desc: D,
    /// When it was last sent.
    pub(super) sent_at: Time,
    /// UDP payload length.
    pub(super) bytes: u32,
    /// What the context had delivered when it was last sent; wraps.
    pub(super) delivered: u32,
    /// The path it was last sent on.
    pub(super) path: u16,
    /// Times it was sent again, saturating.
    pub(super) tries: u8,
    /// Of the times it was sent, those in a row of which no trace was left, saturating.
    pub(super) missing: u8,
    /// Retransmissions of it that were taken for lost without a word about them, saturating: they may yet arrive.
    pub(super) strays: u8,
    pub(super) fate: SlotState,
    /// Nothing waited behind it, and there was room for more.
    pub(super) app_limited: bool,
    /// It left in a run with the packet before it: what becomes of both may be told together.
    pub(super) follows: bool,
}

impl<D> Slot<D> {
    /// Bytes the congestion control counts for it.
    #[inline]
    pub(super) const fn nominal(&self) -> u32 {
        nominal(self.bytes)
    }

    /// When it may be taken for lost again: at once, until it was sent so often that more of the same will not
    /// help; then ever later.
    #[inline]
    pub(super) fn rests_until(&self, config: &Config) -> Time {
        if self.tries < OFTEN {
            return self.sent_at;
        }
        let doublings = (self.tries - OFTEN).min(MAX_BACKOFF);
        self.sent_at + (config.rto_min * (1 << doublings)).min(config.rto_max)
    }

    /// Whether an answer that echoes `retx` can only be about its last transmission: the flag tells the first one
    /// from the others, and of these every earlier one is known not to have arrived. UE 1.0 section 3.6.13.1 stops
    /// after one retransmission; where switches trim, packets are sent more often, and each time it is known why.
    #[inline]
    pub(super) const fn is_last(&self, retx: bool) -> bool {
        retx == (self.tries > 0) && self.strays == 0
    }

    /// The answer to what left before a pause of this process waited for the end of that.
    #[inline]
    pub(super) fn is_timely<Any>(&self, shared: &Shared<Any>) -> bool {
        self.sent_at >= shared.resumed
    }

    #[inline]
    pub(super) fn is_in_flight(&self) -> bool {
        self.fate == SlotState::InFlight
    }

    #[inline]
    pub(super) fn is_acked(&self) -> bool {
        self.fate == SlotState::Acked
    }
}

/// The outstanding packets of a sending half, by PSN. Places in it are indexes below 4096, the oldest
/// packet's is 0.
#[derive(Debug)]
pub(crate) struct Ring<D> {
    /// The oldest outstanding PSN; `slots[0]`.
    base: Psn,
    /// The PSN of the next new packet.
    next: Psn,
    /// One past the newest PSN acknowledged.
    top: Psn,
    slots: VecDeque<Slot<D>>,
    /// Packets waiting to be sent again.
    queued: u16,
    /// No packet before this one waits.
    cursor: Psn,
    /// The newest PSN the peer's MPR allows.
    limit: Psn,
}

impl<D: Copy> Ring<D> {
    /// Nothing outstanding; the first packet gets `start`, and `window` of them may be sent before the
    /// peer has said what it takes.
    pub(super) fn new(start: Psn, window: u16) -> Self {
        Self {
            base: start,
            next: start,
            top: start,
            slots: VecDeque::new(),
            queued: 0,
            cursor: start,
            limit: start.plus(u32::from(window)).minus(1),
        }
    }

    /// The oldest outstanding PSN.
    #[inline]
    pub(crate) const fn base(&self) -> Psn {
        self.base
    }

    /// The PSN of the next new packet.
    #[inline]
    pub(crate) const fn next(&self) -> Psn {
        self.next
    }

    /// One past the newest PSN acknowledged.
    #[inline]
    pub(super) const fn top(&self) -> Psn {
        self.top
    }

    /// Packets outstanding.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Nothing is outstanding.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The peer's window takes no new packet.
    #[inline]
    pub(super) fn is_shut(&self) -> bool {
        self.next.is_after(self.limit)
    }

    /// No new packet may join: `window` packets are outstanding, or the peer's window is shut.
    #[inline]
    pub(super) fn is_full(&self, window: u16) -> bool {
        self.slots.len() >= usize::from(window) || self.is_shut()
    }

    /// Where an outstanding packet is.
    #[inline]
    pub(super) fn index(&self, psn: Psn) -> Option<usize> {
        let at = usize::try_from(psn.distance(self.base)).ok()?;
        (at < self.slots.len()).then_some(at)
    }

    /// The places of what is outstanding of `first..end`.
    pub(super) fn places(&self, first: Psn, end: Psn) -> core::ops::Range<usize> {
        let place = |psn: Psn| usize::try_from(psn.distance(self.base)).unwrap_or(0);
        place(first)..place(end).min(self.slots.len())
    }

    /// The PSN of the packet at a place.
    #[inline]
    pub(super) const fn psn(&self, at: usize) -> Psn {
        self.base.plus(at as u32) // a place is below 4096
    }

    /// The packet at a place that [`Ring::index`] gave, or below [`Ring::len`].
    #[inline]
    pub(super) fn slot(&self, at: usize) -> &Slot<D> {
        &self.slots[at]
    }

    #[inline]
    pub(super) fn slot_mut(&mut self, at: usize) -> &mut Slot<D> {
        &mut self.slots[at]
    }

    #[inline]
    pub(super) fn oldest(&self) -> Option<&Slot<D>> {
        self.slots.front()
    }

    #[inline]
    pub(super) fn newest(&self) -> Option<&Slot<D>> {
        self.slots.back()
    }

    /// From the oldest to the newest.
    pub(super) fn iter(&self) -> Iter<'_, Slot<D>> {
        self.slots.iter()
    }

    // Transmissions.

    /// Adds a packet that leaves now for the first time; its PSN and place.
    #[inline]
    pub(super) fn push(&mut self, now: Time, desc: D, bytes: u32, path: u16) -> (Psn, usize) {
        let (psn, at) = (self.next, self.slots.len());
        self.next = psn.plus(1);
        self.slots.push_back(Slot {
            desc,
            sent_at: now,
            bytes,
            delivered: 0,
            path,
            tries: 0,
            missing: 0,
            strays: 0,
            fate: SlotState::InFlight,
            app_limited: false,
            follows: false,
        });
        (psn, at)
    }

    /// Adds packets that leave now for the first time, all of so many bytes, on one path, when so much was
    /// delivered.
    #[inline]
    pub(super) fn push_run(
        &mut self,
        now: Time,
        (bytes, path, delivered): (u32, u16, u32),
        descs: impl ExactSizeIterator<Item = D>,
    ) {
        self.next = self.next.plus(descs.len() as u32); // a run has at most 65535
        self.slots.extend(descs.map(|desc| Slot {
            desc,
            sent_at: now,
            bytes,
            delivered,
            path,
            tries: 0,
            missing: 0,
            strays: 0,
            fate: SlotState::InFlight,
            app_limited: false,
            follows: true,
        }));
    }

    /// How many new packets may join until [`Ring::is_full`].
    #[inline]
    pub(super) fn room(&self, window: u16) -> u16 {
        let open = u16::try_from(self.limit.plus(1).distance(self.next)).unwrap_or(0);
        let places = usize::from(window).saturating_sub(self.slots.len());
        u16::try_from(places).map_or(open, |places| places.min(open))
    }

    /// The packet at `at`, which waited, leaves again on `path`.
    #[inline]
    pub(super) fn send_again(&mut self, at: usize, now: Time, path: u16) {
        self.queued -= 1;
        let slot = &mut self.slots[at];
        slot.sent_at = now;
        slot.fate = SlotState::InFlight;
        slot.tries = slot.tries.saturating_add(1);
        slot.path = path;
    }

    /// What is only known when the packet at `at` has left: its path at last, and what its context had
    /// delivered.
    #[inline]
    pub(super) fn stamp(&mut self, at: usize, path: u16, delivered: u32) {
        let slot = &mut self.slots[at];
        slot.path = path;
        slot.delivered = delivered;
    }

    /// Nothing waits behind the newest packet, though there is room for more.
    #[inline]
    pub(super) fn limit_newest(&mut self) {
        if let Some(slot) = self.slots.back_mut() {
            slot.app_limited = true;
        }
    }

    // Retransmissions.

    /// Packets that wait to be sent again.
    #[inline]
    pub(crate) const fn queued(&self) -> u16 {
        self.queued
    }

    /// When a packet was sent last; long ago when it is not outstanding.
    pub(crate) fn sent_at(&self, psn: Psn) -> Time {
        self.index(psn).map_or(Time::ZERO, |at| self.slots[at].sent_at)
    }

    /// The packet at `at`, which is in flight, is to be sent again.
    pub(super) fn enqueue(&mut self, at: usize, cause: RetransmitCause) {
        let slot = &mut self.slots[at];
        debug_assert!(slot.is_in_flight());
        slot.fate = SlotState::Queued(cause);
        if slot.tries > 0 && !cause.is_told() {
            slot.strays = slot.strays.saturating_add(1);
        }
        self.queued += 1;
        let psn = self.psn(at);
        if self.queued == 1 || psn.is_before(self.cursor) {
            self.cursor = psn;
        }
    }

    /// The oldest packet that waits to be sent again.
    #[inline]
    pub(super) fn next_queued(&mut self) -> Option<(usize, RetransmitCause)> {
        if self.queued == 0 {
            return None;
        }
        let from = self.index(self.cursor).unwrap_or(0);
        let found = (from..self.slots.len()).find_map(|at| match self.slots[at].fate {
            SlotState::Queued(cause) => Some((at, cause)),
            _ => None,
        })?;
        self.cursor = self.psn(found.0);
        Some(found)
    }

    /// Shortens the packet at `at`, which waits to be sent again. Its earlier losses count no more, because they were
    /// those of a longer packet.
    pub(super) fn shorten(&mut self, at: usize, desc: D, bytes: u32) {
        let slot = &mut self.slots[at];
        debug_assert!(matches!(slot.fate, SlotState::Queued(_)));
        (slot.desc, slot.bytes, slot.missing) = (desc, bytes, 0);
        // Packets of a run are acknowledged as so many of one length, which this one does not have any more.
        slot.follows = false;
        if let Some(next) = self.slots.get_mut(at + 1) {
            next.follows = false;
        }
    }

    /// Nominal bytes of a packet at or before the one that waits longest to be sent again.
    #[inline]
    pub(super) fn queued_nominal(&self) -> u32 {
        let at = self.index(self.cursor).unwrap_or(0);
        self.slots.get(at).map_or(0, Slot::nominal)
    }

    // Acknowledgements.

    /// The packet at `at` was acknowledged; what it was until now.
    #[inline]
    pub(super) fn acknowledge(&mut self, at: usize) -> SlotState {
        let was = core::mem::replace(&mut self.slots[at].fate, SlotState::Acked);
        if let SlotState::Queued(_) = was {
            self.queued -= 1;
        }
        let end = self.psn(at).plus(1);
        if end.is_after(self.top) {
            self.top = end;
        }
        was
    }

    /// Of the oldest `most` packets, at least one, how many share the fate of the first, in flight on its path,
    /// behind which they left in a run.
    #[inline]
    pub(super) fn together(&self, most: usize) -> usize {
        let Some(first) = self.slots.front() else { return 0 };
        if !first.is_in_flight() {
            return 1;
        }
        let with = |slot: &&Slot<D>| slot.follows && slot.is_in_flight() && slot.path == first.path;
        1 + self.slots.iter().take(most).skip(1).take_while(with).count()
    }

    /// The oldest `count` packets, which are in flight, were acknowledged: forgets them.
    #[inline]
    pub(super) fn acknowledge_oldest(&mut self, count: usize) {
        self.slots.drain(..count);
        self.base = self.base.plus(count as u32); // places are below 4096
        if self.base.is_after(self.top) {
            self.top = self.base;
        }
    }

    /// Forgets the oldest packet.
    #[inline]
    pub(super) fn pop_oldest(&mut self) {
        self.slots.pop_front();
        self.base = self.base.plus(1);
    }

    /// Forgets the oldest packets as far as they are acknowledged.
    #[inline]
    pub(super) fn advance(&mut self) {
        while self.slots.front().is_some_and(Slot::is_acked) {
            self.pop_oldest();
        }
        for psn in [&mut self.cursor, &mut self.top] {
            if psn.is_before(self.base) {
                *psn = self.base;
            }
        }
    }

    /// The peer takes packets up to `limit`.
    #[inline]
    pub(super) fn open_window(&mut self, limit: Psn) {
        if limit.is_after(self.limit) {
            self.limit = limit;
        }
    }

    // The whole.

    /// Starts again at `start`, with the same packets, none of them sent before; all must be queued.
    pub(super) fn restart(&mut self, start: Psn, window: u16) {
        for slot in &mut self.slots {
            (slot.tries, slot.strays) = (0, 0);
        }
        (self.base, self.top, self.cursor) = (start, start, start);
        self.next = start.plus(self.slots.len() as u32); // at most 4095
        self.limit = start.plus(u32::from(window)).minus(1);
    }

    /// Takes memory for its packets, if it has none.
    #[inline]
    pub(super) fn borrow(&mut self, pool: &mut Vec<VecDeque<Slot<D>>>) {
        if self.slots.capacity() == 0
            && let Some(slots) = pool.pop()
        {
            self.slots = slots;
        }
    }

    /// Gives the memory away; only when empty.
    #[inline]
    pub(super) fn release(&mut self) -> VecDeque<Slot<D>> {
        debug_assert!(self.slots.is_empty());
        core::mem::take(&mut self.slots)
    }

    /// Takes everything out, the oldest first.
    pub(super) fn drain(&mut self) -> Drain<'_, Slot<D>> {
        self.queued = 0;
        self.slots.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Rng;

    fn push(ring: &mut Ring<u32>, desc: u32) {
        let (psn, at) = ring.push(Time(u64::from(desc)), desc, 1000, 0);
        assert_eq!((ring.index(psn), ring.psn(at), ring.slot(at).desc), (Some(at), psn, desc));
    }

    /// Packets of a run are acknowledged together, as so many packets of the first one's length; one that was made shorter
    /// ends the run before it and begins another one behind it.
    #[test]
    fn a_packet_that_became_shorter_is_not_of_its_run() {
        let lengths = |shorter: usize| {
            let mut ring = Ring::new(Psn(7), 64);
            push(&mut ring, 0);
            ring.push_run(Time(0), (1000, 0, 0), [1, 2, 3, 4].into_iter());
            assert_eq!(ring.together(64), 5);
            ring.enqueue(shorter, RetransmitCause::Timeout);
            ring.shorten(shorter, 9, 400);
            ring.send_again(shorter, Time(1), 0);
            let mut lengths = vec![];
            while !ring.is_empty() {
                let (count, each) = (ring.together(64), ring.slot(0).bytes);
                assert!((0..count).all(|at| ring.slot(at).bytes == each));
                ring.acknowledge_oldest(count);
                lengths.push((count, each));
            }
            lengths
        };
        assert_eq!(lengths(0), [(1, 400), (4, 1000)]);
        assert_eq!(lengths(2), [(2, 1000), (1, 400), (2, 1000)]);
        assert_eq!(lengths(4), [(4, 1000), (1, 400)]);
    }

    /// Random histories against a plain list of fates, over the wrap of the PSNs.
    #[test]
    fn agrees_with_a_list_of_fates() {
        let mut rng = Rng::new(3);
        let mut ring = Ring::new(Psn(u32::MAX - 5000), 64);
        let mut model: VecDeque<(u32, SlotState)> = VecDeque::new();
        let mut sent = 0;
        for _ in 0..50_000 {
            match rng.below(4) {
                0 | 1 if !ring.is_full(64) => {
                    push(&mut ring, sent);
                    model.push_back((sent, SlotState::InFlight));
                    sent += 1;
                }
                2 if !model.is_empty() => {
                    let at = rng.below(model.len() as u32) as usize;
                    if model[at].1 == SlotState::InFlight {
                        ring.enqueue(at, RetransmitCause::Timeout);
                        model[at].1 = SlotState::Queued(RetransmitCause::Timeout);
                    } else if rng.chance(0.5)
                        && let Some((at, cause)) = ring.next_queued()
                    {
                        assert_eq!(model[at].1, SlotState::Queued(cause));
                        assert!(model.range(..at).all(|(_, f)| !matches!(f, SlotState::Queued(_))));
                        ring.send_again(at, Time(9), 1);
                        model[at].1 = SlotState::InFlight;
                    }
                }
                _ if !model.is_empty() => {
                    let at = rng.below(model.len().min(8) as u32) as usize;
                    if model[at].1 != SlotState::Acked {
                        assert_eq!(ring.acknowledge(at), model[at].1);
                        model[at].1 = SlotState::Acked;
                        assert!(ring.top().is_after(ring.psn(at)));
                    }
                    ring.advance();
                    while model.front().is_some_and(|(_, fate)| *fate == SlotState::Acked) {
                        model.pop_front();
                    }
                    ring.open_window(ring.base().plus(63));
                }
                _ => {}
            }
            assert!(ring.iter().map(|slot| (slot.desc, slot.fate)).eq(model.iter().copied()));
            let queued =
                model.iter().filter(|(_, fate)| matches!(fate, SlotState::Queued(_))).count();
            assert_eq!(usize::from(ring.queued()), queued);
            assert_eq!(ring.next(), ring.base().plus(model.len() as u32));
        }
        assert!(ring.base().0 < 100_000, "the wrap was crossed");
    }

    #[test]
    fn the_peers_window_shuts_and_opens() {
        let mut ring = Ring::new(Psn(7), 2);
        push(&mut ring, 0);
        assert!(!ring.is_shut() && ring.is_full(1));
        push(&mut ring, 1);
        assert!(ring.is_shut() && ring.is_full(64));
        ring.open_window(Psn(9));
        assert!(!ring.is_full(64));
        // It does not shrink.
        ring.open_window(Psn(8));
        push(&mut ring, 2);
        assert!(ring.is_shut());
    }

    #[test]
    fn a_restarted_ring_has_the_same_packets_under_other_numbers() {
        let mut ring = Ring::new(Psn(7), 64);
        for desc in 0..3 {
            push(&mut ring, desc);
            ring.enqueue(desc as usize, RetransmitCause::Nacked);
        }
        ring.send_again(0, Time(1), 4);
        ring.enqueue(0, RetransmitCause::Nacked);
        ring.restart(Psn(1000), 64);
        assert_eq!((ring.base(), ring.next(), ring.queued()), (Psn(1000), Psn(1003), 3));
        for at in 0..3 {
            assert_eq!(ring.next_queued(), Some((at, RetransmitCause::Nacked)));
            assert_eq!(ring.slot(at).tries, 0);
            ring.send_again(at, Time(2), 0);
        }
        assert_eq!(ring.drain().map(|slot| slot.desc).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
