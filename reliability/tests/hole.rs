//! Half of the paths drop everything in both directions, and nothing reports it.

use crate::link::{Faults, SlotState, Wire, World, fixed, half, named};
use squall_reliability::base::{Rng, Span};
use squall_reliability::{Config, ControlPacket};

/// The result of a flow over broken paths.
#[derive(Clone, Copy, Debug)]
struct Passage {
    /// The longest time without an acknowledged packet.
    stall: Span,
    /// Packets acknowledged while the paths were broken.
    ended: usize,
}

/// Sends continuously with `window` packets outstanding, while half of the paths are dead for
/// `lasts`. Every packet must arrive once, and nothing may fail.
fn pass(config: impl Fn(u64) -> Config, window: u32, lasts: Span, seed: u64) -> Passage {
    let mut rng = Rng::new(seed);
    let faults = Faults { jitter: Span::micros(3), ..Faults::default() };
    let mut world = World::new(config(seed), config(seed + 1), faults, seed);
    let begin = world.now + Span::millis(5);
    let end = begin + lasts;
    let (mut sent, mut last_end, mut stall) = (0u32, world.now, Span::ZERO);
    let (mut ended, mut before) = (0, 0);
    while world.now < end + Span::millis(5) {
        let there = world.now >= begin && world.now < end;
        if there && world.faults.dead == [0; 2] {
            world.faults.dead = half(&mut rng);
            before = ended;
            last_end = world.now;
        }
        if world.now >= end {
            world.faults.dead = [0; 2];
        }
        let now_ended = world.hosts[0].fates.len();
        if now_ended > ended {
            ended = now_ended;
            last_end = world.now;
        }
        if there {
            stall = stall.max(world.now.since(last_end));
        }
        // With at most a window outstanding, the sender waits for every answer, as programs do.
        while sent < ended as u32 + window {
            world.send(0, sent..sent + 1, 4096);
            sent += 1;
        }
        world.run(world.now + Span::micros(50));
    }
    assert!(world.settle(Span::secs(2)), "all ends once the hole is gone");
    assert!(world.hosts.iter().all(|host| host.failures.is_empty()), "nothing fails");
    assert_eq!(world.hosts[0].fates.len(), sent as usize);
    assert!(world.hosts[0].fates.values().all(|fate| *fate == SlotState::Acked));
    assert!((0..sent).all(|n| world.hosts[1].got.get(&n) == Some(&1)), "once each");
    Passage { stall, ended: ended - before }
}

/// Returns the longest stall over several seeds, and the fewest acknowledged packets.
fn worst(sender: &str, paths: &str, window: u32, lasts: Span, seeds: u64) -> Passage {
    let mut worst = Passage { stall: Span::ZERO, ended: usize::MAX };
    for seed in 0..seeds {
        let config = |seed| Config { train_packets: 4, ..named(sender, paths, seed) };
        let Passage { stall, ended } = pass(config, window, lasts, 100 + seed);
        worst.stall = worst.stall.max(stall);
        worst.ended = worst.ended.min(ended);
    }
    worst
}

/// A timer of 5 ms backs off to 20 ms at most. In each interval a packet and three probes try to
/// find a path in both directions. A try succeeds with probability 1/4 at worst, so one timeout in
/// three finds no path, and four in a row 1 %.
const LONGEST: Span = Span::millis(100);

/// Without broken paths 20 000 packets are acknowledged in a second: one every 50 us. Where paths
/// are remembered, the broken ones cost some stalls at first, and hardly anything after that.
#[test]
fn losing_half_of_the_paths_for_six_seconds_costs_milliseconds() {
    let Passage { stall, ended } = worst("nscc", "reps-avoid", 1, Span::secs(6), 4);
    assert!(stall < LONGEST, "{stall:?}");
    assert!(ended > 110_000, "{ended} of 120 000");
}

/// A variant with more packets in flight and with other algorithms. Path selectors that ignore the
/// fate of their paths lose half of what they send, but even they do not stall for long.
#[test]
fn no_algorithm_stalls() {
    for (sender, paths, window, least) in [
        ("nscc", "reps-avoid", 64, 80_000),
        ("nscc", "oblivious", 8, 100),
        ("nscc", "bitmap", 8, 10_000),
        ("smartt", "reps-avoid", 8, 40_000),
        ("strack", "strack", 8, 30_000),
        ("dcqcn", "reps-avoid", 8, 40_000),
        ("swift", "mprdma", 8, 1_000),
        ("eqds", "reps-avoid", 8, 40_000),
    ] {
        let Passage { stall, ended } = worst(sender, paths, window, Span::millis(400), 2);
        assert!(stall < LONGEST, "{sender} over {paths}: {stall:?}");
        assert!(ended > least, "{sender} over {paths}: {ended}");
    }
}

/// Where half of the packets are lost, acknowledgements must keep to a path on which they arrive,
/// leave it when it fails, and not be misled by earlier acknowledgements; and the timer must not
/// take long.
#[test]
fn acknowledgements_keep_to_a_path_that_works() {
    let (mut stall, mut ended) = (Span::ZERO, 0);
    for seed in 0..16 {
        let config = |seed| Config { train_packets: 4, ..named("nscc", "oblivious", seed) };
        let passage = pass(config, 8, Span::millis(400), 200 + seed);
        stall = stall.max(passage.stall);
        ended += passage.ended;
    }
    // Over 16 runs of 400 ms the values were 76 ms and 9640 packets when this was written. Without
    // a memory for the path they were 135 ms and 6600, or 7400 when misled; with a longer backoff
    // 156 ms; without new probes 355 ms.
    assert!(stall < Span::millis(120), "{stall:?}");
    assert!(ended > 8_500, "{ended}");
}

/// A train does not continue on a path that lost one of its packets, whichever packet is
/// retransmitted first.
#[test]
fn a_train_leaves_a_path_that_lost_a_packet() {
    for seed in 0..8 {
        let config = |seed| Config { train_packets: 4, ..fixed(1 << 20, seed) };
        let mut world = World::new(config(seed), config(!seed), Faults::default(), seed);
        world.send(0, 0..1, 1000);
        world.settle(Span::millis(1));
        world.trace = Some(Vec::new());
        world.faults.drop = Some(|wire| matches!(wire, Wire::Data { .. }));
        // One train and the beginning of the next one.
        world.send(0, 1..5, 1000);
        let first = world.last_path;
        world.send(0, 5..6, 1000);
        let second = world.last_path;
        let probed = |world: &World| {
            world.trace.as_ref().unwrap().iter().any(|(from, wire)| {
                *from == 0 && matches!(wire, Wire::Control(ControlPacket::Control(_)))
            })
        };
        while !probed(&world) {
            world.run(world.now + Span::micros(1));
        }
        world.send(0, 6..7, 1000);
        assert_eq!(world.last_path, second, "the same train");
        if first == second {
            continue;
        }
        // The answer shows that the first six packets are lost, but only the second path is dead.
        world.faults.drop = None;
        world.faults.black_hole = Some(second);
        world.run(world.now + Span::micros(60));
        assert!((1..5).all(|n| world.hosts[1].got.contains_key(&n)), "seed {seed}");
    }
}
