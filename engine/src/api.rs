//! What the user asks for and what it gets back: operations, completions and errors.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use crate::base::{Instance, RegionId, Span};
use crate::memory::Buf;
use crate::outbound::{MAX_LEN, check_atomic};
use crate::wire::{AmoOp, AmoType, ReturnCode};

/// A peer endpoint, an index into the engine's peer table. Equal addresses have equal ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId(pub u32);

/// Which matching space a two-sided message belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MatchSpace {
    /// FI_MSG: matched by order (and source) alone.
    Untagged,
    /// FI_TAGGED: matched by tag (and source).
    Tagged,
    /// What collective operations say to each other, which no other message meets: matched by tag (and source).
    Collective,
}

/// What the end of an operation leaves behind for the user, besides its count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visibility {
    /// A completion queue entry, however it ends.
    Entry,
    /// An entry only if it fails (FI_SELECTIVE_COMPLETION without FI_COMPLETION).
    ErrorEntry,
    /// No entry at all: it has no context by which the user could know it (the inject calls).
    CountOnly,
    /// What the user keeps by its context, which stands for what it really has: it is the user's to say. Here as an entry
    /// only if it fails.
    Kept,
}

/// When the user wants an outbound operation to be complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Nothing was asked for.
    Default,
    /// The buffer may be used again (FI_INJECT_COMPLETE).
    Inject,
    /// The peer's transport has all of it (FI_TRANSMIT_COMPLETE).
    Transmit,
    /// The peer's message layer has all of it, in its place or held for a receive (FI_DELIVERY_COMPLETE).
    Delivery,
    /// A receive has taken it (FI_MATCH_COMPLETE).
    Match,
}

/// One remote range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteSeg {
    /// Address or offset in the target's registration.
    pub address: u64,
    /// Length in bytes.
    pub len: u64,
    /// The target's key.
    pub key: u64,
}

/// The remote side of an RMA operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RemoteIov {
    /// The common case.
    One(RemoteSeg),
    /// Several ranges, or none.
    Many(Box<[RemoteSeg]>),
}

impl RemoteIov {
    /// The ranges in order.
    #[must_use]
    pub fn segs(&self) -> &[RemoteSeg] {
        match self {
            Self::One(seg) => core::slice::from_ref(seg),
            Self::Many(segs) => segs,
        }
    }

    /// Total length in bytes, saturating.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.segs().iter().fold(0, |sum, seg| sum.saturating_add(seg.len))
    }

    /// Whether there is no byte in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What an outbound operation does.
#[derive(Clone, Debug)]
pub enum Action {
    /// Sends a message.
    Message {
        /// Which matching space.
        space: MatchSpace,
        /// The tag; zero for [`MatchSpace::Untagged`].
        tag: u64,
    },
    /// Writes to the peer's memory.
    Write(RemoteIov),
    /// Reads from the peer's memory.
    Read(RemoteIov),
    /// Changes values in the peer's memory, each at once.
    Atomic(Box<Atomic>),
}

/// An atomic operation on the values of one type in some remote ranges. The operands are the operation's buffer.
#[derive(Clone, Debug)]
pub struct Atomic {
    /// What happens to each value.
    pub op: AmoOp,
    /// The type of the values.
    pub data_type: AmoType,
    /// Where they are.
    pub remote: RemoteIov,
    /// What they are compared with, or the masks, where the operation has such.
    pub compare: Option<Buf>,
    /// Where the values before go, when they are wanted.
    pub result: Option<Buf>,
}

/// How an outbound operation is to be carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The buffer is the user's again when the call returns (FI_INJECT). Not for reads.
    pub inject: bool,
    /// When it is complete.
    pub level: Level,
    /// What its end leaves behind.
    pub visibility: Visibility,
    /// It, and what follows it to the same peer, begins when all that came before it has ended (FI_FENCE).
    pub fence: bool,
}

impl Default for Options {
    fn default() -> Self {
        let (level, visibility) = (Level::Default, Visibility::Entry);
        Self { inject: false, level, visibility, fence: false }
    }
}

