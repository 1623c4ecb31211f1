//! Networks made of software, and the discrete-event simulator that runs the transport over them.
//!
//! - [`topology`]: hosts, switches and the links between them: fat trees, leaf-spine, star, dumbbell,
//!   or any graph.
//! - [`model`]: what ports and switches do with a packet: output queues with a strict-priority control
//!   queue, RED marking at dequeue, trimming instead of tail drop, ECMP on the entropy, failures.
//!   The model reads no clock: its caller passes the time, and it returns what leaves and when.
//! - [`sim`]: the discrete-event simulator, which runs the transport of `squall-reliability` and
//!   `squall-cc` in virtual time. The emulator (crate `squall-emulator`) drives the same model in real time.
//! - [`workload`]: the flows of a run and when they start: generators and message traces.
//! - [`replay`]: messages that a real job sent, as a workload that keeps their dependencies.
//! - [`formats`]: htsim's `.topo` and `.cm` files, and graphs.
//! - [`facts`]: base round-trip times, and lower bounds on completion times.
//! - [`output`]: results of a run, as files and as tables.
//! - [`settings`]: the parameters of a run, as its result states them.
#![forbid(unsafe_code)]

mod chance;
#[doc(hidden)]
pub mod documents;
pub mod facts;
pub mod formats;
pub mod model;
pub mod output;
mod quantity;
pub mod replay;
pub mod settings;
pub mod sim;
mod time;
pub mod topology;
pub mod workload;

pub use quantity::Bytes;
pub use time::Picos;
