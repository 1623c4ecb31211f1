use super::*;
use crate::sim::{FlowResult, Results, SimConfig, Simulation};
use crate::topology::Topology;
use crate::workload::{JobTimes, MessageTimes};
use proptest::prelude::*;
use squall_base::Rate;

/// Returns a node of a trace: number, name, kind, data dependencies and attributes.
fn node(id: u64, name: &str, kind: i32, after: &[u64], attr: &[(&str, Value)]) -> Node {
    let attr = attr.iter().map(|(name, value)| Attribute::new(name, value.clone()));
    Node {
        id,
        name: name.to_owned(),
        kind,
        data_deps: after.to_vec(),
        attr: attr.collect(),
        ..Node::default()
    }
}

fn compute(id: u64, micros: u64, after: &[u64]) -> Node {
    Node { duration_micros: micros, ..node(id, "compute", 4, after, &[]) }
}

fn collective(id: u64, kind: i64, bytes: u64, group: &str, after: &[u64]) -> Node {
    let attr = [
        ("comm_type", Value::Int64(kind)),
        ("comm_size", Value::Uint64(bytes)),
        ("pg_name", Value::String(group.to_owned())),
    ];
    node(id, "sum", 7, after, &attr)
}

fn message(id: u64, sends: bool, peer: u32, tag: u32, after: &[u64]) -> Node {
    let (name, kind, role) =
        if sends { ("send", 5, "comm_dst") } else { ("receive", 6, "comm_src") };
    let attr = [
        ("comm_size", Value::Int64(1000)),
        (role, Value::Int32(peer.cast_signed())),
        ("comm_tag", Value::Uint32(tag)),
    ];
    node(id, name, kind, after, &attr)
}

/// Writes a trace.
fn trace(nodes: &[Node]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let metadata = GlobalMetadata { version: VERSION.to_owned(), attr: Vec::new() };
    messages::write(&mut bytes, &metadata).expect("memory");
    nodes.iter().for_each(|node| messages::write(&mut bytes, node).expect("memory"));
    bytes
}

/// Reads the traces of a job.
fn read_all(
    traces: &[Vec<u8>],
    groups: &str,
    options: &ChakraOptions,
) -> Result<Schedule, FormatError> {
    let groups = serde_json::from_str(groups).expect("groups");
    let open = |rank: u32| Ok(traces[rank as usize].as_slice());
    read_from("job.%d.et", traces.len() as u32, open, groups, options)
}

fn refused(traces: &[Vec<Node>]) -> String {
    let traces: Vec<_> = traces.iter().map(|nodes| trace(nodes)).collect();
    let placed = read_all(&traces, "{}", &ChakraOptions::default())
        .and_then(|schedule| schedule.place(Placement::default(), 64));
    placed.expect_err("it is wrong").to_string()
}

/// Simulates a job over links of 100 Gb/s and a microsecond, and switches without latency.
fn simulate(schedule: Schedule, placement: Placement) -> (Results, JobTimes) {
    let hosts = placement.hosts(schedule.ranks()).max(2);
    let (job, workload) = schedule.place(placement, hosts).expect("it ends");
    let star = Topology::star(hosts, Rate::gbps(100), Picos::micros(1), Picos::ZERO);
    let results = Simulation::new(&SimConfig::new(star), &workload).expect("fits").run(&mut ());
    let times = |flow: &FlowResult| {
        let started = flow.start.expect("started");
        let sent = started + flow.fct.expect("ended");
        MessageTimes { started, sent, arrived: started + flow.received.expect("ended") }
    };
    let times = job.times(&results.flows.iter().map(times).collect::<Vec<_>>());
    let makespan = results.makespan.expect("whole").as_micros();
    assert!((times.lasted_us - makespan).abs() < 1e-6, "{} {makespan}", times.lasted_us);
    (results, times)
}

fn run(traces: &[Vec<Node>], groups: &str, options: &ChakraOptions) -> (Results, JobTimes) {
    let traces: Vec<_> = traces.iter().map(|nodes| trace(nodes)).collect();
    let schedule = read_all(&traces, groups, options).expect("traces");
    simulate(schedule, options.placement)
}

