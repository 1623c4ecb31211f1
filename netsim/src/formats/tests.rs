//! Tests of the readers and writers of file formats, and of their error messages.

use super::cm::StartUnit;
use super::{cm, graph, read_text, topo, topology};
use crate::Picos;
use crate::topology::Topology;
use crate::workload::{Start, TriggerKind};
use squall_base::Rate;

/// This is htsim's own `fat_tree_128_4os.topo`, with its comment, its tab and its spacing.
const TOPO: &str =
    "# Test 3-tier FatTree that is supposed to match\tthe default auto-generated topology
Nodes 128
Tiers 3
Podsize 16

Tier 0
Oversubscribed 1
Downlink_speed_Gbps 100
Radix_Down 4
Radix_Up 4
Downlink_Latency_ns 1000
Switch_Latency_ns 0

Tier 1
Oversubscribed 4
Downlink_speed_Gbps 100
Radix_Down 4
Radix_Up 1
Downlink_Latency_ns 1000
Switch_Latency_ns 0
Bundle 1

Tier 2
Downlink_speed_Gbps 100
Radix_Down 8
Downlink_Latency_ns 1000
Switch_Latency_ns 0
Bundle 1
";

const WRITTEN: &str = "Nodes 128
Tiers 3
Podsize 16

Tier 0
Oversubscribed 1
Downlink_speed_Gbps 100
Radix_Down 4
Radix_Up 4
Downlink_Latency_ns 1000
Switch_Latency_ns 0
Bundle 1

Tier 1
Oversubscribed 4
Downlink_speed_Gbps 100
Radix_Down 4
Radix_Up 1
Downlink_Latency_ns 1000
Switch_Latency_ns 0
Bundle 1

Tier 2
Oversubscribed 1
Downlink_speed_Gbps 100
Radix_Down 8
Downlink_Latency_ns 1000
Switch_Latency_ns 0
Bundle 1
";

#[test]
fn a_topology_is_read_and_written() {
    let tree = topo::read("t.topo", TOPO).unwrap();
    // The tree has 32 ToRs, 32 aggregation switches of one uplink, and 32 / 8 cores.
    assert_eq!(tree.switches(), Ok(vec![32, 32, 4]));
    assert_eq!((tree.hosts, tree.pod_hosts, tree.tiers[1].oversubscribed), (128, 16, 4));
    assert_eq!(tree.tiers[0].downlink, Rate::gbps(100));
    assert_eq!(tree.tiers[2].downlink_latency, Picos::micros(1));
    assert_eq!(topo::write(&tree), WRITTEN);
    assert_eq!(topo::read("again", WRITTEN).as_ref(), Ok(&tree));
    assert_eq!(tree.build().unwrap().check(), Ok(()));
}

#[test]
fn queues_of_a_topology_survive() {
    let text = WRITTEN.replace("Radix_Up 4", "Radix_Up 4\nQueue_Up 8192\nqueue_down 4096");
    let tree = topo::read("t.topo", &text).unwrap();
    assert_eq!((tree.tiers[0].queue_up, tree.tiers[0].queue_down), (Some(8192), Some(4096)));
    assert_eq!(topo::read("again", &topo::write(&tree)), Ok(tree));
}

