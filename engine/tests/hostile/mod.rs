//! Random histories of two engines in virtual time: an application at each performs random
//! operations, with a network with faults and an attacker between them. Then the attack ends, and
//! all operations must end. The seed determines the history.
//!
//! - `application`: random operations and their expected results;
//! - `counting`: atomics, checked against a reference;
//! - `ordered`: operations whose order is judged, fenced or promised;
//! - `on_path`: an attacker that sees all packets and derives others from them;
//! - `off_path`: an attacker that sees none, and knows addresses, formats and the job;
//! - `sealed`: endpoints that encrypt, and `sealed_path`: the attacker between them, which sees all
//!   packets;
//! - `long`: no attacker, but so many operations that numbers wrap, and small tables;
//! - `trouble`: no attacker, but processes that end, restart or pause, paths that carry less, cut
//!   links;
//! - `judge`: judgement at the end; `lives`: the same where processes end; `landing`: reports to
//!   targets.
//!
//! In every history nothing panics, overflows, or accesses memory that is not lent
//! (`world::VecMemory` fails then); every operation ends, or can be cancelled, within [`PEACE`];
//! budgets hold; and contexts end. Without an attacker on the path, or with encryption, messages also
//! arrive as sent, once, in order and byte for byte, and every operation ends as it would without an
//! attacker (in some histories with encryption it may fail).
#![allow(dead_code, unreachable_pub)] // each program uses its own part

mod application;
mod counting;
mod judge;
mod landing;
mod lifetimes;
mod long;
mod off_path;
mod on_path;
mod ordered;
mod sealed;
mod sealed_path;
mod trouble;

use core::str::FromStr;

use squall_base::{Rng, Span};
use squall_engine::Config;

use crate::histories::{Amount, Finding, guard};
use crate::world::{Faults, Seen, World, engine_config};
use application::Application;
use landing::Watch;
use off_path::OffPath;
use on_path::OnPath;

/// Virtual time within which every operation must end once the attack is over.
const PEACE: Span = Span::secs(120);
/// Number of packets from which an on-path attacker chooses.
const REMEMBERED: usize = 256;

/// The capabilities of the attacker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// There is no attacker.
    Honest,
    /// The attacker reads all packets and sends any.
    OnPath,
    /// The attacker sends any packets but reads none.
    OffPath,
    /// The endpoints encrypt, and the attacker reads all packets and sends any.
    Sealed,
    /// There is no attacker, but processes end and pause, and paths change.
    Trouble,
    /// There is no attacker, but numbers wrap and tables are small.
    Long,
}

impl Mode {
    /// All modes, the one that finds most first.
    pub const ALL: [Self; 6] =
        [Self::OnPath, Self::Honest, Self::OffPath, Self::Sealed, Self::Trouble, Self::Long];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Honest => "honest",
            Self::OnPath => "on-path",
            Self::OffPath => "off-path",
            Self::Sealed => "sealed",
            Self::Trouble => "trouble",
            Self::Long => "long",
        }
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|mode| mode.name() == name);
        known.ok_or_else(|| format!("{name:?} is no mode"))
    }
}

enum Attacker {
    None,
    OnPath(OnPath),
    OffPath(OffPath),
}

/// Plays the history `seed`. A panic of an engine, or an access to memory that is not lent, is a
/// finding as well.
///
/// # Errors
/// The first finding.
pub fn play(mode: Mode, seed: u64) -> Result<Amount, Finding> {
    guard::play(|| history(mode, seed))
}

