//! Ethernet frames with a UDP packet over IPv4 or IPv6 (RFC 894, 791, 8200, 768).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ops::Range;

use xdp::packet::csum;

/// Lengths of the headers in bytes. Packets with IPv4 options or IPv6 extension headers take the
/// kernel's path.
pub(super) const ETHERNET: usize = 14;
pub(super) const IPV4: usize = 20;
pub(super) const IPV6: usize = 40;
pub(super) const UDP: usize = 8;
/// Ethernet types (EtherType) of IPv4 and IPv6.
pub(super) const TYPE_IPV4: u16 = 0x0800;
pub(super) const TYPE_IPV6: u16 = 0x86dd;

/// Hop limit of sent packets, the kernel's default.
const HOPS: u8 = 64;
const UDP_NUMBER: u8 = 17;
/// Fragment field of an IPv4 header with Don't Fragment set and offset 0.
const DF: [u8; 2] = [0x40, 0];

/// A hardware (MAC) address of an Ethernet interface.
pub(super) type Mac = [u8; 6];

/// Returns the length in bytes of the headers before a UDP payload, Ethernet included.
pub(super) const fn headers(v6: bool) -> usize {
    ETHERNET + if v6 { IPV6 } else { IPV4 } + UDP
}

/// The sender and the receiver of an Ethernet frame: hardware and socket addresses.
#[derive(Clone, Copy)]
pub(super) struct FrameAddresses {
    /// Hardware addresses of the interface and of the next hop.
    pub(super) from: Mac,
    pub(super) to: Mac,
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
}

/// Writes the headers in front of the UDP payload, which already stands in `frame` and reaches to
/// its end.
///
/// # Panics
/// The two ends have different address families, or the frame is shorter than the headers.
pub(super) fn write_headers(frame: &mut [u8], ends: &FrameAddresses, tos: u8) {
    frame[..6].copy_from_slice(&ends.to);
    frame[6..12].copy_from_slice(&ends.from);
    let (ip, udp) = match (ends.source.ip(), ends.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            frame[12..ETHERNET].copy_from_slice(&TYPE_IPV4.to_be_bytes());
            let (ip, udp) = frame[ETHERNET..].split_at_mut(IPV4);
            let total = (IPV4 + udp.len()) as u16;
            ip.fill(0);
            (ip[0], ip[1]) = (0x45, tos);
            ip[2..4].copy_from_slice(&total.to_be_bytes());
            // The identification stays 0: it is only for fragments (RFC 6864).
            ip[6..8].copy_from_slice(&DF);
            (ip[8], ip[9]) = (HOPS, UDP_NUMBER);
            ip[12..16].copy_from_slice(&source.octets());
            ip[16..20].copy_from_slice(&destination.octets());
            let sum = csum::fold_checksum(csum::partial(ip, 0));
            ip[10..12].copy_from_slice(&sum.to_ne_bytes());
            (ip, udp)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            frame[12..ETHERNET].copy_from_slice(&TYPE_IPV6.to_be_bytes());
            let (ip, udp) = frame[ETHERNET..].split_at_mut(IPV6);
            let len = udp.len() as u16;
            ip[..4].copy_from_slice(&(6 << 28 | u32::from(tos) << 20).to_be_bytes());
            ip[4..6].copy_from_slice(&len.to_be_bytes());
            (ip[6], ip[7]) = (UDP_NUMBER, HOPS);
            ip[8..24].copy_from_slice(&source.octets());
            ip[24..40].copy_from_slice(&destination.octets());
            (ip, udp)
        }
        _ => panic!("an endpoint and its peer have the same address family"),
    };
    let len = udp.len() as u16;
    udp[..2].copy_from_slice(&ends.source.port().to_be_bytes());
    udp[2..4].copy_from_slice(&ends.destination.port().to_be_bytes());
    udp[4..6].copy_from_slice(&len.to_be_bytes());
    udp[6..8].fill(0);
    let sum = match csum::fold_checksum(csum::partial(udp, pseudo_header(ip, len))) {
        // A sum of 0 would mean that there is no checksum (RFC 768).
        0 => u16::MAX,
        sum => sum,
    };
    udp[6..8].copy_from_slice(&sum.to_ne_bytes());
}

