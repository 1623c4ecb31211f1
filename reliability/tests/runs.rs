//! Packet runs: packets sent together leave as they would one by one.

use crate::link::{Faults, PEER, World, named};
use squall_reliability::base::{Rng, Span, Time};
use squall_reliability::{Config, NewPacket, PdcId, Pdcs, TxGrant, cc};

const BYTES: u32 = 1400;

/// The visible facts of a packet that left: number, path, AR, what it clears, its credit.
type Left = (u32, u16, bool, i16, Option<u32>);

/// A planned packet, and whether it ends a message.
#[derive(Clone, Copy)]
struct Planned {
    bytes: u32,
    ends: bool,
    /// No packet waits behind it.
    last: bool,
    prompt: bool,
}

/// Plans `messages` messages: each has packets of [`BYTES`], and a last one of at most as many.
fn planned(rng: &mut Rng, messages: usize) -> Vec<Planned> {
    let mut packets = Vec::new();
    for _ in 0..messages {
        let full = Planned { bytes: BYTES, ends: false, last: false, prompt: rng.chance(0.5) };
        packets.extend((0..rng.below(40)).map(|_| full));
        let bytes = if rng.chance(0.2) { BYTES } else { 57 + rng.below(BYTES - 57) };
        packets.push(Planned { bytes, ends: true, last: rng.chance(0.3), ..full });
    }
    packets
}

fn new_packet(desc: usize, planned: Planned) -> NewPacket<u32> {
    let Planned { bytes, last, prompt, .. } = planned;
    NewPacket { desc: desc as u32, bytes, last, prompt, backlog: 1 << 20 }
}

fn left(grant: &TxGrant) -> Left {
    let pds = grant.pds;
    let credit = pds.ccc.map(|ccc| ccc.credit_target);
    (grant.psn.0, grant.path, pds.ack_request, pds.clear_psn_offset, credit)
}

/// Sends the packets of `plan` as far as they may leave, and behind each first packet of a message
/// as much of the message as its train takes. Returns the packets that left, how many of them left
/// in runs, and how many ended runs.
fn send_in_runs(
    pdcs: &mut Pdcs<u32>,
    now: Time,
    id: PdcId,
    plan: &[Planned],
) -> (Vec<Left>, usize, usize) {
    let (mut got, mut in_runs, mut ends) = (Vec::<Left>::new(), 0, 0);
    while let Some(&first) = plan.get(got.len())
        && let Ok(grant) = pdcs.next_packet(now, id, &new_packet(got.len(), first))
    {
        let head = left(&grant);
        got.push(head);
        if first.ends {
            continue;
        }
        let at = got.len();
        let alike = plan[at..].iter().take_while(|packet| !packet.ends).count();
        if alike > 0 {
            let desc = |n| at as u32 + u32::from(n);
            let Some(run) = pdcs.send_run(id, now, (BYTES, alike as u16), desc) else { continue };
            assert!(run.count > 0 && usize::from(run.count) <= alike);
            in_runs += usize::from(run.count);
            for n in 1..run.count {
                let (psn, _, _, clear, credit) = head;
                let psn = psn.wrapping_add(u32::from(n));
                got.push((psn, run.path, false, clear - n.cast_signed(), credit));
            }
            got.push(left(&run.last));
            if usize::from(run.count) < alike || run.last.pds.ack_request {
                continue;
            }
        }
        let Some(&end) = plan.get(got.len()) else { break };
        if let Some(grant) = pdcs.send_run_end(id, now, &new_packet(got.len(), end)) {
            ends += 1;
            got.push(left(&grant));
        }
    }
    (got, in_runs, ends)
}

