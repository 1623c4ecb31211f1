//! Whatever the order of reports, NSCC stays within its bounds, and path selectors within theirs.

use proptest::prelude::*;
use squall_cc::base::{Rate, Rng, Span, Time};
use squall_cc::{
    Feedback, Kind, Metrics, Network, NsccConfig, PathSelector, PathSignal, Paths, PathsConfig,
    Scaling, Sender, SenderCc, SenderConfig,
};

/// One report and the time that passes before it, with nothing kept plausible.
#[derive(Clone, Debug)]
struct Report {
    after: u64,
    kind: Kind,
    bytes: u32,
    packets: u16,
    ecn: bool,
    rtt: Option<u64>,
    in_flight: u64,
    penalty: Option<u8>,
    restore_cwnd: bool,
}

impl Report {
    fn feed(&self, sender: &mut Sender, now: &mut Time) {
        *now += Span(self.after);
        sender.on_feedback(&Feedback {
            now: *now,
            kind: self.kind,
            bytes: self.bytes,
            packets: self.packets,
            ecn: self.ecn,
            rtt: self.rtt.map(Span),
            in_flight: self.in_flight,
            penalty: self.penalty,
            restore_cwnd: self.restore_cwnd,
            ..Feedback::default()
        });
    }
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        4 => Just(Kind::Acked),
        2 => (any::<bool>(), any::<bool>())
            .prop_map(|(trimmed, last_hop)| Kind::Nacked { trimmed, last_hop }),
        1 => Just(Kind::Lost),
        1 => Just(Kind::TimedOut),
        1 => Just(Kind::ProbeAnswered),
        1 => Just(Kind::Notified),
    ]
}

/// Mostly sensible magnitudes, now and then the largest there is.
fn reports() -> impl Strategy<Value = Report> {
    let after = prop_oneof![8 => 0..50_000u64, 1 => any::<u64>()];
    let bytes = prop_oneof![8 => 0..70_000u32, 1 => any::<u32>()];
    let rtt = prop::option::weighted(0.8, prop_oneof![8 => 5_000..200_000u64, 1 => any::<u64>()]);
    let in_flight = prop_oneof![8 => 0..1_000_000u64, 1 => any::<u64>()];
    (
        (after, kinds(), bytes, any::<u16>(), any::<bool>()),
        (rtt, in_flight, prop::option::weighted(0.2, any::<u8>()), any::<bool>()),
    )
        .prop_map(
            |((after, kind, bytes, packets, ecn), (rtt, in_flight, penalty, restore_cwnd))| {
                Report { after, kind, bytes, packets, ecn, rtt, in_flight, penalty, restore_cwnd }
            },
        )
}

prop_compose! {
    fn configs()(
        gbps in 1..800u64,
        base_us in 1..1000u64,
        mtu in 64..20_000u32,
        trimming: bool,
        rccc: bool,
        path: bool,
        min_base_us in 0..100u64,
        min_max_wnd in 0..2_000_000u64,
    ) -> NsccConfig {
        NsccConfig {
            rccc,
            scaling: if path { Scaling::Path } else { Scaling::Network },
            min_base_rtt: Span::micros(min_base_us),
            min_max_wnd,
            ..NsccConfig::new(&Network::new(Rate::gbps(gbps), Span::micros(base_us), mtu, trimming))
        }
    }
}

fn windows(metrics: &Metrics) -> (u64, u64) {
    (metrics.cwnd.expect("a window"), metrics.max_cwnd.expect("a largest window"))
}

