//! Generated workloads: their kinds, their parameters, and the layout of the network they are for.

use serde::{Deserialize, Serialize};
use squall_base::Rng;

use super::attacks::{Attack, Split};
use super::builder::{Builder, refuse};
use super::{
    Distribution, Mix, Workload, WorkloadError, allreduce, attacks, mix, patterns, poisson,
};
use crate::Bytes;

/// Layout of a network, as far as generators know it: the grouping of hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Number of hosts, at least two.
    pub hosts: u32,
    /// Number of hosts below one top-of-rack switch: host `h` is in rack `h / rack`.
    pub rack: u32,
    /// Number of hosts of one pod: messages between hosts of different pods cross the core.
    pub pod: u32,
    /// Line rate of a host in bits per second, for open-loop load.
    pub line_bps: u64,
}

impl Layout {
    /// Returns the layout of `hosts` hosts on one switch of 100 Gb/s.
    #[must_use]
    pub const fn flat(hosts: u32) -> Self {
        Self { hosts, rack: hosts, pod: hosts, line_bps: 100_000_000_000 }
    }
}

/// Lower bound on the distance between the ends of a flow of a permutation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Apart {
    /// The ends are any two hosts.
    #[default]
    Hosts,
    /// The ends are below different top-of-rack switches: full bisection of two tiers.
    Racks,
    /// The ends are in different pods: every packet crosses the core switches (SMaRTT v2, section
    /// IV).
    Pods,
}

/// Algorithm by which an all-reduce exchanges its messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Reduce-scatter and all-gather round a ring; each message starts when its predecessor has
    /// arrived.
    Ring,
    /// Recursive halving, then doubling. The number of ranks is a power of two, and a step starts
    /// when the step before it has arrived.
    HalvingDoubling,
    /// Two binary trees that carry half of the data each, reduced to the root, then broadcast
    /// (Sanders, Speck and Träff, Parallel Computing 35, 2009).
    DoubleBinaryTree,
}

/// Maximum number of flows that a generator makes; they take some hundred bytes each.
const MOST_FLOWS: u64 = 1 << 24;

/// Length of a message of an all-reduce in STrack, section 4.3.
const CHUNK: Bytes = Bytes(128 << 10);

const fn one() -> u32 {
    1
}

const fn chunk() -> Bytes {
    CHUNK
}

/// Traffic pattern: senders, receivers and lengths of the messages. Plans have the same kinds and
/// keys.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Every host sends to one other, and receives from one other.
    Permutation {
        /// Length of a flow.
        bytes: Bytes,
        /// Permutations at the same time (default 1).
        #[serde(default = "one")]
        parallel: u32,
        /// Length of the first flow, if it differs from the others.
        larger: Option<Bytes>,
        /// `hosts`, `racks` or `pods`: the ends of a flow are in different ones (default `hosts`).
        #[serde(default)]
        apart: Apart,
    },
    /// Many hosts send to one.
    Incast {
        /// Senders.
        senders: u32,
        /// Length of a flow.
        bytes: Bytes,
        /// Length of the first flow, if it differs from the others.
        larger: Option<Bytes>,
    },
    /// One host sends to several others, and further hosts send to the first of these.
    OutcastIncast {
        /// Flows that share the source.
        outcast: u32,
        /// Flows that share the destination, including the one from the shared source.
        incast: u32,
        /// Length of a flow.
        bytes: Bytes,
    },
    /// Every rank sends to every other, rank `r` first to `r+1`, `r+2`, ..
    AllToAll {
        /// Length of a flow.
        bytes: Bytes,
        /// Flows a sender has under way at a time (default 1, a serial all-to-all).
        #[serde(default = "one")]
        window: u32,
    },
    /// Every rank ends with the sum of all data.
    AllReduce {
        /// `ring`, `halving-doubling` or `double-binary-tree`.
        algorithm: Algorithm,
        /// Length of the data at each rank.
        bytes: Bytes,
        /// Length of a message (default 128 KiB, as STrack, section 4.3).
        #[serde(default = "chunk")]
        chunk: Bytes,
    },
    /// Flows of random length between random hosts, at random times.
    Poisson {
        /// Lengths: `websearch`, `hadoop`, `alistorage`, or (bytes, cumulative share) points.
        #[serde(alias = "points")]
        sizes: Distribution,
        /// Share of the line rate that the hosts send, on average.
        load: f64,
        /// Time during which flows start, microseconds.
        duration_us: u64,
        /// Flows longer than this are an attack: they are divided into connections of `bdp` bytes, one every `rtt_us`.
        split: Option<Bytes>,
        /// Bytes of a connection, a bandwidth-delay product.
        bdp: Option<Bytes>,
        /// Time between the starts of consecutive connections, microseconds; 0 for all at once.
        rtt_us: Option<f64>,
    },
    /// The mix of the Dart paper: long flows between random hosts, and short ones in incasts.
    IncastMix(Mix),
    /// The first rank, an attacker, sends over several connections at a time.
    Parallel {
        /// Connections of the attacker; one is no attack.
        qps: u32,
        /// Total bytes of the attacker.
        bytes: Bytes,
        /// Hosts that send one flow each besides the attacker (default 1).
        #[serde(default = "one")]
        victims: u32,
        /// Length of such a flow (default as the attacker's bytes).
        victim_bytes: Option<Bytes>,
        /// Hosts that receive, attacker and victims in turn (default 1).
        #[serde(default = "one")]
        receivers: u32,
    },
    /// The attacker begins a new connection every round trip.
    Staggered {
        /// Total bytes of the attacker.
        bytes: Bytes,
        /// Bytes of a connection, a bandwidth-delay product.
        bdp: Bytes,
        /// Time between the starts of consecutive connections, microseconds; 0 for all at once.
        rtt_us: f64,
        /// Hosts that send one flow each besides the attacker (default 1).
        #[serde(default = "one")]
        victims: u32,
        /// Length of such a flow (default as the attacker's bytes).
        victim_bytes: Option<Bytes>,
        /// Hosts that receive, attacker and victims in turn (default 1).
        #[serde(default = "one")]
        receivers: u32,
    },
    /// Every rank sends over rings of all ranks, a ring for each connection.
    ShuffledOverlay {
        /// Total bytes of a rank.
        bytes: Bytes,
        /// Bytes of a connection, a bandwidth-delay product (default: the connections use all rings at once).
        bdp: Option<Bytes>,
        /// Time between the starts of consecutive connections, microseconds; 0 for all at once.
        rtt_us: Option<f64>,
    },
}

