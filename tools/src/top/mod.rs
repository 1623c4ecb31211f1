//! `squall top`: what the endpoints of this user's jobs are doing, from the statistics pages that they write
//! ([`squall_monitor`]).
//!
//! - [`pages`] finds and reads them, and refuses those of strangers.
//! - [`rates`] makes of two looks what happened between them, and of several endpoints a job.
//! - [`why`] says in a sentence what an endpoint is held up by.
//! - [`text`], [`screen`], [`json`] and [`metrics`] show it: once, live, to a script, to a collector.

pub(crate) mod command;
mod json;
mod metrics;
mod pages;
mod rates;
mod screen;
mod serve;
#[cfg(test)]
mod tests;
mod text;
mod why;
