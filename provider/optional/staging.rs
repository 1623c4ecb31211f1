//! Staging of operations on memory that the CPU must not touch (`device_memory/`) through host memory.
//!
//! Data to send is copied first, and then enters the engine. Later operations wait behind it, so that the
//! order stays. Data that arrives is copied when the engine is done, and then shown. So a copy that fails ends its
//! operation with an error, and changes nothing at the peer.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::task::Poll;

use squall_base::{Space, UserSlice};
use squall_engine::{
    Action, Buf, Completion, MatchSpace, OpError, OpKind, Operation, RecvMode, SubmitError,
    Visibility,
};

use crate::abi::errno::{Errno, Result};
use crate::device_memory::{self, Bounce, CopyDirection, CopyError, PendingCopy};
use crate::endpoint::bindings::Bindings;
use crate::endpoint::endpoint_core::Core;
use crate::host::limits;

/// Bit of the engine's contexts of staged operations; applications and deferred work use others.
const OURS: u64 = 1 << 62;

/// A device buffer that bytes arrive for, and the host memory that receives them in its place.
#[derive(Clone)]
struct Destination {
    bounce: Arc<Bounce>,
    place: Buf,
}

/// A transmit operation whose data is being copied to host memory before the engine gets it. Dropping it waits for the
/// copies before their memory is freed.
struct QueuedOperation {
    copies: Vec<PendingCopy>,
    failed: Option<CopyError>,
    op: Operation,
    /// Context of the operation's record of replaced buffers, if it has any.
    staged: Option<u64>,
}

/// A transmit operation whose buffers were replaced by host memory, with the values that the application knows it by.
struct StagedOperation {
    context: u64,
    visibility: Visibility,
    /// The address of the application's buffer.
    base: u64,
    /// Keeps the host memory that the operation reads from, until the operation has ended.
    _sources: Vec<Bounce>,
    result: Option<Destination>,
}

/// A receive whose device buffer is replaced by host memory.
struct StagedReceive {
    to: Destination,
    multi: bool,
}

/// An operation that has ended in the engine and whose received data is being copied to device memory. Dropping it
/// waits for the copies before their memory is freed.
struct ArrivedOperation {
    copies: Vec<PendingCopy>,
    failed: Option<CopyError>,
    done: Completion,
    _from: Option<Arc<Bounce>>,
}

/// The operations on device memory of an endpoint, with the host memory that replaces their buffers.
#[derive(Default)]
pub(crate) struct Staging {
    waiting: VecDeque<QueuedOperation>,
    arriving: VecDeque<ArrivedOperation>,
    /// Operations whose buffers are replaced by host memory, by their context in the engine.
    staged: HashMap<u64, StagedOperation>,
    /// Receives whose buffers are replaced by host memory, by the address of that memory.
    posted: BTreeMap<u64, StagedReceive>,
    next: u64,
}

/// Polls copies, and keeps the first error. Returns whether all copies have ended.
fn poll_all(copies: &mut Vec<PendingCopy>, failed: &mut Option<CopyError>) -> bool {
    copies.retain_mut(|copy| match copy.poll() {
        Poll::Pending => true,
        Poll::Ready(ended) => {
            if let Err(error) = ended {
                failed.get_or_insert(error);
            }
            false
        }
    });
    copies.is_empty()
}

/// Returns the memory space of the first piece of a buffer that is not host memory.
fn space_of(buf: &Buf) -> Space {
    let spaces = buf.slices().iter().map(|slice| slice.space);
    spaces.into_iter().find(|space| !space.is_host()).unwrap_or(Space::HOST)
}

fn allocate_bounce(buf: &Buf) -> Result<(Bounce, Buf)> {
    let len = usize::try_from(buf.len()).map_err(|_| Errno::MSGSIZE)?;
    let bounce = Bounce::pinned(len, space_of(buf)).ok_or(Errno::NOMEM)?;
    let slice = Buf::One(bounce.slice(len));
    Ok((bounce, slice))
}

