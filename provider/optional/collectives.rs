//! Collective operations (fi_collective(3)), on messages of our own that no other message meets.
//!
//! libfabric's own collective provider is no help: 1.17 as it is distributed has none, and later ones reach theirs by
//! flags and objects that are internal to the library.
//!
//! An operation has memory of its own, into which the values are copied when it is called, and out of which the result
//! is copied at its end, both from and to memory of any kind; what happens between says its [`Schedule`]. All messages
//! of an operation have the same tag, which follows from the group's key and the number of the group's earlier
//! operations. So operations of one or several groups may be in progress at once.
//!
//! A join creates the key, by an all-reduce (exclusive or) of one 64-bit number from each member: a hash of the
//! member's instance and of the number of joins that it has called. So every join has a new key, and all members have
//! the same one, whatever each of them remembers of earlier joins; a member that was restarted at its address remembers
//! none. The tag of a join follows from the members' addresses alone, so each endpoint runs joins of the same members
//! one after the other. A join that the application leaves before its end goes on: otherwise the next join would
//! receive messages of this one.
//!
//! The end of every operation writes an entry into the completion queue for transmissions, even with
//! FI_SELECTIVE_COMPLETION and without FI_COMPLETION. libfabric's own collective provider does so, and applications
//! wait for the entry (ROFI).
//!
//! The next round begins when everything of the last has ended. The thread that drives the endpoint
//! begins it, which may be background progress (`background.rs`); the application need not call.
//! The application sees the end, in its buffer and its queue, in a turn of its own or of the
//! domain's thread. A join shows in an event queue, which is the fabric's: at once.
//!
//! If a member cannot go on, because another is gone, it still sends its messages, but marked. The
//! receiver of a marked message ends with an error and marks the messages that it sends. So no
//! member waits for another that is still there.

pub(crate) mod group;
mod schedule;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use squall_base::Instance;
use squall_engine::{
    Action, AmoOp, AmoType, Buf, Completion, MatchSpace, OpError, OpKind, Operation, Options,
    RecvMode, RecvOp, SubmitError, Visibility, atomic_combine,
};

use crate::abi::errno::{Errno, Result};
use crate::abi::flags::{self, ADDR_UNSPEC};
use crate::av::AvSet;
use crate::clock;
use crate::device_memory::{self, Bounce, CopyDirection};
use crate::endpoint::bindings::Bindings;
use crate::endpoint::endpoint_core::Core;
use crate::mr::UserMemory;
use crate::network::addr::Name;
use crate::queues::cq::{Entry, ErrorEntry};
use crate::reports::fault::Fault;

use schedule::{Kind, Local, Piece, Round, Schedule, schedule};

/// Bit of the engine's contexts of collective operations (`staging.rs` and `optional/triggered_work.rs` use others).
const OURS: u64 = 1 << 61;
/// Remote CQ data that marks a message of a member that cannot go on with an operation.
const MARK: u64 = 1;
/// Size of the key of a group of endpoints, in bytes.
const KEY_SIZE: usize = size_of::<u64>();
/// The operation that combines the members' parts of a key. The order in which they are combined must not matter.
const KEY_FROM_PARTS: (AmoOp, AmoType) = (AmoOp::Bxor, AmoType::Uint64);

/// Spreads the bits of a number (the finaliser of splitmix64; Steele, Lea and Flood, OOPSLA 2014).
const fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Returns a member's part of a group's key. The part differs for every member, every join, and every endpoint at an
/// address.
fn key_part(instance: u32, joins: u32, rank: usize) -> u64 {
    mix(mix(u64::from(instance) << 32 | u64::from(joins)) ^ rank as u64)
}

/// A group of endpoints that call collective operations together.
#[derive(Clone)]
pub(crate) struct Group {
    /// The members' addresses (`fi_addr_t`), by rank in the group.
    members: Arc<[u64]>,
    rank: usize,
    /// A number that all members of the group share and no other group has. Until the join has ended, it follows from
    /// the members' addresses alone.
    key: u64,
    /// Number of collective operations that were called on the group.
    calls: u64,
}

