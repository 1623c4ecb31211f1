//! Judgement of a history in which processes end.
//!
//! Everything that arrives is right and arrives once, whichever process receives it, and success is
//! reported only for operations that had their effect. An operation may fail if its peer was absent
//! while it was in progress, or if it started before its side knew of the peer's new process.

use std::collections::HashMap;

use squall_base::{Span, Time};
use squall_engine::*;

use super::Finding;
use super::application::{Application, Op, Region, Sent, What};
use super::counting::{self, Count, Counting};
use super::{judge, landing};
use crate::world::{VecMemory, World};

/// A process that has ended.
pub(super) struct Life {
    pub(super) app: Application,
    pub(super) memory: VecMemory,
    pub(super) done: Vec<Completion>,
}

/// The time during which a process existed.
#[derive(Clone, Copy)]
struct Term {
    begun: Time,
    ended: Option<Time>,
}

/// All processes of a history.
pub(super) struct Lives {
    /// Times of existence by host, in order.
    terms: [Vec<Term>; 2],
    past: Vec<Life>,
}

/// A process, present or past.
#[derive(Clone, Copy)]
struct View<'a> {
    app: &'a Application,
    memory: &'a VecMemory,
    done: &'a [Completion],
    term: Term,
}

/// Returns whether an operation ended as the application wants, or as it asked for.
const fn is_harmless(status: Result<(), OpError>) -> bool {
    matches!(
        status,
        Ok(()) | Err(OpError::Truncated { .. } | OpError::Cancelled | OpError::NoMessage)
    )
}

impl Lives {
    pub(super) fn new(now: Time) -> Self {
        let first = || vec![Term { begun: now, ended: None }];
        Self { terms: [first(), first()], past: Vec::new() }
    }

    /// Ends the process of a host.
    pub(super) fn end(&mut self, at: usize, now: Time) {
        if let Some(term) = self.terms[at].last_mut() {
            term.ended = Some(now);
        }
    }

    /// Starts another process at a host and returns its number.
    pub(super) fn begin(&mut self, at: usize, now: Time) -> u64 {
        self.terms[at].push(Term { begun: now, ended: None });
        self.terms[at].len() as u64 - 1
    }

    pub(super) fn keep(&mut self, life: Life) {
        self.past.push(life);
    }

    /// Returns whether no process has ended.
    pub(super) fn is_whole(&self) -> bool {
        self.terms.iter().flatten().all(|term| term.ended.is_none())
    }

    /// Returns the processes of a host, in order.
    fn of<'a>(&'a self, at: usize, world: &'a World, sides: &'a [Application; 2]) -> Vec<View<'a>> {
        let past = self.past.iter().filter(|life| life.app.at == at);
        let past = past.map(|life| (&life.app, &life.memory, &life.done[..]));
        let host = &world.hosts[at];
        let all = past.chain([(&sides[at], &host.memory, &host.done[..])]);
        let view = |((app, memory, done), term)| View { app, memory, done, term };
        all.zip(self.terms[at].iter().copied()).map(view).collect()
    }

    /// Judges that messages arrived as sent, in order and once, that reported success was real, and
    /// that failures had a reason.
    ///
    /// If the history contained an attack (`attacked`), any operation may fail.
    pub(super) fn judge(
        &self,
        world: &World,
        sides: &[Application; 2],
        attacked: bool,
    ) -> Result<(), Finding> {
        let views = [0, 1].map(|at| self.of(at, world, sides));
        for at in 0..2 {
            for life in &views[at] {
                judge::untouched(life.memory, life.app)?;
            }
            let arrived = arrivals(&views[at], &views[1 - at])?;
            let senders: Vec<&Application> = views[1 - at].iter().map(|life| life.app).collect();
            let done = views[at].iter().flat_map(|life| life.done);
            landing::reported(done, &senders, (false, false))?;
            for life in &views[1 - at] {
                sent(life, &views[at], &arrived)?;
                one_sided(life, &views[1 - at], &views[at])?;
                counting::judge(life.memory, life.app, |key| counters(&views[at], key))?;
                for op in life.app.ops.iter().filter(|_| !attacked) {
                    excused(life, op, &views[at])?;
                }
            }
        }
        Ok(())
    }

    /// Judges whether the present processes can exchange messages, after at most one attempt by
    /// which they notice each other.
    pub(super) fn works_again(&self, world: &mut World) -> Result<(), Finding> {
        if world.hosts.iter().any(|host| host.dead) {
            return Ok(());
        }
        for at in 0..2 {
            let ends: Vec<_> = (0..2).map(|_| attempt(world, at)).collect();
            let fine = matches!(ends[..], [Some(Ok(())) | Some(Err(_)), Some(Ok(()))]);
            if !fine {
                let text = format!("host {at}: {ends:?}");
                return Err(Finding::new("nothing works after a restart", text));
            }
        }
        Ok(())
    }
}

