//! Conversions between nanoseconds and the structures of the C library. Values out of range
//! saturate.

use libc::{timespec, timeval};

pub(crate) const NS_PER_SECOND: i64 = 1_000_000_000;
/// Number of nanoseconds in a millisecond.
pub(crate) const MILLISECOND: u64 = 1_000_000;

/// Converts a time to nanoseconds, or returns `None` if its fraction is invalid.
pub(crate) fn nanoseconds(time: &timespec) -> Option<i64> {
    let valid = (0..NS_PER_SECOND).contains(&time.tv_nsec);
    valid.then(|| time.tv_sec.saturating_mul(NS_PER_SECOND).saturating_add(time.tv_nsec))
}

/// Converts a duration to nanoseconds, or returns `None` if it is negative or its fraction is invalid.
pub(crate) fn duration(time: &timespec) -> Option<u64> {
    nanoseconds(time).and_then(|time| u64::try_from(time).ok())
}

/// Returns a duration as nanoseconds, or `None` if it is negative. Like Linux, it accepts a million
/// microseconds and more.
pub(crate) fn duration_of_timeval(time: &timeval) -> Option<u64> {
    let fraction = time.tv_usec.saturating_mul(1000);
    let negative = time.tv_sec < 0 || time.tv_usec < 0;
    let sum = time.tv_sec.saturating_mul(NS_PER_SECOND).saturating_add(fraction);
    if negative { None } else { u64::try_from(sum).ok() }
}

/// Converts nanoseconds to a time as `timespec`.
pub(crate) fn timespec_from(time: i64) -> timespec {
    timespec { tv_sec: time.div_euclid(NS_PER_SECOND), tv_nsec: time.rem_euclid(NS_PER_SECOND) }
}

/// Converts nanoseconds to a duration as `timespec`.
pub(crate) fn timespec_of_duration(duration: u64) -> timespec {
    timespec_from(i64::try_from(duration).unwrap_or(i64::MAX))
}

/// Converts nanoseconds to a duration as `timeval`; a fraction of a microsecond is rounded up.
pub(crate) fn timeval_of_duration(duration: u64) -> timeval {
    timeval_from(i64::try_from(duration.saturating_add(999)).unwrap_or(i64::MAX))
}

/// Converts nanoseconds to a time as `timeval`; a fraction of a microsecond is dropped.
pub(crate) fn timeval_from(time: i64) -> timeval {
    let timespec = timespec_from(time);
    timeval { tv_sec: timespec.tv_sec, tv_usec: timespec.tv_nsec / 1000 }
}
