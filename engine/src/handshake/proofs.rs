//! Proofs that two endpoints exchange in a handshake, and the secrets that they derive from it.
//! `docs/wire.md` gives the bytes, with a test vector.

use core::net::{IpAddr, SocketAddr};

use crate::base::{Instance, JobKey, PairSecret, Proof, Purpose};
use crate::config::Config;
use crate::reliability::Association;
use crate::wire::{Handshake, Stage};

/// One of the two endpoints of a handshake: its identity and its address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Party {
    pub(super) instance: Instance,
    pub(super) addr: SocketAddr,
}

impl Party {
    /// Returns the endpoint with this configuration. [`Config::host`] is known if there is a key.
    pub(super) fn own(config: &Config) -> Self {
        let addr = config.address().unwrap_or(([0; 4], config.port).into());
        Self { instance: config.instance, addr }
    }

    /// Returns the IP address as two words. An IPv4 address counts as the IPv6 address that it is
    /// mapped to.
    fn ip_words(self) -> [u64; 2] {
        let ip = match self.addr.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let whole = u128::from_be_bytes(ip.octets());
        [(whole >> 64) as u64, whole as u64]
    }
}

/// Number of words of the transcript of a handshake, and of a refusal.
const WORDS: usize = 9;
const REFUSAL_WORDS: usize = WORDS + 2;

/// The values of a handshake that both ends see.
///
/// The addresses are among them. Otherwise an attacker without the key could return or forward the
/// proofs of two endpoints, and so be verified at its own address.
pub(super) struct Transcript<const N: usize = WORDS>([u64; N]);

impl<const N: usize> Transcript<N> {
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
}

impl Transcript {
    /// Creates the transcript of a challenge, of its confirmation, or of the welcome.
    pub(super) fn new(initiator: Party, responder: Party, packet: &Handshake) -> Self {
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        // Both ends must have the same version and capabilities, so either puts in its own or the
        // other's. Who changes them on the way makes the proof invalid.
        let form = u64::from(packet.version) << 32 | u64::from(packet.capabilities);
        let [from, to] = [initiator.ip_words(), responder.ip_words()];
        Self([
            pair(initiator.instance.get(), responder.instance.get()),
            packet.nonce,
            packet.cookie,
            form,
            from[0],
            from[1],
            to[0],
            to[1],
            pair(initiator.addr.port().into(), responder.addr.port().into()),
        ])
    }

    /// Returns the secret that both ends share from now on. With a job key, an attacker who has
    /// seen the whole exchange cannot derive it.
    pub(super) fn association(&self, key: Option<&JobKey>) -> Association {
        let Some(key) = key else {
            let [_, nonce, cookie, ..] = self.0;
            return Association::new(cookie, nonce);
        };
        let whole = u128::from_be_bytes(key.prove(Purpose::Association, &self.0));
        // The association consists of the high and the low half.
        Association::new((whole >> 64) as u64, whole as u64)
    }

    /// Returns the secret from which the keys of the packets between both ends are derived.
    pub(super) fn secret(&self, key: &JobKey) -> PairSecret {
        key.derive_secret(&self.0)
    }
}

impl Transcript<REFUSAL_WORDS> {
    /// Creates the transcript of a refusal of `question`. It contains all of the question that may
    /// be the reason: an attacker could otherwise change the question, and have it refused.
    pub(super) fn of_refusal(
        initiator: Party,
        responder: Party,
        question: &Handshake,
        refusal: &Handshake,
    ) -> Self {
        let mut words = [0; REFUSAL_WORDS];
        words[..WORDS].copy_from_slice(&Transcript::new(initiator, responder, question).0);
        words[WORDS] = u64::from(question.job_id) << 32 | u64::from(question.expected);
        words[WORDS + 1] = u64::from(refusal.capabilities) << 32
            | u64::from(question.stage.to_u8()) << 8
            | u64::from(refusal.reason.to_u8());
        Self(words)
    }
}

/// A handshake that was recorded on its way between two endpoints, for decryption of a capture.
#[derive(Clone, Debug)]
pub struct RecordedHandshake {
    /// Instance number of the endpoint that began the recorded handshake.
    pub initiator: Instance,
    /// Instance number of the endpoint that answered the recorded handshake.
    pub responder: Instance,
    /// Secret of the two endpoints. `None` if the sender of the packet has not proven that it knows
    /// the key.
    pub secret: Option<PairSecret>,
}

