//! Addresses: `struct sockaddr_in`/`in6` in C memory to and from [`Name`], and their text form.

use core::ffi::c_void;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use squall_base::Instance;
use squall_engine::{PeerAddress, UET_PORT};

use crate::abi::errno::{Errno, Result};
use crate::abi::flags::addr_format;
use crate::host::logger::USER;

/// Length in bytes of a `sockaddr_in`.
pub(crate) const V4_LEN: usize = size_of::<libc::sockaddr_in>();
/// Length in bytes of a `sockaddr_in6`.
pub(crate) const V6_LEN: usize = size_of::<libc::sockaddr_in6>();

/// The bytes of a `sockaddr_in` that hold the instance: the first four of `sin_zero`, in network byte order.
const V4_INSTANCE: core::ops::Range<usize> = 8..12;
/// The bytes of a `sockaddr_in6` that hold the instance: `sin6_flowinfo`, in network byte order.
const V6_INSTANCE: core::ops::Range<usize> = 4..8;
/// The bytes of a `sockaddr_in` that hold PIDonFEP and resource index of a foreign endpoint, in network byte order: the
/// last four of `sin_zero`. The initiator is where other endpoints have their instance. A `sockaddr_in6` has no bytes left
/// for these fields.
const V4_FIELDS: core::ops::Range<usize> = 12..16;
/// Bit that marks a `sockaddr_in` with these fields. Below it are PIDonFEP and the resource index, of 12 bits each.
const HAS_FIELDS: u32 = 1 << 31;
/// Largest value of a PIDonFEP and of a resource index, which have 12 bits.
const MAX_FIELD: u16 = 0xfff;

/// The name of an endpoint: its address, and the instance that tells endpoints of one address apart.
///
/// `fi_getname` returns both, so a name that comes from the endpoint itself means exactly that
/// endpoint. An address that a user typed has no instance (zero stands there) and means whichever
/// endpoint is at the address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Name {
    /// Address and UDP port. An IPv6 address has no flow information: in C the instance is in its place, which must not
    /// reach the kernel, nor comparisons of addresses.
    pub(crate) addr: SocketAddr,
    /// The instance number that was given with the address, if one was.
    pub(crate) instance: Option<Instance>,
    /// The fields by which requests name a foreign endpoint (FI_SQUALL_WIRE); `None` if the address has none.
    pub(crate) fields: Option<PeerAddress>,
}

impl From<SocketAddr> for Name {
    fn from(addr: SocketAddr) -> Self {
        Self { addr, instance: None, fields: None }
    }
}

impl Name {
    /// Returns whether two names have the same address and different instances, so that the address reaches only one of
    /// the two. The scope of an IPv6 address is ignored, because each host numbers its own links.
    pub(crate) fn contradicts(&self, other: &Self) -> bool {
        let place = |name: &Self| (name.addr.ip(), name.addr.port());
        let instances = self.instance.zip(other.instance);
        place(self) == place(other) && instances.is_some_and(|(one, two)| one != two)
    }
}

/// The name of an endpoint as the C structure of its socket address.
#[derive(Clone, Copy)]
pub(crate) struct Raw {
    bytes: [u8; V6_LEN],
    len: usize,
}

impl Raw {
    /// Encodes `name` as a `sockaddr_in` or `sockaddr_in6`.
    pub(crate) fn new(name: &Name) -> Self {
        let mut bytes = [0; V6_LEN];
        let family = |f: i32| u16::try_from(f).unwrap_or(0).to_ne_bytes();
        let instance = name.instance.map_or(0, Instance::get).to_be_bytes();
        match name.addr {
            SocketAddr::V4(v4) => {
                bytes[..2].copy_from_slice(&family(libc::AF_INET));
                bytes[2..4].copy_from_slice(&v4.port().to_be_bytes());
                bytes[4..8].copy_from_slice(&v4.ip().octets());
                bytes[V4_INSTANCE].copy_from_slice(&instance);
                if let Some(fields) = name.fields {
                    let low = u32::from(fields.pid_on_fep & MAX_FIELD) << 12;
                    let low = HAS_FIELDS | low | u32::from(fields.index & MAX_FIELD);
                    bytes[V4_INSTANCE].copy_from_slice(&fields.initiator.to_be_bytes());
                    bytes[V4_FIELDS].copy_from_slice(&low.to_be_bytes());
                }
                Self { bytes, len: V4_LEN }
            }
            SocketAddr::V6(v6) => {
                bytes[..2].copy_from_slice(&family(libc::AF_INET6));
                bytes[2..4].copy_from_slice(&v6.port().to_be_bytes());
                bytes[V6_INSTANCE].copy_from_slice(&instance);
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                Self { bytes, len: V6_LEN }
            }
        }
    }

