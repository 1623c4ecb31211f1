//! Samples of the files that the simulator reads, all of them without a mistake.

use super::properties::FileKind;

/// Returns all samples.
pub(super) fn all() -> Vec<(FileKind, Vec<u8>)> {
    let texts: [(FileKind, &str); 11] = [
        (FileKind::Goal, GOAL),
        (FileKind::Network, TREE),
        (FileKind::Network, LEAVES),
        (FileKind::Network, GRAPH),
        (FileKind::Network, RING),
        (FileKind::Network, "3 1 2\n2\n2 0 400Gbps 0.0005ms 0\n2 1 400Gbps 500ns 0\n"),
        (
            FileKind::Network,
            "topology:\n  - Switch\nnpus_count:\n  - 8\nbandwidth: 400.0\nlatency: [936.25]\n",
        ),
        (FileKind::System, SYSTEM),
        (FileKind::Matrix, MATRIX),
        (FileKind::Messages, MESSAGES),
        (FileKind::Goal, "num_ranks 2 rank 0 { send 1b to 1 } rank 1 { recv 1b from -1 tag -1 }"),
    ];
    let texts = texts.into_iter().map(|(kind, text)| (kind, text.as_bytes().to_vec()));
    texts.chain([(FileKind::Goal, binary()), (FileKind::Chakra, chakra())]).collect()
}

const GOAL: &str = "num_ranks 3
rank 0 {
l1: calc 1000 // nanoseconds
l2: send 8192b to 1 tag 7 cpu 1 nic 0
l2 requires l1
l3: recv 8b from 2 tag -1
l3 irequires l2
}
rank 1 { l1: recv 8192b from -1 tag 7 l2: calc 500 cpu 1 l2 irequires l1 }
rank 2 { a: send 8b to 0 /* soon */ }
";

const TREE: &str = "Nodes 16
Tiers 3
Podsize 4
Tier 0
Downlink_speed_Gbps 200
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 200
Radix_Down 2
Radix_Up 4
Oversubscribed 1
Switch_Latency_ns 300
Tier 2
Downlink_speed_Gbps 100
Radix_Down 8
Bundle 2
Queue_Down 88
";

const LEAVES: &str = "# two tiers
Nodes 32
Tiers 2
Podsize 32
Tier 0
Downlink_speed_Gbps 100
Radix_Down 8
Radix_Up 2
Tier 1
Downlink_speed_Gbps 400
Radix_Down 4
Downlink_Latency_ns 1000
";

const GRAPH: &str = "Graph
Hosts 2
Switch left latency_ns 400
Switch right latency_ns 400 tier 1
Link h0 left gbps 100 latency_ns 1000
Link h1 right gbps 100 latency_ns 1000
Link left right mbps 2500 latency_ns 5000
";

const RING: &str = "# blocks of dimensions
topology: [ Ring, FullyConnected, Switch ]
npus_count: [ 2, 3, 4 ]
bandwidth: [ 200.0, 100.0, 50.0 ]  # GB/s
latency: [ 50.0, 500.0, 2000.0 ]
";

const SYSTEM: &str = r#"{
"scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 2, "preferred-dataset-splits": 4,
"all-reduce-implementation": ["ring"], "all-to-all-implementation": ["oneDirect"], "local-mem-bw": 3350, "boost-mode": 0
}"#;

const MATRIX: &str = "Nodes 16
Connections 3
Triggers 2
2->11 id 1 start 0 size 2000000 send_done_trigger 1
2->4 id 2 trigger 1 addon size 2000000 recv_done_trigger 2 prio 1
4->2 id 3 trigger 2 size 1
trigger id 1 oneshot
trigger id 2 barrier count 1
";

const MESSAGES: &str = "id,src,dst,bytes,start_us,after
1,0,5,131072,0.0,
2,5,7,131072,,1
3,7,0,4096,2.5,
4,7,1,4096,,1 2
";

