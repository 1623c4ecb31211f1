//! The `squall` command line as a user meets it: a process, its output and its exit status.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

#[path = "cli/training.rs"]
mod training;

const TOPO: &str = "\
Nodes 16
Tiers 2
Podsize 16
Tier 0
Downlink_speed_Gbps 100
Radix_Down 4
Radix_Up 4
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 100
Radix_Down 4
Downlink_Latency_ns 1000
";
const CM: &str = "\
Nodes 16
Connections 3
Triggers 1
0->5 id 1 start 0 size 200000 send_done_trigger 1
1->5 id 2 start 0 size 200000
5->9 id 3 trigger 1 size 100000
trigger id 1 oneshot
";

/// A folder of its own for a test, with the two files above; removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("squall-cli-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        let folder = Self(path);
        folder.write("t.topo", TOPO);
        folder.write("w.cm", CM);
        folder
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }

    fn squall(&self, words: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
        command.env("SQUALL_BUILT_FROM", "0123456789ab");
        command.args(words.split_whitespace()).current_dir(&self.0).output().expect("runs")
    }

    /// Runs a command that starts a job, with a provider that the dynamic loader accepts and no job uses.
    fn job(&self, words: &str) -> Output {
        self.job_command(words).output().expect("runs")
    }

    fn job_command(&self, words: &str) -> Command {
        let provider = self.0.join("provider");
        std::fs::create_dir_all(&provider).expect("room");
        let object = provider.join("libsquall-fi.so");
        if !object.exists() {
            let library = std::fs::read_to_string("/proc/self/maps").expect("Linux");
            let library = library.lines().find_map(|line| {
                line.split_whitespace().nth(5).filter(|name| name.contains("libc.so"))
            });
            std::os::unix::fs::symlink(library.expect("a C library"), &object).expect("room");
        }
        // A shell without job control ignores some signals in what it starts in the background, and scripts cannot trap
        // these.
        let mut command = Command::new("env");
        command.arg("--default-signal").arg(env!("CARGO_BIN_EXE_squall"));
        command.env("FI_PROVIDER_PATH", provider).env_remove("FI_PROVIDER");
        command.args(words.split_whitespace()).current_dir(&self.0);
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {} {}", text(&output.stdout), text(&output.stderr))
    })
}

#[test]
fn threads_change_nothing_but_the_time() {
    let folder = Folder::new("threads");
    let words = "sim --topo t.topo --cm w.cm --quiet --format csv";
    let flows = |threads: &str| {
        let output = folder.squall(&format!("{words} {threads}"));
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "");
        // Behind what says where it comes from.
        text(&output.stdout).split_once('\n').expect("a comment").1.to_owned()
    };
    let alone = flows("");
    assert_eq!(alone.lines().count(), 4);
    for threads in ["--threads 1", "--threads 2", "--threads 9"] {
        assert_eq!(flows(threads), alone);
    }
    let sampled = folder.squall(&format!("{words} --threads 2 --sample 5"));
    let said = text(&sampled.stderr);
    assert!(said.contains("one thread for --threads 2: samples"), "{said}");
    // Each of two flows starts others at the other end of the network when it is done, as a barrier does.
    let cm = "Nodes 16\nConnections 4\nTriggers 1\n0->5 id 1 start 0 size 9000 send_done_trigger 1\n\
        15->4 id 2 start 0 size 9000 send_done_trigger 1\n0->6 id 3 trigger 1 size 9000\n\
        15->9 id 4 trigger 1 size 9000\ntrigger id 1 barrier count 2\n";
    folder.write("barrier.cm", cm);
    let joined = folder.squall("sim --topo t.topo --cm barrier.cm --quiet --threads 2");
    assert!(joined.status.success(), "{}", text(&joined.stderr));
    assert!(text(&joined.stderr).contains("make each other send"), "{}", text(&joined.stderr));
    let refused = folder.squall(&format!("{words} --threads 0"));
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
}

