//! `squall run` and `squall env`: starts a job of any known launcher on squall, over the real
//! network or an emulated one, and summarises which ranks used it.

use std::fmt;
use std::io::{self, Write as _};

pub(crate) mod cli;
mod emulated;
pub(crate) mod job;
pub(crate) mod launchers;
mod overhead;
mod placement;
mod preparation;
mod real_time_programs;
pub(crate) mod record;
mod standard_error;
mod summary;
pub(crate) mod switches;
mod virtual_time;

pub(crate) use emulated::{emulator_variables, no_endpoint};
pub(crate) use preparation::prepare;

/// Prints a line to standard error, because standard output is the job's.
fn print_line(line: fmt::Arguments<'_>) {
    // Standard error may be closed.
    let _ = writeln!(io::stderr(), "squall: {line}");
}

/// Exit status when the command itself fails: the request is invalid, or the job shows nothing.
pub(crate) const REFUSED: u8 = 2;
