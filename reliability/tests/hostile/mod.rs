//! Random histories of two endpoints in virtual time, with any of the algorithms, a link with
//! faults, and an attacker. The attacker sends either endpoint arbitrary packets: slightly changed
//! copies of real ones, and others with numbers near the real ones. A history follows from its
//! seed.
//!
//! Checks of every history: nothing panics or overflows; the packets outstanding, in flight and
//! stored are bounded; every packet has a fate; unused contexts end; and an endpoint that goes on
//! sending is heard again.
#![allow(dead_code, unreachable_pub)] // each program uses its own part

mod packets;

use squall_reliability::base::{Psn, Rng, Span, Time};
use squall_reliability::cc::Hops;
use squall_reliability::wire::NackCode;
use squall_reliability::{
    Config, ControlPacket, NewPacket, PdcFailure, Pdcs, PeerKey, RxVerdict, cc,
};

use crate::histories::{Amount, Finding, guard};
use crate::link::{ECHO, Faults, PEER, SlotState, Wire, World, named, response};

/// The name of the only mode.
pub const MODE: &str = "contexts";

/// Time in which the fate of every packet must be known after the attack ends.
const PEACE: Span = Span::secs(120);
/// Time in which unused contexts end.
const SHUTDOWN_TIMEOUT: Span = Span::secs(300);
/// Attempts after which packets arrive again. The first ones may end the contexts that were
/// attacked.
const ATTEMPTS: u32 = 4;
/// The number of contexts that a peer may have.
const CONTEXTS: usize = 64;
/// The number of real packets to choose from.
const REMEMBERED: usize = 256;

/// The algorithms and scopes from which a history draws. The lists are fixed, because a new entry
/// changes the algorithms of every seed, also of those in `corpus.txt`. `tests/algorithms.rs` runs
/// every registered algorithm.
const SENDERS: [&str; 18] = [
    "nscc",
    "smartt",
    "strack",
    "swift",
    "dcqcn",
    "timely",
    "dctcp",
    "bbr",
    "mprdma",
    "eqds",
    "eqds+nscc",
    "eqds+smartt",
    "eqds+mprdma",
    "hpcc",
    "dart",
    "sperc",
    "3cpo",
    "none",
];
const SELECTORS: [&str; 11] = [
    "reps",
    "reps-v1",
    "strack",
    "bitmap",
    "mixed",
    "mprdma",
    "oblivious",
    "plb",
    "ecmp",
    "single",
    "reps-avoid",
];
const SCOPES: [&str; 8] = [
    "auto",
    "flow",
    "service-level",
    "pair",
    "destination",
    "destination-unsplit",
    "host",
    "group",
];

/// Plays the history `seed`. A panic is a finding as well.
///
/// # Errors
/// Returns what is wrong with the history.
pub fn play(seed: u64) -> Result<Amount, Finding> {
    guard::play(|| history(seed))
}

fn history(seed: u64) -> Result<Amount, Finding> {
    let mut rng = Rng::new(seed);
    let configs = configs(&mut rng);
    let start = first_psn(&configs[0]);
    let [left, right] = configs;
    let mut world = World::new(left, right, faults(&mut rng), rng.next_u64());
    world.strict = false;
    world.hosts[1].echo = rng.chance(0.7).then_some(100);
    world.hosts[1].respond_each = rng.chance(0.3).then(|| 1 + rng.below(5));
    world.trace = Some(Vec::new());
    let mut next = 1 + rng.below(40);
    world.send(0, 0..next, 1000);
    world.run(world.now + Span::micros(u64::from(rng.below(100))));
    let mut amount = Amount { operations: u64::from(next), ..Amount::default() };
    for _ in 0..1 + rng.below(100) {
        let host = rng.below(2) as usize;
        match rng.below(17) {
            0..=11 => {
                attack(&mut world, &mut rng, host, start);
                amount.forged += 1;
            }
            12 | 13 => {
                let most = [10_000, 1_000_000, 100_000_000][rng.below(3) as usize];
                world.run(world.now + Span(u64::from(rng.below(most))));
            }
            14 | 15 => {
                let count = 1 + rng.below(24);
                world.send(host, next..next + count, 800);
                next += count;
                amount.operations += u64::from(count);
            }
            _ => {
                if let Some(id) = world.hosts[host].id {
                    let now = world.now;
                    world.hosts[host].pdcs.close(now, id);
                }
            }
        }
        world.pump(host);
        check_bounds(&world)?;
        forget(&mut world);
    }
    world.trace = None;
    until(&mut world, PEACE, |world| check_fates(world).is_ok());
    check_fates(&world)?;
    check_delivery(&mut world, next)?;
    check_contexts_end(&mut world)?;
    Ok(amount)
}

