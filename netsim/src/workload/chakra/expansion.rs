//! Turns the messages of a collective into operations of its ranks.

use super::super::collectives::Plan;
use super::super::schedule::{Kind, Names, Operation, Placement, Schedule, Wait, matching};
use super::ChakraOptions;
use super::system::CollectiveSettings;
use crate::Picos;

/// An operation or a dependency of a collective. Ranks are indices within the group.
pub(super) enum Step {
    /// An operation of a rank, which gets an index.
    Operation(u32, Kind),
    /// The operation begins when the rank begins its participation.
    AfterBegin { operation: u32, rank: u32 },
    /// The operation begins when operation `before` has ended.
    After { operation: u32, before: u32 },
    /// The participation of the rank ends when the operation has ended.
    BeforeEnd { operation: u32, rank: u32 },
    /// The rank sends and receives nothing.
    Idle { rank: u32 },
}

/// Turns the messages of a collective into operations, with tags from `tag` on. `add` returns the
/// index of an operation.
pub(super) fn add_messages(
    plan: &Plan,
    ranks: u32,
    tag: u64,
    settings: &CollectiveSettings,
    add: &mut dyn FnMut(Step) -> Result<u32, String>,
) -> Result<(), String> {
    let mut receives = Vec::with_capacity(plan.transfers.len());
    let mut is_forwarded = vec![false; plan.transfers.len()];
    let mut is_busy = vec![false; ranks as usize];
    for (tag, transfer) in (tag..).zip(&plan.transfers) {
        let (from, to, bytes) = (transfer.from, transfer.to, transfer.bytes);
        let send = add(Step::Operation(from, Kind::Send { to, bytes, tag }))?;
        let kind = Kind::Receive { from: Some(from), tag: Some(tag) };
        let receive = add(Step::Operation(to, kind))?;
        let after = plan.after(transfer);
        for &before in after {
            is_forwarded[before as usize] = true;
            add(Step::After { operation: send, before: receives[before as usize] })?;
        }
        if after.is_empty() {
            add(Step::AfterBegin { operation: send, rank: from })?;
        }
        add(Step::AfterBegin { operation: receive, rank: to })?;
        add(Step::BeforeEnd { operation: send, rank: from })?;
        let time = settings.delay(bytes, transfer.adds);
        receives.push(match time {
            Picos::ZERO => receive,
            time => {
                let kind = Kind::Delay { time, exchanges: false };
                let used = add(Step::Operation(to, kind))?;
                add(Step::After { operation: used, before: receive })?;
                used
            }
        });
        (is_busy[from as usize], is_busy[to as usize]) = (true, true);
    }
    // A send waits for the receives that it forwards, so only receives that are not forwarded must
    // still end before the rank does.
    for (index, transfer) in plan.transfers.iter().enumerate().filter(|(i, _)| !is_forwarded[*i]) {
        add(Step::BeforeEnd { operation: receives[index], rank: transfer.to })?;
    }
    for rank in (0..ranks).filter(|&rank| !is_busy[rank as usize]) {
        add(Step::Idle { rank })?;
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
    add_messages(plan, ranks, 0, &options.settings, &mut |step| {
        match step {
            Step::Operation(rank, kind) => {
                operations.push(Operation { rank, place: 0, kind });
                return Ok(operations.len() as u32 - 1);
            }
            Step::After { operation, before } => {
                waits.push(Wait { of: operation, before, started: false });
            }
            Step::AfterBegin { .. } | Step::BeforeEnd { .. } | Step::Idle { .. } => {}
        }
        Ok(0)
    })?;
    let names = Names::Numbers(String::new());
    let placement = Placement { ranks_per_host: ranks, ..options.placement };
    let schedule = Schedule { ranks, operations, waits, names };
    matching::run(&schedule, &placement).map(|matched| matched.lasts).map_err(|error| error.what)
}
