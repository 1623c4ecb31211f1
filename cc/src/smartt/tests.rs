//! Every branch of the pseudo-code, with numbers worked by hand on the reference network: 100 Gb/s,
//! 12 us, MTU 4096, trimming. There `bdp = 12.5 B/ns * 12000 ns = 150000`, so `gamma = 1`,
//! `fi = 0.25`, `mi = 12 / (18 - 12) = 2`, `fd = 0.8`, `md = 2`, largest window
//! `1.25 * 150000 = 187500`, target round-trip time `1.5 * 12 = 18 us`.

use super::*;
use crate::testing::close;
use crate::{NetworkProfile, Tunable};
use squall_base::Rate;

const MTU: u32 = 4096;
const BASE: u64 = 12_000;

fn network(gbps: u64, trimming: bool) -> NetworkProfile {
    NetworkProfile {
        line: Rate::gbps(gbps),
        base_rtt: Span(BASE),
        mtu: MTU,
        trimming,
        min_window: None,
        min_base_rtt: None,
    }
}

fn reference() -> SmarttConfig {
    SmarttConfig::new(&network(100, true))
}

/// A context on a hand-cranked clock.
struct Bench {
    smartt: Smartt,
    now: Time,
}

impl Bench {
    fn new(config: SmarttConfig) -> Self {
        config.check().expect("parameters in range");
        Self { smartt: Smartt::new(Arc::new(config), Time::ZERO), now: Time::ZERO }
    }

    /// A context with `cwnd` and enough marks behind it to decrease, its QuickAdapt period begun at
    /// zero.
    fn of(config: SmarttConfig, cwnd: f32) -> Self {
        let mut bench = Self::new(config);
        bench.smartt.cwnd = cwnd;
        bench.smartt.avg_wtd = 0.5;
        bench.smartt.armed = true;
        bench.smartt.period_start = 0;
        bench
    }

    fn with_cwnd(cwnd: f32) -> Self {
        Self::of(reference(), cwnd)
    }

    fn at(&mut self, nanos: u64) -> &mut Self {
        self.now = Time(nanos);
        self
    }

    fn feed(&mut self, feedback: &Feedback<'_>) -> f32 {
        self.smartt.on_feedback(&Feedback { now: self.now, packets: 1, ..*feedback });
        self.smartt.cwnd
    }

    /// One packet acknowledged after a round trip of `rtt` nanoseconds.
    fn ack(&mut self, ecn: bool, rtt: u64) -> f32 {
        self.feed(&Feedback { bytes: MTU, ecn, rtt: Some(Span(rtt)), ..Feedback::default() })
    }

    /// One packet trimmed, with `in_flight` left.
    fn trim(&mut self, in_flight: u64) -> f32 {
        let kind = FeedbackKind::Nacked { trimmed: true, last_hop: false };
        self.feed(&Feedback { kind, bytes: MTU, in_flight, ..Feedback::default() })
    }
}

#[test]
fn parameters_follow_the_network() {
    let config = reference();
    close(config.fi, 0.25);
    close(config.mi, 2.0);
    close(config.md, 2.0);
    assert_eq!(config.near, Span(1_000));
    // Section 3.3: md doubles without trimming; section 3.5: fi and mi grow with the bdp, 800 Gb/s
    // being eight times the reference, fd and md do not.
    let config = SmarttConfig::new(&network(800, false));
    close(config.fi, 2.0);
    close(config.mi, 16.0);
    close(config.md, 4.0);
    close(config.fd, 0.8);
    // 1.25 * 100 B/ns * 12000 ns: the 1.42 MiB (1489000) at which Fig. 2 starts, rounded.
    assert_eq!(Bench::new(config).smartt.metrics().cwnd, Some(1_500_000));
    // A host with jitter does not see the network's delay to the microsecond.
    let jitter = NetworkProfile { min_base_rtt: Some(Span(BASE)), ..network(100, true) };
    assert_eq!(SmarttConfig::new(&jitter).near, Span(3_000));
}

