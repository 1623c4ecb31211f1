//! What targets of one-sided operations and of messages learn, and when: remote CQ data come once, with the value and
//! the length of their write, and when all its bytes are in place; and nothing comes before what must come before it.

use std::collections::HashMap;

use squall_engine::{Completion, OpKind};

use super::Finding;
use super::application::{Application, LIFE, Op, Region, What, content};
use super::judge;
use crate::world::World;

/// The end of a history: remote CQ data at targets whose completions are `done` are those of the writes of `senders`, once
/// each. `whole` when no process has ended.
pub(super) fn reported<'a>(
    done: impl Iterator<Item = &'a Completion>,
    senders: &[&Application],
    whole: bool,
) -> Result<(), Finding> {
    let mut times: HashMap<u64, u32> = HashMap::new();
    for landed in done.filter(|done| done.kind == OpKind::RemoteWrite) {
        let wrong = |kind: &str| Err(Finding::new(kind, format!("{landed:?}")));
        let Some((data, op)) = landed.data.and_then(|data| Some((data, write(senders, data)?)))
        else {
            return wrong("remote CQ data were reported that nobody sent");
        };
        if op.reported != Some(landed.len) {
            return wrong("remote CQ data were reported with another length");
        }
        let times = times.entry(data).or_default();
        *times += 1;
        if *times > 1 {
            return wrong("remote CQ data were reported twice");
        }
    }
    for side in senders {
        let writes = (side.first..).zip(&side.ops).filter(|(_, op)| op.reported.is_some());
        for (data, op) in writes {
            let told = |kind: &str| {
                let text = format!("host {}: operation {}", side.at, data - side.first);
                Err(Finding::new(kind, text))
            };
            let (came, ended) = (times.contains_key(&data), op.ended > 0);
            match op.status {
                Ok(()) if ended && !came => return told("remote CQ data were lost"),
                Err(_) if came && whole => {
                    return told("remote CQ data of a write that failed were reported");
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// The write with these remote CQ data.
fn write<'a>(senders: &[&'a Application], data: u64) -> Option<&'a Op> {
    let side = senders.iter().find(|side| side.first == data / LIFE * LIFE)?;
    side.ops.get((data - side.first) as usize).filter(|op| matches!(op.what, What::Write { .. }))
}

/// Looks at completions as they come, where no process ends.
#[derive(Default)]
pub(super) struct Watch {
    /// Completions of each host that were looked at.
    seen: [usize; 2],
}

impl Watch {
    /// Judges what came since it was asked last.
    pub(super) fn look(&mut self, world: &World, sides: &[Application; 2]) -> Result<(), Finding> {
        for at in 0..2 {
            let done = &world.hosts[at].done;
            for done in done.get(self.seen[at]..).unwrap_or_default() {
                judge_one(world, sides, at, done)?;
            }
            self.seen[at] = done.len();
        }
        Ok(())
    }
}

/// Judges a completion of host `at`.
fn judge_one(
    world: &World,
    sides: &[Application; 2],
    at: usize,
    done: &Completion,
) -> Result<(), Finding> {
    let (here, there) = (&sides[at], &sides[1 - at]);
    let (sender, number) = match done.kind {
        OpKind::RemoteWrite => {
            let data = done.data.unwrap_or(u64::MAX);
            let number = data.wrapping_sub(there.first) as usize;
            if number < there.ops.len() && !is_in_place(world, sides, there, number) {
                return Err(judge::wrong("remote CQ data came before their bytes", at, done));
            }
            (there, number)
        }
        OpKind::Recv if judge::is_message(done) => {
            let serial = done.data.unwrap_or(u64::MAX).wrapping_sub(there.first);
            let Some(sent) = there.sent.get(serial as usize) else { return Ok(()) };
            (there, sent.op)
        }
        OpKind::Read | OpKind::Write if done.status.is_ok() => (here, done.context as usize),
        _ => return Ok(()),
    };
    let Some(op) = sender.ops.get(number) else { return Ok(()) };
    if let Some(early) = first_early(world, sides, sender, number) {
        let text = format!("host {}: operation {number} before {early}", sender.at);
        return Err(Finding::new("an operation overtook one that it must follow", text));
    }
    if let What::Reread { key, at: from } = op.what {
        reread(world, sides, sender, number, (key, from))?;
    }
    Ok(())
}

/// The first operation of `side` that must have come before operation `number`, which has come, and has not.
fn first_early(
    world: &World,
    sides: &[Application; 2],
    side: &Application,
    number: usize,
) -> Option<usize> {
    (0..number).find(|&earlier| {
        must_follow(side, number, earlier)
            && !(side.has_seen_end(world, earlier) && is_in_place(world, sides, side, earlier))
    })
}

/// Whether operation `later` of a side begins when `earlier` has ended.
fn must_follow(side: &Application, later: usize, earlier: usize) -> bool {
    let op = &side.ops[earlier];
    if matches!(op.what, What::Receive { .. } | What::Peek { .. } | What::Claim) {
        return false;
    }
    let promised = side.ordered.as_ref().is_some_and(|ordered| ordered.promised);
    let changes = matches!(op.what, What::Write { .. } | What::Count(_));
    let fenced = side.ops[earlier + 1..=later].iter().any(|op| op.fence);
    fenced || promised && changes
}

/// Whether the bytes of operation `number` of a side are where they belong, if it writes some to a region that is open.
fn is_in_place(world: &World, sides: &[Application; 2], side: &Application, number: usize) -> bool {
    let (op, other) = (&side.ops[number], &sides[1 - side.at]);
    let What::Write { key, at } = op.what else { return true };
    let Some(region) = other.region(key).filter(|region| !region.closed) else { return true };
    let want = content(2 + side.at, number, op.len as usize);
    world.hosts[other.at].memory.get(region.base + at, op.len) == want
}

/// A read of what its own side writes brings what writes before it have put there, and nothing of those behind it, as far
/// as that is promised; and never anything else.
fn reread(
    world: &World,
    sides: &[Application; 2],
    side: &Application,
    number: usize,
    (key, from): (u64, u64),
) -> Result<(), Finding> {
    let op = &side.ops[number];
    let Some(Region { bytes, .. }) = sides[1 - side.at].region(key) else { return Ok(()) };
    let before = &bytes[from as usize..][..op.len as usize];
    let writes = |op: &Op| matches!(op.what, What::Write { key: k, at } if (k, at) == (key, from));
    let writer = side.ops.iter().position(writes);
    let mut after = before.to_vec();
    if let Some(writer) = writer {
        let written = content(2 + side.at, writer, side.ops[writer].len as usize);
        let both = written.len().min(after.len());
        after[..both].copy_from_slice(&written[..both]);
    }
    let got = world.hosts[side.at].memory.get(op.base, op.len);
    let promised = side.ordered.as_ref().is_some_and(|ordered| ordered.promised);
    let fits = match writer {
        Some(writer) if writer < number && must_follow(side, number, writer) => got == after,
        Some(writer) if writer > number && (promised || must_follow(side, writer, number)) => {
            got == before
        }
        _ => got.iter().zip(before.iter().zip(&after)).all(|(got, (a, b))| got == a || got == b),
    };
    if fits {
        return Ok(());
    }
    let text = format!("host {}: operation {number}, which {writer:?} writes", side.at);
    Err(Finding::new("a read brought what was not there at its turn", text))
}
