//! Ends of operations, notices, and errors that the engine reports to the caller.

use core::fmt;
use core::net::IpAddr;

use crate::base::{Instance, RegionId, Span};
use crate::operation::{MatchSpace, PeerId, Visibility};
use crate::wire::ReturnCode;

/// The kind of operation that a completion ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    /// A two-sided send.
    Send,
    /// A receive.
    Recv,
    /// A peek at unexpected messages. It moves no data, so no counter counts it.
    Peek,
    /// An RMA write by this endpoint.
    Write,
    /// An RMA read by this endpoint.
    Read,
    /// An atomic by this endpoint that returns no values.
    Update,
    /// An atomic by this endpoint that returns the previous values.
    Fetch,
    /// A peer's RMA write landed here.
    RemoteWrite,
    /// A peer's RMA read of memory here was served.
    RemoteRead,
    /// A peer's atomic changed memory here and returned nothing.
    RemoteUpdate,
    /// A peer's atomic accessed memory here and returned the previous values to the peer.
    RemoteFetch,
}

/// The end of an operation. Every operation has exactly one.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The user's context; zero for an operation of a peer.
    pub context: u64,
    /// The kind of operation.
    pub kind: OpKind,
    /// The matching space. It has no meaning for RMA.
    pub space: MatchSpace,
    /// Bytes delivered (receives, peeks) or sent.
    pub len: u64,
    /// Address of the first byte of a received message.
    pub buf: u64,
    /// Remote CQ data.
    pub data: Option<u64>,
    /// The message's tag.
    pub tag: u64,
    /// The peer, if it is known.
    pub peer: Option<PeerId>,
    /// The region that a peer accessed; [`RegionId::LENT`] for all else.
    pub region: RegionId,
    /// Completion queue entry to produce.
    pub visibility: Visibility,
    /// FI_MULTI_RECV: this completion returns the multi-receive buffer to the user.
    pub released: bool,
    /// Success, or the reason of the failure.
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
        /// The peer.
        peer: PeerId,
        /// The reason.
        error: OpError,
    },
    /// There is no room for the header of another message that waits for a receive
    /// ([`crate::Config::max_unexpected`]). The engine refuses such messages, and their senders
    /// retry. Reported once, until no message waits.
    TooManyUnexpected {
        /// The peer whose message was refused first.
        peer: PeerId,
        /// Tag of that message; zero if it is untagged.
        tag: u64,
    },
    /// A peer that owes an answer, or an acknowledgement, has been silent for long. The engine still waits for it. It
    /// reports the silence when it notices it, and then once a minute until the peer is heard again.
    Silent {
        /// The peer.
        peer: PeerId,
        /// Duration of the silence.
        since: Span,
        /// Limit that ends the wait.
        limit: WaitLimit,
    },
    /// A peer that admits only peers in its address vector has not found this endpoint there for a
    /// long time. Reported once. The engine repeats the handshake until the deadline.
    NotListed {
        /// The peer.
        peer: PeerId,
        /// Time since the first attempt.
        since: Span,
    },
    /// The peer's receiver uses another congestion control mode than the one that the local
    /// algorithm needs. The sender falls back to a plain window.
    OtherMode {
        /// The peer.
        peer: PeerId,
    },
    /// The packet size used towards a host has changed.
    PacketSize {
        /// The host.
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

/// The reason why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpError {
    /// The message was longer than the buffer; this many bytes did not fit (FI_ETRUNC).
    Truncated {
        /// Bytes beyond the end of the buffer.
        excess: u64,
    },
    /// Cancelled by the user (FI_ECANCELED).
    Cancelled,
    /// A peek found nothing (FI_ENOMSG).
    NoMessage,
    /// The peer did not answer within the deadline (FI_EHOSTUNREACH; the ICMP error, if any, is in
    /// [`crate::PeerState::last_destination_error`]).
    Unreachable,
    /// The peer answered once, then fell silent for the deadline (FI_ETIMEDOUT).
    TimedOut,
    /// The peer's endpoint is a new instance; everything in flight to the old one is lost
    /// (FI_ECONNRESET).
    PeerRestarted,
    /// The endpoint at the peer's address is not the instance that the user named
    /// (FI_ECONNREFUSED).
    OtherInstance {
        /// The instance found at the address.
        found: Instance,
    },
    /// The peer uses another version of the wire format (FI_ECONNREFUSED).
    OtherVersion {
        /// The peer's version; this endpoint uses [`crate::WIRE_VERSION`].
        theirs: u8,
    },
    /// The two endpoints have different job keys (FI_EACCES).
    OtherKey,
    /// One of the two endpoints encrypts its packets, and the other one does not (FI_EACCES).
    OtherEncryption {
        /// The peer encrypts its packets.
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
    /// Returns whether the configurations of the two endpoints rule out any communication, so that
    /// a retry is useless.
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
            Self::Truncated { excess } => write!(f, "message truncated by {excess} bytes"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::NoMessage => f.write_str("no matching message"),
            Self::Unreachable => f.write_str("peer unreachable"),
            Self::TimedOut => f.write_str("peer stopped answering"),
            Self::PeerRestarted => f.write_str("peer restarted"),
            Self::OtherInstance { found } => {
                write!(f, "another endpoint, {found}, is at the peer's address")
            }
            Self::OtherVersion { theirs } => write!(f, "peer speaks wire version {theirs}"),
            Self::OtherKey => f.write_str("peer has another job key"),
            Self::OtherEncryption { theirs: true } => {
                f.write_str("peer encrypts its packets, this endpoint does not")
            }
            Self::OtherEncryption { theirs: false } => {
                f.write_str("this endpoint encrypts its packets, the peer does not")
            }
            Self::NotListed => f.write_str("peer does not have us in its address vector"),
            Self::Closed => f.write_str("peer closed the context"),
            Self::Uncopied => f.write_str("the memory could not be copied"),
            Self::Remote(code) => write!(f, "target refused the operation: {code:?}"),
        }
    }
}
