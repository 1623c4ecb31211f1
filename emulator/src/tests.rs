//! Tests of the emulation in virtual time.

use std::net::SocketAddr;
use std::sync::Arc;

use squall_net::emulator::frame::{PacketFrame, Wait, WaitReason};

use super::coordinator::{Activity, Coordinator};
use super::{Delivery, Emulation, Route};
use squall_base::{Rate, Rng, Span, Time};
use squall_cc::{SpercLinkParameters, WindowTableParameters};
use squall_netsim::Picos;
use squall_netsim::model::{
    Failure, IncomingPacket, Lossless, NetworkConfig, Place, SwitchProgram, Verdict,
};
use squall_netsim::topology::Topology;
use squall_reliability::emit_rates;
use squall_research::deflection::DeflectionParameters;
use squall_research::rates::RateParameters;

const OVERHEAD: u32 = 48;

fn network(queue: u64, trimming: bool) -> NetworkConfig {
    let mut config = NetworkConfig::new(queue, trimming, 7);
    config.queue = queue;
    config.trim = trimming.then_some(64 + OVERHEAD);
    (config.ecn_min, config.ecn_max) = (queue / 5, queue * 4 / 5);
    config
}

/// Builds 2 leaves, 2 spines and 2 hosts per leaf, with links of 1 Gb/s and 10 us.
fn leaf_spine(queue: u64, trimming: bool) -> Emulation {
    let rate = Rate::gbps(1);
    let topology = Topology::leaf_spine(2, 2, 2, rate, rate, Picos::micros(10), Picos::ZERO);
    Emulation::new(topology, network(queue, trimming), OVERHEAD).unwrap()
}

fn addr(host: u32) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8 + 1], 4793))
}

fn frame(from: u32, entropy: u16, ecn: u8, control: bool) -> PacketFrame {
    PacketFrame {
        addr: SocketAddr::new(addr(from).ip(), entropy),
        entropy,
        ecn,
        dscp: 0,
        control,
        trimmed: false,
        sent: Time::ZERO,
        overflow: 0,
        endpoint: 0,
    }
}

fn route(from: u32, to: u32) -> Route {
    Route { from, to, flow: Route::flow(addr(from), addr(to)), sender: from }
}

/// A copy of a [`Delivery`].
#[derive(Clone, Debug, PartialEq)]
struct Arrived {
    at: Picos,
    host: u32,
    tag: u64,
    frame: PacketFrame,
    payload: Vec<u8>,
}

fn run(emulation: &mut Emulation, until: Picos) -> Vec<Arrived> {
    let mut arrivals = Vec::new();
    emulation.run(until, &mut |d: &Delivery<'_>| {
        let (at, host, tag, frame) = (d.at, d.host, d.tag, *d.frame);
        arrivals.push(Arrived { at, host, tag, frame, payload: d.payload.to_vec() });
    });
    arrivals
}

#[test]
fn a_packet_crosses_the_network_in_the_time_it_takes() {
    let mut net = leaf_spine(100_000, true);
    let payload: Vec<u8> = (0..952u32).map(|i| (i * 3) as u8).collect();
    net.send(Picos::micros(5), route(0, 3), frame(0, 50_000, 2, false), &payload, 42);
    assert_eq!(net.network().next_event(), Some(Picos::micros(5)));
    let arrivals = run(&mut net, Picos::micros(1000));
    // Four links of 10 us; 952 + 48 bytes take 8 us at 1 Gb/s on each: 5 + 4 * 18.
    let expected = Arrived {
        at: Picos::micros(77),
        host: 3,
        tag: 42,
        frame: frame(0, 50_000, 2, false),
        payload,
    };
    assert_eq!(arrivals, [expected]);
    assert_eq!((net.network().in_flight(), net.network().next_event()), (0, None));
    // The send time has passed already, so the packet enters now.
    net.send(Picos::ZERO, route(0, 1), frame(0, 1, 0, true), &[1], 0);
    let arrivals = run(&mut net, Picos::micros(2000));
    // Two links of 10 us and 49 bytes: 392 ns.
    assert_eq!(arrivals[0].at, Picos::nanos(1_000_000 + 2 * 10_392));
}

