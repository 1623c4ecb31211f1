//! The outstanding packets of a sending half: the PSN window, and the state of each packet in it.

use std::collections::VecDeque;
use std::collections::vec_deque::{Drain, Iter};

use super::loss_timer::MAX_BACKOFF;
use crate::base::{Psn, Time};
use crate::config::Config;
use crate::config::nominal;

/// Retransmissions of one packet after which its loss is not chance, if its peer answered others
/// meanwhile.
const MAX_QUICK_TRIES: u8 = 24;

/// The reason why a packet must be retransmitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RetransmitCause {
    Trimmed,
    Nacked,
    OutOfOrder,
    Overtaken,
    Probe,
    Timeout,
    /// A switch dropped the speculative packet, as 1RC makes switches do.
    Speculative,
}

impl RetransmitCause {
    /// Returns whether the peer or a switch reported the loss of this transmission; otherwise it is
    /// inferred.
    pub(super) const fn is_reported_loss(self) -> bool {
        matches!(self, Self::Trimmed | Self::Nacked | Self::Speculative)
    }
}

/// Where an outstanding packet is, as far as the sender knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlotState {
    /// The packet is in the network, as far as the sender knows.
    InFlight,
    /// The packet waits to be retransmitted, for this cause.
    Queued(RetransmitCause),
    /// The peer has the packet, but packets before it are missing.
    Acked,
}

/// An outstanding packet. All of the sending half reads it; only the ring changes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<D> {
    pub(super) desc: D,
    /// The time at which the packet was last sent.
    pub(super) sent_at: Time,
    /// Length of the packet's UDP payload in bytes.
    pub(super) bytes: u32,
    /// The bytes that the packet's congestion-control context had delivered when the packet was
    /// last sent, which wrap.
    pub(super) delivered: u32,
    /// The path on which the packet was last sent.
    pub(super) path: u16,
    /// Number of times that the packet was retransmitted, saturating.
    pub(super) tries: u8,
    /// Number of latest transmissions in a row of which no sign of arrival came, saturating.
    pub(super) missing: u8,
    /// Number of retransmissions that were declared lost without a report about them, saturating.
    /// Packets that were declared lost may still arrive.
    pub(super) unreported_losses: u8,
    pub(super) fate: SlotState,
    /// No packet waited behind this one when it was sent, although there was room for more.
    pub(super) app_limited: bool,
    /// The packet left in a run with the one before it, so one event may report both.
    pub(super) follows: bool,
}

impl<D> Slot<D> {
    /// Returns the bytes that congestion control counts for the packet.
    #[inline]
    pub(super) const fn nominal(&self) -> u32 {
        nominal(self.bytes)
    }

    /// Returns when the packet may be taken for lost again: at once, until it was retransmitted
    /// [`MAX_QUICK_TRIES`] times, because more of the same does not help then; afterwards at
    /// growing intervals.
    #[inline]
    pub(super) fn loss_allowed_at(&self, config: &Config) -> Time {
        if self.tries < MAX_QUICK_TRIES {
            return self.sent_at;
        }
        let doublings = (self.tries - MAX_QUICK_TRIES).min(MAX_BACKOFF);
        self.sent_at + (config.rto_min * (1 << doublings)).min(config.rto_max)
    }

    /// Returns whether an answer that echoes `retx` can only be about the last transmission. The
    /// flag distinguishes the first one from the others, of which every earlier one must be known
    /// not to have arrived. UE 1.0 section 3.6.13.1 stops after one retransmission; where switches
    /// trim, packets are sent more often, and the reason is known each time.
    #[inline]
    pub(super) const fn is_last(&self, retx: bool) -> bool {
        retx == (self.tries > 0) && self.unreported_losses == 0
    }

