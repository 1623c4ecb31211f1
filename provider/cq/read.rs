//! Reading a completion queue.

use core::ffi::{c_int, c_void};
use std::ffi::CString;

use super::{Cq, State};
use crate::boundary;
use crate::compat::CqErrEntry;
use crate::errno::{Errno, Result};
use crate::ffi;
use crate::flags;
use crate::object;
use crate::wait;

impl State {
    /// How many completions come before the next failure.
    fn before_failure(&self) -> usize {
        let next =
            self.failures.front().map_or(u64::MAX, |f| f.position.saturating_sub(self.taken));
        usize::try_from(next).unwrap_or(usize::MAX)
    }
}

impl Cq {
    /// Takes up to `count` completions that are there already.
    ///
    /// # Safety
    /// `buf` has room for `count` entries of the queue's format, `source` for `count` addresses, or
    /// they are NULL.
    ///
    /// # Errors
    /// `FI_EAVAIL` when a failure is next, `FI_EAGAIN` when nothing is there.
    unsafe fn take(&self, buf: *mut c_void, count: usize, source: *mut u64) -> Result<usize> {
        let mut state = self.state.enter();
        let allowed = state.before_failure();
        if allowed == 0 {
            return Err(Errno::AVAIL);
        }
        let there = state.entries.len().min(allowed);
        if there == 0 {
            return Err(Errno::AGAIN);
        }
        let n = if buf.is_null() { 0 } else { there.min(count) };
        for i in 0..n {
            let Some(entry) = state.entries.pop_front() else { break };
            // SAFETY: i < count.
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

    /// [`Cq::take`], after a turn of progress if there is nothing.
    ///
    /// # Safety
    /// As [`Cq::take`].
    #[inline]
    unsafe fn read(&self, buf: *mut c_void, count: usize, source: *mut u64) -> Result<usize> {
        // SAFETY: the caller's promise.
        unsafe {
            match self.take(buf, count, source) {
                Err(Errno::AGAIN) => {}
                // A read of nothing is a call for progress.
                Ok(0) => {
                    self.progress();
                    return Ok(0);
                }
                done => return done,
            }
            self.progress();
            self.take(buf, count, source)
        }
    }

    /// Blocks for at least one completion.
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
        let Some(waiter) = &self.waiter else {
            log::info!("fi_cq_sread on a queue opened with FI_WAIT_NONE");
            return Err(Errno::NOSYS);
        };
        let check = || {
            // SAFETY: the caller's promise.
            match unsafe { self.read(buf, count, source) } {
                Err(Errno::AGAIN) => {}
                done => return Some(done),
            }
            let mut state = self.state.enter();
            core::mem::take(&mut state.signaled).then_some(Err(Errno::AGAIN))
        };
        wait::until(wait::deadline(timeout), Some(waiter), check, || self.try_wait().is_ok())?
    }
}

pub(super) unsafe extern "C" fn read(
    cq: *mut ffi::fid_cq,
    buf: *mut c_void,
    count: usize,
) -> isize {
    // SAFETY: an open queue, and room for `count` entries.
    boundary::sized(|| unsafe { object::get::<Cq, _>(cq)?.read(buf, count, core::ptr::null_mut()) })
}

pub(super) unsafe extern "C" fn readfrom(
    cq: *mut ffi::fid_cq,
    buf: *mut c_void,
    count: usize,
    source: *mut u64,
) -> isize {
    // SAFETY: an open queue, and room for `count` entries and addresses.
    boundary::sized(|| unsafe { object::get::<Cq, _>(cq)?.read(buf, count, source) })
}

pub(super) unsafe extern "C" fn sread(
    cq: *mut ffi::fid_cq,
    buf: *mut c_void,
    count: usize,
    _cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: an open queue, and room for `count` entries. The threshold of FI_CQ_COND_THRESHOLD is a
    // hint by definition (fi_cq(3)).
    boundary::sized(|| unsafe {
        object::get::<Cq, _>(cq)?.sleep_read(buf, count, core::ptr::null_mut(), timeout)
    })
}

pub(super) unsafe extern "C" fn sreadfrom(
    cq: *mut ffi::fid_cq,
    buf: *mut c_void,
    count: usize,
    source: *mut u64,
    _cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: an open queue, and room for `count` entries and addresses.
    boundary::sized(|| unsafe { object::get::<Cq, _>(cq)?.sleep_read(buf, count, source, timeout) })
}

pub(super) unsafe extern "C" fn readerr(
    cq: *mut ffi::fid_cq,
    buf: *mut ffi::fi_cq_err_entry,
    flags: u64,
) -> isize {
    boundary::sized(|| {
        // SAFETY: an open queue.
        let cq: &Cq = unsafe { object::get(cq)? };
        if buf.is_null() {
            return Err(Errno::INVAL);
        }
        let mut state = cq.state.enter();
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
        state.text = CString::new(text).unwrap_or_default();
        state.text_code = failure.code;
        // SAFETY: the caller gives an entry of the layout of the API version it opened the fabric
        // with; our layout is the largest, and its tail is written only for those who have it.
        unsafe { failure.write(buf.cast::<CqErrEntry>(), &state.text, cq.tells_source) };
        Ok(1)
    })
}
