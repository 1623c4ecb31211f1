use std::io;

use super::files::{FileError, json, read_runs, write_whole};
use super::*;

fn flow(id: u32, bytes: u64, start_us: f64, fct_us: Option<f64>) -> FlowResult {
    let reason = fct_us.is_none().then(|| "no path".to_owned());
    FlowResult {
        id,
        src: id,
        dst: 0,
        bytes,
        start_us: Some(start_us),
        fct_us,
        reason,
        ..FlowResult::default()
    }
}

fn run() -> Run {
    let mut run = Run {
        seed: 7,
        flows: vec![
            flow(1, 1_000_000, 0.0, Some(100.0)),
            flow(2, 1_000_000, 10.0, Some(200.0)),
            flow(3, 2_000_000, 10.0, Some(400.0)),
        ],
        ..Run::default()
    };
    run.network =
        NetworkFacts { line_gbps: 100.0, base_rtt_us: 10.0, ideal_us: 320.0, ..run.network };
    run.parameters.insert("cc".into(), "nscc".into());
    run
}

fn value(run: &Run, name: &str) -> f64 {
    name.parse::<Metric>().expect(name).of(run).expect(name)
}

#[test]
fn metrics_by_hand() {
    let run = run();
    // The completion times are 100, 200 and 400 us; the last end is 10 + 400 = 410 us after the
    // first start.
    for (name, expected) in [
        ("max_fct", 400.0),
        ("mean_fct", 700.0 / 3.0),
        ("p50_fct", 200.0),
        ("p99_fct", 400.0),
        ("spread", 300.0),
        ("max_fct_rtts", 40.0),
        ("finish", 410.0),
        ("over_ideal", 410.0 / 320.0),
        // 4 MB x 8 / 410 us = 78.05 Gb/s.
        ("goodput", 32_000.0 / 410.0),
        // The rates are 80, 40 and 40 Gb/s: mean 53.3, Jain 160^2 / (3 x (6400 + 1600 + 1600)) =
        // 0.8889.
        ("flow_goodput", 160.0 / 3.0),
        ("slowest_goodput", 40.0),
        ("jain", 25_600.0 / 28_800.0),
        ("largest_fct", 400.0),
        ("unfinished", 0.0),
    ] {
        assert!((value(&run, name) - expected).abs() < 1e-9, "{name}: {}", value(&run, name));
    }
    let none: Metric = "queue_late".parse().expect("a name");
    assert_eq!(none.of(&run), None);
    let unknown = "fct".parse::<Metric>().expect_err("no such");
    assert!(unknown.to_string().contains("max_fct"), "{unknown}");
}

