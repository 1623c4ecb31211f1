//! Every branch of algorithms 1, 3 and 4, with numbers worked by hand on the network of table 1:
//! 100 Gb/s, 12 us, MTU 4096. There `bdp_sf = delay_sf = 1`, so `beta = 5 * 4096 = 20480`,
//! `eta = 0.15 * 4096 = 614.4`, `alpha = 4 * 4096 / 12000 = 1.365333`, target 12 us, high 36 us,
//! largest window `12.5 B/ns * 12000 ns = 150000`, that is 36.6, so 37 packets or 151552 bytes, an eighth
//! of it 18944.

use super::*;
use crate::controller::{LossThreshold, SenderParameters};
use crate::fair::{FairCc, Fairness, Reference};
use crate::testing::{close, fairness};
use crate::{NetworkProfile, Tunable};
use squall_base::Rate;

const MTU: u32 = 4096;
const BASE: u64 = 12_000;

fn network(gbps: u64, base_rtt: u64) -> NetworkProfile {
    NetworkProfile {
        line: Rate::gbps(gbps),
        base_rtt: Span(base_rtt),
        mtu: MTU,
        trimming: false,
        min_window: None,
        min_base_rtt: None,
    }
}

fn reference() -> StrackConfig {
    StrackConfig::new(&network(100, BASE))
}

/// A context on a hand-cranked clock.
struct Bench {
    strack: Strack,
    now: Time,
}

impl Bench {
    fn new(config: StrackConfig) -> Self {
        config.check().expect("parameters in range");
        Self { strack: Strack::new(Arc::new(config), Time::ZERO), now: Time::ZERO }
    }

    /// A context with a window of 100000 bytes and an average queueing delay of `avg` nanoseconds.
    fn of(config: StrackConfig, avg: f32) -> Self {
        let mut bench = Self::new(config);
        bench.strack.cwnd = 100_000.0;
        bench.strack.avg_delay = avg;
        bench
    }

    fn with_avg(avg: f32) -> Self {
        Self::of(reference(), avg)
    }

    fn at(&mut self, nanos: u64) -> &mut Self {
        self.now = Time(nanos);
        self
    }

    fn feed(&mut self, feedback: &Feedback<'_>) -> f32 {
        self.strack.on_feedback(&Feedback { now: self.now, packets: 1, ..*feedback });
        self.strack.cwnd
    }

    /// One packet acknowledged after queueing for `delay` nanoseconds.
    fn ack(&mut self, ecn: bool, delay: u64) -> f32 {
        let rtt = Some(Span(u64::from(self.strack.base_rtt) + delay));
        self.feed(&Feedback { bytes: MTU, ecn, rtt, in_flight: 50_000, ..Feedback::default() })
    }
}

#[test]
fn parameters_are_those_of_table_1() {
    let config = reference();
    close(config.beta, 20_480.0);
    close(config.eta, 614.4);
    close(config.alpha, 1.365_333_3);
    assert_eq!((config.target_qdelay, config.target_qhigh), (Span(12_000), Span(36_000)));
    assert_eq!((config.probe_after, config.loss_delay), (Span(36_000), Span(60_000)));
    close(config.ewma, 0.125);
    close(config.gamma, 0.8);
    // The evaluation's network (section 4.2), 400 Gb/s times 8 us = 400 KB: bdp_sf = 2.666667,
    // delay_sf = 0.666667, alpha = 4 * 2.666667 * 0.666667 * 4096 / 8000 = 3.640889.
    let config = StrackConfig::new(&network(400, 8_000));
    close(config.beta, 54_613.33);
    close(config.eta, 1_638.4);
    close(config.alpha, 3.640_889);
    assert_eq!((config.target_qdelay, config.target_qhigh), (Span(8_000), Span(24_000)));
    // 400000 / 4096 = 97.7, so 98 packets.
    assert_eq!(Bench::new(config).strack.metrics().cwnd, Some(401_408));
}

#[test]
fn parameters_out_of_range_are_refused_by_name() {
    type Spoil = fn(&mut StrackConfig);
    let spoilt: [(&str, Spoil); 6] = [
        ("line", |c| c.line = Rate(0)),
        ("base_rtt", |c| c.base_rtt = Span::secs(2)),
        ("mtu", |c| c.mtu = 0),
        ("alpha", |c| c.alpha = f32::NAN),
        ("ewma", |c| c.ewma = 1.5),
        ("target_us", |c| c.target_qdelay = Span::ZERO),
    ];
    for (name, spoil) in spoilt {
        let mut config = reference();
        spoil(&mut config);
        assert_eq!(config.check().map_err(|error| error.parameter), Err(name));
    }
    assert_eq!(reference().check(), Ok(()));
}