impl Group {
    /// Returns the group of the members of a set, of which the endpoint with this name must be one.
    ///
    /// # Errors
    /// `FI_EINVAL`.
    pub(crate) fn of(set: &AvSet, own: Name) -> Result<Self> {
        let members = set.members();
        let addresses = set.av().addresses();
        let (mut key, mut rank) = (mix(members.len() as u64), None);
        for (n, member) in members.iter().enumerate() {
            let name = addresses.get(*member).ok_or(Errno::INVAL)?;
            for byte in name.addr.to_string().bytes() {
                key = mix(key ^ u64::from(byte));
            }
            if name.addr == own.addr {
                rank = Some(n);
            }
        }
        let rank = rank.ok_or_else(|| {
            log::info!(
                "fi_join_collective refused: the set does not contain this endpoint, {}",
                own.addr
            );
            Errno::INVAL
        })?;
        Ok(Self { members: members.into(), rank, key, calls: 0 })
    }

    /// Returns the rank of a member in the group.
    ///
    /// # Errors
    /// `FI_EINVAL` for an address that is not a member.
    fn rank_of(&self, member: u64) -> Result<usize> {
        self.members.iter().position(|known| *known == member).ok_or(Errno::INVAL)
    }
}

/// The kind of a collective operation. A root is an address.
#[derive(Clone, Copy)]
pub(crate) enum CollectiveKind {
    Barrier,
    Broadcast(u64),
    AllToAll,
    AllReduce,
    AllGather,
    ReduceScatter,
    Reduce(u64),
    Scatter(u64),
    Gather(u64),
}

/// The arguments of a collective call. Its buffers may be in memory of any kind.
pub(crate) struct CollectiveCall {
    pub(crate) kind: CollectiveKind,
    /// The group of the operation, as the application names it (`fi_mc_addr`).
    pub(crate) group: u64,
    /// Bytes of one member's share of the values.
    pub(crate) block: usize,
    /// The operation that combines the members' values, and their type, if the call combines values.
    pub(crate) combine: Option<(AmoOp, AmoType)>,
    /// The addresses of the values and of the results, as far as this member has any.
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) spaces: [squall_base::Space; 2],
    pub(crate) context: u64,
}

/// The object that the end of an operation is reported to.
pub(crate) enum EndReport {
    /// The end is reported to the completion queue for transmissions.
    Call { context: u64, result: Option<squall_base::UserSlice> },
    /// The end of a join is reported to the event queue.
    Join { fid: usize, context: usize },
    /// The end is not reported, because the application has left the group.
    Nobody,
}

/// A collective operation that is in progress.
struct ActiveOperation {
    group: u64,
    members: Arc<[u64]>,
    tag: u64,
    schedule: Schedule,
    /// The memory of the operation. No operation of the engine refers to it while `pending` is 0.
    memory: Bounce,
    combine: Option<(AmoOp, AmoType)>,
    /// Index of the current round of the operation's schedule.
    at: usize,
    begun: bool,
    /// The engine had no room yet for the send of the current round.
    unsent: bool,
    /// Number of sends and receives of the current round that have not ended.
    pending: u32,
    failed: Option<OpError>,
    end: EndReport,
    /// The group that this operation joins, if the operation is a join.
    joins: Option<Group>,
}

/// The groups that an endpoint has joined, and their collective operations.
#[derive(Default)]
pub(crate) struct Collectives {
    groups: HashMap<u64, Group>,
    /// Number of joins that the endpoint has called.
    joins: u32,
    running: HashMap<u64, ActiveOperation>,
    /// Members that cannot be reached any more, by group and rank: a receive from one of whom nothing was heard since
    /// would wait for ever.
    gone: HashSet<(u64, usize)>,
    /// Operations of which a send or a receive has ended, so that they may go on.
    ready: Vec<u64>,
    /// Operations for whose send or receive the engine had no room.
    blocked: Vec<u64>,
    /// Operations that have ended and whose end was not reported yet.
    over: Vec<ActiveOperation>,
    next: u64,
    /// The application was warned that no queue or counter shows it the end of its operations.
    warned: bool,
}

