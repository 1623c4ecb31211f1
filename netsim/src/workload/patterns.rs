//! Generators of permutation, incast, outcast-incast and all-to-all.

use squall_base::Rng;

use super::builder::{Builder, refuse};
use super::spec::shuffle;
use super::{Start, TriggerKind, WorkloadError};

const NOW: Start = Start::At(0);

/// Adds a permutation: every rank sends to one other of another group, `parallel` times.
pub(super) fn permutation(
    to: &mut Builder,
    groups: &[u32],
    bytes: u64,
    parallel: u32,
    larger: Option<u64>,
    rng: &mut Rng,
) -> Result<(), WorkloadError> {
    if parallel == 0 {
        return Err(refuse("parallel", &parallel, "one at least"));
    }
    for round in 0..parallel {
        let receivers = derange(groups, rng)?;
        for (src, &dst) in (0u32..).zip(&receivers) {
            let first = src == 0 && round == 0;
            to.flow(src, dst, larger.filter(|_| first).unwrap_or(bytes), NOW);
        }
    }
    Ok(())
}

/// Returns a random permutation in which no rank sends into its own group. `groups[rank]` is the
/// group of a rank.
fn derange(groups: &[u32], rng: &mut Rng) -> Result<Vec<u32>, WorkloadError> {
    let ranks = u32::try_from(groups.len()).unwrap_or(u32::MAX);
    let mut receivers: Vec<u32> = (0..ranks).collect();
    shuffle(&mut receivers, rng);
    let bad = |rank: usize, receiver: u32| groups[rank] == groups[receiver as usize];
    // The loop swaps each bad receiver with a partner that makes both good. The partner exists
    // unless one group holds more than half of the ranks. A random start keeps the choice unbiased
    // enough.
    for rank in 0..groups.len() {
        if !bad(rank, receivers[rank]) {
            continue;
        }
        let offset = rng.below(ranks) as usize;
        let partner = (0..groups.len())
            .map(|step| (offset + step) % groups.len())
            .find(|&other| !bad(rank, receivers[other]) && !bad(other, receivers[rank]));
        match partner {
            Some(other) => receivers.swap(rank, other),
            None => {
                let given = format!("{ranks} ranks");
                let allowed = "no rack or pod may hold more than half of the ranks of a \
                               permutation between racks or pods";
                return Err(refuse("apart", &given, allowed));
            }
        }
    }
    Ok(receivers)
}

/// Adds an incast: `senders` random ranks send to one other.
pub(super) fn incast(
    to: &mut Builder,
    ranks: u32,
    senders: u32,
    bytes: u64,
    larger: Option<u64>,
    rng: &mut Rng,
) -> Result<(), WorkloadError> {
    if senders == 0 || senders >= ranks {
        return Err(refuse("senders", &senders, format!("1 to {}", ranks - 1)));
    }
    let mut order: Vec<u32> = (0..ranks).collect();
    shuffle(&mut order, rng);
    for index in 1..=senders as usize {
        let bytes = larger.filter(|_| index == 1).unwrap_or(bytes);
        to.flow(order[index], order[0], bytes, NOW);
    }
    Ok(())
}

/// Adds an outcast-incast: one rank sends to many, while many send to the first of them.
pub(super) fn outcast_incast(
    to: &mut Builder,
    ranks: u32,
    outcast: u32,
    incast: u32,
    bytes: u64,
    rng: &mut Rng,
) -> Result<(), WorkloadError> {
    let needed = outcast.saturating_add(incast);
    if outcast == 0 || incast == 0 || needed > ranks {
        let given = format!("{outcast} + {incast}");
        let allowed = format!("each at least 1, together at most {ranks}, the number of ranks");
        return Err(refuse("outcast + incast", &given, allowed));
    }
    let mut order: Vec<u32> = (0..ranks).collect();
    shuffle(&mut order, rng);
    let (source, receivers) = (order[0], &order[1..=outcast as usize]);
    for &receiver in receivers {
        to.flow(source, receiver, bytes, NOW);
    }
    for &sender in &order[outcast as usize + 1..needed as usize] {
        to.flow(sender, receivers[0], bytes, NOW);
    }
    Ok(())
}

/// Adds an all-to-all: every rank sends to every other, with `window` flows of a sender at a time.
pub(super) fn all_to_all(
    to: &mut Builder,
    ranks: u32,
    bytes: u64,
    window: u32,
) -> Result<(), WorkloadError> {
    if window == 0 || window >= ranks {
        return Err(refuse("window", &window, format!("1 to {}", ranks - 1)));
    }
    for src in 0..ranks {
        let next = to.trigger(TriggerKind::MultiShot);
        for step in 1..ranks {
            let start = if step <= window { NOW } else { Start::Trigger(next) };
            let flow = to.flow(src, (src + step) % ranks, bytes, start);
            // The flows of the last window start no other flow.
            if step + window < ranks {
                to.on_sent(flow, next);
            }
        }
    }
    Ok(())
}
