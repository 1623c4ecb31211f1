//! Endpoints that talk to those of other implementations: exchanges of golden packets, byte for byte,
//! and random histories with models of what other implementations do.
//!
//! The packets are those of `wire/tests/data/foreign_packets.txt`. This endpoint chooses its PSNs, its
//! context numbers and its message ids itself, so these are translated in both directions.

mod endpoint;
mod golden;
mod histories;
mod model;
mod ranges;
mod refusals;
mod unnamed_peers;
