use super::*;

fn iface(name: &str, addr: &str) -> Iface {
    let (addr, prefix) = addr.split_once('/').unwrap();
    Iface {
        name: name.into(),
        index: 1,
        addr: addr.parse().unwrap(),
        prefix: prefix.parse().unwrap(),
        up: true,
        running: true,
        loopback: name == "lo",
        mtu: 1500,
        speed_mbps: None,
        default_route: None,
        facts: InterfaceFacts::default(),
    }
}

fn host() -> Vec<Iface> {
    let mut down = iface("eth9", "10.9.0.1/16");
    down.up = false;
    vec![
        iface("lo", "127.0.0.1/8"),
        iface("lo", "::1/128"),
        down,
        iface("eth0", "10.0.0.5/24"),
        iface("eth0", "fe80::1/64"),
        iface("docker0", "172.17.0.1/16"),
        iface("eth1", "10.1.0.5/24"),
        iface("eth1:2", "192.168.7.1/24"),
        iface("ib0", "2001:db8::5/64"),
    ]
}

fn kept(expression: &str) -> Vec<String> {
    let all = select(host(), expression).unwrap();
    assert_eq!(all.len(), host().len());
    all.iter().filter(|c| c.kept).map(|c| c.iface.addr.to_string()).collect()
}

fn reason(expression: &str, addr: &str) -> String {
    let all = select(host(), expression).unwrap();
    let c = all.iter().find(|c| c.iface.addr.to_string() == addr).unwrap();
    c.to_string()
}

#[test]
fn the_default_excludes_interfaces_that_lead_nowhere() {
    assert_eq!(kept(""), ["10.0.0.5", "10.1.0.5", "192.168.7.1", "2001:db8::5"]);
    assert_eq!(
        reason("", "172.17.0.1"),
        "docker0 172.17.0.1/16: dropped (bridge of containers; a better interface is up)"
    );
    assert_eq!(
        reason("", "fe80::1"),
        "eth0 fe80::1/64: dropped (device, by its name; link-local address)"
    );
    assert_eq!(reason("", "10.9.0.1"), "eth9 10.9.0.1/16: dropped (device, by its name; down)");
    assert_eq!(
        reason("", "127.0.0.1"),
        "lo 127.0.0.1/8: dropped (loopback; a better interface is up)"
    );
}

#[test]
fn loopback_is_used_when_alone_or_selected() {
    let all = select(vec![iface("lo", "127.0.0.1/8")], "").unwrap();
    assert!(all[0].kept && all[0].iface.loopback);
    assert_eq!(all[0].reason, "loopback; no better interface is up");
    let bridge = vec![iface("lo", "127.0.0.1/8"), iface("docker0", "172.17.0.1/16")];
    let all = select(bridge, "").unwrap();
    assert!(all[0].kept && all[0].iface.name == "docker0" && !all[1].kept);
    assert_eq!(kept("lo"), ["127.0.0.1", "::1"]);
    assert_eq!(kept("127.0.0.0/8"), ["127.0.0.1"]);
    assert_eq!(kept("lo,eth0"), ["10.0.0.5", "127.0.0.1", "::1"]);
}

/// In a container or a network namespace, the end of a veth pair is the way out. On a host, the end
/// leads to the host's own containers.
#[test]
fn a_veth_is_used_without_devices() {
    let kept = |all: &[Iface]| -> Vec<String> {
        let all = select(all.to_vec(), "").unwrap();
        all.iter().filter(|c| c.kept).map(|c| c.iface.addr.to_string()).collect()
    };
    let (lo, veth) = (iface("lo", "127.0.0.1/8"), iface("veth0", "10.0.0.1/24"));
    let (eth, docker) = (iface("eth0", "10.1.0.1/24"), iface("docker0", "172.17.0.1/16"));
    assert_eq!(kept(&[lo.clone(), veth.clone()]), ["10.0.0.1"]);
    assert_eq!(kept(&[lo.clone(), docker.clone(), veth.clone()]), ["10.0.0.1"]);
    assert_eq!(kept(&[lo.clone(), veth.clone(), docker, eth.clone()]), ["10.1.0.1"]);
    // Selected by the user, it has the position that the user gave it.
    let all = select(vec![lo, eth, veth], "veth*,eth0").unwrap();
    assert_eq!(all[0].iface.name, "veth0");
}

