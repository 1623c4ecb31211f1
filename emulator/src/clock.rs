//! The monotonic clock of running emulators.

use rustix::event::Timespec;
use rustix::time::{ClockId, clock_gettime};

use squall_base::{Span, Time};

/// Returns the monotonic time, from the clock with which endpoints stamp packets.
pub(super) fn clock() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Time(seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Converts a span to the timeout that `poll` takes.
pub(super) fn timespec(span: Span) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(span.0 / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::from((span.0 % 1_000_000_000) as u32),
    }
}
