//! Every branch of figure 7 and equations 1 to 4, in both forms, with numbers worked by hand on a line
//! of 40 Gb/s, the paper's: R_AI 40 Mb/s, R_HAI 400 Mb/s, g = 1/256 = 0.00390625.

use super::*;
use crate::controller::{ReceiverConfig, SenderParameters};
use crate::network::NetworkProfile;
use crate::testing::close;
use crate::tuning::Tunable;
use squall_base::Rate;

const G: f32 = 1e9;

fn network() -> NetworkProfile {
    NetworkProfile::new(Rate::gbps(40), Span::micros(12), 4096, false)
}

fn with(change: impl FnOnce(&mut DcqcnConfig)) -> Dcqcn {
    let mut config = DcqcnConfig::new(&network());
    change(&mut config);
    config.check().expect("in range");
    Dcqcn::new(Arc::new(config), Time::ZERO)
}

fn paper() -> Dcqcn {
    with(|_| {})
}

fn vendor() -> Dcqcn {
    with(|config| config.set_form(DcqcnVariant::Vendor))
}

const fn at(micros: u64) -> Time {
    Time(micros * 1000)
}

/// A notification at `micros`; returns R_C in Gb/s.
fn notify(dcqcn: &mut Dcqcn, micros: u64) -> f32 {
    dcqcn.on_feedback(&Feedback {
        now: at(micros),
        kind: FeedbackKind::Notified,
        ..Feedback::default()
    });
    dcqcn.rate / G
}

/// Fires the timer at its own time, which must be `micros`; returns R_C in Gb/s.
#[track_caller]
fn fire(dcqcn: &mut Dcqcn, micros: u64) -> f32 {
    assert_eq!(dcqcn.next_timer(), Some(at(micros)));
    dcqcn.on_timer(at(micros));
    dcqcn.rate / G
}

fn send(dcqcn: &mut Dcqcn, bytes: u32) -> f32 {
    let _ = dcqcn.on_send(at(0), &SentPacket { bytes, ..SentPacket::default() });
    dcqcn.rate / G
}

#[test]
fn a_flow_starts_at_line_rate_without_a_timer() {
    let mut dcqcn = paper();
    let budget = dcqcn.budget(Time::ZERO);
    assert_eq!(budget.rate, Some(Rate::gbps(40)));
    assert_eq!((budget.window, budget.burst), (None, 4096));
    assert_eq!(dcqcn.next_timer(), None);
    // The byte counter does not run either.
    send(&mut dcqcn, 4_000_000_000);
    assert_eq!((dcqcn.sent, dcqcn.byte_stage), (0, 0));
    // 1.5 * 60000 B.
    assert_eq!(with(|config| config.window = 1.5).budget(Time::ZERO).window, Some(90_000));
}

/// Eq. 1: R_T = R_C, R_C = R_C (1 - alpha/2), alpha = (1-g) alpha + g.
#[test]
fn a_notification_cuts_by_half_of_alpha() {
    let mut dcqcn = paper();
    // alpha = 1, however long the flow ran before its first notification.
    close(notify(&mut dcqcn, 1_000), 20.0);
    close(dcqcn.target / G, 40.0);
    close(dcqcn.alpha, 1.0);
    // 50 us later: alpha is still 1.
    close(notify(&mut dcqcn, 1_050), 10.0);
    close(dcqcn.target / G, 20.0);
    // Never below a thousandth of the line.
    for n in 1..20 {
        notify(&mut dcqcn, 1_050 + 50 * n);
    }
    close(dcqcn.rate / G, 0.04);
}

/// Eq. 2: after each 55 us without a notification, alpha = (1-g) alpha.
#[test]
fn alpha_decays_while_no_notification_comes() {
    let mut dcqcn = paper();
    notify(&mut dcqcn, 0);
    // 54 us: none. Then 165 us from that: three decays, alpha = (255/256)^3 = 0.9883269; the cut is
    // 1 - 0.4941635, and alpha grows to 0.9883269 * 255/256 + 1/256 = 0.9883725.
    notify(&mut dcqcn, 54);
    close(dcqcn.alpha, 1.0);
    let before = dcqcn.rate;
    notify(&mut dcqcn, 54 + 165);
    close(dcqcn.rate / before, 0.505_836_5);
    close(dcqcn.alpha, 0.988_372_5);
    // A quarter of a second, 4545 periods: (255/256)^4545 = 1.88e-8. No cut to speak of.
    let before = dcqcn.rate;
    notify(&mut dcqcn, 219 + 250_000);
    close(dcqcn.rate / before, 1.0);
    close(dcqcn.alpha, 1.0 / 256.0);
}

