//! Draws plots as SVG text.

use std::collections::BTreeMap;
use std::error::Error;

use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::{Bars, Document, Gantt, Line, Plot};
use squall_netsim::output::text::number;

/// The palette of Okabe and Ito, which colour-blind readers can tell apart.
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

/// Colour of the lines that mark events.
const MARK: RGBColor = RGBColor(176, 0, 32);

/// Largest number of points of a curve: the plot has no more columns of pixels.
const POINTS: usize = 800;
const SIZE: (u32, u32) = (760, 380);
/// Width of the legend beside the plot, pixels.
const LEGEND: u32 = 190;
const FONT: (&str, i32) = ("sans-serif", 13);

/// The error that a plot or bar chart could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw `{title}`: {why}")]
pub struct PlotError {
    title: String,
    why: String,
}

/// A plot or bar chart as it was drawn.
pub(super) struct Figure<'a> {
    /// Caption of the figure.
    pub(super) title: &'a str,
    /// The drawing as an SVG element.
    pub(super) svg: String,
}

/// Draws the plots and bars of each document.
///
/// # Errors
/// The plotting library reports an error.
pub(super) fn draw(documents: &[Document]) -> Result<Vec<Vec<Figure<'_>>>, PlotError> {
    let families = families(documents);
    let figures = |document| figures_of(document, &families).collect();
    documents.iter().map(figures).collect()
}

fn figures_of<'a>(
    document: &'a Document,
    families: &Families<'_>,
) -> impl Iterator<Item = Result<Figure<'a>, PlotError>> {
    let plots = document.plots.iter().filter(|plot| !plot.lines.is_empty());
    let gantts = document.gantts.iter().filter(|gantt| !gantt.rows.is_empty());
    let gantts = gantts.map(|shown| Ok(Figure { title: &shown.title, svg: self::gantt(shown)? }));
    let bars = document.bars.iter().filter(|bars| !bars.bars.is_empty());
    let plots = plots.map(|shown| {
        let ends = families.get(shown.family.as_str()).filter(|_| !shown.log);
        Ok(Figure {
            title: &shown.title,
            svg: plot(shown, ends.copied().unwrap_or_else(|| ends_of(shown)))?,
        })
    });
    plots
        .chain(gantts)
        .chain(bars.map(|shown| Ok(Figure { title: &shown.title, svg: self::bars(shown)? })))
}

