//! The range of packets received out of order that SACK bits have not reported yet.

use crate::base::Psn;

/// The range, both ends included, that holds the packets that were received out of order and whose
/// SACK bits were not sent yet.
#[derive(Debug, Default)]
pub(super) struct UnreportedRange(Option<(Psn, Psn)>);

impl UnreportedRange {
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Adds the packets `first..=last` to those that no SACK has reported.
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

    /// Returns the first PSN of the next SACK window when `cack` is acknowledged, and removes what
    /// the window describes from the range. A window that holds the whole range reaches as far back
    /// as possible, to make up for a lost ACK.
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

    /// Returns the first PSN of the SACK segment to report, as in STrack section 3.3.1. The bitmap
    /// from the expected PSN on is cut into segments of the size of a SACK. The reported segment
    /// holds the lowest packet that arrived since the last SACK, because the sender's timer runs
    /// from the lowest packet not acknowledged. One SACK is sent at a time; further segments follow
    /// as packets arrive.
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
        // The last window reaches back over packets reported before.
        assert_eq!(range.next_window(Psn(89)), Psn(167));
        assert!(range.is_empty());
        // A narrow window reaches back, but not below what is acknowledged.
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
