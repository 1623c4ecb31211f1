//! `squall decrypt`: encrypted captures become captures that Wireshark can show.
//!
//! [`command`] has the options and the secrets, [`capture`] the records of a file, and [`frame`]
//! the UDP datagram in a frame.

mod capture;
pub(crate) mod command;
mod frame;
#[cfg(test)]
mod tests;
