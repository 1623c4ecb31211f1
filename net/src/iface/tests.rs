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
fn the_default_leaves_out_what_leads_nowhere() {
    assert_eq!(kept(""), ["10.0.0.5", "10.1.0.5", "192.168.7.1", "2001:db8::5"]);
    assert_eq!(
        reason("", "172.17.0.1"),
        "docker0 172.17.0.1/16: dropped (docker*: virtual, leads to no peer)"
    );
    assert_eq!(reason("", "fe80::1"), "eth0 fe80::1/64: dropped (link-local)");
    assert_eq!(reason("", "10.9.0.1"), "eth9 10.9.0.1/16: dropped (down)");
    assert_eq!(reason("", "127.0.0.1"), "lo 127.0.0.1/8: dropped (loopback, and there are others)");
}

#[test]
fn loopback_serves_when_it_is_alone_or_asked_for() {
    let alone = vec![iface("lo", "127.0.0.1/8"), iface("docker0", "172.17.0.1/16")];
    let all = select(alone, "").unwrap();
    assert!(all[0].kept && all[0].iface.loopback && !all[1].kept);
    assert_eq!(kept("lo"), ["127.0.0.1", "::1"]);
    assert_eq!(kept("127.0.0.0/8"), ["127.0.0.1"]);
    assert_eq!(kept("lo,eth0"), ["10.0.0.5", "127.0.0.1", "::1"]);
}

/// In a container or a network namespace the end of a veth pair is the way out, by whatever name.
#[test]
fn a_cable_comes_last_but_before_loopback() {
    let kept = |all: &[Iface]| -> Vec<String> {
        let all = select(all.to_vec(), "").unwrap();
        all.iter().filter(|c| c.kept).map(|c| c.iface.addr.to_string()).collect()
    };
    let (lo, veth) = (iface("lo", "127.0.0.1/8"), iface("veth0", "10.0.0.1/24"));
    let (eth, docker) = (iface("eth0", "10.1.0.1/24"), iface("docker0", "172.17.0.1/16"));
    assert_eq!(kept(&[lo.clone(), veth.clone()]), ["10.0.0.1"]);
    assert_eq!(kept(&[lo.clone(), veth.clone(), docker, eth.clone()]), ["10.1.0.1", "10.0.0.1"]);
    // Asked for, it has the place that was asked for.
    let all = select(vec![lo, eth, veth], "veth*,eth0").unwrap();
    assert_eq!(all[0].iface.name, "veth0");
}

/// The kernel says late that a link which was just made runs, so an interface that is up without it may work soon;
/// loopback never will.
#[test]
fn a_link_that_does_not_run_is_better_than_none() {
    let quiet = |name: &str, addr: &str| Iface { running: false, ..iface(name, addr) };
    let (lo, eth) = (iface("lo", "127.0.0.1/8"), quiet("eth0", "10.0.0.1/24"));
    let all = select(vec![lo.clone(), eth.clone()], "").unwrap();
    assert_eq!(
        all[0].to_string(),
        "eth0 10.0.0.1/24: kept (up; no carrier, and there is no other)"
    );
    assert!(!all[1].kept);
    // With one that runs it would be a rail that leads nowhere.
    for expression in ["", "eth*", "10.0.0.0/8"] {
        let two = vec![lo.clone(), eth.clone(), iface("eth1", "10.1.0.1/24")];
        let all = select(two, expression).unwrap();
        assert_eq!((all[0].kept, all[0].iface.name.as_str()), (true, "eth1"));
        let eth0 = all.iter().find(|c| c.iface.name == "eth0").unwrap().to_string();
        assert!(eth0.ends_with(": dropped (no carrier, and there are others)"), "{eth0}");
    }
    // Asked for, it is taken.
    let all = select(vec![lo, eth, iface("eth1", "10.1.0.1/24")], "eth0").unwrap();
    assert_eq!(
        all[0].to_string(),
        "eth0 10.0.0.1/24: kept (matches eth0; no carrier, and there is no other)"
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
    assert_eq!(reason("10.0.0.0/8", "10.0.0.5"), "eth0 10.0.0.5/24: kept (matches 10.0.0.0/8)");
}

#[test]
fn a_caret_excludes() {
    assert_eq!(kept("^eth1"), ["10.0.0.5", "2001:db8::5"]);
    assert_eq!(kept("^eth1,ib0"), ["10.0.0.5"]);
    assert_eq!(kept("eth*,^10.0.0.0/16"), ["10.1.0.5", "192.168.7.1"]);
    assert_eq!(kept("^eth*,ib*"), ["127.0.0.1", "::1"]);
    assert_eq!(reason("^eth1", "10.1.0.5"), "eth1 10.1.0.5/24: dropped (excluded by ^eth1)");
}

#[test]
fn mistakes_are_explained() {
    for (expression, word) in [
        ("10.0.0.0/33", "longer than the address"),
        ("10.0.0/8", "no IP address"),
        ("10.0.0.0/x", "no number"),
        ("^", "is empty"),
        ("eth 0", "no interface name"),
    ] {
        let text = select(host(), expression).unwrap_err().to_string();
        assert!(text.contains(word), "{text}");
    }
    let text = select(host(), "eth7").unwrap_err().to_string();
    assert!(text.contains("\"eth7\" matches nothing usable; there is"), "{text}");
    assert!(text.contains("eth0 10.0.0.5/24: dropped (not selected)"), "{text}");
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
}
