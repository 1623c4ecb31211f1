//! The calls that read a completion queue.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use std::ffi::CString;

use super::{Cq, State};
use crate::abi::boundary;
use crate::abi::compat::CqErrEntry;
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::abi::flags;
use crate::clock::hooks::{self, ReadCompletion};
use crate::objects;
use crate::waiting;

/// Completion flags of messages that were received, and of accesses by peers.
const PEER_INITIATED: u64 = flags::RECV | flags::REMOTE_READ | flags::REMOTE_WRITE;

impl State {
    /// Returns whether the queue has neither a completion nor an error to read.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.failures.is_empty()
    }

    /// Returns the number of completions that can be read before the next error.
    fn before_failure(&self) -> usize {
        let next =
            self.failures.front().map_or(u64::MAX, |f| f.position.saturating_sub(self.taken));
        usize::try_from(next).unwrap_or(usize::MAX)
    }
}

impl Cq {
    /// Takes up to `count` completions that are in the queue already.
    ///
    /// # Safety
    /// `buf` is NULL or points to an array of `count` entries of the queue's format, `source` is NULL or points
    /// to `count` addresses; both are aligned and open to writing, and no other code uses them meanwhile.
    ///
    /// # Errors
    /// `FI_EAVAIL` when a failure is next, `FI_EAGAIN` when nothing is there.
    unsafe fn take(&self, buf: *mut c_void, count: usize, source: *mut u64) -> Result<usize> {
        let mut state = self.state.lock();
        let allowed = state.before_failure();
        if allowed == 0 {
            return Err(Errno::AVAIL);
        }
        let there = state.entries.len().min(allowed);
        if there == 0 {
            return Err(Errno::AGAIN);
        }
        let n = if buf.is_null() { 0 } else { there.min(count) };
        hooks::charge_completions(|| {
            state.entries.iter().take(n).map(|entry| ReadCompletion {
                is_own: entry.flags & PEER_INITIATED == 0,
                bytes: entry.len,
            })
        });
        for i in 0..n {
            let Some(entry) = state.entries.pop_front() else { break };
            // SAFETY: `i < n`, which is at most `count`, and 0 when `buf` is NULL: by this function's
            // contract both arrays have an `i`-th element, `source` if it is not NULL.
            unsafe {
                self.format.write(buf, i, &entry);
                if !source.is_null() {
                    *source.add(i) = entry.source;
                }
            }
        }
        state.taken += n as u64;
        Ok(n)
    }

    /// Takes completions as [`Cq::take`] does, after a turn of progress if there are none.
    ///
    /// # Safety
    /// As [`Cq::take`].
    #[inline]
    unsafe fn read(&self, buf: *mut c_void, count: usize, source: *mut u64) -> Result<usize> {
        if self.peer_owner.is_some() {
            return self.drive(count);
        }
        // SAFETY: `take` asks of `buf` and `source` what this function does, and leaves nothing of them
        // behind, so that it may be called twice.
        unsafe {
            match self.take(buf, count, source) {
                Err(Errno::AGAIN) => {}
                // A read of nothing is a call for progress, whatever comes next: a peer may wait for an answer while
                // the application has not read an error yet.
                done @ (Ok(0) | Err(Errno::AVAIL)) if count == 0 || buf.is_null() => {
                    self.poll();
                    return done;
                }
                done => return done,
            }
            self.poll();
            self.take(buf, count, source)
        }
    }

    /// Makes progress for the owner of a shared queue (fi_peer(3)), from which the application reads all completions.
    ///
    /// # Errors
    /// `FI_ENOSYS` for reading.
    #[cold]
    fn drive(&self, count: usize) -> Result<usize> {
        if count > 0 {
            return Err(Errno::NOSYS);
        }
        // Back off like other threads whose polls find nothing: a process that needs the processor
        // may be the peer.
        self.poll();
        Ok(0)
    }

