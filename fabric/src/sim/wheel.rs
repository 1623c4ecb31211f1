//! The event queue: a timing wheel of two levels, and a heap for what is far away. Events come out by
//! time, and those of one time in the order in which they went in, so that a run is the same on every
//! machine. Nothing is allocated once the pools have grown.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Picos;

/// Slots of the first level, a power of two.
const FINE: usize = 1 << 13;
const FINE_BITS: u32 = FINE.trailing_zeros();
/// Slots of the second level, each as long as the whole first level.
const COARSE: usize = 1 << 11;
/// Bits of the order in which events of one slot went in; it wraps after 10^12 events.
const ORDER_BITS: u32 = 40;
/// End of a list.
const NONE: u32 = u32::MAX;

/// Events of one slot, as many as fit; a slot is a list of these, so that it is read in runs and not by
/// jumps.
#[derive(Clone, Debug)]
struct Chunk {
    next: u32,
    len: u32,
    events: [Event; CHUNK],
}

/// Events in a chunk: half a kilobyte.
const CHUNK: usize = 21;

/// An event waiting.
#[derive(Clone, Copy, Debug, Default)]
struct Event {
    time: u64,
    order: u64,
    what: u64,
}

/// Which slots of a level hold anything: one bit each, and one bit for each word of those.
#[derive(Debug)]
struct Level {
    heads: Vec<u32>,
    words: Vec<u64>,
    summary: Vec<u64>,
}

impl Level {
    fn new(slots: usize) -> Self {
        let words = slots / 64;
        Self {
            heads: vec![NONE; slots],
            words: vec![0; words],
            summary: vec![0; words.div_ceil(64)],
        }
    }

    fn mark(&mut self, slot: usize) {
        self.words[slot / 64] |= 1 << (slot % 64);
        self.summary[slot / 4096] |= 1 << (slot / 64 % 64);
    }

    fn take(&mut self, slot: usize) -> u32 {
        self.words[slot / 64] &= !(1 << (slot % 64));
        if self.words[slot / 64] == 0 {
            self.summary[slot / 4096] &= !(1 << (slot / 64 % 64));
        }
        core::mem::replace(&mut self.heads[slot], NONE)
    }

    /// The first slot from `from` on that holds anything.
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

/// Events with 64 bits of content each.
#[derive(Debug)]
pub(super) struct Wheel {
    /// A fine slot lasts `2^shift` picoseconds.
    shift: u32,
    /// The fine slot that is being emptied, counted from the origin.
    slot: u64,
    /// Its events, last first: time within the slot and order, then the content.
    ready: Vec<(u64, u64)>,
    fine: Level,
    coarse: Level,
    far: BinaryHeap<Reverse<(u64, u64, u64)>>,
    chunks: Vec<Chunk>,
    free: u32,
    order: u64,
    len: usize,
}

impl Wheel {
    /// An empty queue whose fine slots last `2^shift` picoseconds, at most 24.
    pub(super) fn new(shift: u32) -> Self {
        Self {
            shift: shift.min(u64::BITS - ORDER_BITS),
            slot: 0,
            ready: Vec::new(),
            fine: Level::new(FINE),
            coarse: Level::new(COARSE),
            far: BinaryHeap::new(),
            chunks: Vec::new(),
            free: NONE,
            order: 0,
            len: 0,
        }
    }

    /// Events waiting.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// An event at `time`; one in the past happens now.
    pub(super) fn push(&mut self, time: Picos, what: u64) {
        self.order = (self.order + 1) & ((1 << ORDER_BITS) - 1);
        self.len += 1;
        self.place(time.0, self.order, what);
    }

    fn place(&mut self, time: u64, order: u64, what: u64) {
        let slot = time >> self.shift;
        if slot <= self.slot {
            let within = time.saturating_sub(self.slot << self.shift);
            let entry = (within << ORDER_BITS | order, what);
            let at = self.ready.partition_point(|other| other.0 > entry.0);
            self.ready.insert(at, entry);
            return;
        }
        let page = slot >> FINE_BITS;
        let pages = page - (self.slot >> FINE_BITS);
        if pages >= COARSE as u64 {
            self.far.push(Reverse((time, order, what)));
            return;
        }
        let (level, index) = if pages == 0 {
            (&mut self.fine, slot as usize % FINE)
        } else {
            (&mut self.coarse, page as usize % COARSE)
        };
        let event = Event { time, order, what };
        let head = level.heads[index];
        if let Some(chunk) = self.chunks.get_mut(head as usize)
            && (chunk.len as usize) < CHUNK
        {
            chunk.events[chunk.len as usize] = event;
            chunk.len += 1;
            return;
        }
        let at = if self.free == NONE {
            self.chunks.push(Chunk { next: NONE, len: 0, events: [Event::default(); CHUNK] });
            // Four thousand million chunks do not fit into memory.
            (self.chunks.len() - 1) as u32
        } else {
            self.free
        };
        let chunk = &mut self.chunks[at as usize];
        if self.free == at {
            self.free = chunk.next;
        }
        chunk.next = head;
        chunk.len = 1;
        chunk.events[0] = event;
        level.heads[index] = at;
        level.mark(index);
    }

