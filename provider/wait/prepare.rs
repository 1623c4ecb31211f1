//! The order of steps in which a thread goes to sleep, so that no wake-up is lost.
//!
//! A sleeper is woken by an event (an eventfd) that stays raised until a thread takes it. The thread takes the event
//! *before* it looks for entries: background progress may add an entry that only the look finds, and raise the event
//! once. If the thread took the event after the look, it would lose that wake-up and sleep on. If the look finds an
//! entry, the thread raises the event again, because the event may have been meant for another sleeper.

use crate::errno::{Errno, Result};

/// The kind of thread that is about to sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sleeper {
    /// A thread in one of our waiting calls, which has entered the waiter ([`super::Waiter::enter`]).
    Guest,
    /// The application, by calls of its own.
    Application,
}

/// The event that wakes sleepers: an eventfd, or a model of one.
pub(super) trait Event {
    /// Raises the event, which wakes all sleepers.
    fn raise(&self);
    /// Takes the event back. Returns whether it was raised.
    fn take(&self) -> bool;
    /// Returns whether other threads than the caller are in one of squall's waiting calls.
    fn is_shared(&self, sleeper: Sleeper) -> bool;
}

/// Prepares a sleep until `event` is raised. `look` makes progress and returns an error if an entry is there already;
/// otherwise it arranges that the next entry raises the event.
///
/// When other threads wait as well, a raised event may be the wake-up of one of them. Then the event stays raised and
/// the caller looks again; soon it is the only thread left.
///
/// # Errors
/// The errors of `look`; `FI_EAGAIN` while the event is for other threads.
pub(super) fn prepare(
    event: Option<&impl Event>,
    sleeper: Sleeper,
    look: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let Some(event) = event else { return look() };
    let raised = event.take();
    if raised && event.is_shared(sleeper) {
        event.raise();
        return Err(Errno::AGAIN);
    }
    let looked = look();
    if raised && looked.is_err() {
        event.raise();
    }
    looked
}

/// Tests of every interleaving that the memory model of C11 allows, by loom: an endpoint behind one lock, a queue
/// behind another, background progress, and threads that prepare to sleep.
#[cfg(test)]
mod model {
    use std::sync::Arc;

    use loom::sync::Mutex;
    use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;

    struct ModelEvent {
        raised: AtomicBool,
        guests: AtomicU32,
    }

    impl Event for ModelEvent {
        fn raise(&self) {
            self.raised.store(true, Ordering::SeqCst);
        }
        fn take(&self) -> bool {
            self.raised.swap(false, Ordering::SeqCst)
        }
        fn is_shared(&self, sleeper: Sleeper) -> bool {
            self.guests.load(Ordering::SeqCst) > u32::from(sleeper == Sleeper::Guest)
        }
    }

    #[derive(Default)]
    struct Queue {
        entries: u32,
        armed: bool,
    }

    struct World {
        /// Completions that wait in the engine.
        engine: Mutex<u32>,
        queue: Mutex<Queue>,
        event: ModelEvent,
    }

    impl World {
        fn new(guests: u32) -> Self {
            let event =
                ModelEvent { raised: AtomicBool::new(false), guests: AtomicU32::new(guests) };
            Self { engine: Mutex::new(0), queue: Mutex::default(), event }
        }

        /// Mirrors `Cq::push`.
        fn push(&self) {
            let mut queue = self.queue.lock().expect("no panic");
            queue.entries += 1;
            if core::mem::take(&mut queue.armed) {
                self.event.raise();
            }
        }

        /// Mirrors `Endpoint::progress_in_background`: the completion stays in the engine, and the sleeper is woken to
        /// fetch it.
        fn progress_in_background(&self) {
            let mut engine = self.engine.lock().expect("no panic");
            *engine += 1;
            self.event.raise();
        }

        /// Mirrors the look of `Cq::prepare`.
        fn look(&self) -> Result<()> {
            let mut engine = self.engine.lock().expect("no panic");
            (0..core::mem::take(&mut *engine)).for_each(|_| self.push());
            drop(engine);
            let mut queue = self.queue.lock().expect("no panic");
            if queue.entries > 0 {
                return Err(Errno::AGAIN);
            }
            queue.armed = true;
            Ok(())
        }

        /// Checks, once all threads are done, that no thread sleeps although there is a completion.
        fn check(&self, sleeps: bool) {
            let there = *self.engine.lock().expect("no panic") > 0
                || self.queue.lock().expect("no panic").entries > 0;
            let raised = self.event.raised.load(Ordering::SeqCst);
            assert!(!sleeps || !there || raised, "a wake-up is lost");
        }
    }

    type Prepare = fn(&World, Sleeper) -> Result<()>;

    fn in_order(world: &World, sleeper: Sleeper) -> Result<()> {
        prepare(Some(&world.event), sleeper, || world.look())
    }

    /// The former, faulty order: the event is taken after a look that found nothing.
    fn look_first(world: &World, _: Sleeper) -> Result<()> {
        world.look()?;
        world.event.take();
        Ok(())
    }

    /// A sleeper, background progress, and another thread whose progress fills the queue.
    fn one_sleeper(prepare: Prepare) {
        loom::model(move || {
            let world = Arc::new(World::new(1));
            let act = |body: fn(&World)| {
                let world = Arc::clone(&world);
                loom::thread::spawn(move || body(&world))
            };
            let threads = [act(World::progress_in_background), act(World::push)];
            let sleeps = prepare(&world, Sleeper::Guest).is_ok();
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            world.check(sleeps);
        });
    }

    /// Two sleepers, one of which background progress wakes.
    fn two_sleepers(prepare: Prepare, sleeper: Sleeper) {
        let guests = if sleeper == Sleeper::Guest { 2 } else { 0 };
        loom::model(move || {
            let world = Arc::new(World::new(guests));
            let (other, third) = (Arc::clone(&world), Arc::clone(&world));
            let one = loom::thread::spawn(move || prepare(&other, sleeper).is_ok());
            let two = loom::thread::spawn(move || third.progress_in_background());
            let sleeps = prepare(&world, sleeper).is_ok();
            let other_sleeps = one.join().expect("no panic");
            two.join().expect("no panic");
            world.check(sleeps || other_sleeps);
        });
    }

    #[test]
    fn no_wake_up_of_one_sleeper_is_lost() {
        one_sleeper(in_order);
    }

    #[test]
    fn no_wake_up_of_two_sleepers_is_lost() {
        two_sleepers(in_order, Sleeper::Guest);
        two_sleepers(in_order, Sleeper::Application);
    }

    #[test]
    #[should_panic(expected = "a wake-up is lost")]
    fn a_wake_up_is_lost_if_the_look_comes_first() {
        one_sleeper(look_first);
    }
}
