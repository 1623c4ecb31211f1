use super::html::escape;
use super::*;
use crate::output::{FlowResult, LinkLoad, Metric, Run, Series, SeriesKind};

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

#[test]
fn a_report_is_one_file_without_script_or_fetch() {
    let metrics: Vec<Metric> = ["max_fct", "jain"].map(|name| name.parse().expect(name)).to_vec();
    let runs = [run("nscc<1>", 10.0), run("eqds & co", 12.0)];
    let document = from_runs("An experiment", &["It was.".into()], &runs, &metrics);
    let page = render("Results", &[document.clone(), Document::default()]).expect("drawn");
    // Distribution; queues, windows, paths, shares of each of the two.
    assert_eq!(page.matches("<svg ").count(), 9);
    assert_eq!(page.matches("</svg>").count(), 9);
    assert_eq!(page.matches("<figcaption>").count(), 9);
    for forbidden in ["<script", "http-equiv", " src=", "@import", "url(", "<link"] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert!(page.contains("nscc&lt;1&gt;") && page.contains("eqds &amp; co"));
    assert!(!page.contains("nscc<1>"), "names are text, not markup");
    // It reads back from JSON.
    let json = serde_json::to_string(&document).expect("JSON");
    assert_eq!(serde_json::from_str::<Document>(&json).expect("a document"), document);
}

#[test]
fn empty_and_odd_data_are_drawn() {
    let line = |points: Vec<(f64, f64)>| Line { name: "l".into(), points };
    for lines in [
        vec![],
        vec![line(vec![])],
        vec![line(vec![(5.0, 0.0)])],
        vec![line(vec![(1e9, 1e12), (1.1e9, 0.0)])],
    ] {
        let plots = vec![Plot { lines, ..Plot::default() }];
        render("t", &[Document { plots, ..Document::default() }]).expect("drawn");
    }
    for count in [1, 12, 13, 300] {
        let bars = (0..count).map(|n| (n.to_string(), f64::from(n))).collect();
        let bars = vec![Bars { bars, mark: Some(("m".into(), 3.0)), ..Bars::default() }];
        render("t", &[Document { bars, ..Document::default() }]).expect("drawn");
    }
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
    assert!(points.contains(&(30.0, 0.5)), "{points:?}");
}