/// The kernel reports the carrier of a new link late, so an interface that is up without one may
/// work soon. Loopback never will.
#[test]
fn a_link_that_does_not_run_is_better_than_none() {
    let quiet = |name: &str, addr: &str| Iface { running: false, ..iface(name, addr) };
    let (lo, eth) = (iface("lo", "127.0.0.1/8"), quiet("eth0", "10.0.0.1/24"));
    let all = select(vec![lo.clone(), eth.clone()], "").unwrap();
    assert_eq!(
        all[0].to_string(),
        "eth0 10.0.0.1/24: kept (device, by its name; no interface has a link with a carrier)"
    );
    assert!(!all[1].kept);
    // Beside one that runs it would be a rail that leads nowhere.
    for expression in ["", "eth*", "10.0.0.0/8"] {
        let two = vec![lo.clone(), eth.clone(), iface("eth1", "10.1.0.1/24")];
        let all = select(two, expression).unwrap();
        assert_eq!((all[0].kept, all[0].iface.name.as_str()), (true, "eth1"));
        let eth0 = all.iter().find(|c| c.iface.name == "eth0").unwrap().to_string();
        assert!(
            eth0.ends_with(": dropped (device, by its name; its link has no carrier, and that of another interface has one)"),
            "{eth0}"
        );
    }
    // Selected by the user, it is kept.
    let all = select(vec![lo, eth, iface("eth1", "10.1.0.1/24")], "eth0").unwrap();
    assert_eq!(
        all[0].to_string(),
        "eth0 10.0.0.1/24: kept (device, by its name; matches eth0; no interface has a link with a carrier)"
    );
}

#[test]
fn terms_include_in_their_order() {
    assert_eq!(kept("eth1,eth0"), ["10.1.0.5", "192.168.7.1", "10.0.0.5"]);
    assert_eq!(kept("eth*"), ["10.0.0.5", "10.1.0.5", "192.168.7.1"]);
    assert_eq!(kept("10.0.0.0/8"), ["10.0.0.5", "10.1.0.5"]);
    assert_eq!(kept("10.1.2.3/15, ib0"), ["10.0.0.5", "10.1.0.5", "2001:db8::5"]);
    assert_eq!(kept("2001:db8::/32"), ["2001:db8::5"]);
    assert_eq!(kept("10.1.0.5"), ["10.1.0.5"]);
    assert_eq!(kept("docker0"), ["172.17.0.1"]);
    assert_eq!(kept("fe80::/10"), ["fe80::1"]);
    assert_eq!(kept("0.0.0.0/0").last().unwrap(), "127.0.0.1");
    assert_eq!(
        reason("10.0.0.0/8", "10.0.0.5"),
        "eth0 10.0.0.5/24: kept (device, by its name; matches 10.0.0.0/8)"
    );
}

#[test]
fn a_caret_excludes() {
    assert_eq!(kept("^eth1"), ["10.0.0.5", "2001:db8::5"]);
    assert_eq!(kept("^eth1,ib0"), ["10.0.0.5"]);
    assert_eq!(kept("eth*,^10.0.0.0/16"), ["10.1.0.5", "192.168.7.1"]);
    assert_eq!(kept("^eth*,ib*"), ["172.17.0.1"]);
    assert_eq!(kept("^eth*,ib*,docker*"), ["127.0.0.1", "::1"]);
    assert_eq!(
        reason("^eth1", "10.1.0.5"),
        "eth1 10.1.0.5/24: dropped (device, by its name; excluded by ^eth1)"
    );
}

#[test]
fn mistakes_are_explained() {
    for (expression, word) in [
        ("10.0.0.0/33", "longer than the address"),
        ("10.0.0/8", "no IP address"),
        ("10.0.0.0/x", "no number"),
        ("^", "is empty"),
        ("eth 0", "not an interface name"),
    ] {
        let text = select(host(), expression).unwrap_err().to_string();
        assert!(text.contains(word), "{text}");
    }
    let text = select(host(), "eth7").unwrap_err().to_string();
    assert!(text.contains("\"eth7\" matches no usable interface; the host has"), "{text}");
    assert!(
        text.contains("eth0 10.0.0.5/24: dropped (device, by its name; not selected)"),
        "{text}"
    );
    assert!(select(host(), "eth9").is_err(), "down is down, even by name");
}

#[test]
fn networks_are_masked() {
    assert_eq!(iface("a", "10.1.2.3/20").network().to_string(), "10.1.0.0");
    assert_eq!(iface("a", "10.1.2.3/0").network().to_string(), "0.0.0.0");
    assert_eq!(iface("a", "2001:db8:1:2::3/48").network().to_string(), "2001:db8:1::");
    assert_eq!(iface("a", "::1/128").network().to_string(), "::1");
}

