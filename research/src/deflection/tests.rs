//! Tests of the deflection of one switch by itself, and in a network.

use super::*;
use squall_base::Rate;
use squall_netsim::model::{
    Failure, Lossless, Network, NetworkConfig, Packet, PacketHeader, Share, Step, Switches,
};
use squall_netsim::topology::Topology;

const PARAMETERS: DeflectionParameters = DeflectionParameters {
    threshold: 15_000,
    tokens: 4,
    entries: 8,
    short: 8192,
    forget: Picos::micros(1_000),
    seed: 1,
};

/// The two uplinks of leaf 0; below, the links from spine 0 down to each leaf.
const UP: [u32; 2] = [12, 14];
const DOWN: [u32; 3] = [13, 17, 21];
/// The link from host 0 to leaf 0; below, that from leaf 1 to host 2.
const FROM_HOST: u32 = 0;
const TO_HOST: u32 = 5;
const LEAF_0: u32 = 0;
const LEAF_1: u32 = 1;
const SPINE_0: u32 = 3;

/// A switch of three leaves with two hosts each and two spines.
struct Bench {
    switches: Switches<u32>,
    program: DeflectionProgram,
    now: Picos,
    /// Counters: deflected packets, deflected messages, full tables.
    count: [u64; 3],
}

impl Bench {
    fn new(parameters: DeflectionParameters) -> Self {
        let rate = Rate::gbps(10);
        let topology = Topology::leaf_spine(3, 2, 2, rate, rate, Picos::micros(1), Picos::ZERO);
        let config = NetworkConfig::new(10_000_000, false, 1);
        let count = [0; 3];
        let program = DeflectionProgram::new(parameters, 0);
        Self {
            switches: Switches::new(topology, config, Share::WHOLE),
            program,
            now: Picos::ZERO,
            count,
        }
    }

    /// Lets `packets` packets of 1500 bytes wait at a port.
    fn wait(mut self, port: u32, packets: u32) -> Self {
        for item in 0..packets {
            let mut packet_header = PacketHeader { bytes: 1500, ..PacketHeader::default() };
            self.switches.enqueue(self.now, port, item, &mut packet_header);
        }
        self
    }

    /// Returns the port of a packet to host 2 that comes by `ingress` and would leave by `route`,
    /// and its header then.
    fn ask(
        &mut self,
        switch: u32,
        (ingress, route): (u32, u32),
        header: DeflectionHeader,
    ) -> (u32, After) {
        let mut packet_header = PacketHeader { dst: 2, bytes: 1500, ..PacketHeader::default() };
        let (mut options, mut copies, mut ignored) = (PacketOptions::default(), Vec::new(), 0);
        assert!(options.write(&header));
        let place = Place::new(self.now, switch, &self.switches);
        let verdict = self.program.ingress(
            &place,
            &mut IncomingPacket {
                ingress,
                route: Some(route),
                packet: Packet { header: &mut packet_header, options: &mut options },
                copies: &mut copies,
                ignored: &mut ignored,
                counters: &mut self.count,
            },
        );
        let (Verdict::Forward(Some(port)), Some(header)) = (verdict, options.read()) else {
            panic!("{verdict:?} {options:?}");
        };
        let DeflectionHeader { tokens, switches, fewest, .. } = header;
        (port, After { header, tokens, switches, fewest, lane: options.lane })
    }
}

/// Header and lane of a packet after a switch.
struct After {
    header: DeflectionHeader,
    tokens: u8,
    switches: u8,
    fewest: u8,
    lane: u8,
}

fn message(message: u64, first: bool, last: bool) -> DeflectionHeader {
    DeflectionHeader { message, first, last, tokens: 4, ..DeflectionHeader::default() }
}

#[test]
fn a_message_goes_round_a_long_queue_and_its_packets_follow() {
    let from = (FROM_HOST, UP[0]);
    let mut short = Bench::new(PARAMETERS).wait(UP[0], 10);
    let (port, after) = short.ask(LEAF_0, from, message(1, true, false));
    assert_eq!((port, after.tokens, after.lane), (UP[0], 4, 4), "15 KB are not more than 15 KB");
    assert_eq!((after.switches, after.fewest), (1, 3));

    let mut bench = Bench::new(PARAMETERS).wait(UP[0], 11);
    let (port, after) = bench.ask(LEAF_0, from, message(1, true, false));
    assert_eq!((port, after.tokens, after.lane), (UP[1], 3, 3), "upwards by the next lane");
    // A message that was not deflected at its beginning is not deflected later.
    assert_eq!(bench.ask(LEAF_0, from, message(2, false, false)).0, UP[0]);
    // A message that was deflected stays so: the table decides, not the queue.
    for (last, table) in [(false, 1), (false, 1), (true, 0)] {
        let (port, after) = bench.ask(LEAF_0, (FROM_HOST, UP[1]), message(1, false, last));
        assert_eq!((port, after.tokens, after.lane), (UP[1], 3, 3));
        assert_eq!(bench.program.table.len(), table);
    }
    assert_eq!(bench.ask(LEAF_0, from, message(1, false, false)).0, UP[0], "it is over");
    assert_eq!(bench.count, [4, 1, 0]);
    // A message of one packet needs no place in the table.
    let (port, after) = bench.ask(LEAF_0, from, message(3, true, true));
    assert_eq!((port, after.tokens, bench.program.table.len()), (UP[1], 3, 0));
}