#[test]
fn an_incast_is_marked_and_trimmed_and_control_goes_first() {
    // Three hosts send 40 packets each to host 3 at once; its port holds 20.
    let mut net = leaf_spine(20_000, true);
    let payload = [9; 952];
    for n in 0..40 {
        for from in 0..3 {
            // Every other packet is marked as not ECN-capable.
            let ecn = if n % 2 == 0 { 2 } else { 0 };
            net.send(
                Picos::ZERO,
                route(from, 3),
                frame(from, 50_000 + n, ecn, false),
                &payload,
                n.into(),
            );
        }
    }
    net.send(Picos::micros(200), route(2, 3), frame(2, 7, 0, true), b"now", 1000);
    let arrivals = run(&mut net, Picos::micros(100_000));
    assert_eq!(arrivals.len(), 121, "nothing is lost where switches trim");
    let trimmed: Vec<_> = arrivals.iter().filter(|a| a.frame.trimmed).collect();
    assert!(!trimmed.is_empty());
    for packet in &trimmed {
        assert_eq!(packet.payload, payload[..64]);
        assert_ne!(packet.frame.ecn, 3, "what was trimmed is not marked, too");
    }
    let marked = arrivals.iter().filter(|a| a.frame.ecn == 3).count();
    assert!(marked > 0 && arrivals.iter().all(|a| a.frame.ecn != 3 || a.tag % 2 == 0));
    assert_eq!(net.network().totals().lost().total(), 0);
    // Host 2's own card queues 40 packets of 8 us; the control packet passes them: at most one
    // packet before it on each of two links.
    let control = arrivals.iter().find(|a| a.tag == 1000).unwrap();
    assert!(control.at < Picos::micros(200 + 2 * 10 + 2 * 9), "{}", control.at);
}

#[test]
fn without_trimming_what_does_not_fit_is_dropped_and_everything_is_accounted_for() {
    let mut rng = Rng::new(3);
    let mut net = leaf_spine(20_000, false);
    let mut sent = 0;
    let mut arrived = 0;
    for step in 0..200u64 {
        for _ in 0..rng.below(24) {
            // More is sent to host 3 than its link carries.
            let (from, to) = (rng.below(4), rng.below(8).min(3));
            let payload = vec![from as u8; rng.below(1500) as usize];
            let at = Picos::micros(step * 50 + u64::from(rng.below(50)));
            net.send(
                at,
                route(from, to),
                frame(from, rng.below(60_000) as u16, 2, false),
                &payload,
                0,
            );
            sent += 1;
        }
        arrived += run(&mut net, Picos::micros((step + 1) * 50)).len() as u64;
        let so_far =
            arrived + net.network().totals().lost().total() + net.network().in_flight() as u64;
        assert_eq!(so_far, sent, "at step {step}");
    }
    arrived += run(&mut net, Picos::micros(1_000_000)).len() as u64;
    assert_eq!(
        (net.network().in_flight(), arrived + net.network().totals().lost().total()),
        (0, sent)
    );
    assert!(net.network().totals().lost().queue_full > 0 && arrived > sent / 2);
}

