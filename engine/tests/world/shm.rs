//! Shared-memory channels between hosts of a [`World`]: bounded queues that carry records without
//! delay, a few per step.

use std::collections::VecDeque;

use squall_base::Rng;
use squall_engine::{
    Buf, Memory as _, RecordOutcome, RecordOutput, RecordPayload, ReferenceResult, Room,
    ShmCloseReason, ShmId,
};

use super::{VecMemory, World};

/// Capacity in bytes of each direction, unless a test changes it.
const ROOM: usize = 64 * 1024;
/// Purpose of the proofs.
const PURPOSE: u64 = 1;

/// Tag of payload that is in the ring behind a record and cannot be revoked.
const SPLIT: u64 = u64::MAX;

/// A record in flight.
struct Flying {
    bytes: Vec<u8>,
    /// The payload that the record refers to, with its tag.
    refers: Option<(u64, Vec<u8>)>,
    revoked: bool,
}

/// One direction of a channel.
struct Lane {
    from: (usize, ShmId),
    to: (usize, ShmId),
    records: VecDeque<Flying>,
    bytes: usize,
    /// Number of records that the receiver has shown as taken.
    taken: u64,
    /// The count of the other direction that the receiver last saw.
    told: u64,
    /// The receiver has no room for the first record.
    held: bool,
    /// The room for messages that this end has shown to its peer.
    shown: Room,
    /// The sender's end has ended.
    over: Option<ShmCloseReason>,
}

/// All shared-memory channels of a world.
pub struct MockChannels {
    lanes: Vec<Lane>,
    /// Capacity in bytes of each direction.
    pub room: usize,
    /// Peers cannot fetch payload, so records must carry it.
    pub unfetchable: bool,
    /// Number of records that referred to their payload.
    pub referred: u64,
    /// No channel is opened.
    pub refused: bool,
    /// The kernel would report the end of the process at the other end.
    pub watched: bool,
    /// Seed for occasional changes of records' bytes, if any.
    pub scribble: Option<u64>,
    /// Number of records that were carried.
    pub carried: u64,
    /// A receiver has shown that it has room again.
    woken: bool,
}

impl Default for MockChannels {
    fn default() -> Self {
        Self {
            lanes: Vec::new(),
            room: ROOM,
            unfetchable: false,
            referred: 0,
            refused: false,
            watched: false,
            scribble: None,
            carried: 0,
            woken: false,
        }
    }
}

/// The sending side of one host.
pub(super) struct Sink<'a> {
    lanes: &'a mut [Lane],
    room: usize,
    host: usize,
    memory: &'a VecMemory,
    unfetchable: bool,
    referred: &'a mut u64,
}

impl Sink<'_> {
    fn lane(&mut self, shm: ShmId) -> Option<&mut Lane> {
        let from = (self.host, shm);
        self.lanes.iter_mut().find(|lane| lane.from == from)
    }
}

impl RecordOutput for Sink<'_> {
    fn send(&mut self, shm: ShmId, head: &[u8], payload: RecordPayload<'_>) -> bool {
        let (room, memory) = (self.room, self.memory);
        let Some(lane) = self.lane(shm) else { return true };
        if lane.bytes >= room {
            return false;
        }
        let mut record = head.to_vec();
        match payload {
            RecordPayload::Copied(bytes) => record.extend_from_slice(bytes),
            RecordPayload::Lent { buf, offset, len } => buf.for_range(offset, len, |piece, _| {
                let start = record.len();
                record.resize(start + piece.len as usize, 0);
                memory.read(piece, &mut record[start..]);
            }),
        }
        lane.bytes += record.len();
        lane.records.push_back(Flying { bytes: record, refers: None, revoked: false });
        true
    }

    fn has_message_room(&mut self, shm: ShmId) -> bool {
        self.lane(shm).is_none_or(|lane| lane.shown < Room::None)
    }

    fn send_split(&mut self, shm: ShmId, head: &[u8], payload: RecordPayload<'_>) -> bool {
        let (room, memory) = (self.room, self.memory);
        let Some(lane) = self.lane(shm) else { return true };
        let RecordPayload::Lent { buf, offset, len } = payload else {
            panic!("the payload is copied")
        };
        if lane.shown > Room::Ample || lane.bytes >= room {
            return false;
        }
        let mut rest = vec![0; len as usize];
        buf.for_range(offset, len, |piece, at| {
            memory.read(piece, &mut rest[at as usize..][..piece.len as usize]);
        });
        lane.bytes += head.len() + rest.len();
        lane.records.push_back(Flying {
            bytes: head.to_vec(),
            refers: Some((SPLIT, rest)),
            revoked: false,
        });
        true
    }

    fn send_reference(
        &mut self,
        shm: ShmId,
        head: &[u8],
        (buf, offset, len): (&Buf, u64, u64),
        tag: u64,
    ) -> ReferenceResult {
        let (room, memory) = (self.room, self.memory);
        if self.unfetchable {
            return ReferenceResult::Never;
        }
        let Some(lane) = self.lane(shm) else { return ReferenceResult::Yes };
        if lane.bytes >= room {
            return ReferenceResult::Full;
        }
        let mut payload = vec![0; len as usize];
        buf.for_range(offset, len, |piece, at| {
            memory.read(piece, &mut payload[at as usize..][..piece.len as usize]);
        });
        lane.bytes += head.len();
        let refers = Some((tag, payload));
        lane.records.push_back(Flying { bytes: head.to_vec(), refers, revoked: false });
        *self.referred += 1;
        ReferenceResult::Yes
    }
}