#[test]
fn a_word_is_a_topology_and_a_load() {
    let folder = Folder::new("words");
    let run = folder.squall("sim --quiet --topo star:9 --load incast:8x64KiB --format json");
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let result: serde_json::Value = serde_json::from_slice(&run.stdout).expect("JSON");
    assert!(result.is_object() && text(&run.stdout).contains("65536"), "{result}");
    let run = folder.squall("sim --quiet --topo fat-tree:16:1,tiers=2 --load permutation:64KiB");
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let run = folder.squall("sim --quiet --topo fattree:16 --load incast:8x64KiB");
    assert_eq!(run.status.code(), Some(2));
    assert!(
        text(&run.stderr).contains("fattree:16: there is no such file"),
        "{}",
        text(&run.stderr)
    );
    let run = folder.squall("sim --quiet --topo star:9,speed=3 --load incast:8x64KiB");
    assert_eq!(run.status.code(), Some(2));
    assert!(
        text(&run.stderr).contains("star:9,speed=3: topology.speed: `star` has no key `speed`"),
        "{}",
        text(&run.stderr)
    );
}

#[test]
fn sim_prints_what_it_promises_in_four_forms() {
    let folder = Folder::new("sim");
    let words = "sim --topo t.topo --cm w.cm --cc nscc --lb reps --loss trim,ooo,probe,rto \
                 --mtu 4096 --seed 1 --format";
    let output = folder.squall(&format!("{words} json"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let results = json(&output);
    let flows = results["flows"].as_array().expect("flows");
    assert_eq!(flows.len(), 3);
    for (flow, bytes) in flows.iter().zip([200_000, 200_000, 100_000]) {
        let keys: Vec<&str> =
            flow.as_object().expect("object").keys().map(String::as_str).collect();
        let promised = [
            "alone_us",
            "bytes",
            "dst",
            "fct_us",
            "id",
            "marked",
            "packets",
            "received_us",
            "retransmitted",
            "src",
            "start_us",
        ];
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, promised);
        assert_eq!(flow["bytes"], bytes);
        assert!(flow["fct_us"].as_f64().expect("finished") > 16.0);
    }
    // The third starts when the first is done.
    let done = flows[0]["fct_us"].as_f64().expect("finished");
    assert!(flows[2]["start_us"].as_f64().expect("started") >= done - 1.0);
    for key in
        ["packets", "retransmitted", "trimmed", "nacks", "acks", "events", "wall_s", "peak_bytes"]
    {
        assert!(results["totals"][key].is_number(), "{key}");
    }
    // Packets of 4032 payload bytes: 50 + 50 + 25.
    assert_eq!(results["totals"]["packets"], 125);

    let csv = folder.squall(&format!("{words} csv"));
    let csv = text(&csv.stdout);
    let (comment, csv) = csv.split_once('\n').expect("a comment");
    let made = comment.strip_prefix("# ").expect("a comment");
    let made: serde_json::Value = serde_json::from_str(made).expect("JSON");
    assert_eq!(made["settings"], results["provenance"]["settings"]);
    assert!(csv.starts_with("id,src,dst,bytes,start_us,fct_us,retransmitted"), "{csv}");
    assert_eq!(csv.lines().count(), 4);
    // To a pipe; into a terminal it is refused.
    let parquet = folder.squall(&format!("{words} parquet"));
    if cfg!(feature = "parquet") {
        assert!(parquet.stdout.starts_with(b"PAR1") && parquet.stdout.ends_with(b"PAR1"));
    } else {
        let refused = text(&parquet.stderr);
        assert!(
            refused.contains("built without the feature `parquet`; build it with"),
            "{refused}"
        );
        assert_eq!(parquet.status.code(), Some(2));
    }
    let table = folder.squall(&format!("{words} text"));
    assert!(text(&table.stdout).starts_with("3 of 3 flows finished"), "{}", text(&table.stdout));

    // The same seed gives the same flows.
    let again = json(&folder.squall(&format!("{words} json")));
    assert_eq!(again["flows"], results["flows"]);
}

#[test]
fn a_result_says_where_it_came_from_and_a_report_what_differs() {
    let folder = Folder::new("provenance");
    let words = "sim --quiet --topo star:9 --load incast:8x64KiB,start_us=3 --format json --out";
    for (name, more) in [("a", "--cc nscc"), ("b", "--cc swift:base_target_us=30 --seed 2")] {
        let run = folder.squall(&format!("{words} {name}.json {more}"));
        assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    }
    let read = |name: &str| std::fs::read_to_string(folder.0.join(name)).expect(name);
    let b: serde_json::Value = serde_json::from_str(&read("b.json")).expect("JSON");
    let made = &b["provenance"];
    assert_eq!(made["commit"], option_env!("SQUALL_COMMIT").unwrap_or("0123456789ab"));
    assert_eq!(made["version"], env!("CARGO_PKG_VERSION"));
    let command = made["command"].as_str().expect("a command");
    assert!(command.ends_with("--cc swift:base_target_us=30 --seed 2"), "{command}");
    assert!(made["date"].as_str().expect("a date").ends_with('Z'));
    for (key, value) in [
        ("topology.kind", "star"),
        ("topology.hosts", "9"),
        ("topology.gbps", "100"),
        ("topology.link_ns", "1000"),
        ("workload.senders", "8"),
        ("workload.bytes", "65536"),
        ("workload.start_us", "3"),
        ("workload.jobs", "1"),
        ("network.trimming", "true"),
        ("transport.cc", "swift:base_target_us=30"),
        ("transport.lb", "reps-avoid"),
        ("transport.paths", "64"),
        ("transport.mtu", "4096"),
        ("seed", "2"),
    ] {
        assert_eq!(made["settings"][key], value, "{key}");
    }
    assert_eq!(made["derived"]["transport.cc.base_target_us"], "30", "{made}");
    assert!(made["derived"]["network.queue_bytes"].is_string(), "{made}");

    let run = folder.squall("report a.json b.json -o both.html --svg figures --metrics max_fct");
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let page = read("both.html");
    for part in
        ["Beside each other", "What differs", "<td>transport.cc</td>", "swift:base_target_us=30"]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(
        !page.contains("<td>transport.lb</td><td>reps-avoid</td><td>reps-avoid</td>"),
        "what is the same"
    );
    // One figure has both, named by the algorithm.
    let figures = std::fs::read_dir(folder.0.join("figures")).expect("figures");
    let both =
        figures.map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("SVG"));
    let both = both.filter(|svg| svg.contains("nscc") && svg.contains("swift:")).count();
    assert!(both > 0, "no figure has both");
    // The same again differs in its date alone: files' names tell them apart.
    let run = folder.squall("report a.json a.json -o same.html");
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    assert!(read("same.html").contains("Beside each other"));
}

