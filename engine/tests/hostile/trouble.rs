//! DestinationError without an attacker: processes that end and restart at the same address or not, that
//! pause, or call without making progress; paths that carry less than is sent, with and without a
//! report; links that are cut for a while; and loss, duplication and reordering.
//!
//! The pauses and cuts of a history are shorter in sum than the patience of an endpoint. So where
//! no process ends, every operation succeeds.

use squall_base::{Rng, Span, Time};
use squall_engine::{Config, TransportConfig};

use super::application::Application;
use super::landing::Watch;
use super::lifetimes::{Life, Lives};
use super::{Amount, Finding, faults, judge, make_peace, ordered};
use crate::world::{Faults, ReducedPath, World, engine_config};

/// Largest sum of the pauses and cuts of a history. An endpoint's patience at first contact is 60
/// s.
const ALLOWANCE: Span = Span::secs(40);
/// Virtual time within which every operation must end: more than twice the patience with the sender
/// of an incomplete message.
const PEACE: Span = Span::secs(600);
/// Typical durations of a trouble; the last is the longest.
const LASTS: [Span; 6] = [
    Span::micros(50),
    Span::millis(3),
    Span::millis(300),
    Span::secs(3),
    Span::secs(12),
    Span::secs(40),
];
/// UDP payload sizes in bytes that paths carry: at least what every IPv4 host accepts.
const SIZES: [usize; 6] = [544, 700, 1168, 1248, 1399, 4000];
/// Longest packets of some endpoints in bytes.
const WIDE: u32 = 8968;

/// Plays the history `seed`.
pub(super) fn history(seed: u64) -> Result<Amount, Finding> {
    let mut rng = Rng::new(seed);
    let mut kind = OpClass::new(&mut rng);
    // Histories of the corpus do not use this.
    let orders = matches!(seed % 8, 2 | 5);
    kind.promised = orders && seed % 16 < 8;
    let mut world =
        World::with(2, rng.next_u64(), faults(&mut rng), |engine, pdc| kind.adjust(engine, pdc));
    // Histories of the corpus do not use this.
    world.gathers = seed % 8 == 6;
    world.refuses = rng.chance(0.5);
    let mut sides = [0, 1].map(|at| Application::new(at, &mut world, rng.next_u64()));
    // Histories of the corpus do not use this.
    if matches!(seed % 8, 0 | 2 | 3) {
        sides = sides.map(|side| side.counts(&mut world, !seed));
    }
    if orders {
        sides = sides.map(|side| side.orders(&mut world, kind.promised, !seed));
    }
    let mut watch = Watch::default();
    let mut troubles = Troubles::new(kind, &world, rng.next_u64());
    let mut amount = Amount::default();
    for _ in 0..10 + rng.below(60) {
        let at = rng.below(2) as usize;
        if troubles.acts(&world, at) {
            sides[at].act(&mut world);
            amount.operations += 1;
        }
        for _ in 0..rng.below(12) {
            let soon = world.now + Span::secs(2);
            world.step_before(soon.min(troubles.next()));
            troubles.fall_due(&mut world, &mut sides);
            judge::budgets(&world, kind.budget)?;
            if troubles.lives.is_whole() {
                watch.look(&world, &sides)?;
            }
        }
        if rng.chance(0.1) {
            troubles.begin(&mut world);
            amount.troubles += 1;
        }
        if rng.chance(0.1) {
            let span = troubles.lasts();
            troubles.pass(&mut world, &mut sides, span);
        }
        for side in &mut sides {
            if troubles.acts(&world, side.at) {
                side.reap(&mut world);
            }
        }
    }
    troubles.end(&mut world, &mut sides);
    let whole = troubles.lives.is_whole();
    make_peace(&mut world, &mut sides, PEACE, whole.then_some(&mut watch))?;
    if troubles.lives.is_whole() {
        judge::memory(&world, &sides)?;
        judge::results(&world, &sides, false)?;
        judge::peace(&mut world, &sides)?;
    } else {
        troubles.lives.judge(&world, &sides, false)?;
        troubles.lives.works_again(&mut world)?;
    }
    judge::honesty(&world)?;
    judge::check_shutdown(&mut world)?;
    Ok(amount)
}

/// The configuration of the endpoints of a history.
#[derive(Clone, Copy)]
struct OpClass {
    wide: bool,
    budget: u64,
    max_unexpected: usize,
    /// The endpoint promises an order of operations.
    promised: bool,
}

impl OpClass {
    fn new(rng: &mut Rng) -> Self {
        let wide = rng.chance(0.5);
        let ample = engine_config(0, 1);
        if rng.chance(0.8) {
            return Self {
                wide,
                budget: ample.unexpected_bytes,
                max_unexpected: ample.max_unexpected,
                promised: false,
            };
        }
        let budget = [40_000, 0, 2_000, 10_000][rng.below(4) as usize];
        let max_unexpected = [1000, 3][rng.below(2) as usize];
        Self { wide, budget, max_unexpected, promised: false }
    }

    fn adjust(&self, engine: &mut Config, pdc: &mut TransportConfig) {
        (engine.unexpected_bytes, engine.max_unexpected) = (self.budget, self.max_unexpected);
        if self.promised {
            engine.order = ordered::promise();
        }
        let fresh = TransportConfig::new(1400, pdc.cc.clone(), pdc.paths.clone(), 1);
        // This is the default deadline.
        pdc.contact_deadline = fresh.contact_deadline;
        pdc.progress_deadline = fresh.progress_deadline;
        if self.wide {
            (engine.max_packet, pdc.mtu) = (WIDE, WIDE);
        }
    }
}

