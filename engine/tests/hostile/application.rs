//! An application that performs random operations and records their expected results.

use squall_base::{Rng, Time, UserSlice};
use squall_engine::*;

use super::counting::{self, Count, Counting};
use super::ordered::{self, Doing, Ordered, Turn};
use crate::world::{self, Lent, World, is_remote};

/// Message lengths that exercise every protocol: short, one packet, several packets, rendezvous.
const SIZES: [u32; 6] = [1, 40, 300, 3_000, 16_000, 60_000];
/// Matching spaces in which messages may arrive, since an attacker may redirect one to any space.
pub(super) const ALL_SPACES: [MatchSpace; 3] =
    [MatchSpace::Untagged, MatchSpace::Tagged, MatchSpace::Collective];
/// Length in bytes of a region. Peers read one region and write the other.
const REGION: u64 = 20_000;
/// The keys of the first regions. Regions that replace them have later keys. Writable ones have odd
/// keys.
const FIRST_KEY: u64 = 8;

/// Largest number of messages, and of keys, of one process.
pub(super) const LIFE: u64 = 1 << 16;

/// A message of this application to the other one.
pub(super) struct Sent {
    pub(super) space: MatchSpace,
    pub(super) tag: u64,
    pub(super) bytes: Vec<u8>,
    /// Address of the copy that the engine reads.
    pub(super) base: u64,
    /// The send completes only when the peer's engine has the message.
    pub(super) delivered: bool,
    /// Index of the operation that sends the message.
    pub(super) op: usize,
}

/// The kind of an operation. The index of the operation is its context.
pub(super) enum What {
    /// Sends the message with this serial number.
    Send(usize),
    /// Posts a receive, perhaps with a multi-receive buffer.
    Receive { multi: bool },
    /// Peeks. A message that is found is claimed or discarded.
    Peek { claims: bool },
    /// Receives a message that was claimed.
    Claim,
    /// Reads from offset `at` of the other side's region with this key.
    Read { key: u64, at: u64 },
    /// Writes to offset `at` of the other side's region with this key.
    Write { key: u64, at: u64 },
    /// Reads what this side itself writes, by operations before and behind this one.
    Reread { key: u64, at: u64 },
    /// Adds to one of the other side's counters.
    Count(Count),
}

pub(super) struct Op {
    pub(super) what: What,
    pub(super) base: u64,
    pub(super) len: u64,
    /// Number of completions of the operation, and the last status.
    pub(super) ended: u32,
    pub(super) status: Result<(), OpError>,
    /// Time at which the operation was submitted, and time at which its end was seen.
    pub(super) begun: Time,
    pub(super) over: Time,
    /// Success proves that the peer's application has the message, or executed the request.
    pub(super) proves: bool,
    /// The operation is fenced: it starts when all operations before it have ended, and operations
    /// behind it wait for it.
    pub(super) fence: bool,
    /// The length reported at the target with remote CQ data, if the operation has any.
    pub(super) reported: Option<u64>,
}

/// A region as both sides know it.
#[derive(Clone)]
pub(super) struct Region {
    pub(super) key: u64,
    pub(super) base: u64,
    pub(super) closed: bool,
    /// The initial bytes. A region that peers read never changes.
    pub(super) bytes: Vec<u8>,
}

pub(super) struct Application {
    pub(super) at: usize,
    rng: Rng,
    /// Serial number of the process's first message. Successive processes of a host continue the
    /// numbers.
    pub(super) first: u64,
    pub(super) ops: Vec<Op>,
    pub(super) sent: Vec<Sent>,
    /// All regions of this host, including closed ones.
    pub(super) regions: Vec<Region>,
    /// Number of completions that were examined.
    seen: usize,
    /// Receives for messages that arrive after the attack.
    standing: [Option<usize>; ALL_SPACES.len()],
    /// Atomics, in histories that have some.
    pub(super) counting: Option<Counting>,
    /// Operations whose order is judged, in histories that have some.
    pub(super) ordered: Option<Ordered>,
}

/// Returns the content of message `serial` of host `at`.
pub(super) fn content(at: usize, serial: usize, len: usize) -> Vec<u8> {
    world::content((at as u64) << 32 | serial as u64, len as u64)
}

