//! Packets that arrived together, such as the packets of a GRO train (generic receive offload).

/// The UDP payloads of packets that arrived in a row from one sender, with the same ECN mark and
/// DSCP. All have `segment` bytes, except that the last may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train<'a> {
    /// Bytes from the next packet to the end of the last one; `None` after the last packet. `Some`
    /// with an empty slice is one packet of no bytes.
    bytes: Option<&'a [u8]>,
    segment: usize,
    /// Distance from the beginning of a packet to the beginning of the next, at least `segment`.
    stride: usize,
}

impl<'a> Train<'a> {
    /// Splits `bytes` into packets of `segment` bytes. A `segment` of 0 makes one packet.
    #[must_use]
    #[inline]
    pub const fn new(bytes: &'a [u8], segment: usize) -> Self {
        let segment = if segment == 0 { bytes.len() } else { segment };
        Self { bytes: Some(bytes), segment, stride: segment }
    }

    /// Creates a train of packets that begin every `stride` bytes, with unused bytes between them.
    /// `bytes` ends with the last packet, which must not be empty.
    #[must_use]
    #[inline]
    pub const fn spaced(bytes: &'a [u8], segment: usize, stride: usize) -> Self {
        debug_assert!(segment > 0 && segment <= stride);
        Self { bytes: Some(bytes), segment, stride }
    }

    /// Creates a train that consists of one packet.
    #[must_use]
    #[inline]
    pub const fn single(bytes: &'a [u8]) -> Self {
        Self { bytes: Some(bytes), segment: bytes.len(), stride: bytes.len() }
    }

    /// Returns the next packet of the train without removing it.
    #[must_use]
    #[inline]
    pub fn peek(&self) -> Option<&'a [u8]> {
        self.bytes.map(|bytes| bytes.get(..self.segment).unwrap_or(bytes))
    }

    /// Returns the number of packets that are left in the train.
    #[must_use]
    #[inline]
    pub fn count(&self) -> usize {
        self.bytes.map_or(0, |bytes| bytes.len().div_ceil(self.stride.max(1)).max(1))
    }
}

impl<'a> Iterator for Train<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let bytes = self.bytes?;
        if bytes.len() <= self.segment {
            self.bytes = None;
            return Some(bytes);
        }
        let (packet, rest) = (&bytes[..self.segment], &bytes[self.stride..]);
        self.bytes = Some(rest);
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_train_is_cut_where_its_packets_end() {
        let mut train = Train::new(b"aabbc", 2);
        assert_eq!((train.count(), train.peek()), (3, Some(&b"aa"[..])));
        assert_eq!(train.by_ref().collect::<Vec<_>>(), [&b"aa"[..], b"bb", b"c"]);
        assert_eq!((train.count(), train.peek(), train.next()), (0, None, None));
        let all: Vec<_> = Train::new(b"aabb", 2).collect();
        assert_eq!(all, [b"aa", b"bb"]);
    }

    #[test]
    fn packets_may_have_gaps_between_them() {
        let mut train = Train::spaced(b"aa..bb..c", 2, 4);
        assert_eq!((train.count(), train.peek()), (3, Some(&b"aa"[..])));
        assert_eq!(train.next(), Some(&b"aa"[..]));
        assert_eq!((train.count(), Iterator::count(train)), (2, 2));
        assert_eq!(train.collect::<Vec<_>>(), [&b"bb"[..], b"c"]);
        assert_eq!(Train::spaced(b"aa..bb", 2, 4).collect::<Vec<_>>(), [b"aa", b"bb"]);
        assert_eq!(Train::spaced(b"aa", 2, 4).collect::<Vec<_>>(), [b"aa"]);
    }

    #[test]
    fn an_empty_packet_is_one() {
        for train in [Train::single(b""), Train::new(b"", 0), Train::new(b"", 7)] {
            assert_eq!((train.count(), train.collect::<Vec<_>>()), (1, Vec::from([&b""[..]])));
        }
        assert_eq!(Train::new(b"abc", 0).collect::<Vec<_>>(), [b"abc"]);
        assert_eq!(Train::new(b"abc", 9).count(), 1);
    }
}