    /// Returns the bytes of the C structure of the address.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Decodes the bytes of a `sockaddr_in` or `sockaddr_in6`. Returns `None` if the family is another or there are too few
/// bytes. An IPv4 address that is cut off behind the address has no instance.
pub(crate) fn decode(bytes: &[u8]) -> Option<Name> {
    let two = |at: usize| Some([*bytes.get(at)?, *bytes.get(at + 1)?]);
    let port = u16::from_be_bytes(two(2)?);
    let instance = |at: core::ops::Range<usize>| {
        let number = bytes.get(at)?.try_into().ok()?;
        Instance::new(u32::from_be_bytes(number))
    };
    match i32::from(u16::from_ne_bytes(two(0)?)) {
        libc::AF_INET => {
            let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            let addr = SocketAddr::from((Ipv4Addr::from(ip), port));
            let number = |at: core::ops::Range<usize>| {
                Some(u32::from_be_bytes(bytes.get(at)?.try_into().ok()?))
            };
            let fields = number(V4_FIELDS).filter(|low| low & HAS_FIELDS != 0).and_then(|low| {
                let field = |low: u32| u16::try_from(low & u32::from(MAX_FIELD)).ok();
                let (pid_on_fep, index) = (field(low >> 12)?, field(low)?);
                Some(PeerAddress { pid_on_fep, index, initiator: number(V4_INSTANCE)? })
            });
            let instance = if fields.is_some() { None } else { instance(V4_INSTANCE) };
            Some(Name { addr, instance, fields })
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            let scope = u32::from_ne_bytes(bytes.get(24..28)?.try_into().ok()?);
            let addr = SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope));
            Some(Name { addr, instance: instance(V6_INSTANCE), fields: None })
        }
        _ => None,
    }
}

/// Reads a `sockaddr` whose length follows from its family.
///
/// # Safety
/// `ptr` is NULL or points to a socket address of at least two bytes. If its family is AF_INET or
/// AF_INET6, it is as long as the family says. No other code writes to it meanwhile.
pub(crate) unsafe fn read(ptr: *const c_void) -> Option<Name> {
    if ptr.is_null() {
        return None;
    }
    // SAFETY: not NULL, so by this function's contract a socket address, which begins with its family,
    // two bytes.
    let family = unsafe { ptr.cast::<u16>().read_unaligned() };
    let len = match i32::from(family) {
        libc::AF_INET => V4_LEN,
        libc::AF_INET6 => V6_LEN,
        _ => return None,
    };
    // SAFETY: by this function's contract the structure is as long as its family says, which is `len`; the
    // slice does not outlive this call.
    decode(unsafe { core::slice::from_raw_parts(ptr.cast::<u8>(), len) })
}

/// Returns the libfabric address format (`FI_SOCKADDR_IN`, `_IN6`) of an address.
pub(crate) fn format_of(addr: &SocketAddr) -> u32 {
    match addr {
        SocketAddr::V4(_) => addr_format::SOCKADDR_IN,
        SocketAddr::V6(_) => addr_format::SOCKADDR_IN6,
    }
}

/// Returns the text form of an address, which `fi_av_straddr` returns and which is accepted in strings. Other IP
/// providers use it as well: `fi_sockaddr_in://10.0.0.1:4793` or `fi_sockaddr_in6://[::1]:4793`.
pub(crate) fn uri(addr: &SocketAddr) -> String {
    match addr {
        SocketAddr::V4(_) => format!("fi_sockaddr_in://{addr}"),
        SocketAddr::V6(_) => format!("fi_sockaddr_in6://{addr}"),
    }
}

/// Parses an address in the form that [`uri`] writes, with or without the scheme.
pub(crate) fn parse(text: &str) -> Result<SocketAddr> {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    rest.parse().map_err(|_| Errno::INVAL)
}

