//! The message port: reliable, ordered records between processes of one host, beside the packets of
//! a [`Port`](crate::Port).

use std::os::fd::RawFd;

use crate::base::UserSlice;
use crate::burst::address;
use crate::shm::PayloadSource;

/// Largest length of a shared-memory record, in bytes.
pub const MAX_RECORD: usize = 16_512;

/// The number of a shared-memory channel at its port. A port reuses the number after
/// [`MessagePort::close`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ShmChannelId(pub u32);

/// A shared-memory record that is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingRecord<'a> {
    head: &'a [u8],
    copied: &'a [u8],
    lent: &'a [UserSlice],
    len: usize,
}

impl<'a> OutgoingRecord<'a> {
    /// Creates a record whose bytes are all in `head` and `copied`, without user memory.
    #[must_use]
    #[inline]
    pub const fn from_copies(head: &'a [u8], copied: &'a [u8]) -> Self {
        Self { head, copied, lent: &[], len: head.len() + copied.len() }
    }

    /// Creates a record that ends with pieces of user memory.
    ///
    /// # Safety
    /// For `'a`, every piece is readable: its address was exposed (`expose_provenance`), and its
    /// bytes stay mapped. Others may write to the bytes meanwhile. The record then holds a mixture,
    /// and no reference to the bytes may exist.
    #[must_use]
    #[inline]
    pub unsafe fn new(head: &'a [u8], lent: &'a [UserSlice]) -> Self {
        let lent_len = lent.iter().fold(0u64, |sum, piece| sum.saturating_add(piece.len));
        let len = head.len().saturating_add(usize::try_from(lent_len).unwrap_or(usize::MAX));
        Self { head, copied: &[], lent, len }
    }

    /// Returns the length of the whole record in bytes.
    #[must_use]
    #[inline]
    #[allow(clippy::len_without_is_empty)] // a record says at least what it is
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns the length of the record's head in bytes.
    #[inline]
    pub(crate) const fn head_len(&self) -> usize {
        self.head.len()
    }

    /// Calls `piece` for each piece of the record in order, with its address and length. All pieces
    /// are readable for `'a`.
    #[inline]
    pub(crate) fn for_each(&self, mut piece: impl FnMut(*const u8, usize)) {
        piece(self.head.as_ptr(), self.head.len());
        if !self.copied.is_empty() {
            piece(self.copied.as_ptr(), self.copied.len());
        }
        for lent in self.lent {
            piece(address(lent), usize::try_from(lent.len).unwrap_or(0));
        }
    }
}

/// The decision of a receiver about a shared-memory record that it was offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordVerdict {
    /// The receiver has consumed the record, which counts as taken.
    Consumed,
    /// The record stays at the front of the channel, before all later records, until it is offered
    /// again. The receiver has no room, or the payload has not arrived yet
    /// ([`PayloadSource::is_delayed`]).
    Deferred,
    /// The record violates the protocol, so the channel ends.
    Broken,
}

/// The room of a receiver for messages that match no posted receive. Records of other kinds need no
/// such room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MessageRoom {
    /// The receiver has room for messages of any length.
    #[default]
    Ample,
    /// The receiver has room for very short messages only.
    Little,
    /// The receiver has no room for messages.
    None,
}

/// The result of sending a record that refers to user memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReferenceOutcome {
    /// The record with the reference was put into the channel.
    Sent,
    /// The channel has no room for the record now.
    Full,
    /// The peer cannot read this process's memory, or the reference has too many pieces.
    Impossible,
}

/// An event on a shared-memory channel that its owner must handle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChannelEvent {
    /// A process of the same user asks for a channel and sent this hello. The owner answers with
    /// [`MessagePort::accept`] or [`MessagePort::close`].
    Requested(ShmChannelId, Vec<u8>),
    /// The peer has accepted a channel that this port asked for, and sent this welcome. Records may
    /// be sent.
    Accepted(ShmChannelId, Vec<u8>),
    /// The channel has ended, and all its records have been handed out. The owner closes it.
    Ended(ShmChannelId, EndReason),
}

/// The reason why a shared-memory channel has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndReason {
    /// The peer has closed the channel, or has violated the protocol. Its process lives.
    Closed,
    /// The peer's process has ended without closing the channel.
    PeerDied,
}

