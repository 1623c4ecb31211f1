//! Parallel execution of the parts of a simulation.
//!
//! An action of one part reaches another no sooner than a link takes. All parts therefore run that
//! far beyond the earliest event anywhere, then wait for each other and take over the packets that
//! were transferred: conservative windows, as of Chandy and Misra (1979) with the global minimum.
//! Each part makes the same decision from the same numbers.

use core::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::packet::Whole;
use super::part::Part;
use super::results::{End, Observer};
use crate::Picos;
use crate::model::{PacketHeader, PacketOptions, Partition, Transfer};

/// A packet or pause frame on its way from one part to another.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) what: Transfer,
    /// Contents of the packet; `None` for a pause frame.
    pub(super) packet: Option<CarriedPacket>,
}

/// A packet that has left one part and not yet entered the next.
#[derive(Debug)]
pub(super) struct CarriedPacket {
    pub(super) header: PacketHeader,
    /// Number of the host that sent the packet.
    pub(super) source: u32,
    pub(super) options: Option<Box<PacketOptions>>,
    pub(super) rest: Whole,
}

/// State of a part at the end of a window, which it reports at the barrier.
#[derive(Clone, Copy, Debug)]
struct PartReport {
    /// Time of the next event in the part, or of the earliest arrival of a transfer that it handed
    /// over.
    next: Picos,
    /// Number of flows that have finished.
    finished: usize,
    /// Number of triggers that other triggers have yet to activate.
    pending: usize,
    events: u64,
    /// True if the observer stops the simulation.
    stop: bool,
}

impl PartReport {
    /// The report that changes nothing when it is combined with others.
    const NOTHING: Self =
        Self { next: Picos::NEVER, finished: 0, pending: 0, events: 0, stop: false };

    /// Combines the reports of two parts: the earliest event, and the sums of the counts.
    fn with(self, other: &Self) -> Self {
        Self {
            next: self.next.min(other.next),
            finished: self.finished + other.finished,
            pending: self.pending + other.pending,
            events: self.events + other.events,
            stop: self.stop || other.stop,
        }
    }
}

/// Barrier at which the parts wait for one another before each window.
#[derive(Debug)]
struct WindowBarrier {
    /// Combined reports of the parts that have arrived at the barrier in the current round.
    sum: PartReport,
    /// Number of parts that have arrived at the barrier in the current round.
    there: u32,
    /// Combined reports of all parts in the last round in which all had arrived.
    all: PartReport,
    /// Number of rounds in which all parts have arrived.
    round: u64,
    /// True if a part panicked. The others then stop, because it will never arrive.
    broken: bool,
}

/// State that all parts share while they run.
#[derive(Debug)]
pub(super) struct Lockstep<'a> {
    partition: &'a Partition,
    meeting: Mutex<WindowBarrier>,
    met: Condvar,
    /// Copy of [`WindowBarrier::round`] that parts read without the lock.
    round: AtomicU64,
    /// Mailboxes from each part to each part, for even and odd rounds: a part that has finished a
    /// round writes for the next while others still read.
    mail: [Vec<Mutex<Vec<Parcel>>>; 2],
    rule: Rule,
}

/// Rule for the end of a simulation, and for how far a part may run on its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// Total number of flows of the simulation.
    flows: usize,
    /// Simulated time at which the simulation stops at the latest.
    until: Picos,
    /// Minimum time in which an action of one part reaches another.
    ahead: Picos,
    /// Length of a span. When all flows are finished, the simulation continues to the end of the
    /// current span, counted from time zero, because parts cannot learn sooner that the others are
    /// finished.
    span: Picos,
}

impl Rule {
    /// Creates the rule for a network whose parts are at least `ahead` apart; `None` if the network
    /// cannot be divided.
    pub(super) fn new(flows: usize, until: Picos, ahead: Option<Picos>) -> Self {
        let least = Picos::micros(1);
        let ahead = ahead.unwrap_or(least);
        Self { flows, until, ahead, span: Picos(least.0.div_ceil(ahead.0) * ahead.0) }
    }

    /// Returns the rule for a single part that has the whole network.
    const fn for_one_part(self) -> Self {
        Self { ahead: self.span, ..self }
    }

    /// Decides what follows the summed reports `all`, when `at` is the number of the last span.
    /// Returns the time until which each part continues and the number of that span, or the reason
    /// of the end.
    fn decide(&self, all: &PartReport, at: Option<u64>) -> Result<(Picos, u64), End> {
        if all.stop {
            return Err(End::Interrupted);
        }
        let span = all.next.0 / self.span.0;
        if all.finished == self.flows
            && all.pending == 0
            && (at != Some(span) || all.next == Picos::NEVER)
        {
            return Err(End::Done);
        }
        if all.next == Picos::NEVER {
            return Err(End::Stuck);
        }
        if all.next > self.until {
            return Err(End::TimeUp);
        }
        let end = Picos((span + 1).saturating_mul(self.span.0) - 1);
        Ok(((all.next + self.ahead).min(end).min(self.until), span))
    }
}

/// Number of checks for the other parts before a part sleeps: about as long as waking up takes.
const SPINS: u32 = 1000;