/// Sends a message from host `at` that is received. Returns how that ended.
fn attempt(world: &mut World, at: usize) -> Option<Result<(), OpError>> {
    const CONTEXT: u64 = 1 << 40;
    let (to, from) = (world.peer(at, 1 - at), world.peer(1 - at, at));
    let (space, tag, context) = (MatchSpace::Tagged, 1 << 50, CONTEXT);
    let options = Options { level: Level::Match, ..Options::default() };
    let base = world.hosts[1 - at].memory.alloc(3000);
    let buf = Buf::new(base, 3000);
    let (mode, source, visibility) = (RecvMode::Post, Some(from), Visibility::Entry);
    let wanted = RecvOp { mode, source, space, tag, ignore: 0, buf, context, visibility };
    let post = |world: &mut World| {
        let (now, host) = (world.now, &mut world.hosts[1 - at]);
        let posted = host.engine.receive(now, &mut host.memory, wanted.clone());
        posted.expect("receives are not refused");
        host.done.len()
    };
    let posted = post(world);
    let base = world.hosts[at].memory.alloc(3000);
    let action = Action::Message { space, tag };
    let buf = Buf::new(base, 3000);
    let op = Operation { peer: to, action, buf, data: None, context, options };
    let before = world.hosts[at].done.len();
    world.submit(at, op).ok()?;
    let end = |w: &World| {
        w.hosts[at].done[before..].iter().find(|done| done.context == context).map(|c| c.status)
    };
    // Receives that name a lost peer fail, so another receive is needed for messages of its
    // successor.
    let lost = |w: &World| {
        let mut ends = w.hosts[1 - at].done[posted..].iter();
        ends.any(|done| done.context == context && done.status.is_err())
    };
    world.run(Span::secs(200), |w| end(w).is_some() || lost(w));
    if end(world).is_none() && lost(world) {
        post(world);
        world.run(Span::secs(200), |w| end(w).is_some());
    }
    let now = world.now;
    world.hosts[1 - at].engine.cancel(now, context);
    world.step_before(now);
    end(world)
}

/// Counts how often each message arrived at these processes, by its serial number.
fn arrivals(to: &[View<'_>], from: &[View<'_>]) -> Result<HashMap<u64, u32>, Finding> {
    let mut arrived = HashMap::new();
    for life in to {
        let mut order: HashMap<_, Vec<(u64, u64, u64)>> = HashMap::new();
        for done in life.done.iter().filter(|done| judge::is_message(done)) {
            let Some(op) = life.app.ops.get(done.context as usize) else { continue };
            let found = done.data.and_then(|serial| message(from, serial).map(|m| (serial, m)));
            let at = life.app.at;
            let Some((serial, (sender, sent))) = found else {
                let kind = "a message was received that was never sent";
                return Err(judge::wrong(kind, at, done));
            };
            judge::received_right(life.memory, at, done, sent)?;
            if done.kind == OpKind::Peek && matches!(op.what, What::Claim) {
                // A claimed message is counted when it is received.
                continue;
            }
            let times: &mut u32 = arrived.entry(serial).or_default();
            *times += 1;
            if *times > 1 {
                return Err(judge::wrong("a message was received twice", at, done));
            }
            if matches!(op.what, What::Receive { .. }) {
                let entry = (done.context, done.buf, serial);
                order.entry((sent.space, sent.tag, sender)).or_default().push(entry);
            }
        }
        for taken in order.values_mut() {
            taken.sort_unstable();
            if !taken.is_sorted_by_key(|(.., serial)| serial) {
                let text = format!("host {}: {taken:?}", life.app.at);
                return Err(Finding::new("messages were received out of order", text));
            }
        }
    }
    Ok(arrived)
}

/// Returns a message by its serial number, and the first number of its sender.
fn message<'a>(from: &[View<'a>], serial: u64) -> Option<(u64, &'a Sent)> {
    from.iter().rev().find(|life| life.app.first <= serial).and_then(|life| {
        let number = usize::try_from(serial - life.app.first).ok()?;
        Some((life.app.first, life.app.sent.get(number)?))
    })
}

/// Judges whether sends that were reported as delivered arrived.
fn sent(life: &View<'_>, to: &[View<'_>], arrived: &HashMap<u64, u32>) -> Result<(), Finding> {
    for op in &life.app.ops {
        let What::Send(number) = op.what else { continue };
        let told = op.ended > 0 && op.status.is_ok();
        let came = arrived.contains_key(&(life.app.first + number as u64));
        if !told || came {
            continue;
        }
        // The process that had the message in its engine may have ended before a receive took it.
        // The sender may have ended before an earlier message arrived.
        let stayed = to.iter().all(|peer| peer.term.ended.is_none_or(|end| end < op.begun))
            && life.term.ended.is_none();
        let promised = life.app.sent[number].delivered && stayed;
        if op.proves || promised {
            let text = format!("host {}: message {number}, begun at {:?}", life.app.at, op.begun);
            return Err(Finding::new("a send succeeded that was not received", text));
        }
    }
    Ok(())
}

