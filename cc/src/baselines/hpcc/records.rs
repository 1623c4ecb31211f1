//! What HPCC remembers of switches' records, and what it makes of new ones: the busiest link of a path.
//!
//! While the packets of a flow pass the same queues in the same order, which all do that are not sprayed, records are compared
//! as they are kept, field by field and four at a time. Otherwise each is looked for.

use alloc::boxed::Box;

use crate::controller::{Hops, IntHop, LANES};

/// Queues whose records are kept field by field: the switches of a fat tree of three tiers.
const INLINE: usize = 5;

/// Bytes in a unit of [`QueueRecord::queue`].
const UNIT: u32 = 128;

/// No path has as many switches: what is remembered is of none, or of several.
const SEVERAL_PATHS: u8 = u8::MAX;

/// The last record of each queue: 72 bytes for five, and 12 for each of `more`. Times and bytes are the low 32 bits, for
/// differences; a time of zero is none.
#[derive(Clone, Debug)]
pub(super) struct Records {
    more: Option<Box<OverflowRecords>>,
    at: [u32; INLINE],
    tx_bytes: [u32; INLINE],
    /// The low bits of the queue's name.
    hop: [u16; INLINE],
    /// Bytes left behind, in units of [`UNIT`].
    queue: [u16; INLINE],
    /// Records here that may be used.
    here: u8,
    /// How many stand here in the order of one path, all others being unused; or [`SEVERAL_PATHS`].
    path: u8,
}

/// Records of further queues.
#[derive(Clone, Debug)]
struct OverflowRecords {
    last: Box<[QueueRecord]>,
}

/// One record.
#[derive(Clone, Copy, Debug, Default)]
struct QueueRecord {
    at: u32,
    tx_bytes: u32,
    hop: u16,
    queue: u16,
}

/// The busiest link of those whose records were compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct BusiestLink {
    /// The bits of `u`, which are in order as numbers with a sign; negative where none was compared.
    utilisation: i32,
    /// Time between its records in nanoseconds.
    between: u32,
}

impl BusiestLink {
    const NONE: Self = Self { utilisation: -1, between: 0 };

    /// `u`, and the time between its records in nanoseconds; `None` where none was compared.
    #[inline(always)]
    pub(super) fn measurement(self) -> Option<(f32, f32)> {
        let utilisation = f32::from_bits(self.utilisation.cast_unsigned());
        (self.utilisation >= 0).then(|| (utilisation, float(self.between)))
    }

    #[inline(always)]
    fn update(&mut self, utilisation: i32, between: u32) {
        if utilisation > self.utilisation {
            *self = Self { utilisation, between };
        }
    }

    /// A record says `now` of a link that carries so many bytes a nanosecond, and the one of the same queue before it said
    /// `last`; `in_base` is one over `T` in nanoseconds.
    #[inline(always)]
    fn compare(&mut self, now: QueueRecord, last: QueueRecord, carries: f32, in_base: f32) {
        let between = now.at.wrapping_sub(last.at);
        let sent = now.tx_bytes.wrapping_sub(last.tx_bytes);
        let waiting = shorter_queue(now.queue.into(), last.queue);
        self.update(utilisation(between, sent, waiting, carries, in_base), between);
    }
}

// What follows is computed of several links together: it has neither branches nor what the vector instructions that every x86
// has do not know, as numbers of 32 bits without a sign.

/// How busy a link was between two records of it, as [`BusiestLink`] has it.
#[inline(always)]
fn utilisation(between: u32, sent: u32, waiting: u32, carries: f32, in_base: f32) -> i32 {
    let busy = (float(sent) / float(between) + float(waiting) * in_base) / carries;
    // Packets overtake one another where they are sprayed; what is older says nothing new, nor does the same moment, nor what
    // has more than half of the bytes that can be counted in between. Then this is its sign.
    let silent = (between.wrapping_sub(1) | sent) & 1 << 31;
    (busy.to_bits() | silent).cast_signed()
}

