//! The interface that leads to a destination.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::network::nic::Nic;

/// The wildcard address of the same family.
pub(super) fn unspecified(addr: &SocketAddr) -> IpAddr {
    match addr {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// The source address the kernel would use: connecting a UDP socket sends nothing.
fn source_for(destination: &SocketAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind(SocketAddr::new(unspecified(destination), 0)).ok()?;
    let port = if destination.port() == 0 { 9 } else { destination.port() };
    socket.connect(SocketAddr::new(destination.ip(), port)).ok()?;
    socket.local_addr().ok().map(|local| local.ip())
}

/// The interfaces of the destination's family: the one its route leaves by first, loopback only for
/// a destination on this host.
pub(super) fn towards(mut nics: Vec<Nic>, destination: &SocketAddr) -> Vec<Nic> {
    let best = source_for(destination);
    nics.retain(|nic| nic.ip.is_ipv4() == destination.is_ipv4());
    let local = best.is_some_and(|ip| ip.is_loopback() || ip == destination.ip());
    nics.retain(|nic| local || !nic.ip.is_loopback());
    nics.sort_by_key(|nic| (Some(nic.ip) != best, nic.ip.is_loopback()));
    nics
}
