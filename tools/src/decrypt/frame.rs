//! UDP datagrams in captured frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use squall_net::pcap::Checksum;

use super::capture::LinkType;

/// Protocol number of UDP in the IP header.
const UDP: u8 = 17;
/// Bytes of the UDP header.
const UDP_HEADER: usize = 8;

/// Where a captured frame holds a UDP datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UdpDatagram {
    /// IP address and UDP port of the sender.
    pub(super) source: SocketAddr,
    /// IP address and UDP port of the receiver.
    pub(super) destination: SocketAddr,
    /// Positions in the frame of the IP header, the UDP header, and the end of the payload.
    ip: usize,
    udp: usize,
    end: usize,
}

impl UdpDatagram {
    /// Finds the UDP datagram in a frame. Returns `None` if the frame holds something else, or only
    /// a part of a datagram.
    pub(super) fn find(link: LinkType, frame: &[u8]) -> Option<Self> {
        let ip = match link {
            LinkType::Ip => 0,
            LinkType::Ethernet => {
                // VLAN tags stand between the addresses and the type.
                let tags = frame.get(12..)?.chunks(4);
                let tags = tags.take_while(|tag| matches!(tag, [0x81, 0, ..] | [0x88, 0xa8, ..]));
                12 + tags.count() * 4 + 2
            }
            LinkType::Other => return None,
        };
        let packet = frame.get(ip..)?;
        let half = |at: usize| {
            Some(usize::from(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?])))
        };
        let (udp, end, source, destination): (_, _, IpAddr, IpAddr) = match packet.first()? >> 4 {
            4 => {
                let header = usize::from(packet[0] & 15) * 4;
                // Neither an offset nor "more fragments".
                if header < 20 || *packet.get(9)? != UDP || half(6)? & 0x3fff != 0 {
                    return None;
                }
                let addr = |at| Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?).into());
                (header, half(2)?, addr(12)?, addr(16)?)
            }
            6 => {
                if *packet.get(6)? != UDP {
                    return None;
                }
                let addr =
                    |at| Some(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?).into());
                (40, 40 + half(4)?, addr(8)?, addr(24)?)
            }
            _ => return None,
        };
        let len = half(udp + 4)?;
        if len < UDP_HEADER || udp + len != end || end > packet.len() {
            return None;
        }
        // A port has 16 bits.
        let port = |at: usize| half(at).map(|port| port as u16);
        Some(Self {
            source: SocketAddr::new(source, port(udp)?),
            destination: SocketAddr::new(destination, port(udp + 2)?),
            ip,
            udp: ip + udp,
            end: ip + end,
        })
    }

    /// Returns the payload in the frame in which the datagram was found.
    pub(super) fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        &frame[self.udp + UDP_HEADER..self.end]
    }

    /// Returns the frame with another UDP payload, which is shorter than the present one. Lengths
    /// and checksums are those of the new datagram; a UDP checksum that was left out stays so.
    pub(super) fn with_payload(&self, frame: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut new = frame[..self.udp + UDP_HEADER].to_vec();
        new.extend_from_slice(payload);
        let Self { ip, udp, .. } = *self;
        // The former lengths have 16 bits, and these are smaller.
        let len = |from: usize| (new.len() - from) as u16;
        let (udp_len, ip_len) = (len(udp), len(ip));
        let put = |new: &mut [u8], at: usize, value: u16| {
            new[at..at + 2].copy_from_slice(&value.to_be_bytes());
        };
        let v4 = self.source.is_ipv4();
        let addresses = if v4 {
            put(&mut new, ip + 2, ip_len);
            put(&mut new, ip + 10, 0);
            let mut sum = Checksum::default();
            sum.add(&new[ip..udp]);
            put(&mut new, ip + 10, sum.finish());
            ip + 12..ip + 20
        } else {
            put(&mut new, ip + 4, udp_len);
            ip + 8..ip + 40
        };
        put(&mut new, udp + 4, udp_len);
        if v4 && new[udp + 6..udp + 8] == [0, 0] {
            return new;
        }
        put(&mut new, udp + 6, 0);
        // The pseudo header has the addresses, the protocol and the length; then the datagram.
        let mut sum = Checksum::default();
        sum.add(&new[addresses]);
        sum.add(&[0, UDP]);
        sum.add(&udp_len.to_be_bytes());
        sum.add(&new[udp..]);
        // A sum of 0 is sent as all ones, because 0 means that there is none.
        put(
            &mut new,
            udp + 6,
            match sum.finish() {
                0 => u16::MAX,
                sum => sum,
            },
        );
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ones' complement sum over the pseudo header and the datagram.
    fn sum_of(datagram: &UdpDatagram, frame: &[u8]) -> u16 {
        let mut sum = Checksum::default();
        let addresses = if datagram.source.is_ipv4() { 12..20 } else { 8..40 };
        sum.add(&frame[datagram.ip..][addresses]);
        sum.add(&[0, UDP]);
        sum.add(&((datagram.end - datagram.udp) as u16).to_be_bytes());
        sum.add(&frame[datagram.udp..datagram.end]);
        sum.finish()
    }

    fn v4(checksum: u16) -> Vec<u8> {
        let mut frame = vec![
            0x45, 2, 0, 33, 0, 1, 0x40, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x12, 0xb9,
            0x13, 0x88, 0, 13,
        ];
        frame.extend_from_slice(&checksum.to_be_bytes());
        frame.extend_from_slice(b"first");
        frame
    }

    fn v6() -> Vec<u8> {
        let mut frame = vec![0x60, 0, 0, 0, 0, 13, UDP, 64];
        frame.extend_from_slice(&Ipv6Addr::LOCALHOST.octets());
        frame.extend_from_slice(&Ipv6Addr::LOCALHOST.octets());
        frame.extend_from_slice(&[0x12, 0xb9, 0x13, 0x88, 0, 13, 1, 1]);
        frame.extend_from_slice(b"first");
        frame
    }

    fn ethernet(tags: &[u8], packet: &[u8]) -> Vec<u8> {
        // Short frames are padded.
        [&[7; 12], tags, &[8, 0], packet, &[0; 9]].concat()
    }

    #[test]
    fn a_datagram_is_found_and_gets_another_payload() {
        let cases = [
            (LinkType::Ip, v4(0)),
            (LinkType::Ip, v4(1)),
            (LinkType::Ip, v6()),
            (LinkType::Ethernet, ethernet(&[], &v4(1))),
            (LinkType::Ethernet, ethernet(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6], &v6())),
        ];
        for (link, frame) in cases {
            let datagram = UdpDatagram::find(link, &frame).unwrap();
            assert_eq!((datagram.source.port(), datagram.destination.port()), (4793, 5000));
            assert_eq!(datagram.payload(&frame), b"first");
            for payload in [&b""[..], b"1", b"four"] {
                let new = datagram.with_payload(&frame, payload);
                let again = UdpDatagram::find(link, &new).unwrap();
                assert_eq!(again.payload(&new), payload);
                assert_eq!((again.source, again.end), (datagram.source, new.len()));
                assert_eq!(new[..datagram.ip], frame[..datagram.ip]);
                let left_out = frame == v4(0);
                assert_eq!(new[again.udp + 6..again.udp + 8] == [0, 0], left_out);
                assert!(left_out || sum_of(&again, &new) == 0);
                if datagram.source.is_ipv4() {
                    let mut sum = Checksum::default();
                    sum.add(&new[again.ip..again.udp]);
                    assert_eq!(sum.finish(), 0);
                }
            }
        }
    }

    #[test]
    fn everything_else_is_none() {
        let changed = |mut frame: Vec<u8>, at: usize, byte: u8| {
            frame[at] = byte;
            frame
        };
        let others = [
            changed(v4(0), 0, 0x44),
            changed(v4(0), 0, 0x55),
            changed(v4(0), 6, 0x20),
            changed(v4(0), 7, 1),
            changed(v4(0), 9, 6),
            changed(v4(0), 3, 32),
            changed(v4(0), 25, 7),
            changed(v6(), 6, 6),
            changed(v6(), 5, 14),
        ];
        for frame in &others {
            assert_eq!(UdpDatagram::find(LinkType::Ip, frame), None, "{frame:?}");
        }
        for (link, frame) in [
            (LinkType::Ip, v4(0)),
            (LinkType::Ip, v6()),
            (LinkType::Ethernet, ethernet(&[], &v4(0))[..47].to_vec()),
        ] {
            assert!(UdpDatagram::find(link, &frame).is_some());
            assert_eq!(UdpDatagram::find(LinkType::Other, &frame), None);
            for len in 0..frame.len() {
                assert_eq!(UdpDatagram::find(link, &frame[..len]), None);
            }
        }
    }
}
