//! Completion queues.
//!
//! A queue is a ring that grows: its size hint is no bound on operations in flight (FI_RM_ENABLED,
//! and Open MPI opens queues of 100, Intel MPI of 0). Errors wait in their own ring and come up at
//! the position where they happened.

mod entry;
mod read;

use core::ffi::{c_char, c_int, c_void};
use std::collections::VecDeque;
use std::ffi::CString;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::abi::boundary::{self, Out};
use crate::abi::compat::{CqAttr, OpsCq, no_export_xpu};
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::abi::flags::{self, class};
use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::objects::{self, Cell, Object, ObjectRef, Table, Users};
use crate::optional::peer_provider::OwnerCq;
use crate::queues::endpoint_driver::EndpointDriver;
use crate::reports::fault;
use crate::waiting::endpoint_lock::EndpointLock;
use crate::waiting::set::WaitSet;
use crate::waiting::{self, Sleeper, Waitable, Waiter, Waits};
use entry::ErrorLayout;
pub(crate) use entry::{Entry, ErrorEntry, Format};

/// The entries of a completion queue, and the state of its readers.
struct State {
    entries: VecDeque<Entry>,
    failures: VecDeque<ErrorEntry>,
    /// Number of entries that were read so far; the position of an error counts in the same way.
    taken: u64,
    /// A thread of the application sleeps on the queue, or polls its descriptor.
    armed: bool,
    /// The number of fi_cq_signal calls, and that number when a thread last woke up for one.
    signals: u64,
    answered: u64,
    /// The text of the failure that was read last. If the application passed no buffer, `err_data` points to it until
    /// the next failure is read.
    read_text: CString,
    /// Provider error code (`prov_errno`) of the failure that was read last.
    read_code: c_int,
    /// The text that fi_cq_strerror returned last without a buffer. It is separate from `read_text`, which only a read
    /// may replace.
    shown_text: CString,
}

/// A completion queue: `struct fid_cq` and the provider's state behind it.
#[repr(C)]
pub(crate) struct Cq {
    fid: Cell<ffi::fid_cq>,
    users: Users,
    domain: ObjectRef<Domain>,
    format: Format,
    waits: Waits,
    /// The layout of the application's structure `fi_cq_err_entry`.
    error_layout: ErrorLayout,
    driver: EndpointDriver,
    state: EndpointLock<State>,
    /// The completion queue of another provider, into which completions go instead (FI_PEER).
    peer_owner: Option<OwnerCq>,
}

// SAFETY: `Cq` is repr(C) and begins with the cell of a `fid_cq`, which begins with a `fid`; `create`
// alone puts `FI_OPS` into one.
unsafe impl Object for Cq {
    type Fid = ffi::fid_cq;
    fn ops() -> &'static ffi::fi_ops {
        &FI_OPS.0
    }
    fn users(&self) -> &Users {
        &self.users
    }
}

static FI_OPS: Table<ffi::fi_ops> = Table(objects::fi_ops!(close: close, control: control));

static OPS: Table<OpsCq> = Table(OpsCq {
    size: size_of::<OpsCq>(),
    read: read::read,
    readfrom: read::readfrom,
    readerr: read::readerr,
    sread: read::sread,
    sreadfrom: read::sreadfrom,
    signal,
    strerror,
    export_xpu: no_export_xpu,
});

