//! The error queue of a socket (`IP_RECVERR`, ip(7); `IPV6_RECVERR`, ipv6(7)): ICMP messages and
//! local errors as typed values.

use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::addr::SockAddr;
use super::cmsg::{CmsgBuffer, Decoder};
use crate::{NetError, UnreachableReason};

/// Number of errors that are kept between two calls of `take_errors`.
const KEPT: usize = 64;

/// Errors of the network that were read from a socket and not yet taken by the caller.
#[derive(Default)]
pub(super) struct ErrorQueue {
    pending: Vec<NetError>,
    /// Number of errors that were read since the socket was opened.
    pub(super) seen: u64,
}

impl ErrorQueue {
    /// Keeps an error, unless an equal one is kept already. A closed port answers every packet with
    /// an ICMP message, and one report of it is enough.
    pub(super) fn push(&mut self, error: NetError) {
        self.seen += 1;
        if self.pending.len() < KEPT && !self.pending.contains(&error) {
            self.pending.push(error);
        }
    }

    /// Keeps an error for a packet to `peer` that was too long. If the kernel's own entry was read
    /// before, it has the MTU. For IPv4 that entry lacks the port, because an unconnected socket
    /// has no port to quote, so this function adds it.
    pub(super) fn push_too_big(&mut self, peer: SocketAddr) {
        let mut known = None;
        self.pending.retain(|e| match *e {
            NetError::TooBig { peer: p, mtu }
                if p.ip() == peer.ip() && (p.port() == 0 || p.port() == peer.port()) =>
            {
                known = Some(mtu);
                false
            }
            _ => true,
        });
        if known.is_some() {
            // The entry was counted when it was read from the queue.
            self.seen -= 1;
        }
        self.push(NetError::TooBig { peer, mtu: known.unwrap_or(0) });
    }

    pub(super) fn take(&mut self, into: &mut Vec<NetError>) {
        into.append(&mut self.pending);
    }

    /// Reads the socket's error queue until it is empty and returns the number of entries. One call
    /// reads at most 256, so that a flood of ICMP messages cannot keep the thread here.
    pub(super) fn drain(&mut self, socket: BorrowedFd<'_>) -> usize {
        for n in 0..256 {
            let mut name = SockAddr::unspecified();
            let mut control = CmsgBuffer::new();
            // SAFETY: a `msghdr` is integers and pointers, for which zero is a value.
            let mut msg: libc::msghdr = unsafe { mem::zeroed() };
            msg.msg_name = (&raw mut name).cast();
            msg.msg_namelen = SockAddr::LEN;
            msg.msg_control = control.as_mut_ptr();
            msg.msg_controllen = CmsgBuffer::LEN as _;
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            // SAFETY: the kernel writes to `msg`, and at most the lengths given to `name` and `control`, all
            // local variables; there is no iovec, for we do not want the returned packet.
            if unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut msg, flags) } < 0 {
                // An error means that the queue is empty (EAGAIN) or cannot be read.
                return n;
            }
            #[allow(clippy::unnecessary_cast)]
            let len = msg.msg_controllen as usize;
            if let Some(error) = parse(&name, &control, len) {
                self.push(error);
            }
        }
        256
    }
}