#[test]
fn plans_are_brought_along_and_a_file_of_the_same_name_wins() {
    let folder = Folder::new("shipped");
    let list = folder.squall("plan list");
    assert!(text(&list.stdout).contains("04b-slow-link"), "{}", text(&list.stderr));
    let shown = folder.squall("plan show 04b-slow-link");
    assert!(text(&shown.stdout).starts_with("title = "), "{}", text(&shown.stderr));
    let run = folder.squall("plan run 07-base-rtts --quick --quiet --summary");
    assert_eq!(run.status.code(), Some(0), "{}{}", text(&run.stdout), text(&run.stderr));
    folder.write("04b-slow-link.toml", "title = \"Mine\"\n[topology]\nkind = \"star\"\n");
    let shown = folder.squall("plan show 04b-slow-link");
    assert!(text(&shown.stdout).starts_with("title = \"Mine\""), "{}", text(&shown.stdout));
    let run = folder.squall("plan run 04b-slow-link --quiet");
    assert_eq!(run.status.code(), Some(2));
    assert!(
        text(&run.stderr).contains("04b-slow-link.toml:2: topology.hosts"),
        "{}",
        text(&run.stderr)
    );
    for words in ["plan show gone", "plan run gone"] {
        let run = folder.squall(words);
        assert_eq!(run.status.code(), Some(2), "{words}");
        assert!(text(&run.stderr).contains("gone.toml"), "{words}: {}", text(&run.stderr));
    }
}

#[test]
fn a_flow_that_cannot_finish_is_listed_with_the_reason() {
    let folder = Folder::new("stuck");
    // Every link between switches is down.
    let output = folder.squall("sim --topo t.topo --cm w.cm --fail-links 16 --format json");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let results = json(&output);
    assert!(results["flows"][0]["fct_us"].is_null());
    assert!(!results["flows"][0]["reason"].as_str().expect("a reason").is_empty());
    assert!(text(&output.stderr).contains("flows: "), "{}", text(&output.stderr));
}