#[test]
fn failures_lose_what_is_under_way_and_routing_goes_round_them() {
    let mut config = network(100_000, true);
    config.reroute = Picos::micros(500);
    let rate = Rate::gbps(1);
    let topology = Topology::leaf_spine(2, 2, 2, rate, rate, Picos::micros(10), Picos::ZERO);
    let mut net = Emulation::new(topology, config, OVERHEAD).unwrap();
    let burst = |net: &mut Emulation, at: u64| {
        for n in 0..64 {
            net.send(Picos::micros(at), route(0, 2), frame(0, n * 997, 2, false), &[0; 100], 0);
        }
    };
    burst(&mut net, 0);
    assert_eq!(run(&mut net, Picos::micros(1000)).len(), 64);
    // Leaf 0 to spine 0 is link 4.
    net.fail(Picos::micros(1000), Failure::LinkDown(4));
    burst(&mut net, 1000);
    let arrivals = run(&mut net, Picos::micros(1400)).len();
    assert!((10..54).contains(&arrivals), "about half goes by spine 0 and is lost: {arrivals}");
    assert_eq!(net.network().totals().lost().down, 64 - arrivals as u64);
    // From 1500 us on all packets take spine 1.
    run(&mut net, Picos::micros(1600));
    burst(&mut net, 1600);
    assert_eq!(run(&mut net, Picos::micros(3000)).len(), 64);
    // Routing does not notice a black hole on the other route.
    net.fail(Picos::micros(3000), Failure::BlackHole(5));
    burst(&mut net, 3000);
    assert_eq!(run(&mut net, Picos::micros(5000)).len(), 0);
    assert_eq!(net.network().totals().lost().black_hole, 64);
    // After the repair, both routes are used again.
    net.fail(Picos::micros(5000), Failure::LinkUp(4));
    net.fail(Picos::micros(5000), Failure::LinkUp(5));
    run(&mut net, Picos::micros(6000));
    burst(&mut net, 6000);
    assert_eq!(run(&mut net, Picos::micros(9000)).len(), 64);
    let packets = |port| net.network().switches().port(port).counters().packets;
    assert!(packets(8) > 64 && packets(10) > 128, "{} {}", packets(8), packets(10));
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let history = || {
        let mut rng = Rng::new(5);
        let mut net = leaf_spine(20_000, true);
        for n in 0..500 {
            let (from, to) = (rng.below(4), rng.below(4));
            let at = Picos::micros(rng.below(500).into());
            let payload = vec![0; rng.below(1500) as usize];
            net.send(
                at,
                route(from, to),
                frame(from, rng.below(999) as u16, 2, false),
                &payload,
                n,
            );
        }
        run(&mut net, Picos::micros(100_000))
    };
    assert_eq!(history(), history());
}

/// A switch program that also sends copies of host 3's packets to host 2.
#[derive(Debug)]
struct Both;

impl SwitchProgram for Both {
    fn ingress(&mut self, place: &Place<'_>, incoming: &mut IncomingPacket<'_>) -> Verdict {
        if place.ports_to(2) == place.ports_to(3) || incoming.packet.header.dst != 3 {
            return Verdict::Forward(incoming.route);
        }
        incoming.copies.extend([2, 3].iter().flat_map(|&host| place.ports_to(host)));
        Verdict::Replicate
    }
}

#[test]
fn a_copy_that_a_switch_makes_has_the_bytes_of_the_packet() {
    let mut net = leaf_spine(100_000, true);
    net.program(|_| Some(Box::new(Both)));
    for n in 0..20u16 {
        net.send(Picos::ZERO, route(0, 3), frame(0, n, 2, false), &n.to_be_bytes(), n.into());
    }
    let mut arrivals = run(&mut net, Picos::micros(10_000));
    arrivals.sort_by_key(|arrived| (arrived.host, arrived.tag));
    let expected: Vec<_> =
        [2, 3].iter().flat_map(|&host| (0..20).map(move |n| (host, n))).collect();
    assert_eq!(arrivals.iter().map(|a| (a.host, a.tag)).collect::<Vec<_>>(), expected);
    assert!(arrivals.iter().all(|a| a.payload == (a.tag as u16).to_be_bytes()));
    assert_eq!((net.network().totals().copied, net.network().in_flight()), (20, 0));
}

/// Returns the UDP payload of a packet of a message, as endpoints send it.
fn part(message_id: u16, som: bool, eom: bool) -> Vec<u8> {
    use squall_base::Psn;
    use squall_wire::{Dest, Extension, Mode, NextHeader, Opcode, Request, StdBody, StdRequest};
    let pds = Request {
        mode: Mode::Rud,
        next: NextHeader::RequestStd,
        retx: false,
        ack_request: false,
        clear_psn_offset: 0,
        psn: Psn(1),
        spdcid: 9,
        dest: Dest::Pdc(3),
        ccc: None,
    };
    let message_offset = if eom { 1800 } else { 900 };
    let next = StdBody::Next { payload_length: 900, message_offset };
    let body = if som { StdBody::First { header_data: 0 } } else { next };
    let ses = StdRequest {
        opcode: Opcode::TaggedSend,
        delivery_complete: false,
        initiator_error: false,
        relative: false,
        header_data_present: false,
        eom,
        som,
        message_id,
        ri_generation: 0,
        job_id: 7,
        pid_on_fep: 0,
        resource_index: 0,
        buffer_offset: 0,
        initiator: 0,
        match_bits: 0,
        body,
        request_length: 2700,
        extension: Extension::None,
    };
    let mut packet = vec![0; 1100];
    let n = pds.emit(&mut packet);
    let n = n + ses.emit(&mut packet[n..]);
    packet.truncate(n + 900);
    packet
}

