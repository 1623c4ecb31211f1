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

use squall_base::Time;

use crate::backoff::Backoff;
use crate::boundary::{self, Out};
use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::endpoint_lock::EndpointLock;
use crate::errno::{Errno, Result};
use crate::fault;
use crate::ffi;
use crate::flags::{self, class};
use crate::objects::{self, Cell, Hold, Object, Table, Users};
use crate::optional::peer_provider::OwnerCq;
use crate::wait::set::WaitSet;
use crate::wait::{self, Sleeper, Waitable, Waiter, Waits};
use entry::ErrorLayout;
pub(crate) use entry::{Entry, ErrorEntry, Format};

/// What changes.
struct State {
    entries: VecDeque<Entry>,
    failures: VecDeque<ErrorEntry>,
    /// Entries taken out so far; a failure's position counts in the same way.
    taken: u64,
    /// Endpoints to drive when the queue is empty.
    endpoints: Vec<Arc<Endpoint>>,
    /// Those that were told that somebody sleeps until something of theirs comes.
    dozing: Vec<Arc<Endpoint>>,
    /// Somebody sleeps, or polls the descriptor.
    armed: bool,
    /// How often fi_cq_signal was called, and how often it had been when somebody woke up for it last.
    signals: u64,
    answered: u64,
    /// The text of the failure that was read last. If the application passed no buffer, `err_data` points to it until
    /// the next failure is read.
    read_text: CString,
    /// `prov_errno` of that failure.
    read_code: c_int,
    /// The text that fi_cq_strerror returned last without a buffer. It is separate from `read_text`, which only a read
    /// may replace.
    shown_text: CString,
}

/// `struct fid_cq` and what is behind it.
#[repr(C)]
pub(crate) struct Cq {
    fid: Cell<ffi::fid_cq>,
    users: Users,
    domain: Hold<Domain>,
    format: Format,
    waits: Waits,
    /// The layout of the application's `fi_cq_err_entry`.
    error_layout: ErrorLayout,
    backoff: Backoff,
    state: EndpointLock<State>,
    /// Completions are another provider's to keep (FI_PEER).
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

static OPS: Table<ffi::fi_ops_cq> = Table(ffi::fi_ops_cq {
    size: size_of::<ffi::fi_ops_cq>(),
    read: Some(read::read),
    readfrom: Some(read::readfrom),
    readerr: Some(read::readerr),
    sread: Some(read::sread),
    sreadfrom: Some(read::sreadfrom),
    signal: Some(signal),
    strerror: Some(strerror),
});

boundary::exports! {
    /// `fi_cq_open`.
    pub(crate) status open(
        domain: *mut ffi::fid_domain,
        attr: *mut ffi::fi_cq_attr,
        cq: *mut *mut ffi::fid_cq,
        context: *mut c_void,
    ) -> c_int => {
        let (place, attr) = (Out::new(cq)?, attr.as_ref().ok_or(Errno::INVAL)?);
        if attr.flags & flags::PEER != 0 {
            let owner = OwnerCq::new(context)?;
            return place.put(Cq::import(objects::share(domain)?, owner)?);
        }
        let set = wait::set_of(attr.wait_obj, attr.wait_set)?;
        place.put(Cq::create(objects::share(domain)?, attr, set, context, None)?)
    };

    status close(fid: *mut ffi::fid) -> c_int => {
        if let Some(cq) = objects::retire::<Cq, _>(fid)? {
            cq.waits.leave();
        }
        Ok(())
    };

    status control(fid: *mut ffi::fid, command: c_int, arg: *mut c_void) -> c_int => {
        objects::get::<Cq, _>(fid)?.waits.control(command, arg)
    };

    status signal(cq: *mut ffi::fid_cq) -> c_int => objects::get::<Cq, _>(cq)?.signal();

    /// The sentence behind a `prov_errno`. `err_data` is never followed: applications pass what happened
    /// to be in their entry.
    string strerror(
        cq: *mut ffi::fid_cq,
        prov_errno: c_int,
        _err_data: *const c_void,
        buf: *mut c_char,
        len: usize,
    ) -> *const c_char => Ok(objects::get::<Cq, _>(cq)?.strerror(prov_errno, buf, len));
}

impl Cq {
    /// Opens a queue.
    fn create(
        domain: Arc<Domain>,
        attr: &ffi::fi_cq_attr,
        set: Option<Arc<WaitSet>>,
        context: *mut c_void,
        peer_owner: Option<OwnerCq>,
    ) -> Result<*mut ffi::fid_cq> {
        if attr.wait_cond != ffi::FI_CQ_COND_NONE && attr.wait_obj == ffi::FI_WAIT_NONE {
            log::info!("a wait condition without a wait object");
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
            backoff: Backoff::default(),
            state: EndpointLock::new(
                domain.locks(),
                State {
                    entries: VecDeque::with_capacity(capacity),
                    failures: VecDeque::new(),
                    taken: 0,
                    endpoints: Vec::new(),
                    dozing: Vec::new(),
                    armed: false,
                    signals: 0,
                    answered: 0,
                    read_text: CString::default(),
                    read_code: 0,
                    shown_text: CString::default(),
                },
            ),
            domain: Hold::new(domain),
        });
        let weak = Arc::downgrade(&opened);
        opened.waits.join(weak)?;
        Ok(objects::publish(opened))
    }

