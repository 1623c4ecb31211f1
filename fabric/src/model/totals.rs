//! What a network counts as a whole.

use super::port::Drop;
use crate::Picos;

/// Packets lost, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Losses {
    /// Data queues were full.
    pub queue_full: u64,
    /// Control queues were full.
    pub control_full: u64,
    /// Links or switches were down.
    pub down: u64,
    /// Swallowed unnoticed.
    pub black_hole: u64,
    /// Bit errors.
    pub corrupt: u64,
    /// No way to the destination.
    pub no_route: u64,
}

impl Losses {
    pub(super) fn count(&mut self, why: Drop) {
        *match why {
            Drop::QueueFull => &mut self.queue_full,
            Drop::ControlFull => &mut self.control_full,
            Drop::Down => &mut self.down,
            Drop::BlackHole => &mut self.black_hole,
            Drop::Corrupt => &mut self.corrupt,
            Drop::NoRoute => &mut self.no_route,
        } += 1;
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            queue_full: self.queue_full + other.queue_full,
            control_full: self.control_full + other.control_full,
            down: self.down + other.down,
            black_hole: self.black_hole + other.black_hole,
            corrupt: self.corrupt + other.corrupt,
            no_route: self.no_route + other.no_route,
        }
    }

    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.queue_full
            + self.control_full
            + self.down
            + self.black_hole
            + self.corrupt
            + self.no_route
    }
}

/// Sums over all switches and links.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Packets lost that were sent as data, trimmed ones too.
    pub data: Losses,
    /// Other packets lost.
    pub control: Losses,
    /// Data packets that went on trimmed.
    pub trimmed: u64,
    /// Data packets marked Congestion Experienced; each port that marks counts.
    pub marked: u64,
    /// Pause frames sent.
    pub pauses: u64,
    /// When a data packet was last trimmed or lost; zero if none was.
    pub last_loss: Picos,
}

impl Totals {
    /// All packets lost.
    #[must_use]
    pub const fn lost(&self) -> Losses {
        self.data.plus(self.control)
    }
}
