//! HPCC over the emulation: what switches write into real packets comes back to their senders.

use squall_fabric::Picos;
use squall_fabric::base::{Rate, Span};
use squall_fabric::cc::{Network, PathsConfig, SenderConfig};
use squall_fabric::engine::{
    Action, Buf, Config, Level, MatchSpace, Operation, Options, RecvMode, RecvOp, Visibility,
};
use squall_fabric::live::Emulation;
use squall_fabric::model::NetworkConfig;
use squall_fabric::reliability::{self, NOMINAL_OVERHEAD};
use squall_fabric::topology::Topology;

use crate::world::{BEGIN, World, configured};

/// Of each message: many bandwidth-delay products.
const LEN: u64 = 4_000_000;
/// Hosts that send to the first one.
const SENDERS: usize = 3;

/// Two leaves of two hosts of 10 Gb/s, a spine between them, and queues of 4 MB.
fn world(cc: &str, telemetry: bool) -> World {
    let rate = Rate::gbps(10);
    let topology = Topology::leaf_spine(2, 1, 2, rate, rate, Picos::micros(1), Picos::ZERO);
    let mut config = NetworkConfig::new(4_000_000, false, 1);
    config.options.telemetry = telemetry;
    let net = Emulation::new(topology, config, NOMINAL_OVERHEAD).expect("small");
    let known = Network::new(rate, Span::micros(25), 4096 + NOMINAL_OVERHEAD, false);
    let cc = cc.to_owned();
    World::new(net, 1, move |seed, port| {
        let sender = SenderConfig::by_name(&cc, &known).expect("a listed name");
        let paths = PathsConfig::by_name("single", 1).expect("a listed name");
        let pdc = reliability::Config::new(4096, sender, paths, seed).reciprocal(&known);
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

fn incast(cc: &str, telemetry: bool) -> Came {
    let mut world = world(cc, telemetry);
    let byte = |from: usize, at: u64| (at * 31 + from as u64 * 7) as u8;
    world.hosts[0].memory.alloc(SENDERS as u64 * LEN);
    for from in 1..=SENDERS {
        let host = &mut world.hosts[from];
        let bytes: Vec<u8> = (0..LEN).map(|at| byte(from, at)).collect();
        host.memory.put(&bytes);
        let source = Some(world.peer(0, from));
        let now = world.time();
        let recv = RecvOp {
            source,
            space: MatchSpace::Tagged,
            tag: 1,
            ignore: 0,
            buf: Buf::new((from as u64 - 1) * LEN, LEN),
            context: from as u64,
            visibility: Visibility::Entry,
            mode: RecvMode::Post,
        };
        let host = &mut world.hosts[0];
        host.engine.receive(now, &mut host.memory, recv).expect("room for operations");
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
    for from in 1..=SENDERS {
        let base = (from as u64 - 1) * LEN;
        let came = world.hosts[0].memory.get(base, LEN);
        assert!((0..LEN).zip(came).all(|(at, &is)| is == byte(from, at)), "{cc}: from {from}");
    }
    let malformed = world.hosts.iter().map(|host| host.engine.counters().0.rx_malformed).sum();
    Came { longest, without: worst, malformed, end: Picos(world.now.0 - BEGIN.0) }
}

#[test]
fn hpcc_lives_on_what_switches_write() {
    let told = incast("hpcc", true);
    let fixed = incast("none", true);
    assert_eq!((told.without, told.malformed, fixed.malformed), (0, 0, 0));
    // 12 MB at 10 Gb/s are 9.6 ms; HPCC takes 95 % of the line, and the slowest sends alone for a while.
    assert!(told.end < Picos::micros(12_500), "{told:?}");
    // A bandwidth-delay product is 31 KB.
    assert!(told.longest < 40_000 && fixed.longest > 400_000, "{told:?}, {fixed:?}");
    let decorated = incast("hpcc:vai=1,sf=30", true);
    assert!(decorated.without == 0 && decorated.longest < 60_000, "{decorated:?}");
}

/// Where they write nothing all arrives all the same, and each sender says that it makes do.
#[test]
fn without_telemetry_it_says_so_and_goes_on() {
    let untold = incast("hpcc", false);
    assert_eq!((untold.without, untold.malformed), (SENDERS, 0), "{untold:?}");
}
