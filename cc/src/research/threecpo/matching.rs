//! Matching of a member's operations with contending ones of others: the arrays of section 6.2.2,
//! in flits of one class.

use alloc::boxed::Box;

/// Traffic of one multicast group and class, as one member sees it.
#[derive(Clone, Debug)]
pub(super) struct Matching {
    /// Unmatched flits, one number for each member: positive for own flits that no flit of that
    /// member has matched yet, negative for flits of that member that no own flit has matched.
    unmatched: Box<[i32]>,
    /// For each member, the flits that may still be matched, negative or zero. `unmatched` is never less.
    outstanding: Box<[i32]>,
    /// Own flits that were not answered yet (`Local Ops`). With `forget`, `unmatched` never exceeds
    /// this number.
    local: i32,
    forget: bool,
}

impl Matching {
    pub(super) fn new(members: usize, forget: bool) -> Self {
        let zeros = || alloc::vec![0; members].into_boxed_slice();
        Self { unmatched: zeros(), outstanding: zeros(), local: 0, forget }
    }

    /// Records that member `me` sends `flits` to all, and returns how many flits of others they
    /// match.
    pub(super) fn send(&mut self, me: usize, flits: i32) -> i32 {
        self.local = self.local.saturating_add(flits);
        let mut matched = 0;
        for (member, unmatched) in self.unmatched.iter_mut().enumerate() {
            if member != me {
                matched += flits.min((-*unmatched).max(0));
                // `unmatched` cannot newly exceed `local`, because both grow by the same number.
                *unmatched = unmatched.saturating_add(flits);
            }
        }
        matched
    }

    /// Records the arrival of `flits` of member `from`, and returns how many own flits they match:
    /// none for an unknown member.
    pub(super) fn on_remote(&mut self, from: usize, flits: i32) -> i32 {
        let places = self.unmatched.get_mut(from).zip(self.outstanding.get_mut(from));
        let Some((unmatched, outstanding)) = places else { return 0 };
        let matched = flits.min((*unmatched).max(0));
        *unmatched = unmatched.saturating_sub(flits);
        *outstanding = outstanding.saturating_sub(flits);
        matched
    }

    /// Records the answer to `flits` own flits. They have left the network, so with `forget` they
    /// match nothing any more (Fig. 6.6).
    pub(super) fn on_answer(&mut self, flits: i32) {
        self.local = self.local.saturating_sub(flits).max(0);
        let most = self.max_unmatched();
        for unmatched in &mut self.unmatched {
            *unmatched = (*unmatched).min(most);
        }
    }

    /// Returns the largest number of own flits that may still be matched.
    const fn max_unmatched(&self) -> i32 {
        if self.forget { self.local } else { i32::MAX }
    }

    /// Forgets `flits` flits of member `from` that left the network long ago (Fig. 6.7).
    pub(super) fn expire(&mut self, from: usize, flits: i32) {
        if !self.forget {
            return;
        }
        let places = self.unmatched.get_mut(from).zip(self.outstanding.get_mut(from));
        let Some((unmatched, outstanding)) = places else { return };
        *outstanding = outstanding.saturating_add(flits).min(0);
        *unmatched = (*unmatched).max(*outstanding);
    }

    #[cfg(test)]
    pub(super) const fn unmatched(&self) -> &[i32] {
        &self.unmatched
    }

    #[cfg(test)]
    pub(super) const fn outstanding(&self) -> &[i32] {
        &self.outstanding
    }
}
