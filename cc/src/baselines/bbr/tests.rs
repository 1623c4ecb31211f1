//! Every state and every branch of the draft's functions, with numbers worked by hand on a network of
//! 100 Gb/s (12.5 bytes a nanosecond) and 12 us with packets of 4096 bytes: the bandwidth-delay product
//! is 150000 B, the largest window 750000 B, `BBRInflight(g)` at that bandwidth g * 150000 + 3 * 4096.

extern crate std;

use super::model::{BbrState, CYCLE};
use super::*;
use crate::controller::FeedbackKind;
use crate::network::NetworkProfile;
use crate::testing::close;
use crate::tuning::Tunable;
use squall_base::{Rate, Span};

const MTU: u64 = 4096;
const RTT: u64 = 12_000;

fn config() -> BbrConfig {
    let config = BbrConfig::new(&NetworkProfile::new(Rate::gbps(100), Span(RTT), 4096, true));
    config.check().expect("in range");
    config
}

fn fresh() -> Model {
    Model::new(Arc::new(config()), Time::ZERO)
}

/// A model in `state` that knows `bw` bytes a nanosecond and 12 us, and has delivered a megabyte.
fn knowing(bw: f32, state: BbrState) -> Model {
    let mut model = fresh();
    model.btl_bw.update(bw, 0, 10);
    model.rt_prop = RTT;
    model.delivered = 1_000_000;
    model.next_round_delivered = 1_000_000;
    model.filled_pipe = !matches!(state, BbrState::Startup);
    model.state = state;
    model
}

/// What an ACK of one packet says.
struct Ack {
    at: u64,
    /// Bytes delivered since the packet left, in packets.
    since: u64,
    rtt: u64,
    in_flight: u64,
}

impl Default for Ack {
    fn default() -> Self {
        Self { at: RTT, since: 1, rtt: RTT, in_flight: 100_000 }
    }
}

fn ack(model: &mut Model, ack: &Ack) {
    model.on_feedback(&Feedback {
        now: Time(ack.at),
        bytes: 4096,
        packets: 1,
        rtt: Some(Span(ack.rtt)),
        delivered: Some(ack.since * MTU),
        in_flight: ack.in_flight,
        ..Feedback::default()
    });
}

fn lose(model: &mut Model, kind: FeedbackKind, in_flight: u64) -> u64 {
    model.on_feedback(&Feedback {
        now: Time(RTT),
        kind,
        bytes: 4096,
        in_flight,
        ..Feedback::default()
    });
    model.cwnd
}

#[test]
fn a_flow_starts_with_ten_packets_at_their_rate_times_the_gain() {
    let bbr = Bbr::new(Arc::new(config()), Time::ZERO);
    let budget = bbr.budget(Time::ZERO);
    assert_eq!((budget.window, budget.burst), (Some(40_960), 4096));
    // 40960 / 12000 * 2.885390 = 9.848798 B/ns = 78.790 Gb/s.
    let rate = budget.rate.expect("it paces").0 as f32 / 8e9;
    close(rate, 9.848_798);
    assert_eq!(bbr.metrics().rate, budget.rate);
    assert_eq!((bbr.metrics().max_cwnd, bbr.metrics().base_rtt), (Some(750_000), None));
}

/// `BBRUpdateBtlBw`.
#[test]
fn bandwidth_is_what_was_delivered_in_a_round_trip() {
    let mut model = fresh();
    // 3 * 4096 B in 12 us.
    ack(&mut model, &Ack { since: 3, ..Ack::default() });
    close(model.btl_bw.get(), 1.024);
    // Held-back ACKs: 100 packets in 12 us would be 34 B/ns. The line has 12.5.
    ack(&mut model, &Ack { since: 100, ..Ack::default() });
    close(model.btl_bw.get(), 12.5);
    // Without a sample, or without a count, nothing is learnt.
    let mut model = fresh();
    let (now, bytes) = (Time(RTT), 4096);
    let rtt = Some(Span(RTT));
    model.on_feedback(&Feedback { now, bytes, delivered: Some(9_000), ..Feedback::default() });
    model.on_feedback(&Feedback { now, bytes, rtt, ..Feedback::default() });
    assert_eq!(model.btl_bw.get(), 0.0);
}

