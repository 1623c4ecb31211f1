//! Judgement of a history.

use std::collections::HashMap;

use squall_base::Span;
use squall_engine::{
    Buf, Completion, Holdings, MatchSpace, OpError, OpKind, RecvMode, RecvOp, ReturnCode,
    Visibility,
};

use super::Finding;
use super::application::{ALL_SPACES, Application, Op, Sent, What};
use super::{counting, landing};
use crate::world::{VecMemory, World};

/// Largest number of contexts of an endpoint without an attacker, or with one that opens few.
const CONTEXTS: usize = 2000;
/// Time within which unused contexts end.
const SHUTDOWN_TIMEOUT: Span = Span::secs(300);

/// Judges whether memory for unexpected messages stays within its budget.
pub(super) fn budgets(world: &World, budget: u64) -> Result<(), Finding> {
    for (at, host) in world.hosts.iter().enumerate() {
        let counted = host.engine.counters().0.unexpected_bytes;
        let contexts = host.engine.contexts().count();
        let holdings = host.engine.holdings();
        // The buffered bytes are counted as well, not only those that the engine reports.
        let held = counted.max(holdings.kept_bytes);
        if held > budget || contexts > CONTEXTS {
            let text = format!("host {at} holds {held} bytes and {contexts} contexts");
            return Err(Finding::new("beyond a budget", text));
        }
        if !holdings.budget_is_consistent || holdings.kept_bytes > holdings.message_bytes {
            let text = format!("host {at}: {holdings:?}");
            return Err(Finding::new("the accounts of messages are wrong", text));
        }
    }
    Ok(())
}

/// Describes the operations that have not ended.
pub(super) fn stuck(world: &World, sides: &[&Application]) -> Finding {
    let mut kinds: Vec<&str> = Vec::new();
    let mut text = String::new();
    for side in sides {
        let at = side.at;
        let open = side.ops.iter().enumerate().filter(|(_, op)| op.ended == 0);
        for (context, op) in open {
            let kind = match op.what {
                What::Send(_) => "send",
                What::Receive { .. } => "receive",
                What::Peek { .. } => "look",
                What::Claim => "claim",
                What::Read { .. } => "read",
                What::Write { .. } => "write",
                What::Reread { .. } => "ordered read",
                What::Count(_) => "atomic",
            };
            kinds.push(kind);
            text += &format!("host {at}: {kind} {context} of {} bytes; ", op.len);
        }
        let host = &world.hosts[at];
        for context in host.engine.contexts() {
            let who = if context.initiator { "initiator" } else { "target" };
            text += &format!("{who} with {} outstanding; ", context.outstanding);
        }
        text += &format!(
            "{} unexpected, {} inconsistent\n",
            host.engine.unexpected_messages(),
            host.engine.counters().0.rx_inconsistent,
        );
    }
    kinds.sort_unstable();
    kinds.dedup();
    Finding::new(&format!("stuck: {}", kinds.join(", ")), text)
}

/// Judges that read-only memory is unchanged and that every operation ended once.
pub(super) fn memory(world: &World, sides: &[Application; 2]) -> Result<(), Finding> {
    (0..2).try_for_each(|at| untouched(&world.hosts[at].memory, &sides[at]))
}

/// Judges that one application's read-only memory is unchanged and that its operations ended once.
pub(super) fn untouched(memory: &VecMemory, side: &Application) -> Result<(), Finding> {
    let at = side.at;
    for (serial, sent) in side.sent.iter().enumerate() {
        if memory.get(sent.base, sent.bytes.len() as u64) != sent.bytes {
            return Err(Finding::new("a send buffer was written to", format!("{at}: {serial}")));
        }
    }
    for region in side.regions.iter().filter(|region| region.key % 2 == 0) {
        if memory.get(region.base, region.bytes.len() as u64) != region.bytes {
            let text = format!("host {at}: key {}", region.key);
            return Err(Finding::new("a region to be read was written to", text));
        }
    }
    if let Some(context) = side.ops.iter().position(|op| op.ended > 1) {
        let text = format!("host {at}: operation {context}");
        return Err(Finding::new("an operation ended twice", text));
    }
    Ok(())
}

