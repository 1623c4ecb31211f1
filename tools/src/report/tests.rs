use super::html::escape;
use super::*;
use squall_netsim::output::{FlowResult, LinkLoad, Metric, Provenance, Run, Series, SeriesKind};
use squall_netsim::workload::{JobTimes, RankTimes};

fn run(cc: &str, slow: f64) -> Run {
    let flow = |id: u32| FlowResult {
        id,
        dst: id,
        bytes: 1_000_000,
        start_us: Some(0.0),
        fct_us: Some(f64::from(id) * slow),
        ..FlowResult::default()
    };
    let mut run = Run { flows: (1..=4).map(flow).collect(), ..Run::default() };
    run.parameters.insert("cc".to_owned(), cc.to_owned());
    let points = (0..5000).map(|at| (f64::from(at), f64::from(at % 100))).collect();
    run.series = vec![
        Series { kind: SeriesKind::Queue, name: "tor0->h1".into(), points },
        Series { kind: SeriesKind::Window, name: "flow 1".into(), points: vec![(0.0, 9.0)] },
    ];
    let link = |name: &str, bytes| LinkLoad {
        name: name.into(),
        tier: 1,
        up: true,
        bytes,
        ..LinkLoad::default()
    };
    run.links = vec![link("tor0->agg0", 5_000_000), link("tor0->agg1", 7_000_000)];
    run
}

/// Returns a run of a job of two ranks that lasted a second, of which the network cost three fifths.
fn job(cc: &str) -> Run {
    let mut run = run(cc, 10.0);
    let rank = |timeline: Vec<(f64, u8)>| RankTimes {
        computing_us: 400_000.0,
        exposed_us: 500_000.0,
        waiting_us: 100_000.0,
        timeline,
    };
    let ranks = vec![rank(vec![(0.0, 2), (4e5, 1), (9e5, 0)]), rank(vec![(0.0, 1)])];
    run.makespan_us = Some(1e6);
    run.job_times = Some(JobTimes { lasted_us: 1e6, without_network_us: 4e5, ranks });
    let link = |name: &str, tier, up, bytes| LinkLoad {
        name: name.into(),
        tier,
        up,
        gbps: 8.0,
        bytes,
        ..LinkLoad::default()
    };
    run.links = vec![
        link("h0-p1->leaf0", 0, true, 500_000_000),
        link("leaf0->h0-p1", 0, false, 250_000_000),
        link("leaf0->spine0", 1, true, 900_000_000),
        link("leaf0->spine1", 1, true, 100_000_000),
    ];
    run
}

#[test]
fn a_report_of_jobs_names_the_bottleneck() {
    let document = from_runs("Jobs", &[], &[job("nscc")], &[]);
    let table = |title: &str| {
        let found = document.tables.iter().find(|table| table.title.starts_with(title));
        found.expect(title).rows.clone()
    };
    let row = table("Jobs: ").remove(0);
    assert_eq!(
        row,
        ["nscc", "0", "1000", "400", "60", "500000", "500000", "50", "90", "switch links"]
    );
    let links = table("Link utilization");
    assert_eq!(links[0], ["hosts to leaves", "1", "1", "50", "50", "h0-p1->leaf0"]);
    assert_eq!(links[2], ["up to tier 1", "-", "2", "50", "90", "leaf0->spine0"]);
    let [gantt] = &document.gantts[..] else { panic!("one chart of ranks") };
    assert_eq!(gantt.rows[0].1, [(0.0, 2), (400.0, 1), (900.0, 0)]);
    let page = render("Results", &[document]).expect("drawn");
    assert!(page.contains("communicates only") && page.contains("rank 1"), "a chart of ranks");
}

#[test]
fn a_report_is_one_file_that_fetches_nothing() {
    let metrics: Vec<Metric> = ["max_fct", "jain"].map(|name| name.parse().expect(name)).to_vec();
    let runs = [run("nscc</script><b>", 10.0), run("eqds & co", 12.0)];
    let document = from_runs("An experiment", &["It was.".into()], &runs, &metrics);
    let page = render("Results", &[document.clone(), Document::default()]).expect("drawn");
    // Distribution; queues, windows, paths, shares of each of the two; two metrics.
    assert_eq!(page.matches("<figcaption>").count(), 11);
    assert_eq!(page.matches("<svg ").count(), 11);
    for forbidden in ["http-equiv", " src=", "@import", "<link", "<script"] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert!(page.contains("nscc&lt;/script&gt;") && page.contains("eqds &amp; co"));
    assert!(!page.contains("nscc</script>"), "names are text, not markup");
    // The document reads back from JSON.
    let json = serde_json::to_string(&document).expect("JSON");
    assert_eq!(serde_json::from_str::<Document>(&json).expect("a document"), document);
}

