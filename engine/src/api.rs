//! Types that the caller and the engine exchange: operations, completions, notices and errors.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use crate::base::{Instance, RegionId, Span};
use crate::memory::Buf;
use crate::outbound::{MAX_LEN, check_atomic};
use crate::wire::{AmoOp, AmoType, ReturnCode};

/// A peer endpoint, named by its index in the engine's peer table. Equal addresses have equal ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId(pub u32);

/// The matching space of a two-sided message. A message matches only receives of the same space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MatchSpace {
    /// FI_MSG: matched by order (and source) alone.
    Untagged,
    /// FI_TAGGED: matched by tag (and source).
    Tagged,
    /// Messages of collective operations, kept apart from all others: matched by tag (and source).
    Collective,
}

/// Selects which completion queue entry the end of an operation produces. Counters always count the
/// end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visibility {
    /// Success and failure both produce an entry.
    Entry,
    /// Only a failure produces an entry (FI_SELECTIVE_COMPLETION without FI_COMPLETION).
    ErrorEntry,
    /// No entry: the inject calls have no context by which the user could identify the operation.
    CountOnly,
    /// The caller keeps its own record of the operation under the context and decides there which
    /// entry to produce. The engine treats the operation like `ErrorEntry`.
    Kept,
}

/// The moment at which the user considers an outbound operation complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// The caller requested no particular level.
    Default,
    /// The buffer may be used again (FI_INJECT_COMPLETE).
    Inject,
    /// The peer's transport has all of it (FI_TRANSMIT_COMPLETE).
    Transmit,
    /// The peer's message layer has all of it, in the receive buffer or kept for a later receive
    /// (FI_DELIVERY_COMPLETE).
    Delivery,
    /// A receive has taken it (FI_MATCH_COMPLETE).
    Match,
}

/// One range of remote memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteSeg {
    /// Address or offset in the target's registration.
    pub address: u64,
    /// Length in bytes.
    pub len: u64,
    /// Memory key that the target assigned to its registration.
    pub key: u64,
}

/// The remote side of an RMA operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RemoteIov {
    /// One range, the common case: it needs no allocation.
    One(RemoteSeg),
    /// Several ranges, or none.
    Many(Box<[RemoteSeg]>),
}

impl RemoteIov {
    /// Returns the ranges in order.
    #[must_use]
    pub fn segs(&self) -> &[RemoteSeg] {
        match self {
            Self::One(seg) => core::slice::from_ref(seg),
            Self::Many(segs) => segs,
        }
    }

    /// Returns the total length in bytes, saturating.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.segs().iter().fold(0, |sum, seg| sum.saturating_add(seg.len))
    }

    /// Returns whether the ranges contain no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The kind of an outbound operation, with the parameters of that kind.
#[derive(Clone, Debug)]
pub enum Action {
    /// Sends a message.
    Message {
        /// The matching space.
        space: MatchSpace,
        /// The tag; zero for [`MatchSpace::Untagged`].
        tag: u64,
    },
    /// Writes to the peer's memory.
    Write(RemoteIov),
    /// Reads from the peer's memory.
    Read(RemoteIov),
    /// Changes values in the peer's memory. Each value changes atomically.
    Atomic(Box<Atomic>),
}

/// An atomic operation on values of one type in remote ranges. The operands are the operation's
/// buffer.
#[derive(Clone, Debug)]
pub struct Atomic {
    /// The calculation that is applied to each value.
    pub op: AmoOp,
    /// The type of the values.
    pub data_type: AmoType,
    /// Remote ranges of the values.
    pub remote: RemoteIov,
    /// Values to compare with, or masks, if the operation uses either.
    pub compare: Option<Buf>,
    /// Buffer for the previous values, if the operation fetches them.
    pub result: Option<Buf>,
}

/// Modifiers of an outbound operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The caller may reuse the buffer when the call returns (FI_INJECT). Not allowed for reads.
    pub inject: bool,
    /// Completion level.
    pub level: Level,
    /// Completion queue entry that the end of the operation produces.
    pub visibility: Visibility,
    /// The operation, and all later ones to the same peer, start only after every earlier operation
    /// to that peer has ended (FI_FENCE).
    pub fence: bool,
}

impl Default for Options {
    fn default() -> Self {
        let (level, visibility) = (Level::Default, Visibility::Entry);
        Self { inject: false, level, visibility, fence: false }
    }
}

/// An outbound operation. Its buffer must stay valid until the completion, or, with
/// [`Options::inject`], only until the call returns; the module `policy` decides which.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The target of the operation.
    pub peer: PeerId,
    /// The kind of operation and its parameters.
    pub action: Action,
    /// Local buffer: source of a message or write, destination of a read.
    pub buf: Buf,
    /// Remote CQ data. Reads carry none.
    pub data: Option<u64>,
    /// The user's context, returned in the completion.
    pub context: u64,
    /// Modifiers.
    pub options: Options,
}

