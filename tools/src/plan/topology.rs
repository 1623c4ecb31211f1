//! `[topology]`: hosts, switches and links.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::Table;

use super::SceneError;
use super::keys::{Keys, state};
use super::scene::{fault, need, read_file};
use squall_base::Rate;
use squall_netsim::settings::Settings;
use squall_netsim::topology::{FatTree, Node, Tier, Topology};
use squall_netsim::{Picos, formats};

/// The table `[topology]` of a plan.
#[derive(Clone, PartialEq, Debug)]
pub enum TopologyTable {
    /// Path of htsim's `.topo` or of a graph.
    File(PathBuf),
    /// A topology that the plan describes.
    Built {
        /// Kind of the topology, with its sizes.
        kind: TopologyKind,
        /// Rates and latencies of the topology's links and switches.
        links: LinkTable,
    },
}

/// The kind of a topology that a plan describes.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopologyKind {
    /// Two or three tiers of switches.
    FatTree {
        /// Hosts.
        hosts: u32,
        /// Bandwidth down over bandwidth up, at the top-of-rack switches as far as possible, the
        /// rest one tier up (default 1).
        #[serde(default = "one")]
        oversubscription: u32,
        /// Tiers, 2 or 3 (default 3).
        #[serde(default = "three")]
        tiers: u8,
        /// Hosts below a top-of-rack switch (default: with three tiers as in a fat tree of `k`-port
        /// switches, with two the power of two above the root of `hosts`).
        rack: Option<u32>,
        /// Hosts of a pod, with three tiers (default as for `rack`).
        pod: Option<u32>,
    },
    /// Every leaf has a link to every spine.
    LeafSpine {
        /// Leaves.
        leaves: u32,
        /// Spines.
        spines: u32,
        /// Hosts below a leaf.
        rack: u32,
        /// Rate of links between switches, Gb/s (default as the hosts').
        uplink_gbps: Option<u64>,
        /// Rails, 1, 2, 4, 8 or 16: `rack` hosts share so many leaves and have a link to each of them,
        /// in the plane of its place (default 1).
        rails: Option<u32>,
    },
    /// One switch.
    Star {
        /// Hosts.
        hosts: u32,
        /// Latency of the links of the second half of the hosts, ns (default as `link_ns`).
        far_link_ns: Option<u64>,
    },
    /// Two switches with one link between them, and half of the hosts at each.
    Dumbbell {
        /// Hosts.
        hosts: u32,
        /// Rate of links between switches, Gb/s (default as the hosts').
        uplink_gbps: Option<u64>,
        /// Latency of the links of the second half of the hosts, ns (default as `link_ns`).
        far_link_ns: Option<u64>,
    },
    /// Accelerators below switches that replicate and reduce (Snyder's thesis, section 6.1.4).
    Mc {
        /// Accelerators, 64 or 128.
        hosts: u32,
    },
}

/// Rates and latencies of a topology that the plan describes.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct LinkTable {
    /// Rate of each of the hosts' links, Gb/s (default 100; mc: 200).
    pub gbps: Option<u64>,
    /// Planes, 1, 2, 4, 8 or 16: copies of the network, with a link of every host to each (default 1;
    /// mc: always 1).
    pub planes: Option<u32>,
    /// Latency of a link, ns (default 1000, as htsim's; mc: 0).
    pub link_ns: Option<u64>,
    /// Latency of a switch, ns (default 0, as htsim's; mc: 96, 150 cycles).
    pub switch_ns: Option<u64>,
}

/// The kind of a topology that is read from a file.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FileKind {
    /// htsim's `.topo` or a graph. The kind may be left out.
    File {
        /// Path, relative to the plan.
        file: PathBuf,
    },
}

const fn one() -> u32 {
    1
}

const fn three() -> u8 {
    3
}

impl LinkTable {
    /// Returns the table with the defaults of a kind filled in.
    fn filled(self, kind: &TopologyKind) -> Self {
        // The defaults are htsim's, or those of section 6.1.4 of Snyder's thesis, where 150 cycles
        // of 16 bytes are 96 ns.
        let (gbps, link_ns, switch_ns) = match kind {
            TopologyKind::Mc { .. } => (200, 0, 96),
            _ => (100, 1000, 0),
        };
        Self {
            gbps: self.gbps.or(Some(gbps)),
            planes: self.planes,
            link_ns: self.link_ns.or(Some(link_ns)),
            switch_ns: self.switch_ns.or(Some(switch_ns)),
        }
    }
}