/// Prefix of the text form of an address of an endpoint of another implementation.
const FOREIGN: &str = "uet:";

/// Returns the form of the address of an endpoint of another implementation, which [`resolve`] accepts.
pub(crate) fn foreign_text(addr: &SocketAddr, fields: &PeerAddress) -> String {
    let PeerAddress { pid_on_fep, index, initiator } = fields;
    format!("{FOREIGN}{addr},pid={pid_on_fep},index={index},initiator={initiator}")
}

/// Parses the part behind `uet:` of the address of an endpoint of another implementation. Fields that are absent have
/// the values of `usual`.
///
/// # Errors
/// A sentence that names the field of the address that is wrong.
fn parse_foreign(text: &str, usual: PeerAddress) -> core::result::Result<Name, String> {
    let mut parts = text.split(',');
    let place = parts.next().unwrap_or_default();
    let bare = place.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let addr = match bare {
        Ok(ip) => SocketAddr::new(ip, UET_PORT),
        Err(_) => place
            .parse()
            .map_err(|_| format!("{place:?} is no IP address with or without a port"))?,
    };
    let (mut fields, mut any) = (usual, false);
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let short = || {
            let value = value.parse::<u16>().ok().filter(|value| *value <= MAX_FIELD);
            value.ok_or_else(|| format!("{part:?} is not a number from 0 to {MAX_FIELD}"))
        };
        match name {
            "pid" => fields.pid_on_fep = short()?,
            "index" => fields.index = short()?,
            "initiator" => {
                fields.initiator =
                    value.parse().map_err(|_| format!("{part:?} is not a number of 32 bits"))?;
            }
            _ => return Err(format!("{name:?} is none of pid, index and initiator")),
        }
        any = true;
    }
    if any && addr.is_ipv6() {
        return Err("an IPv6 address has no room for pid, index and initiator; use IPv4".to_owned());
    }
    Ok(Name { addr, instance: None, fields: addr.is_ipv4().then_some(fields) })
}

/// Resolves `node` and `service` as `getaddrinfo` does; the port is 0 without a service. A node that begins with `uet:`
/// is an endpoint of another implementation, whose unnamed fields are those of `usual`.
///
/// # Errors
/// `FI_ENODATA` when there is no such host or service.
pub(crate) fn resolve(
    node: Option<&str>,
    service: Option<&str>,
    numeric: bool,
    want: Option<u32>,
    usual: Option<PeerAddress>,
) -> Result<Name> {
    if let Some(text) = node.and_then(|node| node.strip_prefix(FOREIGN)) {
        let Some(usual) = usual else {
            log::warn!(
                target: USER,
                "the address {FOREIGN}{text} is that of an endpoint of another implementation: set FI_SQUALL_WIRE to uet or \
                 suet"
            );
            return Err(Errno::NODATA);
        };
        return parse_foreign(text, usual).map_err(|error| {
            log::warn!(
                target: USER,
                "the address {FOREIGN}{text} cannot be read: {error}; write \
                 uet:IP[:PORT][,pid=N][,index=N][,initiator=N]"
            );
            Errno::NODATA
        });
    }
    resolve_host(node, service, numeric, want).map(Name::from)
}

