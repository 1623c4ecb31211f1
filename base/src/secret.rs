//! Randomness that others must not guess: ChaCha20 (RFC 8439), from a seed of the system's.

use core::fmt;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::instance::Instance;

/// A generator whose outputs tell nothing of each other. Slower and larger than [`crate::Rng`], which is
/// for everything that may be guessed.
#[derive(Clone)]
pub struct SecretRng(ChaCha20Rng);

impl SecretRng {
    /// A generator whose whole sequence follows from `seed`: the system's randomness, or, where a run is to
    /// be repeated, something known.
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
    pub fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.0.fill_bytes(&mut seed);
        seed
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

impl fmt::Debug for SecretRng {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretRng(..)")
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn the_first_block_is_that_of_rfc_8439_and_nothing_is_shown() {
        // Appendix A.1, test vector 1: a key of zeros.
        let mut rng = SecretRng::from_seed([0; 32]);
        assert_eq!(rng.next_u32().to_le_bytes(), [0x76, 0xb8, 0xe0, 0xad]);
        assert_eq!(rng.next_u32().to_le_bytes(), [0xa0, 0xf1, 0x3d, 0x90]);
        assert_eq!(std::format!("{rng:?}"), "SecretRng(..)");
        assert_ne!(rng.clone().seed(), SecretRng::from_seed([1; 32]).seed());
        assert_ne!(rng.instance(), rng.instance());
    }
}
