//! This module plays long histories of endpoints with small tables and without an attacker: 16-bit message ids, ids of
//! one-sided operations and slots are used again although something still has them, and tables are full.
//!
//! Between the random operations of the other histories, so many short ones are made that the numbers wrap: first after a
//! write was refused half-way, then while a message waits for its receive. Behind them come writes and messages, one of
//! which has the number of the write or the message that was left.

use squall_base::{Rng, Span};
use squall_engine::*;

use super::application::Application;
use super::landing::Watch;
use super::{Amount, Finding, faults, judge, make_peace, ordered};
use crate::world::{Faults, World};

/// The first context, and the first remote CQ data, of operations that are not the applications'.
const OWN: u64 = 1 << 41;
/// How many 16-bit numbers there are.
const IDS: u64 = 1 << 16;
/// How far from the wanted number a burst begins and ends.
const NEAR: u64 = 60;
/// The keys of three regions: for short operations, for bursts, and one that is closed half-way. `counting` and `ordered`
/// have the keys before these.
const SHORT: u64 = 3;
const BURST: u64 = 4;
const DOOMED: u64 = 5;
/// The bytes of a write of a burst, and of one that is refused half-way.
const PIECE: u64 = 3000;
const LONG: u64 = 200_000;
/// The most short operations that are under way at a time.
const BATCH: u64 = 48;
const SOON: Span = Span::secs(30);

/// Plays the history `seed`.
pub(super) fn history(seed: u64) -> Result<Amount, Finding> {
    let mut rng = Rng::new(seed);
    let promised = rng.chance(0.3);
    let budget = [20_000, 3_000, 0][rng.below(3) as usize];
    let headers = [64, 8][rng.below(2) as usize];
    let mut world = World::with(2, rng.next_u64(), faults(&mut rng), |config, _| {
        (config.unexpected_bytes, config.max_unexpected) = (budget, headers);
        (config.max_outstanding, config.copied_bytes) = (BATCH as u32, 10_000);
        config.order = if promised { ordered::promise() } else { Order::NONE };
    });
    let mut sides = [0, 1].map(|at| Application::new(at, &mut world, rng.next_u64()));
    sides = sides.map(|side| side.counts(&mut world, !seed));
    sides = sides.map(|side| side.orders(&mut world, promised, !seed));
    let bases = [0, 1].map(|at| {
        let memory = &mut world.hosts[at].memory;
        let (short, burst) = (memory.alloc(8), memory.alloc((2 * NEAR * PIECE) as usize));
        memory.register(SHORT, short, 8, true, true);
        memory.register(BURST, burst, 2 * NEAR * PIECE, true, true);
        burst
    });
    let rough = world.faults;
    let mut play = Play { watch: Watch::default(), amount: Amount::default(), budget, next: OWN };
    for _ in 0..1 + rng.below(2) {
        let from = rng.below(2) as usize;
        world.faults = rough;
        play.act(&mut world, &mut sides, &mut rng)?;
        // A fenced operation that waits for a receive would hold up all that follows.
        make_peace(&mut world, &mut sides, SOON * 4, Some(&mut play.watch))?;
        play.interrupt(&mut world, from)?;
        world.faults = Faults::default();
        // Those have the numbers of slots.
        let reads = u64::from(rng.below(5000));
        play.settle(&mut world, &mut sides)?;
        play.spin(&mut world, from, reads, |play, world| play.one_sided(world, from, true))?;
        play.spin(&mut world, from, IDS - NEAR, |play, world| play.one_sided(world, from, false))?;
        world.faults = rough;
        play.burst(&mut world, from, bases[1 - from])?;
        play.act(&mut world, &mut sides, &mut rng)?;
        make_peace(&mut world, &mut sides, SOON * 4, Some(&mut play.watch))?;
        world.faults = Faults::default();
        let left = play.send(&mut world, from, 1, 2 * PIECE);
        play.spin(&mut world, from, IDS - NEAR, |play, world| play.message(world, from))?;
        play.take(&mut world, from, left)?;
    }
    judge::memory(&world, &sides)?;
    judge::results(&world, &sides, false)?;
    judge::honesty(&world)?;
    judge::peace(&mut world, &sides)?;
    judge::check_shutdown(&mut world)?;
    Ok(play.amount)
}

struct Play {
    watch: Watch,
    amount: Amount,
    budget: u64,
    /// The last context that was given to an operation that is not the applications'.
    next: u64,
}

impl Play {
    /// Lets both applications do something.
    fn act(
        &mut self,
        world: &mut World,
        sides: &mut [Application; 2],
        rng: &mut Rng,
    ) -> Result<(), Finding> {
        for _ in 0..20 + rng.below(20) {
            sides[rng.below(2) as usize].act(world);
            self.amount.operations += 1;
            for _ in 0..rng.below(12) {
                let soon = world.now + Span::secs(2);
                world.step_before(soon);
                judge::budgets(world, self.budget)?;
                self.watch.look(world, sides)?;
            }
            sides.iter_mut().for_each(|side| side.reap(world));
        }
        Ok(())
    }