#[test]
fn what_is_said_of_the_network_is_simulated() {
    let folder = Folder::new("network");
    let run = |words: &str| {
        let words = format!("sim --topo t.topo --cm w.cm --quiet --format json {words}");
        json(&folder.squall(&words))
    };
    let slowest = |results: &serde_json::Value| {
        let flows = results["flows"].as_array().expect("flows").iter();
        flows.map(|flow| flow["fct_us"].as_f64().expect("finished")).fold(0.0, f64::max)
    };
    let plain = run("");
    // All 16 links downwards at a twentieth: four of them into a rack are a fifth of what one host can take.
    assert!(slowest(&run("--slow-links 16:0.05")) > slowest(&plain) * 3.0);
    assert_eq!(run("--failed 16:0.25")["flows"], run("--slow-links 16")["flows"]);
    assert!(plain["network"]["marked"].as_u64() > Some(0));
    assert_eq!(run("--no-ecn")["network"]["marked"], 0);
    assert!(run("--queue 8192")["totals"]["trimmed"].as_u64() > Some(0));
    assert!(run("--lossless --xoff 20KB --cc none")["network"]["pauses"].as_u64() > Some(0));
    assert_eq!(plain["network"]["dropped_host"], 0);
    let slow = run("--host-gbps 10 --host-buffer 20KiB --cc none");
    assert!(slow["network"]["dropped_host"].as_u64() > Some(0));
    let hops = run("--telemetry")["network"]["hops"].as_f64().expect("telemetry");
    assert!((hops - 3.0).abs() < 1e-9, "leaf, spine, leaf: {hops}");
}

#[test]
fn bad_requests_are_refused_with_what_is_allowed() {
    let folder = Folder::new("bad");
    folder.write("bad.topo", &TOPO.replace("Radix_Up 4", "Radix_Up four"));
    folder.write("bad.cm", &CM.replace("size 100000", "sise 100000"));
    folder.write("bad.goal", "num_ranks 2\nrank 0 { send 8b to 2 }\n");
    for (words, expected) in [
        ("sim --topo t.topo --cm w.cm --cc nsc", "nscc"),
        ("sim --topo t.topo --cm w.cm --cc nscc:gamma=7", "gamma"),
        ("sim --topo t.topo --cm w.cm --lb rep", "reps"),
        ("sim --topo t.topo --cm w.cm --loss trim,foo", "foo"),
        (
            "sim --topo t.topo --cm w.cm --scope galaxy",
            "pair, destination, destination-unsplit, host, group",
        ),
        ("sim --topo t.topo --cm w.cm --scope host --cc eqds", "allowed: scope flow"),
        ("sim --topo t.topo --cm w.cm --scope host --roce 1", "cannot be used with"),
        // What is not said is DCQCN with --roce; what is said is meant.
        ("sim --topo t.topo --cm w.cm --roce 1 --cc nsc", "nscc"),
        ("sim --topo t.topo --cm w.cm --mtu 12", "expected 256 to 65000"),
        ("sim --topo t.topo --cm w.cm --slow-links 4:x", "such as 4 or 4:0.5"),
        ("sim --topo t.topo --cm w.cm --slow-links 99", "the top tier has 16"),
        ("sim --topo t.topo --cm w.cm --slow-links 4:1.5", "between 0 and 1"),
        ("sim --topo t.topo --cm w.cm --lossless --trimming true", "not both"),
        ("sim --topo t.topo --cm w.cm --queue 100", "at least a packet"),
        ("sim --topo t.topo --cm w.cm --weights 0,1", "1 to 1000"),
        ("sim --topo t.topo --cm w.cm --host-gbps 0", "1..18446744073709551615"),
        ("sim --topo t.topo --cm w.cm --host-buffer 1MiB", "--host-gbps <GBPS>"),
        ("sim --topo t.topo --cm w.cm --host-gbps 10 --host-buffer 100", "at least a packet"),
        ("sim --topo t.topo --cm w.cm --no-ecn --ecn 0.2,0.8", "cannot be used with"),
        ("sim --topo t.topo --cm w.cm --fail-links 17", "16 to choose from"),
        ("sim --topo bad.topo --cm w.cm", "bad.topo:7: "),
        ("sim --topo t.topo --cm bad.cm", "bad.cm:6: "),
        ("sim --topo t.topo --load bad.goal", "bad.goal:2: rank 2 to send to, expected 0 to 1"),
        ("sim --topo t.topo --trace gone.goal", "gone.goal: No such file"),
        ("sim --trace bad.goal", "give --topo, the network"),
        ("sim --topo t.topo --trace bad.goal --chunk 1K", "has no collectives; remove them"),
        ("sim --topo t.topo --cm w.cm --ranks-per-host 2", "need a .goal, .bin or .et file"),
        ("sim --topo t.topo --trace gone.%d.et", "gone.%d.et: no file has a number in place of %d"),
        (
            "sim --topo t.topo --trace gone.%d.et --collective all-reduce=star",
            "expected ring, tree",
        ),
        ("sim --topo t.topo --trace gone.0.et", "expected %d in place of its number"),
        ("sim --topo t.topo", "nothing to simulate: give --topo and --load"),
        ("plan run 07-base-rtts --parquet", "--out <FOLDER>"),
        ("sim --topo gone.topo --cm w.cm", "gone.topo: there is no such file"),
        ("plan run gone --plans .", "gone.toml: cannot read"),
        ("report gone.json", "cannot read gone.json"),
        ("report t.topo", "not results of squall"),
    ] {
        let output = folder.squall(words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {said}");
        assert!(said.contains(expected), "{words}: {said}");
        assert!(output.stdout.is_empty(), "{words}");
    }
}

#[test]
fn a_schedule_is_run_with_what_its_ranks_compute() {
    let folder = Folder::new("goal");
    let text = "num_ranks 2\n\
                rank 0 {\nl1: calc 7000\nl2: send 4000b to 1\nl2 requires l1\n}\n\
                rank 1 {\nl1: recv 4000b from 0\nl2: calc 3000000000\nl2 requires l1\n}\n";
    folder.write("job.goal", text);
    for words in ["--trace job.goal", "--load job.goal"] {
        let output = folder.squall(&format!("sim --topo t.topo {words} --format json"));
        let results = json(&output);
        assert_eq!(
            (output.status.code(), &results["flows"][0]["start_us"]),
            (Some(0), &7.0.into())
        );
        // Longer than a simulation goes on for that is told nothing.
        let makespan = results["makespan_us"].as_f64().expect("it came to its end");
        assert!(makespan > 3_000_007.0 && makespan < 3_000_020.0, "{makespan}");
        assert_eq!(results["provenance"]["settings"]["transport.per_pair"], "true");
    }
    // It says so in words, too.
    let said = folder.squall("sim --topo t.topo --trace job.goal");
    assert!(String::from_utf8_lossy(&said.stdout).contains("the schedule took 30000"), "{said:?}");
    let help = folder.squall("sim --cc help");
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&help.stdout).contains(":quick_adapt="), "{help:?}");
}

