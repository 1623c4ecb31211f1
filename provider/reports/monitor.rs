//! The live statistics of an endpoint: its counters on a page of memory, which `squall top` reads
//! ([`squall_monitor`]), and lines of statistics on an interval.
//!
//! The endpoint writes during a progress turn when a write is due; no thread is woken for it. Other
//! turns pay for one comparison.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use squall_base::{Span, Time};
use squall_engine::{Engine, FlowRecord, PeerId};
use squall_monitor::{
    Counter, Description, JobPlace, PageLayout, StatisticsPage, card_counters, directory,
    file_name, path_words,
};
use squall_net::WordFile;

use crate::clock;
use crate::host::logger::USER;
use crate::host::param::params;
use crate::reports::stats::{self, DERIVED, DerivedStatistic, FLOW, Statistics};

/// Largest number of flows on a statistics page: those that sent most.
const FLOW_PLACES: usize = 64;
/// Part of the time that an endpoint may spend writing its page: one thousandth.
const SHARE: u64 = 1000;
/// Longest time for which statistics pages of processes that died are kept.
const KEPT: Duration = Duration::from_secs(3600);
/// Largest number of statistics pages of processes that died that are kept: 64 pages, 2 MB.
const KEPT_MOST: usize = 64;
/// Largest number of statistics pages that are examined to find those to delete.
const LOOKED_AT: usize = 1024;

/// The statistics that an endpoint publishes, and the times at which they must be written.
pub(crate) struct Monitor {
    number: u32,
    /// The earliest time at which the page or a line of statistics must be written. Each turn compares it with the
    /// clock.
    due: Time,
    opened: Time,
    /// Time at which the next line of statistics must be written.
    line_at: Time,
    shown: Option<PublishedPage>,
}

/// A statistics page, and the file in which other processes see it.
struct PublishedPage {
    page: StatisticsPage,
    words: Box<[AtomicU64]>,
    file: WordFile,
    interval: Span,
    at: Time,
}

/// Returns the interval of a parameter; `None` if the user switched the publication off.
fn publish_interval(interval: Option<Span>) -> Option<Span> {
    interval.filter(|span| span.0 > 0)
}

impl Monitor {
    /// Creates a monitor that publishes no statistics.
    pub(crate) const fn disabled(number: u32) -> Self {
        let never = Time::NEVER;
        Self { number, due: never, opened: Time::ZERO, line_at: never, shown: None }
    }

    /// Creates the monitor of an endpoint that is being enabled, on the interface of this name. If no statistics page
    /// can be created, that is logged.
    pub(crate) fn for_endpoint(number: u32, interface: &str, statistics: &Statistics<'_>) -> Self {
        let now = clock::now();
        let interval = publish_interval(params().monitor);
        let shown = interval.and_then(|interval| match page(number, interface, statistics) {
            Ok((page, words, file)) => Some(PublishedPage { page, words, file, interval, at: now }),
            Err(error) => {
                log::info!(
                    "cannot create the statistics page of endpoint {number} for squall top: {error}"
                );
                None
            }
        });
        let lines = publish_interval(params().stats_interval).filter(|_| {
            if params().stats.is_none() {
                log::warn!(target: USER, "FI_SQUALL_STATS_INTERVAL: nothing is reported without FI_SQUALL_STATS");
            }
            params().stats.is_some()
        });
        let line_at = lines.map_or(Time::NEVER, |interval| now + interval);
        let due = shown.as_ref().map_or(line_at, |shown| shown.at.min(line_at));
        Self { number, due, opened: now, line_at, shown }
    }

    /// Moves the monitor out, to be put back later; the one that is left publishes nothing.
    pub(crate) fn take(&mut self) -> Self {
        let left = Self { opened: self.opened, ..Self::disabled(self.number) };
        core::mem::replace(self, left)
    }

    /// Returns whether the page or a line of statistics must be written.
    #[inline]
    pub(crate) fn is_due(&self, now: Time) -> bool {
        now >= self.due
    }

