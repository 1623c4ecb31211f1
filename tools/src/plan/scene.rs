//! From the tables of a scene to a simulation.

use std::fmt;
use std::path::{Path, PathBuf};

use super::flits::FlitScene;
use super::tables::{FailureTable, Scene, TopologyTable, WorkloadTable};
use squall_base::{Rate, Rng};
use squall_netsim::facts::{self, Facts};
use squall_netsim::formats::cm::StartUnit;
use squall_netsim::formats::{self, FormatError};
use squall_netsim::model::{Failure, FailureEvent, OptionError};
use squall_netsim::replay;
use squall_netsim::settings::Settings;
use squall_netsim::sim::{Observe, SimConfig, SimError};
use squall_netsim::topology::{FatTree, Node, Tier, Topology};
use squall_netsim::workload::{
    Algorithm, Apart, Attack, Distribution, Mix, Pattern, Spec, Split, Stagger, Workload, goal,
    trace,
};
use squall_netsim::{Bytes, Picos};

/// Longest packet there may be.
const MOST_MTU: u32 = 65_000;
/// Headers of a data packet, as htsim counts them.
pub(super) const HEADER: u32 = 64;

/// What is wrong with a scene.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SceneError {
    /// The key of the scene it is about: `topology.hosts`; empty for the whole.
    pub key: String,
    /// What was given and what is allowed.
    pub what: String,
}

impl fmt::Display for SceneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            f.write_str(&self.what)
        } else {
            write!(f, "{}: {}", self.key, self.what)
        }
    }
}

impl std::error::Error for SceneError {}

pub(super) fn fault<T>(key: impl Into<String>, what: impl fmt::Display) -> Result<T, SceneError> {
    Err(SceneError { key: key.into(), what: what.to_string() })
}

/// A scene with a seed, ready to run.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// For the simulator.
    pub config: SimConfig,
    /// For the simulator.
    pub workload: Workload,
    /// What is known without it.
    pub facts: Facts,
    /// What the scene says of topology, load and failures, defaults and all.
    pub settings: Settings,
}

/// A scene of either kind with a seed, ready to run.
#[derive(Clone, Debug)]
pub enum Experiment {
    /// Packets.
    Packets(Box<Prepared>),
    /// Flits.
    Flits(Box<FlitScene>),
}

impl Scene {
    /// Reads what it names, generates what it describes, whichever kind it is of. Relative paths start at `folder`.
    ///
    /// # Errors
    /// The key that is wrong, and what is allowed.
    pub fn experiment(&self, folder: &Path, seed: u64) -> Result<Experiment, SceneError> {
        match &self.flits {
            Some(table) => {
                let scene = self.prepare_flits(table, folder, seed)?;
                Ok(Experiment::Flits(Box::new(scene)))
            }
            None => Ok(Experiment::Packets(Box::new(self.prepare(folder, seed)?))),
        }
    }

    /// Reads what it names, generates what it describes. Relative paths start at `folder`.
    ///
    /// # Errors
    /// The key that is wrong, and what is allowed.
    pub fn prepare(&self, folder: &Path, seed: u64) -> Result<Prepared, SceneError> {
        if self.flits.is_some() {
            return fault("flits", "counts flits, and not packets: `squall plan` runs it");
        }
        let topology = self.topology.build(folder)?;
        let workload = self.workload.build(folder, &topology, seed)?;
        let mtu = self.transport.mtu.unwrap_or(4096);
        if !(256..=MOST_MTU).contains(&mtu) {
            return fault("transport.mtu", format!("{mtu}, expected 256 to {MOST_MTU} bytes"));
        }
        self.network.check()?;
        let link = topology.host_rate();
        let line = self.network.card(link, 1.0).unwrap_or(link);
        let facts = Facts::new(&topology, &workload, mtu, HEADER, line);
        let mut config = SimConfig::new(topology);
        config.network = self.network.clone();
        config.seed = seed;
        if let Some(until) = self.observe.until_us {
            config.until = Picos::micros(until);
        }
        self.transport.apply(&mut config, mtu)?;
        let every = |us: Option<f64>, key: &str| match us {
            // Shorter than a nanosecond, samples would be all there is.
            Some(us) if !(0.001..1e12).contains(&us) => {
                fault(key, format!("{us}, expected 0.001 to 1e12 microseconds"))
            }
            us => Ok(us.map(picos)),
        };
        config.observe = Observe {
            queues: every(self.observe.queues_us, "observe.queues_us")?,
            windows: every(self.observe.windows_us, "observe.windows_us")?,
            ports: self.observe.links,
            packets: self.observe.packets,
        };
        if self.transport.rto_us == Some(0) {
            return fault("transport.rto_us", "0, expected 1 microsecond or more");
        }
        let mut rng = Rng::new(seed ^ 0x6661_696c);
        for (index, failure) in self.failure.iter().enumerate() {
            let events = failure.build(&config.topology, &mut rng, index)?;
            config.failures.extend(events);
        }
        Ok(Prepared { config, workload, facts, settings: self.settings() })
    }
}

