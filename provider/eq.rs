//! Event queues: control events (address insertion done) and what the application writes itself.

use core::ffi::{c_char, c_int, c_void};
use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::boundary;
use crate::errno::{Errno, Result};
use crate::fabric::Fabric;
use crate::ffi;
use crate::flags::{self, class};
use crate::object::{self, Cell, Hold, Object, Table, Users};
use crate::wait::{self, Waiter, Wanted};

/// An event with its bytes (a `fi_eq_entry` or what the application wrote).
struct Event {
    number: u32,
    bytes: Vec<u8>,
}

/// A failure, as `fi_eq_readerr` reports it.
pub(crate) struct Failure {
    /// The object concerned.
    pub(crate) fid: *mut ffi::fid,
    /// The operation's context.
    pub(crate) context: *mut c_void,
    /// What the event says, such as the index of the address.
    pub(crate) data: u64,
    /// The error.
    pub(crate) errno: Errno,
}

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    failures: VecDeque<Failure>,
    armed: bool,
}

/// `struct fid_eq` and what is behind it.
#[repr(C)]
pub(crate) struct Eq {
    fid: Cell<ffi::fid_eq>,
    users: Users,
    _fabric: Hold<Fabric>,
    waiter: Option<Waiter>,
    wanted: ffi::fi_wait_obj,
    writable: bool,
    state: Mutex<State>,
}

// SAFETY: the fid is only read after the queue was published; the pointers inside events are the
// application's and never followed here.
unsafe impl Send for Eq {}
// SAFETY: as above; the state is behind a mutex.
unsafe impl Sync for Eq {}

// SAFETY: repr(C), and fid_eq is first.
unsafe impl Object for Eq {
    type Fid = ffi::fid_eq;
    const CLASS: usize = class::EQ;
    fn users(&self) -> &Users {
        &self.users
    }
}

static FI_OPS: Table<ffi::fi_ops> = Table(object::fi_ops!(close: close, control: control));

static OPS: Table<ffi::fi_ops_eq> = Table(ffi::fi_ops_eq {
    size: size_of::<ffi::fi_ops_eq>(),
    read: Some(read),
    readerr: Some(readerr),
    write: Some(write),
    sread: Some(sread),
    strerror: Some(strerror),
});

/// `fi_eq_open`.
pub(crate) unsafe extern "C" fn open(
    fabric: *mut ffi::fid_fabric,
    attr: *mut ffi::fi_eq_attr,
    eq: *mut *mut ffi::fid_eq,
    context: *mut c_void,
) -> c_int {
    boundary::status(|| {
        if eq.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: an open fabric; NULL or a valid attribute.
        let (fabric, wanted, flags) = unsafe {
            let fabric: Arc<Fabric> = object::share(fabric)?;
            let attr = attr.as_ref();
            (fabric, attr.map_or(ffi::FI_WAIT_UNSPEC, |a| a.wait_obj), attr.map_or(0, |a| a.flags))
        };
        let opened = Arc::new(Eq {
            fid: Cell::new(ffi::fid_eq {
                fid: object::fid(class::EQ, context, &FI_OPS.0),
                ops: object::table(&OPS),
            }),
            users: Users::default(),
            _fabric: Hold::new(fabric),
            waiter: Wanted::from_attr(wanted)?.open()?,
            wanted,
            writable: flags & flags::WRITE != 0,
            state: Mutex::default(),
        });
        // SAFETY: checked for NULL.
        unsafe { *eq = object::publish(opened) };
        Ok(())
    })
}

impl Eq {
    /// Adds an event about `fid`.
    pub(crate) fn report(&self, number: u32, fid: *mut ffi::fid, context: *mut c_void, data: u64) {
        let entry = ffi::fi_eq_entry { fid, context, data };
        // SAFETY: a plain structure of pointers and integers without padding.
        let bytes = unsafe {
            core::slice::from_raw_parts((&raw const entry).cast::<u8>(), size_of_val(&entry))
        };
        self.push(|state| state.events.push_back(Event { number, bytes: bytes.to_vec() }));
    }

    /// Adds a failure.
    pub(crate) fn fail(&self, failure: Failure) {
        self.push(|state| state.failures.push_back(failure));
    }

    fn push(&self, add: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        add(&mut state);
        if let (Some(waiter), true) = (&self.waiter, state.armed) {
            state.armed = false;
            waiter.signal();
        }
    }

    /// fi_trywait.
    pub(crate) fn try_wait(&self) -> Result<()> {
        let waiter = self.waiter.as_ref().ok_or(Errno::NOSYS)?;
        let mut state = self.state.lock();
        if state.events.is_empty() && state.failures.is_empty() {
            waiter.clear();
            state.armed = true;
            Ok(())
        } else {
            Err(Errno::AGAIN)
        }
    }

