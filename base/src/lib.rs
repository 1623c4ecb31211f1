//! What every Squall crate shares: [`Time`] and [`Span`] as values, [`Rate`]s, serial-number
//! arithmetic ([`Psn`]), numbers of endpoints ([`Instance`]), a seeded random generator ([`Rng`]) and one
//! for secrets ([`SecretRng`]), keys of jobs ([`JobKey`]), tables of counters ([`counters!`]), names for user memory
//! ([`UserSlice`]), datagrams on their way to the network ([`Batch`]) and from it ([`Train`]).
//!
//! Nothing here reads a clock or does I/O: a run of the machines built on top of it is a
//! pure function of its inputs and seeds.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod batch;
mod counters;
mod instance;
mod job_key;
mod memory;
mod psn;
mod rate;
mod rng;
mod secret;
mod time;
mod train;

pub use batch::{Batch, Datagram, PATH_SETS, TrafficClass, entropies};
pub use counters::{CounterRow, Merge};
pub use instance::Instance;
pub use job_key::{JobKey, Proof, Purpose};
pub use memory::{RegionId, Space, UserSlice};
pub use psn::Psn;
pub use rate::Rate;
pub use rng::Rng;
pub use secret::{SecretRng, Seed};
pub use time::{Span, Time};
pub use train::Train;
