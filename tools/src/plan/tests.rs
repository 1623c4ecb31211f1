use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use squall_base::Rate;
use squall_netsim::Picos;
use squall_netsim::facts::{Facts, base_rtt};
use squall_netsim::model::{Failure, Switching};
use squall_netsim::output::text::number;
use squall_netsim::output::{FlowResult, Run, files};
use squall_netsim::topology::Topology;
use squall_netsim::workload::Pattern;

/// A plan of four points that takes almost no time to run.
const PLAN: &str = r#"title = "t"
seeds = [1, 2]

[topology]
kind = "star"
hosts = 4

[workload]
kind = "incast"
bytes = "16KiB"

[sweep]
"workload.senders" = [1, 3]
[sweep.transport]
nscc = { "transport.cc" = "nscc" }
none = { "transport.cc" = "none" }

[quick.sweep]
"workload.senders" = [3]

[[expect]]
statement = "s"
metric = "max_fct"
of = { transport = "nscc" }
over = { transport = "none" }
at_most = 2.0
"#;

fn parse(text: &str) -> Result<Plan, PlanError> {
    Plan::parse(Path::new("p.toml"), text.to_owned(), false)
}

fn packets(point: &Point) -> &PacketScene {
    match &point.scene {
        Scene::Packets(scene) => scene,
        Scene::CreditNetwork(_) => panic!("a scene of packets"),
    }
}

/// Returns the first mistake, found when the plan is read or when a point is prepared.
fn point_error(text: &str) -> String {
    let plan = match parse(text) {
        Ok(plan) => plan,
        Err(error) => return error.to_string(),
    };
    for point in &plan.points {
        if let Err(error) = point.scene.experiment(Path::new(""), 1) {
            return plan.blame(point, &error).to_string();
        }
    }
    "nothing wrong".to_owned()
}

#[test]
fn a_sweep_has_every_combination() {
    let plan = parse(PLAN).expect("a plan");
    assert_eq!((plan.points.len(), plan.runs(), plan.quick), (4, 8, true));
    let labels = |plan: &Plan| -> Vec<String> {
        plan.points
            .iter()
            .map(|point| point.labels.values().cloned().collect::<Vec<_>>().join(" "))
            .collect()
    };
    assert_eq!(labels(&plan), ["1 nscc", "1 none", "3 nscc", "3 none"]);
    let WorkloadTable::Generated(spec) = &packets(&plan.points[2]).workload else {
        panic!("an incast is generated");
    };
    assert!(matches!(spec.pattern, Pattern::Incast { senders: 3, .. }), "{spec:?}");
    let quick = Plan::parse(Path::new("p.toml"), PLAN.to_owned(), true).expect("a plan");
    assert_eq!((labels(&quick).join(","), quick.seeds), ("3 nscc,3 none".into(), vec![1]));
}