/// Judges whether reads returned what the region held, and writes are in place.
fn one_sided(life: &View<'_>, all: &[View<'_>], to: &[View<'_>]) -> Result<(), Finding> {
    for (context, op) in life.app.ops.iter().enumerate() {
        let (What::Read { key, at } | What::Write { key, at }) = op.what else { continue };
        if op.ended == 0 || op.status.is_err() {
            continue;
        }
        let Some((peer, region)) = region(to, key) else { continue };
        let got = life.memory.get(op.base, op.len);
        let right = match op.what {
            What::Read { .. } => got == &region.bytes[at as usize..][..op.len as usize],
            _ => {
                let here = |op: &Op| matches!(op.what, What::Write { key: k, at: a } if (k, a) == (key, at));
                // Successive processes may write to the same place.
                let others = all.iter().filter(|other| other.app.first != life.app.first);
                let shared = others.flat_map(|other| &other.app.ops).any(here);
                shared || got == peer.memory.get(region.base + at, op.len)
            }
        };
        if !right {
            let text = format!("host {}: operation {context}", life.app.at);
            return Err(Finding::new("a read or write went wrong", text));
        }
    }
    Ok(())
}

/// Returns the region with a key, and its owner.
fn region<'a, 'b>(of: &'b [View<'a>], key: u64) -> Option<(&'b View<'a>, &'a Region)> {
    let with = |life: &'b View<'a>| life.app.region(key).map(|region| (life, region));
    of.iter().find_map(with)
}

/// Returns the counters with a key, and their address.
fn counters<'a>(of: &[View<'a>], key: u64) -> Option<(&'a VecMemory, &'a Counting)> {
    let with = |life: &View<'a>| {
        let counting = life.app.counting.as_ref().filter(|counting| counting.key == key)?;
        Some((life.memory, counting))
    };
    of.iter().find_map(with)
}

/// Judges whether a failed operation had a reason to fail.
fn excused(life: &View<'_>, op: &Op, peers: &[View<'_>]) -> Result<(), Finding> {
    let Err(error) = op.status else { return Ok(()) };
    if is_harmless(op.status) {
        return Ok(());
    }
    if error == OpError::Remote(ReturnCode::BadMkey)
        && let What::Read { key, .. } | What::Write { key, .. } | What::Reread { key, .. } = op.what
        && region(peers, key).is_none_or(|(peer, r)| r.closed || peer.term.ended.is_some())
    {
        return Ok(());
    }
    if error == OpError::Remote(ReturnCode::BadMkey)
        && let What::Count(Count { key, .. }) = op.what
        && peers.iter().any(|peer| {
            let theirs = peer.app.counting.as_ref().is_some_and(|counting| counting.key == key);
            theirs && peer.term.ended.is_some()
        })
    {
        return Ok(());
    }
    let over = |peer: &View<'_>| peer.term.ended.is_some_and(|end| end <= op.over);
    if matches!(op.what, What::Receive { .. } | What::Claim) {
        // The message that it matched was sent by a process that had ended.
        let broken = matches!(
            error,
            OpError::Closed | OpError::PeerRestarted | OpError::TimedOut | OpError::Unreachable
        );
        let excused = broken && peers.iter().any(over);
        return if excused { Ok(()) } else { Err(unexcused(life, op, error)) };
    }
    // A process that the operation could concern was absent ...
    let gone = |peer: &View<'_>, next: Option<&View<'_>>| {
        let back = next.map_or(Time::NEVER, |next| next.term.begun);
        peer.term.ended.filter(|end| *end <= op.over && back >= life.term.begun)
    };
    let ends = (0..peers.len()).filter_map(|n| gone(&peers[n], peers.get(n + 1)));
    let Some(last) = ends.max() else {
        return Err(unexcused(life, op, error));
    };
    // ... and this side could not yet know which process is there now.
    let knew = life.app.ops.iter().any(|witness| {
        let proof = witness.proves && witness.ended > 0 && witness.status.is_ok();
        proof && witness.begun > last && witness.over <= op.begun
    });
    if knew { Err(unexcused(life, op, error)) } else { Ok(()) }
}

fn unexcused(life: &View<'_>, op: &Op, error: OpError) -> Finding {
    let kind = if matches!(op.what, What::Receive { .. } | What::Claim) {
        "a receive failed without a reason"
    } else {
        "an operation failed whose peer was there"
    };
    let times = format!("begun at {:?}, over at {:?}", op.begun, op.over);
    Finding::new(kind, format!("host {}, {times}: {error:?}", life.app.at))
}
