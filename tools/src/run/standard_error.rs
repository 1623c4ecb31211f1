//! Copies the job's standard error to ours and takes the report lines of its processes out.

use std::io::{ErrorKind, Read, Write};
use std::mem;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use squall_monitor::{ProcessReport, REPORT_MARK};

/// Time after the launcher's end for which an empty pipe of its standard error is awaited, in total. A
/// daemon that the job leaves behind may keep the pipe open for good, and write to it now and then. The time
/// that a slow reader of our own standard error takes does not count.
const DRAIN: Duration = Duration::from_secs(2);
/// Interval at which waits after the launcher's end check for a further signal of the user, and reduce what is
/// left of [`DRAIN`].
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Longest line that is searched for a report; more is copied as it comes.
const LONGEST_LINE: usize = 64 << 10;
/// Longest label that a launcher writes before a line of a rank, such as `[1,3]<stderr>: `.
const LONGEST_LABEL: usize = 64;

/// A thread that copies standard error, and the reports that it finds.
pub(super) struct ReportCollector {
    reports: Receiver<ProcessReport>,
}

impl ReportCollector {
    /// Starts the thread, which copies the job's standard error `from` to `to` until its end. The
    /// other end of `launcher` is closed when the launcher has ended.
    pub(super) fn start(
        mut from: impl Read + AsFd + Send + 'static,
        mut to: impl Write + Send + 'static,
        launcher: UnixStream,
    ) -> Self {
        let (sender, reports) = mpsc::channel();
        thread::spawn(move || {
            let mut filter = LineFilter::default();
            let mut buffer = vec![0; 16 << 10];
            let mut patience = Patience { launcher, left: None };
            while patience.await_input(&from) {
                let length = match from.read(&mut buffer) {
                    Ok(length @ 1..) => length,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    // An error of the pipe ends the copy as its end does.
                    Ok(0) | Err(_) => break,
                };
                let text = filter.push(&buffer[..length], |report| {
                    // The receiver may have given up.
                    let _ = sender.send(report);
                });
                // Our standard error may be closed; the job goes on.
                let _ = to.write_all(&text).and_then(|()| to.flush());
            }
            let _ = to.write_all(&filter.finish()).and_then(|()| to.flush());
        });
        Self { reports }
    }

    /// Returns the reports of all processes when the rest of standard error is copied, or when the
    /// user `gives_up`. Call it when the launcher has ended.
    pub(super) fn finish(self, gives_up: impl Fn() -> bool) -> Vec<ProcessReport> {
        let mut reports = Vec::new();
        loop {
            match self.reports.recv_timeout(POLL_INTERVAL) {
                Ok(report) => reports.push(report),
                Err(RecvTimeoutError::Timeout) if !gives_up() => {}
                Err(_) => return reports,
            }
        }
    }
}

/// How long the collector waits for input: without limit while the launcher runs, and for [`DRAIN`]
/// in total after its end.
struct Patience {
    /// Socket that becomes readable when the launcher ends.
    launcher: UnixStream,
    /// Time that is left of [`DRAIN`]; `None` while the launcher runs.
    left: Option<Duration>,
}

impl Patience {
    /// Waits until standard error has input or ends. Returns false if the time for it is over.
    fn await_input(&mut self, from: &impl AsFd) -> bool {
        loop {
            let limit = self
                .left
                .map(|_| Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() });
            let launcher = PollFd::new(&self.launcher, PollFlags::IN);
            let mut descriptors = [PollFd::new(from, PollFlags::IN), launcher];
            // After the launcher has ended, poll(2) would report that at every call.
            let watched = if self.left.is_some() { 1 } else { 2 };
            let polled = poll(&mut descriptors[..watched], limit.as_ref());
            let [input, launcher] = descriptors.map(|fd| !fd.revents().is_empty());
            match polled {
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return true, // The read that follows reports the error.
                Ok(_) if input => return true,
                Ok(_) if launcher => self.left = Some(DRAIN),
                Ok(_) => match &mut self.left {
                    Some(left) if left.is_zero() => return false,
                    Some(left) => *left = left.saturating_sub(POLL_INTERVAL),
                    None => {}
                },
            }
        }
    }
}

/// A filter of standard error that separates report lines from other text.
#[derive(Default)]
struct LineFilter {
    /// Bytes of the line that has not ended yet.
    line: Vec<u8>,
    /// Number of bytes of the line that were passed on.
    passed: usize,
}

