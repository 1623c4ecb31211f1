//! The ids of messages from peers of other implementations. Those ids name a message among the open
//! ones of its context and say nothing about the order. Each message therefore gets a number in the
//! order in which messages arrive, and is matched in that order.

use std::collections::HashMap;

use crate::channel::ChannelId;

/// Largest number of messages of one context of which packets are missing. A peer begins its messages
/// one after the other and has at most [`crate::ForeignWire::WINDOW`] packets outstanding, so it has
/// given up those that are so far behind.
const MAX_OPEN: usize = 4096;

/// A message from a foreign peer of which packets are missing.
#[derive(Clone, Copy, Debug)]
struct OpenMessage {
    number: u16,
    /// Number of payload bytes of the message that have arrived.
    received: u64,
    started: bool,
}

/// The messages that a foreign peer sends on one context.
#[derive(Debug, Default)]
struct Stream {
    /// The number that the next message to begin on the context gets.
    next: u16,
    /// The messages of which packets are missing, by the id that the peer gave them.
    open: HashMap<u16, OpenMessage>,
}

/// The numbers of the messages on all contexts that foreign peers opened.
#[derive(Debug, Default)]
pub(crate) struct MessageIds {
    streams: HashMap<ChannelId, Stream>,
}

/// The facts about a packet of a foreign peer that show which message it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessagePacket {
    /// The message id in the packet's header, which the peer chose.
    pub(crate) id: u16,
    /// The packet is marked as the first of its message (SOM).
    pub(crate) first: bool,
    /// Payload bytes that the packet carries.
    pub(crate) len: u64,
    /// Length of the whole message in bytes.
    pub(crate) total: u64,
}

impl MessageIds {
    /// Returns the number of the message that a packet belongs to.
    pub(crate) fn number(&mut self, context: ChannelId, packet: &MessagePacket) -> u16 {
        let stream = self.streams.entry(context).or_default();
        stream.find(packet).map_or(stream.next, |open| open.number)
    }

    /// Records that a packet was taken, whose message has the number that [`Self::number`] returned.
    pub(crate) fn record_packet(&mut self, context: ChannelId, packet: &MessagePacket) {
        let stream = self.streams.entry(context).or_default();
        let known = stream.find(packet).copied();
        let mut open = known.unwrap_or_else(|| stream.begin());
        open.received += packet.len;
        open.started |= packet.first;
        if open.received < packet.total {
            // If the peer uses the id again, it has forgotten the message that had it.
            stream.open.insert(packet.id, open);
        } else {
            stream.open.remove(&packet.id);
        }
    }

    /// Returns the number of messages of which packets are missing.
    pub(crate) fn len(&self) -> usize {
        self.streams.values().map(|stream| stream.open.len()).sum()
    }

    /// Forgets the incomplete messages of a context that has ended.
    pub(crate) fn close(&mut self, context: ChannelId) {
        self.streams.remove(&context);
    }
}

impl Stream {
    /// Returns the open message that a packet belongs to. Peers use an id again, so a second first
    /// packet with the id of an open message begins another message.
    fn find(&self, packet: &MessagePacket) -> Option<&OpenMessage> {
        self.open.get(&packet.id).filter(|open| !(packet.first && open.started))
    }

    /// Opens a new message and returns it. If too many messages are open, discards the older half of
    /// them first.
    fn begin(&mut self) -> OpenMessage {
        if self.open.len() >= MAX_OPEN {
            let (next, kept) = (self.next, MAX_OPEN as u16 / 2);
            self.open.retain(|_, open| next.wrapping_sub(open.number) <= kept);
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        OpenMessage { number, received: 0, started: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reliability::PdcId;

    const ONE: ChannelId = ChannelId::Context(PdcId::from_u32(1));

    fn take(ids: &mut MessageIds, id: u16, first: bool, len: u64, total: u64) -> u16 {
        let packet = MessagePacket { id, first, len, total };
        let number = ids.number(ONE, &packet);
        ids.record_packet(ONE, &packet);
        number
    }

    #[test]
    fn messages_are_numbered_in_the_order_of_arrival() {
        let mut ids = MessageIds::default();
        assert_eq!(take(&mut ids, 9, true, 10, 10), 0, "one packet");
        assert_eq!(take(&mut ids, 9, true, 0, 0), 1, "the id is used again");
        assert_eq!(take(&mut ids, 7, false, 10, 30), 2, "the first packet is late");
        assert_eq!(take(&mut ids, 5, true, 10, 20), 3);
        assert_eq!(take(&mut ids, 7, true, 10, 30), 2);
        assert_eq!(take(&mut ids, 7, false, 10, 30), 2);
        assert_eq!(take(&mut ids, 7, true, 10, 10), 4, "message 7 was complete");
        assert_eq!(take(&mut ids, 5, true, 10, 20), 5, "the peer has given message 5 up");
        ids.close(ONE);
        assert_eq!(take(&mut ids, 5, true, 10, 20), 0);
    }

    #[test]
    fn a_packet_that_was_not_taken_gives_no_number_away() {
        let mut ids = MessageIds::default();
        let packet = MessagePacket { id: 3, first: true, len: 1, total: 1 };
        assert_eq!((ids.number(ONE, &packet), ids.number(ONE, &packet)), (0, 0));
        assert_eq!(take(&mut ids, 4, true, 1, 1), 0);
        assert_eq!(ids.number(ONE, &packet), 1);
    }

    #[test]
    fn messages_that_a_peer_has_given_up_are_forgotten() {
        let mut ids = MessageIds::default();
        for id in 0..=u16::MAX {
            assert_eq!(take(&mut ids, id, true, 1, 2), id);
            assert!(ids.len() <= MAX_OPEN);
        }
        // The packets that follow belong to open messages.
        for id in u16::MAX - 128..=u16::MAX {
            assert_eq!(take(&mut ids, id, false, 1, 2), id);
        }
        assert_eq!(take(&mut ids, 9, false, 1, 2), 0, "the numbers start again");
        ids.close(ONE);
        assert_eq!(ids.len(), 0);
    }
}