impl Operation {
    /// Checks the operation's arguments, independently of the engine's state.
    ///
    /// # Errors
    /// [`SubmitError`], except [`SubmitError::Again`].
    #[inline]
    pub fn check(&self) -> Result<(), SubmitError> {
        let len = self.buf.len();
        if len > MAX_LEN {
            return Err(SubmitError::TooLong);
        }
        match &self.action {
            Action::Message { .. } => Ok(()),
            Action::Read(_) if self.options.inject => Err(SubmitError::InjectedRead),
            Action::Write(remote) | Action::Read(remote) if remote.len() != len => {
                Err(SubmitError::LengthMismatch)
            }
            Action::Write(_) | Action::Read(_) => Ok(()),
            Action::Atomic(atomic) => check_atomic(atomic, len),
        }
    }

    /// Returns whether the CPU may access all buffers of the operation. The engine requires this of
    /// every operation that it is given.
    #[must_use]
    #[inline]
    pub fn is_host(&self) -> bool {
        let values = |buf: &Option<Buf>| buf.as_ref().is_none_or(Buf::is_host);
        match &self.action {
            Action::Atomic(atomic) if !(values(&atomic.compare) && values(&atomic.result)) => false,
            _ => self.buf.is_host(),
        }
    }
}

/// The action of a receive call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecvMode {
    /// Posts a buffer for one message.
    Post,
    /// Posts a buffer that consecutive messages share until less than `least` bytes are left
    /// (FI_MULTI_RECV, FI_OPT_MIN_MULTI_RECV).
    Multi {
        /// Smallest remaining space in bytes with which the buffer stays posted.
        least: u64,
    },
    /// Reports a waiting message and leaves it (FI_PEEK).
    Peek,
    /// Reports a waiting message and reserves it for the same context (FI_PEEK | FI_CLAIM).
    PeekClaim,
    /// Reports a waiting message and drops it (FI_PEEK | FI_DISCARD).
    PeekDiscard,
    /// Receives the message that was reserved with this context (FI_CLAIM).
    Claim,
    /// Drops the message that was reserved with this context (FI_CLAIM | FI_DISCARD).
    ClaimDiscard,
}

/// A receive. Its buffer must stay valid until the completion. A multi-receive buffer must stay
/// valid until the completion that releases it.
#[derive(Clone, Debug)]
pub struct RecvOp {
    /// The action.
    pub mode: RecvMode,
    /// Only messages of this peer match (FI_DIRECTED_RECV); `None` is FI_ADDR_UNSPEC.
    pub source: Option<PeerId>,
    /// The matching space.
    pub space: MatchSpace,
    /// The tag wanted; zero for [`MatchSpace::Untagged`].
    pub tag: u64,
    /// Bit mask of the tag bits that the match ignores.
    pub ignore: u64,
    /// Buffer for the message.
    pub buf: Buf,
    /// The user's context. The completion returns it, and [`crate::Engine::cancel`] and claims
    /// identify the receive by it.
    pub context: u64,
    /// Completion queue entry that the end of the receive produces.
    pub visibility: Visibility,
}

/// The reason why the engine did not accept an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubmitError {
    /// Queues are full: make progress and try again (-FI_EAGAIN).
    Again,
    /// The message is longer than the 32 bits of `request_length` can express, or the atomic has
    /// more values than [`crate::max_atomic_count`] (-FI_EMSGSIZE).
    TooLong,
    /// An inject larger than the inline limit (-FI_EINVAL).
    InjectTooLong,
    /// Reads and fetching atomics cannot be injected, because their buffer is written after the
    /// call returns (-FI_EBADFLAGS).
    InjectedRead,
    /// The lengths of the remote ranges of an RMA operation do not add up to the length of its
    /// buffer (-FI_EINVAL).
    LengthMismatch,
    /// No message was claimed with this context (-FI_EINVAL).
    NotClaimed,
    /// The atomic operation is not defined for values of this type, or not in this form
    /// (-FI_EOPNOTSUPP).
    UnsupportedAtomic,
}

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

/// The rule that decides how long the engine waits for a silent peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
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
        /// Deadline that ends the wait: the usual one, or the longer one for a process that may be stopped.
        patience: Patience,
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
            Self::NotListed => f.write_str("peer does not have us in its address vector"),
            Self::Closed => f.write_str("peer closed the context"),
            Self::Uncopied => f.write_str("the memory could not be copied"),
            Self::Remote(code) => write!(f, "target refused the operation: {code:?}"),
        }
    }
}

/// A socket error or ICMP error about a destination, as `net` reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DestinationError {
    /// Error number of the failed send, or the one that the kernel derives from the ICMP message.
    pub errno: i32,
    /// The destination.
    pub peer: SocketAddr,
}

impl DestinationError {
    /// ECONNREFUSED on Linux: the host answers, but no socket is bound to the port.
    const REFUSED: i32 = 111;

    /// Returns whether the host reported that no socket is bound to the port.
    pub(crate) const fn is_refusal(&self) -> bool {
        self.errno == Self::REFUSED
    }
}
