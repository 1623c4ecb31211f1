//! The kernel's routes towards other hosts, from rtnetlink(7).

use std::io;
use std::net::IpAddr;

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::rtnetlink::RouteSocket;

/// The kernel's route to a destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Kernel's index of the interface by which packets to the destination leave.
    pub index: u32,
    /// The next router; `None` if the destination is on a network of the outgoing interface.
    pub gateway: Option<IpAddr>,
    /// Source address of packets to the destination, unless their socket is bound to another.
    pub source: Option<IpAddr>,
    /// The destination is an address of this host itself.
    pub local: bool,
    /// Path MTU, if an administrator set it for the route or the kernel learned it from ICMP.
    pub mtu: Option<u32>,
}

impl Route {
    /// Asks the kernel for the route to `to`. `from` is the address to which the sending socket is
    /// bound, because routing rules may depend on it. `scope` is the interface of a link-local
    /// destination, and 0 for others.
    ///
    /// # Errors
    /// The error with which the kernel refuses: there is no route, or `from` is not an address of
    /// this host.
    pub fn look_up(to: IpAddr, from: Option<IpAddr>, scope: u32) -> io::Result<Self> {
        let mut question = RouteMessage::default();
        let (family, bits) = match to {
            IpAddr::V4(_) => (AddressFamily::Inet, 32),
            IpAddr::V6(_) => (AddressFamily::Inet6, 128),
        };
        question.header.address_family = family;
        question.header.destination_prefix_length = bits;
        question.attributes.push(RouteAttribute::Destination(to.into()));
        if let Some(from) = from {
            question.header.source_prefix_length = bits;
            question.attributes.push(RouteAttribute::Source(from.into()));
        }
        if scope != 0 {
            question.attributes.push(RouteAttribute::Oif(scope));
        }
        match RouteSocket::open()?.request(RouteNetlinkMessage::GetRoute(question))? {
            RouteNetlinkMessage::NewRoute(route) => refuse_unusable(&route).map(|()| read(&route)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Returns the error of a route that discards packets. The kernel reports such a route of IPv6 as
/// the result of a lookup, and one of IPv4 as an error.
fn refuse_unusable(route: &RouteMessage) -> io::Result<()> {
    match route.header.kind {
        RouteType::Unreachable | RouteType::BlackHole | RouteType::Throw => {
            Err(io::Error::from_raw_os_error(libc::ENETUNREACH))
        }
        RouteType::Prohibit => Err(io::Error::from_raw_os_error(libc::EACCES)),
        _ => Ok(()),
    }
}

fn read(message: &RouteMessage) -> Route {
    let mut route = Route { local: message.header.kind == RouteType::Local, ..Route::default() };
    let ip = |address: &RouteAddress| match address {
        RouteAddress::Inet(ip) => Some(IpAddr::from(*ip)),
        RouteAddress::Inet6(ip) => Some(IpAddr::from(*ip)),
        _ => None,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => route.index = *index,
            RouteAttribute::Gateway(address) => route.gateway = ip(address),
            RouteAttribute::PrefSource(address) => route.source = ip(address),
            RouteAttribute::Metrics(metrics) => {
                route.mtu = metrics.iter().find_map(|metric| match metric {
                    // The kernel reports 0 for an unset metric.
                    RouteMetric::Mtu(mtu) if *mtu > 0 => Some(*mtu),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    route
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use crate::iface;

    #[test]
    fn loopback_is_reached_over_its_interface() {
        let loopback = iface::list().unwrap().into_iter().find(|iface| iface.loopback).unwrap();
        let to = IpAddr::from([127, 0, 0, 9]);
        for from in [None, Some(loopback.addr)] {
            let route = Route::look_up(to, from, 0).unwrap();
            assert!(route.local && route.gateway.is_none(), "{route:?}");
            assert_eq!(route.index, loopback.index);
        }
        assert!(Route::look_up(to, Some(IpAddr::from([192, 0, 2, 77])), 0).is_err());
    }

    #[test]
    fn attributes_of_a_route_are_read() {
        let mut message = RouteMessage::default();
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![
            RouteAttribute::Destination(IpAddr::from([10, 0, 9, 4]).into()),
            RouteAttribute::Oif(3),
            RouteAttribute::Gateway(IpAddr::from([10, 0, 0, 1]).into()),
            RouteAttribute::PrefSource(IpAddr::from([10, 0, 3, 17]).into()),
            RouteAttribute::Metrics(vec![RouteMetric::Hoplimit(9), RouteMetric::Mtu(1400)]),
        ];
        let expected = Route {
            index: 3,
            gateway: Some([10, 0, 0, 1].into()),
            source: Some([10, 0, 3, 17].into()),
            local: false,
            mtu: Some(1400),
        };
        assert_eq!(read(&message), expected);
        message.header.kind = RouteType::Prohibit;
        assert!(refuse_unusable(&message).is_err());
    }
}
