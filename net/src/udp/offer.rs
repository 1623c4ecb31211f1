//! Asks the kernel whether it takes trains of packets for a device. Programs that diagnose a network
//! use it; an endpoint finds out by its first train, and sends packets one by one if that is refused.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use socket2::Socket;

use super::sock::{open_plain, set_option};

/// Length of a packet of the train, bytes.
const SEGMENT: i32 = 64;
/// The UDP port to which the train is addressed: "discard" (RFC 863).
const DISCARD: u16 = 9;

/// Offers the kernel a train of packets from an address of the interface with this index, and returns
/// whether it takes trains. Before Linux 6.11 it refuses them if the device calculates no checksums. The
/// kernel discards the train after it has checked it, so no packet leaves the host.
///
/// # Errors
/// The error of a socket, by which nothing is known about trains.
pub fn offer_train(from: IpAddr, index: u32) -> io::Result<bool> {
    let socket = open_plain(&SocketAddr::new(from, 0))?;
    let to = match from {
        IpAddr::V4(from) => {
            let to = Ipv4Addr::new(224, 0, 0, 1);
            // The kernel discards packets to a group with a TTL of 0, but only those to a group that
            // the host has joined.
            socket.set_multicast_ttl_v4(0)?;
            socket.set_multicast_loop_v4(false)?;
            socket.set_multicast_if_v4(&from)?;
            socket.join_multicast_v4(&to, &from)?;
            SocketAddr::from((to, DISCARD))
        }
        IpAddr::V6(_) => {
            // The kernel discards packets to groups whose scope is one interface, unless that is
            // loopback (RFC 4291 section 2.7).
            let to = Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0, 1);
            socket.set_multicast_loop_v6(false)?;
            socket.set_multicast_if_v6(index)?;
            SocketAddrV6::new(to, DISCARD, 0, index).into()
        }
    };
    match send_train(&socket, to) {
        Ok(()) => Ok(true),
        // The error for a device that calculates no checksums (udp_send_skb).
        Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sends a train of two packets.
fn send_train(socket: &Socket, to: SocketAddr) -> io::Result<()> {
    set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, SEGMENT)?;
    socket.send_to(&[0; 2 * SEGMENT as usize], &to.into()).map(drop)
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use crate::iface;

    #[test]
    fn loopback_takes_trains() {
        // Loopback has no route to groups of IPv6.
        let is_fit = |iface: &iface::Iface| iface.loopback && iface.addr.is_ipv4();
        let lo = iface::list().unwrap().into_iter().find(is_fit).unwrap();
        assert!(offer_train(lo.addr, lo.index).unwrap());
    }

    #[test]
    fn a_refusal_is_reported() {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, DISCARD));
        let socket = open_plain(&to).unwrap();
        // Linux refuses (EINVAL) to segment for a socket that leaves the UDP checksum out.
        set_option(&socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
        let refused = send_train(&socket, to).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    }
}
