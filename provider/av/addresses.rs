//! The addresses of a vector by index, and back.
//!
//! Inserting a name twice gives the same index; it leaves with the last removal. The lowest free index is
//! reused first, so that a table stays dense. One address may be there under several names: that of an endpoint
//! that is gone and that of its successor, or with and without an instance.

use core::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::SocketAddr;

use crate::abi::errno::{Errno, Result};
use crate::abi::flags::ADDR_UNSPEC;
use crate::network::addr::Name;

/// An entry of an address vector: a name, and how often it was inserted.
#[derive(Clone, Copy)]
struct Slot {
    name: Name,
    uses: u32,
    /// The address that completions carry (FI_AV_USER_ID), if it is not the index.
    id: Option<u64>,
    /// The next older slot with the same address, if there is one.
    earlier: Option<usize>,
}

/// The result of inserting an address into an address vector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InsertedAddress {
    pub(super) index: u64,
    /// Another slot has the same address, so an earlier result of [`Addresses::index_of`] for it may be wrong.
    pub(super) ambiguous: bool,
}

/// The addresses of an address vector, found by index and by address.
#[derive(Default)]
pub(crate) struct Addresses {
    slots: Vec<Option<Slot>>,
    /// The slot of each address that was inserted last.
    latest: HashMap<SocketAddr, usize>,
    free: BinaryHeap<Reverse<usize>>,
}

impl Addresses {
    /// Creates an empty table of addresses with room for `count` of them.
    pub(super) fn with_capacity(count: usize) -> Self {
        Self {
            slots: Vec::with_capacity(count),
            latest: HashMap::with_capacity(count),
            free: BinaryHeap::new(),
        }
    }

    /// Inserts a name and returns its index; a known name keeps its index.
    pub(super) fn insert(&mut self, name: Name) -> InsertedAddress {
        let mut next = self.latest.get(&name.addr).copied();
        while let Some(at) = next {
            let Some(Some(slot)) = self.slots.get_mut(at) else { break };
            if slot.name == name {
                slot.uses += 1;
                return InsertedAddress { index: at as u64, ambiguous: false };
            }
            next = slot.earlier;
        }
        let earlier = self.latest.get(&name.addr).copied();
        let slot = Some(Slot { name, uses: 1, id: None, earlier });
        let at = match self.free.pop() {
            Some(Reverse(at)) => {
                self.slots[at] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        self.latest.insert(name.addr, at);
        InsertedAddress { index: at as u64, ambiguous: earlier.is_some() }
    }

    /// Undoes one insertion of the name at an index.
    ///
    /// # Errors
    /// `FI_EINVAL` when there is no such index.
    pub(super) fn remove(&mut self, index: u64) -> Result<()> {
        let at = usize::try_from(index).map_err(|_| Errno::INVAL)?;
        let place = self.slots.get_mut(at).ok_or(Errno::INVAL)?;
        let slot = place.as_mut().ok_or(Errno::INVAL)?;
        slot.uses -= 1;
        if slot.uses == 0 {
            let Slot { name, earlier, .. } = *slot;
            *place = None;
            self.free.push(Reverse(at));
            self.unlink(&name.addr, at, earlier);
        }
        Ok(())
    }

    /// Removes a slot, whose successor is `earlier`, from the list of slots with the same address.
    fn unlink(&mut self, addr: &SocketAddr, at: usize, earlier: Option<usize>) {
        let mut next = self.latest.get(addr).copied();
        if next == Some(at) {
            match earlier {
                Some(earlier) => self.latest.insert(*addr, earlier),
                None => self.latest.remove(addr),
            };
            return;
        }
        while let Some(slot) = next.and_then(|next| self.slots.get_mut(next)?.as_mut()) {
            if slot.earlier == Some(at) {
                slot.earlier = earlier;
                return;
            }
            next = slot.earlier;
        }
    }

    /// Returns one more than the largest index that was ever used.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the name at an index, if the index is in use.
    pub(crate) fn get(&self, index: u64) -> Option<Name> {
        let slot = self.slots.get(usize::try_from(index).ok()?)?;
        slot.map(|s| s.name)
    }

    /// Sets the id that completions from the peer at an index carry instead of the index.
    pub(super) fn set_user_id(&mut self, index: u64, id: u64) {
        let at = usize::try_from(index).ok();
        if let Some(Some(slot)) = at.and_then(|at| self.slots.get_mut(at)) {
            slot.id = Some(id);
        }
    }

    /// Makes completions from the peer at an index carry `FI_ADDR_NOTAVAIL` until [`Self::set_user_id`] sets its id.
    pub(super) fn require_user_id(&mut self, index: u64) {
        let at = usize::try_from(index).ok();
        if let Some(Some(slot)) = at.and_then(|at| self.slots.get_mut(at)) {
            slot.id.get_or_insert(ADDR_UNSPEC);
        }
    }

    /// Returns the address that completions carry for a name: its index, or the id that the application chose;
    /// `FI_ADDR_NOTAVAIL` if the name was not inserted.
    pub(crate) fn fi_addr_of(&self, name: &Name) -> u64 {
        let index = self.index_of(name);
        let slot = usize::try_from(index).ok().and_then(|at| self.slots.get(at).copied().flatten());
        slot.and_then(|slot| slot.id).unwrap_or(index)
    }

    /// Returns the names that are in the address vector, each once.
    pub(crate) fn names(&self) -> impl Iterator<Item = Name> + '_ {
        self.slots.iter().flatten().map(|slot| slot.name)
    }

    /// Returns the names at this index and all higher ones.
    pub(crate) fn names_from(&self, index: usize) -> impl Iterator<Item = Name> + '_ {
        self.slots.iter().skip(index).flatten().map(|slot| slot.name)
    }