#[test]
fn parameters_out_of_range_are_refused_by_name() {
    type Spoil = fn(&mut SmarttConfig);
    let spoilt: [(&str, Spoil); 6] = [
        ("line", |c| c.line = Rate(0)),
        ("base_rtt", |c| c.base_rtt = Span::secs(2)),
        ("mtu", |c| c.mtu = 0),
        ("target", |c| c.target = 1.0),
        ("fi", |c| c.fi = f32::NAN),
        ("wait_to_decrease", |c| c.wtd_threshold = 1.5),
    ];
    for (name, spoil) in spoilt {
        let mut config = reference();
        spoil(&mut config);
        assert_eq!(config.check().map_err(|error| error.parameter), Err(name));
    }
    assert_eq!(reference().check(), Ok(()));
}

/// The four cases of algorithm 1 lines 19 to 27, each on both sides of its border.
#[test]
fn the_four_cases() {
    let cases = [
        // Eq. 1: 100000 / 150000 * 0.8 * 4096 = 2184.5333.
        ("fair decrease", true, 15_000, 97_815.47),
        ("fair decrease at the target", true, 18_000, 97_815.47),
        // Eq. 2: 6000 / 24000 * 2 * 4096 = 2048; then eq. 1: 97952 / 150000 * 0.8 * 4096 = 2139.794.
        ("multiplicative decrease", true, 24_000, 95_812.21),
        // Twice the target: 18000 / 36000 * 2 = 1, a packet: 95904; eq. 1 takes 2095.055.
        ("a packet at twice the target", true, 36_000, 93_808.945),
        // 54000 / 72000 * 2 = 1.5, at most one packet.
        ("at most a packet", true, 72_000, 93_808.945),
        // Eq. 3: 4096 / 100000 * 4096 * 0.25 = 41.943.
        ("fair increase", false, 18_001, 100_041.94),
        ("fair increase far beyond", false, 90_000, 100_041.94),
        // Eq. 4: 3000 / 15000 * 4096 / 100000 * 4096 * 2 = 67.109; then eq. 3.
        ("multiplicative increase", false, 15_000, 100_109.05),
        // No room, only eq. 3.
        ("multiplicative increase at the target", false, 18_000, 100_041.94),
    ];
    for (name, ecn, rtt, cwnd) in cases {
        let is = Bench::with_cwnd(100_000.0).at(100).ack(ecn, rtt);
        assert!((is - cwnd).abs() < 0.05, "{name}: is {is}, should be {cwnd}");
    }
}

#[test]
fn multiplicative_increase_is_an_mtu_a_round_trip_at_most() {
    // Section 3.2.4: at the base RTT, 6000 / 12000 * 2 = 1 MTU for a whole window, here one of one
    // packet; eq. 3 adds a quarter.
    let mut bench = Bench::with_cwnd(4_096.0);
    close(bench.at(100).ack(false, 12_000), 4_096.0 + 4_096.0 + 1_024.0);
}

#[test]
fn multiplicative_increase_is_at_most_the_packet() {
    // 800 Gb/s, a window of one packet: 5000 / 13000 * 4096 * 16 = 25206, so 4096; eq. 3 is not
    // bounded: 4096 * 2 = 8192.
    let mut bench = Bench::of(SmarttConfig::new(&network(800, true)), 4_096.0);
    close(bench.at(100).ack(false, 13_000), 4_096.0 + 4_096.0 + 8_192.0);
}

#[test]
fn without_trimming_the_decrease_is_twice_as_strong() {
    // 6000 / 24000 * 4 = 1 packet, and eq. 1: 95904 / 150000 * 0.8 * 4096 = 2095.055.
    let mut bench = Bench::of(SmarttConfig::new(&network(100, false)), 100_000.0);
    close(bench.at(100).ack(true, 24_000), 93_808.945);
}