/// The end of a trouble.
#[derive(Clone, Copy)]
enum End {
    /// A stopped process continues and gets this many of the packets that arrived.
    Pause(usize, usize),
    /// A process starts again.
    Absence(usize),
    /// The link carries packets again.
    Cut,
}

struct Troubles {
    rng: Rng,
    kind: OpClass,
    /// Faults of the network while it is not cut.
    faults: Faults,
    due: Vec<(Time, End)>,
    allowance: Span,
    /// Processes end in this history.
    deadly: bool,
    /// Applications whose process makes no progress.
    busy: [bool; 2],
    lives: Lives,
}

impl Troubles {
    fn new(kind: OpClass, world: &World, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let deadly = rng.chance(0.5);
        Self {
            rng,
            kind,
            faults: world.faults,
            due: Vec::new(),
            allowance: ALLOWANCE,
            deadly,
            busy: [false; 2],
            lives: Lives::new(world.now),
        }
    }

    /// Returns whether an application calls its engine now.
    fn acts(&self, world: &World, at: usize) -> bool {
        let host = &world.hosts[at];
        !host.dead && (!host.stopped || self.busy[at])
    }

    /// Returns when the next trouble ends.
    fn next(&self) -> Time {
        self.due.iter().map(|(at, _)| *at).min().unwrap_or(Time::NEVER)
    }

    fn lasts(&mut self) -> Span {
        let most = LASTS[self.rng.below(6) as usize];
        Span((self.rng.unit() * most.0 as f64) as u64)
    }

    /// Returns a duration that the other side must tolerate.
    fn bearable(&mut self) -> Span {
        let lasts = self.lasts().min(self.allowance);
        self.allowance = Span(self.allowance.0 - lasts.0);
        lasts
    }

    /// Starts a random trouble.
    fn begin(&mut self, world: &mut World) {
        let at = self.rng.below(2) as usize;
        match self.rng.below(10) {
            0..=2 => {
                let lasts = self.bearable();
                self.pause(world, at, lasts);
            }
            3 => {
                let lasts = self.bearable();
                self.pause(world, 0, lasts);
                let lasts = self.lasts().min(lasts);
                self.pause(world, 1, lasts);
            }
            4 => {
                let lasts = self.bearable();
                world.faults.drop = 1.0;
                self.due.push((world.now + lasts, End::Cut));
            }
            5 | 6 => {
                let bytes = SIZES[self.rng.below(6) as usize];
                let narrow = ReducedPath::new(bytes, self.rng.chance(0.5));
                world.narrow = self.rng.chance(0.8).then_some(narrow);
            }
            _ if self.deadly && world.hosts.iter().all(|host| !host.dead) => {
                world.crash(at);
                self.lives.end(at, world.now);
                let returns = self.rng.chance(0.8);
                // Sometimes the absence is longer than any patience.
                let away = Span(self.lasts().0 * 4);
                if returns {
                    self.due.push((world.now + away, End::Absence(at)));
                }
            }
            _ => {}
        }
    }

    fn pause(&mut self, world: &mut World, at: usize, lasts: Span) {
        if world.hosts[at].dead || world.hosts[at].stopped {
            return;
        }
        world.hosts[at].stopped = true;
        self.busy[at] = self.rng.chance(0.3);
        let fits = [0, 3, usize::MAX][self.rng.below(3) as usize];
        self.due.push((world.now + lasts, End::Pause(at, fits)));
    }

    /// Ends the troubles that are due.
    fn fall_due(&mut self, world: &mut World, sides: &mut [Application; 2]) {
        while let Some(n) = self.due.iter().position(|(at, _)| *at <= world.now) {
            match self.due.swap_remove(n).1 {
                End::Pause(at, fits) if world.hosts[at].stopped => world.resume(at, fits),
                End::Pause(..) => {}
                End::Absence(at) => {
                    let kind = self.kind;
                    let (memory, done) = world.restart(at, |engine, pdc| kind.adjust(engine, pdc));
                    let life = self.lives.begin(at, world.now);
                    let mut app = Application::reborn(at, life, world, self.rng.next_u64());
                    if sides[at].counting.is_some() {
                        app = app.counts(world, life);
                    }
                    let app = core::mem::replace(&mut sides[at], app);
                    self.lives.keep(Life { app, memory, done });
                }
                End::Cut => world.faults = self.faults,
            }
        }
    }

    /// Advances the time while the applications do nothing.
    fn pass(&mut self, world: &mut World, sides: &mut [Application; 2], span: Span) {
        let end = world.now + span;
        while world.now < end {
            let next = self.next().min(end);
            if !world.step_before(next) {
                world.now = world.now.max(next);
            }
            self.fall_due(world, sides);
        }
    }

    /// Ends all troubles except narrow paths and processes that do not return.
    fn end(&mut self, world: &mut World, sides: &mut [Application; 2]) {
        while !self.due.is_empty() {
            let next = self.next();
            let span = next.since(world.now);
            self.pass(world, sides, span.max(Span(1)));
        }
        world.faults = self.faults;
    }
}
