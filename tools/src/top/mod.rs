//! `squall top`: what the endpoints of this user's jobs are doing, from the boards that they write
//! ([`squall_monitor`]).
//!
//! - [`boards`] finds and reads them, and refuses those of strangers.
//! - [`rates`] makes of two looks what happened between them, and of several endpoints a job.
//! - [`why`] says in a sentence what an endpoint is held up by.
//! - [`text`], [`screen`], [`json`] and [`metrics`] show it: once, live, to a script, to a collector.

mod boards;
pub(crate) mod command;
mod json;
mod metrics;
mod rates;
mod screen;
mod serve;
#[cfg(test)]
mod tests;
mod text;
mod why;