impl Collectives {
    /// Returns whether any collective operation can go on or must be reported.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        !self.ready.is_empty() || self.is_blocked() || !self.over.is_empty()
    }

    /// Returns whether any collective operation waits for room in the engine, which no event announces.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// Returns whether any collective operation is in progress.
    pub(crate) fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// Returns whether the endpoint is joining a group.
    pub(crate) fn is_joining(&self) -> bool {
        self.running.values().any(|running| matches!(running.end, EndReport::Join { .. }))
    }

    /// Handles a completion if it is one of a collective operation. Returns whether it was.
    pub(crate) fn end(&mut self, done: &Completion) -> bool {
        if done.context & OURS == 0 || done.space != MatchSpace::Collective {
            return false;
        }
        let id = (done.context & !OURS) >> 1;
        let Some(running) = self.running.get_mut(&id) else { return true };
        running.pending -= 1;
        let round = running.schedule.rounds.get(running.at);
        let expected = round.and_then(|round| round.receive);
        let other =
            if done.kind == OpKind::Recv { expected } else { round.and_then(|round| round.send) };
        let own = matches!(
            done.status,
            Ok(()) | Err(OpError::Truncated { .. } | OpError::Cancelled | OpError::Uncopied)
        );
        if let (Some((rank, _)), false) = (other, own) {
            self.gone.insert((running.group, rank));
        }
        let failed = match done.status {
            Err(error) => Some(error),
            Ok(()) if done.kind != OpKind::Recv => None,
            Ok(()) if done.data == Some(MARK) => Some(OpError::Closed),
            // A member called with another count.
            Ok(()) if expected.is_some_and(|(_, piece)| piece.len as u64 != done.len) => {
                Some(OpError::Truncated { excess: 0 })
            }
            Ok(()) => None,
        };
        running.failed = running.failed.or(failed);
        if running.pending == 0 {
            self.ready.push(id);
        }
        true
    }

    fn start(&mut self, running: ActiveOperation) {
        self.next += 1;
        let waits = running.joins.is_some() && self.next_join(running.tag).is_some();
        self.running.insert(self.next, running);
        if !waits {
            self.ready.push(self.next);
        }
    }

    /// Returns the first join with this tag that has not ended. Joins with the same tag run one after the other,
    /// because their messages have the same tag.
    fn next_join(&self, tag: u64) -> Option<u64> {
        let all = self.running.iter();
        let same = all.filter(|(_, running)| running.joins.is_some() && running.tag == tag);
        same.map(|(id, _)| *id).min()
    }

    /// Ends a join, if the operation is one; the caller has removed it from the running operations. The group exists
    /// from now on, unless the join failed or the application has left the group, and the next join of the same members
    /// begins.
    fn end_join(&mut self, running: &mut ActiveOperation) {
        let Some(mut group) = running.joins.take() else { return };
        if running.failed.is_none() && matches!(running.end, EndReport::Join { .. }) {
            group.key = mix(group.key ^ running.key());
            self.groups.insert(running.group, group);
        } else {
            self.gone.retain(|(group, _)| *group != running.group);
        }
        let next = self.next_join(running.tag);
        self.ready.extend(next);
    }

    /// Warns, once, if neither a queue nor a counter shows the application that its operations have ended.
    fn warn_if_unobserved(&mut self, bindings: &Bindings) {
        let seen = bindings.queue(OpKind::Update).is_some() || bindings.counts(OpKind::Update);
        if !seen && !core::mem::replace(&mut self.warned, true) {
            log::warn!(
                "nothing reports the end of collective operations: the endpoint has neither a completion queue for \
                 FI_TRANSMIT nor a counter for FI_WRITE; bind one before calling them"
            );
        }
    }
}

impl ActiveOperation {
    fn new(group: u64, of: &Group, schedule: Schedule, end: EndReport) -> Result<Self> {
        Ok(Self {
            group,
            members: Arc::clone(&of.members),
            tag: mix(of.key ^ mix(of.calls)),
            memory: Bounce::zeroed(schedule.size).ok_or(Errno::NOMEM)?,
            schedule,
            combine: None,
            at: 0,
            begun: false,
            unsent: false,
            pending: 0,
            failed: None,
            end,
            joins: None,
        })
    }

