//! Which operations of others contend with one's own: the arrays of section 6.2.2, in flits of one class.

use alloc::boxed::Box;

/// Traffic of one multicast group and class, as one member sees it.
#[derive(Clone, Debug)]
pub(super) struct Matching {
    /// Of each member: flits of mine that none of its have matched yet; negative for its that none of mine have.
    unmatched: Box<[i32]>,
    /// Of each member: its flits that may still be matched, negative or zero. `unmatched` is never less.
    outstanding: Box<[i32]>,
    /// Flits of mine that were not answered yet (`Local Ops`). `unmatched` is never more, if operations are forgotten.
    local: i32,
    forget: bool,
}

impl Matching {
    pub(super) fn new(members: usize, forget: bool) -> Self {
        let zeros = || alloc::vec![0; members].into_boxed_slice();
        Self { unmatched: zeros(), outstanding: zeros(), local: 0, forget }
    }

    /// Member `me` sends `flits` to all: how many of the others' they match.
    pub(super) fn send(&mut self, me: usize, flits: i32) -> i32 {
        self.local = self.local.saturating_add(flits);
        let mut matched = 0;
        for (member, unmatched) in self.unmatched.iter_mut().enumerate() {
            if member != me {
                matched += flits.min((-*unmatched).max(0));
                // No more than `local` that was not more before: both grow by as much.
                *unmatched = unmatched.saturating_add(flits);
            }
        }
        matched
    }

    /// `flits` of `from` arrive: how many of mine they match. For a member that is not there, none.
    pub(super) fn on_remote(&mut self, from: usize, flits: i32) -> i32 {
        let places = self.unmatched.get_mut(from).zip(self.outstanding.get_mut(from));
        let Some((unmatched, outstanding)) = places else { return 0 };
        let matched = flits.min((*unmatched).max(0));
        *unmatched = unmatched.saturating_sub(flits);
        *outstanding = outstanding.saturating_sub(flits);
        matched
    }

    /// `flits` of mine are answered: what is no longer in the network matches nothing (Fig. 6.6).
    pub(super) fn on_answer(&mut self, flits: i32) {
        self.local = self.local.saturating_sub(flits).max(0);
        let most = self.max_unmatched();
        for unmatched in &mut self.unmatched {
            *unmatched = (*unmatched).min(most);
        }
    }

    /// Most flits of mine that may still be matched.
    const fn max_unmatched(&self) -> i32 {
        if self.forget { self.local } else { i32::MAX }
    }

    /// `flits` of `from` left the network long ago (Fig. 6.7).
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
