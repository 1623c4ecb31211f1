//! What the flows of one host share: how many there are, and the numbers of the speculative packets of those that started in
//! the same epoch (Snyder's thesis, section 5.3).

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use squall_base::{Span, Time};

use crate::controller::StartEpoch;

/// Epochs whose flows may still send speculative packets.
const LIVE: usize = 8;

/// The flows of one host. One endpoint's contexts are worked on by one thread at a time.
#[derive(Debug, Default)]
pub(super) struct Starts {
    /// Flows that are open.
    open: AtomicU32,
    /// The epoch in which something happened last, and how many were open when it began.
    epoch: AtomicU32,
    before: AtomicU32,
    /// By epoch, modulo their number: which, and the next packet's number.
    counters: [(AtomicU32, AtomicU32); LIVE],
}

/// The epoch of a moment; wraps.
pub(super) fn epoch_of(now: Time, length: Span) -> u32 {
    now.0.checked_div(length.0).unwrap_or(0) as u32
}

impl Starts {
    /// Flows that are open, at least one.
    pub(super) fn open(&self) -> u16 {
        u16::try_from(self.open.load(Relaxed)).unwrap_or(u16::MAX).max(1)
    }

    fn enter(&self, epoch: u32) {
        if self.epoch.swap(epoch, Relaxed) != epoch {
            self.before.store(self.open.load(Relaxed), Relaxed);
        }
    }

    /// A flow starts in `epoch`.
    pub(super) fn start(&self, epoch: u32) -> StartEpoch {
        self.enter(epoch);
        self.open.fetch_add(1, Relaxed);
        let (of, next) = &self.counters[epoch as usize % LIVE];
        if of.swap(epoch, Relaxed) != epoch {
            next.store(0, Relaxed);
        }
        let weight = u16::try_from(self.before.load(Relaxed)).unwrap_or(u16::MAX).max(1);
        StartEpoch { epoch, weight }
    }

    /// A flow ends in `epoch`.
    pub(super) fn end(&self, epoch: u32) {
        self.enter(epoch);
        let open = self.open.load(Relaxed);
        self.open.store(open.saturating_sub(1), Relaxed);
    }

    /// The number of the next speculative packet of a flow that started in `epoch`; `None` if that is long ago.
    pub(super) fn number(&self, epoch: u32) -> Option<u32> {
        let (of, next) = &self.counters[epoch as usize % LIVE];
        (of.load(Relaxed) == epoch).then(|| next.fetch_add(1, Relaxed))
    }
}
