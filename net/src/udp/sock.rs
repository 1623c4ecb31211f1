//! Opening of UDP sockets: feature probes, options, buffer sizes.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use crate::{Feature, OpenReport, PortConfig};

/// Options of `linux/in.h` and `linux/in6.h` that the libc crate does not have.
const IP_UNICAST_IF: i32 = 50;
const IPV6_UNICAST_IF: i32 = 76;

/// Sets a socket option whose value is an integer.
pub(crate) fn set_option(
    socket: &impl AsRawFd,
    level: i32,
    name: i32,
    value: i32,
) -> io::Result<()> {
    // SAFETY: setsockopt(2) reads as many bytes as its last argument says: those of `value`, an
    // integer that outlives the call.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads a socket option whose value is an integer.
pub(super) fn get_option(socket: &Socket, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0_i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: getsockopt(2) writes at most `len` bytes, the size of `value`, and then how many into
    // `len`; both are local variables.
    let rc = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len)
    };
    if rc == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Opens a close-on-exec, non-blocking UDP socket for the address family of `addr`. IPv6 sockets do not accept IPv4, so
/// that an address has only one representation.
pub(crate) fn open_plain(addr: &SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(*addr), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    if addr.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

/// Opens the endpoint socket and reports which features the kernel supports.
pub(super) fn open_endpoint(config: &PortConfig) -> io::Result<(Socket, OpenReport)> {
    let socket = open_plain(&config.bind)?;
    let mut warnings = Vec::new();
    let v6 = config.bind.is_ipv6();

    // A segment size of 0 turns GSO off for packets without ancillary data, so the probe changes
    // nothing.
    let gso = if config.gso {
        probe(set_option(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0), "UDP_SEGMENT", "4.18")
    } else {
        Feature::Off
    };
    let gro = if config.gro {
        probe(set_option(&socket, libc::SOL_UDP, libc::UDP_GRO, 1), "UDP_GRO", "5.0")
    } else {
        Feature::Off
    };
    let tos = if v6 {
        probe(
            set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1),
            "IPV6_RECVTCLASS",
            "2.6.14",
        )
    } else {
        probe(set_option(&socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1), "IP_RECVTOS", "2.2")
    };
    if v6 {
        // Ultra Ethernet endpoints may leave the UDP checksum out, and the kernel then drops the
        // packets if they are IPv6 (RFC 8200 section 8.1). Linux has the option since 3.16. Without
        // it, only such peers are not heard.
        let _ = set_option(&socket, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1);
    }
    let overflow =
        probe(set_option(&socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1), "SO_RXQ_OVFL", "2.6.33");
    let (df, errors) = set_common_options(&socket, config);

    let rcvbuf = set_buffer(&socket, config.rcvbuf, BufferSide::Receive, &mut warnings)?;
    let sndbuf = set_buffer(&socket, config.sndbuf, BufferSide::Send, &mut warnings)?;

    socket.bind(&config.bind.into())?;
    let local = bound_address(&socket)?;
    let report =
        OpenReport { local, gso, gro, tos, df, errors, overflow, rcvbuf, sndbuf, warnings };
    Ok((socket, report))
}

/// Returns a port of the endpoint's address that is free at the moment.
pub(super) fn find_free_port(local: SocketAddr) -> io::Result<u16> {
    let socket = open_plain(&local)?;
    let mut bind = local;
    bind.set_port(0);
    socket.bind(&bind.into())?;
    Ok(bound_address(&socket)?.port())
}

/// Opens the socket of a further path on `port` of the endpoint's address. The socket only sends.
pub(super) fn open_path(config: &PortConfig, local: SocketAddr, port: u16) -> io::Result<Socket> {
    let socket = open_plain(&local)?;
    set_common_options(&socket, config);
    // No peer knows this port. A filter (classic BPF `ret 0`) drops incoming packets before they
    // are queued. ICMP errors do not pass through the filter.
    let drop_all = [SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0)];
    if socket.attach_filter(&drop_all).is_err() {
        // Without the filter, the kernel's smallest buffer limits the memory that unsolicited
        // packets take.
        let _ = socket.set_recv_buffer_size(1);
    }
    let mut ignored = Vec::new();
    set_buffer(&socket, config.sndbuf, BufferSide::Send, &mut ignored)?;
    let mut bind = local;
    bind.set_port(port);
    socket.bind(&bind.into())?;
    Ok(socket)
}

/// Returns the address that a socket is bound to.
pub(crate) fn bound_address(socket: &Socket) -> io::Result<SocketAddr> {
    let addr = socket.local_addr()?.as_socket();
    addr.ok_or_else(|| io::Error::other("the socket has no IP address"))
}