/// Switches deflect messages of endpoints, whose packets identify their message. Each message
/// arrives in order.
#[test]
fn messages_of_endpoints_are_deflected_in_order() {
    let mut config = network(200_000, false);
    config.lossless = Some(Lossless { xoff: 100_000, xon: 90_000, buffer: None });
    let parameters = DeflectionParameters {
        threshold: 5_000,
        tokens: 4,
        entries: 8,
        short: 8192,
        forget: Picos::micros(1_000_000),
        seed: 1,
    };
    config.add_feature(Arc::new(parameters)).expect("few counters");
    let rate = Rate::gbps(1);
    let topology = Topology::leaf_spine(2, 2, 4, rate, rate, Picos::micros(10), Picos::ZERO);
    let mut net = Emulation::new(topology, config, OVERHEAD).unwrap();
    for message in 0..40u16 {
        for from in 0..4u16 {
            for (place, (som, eom)) in
                [(true, false), (false, false), (false, true)].iter().enumerate()
            {
                let payload = part(message * 4 + from, *som, *eom);
                let tag = u64::from(message * 4 + from) * 3 + place as u64;
                // All packets hash to one uplink.
                let route = Route { flow: 1, ..route(from.into(), 4 + u32::from(from)) };
                net.send(Picos::ZERO, route, frame(from.into(), 5, 2, false), &payload, tag);
            }
        }
    }
    let arrivals = run(&mut net, Picos::micros(100_000));
    let mut next = vec![0; 160];
    let [packets, messages, ..] = net.network().totals().features;
    for arrived in &arrivals {
        let (message, place) = ((arrived.tag / 3) as usize, arrived.tag % 3);
        assert_eq!(next[message], place, "message {message}");
        next[message] += 1;
    }
    assert_eq!(arrivals.len(), 480);
    assert!(messages > 20 && packets == 3 * messages, "{packets} packets, {messages} messages");
}

#[test]
fn telemetry_is_in_what_arrives() {
    let mut config = network(20_000, true);
    config.options.telemetry = true;
    let rate = Rate::gbps(1);
    let topology = Topology::leaf_spine(2, 2, 2, rate, rate, Picos::micros(10), Picos::ZERO);
    let mut net = Emulation::new(topology, config, OVERHEAD).unwrap();
    for n in 0..40 {
        for from in 0..3 {
            net.send(Picos::ZERO, route(from, 3), frame(from, n, 2, false), &[9; 952], 0);
        }
    }
    assert_eq!(run(&mut net, Picos::micros(100_000)).len(), 120);
    // Packets of hosts 0 and 1 cross three switches, those of host 2 one.
    let arrivals = net.network().totals().telemetry;
    assert_eq!((arrivals.packets, arrivals.records), (120, 80 * 3 + 40));
    assert!((10_000..=20_000).contains(&arrivals.longest), "{arrivals:?}");
}

/// Returns a rate packet of flow `flow`.
fn rate_packet(flow: u32) -> Vec<u8> {
    let mut bytes = vec![0; squall_wire::RatePacket::MAX_LEN];
    let packet =
        squall_cc::RatePacket { flow, path: 3, serial: 9, ..squall_cc::RatePacket::default() };
    let len = emit_rates(&packet, 0x1234_12b9, &mut bytes);
    bytes.truncate(len);
    bytes
}

fn rated(payload: &[u8]) -> Option<(u32, usize)> {
    let Ok(squall_wire::Packet::Rates(packet)) = squall_wire::parse(payload) else { return None };
    assert_eq!((packet.head.initiator, packet.head.path), (0x1234_12b9, 3));
    Some((packet.head.flow, packet.entries().count()))
}

