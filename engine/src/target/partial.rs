//! Writes of peers of which some packets have arrived and others have not, and whose completion is reported at the
//! target.
//!
//! An entry is named by the write's message id, which has 16 bits, so the entry must be gone before the id is used
//! again. The last packet of a write removes its entry, but not every write has a last packet: when the target refuses
//! a packet, because its region was closed meanwhile, the initiator does not send the rest. Such an entry is *stale*,
//! and is recognised by its age:
//!
//! - On a context the ids of one-sided operations are consecutive, and so are the PSNs of an operation's packets. An
//!   initiator's packets are never further ahead of the oldest unacknowledged one than its window. So every packet has
//!   arrived of a write that is more than a few windows of ids older than the newest operation.
//! - On a shared-memory channel the ids of answers, which this table does not count, lie between the ids of operations.
//!   But records keep their order, so every write is over when another operation begins.

use std::collections::{HashMap, VecDeque};

use crate::channel::ChannelId;
use crate::order::MAX_AHEAD;

/// Largest number of partial writes of one channel. Beyond that the oldest entry counts as stale:
/// an honest initiator has fewer packets than this in two windows, the one before a write and the
/// one after it.
const MAX_PER_CHANNEL: usize = 8192;
/// Largest number of partial writes of all peers outside the job together.
const MAX_ALL_OUTSIDE: usize = 1 << 16;

/// The facts about a packet that carries a part of a peer's RMA write.
#[derive(Clone, Copy, Debug)]
pub(super) struct WritePart {
    pub(super) id: u16,
    /// The packet is the first of its write.
    pub(super) first: bool,
    /// Number of bytes that the packet carries, and number of bytes of the whole write.
    pub(super) len: u64,
    pub(super) total: u64,
    /// The write's remote CQ data, if this packet carries any.
    pub(super) data: Option<u64>,
}

/// A peer's RMA write of which packets are missing.
#[derive(Clone, Copy, Debug)]
struct PartialWrite {
    id: u16,
    received: u64,
    data: Option<u64>,
}

/// The peers' RMA writes of which packets are missing, for one channel.
#[derive(Debug)]
struct ChannelWrites {
    /// The newest id of an operation on the channel of which a packet has arrived.
    newest: u16,
    /// The peer was outside the job when the first of the writes began.
    outside: bool,
    /// The partial writes, the oldest first as far as packets arrive in order.
    writes: VecDeque<PartialWrite>,
}

impl ChannelWrites {
    /// Records that a packet of operation `id` has arrived; `first` says that the packet begins the operation. Removes
    /// the entries that are stale now, and returns their number.
    #[inline]
    fn advance(&mut self, channel: ChannelId, id: u16, first: bool) -> usize {
        let before = self.writes.len();
        if channel.context().is_none() {
            self.writes.retain(|write| !first && write.id == id);
        } else if is_after(id, self.newest) {
            self.newest = id;
            let is_stale = |write: &PartialWrite| id.wrapping_sub(write.id) > MAX_AHEAD;
            while self.writes.front().is_some_and(is_stale) {
                self.writes.pop_front();
            }
        }
        before - self.writes.len()
    }
}

/// The incomplete RMA writes on all channels. The module's documentation explains when an entry is
/// stale.
#[derive(Debug, Default)]
pub(super) struct PartialWrites {
    /// The incomplete writes of each channel that has any.
    channels: HashMap<ChannelId, ChannelWrites>,
    /// The number of partial writes of peers outside the job.
    outside: usize,
}

impl PartialWrites {
    /// Records that a packet of operation `id` has arrived; `first` says that the packet begins the operation. Removes
    /// the entries that are stale now.
    #[inline]
    pub(super) fn advance(&mut self, channel: ChannelId, id: u16, first: bool) {
        if !self.channels.is_empty() {
            self.remove_stale(channel, id, first);
        }
    }

    #[cold]
    fn remove_stale(&mut self, channel: ChannelId, id: u16, first: bool) {
        let Some(of) = self.channels.get_mut(&channel) else { return };
        let removed = of.advance(channel, id, first);
        self.outside -= if of.outside { removed } else { 0 };
        if of.writes.is_empty() {
            self.channels.remove(&channel);
        }
    }

    /// Returns whether there is room for another partial write of a peer; `outside` says that the peer is outside the
    /// job.
    #[inline]
    pub(super) fn has_room(&self, channel: ChannelId, outside: bool) -> bool {
        // A write that has an entry needs no further room, and a shared-memory channel has one
        // entry at a time.
        !outside
            || channel.context().is_none()
            || self.outside < MAX_ALL_OUTSIDE
            || self.channels.contains_key(&channel)
    }

