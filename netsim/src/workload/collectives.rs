//! Collective operations as messages between the ranks of a group, as the libraries exchange them.
//!
//! The buffer of a collective consists of *shares*, one for each rank of the group (a broadcast or
//! a reduction to one rank has a single share), and a message carries consecutive blocks of it. A
//! message leaves a rank when every message that brought something into these blocks has arrived
//! there, so that the blocks of a long buffer follow each other through the group.
//!
//! `docs/formats.md` lists the algorithms, the kinds that each serves, and their sources.

use core::fmt;
use core::ops::Range;
use std::collections::HashMap;
use std::str::FromStr;

use super::allreduce::parent;

/// Kind of a collective operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CollectiveKind {
    /// Every rank ends with the sum of all buffers.
    AllReduce,
    /// The first rank of the group ends with the sum of all buffers.
    Reduce,
    /// Every rank ends with the buffers of all.
    AllGather,
    /// The first rank of the group ends with the buffers of all.
    Gather,
    /// Every rank ends with its share of the first rank's buffer.
    Scatter,
    /// Every rank ends with the buffer of the first rank of the group.
    Broadcast,
    /// Every rank ends with its share of every buffer.
    AllToAll,
    /// Every rank ends with its share of the sum of all buffers.
    ReduceScatter,
    /// No rank ends before all have begun.
    Barrier,
}

/// Algorithm by which the ranks of a group exchange the messages of a collective.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CollectiveAlgorithm {
    /// Shares travel from each rank to the next of the group.
    Ring,
    /// A binomial tree reduces to the first rank, and broadcasts from it.
    Tree,
    /// Two binary trees carry half of the buffer each.
    DoubleBinaryTree,
    /// Recursive halving, recursive doubling, or both.
    HalvingDoubling,
    /// Every rank sends to every other.
    Direct,
    /// A ring within each host, and rings between the ranks of equal place on all hosts.
    Hierarchical,
    /// In round `k`, a rank sends to the one `2^k` further.
    Dissemination,
}

use CollectiveAlgorithm::{
    Direct, Dissemination, DoubleBinaryTree, HalvingDoubling, Hierarchical, Ring, Tree,
};

/// Kinds with their names, and their algorithms, of which the first is the default.
const KINDS: &[(CollectiveKind, &str, &[CollectiveAlgorithm])] = &[
    (
        CollectiveKind::AllReduce,
        "all-reduce",
        &[Ring, Tree, DoubleBinaryTree, HalvingDoubling, Direct, Hierarchical],
    ),
    (CollectiveKind::Reduce, "reduce", &[Ring, Tree]),
    (CollectiveKind::AllGather, "all-gather", &[Ring, HalvingDoubling, Direct, Hierarchical]),
    (CollectiveKind::Gather, "gather", &[Direct]),
    (CollectiveKind::Scatter, "scatter", &[Direct]),
    (CollectiveKind::Broadcast, "broadcast", &[Ring, Tree]),
    (CollectiveKind::AllToAll, "all-to-all", &[Direct, Ring]),
    (
        CollectiveKind::ReduceScatter,
        "reduce-scatter",
        &[Ring, HalvingDoubling, Direct, Hierarchical],
    ),
    (CollectiveKind::Barrier, "barrier", &[Dissemination]),
];

const ALGORITHMS: &[(CollectiveAlgorithm, &str)] = &[
    (Ring, "ring"),
    (Tree, "tree"),
    (DoubleBinaryTree, "double-binary-tree"),
    (HalvingDoubling, "halving-doubling"),
    (Direct, "direct"),
    (Hierarchical, "hierarchical"),
    (Dissemination, "dissemination"),
];

impl CollectiveKind {
    fn row(self) -> &'static (Self, &'static str, &'static [CollectiveAlgorithm]) {
        // Every kind has a row, which the tests check.
        KINDS.iter().find(|row| row.0 == self).unwrap_or(&KINDS[0])
    }
}

impl fmt::Display for CollectiveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().1)
    }
}

