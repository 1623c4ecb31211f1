//! Descriptions of interfaces for logs and for `squall doctor`.

use super::name_matches;
use super::rank::{InterfaceClass, InterfaceFacts, LAYERED, classify};

/// Hardware types of interfaces (linux/if_arp.h).
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_INFINIBAND: u16 = 32;

/// Largest number of lower interfaces that a description of a bond or bridge names.
const NAMED: usize = 4;

/// Kinds of interfaces whose usual spelling differs from the kernel's.
const SPELLINGS: &[(&str, &str)] = &[
    ("erspan", "ERSPAN"),
    ("geneve", "GENEVE"),
    ("gre", "GRE"),
    ("gretap", "GRE"),
    ("ip6gre", "GRE"),
    ("ip6gretap", "GRE"),
    ("ip6tnl", "IPv6 tunnel"),
    ("ipip", "IPIP"),
    ("ipoib", "InfiniBand partition"),
    ("openvswitch", "Open vSwitch"),
    ("ovpn", "OpenVPN"),
    ("ppp", "PPP"),
    ("sit", "SIT"),
    ("vlan", "VLAN"),
    ("vrf", "VRF"),
    ("vxlan", "VXLAN"),
    ("wireguard", "WireGuard"),
    ("xfrm", "IPsec"),
];

/// Names that container engines and hypervisors give to their bridges. The kernel reports only that
/// an interface is a bridge.
const BRIDGES: &[(&str, &str)] = &[
    ("br-*", "containers"),
    ("cbr*", "containers"),
    ("cni*", "containers"),
    ("docker*", "containers"),
    ("lxcbr*", "containers"),
    ("lxdbr*", "containers"),
    ("podman*", "containers"),
    ("virbr*", "virtual machines"),
];

/// Returns a description of an interface in words, such as "virtual: WireGuard".
pub(super) fn describe(name: &str, facts: &InterfaceFacts, class: InterfaceClass) -> String {
    let kind = facts.kind.as_deref();
    match class {
        InterfaceClass::Loopback => "loopback".into(),
        InterfaceClass::Device => describe_device(facts),
        _ if is_layered(facts) => over(facts),
        InterfaceClass::Cable => match kind {
            Some(kind @ ("veth" | "netkit")) => format!("cable to another namespace ({kind})"),
            Some(kind) => format!("{} over another namespace's interface", spell(kind)),
            None => "cable to another namespace, by its name".into(),
        },
        InterfaceClass::Tunnel => describe_tunnel(facts),
        InterfaceClass::Isolated => describe_isolated(name, facts),
    }
}

fn describe_device(facts: &InterfaceFacts) -> String {
    match facts.hardware {
        _ if !facts.lower.is_empty() && !facts.device => over(facts),
        ARPHRD_INFINIBAND => "InfiniBand device".into(),
        _ if facts.device => "device".into(),
        _ => "device, by its name".into(),
    }
}

fn describe_tunnel(facts: &InterfaceFacts) -> String {
    match facts.kind.as_deref() {
        // The kernel has one kind for both.
        Some("tun") if facts.hardware == ARPHRD_ETHER => "virtual: TAP".into(),
        Some("tun") => "virtual: TUN".into(),
        Some(kind) => format!("virtual: {}", spell(kind)),
        None if facts.point_to_point => "point-to-point link".into(),
        None if facts.hardware > ARPHRD_ETHER => "virtual: tunnel".into(),
        None => "virtual: tunnel, by its name".into(),
    }
}

fn describe_isolated(name: &str, facts: &InterfaceFacts) -> String {
    let bridge = BRIDGES.iter().find(|(pattern, _)| name_matches(name, pattern));
    match (facts.kind.as_deref(), bridge) {
        (Some("bridge") | None, Some((_, of))) => format!("bridge of {of}"),
        (Some("bridge"), None) => "bridge without a device".into(),
        (Some("veth" | "netkit"), _) => "virtual: cable within this host".into(),
        (Some(kind @ ("bond" | "team")), _) => format!("{kind} without ports"),
        (Some(kind), _) => format!("virtual: {}", spell(kind)),
        (None, None) => "virtual, by its name".into(),
    }
}

/// Returns whether the description of an interface is that of the interfaces below it. A tunnel is described by its
/// protocol instead, and a bridge by its use.
fn is_layered(facts: &InterfaceFacts) -> bool {
    let layered = |kind: &str| matches!(kind, "bond" | "team") || LAYERED.contains(&kind);
    !facts.point_to_point && !facts.lower.is_empty() && facts.kind.as_deref().is_some_and(layered)
}

/// Returns the kind of an interface and the names of the best ones below it, such as "bond over
/// eth0, eth1".
fn over(facts: &InterfaceFacts) -> String {
    let kind = facts.kind.as_deref().map_or("interface", spell);
    let class = |(name, lower): &(String, InterfaceFacts)| classify(name, lower);
    let best = facts.lower.iter().map(class).min();
    let names: Vec<&str> = facts
        .lower
        .iter()
        .filter(|lower| Some(class(lower)) == best)
        .map(|(name, _)| name.as_str())
        .collect();
    let more = names.len().saturating_sub(NAMED);
    let named = names[..names.len() - more].join(", ");
    if more > 0 {
        format!("{kind} over {named} and {more} more")
    } else {
        format!("{kind} over {named}")
    }
}

fn spell(kind: &str) -> &str {
    SPELLINGS.iter().find(|(name, _)| *name == kind).map_or(kind, |(_, spelling)| spelling)
}
