//! The packet delivery contexts of an endpoint by slot, and records of contexts that are gone.

use std::collections::{BTreeMap, VecDeque};

use super::admission::START_DISTANCE;
use super::numbering::ContextNumbers;
use crate::Counters;
use crate::base::Psn;
use crate::pdc::Pdc;
use crate::types::{Origin, PdcId, PeerKey, Refusal};

/// Slots of closed contexts that stay free before one of them is reused, so that late packets of
/// the old context do not reach a new one with its number.
const MIN_FREE: usize = 64;

/// A slot of the table, which holds a context or is free.
#[derive(Debug)]
pub(super) struct Entry<D> {
    /// Number of contexts that were in the slot before, which wraps.
    generation: u16,
    /// The context in the slot is with a peer outside the job.
    outside: bool,
    /// The PSN after the last one that contexts in this slot sent.
    last: Psn,
    pdc: Option<Box<Pdc<D>>>,
}

/// The last contexts that a peer opened and that ended, so that late packets do not open them
/// again.
#[derive(Debug, Default)]
struct ClosedContexts {
    last: [(u16, Psn); Self::DEPTH],
    next: usize,
}

impl ClosedContexts {
    const DEPTH: usize = 8;

    fn add(&mut self, number: u16, start: Psn) {
        self.last[self.next] = (number, start);
        self.next = (self.next + 1) % Self::DEPTH;
    }
}

/// The packet delivery contexts of an endpoint.
#[derive(Debug)]
pub(super) struct Table<D> {
    numbering: ContextNumbers,
    entries: Vec<Entry<D>>,
    /// The free slots; the one that has been free longest is first.
    free: VecDeque<u16>,
    /// The number of contexts whose peer is outside the job.
    outside: usize,
    /// The slots of contexts that peers opened, by peer and the peer's number of the context.
    accepted: BTreeMap<(PeerKey, u16), u16>,
    /// The contexts that each peer opened and that ended recently.
    closed: BTreeMap<PeerKey, ClosedContexts>,
}

impl<D: Copy> Table<D> {
    pub(super) const fn new(numbering: ContextNumbers) -> Self {
        Self {
            numbering,
            entries: Vec::new(),
            free: VecDeque::new(),
            outside: 0,
            accepted: BTreeMap::new(),
            closed: BTreeMap::new(),
        }
    }

    /// Returns the number of contexts in the table.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Returns the number of slots, used or free. All slot numbers are below it.
    pub(super) fn places(&self) -> usize {
        self.entries.len()
    }

    /// Returns the context `id`; `None` when it is gone.
    #[inline]
    pub(super) fn get(&self, id: PdcId) -> Option<&Pdc<D>> {
        let entry = self.entries.get(id.slot())?;
        entry.pdc.as_deref().filter(|_| entry.generation == id.generation())
    }

    /// Returns the context `id` for changes; `None` when it is gone.
    #[inline]
    pub(super) fn get_mut(&mut self, id: PdcId) -> Option<&mut Pdc<D>> {
        let entry = self.entries.get_mut(id.slot())?;
        if entry.generation != id.generation() {
            return None;
        }
        entry.pdc.as_deref_mut()
    }

    /// Returns the context in `slot`, if the slot holds one.
    #[inline]
    pub(super) fn at(&self, slot: u16) -> Option<&Pdc<D>> {
        self.entries.get(usize::from(slot))?.pdc.as_deref()
    }

    /// Returns the context in `slot` for changes, if the slot holds one.
    #[inline]
    pub(super) fn at_mut(&mut self, slot: u16) -> Option<&mut Pdc<D>> {
        self.entries.get_mut(usize::from(slot))?.pdc.as_deref_mut()
    }

    /// Returns the context that packets name by the number `dpdcid`, if it exists.
    #[inline]
    pub(super) fn by_number(&self, dpdcid: u16) -> Option<&Pdc<D>> {
        self.at(self.numbering.slot(dpdcid)?)
    }