impl Pattern {
    /// Returns whether the flows belong to several jobs on the same ranks.
    const fn groups(&self) -> bool {
        matches!(
            self,
            Self::Parallel { .. }
                | Self::Staggered { .. }
                | Self::IncastMix(_)
                | Self::Poisson { split: Some(_), .. }
        )
    }

    /// Returns how a transfer is divided among connections, if one is.
    fn attack(&self) -> Result<Option<Attack>, WorkloadError> {
        match *self {
            Self::Parallel { qps, .. } => Ok(Some(Attack::Parallel { qps })),
            Self::Staggered { bdp, rtt_us, .. } => {
                Ok(Some(Attack::Staggered { bdp: bdp.0, rtt_us }))
            }
            Self::ShuffledOverlay { bdp, rtt_us, .. } => Attack::staggered(bdp, rtt_us),
            Self::Poisson { split, bdp, rtt_us, .. } => {
                let attack = Attack::staggered(bdp, rtt_us)?;
                match (split, attack) {
                    (Some(_), None) => Err(refuse("bdp", &"none", "one with `split`")),
                    (None, Some(_)) => Err(refuse("split", &"none", "one with `bdp`")),
                    _ => Ok(attack),
                }
            }
            _ => Ok(None),
        }
    }

    /// Returns the number of flows of a job of `ranks`, or a few more.
    fn most_flows(&self, attack: Option<Attack>, ranks: u64, line_bps: u64) -> u64 {
        let connections = |bytes: u64| attack.map(|attack| attack.connections(bytes));
        match self {
            Self::Permutation { parallel, .. } => ranks.saturating_mul((*parallel).into()),
            Self::Incast { senders, .. } => (*senders).into(),
            Self::OutcastIncast { outcast, incast, .. } => {
                u64::from(*outcast).saturating_add((*incast).into())
            }
            Self::AllToAll { .. } => ranks.saturating_mul(ranks),
            Self::AllReduce { algorithm, bytes, chunk } => {
                let messages = bytes.0.checked_div(chunk.0).unwrap_or(0);
                match algorithm {
                    // The ring has 2 (r - 1) steps of r messages, of which each is a share of 1 / r
                    // in chunks.
                    Algorithm::Ring => messages.saturating_add(ranks).saturating_mul(2 * ranks),
                    // Each rank sends a half, a quarter and so on, twice.
                    Algorithm::HalvingDoubling => {
                        messages.saturating_add(32).saturating_mul(2 * ranks)
                    }
                    // Two trees carry half of the data each, up and down.
                    Algorithm::DoubleBinaryTree => {
                        messages.saturating_add(2).saturating_mul(2 * ranks)
                    }
                }
            }
            Self::Poisson { sizes, load, duration_us, .. } => {
                let bytes = line_bps as f64 / 8e6 * *duration_us as f64 * load * ranks as f64;
                // Casts saturate. The divided flows have no more parts than the load has.
                let parts = connections(bytes as u64).unwrap_or(0);
                ((bytes / sizes.mean()) as u64).saturating_add(parts)
            }
            Self::Parallel { bytes, victims, .. } | Self::Staggered { bytes, victims, .. } => {
                connections(bytes.0).unwrap_or(0).saturating_add((*victims).into())
            }
            Self::ShuffledOverlay { bytes, .. } => {
                connections(bytes.0).unwrap_or(ranks).saturating_mul(ranks)
            }
            Self::IncastMix(mix) => mix.flows(ranks, line_bps),
        }
    }

