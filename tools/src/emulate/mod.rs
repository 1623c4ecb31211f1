//! `squall emulate ..`: starts, joins, changes and shows an emulated network ([`squall_emulator`]).

pub(crate) mod cli;
mod job;
mod join;
pub(crate) mod record;
mod run;
mod tunnel;
