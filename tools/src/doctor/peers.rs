//! Checks whether the other hosts can be reached, by which route, and with which packet lengths.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use squall_net::iface::{Iface, Route};
use squall_net::{NetError, UdpPort, UnreachableReason};

use super::finding::Finding;
use super::probe::{self, Choice, SHORTEST};

/// Default UDP port of `squall doctor --answer`: Ultra Ethernet's port.
pub(super) const PORT: u16 = 4793;
/// Common MTUs of networks, largest first.
const MTUS: [u32; 7] = [9000, 8950, 4352, 1500, 1450, 1400, 1280];

/// Resolves `HOST` or `HOST:PORT` to the address of a peer.
pub(super) fn resolve(text: &str, v6: bool) -> Result<SocketAddr, Finding> {
    let found = match text.to_socket_addrs() {
        Ok(found) => Ok(found),
        Err(_) => (text.trim_matches(['[', ']']), PORT).to_socket_addrs(),
    };
    let cure =
        "give an address or a name that DNS or /etc/hosts knows, with :PORT if it is not 4793";
    match found {
        Err(error) => {
            Err(Finding::fault(format!("{text} cannot be reached: it has no address: {error}"), cure))
        }
        Ok(mut found) => found.find(|address| address.is_ipv6() == v6).ok_or_else(|| {
            let kind = if v6 { "IPv6" } else { "IPv4" };
            Finding::fault(
                format!("{text} cannot be reached: it has no {kind} address, and endpoints will be on one"),
                "set FI_SQUALL_IFACE to a network of the address family that all hosts have",
            )
        }),
    }
}

