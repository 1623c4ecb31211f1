//! The order of steps in which a thread goes to sleep, so that no wake-up is lost.
//!
//! A sleeper is woken by an event (an eventfd) that stays raised until a thread takes it. The thread takes the event
//! *before* it looks for entries: background progress may add an entry that only the look finds, and raise the event
//! once. If the thread took the event after the look, it would lose that wake-up and sleep on. If the look finds an
//! entry, the thread puts the event back, because applications may sleep on the descriptor in calls of their own.
//!
//! Only one of the threads in our waiting calls, the leader, takes the event (`leadership.rs`). Every event wakes each
//! of the others by other means, so that none of them has to keep the event raised for another one.

use crate::abi::errno::{Errno, Result};

/// The kind of a thread that is about to sleep until something happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sleeper {
    /// The thread in one of the provider's waiting calls that sleeps on the descriptors.
    Leader,
    /// A thread that sleeps in a waiting call until the leader, the one thread that watches the sockets, wakes it.
    Follower,
    /// A thread of the application that sleeps by its own calls, such as poll(2).
    Application,
}

/// The event that wakes the leader and the application: an eventfd, or a model of one.
pub(super) trait Event {
    /// Raises the event again after [`Self::take`] found it raised.
    fn put_back(&self);
    /// Takes the event, so that it is no longer raised. Returns whether it was raised.
    fn take(&self) -> bool;
    /// Returns whether a thread in one of the provider's waiting calls is the leader.
    fn is_led(&self) -> bool;
}

/// Prepares a sleep until `event` is raised. `look` makes progress and returns an error if an entry is there already;
/// otherwise it arranges that the next entry raises the event.
///
/// An event that the leader has not taken yet stays raised until it does. The application looks again meanwhile.
///
/// # Errors
/// The errors of `look`; `FI_EAGAIN` while the event is for the leader.
pub(super) fn prepare(
    event: Option<&impl Event>,
    sleeper: Sleeper,
    look: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let Some(event) = event.filter(|_| sleeper != Sleeper::Follower) else { return look() };
    let raised = event.take();
    if raised && sleeper == Sleeper::Application && event.is_led() {
        event.put_back();
        return Err(Errno::AGAIN);
    }
    let looked = look();
    if raised && looked.is_err() {
        event.put_back();
    }
    looked
}

/// Tests of every interleaving that the memory model of C11 allows, by loom: an endpoint behind one lock, a queue
/// behind another, a counter, background progress, and threads that wait. They look for wake-ups that are lost, and for
/// threads that wake up again and again.
#[cfg(test)]
mod model {
    use std::sync::Arc;

    use loom::sync::Mutex;
    use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::super::leadership::{Leadership, Word};
    use super::*;

