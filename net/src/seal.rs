//! Encryption of packets ([`squall_seal`]). The packets of handshakes stay in the clear, because the
//! secrets follow from them. They carry proofs that their sender has the job key.

use std::net::SocketAddr;

use squall_seal::{ICV_LEN, KeyRing, OVERHEAD, OpenError, OuterHeader};
use squall_wire::{self as wire, Handshake, Packet, PdsType, Tss};

use crate::base::{Batch, Datagram, Time, Train};
use crate::{Burst, Counters, LayeredPort, Port, PortLayer, RecvReport, RxMeta, SendReport};

/// A packet port that encrypts the packets that it sends and decrypts those that it receives.
pub type SealPort<P> = LayeredPort<P, SealLayer>;

/// The [`PortLayer`] of [`SealPort`], which encrypts and decrypts.
pub struct SealLayer {
    keys: KeyRing,
    local: SocketAddr,
    /// DSCP of trimmed packets, if switches trim. A switch that trims a packet also cuts off its authentication tag.
    dscp_trimmed: Option<u8>,
    /// Copies of the packets that are sent. User memory must not be encrypted in place.
    sealed: Batch,
    /// Copies of the packets of a train, which are decrypted in place.
    opened: Vec<u8>,
    /// Memory in which the key ring keeps a copy of a packet while it tries secrets.
    scratch: Vec<u8>,
    counters: Counters,
}

impl<P: Port> SealPort<P> {
    /// Wraps `inner`, which must be bound to a specific IP address, because the tag covers it.
    ///
    /// Packets that arrive with `dscp_trimmed` are dropped. Loss detection repairs their loss.
    ///
    /// # Panics
    /// Panics if the address of `inner` is unspecified.
    pub fn new(inner: P, dscp_trimmed: Option<u8>) -> Self {
        let local = inner.local_addr();
        assert!(!local.ip().is_unspecified(), "the tag covers the address");
        let layer = SealLayer {
            keys: KeyRing::new(),
            local,
            dscp_trimmed,
            sealed: Batch::default(),
            opened: Vec::new(),
            scratch: Vec::new(),
            counters: Counters::default(),
        };
        Self { inner, layer }
    }
}

/// Returns whether a packet belongs to a handshake, which is never encrypted.
fn is_handshake(bytes: &[u8]) -> bool {
    let control = bytes.first().is_some_and(|first| first >> 3 == PdsType::Control.to_u8());
    control
        && match wire::parse(bytes) {
            Ok(Packet::Negotiation { values, .. }) => {
                matches!(Handshake::read(values), Ok(Some(_)))
            }
            _ => false,
        }
}

impl SealLayer {
    /// Encrypts copies of the datagrams of a burst in order, and stops before the first one that
    /// cannot be encrypted. Returns the number of copies.
    fn seal_packets<P: Port>(&mut self, inner: &mut P, burst: Burst<'_>) -> usize {
        self.sealed.clear();
        for packet in burst.packets() {
            if !self.seal_packet(inner, burst, packet) {
                break;
            }
        }
        self.sealed.packets.len()
    }

    fn seal_packet<P: Port>(&mut self, inner: &mut P, burst: Burst<'_>, packet: &Datagram) -> bool {
        let bytes = &mut self.sealed.bytes;
        let start = bytes.len();
        if is_handshake(burst.header(packet)) {
            burst.copy(packet, bytes);
        } else {
            bytes.resize(start + Tss::LEN_SSI, 0);
            burst.copy(packet, bytes);
            bytes.resize(bytes.len() + ICV_LEN, 0);
            let source = SocketAddr::new(self.local.ip(), inner.open_source_port(packet.path));
            let outer = OuterHeader { source, destination: packet.dst };
            if self.keys.seal(&outer, &mut bytes[start..]).is_err() {
                bytes.truncate(start);
                return false;
            }
        }
        let end = bytes.len();
        // A batch is far smaller than 4 GiB, so 32 bits are enough for positions.
        let mut copy = packet.clone();
        copy.len = (end - start) as u32;
        copy.header = start as u32..end as u32;
        copy.payload = 0..0;
        copy.trailer = end as u32..end as u32;
        copy.followers = 0;
        self.sealed.packets.push(copy);
        true
    }

