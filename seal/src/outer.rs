//! The outer headers that the tag of a sealed packet covers.

use core::net::{IpAddr, SocketAddr};

use crate::wire::Tss;

/// Longest authenticated data: two IPv6 addresses, the UDP header, and the longest TSS header.
const LONGEST: usize = 32 + 8 + Tss::LEN_SSI;

/// The IP addresses and UDP ports of a packet on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OuterHeader {
    /// IP address of the sender, and the UDP source port, which is the entropy of the path.
    pub source: SocketAddr,
    /// IP address and UDP port of the packet's receiver.
    pub destination: SocketAddr,
}

/// The bytes of a packet that its tag authenticates but that are not encrypted.
pub(crate) struct Authenticated {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Authenticated {
    /// Returns the authenticated bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn push_ip(&mut self, ip: IpAddr) {
        match ip {
            IpAddr::V4(ip) => self.push(&ip.octets()),
            IpAddr::V6(ip) => self.push(&ip.octets()),
        }
    }
}

impl OuterHeader {
    /// Returns the authenticated data of a packet with the TSS header `header` and `payload` bytes
    /// of UDP payload. The UDP checksum counts as 0, because network devices compute it later.
    pub(crate) fn authenticated(&self, header: &[u8], payload: usize) -> Authenticated {
        let mut data = Authenticated { bytes: [0; LONGEST], len: 0 };
        data.push_ip(self.source.ip());
        data.push_ip(self.destination.ip());
        data.push(&self.source.port().to_be_bytes());
        data.push(&self.destination.port().to_be_bytes());
        // A UDP datagram has at most 65,535 bytes.
        data.push(&((payload + 8) as u16).to_be_bytes());
        data.push(&[0, 0]);
        data.push(header);
        data
    }
}
