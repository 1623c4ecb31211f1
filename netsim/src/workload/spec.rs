//! What to generate, and for which network.

use squall_base::Rng;

use super::builder::{Builder, refuse};
use super::{
    Attack, Distribution, Mix, Split, Workload, WorkloadError, allreduce, attacks, mix, patterns,
    poisson,
};

/// What a generator knows about the network: how hosts are grouped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Hosts, at least two.
    pub hosts: u32,
    /// Hosts below one top-of-rack switch: host `h` is in rack `h / rack`.
    pub rack: u32,
    /// Hosts of one pod: what two hosts of different pods send each other crosses the core.
    pub pod: u32,
    /// Line rate of a host in bits per second, for open-loop load.
    pub line_bps: u64,
}

impl Layout {
    /// `hosts` hosts on one switch of 100 Gb/s.
    #[must_use]
    pub const fn flat(hosts: u32) -> Self {
        Self { hosts, rack: hosts, pod: hosts, line_bps: 100_000_000_000 }
    }
}

/// How far apart the ends of a flow of a permutation are at least.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Apart {
    /// Any two hosts.
    #[default]
    Hosts,
    /// Below different top-of-rack switches: full bisection of two tiers.
    Racks,
    /// In different pods: every packet crosses the core switches (SMaRTT v2, section IV).
    Pods,
}

/// An all-reduce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// Reduce-scatter and all-gather round a ring, a message once its predecessor arrived.
    Ring,
    /// Recursive halving, then doubling; a power of two of ranks, a step once the step before it
    /// arrived.
    HalvingDoubling,
    /// Two binary trees that carry half of the data each, reduced to the root, then broadcast
    /// (Sanders, Speck and Träff, Parallel Computing 35, 2009).
    DoubleBinaryTree,
}

/// Flows that start in turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stagger {
    /// Time between two starts, in microseconds.
    pub every_us: u64,
    /// So many flows start at a time, at least one.
    pub together: u32,
}

impl Stagger {
    /// When flow `index`, from 0, starts: in picoseconds after the first.
    fn start(self, index: u64) -> u64 {
        let turn = index / u64::from(self.together.max(1));
        turn.saturating_mul(self.every_us).saturating_mul(super::PS_PER_US)
    }
}

/// Most flows that a generator makes; they take some hundred bytes each.
const MOST_FLOWS: u64 = 1 << 24;

/// Who sends what to whom.
#[derive(Clone, PartialEq, Debug)]
pub enum Pattern {
    /// Every host sends to one other, and receives from one other.
    Permutation {
        /// Length of a flow.
        bytes: u64,
        /// So many permutations at the same time.
        parallel: u32,
        /// The first flow has this length instead.
        larger: Option<u64>,
    },
    /// Many hosts send to one.
    Incast {
        /// How many.
        senders: u32,
        /// Length of a flow.
        bytes: u64,
        /// The first flow has this length instead.
        larger: Option<u64>,
    },
    /// One host sends to `outcast` others; to the first of them `incast - 1` further hosts send too.
    /// What the first host cannot send there it should send elsewhere.
    OutcastIncast {
        /// Flows that share the source.
        outcast: u32,
        /// Flows that share the destination, the one of the shared source included.
        incast: u32,
        /// Length of a flow.
        bytes: u64,
    },
    /// Every rank sends to every other, rank `r` to `r+1`, `r+2`, .. round the ranks.
    AllToAll {
        /// Length of a flow.
        bytes: u64,
        /// Flows a sender has under way at a time; 1 for a serial all-to-all.
        window: u32,
    },
    /// Every rank ends with the sum of the data of all.
    AllReduce {
        /// In which way.
        algorithm: Algorithm,
        /// Length of the data at each rank.
        bytes: u64,
        /// Length of a message; the last of a step may be shorter.
        chunk: u64,
    },
    /// Flows of random length between random hosts, at random times.
    Poisson {
        /// Lengths.
        sizes: Distribution,
        /// Share of the line rate that the hosts send, on average.
        load: f64,
        /// Flows start for so long, in microseconds.
        duration_us: u64,
        /// Long flows are an attack.
        split: Option<Split>,
    },
    /// The first rank wants more than its share of the way to the last ones, at the cost of those between.
    Attack {
        /// How.
        attack: Attack,
        /// Bytes of the attacker in all.
        bytes: u64,
        /// Ranks that send one flow each.
        victims: u32,
        /// Length of such a flow.
        victim_bytes: u64,
        /// Ranks that receive, the attacker and its victims in turn.
        receivers: u32,
    },
    /// Every rank sends over rings of all ranks, a ring for each connection.
    ShuffledOverlay {
        /// Bytes of a rank in all.
        bytes: u64,
        /// One ring after the other, by [`Attack::Staggered`]; otherwise all at once.
        staggered: Option<Attack>,
    },
    /// The mix of the Dart paper.
    IncastMix(Mix),
}