boundary::exports! {
    /// Opens a completion queue: `fi_cq_open`.
    pub(crate) status open(
        domain: *mut ffi::fid_domain,
        attr: *mut CqAttr,
        cq: *mut *mut ffi::fid_cq,
        context: *mut c_void,
    ) -> c_int => {
        let (place, attr) = (Out::new(cq)?, attr.as_ref().ok_or(Errno::INVAL)?);
        if attr.flags & flags::PEER != 0 {
            let owner = OwnerCq::new(context)?;
            return place.write(Cq::import(objects::share(domain)?, owner)?);
        }
        if attr.flags & !flags::AFFINITY != 0 {
            log::info!(
                "completion queue refused: of the flags {:#x} only FI_AFFINITY and FI_PEER are known",
                attr.flags
            );
            return Err(Errno::INVAL);
        }
        let set = waiting::set_of(attr.wait_obj, attr.wait_set)?;
        place.write(Cq::create(objects::share(domain)?, attr, set, context, None)?)
    };

    status close(fid: *mut ffi::fid) -> c_int => {
        if let Some(cq) = objects::retire::<Cq, _>(fid)? {
            cq.waits.leave_set();
        }
        Ok(())
    };

    status control(fid: *mut ffi::fid, command: c_int, arg: *mut c_void) -> c_int => {
        objects::get::<Cq, _>(fid)?.waits.control(command, arg)
    };

    status signal(cq: *mut ffi::fid_cq) -> c_int => objects::get::<Cq, _>(cq)?.signal();

    /// Returns the sentence for a `prov_errno`: `fi_cq_strerror`. `err_data` is not read, because applications pass
    /// uninitialised entries.
    string strerror(
        cq: *mut ffi::fid_cq,
        prov_errno: c_int,
        _err_data: *const c_void,
        buf: *mut c_char,
        len: usize,
    ) -> *const c_char => Ok(objects::get::<Cq, _>(cq)?.strerror(prov_errno, buf, len));
}

impl Cq {
    /// Creates a completion queue for `fi_cq_open`.
    fn create(
        domain: Arc<Domain>,
        attr: &CqAttr,
        set: Option<Arc<WaitSet>>,
        context: *mut c_void,
        peer_owner: Option<OwnerCq>,
    ) -> Result<*mut ffi::fid_cq> {
        if attr.wait_cond != ffi::FI_CQ_COND_NONE && attr.wait_obj == ffi::FI_WAIT_NONE {
            log::info!(
                "completion queue refused: wait_cond needs a wait_obj other than FI_WAIT_NONE"
            );
            return Err(Errno::INVAL);
        }
        let capacity = attr.size.clamp(256, 65_536);
        let opened = Arc::new(Self {
            fid: Cell::new(ffi::fid_cq {
                fid: objects::fid(class::CQ, context, &FI_OPS.0),
                ops: objects::table(&OPS),
            }),
            users: Users::default(),
            peer_owner,
            format: Format::from_attr(attr.format)?,
            waits: Waits::open(attr.wait_obj, set)?,
            error_layout: ErrorLayout::of(domain.api_version()),
            driver: EndpointDriver::new(domain.needs_locks()),
            state: EndpointLock::new(
                domain.needs_locks(),
                State {
                    entries: VecDeque::with_capacity(capacity),
                    failures: VecDeque::new(),
                    taken: 0,
                    armed: false,
                    signals: 0,
                    answered: 0,
                    read_text: CString::default(),
                    read_code: 0,
                    shown_text: CString::default(),
                },
            ),
            domain: ObjectRef::new(domain),
        });
        let weak = Arc::downgrade(&opened);
        opened.waits.join_set(weak)?;
        Ok(objects::publish(opened))
    }

    /// Creates a queue whose completions go to another provider's queue, and whose reading only makes progress.
    fn import(domain: Arc<Domain>, owner: OwnerCq) -> Result<*mut ffi::fid_cq> {
        let attr = CqAttr {
            size: 0,
            flags: 0,
            format: ffi::FI_CQ_FORMAT_TAGGED,
            wait_obj: ffi::FI_WAIT_NONE,
            signaling_vector: 0,
            wait_cond: ffi::FI_CQ_COND_NONE,
            wait_set: core::ptr::null_mut(),
        };
        // The context that it came with was for this call alone.
        Self::create(domain, &attr, None, core::ptr::null_mut(), Some(owner))
    }

    /// Adds a completion to the queue.
    #[inline]
    pub(crate) fn push(&self, entry: Entry) {
        if let Some(owner) = &self.peer_owner {
            return owner.write(&entry);
        }
        let mut state = self.state.lock();
        state.entries.push_back(entry);
        if state.armed {
            self.wake_armed(&mut state);
        }
    }

    /// Adds an error entry to the queue, behind the completions so far.
    pub(crate) fn push_error(&self, mut failure: ErrorEntry) {
        if let Some(owner) = &self.peer_owner {
            return owner.write_error(&failure);
        }
        let mut state = self.state.lock();
        failure.position = state.taken + state.entries.len() as u64;
        state.failures.push_back(failure);
        if state.armed {
            self.wake_armed(&mut state);
        }
    }

