//! Tests of ports and networks without hosts.

use super::{
    Arrival, Class, Departure, Drop, EnqueueOutcome, Failure, Lossless, Network, NetworkConfig,
    PacketHeader, PassOutcome, Port, PortConfig, Queues, Share, Step, Switches, Switching,
};
use crate::Picos;
use crate::facts::base_rtt;
use crate::topology::{FatTree, Tier, Topology};
use squall_base::{Rate, Rng};

const MTU: u32 = 4096;

/// Returns a port at 100 Gb/s (80 ps per byte) for ten packets.
fn port() -> PortConfig {
    PortConfig {
        queue: 10 * u64::from(MTU),
        control_queue: 640,
        ecn_min: 2 * u64::from(MTU),
        ecn_max: 8 * u64::from(MTU),
        trim: Some(64),
        last_hop: true,
        ..PortConfig::of_host(Rate::gbps(100))
    }
}

fn data() -> PacketHeader {
    PacketHeader { dst: 1, bytes: MTU, ..PacketHeader::default() }
}

fn ack() -> PacketHeader {
    PacketHeader { dst: 1, bytes: 64, class: Class::Control, ..PacketHeader::default() }
}

#[test]
fn control_goes_first_and_the_wire_takes_its_time() {
    let mut queues = Queues::default();
    let mut port = Port::new(port());
    let mut rng = Rng::new(1);
    let now = Picos(1_000);
    for item in 0..2 {
        assert_eq!(port.enqueue(&mut queues, now, item, &mut data(), 0), EnqueueOutcome::Queued);
    }
    assert_eq!(port.enqueue(&mut queues, now, 9, &mut ack(), 0), EnqueueOutcome::Queued);
    let first = port.depart(&mut queues, now, &mut rng).unwrap();
    // The acknowledgement takes 64 * 80 ps.
    assert_eq!((first.item, first.data, first.free_at), (9, false, Picos(6_120)));
    assert_eq!(port.depart(&mut queues, Picos(6_119), &mut rng), None);
    let second = port.depart(&mut queues, Picos(6_120), &mut rng).unwrap();
    // The data packet takes 4096 * 80 ps.
    assert_eq!((second.item, second.free_at), (0, Picos(6_120 + 327_680)));
    // The packet that is being sent counts until it is gone.
    assert_eq!(port.queued(Picos(6_121)), 2 * u64::from(MTU));
    assert_eq!(port.queued(second.free_at), u64::from(MTU));
}

#[test]
fn an_idle_port_passes_what_enqueue_and_depart_would() {
    let mut queues = Queues::default();
    let (mut one, mut other) = (Port::new(port()), Port::new(port()));
    let mut rng = Rng::new(1);
    for (now, mut header) in [(0, data()), (327_680, ack()), (400_000, data())] {
        let now = Picos(now);
        let passed = one.pass(now, 7, &header, 3);
        other.enqueue(&mut queues, now, 7, &mut header, 3);
        assert_eq!(passed, other.depart(&mut queues, now, &mut rng));
    }
    // A busy port passes nothing.
    assert_eq!(one.pass(Picos(400_001), 8, &data(), 3), None);
    assert_eq!(one.counters().packets, 3);
}

/// Checks RED: a packet that leaves less than two packets behind is never marked, one that leaves
/// eight or more always is, and the probability is linear in between.
#[test]
fn marks_begin_and_end_where_they_should() {
    let share = |waiting: u32| {
        let mut rng = Rng::new(7);
        let mut marked = 0;
        for _ in 0..2_000 {
            let mut queues = Queues::default();
            let mut port = Port::new(port());
            for item in 0..=waiting {
                port.enqueue(&mut queues, Picos::ZERO, item, &mut data(), 0);
            }
            marked += u32::from(port.depart(&mut queues, Picos::ZERO, &mut rng).unwrap().mark);
        }
        f64::from(marked) / 2_000.0
    };
    assert_eq!((share(0), share(1), share(2)), (0.0, 0.0, 0.0));
    // The probabilities are (5 - 2) / (8 - 2) = 1/2, (3 - 2) / 6 and (7 - 2) / 6.
    for (waiting, expected) in [(5, 0.5), (3, 1.0 / 6.0), (7, 5.0 / 6.0)] {
        let share = share(waiting);
        assert!((share - expected).abs() < 0.05, "{waiting}: {share}");
    }
    assert_eq!((share(8), share(9)), (1.0, 1.0));
}