    /// Builds the operation by which a member joins `group`. `part` is this member's part of the group's key.
    fn new_join(address: u64, group: Group, part: u64, end: EndReport) -> Result<Self> {
        let agreement = schedule(Kind::AllReduce, group.rank, group.members.len(), KEY_SIZE);
        let mut running = Self::new(address, &group, agreement.ok_or(Errno::NOMEM)?, end)?;
        running.combine = Some(KEY_FROM_PARTS);
        // SAFETY: the memory of an all-reduce begins with the member's own values, KEY_SIZE bytes here, and is new:
        // nothing else names it. An array of bytes has no alignment.
        unsafe { running.memory.at(0).cast::<[u8; KEY_SIZE]>().write(part.to_ne_bytes()) };
        running.joins = Some(group);
        Ok(running)
    }

    /// Returns the key that all members have agreed on, when a join has ended.
    fn key(&self) -> u64 {
        debug_assert!(self.schedule.size >= KEY_SIZE && self.pending == 0);
        // SAFETY: the memory of an all-reduce begins with the result, KEY_SIZE bytes for a join, all initialised; no
        // operation of the engine names it, for `pending` is 0. An array of bytes has no alignment.
        u64::from_ne_bytes(unsafe { self.memory.at(0).cast::<[u8; KEY_SIZE]>().read() })
    }

    /// Computes the local part of a round: copies and combinations of values.
    fn compute(&mut self) {
        let Some(round) = self.schedule.rounds.get(self.at) else { return };
        for local in &round.then {
            // SAFETY: the schedule's places are inside of its size, which the memory has, all of it initialised; no
            // operation of the engine names it, for `pending` is 0, and no other code has it: the reference is the only
            // one.
            let memory =
                unsafe { core::slice::from_raw_parts_mut(self.memory.at(0), self.schedule.size) };
            match (*local, self.combine) {
                (Local::Copy { from, to, len }, _) => memory.copy_within(from..from + len, to),
                (Local::Fold { first, second, to, len }, Some(how)) => {
                    let mut new = vec![0; len];
                    let (first, second) =
                        (&memory[first..first + len], &memory[second..second + len]);
                    atomic_combine(how, first, second, &mut new);
                    memory[to..to + len].copy_from_slice(&new);
                }
                (Local::Fold { .. }, None) => {}
            }
        }
    }
}

impl Core {
    /// Begins to join a group of endpoints for collective operations.
    ///
    /// # Errors
    /// `FI_ENOMEM`.
    pub(crate) fn join_group(
        &mut self,
        bindings: &Bindings,
        address: u64,
        group: Group,
        end: EndReport,
    ) -> Result<()> {
        let instance = self.name().instance.map_or(0, Instance::get);
        let all = self.optional.collectives.get_or_insert_default();
        all.joins = all.joins.wrapping_add(1);
        let part = key_part(instance, all.joins, group.rank);
        all.start(ActiveOperation::new_join(address, group, part, end)?);
        self.finish_collectives(bindings);
        Ok(())
    }

    /// Leaves a group. Its operations in progress end without a completion, once the memory that they lend is released.
    /// A join runs to its end without an event.
    pub(crate) fn leave_group(&mut self, bindings: &Bindings, address: u64) {
        let Some(all) = &mut self.optional.collectives else { return };
        all.groups.remove(&address);
        all.gone.retain(|(group, _)| *group != address);
        let mut ids = Vec::new();
        for (id, running) in &mut all.running {
            if running.group == address {
                running.end = EndReport::Nobody;
                if running.joins.is_none() {
                    ids.push(*id);
                }
            }
        }
        let now = clock::now();
        for id in ids {
            self.engine.cancel(now, OURS | id << 1 | 1);
        }
        self.deliver_completions(bindings);
        self.finish_collectives(bindings);
    }