    /// Our side of another provider's queue: what ends goes there, and reading only makes progress.
    fn import(domain: Arc<Domain>, owner: OwnerCq) -> Result<*mut ffi::fid_cq> {
        let attr = ffi::fi_cq_attr {
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

    /// Adds a completion.
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
        drop(state);
        self.backoff.wake();
    }

    /// Adds a failure, behind the completions so far.
    pub(crate) fn fail(&self, mut failure: ErrorEntry) {
        if let Some(owner) = &self.peer_owner {
            return owner.write_error(&failure);
        }
        let mut state = self.state.lock();
        failure.position = state.taken + state.entries.len() as u64;
        state.failures.push_back(failure);
        if state.armed {
            self.wake_armed(&mut state);
        }
        drop(state);
        self.backoff.wake();
    }

    /// Wakes sleepers that watch the sockets, after background progress took packets from those.
    pub(crate) fn wake(&self) {
        self.waits.signal();
    }

    fn wake_armed(&self, state: &mut State) {
        state.armed = false;
        self.waits.signal();
    }

    /// From now on reading drives this endpoint, and waiting watches its sockets unless a thread
    /// does.
    pub(crate) fn attach(&self, endpoint: &Arc<Endpoint>, sockets: &[RawFd]) -> Result<()> {
        if let (Some(waiter), None) = (self.waits.waiter(), self.domain.progress()) {
            for fd in sockets {
                waiter.add(*fd)?;
            }
        }
        self.backoff.add_sockets(sockets);
        let mut state = self.state.lock();
        if !state.endpoints.iter().any(|e| Arc::ptr_eq(e, endpoint)) {
            state.endpoints.push(Arc::clone(endpoint));
        }
        drop(state);
        // A sleeper under manual progress does not learn of its endpoints' timers by itself.
        self.waits.signal();
        Ok(())
    }

    /// The endpoint closes.
    pub(crate) fn detach(&self, endpoint: &Endpoint, sockets: &[RawFd]) {
        if let Some(waiter) = self.waits.waiter() {
            for fd in sockets {
                waiter.remove(*fd);
            }
        }
        self.backoff.remove_sockets(sockets);
        let mut state = self.state.lock();
        state.endpoints.retain(|e| !core::ptr::eq(Arc::as_ptr(e), endpoint));
        state.dozing.retain(|e| !core::ptr::eq(Arc::as_ptr(e), endpoint));
    }

    /// Drives every endpoint once. Not called under the queue's lock: endpoints push here. Whether anything happened.
    pub(crate) fn progress(&self) -> bool {
        let dozing = core::mem::take(&mut self.state.lock().dozing);
        dozing.iter().for_each(|endpoint| endpoint.woke());
        let (mut i, mut busy) = (0, false);
        loop {
            // One endpoint per queue is the common case: one clone, one turn.
            let (endpoint, last) = {
                let state = self.state.lock();
                let Some(endpoint) = state.endpoints.get(i) else { return busy };
                (Arc::clone(endpoint), i + 1 == state.endpoints.len())
            };
            busy |= endpoint.progress();
            if last {
                return busy;
            }
            i += 1;
        }
    }

    /// Drives every endpoint once for somebody who polls; when nothing happens, that one rests as is fit.
    #[inline]
    fn poll(&self) {
        if self.progress() {
            self.backoff.on_busy();
        } else {
            let is_empty = || self.doze(true) && self.state.lock().is_empty();
            self.backoff.on_idle(|| self.next_timeout(), is_empty);
        }
    }

    /// fi_poll: whether there is something to read.
    pub(crate) fn news(&self) -> bool {
        !self.state.lock().is_empty()
    }

    /// The application's context.
    pub(crate) fn context(&self) -> *mut c_void {
        // SAFETY: the cell holds an initialised `fid_cq`, whose context is the application's: it alone may
        // change it, and not during a call with the object.
        unsafe { (*self.fid.get()).fid.context }
    }

    /// When one of the endpoints needs a turn by itself.
    fn next_timeout(&self) -> Option<Time> {
        let endpoints: Vec<Arc<Endpoint>> = self.state.lock().endpoints.clone();
        endpoints.iter().filter_map(|e| e.next_timeout()).min()
    }

    /// Returns the earliest timer of the endpoints, for a thread that is about to sleep until then.
    fn next_timeout_of_sleeper(&self) -> Option<Time> {
        let endpoints: Vec<Arc<Endpoint>> = self.state.lock().endpoints.clone();
        endpoints.iter().filter_map(|e| e.next_timeout_of_sleeper()).min()
    }

    /// Whether nothing waits that peers on this host have left; from now on they wake the waiter. Of an endpoint that
    /// another thread drives, `driven` is believed.
    fn doze(&self, driven: bool) -> bool {
        let endpoints: Vec<Arc<Endpoint>> = self.state.lock().endpoints.clone();
        let (dozing, quiet) = doze(&endpoints, driven);
        self.state.lock().dozing.extend(dozing);
        quiet
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
        self.waits.prepare(sleeper, |waiter| self.look(waiter, answered))
    }

    /// Makes progress, and returns an error if the queue has an entry. Otherwise the next entry or signal wakes the
    /// sleeper.
    fn look(&self, waiter: Option<&Waiter>, answered: Option<u64>) -> Result<()> {
        self.progress();
        match self.domain.progress() {
            None => {
                if let Some(waiter) = waiter {
                    waiter.arm(self.next_timeout_of_sleeper());
                }
                if !self.doze(false) {
                    return Err(Errno::AGAIN);
                }
            }
            Some(progress) => {
                self.state.lock().endpoints.iter().for_each(|ep| ep.leave());
                progress.take_over();
            }
        }
        let mut state = self.state.lock();
        let signals = state.signals;
        let answered = answered.unwrap_or_else(|| core::mem::replace(&mut state.answered, signals));
        if !state.is_empty() || signals != answered {
            return Err(Errno::AGAIN);
        }
        state.armed = true;
        Ok(())
    }
}

/// Those of `endpoints` whose peers on this host wake a sleeper from now on, and whether nothing of theirs is there. Of one
/// that another thread drives, `driven` is believed.
pub(crate) fn doze(endpoints: &[Arc<Endpoint>], driven: bool) -> (Vec<Arc<Endpoint>>, bool) {
    let mut dozing = Vec::new();
    for endpoint in endpoints {
        match endpoint.doze() {
            Some(true) => dozing.push(Arc::clone(endpoint)),
            None if driven => {}
            _ => return (dozing, false),
        }
    }
    (dozing, true)
}

impl Cq {
    /// Wakes whoever waits for a completion, without one.
    fn signal(&self) -> Result<()> {
        self.waits.prepared()?;
        let mut state = self.state.lock();
        state.signals += 1;
        state.armed = false;
        self.waits.signal();
        Ok(())
    }

    /// The sentence behind a `prov_errno`: with peer and cause if it is the failure read last, else the
    /// table's. In `buf`, or without one in the queue, where it stays until the next is asked for.
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
