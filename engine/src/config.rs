//! The parameters that the driver gives an engine: limits, thresholds, timeouts and identities.

use core::net::{IpAddr, SocketAddr};

use crate::base::{Instance, JobKey, Seed, Span};
use crate::fences::Order;
use crate::foreign_wire::ForeignWire;

/// UDP port assigned to Ultra Ethernet. Every endpoint of the standard wire listens on it.
pub const UET_PORT: u16 = 4793;

/// Thresholds and limits of one endpoint. Sizes are in bytes.
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest UDP payload of a packet, headers and data, without the CRC trailer.
    pub max_packet: u32,
    /// Messages up to this size may be injected: copied at the call.
    pub inject_size: u32,
    /// Length limit in bytes of messages that are copied at the call, and so complete at once,
    /// although they are not injected. It applies to messages that request no more than the return
    /// of their buffer, as long as all copies together take less than [`Config::copied_bytes`]. A
    /// message longer than half this length is copied only if all copies then take at most twice
    /// this length.
    pub copy_size: u32,
    /// Memory in bytes for copies of data that peers have not acknowledged. When it is used up,
    /// messages are sent from the user's buffer, and injected ones are refused with
    /// [`crate::SubmitError::Again`].
    pub copied_bytes: u64,
    /// Messages longer than this use rendezvous: the receiver fetches them by RMA read.
    pub rendezvous_threshold: u64,
    /// Memory in bytes for messages that wait for a receive or for their turn. When it, or a peer's
    /// share of it, is used up, the payload stays at the sender until a receive matches.
    pub unexpected_bytes: u64,
    /// Largest number of messages that wait for a receive or for their turn and of which at least
    /// the header is kept. The engine refuses further messages by NACKs, and the senders retry.
    pub max_unexpected: usize,
    /// Largest number of outstanding sends, writes and reads before [`crate::SubmitError::Again`].
    pub max_outstanding: u32,
    /// This endpoint's UDP port. Peers learn it from the `initiator` field.
    pub port: u16,
    /// Number that distinguishes this endpoint from earlier and later ones at the same address.
    /// Every request carries its low half in the `initiator` field.
    pub instance: Instance,
    /// The secret whose knowledge the endpoints of the job prove in the handshake. Without a key, a
    /// peer only has to prove its address.
    pub key: Option<JobKey>,
    /// The driver encrypts the packets, with the secrets that [`crate::Engine::poll_secret`]
    /// returns. Peers must do the same. Needs a key.
    pub encrypts: bool,
    /// Only peers that the user has named ([`crate::Engine::peer_at`],
    /// [`crate::Engine::name_peers`]) pass the handshake.
    pub named_only: bool,
    /// JobID of every request; endpoints of another job are refused.
    pub job_id: u32,
    /// The wire format of peers of another implementation; `None` for the wire format of this
    /// project. Foreign peers prove nothing, so [`Config::key`] must be `None` if this is set.
    pub wire: Option<ForeignWire>,
    /// Order guarantees between operations to one peer, beyond the matching order of messages.
    pub order: Order,
    /// PIDonFEP, the number of a process on its host in request headers, of this endpoint and its
    /// peers.
    pub pid_on_fep: u16,
    /// Time for which a peer that owes an answer may stay silent before the engine asks it for a
    /// sign of life.
    pub keepalive: Span,
    /// Time for which the engine waits for a silent peer whose host answers, or is this host: the
    /// peer's process may be stopped. A value shorter than
    /// [`crate::TransportConfig::progress_deadline`] has no effect.
    pub stopped_deadline: Span,
    /// This endpoint's IP address, if known. A peer with the same address is on this host, so its host is known to be
    /// up. An endpoint with a key must know its address as its peers see it, because the proofs of the handshake cover
    /// it.
    pub host: Option<IpAddr>,
    /// The driver carries shared-memory records, so [`crate::ShmInterface::poll_verified_peer`] reports
    /// verified peers.
    pub shm: bool,
    /// Number of packets in a batch from which on no further train begins in the same call. A train
    /// is never cut for it, because the rest of a train costs as much as a whole one.
    pub batch_packets: usize,
    /// Seed of everything that other hosts must not guess: context numbers, cookies, rendezvous
    /// keys.
    pub secret: Seed,
}

impl Config {
    /// Returns the defaults for the endpoint with this instance number.
    #[must_use]
    pub const fn new(instance: Instance, secret: Seed) -> Self {
        Self {
            max_packet: 1472,
            inject_size: 256,
            // Messages of 32 KiB take 0.82 of the time there and back when they are copied.
            copy_size: 32 << 10,
            // What a link of 100 Gb/s carries in 5 ms, the first retransmission timeout.
            copied_bytes: 64 << 20,
            rendezvous_threshold: 64 * 1024,
            unexpected_bytes: 256 << 20,
            max_unexpected: 1_000_000,
            max_outstanding: 8192,
            port: UET_PORT,
            instance,
            key: None,
            encrypts: false,
            named_only: false,
            job_id: 1,
            wire: None,
            order: Order::NONE,
            pid_on_fep: 0,
            keepalive: Span::secs(1),
            stopped_deadline: Span::secs(900),
            host: None,
            shm: false,
            batch_packets: 64,
            secret,
        }
    }

    /// Returns the address at which peers reach this endpoint, if it is known.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.host.map(|host| SocketAddr::new(host, self.port))
    }

    /// Returns whether a message of `len` bytes may be copied while existing copies take `copied`
    /// bytes. A message longer than the rendezvous threshold is copied only if it may be injected,
    /// because the peer can read it from the user's buffer.
    ///
    /// A sender that sends one message at a time is spared the wait for the acknowledgement, and
    /// its receiver a system call that would delay the answer. In a stream of long messages nothing
    /// waits for acknowledgements, and copying would cost a tenth of the bandwidth.
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
    fn longer_messages_are_copied_while_few_are_unacknowledged() {
        let instance = Instance::new(1).expect("not zero");
        let config = Config { inject_size: 8 << 10, ..Config::new(instance, Seed::new([0; 32])) };
        // Length of the message, and bytes that copies take already.
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
        // Messages up to the inject size are always copied; messages that the peer reads never are.
        let config = Config { inject_size: 64 << 10, ..config };
        assert!(config.has_copy_room(64 * KIB, 32 << 20) && !config.has_copy_room(64 * KIB + 1, 0));
        let config = Config { inject_size: 64, rendezvous_threshold: 4 * KIB, ..config };
        assert!(config.has_copy_room(4 * KIB, 0) && !config.has_copy_room(4 * KIB + 1, 0));
        let config = Config { copied_bytes: KIB, ..config };
        assert!(!config.has_copy_room(4 * KIB, 0));
    }
}
