//! How the parts of a simulation run beside each other.
//!
//! What one part does reaches another no sooner than a link takes, so all run as far as that from the earliest thing
//! that happens anywhere, then wait for each other and take what was handed over: conservative windows, as of Chandy and
//! Misra (1979) with the global minimum. Each part makes the same decision from the same numbers.

use core::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::packet::Whole;
use super::part::Part;
use super::results::{End, Observer};
use crate::Picos;
use crate::model::{PacketHeader, PacketOptions, Partition, Transfer};

/// What goes from one part to another.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) what: Transfer,
    /// The packet, if it is one.
    pub(super) packet: Option<CarriedPacket>,
}

/// A packet outside of all parts.
#[derive(Debug)]
pub(super) struct CarriedPacket {
    pub(super) header: PacketHeader,
    /// The host that sent it.
    pub(super) source: u32,
    pub(super) options: Option<Box<PacketOptions>>,
    pub(super) rest: Whole,
}

/// State of a part, which it reports before each window.
#[derive(Clone, Copy, Debug)]
struct PartReport {
    /// When something happens next in it, or comes of what it handed over.
    next: Picos,
    /// Flows that are finished.
    finished: usize,
    /// Triggers that are about to be activated by others.
    pending: usize,
    events: u64,
    /// The observer breaks off.
    stop: bool,
}

impl PartReport {
    const NOTHING: Self =
        Self { next: Picos::NEVER, finished: 0, pending: 0, events: 0, stop: false };

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
    /// What was said so far this time, and by how many.
    said: PartReport,
    there: u32,
    /// What was said the last time, and how often all met.
    all: PartReport,
    round: u64,
    /// Somebody will never come.
    broken: bool,
}

/// What all parts share while they run.
#[derive(Debug)]
pub(super) struct Lockstep<'a> {
    partition: &'a Partition,
    meeting: Mutex<WindowBarrier>,
    met: Condvar,
    /// [`WindowBarrier::round`], for who looks without the lock.
    round: AtomicU64,
    /// What is handed over to each part from each, in even and odd rounds: who is done with a round writes for the next
    /// while others still read.
    mail: [Vec<Mutex<Vec<Parcel>>>; 2],
    rule: Rule,
}

/// When a simulation ends, and how far a part may go alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// Flows there are.
    flows: usize,
    /// Stop here, done or not.
    until: Picos,
    /// What one part does reaches another no sooner.
    ahead: Picos,
    /// When all is done, it goes on to the end of such a span from the beginning, for parts cannot know of each other
    /// sooner that they are.
    span: Picos,
}

impl Rule {
    /// For a network whose parts are so far from each other; `None` if it cannot have any.
    pub(super) fn new(flows: usize, until: Picos, ahead: Option<Picos>) -> Self {
        let least = Picos::micros(1);
        let ahead = ahead.unwrap_or(least);
        Self { flows, until, ahead, span: Picos(least.0.div_ceil(ahead.0) * ahead.0) }
    }

    /// For who has the whole network.
    const fn alone(self) -> Self {
        Self { ahead: self.span, ..self }
    }

    /// What comes after what was said, when the span of number `at` was the last: until when each part goes on, and the number
    /// of that span; or the end.
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

/// Looks at whether the others are there before a part sleeps: about as long as it takes to be woken.
const SPINS: u32 = 1000;

/// A lock whose owner panicked holds nothing half done: what is in it is replaced as a whole.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Breaks the meeting when its part panics, so that nobody waits for it.
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
            said: PartReport::NOTHING,
            there: 0,
            all: PartReport::NOTHING,
            round: 0,
            broken: false,
        };
        let (meeting, met) = (Mutex::new(meeting), Condvar::new());
        let rule = if partition.parts() == 1 { rule.alone() } else { rule };
        let round = AtomicU64::new(0);
        Self { partition, meeting, met, round, mail: [mail(), mail()], rule }
    }

    /// Runs part `number` to the end of the simulation, beside the others.
    pub(super) fn run(&self, part: &mut Part, number: u32, mut watch: Option<Watch<'_>>) -> End {
        let _absence = Absence(self);
        let (mut at, mut parity, mut stop) = (None, 0, false);
        let mut transfers = Picos::NEVER;
        let mut out: Vec<Vec<Parcel>> = Vec::new();
        out.resize_with(self.partition.parts() as usize, Vec::new);
        loop {
            let next = part.network.next_event().unwrap_or(Picos::NEVER).min(transfers);
            let said = PartReport {
                next,
                finished: part.ends.flows.finished,
                pending: part.computed.pending,
                events: part.network.events(),
                stop,
            };
            let Some(all) = self.meet(said) else { return End::Interrupted };
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
                        part.network.rest(self.rule.until);
                    }
                    return end;
                }
            };
            if let Some(watch) = &mut watch {
                stop = watch.look(part.network.now(), &all);
            }
            part.step(until);
            parity ^= 1;
            transfers = Picos::NEVER;
            part.hand_over(|to, parcel| {
                transfers = transfers.min(parcel.what.at);
                out[self.partition.of(to) as usize].push(parcel);
            });
            for (to, parcels) in (0..).zip(&mut out) {
                // What was there is taken; its memory is used again.
                let mut mail = lock(&self.mail[parity][self.place(number, to)]);
                core::mem::swap(&mut *mail, parcels);
            }
        }
    }

    fn place(&self, from: u32, to: u32) -> usize {
        from as usize * self.partition.parts() as usize + to as usize
    }

    /// Waits until all parts have said something; what they said together, or `None` if one never will.
    fn meet(&self, said: PartReport) -> Option<PartReport> {
        let mut meeting = lock(&self.meeting);
        let round = meeting.round;
        meeting.said = meeting.said.with(&said);
        meeting.there += 1;
        if meeting.there == self.partition.parts() {
            meeting.all = core::mem::replace(&mut meeting.said, PartReport::NOTHING);
            meeting.there = 0;
            meeting.round += 1;
            self.round.store(meeting.round, Ordering::Release);
            self.met.notify_all();
            return Some(meeting.all);
        }
        drop(meeting);
        // Parts of one size come at about one time, and to be woken takes longer than that.
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

/// Events between two looks of the observer.
const LOOK: u64 = 1 << 16;

/// Lets somebody look on.
pub(super) struct Watch<'a> {
    observer: &'a mut dyn Observer,
    next: u64,
}

impl<'a> Watch<'a> {
    pub(super) fn new(observer: &'a mut dyn Observer) -> Self {
        Self { observer, next: LOOK }
    }

    /// Whether he breaks off.
    fn look(&mut self, now: Picos, all: &PartReport) -> bool {
        if all.events < self.next {
            return false;
        }
        self.next = all.events + LOOK;
        self.observer.progress(now, all.finished, all.events) == ControlFlow::Break(())
    }
}

#[cfg(test)]
mod tests;