/// Checks whether the kernel's route to a peer leaves by the interface that endpoints will use.
pub(super) fn route(peer: SocketAddr, chosen: &Iface, all: &[Iface]) -> Finding {
    let scope = match peer {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let routes = Route::look_up(peer.ip(), None, scope)
        .and_then(|route| Ok((Route::look_up(peer.ip(), Some(chosen.addr), scope)?, route)));
    match routes {
        Ok((own, route)) => judge_route(peer, &own, &route, chosen, all),
        Err(error) => Finding::fault(
            format!("packets from {} cannot leave for {peer}: {error}", chosen.addr),
            format!(
                "add a route to it, or bring up the interface that leads there; `ip route get {} from {}` shows it",
                peer.ip(),
                chosen.addr
            ),
        ),
    }
}

/// Judges the kernel's routes to a peer: `own` for packets from the address of `chosen`, which is
/// that of endpoints, and `route` for packets from any address. Routing rules may treat them differently.
pub(super) fn judge_route(
    peer: SocketAddr,
    own: &Route,
    route: &Route,
    chosen: &Iface,
    all: &[Iface],
) -> Finding {
    if own.local {
        return Finding::well(format!("{peer} is an address of this host"));
    }
    let name = |route: &Route| {
        let leaves_by = all.iter().find(|iface| iface.index == route.index);
        leaves_by.map_or("an interface without address", |iface| iface.name.as_str())
    };
    let by = if own.index == chosen.index { route } else { own };
    if by.index == chosen.index {
        let gateway = own.gateway.map_or_else(String::new, |ip| format!(", router {ip}"));
        let mtu = own.mtu.map_or_else(String::new, |mtu| format!(", path MTU {mtu}"));
        let what = format!("the way to {peer} leaves by {}{gateway}{mtu}", chosen.name);
        return Finding::well(what);
    }
    let cure = format!("export FI_SQUALL_IFACE={}   # for every rank of this host", name(by));
    if own.index == chosen.index {
        return Finding::note(
            format!(
                "the way to {peer} leaves by {} for programs in general, and by {} for endpoints: a routing rule for \
                 {} decides",
                name(by),
                chosen.name,
                chosen.addr
            ),
            format!("if the hosts of the job share the network of {}, {cure}", name(by)),
        );
    }
    Finding::fault(
        format!(
            "the way to {peer} leaves by {}, but endpoints will be on {chosen}: peers may not reach them there",
            name(by)
        ),
        cure,
    )
}

/// Sends questions of several lengths to a peer. `port` is bound to the address that endpoints will
/// have, which is the address of `chosen`; `all` are the interfaces of this host.
pub(super) fn reach(
    port: &mut UdpPort,
    peer: SocketAddr,
    chosen: &Iface,
    all: &[Iface],
) -> Vec<Finding> {
    let answer = match probe::ask(port, peer, SHORTEST) {
        Ok(answer) => answer,
        Err(errors) => return vec![unreached(peer, &errors)],
    };
    let mut findings =
        vec![Finding::well(format!("{peer} answers after {:.1?}", answer.round_trip))];
    if let Some(theirs) = &answer.choice {
        findings.extend(agreement(peer, theirs, chosen, all));
    }
    findings.extend(way_back(peer, chosen, all));
    findings.push(marks(peer, answer.ecn));
    findings.push(widest(port, peer, chosen.mtu));
    findings
}

/// Compares the interfaces that endpoints of both hosts will use, and returns findings about
/// whether they reach each other. There are none if the peer is this host itself.
pub(super) fn agreement(
    peer: SocketAddr,
    theirs: &Choice,
    chosen: &Iface,
    all: &[Iface],
) -> Vec<Finding> {
    let here = |ip: IpAddr| all.iter().any(|iface| iface.addr == ip);
    // The peer is this host itself.
    if here(peer.ip()) {
        return Vec::new();
    }
    let there = format!("{} {}/{}", theirs.name, theirs.addr, theirs.prefix);
    let cure = "set FI_SQUALL_IFACE to the network that all hosts of the job share, at every rank, such as 10.1.0.0/16";
    if here(theirs.addr) {
        let what = format!(
            "endpoints of {peer} will be on {there}, which is an address of this host as well: ranks would take each \
             other for themselves"
        );
        return vec![Finding::fault(what, cure)];
    }
    if theirs.addr.is_ipv4() != chosen.addr.is_ipv4() {
        let what = format!("endpoints will be on {chosen} here and on {there} at {peer}");
        return vec![Finding::fault(what, cure)];
    }
    let mut findings = Vec::new();
    if theirs.doubtful {
        let what = format!(
            "endpoints of {peer} will be on {there}, a tunnel or a bridge without a device: other hosts may not reach \
             them there"
        );
        findings.push(Finding::note(what, cure));
    }
    let network = Iface { addr: theirs.addr, ..chosen.clone() }.network();
    if theirs.prefix == chosen.prefix && network == chosen.network() {
        let network = format!("{network}/{}", chosen.prefix);
        findings.push(Finding::well(format!("endpoints of both hosts will be on {network}")));
        return findings;
    }
    let what = format!("the hosts choose different networks: {chosen} here, {there} at {peer}");
    findings.push(Finding::note(what, format!("if no router joins them, {cure}")));
    if theirs.addr != peer.ip() {
        findings.push(route(SocketAddr::new(theirs.addr, peer.port()), chosen, all));
    }
    findings
}

/// Checks whether answers of a peer arrive by the interface that endpoints will use. Answers of this
/// host itself arrive by loopback, whatever interface it is, and are not judged.
fn way_back(peer: SocketAddr, chosen: &Iface, all: &[Iface]) -> Option<Finding> {
    if all.iter().any(|iface| iface.addr == peer.ip()) && !chosen.loopback {
        return None;
    }
    let arrival = probe::find_arrival(SocketAddr::new(chosen.addr, 0), chosen.index, peer);
    Some(judge_arrival(peer, &arrival, chosen, all))
}

/// Judges the interface by which an answer of a peer arrived: it should be the one that endpoints
/// will use.
pub(super) fn judge_arrival(
    peer: SocketAddr,
    arrival: &io::Result<u32>,
    chosen: &Iface,
    all: &[Iface],
) -> Finding {
    let index = match arrival {
        Ok(index) => *index,
        Err(error) => {
            let what = format!("the interface by which {peer} answers is not known: {error}");
            return Finding::note(what, "run this again; packets may have been lost");
        }
    };
    if index == chosen.index {
        return Finding::well(format!("answers of {peer} arrive by {}", chosen.name));
    }
    let name = all.iter().find(|iface| iface.index == index).map(|iface| iface.name.as_str());
    let name = name.unwrap_or("an interface without address");
    Finding::note(
        format!(
            "answers of {peer} arrive by {name}, not by {}: the kernel answers ARP for {} on both, or a router chooses",
            chosen.name, chosen.addr
        ),
        format!(
            "sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2\n\
             or, if the network of {name} is meant: export FI_SQUALL_IFACE={name}"
        ),
    )
}

fn unreached(peer: SocketAddr, errors: &[NetError]) -> Finding {
    let said = errors.first().map(ToString::to_string);
    let nobody = errors
        .iter()
        .any(|error| matches!(error, NetError::Unreachable { kind: UnreachableReason::Port, .. }));
    if nobody {
        return Finding::note(
            format!("{peer} can be reached, but nothing listens at its UDP port"),
            "run `squall doctor --answer` there, and this again",
        );
    }
    Finding::fault(
        format!(
            "{peer} does not answer{}",
            said.map_or_else(String::new, |said| format!(": {said}"))
        ),
        format!(
            "does `squall doctor --answer` run there? If so a firewall drops UDP port {}: see below what to let in",
            peer.port()
        ),
    )
}

/// Reports what the network did with the ECN field of the IP header on the route to the peer.
fn marks(peer: SocketAddr, ecn: u8) -> Finding {
    match ecn {
        0 => Finding::note(
            format!(
                "the way to {peer} clears the ECN field of packets: switches cannot mark congestion"
            ),
            "let routers and tunnels keep the ECN field; until then, delay and loss alone show congestion",
        ),
        3 => Finding::note(
            format!("the way to {peer} is congested now: a switch marked a single packet"),
            "wait until other traffic ends, or look for its source (`squall top` on each host)",
        ),
        _ => Finding::well(format!("ECN survives on the way to {peer}")),
    }
}

/// Finds the longest packets that reach the peer without being cut or lost.
fn widest(port: &mut UdpPort, peer: SocketAddr, own: u32) -> Finding {
    let v6 = peer.is_ipv6();
    let mtus = std::iter::once(own).chain(MTUS.into_iter().filter(|mtu| *mtu < own));
    for mtu in mtus {
        let len = UdpPort::payload_limit(mtu, v6);
        if probe::ask(port, peer, len).is_ok_and(|answer| answer.arrived as usize == len) {
            if mtu == own {
                return Finding::well(format!(
                    "packets of the interface's MTU, {own}, reach {peer}"
                ));
            }
            return Finding::note(
                format!(
                    "packets of MTU {mtu} reach {peer}, but not those of the interface's MTU, {own}: the way is narrower"
                ),
                format!(
                    "set FI_SQUALL_MTU={len} at every rank, or one MTU on the switches and hosts of the way; otherwise \
                     squall finds the path MTU by itself, after some losses"
                ),
            );
        }
    }
    Finding::fault(
        format!(
            "packets longer than {SHORTEST} bytes do not reach {peer}: something on the way drops them"
        ),
        "look at tunnels and firewalls, and at the MTU of each interface on the way",
    )
}
