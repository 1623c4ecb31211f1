//! Checks that a network simulated in parts gives the same results as in one part, to the last bit.

use proptest::prelude::*;

use crate::Picos;
use crate::model::{Failure, FailureEvent};
use crate::sim::{
    End, Intake, Results, RoceConfig, SimConfig, Simulation, SquallConfig, Transport,
    UnfinishedReason,
};
use crate::topology::Topology;
use crate::workload::{Flow, Start, Trigger, TriggerKind, Workload};
use squall_base::{Rate, Rng};

const US: Picos = Picos::micros(1);

/// Kind of network, hosts and algorithms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Trimming,
    Dropping,
    Lossless,
    Adaptive,
    Telemetry,
    Roce,
}

const KINDS: [Kind; 6] =
    [Kind::Trimming, Kind::Dropping, Kind::Lossless, Kind::Adaptive, Kind::Telemetry, Kind::Roce];

/// Returns a network of five leaves of four hosts and three spines, with uplinks of `uplink` Gb/s.
fn network(kind: Kind, uplink: u64, seed: u64) -> SimConfig {
    let (rate, uplink) = (Rate::gbps(100), Rate::gbps(uplink));
    let latency = Picos::nanos(700);
    let topology = Topology::leaf_spine(5, 3, 4, rate, uplink, latency, Picos::nanos(300));
    let mut config = SimConfig::new(topology);
    (config.seed, config.until) = (seed, Picos::micros(4_000));
    (config.observe.ports, config.observe.packets) = (true, true);
    let mut squall = SquallConfig::default();
    let options = &mut config.network;
    match kind {
        Kind::Trimming => {}
        Kind::Dropping => {
            (options.trimming, squall.cc) = (Some(false), "swift".into());
        }
        Kind::Lossless | Kind::Roce => {
            (options.lossless, options.trimming) = (true, Some(false));
            options.xoff = Some(crate::Bytes(40_000));
        }
        Kind::Adaptive => (options.adaptive, squall.lb) = (true, "oblivious".into()),
        Kind::Telemetry => (options.telemetry, squall.cc) = (true, "hpcc".into()),
    }
    config.host.transport = match kind {
        Kind::Roce => Transport::Roce(RoceConfig::default()),
        _ => Transport::Squall(squall),
    };
    config
}

fn flow(id: u32, (src, dst): (u32, u32), bytes: u64) -> Flow {
    let (start, on_started, on_sent, on_received) = (Start::At(0), None, None, None);
    Flow { id, src, dst, bytes, start, on_started, on_sent, on_received, job: 0, level: 0 }
}

/// Returns flows of random hosts: at once, later, and after others at the host that has received
/// them.
fn load(seed: u64, bytes: u64) -> Workload {
    let mut rng = Rng::new(seed);
    let (mut flows, mut triggers) = (Vec::new(), Vec::new());
    for id in 1..=30 {
        let src = rng.below(20);
        let dst = (src + 1 + rng.below(19)) % 20;
        let mut one = flow(id, (src, dst), 1 + u64::from(rng.below(bytes as u32)));
        match rng.below(3) {
            0 => one.start = Start::At(u64::from(rng.below(20_000_000))),
            1 => {
                let (delay, processor) = (u64::from(rng.below(2)) * 500_000, None);
                let next = triggers.len() as u32;
                triggers.push(Trigger {
                    id: next + 1,
                    kind: TriggerKind::OneShot,
                    delay,
                    processor,
                });
                one.on_received = Some(next);
                let to = (dst + 1 + rng.below(19)) % 20;
                let mut after = flow(id + 100, (dst, to), 20_000);
                after.start = Start::Trigger(next);
                flows.push(after);
            }
            _ => {}
        }
        flows.push(one);
    }
    Workload { hosts: 20, flows, triggers, dependencies: Vec::new() }
}

fn found(config: &SimConfig, load: &Workload, threads: usize) -> (Results, u32) {
    let config = SimConfig { threads, ..config.clone() };
    let simulation = Simulation::new(&config, load).expect("sound");
    let parts = simulation.parts();
    let mut results = simulation.run(&mut ());
    (results.totals.wall_s, results.totals.peak_bytes) = (0.0, 0);
    (results, parts)
}