#[test]
fn this_host_has_a_loopback() {
    let all = list().unwrap();
    let lo = all.iter().find(|i| i.addr.to_string() == "127.0.0.1").unwrap();
    assert!(lo.loopback && lo.up && lo.index > 0, "{lo:?}");
    assert_eq!(lo.prefix, 8);
    assert!(lo.mtu >= 1500);
    // This is ARPHRD_LOOPBACK, as rtnetlink reports it.
    assert_eq!((lo.facts.hardware, lo.class()), (772, InterfaceClass::Loopback));
}

/// Builds a software interface of a kind, as the kernel describes it.
fn made(name: &str, addr: &str, kind: &str) -> Iface {
    let facts =
        InterfaceFacts { kind: Some(kind.into()), hardware: 1, ..InterfaceFacts::default() };
    Iface { facts, ..iface(name, addr) }
}

/// Builds a card.
fn card(name: &str, addr: &str) -> Iface {
    let facts = InterfaceFacts { device: true, hardware: 1, ..InterfaceFacts::default() };
    Iface { facts, ..iface(name, addr) }
}

/// Builds twenty interfaces, numbered in the order of the list. Their names say nothing, and two of them mislead.
fn twenty() -> Vec<Iface> {
    let over = |lower: &Iface, upper: Iface| {
        let lower = vec![(lower.name.clone(), lower.facts.clone())];
        Iface { facts: InterfaceFacts { lower, ..upper.facts.clone() }, ..upper }
    };
    let hardware = |hardware: u16, iface: Iface| Iface {
        facts: InterfaceFacts { hardware, ..iface.facts.clone() },
        ..iface
    };
    let one_peer = |iface: Iface| Iface {
        facts: InterfaceFacts { point_to_point: true, ..iface.facts.clone() },
        ..iface
    };
    let (port, cable) = (card("p0", "10.9.9.1/24"), made("v0", "10.9.9.2/24", "veth"));
    let mut all = vec![
        iface("lo", "127.0.0.1/8"),
        made("a1", "172.17.0.1/16", "bridge"),
        over(&cable, made("enp28s0", "172.18.0.1/16", "bridge")),
        one_peer(made("a3", "10.8.0.2/32", "tun")),
        hardware(65_534, made("a4", "100.64.0.5/32", "tun")),
        made("a5", "10.6.0.2/24", "wireguard"),
        hardware(512, iface("a6", "10.5.0.2/32")),
        over(&port, made("a7", "10.244.0.0/32", "vxlan")),
        made("a8", "10.255.0.1/32", "dummy"),
        made("a9", "10.30.0.1/24", "openvswitch"),
        made("b0", "10.31.0.1/24", "veth"),
        over(&cable, made("b1", "10.32.0.1/24", "vlan")),
        hardware(768, iface("b2", "10.33.0.1/24")),
        made("b3", "10.34.0.1/24", "team"),
        card("docker9", "10.20.0.1/24"),
        over(&port, made("b5", "10.21.0.1/24", "bond")),
        over(&port, made("b6", "10.22.0.1/24", "vlan")),
        over(&port, made("b7", "10.23.0.1/24", "bridge")),
        card("b8", "10.24.0.1/24"),
        made("b9", "10.35.0.1/24", "gretap"),
    ];
    for (iface, index) in all.iter_mut().zip(1..) {
        iface.index = index;
    }
    all
}

/// Returns the kept addresses, and checks that they are the same in every order of the list: all rotations, and
/// shuffles.
fn kept_in_every_order(all: &[Iface]) -> Vec<String> {
    let kept = |all: Vec<Iface>| -> Vec<String> {
        let all = select(all, "").unwrap();
        all.iter().filter(|c| c.kept).map(|c| c.iface.addr.to_string()).collect()
    };
    let (expected, mut random) = (kept(all.to_vec()), 1_u64);
    for by in 0..all.len() {
        let mut order = all.to_vec();
        order.rotate_left(by);
        assert_eq!(kept(order.clone()), expected, "rotated by {by}");
        for _ in 0..20 {
            for end in (1..order.len()).rev() {
                // The orders come from Knuth's generator: which orders they are does not matter, but each run has the
                // same ones.
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                order.swap(end, (random >> 33) as usize % (end + 1));
            }
            assert_eq!(kept(order.clone()), expected, "{order:?}");
        }
    }
    expected
}

