//! Event queues: control events (address insertion done, group joined) and what the application writes itself.
//!
//! Joining a group takes messages. Under manual progress reading the queue moves them (fi_domain(3),
//! FI_PROGRESS_MANUAL), as the background progress thread would: a queue is the fabric's, so its reader may be another
//! thread than the one that is promised to be alone in the domain (FI_THREAD_DOMAIN). A sleeper wakes up now and then
//! to do so.

use core::ffi::{c_char, c_int, c_void};
use std::collections::VecDeque;
use std::ffi::CString;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use squall_base::Span;

use crate::abi::boundary::{self, Out};
use crate::abi::compat::version;
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::abi::flags::{self, class};
use crate::clock;
use crate::fabric::Fabric;
use crate::objects::{self, Cell, Object, ObjectRef, Table, Users};
use crate::waiting::open_endpoints::OpenEndpoint;
use crate::waiting::set::WaitSet;
use crate::waiting::{self, Sleeper, Waitable, Waits};

/// Longest sleep of a thread that waits until an endpoint has joined a group.
const JOIN_TURN_INTERVAL: Span = Span::millis(1);

/// An event with its bytes: a `fi_eq_entry`, or what the application wrote.
struct Event {
    number: u32,
    bytes: Vec<u8>,
}

/// An error entry of an event queue, as `fi_eq_readerr` reports it.
pub(crate) struct Failure {
    /// The object that the failure concerns.
    pub(crate) fid: *mut ffi::fid,
    /// The application's context of the failed operation.
    pub(crate) context: *mut c_void,
    /// The data of the error entry, such as the index of the address that failed.
    pub(crate) data: u64,
    /// The libfabric error number of the failure.
    pub(crate) errno: Errno,
}

// SAFETY: the two pointers are handles of the application's, the object and the context of its call. We hand
// them back in `fi_eq_readerr` and never follow them, so they may be kept by one thread and read by another.
unsafe impl Send for Failure {}

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    failures: VecDeque<Failure>,
    armed: bool,
    /// Text of the last error for which `fi_eq_strerror` was called without a buffer.
    text: CString,
}

/// An event queue: `struct fid_eq` and the provider's state behind it.
#[repr(C)]
pub(crate) struct Eq {
    fid: Cell<ffi::fid_eq>,
    users: Users,
    fabric: ObjectRef<Fabric>,
    waits: Waits,
    writable: bool,
    state: Mutex<State>,
    /// Endpoints that are joining a group and on which only the application makes progress.
    joining: Mutex<Vec<Arc<Weak<dyn OpenEndpoint>>>>,
}

// SAFETY: `Eq` is repr(C) and begins with the cell of a `fid_eq`, which begins with a `fid`; `create`
// alone puts `FI_OPS` into one.
unsafe impl Object for Eq {
    type Fid = ffi::fid_eq;
    fn ops() -> &'static ffi::fi_ops {
        &FI_OPS.0
    }
    fn users(&self) -> &Users {
        &self.users
    }
}

static FI_OPS: Table<ffi::fi_ops> = Table(objects::fi_ops!(close: close, control: control));

static OPS: Table<ffi::fi_ops_eq> = Table(ffi::fi_ops_eq {
    size: size_of::<ffi::fi_ops_eq>(),
    read: Some(read),
    readerr: Some(readerr),
    write: Some(write),
    sread: Some(sread),
    strerror: Some(strerror),
});

