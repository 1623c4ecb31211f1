//! Attacks of a user who wants more than a fair share (Snyder, section 3.5): several connections
//! for one transfer, or a new one for each bandwidth-delay product.

use super::builder::{Builder, refuse};
use super::{PS_PER_US, Start, WorkloadError};
use crate::Bytes;

/// Maximum time between the starts of two connections of an attack, microseconds: a second.
const LONGEST_US: f64 = 1e6;

/// Division of one transfer among connections, each of which starts at line rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Attack {
    /// Several connections at a time, each with its part of the bytes (section 3.5.1).
    Parallel {
        /// Number of connections that send at a time; one is no attack.
        qps: u32,
    },
    /// A new connection of `bdp` bytes every round trip: each ends before its sender learns of the
    /// congestion it causes (section 3.5.2).
    Staggered {
        /// Bytes of each connection: a bandwidth-delay product.
        bdp: u64,
        /// Time between the starts of two connections, a round trip, microseconds; 0 starts all at
        /// once.
        rtt_us: f64,
    },
}

impl Attack {
    /// Returns the staggered attack of two keys that are given together or not at all.
    pub(super) fn staggered(
        bdp: Option<Bytes>,
        rtt_us: Option<f64>,
    ) -> Result<Option<Self>, WorkloadError> {
        match (bdp, rtt_us) {
            (None, None) => Ok(None),
            (Some(Bytes(bdp)), Some(rtt_us)) => Ok(Some(Self::Staggered { bdp, rtt_us })),
            (Some(_), None) => Err(refuse("rtt_us", &"none", "one with `bdp`")),
            (None, Some(_)) => Err(refuse("bdp", &"none", "one with `rtt_us`")),
        }
    }

    /// Returns the number of connections that transfer `bytes` bytes in this attack.
    pub(super) const fn connections(&self, bytes: u64) -> u64 {
        match *self {
            Self::Parallel { qps } => qps as u64,
            Self::Staggered { bdp: 0, .. } => 0,
            Self::Staggered { bdp, .. } => bytes.div_ceil(bdp),
        }
    }

    fn check(&self, bytes: u64) -> Result<(), WorkloadError> {
        match *self {
            Self::Parallel { qps } if qps == 0 || u64::from(qps) > bytes => {
                Err(refuse("qps", &qps, format!("1 to {bytes}, a byte for each")))
            }
            Self::Staggered { bdp: 0, .. } => Err(refuse("bdp", &0, "one byte at least")),
            Self::Staggered { rtt_us, .. } if !(0.0..=LONGEST_US).contains(&rtt_us) => {
                Err(refuse("rtt_us", &rtt_us, format!("0 to {LONGEST_US} microseconds")))
            }
            _ => Ok(()),
        }
    }

    /// Returns, for each connection of a transfer of `bytes`, its part of the bytes and its start
    /// after the first connection in picoseconds. The attack must have passed its check.
    fn parts(self, bytes: u64) -> impl Iterator<Item = (u64, u64)> {
        let count = self.connections(bytes);
        (0..count).map(move |connection| match self {
            Self::Parallel { .. } => (bytes / count + u64::from(connection < bytes % count), 0),
            Self::Staggered { bdp, rtt_us } => {
                let rtt = (rtt_us * PS_PER_US as f64) as u64;
                (bdp.min(bytes - connection * bdp), connection.saturating_mul(rtt))
            }
        })
    }
}

/// Adds an attack by rank 0 with `bytes` (job 0), while the next `victims` ranks send
/// `victim_bytes` each (job 1). The next `receivers` ranks receive, in turn.
pub(super) fn on_victims(
    to: &mut Builder,
    ranks: u32,
    (attack, bytes): (Attack, u64),
    (victims, victim_bytes): (u32, u64),
    receivers: u32,
) -> Result<(), WorkloadError> {
    attack.check(bytes)?;
    let senders = victims.saturating_add(1);
    if victims == 0 || receivers == 0 || senders.saturating_add(receivers) > ranks {
        let given = format!("{victims} + {receivers}");
        let most = ranks.saturating_sub(1);
        let allowed =
            format!("each at least 1, together at most {most}, the ranks besides the attacker");
        return Err(refuse("victims + receivers", &given, allowed));
    }
    let receiver = |sender: u32| senders + sender % receivers;
    for (part, at) in attack.parts(bytes) {
        to.flow(0, receiver(0), part, Start::At(at));
    }
    to.set_job(1);
    for victim in 1..senders {
        to.flow(victim, receiver(victim), victim_bytes, Start::At(0));
    }
    Ok(())
}

/// Adds flows in which every rank sends `bytes` over rings of all ranks, the next ring for each
/// connection (section 3.5.3): with `staggered` one after the other, otherwise over all rings at
/// once. A ring is a step from rank to rank that meets all of them.
pub(super) fn shuffled_overlay(
    to: &mut Builder,
    ranks: u32,
    staggered: Option<Attack>,
    bytes: u64,
) -> Result<(), WorkloadError> {
    let rings: Vec<u32> = (1..ranks).filter(|step| gcd(*step, ranks) == 1).collect();
    // There are fewer rings than ranks, of which there are at most 2^24.
    let attack = staggered.unwrap_or(Attack::Parallel { qps: rings.len() as u32 });
    attack.check(bytes)?;
    for rank in 0..ranks {
        for ((part, at), ring) in attack.parts(bytes).zip(rings.iter().cycle()) {
            to.flow(rank, (rank + ring) % ranks, part, Start::At(at));
        }
    }
    Ok(())
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// An attack by the long ones among random flows (section 3.6, figure 3.11).
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Split {
    /// Flows of more bytes than this are divided, by [`Attack::Staggered`]; they are job 1, the
    /// others, their victims, job 0.
    pub(super) longer_than: u64,
    /// How the bytes of a long flow are divided among connections.
    pub(super) attack: Attack,
}

impl Split {
    /// Checks that the parameters of the attack fit the flows that are long enough to be divided.
    pub(super) fn check(&self) -> Result<(), WorkloadError> {
        self.attack.check(self.longer_than.saturating_add(1))
    }

    /// Adds a flow that starts at `start`, whole or divided.
    pub(super) fn add(
        split: Option<&Self>,
        to: &mut Builder,
        (src, dst): (u32, u32),
        bytes: u64,
        start: u64,
    ) {
        match split {
            Some(split) if bytes > split.longer_than => {
                to.set_job(1);
                for (part, after) in split.attack.parts(bytes) {
                    to.flow(src, dst, part, Start::At(start.saturating_add(after)));
                }
                to.set_job(0);
            }
            _ => {
                to.flow(src, dst, bytes, Start::At(start));
            }
        }
    }
}
