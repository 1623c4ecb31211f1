//! All-reduce as messages with their dependencies. The reduction itself takes no time.

use super::builder::{Builder, refuse};
use super::spec::Algorithm;
use super::{Start, TriggerKind, WorkloadError};

/// Adds an all-reduce of `bytes` at each of `ranks`, in messages of at most `chunk` bytes.
pub(super) fn all_reduce(
    to: &mut Builder,
    ranks: u32,
    algorithm: Algorithm,
    bytes: u64,
    chunk: u64,
) -> Result<(), WorkloadError> {
    match algorithm {
        Algorithm::Ring => ring(to, ranks, bytes, chunk),
        Algorithm::HalvingDoubling => return halving_doubling(to, ranks, bytes, chunk),
        Algorithm::DoubleBinaryTree => double_binary_tree(to, ranks, bytes, chunk),
    }
    Ok(())
}

/// Returns the lengths of the messages that carry `bytes`.
fn messages(bytes: u64, chunk: u64) -> impl Iterator<Item = u64> {
    let full = bytes / chunk;
    let rest = bytes % chunk;
    (0..full).map(move |_| chunk).chain((rest > 0).then_some(rest))
}

/// Adds a ring all-reduce. Segment `s` starts at rank `s` and travels round the ring twice except
/// for one hop: after `ranks - 1` hops it is the sum, and after as many more every rank has it. Its
/// messages travel independently.
fn ring(to: &mut Builder, ranks: u32, bytes: u64, chunk: u64) {
    let hops = 2 * (ranks - 1);
    let share = (bytes / u64::from(ranks)).max(1);
    // The outer loop is over hops, so that messages of early hops come first between each pair.
    let pieces = messages(share, chunk).count();
    let mut arrived: Vec<Option<u32>> = vec![None; pieces * ranks as usize];
    for hop in 0..hops {
        for segment in 0..ranks {
            let src = (segment + hop) % ranks;
            for (piece, length) in messages(share, chunk).enumerate() {
                let before = &mut arrived[segment as usize * pieces + piece];
                let start = before.map_or(Start::At(0), Start::Trigger);
                let flow = to.flow(src, (src + 1) % ranks, length, start);
                if hop + 1 < hops {
                    let trigger = to.trigger(TriggerKind::OneShot);
                    to.on_received(flow, trigger);
                    *before = Some(trigger);
                }
            }
        }
    }
}

/// Adds a halving-doubling all-reduce. Step `k` of halving exchanges half of the remaining data
/// with the rank that differs in bit `k`; doubling is the same steps backwards. A rank's step
/// starts when all messages of its previous step have arrived.
fn halving_doubling(
    to: &mut Builder,
    ranks: u32,
    bytes: u64,
    chunk: u64,
) -> Result<(), WorkloadError> {
    if !ranks.is_power_of_two() {
        return Err(refuse("ranks", &ranks, "a power of two for halving-doubling"));
    }
    let bits = ranks.ilog2();
    let halving = (0..bits).map(|bit| (bit, bytes >> (bit + 1)));
    let steps: Vec<(u32, u64)> = halving.clone().chain(halving.rev()).collect();
    let mut arrived: Vec<Option<u32>> = vec![None; ranks as usize];
    for (step, &(bit, half)) in steps.iter().enumerate() {
        let half = half.max(1);
        let count = u32::try_from(messages(half, chunk).count()).unwrap_or(u32::MAX);
        let last = step + 1 == steps.len();
        let next: Vec<Option<u32>> =
            (0..ranks).map(|_| (!last).then(|| to.trigger(TriggerKind::Barrier(count)))).collect();
        for src in 0..ranks {
            let dst = src ^ (1 << bit);
            let start = arrived[src as usize].map_or(Start::At(0), Start::Trigger);
            for length in messages(half, chunk) {
                let flow = to.flow(src, dst, length, start);
                if let Some(next) = next[dst as usize] {
                    to.on_received(flow, next);
                }
            }
        }
        arrived = next;
    }
    Ok(())
}

/// Adds a double-binary-tree all-reduce. Each tree reduces its half to its root and broadcasts it
/// back, message by message.
fn double_binary_tree(to: &mut Builder, ranks: u32, bytes: u64, chunk: u64) {
    for (second, half) in [(false, bytes - bytes / 2), (true, bytes / 2)] {
        if half > 0 {
            tree(to, ranks, second, half, chunk);
        }
    }
}

fn tree(to: &mut Builder, ranks: u32, second: bool, bytes: u64, chunk: u64) {
    let parents: Vec<Option<u32>> = (0..ranks).map(|rank| parent(rank, ranks, second)).collect();
    let children = |of: u32| {
        (0u32..).zip(&parents).filter(move |(_, parent)| **parent == Some(of)).map(|(rank, _)| rank)
    };
    for length in messages(bytes, chunk) {
        // A rank waits for the sums of its children on the way up, and for its parent's sum on the
        // way down. At the root, the way up ends and the way down begins.
        let reduced: Vec<Option<u32>> = (0..ranks)
            .map(|rank| u32::try_from(children(rank).count()).unwrap_or(u32::MAX))
            .map(|count| (count > 0).then(|| to.trigger(TriggerKind::Barrier(count))))
            .collect();
        let got: Vec<Option<u32>> = (0..ranks)
            .map(|rank| match (parents[rank as usize], reduced[rank as usize]) {
                (None, at_root) => at_root,
                (Some(_), Some(_)) => Some(to.trigger(TriggerKind::OneShot)),
                (Some(_), None) => None,
            })
            .collect();
        for (rank, &above) in (0u32..).zip(&parents) {
            let Some(above) = above else { continue };
            let index = rank as usize;
            let start = reduced[index].map_or(Start::At(0), Start::Trigger);
            let flow = to.flow(rank, above, length, start);
            if let Some(trigger) = reduced[above as usize] {
                to.on_received(flow, trigger);
            }
            let start = got[above as usize].map_or(Start::At(0), Start::Trigger);
            let flow = to.flow(above, rank, length, start);
            if let Some(trigger) = got[index] {
                to.on_received(flow, trigger);
            }
        }
    }
}

/// Returns the parent of a rank in the first or second tree; `None` for its root.
///
/// The first tree is an in-order tree of the ranks 1, 2, .. below rank 0: the parent of a rank
/// whose lowest set bit is `b` is the neighbour at distance `b` whose lowest set bit is `2b`, or
/// the other neighbour where that is beyond the end. Odd ranks are leaves. The second tree is the
/// first one mirrored (even number of ranks) or moved by one (odd), so that the leaves of one are
/// the inner ranks of the other.
pub(super) fn parent(rank: u32, ranks: u32, second: bool) -> Option<u32> {
    let mapped = match (second, ranks.is_multiple_of(2)) {
        (false, _) => rank,
        (true, true) => ranks - 1 - rank,
        (true, false) => (rank + ranks - 1) % ranks,
    };
    if mapped == 0 {
        return None;
    }
    let bit = 1 << mapped.trailing_zeros();
    let upper = (mapped ^ bit) | (bit << 1);
    let above = if upper < ranks { upper } else { mapped ^ bit };
    Some(match (second, ranks.is_multiple_of(2)) {
        (false, _) => above,
        (true, true) => ranks - 1 - above,
        (true, false) => (above + 1) % ranks,
    })
}