/// Algorithm 3 lines 5 to 17, before a base RTT has passed and just after it. Line 4 moves the average
/// by an eighth of the difference; where it starts at `delay` it stays there. After 12 us lines 18 to
/// 21 add 614.4.
#[test]
fn the_branches_of_adjust_cwnd() {
    struct Case {
        name: &'static str,
        ecn: bool,
        delay: u64,
        avg: f32,
        achieved: u32,
        early: f32,
        late: f32,
    }
    let cases = [
        Case {
            name: "line 6: not marked any more: 20480 * 4096 / 100000 = 838.86",
            ecn: false,
            delay: 36_001,
            avg: 36_001.0,
            achieved: 5_000,
            early: 100_838.86,
            late: 101_453.26,
        },
        Case {
            name: "line 8: 1.365333 * (12000 - 4000) * 4096 / 100000 = 447.39",
            ecn: false,
            delay: 4_000,
            avg: 30_000.0,
            achieved: 5_000,
            early: 100_447.39,
            late: 101_061.79,
        },
        Case {
            name: "scenario 2: a mark at low delay is the path selector's business",
            ecn: true,
            delay: 11_999,
            avg: 30_000.0,
            achieved: 5_000,
            early: 100_000.0,
            late: 100_614.4,
        },
        Case {
            name: "line 13 wants more than the target",
            ecn: true,
            delay: 12_000,
            avg: 30_000.0,
            achieved: 5_000,
            early: 100_000.0,
            late: 100_614.4,
        },
        Case {
            name: "line 9 wants an average of more than the target",
            ecn: true,
            delay: 12_000,
            avg: 12_000.0,
            achieved: 5_000,
            early: 100_000.0,
            late: 100_614.4,
        },
        Case {
            name: "line 14: 1 - 0.8 * (24000 - 12000) / 24000 = 0.6",
            ecn: true,
            delay: 24_000,
            avg: 24_000.0,
            achieved: 5_000,
            early: 100_000.0,
            late: 60_614.4,
        },
        Case {
            name: "line 14 without a mark: between target and high it makes no difference",
            ecn: false,
            delay: 24_000,
            avg: 24_000.0,
            achieved: 5_000,
            early: 100_000.0,
            late: 60_614.4,
        },
        Case {
            name: "line 14 at high exactly: 1 - 0.8 * 24000 / 36000 = 0.4667, at least a half",
            ecn: true,
            delay: 36_000,
            avg: 36_000.0,
            achieved: 5_000,
            early: 100_000.0,
            late: 50_614.4,
        },
        Case {
            name: "line 5 wants more than high, so line 14 even without a mark",
            ecn: false,
            delay: 36_000,
            avg: 36_000.0,
            achieved: 5_000,
            early: 100_000.0,
            late: 50_614.4,
        },
        Case {
            name: "line 11",
            ecn: true,
            delay: 36_001,
            avg: 36_001.0,
            achieved: 18_943,
            early: 100_000.0,
            late: 19_557.4,
        },
        Case {
            name: "line 10: an eighth of the largest window got through, so line 14",
            ecn: true,
            delay: 36_001,
            avg: 36_001.0,
            achieved: 18_944,
            early: 100_000.0,
            late: 50_614.4,
        },
        Case {
            name: "line 10: nothing was measured yet, so line 14",
            ecn: true,
            delay: 36_001,
            avg: 36_001.0,
            achieved: 0,
            early: 100_000.0,
            late: 50_614.4,
        },
    ];
    for Case { name, ecn, delay, avg, achieved, early, late } in cases {
        for (at, cwnd) in [(12_000, early), (12_001, late)] {
            let mut bench = Bench::with_avg(avg);
            bench.strack.achieved = achieved;
            let is = bench.at(at).ack(ecn, delay);
            assert!((is - cwnd).abs() < 0.5, "{name}, at {at}: is {is}, should be {cwnd}");
        }
    }
}

/// Line 9 wants more than the target on average, for line 11 as for line 14.
#[test]
fn an_average_at_the_target_is_no_congestion() {
    for delay in [24_000, 36_001] {
        let mut bench = Bench::of(StrackConfig { ewma: 0.0, ..reference() }, 12_000.0);
        bench.strack.achieved = 5_000;
        close(bench.at(12_001).ack(true, delay), 100_614.4); // eta only
        assert_eq!(bench.strack.last_decrease, 0);
    }
}

