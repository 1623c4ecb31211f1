//! `squall doctor`: why endpoints do not start, do not reach each other, or are slow, before a job is.
//!
//! A check is a function from what it looks at to [`finding::Finding`]s: what was seen, whether that is well, and the cure
//! where it is not. [`library`] asks libfabric, [`interface`] chooses as endpoints do, [`host`] opens a port as they do,
//! [`peers`] sends packets to where the other end answers, [`firewall`] and [`launchers`] print what is to be set.

pub(crate) mod command;
pub(crate) mod environment;
mod finding;
mod firewall;
mod host;
mod interface;
mod launchers;
mod library;
mod peers;
mod probe;
#[cfg(test)]
mod tests;