    /// Counts the bytes of a packet. Returns the write's remote CQ data, if it has any, once all bytes of the write
    /// have arrived.
    pub(super) fn record_packet(
        &mut self,
        channel: ChannelId,
        outside: bool,
        piece: WritePart,
    ) -> Option<Option<u64>> {
        let WritePart { id, first, len, total, data } = piece;
        let fresh = || ChannelWrites { newest: id, outside, writes: VecDeque::new() };
        let of = self.channels.entry(channel).or_insert_with(fresh);
        let stale = of.advance(channel, id, first);
        self.outside -= if of.outside { stale } else { 0 };
        // The newest writes are at the end, and most packets belong to those.
        let Some(at) = of.writes.iter().rposition(|write| write.id == id) else {
            if of.writes.len() == MAX_PER_CHANNEL {
                of.writes.pop_front();
            } else {
                self.outside += usize::from(of.outside);
            }
            of.writes.push_back(PartialWrite { id, received: len, data });
            return None;
        };
        let write = &mut of.writes[at];
        write.received += len;
        write.data = write.data.or(data);
        if write.received < total {
            return None;
        }
        let data = write.data;
        of.writes.remove(at);
        self.outside -= usize::from(of.outside);
        if of.writes.is_empty() {
            self.channels.remove(&channel);
        }
        Some(data)
    }

    /// Returns the number of partial writes, summed over all channels.
    pub(super) fn len(&self) -> usize {
        self.channels.values().map(|of| of.writes.len()).sum()
    }

    /// Removes the partial writes of a channel that has ended; they will never be complete.
    pub(super) fn close(&mut self, channel: ChannelId) {
        if let Some(of) = self.channels.remove(&channel)
            && of.outside
        {
            self.outside -= of.writes.len();
        }
    }
}

/// Returns whether `id` comes after `other`, provided that they are less than half of all ids apart.
const fn is_after(id: u16, other: u16) -> bool {
    let ahead = id.wrapping_sub(other);
    ahead != 0 && ahead < 1 << 15
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::ShmId;
    use crate::reliability::PdcId;

    fn context() -> ChannelId {
        ChannelId::Context(PdcId::from_u32(0))
    }

    fn piece(id: u16, len: u64) -> WritePart {
        WritePart { id, first: false, len, total: 10, data: None }
    }

    #[test]
    fn stale_writes_are_removed_before_their_ids_are_reused() {
        for start in [0, 1, 40_000, u16::MAX] {
            let mut partial = PartialWrites::default();
            assert_eq!(partial.record_packet(context(), false, piece(start, 6)), None);
            for ahead in 1..=u16::MAX {
                partial.advance(context(), start.wrapping_add(ahead), true);
                let kept = !partial.channels.is_empty();
                assert_eq!(kept, ahead <= MAX_AHEAD, "{start} {ahead}");
            }
            partial.advance(context(), start, false);
            assert_eq!(partial.record_packet(context(), false, piece(start, 6)), None);
            assert_eq!(partial.record_packet(context(), false, piece(start, 4)), Some(None));
            assert!(partial.channels.is_empty());
        }
    }

    #[test]
    fn packets_of_a_window_may_arrive_in_any_order() {
        let mut partial = PartialWrites::default();
        // The second halves of all writes arrive first, those of the newest write first of all.
        for id in (0..4000u16).rev().map(|id| id.wrapping_sub(2000)) {
            assert_eq!(partial.record_packet(context(), true, piece(id, 5)), None);
        }
        assert_eq!(partial.outside, 4000);
        for id in (0..4000u16).map(|id| id.wrapping_sub(2000)) {
            let data = Some(u64::from(id));
            let whole = partial.record_packet(context(), true, WritePart { data, ..piece(id, 5) });
            assert_eq!(whole, Some(data));
        }
        assert_eq!((partial.outside, partial.channels.len()), (0, 0));
    }

    #[test]
    fn operation_on_a_shared_memory_channel_ends_earlier_writes() {
        let channel = ChannelId::Shm(ShmId::new(3, 0));
        let mut partial = PartialWrites::default();
        for (first, expected) in [(true, None), (false, Some(None)), (true, None), (true, None)] {
            let piece = WritePart { first, ..piece(7, 5) };
            assert_eq!(partial.record_packet(channel, true, piece), expected, "{first}");
            assert_eq!(partial.outside, usize::from(expected.is_none()));
        }
        partial.advance(channel, 8, false);
        assert!(partial.channels.is_empty());
    }

    #[test]
    fn partial_writes_of_peers_outside_the_job_are_bounded() {
        let mut partial = PartialWrites::default();
        for id in 0..20_000 {
            partial.record_packet(context(), true, piece(id, 5));
        }
        assert_eq!(partial.outside, MAX_PER_CHANNEL);
        for slot in 1u32.. {
            let channel = ChannelId::Context(PdcId::from_u32(slot));
            if !partial.has_room(channel, true) {
                break;
            }
            for id in 0..100 {
                assert_eq!(partial.record_packet(channel, true, piece(id, 5)), None);
            }
        }
        assert!((MAX_ALL_OUTSIDE..MAX_ALL_OUTSIDE + 100).contains(&partial.outside));
        let other = ChannelId::Context(PdcId::from_u32(60_000));
        assert!(partial.has_room(other, false) && partial.has_room(context(), true));
        partial.close(context());
        assert!(partial.has_room(other, true));
    }
}
