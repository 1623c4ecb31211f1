//! The command line of `squall top`.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use squall_base::Span;

use super::json::document;
use super::pages::{EndpointReading, Look, PageDirectory};
use super::rates::{History, Row, jobs};
use super::serve::{Listen, serve};
use super::{screen, text};

/// Show what endpoints are doing while they run.
///
/// Shows the live counters of every endpoint of this user on this machine, and the last counters of killed processes.
/// Endpoints with FI_SQUALL_MONITOR=0ns are not shown.
#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// A process, by its number, or a job, by the name its launcher gave it; default: all, without those that died more
    /// than an hour ago.
    of: Option<String>,
    /// Print one JSON document: endpoints with all counters and flows, and jobs.
    #[arg(long, conflicts_with_all = ["once", "serve"])]
    dump: bool,
    /// Print one page of text, of what happened in one interval.
    #[arg(long, conflicts_with = "serve")]
    once: bool,
    /// Answer collectors (Prometheus, OpenMetrics) at `127.0.0.1:PORT`, `[::1]:PORT` or `unix:PATH`.
    #[arg(long, value_name = "WHERE")]
    serve: Option<Listen>,
    /// Time between two updates, s.
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// Folder of the statistics pages. Default: /dev/shm/squall-UID.
    #[arg(long, value_name = "FOLDER")]
    directory: Option<PathBuf>,
    /// Remove the statistics pages of processes that have ended.
    #[arg(long)]
    forget: bool,
}

impl TopArgs {
    /// Returns whether the command runs until it is interrupted, without a terminal.
    #[must_use]
    pub(crate) const fn serves(&self) -> bool {
        self.serve.is_some()
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let parsed = text.parse().ok().filter(|s| (0.1..=3600.0).contains(s));
    parsed.ok_or_else(|| "expected 0.1 to 3600 seconds".to_owned())
}

/// Time since its last page for which an ended process is shown that the user did not ask for.
const REMEMBERED: Span = Span::secs(3600);

/// The endpoints that `squall top` watches: the directory of their pages, the selection, and the
/// previous readings.
struct Watch<'a> {
    pages: PageDirectory,
    of: Option<&'a str>,
    history: History,
}

impl Watch<'_> {
    /// Returns whether the endpoint is selected. Without a selection, an endpoint counts if it is
    /// alive or wrote recently.
    fn wants(&self, seen: &EndpointReading) -> bool {
        let whose = &seen.snapshot.description;
        match self.of {
            Some(of) => whose.place.job == of || whose.pid.to_string() == of,
            None => seen.alive || seen.age < REMEMBERED,
        }
    }

    /// Reads all statistics pages. Returns the endpoints, and notes that say why files are not
    /// shown.
    fn look(&mut self) -> io::Result<(Vec<Row>, Vec<String>)> {
        let Look { mut seen, refused } = self.pages.look(since_1970())?;
        seen.retain(|seen| self.wants(seen));
        let notes = refused.into_iter().map(|(path, why)| format!("{}: {why}", path.display()));
        Ok((self.history.advance(seen), notes.collect()))
    }
}

#[allow(clippy::disallowed_methods)] // ages of what other processes wrote
fn since_1970() -> u64 {
    let span = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    span.map_or(0, |span| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

/// Runs the command. Returns true if there was something to show.
///
/// # Errors
/// A directory cannot be read or is not this user's, or a terminal or socket cannot be used.
pub(crate) fn run(args: &TopArgs, stop: &Arc<AtomicBool>) -> io::Result<bool> {
    let user = rustix::process::geteuid().as_raw();
    let pages = PageDirectory::of(user, args.directory.clone());
    let mut watch = Watch { pages, of: args.of.as_deref(), history: History::default() };
    let interval = Duration::from_secs_f64(args.interval);
    if args.forget {
        return forget(&watch);
    }
    if let Some(listen) = &args.serve {
        return serve(listen, stop, || Ok(watch.look()?.0)).map(|()| true);
    }
    if args.dump {
        let (rows, notes) = watch.look()?;
        complain(&notes);
        let document = document(&rows, &jobs(&rows));
        writeln!(io::stdout(), "{document:#}")?;
        return Ok(found(&watch, &rows));
    }
    if args.once || !io::stdout().is_terminal() {
        watch.look()?;
        std::thread::sleep(interval);
        let (rows, notes) = watch.look()?;
        complain(&notes);
        write!(io::stdout(), "{}", text::page(&rows, &jobs(&rows)))?;
        return Ok(found(&watch, &rows));
    }
    screen::show(interval, || watch.look()).map(|()| true)
}

/// Returns whether there is an endpoint to show, and prints a message if there is none.
fn found(watch: &Watch<'_>, rows: &[Row]) -> bool {
    if rows.is_empty() {
        let of = watch.of.map_or_else(String::new, |of| format!(" of {of}"));
        let place = watch.pages.directory().display();
        complain(&[format!("no endpoint{of} has a statistics page in {place}")]);
    }
    !rows.is_empty()
}

fn complain(notes: &[String]) {
    for note in notes {
        // If standard error is closed, the message cannot be shown anywhere else.
        let _ = writeln!(io::stderr(), "squall: {note}");
    }
}

/// Removes the statistics pages of processes that have ended, and prints their paths.
fn forget(watch: &Watch<'_>) -> io::Result<bool> {
    let look = watch.pages.look(since_1970())?;
    let asked = |seen: &EndpointReading| watch.of.is_none() || watch.wants(seen);
    for seen in look.seen.iter().filter(|seen| !seen.alive && asked(seen)) {
        std::fs::remove_file(&seen.path)?;
        writeln!(io::stdout(), "forgot {}", seen.path.display())?;
    }
    Ok(true)
}
