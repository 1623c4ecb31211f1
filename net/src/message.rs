//! What a message port is: records between processes that share a host, reliable and in order, beside the packets that
//! a [`Port`](crate::Port) moves.

use std::os::fd::RawFd;

use crate::base::UserSlice;
use crate::burst::address;
use crate::shm::PayloadSource;

/// Longest record, bytes.
pub const MAX_RECORD: usize = 16_512;

/// Names a connection of a message port; that of one which ended comes back, once its owner has closed it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ShmChannelId(pub u32);

/// A record on its way out.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingRecord<'a> {
    head: &'a [u8],
    copied: &'a [u8],
    lent: &'a [UserSlice],
    len: usize,
}

impl<'a> OutgoingRecord<'a> {
    /// A record without user memory.
    #[must_use]
    #[inline]
    pub const fn of_copies(head: &'a [u8], copied: &'a [u8]) -> Self {
        Self { head, copied, lent: &[], len: head.len() + copied.len() }
    }

    /// A record that ends with pieces of user memory.
    ///
    /// # Safety
    /// For `'a`, every piece is readable: the address is one that was exposed (`expose_provenance`), and its bytes stay
    /// mapped. Others may write to them meanwhile; what is sent then is some mixture, and nobody makes a reference to
    /// them.
    #[must_use]
    #[inline]
    pub unsafe fn new(head: &'a [u8], lent: &'a [UserSlice]) -> Self {
        let lent_len = lent.iter().fold(0u64, |sum, piece| sum.saturating_add(piece.len));
        let len = head.len().saturating_add(usize::try_from(lent_len).unwrap_or(usize::MAX));
        Self { head, copied: &[], lent, len }
    }

    /// Bytes in all.
    #[must_use]
    #[inline]
    #[allow(clippy::len_without_is_empty)] // a record says at least what it is
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the head.
    #[inline]
    pub(crate) const fn head_len(&self) -> usize {
        self.head.len()
    }

    /// Hands out the bytes, piece by piece in order: where each begins, and its length. All are readable for `'a`.
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

/// What whoever receives a record makes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordVerdict {
    /// It is done with.
    Consumed,
    /// The record stays at the front, with all records behind it, until it is offered again. Either there is no room, or
    /// the payload is not here yet ([`PayloadSource::is_delayed`]).
    Deferred,
    /// The connection is not worth more records.
    Broken,
}

/// The room of one end for messages that no receive matches. Records of other kinds need none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MessageRoom {
    /// There is room for messages of any length.
    #[default]
    Ample,
    /// There is room for very short messages only.
    Little,
    /// There is no room for messages.
    None,
}

/// What came of an attempt to refer to user memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReferenceOutcome {
    /// The record is on its way.
    Sent,
    /// There is no room now.
    Full,
    /// The peer cannot read this process's memory, or cannot any more, or there are too many pieces.
    Impossible,
}

/// What happened to the connections of a message port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChannelEvent {
    /// Somebody of the same user asks for a connection, and says this. To be answered by [`MessagePort::accept`] or
    /// [`MessagePort::close`].
    Requested(ShmChannelId, Vec<u8>),
    /// The peer has accepted a connection that we asked for, and says this. Records may travel.
    Accepted(ShmChannelId, Vec<u8>),
    /// The connection is over, as its end says, and no record is left. To be closed.
    Ended(ShmChannelId, EndReason),
}

/// Why a connection is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndReason {
    /// The peer says that it has closed the connection, or what it wrote is nonsense; it lives.
    Closed,
    /// The peer's process is gone, and said nothing.
    PeerDied,
}