#[test]
fn what_was_swept_is_an_axis_with_means_and_their_confidence() {
    let swept = |senders: &str, cc: &str, seed, slow| {
        let mut run = run(cc, slow);
        run.parameters.insert("senders".to_owned(), senders.to_owned());
        run.seed = seed;
        run
    };
    let runs = [
        swept("8", "nscc", 1, 10.0),
        swept("8", "nscc", 2, 12.0),
        swept("128", "nscc", 1, 30.0),
        swept("8", "eqds", 1, 20.0),
    ];
    let metrics = ["max_fct".parse().expect("a metric")];
    let document = from_runs("t", &[], &runs, &metrics);
    let plot = &document.plots[0];
    assert_eq!((plot.x.as_str(), plot.y.as_str(), plot.log), ("senders", "max_fct (us)", false));
    let names: Vec<&str> = plot.lines.iter().map(|line| line.name.as_str()).collect();
    assert_eq!(names, ["eqds", "nscc"]);
    // The slowest of four flows took 40 and 48 us, and 120 us at the other point; Student's t of
    // one degree is 12.71.
    assert_eq!(plot.lines[1].points, [(8.0, 44.0), (128.0, 120.0)]);
    assert!((plot.lines[1].half[0] - 12.71 * 4.0).abs() < 1e-9, "{:?}", plot.lines[1].half);
    // A wide sweep has a logarithmic axis; values that are no numbers have bars.
    let sizes = [swept("4KiB", "nscc", 1, 1.0), swept("1MiB", "nscc", 1, 9.0)];
    assert!(from_runs("t", &[], &sizes, &metrics).plots[0].log);
    let bars = from_runs("t", &[], &[run("nscc", 1.0), run("eqds", 2.0)], &metrics).bars;
    assert_eq!(bars[0].bars, [("nscc".to_owned(), 4.0), ("eqds".to_owned(), 8.0)]);
}

#[test]
fn curves_that_are_left_out_are_counted() {
    let mut run = run("nscc", 1.0);
    let window = |n: u32| Series {
        kind: SeriesKind::Window,
        name: format!("flow {n}"),
        points: vec![(0.0, f64::from(n))],
    };
    run.series = (0..100).map(window).collect();
    let document = from_runs("t", &[], &[run], &[]);
    let plot = document.plots.iter().find(|plot| plot.family == "Congestion windows").expect("it");
    assert!(plot.title.ends_with("(the first 64 of 100)"), "{}", plot.title);
    assert_eq!(plot.lines.len(), 64);
}

#[test]
fn empty_and_odd_data_are_drawn() {
    let line = |points: Vec<(f64, f64)>| Line { name: "l".into(), points, half: vec![1.0] };
    for lines in [
        vec![],
        vec![line(vec![])],
        vec![line(vec![(5.0, 0.0)])],
        vec![line(vec![(1e9, 1e12), (1.1e9, 0.0)])],
    ] {
        for log in [false, true] {
            let plots = vec![Plot { lines: lines.clone(), log, ..Plot::default() }];
            let document = Document { plots, ..Document::default() };
            figures(&[document]).expect("drawn");
        }
    }
    for count in [1, 12, 13, 300] {
        let bars = (0..count).map(|n| (n.to_string(), f64::from(n))).collect();
        let bars = vec![Bars { bars, mark: Some(("m".into(), 3.0)), ..Bars::default() }];
        let drawn = figures(&[Document { bars, ..Document::default() }]).expect("drawn");
        assert_eq!(drawn[0].0, "01-.svg");
    }
}