#[test]
fn an_idle_application_cannot_lower_the_bandwidth() {
    let sample = |model: &mut Model, packets, app_limited| {
        model.round_count += 20; // all older samples are forgotten
        model.on_feedback(&Feedback {
            now: Time(RTT),
            bytes: 4096,
            rtt: Some(Span(RTT)),
            delivered: Some(packets * MTU),
            app_limited,
            ..Feedback::default()
        });
        model.btl_bw.get()
    };
    let mut model = knowing(6.0, BbrState::ProbeBw(2));
    close(sample(&mut model, 3, true), 6.0);
    close(sample(&mut model, 30, true), 10.24);
    close(sample(&mut model, 3, false), 1.024);
    // The same bandwidth again counts anew, so it is not forgotten with the old sample.
    close(sample(&mut model, 3, true), 1.024);
    model.btl_bw.update(0.5, model.round_count + 5, 10);
    close(model.btl_bw.get(), 1.024);
}

/// `BBRUpdateRound`: a round ends with a packet that left after the last one had ended.
#[test]
fn rounds_are_counted_by_what_was_delivered() {
    let mut model = fresh();
    // The first packet left when nothing had been delivered, which is where the first round ends.
    ack(&mut model, &Ack { since: 1, ..Ack::default() });
    assert_eq!((model.round_count, model.next_round_delivered), (1, 4096));
    // Its contemporaries left at zero as well.
    ack(&mut model, &Ack { since: 2, ..Ack::default() });
    ack(&mut model, &Ack { since: 3, ..Ack::default() });
    assert_eq!(model.round_count, 1);
    // One that left at 4096: 16384 - 12288.
    ack(&mut model, &Ack { since: 3, ..Ack::default() });
    assert_eq!((model.round_count, model.next_round_delivered), (2, 16_384));
    // A caller that does not count may say when rounds end.
    let end = Feedback { now: Time(RTT), bytes: 4096, round_end: true, ..Feedback::default() };
    model.on_feedback(&end);
    assert_eq!(model.round_count, 3);
}

/// `BBRCheckFullPipe`: three rounds without a quarter more.
#[test]
fn startup_ends_when_the_bandwidth_stops_growing() {
    let mut model = fresh();
    // Each ACK is a round of its own. Bandwidths 1.024, 2.048 (twice as much), 2.389 (a sixth more: 1),
    // 2.731 (a third more than 2.048: 0 again), and 2.731 three times: 1, 2, 3.
    let rounds = [(3, 0), (6, 0), (7, 1), (8, 0), (8, 1), (8, 2)];
    for (packets, count) in rounds {
        model.next_round_delivered = 0; // whatever the packet: its round is over
        ack(&mut model, &Ack { since: packets, ..Ack::default() });
        assert_eq!((model.state, model.full_bw_count), (BbrState::Startup, count));
    }
    // Within a round nothing is counted.
    model.next_round_delivered = u64::MAX;
    ack(&mut model, &Ack { since: 8, ..Ack::default() });
    assert_eq!(model.full_bw_count, 2);
    // Nor when the application is what limits.
    model.next_round_delivered = 0;
    let app_limited = true;
    let idle = Feedback { now: Time(RTT), bytes: 4096, app_limited, ..Feedback::default() };
    model.on_feedback(&Feedback { delivered: Some(8 * MTU), ..idle });
    assert_eq!(model.full_bw_count, 2);
    model.next_round_delivered = 0;
    ack(&mut model, &Ack { since: 8, ..Ack::default() });
    assert!(model.filled_pipe);
    assert_eq!(model.state, BbrState::Drain);
    // The rate is the bandwidth over the gain of Startup: 8 * 4096 / 12000 / 2.885390 = 0.9463763.
    close(model.pacing_rate, 0.946_376_3);
}

#[test]
fn a_quarter_more_bandwidth_is_growth() {
    let mut model = fresh();
    // 4 and 5 packets of 4096 B in 16384 ns: 1 and 1.25 B/ns.
    for since in [4, 5] {
        model.next_round_delivered = 0;
        ack(&mut model, &Ack { since, rtt: 16_384, ..Ack::default() });
        assert_eq!((model.full_bw, model.full_bw_count), (since as f32 / 4.0, 0));
    }
}

