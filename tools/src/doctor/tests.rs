//! Tests with two doctors on one host.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use squall_net::Port as _;
use squall_net::iface::{Candidate, Iface, InterfaceFacts, Route};

use super::finding::Level;
use super::interface::Selection;
use super::probe::Choice;
use super::{firewall, host, interface, peers, probe};

fn loopback() -> Iface {
    Iface {
        name: "lo".to_owned(),
        index: 1,
        addr: IpAddr::V4(Ipv4Addr::LOCALHOST),
        prefix: 8,
        up: true,
        running: true,
        loopback: true,
        mtu: 65_536,
        speed_mbps: None,
        default_route: None,
        facts: InterfaceFacts::default(),
    }
}

#[test]
fn who_answers_is_reached_with_whole_packets_and_their_ecn() {
    let (mut there, _) = host::port(&loopback()).expect("a port");
    let address = there.local_addr();
    let stop = Arc::new(AtomicBool::new(false));
    let other = std::thread::spawn({
        let stop = Arc::clone(&stop);
        let choice = Choice::of(&loopback());
        move || probe::answer(&mut there, &choice, || stop.load(Ordering::Relaxed))
    });
    let (mut port, report) = host::port(&loopback()).expect("a port");
    let found = peers::reach(&mut port, address, &loopback(), &[loopback()]);
    stop.store(true, Ordering::Relaxed);
    let answered = other.join().expect("no panic");
    assert!(found.iter().all(|finding| finding.level == Level::Well), "{found:?}");
    assert!(found.len() == 4 && answered >= 3, "{found:?}");
    assert_eq!(host::judge(&report, &loopback()).len(), 7);
}

#[test]
fn where_nobody_listens_somebody_has_to() {
    let gone = host::port(&loopback()).expect("a port").0.local_addr();
    let (mut port, _) = host::port(&loopback()).expect("a port");
    let found = peers::reach(&mut port, gone, &loopback(), &[loopback()]);
    let [finding] = &found[..] else { panic!("{found:?}") };
    assert_eq!(finding.level, Level::Note, "{finding}");
    assert!(finding.cure.as_deref().is_some_and(|cure| cure.contains("--answer")), "{finding}");
}

#[test]
fn a_way_by_another_interface_is_a_fault() {
    let of = |index, name: &str, addr: [u8; 4]| Iface {
        index,
        name: name.to_owned(),
        addr: addr.into(),
        loopback: false,
        ..loopback()
    };
    let (chosen, other) = (of(2, "eth0", [192, 0, 2, 1]), of(3, "eth1", [198, 51, 100, 1]));
    let all = [loopback(), chosen.clone(), other];
    let peer = SocketAddr::from(([203, 0, 113, 9], 4793));
    let by = |index| Route { index, ..Route::default() };
    let judge = |own: &Route, route: &Route| peers::judge_route(peer, own, route, &chosen, &all);
    let cure = "export FI_SQUALL_IFACE=eth1 ";
    let found = judge(&by(3), &by(3));
    assert_eq!(found.level, Level::Fault);
    assert!(found.cure.as_deref().is_some_and(|text| text.starts_with(cure)), "{found}");
    // A routing rule sends packets from this address elsewhere than others.
    assert_eq!(judge(&by(3), &by(2)).level, Level::Fault);
    let found = judge(&by(2), &by(3));
    assert_eq!(found.level, Level::Note);
    assert!(found.cure.as_deref().is_some_and(|text| text.contains(cure)), "{found}");
    assert_eq!(judge(&by(9), &by(9)).level, Level::Fault, "an interface without address");
    let narrow = Route { gateway: Some([192, 0, 2, 254].into()), mtu: Some(1400), ..by(2) };
    let found = judge(&narrow, &narrow);
    assert_eq!(found.level, Level::Well);
    assert!(found.what.ends_with("by eth0, router 192.0.2.254, path MTU 1400"), "{found}");
    let here = Route { local: true, ..by(1) };
    assert_eq!(judge(&here, &here).level, Level::Well, "this host itself");
}

#[test]
fn the_kernel_is_asked_for_the_way() {
    let peer = SocketAddr::from(([127, 0, 0, 9], 4793));
    let found = peers::route(peer, &loopback(), &[loopback()]);
    assert_eq!(found.level, Level::Well, "{found}");
    // The kernel refuses a source address that is not of this host.
    let elsewhere = Iface { addr: [192, 0, 2, 77].into(), ..loopback() };
    let found = peers::route(peer, &elsewhere, std::slice::from_ref(&elsewhere));
    assert_eq!(found.level, Level::Fault, "{found}");
}