boundary::exports! {
    /// Opens an event queue: `fi_eq_open`.
    pub(crate) status open(
        fabric: *mut ffi::fid_fabric,
        attr: *mut ffi::fi_eq_attr,
        eq: *mut *mut ffi::fid_eq,
        context: *mut c_void,
    ) -> c_int => {
        let (place, attr) = (Out::new(eq)?, attr.as_ref());
        let set = attr.map_or(Ok(None), |attr| waiting::set_of(attr.wait_obj, attr.wait_set))?;
        place.write(Eq::create(objects::share(fabric)?, attr, set, context)?)
    };

    status close(fid: *mut ffi::fid) -> c_int => {
        if let Some(eq) = objects::retire::<Eq, _>(fid)? {
            eq.waits.leave_set();
        }
        Ok(())
    };

    status control(fid: *mut ffi::fid, command: c_int, arg: *mut c_void) -> c_int => {
        objects::get::<Eq, _>(fid)?.waits.control(command, arg)
    };

    sized read(
        eq: *mut ffi::fid_eq,
        event: *mut u32,
        buf: *mut c_void,
        len: usize,
        flags: u64,
    ) -> isize => objects::get::<Eq, _>(eq)?.read(event, buf, len, flags & flags::PEEK != 0);

    sized readerr(eq: *mut ffi::fid_eq, buf: *mut ffi::fi_eq_err_entry, flags: u64) -> isize =>
        objects::get::<Eq, _>(eq)?.read_error(buf, flags);

    sized write(
        eq: *mut ffi::fid_eq,
        event: u32,
        buf: *const c_void,
        len: usize,
        _flags: u64,
    ) -> isize => {
        let eq = objects::get::<Eq, _>(eq)?;
        eq.write(event, boundary::slice(buf.cast::<u8>(), len)?)
    };

    sized sread(
        eq: *mut ffi::fid_eq,
        event: *mut u32,
        buf: *mut c_void,
        len: usize,
        timeout: c_int,
        flags: u64,
    ) -> isize => {
        let eq = objects::get::<Eq, _>(eq)?;
        eq.waits.check_blocking("fi_eq_sread")?;
        let check = || match eq.read(event, buf, len, flags & flags::PEEK != 0) {
            Err(Errno::AGAIN) => None,
            answer => Some(answer),
        };
        let prepare = |sleeper| eq.try_wait(sleeper).is_ok();
        waiting::poll_until(waiting::deadline(timeout), eq.waits.waiter(), check, prepare)?
    };

    string strerror(
        eq: *mut ffi::fid_eq,
        prov_errno: c_int,
        _err_data: *const c_void,
        buf: *mut c_char,
        len: usize,
    ) -> *const c_char => {
        let eq = objects::get::<Eq, _>(eq)?;
        let text = std::io::Error::from_raw_os_error(prov_errno).to_string();
        boundary::copy_text(&text, buf, len);
        Ok(if buf.is_null() || len == 0 { eq.store_text(&text) } else { buf.cast_const() })
    };
}

impl Eq {
    /// Creates an event queue for `fi_eq_open`.
    fn create(
        fabric: Arc<Fabric>,
        attr: Option<&ffi::fi_eq_attr>,
        set: Option<Arc<WaitSet>>,
        context: *mut c_void,
    ) -> Result<*mut ffi::fid_eq> {
        let (wait_obj, flags) = attr.map_or((ffi::FI_WAIT_UNSPEC, 0), |a| (a.wait_obj, a.flags));
        if flags & flags::PEER != 0 {
            log::info!(
                "FI_PEER event queue refused: only completion queues and receive contexts can be shared"
            );
            return Err(Errno::INVAL);
        }
        if flags & !(flags::WRITE | flags::AFFINITY) != 0 {
            log::info!(
                "event queue refused: of the flags {flags:#x} only FI_WRITE and FI_AFFINITY are known"
            );
            return Err(Errno::INVAL);
        }
        let opened = Arc::new(Self {
            fid: Cell::new(ffi::fid_eq {
                fid: objects::fid(class::EQ, context, &FI_OPS.0),
                ops: objects::table(&OPS),
            }),
            users: Users::default(),
            fabric: ObjectRef::new(fabric),
            waits: Waits::open(wait_obj, set)?,
            writable: flags & flags::WRITE != 0,
            state: Mutex::default(),
            joining: Mutex::default(),
        });
        let weak = Arc::downgrade(&opened);
        opened.waits.join_set(weak)?;
        Ok(objects::publish(opened))
    }

    /// Adds an event about the object `fid`: a `fi_eq_entry`, which has no padding.
    pub(crate) fn push_entry(
        &self,
        number: u32,
        fid: *mut ffi::fid,
        context: *mut c_void,
        data: u64,
    ) {
        let mut bytes = Vec::with_capacity(size_of::<ffi::fi_eq_entry>());
        bytes.extend_from_slice(&fid.expose_provenance().to_ne_bytes());
        bytes.extend_from_slice(&context.expose_provenance().to_ne_bytes());
        bytes.extend_from_slice(&data.to_ne_bytes());
        self.push(|state| state.events.push_back(Event { number, bytes }));
    }

    /// Adds an error entry to the event queue.
    pub(crate) fn push_error(&self, failure: Failure) {
        self.push(|state| state.failures.push_back(failure));
    }

    fn push(&self, add: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        add(&mut state);
        if core::mem::take(&mut state.armed) {
            self.waits.signal();
        }
    }

