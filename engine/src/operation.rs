//! Operations and receives that the caller gives to the engine.

use crate::access_groups::MAX_REQUESTS;
use crate::atomics::{atomic_has_comparands, atomic_size, max_atomic_count};
use crate::memory::Buf;
use crate::wire::{AmoOp, AmoType};

/// Longest message or request in bytes: `request_length` has 32 bits.
const MAX_LEN: u64 = u32::MAX as u64;
/// Bytes of the requests into which a longer one-sided operation is split: whole pages.
const LONG_PART: u64 = MAX_LEN & !0xfff;

/// A peer endpoint, named by its index in the engine's peer table. Equal addresses have equal ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId(pub u32);

/// The matching space of a two-sided message. A message matches only receives of the same space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MatchSpace {
    /// Untagged messages (FI_MSG), matched by order (and source) alone.
    Untagged,
    /// Tagged messages (FI_TAGGED), matched by tag (and source).
    Tagged,
    /// Messages of collective operations, kept apart from all others: matched by tag (and source).
    Collective,
}

/// Selects which completion queue entry the end of an operation produces. Counters always count the
/// end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visibility {
    /// The end of the operation produces an entry, whether it succeeded or failed.
    Entry,
    /// The operation produces an entry only if it failed (FI_SELECTIVE_COMPLETION without
    /// FI_COMPLETION).
    ErrorEntry,
    /// The operation produces no entry: the inject calls have no context by which the user could
    /// identify it.
    CountOnly,
    /// The caller decides which entry to produce, in its own record of the operation under the
    /// context. The engine treats the operation like `ErrorEntry`.
    Kept,
    /// The completion produces no entry, and only the counters of the region count it: the
    /// operation accessed several regions, and another completion stands for it.
    RegionOnly,
}

/// The moment at which the user considers an outbound operation complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// The caller requested no particular level: the policy decides when the operation is complete.
    Default,
    /// The operation is complete when its buffer may be used again (FI_INJECT_COMPLETE).
    Inject,
    /// The operation is complete when the peer's transport has all of it (FI_TRANSMIT_COMPLETE).
    Transmit,
    /// The operation is complete when the peer's message layer has all of it, in the receive buffer
    /// or kept for a later receive (FI_DELIVERY_COMPLETE).
    Delivery,
    /// The message is complete when a receive of the peer has taken it (FI_MATCH_COMPLETE).
    Match,
}

/// One contiguous range of remote memory that an RMA or atomic operation accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteSeg {
    /// Address of the range, or its offset in the target's registered region.
    pub address: u64,
    /// Length of the range in bytes.
    pub len: u64,
    /// Memory key that the target assigned to its registered region.
    pub key: u64,
}

impl RemoteSeg {
    /// Returns the parts of the range, of `len` bytes each but the last one. An empty range is one
    /// part.
    pub(crate) fn parts(self, len: u64) -> impl Iterator<Item = Self> {
        let part = move |at| Self {
            address: self.address.wrapping_add(at),
            len: len.min(self.len - at),
            ..self
        };
        (0..self.len.div_ceil(len).max(1)).map(move |n| part(n * len))
    }
}

/// The remote memory ranges of an RMA operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RemoteIov {
    /// One range of remote memory, the common case: it needs no allocation.
    One(RemoteSeg),
    /// Several ranges of remote memory, or none.
    Many(Box<[RemoteSeg]>),
}

impl RemoteIov {
    /// Returns the ranges of remote memory in order.
    #[must_use]
    pub fn segs(&self) -> &[RemoteSeg] {
        match self {
            Self::One(seg) => core::slice::from_ref(seg),
            Self::Many(segs) => segs,
        }
    }

    /// Returns the total length of the ranges in bytes, saturating.
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
    /// Sends a message to the peer.
    Message {
        /// The matching space in which the peer's receives are searched.
        space: MatchSpace,
        /// The tag of the message; zero for [`MatchSpace::Untagged`].
        tag: u64,
    },
    /// Writes to these ranges of the peer's memory.
    Write(RemoteIov),
    /// Reads from these ranges of the peer's memory.
    Read(RemoteIov),
    /// Changes values in the peer's memory. Each value changes atomically.
    Atomic(Box<Atomic>),
}

