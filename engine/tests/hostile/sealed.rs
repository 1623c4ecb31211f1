//! Histories of two endpoints that encrypt, with an attacker on the path between them. Data are
//! right in all of them.
//!
//! In half of the histories the attacker forges no handshakes and the processes live on: then all
//! operations succeed, as with an attacker off the path. In the others the attacker forges
//! handshakes, holds packets back for long, and processes restart: then operations may fail.
//!
//! In all of them hosts lose the secrets of their peers at times, as if they had forgotten them.

use squall_base::{JobKey, Rng, Span, Time};
use squall_engine::{Config, TransportConfig};

use super::application::Application;
use super::landing::Watch;
use super::lifetimes::{Life, Lives};
use super::on_path::ATTACKER;
use super::sealed_path::SealedPath;
use super::{Amount, Finding, faults, judge, make_peace};
use crate::world::{Faults, World, engine_config};

/// Virtual time within which every operation must end once the attack is over.
const PEACE: Span = Span::secs(600);
/// Largest sum of the times for which packets are held back in histories whose operations succeed.
/// An endpoint's patience at first contact is 60 s.
const ALLOWANCE: Span = Span::secs(20);
/// Typical times for which packets are held back, or processes are absent.
const LASTS: [Span; 5] =
    [Span::micros(50), Span::millis(3), Span::millis(300), Span::secs(3), Span::secs(12)];

/// Changes a configuration to that of an endpoint that encrypts.
fn adjust(config: &mut Config, pdc: &mut TransportConfig) {
    config.key = Some(JobKey::new(&[7; 16]));
    config.encrypts = true;
    // These are the default deadlines.
    let fresh = TransportConfig::new(1400, pdc.cc.clone(), pdc.paths.clone(), 1);
    pdc.contact_deadline = fresh.contact_deadline;
    pdc.progress_deadline = fresh.progress_deadline;
}

/// Plays the history `seed`.
pub(super) fn history(seed: u64) -> Result<Amount, Finding> {
    let mut rng = Rng::new(seed);
    let fierce = rng.chance(0.5);
    let mut world = World::with(2, rng.next_u64(), faults(&mut rng), adjust);
    world.seal_packets();
    world.gathers = seed % 8 == 7;
    world.refuses = rng.chance(0.5);
    world.tap = Some(vec![]);
    world.audit.plain = Some(vec![]);
    let mut sides = [0, 1].map(|at| Application::new(at, &mut world, rng.next_u64()));
    if matches!(seed % 8, 0..4) {
        sides = sides.map(|side| side.counts(&mut world, !seed));
    }
    if matches!(seed % 4, 2) {
        sides = sides.map(|side| side.orders(&mut world, false, !seed));
    }
    // Histories of the corpus do not use this.
    let relays = seed % 4 != 3;
    let mut attack = Attack::new((fierce, relays), &world, rng.next_u64());
    let mut watch = Watch::default();
    let mut amount = Amount::default();
    let budget = engine_config(0, 1).unexpected_bytes;
    for _ in 0..10 + rng.below(60) {
        let at = rng.below(2) as usize;
        if !world.hosts[at].dead {
            sides[at].act(&mut world);
            amount.operations += 1;
        }
        for _ in 0..rng.below(12) {
            let soon = world.now + Span::secs(2);
            world.step_before(soon.min(attack.next()));
            attack.end_due(&mut world, &mut sides);
            for _ in 0..rng.below(4) {
                amount.forged += u64::from(attack.strike(&mut world));
            }
            judge::budgets(&world, budget)?;
            if !fierce {
                watch.look(&world, &sides)?;
            }
        }
        if rng.chance(0.1) {
            attack.begin(&mut world);
            amount.troubles += 1;
        }
        if rng.chance(0.05) {
            attack.pass(&mut world, &mut sides);
        }
        for side in &mut sides {
            if !world.hosts[side.at].dead {
                side.reap(&mut world);
            }
        }
    }
    attack.end(&mut world, &mut sides);
    make_peace(&mut world, &mut sides, PEACE, (!fierce).then_some(&mut watch))?;
    attack.path.observe(&mut world);
    for (at, host) in world.hosts.iter().enumerate() {
        if host.engine.peers().find(ATTACKER).is_some() {
            return Err(Finding::new("the attacker is a verified peer", format!("host {at}")));
        }
    }
    if fierce {
        attack.lives.judge(&world, &sides, true)?;
        attack.lives.works_again(&mut world)?;
    } else {
        judge::memory(&world, &sides)?;
        judge::results(&world, &sides, false)?;
        judge::peace(&mut world, &sides)?;
    }
    judge::check_shutdown(&mut world)?;
    attack.path.observe(&mut world);
    Ok(amount)
}