    /// Takes the next event into `buf`, or discards it without `buf`. With `peek` it copies the event instead.
    ///
    /// # Safety
    /// `number` is NULL or may be written to, `buf` is NULL or has room for `len` bytes, and no other code uses
    /// them meanwhile.
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
        // Who brings no buffer asks what happened, and for no more, as with libfabric's own queues.
        let take = if buf.is_null() { 0 } else { event.bytes.len() };
        if take > len {
            return Err(Errno::TOOSMALL);
        }
        // SAFETY: neither is NULL (`buf` only where `take` is 0): by this function's
        // contract `buf` has room for `len` bytes, of which `take` is no more, and `number` may be
        // written to. The event's bytes are in memory of our own.
        unsafe {
            core::ptr::copy_nonoverlapping(event.bytes.as_ptr(), buf.cast(), take);
            *number = event.number;
        }
        if !peek {
            state.events.pop_front();
        }
        Ok(take)
    }

    /// Takes the next event as [`Eq::next`] does, after a turn of the endpoints that are joining a group if there is
    /// none.
    ///
    /// # Safety
    /// As [`Eq::next`].
    unsafe fn read(
        &self,
        number: *mut u32,
        buf: *mut c_void,
        len: usize,
        peek: bool,
    ) -> Result<usize> {
        // SAFETY: `next` asks of `number` and `buf` what this function does, and leaves nothing of them behind, so that
        // it may be called twice.
        unsafe {
            match self.next(number, buf, len, peek) {
                Err(Errno::AGAIN) => {
                    self.drive();
                    self.next(number, buf, len, peek)
                }
                done => done,
            }
        }
    }

    /// Makes readers of the queue drive this endpoint until it has joined its group.
    pub(crate) fn await_join(&self, endpoint: Weak<dyn OpenEndpoint>) {
        self.joining.lock().push(Arc::new(endpoint));
    }

    /// Makes progress on the endpoints that are joining a group. Returns whether there are any.
    fn drive(&self) -> bool {
        let mut joined = self.joining.lock().clone();
        // The endpoints progress without the lock, because they report to this queue. The list stays complete meanwhile: a
        // thread that finds no endpoint in it would sleep without a timer.
        joined.retain(|endpoint| {
            !endpoint.upgrade().is_some_and(|endpoint| endpoint.progress_for_waiter())
        });
        let mut joining = self.joining.lock();
        // An endpoint may have been added again meanwhile, to join another group.
        joining.retain(|endpoint| !joined.iter().any(|done| Arc::ptr_eq(endpoint, done)));
        !joining.is_empty()
    }

    /// Takes the next error entry, or copies it with FI_PEEK. Returns the number of bytes written.
    ///
    /// # Safety
    /// `out` is NULL or points to an entry, aligned and open to writing, whose `err_data` and `err_data_size` are a
    /// buffer of the application's where its API version says so.
    unsafe fn read_error(&self, out: *mut ffi::fi_eq_err_entry, flags: u64) -> Result<usize> {
        if out.is_null() {
            return Err(Errno::INVAL);
        }
        let mut state = self.state.lock();
        let failure = state.failures.front().ok_or(Errno::AGAIN)?;
        // The numbers say everything, so there is no error data. A buffer of the application's is left alone
        // (fi_eq(3)); without a buffer the provider sets `err_data`.
        let buffers = self.fabric.api_version() >= version(1, 5);
        // SAFETY: not NULL, so by this function's contract all fields may be written to; those that are read are plain
        // numbers, whatever they hold.
        unsafe {
            (*out).fid = failure.fid;
            (*out).context = failure.context;
            (*out).data = failure.data;
            (*out).err = failure.errno.0;
            (*out).prov_errno = failure.errno.0;
            if !buffers || (*out).err_data_size == 0 {
                (*out).err_data = core::ptr::null_mut();
            }
            (*out).err_data_size = 0;
        }
        if flags & flags::PEEK == 0 {
            state.failures.pop_front();
        }
        Ok(size_of::<ffi::fi_eq_err_entry>())
    }

    /// Adds an event that the application writes (`fi_eq_write`). Returns its length in bytes.
    fn write(&self, number: u32, bytes: &[u8]) -> Result<usize> {
        if !self.writable {
            log::info!("fi_eq_write refused: the event queue was opened without FI_WRITE");
            return Err(Errno::INVAL);
        }
        self.push(|state| state.events.push_back(Event { number, bytes: bytes.to_vec() }));
        Ok(bytes.len())
    }

    /// Keeps a text until the next one is stored, and returns it as a C string.
    fn store_text(&self, text: &str) -> *const c_char {
        let mut state = self.state.lock();
        state.text = CString::new(text).unwrap_or_default();
        state.text.as_ptr()
    }
}

impl Waitable for Eq {
    fn waits(&self) -> &Waits {
        &self.waits
    }

    fn try_wait(&self, sleeper: Sleeper) -> Result<()> {
        self.waits.prepare(sleeper, |waiter| {
            let next_turn = self.drive().then(|| clock::now() + JOIN_TURN_INTERVAL);
            if let Some(waiter) = waiter {
                waiter.arm(next_turn);
            }
            let mut state = self.state.lock();
            if !state.events.is_empty() || !state.failures.is_empty() {
                return Err(Errno::AGAIN);
            }
            state.armed = true;
            Ok(())
        })
    }
}