/// An atomic operation on values of one type in ranges of the peer's memory. The operands are the
/// operation's buffer.
#[derive(Clone, Debug)]
pub struct Atomic {
    /// The calculation that the target applies to each value.
    pub op: AmoOp,
    /// The data type of the values.
    pub data_type: AmoType,
    /// Ranges of the peer's memory that contain the values.
    pub remote: RemoteIov,
    /// Values to compare with, or masks, if the operation uses either.
    pub compare: Option<Buf>,
    /// Buffer for the previous values, if the operation fetches them.
    pub result: Option<Buf>,
}

impl Atomic {
    /// Checks an atomic operation with operands of `len` bytes.
    ///
    /// # Errors
    /// [`SubmitError::UnsupportedAtomic`], [`SubmitError::TooLong`], [`SubmitError::LengthMismatch`].
    fn check(&self, len: u64) -> Result<(), SubmitError> {
        let Self { op, data_type, remote, compare, result } = self;
        let most = max_atomic_count(*op, *data_type).ok_or(SubmitError::UnsupportedAtomic)?;
        let (reads, compares) = (*op == AmoOp::Read, atomic_has_comparands(*op));
        if compares != compare.is_some() || (reads || compares) && result.is_none() {
            return Err(SubmitError::UnsupportedAtomic);
        }
        let (size, total) = (atomic_size(*data_type) as u64, remote.len());
        if total > most as u64 * size {
            return Err(SubmitError::TooLong);
        }
        let fits = |buf: &Option<Buf>| buf.as_ref().is_none_or(|buf| buf.len() == total);
        if remote.segs().len() > MAX_REQUESTS {
            return Err(SubmitError::TooLong);
        }
        let whole = remote.segs().iter().all(|seg| seg.len > 0 && seg.len.is_multiple_of(size));
        if !whole || total == 0 || !(reads || len == total) || !fits(compare) || !fits(result) {
            return Err(SubmitError::LengthMismatch);
        }
        Ok(())
    }
}

impl Action {
    /// Returns the number of ranges of remote memory that the operation accesses.
    #[inline]
    pub(crate) fn ranges(&self) -> usize {
        match self {
            Self::Message { .. } => 0,
            Self::Write(remote) | Self::Read(remote) => remote.segs().len(),
            Self::Atomic(atomic) => atomic.remote.segs().len(),
        }
    }
}

/// Options of an outbound operation: injection, completion level, completion entry, fence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The caller may reuse the buffer when the call returns (FI_INJECT). Reads do not allow it.
    pub inject: bool,
    /// The moment at which the user considers the operation complete.
    pub level: Level,
    /// The kind of completion queue entry that the end of the operation produces.
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
    /// The peer to which the operation goes.
    pub peer: PeerId,
    /// The kind of operation (message, write, read, atomic) and the parameters of that kind.
    pub action: Action,
    /// Local buffer: source of a message or write, destination of a read.
    pub buf: Buf,
    /// Remote CQ data that the operation delivers to the peer. Reads carry none.
    pub data: Option<u64>,
    /// The user's context of the operation, which its completion returns.
    pub context: u64,
    /// Options of the operation: injection, completion level, completion entry, fence.
    pub options: Options,
}

impl Operation {
    /// Splits the remote ranges of a write or a read that is too long for one request. Each part
    /// becomes a request of one operation of several ranges.
    ///
    /// # Errors
    /// [`SubmitError`], as [`Self::check`], also if there are more parts than a group may have requests.
    #[cold]
    pub(crate) fn split_long(&mut self) -> Result<(), SubmitError> {
        let len = self.buf.len();
        let (Action::Write(remote) | Action::Read(remote)) = &mut self.action else {
            return Err(SubmitError::TooLong);
        };
        if remote.len() != len {
            return Err(SubmitError::LengthMismatch);
        }
        let parts = remote.segs().iter().flat_map(|seg| seg.parts(LONG_PART));
        let parts: Box<[RemoteSeg]> = parts.take(MAX_REQUESTS + 1).collect();
        if parts.len() > MAX_REQUESTS {
            return Err(SubmitError::TooLong);
        }
        *remote = RemoteIov::Many(parts);
        Ok(())
    }

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
            Action::Write(remote) | Action::Read(remote) if remote.segs().len() > MAX_REQUESTS => {
                Err(SubmitError::TooLong)
            }
            Action::Read(_) if self.options.inject => Err(SubmitError::InjectedRead),
            Action::Write(remote) | Action::Read(remote) if remote.len() != len => {
                Err(SubmitError::LengthMismatch)
            }
            Action::Write(_) | Action::Read(_) => Ok(()),
            Action::Atomic(atomic) => atomic.check(len),
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

/// The state in which [`crate::Engine::submit`] leaves an operation that it accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Submitted {
    /// The whole operation left during the call, through a shared-memory channel.
    Sent,
    /// The operation is queued. [`crate::Engine::poll_transmit`] or [`crate::ShmInterface::transmit`] sends it.
    Queued,
}