    /// Returns the context with the number `dpdcid`. The context must be that of the sender, and
    /// its number there must be `spdcid`, where one is given, or not yet known. Counts packets that
    /// do not match.
    #[inline]
    pub(super) fn find(
        &mut self,
        counters: &mut Counters,
        from: Origin,
        dpdcid: u16,
        spdcid: Option<u16>,
    ) -> Result<&mut Pdc<D>, Refusal> {
        let found = match from {
            Origin::Context(context) => self.get_mut(context.id),
            Origin::Peer(_) => {
                let slot = self.numbering.slot(dpdcid);
                slot.and_then(|slot| self.at_mut(slot))
            }
        };
        let Some(pdc) = found else {
            counters.rx_unknown_context += 1;
            return Err(Refusal::UnknownContext);
        };
        let numbers = pdc.numbers();
        debug_assert!(numbers.local == dpdcid, "the packet names this context");
        let remote = numbers.remote;
        let fits = |spdcid: u16| spdcid != 0 && (remote == spdcid || remote == 0);
        if numbers.peer != from.peer() || !spdcid.is_none_or(fits) {
            counters.rx_mismatch += 1;
            return Err(Refusal::Mismatch);
        }
        Ok(pdc)
    }

    /// Returns an iterator over the contexts in the table.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Pdc<D>> {
        self.entries.iter().filter_map(|entry| entry.pdc.as_deref())
    }

    /// Returns a free slot, of at most `most` slots; a new one while few have been used.
    pub(super) fn free_slot(&mut self, most: u16) -> Option<u16> {
        let full = self.entries.len() >= usize::from(most);
        if self.free.len() > MIN_FREE || full {
            return self.free.pop_front();
        }
        let slot = u16::try_from(self.entries.len()).ok()?;
        self.entries.push(Entry { generation: 0, outside: false, last: Psn(0), pdc: None });
        Some(slot)
    }

    /// Returns the id that the next context in `slot` will have.
    pub(super) fn id(&self, slot: u16) -> PdcId {
        PdcId::new(slot, self.entries[usize::from(slot)].generation)
    }

    /// Returns the number of the context in a slot, and the last PSN sent from the slot.
    pub(super) fn number_and_last_psn(&self, slot: u16) -> (u16, Psn) {
        (self.numbering.number(slot), self.entries[usize::from(slot)].last)
    }

    /// Returns the number of contexts that `peer` has opened here and that are still open.
    pub(super) fn accepted_from(&self, peer: PeerKey) -> usize {
        self.accepted.range((peer, 0)..=(peer, u16::MAX)).count()
    }

    /// Returns the number of contexts that peers have opened here and that are still open.
    pub(super) fn accepted_total(&self) -> usize {
        self.accepted.len()
    }

    /// Returns the number of contexts with peers outside the job, whichever end opened them.
    pub(super) const fn outside_count(&self) -> usize {
        self.outside
    }

    /// Records that the context in a slot is with a peer outside the job.
    pub(super) fn count_outside(&mut self, slot: u16) {
        let entry = &mut self.entries[usize::from(slot)];
        self.outside += usize::from(!core::mem::replace(&mut entry.outside, true));
    }

    /// Returns a random start PSN for the next context in a slot, far from the last PSN sent there.
    pub(super) fn start_psn(&self, slot: u16, mut draw: impl FnMut() -> u32) -> Psn {
        let last = self.entries[usize::from(slot)].last;
        loop {
            let start = Psn(draw());
            if start.distance(last).unsigned_abs() >= START_DISTANCE {
                return start;
            }
        }
    }

    /// Puts a context into its slot. A context that its peer opened can be found by the peer's
    /// number.
    pub(super) fn insert(&mut self, pdc: Pdc<D>) {
        let slot = pdc.numbers().id.slot_number();
        if !pdc.life().is_initiator() {
            self.accepted.insert((pdc.numbers().peer, pdc.numbers().remote), slot);
        }
        self.entries[usize::from(slot)].pdc = Some(Box::new(pdc));
    }

    /// Removes a context from its slot, which is not free until [`Table::release`].
    pub(super) fn remove(&mut self, slot: u16) -> Option<Box<Pdc<D>>> {
        let entry = self.entries.get_mut(usize::from(slot))?;
        let pdc = entry.pdc.take()?;
        self.outside -= usize::from(core::mem::replace(&mut entry.outside, false));
        if !pdc.life().is_initiator() {
            self.accepted.remove(&(pdc.numbers().peer, pdc.numbers().remote));
            self.closed
                .entry(pdc.numbers().peer)
                .or_default()
                .add(pdc.numbers().remote, pdc.numbers().start);
        }
        Some(pdc)
    }

    /// Makes a slot free again. All PSNs that the slot's context sent are before `last`.
    pub(super) fn release(&mut self, slot: u16, last: Psn) {
        let entry = &mut self.entries[usize::from(slot)];
        entry.last = last;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push_back(slot);
    }

    /// Returns the slot of the context that `peer` opened and numbers `number`.
    pub(super) fn accepted(&self, peer: PeerKey, number: u16) -> Option<u16> {
        self.accepted.get(&(peer, number)).copied()
    }

    /// Returns whether a context that `peer` opened under this number recently ended here, whatever
    /// its start PSN.
    pub(super) fn was_closed(&self, peer: PeerKey, number: u16) -> bool {
        self.remembers(peer, |&(closed, _)| closed == number)
    }

    /// Returns whether a context that `peer` opened under this number and with `start` recently
    /// ended. No context has number 0, so unused entries match nothing.
    pub(super) fn is_replay(&self, peer: PeerKey, number: u16, start: Psn) -> bool {
        self.remembers(peer, |closed| *closed == (number, start))
    }

    fn remembers(&self, peer: PeerKey, which: impl Fn(&(u16, Psn)) -> bool) -> bool {
        self.closed.get(&peer).is_some_and(|closed| closed.last.iter().any(which))
    }

    /// Forgets which contexts of `peer` ended recently.
    pub(super) fn forget(&mut self, peer: PeerKey) {
        self.closed.remove(&peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Rng;

    #[test]
    fn a_start_psn_near_the_last_one_is_not_taken() {
        let mut table: Table<u32> = Table::new(ContextNumbers::sequential());
        let slot = table.free_slot(9).expect("room");
        for offset in [0, 1, START_DISTANCE - 1] {
            for last in [|psn: Psn, n| psn.plus(n), |psn: Psn, n| psn.minus(n)] {
                let mut rng = Rng::new(1);
                let (near, next) = {
                    let mut rng = rng.clone();
                    (Psn(rng.next_u32()), Psn(rng.next_u32()))
                };
                table.entries[0].last = last(near, offset);
                assert_eq!(table.start_psn(slot, || rng.next_u32()), next);
            }
        }
    }

    #[test]
    fn slots_stay_free_before_they_are_reused_under_another_name() {
        let mut table: Table<u32> = Table::new(ContextNumbers::sequential());
        let first = table.free_slot(200).expect("room");
        let id = table.id(first);
        table.release(first, Psn(9));
        for _ in 0..MIN_FREE {
            let slot = table.free_slot(200).expect("room");
            assert_ne!(slot, first);
            table.release(slot, Psn(9));
        }
        assert_eq!(table.free_slot(200), Some(first));
        assert_ne!(table.id(first), id);
        assert_eq!((table.len(), table.places()), (1, MIN_FREE + 1));
        // Without room for more slots a free one is reused at once.
        assert_eq!(table.free_slot(MIN_FREE as u16 + 1), Some(1));
    }

    #[test]
    fn the_last_contexts_a_peer_closed_are_remembered() {
        let mut closed = ClosedContexts::default();
        for number in 1..=9 {
            closed.add(number, Psn(u32::from(number) * 10));
        }
        let mut table: Table<u32> = Table::new(ContextNumbers::sequential());
        table.closed.insert(PeerKey(3), closed);
        assert!(!table.was_closed(PeerKey(3), 1) && table.was_closed(PeerKey(3), 2));
        assert!(
            table.is_replay(PeerKey(3), 9, Psn(90)) && !table.is_replay(PeerKey(3), 9, Psn(80))
        );
        assert!(!table.was_closed(PeerKey(2), 2));
        table.forget(PeerKey(3));
        assert!(!table.was_closed(PeerKey(3), 2));
    }
}
