//! Results as tables: the columns are the same, whichever way a table is written.

use std::io::{self, Write};

use super::files::{parameter_names, provenance};
use super::{Metric, Provenance, Run};

/// Columns of equal length, and where what is in them came from.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// By their order in a file.
    pub columns: Vec<Column>,
    /// What all runs share of it.
    pub provenance: Option<Provenance>,
}

/// A column.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// A cell a row.
    pub cells: Cells,
}

/// What is in a column; `None` is an empty cell.
#[derive(Clone, PartialEq, Debug)]
pub enum Cells {
    /// Numbers that count.
    Whole(Vec<Option<u64>>),
    /// Numbers that measure.
    Real(Vec<Option<f64>>),
    /// Words.
    Word(Vec<Option<String>>),
}

impl Cells {
    /// As CSV has it.
    fn text(&self, row: usize) -> String {
        let text = match self {
            Self::Whole(cells) => cells[row].map(|cell| cell.to_string()),
            Self::Real(cells) => cells[row].map(|cell| cell.to_string()),
            Self::Word(cells) => cells[row].clone(),
        };
        text.unwrap_or_default()
    }

    /// Numbers, where all words are some; for files that tell one from the other.
    #[must_use]
    pub fn typed(self) -> Self {
        let Self::Word(words) = self else { return self };
        if words.iter().all(Option::is_none) {
            return Self::Word(words);
        }
        fn all<N>(words: &[Option<String>], read: fn(&str) -> Option<N>) -> Option<Vec<Option<N>>> {
            let numbers = words.iter().map(|word| word.as_deref().map(read));
            numbers.map(|number| number.map_or(Some(None), |read| read.map(Some))).collect()
        }
        let real = |word: &str| word.parse().ok().filter(|number: &f64| number.is_finite());
        all(&words, |word| word.parse().ok())
            .map(Self::Whole)
            .or_else(|| all(&words, real).map(Self::Real))
            .unwrap_or(Self::Word(words))
    }
}

/// Rows from which columns are made.
struct Rows<R> {
    rows: Vec<R>,
    columns: Vec<Column>,
}

impl<R> Rows<R> {
    fn new(rows: Vec<R>) -> Self {
        Self { rows, columns: Vec::new() }
    }

    fn add<C>(
        &mut self,
        name: &str,
        cells: fn(Vec<Option<C>>) -> Cells,
        of: impl Fn(&R) -> Option<C>,
    ) {
        let cells = cells(self.rows.iter().map(of).collect());
        self.columns.push(Column { name: name.to_owned(), cells });
    }

    /// What tells runs from each other, where there are several or all are to be named.
    fn add_run(&mut self, runs: &[Run], run: fn(&R) -> &Run) {
        for name in parameter_names(runs) {
            self.add(&name, Cells::Word, |row| run(row).parameters.get(&name).cloned());
        }
        self.add("seed", Cells::Whole, |row| Some(run(row).seed));
    }

    fn table(self, runs: &[Run]) -> Table {
        Table { columns: self.columns, provenance: provenance(runs) }
    }
}

impl Table {
    /// A row a flow of all runs, with a column for each parameter and the seed when there are several runs.
    #[must_use]
    pub fn flows(runs: &[Run]) -> Self {
        let flows = runs.iter().flat_map(|run| run.flows.iter().map(move |flow| (run, flow)));
        let mut rows = Rows::new(flows.collect());
        if runs.len() > 1 {
            rows.add_run(runs, |row| row.0);
        }
        rows.add("id", Cells::Whole, |(_, flow)| Some(flow.id.into()));
        rows.add("src", Cells::Whole, |(_, flow)| Some(flow.src.into()));
        rows.add("dst", Cells::Whole, |(_, flow)| Some(flow.dst.into()));
        rows.add("bytes", Cells::Whole, |(_, flow)| Some(flow.bytes));
        rows.add("start_us", Cells::Real, |(_, flow)| flow.start_us);
        rows.add("fct_us", Cells::Real, |(_, flow)| flow.fct_us);
        rows.add("retransmitted", Cells::Whole, |(_, flow)| Some(flow.retransmitted));
        rows.add("reason", Cells::Word, |(_, flow)| flow.reason.clone());
        rows.table(runs)
    }

    /// A row a run: parameters, seed and every metric.
    #[must_use]
    pub fn runs(runs: &[Run]) -> Self {
        let mut rows = Rows::new(runs.iter().collect());
        rows.add_run(runs, |run| run);
        for metric in Metric::all() {
            rows.add(metric.name(), Cells::Real, |run| metric.of(run));
        }
        rows.add("stopped", Cells::Word, |run| run.stopped.clone());
        rows.table(runs)
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| match &column.cells {
            Cells::Whole(cells) => cells.len(),
            Cells::Real(cells) => cells.len(),
            Cells::Word(cells) => cells.len(),
        })
    }

    /// Writes it as CSV. Where it came from is a comment before the header: `# ` and JSON.
    ///
    /// # Errors
    /// Writing failed.
    pub fn csv(&self, to: &mut dyn Write) -> io::Result<()> {
        if let Some(made) = &self.provenance {
            writeln!(to, "# {}", serde_json::to_string(made)?)?;
        }
        let mut csv = csv::Writer::from_writer(to);
        csv.write_record(self.columns.iter().map(|column| &column.name))?;
        for row in 0..self.rows() {
            csv.write_record(self.columns.iter().map(|column| column.cells.text(row)))?;
        }
        csv.flush()
    }
}
