//! Properties that every algorithm has, whatever the order of reports. An algorithm in the lists is
//! tested for them automatically.

use proptest::prelude::*;
use squall_cc::base::{Rate, Rng, Span, Time};
use squall_cc::{
    AckSignals, Budget, Feedback, FeedbackExtension, FeedbackKind, FlowEvent, NetworkProfile,
    PathSelector, PathSignal, Paths, PathsConfig, ReceivedPacket, Receiver, ReceiverCc, RxFlow,
    Sender, SenderCc, SenderConfig, SenderMetrics, SentPacket,
};

const MTU: u32 = 4096;
const BASE: Span = Span::micros(12);

fn network(trimming: bool) -> NetworkProfile {
    NetworkProfile::new(Rate::gbps(100), BASE, MTU, trimming)
}

/// One report and the time that passes before it; the values need not be plausible.
#[derive(Clone, Debug)]
struct Report {
    after: u64,
    sends: bool,
    kind: FeedbackKind,
    bytes: u32,
    packets: u16,
    ecn: bool,
    rtt: Option<u64>,
    in_flight: u64,
    penalty: Option<u8>,
    restore_cwnd: bool,
    grant: Option<u64>,
    round_end: bool,
}

impl Report {
    /// Performs a caller's steps: sends, reports, and calls the timer when it is due.
    fn feed(&self, sender: &mut Sender, now: &mut Time) {
        *now += Span(self.after);
        if sender.next_timer().is_some_and(|due| due <= *now) {
            sender.on_timer(*now);
        }
        if self.sends {
            let sending =
                SentPacket { bytes: MTU, backlog: self.in_flight, ..SentPacket::default() };
            let _ = sender.on_send(*now, &sending);
        }
        sender.on_feedback(&Feedback {
            now: *now,
            kind: self.kind,
            bytes: self.bytes,
            packets: self.packets,
            marked: self.packets * u16::from(self.ecn),
            ecn: self.ecn,
            rtt: self.rtt.map(Span),
            delivered: self.rtt.map(|_| u64::from(self.bytes)),
            in_flight: self.in_flight,
            penalty: self.penalty,
            restore_cwnd: self.restore_cwnd,
            extension: self.grant.map_or(FeedbackExtension::None, FeedbackExtension::Credit),
            round_end: self.round_end,
            ..Feedback::default()
        });
        for _ in 0..100 {
            if sender.poll(*now).is_none() {
                return;
            }
        }
        panic!("it never stops wanting something");
    }
}

fn kinds() -> impl Strategy<Value = FeedbackKind> {
    prop_oneof![
        4 => Just(FeedbackKind::Acked),
        2 => (any::<bool>(), any::<bool>())
            .prop_map(|(trimmed, last_hop)| FeedbackKind::Nacked { trimmed, last_hop }),
        1 => Just(FeedbackKind::Lost),
        1 => Just(FeedbackKind::TimedOut),
        1 => Just(FeedbackKind::ProbeAnswered),
        1 => Just(FeedbackKind::Notified),
        1 => Just(FeedbackKind::Control),
    ]
}

/// Mostly sensible magnitudes, and sometimes the largest possible ones.
fn reports() -> impl Strategy<Value = Report> {
    let after = prop_oneof![8 => 0..50_000u64, 1 => 0..10_000_000_000u64];
    let bytes = prop_oneof![8 => 0..70_000u32, 1 => any::<u32>()];
    let rtt = prop::option::weighted(0.8, prop_oneof![8 => 5_000..200_000u64, 1 => any::<u64>()]);
    let in_flight = prop_oneof![8 => 0..1_000_000u64, 1 => any::<u64>()];
    let grant = prop::option::weighted(0.2, prop_oneof![4 => 0..1_000_000u64, 1 => 0..1u64 << 62]);
    (
        (after, any::<bool>(), kinds(), bytes, any::<u16>(), any::<bool>()),
        (rtt, in_flight, prop::option::weighted(0.2, any::<u8>()), any::<bool>(), grant),
        any::<bool>(),
    )
        .prop_map(|(first, second, round_end)| {
            let (after, sends, kind, bytes, packets, ecn) = first;
            let (rtt, in_flight, penalty, restore_cwnd, grant) = second;
            Report {
                after,
                sends,
                kind,
                bytes,
                packets,
                ecn,
                rtt,
                in_flight,
                penalty,
                restore_cwnd,
                grant,
                round_end,
            }
        })
}

