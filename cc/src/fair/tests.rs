//! Algorithms 1 and 2 of the thesis with the numbers worked by hand, sampling frequency by its fluid model (figure 4.2),
//! and both by name.

use alloc::string::ToString;
use alloc::sync::Arc;
extern crate std;
use std::vec::Vec;

use squall_base::{Rate, Span, Time};

use super::{CongestionSample, Fairness, Reference, ReferenceUpdate};
use crate::NetworkProfile;
use crate::controller::{Feedback, SenderCc};
use crate::registry::{Sender, SenderConfig};

/// Star-17: 100 Gb/s, 4.16 us, payloads of 1000 bytes.
fn network() -> NetworkProfile {
    NetworkProfile::new(Rate::gbps(100), Span(4_160), 1_048, false)
}

fn fairness(text: &str) -> Fairness<()> {
    let config = SenderConfig::by_name(text, &network()).expect("allowed");
    Fairness::new(Arc::new(config.fair().expect("it lends its law")))
}

const CALM: CongestionSample = CongestionSample {
    measure: 5_000.0,
    decrease: false,
    packets: 1,
    round_end: true,
    window: 1.0,
    largest: 1.0,
};

fn gain(fairness: &mut Fairness<()>, measure: f32, decrease: bool) -> f32 {
    let sample = CongestionSample { measure, decrease, ..CALM };
    let update = fairness.update(&sample).expect("nothing is ignored");
    assert!(update.commit);
    update.gain
}

/// Threshold 10000, 30 a token.
const VAI: &str = "swift:vai=1,vai_threshold=10000,vai_token=30";

#[test]
fn tokens_come_with_congestion_and_are_spent_a_hundred_at_a_time() {
    let mut vai = fairness(VAI);
    // At the threshold there are none.
    assert_eq!(gain(&mut vai, 10_000.0, true), 1.0);
    // 12000 / 30 = 400 tokens, dampener 1.2: 100 / (1.2 / 8 + 1) = 86.957.
    assert!((gain(&mut vai, 12_000.0, true) - 86.956_52).abs() < 1e-3);
    assert_eq!((vai.bank, vai.dampener), (300.0, 1.2));
    // Three more times, then the plain increase: the dampener stays while there are tokens.
    for left in [200.0, 100.0, 0.0] {
        assert!((gain(&mut vai, 5_000.0, false) - 86.956_52).abs() < 1e-3);
        assert_eq!((vai.bank, vai.dampener), (left, 1.2));
    }
    // With the bank empty: one less for a round trip with congestion, and nothing left after one without.
    assert_eq!(gain(&mut vai, 9_000.0, true), 1.0);
    assert!((vai.dampener - 0.2).abs() < 1e-6);
    assert_eq!((gain(&mut vai, 9_000.0, true), vai.dampener), (1.0, 0.0));
    vai.dampener = 7.0;
    assert_eq!((gain(&mut vai, 5_000.0, false), vai.dampener), (1.0, 0.0));
}

#[test]
fn the_bank_is_bounded_and_a_long_queue_dampens() {
    let mut vai = fairness(VAI);
    // 100000 / 30 = 3333 tokens, 1000 at most; dampener 10: 100 / (10 / 8 + 1) = 44.44.
    assert!((gain(&mut vai, 1e5, true) - 44.444_44).abs() < 1e-3);
    assert_eq!((vai.bank, vai.dampener), (900.0, 10.0));
    // Again: 20, so 100 / (20 / 8 + 1) = 28.57.
    assert!((gain(&mut vai, 1e5, true) - 28.571_43).abs() < 1e-3);
    // Eighty would go below one: 100 / (1e4 / 8 + 1) < 1.
    vai.dampener = 1e4;
    assert_eq!(gain(&mut vai, 5_000.0, false), 1.0);
}

/// The worst of a round trip counts, and tokens are spent where the increase lasts.
#[test]
fn a_round_trip_is_judged_by_its_worst_packet() {
    let mut vai = fairness(VAI);
    let early = CongestionSample { measure: 30_000.0, round_end: false, decrease: true, ..CALM };
    assert_eq!(vai.update(&early), Some(ReferenceUpdate { commit: false, gain: 1.0 }));
    // 30000 / 30 = 1000 tokens, dampener 3: 100 / (3 / 8 + 1) = 72.73.
    assert!((gain(&mut vai, 5_000.0, false) - 72.727_27).abs() < 1e-3);
    let within = CongestionSample { round_end: false, ..CALM };
    let update = vai.update(&within).expect("not ignored");
    assert!((update.gain - 72.727_27).abs() < 1e-3 && !update.commit);
    assert_eq!(vai.bank, 900.0, "not spent");
}