    /// Begins a collective operation of a group.
    ///
    /// # Errors
    /// `FI_EINVAL` for a group that is not there, or a root that is not in it; `FI_ENOMEM`, `FI_EIO` when the values cannot
    /// be copied.
    ///
    /// # Safety
    /// The values and results that `call` names, as many bytes as the operation has here, stay mapped and are the
    /// endpoint's to read and write until the completion.
    pub(crate) unsafe fn start_collective(
        &mut self,
        bindings: &Bindings,
        call: &CollectiveCall,
    ) -> Result<()> {
        let all = self.optional.collectives.as_mut().ok_or(Errno::INVAL)?;
        let group = all.groups.get_mut(&call.group).ok_or_else(|| {
            log::info!(
                "collective refused: coll_addr {:#x} is no group that this endpoint has joined; wait for FI_JOIN_COMPLETE",
                call.group
            );
            Errno::INVAL
        })?;
        let kind = match call.kind {
            CollectiveKind::Barrier => Kind::Barrier,
            CollectiveKind::Broadcast(root) => Kind::Broadcast { root: group.rank_of(root)? },
            CollectiveKind::AllToAll => Kind::AllToAll,
            CollectiveKind::AllReduce => Kind::AllReduce,
            CollectiveKind::AllGather => Kind::AllGather,
            CollectiveKind::ReduceScatter => Kind::ReduceScatter,
            CollectiveKind::Reduce(root) => Kind::Reduce { root: group.rank_of(root)? },
            CollectiveKind::Scatter(root) => Kind::Scatter { root: group.rank_of(root)? },
            CollectiveKind::Gather(root) => Kind::Gather { root: group.rank_of(root)? },
        };
        let plan = schedule(kind, group.rank, group.members.len(), call.block);
        let plan = plan.ok_or(Errno::MSGSIZE)?;
        let slice = |at: u64, space, piece: Piece| {
            if at == 0 && piece.len > 0 {
                return Err(Errno::INVAL);
            }
            Ok(squall_base::UserSlice {
                space,
                ..squall_base::UserSlice::lent(at, piece.len as u64)
            })
        };
        let input = plan.input.map(|piece| slice(call.input, call.spaces[0], piece)).transpose()?;
        let result =
            plan.output.map(|piece| slice(call.output, call.spaces[1], piece)).transpose()?;
        let end = EndReport::Call { context: call.context, result };
        let numbered = Group { calls: group.calls + 1, ..group.clone() };
        let mut running = ActiveOperation::new(call.group, &numbered, plan, end)?;
        running.combine = call.combine;
        if let (Some(from), Some(piece)) = (input, running.schedule.input) {
            // SAFETY: the place is inside of the memory, which is new; the values may be read by this function's
            // contract.
            unsafe {
                device_memory::copy(CopyDirection::ToHost, from, running.memory.at(piece.at))
            }
            .map_err(|error| {
                log::warn!("cannot copy the values of a collective operation: {error}");
                Errno::IO
            })?;
        }
        group.calls += 1;
        all.start(running);
        all.warn_if_unobserved(bindings);
        self.finish_collectives(bindings);
        Ok(())
    }

    /// Continues operations as [`Core::advance_collectives`] does, and reports the end of those that have ended.
    #[cold]
    #[inline(never)]
    pub(crate) fn finish_collectives(&mut self, bindings: &Bindings) {
        self.advance_collectives(bindings);
        // What ended meanwhile besides rounds.
        self.deliver_completions(bindings);
        let over = self.optional.collectives.as_mut().map(|all| core::mem::take(&mut all.over));
        over.into_iter().flatten().for_each(|running| report_end(bindings, running));
    }

    /// Continues operations of which a part has ended, or that found no room, without reporting anything to the
    /// application.
    #[cold]
    #[inline(never)]
    pub(crate) fn advance_collectives(&mut self, bindings: &Bindings) {
        let Some(all) = &mut self.optional.collectives else { return };
        let blocked = core::mem::take(&mut all.blocked);
        all.ready.extend(blocked);
        loop {
            let Some(all) = &mut self.optional.collectives else { return };
            // What waits here already ends at once.
            while let Some(done) = self.engine.poll_completion_of(MatchSpace::Collective) {
                all.end(&done);
            }
            let Some(id) = all.ready.pop() else { return };
            let Some(mut running) = all.running.remove(&id) else { continue };
            let over = advance_rounds(self, bindings, id, &mut running);
            let Some(all) = &mut self.optional.collectives else { return };
            if over {
                all.end_join(&mut running);
            }
            match running.end {
                EndReport::Join { fid, context } if over => {
                    let error = running.failed.map(|error| Fault::of(error).row().errno);
                    bindings.report_join(fid, context, error);
                }
                _ if over => all.over.push(running),
                _ => {
                    if running.unsent {
                        all.blocked.push(id);
                    }
                    all.running.insert(id, running);
                }
            }
            if all.ready.is_empty() {
                self.flush(clock::now());
            }
        }
    }
}