#[test]
fn twenty_interfaces_give_one_choice_in_every_order() {
    let mut all = twenty();
    let devices = ["10.20.0.1", "10.21.0.1", "10.22.0.1", "10.23.0.1", "10.24.0.1"];
    let at =
        |all: &[Iface], addr: &str| all.iter().position(|i| i.addr.to_string() == addr).unwrap();
    assert_eq!(kept_in_every_order(&all), devices, "by the kernel's number");
    let (bridge, vlan, last) =
        (at(&all, "10.23.0.1"), at(&all, "10.22.0.1"), at(&all, "10.24.0.1"));
    all[bridge].speed_mbps = Some(10_000);
    all[last].speed_mbps = Some(100_000);
    let fastest = ["10.24.0.1", "10.23.0.1", "10.20.0.1", "10.21.0.1", "10.22.0.1"];
    assert_eq!(kept_in_every_order(&all), fastest);
    // A default route comes before speed, but a default route through a VPN does not make the VPN a device.
    let tunnel = at(&all, "10.8.0.2");
    (all[tunnel].default_route, all[tunnel].speed_mbps) = (Some(0), Some(400_000));
    (all[vlan].default_route, all[bridge].default_route) = (Some(100), Some(600));
    let routed = ["10.22.0.1", "10.23.0.1", "10.24.0.1", "10.20.0.1", "10.21.0.1"];
    assert_eq!(kept_in_every_order(&all), routed);
    // Without devices the virtual cables lead out, as in a container.
    all.retain(|i| i.class() != InterfaceClass::Device);
    assert_eq!(kept_in_every_order(&all), ["10.31.0.1", "10.32.0.1"]);
    all.retain(|i| i.class() != InterfaceClass::Cable);
    let rest = kept_in_every_order(&all);
    let tunnels = ["10.8.0.2", "100.64.0.5", "10.6.0.2", "10.5.0.2", "10.244.0.0"];
    let more = ["10.33.0.1", "10.35.0.1", "172.17.0.1", "172.18.0.1", "10.255.0.1"];
    assert_eq!(rest[..5], tunnels);
    assert_eq!(rest[5..10], more);
    assert_eq!(rest[10..], ["10.30.0.1", "10.34.0.1"]);
    all.retain(|i| i.loopback);
    assert_eq!(kept_in_every_order(&all), ["127.0.0.1"]);
}

#[test]
fn interfaces_that_are_asked_for_are_kept() {
    let kept = |expression: &str| -> Vec<String> {
        let all = select(twenty(), expression).unwrap();
        all.iter().filter(|c| c.kept).map(|c| c.iface.addr.to_string()).collect()
    };
    assert_eq!(kept("a3"), ["10.8.0.2"]);
    assert_eq!(kept("172.18.0.0/16,docker9"), ["172.18.0.1", "10.20.0.1"]);
    // Within one term the rank decides.
    assert_eq!(kept("a3,10.8.0.0/13"), ["10.8.0.2"]);
    assert_eq!(kept("10.16.0.0/12")[..2], ["10.20.0.1", "10.21.0.1"]);
    assert_eq!(kept("10.0.0.0/8")[0], "10.20.0.1");
}

#[test]
fn names_classify_interfaces_without_kernel_facts() {
    let class = |name: &str| iface(name, "10.0.0.1/24").class();
    for name in ["eth0", "enp3s0f1np1", "ib0", "hsn0", "bond0", "br0", "team0", "ens5.100"] {
        assert_eq!(class(name), InterfaceClass::Device, "{name}");
    }
    for name in ["docker0", "br-3b50", "virbr0", "cni0", "podman1", "dummy0"] {
        assert_eq!(class(name), InterfaceClass::Isolated, "{name}");
    }
    for name in ["tailscale0", "wg0", "tun3", "tap0", "ppp0", "vxlan.calico", "flannel.1"] {
        assert_eq!(class(name), InterfaceClass::Tunnel, "{name}");
    }
    assert_eq!(
        (class("veth1a2b"), class("cali12")),
        (InterfaceClass::Cable, InterfaceClass::Cable)
    );
    assert_eq!(iface("lo", "127.0.0.1/8").class(), InterfaceClass::Loopback);
}