impl TopologyTable {
    /// Reads the table `[topology]` from a plan.
    pub(super) fn read(table: Table) -> Result<Self, SceneError> {
        let mut keys = Keys::new("topology", table);
        if keys.has("file") && !keys.has("kind") {
            keys.set("kind", "file");
        }
        let read = match keys.try_kind("kind")? {
            Some(FileKind::File { file }) => Self::File(file),
            None => Self::Built { links: keys.take()?, kind: keys.take_kind("kind")? },
        };
        keys.finish()?;
        Ok(read)
    }

    /// Adds the kind and its keys to the settings, including defaults.
    pub(super) fn state(&self, settings: &mut Settings) {
        match self {
            Self::File(file) => settings.set("topology.file", file.display()),
            Self::Built { kind, links } => {
                state(settings, "topology", "kind", kind);
                settings.set_table("topology", &links.filled(kind));
            }
        }
    }

    /// Builds the topology. Relative paths start at `folder`.
    ///
    /// # Errors
    /// The key that is invalid, and what is allowed.
    pub fn build(&self, folder: &Path) -> Result<Topology, SceneError> {
        let topology = match self {
            Self::File(file) => {
                let path = folder.join(file);
                let text = read_file(&path, "topology.file")?;
                let read = formats::topology(&path.display().to_string(), &text);
                read.or_else(|error| fault("", error))
            }
            Self::Built { kind, links } => kind.build(links.filled(kind)),
        }?;
        topology.check().or_else(|error| fault("topology", error))?;
        Ok(topology)
    }
}

impl TopologyKind {
    fn build(&self, links: LinkTable) -> Result<Topology, SceneError> {
        let planes = links.planes.unwrap_or(1);
        if planes > 1 && matches!(self, Self::Mc { .. }) {
            return fault("topology.planes", "accelerators have one link; expected 1 or no planes");
        }
        let built = self.plane(links)?.in_planes(planes);
        built.or_else(|error| fault("topology.planes", error))
    }

    /// Returns the network of one plane.
    fn plane(&self, links: LinkTable) -> Result<Topology, SceneError> {
        let (rate, link, switch) = links.parameters()?;
        match *self {
            Self::FatTree { hosts, oversubscription, tiers, rack, pod } => {
                let tree = Tree { hosts, over: oversubscription, tiers, rack, pod };
                tree.build(rate, link, switch)
            }
            Self::LeafSpine { leaves, spines, rack, uplink_gbps, rails } => {
                fits(u64::from(leaves).saturating_mul(u64::from(spines) + u64::from(rack)))?;
                let (uplink, sizes) = (uplink(uplink_gbps, rate)?, (leaves, spines, rack));
                let built =
                    Topology::rails(sizes, rails.unwrap_or(1), (rate, uplink), link, switch);
                built.or_else(|error| fault("topology.rails", error))
            }
            Self::Star { hosts, far_link_ns } => {
                fits(hosts.into())?;
                far(Topology::star(hosts, rate, link, switch), far_link_ns)
            }
            Self::Dumbbell { hosts, uplink_gbps, far_link_ns } => {
                fits(u64::from(hosts) + 1)?;
                let (middle, half) = (uplink(uplink_gbps, rate)?, hosts / 2);
                let built = Topology::dumbbell(hosts - half, half, rate, middle, link, switch);
                far(built, far_link_ns)
            }
            Self::Mc { hosts } => Topology::mc(hosts, rate, link, switch).map_or_else(
                || fault("topology.hosts", format!("{hosts} accelerators, expected 64 or 128")),
                Ok,
            ),
        }
    }
}

impl LinkTable {
    /// Returns rate and latency of the links, and latency of the switches.
    fn parameters(self) -> Result<(Rate, Picos, Picos), SceneError> {
        Ok((
            in_range("gbps", self.gbps)?.unwrap_or_default(),
            latency("link_ns", self.link_ns)?.unwrap_or_default(),
            latency("switch_ns", self.switch_ns)?.unwrap_or_default(),
        ))
    }
}

fn in_range(key: &str, gbps: Option<u64>) -> Result<Option<Rate>, SceneError> {
    match gbps {
        Some(gbps) if !(1..=100_000).contains(&gbps) => {
            fault(format!("topology.{key}"), format!("{gbps} Gb/s, expected 1 to 100000"))
        }
        gbps => Ok(gbps.map(Rate::gbps)),
    }
}