/// Returns parameters with random algorithms, the same at both ends.
fn configs(rng: &mut Rng) -> [Config; 2] {
    let pick = |rng: &mut Rng, count: usize| rng.below(count as u32) as usize;
    let sender = SENDERS[pick(rng, SENDERS.len())];
    let paths = SELECTORS[pick(rng, SELECTORS.len())];
    let scope = SCOPES[pick(rng, SCOPES.len())];
    [rng.next_u64(), rng.next_u64()].map(|seed| {
        let config = named(sender, paths, seed);
        let scope = if config.uses_credits() || config.uses_rates() { "flow" } else { scope };
        Config { scope: cc::Scope::by_name(scope, &config.cc).expect("a name of one"), ..config }
    })
}

fn faults(rng: &mut Rng) -> Faults {
    let rough = rng.chance(0.5);
    let mut some = |p: f64| if rough { rng.unit() * p } else { 0.0 };
    let (loss, duplicate, mark, trim, refuse) =
        (some(0.05), some(0.05), some(0.2), some(0.05), some(0.05));
    let jitter = if rough { Span::micros(30) } else { Span::ZERO };
    Faults { loss, duplicate, mark, trim, refuse, jitter, ..Faults::default() }
}

/// Returns the first PSN of the first context of an endpoint.
fn first_psn(config: &Config) -> Psn {
    let mut pdcs = Pdcs::new(config.clone());
    let id = pdcs.open(Time(0), PEER).expect("it is the first one");
    let packet = NewPacket { desc: 0, bytes: 1, last: false, prompt: false, backlog: 0 };
    pdcs.next_packet(Time(0), id, &packet).expect("nothing is in its way").psn
}

/// Delivers a forged packet to host `to`.
fn attack(world: &mut World, rng: &mut Rng, to: usize, start: Psn) {
    let seen = world.trace.as_deref().unwrap_or_default();
    let model = (!seen.is_empty() && rng.chance(0.6))
        .then(|| seen[rng.below(seen.len() as u32) as usize].1);
    let packet = match model {
        Some(model) => packets::like(rng, model),
        None => packets::any(rng, start),
    };
    let (now, pdcs) = (world.now, &mut world.hosts[to].pdcs);
    // Sometimes the packet seems to come from another peer.
    let peer = if rng.chance(0.02) { PeerKey(5) } else { PEER };
    match packet {
        Wire::Data { pds, meta, .. } => {
            if let RxVerdict::Deliver(delivery) = pdcs.rx_request(now, peer, &pds, &meta) {
                match rng.below(20) {
                    // The packet ends the context.
                    0 => pdcs.drop_malformed(delivery),
                    1..=6 => pdcs.refuse(now, delivery, NackCode::NoResource),
                    7..=12 => pdcs.accept(now, delivery, Some(response(7))),
                    _ => pdcs.accept(now, delivery, None),
                }
            }
        }
        Wire::Control(ControlPacket::Ack { pds, response }) => {
            pdcs.rx_ack(now, peer, &pds, response.as_ref(), Hops::NONE);
        }
        Wire::Control(ControlPacket::Nack(nack)) => {
            pdcs.rx_nack(now, peer, &nack);
        }
        Wire::Control(ControlPacket::Control(control)) => {
            pdcs.rx_control(now, peer, &control);
        }
    }
}

