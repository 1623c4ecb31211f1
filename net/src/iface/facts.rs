//! The kernel's reports about interfaces, from rtnetlink(7), sysfs and the routing tables of
//! proc(5).

use std::fs::File;
use std::io::{self, Read as _};

use netlink_packet_core::NlasIterator;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage};

use super::UnaddressedInterface;
use super::device;
use super::rank::InterfaceFacts;
use crate::rtnetlink::RouteSocket;

/// Type of a message about an interface (linux/rtnetlink.h), and the length of its `struct
/// ifinfomsg`.
const RTM_NEWLINK: u16 = 16;
const HEADER: usize = 16;
/// Attributes of an rtnetlink message about an interface (linux/if_link.h).
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_PARENT_DEV_NAME: u16 = 56;
/// Attribute within `IFLA_LINKINFO` that names the kind of the interface.
const IFLA_INFO_KIND: u16 = 1;

/// Largest number of layers of interfaces that are followed down to a device. A VLAN on a bridge over a bond over cards
/// has four. The limit also ends the search in a cycle.
const LAYERS: u32 = 5;
/// Largest number of bytes of a routing table that are read. A router may have a million routes;
/// the default routes of IPv4 come first.
const LONGEST_TABLE: u64 = 1 << 20;
/// Flag of an IPv6 route that refuses packets (linux/route.h).
const RTF_REJECT: u32 = 0x200;

/// An interface and its properties as the kernel lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ListedInterface {
    index: u32,
    name: String,
    hardware: u16,
    up: bool,
    running: bool,
    mtu: u32,
    point_to_point: bool,
    kind: Option<String>,
    /// The interface has a parent device. Kernels before 5.14 do not report it, so sysfs is read as
    /// well.
    device: bool,
    /// Index of the interface below this one, if that is in the same network namespace.
    lower: Option<u32>,
    /// Index of the bond, team or bridge of which this interface is a port.
    upper: Option<u32>,
    /// Index of the other end of a veth pair, if that is in the same network namespace.
    peer: Option<u32>,
}

/// All interfaces of the network namespace, as the kernel lists them.
pub(super) struct InterfaceList(Vec<ListedInterface>);

impl InterfaceList {
    /// Reads the interfaces of the network namespace from the kernel.
    ///
    /// # Errors
    /// The error with which the kernel refuses.
    pub(super) fn read() -> io::Result<Self> {
        let mut question = LinkMessage::default();
        question.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let mut links = Vec::new();
        RouteSocket::open()?.dump(
            RouteNetlinkMessage::GetLink(question),
            &mut |kind, message| {
                if kind == RTM_NEWLINK {
                    links.extend(parse(message));
                }
            },
        )?;
        Ok(Self(links))
    }

    /// Returns the facts about an interface, or `None` if the kernel did not list it.
    pub(super) fn facts(&self, index: u32) -> Option<InterfaceFacts> {
        self.layers(index, LAYERS)
    }

    /// Returns the interfaces that have no address, in the kernel's order. `addressed` has the
    /// indices of those that have one.
    pub(super) fn unaddressed(&self, addressed: &[u32]) -> Vec<UnaddressedInterface> {
        let without = self.0.iter().filter(|link| !addressed.contains(&link.index));
        let describe = |link: &ListedInterface| {
            let upper = link.upper.and_then(|upper| self.find(upper));
            Some(UnaddressedInterface {
                name: link.name.clone(),
                up: link.up,
                running: link.running,
                mtu: link.mtu,
                port_of: upper.map(|upper| upper.name.clone()),
                facts: self.facts(link.index)?,
            })
        };
        without.filter_map(describe).collect()
    }

    fn find(&self, index: u32) -> Option<&ListedInterface> {
        self.0.iter().find(|link| link.index == index)
    }

