//! The kernel's knowledge of interfaces, routes and neighbours, by rtnetlink(7).
//!
//! The kernel resolves addresses; this module sends nothing to the network. Packets to a
//! destination take the sockets until the kernel knows the hardware address of the next hop. The
//! first packet on the sockets makes the kernel resolve it. Once a second a packet takes the
//! sockets again, so that the kernel keeps checking whether the neighbour is reachable.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkLayerType, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::frame::Mac;
use crate::base::{Span, Time};
use crate::rtnetlink::RouteSocket;

/// Time for which an answer of the kernel about a next hop is used. If a path moves to another router, packets are lost
/// for at most this time.
const BELIEVED: Span = Span::secs(1);

/// The properties of an interface that AF_XDP needs.
pub(super) struct InterfaceProperties {
    pub(super) mac: Mac,
    pub(super) mtu: u32,
    /// The interface is a virtual cable (veth) to another network namespace of this host.
    pub(super) virtual_cable: bool,
}

impl RouteSocket {
    /// Returns the properties of the interface with this index.
    ///
    /// # Errors
    /// The interface is gone, or has no hardware address of six bytes (`Unsupported`).
    pub(super) fn link(&mut self, index: u32) -> io::Result<InterfaceProperties> {
        let mut question = LinkMessage::default();
        question.header.index = index;
        let RouteNetlinkMessage::NewLink(link) =
            self.request(RouteNetlinkMessage::GetLink(question))?
        else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let (mut mac, mut mtu, mut virtual_cable) = (None, 0, false);
        for attribute in &link.attributes {
            match attribute {
                LinkAttribute::Address(address) => mac = Mac::try_from(&address[..]).ok(),
                LinkAttribute::Mtu(n) => mtu = *n,
                LinkAttribute::LinkInfo(infos) => {
                    virtual_cable = infos.contains(&LinkInfo::Kind(InfoKind::Veth));
                }
                _ => {}
            }
        }
        match mac {
            Some(mac) if link.header.link_layer_type == LinkLayerType::Ether => {
                Ok(InterfaceProperties { mac, mtu, virtual_cable })
            }
            _ => Err(io::Error::new(io::ErrorKind::Unsupported, "the interface is not Ethernet")),
        }
    }

    /// Returns the next hop towards `to`, if packets leave by interface `index`. Returns `None` if
    /// they leave by another interface, stay on this host, or if the route has several next hops,
    /// between which the kernel chooses.
    fn next_hop(&mut self, index: u32, to: SocketAddr) -> io::Result<Option<IpAddr>> {
        let mut question = RouteMessage::default();
        let (family, bits) = family(to.ip());
        question.header.address_family = family;
        question.header.destination_prefix_length = bits;
        // Asks for the route itself instead of the result of a lookup, which would hide that a
        // route has several next hops.
        question.header.flags = RouteFlags::FibMatch;
        question.attributes.push(RouteAttribute::Destination(to.ip().into()));
        if let SocketAddr::V6(to) = to
            && to.scope_id() != 0
        {
            question.attributes.push(RouteAttribute::Oif(to.scope_id()));
        }
        let RouteNetlinkMessage::NewRoute(route) =
            self.request(RouteNetlinkMessage::GetRoute(question))?
        else {
            return Ok(None);
        };
        let (mut leaves, mut hop) = (false, Some(to.ip()));
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Oif(out) => leaves = *out == index,
                RouteAttribute::Gateway(RouteAddress::Inet(ip)) => hop = Some((*ip).into()),
                RouteAttribute::Gateway(RouteAddress::Inet6(ip)) => hop = Some((*ip).into()),
                // The route has several next hops, a next hop of the other family, or a tunnel.
                RouteAttribute::MultiPath(_)
                | RouteAttribute::Via(_)
                | RouteAttribute::EncapType(_) => hop = None,
                _ => {}
            }
        }
        Ok(hop.filter(|_| leaves && route.header.kind == RouteType::Unicast))
    }

    /// Returns the hardware address of a neighbour, if the kernel has resolved it.
    fn neighbour(&mut self, index: u32, ip: IpAddr) -> io::Result<Option<Mac>> {
        let mut question = NeighbourMessage::default();
        question.header.family = family(ip).0;
        question.header.ifindex = index;
        let ip = match ip {
            IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
            IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
        };
        question.attributes.push(NeighbourAttribute::Destination(ip));
        let RouteNetlinkMessage::NewNeighbour(neighbour) =
            self.request(RouteNetlinkMessage::GetNeighbour(question))?
        else {
            return Ok(None);
        };
        let known = matches!(
            neighbour.header.state,
            NeighbourState::Reachable
                | NeighbourState::Stale
                | NeighbourState::Delay
                | NeighbourState::Probe
                | NeighbourState::Permanent
        );
        let mac = neighbour.attributes.iter().find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(mac) => Mac::try_from(&mac[..]).ok(),
            _ => None,
        });
        // An entry in another state, such as FAILED, has an old address or none.
        Ok(mac.filter(|_| known))
    }
}

fn family(ip: IpAddr) -> (AddressFamily, u8) {
    match ip {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    }
}

/// The result of looking up the next hop to a destination, kept for a while.
struct CachedHop {
    /// Hardware address of the next hop; `None` means that packets must use the UDP sockets.
    mac: Option<Mac>,
    until: Time,
}

/// The next hops of the destinations that are reached by one interface.
pub(super) struct Neighbours {
    tables: RouteSocket,
    index: u32,
    known: HashMap<IpAddr, CachedHop>,
}

impl Neighbours {
    pub(super) fn new(tables: RouteSocket, index: u32) -> Self {
        Self { tables, index, known: HashMap::new() }
    }

    /// Returns the hardware address for frames to `to`, or `None` if the packet must use the UDP sockets.
    #[inline]
    pub(super) fn hop_to(&mut self, now: Time, to: SocketAddr) -> Option<Mac> {
        match self.known.get(&to.ip()) {
            Some(known) if now < known.until => known.mac,
            _ => self.look_up(now, to),
        }
    }

    /// Asks the kernel for the next hop and stores the answer for the following packets. The current packet uses the
    /// UDP sockets in any case, so that the kernel checks whether the neighbour is reachable.
    #[cold]
    fn look_up(&mut self, now: Time, to: SocketAddr) -> Option<Mac> {
        let hop = self.tables.next_hop(self.index, to);
        let mac = match hop {
            Ok(Some(hop)) => self.tables.neighbour(self.index, hop).ok().flatten(),
            _ => None,
        };
        // The kernel does not know the address yet. The packet that leaves now makes it ask, so the
        // answer will be there soon.
        let soon =
            if mac.is_none() && matches!(hop, Ok(Some(_))) { Span::millis(1) } else { BELIEVED };
        self.known.insert(to.ip(), CachedHop { mac, until: now + soon });
        None
    }
}
