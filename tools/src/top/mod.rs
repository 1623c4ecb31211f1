//! `squall top`: what the endpoints of this user's jobs are doing, from the statistics pages that
//! they write ([`squall_monitor`]).
//!
//! - [`pages`] finds and reads the pages, and refuses those that other users could have written.
//! - [`rates`] computes what happened between two readings, and combines the endpoints of a job.
//! - [`why`] says in a sentence what limits an endpoint.
//! - [`text`], [`screen`], [`json`] and [`metrics`] show the results: once, live, to scripts, and
//!   to collectors.

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
