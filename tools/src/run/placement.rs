//! Placement of the ranks of a job on the hosts of an emulated network.

use clap::Args;
use squall_base::{Rate, Span};
use squall_emulator::{InnerPath, parse_rate};
use squall_net::HostList;
use squall_netsim::Picos;
use squall_netsim::settings::Settings;
use squall_netsim::topology::Topology;

/// Rate at which a core of a server copies messages through shared memory.
const INNER_RATE: Rate = Rate::gbps(100);
/// Latency of a message through shared memory, ns, without the time of the calls at both ends.
const INNER_LATENCY: u64 = 300;

/// Hosts of the ranks, and the path of messages between ranks of one host.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlacementArgs {
    /// Hosts of the ranks, in turn: 0x8,1x8 is host 0 for eight ranks and host 1 for the next eight, 5-7 is a host for each of
    /// three; a number alone is the host of all. Ranks of a host share its card, and exchange messages within the host. Default:
    /// rank i is host i.
    #[arg(long, value_name = "HOSTS", requires = "on")]
    pub hosts: Option<HostList>,
    /// Rate at which a rank copies messages for other ranks of its host [default: 100G].
    #[arg(long, value_name = "RATE", requires = "hosts", value_parser = rate)]
    pub inner_rate: Option<Rate>,
    /// Latency of messages between ranks of one host, ns [default: 300].
    #[arg(long, value_name = "NS", requires = "hosts", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub inner_latency: Option<u64>,
}

fn rate(text: &str) -> Result<Rate, squall_emulator::CommandError> {
    parse_rate(text)
}

impl PlacementArgs {
    /// Returns the hosts of the ranks as FI_SQUALL_EMULATOR names them.
    pub(super) fn place(&self) -> String {
        self.hosts.as_ref().map_or_else(|| "rank".to_owned(), HostList::to_string)
    }

    /// Returns whether all ranks are on one host, however many there are.
    fn is_one_host(&self) -> bool {
        self.hosts.as_ref().is_some_and(|list| list.ranks() == 1)
    }

    /// Returns the number of ranks that have a host; `None` if all have.
    pub(super) fn places(&self) -> Option<u32> {
        let list = self.hosts.as_ref().filter(|_| !self.is_one_host())?;
        u32::try_from(list.ranks()).ok()
    }

    /// Returns the path of messages within a host, if any host has several ranks.
    pub(super) fn inner_path(&self) -> Option<InnerPath> {
        let ranks = self.hosts.as_ref()?.ranks_of_hosts();
        let shared = self.is_one_host() || ranks.values().any(|ranks| *ranks > 1);
        shared.then(|| InnerPath {
            rate: self.inner_rate.unwrap_or(INNER_RATE),
            latency: Picos::nanos(self.inner_latency.unwrap_or(INNER_LATENCY)),
        })
    }

    /// Returns how long a packet may wait in the card of its host for those of the other ranks, each of which may have as much
    /// in flight as a round trip takes. Transports must not take this for a loss.
    pub(super) fn wait_in_card(&self, topology: &Topology) -> Span {
        let ranks = self.hosts.as_ref().map(HostList::ranks_of_hosts).unwrap_or_default();
        let others = ranks.into_values().max().unwrap_or(1).saturating_sub(1);
        (topology.longest_route().latency * 2 * others.into()).span()
    }

    /// Describes the placement in a few words.
    pub(super) fn describe(&self) -> String {
        let (Some(list), Some(InnerPath { rate, latency })) = (&self.hosts, self.inner_path())
        else {
            return "one rank a host".to_owned();
        };
        let ranks = list.ranks_of_hosts();
        let most = ranks.values().copied().max().unwrap_or(0);
        let hosts = ranks.len();
        let placed = if self.is_one_host() {
            format!("all ranks on host {}", list.hosts()[0])
        } else if ranks.values().any(|ranks| *ranks != most) {
            format!("{} ranks on {hosts} hosts, up to {most} each", list.ranks())
        } else if hosts == 1 {
            format!("{most} ranks on one host")
        } else {
            format!("{most} ranks on each of {hosts} hosts")
        };
        format!(
            "{placed}; within a host {} Gb/s and {} us",
            rate.0 as f64 / 1e9,
            latency.as_micros()
        )
    }

    /// Adds the placement to the settings of a record.
    pub(super) fn add_settings(&self, settings: &mut Settings) {
        let Some(list) = &self.hosts else { return };
        settings.set("emulator.hosts", list.to_string());
        if let Some(InnerPath { rate, latency }) = self.inner_path() {
            settings.set("emulator.inner_rate_gbps", rate.0 as f64 / 1e9);
            settings.set("emulator.inner_latency_ns", latency.0 / 1000);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(hosts: Option<&str>) -> PlacementArgs {
        let hosts = hosts.map(|text| text.parse().expect("a list"));
        PlacementArgs { hosts, inner_rate: None, inner_latency: None }
    }

    #[test]
    fn a_packet_waits_in_the_card_for_those_of_other_ranks() {
        let topology = Topology::star(4, Rate::gbps(100), Picos::micros(1), Picos::ZERO);
        for (hosts, us) in [(None, 0), (Some("0-3"), 0), (Some("0x3,1"), 8), (Some("2"), 0)] {
            assert_eq!(placed(hosts).wait_in_card(&topology), Span::micros(us), "{hosts:?}");
        }
    }

    #[test]
    fn placements_are_described() {
        for (hosts, text, places) in [
            (None, "one rank a host", None),
            (Some("3,1-2"), "one rank a host", Some(3)),
            (
                Some("0x8,1x8"),
                "8 ranks on each of 2 hosts; within a host 100 Gb/s and 0.3 us",
                Some(16),
            ),
            (
                Some("0,2x8"),
                "9 ranks on 2 hosts, up to 8 each; within a host 100 Gb/s and 0.3 us",
                Some(9),
            ),
            (Some("2x4"), "4 ranks on one host; within a host 100 Gb/s and 0.3 us", Some(4)),
            (Some("2"), "all ranks on host 2; within a host 100 Gb/s and 0.3 us", None),
        ] {
            let args = placed(hosts);
            assert_eq!((args.describe().as_str(), args.places()), (text, places));
            assert_eq!(args.inner_path().is_some(), text.contains("within"), "{text}");
            assert_eq!(
                args.place(),
                hosts.map_or("rank", |text| if text == "3,1-2" { "3,1,2" } else { text })
            );
        }
        let own = PlacementArgs {
            inner_rate: Some(Rate::gbps(80)),
            inner_latency: Some(250),
            ..placed(Some("0x2"))
        };
        assert!(
            own.describe().ends_with("within a host 80 Gb/s and 0.25 us"),
            "{}",
            own.describe()
        );
    }
}
