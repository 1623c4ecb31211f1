//! What limits a simulated job: its computations, its pipeline, a kind of link, or the transport.

use core::fmt;

use super::{LinkLoad, Run};

/// What limits a job. The rules are in [`Limit::of`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// The ranks compute most of the time.
    Computation,
    /// The ranks wait for each other most of the time.
    OtherRanks,
    /// A link of a host carries messages for as long as the network makes the job longer.
    HostLink,
    /// So does a link between switches.
    SwitchLink,
    /// No link does: latency, congestion control and retransmissions take the time.
    Transport,
}

/// Share of a job's time below which the network does not limit it.
const LITTLE: f64 = 0.1;
/// Share of the time that the network costs which a link must be busy to be its cause. Congestion
/// control keeps links of a fat tree at some 90 % of their rate.
const BUSY: f64 = 0.8;

impl Limit {
    /// Returns what limits a job; `None` if the run has no job, or did not record its links.
    ///
    /// If the network costs a tenth of the time at most, it is what the ranks do most of the time. Otherwise
    /// it is the kind of the link that needs longest for its bytes, if that is four fifths at
    /// least of the time that the network costs; or the transport, if no link needs so long.
    #[must_use]
    pub fn of(run: &Run) -> Option<Self> {
        let times = run.job_times.as_ref()?;
        if times.network_share() <= LITTLE {
            let sum = |of: fn(&crate::workload::RankTimes) -> f64| -> f64 {
                times.ranks.iter().map(of).sum()
            };
            let computes = sum(|rank| rank.computing_us + rank.exposed_us);
            let is_busy = computes >= sum(|rank| rank.waiting_us);
            return Some(if is_busy { Self::Computation } else { Self::OtherRanks });
        }
        let (host, switch) = (busiest(run, false)?, busiest(run, true).unwrap_or(0.0));
        let needed = BUSY * (times.lasted_us - times.without_network_us);
        Some(match host.max(switch) >= needed {
            false => Self::Transport,
            true if switch > host => Self::SwitchLink,
            true => Self::HostLink,
        })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Computation => "computation",
            Self::OtherRanks => "waiting for other ranks",
            Self::HostLink => "links of hosts",
            Self::SwitchLink => "links between switches",
            Self::Transport => "latency and congestion control",
        })
    }
}

/// Returns how long a link needs at its rate for the bytes that it carried, in microseconds; `None` if
/// its rate is not known.
fn needs(link: &LinkLoad) -> Option<f64> {
    (link.gbps > 0.0).then(|| link.bytes as f64 * 8e-3 / link.gbps)
}

/// Returns the longest time in microseconds that a link needs for its bytes, of those of hosts or of
/// those between switches.
pub(super) fn busiest(run: &Run, between_switches: bool) -> Option<f64> {
    let links = run.links.iter().filter(|link| (link.tier > 0) == between_switches);
    links.filter_map(needs).max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{JobTimes, RankTimes};

    fn run(without: f64, links: &[(u8, u64)]) -> Run {
        let link =
            |&(tier, bytes): &(u8, u64)| LinkLoad { tier, bytes, gbps: 8.0, ..LinkLoad::default() };
        let ranks =
            vec![RankTimes { computing_us: 60.0, waiting_us: 40.0, ..RankTimes::default() }];
        Run {
            job_times: Some(JobTimes { lasted_us: 100.0, without_network_us: without, ranks }),
            links: links.iter().map(link).collect(),
            ..Run::default()
        }
    }

    /// A link of 8 Gb/s carries a byte in a nanosecond.
    #[test]
    fn the_link_that_is_busy_as_long_as_the_network_costs_limits_a_job() {
        let of = |without, links: &[(u8, u64)]| Limit::of(&run(without, links));
        assert_eq!(of(50.0, &[(0, 45_000), (1, 30_000)]), Some(Limit::HostLink));
        assert_eq!(of(50.0, &[(0, 45_000), (1, 46_000)]), Some(Limit::SwitchLink));
        assert_eq!(of(50.0, &[(0, 39_000), (1, 30_000)]), Some(Limit::Transport));
        assert_eq!(of(91.0, &[(0, 99_000)]), Some(Limit::Computation));
        assert_eq!(of(50.0, &[]), None);
        assert_eq!(Limit::of(&Run::default()), None);
        let mut idle = run(95.0, &[]);
        for rank in idle.job_times.iter_mut().flat_map(|times| &mut times.ranks) {
            (rank.computing_us, rank.waiting_us) = (40.0, 60.0);
        }
        assert_eq!(Limit::of(&idle), Some(Limit::OtherRanks));
    }
}
