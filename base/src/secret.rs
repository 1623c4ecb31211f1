//! Randomness that nobody may guess: ChaCha20 (Bernstein, "ChaCha, a variant of Salsa20", 2008) as a generator.

use core::fmt;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng as _, SeedableRng as _};

use crate::instance::Instance;

/// A cryptographic generator: who has seen any number of its outputs cannot tell the next one. For keys, cookies
/// and whatever else a stranger must not guess; [`Rng`](crate::Rng) is for runs that shall be repeated.
///
/// It is as secret as its seed, which comes from the system's generator; only tests name one. It cannot be
/// cloned: two of the same state would give the same secret twice.
pub struct SecretRng(ChaCha20Rng);

impl SecretRng {
    /// The generator that a seed was kept for.
    #[must_use]
    pub fn new(seed: &Seed) -> Self {
        Self::from_seed(seed.0)
    }

    /// A generator with this key, at the beginning of its stream.
    #[must_use]
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(ChaCha20Rng::from_seed(seed))
    }

    /// 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A seed for another generator, which tells nothing of this one.
    pub fn seed(&mut self) -> Seed {
        let mut seed = [0; 32];
        self.0.fill_bytes(&mut seed);
        Seed(seed)
    }

    /// A number for a new endpoint.
    pub fn instance(&mut self) -> Instance {
        loop {
            if let Some(instance) = Instance::new(self.next_u32()) {
                return instance;
            }
        }
    }
}

/// What a generator of secrets begins with, to be handed on once.
#[derive(Clone)]
pub struct Seed([u8; 32]);

impl Seed {
    /// This seed.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for Seed {
    /// Shows nothing of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

impl fmt::Debug for SecretRng {
    /// Shows nothing of the state.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretRng(..)")
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::format;

    use super::*;

    /// The keystream of the all-zero key and nonce: RFC 8439, appendix A.1, test vectors 1 and 2 (its 32-bit
    /// counter and 96-bit nonce are the same words as ours while both are small).
    #[test]
    fn it_is_chacha20() {
        let mut rng = SecretRng::from_seed([0; 32]);
        assert_eq!(rng.next_u32().to_le_bytes(), [0x76, 0xb8, 0xe0, 0xad]);
        assert_eq!(rng.next_u32().to_le_bytes(), [0xa0, 0xf1, 0x3d, 0x90]);
        assert_eq!(rng.next_u64().to_le_bytes(), [0x40, 0x5d, 0x6a, 0xe5, 0x53, 0x86, 0xbd, 0x28]);
        for _ in 0..12 {
            rng.next_u32();
        }
        assert_eq!(rng.next_u32().to_le_bytes(), [0x9f, 0x07, 0xe7, 0xbe]);
    }

    #[test]
    fn another_seed_another_stream_and_none_is_shown() {
        let mut seed = [0; 32];
        seed[31] = 1;
        let mut rng = SecretRng::from_seed(seed);
        assert_ne!(rng.next_u64(), SecretRng::from_seed([0; 32]).next_u64());
        assert_eq!(format!("{rng:?}"), "SecretRng(..)");
    }
}