impl Pattern {
    /// Whether its flows are of several jobs on the same ranks.
    const fn groups(&self) -> bool {
        matches!(
            self,
            Self::Attack { .. } | Self::IncastMix(_) | Self::Poisson { split: Some(_), .. }
        )
    }

    /// Flows of a job of `ranks`, or a few more.
    fn most_flows(&self, ranks: u64, line_bps: u64) -> u64 {
        match self {
            Self::Permutation { parallel, .. } => ranks.saturating_mul((*parallel).into()),
            Self::Incast { senders, .. } => (*senders).into(),
            Self::OutcastIncast { outcast, incast, .. } => {
                u64::from(*outcast).saturating_add((*incast).into())
            }
            Self::AllToAll { .. } => ranks.saturating_mul(ranks),
            Self::AllReduce { algorithm, bytes, chunk } => {
                let messages = bytes.checked_div(*chunk).unwrap_or(0);
                match algorithm {
                    // 2 (r - 1) steps of r messages, of which each is a share of 1 / r in chunks.
                    Algorithm::Ring => messages.saturating_add(ranks).saturating_mul(2 * ranks),
                    // Each rank twice a half, a quarter ..
                    Algorithm::HalvingDoubling => {
                        messages.saturating_add(32).saturating_mul(2 * ranks)
                    }
                    // Two trees of half the data, up and down.
                    Algorithm::DoubleBinaryTree => {
                        messages.saturating_add(2).saturating_mul(2 * ranks)
                    }
                }
            }
            Self::Poisson { sizes, load, duration_us, split } => {
                let bytes = line_bps as f64 / 8e6 * *duration_us as f64 * load * ranks as f64;
                // Casts saturate. Of what is divided there are no more parts than the load has.
                let parts = split.map_or(0, |split| split.attack.connections(bytes as u64));
                ((bytes / sizes.mean()) as u64).saturating_add(parts)
            }
            Self::Attack { attack, bytes, victims, .. } => {
                attack.connections(*bytes).saturating_add((*victims).into())
            }
            Self::ShuffledOverlay { bytes, staggered } => {
                let each = staggered.map_or(ranks, |attack| attack.connections(*bytes));
                each.saturating_mul(ranks)
            }
            Self::IncastMix(mix) => mix.flows(ranks, line_bps),
        }
    }
}

/// A pattern and where it runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Spec {
    /// Who sends what to whom.
    pub pattern: Pattern,
    /// Ranks of a job; all hosts if `None`.
    pub ranks: Option<u32>,
    /// Jobs that run side by side, each on hosts of its own.
    pub jobs: u16,
    /// Service levels that flows take in turn, at least one.
    pub levels: u8,
    /// Place ranks at random; otherwise rank `r` of job `j` is host `j * ranks + r`.
    pub random: bool,
    /// How far apart the ends of a permutation's flows are.
    pub apart: Apart,
    /// When it starts, in microseconds.
    pub start_us: u64,
    /// Each flow that starts by the clock starts up to so many nanoseconds later, at random.
    pub jitter_ns: u64,
    /// Flows that start by the clock do so in turn, instead of at once.
    pub stagger: Option<Stagger>,
}

impl Spec {
    /// One job on all hosts.
    #[must_use]
    pub const fn new(pattern: Pattern) -> Self {
        Self {
            pattern,
            ranks: None,
            jobs: 1,
            levels: 1,
            random: false,
            apart: Apart::Hosts,
            start_us: 0,
            jitter_ns: 0,
            stagger: None,
        }
    }

