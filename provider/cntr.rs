//! Counters: how many operations of an endpoint succeeded, and how many failed.

mod watch;

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::RawFd;
use std::sync::Arc;

use parking_lot::Mutex;
use squall_base::Time;

use crate::backoff::Backoff;
use crate::boundary::{self, Out};
use crate::cq::doze;
use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::errno::{Errno, Result};
use crate::ffi;
use crate::flags::{self, class};
use crate::objects::{self, Cell, Hold, Object, Table, Users};
use crate::optional::triggered_work::{Waiting, Work};
use crate::wait::set::WaitSet;
use crate::wait::{self, Sleeper, Waitable, Waiter, Waits};
use watch::{Field, Processor, SLEEPER, WORK, Watch};

/// Both numbers, as somebody found them.
#[derive(Default)]
struct Pair {
    value: AtomicU64,
    errors: AtomicU64,
}

impl Pair {
    fn get(&self) -> (u64, u64) {
        (self.value.load(Ordering::Relaxed), self.errors.load(Ordering::Relaxed))
    }

    fn see(&self, now: (u64, u64)) {
        self.value.store(now.0, Ordering::Relaxed);
        self.errors.store(now.1, Ordering::Relaxed);
    }
}

/// `struct fid_cntr` and what is behind it.
#[repr(C)]
pub(crate) struct Cntr {
    fid: Cell<ffi::fid_cntr>,
    users: Users,
    domain: Hold<Domain>,
    /// The counter's two numbers, and the marks of the sleepers and the work that wait for a change.
    watch: Watch<Processor>,
    /// What the application has read of them last.
    seen: Pair,
    /// What fi_poll found last.
    polled: Pair,
    waits: Waits,
    /// What begins when it has reached a number.
    waiting: Waiting,
    /// Endpoints to drive; control path and reads only.
    endpoints: Mutex<Vec<Arc<Endpoint>>>,
    /// Those that were told that somebody sleeps until something of theirs comes.
    dozing: Mutex<Vec<Arc<Endpoint>>>,
    backoff: Backoff,
}

// SAFETY: `Cntr` is repr(C) and begins with the cell of a `fid_cntr`, which begins with a `fid`; `create`
// alone puts `FI_OPS` into one.
unsafe impl Object for Cntr {
    type Fid = ffi::fid_cntr;
    fn ops() -> &'static ffi::fi_ops {
        &FI_OPS.0
    }
    fn users(&self) -> &Users {
        &self.users
    }
}

static FI_OPS: Table<ffi::fi_ops> = Table(objects::fi_ops!(close: close, control: control));

static OPS: Table<ffi::fi_ops_cntr> = Table(ffi::fi_ops_cntr {
    size: size_of::<ffi::fi_ops_cntr>(),
    read: Some(read),
    readerr: Some(readerr),
    add: Some(add),
    set: Some(set),
    wait: Some(wait),
    adderr: Some(adderr),
    seterr: Some(seterr),
});

boundary::exports! {
    /// `fi_cntr_open`.
    pub(crate) status open(
        domain: *mut ffi::fid_domain,
        attr: *mut ffi::fi_cntr_attr,
        cntr: *mut *mut ffi::fid_cntr,
        context: *mut c_void,
    ) -> c_int => {
        let (place, attr) = (Out::new(cntr)?, attr.as_ref().ok_or(Errno::INVAL)?);
        if attr.flags & flags::PEER != 0 {
            log::info!("a counter with FI_PEER: of other providers, queues and receives alone are shared");
            return Err(Errno::INVAL);
        }
        let set = wait::set_of(attr.wait_obj, attr.wait_set)?;
        place.put(Cntr::create(objects::share(domain)?, attr, set, context)?)
    };

    status close(fid: *mut ffi::fid) -> c_int => {
        if let Some(cntr) = objects::retire::<Cntr, _>(fid)? {
            cntr.waits.leave();
        }
        Ok(())
    };

    status control(fid: *mut ffi::fid, command: c_int, arg: *mut c_void) -> c_int => {
        objects::get::<Cntr, _>(fid)?.waits.control(command, arg)
    };

    counter read(cntr: *mut ffi::fid_cntr) -> u64 => {
        let cntr = objects::get::<Cntr, _>(cntr)?;
        Ok(cntr.read(Field::Value, &cntr.seen.value))
    };

    counter readerr(cntr: *mut ffi::fid_cntr) -> u64 => {
        let cntr = objects::get::<Cntr, _>(cntr)?;
        Ok(cntr.read(Field::Errors, &cntr.seen.errors))
    };

    status add(cntr: *mut ffi::fid_cntr, value: u64) -> c_int => {
        let cntr = objects::get::<Cntr, _>(cntr)?;
        cntr.add(value);
        cntr.domain.work().run(None);
        Ok(())
    };

    status set(cntr: *mut ffi::fid_cntr, value: u64) -> c_int => {
        let cntr = objects::get::<Cntr, _>(cntr)?;
        cntr.set(value);
        cntr.domain.work().run(None);
        Ok(())
    };

    status adderr(cntr: *mut ffi::fid_cntr, value: u64) -> c_int => {
        let cntr = objects::get::<Cntr, _>(cntr)?;
        cntr.watch.add(Field::Errors, value);
        cntr.changed();
        cntr.domain.work().run(None);
        Ok(())
    };

    status seterr(cntr: *mut ffi::fid_cntr, value: u64) -> c_int => {
        let cntr = objects::get::<Cntr, _>(cntr)?;
        cntr.watch.set(Field::Errors, value);
        cntr.changed();
        cntr.domain.work().run(None);
        Ok(())
    };

    status wait(cntr: *mut ffi::fid_cntr, threshold: u64, timeout: c_int) -> c_int =>
        objects::get::<Cntr, _>(cntr)?.wait(threshold, timeout);
}

