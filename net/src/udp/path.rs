//! A path's own socket: it only sends, from a source port of its own.
//!
//! A socket that is connected to a peer keeps the route to it; one that is not looks the route up for every call
//! (about 0.5 us of the 3.5 that a small packet costs the sending kernel). So a path connects to the peer
//! that it has sent to some calls in a row, and lets go of it before it sends to another, because the
//! kernel gives a connected socket the ICMP errors about its peer alone.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use socket2::Socket;

use super::addr::SockAddr;
use super::sock;
use crate::PortConfig;

/// Calls in a row for one peer after which the socket is connected to it. Connecting and letting go together cost
/// about as much as three or four look-ups.
const IN_A_ROW: u32 = 16;
/// A port that was free may be taken before it is bound a second time.
const ATTEMPTS: usize = 8;

/// See the module's documentation.
pub(super) struct PathSocket {
    socket: Socket,
    port: u16,
    /// The peer of the last call, or of several calls in a row.
    peer: Option<SocketAddr>,
    /// Calls in a row for `peer` that used no connection.
    row: u32,
    connected: bool,
    /// The address may be connected: it is of one interface, or a connection would choose one for good.
    may_connect: bool,
}

impl PathSocket {
    /// A socket on `port` (0: any) of the endpoint's address.
    ///
    /// # Errors
    /// What the system says: `AddrInUse`, `AddrNotAvailable`, no more file descriptors.
    pub(super) fn open(config: &PortConfig, local: SocketAddr, port: u16) -> io::Result<Self> {
        let mut opened = Self::bind(config, local, port);
        for _ in 1..ATTEMPTS {
            match &opened {
                Err(e) if port == 0 && e.raw_os_error() == Some(libc::EADDRINUSE) => {}
                _ => break,
            }
            opened = Self::bind(config, local, port);
        }
        opened
    }

    fn bind(config: &PortConfig, local: SocketAddr, port: u16) -> io::Result<Self> {
        // A port that the kernel chose it takes away when the socket lets go of a peer; one that was asked for
        // stays (`__udp_disconnect`).
        let port = if port == 0 { sock::free_port(local)? } else { port };
        let socket = sock::path(config, local, port)?;
        let may_connect = !local.ip().is_unspecified();
        Ok(Self { socket, port, peer: None, row: 0, connected: false, may_connect })
    }

    pub(super) const fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Its source port.
    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// The next call sends to `peer` alone, or to several peers (`None`). Whether the socket is connected to it.
    #[inline]
    pub(super) fn aim(&mut self, peer: Option<SocketAddr>) -> bool {
        if self.connected && self.peer == peer {
            return true;
        }
        self.change(peer)
    }

    fn change(&mut self, peer: Option<SocketAddr>) -> bool {
        if self.connected {
            self.let_go();
        }
        self.row = if self.peer == peer { self.row.saturating_add(1) } else { 0 };
        self.peer = peer;
        if self.row < IN_A_ROW || !self.may_connect {
            return false;
        }
        self.row = 0;
        // Refused, it sends as before: the kernel tells every call why.
        self.connected = peer.is_some_and(|peer| self.socket.connect(&peer.into()).is_ok());
        self.connected
    }

    #[cold]
    fn let_go(&mut self) {
        let nobody = SockAddr::unspecified();
        // SAFETY: connect(2) reads as many bytes as it is told of: those of `nobody`, a local variable, whose family
        // is AF_UNSPEC.
        let rc = unsafe {
            libc::connect(self.socket.as_raw_fd(), (&raw const nobody).cast(), SockAddr::LEN)
        };
        // Were it refused, the errors of other peers would be missed, and nothing else: a packet with a name
        // goes where the name says.
        if rc != 0 {
            log::debug!(
                "path of port {} stays connected: {}",
                self.port,
                io::Error::last_os_error()
            );
        }
        self.connected = false;
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn a_path_connects_to_a_peer_in_a_row_and_keeps_its_port() {
        for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let local = SocketAddr::new(ip, 0);
            let config = PortConfig { bind: local, ..PortConfig::default() };
            let mut path = PathSocket::open(&config, local, 0).unwrap();
            let peers = [SocketAddr::new(ip, 9), SocketAddr::new(ip, 10)];
            for peer in peers {
                for n in 0..=IN_A_ROW {
                    let connected = path.aim(Some(peer));
                    assert_eq!(connected, n == IN_A_ROW);
                    let seen = path.socket.peer_addr().ok().and_then(|addr| addr.as_socket());
                    assert_eq!(seen, connected.then_some(peer));
                }
                assert!(path.aim(Some(peer)));
                assert_eq!(sock::bound(&path.socket).unwrap(), SocketAddr::new(ip, path.port));
            }
            assert!(!path.aim(None));
            assert_eq!(sock::bound(&path.socket).unwrap(), SocketAddr::new(ip, path.port));
            // Peers in turn, or several in a call: never.
            for _ in 0..2 * IN_A_ROW {
                assert!(!path.aim(Some(peers[0])) && !path.aim(Some(peers[1])) && !path.aim(None));
            }
        }
    }

    #[test]
    fn what_listens_on_every_address_does_not_connect() {
        let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let config = PortConfig { bind: local, ..PortConfig::default() };
        let mut path = PathSocket::open(&config, local, 0).unwrap();
        let peer = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9);
        assert!(!(0..3 * IN_A_ROW).any(|_| path.aim(Some(peer))));
    }
}
