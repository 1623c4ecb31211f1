//! Proofs that two endpoints exchange in a handshake, and the secrets that they derive from it.

use crate::base::{Instance, JobKey, Proof, Purpose};
use crate::reliability::Association;
use crate::wire::Handshake;

/// The values of a handshake that both ends see.
pub(super) struct Transcript([u64; 3]);

impl Transcript {
    /// Creates the transcript of a challenge, or of its confirmation, between two instances.
    pub(super) fn new(asker: Instance, answerer: Instance, packet: &Handshake) -> Self {
        let who = u64::from(asker.get()) << 32 | u64::from(answerer.get());
        Self([who, packet.nonce, packet.cookie])
    }

    /// Returns the proof that this endpoint knows the job's key.
    pub(super) fn prove(&self, key: &JobKey, purpose: Purpose) -> Proof {
        key.prove(purpose, &self.0)
    }

    /// Returns whether the other end, which sent `packet`, knows the key of this job. If the job has
    /// no key, every peer passes, whatever proof it sends.
    pub(super) fn is_proven(
        &self,
        key: Option<&JobKey>,
        purpose: Purpose,
        packet: &Handshake,
    ) -> bool {
        key.is_none_or(|key| key.verify(purpose, &self.0, &packet.proof))
    }

    /// Returns the secret that both ends share from now on. With a job key, an attacker who has
    /// seen the whole exchange cannot derive it.
    pub(super) fn association(&self, key: Option<&JobKey>) -> Association {
        let Some(key) = key else {
            let [_, nonce, cookie] = self.0;
            return Association::new(cookie, nonce);
        };
        let whole = u128::from_be_bytes(key.prove(Purpose::Association, &self.0));
        // The association consists of the high and the low half.
        Association::new((whole >> 64) as u64, whole as u64)
    }
}
