//! HPCC and s-PERC over the emulation: what switches write into real packets comes back to their senders.

use squall_base::{Rate, Span};
use squall_cc::{
    NetworkProfile, PathsConfig, SenderConfig, SpercLinkParameters, WindowTableParameters,
};
use squall_emulator::Emulation;
use squall_engine::{
    Action, Buf, Config, Level, MatchSpace, Operation, Options, RecvMode, RecvOp, Visibility,
};
use squall_netsim::Picos;
use squall_netsim::model::NetworkConfig;
use squall_netsim::topology::Topology;
use squall_reliability::NOMINAL_OVERHEAD;
use squall_research::rates::RateParameters;

use super::world::{BEGIN, World, configured};

/// Of each message: many bandwidth-delay products.
const LEN: u64 = 4_000_000;
/// Hosts that send to the first one.
const SENDERS: usize = 3;

/// The unloaded round trip, as endpoints learn it.
const RTT: Span = Span::micros(25);
/// What is sent in it.
const BDP: u64 = 31_250;

/// What switches do.
#[derive(Clone, Copy)]
enum Switches {
    Nothing,
    Telemetry,
    /// They compute rates, and forget who does not ask for so long.
    Rates {
        forget: Span,
    },
}

/// As [`squall_netsim::model::NetworkOptions`] has it.
const RATES: Switches = Switches::Rates { forget: Span(RTT.0 * 64) };

/// Two leaves of two hosts of 10 Gb/s, a spine between them, and queues of 4 MB.
fn world(cc: &str, does: Switches) -> World {
    let rate = Rate::gbps(10);
    let topology = Topology::leaf_spine(2, 1, 2, rate, rate, Picos::micros(1), Picos::ZERO);
    let mut config = NetworkConfig::new(4_000_000, false, 1);
    match does {
        Switches::Nothing => {}
        Switches::Telemetry => config.options.telemetry = true,
        Switches::Rates { forget } => {
            let link = SpercLinkParameters { round: RTT * 2, forget };
            let windows =
                WindowTableParameters { epoch: RTT, mtu: 4144, most: 8, ahead: Span::ZERO };
            let rates = RateParameters { capacity: RateParameters::CAPACITY, link, windows };
            config.add_feature(std::sync::Arc::new(rates)).expect("few counters");
        }
    }
    let net = Emulation::new(topology, config, NOMINAL_OVERHEAD).expect("small");
    let known = NetworkProfile::new(rate, RTT, 4096 + NOMINAL_OVERHEAD, false);
    let cc = cc.to_owned();
    World::new(net, 1, move |seed, port| {
        let sender = SenderConfig::by_name(&cc, &known).expect("a listed name");
        let paths = PathsConfig::by_name("single", 1).expect("a listed name");
        let pdc = squall_reliability::Config::new(4096, sender, paths, seed).reciprocal(&known);
        let engine =
            Config { max_packet: 4096, rendezvous_threshold: 1 << 30, port, ..configured(seed) };
        (engine, pdc)
    })
}

/// What came of an incast of three.
#[derive(Debug)]
struct Came {
    /// The longest queue after the first half of a millisecond, in bytes.
    longest: u64,
    /// Contexts that say they live on what does not come.
    without: usize,
    malformed: u64,
    end: Picos,
}

fn byte(from: usize, at: u64) -> u8 {
    (at * 31 + from as u64 * 7) as u8
}

/// Where the bytes of a sender go.
fn place(from: usize) -> u64 {
    (from as u64 - 1) * LEN
}

/// Host `from` sends its message.
fn send(world: &mut World, from: usize) {
    let peer = world.peer(from, 0);
    let send = Operation {
        peer,
        action: Action::Message { space: MatchSpace::Tagged, tag: 1 },
        buf: Buf::new(0, LEN),
        data: None,
        context: 9,
        options: Options { level: Level::Transmit, ..Options::default() },
    };
    world.submit(from, send);
}