    fn layers(&self, index: u32, deeper: u32) -> Option<InterfaceFacts> {
        let link = self.find(index)?;
        // A veth pair within the namespace leads to the bridge of which the other end is a port.
        let bridge = link.peer.and_then(|peer| self.find(peer)?.upper);
        let is_below = |other: &&ListedInterface| {
            other.upper == Some(index) || [link.lower, bridge].contains(&Some(other.index))
        };
        let lower = if deeper == 0 {
            Vec::new()
        } else {
            let below = self.0.iter().filter(is_below);
            let facts = |other: &ListedInterface| {
                Some((other.name.clone(), self.layers(other.index, deeper - 1)?))
            };
            below.filter_map(facts).collect()
        };
        // A veth interface has no device. A host with containers has many of them, and each look
        // into sysfs takes system calls.
        let asks = link.kind.as_deref() != Some("veth");
        Some(InterfaceFacts {
            kind: link.kind.clone(),
            hardware: link.hardware,
            device: link.device || (asks && device::is_behind(&link.name, index)),
            point_to_point: link.point_to_point,
            peer_here: link.peer.is_some(),
            lower,
        })
    }
}

/// Parses a message about an interface. Attributes behind a malformed one are ignored.
fn parse(message: &[u8]) -> Option<ListedInterface> {
    let (header, attributes) = message.split_at_checked(HEADER)?;
    let flags = word(&header[8..])?;
    let has = |flag: libc::c_int| flags & flag.unsigned_abs() != 0;
    let mut link = ListedInterface {
        hardware: u16::from_ne_bytes([header[2], header[3]]),
        index: word(&header[4..])?,
        up: has(libc::IFF_UP),
        running: has(libc::IFF_RUNNING),
        point_to_point: has(libc::IFF_POINTOPOINT),
        ..ListedInterface::default()
    };
    let mut elsewhere = false;
    for attribute in NlasIterator::new(attributes).flatten() {
        let value = attribute.value();
        match attribute.kind() {
            IFLA_IFNAME => link.name = text(value),
            IFLA_MTU => link.mtu = word(value).unwrap_or(0),
            // An interface without a layer below reports 0 or itself.
            IFLA_LINK => link.lower = word(value).filter(|lower| ![0, link.index].contains(lower)),
            IFLA_MASTER => link.upper = word(value),
            IFLA_LINKINFO => {
                let kind = NlasIterator::new(value).flatten().find(|i| i.kind() == IFLA_INFO_KIND);
                link.kind = kind.map(|kind| text(kind.value()));
            }
            IFLA_LINK_NETNSID => elsewhere = true,
            IFLA_PARENT_DEV_NAME => link.device = true,
            _ => {}
        }
    }
    // The index is that of an interface in another namespace.
    if elsewhere {
        link.lower = None;
    }
    // `IFLA_LINK` of a veth interface is the index of its other end, which is not a layer below it.
    if matches!(link.kind.as_deref(), Some("veth" | "netkit")) {
        link.peer = link.lower.take();
    }
    Some(link)
}

/// Returns the number in the first four bytes of an attribute.
fn word(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.first_chunk()?))
}

/// Returns the text of an attribute before the terminating zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The default routes of the main routing tables, as pairs of interface and metric.
#[derive(Debug, Default)]
pub(super) struct DefaultRoutes {
    v4: Vec<(String, u32)>,
    v6: Vec<(String, u32)>,
}

impl DefaultRoutes {
    /// Reads the tables of the calling thread's network namespace. There are no routes if proc(5)
    /// is not mounted.
    pub(super) fn read() -> Self {
        Self { v4: routes(&table("route"), route_v4), v6: routes(&table("ipv6_route"), route_v6) }
    }

    /// Returns the metric of the best default route through an interface: a route of the address family, or of the
    /// other family if this one has no default route at all.
    pub(super) fn metric(&self, name: &str, v6: bool) -> Option<u32> {
        let (own, other) = if v6 { (&self.v6, &self.v4) } else { (&self.v4, &self.v6) };
        let routes = if own.is_empty() { other } else { own };
        routes.iter().filter(|(by, _)| by == name).map(|(_, metric)| *metric).min()
    }
}

