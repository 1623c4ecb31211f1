//! The integration tests of this crate, in one program.

mod base_rtt;
// Its links compute rates, for sperc.
#[cfg(feature = "research")]
mod bottleneck;
mod credits;
mod names;
mod properties;
// The tables of README have a row for each algorithm of the whole build.
#[cfg(feature = "research")]
mod readme;