/// Three hosts send to one, and control queues are full of acknowledgements. Rate packets pass all
/// others, and none is lost. A truncated rate packet arrives unchanged.
#[test]
fn rate_packets_pass_full_queues_and_bring_what_links_wrote() {
    let span = |us| Span::micros(us);
    let mut config = network(20_000, false);
    config.control_queue = 2_000;
    let rates = RateParameters {
        capacity: RateParameters::CAPACITY,
        link: SpercLinkParameters { round: span(400), forget: span(10_000) },
        windows: WindowTableParameters { epoch: span(200), mtu: 1000, most: 25, ahead: Span::ZERO },
    };
    config.add_feature(Arc::new(rates)).expect("few counters");
    let rate = Rate::gbps(1);
    let topology = Topology::leaf_spine(2, 2, 2, rate, rate, Picos::micros(10), Picos::ZERO);
    let mut net = Emulation::new(topology, config, OVERHEAD).unwrap();
    let cut = &rate_packet(7)[..20];
    for n in 0..40 {
        for from in 0..3 {
            net.send(Picos::ZERO, route(from, 3), frame(from, n, 2, false), &[9; 952], 0);
            net.send(Picos::ZERO, route(from, 3), frame(from, n, 0, true), &[9; 952], 1);
            let asks = rate_packet(from << 8 | u32::from(n));
            net.send(Picos::ZERO, route(from, 3), frame(from, n, 0, true), &asks, 2);
        }
    }
    net.send(Picos::ZERO, route(2, 3), frame(2, 0, 0, true), cut, 3);
    let arrived = run(&mut net, Picos::micros(100_000));
    let of = |tag: u64| arrived.iter().filter(move |packet| packet.tag == tag);
    assert!(of(0).count() < 120 && of(1).count() < 120);
    let mut flows: Vec<(u32, usize)> = of(2).filter_map(|p| rated(&p.payload)).collect();
    flows.sort_unstable();
    // Packets of hosts 0 and 1 cross their own link and three more, those of host 2 its own and
    // one.
    let links = |from| if from < 2 { 4 } else { 2 };
    let expected = (0..3).flat_map(|from| (0..40).map(move |n| (from << 8 | n, links(from))));
    assert_eq!(flows, expected.collect::<Vec<_>>());
    let last = |tag: u64| of(tag).map(|packet| packet.at).max();
    assert!(last(2) < last(1) && last(1) < last(0));
    assert!(of(3).all(|packet| packet.payload == cut));
    assert_eq!(net.network().totals().telemetry.rated, 120);
}

/// In a network that computes no rates, switches do not change rate packets.
#[test]
fn rate_packets_pass_unwritten_where_no_switch_computes_rates() {
    let mut net = leaf_spine(20_000, true);
    net.send(Picos::ZERO, route(0, 3), frame(0, 1, 0, true), &rate_packet(5), 0);
    let arrived = run(&mut net, Picos::micros(1_000));
    assert_eq!(arrived[0].payload, rate_packet(5));
    assert_eq!(net.network().totals().telemetry.rated, 0);
}

#[test]
fn a_process_whose_bound_rose_while_it_computed_goes_on_at_its_bound() {
    let mut coordinator = Coordinator::new(Time(1), &leaf_spine(20_000, true));
    let none = Span::ZERO;
    let wait = |now, until, reason| Wait { now, until, reason, computed: none, overhead: none };
    let number = coordinator.add();
    coordinator.note_wait(number, wait(Time(1), Time(1), WaitReason::Sync));
    coordinator.start();
    let begin = Time(1);
    let (woken, _) = coordinator.wake(None, None, usize::MAX);
    assert_eq!(woken.len(), 1);
    // It computes for 20 ms. Then its transport has to serve a timer of the first microsecond, for which
    // the process waits first.
    coordinator.raise_bound(number, begin + Span::millis(15), false);
    assert_eq!(coordinator.bound(), begin + Span::millis(15));
    coordinator.note_wait(number, wait(begin, begin + Span::micros(1), WaitReason::Busy));
    assert_eq!(coordinator.bound(), begin + Span::millis(15));
    let (woken, _) = coordinator.wake(None, None, usize::MAX);
    assert_eq!(woken[0].1.now, begin + Span::millis(15));
    let running = Activity::Running(begin + Span::millis(15));
    assert_eq!(coordinator.processes[number as usize].activity, running);
}
