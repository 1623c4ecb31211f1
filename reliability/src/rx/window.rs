//! The receive window: the oldest missing packet and the packets that arrived ahead of it.

use super::unreported::UnreportedRange;
use crate::base::Psn;
use crate::bitmap::Bitmap;

/// The receive window: which PSNs of the peer arrived.
#[derive(Debug)]
pub(crate) struct Window {
    /// The oldest PSN that has not been received.
    base: Psn,
    /// One past the newest PSN that was received, never before `base`.
    end: Psn,
    /// The map of the packets received ahead of a missing one; only present while there are some.
    holes: Option<Holes>,
}

/// The map of packets received ahead of a missing one. It is separate and borrowed from a pool,
/// because most contexts have no holes most of the time.
#[derive(Debug)]
pub(crate) struct Holes(Box<AheadPsns>);

#[derive(Debug)]
struct AheadPsns {
    /// The number of packets received ahead of the oldest missing one (`ooo_count`); not zero while
    /// the map is borrowed.
    count: u16,
    /// The bits of the PSNs that arrived ahead of a missing one.
    bits: Bitmap,
    /// The packets received out of order that no SACK has reported yet.
    unreported: UnreportedRange,
    /// The newest packet that asks for a prompt ACK (flag AR) and has a hole before it.
    asked_behind: Option<Psn>,
}

impl Holes {
    fn new() -> Self {
        let unreported = UnreportedRange::default();
        Self(Box::new(AheadPsns { count: 0, bits: Bitmap::new(), unreported, asked_behind: None }))
    }

    /// Resets the map to its initial state. Its bits are clear already when all holes have closed.
    fn reset(&mut self) {
        self.0.count = 0;
        self.0.unreported = UnreportedRange::default();
        self.0.asked_behind = None;
    }
}

impl AheadPsns {
    /// Adds `count` packets from `first` on, none of which arrived before; `ask` when the sender
    /// wants a prompt acknowledgement of the last.
    #[inline(never)]
    fn extend(&mut self, first: Psn, count: u16, ask: bool) {
        let last = first.plus(u32::from(count) - 1);
        for n in 0..u32::from(count) {
            self.bits.set(first.plus(n));
        }
        self.count += count;
        self.unreported.add(first, last);
        if ask && self.asked_behind.is_none_or(|asked| last.is_after(asked)) {
            self.asked_behind = Some(last);
        }
    }
}

impl Window {
    pub(super) const fn new(start: Psn) -> Self {
        Self { base: start, end: start, holes: None }
    }

    /// Returns the oldest PSN that has not been received.
    #[inline]
    pub(crate) const fn base(&self) -> Psn {
        self.base
    }

    /// Returns one past the newest PSN that was received.
    #[inline]
    pub(crate) const fn end(&self) -> Psn {
        self.end
    }

    /// Returns the number of packets received ahead of a missing one (`ooo_count`).
    #[inline]
    pub(crate) fn ahead(&self) -> u16 {
        self.holes.as_ref().map_or(0, |holes| holes.0.count)
    }

    /// Returns whether no packet is missing before one that arrived.
    #[inline]
    pub(super) const fn has_no_gaps(&self) -> bool {
        self.holes.is_none()
    }

    /// Adds the `count` packets that follow the newest one; `ask` when the sender wants a prompt
    /// acknowledgement of the last.
    #[inline]
    pub(super) fn extend(&mut self, count: u16, ask: bool) {
        let first = self.end;
        self.end = first.plus(u32::from(count));
        match &mut self.holes {
            None => self.base = self.end,
            Some(holes) => holes.0.extend(first, count, ask),
        }
    }

    /// Returns whether `psn`, which is not before `base`, was received.
    #[inline]
    pub(super) fn has(&self, psn: Psn) -> bool {
        self.holes.as_ref().is_some_and(|holes| holes.0.bits.get(psn))
    }

    /// Adds `psn`, which was not received before; `ask` when its sender wants a prompt
    /// acknowledgement. Returns whether a hole makes an acknowledgement due at once: one opened, or
    /// one closed before a packet that asked.
    #[inline]
    pub(super) fn insert(&mut self, psn: Psn, ask: bool, pool: &mut Vec<Holes>) -> bool {
        let prompt = if psn == self.base {
            self.base = psn.plus(1);
            self.advance(pool)
        } else {
            self.insert_ahead(psn, ask, pool)
        };
        if !self.end.is_after(psn) {
            self.end = psn.plus(1);
        }
        prompt
    }

    fn insert_ahead(&mut self, psn: Psn, ask: bool, pool: &mut Vec<Holes>) -> bool {
        let lend = || pool.pop().unwrap_or_else(Holes::new);
        let ahead = &mut *self.holes.get_or_insert_with(lend).0;
        ahead.extend(psn, 1, ask);
        ahead.count == 1
    }