impl LineFilter {
    /// Adds bytes of standard error, and returns those to pass on. Calls `found` with each report.
    fn push(&mut self, bytes: &[u8], mut found: impl FnMut(ProcessReport)) -> Vec<u8> {
        let mut text = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.end_line(&mut text, &mut found);
            } else {
                // Text without an end of line, such as a progress bar, is passed on at once.
                let end = self.undecided_from();
                text.extend_from_slice(&self.line[self.passed..end]);
                self.passed = end;
                if end > LONGEST_LINE {
                    // A line that never ends, such as progress output, must not fill the memory.
                    self.line.clear();
                    self.passed = 0;
                }
            }
        }
        text
    }

    /// Returns what is left of a last line without an end.
    fn finish(&mut self) -> Vec<u8> {
        mem::take(&mut self.line).split_off(mem::take(&mut self.passed))
    }

    fn end_line(&mut self, text: &mut Vec<u8>, found: &mut impl FnMut(ProcessReport)) {
        let line = mem::take(&mut self.line);
        let passed = mem::take(&mut self.passed);
        let report = position(&line, REPORT_MARK.as_bytes()).and_then(|at| {
            let body = str::from_utf8(&line[at + REPORT_MARK.len()..]).ok()?;
            Some((at, ProcessReport::parse(body)?))
        });
        let Some((at, report)) = report else {
            text.extend_from_slice(&line[passed..]);
            return;
        };
        found(report);
        let before = &line[passed.min(at)..at];
        if passed > 0 || !is_label(before) {
            text.extend_from_slice(before);
            text.push(b'\n');
        }
    }

    /// Returns the position from which the current line may belong to a report, and is held back.
    fn undecided_from(&self) -> usize {
        let line = &self.line;
        if line.len() > LONGEST_LINE {
            return line.len();
        }
        if self.passed == 0 && may_be_label(line) {
            return 0;
        }
        let mark = REPORT_MARK.as_bytes();
        let begun = || {
            let most = mark.len().min(line.len());
            (1..=most).rev().find(|n| line.ends_with(&mark[..*n])).map(|n| line.len() - n)
        };
        let from = position(line, mark).or_else(begun).unwrap_or(line.len());
        let label = may_be_label(&line[..from]) && self.passed == 0;
        if label { 0 } else { from.max(self.passed) }
    }
}

fn position(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// Returns whether text before a report is the label of a launcher, or nothing.
fn is_label(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    let ends = text.last().is_none_or(|last| b"]:>".contains(last));
    text.len() <= LONGEST_LABEL && ends && !text.contains(&b' ')
}

/// Returns whether the label of a launcher may begin with this text.
fn may_be_label(text: &[u8]) -> bool {
    text.len() <= LONGEST_LABEL
        && text.first().is_some_and(|first| b"[<".contains(first) || first.is_ascii_digit())
        && !text.trim_ascii_end().contains(&b' ')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn report(pid: u32) -> String {
        ProcessReport { pid, ..ProcessReport::default() }.line()
    }

    /// Pushes text in pieces of this length; returns what is passed on, and the processes found.
    fn filter(text: &str, piece: usize) -> (String, Vec<u32>) {
        let (mut filter, mut out, mut pids) = (LineFilter::default(), Vec::new(), Vec::new());
        for bytes in text.as_bytes().chunks(piece) {
            out.extend(filter.push(bytes, |report| pids.push(report.pid)));
        }
        out.extend(filter.finish());
        (String::from_utf8(out).expect("whole characters"), pids)
    }

    #[test]
    fn reports_are_taken_out_with_the_labels_of_launchers() {
        let text = format!(
            "one\n{}[3] {}[1,2]<stderr>: {}10 % {}squall-report: no\nend",
            report(1),
            report(2),
            report(3),
            report(4)
        );
        for piece in [1, 3, 7, 1000] {
            let (out, pids) = filter(&text, piece);
            assert_eq!(out, "one\n10 % \nsquall-report: no\nend", "in pieces of {piece}");
            assert_eq!(pids, [1, 2, 3, 4]);
        }
    }

    #[test]
    fn text_without_an_end_of_line_is_passed_on_at_once() {
        let mut filter = LineFilter::default();
        assert_eq!(filter.push(b"Password: ", |_| ()), b"Password: ");
        assert_eq!(filter.push(b"ok squ", |_| ()), b"ok ");
        assert_eq!(filter.push(b"are\n", |_| ()), b"square\n");
    }

    #[test]
    fn the_collector_ends_while_another_process_holds_the_pipe() {
        let (near, far) = UnixStream::pair().expect("sockets");
        (&far).write_all(report(9).as_bytes()).expect("room");
        let (running, launcher) = UnixStream::pair().expect("sockets");
        let collector = ReportCollector::start(near, std::io::sink(), launcher);
        drop(running);
        let reports = collector.finish(|| false);
        assert_eq!(reports.iter().map(|report| report.pid).collect::<Vec<_>>(), [9]);
        drop(far);
    }

    proptest! {
        #[test]
        fn text_without_reports_is_unchanged(text in "[squal\\-report: \\[\\]0-9\n]{0,200}", piece in 1..9usize) {
            prop_assert_eq!(filter(&text, piece).0, text);
        }
    }
}