#[test]
fn ranks_compute_and_send_each_other_messages() {
    let first =
        vec![compute(4, 30, &[]), message(9, true, 1, 7, &[4]), message(5, false, 1, 8, &[])];
    // A node may depend on one further down, and on a caller that is not in the file.
    let mut last = compute(1, 5, &[2]);
    last.ctrl_deps = vec![77];
    let second = vec![message(3, true, 0, 8, &[1]), last, message(2, false, 0, 7, &[])];
    let (results, times) = run(&[first, second], "{}", &ChakraOptions::default());
    let starts: Vec<f64> =
        results.flows.iter().map(|flow| flow.start.expect("started").as_micros()).collect();
    let received = results.flows[0].received.expect("arrived").as_micros();
    assert_eq!(starts[0], 30.0);
    assert!((starts[1] - (30.0 + received + 5.0)).abs() < 1e-6, "{starts:?} {received}");
    assert_eq!(times.without_network_us, 35.0);
    assert!((times.network_share() - (1.0 - 35.0 / times.lasted_us)).abs() < 1e-9);
    assert_eq!((times.ranks[0].computing_us, times.ranks[1].computing_us), (30.0, 5.0));
    // The second rank waits for the first one, which computes.
    assert!((times.ranks[1].waiting_us - 30.0).abs() < 1e-6, "{times:?}");
}

/// A ring over p ranks takes 2 (p - 1) hops, each of which is the time of n / p bytes on a link and
/// a path's latency: the first packet of a message passes two links and is sent twice.
#[test]
fn a_ring_takes_the_time_of_its_hops() {
    let (ranks, bytes) = (8u64, 8 << 20);
    let all = vec![vec![collective(0, 0, bytes, "", &[])]; ranks as usize];
    let (results, times) = run(&all, "{}", &ChakraOptions::default());
    let share = bytes / ranks;
    let packets = share.div_ceil(4096 - 64);
    let on_link = |bytes: u64| bytes as f64 * 8.0 / 100e3;
    let hop = on_link(share + 64 * packets) + on_link(4096) + 2.0;
    let acknowledgement = 2.0 + 2.0 * on_link(64);
    let expected = 2.0 * (ranks - 1) as f64 * hop + acknowledgement;
    assert_eq!(results.flows.len() as u64, 2 * (ranks - 1) * ranks);
    let measured = times.lasted_us;
    assert!((measured / expected - 1.0).abs() < 0.01, "{measured} us, expected {expected} us");
    assert_eq!(times.without_network_us, 0.0);
    let rank = &times.ranks[3];
    assert!(rank.exposed_us > 0.99 * measured && rank.computing_us == 0.0, "{rank:?}");
}

/// Rank and host of a collective within a host: 2 (p - 1) copies of n / p bytes, with their latency.
#[test]
fn a_collective_within_a_host_takes_the_time_of_its_copies() {
    let inner_latency = Picos::nanos(500);
    let placement = Placement { ranks_per_host: 4, inner_rate: Rate::gbps(80), inner_latency };
    let options = ChakraOptions { placement, ..ChakraOptions::default() };
    let groups = r#"{"1": [0, 1, 2, 3], "2": [4, 5, 6, 7]}"#;
    let of = |rank: u32, group: &str| {
        let late = if rank == 2 { 50 } else { 10 };
        let mut nodes =
            vec![compute(0, late, &[]), collective(1, 0, 40_000, group, &[0]), compute(2, 5, &[1])];
        nodes.extend((rank == 0).then(|| message(3, true, 4, 0, &[2])));
        nodes.extend((rank == 4).then(|| message(3, false, 0, 0, &[])));
        nodes
    };
    let all: Vec<_> = (0..8).map(|rank| of(rank, if rank < 4 { "1" } else { "2" })).collect();
    let (results, times) = run(&all, groups, &options);
    // Ten thousand bytes take a microsecond.
    let sum = 6.0 * (1.0 + 0.5);
    assert_eq!(results.flows.len(), 1);
    let start = results.flows[0].start.expect("started").as_micros();
    assert!((start - (50.0 + sum + 5.0)).abs() < 1e-6, "{start}");
    assert!((times.ranks[1].exposed_us - sum).abs() < 1e-6, "{:?}", times.ranks[1]);
    assert!((times.ranks[1].computing_us - 15.0).abs() < 1e-6, "{:?}", times.ranks[1]);
}

