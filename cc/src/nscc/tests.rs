//! Every branch of the pseudo-code, with numbers worked by hand on the reference network: 100 Gb/s,
//! 12 us, MTU 4096, trimming. There `a = 1`, `b = 9 us / 12 us = 0.75`, so
//! `alpha = 4 * 1 * 0.75 * 4096 / 9000 = 1.365333`, `fi = 20480`, `fi_scale = 0.25`, `eta = 614.4`,
//! `max_wnd = 1.5 * 150000 = 225000`, target 9 us, QuickAdapt period 12 + 9 = 21 us.

use super::*;
use crate::fair::{FairCc, Fairness, Reference};
use crate::testing::{close, fairness};
use squall_base::Rate;

use crate::network::NetworkProfile;
use crate::tuning::Tunable;

const MTU: u32 = 4096;
const BASE: u64 = 12_000;

fn reference() -> NsccConfig {
    NsccConfig::new(&NetworkProfile::new(Rate::gbps(100), Span(BASE), MTU, true))
}

/// A context on a hand-cranked clock.
struct Bench {
    nscc: Nscc,
    now: Time,
}

impl Bench {
    fn new(config: NsccConfig) -> Self {
        config.check().expect("parameters in range");
        Self { nscc: Nscc::new(Arc::new(config), Time::ZERO), now: Time::ZERO }
    }

    /// A reference context with `cwnd`, its QuickAdapt period begun at zero.
    fn with_cwnd(cwnd: f32) -> Self {
        let mut bench = Self::new(reference());
        bench.nscc.flow.cwnd = cwnd;
        bench.arm();
        bench
    }

    /// Begins a QuickAdapt period at zero.
    fn arm(&mut self) {
        (self.nscc.flow.qa, self.nscc.flow.qa_start) = (ARMED, 0);
    }

    fn triggered(&self) -> bool {
        self.nscc.flow.qa & TRIGGERED != 0
    }

    fn at(&mut self, nanos: u64) -> &mut Self {
        self.now = Time(nanos);
        self
    }

    fn feed(&mut self, feedback: &Feedback<'_>) -> f32 {
        self.nscc.on_feedback(&Feedback { now: self.now, packets: 1, ..*feedback });
        self.nscc.flow.cwnd
    }