/// Judges that messages arrived as sent and in order, and that successful operations had their
/// effect.
pub(super) fn results(
    world: &World,
    sides: &[Application; 2],
    all_accesses: bool,
) -> Result<(), Finding> {
    for at in 0..2 {
        let arrived = arrivals(world, sides, at)?;
        sent(world, sides, 1 - at, &arrived)?;
        one_sided(world, sides, at)?;
        counted(world, sides, at)?;
        let done = world.hosts[at].done.iter();
        landing::reported(done, &[&sides[1 - at]], (true, all_accesses))?;
    }
    Ok(())
}

/// The receives of each space and tag in posting order, their buffers, and the messages that they
/// received.
type Order = HashMap<(MatchSpace, u64), Vec<(u64, u64, u64)>>;

/// Counts how often each message of the other side arrived at host `at`.
fn arrivals(world: &World, sides: &[Application; 2], at: usize) -> Result<Vec<u32>, Finding> {
    let (side, other) = (&sides[at], &sides[1 - at]);
    let mut arrived = vec![0; other.sent.len()];
    let mut order = Order::new();
    for done in &world.hosts[at].done {
        if !is_message(done) {
            let harmless = matches!(done.status, Err(OpError::Cancelled));
            if done.kind == OpKind::Recv && !harmless {
                return Err(wrong("a receive failed", at, done));
            }
            continue;
        }
        let Some(op) = side.ops.get(done.context as usize) else { continue };
        let serial = done.data.and_then(|serial| usize::try_from(serial).ok());
        let Some(sent) = serial.and_then(|serial| other.sent.get(serial)) else {
            return Err(wrong("a message was received that was never sent", at, done));
        };
        received_right(&world.hosts[at].memory, at, done, sent)?;
        let serial = serial.unwrap_or_default();
        if done.kind == OpKind::Peek && matches!(op.what, What::Claim) {
            // A claimed message is counted when it is received.
            continue;
        }
        arrived[serial] += 1;
        if matches!(op.what, What::Receive { .. }) {
            let entry = (done.context, done.buf, serial as u64);
            order.entry((sent.space, sent.tag)).or_default().push(entry);
        }
    }
    if let Some(serial) = arrived.iter().position(|times| *times > 1) {
        let text = format!("host {at}: message {serial}");
        return Err(Finding::new("a message was received twice", text));
    }
    for taken in order.values_mut() {
        taken.sort_unstable();
        if !taken.is_sorted_by_key(|(.., serial)| serial) {
            let text = format!("host {at}: {taken:?}");
            return Err(Finding::new("messages were received out of order", text));
        }
    }
    Ok(arrived)
}

/// Returns whether a completion reports a received message.
pub(super) fn is_message(done: &Completion) -> bool {
    matches!(done.kind, OpKind::Recv | OpKind::Peek)
        && matches!(done.status, Ok(()) | Err(OpError::Truncated { .. }))
}

/// Judges whether a message arrived as it was sent.
pub(super) fn received_right(
    memory: &VecMemory,
    at: usize,
    done: &Completion,
    sent: &Sent,
) -> Result<(), Finding> {
    let fits = match done.kind {
        OpKind::Peek => done.len == sent.bytes.len() as u64,
        _ => {
            let got = memory.get(done.buf, done.len);
            let whole = done.status.is_ok();
            got == &sent.bytes[..got.len().min(sent.bytes.len())]
                && whole == (got.len() == sent.bytes.len())
        }
    };
    if !fits || (done.space, done.tag) != (sent.space, sent.tag) {
        return Err(wrong("a message was received that is not as it was sent", at, done));
    }
    Ok(())
}

pub(super) fn wrong(kind: &str, at: usize, done: &Completion) -> Finding {
    Finding::new(kind, format!("host {at}: {done:?}"))
}