/// The end of an event of the attack.
#[derive(Clone, Copy)]
enum End {
    /// The attacker lets packets pass again.
    Blockade,
    /// A process starts again.
    Absence(usize),
}

/// The attacker, and what happens to hosts and network meanwhile.
struct Attack {
    rng: Rng,
    path: SealedPath,
    /// Operations may fail.
    fierce: bool,
    /// Faults of the network while packets pass.
    faults: Faults,
    due: Vec<(Time, End)>,
    allowance: Span,
    lives: Lives,
}

impl Attack {
    fn new((fierce, relays): (bool, bool), world: &World, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        Self {
            path: SealedPath::new(fierce, relays, rng.next_u64()),
            rng,
            fierce,
            faults: world.faults,
            due: Vec::new(),
            allowance: ALLOWANCE,
            lives: Lives::new(world.now),
        }
    }

    /// Returns when the next event ends.
    fn next(&self) -> Time {
        self.due.iter().map(|(at, _)| *at).min().unwrap_or(Time::NEVER)
    }

    /// Sends a packet, unless there is none to send. Returns whether it did.
    fn strike(&mut self, world: &mut World) -> bool {
        let Some((packet, marks)) = self.path.strike(world) else { return false };
        // The process of the receiver has ended.
        if world.hosts.iter().any(|host| host.dead && host.addr == packet.dst) {
            return false;
        }
        world.inject(packet.src, packet.dst, marks, &packet.bytes);
        true
    }

    fn lasts(&mut self) -> Span {
        let most = LASTS[self.rng.below(5) as usize];
        Span((self.rng.unit() * most.0 as f64) as u64)
    }

    /// Starts a random event.
    fn begin(&mut self, world: &mut World) {
        let at = self.rng.below(2) as usize;
        match self.rng.below(10) {
            0..=3 => {
                let mut lasts = self.lasts();
                if !self.fierce {
                    lasts = lasts.min(self.allowance);
                    self.allowance = Span(self.allowance.0 - lasts.0);
                }
                // The attacker has seen the packets, and may deliver them later.
                world.faults.drop = [1.0, 1.0, 0.5][self.rng.below(3) as usize];
                self.due.push((world.now + lasts, End::Blockade));
            }
            4..=6 => {
                let other = world.hosts[1 - at].addr;
                if let Some(keys) = &mut world.hosts[at].keys {
                    keys.ring.remove(other);
                }
            }
            _ if self.fierce && world.hosts.iter().all(|host| !host.dead) => {
                world.crash(at);
                self.lives.end(at, world.now);
                let back = world.now + self.lasts();
                self.due.push((back, End::Absence(at)));
            }
            _ => {}
        }
    }

    /// Ends the events that are due.
    fn end_due(&mut self, world: &mut World, sides: &mut [Application; 2]) {
        while let Some(n) = self.due.iter().position(|(at, _)| *at <= world.now) {
            match self.due.swap_remove(n).1 {
                End::Blockade => world.faults = self.faults,
                End::Absence(at) => {
                    let (memory, done) = world.restart(at, adjust);
                    let life = self.lives.begin(at, world.now);
                    let mut app = Application::reborn(at, life, world, self.rng.next_u64());
                    if sides[at].counting.is_some() {
                        app = app.counts(world, life);
                    }
                    let app = core::mem::replace(&mut sides[at], app);
                    self.lives.keep(Life { app, memory, done });
                }
            }
        }
    }

    /// Advances the time while the applications do nothing and the attacker does.
    fn pass(&mut self, world: &mut World, sides: &mut [Application; 2]) {
        let end = world.now + self.lasts();
        while world.now < end {
            let next = self.next().min(end);
            if !world.step_before(next) {
                world.now = world.now.max(next);
            }
            self.end_due(world, sides);
            if self.rng.chance(0.3) {
                self.strike(world);
            }
        }
    }

    /// Ends the attack.
    fn end(&mut self, world: &mut World, sides: &mut [Application; 2]) {
        while !self.due.is_empty() {
            let next = self.next();
            if !world.step_before(next) {
                world.now = world.now.max(next);
            }
            self.end_due(world, sides);
        }
        world.faults = self.faults;
    }
}