    /// Decrypts the packets of a train and hands them out, as trains again.
    fn open_train(
        &mut self,
        meta: &RxMeta,
        mut train: Train<'_>,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) {
        let Self { keys, local, opened, scratch, counters, .. } = self;
        let outer = OuterHeader { source: meta.src, destination: *local };
        // Packets of a train have one length, but for the last.
        let stride = train.peek().map_or(0, <[u8]>::len);
        opened.clear();
        let (mut first, mut last) = (0, 0);
        loop {
            let packet = train.next();
            let at = opened.len();
            let intact = packet.is_some_and(|packet| {
                if is_handshake(packet) {
                    sink(meta, Train::single(packet));
                    return false;
                }
                opened.extend_from_slice(packet);
                match keys.open(&outer, &mut opened[at..], scratch) {
                    Ok(_) => {
                        counters.rx_opened += 1;
                        return true;
                    }
                    Err(OpenError::BadTag) => counters.rx_bad_tag += 1,
                    Err(OpenError::Replayed) => counters.rx_replayed += 1,
                    Err(OpenError::UnknownSender) => counters.rx_unknown_sender += 1,
                    Err(OpenError::Clear) => counters.rx_clear += 1,
                }
                false
            });
            if intact {
                last = opened.len();
                continue;
            }
            // A packet that was not opened divides the train: those before it are handed out as one
            // train, and those after it as another.
            if last > first {
                let bytes = &opened[first + Tss::LEN_SSI..last - ICV_LEN];
                sink(meta, Train::spaced(bytes, stride - OVERHEAD, stride));
            }
            if packet.is_none() {
                break;
            }
            first = opened.len();
            last = first;
        }
    }
}

impl PortLayer for SealLayer {
    fn send<P: Port>(&mut self, inner: &mut P, now: Time, burst: Burst<'_>) -> SendReport {
        let all = burst.packets().len();
        let mut report = SendReport::default();
        loop {
            let rest = burst.part(report.sent..all);
            let copies = self.seal_packets(inner, rest);
            if copies > 0 {
                let sent = inner.send(now, Burst::from_copies(&self.sealed));
                self.counters.tx_sealed += sent.sent as u64;
                report += sent;
                if sent.sent < copies {
                    return report;
                }
            }
            if report.sent == all {
                return report;
            }
            // Nothing leaves in the clear: a packet that cannot be encrypted is lost.
            self.counters.tx_unsealable += 1;
            report.sent += 1;
            report.failed += 1;
        }
    }

    fn recv<P: Port>(
        &mut self,
        inner: &mut P,
        now: Time,
        budget: usize,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) -> RecvReport {
        inner.recv(now, budget, &mut |meta, train| {
            if self.dscp_trimmed == Some(meta.dscp) {
                self.counters.rx_sealed_trimmed += train.count() as u64;
            } else {
                self.open_train(meta, train, sink);
            }
        })
    }