/// Returns the plots of documents as SVG, each with a file name.
///
/// # Errors
/// The plotting library reports an error.
pub fn figures(documents: &[Document]) -> Result<Vec<(String, String)>, PlotError> {
    let numbered = (1..).zip(draw(documents)?.into_iter().flatten());
    let named =
        |(n, figure): (u32, Figure<'_>)| (format!("{n:02}-{}.svg", slug(figure.title)), figure.svg);
    Ok(numbered.map(named).collect())
}

/// Converts a title to a part of a file name.
fn slug(title: &str) -> String {
    let mut slug = String::new();
    for c in title.chars().take(60) {
        match c.is_ascii_alphanumeric() {
            true => slug.push(c.to_ascii_lowercase()),
            false if !slug.is_empty() && !slug.ends_with('-') => slug.push('-'),
            false => {}
        }
    }
    slug.trim_end_matches('-').to_owned()
}

/// Draws a plot as SVG.
///
/// # Errors
/// The plotting library reports an error.
fn plot(plot: &Plot, ends: Ends) -> Result<String, PlotError> {
    let mut text = String::new();
    let drawn = draw_plot(plot, ends, &mut text);
    finish(drawn, &text, &plot.title)
}

/// Draws a bar chart as SVG.
///
/// # Errors
/// The plotting library reports an error.
fn bars(bars: &Bars) -> Result<String, PlotError> {
    let mut text = String::new();
    let drawn = draw_bars(bars, &mut text);
    finish(drawn, &text, &bars.title)
}

/// Draws a Gantt chart as SVG: a bar for each row, coloured by state, and a legend of the states.
///
/// # Errors
/// The plotting library reports an error.
fn gantt(gantt: &Gantt) -> Result<String, PlotError> {
    let mut text = String::new();
    let drawn = draw_gantt(gantt, &mut text);
    finish(drawn, &text, &gantt.title)
}

fn finish(drawn: Result<(), Box<dyn Error>>, svg: &str, title: &str) -> Result<String, PlotError> {
    match drawn {
        Ok(()) => Ok(svg.replacen("<svg ", "<svg role=\"img\" ", 1)),
        Err(why) => Err(PlotError { title: title.to_owned(), why: why.to_string() }),
    }
}

/// Returns the upper end of a vertical axis that begins at zero and has to show `highest`.
fn top(highest: f64) -> f64 {
    if highest > 0.0 && highest.is_finite() { highest * 1.05 } else { 1.0 }
}

/// Dash patterns of curves. Curves differ in colour first; when the colours are used up, also in
/// pattern.
const DASHES: [Option<(i32, i32)>; 4] = [None, Some((8, 4)), Some((2, 4)), Some((12, 3))];

fn look(index: usize) -> (RGBColor, Option<(i32, i32)>) {
    (COLOURS[index % COLOURS.len()], DASHES[index / COLOURS.len() % DASHES.len()])
}

/// Returns the points through which a curve is drawn, with steps if the plot asks for them.
fn trail(plot: &Plot, line: &Line) -> Vec<(f64, f64)> {
    let mut trail: Vec<(f64, f64)> = Vec::new();
    for (x, y) in thinned(&line.points) {
        let x = across(plot, x);
        if let Some(&(_, before)) = trail.last().filter(|_| plot.steps) {
            trail.push((x, before));
        }
        trail.push((x, y));
    }
    trail
}

/// Returns the position of a value on the horizontal axis.
fn across(plot: &Plot, x: f64) -> f64 {
    if plot.log { x.max(f64::MIN_POSITIVE).log10() } else { x }
}

/// Ends of the axes of a plot: left, right and top. The vertical axis begins at zero.
#[derive(Clone, Copy)]
struct Ends {
    left: f64,
    right: f64,
    high: f64,
}

/// The ends that the plots of each family share, so that readers can compare plots side by side.
type Families<'a> = BTreeMap<&'a str, Ends>;

fn families(documents: &[Document]) -> Families<'_> {
    let mut families = Families::new();
    let plots = documents.iter().flat_map(|document| &document.plots);
    for plot in plots.filter(|plot| !plot.family.is_empty() && !plot.log) {
        let ends = ends_of(plot);
        let known = families.entry(plot.family.as_str()).or_insert(ends);
        known.left = known.left.min(ends.left);
        known.right = known.right.max(ends.right);
        known.high = known.high.max(ends.high);
    }
    families
}

/// Returns the axis ends that show all points of a plot with their intervals.
fn ends_of(plot: &Plot) -> Ends {
    let places =
        || plot.lines.iter().flat_map(|line| &line.points).map(|point| across(plot, point.0));
    let left = places().fold(f64::INFINITY, f64::min).min(1e300);
    let right = places().fold(f64::NEG_INFINITY, f64::max);
    // The axis begins at zero unless the points would be squeezed together.
    let close = plot.log || left > right * 0.3;
    let left = if left.is_finite() && close { left } else { 0.0 };
    let right = if right > left { right } else { left + 1.0 };
    let tops = plot.lines.iter().flat_map(|line| {
        let half = line.half.iter().copied().chain(core::iter::repeat(0.0));
        line.points.iter().zip(half).map(|(point, half)| point.1 + half)
    });
    Ends { left, right, high: top(tops.fold(0.0, f64::max)) }
}

