//! The bottleneck of a simulated job: its computations, its pipeline, a kind of link, or the transport.

use core::fmt;

use super::{LinkLoad, Run};

/// The bottleneck of a job. [`Bottleneck::of`] describes the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bottleneck {
    /// Over all ranks, computing plus exposed communication takes at least as long as waiting.
    Computation,
    /// Over all ranks, waiting takes longer than computing plus exposed communication.
    OtherRanks,
    /// A host link needs at least four fifths of the network's cost to send its bytes.
    HostLink,
    /// A link between switches needs at least four fifths of the network's cost to send its bytes.
    SwitchLink,
    /// The busiest host link and the busiest switch link together need that long.
    HostAndSwitchLinks,
    /// No link is busy that long: latency, congestion control or retransmissions take the time.
    Transport,
}

/// Share of a job's time up to which the network is not its bottleneck.
const MIN_NETWORK_SHARE: f64 = 0.1;
/// A link is the bottleneck if sending its bytes takes at least this share of the time that the network
/// adds to the job. Congestion control keeps links of a fat tree at some 90 % of their rate.
const MIN_LINK_SHARE: f64 = 0.8;

impl Bottleneck {
    /// Returns the bottleneck of a job; `None` if the run has no job, or did not record its links.
    ///
    /// If the network adds at most a tenth of the job's time, the result is `Computation` or
    /// `OtherRanks`. Otherwise it is the kind of the busiest link, if that link needs at least four
    /// fifths of the added time for its bytes; then both kinds, if their busiest links together need
    /// that long; else `Transport`.
    #[must_use]
    pub fn of(run: &Run) -> Option<Self> {
        let times = run.job_times.as_ref()?;
        if times.network_share() <= MIN_NETWORK_SHARE {
            let sum = |of: fn(&crate::workload::RankTimes) -> f64| -> f64 {
                times.ranks.iter().map(of).sum()
            };
            let computes = sum(|rank| rank.computing_us + rank.exposed_us);
            let is_busy = computes >= sum(|rank| rank.waiting_us);
            return Some(if is_busy { Self::Computation } else { Self::OtherRanks });
        }
        let (host, switch) = (busiest(run, false)?, busiest(run, true).unwrap_or(0.0));
        let needed = MIN_LINK_SHARE * (times.lasted_us - times.without_network_us);
        Some(match (host.max(switch) >= needed, host + switch >= needed) {
            (true, _) if switch > host => Self::SwitchLink,
            (true, _) => Self::HostLink,
            (false, true) => Self::HostAndSwitchLinks,
            (false, false) => Self::Transport,
        })
    }
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Computation => "computation",
            Self::OtherRanks => "waiting for other ranks",
            Self::HostLink => "host links",
            Self::SwitchLink => "switch links",
            Self::HostAndSwitchLinks => "host links and switch links in turn",
            Self::Transport => "transport (latency, congestion control, retransmissions)",
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
    fn the_busiest_kind_of_link_limits_a_job() {
        let of = |without, links: &[(u8, u64)]| Bottleneck::of(&run(without, links));
        assert_eq!(of(50.0, &[(0, 45_000), (1, 30_000)]), Some(Bottleneck::HostLink));
        assert_eq!(of(50.0, &[(0, 45_000), (1, 46_000)]), Some(Bottleneck::SwitchLink));
        assert_eq!(of(50.0, &[(0, 39_000), (1, 2_000)]), Some(Bottleneck::HostAndSwitchLinks));
        assert_eq!(of(50.0, &[(0, 37_000), (1, 2_000)]), Some(Bottleneck::Transport));
        assert_eq!(of(91.0, &[(0, 99_000)]), Some(Bottleneck::Computation));
        assert_eq!(of(50.0, &[]), None);
        assert_eq!(Bottleneck::of(&Run::default()), None);
        let mut idle = run(95.0, &[]);
        for rank in idle.job_times.iter_mut().flat_map(|times| &mut times.ranks) {
            (rank.computing_us, rank.waiting_us) = (40.0, 60.0);
        }
        assert_eq!(Bottleneck::of(&idle), Some(Bottleneck::OtherRanks));
    }
}