impl Cntr {
    /// Opens a counter.
    fn create(
        domain: Arc<Domain>,
        attr: &ffi::fi_cntr_attr,
        set: Option<Arc<WaitSet>>,
        context: *mut c_void,
    ) -> Result<*mut ffi::fid_cntr> {
        if attr.events != ffi::FI_CNTR_EVENTS_COMP {
            log::info!("counter events {} are not there, only completions", attr.events);
            return Err(Errno::NOSYS);
        }
        let opened = Arc::new(Self {
            fid: Cell::new(ffi::fid_cntr {
                fid: objects::fid(class::CNTR, context, &FI_OPS.0),
                ops: objects::table(&OPS),
            }),
            users: Users::default(),
            domain: Hold::new(domain),
            watch: Watch::new(),
            seen: Pair::default(),
            polled: Pair::default(),
            waits: Waits::open(attr.wait_obj, set)?,
            waiting: Waiting::default(),
            endpoints: Mutex::default(),
            dozing: Mutex::default(),
            backoff: Backoff::default(),
        });
        let weak = Arc::downgrade(&opened);
        opened.waits.join(weak)?;
        Ok(objects::publish(opened))
    }

    /// An operation ended.
    #[inline]
    pub(crate) fn count(&self, success: bool) {
        self.watch.add(if success { Field::Value } else { Field::Errors }, 1);
        self.changed();
    }

    /// As [`crate::cq::Cq::wake`].
    pub(crate) fn wake(&self) {
        self.waits.signal();
    }

    fn changed(&self) {
        self.backoff.wake();
        let marks = self.watch.marks();
        if marks != 0 {
            self.changed_for_others(marks);
        }
    }

    /// Wakes sleepers, and passes on the work that is due. It begins outside of the endpoint lock under which this may be called.
    #[cold]
    fn changed_for_others(&self, marks: u8) {
        if marks & SLEEPER != 0 && self.watch.wake() {
            self.waits.signal();
        }
        if marks & WORK != 0 {
            self.pass_on();
        }
    }

    fn pass_on(&self) {
        let due = self.waiting.due(|take| self.watch.look(take));
        if !due.is_empty() {
            self.domain.push_work(due);
        }
    }

    /// Work, the `number`-th of the domain, that waits for it from now on.
    pub(crate) fn submit(&self, number: u64, work: Work) {
        self.waiting.add(number, work, || self.watch.work_waits());
        // What has been counted before has looked for work before.
        self.pass_on();
    }

    /// The work that waits for it.
    pub(crate) fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    /// Whether it was opened on this domain.
    pub(crate) fn belongs_to(&self, domain: &Domain) -> bool {
        core::ptr::eq(&raw const **self.domain, domain)
    }

    /// fi_cntr_add.
    pub(crate) fn add(&self, value: u64) {
        self.watch.add(Field::Value, value);
        self.polled.see(self.snapshot());
        self.changed();
    }

    /// fi_cntr_set.
    pub(crate) fn set(&self, value: u64) {
        self.watch.set(Field::Value, value);
        self.polled.see(self.snapshot());
        self.changed();
    }

    /// From now on reading drives this endpoint.
    pub(crate) fn attach(&self, endpoint: &Arc<Endpoint>, sockets: &[RawFd]) -> Result<()> {
        if let (Some(waiter), None) = (self.waits.waiter(), self.domain.progress()) {
            for fd in sockets {
                waiter.add(*fd)?;
            }
        }
        self.backoff.add_sockets(sockets);
        let mut endpoints = self.endpoints.lock();
        if !endpoints.iter().any(|e| Arc::ptr_eq(e, endpoint)) {
            endpoints.push(Arc::clone(endpoint));
        }
        drop(endpoints);
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
        self.endpoints.lock().retain(|e| !core::ptr::eq(Arc::as_ptr(e), endpoint));
        self.dozing.lock().retain(|e| !core::ptr::eq(Arc::as_ptr(e), endpoint));
    }