fn failures(seed: u64) -> Vec<FailureEvent> {
    let mut rng = Rng::new(seed);
    // The links after those of the hosts are between switches.
    let mut link = || 20 + rng.below(15);
    let (dead, noisy, slow) = (link(), link(), link());
    let all = [
        (3, Failure::LinkDown(dead)),
        (5, Failure::BitErrors(noisy, 1e-5)),
        (7, Failure::Rate(slow, Rate::gbps(25))),
        (400, Failure::LinkUp(dead)),
    ];
    all.map(|(us, what)| FailureEvent { at: Picos::micros(us), what }).to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn parts_find_what_the_whole_finds(
        kind in proptest::sample::select(&KINDS[..]),
        uplink in proptest::sample::select(&[50u64, 100, 130][..]),
        seed in 0u64..1000,
        bytes in proptest::sample::select(&[3_000u64, 200_000, 600_000][..]),
        jitter in any::<bool>(),
        fails in any::<bool>(),
    ) {
        let mut config = network(kind, uplink, seed);
        if jitter {
            (config.host.delay, config.host.jitter) = (Picos::nanos(500), US);
            config.host.intake = Some(Intake { rate: Rate::gbps(60), buffer: 40_000 });
        }
        if fails {
            config.failures = failures(seed);
        }
        let load = load(seed, bytes);
        let (whole, one) = found(&config, &load, 1);
        prop_assert_eq!(one, 1);
        for threads in [2, 3, 5] {
            let (parts, count) = found(&config, &load, threads);
            prop_assert_eq!(count as usize, threads);
            prop_assert_eq!(&parts, &whole);
        }
    }
}

/// Checks that a network that cannot be divided runs in one part.
#[test]
fn what_hangs_together_is_one_part() {
    let config = network(Kind::Trimming, 100, 1);
    let parts = |config: &SimConfig, load: &Workload| {
        let config = SimConfig { threads: 4, ..config.clone() };
        Simulation::new(&config, load).expect("sound").parts()
    };
    let mut load = Workload {
        hosts: 20,
        flows: vec![flow(1, (0, 19), 1000), flow(2, (19, 0), 1000)],
        ..Workload::default()
    };
    assert_eq!(parts(&config, &load), 4);
    let sampled = SimConfig {
        observe: crate::sim::Observe { queues: Some(US), ..config.observe },
        ..config.clone()
    };
    assert_eq!(parts(&sampled, &load), 1);
    // Host 0 makes host 19 send, with no packet in between.
    let (kind, delay, processor) = (TriggerKind::OneShot, 0, None);
    load.triggers = vec![Trigger { id: 1, kind, delay, processor }];
    load.flows[0].on_sent = Some(0);
    load.flows[1].start = Start::Trigger(0);
    assert_eq!(parts(&config, &load), 1);
    load.flows[1].job = 1;
    assert_eq!(parts(&config, &load), 1);
}

/// Checks that the results are also the same if the simulation ends before all flows are done.
#[test]
fn parts_stop_when_the_whole_does() {
    let mut config = network(Kind::Trimming, 100, 1);
    let load = Workload {
        hosts: 20,
        flows: (0..20).map(|host| flow(host + 1, (host, (host + 7) % 20), 2_000_000)).collect(),
        ..Workload::default()
    };
    config.until = Picos::micros(30);
    let (whole, _) = found(&config, &load, 1);
    assert_eq!((whole.end, whole.totals.end), (End::TimeUp, Picos::micros(30)));
    assert_eq!(found(&config, &load, 3).0, whole);
    // One host is not reachable, and the flows to it are given up.
    config.until = Picos::micros(2_000_000);
    config.failures = vec![FailureEvent { at: US, what: Failure::LinkDown(3) }];
    let (whole, _) = found(&config, &load, 1);
    assert!(whole.flows.iter().any(|flow| flow.unfinished == Some(UnfinishedReason::Disconnected)
        || flow.unfinished == Some(UnfinishedReason::Failed)));
    assert_eq!(found(&config, &load, 3).0, whole);
}

/// Checks that no part waits for one that panicked.
#[test]
#[should_panic(expected = "seen enough")]
fn a_panic_ends_all_parts() {
    struct Panics;
    impl crate::sim::Observer for Panics {
        fn progress(&mut self, _: Picos, _: usize, _: u64) -> core::ops::ControlFlow<()> {
            panic!("seen enough");
        }
    }
    let config = SimConfig { threads: 3, ..network(Kind::Trimming, 100, 1) };
    let load = Workload {
        hosts: 20,
        flows: (0..20).map(|host| flow(host + 1, (host, (host + 7) % 20), 9_000_000)).collect(),
        ..Workload::default()
    };
    Simulation::new(&config, &load).expect("sound").run(&mut Panics);
}
