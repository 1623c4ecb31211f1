//! Proofs that two endpoints exchange in a handshake, and the secrets that they derive from it.
//! `docs/wire.md` gives the bytes, with a test vector.

use crate::base::{Instance, JobKey, PairSecret, Proof, Purpose};
use crate::reliability::Association;
use crate::wire::Handshake;

/// The values of a handshake that both ends see.
pub(super) struct Transcript([u64; 4]);

impl Transcript {
    /// Creates the transcript of a challenge, or of its confirmation, between two instances.
    pub(super) fn new(asker: Instance, answerer: Instance, packet: &Handshake) -> Self {
        let who = u64::from(asker.get()) << 32 | u64::from(answerer.get());
        // Both ends must have the same version and capabilities, so either puts in its own or the
        // other's. Who changes them on the way makes the proof invalid.
        let form = u64::from(packet.version) << 32 | u64::from(packet.capabilities);
        Self([who, packet.nonce, packet.cookie, form])
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
            let [_, nonce, cookie, _] = self.0;
            return Association::new(cookie, nonce);
        };
        let whole = u128::from_be_bytes(key.prove(Purpose::Association, &self.0));
        // The association consists of the high and the low half.
        Association::new((whole >> 64) as u64, whole as u64)
    }

    /// Returns the secret from which the keys of the packets between both ends are derived.
    pub(super) fn secret(&self, key: &JobKey) -> PairSecret {
        key.derive_secret(&self.0[..3])
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
            capabilities: Handshake::ENCRYPTS,
            proof: [0; 16],
        };
        let instance = |number| Instance::new(number).expect("not 0");
        let exchange = Transcript::new(instance(0x1112_1314), instance(0x2122_2324), &packet);
        let key = JobKey::new(b"0123456789abcdef");
        let answer = 0xa7b5_4a65_1221_bad7_77e6_faeb_4495_8aab_u128;
        let confirm = 0x1ad4_34dd_447b_0e68_98c2_c814_4cb7_0c29_u128;
        assert_eq!(exchange.prove(&key, Purpose::Answer), answer.to_be_bytes());
        assert_eq!(exchange.prove(&key, Purpose::Confirm), confirm.to_be_bytes());
        let with_key = Association::new(0xfd90_aad5_f21b_5374, 0x7043_2501_5fd3_8fbe);
        assert!(exchange.association(Some(&key)) == with_key);
        assert!(exchange.association(None) == Association::new(packet.cookie, packet.nonce));
        let secret = exchange.secret(&key);
        let halves = [
            0xea57_9396_fb3a_da08_4e97_c54d_6d3f_4c91_u128,
            0x702f_caa8_91c2_ea54_0a8f_3db4_16f0_8e70_u128,
        ];
        assert_eq!(secret.expose()[..], halves.map(u128::to_be_bytes).concat());
        assert_eq!(key.job_id(), 0x7d_28bb);
    }
}
