//! Bitmap of the packets that arrived ahead of the oldest missing one.

use crate::base::Psn;

/// The number of 64-bit words in a bitmap. Its 4096 bits are at least as many as the packets of the
/// largest window ([`crate::MAX_WINDOW`]).
const WORDS: usize = 64;

/// A ring of bits that is indexed by PSN. The number of bits is a power of two, so the low bits of
/// a PSN are its index, and the ring needs no special case where PSNs wrap at 2^32.
#[derive(Debug)]
pub(crate) struct Bitmap([u64; WORDS]);

impl Bitmap {
    /// Returns a bitmap with all bits clear.
    pub(crate) const fn new() -> Self {
        Self([0; WORDS])
    }

    const fn locate(psn: Psn) -> (usize, u64) {
        let word = (psn.0 >> 6) as usize & (WORDS - 1);
        (word, 1 << (psn.0 & 63))
    }

    pub(crate) fn get(&self, psn: Psn) -> bool {
        let (word, bit) = Self::locate(psn);
        self.0[word] & bit != 0
    }

    pub(crate) fn set(&mut self, psn: Psn) {
        let (word, bit) = Self::locate(psn);
        self.0[word] |= bit;
    }

    /// Clears the bit of `psn` and returns whether it was set.
    pub(crate) fn take(&mut self, psn: Psn) -> bool {
        let (word, bit) = Self::locate(psn);
        let was = self.0[word] & bit != 0;
        self.0[word] &= !bit;
        was
    }

    /// Returns the 64 bits from `psn` on; bit 0 is that of `psn`.
    pub(crate) fn window(&self, psn: Psn) -> u64 {
        let (word, _) = Self::locate(psn);
        let shift = psn.0 & 63;
        let low = self.0[word] >> shift;
        if shift == 0 {
            return low;
        }
        low | self.0[(word + 1) & (WORDS - 1)] << (64 - shift)
    }

    /// Clears all bits.
    pub(crate) fn clear(&mut self) {
        self.0.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cross_words_and_the_wrap() {
        let mut bits = Bitmap::new();
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

    /// Compares a window that slides over random arrivals with a plain bit vector that is shifted.
    #[test]
    fn agrees_with_a_bit_vector_that_is_shifted() {
        use bitvec::prelude::*;
        let mut rng = crate::base::Rng::new(5);
        let mut bits = Bitmap::new();
        let mut base = Psn(u32::MAX - 3000);
        let mut model: BitVec<u64, Lsb0> = bitvec![u64, Lsb0; 0; 2048];
        for _ in 0..20_000 {
            let ahead = if rng.chance(0.5) { 0 } else { rng.below(2048) };
            bits.set(base.plus(ahead));
            model.set(ahead as usize, true);
            let from = rng.below(2048 - 64) as usize;
            assert_eq!(
                bits.window(base.plus(from as u32)),
                model[from..from + 64].load_le::<u64>()
            );
            while bits.take(base) {
                assert!(model[0]);
                model.shift_start(1);
                base = base.plus(1);
            }
            assert!(!model[0]);
        }
        assert!(base.0 < 100_000, "the wrap was crossed");
    }
}