/// Returns a binary GOAL schedule: rank 0 sends 100 bytes to rank 1, which then computes.
fn binary() -> Vec<u8> {
    // Number for which it waits, kind, peer, size, tag, cpu, card, and the two lists in the appendix.
    let operation = |waits: u32, kind: u8, peer: u32, size: u64, ended: [u32; 2]| {
        let mut record = waits.to_le_bytes().to_vec();
        record.push(kind);
        record.extend(peer.to_le_bytes());
        record.extend(size.to_le_bytes());
        record.extend([0; 6]);
        ended.iter().for_each(|number| record.extend(number.to_le_bytes()));
        record.extend([0; 8]);
        record
    };
    let numbers =
        |numbers: &[u32]| -> Vec<u8> { numbers.iter().flat_map(|n| n.to_le_bytes()).collect() };
    let first = [numbers(&[1, 1, 0]), operation(0, 1, 1, 100, [0, 0])].concat();
    let receive = operation(0, 2, 0, 100, [1, 0]);
    let second =
        [numbers(&[2, 1, 0]), receive, operation(1, 3, 0, 50, [0, 0]), numbers(&[1])].concat();
    let begin = 6 + 2 * 16u64;
    let (middle, end) = (begin + first.len() as u64, begin + (first.len() + second.len()) as u64);
    let mut file = 4223u64.to_le_bytes().to_vec();
    file.extend([numbers(&[2]), vec![1, 1]].concat());
    [begin, middle, middle, end].iter().for_each(|number| file.extend(number.to_le_bytes()));
    [file, first, second].concat()
}

/// Returns the traces of two ranks: both compute and sum, then one sends to the other.
fn chakra() -> Vec<u8> {
    let mut file = vec![0];
    for rank in 0..2u64 {
        let trace = trace(rank);
        file.extend((trace.len() as u16).to_le_bytes());
        file.extend(trace);
    }
    file
}

fn trace(rank: u64) -> Vec<u8> {
    let compute = [numeric(1, 1), text(2, b"compute"), numeric(3, 4), numeric(7, 5)].concat();
    let mut sum = [numeric(1, 2), text(2, b"sum"), numeric(3, 7), text(5, &[1])].concat();
    for (name, value) in [
        ("comm_type", numeric(9, 0)),
        ("comm_size", numeric(13, 4096)),
        ("pg_name", text(29, b"0")),
    ] {
        sum.extend(text(10, &[text(1, name.as_bytes()), value].concat()));
    }
    let (kind, peer) = if rank == 0 { (5, "comm_dst") } else { (6, "comm_src") };
    let mut message =
        [numeric(1, 3), text(2, b"message"), numeric(3, kind), text(4, &[2])].concat();
    for (name, value) in [("comm_size", 100), (peer, 1 - rank), ("comm_tag", 9)] {
        message.extend(text(10, &[text(1, name.as_bytes()), numeric(9, value)].concat()));
    }
    let groups = "['[{\"pg_name\": \"0\", \"ranks\": [0, 1]}]']";
    let inputs = text(8, &text(1, groups.as_bytes()));
    let list =
        [numeric(1, 4), text(2, b"## process_group:init ##"), numeric(3, 1), inputs].concat();
    let metadata = text(1, b"0.0.4");
    [metadata, list, compute, sum, message]
        .iter()
        .flat_map(|message| [varint(message.len() as u64), message.clone()].concat())
        .collect()
}

/// Returns a field of protobuf with a number.
fn numeric(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

/// Returns a field of protobuf with text, another message or a list.
fn text(field: u64, value: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(value.len() as u64), value.to_vec()].concat()
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 127 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Every sample is without a mistake.
#[test]
fn samples_are_read() {
    use squall_netsim::formats;
    use squall_netsim::workload::{chakra, goal, trace};
    for (kind, bytes) in all() {
        let text = String::from_utf8_lossy(&bytes);
        let read = match kind {
            FileKind::Goal => {
                goal::parse_bytes("x.goal", bytes.clone()).err().map(|e| e.to_string())
            }
            FileKind::Network => formats::topology("x", &text).err().map(|e| e.to_string()),
            FileKind::System => {
                chakra::system::parse("x", &text).err().map(|error| error.to_string())
            }
            FileKind::Matrix => formats::cm::read("x", &text).err().map(|e| e.to_string()),
            FileKind::Messages => {
                trace::parse(&bytes, "x".as_ref(), 8).err().map(|error| error.to_string())
            }
            FileKind::Chakra => {
                let first = 3 + usize::from(u16::from_le_bytes([bytes[1], bytes[2]]));
                let traces = [&bytes[3..first], &bytes[first + 2..]];
                chakra::parse("x.%d.et", &traces, &Default::default()).err().map(|e| e.to_string())
            }
        };
        assert_eq!(read, None, "{kind:?}: {text}");
    }
}
