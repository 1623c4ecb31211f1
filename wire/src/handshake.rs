//! The handshake of two endpoints before one of them opens a context to the other: one
//! type-length-value of a Negotiation control packet.
//!
//! The initiator sends a [`Stage::Hello`]. The responder stores nothing and answers with a cookie
//! ([`Stage::Challenge`]), which only a receiver at the initiator's address can learn. The
//! responder accepts only an initiator that repeats the cookie ([`Stage::Confirm`]). Endpoints
//! whose job has a key prove to each other that they know it.
//!
//! Every stage has the same length, and a refusal of another version is shorter, so that an answer is
//! never larger than its question. `docs/wire.md` gives the layout, the order of the packets and the fields of
//! the proofs.

use crate::base::{Proof, Psn};
use crate::codes::{ControlKind, code_points};
use crate::error::ParseError;
use crate::pds::{Control, Dest};
use crate::view::{be16, be32, be64};

/// Version of the packet formats of this crate and of the crates above it; both ends must have the
/// same. `docs/wire.md` describes this version.
pub const WIRE_VERSION: u8 = 6;

/// Type of the type-length-value that holds a handshake. No published table assigns numbers, so
/// this project chose one from the vendors' range.
const TYPE: u8 = 0xf0;

code_points! {
    /// Stage of the handshake that a packet belongs to.
    Stage {
        /// The initiator asks for a handshake.
        Hello = 1, "HELLO";
        /// The responder answers with a cookie, which the initiator must repeat.
        Challenge = 2, "CHALLENGE";
        /// The initiator repeats the cookie. Packets that open contexts may follow.
        Confirm = 3, "CONFIRM";
        /// The responder accepted the cookie, and accepts contexts.
        Welcome = 4, "WELCOME";
        /// The responder refuses; [`Handshake::reason`] gives the reason.
        Refuse = 5, "REFUSE";
    }
}

code_points! {
    /// Reason why a responder refuses a handshake.
    Reason {
        /// No reason: the packet is not a refusal.
        None = 0, "NONE";
        /// The responder has another [`WIRE_VERSION`], which is in [`Handshake::version`].
        Version = 1, "VERSION";
        /// The responder belongs to another job.
        Job = 2, "JOB";
        /// The cookie is too old, or belongs to an association that has ended: the initiator must
        /// start again.
        Stale = 3, "STALE";
        /// The responder already has too many unverified peers.
        Crowded = 4, "CROWDED";
        /// One of the two has a key of its job, and the other one has none or another.
        Key = 5, "KEY";
        /// The responder accepts only peers that its user has named, and the initiator is not among
        /// them yet.
        Unlisted = 6, "UNLISTED";
        /// One of the two encrypts its packets, and the other one does not.
        Encryption = 7, "ENCRYPTION";
        /// The responder is another instance than the initiator expects.
        Instance = 8, "INSTANCE";
    }
}

/// The content of a handshake packet.
///
/// The fields up to `capabilities` have their places in every version, so that a newer endpoint can
/// refuse an older one in a form that it can read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handshake {
    /// Stage of the handshake that the packet belongs to.
    pub stage: Stage,
    /// Version of the packet formats that the sender speaks ([`WIRE_VERSION`]).
    pub version: u8,
    /// The UDP port on which the sender listens, not 0. Answers go there, because the source port
    /// of a packet is only its entropy.
    pub port: u16,
    /// Reason of the refusal; [`Reason::None`] in the other stages.
    pub reason: Reason,
    /// Random number that the initiator draws for each attempt; every packet of the attempt repeats
    /// it.
    pub nonce: u64,
    /// Instance number of the sender, not 0.
    pub instance: u32,
    /// Instance number that the sender expects of its peer; 0 for any.
    pub expected: u32,
    /// Cookie by which the initiator proves that it received the challenge; 0 in a hello and in a
    /// refusal.
    pub cookie: u64,
    /// JobID of the sender, which names its job.
    pub job_id: u32,
    /// Capabilities of the sender beyond those of the version, a bit each: [`Self::ENCRYPTS`].
    pub capabilities: u32,
    /// Proof that the sender knows the key of its job; 0 in a hello, and if the job has no key.
    pub proof: Proof,
}

