//! Unpredictable randomness: the ChaCha20 stream cipher (Bernstein, "ChaCha, a variant of Salsa20",
//! 2008) as a generator.

use core::fmt;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng as _, SeedableRng as _};

use crate::instance::Instance;

/// A cryptographic generator, for keys, cookies and other values that nobody may guess. Any number
/// of its outputs reveals nothing about the next one. Use [`Rng`](crate::Rng) for repeatable runs.
///
/// The generator is as secret as its seed, which comes from the operating system outside tests. It
/// cannot be cloned, because two generators with the same state would produce the same secrets.
pub struct SecretRng(ChaCha20Rng);

impl SecretRng {
    /// Creates the generator from a seed that another generator made.
    #[must_use]
    pub fn new(seed: &Seed) -> Self {
        Self::from_seed(seed.0)
    }

    /// Creates a generator whose whole sequence follows from this 256-bit key.
    #[must_use]
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(ChaCha20Rng::from_seed(seed))
    }

    /// Returns 32 unpredictable bits.
    pub fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// Returns 64 unpredictable bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a seed for another generator. The seed reveals nothing about this generator.
    pub fn seed(&mut self) -> Seed {
        let mut seed = [0; 32];
        self.0.fill_bytes(&mut seed);
        Seed(seed)
    }

    /// Returns a random instance number for a new endpoint.
    pub fn instance(&mut self) -> Instance {
        loop {
            if let Some(instance) = Instance::new(self.next_u32()) {
                return instance;
            }
        }
    }
}

/// The seed of a cryptographic generator, which is used once.
#[derive(Clone)]
pub struct Seed([u8; 32]);

impl Seed {
    /// Creates a seed from 32 bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for Seed {
    /// Prints a placeholder, so that logs contain no part of the seed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

impl fmt::Debug for SecretRng {
    /// Prints a placeholder, so that logs contain no part of the state.
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
    fn the_stream_is_that_of_chacha20() {
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
    fn seeds_give_different_streams_and_are_not_printed() {
        let mut seed = [0; 32];
        seed[31] = 1;
        let mut rng = SecretRng::from_seed(seed);
        assert_ne!(rng.next_u64(), SecretRng::from_seed([0; 32]).next_u64());
        assert_eq!(format!("{rng:?}"), "SecretRng(..)");
    }
}
