//! The secret key that the endpoints of a job share.

use core::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The key of a job. Endpoints use it with HMAC-SHA-256 (RFC 2104) to prove to each other that they
/// know it, without sending it.
#[derive(Clone)]
pub struct JobKey(Hmac<Sha256>);

/// The purpose of a proof by the job key. A proof for one purpose is invalid for every other one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Purpose {
    /// Proof that the endpoint that answers a challenge knows the key.
    Answer = 1,
    /// Proof that the endpoint that sent the challenge knows the key.
    Confirm = 2,
    /// Derivation of the secret of an association, which both endpoints compute in the handshake.
    Association = 3,
    /// Derivation of the JobID that all endpoints with the key have in common.
    JobId = 4,
    /// Derivation of the secret from which two endpoints derive the keys of their packets.
    PairSecret = 5,
    /// Proof that the endpoint that welcomes another one has accepted its confirmation.
    Welcome = 6,
    /// Proof that the endpoint that refuses a handshake knows the key.
    Refuse = 7,
    /// Proof that the sender of a packet about its network cards knows the key.
    Rails = 8,
}

/// The first half of an HMAC-SHA-256. RFC 2104 section 5 allows a truncation to half the length;
/// 128 bits cannot be guessed.
pub type Proof = [u8; 16];

impl JobKey {
    /// Creates a key from a secret. The caller checks the length of the secret: fewer than 16
    /// random bytes can be found by trial.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        match Hmac::new_from_slice(secret) {
            Ok(mac) => Self(mac),
            Err(_) => unreachable!("HMAC takes keys of any length"),
        }
    }

    /// Returns the proof that the caller knows the key, for this purpose and these `fields`.
    #[must_use]
    pub fn prove(&self, purpose: Purpose, fields: &[u64]) -> Proof {
        let whole = self.mac(purpose, fields).finalize().into_bytes();
        let mut half = Proof::default();
        half.copy_from_slice(&whole[..16]);
        half
    }

    /// Returns the secret of two endpoints, which only endpoints with the key can derive from
    /// `fields`, the values of their handshake.
    #[must_use]
    pub fn derive_secret(&self, fields: &[u64]) -> PairSecret {
        PairSecret(self.mac(Purpose::PairSecret, fields).finalize().into_bytes().into())
    }

    /// Returns whether `proof` equals the result of [`Self::prove`]. The comparison takes constant
    /// time, so its duration reveals nothing about the key.
    #[must_use]
    pub fn verify(&self, purpose: Purpose, fields: &[u64], proof: &Proof) -> bool {
        self.mac(purpose, fields).verify_truncated_left(proof).is_ok()
    }

    /// Returns the JobID that follows from the key: 24 bits, never 0.
    #[must_use]
    pub fn job_id(&self) -> u32 {
        let proof = self.prove(Purpose::JobId, &[]);
        let id = u32::from_be_bytes([0, proof[0], proof[1], proof[2]]);
        id.max(1)
    }

    fn mac(&self, purpose: Purpose, fields: &[u64]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(&[purpose as u8]);
        for field in fields {
            mac.update(&field.to_be_bytes());
        }
        mac
    }
}

/// The secret that two endpoints share, another one after each handshake. Dropping it overwrites it
/// with zeros.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct PairSecret([u8; 32]);

impl PairSecret {
    /// Creates a secret from 32 bytes that are uniformly distributed.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the secret, for the derivation of keys.
    #[must_use]
    pub const fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for PairSecret {
    /// Prints a placeholder, so that logs contain no part of the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairSecret(..)")
    }
}

impl fmt::Debug for JobKey {
    /// Prints a placeholder, so that logs contain no part of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(..)")
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::format;

    use super::*;

    /// RFC 4231 section 4.3, test case 2.
    #[test]
    fn the_mac_is_hmac_sha_256() {
        let mut mac = JobKey::new(b"Jefe").0;
        mac.update(b"what do ya want for nothing?");
        assert_eq!(
            mac.finalize().into_bytes()[..8],
            [0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e]
        );
    }

    #[test]
    fn a_proof_is_valid_for_one_purpose_and_its_fields() {
        let (key, other) = (JobKey::new(&[7; 16]), JobKey::new(&[8; 16]));
        let proof = key.prove(Purpose::Answer, &[1, 2]);
        assert!(key.clone().verify(Purpose::Answer, &[1, 2], &proof));
        assert!(!key.verify(Purpose::Confirm, &[1, 2], &proof));
        assert!(!key.verify(Purpose::Answer, &[1, 3], &proof));
        assert!(!key.verify(Purpose::Answer, &[1, 2, 0], &proof));
        assert!(!other.verify(Purpose::Answer, &[1, 2], &proof));
        let mut bent = proof;
        bent[15] ^= 1;
        assert!(!key.verify(Purpose::Answer, &[1, 2], &bent));
    }

    #[test]
    fn the_job_id_has_24_bits_and_the_key_is_not_printed() {
        for n in 0..200 {
            let key = JobKey::new(&[n; 20]);
            assert!((1..1 << 24).contains(&key.job_id()));
            assert_eq!(format!("{key:?}"), "JobKey(..)");
        }
        assert_ne!(JobKey::new(&[1]).job_id(), JobKey::new(&[2]).job_id());
    }
}