impl fmt::Display for CollectiveAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = ALGORITHMS.iter().find(|(algorithm, _)| algorithm == self);
        f.write_str(name.map_or("", |(_, name)| name))
    }
}

/// Algorithms of the collectives of a job, as a user writes them: `all-reduce=tree,all-gather=direct`.
/// A kind that is not named has its default.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CollectiveAlgorithms(Vec<(CollectiveKind, CollectiveAlgorithm)>);

impl CollectiveAlgorithms {
    /// Returns the algorithm of a kind.
    #[must_use]
    pub fn of(&self, kind: CollectiveKind) -> CollectiveAlgorithm {
        let named = self.0.iter().find(|(named, _)| *named == kind);
        named.map_or(kind.row().2[0], |(_, algorithm)| *algorithm)
    }

    /// Returns these algorithms, and those of `others` for the kinds that these do not name.
    #[must_use]
    pub fn or(mut self, others: &Self) -> Self {
        for &(kind, algorithm) in &others.0 {
            if !self.0.iter().any(|(named, _)| *named == kind) {
                self.0.push((kind, algorithm));
            }
        }
        self
    }
}

impl FromStr for CollectiveAlgorithms {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Vec::new();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let kinds = || KINDS.iter().map(|row| row.1).collect::<Vec<_>>().join(", ");
            let Some((kind, algorithm)) = word.split_once('=') else {
                return Err(format!(
                    "`{word}` is no choice: expected KIND=ALGORITHM, such as all-reduce=ring"
                ));
            };
            let Some((kind, name, allowed)) = KINDS.iter().find(|row| row.1 == kind) else {
                return Err(format!("`{kind}` is no collective: expected {}", kinds()));
            };
            let known = allowed.iter().find(|known| known.to_string() == algorithm);
            let Some(algorithm) = known else {
                let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
                return Err(format!(
                    "`{algorithm}` is no algorithm of {name}: expected {}",
                    allowed.join(", ")
                ));
            };
            if all.iter().any(|(named, _)| named == kind) {
                return Err(format!("{name} has two algorithms: expected one"));
            }
            all.push((*kind, *algorithm));
        }
        Ok(Self(all))
    }
}

/// Maximum number of blocks of a buffer, and of messages of a collective.
const MOST: usize = 1 << 23;

/// A message of a collective between two ranks of the group, which are named by their places in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Transfer {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) bytes: u64,
    /// Range in [`Plan::after`] of the messages for which this one waits.
    after: Range<u32>,
    /// Blocks of the buffer that the message carries.
    blocks: Range<u32>,
    /// True if the receiver adds the blocks to its own.
    pub(super) adds: bool,
}

/// The messages of a collective, each behind those for which it waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    pub(super) transfers: Vec<Transfer>,
    after: Vec<u32>,
    /// Length of each block.
    lengths: Vec<u64>,
    /// Blocks of each share.
    shares: Vec<Range<u32>>,
}

impl Plan {
    /// Returns the messages for which a message waits. All of them go to its sender.
    pub(super) fn after(&self, transfer: &Transfer) -> &[u32] {
        &self.after[transfer.after.start as usize..transfer.after.end as usize]
    }
}

/// A collective of a group: its kind, its algorithm, and its size.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Collective {
    pub(super) kind: CollectiveKind,
    pub(super) algorithm: CollectiveAlgorithm,
    /// Bytes that a rank gives: the whole buffer of all-reduce, reduce, reduce-scatter, all-to-all,
    /// broadcast and of the root of scatter; the share of a rank of all-gather and gather.
    pub(super) bytes: u64,
    /// Maximum number of bytes of a message; 0 for no limit.
    pub(super) chunk: u64,
    /// Host of each rank of the group, numbered from 0 in order of appearance.
    pub(super) hosts: Vec<u32>,
}