/// Lines 10 and 13 ask different things; with `target_Qhigh` below the target they can be told apart.
#[test]
fn a_high_threshold_below_the_target_is_followed_to_the_letter() {
    for (achieved, delay, cwnd) in [
        (5_000, 11_000, 5_614.4), // line 11, and eta
        (0, 11_000, 100_614.4),   // neither line 10 nor line 13
        (0, 24_000, 60_614.4),    // line 14: 0.6 again
    ] {
        let mut bench =
            Bench::of(StrackConfig { target_qhigh: Span(10_000), ..reference() }, 24_000.0);
        bench.strack.achieved = achieved;
        bench.strack.avg_delay = 24_000.0 + (24_000.0 - delay as f32) / 7.0; // 24000 after line 4
        close(bench.at(12_001).ack(true, delay), cwnd);
    }
}

#[test]
fn the_average_moves_by_an_eighth() {
    let mut bench = Bench::with_avg(8_000.0);
    bench.at(100).ack(true, 16_000);
    close(bench.strack.avg_delay, 9_000.0); // 8000 + 0.125 * 8000
    bench.ack(true, 1_000);
    close(bench.strack.avg_delay, 8_000.0); // 9000 - 0.125 * 8000
}

#[test]
fn one_decrease_and_one_eta_a_base_rtt() {
    let mut bench = Bench::with_avg(24_000.0);
    close(bench.at(12_001).ack(true, 24_000), 60_614.4);
    close(bench.at(24_001).ack(true, 24_000), 60_614.4);
    close(bench.at(24_002).ack(true, 24_000), 60_614.4 * 0.6 + 614.4);
    // Eta does not wait for congestion to end, nor a decrease for eta.
    let mut bench = Bench::with_avg(0.0);
    bench.strack.last_selfai = 10_000;
    close(bench.at(12_001).ack(true, 0), 100_000.0);
    close(bench.at(22_001).ack(true, 0), 100_614.4);
    assert_eq!((bench.strack.last_selfai, bench.strack.last_decrease), (22_001, 0));
}

#[test]
fn a_coalesced_acknowledgement_adds_as_its_bytes() {
    let rtt = Some(Span(BASE + 36_001));
    let four = Feedback { bytes: 4 * MTU, packets: 4, rtt, ..Feedback::default() };
    let mut bench = Bench::with_avg(0.0);
    // 4 * 838.8608; the average takes one step an ACK: 36001 / 8.
    close(bench.at(100).feed(&four), 103_355.44);
    close(bench.strack.avg_delay, 4_500.125);
}

#[test]
fn achieved_bytes_are_those_of_a_base_rtt_and_a_target_delay() {
    let mut bench = Bench::with_avg(0.0);
    // The period begins with the first report at 100 and is over after more than 12 + 12 us.
    for at in [100, 1_000, 24_100] {
        bench.at(at).ack(true, 0);
        assert_eq!(bench.strack.achieved, 0);
    }
    bench.at(24_101).ack(true, 0);
    assert_eq!((bench.strack.achieved, bench.strack.rx_count), (4 * MTU, 0));
    // It stays until the next period is over; what a probe acknowledges does not count.
    bench.at(30_000).ack(true, 0);
    let answer = Feedback { kind: FeedbackKind::ProbeAnswered, bytes: MTU, ..Feedback::default() };
    bench.at(40_000).feed(&answer);
    assert_eq!(bench.strack.achieved, 4 * MTU);
    bench.at(48_102).feed(&answer);
    assert_eq!((bench.strack.achieved, bench.strack.rx_count), (MTU, 0));
}

#[test]
fn an_incast_converges_to_what_got_through() {
    let mut bench = Bench::new(reference());
    // All ACKs are 48 us late, so that the n-th leaves an average of 48000 (1 - 0.875^n).
    bench.at(12_500).ack(true, 48_000);
    bench.at(13_000).ack(true, 48_000);
    close(bench.strack.cwnd, 151_552.0); // the average is 11250; eta was paid, at the top
    // 15843.75 with the third, and no period is over: 1 - 0.8 * 3843.75 / 15843.75 = 0.805917.
    close(bench.at(13_500).ack(true, 48_000), 122_138.34);
    bench.at(20_000).ack(true, 48_000);
    // 24.001 us after the first: five packets got through, 20480 bytes, not fewer than 18944. Line 14
    // again, 1 - 0.8 * 11380.37 / 23380.37 = 0.610601, and eta.
    close(bench.at(36_501).ack(true, 48_000), 75_192.2);
    assert_eq!(bench.strack.achieved, 5 * MTU);
    // A period of three packets: line 11, 12288 bytes, and eta.
    bench.at(37_000).ack(true, 48_000);
    bench.at(48_000).ack(true, 48_000);
    close(bench.at(60_502).ack(true, 48_000), 12_902.4);
}

