//! Ends of operations, notices, and errors that the engine reports to the caller.

use core::fmt;
use core::net::IpAddr;

use crate::base::{Instance, RegionId, Span};
use crate::operation::{MatchSpace, PeerId, Visibility};
use crate::wire::ReturnCode;

/// The kind of an operation whose end a completion reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    /// A two-sided send by this endpoint.
    Send,
    /// A receive of a two-sided message by this endpoint.
    Recv,
    /// A peek at unexpected messages. It moves no data, so no counter counts it.
    Peek,
    /// An RMA write by this endpoint.
    Write,
    /// An RMA read by this endpoint.
    Read,
    /// An atomic operation by this endpoint that returns no values.
    Update,
    /// An atomic operation by this endpoint that returns the previous values.
    Fetch,
    /// A peer's RMA write into memory of this endpoint.
    RemoteWrite,
    /// A peer's RMA read of memory of this endpoint.
    RemoteRead,
    /// A peer's atomic operation on memory of this endpoint that returned no values.
    RemoteUpdate,
    /// A peer's atomic operation on memory of this endpoint that returned the previous values to
    /// the peer.
    RemoteFetch,
}

/// The completion of an operation. Every operation has exactly one.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The user's context of the operation; zero for an operation of a peer.
    pub context: u64,
    /// The kind of operation that has ended.
    pub kind: OpKind,
    /// The matching space of the message that was sent or received. It has no meaning for RMA.
    pub space: MatchSpace,
    /// Bytes of the message that were delivered (receives, peeks) or sent.
    pub len: u64,
    /// Address of the first byte of a received message.
    pub buf: u64,
    /// Remote CQ data that the operation delivered, if any.
    pub data: Option<u64>,
    /// Tag of the message that was sent or received.
    pub tag: u64,
    /// The other endpoint of the operation, if it is known.
    pub peer: Option<PeerId>,
    /// The memory region that a peer accessed; [`RegionId::LENT`] for operations of other kinds.
    pub region: RegionId,
    /// The kind of completion queue entry that the completion produces.
    pub visibility: Visibility,
    /// FI_MULTI_RECV: this completion returns the multi-receive buffer to the user.
    pub released: bool,
    /// Success of the operation, or the reason of its failure.
    pub status: Result<(), OpError>,
}

/// The limit of the time for which the engine waits for a silent peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitLimit {
    /// The engine waits until the deadline ([`crate::TransportConfig::progress_deadline`], or `contact_deadline` if the
    /// peer never answered).
    Deadline,
    /// The engine waits until [`crate::Config::stopped_deadline`], because the peer's host answers: the peer's process
    /// may be stopped.
    HostAnswers,
    /// The engine waits until the peer's process ends, which the kernel will report.
    ProcessLives,
}

/// An event for the log that belongs to no operation of the user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// An operation that completed when its data was copied has failed to reach its peer.
    LostAfterCompletion {
        /// The peer that the operation did not reach.
        peer: PeerId,
        /// The reason why the operation failed.
        error: OpError,
    },
    /// There is no room for the header of another message that waits for a receive
    /// ([`crate::Config::max_unexpected`]). The engine refuses such messages, and their senders
    /// retry. Reported once, until no message waits.
    TooManyUnexpected {
        /// The peer whose message the engine refused first.
        peer: PeerId,
        /// Tag of the message that was refused first; zero if it is untagged.
        tag: u64,
    },
    /// A peer that owes an answer, or an acknowledgement, has been silent for long. The engine still waits for it. It
    /// reports the silence when it notices it, and then once a minute until the peer is heard again.
    Silent {
        /// The peer that has been silent.
        peer: PeerId,
        /// Time since the peer was last heard.
        since: Span,
        /// Limit up to which the engine waits for the peer.
        limit: WaitLimit,
    },
    /// A peer that admits only peers in its address vector has not found this endpoint there for a
    /// long time. Reported once. The engine repeats the handshake until the deadline.
    NotListed {
        /// The peer that does not have this endpoint in its address vector.
        peer: PeerId,
        /// Time since this endpoint's first attempt at the handshake.
        since: Span,
    },
    /// The peer's receiver uses another congestion control mode than the one that the local
    /// algorithm needs. The sender falls back to a plain window.
    OtherMode {
        /// The peer whose receiver uses the other mode.
        peer: PeerId,
    },
    /// The size of the packets that are sent to a host has changed.
    PacketSize {
        /// Address of the host to which the packets go.
        host: IpAddr,
        /// Largest UDP payload in bytes that is sent unfragmented, without CRC trailer.
        bytes: u32,
        /// The size was inferred, not reported by the network: longer packets did not arrive, or,
        /// if the size grew, the engine is trying the configured size again.
        guessed: bool,
    },
}