/// Takes records that arrived, each with the connection it came on, how many of our records the peer had said by then to have
/// taken, and what is to be fetched of it, or for it.
pub type RecordSink<'a> =
    dyn FnMut((ShmChannelId, u64), &[u8], Option<&PayloadSource<'_>>) -> RecordVerdict + 'a;

/// Records in and out, between processes of one user on one host. One thread at a time.
pub trait MessagePort {
    /// Asks whoever has this name for a connection, and says `hello` (up to 256 bytes).
    ///
    /// # Errors
    /// `ConnectionRefused` when nobody has the name; what the system says when memory or descriptors are short.
    fn connect(&mut self, name: &str, hello: &[u8]) -> std::io::Result<ShmChannelId>;

    /// Takes a connection that was asked for, and says `welcome` (up to 256 bytes). Records may travel.
    ///
    /// # Errors
    /// The system's: the peer is gone, or what it brought is not what it should be. The connection is closed then.
    fn accept(&mut self, channel: ShmChannelId, welcome: &[u8]) -> std::io::Result<()>;

    /// Ends a connection, and says so to the peer. Records that it has not taken may be lost.
    fn close(&mut self, channel: ShmChannelId);

    /// Returns whether the kernel reports the end of the process at the other end, even while other processes hold its descriptors.
    /// Until [`ChannelEvent::Ended`] that process lives.
    fn watches_process(&self, channel: ShmChannelId) -> bool;

    /// Checks all connections for events, with a few system calls. Every reference to memory that was given back must
    /// have been revoked before ([`MessagePort::revoke_memory`]).
    fn poll_connections(&mut self);

    /// What happened next.
    fn next_event(&mut self) -> Option<ChannelEvent>;

    /// Puts a record of at most [`MAX_RECORD`] bytes at the end of a connection. False when it has no room now. On a
    /// connection that is not there a record is lost.
    fn send(&mut self, channel: ShmChannelId, record: OutgoingRecord<'_>) -> bool;

    /// The same for a record of which the peer is handed the head alone, of 1 to 255 bytes; it fetches the rest from where it is.
    fn send_split(&mut self, channel: ShmChannelId, record: OutgoingRecord<'_>) -> bool;

    /// Returns the room for messages that the peer shows now.
    fn peer_room(&self, channel: ShmChannelId) -> MessageRoom;

    /// Returns whether the peer had room for messages when the port last read the peer's state. The port reads it again
    /// at least once in as many records as the connection holds, and on every call while the peer has no room.
    fn takes_messages(&mut self, channel: ShmChannelId) -> bool;

    /// Sends a message as [`MessagePort::send`] sends a record. Also returns false where the peer takes no messages.
    fn send_message(&mut self, channel: ShmChannelId, record: OutgoingRecord<'_>) -> bool;

    /// Shows the peer the room that this end has for messages. The connection is touched if the peer, which may sleep,
    /// is to send messages again.
    fn publish_room(&mut self, channel: ShmChannelId, room: MessageRoom);

    /// Puts a record at the end of a connection that refers to user memory, `pieces`, which the peer reads while it takes
    /// the record: they are lent until it has ([`MessagePort::peer_taken`]), or until `tag` is revoked. Where the peer turns
    /// out to be unable to read them, [`MessagePort::poll_connections`] copies them for it.
    ///
    /// # Safety
    /// For as long as they are lent, every piece is readable: its address was exposed (`expose_provenance`), and its
    /// bytes stay mapped. Others may write to them meanwhile.
    unsafe fn send_reference(
        &mut self,
        channel: ShmChannelId,
        head: &[u8],
        pieces: &[UserSlice],
        tag: u64,
    ) -> ReferenceOutcome;

    /// Takes back what records with this tag refer to: whatever a peer reads of it from now on it will not use.
    fn revoke_memory(&mut self, channel: ShmChannelId, tag: u64);

    /// Hands records that arrived to `sink`, connection after connection, at most `budget` of each, with what they refer
    /// to. How many were taken.
    fn recv(&mut self, budget: usize, sink: &mut RecordSink<'_>) -> usize;

    /// Tells the peer that we have taken `count` records in all.
    fn publish_taken(&mut self, channel: ShmChannelId, count: u64);

    /// How many of our records the peer had said to have taken when [`MessagePort::recv`] last looked: as many as before its
    /// last record, at least. It is the peer who says so.
    fn peer_taken(&self, channel: ShmChannelId) -> u64;

    /// The connections on which records were sent or taken, or were said to be taken, since [`MessagePort::wake_peers`].
    fn touched_channels(&self) -> &[ShmChannelId];

    /// How often the peer has said that it has no room for the first record that it did not take. It wraps.
    fn peer_deferrals(&self, channel: ShmChannelId) -> u64;

    /// Wakes peers that sleep and have got something, by records or by [`MessagePort::publish_taken`], on connections that are
    /// [`MessagePort::touched_channels`]; they are not any more.
    fn wake_peers(&mut self);

    /// Says to all peers that we are going to sleep: the next thing of each wakes us, whether or not we did. False when
    /// something is there already.
    fn announce_sleep(&mut self) -> bool;

    /// Makes [`MessagePort::fd`] readable: whoever sleeps on it is to look.
    fn wake_sleeper(&mut self);

    /// The descriptor that becomes readable when there is something to do.
    fn fd(&self) -> RawFd;
}
