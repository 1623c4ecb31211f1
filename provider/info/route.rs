//! Lookup of the local address and interface for packets to a destination.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::network::nic::Nic;

/// Returns the wildcard address of the address family of `addr`.
pub(super) fn unspecified(addr: &SocketAddr) -> IpAddr {
    match addr {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// Returns the source address that the kernel would use for a destination, by connecting a UDP socket, which sends
/// nothing.
fn source_for(destination: &SocketAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind(SocketAddr::new(unspecified(destination), 0)).ok()?;
    let port = if destination.port() == 0 { 9 } else { destination.port() };
    socket.connect(SocketAddr::new(destination.ip(), port)).ok()?;
    socket.local_addr().ok().map(|local| local.ip())
}

/// Returns the interfaces of the destination's address family, first the one by which its route leaves; loopback only
/// for a destination on this host.
pub(super) fn towards(mut nics: Vec<Nic>, destination: &SocketAddr) -> Vec<Nic> {
    let best = source_for(destination);
    nics.retain(|nic| nic.ip.is_ipv4() == destination.is_ipv4());
    let local = best.is_some_and(|ip| ip.is_loopback() || ip == destination.ip());
    nics.retain(|nic| local || !nic.ip.is_loopback());
    nics.sort_by_key(|nic| (Some(nic.ip) != best, nic.ip.is_loopback()));
    nics
}