/// Returns every sender: with its defaults, and with pacing, VAI and SF where they are offered.
fn every_sender(network: &NetworkProfile) -> Vec<(String, SenderConfig)> {
    let mut all = Vec::new();
    for &(name, _) in SenderConfig::NAMES {
        let config = SenderConfig::by_name(name, network).expect("a name of the list");
        if config.settings().iter().any(|setting| setting.name == "pace") {
            let text = format!("{name}:pace=1");
            let paced = SenderConfig::by_name(&text, network).expect("offered");
            all.push((text, paced));
        }
        if config.settings().iter().any(|setting| setting.name == "vai") {
            for text in ["vai=1,sf=30", "random=1"].map(|text| format!("{name}:{text}")) {
                let fair = SenderConfig::by_name(&text, network).expect("offered");
                all.push((text, fair));
            }
        }
        all.push((name.to_string(), config));
    }
    all
}

fn opened(config: &SenderConfig, now: Time) -> Sender {
    let mut sender = Sender::new(config, now);
    sender.on_event(now, FlowEvent::Opened { flow: 0 });
    sender
}

/// A receiver that lacks room refuses packets: that is no congestion, so no algorithm slows down.
#[test]
fn a_refusal_that_is_no_loss_is_no_congestion() {
    let network = NetworkProfile::new(Rate::gbps(100), Span::micros(10), 4096, true);
    for (name, config) in every_sender(&network) {
        let mut sender = opened(&config, Time(5_000));
        let mut now = Time(5_000);
        let feed = |sender: &mut Sender, now: &mut Time, kind: FeedbackKind| {
            *now += Span::micros(2);
            let sending = SentPacket { bytes: 4096, ..SentPacket::default() };
            sender.on_send(*now, &sending);
            let rtt = (kind == FeedbackKind::Acked).then_some(Span::micros(10));
            let packets =
                Feedback { kind, now: *now, bytes: 4096, packets: 1, rtt, ..Feedback::default() };
            sender.on_feedback(&Feedback { in_flight: 20 * 4096, ..packets });
        };
        for _ in 0..200 {
            feed(&mut sender, &mut now, FeedbackKind::Acked);
        }
        let before = sender.budget(now);
        let refused = FeedbackKind::Nacked { trimmed: false, last_hop: false };
        for _ in 0..20 {
            feed(&mut sender, &mut now, refused);
        }
        let after = sender.budget(now);
        assert!(after.window >= before.window, "{name}: {before:?}, {after:?}");
        let rate = |budget: Budget| budget.rate.map_or(u64::MAX, |rate| rate.0);
        assert!(rate(after) >= rate(before), "{name}: {before:?}, {after:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The window never leaves its bounds, and never holds back the only packet.
    #[test]
    fn windows_stay_within_their_bounds(
        (gbps, base_us, mtu) in (1..800u64, 1..1000u64, 1024..20_000u32),
        (trimming, floor) in (any::<bool>(), prop::option::of(0..100u64)),
        reports in prop::collection::vec(reports(), 1..150),
    ) {
        let network = NetworkProfile {
            min_base_rtt: floor.map(Span::micros),
            min_window: floor.map(|floor| floor * 20_000),
            ..NetworkProfile::new(Rate::gbps(gbps), Span::micros(base_us), mtu, trimming)
        };
        for (name, config) in every_sender(&network) {
            let mut now = Time(5_000);
            let mut sender = opened(&config, now);
            for report in &reports {
                report.feed(&mut sender, &mut now);
                let SenderMetrics { cwnd, max_cwnd, rate, .. } = sender.metrics();
                if let (Some(cwnd), Some(max)) = (cwnd, max_cwnd) {
                    // Windows are single precision.
                    let most = max.saturating_add(max >> 20).saturating_add(1);
                    prop_assert!(cwnd <= most, "{name}: {cwnd} is above {max}");
                }
                prop_assert!(rate != Some(Rate(0)), "{name} stopped");
                let budget = sender.budget(now);
                let window = budget.window.unwrap_or(u64::MAX);
                prop_assert!(window >= mtu.into(), "{name}: a window of {window} lets nothing go");
                prop_assert!(budget.rate != Some(Rate(0)), "{name} stopped");
                // A departure may be far in the future, but not unreachable.
                let wait = budget.not_before.since(now);
                prop_assert!(wait < Span::secs(60), "{name} waits {wait:?}");
            }
        }
    }

    /// The allowance does not grow while every signal reports congestion, except for [`GROWTH`].
    #[test]
    fn no_increase_while_every_signal_says_congestion(
        trimming: bool,
        steps in prop::collection::vec((0..30_000u64, 0..10u8, 0..100_000u64), 50..300),
    ) {
        for (name, config) in every_sender(&network(trimming)) {
            let plain = name.trim_end_matches(":pace=1");
            let Some(&(_, growth)) = GROWTH.iter().find(|row| row.0 == plain) else { continue };
            let mut now = Time(5_000);
            let mut sender = opened(&config, now);
            let mut lowest = u64::MAX;
            let start = now;
            for &(after, kind, excess) in &steps {
                let kind = match kind {
                    0 if trimming => FeedbackKind::Nacked { trimmed: true, last_hop: false },
                    1 => FeedbackKind::Lost,
                    2 => FeedbackKind::TimedOut,
                    3 => FeedbackKind::Notified,
                    _ => FeedbackKind::Acked,
                };
                // A hundred base round-trip times of queue: above every target.
                let rtt = Some(BASE * 100 + Span(excess));
                now += Span(after);
                if sender.next_timer().is_some_and(|due| due <= now) {
                    sender.on_timer(now);
                }
                sender.on_feedback(&Feedback {
                    now,
                    kind,
                    bytes: MTU,
                    packets: 1,
                    marked: 1,
                    ecn: true,
                    rtt,
                    in_flight: 50_000,
                    round_end: true,
                    ..Feedback::default()
                });
                let metrics = sender.metrics();
                let allowed = metrics.cwnd.unwrap_or(0).max(metrics.rate.map_or(0, |rate| rate.0));
                let periods = now.since(start).0 / BASE.0 + 1;
                let most = growth(lowest, periods);
                prop_assert!(allowed <= most, "{name}: {allowed} after {lowest}");
                lowest = lowest.min(allowed);
            }
        }
    }

    /// A notification, unless the algorithm is made for it, and a control packet without a grant acknowledge
    /// nothing: a context that receives them behaves like one that does not.
    #[test]
    fn signals_of_other_algorithms_leave_no_trace(
        reports in prop::collection::vec(reports(), 1..60),
    ) {
        for (name, config) in every_sender(&network(true)) {
            let (mut now, mut also) = (Time(5_000), Time(5_000));
            let (mut a, mut b) = (opened(&config, now), opened(&config, now));
            let notified = name.starts_with("dcqcn") || name.starts_with("dart");
            for report in &reports {
                for kind in [FeedbackKind::Control, FeedbackKind::Notified] {
                    if kind == FeedbackKind::Control || !notified {
                        let in_flight = report.in_flight;
                        b.on_feedback(&Feedback { now, kind, in_flight, ecn: true, ..Feedback::default() });
                    }
                }
                report.feed(&mut a, &mut now);
                report.feed(&mut b, &mut also);
                prop_assert_eq!(a.metrics(), b.metrics(), "{}", &name);
                prop_assert_eq!(a.budget(now), b.budget(now), "{}", &name);
            }
        }
    }

    /// The behaviour depends on the time that passes, not on the absolute time, also where clocks
    /// wrap.
    #[test]
    fn absolute_time_does_not_matter(
        late in prop_oneof![(1u64 << 32) - 200_000..1 << 32, (1u64 << 33)..1 << 60],
        reports in prop::collection::vec(reports(), 1..100),
    ) {
        for (name, config) in every_sender(&network(true)) {
            // BBR enters ProbeBW in a random phase, and its only seed is the clock.
            if name.starts_with("bbr") {
                continue;
            }
            let (mut early, mut later) = (Time(5_000), Time(5_000 + late));
            let (mut a, mut b) = (opened(&config, early), opened(&config, later));
            for report in &reports {
                report.feed(&mut a, &mut early);
                report.feed(&mut b, &mut later);
                prop_assert_eq!(a.metrics(), b.metrics(), "{}", &name);
                let (one, other) = (a.budget(early), b.budget(later));
                prop_assert_eq!(one.window, other.window, "{}", &name);
                prop_assert_eq!(one.rate, other.rate, "{}", &name);
                prop_assert_eq!(one.credit, other.credit, "{}", &name);
                let (wait, waits) = (one.not_before.since(early), other.not_before.since(later));
                prop_assert_eq!(wait, waits, "{}", &name);
            }
        }
    }

    /// After any history, every algorithm keeps sending on a clean network, in which each packet is
    /// acknowledged after a base round-trip time and credit is plentiful: nothing is stuck.
    #[test]
    fn a_clean_network_always_helps(reports in prop::collection::vec(reports(), 0..100)) {
        for (name, config) in every_sender(&network(true)) {
            let mut now = Time(5_000);
            let mut sender = opened(&config, now);
            for report in &reports {
                report.feed(&mut sender, &mut now);
            }
            let (mut granted, mut sent) = (1u64 << 62, 0);
            for _ in 0..200 {
                // The slowest pacer here sends a packet in a tenth of a second.
                now += Span::millis(100);
                if sender.next_timer().is_some_and(|due| due <= now) {
                    sender.on_timer(now);
                }
                while sender.poll(now).is_some() {}
                if sender.budget(now).allows(now, 0, MTU) {
                    sent += 1;
                    let _ = sender.on_send(now, &SentPacket { bytes: MTU, backlog: 1 << 20, ..SentPacket::default() });
                    granted += u64::from(MTU);
                } else {
                    sender.on_event(now, FlowEvent::Blocked { backlog: 1 << 20 });
                }
                sender.on_feedback(&Feedback {
                    now: now + BASE,
                    bytes: MTU,
                    packets: 1,
                    rtt: Some(BASE),
                    delivered: Some(MTU.into()),
                    extension: FeedbackExtension::Credit(granted),
                    round_end: true,
                    ..Feedback::default()
                });
            }
            prop_assert!(sent >= 100, "{name} sent {sent} of 200 packets");
        }
    }

    /// Receivers of every kind count each new whole packet once, whatever arrives twice or trimmed.
    #[test]
    fn receivers_conserve_bytes(
        packets in prop::collection::vec(
            (0..5_000u64, 64..9_000u32, any::<bool>(), any::<bool>(), any::<bool>(), any::<u64>()),
            1..200,
        ),
    ) {
        for &(name, _) in SenderConfig::NAMES {
            let network = network(true);
            let config = SenderConfig::by_name(name, &network).expect("a name of the list");
            let mut receiver = Receiver::new(&config.receiver(&network));
            let mut flow = RxFlow::new(7);
            let (mut now, mut sum, mut credit) = (Time::ZERO, 0, 0);
            for &(after, bytes, trimmed, duplicate, ecn, demand) in &packets {
                now += Span(after);
                let demand = Some(demand);
                let meta = ReceivedPacket { bytes, ecn, trimmed, duplicate, demand, ..ReceivedPacket::default() };
                receiver.on_rx(now, &mut flow, &meta);
                sum += if trimmed || duplicate { 0 } else { u64::from(bytes) };
                let mut signals = AckSignals::default();
                receiver.fill_ack(now, &mut flow, &mut signals);
                prop_assert_eq!(signals.received, sum, "{}", name);
                let now_granted = signals.credit.unwrap_or(credit);
                prop_assert!(now_granted >= credit, "{name} takes credit back");
                credit = now_granted;
                for _ in 0..1000 {
                    if receiver.poll(now).is_none() {
                        break;
                    }
                }
                prop_assert!(receiver.poll(now).is_none(), "{name} never stops");
                prop_assert!(receiver.next_timer().is_none_or(|due| due > now), "{name} is late");
            }
            receiver.on_close(now, &mut flow);
        }
    }

    #[test]
    fn selectors_pick_paths_that_exist(
        seed: u64,
        bits in 0..9u32,
        steps in prop::collection::vec((0..5_000_000u64, any::<u16>(), 0..6u8), 0..300),
    ) {
        let paths = 1u16 << bits;
        for &(name, _) in PathsConfig::NAMES {
            let config = PathsConfig::by_name(name, paths).expect("a power of two suits all");
            let mut selector = Paths::new(&config, Rng::new(seed));
            let mut now = Time::ZERO;
            for &(after, path, what) in &steps {
                now += Span(after);
                match what {
                    0 => selector.on_feedback(now, path % paths, PathSignal::Good),
                    1 => selector.on_feedback(now, path, PathSignal::Ecn),
                    2 => selector.on_feedback(now, path, PathSignal::Nack),
                    3 => selector.on_feedback(now, path % paths, PathSignal::Timeout),
                    4 => selector.on_idle(now),
                    _ => {}
                }
                let picked = selector.pick(now, u32::from(path) % 200);
                prop_assert!(picked < paths, "{name} picked {picked} of {paths}");
            }
        }
    }
}

/// Largest allowance of an algorithm, given its smallest one so far, after so many base round-trip
/// times with nothing but signals of congestion. The algorithms that are not listed do not treat
/// these signals as congestion: BBR (its model uses the delivered bytes), DCQCN (its timers lead
/// back to the rate before the last notification), credits (the receiver decides), a fixed window.
type Growth = fn(lowest: u64, periods: u64) -> u64;
const GROWTH: &[(&str, Growth)] = &[
    // UE 1.0 section 3.6.13.5 adds `eta`, 615 bytes here, once a period without condition, and
    // QuickAdapt sets what got through, less than an eighth of the largest window, even if it is more.
    ("nscc", |lowest, periods| lowest.saturating_add(615 * periods).max(225_000 / 8)),
    ("eqds+nscc", |lowest, periods| lowest.saturating_add(615 * periods).max(225_000 / 8)),
    // QuickAdapt likewise.
    ("smartt", |lowest, _| lowest.max(225_000)),
    ("eqds+smartt", |lowest, _| lowest.max(225_000)),
    ("strack", |lowest, periods| lowest.saturating_add(615 * periods).max(225_000 / 8)),
    ("swift", |lowest, _| lowest),
    ("mprdma", |lowest, _| lowest),
    ("eqds+mprdma", |lowest, _| lowest),
    // Its threshold is two packets; after a time-out it starts slowly, at one.
    ("dctcp", |lowest, _| lowest.max(8_192)),
    ("timely", |lowest, _| lowest),
    ("3cpo", |lowest, _| lowest),
    // Without telemetry it follows the round trip; its smallest rate is twice the increase of a
    // round trip.
    ("hpcc", |lowest, _| lowest),
];
