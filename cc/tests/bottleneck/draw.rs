//! Figures of a run: the queue, and every flow's window, over time.

use std::fs;
use std::path::Path;

use plotters::prelude::*;

use super::bed::Outcome;
use super::variable;

/// Draws `outcome` as `NAME.svg` in the directory that `SQUALL_SVG` names, if it names one.
pub(crate) fn on_request(name: &str, outcome: &Outcome) {
    let Some(directory) = variable("SQUALL_SVG") else { return };
    let path = Path::new(&directory).join(name).with_extension("svg");
    fs::create_dir_all(&directory).expect("SQUALL_SVG names a directory");
    draw(&path, name, outcome).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn draw(path: &Path, name: &str, outcome: &Outcome) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::new(path, (900, 600)).into_drawing_area();
    area.fill(&WHITE)?;
    let (upper, lower) = area.split_vertically(300);
    let micros = |time: squall_cc::base::Time| time.0 as f64 / 1e3;
    let end = outcome.series.last().map_or(1.0, |last| micros(last.0));
    let queue_top = outcome.max_queue.max(1) as f64 / 1024.0;
    let mut queue = ChartBuilder::on(&upper)
        .caption(format!("{name}: queue"), ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(30)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..end, 0.0..queue_top)?;
    queue.configure_mesh().x_desc("us").y_desc("KiB").draw()?;
    let points =
        outcome.series.iter().map(|(at, queued, _)| (micros(*at), *queued as f64 / 1024.0));
    queue.draw_series(LineSeries::new(points, &BLACK))?;
    let flows = outcome.series.first().map_or(0, |first| first.2.len());
    let windows = outcome.series.iter().flat_map(|sample| &sample.2);
    // A window without limit is not drawn.
    let top = windows.copied().filter(|&w| w < 1 << 30).max().unwrap_or(1).max(1);
    let mut window = ChartBuilder::on(&lower)
        .caption("windows", ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(30)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..end, 0.0..top as f64 / 1024.0)?;
    window.configure_mesh().x_desc("us").y_desc("KiB").draw()?;
    for flow in 0..flows {
        let points = outcome
            .series
            .iter()
            .map(|(at, _, windows)| (micros(*at), windows[flow].min(top) as f64 / 1024.0));
        window.draw_series(LineSeries::new(points, &Palette99::pick(flow)))?;
    }
    area.present()?;
    Ok(())
}
