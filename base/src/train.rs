//! Packets that arrived together.

/// The UDP payloads of packets that came in one message of the system: of one sender, marked alike, each of
/// `segment` bytes but for the last, which may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train<'a> {
    /// What is left; an empty packet is a packet.
    bytes: Option<&'a [u8]>,
    segment: usize,
}

impl<'a> Train<'a> {
    /// `bytes`, a packet every `segment` of them. With 0, one packet.
    #[must_use]
    #[inline]
    pub const fn new(bytes: &'a [u8], segment: usize) -> Self {
        Self { bytes: Some(bytes), segment: if segment == 0 { bytes.len() } else { segment } }
    }

    /// One packet.
    #[must_use]
    #[inline]
    pub const fn single(bytes: &'a [u8]) -> Self {
        Self { bytes: Some(bytes), segment: bytes.len() }
    }

    /// The next packet, which stays where it is.
    #[must_use]
    #[inline]
    pub fn peek(&self) -> Option<&'a [u8]> {
        self.bytes.map(|bytes| bytes.get(..self.segment).unwrap_or(bytes))
    }

    /// How many packets are left.
    #[must_use]
    #[inline]
    pub fn count(&self) -> usize {
        self.bytes.map_or(0, |bytes| bytes.len().div_ceil(self.segment.max(1)).max(1))
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
        let (packet, rest) = bytes.split_at(self.segment);
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
    fn an_empty_packet_is_one() {
        for train in [Train::single(b""), Train::new(b"", 0), Train::new(b"", 7)] {
            assert_eq!((train.count(), train.collect::<Vec<_>>()), (1, Vec::from([&b""[..]])));
        }
        assert_eq!(Train::new(b"abc", 0).collect::<Vec<_>>(), [b"abc"]);
        assert_eq!(Train::new(b"abc", 9).count(), 1);
    }
}