/// Collectives of one group run one after another, and those of two groups beside each other.
#[test]
fn a_group_runs_its_collectives_in_turn() {
    let groups = r#"{"1": [0, 1], "2": [1, 0]}"#;
    let lasts = |names: [&str; 2]| {
        let nodes = vec![
            collective(0, 0, 4 << 20, names[0], &[]),
            collective(1, 0, 4 << 20, names[1], &[]),
        ];
        let (results, times) = run(&[nodes.clone(), nodes], groups, &ChakraOptions::default());
        let starts = results.flows.iter().map(|flow| flow.start.expect("started").as_micros());
        (starts.filter(|start| *start == 0.0).count(), times.lasted_us)
    };
    let ((in_turn, _), (beside, _)) = (lasts(["1", "1"]), lasts(["1", "2"]));
    assert_eq!((in_turn, beside), (2, 4));
}

/// All algorithms end over hosts of two ranks each, and messages of a chunk are no longer than it.
#[test]
fn every_collective_ends_between_hosts_of_several_ranks() {
    let placement = Placement { ranks_per_host: 2, ..Placement::default() };
    for text in [
        "",
        "all-reduce=tree,all-gather=direct,reduce-scatter=direct,broadcast=tree,reduce=tree",
        "all-reduce=double-binary-tree,all-gather=halving-doubling,reduce-scatter=halving-doubling",
        "all-reduce=hierarchical,all-gather=hierarchical,reduce-scatter=hierarchical",
        "all-reduce=halving-doubling",
        "all-reduce=direct,all-to-all=ring",
    ] {
        let algorithms = text.parse().expect(text);
        let options =
            ChakraOptions { placement, algorithms, chunk: 3000, ..ChakraOptions::default() };
        let kinds: Vec<Node> =
            (0..10).map(|kind| collective(kind as u64, kind, 20_000, "0", &[])).collect();
        let (results, times) = run(&vec![kinds; 8], "{}", &options);
        assert!(results.flows.iter().all(|flow| flow.bytes <= 3000), "{text}");
        assert!(times.lasted_us > 20.0, "{text}: {times:?}");
    }
}

/// A collective in splits, of which a rank runs one at a time, takes as long as so many collectives of
/// their size one after another. Run at the same time, its splits overlap.
#[test]
fn splits_of_a_collective_follow_each_other() {
    let lasts = |bytes: u64, count: u64, splits: u32, active_splits: u32| {
        let nodes: Vec<Node> = (0..count).map(|id| collective(id, 0, bytes, "", &[])).collect();
        let settings =
            CollectiveSettings { splits, active_splits, ..CollectiveSettings::default() };
        let options = ChakraOptions { settings, ..ChakraOptions::default() };
        let (results, times) = run(&vec![nodes; 4], "{}", &options);
        (results.flows.len(), times.lasted_us)
    };
    let in_turn = lasts(1 << 20, 1, 4, 1);
    assert_eq!(in_turn, lasts(1 << 18, 4, 1, 1));
    let beside = lasts(1 << 20, 1, 4, 4);
    assert_eq!(beside.0, in_turn.0);
    assert!(beside.1 < 0.9 * in_turn.1, "{beside:?} {in_turn:?}");
    let two = lasts(1 << 20, 1, 4, 2);
    assert!(beside.1 <= two.1 && two.1 < in_turn.1, "{two:?}");
    // Every split has a byte at least, and a barrier is not divided.
    assert_eq!(lasts(3, 1, 9, 1).0, lasts(1, 3, 1, 1).0);
}

