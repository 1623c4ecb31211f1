//! The mix of the Dart paper (section VI-A): long flows between random hosts, and short ones in incasts.

use serde::{Deserialize, Serialize};
use squall_base::Rng;

use super::builder::{Builder, refuse};
use super::spec::shuffle;
use super::{PS_PER_US, Start, WorkloadError};
use crate::Bytes;

/// Lengths of short flows in bytes, one as likely as the other.
const SHORT: [u64; 3] = [2 << 10, 4 << 10, 8 << 10];

/// Parameters of the mix; the defaults are the paper's, but for the length of a long flow, which it does not give.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, Serialize)]
pub struct Mix {
    /// Share of the line rate that the hosts send, on average.
    pub load: f64,
    /// Time during which flows start, microseconds.
    pub duration_us: u64,
    /// Share of the load that short flows have (default 0.4).
    #[serde(default = "short_share")]
    pub short_share: f64,
    /// Senders of an incast (default 16).
    #[serde(default = "degree")]
    pub degree: u32,
    /// Length of a long flow (default 1 MB).
    #[serde(default = "long")]
    pub bytes: Bytes,
}

const fn short_share() -> f64 {
    0.4
}

const fn degree() -> u32 {
    16
}

const fn long() -> Bytes {
    Bytes(1_000_000)
}

impl Mix {
    /// Returns the mean length of a short flow in bytes.
    fn mean_short() -> f64 {
        SHORT.iter().sum::<u64>() as f64 / SHORT.len() as f64
    }

    /// Returns the approximate number of flows that `ranks` ranks at lines of `line_bps` start.
    pub(super) fn flows(&self, ranks: u64, line_bps: u64) -> u64 {
        let bytes = line_bps as f64 / 8e6 * self.duration_us as f64 * self.load * ranks as f64;
        let (short, long) = (bytes * self.short_share, bytes * (1.0 - self.short_share));
        // Casts saturate.
        (short / Self::mean_short() + long / self.bytes.0.max(1) as f64) as u64
    }

    fn check(&self, ranks: u32) -> Result<(), WorkloadError> {
        if !(self.load > 0.0 && self.load <= 1.0) {
            return Err(refuse("load", &self.load, "above 0, at most 1"));
        }
        if !(0.0..=1.0).contains(&self.short_share) {
            return Err(refuse("short_share", &self.short_share, "0 to 1"));
        }
        if self.degree == 0 || self.degree >= ranks {
            return Err(refuse("degree", &self.degree, format!("1 to {}", ranks - 1)));
        }
        if self.duration_us == 0 {
            return Err(refuse("duration_us", &self.duration_us, "one at least"));
        }
        Ok(())
    }
}

/// Returns the times of a Poisson process with `rate` events per picosecond until `end`; none if
/// the rate is zero.
fn moments(rate: f64, end: f64, rng: &mut Rng) -> Vec<u64> {
    // The value 1 - u is in (0, 1], so its logarithm is finite. At rate zero, the first event is
    // infinitely late.
    let mut wait = || -(1.0 - rng.unit()).ln() / rate;
    let mut moments = Vec::new();
    let mut at = wait();
    while at < end {
        moments.push(at as u64);
        at += wait();
    }
    moments
}

/// Adds the flows of the mix: short flows (job 0) in incasts of random groups, long ones (job 1)
/// one by one, both at random times.
pub(super) fn incast_mix(
    to: &mut Builder,
    ranks: u32,
    mix: &Mix,
    line_bps: u64,
    rng: &mut Rng,
) -> Result<(), WorkloadError> {
    mix.check(ranks)?;
    let end = mix.duration_us as f64 * PS_PER_US as f64;
    // Bytes that all hosts together send in a picosecond.
    let all = line_bps as f64 / 8e12 * mix.load * f64::from(ranks);
    let mut order: Vec<u32> = (0..ranks).collect();
    let incasts = all * mix.short_share / (Mix::mean_short() * f64::from(mix.degree));
    let mut flows = Vec::new();
    for at in moments(incasts, end, rng) {
        shuffle(&mut order, rng);
        for &src in &order[1..=mix.degree as usize] {
            // The index is below the number of lengths.
            let length = SHORT[rng.below(SHORT.len() as u32) as usize];
            flows.push((at, 0, src, order[0], length));
        }
    }
    for at in moments(all * (1.0 - mix.short_share) / mix.bytes.0 as f64, end, rng) {
        let src = rng.below(ranks);
        let dst = (src + 1 + rng.below(ranks - 1)) % ranks;
        flows.push((at, 1, src, dst, mix.bytes.0));
    }
    flows.sort_unstable();
    for (at, job, src, dst, bytes) in flows {
        to.set_job(job);
        to.flow(src, dst, bytes, Start::At(at));
    }
    Ok(())
}