#[test]
fn decreases_last_after_so_many_packets_and_increases_after_a_round_trip() {
    let mut sf = fairness("swift:sf=30");
    let down = CongestionSample { decrease: true, packets: 10, round_end: false, ..CALM };
    let commits: Vec<bool> =
        (0..7).filter_map(|_| sf.update(&down)).map(|update| update.commit).collect();
    assert_eq!(commits, [false, false, true, false, false, true, false]);
    // A round trip that ends does not make a decrease last,
    let end = CongestionSample { round_end: true, packets: 1, ..down };
    assert_eq!(sf.update(&end).map(|update| update.commit), Some(false));
    // but an increase, after which packets are counted anew.
    assert_eq!(sf.update(&CALM).map(|update| update.commit), Some(true));
    let commits: Vec<bool> =
        (0..3).filter_map(|_| sf.update(&down)).map(|update| update.commit).collect();
    assert_eq!(commits, [false, false, true]);
    let up = CongestionSample { packets: 500, round_end: false, ..CALM };
    assert_eq!(sf.update(&up).map(|update| update.commit), Some(false));
}

/// Where a trace is looked at: `GRID` nanoseconds apart.
const GRID: f64 = 100.0;

/// The rate in B/ns, `GRID` by `GRID`, of a flow that goes down by half a period, in steps of `1 / FINE` of that: by the
/// schedule with a sampling frequency of 30 packets, or with none and a round trip of `trip`.
fn rates(start: f64, trip: Option<f64>) -> Vec<f64> {
    const BETA: f64 = 0.5;
    const MTU: f64 = 1000.0;
    /// Parts of a packet, and of a period: the fluid model has no packets.
    const FINE: f64 = 30.0 * 50.0;
    let mut schedule = match trip {
        Some(_) => fairness("swift:random=1"),
        None => fairness("swift:sf=1"),
    };
    let (mut rate, mut now) = (start, 0.0);
    let mut rates = Vec::new();
    while rates.len() < 1_000 {
        if now >= GRID * rates.len() as f64 {
            rates.push(rate);
        }
        now += trip.unwrap_or(30.0 * MTU / rate) / FINE;
        let sample = CongestionSample { decrease: true, round_end: trip.is_some(), ..CALM };
        if schedule.update(&sample).is_some_and(|update| update.commit) {
            rate *= 1.0 - BETA / FINE;
        }
    }
    rates
}

/// How much fairer two flows of 100 and 50 Gb/s are with sampling frequency than without, in B/ns (expression 4.1).
fn fairer(trip: f64) -> Vec<f64> {
    let [r1, r0] = [12.5, 6.25].map(|start| rates(start, Some(trip)));
    let [s1, s0] = [12.5, 6.25].map(|start| rates(start, None));
    (0..r1.len()).map(|at| (r1[at] - r0[at]) - (s1[at] - s0[at])).collect()
}

/// Figure 4.2 of the thesis: r = 30 us, s = 30, MTU 1000, beta 0.5. The closed forms are
/// S(t) = S0 / (1 + b S0 t / (s MTU)) and R(t) = R0 exp(-b t / r).
#[test]
fn sampling_frequency_follows_its_fluid_model() {
    let closed = |at: f64| {
        let s = |start: f64| start / (1.0 + 0.5 * start * at / 30_000.0);
        let r = |start: f64| start * (-0.5 * at / 30_000.0).exp();
        (r(12.5) - r(6.25)) - (s(12.5) - s(6.25))
    };
    let differences = fairer(30_000.0);
    let (mut peak, mut most) = (0.0, 0.0);
    for (step, &difference) in (0u32..).zip(&differences).skip(1) {
        let at = f64::from(step) * GRID;
        assert!((difference - closed(at)).abs() < 0.02, "{at}: {difference}, {}", closed(at));
        assert!(difference > 0.0, "after {at} ns");
        if difference > most {
            (peak, most) = (at, difference);
        }
    }
    assert!((most - 4.32).abs() <= 0.02, "a peak of {most} B/ns");
    assert!((peak - 11_900.0).abs() <= 300.0, "at {peak} ns");
    // 1 / r < (C1 + C0) / (s MTU): a round trip of 1.6 us is where it begins to help.
    let [slow, quick] = [1_700.0, 1_500.0].map(|trip| fairer(trip)[2]);
    assert!(slow > 0.0 && quick < 0.0, "{slow}, {quick}");
}