#[test]
fn plots_of_a_family_have_the_same_axes() {
    let plot = |family: &str, high| {
        let lines = vec![Line { points: vec![(0.0, 0.0), (9.0, high)], ..Line::default() }];
        Plot { family: family.to_owned(), lines, ..Plot::default() }
    };
    let document = |family| Document {
        plots: vec![plot(family, 3.0), plot(family, 70_000.0)],
        ..Document::default()
    };
    let has_label = |family| {
        let drawn = figures(&[document(family)]).expect("drawn");
        drawn.iter().map(|(_, svg)| svg.contains("70000")).collect::<Vec<_>>()
    };
    assert_eq!(has_label("Queues"), [true, true]);
    assert_eq!(has_label(""), [false, true]);
}

#[test]
fn markup_in_text_stays_text() {
    assert_eq!(escape("<a href='x'>\"&"), "&lt;a href=&#39;x&#39;&gt;&quot;&amp;");
}

#[test]
fn a_distribution_pools_seeds_and_ends_at_one() {
    let mut other = run("nscc", 30.0);
    other.seed = 2;
    let document = from_runs("t", &[], &[run("nscc", 10.0), other], &[]);
    let plot = &document.plots[0];
    assert_eq!(plot.lines.len(), 1);
    let points = &plot.lines[0].points;
    assert_eq!((points[0], points[points.len() - 1]), ((10.0, 0.0), (120.0, 1.0)));
    // Eight flows: 10 20 30 30 40 60 90 120; half are done at 30.
    assert!(points.contains(&(30.0, 0.5)) && plot.steps, "{points:?}");
}

/// Returns an input whose runs have these settings.
fn input(name: &str, settings: &[&[(&str, &str)]]) -> Input {
    let run_of = |settings: &&[(&str, &str)]| {
        let mut made = Provenance::default();
        settings.iter().for_each(|(key, value)| made.settings.set(*key, value));
        let provenance = (!settings.is_empty()).then_some(made);
        Run { provenance, parameters: std::collections::BTreeMap::new(), ..run("", 10.0) }
    };
    Input { name: name.to_owned(), runs: settings.iter().map(run_of).collect() }
}

#[test]
fn results_are_named_by_what_differs_between_them() {
    let metrics: Vec<Metric> = vec!["max_fct".parse().expect("a metric")];
    let names = |inputs: &[Input]| {
        let document = beside(inputs, &metrics).expect("several");
        let queues = document.plots.iter().find(|plot| plot.title.starts_with("The longest queue"));
        let names = queues.map(|plot| plot.lines.iter().map(|line| line.name.clone()).collect());
        let names: Vec<String> = names.unwrap_or_default();
        let rows: Vec<String> = document.tables[0].rows.iter().map(|row| row.join(" ")).collect();
        (names.join(", "), rows.join("; "))
    };
    let same = ("topology.hosts", "16");
    let nscc = input("a", &[&[same, ("transport.cc", "nscc"), ("seed", "1")]]);
    let swift = input("b", &[&[same, ("transport.cc", "swift"), ("seed", "2")]]);
    let expected = ("nscc, swift".to_owned(), "seed 1 2; transport.cc nscc swift".to_owned());
    assert_eq!(names(&[nscc.clone(), swift.clone()]), expected);
    // If no settings differ, or an input states none, inputs are named by their files. Runs with
    // other seeds are samples of one curve.
    assert_eq!(names(&[nscc.clone(), Input { name: "c".into(), ..nscc.clone() }]).0, "a, c");
    assert_eq!(names(&[input("old", &[&[]]), nscc.clone()]).0, "old, a");
    let again = input("d", &[&[same, ("transport.cc", "nscc"), ("seed", "9")]]);
    assert_eq!(names(&[nscc.clone(), again]).0, "");
    // Two keys with the same last word are named in full. A swept key whose values are the same in
    // both inputs is no difference.
    let (x, y) = ([("x.of", "1"), ("y.of", "2")], [("x.of", "3"), ("y.of", "4")]);
    let document = beside(&[input("x", &[&x]), input("y", &[&y])], &metrics).expect("two");
    assert_eq!(document.tables[1].head[..2], ["x.of", "y.of"]);
    let swept: &[&[(&str, &str)]] = &[&[("cc", "nscc")], &[("cc", "swift")]];
    assert_eq!(names(&[input("m", swept), input("n", swept)]).1, "");
    assert!(beside(&[nscc], &metrics).is_none());
}
