//! A counter's numbers, and the marks of those that watch them: threads that sleep until a number changes, and work
//! that waits for a threshold.
//!
//! A change writes a number and then reads the marks. A watcher sets a mark and then reads the numbers (Dekker's
//! algorithm). So at least one of the two sees the other, provided that no thread sees either side's two steps in the
//! other order: all four are `SeqCst`. The mark of work is set and cleared under the lock of the waiting work, so that
//! the mark is set whenever there is such work.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Mark of a counter: at least one thread sleeps until a number changes.
pub(super) const SLEEPER: u8 = 1;
/// Mark of a counter: triggered work waits for a threshold.
pub(super) const WORK: u8 = 2;

/// Selects one of a counter's two numbers: successes or errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Field {
    /// The number of operations that succeeded.
    Value,
    /// The number of operations that failed.
    Errors,
}

/// An atomic number: a real one of the processor, or one of loom's model.
pub(super) trait Number {
    fn new() -> Self;
    fn load(&self) -> u64;
    fn store(&self, to: u64);
    fn add(&self, by: u64);
}

/// The marks of watchers, as bits of an atomic byte.
pub(super) trait Marks {
    fn new() -> Self;
    fn load(&self) -> u8;
    fn set(&self, mark: u8);
    /// Clears a mark of the counter. Returns whether the mark was set.
    fn clear(&self, mark: u8) -> bool;
}

/// The kind of memory that holds the numbers and marks: the processor's, or a model's.
pub(super) trait Memory {
    type Number: Number;
    type Marks: Marks;
    /// Keeps the two steps of either side in order. The processor needs no code for that, because its `SeqCst`
    /// operations keep their order.
    fn order_steps();
}

/// The numbers and marks of one counter. The module's documentation explains their order.
pub(super) struct Watch<M: Memory> {
    value: M::Number,
    errors: M::Number,
    marks: M::Marks,
}

impl<M: Memory> Watch<M> {
    pub(super) fn new() -> Self {
        Self { value: M::Number::new(), errors: M::Number::new(), marks: M::Marks::new() }
    }

    fn number(&self, which: Field) -> &M::Number {
        match which {
            Field::Value => &self.value,
            Field::Errors => &self.errors,
        }
    }

    /// Returns one of the counter's two numbers.
    pub(super) fn get(&self, which: Field) -> u64 {
        self.number(which).load()
    }

    /// Returns the numbers of successes and of errors.
    pub(super) fn numbers(&self) -> (u64, u64) {
        (self.value.load(), self.errors.load())
    }

    /// Adds to one of the counter's two numbers. The caller must call [`Watch::marks`] afterwards.
    #[inline]
    pub(super) fn add(&self, which: Field, by: u64) {
        self.number(which).add(by);
    }

    /// Sets one of the counter's two numbers. The caller must call [`Watch::marks`] afterwards.
    pub(super) fn set(&self, which: Field, to: u64) {
        self.number(which).store(to);
    }

    /// Returns the marks of the counter, which the caller must handle after it has changed a number.
    #[inline]
    pub(super) fn marks(&self) -> u8 {
        M::order_steps();
        self.marks.load()
    }

    /// Sets the mark that a thread is about to sleep until a number changes. The caller must call [`Watch::numbers`]
    /// afterwards, and must not sleep if they have changed.
    pub(super) fn mark_sleeper(&self) {
        self.marks.set(SLEEPER);
        M::order_steps();
    }

    /// Clears the mark of sleepers after a change of a number. Returns whether there is a sleeper to wake.
    pub(super) fn take_sleeper(&self) -> bool {
        self.marks.clear(SLEEPER)
    }

    /// Sets the mark that triggered work waits. The caller holds the lock of the waiting work, and must call
    /// [`Watch::take_due_work`] afterwards.
    pub(super) fn mark_work(&self) {
        self.marks.set(WORK);
        M::order_steps();
    }

    /// Calls `take` with both numbers, to take out the work that is due, under the lock of the waiting work. `take`
    /// returns whether more work waits.
    pub(super) fn take_due_work(&self, take: impl FnOnce((u64, u64)) -> bool) {
        if !take(self.numbers()) {
            self.marks.clear(WORK);
        }
    }
}

/// The atomic operations of the processor, as opposed to those of a test model.
pub(super) struct Processor;

impl Number for AtomicU64 {
    fn new() -> Self {
        Self::new(0)
    }
    #[inline]
    fn load(&self) -> u64 {
        self.load(Ordering::SeqCst)
    }
    fn store(&self, to: u64) {
        self.store(to, Ordering::SeqCst);
    }
    #[inline]
    fn add(&self, by: u64) {
        self.fetch_add(by, Ordering::SeqCst);
    }
}

impl Marks for AtomicU8 {
    fn new() -> Self {
        Self::new(0)
    }
    #[inline]
    fn load(&self) -> u8 {
        self.load(Ordering::SeqCst)
    }
    fn set(&self, mark: u8) {
        self.fetch_or(mark, Ordering::SeqCst);
    }
    fn clear(&self, mark: u8) -> bool {
        self.fetch_and(!mark, Ordering::SeqCst) & mark != 0
    }
}

impl Memory for Processor {
    type Number = AtomicU64;
    type Marks = AtomicU8;
    #[inline]
    fn order_steps() {}
}

/// Tests of every interleaving that the memory model of C11 allows, by loom.
///
/// loom treats `SeqCst` operations as acquire and release. Where the processor's keep their order, the model has a full
/// fence, which gives the guarantee that C11 gives two consecutive `SeqCst` operations.
#[cfg(test)]
mod model {
    use std::sync::Arc;

