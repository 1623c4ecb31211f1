//! Every packet is delivered exactly once, and its sender learns its fate, whatever the link does.

use crate::link::{ECHO, Faults, SlotState, World, fixed, nscc};
use proptest::prelude::*;
use squall_reliability::Config;
use squall_reliability::base::Span;

/// Checks the final state after `count` packets were sent from host 0.
fn check(world: &World, count: u32) {
    let [left, right] = &world.hosts;
    assert_eq!(left.failures, [], "{:?}", world.faults);
    for number in 0..count {
        assert_eq!(right.got.get(&number), Some(&1), "delivery of {number}");
        match (left.fates.get(&number), right.respond_each) {
            (Some(SlotState::Responded(id)), Some(each)) => {
                assert!(number.is_multiple_of(each) && u32::from(*id) == number & 0xffff);
            }
            (Some(SlotState::Acked), each) => {
                assert!(
                    each.is_none_or(|each| !number.is_multiple_of(each)),
                    "{number} unanswered"
                );
            }
            (fate, _) => panic!("{number} ended as {fate:?}"),
        }
    }
    assert_eq!(right.got.keys().filter(|number| **number < ECHO).count(), count as usize);
    assert_eq!(world.total_in_flight(0), 0);
    if right.echo.is_some() {
        for number in 0..count {
            assert_eq!(left.got.get(&(number + ECHO)), Some(&1), "echo of {number}");
            assert_eq!(right.fates.get(&(number + ECHO)), Some(&SlotState::Acked));
        }
    }
}

fn transfer(config: impl Fn(u64) -> Config, faults: Faults, count: u32, bytes: u32) -> World {
    let mut world = World::new(config(1), config(2), faults, 3);
    world.send(0, 0..count, bytes);
    assert!(world.settle(Span::secs(20)), "not settled: {:?}", world.hosts[0].pdcs.counters());
    check(&world, count);
    world
}

#[test]
fn a_clean_link_needs_no_retransmission() {
    let world = transfer(|seed| fixed(1 << 20, seed), Faults::default(), 5000, 4096);
    let counters = world.hosts[0].pdcs.counters();
    assert_eq!(counters.tx_packets, 5000);
    assert_eq!(counters.retransmissions(), 0);
    assert_eq!(counters.timeouts, 0);
    assert!(counters.rtt_samples > 10 && counters.rtt_min_ns >= 19_800);
    assert!(counters.rtt_max_ns < 200_000, "{}", counters.rtt_max_ns);
}

#[test]
fn a_small_packet_that_asks_is_acknowledged_at_once() {
    let mut world = World::new(nscc(1), nscc(2), Faults::default(), 3);
    world.send(0, 0..1, 100);
    let start = world.now;
    assert!(world.settle(Span::millis(1)));
    assert!(world.now.since(start) <= Span::micros(50));
    check(&world, 1);
}

#[test]
fn losses_are_repaired() {
    let faults = Faults { loss: 0.02, ..Faults::default() };
    let world = transfer(nscc, faults, 3000, 4096);
    assert!(world.hosts[0].pdcs.counters().retransmissions() > 30);
}

#[test]
fn echoes_return_on_the_same_context() {
    let faults = Faults { loss: 0.02, jitter: Span::micros(20), ..Faults::default() };
    let mut world = World::new(nscc(1), nscc(2), faults, 3);
    world.hosts[1].echo = Some(1000);
    world.send(0, 0..1000, 4096);
    assert!(world.settle(Span::secs(20)));
    check(&world, 1000);
    assert_eq!(world.hosts[1].pdcs.counters().opened, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn exactly_once_over_any_link(
        seed in any::<u64>(),
        loss in 0.0..0.3f64,
        duplicate in 0.0..0.2f64,
        mark in 0.0..0.5f64,
        trim in 0.0..0.3f64,
        jitter in 0u64..500_000,
        refuse in prop_oneof![Just(0.0), 0.0..0.5f64],
        count in 1u32..400,
        bytes in 64u32..4096,
        small_window in any::<bool>(),
        algorithm in any::<bool>(),
        echo in any::<bool>(),
        respond in prop_oneof![Just(None), (1u32..20).prop_map(Some)],
    ) {
        let faults = Faults {
            loss, duplicate, mark, trim, refuse, jitter: Span(jitter), ..Faults::default()
        };
        let config = |seed| {
            let mut config = if algorithm { nscc(seed) } else { fixed(1 << 18, seed) };
            if small_window {
                config.max_window_packets = 100;
                config.recv_window_packets = 128;
            }
            config.progress_deadline = Span::secs(100);
            config.contact_deadline = Span::secs(100);
            config
        };
        let mut world = World::new(config(seed), config(!seed), faults, seed ^ 1);
        world.hosts[1].echo = echo.then_some(bytes);
        world.hosts[1].respond_each = respond;
        world.send(0, 0..count, bytes);
        prop_assert!(world.settle(Span::secs(90)), "not settled");
        check(&world, count);
        // The number of control packets is bounded: each packet and each probe causes a few ACKs,
        // and a window with holes up to 32.
        for host in &world.hosts {
            let counters = host.pdcs.counters();
            let cause = counters.rx_packets + counters.rx_trimmed + counters.rx_probes;
            prop_assert!(counters.tx_acks <= 10 * cause + 100, "{counters:?}");
        }
    }
}