#[test]
fn a_spine_sends_to_another_leaf_and_not_back() {
    for id in 0..20 {
        let mut bench = Bench::new(PARAMETERS).wait(DOWN[1], 11);
        // The packet comes by leaf 0's uplink; host 2 is below leaf 1.
        let (port, after) = bench.ask(SPINE_0, (UP[0], DOWN[1]), message(id, true, false));
        assert_eq!((port, after.tokens, after.lane), (DOWN[2], 3, 4), "downwards by its own lane");
    }
    // Both other leaves are possible for packets from leaf 1 itself.
    let mut bench = Bench::new(PARAMETERS).wait(DOWN[1], 11);
    let ports: Vec<u32> = (0..40)
        .map(|id| bench.ask(SPINE_0, (DOWN[1] ^ 1, DOWN[1]), message(id, true, true)).0)
        .collect();
    assert!(ports.contains(&DOWN[0]) && ports.contains(&DOWN[2]), "{ports:?}");
    // Leaf 2 is cut off, so there is no route through it.
    for link in [10, 11] {
        bench.switches.fail(Picos::ZERO, Failure::LinkDown(link));
    }
    bench.switches.reroute();
    let ports =
        (0..40).map(|id| bench.ask(SPINE_0, (DOWN[1] ^ 1, DOWN[1]), message(id, true, true)));
    assert!(ports.map(|(port, _)| port).all(|port| port == DOWN[0]));
}

#[test]
fn hosts_get_what_is_theirs_and_who_has_no_tokens_waits() {
    // The link to the receiving host is never deflected around; congestion control handles it.
    let mut bench = Bench::new(PARAMETERS).wait(TO_HOST, 50).wait(UP[0], 50);
    assert_eq!(bench.ask(LEAF_1, (17, TO_HOST), message(1, true, false)).0, TO_HOST);
    for tokens in [0, 1] {
        let header = DeflectionHeader { tokens, ..message(7, true, true) };
        let (port, after) = bench.ask(LEAF_0, (FROM_HOST, UP[0]), header);
        // The packet is on the escape lane, on which no packet is deflected.
        assert_eq!((port, after.tokens, after.lane), (UP[tokens as usize], 0, 0));
    }
    assert_eq!(PARAMETERS.tokens(8192), 4);
    assert_eq!(PARAMETERS.tokens(8193), 0, "long");
}

#[test]
fn a_full_table_deflects_no_more_until_a_message_is_over_or_forgotten() {
    let from = (FROM_HOST, UP[0]);
    let mut bench = Bench::new(DeflectionParameters { entries: 2, ..PARAMETERS }).wait(UP[0], 11);
    let ask =
        |bench: &mut Bench, id, first, last| bench.ask(LEAF_0, from, message(id, first, last)).0;
    assert_eq!([1, 2].map(|id| ask(&mut bench, id, true, false)), [UP[1]; 2]);
    assert_eq!((ask(&mut bench, 3, true, false), bench.count[TABLE_FULL]), (UP[0], 1));
    assert_eq!(ask(&mut bench, 3, false, false), UP[0], "nor does what follows it");
    assert_eq!(ask(&mut bench, 2, false, true), UP[1]);
    assert_eq!(ask(&mut bench, 4, true, false), UP[1]);
    // Messages 1 and 4 hold the table. Message 4 goes on; no more packets of message 1 arrive.
    bench.now = Picos::micros(999);
    assert_eq!(ask(&mut bench, 4, false, false), UP[1]);
    assert_eq!((ask(&mut bench, 5, true, false), bench.count[TABLE_FULL]), (UP[0], 2));
    bench.now = Picos::micros(1_001);
    assert_eq!((ask(&mut bench, 6, true, false), bench.count[TABLE_FULL]), (UP[1], 2));
    assert_eq!(
        (ask(&mut bench, 1, false, false), ask(&mut bench, 4, false, false)),
        (UP[0], UP[1])
    );
}

#[test]
fn a_message_that_comes_again_is_decided_on_again() {
    let mut bench = Bench::new(PARAMETERS).wait(UP[0], 11);
    let (from, back) = ((FROM_HOST, UP[0]), (DOWN[0], UP[1]));
    let (port, after) = bench.ask(LEAF_0, from, message(1, true, false));
    assert_eq!((port, after.tokens), (UP[1], 3));
    // A spine has sent the message back, and the other uplink is free.
    let again = DeflectionHeader { tokens: 2, ..after.header };
    let (port, after) = bench.ask(LEAF_0, back, again);
    assert_eq!((port, after.tokens, after.switches), (UP[1], 2, 2));
    let following = |tokens, last| DeflectionHeader { tokens, last, ..message(1, false, false) };
    assert_eq!(bench.ask(LEAF_0, back, following(2, true)).1.tokens, 2, "not deflected there");
    assert_eq!(bench.ask(LEAF_0, from, following(4, true)).1.tokens, 3, "deflected here");
    assert!(bench.program.table.is_empty());
}