impl Application {
    pub(super) fn new(at: usize, world: &mut World, seed: u64) -> Self {
        Self::reborn(at, 0, world, seed)
    }

    /// Creates the application of the `life`th process of its host.
    pub(super) fn reborn(at: usize, life: u64, world: &mut World, seed: u64) -> Self {
        let mut new = Self {
            at,
            rng: Rng::new(seed),
            first: life * LIFE,
            ops: Vec::new(),
            sent: Vec::new(),
            regions: Vec::new(),
            seen: 0,
            standing: [None; ALL_SPACES.len()],
            counting: None,
            ordered: None,
        };
        new.open_region(world, new.first + FIRST_KEY);
        new.open_region(world, new.first + FIRST_KEY + 1);
        new
    }

    /// Enables atomics among the operations.
    pub(super) fn counts(mut self, world: &mut World, seed: u64) -> Self {
        let memory = &mut world.hosts[self.at].memory;
        self.counting = Some(Counting::new(memory, self.first, self.first / LIFE, seed));
        self
    }

    /// Enables operations whose order is judged. `promised` is the order that the endpoint
    /// promises.
    pub(super) fn orders(mut self, world: &mut World, promised: bool, seed: u64) -> Self {
        let memory = &mut world.hosts[self.at].memory;
        self.ordered = Some(Ordered::new(memory, self.first, promised, seed));
        self
    }

    /// Returns the region that had this key at some time.
    pub(super) fn region(&self, key: u64) -> Option<&Region> {
        let ordered = self.ordered.iter().map(|ordered| &ordered.region);
        self.regions.iter().chain(ordered).find(|region| region.key == key)
    }

    /// Returns whether a completion reports the end of an operation, examined or not.
    pub(super) fn has_seen_end(&self, world: &World, op: usize) -> bool {
        let new = world.hosts[self.at].done.get(self.seen..).unwrap_or_default();
        let ends = |done: &Completion| {
            done.context == op as u64 && done.kind != OpKind::Recv && !is_remote(done.kind)
        };
        self.ops[op].ended > 0 || new.iter().any(ends)
    }

    /// Performs a random action.
    pub(super) fn act(&mut self, world: &mut World) {
        let ordered = ordered::key_of(world, 1 - self.at, LIFE);
        if let (Some(ordered), Some(key)) = (&mut self.ordered, ordered)
            && let Some(turn) = ordered.turn()
        {
            return self.ordered(world, key, turn);
        }
        let counters = counting::key_of(world, 1 - self.at, LIFE);
        if let (Some(counting), Some(key)) = (&mut self.counting, counters)
            && let Some(count) = counting.turn(key)
        {
            return self.count(world, count);
        }
        match self.rng.below(24) {
            0..=8 => self.send(world, false),
            9..=14 => self.receive(world),
            15 => self.peek(world),
            16..=17 => self.read(world),
            18..=19 => self.write(world),
            20 => {
                let some = self.rng.below(self.ops.len() as u32 + 1);
                world.hosts[self.at].engine.cancel(world.now, u64::from(some));
            }
            21 if self.rng.chance(0.3) => self.replace_region(world),
            _ => {
                let wait = squall_base::Span::millis(u64::from(self.rng.below(1500)));
                let end = world.now + wait;
                for _ in 0..self.rng.below(400) {
                    if !world.step_before(end) {
                        break;
                    }
                }
            }
        }
    }

    /// Examines new completions, and receives claimed messages.
    pub(super) fn reap(&mut self, world: &mut World) {
        while let Some(done) = world.hosts[self.at].done.get(self.seen).cloned() {
            self.seen += 1;
            if is_remote(done.kind) {
                continue;
            }
            let Some(op) = self.ops.get_mut(done.context as usize) else { continue };
            let last = done.kind != OpKind::Recv
                || done.released
                || !matches!(op.what, What::Receive { multi: true });
            op.ended += u32::from(last);
            (op.status, op.over) = (done.status, world.now);
            if matches!(op.what, What::Peek { claims: true }) && done.status.is_ok() {
                self.claim(world, done.context);
            }
        }
    }

    /// Returns whether there are completions that were not examined.
    pub(super) fn has_news(&self, world: &World) -> bool {
        self.seen < world.hosts[self.at].done.len()
    }