#[test]
fn a_plan_is_run_and_reported() {
    let folder = Folder::new("plan");
    folder.write(
        "p.toml",
        "title = \"Two ways\"\nsource = \"nobody\"\n[topology]\nfile = \"t.topo\"\n[workload]\nfile \
         = \"w.cm\"\n[observe]\nqueues_us = 1.0\nwindows_us = 1.0\nlinks = true\n[sweep]\n\
         \"transport.lb\" = [\"reps\", \"ecmp\"]\n[[expect]]\nstatement = \"never so\"\nmetric = \
         \"finish\"\nat_most = 1.0\n",
    );
    let list = folder.squall("plan list --plans .");
    assert!(text(&list.stdout).contains("Two ways"), "{}", text(&list.stderr));
    let output = folder.squall("plan run p --plans . --out out");
    let said = text(&output.stdout);
    // One statement does not hold.
    assert_eq!(output.status.code(), Some(1), "{said} {}", text(&output.stderr));
    assert!(said.contains("1 passed, 1 failed, 0 explained, 0 not run"), "{said}");
    for file in ["p/runs.csv", "p/flows.csv", "report.html", "statements.md"] {
        assert!(folder.0.join("out").join(file).is_file(), "{file}");
    }
    let page = std::fs::read_to_string(folder.0.join("out/report.html")).expect("a page");
    assert!(page.contains("never so") && page.contains("Queues over time"), "sections");

    let output = folder.squall("report out/p/runs -o again.html --title Again");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = std::fs::read_to_string(folder.0.join("again.html")).expect("a page");
    assert!(page.contains("<h1>Again</h1>") && page.contains("Load of the paths"), "sections");
}

