//! Results as tables, whose columns are the same in every file format.

use std::io::{self, Write};

use super::files::{parameter_names, provenance};
use super::{Metric, Provenance, Run};

/// Columns of equal length, with the provenance of their contents.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// Columns of the table, in the order in which files have them.
    pub columns: Vec<Column>,
    /// Provenance that all runs have in common.
    pub provenance: Option<Provenance>,
}

/// A named column of a table.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// Name of the column.
    pub name: String,
    /// Cells of the column, one for each row.
    pub cells: Cells,
}

/// Contents of a column; `None` is an empty cell.
#[derive(Clone, PartialEq, Debug)]
pub enum Cells {
    /// Counts: whole numbers.
    Whole(Vec<Option<u64>>),
    /// Measured values: real numbers.
    Real(Vec<Option<f64>>),
    /// Text, such as the value of a parameter.
    Word(Vec<Option<String>>),
}

impl Cells {
    /// Returns the text of the cell in row `row`, as CSV has it.
    fn text(&self, row: usize) -> String {
        let text = match self {
            Self::Whole(cells) => cells[row].map(|cell| cell.to_string()),
            Self::Real(cells) => cells[row].map(|cell| cell.to_string()),
            Self::Word(cells) => cells[row].clone(),
        };
        text.unwrap_or_default()
    }

    /// Converts a column of text to numbers if all its cells are numbers, for file formats with
    /// types.
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

/// A table that is being made: its rows, and the columns made from them so far.
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

    /// Adds a column for each parameter of the runs, and one for the seed.
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
    /// Makes a table with a row for each flow of all runs, and with columns for the parameters and
    /// the seed if there are several runs.
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

    /// Makes a table with a row for each run: parameters, seed and every metric.
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

    /// Returns the number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| match &column.cells {
            Cells::Whole(cells) => cells.len(),
            Cells::Real(cells) => cells.len(),
            Cells::Word(cells) => cells.len(),
        })
    }

    /// Writes the table as CSV. A comment before the header holds the provenance: `# ` and JSON.
    ///
    /// # Errors
    /// Returns an error if writing failed.
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
