//! The suites that run over packets, run again over shared-memory channels: hosts open a channel as
//! soon as they have verified each other.

#![allow(clippy::duplicate_mod)] // each suite brings the world in which it runs

#[path = "scenarios.rs"]
mod scenarios;

#[path = "unexpected.rs"]
mod unexpected;

#[path = "model.rs"]
mod model;

#[path = "stress.rs"]
mod stress;

#[path = "atomics.rs"]
mod atomics;

#[path = "fences.rs"]
mod fences;

#[path = "events.rs"]
mod events;