/// Begins to copy between the bytes of a buffer from `offset` on and host memory `bounce`, which has room for the whole
/// buffer. With `now` the copy has ended on return.
fn copy_buf(
    direction: CopyDirection,
    buf: &Buf,
    (offset, len): (u64, u64),
    bounce: &Bounce,
    now: bool,
    copies: &mut Vec<PendingCopy>,
) -> core::result::Result<(), CopyError> {
    let mut result = Ok(());
    buf.for_range(offset, len, |piece, position| {
        if result.is_err() {
            return;
        }
        let host = bounce.at(usize::try_from(offset + position).unwrap_or(0));
        // SAFETY: `bounce` has as many bytes as `buf`, of which these are the piece's, and stays until its copies are
        // over: the owner of both drops the copies first. A piece of the host's is a buffer of an operation that has
        // not ended towards the application: `Endpoint::transmit` and `receive` say it stays mapped.
        result = unsafe {
            if now {
                device_memory::copy(direction, piece, host)
            } else {
                device_memory::begin(direction, piece, host).map(|copy| copies.push(copy))
            }
        };
    });
    result
}

impl Staging {
    /// Returns whether later operations must wait for earlier ones whose data is being copied.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns whether a copy between device memory and host memory is in progress.
    pub(crate) fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || !self.arriving.is_empty()
    }

    /// Replaces an operation's device buffers by host memory, and begins the copies into it.
    fn prepare(&mut self, mut op: Operation) -> Result<QueuedOperation> {
        let (mut sources, mut copies, mut failed) = (Vec::new(), Vec::new(), None);
        let (inject, host) = (op.options.inject, op.is_host());
        let mut result = None;
        let base = op.buf.base();
        let mut source = |buf: &mut Buf, copies: &mut Vec<PendingCopy>| -> Result<()> {
            // The application has a buffer of the host back at the end, but what is injected now.
            if buf.is_empty() || buf.is_host() && !inject {
                return Ok(());
            }
            let (bounce, new) = allocate_bounce(buf)?;
            let begun =
                copy_buf(CopyDirection::ToHost, buf, (0, buf.len()), &bounce, inject, copies);
            sources.push(bounce);
            if let Err(error) = begun {
                failed.get_or_insert(error);
            }
            *buf = new;
            Ok(())
        };
        let destination = |buf: &mut Buf| -> Result<Option<Destination>> {
            if buf.is_empty() || buf.is_host() {
                return Ok(None);
            }
            let (bounce, new) = allocate_bounce(buf)?;
            let place = core::mem::replace(buf, new);
            Ok(Some(Destination { bounce: Arc::new(bounce), place }))
        };
        match &mut op.action {
            Action::Read(_) => result = destination(&mut op.buf)?,
            Action::Message { .. } | Action::Write(_) => source(&mut op.buf, &mut copies)?,
            Action::Atomic(atomic) => {
                source(&mut op.buf, &mut copies)?;
                if let Some(compare) = &mut atomic.compare {
                    source(compare, &mut copies)?;
                }
                if let Some(buf) = &mut atomic.result {
                    result = destination(buf)?;
                }
            }
        }
        if host && sources.is_empty() {
            return Ok(QueuedOperation { copies, failed, op, staged: None });
        }
        self.next += 1;
        let id = OURS | self.next;
        let (context, visibility) = (op.context, op.options.visibility);
        self.staged
            .insert(id, StagedOperation { context, visibility, base, _sources: sources, result });
        op.context = id;
        op.options.visibility = Visibility::Kept;
        Ok(QueuedOperation { copies, failed, op, staged: Some(id) })
    }

    /// Handles the end of an operation whose buffers were replaced. Returns what the application sees of it now, or
    /// `None` while data must still be copied.
    #[cold]
    fn handle_staged_end(&mut self, done: &Completion) -> Option<Completion> {
        let staged = self.staged.remove(&done.context)?;
        let StagedOperation { context, visibility, base, result, .. } = staged;
        let done = Completion { context, visibility, buf: base, ..done.clone() };
        match (result, done.status) {
            (Some(to), Ok(())) => {
                self.deliver_to(&to, (0, done.len), done);
                None
            }
            _ => Some(done),
        }
    }

    /// Starts the copy of received data from the bounce buffer to its destination on the device.
    fn deliver_to(&mut self, to: &Destination, (offset, len): (u64, u64), done: Completion) {
        let (mut copies, mut failed) = (Vec::new(), None);
        let begun = copy_buf(
            CopyDirection::ToDevice,
            &to.place,
            (offset, len),
            &to.bounce,
            false,
            &mut copies,
        );
        if let Err(error) = begun {
            failed = Some(error);
        }
        self.arriving.push_back(ArrivedOperation {
            copies,
            failed,
            done,
            _from: Some(to.bounce.clone()),
        });
    }

    /// Replaces a receive's device buffer by host memory. Returns the key of the replacement, if there is one.
    pub(crate) fn post(&mut self, buf: &mut Buf, mode: RecvMode) -> Result<Option<u64>> {
        if buf.is_empty() || buf.is_host() {
            return Ok(None);
        }
        // Not pinned: many may be posted that nothing arrives in, and what is not written costs no page.
        let len = usize::try_from(buf.len()).map_err(|_| Errno::NOMEM)?;
        let bounce = Bounce::new(len).ok_or(Errno::NOMEM)?;
        let slice = bounce.slice(len);
        let place = core::mem::replace(buf, Buf::One(slice));
        let to = Destination { bounce: Arc::new(bounce), place };
        self.posted.insert(
            slice.base,
            StagedReceive { to, multi: matches!(mode, RecvMode::Multi { .. }) },
        );
        Ok(Some(slice.base))
    }

    /// Undoes [`Self::post`] for a receive that the engine did not accept.
    pub(crate) fn cancel_post(&mut self, base: Option<u64>) {
        if let Some(base) = base {
            self.posted.remove(&base);
        }
    }

    /// Handles the end of a receive, or of a part of it. If its buffer was replaced, returns what the application sees
    /// now, or `None` while data must still be copied; otherwise returns `done` unchanged.
    fn end_receive(&mut self, mut done: Completion) -> Option<Completion> {
        let Some((&base, posted)) = self.posted.range(..=done.buf).next_back() else {
            return Some(done);
        };
        let Some(offset) = posted.to.bounce.offset_of(done.buf) else { return Some(done) };
        let to = posted.to.clone();
        let cancelled = matches!(done.status, Err(OpError::Cancelled));
        if done.released || !posted.multi || cancelled {
            self.posted.remove(&base);
        }
        to.place.for_range(offset, 1, |piece, _| done.buf = piece.base);
        let arrived = match done.status {
            Ok(()) | Err(OpError::Truncated { .. }) => done.len,
            Err(_) => 0,
        };
        // Those of one buffer stay in order: the last of them gives it back.
        if arrived > 0 || self.arriving.iter().any(|other| other.done.context == done.context) {
            self.deliver_to(&to, (offset, arrived), done);
            return None;
        }
        Some(done)
    }

    /// Handles an operation that has ended in the engine. Returns what the application sees of it now: nothing if it
    /// still has to be copied.
    #[cold]
    #[inline(never)]
    pub(crate) fn end(&mut self, done: Completion) -> Option<Completion> {
        match done.kind {
            OpKind::Recv => self.end_receive(done),
            _ if self.staged.contains_key(&done.context) && done.visibility == Visibility::Kept => {
                self.handle_staged_end(&done)
            }
            _ => Some(done),
        }
    }
}

