//! Posted receives, found by the envelope of an arriving message.

use super::hash::{Map, Seeded};
use super::{ANY, Envelope, Key, MAX_MASKS, Wanted};
use crate::api::Notify;
use crate::memory::Buf;

const NIL: u32 = u32::MAX;

/// A receive that waits for a message.
#[derive(Debug)]
pub(crate) struct PostedRecv {
    pub(crate) wanted: Wanted,
    pub(crate) buf: Buf,
    pub(crate) context: u64,
    pub(crate) notify: Notify,
    /// FI_MULTI_RECV: release the buffer when less than this is left.
    pub(crate) multi_recv: Option<u64>,
    /// Multi-receive: where the next message goes.
    pub(crate) used: u64,
    /// Multi-receive: messages being written into the buffer.
    pub(crate) busy: u32,
    /// Multi-receive: out of the index, waiting for `busy` to reach zero.
    pub(crate) released: bool,
    /// Multi-receive: cancelled while messages were being written.
    pub(crate) cancelled: bool,
}

#[derive(Debug)]
struct Slot {
    recv: Option<PostedRecv>,
    /// Posting order, over all masks.
    seq: u64,
    /// Which table the entry is linked in; `NIL` when it is in none.
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

/// All posted receives of an endpoint.
#[derive(Debug)]
pub(crate) struct Posted {
    slots: Vec<Slot>,
    free: Vec<u32>,
    tables: Vec<Table>,
    /// Receives whose mask came too late for a table of its own, in posting order.
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

    /// Posts a receive behind all others and returns its slot.
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
        // A table nobody uses any more makes room for a new mask.
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

    /// The oldest receive that matches, still posted.
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
                class: envelope.class,
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

    pub(crate) fn get_mut(&mut self, ix: u32) -> Option<&mut PostedRecv> {
        self.slots.get_mut(ix as usize)?.recv.as_mut()
    }

    /// Takes a receive out altogether.
    pub(crate) fn take(&mut self, ix: u32) -> Option<PostedRecv> {
        self.slots.get(ix as usize)?.recv.as_ref()?;
        if !self.slots[ix as usize].recv.as_ref().is_some_and(|r| r.released) {
            self.unlink(ix);
        }
        self.free.push(ix);
        self.slots[ix as usize].recv.take()
    }

    /// Takes a multi-receive buffer out of the index; it stays in its slot until
    /// [`Self::take`].
    pub(crate) fn release(&mut self, ix: u32) {
        if self.slots[ix as usize].recv.as_ref().is_some_and(|r| !r.released) {
            self.unlink(ix);
        }
        if let Some(recv) = self.get_mut(ix) {
            recv.released = true;
        }
    }

    /// The oldest receive with this context that can still be cancelled.
    pub(crate) fn find_context(&self, context: u64) -> Option<u32> {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, s)| s.recv.as_ref().is_some_and(|r| r.context == context && !r.released))
            .min_by_key(|(_, s)| s.seq)
            .map(|(ix, _)| ix as u32)
    }

    /// Receives that wait or hold a multi-receive buffer.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