/// An outbound operation. Its buffer must stay valid until the completion, or, with
/// [`Options::inject`], until the call returns; `policy` says which of both it is.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The other side.
    pub peer: PeerId,
    /// What to do.
    pub action: Action,
    /// Local buffer: source of a message or write, destination of a read.
    pub buf: Buf,
    /// Remote CQ data (not of reads).
    pub data: Option<u64>,
    /// The user's context, returned in the completion.
    pub context: u64,
    /// How.
    pub options: Options,
}

impl Operation {
    /// Whether it makes sense by itself, whatever there is room for.
    ///
    /// # Errors
    /// [`Refused`], but not [`Refused::Again`].
    #[inline]
    pub fn check(&self) -> Result<(), Refused> {
        let len = self.buf.len();
        if len > MAX_LEN {
            return Err(Refused::TooLong);
        }
        match &self.action {
            Action::Message { .. } => Ok(()),
            Action::Read(_) if self.options.inject => Err(Refused::InjectedRead),
            Action::Write(remote) | Action::Read(remote) if remote.len() != len => {
                Err(Refused::LengthMismatch)
            }
            Action::Write(_) | Action::Read(_) => Ok(()),
            Action::Atomic(atomic) => check_atomic(atomic, len),
        }
    }

    /// Whether the CPU may touch all of its buffers, as the engine takes for granted.
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

/// What a receiving call does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecvMode {
    /// Posts a buffer for one message.
    Post,
    /// Posts a buffer that consecutive messages share until less than `least` bytes are left
    /// (FI_MULTI_RECV, FI_OPT_MIN_MULTI_RECV).
    Multi {
        /// Bytes.
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

/// A receive. Its buffer must stay until the completion, that of several messages until the completion
/// that releases it.
#[derive(Clone, Debug)]
pub struct RecvOp {
    /// What to do.
    pub mode: RecvMode,
    /// Only from this peer (FI_DIRECTED_RECV); `None` is FI_ADDR_UNSPEC.
    pub source: Option<PeerId>,
    /// Which matching space.
    pub space: MatchSpace,
    /// The tag wanted; zero for [`MatchSpace::Untagged`].
    pub tag: u64,
    /// Tag bits that do not matter.
    pub ignore: u64,
    /// Where the message goes.
    pub buf: Buf,
    /// The user's context, returned in the completion; also what [`crate::Engine::cancel`] and a
    /// claim name.
    pub context: u64,
    /// What its end leaves behind.
    pub visibility: Visibility,
}

/// Why an operation was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Queues are full: make progress and try again (-FI_EAGAIN).
    Again,
    /// The message is longer than `request_length` can say, or the atomic than [`crate::atomic_most`] (-FI_EMSGSIZE).
    TooLong,
    /// An inject larger than the inline limit (-FI_EINVAL).
    InjectTooLong,
    /// What is read, or brought back by an atomic, cannot be injected: the buffer is written later (-FI_EBADFLAGS).
    InjectedRead,
    /// The ranges of an RMA operation do not add up to its buffer (-FI_EINVAL).
    LengthMismatch,
    /// No message was claimed with this context (-FI_EINVAL).
    NotClaimed,
    /// There is no such atomic operation on values of this type, or not in this form (-FI_EOPNOTSUPP).
    UnsupportedAtomic,
}

/// Which kind of operation a completion ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    /// A two-sided send.
    Send,
    /// A receive.
    Recv,
    /// A look at what waits. It moved nothing, so it counts for nothing.
    Peek,
    /// An RMA write by this endpoint.
    Write,
    /// An RMA read by this endpoint.
    Read,
    /// An atomic by this endpoint that brings nothing back.
    Update,
    /// An atomic by this endpoint that brings values back.
    Fetch,
    /// A peer's RMA write landed here.
    RemoteWrite,
    /// A peer has read something here.
    RemoteRead,
    /// A peer's atomic has changed something here.
    RemoteUpdate,
    /// A peer's atomic has changed something here, and brought it what was there before.
    RemoteFetch,
}

