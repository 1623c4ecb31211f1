//! Half of the paths fail in each direction under a stream both ways, as when a spine switch fails:
//! the time for which the streams stall.

use crate::link::{Faults, World, half, named};
use squall_reliability::Config;
use squall_reliability::base::{Rng, Span, Time};

/// Keeps `window` packets outstanding at both ends for `span`. Returns the longest time that one of
/// them received nothing.
fn stream(world: &mut World, sent: &mut [u32; 2], window: u32, span: Span) -> Span {
    let end = world.now + span;
    let mut last: [(usize, Time); 2] = [0, 1].map(|n: usize| (world.hosts[n].got.len(), world.now));
    let mut longest = Span::ZERO;
    while world.now < end {
        for (n, sent) in sent.iter_mut().enumerate() {
            let ended = world.hosts[n].fates.len() as u32;
            while *sent < ended + window {
                world.send(n, *sent..*sent + 1, 4096);
                *sent += 1;
            }
        }
        world.run(world.now + Span::micros(50));
        for (n, last) in last.iter_mut().enumerate() {
            let got = world.hosts[n].got.len();
            if got != last.0 {
                *last = (got, world.now);
            }
            longest = longest.max(world.now.since(last.1));
        }
    }
    longest
}

/// Returns the longest stall before and after the failure of the paths that `dead` draws for either
/// end.
fn standstill(window: u32, seed: u64, dead: impl Fn(&mut Rng) -> [u16; 2]) -> (Span, Span) {
    let mut rng = Rng::new(seed);
    let faults =
        Faults { delay: Span::micros(150), jitter: Span::micros(150), ..Faults::default() };
    let config = |seed| Config { train_packets: 16, ..named("nscc", "reps-avoid", seed) };
    let mut world = World::new(config(seed), config(seed + 1), faults, seed);
    let mut sent = [0; 2];
    let before = stream(&mut world, &mut sent, window, Span::millis(100));
    world.faults.dead = dead(&mut rng);
    world.faults.detours = true;
    (before, stream(&mut world, &mut sent, window, Span::millis(300)))
}

/// A round trip takes 450 us. With one probe at a time, and lost packets retransmitted on any other
/// path, the stall was 22 ms in the median and 74 ms at worst.
#[test]
fn a_stream_continues_soon_after_half_of_the_paths_failed() {
    for window in [16, 64, 256] {
        let mut all: Vec<_> = (0..64u64).map(|seed| standstill(window, seed, half)).collect();
        all.sort_by_key(|(_, after)| *after);
        let before = all.iter().map(|(before, _)| *before).max().unwrap();
        let (median, worst) = (all[32].1, all[63].1);
        eprintln!("window {window}: before {before}, after: median {median}, worst {worst}");
        assert!(median < Span::millis(7), "window {window}: {median} in the median");
        assert!(worst < Span::millis(15), "window {window}: {worst} at worst");
    }
}

/// A network hashes source ports, so it may send all ports of a pair over the spine that failed:
/// with eight ports, those of one pair in 256. The limit is the same as that of `ci/netns` for the
/// failure of a spine, 60 ms at worst.
#[test]
fn a_stream_continues_soon_on_other_paths_after_all_its_paths_failed() {
    let all = u16::MAX;
    for (name, dead) in [("there", [all, 0]), ("back", [0, all]), ("there and back", [all; 2])] {
        for window in [1, 64] {
            let stalls = (0..16u64).map(|seed| standstill(window, seed, |_| dead).1);
            let worst = stalls.max().unwrap();
            eprintln!("{name}, window {window}: {worst} at worst");
            assert!(worst < Span::millis(60), "{name}, window {window}: {worst}");
        }
    }
}