#[test]
fn a_full_queue_trims_or_drops() {
    let mut queues = Queues::default();
    let mut trims = Port::new(port());
    for item in 0..10 {
        assert_eq!(
            trims.enqueue(&mut queues, Picos::ZERO, item, &mut data(), 0),
            EnqueueOutcome::Queued
        );
    }
    let mut header = data();
    assert_eq!(
        trims.enqueue(&mut queues, Picos::ZERO, 10, &mut header, 0),
        EnqueueOutcome::Trimmed
    );
    let expected =
        PacketHeader { bytes: 64, class: Class::Control, trimmed: true, last_hop: true, ..data() };
    assert_eq!(header, expected);
    // The control queue holds ten packets of 64 bytes.
    for item in 11..20 {
        assert_eq!(
            trims.enqueue(&mut queues, Picos::ZERO, item, &mut data(), 0),
            EnqueueOutcome::Trimmed
        );
    }
    assert_eq!(
        trims.enqueue(&mut queues, Picos::ZERO, 20, &mut ack(), 0),
        EnqueueOutcome::Dropped(Drop::ControlFull)
    );
    let first = trims.depart(&mut queues, Picos::ZERO, &mut Rng::new(1)).unwrap();
    assert_eq!((first.item, first.bytes), (10, 64));

    let mut drops = Port::new(PortConfig { trim: None, ..port() });
    for item in 0..10 {
        drops.enqueue(&mut queues, Picos::ZERO, item, &mut data(), 0);
    }
    assert_eq!(
        drops.enqueue(&mut queues, Picos::ZERO, 10, &mut data(), 0),
        EnqueueOutcome::Dropped(Drop::QueueFull)
    );
    let counters = drops.counters();
    assert_eq!((counters.dropped, counters.trimmed, counters.max_queue), (1, 0, 40_960));
}

#[test]
fn a_paused_port_sends_control_only() {
    let mut queues = Queues::default();
    let mut port = Port::new(port());
    port.pause(0, true);
    port.enqueue(&mut queues, Picos::ZERO, 1, &mut data(), 0);
    assert!(
        !port.sendable(&queues)
            && port.depart(&mut queues, Picos::ZERO, &mut Rng::new(1)).is_none()
    );
    assert_eq!(port.pass(Picos::ZERO, 3, &ack(), 0), None, "the data waits");
    port.enqueue(&mut queues, Picos::ZERO, 2, &mut ack(), 0);
    let out = port.depart(&mut queues, Picos::ZERO, &mut Rng::new(1)).unwrap();
    assert_eq!(out.item, 2);
    port.pause(0, false);
    assert_eq!(port.depart(&mut queues, out.free_at, &mut Rng::new(1)).unwrap().item, 1);
    assert_eq!(port.counters().pauses, 1);
}

#[test]
fn times_fit_rates_that_do_not_divide() {
    // A byte takes 8 / 3 ns: 4096 * 8 / 3e9 s = 10922666.67 ps, rounded up.
    let port: Port = Port::new(PortConfig { rate: Rate(3_000_000_000), ..port() });
    let time = port.transmit_time(MTU).0;
    assert!((10_922_667..=10_922_668).contains(&time), "{time}");
    let slow: Port = Port::new(PortConfig { rate: Rate(1_000_000), ..self::port() });
    assert_eq!(slow.transmit_time(65_536).0, 65_536 * 8_000_000);
}

