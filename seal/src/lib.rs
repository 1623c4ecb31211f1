//! Encryption and authentication of packets: the transport security sublayer (TSS) of Ultra
//! Ethernet, over UDP, with AES-256-GCM.
//!
//! A sealed packet is a TSS header ([`crate::wire::Tss`]), the encrypted delivery packet, and a tag
//! of 16 bytes (ICV). The tag also covers the IP addresses and the UDP header ([`OuterHeader`]), so
//! a packet is sealed after its path, which is its source port, has been chosen.
//!
//! - [`derive_key`] is the key derivation function of the specification.
//! - [`base::PairSecret`] is the secret that two endpoints share. Each direction between them has keys of
//!   its own, which change every 2^24 packets.
//! - [`KeyRing`] holds the secrets that an endpoint shares with its peers. It seals packets, opens
//!   them, and refuses packets that it has opened before.
//!
//! Nonces never repeat. A nonce consists of the sender's source identifier and a counter of 48 bits,
//! which every sealed packet advances, retransmissions included. A key ring never sets a counter
//! back, not even when an endpoint forgets a peer and meets it again. A process that restarts draws
//! another instance number, and so has other secrets.
//!
//! This crate reads no clock, does no I/O and draws no random numbers.
#![forbid(unsafe_code)]

mod cipher;
mod kdf;
mod key_ring;
mod outer;
mod pair;
#[cfg(test)]
mod tests;
mod window;

pub use squall_wire as wire;
pub use squall_wire::base;

pub use cipher::{Cipher, ICV_LEN};
pub use kdf::{DerivedKey, KeyLabel, KeySource, derive_key};
pub use key_ring::{KeyRing, OpenError, SealError};
pub use outer::OuterHeader;
pub use pair::{Pair, SourceId};
pub use window::ReplayWindow;

/// Bytes that sealing adds to a packet: the TSS header with a source identifier, and the tag.
pub const OVERHEAD: usize = wire::Tss::LEN_SSI + ICV_LEN;