    /// Returns the time since the endpoint was enabled.
    pub(crate) fn open(&self) -> Span {
        clock::now().since(self.opened)
    }

    /// Writes the statistics page and the line of statistics, if they are due.
    #[cold]
    pub(crate) fn write(&mut self, now: Time, engine: &Engine, statistics: &Statistics<'_>) {
        if now >= self.line_at {
            stats::report(self.number, statistics);
            self.line_at =
                publish_interval(params().stats_interval).map_or(Time::NEVER, |span| now + span);
        }
        if let Some(shown) = &mut self.shown
            && now >= shown.at
        {
            shown.write(engine, statistics);
            let took = clock::now().since(now);
            shown.at = now + shown.interval.max(Span(took.0.saturating_mul(SHARE)));
        }
        self.due = self.shown.as_ref().map_or(Time::NEVER, |shown| shown.at).min(self.line_at);
    }

    /// Ends the publication of statistics, because the endpoint closes.
    pub(crate) fn end(&mut self) {
        self.shown = None;
        self.due = self.line_at;
    }
}

impl Drop for PublishedPage {
    /// Also of an endpoint that was not enabled after all.
    fn drop(&mut self) {
        // Another process may have removed the file before.
        let _ = self.file.remove();
    }
}

impl PublishedPage {
    fn write(&self, engine: &Engine, statistics: &Statistics<'_>) {
        let mut most: Vec<&FlowRecord> = statistics.flows.iter().collect();
        let places = self.page.flow_places();
        if most.len() > places {
            most.select_nth_unstable_by_key(places, |flow| core::cmp::Reverse(flow.bytes));
        }
        let counted = statistics.counters().map(|(_, value)| value);
        let derived = statistics.derived().filter(|(row, _)| row.merge.is_some());
        let flows = most.into_iter().take(places).map(|flow| {
            let peer = engine.peers().get(PeerId(flow.peer.0)).addr();
            let bits = squall_monitor::address_words(peer);
            let paths = Statistics::paths(flow).flatten();
            Statistics::flow(flow).map(|(_, value)| value).chain(paths).chain(bits)
        });
        self.page.write(
            &self.words,
            clock::since_1970(),
            counted.chain(derived.map(|(_, value)| value)).chain(statistics.cards().flatten()),
            (statistics.flows.len(), flows),
        );
        if let Err(error) = publish(&self.words, &self.file) {
            log::debug!("the file for squall top was not updated: {error}");
        }
    }
}

/// Writes the words of a statistics page to its file, where other processes read them.
fn publish(words: &[AtomicU64], file: &WordFile) -> io::Result<()> {
    StatisticsPage::publish(words, |at, part| file.write(at, part))
}