fn history(mode: Mode, seed: u64) -> Result<Amount, Finding> {
    if mode == Mode::Trouble {
        return trouble::history(seed);
    }
    if mode == Mode::Sealed {
        return sealed::history(seed);
    }
    if mode == Mode::Long {
        return long::history(seed);
    }
    let mut rng = Rng::new(seed);
    // Histories of the corpus do not use this.
    let orders = mode != Mode::OnPath && matches!(seed % 8, 2 | 5 | 6);
    let promised = orders && seed % 16 < 8;
    let promise = |config: &mut Config| {
        config.order = if promised { ordered::promise() } else { config.order };
    };
    let mut world = World::with(2, rng.next_u64(), faults(&mut rng), |config, _| promise(config));
    let mut budget = engine_config(0, 1).unexpected_bytes;
    if rng.chance(0.2) {
        budget = [40_000, 0, 2_000, 10_000][seed as usize % 4];
        world = World::with(2, rng.next_u64(), world.faults, |config, _| {
            // The budget is less than what is sent ahead of the receives, so payload or whole
            // messages stay at the senders.
            config.unexpected_bytes = budget;
            config.max_unexpected = [1000, 3][seed as usize / 4 % 2];
            promise(config);
        });
    }
    // Histories of the corpus do not use this.
    world.gathers = seed % 8 == 7;
    let mut attacker = match mode {
        Mode::Honest | Mode::Sealed | Mode::Trouble | Mode::Long => Attacker::None,
        // Histories of the corpus do not use this.
        Mode::OnPath => Attacker::OnPath(OnPath::new(rng.next_u64()).relays(seed % 16 == 7)),
        Mode::OffPath => Attacker::OffPath(OffPath::new(rng.next_u64())),
    };
    world.tap = (mode == Mode::OnPath).then(Vec::new);
    let mut sides = [0, 1].map(|at| Application::new(at, &mut world, rng.next_u64()));
    // Histories of the corpus do not use this.
    if seed % 8 == 7 {
        sides = sides.map(|side| side.counts(&mut world, !seed));
    }
    if orders {
        sides = sides.map(|side| side.orders(&mut world, promised, !seed));
    }
    let all_accesses = orders && seed % 32 >= 16;
    if all_accesses {
        world.hosts.iter_mut().for_each(|host| host.engine.report_accesses());
    }
    if orders && seed % 64 >= 32 {
        sides = sides.map(|side| side.counts(&mut world, !seed));
    }
    let trusted = mode != Mode::OnPath;
    let mut watch = trusted.then(Watch::default);
    let mut amount = Amount::default();
    for _ in 0..10 + rng.below(60) {
        let side = &mut sides[rng.below(2) as usize];
        side.act(&mut world);
        amount.operations += 1;
        for _ in 0..rng.below(12) {
            let soon = world.now + Span::secs(2);
            world.step_before(soon);
            for _ in 0..rng.below(4) {
                amount.forged += u64::from(attacker.strike(&mut world));
            }
            judge::budgets(&world, budget)?;
            if let Some(watch) = &mut watch {
                watch.look(&world, &sides)?;
            }
        }
        sides.iter_mut().for_each(|side| side.reap(&mut world));
    }
    world.tap = None;
    make_peace(&mut world, &mut sides, PEACE, watch.as_mut())?;
    judge::memory(&world, &sides)?;
    if trusted {
        judge::results(&world, &sides, all_accesses)?;
        judge::peace(&mut world, &sides)?;
        for at in (0..2).filter(|_| all_accesses) {
            landing::accesses(&world.hosts[at].done, &sides[1 - at], &sides[at])?;
        }
    }
    if mode == Mode::Honest {
        judge::honesty(&world)?;
    }
    judge::check_shutdown(&mut world)?;
    Ok(amount)
}

fn faults(rng: &mut Rng) -> Faults {
    let rough = rng.chance(0.5);
    let mut some = |p: f64| if rough { rng.unit() * p } else { 0.0 };
    Faults {
        drop: some(0.05),
        duplicate: some(0.05),
        reorder: some(0.3),
        trim: some(0.05),
        ce: some(0.2),
        black_hole: None,
        first_set: false,
        dead_spine: None,
    }
}

/// Ends the attack and posts a receive for every message, so that all operations end. Receives
/// without a message are cancelled afterwards.
fn make_peace(
    world: &mut World,
    sides: &mut [Application; 2],
    peace: Span,
    mut watch: Option<&mut Watch>,
) -> Result<(), Finding> {
    let end = world.now + peace;
    let live: Vec<usize> = (0..2).filter(|&at| !world.hosts[at].dead).collect();
    let mut look = |world: &World, sides: &[Application; 2]| {
        watch.as_mut().map_or(Ok(()), |watch| watch.look(world, sides))
    };
    loop {
        live.iter().for_each(|&at| sides[at].reap(world));
        live.iter().for_each(|&at| sides[at].welcome(world));
        let quiet = world.hosts.iter().all(|host| host.dead || host.engine.is_idle());
        if quiet && live.iter().all(|&at| sides[at].is_over(world)) {
            break;
        }
        // A waiting message matches its receive without a packet or a timer, and makes room for the
        // next one.
        let stepped = world.step_before(end);
        look(world, sides)?;
        if !stepped && !live.iter().any(|&at| sides[at].has_news(world)) {
            break;
        }
    }
    // Receives that have matched a message cannot be cancelled, so wait for them.
    loop {
        live.iter().for_each(|&at| sides[at].cancel_all(world));
        live.iter().for_each(|&at| sides[at].reap(world));
        look(world, sides)?;
        if live.iter().all(|&at| sides[at].has_ended()) {
            return Ok(());
        }
        if !world.step_before(end) {
            let live: Vec<&Application> = live.iter().map(|&at| &sides[at]).collect();
            return Err(judge::stuck(world, &live));
        }
    }
}

impl Attacker {
    /// Sends a packet, unless there is none to send. Returns whether it did.
    fn strike(&mut self, world: &mut World) -> bool {
        let strike = match self {
            Self::None => None,
            Self::OffPath(attacker) => Some(attacker.strike(world)),
            Self::OnPath(attacker) => {
                if let Some(tap) = &mut world.tap {
                    let old = tap.len().saturating_sub(REMEMBERED);
                    tap.drain(..old);
                }
                attacker.strike(world)
            }
        };
        let Some((packet, marks)) = strike else { return false };
        let Seen { src, dst, bytes } = packet;
        world.inject(src, dst, marks, &bytes);
        true
    }
}