    /// Sleeps until at least one completion can be read, and reads completions.
    ///
    /// # Safety
    /// As [`Cq::take`].
    unsafe fn sleep_read(
        &self,
        buf: *mut c_void,
        count: usize,
        source: *mut u64,
        timeout: c_int,
    ) -> Result<usize> {
        if self.peer_owner.is_some() {
            return Err(Errno::NOSYS);
        }
        self.waits.check_blocking("fi_cq_sread")?;
        let known = self.state.lock().answered;
        let check = || {
            // SAFETY: `read` asks of `buf` and `source` what this function does; `check` does not outlive it.
            match unsafe { self.read(buf, count, source) } {
                Err(Errno::AGAIN) => {}
                done => return Some(done),
            }
            // Of several threads that wait each wakes up for a signal.
            let mut state = self.state.lock();
            let signalled = state.signals > known;
            if signalled {
                state.answered = state.signals;
            }
            signalled.then_some(Err(Errno::AGAIN))
        };
        let prepare = |sleeper| self.prepare(sleeper, Some(known)).is_ok();
        waiting::poll_until(waiting::deadline(timeout), self.waits.waiter(), check, prepare)?
    }
}

impl Cq {
    /// Takes the error entry that is next, or copies it with FI_PEEK.
    ///
    /// # Safety
    /// `out` points to an entry, aligned and open to writing, of the layout of the API version that the
    /// application opened the fabric with; from 1.5 on its `err_data` may be written to for `err_data_size` bytes.
    unsafe fn read_error(&self, out: *mut CqErrEntry, flags: u64) -> Result<usize> {
        if self.peer_owner.is_some() {
            return Err(Errno::NOSYS);
        }
        let mut state = self.state.lock();
        if state.before_failure() != 0 {
            return Err(Errno::AGAIN);
        }
        let failure = if flags & flags::PEEK == 0 {
            state.failures.pop_front()
        } else {
            state.failures.front().cloned()
        };
        let failure = failure.ok_or(Errno::AGAIN)?;
        let text = failure.text.as_deref().unwrap_or("");
        // SAFETY: a field that every API version's layout has, a plain pointer, whatever it holds.
        let place = unsafe { (*out).err_data };
        // An entry that the application passes again as the last call left it points to the queue's own text, which is
        // about to be replaced.
        let ours = core::ptr::eq(place, state.read_text.as_ptr().cast());
        let layout = if ours { self.error_layout.without_buffer() } else { self.error_layout };
        state.read_text = CString::new(text).unwrap_or_default();
        state.read_code = failure.code;
        // SAFETY: every API version's layout has the fields of 1.17; `layout` is that of the version which the
        // application asked for, and says what else of `out` there is.
        unsafe { failure.write(out, &state.read_text, layout) };
        Ok(1)
    }
}

boundary::exports! {
    pub(super) sized read(cq: *mut ffi::fid_cq, buf: *mut c_void, count: usize) -> isize =>
        objects::get::<Cq, _>(cq)?.read(buf, count, null_mut());

    pub(super) sized readfrom(
        cq: *mut ffi::fid_cq,
        buf: *mut c_void,
        count: usize,
        source: *mut u64,
    ) -> isize => objects::get::<Cq, _>(cq)?.read(buf, count, source);

    /// Reads completions, and sleeps until there is one: `fi_cq_sread`. The threshold of FI_CQ_COND_THRESHOLD is
    /// ignored, because it is a hint (fi_cq(3)).
    pub(super) sized sread(
        cq: *mut ffi::fid_cq,
        buf: *mut c_void,
        count: usize,
        _cond: *const c_void,
        timeout: c_int,
    ) -> isize => objects::get::<Cq, _>(cq)?.sleep_read(buf, count, null_mut(), timeout);

    pub(super) sized sreadfrom(
        cq: *mut ffi::fid_cq,
        buf: *mut c_void,
        count: usize,
        source: *mut u64,
        _cond: *const c_void,
        timeout: c_int,
    ) -> isize => objects::get::<Cq, _>(cq)?.sleep_read(buf, count, source, timeout);

    pub(super) sized readerr(
        cq: *mut ffi::fid_cq,
        buf: *mut ffi::fi_cq_err_entry,
        flags: u64,
    ) -> isize => {
        let cq = objects::get::<Cq, _>(cq)?;
        if buf.is_null() {
            return Err(Errno::INVAL);
        }
        cq.read_error(buf.cast::<CqErrEntry>(), flags)
    };
}
