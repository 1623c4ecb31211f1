//! Which packets ahead of the oldest missing one have arrived.

use crate::base::Psn;

/// A ring of bits by PSN: as many as a power of two no smaller than the window, so that the PSN's low
/// bits are the index and its wrap at 2^32 is none here.
#[derive(Debug)]
pub(crate) struct Bitmap(Box<[u64]>);

impl Bitmap {
    /// All clear, for windows of up to `window` packets.
    pub(crate) fn new(window: u16) -> Self {
        let words = usize::from(window).next_power_of_two().div_ceil(64).max(1);
        Self(vec![0; words].into_boxed_slice())
    }

    fn locate(&self, psn: Psn) -> (usize, u64) {
        let word = (psn.0 >> 6) as usize & (self.0.len() - 1);
        (word, 1 << (psn.0 & 63))
    }

    pub(crate) fn get(&self, psn: Psn) -> bool {
        let (word, bit) = self.locate(psn);
        self.0[word] & bit != 0
    }

    pub(crate) fn set(&mut self, psn: Psn) {
        let (word, bit) = self.locate(psn);
        self.0[word] |= bit;
    }

    /// Clears the bit and says whether it was set.
    pub(crate) fn take(&mut self, psn: Psn) -> bool {
        let (word, bit) = self.locate(psn);
        let was = self.0[word] & bit != 0;
        self.0[word] &= !bit;
        was
    }

    /// The 64 bits from `psn` on, the first in bit 0.
    pub(crate) fn window(&self, psn: Psn) -> u64 {
        let (word, _) = self.locate(psn);
        let shift = psn.0 & 63;
        let low = self.0[word] >> shift;
        if shift == 0 {
            return low;
        }
        low | self.0[(word + 1) & (self.0.len() - 1)] << (64 - shift)
    }

    /// Clears everything.
    pub(crate) fn clear(&mut self) {
        self.0.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cross_words_and_the_wrap() {
        let mut bits = Bitmap::new(2048);
        let base = Psn(u32::MAX - 9);
        for n in [0, 1, 20, 63, 64, 2047] {
            bits.set(base.plus(n));
        }
        assert_eq!(bits.window(base), 1 | 1 << 1 | 1 << 20 | 1 << 63);
        assert_eq!(bits.window(base.plus(20)), 1 | 1 << 43 | 1 << 44);
        assert!(bits.get(base.plus(2047)) && !bits.get(base.plus(2046)));
        assert!(bits.take(base.plus(64)) && !bits.take(base.plus(64)));
        bits.clear();
        assert_eq!(bits.window(base), 0);
    }

    #[test]
    fn a_ring_of_one_word_wraps_onto_itself() {
        let mut bits = Bitmap::new(64);
        bits.set(Psn(70));
        // 70 and 6 share a bit; a window never spans both.
        assert_eq!(bits.window(Psn(65)), 1 << 5);
    }
}