#[test]
fn a_degraded_port_keeps_its_proportions() {
    let mut config = port();
    config.degrade(Rate::gbps(25));
    assert_eq!((config.queue, config.ecn_min, config.ecn_max), (10_240, 2_048, 8_192));
    let mut boundless = PortConfig { queue: u64::MAX, ..port() };
    boundless.degrade(Rate::gbps(25));
    assert_eq!(boundless.queue, u64::MAX);
}

/// Returns a network of four leaves of two hosts and `spines` spines, with 1 us per link and 400 ns
/// per switch.
fn network(spines: u32, change: impl FnOnce(&mut NetworkConfig)) -> Switches<u32> {
    let rate = Rate::gbps(100);
    let topology =
        Topology::leaf_spine(4, spines, 2, rate, rate, Picos::micros(1), Picos::nanos(400));
    let mut config = NetworkConfig::new(100_000, true, 5);
    change(&mut config);
    Switches::new(topology, config, Share::WHOLE)
}

#[test]
fn a_packet_crosses_the_network() {
    let mut network = network(2, |_| ());
    let mut header = PacketHeader { dst: 7, ..data() };
    let port = network.host_port(0);
    assert_eq!(port, 0);
    network.enqueue(Picos::ZERO, port, 5, &mut header);
    let mut out: Departure<u32> = network.depart(Picos::ZERO, port).unwrap();
    // The packet takes 327.68 ns on the wire, 1 us of link and 0.4 us of switch.
    assert_eq!(out.arrives, Picos(1_727_680));
    let (mut at, mut hops) = (port, 0);
    let host = loop {
        match network.land(out.arrives, at, &header) {
            Arrival::Host(host) => break host,
            Arrival::Switch(switch) => {
                let PassOutcome::Left(port, left) =
                    network.pass(out.arrives, (switch, None), at, 5, &mut header)
                else {
                    panic!("an empty network");
                };
                (at, out, hops) = (port, left, hops + 1);
            }
            Arrival::Lost(why) => panic!("{why:?}"),
        }
    };
    // The route has four links and three switches.
    assert_eq!((host, hops, out.arrives), (7, 3, Picos(4 * 1_327_680 + 3 * 400_000)));
}

/// Checks that the entropy chooses among four spines: all are used alike, the same entropy always
/// takes the same route, and two flows of one entropy may take different routes.
#[test]
fn the_entropy_spreads_packets_over_equal_ways() {
    let network = network(4, |_| ());
    let mut count = [0u32; 4];
    let route = |flow: u32, entropy: u32| {
        network
            .known_route(0, &PacketHeader { dst: 7, flow, entropy, ..data() })
            .expect("there is a route")
    };
    for entropy in 0..40_000 {
        let port = route(3, entropy);
        assert_eq!(port, route(3, entropy));
        count[(port as usize - 16) / 2] += 1;
    }
    // The expected count is 10000 each; the standard deviation is 87.
    assert!(count.iter().all(|&n| n.abs_diff(10_000) < 400), "{count:?}");
    assert!((0..20).any(|flow| route(flow, 1) != route(0, 1)));
}

#[test]
fn adaptive_switches_avoid_the_longer_queue() {
    let mut network = network(2, |config| config.options.adaptive = true);
    // Port 16 leads to spine 0; the loop fills its queue.
    for item in 0..20 {
        network.enqueue(Picos::ZERO, 16, item, &mut data());
    }
    let mut count = [0; 2];
    for item in 0..100 {
        let mut header = PacketHeader { dst: 7, entropy: item, ..data() };
        let (port, _) = network.forward(Picos::ZERO, 0, 0, item, &mut header);
        count[usize::from(port == 18)] += 1;
    }
    assert!(count[1] >= 50, "{count:?}");
}

