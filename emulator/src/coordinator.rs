//! Synchronisation of processes in virtual time: a conservative parallel simulation.
//!
//! Each process has a *bound*, a time before which it sends nothing. A packet that leaves a host
//! affects no switch until the [lookahead](Emulation::lookahead) has passed, and it leaves its host
//! no sooner than its card [has it](Emulation::first_latency). So the network may process all events
//! before the smallest bound of all processes plus both. It then knows of all arrivals before the
//! *horizon*, which is later by the [latency of the last link](Emulation::last_latency): the network delivers a packet when the last
//! switch has sent it. Where ranks of one host exchange messages by an
//! [inner path](Emulation::use_inner_paths), the horizon is not later than the smallest bound plus the
//! latency of that path. The network is then behind by up to that latency, and its packets are queued with those
//! of the inner paths, so that all are delivered in the order of their arrival.
//!
//! A process that waits resumes when the horizon is later than its wake time: the time until which
//! it waits, or the arrival of a packet for it. Processes run at the same time, and the result does
//! not depend on which of them the machine runs first.
//!
//! A process is *outside* while it waits for something that the network does not know, such as its
//! launcher. It then has no bound. A *limit* stops the network where a command is to change it, or
//! where a recorder takes a sample.

use squall_base::{Span, Time};
use squall_net::emulator::frame::{Resume, Wait, WaitReason};
use squall_netsim::Picos;

use super::emulation::{Delivery, Emulation};

/// Activity of a process in virtual time, as the emulator knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// The process runs and sends nothing before this time, unless a packet arrives.
    Running(Time),
    /// The process waits for a packet or until a time.
    Waiting(Wait),
    /// The process waits for something outside of the network, such as its launcher.
    Outside,
    /// The process has ended.
    Ended,
}

impl Activity {
    /// Returns whether the process computes or sleeps until a time.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Waiting(wait) if wait.reason == WaitReason::Busy)
    }
}

/// A process in virtual time.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) activity: Activity,
    /// The earliest arrival of which the process will learn when it resumes.
    arrival: Option<Time>,
    /// The process computes for so long that the others no longer wait for its answers to arrivals.
    passes_arrivals: bool,
    /// Virtual time for which the application has computed.
    pub(super) computed: Span,
    /// Virtual time that the calls of the application have taken.
    pub(super) overhead: Span,
    /// Time of the process when it last waited or resumed.
    pub(super) now: Time,
}

impl Process {
    /// Returns the time at which the process resumes if nothing else arrives; `None` if it does not
    /// wait.
    fn wake_time(&self) -> Option<Time> {
        match self.activity {
            Activity::Waiting(wait) => {
                Some(self.arrival.map_or(wait.until, |at| at.min(wait.until)).max(wait.now))
            }
            _ => None,
        }
    }

    /// Returns the time before which the process sends nothing. The transport of a process that
    /// computes answers a packet at the time of its arrival, but only when the program calls it.
    fn bound(&self) -> Time {
        match self.activity {
            Activity::Running(bound) if self.passes_arrivals => bound,
            Activity::Running(bound) => self.arrival.map_or(bound, |at| at.min(bound)),
            Activity::Waiting(_) => self.wake_time().unwrap_or(Time::NEVER),
            Activity::Outside | Activity::Ended => Time::NEVER,
        }
    }
}

/// A packet that a process sent earlier than it had promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BrokenPromise {
    pub(super) process: u32,
    pub(super) sent: Time,
    /// Time before which the process had promised to send nothing; [`Time::NEVER`] if it waited.
    pub(super) promised: Time,
}

/// A limit that keeps virtual time from running ahead of real time. A process for which a packet
/// has arrived may pass it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// Latest virtual time to which processes may advance for which no packet has arrived.
    pub(super) latest: Time,
    /// True if the limit also applies to processes that compute, sleep or have a timer. Otherwise it
    /// applies only to those that poll and find nothing.
    pub(super) for_all: bool,
}