/// Checks the metrics that show whether newcomers are favoured, with four flows of which the two
/// last to start end first.
#[test]
fn starts_and_ends_by_hand() {
    let mut run = run();
    run.flows = vec![
        flow(1, 5_000, 0.0, Some(400.0)),
        flow(2, 5_000, 0.0, Some(380.0)),
        flow(3, 2_000_000, 20.0, Some(180.0)),
        flow(4, 3_000_000, 20.0, Some(160.0)),
    ];
    for (flow, time_alone) in run.flows.iter_mut().zip([10.0, 20.0, 90.0, 160.0]) {
        flow.alone_us = Some(time_alone);
    }
    // The ends are 400, 380, 200 and 180 us. Starts are 10 from their mean, and the mean of the
    // ends is 290: (10 x (110 + 90 + 90 + 110) x -1) / (4 x 100) = -10.
    for (name, expected) in [
        ("finish_spread", 220.0),
        ("finish_slope", -10.0),
        ("last_in_first_out", 1.0),
        // The slowdowns are 40, 19, 2 and 1.
        ("p50_slowdown", 2.0),
        ("p99_slowdown", 40.0),
        ("p999_slowdown", 40.0),
        ("p50_slowdown(1MB..)", 1.0),
        ("p99_slowdown(1MB..)", 2.0),
        ("p99_slowdown(..2MB)", 40.0),
        ("p99_slowdown(3MB..4MB)", 1.0),
    ] {
        assert!((value(&run, name) - expected).abs() < 1e-9, "{name}: {}", value(&run, name));
    }
    run.flows[3].fct_us = Some(200.0);
    assert_eq!(value(&run, "last_in_first_out"), 1.0, "still before 380");
    run.flows[3].fct_us = Some(370.0);
    assert_eq!(value(&run, "last_in_first_out"), 0.5, "ends at 390, after 380");
    let points = vec![(20.0, 0.1), (40.0, 0.5), (200.0, 0.9), (220.0, 0.3)];
    run.series.push(Series { kind: SeriesKind::Jain, name: "j".into(), points });
    // The time is from 20, the last start, to 200, the first end.
    assert!((value(&run, "jain_mean") - 0.5).abs() < 1e-9);
    // The steady part is half to nine tenths of 400 us: 200 to 360.
    let points = vec![(199.0, 9e6), (220.0, 4e3), (350.0, 8e3), (390.0, 0.0)];
    run.series.push(Series { kind: SeriesKind::Queue, name: "q".into(), points });
    run.flows[3].fct_us = Some(160.0);
    assert_eq!(value(&run, "queue_steady"), 6.0);
    // The time is from 20 to 180.
    let points = vec![(10.0, 9e6), (30.0, 1e3), (170.0, 3e3), (181.0, 9e6)];
    run.series[1] = Series { kind: SeriesKind::Queue, name: "q".into(), points };
    assert_eq!(value(&run, "queue_together"), 2.0);
    assert!("p99_slowdown(1MB)".parse::<Metric>().is_err());
    let metric: Metric = "p99_slowdown(1MB..)".parse().expect("a range");
    assert_eq!(metric.to_string().parse(), Ok(metric));
}

#[test]
fn a_group_has_its_share_and_its_goodput() {
    let mut run = run();
    let share: Metric = "group_share".parse().expect("a name");
    assert_eq!(share.of(&run), None, "one job alone has no share");
    run.job_bytes = vec![3_000_000, 1_000_000];
    assert_eq!(value(&run, "group_share"), 0.75);
    // Job 0 sends 1 MB from 0 to 100 us and 1 MB from 10 to 210: 2 MB x 8 / 210 us = 76.19 Gb/s.
    run.flows[2].job = 1;
    assert!((value(&run, "group_goodput") - 16_000.0 / 210.0).abs() < 1e-9);
    assert_eq!(value(&run, "group_time"), 210.0);
    // The slowdowns are 100 / 50 and 200 / 20, and 400 / 4 of the other job.
    for (flow, time_alone) in run.flows.iter_mut().zip([50.0, 20.0, 4.0]) {
        flow.alone_us = Some(time_alone);
    }
    assert_eq!(value(&run, "group_p99_slowdown"), 10.0);
    // Job 1 sends 2 MB in 400 us.
    assert_eq!(value(&run, "victim_goodput"), 40.0);
    run.flows[1].fct_us = None;
    let goodput: Metric = "group_goodput".parse().expect("a name");
    assert_eq!(goodput.of(&run), None, "it did not finish");
}

#[test]
fn rates_settle_when_the_last_of_them_does() {
    let mut run = run();
    run.flows.truncate(2);
    // The second flow starts at 10 us, so that its first packet arrives at 15; the first flow ends
    // at 100 us. Shares are 50 Gb/s.
    let mut rates = |points: Vec<(f64, f64)>| {
        run.series.push(Series { kind: SeriesKind::Rate, name: "r".into(), points });
        value(&run, "settle")
    };
    // The rates are within 1 % from 25 us on, which is 10 us after 15: one round trip.
    let before = [(5.0, 100.0), (14.0, 99.0), (15.0, 100.0), (20.0, 51.0)];
    rates([&before[..], &[(25.0, 50.4), (110.0, 90.0)]].concat());
    assert_eq!(rates(vec![(20.0, 49.6), (25.0, 49.6)]), 1.0);
    run.series.pop();
    // The rates never settle, so all of the time from 15 to 100 us counts.
    run.series.push(Series {
        kind: SeriesKind::Rate,
        name: "r".into(),
        points: vec![(20.0, 50.0), (90.0, 40.0)],
    });
    assert_eq!(value(&run, "settle"), 8.5);
}