fn latency(key: &str, nanos: Option<u64>) -> Result<Option<Picos>, SceneError> {
    match nanos {
        Some(nanos) if nanos > 1_000_000_000 => {
            let what = format!("{nanos} ns, expected at most 1000000000, a second");
            fault(format!("topology.{key}"), what)
        }
        nanos => Ok(nanos.map(Picos::nanos)),
    }
}

fn uplink(gbps: Option<u64>, rate: Rate) -> Result<Rate, SceneError> {
    Ok(in_range("uplink_gbps", gbps)?.unwrap_or(rate))
}

/// Sets the latency of the links of the second half of the hosts.
fn far(mut topology: Topology, far_link_ns: Option<u64>) -> Result<Topology, SceneError> {
    if let Some(latency) = latency("far_link_ns", far_link_ns)? {
        let half = topology.hosts / 2;
        for link in &mut topology.links {
            let host = [link.a, link.b].into_iter().find_map(|node| match node {
                Node::Host(host) => Some(host),
                Node::Switch(_) => None,
            });
            if host.is_some_and(|host| host >= half) {
                link.latency = latency;
            }
        }
    }
    Ok(topology)
}

/// The parameters of a fat tree, from which its tiers follow.
struct Tree {
    hosts: u32,
    over: u32,
    tiers: u8,
    rack: Option<u32>,
    pod: Option<u32>,
}

impl Tree {
    fn build(&self, rate: Rate, link: Picos, switch: Picos) -> Result<Topology, SceneError> {
        let &Self { hosts, over, tiers, rack, pod } = self;
        if over == 0 {
            return fault("topology.oversubscription", "0, expected 1 or more");
        }
        // A fat tree of three tiers of k-port switches has k^3 / 4 hosts, k / 2 in a rack and k^2 /
        // 4 in a pod.
        let ports = (2..1000u32).step_by(2).find(|k| u64::from(*k).pow(3) / 4 == u64::from(hosts));
        let (rack, pod) = match (tiers, ports) {
            (2, _) if pod.is_some() => {
                return fault("topology.pod", "a fat tree of two tiers has no pods");
            }
            (2, _) => {
                let root = f64::from(hosts).sqrt().ceil() as u32;
                (rack.unwrap_or(root.next_power_of_two()), hosts)
            }
            (3, Some(k)) => (rack.unwrap_or(k / 2), pod.unwrap_or(k * k / 4)),
            (3, None) => (
                need(rack, "topology.rack", "fat-tree of so many hosts")?,
                need(pod, "topology.pod", "fat-tree of so many hosts")?,
            ),
            _ => return fault("topology.tiers", format!("{tiers} tiers, expected 2 or 3")),
        };
        let whole = |a: u32, b: u32, what: &str| {
            if b > 0 && a > 0 && a.is_multiple_of(b) {
                Ok(a / b)
            } else {
                fault("topology", format!("{what}: {a} / {b} is not a whole number above 0"))
            }
        };
        let at_tor = gcd(over, rack);
        let aggs = whole(rack, at_tor, "uplinks of a rack")?;
        let tier = |oversubscribed, radix_down, radix_up| Tier {
            oversubscribed,
            downlink: rate,
            radix_down,
            radix_up,
            downlink_latency: link,
            switch_latency: switch,
            bundle: 1,
            queue_up: None,
            queue_down: None,
        };
        let tiers = if tiers == 2 {
            whole(rack, over, "hosts of a rack / oversubscription")?;
            let racks = whole(hosts, rack, "hosts / hosts of a rack")?;
            vec![tier(at_tor, rack, aggs), tier(1, racks, 0)]
        } else {
            let tors = whole(pod, rack, "hosts of a pod / hosts of a rack")?;
            let pods = whole(hosts, pod, "hosts / hosts of a pod")?;
            let rest = over / at_tor;
            let up = whole(tors, rest, "racks of a pod / rest of the oversubscription")?;
            vec![tier(at_tor, rack, aggs), tier(rest, tors, up), tier(1, pods, 0)]
        };
        let tree = FatTree { hosts, pod_hosts: pod, tiers };
        tree.build().or_else(|error| fault("topology", error))
    }
}

/// Returns an error if a topology cannot have so many links.
fn fits(links: u64) -> Result<(), SceneError> {
    Topology::fits(links).or_else(|error| fault("topology", error))
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
