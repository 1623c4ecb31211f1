//! Checks the kernel features and socket buffers that an endpoint of this host gets.

use std::fs;
use std::io;
use std::net::SocketAddr;

use squall_net::iface::Iface;
use squall_net::{Feature, OpenReport, PortConfig, UdpPort, offer_train};

use super::finding::Finding;

/// Files in which Linux shows how many connections its firewall tracks, and how many it can.
const TRACKED: [&str; 2] =
    ["/proc/sys/net/netfilter/nf_conntrack_count", "/proc/sys/net/netfilter/nf_conntrack_max"];
/// Share of the firewall's table of connections, in percent, from which it counts as nearly full.
const NEARLY_FULL: u64 = 80;

/// Socket buffer sizes that the provider requests by default, bytes.
const RECEIVE_BUFFER: usize = 8 << 20;
const SEND_BUFFER: usize = 4 << 20;

/// Opens a UDP port on `iface` as endpoints do. The kernel chooses the port's number.
pub(super) fn port(iface: &Iface) -> io::Result<(UdpPort, OpenReport)> {
    open(SocketAddr::new(iface.addr, 0), iface.index)
}

/// Opens a UDP port at an address, as endpoints do. `scope` is the interface of a link-local IPv6
/// address.
pub(super) fn open(mut bind: SocketAddr, scope: u32) -> io::Result<(UdpPort, OpenReport)> {
    if let SocketAddr::V6(v6) = &mut bind
        && v6.ip().is_unicast_link_local()
    {
        v6.set_scope_id(scope);
    }
    let (rcvbuf, sndbuf) = (RECEIVE_BUFFER, SEND_BUFFER);
    UdpPort::open(&PortConfig { bind, paths: 1, rcvbuf, sndbuf, ..PortConfig::default() })
}

/// Returns the finding about sending trains of packets by an interface. `offered` is the result of [`offer_train`].
pub(super) fn judge_trains(gso: &Feature, iface: &Iface, offered: &io::Result<bool>) -> Finding {
    let what = "trains of packets out (GSO)";
    let cost = "without trains each packet sent costs more time";
    match gso {
        Feature::On => {}
        other => {
            return Finding::note(
                format!("{what}: {other}"),
                format!("use Linux 4.18 or newer; {cost}"),
            );
        }
    }
    let name = &iface.name;
    match offered {
        Ok(false) => Finding::note(
            format!(
                "{what}: the kernel refuses them on {name}, because the device calculates no checksums"
            ),
            format!(
                "ethtool -K {name} tx on, if the device can, or use Linux 6.11 or newer; {cost}"
            ),
        ),
        // An error of the socket says nothing about trains.
        _ => Finding::well(what),
    }
}

/// Returns the findings about kernel features and buffer sizes when the port was opened on `iface`.
pub(super) fn judge(report: &OpenReport, iface: &Iface) -> Vec<Finding> {
    let offered = offer_train(iface.addr, iface.index);
    let mut findings = vec![judge_trains(&report.gso, iface, &offered)];
    let features = [
        (
            &report.gro,
            "trains of packets in (GRO)",
            "use Linux 5.0 or newer; without it each packet received costs more time",
        ),
        (
            &report.tos,
            "marks of received packets (ECN)",
            "allow the socket option IP_RECVTOS; without marks, delay and loss alone show congestion",
        ),
        (
            &report.df,
            "packets that routers must not cut (DF)",
            "set FI_SQUALL_MTU if a path has a smaller MTU than the interface; without DF, loss alone shows it",
        ),
        (
            &report.errors,
            "ICMP errors",
            "allow the socket option IP_RECVERR; without it a timeout alone shows that a peer is gone",
        ),
    ];
    for (feature, what, without) in features {
        findings.push(match feature {
            Feature::On => Finding::well(what),
            other => Finding::note(format!("{what}: {other}"), without),
        });
    }
    let buffers = [
        ("receive", report.rcvbuf, RECEIVE_BUFFER, "rmem_max"),
        ("send", report.sndbuf, SEND_BUFFER, "wmem_max"),
    ];
    for (which, got, wanted, limit) in buffers {
        let buffer = format!("{which} buffer of {} KiB", got >> 10);
        findings.push(if got < wanted {
            Finding::note(
                format!("{buffer} instead of {}: net.core.{limit} limits it", wanted >> 10),
                format!("sysctl -w net.core.{limit}={wanted}"),
            )
        } else {
            Finding::well(buffer)
        });
    }
    let number = |path: &str| -> Option<u64> { fs::read_to_string(path).ok()?.trim().parse().ok() };
    if let [Some(count), Some(most)] = TRACKED.map(number) {
        findings.extend(judge_tracking(count, most));
    }
    findings
}

/// Returns a finding if a firewall that tracks `count` of at most `most` connections has little room. Each path of a pair
/// of endpoints is a connection to it.
fn judge_tracking(count: u64, most: u64) -> Option<Finding> {
    let is_nearly_full = count.saturating_mul(100) >= most.saturating_mul(NEARLY_FULL);
    is_nearly_full.then(|| {
        Finding::note(
            format!(
                "the firewall tracks {count} connections, and {most} at most (nf_conntrack): when the table is full, the \
                 kernel drops packets of new ones"
            ),
            "sysctl -w net.netfilter.nf_conntrack_max with a larger number, or lower FI_SQUALL_PATHS: each pair of endpoints \
             takes up to two entries a path",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;
    use squall_net::iface;

    #[test]
    fn a_device_without_trains_is_noted() {
        let iface = iface::list().unwrap().pop().unwrap();
        let judge = |gso, offered| judge_trains(&gso, &iface, &offered);
        let unknown = || Err(io::ErrorKind::Unsupported.into());
        assert_eq!(judge(Feature::On, Ok(true)).level, Level::Well);
        assert_eq!(judge(Feature::On, unknown()).level, Level::Well);
        let absent = Feature::Absent("no such option".to_owned());
        assert_eq!(judge(absent, unknown()).level, Level::Note);
        let found = judge(Feature::On, Ok(false));
        assert_eq!(found.level, Level::Note);
        let cure = format!("ethtool -K {} tx on", iface.name);
        assert!(found.cure.as_deref().is_some_and(|text| text.contains(&cure)), "{found}");
    }

    #[test]
    fn a_table_of_connections_that_is_nearly_full_is_noted() {
        assert!(judge_tracking(79, 100).is_none());
        assert!(judge_tracking(80, 100).is_some());
        assert!(judge_tracking(u64::MAX, 262_144).is_some());
    }
}