/// The kind of a receive call: post, peek, claim or discard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecvMode {
    /// Posts a buffer that receives one message.
    Post,
    /// Posts a buffer that consecutive messages share until less than `least` bytes are left
    /// (FI_MULTI_RECV, FI_OPT_MIN_MULTI_RECV).
    Multi {
        /// Smallest remaining space in bytes with which the buffer stays posted.
        least: u64,
    },
    /// Reports a waiting message and leaves it for a later receive (FI_PEEK).
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
    /// The kind of the receive call.
    pub mode: RecvMode,
    /// Only messages of this peer match (FI_DIRECTED_RECV); `None` is FI_ADDR_UNSPEC.
    pub source: Option<PeerId>,
    /// The matching space in which the receive searches messages.
    pub space: MatchSpace,
    /// The tag that a message must have; zero for [`MatchSpace::Untagged`].
    pub tag: u64,
    /// Bit mask of the tag bits that the match ignores.
    pub ignore: u64,
    /// Buffer into which the message is written.
    pub buf: Buf,
    /// The user's context. The completion returns it, and [`crate::Engine::cancel`] and claims
    /// identify the receive by it.
    pub context: u64,
    /// The kind of completion queue entry that the end of the receive produces.
    pub visibility: Visibility,
}

/// The reason why the engine did not accept an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubmitError {
    /// Queues are full: the caller must make progress and try again (-FI_EAGAIN).
    Again,
    /// The message is longer than the 32 bits of `request_length` can express, or the atomic has
    /// more values than [`crate::max_atomic_count`] (-FI_EMSGSIZE).
    TooLong,
    /// The operation is injected and longer than the inject limit (-FI_EINVAL).
    InjectTooLong,
    /// Reads and fetching atomics cannot be injected, because their buffer is written after the
    /// call returns (-FI_EBADFLAGS).
    InjectedRead,
    /// The lengths of the remote ranges of an RMA operation do not add up to the length of its
    /// buffer (-FI_EINVAL).
    LengthMismatch,
    /// The receive names a context with which no message was claimed (-FI_EINVAL).
    NotClaimed,
    /// The atomic operation is not defined for values of this type, or not in this form
    /// (-FI_EOPNOTSUPP).
    UnsupportedAtomic,
    /// The operation has no form that peers of another implementation handle
    /// ([`crate::Config::wire`]) (-FI_EOPNOTSUPP).
    UnsupportedByPeer,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the ranges of the requests of a write to ranges of these lengths.
    fn split(lens: &[u64]) -> Result<Vec<(u64, u64)>, SubmitError> {
        let segs = lens.iter().enumerate().map(|(n, len)| {
            let address = (n as u64) << 40;
            RemoteSeg { address, len: *len, key: 5 }
        });
        let action = Action::Write(RemoteIov::Many(segs.collect()));
        let buf = Buf::new(0, lens.iter().sum());
        let options = Options::default();
        let mut op = Operation { peer: PeerId(0), action, buf, data: None, context: 0, options };
        assert_eq!(op.check(), Err(SubmitError::TooLong));
        op.split_long()?;
        let Action::Write(remote) = op.action else { panic!("it is a write") };
        Ok(remote.segs().iter().map(|seg| (seg.address, seg.len)).collect())
    }

    #[test]
    fn long_writes_are_split_into_requests() {
        let most = LONG_PART;
        assert_eq!(split(&[MAX_LEN + 1]), Ok(vec![(0, most), (most, MAX_LEN + 1 - most)]));
        assert_eq!(
            split(&[most + 1, 7, most]),
            Ok(vec![(0, most), (most, 1), (1 << 40, 7), (2 << 40, most)])
        );
        let requests = split(&[most * MAX_REQUESTS as u64]).expect("just as many");
        assert!(requests.len() == MAX_REQUESTS && requests.iter().all(|(_, len)| *len == most));
        assert_eq!(split(&[most * MAX_REQUESTS as u64 + 1]), Err(SubmitError::TooLong));
        assert_eq!(split(&[u64::MAX]), Err(SubmitError::TooLong));
        // Four ranges of any lengths, together of four parts.
        assert_eq!(split(&[most + 1, most + 1, most + 1, most - 3]).map(|all| all.len()), Ok(7));
    }
}
