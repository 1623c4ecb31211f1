//! The page.

use std::fmt::Write;

use super::svg::{self, PlotError};
use super::{Document, TableOf};

const STYLE: &str = "
:root { color-scheme: light; }
body { font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; border-top: 1px solid #ddd;
  padding-top: 1rem; }
nav ol { columns: 2; column-gap: 4rem; } figure { margin: 1.5rem 0; } figcaption { font-weight: 600; }
svg { max-width: 100%; height: auto; border: 1px solid #e4e4e4; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: .5rem 0;
  font-variant-numeric: tabular-nums; font-size: .87rem; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .2rem .7rem .2rem 0; text-align: left; vertical-align: top; }
th { border-bottom: 1px solid #999; } td.n, th.n { text-align: right; }
tr:nth-child(even) td { background: #f7f7f7; }
.pass { color: #006b3c; } .fail { color: #b00020; font-weight: 600; } .explained { color: #8a5a00; }
";

/// The whole page.
///
/// # Errors
/// A plot cannot be drawn.
pub fn render(title: &str, documents: &[Document]) -> Result<String, PlotError> {
    let mut page = String::new();
    let title = escape(title);
    // Writing to a string does not fail.
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta \
         name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n<style>{STYLE}\
         </style>\n</head>\n<body>\n<h1>{title}</h1>\n"
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
        section(&mut page, document)?;
        page.push_str("</section>\n");
    }
    page.push_str("</body>\n</html>\n");
    Ok(page)
}

fn section(page: &mut String, document: &Document) -> Result<(), PlotError> {
    let _ = writeln!(page, "<h2>{}</h2>", escape(&document.title));
    for paragraph in &document.text {
        let _ = writeln!(page, "<p>{}</p>", escape(paragraph));
    }
    for table in &document.tables {
        self::table(page, table);
    }
    for plot in document.plots.iter().filter(|plot| !plot.lines.is_empty()) {
        figure(page, &plot.title, &svg::plot(plot)?);
    }
    for bars in document.bars.iter().filter(|bars| !bars.bars.is_empty()) {
        figure(page, &bars.title, &svg::bars(bars)?);
    }
    Ok(())
}

fn figure(page: &mut String, title: &str, svg: &str) {
    let title = escape(title);
    let _ = writeln!(page, "<figure>\n<figcaption>{title}</figcaption>\n{svg}\n</figure>");
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
    page.push_str("<div class=\"wide\"><table>\n");
    let _ = writeln!(page, "<caption>{}</caption>\n<thead><tr>", escape(&table.title));
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
