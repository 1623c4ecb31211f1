//! The last record of each queue, and the busiest link of a path as new records show it.
//!
//! While the packets of a flow pass the same queues in the same order, which is the case unless
//! they are sprayed, records are compared in place, field by field and four at a time. Otherwise
//! each record's predecessor is searched.

use alloc::boxed::Box;

use crate::controller::{Hops, IntHop, LANES};

/// Number of queues whose records are stored field by field: the switches of a fat tree of three
/// tiers.
const INLINE: usize = 5;

/// Bytes per unit of a stored queue length ([`QueueRecord::queue`]).
const UNIT: u32 = 128;

/// Value of [`Records::path`] that no path length reaches: the records belong to no path, or to
/// several.
const SEVERAL_PATHS: u8 = u8::MAX;

/// The last record of each queue: 72 bytes for five, and 12 for each of `more`. Times and bytes are
/// the low 32 bits, for differences; a time of zero marks an unused record.
#[derive(Clone, Debug)]
pub(super) struct Records {
    more: Option<Box<OverflowRecords>>,
    at: [u32; INLINE],
    tx_bytes: [u32; INLINE],
    /// Low 16 bits of the number of each record's queue.
    hop: [u16; INLINE],
    /// Bytes that remained in each record's queue, in units of [`UNIT`].
    queue: [u16; INLINE],
    /// Number of inline records that this flow may use, at most [`INLINE`].
    here: u8,
    /// Number of inline records in the order of one path if all others are unused; otherwise
    /// [`SEVERAL_PATHS`].
    path: u8,
}

/// Records of the queues beyond the first [`INLINE`].
#[derive(Clone, Debug)]
struct OverflowRecords {
    last: Box<[QueueRecord]>,
}

/// Telemetry of one switch queue, as its last packet brought it.
#[derive(Clone, Copy, Debug, Default)]
struct QueueRecord {
    at: u32,
    tx_bytes: u32,
    hop: u16,
    queue: u16,
}

/// Utilisation of the busiest link among those whose records were compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct BusiestLink {
    /// Bits of the utilisation `u`, which sort like signed numbers; negative if no link was
    /// compared.
    utilisation: i32,
    /// Time between the two records of the busiest link, in nanoseconds.
    between: u32,
}

impl BusiestLink {
    const NONE: Self = Self { utilisation: -1, between: 0 };

    /// Returns the utilisation of the busiest link and the time between its two records in
    /// nanoseconds; `None` if no link was compared.
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

    /// Compares the record `now` with the `last` record of the same queue. `carries` is the rate of
    /// the queue's link in bytes per nanosecond, and `in_base` is one over `T` in nanoseconds.
    #[inline(always)]
    fn compare(&mut self, now: QueueRecord, last: QueueRecord, carries: f32, in_base: f32) {
        let between = now.at.wrapping_sub(last.at);
        let sent = now.tx_bytes.wrapping_sub(last.tx_bytes);
        let waiting = shorter_queue(now.queue.into(), last.queue);
        self.update(utilisation(between, sent, waiting, carries, in_base), between);
    }
}

// The following functions process several links together. They are free of branches and use only
// the vector instructions that every x86 has, which know no unsigned 32-bit numbers.

/// Returns the utilisation of a link between two of its records, in the encoding of
/// [`BusiestLink`].
#[inline(always)]
fn utilisation(between: u32, sent: u32, waiting: u32, carries: f32, in_base: f32) -> i32 {
    let busy = (float(sent) / float(between) + float(waiting) * in_base) / carries;
    // Sprayed packets overtake one another, so a record may be older than the last one, of the same
    // time, or more than half of the countable bytes apart. Such a record gives no measurement; the
    // sign bit marks it.
    let silent = (between.wrapping_sub(1) | sent) & 1 << 31;
    (busy.to_bits() | silent).cast_signed()
}

#[inline(always)]
const fn float(number: u32) -> f32 {
    number.cast_signed() as f32
}

