//! The out-of-order loss detector, SLEEK (STrack section 3.3.2; uet-htsim `UecSrc::runSleek`).

use crate::base::Psn;
use crate::config::Config;

/// State of the recovery of losses that the receiver's out-of-order count showed.
#[derive(Debug)]
pub(super) struct Recovery {
    /// The PSN at which the current recovery ends, once it is the oldest outstanding one.
    end: Psn,
    recovering: bool,
    /// Packets before this PSN were already declared lost in the current recovery.
    swept: Psn,
}

/// The range of outstanding packets, as the out-of-order detector needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutstandingPackets {
    /// The PSN of the oldest outstanding packet.
    pub(super) base: Psn,
    /// One past the PSN of the newest acknowledged packet.
    pub(super) top: Psn,
    /// One past the PSN of the newest outstanding packet.
    pub(super) next: Psn,
}

impl Recovery {
    pub(super) const fn new(start: Psn) -> Self {
        Self { end: start, recovering: false, swept: start }
    }

    /// Returns whether losses are being recovered. Retransmissions may then exceed the window
    /// (uet-htsim main path `:1130`).
    #[inline]
    pub(super) const fn is_active(&self) -> bool {
        self.recovering
    }

    /// Ends the recovery of losses, because another mechanism handles them.
    #[inline]
    pub(super) fn stop(&mut self) {
        self.recovering = false;
    }

    /// Records that `base` is now the oldest outstanding packet.
    #[inline]
    pub(super) fn advance(&mut self, base: Psn) {
        if self.swept.is_before(base) {
            self.swept = base;
        }
    }

    /// Returns whether losses are still being recovered when `base` is the oldest outstanding
    /// packet; ends recovery if not.
    #[inline]
    pub(super) fn continue_recovery(&mut self, base: Psn) -> bool {
        if !base.is_before(self.end) {
            self.recovering = false;
        }
        self.recovering
    }

    /// Handles that all outstanding packets were renumbered from `start` on.
    pub(super) fn restart(&mut self, start: Psn) {
        self.swept = start;
    }

    /// Begins to recover everything sent so far, because more packets are out of order than
    /// spraying explains.
    pub(super) fn begin(&mut self, outstanding: OutstandingPackets) {
        self.recovering = true;
        self.end = outstanding.next;
        self.swept = outstanding.base;
    }

    /// Returns the packets to declare lost now, with a congestion window of `window` packets: the
    /// oldest missing ones, up to a window, each once. Only packets that a later one overtook can
    /// be lost.
    pub(super) fn sweep(
        &mut self,
        outstanding: OutstandingPackets,
        window: u32,
    ) -> Option<(Psn, Psn)> {
        let mut end = outstanding.base.plus(window);
        for bound in [self.end, outstanding.top] {
            if bound.is_before(end) {
                end = bound;
            }
        }
        if !end.is_after(self.swept) {
            return None;
        }
        Some((core::mem::replace(&mut self.swept, end), end))
    }
}

/// Returns the number of out-of-order packets that spraying may explain: the algorithm's threshold
/// in windows, at least a few packets, and a whole train on another path when there are several
/// `paths`. The congestion window is `window` packets and may grow to `most`.
pub(super) fn reordering(window: u32, most: u64, paths: u16, config: &Config) -> u32 {
    let share = (f64::from(window) * f64::from(config.threshold.windows)).min(most as f64);
    let train = if paths > 1 {
        u32::from(config.train_packets).min(config.train_bytes / config.mtu.max(1))
    } else {
        0
    };
    let least = u32::from(config.threshold.packets) + train;
    // A window beyond the PSN window can never be overtaken, so a quarter of the PSN window is the
    // cap.
    let cap = u32::from(config.max_window_packets) / 4;
    // The share fits 32 bits: it is at most 1.5 times 4095.
    (share as u32).max(least).min(cap.max(least))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::{PathsConfig, SenderConfig};

    #[test]
    fn a_packet_is_swept_once_and_only_if_overtaken() {
        let mut recovery = Recovery::new(Psn(100));
        let mut seen = OutstandingPackets { base: Psn(100), top: Psn(110), next: Psn(140) };
        recovery.begin(seen);
        assert!(recovery.is_active());
        // The sweep covers a window, then nothing of it again.
        assert_eq!(recovery.sweep(seen, 8), Some((Psn(100), Psn(108))));
        assert_eq!(recovery.sweep(seen, 8), None);
        // The sweep ends with the overtaken packets.
        assert_eq!(recovery.sweep(seen, 20), Some((Psn(108), Psn(110))));
        // The sweep ends with the packets that were sent when recovery began.
        seen = OutstandingPackets { base: Psn(130), top: Psn(180), next: Psn(200) };
        recovery.advance(seen.base);
        assert_eq!(recovery.sweep(seen, 64), Some((Psn(130), Psn(140))));
        assert!(recovery.continue_recovery(Psn(139)));
        assert!(!recovery.continue_recovery(Psn(140)) && !recovery.is_active());
    }

    #[test]
    fn spraying_explains_a_window_and_a_half_and_a_train() {
        let paths = PathsConfig::single(1).expect("one path");
        let mut config = Config::new(4096, SenderConfig::fixed(1), paths, 1);
        assert_eq!(reordering(100, 1000, 1, &config), 150);
        // The threshold is at most the window's limit and at least a few packets.
        assert_eq!(reordering(100, 120, 1, &config), 120);
        assert_eq!(reordering(1, 120, 1, &config), 5);
        assert_eq!(reordering(1, 120, 2, &config), 5 + 65_000 / 4096);
        config.max_window_packets = 64;
        assert_eq!(reordering(100, 1000, 1, &config), 16);
    }
}
