//! The figures of chapter 6, number by number.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::*;
use crate::tuning::Tunable;

/// Costs are whole, whatever the latency.
fn whole() -> ThreeCpoConfig {
    ThreeCpoConfig { low_cost: 1.0, ..ThreeCpoConfig::new() }
}

/// A token a cycle at a watermark of ten.
fn ten() -> ThreeCpoConfig {
    ThreeCpoConfig { wm_max: 10.0, wm_min: 1.0, ..ThreeCpoConfig::new() }
}

/// GPU 3 of four.
fn gpu3(config: ThreeCpoConfig) -> ThreeCpo {
    config.check().expect("allowed");
    ThreeCpo::new(Arc::new(config), 4, 3)
}

const fn requests(flits: u16) -> OperationFlits {
    OperationFlits { request: flits, response: 0 }
}

/// Request tokens at a cycle.
fn tokens(host: &mut ThreeCpo, now: u64) -> f64 {
    host.advance(now);
    host.classes[0].bucket.tokens()
}

fn unmatched(host: &ThreeCpo) -> &[i32] {
    &host.classes[0].matching.unmatched()[..3]
}

/// Fig. 6.1: tokens at the beginning of each cycle, of a host that sends packets of 5 flits whenever it may.
#[test]
fn a_lower_watermark_halves_the_rate() {
    let trace = |watermark: f64| -> Vec<f64> {
        let (config, mut bucket) = (ten(), Bucket::new());
        let mut at_cycle = |cycle| {
            bucket.advance(cycle, watermark, &config);
            let tokens = bucket.tokens();
            if tokens >= 1.0 {
                bucket.debit(5.0);
            }
            tokens
        };
        (0..=10).map(&mut at_cycle).collect()
    };
    assert_eq!(trace(10.0), [1.0, -3.0, -2.0, -1.0, 0.0, 1.0, -3.0, -2.0, -1.0, 0.0, 1.0]);
    assert_eq!(trace(5.0), [1.0, -4.0, -3.0, -3.0, -2.0, -2.0, -1.0, -1.0, 0.0, 0.0, 1.0]);
}

/// While tokens of one class are missing, those of the other are saved up to a limit.
#[test]
fn no_more_is_saved_than_may_be() {
    for (saved, cycles, expected) in [(1.0, 50, 1.0), (9.0, 5, 6.0), (9.0, 50, 9.0)] {
        let config = ThreeCpoConfig { saved, ..ten() };
        let mut bucket = Bucket::new();
        bucket.advance(cycles, 10.0, &config);
        assert_eq!(bucket.tokens(), expected, "{saved} after {cycles}");
    }
}

#[test]
fn a_bucket_knows_when_it_is_ready() {
    for watermark in [1.0, 3.0, 5.0, 7.5, 10.0] {
        for cost in [1.0, 2.6, 5.0, 20.0] {
            let (config, mut bucket) = (ten(), Bucket::new());
            bucket.advance(3, watermark, &config);
            bucket.debit(cost);
            let ready = bucket.ready_at(watermark, 10.0);
            let mut step = bucket.clone();
            bucket.advance(ready - 1, watermark, &config);
            assert!(bucket.tokens() < 1.0, "{cost} at {watermark}: sooner than {ready}");
            (4..=ready).for_each(|cycle| step.advance(cycle, watermark, &config));
            assert!(step.tokens() >= 1.0, "{cost} at {watermark}: not at {ready}");
        }
    }
}

/// Fig. 6.4: with four that send packets of 5 flits, one costs 20 tokens and leaves every 20 cycles.
#[test]
fn four_senders_wait_four_times_as_long() {
    let mut host = gpu3(whole());
    for start in [0, 20, 40] {
        assert_eq!((tokens(&mut host, start), host.ready_at()), (1.0, start));
        (0..3).for_each(|peer| host.on_remote(start, peer, requests(5)));
        assert_eq!(tokens(&mut host, start), 1.0, "nobody pays for what nothing of its own meets");
        host.on_send(start, requests(5), true);
        let counts = [1, 4, 5, 9, 10, 14, 15, 19].map(|cycle| tokens(&mut host, start + cycle));
        assert_eq!(counts, [-18.0, -15.0, -14.0, -10.0, -9.0, -5.0, -4.0, 0.0]);
        assert_eq!(host.ready_at(), start + 20);
    }
}