#[inline(always)]
const fn float(number: u32) -> f32 {
    number.cast_signed() as f32
}

/// All bits where `a` is less than `b`, of numbers of 31 bits.
#[inline(always)]
const fn where_less(a: u32, b: u32) -> u32 {
    (a.wrapping_sub(b).cast_signed() >> 31).cast_unsigned()
}

/// The shorter of two queues in bytes, of both in units.
#[inline(always)]
fn shorter_queue(now: u32, last: u16) -> u32 {
    let last = u32::from(last);
    last.wrapping_add(now.wrapping_sub(last) & where_less(now, last)) * UNIT
}

/// Bytes in units, at most 16 bits.
#[inline(always)]
const fn units(bytes: u32) -> u32 {
    let units = bytes / UNIT;
    (units | where_less(0xffff, units)) & 0xffff
}

/// The low bits of a name.
#[inline(always)]
const fn low(hop: u32) -> u16 {
    (hop & 0xffff) as u16
}

impl QueueRecord {
    #[inline(always)]
    fn from_hop(hop: &IntHop) -> Self {
        Self {
            at: (hop.at.0 & 0xffff_ffff) as u32,
            tx_bytes: (hop.tx_bytes & 0xffff_ffff) as u32,
            hop: low(hop.hop),
            queue: units(hop.queue) as u16,
        }
    }
}

impl Records {
    /// None yet, and room for those of so many queues.
    pub(super) fn new(queues: u16) -> Self {
        let (zero, short) = ([0; INLINE], [0; INLINE]);
        let queues = usize::from(queues);
        let here = queues.min(INLINE);
        let more = (queues > here).then(|| {
            Box::new(OverflowRecords {
                last: alloc::vec![QueueRecord::default(); queues - here].into_boxed_slice(),
            })
        });
        Self {
            more,
            at: zero,
            tx_bytes: zero,
            hop: short,
            queue: short,
            here: here as u8,
            path: SEVERAL_PATHS,
        }
    }

