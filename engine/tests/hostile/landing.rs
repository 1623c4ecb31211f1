//! This module judges the reports to targets of one-sided operations and messages: remote CQ data arrive once,
//! with the value and the length of their write, and when all its bytes are in place; and no operation takes effect before
//! one that it must follow.

use std::collections::HashMap;

use squall_engine::{Completion, OpKind, Visibility};

use super::Finding;
use super::application::{Application, LIFE, Op, Region, What, content};
use super::judge;
use crate::world::{World, is_remote};

/// Judges the end of a history: the remote CQ data in the targets' completions `done` are those of the writes of `senders`,
/// once each. `whole` says that no process has ended, and `all` that the targets want to know of all accesses.
pub(super) fn reported<'a>(
    done: impl Iterator<Item = &'a Completion>,
    senders: &[&Application],
    (whole, all): (bool, bool),
) -> Result<(), Finding> {
    let mut times: HashMap<u64, u32> = HashMap::new();
    for landed in done.filter(|done| is_remote(done.kind)) {
        let wrong = |kind: &str| Err(Finding::new(kind, format!("{landed:?}")));
        if all && landed.data.is_none() {
            if landed.visibility != Visibility::CountOnly {
                return wrong("an access without remote CQ data has an entry");
            }
            continue;
        }
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

/// Judges, when nothing is under way any more, whether all accesses of the operations of `sender` to `target` were reported
/// in `done`, where the target wants to know of them.
pub(super) fn accesses(
    done: &[Completion],
    sender: &Application,
    target: &Application,
) -> Result<(), Finding> {
    let mut counts = Accesses::default();
    for done in done.iter().filter(|done| is_remote(done.kind) && done.data.is_none()) {
        counts.add(done.kind, 1, done.len);
    }
    counts.judge(sender, target)
}

/// The number of accesses that bring no remote CQ data, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Accesses {
    /// Counts by kind, in the order of [`Self::KINDS`].
    number: [u64; 4],
    bytes: [u64; 4],
}

impl Accesses {
    const KINDS: [OpKind; 4] =
        [OpKind::RemoteWrite, OpKind::RemoteRead, OpKind::RemoteUpdate, OpKind::RemoteFetch];

    fn add(&mut self, kind: OpKind, number: u64, bytes: u64) {
        if let Some(at) = Self::KINDS.iter().position(|of| *of == kind) {
            self.number[at] += number;
            self.bytes[at] += bytes;
        }
    }

    /// Judges whether these are the accesses of the operations that succeeded, and perhaps some of those that failed. A read is
    /// reported when its answer is acknowledged, and not if its region was closed before that.
    fn judge(&self, sender: &Application, target: &Application) -> Result<(), Finding> {
        let (mut least, mut most) = (Self::default(), Self::default());
        for op in &sender.ops {
            let with_data = u64::from(op.reported.is_some());
            let (kind, number, bytes) = match op.what {
                What::Write { .. } => {
                    let bytes = op.len - op.reported.unwrap_or(0);
                    (OpKind::RemoteWrite, 1 - with_data, bytes)
                }
                What::Read { .. } | What::Reread { .. } => (OpKind::RemoteRead, 1, op.len),
                What::Count(count) if count.fetches => (OpKind::RemoteFetch, 1, 8),
                What::Count(_) => (OpKind::RemoteUpdate, 1, 8),
                _ => continue,
            };
            most.add(kind, number, bytes);
            let closed = |key| target.region(key).is_none_or(|region| region.closed);
            if op.status.is_ok() && !matches!(op.what, What::Read { key, .. } if closed(key)) {
                least.add(kind, number, bytes);
            }
        }
        let within = |some: [u64; 4], least: [u64; 4], most: [u64; 4]| {
            (0..4).all(|at| (least[at]..=most[at]).contains(&some[at]))
        };
        let fits = within(self.number, least.number, most.number)
            && within(self.bytes, least.bytes, most.bytes);
        if fits {
            return Ok(());
        }
        let text = format!("{self:?}, at least {least:?}, at most {most:?}");
        Err(Finding::new("accesses of the other side were not reported, or twice", text))
    }
}

/// Returns the write with these remote CQ data.
fn write<'a>(senders: &[&'a Application], data: u64) -> Option<&'a Op> {
    let side = senders.iter().find(|side| side.first == data / LIFE * LIFE)?;
    side.ops.get((data - side.first) as usize).filter(|op| matches!(op.what, What::Write { .. }))
}

/// Judges completions as they come, in histories where no process ends.
#[derive(Default)]
pub(super) struct Watch {
    /// The number of completions of each host that were judged.
    seen: [usize; 2],
}

impl Watch {
    /// Judges the completions that came since the last call.
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

/// Returns the first operation of `side` that must come before operation `number`, which has taken effect, and has not ended.
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

/// Returns whether operation `later` of a side may begin only when `earlier` has ended.
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

/// Returns whether the bytes of operation `number` of a side are in place, if it writes some to a region that is open.
fn is_in_place(world: &World, sides: &[Application; 2], side: &Application, number: usize) -> bool {
    let (op, other) = (&side.ops[number], &sides[1 - side.at]);
    let What::Write { key, at } = op.what else { return true };
    let Some(region) = other.region(key).filter(|region| !region.closed) else { return true };
    let want = content(2 + side.at, number, op.len as usize);
    world.hosts[other.at].memory.get(region.base + at, op.len) == want
}

/// Judges a read of what its own side writes: it brings what earlier writes have put there, and nothing of later ones, as
/// far as that is promised, and never anything else.
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