/// `BBRCheckDrain`: until one bandwidth-delay product is in flight, 6 * 12000 + 12288 B.
#[test]
fn drain_lasts_until_the_queue_is_gone() {
    let mut model = knowing(6.0, BbrState::Drain);
    ack(&mut model, &Ack { in_flight: 84_289, ..Ack::default() });
    assert_eq!(model.state, BbrState::Drain);
    ack(&mut model, &Ack { in_flight: 84_288, ..Ack::default() });
    assert!(matches!(model.state, BbrState::ProbeBw(_)));
}

/// `BBREnterProbeBW`: in any phase but that of gain 0.75.
#[test]
fn flows_enter_different_phases() {
    let mut entries = [0; 8];
    for at in 0..1000 {
        let mut model = knowing(6.0, BbrState::Drain);
        ack(&mut model, &Ack { at: RTT + at, in_flight: 0, ..Ack::default() });
        let BbrState::ProbeBw(phase) = model.state else { panic!("{:?}", model.state) };
        entries[usize::from(phase)] += 1;
    }
    for (phase, times) in entries.into_iter().enumerate() {
        let expected = if CYCLE[phase] < 1.0 { 0..=0 } else { 100..=190 };
        assert!(expected.contains(&times), "phase {phase}: {times} of 1000");
    }
}

/// `BBRIsNextCyclePhase` at 6 B/ns: inflight(1.25) = 102288 B, inflight(1) = 84288 B; `in_flight` is
/// that after the ACK of 4096 B, the draft looks at that before.
#[test]
fn phases_end_after_a_round_trip_and_when_their_aim_is_reached() {
    let next = |phase, at, in_flight| {
        let mut model = knowing(6.0, BbrState::ProbeBw(phase));
        ack(&mut model, &Ack { at, in_flight, ..Ack::default() });
        model.state == BbrState::ProbeBw((phase + 1) % 8)
    };
    for (phase, at, in_flight, ends) in [
        // Gain 1.25: a round trip, and a quarter more in flight.
        (0, RTT + 1, 98_192, true),
        (0, RTT + 1, 98_191, false),
        (0, RTT, 500_000, false),
        // Gain 0.75: a round trip, or no queue.
        (1, RTT + 1, 500_000, true),
        (1, RTT, 80_192, true),
        (1, RTT, 80_193, false),
        // Gain 1: a round trip.
        (2, RTT + 1, 0, true),
        (2, RTT, 0, false),
        (7, RTT + 1, 0, true),
    ] {
        assert_eq!(
            next(phase, at, in_flight),
            ends,
            "phase {phase} at {at}, {in_flight} in flight"
        );
    }
    // A loss ends the phase of 1.25 too, after a round trip.
    for (at, ends) in [(RTT, false), (RTT + 1, true)] {
        let mut model = knowing(6.0, BbrState::ProbeBw(0));
        let (now, kind) = (Time(at), FeedbackKind::Lost);
        model.on_feedback(&Feedback { now, kind, bytes: 4096, ..Feedback::default() });
        assert_eq!(model.state == BbrState::ProbeBw(1), ends);
    }
}

#[test]
fn the_rate_follows_the_phase() {
    for (phase, rate) in [(1, 6.0), (7, 7.5), (0, 4.5)] {
        // The phase ends with this ACK; the rate is that of the next, 1, 1.25 or 0.75 of 6 B/ns.
        let mut model = knowing(6.0, BbrState::ProbeBw(phase));
        ack(&mut model, &Ack { at: RTT + 1, in_flight: 200_000, ..Ack::default() });
        close(model.pacing_rate, rate);
    }
    // Never more than the line: 1.25 * 12 = 15.
    let mut model = knowing(12.0, BbrState::ProbeBw(7));
    ack(&mut model, &Ack { at: RTT + 1, ..Ack::default() });
    close(model.pacing_rate, 12.5);
}

