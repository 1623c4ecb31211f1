//! The integration tests of this crate, in one program.

#[path = "../../reliability/tests/histories/mod.rs"]
mod histories;

mod access;
mod atomics;
mod attacks;
mod closing;
mod encryption;
mod events;
mod fences;
mod first_contact;
mod foreign;
mod giving_up;
mod handshake_attacks;
mod handshake_search;
mod hostile;
mod liveness;
mod memory;
mod model;
mod numbers;
mod outsiders;
mod over_shm;
mod packet_sizes;
mod rates;
mod scenarios;
mod shm_channels;
mod stress;
mod survival;
mod trains;
mod unexpected;
mod world;