/// A consumer of received records. Its arguments are the channel, the number of this end's records that the peer had
/// taken when it sent this one, the record, and the payload that is to be fetched, if any.
pub type RecordSink<'a> =
    dyn FnMut((ShmChannelId, u64), &[u8], Option<&PayloadSource<'_>>) -> RecordVerdict + 'a;

/// A port that exchanges records with processes of the same user on this host. One thread at a time
/// may use it.
pub trait MessagePort {
    /// Asks the port with this name for a channel and sends `hello`, at most 256 bytes.
    ///
    /// # Errors
    /// `ConnectionRefused` if no port has the name; the error of the system if memory or
    /// descriptors are short.
    fn connect(&mut self, name: &str, hello: &[u8]) -> std::io::Result<ShmChannelId>;

    /// Accepts a channel that a peer asked for and sends `welcome`, at most 256 bytes. Records may
    /// be sent then.
    ///
    /// # Errors
    /// The error of the system: the peer is gone, or its shared memory is invalid. The channel is
    /// closed then.
    fn accept(&mut self, channel: ShmChannelId, welcome: &[u8]) -> std::io::Result<()>;

    /// Closes a channel and notifies the peer. Records that the peer has not taken may be lost.
    fn close(&mut self, channel: ShmChannelId);

    /// Returns whether the kernel reports the end of the peer's process even while other processes
    /// hold its descriptors. If so, the process lives until [`ChannelEvent::Ended`].
    fn is_process_watched(&self, channel: ShmChannelId) -> bool;

    /// Checks all channels for events, with a few system calls. The owner must first revoke every
    /// reference to memory that it has given back ([`MessagePort::revoke_memory`]), because this
    /// call copies referenced memory for peers that cannot read it.
    fn poll_connections(&mut self);

    /// Returns the next event of a channel and removes it from the queue.
    fn next_event(&mut self) -> Option<ChannelEvent>;

    /// Appends a record of at most [`MAX_RECORD`] bytes to a channel. Returns false if the channel
    /// has no room now. On a channel that does not exist the record is lost.
    fn send(&mut self, channel: ShmChannelId, record: OutgoingRecord<'_>) -> bool;

    /// Sends as [`MessagePort::send`] does, but the receiver gets only the head of the record, of 1
    /// to 255 bytes, and fetches the rest from the channel into its destination. That saves one
    /// copy.
    fn send_split(&mut self, channel: ShmChannelId, record: OutgoingRecord<'_>) -> bool;

    /// Returns the room for messages that the peer of a channel publishes now.
    fn peer_room(&self, channel: ShmChannelId) -> MessageRoom;

    /// Returns whether the peer had room for messages when the port last read the peer's state. The
    /// port reads it at least once in as many records as the channel holds, and in every call while
    /// the peer has no room.
    fn has_message_room(&mut self, channel: ShmChannelId) -> bool;

    /// Sends a message as [`MessagePort::send`] sends a record. Also returns false if the peer has
    /// no room for messages.
    fn send_message(&mut self, channel: ShmChannelId, record: OutgoingRecord<'_>) -> bool;

    /// Publishes the room that this end has for messages. If the peer may send messages again, it
    /// is woken by the next [`MessagePort::wake_peers`].
    fn publish_room(&mut self, channel: ShmChannelId, room: MessageRoom);

    /// Sends a record that refers to user memory. The peer reads `pieces` while it handles the
    /// record. The memory is lent until the peer has taken the record
    /// ([`MessagePort::peer_taken`]), or until `tag` is revoked. If the peer cannot read it,
    /// [`MessagePort::poll_connections`] copies it for the peer.
    ///
    /// # Safety
    /// While the memory is lent, every piece is readable: its address was exposed
    /// (`expose_provenance`), and its bytes stay mapped. Others may write to the bytes meanwhile.
    unsafe fn send_reference(
        &mut self,
        channel: ShmChannelId,
        head: &[u8],
        pieces: &[UserSlice],
        tag: u64,
    ) -> ReferenceOutcome;

    /// Revokes the references of all records with this tag. A peer discards what it reads from the
    /// memory after this call.
    fn revoke_memory(&mut self, channel: ShmChannelId, tag: u64);

    /// Passes received records to `sink`, channel by channel, at most `budget` of each channel. Returns the number of
    /// records that were consumed.
    fn recv(&mut self, budget: usize, sink: &mut RecordSink<'_>) -> usize;

    /// Publishes to the peer that this end has taken `count` records since the channel was opened.
    fn publish_taken(&mut self, channel: ShmChannelId, count: u64);

    /// Returns how many records of this end the peer had taken by the last [`MessagePort::recv`]: at least those that
    /// it had taken before it sent its last record. The number comes from the peer and is not verified.
    fn peer_taken(&self, channel: ShmChannelId) -> u64;

    /// Returns the channels on which records were sent, consumed or newly taken since
    /// [`MessagePort::wake_peers`].
    fn touched_channels(&self) -> &[ShmChannelId];

    /// Returns how often the peer had no room for the next record of this end. The count wraps.
    fn peer_deferrals(&self, channel: ShmChannelId) -> u64;

    /// Wakes the sleeping peers of all [`MessagePort::touched_channels`] that have something to
    /// read, and clears that list.
    fn wake_peers(&mut self);

    /// Announces to all peers that this process is about to sleep. The next record or other news of
    /// each peer then wakes it, even if it does not sleep after all. Returns false if something is
    /// already there.
    fn announce_sleep(&mut self) -> bool;

    /// Makes [`MessagePort::fd`] readable, so that a thread that sleeps on it wakes up.
    fn wake_sleeper(&mut self);

    /// Returns the descriptor that becomes readable when records or events wait.
    fn fd(&self) -> RawFd;
}