#[test]
fn mistakes_are_named_by_file_and_line() {
    for (from, to, expected) in [
        // Texts that are no TOML, or have tables that plans do not know.
        ("title = \"t\"", "title = ", "p.toml:1: "),
        (
            "hosts = 4",
            "hosts = \"four\"",
            "p.toml:6: topology.hosts: invalid type: string \"four\", expected u32",
        ),
        (
            "hosts = 4",
            "host = 4",
            "p.toml:6: topology.host: `star` has no key `host`; it has gbps, planes, link_ns, switch_ns, hosts",
        ),
        (
            "bytes = \"16KiB\"",
            "bytes = \"16 pages\"",
            "p.toml:10: workload.bytes: `16 pages` is no size",
        ),
        ("seeds = [1, 2]", "seeds = []", "p.toml:2: the list of seeds is empty"),
        // Invalid axes and conditions.
        ("= [1, 3]", "= 1", "p.toml:13: sweep.workload.senders: a integer"),
        ("\"workload.senders\" = [1", "\"workload.sender\" = [1", "p.toml:13: "),
        ("nscc = { \"transport.cc\" = \"nscc\" }", "nscc = 1", "p.toml:14: "),
        (
            "\"max_fct\"",
            "\"max\"",
            "p.toml:23: metric: no metric is called `max`; there are max_fct",
        ),
        (
            "over = { transport",
            "over = { trans",
            "over: `trans` is no axis of the sweep; there are",
        ),
        (
            "over = { transport = \"none\"",
            "over = { transport = \"x\"",
            "is never `x`; it is one of nscc, none",
        ),
        ("at_most = 2.0", "", "expected a bound"),
    ] {
        let text = PLAN.replacen(from, to, 1);
        assert_ne!(text, PLAN, "{from}");
        let error = parse(&text).expect_err(to).to_string();
        assert!(error.contains(expected), "{to}: {error}");
    }
    for (from, to, expected) in [
        // Plans that can be read and are invalid.
        ("\"star\"", "\"sphere\"", "p.toml:5: topology.kind: `sphere`, expected fat-tree"),
        ("hosts = 4", "", "p.toml:4: topology.hosts: missing, and needed by `star`"),
        ("\"incast\"", "\"outcast\"", "p.toml:9: workload.kind: `outcast`, expected permutation"),
        ("= [1, 3]", "= [1, 4]", "workload: senders = 4 does not fit: 1 to 3 (at senders = 4"),
        ("[workload]", "[network]\nqueue_bdp = 0.0\n[workload]", "p.toml:9: network.queue_bdp: 0"),
        (
            "[workload]",
            "[network]\necn = [0.8]\n[workload]",
            "p.toml:9: network.ecn: thresholds [0.8], expected",
        ),
        (
            "[workload]",
            "[[failure]]\nwhat = \"link-down\"\nlink = \"a-b\"\n[workload]",
            "p.toml:10: failure[0].link: no link is called `a-b`; the last is `h3-star`",
        ),
        ("hosts = 4", "file = \"gone.topo\"", "p.toml:6: topology.file: `star` has no key `file`"),
        (
            "hosts = 4",
            "hosts = 4\nspines = 3",
            "p.toml:7: topology.spines: `star` has no key `spines`; it has gbps, planes, link_ns, switch_ns, hosts",
        ),
        (
            "bytes = \"16KiB\"",
            "bytes = \"16KiB\"\nwindow = 4",
            "p.toml:11: workload.window: `incast` has no key `window`",
        ),
        (
            "\"incast\"",
            "\"staggered\"",
            "p.toml:13: workload.senders: `staggered` has no key `senders`; it has ",
        ),
        (
            "bytes = \"16KiB\"",
            "bytes = \"16KiB\"\nlevels = 0",
            "p.toml:8: workload: levels = 0 does not fit: one at least",
        ),
        (
            "[workload]",
            "[[failure]]\nwhat = \"link-up\"\nlink = \"h3-star\"\ngbps = 1\n[workload]",
            "p.toml:11: failure[0].gbps: `link-up` has no key `gbps`",
        ),
        (
            "[workload]",
            "[network]\nlossless = true\ntrimming = true\n[workload]",
            "network.trimming: expected `trimming` or `lossless`, not both",
        ),
        (
            "[workload]",
            "[network]\nqueue_bdp = 5.0\necn_bdp = [1.0, 9.0]\n[workload]",
            "p.toml:10: network.ecn_bdp: thresholds [1.0, 9.0], expected at most the queue, ",
        ),
        (
            "[workload]",
            "[transport]\nrto_us = 0\n[workload]",
            "p.toml:9: transport.rto_us: a timeout of 0, expected 1 microsecond or more",
        ),
        (
            "hosts = 4",
            "hosts = 4\ngbps = 0",
            "p.toml:7: topology.gbps: 0 Gb/s, expected 1 to 100000",
        ),
        (
            "hosts = 4",
            "hosts = 4\nlink_ns = 1000000001",
            "p.toml:7: topology.link_ns: 1000000001 ns, expected at most 1000000000",
        ),
        ("hosts = 4", "hosts = 4294967295", "4294967295 links; at most 16777215 are possible"),
        (
            "\"star\"\nhosts = 4",
            "\"leaf-spine\"\nleaves = 65536\nspines = 65536\nrack = 65536",
            "links; at most 16777215 are possible",
        ),
        (
            "[workload]",
            "[observe]\nqueues_us = 1e-9\n[workload]",
            "p.toml:9: observe.queues_us: 0.000000001 us is out of range 0.001 to",
        ),
        (
            "[workload]",
            "[[failure]]\nwhat = \"rate\"\nlink = \"h3-star\"\ngbps = 0\n[workload]",
            "p.toml:11: failure[0].gbps: 0 Gb/s, expected 1 to 100000",
        ),
    ] {
        let error = point_error(&PLAN.replacen(from, to, 1));
        assert!(error.contains(expected), "{to}: {error}");
    }
    let gone = Plan::read(Path::new("gone.toml"), false).expect_err("no such file");
    assert!(gone.to_string().starts_with("gone.toml: cannot read"), "{gone}");
}