/// Begins the next rounds of an operation, as far as they can begin. Returns whether the operation has ended.
fn advance_rounds(
    core: &mut Core,
    bindings: &Bindings,
    id: u64,
    running: &mut ActiveOperation,
) -> bool {
    loop {
        if running.unsent {
            send(core, bindings, id, running);
        }
        if running.pending > 0 || running.unsent {
            return false;
        }
        if running.begun {
            running.compute();
            running.at += 1;
            running.begun = false;
        }
        let left = matches!(running.end, EndReport::Nobody) && running.joins.is_none();
        let Some(round) = running.schedule.rounds.get(running.at).filter(|_| !left) else {
            return true;
        };
        let receive = round.receive;
        running.unsent = round.send.is_some();
        running.begun = true;
        if let Some((from, piece)) = receive {
            receive_from(core, bindings, id, running, from, piece);
        }
    }
}

fn receive_from(
    core: &mut Core,
    bindings: &Bindings,
    id: u64,
    running: &mut ActiveOperation,
    from: usize,
    piece: Piece,
) {
    let Some(av) = &bindings.av else { return };
    if is_member_lost(core, running, from) {
        running.failed = running.failed.or(Some(OpError::Closed));
        return;
    }
    let source = match core.peers.peer(av, &mut core.engine, running.members[from]) {
        Ok(peer) => peer,
        // Removed from the vector: it will not be heard of.
        Err(_) => {
            running.failed = running.failed.or(Some(OpError::Closed));
            return;
        }
    };
    let op = RecvOp {
        mode: RecvMode::Post,
        source: Some(source),
        space: MatchSpace::Collective,
        tag: running.tag,
        ignore: 0,
        buf: Buf::One(
            running.memory.slice(running.schedule.size).part(piece.at as u64, piece.len as u64),
        ),
        context: OURS | id << 1 | 1,
        visibility: Visibility::Kept,
    };
    // Counted before it is posted: it may end in the call; its completion is looked at later.
    running.pending += 1;
    if core.engine.receive(clock::now(), &mut UserMemory(&core.regions), op).is_err() {
        running.pending -= 1;
        running.failed = running.failed.or(Some(OpError::Closed));
    }
}

/// Returns whether the member with this rank was found to be gone.
fn is_member_lost(core: &Core, running: &ActiveOperation, rank: usize) -> bool {
    core.optional.collectives.as_ref().is_some_and(|all| all.gone.contains(&(running.group, rank)))
}

fn send(core: &mut Core, bindings: &Bindings, id: u64, running: &mut ActiveOperation) {
    let Round { send: Some((to, piece)), .. } = running.schedule.rounds[running.at] else {
        running.unsent = false;
        return;
    };
    let Some(av) = &bindings.av else { return };
    if is_member_lost(core, running, to) {
        running.failed = running.failed.or(Some(OpError::Closed));
        running.unsent = false;
        return;
    }
    let Ok(peer) = core.peers.peer(av, &mut core.engine, running.members[to]) else {
        running.failed = running.failed.or(Some(OpError::Closed));
        running.unsent = false;
        return;
    };
    let buf = running.memory.slice(running.schedule.size).part(piece.at as u64, piece.len as u64);
    let op = Operation {
        peer,
        action: Action::Message { space: MatchSpace::Collective, tag: running.tag },
        buf: Buf::One(buf),
        data: running.failed.map(|_| MARK),
        context: OURS | id << 1,
        options: Options { visibility: Visibility::Kept, ..Options::default() },
    };
    match core.submit(clock::now(), op) {
        Ok(_) => {
            running.unsent = false;
            running.pending += 1;
        }
        Err(SubmitError::Again) => {}
        Err(_) => {
            running.failed = running.failed.or(Some(OpError::Closed));
            running.unsent = false;
        }
    }
}