    /// Judges all completions that there are, so that others may be removed behind them.
    fn settle(&mut self, world: &mut World, sides: &mut [Application; 2]) -> Result<(), Finding> {
        self.watch.look(world, sides)?;
        sides.iter_mut().for_each(|side| side.reap(world));
        // What a claim that was taken has completed.
        world.step_before(world.now);
        self.watch.look(world, sides)?;
        sides.iter_mut().for_each(|side| side.reap(world));
        Ok(())
    }

    fn context(&mut self) -> u64 {
        self.next += 1;
        self.amount.operations += 1;
        self.next
    }

    /// Submits an operation that is not the application's.
    fn submit(
        &mut self,
        world: &mut World,
        from: usize,
        action: Action,
        buf: Buf,
        data: Option<u64>,
    ) -> u64 {
        let (peer, context) = (world.peer(from, 1 - from), self.context());
        let op = Operation { peer, action, buf, data, context, options: Options::default() };
        while world.submit(from, op.clone()).is_err() {
            assert!(world.step(), "the operation is accepted at some time");
        }
        context
    }

    /// Submits a write or a read of eight bytes.
    fn one_sided(&mut self, world: &mut World, from: usize, reads: bool) -> u64 {
        let base = world.hosts[from].memory.regions[&SHORT].0.base;
        let remote = RemoteIov::One(RemoteSeg { address: 0, len: 8, key: SHORT });
        let action = if reads { Action::Read(remote) } else { Action::Write(remote) };
        self.submit(world, from, action, Buf::new(base, 8), None)
    }

    /// Sends a message of `len` bytes in a space in which no application sends.
    fn send(&mut self, world: &mut World, from: usize, tag: u64, len: u64) -> u64 {
        let base = world.hosts[from].memory.put(&vec![tag as u8; len as usize]);
        let action = Action::Message { space: MatchSpace::Collective, tag };
        self.submit(world, from, action, Buf::new(base, len), None)
    }

    fn receive(&mut self, world: &mut World, at: usize, tag: u64, len: u64) -> (u64, u64) {
        let (base, context) = (world.hosts[at].memory.alloc(len as usize), self.context());
        let op = RecvOp {
            mode: RecvMode::Post,
            source: None,
            space: MatchSpace::Collective,
            tag,
            ignore: 0,
            buf: Buf::new(base, len),
            context,
            visibility: Visibility::Entry,
        };
        let (now, host) = (world.now, &mut world.hosts[at]);
        host.engine.receive(now, &mut host.memory, op).expect("receives are not refused");
        (context, base)
    }

    /// Sends an empty message for which a receive is posted.
    fn message(&mut self, world: &mut World, from: usize) -> u64 {
        self.receive(world, 1 - from, 2, 0);
        self.send(world, from, 2, 0)
    }

    /// Makes `count` short operations, some at a time, and removes their completions.
    fn spin(
        &mut self,
        world: &mut World,
        from: usize,
        count: u64,
        mut one: impl FnMut(&mut Self, &mut World) -> u64,
    ) -> Result<(), Finding> {
        let marks = [0, 1].map(|at| world.hosts[at].done.len());
        let mut made = 0;
        while made < count {
            let batch = (count - made).min(BATCH / 2);
            let last = (0..batch).map(|_| one(self, world)).last();
            made += batch;
            let over = |w: &World| w.hosts[from].done.iter().rev().any(|c| Some(c.context) == last);
            if !world.run(SOON, over) {
                let text = format!("{made} of {count}: {:?}", world.hosts[from].engine.holdings());
                return Err(Finding::new("short operations do not end", text));
            }
            for at in 0..2 {
                let done = &mut world.hosts[at].done;
                let failed =
                    done[marks[at]..].iter().find(|c| c.context > OWN && c.status.is_err());
                if let Some(failed) = failed {
                    return Err(judge::wrong("a short operation failed", at, failed));
                }
                let rest = done.split_off(marks[at]);
                done.extend(rest.into_iter().filter(|c| c.context <= OWN));
            }
        }
        Ok(())
    }

    /// Closes a region while a write to it is half-way.
    fn interrupt(&mut self, world: &mut World, from: usize) -> Result<(), Finding> {
        let (to, marks) = (1 - from, [0, 1].map(|at| world.hosts[at].done.len()));
        let base = world.hosts[to].memory.alloc(LONG as usize);
        world.hosts[to].memory.register(DOOMED, base, LONG, false, true);
        let bytes = world.hosts[from].memory.put(&vec![9; LONG as usize]);
        let remote = RemoteIov::One(RemoteSeg { address: 0, len: LONG, key: DOOMED });
        let data = Some(OWN);
        let write = self.submit(world, from, Action::Write(remote), Buf::new(bytes, LONG), data);
        let over = |w: &World| w.hosts[from].done.iter().any(|c| c.context == write);
        world.run(SOON, |w| over(w) || w.hosts[to].engine.holdings().partial_writes > 0);
        world.unregister(to, DOOMED);
        if !world.run(SOON, over) {
            return Err(Finding::new("stuck: a write to a closed region", String::new()));
        }
        for (at, mark) in marks.into_iter().enumerate() {
            let rest = world.hosts[at].done.split_off(mark);
            let others = |c: &Completion| c.context <= OWN && c.data.is_none_or(|data| data < OWN);
            world.hosts[at].done.extend(rest.into_iter().filter(others));
        }
        Ok(())
    }