/// Each sender has its bytes, and the first host receives for each.
fn prepare(world: &mut World) {
    world.hosts[0].memory.alloc(SENDERS * LEN as usize);
    for from in 1..=SENDERS {
        let bytes: Vec<u8> = (0..LEN).map(|at| byte(from, at)).collect();
        world.hosts[from].memory.put(&bytes);
        let source = Some(world.peer(0, from));
        let now = world.time();
        let recv = RecvOp {
            source,
            space: MatchSpace::Tagged,
            tag: 1,
            ignore: 0,
            buf: Buf::new(place(from), LEN),
            context: from as u64,
            visibility: Visibility::Entry,
            mode: RecvMode::Post,
        };
        let host = &mut world.hosts[0];
        host.engine.receive(now, &mut host.memory, recv).expect("room for operations");
    }
}

/// All bytes of a sender arrived.
fn check(world: &World, from: usize) {
    let came = world.hosts[0].memory.get(place(from), LEN);
    assert!((0..LEN).zip(came).all(|(at, &is)| is == byte(from, at)), "from {from}");
}

fn malformed(world: &World) -> u64 {
    world.hosts.iter().map(|host| host.engine.counters().0.rx_malformed).sum()
}

fn incast(cc: &str, does: Switches) -> Came {
    let mut world = world(cc, does);
    prepare(&mut world);
    (1..=SENDERS).for_each(|from| send(&mut world, from));
    let mut pending = 2 * SENDERS;
    let mut longest = 0;
    let without = |world: &World| {
        let contexts = world.hosts[1..].iter().flat_map(|host| host.engine.contexts());
        contexts.filter(|context| context.other_mode).count()
    };
    let mut worst = 0;
    while pending > 0 {
        let more = world.step(BEGIN + Picos::micros(1_000_000), &mut |_, done| {
            assert_eq!(done.status, Ok(()));
            pending -= 1;
        });
        assert!(more, "{cc}: it stopped with {pending} to go");
        let network = world.net.network();
        if world.now > BEGIN + Picos::micros(500) {
            let switches = network.switches();
            let ports = (0..switches.len()).filter(|&port| port != network.host_port(1));
            let queued = ports.map(|port| switches.port(port).queued(world.now)).max();
            longest = longest.max(queued.unwrap_or(0));
        }
        worst = worst.max(without(&world));
    }
    (1..=SENDERS).for_each(|from| check(&world, from));
    let malformed = malformed(&world);
    Came { longest, without: worst, malformed, end: Picos(world.now.0 - BEGIN.0) }
}

#[test]
fn hpcc_lives_on_what_switches_write() {
    let with_records = incast("hpcc", Switches::Telemetry);
    let fixed = incast("none", Switches::Telemetry);
    assert_eq!((with_records.without, with_records.malformed, fixed.malformed), (0, 0, 0));
    // 12 MB at 10 Gb/s are 9.6 ms; HPCC takes 95 % of the line, and the slowest sends alone for a while.
    assert!(with_records.end < Picos::micros(12_500), "{with_records:?}");
    // A bandwidth-delay product is 31 KB.
    assert!(
        with_records.longest < 40_000 && fixed.longest > 400_000,
        "{with_records:?}, {fixed:?}"
    );
    let decorated = incast("hpcc:vai=1,sf=30", Switches::Telemetry);
    assert!(decorated.without == 0 && decorated.longest < 60_000, "{decorated:?}");
}

/// Where they write nothing all arrives all the same, and each sender says that it makes do.
#[test]
fn without_telemetry_it_says_so_and_goes_on() {
    let without_records = incast("hpcc", Switches::Nothing);
    assert_eq!(
        (without_records.without, without_records.malformed),
        (SENDERS, 0),
        "{without_records:?}"
    );
}