/// Reads a table of proc(5). Returns an empty string if it cannot be read.
fn table(name: &str) -> String {
    let mut text = String::new();
    if let Ok(file) = File::open(format!("/proc/thread-self/net/{name}")) {
        // A table that cannot be read counts as one without routes.
        let _ = file.take(LONGEST_TABLE).read_to_string(&mut text);
    }
    text
}

fn routes(table: &str, read: fn(&[&str]) -> Option<(String, u32)>) -> Vec<(String, u32)> {
    table
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            read(&words)
        })
        .collect()
}

/// Parses a line of `/proc/net/route`. Returns `None` unless it is a default route.
fn route_v4(words: &[&str]) -> Option<(String, u32)> {
    let &[name, destination, _, flags, _, _, metric, mask, ..] = words else { return None };
    let usable = u32::from_str_radix(flags, 16).ok()? & RTF_REJECT == 0;
    let default = destination == "00000000" && mask == "00000000";
    (usable && default).then_some((name.to_owned(), metric.parse().ok()?))
}

/// Parses a line of `/proc/net/ipv6_route`. Returns `None` unless it is a default route.
fn route_v6(words: &[&str]) -> Option<(String, u32)> {
    let &[_, "00", _, _, _, metric, _, _, flags, name] = words else { return None };
    // Linux lists an unreachable default route of `lo` in every namespace.
    let usable = u32::from_str_radix(flags, 16).ok()? & RTF_REJECT == 0 && name != "lo";
    usable.then_some((name.to_owned(), u32::from_str_radix(metric, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(index: u32, hardware: u16, flags: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![0, 0];
        bytes.extend_from_slice(&hardware.to_ne_bytes());
        for number in [index, flags, 0] {
            bytes.extend_from_slice(&number.to_ne_bytes());
        }
        bytes.extend(attributes.concat());
        bytes
    }

    fn kind(kind: &str) -> Vec<u8> {
        attribute(IFLA_LINKINFO, &attribute(IFLA_INFO_KIND, format!("{kind}\0").as_bytes()))
    }

    fn name(name: &str) -> Vec<u8> {
        attribute(IFLA_IFNAME, format!("{name}\0").as_bytes())
    }

    #[test]
    fn a_message_about_a_link_is_read() {
        let number = |kind, number: u32| attribute(kind, &number.to_ne_bytes());
        let vlan = message(7, 1, 0, &[name("eth0.5"), number(IFLA_LINK, 3), kind("vlan")]);
        let link = parse(&vlan).unwrap();
        let expected = ListedInterface {
            index: 7,
            name: "eth0.5".into(),
            hardware: 1,
            kind: Some("vlan".into()),
            lower: Some(3),
            ..ListedInterface::default()
        };
        assert_eq!(link, expected);
        // The other namespace has an interface with the same index.
        let elsewhere =
            message(7, 1, 0, &[number(IFLA_LINK, 3), number(IFLA_LINK_NETNSID, 0), kind("vlan")]);
        assert_eq!(parse(&elsewhere).unwrap().lower, None);
        let cable = [number(IFLA_LINK, 3), kind("veth"), number(IFLA_LINK_NETNSID, 0)];
        let out = parse(&message(7, 1, 0, &cable)).unwrap();
        assert_eq!((out.lower, out.peer), (None, None));
        let within = parse(&message(7, 1, 0, &cable[..2])).unwrap();
        assert_eq!((within.lower, within.peer), (None, Some(3)), "both ends are here");
        let flags = libc::IFF_POINTOPOINT.unsigned_abs();
        let tunnel = parse(&message(9, 65_534, flags, &[name("tun0"), kind("tun")])).unwrap();
        assert!(tunnel.point_to_point && tunnel.hardware == 65_534);
        let card = message(3, 1, 0, &[attribute(IFLA_PARENT_DEV_NAME, b"0000:3b:00.0\0")]);
        assert!(parse(&card).unwrap().device);
        // A message that is cut off anywhere is read up to the cut, or not at all.
        for end in 0..vlan.len() {
            assert_eq!(parse(&vlan[..end]).is_some(), end >= HEADER, "{end} bytes");
        }
    }

    #[test]
    fn lower_interfaces_are_found_through_layers() {
        let link = |index: u32, name: &str, kind: Option<&str>| ListedInterface {
            // These names must not be those of interfaces of this host, which sysfs knows.
            index: 1_000_000 + index,
            name: format!("squall-{name}"),
            kind: kind.map(str::to_owned),
            ..ListedInterface::default()
        };
        let port = |link: ListedInterface| ListedInterface {
            device: true,
            upper: Some(1_000_003),
            ..link
        };
        let links = InterfaceList(vec![
            port(link(1, "card0", None)),
            port(link(2, "card1", None)),
            link(3, "bond0", Some("bond")),
            ListedInterface { lower: Some(1_000_003), ..link(4, "bond0.7", Some("vlan")) },
        ]);
        let vlan = links.facts(1_000_004).unwrap();
        let [(name, bond)] = &vlan.lower[..] else { panic!("{vlan:?}") };
        assert_eq!((name.as_str(), bond.lower.len()), ("squall-bond0", 2));
        assert!(bond.lower.iter().all(|(_, card)| card.device && card.lower.is_empty()));
        assert!(!vlan.device && links.facts(7).is_none());
        // One end of a veth pair is a port of a bridge over a card, the other one has an address.
        let pair = |other: u32, link| ListedInterface { peer: Some(1_000_000 + other), ..link };
        let links = InterfaceList(vec![
            port(link(1, "card0", None)),
            link(3, "bridge0", Some("bridge")),
            pair(5, port(link(4, "inside", Some("veth")))),
            pair(4, link(5, "outside", Some("veth"))),
        ]);
        let [(name, bridge)] = &links.facts(1_000_005).unwrap().lower[..] else { panic!() };
        assert_eq!((name.as_str(), bridge.lower.len()), ("squall-bridge0", 2));
        let bare = links.unaddressed(&[1_000_003, 1_000_005]);
        let ports: Vec<_> = bare.iter().map(|i| (i.name.as_str(), i.port_of.as_deref())).collect();
        let bridge = Some("squall-bridge0");
        assert_eq!(ports, [("squall-card0", bridge), ("squall-inside", bridge)]);
    }

    #[test]
    fn a_cycle_of_interfaces_ends_the_search() {
        let itself = ListedInterface {
            index: 1_000_005,
            name: "squall-itself".into(),
            kind: Some("vlan".into()),
            lower: Some(1_000_005),
            ..ListedInterface::default()
        };
        let links = InterfaceList(vec![itself]);
        assert!(links.facts(1_000_005).is_some());
    }

    #[test]
    fn default_routes_are_found_in_either_table() {
        let v4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                  eth1\t00000000\t010200C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
                  eth0\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                  tun0\t00000000\t010200C0\t0003\t0\t0\t50\t00000080\t0\t0\t0\n\
                  *\t00000000\t00000000\t0200\t0\t0\t4000\t00000000\t0\t0\t0\n\
                  eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let zero = "00000000000000000000000000000000";
        let v6 = format!(
            "fd000000000000000000000000000000 40 {zero} 00 {zero} 00000100 00000001 00000000 00000001     eth0\n\
             {zero} 00 {zero} 00 fd000000000000000000000000000001 00000400 00000002 00000000 00000003     eth2\n\
             {zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200       lo\n"
        );
        let both = DefaultRoutes { v4: routes(v4, route_v4), v6: routes(&v6, route_v6) };
        assert_eq!(both.v4, [("eth1".to_owned(), 600), ("eth0".to_owned(), 100)]);
        assert_eq!(both.v6, [("eth2".to_owned(), 1024)]);
        assert_eq!((both.metric("eth0", false), both.metric("eth0", true)), (Some(100), None));
        assert_eq!(both.metric("eth2", true), Some(1024));
        // Addresses of a family without a default route use the metric of the other family.
        let one = DefaultRoutes { v4: both.v4, v6: Vec::new() };
        assert_eq!((one.metric("eth0", true), one.metric("eth9", true)), (Some(100), None));
        assert!(routes("", route_v4).is_empty() && routes("a b c\n\n", route_v6).is_empty());
    }
}