#[test]
fn results_come_in_order_whoever_finishes_first() {
    let plan = parse(PLAN).expect("a plan");
    let run = |threads| {
        let options = RunOptions { threads, ..RunOptions::default() };
        let (mut runs, error) = run_plan(&plan, &options, &AtomicBool::new(false), &());
        assert!(error.is_none(), "{error:?}");
        for run in &mut runs {
            (run.totals.wall_s, run.totals.peak_bytes) = (0.0, 0);
        }
        runs
    };
    let runs = run(1);
    assert_eq!(runs.len(), 8);
    assert_eq!(runs, run(4));
    assert_eq!((runs[0].name.as_str(), runs[1].seed), ("1 nscc seed 1", 2));
    let verdicts = judge(&plan, &runs);
    let words: Vec<&str> = verdicts.iter().map(Verdict::word).collect();
    assert_eq!(words, ["pass", "pass"], "{verdicts:?}");
}

#[test]
fn parts_of_a_plan_are_together_the_whole() {
    let plan = parse(PLAN).expect("a plan");
    let run = |shard: Option<&str>| {
        let shard = shard.map(|text| text.parse::<Shard>().expect("a part"));
        let options = RunOptions { threads: 1, shard, ..RunOptions::default() };
        let (mut runs, error) = run_plan(&plan, &options, &AtomicBool::new(false), &());
        assert!(error.is_none(), "{error:?}");
        for run in &mut runs {
            (run.totals.wall_s, run.totals.peak_bytes) = (0.0, 0);
        }
        assert!(shard.is_none_or(|shard| shard.share(plan.runs()) == runs.len()));
        runs
    };
    let whole = run(None);
    let mut parts: Vec<Run> =
        ["3/3", "1/3", "2/3"].into_iter().flat_map(|part| run(Some(part))).collect();
    assert_eq!(merge(&plan, parts.clone()), (whole.clone(), vec![]));
    // Duplicates count once, runs of another plan are dropped, and missing runs are named.
    parts.push(whole[0].clone());
    parts.push(Run { seed: 77, ..whole[0].clone() });
    parts.retain(|run| run.name != whole[3].name);
    let (merged, missing) = merge(&plan, parts);
    assert_eq!((merged.len(), missing), (7, vec![whole[3].name.clone()]));
    for text in ["0/3", "4/3", "1", "a/b", "1/0", ""] {
        let error = text.parse::<Shard>().expect_err(text);
        assert!(error.contains("1/4 to 4/4"), "{error}");
    }
}