proptest! {
    #[test]
    fn the_window_stays_between_one_mtu_and_its_largest(
        config in configs(),
        reports in prop::collection::vec(reports(), 1..200),
    ) {
        let (mtu, eta) = (u64::from(config.mtu), config.eta);
        prop_assert!(eta > 0.0);
        let mut sender = Sender::new(&SenderConfig::nscc(config).expect("in range"), Time::ZERO);
        let mut now = Time::ZERO;
        for report in &reports {
            report.feed(&mut sender, &mut now);
            let (cwnd, max) = windows(&sender.metrics());
            prop_assert!(cwnd >= mtu, "{cwnd} is below one MTU of {mtu}");
            prop_assert!(cwnd <= max, "{cwnd} is above {max}");
            prop_assert!(sender.budget(now).allows(now, 0, config_mtu(mtu)), "a flow could starve");
            let avg = sender.metrics().avg_delay.expect("an average");
            prop_assert!(avg < Span::MAX);
        }
    }

    /// With every signal congested the window may only grow by `eta`, once a period (UE 1.0 section
    /// 3.6.13.5 adds it unconditionally), or by QuickAdapt, which sets it to what got through even
    /// when that is more, yet always below an eighth of the largest window.
    #[test]
    fn no_increase_while_every_signal_says_congestion(
        trimming: bool,
        steps in prop::collection::vec((0..30_000u64, 64..5_000u32, 0..10u8, 0..100_000u64), 1..300),
    ) {
        let config = NsccConfig::new(&Network::new(Rate::gbps(100), Span::micros(12), 4096, trimming));
        let (period, eta) = (config.adjust_period, 615);
        let target = config.target_qdelay;
        let mut sender = Sender::new(&SenderConfig::nscc(config).expect("in range"), Time::ZERO);
        let (mut now, mut paid_at) = (Time::ZERO, Time::ZERO);
        for (after, bytes, kind, excess) in steps {
            let before = windows(&sender.metrics()).0;
            now += Span(after);
            let kind = match kind {
                0 => Kind::Nacked { trimmed: true, last_hop: false },
                1 => Kind::Lost,
                2 => Kind::TimedOut,
                _ => Kind::Acked,
            };
            sender.on_feedback(&Feedback {
                now,
                kind,
                bytes,
                packets: 1,
                ecn: true,
                rtt: Some(Span::micros(12) + target + Span(excess)),
                in_flight: 50_000,
                ..Feedback::default()
            });
            let cwnd = windows(&sender.metrics()).0;
            let grown = cwnd.saturating_sub(before);
            if grown > 0 && cwnd >= 225_000 / 8 {
                prop_assert!(now.since(paid_at) >= period, "paid twice a period");
                prop_assert!(grown <= eta, "grew by {grown}");
                paid_at = now;
            }
        }
    }

    #[test]
    fn a_clean_network_gives_the_whole_window_back(losses in 0..100u32) {
        let config = NsccConfig::new(&Network::new(Rate::gbps(100), Span::micros(12), 4096, true));
        let mut sender = Sender::new(&SenderConfig::nscc(config).expect("in range"), Time::ZERO);
        let mut now = Time::ZERO;
        for _ in 0..losses {
            let kind = Kind::Lost;
            sender.on_feedback(&Feedback { now, kind, bytes: 4096, ..Feedback::default() });
        }
        // Fast increase: a quarter of the acknowledged bytes each, 225000 * 4 / 4096 = 220 ACKs.
        for _ in 0..400 {
            now += Span(400);
            let rtt = Some(Span::micros(12));
            let ack = Feedback { now, bytes: 4096, packets: 1, rtt, ..Feedback::default() };
            sender.on_feedback(&ack);
        }
        prop_assert_eq!(windows(&sender.metrics()), (225_000, 225_000));
    }

    #[test]
    fn selectors_pick_paths_that_exist(
        seed: u64,
        paths in 1..300u16,
        kind in 0..3u8,
        steps in prop::collection::vec((0..5_000_000u64, any::<u16>(), 0..5u8), 0..300),
    ) {
        let config = match kind {
            0 => PathsConfig::reps(paths),
            1 => PathsConfig::oblivious(paths.next_power_of_two()),
            _ => PathsConfig::single(paths),
        }
        .expect("in range");
        let limit = if kind == 1 { paths.next_power_of_two() } else { paths };
        let mut selector = Paths::new(&config, Rng::new(seed));
        let mut now = Time::ZERO;
        for (after, path, what) in steps {
            now += Span(after);
            match what {
                0 => selector.on_feedback(now, path % paths, PathSignal::Good),
                1 => selector.on_feedback(now, path, PathSignal::Ecn),
                2 => selector.on_feedback(now, path, PathSignal::Nack),
                3 => selector.on_feedback(now, path % paths, PathSignal::Timeout),
                _ => {}
            }
            let picked = selector.pick(now, 8);
            prop_assert!(picked < limit);
        }
    }
}

/// The MTU as the 32 bits a packet's length has.
fn config_mtu(mtu: u64) -> u32 {
    u32::try_from(mtu).expect("an MTU fits")
}
