//! The engine's parameters.

use core::net::IpAddr;

use crate::base::{Instance, JobKey, Seed, Span};
use crate::fences::Order;

/// Thresholds and bounds of one endpoint. Sizes in bytes.
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest UDP payload a packet may have (without CRC trailer): headers and data.
    pub max_packet: u32,
    /// Messages up to this size may be injected: copied at the call.
    pub inject_size: u32,
    /// Messages up to this size that ask for no more than their buffer back are copied as well, and complete
    /// at the call, while copies take less than [`Config::copied_bytes`]; those of more than half of it only while no
    /// more than one of them is on its way.
    pub copy_size: u32,
    /// Memory for copies of what the peers have not acknowledged; beyond it messages are lent, and injected
    /// ones refused for now.
    pub copied_bytes: u64,
    /// Messages longer than this go by rendezvous: the receiver pulls them by read.
    pub rendezvous_threshold: u64,
    /// Memory for unexpected and early messages; beyond it, and beyond a peer's share of it, the bytes stay
    /// at the sender until a receive matches.
    pub unexpected_bytes: u64,
    /// Unexpected and early messages of which at least the header is held; beyond it senders are held back
    /// by NACKs.
    pub max_unexpected: usize,
    /// Sends, writes and reads that may be outstanding before [`crate::Refused::Again`].
    pub max_outstanding: u32,
    /// This endpoint's UDP port, told to peers in the `initiator` field.
    pub port: u16,
    /// Tells this endpoint from others that had, or have, its address; every request carries its low half
    /// in the `initiator` field.
    pub instance: Instance,
    /// What the endpoints of the job prove to know when they are introduced; without one whoever proves an
    /// address is believed.
    pub key: Option<JobKey>,
    /// Only endpoints that the user has named ([`crate::Engine::peer_at`], [`crate::Engine::name_peers`]) are
    /// introduced.
    pub named_only: bool,
    /// JobID of every request; endpoints of another job are refused.
    pub job_id: u32,
    /// What is promised about the order of operations to one peer, besides that messages match in order.
    pub order: Order,
    /// PIDonFEP of this endpoint and its peers.
    pub pid_on_fep: u16,
    /// How long a peer that owes us something may stay silent before we ask it for a sign of life.
    pub keepalive: Span,
    /// How long the engine waits for a peer that does not answer while the peer's host answers, or is this host: the
    /// peer's process may be stopped. A value shorter than [`crate::TransportConfig::progress_deadline`] has no effect.
    pub stopped_deadline: Span,
    /// This endpoint's IP address, if known. A peer with the same address is on this host, so its host is known to be
    /// up.
    pub host: Option<IpAddr>,
    /// Somebody carries the frames of links: peers that are introduced are told of
    /// ([`crate::Linking::poll_acquaintance`]).
    pub links: bool,
    /// Packets a batch is filled with at most per call.
    pub batch_packets: usize,
    /// Where everything comes from that others must not guess: numbers of contexts, cookies, keys of
    /// rendezvous.
    pub secret: Seed,
}

impl Config {
    /// The defaults of the endpoint with this number.
    #[must_use]
    pub const fn new(instance: Instance, secret: Seed) -> Self {
        Self {
            max_packet: 1472,
            inject_size: 256,
            copy_size: 32 << 10,
            copied_bytes: 64 << 20,
            rendezvous_threshold: 64 * 1024,
            unexpected_bytes: 256 << 20,
            max_unexpected: 1_000_000,
            max_outstanding: 8192,
            port: 4793,
            instance,
            key: None,
            named_only: false,
            job_id: 1,
            order: Order::NONE,
            pid_on_fep: 0,
            keepalive: Span::secs(1),
            stopped_deadline: Span::secs(900),
            host: None,
            links: false,
            batch_packets: 64,
            secret,
        }
    }

    /// Whether a message of `len` bytes may be copied where copies take `copied` already. One that the peer reads may
    /// be read from where it is.
    ///
    /// Whoever sends a message at a time is spared the wait for its acknowledgement, and the receiver a system call
    /// that delays its answer. In a stream of long messages nobody waits, and copying them takes a tenth of the bandwidth.
    #[inline]
    pub(crate) fn has_copy_room(&self, len: u64, copied: u64) -> bool {
        let longest = u64::from(self.copy_size).min(self.rendezvous_threshold);
        let always = (longest / 2).max(self.inject_size.into());
        if len <= always {
            copied + len <= self.copied_bytes
        } else {
            len <= longest && copied + len <= self.copied_bytes.min(2 * longest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    #[test]
    fn longer_messages_are_copied_while_few_are_on_their_way() {
        let instance = Instance::new(1).expect("not zero");
        let config = Config { inject_size: 8 << 10, ..Config::new(instance, Seed::new([0; 32])) };
        // Length, and what copies take already.
        for (len, copied, has_room) in [
            (0, 0, true),
            (16 * KIB, 0, true),
            (16 * KIB, config.copied_bytes - 16 * KIB, true),
            (16 * KIB, config.copied_bytes - 16 * KIB + 1, false),
            (16 * KIB + 1, 32 * KIB, true),
            (32 * KIB, 32 * KIB, true),
            (32 * KIB, 32 * KIB + 1, false),
            (32 * KIB + 1, 0, false),
        ] {
            assert_eq!(config.has_copy_room(len, copied), has_room, "{len} beside {copied}");
        }
        // What may be injected always is; what the peer reads never is.
        let config = Config { inject_size: 64 << 10, ..config };
        assert!(config.has_copy_room(64 * KIB, 32 << 20) && !config.has_copy_room(64 * KIB + 1, 0));
        let config = Config { inject_size: 64, rendezvous_threshold: 4 * KIB, ..config };
        assert!(config.has_copy_room(4 * KIB, 0) && !config.has_copy_room(4 * KIB + 1, 0));
        let config = Config { copied_bytes: KIB, ..config };
        assert!(!config.has_copy_room(4 * KIB, 0));
    }
}
