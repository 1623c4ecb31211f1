//! The rank of an interface, as a pure function of the kernel's report.

use std::cmp::Reverse;

use super::{Iface, name_matches};

/// The kernel's report about an interface, apart from its addresses. The default value stands for
/// an unknown interface, which is classified by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceFacts {
    /// Kind of a software interface (`IFLA_INFO_KIND`), such as `bridge` or `veth`. Hardware has
    /// none.
    pub kind: Option<String>,
    /// Hardware type (`ARPHRD_*`, linux/if_arp.h); 0 if it is not known.
    pub hardware: u16,
    /// The interface belongs to a device on a bus: a card, or the paravirtual card of a virtual
    /// machine.
    pub device: bool,
    /// The interface has one peer by definition (`IFF_POINTOPOINT`). The length of a prefix, such as a /31, does not
    /// make it one.
    pub point_to_point: bool,
    /// Both ends of this virtual cable (veth) are in this network namespace.
    pub peer_here: bool,
    /// The interfaces that this one is made of, with their names: the ports of a bond, team or
    /// bridge, the interface below a VLAN, or the bridge at the other end of a virtual cable.
    pub lower: Vec<(String, InterfaceFacts)>,
}

/// The kind of network that an interface leads to, the best class first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InterfaceClass {
    /// A device: a card, or a bond, team, VLAN or bridge over one.
    Device,
    /// A virtual cable (veth, macvlan) to another network namespace. In a container it is the way
    /// to other hosts.
    Cable,
    /// A tunnel, a VPN or another point-to-point interface.
    Tunnel,
    /// A bridge to containers or virtual machines of this host, or another interface without a
    /// device.
    Isolated,
    /// The loopback interface of this host.
    Loopback,
}

impl InterfaceClass {
    /// Returns the group of the class. Interfaces of a higher group are used only if no interface
    /// of a lower group is up, or if the user selects them.
    #[must_use]
    pub const fn group(self) -> u8 {
        match self {
            Self::Device => 0,
            Self::Cable => 1,
            Self::Tunnel | Self::Isolated => 2,
            Self::Loopback => 3,
        }
    }

    /// Returns whether the interface probably does not lead to the other hosts of a job, or leads
    /// there only indirectly.
    #[must_use]
    pub const fn is_doubtful(self) -> bool {
        matches!(self, Self::Tunnel | Self::Isolated)
    }
}

/// Sort key of interfaces, the best first: position of the user's term, group, IPv4 before IPv6 (MPI libraries expect
/// names of one length), metric of the default route, class, speed, kernel index.
pub(super) type Rank = (usize, u8, bool, u32, InterfaceClass, Reverse<u32>, u32);

/// Returns the rank of an address that the user's term number `term` selects (0 without terms).
pub(super) fn rank(iface: &Iface, term: usize) -> Rank {
    let class = iface.class();
    (
        term,
        class.group(),
        iface.addr.is_ipv6(),
        iface.default_route.unwrap_or(u32::MAX),
        class,
        Reverse(iface.speed_mbps.unwrap_or(0)),
        iface.index,
    )
}

/// Returns the class of an interface that is not the loopback interface.
pub(super) fn classify(name: &str, facts: &InterfaceFacts) -> InterfaceClass {
    // Before the kind: a point-to-point interface is a tunnel, whatever driver it has.
    if facts.point_to_point {
        return InterfaceClass::Tunnel;
    }
    match facts.kind.as_deref() {
        // A cable within the namespace leads out only by a bridge over a device.
        Some("veth" | "netkit") if facts.peer_here => match best_class_below(facts) {
            Some(InterfaceClass::Device) => InterfaceClass::Device,
            _ => InterfaceClass::Isolated,
        },
        Some("veth" | "netkit") => InterfaceClass::Cable,
        // Ports that are virtual cables lead to containers of this host.
        Some("bridge") if best_class_below(facts) == Some(InterfaceClass::Device) => {
            InterfaceClass::Device
        }
        Some("bridge") => InterfaceClass::Isolated,
        Some("bond" | "team") => best_class_below(facts).unwrap_or(InterfaceClass::Isolated),
        // An InfiniBand device and a partition of it are both of this kind.
        Some("ipoib") if facts.device => InterfaceClass::Device,
        // If the interface below is not listed, it is in another namespace: this process runs in a
        // container.
        Some(kind) if LAYERED.contains(&kind) => {
            best_class_below(facts).unwrap_or(InterfaceClass::Cable)
        }
        Some(kind) if TUNNELS.contains(&kind) => InterfaceClass::Tunnel,
        _ if facts.device => InterfaceClass::Device,
        Some(_) => InterfaceClass::Isolated,
        None if TUNNEL_HARDWARE.contains(&facts.hardware) => InterfaceClass::Tunnel,
        None => classify_by_name(name),
    }
}