    /// Moves `base` over packets that arrived earlier. Returns whether a hole closed before a
    /// packet that asked.
    #[inline]
    fn advance(&mut self, pool: &mut Vec<Holes>) -> bool {
        let Some(holes) = &mut self.holes else { return false };
        let ahead = &mut *holes.0;
        while ahead.count > 0 && ahead.bits.take(self.base) {
            ahead.count -= 1;
            self.base = self.base.plus(1);
        }
        let answered = ahead.asked_behind.is_some_and(|asked| self.base.is_after(asked));
        if answered {
            ahead.asked_behind = None;
        }
        if ahead.count == 0 {
            holes.reset();
            pool.extend(self.holes.take());
        }
        answered
    }

    /// Returns which of the 64 packets from `from` on arrived; bits beyond the window are clear.
    #[inline]
    pub(super) fn map(&self, from: Psn) -> u64 {
        let below = self.base.distance(from);
        let mut map = ones(below);
        if let Some(holes) = &self.holes
            && below < 64
        {
            let bits = &holes.0.bits;
            map |= if below > 0 { bits.window(self.base) << below } else { bits.window(from) };
        }
        map
    }

    /// Returns the range of packets received out of order that is not reported yet; `None` without
    /// such packets.
    #[inline]
    pub(super) fn unreported_mut(&mut self) -> Option<&mut UnreportedRange> {
        self.holes.as_mut().map(|holes| &mut holes.0.unreported)
    }

    /// Returns whether SACKs have reported all packets received out of order.
    #[inline]
    pub(super) fn is_reported(&self) -> bool {
        self.holes.as_ref().is_none_or(|holes| holes.0.unreported.is_empty())
    }

    /// Returns the map of packets received ahead to `pool`. No packet may be received afterwards.
    pub(super) fn return_holes(&mut self, pool: &mut Vec<Holes>) {
        if let Some(mut holes) = self.holes.take() {
            holes.0.bits.clear();
            holes.reset();
            pool.push(holes);
        }
    }
}

/// Returns a word with the lowest `n` of 64 bits set.
const fn ones(n: i32) -> u64 {
    match n {
        ..=0 => 0,
        1..64 => (1 << n) - 1,
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u32) -> Psn {
        Psn(u32::MAX - 1).plus(n)
    }

    #[test]
    fn holes_open_and_close() {
        let (mut window, mut pool) = (Window::new(at(0)), Vec::new());
        assert!(!window.insert(at(0), false, &mut pool));
        assert!(window.insert(at(3), false, &mut pool), "a hole opened");
        assert!(!window.insert(at(5), false, &mut pool));
        assert_eq!((window.base(), window.end(), window.ahead()), (at(1), at(6), 2));
        assert!(window.has(at(3)) && !window.has(at(4)));
        assert_eq!(window.map(at(0)), 0b10_1001);
        assert_eq!(window.map(at(2)), 0b1010);
        assert!(!window.insert(at(1), false, &mut pool));
        assert!(!window.insert(at(2), false, &mut pool));
        assert_eq!((window.base(), window.ahead()), (at(4), 1));
        assert!(!window.insert(at(4), false, &mut pool));
        assert_eq!((window.base(), window.ahead(), pool.len()), (at(6), 0, 1));
        assert_eq!(window.map(at(0)), 0b11_1111);
        // Packets far below the base all count as received.
        assert_eq!(window.map(at(0).minus(100)), u64::MAX);
    }

    #[test]
    fn a_closed_hole_is_acknowledged_at_once_if_a_later_packet_asked() {
        let (mut window, mut pool) = (Window::new(at(0)), Vec::new());
        for (n, ask, prompt) in
            [(4, true, true), (6, false, false), (1, true, false), (0, false, false)]
        {
            assert_eq!(window.insert(at(n), ask, &mut pool), prompt, "{n}");
        }
        assert!(!window.insert(at(2), false, &mut pool));
        assert!(window.insert(at(3), false, &mut pool), "the hole before 4 closed");
        assert!(!window.insert(at(5), false, &mut pool));
        assert_eq!((window.base(), pool.len()), (at(7), 1));
    }

    #[test]
    fn returned_maps_are_empty() {
        let (mut window, mut pool) = (Window::new(Psn(0)), Vec::new());
        // First, all holes close before anything was reported.
        window.insert(Psn(1), true, &mut pool);
        window.insert(Psn(0), false, &mut pool);
        assert_eq!(pool.len(), 1);
        window.insert(Psn(300), false, &mut pool);
        let range = window.unreported_mut().expect("holes");
        assert_eq!((range.next_window(Psn(1)), range.is_empty()), (Psn(237), true));
        window.return_holes(&mut pool);
        // Then, a window with holes is discarded.
        let mut window = Window::new(Psn(0));
        window.insert(Psn(7), true, &mut pool);
        window.return_holes(&mut pool);
        let mut other = Window::new(Psn(0));
        assert!(other.insert(Psn(9), false, &mut pool) && pool.is_empty());
        assert_eq!((other.map(Psn(0)), other.ahead()), (1 << 9, 1));
        let next = other.unreported_mut().map(|range| range.next_window(Psn(200)));
        assert_eq!((next, other.is_reported()), (Some(Psn(201)), true));
        assert!(!other.insert(Psn(8), false, &mut pool), "nobody asked");
    }
}