impl Collective {
    /// Returns the messages of the collective.
    ///
    /// # Errors
    /// Returns what the algorithm cannot do with this group or size, and what it can.
    pub(super) fn plan(&self) -> Result<Plan, String> {
        let ranks = self.hosts.len() as u32;
        let shares = match self.kind {
            CollectiveKind::Broadcast | CollectiveKind::Reduce => 1,
            CollectiveKind::AllReduce if self.algorithm == Tree => 1,
            CollectiveKind::AllReduce if self.algorithm == DoubleBinaryTree => 2,
            CollectiveKind::Barrier => 1,
            _ => ranks,
        };
        let bytes = match self.kind {
            CollectiveKind::AllGather | CollectiveKind::Gather => {
                u128::from(self.bytes) * u128::from(ranks)
            }
            CollectiveKind::Barrier => 1,
            _ => self.bytes.into(),
        };
        let mut planner = Planner::new(self, ranks, shares, bytes)?;
        if ranks < 2 {
            return Ok(planner.plan);
        }
        let all: Vec<u32> = (0..ranks).collect();
        match (self.kind, self.algorithm) {
            (CollectiveKind::Barrier, _) => planner.dissemination(ranks)?,
            (CollectiveKind::AllToAll, Ring) => planner.ring_all_to_all(ranks)?,
            (CollectiveKind::AllToAll, _) => planner.all_to_all(ranks)?,
            (CollectiveKind::Gather, _) => {
                for rank in 1..ranks {
                    let share = planner.share(rank);
                    planner.send(rank, 0, share, false)?;
                }
            }
            (CollectiveKind::Scatter, _) => {
                for rank in 1..ranks {
                    let share = planner.share(rank);
                    planner.send(0, rank, share, false)?;
                }
            }
            (CollectiveKind::Reduce, Tree) => planner.tree_reduce(ranks)?,
            (CollectiveKind::Broadcast, Tree) => planner.tree_broadcast(ranks)?,
            (CollectiveKind::AllReduce, Tree) => {
                planner.tree_reduce(ranks)?;
                planner.tree_broadcast(ranks)?;
            }
            (CollectiveKind::AllReduce, DoubleBinaryTree) => {
                planner.binary_tree(ranks, false)?;
                planner.binary_tree(ranks, true)?;
            }
            (CollectiveKind::Broadcast, _) => {
                for rank in 1..ranks {
                    planner.send(rank - 1, rank, planner.share(0), false)?;
                }
            }
            (CollectiveKind::Reduce, _) => {
                for rank in 1..ranks {
                    planner.send(rank, (rank + 1) % ranks, planner.share(0), true)?;
                }
            }
            (kind, algorithm) => {
                let reduces = kind != CollectiveKind::AllGather;
                let gathers = kind != CollectiveKind::ReduceScatter;
                match algorithm {
                    HalvingDoubling => planner.halving_doubling(ranks, reduces, gathers)?,
                    Direct => planner.direct(ranks, reduces, gathers)?,
                    Hierarchical => planner.hierarchical(&self.hosts, reduces, gathers)?,
                    _ => {
                        let shares: Vec<_> = all.iter().map(|&rank| planner.share(rank)).collect();
                        if reduces {
                            planner.ring_reduce(&all, &shares)?;
                        }
                        if gathers {
                            planner.ring_gather(&all, &shares)?;
                        }
                    }
                }
            }
        }
        Ok(planner.plan)
    }
}

/// Returns where part `part` of `parts` of `bytes` begins.
fn bound(bytes: u128, part: usize, parts: usize) -> u128 {
    bytes * part as u128 / parts as u128
}

/// A plan that is being made.
struct Planner {
    plan: Plan,
    chunk: u64,
    /// Latest entry in `entries` of each block that a rank has received; the key is rank and block.
    received: HashMap<(u32, u32), u32>,
    /// Messages that brought something into a block: the number of the message, and the entry of
    /// an earlier one that it added to (`NONE` for no other).
    entries: Vec<(u32, u32)>,
}

const NONE: u32 = u32::MAX;

