//! CRC-32C (polynomial 0x1EDC6F41, reflected, initial and final complement) and the trailer that
//! holds it: the last four bytes of the UDP payload, most significant first.
//!
//! There are two forms. Endpoints of this project compute the sum over the UDP payload alone
//! ([`trailer`], [`check_and_strip_crc`]), which survives a NAT. The reference provider also sums
//! what the network delivers by: the IP addresses and the UDP header ([`HeaderCrc`]).
//!
//! The crate `crc32c` uses the CRC instruction of the CPU where there is one, and a table elsewhere.

use core::net::{IpAddr, SocketAddr};

/// Length of the CRC trailer in bytes.
pub const CRC_LEN: usize = 4;

/// Returns the CRC-32C of `bytes`.
#[inline]
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    update(0, bytes)
}

/// Extends `crc`, the CRC-32C of earlier bytes, by `bytes`, for a packet that lies in pieces. The
/// CRC-32C of no bytes is 0.
#[inline]
#[must_use]
pub fn update(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// Returns the CRC trailer of a packet that consists of `pieces`.
#[inline]
#[must_use]
pub fn trailer(pieces: &[&[u8]]) -> [u8; CRC_LEN] {
    pieces.iter().fold(0, |crc, piece| update(crc, piece)).to_be_bytes()
}

/// Returns the packet without its CRC trailer; `None` when the trailer is missing or wrong.
#[inline]
#[must_use]
pub fn check_and_strip_crc(bytes: &[u8]) -> Option<&[u8]> {
    let (packet, trailer) = bytes.split_last_chunk::<CRC_LEN>()?;
    (crc32c(packet) == u32::from_be_bytes(*trailer)).then_some(packet)
}

/// The part of the reference provider's CRC that the packets of one path share: the sum of the IP
/// source address, the IP destination address and the two UDP ports.
///
/// The sum goes on with the rest of the UDP header, whose checksum counts as 0 and whose length
/// includes the trailer, and with the UDP payload. Addresses and ports must be those of the packet
/// on the wire, so an endpoint needs its own address and the source port of each path, and a NAT
/// breaks every packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeaderCrc(u32);

impl HeaderCrc {
    /// Length of a UDP header in bytes.
    const UDP_HEADER: usize = 8;

    /// Returns the sum for packets from `source` to `destination`. IPv4 addresses mapped into IPv6
    /// count as IPv4, as which the packet travels. Returns `None` if one address is IPv4 and the
    /// other IPv6, or if one of them is unspecified (a wildcard).
    #[must_use]
    pub fn new(source: SocketAddr, destination: SocketAddr) -> Option<Self> {
        let addresses = [source, destination].map(|end| end.ip().to_canonical());
        if addresses.iter().any(IpAddr::is_unspecified) {
            return None;
        }
        let sum = match addresses {
            [IpAddr::V4(from), IpAddr::V4(to)] => update(crc32c(&from.octets()), &to.octets()),
            [IpAddr::V6(from), IpAddr::V6(to)] => update(crc32c(&from.octets()), &to.octets()),
            _ => return None,
        };
        let sum = update(sum, &source.port().to_be_bytes());
        Some(Self(update(sum, &destination.port().to_be_bytes())))
    }

    /// Returns the CRC trailer of a packet that consists of `pieces`; `None` if they do not fit
    /// into a UDP datagram.
    #[must_use]
    pub fn trailer(self, pieces: &[&[u8]]) -> Option<[u8; CRC_LEN]> {
        let payload: usize = pieces.iter().map(|piece| piece.len()).sum();
        let length = u16::try_from(Self::UDP_HEADER + payload + CRC_LEN).ok()?;
        let [high, low] = length.to_be_bytes();
        let sum = update(self.0, &[high, low, 0, 0]);
        Some(pieces.iter().fold(sum, |crc, piece| update(crc, piece)).to_be_bytes())
    }

    /// Returns the packet without its CRC trailer; `None` when the trailer is missing or wrong.
    #[must_use]
    pub fn check_and_strip(self, bytes: &[u8]) -> Option<&[u8]> {
        let (packet, trailer) = bytes.split_last_chunk::<CRC_LEN>()?;
        (self.trailer(&[packet])? == *trailer).then_some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Divides by the polynomial one bit at a time, as the definition does.
    fn bitwise(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(u32::MAX, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 }
            })
        })
    }

    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(bitwise(b"123456789"), 0xE306_9283);
        assert_eq!(trailer(&[b"1234", b"", b"56789"]), [0xE3, 0x06, 0x92, 0x83]);
    }

    #[test]
    fn the_sums_of_rfc_3720() {
        let up: Vec<u8> = (0..32).collect();
        let down: Vec<u8> = (0..32).rev().collect();
        let sums = [&[0; 32][..], &[0xFF; 32], &up, &down].map(|bytes| trailer(&[bytes]));
        // The RFC prints the bytes as iSCSI sends them, least significant first.
        let printed: [u32; 4] = [0xAA36_918A, 0x43AB_A862, 0x4E79_DD46, 0x5CDB_3F11];
        assert_eq!(sums, printed.map(u32::to_le_bytes));
    }

    #[test]
    fn a_header_sum_covers_addresses_ports_and_length() {
        let end = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let (from, to) = (end("[fd00::1]:50000"), end("[fd00::2]:4793"));
        let path = HeaderCrc::new(from, to).expect("a path");
        let mut covered = Vec::new();
        for address in [from, to] {
            let IpAddr::V6(address) = address.ip() else { panic!("{address}") };
            covered.extend(address.octets());
        }
        covered.extend([0xC3, 0x50, 0x12, 0xB9, 0, 8 + 5 + 4, 0, 0]);
        covered.extend(b"bytes");
        let sum = trailer(&[&covered]);
        assert_eq!(path.trailer(&[b"by", b"tes"]), Some(sum));
        let packet = [&b"bytes"[..], &sum].concat();
        assert_eq!(path.check_and_strip(&packet), Some(&b"bytes"[..]));
        assert_eq!(path.check_and_strip(&packet[..3]), None);
        for (from, to) in [
            (end("[fd00::3]:50000"), to),
            (from, end("[fd00::3]:4793")),
            (end("[fd00::1]:50001"), to),
            (from, end("[fd00::2]:4794")),
        ] {
            let other = HeaderCrc::new(from, to).expect("a path");
            assert_eq!(other.check_and_strip(&packet), None, "{from} {to}");
        }
        assert_eq!(path.trailer(&[&[0; 65_535 - 12]]).map(|sum| sum.len()), Some(4));
        assert_eq!(path.trailer(&[&[0; 65_535 - 11]]), None);
    }

    #[test]
    fn a_header_sum_takes_two_addresses_of_one_family() {
        let path = |from: &str, to: &str| {
            HeaderCrc::new(from.parse().expect("an address"), to.parse().expect("an address"))
        };
        let plain = path("10.0.0.1:1", "10.0.0.2:2");
        assert!(plain.is_some());
        assert_eq!(path("[::ffff:10.0.0.1]:1", "10.0.0.2:2"), plain);
        assert_eq!(path("10.0.0.1:1", "[fd00::2]:2"), None);
        assert_eq!(path("0.0.0.0:1", "10.0.0.2:2"), None);
        assert_eq!(path("[fd00::1]:1", "[::]:2"), None);
    }

    #[test]
    fn the_sum_follows_its_definition_at_every_length_and_split() {
        let bytes: Vec<u8> = (0..2000u32).map(|i| ((i * i) >> 3) as u8).collect();
        for len in (0..64).chain([255, 256, 257, 1023, 1024, 1500, 2000]) {
            let whole = crc32c(&bytes[..len]);
            assert_eq!(bitwise(&bytes[..len]), whole, "length {len}");
            for at in [0, 1, len / 3, len / 2, len] {
                let at = at.min(len);
                assert_eq!(update(crc32c(&bytes[..at]), &bytes[at..len]), whole, "{at} of {len}");
            }
        }
    }

    #[test]
    fn a_flipped_bit_or_a_missing_trailer_is_refused() {
        let mut packet = b"a packet".to_vec();
        packet.extend(trailer(&[b"a packet"]));
        assert_eq!(check_and_strip_crc(&packet), Some(&b"a packet"[..]));
        for bit in 0..packet.len() * 8 {
            packet[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(check_and_strip_crc(&packet), None, "bit {bit}");
            packet[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(check_and_strip_crc(&packet[..3]), None);
        assert_eq!(check_and_strip_crc(&[]), None);
    }
}