    /// One packet acknowledged after queueing for `delay` nanoseconds.
    fn ack(&mut self, ecn: bool, delay: u64) -> f32 {
        let rtt = Some(Span(u64::from(self.nscc.flow.base_rtt) + delay));
        self.feed(&Feedback { bytes: MTU, ecn, rtt, ..Feedback::default() })
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
    close(config.alpha, 1.365_333_3);
    close(config.fi, 20_480.0);
    close(config.fi_scale, 0.25);
    close(config.eta, 614.4);
    assert_eq!(config.target_qdelay, Span(9_000));
    assert_eq!(config.qa_threshold, Span::MAX);
    assert_eq!(config.adjust_bytes, 32_768);
    // Without trimming the target is the base RTT, and four of those trigger QuickAdapt.
    let config = NsccConfig::new(&NetworkProfile::new(Rate::gbps(100), Span(BASE), MTU, false));
    assert_eq!((config.target_qdelay, config.qa_threshold), (Span(12_000), Span(48_000)));
    // 400 Gb/s * 8 us = 400000 B: a = 2.666667, target 6 us, b = 0.5,
    // alpha = 4 * 2.666667 * 0.5 * 4096 / 6000 = 3.640889, fi = 5 * 4096 * a, eta = 0.15 * 4096 * a.
    let config = NsccConfig::new(&NetworkProfile::new(Rate::gbps(400), Span(8_000), MTU, true));
    close(config.alpha, 3.640_889);
    close(config.fi, 54_613.33);
    close(config.fi_scale, 0.666_666_7);
    close(config.eta, 1_638.4);
    assert_eq!(Bench::new(config).nscc.metrics().cwnd, Some(600_000));
}

#[test]
fn parameters_out_of_range_are_refused_by_name() {
    type Spoil = fn(&mut NsccConfig);
    let spoilt: [(&str, Spoil); 6] = [
        ("link_rate", |c| c.link_rate = Rate(0)),
        ("base_rtt", |c| c.base_rtt = Span::secs(2)),
        ("mtu", |c| c.mtu = 0),
        ("alpha", |c| c.alpha = f32::NAN),
        ("fi", |c| c.fi = -1.0),
        ("qa_gate", |c| c.qa_gate = 32),
    ];
    for (name, spoil) in spoilt {
        let mut config = reference();
        spoil(&mut config);
        assert_eq!(config.check().map_err(|error| error.parameter), Err(name));
    }
    assert_eq!(reference().check(), Ok(()));
}

#[test]
fn fair_increase_is_paid_after_eight_mtu() {
    let mut bench = Bench::with_cwnd(100_000.0);
    for _ in 0..8 {
        // 8 * 4096 = 32768 is not more than adjust_bytes.
        close(bench.at(100).ack(false, 9_000), 100_000.0);
    }
    // inc = 9 * 4096 * 20480 = 754974720; / 100000 = 7549.75.
    close(bench.ack(false, 9_000), 107_549.75);
    assert_eq!((bench.nscc.flow.inc, bench.nscc.flow.received), (0.0, 0));
}

#[test]
fn proportional_increase_follows_the_distance_to_the_target() {
    let mut bench = Bench::with_cwnd(100_000.0);
    for _ in 0..9 {
        bench.at(100).ack(false, 4_500);
    }
    // inc = 9 * 1.365333 * 4096 * (9000 - 4500) = 226492416; / 100000 = 2264.92.
    close(bench.nscc.flow.cwnd, 102_264.92);
}

#[test]
fn a_mark_at_low_delay_is_left_to_the_path_selector() {
    let mut bench = Bench::with_cwnd(100_000.0);
    for _ in 0..9 {
        close(bench.at(100).ack(true, 8_999), 100_000.0);
    }
}

#[test]
fn eta_is_added_once_a_period() {
    let mut bench = Bench::with_cwnd(100_000.0);
    close(bench.at(11_999).ack(true, 0), 100_000.0);
    close(bench.at(12_000).ack(true, 0), 100_614.4);
    close(bench.at(12_001).ack(true, 0), 100_614.4);
    close(bench.at(24_000).ack(true, 0), 101_228.8);
}

#[test]
fn fast_increase_starts_after_one_clean_window_and_ends_with_the_first_delay() {
    let mut bench = Bench::with_cwnd(8_000.0);
    // 4096 bytes in a row are less than the window: proportional increase, not yet paid.
    close(bench.at(100).ack(false, 0), 8_000.0);
    assert!(!bench.nscc.flow.increase);
    // 8192 > 8000: a quarter of 4096 for each ACK from now on.
    close(bench.ack(false, 999), 9_024.0);
    close(bench.ack(false, 0), 10_048.0);
    // Once active it does not ask for another clean window (line 4, "or increase").
    bench.nscc.flow.cwnd = 50_000.0;
    close(bench.ack(false, 0), 51_024.0);
    bench.nscc.flow.cwnd = 10_048.0;
    // A microsecond of queue is not an empty path.
    close(bench.ack(false, 1_000), 10_048.0);
    assert!(!bench.nscc.flow.increase);
    assert_eq!(bench.nscc.flow.fi_count, 0.0);
    close(bench.ack(false, 0), 10_048.0);
}

#[test]
fn a_mark_at_high_delay_ends_fast_increase() {
    let mut bench = Bench::with_cwnd(8_000.0);
    bench.at(100).ack(false, 0);
    bench.ack(false, 0);
    bench.ack(true, 9_000);
    assert!(!bench.nscc.flow.increase);
    assert_eq!(bench.nscc.flow.fi_count, 0.0);
}

/// A mark at low delay, and a long delay without a mark: UE 1.0 does not ask FastIncrease then, algorithm 3 of the
/// paper counts anew.
#[test]
fn what_ends_fast_increase_in_the_paper_is_passed_over_in_ue() {
    for (marked, delay) in [(true, 0), (false, 10_000)] {
        let of = |paper| {
            let mut bench = match paper {
                true => without(8_000.0, |parts| parts.fast_in_a_row = true),
                false => Bench::with_cwnd(8_000.0),
            };
            bench.at(100).ack(false, 0);
            bench.ack(false, 0);
            assert!(bench.nscc.flow.increase);
            bench.ack(marked, delay);
            (bench.nscc.flow.increase, bench.nscc.flow.fi_count > 0.0)
        };
        assert_eq!((of(false), of(true)), ((true, true), (false, false)));
    }
}

#[test]
fn multiplicative_decrease_once_a_base_rtt() {
    let mut bench = Bench::with_cwnd(100_000.0);
    bench.nscc.flow.avg_delay = 18_000.0;
    // Not more than one base RTT after the start; but the period is over: eta.
    close(bench.at(12_000).ack(true, 18_000), 100_614.4);
    // 1 - 0.8 * (18000 - 9000) / 18000 = 0.6.
    close(bench.at(12_001).ack(true, 18_000), 60_368.64);
    close(bench.at(12_002).ack(true, 18_000), 60_368.64);
    close(bench.at(23_999).ack(true, 18_000), 60_368.64);
    // 0.6 again; eta too, 12 us after the first.
    close(bench.at(24_002).ack(true, 18_000), 60_368.64 * 0.6 + 614.4);
}

#[test]
fn one_decrease_at_most_halves() {
    let mut bench = Bench::with_cwnd(100_000.0);
    // 1 - 0.8 * (90000 - 9000) / 90000 = 0.28, so one half; then eta.
    bench.nscc.flow.avg_delay = 90_000.0;
    close(bench.at(12_001).ack(true, 90_000), 50_614.4);
}

#[test]
fn no_decrease_while_the_average_is_at_its_target() {
    let mut bench = Bench::with_cwnd(100_000.0);
    bench.nscc.flow.avg_delay = 8_000.0;
    // The average becomes 8000 + 4096 / 100000 * 1000.
    close(bench.at(12_001).ack(true, 9_000), 100_614.4);
    close(bench.nscc.flow.avg_delay, 8_040.96);
}

#[test]
fn a_trim_takes_its_bytes_off_and_asks_for_quick_adapt() {
    let mut bench = Bench::with_cwnd(100_000.0);
    close(bench.at(1_000).trim(50_000), 95_904.0);
    assert!(bench.triggered());
    // 4096 / 100000 of the way from 0 to 12000.
    close(bench.nscc.flow.avg_delay, 491.52);
    bench.at(2_000).ack(true, 0);
    bench.ack(true, 0);
    // The period ends at 21 us. Until then 3 packets arrive: 12288 < 225000 / 8 = 28125.
    close(bench.at(21_000).ack(true, 0), 12_288.0);
    assert!(!bench.triggered());
    assert_eq!((bench.nscc.flow.achieved, bench.nscc.flow.received), (0, 0));
}

#[test]
fn quick_adapt_ignores_what_was_in_flight() {
    let mut bench = Bench::with_cwnd(100_000.0);
    bench.at(1_000).ack(true, 0);
    bench.ack(true, 0);
    close(bench.at(21_000).trim(3 * u64::from(MTU)), 8_192.0);
    assert_eq!(bench.nscc.flow.to_ignore, 3 * MTU);
    // The two packets trimmed and marked next were sent before: no reaction, however late.
    close(bench.at(60_000).trim(2 * u64::from(MTU)), 8_192.0);
    bench.nscc.flow.avg_delay = 20_000.0;
    close(bench.ack(true, 20_000), 8_192.0);
    assert_eq!(bench.nscc.flow.to_ignore, MTU);
    // The third one completes the ignored bytes and counts again, but nothing asks for QuickAdapt:
    // 1 - 0.8 * (20000 - 9000) / 20000 = 0.56, and eta.
    bench.nscc.flow.qa = ARMED;
    close(bench.ack(true, 20_000), 8_192.0 * 0.56 + 614.4);
}

#[test]
fn quick_adapt_keeps_unmarked_acknowledgements_alive() {
    let mut bench = Bench::with_cwnd(100_000.0);
    close(bench.at(21_000).trim(100_000), 4_096.0); // nothing achieved: one MTU
    assert_eq!(bench.nscc.flow.to_ignore, 100_000);
    for _ in 0..9 {
        bench.at(22_000).ack(false, 9_000);
    }
    // The first of the nine is a period after the last adjustment at zero, so it pays at once:
    // 4096 * 20480 / 4096 + 614.4 = 21094.4, 25190.4 in all; the other eight make 32768, not more.
    close(bench.nscc.flow.cwnd, 25_190.4);
}

#[test]
fn quick_adapt_stays_away_when_enough_got_through() {
    let mut bench = Bench::with_cwnd(100_000.0);
    // 7 * 4096 = 28672 >= 28125.
    for _ in 0..7 {
        bench.at(1_000).ack(true, 0);
    }
    close(bench.at(21_000).trim(50_000), 95_904.0);
    assert_eq!(bench.nscc.flow.to_ignore, 0);
}

#[test]
fn the_first_report_only_opens_the_quick_adapt_period() {
    let mut bench = Bench::new(reference());
    close(bench.at(500_000).trim(0), 220_904.0);
    assert_eq!((bench.nscc.flow.qa & ARMED, bench.nscc.flow.qa_start), (ARMED, 500_000));
}

#[test]
fn without_trimming_delay_alone_triggers_quick_adapt() {
    for (delay, should) in [(48_000, 0), (48_001, MTU)] {
        let mut bench = Bench::new(NsccConfig::new(&NetworkProfile::new(
            Rate::gbps(100),
            Span(BASE),
            MTU,
            false,
        )));
        bench.arm();
        // Period 12 + 12 us.
        bench.at(24_000).ack(true, delay);
        let adapted = bench.nscc.flow.cwnd == 4_096.0;
        assert_eq!(adapted, should > 0, "at {delay}");
    }
}

#[test]
fn a_last_hop_trim_is_left_to_a_receiver_that_grants_credit() {
    for (rccc, cwnd) in [(true, 100_000.0), (false, 95_904.0)] {
        let mut bench = Bench::new(NsccConfig { rccc, ..reference() });
        bench.nscc.flow.cwnd = 100_000.0;
        let kind = FeedbackKind::Nacked { trimmed: true, last_hop: true };
        bench.feed(&Feedback { kind, bytes: MTU, ..Feedback::default() });
        close(bench.nscc.flow.cwnd, cwnd);
        close(bench.nscc.flow.avg_delay, 491.52);
        assert_eq!(bench.triggered(), !rccc);
    }
}

#[test]
fn losses_take_their_bytes_off_down_to_one_mtu() {
    for kind in [FeedbackKind::Lost, FeedbackKind::TimedOut] {
        let mut bench = Bench::with_cwnd(10_000.0);
        let lost = Feedback { kind, bytes: MTU, ..Feedback::default() };
        close(bench.feed(&lost), 5_904.0);
        close(bench.feed(&lost), 4_096.0);
    }
}

#[test]
fn a_time_out_from_before_quick_adapt_is_ignored() {
    for (kind, cwnd) in [(FeedbackKind::TimedOut, 10_000.0), (FeedbackKind::Lost, 5_904.0)] {
        let mut bench = Bench::with_cwnd(10_000.0);
        bench.nscc.flow.to_ignore = 5_000;
        close(bench.feed(&Feedback { kind, bytes: MTU, ..Feedback::default() }), cwnd);
        assert_eq!(bench.nscc.flow.to_ignore, 904);
    }
}

#[test]
fn the_receivers_penalty_shrinks_and_later_restores() {
    let mut bench = Bench::with_cwnd(100_000.0);
    let rtt = Some(Span(BASE));
    let penalised =
        Feedback { bytes: MTU, rtt, penalty: Some(64), in_flight: 40_000, ..Feedback::default() };
    // min(100000, 40000) - 64 * 4096 / 128.
    close(bench.feed(&penalised), 37_952.0);
    // No increase while there is a penalty.
    assert_eq!(bench.nscc.flow.inc, 0.0);
    close(bench.feed(&penalised), 35_904.0);
    // The first window is the one restored, once.
    let lifted =
        Feedback { bytes: MTU, penalty: Some(0), restore_cwnd: true, ..Feedback::default() };
    close(bench.feed(&lifted), 100_000.0);
    bench.nscc.flow.cwnd = 50_000.0;
    close(bench.feed(&lifted), 50_000.0);
    // Never below one MTU.
    let full = Feedback { penalty: Some(127), in_flight: 100, ..penalised };
    close(bench.feed(&full), 4_096.0);
}

#[test]
fn path_scaling_halves_the_gains_at_half_the_base_rtt() {
    for (scaling, fair, proportional) in [
        (Scaling::Path, 0.5 * 20_480.0, 0.5 * 1.365_333_3 * 4_000.0),
        (Scaling::Network, 20_480.0, 1.365_333_3 * 4_000.0),
    ] {
        // The target stays at 9 us: 5 us are below it.
        for (delay, gain) in [(9_000, fair), (5_000, proportional)] {
            let mut bench = Bench::new(NsccConfig { scaling, ..reference() });
            bench.arm();
            bench.nscc.flow.base_rtt = 6_000;
            bench.nscc.flow.cwnd = 50_000.0;
            for _ in 0..9 {
                bench.at(100).ack(false, delay);
            }
            close(bench.nscc.flow.cwnd, 50_000.0 + 9.0 * 4096.0 * gain / 50_000.0);
        }
    }
}

#[test]
fn one_probe_is_asked_for_when_more_is_in_flight() {
    let mut bench = Bench::new(reference());
    assert_eq!(bench.nscc.poll(Time::ZERO), None);
    let last = Feedback { bytes: MTU, ..Feedback::default() };
    bench.feed(&last);
    assert_eq!(bench.nscc.poll(Time::ZERO), None);
    bench.feed(&Feedback { in_flight: 1, ..last });
    assert_eq!(bench.nscc.poll(Time::ZERO), Some(SenderAction::Probe));
    bench.feed(&Feedback { in_flight: 1, ..last });
    assert_eq!(bench.nscc.poll(Time::ZERO), None);
    let mut silent = Bench::new(NsccConfig { probe: false, ..reference() });
    silent.feed(&Feedback { in_flight: 1, ..last });
    assert_eq!(silent.nscc.poll(Time::ZERO), None);
}

#[test]
fn an_acknowledgement_without_a_sample_only_counts() {
    let mut bench = Bench::new(reference());
    bench.nscc.flow.cwnd = 100_000.0;
    bench.nscc.flow.to_ignore = 5_000;
    bench.at(90_000).feed(&Feedback { bytes: MTU, ecn: true, ..Feedback::default() });
    close(bench.nscc.flow.cwnd, 100_000.0);
    assert_eq!((bench.nscc.flow.received, bench.nscc.flow.achieved), (MTU, MTU));
    assert_eq!(bench.nscc.flow.to_ignore, 904);
}

#[test]
fn a_coalesced_acknowledgement_weighs_as_its_packets() {
    // Four packets: 4 * 4096 / 100000 * 8000, or 4 * 0.0125 * 8000.
    for (averaging, avg) in [(Averaging::Window, 1_310.72), (Averaging::Packet(0.0125), 400.0)] {
        let mut bench = Bench::new(NsccConfig { averaging, ..reference() });
        bench.nscc.flow.cwnd = 100_000.0;
        let rtt = Some(Span(BASE + 8_000));
        let four = Feedback { bytes: 4 * MTU, packets: 4, rtt, ..Feedback::default() };
        bench.nscc.on_feedback(&four);
        close(bench.nscc.flow.avg_delay, avg);
        // More than a window's worth does not overshoot.
        bench.nscc.on_feedback(&Feedback { bytes: 200_000, packets: 100, ..four });
        close(bench.nscc.flow.avg_delay, 8_000.0);
    }
}

/// A reference context without one of the parts, with `cwnd` and a QuickAdapt period begun.
fn without(cwnd: f32, take_out: impl Fn(&mut NsccParts)) -> Bench {
    let mut config = reference();
    take_out(&mut config.parts);
    let mut bench = Bench::new(config);
    bench.nscc.flow.cwnd = cwnd;
    bench.arm();
    bench
}

#[test]
fn one_sampled_acknowledgement_stands_for_eight() {
    let mut bench = Bench::new(NsccConfig { sample: 8, ..reference() });
    bench.nscc.flow.cwnd = 100_000.0;
    bench.arm();
    for _ in 0..7 {
        close(bench.at(100).ack(true, 20_000), 100_000.0);
    }
    // Seven were counted and nothing else: 7 * 4096 = 28672.
    assert_eq!((bench.nscc.flow.received, bench.nscc.flow.achieved), (28_672, 28_672));
    close(bench.nscc.flow.avg_delay, 0.0);
    // The eighth decides: unmarked at target, fair increase for 8 * 4096 = 32768 bytes,
    // inc = 20480 * 32768 = 671088640; the average moves by 32768 / 100000 of 9000.
    close(bench.ack(false, 9_000), 100_000.0);
    close(bench.nscc.flow.inc, 671_088_640.0);
    close(bench.nscc.flow.avg_delay, 2_949.12);
    // The next report to be reacted to pays 2 * 671088640 / 100000 = 13421.77.
    for _ in 0..8 {
        bench.ack(false, 9_000);
    }
    close(bench.nscc.flow.cwnd, 113_421.77);
    // Trims are never skipped.
    close(bench.trim(50_000), 109_325.77);
}

#[test]
fn without_marks_delay_decides_and_without_delay_marks_do() {
    // Fig. 5. No marks: unmarked at 18 us is taken for marked, 1 - 0.8 * (18 - 9) / 18 = 0.6.
    let mut bench = without(100_000.0, |parts| parts.ecn = false);
    bench.nscc.flow.avg_delay = 18_000.0;
    close(bench.at(12_001).ack(false, 18_000), 60_614.4);
    // ... and marked below the target for unmarked: 1.365333 * 4096 * 4500 is owed.
    let mut bench = without(100_000.0, |parts| parts.ecn = false);
    bench.at(100).ack(true, 4_500);
    close(bench.nscc.flow.inc, 25_165_823.0);
    // No delay: a mark is two targets, 18 us, whatever the round trip took.
    let mut bench = without(100_000.0, |parts| parts.delay = false);
    bench.nscc.flow.avg_delay = 18_000.0;
    close(bench.at(12_001).ack(true, 0), 60_614.4);
    close(bench.nscc.flow.avg_delay, 18_000.0);
    // ... and no mark is an empty path: 1.365333 * 4096 * 9000 is owed.
    let mut bench = without(100_000.0, |parts| parts.delay = false);
    bench.at(100).ack(false, 50_000);
    close(bench.nscc.flow.inc, 50_331_645.0);
    // Neither: nothing but trims can take the window down.
    let mut bench = without(100_000.0, |parts| (parts.ecn, parts.delay) = (false, false));
    bench.nscc.flow.avg_delay = 18_000.0;
    assert!(bench.at(12_001).ack(true, 90_000) > 100_000.0);
}

#[test]
fn without_the_ignore_phase_what_was_in_flight_counts_again() {
    // As `quick_adapt_ignores_what_was_in_flight`, whose second trim leaves the window at 8192.
    let mut bench = without(100_000.0, |parts| parts.ignore = false);
    bench.at(1_000).ack(true, 0);
    bench.ack(true, 0);
    close(bench.at(21_000).trim(3 * u64::from(MTU)), 8_192.0);
    assert_eq!(bench.nscc.flow.to_ignore, 0);
    close(bench.at(21_002).trim(2 * u64::from(MTU)), 4_096.0);
}

#[test]
fn without_fast_increase_an_empty_path_earns_the_proportional_one() {
    let mut bench = without(8_000.0, |parts| parts.fast_increase = false);
    for _ in 0..3 {
        close(bench.at(100).ack(false, 0), 8_000.0);
    }
    // 3 * 1.365333 * 4096 * 9000.
    close(bench.nscc.flow.inc, 150_994_930.0);
}

#[test]
fn without_waiting_the_packets_own_delay_decides() {
    // The average is 1 us, so published NSCC waits; without, 1 - 0.8 * (36 - 9) / 36 = 0.4, so 0.5.
    for (wait, cwnd) in [(true, 100_614.4), (false, 50_614.4)] {
        let mut bench = without(100_000.0, |parts| parts.wait_to_decrease = wait);
        bench.nscc.flow.avg_delay = 1_000.0;
        close(bench.at(12_001).ack(true, 36_000), cwnd);
    }
}

#[test]
fn early_decrease_takes_half_a_packet_for_a_mark_at_low_delay() {
    let mut bench = without(100_000.0, |parts| parts.early_decrease = true);
    close(bench.at(100).ack(true, 8_999), 97_952.0);
    close(bench.ack(true, 0), 95_904.0);
}

#[test]
fn jittery_hosts_see_an_empty_path_up_to_a_quarter_of_their_floor() {
    let network = NetworkProfile::new(Rate::gbps(100), Span(BASE), MTU, true);
    assert_eq!(NsccConfig::new(&network).fast_increase_below, Span(1_000));
    let network = NetworkProfile { min_base_rtt: Some(Span(40_000)), ..network };
    assert_eq!(NsccConfig::new(&network).fast_increase_below, Span(10_000));
}

#[test]
fn less_than_a_packet_earns_as_a_packet_would() {
    let mut bench = Bench::new(NsccConfig { min_wnd: 64.0, ..reference() });
    bench.nscc.flow.cwnd = 1_000.0;
    bench.arm();
    // One packet at 4.5 us owes 25165823; over 4096, not over 1000: 6144. And eta.
    close(bench.at(12_000).ack(false, 4_500), 1_000.0 + 6_144.0 + 614.4);
}

#[test]
fn while_it_ignores_marks_change_nothing_and_owe_nothing() {
    let mut bench = Bench::with_cwnd(100_000.0);
    bench.nscc.flow.to_ignore = 2 * MTU;
    (bench.nscc.flow.inc, bench.nscc.flow.avg_delay) = (1e6, 20_000.0);
    // A period, an adjustment and a decrease would be due; 4096 bytes are still to be ignored.
    close(bench.at(60_000).ack(true, 20_000), 100_000.0);
    assert_eq!((bench.nscc.flow.inc, bench.nscc.flow.received), (0.0, 0));
    assert_eq!((bench.nscc.flow.to_ignore, bench.nscc.flow.qa_start), (MTU, 0));
}

/// The fast path of `on_feedback` has the same effects as the slow path: a context that is forced to take
/// the slow path, by counting `due` down from 1 for each report, stays identical bit by bit.
#[test]
fn the_fast_path_equals_the_slow_path() {
    let mut rng = squall_base::Rng::new(7);
    for trimming in [true, false] {
        let network = NetworkProfile::new(Rate::gbps(100), Span(BASE), MTU, trimming);
        let config = Arc::new(NsccConfig::new(&network));
        let (mut short, mut long) =
            (Nscc::new(Arc::clone(&config), Time::ZERO), Nscc::new(config, Time::ZERO));
        long.flow.due = 1;
        let mut now = Time::ZERO;
        for step in 0..20_000 {
            now += Span(u64::from(rng.below(3_000)));
            let kind = match rng.below(60) {
                0 => FeedbackKind::Nacked { trimmed: true, last_hop: false },
                1 => FeedbackKind::Lost,
                2 => FeedbackKind::TimedOut,
                _ => FeedbackKind::Acked,
            };
            // Phases of an empty path, of a growing queue and of a full one.
            let queue = [500, 12_000, 70_000][step / 500 % 3];
            let feedback = Feedback {
                now,
                kind,
                bytes: 64 + rng.below(MTU),
                packets: 1,
                ecn: rng.below(30_000) < queue,
                rtt: (rng.below(50) > 0).then(|| Span(BASE - 500 + u64::from(rng.below(queue)))),
                in_flight: u64::from(rng.below(200_000)),
                penalty: (rng.below(100) > 0).then_some(0),
                ..Feedback::default()
            };
            short.on_feedback(&feedback);
            long.on_feedback(&feedback);
            assert_eq!((short.flow.due, long.flow.due), (0, 1));
            long.flow.due = 0;
            assert_eq!(
                alloc::format!("{:?}", short.flow),
                alloc::format!("{:?}", long.flow),
                "{step}"
            );
            long.flow.due = 1;
        }
        assert!(short.flow.cwnd > 0.0);
    }
}

impl Bench {
    /// [`Self::ack`] of so many packets in one, where VAI and SF say what is made of it; the window.
    fn fair_ack(
        &mut self,
        fairness: &mut Fairness<Reference>,
        ecn: bool,
        delay: u64,
        packets: u16,
    ) -> f32 {
        let rtt = Some(Span(u64::from(self.nscc.flow.base_rtt) + delay));
        let (now, round_end) = (self.now, packets == 1);
        let feedback =
            Feedback { now, packets, bytes: MTU, ecn, rtt, round_end, ..Feedback::default() };
        self.nscc.on_feedback_fairly(&feedback, fairness);
        self.nscc.flow.cwnd
    }
}

/// Eq. 1 for an average of 20 us, which samples of 20 us leave as it is: 1 - 0.8 * 11 / 20 = 0.56.
#[test]
fn with_sf_a_decrease_is_from_a_reference_and_lasts_after_thirty_packets() {
    let (mut bench, mut sf) = (Bench::with_cwnd(100_000.0), fairness("nscc:sf=30"));
    close(bench.nscc.config.gamma, 0.8);
    bench.nscc.flow.avg_delay = 20_000.0;
    bench.at(5_000);
    close(bench.fair_ack(&mut sf, true, 20_000, 10), 56_000.0);
    close(bench.fair_ack(&mut sf, true, 20_000, 19), 56_000.0);
    close(sf.reference(0.0), 100_000.0);
    close(bench.fair_ack(&mut sf, true, 20_000, 1), 56_000.0);
    close(sf.reference(0.0), 56_000.0);
    close(bench.fair_ack(&mut sf, true, 20_000, 10), 31_360.0);
    // A mark without the delay lowers nothing (section III-I1): the reference again.
    close(bench.fair_ack(&mut sf, true, 5_000, 10), 56_000.0);
    // A loss takes its bytes off the reference.
    let kind = FeedbackKind::Lost;
    let lost = Feedback { now: bench.now, kind, bytes: MTU, packets: 1, ..Feedback::default() };
    bench.nscc.on_feedback_fairly(&lost, &mut sf);
    close(bench.nscc.flow.cwnd, 56_000.0 - 4_096.0);
    close(sf.reference(0.0), 56_000.0 - 4_096.0);
}

/// 33 us of round trip are the threshold: base, target and a base round trip of queue.
#[test]
fn with_vai_a_long_queue_multiplies_what_is_added_a_round_trip() {
    let (mut bench, mut vai) = (Bench::with_cwnd(100_000.0), fairness("nscc:vai=1"));
    bench.nscc.flow.avg_delay = 20_000.0;
    bench.at(5_000);
    close(bench.fair_ack(&mut vai, true, 20_000, 1), 56_000.0);
    // 34 us: tokens of which 150000 / 20 / 614.4 = 12.2 are spent; dampener 34 / 33. The average weighs it by its part of
    // the window, 4096 / 56000.
    let gain = 7_500.0 / 614.4 / (34.0 / 33.0 / 8.0 + 1.0);
    let avg = 20_000.0 + 4_096.0 / 56_000.0 * 2_000.0;
    let left = 56_000.0 * (1.0 - 0.8 * (avg - 9_000.0) / avg);
    close(bench.fair_ack(&mut vai, true, 22_000, 1), left + 614.4 * (gain - 1.0));
}

#[test]
fn updates_do_not_govern_quick_adapt() {
    let (mut bench, mut sf) = (Bench::with_cwnd(100_000.0), fairness("nscc:sf=30"));
    bench.nscc.flow.avg_delay = 20_000.0;
    bench.nscc.flow.qa |= TRIGGERED;
    bench.nscc.flow.achieved = 8_192;
    // The period of 21 us is over, and 12288 bytes are little: the window is what was achieved.
    let window = bench.at(22_000).fair_ack(&mut sf, true, 20_000, 1);
    close(window, 12_288.0 * bench.nscc.config.qa_scaling);
    close(sf.reference(0.0), window);
}