/// Figure 7 with the timer alone: max(T, BC) < 5 four times, then additive increase (eq. 3 and 4).
#[test]
fn the_timer_recovers_and_then_adds() {
    let mut dcqcn = paper();
    notify(&mut dcqcn, 0);
    // Halfway to 40 each time: 30, 35, 37.5, 38.75.
    for (fires, rate) in [(55, 30.0), (110, 35.0), (165, 37.5), (220, 38.75)] {
        close(fire(&mut dcqcn, fires), rate);
        close(dcqcn.target / G, 40.0);
    }
    // T = 5: R_T = 40.04, but the line is 40. To see it rise, start from below.
    let mut dcqcn = paper();
    notify(&mut dcqcn, 0);
    notify(&mut dcqcn, 50);
    for (fires, rate) in [(105, 15.0), (160, 17.5), (215, 18.75), (270, 19.375)] {
        close(fire(&mut dcqcn, fires), rate);
    }
    // R_T = 20.04, R_C = (19.375 + 20.04) / 2; then 20.08.
    close(fire(&mut dcqcn, 325), 19.707_5);
    close(fire(&mut dcqcn, 380), 19.893_75);
    // min(T, BC) = 0 for ever: it stays additive. R_T = 20.12.
    close(fire(&mut dcqcn, 435), 20.006_875);
}

/// Figure 7 with the byte counter alone: every 10 MB.
#[test]
fn the_byte_counter_recovers_too() {
    let mut dcqcn = paper();
    notify(&mut dcqcn, 0);
    close(send(&mut dcqcn, 9_999_999), 20.0);
    close(send(&mut dcqcn, 1), 30.0);
    // What is sent beyond counts for the next.
    close(send(&mut dcqcn, 15_000_000), 35.0);
    close(send(&mut dcqcn, 5_000_000), 37.5);
    assert_eq!((dcqcn.byte_stage, dcqcn.timer_stage, dcqcn.sent), (3, 0, 0));
    // A notification begins anew: alpha = 1, 18.75.
    close(notify(&mut dcqcn, 50), 18.75);
    assert_eq!((dcqcn.byte_stage, dcqcn.sent), (0, 0));
    assert_eq!(dcqcn.next_timer(), Some(at(105)));
}

/// Figure 7 with both: min(T, BC) > 5 is hyper increase, by (min - F) R_HAI.
#[test]
fn both_together_increase_hyperactively() {
    let mut dcqcn = paper();
    notify(&mut dcqcn, 0);
    notify(&mut dcqcn, 50);
    dcqcn.timer_stage = 6;
    dcqcn.byte_stage = 4;
    // BC = 5: min is not more than 5, so R_T = 20.04; R_C = (10 + 20.04) / 2.
    close(send(&mut dcqcn, 10_000_000), 15.02);
    // BC = 6: min - F = 1, R_T = 20.44; R_C = (15.02 + 20.44) / 2.
    close(send(&mut dcqcn, 10_000_000), 17.73);
    // T = 7, min still 6: R_T = 20.84.
    close(fire(&mut dcqcn, 105), 19.285);
    // BC = 7: min - F = 2, R_T = 21.64.
    close(send(&mut dcqcn, 10_000_000), 20.462_5);
}

#[test]
fn the_timer_stops_at_line_rate() {
    let mut dcqcn = paper();
    notify(&mut dcqcn, 0);
    let mut now = at(0);
    while let Some(next) = dcqcn.next_timer() {
        assert!(next > now && next < at(1_000), "the timer goes on");
        now = next;
        dcqcn.on_timer(now);
    }
    // 20, 30, .. : 40 - 20 / 2^n >= 39.96 from n = 9 on; 9 * 55 us.
    assert_eq!(now, at(495));
    assert_eq!(dcqcn.budget(now).rate, Some(Rate::gbps(40)));
}

#[test]
fn a_timer_that_is_early_does_nothing() {
    let mut dcqcn = paper();
    notify(&mut dcqcn, 0);
    dcqcn.on_timer(at(54));
    close(dcqcn.rate / G, 20.0);
}

