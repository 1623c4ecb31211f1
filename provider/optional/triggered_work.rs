//! Triggered work: operations that begin when a counter has reached a number. These are triggered operations
//! (FI_TRIGGER) and deferred work requests (FI_QUEUE_WORK) of fi_trigger(3).
//!
//! Work that waits is kept by its counter ([`WaitingWork`]). When the number is reached, the
//! counter moves the work to its domain's queue ([`WorkQueue`]). An endpoint lock may be held then,
//! so the thread that releases the lock begins the work. A counter without work, and an operation
//! that is not triggered, have no extra cost: the counter checks for work where it checks for
//! sleepers anyway.

pub(crate) mod operations;
mod request;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use self::operations::Deferred;
use crate::abi::errno::{Errno, Result};
use crate::endpoint::{Endpoint, Receive, Transmit};
use crate::optional::triggered_work::operations::{begin_receive, begin_transmit};
use crate::queues::cntr::Cntr;
pub(crate) use request::control;

/// The condition, a threshold of a counter, under which triggered work begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Condition {
    pub(crate) threshold: u64,
    /// Failed operations count as well. That applies to deferred work, whose condition is on the sum of both numbers of
    /// the counter.
    pub(crate) errors_count: bool,
}

impl Condition {
    const fn is_met(self, value: u64, errors: u64) -> bool {
        let errors = if self.errors_count { errors } else { 0 };
        value.saturating_add(errors) >= self.threshold
    }
}

/// An operation that begins when its condition is met. It does not keep its endpoint or counter open.
pub(crate) enum Task {
    Transmit(Weak<Endpoint>, Transmit),
    Receive(Weak<Endpoint>, Receive),
    /// Sets a counter (FI_OP_CNTR_SET).
    Set(Weak<Cntr>, u64),
    /// Adds to a counter (FI_OP_CNTR_ADD).
    Add(Weak<Cntr>, u64),
}

impl Task {
    fn target(&self) -> WorkTarget {
        match self {
            Self::Transmit(endpoint, _) => WorkTarget::Transmit(endpoint.as_ptr()),
            Self::Receive(endpoint, _) => WorkTarget::Receive(endpoint.as_ptr()),
            Self::Set(..) | Self::Add(..) => WorkTarget::Counter,
        }
    }
}

/// A triggered task, with its condition and the request that it came from.
pub(crate) struct Work {
    pub(crate) condition: Condition,
    pub(crate) task: Task,
    /// The deferred work request; `None` for a triggered operation, which ends like any other operation.
    pub(crate) deferred: Option<Deferred>,
}

impl Work {
    /// Begins the work. Returns the work if it must begin later, because there is no room.
    fn begin(self) -> Option<Self> {
        let Self { condition, task, deferred } = self;
        match task {
            Task::Set(cntr, value) => cntr.upgrade()?.set(value),
            Task::Add(cntr, value) => cntr.upgrade()?.add(value),
            Task::Transmit(endpoint, call) => {
                let ep = endpoint.upgrade()?;
                if begin_transmit(&ep, &call, deferred.as_ref()) == Err(Errno::AGAIN) {
                    let task = Task::Transmit(endpoint, call);
                    return Some(Self { condition, task, deferred });
                }
            }
            Task::Receive(endpoint, call) => {
                let ep = endpoint.upgrade()?;
                if begin_receive(&ep, &call, deferred.as_ref()) == Err(Errno::AGAIN) {
                    let task = Task::Receive(endpoint, call);
                    return Some(Self { condition, task, deferred });
                }
            }
        }
        None
    }

    /// Returns the context of the triggered operation, if it is one of this endpoint.
    fn context_of(&self, endpoint: &Endpoint) -> Option<u64> {
        match &self.task {
            Task::Transmit(ep, call) if core::ptr::eq(ep.as_ptr(), endpoint) => {
                Some(call.context_value())
            }
            Task::Receive(ep, call) if core::ptr::eq(ep.as_ptr(), endpoint) => {
                Some(call.context_value())
            }
            _ => None,
        }
    }
}