/// Fig. 6.5: three remote operations that nothing matches, then two of its own, then three more.
#[test]
fn operations_match_in_either_order() {
    let mut host = gpu3(whole());
    (0..3).for_each(|peer| host.on_remote(0, peer, requests(1)));
    assert_eq!((tokens(&mut host, 0), unmatched(&host)), (1.0, [-1, -1, -1].as_slice()));
    host.on_send(0, requests(1), true);
    assert_eq!((tokens(&mut host, 0), unmatched(&host)), (1.0 - 4.0, [0, 0, 0].as_slice()));
    host.on_send(0, requests(1), true);
    assert_eq!((tokens(&mut host, 0), unmatched(&host)), (-3.0 - 1.0, [1, 1, 1].as_slice()));
    (0..3).for_each(|peer| host.on_remote(0, peer, requests(1)));
    assert_eq!((tokens(&mut host, 0), unmatched(&host)), (-4.0 - 3.0, [0, 0, 0].as_slice()));
    assert_eq!(host.classes[0].watermark.consumed, 6.0);
    // Its own packets are no extra tokens, unicasts match nothing.
    host.on_send(0, requests(1), false);
    assert_eq!((tokens(&mut host, 0), unmatched(&host)), (-8.0, [0, 0, 0].as_slice()));
}

/// Fig. 6.6: what was answered is not in the network any more, so what comes round trips later meets nothing.
#[test]
fn answered_operations_match_nothing() {
    let mut host = gpu3(whole());
    host.on_send(0, requests(1), true);
    host.on_send(1, requests(1), true);
    for peer in [0, 1, 2, 2] {
        host.on_remote(10, peer, requests(1));
    }
    assert_eq!(unmatched(&host), [1, 1, 0]);
    host.on_done(100, 0, requests(1), true);
    assert_eq!(unmatched(&host), [1, 1, 0], "none exceeds the one operation that is left");
    host.on_done(101, 1, requests(1), true);
    assert_eq!(unmatched(&host), [0, 0, 0]);
    let (consumed, before) = (host.classes[0].watermark.consumed, tokens(&mut host, 500));
    (0..3).for_each(|peer| host.on_remote(500, peer, requests(1)));
    assert_eq!((host.classes[0].watermark.consumed, tokens(&mut host, 500)), (consumed, before));
    assert_eq!(unmatched(&host), [-1, -1, -1]);
}

/// Fig. 6.7: operations of others are forgotten a round trip, and the time between two of its own, after they came.
#[test]
fn old_operations_of_others_match_nothing() {
    let mut host = gpu3(whole());
    host.on_send(0, requests(1), true);
    host.on_send(50, requests(1), true);
    host.on_done(300, 50, requests(1), true);
    host.on_done(300, 0, requests(1), true);
    // A round trip of 300, and 50 between two: 350.
    host.on_remote(400, 0, requests(1));
    host.on_remote(410, 0, requests(1));
    let outstanding = |host: &ThreeCpo| host.classes[0].matching.outstanding()[0];
    assert_eq!((unmatched(&host)[0], outstanding(&host)), (-2, -2));
    let mut early = host.clone();
    early.on_send(749, requests(1), true);
    assert_eq!(early.classes[0].watermark.consumed, 1.0, "one of them matches");
    assert_eq!((unmatched(&early)[0], outstanding(&early)), (-1, -2));
    // Its own are 699 apart now. The first is forgotten: there is one left, and one is unmatched.
    early.advance(400 + 300 + 699);
    assert_eq!((unmatched(&early)[0], outstanding(&early)), (-1, -1));
    early.advance(410 + 300 + 699);
    assert_eq!((unmatched(&early)[0], outstanding(&early)), (0, 0));
    host.on_send(760, requests(1), true);
    assert_eq!((host.classes[0].watermark.consumed, outstanding(&host)), (0.0, 0));
}