impl Planner {
    fn new(collective: &Collective, ranks: u32, shares: u32, bytes: u128) -> Result<Self, String> {
        let places = places(collective);
        let chunk = collective.chunk;
        // Shares differ by a byte at most.
        let largest = bytes.div_ceil(u128::from(shares.max(1)));
        let each = if chunk == 0 { 1 } else { largest.div_ceil(chunk.into()).max(1) };
        let count = each.saturating_mul(shares.into());
        if count > MOST as u128 {
            return Err(format!(
                "a {} of {bytes} bytes has {count} messages of {chunk} bytes, expected {MOST} at most; choose a larger \
                 chunk",
                collective.kind
            ));
        }
        let (count, each) = (count as usize, each as usize);
        let mut lengths = Vec::with_capacity(count);
        for share in 0..shares as usize {
            let from = bound(bytes, share, shares as usize);
            let all = bound(bytes, share + 1, shares as usize) - from;
            for block in 0..each {
                let length = bound(all, block + 1, each) - bound(all, block, each);
                lengths.push(u64::try_from(length).map_err(|_| {
                    format!(
                        "a {} of {bytes} bytes: expected less than 2^64 in all",
                        collective.kind
                    )
                })?);
            }
        }
        let share = |place: u32| {
            let place = if shares == ranks {
                places.as_ref().map_or(place, |of| of[place as usize])
            } else {
                place
            };
            let first = place * each as u32;
            first..first + each as u32
        };
        let plan = Plan {
            transfers: Vec::new(),
            after: Vec::new(),
            lengths,
            shares: (0..shares).map(share).collect(),
        };
        Ok(Self { plan, chunk, received: HashMap::new(), entries: Vec::new() })
    }

    fn share(&self, rank: u32) -> Range<u32> {
        self.plan.shares[rank as usize].clone()
    }

    /// Adds the messages that carry these blocks.
    fn send(&mut self, from: u32, to: u32, blocks: Range<u32>, adds: bool) -> Result<(), String> {
        let mut first = blocks.start;
        while first < blocks.end {
            let (mut bytes, mut end) = (0u64, first);
            while end < blocks.end {
                let more = bytes.saturating_add(self.plan.lengths[end as usize]);
                if self.chunk > 0 && more > self.chunk && end > first {
                    break;
                }
                (bytes, end) = (more, end + 1);
            }
            if bytes > 0 {
                self.message(from, to, bytes, first..end, adds)?;
            }
            first = end;
        }
        Ok(())
    }

    fn message(
        &mut self,
        from: u32,
        to: u32,
        bytes: u64,
        blocks: Range<u32>,
        adds: bool,
    ) -> Result<(), String> {
        let number = self.post(from, to, bytes, blocks.clone(), adds)?;
        self.arrived(number, to, blocks, adds);
        Ok(())
    }

    /// Adds a message behind those that brought something into its blocks. Returns its number.
    fn post(
        &mut self,
        from: u32,
        to: u32,
        bytes: u64,
        blocks: Range<u32>,
        adds: bool,
    ) -> Result<u32, String> {
        let number = self.plan.transfers.len();
        if number == MOST {
            return Err(format!(
                "it has more than {MOST} messages, the most possible; choose a larger chunk or another algorithm"
            ));
        }
        let start = self.plan.after.len();
        let mut after = Vec::new();
        for block in blocks.clone() {
            let mut entry = self.received.get(&(from, block)).copied().unwrap_or(NONE);
            while let Some(&(before, next)) = self.entries.get(entry as usize) {
                after.push(before);
                entry = next;
            }
        }
        after.sort_unstable();
        after.dedup();
        self.plan.after.extend(after);
        let after = start as u32..self.plan.after.len() as u32;
        self.plan.transfers.push(Transfer { from, to, bytes, after, blocks, adds });
        Ok(number as u32)
    }

    /// Records that message `number` brings something into these blocks of rank `to`.
    fn arrived(&mut self, number: u32, to: u32, blocks: Range<u32>, adds: bool) {
        for block in blocks {
            let head = self.received.entry((to, block)).or_insert(NONE);
            self.entries.push((number, if adds { *head } else { NONE }));
            *head = self.entries.len() as u32 - 1;
        }
    }