#[test]
fn failures_lose_packets_and_routing_learns() {
    let mut network = network(2, |config| config.reroute = Picos::micros(10));
    let header = PacketHeader { dst: 7, ..data() };
    let lost = |network: &mut Switches<u32>, now, port| {
        matches!(network.land(now, port, &header), Arrival::Lost(_))
    };
    assert!(!lost(&mut network, Picos::micros(5), 16));
    network.fail(Picos::micros(5), Failure::LinkDown(8));
    assert_eq!(network.land(Picos::micros(5), 16, &header), Arrival::Lost(Drop::Down));
    assert_eq!(network.land(Picos::micros(5), 17, &header), Arrival::Lost(Drop::Down));
    // Until routing learns of the failure, half of the entropies still take the link.
    let used = |network: &Switches<u32>| {
        (0..64)
            .filter(|&entropy| {
                network.known_route(0, &PacketHeader { entropy, ..header }) == Some(16)
            })
            .count()
    };
    assert!(used(&network) > 10);
    assert_eq!(network.poll_reroute(), Some(Picos::micros(15)));
    network.reroute();
    assert_eq!((used(&network), network.poll_reroute()), (0, None));
    network.fail(Picos::micros(20), Failure::LinkUp(8));
    network.reroute();
    assert!(used(&network) > 10 && !lost(&mut network, Picos::micros(30), 16));
    // Packets that were on the link when it failed stay lost, although it works again.
    assert!(lost(&mut network, Picos::micros(6), 16));

    network.fail(Picos::micros(40), Failure::BlackHole(8));
    assert_eq!(network.poll_reroute(), None);
    assert_eq!(network.land(Picos::micros(41), 16, &header), Arrival::Lost(Drop::BlackHole));

    network.fail(Picos::micros(50), Failure::SwitchDown(5));
    network.reroute();
    // Spine 0 is a black hole, and spine 1 is down.
    assert!(network.routes().connected(0, 7));
    assert_eq!(network.known_route(0, &header), Some(16));
    network.fail(Picos::micros(60), Failure::LinkDown(7));
    network.reroute();
    assert!(!network.routes().connected(0, 7));
    let (_, verdict) = network.forward(Picos::micros(61), 3, 0, 1, &mut { header });
    assert_eq!(verdict, EnqueueOutcome::Dropped(Drop::NoRoute));
}

#[test]
fn a_lossless_switch_pauses_the_input_that_fills_it() {
    let mut network = network(1, |config| {
        config.lossless = Some(Lossless { xoff: 3 * 4096, xon: 2 * 4096, buffer: None });
    });
    let mut header = PacketHeader { dst: 1, ..data() };
    // Host 0 sends to host 1 by leaf 0; port 3 is the way down.
    for item in 0..4 {
        assert_eq!(
            network.forward(Picos::ZERO, 0, 0, item, &mut header),
            (3, EnqueueOutcome::Queued)
        );
        let pause = network.poll_pause();
        // The fourth packet exceeds the limit of three. The pause frame takes 64 * 80 ps and 1 us.
        assert_eq!(pause.is_some(), item == 3);
        if let Some(pause) = pause {
            assert_eq!((pause.port, pause.stop, pause.delay), (0, true, Picos(1_005_120)));
        }
    }
    network.pause(0, 0, true);
    assert!(network.port(0).is_paused());
    let mut now = Picos::ZERO;
    for left in (0..4).rev() {
        now = network.depart(now, 3).expect("a packet").free_at;
        // The input resumes at less than two packets.
        assert_eq!(
            network.poll_pause().map(|pause| (pause.port, pause.stop)),
            (left == 1).then_some((0, false))
        );
    }
}

#[test]
fn a_waiting_packet_is_announced_once() {
    let mut network = network(1, |_| ());
    assert_eq!(network.arm(3), None);
    for item in 0..2 {
        network.forward(Picos::ZERO, 0, 0, item, &mut PacketHeader { dst: 1, ..data() });
    }
    assert_eq!((network.arm(3), network.arm(3)), (Some(Picos::ZERO), None));
    let first = network.serve(Picos::ZERO, 3).expect("a packet");
    assert_eq!(network.arm(3), Some(first.free_at));
    assert_eq!(network.front(3), Some(1));
}