#[test]
fn the_window_waits_for_a_quarter_of_marks() {
    let mut bench = Bench::with_cwnd(100_000.0);
    bench.smartt.avg_wtd = 0.0;
    // 1 - 0.95^5 = 0.2262, 1 - 0.95^6 = 0.2649.
    for rtt in [15_000, 24_000, 15_000, 24_000, 24_000] {
        close(bench.at(100).ack(true, rtt), 100_000.0);
    }
    close(bench.smartt.avg_wtd, 0.226_219);
    close(bench.ack(true, 15_000), 97_815.47);
    close(bench.smartt.avg_wtd, 0.264_908);
    // Unmarked packets take the share down again: 0.95^2 * 0.2649 = 0.2391.
    bench.ack(false, 18_000);
    let cwnd = bench.ack(false, 18_000);
    bench.smartt.avg_wtd = 0.25 / 1.05;
    close(bench.ack(true, 18_000), cwnd * (1.0 - 0.8 * 4096.0 / 150_000.0));
    // Switched off, the first mark counts.
    let mut bench = Bench::of(SmarttConfig { wtd_threshold: 0.0, ..reference() }, 100_000.0);
    bench.smartt.avg_wtd = 0.0;
    close(bench.at(100).ack(true, 15_000), 97_815.47);
}

/// "As long as avg_wtd < 0.25": at a quarter exactly the window shrinks, on the fast and
/// on the slow path.
#[test]
fn a_quarter_of_marks_is_enough() {
    for published in [true, false] {
        let mut bench = Bench::of(SmarttConfig { wtd_alpha: 0.0, ..reference() }, 100_000.0);
        bench.smartt.published = published;
        bench.smartt.avg_wtd = 0.25;
        close(bench.at(100).ack(true, 15_000), 97_815.47);
        bench.smartt.avg_wtd = 0.249_99;
        close(bench.ack(true, 15_000), 97_815.47);
    }
}

/// Algorithm 3 line 2 without the fast path.
#[test]
fn a_microsecond_of_queue_is_no_empty_path_on_the_slow_path() {
    for (rtt, count) in [(12_999, MTU), (13_000, 0)] {
        let mut bench = Bench::with_cwnd(100_000.0);
        bench.smartt.published = false;
        bench.at(100).ack(false, rtt);
        assert_eq!(bench.smartt.count, count);
    }
}

#[test]
fn a_coalesced_acknowledgement_weighs_as_its_packets() {
    let four =
        Feedback { bytes: 4 * MTU, rtt: Some(Span(18_000)), ecn: true, ..Feedback::default() };
    for (packets, marked, share) in [
        // 0.5 + 0.05 * (4 - 4 * 0.5), 0.5 + 0.05 * (1 - 2); forty packets weigh twice one: their share.
        (4, 0, 0.6),
        (4, 1, 0.45),
        (40, 10, 0.25),
        (40, 99, 1.0),
    ] {
        let mut bench = Bench::with_cwnd(100_000.0);
        bench.smartt.on_feedback(&Feedback { packets, marked, now: Time(100), ..four });
        close(bench.smartt.avg_wtd, share);
    }
    // Eq. 1 of four packets is four times that of one: 8738.13.
    let mut bench = Bench::with_cwnd(100_000.0);
    close(bench.feed(&four), 91_261.87);
}

#[test]
fn a_trim_takes_its_bytes_off_and_asks_for_quick_adapt() {
    let mut bench = Bench::with_cwnd(100_000.0);
    close(bench.at(1_000).trim(50_000), 95_904.0); // line 29
    assert!(bench.smartt.trigger_qa);
    // Two packets in the period, eq. 1 for each: 95904 * 0.978155^2.
    bench.at(2_000).ack(true, 15_000);
    close(bench.ack(true, 15_000), 91_759.665);
    // The period ends at 18 us, with the third packet: 3 * 4096 * 0.8 = 9830.4, and no case besides.
    close(bench.at(18_000).ack(true, 15_000), 9_830.4);
    assert!(!bench.smartt.trigger_qa);
    assert_eq!(bench.smartt.acked, 0);
    // Once a period, and only when asked for.
    close(bench.at(36_000).ack(true, 18_000), 9_830.4 * (1.0 - 0.8 * 4096.0 / 150_000.0));
}

