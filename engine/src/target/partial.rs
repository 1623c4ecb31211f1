//! Writes of peers of which some packets have arrived and others not, and whose end is reported.
//!
//! An entry is named by the write's message id, which has 16 bits, so it must be gone before the id comes again. The last
//! packet of a write removes it, but not every write has one: when the target refuses a packet, because its region was
//! closed meanwhile, the initiator does not send the rest. Such an entry is *stale*, and is recognised by its age:
//!
//! - On a context the ids of one-sided operations follow each other, and the packets of an operation have PSNs in a row.
//!   An initiator sends no packet further ahead of the oldest unacknowledged one than its window, so of a write that is
//!   more than a few windows of ids older than the newest operation every packet has arrived.
//! - On a shared-memory channel ids of answers, which nobody counts here, lie between those of operations. But records
//!   keep their order, so every write is over when another operation begins.

use std::collections::{HashMap, VecDeque};

use crate::channel::ChannelId;
use crate::order::MAX_AHEAD;

/// Partial writes of one channel; of more, the oldest is stale. An honest initiator has fewer packets than this in two
/// windows, the one before a write and the one behind it.
const MOST: usize = 8192;
/// Partial writes of all peers outside the job.
const MOST_OUTSIDE: usize = 1 << 16;

/// A packet of a write that is not the whole write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) id: u16,
    /// It begins the write.
    pub(super) first: bool,
    /// Bytes of the packet, and of the write.
    pub(super) len: u64,
    pub(super) total: u64,
    /// Remote CQ data, if the packet brings any.
    pub(super) data: Option<u64>,
}

/// A write of which packets are missing.
#[derive(Clone, Copy, Debug)]
struct PartialWrite {
    id: u16,
    received: u64,
    data: Option<u64>,
}

/// Those of a channel.
#[derive(Debug)]
struct OfChannel {
    /// The newest id of an operation that was seen.
    newest: u16,
    /// The peer was outside the job when the first of them began.
    outside: bool,
    /// The oldest first, as far as packets arrive in order.
    writes: VecDeque<PartialWrite>,
}

impl OfChannel {
    /// A packet of operation `id` has arrived; `first` when it begins the operation. How many entries were stale, and are
    /// removed.
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

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct PartialWrites {
    /// Channels with any.
    channels: HashMap<ChannelId, OfChannel>,
    /// How many are of peers outside the job.
    outside: usize,
}

impl PartialWrites {
    /// A packet of operation `id` has arrived; `first` when it begins the operation. Removes what is stale by that.
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

    /// Whether there is room for another partial write of a peer, which is `outside` the job or not.
    #[inline]
    pub(super) fn has_room(&self, channel: ChannelId, outside: bool) -> bool {
        // One that is here goes on, and a shared-memory channel has one at a time.
        !outside
            || channel.context().is_none()
            || self.outside < MOST_OUTSIDE
            || self.channels.contains_key(&channel)
    }

    /// Counts the bytes of a packet. Once all of the write are here, its remote CQ data, if it has some.
    pub(super) fn note(
        &mut self,
        channel: ChannelId,
        outside: bool,
        piece: Piece,
    ) -> Option<Option<u64>> {
        let Piece { id, first, len, total, data } = piece;
        let fresh = || OfChannel { newest: id, outside, writes: VecDeque::new() };
        let of = self.channels.entry(channel).or_insert_with(fresh);
        let stale = of.advance(channel, id, first);
        self.outside -= if of.outside { stale } else { 0 };
        // The newest are at the end, and most packets are of those.
        let Some(at) = of.writes.iter().rposition(|write| write.id == id) else {
            if of.writes.len() == MOST {
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

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.channels.values().map(|of| of.writes.len()).sum()
    }

    /// A channel is gone: its writes will not be whole.
    pub(super) fn close(&mut self, channel: ChannelId) {
        if let Some(of) = self.channels.remove(&channel)
            && of.outside
        {
            self.outside -= of.writes.len();
        }
    }
}

/// Whether `id` comes after `other`, both of them from within half of all ids.
const fn is_after(id: u16, other: u16) -> bool {
    let ahead = id.wrapping_sub(other);
    ahead != 0 && ahead < 1 << 15
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::LinkId;
    use crate::reliability::PdcId;

    fn context() -> ChannelId {
        ChannelId::Context(PdcId::from_u32(0))
    }

    fn piece(id: u16, len: u64) -> Piece {
        Piece { id, first: false, len, total: 10, data: None }
    }

    #[test]
    fn an_entry_is_gone_before_its_id_comes_again() {
        for start in [0, 1, 40_000, u16::MAX] {
            let mut partial = PartialWrites::default();
            assert_eq!(partial.note(context(), false, piece(start, 6)), None);
            for ahead in 1..=u16::MAX {
                partial.advance(context(), start.wrapping_add(ahead), true);
                let kept = !partial.channels.is_empty();
                assert_eq!(kept, ahead <= MAX_AHEAD, "{start} {ahead}");
            }
            partial.advance(context(), start, false);
            assert_eq!(partial.note(context(), false, piece(start, 6)), None);
            assert_eq!(partial.note(context(), false, piece(start, 4)), Some(None));
            assert!(partial.channels.is_empty());
        }
    }

    #[test]
    fn packets_of_a_window_may_come_in_any_order() {
        let mut partial = PartialWrites::default();
        // The later halves of all first, the newest write first of all.
        for id in (0..4000u16).rev().map(|id| id.wrapping_sub(2000)) {
            assert_eq!(partial.note(context(), true, piece(id, 5)), None);
        }
        assert_eq!(partial.outside, 4000);
        for id in (0..4000u16).map(|id| id.wrapping_sub(2000)) {
            let data = Some(u64::from(id));
            let whole = partial.note(context(), true, Piece { data, ..piece(id, 5) });
            assert_eq!(whole, Some(data));
        }
        assert_eq!((partial.outside, partial.channels.len()), (0, 0));
    }

    #[test]
    fn on_a_channel_that_keeps_order_a_new_operation_ends_those_before() {
        let channel = ChannelId::Link(LinkId::new(3, 0));
        let mut partial = PartialWrites::default();
        for (first, expected) in [(true, None), (false, Some(None)), (true, None), (true, None)] {
            let piece = Piece { first, ..piece(7, 5) };
            assert_eq!(partial.note(channel, true, piece), expected, "{first}");
            assert_eq!(partial.outside, usize::from(expected.is_none()));
        }
        partial.advance(channel, 8, false);
        assert!(partial.channels.is_empty());
    }

    #[test]
    fn what_peers_outside_the_job_may_leave_is_bounded() {
        let mut partial = PartialWrites::default();
        for id in 0..20_000 {
            partial.note(context(), true, piece(id, 5));
        }
        assert_eq!(partial.outside, MOST);
        for slot in 1u32.. {
            let channel = ChannelId::Context(PdcId::from_u32(slot));
            if !partial.has_room(channel, true) {
                break;
            }
            for id in 0..100 {
                assert_eq!(partial.note(channel, true, piece(id, 5)), None);
            }
        }
        assert!((MOST_OUTSIDE..MOST_OUTSIDE + 100).contains(&partial.outside));
        let other = ChannelId::Context(PdcId::from_u32(60_000));
        assert!(partial.has_room(other, false) && partial.has_room(context(), true));
        partial.close(context());
        assert!(partial.has_room(other, true));
    }
}
