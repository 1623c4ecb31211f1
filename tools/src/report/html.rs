//! The page.

use std::fmt::Write;

use serde::Serialize;

use super::svg::thinned;
use super::{Bars, Document, Line, Plot, TableOf};

const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");
/// Plotly 4.1.1, basic bundle, MIT (page/plotly-LICENSE).
const PLOTLY: &str = include_str!("page/plotly-basic.min.js");
/// Most points of a curve: more could not be told apart, and make the page slow.
const POINTS: usize = 4000;

/// What the script draws.
#[derive(Serialize)]
#[serde(untagged)]
enum Figure<'a> {
    Plot(Plot),
    Bars(&'a Bars),
}

/// The whole page.
#[must_use]
pub fn render(title: &str, documents: &[Document]) -> String {
    let mut page = String::new();
    let mut figures = Vec::new();
    let title = escape(title);
    // Writing to a string does not fail.
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta \
         name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n<style>{STYLE}\
         </style>\n</head>\n<body>\n<h1>{title}</h1>\n<noscript><p>The plots need JavaScript; <code>squall report \
         --svg</code> draws them as files.</p></noscript>\n"
    );
    if documents.len() > 1 {
        page.push_str("<nav><ol>\n");
        for (index, document) in documents.iter().enumerate() {
            let _ =
                writeln!(page, "<li><a href=\"#d{index}\">{}</a></li>", escape(&document.title));
        }
        page.push_str("</ol></nav>\n");
    }
    for (index, document) in documents.iter().enumerate() {
        let _ = writeln!(page, "<section id=\"d{index}\">");
        section(&mut page, &mut figures, document);
        page.push_str("</section>\n");
    }
    // In a script element only `</script` and `<!--` are markup: JSON may write `<` otherwise.
    let data = serde_json::to_string(&figures).unwrap_or_default().replace('<', "\\u003c");
    let _ = write!(
        page,
        "<script type=\"application/json\" id=\"figures\">{data}</script>\n<script>{PLOTLY}</script>\n\
         <script>{SCRIPT}</script>\n</body>\n</html>\n"
    );
    page
}

fn section<'a>(page: &mut String, figures: &mut Vec<Figure<'a>>, document: &'a Document) {
    let _ = writeln!(page, "<h2>{}</h2>", escape(&document.title));
    for paragraph in &document.text {
        let _ = writeln!(page, "<p>{}</p>", escape(paragraph));
    }
    for table in &document.tables {
        self::table(page, table);
    }
    let mut figure = |page: &mut String, title: &str, figure: Figure<'a>| {
        let _ = writeln!(
            page,
            "<figure data-figure=\"{}\">\n<figcaption>{}</figcaption>\n<div class=\"plot\"></div>\n</figure>",
            figures.len(),
            escape(title)
        );
        figures.push(figure);
    };
    for plot in document.plots.iter().filter(|plot| !plot.lines.is_empty()) {
        figure(page, &plot.title, Figure::Plot(slim(plot)));
    }
    for bars in document.bars.iter().filter(|bars| !bars.bars.is_empty()) {
        figure(page, &bars.title, Figure::Bars(bars));
    }
}

/// With fewer points where there are very many.
fn slim(plot: &Plot) -> Plot {
    let thin = |line: &Line| Line { points: thinned(&line.points, POINTS), ..line.clone() };
    Plot { lines: plot.lines.iter().map(thin).collect(), ..plot.clone() }
}

fn table(page: &mut String, table: &TableOf) {
    let numeric: Vec<bool> = (0..table.head.len())
        .map(|column| {
            table
                .rows
                .iter()
                .filter_map(|row| row.get(column))
                .all(|cell| cell.is_empty() || cell == "-" || cell.parse::<f64>().is_ok())
        })
        .collect();
    let class =
        |column: usize| if numeric.get(column) == Some(&true) { " class=\"n\"" } else { "" };
    let title = escape(&table.title);
    if table.folded {
        let _ = writeln!(page, "<details><summary>{title}</summary>");
    }
    page.push_str("<div class=\"wide\"><table>\n");
    if !table.folded {
        let _ = writeln!(page, "<caption>{title}</caption>");
    }
    page.push_str("<thead><tr>\n");
    for (column, name) in table.head.iter().enumerate() {
        let _ = write!(page, "<th{}>{}</th>", class(column), escape(name));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        page.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let class = match cell.as_str() {
                "pass" => " class=\"pass\"",
                "FAIL" => " class=\"fail\"",
                "explained" => " class=\"explained\"",
                _ => class(column),
            };
            let _ = write!(page, "<td{class}>{}</td>", escape(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
    if table.folded {
        page.push_str("</details>\n");
    }
}

pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}