    /// Adds the flows of a job whose rank `r` is on `hosts[r]`.
    fn flows(
        &self,
        to: &mut Builder,
        attack: Option<Attack>,
        hosts: &[u32],
        layout: &Layout,
        rng: &mut Rng,
    ) -> Result<(), WorkloadError> {
        let ranks = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        match self {
            &Self::Permutation { bytes, parallel, larger, apart } => {
                let group = match apart {
                    Apart::Hosts => 1,
                    Apart::Racks => layout.rack.max(1),
                    Apart::Pods => layout.pod.max(1),
                };
                let groups: Vec<u32> = hosts.iter().map(|host| host / group).collect();
                let larger = larger.map(|bytes| bytes.0);
                patterns::permutation(to, &groups, sized(bytes)?, parallel, larger, rng)
            }
            &Self::Incast { senders, bytes, larger } => {
                let larger = larger.map(|bytes| bytes.0);
                patterns::incast(to, ranks, senders, sized(bytes)?, larger, rng)
            }
            &Self::OutcastIncast { outcast, incast, bytes } => {
                patterns::outcast_incast(to, ranks, outcast, incast, sized(bytes)?, rng)
            }
            &Self::AllToAll { bytes, window } => {
                patterns::all_to_all(to, ranks, sized(bytes)?, window)
            }
            &Self::AllReduce { algorithm, bytes, chunk } => {
                let chunk = if chunk.0 == 0 { bytes } else { chunk };
                allreduce::all_reduce(to, ranks, algorithm, sized(bytes)?, chunk.0)
            }
            Self::Poisson { sizes, load, duration_us, split, .. } => {
                let split = split.zip(attack);
                let split = split.map(|(Bytes(longer_than), attack)| Split { longer_than, attack });
                let (lasts, line) = ((*load, *duration_us), layout.line_bps);
                poisson::open_loop(to, ranks, sizes, lasts, line, split.as_ref(), rng)
            }
            &Self::Parallel { qps, bytes, victims, victim_bytes, receivers } => {
                let attacker = (Attack::Parallel { qps }, sized(bytes)?);
                let victims = (victims, sized(victim_bytes.unwrap_or(bytes))?);
                attacks::on_victims(to, ranks, attacker, victims, receivers)
            }
            &Self::Staggered { bytes, bdp, rtt_us, victims, victim_bytes, receivers } => {
                let attacker = (Attack::Staggered { bdp: bdp.0, rtt_us }, sized(bytes)?);
                let victims = (victims, sized(victim_bytes.unwrap_or(bytes))?);
                attacks::on_victims(to, ranks, attacker, victims, receivers)
            }
            &Self::ShuffledOverlay { bytes, .. } => {
                attacks::shuffled_overlay(to, ranks, attack, sized(bytes)?)
            }
            Self::IncastMix(mix) => {
                sized(mix.bytes)?;
                mix::incast_mix(to, ranks, mix, layout.line_bps, rng)
            }
        }
    }
}

/// Number of jobs, their places and their start. Plans have the same keys beside those of a [`Pattern`].
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(default)]
pub struct JobOptions {
    /// Ranks of a job (default all hosts, shared by the jobs).
    pub ranks: Option<u32>,
    /// Jobs side by side, each on hosts of its own (default 1).
    pub jobs: u16,
    /// Service levels that flows take in turn, for scope `service-level` (default 1).
    pub levels: u8,
    /// Place ranks at random; otherwise rank `r` of job `j` is host `j * ranks + r`.
    pub random: bool,
    /// Start of the workload, microseconds.
    pub start_us: u64,
    /// Largest random delay of flows that start by the clock, nanoseconds.
    pub jitter_ns: u64,
    /// Time between the starts of flows that start by the clock, microseconds (default all at once).
    pub stagger_us: Option<u64>,
    /// Number of flows that start together, with `stagger_us` (default 1).
    pub together: Option<u32>,
}

impl Default for JobOptions {
    fn default() -> Self {
        Self {
            ranks: None,
            jobs: 1,
            levels: 1,
            random: false,
            start_us: 0,
            jitter_ns: 0,
            stagger_us: None,
            together: None,
        }
    }
}

