//! A CRC-32C for each packet. The sender appends it as a trailer; the receiver checks and removes
//! it. Both ends must use it.

use core::net::SocketAddr;

use squall_wire::crc::{self, HeaderCrc};

use crate::base::{Batch, Time, Train};
use crate::{Burst, Counters, LayeredPort, Port, PortLayer, RecvReport, RxMeta, SendReport};

pub use squall_wire::crc::CRC_LEN;

/// A packet port with a CRC-32C checksum behind each packet.
pub type CrcPort<P> = LayeredPort<P, CrcLayer>;

/// The bytes of a packet that its CRC-32C checksum covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrcForm {
    /// The checksum covers the UDP payload only.
    Payload,
    /// The checksum also covers the IP addresses and the UDP header, as Ultra Ethernet has it ([`HeaderCrc`]).
    Headers,
}

impl CrcForm {
    /// Returns a packet without its checksum trailer if the checksum is right.
    fn check_and_strip(self, path: (SocketAddr, SocketAddr), bytes: &[u8]) -> Option<&[u8]> {
        match self {
            Self::Payload => crc::check_and_strip_crc(bytes),
            Self::Headers => HeaderCrc::new(path.0, path.1)?.check_and_strip(bytes),
        }
    }
}

/// The [`PortLayer`] of [`CrcPort`], which adds and checks the checksums.
pub struct CrcLayer {
    form: CrcForm,
    /// DSCP of trimmed packets, if switches trim. They cut off the checksum trailer together with the payload.
    dscp_trimmed: Option<u8>,
    /// Copies of the packets that are sent. The payload is copied before the checksum is computed, because the
    /// application may change it between the computation and the system call.
    signed: Batch,
    errors: u64,
}

impl<P: Port> CrcPort<P> {
    /// Wraps `inner`. The layer accepts packets without a trailer if they arrive with
    /// `dscp_trimmed`.
    pub fn new(inner: P, dscp_trimmed: Option<u8>, form: CrcForm) -> Self {
        let (signed, errors) = (Batch::default(), 0);
        Self { inner, layer: CrcLayer { form, dscp_trimmed, signed, errors } }
    }
}

impl CrcLayer {
    /// Copies the packets of a burst, and appends a checksum trailer to each copy.
    fn append_trailers<P: Port>(&mut self, inner: &mut P, burst: Burst<'_>) {
        let ip = inner.local_addr().ip();
        self.signed.clear();
        for packet in burst.packets() {
            let bytes = &mut self.signed.bytes;
            // A batch is far smaller than 4 GiB, so 32 bits are enough for positions.
            let start = bytes.len();
            burst.copy(packet, bytes);
            let sum = match self.form {
                CrcForm::Payload => crc::trailer(&[&bytes[start..]]),
                CrcForm::Headers => {
                    let source = SocketAddr::new(ip, inner.open_source_port(packet.path));
                    let path = HeaderCrc::new(source, packet.dst);
                    // A packet between addresses of two families cannot be sent, whatever its sum.
                    path.and_then(|path| path.trailer(&[&bytes[start..]])).unwrap_or_default()
                }
            };
            let end = bytes.len() as u32;
            bytes.extend_from_slice(&sum);
            let mut signed = packet.clone();
            signed.len += CRC_LEN as u32;
            signed.header = start as u32..end;
            signed.payload = 0..0;
            signed.trailer = end..end + CRC_LEN as u32;
            signed.followers = 0;
            self.signed.packets.push(signed);
        }
    }
}

impl PortLayer for CrcLayer {
    fn send<P: Port>(&mut self, inner: &mut P, now: Time, burst: Burst<'_>) -> SendReport {
        self.append_trailers(inner, burst);
        inner.send(now, Burst::from_copies(&self.signed))
    }

    fn recv<P: Port>(
        &mut self,
        inner: &mut P,
        now: Time,
        budget: usize,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) -> RecvReport {
        let Self { form, dscp_trimmed, errors, .. } = self;
        let local = inner.local_addr();
        inner.recv_each(now, budget, &mut |meta, bytes| {
            if *dscp_trimmed == Some(meta.dscp) {
                sink(meta, Train::single(bytes));
            } else if let Some(packet) = form.check_and_strip((meta.src, local), bytes) {
                sink(meta, Train::single(packet));
            } else {
                *errors += 1;
            }
        })
    }

    fn counters(&self) -> Counters {
        Counters { crc_errors: self.errors, ..Counters::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::TrafficClass;
    use crate::burst::tests::{Sample, send};
    use crate::mock::{Mock, received};

    #[test]
    fn damaged_packets_are_dropped_and_others_unchanged() {
        let trimmed = 5;
        let mut port = CrcPort::new(Mock::new("127.0.0.1:9"), Some(trimmed), CrcForm::Payload);
        let dst = port.local_addr();
        let class = TrafficClass::Data;
        let payload: &[&[u8]] = &[b"user ", b"memory"];
        let sample = Sample { dst, path: 3, class, header: b"<", payload, trailer: b"" };
        let bare = Sample { payload: &[], ..sample };
        let samples = [sample, sample, bare, sample];
        assert_eq!(send(&mut port, Time::ZERO, &samples).sent, 4);
        assert_eq!(port.inner.queue[0].1.len(), 12 + CRC_LEN);
        port.inner.queue[1].1[5] ^= 1;
        // Trimmed: no trailer, and nothing to say about it.
        port.inner.queue[3].0.dscp = trimmed;
        port.inner.queue[3].1.truncate(4);
        assert_eq!(received(&mut port), [&b"<user memory"[..], b"<", b"<use"]);
        assert_eq!(port.counters().crc_errors, 1);
    }

    #[test]
    fn checksums_of_headers_cover_the_addresses() {
        let mut port = CrcPort::new(Mock::new("127.0.0.1:9"), None, CrcForm::Headers);
        let dst = port.local_addr();
        let class = TrafficClass::Data;
        let payload: &[&[u8]] = &[b"user ", b"memory"];
        let sample = Sample { dst, path: 3, class, header: b"<", payload, trailer: b"" };
        assert_eq!(send(&mut port, Time::ZERO, &[sample, sample]).sent, 2);
        // The packets left from the port of their path. The second one seems to come from elsewhere.
        port.inner.queue[0].0.src.set_port(9 + 3);
        port.inner.queue[1].0.src.set_port(9 + 4);
        assert_eq!(received(&mut port), [&b"<user memory"[..]]);
        assert_eq!(port.counters().crc_errors, 1);
    }
}