    /// After the attack, keeps a receive posted for any message.
    pub(super) fn welcome(&mut self, world: &mut World) {
        for (n, space) in ALL_SPACES.into_iter().enumerate() {
            if self.standing[n].is_none_or(|op| self.ops[op].ended > 0) {
                self.standing[n] = Some(self.ops.len());
                let wanted = (space, 0, u64::MAX, None);
                self.post(
                    world,
                    RecvMode::Post,
                    wanted,
                    u64::from(SIZES[5]),
                    What::Receive { multi: false },
                );
            }
        }
    }

    /// Returns whether all operations except receives have ended, and no message waits for a
    /// receive.
    pub(super) fn is_over(&self, world: &World) -> bool {
        let waits = |op: &Op| op.ended == 0 && !matches!(op.what, What::Receive { .. });
        world.hosts[self.at].engine.unexpected_messages() == 0 && !self.ops.iter().any(waits)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ops.iter().all(|op| op.ended > 0)
    }

    /// Cancels all receives that can be cancelled.
    pub(super) fn cancel_all(&mut self, world: &mut World) {
        for (context, op) in self.ops.iter().enumerate() {
            if op.ended == 0 && matches!(op.what, What::Receive { .. }) {
                world.hosts[self.at].engine.cancel(world.now, context as u64);
            }
        }
        // The completion of a cancelled receive is polled together with packets.
        world.step_before(world.now);
    }

    fn send(&mut self, world: &mut World, fenced: bool) {
        let (space, tag) = self.envelope();
        let len = self.size();
        let serial = self.first + self.sent.len() as u64;
        let bytes = content(self.at, serial as usize, len as usize);
        let base = world.hosts[self.at].memory.put(&bytes);
        let levels =
            [Level::Default, Level::Inject, Level::Transmit, Level::Delivery, Level::Match];
        let options = Options {
            inject: len <= 256 && self.rng.chance(0.4),
            level: levels[self.rng.below(5) as usize],
            visibility: Visibility::Entry,
            fence: self.rng.chance(0.05) || fenced,
        };
        // The data identify the message.
        let data = Some(serial);
        let op = Operation {
            peer: world.peer(self.at, 1 - self.at),
            action: Action::Message { space, tag },
            buf: self.pieces(base, len),
            data,
            context: self.ops.len() as u64,
            options,
        };
        if world.submit(self.at, op).is_err() {
            return;
        }
        let number = self.sent.len();
        let delivered = matches!(options.level, Level::Transmit | Level::Delivery | Level::Match);
        self.sent.push(Sent { space, tag, bytes, base, delivered, op: self.ops.len() });
        let proves = options.level == Level::Match;
        let context = self.begin(world, What::Send(number), (base, len), proves);
        self.ops[context as usize].fence = options.fence;
        if options.inject {
            world.hosts[self.at].memory.revoke(base);
        } else {
            lend(world, self.at, context, base, false);
        }
    }

    fn receive(&mut self, world: &mut World) {
        let (space, tag) = self.envelope();
        let ignore = match space {
            MatchSpace::Tagged => [0, 0, 3, u64::MAX][self.rng.below(4) as usize],
            MatchSpace::Untagged | MatchSpace::Collective => 0,
        };
        let source = self.rng.chance(0.5).then(|| world.peer(self.at, 1 - self.at));
        let multi = self.rng.chance(0.15);
        let mode = if multi { RecvMode::Multi { least: 500 } } else { RecvMode::Post };
        let room = if self.rng.chance(0.8) { 60_000 } else { self.size() };
        self.post(world, mode, (space, tag, ignore, source), room, What::Receive { multi });
    }

    fn post(
        &mut self,
        world: &mut World,
        mode: RecvMode,
        (space, tag, ignore, source): (MatchSpace, u64, u64, Option<PeerId>),
        room: u64,
        what: What,
    ) {
        let base = world.hosts[self.at].memory.alloc(room as usize);
        let multi = matches!(mode, RecvMode::Multi { .. });
        let buf = if multi { Buf::new(base, room) } else { self.pieces(base, room) };
        let context = self.begin(world, what, (base, room), false);
        lend(world, self.at, context, base, multi);
        let visibility = Visibility::Entry;
        let op = RecvOp { mode, source, space, tag, ignore, buf, context, visibility };
        let host = &mut world.hosts[self.at];
        host.engine.receive(world.now, &mut host.memory, op).expect("receives are not refused");
    }

