//! AES-256-GCM with the nonces of TSS.
//!
//! The implementation is `ring`'s. On a Xeon with VAES it seals 64 bytes in 115 ns, 1400 bytes in
//! 390 ns and 8900 bytes in 1.5 us. AWS-LC (`aws-lc-rs`) takes 150 ns, 355 ns and 1.15 us, but its C
//! sources take minutes to build, and those of `ring` seconds. RustCrypto's `aes-gcm` takes 190 ns, 1.6 us
//! and 10 us.

use core::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};

use crate::kdf::DerivedKey;

/// Length in bytes of the tag after the encrypted part, the integrity check value.
pub const ICV_LEN: usize = crate::wire::Tss::ICV_LEN;

/// A derived key that is ready to encrypt and decrypt packets.
pub struct Cipher {
    key: LessSafeKey,
    iv_mask: [u8; 12],
}

impl Cipher {
    /// Creates a cipher that encrypts and decrypts with a derived key.
    #[must_use]
    pub fn new(derived: &DerivedKey) -> Self {
        match UnboundKey::new(&AES_256_GCM, &derived.key) {
            Ok(key) => Self { key: LessSafeKey::new(key), iv_mask: derived.iv_mask },
            Err(_) => unreachable!("AES-256 takes every key of 32 bytes"),
        }
    }

    /// Returns the nonce of a packet. `prefix` is the source identifier; in a header without one it
    /// is the IPv4 source address, or, over IPv6, the secure domain. `counter` is the epoch (upper 16
    /// bits) and the counter (lower 48 bits) of the TSS header.
    fn nonce(&self, prefix: u32, counter: u64) -> Nonce {
        let mut iv = [0; 12];
        iv[..4].copy_from_slice(&prefix.to_be_bytes());
        iv[4..].copy_from_slice(&counter.to_be_bytes());
        for (byte, mask) in iv.iter_mut().zip(self.iv_mask) {
            *byte ^= mask;
        }
        Nonce::assume_unique_for_key(iv)
    }

    /// Encrypts `packet` in place and returns its tag. The caller must not use a pair of `prefix` and
    /// `counter` more than once with one key.
    ///
    /// # Panics
    /// Panics if the packet is longer than 64 GiB.
    #[must_use]
    pub fn seal(
        &self,
        (prefix, counter): (u32, u64),
        authenticated: &[u8],
        packet: &mut [u8],
    ) -> [u8; ICV_LEN] {
        let nonce = self.nonce(prefix, counter);
        match self.key.seal_in_place_separate_tag(nonce, Aad::from(authenticated), packet) {
            Ok(tag) => {
                let mut icv = [0; ICV_LEN];
                icv.copy_from_slice(tag.as_ref());
                icv
            }
            Err(_) => unreachable!("no UDP payload reaches the limit of AES-GCM"),
        }
    }

    /// Decrypts `packet` in place. Returns false if the tag does not match; the content of `packet`
    /// is then undefined.
    #[must_use]
    pub fn open(
        &self,
        (prefix, counter): (u32, u64),
        authenticated: &[u8],
        packet: &mut [u8],
        icv: [u8; ICV_LEN],
    ) -> bool {
        let nonce = self.nonce(prefix, counter);
        let aad = Aad::from(authenticated);
        self.key.open_in_place_separate_tag(nonce, aad, Tag::from(icv), packet, 0..).is_ok()
    }
}

impl fmt::Debug for Cipher {
    /// Prints a placeholder, so that logs contain no part of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cipher(..)")
    }
}
