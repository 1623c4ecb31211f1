//! Three described hosts, and the page that shows doctor's output about one of them.

use std::net::{IpAddr, SocketAddr};

use squall_net::iface::{Iface, InterfaceFacts, Route, UnaddressedInterface, select};
use squall_netsim::documents::is_up_to_date;

use super::command::{summarize, write_section};
use super::finding::Level;
use super::{interface, peers};

/// A host as the kernel describes its network interfaces.
struct Host {
    /// Interfaces with addresses, in the kernel's order.
    addressed: Vec<Iface>,
    unaddressed: Vec<UnaddressedInterface>,
}

fn facts(kind: &str, hardware: u16) -> InterfaceFacts {
    InterfaceFacts { kind: Some(kind.to_owned()), hardware, ..InterfaceFacts::default() }
}

fn card() -> InterfaceFacts {
    InterfaceFacts { device: true, hardware: 1, ..InterfaceFacts::default() }
}

fn over(kind: &str, lower: &[(&str, InterfaceFacts)]) -> InterfaceFacts {
    let lower = lower.iter().map(|(name, facts)| ((*name).to_owned(), facts.clone())).collect();
    InterfaceFacts { lower, ..facts(kind, 1) }
}

/// Describes an interface that is up and has a carrier.
fn iface(index: u32, name: &str, address: &str, mtu: u32, facts: InterfaceFacts) -> Iface {
    let (addr, prefix) = address.split_once('/').expect("an address with a prefix");
    Iface {
        name: name.to_owned(),
        index,
        addr: addr.parse().expect("an address"),
        prefix: prefix.parse().expect("a prefix"),
        up: true,
        running: true,
        loopback: name == "lo",
        mtu,
        speed_mbps: None,
        default_route: None,
        facts,
    }
}

/// Describes an interface without address.
fn bare(name: &str, port_of: Option<&str>, facts: InterfaceFacts) -> UnaddressedInterface {
    UnaddressedInterface {
        name: name.to_owned(),
        up: true,
        running: true,
        mtu: 1500,
        port_of: port_of.map(str::to_owned),
        facts,
    }
}

/// A laptop: Wi-Fi, a VPN with a default route of its own, another VPN, containers and virtual
/// machines.
fn laptop() -> Host {
    let tunnel = |kind| InterfaceFacts { point_to_point: true, ..facts(kind, 65_534) };
    let addressed = vec![
        iface(1, "lo", "127.0.0.1/8", 65_536, InterfaceFacts::default()),
        Iface {
            default_route: Some(50),
            ..iface(2, "wg0", "10.8.0.2/32", 1420, tunnel("wireguard"))
        },
        Iface { running: false, ..iface(3, "docker0", "172.17.0.1/16", 1500, facts("bridge", 1)) },
        iface(
            4,
            "br-3b50c1",
            "172.18.0.1/16",
            1500,
            over("bridge", &[("veth0", facts("veth", 1))]),
        ),
        Iface {
            running: false,
            ..iface(5, "virbr0", "192.168.122.1/24", 1500, facts("bridge", 1))
        },
        iface(6, "tailscale0", "100.101.102.103/32", 1280, tunnel("tun")),
        Iface {
            default_route: Some(600),
            ..iface(8, "wlp0s20f3", "192.168.1.23/24", 1500, card())
        },
        iface(8, "wlp0s20f3", "fe80::5c1e/64", 1500, card()),
    ];
    let unaddressed = vec![
        UnaddressedInterface { running: false, ..bare("enp0s31f6", None, card()) },
        bare("vethab12cd", Some("br-3b50c1"), facts("veth", 1)),
    ];
    Host { addressed, unaddressed }
}

/// A machine in a cloud: one card, and a Kubernetes node's interfaces (Cilium's, and the cables to
/// its containers).
fn cloud() -> Host {
    let cable = || facts("veth", 1);
    let within = || InterfaceFacts { peer_here: true, ..cable() };
    let addressed = vec![
        iface(1, "lo", "127.0.0.1/8", 65_536, InterfaceFacts::default()),
        Iface { running: false, ..iface(3, "docker0", "172.17.0.1/16", 1500, facts("bridge", 1)) },
        iface(5, "cilium_host", "10.244.1.18/32", 9001, within()),
        Iface { default_route: Some(100), ..iface(8, "ens5", "10.0.3.17/20", 9001, card()) },
        iface(8, "ens5", "fe80::c1d/64", 9001, card()),
    ];
    let ends = ["lxc0a41", "lxc3f02", "lxc77b9", "lxc90de", "lxcbe15"];
    let mut unaddressed =
        vec![bare("cilium_net", None, within()), bare("cilium_vxlan", None, facts("vxlan", 1))];
    unaddressed.extend(ends.map(|name| bare(name, None, cable())));
    Host { addressed, unaddressed }
}