/// Judges that the sends of host `at` succeeded and that their messages arrived as reported.
fn sent(
    world: &World,
    sides: &[Application; 2],
    at: usize,
    arrived: &[u32],
) -> Result<(), Finding> {
    for op in &sides[at].ops {
        let What::Send(serial) = op.what else { continue };
        let fine = match op.status {
            Ok(()) => arrived[serial] == 1,
            Err(_) => false,
        };
        if !fine {
            let kind = match op.status {
                Ok(()) => "a send succeeded that was not received",
                Err(_) => "a send failed",
            };
            let times = format!("begun at {:?}, over at {:?}", op.begun, op.over);
            let text = format!(
                "host {at}: message {serial} of {} bytes, {times}: {:?}",
                op.len, op.status
            );
            return Err(Finding::new(kind, text));
        }
    }
    if world.hosts[at].engine.counters().0.lost_after_completion > 0 {
        return Err(Finding::new("a send was lost after its completion", format!("host {at}")));
    }
    Ok(())
}

/// Judges the reads and writes of host `at`, where the region was open.
fn one_sided(world: &World, sides: &[Application; 2], at: usize) -> Result<(), Finding> {
    let other = &sides[1 - at];
    for (context, op) in sides[at].ops.iter().enumerate() {
        let (What::Read { key, at: from } | What::Write { key, at: from }) = op.what else {
            continue;
        };
        let Some(region) = other.region(key) else { continue };
        let right = match (op.status, &op.what) {
            (Ok(()), What::Read { .. }) => {
                let want = &region.bytes[from as usize..][..op.len as usize];
                world.hosts[at].memory.get(op.base, op.len) == want
            }
            (Ok(()), _) => {
                let there = world.hosts[1 - at].memory.get(region.base + from, op.len);
                world.hosts[at].memory.get(op.base, op.len) == there
            }
            (Err(OpError::Remote(ReturnCode::BadMkey)), _) => region.closed,
            (Err(_), _) => false,
        };
        if !right {
            let text = format!("host {at}: operation {context}: {:?}", op.status);
            return Err(Finding::new("a read or write went wrong", text));
        }
    }
    let failed = |op: &&Op| matches!(op.what, What::Reread { .. }) && op.status.is_err();
    if let Some(op) = sides[at].ops.iter().find(failed) {
        return Err(Finding::new("an ordered read failed", format!("host {at}: {:?}", op.status)));
    }
    Ok(())
}

/// Judges that every atomic of host `at` was executed once.
fn counted(world: &World, sides: &[Application; 2], at: usize) -> Result<(), Finding> {
    let failed = |op: &&Op| matches!(op.what, What::Count(_)) && op.status.is_err();
    if let Some(op) = sides[at].ops.iter().find(failed) {
        return Err(Finding::new("an atomic failed", format!("host {at}: {:?}", op.status)));
    }
    let theirs = sides[1 - at].counting.as_ref();
    let counters = |key| Some((&world.hosts[1 - at].memory, theirs.filter(|c| c.key == key)?));
    counting::judge(&world.hosts[at].memory, &sides[at], counters)
}

/// Judges that without an attacker no packet is taken for an attacker's.
pub(super) fn honesty(world: &World) -> Result<(), Finding> {
    for (at, host) in world.hosts.iter().enumerate() {
        let counters = host.engine.counters().0;
        if counters.rx_inconsistent + counters.rx_malformed > 0 {
            let text = format!("host {at}: {counters:?}");
            return Err(Finding::new("an honest packet was taken for a hostile one", text));
        }
    }
    Ok(())
}