/// Reports the end of a collective operation to its completion queue or event queue.
fn report_end(bindings: &Bindings, mut running: ActiveOperation) {
    let all = running.schedule.size;
    match running.end {
        // The end of a join is reported after its last round, and the application has left the
        // other.
        EndReport::Join { .. } | EndReport::Nobody => {}
        EndReport::Call { context, result } => {
            if let (None, Some(to), Some(piece)) = (running.failed, result, running.schedule.output)
            {
                debug_assert!(piece.at + piece.len <= all);
                // SAFETY: the place is inside of the memory, which is initialised; the result may be written by the
                // contract of `start_collective`, for the completion has not been shown.
                let copied = unsafe {
                    device_memory::copy(CopyDirection::ToDevice, to, running.memory.at(piece.at))
                };
                if let Err(error) = copied {
                    log::warn!("cannot copy the result of a collective operation: {error}");
                    running.failed = Some(OpError::Uncopied);
                }
            }
            let entry = Entry {
                context,
                flags: flags::COLLECTIVE,
                len: result.map_or(0, |result| result.len),
                buf: 0,
                data: 0,
                tag: 0,
                source: ADDR_UNSPEC,
            };
            bindings.count(OpKind::Update, running.failed.is_none());
            let Some(cq) = bindings.queue(OpKind::Update) else { return };
            match running.failed {
                None => cq.push(entry),
                Some(error) => {
                    let row = Fault::of(error).row();
                    let why = match error {
                        OpError::Truncated { .. } => "members called it with different counts",
                        OpError::Uncopied => "its result could not be copied",
                        _ => {
                            "a member of the group has failed, or reported that its operation failed"
                        }
                    };
                    let text = format!("{why}: {}", row.text);
                    log::warn!("collective operation: {}: {text}", row.name);
                    cq.push_error(ErrorEntry {
                        entry,
                        excess: 0,
                        errno: row.errno,
                        code: row.code,
                        text: Some(text),
                        position: 0,
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a join, by rank 0, of two members whose addresses have this key.
    fn join(address: u64, key: u64) -> ActiveOperation {
        let group = Group { members: (0..2).collect(), rank: 0, key, calls: 0 };
        let end = EndReport::Join { fid: 0, context: 0 };
        ActiveOperation::new_join(address, group, address, end).expect("little memory")
    }

    #[test]
    fn key_parts_differ_by_instance_join_and_rank() {
        let mut parts = HashSet::new();
        for instance in 1..=4 {
            for joins in 1..=4 {
                parts.extend((0..4).map(|rank| key_part(instance, joins, rank)));
            }
        }
        assert_eq!(parts.len(), 64);
    }

    #[test]
    fn joins_of_the_same_members_follow_one_another() {
        let mut all = Collectives::default();
        for (address, key) in [(1, 7), (2, 7), (3, 8), (4, 7)] {
            all.start(join(address, key));
        }
        assert_eq!(all.ready, [1, 3], "others wait for the first of their members");
        let mut end = |id: u64, failed: Option<OpError>| {
            all.ready.clear();
            let mut running = all.running.remove(&id).expect("it is under way");
            running.failed = failed;
            all.end_join(&mut running);
            (all.ready.clone(), all.groups.contains_key(&id))
        };
        assert_eq!(end(1, None), (vec![2], true));
        assert_eq!(end(2, Some(OpError::Closed)), (vec![4], false), "no group without a key");
        assert_eq!(end(4, None), (vec![], true));
        assert_eq!(end(3, None), (vec![], true));
    }

    #[test]
    fn a_group_has_another_key_after_every_join() {
        let mut all = Collectives::default();
        let mut keys = HashSet::new();
        for part in 1..=3 {
            all.start(join(part, 7));
            let mut running = all.running.remove(&part).expect("it is under way");
            all.end_join(&mut running);
            keys.insert(all.groups[&part].key);
        }
        assert_eq!(keys.len(), 3);
    }
}
