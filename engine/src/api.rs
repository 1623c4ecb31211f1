//! What the user asks for and what it gets back: commands, completions and errors.

use core::fmt;
use core::net::SocketAddr;

use crate::memory::Buf;
use crate::wire::ReturnCode;

/// A peer endpoint, an index into the engine's peer table. Equal addresses have equal ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId(pub u32);

/// Which matching space a two-sided message belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// FI_MSG: matched by order (and source) alone.
    Msg,
    /// FI_TAGGED: matched by tag (and source).
    Tagged,
}

/// What a successful operation leaves behind. Errors are always reported as entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notify {
    /// A completion that only counts (FI_SELECTIVE_COMPLETION without FI_COMPLETION, or inject).
    Count,
    /// A completion queue entry.
    Entry,
}

/// When an outbound operation is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// The peer's transport has all of it (FI_TRANSMIT_COMPLETE, the default).
    Transmit,
    /// It is in the peer's user buffer (FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE).
    Delivery,
}

/// A two-sided send.
#[derive(Clone, Debug)]
pub struct SendOp {
    /// To whom.
    pub peer: PeerId,
    /// Which matching space.
    pub class: Class,
    /// The tag; zero for [`Class::Msg`].
    pub tag: u64,
    /// The message. It must stay valid until the completion.
    pub buf: Buf,
    /// Remote CQ data.
    pub data: Option<u64>,
    /// The user's context, returned in the completion.
    pub context: u64,
    /// What success reports.
    pub notify: Notify,
    /// When it is complete.
    pub level: Level,
    /// A message of at most [`crate::Config::inject_size`] may complete as soon as the peer is known to
    /// live, whatever the level: it is copied then.
    pub may_copy: bool,
}

/// A posted receive.
#[derive(Clone, Debug)]
pub struct RecvOp {
    /// Only from this peer (FI_DIRECTED_RECV); `None` is FI_ADDR_UNSPEC.
    pub source: Option<PeerId>,
    /// Which matching space.
    pub class: Class,
    /// The tag wanted; zero for [`Class::Msg`].
    pub tag: u64,
    /// Tag bits that do not matter.
    pub ignore: u64,
    /// Where the message goes.
    pub buf: Buf,
    /// The user's context, returned in the completion; also what [`crate::Engine::cancel`] and a
    /// claim name.
    pub context: u64,
    /// What success reports.
    pub notify: Notify,
    /// FI_MULTI_RECV: consecutive messages share the buffer until less than this many bytes are
    /// left (FI_OPT_MIN_MULTI_RECV).
    pub multi_recv: Option<u64>,
}

/// What [`crate::Engine::peek`] does with a message that it finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peek {
    /// FI_PEEK: report it, leave it.
    Look,
    /// FI_PEEK | FI_CLAIM: report it and reserve it for the same context.
    Claim,
    /// FI_PEEK | FI_DISCARD: report it and drop it.
    Discard,
}

/// A one-sided operation: RMA write or read.
#[derive(Clone, Debug)]
pub struct RmaOp {
    /// The target.
    pub peer: PeerId,
    /// Local buffer: source of a write, destination of a read.
    pub buf: Buf,
    /// Remote ranges as `(address or offset, length, key)`; the lengths add up to the buffer's.
    pub remote: RemoteIov,
    /// Remote CQ data (writes only).
    pub data: Option<u64>,
    /// The user's context.
    pub context: u64,
    /// What success reports.
    pub notify: Notify,
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
    /// Several ranges.
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
}

/// Why a command was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Queues are full: make progress and try again (-FI_EAGAIN).
    Again,
    /// The message is longer than `request_length` can say (-FI_EMSGSIZE).
    TooLong,
    /// An inject larger than the inline limit (-FI_EINVAL).
    InjectTooLong,
    /// The ranges of an RMA operation do not add up to its buffer (-FI_EINVAL).
    LengthMismatch,
    /// No message was claimed with this context (-FI_EINVAL).
    NotClaimed,
}

/// Which kind of operation a completion ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    /// A two-sided send.
    Send,
    /// A receive, or what a peek found.
    Recv,
    /// An RMA write by this endpoint.
    Write,
    /// An RMA read by this endpoint.
    Read,
    /// A peer's RMA write with remote CQ data landed here.
    RemoteWrite,
}

/// The end of an operation.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The user's context; zero for an operation of a peer.
    pub context: u64,
    /// What it was.
    pub kind: OpKind,
    /// Its matching space; meaningless for RMA.
    pub class: Class,
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
    /// What success reports; an error is always an entry.
    pub notify: Notify,
    /// FI_MULTI_RECV: with this completion the user gets a multi-receive buffer back.
    pub released: bool,
    /// How it ended.
    pub status: Result<(), OpError>,
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
    /// [`crate::Engine::peer_trouble`]).
    Unreachable,
    /// The peer answered once, then fell silent for the deadline (FI_ETIMEDOUT).
    TimedOut,
    /// The peer's endpoint is a new instance: what was in flight is lost (FI_ECONNRESET).
    PeerRestarted,
    /// The peer closed or refused the context, or gave up on it, and lives on (FI_ECONNABORTED).
    Closed,
    /// The target refused the operation with this SES return code (FI_EIO, FI_EACCES, FI_EKEYREJECTED).
    Remote(ReturnCode),
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
            Self::Closed => f.write_str("peer closed the context"),
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