    use loom::sync::Mutex;
    use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, fence};

    use super::*;

    impl Number for AtomicU64 {
        fn new() -> Self {
            Self::new(0)
        }
        fn load(&self) -> u64 {
            self.load(Ordering::SeqCst)
        }
        fn store(&self, to: u64) {
            self.store(to, Ordering::SeqCst);
        }
        fn add(&self, by: u64) {
            self.fetch_add(by, Ordering::SeqCst);
        }
    }

    impl Marks for AtomicU8 {
        fn new() -> Self {
            Self::new(0)
        }
        fn load(&self) -> u8 {
            self.load(Ordering::SeqCst)
        }
        fn set(&self, mark: u8) {
            self.fetch_or(mark, Ordering::SeqCst);
        }
        fn clear(&self, mark: u8) -> bool {
            self.fetch_and(!mark, Ordering::SeqCst) & mark != 0
        }
    }

    /// Memory order of the processor in the model: a full fence between the two steps.
    struct Ordered;

    impl Memory for Ordered {
        type Number = AtomicU64;
        type Marks = AtomicU8;
        fn order_steps() {
            fence(Ordering::SeqCst);
        }
    }

    /// Memory without that fence in the model, in which other threads may see the two steps in the other order.
    struct Loose;

    impl Memory for Loose {
        type Number = AtomicU64;
        type Marks = AtomicU8;
        fn order_steps() {}
    }

    struct Counter<M: Memory> {
        watch: Watch<M>,
        /// Thresholds of the triggered work that waits, in the model.
        waiting: Mutex<Vec<u64>>,
        /// Thresholds of the triggered work that has begun, in the model.
        begun: Mutex<Vec<u64>>,
        /// The signal for which a sleeping thread waits, in the model.
        signal: AtomicBool,
    }

    impl<M: Memory> Counter<M> {
        fn new() -> Self {
            Self {
                watch: Watch::new(),
                waiting: Mutex::new(Vec::new()),
                begun: Mutex::new(Vec::new()),
                signal: AtomicBool::new(false),
            }
        }

        /// Models `Cntr::wake_and_queue_work` and `WaitingWork::due`.
        fn wake_and_queue_work(&self) {
            let mut waiting = self.waiting.lock().expect("no panic");
            let mut due = Vec::new();
            self.watch.take_due_work(|(value, _)| {
                due = waiting.extract_if(.., |threshold| *threshold <= value).collect();
                !waiting.is_empty()
            });
            drop(waiting);
            self.begun.lock().expect("no panic").extend(due);
        }

        /// Models `Cntr::add_work` and `WaitingWork::add`.
        fn submit(&self, threshold: u64) {
            let mut waiting = self.waiting.lock().expect("no panic");
            waiting.push(threshold);
            self.watch.mark_work();
            drop(waiting);
            self.wake_and_queue_work();
        }

        /// Models `Cntr::count`.
        fn count(&self) {
            self.watch.add(Field::Value, 1);
            let marks = self.watch.marks();
            if marks & SLEEPER != 0 && self.watch.take_sleeper() {
                self.signal.store(true, Ordering::SeqCst);
            }
            if marks & WORK != 0 {
                self.wake_and_queue_work();
            }
        }
    }

    /// Two threads count while a third submits work; if `before` has a threshold, work for it waits already. The model
    /// tries all interleavings in which threads are preempted at most twice: the faults show with fewer preemptions,
    /// and more would take minutes.
    fn counters_and_submitter<M: Memory + 'static>(before: Option<u64>, threshold: u64) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(move || {
            let counter: Arc<Counter<M>> = Arc::new(Counter::new());
            let wanted: Vec<u64> = before.into_iter().chain([threshold]).collect();
            if let Some(before) = before {
                counter.submit(before);
            }
            let spawn = |body: fn(&Counter<M>, u64)| {
                let counter = Arc::clone(&counter);
                loom::thread::spawn(move || body(&counter, threshold))
            };
            let threads =
                [spawn(|c, _| c.count()), spawn(|c, _| c.count()), spawn(Counter::submit)];
            for thread in threads {
                thread.join().expect("no panic");
            }
            let mut begun = counter.begun.lock().expect("no panic").clone();
            begun.sort_unstable();
            assert_eq!(begun, wanted, "due work was missed");
            assert_eq!(counter.watch.marks() & WORK, 0, "nothing waits");
        });
    }

    fn sleeper_and_counter<M: Memory + 'static>() {
        loom::model(|| {
            let counter: Arc<Counter<M>> = Arc::new(Counter::new());
            let other = Arc::clone(&counter);
            let thread = loom::thread::spawn(move || other.count());
            let found = counter.watch.numbers();
            counter.watch.mark_sleeper();
            let sleeps = counter.watch.numbers() == found;
            thread.join().expect("no panic");
            let changed = counter.watch.numbers() != found;
            if sleeps && changed {
                assert!(counter.signal.load(Ordering::SeqCst), "a sleeper was not woken");
            }
        });
    }

    #[test]
    fn due_work_is_begun() {
        counters_and_submitter::<Ordered>(None, 2);
    }

    #[test]
    fn work_added_while_the_last_is_taken_out_is_begun() {
        counters_and_submitter::<Ordered>(Some(1), 2);
    }

    #[test]
    fn a_sleeper_is_woken() {
        sleeper_and_counter::<Ordered>();
    }

    #[test]
    #[should_panic(expected = "due work was missed")]
    fn without_the_order_due_work_is_missed() {
        counters_and_submitter::<Loose>(None, 2);
    }

    #[test]
    #[should_panic(expected = "a sleeper was not woken")]
    fn without_the_order_a_wake_up_is_missed() {
        sleeper_and_counter::<Loose>();
    }
}
