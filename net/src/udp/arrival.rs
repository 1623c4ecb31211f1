//! A socket that reports by which interface datagrams arrive. Programs that diagnose a network use
//! it; endpoints do not pay for the report.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use socket2::Socket;

use super::cmsg::{Cmsg, CmsgBuffer, Decoder};
use super::sock::{open_plain, set_option};

/// A UDP socket whose datagrams come with the interface by which they arrived.
pub struct ArrivalSocket(Socket);

impl ArrivalSocket {
    /// Opens a non-blocking socket at an address. Port 0 stands for any free port.
    ///
    /// # Errors
    /// The error of the system: the address is in use or not of this host, or the kernel does not
    /// report interfaces.
    pub fn open(bind: SocketAddr) -> io::Result<Self> {
        let socket = open_plain(&bind)?;
        let (level, option) = if bind.is_ipv6() {
            (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)
        } else {
            (libc::IPPROTO_IP, libc::IP_PKTINFO)
        };
        set_option(&socket, level, option, 1)?;
        socket.bind(&bind.into())?;
        Ok(Self(socket))
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// The error of sendto(2), such as a missing route.
    pub fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        self.0.send_to(bytes, &to.into()).map(drop)
    }

    /// Receives a datagram. Returns its length, and the kernel's index of the interface by which it
    /// arrived. The part of a datagram that does not fit into `buffer` is discarded.
    ///
    /// # Errors
    /// The error of recvmsg(2); `WouldBlock` if there is no datagram.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, Option<u32>)> {
        let mut control = CmsgBuffer::new();
        let mut piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: a `msghdr` is integers and pointers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr();
        message.msg_controllen = CmsgBuffer::LEN as _;
        // SAFETY: recvmsg(2) writes into the message's one piece, which is `buffer`, and into
        // `control`, each no further than its length; both are borrowed mutably until it returns.
        let received = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, 0) };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        // The type of the field differs between C libraries.
        #[allow(clippy::unnecessary_cast)]
        let length = message.msg_controllen as usize;
        Ok((received, Decoder::new(&control, length).find_map(|cmsg| arrival(&cmsg))))
    }
}

/// Returns the interface in a control message: the first field of `in_pktinfo`, and the one behind
/// the address of `in6_pktinfo` (ip(7), ipv6(7)).
fn arrival(cmsg: &Cmsg<'_>) -> Option<u32> {
    let bytes = match (cmsg.level, cmsg.kind) {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => cmsg.data,
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => cmsg.data.get(16..)?,
        _ => return None,
    };
    Some(u32::from_ne_bytes(*bytes.first_chunk()?))
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use crate::iface;

    #[test]
    fn datagrams_come_with_their_interface() {
        let loopback = iface::list().unwrap().into_iter().find(|iface| iface.loopback).unwrap();
        for bind in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = ArrivalSocket::open(bind.parse().unwrap()) else {
                // A host may have no IPv6.
                assert!(bind.starts_with('['), "{bind}");
                continue;
            };
            let to = super::super::bound_address(&socket.0).unwrap();
            let mut buffer = [0; 4];
            let empty = socket.receive(&mut buffer).unwrap_err();
            assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
            socket.send_to(b"question", to).unwrap();
            assert_eq!(socket.receive(&mut buffer).unwrap(), (4, Some(loopback.index)));
            assert_eq!(&buffer, b"ques");
        }
    }
}