/// Table 4.1 from what is known of Star-17, and the names.
#[test]
fn both_are_asked_for_by_name() {
    let by_name = |text: &str| SenderConfig::by_name(text, &network());
    let setting = |text: &str, name: &str| {
        let settings = by_name(text).expect(text).settings();
        settings.iter().find(|setting| setting.name == name).map(|setting| setting.value)
    };
    // Target 5 + 2 us and the 4.16 us of 52 KB; 30 ns.
    let swift = "swift:base_target_us=5,per_hop_us=2,vai=1,sf=30";
    assert_eq!((setting(swift, "vai"), setting(swift, "sf")), (Some(1.0), Some(30.0)));
    assert_eq!(setting(swift, "vai_threshold"), Some(11_160.0));
    assert_eq!(setting(swift, "vai_token"), Some(30.0));
    assert_eq!(setting("hpcc:vai=1", "vai_threshold"), Some(52_000.0));
    assert_eq!(setting("hpcc:vai=1", "vai_token"), Some(1_000.0));
    assert_eq!(setting("swift", "vai_token"), None);
    assert!(matches!(by_name("swift:vai=1,vai=0"), Ok(SenderConfig::Swift(_))));
    assert_eq!(by_name(swift).expect("allowed").name(), "swift");
    for nonsense in ["swift:vai=2", "swift:sf=-1", "swift:sf=1.5", "swift:random=2"] {
        assert!(by_name(nonsense).is_err(), "{nonsense}");
    }
    for without in ["timely:vai=1", "none:sf=30", "bbr:random=1"] {
        let refused = by_name(without).expect_err("no law to lend").to_string();
        assert!(refused.contains("has no parameter"), "{refused}");
    }
}

/// Of 4000 decreases at three quarters of the largest window, one in four is ignored.
#[test]
fn feedback_is_ignored_the_more_the_less_is_sent() {
    let ignored = |share: f32| {
        let mut random = fairness("swift:random=1");
        let one = |n: u32| CongestionSample {
            measure: 9_000.0 + n as f32,
            decrease: true,
            window: share,
            ..CALM
        };
        (0..4_000).filter(|&n| random.update(&one(n)).is_none()).count()
    };
    assert_eq!(ignored(1.0), 0);
    assert!((900..1100).contains(&ignored(0.75)), "{}", ignored(0.75));
    assert!((1900..2100).contains(&ignored(0.5)), "{}", ignored(0.5));
    // Nothing but a decrease that would last is.
    let mut random = fairness("swift:random=1");
    for decrease in [true, false] {
        let sample = CongestionSample { decrease, round_end: !decrease, window: 0.0, ..CALM };
        assert!((0..100).all(|_| random.update(&sample).is_some()));
    }
}

fn cwnd(sender: &Sender) -> u64 {
    sender.metrics().cwnd.expect("it has a window")
}

/// The thesis' Swift: windows of single acknowledgements from a reference, always an increase, no scaling by flow.
#[test]
fn swift_keeps_a_reference() {
    let text = "swift:base_target_us=5,per_hop_us=2,ai=0.025,max_cwnd=50,start_cwnd=40,sf=30";
    let config = SenderConfig::by_name(text, &network()).expect("allowed");
    let mut swift = Sender::new(&config, Time(1_000));
    let ack = |swift: &mut Sender, delay: u64, packets: u16, round_end: bool| {
        swift.on_feedback(&Feedback {
            now: Time(50_000),
            bytes: 1_048 * u32::from(packets),
            packets,
            rtt: Some(Span(delay)),
            round_end,
            ..Feedback::default()
        });
        cwnd(swift)
    };
    // 40 packets are 41920 B. 14 us are twice the target: 1 - 0.8 x 7 / 14 = 0.6, and 26.2 B: 25178.
    assert_eq!(ack(&mut swift, 14_000, 10, false), 25_178);
    // Not of the window, but of the reference, which stays where it was ..
    assert_eq!(ack(&mut swift, 14_000, 10, true), 25_178);
    // .. until the thirtieth packet. Then 25178.2 x 0.6 + 26.2 = 15133.1.
    assert_eq!(ack(&mut swift, 14_000, 10, false), 25_178);
    assert_eq!(ack(&mut swift, 14_000, 10, false), 15_133);
    // Below the target the reference and one step, however many come; it lasts once a round trip.
    assert_eq!(ack(&mut swift, 7_000, 10, false), 25_204);
    assert_eq!(ack(&mut swift, 7_000, 10, false), 25_204);
    assert_eq!(ack(&mut swift, 7_000, 10, true), 25_204);
    assert_eq!(ack(&mut swift, 7_000, 10, false), 25_230);
    // Half at most, and at a loss that is the reference.
    assert_eq!(ack(&mut swift, 1_000_000, 1, false), 12_628);
}

#[test]
fn a_decorated_context_is_small() {
    assert_eq!((size_of::<Fairness<()>>(), size_of::<Fairness<Reference>>()), (24, 32));
    for (text, bytes) in [
        ("swift:vai=1,sf=30", 72),
        ("hpcc:vai=1,sf=30", 128),
        ("nscc:vai=1,sf=30", 96),
        ("strack:vai=1,sf=30", 88),
        ("dctcp:vai=1,sf=30", 80),
    ] {
        let config = SenderConfig::by_name(text, &network()).expect("allowed");
        assert_eq!(Sender::new(&config, Time::ZERO).state_bytes(), bytes, "{text}");
    }
}