/// The end of an operation. Each has one.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The user's context; zero for an operation of a peer.
    pub context: u64,
    /// What it was.
    pub kind: OpKind,
    /// Its matching space; meaningless for RMA.
    pub space: MatchSpace,
    /// Bytes delivered (receives, peeks) or sent.
    pub len: u64,
    /// Where a received message begins.
    pub buf: u64,
    /// Remote CQ data.
    pub data: Option<u64>,
    /// The message's tag.
    pub tag: u64,
    /// The other side, when known.
    pub peer: Option<PeerId>,
    /// The region that a peer accessed; [`RegionId::LENT`] for all else.
    pub region: RegionId,
    /// What it leaves behind.
    pub visibility: Visibility,
    /// FI_MULTI_RECV: with this completion the user gets a multi-receive buffer back.
    pub released: bool,
    /// How it ended.
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

/// Something worth a line in a log that belongs to no operation of the user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// An operation that was complete when it was copied did not reach its peer after all.
    LostAfterCompletion {
        /// The peer.
        peer: PeerId,
        /// Why.
        error: OpError,
    },
    /// More messages wait for receives than are held: senders wait as well until some are received. Said
    /// once, until none waits.
    TooManyUnexpected {
        /// Whose message was refused first.
        peer: PeerId,
        /// Its tag; zero for an untagged one.
        tag: u64,
    },
    /// A peer that owes an answer, or an acknowledgement, has been silent for long. The engine still waits for it. It
    /// reports the silence when it notices it, and then once a minute until the peer is heard again.
    Silent {
        /// The peer.
        peer: PeerId,
        /// For how long.
        since: Span,
        /// The rule that ends the wait.
        patience: Patience,
    },
    /// A peer talks to those alone that its user has named, and has not found us among them for long. Said once;
    /// it is asked again until the deadline.
    NotListed {
        /// The peer.
        peer: PeerId,
        /// For how long.
        since: Span,
    },
    /// A peer's receiver works in another mode than the congestion control here lives on; a plain window
    /// replaces what is missing.
    OtherMode {
        /// The peer.
        peer: PeerId,
    },
    /// Packets to a host have another size from now on.
    PacketSize {
        /// The host.
        host: IpAddr,
        /// UDP payload of the longest packets that leave in one piece, bytes, without CRC trailer.
        bytes: u32,
        /// Nobody said so: longer packets did not arrive. Or, when it grew, whether they do is only tried.
        guessed: bool,
    },
}

impl Notice {
    /// The peer that it is about, if it is about one.
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

/// Why an operation failed.
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
    /// [`crate::PeerState::trouble`]).
    Unreachable,
    /// The peer answered once, then fell silent for the deadline (FI_ETIMEDOUT).
    TimedOut,
    /// The peer's endpoint is a new instance: what was in flight is lost (FI_ECONNRESET).
    PeerRestarted,
    /// Another endpoint is at the peer's address than the one that the user means (FI_ECONNREFUSED).
    OtherInstance {
        /// Who is there.
        found: Instance,
    },
    /// The peer speaks another version of our wire format (FI_ECONNREFUSED).
    OtherVersion {
        /// Its version; ours is [`crate::WIRE_VERSION`].
        theirs: u8,
    },
    /// The peer does not know the key of our job, or we not that of its (FI_EACCES).
    OtherKey,
    /// The peer talks to those alone that its user named, and for the deadline we were not among them
    /// (FI_EACCES).
    NotListed,
    /// The peer closed or refused the context, or gave up on it, and lives on (FI_ECONNABORTED).
    Closed,
    /// What moves bytes to and from the operation's memory, which the CPU may not touch, failed (FI_EIO).
    Uncopied,
    /// The target refused the operation with this SES return code (FI_EIO, FI_EACCES, FI_EKEYREJECTED).
    Remote(ReturnCode),
}

impl OpError {
    /// Whether the two ends are set up so that they will not talk to each other, whatever is tried.
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

/// What `net` learnt about a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trouble {
    /// The ICMP type and code, or the errno of the failed send.
    pub errno: i32,
    /// Where it was said.
    pub peer: SocketAddr,
}

impl Trouble {
    /// ECONNREFUSED on Linux: the host is there, and nobody listens at the port.
    const REFUSED: i32 = 111;

    /// Whether a host said that nobody listens there.
    pub(crate) const fn is_refusal(&self) -> bool {
        self.errno == Self::REFUSED
    }
}