/// Fig. 6.8 and 6.9: in a round trip of 30 cycles at the largest watermark, 100, 22 tokens are as many as a watermark lower by
/// 73.33 costs, and 20 by 66.67.
#[test]
fn the_watermark_waits_for_the_multicast_part() {
    let config = ThreeCpoConfig {
        wm_max: 100.0,
        wm_min: 4.0,
        ai: 5.0,
        latency: 10.0,
        max_latency: 30.0,
        ..ThreeCpoConfig::new()
    };
    config.check().expect("allowed");
    let mut watermark = Watermark::new(&config);
    let close = |a: f64, b: f64| assert!((a - b).abs() < 0.005, "{a}, expected {b}");
    let mut round = |latency: f64, consumed: f64| {
        (watermark.consumed, watermark.sent) = (consumed, 1);
        let before = watermark.equivalent();
        watermark.on_probe(&config, latency, 1);
        (watermark.equivalent(), watermark.equivalent() - before, watermark.value())
    };
    // Congestion would take half of the watermark; 73.33 is more than 50, so it stays.
    let (equivalent, _, value) = round(30.0, 22.0);
    close(equivalent, 73.33);
    close(value, 100.0);
    // Fig. 6.9: there still is, and -6.67 is less than 50, so it falls: by half of the 33.33 that the multicast part leaves of it,
    // scaled. alpha = 1 / (1/2 - 1/10) = 2.5 and beta = 0.25: 1 - 2.5 / 5.774 + 0.25 = 0.817.
    let (equivalent, grown, value) = round(30.0, 20.0);
    close(equivalent, 66.67);
    close(grown, -6.67);
    close(value, 100.0 - 0.817 * 0.5 * 33.33);
    // Fig. 6.8: there is none, and it rises.
    let (_, _, value) = round(9.0, 0.0);
    close(value, 86.385 + 5.0);
}

#[test]
fn without_the_multicast_part_it_is_the_probe_that_throttles() {
    let config = ThreeCpoConfig::aimd();
    let mut watermark = Watermark::new(&config);
    for (latency, expected) in [
        (5000.0, 1234.0),                // half
        (1999.0, 1284.0),                // 50 more
        (3500.0, 1284.0 * 0.75),         // half way from 2000 to 5000
        (99_999.0, 1284.0 * 0.75 * 0.5), // never more than half
        (2000.0, 1284.0 * 0.75 * 0.5),   // neither
    ] {
        watermark.on_probe(&config, latency, 0);
        assert!((watermark.value() - expected).abs() < 1e-9, "{latency}: {}", watermark.value());
    }
    (0..10).for_each(|_| watermark.on_probe(&config, 9000.0, 0));
    assert_eq!(watermark.value(), 100.0);
    let mut host = gpu3(config);
    (0..3).for_each(|peer| host.on_remote(0, peer, requests(5)));
    host.on_send(0, requests(5), true);
    assert_eq!(tokens(&mut host, 0), -4.0, "others cost nothing");
}

/// Lines 4 to 8: of 10 multicasts none was mostly of this class, so a token stands for 1 + 8.
#[test]
fn the_rarer_class_is_not_taken_for_unthrottled() {
    let config = ThreeCpoConfig::new();
    for (sent, all, times) in [
        (10, 10, 1.0),
        (6, 10, 1.0),
        (5, 10, 1.0),
        (2, 10, 1.0 + 8.0 * 0.6),
        (0, 10, 9.0),
        (0, 0, 1.0),
    ] {
        let mut watermark = Watermark::new(&config);
        (watermark.consumed, watermark.sent) = (10.0, sent);
        watermark.on_probe(&config, 2468.0, all);
        let equivalent = watermark.equivalent();
        assert!((equivalent - 10.0 * times).abs() < 1e-9, "{sent} of {all}: {equivalent}");
    }
}

