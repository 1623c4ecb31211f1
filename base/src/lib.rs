//! Types that all Squall crates share.
//!
//! - [`Time`], [`Span`] and [`Rate`] are plain values; [`quantity`] parses what people write.
//! - [`Psn`] is a serial number, and [`Instance`] identifies an endpoint.
//! - [`Rng`] is a seeded generator for repeatable runs; [`SecretRng`] and [`JobKey`] are for
//!   secrets.
//! - [`counters!`] declares a table of counters.
//! - [`UserSlice`] names user memory; [`Batch`] and [`Train`] hold datagrams that leave and arrive.
//!
//! This crate reads no clock and does no I/O. A run of the state machines built on top of it is a
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
pub mod quantity;
mod rate;
mod rng;
mod secret;
mod time;
mod train;

pub use batch::{Batch, Datagram, PATH_SETS, TrafficClass, entropy_count};
pub use counters::{CounterRow, Merge};
pub use instance::Instance;
pub use job_key::{JobKey, PairSecret, Proof, Purpose};
pub use memory::{RegionId, Space, UserSlice};
pub use psn::Psn;
pub use rate::Rate;
pub use rng::Rng;
pub use secret::{SecretRng, Seed};
pub use time::{Span, Time};
pub use train::Train;