    fn keys(&mut self) -> Option<&mut KeyRing> {
        Some(&mut self.keys)
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use squall_seal::{Pair, SourceId};

    use super::*;
    use crate::base::{Instance, PairSecret, TrafficClass};
    use crate::burst::tests::{Sample, send};
    use crate::mock::{Mock, received};

    const ADDR: &str = "127.0.0.1:9000";

    /// A port that shares a secret with itself, and receives what it sends.
    fn port(trimmed: Option<u8>) -> SealPort<Mock> {
        let mut port = SealPort::new(Mock::new(ADDR), trimmed);
        let id = SourceId::new(Instance::new(7).unwrap(), true);
        let secret = PairSecret::new([5; 32]);
        let peer = port.local_addr();
        let keys = port.keys().unwrap();
        keys.install(&Pair { peer, secret, domain: 3, own: id, theirs: id, confirmed: true });
        port
    }

    fn sample<'a>(payload: &'a [&'a [u8]]) -> Sample<'a> {
        let class = TrafficClass::Data;
        // A request, which is no handshake.
        Sample {
            dst: ADDR.parse().unwrap(),
            path: 0,
            class,
            header: b"\x10",
            payload,
            trailer: b"",
        }
    }

    #[test]
    fn packets_travel_encrypted_and_arrive_once() {
        let mut port = port(Some(5));
        let sent = send(&mut port, Time::ZERO, &[sample(&[b"user ", b"memory"]), sample(&[])]);
        assert_eq!((sent.sent, sent.failed), (2, 0));
        for (_, bytes) in &port.inner.queue {
            assert_eq!(bytes[0] >> 3, PdsType::Tss.to_u8());
            assert!(!bytes.windows(4).any(|part| part == b"user"));
        }
        assert_eq!(port.inner.queue[0].1.len(), 12 + OVERHEAD);
        let again = port.inner.queue[0].clone();
        assert_eq!(received(&mut port), [&b"\x10user memory"[..], b"\x10"]);
        port.inner.queue.push_back(again.clone());
        port.inner.queue.push_back((again.0, b"\x10clear".to_vec()));
        let mut cut = again.clone();
        (cut.0.dscp, cut.1) = (5, cut.1[..20].to_vec());
        port.inner.queue.push_back(cut);
        assert!(received(&mut port).is_empty());
        let counters = port.counters();
        assert_eq!((counters.tx_sealed, counters.rx_opened), (2, 2));
        let dropped = (counters.rx_replayed, counters.rx_clear, counters.rx_sealed_trimmed);
        assert_eq!(dropped, (1, 1, 1));
    }

    #[test]
    fn a_packet_that_cannot_be_encrypted_is_lost_and_delays_no_other() {
        let mut port = port(None);
        let unknown = Sample { dst: "127.0.0.1:1".parse().unwrap(), ..sample(&[b"secret"]) };
        let sent =
            send(&mut port, Time::ZERO, &[unknown, sample(&[b"a"]), unknown, sample(&[b"b"])]);
        assert_eq!((sent.sent, sent.failed, port.counters().tx_unsealable), (4, 2, 2));
        assert_eq!(received(&mut port), [b"\x10a", b"\x10b"]);
    }

    #[test]
    fn a_full_socket_leaves_the_rest_to_the_caller() {
        let mut port = port(None);
        port.inner.room = 1;
        let samples = [sample(&[b"a"]), sample(&[b"b"])];
        assert_eq!(send(&mut port, Time::ZERO, &samples).sent, 1);
        port.inner.room = 1;
        assert_eq!(send(&mut port, Time::ZERO, &samples[1..]).sent, 1);
        assert_eq!(received(&mut port), [b"\x10a", b"\x10b"]);
    }

    #[test]
    fn the_intact_packets_of_a_train_stay_trains() {
        let mut port = port(None);
        let payload: [&[u8]; 1] = [b"0123"];
        send(&mut port, Time::ZERO, &[sample(&payload); 5]);
        send(&mut port, Time::ZERO, &[sample(&[b"0"])]);
        let mut joined: Vec<u8> = port.inner.queue.iter().flat_map(|(_, b)| b.clone()).collect();
        let meta = port.inner.queue[0].0;
        let segment = port.inner.queue[0].1.len();
        joined[segment * 2 + 20] ^= 1;
        let mut trains = vec![];
        port.layer.open_train(&meta, Train::new(&joined, segment), &mut |_, train| {
            trains.push(train.map(<[u8]>::to_vec).collect::<Vec<_>>());
        });
        let whole = b"\x100123".to_vec();
        let expected = [vec![whole.clone(); 2], vec![whole.clone(), whole, b"\x100".to_vec()]];
        assert_eq!(trains, expected);
        assert_eq!(port.counters().rx_bad_tag, 1);
    }

    #[test]
    fn handshakes_stay_in_the_clear() {
        let mut port = port(None);
        let mut hello = [0; Handshake::LEN];
        let packet = Handshake {
            stage: wire::Stage::Hello,
            version: wire::WIRE_VERSION,
            port: 9,
            reason: wire::Reason::None,
            nonce: 1,
            instance: 2,
            expected: 0,
            cookie: 0,
            job_id: 1,
            capabilities: Handshake::ENCRYPTS,
            proof: [0; 16],
        };
        let len = packet.emit(&mut hello);
        let unknown = "127.0.0.1:1".parse().unwrap();
        let sample = Sample { dst: unknown, header: &hello[..len], ..sample(&[]) };
        assert_eq!(send(&mut port, Time::ZERO, &[sample]).failed, 0);
        assert_eq!(port.inner.queue[0].1, hello[..len]);
        assert_eq!(received(&mut port), [&hello[..len]]);
    }
}