/// `BBRSetPacingRate`: before the pipe is full the rate only rises.
#[test]
fn startup_never_slows() {
    let mut model = fresh();
    ack(&mut model, &Ack { since: 3, ..Ack::default() });
    close(model.pacing_rate, 9.848_798);
    // 12 packets in 12 us are 4.096 B/ns; * 2.885390 = 11.81856.
    ack(&mut model, &Ack { since: 12, ..Ack::default() });
    close(model.pacing_rate, 11.818_558);
}

/// `BBRSetCwnd`, target 2 * 72000 + 12288 = 156288 B in ProbeBW at 6 B/ns.
#[test]
fn the_window_follows_its_target() {
    let window = |state, cwnd| {
        let mut model = knowing(6.0, state);
        model.cwnd = cwnd;
        ack(&mut model, &Ack::default());
        model.cwnd
    };
    assert_eq!(window(BbrState::ProbeBw(2), 100_000), 104_096);
    assert_eq!(window(BbrState::ProbeBw(2), 155_000), 156_288);
    assert_eq!(window(BbrState::ProbeBw(2), 400_000), 156_288);
    assert_eq!(window(BbrState::ProbeBw(2), 1_000), 4 * MTU);
    // In Startup the target is 2.885390 * 72000 + 12288 = 220036, and is not enforced.
    assert_eq!(window(BbrState::Startup, 220_000), 224_096);
    assert_eq!(window(BbrState::Startup, 220_036), 220_036);
    assert_eq!(window(BbrState::Startup, 400_000), 400_000);
    assert_eq!(window(BbrState::Startup, 900_000), 750_000);
    // Before anything is known, ten packets are the target and may be exceeded once.
    let mut model = fresh();
    let now = Time(RTT);
    model.on_feedback(&Feedback { now, bytes: 4096, ..Feedback::default() });
    assert_eq!(model.cwnd, 45_056);
    // A propagation time alone is no path.
    let mut model = fresh();
    let (kind, rtt) = (FeedbackKind::ProbeAnswered, Some(Span(RTT)));
    model.on_feedback(&Feedback { now, kind, rtt, ..Feedback::default() });
    assert_eq!(model.rt_prop, RTT);
    // What was saved for a recovery that is over does not come back.
    let mut model = knowing(6.0, BbrState::ProbeBw(2));
    (model.cwnd, model.prior_cwnd) = (100_000, 140_000);
    ack(&mut model, &Ack::default());
    assert_eq!(model.cwnd, 104_096);
}

/// `BBRUpdateRTprop`.
#[test]
fn the_propagation_time_is_the_smallest_sample_for_a_while() {
    let mut model = knowing(6.0, BbrState::ProbeBw(2));
    ack(&mut model, &Ack { at: 20_000, rtt: 11_000, ..Ack::default() });
    assert_eq!((model.rt_prop, model.rt_prop_stamp), (11_000, Time(20_000)));
    ack(&mut model, &Ack { at: 30_000, rtt: 15_000, ..Ack::default() });
    assert_eq!((model.rt_prop, model.rt_prop_stamp), (11_000, Time(20_000)));
    // The same again is as good as new.
    ack(&mut model, &Ack { at: 40_000, rtt: 11_000, ..Ack::default() });
    assert_eq!(model.rt_prop_stamp, Time(40_000));
    // A thousand base RTTs later it is forgotten.
    ack(&mut model, &Ack { at: 40_000 + 12_000_000, rtt: 15_000, ..Ack::default() });
    assert_eq!((model.rt_prop, model.state == BbrState::ProbeRtt), (11_000, false));
    ack(&mut model, &Ack { at: 40_001 + 12_000_000, rtt: 15_000, ..Ack::default() });
    assert_eq!((model.rt_prop, model.state), (15_000, BbrState::ProbeRtt));
    // The answer to a probe passed no queue; a larger one says nothing.
    for (at, rtt, stamp) in
        [(50_000, 10_000, 50_000), (51_000, 10_000, 51_000), (52_000, 20_000, 51_000)]
    {
        let (kind, rtt) = (FeedbackKind::ProbeAnswered, Some(Span(rtt)));
        model.on_feedback(&Feedback { now: Time(at), kind, rtt, ..Feedback::default() });
        assert_eq!((model.rt_prop, model.rt_prop_stamp), (10_000, Time(stamp)));
    }
}