    /// Peeks for a message, to discard or claim it.
    fn peek(&mut self, world: &mut World) {
        let (space, tag) = self.envelope();
        let claims = self.rng.chance(0.5);
        let mode = if claims { RecvMode::PeekClaim } else { RecvMode::PeekDiscard };
        let context = self.begin(world, What::Peek { claims }, (0, 0), false);
        let op = RecvOp {
            mode,
            source: None,
            space,
            tag,
            ignore: 3,
            buf: Buf::Empty,
            context,
            visibility: Visibility::Entry,
        };
        let host = &mut world.hosts[self.at];
        host.engine.receive(world.now, &mut host.memory, op).expect("a look is not refused");
    }

    fn claim(&mut self, world: &mut World, claimed: u64) {
        let room = u64::from(SIZES[5]);
        let base = world.hosts[self.at].memory.alloc(room as usize);
        // The claim has the context of its peek.
        let op = &mut self.ops[claimed as usize];
        (op.what, op.base, op.len, op.ended) = (What::Claim, base, room, 0);
        lend(world, self.at, claimed, base, false);
        let op = RecvOp {
            mode: RecvMode::Claim,
            source: None,
            space: MatchSpace::Untagged,
            tag: 0,
            ignore: 0,
            buf: Buf::new(base, room),
            context: claimed,
            visibility: Visibility::Entry,
        };
        let host = &mut world.hosts[self.at];
        host.engine.receive(world.now, &mut host.memory, op).expect("the message was claimed");
    }

    /// Reads from a region of the other side, which may be closed by now.
    fn read(&mut self, world: &mut World) {
        let key = self.remote_key(world, 0);
        let len = u64::from(self.rng.below(REGION as u32 / 2));
        let at = u64::from(self.rng.below((REGION - len) as u32 + 1));
        let base = world.hosts[self.at].memory.alloc(len as usize);
        let remote = self.remote(key, at, len);
        let what = What::Read { key, at };
        self.one_sided(world, Action::Read(remote), what, (base, len), (false, false));
    }

    fn write(&mut self, world: &mut World) {
        let key = self.remote_key(world, 1);
        let len = u64::from(self.rng.below(2000));
        // Only this side writes there, and the offset depends on the operation's index, so nothing
        // was written there before.
        let at = self.ops.len() as u64 * 2000 % (REGION - 2000);
        let taken =
            |op: &Op| matches!(op.what, What::Write { key: k, at: a } if (k, a) == (key, at));
        if self.ops.iter().any(taken) {
            return;
        }
        let bytes = content(2 + self.at, self.ops.len(), len as usize);
        let base = world.hosts[self.at].memory.put(&bytes);
        let remote = self.remote(key, at, len);
        let reports = self.rng.chance(0.5);
        let what = What::Write { key, at };
        self.one_sided(world, Action::Write(remote), what, (base, len), (reports, false));
    }

    /// Performs an operation whose order is judged, on the other side's region with this key.
    fn ordered(&mut self, world: &mut World, key: u64, turn: Turn) {
        let Turn { doing, at, len, fence } = turn;
        match doing {
            Doing::Write { reports } => {
                let bytes = content(2 + self.at, self.ops.len(), len as usize);
                let base = world.hosts[self.at].memory.put(&bytes);
                let remote = self.remote(key, at, len);
                let what = What::Write { key, at };
                self.one_sided(world, Action::Write(remote), what, (base, len), (reports, fence));
            }
            Doing::Read => {
                let base = world.hosts[self.at].memory.alloc(len as usize);
                let remote = self.remote(key, at, len);
                let what = What::Reread { key, at };
                self.one_sided(world, Action::Read(remote), what, (base, len), (false, fence));
            }
            Doing::Send => self.send(world, true),
        }
    }

