//! The event queue: a timing wheel of two levels, and a heap for distant events. The queue returns
//! events by time, events of one time by their rank, and events of one rank in the order in which
//! they were added. Once the pools have grown, it allocates no memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Picos;

/// Number of fine slots in a page of the timing wheel, a power of two.
const PAGE: usize = 1 << 15;
const PAGE_BITS: u32 = PAGE.trailing_zeros();
/// Number of slots of the first level: those of the current page and of the next one, so that
/// events less than a page away go into their final slot at once.
const FINE: usize = 2 * PAGE;
/// Number of slots of the second level, each as long as a page.
const COARSE: usize = 1 << 11;
/// Number of bits of the rank of an event among those of its time.
pub(super) const RANK_BITS: u32 = 37;
/// Number of bits of an event's time within a page.
const TIME_BITS: u32 = u64::BITS - RANK_BITS;
/// Marks the end of a list of chunks.
const NONE: u32 = u32::MAX;

/// A group of events of one slot. A slot is a list of chunks, so that it is read in sequences of
/// adjacent events.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Chunk([Event; CHUNK]);

/// Number of events in a chunk, which fills a cache line.
const CHUNK: usize = 4;

/// The wheel empties slots together until they hold this many events, so that the driver can
/// prefetch memory for many.
pub(super) const BATCH: usize = 64;
/// Maximum number of fine slots that are emptied together.
const SPAN: usize = 64;

/// An event that waits in the wheel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(align(16))]
struct Event {
    /// Time since the start of its slot, its page, or the slots that are being emptied, in the
    /// upper bits; rank in the lower bits.
    key: u64,
    what: u64,
}

impl Event {
    const fn new(within: u64, rank: u64, what: u64) -> Self {
        Self { key: within << RANK_BITS | rank, what }
    }

    const fn within(self) -> u64 {
        self.key >> RANK_BITS
    }

    /// Returns the event with its time relative to a start that is `since` earlier.
    const fn later(self, since: u64) -> Self {
        Self { key: self.key + (since << RANK_BITS), what: self.what }
    }

    const fn rank(self) -> u64 {
        self.key & ((1 << RANK_BITS) - 1)
    }
}

/// The last chunk of a slot, whose successor in the ring is the first one, and the number of events
/// in it. These are not stored with the events, so that adding an event touches only the cache line
/// that it goes into.
#[derive(Clone, Copy, Debug)]
struct Slot {
    last: u32,
    len: u32,
}

/// An empty slot. It looks as if its last chunk were full, so that the next event gets a new chunk.
const EMPTY: Slot = Slot { last: NONE, len: CHUNK as u32 };

/// The slots of a level, with a bit for each slot that holds an event, and a bit for each word of
/// those that is not zero.
#[derive(Clone, Debug)]
struct Level {
    slots: Vec<Slot>,
    words: Vec<u64>,
    summary: Vec<u64>,
}

impl Level {
    fn new(slots: usize) -> Self {
        let words = slots / 64;
        Self {
            slots: vec![EMPTY; slots],
            words: vec![0; words],
            summary: vec![0; words.div_ceil(64)],
        }
    }

    fn mark(&mut self, slot: usize) {
        self.words[slot / 64] |= 1 << (slot % 64);
        self.summary[slot / 4096] |= 1 << (slot / 64 % 64);
    }

    fn take(&mut self, slot: usize) -> Slot {
        self.words[slot / 64] &= !(1 << (slot % 64));
        if self.words[slot / 64] == 0 {
            self.summary[slot / 4096] &= !(1 << (slot / 64 % 64));
        }
        core::mem::replace(&mut self.slots[slot], EMPTY)
    }

    /// Returns the first slot from `from` on that holds an event.
    fn first(&self, from: usize) -> Option<usize> {
        let word = from / 64;
        let rest = self.words.get(word)? & (u64::MAX << (from % 64));
        if rest != 0 {
            return Some(word * 64 + rest.trailing_zeros() as usize);
        }
        let next = word + 1;
        let mut at = next / 64;
        let mut rest = *self.summary.get(at)? & (u64::MAX << (next % 64));
        while rest == 0 {
            at += 1;
            rest = *self.summary.get(at)?;
        }
        let word = at * 64 + rest.trailing_zeros() as usize;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }
}

