//! What the engine promises, over links: the suites that run over packets, in hosts that link as soon as they are
//! introduced.

#![allow(clippy::duplicate_mod)] // each suite brings the world it runs in

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