/// The coordinator of all processes of a job in virtual time. It decides how far the network and
/// each process may advance: see the module's documentation.
pub(super) struct Coordinator {
    /// Time at which the clocks of all processes stand until the job begins.
    pub(super) origin: Time,
    lookahead: Picos,
    /// Smallest time from the delivery of a packet by the network to its arrival at the host.
    last_latency: Picos,
    /// Smallest time until a packet of a process affects another process.
    process_latency: Picos,
    pub(super) processes: Vec<Process>,
    /// The smallest bound of all processes: before this time none of them sends.
    bound: Time,
    /// The virtual time that the network has reached.
    network_time: Time,
    /// Time of the latest arrival that the network has delivered.
    last_arrival: Time,
    /// The job has begun: all its ranks have attached.
    started: bool,
    /// Number of times that a process resumed after a wait.
    pub(super) hand_overs: u64,
    /// Hash of the time, source, destination host and length of each delivery before `hash_until`:
    /// FNV-1a on words of 64 bits, with a shift that spreads their upper bits.
    hash: u64,
    /// End of the repeatable part of the run: the earliest time at which a program entered MPI_Finalize,
    /// plus [`Self::process_latency`]. How ranks leave may differ between runs.
    hash_until: Time,
    /// Number of packets that the network delivered to a host.
    pub(super) deliveries: u64,
}

impl Coordinator {
    /// Creates a coordinator of an emulation with cards, whose time begins at `origin`. The lookahead
    /// of the emulation is 1 ns or more, or no process could resume.
    pub(super) fn new(origin: Time, emulation: &Emulation) -> Self {
        // Round down to whole nanoseconds, the unit of limits. A limit is the time of a command minus
        // the lookahead; with a fraction, their sum would lie after the command.
        let whole = |time: Picos| Picos::nanos(time.0 / 1_000);
        let (lookahead, last_latency) =
            (whole(emulation.lookahead()), whole(emulation.last_latency()));
        let inner = emulation.inner_path().map_or(Picos::NEVER, |path| whole(path.latency));
        Self {
            origin,
            lookahead,
            last_latency,
            process_latency: inner.min(whole(emulation.first_latency()) + lookahead + last_latency),
            processes: Vec::new(),
            bound: origin,
            network_time: origin,
            last_arrival: origin,
            started: false,
            hand_overs: 0,
            hash: 0xcbf2_9ce4_8422_2325,
            hash_until: Time::NEVER,
            deliveries: 0,
        }
    }

    /// Returns the time at which the clock of a process stands that attaches now.
    pub(super) fn start_of_next(&self) -> Time {
        if self.started { self.earliest_return() } else { self.origin }
    }

    /// Adds a process of the job. Returns its number.
    pub(super) fn add(&mut self) -> u32 {
        let now = self.start_of_next();
        self.processes.push(Process {
            activity: Activity::Running(now),
            arrival: None,
            passes_arrivals: false,
            computed: Span::ZERO,
            overhead: Span::ZERO,
            now,
        });
        self.update_bound();
        u32::try_from(self.processes.len() - 1).unwrap_or(u32::MAX)
    }

    fn update_bound(&mut self) {
        self.bound = self.processes.iter().map(Process::bound).min().unwrap_or(Time::NEVER);
    }

    /// Converts a time of a process to a time of the network model, which begins at 0.
    fn to_model_time(&self, at: Time) -> Picos {
        Picos::from_span(at.since(self.origin))
    }

    /// Returns the earliest time at which a process that returns from outside may send.
    fn earliest_return(&self) -> Time {
        if self.bound == Time::NEVER {
            // Without a bound the network may have advanced past the clocks of all processes.
            let arrived = self.last_arrival.0.saturating_sub(self.process_latency().0);
            self.last_time().max(self.network_time).max(Time(arrived))
        } else {
            self.bound
        }
    }

    /// Returns the latest virtual time that any process has reported.
    pub(super) fn last_time(&self) -> Time {
        self.processes.iter().map(|process| process.now).max().unwrap_or(self.origin)
    }

    /// Returns the earliest time of a process that waits, from before its wait; `None` if none waits.
    pub(super) fn slowest(&self) -> Option<Time> {
        let waiting = |process: &&Process| matches!(process.activity, Activity::Waiting(_));
        self.processes.iter().filter(waiting).map(|process| process.now).min()
    }

    /// Returns the smallest bound of all processes; [`Time::NEVER`] if none has one.
    pub(super) const fn bound(&self) -> Time {
        self.bound
    }

