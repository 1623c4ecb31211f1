//! Detours: other entropy values for when every path to a peer has failed.
//!
//! A network hashes source ports. All ports of an endpoint may therefore lead a pair of hosts over
//! the one link or switch that failed: with eight ports and two spines, this is so for one pair in
//! 256, which would stall until routing recovers. The path selector cannot help, because it knows
//! only its `paths` entropies. A context whose peer answers on none of them therefore changes to
//! the next of [`PATH_SETS`](crate::base::PATH_SETS) sets of as many. The selector, and everything
//! else that counts paths, does not notice.

use crate::base::entropy_count;

/// The set of source-port values (entropies) that the packets of a context use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Detour {
    /// The number added to each path of the selector, which gives the entropy index.
    offset: u16,
}

impl Detour {
    /// Returns the entropy index that stands for `path` of the selector in this set.
    #[inline]
    pub(super) const fn entropy(self, path: u16) -> u16 {
        path + self.offset
    }

    /// Changes to the next set of `paths` entropies, and from the last to the first.
    pub(super) fn advance(&mut self, paths: u16) {
        let next = u32::from(self.offset) + u32::from(paths);
        // It fits 16 bits, because it is below the number of entropies.
        self.offset = if next < entropy_count(paths).into() { next as u16 } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_has_entropies_of_its_own_until_the_first_is_used_again() {
        for (paths, sets) in [(1, 4), (8, 4), (20_000, 3), (u16::MAX, 1)] {
            let mut detour = Detour::default();
            for set in 0..sets {
                assert_eq!(detour.entropy(paths - 1), set * paths + paths - 1);
                detour.advance(paths);
            }
            assert_eq!(detour, Detour::default());
        }
    }
}