    /// Drives every endpoint once. Whether anything happened.
    pub(crate) fn progress(&self) -> bool {
        let dozing = core::mem::take(&mut *self.dozing.lock());
        dozing.iter().for_each(|endpoint| endpoint.woke());
        let (mut i, mut busy) = (0, false);
        loop {
            let endpoint = self.endpoints.lock().get(i).cloned();
            let Some(endpoint) = endpoint else { return busy };
            busy |= endpoint.progress();
            i += 1;
        }
    }

    /// As [`crate::cq::Cq::poll`], for somebody who found `before`.
    fn poll(&self, before: (u64, u64)) {
        if self.progress() {
            self.backoff.on_busy();
        } else {
            let is_unchanged = || self.doze(true) && before == self.snapshot();
            self.backoff.on_idle(|| self.next_timeout(), is_unchanged);
        }
    }

    /// As [`crate::cq::Cq::doze`].
    fn doze(&self, driven: bool) -> bool {
        let endpoints = self.endpoints.lock().clone();
        let (dozing, quiet) = doze(&endpoints, driven);
        self.dozing.lock().extend(dozing);
        quiet
    }

    /// When one of the endpoints needs a turn by itself.
    fn next_timeout(&self) -> Option<Time> {
        let endpoints = self.endpoints.lock().clone();
        endpoints.iter().filter_map(|e| e.next_timeout()).min()
    }

    /// Returns the earliest timer of the endpoints, for a thread that is about to sleep until then.
    fn next_timeout_of_sleeper(&self) -> Option<Time> {
        let endpoints = self.endpoints.lock().clone();
        endpoints.iter().filter_map(|e| e.next_timeout_of_sleeper()).min()
    }

    /// Makes sure that the next change of what somebody found wakes the waiter.
    ///
    /// # Errors
    /// `FI_EAGAIN` when it has changed, `FI_ENOSYS` without a wait object.
    fn arm(&self, found: (u64, u64), sleeper: Sleeper) -> Result<()> {
        self.waits.prepare(sleeper, |waiter| self.look(waiter, found))
    }

    /// Makes progress, and returns an error if a number has changed. Otherwise the next change wakes the sleeper.
    fn look(&self, waiter: Option<&Waiter>, found: (u64, u64)) -> Result<()> {
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
                self.endpoints.lock().iter().for_each(|ep| ep.leave());
                progress.take_over();
            }
        }
        self.watch.sleep();
        if found == self.snapshot() { Ok(()) } else { Err(Errno::AGAIN) }
    }

    /// fi_poll: whether it has changed since the application set it, or was told so last.
    pub(crate) fn news(&self) -> bool {
        let now = self.snapshot();
        let news = now != self.polled.get();
        self.polled.see(now);
        news
    }

    /// The application's context.
    pub(crate) fn context(&self) -> *mut c_void {
        // SAFETY: the cell holds an initialised `fid_cntr`, whose context is the application's: it alone may
        // change it, and not during a call with the object.
        unsafe { (*self.fid.get()).fid.context }
    }

    fn snapshot(&self) -> (u64, u64) {
        self.watch.numbers()
    }

    /// One of the two numbers, after a turn of progress.
    fn read(&self, which: Field, seen: &AtomicU64) -> u64 {
        self.poll(self.snapshot());
        let now = self.watch.get(which);
        seen.store(now, Ordering::Relaxed);
        now
    }

    /// Waits until the value reaches the threshold.
    ///
    /// # Errors
    /// `FI_EAVAIL` when an error is counted, `FI_ETIMEDOUT` when time is up.
    fn wait(&self, threshold: u64, timeout: c_int) -> Result<()> {
        let errors = self.watch.get(Field::Errors);
        let found = core::cell::Cell::new((0, 0));
        let check = || {
            self.progress();
            let now = self.snapshot();
            found.set(now);
            if now.0 >= threshold {
                self.seen.value.store(now.0, Ordering::Relaxed);
                return Some(Ok(()));
            }
            (now.1 != errors).then_some(Err(Errno::AVAIL))
        };
        let prepare = || self.arm(found.get(), Sleeper::Guest).is_ok();
        match wait::until(wait::deadline(timeout), self.waits.waiter(), check, prepare) {
            Ok(answer) => answer,
            Err(Errno::AGAIN) => Err(Errno::TIMEDOUT),
            Err(other) => Err(other),
        }
    }
}

impl Waitable for Cntr {
    fn waits(&self) -> &Waits {
        &self.waits
    }

    /// A change that the application has not read is a reason not to sleep, whoever found it.
    fn try_wait(&self, sleeper: Sleeper) -> Result<()> {
        self.arm(self.seen.get(), sleeper)
    }
}