    /// Takes (or with `peek` copies) the next event into `buf`.
    unsafe fn next(
        &self,
        number: *mut u32,
        buf: *mut c_void,
        len: usize,
        peek: bool,
    ) -> Result<usize> {
        if number.is_null() || (buf.is_null() && len > 0) {
            return Err(Errno::INVAL);
        }
        let mut state = self.state.lock();
        if !state.failures.is_empty() {
            return Err(Errno::AVAIL);
        }
        let event = state.events.front().ok_or(Errno::AGAIN)?;
        if event.bytes.len() > len {
            return Err(Errno::TOOSMALL);
        }
        let take = event.bytes.len();
        // SAFETY: the caller gives `len` bytes at `buf`, and a place for the event number.
        unsafe {
            core::ptr::copy_nonoverlapping(event.bytes.as_ptr(), buf.cast(), take);
            *number = event.number;
        }
        if !peek {
            state.events.pop_front();
        }
        Ok(take)
    }
}

unsafe extern "C" fn close(fid: *mut ffi::fid) -> c_int {
    // SAFETY: libfabric passes the object being closed.
    boundary::status(|| unsafe { object::retire::<Eq, _>(fid).map(drop) })
}

unsafe extern "C" fn control(fid: *mut ffi::fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: an open queue, and an argument of the command's type.
    boundary::status(|| unsafe {
        let eq: &Eq = object::get(fid)?;
        wait::control(eq.waiter.as_ref(), eq.wanted, command, arg)
    })
}

unsafe extern "C" fn read(
    eq: *mut ffi::fid_eq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    flags: u64,
) -> isize {
    // SAFETY: an open queue and a buffer of `len` bytes.
    boundary::sized(|| unsafe {
        object::get::<Eq, _>(eq)?.next(event, buf, len, flags & flags::PEEK != 0)
    })
}

unsafe extern "C" fn readerr(
    eq: *mut ffi::fid_eq,
    buf: *mut ffi::fi_eq_err_entry,
    flags: u64,
) -> isize {
    boundary::sized(|| {
        // SAFETY: an open queue.
        let eq: &Eq = unsafe { object::get(eq)? };
        if buf.is_null() {
            return Err(Errno::INVAL);
        }
        let mut state = eq.state.lock();
        let failure = state.failures.front().ok_or(Errno::AGAIN)?;
        // SAFETY: the caller gives a whole entry.
        unsafe {
            *buf = ffi::fi_eq_err_entry {
                fid: failure.fid,
                context: failure.context,
                data: failure.data,
                err: failure.errno.0,
                prov_errno: failure.errno.0,
                err_data: core::ptr::null_mut(),
                err_data_size: 0,
            };
        }
        if flags & flags::PEEK == 0 {
            state.failures.pop_front();
        }
        Ok(size_of::<ffi::fi_eq_err_entry>())
    })
}

unsafe extern "C" fn write(
    eq: *mut ffi::fid_eq,
    event: u32,
    buf: *const c_void,
    len: usize,
    _flags: u64,
) -> isize {
    boundary::sized(|| {
        // SAFETY: an open queue.
        let eq: &Eq = unsafe { object::get(eq)? };
        if !eq.writable {
            log::info!("fi_eq_write on a queue opened without FI_WRITE");
            return Err(Errno::INVAL);
        }
        if buf.is_null() && len > 0 {
            return Err(Errno::INVAL);
        }
        let bytes = if len == 0 {
            Vec::new()
        } else {
            // SAFETY: the caller gives `len` bytes.
            unsafe { core::slice::from_raw_parts(buf.cast::<u8>(), len) }.to_vec()
        };
        eq.push(|state| state.events.push_back(Event { number: event, bytes }));
        Ok(len)
    })
}

unsafe extern "C" fn sread(
    eq: *mut ffi::fid_eq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    boundary::sized(|| {
        // SAFETY: an open queue.
        let eq: &Eq = unsafe { object::get(eq)? };
        let Some(waiter) = &eq.waiter else { return Err(Errno::NOSYS) };
        let check = || {
            // SAFETY: a buffer of `len` bytes, as in fi_eq_read.
            match unsafe { eq.next(event, buf, len, flags & flags::PEEK != 0) } {
                Err(Errno::AGAIN) => None,
                answer => Some(answer),
            }
        };
        wait::until(wait::deadline(timeout), Some(waiter), check, || eq.try_wait().is_ok())?
    })
}

unsafe extern "C" fn strerror(
    _eq: *mut ffi::fid_eq,
    prov_errno: c_int,
    _err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    boundary::value(c"".as_ptr(), || {
        // SAFETY: strerror returns a terminated string that stays at least until the next call.
        let text = unsafe { libc::strerror(prov_errno) };
        if buf.is_null() || len == 0 {
            return text;
        }
        // SAFETY: terminated, and a buffer of `len` bytes.
        unsafe {
            boundary::copy_text(&core::ffi::CStr::from_ptr(text).to_string_lossy(), buf, len);
        }
        buf
    })
}
