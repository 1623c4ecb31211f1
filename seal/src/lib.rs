//! Encryption and authentication of packets: the transport security sublayer (TSS) of Ultra
//! Ethernet, over UDP, with AES-256-GCM.
//!
//! A sealed packet is a TSS header ([`crate::wire::Tss`]), the encrypted delivery packet, and a tag
//! of 16 bytes (ICV). The tag authenticates both IP addresses, the UDP header with checksum 0
//! ([`OuterHeader`]), the TSS header and the encrypted packet. So the sender seals a packet only
//! after it has chosen the UDP source port, which selects the path.
//!
//! The two ends of a handshake are its initiator and its responder. Each endpoint has an instance
//! number, 32 random bits drawn when it is opened. The job key is the secret of all endpoints of a
//! job.
//!
//! - [`derive_key`] is the key derivation function of the specification.
//! - [`base::PairSecret`] is the secret that two endpoints share. Each direction between them has keys of
//!   its own, which change every 2^24 packets.
//! - [`KeyRing`] holds the secrets that an endpoint shares with its peers. It seals packets, opens
//!   them, and refuses packets that it has opened before.
//! - [`KeyLogEntry`] is a line of the file with secrets, and [`RecordingKeys`] decrypts recorded
//!   packets with them.
//!
//! No nonce repeats under one key. A nonce is the source identifier of the sender (SSI, 32 bits), the
//! epoch (16 bits, 0) and a counter of 48 bits, XORed with a mask that belongs to the key. Every
//! sealed packet advances the counter, retransmissions included. A key ring never sets a counter
//! back, not even when an endpoint forgets a peer and meets it again. A process that restarts draws
//! another instance number, and so has other secrets.
//!
//! This crate reads no clock, does no I/O and draws no random numbers.
#![forbid(unsafe_code)]

mod cipher;
mod kdf;
mod key_log;
mod key_ring;
mod outer;
mod pair;
mod recording;
#[cfg(test)]
mod tests;
mod window;

pub use squall_wire as wire;
pub use squall_wire::base;

pub use cipher::{Cipher, ICV_LEN};
pub use kdf::{DerivedKey, KeyLabel, KeySource, derive_key};
pub use key_log::{KeyLogEntry, KeyLogError};
pub use key_ring::{KeyRing, OpenError, SealError};
pub use outer::OuterHeader;
pub use pair::{Pair, SourceId};
pub use recording::RecordingKeys;
pub use window::ReplayWindow;

/// Bytes that sealing adds to a packet: the TSS header with a source identifier, and the tag.
pub const OVERHEAD: usize = wire::Tss::LEN_SSI + ICV_LEN;
