//! The `squall` command: `run`, simulations, experiments, reports, the emulator's command line, `top`,
//! `doctor` and `decrypt`.
//!
//! - [`cli`]: the command line.
//! - [`plan`]: experiments, and [`shipped`], the plans that the program contains.
//! - [`report`]: HTML pages and plots of results.
#![forbid(unsafe_code)]

pub mod cli;
mod decrypt;
mod doctor;
mod emulate;
pub mod plan;
mod provider;
pub mod report;
mod run;
mod samples;
pub mod shipped;
mod top;