    /// Returns whether all indexes of the address vector are in use.
    pub(crate) fn is_dense(&self) -> bool {
        self.free.is_empty()
    }

    /// Returns the index under which a name was inserted last; `FI_ADDR_NOTAVAIL` if it was not inserted. A name without
    /// an instance matches every instance at its address.
    pub(crate) fn index_of(&self, name: &Name) -> u64 {
        let slot = |at: usize| self.slots.get(at).copied().flatten();
        let latest = self.latest.get(&name.addr).copied();
        let mut chain = std::iter::successors(latest, |at| slot(*at)?.earlier);
        chain
            .find(|at| slot(*at).is_some_and(|slot| !slot.name.contradicts(name)))
            .map_or(ADDR_UNSPEC, |at| at as u64)
    }
}

#[cfg(test)]
mod tests {
    use squall_base::Instance;

    use super::*;

    fn addr(n: u32) -> SocketAddr {
        SocketAddr::from((
            std::net::Ipv4Addr::from(0x0a00_0000 + n / 50_000),
            (n % 50_000) as u16 + 1,
        ))
    }

    fn index(a: &mut Addresses, n: u32) -> u64 {
        a.insert(addr(n).into()).index
    }

    #[test]
    fn indices_are_dense_and_reused_from_below() {
        let mut a = Addresses::default();
        assert_eq!((0..5).map(|n| index(&mut a, n)).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(index(&mut a, 2), 2);
        assert_eq!((a.remove(3), a.remove(1)), (Ok(()), Ok(())));
        assert_eq!(a.remove(1), Err(Errno::INVAL));
        assert_eq!(a.remove(99), Err(Errno::INVAL));
        assert_eq!([10, 11, 12].map(|n| index(&mut a, n)), [1, 3, 5]);
        assert_eq!(a.remove(2), Ok(()));
        assert_eq!(a.get(2), Some(addr(2).into()), "inserted twice, removed once");
        assert_eq!(a.remove(2), Ok(()));
        assert_eq!((a.get(2), a.index_of(&addr(2).into())), (None, ADDR_UNSPEC));
    }

    #[test]
    fn completions_call_them_as_the_application_said() {
        let mut a = Addresses::default();
        assert_eq!((index(&mut a, 1), index(&mut a, 2)), (0, 1));
        a.set_user_id(1, 4711);
        a.set_user_id(9, 5);
        assert_eq!([1, 2, 3].map(|n| a.fi_addr_of(&addr(n).into())), [0, 4711, ADDR_UNSPEC]);
        assert_eq!(a.index_of(&addr(2).into()), 1, "calls go to the index");
        // The address that gets a free index next is called by that index.
        assert_eq!(a.remove(1), Ok(()));
        assert_eq!((index(&mut a, 3), a.fi_addr_of(&addr(3).into())), (1, 1));
        // An index that waits for its id has none so far, and keeps the id that it gets.
        a.require_user_id(1);
        assert_eq!(a.fi_addr_of(&addr(3).into()), ADDR_UNSPEC);
        a.set_user_id(1, 12);
        a.require_user_id(1);
        assert_eq!(a.fi_addr_of(&addr(3).into()), 12);
    }

    #[test]
    fn a_hundred_thousand_peers() {
        let mut a = Addresses::default();
        for n in 0..100_000 {
            assert_eq!(index(&mut a, n), u64::from(n));
        }
        assert_eq!(a.index_of(&addr(77_777).into()), 77_777);
        assert_eq!(a.get(99_999), Some(addr(99_999).into()));
    }

    #[test]
    fn one_address_under_several_names() {
        let name = |number| Name { instance: Instance::new(number), ..addr(0).into() };
        let at = |index, ambiguous| InsertedAddress { index, ambiguous };
        // Taken out in every order, the last that is left is found.
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut a = Addresses::default();
            assert_eq!(a.insert(name(7)), at(0, false));
            assert_eq!(a.insert(name(8)), at(1, true), "another endpoint there");
            assert_eq!(a.insert(name(0)), at(2, true), "whoever is there");
            assert_eq!(a.insert(name(7)), at(0, false));
            assert_eq!((a.get(0), a.get(1)), (Some(name(7)), Some(name(8))));
            assert_eq!(a.remove(0), Ok(()));
            let mut left = vec![0, 1, 2];
            for gone in order {
                assert_eq!(a.index_of(&addr(0).into()), left[left.len() - 1]);
                assert_eq!(a.remove(gone), Ok(()));
                left.retain(|index| *index != gone);
            }
            assert_eq!(a.index_of(&addr(0).into()), ADDR_UNSPEC);
        }
    }
}