fn picos(us: f64) -> Picos {
    Picos((us * 1e6) as u64)
}

impl TopologyTable {
    /// The topology it describes.
    ///
    /// # Errors
    /// The key that is wrong, and what is allowed.
    pub fn build(&self, folder: &Path) -> Result<Topology, SceneError> {
        self.only_what_is_used()?;
        self.filled().generate(folder)
    }

    fn generate(&self, folder: &Path) -> Result<Topology, SceneError> {
        let topology = match (self.kind.as_deref(), &self.file) {
            (None | Some("file"), Some(file)) => read_topology(&folder.join(file)),
            (Some(kind), Some(_)) => {
                fault("topology.kind", format!("`{kind}` together with a file, expected `file`"))
            }
            (Some("fat-tree"), None) => self.fat_tree(),
            (Some("leaf-spine"), None) => self.leaf_spine(),
            (Some("star"), None) => {
                let hosts = need(self.hosts, "topology.hosts", "star")?;
                fits(hosts.into())?;
                let (rate, link, switch) = self.links()?;
                Ok(Topology::star(hosts, rate, link, switch))
            }
            (Some("dumbbell"), None) => {
                let hosts = need(self.hosts, "topology.hosts", "dumbbell")?;
                fits(u64::from(hosts) + 1)?;
                let (rate, link, switch) = self.links()?;
                let middle = self.uplink_gbps.map_or(rate, Rate::gbps);
                Ok(Topology::dumbbell(hosts - hosts / 2, hosts / 2, rate, middle, link, switch))
            }
            (Some("mc"), None) => {
                let hosts = need(self.hosts, "topology.hosts", "mc")?;
                let (rate, link, switch) = self.links()?;
                let mc = Topology::mc(hosts, rate, link, switch);
                mc.map_or_else(
                    || fault("topology.hosts", format!("{hosts}, expected 64 or 128")),
                    Ok,
                )
            }
            (other, None) => fault(
                "topology.kind",
                format!(
                    "{}, expected fat-tree, leaf-spine, star, dumbbell, mc, or a `file`",
                    given(other)
                ),
            ),
        }?;
        let topology = self.far(topology);
        topology.check().or_else(|error| fault("topology", error))?;
        Ok(topology)
    }

    /// Rate and latency of links, and latency of switches.
    fn links(&self) -> Result<(Rate, Picos, Picos), SceneError> {
        for (key, given) in [("gbps", self.gbps), ("uplink_gbps", self.uplink_gbps)] {
            if let Some(gbps) = given.filter(|gbps| !(1..=100_000).contains(gbps)) {
                return fault(format!("topology.{key}"), format!("{gbps}, expected 1 to 100000"));
            }
        }
        let latencies = [
            ("link_ns", self.link_ns),
            ("switch_ns", self.switch_ns),
            ("far_link_ns", self.far_link_ns),
        ];
        for (key, given) in latencies {
            if let Some(nanos) = given.filter(|&nanos| nanos > 1_000_000_000) {
                let what = format!("{nanos}, expected at most 1000000000, a second");
                return fault(format!("topology.{key}"), what);
            }
        }
        let kind = self.kind.as_deref().unwrap_or_default();
        Ok((
            Rate::gbps(need(self.gbps, "topology.gbps", kind)?),
            Picos::nanos(need(self.link_ns, "topology.link_ns", kind)?),
            Picos::nanos(need(self.switch_ns, "topology.switch_ns", kind)?),
        ))
    }

