use super::*;
use proptest::prelude::*;
use squall_base::Rng;

/// Number of times that the buffer of each rank is in a block.
type Sums = Vec<u32>;

/// Executes a plan in an order that its dependencies allow: a message takes the blocks along that
/// its sender has when it leaves. Returns the blocks of each rank.
fn execute(plan: &Plan, mut state: Vec<Vec<Sums>>, rng: &mut Rng) -> Vec<Vec<Sums>> {
    let count = plan.transfers.len();
    let mut missing: Vec<usize> =
        plan.transfers.iter().map(|transfer| plan.after(transfer).len()).collect();
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (index, transfer) in plan.transfers.iter().enumerate() {
        for &before in plan.after(transfer) {
            let other = plan.transfers[before as usize].to;
            assert_eq!(transfer.from, other, "it waits for another rank");
            next[before as usize].push(index);
        }
    }
    let mut ready: Vec<(usize, Option<Vec<Sums>>)> =
        (0..count).filter(|&index| missing[index] == 0).map(|index| (index, None)).collect();
    let mut arrived = 0;
    while !ready.is_empty() {
        let (index, carried) = ready.swap_remove(rng.below(ready.len() as u32) as usize);
        let transfer = &plan.transfers[index];
        let blocks = transfer.blocks.start as usize..transfer.blocks.end as usize;
        let Some(carried) = carried else {
            let taken = state[transfer.from as usize][blocks].to_vec();
            ready.push((index, Some(taken)));
            continue;
        };
        for (block, carried) in blocks.zip(carried) {
            let own = &mut state[transfer.to as usize][block];
            match transfer.adds {
                true => own.iter_mut().zip(carried).for_each(|(own, carried)| *own += carried),
                false => *own = carried,
            }
        }
        arrived += 1;
        for &next in &next[index] {
            missing[next] -= 1;
            if missing[next] == 0 {
                ready.push((next, None));
            }
        }
    }
    assert_eq!(arrived, count, "messages that wait for each other");
    state
}

/// Checks that a collective brings every contribution exactly once to where it belongs.
fn check(collective: &Collective, seed: u64) -> Result<(), String> {
    let plan = collective.plan()?;
    let ranks = collective.hosts.len();
    for transfer in &plan.transfers {
        let blocks = transfer.blocks.start as usize..transfer.blocks.end as usize;
        let several = blocks.len() > 1;
        assert_eq!(plan.lengths[blocks].iter().sum::<u64>(), transfer.bytes);
        assert!(transfer.bytes > 0 && transfer.from != transfer.to);
        // A limit that is shorter than a block holds for the block.
        assert!(!several || collective.chunk == 0 || transfer.bytes <= collective.chunk);
    }
    let unit = |of: usize| (0..ranks).map(|rank| u32::from(rank == of)).collect::<Sums>();
    let share_of = |block: usize| {
        plan.shares.iter().position(|share| share.contains(&(block as u32))).expect("in a share")
    };
    let kind = collective.kind;
    if kind == CollectiveKind::AllToAll {
        // Every rank receives its share of the buffer of every other, from it or passed on.
        let mut origins: Vec<u32> = Vec::new();
        for transfer in &plan.transfers {
            let after = plan.after(transfer).iter().map(|&before| &plan.transfers[before as usize]);
            for before in after {
                assert!(before.to == transfer.from && before.blocks.start <= transfer.blocks.start);
                assert!(before.blocks.end >= transfer.blocks.end);
            }
            let before = plan.after(transfer).first();
            origins.push(before.map_or(transfer.from, |&before| origins[before as usize]));
        }
        for to in 0..ranks as u32 {
            for from in (0..ranks as u32).filter(|from| *from != to) {
                let received = plan.transfers.iter().zip(&origins);
                let received = received.filter(|(of, origin)| (**origin, of.to) == (from, to));
                let received: Vec<u32> = received.flat_map(|(of, _)| of.blocks.clone()).collect();
                let share = plan.shares[to as usize].clone();
                let mut all = share.filter(|block| plan.lengths[*block as usize] > 0);
                assert!(all.all(|block| received.contains(&block)), "{collective:?}");
            }
        }
        return Ok(());
    }
    let own = |rank: usize, block: usize| match kind {
        CollectiveKind::AllGather | CollectiveKind::Gather if share_of(block) != rank => {
            vec![0; ranks]
        }
        CollectiveKind::Broadcast | CollectiveKind::Scatter if rank != 0 => vec![0; ranks],
        _ => unit(rank),
    };
    let blocks = plan.lengths.len();
    let state = (0..ranks).map(|rank| (0..blocks).map(|block| own(rank, block)).collect());
    let state = execute(&plan, state.collect(), &mut Rng::new(seed));
    for (rank, state) in state.iter().enumerate() {
        for (block, sums) in state.iter().enumerate().filter(|(block, _)| plan.lengths[*block] > 0)
        {
            let share = share_of(block);
            let expected = match kind {
                CollectiveKind::Barrier => {
                    assert!(sums.iter().all(|&sum| sum > 0), "{rank} does not know of all");
                    continue;
                }
                CollectiveKind::Reduce if rank != 0 => continue,
                CollectiveKind::ReduceScatter | CollectiveKind::Scatter if share != rank => {
                    continue;
                }
                CollectiveKind::Gather if rank != 0 => continue,
                CollectiveKind::AllReduce
                | CollectiveKind::Reduce
                | CollectiveKind::ReduceScatter => vec![1; ranks],
                CollectiveKind::AllGather | CollectiveKind::Gather => unit(share),
                _ => unit(0),
            };
            assert_eq!(*sums, expected, "{collective:?}: block {block} of rank {rank}");
        }
    }
    Ok(())
}