    fn count(&mut self, world: &mut World, count: Count) {
        let (op, operand, result) = counting::operation(world, self.at, count);
        let op = Operation { context: self.ops.len() as u64, ..op };
        let taken = world.submit(self.at, op).is_ok();
        world.hosts[self.at].memory.revoke(operand);
        if taken {
            let context = self.begin(world, What::Count(count), (result, 8), true);
            lend(world, self.at, context, result, false);
        }
    }

    fn one_sided(
        &mut self,
        world: &mut World,
        action: Action,
        what: What,
        (base, len): (u64, u64),
        (reports, fence): (bool, bool),
    ) {
        // The data are unique among all operations of all processes.
        let data = reports.then_some(self.first + self.ops.len() as u64);
        let op = Operation {
            peer: world.peer(self.at, 1 - self.at),
            action,
            buf: self.pieces(base, len),
            data,
            context: self.ops.len() as u64,
            options: Options { fence, ..Options::default() },
        };
        if world.submit(self.at, op).is_ok() {
            let context = self.begin(world, what, (base, len), true);
            let op = &mut self.ops[context as usize];
            (op.fence, op.reported) = (fence, data.map(|_| len));
            lend(world, self.at, context, base, false);
        }
    }

    fn begin(&mut self, world: &World, what: What, (base, len): (u64, u64), proves: bool) -> u64 {
        let (begun, over) = (world.now, Time::NEVER);
        let (status, fence, reported) = (Ok(()), false, None);
        self.ops.push(Op {
            what,
            base,
            len,
            ended: 0,
            status,
            begun,
            over,
            proves,
            fence,
            reported,
        });
        self.ops.len() as u64 - 1
    }

    fn open_region(&mut self, world: &mut World, key: u64) {
        let bytes = content(4 + self.at, key as usize, REGION as usize);
        let memory = &mut world.hosts[self.at].memory;
        let base = memory.put(&bytes);
        let written = key % 2 == 1;
        memory.register(key, base, REGION, !written, written);
        self.regions.push(Region { key, base, closed: false, bytes });
    }

    /// Closes a region, although operations may use it, and opens another one.
    fn replace_region(&mut self, world: &mut World) {
        let next = self.regions[self.regions.len() - 1].key + 2;
        for region in &mut self.regions {
            if !region.closed {
                region.closed = true;
                world.unregister(self.at, region.key);
            }
        }
        self.open_region(world, next & !1);
        self.open_region(world, next | 1);
    }

    /// Returns the key of a region of the other side: the latest, or the one before.
    fn remote_key(&mut self, world: &World, parity: u64) -> u64 {
        let keys = world.hosts[1 - self.at].memory.regions.keys();
        let latest = keys.copied().filter(|key| key % 2 == parity).max().expect("a region is open");
        let before = latest.saturating_sub(2).max(FIRST_KEY + parity);
        if self.rng.chance(0.9) { latest } else { before }
    }

    fn remote(&mut self, key: u64, at: u64, len: u64) -> RemoteIov {
        if len < 2 || self.rng.chance(0.7) {
            return RemoteIov::One(RemoteSeg { address: at, len, key });
        }
        let cut = 1 + u64::from(self.rng.below((len - 1) as u32));
        RemoteIov::Many(Box::new([
            RemoteSeg { address: at, len: cut, key },
            RemoteSeg { address: at + cut, len: len - cut, key },
        ]))
    }

    fn envelope(&mut self) -> (MatchSpace, u64) {
        if self.rng.chance(0.8) {
            (MatchSpace::Tagged, u64::from(self.rng.below(4)))
        } else {
            (MatchSpace::Untagged, 0)
        }
    }

    fn size(&mut self) -> u64 {
        let top = SIZES[self.rng.below(6) as usize];
        u64::from(self.rng.below(top))
    }

    /// Sometimes splits a buffer.
    fn pieces(&mut self, base: u64, len: u64) -> Buf {
        if len < 3 || self.rng.chance(0.7) {
            return Buf::new(base, len);
        }
        let cut = 1 + u64::from(self.rng.below((len - 2) as u32));
        let pieces = [UserSlice::lent(base, cut), UserSlice::lent(base + cut, len - cut)];
        Buf::from_slices(&pieces)
    }
}

fn lend(world: &mut World, at: usize, context: u64, base: u64, multi: bool) {
    world.hosts[at].lent.insert(context, Lent { base, multi });
}