impl RecordedHandshake {
    /// Derives the secret of the handshake that `packet` belongs to, which went from the address
    /// `source` to `destination`. Returns `None` if the packet does not have all of the handshake's
    /// values: it is neither a challenge nor a confirmation, or does not name its receiver.
    #[must_use]
    pub fn new(
        key: &JobKey,
        (source, destination): (SocketAddr, SocketAddr),
        packet: &Handshake,
    ) -> Option<Self> {
        // The source port of a packet is its entropy.
        let addr = SocketAddr::new(source.ip(), packet.port);
        let sender = Party { instance: Instance::new(packet.instance)?, addr };
        let receiver = Party { instance: Instance::new(packet.expected)?, addr: destination };
        let (initiator, responder, purpose) = match packet.stage {
            Stage::Challenge => (receiver, sender, Purpose::Answer),
            Stage::Confirm => (sender, receiver, Purpose::Confirm),
            Stage::Hello | Stage::Welcome | Stage::Refuse => return None,
        };
        let exchange = Transcript::new(initiator, responder, packet);
        let proven = exchange.is_proven(Some(key), purpose, packet);
        let (initiator, responder) = (initiator.instance, responder.instance);
        Some(Self { initiator, responder, secret: proven.then(|| exchange.secret(key)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Reason, WIRE_VERSION};

    /// The initiator and the responder of the test vector of `docs/wire.md`.
    fn parties() -> [Party; 2] {
        let party = |instance, ip: &str, port| Party {
            instance: Instance::new(instance).expect("not 0"),
            addr: SocketAddr::new(ip.parse().expect("an address"), port),
        };
        [party(0x1112_1314, "192.0.2.1", 4793), party(0x2122_2324, "192.0.2.2", 40_000)]
    }

    fn key() -> JobKey {
        JobKey::new(b"0123456789abcdef")
    }

    fn packet(stage: Stage) -> Handshake {
        Handshake {
            stage,
            version: WIRE_VERSION,
            port: 4793,
            reason: Reason::None,
            nonce: 0x0102_0304_0506_0708,
            instance: 0x1112_1314,
            expected: 0x2122_2324,
            cookie: 0x3132_3334_3536_3738,
            job_id: 1,
            capabilities: Handshake::ENCRYPTS,
            proof: [0; 16],
        }
    }

    /// The numbers are the test vector of `docs/wire.md`, computed by Python's `hmac`.
    #[test]
    fn proofs_and_association_are_those_of_the_test_vector() {
        let [initiator, responder] = parties();
        let (key, confirm) = (key(), packet(Stage::Confirm));
        let exchange = Transcript::new(initiator, responder, &confirm);
        for (purpose, proof) in [
            (Purpose::Answer, 0x0c34_a224_14df_9897_a39e_7d77_1d20_ba33_u128),
            (Purpose::Confirm, 0x7b01_8498_c37e_8b47_4557_43eb_82fa_d163_u128),
            (Purpose::Welcome, 0x8a9b_1c35_4144_caa3_62ca_6d61_8b43_614e_u128),
        ] {
            assert_eq!(exchange.prove(&key, purpose), u128::to_be_bytes(proof), "{purpose:?}");
        }
        let refusal = Handshake { stage: Stage::Refuse, reason: Reason::Stale, ..confirm };
        let refused = Transcript::of_refusal(initiator, responder, &confirm, &refusal);
        assert_eq!(
            refused.prove(&key, Purpose::Refuse),
            u128::to_be_bytes(0xe987_1316_91fa_eb3c_8855_1100_f108_31d2_u128)
        );
        let with_key = Association::new(0x1e01_e06c_0ac8_854b, 0x3014_1f7c_cc34_90d8);
        assert!(exchange.association(Some(&key)) == with_key);
        let without = Association::new(confirm.cookie, confirm.nonce);
        assert!(exchange.association(None) == without);
        let secret = exchange.secret(&key);
        let halves = [
            0xb30d_4f98_2904_e7f5_952c_fd52_e3ba_fcea_u128,
            0x902d_9be7_2761_bac1_60bc_788d_4b28_586a_u128,
        ];
        assert_eq!(secret.expose()[..], halves.map(u128::to_be_bytes).concat());
        assert_eq!(key.job_id(), 0x7d_28bb);
    }

    /// A proof is valid for the two addresses alone, and for none with the ends exchanged.
    #[test]
    fn proofs_cover_the_addresses_of_both_ends() {
        let [initiator, responder] = parties();
        let confirm = packet(Stage::Confirm);
        let proof = |from, to| Transcript::new(from, to, &confirm).prove(&key(), Purpose::Confirm);
        let right = proof(initiator, responder);
        let moved = |party: Party, addr: &str| Party { addr: addr.parse().expect("one"), ..party };
        for addr in ["192.0.2.9:4793", "192.0.2.1:4794", "[2001:db8::1]:4793", "192.0.2.2:40000"] {
            assert_ne!(proof(moved(initiator, addr), responder), right, "{addr}");
        }
        for addr in ["192.0.2.9:40000", "192.0.2.2:40001", "192.0.2.1:4793"] {
            assert_ne!(proof(initiator, moved(responder, addr)), right, "{addr}");
        }
        let exchanged = |party: Party, other: Party| Party { addr: other.addr, ..party };
        let swapped = proof(exchanged(initiator, responder), exchanged(responder, initiator));
        assert_ne!(swapped, right);
        // An endpoint that receives IPv4 by an IPv6 socket sees the mapped address.
        assert_eq!(proof(moved(initiator, "[::ffff:192.0.2.1]:4793"), responder), right);
    }

    #[test]
    fn a_refusal_is_proven_for_its_question_and_reason_alone() {
        let [initiator, responder] = parties();
        let (key, hello) = (key(), Handshake { cookie: 0, ..packet(Stage::Hello) });
        let refusal = Handshake { stage: Stage::Refuse, reason: Reason::Job, ..hello };
        let proof = |question: &Handshake, refusal: &Handshake| {
            Transcript::of_refusal(initiator, responder, question, refusal)
                .prove(&key, Purpose::Refuse)
        };
        let right = proof(&hello, &refusal);
        for other in [
            Handshake { stage: Stage::Confirm, ..hello },
            Handshake { version: WIRE_VERSION - 1, ..hello },
            Handshake { nonce: 1, ..hello },
            Handshake { expected: 0, ..hello },
            Handshake { cookie: 1, ..hello },
            Handshake { job_id: 2, ..hello },
            Handshake { capabilities: 0, ..hello },
        ] {
            assert_ne!(proof(&other, &refusal), right, "{other:?}");
        }
        for other in [
            Handshake { reason: Reason::Stale, ..refusal },
            Handshake { capabilities: 0, ..refusal },
        ] {
            assert_ne!(proof(&hello, &other), right, "{other:?}");
        }
    }

    #[test]
    fn a_recorded_handshake_yields_the_secret_to_who_has_the_key() {
        let [initiator, responder] = parties();
        let (key, confirm) = (key(), packet(Stage::Confirm));
        let exchange = Transcript::new(initiator, responder, &confirm);
        let confirm = Handshake { proof: exchange.prove(&key, Purpose::Confirm), ..confirm };
        let challenge = Handshake {
            stage: Stage::Challenge,
            port: responder.addr.port(),
            instance: confirm.expected,
            expected: confirm.instance,
            proof: exchange.prove(&key, Purpose::Answer),
            ..confirm
        };
        // Packets leave from any port.
        let from = |party: Party| SocketAddr::new(party.addr.ip(), 50_000);
        let ways = [
            ((from(responder), initiator.addr), challenge),
            ((from(initiator), responder.addr), confirm),
        ];
        for (way, packet) in ways {
            let read = RecordedHandshake::new(&key, way, &packet).expect("all values");
            let ends = (initiator.instance, responder.instance);
            assert_eq!((read.initiator, read.responder), ends);
            assert!(read.secret == Some(exchange.secret(&key)));
            let other = RecordedHandshake::new(&JobKey::new(&[7; 16]), way, &packet);
            assert!(other.expect("all values").secret.is_none());
            let elsewhere = (way.0, SocketAddr::from(([192, 0, 2, 9], 1)));
            let other = RecordedHandshake::new(&key, elsewhere, &packet);
            assert!(other.expect("all values").secret.is_none());
        }
        let (way, _) = ways[1];
        let hello = Handshake { stage: Stage::Hello, ..confirm };
        for packet in [hello, Handshake { expected: 0, ..confirm }] {
            assert!(RecordedHandshake::new(&key, way, &packet).is_none());
        }
    }
}