impl MockChannels {
    /// Drops all channel ends of host `n`.
    pub fn lose(&mut self, n: usize) {
        self.lanes.retain(|lane| lane.to.0 != n);
        for lane in self.lanes.iter_mut().filter(|lane| lane.from.0 == n) {
            lane.over = Some(ShmCloseReason::Died);
        }
    }

    /// Returns the sink for records of host `n`.
    pub(super) fn sink<'a>(&'a mut self, host: usize, memory: &'a VecMemory) -> Sink<'a> {
        let Self { lanes, room, unfetchable, referred, .. } = self;
        let (room, unfetchable) = (*room, *unfetchable);
        Sink { lanes, room, host, memory, unfetchable, referred }
    }

    /// Removes the payload that is in the ring behind records, although their heads announce it.
    pub fn empty_split_records(&mut self) {
        for record in self.lanes.iter_mut().flat_map(|lane| &mut lane.records) {
            if let Some((SPLIT, rest)) = &mut record.refers {
                rest.clear();
            }
        }
    }

    /// Changes a record at random.
    fn spoil(scribble: &mut Option<u64>, record: &mut [u8]) {
        let Some(seed) = scribble else { return };
        let mut rng = Rng::new(*seed);
        *seed = rng.next_u64();
        if rng.chance(0.3) && !record.is_empty() {
            let at = rng.below(record.len().min(80) as u32) as usize;
            record[at] ^= 1 << rng.below(8);
        }
    }
}

impl World {
    /// Lets host `n` send once.
    pub fn transmit_once(&mut self, n: usize) {
        self.transmit(n);
    }

    /// Lets host `n` open channels and send records.
    pub(super) fn transmit_records(&mut self, n: usize) {
        self.make_links(n);
        let host = &mut self.hosts[n];
        let lanes = &mut self.shm.lanes;
        while let Some((id, tag)) = host.engine.shm().poll_revoked() {
            for lane in lanes.iter_mut().filter(|lane| lane.from == (n, id)) {
                for record in &mut lane.records {
                    record.revoked |= record.refers.as_ref().is_some_and(|(of, _)| *of == tag);
                }
            }
        }
        let mut sink = self.shm.sink(n, &host.memory);
        host.engine.shm().transmit(self.now, &mut sink);
        while let Some(id) = host.engine.shm().poll_ended() {
            self.shm.lanes.retain(|lane| lane.to != (n, id));
            for lane in self.shm.lanes.iter_mut().filter(|lane| lane.from == (n, id)) {
                lane.over = Some(ShmCloseReason::Closed);
            }
        }
        for lane in &mut self.shm.lanes {
            if lane.to.0 == n {
                lane.taken = self.hosts[n].engine.shm().taken(lane.to.1);
                let room = self.hosts[n].engine.shm().room(lane.to.1);
                // A sleeping sender is woken when there is room again.
                let before = std::mem::replace(&mut lane.shown, room);
                self.shm.woken |= before == Room::None && room < before;
            }
        }
    }

