//! Plots as SVG text.

use std::error::Error;

use plotters::prelude::*;

use super::{Bars, Plot};
use crate::output::text::number;

/// Okabe and Ito's palette: told apart by colour-blind readers too.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
    RGBColor(150, 110, 60),
];

/// Of what happened at a time.
const MARK: RGBColor = RGBColor(176, 0, 32);

const SIZE: (u32, u32) = (760, 380);
/// Room for the legend beside the plot.
const LEGEND: u32 = 190;
const FONT: (&str, i32) = ("sans-serif", 13);

/// A plot that could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw `{title}`: {why}")]
pub struct PlotError {
    title: String,
    why: String,
}

/// Curves as SVG.
///
/// # Errors
/// The plotting library fails.
pub(super) fn plot(plot: &Plot) -> Result<String, PlotError> {
    let mut text = String::new();
    let drawn = draw_plot(plot, &mut text);
    finish(drawn, &text, &plot.title)
}

/// Bars as SVG.
///
/// # Errors
/// The plotting library fails.
pub(super) fn bars(bars: &Bars) -> Result<String, PlotError> {
    let mut text = String::new();
    let drawn = draw_bars(bars, &mut text);
    finish(drawn, &text, &bars.title)
}

fn finish(drawn: Result<(), Box<dyn Error>>, svg: &str, title: &str) -> Result<String, PlotError> {
    match drawn {
        // So that it shrinks with the page.
        Ok(()) => Ok(svg.replacen("<svg ", "<svg role=\"img\" ", 1)),
        Err(why) => Err(PlotError { title: title.to_owned(), why: why.to_string() }),
    }
}

/// The end of an axis that begins at zero and has to show `highest`.
fn top(highest: f64) -> f64 {
    if highest > 0.0 && highest.is_finite() { highest * 1.05 } else { 1.0 }
}

fn draw_plot(plot: &Plot, to: &mut String) -> Result<(), Box<dyn Error>> {
    let points = || plot.lines.iter().flat_map(|line| &line.points);
    let left = points().map(|point| point.0).fold(f64::INFINITY, f64::min).min(1e300);
    let right = points().map(|point| point.0).fold(f64::NEG_INFINITY, f64::max);
    // Times begin at zero unless that would squeeze them together.
    let left = if left.is_finite() && left > right * 0.3 { left } else { 0.0 };
    let right = if right > left { right } else { left + 1.0 };
    let high = top(points().map(|point| point.1).fold(0.0, f64::max));

    let area = SVGBackend::with_string(to, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (graph, legend) = area.split_horizontally(SIZE.0 - LEGEND);
    let mut chart = ChartBuilder::on(&graph)
        .margin(10)
        .x_label_area_size(42)
        .y_label_area_size(70)
        .build_cartesian_2d(left..right, 0.0..high)?;
    chart
        .configure_mesh()
        .x_desc(&plot.x)
        .y_desc(&plot.y)
        .label_style(FONT)
        .axis_desc_style(("sans-serif", 14))
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_label_formatter(&|value| number(*value))
        .y_label_formatter(&|value| number(*value))
        .draw()?;
    for (index, line) in plot.lines.iter().enumerate() {
        let style = COLOURS[index % COLOURS.len()].stroke_width(2);
        let thin: Vec<(f64, f64)> = thinned(&line.points);
        chart.draw_series(LineSeries::new(thin, style))?;
    }
    for (at, name) in plot.marks.iter().filter(|(at, _)| (left..=right).contains(at)) {
        let upright = [(*at, 0.0), (*at, high)];
        chart.draw_series(DashedLineSeries::new(upright, 6, 4, MARK.stroke_width(1)))?;
        let place = (*at + (right - left) * 0.004, high * 0.995);
        chart.draw_series([Text::new(name.clone(), place, FONT.into_font().color(&MARK))])?;
    }
    let names = plot.lines.iter().map(|line| line.name.as_str());
    draw_legend(&legend, names)?;
    area.present()?;
    Ok(())
}

fn draw_legend<'a, DB: DrawingBackend>(
    area: &DrawingArea<DB, plotters::coord::Shift>,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), Box<dyn Error>>
where
    DB::ErrorType: 'static,
{
    for (index, name) in names.enumerate().take(18) {
        let y = 22 + 19 * i32::try_from(index)?;
        let colour = COLOURS[index % COLOURS.len()];
        area.draw(&Rectangle::new([(4, y - 2), (22, y + 2)], colour.filled()))?;
        let mut short: String = name.chars().take(24).collect();
        if short.len() < name.len() {
            short.push('…');
        }
        area.draw(&Text::new(short, (28, y - 7), FONT))?;
    }
    Ok(())
}

fn draw_bars(bars: &Bars, to: &mut String) -> Result<(), Box<dyn Error>> {
    let mark = bars.mark.as_ref().map_or(0.0, |mark| mark.1);
    let high = top(bars.bars.iter().map(|bar| bar.1).fold(mark, f64::max));
    let count = bars.bars.len().max(1) as f64;
    // Names are written upright below the bars if they fit, else along them.
    let few = bars.bars.len() <= 12;
    let area = SVGBackend::with_string(to, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .margin_right(30)
        .x_label_area_size(42)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..count, 0.0..high)?;
    let name = |at: &f64| {
        let bar = bars.bars.get(*at as usize).filter(|_| few && at.fract().abs() > 0.4);
        bar.map_or(String::new(), |bar| bar.0.clone())
    };
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh()
        .y_desc(&bars.y)
        .label_style(FONT)
        .axis_desc_style(("sans-serif", 14))
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_label_formatter(&name)
        .y_label_formatter(&|value| number(*value));
    if few {
        mesh.x_labels(2 * bars.bars.len() + 1);
    } else {
        mesh.x_labels(0);
        mesh.x_desc(format!("{} .. {}", bars.bars[0].0, bars.bars[bars.bars.len() - 1].0));
    }
    mesh.draw()?;
    chart.draw_series(bars.bars.iter().enumerate().map(|(index, bar)| {
        let left = index as f64;
        Rectangle::new([(left + 0.1, 0.0), (left + 0.9, bar.1)], COLOURS[0].filled())
    }))?;
    if let Some((name, level)) = &bars.mark {
        let line = [(0.0, *level), (count, *level)];
        chart.draw_series(LineSeries::new(line, COLOURS[1].stroke_width(2)))?;
        let style = FONT.into_font().color(&COLOURS[1]);
        chart.draw_series([Text::new(
            name.clone(),
            (count * 0.01, level + high * 0.045),
            style,
        )])?;
    }
    area.present()?;
    Ok(())
}

/// At most some 800 points: of each stretch its lowest and its highest, so that peaks stay.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    const STRETCHES: usize = 400;
    if points.len() <= 2 * STRETCHES {
        return points.to_vec();
    }
    let mut kept = Vec::with_capacity(2 * STRETCHES + 2);
    for stretch in points.chunks(points.len().div_ceil(STRETCHES)) {
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let (Some(low), Some(high)) =
            (stretch.iter().min_by(by_value), stretch.iter().max_by(by_value))
        else {
            continue;
        };
        let mut pair = [*low, *high];
        pair.sort_by(|a, b| a.0.total_cmp(&b.0));
        kept.extend(pair);
    }
    kept
}