/// Creates the statistics page of an endpoint and its file.
fn page(
    number: u32,
    interface: &str,
    statistics: &Statistics<'_>,
) -> io::Result<(StatisticsPage, Box<[AtomicU64]>, WordFile)> {
    let (pid, started) = (std::process::id(), start_ticks("self").unwrap_or(0));
    let counted = Statistics::TABLES.into_iter().flatten();
    let counted = counted.map(Counter::new);
    let derived = DERIVED.iter().filter_map(DerivedStatistic::row);
    let derived = derived.map(|row| Counter::new(&row));
    let choices = statistics.choices().into_iter();
    let flow = FLOW.iter().map(|(name, _)| (*name).to_owned());
    let flow =
        flow.chain(path_words(FlowRecord::PATHS)).chain(squall_monitor::ADDRESS.map(str::to_owned));
    let description = Description {
        pid,
        started,
        endpoint: number,
        local: statistics.local.to_string(),
        interface: interface.to_owned(),
        host: stats::hostname(),
        program: program(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        made: clock::since_1970(),
        choices: choices.map(|(name, chosen)| (name.to_owned(), chosen)).collect(),
        place: job_place(),
        counters: counted.chain(derived).chain(card_counters(statistics.rails.len())).collect(),
        flow: flow.collect(),
    };
    let layout = PageLayout::new(&description, FLOW_PLACES);
    let directory = directory(current_user());
    remove_stale_files(&directory);
    let words: Box<[AtomicU64]> = (0..layout.words()).map(|_| AtomicU64::new(0)).collect();
    let file = WordFile::create(&directory, &file_name(&description), words.len())?;
    let page = StatisticsPage::create(layout, &words).map_err(io::Error::other)?;
    if let Err(error) = publish(&words, &file) {
        // This process made the file, and cannot use it.
        let _ = file.remove();
        return Err(error);
    }
    Ok((page, words, file))
}

fn current_user() -> u32 {
    // SAFETY: geteuid(2) takes nothing, returns a number and does not fail.
    unsafe { libc::geteuid() }
}

/// Returns the job, the rank and the number of ranks of this process.
pub(crate) fn job_place() -> JobPlace {
    JobPlace::from_launcher(variable, std::os::unix::process::parent_id())
}

/// Returns an environment variable that launchers set, which is no parameter of the provider.
#[allow(clippy::disallowed_methods)] // these are not FI_SQUALL_ variables
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns the start time of a process in clock ticks, which is the 22nd field of `/proc/PID/stat`.
fn start_ticks(process: &str) -> Option<u64> {
    squall_monitor::start_ticks(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// Returns the name of the program, without its directory.
fn program() -> String {
    let first = std::env::args_os().next().unwrap_or_default();
    Path::new(&first).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Removes statistics pages of dead processes if there are many files: those of processes that died more than an hour
/// ago, and, of the others, all but the newest few. Jobs that are killed again and again must not fill the host's
/// memory.
fn remove_stale_files(directory: &Path) {
    let Ok(files) = fs::read_dir(directory) else { return };
    // Whose each is costs a look at its process: not at every start.
    let files: Vec<_> = files.flatten().take(LOOKED_AT).collect();
    if files.len() <= KEPT_MOST {
        return;
    }
    let left = |file: fs::DirEntry| -> Option<(Duration, PathBuf)> {
        let name = file.file_name();
        let (pid, ticks) = squall_monitor::process_of_file(name.to_str()?)?;
        let dead = start_ticks(&pid.to_string()) != Some(ticks);
        let age = file.metadata().and_then(|about| about.modified()).ok()?.elapsed().ok()?;
        dead.then(|| (age, file.path()))
    };
    let mut left: Vec<_> = files.into_iter().filter_map(left).collect();
    left.sort_unstable();
    for (_, path) in left.iter().enumerate().filter(|(n, (age, _))| *n >= KEPT_MOST || *age > KEPT)
    {
        // Another endpoint may have been faster.
        let _ = fs::remove_file(&path.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_of_the_dead_are_remembered_and_none_of_the_living_forgotten() {
        let folder = std::env::temp_dir().join(format!("squall-dead-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("room");
        let own = format!("{}-{}-0", std::process::id(), start_ticks("self").expect("Linux"));
        // Numbers that no process has.
        let dead = (0..KEPT_MOST + 9).map(|n| format!("{}-7-0", (1 << 30) + n));
        for name in dead.chain([own.clone(), "notes".to_owned()]) {
            fs::write(folder.join(name), b"").expect("room");
        }
        let old = fs::File::options().write(true).open(folder.join(format!("{}-7-0", 1 << 30)));
        let long_ago = std::time::SystemTime::UNIX_EPOCH;
        old.and_then(|file| file.set_modified(long_ago)).expect("ours");
        remove_stale_files(&folder);
        let names: Vec<_> =
            fs::read_dir(&folder).expect("there").flatten().map(|f| f.file_name()).collect();
        assert_eq!(names.len(), KEPT_MOST + 2, "{names:?}");
        for kept in [own.as_str(), "notes"] {
            assert!(names.iter().any(|name| name == kept), "{kept}");
        }
        assert!(!folder.join(format!("{}-7-0", 1 << 30)).exists(), "the oldest went");
        fs::remove_dir_all(&folder).expect("ours");
    }
}
