//! Which packets received out of order are still to be reported by SACK bits.

use crate::base::Psn;

/// The range, both ends included, in which packets lie that were received out of order and whose SACK bits
/// were not yet sent.
#[derive(Debug, Default)]
pub(super) struct UnreportedRange(Option<(Psn, Psn)>);

impl UnreportedRange {
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// `first..=last` is to be reported.
    #[inline]
    pub(super) fn add(&mut self, first: Psn, last: Psn) {
        self.0 = Some(match self.0 {
            None => (first, last),
            Some((low, high)) => (
                if first.is_before(low) { first } else { low },
                if last.is_after(high) { last } else { high },
            ),
        });
    }

    /// Where the next SACK window begins when `cack` is acknowledged; takes what it describes off the
    /// range. A window that holds the whole range reaches as far back as it can, so that a lost ACK is
    /// made good.
    #[inline]
    pub(super) fn next_window(&mut self, cack: Psn) -> Psn {
        let floor = cack.plus(1);
        let Some((low, high)) = self.0.take() else { return floor };
        if high.is_before(floor) {
            return floor;
        }
        let low = if low.is_before(floor) { floor } else { low };
        if high.distance(low) < 64 {
            let back = high.minus(63);
            return if back.is_before(floor) { floor } else { back };
        }
        self.0 = Some((low.plus(64), high));
        low
    }

    /// STrack section 3.3.1: the bitmap from the expected PSN on is cut into segments of what a SACK
    /// holds, and the one is shown in which the lowest packet lies that arrived since the last SACK: the
    /// sender's timer runs from the lowest packet not acknowledged. One SACK at a time; segments follow
    /// each other as packets come.
    pub(super) fn lowest_segment(&mut self, cack: Psn) -> Psn {
        let expected = cack.plus(1);
        let Some((lowest, _)) = self.0.take() else { return expected };
        match u32::try_from(lowest.distance(expected)) {
            Ok(ahead) => expected.plus(ahead / 64 * 64),
            Err(_) => expected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_range_takes_several_windows() {
        let mut range = UnreportedRange::default();
        range.add(Psn(100), Psn(110));
        range.add(Psn(180), Psn(230));
        assert_eq!(range.next_window(Psn(89)), Psn(100));
        assert_eq!(range.next_window(Psn(89)), Psn(164));
        assert!(!range.is_empty());
        // The last one reaches back over what was reported before.
        assert_eq!(range.next_window(Psn(89)), Psn(167));
        assert!(range.is_empty());
        // One that is narrow reaches back, but not below what is acknowledged.
        range.add(Psn(200), Psn(200));
        assert_eq!(range.next_window(Psn(89)), Psn(137));
        range.add(Psn(200), Psn(200));
        assert_eq!(range.next_window(Psn(149)), Psn(150));
        range.add(Psn(200), Psn(200));
        assert_eq!(range.next_window(Psn(300)), Psn(301));
        assert!(range.is_empty());
    }

    #[test]
    fn segments_are_counted_from_the_expected_packet() {
        let mut range = UnreportedRange::default();
        range.add(Psn(200), Psn(400));
        assert_eq!(range.lowest_segment(Psn(99)), Psn(164));
        assert_eq!(range.lowest_segment(Psn(99)), Psn(100));
    }
}