proptest! {
    /// Every rank ends with every contribution exactly once, in every order of events.
    #[test]
    fn collectives_bring_every_contribution_once(
        (ranks, on_host, row) in (1u32..17, 1u32..5, 0..KINDS.len()),
        (bytes, pieces) in (0u64..3000, 0u64..5),
        seed in any::<u64>(),
    ) {
        let (kind, _, algorithms) = KINDS[row];
        // A limit that divides a share into so many messages; none for 0.
        let share = match kind {
            CollectiveKind::AllReduce | CollectiveKind::ReduceScatter => bytes / u64::from(ranks),
            _ => bytes,
        };
        let chunk = share.checked_div(pieces).map_or(0, |chunk| chunk.max(1));
        let hosts: Vec<u32> = (0..ranks).map(|rank| rank / on_host).collect();
        for &algorithm in algorithms {
            let collective = Collective { kind, algorithm, bytes, chunk, hosts: hosts.clone() };
            if let Err(what) = check(&collective, seed) {
                let refused = match algorithm {
                    HalvingDoubling => !ranks.is_power_of_two() && what.contains("a power of two"),
                    Hierarchical => ranks > on_host && ranks % on_host > 0 && what.contains("as many on each"),
                    _ => false,
                };
                prop_assert!(refused, "{collective:?}: {what}");
            }
        }
    }
}

/// A rank sends so many bytes in a bandwidth-optimal collective (Patarasuk and Yuan, 2009).
#[test]
fn ranks_send_as_many_bytes_as_the_algorithm_needs() {
    let sent = |kind, algorithm, bytes, hosts: &[u32]| {
        let collective = Collective { kind, algorithm, bytes, chunk: 0, hosts: hosts.to_vec() };
        let plan = collective.plan().expect("it fits");
        let of = |of: &&Transfer| of.from == 1;
        plan.transfers.iter().filter(of).map(|transfer| transfer.bytes).sum::<u64>()
    };
    let eight = [0, 0, 0, 0, 1, 1, 1, 1];
    for algorithm in [Ring, HalvingDoubling, Direct, Hierarchical] {
        assert_eq!(sent(CollectiveKind::AllReduce, algorithm, 8000, &eight), 2 * 7000);
        assert_eq!(sent(CollectiveKind::ReduceScatter, algorithm, 8000, &eight), 7000);
        assert_eq!(sent(CollectiveKind::AllGather, algorithm, 1000, &eight), 7000);
    }
    assert_eq!(sent(CollectiveKind::AllToAll, Direct, 8000, &eight), 7000);
    // A share for the rank that is k further passes k links of the ring, and is sent on k times.
    assert_eq!(sent(CollectiveKind::AllToAll, Ring, 8000, &eight), 1000 * 28);
    // Between hosts, hierarchical all-reduce sends what the ranks of a host share.
    let hierarchical = Collective {
        kind: CollectiveKind::AllReduce,
        algorithm: Hierarchical,
        bytes: 8000,
        chunk: 0,
        hosts: eight.to_vec(),
    };
    let plan = hierarchical.plan().expect("it fits");
    let across =
        plan.transfers.iter().filter(|of| eight[of.from as usize] != eight[of.to as usize]);
    assert_eq!(across.map(|of| of.bytes).sum::<u64>(), 2 * 8000);
}

#[test]
fn choices_are_written_as_kind_and_algorithm() {
    let read = |text: &str| text.parse::<CollectiveAlgorithms>();
    let chosen = read("all-reduce=tree, broadcast=tree").expect("known");
    assert_eq!(chosen.of(CollectiveKind::AllReduce), Tree);
    assert_eq!(chosen.of(CollectiveKind::AllGather), Ring, "the default");
    assert_eq!(read("").expect("none").of(CollectiveKind::Barrier), Dissemination);
    let refused = |text: &str| read(text).expect_err(text);
    assert!(refused("tree").contains("expected KIND=ALGORITHM"));
    assert!(refused("reduce-all=tree").contains("expected all-reduce, reduce, all-gather"));
    let message = refused("all-to-all=tree");
    assert_eq!(message, "`tree` is no algorithm of all-to-all: expected direct, ring");
    let both = read("all-to-all=ring")
        .expect("known")
        .or(&read("all-to-all=direct,reduce=tree").expect("known"));
    assert_eq!(both.of(CollectiveKind::AllToAll), Ring);
    assert_eq!(both.of(CollectiveKind::Reduce), Tree);
    assert!(refused("reduce=tree,reduce=ring").contains("two algorithms"));
}

#[test]
fn sizes_that_are_too_large_are_refused() {
    let of = |bytes, chunk, ranks: u32| Collective {
        kind: CollectiveKind::AllGather,
        algorithm: Ring,
        bytes,
        chunk,
        hosts: (0..ranks).collect(),
    };
    assert!(of(1 << 40, 1, 4).plan().expect_err("blocks").contains("choose a larger chunk"));
    assert!(of(u64::MAX, 0, 4).plan().is_ok(), "shares of less than 2^64 bytes");
    assert!(of(1 << 30, 1 << 10, 4096).plan().is_err(), "2^32 blocks");
}
