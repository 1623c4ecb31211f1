//! Losses in a port's receive buffer, where packets wait until the port is polled.

use squall_base::Train;

/// The known state of a packet port's receive buffer: its size and its overflows.
pub(crate) struct SocketBuffer {
    bytes: u64,
    /// The last known number of messages that the kernel dropped because the buffer was full, modulo 2^32.
    overflow: u32,
    /// The buffer was full, and has not been found empty since.
    full: bool,
    /// The current poll found that the buffer had been full.
    fresh: bool,
}

impl SocketBuffer {
    /// Creates the state of a receive buffer of this size in bytes.
    pub(crate) const fn new(bytes: u64) -> Self {
        Self { bytes, overflow: 0, full: false, fresh: false }
    }

    /// Returns the size of the receive buffer in bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Notes that `overflow` messages in all had been dropped when `train` arrived. Returns about how many bytes the
    /// newly dropped messages had: the kernel counts messages, and `train` is taken as a typical one. A message that
    /// was delayed on its way (`FI_SQUALL_FAULT`) brings an older count.
    #[inline]
    pub(crate) fn record_overflow(&mut self, overflow: u32, train: Train<'_>) -> Option<u64> {
        if overflow == self.overflow {
            return None;
        }
        let lost = overflow.wrapping_sub(self.overflow);
        (lost <= u32::MAX / 2).then(|| self.count_lost_bytes(lost, train))
    }

    #[cold]
    fn count_lost_bytes(&mut self, lost: u32, train: Train<'_>) -> u64 {
        self.overflow = self.overflow.wrapping_add(lost);
        (self.full, self.fresh) = (true, true);
        let bytes: usize = train.map(<[u8]>::len).sum();
        u64::from(lost).saturating_mul(bytes as u64)
    }

    /// Notes that the port was polled, and whether it is `empty` now. Returns true if it had been full and its senders
    /// have had the time of a poll to learn of it.
    #[inline]
    pub(crate) fn record_poll(&mut self, empty: bool) -> bool {
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
        assert_eq!((buffer.record_overflow(0, train), buffer.record_poll(true)), (None, false));
        assert_eq!(
            (buffer.record_overflow(2, train), buffer.record_overflow(2, train)),
            (Some(50), None)
        );
        assert!(!buffer.record_poll(true) && !buffer.record_poll(false));
        assert!(buffer.record_poll(true) && !buffer.record_poll(true));
    }

    #[test]
    fn an_older_count_says_nothing_and_counts_wrap() {
        let mut buffer = SocketBuffer::new(1000);
        let packet = Train::single(b"packet");
        assert_eq!(buffer.record_overflow(7, packet), Some(42));
        assert_eq!(
            (buffer.record_overflow(6, packet), buffer.record_overflow(7, packet)),
            (None, None)
        );
        assert_eq!(buffer.record_overflow(8, packet), Some(6));
        let mut buffer = SocketBuffer { overflow: u32::MAX, ..SocketBuffer::new(1000) };
        assert_eq!(buffer.record_overflow(1, packet), Some(12));
    }
}
