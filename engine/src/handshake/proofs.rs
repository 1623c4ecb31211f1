//! Proofs that two endpoints exchange in a handshake, and the secrets that they derive from it.
//! `docs/wire.md` gives the bytes, with a test vector.

use crate::base::{Instance, JobKey, PairSecret, Proof, Purpose};
use crate::reliability::Association;
use crate::wire::{Handshake, Stage};

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

/// A handshake that was recorded on its way between two endpoints.
#[derive(Clone, Debug)]
pub struct RecordedHandshake {
    /// Instance of the endpoint that began the handshake.
    pub initiator: Instance,
    /// Instance of the endpoint that answered it.
    pub responder: Instance,
    /// Secret of the two endpoints. `None` if the sender of the packet has not proven that it knows
    /// the key.
    pub secret: Option<PairSecret>,
}

impl RecordedHandshake {
    /// Derives the secret of the handshake that `packet` belongs to. Returns `None` if the packet
    /// does not have all of its values: it is neither a challenge nor a confirmation, or a
    /// confirmation that does not name the responder.
    #[must_use]
    pub fn new(key: &JobKey, packet: &Handshake) -> Option<Self> {
        let sender = Instance::new(packet.instance)?;
        let receiver = Instance::new(packet.expected)?;
        let (initiator, responder, purpose) = match packet.stage {
            Stage::Challenge => (receiver, sender, Purpose::Answer),
            Stage::Confirm => (sender, receiver, Purpose::Confirm),
            Stage::Hello | Stage::Welcome | Stage::Refuse => return None,
        };
        let exchange = Transcript::new(initiator, responder, packet);
        let proven = exchange.is_proven(Some(key), purpose, packet);
        Some(Self { initiator, responder, secret: proven.then(|| exchange.secret(key)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Reason, WIRE_VERSION};

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
        let answer = 0x066b_b314_77b8_7d7c_0d05_5f60_1190_4b4a_u128;
        let confirm = 0xd16b_783b_d6ba_18de_f130_2bec_3e12_16df_u128;
        assert_eq!(exchange.prove(&key, Purpose::Answer), answer.to_be_bytes());
        assert_eq!(exchange.prove(&key, Purpose::Confirm), confirm.to_be_bytes());
        let with_key = Association::new(0x38f3_137a_c114_cec2, 0x843d_c797_cc41_f4c5);
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
    #[test]
    fn a_recorded_handshake_yields_the_secret_to_who_has_the_key() {
        let (asker, answerer) = (0x1112_1314, 0x2122_2324);
        let key = JobKey::new(b"0123456789abcdef");
        let instance = |number| Instance::new(number).expect("not 0");
        let mut challenge = Handshake {
            stage: Stage::Challenge,
            version: WIRE_VERSION,
            port: 4793,
            reason: Reason::None,
            nonce: 0x0102_0304_0506_0708,
            instance: answerer,
            expected: asker,
            cookie: 0x3132_3334_3536_3738,
            job_id: 1,
            capabilities: Handshake::ENCRYPTS,
            proof: [0; 16],
        };
        let mut confirm =
            Handshake { stage: Stage::Confirm, instance: asker, expected: answerer, ..challenge };
        let exchange = Transcript::new(instance(asker), instance(answerer), &challenge);
        challenge.proof = exchange.prove(&key, Purpose::Answer);
        confirm.proof = exchange.prove(&key, Purpose::Confirm);
        for packet in [challenge, confirm] {
            let read = RecordedHandshake::new(&key, &packet).expect("all values");
            assert_eq!((read.initiator.get(), read.responder.get()), (asker, answerer));
            assert!(read.secret == Some(exchange.secret(&key)));
            let other = RecordedHandshake::new(&JobKey::new(&[7; 16]), &packet);
            assert!(other.expect("all values").secret.is_none());
        }
        let hello = Handshake { stage: Stage::Hello, ..confirm };
        for packet in [hello, Handshake { expected: 0, ..confirm }] {
            assert!(RecordedHandshake::new(&key, &packet).is_none());
        }
    }
}