/// Checks that the state of each endpoint is bounded.
fn check_bounds(world: &World) -> Result<(), Finding> {
    for (at, host) in world.hosts.iter().enumerate() {
        let beyond = [host.id, host.last_from]
            .into_iter()
            .flatten()
            .filter_map(|id| host.pdcs.info(id))
            .find(|info| info.in_flight > 1 << 28 || info.outstanding > 2048);
        // There are two peers and two directions.
        if beyond.is_some() || host.pdcs.count() > 4 * CONTEXTS {
            let text = format!("host {at}: {} contexts, {beyond:?}", host.pdcs.count());
            return Err(Finding::new("beyond a bound", text));
        }
    }
    Ok(())
}

/// Discards old packets from the choice.
fn forget(world: &mut World) {
    if let Some(trace) = &mut world.trace {
        let old = trace.len().saturating_sub(REMEMBERED);
        trace.drain(..old);
    }
}

/// Runs until `so` holds, but at most for `limit`.
fn until(world: &mut World, limit: Span, so: impl Fn(&World) -> bool) {
    let end = world.now + limit;
    let mut step = Span::micros(100);
    while !so(world) && world.now < end {
        let next = (world.now + step).min(end);
        if world.run(next) {
            return;
        }
        step = step * 2;
    }
}

/// Checks that the fate of every packet is known.
fn check_fates(world: &World) -> Result<(), Finding> {
    for (at, host) in world.hosts.iter().enumerate() {
        let waits = [host.id, host.last_from]
            .into_iter()
            .flatten()
            .filter_map(|id| host.pdcs.info(id))
            .find(|info| info.outstanding > 0);
        if let Some(info) = waits {
            return Err(Finding::new("a packet never ends", format!("host {at}: {info:?}")));
        }
        if let Some((number, _)) = host.backlog.iter().find(|(number, _)| *number < ECHO) {
            let text = format!("host {at}: number {number}, contexts {}", host.pdcs.count());
            return Err(Finding::new("a packet never leaves", text));
        }
    }
    Ok(())
}

/// Checks that packets arrive after the attack over a link without faults.
fn check_delivery(world: &mut World, next: u32) -> Result<(), Finding> {
    world.faults = Faults::default();
    for from in 0..2 {
        let mut tried: Vec<(usize, Vec<PdcFailure>)> = Vec::new();
        for attempt in 0..ATTEMPTS {
            let first = next + (from as u32 * ATTEMPTS + attempt) * 10;
            let before = world.hosts[from].failures.len();
            world.send(from, first..first + 10, 800);
            let all = first..first + 10;
            until(world, PEACE, |world| {
                all.clone().all(|n| world.hosts[from].fates.contains_key(&n))
            });
            let host = &world.hosts[from];
            let acked = |n: &u32| {
                matches!(host.fates.get(n), Some(SlotState::Acked | SlotState::Responded(_)))
            };
            let here = |n: &u32| world.hosts[1 - from].got.contains_key(n);
            let ended = all.filter(|n| acked(n) && here(n)).count();
            tried.push((ended, host.failures[before..].to_vec()));
            if ended == 10 {
                break;
            }
        }
        if tried.last().is_none_or(|(ended, _)| *ended < 10) {
            let text = format!("from host {from}: {tried:?}");
            return Err(Finding::new("nothing arrives any more", text));
        }
    }
    Ok(())
}

/// Checks that unused contexts end.
fn check_contexts_end(world: &mut World) -> Result<(), Finding> {
    for at in 0..2 {
        if let Some(id) = world.hosts[at].id {
            let now = world.now;
            world.hosts[at].pdcs.close(now, id);
        }
        world.pump(at);
    }
    until(world, SHUTDOWN_TIMEOUT, |world| world.hosts.iter().all(|host| host.pdcs.count() == 0));
    for (at, host) in world.hosts.iter().enumerate() {
        if host.pdcs.count() != 0 {
            let text = format!("host {at}: {} contexts", host.pdcs.count());
            return Err(Finding::new("a context never ends", text));
        }
    }
    Ok(())
}