/// Sends packets of 4 KiB from hosts to the last host at time 0. Returns the times of their arrivals.
fn crossings(topology: Topology, switching: Switching, senders: &[u32]) -> Vec<Picos> {
    let mut config = NetworkConfig::new(1_000_000, false, 1);
    config.options.switching = Some(switching);
    let dst = topology.hosts - 1;
    let mut network =
        Network::new(topology, config, Picos(4096), Share::WHOLE).expect("it is small");
    for &host in senders {
        // Headers of 104 bytes.
        network.enter(Picos::ZERO, host, PacketHeader { dst, bytes: 4200, ..data() }, None);
    }
    let mut arrivals = Vec::new();
    while let Some(step) = network.step(Picos::micros(100), &mut ()) {
        let Step::Arrived { host, packet } = step else { panic!("{step:?}") };
        assert_eq!(host, dst);
        network.take(packet);
        arrivals.push(network.now());
    }
    arrivals
}

/// A link has 20 ns and a switch 300 ns. At 100 Gb/s a packet of 4200 bytes takes 336 ns, and its first 64 bytes 5.12 ns.
#[test]
fn packets_of_4_kib_are_stored_or_cut_through() {
    let rate = Rate::gbps(100);
    let (link, latency) = (Picos::nanos(20), Picos::nanos(300));
    let (stored, cut) = (Switching::StoreAndForward, Switching::CutThrough);
    // Six links and five switches.
    let fat_tree = || {
        let tier = |radix_down, radix_up| Tier {
            oversubscribed: 1,
            downlink: rate,
            radix_down,
            radix_up,
            downlink_latency: link,
            switch_latency: latency,
            bundle: 1,
            queue_up: None,
            queue_down: None,
        };
        let tiers = vec![tier(2, 2), tier(2, 2), tier(2, 0)];
        FatTree { hosts: 8, pod_hosts: 4, tiers }.build().expect("numbers that fit")
    };
    // 6 * 20 + 5 * 300 = 1620 ns; 6 * 336 = 2016 ns; 336 + 5 * 5.12 = 361.6 ns.
    assert_eq!(crossings(fat_tree(), stored, &[0]), [Picos(3_636_000)]);
    assert_eq!(crossings(fat_tree(), cut, &[0]), [Picos(1_981_600)]);
    // An acknowledgement of 64 bytes takes 1620 ns + 6 * 5.12 ns back.
    for (switching, there) in [(stored, 3_636_000), (cut, 1_981_600)] {
        let round_trip = Picos(there + 1_650_720);
        assert_eq!(fat_tree().longest_route().round_trip(rate, 4200, 64, switching), round_trip);
        assert_eq!(base_rtt(&fat_tree(), 4200, switching), round_trip);
    }
    // A packet is stored before a link that is faster than the one by which it comes, here the one of 400 Gb/s between
    // two switches, where it takes 84 ns, and its first 64 bytes 1.28 ns.
    let bell = || Topology::dumbbell(1, 1, rate, Rate::gbps(400), link, latency);
    assert_eq!(crossings(bell(), stored, &[0]), [Picos(660_000 + 336_000 + 84_000 + 336_000)]);
    assert_eq!(crossings(bell(), cut, &[0]), [Picos(660_000 + 336_000 + 1_280 + 336_000)]);
    let round_trip = Picos(660_000 + 673_280) + Picos(660_000 + 2 * 5_120 + 1_280);
    assert_eq!(base_rtt(&bell(), 4200, cut), round_trip);
    // A packet waits for the one before it on a busy link.
    let star = || Topology::star(3, rate, link, latency);
    let first = 20_000 + 300_000 + 5_120 + 336_000 + 20_000;
    assert_eq!(crossings(star(), cut, &[0, 1]), [Picos(first), Picos(first + 336_000)]);
}