#[test]
fn answers_by_another_interface_are_noted() {
    let eth = Iface { index: 2, name: "eth0".to_owned(), loopback: false, ..loopback() };
    let all = [loopback(), eth.clone()];
    let peer = SocketAddr::from(([203, 0, 113, 9], 4793));
    let judge = |arrival| peers::judge_arrival(peer, &arrival, &eth, &all);
    assert_eq!(judge(Ok(2)).level, Level::Well);
    let found = judge(Ok(1));
    assert_eq!(found.level, Level::Note);
    assert!(found.what.contains("arrive by lo, not by eth0"), "{found}");
    assert_eq!(judge(Err(std::io::ErrorKind::TimedOut.into())).level, Level::Note);
}

#[test]
fn what_cannot_be_chosen_is_a_fault_with_a_cure() {
    for (expression, lines) in [("no-such-interface", true), ("10.0.0.0/99", false)] {
        let Selection { chosen, table, findings } = interface::choose(expression, "1");
        assert!(chosen.is_none() && findings[0].level == Level::Fault, "{}", findings[0]);
        assert!(findings[0].cure.is_some() && table.is_empty() != lines, "{table:?}");
    }
    let Selection { chosen, table, findings } = interface::choose("lo", "1");
    assert_eq!(chosen.map(|iface| iface.name), Some("lo".to_owned()));
    assert_eq!(findings[0].level, Level::Note, "others cannot reach it: {}", findings[0]);
    assert!(table[1].starts_with("lo ") && table[1].contains(" 1 "), "{table:?}");
}

/// Both hosts have a bridge as first interface, with the same address on every host, and a card as
/// second.
#[test]
fn a_chosen_bridge_is_noted_on_both_hosts() {
    let kind =
        |kind: &str| InterfaceFacts { kind: Some(kind.to_owned()), ..InterfaceFacts::default() };
    let of = |name: &str, addr: [u8; 4], prefix, facts| Iface {
        name: name.to_owned(),
        addr: addr.into(),
        prefix,
        loopback: false,
        facts,
        ..loopback()
    };
    let bridge = of("br-3b50", [172, 18, 0, 1], 16, kind("bridge"));
    let tunnel = of("tun0", [10, 8, 0, 2], 32, kind("tun"));
    for doubtful in [&bridge, &tunnel] {
        let reason = "matches it".to_owned();
        let candidate = Candidate { iface: doubtful.clone(), kept: true, reason };
        let Selection { chosen, findings: found, .. } =
            interface::judge(Ok(vec![candidate]), &[], &doubtful.name);
        assert_eq!(chosen.as_ref(), Some(doubtful));
        assert_eq!(found[0].level, Level::Note, "{}", found[0]);
        let cure = found[0].cure.as_deref();
        assert!(cure.is_some_and(|cure| cure.contains("FI_SQUALL_IFACE")), "{}", found[0]);
    }
    let card = of(
        "enp28s0",
        [192, 0, 2, 1],
        24,
        InterfaceFacts { device: true, ..InterfaceFacts::default() },
    );
    let all = [loopback(), bridge.clone(), card.clone()];
    let peer = SocketAddr::from(([192, 0, 2, 2], 4793));
    let levels = |theirs: &Iface, peer| -> Vec<Level> {
        let found = peers::agreement(peer, &Choice::of(theirs), &card, &all);
        found.iter().map(|finding| finding.level).collect()
    };
    let their_card = Iface { addr: [192, 0, 2, 2].into(), ..card.clone() };
    assert_eq!(levels(&their_card, peer), [Level::Well], "both choose one network");
    assert_eq!(levels(&bridge, peer), [Level::Fault], "an address of this host");
    let v6 = Iface { addr: std::net::Ipv6Addr::LOCALHOST.into(), ..card.clone() };
    assert_eq!(levels(&v6, peer), [Level::Fault], "another address family");
    // The other host chose a tunnel, which is noted as a tunnel and as another network. Whether a
    // route leads there depends on this machine.
    assert_eq!(levels(&tunnel, peer)[..2], [Level::Note, Level::Note]);
    let local = SocketAddr::from(([192, 0, 2, 1], 4793));
    assert!(levels(&bridge, local).is_empty(), "this host itself");
}

#[test]
fn names_are_resolved_and_the_family_has_to_fit() {
    let port = |text: &str| peers::resolve(text, false).map(|address| address.port());
    assert_eq!((port("127.0.0.1"), port("127.0.0.1:99")), (Ok(4793), Ok(99)));
    assert_eq!(peers::resolve("[::1]:7", true).map(|address| address.port()), Ok(7));
    assert!(
        peers::resolve("127.0.0.1", true)
            .is_err_and(|finding| finding.what.contains("no IPv6 address"))
    );
}

#[test]
fn firewalls_get_the_ports_that_are_set() {
    let any = firewall::lines(None).cure.expect("lines");
    assert!(
        any.contains("export FI_SQUALL_PORT=47930-47993")
            && any.contains("udp dport 47930-47993 accept")
    );
    let fixed = firewall::lines(Some("5000-5003")).cure.expect("lines");
    assert!(fixed.contains("--add-port=5000-5003/udp") && !fixed.contains("export"), "{fixed}");
}