#[test]
fn a_plan_is_run_in_parts_and_put_together() {
    let folder = Folder::new("shards");
    folder.write(
        "p.toml",
        "title = \"Parts\"\nseeds = [1, 2, 3]\n[topology]\nfile = \"t.topo\"\n[workload]\nfile = \"w.cm\"\n[[expect]]\n\
         statement = \"soon\"\nmetric = \"finish\"\nat_most = 1e9\n",
    );
    for part in ["1/2", "2/2"] {
        let out = part.replace('/', "-");
        let output = folder.squall(&format!("plan run p --plans . --shard {part} --out {out}"));
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{said} {}", text(&output.stderr));
        assert!(!said.contains("passed"), "a part says nothing of statements: {said}");
    }
    let half = folder.squall("plan merge 1-2 --plans . --out half");
    assert_eq!(half.status.code(), Some(1));
    assert!(
        text(&half.stderr).contains("p: 1 of 3 runs are missing, such as p seed 2"),
        "{half:?}"
    );
    let whole = folder.squall("plan merge 1-2 2-2 --plans . --out whole");
    let said = text(&whole.stdout);
    assert_eq!(whole.status.code(), Some(0), "{said} {}", text(&whole.stderr));
    assert!(said.contains("2 passed, 0 failed"), "{said}");
    for file in ["p/runs.csv", "report.html", "statements.md"] {
        assert!(folder.0.join("whole").join(file).is_file(), "{file}");
    }
    for (words, what) in [
        ("plan run p --plans . --shard 3/2 --out x", "1/4 to 4/4"),
        ("plan run p --plans . --shard 1/2", "--out"),
        (
            "plan merge gone --plans . --out x",
            "gone: there is no such folder; give the --out folder",
        ),
    ] {
        let output = folder.squall(words);
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(text(&output.stderr).contains(what), "{words}: {}", text(&output.stderr));
    }
}

#[test]
fn readers_that_leave_early_are_no_error() {
    use std::io::Read as _;
    let folder = Folder::new("head");
    for words in ["sim --topo t.topo --cm w.cm --format json", "completions bash", "man --help"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_squall"))
            .args(words.split_whitespace())
            .current_dir(&folder.0)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("runs");
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        assert_eq!(
            (child.wait().expect("ends").code(), said.contains("panicked")),
            (Some(0), false),
            "{words}: {said}"
        );
    }
}

#[test]
fn completions_and_manual_pages_name_every_command() {
    let folder = Folder::new("pages");
    for shell in ["bash", "zsh", "fish"] {
        let output = folder.squall(&format!("completions {shell}"));
        assert!(text(&output.stdout).contains("fail-links"), "{shell}");
    }
    let metrics = folder.squall("report --help");
    assert!(text(&metrics.stdout).contains("p99_fct (us): 99th percentile"));
    let output = folder.squall("man pages");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for page in [
        "squall",
        "squall-sim",
        "squall-plan-run",
        "squall-emulate-up",
        "squall-report",
        "squall-run",
    ] {
        let path: &Path = &folder.0.join("pages").join(format!("{page}.1"));
        let text = std::fs::read_to_string(path).expect(page);
        assert!(text.contains(".TH"), "{page}");
    }
}