/// Makes a socket send from the configured interface, whatever the routing table says. Two cards of one
/// subnet need that: the table names only one of them. Kernels before 3.3 do not have the option; there the
/// table decides, and pairs of cards that do not work are not used.
pub(super) fn send_from_interface(socket: &Socket, config: &PortConfig) {
    let Some(index) = config.interface else { return };
    // The options take the index in network byte order.
    let index = index.cast_signed().to_be();
    let _ = if config.bind.is_ipv6() {
        set_option(socket, libc::IPPROTO_IPV6, IPV6_UNICAST_IF, index)
    } else {
        set_option(socket, libc::IPPROTO_IP, IP_UNICAST_IF, index)
    };
}

/// Sets the options of every sending socket. Returns the states of DF and of ICMP errors.
fn set_common_options(socket: &Socket, config: &PortConfig) -> (Feature, Feature) {
    send_from_interface(socket, config);
    let tos = tos(config.dscp_data, config.ecn);
    if config.bind.is_ipv6() {
        // This is the default of packets without ancillary data. If it fails, packets leave with
        // DSCP 0 and without ECN, which the transport tolerates.
        let _ = set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, tos);
        (
            probe(
                set_option(
                    socket,
                    libc::IPPROTO_IPV6,
                    libc::IPV6_MTU_DISCOVER,
                    libc::IPV6_PMTUDISC_DO,
                ),
                "IPV6_MTU_DISCOVER",
                "2.2",
            ),
            probe(
                set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
                "IPV6_RECVERR",
                "2.2",
            ),
        )
    } else {
        let _ = set_option(socket, libc::IPPROTO_IP, libc::IP_TOS, tos);
        (
            probe(
                set_option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
                "IP_MTU_DISCOVER",
                "2.2",
            ),
            probe(set_option(socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1), "IP_RECVERR", "2.2"),
        )
    }
}

/// Allows fragmentation of packets (`yes`), or sets DF again as [`set_common_options`] did.
///
/// IPv4 routers fragment. IPv6 routers do not (RFC 8200 section 5); this host does instead, but
/// Linux splits only packets that exceed the MTU that it knows for the path. (IPV6_MTU does not
/// help, since it does not split packets that fit the interface.) So an IPv6 path that silently
/// drops long packets continues to do so.
pub(super) fn set_fragmentation(socket: &Socket, v6: bool, yes: bool) -> io::Result<()> {
    let (level, option, value) = match (v6, yes) {
        (false, true) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT),
        (false, false) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
        (true, true) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT),
        (true, false) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO),
    };
    set_option(socket, level, option, value)
}

/// Returns the TOS or traffic class byte: DSCP, and ECT(0) if `ecn` is set.
pub(crate) fn tos(dscp: u8, ecn: bool) -> i32 {
    i32::from((dscp & 0x3f) << 2) | if ecn { 2 } else { 0 }
}

fn probe(result: io::Result<()>, option: &str, since: &str) -> Feature {
    match result {
        Ok(()) => Feature::On,
        Err(e) => {
            Feature::Absent(format!("socket option {option}: {e}; it needs Linux {since} or later"))
        }
    }
}

#[derive(Clone, Copy)]
enum BufferSide {
    Receive,
    Send,
}

/// Sets a buffer size and reads it back, because `setsockopt` silently reduces the value to a limit
/// (socket(7)).
fn set_buffer(
    socket: &Socket,
    wanted: usize,
    side: BufferSide,
    warnings: &mut Vec<String>,
) -> io::Result<usize> {
    // The kernel stores and reports twice the requested value, to account for its own overhead.
    let read = || match side {
        BufferSide::Receive => socket.recv_buffer_size().map(|n| n / 2),
        BufferSide::Send => socket.send_buffer_size().map(|n| n / 2),
    };
    if wanted == 0 {
        return read();
    }
    let size = i32::try_from(wanted).unwrap_or(i32::MAX / 2);
    let (option, force, name, sysctl) = match side {
        BufferSide::Receive => {
            (libc::SO_RCVBUF, libc::SO_RCVBUFFORCE, "receive", "net.core.rmem_max")
        }
        BufferSide::Send => (libc::SO_SNDBUF, libc::SO_SNDBUFFORCE, "send", "net.core.wmem_max"),
    };
    set_option(socket, libc::SOL_SOCKET, option, size)?;
    let mut got = read()?;
    // The FORCE option ignores the limit, but needs CAP_NET_ADMIN.
    if got < wanted && set_option(socket, libc::SOL_SOCKET, force, size).is_ok() {
        got = read()?;
    }
    if got < wanted {
        warnings.push(format!(
            "{name} buffer is {got} bytes instead of {wanted}: bursts may be lost and slow; \
             to allow it: sysctl -w {sysctl}={wanted}"
        ));
    }
    Ok(got)
}