/// Resolves the host `node` and the port `service` as `getaddrinfo` does.
fn resolve_host(
    node: Option<&str>,
    service: Option<&str>,
    numeric: bool,
    want: Option<u32>,
) -> Result<SocketAddr> {
    if let Some(node) = node
        && node.contains("://")
    {
        return parse(node).map_err(|_| Errno::NODATA);
    }
    let port: u16 = match service {
        None | Some("") => 0,
        Some(text) => match text.parse() {
            Ok(port) => port,
            Err(_) => service_port(text)?,
        },
    };
    let Some(node) = node else {
        let any = match want {
            Some(addr_format::SOCKADDR_IN6) => IpAddr::V6(Ipv6Addr::LOCALHOST),
            _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        return Ok(SocketAddr::new(any, port));
    };
    if let Ok(ip) = node.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    if numeric {
        return Err(Errno::NODATA);
    }
    let found =
        std::net::ToSocketAddrs::to_socket_addrs(&(node, port)).map_err(|_| Errno::NODATA)?;
    let all: Vec<SocketAddr> = found.collect();
    let wanted = |a: &&SocketAddr| match want {
        Some(addr_format::SOCKADDR_IN) => a.is_ipv4(),
        Some(addr_format::SOCKADDR_IN6) => a.is_ipv6(),
        _ => true,
    };
    // IPv4 first, as every MPI start-up here expects equal-length names.
    all.iter()
        .filter(wanted)
        .find(|a| a.is_ipv4())
        .or_else(|| all.iter().find(wanted))
        .copied()
        .ok_or(Errno::NODATA)
}

/// Returns the port of the UDP service with this name (`/etc/services`).
fn service_port(name: &str) -> Result<u16> {
    let name = std::ffi::CString::new(name).map_err(|_| Errno::NODATA)?;
    // SAFETY: an `addrinfo` is integers and pointers, for which zero is a value.
    let mut hints: libc::addrinfo = unsafe { core::mem::zeroed() };
    hints.ai_socktype = libc::SOCK_DGRAM;
    hints.ai_family = libc::AF_INET;
    let mut list = core::ptr::null_mut();
    // SAFETY: `name` is terminated, `hints` initialised, NULL stands for no host; getaddrinfo(3) reads
    // them during the call and writes one pointer, into a local variable.
    let rc = unsafe {
        libc::getaddrinfo(core::ptr::null(), name.as_ptr(), &raw const hints, &raw mut list)
    };
    if rc != 0 || list.is_null() {
        return Err(Errno::NODATA);
    }
    // SAFETY: getaddrinfo succeeded and `list` is not NULL: a list entry, whose address is NULL or as
    // long as its family says. It is freed below.
    let port = unsafe { read((*list).ai_addr.cast()) }.map(|name| name.addr.port());
    // SAFETY: `list` came from getaddrinfo and is freed here once; the port was copied out of it.
    unsafe { libc::freeaddrinfo(list) };
    port.ok_or(Errno::NODATA)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LITERALS: [&str; 3] = ["10.1.2.3:4793", "[2001:db8::1]:9", "[fe80::1%3]:7"];

    fn literal(text: &str) -> SocketAddr {
        text.parse().expect("literal")
    }

    #[test]
    fn names_round_trip_through_c() {
        for (text, number) in LITERALS.iter().flat_map(|t| [(t, 0), (t, 0x0102_0304)]) {
            let name = Name { instance: Instance::new(number), ..literal(text).into() };
            let raw = Raw::new(&name);
            assert_eq!(decode(raw.as_bytes()), Some(name));
            // SAFETY: `as_bytes` gives a whole structure of the address's family, borrowed for this
            // statement.
            assert_eq!(unsafe { read(raw.as_bytes().as_ptr().cast()) }, Some(name));
            assert_eq!(decode(&raw.as_bytes()[..7]), None);
            assert_eq!(parse(&uri(&name.addr)), Ok(name.addr), "shown without an instance");
        }
        assert_eq!(Raw::new(&literal("1.2.3.4:5").into()).as_bytes().len(), 16);
    }

    #[test]
    fn the_instance_stands_where_others_read_it_and_goes_no_further() {
        let instance = Instance::new(0x0102_0304);
        let raw = Raw::new(&Name { instance, ..literal("10.1.2.3:4793").into() });
        assert_eq!(raw.as_bytes()[8..], [1, 2, 3, 4, 0, 0, 0, 0], "sin_zero");
        let raw = Raw::new(&Name { instance, ..literal("[2001:db8::1]:9").into() });
        assert_eq!(raw.as_bytes()[4..8], [1, 2, 3, 4], "sin6_flowinfo");
        let Some(SocketAddr::V6(v6)) = decode(raw.as_bytes()).map(|name| name.addr) else {
            unreachable!("an IPv6 address")
        };
        assert_eq!(v6.flowinfo(), 0, "the kernel would take it for a flow label");
    }

    #[test]
    fn one_address_cannot_have_two_instances() {
        let name = |text, number| Name { instance: Instance::new(number), ..literal(text).into() };
        let own = name("10.1.2.3:4793", 5);
        assert!(own.contradicts(&name("10.1.2.3:4793", 6)));
        for other in
            [own, name("10.1.2.3:4793", 0), name("10.1.2.3:4794", 6), name("10.1.2.4:4793", 6)]
        {
            assert!(!own.contradicts(&other) && !other.contradicts(&own), "{other:?}");
        }
        assert!(name("[fe80::1%2]:7", 1).contradicts(&name("[fe80::1%3]:7", 2)));
    }

    #[test]
    fn no_byte_is_read_that_the_family_does_not_promise() {
        for text in ["10.1.2.3:4793", "[2001:db8::1]:9"] {
            let name = Name { instance: Instance::new(9), ..literal(text).into() };
            // An allocation that ends with the structure, and begins at an odd place.
            let mut bytes = vec![0];
            bytes.extend_from_slice(Raw::new(&name).as_bytes());
            let bytes = bytes.into_boxed_slice();
            // SAFETY: a whole structure lies behind the first byte.
            assert_eq!(unsafe { read(bytes[1..].as_ptr().cast()) }, Some(name));
        }
        // SAFETY: NULL, and families of which nothing but the family is there.
        unsafe {
            assert_eq!(read(core::ptr::null()), None);
            for family in [libc::AF_UNSPEC, libc::AF_UNIX, 0xffff] {
                let family = u16::try_from(family).expect("small").to_ne_bytes();
                assert_eq!(read(family.as_ptr().cast()), None);
            }
        }
    }

    #[test]
    fn a_truncated_address_is_none() {
        for (text, needs, all) in [("10.1.2.3:4793", 8, 12), ("[fe80::1%3]:7", V6_LEN, V6_LEN)] {
            let raw = Raw::new(&Name { instance: Instance::new(7), ..literal(text).into() });
            for len in 0..=raw.as_bytes().len() {
                let cut: Box<[u8]> = raw.as_bytes()[..len].into();
                let name = decode(&cut);
                assert_eq!(name.is_some(), len >= needs, "{len} bytes of {text}");
                let instance = name.and_then(|name| name.instance);
                assert_eq!(instance.is_some(), len >= all, "{len} bytes of {text}");
            }
        }
    }

    #[test]
    fn names_resolve_or_say_no_data() {
        let resolve = |node, service, numeric| {
            resolve(node, service, numeric, None, None).map(|name| name.addr)
        };
        let addr = resolve(Some("127.0.0.1"), Some("9228"), false);
        assert_eq!(addr, Ok("127.0.0.1:9228".parse().expect("literal")));
        assert_eq!(resolve(Some("g00n13s.invalid"), None, true), Err(Errno::NODATA));
        assert_eq!(resolve(None, Some("no-such-service"), false), Err(Errno::NODATA));
        assert_eq!(resolve(None, Some("domain"), false).map(|a| a.port()), Ok(53));
    }

    #[test]
    fn addresses_of_other_implementations_are_read_and_written() {
        let usual = PeerAddress { pid_on_fep: 0, index: 15, initiator: 16 };
        let read = |text| resolve(Some(text), None, true, None, Some(usual));
        let name = |text, fields| Ok(Name { fields, ..literal(text).into() });
        assert_eq!(read("uet:10.1.2.3"), name("10.1.2.3:4793", Some(usual)));
        let all = PeerAddress { pid_on_fep: 7, index: 4095, initiator: u32::MAX };
        let text = "uet:10.1.2.3:99,pid=7,index=4095,initiator=4294967295";
        assert_eq!(read(text), name("10.1.2.3:99", Some(all)));
        assert_eq!(foreign_text(&literal("10.1.2.3:99"), &all), text);
        assert_eq!(read("uet:[2001:db8::1]:9"), name("[2001:db8::1]:9", None));
        assert_eq!(read("uet:2001:db8::1"), name("[2001:db8::1]:4793", None));
        for wrong in [
            "uet:",
            "uet:host",
            "uet:10.1.2.3,pid=4096",
            "uet:10.1.2.3,index=",
            "uet:10.1.2.3,job=1",
            "uet:[2001:db8::1]:9,pid=1",
        ] {
            assert_eq!(read(wrong), Err(Errno::NODATA), "{wrong}");
        }
        // The C form keeps the fields, and an instance is not taken for them.
        let name = Name { fields: Some(all), ..literal("10.1.2.3:99").into() };
        assert_eq!(decode(Raw::new(&name).as_bytes()), Some(name));
        // Without FI_SQUALL_WIRE there are no such peers.
        assert_eq!(resolve(Some("uet:10.1.2.3"), None, true, None, None), Err(Errno::NODATA));
    }
}
