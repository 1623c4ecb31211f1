//! State that the flows of one host share: the number of open flows, and the numbers of the
//! speculative packets of flows that started in the same epoch (Snyder's thesis, section 5.3).

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use squall_base::{Span, Time};

use crate::controller::StartEpoch;

/// Number of epochs whose flows may still send speculative packets.
const LIVE: usize = 8;

/// The flows of one host. Only one thread at a time works on the contexts of an endpoint.
#[derive(Debug, Default)]
pub(super) struct Starts {
    /// Number of flows of this host that are open.
    open: AtomicU32,
    /// Epoch in which a flow last started or ended, and the number of flows open when that epoch
    /// began.
    epoch: AtomicU32,
    before: AtomicU32,
    /// Number of an epoch, and the number of its next speculative packet, indexed by the epoch
    /// modulo the length.
    counters: [(AtomicU32, AtomicU32); LIVE],
}

/// Returns the number of the epoch in which a time lies; wraps.
pub(super) fn epoch_of(now: Time, length: Span) -> u32 {
    now.0.checked_div(length.0).unwrap_or(0) as u32
}

impl Starts {
    /// Returns the number of open flows of this host, at least one.
    pub(super) fn open(&self) -> u16 {
        u16::try_from(self.open.load(Relaxed)).unwrap_or(u16::MAX).max(1)
    }

    fn enter(&self, epoch: u32) {
        if self.epoch.swap(epoch, Relaxed) != epoch {
            self.before.store(self.open.load(Relaxed), Relaxed);
        }
    }

    /// Records that a flow of this host starts in `epoch`.
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

    /// Records that a flow of this host ends in `epoch`.
    pub(super) fn end(&self, epoch: u32) {
        self.enter(epoch);
        let open = self.open.load(Relaxed);
        self.open.store(open.saturating_sub(1), Relaxed);
    }

    /// Returns the number of the next speculative packet of a flow that started in `epoch`; `None`
    /// if that is too long ago.
    pub(super) fn number(&self, epoch: u32) -> Option<u32> {
        let (of, next) = &self.counters[epoch as usize % LIVE];
        (of.load(Relaxed) == epoch).then(|| next.fetch_add(1, Relaxed))
    }
}