    /// Makes writes with remote CQ data, one of which has the number of the write that was refused half-way.
    fn burst(&mut self, world: &mut World, from: usize, base: u64) -> Result<(), Finding> {
        let to = 1 - from;
        let value = self.next as u8 | 1;
        let bytes = world.hosts[from].memory.put(&vec![value; PIECE as usize]);
        let marks = [0, 1].map(|at| world.hosts[at].done.len());
        let len = 2 * NEAR * PIECE;
        // As it was before.
        world.hosts[to].memory.bytes[base as usize..][..len as usize].fill(0);
        let mut seen = marks[to];
        let mut landed = vec![0; 2 * NEAR as usize];
        for n in 0..2 * NEAR {
            let remote = RemoteSeg { address: n * PIECE, len: PIECE, key: BURST };
            let action = Action::Write(RemoteIov::One(remote));
            self.submit(world, from, action, Buf::new(bytes, PIECE), Some(OWN + n));
            let end = world.now + if n + 1 == 2 * NEAR { SOON } else { Span::ZERO };
            loop {
                let done = &world.hosts[to].done;
                let new = done[seen..].iter().filter(|c| c.data.is_some_and(|data| data >= OWN));
                for c in new {
                    let at = (c.data.unwrap_or(OWN) - OWN) as usize;
                    let whole = world.hosts[to].memory.get(base + at as u64 * PIECE, PIECE);
                    let right = c.len == PIECE && whole.iter().all(|byte| *byte == value);
                    landed[at] += 1;
                    if !right || landed[at] > 1 {
                        let kind = "remote CQ data came that are an older write's";
                        return Err(judge::wrong(kind, to, c));
                    }
                }
                seen = done.len();
                let idle = world.hosts[from].engine.is_idle();
                if idle && landed.iter().all(|n| *n == 1) || !world.step_before(end) {
                    break;
                }
            }
        }
        if let Some(lost) = landed.iter().position(|n| *n == 0) {
            return Err(Finding::new(
                "remote CQ data were lost",
                format!("write {lost} of a burst"),
            ));
        }
        for (at, mark) in marks.into_iter().enumerate() {
            let rest = world.hosts[at].done.split_off(mark);
            let others = |c: &Completion| c.context <= OWN && c.data.is_none_or(|data| data < OWN);
            world.hosts[at].done.extend(rest.into_iter().filter(others));
        }
        Ok(())
    }

    /// Exchanges messages of several packets, one of which has the number of the one that was `left`; then receives that one.
    fn take(&mut self, world: &mut World, from: usize, left: u64) -> Result<(), Finding> {
        let (to, marks) = (1 - from, [0, 1].map(|at| world.hosts[at].done.len()));
        let mut wanted = Vec::new();
        for tag in 3..3 + 2 * NEAR {
            wanted.push((tag, self.receive(world, to, tag, 2 * PIECE)));
            self.send(world, from, tag, 2 * PIECE);
        }
        // Long enough for the sender to ask after the one that was left.
        world.run(SOON, |_| false);
        wanted.push((1, self.receive(world, to, 1, 2 * PIECE)));
        let over = |w: &World| {
            let ended =
                |c: u64, at: usize| w.hosts[at].done[marks[at]..].iter().any(|d| d.context == c);
            wanted.iter().all(|(_, (context, _))| ended(*context, to))
                && w.hosts[from].engine.is_idle()
        };
        world.run(SOON, over);
        for (tag, (context, base)) in wanted {
            let done = world.hosts[to].done[marks[to]..].iter().find(|c| c.context == context);
            let got = world.hosts[to].memory.get(base, 2 * PIECE);
            if done.is_none_or(|c| c.status.is_err()) || got.iter().any(|b| *b != tag as u8) {
                let text = format!("tag {tag}, left {left}: {done:?}");
                return Err(Finding::new("a message whose number was taken went wrong", text));
            }
        }
        for (at, mark) in marks.into_iter().enumerate() {
            let done = &mut world.hosts[at].done;
            if let Some(failed) = done[mark..].iter().find(|c| c.context > OWN && c.status.is_err())
            {
                return Err(judge::wrong("a message failed whose number was taken", at, failed));
            }
            let rest = done.split_off(mark);
            done.extend(rest.into_iter().filter(|c| c.context <= OWN));
        }
        Ok(())
    }
}
