//! Conversion between `SocketAddr` and the kernel's socket addresses.

use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// An IPv4 or IPv6 socket address in the kernel's layout.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union SockAddr {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl SockAddr {
    /// Size in bytes of the socket address, enough for IPv4 and IPv6.
    pub(super) const LEN: libc::socklen_t = mem::size_of::<Self>() as libc::socklen_t;

    /// Returns an address of zeros, which has the family `AF_UNSPEC`.
    pub(super) const fn unspecified() -> Self {
        // SAFETY: both variants are plain integers, for which zero is a value; this makes all 28 bytes
        // initialised, and they stay so, because whole variants are assigned or bytes copied in.
        unsafe { mem::zeroed() }
    }

    /// Encodes a socket address for the kernel. The second value is its length.
    pub(super) fn encode(addr: &SocketAddr) -> (Self, libc::socklen_t) {
        let mut raw = Self::unspecified();
        match addr {
            SocketAddr::V4(a) => {
                raw.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: a.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*a.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                (raw, mem::size_of::<libc::sockaddr_in>() as libc::socklen_t)
            }
            SocketAddr::V6(a) => {
                raw.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: a.port().to_be(),
                    sin6_flowinfo: a.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: a.ip().octets() },
                    sin6_scope_id: a.scope_id(),
                };
                (raw, mem::size_of::<libc::sockaddr_in6>() as libc::socklen_t)
            }
        }
    }

    /// Decodes a socket address of the kernel. Returns `None` for a family other than IPv4 and IPv6.
    pub(super) fn decode(&self) -> Option<SocketAddr> {
        // SAFETY: the union is repr(C), so that both variants begin with the family, and its bytes are all
        // initialised (`unspecified`, then written by us or the kernel).
        let family = i32::from(unsafe { self.v4.sin_family });
        match family {
            libc::AF_INET => {
                // SAFETY: the variant is 16 plain integers' bytes of the union, all initialised
                // (`unspecified`); any bytes are a value of it, whatever wrote them.
                let a = unsafe { self.v4 };
                let ip = Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr));
                Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(a.sin_port))))
            }
            libc::AF_INET6 => {
                // SAFETY: the variant is all 28 bytes of the union, plain integers, initialised
                // (`unspecified`) even if the kernel wrote fewer; any are values of it.
                let a = unsafe { self.v6 };
                let ip = Ipv6Addr::from(a.sin6_addr.s6_addr);
                // The flow label is dropped: it varies between the packets of one peer and is no
                // part of its address.
                Some(SocketAddr::V6(SocketAddrV6::new(
                    ip,
                    u16::from_be(a.sin6_port),
                    0,
                    a.sin6_scope_id,
                )))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_survive_the_round_trip() {
        for text in ["10.1.2.3:4793", "[2001:db8::1]:65535", "[fe80::1%7]:1"] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(SockAddr::encode(&addr).0.decode(), Some(addr));
        }
        assert_eq!(SockAddr::unspecified().decode(), None);
    }
}
