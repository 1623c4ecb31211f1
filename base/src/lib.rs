//! What every Squall crate shares: [`Time`] and [`Span`] as values, [`Rate`]s, serial-number
//! arithmetic ([`Psn`]), a seeded random generator ([`Rng`]) and tables of counters ([`counters!`]).
//!
//! Nothing here reads a clock, allocates or does I/O: a run of the machines built on top of it is a
//! pure function of its inputs and seeds.
#![no_std]
#![forbid(unsafe_code)]

mod counters;
mod psn;
mod rate;
mod rng;
mod time;

pub use counters::{CounterRow, Merge};
pub use psn::Psn;
pub use rate::Rate;
pub use rng::Rng;
pub use time::{Span, Time};