#[test]
fn packets_of_a_run_leave_like_single_packets() {
    let (mut in_runs, mut ends) = (0, 0);
    for (sender, _) in cc::SenderConfig::NAMES {
        for (selector, _) in cc::PathsConfig::NAMES {
            for seed in 1..40 {
                let config = || {
                    let mut config = named(sender, selector, seed);
                    config.mtu = if seed % 2 == 0 { BYTES } else { 4096 };
                    config.train_packets = [64, 5, 1][seed as usize % 3];
                    config.max_window_packets = if seed == 4 { 20 } else { 2048 };
                    config
                };
                let (mut one, mut other) = (Pdcs::new(config()), Pdcs::new(config()));
                // Of the short messages, the last packet is the last one that left.
                let messages = if seed < 6 { 20 } else { 1 + seed as usize % 3 };
                let plan = planned(&mut Rng::new(seed), messages);
                let now = Time(1_000_000);
                let ids = (one.open(now, PEER).unwrap(), other.open(now, PEER).unwrap());
                let mut wanted = Vec::new();
                while let Some(&packet) = plan.get(wanted.len())
                    && let Ok(grant) =
                        one.next_packet(now, ids.0, &new_packet(wanted.len(), packet))
                {
                    wanted.push(left(&grant));
                }
                let (got, more, ended) = send_in_runs(&mut other, now, ids.1, &plan);
                (in_runs, ends) = (in_runs + more, ends + ended);
                let what = format!("{sender} {selector} {seed}");
                assert_eq!(got, wanted, "{what}");
                let seen = |pdcs: &Pdcs<u32>, id| {
                    (format!("{:?} {:?}", pdcs.info(id), pdcs.counters()), pdcs.poll_timeout())
                };
                assert_eq!(seen(&other, ids.1), seen(&one, ids.0), "{what}");
                assert_eq!(format!("{:?}", other.flows()), format!("{:?}", one.flows()), "{what}");
            }
        }
    }
    assert!(in_runs > 1_000 && ends > 300, "runs are hardly used: {in_runs} and {ends}");
}

/// Whatever packets are lost, marked, trimmed, duplicated and overtaken: every packet, of data and
/// of acknowledgements, is the same.
#[test]
fn a_transfer_in_runs_is_the_same_to_the_last_acknowledgement() {
    let (mut in_runs, mut ends) = (0, 0);
    let rough = || Faults {
        loss: 0.01,
        trim: 0.01,
        mark: 0.05,
        duplicate: 0.01,
        jitter: Span::micros(10),
        ..Faults::default()
    };
    for (sender, _) in cc::SenderConfig::NAMES {
        for (seed, bad) in [(1, false), (2, true), (3, true), (4, true)] {
            let mut play = |runs| {
                // The silence before a probe then shows, too.
                let config =
                    |seed| Config { probe_min: Span::ZERO, ..named(sender, "reps-avoid", seed) };
                let faults = if bad { rough() } else { Faults::default() };
                let mut world = World::new(config(seed), config(seed + 10), faults, seed);
                world.trace = Some(Vec::new());
                world.hosts[0].runs = runs;
                world.hosts[0].prompt = seed % 2 == 1;
                world.send(0, 0..1500, 4096);
                // Messages of several packets and a last one. Some arrive while others are in
                // flight, most have no packet behind them, and some are followed by silence.
                world.run(world.now + Span::millis(50));
                let mut number = 1500;
                for n in 0..60 {
                    let end = number + n % 7;
                    world.hosts[0].backlog.extend((number..end).map(|number| (number, 4096)));
                    world.send(0, end..end + 1, 57 + n * 61);
                    number = end + 1;
                    if n % 3 > 0 {
                        world.run(world.now + Span::micros(u64::from(n % 5).pow(4) * 20));
                    }
                }
                assert!(world.settle(Span::secs(60)), "{sender} {seed}");
                let counted =
                    format!("{:?}", world.hosts.each_ref().map(|host| host.pdcs.counters()));
                let fates = format!("{:?}", world.hosts[0].fates);
                in_runs += world.hosts[0].in_runs;
                ends += world.hosts[0].ends;
                (world.trace.unwrap(), counted, fates)
            };
            let (one, other) = (play(false), play(true));
            let differs = one.0.iter().zip(&other.0).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{sender} {seed}");
            assert!(one == other, "{sender} {seed}");
        }
    }
    assert!(in_runs > 1000 && ends > 1000, "runs are hardly used: {in_runs} and {ends}");
}