    /// Returns the model time at which a packet that `process` sent at `at` enters its host's card. A
    /// packet before the bound of a process that computes is late: it enters at the bound.
    ///
    /// # Errors
    /// The process had promised to send nothing that early.
    pub(super) fn check_sent(&self, process: u32, at: Time) -> Result<Picos, BrokenPromise> {
        let state = &self.processes[process as usize];
        let at = match state.activity {
            Activity::Running(_) | Activity::Outside if !self.started => self.origin,
            Activity::Outside => at.max(self.earliest_return()),
            // The process does not know that `raise_bound` moved its bound up since it resumed, and a
            // timer of its transport may have been due before.
            Activity::Running(_) if at >= state.now => at.max(state.bound()),
            Activity::Running(_) => {
                return Err(BrokenPromise { process, sent: at, promised: state.now });
            }
            // A waiting process sends nothing.
            Activity::Waiting(_) | Activity::Ended => {
                return Err(BrokenPromise { process, sent: at, promised: Time::NEVER });
            }
        };
        Ok(self.to_model_time(at))
    }

    /// Records that a process waits, and adds the times that it has spent since its last wait.
    pub(super) fn note_wait(&mut self, process: u32, mut wait: Wait) {
        let earliest_return = self.earliest_return();
        let state = &mut self.processes[process as usize];
        let earliest = match state.activity {
            Activity::Outside => earliest_return,
            // While the process computed, `raise_bound` moved its bound up and the network advanced
            // past the process's clock. Its transport may now handle older timers, but must not send
            // before the bound.
            Activity::Running(_) => state.bound(),
            Activity::Waiting(_) | Activity::Ended => wait.now,
        };
        wait.now = wait.now.max(earliest);
        wait.until = wait.until.max(earliest);
        state.computed = state.computed + wait.computed;
        state.overhead = state.overhead + wait.overhead;
        state.now = wait.now;
        state.activity = Activity::Waiting(wait);
        self.update_bound();
    }

    /// Records that a process waits for something outside of the network, or has ended.
    pub(super) fn set_absent(&mut self, process: u32, activity: Activity) {
        self.processes[process as usize].activity = activity;
        self.update_bound();
    }

    /// Records that the program of a process enters MPI_Finalize at its time `at`.
    pub(super) fn note_end(&mut self, at: Time) {
        self.hash_until = self.hash_until.min(at + self.process_latency());
    }

    /// Raises the bound of a process that runs to `at`, because it has computed until then. With
    /// `passes_arrivals`, packets that have arrived for it no longer limit its bound.
    pub(super) fn raise_bound(&mut self, process: u32, at: Time, passes_arrivals: bool) {
        let state = &mut self.processes[process as usize];
        if let Activity::Running(bound) = state.activity {
            state.activity = Activity::Running(bound.max(at));
            state.passes_arrivals |= passes_arrivals;
            self.update_bound();
        }
    }

    /// Begins the job: from now on time passes.
    pub(super) fn start(&mut self) {
        self.started = true;
    }

    /// Returns whether the job has begun: all its ranks have attached.
    pub(super) const fn is_started(&self) -> bool {
        self.started
    }

    /// Returns whether every process polls and finds nothing, waits for something outside, or has
    /// ended, and all packets that the network has delivered have arrived.
    pub(super) fn is_idle(&self) -> bool {
        self.last_arrival < self.bound
            && self.processes.iter().all(|process| match process.activity {
                Activity::Waiting(wait) => {
                    matches!(wait.reason, WaitReason::Idle | WaitReason::Timer)
                }
                Activity::Outside | Activity::Ended => true,
                Activity::Running(_) => false,
            })
    }

