//! Renders the HTML page of a report.

use std::fmt::Write;

use super::svg::{Figure, PlotError, draw};
use super::{Document, ReportTable};

const STYLE: &str = include_str!("page.css");

/// Returns the whole page as HTML, with style sheet and plots inline.
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
    for (index, (document, figures)) in documents.iter().zip(draw(documents)?).enumerate() {
        let _ = writeln!(page, "<section id=\"d{index}\">");
        section(&mut page, document, &figures);
        page.push_str("</section>\n");
    }
    page.push_str("</body>\n</html>\n");
    Ok(page)
}

fn section(page: &mut String, document: &Document, figures: &[Figure<'_>]) {
    let _ = writeln!(page, "<h2>{}</h2>", escape(&document.title));
    for paragraph in &document.text {
        let _ = writeln!(page, "<p>{}</p>", escape(paragraph));
    }
    for table in &document.tables {
        self::table(page, table);
    }
    for Figure { title, svg } in figures {
        let title = escape(title);
        let _ = writeln!(page, "<figure>\n<figcaption>{title}</figcaption>\n{svg}</figure>");
    }
}

fn table(page: &mut String, table: &ReportTable) {
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
