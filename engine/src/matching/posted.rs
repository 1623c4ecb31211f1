//! Posted receives, found by the envelope of an arriving message.

use super::hash::{Map, Seeded};
use super::{ANY, Envelope, Key, MAX_MASKS, MatchRequest};
use crate::memory::Buf;
use crate::messages::Target;
use crate::operation::{PeerId, Visibility};

const NIL: u32 = u32::MAX;

/// A posted receive that waits for a message.
#[derive(Debug)]
pub(crate) struct PostedRecv {
    pub(crate) wanted: MatchRequest,
    pub(crate) buf: Buf,
    pub(crate) context: u64,
    pub(crate) visibility: Visibility,
    pub(crate) multi: Option<MultiRecvState>,
}

/// The state of a buffer that several messages share (FI_MULTI_RECV).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MultiRecvState {
    /// Remaining space in bytes below which the buffer is returned to the user.
    pub(crate) least: u64,
    /// Offset in the buffer, in bytes, at which the next message will be written.
    used: u64,
    /// Number of messages that are being written into the buffer.
    busy: u32,
    /// The buffer is no longer in the index and is returned when `busy` reaches zero.
    released: bool,
    /// The user cancelled the receive while messages were being written into the buffer.
    pub(crate) cancelled: bool,
}

impl MultiRecvState {
    pub(crate) const fn new(least: u64) -> Self {
        Self { least, used: 0, busy: 0, released: false, cancelled: false }
    }
}

impl PostedRecv {
    fn is_released(&self) -> bool {
        self.multi.is_some_and(|multi| multi.released)
    }
}

/// The outcome of cancelling a posted receive.
#[derive(Debug)]
pub(crate) enum CancelOutcome {
    /// The receive was removed at once, and its completion can be reported.
    Now(PostedRecv),
    /// The receive ends when the messages that are being written have ended.
    Later,
    /// No posted receive has the context that was to be cancelled.
    Unknown,
}

#[derive(Debug)]
struct Slot {
    recv: Option<PostedRecv>,
    /// Position of the receive in the order of posting, across all ignore masks.
    seq: u64,
    /// Index of the table of an ignore mask that contains the receive, or `NIL`.
    table: u32,
    next: u32,
    prev: u32,
}

#[derive(Debug)]
struct Table {
    ignore: u64,
    lists: Map<Key, (u32, u32)>,
    directed: usize,
    any: usize,
}

/// All posted receives of an endpoint, indexed by what they match.
#[derive(Debug)]
pub(crate) struct Posted {
    slots: Vec<Slot>,
    free: Vec<u32>,
    tables: Vec<Table>,
    /// Receives whose ignore masks have no table of their own, in posting order.
    others: Vec<u32>,
    next_seq: u64,
    seed: u64,
}