/// Returns a word of ones if `a` is less than `b`, and zero otherwise, for numbers of 31 bits.
#[inline(always)]
const fn where_less(a: u32, b: u32) -> u32 {
    (a.wrapping_sub(b).cast_signed() >> 31).cast_unsigned()
}

/// Returns the shorter of two lengths of a queue in bytes, from the lengths in units of [`UNIT`].
#[inline(always)]
fn shorter_queue(now: u32, last: u16) -> u32 {
    let last = u32::from(last);
    last.wrapping_add(now.wrapping_sub(last) & where_less(now, last)) * UNIT
}

/// Returns a queue length of `bytes` in units of [`UNIT`], saturating at 16 bits.
#[inline(always)]
const fn units(bytes: u32) -> u32 {
    let units = bytes / UNIT;
    (units | where_less(0xffff, units)) & 0xffff
}

/// Returns the low 16 bits of a queue's number.
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
    /// Creates empty records with room for `queues` queues.
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

    /// Returns the bytes that the records occupy, heap memory included.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self)
            + self.more.as_ref().map_or(0, |more| size_of_val(&**more) + size_of_val(&*more.last))
    }

    fn len(&self) -> usize {
        usize::from(self.here) + self.more.as_ref().map_or(0, |more| more.last.len())
    }

    /// Returns whether no queue has a record yet.
    pub(super) fn is_empty(&self) -> bool {
        (0..self.len()).all(|place| self.get(place).at == 0)
    }

    /// Returns whether `hops` are at most [`LANES`], and of the queues remembered, in the same
    /// order.
    #[inline(always)]
    pub(super) fn match_short_path(&self, hops: &Hops) -> bool {
        usize::from(hops.len()) <= LANES && self.match_first(hops)
    }

    /// Returns whether the first [`LANES`] of `hops` are of the queues remembered, in the same
    /// order.
    #[inline(always)]
    fn match_first(&self, hops: &Hops) -> bool {
        let (Some(lanes), Some(hop)) = (hops.lanes(), self.hop.first_chunk::<LANES>()) else {
            return false;
        };
        let differ = (0..LANES).fold(0, |all, i| all | (low(lanes.hop[i]) ^ hop[i]));
        hops.len() == self.path && differ == 0
    }

    /// Compares `hops`, for which [`Records::match_short_path`] returned true, and remembers them.
    /// `in_base` is one over `T` in nanoseconds.
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
        // The black box keeps the lanes in memory from here on: otherwise the compiler takes them
        // out of registers one by one while they are computed.
        let (busy, between) = core::hint::black_box((busy, between));
        let mut busiest = BusiestLink { utilisation: busy[0], between: between[0] };
        for i in 1..LANES {
            busiest.update(busy[i], between[i]);
        }
        busiest
    }

    /// Compares the fifth record of a path, the one after the first [`LANES`], with the last record
    /// of its queue, and remembers it.
    fn advance_fifth(&mut self, hops: &Hops, in_base: f32, busiest: &mut BusiestLink) {
        if let Some(hop) = hops.get(LANES) {
            let now = QueueRecord::from_hop(&hop);
            let last = self.replace(LANES, now);
            busiest.compare(now, last, hop.carries(), in_base);
        }
    }

    /// Compares the records `hops` of any path with the last ones of their queues, and remembers
    /// them.
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

    /// Returns the value for [`Records::path`] after the records `hops` were remembered.
    fn single_path_len(&self, hops: &Hops) -> u8 {
        let (len, here) = (usize::from(hops.len()), usize::from(self.here));
        let in_order = hops.iter().enumerate().all(|(place, hop)| {
            place < here && self.get(place).at != 0 && self.hop[place] == low(hop.hop)
        });
        let others = (len..here).all(|place| self.get(place).at == 0);
        if in_order && others { hops.len() } else { SEVERAL_PATHS }
    }

    /// Returns where to remember the record at `place` of a path: there, if the place holds its
    /// queue or is unused; otherwise where its queue is; otherwise in place of the record that is
    /// oldest.
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