/// Returns the best class among the interfaces that this one is made of.
fn best_class_below(facts: &InterfaceFacts) -> Option<InterfaceClass> {
    facts.lower.iter().map(|(name, lower)| classify(name, lower)).min()
}

/// Kinds of interfaces that send by another interface of the same host.
pub(super) const LAYERED: &[&str] = &[
    "dsa",
    "hsr",
    "ipoib",
    "ipvlan",
    "ipvtap",
    "macsec",
    "macvlan",
    "macvtap",
    "virt_wifi",
    "vlan",
];

/// Kinds of interfaces that encapsulate packets or pass them to a program.
const TUNNELS: &[&str] = &[
    "amt",
    "bareudp",
    "batadv",
    "erspan",
    "geneve",
    "gre",
    "gretap",
    "gtp",
    "ip6erspan",
    "ip6gre",
    "ip6gretap",
    "ip6tnl",
    "ipip",
    "ovpn",
    "pfcp",
    "ppp",
    "sit",
    "tun",
    "vti",
    "vti6",
    "vxlan",
    "wireguard",
    "wwan",
    "xfrm",
];

/// Hardware types of tunnels: PPP, IPIP, IPv6 in IPv6, SIT, GRE, GRE over IPv6, and none.
const TUNNEL_HARDWARE: &[u16] = &[512, 768, 769, 776, 778, 823, 65_534];

/// Name patterns that classify an interface if the kernel reports neither a kind nor a device.
const NAMES: &[(&str, InterfaceClass)] = &[
    ("veth*", InterfaceClass::Cable),
    ("cali*", InterfaceClass::Cable),
    ("cilium_vxlan*", InterfaceClass::Tunnel),
    ("cilium_geneve*", InterfaceClass::Tunnel),
    ("br-*", InterfaceClass::Isolated),
    ("cbr*", InterfaceClass::Isolated),
    ("cilium*", InterfaceClass::Isolated),
    ("cni*", InterfaceClass::Isolated),
    ("docker*", InterfaceClass::Isolated),
    ("dummy*", InterfaceClass::Isolated),
    ("ifb*", InterfaceClass::Isolated),
    ("kube-ipvs*", InterfaceClass::Isolated),
    ("lxcbr*", InterfaceClass::Isolated),
    ("lxdbr*", InterfaceClass::Isolated),
    ("ovs-*", InterfaceClass::Isolated),
    ("nodelocaldns*", InterfaceClass::Isolated),
    ("podman*", InterfaceClass::Isolated),
    // The host-only networks of VirtualBox and VMware have neither a kind nor a device.
    ("vboxnet*", InterfaceClass::Isolated),
    ("virbr*", InterfaceClass::Isolated),
    ("vmnet*", InterfaceClass::Isolated),
    ("flannel*", InterfaceClass::Tunnel),
    ("geneve*", InterfaceClass::Tunnel),
    ("genev_sys*", InterfaceClass::Tunnel),
    ("gre*", InterfaceClass::Tunnel),
    ("ipsec*", InterfaceClass::Tunnel),
    ("ppp*", InterfaceClass::Tunnel),
    ("sit*", InterfaceClass::Tunnel),
    ("tailscale*", InterfaceClass::Tunnel),
    ("tap*", InterfaceClass::Tunnel),
    ("tun*", InterfaceClass::Tunnel),
    ("utun*", InterfaceClass::Tunnel),
    ("vnet*", InterfaceClass::Tunnel),
    ("vxlan*", InterfaceClass::Tunnel),
    ("weave*", InterfaceClass::Tunnel),
    ("wg*", InterfaceClass::Tunnel),
    ("zt*", InterfaceClass::Tunnel),
];

/// Returns the class that the name of an interface suggests.
fn classify_by_name(name: &str) -> InterfaceClass {
    let known = NAMES.iter().find(|(pattern, _)| name_matches(name, pattern));
    known.map_or(InterfaceClass::Device, |(_, class)| *class)
}