#[test]
fn sperc_has_the_rates_that_switches_compute() {
    for cc in ["sperc", "sperc:weights=1", "sperc:one_rtt=1,weights=1"] {
        let rated = incast(cc, RATES);
        assert_eq!((rated.without, rated.malformed), (0, 0), "{cc}");
        // 12 MB at 96 % of 10 Gb/s are 10 ms, and a little for headers and the first round trip.
        assert!(rated.end < Picos::micros(10_600), "{cc}: {rated:?}");
        // Those that start in one epoch have what the first of them has: the whole line, for a round trip.
        let most = if cc.contains("one_rtt") { SENDERS as u64 * BDP } else { BDP };
        assert!(rated.longest < most, "{cc}: {rated:?}");
    }
}

/// As where no telemetry comes: all arrives, and each sender says that it makes do.
#[test]
fn without_rates_sperc_says_so_and_goes_on() {
    for cc in ["sperc", "sperc:one_rtt=1"] {
        for does in [Switches::Nothing, Switches::Telemetry] {
            let unrated = incast(cc, does);
            assert_eq!((unrated.without, unrated.malformed), (SENDERS, 0), "{cc}: {unrated:?}");
            assert!(unrated.end < Picos::micros(12_500), "{cc}: {unrated:?}");
        }
    }
}

/// Lets happen what happens for so long; whatever ends, ends well.
fn pass(world: &mut World, time: Picos) -> usize {
    let (end, mut done) = (world.now + time, 0);
    while world.step(end, &mut |_, completion| {
        assert_eq!(completion.status, Ok(()));
        done += 1;
    }) {}
    done
}

/// What congestion control allows the flow of a host, Gb/s.
fn gbps(world: &World, from: usize) -> f64 {
    let rates = world.hosts[from].engine.contexts().filter(|context| context.initiator);
    rates.filter_map(|context| context.rate).map(|rate| rate.0 as f64 / 1e9).sum()
}

/// Who starts late sends as much as the line carries in its first round trip, of which switches drop what is beyond its part;
/// that goes again at the rate that it has by then.
#[test]
fn what_switches_dropped_of_a_late_start_is_sent_again_at_its_rate() {
    let mut world = world("sperc:one_rtt=1", RATES);
    prepare(&mut world);
    (1..SENDERS).for_each(|from| send(&mut world, from));
    assert_eq!(pass(&mut world, Picos::micros(1_000)), 0);
    assert_eq!(world.net.network().totals().lost().program, 0);
    for from in 1..SENDERS {
        assert!((4.75..4.85).contains(&gbps(&world, from)), "{}", gbps(&world, from));
    }
    send(&mut world, SENDERS);
    pass(&mut world, Picos::micros(300));
    for from in 1..=SENDERS {
        assert!((3.15..3.25).contains(&gbps(&world, from)), "{}", gbps(&world, from));
    }
    let totals = world.net.network().totals();
    let again = world.hosts[SENDERS].engine.counters().1.retx_speculative;
    // Eight packets are a bandwidth-delay product, and three its part; none had an epoch that nobody knew.
    assert!((3..=6).contains(&totals.lost().program), "{totals:?}");
    assert_eq!((again, totals.ignored), (totals.lost().program, 0));
    assert_eq!(pass(&mut world, Picos::micros(20_000)), 2 * SENDERS);
    (1..=SENDERS).for_each(|from| check(&world, from));
}

/// A process that dies sends no leaving packet: its part is the others' when its links have not heard of it for two sweeps.
#[test]
fn what_a_vanished_flow_had_is_given_to_the_others() {
    let forever = Switches::Rates { forget: Span::ZERO };
    for (does, finally) in [(RATES, 4.8), (forever, 3.2)] {
        let mut world = world("sperc", does);
        prepare(&mut world);
        (1..=SENDERS).for_each(|from| send(&mut world, from));
        pass(&mut world, Picos::micros(1_000));
        assert!((3.15..3.25).contains(&gbps(&world, 1)), "{}", gbps(&world, 1));
        world.crash(SENDERS);
        pass(&mut world, Picos::from_span(RTT * 64 * 2) + Picos::micros(200));
        let now = gbps(&world, 1);
        assert!((now - finally).abs() < 0.05, "{now} for {finally}");
    }
}