/// The triggered work that waits for a counter, by threshold, then in the order in which it was submitted.
#[derive(Default)]
pub(crate) struct WaitingWork(Mutex<BTreeMap<(u64, u64), Work>>);

impl WaitingWork {
    /// Removes and returns the work whose conditions are met, in order. `look` calls its argument with the counter's
    /// value and errors, read under the lock, and gets the answer whether more work waits.
    pub(crate) fn due(&self, look: impl FnOnce(&mut dyn FnMut((u64, u64)) -> bool)) -> Vec<Work> {
        let (mut waiting, mut due) = (self.0.lock(), Vec::new());
        look(&mut |(value, errors)| {
            let most = value.saturating_add(errors);
            let holds = |work: &Work| work.condition.is_met(value, errors);
            let range = ..=(most, u64::MAX);
            let keys: Vec<_> =
                waiting.range(range).filter(|(_, work)| holds(work)).map(|(key, _)| *key).collect();
            due.extend(keys.iter().filter_map(|key| waiting.remove(key)));
            !waiting.is_empty()
        });
        due
    }

    /// Adds work, the `number`-th of its domain, and calls `mark` while the lock is held, so that the counter sees the
    /// work.
    pub(crate) fn add(&self, number: u64, work: Work, mark: impl FnOnce()) {
        let mut waiting = self.0.lock();
        waiting.insert((work.condition.threshold, number), work);
        mark();
    }

    /// Removes and returns the first waiting work for which `which` is true.
    fn take_one(&self, which: &dyn Fn(&Work) -> bool) -> Option<Work> {
        let mut waiting = self.0.lock();
        let key = waiting.iter().find(|(_, work)| which(work)).map(|(key, _)| *key)?;
        waiting.remove(&key)
    }

    /// Removes and returns all waiting work for which `which` is true.
    fn take(&self, which: &dyn Fn(&Work) -> bool) -> Vec<Work> {
        let mut waiting = self.0.lock();
        let keys: Vec<_> =
            waiting.iter().filter(|(_, work)| which(work)).map(|(key, _)| *key).collect();
        keys.iter().filter_map(|key| waiting.remove(key)).collect()
    }
}

/// The target of triggered work: one side of an endpoint, whose queue may be full, or a counter, which is never full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WorkTarget {
    Transmit(*const Endpoint),
    Receive(*const Endpoint),
    Counter,
}

// SAFETY: the pointers in a `WorkTarget` are an endpoint's name: `contains` and `is_of` compare them, and nothing
// follows one, so that whichever thread has the queue may keep and drop them, also after the endpoint is gone.
unsafe impl Send for WorkTarget {}

impl WorkTarget {
    fn belongs_to(self, endpoint: &Endpoint) -> bool {
        match self {
            Self::Transmit(of) | Self::Receive(of) => core::ptr::eq(of, endpoint),
            Self::Counter => false,
        }
    }
}

/// The triggered work of a domain that is due, and whether a thread is beginning it.
#[derive(Default)]
struct DueWork {
    queue: VecDeque<Work>,
    /// A thread is beginning the work that is due.
    running: bool,
    /// Targets (an endpoint's transmit or receive side) that had no room since that thread began, and where no
    /// operation has ended since.
    full: Vec<WorkTarget>,
}

impl DueWork {
    /// Takes the first work that may begin. Work for a target that is full stays in the queue, in order.
    fn next(&mut self) -> Option<Work> {
        let full = &self.full;
        let at = self.queue.iter().position(|work| !full.contains(&work.task.target()))?;
        self.queue.remove(at)
    }