    /// Wakes sleepers that watch the sockets, after background progress took packets from those.
    pub(crate) fn wake(&self) {
        self.waits.signal();
    }

    fn wake_armed(&self, state: &mut State) {
        state.armed = false;
        self.waits.signal();
    }

    /// Attaches an endpoint, on which reading the queue makes progress from now on.
    pub(crate) fn attach(&self, endpoint: &Arc<Endpoint>, sockets: &[RawFd]) -> Result<()> {
        self.driver.attach(&self.domain, &self.waits, endpoint, sockets)
    }

    /// Detaches an endpoint, which closes, from the queue.
    pub(crate) fn detach(&self, endpoint: &Endpoint, sockets: &[RawFd]) {
        self.driver.detach(&self.waits, endpoint, sockets);
    }

    /// Makes progress on every attached endpoint once. Returns whether anything happened.
    pub(crate) fn progress(&self) -> bool {
        self.driver.progress()
    }

    /// Makes progress on every endpoint for a thread that polls. The thread backs off when nothing happens.
    #[inline]
    fn poll(&self) {
        self.driver.poll(|| self.state.lock().is_empty());
    }

    /// Returns whether there is something to read from the queue, for fi_poll.
    pub(crate) fn is_ready(&self) -> bool {
        !self.state.lock().is_empty()
    }

    /// Returns the application's context of the queue.
    pub(crate) fn context(&self) -> *mut c_void {
        // SAFETY: the cell holds an initialised `fid_cq`, whose context is the application's: it alone may
        // change it, and not during a call with the object.
        unsafe { (*self.fid.get()).fid.context }
    }
}

impl Waitable for Cq {
    fn waits(&self) -> &Waits {
        &self.waits
    }

    fn try_wait(&self, sleeper: Sleeper) -> Result<()> {
        self.prepare(sleeper, None)
    }
}

impl Cq {
    /// Prepares a sleep as [`Waitable::try_wait`] does. A thread in a waiting call passes in `answered` how many
    /// fi_cq_signal calls it has seen, so each such thread sees every signal. Without `answered`, each signal is
    /// reported to one caller, once.
    fn prepare(&self, sleeper: Sleeper, answered: Option<u64>) -> Result<()> {
        self.waits.prepare(sleeper, |waiter| self.check_before_sleep(waiter, answered))
    }

    /// Makes progress, and returns an error if the queue has an entry. Otherwise the next entry or signal wakes the
    /// sleeper.
    fn check_before_sleep(&self, waiter: Option<&Waiter>, answered: Option<u64>) -> Result<()> {
        self.driver.prepare(&self.domain, waiter)?;
        let mut state = self.state.lock();
        let signals = state.signals;
        let answered = answered.unwrap_or_else(|| core::mem::replace(&mut state.answered, signals));
        if !state.is_empty() || signals != answered {
            return Err(Errno::AGAIN);
        }
        state.armed = true;
        Ok(())
    }

    /// Wakes a thread that waits for a completion, although there is none: `fi_cq_signal`.
    fn signal(&self) -> Result<()> {
        self.waits.sleeping_waiter()?;
        let mut state = self.state.lock();
        state.signals += 1;
        state.armed = false;
        self.waits.signal();
        Ok(())
    }

    /// Returns the sentence for a `prov_errno`: with peer and cause if it is the failure that was read last, and
    /// otherwise the sentence of the table of errors. It is written to `buf`, or kept in the queue until the next call.
    ///
    /// # Safety
    /// `buf` is NULL or has room for `len` bytes.
    unsafe fn strerror(&self, prov_errno: c_int, buf: *mut c_char, len: usize) -> *const c_char {
        let mut state = self.state.lock();
        let text = if state.read_code != prov_errno || state.read_text.is_empty() {
            fault::row(prov_errno).map_or_else(
                || std::io::Error::from_raw_os_error(prov_errno).to_string(),
                |row| format!("{}: {}", row.name, row.text),
            )
        } else {
            state.read_text.to_string_lossy().into_owned()
        };
        if buf.is_null() || len == 0 {
            state.shown_text = CString::new(text).unwrap_or_default();
            return state.shown_text.as_ptr();
        }
        // SAFETY: `buf` is not NULL, so it has room for `len` bytes by this function's contract.
        unsafe { boundary::copy_text(&text, buf, len) };
        buf.cast_const()
    }
}