/// Locks a mutex, even a poisoned one: its contents are always replaced as a whole, so they are
/// never half changed.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Guard that breaks the barrier when its part panics, so that no other part waits for it.
struct Absence<'a, 'b>(&'a Lockstep<'b>);

impl Drop for Absence<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(&self.0.meeting).broken = true;
            self.0.met.notify_all();
        }
    }
}

impl<'a> Lockstep<'a> {
    pub(super) fn new(partition: &'a Partition, rule: Rule) -> Self {
        let places = partition.parts() * partition.parts();
        let mail = || (0..places).map(|_| Mutex::default()).collect();
        let meeting = WindowBarrier {
            sum: PartReport::NOTHING,
            there: 0,
            all: PartReport::NOTHING,
            round: 0,
            broken: false,
        };
        let (meeting, met) = (Mutex::new(meeting), Condvar::new());
        let rule = if partition.parts() == 1 { rule.for_one_part() } else { rule };
        let round = AtomicU64::new(0);
        Self { partition, meeting, met, round, mail: [mail(), mail()], rule }
    }

    /// Runs part `number` to the end of the simulation, in parallel with the others.
    pub(super) fn run(&self, part: &mut Part, number: u32, mut watch: Option<Watch<'_>>) -> End {
        let _absence = Absence(self);
        let (mut at, mut parity, mut stop) = (None, 0, false);
        let mut transfers = Picos::NEVER;
        let mut out: Vec<Vec<Parcel>> = Vec::new();
        out.resize_with(self.partition.parts() as usize, Vec::new);
        loop {
            let next = part.network.next_event().unwrap_or(Picos::NEVER).min(transfers);
            let report = PartReport {
                next,
                finished: part.ends.flows.finished,
                pending: part.computed.pending,
                events: part.network.events(),
                stop,
            };
            let Some(all) = self.wait_for_all(report) else { return End::Interrupted };
            for from in 0..self.partition.parts() {
                let mail = &self.mail[parity][self.place(from, number)];
                lock(mail).drain(..).for_each(|parcel| part.take(parcel));
            }
            let until = match self.rule.decide(&all, at) {
                Ok((until, span)) => {
                    at = Some(span);
                    until
                }
                Err(end) => {
                    if end == End::TimeUp {
                        part.network.advance_to(self.rule.until);
                    }
                    return end;
                }
            };
            if let Some(watch) = &mut watch {
                stop = watch.call_if_due(part.network.now(), &all);
            }
            part.step(until);
            parity ^= 1;
            transfers = Picos::NEVER;
            part.hand_over(|to, parcel| {
                transfers = transfers.min(parcel.what.at);
                out[self.partition.of(to) as usize].push(parcel);
            });
            for (to, parcels) in (0..).zip(&mut out) {
                // The receiver has emptied the other vector; the swap reuses its memory.
                let mut mail = lock(&self.mail[parity][self.place(number, to)]);
                core::mem::swap(&mut *mail, parcels);
            }
        }
    }

    fn place(&self, from: u32, to: u32) -> usize {
        from as usize * self.partition.parts() as usize + to as usize
    }

    /// Waits until all parts have reported. Returns the sum of their reports, or `None` if a part
    /// has failed and will never report.
    fn wait_for_all(&self, report: PartReport) -> Option<PartReport> {
        let mut meeting = lock(&self.meeting);
        let round = meeting.round;
        meeting.sum = meeting.sum.with(&report);
        meeting.there += 1;
        if meeting.there == self.partition.parts() {
            meeting.all = core::mem::replace(&mut meeting.sum, PartReport::NOTHING);
            meeting.there = 0;
            meeting.round += 1;
            self.round.store(meeting.round, Ordering::Release);
            self.met.notify_all();
            return Some(meeting.all);
        }
        drop(meeting);
        // The code spins before it sleeps, because parts of equal size arrive at about the same
        // time, and waking up a thread takes longer than that.
        for _ in 0..SPINS {
            if self.round.load(Ordering::Acquire) != round {
                break;
            }
            core::hint::spin_loop();
        }
        let mut meeting = lock(&self.meeting);
        while meeting.round == round {
            if meeting.broken {
                return None;
            }
            meeting = self.met.wait(meeting).unwrap_or_else(PoisonError::into_inner);
        }
        Some(meeting.all)
    }
}

/// Number of events that the simulator processes between two calls of the observer.
const LOOK: u64 = 1 << 16;

/// Calls the observer of a simulation from time to time.
pub(super) struct Watch<'a> {
    observer: &'a mut dyn Observer,
    next: u64,
}

impl<'a> Watch<'a> {
    pub(super) fn new(observer: &'a mut dyn Observer) -> Self {
        Self { observer, next: LOOK }
    }

    /// Calls the observer if it is due, and returns whether it stops the simulation.
    fn call_if_due(&mut self, now: Picos, all: &PartReport) -> bool {
        if all.events < self.next {
            return false;
        }
        self.next = all.events + LOOK;
        self.observer.progress(now, all.finished, all.events) == ControlFlow::Break(())
    }
}

#[cfg(test)]
mod tests;
