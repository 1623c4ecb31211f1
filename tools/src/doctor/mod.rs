//! `squall doctor`: finds out before a job starts why endpoints would not start, not reach each
//! other, or be slow.
//!
//! A check is a function that returns [`finding::Finding`]s: what it saw, whether that is good, and
//! the remedy if it is not. [`library`] asks libfabric, [`interface`] chooses as endpoints do
//! and [`ranking`] prints all interfaces, [`host`] opens a port as endpoints do, [`peers`] sends
//! packets that the other end answers, [`firewall`] and [`launchers`] print the settings that are
//! needed, and [`encryption`] examines the key of jobs.

pub(crate) mod command;
mod encryption;
pub(crate) mod environment;
mod finding;
mod firewall;
mod host;
#[cfg(test)]
mod hosts;
mod interface;
mod launchers;
mod library;
mod peers;
mod probe;
mod ranking;
#[cfg(test)]
mod tests;