/// `BBRHandleProbeRTT`: four packets, for 240 us and a round from when no more are in flight.
#[test]
fn probe_rtt_empties_the_pipe_and_comes_back() {
    let mut model = knowing(6.0, BbrState::ProbeBw(2));
    model.cwnd = 150_000;
    let start = 12_000_001;
    ack(&mut model, &Ack { at: start, in_flight: 100_000, ..Ack::default() });
    assert_eq!((model.state, model.cwnd, model.prior_cwnd), (BbrState::ProbeRtt, 16_384, 150_000));
    assert_eq!(model.probe_rtt_done, None);
    close(model.pacing_rate, 6.0);
    // 16385 in flight are too many yet.
    ack(&mut model, &Ack { at: start + 1, in_flight: 16_385, ..Ack::default() });
    assert_eq!(model.probe_rtt_done, None);
    ack(&mut model, &Ack { at: start + 2, in_flight: 16_384, ..Ack::default() });
    assert_eq!(model.probe_rtt_done, Some(Time(start + 240_002)));
    // Time over, but its packet left before: no round yet.
    let at = start + 240_003;
    ack(&mut model, &Ack { at, since: 2, in_flight: 12_288, ..Ack::default() });
    assert_eq!(model.state, BbrState::ProbeRtt);
    // A round passes with a packet that left after that.
    ack(&mut model, &Ack { at, since: 1, in_flight: 12_288, ..Ack::default() });
    assert!(matches!(model.state, BbrState::ProbeBw(_)));
    assert_eq!(model.rt_prop_stamp, Time(at));
    // The old window, and what the ACK adds.
    assert_eq!(model.cwnd, 154_096);
}

#[test]
fn probe_rtt_leads_back_to_startup_if_the_pipe_never_was_full() {
    let mut model = knowing(6.0, BbrState::Startup);
    let start = 12_000_001;
    ack(&mut model, &Ack { at: start, in_flight: 0, ..Ack::default() });
    assert_eq!(model.state, BbrState::ProbeRtt);
    // A round, but not the time; then the time.
    ack(&mut model, &Ack { at: start + 240_000, in_flight: 0, ..Ack::default() });
    assert_eq!(model.state, BbrState::ProbeRtt);
    ack(&mut model, &Ack { at: start + 240_001, in_flight: 0, since: 9, ..Ack::default() });
    assert_eq!(model.state, BbrState::Startup);
}

/// Section 4.2.3.4.
#[test]
fn recovery_conserves_packets_and_gives_the_window_back() {
    let mut model = knowing(6.0, BbrState::ProbeBw(2));
    model.cwnd = 150_000;
    // Three packets are left in flight: they and one more.
    assert_eq!(lose(&mut model, FeedbackKind::Lost, 12_288), 16_384);
    assert_eq!((model.prior_cwnd, model.recovery_left), (150_000, 12_288));
    // The second loss takes its bytes off the window.
    assert_eq!(
        lose(&mut model, FeedbackKind::Nacked { trimmed: true, last_hop: false }, 8_192),
        12_288
    );
    // An ACK of a packet that left before: one in, one out, 12288 + 4096.
    ack(&mut model, &Ack { since: 5, in_flight: 12_288, ..Ack::default() });
    assert_eq!((model.cwnd, model.conserving), (16_384, true));
    // With the third all have their fate: the old window is back, and the ACK adds to it.
    ack(&mut model, &Ack { since: 5, in_flight: 8_192, ..Ack::default() });
    assert_eq!((model.cwnd, model.recovery_left, model.conserving), (154_096, 0, false));
}

