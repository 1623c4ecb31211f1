//! Checks whether the other hosts can be reached, by which route, and with which packet lengths.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};

use squall_net::iface::Iface;
use squall_net::{NetError, UdpPort, UnreachableReason};

use super::finding::Finding;
use super::probe::{self, Choice, SHORTEST};

/// Default UDP port of `squall doctor --answer`: Ultra Ethernet's port.
pub(super) const PORT: u16 = 4793;
/// Common MTUs of networks, largest first.
const MTUS: [u32; 7] = [9000, 8950, 4352, 1500, 1450, 1400, 1280];

/// Resolves `HOST` or `HOST:PORT`.
pub(super) fn resolve(text: &str, v6: bool) -> Result<SocketAddr, Finding> {
    let found = match text.to_socket_addrs() {
        Ok(found) => Ok(found),
        Err(_) => (text.trim_matches(['[', ']']), PORT).to_socket_addrs(),
    };
    let cure = "give an address or a name of it, with :PORT if it is not 4793";
    match found {
        Err(error) => Err(Finding::fault(format!("{text}: {error}"), cure)),
        Ok(mut found) => found.find(|address| address.is_ipv6() == v6).ok_or_else(|| {
            let kind = if v6 { "IPv6" } else { "IPv4" };
            Finding::fault(
                format!("{text} has no {kind} address, and endpoints will be on one"),
                "set FI_SQUALL_IFACE to an address of the kind that all hosts have",
            )
        }),
    }
}

/// Returns the source address that the system's routing uses for packets to a peer.
fn leaves_by(peer: SocketAddr) -> io::Result<IpAddr> {
    let any = if peer.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any)?;
    // Connecting a UDP socket sends no packet.
    socket.connect(peer)?;
    Ok(socket.local_addr()?.ip())
}

/// Checks whether the route to a peer leaves by the interface that endpoints will use.
pub(super) fn route(peer: SocketAddr, chosen: &Iface, all: &[Iface]) -> Finding {
    let by = match leaves_by(peer) {
        Ok(by) => by,
        Err(error) => {
            return Finding::fault(
                format!("no route to {peer}: {error}"),
                "look at `ip route get`, and whether the interface that leads there is up",
            );
        }
    };
    let here = peer.ip() == by || all.iter().any(|iface| iface.addr == peer.ip());
    if by == chosen.addr || here {
        return Finding::well(format!("the way to {peer} leaves by {}", chosen.name));
    }
    let name = all.iter().find(|iface| iface.addr == by).map(|iface| iface.name.as_str());
    let (name, cure) = match name {
        Some(name) => {
            (name, format!("export FI_SQUALL_IFACE={name}   # for every rank of this host"))
        }
        None => (
            "another interface",
            "set FI_SQUALL_IFACE to the interface that leads there".to_owned(),
        ),
    };
    Finding::fault(
        format!(
            "the way to {peer} leaves by {name} ({by}), but endpoints will be on {chosen}, where peers may not \
             reach them"
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

fn unreached(peer: SocketAddr, errors: &[NetError]) -> Finding {
    let said = errors.first().map(ToString::to_string);
    let nobody = errors
        .iter()
        .any(|error| matches!(error, NetError::Unreachable { kind: UnreachableReason::Port, .. }));
    if nobody {
        return Finding::note(
            format!("{peer} can be reached, and nobody listens there"),
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
            format!("the way to {peer} wipes out ECN"),
            "congestion is learnt of by delay and loss alone; tell the network to leave the ECN field as it is",
        ),
        3 => Finding::note(
            format!("the way to {peer} is congested now: it marked a lone packet"),
            "wait",
        ),
        _ => Finding::well(format!("ECN survives on the way to {peer}")),
    }
}

/// Finds the longest packets that reach the peer.
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
                    "packets of MTU {mtu} reach {peer}, those of {own}, which the interface has, do not"
                ),
                format!(
                    "squall finds that out by itself, after the first losses; FI_SQUALL_MTU={len} spares them, or give \
                     the switches and hosts on the way the same MTU"
                ),
            );
        }
    }
    Finding::fault(
        format!("packets longer than {SHORTEST} bytes do not reach {peer}"),
        "something on the way drops them: look at tunnels and firewalls",
    )
}