#[test]
fn a_job_ends_with_its_own_status_or_with_the_reason_why_it_did_not_use_squall() {
    let folder = Folder::new("run");
    folder.write("events", "0s fail-link leaf0-spine0\n\n10ms fail-link leaf7-spine0\n");
    folder.write("full/kept", "");
    let emulated = "--on leaf-spine:4x2x2";
    for (words, status, says) in [
        (
            format!("{emulated} -- true"),
            2,
            "none of its processes attached to the emulator: it did not use squall",
        ),
        (format!("{emulated} -- false"), 1, "none of its processes attached"),
        (
            format!("{emulated} --timeline events -- true"),
            2,
            "events:3: no link 'leaf7-spine0'; there are: h0-leaf0",
        ),
        (format!("{emulated} --timeline nothing -- true"), 2, "nothing: cannot be read"),
        (format!("{emulated} --record full -- true"), 2, "full: the folder is not empty"),
        ("--on leaf-spine:4x2 -- true".into(), 2, "topology.rack: missing"),
        ("--on star:4,gbps=10 --rate 25G -- true".into(), 2, "--rate and gbps of star:4,gbps=10"),
        ("--on t.topo --latency 5 -- true".into(), 2, "the file sets the rates and latencies"),
        ("--on stars:4 -- true".into(), 2, "stars:4: there is no such file"),
        ("--rate 25G -- true".into(), 2, "--on <TOPOLOGY>"),
        ("--ecn 0.2,0.8 -- true".into(), 2, "--on <TOPOLOGY>"),
        ("-- ./no-such-program".into(), 2, "./no-such-program: no such program"),
        ("-- ./w.cm".into(), 2, "./w.cm: not an executable file"),
        ("--cc nsc -- true".into(), 2, "--cc nsc: there is no such algorithm"),
        ("--port 9-8 -- true".into(), 2, "--port 9-8: not a port; give one, such as 4793"),
        (
            "--key events -- true".into(),
            2,
            "--key events: other users can read or write it; chmod 600 events",
        ),
        ("-- true".into(), 0, "no process used squall"),
        ("--require -- true".into(), 2, "no process used squall"),
        ("-- false".into(), 1, "the job failed with status 1, and no process reported"),
    ] {
        let run = folder.job(&format!("run {words}"));
        let said = text(&run.stderr);
        assert_eq!(run.status.code(), Some(status), "{words}: {said}");
        assert!(said.contains(says), "{words}: {said}");
    }
    // A job that could not be started leaves nothing that the next one would refuse.
    std::fs::create_dir(folder.0.join("empty")).expect("room");
    for name in ["new", "empty"] {
        let run = folder.job(&format!("run --on star:2 --record {name} -- ./no-such-program"));
        let said = text(&run.stderr);
        assert!(said.contains("./no-such-program: no such program"), "{name}: {said}");
    }
    assert!(!folder.0.join("new").exists());
    let mut left = std::fs::read_dir(folder.0.join("empty")).expect("the user's folder");
    assert!(left.next().is_none());
    let run = folder.job("run --quiet --on fat-tree:16:1 --record new -- false");
    assert_eq!(run.status.code(), Some(1));
    let network = std::fs::read_to_string(folder.0.join("new/network.graph")).expect("a record");
    assert!(network.starts_with("Graph\nHosts 16\n"), "{network}");
    let record = std::fs::read_to_string(folder.0.join("new/run.json")).expect("a record");
    let record: serde_json::Value = serde_json::from_str(&record).expect("JSON");
    let made = &record["provenance"];
    assert_eq!(made["settings"]["emulator.topo"], "fat-tree:16:1", "{made}");
    assert_eq!(made["settings"]["emulator.rate_scale"], "0.01", "{made}");
    assert_eq!(made["derived"]["topology.hosts"], "16", "{made}");
    assert!(
        made["command"].as_str().is_some_and(|words| words.ends_with("--record new -- false")),
        "{made}"
    );
    // A replay takes the options from there.
    let run = folder.job("run --quiet --on star:2 --no-trim --queue 90KB --record drops -- false");
    assert_eq!(run.status.code(), Some(1));
    let options = std::fs::read_to_string(folder.0.join("drops/network.toml")).expect("a record");
    assert!(options.contains("trimming = false\nqueue = 90000\n"), "{options}");
}

#[test]
fn a_recorded_job_runs_again_over_any_network() {
    let folder = Folder::new("replay");
    let head = |rank: u32| {
        format!(
            "squall-trace 1 {{\"job\":\"j\",\"rank\":{rank},\"ranks\":2,\"host\":\"h\",\"pid\":{rank},\"endpoint\":0,\
             \"address\":\"10.0.0.{rank}:1\",\"began\":0,\"opened\":0}}\npeer 0 10.0.0.{}:1\n",
            1 - rank
        )
    };
    let (zero, one) = (head(0), head(1));
    folder.write("traces/0.trace", &format!("{zero}1000 begin tagged 0 100000 7\n50000 closed\n"));
    folder.write("traces/1.trace", &format!("{one}41000 receive tagged 0 100000 7\n42000 clo"));
    let run = folder.squall("sim --quiet --trace traces --topo star:2");
    let (out, said) = (text(&run.stdout), text(&run.stderr));
    assert_eq!(run.status.code(), Some(0), "{said}");
    assert!(said.contains("1.trace was cut: it is read up to line 3"), "{said}");
    let row = out.lines().find(|line| line.starts_with("the whole")).expect("a row of the whole");
    assert!(row.contains(" 1 ") && row.contains(" 40"), "{row}");
    for (words, says) in [
        ("--trace traces", "traces holds no network; give --topo"),
        ("--trace none --topo star:2", "none: No such file"),
        ("--trace . --topo star:2", "no `*.trace` in it"),
        ("--trace traces --topo star:2 --timeline w.cm", "w.cm:1: 'Nodes' where a time"),
    ] {
        let run = folder.squall(&format!("sim --quiet {words}"));
        let said = text(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{words}: {said}");
        assert!(said.contains(says), "{words}: {said}");
    }
    folder.write(
        "job.toml",
        "title = \"t\"\nsource = \"s\"\n[topology]\nkind = \"star\"\nhosts = 2\n[workload]\nkind = \"job\"\nfile = \"traces\"\n",
    );
    let run = folder.squall("plan run job.toml --quiet --out results");
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
}

/// A running `squall run` in a process group of its own, so that no terminal sends its job a signal.
struct RunningJob {
    squall: Child,
    folder: PathBuf,
}

impl RunningJob {
    /// Starts `squall run` with a job that is a script. The script makes a file `ready` when signals may come.
    fn start(folder: &Folder, script: &str) -> Self {
        folder.write("job", &format!("#!/bin/sh\n{script}"));
        let job = folder.0.join("job");
        std::fs::set_permissions(&job, std::fs::Permissions::from_mode(0o755)).expect("a file");
        let mut command = folder.job_command("run --quiet -- ./job");
        command.stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let job = Self { squall: command.spawn().expect("runs"), folder: folder.0.clone() };
        job.await_file("ready", "");
        job
    }

    /// Waits until a file of the folder contains this text.
    fn await_file(&self, name: &str, part: &str) {
        let read = || std::fs::read_to_string(self.folder.join(name));
        wait_until(name, || read().is_ok_and(|text| text.contains(part)));
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.squall)
    }

    fn send(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("squall runs");
    }

    /// Returns the state of the process, as in proc(5).
    fn state(&self) -> String {
        let pid = self.squall.id();
        let about = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("squall runs");
        let (_, fields) = about.rsplit_once(") ").expect("a name in parentheses");
        fields[..1].to_owned()
    }
}