/// The network is lossless in the paper; where it is not, a loss is a notification nobody sent.
#[test]
fn a_loss_counts_as_a_notification_of_its_interval() {
    let lose = |dcqcn: &mut Dcqcn, micros, kind| {
        let feedback = Feedback { now: at(micros), kind, bytes: 4096, ..Feedback::default() };
        dcqcn.on_feedback(&feedback);
        dcqcn.rate / G
    };
    let mut dcqcn = paper();
    close(lose(&mut dcqcn, 10, FeedbackKind::Nacked { trimmed: true, last_hop: true }), 20.0);
    close(lose(&mut dcqcn, 59, FeedbackKind::Lost), 20.0);
    close(lose(&mut dcqcn, 60, FeedbackKind::Lost), 10.0);
    close(lose(&mut dcqcn, 109, FeedbackKind::TimedOut), 10.0);
    let mut deaf = with(|config| config.react_to_loss = false);
    close(lose(&mut deaf, 10, FeedbackKind::TimedOut), 40.0);
    // Nothing else is one.
    for kind in [FeedbackKind::Acked, FeedbackKind::ProbeAnswered, FeedbackKind::Control] {
        let mut dcqcn = paper();
        for _ in 0..100 {
            dcqcn.on_feedback(&Feedback { kind, bytes: 4096, ..Feedback::default() });
        }
        close(dcqcn.rate / G, 40.0);
    }
}

/// Marks that are only echoed: the sixteenth report, and then one each 50 us, stand for notifications.
#[test]
fn a_peer_that_does_not_notify_is_understood_by_its_marks() {
    let mark = |dcqcn: &mut Dcqcn, micros| {
        dcqcn.on_feedback(&Feedback { now: at(micros), ecn: true, ..Feedback::default() });
        dcqcn.rate / G
    };
    let mut dcqcn = paper();
    for n in 1..16 {
        close(mark(&mut dcqcn, n), 40.0);
        assert!(!dcqcn.metrics().ungranted);
    }
    close(mark(&mut dcqcn, 16), 20.0);
    assert!(dcqcn.metrics().ungranted);
    close(mark(&mut dcqcn, 65), 20.0);
    close(mark(&mut dcqcn, 66), 10.0);
    // An ACK without a mark says nothing.
    dcqcn.on_feedback(&Feedback { now: at(200), bytes: 4096, ..Feedback::default() });
    close(dcqcn.rate / G, 10.0);
    // Once it notifies, marks are left to it: 1 - alpha/2 with alpha = (255/256)^2 after 134 us.
    let heard = notify(&mut dcqcn, 200);
    close(heard, 5.038_986);
    assert!(!dcqcn.metrics().ungranted);
    for n in 0..100 {
        close(mark(&mut dcqcn, 300 + n), heard);
    }
    // Neither did they ever count for one that notifies from the beginning.
    let mut dcqcn = paper();
    let cut = notify(&mut dcqcn, 1);
    for n in 0..100 {
        close(mark(&mut dcqcn, 60 + n), cut);
    }
}

#[test]
fn vendor_constants() {
    let dcqcn = vendor();
    // 5 and 50 Mb/s of 25 Gb/s are 8 and 80 of 40.
    assert_eq!(dcqcn.config.additive_step, Rate(8_000_000));
    assert_eq!(dcqcn.config.hyper_step, Rate(80_000_000));
    close(dcqcn.config.g, 1.0 - 1019.0 / 1024.0);
    let interval = |dcqcn: &Dcqcn| dcqcn.config.receiver(&network());
    let of = |micros| ReceiverConfig::Notifying { interval: Span::micros(micros) };
    assert_eq!((interval(&dcqcn), interval(&paper())), (of(4), of(50)));
    let mut back = DcqcnConfig::new(&network());
    back.set_form(DcqcnVariant::Vendor);
    back.set_form(DcqcnVariant::Paper);
    assert_eq!(back, DcqcnConfig::new(&network()));
}

/// The cards update alpha every microsecond: by eq. 1 if a notification came in it, else by eq. 2.
#[test]
fn vendor_alpha_is_updated_in_periods() {
    let mut dcqcn = vendor();
    notify(&mut dcqcn, 100);
    // Two in the same period count once, and only at its end. Keep = 1 - 5/1024 = 0.9951172.
    notify(&mut dcqcn, 100);
    close(dcqcn.alpha, 1.0);
    // At 104: the period to 101 had notifications: 1 stays 1. Those to 102, 103, 104 had none:
    // keep^3 = 0.9854230.
    notify(&mut dcqcn, 104);
    close(dcqcn.alpha, 0.985_423);
    // At 105: 0.9854230 * keep + 5/1024 = 0.9854942.
    notify(&mut dcqcn, 105);
    close(dcqcn.alpha, 0.985_494_2);
}

