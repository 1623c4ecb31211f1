//! Algorithm 2, line by line.

use super::*;

const GOOD: PathSignal = PathSignal::Good;
const ECN: PathSignal = PathSignal::Ecn;

/// A selector of sixteen paths, window permitting.
fn sixteen() -> StrackPaths {
    StrackPaths::with_paths(16)
}

/// What the next `N` packets take, at a window that keeps 16 paths active.
fn next<const N: usize>(paths: &mut StrackPaths) -> [u16; N] {
    core::array::from_fn(|_| paths.pick(Time::ZERO, 8))
}

fn feed(paths: &mut StrackPaths, reports: &[(u16, PathSignal)]) {
    for &(path, signal) in reports {
        paths.on_feedback(Time::ZERO, path, signal);
    }
}

#[test]
fn without_news_paths_take_turns() {
    // Line 1: rr = 0, so that the first is 1; line 19 wraps after 15.
    let mut paths = sixteen();
    assert_eq!(next(&mut paths), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1]);
}

#[test]
fn an_unmarked_path_is_used_once_more() {
    let mut paths = sixteen();
    feed(&mut paths, &[(9, GOOD)]);
    // Lines 12 to 14, and the turn goes on from there.
    assert_eq!(next(&mut paths), [9, 10, 11]);
    // Only the last one is remembered.
    feed(&mut paths, &[(2, GOOD), (5, GOOD)]);
    assert_eq!(next(&mut paths), [5, 6]);
    // Path 0 is a path like any other.
    feed(&mut paths, &[(0, GOOD)]);
    assert_eq!(next(&mut paths), [0, 1]);
}

#[test]
fn a_mark_forgets_the_good_path() {
    let mut paths = sixteen();
    // Line 4: the next packet takes its turn.
    feed(&mut paths, &[(9, GOOD), (12, ECN)]);
    assert_eq!(next(&mut paths), [1, 2]);
}

#[test]
fn a_marked_path_is_passed_over_once() {
    let mut paths = sixteen();
    feed(&mut paths, &[(2, ECN)]);
    assert_eq!(next(&mut paths), [1, 3, 4]);
    paths.rr = 0;
    assert_eq!(next(&mut paths), [1, 2, 3]);
}

#[test]
fn one_packet_clears_one_bit() {
    let mut paths = sixteen();
    feed(&mut paths, &[(2, ECN), (3, ECN), (4, ECN)]);
    assert_eq!(next(&mut paths), [1, 5]);
    // Lines 22 to 25 cleared 2. The next round clears 3, and the one after that 4.
    paths.rr = 0;
    assert_eq!(next(&mut paths), [1, 2, 5]);
    paths.rr = 0;
    assert_eq!(next(&mut paths), [1, 2, 3, 5]);
    paths.rr = 0;
    assert_eq!(next(&mut paths), [1, 2, 3, 4, 5]);
}

#[test]
fn an_unmarked_acknowledgement_clears_its_bit() {
    let mut paths = sixteen();
    feed(&mut paths, &[(2, ECN), (2, GOOD)]);
    assert_eq!(next(&mut paths), [2, 3]);
    paths.rr = 1;
    assert_eq!(next(&mut paths), [2]);
}

#[test]
fn with_every_path_marked_the_turn_goes_on() {
    let mut paths = sixteen();
    for path in 0..16 {
        feed(&mut paths, &[(path, ECN)]);
    }
    // 1 is met and cleared, all others are marked, and back at 1 the search ends (lines 20 to 27).
    assert_eq!(next(&mut paths), [1]);
    // 2 is cleared, and round the ring 1 is the first clear one.
    assert_eq!(next(&mut paths), [1]);
    // 2 is clear by now.
    assert_eq!(next(&mut paths), [2]);
    // 3 is cleared; after 4 to 15 and 0 comes 1.
    assert_eq!(next(&mut paths), [1]);
}

#[test]
fn twice_the_window_is_active() {
    // Lines 17 and 18: min(max_paths, 2 * cwnd), at least 8.
    for (paths, cwnd, active) in
        [(256, 0, 8), (256, 3, 8), (256, 5, 10), (256, 128, 256), (256, u32::MAX, 256), (4, 100, 4)]
    {
        assert_eq!(
            StrackPaths::with_paths(paths).active(cwnd),
            active,
            "{paths} paths, window {cwnd}"
        );
    }
    let mut paths = StrackPaths::with_paths(256);
    paths.rr = 9;
    assert_eq!(paths.pick(Time::ZERO, 5), 0); // 10 % 10
    // A path from before the window shrank: 201 % 8.
    paths.rr = 200;
    assert_eq!(paths.pick(Time::ZERO, 1), 1);
    // A good path may lie beyond.
    feed(&mut paths, &[(200, GOOD)]);
    assert_eq!(paths.pick(Time::ZERO, 1), 200);
}

#[test]
fn trims_and_time_outs_are_marks() {
    for signal in [PathSignal::Nack, PathSignal::Timeout] {
        let mut paths = sixteen();
        feed(&mut paths, &[(1, signal)]);
        assert_eq!(next(&mut paths), [2]);
    }
}

#[test]
fn paths_that_do_not_exist_are_ignored() {
    let mut paths = sixteen();
    feed(&mut paths, &[(16, GOOD), (u16::MAX, ECN)]);
    assert_eq!(next(&mut paths), [1]);
    assert_eq!(paths.metrics().remembered, 16);
    feed(&mut paths, &[(3, ECN), (4, ECN)]);
    assert_eq!(paths.metrics().remembered, 14);
}

/// The search by words against the loop of the paper, on every bitmap of a few kinds.
#[test]
fn the_search_is_the_papers_loop() {
    let mut rng = squall_base::Rng::new(5);
    for round in 0..4_000u32 {
        let number = 1 + rng.below(256) as u16;
        let mut paths = StrackPaths::with_paths(number);
        let density = rng.below(101);
        for path in 0..number {
            if rng.below(100) < density {
                paths.mark(path);
            }
        }
        paths.rr = rng.below(u32::from(number)) as u16;
        let cwnd = rng.below(160);
        // Lines 16 to 27.
        let mut bitmap: [bool; 256] = core::array::from_fn(|path| paths.is_marked(path as u16));
        let active = usize::from(number).min((2 * cwnd as usize).max(8));
        let mut rr = (usize::from(paths.rr) + 1) % active;
        let mut flag = false;
        while bitmap[rr] {
            if !flag {
                bitmap[rr] = false;
                flag = true;
            }
            rr = (rr + 1) % active;
        }
        assert_eq!(usize::from(paths.pick(Time::ZERO, cwnd)), rr, "round {round}");
        let after: [bool; 256] = core::array::from_fn(|path| paths.is_marked(path as u16));
        assert_eq!(after, bitmap, "round {round}");
    }
}

#[test]
fn a_selector_is_small_and_its_paths_are_checked() {
    assert_eq!(size_of::<StrackPaths>(), 40);
    assert_eq!(StrackPathsConfig::new(256).check(), Ok(()));
    for paths in [0, 257] {
        assert_eq!(
            StrackPathsConfig::new(paths).check().map_err(|error| error.parameter),
            Err("paths")
        );
    }
}