#[test]
fn mistakes_in_a_topology_are_named() {
    let error_of = |text: &str| topo::read("t.topo", text).unwrap_err().to_string();
    let cases = [
        ("Nodes x\n", "t.topo:1: 'x' where a whole number was expected: Nodes"),
        ("Nodes -8\n", "t.topo:1: '-8' where a whole number was expected: Nodes"),
        ("Nodes 8\nNODES 8\n", "t.topo:2: 'nodes' appears twice, first in line 1; keep one"),
        (
            "Tiers 2\nTier 1\nTier 1\n",
            "t.topo:3: 'Tier 1' appears twice, first in line 2; keep one",
        ),
        (
            "Tiers 2\nTier 1\nBundle 1\nBundle 2\n",
            "t.topo:4: 'bundle of tier 1' appears twice, first in line 3; keep one",
        ),
        (
            "Tiers 2\nTier 1\nOversubscribed 0\n",
            "t.topo:3: Oversubscribed 0 is too small; at least 1 is possible",
        ),
        (
            "Tiers 2\nTier 1\nSwitch_Latency_ns 18446744073709551615\n",
            "t.topo:3: Switch_Latency_ns 18446744073709551615 is too large; at most 1000000000 is possible",
        ),
        ("Nodes\n", "t.topo:1: 'Nodes' without a value; expected 'Nodes NUMBER'"),
        ("Nodes 8 9\n", "t.topo:1: '9' after 'Nodes 8', where the line should end"),
        ("Nodes 8\nTiers 4\n", "t.topo:2: Tiers 4 is out of range 2 to 3"),
        ("Tier 0\n", "t.topo:1: 'Tier' before 'Tiers', which must say how many there are"),
        ("Tiers 2\nTier 2\n", "t.topo:2: Tier 2 is out of range 0 to 1"),
        (
            "\nRadix_Down 4\n",
            "t.topo:2: 'Radix_Down' where 'Nodes', 'Tiers', 'Podsize' or 'Tier' was expected",
        ),
        ("Nodes 8\n", "t.topo: no 'Tiers' line; expected 'Tiers 2' or 'Tiers 3'"),
        ("Tiers 2\n", "t.topo: no hosts; expected 'Nodes NUMBER' above zero"),
        ("Nodes 8\nTiers 2\n", "t.topo: tier 0 has no Radix_Down; expected 'Tier 0' and its lines"),
        (
            "Nodes 99999999999\n",
            "t.topo:1: Nodes 99999999999 is too large; at most 4294967295 is possible",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(error_of(text), expected);
    }
    let text = WRITTEN.replace("Radix_Up 1\n", "Colour 7\n");
    assert!(
        error_of(&text)
            .starts_with("t.topo:18: 'Colour' is unknown; a tier has Downlink_speed_Gbps")
    );
    let text = WRITTEN.replace("Podsize 16", "Podsize 15");
    assert_eq!(
        error_of(&text),
        "t.topo: hosts / pod size: 128 / 15 is not a positive whole number"
    );
    let text = WRITTEN.replace("Downlink_speed_Gbps 100", "Downlink_speed_Gbps 0");
    assert_eq!(error_of(&text), "t.topo: tier 0: a downlink speed of 0; expected more");
}

const CM: &str = "Nodes 16
Connections 5
Triggers 3
2->11 id 1 start 0 size 2000000 send_done_trigger 7
2->4 id 2 trigger 7 size 2000000 recv_done_trigger 8
3->4 id 3 start 5000000 size 1 recv_done_trigger 8
4->0 id 4 trigger 8 size 10 send_done_trigger 9
4->1 id 5 trigger 9 size 10
trigger id 7 oneshot
trigger id 8 barrier count 2
trigger id 9 multishot
";

#[test]
fn a_connection_matrix_is_read_and_written() {
    let workload = cm::read("w.cm", CM).unwrap();
    assert_eq!((workload.hosts, workload.flows.len()), (16, 5));
    let kinds: Vec<_> =
        workload.triggers.iter().map(|trigger| (trigger.id, trigger.kind)).collect();
    let expected =
        [(7, TriggerKind::OneShot), (8, TriggerKind::Barrier(2)), (9, TriggerKind::MultiShot)];
    assert_eq!(kinds, expected);
    let flow = workload.flows[1];
    assert_eq!((flow.src, flow.dst, flow.bytes), (2, 4, 2_000_000));
    assert_eq!((flow.start, flow.on_sent, flow.on_received), (Start::Trigger(0), None, Some(1)));
    assert_eq!(workload.flows[2].start, Start::At(5_000_000));
    assert_eq!(cm::write(&workload), CM);
}

#[test]
fn connections_without_numbers_are_numbered() {
    let workload =
        cm::read("w.cm", "Nodes 3\n0->1 start 0 size 5\n\n# or\n1->2 size 5 start 7\n").unwrap();
    assert_eq!(workload.flows.iter().map(|flow| flow.id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(workload.flows[1].start, Start::At(7));
}

#[test]
fn starts_have_the_given_unit_and_doubts_are_reported() {
    let read = |unit: StartUnit, start: u64| {
        cm::read_in(unit, "w.cm", &format!("Nodes 2\n0->1 start {start} size 5\n"))
    };
    let (ps, us) = ("ps".parse().unwrap(), "us".parse().unwrap());
    assert_eq!(read(us, 40).unwrap().flows[0].start, Start::At(40_000_000));
    assert_eq!(read(ps, 40).unwrap().flows[0].start, Start::At(40));
    let doubt = |unit: StartUnit, start| unit.doubt(&read(unit, start).unwrap());
    assert!(doubt(ps, 40).unwrap().ends_with("is it us?"));
    assert!(doubt(us, 90_000_000).unwrap().ends_with("is it ps?"));
    for (unit, start) in [(ps, 0), (us, 0), (ps, 5_000_000), (us, 5), (us, 1)] {
        assert_eq!(doubt(unit, start), None, "{start} {}", unit.name());
    }
    assert!(read(us, u64::MAX / 9).unwrap_err().to_string().contains("beyond"));
    assert_eq!("ns".parse::<StartUnit>().unwrap_err(), "unit \"ns\"; expected ps or us");
}

#[test]
fn mistakes_in_a_connection_matrix_are_named() {
    let error_of = |text: &str| cm::read("w.cm", text).unwrap_err().to_string();
    let cases = [
        ("Nodes two\n", "w.cm:1: 'two' where a whole number was expected: Nodes"),
        ("", "w.cm: no hosts; expected 'Nodes NUMBER' above zero"),
        (
            "Nodes 2\nConnections 0\n",
            "w.cm: no connection; expected lines 'SRC->DST start TIME size BYTES'",
        ),
        ("Nodes 2\nNodes 2\n", "w.cm:2: 'nodes' appears twice, first in line 1; keep one"),
        (
            "0->1 start 0 size 1\nNodes 2\n",
            "w.cm:1: '0->1' is used before the line 'Nodes NUMBER'; move that line up",
        ),
        ("Nodes 2\n1->1 start 0 size 1\n", "w.cm:2: flow from host 1 to itself; name two hosts"),
        (
            "Nodes 2\n0->1 id 0 start 0 size 1\n",
            "w.cm:2: id 0 is too small; at least 1 is possible",
        ),
        (
            "Nodes 2\n0->1 id 2 start 0 size 1\n0->1 start 0 size 1\n",
            "w.cm:3: id 2 is that of line 2; expected another",
        ),
        ("Nodes 2\n0->1 start 0 size 1 size 2\n", "w.cm:2: 'size' appears twice; keep one"),
        (
            "Nodes 2\n0->1 id 4294967296 start 0 size 1\n",
            "w.cm:2: id 4294967296 is too large; at most 4294967295 is possible",
        ),
        (
            "Nodes 2\n0->1 start 0 size 18446744073709551616\n",
            "w.cm:2: size 18446744073709551616 is too large; at most 18446744073709551615 is possible",
        ),
        (
            "Nodes 2\ntrigger id 0 oneshot\n",
            "w.cm:2: trigger 0 is too small; at least 1 is possible",
        ),
        (
            "Nodes 2\n0->1 start 0 size 1\n0->1 trigger 1 size 1 send_done_trigger 1\ntrigger id 1 oneshot\n",
            "w.cm:3: 1 flows can never start (the first is flow 2): nothing activates their trigger often enough",
        ),
        (
            "Nodes 2\n0->2 start 0 size 1\n",
            "w.cm:2: host 2 does not exist; 'Nodes 2' allows 0 to 1",
        ),
        ("Nodes 2\n0->1 start 0\n", "w.cm:2: no size; expected 'size BYTES' above zero"),
        ("Nodes 2\n0->1 start\n", "w.cm:2: 'start' without a value"),
        (
            "Nodes 2\n0->1 start 0 trigger 1 size 1\n",
            "w.cm:2: one of 'start' and 'trigger' is enough; drop the other",
        ),
        (
            "Nodes 2\nx->1 start 0 size 1\n",
            "w.cm:2: 'x' where a whole number was expected: the sending host",
        ),
        (
            "Nodes 2\nhello\n",
            "w.cm:2: 'hello' where 'Nodes', 'Connections', 'Triggers', 'trigger' or 'SRC->DST' was expected",
        ),
        (
            "Nodes 2\n0->1 trigger 3 size 1\n",
            "w.cm:2: trigger 3 is used but not defined; expected a line 'trigger id 3 ..'",
        ),
        (
            "Nodes 2\nConnections 2\n0->1 start 0 size 1\n",
            "w.cm:2: the file says 'Connections 2', but there are 1; correct the number",
        ),
        (
            "Nodes 2\ntrigger id 1 barrier count 0\n",
            "w.cm:2: a barrier of 0 is too small; at least 1 is possible",
        ),
        (
            "Nodes 2\ntrigger id 1 oneshot\ntrigger id 1 oneshot\n",
            "w.cm:3: trigger 1 is defined twice; keep one",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(error_of(text), expected);
    }
    assert!(
        error_of("Nodes 2\n0->1 start 0 size 1 colour 3\n")
            .starts_with("w.cm:2: 'colour' is unknown;")
    );
    assert!(error_of("Nodes 2\ntrigger id 1 sometimes\n").contains("barrier count NUMBER"));
}

const GRAPH: &str = "Graph
Hosts 3
Switch left latency_ns 400 tier 0
Switch right latency_ns 0 tier 1
Link h0 left gbps 100 latency_ns 1000
Link h1 left gbps 100 latency_ns 1000
Link h2 right gbps 100 latency_ns 1000
Link left right mbps 2500 latency_ns 5000
";

#[test]
fn a_graph_is_read_and_written() {
    let network = graph::read("g", GRAPH).unwrap();
    assert_eq!((network.hosts, network.links[3].rate), (3, Rate(2_500_000_000)));
    assert_eq!(network.port_name(6), "left->right");
    assert_eq!(network.switches[0].latency, Picos::nanos(400));
    assert_eq!(graph::write(&network), GRAPH);
    let rate = Rate::gbps(400);
    let spine = Topology::leaf_spine(4, 2, 2, rate, rate, Picos::nanos(600), Picos::nanos(400));
    assert_eq!(graph::read("g", &graph::write(&spine)), Ok(spine));
    // Both kinds of files are recognised.
    assert_eq!(topology("g", &format!("# a graph\n\n{GRAPH}")), Ok(network));
    assert_eq!(topology("t.topo", TOPO), Ok(topo::read("t.topo", TOPO).unwrap().build().unwrap()));
}

#[test]
fn mistakes_in_a_graph_are_named() {
    let error_of = |text: &str| graph::read("g", text).unwrap_err().to_string();
    let cases = [
        ("Hosts 2\n", "g:1: 'Hosts' where 'Graph' was expected"),
        ("Graph\nHosts two\n", "g:2: 'two' where a whole number was expected: Hosts"),
        ("Graph\nHosts 2\nHosts 3\n", "g:3: 'Hosts' appears twice, first in line 2; keep one"),
        (
            "Graph\nLink h0 a gbps 1\n",
            "g:2: 'h0' is used before the line 'Hosts NUMBER'; move that line up",
        ),
        (
            "Graph\nHosts 2\nLink h0 h1 gbps 1\n",
            "g:3: link connects hosts 'h0' and 'h1' directly; connect each to a switch",
        ),
        (
            "Graph\nSwitch a\nLink a a gbps 1\n",
            "g:3: link connects 'a' with itself; name two nodes",
        ),
        (
            "Graph\nHosts 2\nSwitch a\nLink h0 a gbps 1\nLink a h0 gbps 1\nLink h1 a gbps 1\n",
            "g: host h1 has 1 links, and h0 has 2; give all hosts as many",
        ),
        (
            "Graph\nHosts 2\nSwitch a\nLink h0 a gbps 18446744073709551615\n",
            "g:4: gbps 18446744073709551615 is too large; at most 100000 is possible",
        ),
        ("Graph\nSwitch a tier 256\n", "g:2: tier 256 is too large; at most 255 is possible"),
        ("Graph\nSwitch h7\n", "g:2: 'h7' is what a host is called; rename it"),
        ("Graph\nSwitch a\nSwitch a\n", "g:3: two switches are named 'a'; names must differ"),
        (
            "Graph\nSwitch a tier\n",
            "g:2: 'tier' where 'latency_ns NUMBER' or 'tier NUMBER' was expected",
        ),
        ("Graph\nHosts 2\nLink h0 h2 gbps 1\n", "g:3: host 'h2' is out of range h0 to h1"),
        (
            "Graph\nHosts 2\nLink h0 b gbps 1\n",
            "g:3: 'b' is neither a host nor a switch named above",
        ),
        (
            "Graph\nHosts 2\nSwitch a\nLink h0 a\n",
            "g:4: a link without a rate; expected 'gbps NUMBER' or 'mbps NUMBER' above zero",
        ),
        (
            "Graph\nHosts 2\nSwitch a\nLink h0 a tbps 1\n",
            "g:4: 'tbps 1' where 'gbps NUMBER', 'mbps NUMBER' or 'latency_ns NUMBER' was expected",
        ),
        (
            "Graph\nHosts 2\nSwitch a\nLink h0 a gbps 1\n",
            "g: host h1 has 0 links; connect it to a switch",
        ),
        (
            "Graph\nRouter a\n",
            "g:2: 'Router a' where 'Hosts NUMBER', 'Switch NAME ..' or 'Link A B ..' was expected",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(error_of(text), expected);
    }
}

#[test]
fn a_byte_order_mark_and_ends_of_lines_of_other_systems_are_fine() {
    let foreign = |text: &str| format!("\u{feff}{}", text.replace('\n', "\r\n"));
    assert_eq!(topology("t", &foreign(TOPO)), topology("t", TOPO));
    assert_eq!(topology("g", &foreign(GRAPH)), topology("g", GRAPH));
    assert_eq!(cm::read("w", &foreign(CM)), cm::read("w", CM));
}

#[test]
fn what_is_no_text_is_named() {
    let path = std::env::temp_dir().join(format!("squall-text-{}", std::process::id()));
    std::fs::write(&path, b"Nodes 2\n# caf\xe9\n").expect("written");
    let error = read_text(&path).expect_err("not UTF-8").to_string();
    assert_eq!(error, "line 2 is not UTF-8, expected text");
    std::fs::remove_file(&path).expect("removed");
    let error = read_text(std::path::Path::new("/dev/zero")).expect_err("no end").to_string();
    assert_eq!(error, "it is a device, expected a file");
}

/// An accelerator of ASTRA-sim is a host. With several dimensions it has a switch of its own, and the
/// first dimension varies fastest (`Ring_FullyConnected_Switch.yml` of its analytical backend).
#[test]
fn networks_of_astra_sim_have_their_blocks_in_each_dimension() {
    let three = "# 3D\n\ntopology: [ Ring, FullyConnected, Switch ]  # blocks\nnpus_count: [ 2, 8, 4 ]\n\
                 bandwidth: [ 200.0, 100.0, 50.0 ]  # GB/s\nlatency: [ 50.0, 500.0, 2000.0 ]  # ns\n";
    let built = topology("a.yml", three).expect("a network");
    assert_eq!(built.check(), Ok(()));
    assert_eq!((built.hosts, built.switches.len()), (64, 64 + 16));
    assert_eq!(built.links.len(), 64 + 32 + 8 * 28 + 64);
    let gb = |gbps: u64| Rate(gbps * 8 * (1 << 30));
    assert_eq!(built.host_rate(), gb(200 + 7 * 100 + 50));
    let link = |a: u32, b: u32| {
        let (a, b) = (crate::topology::Node::Switch(a), crate::topology::Node::Switch(b));
        let found = built.links.iter().find(|link| (link.a, link.b) == (a, b));
        found.map(|link| (link.rate, link.latency))
    };
    // Hosts 2 and 3 are neighbours in the ring, 0 and 14 in the same full mesh.
    assert_eq!(link(2, 3), Some((gb(200), Picos::nanos(50))));
    assert_eq!(link(0, 14), Some((gb(100), Picos::nanos(500))));
    assert_eq!((link(1, 2), link(0, 16)), (None, None));
    // Switch 65 of the last dimension joins hosts 1, 17, 33 and 49.
    assert_eq!(link(49, 65), Some((gb(50), Picos::nanos(2000))));
    assert_eq!(built.switches[65].name, "switch2-1");
}

#[test]
fn a_ring_of_astra_sim_is_closed_and_its_switch_a_star() {
    let of = |block: &str, count: u32| {
        let text = format!(
            "topology:\n  - {block}\n\nnpus_count: {count}\nbandwidth:\n- 400\nlatency: [936.25]\n"
        );
        topology("a.yml", &text).expect(block)
    };
    let star = of("Switch", 8);
    let rate = Rate(400 * 8 * (1 << 30));
    assert_eq!(star, Topology::star(8, rate, Picos(936_250), Picos::ZERO));
    let ring = of("Ring", 5);
    assert_eq!((ring.links.len(), ring.host_rate()), (10, Rate(2 * rate.0)));
    let last = ring.links.last().expect("links");
    assert_eq!((ring.name(last.a), ring.name(last.b)), ("npu4".into(), "npu0".into()));
    assert_eq!(of("Ring", 2).links.len(), 3);
    assert_eq!(of("\"FullyConnected\"", 4).links.len(), 4 + 6);
}

#[test]
fn what_is_wrong_in_a_network_of_astra_sim_is_named() {
    let error = |text: &str| topology("a.yml", text).expect_err(text).to_string();
    let with = |key: &str, value: &str| {
        let mut text = String::new();
        for (known, usual) in [
            ("topology", "[Ring]"),
            ("npus_count", "[4]"),
            ("bandwidth", "[50]"),
            ("latency", "[5]"),
        ] {
            text += &format!("{known}: {}\n", if known == key { value } else { usual });
        }
        error(&text)
    };
    for (message, expected) in [
        (
            with("topology", "[Mesh]"),
            "a.yml:1: topology 'Mesh' is not simulated; expected Ring, Fully",
        ),
        (with("topology", "[Ring"), "a.yml:1: '[Ring' has no closing bracket in this line"),
        (
            with("topology", "[Ring, Ring]"),
            "a.yml:2: npus_count has 1 values, and topology 2; expected one",
        ),
        (with("npus_count", "[1]"), "a.yml:2: npus_count 1 is too small; at least 2 are needed"),
        (with("npus_count", "[-4]"), "a.yml:2: '-4' where a whole number was expected: npus_count"),
        (with("npus_count", "[99999999]"), "a.yml: 99999999 accelerators; at most 16777215 are"),
        (
            with("bandwidth", "[0]"),
            "a.yml:3: bandwidth 0 GB/s is out of range: it must be above 0 and at most 10000",
        ),
        (with("bandwidth", "[nan]"), "a.yml:3: bandwidth 'nan' is not a number in 0..=10000"),
        (with("latency", "[-1]"), "a.yml:4: latency '-1' is not a number in 0..=1000000000"),
        (error("topology: [Ring]\n"), "a.yml: no 'npus_count'; expected 'npus_count: [ .. ]'"),
        (error("topology: [Ring]\ntopology: [Ring]\n"), "a.yml:2: 'topology' appears twice"),
        (
            error("latency: [1]\nlinks_count: [2]\n"),
            "a.yml:2: 'links_count' is not simulated; a network",
        ),
        (error("latency: [1]\nRing\n"), "a.yml:2: 'Ring' where 'KEY: [ VALUE, .. ]' was expected"),
        (
            error("{\n  \"logical-dims\": [\"8\"]\n}\n"),
            "a JSON file is not a topology: ASTRA-sim's logical-dims",
        ),
    ] {
        assert!(message.contains(expected), "{message}\nexpected {expected}");
    }
}

/// csg-htsim writes starts with decimals, and reads them as such.
#[test]
fn starts_may_have_decimals() {
    let start = |unit, word: &str| {
        let text = format!("Nodes 2\n0->1 start {word} size 8\n");
        cm::read_in(unit, "w", &text).map(|workload| workload.flows[0].start)
    };
    let (ps, us) = (StartUnit::Picoseconds, StartUnit::Microseconds);
    assert_eq!(start(ps, "0.000000"), Ok(Start::At(0)));
    assert_eq!(start(ps, "12.6"), Ok(Start::At(13)));
    assert_eq!(start(us, "2.5"), Ok(Start::At(2_500_000)));
    let error = |word: &str| start(us, word).expect_err(word).to_string();
    assert_eq!(error(".5"), "w:2: '.5' where a whole number was expected: start");
    assert_eq!(error("1.5e3"), "w:2: '1.5e3' where a whole number was expected: start");
    assert_eq!(
        error("99999999999999999999.5"),
        "w:2: start 99999999999999999999.5 us is beyond 2^64 ps"
    );
}

/// A connection with csg-htsim's `addon` sends once if its trigger fires once.
#[test]
fn connections_that_send_again_are_refused() {
    let text = |kind: &str| {
        format!(
            "Nodes 4\n0->1 id 1 start 0 size 8 send_done_trigger 1\n3->1 id 3 start 0 size 8 recv_done_trigger 1\n\
             1->2 id 2 trigger 1 addon size 8\ntrigger id 1 {kind}\n"
        )
    };
    for kind in ["oneshot", "barrier count 2"] {
        let plain = cm::read("w", &text(kind).replace(" addon", ""));
        assert_eq!(cm::read("w", &text(kind)), plain);
        assert!(plain.is_ok());
    }
    for kind in ["multishot", "barrier count 1"] {
        let error = cm::read("w", &text(kind)).expect_err("it could send twice").to_string();
        assert!(
            error.starts_with("w:4: 'addon' is not supported with trigger 1, which fires 2 times"),
            "{error}"
        );
    }
    let error =
        cm::read("w", "Nodes 4\n0->1 id 1 trigger 7 addon size 8\n").expect_err("no trigger");
    assert!(error.to_string().starts_with("w:2: trigger 7 is used but not defined"), "{error}");
}

/// The form of astra-network-ns3's `scratch/topology`: two leaves and a spine, with a host between
/// the numbers of the switches.
const NS3: &str = "6 3 5\n2 3\n5\n0 2 400Gbps 0.0005ms 0\n1 2 400Gbps 500ns 0\n4 3 0.4e3Gbps 0.5us 0\n\
                   2 5 100Gbps 5e-7s 0\n5 3 800000Mbps 0.0005ms 0.0\n";

#[test]
fn topologies_of_ns_3_have_hosts_and_switches_by_their_numbers() {
    let read = topology("t.txt", NS3).expect("a topology");
    assert_eq!((read.hosts, read.switches.len(), read.links.len()), (3, 3, 5));
    let tiers: Vec<_> = read.switches.iter().map(|of| (of.name.as_str(), of.tier)).collect();
    assert_eq!(tiers, [("switch2", 0), ("switch3", 0), ("switch5", 1)]);
    let ends = |at: usize| (read.name(read.links[at].a), read.name(read.links[at].b));
    assert_eq!(ends(2), ("h2".into(), "switch3".into()));
    let rates: Vec<_> = read.links.iter().map(|link| link.rate).collect();
    assert_eq!(rates, [400, 400, 400, 100, 800].map(Rate::gbps));
    assert!(read.links.iter().all(|link| link.latency == Picos::nanos(500)));
}

#[test]
fn what_is_wrong_in_a_topology_of_ns_3_is_named() {
    let error = |text: &str| topology("t", text).expect_err(text).to_string();
    let with = |old: &str, new: &str| error(&NS3.replacen(old, new, 1));
    for (message, expected) in [
        (
            error("8 4 1 1 8 A100\n"),
            "t:1: the first line has 6 words, expected three: 'NODES SWITCHES LINKS'",
        ),
        (with("6 3 5", "2 3 5"), "t:1: 2 nodes with 3 switches, expected at most 16777215 nodes"),
        (
            with("2 3\n", "2 2\n"),
            "t:2: switch number 2 is repeated, out of range 0..=5 or one too many; list 3 different",
        ),
        (with("2 3\n", "2 6\n"), "t:2: switch number 6 is repeated, out of range 0..=5"),
        (with("5\n0", "5 0\n0"), "t:3: switch number 0 is repeated, out of range"),
        (with("0 2 400Gbps", "9 2 400Gbps"), "t:4: node 9, expected 0 to 5"),
        (with("400Gbps", "400"), "t:4: '400', expected a rate such as 400Gbps"),
        (with("400Gbps", "nanGbps"), "t:4: 'nanGbps', expected a rate such as 400Gbps"),
        (with("0.0005ms", "-1ms"), "t:4: '-1ms', expected a latency such as 0.0005ms"),
        (with("0.0005ms 0", "0.0005ms 0.1"), "t:4: error rate 0.1 is not simulated; set it to 0"),
        (with("0.0005ms 0", "0.0005ms"), "t:4: '0 2 400Gbps 0.0005ms' where 'NODE NODE RATE"),
        (with("6 3 5", "6 3 6"), "t: the file ends where a link was expected"),
        (
            with("6 3 5", "6 3 4"),
            "t:8: '5 3 800000Mbps 0.0005ms 0.0' follows the last of the 4 links",
        ),
        (
            error("2 0 1\n0 1 25Gbps 1us 0\n"),
            "link 0 connects hosts h0 and h1 directly; connect each",
        ),
    ] {
        assert!(message.contains(expected), "{message}\nexpected {expected}");
    }
}
