//! Proofs that two endpoints exchange in a handshake, and the secrets that they derive from it.
//! `docs/wire.md` gives the bytes, with a test vector.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Reason, Stage, WIRE_VERSION};

    /// The numbers are the test vector of `docs/wire.md`, computed by Python's `hmac`.
    #[test]
    fn proofs_and_association_are_those_of_the_test_vector() {
        let packet = Handshake {
            stage: Stage::Confirm,
            version: WIRE_VERSION,
            port: 4793,
            reason: Reason::None,
            nonce: 0x0102_0304_0506_0708,
            instance: 0x1112_1314,
            expected: 0,
            cookie: 0x3132_3334_3536_3738,
            job_id: 1,
            capabilities: 0,
            proof: [0; 16],
        };
        let instance = |number| Instance::new(number).expect("not 0");
        let exchange = Transcript::new(instance(0x1112_1314), instance(0x2122_2324), &packet);
        let key = JobKey::new(b"0123456789abcdef");
        let answer = 0xa02c_ea8e_16d2_2f49_30a2_c010_1524_3cea_u128;
        let confirm = 0x80bc_116c_4e3d_1cfe_7a9a_1707_eeb5_ed7e_u128;
        assert_eq!(exchange.prove(&key, Purpose::Answer), answer.to_be_bytes());
        assert_eq!(exchange.prove(&key, Purpose::Confirm), confirm.to_be_bytes());
        let with_key = Association::new(0x9522_6b77_54b7_ca6d, 0x638a_d6aa_72d4_034b);
        assert!(exchange.association(Some(&key)) == with_key);
        assert!(exchange.association(None) == Association::new(packet.cookie, packet.nonce));
        assert_eq!(key.job_id(), 0x7d_28bb);
    }
}