/// The paper to the letter.
fn letter() -> StrackConfig {
    let mut config = reference();
    config.set("loss_reaction", 0.0).expect("a parameter").expect("in range");
    config
}

#[test]
fn losses_are_seen_after_one_and_a_half_windows_and_to_the_letter_after_one() {
    let threshold = |config: &StrackConfig| {
        let LossThreshold { windows, packets } = config.loss_threshold();
        (windows, packets)
    };
    assert_eq!((threshold(&letter()), threshold(&reference())), ((1.0, 5), (1.5, 5)));
    let mut config = letter();
    config.set("loss_reaction", 1.0).expect("a parameter").expect("in range");
    assert_eq!(config, reference());
    for (name, value) in [("ooo_windows", 0.5), ("ooo_packets", 7.0)] {
        config.set(name, value).expect("a parameter").expect("in range");
    }
    assert_eq!(threshold(&config), (0.5, 7));
}

#[test]
fn a_refused_or_lost_packet_counts_as_one_late_by_a_full_queue() {
    for kind in [
        FeedbackKind::Nacked { trimmed: true, last_hop: false },
        FeedbackKind::Lost,
        FeedbackKind::TimedOut,
    ] {
        let lost = Feedback { kind, bytes: MTU, in_flight: 50_000, ..Feedback::default() };
        let mut bench = Bench::with_avg(0.0);
        // 60000 / 8 = 7500; the second: 7500 + 52500 / 8 = 14062.5 is beyond the target:
        // 1 - 0.8 * 2062.5 / 14062.5 = 0.882667.
        bench.strack.last_selfai = 12_001;
        close(bench.at(12_001).feed(&lost), 100_000.0);
        close(bench.strack.avg_delay, 7_500.0);
        close(bench.feed(&lost), 88_266.67);
        // With a measurement of heavy congestion, that.
        bench.strack.achieved = 10_000;
        close(bench.at(24_002).feed(&lost), 10_614.4);
        // To the letter of algorithm 3: no reaction.
        let mut bench = Bench::of(letter(), 50_000.0);
        close(bench.at(24_002).feed(&lost), 100_000.0);
        close(bench.strack.avg_delay, 50_000.0);
    }
}

#[test]
fn probes_follow_silence() {
    let mut bench = Bench::new(reference());
    assert_eq!(bench.strack.next_timer(), None);
    // The first packet starts the timer, the next one does not move it: 1000 + 3 * 12000.
    bench.strack.on_send(Time(1_000), &SentPacket::default());
    bench.strack.on_send(Time(2_000), &SentPacket::default());
    assert_eq!(bench.strack.next_timer(), Some(Time(37_000)));
    // An ACK does (algorithm 1 line 12).
    bench.at(20_000).ack(false, 0);
    assert_eq!(bench.strack.next_timer(), Some(Time(56_000)));
    bench.strack.on_timer(Time(55_999));
    assert_eq!(bench.strack.poll(Time(55_999)), None);
    bench.strack.on_timer(Time(56_000));
    assert_eq!(bench.strack.poll(Time(56_000)), Some(SenderAction::Probe));
    assert_eq!(bench.strack.poll(Time(56_000)), None);
    // Lost probes are repeated, ten in all.
    for n in 1..10 {
        let due = Time(56_000 + n * 36_000);
        assert_eq!(bench.strack.next_timer(), Some(due));
        bench.strack.on_timer(due);
        assert_eq!(bench.strack.poll(due), Some(SenderAction::Probe));
    }
    assert_eq!(bench.strack.next_timer(), None);
    // The answer starts anew, and the last ACK stops.
    let answer =
        Feedback { kind: FeedbackKind::ProbeAnswered, in_flight: 1, ..Feedback::default() };
    bench.at(500_000).feed(&answer);
    assert_eq!(bench.strack.next_timer(), Some(Time(536_000)));
    bench.strack.on_timer(Time(536_000));
    assert_eq!(bench.strack.poll(Time(536_000)), Some(SenderAction::Probe));
    assert_eq!(bench.strack.next_timer(), Some(Time(572_000)));
    bench.feed(&Feedback { bytes: MTU, ..Feedback::default() });
    assert_eq!(bench.strack.next_timer(), None);
    // So does giving up.
    bench.strack.on_send(Time(600_000), &SentPacket::default());
    bench.strack.on_event(Time(600_001), FlowEvent::Idle);
    assert_eq!(bench.strack.next_timer(), None);
    let mut silent = Bench::new(StrackConfig { probe_after: Span::MAX, ..reference() });
    silent.strack.on_send(Time(1_000), &SentPacket::default());
    assert_eq!(silent.strack.next_timer(), None);
}