    impl Word for AtomicU32 {
        fn new() -> Self {
            Self::new(0)
        }
        fn load(&self) -> u32 {
            self.load(Ordering::SeqCst)
        }
        fn update(&self, change: impl FnMut(u32) -> Option<u32>) -> core::result::Result<u32, u32> {
            self.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change)
        }
    }

    /// Mirrors `Waiter`: an eventfd, and a futex with the threads that sleep on it.
    struct ModelWaiter {
        raised: AtomicBool,
        leadership: Leadership<AtomicU32>,
        futex: Mutex<Vec<usize>>,
    }

    impl Event for ModelWaiter {
        fn put_back(&self) {
            self.raised.store(true, Ordering::SeqCst);
        }
        fn take(&self) -> bool {
            self.raised.swap(false, Ordering::SeqCst)
        }
        fn is_led(&self) -> bool {
            self.leadership.is_led()
        }
    }

    impl ModelWaiter {
        fn new() -> Self {
            let raised = AtomicBool::new(false);
            Self { raised, leadership: Leadership::new(), futex: Mutex::new(Vec::new()) }
        }

        /// Models `Waiter::signal`.
        fn signal(&self) {
            if self.leadership.count_event() {
                self.futex.lock().expect("no panic").clear();
            }
            self.put_back();
        }

        /// Mirrors futex(2): the caller sleeps if the number has this value.
        fn wait(&self, thread: usize, value: u32) -> bool {
            let mut sleepers = self.futex.lock().expect("no panic");
            let sleeps = Word::load(self.leadership.word()) == value;
            if sleeps {
                sleepers.push(thread);
            }
            sleeps
        }

        fn wake_one(&self) {
            self.futex.lock().expect("no panic").pop();
        }
    }

    #[derive(Default)]
    struct Queue {
        entries: u32,
        armed: bool,
    }

    #[derive(Default)]
    struct Counter {
        value: u32,
        armed: bool,
    }

    struct World {
        /// Number of completions that wait in the engine of the model.
        engine: Mutex<u32>,
        queue: Mutex<Queue>,
        counter: Mutex<Counter>,
        waiter: ModelWaiter,
    }

    impl World {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                engine: Mutex::new(0),
                queue: Mutex::default(),
                counter: Mutex::default(),
                waiter: ModelWaiter::new(),
            })
        }

        /// Models `Cq::push`.
        fn push(&self) {
            let mut queue = self.queue.lock().expect("no panic");
            queue.entries += 1;
            if core::mem::take(&mut queue.armed) {
                self.waiter.signal();
            }
        }

        /// Models `Cntr::add`.
        fn count(&self) {
            let mut counter = self.counter.lock().expect("no panic");
            counter.value += 1;
            if core::mem::take(&mut counter.armed) {
                self.waiter.signal();
            }
        }

        /// Mirrors `Endpoint::progress_in_background`: the completion stays in the engine, and the sleepers are woken to
        /// fetch it.
        fn progress_in_background(&self) {
            let mut engine = self.engine.lock().expect("no panic");
            *engine += 1;
            self.waiter.signal();
        }

        fn progress(&self) {
            let mut engine = self.engine.lock().expect("no panic");
            (0..core::mem::take(&mut *engine)).for_each(|_| self.push());
        }

        /// Models the check of `Cq::prepare` for something to read.
        fn look(&self) -> Result<()> {
            self.progress();
            let mut queue = self.queue.lock().expect("no panic");
            if queue.entries > 0 {
                return Err(Errno::AGAIN);
            }
            queue.armed = true;
            Ok(())
        }

        fn has_entry(&self) -> bool {
            *self.engine.lock().expect("no panic") > 0
                || self.queue.lock().expect("no panic").entries > 0
        }

        fn is_raised(&self) -> bool {
            self.waiter.raised.load(Ordering::SeqCst)
        }
    }

    /// The event for which a thread in a waiting call waits.
    #[derive(Clone, Copy)]
    enum Awaited {
        Entry,
        Value(u32),
    }

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum State {
        Awake,
        Asleep,
        Gone,
    }

    type Look<'a> = &'a dyn Fn() -> Result<()>;

    /// The variant of the code under test: how threads choose a leader and prepare their sleep.
    #[derive(Clone, Copy)]
    struct Design {
        lead: fn(&World) -> bool,
        prepare: fn(&ModelWaiter, Sleeper, Look<'_>) -> Result<()>,
    }

    const DESIGN: Design = Design {
        lead: |world| world.waiter.leadership.try_lead(),
        prepare: |waiter, sleeper, look| prepare(Some(waiter), sleeper, look),
    };

    /// A faulty design: every thread sleeps on the descriptors, and takes the event.
    const WITHOUT_LEADER: Design = Design { lead: |_| true, ..DESIGN };

    /// The former, faulty design: every thread sleeps on the descriptors, and puts the event back for the others.
    const FOR_OTHERS: Design = Design {
        lead: |_| true,
        prepare: |waiter, _, look| {
            if waiter.take() {
                waiter.put_back();
                return Err(Errno::AGAIN);
            }
            look()
        },
    };

    /// A thread in a waiting call: mirrors `poll_until` with a `Guest`.
    struct Guest {
        number: usize,
        awaited: Awaited,
        role: Option<Sleeper>,
        state: State,
    }

    impl Guest {
        const fn new(number: usize, awaited: Awaited) -> Self {
            Self { number, awaited, role: None, state: State::Awake }
        }

        /// Models one turn of the loop in `poll_until`.
        fn run_turn(&mut self, world: &World, design: Design) {
            let waiter = &world.waiter;
            let seen = waiter.leadership.events();
            let found = match self.awaited {
                Awaited::Entry => {
                    world.progress();
                    let mut queue = world.queue.lock().expect("no panic");
                    let there = queue.entries > 0;
                    queue.entries -= u32::from(there);
                    if there {
                        drop(queue);
                        return self.leave(world);
                    }
                    0
                }
                Awaited::Value(threshold) => {
                    let value = world.counter.lock().expect("no panic").value;
                    if value >= threshold {
                        return self.leave(world);
                    }
                    value
                }
            };
            let leads = self.role == Some(Sleeper::Leader) || (design.lead)(world);
            let role = if leads { Sleeper::Leader } else { Sleeper::Follower };
            self.role = Some(role);
            let looked = (design.prepare)(waiter, role, &|| match self.awaited {
                Awaited::Entry => world.look(),
                Awaited::Value(_) => {
                    let mut counter = world.counter.lock().expect("no panic");
                    counter.armed = true;
                    if counter.value == found { Ok(()) } else { Err(Errno::AGAIN) }
                }
            });
            let sleeps = match role {
                Sleeper::Follower => waiter
                    .leadership
                    .follow(seen)
                    .is_some_and(|value| waiter.wait(self.number, value)),
                _ => true,
            };
            self.state = if looked.is_ok() && sleeps { State::Asleep } else { State::Awake };
        }

        /// Models the drop of a `Guest`.
        fn leave(&mut self, world: &World) {
            let leadership = &world.waiter.leadership;
            let wake = match self.role {
                Some(Sleeper::Leader) => leadership.resign(),
                Some(_) => leadership.is_orphaned(),
                None => false,
            };
            if wake {
                world.waiter.wake_one();
            }
            self.state = State::Gone;
        }

        /// Returns whether the thread sleeps and nothing has woken it.
        fn is_asleep(&self, world: &World) -> bool {
            self.state == State::Asleep
                && match self.role {
                    Some(Sleeper::Leader) => !world.is_raised(),
                    _ => world.waiter.futex.lock().expect("no panic").contains(&self.number),
                }
        }
    }

    /// More turns than a thread needs for the events of a model: it has seen each of them after a few.
    const MANY_TURNS: u32 = 12;

    /// Runs threads that wait beside `events`, each of which happens in a thread of its own, and then until all of them
    /// sleep or are gone.
    fn wait_beside(awaited: [Awaited; 2], events: &[fn(&World)], design: Design) -> [State; 2] {
        let world = World::new();
        let mut threads = Vec::new();
        for event in events {
            let (world, event) = (Arc::clone(&world), *event);
            threads.push(loom::thread::spawn(move || event(&world)));
        }
        let (of_other, other) = (Arc::clone(&world), awaited[1]);
        let other = loom::thread::spawn(move || {
            let mut guest = Guest::new(1, other);
            guest.run_turn(&of_other, design);
            guest
        });
        let mut guest = Guest::new(0, awaited[0]);
        guest.run_turn(&world, design);
        let mut guests = [guest, other.join().expect("no panic")];
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let mut turns = 0;
        loop {
            let awake = |guest: &&mut Guest| guest.state != State::Gone && !guest.is_asleep(&world);
            let Some(guest) = guests.iter_mut().find(awake) else { break };
            guest.run_turn(&world, design);
            turns += 1;
            assert!(turns < MANY_TURNS, "the threads wake up again and again");
            // Every thread has its turn.
            guests.reverse();
        }
        guests.sort_unstable_by_key(|guest| guest.number);
        let sleeps = guests.iter().any(|guest| guest.state == State::Asleep);
        let awaits_entry = matches!(awaited[0], Awaited::Entry);
        assert!(!(sleeps && awaits_entry && world.has_entry()), "a wake-up is lost");
        let is_follower = |guest: &Guest| guest.role == Some(Sleeper::Follower);
        let follows = guests.iter().any(|guest| guest.state == State::Asleep && is_follower(guest));
        assert!(!follows || world.waiter.is_led(), "followers without a leader");
        guests.map(|guest| guest.state)
    }

    /// Explores the interleavings with at most this number of preemptions: all would take hours.
    fn explore(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(model);
    }

    #[test]
    fn threads_that_wait_for_entries_get_them_and_sleep_on() {
        explore(|| {
            let one = [World::progress_in_background as fn(&World)];
            let states = wait_beside([Awaited::Entry; 2], &one, DESIGN);
            let gone = states.iter().filter(|state| **state == State::Gone).count();
            assert_eq!(gone, 1, "one entry for two threads");
        });
        explore(|| {
            let two = [World::progress_in_background as fn(&World), World::push];
            assert_eq!(wait_beside([Awaited::Entry; 2], &two, DESIGN), [State::Gone; 2]);
        });
    }

    fn different_values(design: Design) {
        explore(move || {
            let awaited = [Awaited::Value(1), Awaited::Value(9)];
            let states = wait_beside(awaited, &[World::count], design);
            assert_eq!(states, [State::Gone, State::Asleep], "a wake-up is lost");
        });
    }

    #[test]
    fn threads_that_wait_for_different_values_wake_up_at_their_own() {
        different_values(DESIGN);
    }

    #[test]
    #[should_panic(expected = "a wake-up is lost")]
    fn a_wake_up_is_lost_without_a_leader() {
        different_values(WITHOUT_LEADER);
    }

    #[test]
    #[should_panic(expected = "the threads wake up again and again")]
    fn threads_spin_that_put_the_event_back_for_others() {
        different_values(FOR_OTHERS);
    }

    type Prepare = fn(&World, Sleeper) -> Result<()>;

    fn in_order(world: &World, sleeper: Sleeper) -> Result<()> {
        prepare(Some(&world.waiter), sleeper, || world.look())
    }

    /// The former, faulty order: the event is taken after a look that found nothing.
    fn look_first(world: &World, _: Sleeper) -> Result<()> {
        world.look()?;
        world.waiter.take();
        Ok(())
    }

    /// A sleeper, background progress, and another thread whose progress fills the queue.
    fn one_sleeper(prepare: Prepare) {
        loom::model(move || {
            let world = World::new();
            let act = |body: fn(&World)| {
                let world = Arc::clone(&world);
                loom::thread::spawn(move || body(&world))
            };
            let threads = [act(World::progress_in_background), act(World::push)];
            let sleeps = prepare(&world, Sleeper::Leader).is_ok();
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            assert!(!sleeps || !world.has_entry() || world.is_raised(), "a wake-up is lost");
        });
    }

    #[test]
    fn no_wake_up_of_one_sleeper_is_lost() {
        one_sleeper(in_order);
    }

    /// Two threads of the application that sleep on the descriptor by themselves, of which background progress wakes one.
    #[test]
    fn no_wake_up_of_an_application_is_lost() {
        loom::model(move || {
            let world = World::new();
            let (other, third) = (Arc::clone(&world), Arc::clone(&world));
            let one = loom::thread::spawn(move || in_order(&other, Sleeper::Application).is_ok());
            let two = loom::thread::spawn(move || third.progress_in_background());
            let sleeps = in_order(&world, Sleeper::Application).is_ok();
            let other_sleeps = one.join().expect("no panic");
            two.join().expect("no panic");
            let sleeps = sleeps || other_sleeps;
            assert!(!sleeps || !world.has_entry() || world.is_raised(), "a wake-up is lost");
        });
    }

    #[test]
    #[should_panic(expected = "a wake-up is lost")]
    fn a_wake_up_is_lost_if_the_look_comes_first() {
        one_sleeper(look_first);
    }
}