    /// Its bytes, in boxes too.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self)
            + self.more.as_ref().map_or(0, |more| size_of_val(&**more) + size_of_val(&*more.last))
    }

    fn len(&self) -> usize {
        usize::from(self.here) + self.more.as_ref().map_or(0, |more| more.last.len())
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        (0..self.len()).all(|place| self.get(place).at == 0)
    }

    /// Whether `hops` are of the queues that are remembered, in the same order, and few.
    #[inline(always)]
    pub(super) fn match_short_path(&self, hops: &Hops) -> bool {
        usize::from(hops.len()) <= LANES && self.match_first(hops)
    }

    /// Whether the first of `hops` are.
    #[inline(always)]
    fn match_first(&self, hops: &Hops) -> bool {
        let (Some(lanes), Some(hop)) = (hops.lanes(), self.hop.first_chunk::<LANES>()) else {
            return false;
        };
        let differ = (0..LANES).fold(0, |all, i| all | (low(lanes.hop[i]) ^ hop[i]));
        hops.len() == self.path && differ == 0
    }

    /// Compares `hops`, of which [`Records::match_short_path`] was true, and remembers them; `in_base` is one over `T` in nanoseconds.
    #[inline(always)]
    pub(super) fn advance(&mut self, hops: &Hops, in_base: f32) -> BusiestLink {
        let Some(now) = hops.lanes() else { return BusiestLink::NONE };
        let (Some(at), Some(tx_bytes), Some(queue)) = (
            self.at.first_chunk_mut::<LANES>(),
            self.tx_bytes.first_chunk_mut::<LANES>(),
            self.queue.first_chunk_mut::<LANES>(),
        ) else {
            return BusiestLink::NONE;
        };
        let between: [u32; LANES] = core::array::from_fn(|i| now.at[i].wrapping_sub(at[i]));
        let left: [u32; LANES] = core::array::from_fn(|i| units(now.queue[i]));
        let busy: [i32; LANES] = core::array::from_fn(|i| {
            let sent = now.tx_bytes[i].wrapping_sub(tx_bytes[i]);
            utilisation(between[i], sent, shorter_queue(left[i], queue[i]), now.carries[i], in_base)
        });
        (*at, *tx_bytes, *queue) = (*now.at, *now.tx_bytes, left.map(|units| units as u16));
        // Seen from here on as memory: otherwise the compiler takes lanes out of registers one by one while they are made.
        let (busy, between) = core::hint::black_box((busy, between));
        let mut busiest = BusiestLink { utilisation: busy[0], between: between[0] };
        for i in 1..LANES {
            busiest.update(busy[i], between[i]);
        }
        busiest
    }

    /// The same of those behind the first.
    fn advance_fifth(&mut self, hops: &Hops, in_base: f32, busiest: &mut BusiestLink) {
        if let Some(hop) = hops.get(LANES) {
            let now = QueueRecord::from_hop(&hop);
            let last = self.replace(LANES, now);
            busiest.compare(now, last, hop.carries(), in_base);
        }
    }

    /// The same of any.
    pub(super) fn compare_any(&mut self, hops: &Hops, in_base: f32) -> BusiestLink {
        let fifth = hops.get(LANES).is_none_or(|hop| low(hop.hop) == self.hop[LANES]);
        if fifth && self.match_first(hops) {
            let mut busiest = self.advance(hops, in_base);
            self.advance_fifth(hops, in_base, &mut busiest);
            return busiest;
        }
        let mut busiest = BusiestLink::NONE;
        for (place, hop) in hops.iter().enumerate() {
            let now = QueueRecord::from_hop(&hop);
            let place = self.place_of(place, now);
            let last = self.replace(place, now);
            if last.at != 0 && last.hop == now.hop {
                busiest.compare(now, last, hop.carries(), in_base);
            }
        }
        self.path = self.single_path_len(hops);
        busiest
    }

    /// [`Records::path`], after `hops` were remembered.
    fn single_path_len(&self, hops: &Hops) -> u8 {
        let (len, here) = (usize::from(hops.len()), usize::from(self.here));
        let in_order = hops.iter().enumerate().all(|(place, hop)| {
            place < here && self.get(place).at != 0 && self.hop[place] == low(hop.hop)
        });
        let others = (len..here).all(|place| self.get(place).at == 0);
        if in_order && others { hops.len() } else { SEVERAL_PATHS }
    }

    /// Where to remember the record at `place` of a path: there, if that is where its queue was or nothing is; or else where its
    /// queue was, or else instead of the one that was not met for longest.
    fn place_of(&self, place: usize, now: QueueRecord) -> usize {
        if place < self.len() {
            let there = self.get(place);
            if there.at == 0 || there.hop == now.hop {
                return place;
            }
        }
        let mut all = 0..self.len();
        let known = all.clone().find(|at| {
            let last = self.get(*at);
            last.hop == now.hop && last.at != 0
        });
        let age = |place: &usize| match self.get(*place).at {
            0 => u32::MAX,
            at => now.at.wrapping_sub(at),
        };
        known.or_else(|| all.by_ref().max_by_key(age)).unwrap_or(0)
    }

    fn get(&self, place: usize) -> QueueRecord {
        match (place.checked_sub(self.here.into()), &self.more) {
            (Some(place), Some(more)) => more.last[place],
            _ => QueueRecord {
                at: self.at[place],
                tx_bytes: self.tx_bytes[place],
                hop: self.hop[place],
                queue: self.queue[place],
            },
        }
    }

    fn replace(&mut self, place: usize, now: QueueRecord) -> QueueRecord {
        if let (Some(place), Some(more)) = (place.checked_sub(self.here.into()), &mut self.more) {
            return core::mem::replace(&mut more.last[place], now);
        }
        QueueRecord {
            at: core::mem::replace(&mut self.at[place], now.at),
            tx_bytes: core::mem::replace(&mut self.tx_bytes[place], now.tx_bytes),
            hop: core::mem::replace(&mut self.hop[place], now.hop),
            queue: core::mem::replace(&mut self.queue[place], now.queue),
        }
    }
}