#[test]
fn a_trim_at_the_end_of_the_period_adapts_at_once() {
    for kind in [
        FeedbackKind::Nacked { trimmed: true, last_hop: true },
        FeedbackKind::Lost,
        FeedbackKind::TimedOut,
    ] {
        let mut bench = Bench::with_cwnd(100_000.0);
        for _ in 0..4 {
            bench.at(1_000).ack(true, 15_000);
        }
        // Lines 32 to 34: 4 * 4096 * 0.8.
        let lost = Feedback { kind, bytes: MTU, in_flight: 40_000, ..Feedback::default() };
        close(bench.at(18_000).feed(&lost), 13_107.2);
        assert_eq!(bench.smartt.to_ignore, 40_000);
        assert_eq!(bench.smartt.acked, 0, "a trimmed packet was not received");
    }
}

/// SMaRTT v1, Fig. 4: of the four packets that each of two senders begins with, two find room in the queue that they
/// share and two are trimmed.
#[test]
fn an_incast_of_two_leaves_each_the_half_that_got_through() {
    let (mtu, trtt) = (f32::from(4096u16), 18_000);
    for qa_scaling in [1.0, 0.8] {
        let mut bench = Bench::of(SmarttConfig { qa_scaling, ..reference() }, 4.0 * mtu);
        let in_flight = |packets: u64| packets * u64::from(MTU);
        // What was trimmed overtakes the queue, and asks for QuickAdapt; the window goes down by what it carried.
        close(bench.at(12_000).trim(in_flight(3)), 3.0 * mtu);
        close(bench.at(12_100).trim(in_flight(2)), 2.0 * mtu);
        assert!(bench.smartt.trigger_qa);
        // What came through counts, marked as it is, and changes the window by little.
        bench.at(12_700).ack(true, 12_700);
        let before = bench.at(13_400).ack(true, 13_400);
        assert!((1.9 * mtu..2.0 * mtu).contains(&before), "{before}");
        // After a target RTT the window is what was acknowledged in it: two packets. Here a retransmission is trimmed then.
        close(bench.at(trtt).trim(in_flight(0)), 2.0 * mtu * qa_scaling);
        assert!(!bench.smartt.trigger_qa);
    }
}

#[test]
fn quick_adapt_leaves_at_least_one_mtu() {
    // Nothing got through: max(0, 4096) * 0.8 = 3276.8, and line 36.
    let mut bench = Bench::with_cwnd(100_000.0);
    close(bench.at(18_000).trim(0), 4_096.0);
}

#[test]
fn the_first_report_only_opens_the_quick_adapt_period() {
    let mut bench = Bench::new(reference());
    close(bench.at(500_000).trim(0), 183_404.0);
    assert!(bench.smartt.armed && bench.smartt.trigger_qa);
    assert_eq!(bench.smartt.period_start, 500_000);
    // A target RTT later it happens.
    close(bench.at(517_999).ack(true, 15_000), 183_404.0);
    close(bench.at(518_000).ack(true, 15_000), 6_553.6);
}

#[test]
fn quick_adapt_ignores_what_was_in_flight() {
    let mut bench = Bench::with_cwnd(100_000.0);
    bench.at(1_000).ack(true, 15_000);
    bench.ack(true, 15_000);
    close(bench.at(18_000).trim(3 * u64::from(MTU)), 6_553.6);
    // Two ACKs change nothing, not even the share of marks (lines 8 to 10)...
    for _ in 0..2 {
        close(bench.at(60_000).ack(true, 90_000), 6_553.6);
        close(bench.smartt.avg_wtd, 0.548_75);
    }
    // ... but a trim does (line 29); QuickAdapt has to wait (line 32).
    let mut trimmed = Bench { smartt: bench.smartt.clone(), now: bench.now };
    trimmed.smartt.to_ignore = 2 * MTU;
    trimmed.smartt.cwnd = 50_000.0;
    close(trimmed.trim(100_000), 45_904.0);
    assert!(trimmed.smartt.trigger_qa);
    // The third ACK completes the ignored bytes and counts again: eq. 2 takes a packet, 6553.6 - 4096 =
    // 2457.6, so the floor.
    close(bench.ack(true, 90_000), 4_096.0);
}