fn draw_plot(plot: &Plot, ends: Ends, to: &mut String) -> Result<(), Box<dyn Error>> {
    let Ends { left, right, high } = ends;
    let size = (SIZE.0, SIZE.1.max(30 + 19 * u32::try_from(plot.lines.len())?));
    let area = SVGBackend::with_string(to, size).into_drawing_area();
    area.fill(&WHITE)?;
    let (graph, legend) = area.split_horizontally(SIZE.0 - LEGEND);
    let mut chart = ChartBuilder::on(&graph)
        .margin(10)
        .x_label_area_size(42)
        .y_label_area_size(70)
        .build_cartesian_2d(left..right, 0.0..high)?;
    let label = |value: &f64| number(if plot.log { 10f64.powf(*value) } else { *value });
    chart
        .configure_mesh()
        .x_desc(&plot.x)
        .y_desc(&plot.y)
        .label_style(FONT)
        .axis_desc_style(("sans-serif", 14))
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_label_formatter(&label)
        .y_label_formatter(&|value| number(*value))
        .draw()?;
    for (index, line) in plot.lines.iter().enumerate() {
        let (colour, dashes) = look(index);
        let (trail, style) = (trail(plot, line), colour.stroke_width(2));
        match dashes {
            None => chart.draw_series(LineSeries::new(trail, style))?,
            Some((on, off)) => chart.draw_series(DashedLineSeries::new(trail, on, off, style))?,
        };
        let bars = line.points.iter().zip(&line.half).map(|((x, y), half)| {
            let (low, high) = ((y - half).max(0.0), y + half);
            ErrorBar::new_vertical(across(plot, *x), low, *y, high, colour.stroke_width(1), 7)
        });
        chart.draw_series(bars)?;
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
    for (index, name) in names.enumerate() {
        let y = 22 + 19 * i32::try_from(index)?;
        let (colour, dashes) = look(index);
        let (ends, style) = ([(4, y), (24, y)], colour.stroke_width(3));
        match dashes {
            None => area.draw(&PathElement::new(ends, style))?,
            Some((on, off)) => area.draw(&DashedPathElement::new(ends, on, off, style))?,
        }
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
    let half = bars.half.iter().copied().chain(core::iter::repeat(0.0));
    let high = top(bars.bars.iter().zip(half).map(|(bar, half)| bar.1 + half).fold(mark, f64::max));
    let count = bars.bars.len().max(1) as f64;
    // Names are written below the bars if there are at most 12; else only the first and the last
    // are shown.
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
    let ends = bars.bars.iter().zip(&bars.half).enumerate().map(|(index, (bar, half))| {
        let (low, high) = ((bar.1 - half).max(0.0), bar.1 + half);
        ErrorBar::new_vertical(index as f64 + 0.5, low, bar.1, high, BLACK.stroke_width(1), 7)
    });
    chart.draw_series(ends)?;
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

/// Colours of the states of a Gantt chart, by the number of the state. The first, waiting, is grey.
const STATES: [RGBColor; 4] = [RGBColor(228, 228, 228), COLOURS[1], COLOURS[0], COLOURS[2]];
/// Height of a row of a Gantt chart, pixels.
const ROW: u32 = 18;

fn draw_gantt(gantt: &Gantt, to: &mut String) -> Result<(), Box<dyn Error>> {
    let rows = u32::try_from(gantt.rows.len())?;
    let size = (SIZE.0, 80 + ROW * rows);
    let area = SVGBackend::with_string(to, size).into_drawing_area();
    area.fill(&WHITE)?;
    let (graph, legend) = area.split_horizontally(SIZE.0 - LEGEND);
    let end = top(gantt.end) / 1.05;
    let mut chart = ChartBuilder::on(&graph)
        .margin(10)
        .x_label_area_size(42)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..end, f64::from(rows)..0.0)?;
    let name = |at: &f64| {
        let row = gantt.rows.get(*at as usize).filter(|_| at.fract().abs() > 0.4);
        row.map_or(String::new(), |row| row.0.clone())
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_max_light_lines(1)
        .x_desc(&gantt.x)
        .y_labels(2 * gantt.rows.len() + 1)
        .label_style(FONT)
        .axis_desc_style(("sans-serif", 14))
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_label_formatter(&|value| number(*value))
        .y_label_formatter(&name)
        .draw()?;
    for (row, (_, changes)) in gantt.rows.iter().enumerate() {
        let (top, bottom) = (row as f64 + 0.12, row as f64 + 0.88);
        let stretches = stretches(changes, end, gantt.states.len());
        chart.draw_series(stretches.into_iter().map(|(from, to, state)| {
            Rectangle::new([(from, top), (to, bottom)], STATES[state % STATES.len()].filled())
        }))?;
    }
    for (index, name) in gantt.states.iter().enumerate() {
        let y = 22 + 19 * i32::try_from(index)?;
        let colour = STATES[index % STATES.len()].filled();
        legend.draw(&Rectangle::new([(4, y - 6), (24, y + 6)], colour))?;
        legend.draw(&Text::new(name.clone(), (28, y - 7), FONT))?;
    }
    area.present()?;
    Ok(())
}

/// Number of columns into which a Gantt chart divides its time axis, so that a long job needs no larger
/// picture than a short one. A column has the colour of the state in which the row spends most of the
/// column's time.
const COLUMNS: usize = 480;

/// Returns the coloured parts of one row of a Gantt chart from its changes of state: the time at which
/// each part begins, the time at which it ends, and its state. Adjacent columns of one state are one
/// part. Columns before the first change belong to no part.
fn stretches(changes: &[(f64, u8)], end: f64, states: usize) -> Vec<(f64, f64, usize)> {
    let mut columns = vec![vec![0.0; states.max(1)]; COLUMNS];
    let ends = changes.iter().skip(1).map(|change| change.0).chain([end]);
    for (&(from, state), to) in changes.iter().zip(ends) {
        let place = |at: f64| (at / end).clamp(0.0, 1.0) * COLUMNS as f64;
        let (from, to) = (place(from), place(to));
        let last = (to.ceil() as usize).min(COLUMNS);
        for (column, shares) in columns.iter_mut().enumerate().take(last).skip(from as usize) {
            let share = to.min(column as f64 + 1.0) - from.max(column as f64);
            if let Some(sum) = shares.get_mut(usize::from(state)) {
                *sum += share;
            }
        }
    }
    let mut stretches: Vec<(f64, f64, usize)> = Vec::new();
    for (column, shares) in columns.iter().enumerate() {
        let most = (0..shares.len()).max_by(|a, b| shares[*a].total_cmp(&shares[*b]));
        let Some(state) = most.filter(|state| shares[*state] > 0.0) else { continue };
        let at = |column: usize| column as f64 / COLUMNS as f64 * end;
        match stretches.last_mut().filter(|last| last.2 == state && last.1 == at(column)) {
            Some(last) => last.1 = at(column + 1),
            None => stretches.push((at(column), at(column + 1), state)),
        }
    }
    stretches
}

/// Thins out a curve to about [`POINTS`] points: the lowest and the highest of each stretch, so
/// that peaks remain visible.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= POINTS {
        return points.to_vec();
    }
    let mut kept = Vec::with_capacity(POINTS + 2);
    for stretch in points.chunks(points.len().div_ceil(POINTS / 2)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A column is a second. The first has 0.3 s of state 0, 0.5 of state 2 and 0.2 of state 1; the
    /// fourth has twice 0.3 s of state 1 around 0.4 of state 0.
    #[test]
    fn a_column_of_a_gantt_chart_shows_the_state_that_fills_most_of_it() {
        let end = COLUMNS as f64;
        let changes =
            [(0.0, 0), (0.3, 2), (0.8, 1), (2.0, 0), (3.0, 1), (3.3, 0), (3.7, 1), (4.0, 0)];
        let all = stretches(&changes, end, 3);
        assert_eq!(
            all,
            [(0.0, 1.0, 2), (1.0, 2.0, 1), (2.0, 3.0, 0), (3.0, 4.0, 1), (4.0, end, 0)]
        );
        assert_eq!(stretches(&[(0.0, 1)], end, 3), [(0.0, end, 1)]);
        assert!(stretches(&[], end, 3).is_empty());
    }
}