/// `BBRSaveCwnd`: in recovery and in ProbeRTT the window worth saving is the one saved before.
#[test]
fn a_small_window_is_not_saved_over_a_large_one() {
    let mut model = knowing(6.0, BbrState::ProbeRtt);
    (model.cwnd, model.prior_cwnd) = (16_384, 150_000);
    lose(&mut model, FeedbackKind::Lost, 12_288);
    assert_eq!(model.prior_cwnd, 150_000);
    // A recovery, and the time of ProbeRTT comes in it.
    let mut model = knowing(6.0, BbrState::ProbeBw(2));
    model.cwnd = 150_000;
    lose(&mut model, FeedbackKind::Lost, 40_960);
    ack(&mut model, &Ack { at: 12_000_001, since: 5, in_flight: 36_864, ..Ack::default() });
    assert_eq!((model.state, model.prior_cwnd), (BbrState::ProbeRtt, 150_000));
    // Without either it is the window itself, though a larger one was saved once.
    let mut model = knowing(6.0, BbrState::ProbeBw(2));
    (model.cwnd, model.prior_cwnd) = (100_000, 150_000);
    lose(&mut model, FeedbackKind::Lost, 12_288);
    assert_eq!(model.prior_cwnd, 100_000);
}

#[test]
fn after_a_round_of_conservation_the_window_grows_again() {
    let mut model = knowing(6.0, BbrState::ProbeBw(2));
    model.cwnd = 150_000;
    assert_eq!(lose(&mut model, FeedbackKind::Lost, 40_960), 45_056);
    // This packet left after the loss was found. In flight 36864: no more than 40960 by conservation,
    // but that is over: 45056 + 4096.
    ack(&mut model, &Ack { since: 1, in_flight: 36_864, ..Ack::default() });
    assert_eq!((model.conserving, model.cwnd), (false, 49_152));
}

#[test]
fn a_time_out_leaves_one_packet() {
    let mut model = knowing(6.0, BbrState::ProbeBw(2));
    model.cwnd = 150_000;
    assert_eq!(lose(&mut model, FeedbackKind::TimedOut, 8_192), 4_096);
    // More of them do not take less than that away.
    assert_eq!(lose(&mut model, FeedbackKind::TimedOut, 4_096), 4_096);
    ack(&mut model, &Ack { since: 5, in_flight: 0, ..Ack::default() });
    assert_eq!(model.cwnd, 154_096);
    // With nothing else in flight the next ACK is the end of it.
    assert_eq!(lose(&mut model, FeedbackKind::TimedOut, 0), 4_096);
    ack(&mut model, &Ack { since: 5, in_flight: 0, ..Ack::default() });
    assert_eq!(model.cwnd, 156_288);
}

/// `BBRHandleRestartFromIdle`.
#[test]
fn after_a_pause_it_resumes_at_the_bandwidth() {
    let mut model = knowing(6.0, BbrState::ProbeBw(0));
    model.pacing_rate = 7.5;
    model.on_event(Time(20_000_000), FlowEvent::Resumed);
    close(model.pacing_rate, 6.0);
    // The propagation time is old, but the pause emptied the pipe: no ProbeRTT for it.
    ack(&mut model, &Ack { at: 20_000_000, rtt: 13_000, ..Ack::default() });
    assert!(matches!(model.state, BbrState::ProbeBw(_)) && !model.idle_restart);
    assert_eq!(model.rt_prop, 13_000);
    // Before ProbeBW the rate is left alone; other events mean nothing.
    let mut model = fresh();
    model.on_event(Time(5), FlowEvent::Resumed);
    close(model.pacing_rate, 9.848_798);
    model.idle_restart = false;
    model.on_event(Time(5), FlowEvent::Idle);
    assert!(!model.idle_restart);
}

#[test]
fn what_says_nothing_about_the_path_changes_nothing() {
    let mut model = knowing(6.0, BbrState::ProbeBw(2));
    let before = std::format!("{model:?}");
    for kind in [FeedbackKind::Notified, FeedbackKind::Control] {
        let rtt = Some(Span(1));
        model.on_feedback(&Feedback { now: Time(9), kind, bytes: 9, rtt, ..Feedback::default() });
    }
    assert_eq!(std::format!("{model:?}"), before);
}

#[test]
fn a_window_larger_than_the_largest_is_refused() {
    let config = BbrConfig { start_cwnd: 200.0, ..config() };
    assert_eq!(config.check().map_err(|error| error.parameter), Err("start_cwnd"));
}

#[test]
fn state_is_small() {
    assert_eq!((size_of::<Bbr>(), size_of::<Model>()), (8, 136));
}
