//! Receiver-driven credits end to end: the senders of this crate and its receiver, on a port that trims
//! and a network that loses.

mod world;

use proptest::prelude::*;
use squall_cc::ReceiverConfig;
use squall_cc::base::{Span, Time};
use world::{MTU, Outcome, Scene, run};

const ON_CREDIT: [&str; 4] = ["eqds", "eqds+nscc", "eqds+smartt", "eqds+mprdma"];

fn incast(cc: &'static str, flows: usize, packets: u32) -> Scene {
    let flows = vec![(packets, Time::ZERO); flows];
    Scene { cc, receiver: None, flows, loss: 0.0, seed: 1 }
}

fn spans(outcome: &Outcome) -> (Time, Time) {
    let finished = outcome.finished.iter().map(|time| time.expect("all finish"));
    (finished.clone().min().expect("a flow"), finished.max().expect("a flow"))
}

/// All at once to one port: after the speculative first window the receiver paces, so the queue stays
/// short, the line full and the flows even.
#[test]
fn an_incast_is_paced_by_its_receiver() {
    for cc in ON_CREDIT {
        let (flows, packets) = (16, 400);
        let outcome = run(&incast(cc, flows, packets), Time(50_000_000));
        let (first, last) = spans(&outcome);
        // 16 * 400 * 4096 B at 100 Gb/s are 2097 us; a base round trip more to begin and to end.
        let ideal = 2_097_152 + 12_000;
        assert!(last.0 < ideal * 102 / 100, "{cc}: {last:?} is far from {ideal} ns");
        assert!(first.0 > last.0 * 97 / 100, "{cc}: from {first:?} to {last:?}");
        // The first window: each flow speculates with 225000 B, the port holds 150000.
        assert!(outcome.trimmed < 16 * 55, "{cc}: {} trimmed", outcome.trimmed);
        // The queue of the first window has drained by now.
        assert!(outcome.late_queue <= 4 * u64::from(MTU), "{cc}: {} B", outcome.late_queue);
        let again = outcome.sent - flows as u64 * u64::from(packets);
        assert!(again <= outcome.trimmed, "{cc}: {again} sent again, {} trimmed", outcome.trimmed);
        assert!(outcome.ungranted.iter().all(|&no| !no), "{cc}");
    }
}

#[test]
fn one_flow_alone_fills_the_line() {
    for cc in ON_CREDIT {
        let outcome = run(&incast(cc, 1, 2000), Time(50_000_000));
        let (_, last) = spans(&outcome);
        // 2000 * 4096 B at 100 Gb/s are 655 us, of which 99 % are granted.
        assert!(last.0 < 655_360 * 106 / 100 + 12_000, "{cc}: {last:?}");
        assert_eq!(outcome.trimmed, 0, "{cc}");
    }
}

/// If the receiver knows nothing of credit, the flows continue with a window and report it.
#[test]
fn without_grants_a_window_takes_over() {
    for cc in ON_CREDIT {
        let scene = Scene { receiver: Some(ReceiverConfig::Plain), ..incast(cc, 4, 500) };
        let outcome = run(&scene, Time(100_000_000));
        spans(&outcome);
        assert_eq!(outcome.ungranted, [true; 4], "{cc}");
    }
}

/// A short flow needs no credit: one round trip is enough.
#[test]
fn a_short_flow_does_not_wait() {
    for cc in ON_CREDIT {
        let outcome = run(&incast(cc, 1, 10), Time(50_000_000));
        let (_, last) = spans(&outcome);
        let ideal = Span::micros(12) + Span(10 * 328);
        assert!(last < Time::ZERO + ideal + Span(1_000), "{cc}: {last:?}");
    }
}

/// A late flow gets its share as soon as the receiver knows of it.
#[test]
fn a_late_flow_gets_its_half() {
    for cc in ON_CREDIT {
        let late = Time(200_000);
        let flows = vec![(3000, Time::ZERO), (1000, late)];
        let outcome = run(&Scene { flows, ..incast(cc, 0, 0) }, Time(50_000_000));
        let took = outcome.finished[1].expect("finishes").since(late);
        // 1000 * 4096 B at half the line are 655 us.
        assert!(took < Span::micros(655 * 115 / 100), "{cc}: {took:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Every flow finishes whatever is lost of data, ACKs, NACKs, grants and requests, whether the
    /// receiver grants or not, and no flow sends without end.
    #[test]
    fn every_flow_finishes_whatever_is_lost(
        cc in prop::sample::select(&ON_CREDIT[..]),
        granting in prop::bool::weighted(0.8),
        flows in prop::collection::vec((1..300u32, 0..500_000u64), 1..12),
        loss in prop_oneof![Just(0.0), Just(0.01), Just(0.1), Just(0.3)],
        seed: u64,
    ) {
        let packets: u64 = flows.iter().map(|flow| u64::from(flow.0)).sum();
        let scene = Scene {
            cc,
            receiver: (!granting).then_some(ReceiverConfig::Plain),
            flows: flows.into_iter().map(|(packets, start)| (packets, Time(start))).collect(),
            loss,
            seed,
        };
        let outcome = run(&scene, Time(2_000_000_000));
        prop_assert!(outcome.finished.iter().all(Option::is_some), "{:?}", outcome.finished);
        prop_assert!(outcome.sent < packets * 8 + 1000, "{} sent for {packets}", outcome.sent);
        if granting && loss == 0.0 {
            prop_assert!(outcome.ungranted.iter().all(|&no| !no));
        }
    }
}