#[test]
fn the_text_of_quick_adapt_ignores_trims_too() {
    let mut bench = Bench::of(SmarttConfig { ignore_trims: true, ..reference() }, 50_000.0);
    bench.smartt.to_ignore = 2 * MTU;
    close(bench.at(60_000).trim(100_000), 50_000.0);
    assert!(!bench.smartt.trigger_qa);
    // The second one is not ignored any more; one period passed, nothing came through.
    close(bench.trim(100_000), 4_096.0);
}

#[test]
fn ablations_of_quick_adapt() {
    let mut never = Bench::of(SmarttConfig { quick_adapt: false, ..reference() }, 100_000.0);
    close(never.at(18_000).trim(50_000), 95_904.0);
    let mut heeds = Bench::of(SmarttConfig { ignore: false, ..reference() }, 100_000.0);
    close(heeds.at(18_000).trim(50_000), 4_096.0);
    assert_eq!(heeds.smartt.to_ignore, 0);
}

#[test]
fn fast_increase_starts_after_one_clean_window_and_ends_with_the_first_delay() {
    let mut bench = Bench::with_cwnd(10_000.0);
    bench.smartt.count = 2_000;
    // 2000 + 4096 are less than the window: eq. 4, 0.5 * 4096 / 10000 * 8192 = 1677.72, and eq. 3,
    // 4096 / 10000 * 1024 = 419.43.
    close(bench.at(100).ack(false, 12_000), 12_097.15);
    bench.smartt.cwnd = 10_000.0;
    // 10192 > 10000: two MTU for each ACK from now on, and nothing else.
    close(bench.ack(false, 12_999), 18_192.0);
    // Once active it does not ask for another clean window (line 4, "or increase").
    bench.smartt.cwnd = 50_000.0;
    close(bench.ack(false, 12_000), 58_192.0);
    // A microsecond of queue is not an empty path: eq. 4, 5000 / 13000 * 4096 / 58192 * 8192 = 221.78,
    // and eq. 3, 72.08.
    close(bench.ack(false, 13_000), 58_485.86);
    assert!(!bench.smartt.increase);
    assert_eq!(bench.smartt.count, 0);
}

#[test]
fn a_mark_ends_fast_increase() {
    let mut bench = Bench::with_cwnd(100_000.0);
    bench.smartt.increase = true;
    bench.smartt.count = 90_000;
    close(bench.at(100).ack(true, 12_000), 97_815.47);
    assert!(!bench.smartt.increase);
    assert_eq!(bench.smartt.count, 0);
    // Ablation: an empty path is then a case of eq. 4 like any other, 0.5 * 4096 / 100000 * 8192 =
    // 167.77, and eq. 3, 41.94.
    let mut bench = Bench::of(SmarttConfig { fast_increase: false, ..reference() }, 100_000.0);
    bench.smartt.increase = true;
    close(bench.at(100).ack(false, 12_000), 100_209.72);
}

#[test]
fn either_signal_can_be_switched_off() {
    let no_ecn = SmarttConfig { ecn: false, ..reference() };
    let no_delay = SmarttConfig { delay: false, ..reference() };
    for (config, ecn, rtt, cwnd) in [
        // A mark below the target is not seen: eq. 4 and eq. 3 as above. An unmarked packet beyond it
        // is a marked one: eq. 2 and eq. 1.
        (&no_ecn, true, 15_000, 100_109.05),
        (&no_ecn, false, 24_000, 95_812.21),
        (&no_ecn, false, 18_000, 100_041.94), // not beyond it
        // A mark is a third beyond the target: 6000 / 24000 * 2 = half a packet. No mark is the target.
        (&no_delay, true, 12_000, 95_812.21),
        (&no_delay, false, 12_000, 100_041.94),
        (&no_delay, false, 90_000, 100_041.94),
    ] {
        let is = Bench::of(config.clone(), 100_000.0).at(100).ack(ecn, rtt);
        assert!((is - cwnd).abs() < 0.05, "ecn {ecn}, rtt {rtt}: is {is}, should be {cwnd}");
    }
}