impl Handshake {
    /// Capability: the sender encrypts every packet but those of the handshake, and accepts no
    /// others.
    pub const ENCRYPTS: u32 = 1;
    /// Bytes of the value without the proof: its length in versions below 3, and in refusals of
    /// another version, whose proofs are not known.
    const SHORT: usize = 40;
    /// Bytes of the type-length-value that holds the handshake.
    const VALUE: usize = Self::SHORT + size_of::<Proof>();
    /// Length of the longest handshake packet in bytes.
    pub const LEN: usize = Control::LEN + Self::VALUE;

    /// Returns whether the packet refuses a handshake because the versions differ.
    fn refuses_version(&self) -> bool {
        self.stage == Stage::Refuse && self.reason == Reason::Version
    }

    /// Writes the whole packet and returns its length, at most [`Self::LEN`].
    ///
    /// # Panics
    /// Panics if `out` is shorter than that.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let size = if self.refuses_version() { Self::SHORT } else { Self::VALUE };
        let header = Control {
            kind: ControlKind::Negotiation,
            isrod: false,
            retx: false,
            ack_request: false,
            probe_opaque: 0,
            psn: Psn(0),
            // The packet names no context yet, but the field must not be 0.
            spdcid: 1,
            dest: Dest::Syn { use_rsv_pdc: false, psn_offset: 0 },
            payload: 0,
        };
        let at = header.emit(out);
        let value = &mut out[at..at + size];
        value[0..4].copy_from_slice(&[TYPE, (size / 4) as u8, self.stage.to_u8(), self.version]);
        value[4..6].copy_from_slice(&self.port.to_be_bytes());
        value[6..8].copy_from_slice(&u16::from(self.reason.to_u8()).to_be_bytes());
        value[8..16].copy_from_slice(&self.nonce.to_be_bytes());
        value[16..20].copy_from_slice(&self.instance.to_be_bytes());
        value[20..24].copy_from_slice(&self.expected.to_be_bytes());
        value[24..32].copy_from_slice(&self.cookie.to_be_bytes());
        value[32..36].copy_from_slice(&self.job_id.to_be_bytes());
        value[36..40].copy_from_slice(&self.capabilities.to_be_bytes());
        if let Some(proof) = value.get_mut(Self::SHORT..) {
            proof.copy_from_slice(&self.proof[..proof.len()]);
        }
        at + size
    }

    /// Reads the handshake among the type-length-values of a Negotiation control packet, and skips
    /// the others. Returns `None` if there is none.
    ///
    /// # Errors
    /// Returns an error for a value that reaches beyond the end, and for fields that no handshake
    /// has.
    pub fn read(mut values: &[u8]) -> Result<Option<Self>, ParseError> {
        while let Some(&[kind, words]) = values.first_chunk::<2>() {
            let len = usize::from(words) * 4;
            if len == 0 {
                return Err(ParseError::Length);
            }
            let (value, rest) = values.split_at_checked(len).ok_or(ParseError::Truncated)?;
            if kind == TYPE {
                return Self::read_value(value).map(Some);
            }
            values = rest;
        }
        if values.is_empty() { Ok(None) } else { Err(ParseError::Truncated) }
    }

    fn read_value(value: &[u8]) -> Result<Self, ParseError> {
        let b = value.first_chunk::<{ Self::SHORT }>().ok_or(ParseError::Truncated)?;
        let (port, instance) = (be16(b, 4), be32(b, 16));
        if port == 0 || instance == 0 || b[6] != 0 {
            return Err(ParseError::Reserved);
        }
        let stage = Stage::from_u8(b[2]).ok_or(ParseError::Kind)?;
        let proof = value[Self::SHORT..].first_chunk::<{ size_of::<Proof>() }>();
        let packet = Self {
            stage,
            version: b[3],
            port,
            reason: Reason::from_u8(b[7]).ok_or(ParseError::Kind)?,
            nonce: be64(b, 8),
            instance,
            expected: be32(b, 20),
            cookie: be64(b, 24),
            job_id: be32(b, 32),
            capabilities: be32(b, 36),
            proof: proof.copied().unwrap_or_default(),
        };
        // A value without a proof must be a refusal of another version, or from an older version,
        // which the receiver refuses.
        if proof.is_none() && !packet.refuses_version() && packet.version == WIRE_VERSION {
            return Err(ParseError::Truncated);
        }
        Ok(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{MAX_HEADER, Packet, parse};

    const HELLO: Handshake = Handshake {
        stage: Stage::Hello,
        version: WIRE_VERSION,
        port: 4793,
        reason: Reason::None,
        nonce: 0x0102_0304_0506_0708,
        instance: 0x1112_1314,
        expected: 0x2122_2324,
        cookie: 0x3132_3334_3536_3738,
        job_id: 0x4142_4344,
        capabilities: 0x5152_5354,
        proof: [0x61; 16],
    };

    fn values(packet: &[u8]) -> &[u8] {
        match parse(packet) {
            Ok(Packet::Negotiation { values, .. }) => values,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_was_written_is_read_and_lies_where_it_should() {
        let mut out = [0xee; MAX_HEADER];
        for stage in [Stage::Hello, Stage::Challenge, Stage::Confirm, Stage::Welcome, Stage::Refuse]
        {
            for reason in
                [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|code| Reason::from_u8(code).expect("a reason"))
            {
                let mut intro = Handshake { stage, reason, ..HELLO };
                let n = intro.emit(&mut out);
                if (stage, reason) == (Stage::Refuse, Reason::Version) {
                    intro.proof = [0; 16];
                    assert_eq!(n, 56, "nobody's question was shorter");
                } else {
                    assert_eq!(n, Handshake::LEN);
                }
                assert_eq!(Handshake::read(values(&out[..n])), Ok(Some(intro)));
            }
        }
        let n = HELLO.emit(&mut out);
        assert_eq!(
            &out[16..n],
            [
                0xf0, 14, 1, 6, 0x12, 0xb9, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14,
                0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x41, 0x42,
                0x43, 0x44, 0x51, 0x52, 0x53, 0x54, 0x61, 0x61, 0x61, 0x61, 0x61, 0x61, 0x61, 0x61,
                0x61, 0x61, 0x61, 0x61, 0x61, 0x61, 0x61, 0x61
            ]
        );
    }

    #[test]
    fn other_values_are_skipped_and_broken_ones_refused() {
        let mut out = [0; MAX_HEADER];
        let n = HELLO.emit(&mut out);
        let value = &out[16..n];
        let mut two = std::vec![7, 2, 0, 0, 0, 0, 0, 0];
        two.extend_from_slice(value);
        assert_eq!(Handshake::read(&two), Ok(Some(HELLO)));
        assert_eq!(Handshake::read(&two[..8]), Ok(None));
        assert_eq!(Handshake::read(&[]), Ok(None));
        for bad in [&two[..7], &two[..9], &two[..63], &[7][..], &[7, 0, 0, 0][..]] {
            assert!(Handshake::read(bad).is_err(), "{bad:?}");
        }
        // Stage, port, reason (both bytes), instance.
        for (range, byte) in [(2..3, 0), (2..3, 6), (4..6, 0), (6..7, 1), (7..8, 9), (16..20, 0)] {
            let mut bad = value.to_vec();
            bad[range].fill(byte);
            assert!(Handshake::read(&bad).is_err());
        }
        // A newer one may be longer.
        let mut longer = value.to_vec();
        longer[1] = 15;
        longer.extend_from_slice(&[9; 4]);
        assert_eq!(Handshake::read(&longer), Ok(Some(HELLO)));
        // An older one was shorter, and ours may not be.
        let mut older = value[..40].to_vec();
        older[1] = 10;
        assert_eq!(Handshake::read(&older), Err(ParseError::Truncated));
        older[3] = 2;
        let read = Handshake { version: 2, proof: [0; 16], ..HELLO };
        assert_eq!(Handshake::read(&older), Ok(Some(read)));
    }
}