/// Builds a network of 64 hosts, eight per leaf, oversubscribed by four, whose switches pause an
/// input that has a few packets in them.
fn network(seed: u64) -> Network {
    let rate = Rate::gbps(10);
    let topology = Topology::leaf_spine(8, 2, 8, rate, rate, Picos::micros(1), Picos::ZERO);
    let mut config = NetworkConfig::new(150_000, false, seed);
    config.lossless = Some(Lossless { xoff: 6_000, xon: 3_000, buffer: None });
    let forget = Picos::micros(1_000_000);
    let parameters = DeflectionParameters { threshold: 4_000, forget, seed, ..PARAMETERS };
    config.add_feature(Arc::new(parameters)).expect("few counters");
    Network::new(topology, config, Picos(1 << 12), Share::WHOLE).expect("small")
}

/// However full the network is, each message arrives in order, by four deflections at most, and
/// nothing is left waiting for ever: with one lane the first of these seeds ends in a deadlock.
#[test]
fn messages_stay_in_order_and_nothing_deadlocks() {
    let (mut most, mut full) = (0, 0);
    for seed in 0..6 {
        let (mut network, mut rng) = (network(seed), Rng::new(seed));
        // Message and place in it, by packet number.
        let mut sent: Vec<(usize, u32)> = Vec::new();
        let mut came: Vec<(u32, u32)> = Vec::new();
        for id in 0..6_000u64 {
            let at = Picos::nanos(rng.below(600_000).into());
            let (host, dst) = (rng.below(64), if rng.below(2) == 0 { 17 } else { rng.below(64) });
            let short = rng.below(4) > 0;
            let packets = if short { 1 + rng.below(6) } else { 30 };
            came.push((0, packets));
            for place in 0..packets {
                let packet_header = PacketHeader {
                    dst,
                    flow: rng_of(id),
                    entropy: 7,
                    bytes: 1500,
                    ..PacketHeader::default()
                };
                let (first, last) = (place == 0, place + 1 == packets);
                let bytes = u64::from(packets) * 1300;
                let mut options = PacketOptions::default();
                PARAMETERS
                    .on_send(&MessagePacket { message: id, bytes, first, last }, &mut options);
                let packet = network.enter(at, host, packet_header, Some(&options));
                assert_eq!(packet as usize, sent.len());
                sent.push((id as usize, place));
            }
        }
        while let Some(step) = network.step(Picos::micros(1_000_000), &mut ()) {
            let Step::Arrived { packet, .. } = step else { continue };
            let (id, place) = sent[packet as usize];
            assert_eq!(came[id].0, place, "packet {place} of message {id}, seed {seed}");
            came[id].0 += 1;
            let options = network.options(packet).expect("programs run");
            let header: DeflectionHeader = options.read().expect("a message");
            let given = PARAMETERS.tokens(u64::from(came[id].1) * 1300);
            assert!(header.tokens <= given && options.lane <= given);
            most = most.max(given - header.tokens);
        }
        assert!(came.iter().all(|(here, packets)| here == packets), "seed {seed}");
        assert!(network.totals().features[MESSAGES] > 500);
        full += network.totals().features[TABLE_FULL];
    }
    assert_eq!(most, PARAMETERS.tokens, "some message had all it may have");
    assert!(full > 0, "some table was full");
}

/// Returns a flow's hash.
const fn rng_of(id: u64) -> u32 {
    Rng::new(id).next_u32()
}

/// Four packets of one message over four links each, one of which passed six; two of a longer
/// message that stayed.
#[test]
fn metrics_judge_deflection_by_the_links_that_packets_passed() {
    let flow = |bytes, counters: [u64; 7]| {
        let names = PARAMETERS.flow_counters().iter().map(|name| format!("deflection.{name}"));
        let features = names.zip(counters).collect();
        squall_netsim::output::FlowResult { bytes, features, ..Default::default() }
    };
    let value = |run: &Run, name: &str| {
        let metric = METRICS.iter().find(|metric| metric.name == name).expect(name);
        (metric.compute)(run)
    };
    let mut run = Run::default();
    assert_eq!(value(&run, "dilation"), None, "nobody deflects");
    run.flows = vec![
        flow(4000, [18, 16, 18_000, 16_000, 1, 1, 2]),
        flow(9000, [24, 24, 24_000, 24_000, 0, 0, 0]),
    ];
    for (name, expected) in [
        ("dilation", 2.0 / 40.0),
        ("load_increase", 2.0 / 40.0),
        ("deflections", 1.0),
        ("most_deflections", 1.0),
        ("reordered", 2.0),
        ("table_full", 0.0),
    ] {
        let found = value(&run, name).expect(name);
        assert!((found - expected).abs() < 1e-9, "{name}: {found}");
    }
}