    /// Returns whether the packet left after `resumed`, the end of the last absence of this process.
    /// The answer to an earlier one waited for that end.
    #[inline]
    pub(super) fn is_timely(&self, resumed: Time) -> bool {
        self.sent_at >= resumed
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

/// The outstanding packets of a sending half, by PSN. Places in the ring are indexes below 4096;
/// the oldest packet's is 0.
#[derive(Debug)]
pub(crate) struct Ring<D> {
    /// The PSN of the oldest outstanding packet, `slots[0]`.
    base: Psn,
    /// The PSN that the next new packet will get.
    next: Psn,
    /// One past the newest PSN that the peer acknowledged.
    top: Psn,
    slots: VecDeque<Slot<D>>,
    /// The number of outstanding packets that wait to be retransmitted.
    queued: u16,
    /// A PSN before which no packet waits to be retransmitted.
    cursor: Psn,
    /// The newest PSN that the peer's receive window allows (its ACKs' MPR).
    limit: Psn,
}

impl<D: Copy> Ring<D> {
    /// Makes a ring without packets. The first packet gets `start`, and `window` packets may be
    /// sent before the peer has advertised its window.
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

    /// Returns the PSN of the oldest outstanding packet.
    #[inline]
    pub(crate) const fn base(&self) -> Psn {
        self.base
    }

    /// Returns the PSN that the next new packet will get.
    #[inline]
    pub(crate) const fn next(&self) -> Psn {
        self.next
    }

    /// Returns one past the newest PSN that the peer acknowledged.
    #[inline]
    pub(super) const fn top(&self) -> Psn {
        self.top
    }

    /// Returns the number of packets from the oldest unacknowledged one to the newest one sent.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether all packets that were sent are acknowledged.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns whether the peer's window is closed to new packets.
    #[inline]
    pub(super) fn is_window_closed(&self) -> bool {
        self.next.is_after(self.limit)
    }

    /// Returns whether no new packet may be added: `window` packets are outstanding, or the peer's
    /// window is closed.
    #[inline]
    pub(super) fn is_full(&self, window: u16) -> bool {
        self.slots.len() >= usize::from(window) || self.is_window_closed()
    }

    /// Returns the place (index) in the ring of the packet `psn`, if it is outstanding.
    #[inline]
    pub(super) fn index(&self, psn: Psn) -> Option<usize> {
        let at = usize::try_from(psn.distance(self.base)).ok()?;
        (at < self.slots.len()).then_some(at)
    }

    /// Returns the places in the ring of the outstanding packets among `first..end`.
    pub(super) fn places(&self, first: Psn, end: Psn) -> core::ops::Range<usize> {
        let place = |psn: Psn| usize::try_from(psn.distance(self.base)).unwrap_or(0);
        place(first)..place(end).min(self.slots.len())
    }

    /// Returns the PSN of the packet at place `at` of the ring.
    #[inline]
    pub(super) const fn psn(&self, at: usize) -> Psn {
        self.base.plus(at as u32) // a place is below 4096
    }

    /// Returns the packet at place `at` of the ring, which [`Ring::index`] returned or is below
    /// [`Ring::len`].
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

    /// Returns an iterator over the packets from the oldest to the newest.
    pub(super) fn iter(&self) -> Iter<'_, Slot<D>> {
        self.slots.iter()
    }

    // Transmissions.

    /// Adds a packet that leaves now for the first time. Returns its PSN and its place in the ring.
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
            unreported_losses: 0,
            fate: SlotState::InFlight,
            app_limited: false,
            follows: false,
        });
        (psn, at)
    }

    /// Adds packets that leave now for the first time, all of the same length, on one path and
    /// after the same number of delivered bytes.
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
            unreported_losses: 0,
            fate: SlotState::InFlight,
            app_limited: false,
            follows: true,
        }));
    }

    /// Returns how many new packets may be added until [`Ring::is_full`].
    #[inline]
    pub(super) fn room(&self, window: u16) -> u16 {
        let open = u16::try_from(self.limit.plus(1).distance(self.next)).unwrap_or(0);
        let places = usize::from(window).saturating_sub(self.slots.len());
        u16::try_from(places).map_or(open, |places| places.min(open))
    }

    /// Records that the packet at place `at`, which waited to be retransmitted, leaves on `path`.
    #[inline]
    pub(super) fn send_again(&mut self, at: usize, now: Time, path: u16) {
        self.queued -= 1;
        let slot = &mut self.slots[at];
        slot.sent_at = now;
        slot.fate = SlotState::InFlight;
        slot.tries = slot.tries.saturating_add(1);
        slot.path = path;
    }

    /// Sets the values that are only known when the packet at `at` has left: its final path, and
    /// the bytes that its congestion-control context had delivered.
    #[inline]
    pub(super) fn stamp(&mut self, at: usize, path: u16, delivered: u32) {
        let slot = &mut self.slots[at];
        slot.path = path;
        slot.delivered = delivered;
    }

    /// Records that no packet waits behind the newest one although there is room for more.
    #[inline]
    pub(super) fn mark_app_limited(&mut self) {
        if let Some(slot) = self.slots.back_mut() {
            slot.app_limited = true;
        }
    }

    // Retransmissions.

    /// Returns the number of packets that wait to be retransmitted.
    #[inline]
    pub(crate) const fn queued(&self) -> u16 {
        self.queued
    }

    /// Returns when the packet `psn` was last sent; [`Time::ZERO`] when it is not outstanding.
    pub(crate) fn sent_at(&self, psn: Psn) -> Time {
        self.index(psn).map_or(Time::ZERO, |at| self.slots[at].sent_at)
    }

    /// Makes the packet at place `at`, which is in flight, wait to be retransmitted.
    pub(super) fn enqueue(&mut self, at: usize, cause: RetransmitCause) {
        let slot = &mut self.slots[at];
        debug_assert!(slot.is_in_flight());
        slot.fate = SlotState::Queued(cause);
        if slot.tries > 0 && !cause.is_reported_loss() {
            slot.unreported_losses = slot.unreported_losses.saturating_add(1);
        }
        self.queued += 1;
        let psn = self.psn(at);
        if self.queued == 1 || psn.is_before(self.cursor) {
            self.cursor = psn;
        }
    }

    /// Returns the place of the oldest packet that waits to be retransmitted, and why it does.
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

    /// Shortens the packet at `at`, which waits to be sent again. Its earlier losses do not count
    /// any more, because a longer packet was lost.
    pub(super) fn shorten(&mut self, at: usize, desc: D, bytes: u32) {
        let slot = &mut self.slots[at];
        debug_assert!(matches!(slot.fate, SlotState::Queued(_)));
        (slot.desc, slot.bytes, slot.missing) = (desc, bytes, 0);
        // Packets of a run are acknowledged as a number of packets of one length, which this one
        // does not have any more.
        slot.follows = false;
        if let Some(next) = self.slots.get_mut(at + 1) {
            next.follows = false;
        }
    }

    /// Returns the nominal bytes of a packet at or before the oldest one that waits to be
    /// retransmitted.
    #[inline]
    pub(super) fn queued_nominal(&self) -> u32 {
        let at = self.index(self.cursor).unwrap_or(0);
        self.slots.get(at).map_or(0, Slot::nominal)
    }

    // Acknowledgements.

    /// Records that the packet at place `at` was acknowledged. Returns its previous state.
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

    /// Returns how many of the oldest `most` packets, at least one, share the fate of the first:
    /// they left behind it in a run and are in flight on its path.
    #[inline]
    pub(super) fn run_length(&self, most: usize) -> usize {
        let Some(first) = self.slots.front() else { return 0 };
        if !first.is_in_flight() {
            return 1;
        }
        let with = |slot: &&Slot<D>| slot.follows && slot.is_in_flight() && slot.path == first.path;
        1 + self.slots.iter().take(most).skip(1).take_while(with).count()
    }

    /// Removes the oldest `count` packets, which were in flight and are acknowledged now.
    #[inline]
    pub(super) fn acknowledge_oldest(&mut self, count: usize) {
        self.slots.drain(..count);
        self.base = self.base.plus(count as u32); // places are below 4096
        if self.base.is_after(self.top) {
            self.top = self.base;
        }
    }

    /// Removes the oldest outstanding packet.
    #[inline]
    pub(super) fn pop_oldest(&mut self) {
        self.slots.pop_front();
        self.base = self.base.plus(1);
    }

    /// Removes the oldest packets from the ring, up to the first that is not acknowledged.
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

    /// Records that the peer's receive window allows packets up to `limit`.
    #[inline]
    pub(super) fn open_window(&mut self, limit: Psn) {
        if limit.is_after(self.limit) {
            self.limit = limit;
        }
    }

    // The ring as a whole.

    /// Renumbers the same packets from `start` on, as if none was sent before. All must wait to be
    /// retransmitted.
    pub(super) fn restart(&mut self, start: Psn, window: u16) {
        for slot in &mut self.slots {
            (slot.tries, slot.unreported_losses) = (0, 0);
        }
        (self.base, self.top, self.cursor) = (start, start, start);
        self.next = start.plus(self.slots.len() as u32); // at most 4095
        self.limit = start.plus(u32::from(window)).minus(1);
    }

    /// Takes a buffer for the outstanding packets from the pool, if the ring has none.
    #[inline]
    pub(super) fn borrow(&mut self, pool: &mut Vec<VecDeque<Slot<D>>>) {
        if self.slots.capacity() == 0
            && let Some(slots) = pool.pop()
        {
            self.slots = slots;
        }
    }

    /// Returns the ring's buffer, for the pool. The ring must be empty.
    #[inline]
    pub(super) fn release(&mut self) -> VecDeque<Slot<D>> {
        debug_assert!(self.slots.is_empty());
        core::mem::take(&mut self.slots)
    }

    /// Removes all outstanding packets, the oldest first.
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

    /// Packets of a run are acknowledged together, as a number of packets of the first one's
    /// length. A shortened packet ends the run before it and begins another one behind it.
    #[test]
    fn a_shorter_packet_leaves_its_run() {
        let lengths = |shorter: usize| {
            let mut ring = Ring::new(Psn(7), 64);
            push(&mut ring, 0);
            ring.push_run(Time(0), (1000, 0, 0), [1, 2, 3, 4].into_iter());
            assert_eq!(ring.run_length(64), 5);
            ring.enqueue(shorter, RetransmitCause::Timeout);
            ring.shorten(shorter, 9, 400);
            ring.send_again(shorter, Time(1), 0);
            let mut lengths = vec![];
            while !ring.is_empty() {
                let (count, each) = (ring.run_length(64), ring.slot(0).bytes);
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

    /// Compares random histories with a plain list of fates, across the wrap of the PSNs.
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
        assert!(!ring.is_window_closed() && ring.is_full(1));
        push(&mut ring, 1);
        assert!(ring.is_window_closed() && ring.is_full(64));
        ring.open_window(Psn(9));
        assert!(!ring.is_full(64));
        // The window does not shrink.
        ring.open_window(Psn(8));
        push(&mut ring, 2);
        assert!(ring.is_window_closed());
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
