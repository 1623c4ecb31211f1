//! The live view of `squall top`.

use std::io;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Paragraph, Row as Cells, Table, TableState, Wrap};
use ratatui::{DefaultTerminal, Frame};

use super::rates::{Job, Row, jobs};
use super::text::{COLUMNS, FLOW_COLUMNS, cards, cells, flow_cells, headline};
use super::why::why;

/// State of the live view.
#[derive(Debug, Default)]
pub(super) struct View {
    rows: Vec<Row>,
    jobs: Vec<Job>,
    /// Notes about files that are not shown, below the tables.
    notes: Vec<String>,
    selected: TableState,
    paused: bool,
}

/// The action that a key triggers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wish {
    Quit,
    Up,
    Down,
    Pause,
    Nothing,
}

/// Shows the results of `look`, which is called every `interval`, until the user quits.
pub(super) fn show(
    interval: Duration,
    look: impl FnMut() -> io::Result<(Vec<Row>, Vec<String>)>,
) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let done = run(&mut terminal, interval, look);
    ratatui::restore();
    done
}

fn run(
    terminal: &mut DefaultTerminal,
    interval: Duration,
    mut look: impl FnMut() -> io::Result<(Vec<Row>, Vec<String>)>,
) -> io::Result<()> {
    let mut view = View::default();
    view.take(look()?);
    loop {
        terminal.draw(|frame| view.draw(frame))?;
        if !event::poll(interval)? {
            if !view.paused {
                view.take(look()?);
            }
            continue;
        }
        let wish = match event::read()? {
            Event::Key(key) if key.kind == KeyEventKind::Press => {
                wish(key.code, key.modifiers.contains(KeyModifiers::CONTROL))
            }
            _ => Wish::Nothing,
        };
        match wish {
            Wish::Quit => return Ok(()),
            Wish::Up => view.selected.select_previous(),
            Wish::Down => view.selected.select_next(),
            Wish::Pause => view.paused = !view.paused,
            Wish::Nothing => {}
        }
    }
}

fn wish(key: KeyCode, control: bool) -> Wish {
    match key {
        KeyCode::Char('c') if control => Wish::Quit,
        KeyCode::Char('q') | KeyCode::Esc => Wish::Quit,
        KeyCode::Up | KeyCode::Char('k') => Wish::Up,
        KeyCode::Down | KeyCode::Char('j') => Wish::Down,
        KeyCode::Char(' ' | 'p') => Wish::Pause,
        _ => Wish::Nothing,
    }
}

/// Returns the widths with which columns show their contents, at most 44 characters each.
fn widths<const N: usize>(rows: &[[String; N]], header: [&str; N]) -> [Constraint; N] {
    std::array::from_fn(|i| {
        let widest = rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
        Constraint::Length(widest.max(header[i].len()).min(44) as u16) // 44 at most
    })
}

fn table<const N: usize>(rows: Vec<[String; N]>, header: [&'static str; N]) -> Table<'static> {
    let widths = widths(&rows, header);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    Table::new(rows.into_iter().map(Cells::new), widths)
        .header(Cells::new(header).style(bold))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .column_spacing(2)
}

impl View {
    /// Replaces the rows and notes of the view with a new reading.
    pub(super) fn take(&mut self, (rows, notes): (Vec<Row>, Vec<String>)) {
        self.jobs = jobs(&rows);
        (self.rows, self.notes) = (rows, notes);
        let last = self.rows.len().checked_sub(1);
        let wanted = self.selected.selected().unwrap_or(0);
        self.selected.select(last.map(|last| wanted.min(last)));
    }

    /// Draws jobs, endpoints, the reason why the selected endpoint is slow, and its flows.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let heads = (self.jobs.len().max(1) as u16 + 1).min(frame.area().height / 4); // a screen's height
        let table_lines = (self.rows.len() as u16).saturating_add(3);
        let parts = [
            Constraint::Length(heads),
            Constraint::Max(table_lines),
            Constraint::Length(3),
            Constraint::Min(4),
            Constraint::Length(1),
        ];
        let [head, endpoints, reason, flows, foot] = Layout::vertical(parts).areas(frame.area());
        self.draw_jobs(frame, head);
        let rows = self.rows.iter().map(cells).collect();
        let list = table(rows, COLUMNS).block(Block::bordered().title(" endpoints "));
        frame.render_stateful_widget(list, endpoints, &mut self.selected);
        if let Some(row) = self.selected.selected().and_then(|at| self.rows.get(at)) {
            Self::draw_endpoint(frame, row, reason, flows);
        }
        let keys = " up, down: another endpoint   space: pause   q: quit";
        let note = self.notes.first().map_or("", String::as_str);
        let state = if self.paused { "  [paused]" } else { "" };
        frame.render_widget(Line::from(format!("{keys}{state}   {note}")).dim(), foot);
    }

    fn draw_jobs(&self, frame: &mut Frame<'_>, area: Rect) {
        let text = if self.jobs.is_empty() {
            Text::from("no endpoint of this user is open")
        } else {
            Text::from_iter(self.jobs.iter().map(|job| Line::from(headline(job))))
        };
        frame.render_widget(Paragraph::new(text), area);
    }

    fn draw_endpoint(frame: &mut Frame<'_>, row: &Row, reason: Rect, area: Rect) {
        let colour = if row.seen.alive { Color::Reset } else { Color::Red };
        let of = &row.seen.snapshot.description;
        let choices: Vec<String> =
            of.choices.iter().map(|(name, chosen)| format!("{name} {chosen}")).collect();
        let choices = choices.join(", ");
        let sentence = format!("{} ({choices}): {}{}", of.local, why(row), cards(row));
        let sentence = Paragraph::new(sentence).wrap(Wrap { trim: true });
        frame.render_widget(sentence.style(Style::new().fg(colour)), reason);
        let shown = row.seen.snapshot.flows.len();
        let all = row.seen.snapshot.flow_count;
        let title = match all - (shown as u64).min(all) {
            0 => format!(" {shown} flows "),
            left_out => format!(" {shown} flows that sent most, and {left_out} others "),
        };
        let rows = (0..shown).map(|i| flow_cells(row, i)).collect();
        frame.render_widget(table(rows, FLOW_COLUMNS).block(Block::bordered().title(title)), area);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_that_others_have() {
        assert_eq!(wish(KeyCode::Char('q'), false), Wish::Quit);
        assert_eq!(wish(KeyCode::Char('c'), true), Wish::Quit);
        assert_eq!(wish(KeyCode::Char('c'), false), Wish::Nothing);
        assert_eq!(wish(KeyCode::Down, false), Wish::Down);
    }
}