    /// Moves the last half of the hosts further away.
    fn far(&self, mut topology: Topology) -> Topology {
        if let Some(far) = self.far_link_ns {
            let half = topology.hosts / 2;
            for link in &mut topology.links {
                let host = [link.a, link.b].into_iter().find_map(|node| match node {
                    Node::Host(host) => Some(host),
                    Node::Switch(_) => None,
                });
                if host.is_some_and(|host| host >= half) {
                    link.latency = Picos::nanos(far);
                }
            }
        }
        topology
    }

    fn leaf_spine(&self) -> Result<Topology, SceneError> {
        let leaves = need(self.leaves, "topology.leaves", "leaf-spine")?;
        let spines = need(self.spines, "topology.spines", "leaf-spine")?;
        let rack = need(self.rack, "topology.rack", "leaf-spine")?;
        fits(u64::from(leaves).saturating_mul(u64::from(spines) + u64::from(rack)))?;
        let (rate, link, switch) = self.links()?;
        let uplink = self.uplink_gbps.map_or(rate, Rate::gbps);
        Ok(Topology::leaf_spine(leaves, spines, rack, rate, uplink, link, switch))
    }

    fn fat_tree(&self) -> Result<Topology, SceneError> {
        let hosts = need(self.hosts, "topology.hosts", "fat-tree")?;
        let tiers = need(self.tiers, "topology.tiers", "fat-tree")?;
        let over = need(self.oversubscription, "topology.oversubscription", "fat-tree")?;
        if over == 0 {
            return fault("topology.oversubscription", "0, expected 1 or more");
        }
        // Three tiers of k-port switches have k^3 / 4 hosts, k / 2 a rack and k^2 / 4 a pod.
        let ports = (2..1000u32).step_by(2).find(|k| u64::from(*k).pow(3) / 4 == u64::from(hosts));
        let (rack, pod) = match (tiers, ports) {
            (2, _) => {
                let root = f64::from(hosts).sqrt().ceil() as u32;
                (self.rack.unwrap_or(root.next_power_of_two()), hosts)
            }
            (3, Some(k)) => (self.rack.unwrap_or(k / 2), self.pod.unwrap_or(k * k / 4)),
            (3, None) => (
                need(self.rack, "topology.rack", "fat-tree of so many hosts")?,
                need(self.pod, "topology.pod", "fat-tree of so many hosts")?,
            ),
            _ => return fault("topology.tiers", format!("{tiers}, expected 2 or 3")),
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
        let (downlink, downlink_latency, switch_latency) = self.links()?;
        let tier = |oversubscribed, radix_down, radix_up| Tier {
            oversubscribed,
            downlink,
            radix_down,
            radix_up,
            downlink_latency,
            switch_latency,
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

/// Whether so many links are possible.
fn fits(links: u64) -> Result<(), SceneError> {
    Topology::fits(links).or_else(|error| fault("topology", error))
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn given(kind: Option<&str>) -> String {
    kind.map_or("missing".to_owned(), |kind| format!("`{kind}`"))
}

fn need<T: Copy>(value: Option<T>, key: &str, kind: &str) -> Result<T, SceneError> {
    value.ok_or_else(|| SceneError {
        key: key.to_owned(),
        what: format!("missing, and needed by `{kind}`"),
    })
}

/// Reads a topology: htsim's `.topo`, or a graph.
fn read_topology(path: &Path) -> Result<Topology, SceneError> {
    let text = read(path, "topology.file")?;
    formats::topology(&path.display().to_string(), &text).or_else(|error| fault("", error))
}

fn read(path: &Path, key: &str) -> Result<String, SceneError> {
    crate::shipped::read_text(path)
        .or_else(|error| fault(key, format!("cannot read {}: {error}", path.display())))
}

impl WorkloadTable {
    fn build(&self, folder: &Path, topology: &Topology, seed: u64) -> Result<Workload, SceneError> {
        self.only_what_is_used()?;
        let kind = self.kind.as_deref();
        let path = self.file.as_ref().map(|file| folder.join(file));
        let workload = match (kind, path) {
            (Some("trace"), Some(path)) => {
                let text = read(&path, "workload.file")?;
                trace::parse(text.as_bytes(), &path, topology.hosts)
                    .or_else(|error| fault("", error))?
            }
            (Some("job"), Some(path)) => replay::read(&path)
                .and_then(|job| job.workload(topology.hosts))
                .or_else(|error| fault("", error))?,
            (Some("goal"), Some(path)) => goal::read(&path)
                .and_then(|schedule| schedule.workload(topology.hosts))
                .or_else(|error| fault("", error))?,
            (None | Some("matrix"), Some(path)) => {
                let unit = self.cm_unit.as_deref().unwrap_or(StartUnit::default().name());
                let unit =
                    unit.parse().or_else(|error: String| fault("workload.cm_unit", error))?;
                read_matrix(&path, unit, topology.hosts)?
            }
            (Some(kind @ ("trace" | "job" | "goal" | "matrix")), None) => {
                return fault("workload.file", format!("missing, and needed by `{kind}`"));
            }
            (Some(kind), Some(_)) => {
                let what = format!(
                    "`{kind}` together with a file, expected `trace`, `job`, `goal` or `matrix`"
                );
                return fault("workload.kind", what);
            }
            (kind, None) => self
                .filled()
                .spec(kind)?
                .generate(&facts::layout(topology), seed)
                .or_else(|error| fault("workload", error))?,
        };
        workload.check().or_else(|error| fault("workload", error))?;
        Ok(workload)
    }

    fn spec(&self, kind: Option<&str>) -> Result<Spec, SceneError> {
        let name = kind.unwrap_or("");
        let bytes = || need(self.bytes, "workload.bytes", name).map(|bytes| bytes.0);
        let larger = self.larger.map(|bytes| bytes.0);
        let pattern = match name {
            "permutation" => Pattern::Permutation {
                bytes: bytes()?,
                parallel: need(self.parallel, "workload.parallel", name)?,
                larger,
            },
            "incast" => Pattern::Incast {
                senders: need(self.senders, "workload.senders", name)?,
                bytes: bytes()?,
                larger,
            },
            "outcast-incast" => Pattern::OutcastIncast {
                outcast: need(self.outcast, "workload.outcast", name)?,
                incast: need(self.incast, "workload.incast", name)?,
                bytes: bytes()?,
            },
            "all-to-all" => Pattern::AllToAll {
                bytes: bytes()?,
                window: need(self.window, "workload.window", name)?,
            },
            "all-reduce" => Pattern::AllReduce {
                algorithm: self.algorithm()?,
                bytes: bytes()?,
                chunk: need(self.chunk, "workload.chunk", name)?.0,
            },
            "poisson" => Pattern::Poisson {
                sizes: self.distribution()?,
                load: need(self.load, "workload.load", name)?,
                duration_us: need(self.duration_us, "workload.duration_us", name)?,
                split: match self.split {
                    Some(Bytes(longer_than)) => {
                        Some(Split { longer_than, attack: self.staggered(name)? })
                    }
                    None => None,
                },
            },
            "incast-mix" => Pattern::IncastMix(Mix {
                load: need(self.load, "workload.load", name)?,
                short: need(self.short_share, "workload.short_share", name)?,
                degree: need(self.degree, "workload.degree", name)?,
                long: bytes()?,
                duration_us: need(self.duration_us, "workload.duration_us", name)?,
            }),
            "parallel" | "staggered" => {
                let parallel = || need(self.qps, "workload.qps", name);
                Pattern::Attack {
                    attack: match name {
                        "parallel" => Attack::Parallel { qps: parallel()? },
                        _ => self.staggered(name)?,
                    },
                    bytes: bytes()?,
                    victims: need(self.victims, "workload.victims", name)?,
                    victim_bytes: need(self.victim_bytes, "workload.victim_bytes", name)?.0,
                    receivers: need(self.receivers, "workload.receivers", name)?,
                }
            }
            "shuffled-overlay" => Pattern::ShuffledOverlay {
                bytes: bytes()?,
                staggered: match (self.bdp, self.rtt_us) {
                    (None, None) => None,
                    _ => Some(self.staggered(name)?),
                },
            },
            _ => {
                let kinds = "permutation, incast, outcast-incast, all-to-all, all-reduce, \
                             poisson, incast-mix, parallel, staggered, shuffled-overlay, trace, \
                             job or matrix";
                return fault("workload.kind", format!("{}, expected {kinds}", given(kind)));
            }
        };
        let apart = match self.apart.as_deref() {
            None | Some("hosts") => Apart::Hosts,
            Some("racks") => Apart::Racks,
            Some("pods") => Apart::Pods,
            Some(other) => {
                let what = format!("`{other}`, expected hosts, racks or pods");
                return fault("workload.apart", what);
            }
        };
        let stagger = self.stagger()?;
        Ok(Spec {
            pattern,
            ranks: self.ranks,
            jobs: need(self.jobs, "workload.jobs", name)?,
            levels: need(self.levels, "workload.levels", name)?,
            random: self.random,
            apart,
            start_us: self.start_us,
            jitter_ns: self.jitter_ns,
            stagger,
        })
    }

    /// How flows start in turn, if they do.
    fn stagger(&self) -> Result<Option<Stagger>, SceneError> {
        let Some(every_us) = self.stagger_us else { return Ok(None) };
        match need(self.together, "workload.together", "stagger_us")? {
            0 => fault("workload.together", "0, expected 1 or more"),
            together => Ok(Some(Stagger { every_us, together })),
        }
    }

    /// A connection of a bandwidth-delay product every round trip.
    fn staggered(&self, kind: &str) -> Result<Attack, SceneError> {
        Ok(Attack::Staggered {
            bdp: need(self.bdp, "workload.bdp", kind)?.0,
            rtt_us: need(self.rtt_us, "workload.rtt_us", kind)?,
        })
    }

    fn algorithm(&self) -> Result<Algorithm, SceneError> {
        match self.algorithm.as_deref() {
            Some("ring") => Ok(Algorithm::Ring),
            Some("halving-doubling") => Ok(Algorithm::HalvingDoubling),
            Some("double-binary-tree") => Ok(Algorithm::DoubleBinaryTree),
            other => {
                let names = "ring, halving-doubling or double-binary-tree";
                fault("workload.algorithm", format!("{}, expected {names}", given(other)))
            }
        }
    }

    fn distribution(&self) -> Result<Distribution, SceneError> {
        match (&self.sizes, &self.points) {
            (Some(name), None) => {
                Distribution::by_name(name).or_else(|error| fault("workload.sizes", error))
            }
            (None, Some(points)) => Distribution::through(points.clone())
                .or_else(|error| fault("workload.points", error)),
            _ => fault("workload", "expected either `sizes` or `points` for `poisson`"),
        }
    }
}

fn read_matrix(path: &Path, unit: StartUnit, hosts: u32) -> Result<Workload, SceneError> {
    let name = path.display().to_string();
    let text = read(path, "workload.file")?;
    let mut workload =
        formats::cm::read_in(unit, &name, &text).or_else(|error| fault("", error))?;
    if workload.hosts > hosts {
        let line = text.lines().position(|line| {
            line.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case("nodes"))
        });
        let (line, nodes) = (line.map_or(0, |line| line + 1), workload.hosts);
        let what = format!("Nodes {nodes}, but the topology has {hosts}; expected at most as many");
        return fault("", FormatError { file: name, line, what });
    }
    workload.hosts = hosts;
    Ok(workload)
}

impl FailureTable {
    fn build(
        &self,
        topology: &Topology,
        rng: &mut Rng,
        index: usize,
    ) -> Result<Vec<FailureEvent>, SceneError> {
        let key = |name: &str| format!("failure[{index}].{name}");
        if !(self.at_us >= 0.0 && self.at_us < 1e12) {
            return fault(key("at_us"), format!("{}, expected 0 to 1e12", self.at_us));
        }
        self.only_what_is_used(key)?;
        let at = picos(self.at_us);
        let event = |what| FailureEvent { at, what };
        if let "switch-down" | "switch-up" = self.what.as_str() {
            let Some(name) = &self.switch else {
                return fault(key("switch"), format!("missing, and needed by `{}`", self.what));
            };
            let Some(found) = topology.switches.iter().position(|known| known.name == *name) else {
                let example = topology.switches.last().map_or("", |switch| &switch.name);
                let what = format!("no switch is called `{name}`; the last is `{example}`");
                return fault(key("switch"), what);
            };
            let found = u32::try_from(found).unwrap_or(u32::MAX);
            let down = self.what == "switch-down";
            let what = if down { Failure::SwitchDown(found) } else { Failure::SwitchUp(found) };
            return Ok(vec![event(what)]);
        }
        if self.what == "slow" {
            let count = need(self.links, &key("links"), "slow")?;
            let share = self.share.unwrap_or(0.25);
            if !(share > 0.0 && share < 1.0) {
                return fault(key("share"), format!("{share}, expected a number between 0 and 1"));
            }
            let slow =
                slow_links(topology, count, share).or_else(|what| fault(key("links"), what))?;
            return Ok(slow.into_iter().map(event).collect());
        }
        let links = self.pick(topology, rng, &key)?;
        let make: Box<dyn Fn(u32) -> Failure> = match self.what.as_str() {
            "link-down" => Box::new(Failure::LinkDown),
            "link-up" => Box::new(Failure::LinkUp),
            "black-hole" => Box::new(Failure::BlackHole),
            "rate" => {
                let gbps = need(self.gbps, &key("gbps"), "rate")?;
                if !(1..=100_000).contains(&gbps) {
                    return fault(key("gbps"), format!("{gbps}, expected 1 to 100000"));
                }
                let rate = Rate::gbps(gbps);
                Box::new(move |link| Failure::Rate(link, rate))
            }
            "bit-errors" => {
                let p = need(self.probability, &key("probability"), "bit-errors")?;
                if !(0.0..=1.0).contains(&p) {
                    return fault(key("probability"), format!("{p}, expected 0 to 1"));
                }
                Box::new(move |link| Failure::BitErrors(link, p))
            }
            other => {
                let what = format!(
                    "`{other}`, expected link-down, link-up, black-hole, rate, slow, bit-errors, \
                     switch-down or switch-up"
                );
                return fault(key("what"), what);
            }
        };
        Ok(links.into_iter().map(|link| event(make(link))).collect())
    }

    /// The links it is about: the one it names, or random ones between switches.
    fn pick(
        &self,
        topology: &Topology,
        rng: &mut Rng,
        key: &dyn Fn(&str) -> String,
    ) -> Result<Vec<u32>, SceneError> {
        match (&self.link, self.links) {
            (Some(name), None) => {
                let named = |link: &squall_netsim::topology::Link| {
                    let (a, b) = (topology.name(link.a), topology.name(link.b));
                    *name == format!("{a}-{b}") || *name == format!("{b}-{a}")
                };
                match (0u32..).zip(&topology.links).find(|(_, link)| named(link)) {
                    Some((index, _)) => Ok(vec![index]),
                    None => {
                        let example = topology.links.last().map_or(String::new(), |link| {
                            format!("{}-{}", topology.name(link.a), topology.name(link.b))
                        });
                        let what = format!("no link is called `{name}`; the last is `{example}`");
                        fault(key("link"), what)
                    }
                }
            }
            (None, Some(count)) => {
                let picked = random_links(topology, count, self.of_racks, rng);
                picked.or_else(|what| fault(key("links"), what))
            }
            _ => fault(key("link"), "expected either `link` (by its ends) or `links` (how many)"),
        }
    }
}

/// The first `count` links of the top tier at `share` of their rate, downwards: what uet-htsim's `-failed` does to
/// the links of core switches.
///
/// # Errors
/// How many there are.
pub fn slow_links(topology: &Topology, count: u32, share: f64) -> Result<Vec<Failure>, String> {
    let tier = |node: Node| match node {
        Node::Switch(at) => topology.switches[at as usize].tier,
        Node::Host(_) => 0,
    };
    let top = topology.links.iter().map(|link| tier(link.b)).max().unwrap_or(0);
    let links = (0u32..).zip(&topology.links).filter(|(_, link)| tier(link.b) == top && top > 0);
    let links: Vec<(u32, Rate)> = links.map(|(index, link)| (index, link.rate)).collect();
    if count as usize > links.len() {
        return Err(format!("{count}, but the top tier has {}", links.len()));
    }
    let slow = |rate: Rate| Rate(((rate.0 as f64 * share) as u64).max(1));
    let chosen = links.into_iter().take(count as usize);
    Ok(chosen.map(|(link, rate)| Failure::Degrade(link * 2 + 1, slow(rate))).collect())
}

/// `count` random links between switches; with `racks`, of so many random top-of-rack switches, the
/// same number of each.
pub(super) fn random_links(
    topology: &Topology,
    count: u32,
    racks: Option<u32>,
    rng: &mut Rng,
) -> Result<Vec<u32>, String> {
    let mut up: Vec<Vec<u32>> = vec![Vec::new(); topology.switches.len()];
    for (index, link) in (0u32..).zip(&topology.links) {
        if let (Node::Switch(a), Node::Switch(_)) = (link.a, link.b) {
            up[a as usize].push(index);
        }
    }
    let mut groups: Vec<Vec<u32>> = match racks {
        None => vec![up.concat()],
        Some(_) => {
            let tiers = topology.switches.iter().map(|switch| switch.tier);
            let tors = up.into_iter().zip(tiers).filter(|(up, tier)| *tier == 0 && !up.is_empty());
            tors.map(|(up, _)| up).collect()
        }
    };
    let wanted = racks.unwrap_or(1);
    if wanted == 0 || wanted as usize > groups.len() || !count.is_multiple_of(wanted) {
        return Err(format!(
            "{count} links of {wanted} racks, expected a multiple of the racks, of which there \
             are {}",
            groups.len()
        ));
    }
    let each = (count / wanted) as usize;
    let mut picked = Vec::new();
    for _ in 0..wanted {
        let mut group = groups.swap_remove(rng.below(groups.len() as u32) as usize);
        if each > group.len() {
            return Err(format!("{count}, but there are {} to choose from", group.len()));
        }
        for _ in 0..each {
            picked.push(group.swap_remove(rng.below(group.len() as u32) as usize));
        }
    }
    picked.sort_unstable();
    Ok(picked)
}

impl From<OptionError> for SceneError {
    fn from(error: OptionError) -> Self {
        Self { key: format!("network.{}", error.key), what: error.what }
    }
}

impl From<SimError> for SceneError {
    fn from(error: SimError) -> Self {
        let key = match error {
            SimError::Topology(_) => "topology",
            SimError::Workload(_) => "workload",
            SimError::Transport(_) => "transport",
            SimError::Network(error) => return error.into(),
            SimError::Parameter(_) => "",
        };
        Self { key: key.to_owned(), what: error.to_string() }
    }
}

/// The folder that relative paths of a file start at.
pub(super) fn folder_of(path: &Path) -> PathBuf {
    path.parent().map_or_else(PathBuf::new, Path::to_owned)
}
