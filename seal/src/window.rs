//! Detection of replayed packets: which counters of a sender have arrived.

use core::fmt;

/// Number of counters in the window, a power of two. The receiver drops a packet whose counter is
/// this much or more below the highest one that has arrived. That covers 16 packet delivery contexts
/// with 512 outstanding packets each.
const WIDTH: u64 = 8192;

/// The record of the recent counters of a sender that have arrived. It recognises replayed packets.
#[derive(Clone)]
pub struct ReplayWindow {
    /// Largest packet counter that has arrived, plus one; 0 before the first packet.
    next: u64,
    /// One bit per counter that has arrived, at its position modulo [`WIDTH`].
    arrived: Box<[u64; (WIDTH / 64) as usize]>,
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self { next: 0, arrived: Box::new([0; (WIDTH / 64) as usize]) }
    }
}

impl ReplayWindow {
    /// Returns whether a packet with this counter may be accepted: it has not arrived, and is not
    /// older than the window.
    #[must_use]
    pub fn is_new(&self, counter: u64) -> bool {
        if counter >= self.next {
            return true;
        }
        self.next - counter <= WIDTH && self.arrived[word(counter)] & bit(counter) == 0
    }

    /// Records the counter of a packet whose tag was right.
    pub fn insert(&mut self, counter: u64) {
        if counter >= self.next {
            let skipped = counter - self.next;
            if skipped >= WIDTH {
                self.arrived.fill(0);
            } else {
                for between in self.next..counter {
                    self.arrived[word(between)] &= !bit(between);
                }
            }
            self.next = counter + 1;
        }
        self.arrived[word(counter)] |= bit(counter);
    }
}

impl fmt::Debug for ReplayWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplayWindow(next {})", self.next)
    }
}

const fn word(counter: u64) -> usize {
    // The index of a word is below 128.
    (counter % WIDTH / 64) as usize
}

const fn bit(counter: u64) -> u64 {
    1 << (counter % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The window agrees with a set that forgets nothing.
        #[test]
        fn a_counter_is_accepted_once(
            steps in prop::collection::vec((0u64..20, prop_oneof![8 => 0u64..200, 2 => 0u64..9000, 1 => 0u64..40_000]), 1..400)
        ) {
            let (mut window, mut all, mut top) = (ReplayWindow::default(), BTreeSet::new(), 0u64);
            for (forward, back) in steps {
                let counter = (top + forward).saturating_sub(back);
                let largest = all.last().copied();
                let in_window = largest.is_none_or(|last: u64| last < counter || last + 1 - counter <= WIDTH);
                prop_assert_eq!(window.is_new(counter), in_window && !all.contains(&counter));
                if window.is_new(counter) {
                    window.insert(counter);
                    all.insert(counter);
                }
                top = top.max(counter) + 1;
            }
        }
    }

    #[test]
    fn a_jump_forgets_what_lies_outside_the_window() {
        let mut window = ReplayWindow::default();
        for counter in [0, 5, 5 + WIDTH, (1 << 48) - 1] {
            assert!(window.is_new(counter));
            window.insert(counter);
            assert!(!window.is_new(counter));
        }
        assert!(!window.is_new(5) && window.is_new((1 << 48) - WIDTH));
        assert!(!window.is_new((1 << 48) - WIDTH - 1));
    }
}