impl Notice {
    /// Returns the peer that the notice is about, if any.
    #[must_use]
    pub const fn peer(&self) -> Option<PeerId> {
        match *self {
            Self::LostAfterCompletion { peer, .. }
            | Self::TooManyUnexpected { peer, .. }
            | Self::Silent { peer, .. }
            | Self::NotListed { peer, .. }
            | Self::OtherMode { peer } => Some(peer),
            Self::PacketSize { .. } => None,
        }
    }
}

/// The reason why an operation of the application failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpError {
    /// The message was longer than the buffer; this many bytes did not fit (FI_ETRUNC).
    Truncated {
        /// Number of bytes of the message beyond the end of the receive buffer.
        excess: u64,
    },
    /// The user cancelled the operation (FI_ECANCELED).
    Cancelled,
    /// A peek found no matching message (FI_ENOMSG).
    NoMessage,
    /// The peer did not answer within the deadline (FI_EHOSTUNREACH; the ICMP error, if any, is in
    /// [`crate::PeerState::last_destination_error`]).
    Unreachable,
    /// The peer answered once, and then was silent until the deadline (FI_ETIMEDOUT).
    TimedOut,
    /// The peer's endpoint is a new instance; everything in flight to the old one is lost
    /// (FI_ECONNRESET).
    PeerRestarted,
    /// The endpoint at the peer's address is not the instance that the user named
    /// (FI_ECONNREFUSED).
    OtherInstance {
        /// The instance that answers at the peer's address.
        found: Instance,
    },
    /// The peer uses another version of the wire format (FI_ECONNREFUSED).
    OtherVersion {
        /// The peer's version of the wire format; this endpoint uses [`crate::WIRE_VERSION`].
        theirs: u8,
    },
    /// The two endpoints have different job keys, so neither can prove itself to the other
    /// (FI_EACCES).
    OtherKey,
    /// One of the two endpoints encrypts its packets, and the other one does not (FI_EACCES).
    OtherEncryption {
        /// True if the peer encrypts its packets and this endpoint does not; false in the opposite
        /// case.
        theirs: bool,
    },
    /// The peer admits only peers in its address vector, and until the deadline this endpoint was
    /// not among them (FI_EACCES).
    NotListed,
    /// The peer closed, refused or aborted the context and still runs (FI_ECONNABORTED).
    Closed,
    /// The copy to or from device memory, which the CPU cannot access, failed (FI_EIO).
    Uncopied,
    /// The target refused the operation with this SES return code (FI_EIO, FI_EACCES, FI_EKEYREJECTED).
    Remote(ReturnCode),
}

impl OpError {
    /// Returns whether the error shows that the configurations of the two endpoints rule out any
    /// communication, so that a retry is useless.
    #[must_use]
    pub const fn excludes(self) -> bool {
        matches!(
            self,
            Self::OtherVersion { .. }
                | Self::OtherKey
                | Self::OtherEncryption { .. }
                | Self::NotListed
                | Self::Remote(ReturnCode::BadJobId)
        )
    }
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { excess } => {
                write!(f, "the message was {excess} bytes longer than the buffer")
            }
            Self::Cancelled => f.write_str("cancelled by the application"),
            Self::NoMessage => f.write_str("no message matches the receive"),
            Self::Unreachable => f.write_str("the peer cannot be reached"),
            Self::TimedOut => f.write_str("the peer has stopped answering"),
            Self::PeerRestarted => f.write_str("the peer has restarted"),
            Self::OtherInstance { found } => {
                write!(f, "another endpoint, {found}, is at the peer's address")
            }
            Self::OtherVersion { theirs } => {
                write!(f, "the peer has version {theirs} of the wire format")
            }
            Self::OtherKey => f.write_str("the peer has another job key"),
            Self::OtherEncryption { theirs: true } => {
                f.write_str("the peer encrypts its packets, this endpoint does not")
            }
            Self::OtherEncryption { theirs: false } => {
                f.write_str("this endpoint encrypts its packets, the peer does not")
            }
            Self::NotListed => {
                f.write_str("the peer does not have this endpoint in its address vector")
            }
            Self::Closed => f.write_str("the peer has closed the context"),
            Self::Uncopied => f.write_str("the device memory could not be copied"),
            Self::Remote(code) => write!(f, "the target refused the operation: {code:?}"),
        }
    }
}