    /// Adds a ring in which the share of each member ends at it, with the sum of all members.
    fn ring_reduce(&mut self, members: &[u32], shares: &[Range<u32>]) -> Result<(), String> {
        let count = members.len();
        for hop in 1..count {
            for (place, share) in shares.iter().enumerate() {
                let (from, to) = ((place + hop) % count, (place + hop + 1) % count);
                self.send(members[from], members[to], share.clone(), true)?;
            }
        }
        Ok(())
    }

    /// Adds a ring that brings the share of each member to all members.
    fn ring_gather(&mut self, members: &[u32], shares: &[Range<u32>]) -> Result<(), String> {
        let count = members.len();
        for hop in 1..count {
            for (place, share) in shares.iter().enumerate() {
                let (from, to) = ((place + hop - 1) % count, (place + hop) % count);
                self.send(members[from], members[to], share.clone(), false)?;
            }
        }
        Ok(())
    }

    fn halving_doubling(&mut self, ranks: u32, reduces: bool, gathers: bool) -> Result<(), String> {
        if !ranks.is_power_of_two() {
            return Err(format!(
                "halving-doubling among {ranks} ranks: expected a power of two; choose ring"
            ));
        }
        // Returns the blocks of the shares that agree with `rank` above bit `bit`.
        let range = |planner: &Self, rank: u32, bit: u32| {
            let first = rank >> bit << bit;
            planner.share(first).start..planner.share(first + (1 << bit) - 1).end
        };
        let bits = ranks.ilog2();
        if reduces {
            for bit in (0..bits).rev() {
                for rank in 0..ranks {
                    let to = rank ^ (1 << bit);
                    let blocks = range(self, to, bit);
                    self.send(rank, to, blocks, true)?;
                }
            }
        }
        if gathers {
            for bit in 0..bits {
                for rank in 0..ranks {
                    let blocks = range(self, rank, bit);
                    self.send(rank, rank ^ (1 << bit), blocks, false)?;
                }
            }
        }
        Ok(())
    }

