//! `squall emulate ..`: starts, joins, changes and shows an emulated network ([`squall_emulator`]).

pub(crate) mod cli;
pub(crate) mod join;
