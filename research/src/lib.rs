//! Models and switch features that single papers need, kept out of the switch model of
//! `squall-netsim`.
//!
//! - [`deflection`]: in-order flow deflection of the Dart paper, a switch feature.
//! - [`rates`]: the rate computation of s-PERC and the windows of 1RC, a switch feature.
//! - [`credit_network`]: accelerators whose switches replicate writes and reduce reads, flit by
//!   flit (the network of 3CPO).
//!
//! [`register`] makes the switch features known to the simulator and the emulator.
#![forbid(unsafe_code)]

pub mod credit_network;
pub mod deflection;
pub mod rates;

use squall_netsim::model::SwitchFeature;

/// The switch features of this crate. A new one is a module and a row here.
pub static FEATURES: &[&dyn SwitchFeature] = &[&deflection::Deflection, &rates::Rates];

/// Makes the switch features of this crate known to this process.
pub fn register() {
    squall_netsim::model::register(FEATURES);
}
