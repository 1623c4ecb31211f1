//! Counters: how many operations of an endpoint succeeded, and how many failed.

mod watch;

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::abi::boundary::{self, Out};
use crate::abi::compat::{CntrAttr, OpsCntr, no_export_xpu};
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::abi::flags::{self, class};
use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::objects::{self, Cell, Object, ObjectRef, Table, Users};
use crate::optional::triggered_work::{WaitingWork, Work};
use crate::queues::endpoint_driver::EndpointDriver;
use crate::waiting::set::WaitSet;
use crate::waiting::{self, Sleeper, Waitable, Waiter, Waits};
use watch::{Field, Processor, SLEEPER, WORK, Watch};

/// A counter's number of successes and number of errors, as a reader last found them.
#[derive(Default)]
struct CounterPair {
    value: AtomicU64,
    errors: AtomicU64,
}

impl CounterPair {
    fn get(&self) -> (u64, u64) {
        (self.value.load(Ordering::Relaxed), self.errors.load(Ordering::Relaxed))
    }

    fn store(&self, now: (u64, u64)) {
        self.value.store(now.0, Ordering::Relaxed);
        self.errors.store(now.1, Ordering::Relaxed);
    }
}

/// A counter: `struct fid_cntr` and the provider's state behind it.
#[repr(C)]
pub(crate) struct Cntr {
    fid: Cell<ffi::fid_cntr>,
    users: Users,
    domain: ObjectRef<Domain>,
    /// The counter's two numbers, and the marks of the sleepers and the work that wait for a change.
    watch: Watch<Processor>,
    /// The numbers that the application read last, of successes and of errors.
    seen: CounterPair,
    /// The numbers that fi_poll found last, changed like the counter's when the application changes those.
    polled: CounterPair,
    waits: Waits,
    /// Work that begins when the counter has reached a number.
    waiting: WaitingWork,
    driver: EndpointDriver,
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

static OPS: Table<OpsCntr> = Table(OpsCntr {
    size: size_of::<OpsCntr>(),
    read,
    readerr,
    add,
    set,
    wait,
    adderr,
    seterr,
    export_xpu: no_export_xpu,
});

boundary::exports! {
    /// Opens a counter: `fi_cntr_open`.
    pub(crate) status open(
        domain: *mut ffi::fid_domain,
        attr: *mut CntrAttr,
        cntr: *mut *mut ffi::fid_cntr,
        context: *mut c_void,
    ) -> c_int => {
        let (place, attr) = (Out::new(cntr)?, attr.as_ref().ok_or(Errno::INVAL)?);
        if attr.flags & flags::PEER != 0 {
            log::info!("FI_PEER counter refused: only completion queues and receive contexts can be shared");
            return Err(Errno::INVAL);
        }
        if attr.flags != 0 {
            log::info!("counter refused: flags {:#x} are unknown; set them to 0", attr.flags);
            return Err(Errno::INVAL);
        }
        let set = waiting::set_of(attr.wait_obj, attr.wait_set)?;
        place.write(Cntr::create(objects::share(domain)?, attr, set, context)?)
    };

    status close(fid: *mut ffi::fid) -> c_int => {
        if let Some(cntr) = objects::retire::<Cntr, _>(fid)? {
            cntr.waits.leave_set();
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
        cntr.notify_change();
        cntr.domain.work().run(None);
        Ok(())
    };

    status seterr(cntr: *mut ffi::fid_cntr, value: u64) -> c_int => {
        let cntr = objects::get::<Cntr, _>(cntr)?;
        cntr.watch.set(Field::Errors, value);
        cntr.notify_change();
        cntr.domain.work().run(None);
        Ok(())
    };

    status wait(cntr: *mut ffi::fid_cntr, threshold: u64, timeout: c_int) -> c_int =>
        objects::get::<Cntr, _>(cntr)?.wait(threshold, timeout);
}

impl Cntr {
    /// Creates a counter for `fi_cntr_open`.
    fn create(
        domain: Arc<Domain>,
        attr: &CntrAttr,
        set: Option<Arc<WaitSet>>,
        context: *mut c_void,
    ) -> Result<*mut ffi::fid_cntr> {
        if attr.events != ffi::FI_CNTR_EVENTS_COMP {
            log::info!(
                "counter events {} refused: only FI_CNTR_EVENTS_COMP is supported",
                attr.events
            );
            return Err(Errno::NOSYS);
        }
        let opened = Arc::new(Self {
            fid: Cell::new(ffi::fid_cntr {
                fid: objects::fid(class::CNTR, context, &FI_OPS.0),
                ops: objects::table(&OPS),
            }),
            users: Users::default(),
            domain: ObjectRef::new(domain),
            watch: Watch::new(),
            seen: CounterPair::default(),
            polled: CounterPair::default(),
            waits: Waits::open(attr.wait_obj, set)?,
            waiting: WaitingWork::default(),
            driver: EndpointDriver::new(true),
        });
        let weak = Arc::downgrade(&opened);
        opened.waits.join_set(weak)?;
        Ok(objects::publish(opened))
    }

    /// Counts the end of an operation, as a success or as an error.
    #[inline]
    pub(crate) fn count(&self, success: bool) {
        self.watch.add(if success { Field::Value } else { Field::Errors }, 1);
        self.notify_change();
    }

    /// Wakes the threads that wait for the counter, as [`crate::queues::cq::Cq::wake`] does for a queue.
    pub(crate) fn wake(&self) {
        self.waits.signal();
    }

    fn notify_change(&self) {
        let marks = self.watch.marks();
        if marks != 0 {
            self.wake_and_queue_work(marks);
        }
    }

    /// Wakes sleepers, and queues the triggered work that is due. The work begins outside of the endpoint lock, under
    /// which this may be called.
    #[cold]
    fn wake_and_queue_work(&self, marks: u8) {
        if marks & SLEEPER != 0 && self.watch.take_sleeper() {
            self.waits.signal();
        }
        if marks & WORK != 0 {
            self.queue_due_work();
        }
    }

    fn queue_due_work(&self) {
        let due = self.waiting.due(|take| self.watch.take_due_work(take));
        if !due.is_empty() {
            self.domain.push_work(due);
        }
    }

    /// Adds work, the `number`-th of the domain, that waits for this counter.
    pub(crate) fn add_work(&self, number: u64, work: Work) {
        self.waiting.add(number, work, || self.watch.mark_work());
        // An operation that was counted before found no work.
        self.queue_due_work();
    }

    /// Returns the triggered work that waits for this counter.
    pub(crate) fn waiting_work(&self) -> &WaitingWork {
        &self.waiting
    }

    /// Returns whether the counter was opened on this domain.
    pub(crate) fn belongs_to(&self, domain: &Domain) -> bool {
        core::ptr::eq(&raw const **self.domain, domain)
    }

    /// Adds to the number of successes: fi_cntr_add.
    pub(crate) fn add(&self, value: u64) {
        self.watch.add(Field::Value, value);
        // Not the present number: fi_poll may not have shown all operations in it yet.
        self.polled.value.fetch_add(value, Ordering::Relaxed);
        self.notify_change();
    }

    /// Sets the number of successes: fi_cntr_set.
    pub(crate) fn set(&self, value: u64) {
        let polled = self.polled.value.load(Ordering::Relaxed);
        let unseen = self.watch.get(Field::Value).wrapping_sub(polled);
        self.watch.set(Field::Value, value);
        self.polled.value.store(value.wrapping_sub(unseen), Ordering::Relaxed);
        self.notify_change();
    }

    /// Attaches an endpoint, on which reading the counter makes progress from now on.
    pub(crate) fn attach(&self, endpoint: &Arc<Endpoint>, sockets: &[RawFd]) -> Result<()> {
        self.driver.attach(&self.domain, &self.waits, endpoint, sockets)
    }

    /// Detaches an endpoint, which closes, from the counter.
    pub(crate) fn detach(&self, endpoint: &Endpoint, sockets: &[RawFd]) {
        self.driver.detach(&self.waits, endpoint, sockets);
    }

    /// Makes progress on every attached endpoint once. Returns whether anything happened.
    pub(crate) fn progress(&self) -> bool {
        self.driver.progress()
    }

    /// Makes the next change of the counter from the values in `found` wake the sleeper.
    ///
    /// # Errors
    /// `FI_EAGAIN` when it has changed, `FI_ENOSYS` without a wait object.
    fn arm(&self, found: (u64, u64), sleeper: Sleeper) -> Result<()> {
        self.waits.prepare(sleeper, |waiter| self.check_before_sleep(waiter, found))
    }

    /// Makes progress, and returns an error if a number has changed. Otherwise the next change wakes the sleeper.
    fn check_before_sleep(&self, waiter: Option<&Waiter>, found: (u64, u64)) -> Result<()> {
        self.driver.prepare(&self.domain, waiter)?;
        self.watch.mark_sleeper();
        if found == self.snapshot() { Ok(()) } else { Err(Errno::AGAIN) }
    }

    /// Returns for fi_poll whether the counter has changed since the application set it or the last
    /// call.
    pub(crate) fn take_ready(&self) -> bool {
        let now = self.snapshot();
        let news = now != self.polled.get();
        self.polled.store(now);
        news
    }

    /// Returns the application's context of the counter.
    pub(crate) fn context(&self) -> *mut c_void {
        // SAFETY: the cell holds an initialised `fid_cntr`, whose context is the application's: it alone may
        // change it, and not during a call with the object.
        unsafe { (*self.fid.get()).fid.context }
    }

    fn snapshot(&self) -> (u64, u64) {
        self.watch.numbers()
    }

    /// Returns one of the counter's two numbers, after a turn of progress.
    fn read(&self, which: Field, seen: &AtomicU64) -> u64 {
        let before = self.snapshot();
        self.driver.poll(|| before == self.snapshot());
        let now = self.watch.get(which);
        seen.store(now, Ordering::Relaxed);
        now
    }

    /// Waits until the counter's value reaches the threshold.
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
        let prepare = |sleeper| self.arm(found.get(), sleeper).is_ok();
        match waiting::poll_until(waiting::deadline(timeout), self.waits.waiter(), check, prepare) {
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

    /// Refuses to sleep if the counter has changed and the application has not read the change yet,
    /// whichever thread noticed it.
    fn try_wait(&self, sleeper: Sleeper) -> Result<()> {
        self.arm(self.seen.get(), sleeper)
    }
}