#[test]
fn the_target_and_the_gain_follow_the_base_rtt() {
    let shorter = Feedback { bytes: 0, rtt: Some(Span(6_000)), ..Feedback::default() };
    for (min_base_rtt, max) in [(Span::ZERO, 93_750.0), (Span(10_000), 156_250.0)] {
        let mut bench = Bench::new(SmarttConfig { min_base_rtt, ..reference() });
        bench.feed(&shorter);
        assert_eq!(bench.smartt.target, 9_000);
        // Eq. 1: 0.8 * 1.25 / max.
        close(bench.smartt.fd_per_bdp, 1.0 / max);
    }
}

#[test]
fn bytes_that_a_probe_acknowledges_count_as_achieved() {
    let mut bench = Bench::with_cwnd(100_000.0);
    let (kind, rtt) = (FeedbackKind::ProbeAnswered, Some(Span(BASE)));
    bench.feed(&Feedback { kind, rtt, bytes: MTU, ..Feedback::default() });
    assert_eq!(bench.smartt.acked, MTU);
}

#[test]
fn an_acknowledgement_without_a_sample_can_only_adapt() {
    let mut bench = Bench::with_cwnd(100_000.0);
    let blind = Feedback { bytes: MTU, ecn: true, ..Feedback::default() };
    close(bench.at(1_000).feed(&blind), 100_000.0);
    assert_eq!(bench.smartt.acked, MTU);
    close(bench.smartt.avg_wtd, 0.525);
    bench.smartt.trigger_qa = true;
    close(bench.at(18_000).feed(&blind), 6_553.6);
}

#[test]
fn the_fast_path_equals_the_slow_path() {
    let mut rng = squall_base::Rng::new(11);
    for _ in 0..50 {
        let (mut short, mut long) = (Bench::new(reference()), Bench::new(reference()));
        long.smartt.published = false;
        let mut now = 0;
        for _ in 0..300 {
            now += u64::from(rng.below(3_000));
            let kind = match rng.below(40) {
                0 => FeedbackKind::Nacked { trimmed: true, last_hop: false },
                1 => FeedbackKind::TimedOut,
                2 => FeedbackKind::ProbeAnswered,
                _ => FeedbackKind::Acked,
            };
            let packets = 1 + u16::try_from(rng.below(4)).expect("at most 4");
            let congested = rng.below(3);
            let delay = rng.below([1_200, 10_000, 40_000][congested as usize]);
            let report = Feedback {
                kind,
                now: Time(now),
                bytes: u32::from(packets) * MTU,
                packets,
                ecn: congested > 0 && rng.below(2) > 0,
                rtt: (rng.below(10) > 0).then_some(Span(BASE - 20 + u64::from(delay))),
                in_flight: 30_000,
                ..Feedback::default()
            };
            short.smartt.on_feedback(&report);
            long.smartt.on_feedback(&report);
            let (a, b) = (&short.smartt, &long.smartt);
            close(a.cwnd, b.cwnd);
            close(a.avg_wtd, b.avg_wtd);
            assert_eq!(
                (a.to_ignore, a.trigger_qa, a.increase, a.period_start, a.acked, a.base_rtt),
                (b.to_ignore, b.trigger_qa, b.increase, b.period_start, b.acked, b.base_rtt),
            );
            // Let single precision not add up.
            long.smartt.cwnd = short.smartt.cwnd;
            long.smartt.avg_wtd = short.smartt.avg_wtd;
        }
    }
}
