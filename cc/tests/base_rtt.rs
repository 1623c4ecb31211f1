//! Laws of the windows that follow a measured base round-trip time, with the numbers of each
//! algorithm: NSCC (UE 1.0), SMaRTT and STrack.

use squall_cc::base::{Rate, Span, Time};
use squall_cc::{
    Feedback, FeedbackKind, NetworkProfile, Sender, SenderCc, SenderConfig, SenderMetrics,
};

const MTU: u32 = 4096;
const BASE: Span = Span::micros(12);

/// The windows of one algorithm on 100 Gb/s, 12 us, that is 12.5 B/ns and 150000 bytes.
struct Windows {
    name: &'static str,
    /// The first window, which is the largest.
    first: u64,
    /// The largest window after a round trip of 6 us.
    at_6_us: u64,
    /// Window with a floor of 10 us below the measured base round-trip time.
    at_floor: u64,
    /// A floor below the largest window, which is then the largest window after 6 us.
    floor: u64,
}

const ALL: [Windows; 3] = [
    // 1.5 bandwidth-delay products: 1.5 * 12.5 * 12000, * 6000, * 10000.
    Windows { name: "nscc", first: 225_000, at_6_us: 112_500, at_floor: 187_500, floor: 150_000 },
    // 1.25 bandwidth-delay products.
    Windows { name: "smartt", first: 187_500, at_6_us: 93_750, at_floor: 156_250, floor: 150_000 },
    // One bandwidth-delay product in whole packets: 150000 bytes are 37, 75000 are 19, 125000 are 31.
    Windows { name: "strack", first: 151_552, at_6_us: 77_824, at_floor: 126_976, floor: 140_000 },
];

fn network() -> NetworkProfile {
    NetworkProfile::new(Rate::gbps(100), BASE, MTU, true)
}

fn opened(name: &str, network: &NetworkProfile) -> Sender {
    let config = SenderConfig::by_name(name, network).expect("a name of the list");
    Sender::new(&config, Time::ZERO)
}

const REFUSED: FeedbackKind = FeedbackKind::Nacked { trimmed: false, last_hop: false };

fn report(kind: FeedbackKind, rtt: Span) -> Feedback<'static> {
    Feedback { kind, packets: 1, rtt: Some(rtt), ..Feedback::default() }
}

#[test]
fn a_new_flow_may_fill_its_largest_window() {
    for Windows { name, first, .. } in ALL {
        let sender = opened(name, &network());
        let budget = sender.budget(Time::ZERO);
        assert_eq!(budget.window, Some(first), "{name}");
        assert!(budget.allows(Time::ZERO, first - u64::from(MTU), MTU), "{name}");
        assert!(!budget.allows(Time::ZERO, first - u64::from(MTU) + 1, MTU), "{name}");
    }
}

/// An acknowledgement, the answer to a probe and a refusal all measure the base round-trip time.
#[test]
fn the_largest_window_follows_the_base_rtt_down_to_its_floors() {
    for Windows { name, at_6_us, at_floor, floor, .. } in ALL {
        let base_floor = NetworkProfile { min_base_rtt: Some(Span::micros(10)), ..network() };
        let window_floor = NetworkProfile { min_window: Some(floor), ..network() };
        for (network, max) in [(network(), at_6_us), (base_floor, at_floor), (window_floor, floor)]
        {
            for kind in [FeedbackKind::Acked, FeedbackKind::ProbeAnswered, REFUSED] {
                let mut sender = opened(name, &network);
                sender.on_feedback(&report(kind, Span::micros(6)));
                let SenderMetrics { cwnd, max_cwnd, base_rtt, .. } = sender.metrics();
                assert_eq!((cwnd, max_cwnd), (Some(max), Some(max)), "{name} {kind:?}");
                assert_eq!(base_rtt, Some(Span::micros(6)), "{name} {kind:?}");
                // The base round-trip time never grows back.
                sender.on_feedback(&report(FeedbackKind::Acked, Span::micros(9)));
                assert_eq!(sender.metrics().base_rtt, Some(Span::micros(6)), "{name}");
            }
        }
    }
}

/// The answer to a probe overtakes the queues, and a refusal for lack of room is no congestion: neither moves the
/// window or the average delay, however late and marked it is.
#[test]
fn probes_and_refusals_measure_the_base_rtt_and_nothing_else() {
    for Windows { name, .. } in ALL {
        for (kind, trips) in [(FeedbackKind::ProbeAnswered, [11, 90]), (REFUSED, [11, 11])] {
            let mut sender = opened(name, &network());
            for n in 1..=10 {
                // Losses, so that the window could grow as well as shrink.
                let now = Time(13_000 * n);
                let kind = FeedbackKind::Lost;
                sender.on_feedback(&Feedback { kind, now, bytes: MTU, ..report(kind, BASE) });
            }
            let before = sender.metrics();
            for rtt in trips {
                let now = Time(200_000);
                let late = Feedback { now, ecn: true, ..report(kind, Span::micros(rtt)) };
                sender.on_feedback(&late);
            }
            let after = sender.metrics();
            assert_eq!(after.cwnd, before.cwnd, "{name} {kind:?}");
            assert_eq!(after.avg_delay, before.avg_delay, "{name} {kind:?}");
            assert_eq!(after.base_rtt, Some(Span::micros(11)), "{name} {kind:?}");
        }
    }
}

#[test]
fn huge_counts_saturate() {
    for Windows { name, first, .. } in ALL {
        let mut sender = opened(name, &network());
        for kind in [FeedbackKind::Acked, FeedbackKind::ProbeAnswered, FeedbackKind::Acked] {
            let huge = Feedback { bytes: u32::MAX, in_flight: u64::MAX, ..report(kind, BASE) };
            sender.on_feedback(&huge);
        }
        assert_eq!(sender.metrics().cwnd, Some(first), "{name}");
    }
}
