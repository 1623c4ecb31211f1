//! The kernel's interface list, getifaddrs(3).

use std::ffi::CStr;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::ptr;

use super::Iface;

/// Every IPv4 and IPv6 address of every interface of this network namespace, in the kernel's order.
///
/// # Errors
/// What the system says, practically never.
pub fn list() -> io::Result<Vec<Iface>> {
    let mut head: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: writes the head of a list that we free below.
    if unsafe { libc::getifaddrs(&raw mut head) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut at = head;
    while !at.is_null() {
        // SAFETY: a non-null entry of the list, which nobody changes before it is freed.
        let entry = unsafe { &*at };
        // SAFETY: as above; the address, if any, has the length its family implies.
        if let Some(iface) = unsafe { read(entry) } {
            found.push(iface);
        }
        at = entry.ifa_next;
    }
    // SAFETY: the list from getifaddrs, freed once; nothing borrowed from it is left.
    unsafe { libc::freeifaddrs(head) };
    Ok(found)
}

/// # Safety
/// `entry` is a live entry of a getifaddrs list.
unsafe fn read(entry: &libc::ifaddrs) -> Option<Iface> {
    // SAFETY: by contract the pointer is null or points to a socket address of its family.
    let addr = unsafe { ip(entry.ifa_addr) }?;
    // SAFETY: as above. A netmask has the same form.
    let prefix = match unsafe { ip(entry.ifa_netmask) } {
        Some(IpAddr::V4(mask)) => u32::from(mask).leading_ones() as u8,
        Some(IpAddr::V6(mask)) => u128::from(mask).leading_ones() as u8,
        None if addr.is_ipv4() => 32,
        None => 128,
    };
    // SAFETY: the name is a C string of the list.
    let c_name = unsafe { CStr::from_ptr(entry.ifa_name) };
    // SAFETY: a C string that lives through the call.
    let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
    let name = c_name.to_string_lossy().into_owned();
    let has = |flag: libc::c_int| entry.ifa_flags & flag as libc::c_uint != 0;
    Some(Iface {
        mtu: mtu(c_name).unwrap_or(0),
        speed_mbps: speed(&name),
        index,
        addr,
        prefix,
        up: has(libc::IFF_UP) && has(libc::IFF_RUNNING),
        loopback: has(libc::IFF_LOOPBACK),
        name,
    })
}

/// # Safety
/// `addr` is null or points to a socket address as long as its family says.
unsafe fn ip(addr: *const libc::sockaddr) -> Option<IpAddr> {
    if addr.is_null() {
        return None;
    }
    // SAFETY: not null, so by contract a socket address, which begins with its family.
    match i32::from(unsafe { (*addr).sa_family }) {
        libc::AF_INET => {
            // SAFETY: of this family, so this long.
            let a = unsafe { addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr))))
        }
        libc::AF_INET6 => {
            // SAFETY: of this family, so this long.
            let a = unsafe { addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::V6(Ipv6Addr::from(a.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}

/// `SIOCGIFMTU`, netdevice(7); sysfs would tell of the namespace it was mounted in.
fn mtu(name: &CStr) -> Option<u32> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).ok()?;
    // SAFETY: plain bytes and integers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // One byte stays zero: the terminator.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.to_bytes()) {
        *to = (*from).cast_signed() as libc::c_char;
    }
    // SAFETY: the request outlives the call, which reads the name and writes the MTU.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) };
    if rc != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so the MTU is the variant written.
    u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).ok()
}

/// What the driver says; virtual devices say nothing or -1.
fn speed(name: &str) -> Option<u32> {
    let device = name.split(':').next()?;
    let text = std::fs::read_to_string(format!("/sys/class/net/{device}/speed")).ok()?;
    text.trim().parse().ok().filter(|n| *n > 0)
}