impl JobOptions {
    fn check(&self) -> Result<(), WorkloadError> {
        match self {
            Self { jobs: 0, .. } => Err(refuse("jobs", &0, "one at least")),
            Self { levels: 0, .. } => Err(refuse("levels", &0, "one at least")),
            Self { together: Some(0), .. } => Err(refuse("together", &0, "one at least")),
            Self { together: Some(together), stagger_us: None, .. } => {
                Err(refuse("together", together, "none without `stagger_us`"))
            }
            _ => Ok(()),
        }
    }

    /// Returns when flow `index`, from 0, starts: in picoseconds after the first.
    fn turn(&self, index: u64) -> u64 {
        let turn = index / u64::from(self.together.unwrap_or(1).max(1));
        let every_us = self.stagger_us.unwrap_or(0);
        turn.saturating_mul(every_us).saturating_mul(super::PS_PER_US)
    }
}

/// A workload to be generated: a pattern, and the ranks that run it.
#[derive(Clone, PartialEq, Debug)]
pub struct Spec {
    /// Traffic pattern: which ranks send how much to which.
    pub pattern: Pattern,
    /// Number of jobs, the hosts of their ranks, and when they start.
    pub options: JobOptions,
}

impl Spec {
    /// Returns the specification of a workload with this pattern: one job on all hosts.
    #[must_use]
    pub fn new(pattern: Pattern) -> Self {
        Self { pattern, options: JobOptions::default() }
    }

    /// Generates the workload for a network; `seed` decides all that is random.
    ///
    /// # Errors
    /// Returns the parameter that does not fit, and the values that do.
    pub fn generate(&self, layout: &Layout, seed: u64) -> Result<Workload, WorkloadError> {
        let (hosts, options) = (layout.hosts, &self.options);
        if hosts < 2 {
            return Err(refuse("hosts", &hosts, "a workload needs two hosts at least"));
        }
        options.check()?;
        if options.jobs > 1 && self.pattern.groups() {
            let allowed = "one: attackers and victims, long flows and short ones are jobs already";
            return Err(refuse("jobs", &options.jobs, allowed));
        }
        let room = hosts / u32::from(options.jobs);
        let ranks = options.ranks.unwrap_or(room);
        if ranks < 2 || ranks > room {
            let allowed = format!("2 to {room} ({hosts} hosts shared by {} jobs)", options.jobs);
            return Err(refuse("ranks", &ranks, allowed));
        }
        let attack = self.pattern.attack()?;
        let flows = self.pattern.most_flows(attack, ranks.into(), layout.line_bps);
        let flows = flows.saturating_mul(options.jobs.into());
        if flows > MOST_FLOWS {
            return Err(refuse("flows", &flows, format!("{MOST_FLOWS} at most")));
        }
        // Placement and flows have separate random streams, so that a change of one does not change
        // the other.
        let mut places = Rng::new(seed ^ 0x706c_6163);
        let mut rng = Rng::new(seed ^ 0x666c_6f77);
        let mut order: Vec<u32> = (0..hosts).collect();
        if options.random {
            shuffle(&mut order, &mut places);
        }
        let mut builder = Builder::new(hosts, options.levels);
        for job in 0..options.jobs {
            let first = usize::from(job) * ranks as usize;
            let hosts = order[first..first + ranks as usize].to_vec();
            builder.place(job, hosts.clone());
            self.pattern.flows(&mut builder, attack, &hosts, layout, &mut rng)?;
        }
        let mut workload = builder.finish();
        self.shift(&mut workload, &mut rng);
        Ok(workload)
    }

    /// Applies start and jitter to the flows that start by the clock.
    fn shift(&self, workload: &mut Workload, rng: &mut Rng) {
        let options = &self.options;
        let mut index = 0;
        for flow in &mut workload.flows {
            if let super::Start::At(at) = &mut flow.start {
                let jitter = (rng.unit() * options.jitter_ns as f64 * 1000.0) as u64;
                *at = at.saturating_add(options.turn(index));
                index += 1;
                *at = at.saturating_add(options.start_us.saturating_mul(super::PS_PER_US));
                *at = at.saturating_add(jitter);
            }
        }
    }
}

/// Shuffles `items` by the method of Fisher and Yates.
pub(super) fn shuffle(items: &mut [u32], rng: &mut Rng) {
    for last in (1..items.len()).rev() {
        let other = rng.below(u32::try_from(last + 1).unwrap_or(u32::MAX)) as usize;
        items.swap(last, other);
    }
}

fn sized(bytes: Bytes) -> Result<u64, WorkloadError> {
    if bytes.0 == 0 { Err(refuse("bytes", &bytes.0, "one at least")) } else { Ok(bytes.0) }
}
