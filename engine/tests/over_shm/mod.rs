//! The suites that run over packets, again over shared-memory channels: hosts open a channel as soon as
//! they have verified each other.
#![allow(clippy::duplicate_mod)] // the suites use the world of the module around them

#[path = "../atomics.rs"]
mod atomics;
#[path = "../events.rs"]
mod events;
#[path = "../fences.rs"]
mod fences;
#[path = "../model.rs"]
mod model;
#[path = "../scenarios.rs"]
mod scenarios;
#[path = "../stress.rs"]
mod stress;
#[path = "../unexpected.rs"]
mod unexpected;
#[path = "../world/mod.rs"]
mod world;
