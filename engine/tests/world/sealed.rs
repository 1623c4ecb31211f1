//! Encryption of the packets of hosts, as a driver does it.

use std::net::SocketAddr;

use squall_base::Time;
use squall_engine::{PacketMarks, SecretEvent, SharedSecret};
use squall_seal::{ICV_LEN, KeyRing, OpenError, OuterHeader, Pair, SourceId};
use squall_wire::Tss;

use super::{Host, World, introduces};

/// The secrets of a host, and what happened to packets because of them.
#[derive(Default)]
pub struct Keys {
    pub ring: KeyRing,
    /// Packets that were not sent because they could not be encrypted.
    pub unsealable: u64,
    /// Received packets that were dropped.
    pub refused: Vec<OpenError>,
}

impl World {
    /// Makes all hosts encrypt. Their configurations must say so.
    pub fn seal_packets(&mut self) {
        for host in &mut self.hosts {
            host.keys = Some(Keys::default());
        }
    }
}

impl Host {
    /// Encrypts a packet that this host sends. Returns `None` if it must not leave.
    pub(super) fn seal(
        &mut self,
        source: SocketAddr,
        destination: SocketAddr,
        packet: Vec<u8>,
    ) -> Option<Vec<u8>> {
        let Some(keys) = self.keys.as_mut().filter(|_| !introduces(&packet)) else {
            return Some(packet);
        };
        let mut sealed = [&[0; Tss::LEN_SSI], &packet[..], &[0; ICV_LEN]].concat();
        let outer = OuterHeader { source, destination };
        if keys.ring.seal(&outer, &mut sealed).is_err() {
            keys.unsealable += 1;
            return None;
        }
        Some(sealed)
    }

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
                Ok(opened) => self.engine.handle_packet(now, &mut self.memory, src, marks, opened),
                Err(error) => keys.refused.push(error),
            }
        }
        while let Some(event) = self.engine.poll_secret() {
            match event {
                SecretEvent::Shared(SharedSecret { peer, instance, secret, asked }) => {
                    let own = self.engine.shm().instance();
                    keys.ring.install(&Pair {
                        peer,
                        secret,
                        domain: self.engine.job_id(),
                        own: SourceId::new(own, asked),
                        theirs: SourceId::new(instance, !asked),
                        confirmed: !asked,
                    });
                }
                SecretEvent::Confirmed(peer) => keys.ring.confirm(peer),
                SecretEvent::Ended(peer) => keys.ring.remove(peer),
            }
        }
    }
}