    /// Opens channels from host `n` to the hosts that it has verified.
    fn make_links(&mut self, n: usize) {
        while let Some(met) = self.hosts[n].engine.shm().poll_verified_peer() {
            if met.asked || self.shm.refused {
                continue;
            }
            let Some(m) = self.hosts.iter().position(|h| h.addr == met.addr && !h.dead) else {
                continue;
            };
            let (addr, instance) = (self.hosts[n].addr, self.hosts[n].engine.shm().instance());
            let Some(peer) = self.hosts[m].engine.shm().find_verified_peer(addr, instance) else {
                continue;
            };
            let proof = self.hosts[n].engine.shm().proof(met.peer, false, PURPOSE);
            if proof.is_none() || proof != self.hosts[m].engine.shm().proof(peer, true, PURPOSE) {
                continue;
            }
            let Some(there) = self.hosts[m].engine.shm().open_channel(self.now, peer) else {
                continue;
            };
            let Some(here) = self.hosts[n].engine.shm().open_channel(self.now, met.peer) else {
                continue;
            };
            if self.shm.watched {
                self.hosts[n].engine.shm().watch_process(here);
                self.hosts[m].engine.shm().watch_process(there);
            }
            for (from, to) in [((n, here), (m, there)), ((m, there), (n, here))] {
                self.shm.lanes.push(Lane {
                    from,
                    to,
                    records: VecDeque::new(),
                    bytes: 0,
                    taken: 0,
                    told: 0,
                    held: false,
                    shown: Room::Ample,
                    over: None,
                });
            }
        }
    }

    /// Ends all channels in good order, and loses the records in them.
    pub fn end_channels(&mut self) {
        for lane in std::mem::take(&mut self.shm.lanes) {
            let (host, id) = lane.to;
            self.hosts[host].engine.shm().handle_end(self.now, id, ShmCloseReason::Closed);
        }
    }

    /// Carries a few records of every channel. Returns whether there was anything to carry.
    pub(super) fn carry_records(&mut self) -> bool {
        let mut busy = std::mem::take(&mut self.shm.woken);
        let mut at = 0;
        while at < self.shm.lanes.len() {
            busy |= self.carry_lane(at);
            at += 1;
        }
        self.shm.lanes.retain(|lane| !lane.records.is_empty() || lane.over.is_none());
        busy
    }

    /// Lets running receivers without room report that, since they examine the records all the time.
    pub(super) fn show_held(&mut self) {
        for lane in &self.shm.lanes {
            let ((from, id), (to, _)) = (lane.from, lane.to);
            if lane.held && self.hosts[to].runs() {
                self.hosts[from].engine.shm().handle_deferral(self.now, id);
            }
        }
    }

    fn carry_lane(&mut self, at: usize) -> bool {
        let now = self.now;
        let lane = &mut self.shm.lanes[at];
        let (to, id) = lane.to;
        if self.hosts[lane.from.0].dead && lane.over.is_none() {
            lane.over = Some(ShmCloseReason::Died);
        }
        let host = &mut self.hosts[to];
        if !host.runs() {
            if host.dead {
                lane.records.clear();
            }
            return false;
        }
        // The receiver of the other direction shows its count before its records, or behind them.
        let (shown, back) = (lane.to, lane.from);
        let count = |lanes: &[Lane]| {
            lanes.iter().find(|lane| lane.from == shown && lane.to == back).map(|lane| lane.taken)
        };
        let told = count(&self.shm.lanes);
        let lane = &mut self.shm.lanes[at];
        let most = 1 + self.rng.below(8);
        let mut busy = false;
        if let Some(told) = told.filter(|_| self.rng.chance(0.5)) {
            host.engine.shm().handle_taken(now, id, told);
            busy |= told != core::mem::replace(&mut lane.told, told);
        }
        for _ in 0..most {
            let Some(record) = lane.records.front_mut() else { break };
            MockChannels::spoil(&mut self.shm.scribble, &mut record.bytes);
            host.memory.source = match &record.refers {
                Some((_, payload)) if !record.revoked => Some(payload.clone()),
                _ => None,
            };
            let taken = host.engine.shm().handle_record(now, &mut host.memory, id, &record.bytes);
            lane.held = taken == RecordOutcome::Later;
            match taken {
                RecordOutcome::Yes => {}
                RecordOutcome::Later => break,
                RecordOutcome::Never => {
                    lane.records.clear();
                    break;
                }
            }
            busy = true;
            self.shm.carried += 1;
            if let Some(record) = lane.records.pop_front() {
                let split = record.refers.filter(|(tag, _)| *tag == SPLIT);
                lane.bytes -= record.bytes.len() + split.map_or(0, |(_, rest)| rest.len());
            }
        }
        if lane.records.is_empty() {
            if let Some(told) = told {
                host.engine.shm().handle_taken(now, id, told);
                busy |= told != core::mem::replace(&mut lane.told, told);
            }
            if let Some(how) = lane.over {
                host.engine.shm().handle_end(now, id, how);
                busy = true;
            }
        }
        busy
    }
}
