//! The socket of a path. It only sends, from its own source port.
//!
//! A connected socket caches the route to its peer. An unconnected one looks the route up in every
//! call, which takes about 0.5 us of the 3.5 us that the kernel needs to send a small packet. So a
//! path connects to a peer after several calls in a row for it, and disconnects before it sends to
//! another one. It must disconnect, because the kernel reports ICMP errors to a connected socket
//! only if they are about its peer.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use socket2::Socket;

use super::addr::SockAddr;
use super::sock;
use crate::PortConfig;

/// Number of calls in a row for one peer after which the socket connects to it. Connecting and
/// disconnecting together cost about as much as three or four route lookups.
const IN_A_ROW: u32 = 16;
/// Number of attempts to bind a UDP port. Another process may take a free port before it is bound a second time.
const ATTEMPTS: usize = 8;

/// The socket of a path, which only sends, from its own source port.
pub(super) struct PathSocket {
    socket: Socket,
    port: u16,
    /// Peer to which the last call, or several calls in a row, sent.
    peer: Option<SocketAddr>,
    /// Number of calls in a row that sent to `peer` from the unconnected socket.
    row: u32,
    connected: bool,
    /// The socket may connect, because its address is that of one interface. A connection of a
    /// socket with the unspecified address would fix its address for good.
    may_connect: bool,
}

impl PathSocket {
    /// Opens a socket on `port` of the endpoint's address; 0 means any port.
    ///
    /// # Errors
    /// The error of the system: `AddrInUse`, `AddrNotAvailable`, too few descriptors.
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
        // When the socket disconnects, the kernel releases a port that it chose itself and keeps
        // one that was asked for (`__udp_disconnect`). So a free port is found first and then asked
        // for.
        let port = if port == 0 { sock::find_free_port(local)? } else { port };
        let socket = sock::open_path(config, local, port)?;
        let may_connect = !local.ip().is_unspecified();
        Ok(Self { socket, port, peer: None, row: 0, connected: false, may_connect })
    }

    pub(super) const fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Returns the UDP source port of the path.
    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Prepares for a call that sends to `peer` alone, or to several peers (`None`). Returns
    /// whether the socket is connected to `peer`.
    #[inline]
    pub(super) fn select_peer(&mut self, peer: Option<SocketAddr>) -> bool {
        if self.connected && self.peer == peer {
            return true;
        }
        self.change_peer(peer)
    }

    fn change_peer(&mut self, peer: Option<SocketAddr>) -> bool {
        if self.connected {
            self.disconnect();
        }
        self.row = if self.peer == peer { self.row.saturating_add(1) } else { 0 };
        self.peer = peer;
        if self.row < IN_A_ROW || !self.may_connect {
            return false;
        }
        self.row = 0;
        // If the kernel refuses the connection, the socket sends without one, and every call
        // returns the reason.
        self.connected = peer.is_some_and(|peer| self.socket.connect(&peer.into()).is_ok());
        self.connected
    }

    #[cold]
    fn disconnect(&mut self) {
        let nobody = SockAddr::unspecified();
        // SAFETY: connect(2) reads as many bytes as `SockAddr::LEN`: those of `nobody`, a local variable, whose family
        // is AF_UNSPEC.
        let rc = unsafe {
            libc::connect(self.socket.as_raw_fd(), (&raw const nobody).cast(), SockAddr::LEN)
        };
        // If the kernel refuses to disconnect, only errors of other peers are missed: a packet with
        // an address goes to that address even on a connected socket.
        if rc != 0 {
            log::debug!(
                "the path of port {} cannot disconnect from its peer: {}",
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
                    let connected = path.select_peer(Some(peer));
                    assert_eq!(connected, n == IN_A_ROW);
                    let seen = path.socket.peer_addr().ok().and_then(|addr| addr.as_socket());
                    assert_eq!(seen, connected.then_some(peer));
                }
                assert!(path.select_peer(Some(peer)));
                assert_eq!(
                    sock::bound_address(&path.socket).unwrap(),
                    SocketAddr::new(ip, path.port)
                );
            }
            assert!(!path.select_peer(None));
            assert_eq!(sock::bound_address(&path.socket).unwrap(), SocketAddr::new(ip, path.port));
            // Peers in turn, or several in a call: never.
            for _ in 0..2 * IN_A_ROW {
                assert!(
                    !path.select_peer(Some(peers[0]))
                        && !path.select_peer(Some(peers[1]))
                        && !path.select_peer(None)
                );
            }
        }
    }

    #[test]
    fn a_socket_on_the_unspecified_address_does_not_connect() {
        let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let config = PortConfig { bind: local, ..PortConfig::default() };
        let mut path = PathSocket::open(&config, local, 0).unwrap();
        let peer = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9);
        assert!(!(0..3 * IN_A_ROW).any(|_| path.select_peer(Some(peer))));
    }
}
