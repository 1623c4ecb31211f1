//! Encryption of the packets of hosts, as a driver does it, and an audit of all encrypted packets.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use squall_base::Time;
use squall_engine::{PacketMarks, SecretEvent, SharedSecret};
use squall_seal::{ICV_LEN, KeyRing, OpenError, OuterHeader, Pair};
use squall_wire::Tss;

use super::{Host, Seen, World, introduces};

/// Bytes at the beginning of a keystream by which it is recognised. Every delivery packet is at
/// least as long.
const KEYSTREAM: usize = 8;

/// The secrets of a host, and what happened to packets because of them.
#[derive(Default)]
pub struct Keys {
    pub ring: KeyRing,
    /// Packets that were not sent because they could not be encrypted.
    pub unsealable: u64,
    /// Received packets that were dropped.
    pub refused: Vec<OpenError>,
    /// All secrets that the host has derived.
    pub shared: Vec<SharedSecret>,
    /// Packets that were decrypted since the last audit.
    opened: Vec<Opened>,
}

/// The tag of an encrypted packet, which identifies it.
type Tag = [u8; ICV_LEN];

/// A packet that a host has decrypted.
struct Opened {
    tag: Tag,
    outer: OuterHeader,
    packet: Vec<u8>,
}

/// A packet that a host has encrypted.
struct Sealed {
    outer: OuterHeader,
    packet: Vec<u8>,
    opened: bool,
}

/// A record of all encrypted packets. No two packets share a keystream, that is a key and a nonce,
/// and hosts decrypt what hosts encrypted for them, each packet once.
#[derive(Default)]
pub struct Audit {
    keystreams: HashSet<[u8; KEYSTREAM]>,
    sealed: HashMap<Tag, Sealed>,
    /// The packets before encryption, for attackers who know more than real ones.
    pub plain: Option<Vec<Seen>>,
}

impl Audit {
    /// Records a packet that a host sends.
    ///
    /// # Panics
    /// Panics if the packet shares its keystream with an earlier one.
    fn record_sealed(&mut self, outer: OuterHeader, packet: Vec<u8>, sealed: &[u8]) {
        // AES-GCM adds the keystream to the packet (XOR). It depends on key and nonce alone.
        let mut keystream = [0; KEYSTREAM];
        let ciphertext = &sealed[Tss::LEN_SSI..];
        for (byte, (plain, cipher)) in keystream.iter_mut().zip(packet.iter().zip(ciphertext)) {
            *byte = plain ^ cipher;
        }
        assert!(self.keystreams.insert(keystream), "a nonce is used for two packets");
        if let Some(plain) = &mut self.plain {
            let (src, dst) = (outer.source, outer.destination);
            plain.push(Seen { src, dst, bytes: packet.clone() });
        }
        self.sealed.insert(tag_of(sealed), Sealed { outer, packet, opened: false });
    }

    /// Checks a packet that a host has decrypted.
    ///
    /// # Panics
    /// Panics if no host has encrypted the packet for this host, or if it was decrypted before.
    fn check_opened(&mut self, opened: &Opened) {
        let sealed = self.sealed.get_mut(&opened.tag).expect("a host has encrypted the packet");
        assert_eq!(sealed.outer, opened.outer, "the packet came from elsewhere");
        assert!(sealed.packet == opened.packet, "the packet was changed");
        assert!(!sealed.opened, "a packet was decrypted twice");
        sealed.opened = true;
    }
}

/// Returns the tag at the end of an encrypted packet.
fn tag_of(sealed: &[u8]) -> Tag {
    *sealed.last_chunk().expect("a sealed packet has a tag")
}

impl World {
    /// Makes all hosts encrypt. Their configurations must say so.
    pub fn seal_packets(&mut self) {
        for host in &mut self.hosts {
            host.keys = Some(Keys::default());
        }
    }

    /// Encrypts a packet that host `n` sends. Returns `None` if the packet must not leave.
    pub(super) fn seal(
        &mut self,
        n: usize,
        (source, destination): (SocketAddr, SocketAddr),
        packet: Vec<u8>,
    ) -> Option<Vec<u8>> {
        let Some(keys) = self.hosts[n].keys.as_mut().filter(|_| !introduces(&packet)) else {
            return Some(packet);
        };
        let mut sealed = [&[0; Tss::LEN_SSI], &packet[..], &[0; ICV_LEN]].concat();
        let outer = OuterHeader { source, destination };
        if keys.ring.seal(&outer, &mut sealed).is_err() {
            keys.unsealable += 1;
            return None;
        }
        self.audit.record_sealed(outer, packet, &sealed);
        Some(sealed)
    }

    /// Checks the packets that hosts have decrypted since the last call.
    pub(super) fn audit_packets(&mut self) {
        for host in &mut self.hosts {
            let opened = host.keys.iter_mut().flat_map(|keys| keys.opened.drain(..));
            opened.for_each(|opened| self.audit.check_opened(&opened));
        }
    }
}

impl Host {
    /// Decrypts packets of equal length that arrived, and hands them to the engine.
    pub(super) fn receive(
        &mut self,
        now: Time,
        src: SocketAddr,
        marks: PacketMarks,
        (bytes, segment): (&[u8], usize),
    ) {
        let train = squall_base::Train::new(bytes, segment);
        let Some(keys) = &mut self.keys else {
            return self.engine.handle_train(now, &mut self.memory, src, marks, train);
        };
        let outer = OuterHeader { source: src, destination: self.addr };
        for packet in train {
            let mut packet = packet.to_vec();
            if introduces(&packet) {
                self.engine.handle_packet(now, &mut self.memory, src, marks, &packet);
                continue;
            }
            // The tag of a trimmed packet is gone.
            if marks.trimmed {
                continue;
            }
            match keys.ring.open(&outer, &mut packet, &mut Vec::new()) {
                Ok(opened) => {
                    self.engine.handle_packet(now, &mut self.memory, src, marks, opened);
                    let opened = opened.to_vec();
                    keys.opened.push(Opened { tag: tag_of(&packet), outer, packet: opened });
                }
                Err(error) => keys.refused.push(error),
            }
        }
        while let Some(event) = self.engine.poll_secret() {
            match event {
                SecretEvent::Shared(shared) => {
                    keys.shared.push(shared.clone());
                    let SharedSecret { peer, instance, secret, asked } = shared;
                    let own = self.engine.shm().instance();
                    let (domain, peer) = (self.engine.job_id(), (peer, instance));
                    keys.ring.install(&Pair::from_handshake(domain, own, peer, secret, asked));
                }
                SecretEvent::Confirmed(peer) => keys.ring.confirm(peer),
                SecretEvent::Ended(peer) => keys.ring.remove(peer),
            }
        }
    }
}