#[test]
fn results_are_on_disk_and_an_interrupt_keeps_them() {
    /// Asks to stop when the third run ends.
    struct StopAfter<'a>(&'a AtomicBool);
    impl Progress for StopAfter<'_> {
        fn finished(&self, run: usize) {
            if run == 2 {
                self.0.store(true, Ordering::Relaxed);
            }
        }
    }
    let folder = std::env::temp_dir().join(format!("squall-plan-{}", std::process::id()));
    let plan = parse(PLAN).expect("a plan");
    let stop = AtomicBool::new(false);
    let out = Some(folder.clone());
    let parquet = cfg!(feature = "parquet");
    let options = RunOptions { threads: 1, out, parquet, ..RunOptions::default() };
    let (runs, error) = run_plan(&plan, &options, &stop, &StopAfter(&stop));
    assert!(error.is_none() && runs.len() == 3, "{error:?} {}", runs.len());
    assert_eq!(files::read_runs(&folder.join("runs")).expect("whole files"), runs);
    let sums = std::fs::read_to_string(folder.join("runs.csv")).expect("there");
    let (comment, sums) = sums.split_once('\n').expect("a comment");
    assert!(
        comment.starts_with("# {") && comment.contains("\"topology.kind\":\"star\""),
        "{comment}"
    );
    assert_eq!(sums.lines().count(), 4);
    for table in ["runs.parquet", "flows.parquet"].into_iter().filter(|_| parquet) {
        let file = std::fs::read(folder.join(table)).expect("there");
        assert!(file.starts_with(b"PAR1") && file.ends_with(b"PAR1"), "{table}");
    }
    std::fs::remove_dir_all(&folder).expect("removed");

    // The folder cannot be created; the results are still returned.
    let out = Some(PathBuf::from("/dev/null/x"));
    let options = RunOptions { threads: 2, out, ..RunOptions::default() };
    let (runs, error) = run_plan(&plan, &options, &AtomicBool::new(false), &());
    assert!(matches!(error, Some(RunnerError::File(_))) && !runs.is_empty(), "{error:?}");
}

/// Returns a run of a point whose only flow took `fct_us`.
fn took(labels: &[(&str, &str)], fct_us: f64) -> Run {
    let flow = FlowResult { id: 1, bytes: 1, start_us: Some(0.0), ..FlowResult::default() };
    let parameters: BTreeMap<String, String> =
        labels.iter().map(|(axis, value)| ((*axis).to_owned(), (*value).to_owned())).collect();
    Run { parameters, flows: vec![FlowResult { fct_us: Some(fct_us), ..flow }], ..Run::default() }
}

fn verdict(expect: &str, none_at_3: f64) -> Verdict {
    let begin = PLAN.find("of = {").expect("there");
    let plan = parse(&format!("{}{expect}", &PLAN[..begin])).expect(expect);
    let runs = [
        took(&[("senders", "1"), ("transport", "nscc")], 10.0),
        took(&[("senders", "1"), ("transport", "none")], 5.0),
        took(&[("senders", "3"), ("transport", "nscc")], 30.0),
        took(&[("senders", "3"), ("transport", "none")], none_at_3),
    ];
    judge(&plan, &runs).pop().expect("one")
}

#[test]
fn statements_are_judged_at_their_worst_point() {
    let ratio = "of = { transport = \"nscc\" }\nover = { transport = \"none\" }\n";
    // 10 / 5 = 2 and 30 / 20 = 1.5.
    let held = verdict(&format!("{ratio}at_most = 2.0"), 20.0);
    assert_eq!((held.pass, held.expected.as_str()), (Some(true), "max_fct <= 2x"));
    assert_eq!(held.measured, "2x 1 nscc/none (worst of 2)");
    assert_eq!(verdict(&format!("{ratio}at_most = 1.9"), 20.0).word(), "FAIL");
    let known = verdict(&format!("{ratio}at_most = 1.9\nexplained = \"why\""), 20.0);
    assert_eq!(known.word(), "explained");
    // At least 1.8 holds at one of them.
    assert_eq!(verdict(&format!("{ratio}at_least = 1.8"), 20.0).word(), "FAIL");
    let any = verdict(&format!("{ratio}at_least = 1.8\nany = true"), 20.0);
    assert_eq!((any.word(), any.measured.as_str()), ("pass", "2x 1 nscc/none (best of 2)"));
    // The differences are 10 - 5 and 30 - 20.
    let less = "of = { transport = \"nscc\" }\nminus = { transport = \"none\" }\nat_most = 9.0";
    assert_eq!(verdict(less, 20.0).measured, "10 3 nscc/none (worst of 2)");
    // The differences from `none`, 30 - 20 and 10 - 20, have the ratio -1.
    let part = "of = { transport = \"nscc\", senders = 3 }\nover = { senders = 1 }\nminus = { transport = \"none\" }\n";
    let part = verdict(&format!("{part}at_most = 0.0"), 20.0);
    assert_eq!((part.word(), part.measured.as_str()), ("pass", "-1x 3/1 nscc less 3 none"));
    // The bound is absolute, at one point. A value that is not finite does not pass.
    let alone =
        "where = { senders = 3 }\nof = { transport = \"nscc\" }\nat_least = 29\nat_most = 31";
    assert_eq!(verdict(alone, 20.0).word(), "pass");
    assert_eq!(verdict(&format!("{ratio}at_most = 2.0"), f64::NAN).word(), "FAIL");
}