    /// Advances the network to the horizon. With a [`limit`](Self::limit_before), stops at the time of that
    /// limit if it is earlier. Calls `deliver` with each packet that arrives and the nanosecond of its
    /// arrival, rounded up; `deliver` returns the process that receives the packet.
    pub(super) fn run(
        &mut self,
        emulation: &mut Emulation,
        limit: Option<Time>,
        deliver: &mut dyn FnMut(Time, &Delivery<'_>) -> Option<u32>,
    ) {
        if !self.started {
            return;
        }
        loop {
            let bound = match self.limited_bound(limit) {
                Time::NEVER => Picos::NEVER,
                bound => self.to_model_time(bound),
            };
            let inner = bound + self.process_latency;
            let network = match bound {
                Picos::NEVER => bound,
                _ => inner - (self.lookahead + self.last_latency),
            };
            let mut arrived = None;
            let more = emulation.step(network, self.lookahead, inner, &mut |delivery| {
                let at = self.origin + delivery.at.span();
                self.last_arrival = self.last_arrival.max(at);
                arrived = deliver(at, delivery).map(|process| (at, process));
                self.deliveries += 1;
                let source = delivery.frame.endpoint;
                let facts = [
                    at.since(self.origin).0,
                    u64::from(delivery.from) << 32 | u64::from(delivery.host),
                    u64::from(source) << 32 | delivery.payload.len() as u64,
                ];
                // A process holds the network back until its report of MPI_Finalize arrives, so the
                // network has not passed this time when it is set.
                let hashed = at < self.hash_until;
                for fact in facts.into_iter().filter(|_| hashed) {
                    self.hash = (self.hash ^ fact).wrapping_mul(0x0100_0000_01b3);
                    self.hash ^= self.hash >> 29;
                }
            });
            if !more {
                self.network_time = self.origin + emulation.network().now().span();
                return;
            }
            if let Some((at, process)) = arrived {
                let state = &mut self.processes[process as usize];
                state.arrival = Some(state.arrival.map_or(at, |earlier| earlier.min(at)));
                self.bound = self.bound.min(state.bound());
            }
        }
    }

    /// Returns the limit for [`Self::run`] with which the network stops at `at`, where a command is to
    /// change it.
    pub(super) fn limit_before(&self, at: Time) -> Time {
        let arrival = at + self.last_latency.span();
        Time(arrival.0.saturating_sub(self.process_latency().0))
    }

    /// Returns whether [`Self::run`] has processed everything before the time whose limit is `limit`, so
    /// that the next command may change the network. After all processes have ended, returns true
    /// until the network is empty, so that deliveries do not depend on when the emulator learns of
    /// the end.
    pub(super) fn has_reached(&self, limit: Time, emulation: &Emulation) -> bool {
        if self.bound < Time::NEVER {
            return self.bound > limit;
        }
        let ended = self.processes.iter().all(|process| process.activity == Activity::Ended);
        ended && !emulation.is_empty()
    }

    /// Returns the smallest bound of all processes, or `limit` if that is earlier: the horizon
    /// without the lookahead.
    fn limited_bound(&self, limit: Option<Time>) -> Time {
        limit.map_or(self.bound, |limit| limit.min(self.bound))
    }

    /// Resumes processes whose wake time lies before the horizon, the earliest first, until `max_running` processes run.
    /// Returns these processes with their times. The `limit` is that of [`Self::run`]. The `pace` holds back processes
    /// for which no packet has arrived. Also returns the earliest wake time that the pace held back.
    ///
    /// A process that is far behind the horizon can advance a long way before it has to ask for another one. A process
    /// just before the horizon would stop almost at once, so it waits until others have advanced the horizon.
    pub(super) fn wake(
        &mut self,
        limit: Option<Time>,
        pace: Option<Pace>,
        max_running: usize,
    ) -> (Vec<(u32, Resume)>, Option<Time>) {
        if !self.started || self.bound == Time::NEVER {
            return (Vec::new(), None);
        }
        let mut held = None;
        let horizon = self.limited_bound(limit) + self.process_latency();
        let mut due = Vec::new();
        let mut running = 0;
        for (number, process) in (0..).zip(&self.processes) {
            running += usize::from(matches!(process.activity, Activity::Running(_)));
            let Some(at) = process.wake_time().filter(|at| *at < horizon) else { continue };
            let polls = |wait: Wait| wait.reason == WaitReason::Idle;
            if process.arrival.is_none()
                && pace.is_some_and(|pace| {
                    at > pace.latest
                        && (pace.for_all
                            || matches!(process.activity, Activity::Waiting(wait) if polls(wait)))
                })
            {
                held = Some(held.map_or(at, |earlier: Time| earlier.min(at)));
                continue;
            }
            due.push((at, number));
        }
        let free = max_running.saturating_sub(running);
        if due.len() > free {
            due.sort_unstable();
            due.truncate(free);
        }
        let mut woken = Vec::with_capacity(due.len());
        for (at, number) in due {
            let process = &mut self.processes[number as usize];
            process.activity = Activity::Running(at);
            process.passes_arrivals = false;
            process.arrival = None;
            process.now = at;
            woken.push((number, Resume { now: at, horizon }));
        }
        self.hand_overs += woken.len() as u64;
        self.update_bound();
        (woken, held)
    }

    /// Returns the hash of the deliveries before the end of the first program, which runs that are
    /// alike share.
    pub(super) const fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the smallest time until a packet of a process affects another process: the latency to its card, the
    /// lookahead and the latency of the last link, or the latency of the inner path.
    pub(super) const fn process_latency(&self) -> Span {
        Span(self.process_latency.0 / 1_000)
    }
}

#[cfg(test)]
mod histories;
#[cfg(test)]
mod tests;
