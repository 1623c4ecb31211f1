//! Three of four paths drop everything in both directions, permanently, with a round trip as long
//! as in a loaded kernel. REPS then freezes for only a few round trips.

use crate::link::{Faults, PATHS, World, named};
use squall_reliability::Config;
use squall_reliability::base::{Rng, Span};

/// Returns how many packets of a flow that keeps `window` outstanding are acknowledged in a second.
fn ended(paths: &str, window: u32, seed: u64) -> usize {
    let mut rng = Rng::new(seed);
    let faults = Faults { delay: Span::millis(1), jitter: Span::micros(300), ..Faults::default() };
    // The test measures paths, not how long a receiver delays its ACKs.
    let ack_delay = Span::micros(50);
    let config = |seed| Config { train_packets: 4, ack_delay, ..named("nscc", paths, seed) };
    let mut world = World::new(config(seed), config(seed + 1), faults, seed);
    let mut sent = 0;
    let mut keep_sending = |world: &mut World, span: Span| {
        let end = world.now + span;
        while world.now < end {
            let ended = world.hosts[0].fates.len();
            while sent < ended as u32 + window {
                world.send(0, sent..sent + 1, 4096);
                sent += 1;
            }
            world.run(world.now + Span::micros(50));
        }
        world.hosts[0].fates.len()
    };
    let before = keep_sending(&mut world, Span::millis(100));
    world.faults.dead = [(); 2].map(|()| {
        let mut dead = 0u16;
        while dead.count_ones() < u32::from(PATHS) * 3 / 4 {
            dead |= 1 << rng.below(u32::from(PATHS));
        }
        dead
    });
    keep_sending(&mut world, Span::secs(1)) - before
}

fn mean(paths: &str, window: u32) -> usize {
    const SEEDS: u64 = 8;
    (0..SEEDS).map(|seed| ended(paths, window, seed)).sum::<usize>() / SEEDS as usize
}

/// Without broken paths, some 3800 packets would be acknowledged in that second.
#[test]
fn a_quarter_of_the_paths_carries_most_of_the_load() {
    for window in [8, 64] {
        let (avoiding, plain) = (mean("reps-avoid", window), mean("reps", window));
        eprintln!("{avoiding} {plain}");
        assert!(avoiding > 2700, "window {window}: {avoiding}");
        // With either selector a lost packet is retransmitted on a path that an acknowledgement
        // proved. With a window of 64 that, and probes that find the lost tails, make up for much
        // of the difference.
        assert!(
            3 * avoiding > 4 * plain,
            "window {window}: {avoiding}, and {plain} as in uet-htsim"
        );
    }
}