/// A node of a cluster: a management network with the default route, Ethernet of two bonded cards,
/// and InfiniBand.
fn node() -> Host {
    let bond = over("bond", &[("ens1f0", card()), ("ens1f1", card())]);
    let ib = InterfaceFacts { device: true, ..facts("ipoib", 32) };
    let speed = |mbps, iface| Iface { speed_mbps: Some(mbps), ..iface };
    let addressed = vec![
        iface(1, "lo", "127.0.0.1/8", 65_536, InterfaceFacts::default()),
        Iface {
            default_route: Some(100),
            ..speed(1000, iface(2, "eno1", "10.10.4.7/16", 1500, card()))
        },
        Iface { running: false, ..iface(3, "eno2", "10.11.4.7/16", 1500, card()) },
        iface(4, "enp0s20u1", "169.254.3.1/24", 1500, card()),
        speed(200_000, iface(7, "ib0", "10.20.4.7/16", 2044, ib)),
        speed(100_000, iface(8, "bond0", "10.30.4.7/16", 9000, bond)),
    ];
    let unaddressed =
        vec![bare("ens1f0", Some("bond0"), card()), bare("ens1f1", Some("bond0"), card())];
    Host { addressed, unaddressed }
}

impl Host {
    /// Returns the sections of doctor's output about interfaces and about the routes to peers. Each
    /// peer is an address, the interface by which the kernel's route leaves, and the router.
    fn output(&self, expression: &str, peers: &[(&str, &str, Option<&str>)]) -> String {
        let selected = select(self.addressed.clone(), expression);
        let found = interface::judge(selected, &self.unaddressed, expression);
        let mut out = Vec::new();
        let mut all = found.findings.clone();
        write_section(&mut out, "interface", &found.table, &found.findings).expect("memory");
        let chosen = found.chosen.expect("each host has an interface");
        for (peer, name, gateway) in peers {
            let address: IpAddr = peer.parse().expect("an address");
            let by = self.addressed.iter().find(|iface| iface.name == *name).expect("a name");
            let gateway = gateway.map(|ip| ip.parse().expect("an address"));
            let route = Route { index: by.index, gateway, ..Route::default() };
            let peer_address = SocketAddr::new(address, peers::PORT);
            let finding =
                peers::judge_route(peer_address, &route, &route, &chosen, &self.addressed);
            write_section(&mut out, &format!("peer {peer}"), &[], std::slice::from_ref(&finding))
                .expect("memory");
            all.push(finding);
        }
        let count = |level| all.iter().filter(|finding| finding.level == level).count();
        let text = String::from_utf8(out).expect("text");
        format!("{text}{}\n", summarize(count(Level::Fault), count(Level::Note)))
    }

    /// Returns the name of the interface that is chosen in any order of the kernel's list.
    fn choice(&self, expression: &str) -> String {
        let chosen = |all: Vec<Iface>| {
            interface::judge(select(all, expression), &[], expression).chosen.expect("one").name
        };
        let first = chosen(self.addressed.clone());
        for by in 1..self.addressed.len() {
            let mut all = self.addressed.clone();
            all.rotate_left(by);
            assert_eq!(chosen(all.clone()), first, "rotated by {by}");
            all.reverse();
            assert_eq!(chosen(all), first, "rotated by {by} and reversed");
        }
        first
    }
}

#[test]
fn each_host_chooses_the_interface_that_leads_to_the_others() {
    assert_eq!(laptop().choice(""), "wlp0s20f3");
    assert_eq!(cloud().choice(""), "ens5");
    assert_eq!(node().choice(""), "eno1");
    assert_eq!(laptop().choice("wg0"), "wg0");
    assert_eq!(node().choice("10.20.0.0/16"), "ib0");
}

#[test]
fn every_interface_has_one_line() {
    for host in [laptop(), cloud(), node()] {
        let selected = select(host.addressed.clone(), "");
        let table = interface::judge(selected, &host.unaddressed, "").table;
        let lines = |name: &str| {
            table.iter().filter(|line| line.split_whitespace().next() == Some(name)).count()
        };
        for iface in &host.addressed {
            assert_eq!(lines(&iface.name), 1, "{}: {table:#?}", iface.name);
        }
        let ends = host.unaddressed.iter().filter(|iface| iface.name.starts_with("lxc"));
        let folded = ends.clone().filter(|iface| lines(&iface.name) == 0).count();
        assert_eq!(folded, if ends.count() > 0 { 3 } else { 0 }, "{table:#?}");
        let counted = table.iter().filter(|line| line.ends_with("; and 3 more like it")).count();
        assert_eq!(counted, folded / 3, "{table:#?}");
    }
}

