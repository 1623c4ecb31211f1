//! A fast hasher for match keys. Tags come from the network, so every map has a random seed: an
//! attacker who does not know the seed cannot aim all keys at one bucket.

use core::hash::{BuildHasher, Hasher};
use std::collections::HashMap;

/// A map from match keys, with a hash function that is cheap for them.
pub(super) type Map<K, V> = HashMap<K, V, Seeded>;

/// Builds the [`FoldHasher`]s of the matching tables from one seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seeded(pub(super) u64);

impl BuildHasher for Seeded {
    type Hasher = FoldHasher;
    fn build_hasher(&self) -> FoldHasher {
        FoldHasher(self.0)
    }
}

/// A multiply-and-fold hasher: it multiplies state and word and combines the two halves of the
/// 128-bit product by exclusive or.
#[derive(Debug)]
pub(super) struct FoldHasher(u64);

impl FoldHasher {
    fn fold(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15_u128;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for FoldHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.fold(u64::from(byte));
        }
    }
    fn write_u32(&mut self, n: u32) {
        self.fold(u64::from(n));
    }
    fn write_u64(&mut self, n: u64) {
        self.fold(n);
    }
    fn write_isize(&mut self, n: isize) {
        // Enums hash their discriminant by this method.
        self.fold(n.unsigned_abs() as u64);
    }
}