#[test]
fn what_is_measured_comes_with_its_interval_over_the_seeds() {
    let begin = PLAN.find("of = {").expect("there");
    let ratio = "of = { transport = \"nscc\" }\nover = { transport = \"none\" }\nat_most = 9.0";
    let plan = parse(&format!("{}{ratio}", &PLAN[..begin])).expect("a plan");
    let run = |seed, transport, fct| Run {
        seed,
        ..took(&[("senders", "1"), ("transport", transport)], fct)
    };
    // Ratios of 2, 3 and 4: their deviation is 1, and t with two degrees of freedom 4.303.
    let mut runs: Vec<Run> = (1..=3)
        .flat_map(|seed| [run(seed, "nscc", (seed + 1) as f64), run(seed, "none", 1.0)])
        .collect();
    let half = 4.303 / 3f64.sqrt();
    let verdict = judge(&plan, &runs).pop().expect("one");
    assert_eq!(verdict.measured, format!("3x ± {} 1 nscc/none", number(half)));
    // A single seed gives no interval.
    runs.truncate(2);
    assert_eq!(judge(&plan, &runs).pop().expect("one").measured, "2x 1 nscc/none");
}

#[test]
fn a_quick_run_leaves_out_what_is_about_the_whole_one() {
    let begin = PLAN.find("of = {").expect("there");
    let text =
        format!("{}of = {{ transport = \"nscc\" }}\nat_most = 9.0\nfull = true", &PLAN[..begin]);
    let count = |quick| {
        let plan = Plan::parse(Path::new("p.toml"), text.clone(), quick).expect("a plan");
        plan.expectations.len()
    };
    assert_eq!((count(false), count(true)), (1, 0));
}