/// The event queue. Each event has 64 bits of content.
#[derive(Clone, Debug)]
pub(super) struct Wheel {
    /// Binary logarithm of the length of a fine slot in picoseconds.
    shift: u32,
    /// Last fine slot of those that are being emptied, counted from time zero.
    slot: u64,
    /// Time at which the first slot that is being emptied began.
    start: u64,
    /// Events of the slots that are being emptied, the last event first.
    ready: Vec<Event>,
    fine: Level,
    coarse: Level,
    /// Distant events: time, rank, a number that keeps those of one rank in order, and content.
    far: BinaryHeap<Reverse<(u64, u64, u64, u64)>>,
    chunks: Vec<Chunk>,
    /// Successor of each chunk in its slot's ring or in the list of free chunks.
    nexts: Vec<u32>,
    free: u32,
    /// Number of distant events that were ever added, by which those of one rank keep their order.
    far_order: u64,
    len: usize,
}

impl Wheel {
    /// Creates an empty queue whose fine slots last `2^shift` picoseconds; larger values of `shift`
    /// are reduced to 12.
    pub(super) fn new(shift: u32) -> Self {
        Self {
            shift: shift.min(TIME_BITS - PAGE_BITS),
            slot: 0,
            start: 0,
            ready: Vec::new(),
            fine: Level::new(FINE),
            coarse: Level::new(COARSE),
            far: BinaryHeap::new(),
            chunks: Vec::new(),
            nexts: Vec::new(),
            free: NONE,
            far_order: 0,
            len: 0,
        }
    }

    /// Returns the number of waiting events.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Adds an event at `time`; an event in the past happens now. Of the events of one time, those
    /// of lower rank come first. A rank has [`RANK_BITS`] bits.
    pub(super) fn push(&mut self, time: Picos, rank: u64, what: u64) {
        debug_assert!(rank >> RANK_BITS == 0);
        self.len += 1;
        self.place(time.0, rank, what);
    }

    fn place(&mut self, time: u64, rank: u64, what: u64) {
        let slot = time >> self.shift;
        if slot <= self.slot {
            let within = time.saturating_sub(self.start);
            let event = Event::new(within, rank, what);
            let at = self.ready.partition_point(|other| other.key > event.key);
            self.ready.insert(at, event);
            return;
        }
        let page = slot >> PAGE_BITS;
        let pages = page - (self.slot >> PAGE_BITS);
        let (level, index, within) = if pages <= 1 {
            (&mut self.fine, slot as usize % FINE, time & ((1 << self.shift) - 1))
        } else if pages < COARSE as u64 {
            let within = time & ((1 << (self.shift + PAGE_BITS)) - 1);
            (&mut self.coarse, page as usize % COARSE, within)
        } else {
            self.far_order += 1;
            self.far.push(Reverse((time, rank, self.far_order, what)));
            return;
        };
        let event = Event::new(within, rank, what);
        let Slot { last, len } = &mut level.slots[index];
        if (*len as usize) < CHUNK {
            self.chunks[*last as usize].0[*len as usize] = event;
            *len += 1;
            return;
        }
        if self.free == NONE {
            // The number fits: 2^32 chunks exceed the memory.
            self.free = self.chunks.len() as u32;
            self.chunks.push(Chunk::default());
            self.nexts.push(NONE);
        }
        let added = self.free;
        self.chunks[added as usize].0[0] = event;
        self.free = self.nexts[added as usize];
        let first = match self.nexts.get_mut(*last as usize) {
            Some(next) => core::mem::replace(next, added),
            None => added,
        };
        self.nexts[added as usize] = first;
        *last = added;
        *len = 1;
        level.mark(index);
    }

    /// Returns the next event of the slots that are being emptied, if one is left that is not after
    /// `until`.
    pub(super) fn pop(&mut self, until: Picos) -> Option<(Picos, u64)> {
        let event = self.ready.last()?;
        let (at, what) = (Picos(self.start + event.within()), event.what);
        if at > until {
            return None;
        }
        self.ready.pop();
        self.len -= 1;
        Some((at, what))
    }

    /// Advances to the next slot that holds an event, if that begins by `until`. Returns false if
    /// there is none. Events that are pushed afterwards may be as early as `until`, but not
    /// earlier.
    pub(super) fn turn(&mut self, until: Picos) -> bool {
        while self.ready.is_empty() {
            if self.len == 0 || !self.advance(until.0) {
                return false;
            }
        }
        true
    }