/// Judges whether nothing is kept for operations when all have ended and contexts are still open. Exceptions are messages
/// without a receive, and writes that were refused half-way, whose entries become stale later.
pub(super) fn peace(world: &mut World, sides: &[Application; 2]) -> Result<(), Finding> {
    let idle = |w: &World| w.hosts.iter().all(|host| host.engine.is_idle());
    if !world.run(SHUTDOWN_TIMEOUT, idle) {
        return Err(Finding::new("an endpoint is never idle", format!("at {:?}", world.now)));
    }
    for (at, host) in world.hosts.iter().enumerate() {
        let held = host.engine.holdings();
        let refused = |op: &&Op| matches!(op.what, What::Write { .. }) && op.status.is_err();
        let refused = sides[1 - at].ops.iter().filter(refused).count();
        // Some parts of unreceived messages have not arrived.
        let rest = Holdings {
            channels: 0,
            completions: 0,
            messages: 0,
            awaited: 0,
            unexpected: 0,
            open_ids: 0,
            headers: 0,
            kept_bytes: 0,
            message_bytes: 0,
            partial_writes: 0,
            access_groups: 0,
            ..held
        };
        let empty = Holdings { budget_is_consistent: true, ..Holdings::default() };
        let failed = sides[1 - at].ops.iter().filter(|op| op.status.is_err()).count();
        let stale = held.partial_writes > refused || held.access_groups > failed;
        if rest != empty || stale || held.messages < held.unexpected {
            let text = format!("host {at}, {refused} refused writes: {held:?}");
            return Err(Finding::new("something is kept of what has ended", text));
        }
    }
    Ok(())
}

/// Judges that contexts end and no state is kept when all activity has ceased.
pub(super) fn check_shutdown(world: &mut World) -> Result<(), Finding> {
    let now = world.now;
    for at in (0..2).filter(|&at| !world.hosts[at].dead).collect::<Vec<_>>() {
        let keys: Vec<u64> = world.hosts[at].memory.regions.keys().copied().collect();
        for key in keys {
            world.unregister(at, key);
        }
        world.hosts[at].engine.shutdown(now).step();
    }
    let gone = |w: &World| w.hosts.iter().all(|h| h.dead || h.engine.contexts().next().is_none());
    if !world.run(SHUTDOWN_TIMEOUT, gone) {
        return Err(Finding::new("a context never ends", format!("at {:?}", world.now)));
    }
    for (at, host) in world.hosts.iter().enumerate().filter(|(_, host)| !host.dead) {
        // A message that arrived late as a whole may still wait for a receive.
        let waiting = host.engine.unexpected_messages() > 0;
        let held = host.engine.counters().0.unexpected_bytes;
        if held > 0 && !waiting || !host.engine.is_idle() {
            let text = format!("host {at}: {held} bytes");
            return Err(Finding::new("something is kept that nobody will ask for", text));
        }
    }
    // The last packet of a dead host may still be in flight and deliver a message. Discarding
    // messages may need contexts, which end as well.
    for _ in 0..2 {
        for at in (0..2).filter(|&at| !world.hosts[at].dead).collect::<Vec<_>>() {
            discard_messages(world, at);
        }
        world.run(SHUTDOWN_TIMEOUT, |_| false);
    }
    for (at, host) in world.hosts.iter().enumerate().filter(|(_, host)| !host.dead) {
        // An operation of which a range was refused becomes stale only when its peer has begun thousands of others.
        let holdings = Holdings { access_groups: 0, ..host.engine.holdings() };
        if holdings != (Holdings { budget_is_consistent: true, ..Holdings::default() }) {
            let text = format!("host {at}: {holdings:?}");
            return Err(Finding::new("something is kept when all is over", text));
        }
    }
    Ok(())
}

/// Discards all messages of host `at` that wait for a receive.
fn discard_messages(world: &mut World, at: usize) {
    for space in ALL_SPACES {
        loop {
            let before = world.hosts[at].engine.unexpected_messages();
            let op = RecvOp {
                mode: RecvMode::PeekDiscard,
                source: None,
                space,
                tag: 0,
                ignore: u64::MAX,
                buf: Buf::Empty,
                context: u64::MAX,
                visibility: Visibility::Entry,
            };
            let (now, host) = (world.now, &mut world.hosts[at]);
            host.engine.receive(now, &mut host.memory, op).expect("a look is not refused");
            if host.engine.unexpected_messages() == before {
                break;
            }
        }
    }
}