/// Builds the facts of an interface of this kind over others. A kind of "" stands for none.
fn facts(kind: &str, hardware: u16, lower: &[(&str, &InterfaceFacts)]) -> InterfaceFacts {
    let lower = lower.iter().map(|(name, facts)| ((*name).to_owned(), (*facts).clone())).collect();
    let kind = (!kind.is_empty()).then(|| kind.to_owned());
    InterfaceFacts { kind, hardware, lower, ..InterfaceFacts::default() }
}

/// The names are those that programs choose, and the facts are as Linux reports them.
#[test]
fn every_kind_of_interface_has_a_class_and_a_description() {
    use InterfaceClass::{Cable, Device, Isolated, Tunnel};
    let card = InterfaceFacts { device: true, ..facts("", 1, &[]) };
    let (ib, veth) =
        (InterfaceFacts { device: true, ..facts("ipoib", 32, &[]) }, facts("veth", 1, &[]));
    let within = InterfaceFacts { peer_here: true, ..veth.clone() };
    let tunnel = |kind: &str| InterfaceFacts { point_to_point: true, ..facts(kind, 65_534, &[]) };
    let bridge = |ports: &[(&str, &InterfaceFacts)]| facts("bridge", 1, ports);
    let bond = facts("bond", 1, &[("eth0", &card), ("eth1", &card)]);
    let over = |kind: &str, name: &str, lower: &InterfaceFacts| facts(kind, 1, &[(name, lower)]);
    let uplink = bridge(&[("veth1", &veth), ("eth0", &card)]);
    let many: Vec<String> = (0..6).map(|port| format!("eth{port}")).collect();
    let many: Vec<_> = many.iter().map(|name| (name.as_str(), &card)).collect();
    for (name, facts, class, description) in [
        ("eno1", card.clone(), Device, "device"),
        ("eno1", InterfaceFacts::default(), Device, "device, by its name"),
        ("ib0", ib.clone(), Device, "InfiniBand device"),
        ("ib0.8001", facts("ipoib", 32, &[("ib0", &ib)]), Device, "InfiniBand partition over ib0"),
        ("bond0", bond.clone(), Device, "bond over eth0, eth1"),
        ("bond1", facts("bond", 1, &many), Device, "bond over eth0, eth1, eth2, eth3 and 2 more"),
        ("bond2", facts("bond", 1, &[]), Isolated, "bond without ports"),
        ("bond0.7", over("vlan", "bond0", &bond), Device, "VLAN over bond0"),
        ("macvlan0", over("macvlan", "eth0", &card), Device, "macvlan over eth0"),
        ("br0", uplink.clone(), Device, "bridge over eth0"),
        // A VPN's VLAN, and a container's interfaces over those of its host.
        ("tun0.5", over("vlan", "tun0", &tunnel("tun")), Tunnel, "VLAN over tun0"),
        ("eth0", facts("macvlan", 1, &[]), Cable, "macvlan over another namespace's interface"),
        ("eth0", facts("vlan", 1, &[]), Cable, "VLAN over another namespace's interface"),
        ("eth0", veth.clone(), Cable, "cable to another namespace (veth)"),
        ("vethab12", InterfaceFacts::default(), Cable, "cable to another namespace, by its name"),
        ("eth0.5", over("vlan", "eth0", &veth), Cable, "VLAN over eth0"),
        ("cilium_host", within.clone(), Isolated, "virtual: cable within this host"),
        (
            "to-br0",
            InterfaceFacts { lower: vec![("br0".into(), uplink)], ..within },
            Device,
            "veth over br0",
        ),
        ("br-3b50", bridge(&[("veth1", &veth)]), Isolated, "bridge of containers"),
        ("docker0", bridge(&[]), Isolated, "bridge of containers"),
        ("cni0", bridge(&[("veth1", &veth)]), Isolated, "bridge of containers"),
        ("podman0", bridge(&[("veth1", &veth)]), Isolated, "bridge of containers"),
        (
            "virbr0",
            bridge(&[("vnet0", &facts("tun", 1, &[]))]),
            Isolated,
            "bridge of virtual machines",
        ),
        ("lan", bridge(&[("veth1", &veth)]), Isolated, "bridge without a device"),
        ("podman1", InterfaceFacts::default(), Isolated, "bridge of containers"),
        ("vmnet8", facts("", 1, &[]), Isolated, "virtual, by its name"),
        ("kube-ipvs0", facts("dummy", 1, &[]), Isolated, "virtual: dummy"),
        ("br-ex", facts("openvswitch", 1, &[]), Isolated, "virtual: Open vSwitch"),
        ("wg0", facts("wireguard", 65_534, &[]), Tunnel, "virtual: WireGuard"),
        ("tailscale0", tunnel("tun"), Tunnel, "virtual: TUN"),
        ("tun0", tunnel("tun"), Tunnel, "virtual: TUN"),
        ("tap0", facts("tun", 1, &[]), Tunnel, "virtual: TAP"),
        ("vnet0", facts("tun", 1, &[]), Tunnel, "virtual: TAP"),
        ("flannel.1", over("vxlan", "eth0", &card), Tunnel, "virtual: VXLAN"),
        ("vxlan.calico", over("vxlan", "eth0", &card), Tunnel, "virtual: VXLAN"),
        ("cilium_vxlan", facts("vxlan", 1, &[]), Tunnel, "virtual: VXLAN"),
        (
            "ppp0",
            InterfaceFacts { point_to_point: true, ..facts("", 512, &[]) },
            Tunnel,
            "point-to-point link",
        ),
        ("gre1", facts("", 778, &[]), Tunnel, "virtual: tunnel"),
        ("wg1", InterfaceFacts::default(), Tunnel, "virtual: tunnel, by its name"),
        // The kernel's facts count more than a misleading name.
        ("docker9", card.clone(), Device, "device"),
        ("eth9", facts("wireguard", 65_534, &[]), Tunnel, "virtual: WireGuard"),
    ] {
        let iface = Iface { facts, ..iface(name, "10.0.0.1/24") };
        assert_eq!((iface.class(), iface.description().as_str()), (class, description), "{name}");
    }
}