impl Core {
    /// Takes a transmit operation that has buffers in device memory, or that follows such an operation.
    ///
    /// # Errors
    /// As `Endpoint::transmit`; `FI_EINVAL` for such a buffer on an endpoint without FI_HMEM.
    #[cold]
    #[inline(never)]
    pub(crate) fn stage(&mut self, bindings: &Bindings, op: Operation) -> Result<()> {
        op.check()?;
        if op.options.inject && op.buf.len() > limits::INJECT_SIZE as u64 {
            return Err(Errno::INVAL);
        }
        let Some(staging) = &mut self.optional.staging else {
            log::info!(
                "operation refused: its buffer is in device memory, and the endpoint was opened without FI_HMEM"
            );
            return Err(Errno::INVAL);
        };
        if staging.waiting.len() >= limits::queue_size() {
            self.run_turn(bindings);
            return Err(Errno::AGAIN);
        }
        let waiting = staging.prepare(op)?;
        staging.waiting.push_back(waiting);
        self.advance_copies(bindings);
        Ok(())
    }

    /// Continues operations whose copies have ended. Returns whether there were any.
    #[cold]
    #[inline(never)]
    pub(crate) fn advance_copies(&mut self, bindings: &Bindings) -> bool {
        let mut busy = false;
        let now = crate::clock::now();
        while let Some(staging) = &mut self.optional.staging
            && let Some(first) = staging.waiting.front_mut()
            && poll_all(&mut first.copies, &mut first.failed)
        {
            let (failed, staged, op) = (first.failed.take(), first.staged, first.op.clone());
            let ended = match failed {
                Some(error) => {
                    log::warn!("cannot copy data to send from device memory: {error}");
                    Some(OpError::Uncopied)
                }
                None => match self.submit(now, op) {
                    Ok(_) => None,
                    Err(SubmitError::Again) => break,
                    // `check` said that it would be taken, and nothing that it looks at changes.
                    Err(refused) => {
                        log::warn!(
                            "operation on device memory fails after its call succeeded: {refused:?}"
                        );
                        Some(OpError::Closed)
                    }
                },
            };
            busy = true;
            let Some(staging) = &mut self.optional.staging else { break };
            let Some(QueuedOperation { op, .. }) = staging.waiting.pop_front() else { break };
            if let Some(error) = ended {
                let done = unsent_completion(&op, error);
                let done =
                    if staged.is_some() { staging.handle_staged_end(&done) } else { Some(done) };
                if let Some(done) = done {
                    self.deliver_completion(bindings, &done);
                }
            } else {
                self.handle_posted(now, 0, false);
                self.deliver_completions(bindings);
            }
        }
        while let Some(staging) = &mut self.optional.staging
            && let Some(first) = staging.arriving.front_mut()
            && poll_all(&mut first.copies, &mut first.failed)
            && let Some(ArrivedOperation { failed, mut done, .. }) = staging.arriving.pop_front()
        {
            busy = true;
            if let Some(error) = failed {
                log::warn!("cannot copy received data to device memory: {error}");
                done.status = Err(OpError::Uncopied);
            }
            self.deliver_completion(bindings, &done);
        }
        busy
    }
}

/// Returns the completion of an operation that failed before it entered the engine.
fn unsent_completion(op: &Operation, error: OpError) -> Completion {
    let (kind, space, tag) = match &op.action {
        Action::Message { space, tag } => (OpKind::Send, *space, *tag),
        Action::Write(_) => (OpKind::Write, MatchSpace::Untagged, 0),
        Action::Read(_) => (OpKind::Read, MatchSpace::Untagged, 0),
        Action::Atomic(atomic) if atomic.result.is_some() => {
            (OpKind::Fetch, MatchSpace::Untagged, 0)
        }
        Action::Atomic(_) => (OpKind::Update, MatchSpace::Untagged, 0),
    };
    Completion {
        context: op.context,
        kind,
        space,
        len: op.buf.len(),
        buf: op.buf.base(),
        data: None,
        tag,
        peer: Some(op.peer),
        region: UserSlice::default().region,
        visibility: op.options.visibility,
        released: false,
        status: Err(error),
    }
}
