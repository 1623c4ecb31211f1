//! Fragments: parts of a packet that was sent before and is too long for its path.
//!
//! The sender cuts the payload of such a packet, the *original*, again. The first fragment keeps the original's PSN,
//! the others get PSNs of their own, and each names the original. The receiver takes an original or its fragments,
//! never both: when the original arrived and only its acknowledgement was lost, the bytes are in place already, and the
//! application may have used the buffer again.

use std::collections::BTreeMap;

use super::Pdcs;
use crate::base::Psn;
use crate::config::MAX_WINDOW;
use crate::types::{Delivery, PdcId, QueuedPacket};

/// The most originals of one context whose fragments may be missing at the receiver. A sender has at most one window of
/// packets outstanding when it cuts them, and sends all their fragments before any new packet.
const MAX_ORIGINALS: usize = 2 * MAX_WINDOW as usize;

/// The packets (originals) that arrive as fragments on one context, while fragments are missing.
#[derive(Debug, Default)]
pub(crate) struct Originals {
    /// The number of fragments that are still to come, and the number of all, by the PSN of the original.
    missing: BTreeMap<u32, (u8, u8)>,
}

impl Originals {
    /// Returns whether one of the `count` fragments of `original` is consistent with the fragments before, and there is
    /// room to record it.
    fn accepts(&self, original: Psn, count: u8) -> bool {
        match self.missing.get(&original.0) {
            Some((_, all)) => *all == count,
            None => count > 1 && self.missing.len() < MAX_ORIGINALS,
        }
    }

    /// Records that one of the `count` fragments of `original`, which is acceptable, was taken.
    fn take(&mut self, original: Psn, count: u8) {
        let (left, _) = self.missing.entry(original.0).or_insert((count, count));
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.missing.remove(&original.0);
        }
    }

    /// Returns whether fragments of `original` were taken, and others are still to come.
    fn contains(&self, original: Psn) -> bool {
        self.missing.contains_key(&original.0)
    }
}

impl<D: Copy> Pdcs<D> {
    /// Returns whether a fragment was ever taken, on any context.
    #[must_use]
    #[inline]
    pub const fn has_fragments(&self) -> bool {
        self.shared.fragmented
    }

    /// Returns whether the bytes of a fragment on context `id` have arrived already, because its original was taken as a whole.
    #[must_use]
    pub fn is_fragment_repeated(&mut self, id: PdcId, original: Psn) -> bool {
        self.table.get_mut(id).is_some_and(|pdc| {
            pdc.rx().has(original) && !pdc.rx_mut().rare_mut().originals_mut().contains(original)
        })
    }

    /// Returns whether the engine may take one of the `count` fragments of `original`. False when an honest sender cannot
    /// have sent the fragment: it cuts a packet into at least two parts, always says into how many, and has at most
    /// `MAX_ORIGINALS` cut packets outstanding.
    #[must_use]
    pub fn accepts_fragment(&mut self, id: PdcId, original: Psn, count: u8) -> bool {
        let pdc = self.table.get_mut(id);
        pdc.is_some_and(|pdc| pdc.rx_mut().rare_mut().originals_mut().accepts(original, count))
    }

    /// Records that the engine took one of the `count` fragments of `original`, which was
    /// [accepted](Self::accepts_fragment).
    pub fn take_fragment(&mut self, id: PdcId, original: Psn, count: u8) {
        self.shared.fragmented = true;
        if let Some(pdc) = self.table.get_mut(id) {
            pdc.rx_mut().rare_mut().originals_mut().take(original, count);
        }
    }

    /// Discards a packet that was delivered if fragments of it were taken already: a late copy of an original. Its
    /// sender repeats the first fragment, which has the same PSN. Returns the packet otherwise.
    pub fn discard_original(&mut self, delivery: Delivery) -> Option<Delivery> {
        let pdc = self.table.get_mut(delivery.id())?;
        if !pdc.rx_mut().rare_mut().originals_mut().contains(delivery.psn()) {
            return Some(delivery);
        }
        let (id, psn) = delivery.into_parts();
        self.pending.take_if(|pending| pending.is(id, psn));
        None
    }

    /// Returns the packet of context `id` that [`Pdcs::poll_retransmit`] would send again next, if it may.
    #[must_use]
    pub fn next_queued(&mut self, id: PdcId) -> Option<QueuedPacket<D>> {
        self.table.get_mut(id)?.tx_mut().next_queued()
    }

    /// Shortens a packet of context `id` that waits to be sent again: from now on it is the first fragment of its original.
    pub fn shorten_queued(&mut self, id: PdcId, packet: QueuedPacket<D>) {
        if let Some(pdc) = self.table.get_mut(id) {
            pdc.tx_mut().shorten(packet.psn, packet.desc, packet.bytes);
        }
    }

    /// Returns the first PSN of context `id`, in either direction. It changes when the peer makes the context start
    /// again, together with the PSNs of all packets.
    #[must_use]
    pub fn start_psn(&self, id: PdcId) -> Psn {
        self.table.get(id).map_or(Psn(0), |pdc| pdc.numbers().start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a fragment if it is accepted. Returns whether it was.
    fn take(originals: &mut Originals, original: u32, count: u8) -> bool {
        let accepted = originals.accepts(Psn(original), count);
        if accepted {
            originals.take(Psn(original), count);
        }
        accepted
    }

    #[test]
    fn an_original_is_forgotten_with_its_last_fragment() {
        let mut originals = Originals::default();
        assert!(take(&mut originals, 5, 3) && originals.contains(Psn(5)));
        assert!(take(&mut originals, 6, 2) && take(&mut originals, 5, 3));
        assert!(originals.contains(Psn(5)) && originals.contains(Psn(6)));
        assert!(take(&mut originals, 5, 3) && !originals.contains(Psn(5)));
        assert!(take(&mut originals, 6, 2) && !originals.contains(Psn(6)));
        assert_eq!(originals.missing.len(), 0);
    }

    #[test]
    fn impossible_fragments_are_refused_and_memory_is_bounded() {
        let mut originals = Originals::default();
        assert!(!take(&mut originals, 1, 0) && !take(&mut originals, 1, 1));
        for n in 0..MAX_ORIGINALS as u32 {
            assert!(take(&mut originals, n, 3));
        }
        assert!(!take(&mut originals, u32::MAX, 2), "too many at once");
        assert!(!take(&mut originals, 0, 2), "another number of fragments than before");
        assert!(take(&mut originals, 0, 3), "the fragments of a known original may go on");
        assert!(take(&mut originals, 0, 3) && take(&mut originals, u32::MAX, 2));
    }
}
