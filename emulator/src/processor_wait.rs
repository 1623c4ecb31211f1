//! Measures for how long ranks wait for a processor in real time. A rank that is ready to run and gets none answers late,
//! just as if the emulator were behind.
//!
//! The kernel counts the time that the main thread of a process spends in a run queue (`/proc/PID/schedstat`). It is read
//! when the first endpoint of the process attaches, once a second, and when an endpoint leaves.

use std::collections::BTreeMap;
use std::fs;

use squall_base::{Span, Time};

/// Largest share, in per cent, of the time since it attached for which a rank may wait for a processor. The times of a job
/// with a rank that waits for longer are not valid. A rank that only polls yields its processor to others, and waits in
/// their favour: this is the share that such a rank has beside one other process on its processor.
pub const MOST_WAIT_PERCENT: u64 = 50;
/// Shortest time of a rank that is judged: in less, a single time slice of another process is a large share.
const SHORTEST: Span = Span::millis(50);

/// The time for which a process waited for a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorWait {
    /// Rank of the process; its process ID if no launcher reported a rank.
    pub rank: u32,
    /// Time for which it waited.
    pub waited: Span,
    /// Time for which it was attached.
    pub attached: Span,
}

impl ProcessorWait {
    /// Returns the share of its time for which the process waited, in per cent.
    #[must_use]
    pub fn percent(&self) -> u64 {
        let percent = u128::from(self.waited.0) * 100 / u128::from(self.attached.0.max(1));
        u64::try_from(percent).unwrap_or(u64::MAX)
    }

    /// Returns whether the process waited for so long that its times are not valid.
    #[must_use]
    pub fn is_excessive(&self) -> bool {
        self.attached >= SHORTEST && self.percent() > MOST_WAIT_PERCENT
    }
}

/// The waits of the ranks of all jobs so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessorWaitReport {
    /// Number of ranks that waited for too long: [`ProcessorWait::is_excessive`].
    pub excessive: u64,
    /// The rank that waited for the largest share of its time; `None` if no rank was measured.
    pub longest: Option<ProcessorWait>,
}

impl ProcessorWaitReport {
    fn add(&mut self, wait: ProcessorWait) {
        self.excessive += u64::from(wait.is_excessive());
        if self.longest.is_none_or(|longest| wait.percent() > longest.percent()) {
            self.longest = Some(wait);
        }
    }
}

/// A process that has attached endpoints.
struct Attached {
    rank: u32,
    endpoints: u32,
    /// When its first endpoint attached, and how long it had waited by then.
    began: (Time, Span),
    /// When its wait was last read, and how long it had waited by then.
    latest: (Time, Span),
}

impl Attached {
    fn wait(&self) -> ProcessorWait {
        let ((began, before), (at, waited)) = (self.began, self.latest);
        let (waited, attached) = (waited.saturating_sub(before), at.since(began));
        ProcessorWait { rank: self.rank, waited, attached }
    }
}

/// The waits of processes for a processor.
#[derive(Default)]
pub(super) struct ProcessorWaits {
    attached: BTreeMap<u32, Attached>,
    /// The report on processes that have left.
    left: ProcessorWaitReport,
}

impl ProcessorWaits {
    /// Notes that an endpoint of a process attaches. `read` returns how long a process has waited for a processor.
    pub(super) fn attach(
        &mut self,
        process: u32,
        rank: Option<u32>,
        now: Time,
        read: impl Fn(u32) -> Option<Span>,
    ) {
        let Some(waited) = read(process) else { return };
        let moment = (now, waited);
        let rank = rank.unwrap_or(process);
        let new = Attached { rank, endpoints: 0, began: moment, latest: moment };
        self.attached.entry(process).or_insert(new).endpoints += 1;
    }

    /// Reads the waits of all processes.
    pub(super) fn sample(&mut self, now: Time, read: impl Fn(u32) -> Option<Span>) {
        for (process, attached) in &mut self.attached {
            if let Some(waited) = read(*process) {
                attached.latest = (now, waited);
            }
        }
    }

