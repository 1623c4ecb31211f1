//! The integration tests of this crate, in one program.

mod base_rtt;
// Its links compute rates, for sperc.
#[cfg(feature = "research")]
mod bottleneck;
mod credits;
mod names;
// The tables of docs/your-algorithm.md have a row for each algorithm of the whole build.
#[cfg(feature = "research")]
mod page;
mod properties;