/// The interface below one in a container is outside the container.
#[test]
fn an_interface_over_another_namespace_is_a_cable() {
    for kind in ["macvlan", "ipvlan", "vlan", "macsec"] {
        assert_eq!(made("eth0", "10.0.0.2/24", kind).class(), InterfaceClass::Cable, "{kind}");
    }
    // A bond without ports leads nowhere.
    assert_eq!(made("bond0", "10.0.0.2/24", "bond").class(), InterfaceClass::Isolated);
}

#[test]
fn a_host_with_ipv6_alone_uses_its_device() {
    let mut all = vec![
        iface("lo", "::1/128"),
        made("br-1", "fd17::1/64", "bridge"),
        made("wg0", "fd99::2/64", "wireguard"),
        card("eth0", "2001:db8::5/64"),
        card("eth0", "fe80::1/64"),
        card("eth1", "2001:db8:1::5/64"),
    ];
    for (iface, index) in all.iter_mut().zip([1, 2, 3, 4, 4, 5]) {
        iface.index = index;
    }
    assert_eq!(kept_in_every_order(&all), ["2001:db8::5", "2001:db8:1::5"]);
    all[5].default_route = Some(1024);
    assert_eq!(kept_in_every_order(&all), ["2001:db8:1::5", "2001:db8::5"]);
    // IPv4 comes first where there is some.
    all.push(Iface { index: 6, ..card("eth2", "10.0.0.1/24") });
    assert_eq!(kept_in_every_order(&all), ["10.0.0.1", "2001:db8:1::5", "2001:db8::5"]);
}

/// A network of two addresses is not point-to-point: its interface is an ordinary Ethernet device.
#[test]
fn a_network_of_two_addresses_is_not_point_to_point() {
    let mut all = vec![
        made("docker0", "172.17.0.1/16", "bridge"),
        card("eth0", "10.1.1.0/31"),
        card("eth1", "10.1.2.1/32"),
    ];
    for (iface, index) in all.iter_mut().zip(1..) {
        iface.index = index;
    }
    assert_eq!(kept_in_every_order(&all), ["10.1.1.0", "10.1.2.1"]);
}

#[test]
fn all_hosts_choose_the_same_of_two_cards() {
    let mut all = vec![card("eth0", "10.0.0.1/24"), card("eth1", "10.0.0.2/24")];
    (all[0].index, all[1].index) = (2, 3);
    assert_eq!(kept_in_every_order(&all), ["10.0.0.1", "10.0.0.2"]);
    all[1].speed_mbps = Some(25_000);
    assert_eq!(kept_in_every_order(&all), ["10.0.0.2", "10.0.0.1"]);
    all[0].default_route = Some(0);
    assert_eq!(kept_in_every_order(&all), ["10.0.0.1", "10.0.0.2"]);
    // The interface with the default route has no carrier.
    all[0].running = false;
    assert_eq!(kept_in_every_order(&all), ["10.0.0.2"]);
}