    /// The next event of the slot that is being emptied, if there is any left.
    pub(super) fn pop(&mut self) -> Option<(Picos, u64)> {
        let (key, what) = self.ready.pop()?;
        self.len -= 1;
        Some((Picos((self.slot << self.shift) + (key >> ORDER_BITS)), what))
    }

    /// Goes to the next slot that holds anything; false if there is none. Only when [`Wheel::pop`] has no
    /// more.
    pub(super) fn turn(&mut self) -> bool {
        while self.ready.is_empty() {
            if self.len == 0 {
                return false;
            }
            self.advance();
        }
        true
    }

    /// What is known to come out next, last first.
    pub(super) fn coming(&self) -> impl Iterator<Item = u64> {
        self.ready.iter().map(|&(_, what)| what)
    }

    /// Goes to the next fine slot that holds anything, or to the next page.
    fn advance(&mut self) {
        let within = self.slot as usize % FINE;
        if let Some(slot) = self.fine.first(within) {
            self.slot = self.slot - within as u64 + slot as u64;
            let mut at = self.fine.take(slot);
            let start = self.slot << self.shift;
            while at != NONE {
                let chunk = &mut self.chunks[at as usize];
                let events = chunk.events[..chunk.len as usize].iter();
                self.ready.extend(
                    events.map(|event| {
                        ((event.time - start) << ORDER_BITS | event.order, event.what)
                    }),
                );
                let next = core::mem::replace(&mut chunk.next, self.free);
                self.free = at;
                at = next;
            }
            self.ready.sort_unstable_by(|a, b| b.cmp(a));
            return;
        }
        let page = self.slot >> FINE_BITS;
        let here = page as usize % COARSE;
        let coarse = self.coarse.first(here).or_else(|| self.coarse.first(0));
        let coarse = coarse.map(|index| {
            let ahead = (index + COARSE - here) % COARSE;
            page + ahead as u64
        });
        let far = self.far.peek().map(|Reverse((time, ..))| time >> self.shift >> FINE_BITS);
        let next = match (coarse, far) {
            (Some(a), Some(b)) => a.min(b),
            (Some(page), None) | (None, Some(page)) => page,
            (None, None) => return,
        };
        // The slot before the page: everything of the page lies ahead.
        self.slot = next << FINE_BITS;
        self.open(next);
    }

    /// Spreads the events of `page` over the fine slots. The first one goes to `ready` by itself.
    fn open(&mut self, page: u64) {
        let mut at = self.coarse.take(page as usize % COARSE);
        while at != NONE {
            let Chunk { next, len, events } = self.chunks[at as usize].clone();
            self.chunks[at as usize].next = self.free;
            self.free = at;
            for Event { time, order, what } in &events[..len as usize] {
                self.place(*time, *order, *what);
            }
            at = next;
        }
        while let Some(&Reverse((time, order, what))) = self.far.peek() {
            if time >> self.shift >> FINE_BITS > page {
                break;
            }
            self.far.pop();
            self.place(time, order, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Rng;

    fn next(wheel: &mut Wheel) -> Option<(Picos, u64)> {
        wheel.turn().then(|| wheel.pop()).flatten()
    }

    #[test]
    fn agrees_with_a_sorted_list() {
        for shift in [4, 8, 11] {
            let mut rng = Rng::new(u64::from(shift));
            let mut wheel = Wheel::new(shift);
            let mut model: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
            let mut now = 0;
            for number in 0..200_000u64 {
                let delay = match rng.below(10) {
                    0 => 0,
                    1..=5 => u64::from(rng.below(2_000_000)),
                    6..=8 => u64::from(rng.below(u32::MAX)),
                    _ => u64::from(rng.below(1000)) * 10_000_000_000,
                };
                wheel.push(Picos(now + delay), number);
                model.push(Reverse((now + delay, number)));
                if rng.below(3) > 0 {
                    let Reverse((time, what)) = model.pop().unwrap();
                    assert_eq!(next(&mut wheel), Some((Picos(time), what)));
                    now = time;
                }
            }
            while let Some(Reverse((time, what))) = model.pop() {
                assert_eq!(next(&mut wheel), Some((Picos(time), what)));
            }
            assert_eq!((next(&mut wheel), wheel.len()), (None, 0));
        }
    }
}