    /// Returns whether slots are being emptied that still hold events.
    pub(super) const fn is_turned(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns the time of the next event in the queue.
    pub(super) fn next_time(&self) -> Option<Picos> {
        if let Some(event) = self.ready.last() {
            return Some(Picos(self.start + event.within()));
        }
        let earliest = |level: &Level, index: usize| {
            let Slot { last, len } = level.slots[index];
            let mut chunk = self.nexts[last as usize];
            let mut least = u64::MAX;
            loop {
                let len = if chunk == last { len as usize } else { CHUNK };
                let events = &self.chunks[chunk as usize].0[..len];
                least = events.iter().map(|event| event.within()).fold(least, u64::min);
                if chunk == last {
                    return least;
                }
                chunk = self.nexts[chunk as usize];
            }
        };
        if let Some((index, slot)) = self.next_fine() {
            return Some(Picos((slot << self.shift) + earliest(&self.fine, index)));
        }
        let coarse = self
            .next_coarse()
            .map(|(index, page)| (page << PAGE_BITS << self.shift) + earliest(&self.coarse, index));
        let far = self.far.peek().map(|&Reverse((time, ..))| time);
        coarse.into_iter().chain(far).min().map(Picos)
    }

    /// Returns the contents of the events that are known to come next, at most [`BATCH`].
    pub(super) fn upcoming(&self) -> impl Iterator<Item = u64> {
        self.ready.iter().rev().take(BATCH).map(|event| event.what)
    }

    /// Returns the first fine slot that holds an event: its index, and its number counted from time
    /// zero.
    fn next_fine(&self) -> Option<(usize, u64)> {
        let within = self.slot as usize % FINE;
        let first = self.fine.first(within).or_else(|| self.fine.first(0))?;
        let ahead = (first + FINE - within) % FINE;
        Some((first, self.slot + ahead as u64))
    }

    /// Returns the first coarse slot that holds an event: its index, and its page.
    fn next_coarse(&self) -> Option<(usize, u64)> {
        let page = self.slot >> PAGE_BITS;
        let here = page as usize % COARSE;
        let first = self.coarse.first(here).or_else(|| self.coarse.first(0))?;
        let ahead = (first + COARSE - here) % COARSE;
        Some((first, page + ahead as u64))
    }

    /// Advances to the next fine slots that hold events, or to the next page. Returns false if that
    /// begins after `until`.
    fn advance(&mut self, until: u64) -> bool {
        let page = self.slot >> PAGE_BITS;
        if let Some((first, from)) = self.next_fine() {
            if from << self.shift > until {
                return false;
            }
            if from >> PAGE_BITS > page {
                // The events of the page after the next come within reach; none is left before it.
                self.slot = (page + 1) << PAGE_BITS;
                self.start = self.slot << self.shift;
                self.open(page + 2);
            }
            self.start = from << self.shift;
            let mut slot = first;
            loop {
                self.empty(slot, ((slot - first) as u64) << self.shift);
                let full = self.ready.len() >= BATCH;
                match self.fine.first(slot + 1) {
                    Some(next) if !full && next - first < SPAN && next / PAGE == first / PAGE => {
                        slot = next;
                    }
                    _ => break,
                }
            }
            self.slot = from + (slot - first) as u64;
            self.ready.reverse();
            return true;
        }
        let coarse = self.next_coarse().map(|(_, page)| page);
        let far = self.far.peek().map(|Reverse((time, ..))| time >> self.shift >> PAGE_BITS);
        let next = match (coarse, far) {
            (Some(a), Some(b)) => a.min(b),
            (Some(page), None) | (None, Some(page)) => page,
            (None, None) => return false,
        };
        if next << PAGE_BITS << self.shift > until {
            return false;
        }
        self.slot = next << PAGE_BITS;
        self.start = self.slot << self.shift;
        self.open(next);
        self.open(next + 1);
        true
    }

    /// Appends the events of fine slot `slot`, first ones first. The slot begins `since` after the
    /// start.
    fn empty(&mut self, slot: usize, since: u64) {
        let Slot { last, len } = self.fine.take(slot);
        let before = self.ready.len();
        let mut chunk = self.release(last);
        loop {
            let len = if chunk == last { len as usize } else { CHUNK };
            let events = &self.chunks[chunk as usize].0[..len];
            self.ready.extend(events.iter().map(|event| event.later(since)));
            if chunk == last {
                break;
            }
            chunk = self.nexts[chunk as usize];
        }
        // Many events of a network in lockstep have one time and are in order already.
        let events = &mut self.ready[before..];
        if !events.is_sorted_by_key(|event| event.key) {
            events.sort_by_key(|event| event.key);
        }
    }

    /// Releases the chunks of a slot whose last chunk is `last`, and returns the first of them.
    /// They keep their contents until the caller adds events.
    fn release(&mut self, last: u32) -> u32 {
        let first = core::mem::replace(&mut self.nexts[last as usize], self.free);
        self.free = first;
        first
    }

    /// Distributes the events of `page` to the fine slots. Those of the current slot go to `ready`
    /// by themselves.
    fn open(&mut self, page: u64) {
        // Distant events come first, because they were added before the nearer ones.
        while let Some(&Reverse((time, rank, _, what))) = self.far.peek() {
            if time >> self.shift >> PAGE_BITS > page {
                break;
            }
            self.far.pop();
            self.place(time, rank, what);
        }
        let Slot { last, len } = self.coarse.take(page as usize % COARSE);
        let start = page << PAGE_BITS << self.shift;
        let mut chunk = if last == NONE { NONE } else { self.nexts[last as usize] };
        while chunk != NONE {
            let Chunk(events) = self.chunks[chunk as usize];
            let next = core::mem::replace(&mut self.nexts[chunk as usize], self.free);
            self.free = chunk;
            let len = if chunk == last { len as usize } else { CHUNK };
            for event in &events[..len] {
                self.place(start + event.within(), event.rank(), event.what);
            }
            chunk = if chunk == last { NONE } else { next };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_base::Rng;

    fn next(wheel: &mut Wheel) -> Option<(Picos, u64)> {
        wheel.turn(Picos::NEVER).then(|| wheel.pop(Picos::NEVER)).flatten()
    }

    /// Checks a clock that advances from time to time: due events come out, and no later ones,
    /// whatever is added in between.
    #[test]
    fn turns_no_further_than_asked() {
        let mut rng = Rng::new(9);
        let mut wheel = Wheel::new(12);
        let mut model: BinaryHeap<Reverse<(u64, u64, u64)>> = BinaryHeap::new();
        let mut now = 0;
        for number in 0..100_000u64 {
            let delay = match rng.below(8) {
                0..=4 => u64::from(rng.below(200_000_000)),
                5..=6 => u64::from(rng.below(u32::MAX)) * 20,
                _ => u64::from(rng.below(1000)) * 1_000_000_000_000,
            };
            let rank = u64::from(rng.below(2)) << (RANK_BITS - 1);
            wheel.push(Picos(now + delay), rank, number);
            model.push(Reverse((now + delay, rank, number)));
            if rng.below(3) == 0 {
                let earliest = model.peek().map(|Reverse((time, ..))| Picos(*time));
                assert_eq!(wheel.next_time(), earliest);
                now +=
                    u64::from(rng.below(400_000_000)) * if rng.below(500) == 0 { 5_000 } else { 1 };
                while model.peek().is_some_and(|Reverse((time, ..))| *time <= now) {
                    let Reverse((time, _, what)) = model.pop().unwrap();
                    assert!(wheel.turn(Picos(now)));
                    assert_eq!(wheel.pop(Picos(now)), Some((Picos(time), what)));
                }
                assert!(!wheel.turn(Picos(now)) || wheel.pop(Picos(now)).is_none());
            }
        }
    }

    #[test]
    fn agrees_with_a_sorted_list() {
        for shift in [4, 8, 11] {
            let mut rng = Rng::new(u64::from(shift));
            let mut wheel = Wheel::new(shift);
            let mut model: BinaryHeap<Reverse<(u64, u64, u64)>> = BinaryHeap::new();
            let mut now = 0;
            for number in 0..200_000u64 {
                let delay = match rng.below(10) {
                    0 => 0,
                    1..=5 => u64::from(rng.below(2_000_000)),
                    6..=8 => u64::from(rng.below(u32::MAX)),
                    _ => u64::from(rng.below(1000)) * 10_000_000_000,
                };
                // Times are coarse, so that many events have one time and one rank.
                let (at, rank) = ((now + delay) >> 4 << 4, u64::from(rng.below(3)));
                let at = at.max(now);
                wheel.push(Picos(at), rank, number);
                model.push(Reverse((at, rank, number)));
                if rng.below(3) > 0 {
                    let Reverse((time, _, what)) = model.pop().unwrap();
                    assert_eq!(next(&mut wheel), Some((Picos(time), what)));
                    now = time;
                }
            }
            while let Some(Reverse((time, _, what))) = model.pop() {
                assert_eq!(next(&mut wheel), Some((Picos(time), what)));
            }
            assert_eq!((next(&mut wheel), wheel.len()), (None, 0));
        }
    }
}