/// Finds the extended error among the control messages and converts it.
fn parse(name: &SockAddr, control: &CmsgBuffer, len: usize) -> Option<NetError> {
    let peer = name.decode()?;
    let cmsg = Decoder::new(control, len).find(|c| {
        (c.level, c.kind) == (libc::IPPROTO_IP, libc::IP_RECVERR)
            || (c.level, c.kind) == (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
    })?;
    let size = mem::size_of::<libc::sock_extended_err>();
    if cmsg.data.len() < size {
        return None;
    }
    // SAFETY: the slice was just seen to be no shorter than a `sock_extended_err`, which is plain
    // integers, so that any bytes are a value of it; it is read unaligned.
    let error = unsafe { cmsg.data.as_ptr().cast::<libc::sock_extended_err>().read_unaligned() };
    // The offender (`SO_EE_OFFENDER`) is a socket address behind the extended error.
    let mut offender = SockAddr::unspecified();
    let rest = &cmsg.data[size..];
    let n = rest.len().min(SockAddr::LEN as usize);
    // SAFETY: `n` is at most the length of `rest` and of the union, a local variable of its own of plain
    // integers, for which any bytes are a value.
    unsafe { (&raw mut offender).cast::<u8>().copy_from_nonoverlapping(rest.as_ptr(), n) };
    let offender = offender.decode().map(|a| a.ip());
    Some(classify(peer, &error, offender))
}

fn classify(
    peer: SocketAddr,
    error: &libc::sock_extended_err,
    offender: Option<IpAddr>,
) -> NetError {
    let (kind, code) = (error.ee_type, error.ee_code);
    let errno = i32::try_from(error.ee_errno).unwrap_or(libc::EIO);
    if errno == libc::EMSGSIZE {
        return NetError::TooBig { peer, mtu: error.ee_info };
    }
    let kind = match error.ee_origin {
        // Destination unreachable and time exceeded are of RFC 792; codes 9 to 13 of RFC 1812
        // section 5.2.7.1.
        libc::SO_EE_ORIGIN_ICMP => match (kind, code) {
            (3, 0 | 6 | 11) => UnreachableReason::Network,
            (3, 1 | 5 | 7 | 8 | 12) => UnreachableReason::Host,
            (3, 3) => UnreachableReason::Port,
            (3, 9 | 10 | 13..=15) => UnreachableReason::Prohibited,
            (11, _) => UnreachableReason::TimeExceeded,
            _ => UnreachableReason::Other { kind, code },
        },
        // RFC 4443, sections 3.1 and 3.3.
        libc::SO_EE_ORIGIN_ICMP6 => match (kind, code) {
            (1, 0) => UnreachableReason::Network,
            (1, 1 | 5 | 6) => UnreachableReason::Prohibited,
            (1, 2 | 3) => UnreachableReason::Host,
            (1, 4) => UnreachableReason::Port,
            (3, _) => UnreachableReason::TimeExceeded,
            _ => UnreachableReason::Other { kind, code },
        },
        _ => {
            return match errno {
                libc::EHOSTUNREACH => {
                    NetError::Unreachable { peer, kind: UnreachableReason::Host, offender: None }
                }
                libc::ENETUNREACH => {
                    NetError::Unreachable { peer, kind: UnreachableReason::Network, offender: None }
                }
                _ => NetError::Local { peer, errno },
            };
        }
    };
    NetError::Unreachable { peer, kind, offender }
}

/// Converts the error number of a system call for one packet into an error of the packet's peer.
pub(super) fn from_errno(peer: SocketAddr, errno: i32) -> NetError {
    match errno {
        libc::EHOSTUNREACH => {
            NetError::Unreachable { peer, kind: UnreachableReason::Host, offender: None }
        }
        libc::ENETUNREACH => {
            NetError::Unreachable { peer, kind: UnreachableReason::Network, offender: None }
        }
        libc::ECONNREFUSED => {
            NetError::Unreachable { peer, kind: UnreachableReason::Port, offender: None }
        }
        _ => NetError::Local { peer, errno },
    }
}

/// Returns whether the error of a system call may be the ICMP error of an *earlier* packet. The
/// kernel reports such an error once, with the next call of any kind.
pub(super) const fn may_be_stale(errno: i32) -> bool {
    matches!(
        errno,
        libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::EPROTO
            | libc::ENOPROTOOPT
            | libc::EACCES
            | libc::EOPNOTSUPP
            | libc::ENONET
            | libc::EMSGSIZE
    )
}

#[cfg(test)]
mod tests {
    use super::super::cmsg::Encoder;
    use super::*;

    /// Returns the control message of an ICMP error as the kernel writes it: a `sock_extended_err`, then the address of its
    /// sender as a `sockaddr_in`.
    fn extended() -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&libc::ECONNREFUSED.to_ne_bytes());
        bytes[4..7].copy_from_slice(&[libc::SO_EE_ORIGIN_ICMP, 3, 3]);
        bytes[16..18].copy_from_slice(&(libc::AF_INET as libc::sa_family_t).to_ne_bytes());
        bytes[20..24].copy_from_slice(&[10, 0, 0, 1]);
        bytes
    }

    #[test]
    fn an_error_is_read_whole_or_not_at_all() {
        let peer: SocketAddr = "10.0.0.9:4793".parse().expect("literal");
        let (name, _) = SockAddr::encode(&peer);
        let mut control = CmsgBuffer::new();
        let mut encoder = Encoder::new(&mut control);
        encoder.push(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 3u32.to_ne_bytes());
        encoder.push(libc::IPPROTO_IP, libc::IP_RECVERR, extended());
        let len = encoder.len();
        let offender = Some(IpAddr::from([10, 0, 0, 1]));
        let whole = NetError::Unreachable { peer, kind: UnreachableReason::Port, offender };
        assert_eq!(parse(&name, &control, len), Some(whole));
        // Cut anywhere: never what was not there.
        for cut in 0..len {
            match parse(&name, &control, cut) {
                None => {}
                Some(NetError::Unreachable {
                    peer: who, kind: UnreachableReason::Port, ..
                }) => {
                    assert_eq!(who, peer);
                }
                Some(other) => panic!("{other:?} from {cut} of {len} bytes"),
            }
        }
        assert_eq!(parse(&SockAddr::unspecified(), &control, len), None, "about nobody");
    }
}