/// A ring over p ranks has 2 (p - 1) hops: each ends with the delay of its endpoint, and the half of
/// them with a reduction, which reads two buffers and writes one.
#[test]
fn endpoints_and_reductions_take_their_time() {
    let lasts = |delay, memory_rate, hosts: u32| {
        let settings = CollectiveSettings { delay, memory_rate, ..CollectiveSettings::default() };
        let placement = Placement { ranks_per_host: 8 / hosts, ..Placement::default() };
        let options = ChakraOptions { settings, placement, ..ChakraOptions::default() };
        // A message to another host, so that there is something to simulate.
        let mut all = vec![vec![collective(0, 0, 80_000, "1", &[])]; 8];
        all[0].push(message(1, true, 8, 0, &[0]));
        all.push(vec![message(0, false, 0, 0, &[])]);
        run(&all, r#"{"1": [0, 1, 2, 3, 4, 5, 6, 7]}"#, &options).1.lasted_us
    };
    for hosts in [1, 8] {
        let usual = lasts(Picos::ZERO, None, hosts);
        // Between hosts, the last delay is over before the last acknowledgement arrives, and others
        // are over once messages do not wait for acknowledgements before them.
        let (hops, tolerance) = if hosts == 1 { (14.0, 1e-6) } else { (13.0, 0.15) };
        let delayed = lasts(Picos::nanos(500), None, hosts);
        assert!((delayed - usual - hops * 0.5).abs() < tolerance, "{delayed} {usual}");
        // Thirty thousand bytes take a microsecond.
        let reduced = lasts(Picos::ZERO, Some(Rate::gbps(240)), hosts);
        assert!((reduced - usual - 7.0).abs() < tolerance, "{reduced} {usual}");
    }
}

/// The system files of ASTRA-sim's examples, and what their keys do.
#[test]
fn system_files_of_astra_sim_describe_collectives() {
    let text = r#"{
        "scheduling-policy": "LIFO",
        "endpoint-delay": 10,
        "active-chunks-per-dimension": 2,
        "preferred-dataset-splits": 4,
        "all-reduce-implementation": ["doubleBinaryTree"],
        "all-gather-implementation": ["oneDirect"],
        "reduce-scatter-implementation": ["halvingDoubling"],
        "all-to-all-implementation": ["ring"],
        "collective-optimization": "localBWAware",
        "local-mem-bw": 3350,
        "boost-mode": 0,
        "roofline-enabled": 0
    }"#;
    let system = system::parse("s.json", text).expect("a system");
    let settings = CollectiveSettings {
        splits: 4,
        active_splits: 2,
        delay: Picos::nanos(10),
        memory_rate: Some(Rate::gbps(26_800)),
    };
    assert_eq!(system.settings, settings);
    let chosen = "all-reduce=double-binary-tree,all-gather=direct,reduce-scatter=halving-doubling,all-to-all=ring";
    let chosen: CollectiveAlgorithms = chosen.parse().expect("known");
    for kind in [0, 2, 6, 7].map(|number| super::collective(number).expect("a kind")) {
        assert_eq!(system.algorithms.of(kind), chosen.of(kind), "{kind}");
    }
    let error = |text: &str| system::parse("s.json", text).expect_err(text).to_string();
    for (message, expected) in [
        (error("{\n"), "s.json:2: EOF while parsing"),
        (error("[]"), "expected a map at line 1 column 0; expected a system file of ASTRA-sim"),
        (
            error("{\n\"all-reduce-implementation\": [\"ring\", \"ring\"]}"),
            "s.json:2: all-reduce-implementation: 2 dimensions are not simulated; give one algorithm, or use --collective all-reduce=hierarchical",
        ),
        (
            error(r#"{"all-reduce-implementation": ["direct4"]}"#),
            "`direct4` is not simulated, expected ring, direct",
        ),
        (
            error(r#"{"all-reduce-implementation": "ring"}"#),
            "expected a list of one name, such as [\"ring\"]",
        ),
        (
            error(r#"{"all-to-all-implementation": ["doubleBinaryTree"]}"#),
            "`double-binary-tree` is no algorithm of all-to-all",
        ),
        (
            error(r#"{"gossip-implementation": ["ring"]}"#),
            "`gossip` is no collective: expected all-reduce",
        ),
        (
            error(r#"{"all-reduce-implementation-custom": ["x"]}"#),
            "all-reduce-implementation-custom: this key is not supported; remove it",
        ),
        (
            error(r#"{"model-shared-bus": 1}"#),
            "s.json:1: model-shared-bus: 1 is not simulated, expected 0",
        ),
        (error(r#"{"roofline-enabled": 1}"#), "roofline-enabled: 1 is not simulated, expected 0"),
        (
            error(r#"{"scheduling-policy": "EXPLICIT"}"#),
            "\"EXPLICIT\" is not simulated, expected \"FIFO\"",
        ),
        (
            error(r#"{"preferred-dataset-splits": 0}"#),
            "preferred-dataset-splits: 0 is not a whole number in 1..=65536",
        ),
        (
            error(r#"{"endpoint-delay": -1}"#),
            "endpoint-delay: -1 is not a number in 0..=1000000000",
        ),
        (error(r#"{"local-mem-bw": "3"}"#), "local-mem-bw: \"3\" is not a number in 0..=1000000"),
    ] {
        assert!(message.contains(expected), "{message}\nexpected {expected}");
    }
}

#[test]
fn computations_of_the_host_run_beside_those_of_the_accelerator() {
    let lasts = |on_host: bool| {
        let attr = [("is_cpu_op", Value::Bool(on_host))];
        let other = Node { duration_micros: 20, ..node(1, "other", 4, &[], &attr) };
        let nodes = vec![compute(0, 30, &[]), other, message(2, true, 1, 0, &[0, 1])];
        let all = [nodes, vec![message(0, false, 0, 0, &[])]];
        let (results, times) = run(&all, "{}", &ChakraOptions::default());
        (results.flows[0].start.expect("started").as_micros(), times.ranks[0].computing_us)
    };
    assert_eq!((lasts(true), lasts(false)), ((30.0, 30.0), (50.0, 50.0)));
}

/// PyTorch's traces have a node for the call of `c10d`, and one for the kernel that it starts.
#[test]
fn host_calls_of_collectives_send_no_messages() {
    let attr = [("is_cpu_op", Value::Bool(true)), ("seq_id", Value::Int64(-1))];
    let call = |kind| Node { duration_micros: 40, ..node(0, "c10d::broadcast_", kind, &[], &attr) };
    for kind in [5, 6, 7] {
        let all = vec![vec![call(kind), collective(1, 5, 9000, "", &[0])]; 2];
        let (results, times) = run(&all, "{}", &ChakraOptions::default());
        assert_eq!(results.flows.len(), 1);
        assert_eq!(results.flows[0].start.expect("started").as_micros(), 40.0);
        assert_eq!(times.ranks[0].computing_us, 0.0);
    }
}

/// Chakra's converter leaves the callers of PyTorch's nodes in their control dependencies. They may
/// be kernels that these nodes start, as in the trace of Chakra's tests.
#[test]
fn callers_in_traces_of_pytorch_are_no_dependencies() {
    let of = |schema: bool| {
        let text = Value::String("1.0.1".to_owned());
        let attr = if schema { vec![Attribute::new("schema", text)] } else { Vec::new() };
        let mut bytes = Vec::new();
        let metadata = GlobalMetadata { version: String::new(), attr };
        messages::write(&mut bytes, &metadata).expect("memory");
        let call = Node { ctrl_deps: vec![2], ..compute(1, 40, &[]) };
        for node in [call, compute(2, 2, &[1]), collective(3, 0, 1000, "", &[2])] {
            messages::write(&mut bytes, &node).expect("memory");
        }
        let schedule = read_all(&[bytes.clone(), bytes], "{}", &ChakraOptions::default());
        schedule.expect("traces").place(Placement::default(), 2).map(|(job, _)| job.lasts())
    };
    assert_eq!(of(true), Ok(Picos::micros(42)));
    assert!(of(false).expect_err("a circle").to_string().contains("wait for each other"));
}

#[test]
fn process_groups_may_come_from_pytorch() {
    let values = r#"['[{"pg_name": "5", "ranks": [0, 1]}, {"pg_name": "0", "ranks": []}]']"#;
    let inputs = Some(messages::Inputs { values: values.to_owned() });
    let init = Node { inputs, ..node(0, "## process_group:init ##", 1, &[], &[]) };
    let nodes = vec![init, collective(1, 0, 9000, "5", &[0])];
    let (results, _) =
        run(&[nodes.clone(), nodes, vec![compute(0, 1, &[])]], "{}", &ChakraOptions::default());
    assert_eq!(results.flows.len(), 4);
}

#[test]
fn mistakes_are_named_by_file_and_node() {
    let with = |attr: &[(&str, Value)]| refused(&[vec![node(3, "x", 7, &[], attr)], vec![]]);
    let lone = |node: Node| refused(&[vec![node], vec![]]);
    for (message, expected) in [
        (
            lone(compute(1, 1, &[2])),
            "job.0.et: node 1 `compute`: it depends on node 2, which is not in the file",
        ),
        (
            lone(node(1, "y", 11, &[], &[])),
            "job.0.et: node 1 `y`: it is of kind 11, expected 1 to 7",
        ),
        (
            lone(node(1, "y", 8, &[], &[])),
            "an operation of storage, which is not simulated; remove",
        ),
        (
            with(&[]),
            "job.0.et: node 3 `x`: it has no attribute comm_type, which a node of its kind needs",
        ),
        (with(&[("comm_type", Value::Int64(0))]), "node 3 `x`: it has no attribute comm_size"),
        (with(&[("comm_type", Value::Int64(10))]), "comm_type is 10, expected 0 to 9"),
        (
            with(&[("comm_type", Value::String("a".into()))]),
            "comm_type is no number, expected a whole one",
        ),
        (lone(message_to(7)), "comm_dst is 7, expected a rank from 0 to 1"),
        (
            lone(node(1, "y", 5, &[], &[("comm_src", Value::Int32(1))])),
            "comm_src is 1, expected 0: the rank of its file",
        ),
        (
            refused(&[vec![compute(1, 1, &[]), compute(1, 1, &[])]]),
            "node 1 `compute`: a node before it has the same number",
        ),
        (
            lone(collective(1, 0, 8, "9", &[])),
            "job.0.et: node 1 `sum`: there is no process group 9; list its ranks in a file (--comm-groups)",
        ),
        (
            lone(collective(1, 0, 8, "", &[])),
            "job.0.et: node 1 `sum`: it waits for rank 1, which takes part in 0 collectives of process group of all \
             ranks, and this is number 1; trace all ranks",
        ),
        (
            refused(&[vec![collective(1, 0, 8, "", &[])], vec![collective(2, 0, 9, "", &[])]]),
            "job.1.et: node 2 `sum`: collective number 1 of process group of all ranks is all-reduce of 9 bytes on rank 1, \
             and all-reduce of 8 bytes on rank 0; expected the same",
        ),
        (
            refused(&[vec![compute(1, 1, &[2]), compute(2, 1, &[1])], vec![]]),
            "job.0.et: operations that wait for each other: rank 0 (node 1 `compute`), rank 0 (node 2 `compute`)",
        ),
        (
            refused(&[
                vec![message(1, false, 1, 5, &[]), message(2, true, 1, 6, &[1])],
                vec![message(3, false, 0, 6, &[]), message(4, true, 0, 5, &[3])],
            ]),
            "job.0.et: the job cannot finish: rank 0 (node 1 `receive`) waits for a message from rank 1 with tag 5: rank 1 \
             (node 4 `send`), which would send it, waits itself; rank 1 (node 3 `receive`) waits for a message from rank 0 \
             with tag 6: rank 0 (node 2 `send`), which would send it, waits itself",
        ),
        (
            refused(&[vec![message(1, true, 1, 5, &[])], vec![]]),
            "job.0.et: rank 0 (node 1 `send`) sends to rank 1 with tag 5, and no matching receive is left",
        ),
        (refused(&[vec![compute(1, 1, &[])]]), "job.%d.et: no message between hosts"),
    ] {
        assert!(message.contains(expected), "{message}\nexpected {expected}");
    }
}

fn message_to(peer: u32) -> Node {
    message(1, true, peer, 0, &[])
}

#[test]
fn other_files_are_refused() {
    let options = ChakraOptions::default();
    let refused =
        |bytes: Vec<u8>| read_all(&[bytes], "{}", &options).expect_err("no trace").to_string();
    let other = GlobalMetadata { version: "0.0.5".to_owned(), attr: Vec::new() };
    let mut bytes = Vec::new();
    messages::write(&mut bytes, &other).expect("memory");
    assert_eq!(
        refused(bytes),
        "job.0.et: schema `0.0.5`, expected 0.0.4; convert the trace with Chakra of that version"
    );
    let schema = |text: &str| GlobalMetadata {
        version: String::new(),
        attr: vec![Attribute::new("schema", Value::String(text.to_owned()))],
    };
    assert!(check(&schema("1.0.2-chakra.0.0.4")).is_ok(), "as the converter writes it");
    assert!(check(&schema("1.0.1")).is_ok(), "PyTorch's own, as in the trace of Chakra's tests");
    assert!(check(&schema("1.0.2-chakra.0.0.7")).is_err());
    assert!(refused(Vec::new()).contains("the file is empty; expected a Chakra trace"));
    assert!(refused(b"num_ranks 2\nrank 0 {}".to_vec()).contains("job.0.et: the metadata: "));
    assert!(refused(vec![0xff; 9]).contains("its length is more than"));
    let whole = trace(&[compute(1, 5, &[]), compute(2, 5, &[1])]);
    let cut = refused(whole[..whole.len() - 3].to_vec());
    assert_eq!(
        cut,
        "job.0.et: the message behind node 1 `compute`: the file ends within it: it was cut off; write the file again"
    );
}

#[test]
fn ranks_are_the_files_that_exist() {
    let folder = std::env::temp_dir().join(format!("squall-chakra-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let training = Training { data: 1, ..small() };
    training.write(&folder, "job").expect("traces");
    let count = |name: &str| count_ranks(&folder.join(name));
    assert_eq!(count("job.%d.et"), Ok(4));
    assert!(
        count("job.0.et").expect_err("one rank").contains("expected %d in place of its number")
    );
    assert!(count("other.%d.et").expect_err("none").contains("expected one for each rank"));
    let groups = Some(folder.join("job.groups.json"));
    let options = ChakraOptions { groups, ..ChakraOptions::default() };
    assert_eq!(read(&folder.join("job.%d.et"), &options).expect("traces").ranks(), 4);
    std::fs::remove_file(folder.join("job.2.et")).expect("it was there");
    let missing = count("job.%d.et").expect_err("a gap");
    assert_eq!(missing, "rank 2 has no file, and rank 3 has; expected one for each rank from 0 on");
    let groups = folder.join("bad.json");
    for (text, expected) in [
        ("{\"1\": [0, 4]}", "bad.json: group 1 has rank 4, expected 0 to 3"),
        ("{\"1\": [0, 0]}", "group 1 has rank 0 twice, expected once"),
        ("{\"1\": []}", "group 1 has no rank, expected one at least"),
        ("\n{\"1\": 3}", "bad.json:2: "),
    ] {
        std::fs::write(&groups, text).expect("written");
        let message = read_groups(&groups, 4).expect_err(text).to_string();
        assert!(message.contains(expected), "{message}");
    }
    std::fs::remove_dir_all(&folder).expect("removed");
}

/// A training step that is small enough for a test.
fn small() -> Training {
    Training {
        layers: 4,
        hidden: 64,
        key_value: 16,
        feed_forward: 128,
        vocabulary: 100,
        sequence: 128,
        microbatches: 4,
        tensor: 2,
        pipeline: 2,
        data: 4,
        bucket: 20_000,
        tflops: 0.01,
    }
}

/// A training step of eight hosts with two ranks each sends the bytes that its numbers say.
#[test]
fn a_training_step_sends_what_its_numbers_say() {
    let training = small();
    let (groups, ranks) = (training.groups(), training.ranks());
    let traces: Vec<Vec<u8>> = (0..ranks)
        .map(|rank| {
            let mut bytes = Vec::new();
            training.write_rank(rank, &mut bytes).expect("memory");
            bytes
        })
        .collect();
    let placement = Placement { ranks_per_host: 2, ..Placement::default() };
    let options = ChakraOptions { placement, ..ChakraOptions::default() };
    let groups = serde_json::to_string(&groups).expect("text");
    let read = read_all(&traces, &groups, &options).expect("traces");
    let made = super::training(&training, &options).expect("a step");
    assert_eq!((&made.operations, &made.waits), (&read.operations, &read.waits));
    let (results, times) = simulate(read, placement);
    let sent: u64 = results.flows.iter().filter(|flow| flow.src == 0).map(|flow| flow.bytes).sum();
    let bytes = training.bytes();
    let expected = 2 * (bytes.pipeline + bytes.data);
    assert!(sent.abs_diff(expected) < expected / 1000 + 100, "{sent} bytes, expected {expected}");
    assert_eq!(training.parameters(), 4 * (2 * 64 * 80 + 3 * 64 * 128) + 2 * 100 * 64);
    let [attention, feed_forward] = training.layer_parameters();
    assert_eq!((attention, feed_forward), (10_240, 24_576));
    // Every rank computes forward and backward, three times the time of a forward pass; rounding is
    // to microseconds.
    let tokens = 128.0;
    let scores = 2.0 * tokens * tokens * 64.0;
    let flops = 2.0 * tokens * (attention + feed_forward) as f64 + scores;
    let seconds = 3.0 * flops * 2.0 * 4.0 / (0.01e12 * 2.0);
    let first = &times.ranks[0];
    assert!((first.computing_us / (seconds * 1e6) - 1.0).abs() < 0.01, "{first:?} {seconds}");
    // With four microbatches and two stages, a fifth of the time is the bubble.
    let computing = times.ranks.iter().map(|rank| rank.computing_us).fold(0.0, f64::max);
    assert!(times.lasted_us > 1.2 * computing, "{times:?}");
    assert!(times.ranks.iter().all(|rank| rank.exposed_us > 0.0 && rank.waiting_us > 0.0));
}

#[test]
fn a_training_step_with_impossible_numbers_is_refused() {
    let refused = |training: &Training| {
        super::training(training, &ChakraOptions::default()).expect_err("wrong").to_string()
    };
    let uneven = refused(&Training { layers: 5, ..small() });
    assert_eq!(uneven, "training: 5 layers in 2 stages, expected as many in each");
    let none = refused(&Training { data: 0, ..small() });
    assert_eq!(none, "training: data is 0, expected 1 to 1024");
}

/// Reads a hundred thousand nodes of many ranks.
#[test]
fn many_nodes_are_read() {
    let nodes: Vec<Node> = (0..1000)
        .map(|id| {
            let after = if id == 0 { vec![] } else { vec![id - 1] };
            if id % 100 == 99 {
                collective(id, 0, 4096, "", &after)
            } else {
                compute(id, 1, &after)
            }
        })
        .collect();
    let traces = vec![trace(&nodes); 100];
    let schedule = read_all(&traces, "{}", &ChakraOptions::default()).expect("traces");
    // Ten collectives have a begin and an end on each rank, and 198 messages of each rank.
    assert_eq!(schedule.len(), 100 * (990 + 10 * (2 + 2 * 198)));
    let (job, _) = schedule.place(Placement::default(), 100).expect("it ends");
    assert_eq!(job.lasts(), Picos::micros(990));
}

proptest! {
    /// No file makes the reader or the matching panic.
    #[test]
    fn changed_traces_are_read_or_refused(
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6),
        (length, which) in (any::<usize>(), 0usize..2),
    ) {
        let nodes = |rank: u32| vec![
            compute(4, 30, &[]),
            if rank == 0 { message(9, true, 1, 7, &[4]) } else { message(9, false, 0, 7, &[4]) },
            collective(5, 6, 100, "0", &[9]),
        ];
        let mut traces = [trace(&nodes(0)), trace(&nodes(1))];
        let bytes = &mut traces[which];
        for &(at, byte) in &changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        if length % 4 == 0 {
            bytes.truncate(length / 4 % bytes.len());
        }
        let placement = Placement { ranks_per_host: 1 + (length % 2) as u32, ..Placement::default() };
        let options = ChakraOptions { placement, ..ChakraOptions::default() };
        if let Ok(schedule) = read_all(&traces, "{}", &options) {
            let _ = schedule.place(placement, 2);
        }
    }
}