#[test]
fn jobs_end_with_their_last_flow() {
    let mut run = run();
    run.flows[2].job = 1;
    // Job 0 runs from 0 to 210, job 1 from 10 to 410.
    assert_eq!((value(&run, "job_max"), value(&run, "job_spread")), (400.0, 190.0));
    run.flows[2].fct_us = None;
    assert_eq!(value(&run, "job_max"), 210.0);
}

#[test]
fn a_queue_is_judged_by_its_steady_part() {
    let mut run = run();
    // The steady part of 410 us is from 205 to 369. 125 000 bytes at 100 Gb/s are 10 us, one base
    // RTT.
    let points = vec![(0.0, 900_000.0), (210.0, 100_000.0), (300.0, 150_000.0), (400.0, 0.0)];
    run.series.push(Series { kind: SeriesKind::Queue, name: "q".into(), points });
    assert!((value(&run, "queue_late") - 1.0).abs() < 1e-9);
    assert!((value(&run, "queue_max") - 7.2).abs() < 1e-9);
    // The queue is longer than those 125 000 bytes for the last time at 300 us.
    assert_eq!(value(&run, "queue_calm"), 30.0);
    assert!((value(&run, "queue_calm_share") - 300.0 / 410.0).abs() < 1e-9);
    for series in &mut run.series {
        series.points.retain(|(_, bytes)| *bytes <= 125_000.0);
    }
    assert_eq!(value(&run, "queue_calm"), 0.0);
}

#[test]
fn a_beginning_is_judged_by_its_queue_and_windows() {
    let mut run = run();
    let mut add = |kind, points| run.series.push(Series { kind, name: String::new(), points });
    // In ten round trips of 10 us the queue has 25 and 75 KB. The mean of 50 KB is 4 us at 100
    // Gb/s.
    add(SeriesKind::Queue, vec![(0.0, 25e3), (100.0, 75e3), (101.0, 900e3)]);
    // The mean windows are 8, 3 and 5 KB. From 205 to 369 us the first flow has 4 and 6 KB, 20 %
    // off their mean; the second flow is over by then.
    add(
        SeriesKind::Window,
        vec![(0.0, 12e3), (50.0, 4e3), (210.0, 4e3), (360.0, 6e3), (400.0, 1.0)],
    );
    add(SeriesKind::Window, vec![(0.0, 4e3), (50.0, 2e3), (210.0, 0.0), (360.0, 0.0)]);
    let close = |name, expected: f64| {
        assert!((value(&run, name) - expected).abs() < 1e-9, "{name}: {}", value(&run, name));
    };
    close("queue_early", 0.4);
    close("window_low", 3.0);
    // Up to 100 us, the windows are 12, 4, 4 and 2 KB.
    close("window_early", 5.5);
    close("window_swing", 0.2);
}

#[test]
fn shares_and_tails_of_packets_are_of_the_flows_in_range() {
    let mut run = run();
    run.flows = vec![flow(1, 4000, 0.0, Some(5.0)), flow(2, 9000, 0.0, Some(5.0))];
    (run.flows[0].packets, run.flows[0].marked) = (4, 1);
    (run.flows[1].packets, run.flows[1].marked) = (6, 4);
    (run.flows[0].slowest_us, run.flows[1].slowest_us) = (Some(3.0), Some(7.0));
    for (name, expected) in [
        ("marked_share", 0.5),
        ("marked_share(..5KB)", 0.25),
        ("p999_packet", 7.0),
        ("p999_packet(..5KB)", 3.0),
    ] {
        assert!((value(&run, name) - expected).abs() < 1e-9, "{name}: {}", value(&run, name));
    }
}

