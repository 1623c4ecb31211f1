//! What a port's receive buffer, where packets wait until the port is looked at, has no room for.

use squall_base::Train;

/// What is known of it.
pub(crate) struct SocketBuffer {
    bytes: u64,
    /// Messages that found it full, as was last heard, modulo 2^32.
    overflow: u32,
    /// It was full, and has not been empty since.
    full: bool,
    /// It was found full in this very look, of which nobody was told yet.
    fresh: bool,
}

impl SocketBuffer {
    /// One that holds so many bytes.
    pub(crate) const fn new(bytes: u64) -> Self {
        Self { bytes, overflow: 0, full: false, fresh: false }
    }

    /// How many it holds.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// `train` came, and with it that `overflow` messages had found the buffer full. About how many bytes those had of which
    /// nobody had heard: what is counted are messages, of which `train` is one. What was held back on its way
    /// (`FI_SQUALL_FAULT`) brings an older count.
    #[inline]
    pub(crate) fn note_overflow(&mut self, overflow: u32, train: Train<'_>) -> Option<u64> {
        if overflow == self.overflow {
            return None;
        }
        let lost = overflow.wrapping_sub(self.overflow);
        (lost <= u32::MAX / 2).then(|| self.overflowed(lost, train))
    }

    #[cold]
    fn overflowed(&mut self, lost: u32, train: Train<'_>) -> u64 {
        self.overflow = self.overflow.wrapping_add(lost);
        (self.full, self.fresh) = (true, true);
        let bytes: usize = train.map(<[u8]>::len).sum();
        u64::from(lost).saturating_mul(bytes as u64)
    }

    /// The port was looked at, and is `empty` now. True when it had been full, and those who fill it had a look's time to
    /// hear of it.
    #[inline]
    pub(crate) fn note_poll(&mut self, empty: bool) -> bool {
        let fresh = core::mem::take(&mut self.fresh);
        let drained = self.full && empty && !fresh;
        self.full &= !drained;
        drained
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_found_it_full_is_heard_of_once_and_that_it_is_empty_in_a_later_look() {
        let mut buffer = SocketBuffer::new(1000);
        let train = Train::new(&[0; 25], 10);
        assert_eq!((buffer.note_overflow(0, train), buffer.note_poll(true)), (None, false));
        assert_eq!(
            (buffer.note_overflow(2, train), buffer.note_overflow(2, train)),
            (Some(50), None)
        );
        assert!(!buffer.note_poll(true) && !buffer.note_poll(false));
        assert!(buffer.note_poll(true) && !buffer.note_poll(true));
    }

    #[test]
    fn an_older_count_says_nothing_and_counts_wrap() {
        let mut buffer = SocketBuffer::new(1000);
        let packet = Train::single(b"packet");
        assert_eq!(buffer.note_overflow(7, packet), Some(42));
        assert_eq!(
            (buffer.note_overflow(6, packet), buffer.note_overflow(7, packet)),
            (None, None)
        );
        assert_eq!(buffer.note_overflow(8, packet), Some(6));
        let mut buffer = SocketBuffer { overflow: u32::MAX, ..SocketBuffer::new(1000) };
        assert_eq!(buffer.note_overflow(1, packet), Some(12));
    }
}
