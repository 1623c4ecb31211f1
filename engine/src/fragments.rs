//! The packets that were cut into fragments, and the fragments that wait to be sent.
//! `outbound/fragments.rs` cuts and sends them.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::part::Part;
use crate::reliability::PdcId;
use crate::slab::Key;

/// A packet whose payload was cut into fragments, because its path carries less than before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Original {
    /// Payload bytes of the packet before it was cut.
    pub(crate) len: u32,
    /// The PSN of the original, counted from the first PSN of its context. That first PSN changes when the peer makes
    /// the context start again.
    pub(crate) index: u32,
    /// Number of fragments that the packet was cut into.
    pub(crate) count: u8,
}

/// The packets whose payload was cut into fragments because the path carries less than before, and
/// the fragments that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    /// The originals by operation and payload offset. An entry is kept until its operation has ended, because its
    /// fragments may have to be sent again.
    originals: HashMap<Key, BTreeMap<u32, Original>>,
    /// Fragments that have no packet sequence number (PSN) yet, by context.
    waiting: HashMap<PdcId, VecDeque<Part>>,
}

impl Fragments {
    /// Returns whether no packet was cut, which is so where all paths carry full packets.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.originals.is_empty()
    }

    /// Returns whether fragments of cut packets wait to be sent.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the number of packets that were cut, plus the number of fragments that wait to be sent.
    pub(crate) fn len(&self) -> usize {
        let cut: usize = self.originals.values().map(BTreeMap::len).sum();
        cut + self.waiting.values().map(VecDeque::len).sum::<usize>()
    }

    /// Records that the packet with this `part` was cut. The fragments `rest` wait to be sent on context `id`.
    pub(crate) fn add(
        &mut self,
        id: PdcId,
        part: Part,
        original: Original,
        rest: impl Iterator<Item = Part>,
    ) {
        self.originals.entry(part.op).or_default().insert(part.offset, original);
        self.waiting.entry(id).or_default().extend(rest);
    }

    /// Removes the records of the cut packets of an operation that has ended.
    #[cold]
    pub(crate) fn forget(&mut self, op: Key) {
        self.originals.remove(&op);
    }

    /// Returns the original that `part` is a fragment of, if it is one.
    pub(crate) fn original(&self, part: Part) -> Option<Original> {
        let (&offset, original) =
            self.originals.get(&part.op)?.range(..=part.offset).next_back()?;
        (part.offset - offset < original.len).then_some(*original)
    }

    /// Returns the fragment that is to be sent next on a context, and whether no other waits there.
    pub(crate) fn next_waiting(&self, id: PdcId) -> Option<(Part, bool)> {
        let waiting = self.waiting.get(&id)?;
        Some((*waiting.front()?, waiting.len() == 1))
    }

    /// Removes the fragment that [`Self::next_waiting`] returned, because it was sent.
    pub(crate) fn pop_waiting(&mut self, id: PdcId) {
        if let Some(waiting) = self.waiting.get_mut(&id) {
            waiting.pop_front();
            if waiting.is_empty() {
                self.waiting.remove(&id);
            }
        }
    }

    /// Removes the fragments that wait on a context that has ended.
    pub(crate) fn forget_waiting(&mut self, id: PdcId) {
        self.waiting.remove(&id);
    }
}