/// What could not be made in a round trip counts in the next.
#[test]
fn tokens_beyond_a_round_trip_are_carried_over() {
    let config = ThreeCpoConfig::new();
    let mut watermark = Watermark::new(&config);
    (watermark.consumed, watermark.sent) = (3000.0, 1);
    watermark.on_probe(&config, 1000.0, 1);
    assert_eq!((watermark.equivalent(), watermark.carried()), (2468.0 * 3.0, 2000.0));
    watermark.set(1234.0);
    watermark.on_probe(&config, 1000.0, 1);
    assert_eq!((watermark.equivalent(), watermark.carried()), (2468.0 * 2.0, 1500.0));
}

/// Section 6.2.2: 0.8 up to 1000 cycles, 1 from 2000 on.
#[test]
fn costs_rise_with_the_latency() {
    let config = ThreeCpoConfig::new();
    for (latency, cost) in [(0.0, 0.8), (1000.0, 0.8), (1500.0, 0.9), (2000.0, 1.0), (9e9, 1.0)] {
        assert!((config.cost(latency) - cost).abs() < 1e-12, "{latency}: {}", config.cost(latency));
    }
    let mut host = gpu3(config);
    host.on_remote(0, 0, requests(5));
    host.on_send(0, requests(5), true);
    assert_eq!(tokens(&mut host, 0), 1.0 - 5.0 - 4.0);
}

#[test]
fn bounds_that_cross_are_refused() {
    for (name, value) in
        [("wm_min", 9999.0), ("latency", 6000.0), ("low_latency", 3000.0), ("multicast", 0.5)]
    {
        let refused = ThreeCpoConfig::new().set(name, value).expect("there is one").is_err();
        assert!(refused, "{name}={value}");
    }
}

/// Who is not in the group, or too many operations, harm nobody.
#[test]
fn unknown_senders_are_ignored_and_memory_is_bounded() {
    let mut host = gpu3(whole());
    host.on_remote(0, 4, requests(5));
    host.on_remote(0, u16::MAX, requests(5));
    assert_eq!(unmatched(&host), [0, 0, 0]);
    let room = host.remote.capacity();
    (0..3 * REMEMBERED).for_each(|_| host.on_remote(0, 0, requests(9)));
    assert_eq!((host.remote.len(), host.remote.capacity()), (REMEMBERED, room));
    assert_eq!(unmatched(&host)[0], -9 * 4096);
}

/// Four hosts a hundred cycles from each other: whatever the order of things, each has a quarter of the time.
#[test]
fn shares_are_equal_in_the_mean() {
    const AWAY: u64 = 100;
    const CYCLES: u64 = 20_000;
    let config = Arc::new(whole());
    let mut hosts: Vec<ThreeCpo> =
        (0..4).map(|me| ThreeCpo::new(Arc::clone(&config), 4, me)).collect();
    let mut sends: Vec<Vec<u64>> = alloc::vec![Vec::new(); 4];
    for now in 0..CYCLES {
        for me in 0..4 {
            let heard =
                |sends: &Vec<u64>, ago| now >= ago && sends.binary_search(&(now - ago)).is_ok();
            for peer in (0..4).filter(|peer| *peer != me) {
                if heard(&sends[peer], AWAY) {
                    hosts[me].on_remote(now, peer as u16, requests(5));
                }
            }
            if heard(&sends[me], 2 * AWAY) {
                hosts[me].on_done(now, now - 2 * AWAY, requests(5), true);
            }
            // Not all at once.
            if now >= me as u64 * 37 && hosts[me].ready_at() <= now {
                hosts[me].on_send(now, requests(5), true);
                sends[me].push(now);
            }
        }
    }
    for (me, sends) in sends.iter().enumerate() {
        let expected = CYCLES as f64 / 20.0;
        let share = sends.len() as f64 / expected;
        assert!((0.9..=1.1).contains(&share), "{me}: {} of {expected}", sends.len());
    }
}