    /// Puts work back for which there was no room, before all other work for the same target.
    fn put_back(&mut self, work: Work) {
        let place = work.task.target();
        let later = self.queue.iter().position(|other| other.task.target() == place);
        self.queue.insert(later.unwrap_or(0), work);
        self.full.push(place);
    }
}

/// The triggered work of a domain whose conditions are met and that has not begun.
#[derive(Default)]
pub(crate) struct WorkQueue {
    /// False if no work is due. It is read without the lock, so true may be out of date.
    any: AtomicBool,
    due: Mutex<DueWork>,
    number: AtomicU64,
    /// Counters on which triggered work of this domain was queued.
    counters: Mutex<Vec<Weak<Cntr>>>,
}

impl WorkQueue {
    /// Returns whether work is due. The thread that made work due sees it in any case.
    #[inline]
    pub(crate) fn has_due(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    fn update(&self, due: &DueWork) {
        self.any.store(!due.queue.is_empty(), Ordering::Release);
    }

    /// Adds work whose conditions are met.
    pub(crate) fn push(&self, more: Vec<Work>) {
        let mut due = self.due.lock();
        due.queue.extend(more);
        self.update(&due);
    }

    /// Begins the work that is due. Do not call this while holding an endpoint lock. If another thread is beginning
    /// work, the call returns at once, and that thread sees the new work. `at` is an endpoint on which an operation may
    /// have ended, so that it may have room again.
    ///
    /// Work for a full endpoint waits, and holds up no other work. It stays due, so that the next call tries again.
    #[cold]
    pub(crate) fn run(&self, at: Option<&Endpoint>) {
        let mut due = self.due.lock();
        if due.running {
            if let Some(endpoint) = at {
                due.full.retain(|place| !place.belongs_to(endpoint));
            }
            return;
        }
        due.running = true;
        due.full.clear();
        while let Some(work) = due.next() {
            // The work that begins may make more work due, and call this function again.
            let refused = parking_lot::MutexGuard::unlocked(&mut due, || work.begin());
            if let Some(work) = refused {
                due.put_back(work);
            }
        }
        due.running = false;
        self.update(&due);
    }

    /// Submits `work` that waits for `cntr`; it begins at once if the threshold is reached.
    pub(crate) fn submit(&self, cntr: &Arc<Cntr>, work: Work) {
        let mut counters = self.counters.lock();
        counters.retain(|known| known.strong_count() > 0);
        if !counters.iter().any(|known| core::ptr::eq(known.as_ptr(), Arc::as_ptr(cntr))) {
            counters.push(Arc::downgrade(cntr));
        }
        drop(counters);
        cntr.add_work(self.number.fetch_add(1, Ordering::Relaxed), work);
        self.run(None);
    }

    /// Removes the work that has not begun, for which `which` is true.
    fn take(&self, of: Option<&Cntr>, which: &dyn Fn(&Work) -> bool) -> Vec<Work> {
        let counters: Vec<_> = self.counters.lock().iter().filter_map(Weak::upgrade).collect();
        let wanted = counters.iter().filter(|cntr| of.is_none_or(|of| core::ptr::eq(of, &***cntr)));
        let mut taken: Vec<_> = wanted.flat_map(|cntr| cntr.waiting_work().take(which)).collect();
        if of.is_none() {
            let mut due = self.due.lock();
            let (gone, stay) =
                core::mem::take(&mut due.queue).into_iter().partition(|work| which(work));
            due.queue = stay;
            self.update(&due);
            taken.extend::<VecDeque<_>>(gone);
        }
        taken
    }

    /// Removes the requests that were made with the structure at `address` and have not begun: FI_CANCEL_WORK.
    ///
    /// # Errors
    /// `FI_ENOENT` when all have begun.
    fn cancel(&self, address: usize) -> Result<()> {
        let of = |work: &Work| work.deferred.as_ref().is_some_and(|d| d.address == address);
        if self.take(None, &of).is_empty() { Err(Errno::NOENT) } else { Ok(()) }
    }

    /// Removes all deferred requests (FI_FLUSH_WORK), or those that wait for one counter.
    fn flush(&self, of: Option<&Cntr>) {
        drop(self.take(of, &|work| work.deferred.is_some()));
    }

    /// Removes a triggered operation of an endpoint that has not begun, for fi_cancel. Removes only one if several have
    /// this context. Returns `None` if all have begun.
    pub(crate) fn cancel_triggered(&self, endpoint: &Endpoint, context: u64) -> Option<Task> {
        let of =
            |work: &Work| work.deferred.is_none() && work.context_of(endpoint) == Some(context);
        let counters: Vec<_> = self.counters.lock().iter().filter_map(Weak::upgrade).collect();
        let waiting = counters.iter().find_map(|cntr| cntr.waiting_work().take_one(&of));
        let taken = waiting.or_else(|| {
            let mut due = self.due.lock();
            let at = due.queue.iter().position(of)?;
            let work = due.queue.remove(at);
            self.update(&due);
            work
        });
        taken.map(|work| work.task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(threshold: u64, errors_count: bool, mark: u64) -> Work {
        let condition = Condition { threshold, errors_count };
        Work { condition, task: Task::Add(Weak::new(), mark), deferred: None }
    }

    fn mark(work: &Work) -> u64 {
        match &work.task {
            Task::Add(_, mark) => *mark,
            Task::Transmit(_, call) => call.context_value(),
            _ => 0,
        }
    }

    /// Returns the marks of the work that is due when a counter has these numbers, and whether more work waits.
    fn due(waiting: &WaitingWork, value: u64, errors: u64) -> (Vec<u64>, bool) {
        let mut more = false;
        let due = waiting.due(|take| more = take((value, errors)));
        (due.iter().map(mark).collect(), more)
    }

    #[test]
    fn work_is_due_by_threshold_then_in_order() {
        let waiting = WaitingWork::default();
        for (number, (threshold, mark)) in
            [(5, 1), (2, 2), (5, 3), (2, 4), (9, 5)].iter().enumerate()
        {
            waiting.add(number as u64, work(*threshold, false, *mark), || ());
        }
        assert_eq!(due(&waiting, 1, 0), (vec![], true));
        assert_eq!(due(&waiting, 6, 0), (vec![2, 4, 1, 3], true));
        assert_eq!(due(&waiting, 9, 0), (vec![5], false));
    }

    #[test]
    fn failures_count_for_deferred_work_alone() {
        let waiting = WaitingWork::default();
        waiting.add(0, work(3, false, 1), || ());
        waiting.add(1, work(3, true, 2), || ());
        assert_eq!(due(&waiting, 2, 1), (vec![2], true));
        assert_eq!(due(&waiting, 3, 0), (vec![1], false));
    }

    /// Builds work of an endpoint's transmitting side. Only the endpoint's address is used.
    fn transmit(endpoint: &Weak<Endpoint>, mark: u64) -> Work {
        let task = Task::Transmit(Weak::clone(endpoint), Transmit::with_context(mark));
        Work { task, ..work(0, true, 0) }
    }

    #[test]
    fn work_of_a_full_endpoint_holds_up_no_other_work() {
        let full = Weak::new();
        let mut due = DueWork::default();
        due.queue.extend([transmit(&full, 1), work(0, true, 2), transmit(&full, 3)]);
        due.queue.push_back(work(0, true, 4));
        let first = due.next().expect("work");
        assert_eq!(mark(&first), 1);
        due.put_back(first);
        let others: Vec<_> = core::iter::from_fn(|| due.next()).map(|work| mark(&work)).collect();
        assert_eq!(others, [2, 4], "the counters' changes begin");
        due.full.clear();
        let rest: Vec<_> = core::iter::from_fn(|| due.next()).map(|work| mark(&work)).collect();
        assert_eq!(rest, [1, 3], "in order");
    }
}