    /// Notes that an endpoint of a process leaves.
    pub(super) fn leave(&mut self, process: u32, now: Time, read: impl Fn(u32) -> Option<Span>) {
        let Some(attached) = self.attached.get_mut(&process) else { return };
        if let Some(waited) = read(process) {
            attached.latest = (now, waited);
        }
        attached.endpoints -= 1;
        if attached.endpoints == 0
            && let Some(ended) = self.attached.remove(&process)
        {
            self.left.add(ended.wait());
        }
    }

    /// Returns the report on all processes so far.
    pub(super) fn report(&self) -> ProcessorWaitReport {
        let mut report = self.left.clone();
        self.attached.values().for_each(|attached| report.add(attached.wait()));
        report
    }
}

/// Returns how long the main thread of a process has waited for a processor; `None` if it has ended or the kernel does not
/// count.
pub(super) fn read_wait(process: u32) -> Option<Span> {
    wait_of(&fs::read_to_string(format!("/proc/{process}/schedstat")).ok()?)
}

/// Returns the second of the three numbers of a file `schedstat`, in nanoseconds.
fn wait_of(schedstat: &str) -> Option<Span> {
    schedstat.split_ascii_whitespace().nth(1)?.parse().ok().map(Span)
}

/// Returns the process ID here of a process that greets as `process`, and whose connection was made by `peer`: they differ
/// in another PID namespace. Returns `None` if the peer is another process, such as one that forwards the connection of
/// another machine.
pub(super) fn measured_process(process: u32, peer: Option<u32>) -> Option<u32> {
    let peer = peer?;
    if peer == process {
        return Some(peer);
    }
    let status = fs::read_to_string(format!("/proc/{peer}/status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let innermost = numbers.split_ascii_whitespace().next_back()?;
    (innermost.parse() == Ok(process)).then_some(peer)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    #[test]
    fn the_second_number_is_the_wait() {
        assert_eq!(wait_of("5000 1234 7\n"), Some(Span(1234)));
        assert_eq!((wait_of(""), wait_of("5"), wait_of("5 x 7")), (None, None, None));
        let own = std::process::id();
        assert!(read_wait(own).is_some() && read_wait(u32::MAX).is_none());
        assert_eq!(measured_process(own, Some(own)), Some(own));
        assert_eq!(measured_process(own ^ 1, Some(own)), None, "a connection that was forwarded");
        assert_eq!(measured_process(own, None), None);
    }

    #[test]
    fn waits_count_from_the_first_endpoint_to_the_last() {
        let mut waits = ProcessorWaits::default();
        let after = |ms| move |_| Some(Span::millis(ms));
        waits.attach(7, Some(3), ms(1_000), after(400));
        waits.attach(7, Some(3), ms(1_100), after(450));
        assert_eq!(waits.report().longest.map(|wait| wait.waited), Some(Span::ZERO));
        waits.sample(ms(2_000), after(500));
        waits.leave(7, ms(2_500), after(600));
        // The process has ended when its last endpoint leaves: its wait at that time is not known.
        waits.leave(7, ms(9_000), |_| None);
        let longest = waits.report().longest.expect("it was measured");
        let (waited, attached) = (Span::millis(200), Span::millis(1_500));
        assert_eq!(longest, ProcessorWait { rank: 3, waited, attached });
        assert_eq!((longest.percent(), waits.report().excessive), (13, 0));
        // A process that the kernel does not know is not measured.
        waits.attach(8, None, ms(9_000), |_| None);
        waits.leave(8, ms(9_100), |_| None);
        assert_eq!(waits.report().longest, Some(longest));
    }

    #[test]
    fn a_rank_that_waits_for_most_of_its_time_is_counted() {
        let wait = |waited, attached| ProcessorWait {
            rank: 1,
            waited: Span::millis(waited),
            attached: Span::millis(attached),
        };
        assert!(!wait(50, 100).is_excessive() && wait(51, 100).is_excessive());
        assert!(!wait(49, 49).is_excessive(), "too short to tell");
        let mut waits = ProcessorWaits::default();
        for (process, waited) in [(7, 20), (8, 60), (9, 55)] {
            waits.attach(process, None, ms(0), |_| Some(Span::ZERO));
            waits.leave(process, ms(100), |_| Some(Span::millis(waited)));
        }
        let report = waits.report();
        assert_eq!(
            (report.excessive, report.longest),
            (2, Some(ProcessorWait { rank: 8, ..wait(60, 100) }))
        );
    }
}