/// Waits for a condition, for much longer than a busy machine needs.
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("a minute without: {what}");
}

#[test]
fn signals_reach_the_job_and_do_not_end_squall() {
    let folder = Folder::new("signals");
    let names = ["USR1", "USR2", "QUIT", "ALRM", "VTALRM", "XCPU", "WINCH", "TSTP"];
    let traps = names.map(|name| format!("trap 'echo {name} >> got' {name}\n")).concat();
    let mut job = RunningJob::start(
        &folder,
        &format!("{traps}touch ready\nwhile [ ! -e end ]; do sleep 0.05; done\nexit 7\n"),
    );
    for (signal, name) in [
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::QUIT, "QUIT"),
        (Signal::ALARM, "ALRM"),
        (Signal::VTALARM, "VTALRM"),
        (Signal::XCPU, "XCPU"),
        (Signal::WINCH, "WINCH"),
    ] {
        job.send(signal);
        job.await_file("got", name);
    }
    // The job stops as it decides, and squall as every process does.
    job.send(Signal::TSTP);
    job.await_file("got", "TSTP");
    wait_until("squall stops", || job.state() == "T");
    job.send(Signal::CONT);
    folder.write("end", "");
    assert_eq!(job.squall.wait().expect("a child").code(), Some(7));
}

#[test]
fn the_job_is_asked_to_end_when_squall_is_killed() {
    let folder = Folder::new("orphan");
    let script = "trap 'touch asked; exit' TERM\ntouch ready\nwhile :; do sleep 0.05; done\n";
    let mut job = RunningJob::start(&folder, script);
    job.send(Signal::KILL);
    job.await_file("asked", "");
    job.squall.wait().expect("a child");
}

#[test]
fn the_end_of_standard_error_is_copied_to_a_slow_reader() {
    let folder = Folder::new("chatty");
    // The output is more than one pipe holds, and less than the two between job and reader, so that the job can end.
    let line = "x".repeat(79);
    let script = format!(
        "touch ready\ni=0\nwhile [ $i -lt 1500 ]; do echo {line} >&2; i=$((i+1)); done\ntouch ended\n"
    );
    let mut job = RunningJob::start(&folder, &script);
    job.await_file("ended", "");
    std::thread::sleep(Duration::from_secs(3));
    let mut copied = String::new();
    job.squall.stderr.take().expect("a pipe").read_to_string(&mut copied).expect("text");
    assert_eq!(copied.lines().filter(|text| *text == line).count(), 1500);
    assert_eq!(job.squall.wait().expect("a child").code(), Some(0));
}

#[test]
fn a_signal_ends_the_copy_to_a_reader_that_reads_nothing() {
    let folder = Folder::new("unread");
    let line = "x".repeat(79);
    let script = format!(
        "touch ready\ni=0\nwhile [ $i -lt 1500 ]; do echo {line} >&2; i=$((i+1)); done\ntouch ended\n"
    );
    let mut job = RunningJob::start(&folder, &script);
    job.await_file("ended", "");
    // A signal that squall receives before it knows the end goes to the job.
    wait_until("squall ends", || {
        job.send(Signal::TERM);
        job.squall.try_wait().expect("a child").is_some()
    });
}
