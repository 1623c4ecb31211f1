//! What single papers need of a network, kept out of the switch model of `squall-netsim`.
//!
//! - [`credit_network`]: accelerators whose switches replicate writes and reduce reads, flit by flit (the network of 3CPO).
#![forbid(unsafe_code)]

pub mod credit_network;
