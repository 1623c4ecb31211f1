//! Commands that send: messages, injects, and the operations the engine starts itself.

use super::Engine;
use crate::api::{Class, Level, Notify, OpKind, PeerId, Refused, SendOp};
use crate::base::Time;
use crate::memory::{Buf, Memory};
use crate::ops::{NewOp, Work};

/// `request_length` has 32 bits.
pub(super) const MAX_LEN: u64 = u32::MAX as u64;

impl Engine {
    /// Sends a message. The buffer must stay as it is until the completion.
    ///
    /// # Errors
    /// [`Refused::Again`] when too much is outstanding, [`Refused::TooLong`].
    pub fn send(&mut self, now: Time, op: SendOp) -> Result<(), Refused> {
        let len = op.buf.len();
        self.admit(len)?;
        let rendezvous = len > self.config.rendezvous_threshold;
        let work = if rendezvous {
            self.counters.tx_rendezvous += 1;
            Work::Rendezvous { nonce: self.rng.next_u32(), served: 0, ended: false }
        } else {
            self.counters.tx_eager += 1;
            match op.level {
                Level::Transmit => Work::Eager,
                Level::Delivery => Work::Confirmed { slot: 0, delivered: false },
            }
        };
        let waits = !matches!(work, Work::Eager);
        let new = NewOp {
            work,
            peer: op.peer,
            class: op.class,
            tag: op.tag,
            data: op.data,
            buf: op.buf,
            len,
            kind: OpKind::Send,
            context: op.context,
            notify: op.notify,
        };
        let ix = self.start(now, new)?;
        if let Some(started) = self.ops.get_mut(ix) {
            started.may_copy = op.may_copy && !waits && len <= u64::from(self.config.inject_size);
        }
        if waits {
            self.watch(now);
        }
        Ok(())
    }

    /// Sends a short message that is copied now. It leaves a [`Notify::Count`] completion.
    ///
    /// # Errors
    /// [`Refused::Again`], [`Refused::InjectTooLong`].
    pub fn inject(
        &mut self,
        now: Time,
        peer: PeerId,
        class: Class,
        tag: u64,
        bytes: &[u8],
        data: Option<u64>,
    ) -> Result<(), Refused> {
        if bytes.len() > self.config.inject_size as usize {
            return Err(Refused::InjectTooLong);
        }
        self.admit(0)?;
        self.counters.tx_inline += 1;
        let new = NewOp {
            work: Work::Eager,
            peer,
            class,
            tag,
            data,
            buf: Buf::Empty,
            len: bytes.len() as u64,
            kind: OpKind::Send,
            context: 0,
            notify: Notify::Count,
        };
        let ix = self.start(now, new)?;
        self.fill_inline(ix, bytes);
        Ok(())
    }

    /// A peer has answered for the first time: short sends to it need not wait any longer. They complete
    /// before anything the peer said is handed out, so that no answer overtakes the completion of its
    /// question (Intel MPI's one-sided operations hang when one does).
    pub(super) fn complete_early<M: Memory>(&mut self, mem: &M, peer: PeerId) {
        let waiting: Vec<u32> = self
            .ops
            .indices()
            .filter(|&ix| {
                self.ops.get(ix).is_some_and(|op| op.peer == peer && op.may_copy && !op.early)
            })
            .collect();
        for ix in waiting {
            let Some(op) = self.ops.get_mut(ix) else { continue };
            let mut bytes = core::mem::take(&mut op.inline);
            bytes.clear();
            bytes.resize(op.len as usize, 0);
            op.buf.for_range(0, op.len, |address, position, len| {
                let from = position as usize;
                mem.read(address, &mut bytes[from..from + len as usize]);
            });
            op.inline = bytes;
            op.injected = true;
            op.early = true;
            let completion = op.completion(None);
            op.buf = Buf::Empty;
            self.outstanding -= 1;
            self.complete(completion);
        }
    }

    /// Copies an injected payload into its operation.
    pub(super) fn fill_inline(&mut self, ix: u32, bytes: &[u8]) {
        if let Some(op) = self.ops.get_mut(ix) {
            op.inline.clear();
            op.inline.extend_from_slice(bytes);
            op.injected = true;
        }
    }

    pub(super) fn admit(&self, len: u64) -> Result<(), Refused> {
        if len > MAX_LEN {
            return Err(Refused::TooLong);
        }
        if self.outstanding >= self.config.max_outstanding {
            return Err(Refused::Again);
        }
        Ok(())
    }

    /// Queues a user operation on the context to its peer.
    pub(super) fn start(&mut self, now: Time, new: NewOp) -> Result<u32, Refused> {
        let id = self.context_to(now, new.peer).ok_or(Refused::Again)?;
        let ix = self.ops.add(new);
        self.outstanding += 1;
        self.queue_on(id, ix);
        Ok(ix)
    }

    /// Queues an operation of the engine itself. When no context can be had, it is tried again by
    /// [`Self::check_silent_peers`].
    pub(super) fn start_internal(&mut self, now: Time, new: NewOp) -> Option<u32> {
        let id = self.context_to(now, new.peer)?;
        let ix = self.ops.add(new);
        if let Some(op) = self.ops.get_mut(ix) {
            op.silent = true;
        }
        self.queue_on(id, ix);
        Some(ix)
    }
}