#[test]
fn an_acknowledgement_without_a_sample_only_counts() {
    let mut bench = Bench::with_avg(24_000.0);
    let blind = Feedback { bytes: MTU, ecn: true, ..Feedback::default() };
    close(bench.at(90_000).feed(&blind), 100_000.0);
    assert_eq!(bench.strack.rx_count, MTU);
}

impl Bench {
    /// [`Self::ack`] of so many packets, where VAI and SF say what is made of it; the window.
    fn fair_ack(
        &mut self,
        fairness: &mut Fairness<Reference>,
        ecn: bool,
        delay: u64,
        packets: u16,
    ) -> f32 {
        let rtt = Some(Span(u64::from(self.strack.base_rtt) + delay));
        let (now, round_end) = (self.now, packets == 1);
        let feedback =
            Feedback { now, packets, bytes: MTU, ecn, rtt, round_end, ..Feedback::default() };
        self.strack.on_feedback_fairly(&feedback, fairness);
        self.strack.cwnd
    }
}

/// Line 14 for an average of 20 us: 1 - 0.8 * 8 / 20 = 0.68.
#[test]
fn with_sf_a_decrease_is_from_a_reference_and_lasts_after_thirty_packets() {
    let (mut bench, mut sf) = (Bench::with_avg(20_000.0), fairness("strack:sf=30"));
    bench.at(5_000);
    close(bench.fair_ack(&mut sf, true, 20_000, 10), 68_000.0);
    close(bench.fair_ack(&mut sf, true, 20_000, 19), 68_000.0);
    close(sf.reference(0.0), 100_000.0);
    close(bench.fair_ack(&mut sf, true, 20_000, 1), 68_000.0);
    close(sf.reference(0.0), 68_000.0);
    close(bench.fair_ack(&mut sf, true, 20_000, 10), 46_240.0);
    // What increases does so from the reference: line 6, 20480 * 4096 / 68000.
    close(bench.fair_ack(&mut sf, false, 40_000, 10), 68_000.0 + 1_233.61);
    close(sf.reference(0.0), 68_000.0 + 1_233.61);
    // A loss is none of it: line 14 with an average of 22.5 + 60 / 8, at once.
    bench.at(20_000).strack.avg_delay = 24_000.0;
    let kind = FeedbackKind::Nacked { trimmed: true, last_hop: false };
    let lost = Feedback { now: bench.now, kind, bytes: MTU, packets: 1, ..Feedback::default() };
    bench.strack.on_feedback_fairly(&lost, &mut sf);
    // 24 + (60 - 24) / 8 = 28.5 us: 1 - 0.8 * 16.5 / 28.5, and eta a base round trip after the last.
    close(bench.strack.cwnd, 69_233.61 * (1.0 - 0.8 * 16.5 / 28.5) + 614.4);
    close(sf.reference(0.0), bench.strack.cwnd);
}

/// 36 us of round trip are the threshold: base, target and a base round trip of queue.
#[test]
fn with_vai_a_long_queue_multiplies_what_is_added_a_round_trip() {
    let (mut bench, mut vai) = (Bench::with_avg(20_000.0), fairness("strack:vai=1"));
    bench.at(5_000);
    close(bench.fair_ack(&mut vai, true, 20_000, 1), 68_000.0);
    // 37 us: 37000 / 86.54 = 427 tokens, of which 150000 / 20 / 614.4 = 12.2 are spent; dampener 37 / 36.
    bench.strack.avg_delay = 12_000.0;
    let gain = 7_500.0 / 614.4 / (37.0 / 36.0 / 8.0 + 1.0);
    let (avg, target) = (12_000.0 + 13_000.0 / 8.0, 12_000.0);
    let left = 68_000.0 * (1.0 - 0.8 * (avg - target) / avg);
    close(bench.fair_ack(&mut vai, true, 25_000, 1), left + 614.4 * (gain - 1.0));
}