    fn direct(&mut self, ranks: u32, reduces: bool, gathers: bool) -> Result<(), String> {
        for (wanted, adds) in [(reduces, true), (gathers, false)] {
            for step in 1..ranks {
                for rank in 0..ranks {
                    let to = (rank + step) % ranks;
                    let share = self.share(if adds { to } else { rank });
                    if wanted {
                        self.send(rank, to, share, adds)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn all_to_all(&mut self, ranks: u32) -> Result<(), String> {
        // What a rank sends it did not receive, so that no message waits for another.
        for step in 1..ranks {
            for rank in 0..ranks {
                let to = (rank + step) % ranks;
                let share = self.share(to);
                self.send(rank, to, share, false)?;
                self.received.clear();
            }
        }
        Ok(())
    }

    fn ring_all_to_all(&mut self, ranks: u32) -> Result<(), String> {
        // Ranks nearer to the receiver send first, so that no rank has received the share of another
        // for it before it sends its own.
        for step in 1..ranks {
            for rank in 0..ranks {
                let share = self.share((rank + step) % ranks);
                for hop in rank..rank + step {
                    self.send(hop % ranks, (hop + 1) % ranks, share.clone(), false)?;
                }
            }
        }
        Ok(())
    }

    fn tree_reduce(&mut self, ranks: u32) -> Result<(), String> {
        let mut bit = 1;
        while bit < ranks {
            for rank in (bit..ranks).step_by(2 * bit as usize) {
                self.send(rank, rank - bit, self.share(0), true)?;
            }
            bit *= 2;
        }
        Ok(())
    }

    fn tree_broadcast(&mut self, ranks: u32) -> Result<(), String> {
        let mut bit = ranks.next_power_of_two() / 2;
        while bit > 0 {
            for rank in (bit..ranks).step_by(2 * bit as usize) {
                self.send(rank - bit, rank, self.share(0), false)?;
            }
            bit /= 2;
        }
        Ok(())
    }

    fn binary_tree(&mut self, ranks: u32, second: bool) -> Result<(), String> {
        let share = self.share(second.into());
        let depth = |rank: u32| {
            core::iter::successors(Some(rank), |&rank| parent(rank, ranks, second)).count()
        };
        let mut order: Vec<(usize, u32)> = (0..ranks).map(|rank| (depth(rank), rank)).collect();
        order.sort_unstable();
        for &(_, rank) in order.iter().rev() {
            if let Some(above) = parent(rank, ranks, second) {
                self.send(rank, above, share.clone(), true)?;
            }
        }
        for &(_, rank) in &order {
            if let Some(above) = parent(rank, ranks, second) {
                self.send(above, rank, share.clone(), false)?;
            }
        }
        Ok(())
    }

    fn dissemination(&mut self, ranks: u32) -> Result<(), String> {
        let mut step = 1;
        while step < ranks {
            // A rank passes on in the next round what it receives in this one.
            let first = self.plan.transfers.len() as u32;
            for rank in 0..ranks {
                self.post(rank, (rank + step) % ranks, 1, 0..1, true)?;
            }
            for rank in 0..ranks {
                self.arrived(first + rank, (rank + step) % ranks, 0..1, true);
            }
            step *= 2;
        }
        Ok(())
    }

    /// Adds a ring within each host and rings between the ranks of equal place. Hosts have equally
    /// many ranks.
    fn hierarchical(&mut self, hosts: &[u32], reduces: bool, gathers: bool) -> Result<(), String> {
        let members = members(hosts);
        let each = members[0].len();
        if let Some(other) = members.iter().find(|other| other.len() != each) {
            return Err(format!(
                "hierarchical over hosts of {each} and of {} ranks of a group: expected as many on each; choose ring",
                other.len()
            ));
        }
        // The shares of the ranks of one place on all hosts are consecutive blocks: a bundle.
        let bundle = |planner: &Self, place: usize| {
            let last = members[members.len() - 1][place];
            planner.share(members[0][place]).start..planner.share(last).end
        };
        let bundles: Vec<_> = (0..each).map(|place| bundle(self, place)).collect();
        if reduces {
            for host in &members {
                self.ring_reduce(host, &bundles)?;
            }
        }
        for place in 0..each {
            let across: Vec<u32> = members.iter().map(|host| host[place]).collect();
            let shares: Vec<_> = across.iter().map(|&rank| self.share(rank)).collect();
            if reduces {
                self.ring_reduce(&across, &shares)?;
            }
            if gathers {
                self.ring_gather(&across, &shares)?;
            }
        }
        if gathers {
            for host in &members {
                self.ring_gather(host, &bundles)?;
            }
        }
        Ok(())
    }
}

/// Returns the ranks of each host. There is one at least.
fn members(hosts: &[u32]) -> Vec<Vec<u32>> {
    let count = hosts.iter().max().map_or(1, |last| *last as usize + 1);
    let mut members = vec![Vec::new(); count];
    for (rank, &host) in (0..).zip(hosts) {
        members[host as usize].push(rank);
    }
    members
}

/// Returns the place of the share of each rank in the buffer, if that is not the order of ranks:
/// hierarchical collectives have the shares of ranks of equal place beside each other.
fn places(collective: &Collective) -> Option<Vec<u32>> {
    if collective.algorithm != Hierarchical {
        return None;
    }
    let members = members(&collective.hosts);
    let each = members.iter().map(Vec::len).max().unwrap_or(0);
    let mut places = vec![0; collective.hosts.len()];
    let in_order =
        (0..each).flat_map(|place| members.iter().filter_map(move |host| host.get(place)));
    for (place, &rank) in (0..).zip(in_order) {
        places[rank as usize] = place;
    }
    Some(places)
}

#[cfg(test)]
mod tests;
