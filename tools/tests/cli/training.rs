//! Training steps on the command line: generated traces, the plan of docs/training.md, and `--load training:COPIES`.

use squall_netsim::workload::chakra::Training;

use super::{Folder, json, text};

/// Simulates a training step of four hosts with two ranks each, whose traces the generator writes.
#[test]
fn traces_of_a_training_step_give_the_times_of_ranks() {
    let folder = Folder::new("traces");
    let training = Training {
        layers: 4,
        hidden: 64,
        key_value: 16,
        feed_forward: 128,
        vocabulary: 100,
        sequence: 128,
        microbatches: 4,
        tensor: 2,
        pipeline: 2,
        data: 2,
        bucket: 20_000,
        tflops: 0.01,
    };
    training.write(&folder.0, "job").expect("traces");
    let words =
        "sim --topo star:4 --trace job.%d.et --comm-groups job.groups.json --ranks-per-host 2";
    let output = folder.squall(&format!("{words} --format json --report job.html"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let results = json(&output);
    let times = &results["job_times"];
    assert_eq!(times["lasted_us"], results["makespan_us"]);
    assert_eq!(times["ranks"].as_array().map(Vec::len), Some(8));
    let settings = &results["provenance"]["settings"];
    assert_eq!(
        (&settings["workload.kind"], &settings["workload.ranks_per_host"]),
        (&"chakra".into(), &"2".into())
    );
    let page = std::fs::read_to_string(folder.0.join("job.html")).expect("a page");
    assert!(page.contains("Ranks: the job took"), "a table of ranks");
    let few = folder.squall(&words.replace("--ranks-per-host 2", ""));
    assert!(text(&few.stderr).contains("8 ranks with 1 on a host need 8 hosts"), "{few:?}");
    let hierarchical = format!("{words} --collective all-reduce=hierarchical --chunk 4K");
    let output = folder.squall(&hierarchical);
    let said = text(&output.stdout);
    assert!(said.contains("the network costs") && said.contains("exposed us"), "{said}");
}

/// Runs the quick form of the training step of docs/training.md: its sweep with a small model.
#[test]
fn plan_27_sweeps_networks_into_one_report() {
    let folder = Folder::new("training");
    let output = folder.squall("plan run 27-training --quick --out out");
    assert_eq!(output.status.code(), Some(0), "{} {}", text(&output.stdout), text(&output.stderr));
    let runs = std::fs::read_dir(folder.0.join("out/27-training/runs")).expect("runs");
    let mut count = 0;
    for file in runs {
        let file = std::fs::read(file.expect("a run").path()).expect("a file");
        let run: serde_json::Value = serde_json::from_slice(&file).expect("JSON");
        let times = &run["job_times"];
        assert_eq!(times["lasted_us"], run["makespan_us"]);
        let number = |key: &str| times[key].as_f64().expect(key);
        let share = 1.0 - number("without_network_us") / number("lasted_us");
        assert!((0.05..0.95).contains(&share), "{share}");
        count += 1;
    }
    assert_eq!(count, 12, "two networks, three controls, with and without a failed spine");
    let page = std::fs::read_to_string(folder.0.join("out/report.html")).expect("a page");
    for part in ["bottleneck", "communicates only", "Link utilization"] {
        assert!(page.contains(part), "{part}");
    }
    // The same step in words, and one that does not fit its network.
    let words =
        "sim --topo star:2 --load training:2,layers=1,pipeline=1,tensor=2,hidden=64,sequence=64";
    let output = folder.squall(words);
    let said = text(&output.stdout);
    assert!(said.contains("the network costs") && said.contains("bottleneck: "), "{said}");
    let large = folder.squall("sim --topo star:2 --load training:4");
    assert!(text(&large.stderr).contains("need 16 hosts"), "{large:?}");
    let unknown = folder.squall("sim --topo star:2 --load training:4,copies=2");
    assert!(text(&unknown.stderr).contains("no key `copies`"), "{unknown:?}");
}