#[test]
fn ideal_times_by_hand() {
    // A star of 100 Gb/s: three senders of 10 packets of 4032 payload bytes each to one host. 30
    // packets of 4096 bytes take 30 x 327.68 ns; the round trip is two links of 1 us there and two
    // back, two transmissions of a packet and two of a 64-byte ACK (5.12 ns), of which the last
    // packet's own on the busy link is counted already: 4 us + 327.68 + 10.24 ns more.
    let topology = Topology::star(4, Rate::gbps(100), Picos::micros(1), Picos::ZERO);
    let text = "id,src,dst,bytes,start_us\n1,1,0,40320,0\n2,2,0,40320,0\n3,3,0,40320,0\n";
    let workload =
        squall_netsim::workload::trace::parse(text.as_bytes(), Path::new("t"), 4).expect("read");
    let facts =
        Facts::new(&topology, &workload, 4096, 64, topology.host_rate(), Switching::default());
    assert_eq!(facts.base_rtt, Picos(4_000_000 + 2 * 327_680 + 2 * 5_120));
    assert_eq!(facts.ideal, Picos(30 * 327_680 + 4_000_000 + 327_680 + 10_240));
    assert_eq!(base_rtt(&topology, 4096, Switching::default()), facts.base_rtt);
    // The last two hosts are five times as far away: the longest route is between them.
    let mut far = topology.clone();
    far.links.iter_mut().skip(2).for_each(|link| link.latency = Picos::micros(5));
    assert_eq!(base_rtt(&far, 4096, Switching::default()), facts.base_rtt + Picos::micros(16));

    // A flow of 1000 bytes is one packet of 1064, which takes 85.12 ns a link.
    let text = "id,src,dst,bytes\n1,1,0,1000\n";
    let workload =
        squall_netsim::workload::trace::parse(text.as_bytes(), Path::new("t"), 4).expect("read");
    let facts =
        Facts::new(&topology, &workload, 4096, 64, topology.host_rate(), Switching::default());
    assert_eq!(facts.ideal, Picos(4_000_000 + 2 * 85_120 + 2 * 5_120));

    // Two racks of two with one uplink: both flows across share it.
    let topology =
        Topology::leaf_spine(2, 1, 2, Rate::gbps(100), Rate::gbps(100), Picos::ZERO, Picos::ZERO);
    let text = "id,src,dst,bytes,start_us\n1,0,2,40320,0\n2,1,3,40320,0\n";
    let workload =
        squall_netsim::workload::trace::parse(text.as_bytes(), Path::new("t"), 4).expect("read");
    let facts =
        Facts::new(&topology, &workload, 4096, 64, topology.host_rate(), Switching::default());
    assert_eq!(facts.ideal, Picos(20 * 327_680 + 3 * 327_680 + 4 * 5_120));
    // In two planes, they share two uplinks.
    let topology = topology.in_planes(2).expect("two planes");
    let rate = topology.total_host_rate();
    let facts = Facts::new(&topology, &workload, 4096, 64, rate, Switching::default());
    assert_eq!(facts.ideal, Picos(10 * 327_680 + 3 * 327_680 + 4 * 5_120));
}

#[test]
fn fat_trees_have_the_oversubscription_asked_for() {
    for (hosts, tiers, over) in [(128, 3, 1), (128, 3, 8), (1024, 3, 4), (128, 2, 4), (1024, 2, 8)]
    {
        let kind =
            TopologyKind::FatTree { hosts, tiers, oversubscription: over, rack: None, pod: None };
        let table = TopologyTable::Built { kind, links: LinkTable::default() };
        let topology = table.build(Path::new("")).expect("a tree");
        assert_eq!(topology.hosts, hosts);
        let top = topology.switches.iter().map(|switch| switch.tier).max().expect("switches");
        let into_top = topology.links.iter().filter(|link| match link.b {
            squall_netsim::topology::Node::Switch(at) => topology.switches[at as usize].tier == top,
            squall_netsim::topology::Node::Host(_) => false,
        });
        assert_eq!(into_top.count() as u32 * over, hosts, "{hosts} {tiers} {over}");
    }
}

/// Every plan of the program is accepted, in its full and its quick form. Every point of the quick form and the first one
/// of the full form can be built, except those of the large plans, for which that takes long.
#[test]
fn our_plans_are_sound() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans");
    let mut count = 0;
    let files = |folder: &Path, build: bool| {
        let entries = std::fs::read_dir(folder).expect("plans");
        entries.map(move |entry| (entry.expect("an entry").path(), build))
    };
    for (file, build) in files(&folder, true).chain(files(&folder.join("large"), false)) {
        if file.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        for quick in [false, true] {
            let plan = Plan::read(&file, quick).expect("a sound plan");
            assert!(!plan.expectations.is_empty() && !plan.source.is_empty(), "{}", plan.name);
            let built = match (build, quick) {
                (false, _) => 0,
                (true, false) => 1,
                (true, true) => plan.points.len(),
            };
            for point in &plan.points[..built] {
                if let Err(error) = point.scene.experiment(&plan.folder, plan.seeds[0]) {
                    panic!("{}", plan.blame(point, &error));
                }
            }
        }
        count += 1;
    }
    assert!(count >= 40, "{count} plans");
}