/// Cuts are 4 us apart; one that is asked for earlier waits.
#[test]
fn vendor_cuts_keep_their_distance() {
    let mut dcqcn = vendor();
    close(notify(&mut dcqcn, 100), 20.0);
    assert_eq!(dcqcn.next_timer(), Some(at(400)));
    close(notify(&mut dcqcn, 102), 20.0);
    // alpha at 104: to 101 1 (notified), to 102 0.9951172, to 103 (notified at 102)
    // 0.9951172 * keep + 5/1024 = 0.9951410, to 104 keep * that = 0.9902820; cut 1 - 0.4951410.
    close(fire(&mut dcqcn, 104), 10.097_18);
    // Nothing was raised in between: the target stays that of the first cut.
    close(dcqcn.target / G, 40.0);
    assert_eq!(dcqcn.next_timer(), Some(at(404)));
    // With clamp_target it would not.
    let mut clamped = with(|config| {
        config.set_form(DcqcnVariant::Vendor);
        config.clamp_target = true;
    });
    notify(&mut clamped, 100);
    notify(&mut clamped, 104);
    close(clamped.target / G, 20.0);
}

/// One stage of fast recovery is none: the first expiry, T = 1 = F, adds, the second adds hyperactively.
#[test]
fn vendor_increases_by_time_alone() {
    let mut dcqcn = vendor();
    notify(&mut dcqcn, 100);
    dcqcn.rate = 10.0 * G;
    dcqcn.target = 20.0 * G;
    // R_T = 20.008, R_C = 15.004; R_T = 20.088, R_C = 17.546; again 80 Mb/s: 20.168, 18.857.
    close(fire(&mut dcqcn, 400), 15.004);
    close(fire(&mut dcqcn, 700), 17.546);
    close(fire(&mut dcqcn, 1_000), 18.857);
    // No byte counter.
    close(send(&mut dcqcn, 4_000_000_000), 18.857);
    // After an increase a cut takes its target along.
    notify(&mut dcqcn, 1_001);
    close(dcqcn.target / G, 18.857);
}

#[test]
fn counters_do_not_wrap() {
    let mut dcqcn = with(|config| {
        config.min_rate = Rate(1_000_000);
        config.additive_step = Rate(0);
        config.hyper_step = Rate(0);
        config.byte_counter = 64;
    });
    for n in 0..30 {
        notify(&mut dcqcn, n * 50);
    }
    for _ in 0..1000 {
        send(&mut dcqcn, u32::MAX);
        let next = dcqcn.next_timer().expect("far from the line's rate");
        dcqcn.on_timer(next);
    }
    assert_eq!((dcqcn.timer_stage, dcqcn.byte_stage), (u8::MAX, u8::MAX));
}

#[test]
fn state_is_small() {
    assert_eq!(size_of::<Dcqcn>(), 56);
}

/// Sections 3.1 and 5 of the paper, and what the simulations of network cards have, on a line of 25 Gb/s, to which those scale
/// their steps. Times in microseconds, steps in Mb/s.
#[test]
fn each_form_has_its_constants() {
    let constants = |form| {
        let network = NetworkProfile::new(Rate::gbps(25), Span::micros(12), 4096, false);
        let mut config = DcqcnConfig::new(&network);
        config.set_form(form);
        let times = [config.alpha_period, config.decrease_period, config.increase_period];
        let steps = [config.additive_step, config.hyper_step].map(|step| step.0 / 1_000_000);
        (times.map(|time| time.0 / 1000), config.byte_counter, config.stages, steps)
    };
    // 40 and 400 of 40 Gb/s are 25 and 250 of 25.
    assert_eq!(constants(DcqcnVariant::Paper), ([55, 0, 55], 10_000_000, 5, [25, 250]));
    assert_eq!(constants(DcqcnVariant::Vendor), ([1, 4, 300], 0, 1, [5, 50]));
    let paper = DcqcnConfig::new(&network());
    assert_eq!((paper.g, paper.clamp_target, paper.window), (1.0 / 256.0, true, 0.0));
    assert!(!vendor().config.clamp_target);
    assert_eq!((self::paper().alpha, vendor().alpha), (1.0, 1.0));
}