impl Posted {
    pub(crate) const fn new(seed: u64) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            tables: Vec::new(),
            others: Vec::new(),
            next_seq: 0,
            seed,
        }
    }

    /// Posts a receive behind all others and returns the number of its slot.
    pub(crate) fn post(&mut self, recv: PostedRecv) -> u32 {
        let wanted = recv.wanted;
        let slot = Slot { recv: Some(recv), seq: self.next_seq, table: NIL, next: NIL, prev: NIL };
        self.next_seq += 1;
        let ix = if let Some(ix) = self.free.pop() {
            self.slots[ix as usize] = slot;
            ix
        } else {
            self.slots.push(slot);
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 receives")
        };
        match self.table_for(wanted.ignore) {
            Some(table) => self.link(table, wanted.key(), ix),
            None => self.others.push(ix),
        }
        ix
    }

    fn table_for(&mut self, ignore: u64) -> Option<usize> {
        if let Some(found) = self.tables.iter().position(|t| t.ignore == ignore) {
            return Some(found);
        }
        // A table that no receive uses makes room for a new mask.
        let unused = self.tables.iter().position(|t| t.directed + t.any == 0);
        let fresh =
            Table { ignore, lists: Map::with_hasher(Seeded(self.seed)), directed: 0, any: 0 };
        if self.tables.len() < MAX_MASKS {
            self.tables.push(fresh);
            Some(self.tables.len() - 1)
        } else if let Some(ix) = unused {
            self.tables[ix] = fresh;
            Some(ix)
        } else {
            None
        }
    }

    fn link(&mut self, table: usize, key: Key, ix: u32) {
        let t = &mut self.tables[table];
        if key.source == ANY {
            t.any += 1;
        } else {
            t.directed += 1;
        }
        let list = t.lists.entry(key).or_insert((ix, NIL));
        let old_tail = list.1;
        list.1 = ix;
        self.slots[ix as usize].table = u32::try_from(table).expect("few tables");
        self.slots[ix as usize].prev = old_tail;
        if old_tail != NIL {
            self.slots[old_tail as usize].next = ix;
        }
    }

    fn unlink(&mut self, ix: u32) {
        let slot = &mut self.slots[ix as usize];
        let (table, next, prev) = (slot.table, slot.next, slot.prev);
        let Some(recv) = &slot.recv else { return };
        let key = recv.wanted.key();
        slot.table = NIL;
        slot.next = NIL;
        slot.prev = NIL;
        if table == NIL {
            self.others.retain(|&other| other != ix);
            return;
        }
        let t = &mut self.tables[table as usize];
        if key.source == ANY {
            t.any -= 1;
        } else {
            t.directed -= 1;
        }
        if next == NIL && prev == NIL {
            t.lists.remove(&key);
            return;
        }
        if let Some(list) = t.lists.get_mut(&key) {
            if prev == NIL {
                list.0 = next;
            }
            if next == NIL {
                list.1 = prev;
            }
        }
        if prev != NIL {
            self.slots[prev as usize].next = next;
        }
        if next != NIL {
            self.slots[next as usize].prev = prev;
        }
    }

    /// Returns the slot of the oldest posted receive that matches a message; it stays posted.
    pub(crate) fn find(&self, envelope: &Envelope) -> Option<u32> {
        let mut best: Option<(u64, u32)> = None;
        let mut consider = |ix: u32| {
            let seq = self.slots[ix as usize].seq;
            if best.is_none_or(|(oldest, _)| seq < oldest) {
                best = Some((seq, ix));
            }
        };
        for t in &self.tables {
            let mut key = Key {
                space: envelope.space,
                source: envelope.source.0,
                tag: envelope.tag & !t.ignore,
            };
            if t.directed > 0
                && let Some(list) = t.lists.get(&key)
            {
                consider(list.0);
            }
            key.source = ANY;
            if t.any > 0
                && let Some(list) = t.lists.get(&key)
            {
                consider(list.0);
            }
        }
        let other = self.others.iter().find(|&&ix| {
            self.slots[ix as usize].recv.as_ref().is_some_and(|r| r.wanted.matches(envelope))
        });
        if let Some(&ix) = other {
            consider(ix);
        }
        best.map(|(_, ix)| ix)
    }

    fn get_mut(&mut self, ix: u32) -> Option<&mut PostedRecv> {
        self.slots.get_mut(ix as usize)?.recv.as_mut()
    }

    /// Returns whether the receive in slot `ix` is still posted and accepts the messages of
    /// `wanted`.
    pub(crate) fn accepts(&self, ix: u32, wanted: &MatchRequest) -> bool {
        let recv = self.slots.get(ix as usize).and_then(|slot| slot.recv.as_ref());
        recv.is_some_and(|recv| recv.wanted == *wanted && !recv.is_released())
    }

    /// Takes the receive in slot `ix`, or the next part of its multi-receive buffer, for a message
    /// of `total` bytes.
    #[inline]
    pub(crate) fn claim(&mut self, ix: u32, total: u64) -> Option<Target> {
        let recv = self.get_mut(ix)?;
        let size = recv.buf.len();
        let Some(multi) = &mut recv.multi else {
            let recv = self.take(ix)?;
            return Some(Target {
                buf: recv.buf,
                at: 0,
                room: size,
                context: recv.context,
                visibility: recv.visibility,
                multi: None,
            });
        };
        let at = multi.used;
        let room = size - at;
        multi.used += total.min(room);
        multi.busy += 1;
        let spent = size - multi.used < multi.least.max(1);
        let target = Target {
            buf: recv.buf.clone(),
            at,
            room,
            context: recv.context,
            visibility: recv.visibility,
            multi: Some(ix),
        };
        if spent {
            self.release(ix);
        }
        Some(target)
    }

    /// Ends a message in a multi-receive buffer. Returns the receive if its buffer goes back to the
    /// user with this message.
    pub(crate) fn end_message(&mut self, ix: u32) -> Option<PostedRecv> {
        let multi = self.get_mut(ix)?.multi.as_mut()?;
        multi.busy -= 1;
        if multi.busy == 0 && multi.released { self.take(ix) } else { None }
    }

    /// Removes the oldest receive with this context that has not matched.
    pub(crate) fn cancel(&mut self, context: u64) -> CancelOutcome {
        let Some(ix) = self.find_context(context) else { return CancelOutcome::Unknown };
        if self.get_mut(ix).and_then(|recv| recv.multi).is_some_and(|multi| multi.busy > 0) {
            self.release(ix);
            if let Some(multi) = self.get_mut(ix).and_then(|recv| recv.multi.as_mut()) {
                multi.cancelled = true;
            }
            return CancelOutcome::Later;
        }
        self.take(ix).map_or(CancelOutcome::Unknown, CancelOutcome::Now)
    }

    /// Returns the peers that posted receives name as their source, each once.
    pub(crate) fn source_peers(&self) -> Vec<PeerId> {
        let named = |slot: &Slot| slot.recv.as_ref().and_then(|recv| recv.wanted.source);
        let mut peers: Vec<PeerId> = self.slots.iter().filter_map(named).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    /// Removes the receives that name `peer` and returns them in posting order.
    pub(crate) fn take_directed(&mut self, peer: PeerId) -> Vec<PostedRecv> {
        self.idle_slots(|recv| recv.wanted.source == Some(peer))
            .into_iter()
            .filter_map(|ix| self.take(ix))
            .collect()
    }

    /// Removes and returns the oldest receive that accepts any peer.
    pub(crate) fn take_undirected(&mut self) -> Option<PostedRecv> {
        let oldest = self.idle_slots(|recv| recv.wanted.source.is_none()).into_iter().next()?;
        self.take(oldest)
    }

    /// Returns the slots of the chosen receives into whose buffers nothing is being written, in
    /// posting order.
    fn idle_slots(&self, chosen: impl Fn(&PostedRecv) -> bool) -> Vec<u32> {
        let idle = |recv: &PostedRecv| recv.multi.is_none_or(|multi| multi.busy == 0);
        let mut found: Vec<(u64, u32)> = self
            .slots
            .iter()
            .zip(0u32..)
            .filter(|(slot, _)| slot.recv.as_ref().is_some_and(|recv| idle(recv) && chosen(recv)))
            .map(|(slot, ix)| (slot.seq, ix))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, ix)| ix).collect()
    }

    /// Removes a posted receive from its slot and from the index.
    fn take(&mut self, ix: u32) -> Option<PostedRecv> {
        let released = self.slots.get(ix as usize)?.recv.as_ref()?.is_released();
        if !released {
            self.unlink(ix);
        }
        self.free.push(ix);
        self.slots[ix as usize].recv.take()
    }

    /// Removes a multi-receive buffer from the index. It stays in its slot until its last message
    /// has ended.
    fn release(&mut self, ix: u32) {
        if self.slots[ix as usize].recv.as_ref().is_some_and(|recv| !recv.is_released()) {
            self.unlink(ix);
        }
        if let Some(multi) = self.get_mut(ix).and_then(|recv| recv.multi.as_mut()) {
            multi.released = true;
        }
    }

    /// Returns the slot of the oldest receive with this context that can still be cancelled.
    fn find_context(&self, context: u64) -> Option<u32> {
        let fits = |recv: &PostedRecv| recv.context == context && !recv.is_released();
        self.slots
            .iter()
            .zip(0u32..)
            .filter(|(slot, _)| slot.recv.as_ref().is_some_and(fits))
            .min_by_key(|(slot, _)| slot.seq)
            .map(|(_, ix)| ix)
    }

    /// Returns the number of receives that wait for a message or whose multi-receive buffer is
    /// still in use.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