    /// The workload for a network; `seed` decides all that is random.
    ///
    /// # Errors
    /// The parameter that does not fit, with what would.
    pub fn generate(&self, layout: &Layout, seed: u64) -> Result<Workload, WorkloadError> {
        let hosts = layout.hosts;
        if hosts < 2 {
            return Err(refuse("hosts", &hosts, "a workload needs two hosts at least"));
        }
        if self.jobs == 0 {
            return Err(refuse("jobs", &self.jobs, "one at least"));
        }
        if self.levels == 0 {
            return Err(refuse("levels", &self.levels, "one at least"));
        }
        if self.jobs > 1 && self.pattern.groups() {
            let allowed = "one: attackers and victims, long flows and short ones are jobs already";
            return Err(refuse("jobs", &self.jobs, allowed));
        }
        let ranks = self.ranks.unwrap_or(hosts / u32::from(self.jobs));
        let room = hosts / u32::from(self.jobs);
        if ranks < 2 || ranks > room {
            let allowed = format!("2 to {room} ({hosts} hosts shared by {} jobs)", self.jobs);
            return Err(refuse("ranks", &ranks, allowed));
        }
        let flows = self.pattern.most_flows(ranks.into(), layout.line_bps);
        let flows = flows.saturating_mul(self.jobs.into());
        if flows > MOST_FLOWS {
            return Err(refuse("flows", &flows, format!("{MOST_FLOWS} at most")));
        }
        // Streams of their own, so that a change of one does not move the other.
        let mut places = Rng::new(seed ^ 0x706c_6163);
        let mut rng = Rng::new(seed ^ 0x666c_6f77);
        let mut order: Vec<u32> = (0..hosts).collect();
        if self.random {
            shuffle(&mut order, &mut places);
        }
        let mut builder = Builder::new(hosts, self.levels);
        for job in 0..self.jobs {
            let first = usize::from(job) * ranks as usize;
            let hosts = order[first..first + ranks as usize].to_vec();
            self.job(&mut builder, job, hosts, layout, &mut rng)?;
        }
        let mut workload = builder.finish();
        self.shift(&mut workload, &mut rng);
        Ok(workload)
    }

    fn job(
        &self,
        to: &mut Builder,
        job: u16,
        hosts: Vec<u32>,
        layout: &Layout,
        rng: &mut Rng,
    ) -> Result<(), WorkloadError> {
        let ranks = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        let group = match self.apart {
            Apart::Hosts => 1,
            Apart::Racks => layout.rack.max(1),
            Apart::Pods => layout.pod.max(1),
        };
        let groups: Vec<u32> = hosts.iter().map(|host| host / group).collect();
        to.place(job, hosts);
        match &self.pattern {
            &Pattern::Permutation { bytes, parallel, larger } => {
                patterns::permutation(to, &groups, sized(bytes)?, parallel, larger, rng)
            }
            &Pattern::Incast { senders, bytes, larger } => {
                patterns::incast(to, ranks, senders, sized(bytes)?, larger, rng)
            }
            &Pattern::OutcastIncast { outcast, incast, bytes } => {
                patterns::outcast_incast(to, ranks, outcast, incast, sized(bytes)?, rng)
            }
            &Pattern::AllToAll { bytes, window } => {
                patterns::all_to_all(to, ranks, sized(bytes)?, window)
            }
            &Pattern::AllReduce { algorithm, bytes, chunk } => {
                let chunk = if chunk == 0 { bytes } else { chunk };
                allreduce::all_reduce(to, ranks, algorithm, sized(bytes)?, chunk)
            }
            Pattern::Poisson { sizes, load, duration_us, split } => {
                let (lasts, line) = ((*load, *duration_us), layout.line_bps);
                poisson::open_loop(to, ranks, sizes, lasts, line, split.as_ref(), rng)
            }
            &Pattern::Attack { attack, bytes, victims, victim_bytes, receivers } => {
                let (attacker, victims) =
                    ((attack, sized(bytes)?), (victims, sized(victim_bytes)?));
                attacks::on_victims(to, ranks, attacker, victims, receivers)
            }
            &Pattern::ShuffledOverlay { bytes, staggered } => {
                attacks::shuffled_overlay(to, ranks, staggered, sized(bytes)?)
            }
            Pattern::IncastMix(mix) => {
                sized(mix.long)?;
                mix::incast_mix(to, ranks, mix, layout.line_bps, rng)
            }
        }
    }

    /// Applies start and jitter to the flows that start by the clock.
    fn shift(&self, workload: &mut Workload, rng: &mut Rng) {
        let mut index = 0;
        for flow in &mut workload.flows {
            if let super::Start::At(at) = &mut flow.start {
                let jitter = (rng.unit() * self.jitter_ns as f64 * 1000.0) as u64;
                *at = at.saturating_add(self.stagger.map_or(0, |turns| turns.start(index)));
                index += 1;
                *at = at.saturating_add(self.start_us.saturating_mul(super::PS_PER_US));
                *at = at.saturating_add(jitter);
            }
        }
    }
}

/// Fisher and Yates.
pub(super) fn shuffle(items: &mut [u32], rng: &mut Rng) {
    for last in (1..items.len()).rev() {
        let other = rng.below(u32::try_from(last + 1).unwrap_or(u32::MAX)) as usize;
        items.swap(last, other);
    }
}

fn sized(bytes: u64) -> Result<u64, WorkloadError> {
    if bytes == 0 { Err(refuse("bytes", &bytes, "one at least")) } else { Ok(bytes) }
}
