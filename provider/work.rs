//! Work: what begins when a counter has reached a number. Triggered operations (FI_TRIGGER) and deferred work requests
//! (FI_QUEUE_WORK) of fi_trigger(3).
//!
//! Work that waits is kept by its counter ([`Waiting`]), which moves it to its domain's queue ([`Queue`]) when the number is
//! reached; that may be inside an endpoint's gate, so it begins later, by whoever leaves the gate. A counter without work,
//! and an operation that is none, pay nothing for it: the counter looks where it looks for sleepers anyway.

mod request;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::cntr::Cntr;
use crate::ep::work::{begin_receive, begin_transmit};
use crate::ep::{Deferred, Endpoint, Receive, Transmit};
use crate::errno::{Errno, Result};
pub(crate) use request::control;

/// When it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Condition {
    pub(crate) threshold: u64,
    /// Operations that failed count as well: so for deferred work, whose counter is judged by both numbers.
    pub(crate) errors_count: bool,
}

impl Condition {
    const fn holds(self, value: u64, errors: u64) -> bool {
        let errors = if self.errors_count { errors } else { 0 };
        value.saturating_add(errors) >= self.threshold
    }
}

/// What begins. Endpoints and counters that have been closed by then are no reason to keep them open.
pub(crate) enum Task {
    Transmit(Weak<Endpoint>, Transmit),
    Receive(Weak<Endpoint>, Receive),
    /// FI_OP_CNTR_SET.
    Set(Weak<Cntr>, u64),
    /// FI_OP_CNTR_ADD.
    Add(Weak<Cntr>, u64),
}

/// A task, with what is known of its request.
pub(crate) struct Work {
    pub(crate) condition: Condition,
    pub(crate) task: Task,
    /// A deferred work request, or a triggered operation, which ends as any other operation.
    pub(crate) deferred: Option<Deferred>,
}

impl Work {
    /// Begins; or is what has to begin later.
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

    /// The context of a triggered operation of an endpoint.
    fn context_of(&self, endpoint: &Endpoint) -> Option<u64> {
        match &self.task {
            Task::Transmit(ep, call) if core::ptr::eq(ep.as_ptr(), endpoint) => {
                Some(call.context_given())
            }
            Task::Receive(ep, call) if core::ptr::eq(ep.as_ptr(), endpoint) => {
                Some(call.context_given())
            }
            _ => None,
        }
    }
}

/// The work that waits for a counter, by threshold, then in the order in which it came.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<BTreeMap<(u64, u64), Work>>);

impl Waiting {
    /// Takes out what is due, in order; whether more waits.
    pub(crate) fn due(&self, value: u64, errors: u64) -> (Vec<Work>, bool) {
        let mut waiting = self.0.lock();
        let most = value.saturating_add(errors);
        let holds = |work: &Work| work.condition.holds(value, errors);
        let range = ..=(most, u64::MAX);
        let keys: Vec<_> =
            waiting.range(range).filter(|(_, work)| holds(work)).map(|(key, _)| *key).collect();
        let due = keys.iter().filter_map(|key| waiting.remove(key)).collect();
        (due, !waiting.is_empty())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// One more, the `number`-th of its domain.
    pub(crate) fn add(&self, number: u64, work: Work) {
        self.0.lock().insert((work.condition.threshold, number), work);
    }

    /// Takes out the first of which `which` says so.
    fn take_one(&self, which: &dyn Fn(&Work) -> bool) -> Option<Work> {
        let mut waiting = self.0.lock();
        let key = waiting.iter().find(|(_, work)| which(work)).map(|(key, _)| *key)?;
        waiting.remove(&key)
    }

    /// Takes out those of which `which` says so.
    fn take(&self, which: &dyn Fn(&Work) -> bool) -> Vec<Work> {
        let mut waiting = self.0.lock();
        let keys: Vec<_> =
            waiting.iter().filter(|(_, work)| which(work)).map(|(key, _)| *key).collect();
        keys.iter().filter_map(|key| waiting.remove(key)).collect()
    }
}

/// The work of a domain that is due.
#[derive(Default)]
pub(crate) struct Queue {
    /// There is some.
    due: AtomicBool,
    queue: Mutex<VecDeque<Work>>,
    /// Somebody is beginning it.
    running: AtomicBool,
    number: AtomicU64,
    /// Counters that work was queued for.
    counters: Mutex<Vec<Weak<Cntr>>>,
}

impl Queue {
    /// Whether some is due.
    #[inline]
    pub(crate) fn has_due(&self) -> bool {
        self.due.load(Ordering::Acquire)
    }

    /// More is due.
    pub(crate) fn push(&self, due: Vec<Work>) {
        let mut queue = self.queue.lock();
        queue.extend(due);
        self.due.store(!queue.is_empty(), Ordering::Release);
    }