#[test]
fn json_has_the_names_promised_and_reads_back() {
    let mut run = run();
    run.flows[1] = flow(2, 5, 10.0, None);
    let mut text = Vec::new();
    json(std::slice::from_ref(&run), &mut text).expect("memory");
    let parsed: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let keys = |value: &serde_json::Value| {
        let mut keys: Vec<_> = value.as_object().expect("an object").keys().cloned().collect();
        keys.sort();
        keys.join(" ")
    };
    assert_eq!(
        keys(&parsed["flows"][0]),
        "bytes dst fct_us id marked packets retransmitted src start_us"
    );
    assert!(parsed["flows"][1]["fct_us"].is_null());
    assert_eq!(parsed["flows"][1]["reason"], "no path");
    let totals = "acks events nacks packets peak_bytes retransmitted trimmed wall_s";
    assert_eq!(keys(&parsed["totals"]), totals);
    assert_eq!(serde_json::from_slice::<Run>(&text).expect("a run"), run);
}

#[test]
fn csv_has_a_line_a_flow_and_a_line_a_run() {
    let mut text = Vec::new();
    Table::flows(&[run()]).csv(&mut text).expect("memory");
    let text = String::from_utf8(text).expect("text");
    assert!(text.starts_with("id,src,dst,bytes,start_us,fct_us,retransmitted,reason\n1,1,0,"));
    assert_eq!(text.lines().count(), 4);
    let mut text = Vec::new();
    Table::flows(&[run(), run()]).csv(&mut text).expect("memory");
    let text = String::from_utf8(text).expect("text");
    assert!(text.starts_with("cc,seed,id,") && text.contains("\nnscc,7,1,"), "{text}");
    let mut text = Vec::new();
    Table::runs(&[run(), run()]).csv(&mut text).expect("memory");
    let text = String::from_utf8(text).expect("text");
    assert!(text.starts_with("cc,seed,max_fct,") && text.lines().count() == 3, "{text}");
}