#[test]
fn a_faster_network_than_the_default_routes_is_noted() {
    let found = |expression: &str| {
        interface::judge(select(node().addressed, expression), &[], expression).findings
    };
    let [chosen, faster] = &found("")[..] else { panic!("{:?}", found("")) };
    assert_eq!((chosen.level, faster.level), (Level::Well, Level::Note));
    let cure = faster.cure.as_deref();
    assert!(cure.is_some_and(|cure| cure.starts_with("export FI_SQUALL_IFACE=ib0 ")), "{faster}");
    assert_eq!(found("eno1").len(), 1, "the user decided");
    let mut slow = node().addressed;
    slow.retain(|iface| !["ib0", "bond0"].contains(&iface.name.as_str()));
    assert_eq!(interface::judge(select(slow, ""), &[], "").findings.len(), 1);
}

#[test]
fn a_host_without_a_usable_interface_is_a_fault_with_a_cure() {
    let mut down = node().addressed;
    down.iter_mut().for_each(|iface| iface.up = false);
    for (all, bare) in [(vec![], vec![]), (vec![], node().unaddressed), (down, vec![])] {
        let found = interface::judge(select(all, ""), &bare, "");
        let [finding] = &found.findings[..] else { panic!("{:?}", found.findings) };
        assert!(found.chosen.is_none() && finding.level == Level::Fault, "{finding}");
        let cure = finding.cure.as_deref();
        assert!(cure.is_some_and(|cure| cure.starts_with("ip link set NAME up")), "{finding}");
    }
}

/// The routes to the peers are those that the described hosts would have.
#[test]
fn a_route_by_another_interface_is_a_fault_with_a_cure() {
    let peers = [("192.168.1.40", "wlp0s20f3", None), ("10.64.0.7", "wg0", None)];
    let output = laptop().output("", &peers);
    assert!(output.contains("the way to 192.168.1.40:4793 leaves by wlp0s20f3\n"), "{output}");
    assert!(output.contains("FAULT the way to 10.64.0.7:4793 leaves by wg0, but "), "{output}");
    assert!(output.contains("-> export FI_SQUALL_IFACE=wg0 "), "{output}");
    let output = cloud().output("", &[("10.0.19.4", "ens5", Some("10.0.0.1"))]);
    assert!(output.contains("leaves by ens5, router 10.0.0.1\nno faults, no notes"), "{output}");
    let output = node().output("bond0", &[("10.30.4.8", "bond0", None)]);
    assert!(output.contains("leaves by bond0\nno faults, no notes"), "{output}");
}

#[test]
fn the_page_of_hosts_is_up_to_date() {
    // The page leaves out the interfaces that are not used.
    let output: String = node()
        .output("", &[("10.30.4.8", "bond0", None)])
        .lines()
        .filter(|line| !line.contains("  not used  "))
        .flat_map(|line| [line, "\n"])
        .collect();
    let mut page = include_str!("../../../docs/hosts.md").to_owned();
    let prompt = "\n```text\n$ squall doctor 10.30.4.8\n";
    let start = page.find(prompt).map(|at| at + prompt.len()).expect("doctor's block");
    let end = page[start..].find("```\n").map(|at| start + at).expect("the block's end");
    page.replace_range(start..end, &output);
    is_up_to_date("hosts.md", &page);
}

#[test]
fn two_cards_of_one_network_need_a_loose_filter() {
    let cards = |addresses: [&str; 3]| {
        let ifaces = ["eth0", "eth1", "eth2"].iter().zip(addresses).zip(2..);
        let ifaces =
            ifaces.map(|((name, address), index)| iface(index, name, address, 9000, card()));
        select(ifaces.collect(), "eth*").expect("three cards")
    };
    let apart = cards(["10.1.0.1/24", "10.2.0.1/24", "fd00::1/64"]);
    let judge = |cards: &[_], rails, strict: bool| {
        let found = interface::judge_rails(cards, rails, |_| strict);
        let levels: Vec<Level> = found.iter().map(|finding| finding.level).collect();
        (levels, found.iter().map(ToString::to_string).collect::<String>())
    };
    for rails in ["", "1", "none"] {
        assert_eq!(judge(&apart, rails, true).0, []);
    }
    let (levels, text) = judge(&apart, "all", true);
    assert_eq!(levels, [Level::Well], "{text}");
    assert!(text.contains("eth0, eth1 together"), "{text}");
    let together = cards(["10.1.0.1/24", "10.1.0.2/24", "10.1.0.3/24"]);
    assert_eq!(judge(&together, "2", false).0, [Level::Well]);
    let (levels, text) = judge(&together, "all", true);
    assert_eq!(levels, [Level::Well, Level::Fault, Level::Fault]);
    assert!(text.contains("sysctl -w net.ipv4.conf.eth1.rp_filter=2"), "{text}");
    let alone = judge(&cards(["10.1.0.1/24", "fd00::1/64", "fd00::2/64"]), "2", true);
    assert_eq!(alone.0, [Level::Note], "{}", alone.1);
}
