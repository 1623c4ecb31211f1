//! Networks made of software: one switch and topology model, two drivers.
//!
//! - [`topology`]: hosts, switches and the links between them: fat trees, leaf-spine, star, dumbbell,
//!   or any graph.
//! - [`model`]: what ports and switches do with a packet: output queues with a strict-priority control
//!   queue, RED marking at dequeue, trimming instead of tail drop, ECMP on the entropy, failures.
//!   Knows no driver: time comes in, decisions go out.
//! - [`sim`]: the discrete-event driver, which runs the transport of `squall-reliability` and
//!   `squall-cc` in virtual time.
//! - [`live`]: the real-time driver, a relay that real endpoints attach to.
//! - [`flits`]: networks of accelerators whose switches replicate and reduce, flit by flit: a model of its own.
//! - [`workload`]: which flows there are and when they start: generators and message traces.
//! - [`replay`]: what real jobs sent, as a workload that keeps what waited for what.
//! - [`formats`]: htsim's `.topo` and `.cm` files, and graphs.
//! - [`facts`]: round trips, and the time that no transport can beat.
//! - [`plan`]: experiments, and [`shipped`], those that the program brings with it.
//! - [`output`]: what is kept of a run, as files and as tables.
//! - [`settings`]: what a run was told, as its result states it.
#![forbid(unsafe_code)]

pub use squall_engine as engine;
pub use {
    squall_base as base, squall_cc as cc, squall_reliability as reliability, squall_wire as wire,
};

mod chance;
pub mod cli;
mod doctor;
#[cfg(test)]
mod documents;
pub mod facts;
pub mod flits;
pub mod formats;
mod launchers;
pub mod live;
pub mod model;
pub mod output;
pub mod plan;
mod quantity;
pub mod replay;
pub mod report;
pub mod settings;
pub mod shipped;
pub mod sim;
mod time;
mod top;
pub mod topology;
pub mod workload;

pub use quantity::Bytes;
pub use time::Picos;