/// Reads a file with the reader of the same library. The tests of the Python package read one with
/// pyarrow.
#[cfg(feature = "parquet")]
#[test]
fn parquet_has_the_columns_of_csv_typed_and_says_where_it_came_from() {
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use ::parquet::record::Field;
    let mut runs = [run(), run()];
    runs[0].flows[1] = flow(2, u64::MAX, 10.0, None);
    for (run, hosts) in runs.iter_mut().zip(["8", "16"]) {
        run.parameters.insert("hosts".into(), hosts.into());
        run.parameters.insert("share".into(), format!("0.{hosts}"));
        run.provenance = Some(Provenance::default());
        run.provenance.as_mut().expect("set").settings.set("seed", 7);
    }
    let folder = std::env::temp_dir().join(format!("squall-parquet-{}", std::process::id()));
    let path = folder.join("flows.parquet");
    write_whole(&path, |to| Table::flows(&runs).parquet(to)).expect("written");
    let file = SerializedFileReader::new(std::fs::File::open(&path).expect("there"));
    let file = file.expect("a Parquet file");
    let about = file.metadata().file_metadata();
    let keys = about.key_value_metadata().expect("some");
    assert_eq!(keys[0].key, "provenance");
    let made: Provenance =
        serde_json::from_str(keys[0].value.as_deref().expect("said")).expect("JSON");
    assert_eq!(made.settings.get("seed"), Some("7"));
    let rows: Vec<_> =
        file.get_row_iter(None).expect("rows").map(|row| row.expect("a row")).collect();
    let names: Vec<_> = rows[0].get_column_iter().map(|(name, _)| name.as_str()).collect();
    let expected = "cc hosts share seed id src dst bytes start_us fct_us retransmitted reason";
    assert_eq!(names.join(" "), expected);
    let row = |index: usize| {
        rows[index].get_column_iter().map(|(_, cell)| cell.clone()).collect::<Vec<Field>>()
    };
    let word = |word: &str| Field::Str(word.into());
    let (whole, real) = (Field::ULong, Field::Double);
    assert_eq!(rows.len(), 6);
    let first = [word("nscc"), whole(8), real(0.8), whole(7), whole(2), whole(2), whole(0)];
    assert_eq!(row(1)[..7], first);
    assert_eq!(row(1)[7..], [whole(u64::MAX), real(10.0), Field::Null, whole(0), word("no path")]);
    assert_eq!(row(5)[1..5], [whole(16), real(0.16), whole(7), whole(3)]);
    assert_eq!(row(5)[9..], [real(400.0), whole(0), Field::Null]);
    write_whole(&path, |to| Table::runs(&[]).parquet(to)).expect("written");
    let none =
        SerializedFileReader::new(std::fs::File::open(&path).expect("there")).expect("a file");
    assert_eq!(none.metadata().file_metadata().num_rows(), 0);
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn words_become_numbers_only_together() {
    let words = |words: &[&str]| {
        let some = |word: &&str| (!word.is_empty()).then(|| (*word).to_owned());
        Cells::Word(words.iter().map(some).collect())
    };
    assert_eq!(words(&["1", "", "2"]).typed(), Cells::Whole(vec![Some(1), None, Some(2)]));
    assert_eq!(words(&["1", "0.5"]).typed(), Cells::Real(vec![Some(1.0), Some(0.5)]));
    for kept in [&["1", "none"][..], &["1", "inf"], &["NaN"], &[""], &[]] {
        assert_eq!(words(kept).typed(), words(kept), "{kept:?}");
    }
}

#[test]
fn a_file_is_whole_or_as_it_was() {
    let folder = std::env::temp_dir().join(format!("squall-output-{}", std::process::id()));
    let path = folder.join("deep").join("run.json");
    write_whole(&path, |to| json(&[run()], to)).expect("written");
    let full = write_whole(&path, |to| {
        to.write_all(b"half of")?;
        Err(io::Error::from(io::ErrorKind::StorageFull))
    });
    let error = full.expect_err("no room").to_string();
    assert!(error.contains("run.json") && error.contains("disk is full"), "{error}");
    assert_eq!(read_runs(&path).expect("as it was"), [run()]);
    assert_eq!(read_runs(&folder.join("deep")).expect("one file"), [run()]);
    std::fs::write(folder.join("deep").join("x.json"), "{\n \"flows\": 3}").expect("written");
    let error = read_runs(&folder.join("deep")).expect_err("not ours");
    assert!(matches!(error, FileError::Json { .. }) && error.to_string().contains("x.json:2:"));
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn what_is_no_file_is_written_to_and_not_replaced() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    let folder = std::env::temp_dir().join(format!("squall-special-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    // The test goes through a link, so that a mistake does not damage the device.
    let link = folder.join("null");
    symlink("/dev/null", &link).expect("a link");
    write_whole(&link, |to| to.write_all(b"nothing")).expect("written");
    assert!(link.is_symlink());
    assert!(std::fs::metadata("/dev/null").expect("there").file_type().is_char_device());
    let (real, link) = (folder.join("real"), folder.join("link"));
    std::fs::write(&real, "old").expect("written");
    symlink("real", &link).expect("a link");
    write_whole(&link, |to| to.write_all(b"new")).expect("written");
    assert!(link.is_symlink() && std::fs::read(&real).expect("there") == b"new");
    let error = write_whole(&folder, |_| Ok(())).expect_err("a folder").to_string();
    assert!(error.contains("directory"), "{error}");
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn tables_read_well() {
    let mut run = run();
    run.flows[1] = flow(2, 5, 10.0, None);
    let text = text::summary(&run);
    assert!(text.starts_with("2 of 3 flows finished;"), "{text}");
    assert!(text.contains("1 flows: no path: 2 (2->0)"), "{text}");
    let metric = |name: &str| name.parse::<Metric>().expect(name);
    let text = text::runs(&[run], &[metric("max_fct"), metric("jain")]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].contains("max_fct us") && lines[1].contains("400"), "{text}");
    for (value, expected) in [(0.0, "0"), (1234.5, "1234"), (12.34, "12.3"), (0.5, "0.50")] {
        assert_eq!(text::number(value), expected);
    }
}
