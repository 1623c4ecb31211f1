//! The kernel's interface list, from getifaddrs(3), with the facts by which interfaces are ranked.

use std::ffi::CStr;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::ptr;

use super::facts::{DefaultRoutes, InterfaceList};
use super::rank::InterfaceFacts;
use super::{Iface, UnaddressedInterface};

/// Returns every IPv4 and IPv6 address of every interface of this network namespace, in the
/// kernel's order.
///
/// # Errors
/// The error of getifaddrs(3), which is not expected.
pub fn list() -> io::Result<Vec<Iface>> {
    let mut found = addresses()?;
    let routes = DefaultRoutes::read();
    let links = InterfaceList::read().inspect_err(|error| {
        log::info!(
            "the kernel's list of interfaces cannot be read: {error}; interfaces are ranked by name"
        );
    });
    for iface in &mut found {
        let device = iface.name.split(':').next().unwrap_or_default();
        iface.default_route = routes.metric(device, iface.addr.is_ipv6());
        if let Ok(links) = &links
            && let Some(facts) = links.facts(iface.index)
        {
            let point_to_point = iface.facts.point_to_point || facts.point_to_point;
            iface.facts = InterfaceFacts { point_to_point, ..facts };
        }
    }
    Ok(found)
}

/// Returns the interfaces of this network namespace that have neither an IPv4 nor an IPv6 address.
///
/// # Errors
/// The error with which the kernel refuses its list.
pub fn list_unaddressed() -> io::Result<Vec<UnaddressedInterface>> {
    let addressed: Vec<u32> = addresses()?.iter().map(|iface| iface.index).collect();
    Ok(InterfaceList::read()?.unaddressed(&addressed))
}

/// Returns the addresses and the properties of their interfaces that getifaddrs(3) reports.
fn addresses() -> io::Result<Vec<Iface>> {
    let mut head: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: getifaddrs(3) writes one pointer, into a local variable; the list is freed below.
    if unsafe { libc::getifaddrs(&raw mut head) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut at = head;
    while !at.is_null() {
        // SAFETY: not NULL, so an entry of getifaddrs' list, initialised, which nobody changes before it
        // is freed below, behind the loop that this reference does not leave.
        let entry = unsafe { &*at };
        // SAFETY: `entry` is an entry of getifaddrs' list, which is freed behind this loop.
        if let Some(iface) = unsafe { read(entry) } {
            found.push(iface);
        }
        at = entry.ifa_next;
    }
    // SAFETY: `head` came from getifaddrs and is freed here once; what `read` returned is copied.
    unsafe { libc::freeifaddrs(head) };
    Ok(found)
}

/// # Safety
/// `entry` is a live entry of a getifaddrs list.
unsafe fn read(entry: &libc::ifaddrs) -> Option<Iface> {
    // SAFETY: an address of a live entry, by this function's contract, is NULL or a socket address as
    // long as its family says (getifaddrs(3)).
    let addr = unsafe { ip(entry.ifa_addr) }?;
    // SAFETY: a netmask of a live entry is NULL or in the form of a socket address as long as its family says
    // (getifaddrs(3)).
    let prefix = match unsafe { ip(entry.ifa_netmask) } {
        Some(IpAddr::V4(mask)) => u32::from(mask).leading_ones() as u8,
        Some(IpAddr::V6(mask)) => u128::from(mask).leading_ones() as u8,
        None if addr.is_ipv4() => 32,
        None => 128,
    };
    // SAFETY: the name of a live entry is a terminated string, freed with the list, which lives longer
    // than this call by its contract.
    let c_name = unsafe { CStr::from_ptr(entry.ifa_name) };
    // SAFETY: if_nametoindex(3) reads up to the terminator, which a `CStr` has.
    let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
    let name = c_name.to_string_lossy().into_owned();
    let has = |flag: libc::c_int| entry.ifa_flags & flag as libc::c_uint != 0;
    Some(Iface {
        mtu: mtu(c_name).unwrap_or(0),
        speed_mbps: speed(&name),
        index,
        addr,
        prefix,
        up: has(libc::IFF_UP),
        running: has(libc::IFF_RUNNING),
        loopback: has(libc::IFF_LOOPBACK),
        default_route: None,
        facts: InterfaceFacts {
            point_to_point: has(libc::IFF_POINTOPOINT),
            ..InterfaceFacts::default()
        },
        name,
    })
}

/// # Safety
/// `addr` is null or points to a socket address as long as its family says.
unsafe fn ip(addr: *const libc::sockaddr) -> Option<IpAddr> {
    if addr.is_null() {
        return None;
    }
    // SAFETY: not NULL, so by this function's contract a socket address, which begins with its family.
    match i32::from(unsafe { (*addr).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family is AF_INET, so by this function's contract a whole `sockaddr_in` is
            // there, plain integers; it is read unaligned.
            let a = unsafe { addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr))))
        }
        libc::AF_INET6 => {
            // SAFETY: the family is AF_INET6, so by this function's contract a whole `sockaddr_in6` is there,
            // plain integers; it is read unaligned.
            let a = unsafe { addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::V6(Ipv6Addr::from(a.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}

/// Returns the MTU, by `SIOCGIFMTU` (netdevice(7)). Sysfs is not used, because it shows the network
/// namespace in which it was mounted.
fn mtu(name: &CStr) -> Option<u32> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).ok()?;
    // SAFETY: an `ifreq` is bytes, and a union of bytes, integers and a pointer, for all of which zero is
    // a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays zero as the terminator.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.to_bytes()) {
        *to = (*from).cast_signed() as libc::c_char;
    }
    // SAFETY: SIOCGIFMTU reads the name, which ends with a zero, and writes the MTU, both within
    // `request`, a local variable.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) };
    if rc != 0 {
        return None;
    }
    // SAFETY: the variant is an integer, of whose bytes all are initialised: zeroed above, and written by
    // the call, which succeeded.
    u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).ok()
}

/// Returns the speed that the driver reports in sysfs. Virtual devices report nothing or -1.
fn speed(name: &str) -> Option<u32> {
    let device = name.split(':').next()?;
    let text = std::fs::read_to_string(format!("/sys/class/net/{device}/speed")).ok()?;
    text.trim().parse().ok().filter(|n| *n > 0)
}
