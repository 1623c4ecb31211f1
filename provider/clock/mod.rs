//! The clock of the provider: CLOCK_MONOTONIC, or the process's virtual time, as [`Time`]; and the calendar, for what
//! other programs read.

pub(crate) mod hooks;

use squall_base::Time;

/// Returns the time of the clock in use, virtual or real, in nanoseconds since the system's origin.
#[inline]
pub(crate) fn now() -> Time {
    hooks::now().unwrap_or_else(real)
}

/// Returns the real time of the monotonic clock.
#[inline]
fn real() -> Time {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime(2) writes one timespec, into a local variable. Every Linux has this clock, so it
    // does not fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut ts) };
    let seconds = u64::try_from(ts.tv_sec).unwrap_or(0);
    Time(seconds * 1_000_000_000 + u64::try_from(ts.tv_nsec).unwrap_or(0))
}

/// Returns the nanoseconds since 1970, as far as the system knows the date.
#[allow(clippy::disallowed_methods)] // this is where clocks are read
pub(crate) fn since_1970() -> u64 {
    let span = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    span.map_or(0, |span| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}
