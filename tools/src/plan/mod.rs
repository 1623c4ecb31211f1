//! Experiments in TOML: a scene (topology, network, workload, transport), what to vary, and what a
//! paper says should come out.
//!
//! ```toml
//! title = "Permutation of 2 MiB, oversubscribed"
//! source = "SMaRTT v2, section IV-B, Fig. 1a"
//! seeds = [1, 2, 3]
//!
//! [topology]
//! kind = "fat-tree"
//! hosts = 128
//! tiers = 3
//!
//! [workload]
//! kind = "permutation"
//! bytes = "2MiB"
//!
//! [sweep]
//! "topology.oversubscription" = [1, 8]      # a key of the scene and its values, or
//! [sweep.transport]                         # named variants that set several keys
//! nscc = { "transport.cc" = "nscc" }
//! eqds = { "transport.cc" = "eqds" }
//!
//! [[expect]]
//! statement = "SMaRTT ends before EQDS where the network is oversubscribed"
//! metric = "finish"
//! where = { oversubscription = 8 }
//! of = { transport = "nscc" }
//! over = { transport = "eqds" }
//! at_most = 1.0
//! ```
//!
//! A statement is judged at every point (or pair of points) it speaks of, by the mean over the seeds, or, with `any = true`, at
//! the best of them: "up to". What is printed with it is half of the interval in which that mean lies with a confidence of
//! 95 %. `full = true` leaves it out of quick runs, which do not have the points that it is about; `explained` says why it does
//! not hold where that is known.
//!
//! A scene with a table `[flits]` is of another kind: a topology of two tiers, and an all-reduce over accelerators whose switches
//! replicate and reduce ([`squall_research::credit_network`]). It has no other table.
//!
//! Mistakes are reported with file, line and what was expected ([`PlanError`]).

mod credit_network;
mod expect;
mod failure;
mod keys;
mod load;
mod point;
mod runner;
mod scene;
mod shorthand;
mod topology;
mod transport;
mod workload;

pub use credit_network::{CreditNetworkRun, CreditNetworkScene, CreditNetworkTable};
pub use expect::{Expectation, Verdict, judge};
pub use failure::{
    FailureKind, FailureTable, FailureTime, LinkChoice, LinkFailure, PlaceFailure, slow_links,
};
pub use load::{Plan, PlanError};
pub use point::Point;
pub use runner::{
    Progress, RunOptions, RunnerError, Shard, merge, run_plan, run_scene, write_runs,
};
pub use scene::{Experiment, ObserveTable, PacketScene, PreparedSimulation, Scene, SceneError};
pub use shorthand::WordError;
pub use topology::{LinkTable, TopologyKind, TopologyTable};
pub use transport::{HostTable, SquallTable, Stack, TransportTable};
pub use workload::{ChakraTable, GoalTable, WorkloadFile, WorkloadTable};

#[cfg(test)]
mod page;
#[cfg(test)]
mod tests;
