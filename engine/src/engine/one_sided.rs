//! Commands that access a peer's memory: RMA write and read.

use super::{Engine, RESOURCE_MEMORY};
use crate::api::{Class, Notify, OpKind, PeerId, Refused, RemoteIov, RemoteSeg, RmaOp};
use crate::base::Time;
use crate::memory::{Buf, Seg};
use crate::ops::{NewOp, ReadOwner, Work};

impl Engine {
    /// Writes to a peer's memory. Complete when all of it is in place there.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn write(&mut self, now: Time, op: RmaOp) -> Result<(), Refused> {
        self.counters.tx_writes += 1;
        self.rma(now, op, OpKind::Write, Work::Write)
    }

    /// Reads from a peer's memory.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn read(&mut self, now: Time, op: RmaOp) -> Result<(), Refused> {
        self.counters.tx_reads += 1;
        self.watch(now);
        self.rma(now, op, OpKind::Read, |remote| Work::Read {
            remote,
            resource: RESOURCE_MEMORY,
            slot: 0,
            received: 0,
            owner: ReadOwner::User,
        })
    }

    /// Writes a few bytes that are copied now. It leaves a [`Notify::Count`] completion.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn inject_write(
        &mut self,
        now: Time,
        peer: PeerId,
        bytes: &[u8],
        remote: RemoteSeg,
        data: Option<u64>,
    ) -> Result<(), Refused> {
        if bytes.len() > self.config.inject_size as usize {
            return Err(Refused::InjectTooLong);
        }
        if bytes.len() as u64 != remote.len {
            return Err(Refused::LengthMismatch);
        }
        self.admit(0)?;
        self.counters.tx_writes += 1;
        let new = NewOp {
            work: Work::Write(remote),
            peer,
            class: Class::Msg,
            tag: 0,
            data,
            buf: Buf::Empty,
            len: remote.len,
            kind: OpKind::Write,
            context: 0,
            notify: Notify::Count,
        };
        let ix = self.start(now, new)?;
        self.fill_inline(ix, bytes);
        Ok(())
    }

    fn rma(
        &mut self,
        now: Time,
        op: RmaOp,
        kind: OpKind,
        work: impl Fn(RemoteSeg) -> Work,
    ) -> Result<(), Refused> {
        let len = op.buf.len();
        self.admit(len)?;
        let remote_len = op.remote.segs().iter().fold(0u64, |sum, seg| sum.saturating_add(seg.len));
        if remote_len != len {
            return Err(Refused::LengthMismatch);
        }
        let RmaOp { peer, buf, remote, data, context, notify } = op;
        let new = |work, buf, len, data| NewOp {
            work,
            peer,
            class: Class::Msg,
            tag: 0,
            data,
            buf,
            len,
            kind,
            context,
            notify,
        };
        let segs = match &remote {
            RemoteIov::One(seg) => {
                self.start(now, new(work(*seg), buf, len, data))?;
                return Ok(());
            }
            RemoteIov::Many(segs) => segs,
        };
        // Several ranges: one request each, and a group that completes with the last of them. The
        // remote CQ data rides on the last range.
        let id = self.context_to(now, peer).ok_or(Refused::Again)?;
        let left = u32::try_from(segs.len()).unwrap_or(u32::MAX);
        let group = self.ops.add(new(Work::Group { left, error: None }, Buf::Empty, len, None));
        self.outstanding += 1;
        let mut at = 0;
        for (n, seg) in segs.iter().enumerate() {
            let mut pieces: Vec<Seg> = Vec::new();
            buf.for_range(at, seg.len, |base, _, len| pieces.push(Seg { base, len }));
            at += seg.len;
            let data = if n + 1 == segs.len() { data } else { None };
            let ix = self.ops.add(new(work(*seg), Buf::from_segs(&pieces), seg.len, data));
            if let Some(part) = self.ops.get_mut(ix) {
                part.silent = true;
                part.parent = Some(group);
            }
            self.queue_on(id, ix);
        }
        if segs.is_empty() {
            self.group_part_done(group, None);
        }
        Ok(())
    }
}
