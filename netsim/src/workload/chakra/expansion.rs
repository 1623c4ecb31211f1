//! Turns the messages of a collective into operations of its ranks.

use super::super::collectives::Plan;
use super::super::schedule::{Kind, Names, Operation, Placement, Schedule, Wait, matching};
use super::ChakraOptions;
use super::system::CollectivePace;
use crate::Picos;

/// An operation or a dependency of a collective. Ranks are places in the group.
pub(super) enum Step {
    /// An operation of a rank, which gets an index.
    Operation(u32, Kind),
    /// The operation begins when the rank begins its part.
    BehindBegin(u32, u32),
    /// The first operation begins when the second has ended.
    Behind(u32, u32),
    /// The part of the rank ends when the operation has ended.
    BeforeEnd(u32, u32),
    /// The rank sends and receives nothing.
    Idle(u32),
}

/// Turns the messages of a collective into operations, with tags from `tag` on. `add` returns the
/// index of an operation.
pub(super) fn add_messages(
    plan: &Plan,
    ranks: u32,
    tag: u64,
    pace: &CollectivePace,
    add: &mut dyn FnMut(Step) -> Result<u32, String>,
) -> Result<(), String> {
    let mut receives = Vec::with_capacity(plan.transfers.len());
    let mut is_passed_on = vec![false; plan.transfers.len()];
    let mut is_busy = vec![false; ranks as usize];
    for (tag, transfer) in (tag..).zip(&plan.transfers) {
        let (from, to, bytes) = (transfer.from, transfer.to, transfer.bytes);
        let send = add(Step::Operation(from, Kind::Send { to, bytes, tag }))?;
        let kind = Kind::Receive { from: Some(from), tag: Some(tag) };
        let receive = add(Step::Operation(to, kind))?;
        let after = plan.after(transfer);
        for &before in after {
            is_passed_on[before as usize] = true;
            add(Step::Behind(send, receives[before as usize]))?;
        }
        if after.is_empty() {
            add(Step::BehindBegin(send, from))?;
        }
        add(Step::BehindBegin(receive, to))?;
        add(Step::BeforeEnd(send, from))?;
        let time = pace.delay(bytes, transfer.adds);
        receives.push(match time {
            Picos::ZERO => receive,
            time => {
                let kind = Kind::Delay { time, exchanges: false };
                let used = add(Step::Operation(to, kind))?;
                add(Step::Behind(used, receive))?;
                used
            }
        });
        (is_busy[from as usize], is_busy[to as usize]) = (true, true);
    }
    // A rank that has passed on what it received has ended its receive.
    for (index, transfer) in plan.transfers.iter().enumerate().filter(|(i, _)| !is_passed_on[*i]) {
        add(Step::BeforeEnd(receives[index], transfer.to))?;
    }
    for rank in (0..ranks).filter(|&rank| !is_busy[rank as usize]) {
        add(Step::Idle(rank))?;
    }
    Ok(())
}

/// Returns the time of a collective among ranks of one host that begin it together.
pub(super) fn time_within_host(
    plan: &Plan,
    ranks: u32,
    options: &ChakraOptions,
) -> Result<Picos, String> {
    let (mut operations, mut waits) = (Vec::new(), Vec::new());
    add_messages(plan, ranks, 0, &options.pace, &mut |step| {
        match step {
            Step::Operation(rank, kind) => {
                operations.push(Operation { rank, place: 0, kind });
                return Ok(operations.len() as u32 - 1);
            }
            Step::Behind(of, before) => waits.push(Wait { of, before, started: false }),
            Step::BehindBegin(..) | Step::BeforeEnd(..) | Step::Idle(_) => {}
        }
        Ok(0)
    })?;
    let names = Names::Numbers(String::new());
    let placement = Placement { ranks_per_host: ranks, ..options.placement };
    let schedule = Schedule { ranks, operations, waits, names };
    matching::run(&schedule, &placement).map(|matched| matched.lasts).map_err(|error| error.what)
}
