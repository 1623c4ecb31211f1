//! Open-loop load: random flows at random times, lengths from a distribution.

use serde::{Deserialize, Serialize};
use squall_base::Rng;

use super::WorkloadError;
use super::attacks::Split;
use super::builder::{Builder, refuse};

/// Cumulative distribution of flow lengths: points joined by straight lines, starting at zero
/// bytes. Files contain the name of a distribution, or its points.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Distribution {
    /// (Length in bytes, share of flows that are no longer), rising to a share of 1.
    points: Vec<(f64, f64)>,
}

/// A distribution as a file contains it: its name, or its points.
#[derive(Deserialize, Serialize)]
#[serde(untagged, expecting = "the name of a distribution, or (bytes, cumulative share) points")]
enum Written {
    Name(String),
    Points(Vec<(f64, f64)>),
}

impl TryFrom<Written> for Distribution {
    type Error = DistributionError;

    fn try_from(written: Written) -> Result<Self, DistributionError> {
        match written {
            Written::Name(name) => Self::by_name(&name),
            Written::Points(points) => Self::through(points),
        }
    }
}

impl From<Distribution> for Written {
    fn from(Distribution { points }: Distribution) -> Self {
        match NAMED.iter().find(|(_, known)| *known == points) {
            Some((name, _)) => Self::Name((*name).to_owned()),
            None => Self::Points(points),
        }
    }
}

/// The reason why a distribution of flow lengths is refused.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum DistributionError {
    /// No distribution has the given name.
    #[error("no distribution is called `{0}`; there are {names}", names = names())]
    Unknown(String),
    /// The points of a distribution do not rise.
    #[error("point {index} ({bytes} bytes : {share}) does not rise above the one before it")]
    Falling {
        /// Index of the point, from 0.
        index: usize,
        /// Flow length at the point, bytes.
        bytes: f64,
        /// Cumulative share of flows at the point.
        share: f64,
    },
    /// The last point of a distribution is not at a share of 1.
    #[error("the last share is {0}; it has to be 1")]
    Open(f64),
}

/// Web search (DCTCP, SIGCOMM 2010), as the public HPCC simulator tabulates it. The mean is 1.71
/// MB.
const WEB_SEARCH: &[(f64, f64)] = &[
    (10e3, 0.15),
    (20e3, 0.20),
    (30e3, 0.30),
    (50e3, 0.40),
    (80e3, 0.53),
    (200e3, 0.60),
    (1e6, 0.70),
    (2e6, 0.80),
    (5e6, 0.90),
    (10e6, 0.97),
    (30e6, 1.0),
];

/// Facebook's Hadoop cluster (Roy et al., SIGCOMM 2015), from the public HPCC simulator. The mean
/// is 0.12 MB.
const HADOOP: &[(f64, f64)] = &[
    (300.0, 0.05),
    (500.0, 0.30),
    (1e3, 0.60),
    (2e3, 0.67),
    (30e3, 0.72),
    (80e3, 0.87),
    (300e3, 0.95),
    (1e6, 0.975),
    (2e6, 0.99),
    (10e6, 1.0),
];

/// Alibaba's block storage (HPCC, SIGCOMM 2019, section 5.1) at its published knees. The mean is 44
/// kB; it is 41 kB with all points of the measurement.
const ALI_STORAGE: &[(f64, f64)] =
    &[(4e3, 0.229), (8e3, 0.692), (16e3, 0.806), (64e3, 0.935), (256e3, 0.975), (2e6, 1.0)];

/// The distributions of flow lengths that have a name.
const NAMED: &[(&str, &[(f64, f64)])] =
    &[("websearch", WEB_SEARCH), ("hadoop", HADOOP), ("alistorage", ALI_STORAGE)];

/// Returns the names of the distributions, for messages.
fn names() -> String {
    NAMED.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

impl Distribution {
    /// Returns the distribution of that name: `websearch`, `hadoop` or `alistorage`.
    ///
    /// # Errors
    /// Returns an error if the name is none of them.
    pub fn by_name(name: &str) -> Result<Self, DistributionError> {
        match NAMED.iter().find(|known| known.0 == name) {
            Some((_, points)) => Ok(Self { points: points.to_vec() }),
            None => Err(DistributionError::Unknown(name.to_owned())),
        }
    }

    /// Creates a distribution through `(bytes, cumulative share)` points.
    ///
    /// # Errors
    /// Returns an error if the points do not rise, or do not end at a share of 1.
    pub fn through(points: Vec<(f64, f64)>) -> Result<Self, DistributionError> {
        let mut before = (0.0, 0.0);
        for (index, &(bytes, share)) in points.iter().enumerate() {
            // The condition is written so that a NaN fails too.
            if !(bytes > before.0 && share >= before.1 && share <= 1.0) {
                return Err(DistributionError::Falling { index, bytes, share });
            }
            before = (bytes, share);
        }
        if before.1 == 1.0 { Ok(Self { points }) } else { Err(DistributionError::Open(before.1)) }
    }

    /// Returns the mean length of a flow in bytes.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let mut before = (0.0, 0.0);
        let mut mean = 0.0;
        for &(bytes, share) in &self.points {
            mean += (share - before.1) * (bytes + before.0) / 2.0;
            before = (bytes, share);
        }
        mean
    }

    /// Returns the length that a share `u` of flows, in `[0, 1)`, does not exceed: at least one
    /// byte.
    #[must_use]
    pub fn quantile(&self, u: f64) -> u64 {
        let mut before = (0.0, 0.0);
        for &(bytes, share) in &self.points {
            if u < share {
                let along = (u - before.1) / (share - before.1);
                return ((before.0 + along * (bytes - before.0)) as u64).max(1);
            }
            before = (bytes, share);
        }
        (before.0 as u64).max(1)
    }
}

/// Adds flows that arrive at each rank as a Poisson process. Its mean interval is `mean length /
/// (load x rate)`. The flows to which `split` applies are divided.
pub(super) fn open_loop(
    to: &mut Builder,
    ranks: u32,
    sizes: &Distribution,
    (load, duration_us): (f64, u64),
    line_bps: u64,
    split: Option<&Split>,
    rng: &mut Rng,
) -> Result<(), WorkloadError> {
    split.map_or(Ok(()), Split::check)?;
    if !(load > 0.0 && load <= 1.0) {
        return Err(refuse("load", &load, "above 0, at most 1"));
    }
    if duration_us == 0 {
        return Err(refuse("duration_us", &duration_us, "one at least"));
    }
    let interval_ps = sizes.mean() * 8e12 / (load * line_bps as f64);
    let end_ps = duration_us as f64 * super::PS_PER_US as f64;
    let mut flows = Vec::new();
    for src in 0..ranks {
        let mut at = 0.0;
        loop {
            // The value 1 - u is in (0, 1], so its logarithm is finite.
            at -= (1.0 - rng.unit()).ln() * interval_ps;
            if at >= end_ps {
                break;
            }
            let dst = (src + 1 + rng.below(ranks - 1)) % ranks;
            flows.push((at as u64, src, dst, sizes.quantile(rng.unit())));
        }
    }
    flows.sort_unstable();
    for (at, src, dst, bytes) in flows {
        Split::add(split, to, (src, dst), bytes, at);
    }
    Ok(())
}