    /// Begins what is due. Not to be called inside a gate, and harmless when somebody is at it: that one sees what came.
    #[cold]
    pub(crate) fn run(&self) {
        while self.has_due() && !self.running.swap(true, Ordering::AcqRel) {
            let finished = self.run_all();
            self.running.store(false, Ordering::Release);
            if !finished {
                // An endpoint has no room: when something has ended there, it goes on.
                return;
            }
        }
    }

    fn run_all(&self) -> bool {
        loop {
            let next = {
                let mut queue = self.queue.lock();
                let next = queue.pop_front();
                self.due.store(next.is_some(), Ordering::Release);
                next
            };
            let Some(work) = next else { return true };
            if let Some(later) = work.begin() {
                self.queue.lock().push_front(later);
                return false;
            }
        }
    }

    /// `work` waits for `cntr`; it begins at once if the number is reached.
    pub(crate) fn submit(&self, cntr: &Arc<Cntr>, work: Work) {
        let mut counters = self.counters.lock();
        counters.retain(|known| known.strong_count() > 0);
        if !counters.iter().any(|known| core::ptr::eq(known.as_ptr(), Arc::as_ptr(cntr))) {
            counters.push(Arc::downgrade(cntr));
        }
        drop(counters);
        cntr.submit(self.number.fetch_add(1, Ordering::Relaxed), work);
        self.run();
    }

    /// Takes back what has not begun.
    fn take(&self, of: Option<&Cntr>, which: &dyn Fn(&Work) -> bool) -> Vec<Work> {
        let counters: Vec<_> = self.counters.lock().iter().filter_map(Weak::upgrade).collect();
        let wanted = counters.iter().filter(|cntr| of.is_none_or(|of| core::ptr::eq(of, &***cntr)));
        let mut taken: Vec<_> = wanted.flat_map(|cntr| cntr.waiting().take(which)).collect();
        if of.is_none() {
            let mut queue = self.queue.lock();
            let (gone, stay) =
                core::mem::take(&mut *queue).into_iter().partition(|work| which(work));
            *queue = stay;
            taken.extend::<VecDeque<_>>(gone);
        }
        taken
    }

    /// FI_CANCEL_WORK: takes back the requests that were made with the structure at `address`.
    ///
    /// # Errors
    /// `FI_ENOENT` when all have begun.
    fn cancel(&self, address: usize) -> Result<()> {
        let of = |work: &Work| work.deferred.as_ref().is_some_and(|d| d.address == address);
        if self.take(None, &of).is_empty() { Err(Errno::NOENT) } else { Ok(()) }
    }

    /// FI_FLUSH_WORK: takes back all requests, or those that wait for one counter.
    fn flush(&self, of: Option<&Cntr>) {
        drop(self.take(of, &|work| work.deferred.is_some()));
    }

    /// fi_cancel: takes back a triggered operation of an endpoint, one alone where several have this context. `None`
    /// when all have begun.
    pub(crate) fn cancel_triggered(&self, endpoint: &Endpoint, context: u64) -> Option<Task> {
        let of =
            |work: &Work| work.deferred.is_none() && work.context_of(endpoint) == Some(context);
        let counters: Vec<_> = self.counters.lock().iter().filter_map(Weak::upgrade).collect();
        let waiting = counters.iter().find_map(|cntr| cntr.waiting().take_one(&of));
        let taken = waiting.or_else(|| {
            let mut queue = self.queue.lock();
            let at = queue.iter().position(of)?;
            queue.remove(at)
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

    fn marks(due: &[Work]) -> Vec<u64> {
        due.iter().map(|w| if let Task::Add(_, mark) = w.task { mark } else { 0 }).collect()
    }

    #[test]
    fn work_is_due_by_threshold_then_in_order() {
        let waiting = Waiting::default();
        for (number, (threshold, mark)) in
            [(5, 1), (2, 2), (5, 3), (2, 4), (9, 5)].iter().enumerate()
        {
            waiting.add(number as u64, work(*threshold, false, *mark));
        }
        assert!(marks(&waiting.due(1, 0).0).is_empty());
        let (due, more) = waiting.due(6, 0);
        assert_eq!((marks(&due), more), (vec![2, 4, 1, 3], true));
        let (due, more) = waiting.due(9, 0);
        assert_eq!((marks(&due), more), (vec![5], false));
    }

    #[test]
    fn failures_count_for_deferred_work_alone() {
        let waiting = Waiting::default();
        waiting.add(0, work(3, false, 1));
        waiting.add(1, work(3, true, 2));
        assert_eq!(marks(&waiting.due(2, 1).0), [2]);
        assert_eq!(marks(&waiting.due(3, 0).0), [1]);
    }
}