#[test]
fn links_of_the_top_tier_are_slowed_as_in_htsim() {
    let text = "title = \"t\"\n[topology]\nkind = \"fat-tree\"\nhosts = 16\n[workload]\nkind = \"permutation\"\n\
                bytes = 4096\n[[failure]]\nwhat = \"slow\"\nlinks = 3\n";
    let plan = Plan::parse(Path::new("p.toml"), text.to_owned(), false).expect("sound");
    let config = packets(&plan.points[0]).prepare(Path::new(""), 1).expect("a scene").config;
    let name = |port: u32| config.topology.port_name(port);
    let slow: Vec<_> = config
        .failures
        .iter()
        .map(|event| match event.what {
            Failure::Degrade(port, rate) => (name(port), rate),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = ["core0->agg0", "core1->agg0", "core2->agg1"];
    assert_eq!(slow, expected.map(|name| (name.to_owned(), Rate::gbps(25))));
    let share = text.replace("links = 3", "links = 99");
    let plan = Plan::parse(Path::new("p.toml"), share, false).expect("sound");
    let error = packets(&plan.points[0]).prepare(Path::new(""), 1).expect_err("too many");
    assert_eq!(error.to_string(), "failure[0].links: 99 links, but the top tier has 16");
}

/// A plan that counts flits.
const FLITS: &str = r#"title = "t"

[topology]
kind = "mc"
hosts = 64

[flits]
senders = 2
transactions = 2

[sweep]
"flits.control" = ["none", "3cpo"]

[[expect]]
statement = "s"
metric = "max_latency"
at_most = 2000
at_least = 1090
"#;

#[test]
fn a_plan_of_flits_runs_and_is_judged() {
    let plan = parse(FLITS).expect("a plan");
    let options = RunOptions { threads: 1, ..RunOptions::default() };
    let (runs, error) = run_plan(&plan, &options, &AtomicBool::new(false), &());
    assert!(error.is_none(), "{error:?}");
    let words: Vec<&str> = judge(&plan, &runs).iter().map(Verdict::word).collect();
    assert_eq!(words, ["pass", "pass"], "every sender is done, and what is expected holds");
    let operations = runs[1].operations.expect("there are");
    assert_eq!((runs[1].flows.len(), operations.count, operations.effective_flits), (2, 8, 80));
    let stated = runs[1].provenance.as_ref().expect("stated");
    assert_eq!(stated.settings.get("flits.control"), Some("3cpo"));
    assert_eq!(stated.settings.get("workload.jobs"), None);
    assert_eq!(stated.derived.get("flits.cycle_ps"), Some("640"));
    assert_eq!(stated.derived.get("flits.control.ai"), Some("50"));
    let json = serde_json::to_string(&runs[1]).expect("JSON");
    assert_eq!(serde_json::from_str::<Run>(&json).expect("read").operations, runs[1].operations);
}

#[test]
fn mistakes_in_flits_are_named_by_line() {
    for (from, to, expected) in [
        ("senders = 2", "senders = 65", "p.toml:8: flits.senders: 65, expected 1 to 64"),
        (
            "senders = 2",
            "sender = 2",
            "p.toml:8: flits.sender: there is no key `sender`; there are control",
        ),
        ("transactions = 2", "buffer = 1", "p.toml:9: flits.buffer: 1, expected 9"),
        ("\"none\", ", "", "nothing wrong"),
        ("\"none\"", "\"4cpo\"", "no injection control is called \"4cpo\", allowed: none, window"),
        (
            "hosts = 64",
            "hosts = 32",
            "p.toml:5: topology.hosts: 32 accelerators, expected 64 or 128",
        ),
        ("\"mc\"", "\"star\"", "topology: lower switches that lead"),
        (
            "[flits]",
            "[workload]\nbytes = 1\n[flits]",
            "p.toml:7: workload: not allowed beside `flits`",
        ),
        (
            "[flits]",
            "[transport]\ncc = \"swift\"\n[flits]",
            "p.toml:7: transport: not allowed beside",
        ),
    ] {
        let text = FLITS.replacen(from, to, 1);
        assert_ne!(text, FLITS, "{from}");
        let error = match parse(&text) {
            Err(error) => error.to_string(),
            Ok(_) => point_error(&text),
        };
        assert!(error.contains(expected), "{to}: {error}");
    }
}
