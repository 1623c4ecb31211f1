//! The way out when every path to a peer is dead: other entropy values.
//!
//! A network hashes source ports. So all that an endpoint has may lead a pair of hosts over the one link or switch that
//! died: of eight, with two spines, those of one pair in 256, and that pair would stand still until routing learns. The
//! path selector cannot help, for it knows `paths` entropies and no more. So a context whose peer answers on none of
//! them goes over to the next of [`PATH_SETS`](crate::base::PATH_SETS) sets of as many; the selector, and whatever else counts paths, does not notice.

use super::Pdc;
use crate::base::{Time, entropy_count};
use crate::shared::Shared;
use crate::tx::forget_route;

/// Which set of entropy values the packets of a context carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Detour {
    /// What is added to a path of the selector's.
    offset: u16,
}

impl Detour {
    /// The entropy index of one of the selector's paths.
    #[inline]
    pub(super) const fn entropy(self, path: u16) -> u16 {
        path + self.offset
    }

    /// The next set of `paths`; the first again after the last.
    pub(super) fn turn(&mut self, paths: u16) {
        let next = u32::from(self.offset) + u32::from(paths);
        // Below what has 16 bits.
        self.offset = if next < entropy_count(paths).into() { next as u16 } else { 0 };
    }
}

/// The peer answers on no path: from here on packets carry other entropies.
#[cold]
pub(super) fn turn_off<D: Copy>(pdc: &mut Pdc<D>, shared: &mut Shared<D>) {
    shared.counters.detours += 1;
    pdc.control_path.turn_off(shared.paths);
    forget_route(&mut pdc.tx);
}

/// The peer asks, or sends, what it did before, and nothing came from it between: if that goes on, it hears no answer.
#[cold]
pub(super) fn asked_again<D: Copy>(pdc: &mut Pdc<D>, now: Time, shared: &mut Shared<D>) {
    let received = pdc.rx.window().base();
    if pdc.tx.rare_mut().asked.again(now, received) {
        turn_off(pdc, shared);
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
                detour.turn(paths);
            }
            assert_eq!(detour, Detour::default());
        }
    }
}
