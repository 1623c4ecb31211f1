//! The integration tests of this crate, in one program.

mod acks;
mod algorithms;
mod delivery;
mod detection;
mod few_paths;
mod flows;
mod forged_packets;
mod histories;
mod hole;
mod hostile;
mod lifecycle;
mod link;
mod liveness;
mod loss;
mod path_death;
mod rates;
mod runs;
mod samples;
mod scope;
mod sender;
mod shares;
mod unverified_peers;