/// Returns the sum of the pseudo header of a UDP packet of `len` bytes: both addresses, the
/// protocol and the length.
fn pseudo_header(ip: &[u8], len: u16) -> u32 {
    let addresses = if ip.len() == IPV4 { &ip[12..] } else { &ip[8..] };
    let rest = u32::from(u16::from(UDP_NUMBER).to_be()) + u32::from(len.to_be());
    csum::partial(addresses, rest)
}

/// The UDP packet in an Ethernet frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FrameContents {
    pub(super) source: SocketAddr,
    pub(super) tos: u8,
    /// Position of the UDP payload in the frame, in bytes.
    pub(super) payload: Range<usize>,
}

/// Parses a frame that the XDP program passed, so it is known to be UDP for this endpoint. Returns
/// `None` if a length or checksum is wrong. `scope` is the interface index, for link-local
/// addresses.
///
/// A kernel at the other end of a virtual cable (veth) leaves the UDP checksum to the card, but a
/// veth has no card that computes it. The field then holds the sum of the pseudo header alone. With
/// `virtual_cable` such a packet is accepted.
pub(super) fn parse(frame: &[u8], scope: u32, virtual_cable: bool) -> Option<FrameContents> {
    let v6 = *frame.get(ETHERNET)? >> 4 == 6;
    let (ip_len, all) = if v6 { (IPV6, headers(true)) } else { (IPV4, headers(false)) };
    let ip = frame.get(ETHERNET..ETHERNET + ip_len)?;
    let number = |bytes: &[u8]| u16::from_be_bytes([bytes[0], bytes[1]]);
    let (source, tos, udp_len): (IpAddr, u8, usize) = if v6 {
        let source: [u8; 16] = ip[8..24].try_into().ok()?;
        let tos = (number(&ip[..2]) >> 4) as u8;
        (Ipv6Addr::from(source).into(), tos, number(&ip[4..6]).into())
    } else {
        if csum::fold_checksum(csum::partial(ip, 0)) != 0 {
            return None;
        }
        let source: [u8; 4] = ip[12..16].try_into().ok()?;
        let rest = usize::from(number(&ip[2..4])).checked_sub(IPV4)?;
        (Ipv4Addr::from(source).into(), ip[1], rest)
    };
    // Ethernet pads short frames.
    let udp = frame.get(ETHERNET + ip_len..)?.get(..udp_len)?;
    // Both length fields must agree, or one of them was damaged.
    if udp_len < UDP || usize::from(number(&udp[4..6])) != udp_len {
        return None;
    }
    let stated = u16::from_ne_bytes([udp[6], udp[7]]);
    // A sum of 0 means that there is no checksum. IPv6 forbids that except for protocols that allow
    // it (RFC 8200 section 8.1), as Ultra Ethernet does.
    if stated != 0 {
        let pseudo = pseudo_header(ip, udp_len as u16);
        let left_out = || virtual_cable && stated == !csum::fold_checksum(pseudo);
        if csum::fold_checksum(csum::partial(udp, pseudo)) != 0 && !left_out() {
            return None;
        }
    }
    let port = number(udp);
    let source = match source {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, port, 0, scope).into()
        }
        ip => SocketAddr::new(ip, port),
    };
    Some(FrameContents { source, tos, payload: all..all + udp_len - UDP })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ends(v6: bool) -> FrameAddresses {
        let (source, destination) = if v6 {
            ("[fe80::1:2]:700", "[2001:db8::ffff]:4793")
        } else {
            ("192.0.2.1:700", "198.51.100.255:4793")
        };
        FrameAddresses {
            from: [2, 0, 0, 0, 0, 1],
            to: [2, 0, 0, 0, 0, 2],
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
        }
    }

    fn sealed(v6: bool, tos: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0xaa; headers(v6)];
        frame.extend_from_slice(payload);
        write_headers(&mut frame, &ends(v6), tos);
        frame
    }

    fn source(v6: bool) -> SocketAddr {
        let mut source = ends(v6).source;
        if let SocketAddr::V6(source) = &mut source {
            source.set_scope_id(3);
        }
        source
    }

    #[test]
    fn a_frame_has_the_headers_and_checksums_of_the_standards() {
        // Sums by hand: 0x4500+0x0020+0x4000+0x4011+0xc000+0x0201+0xc633+0x64ff = 2b264, folded b266, and of the UDP
        // packet c000+0201+c633+64ff+0011+000c + 02bc+12b9+000c+6869+2100 = 3898e... folded and inverted.
        let frame = sealed(false, 2, b"hi!\0");
        assert_eq!(frame[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
        assert_eq!(frame[14..24], [0x45, 2, 0, 32, 0, 0, 0x40, 0, 64, 17]);
        let words = |bytes: &[u8]| -> u32 {
            bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum()
        };
        let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
        assert_eq!(fold(fold(words(&frame[14..34]))), 0xffff);
        let udp = words(&frame[26..34]) + 17 + 12 + words(&frame[34..]);
        assert_eq!(fold(fold(udp)), 0xffff);
        assert_eq!(frame[34..40], [700u16.to_be_bytes(), 4793u16.to_be_bytes(), [0, 12]].concat());
    }

    proptest! {
        #[test]
        fn what_is_sealed_can_be_opened_and_what_was_damaged_can_not(
            v6: bool, tos: u8, payload in proptest::collection::vec(any::<u8>(), 0..3000), padding in 0usize..40,
            at: prop::sample::Index, bit in 0u8..8,
        ) {
            let mut frame = sealed(v6, tos, &payload);
            let len = frame.len();
            frame.resize(len + padding, 0);
            let contents = parse(&frame, 3, false);
            let want = FrameContents { source: source(v6), tos, payload: headers(v6)..headers(v6) + payload.len() };
            prop_assert_eq!(contents, Some(want));
            // What no sum covers: the hardware addresses, and of IPv6's header all but addresses and lengths.
            let covered = if v6 { ETHERNET + 8..len } else { ETHERNET + 1..len };
            let at = covered.start + at.index(covered.len());
            frame[at] ^= 1 << bit;
            // Only a sum that says there is none may be wrong.
            let udp = headers(v6) - UDP;
            if frame[udp + 6..udp + 8] != [0, 0] {
                prop_assert_eq!(parse(&frame, 3, false), None, "byte {}", at);
            }
        }

        #[test]
        fn anything_may_come(bytes in proptest::collection::vec(any::<u8>(), 0..120), cable: bool) {
            if let Some(contents) = parse(&bytes, 0, cable) {
                prop_assert!(bytes.get(contents.payload).is_some());
            }
        }
    }

    #[test]
    fn a_packet_without_a_udp_checksum_is_accepted() {
        for v6 in [false, true] {
            let mut frame = sealed(v6, 0, b"of an endpoint that leaves it out");
            let udp = headers(v6) - UDP;
            frame[udp + 6..udp + 8].fill(0);
            assert!(parse(&frame, 0, false).is_some(), "IPv6: {v6}");
        }
    }

    #[test]
    fn a_sum_left_to_a_card_is_taken_over_a_virtual_cable_alone() {
        for v6 in [false, true] {
            let mut frame = sealed(v6, 0, b"of a kernel that has no card");
            let udp = headers(v6) - UDP;
            let len = (frame.len() - udp) as u16;
            let sum = !csum::fold_checksum(pseudo_header(&frame[ETHERNET..udp], len));
            frame[udp + 6..udp + 8].copy_from_slice(&sum.to_ne_bytes());
            assert!(parse(&frame, 0, true).is_some() && parse(&frame, 0, false).is_none());
        }
    }
}
