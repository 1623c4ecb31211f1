//! Tests with real sockets on loopback.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::*;
use crate::base::TrafficClass;
use crate::burst::tests::{Sample, send};
use crate::{MAX_PIECES, UnreachableReason};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

fn config(ip: IpAddr) -> PortConfig {
    PortConfig { bind: SocketAddr::new(ip, 0), ..PortConfig::default() }
}

fn open(config: &PortConfig) -> UdpPort {
    let (port, report) = UdpPort::open(config).unwrap();
    assert_ne!(port.local_addr().port(), 0);
    assert_eq!(port.local_addr(), report.local);
    port
}

/// Receives until `count` packets have arrived or two seconds have passed.
fn receive(port: &mut UdpPort, count: usize) -> Vec<(RxMeta, Vec<u8>)> {
    let mut got = Vec::new();
    let end = deadline();
    while got.len() < count && before(end) {
        port.recv_each(Time::ZERO, 64, &mut |meta, bytes| got.push((*meta, bytes.to_vec())));
    }
    got
}

// A test with real sockets needs the system's clock.
#[allow(clippy::disallowed_methods)]
fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(2)
}

#[allow(clippy::disallowed_methods)]
fn before(end: Instant) -> bool {
    Instant::now() < end
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + seed * 13) as u8).collect()
}

fn packet<'a>(
    dst: SocketAddr,
    path: u16,
    header: &'a [u8],
    payload: &'a [&'a [u8]],
    trailer: &'a [u8],
) -> Sample<'a> {
    Sample { dst, path, class: TrafficClass::Data, header, payload, trailer }
}

/// Sends packets of these lengths in one batch, each with a header, two pieces and a trailer.
/// Checks that they arrive byte for byte and in order, and returns the number of trains.
fn trains_in_packets_out(
    config_tx: &PortConfig,
    config_rx: &PortConfig,
    lens: &[usize],
) -> Counters {
    let (mut tx, mut rx) = (open(config_tx), open(config_rx));
    let data: Vec<Vec<u8>> = lens.iter().enumerate().map(|(i, n)| pattern(i, *n)).collect();
    let cut: Vec<_> = data
        .iter()
        .map(|d| {
            let (header, rest) = d.split_at(d.len().min(44));
            let (rest, trailer) = rest.split_at(rest.len().saturating_sub(4));
            let (a, b) = rest.split_at(rest.len() / 3);
            (header, [a, b], trailer)
        })
        .collect();
    let packets: Vec<_> = cut.iter().map(|(h, p, t)| packet(rx.local_addr(), 0, h, p, t)).collect();
    let report = send(&mut tx, Time::ZERO, &packets);
    assert_eq!((report.sent, report.failed), (lens.len(), 0));
    let bytes: usize = lens.iter().sum();
    assert_eq!(report.bytes, bytes as u64);
    let got = receive(&mut rx, lens.len());
    assert_eq!(got.len(), lens.len());
    for ((meta, bytes), sent) in got.iter().zip(&data) {
        assert_eq!(meta.src, tx.local_addr());
        assert_eq!(bytes, sent);
    }
    let (t, r) = (tx.counters(), rx.counters());
    assert_eq!((t.tx_packets, t.tx_bytes), (lens.len() as u64, bytes as u64));
    assert_eq!((r.rx_packets, r.rx_bytes), (lens.len() as u64, bytes as u64));
    assert_eq!(t.tx_trains, report.trains as u64);
    t
}

const LENS: &[&[usize]] = &[
    &[1],
    &[1000; 3],
    &[4096, 4096, 4096, 17],
    &[1, 1, 1, 2, 3, 2, 1],
    &[64; 200],
    &[16_320; 13],
    &[65_487],
    &[9001, 100, 9001, 9001, 0, 5, 0, 0, 9001],
];

#[test]
fn trains_arrive_as_their_packets_v4() {
    for lens in LENS {
        trains_in_packets_out(&config(V4), &config(V4), lens);
    }
}

#[test]
fn trains_arrive_as_their_packets_v6() {
    for lens in LENS {
        trains_in_packets_out(&config(V6), &config(V6), lens);
    }
}

#[test]
fn packets_arrive_without_offloads() {
    let plain = |ip| PortConfig { gso: false, gro: false, ..config(ip) };
    for lens in LENS {
        trains_in_packets_out(&plain(V4), &plain(V4), lens);
        trains_in_packets_out(&plain(V6), &config(V6), lens);
        trains_in_packets_out(&config(V4), &plain(V4), lens);
    }
}

#[test]
fn equal_packets_share_a_train() {
    let t = trains_in_packets_out(&config(V4), &config(V4), &[1000; 64]);
    assert_eq!((t.tx_trains, t.tx_calls), (1, 1));
    // Four packets of 16320 bytes fit into 64 KiB.
    let t = trains_in_packets_out(&config(V4), &config(V4), &[16_320; 8]);
    assert_eq!((t.tx_trains, t.tx_calls), (2, 1));
    // A short packet ends its train.
    let t = trains_in_packets_out(&config(V4), &config(V4), &[100, 100, 50, 100]);
    assert_eq!(t.tx_trains, 2);
    let t = trains_in_packets_out(&PortConfig { train: 3, ..config(V4) }, &config(V4), &[100; 6]);
    assert_eq!(t.tx_trains, 2);
    let t = trains_in_packets_out(&PortConfig { gso: false, ..config(V4) }, &config(V4), &[9; 40]);
    assert_eq!((t.tx_trains, t.tx_calls), (40, 2));
}

#[test]
fn peers_do_not_share_a_train() {
    let mut tx = open(&config(V4));
    let (mut a, mut b) = (open(&config(V4)), open(&config(V4)));
    let to_a = packet(a.local_addr(), 0, b"a", &[], &[]);
    let to_b = packet(b.local_addr(), 0, b"b", &[], &[]);
    let report = send(&mut tx, Time::ZERO, &[to_a, to_a, to_b, to_a, to_b, to_b]);
    assert_eq!((report.sent, report.trains, tx.counters().tx_calls), (6, 4, 1));
    assert!(receive(&mut a, 3).iter().map(|(_, p)| &p[..]).eq([b"a"; 3]));
    assert!(receive(&mut b, 3).iter().map(|(_, p)| &p[..]).eq([b"b"; 3]));
}

#[test]
fn the_families_have_a_port_each() {
    let any = |ip: IpAddr, port| PortConfig { bind: SocketAddr::new(ip, port), ..config(V4) };
    let six = open(&any(Ipv6Addr::UNSPECIFIED.into(), 0));
    let four = open(&any(Ipv4Addr::UNSPECIFIED.into(), six.local_addr().port()));
    assert_eq!(four.local_addr().port(), six.local_addr().port());
}

#[test]
fn a_path_is_a_source_port() {
    for ip in [V4, V6] {
        let mut tx = open(&PortConfig { paths: 4, ..config(ip) });
        let mut rx = open(&config(ip));
        let to = rx.local_addr();
        let packets: Vec<_> = [0, 1, 2, 3, 4, 16, 17].map(|p| packet(to, p, b"x", &[], &[])).into();
        assert_eq!(send(&mut tx, Time::ZERO, &packets).sent, 7);
        let ports: Vec<_> = receive(&mut rx, 7).iter().map(|(m, _)| m.src.port()).collect();
        // The fifth path is the first one of the second of four sets.
        let own: Vec<_> = (0..5).map(|p| tx.source_port(p)).collect();
        assert_eq!(ports, [own[0], own[1], own[2], own[3], own[4], own[0], own[1]]);
        let mut unique = own.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), 5);
    }
}

#[test]
fn source_ports_come_from_the_range() {
    let refused = UdpPort::open(&PortConfig { source_ports: Some(5000..=5002), ..config(V4) });
    let text = refused.err().unwrap().to_string();
    assert!(text.contains("16 paths need 15 source ports"), "{text}");

    let taken = open(&config(V4)).local_addr().port().clamp(1024, 65_000);
    let range = taken..=taken + 40;
    let mut tx = open(&PortConfig { paths: 8, source_ports: Some(range.clone()), ..config(V4) });
    let rx = open(&config(V4));
    let packets: Vec<_> = (1..8).map(|p| packet(rx.local_addr(), p, b"x", &[], &[])).collect();
    assert_eq!(send(&mut tx, Time::ZERO, &packets).sent, 7);
    assert!((1..8).all(|p| range.contains(&tx.source_port(p))));
}

#[test]
fn further_sets_of_paths_share_the_ports_of_the_first_where_there_are_no_others() {
    let taken = open(&config(V4)).local_addr().port().clamp(1024, 65_000);
    let range = taken..=taken + 2;
    let mut tx = open(&PortConfig { paths: 4, source_ports: Some(range), ..config(V4) });
    let rx = open(&config(V4));
    // The first set takes the range, whether the second asks before or after it.
    for paths in [[1, 2, 3], [5, 6, 7]] {
        let packets = paths.map(|p| packet(rx.local_addr(), p, b"x", &[], &[]));
        assert_eq!(send(&mut tx, Time::ZERO, &packets).sent, 3);
    }
    assert!((1..4).all(|p| tx.source_port(p) == tx.source_port(p + 4)));
}

#[test]
fn dscp_and_ecn_arrive() {
    for ip in [V4, V6] {
        let config = PortConfig { dscp_data: 10, ecn: true, ..config(ip) };
        let (mut tx, mut rx) = (open(&config), open(&config));
        let data = packet(rx.local_addr(), 3, b"data", &[], &[]);
        let control = Sample { class: TrafficClass::Control, header: b"ctrl", ..data };
        // Packets of two classes never share a train, even with equal lengths.
        assert_eq!(send(&mut tx, Time::ZERO, &[data, data, control, data]).trains, 3);
        let got: Vec<_> =
            receive(&mut rx, 4).iter().map(|(m, _)| (m.dscp, m.ecn, m.ce())).collect();
        let data = (10, 2, false);
        assert_eq!(got, [data, data, (46, 0, false), data]);

        // A marking switch would send the packet on with the same DSCP and CE.
        let socket = sock::open_plain(&rx.local_addr()).unwrap();
        let tos = (10 << 2) | 3;
        if ip.is_ipv6() {
            sock::set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, tos).unwrap();
        } else {
            sock::set_option(&socket, libc::IPPROTO_IP, libc::IP_TOS, tos).unwrap();
        }
        socket.send_to(b"marked", &rx.local_addr().into()).unwrap();
        let got = receive(&mut rx, 1);
        assert!(got[0].0.ce() && got[0].0.dscp == 10);
        assert_eq!(rx.counters().rx_ce, 1);
    }
}

#[test]
fn a_dead_port_is_a_typed_error() {
    for ip in [V4, V6] {
        for path in [0, 2] {
            let mut tx = open(&config(ip));
            let mut rx = open(&config(ip));
            let dead = open(&config(ip)).local_addr();
            assert_eq!(send(&mut tx, Time::ZERO, &[packet(dead, path, b"x", &[], &[])]).sent, 1);
            let mut errors = Vec::new();
            let end = deadline();
            let mut now = Time::ZERO;
            while errors.is_empty() && before(end) {
                now += Span::millis(1);
                tx.recv_each(now, 1, &mut |_, _| panic!("nothing was sent here"));
                tx.take_errors(&mut errors);
            }
            assert_eq!(
                errors,
                [NetError::Unreachable {
                    peer: dead,
                    kind: UnreachableReason::Port,
                    offender: Some(ip)
                }]
            );
            assert_eq!(tx.counters().errors, 1);

            // The error of one peer neither stops nor loses packets to another.
            send(&mut tx, now, &[packet(dead, path, b"x", &[], &[])]);
            let alive = packet(rx.local_addr(), path, b"y", &[], &[]);
            let report = send(&mut tx, now, &[alive, alive]);
            assert_eq!((report.sent, report.failed), (2, 0));
            assert_eq!(receive(&mut rx, 2).len(), 2);
        }
    }
}

#[test]
fn a_path_that_is_connected_to_a_peer_still_hears_of_others() {
    for ip in [V4, V6] {
        let mut tx = open(&config(ip));
        let mut rx = open(&config(ip));
        let to = rx.local_addr();
        let own = |tx: &mut UdpPort, to, now| {
            assert_eq!(send(tx, now, &[packet(to, 2, b"x", &[], &[])]).sent, 1);
        };
        for _ in 0..100 {
            own(&mut tx, to, Time::ZERO);
        }
        let got = receive(&mut rx, 100);
        let port = tx.source_port(2);
        assert_eq!(got.len(), 100);
        assert!(got.iter().all(|(meta, _)| meta.src.port() == port));
        // The path sends to another peer, which does not exist. Then the first peer dies while the
        // path is connected to it again.
        let dead = open(&config(ip)).local_addr();
        let mut now = Time::ZERO;
        let mut expect = |tx: &mut UdpPort, peer| {
            let (mut errors, end) = (Vec::new(), deadline());
            while errors.is_empty() && before(end) {
                now += Span::millis(1);
                tx.recv_each(now, 1, &mut |_, _| panic!("nothing was sent here"));
                tx.take_errors(&mut errors);
            }
            let kind = UnreachableReason::Port;
            assert_eq!(errors, [NetError::Unreachable { peer, kind, offender: Some(ip) }]);
        };
        own(&mut tx, dead, Time::ZERO);
        expect(&mut tx, dead);
        for _ in 0..100 {
            own(&mut tx, to, Time::ZERO);
        }
        assert!(receive(&mut rx, 100).iter().all(|(meta, _)| meta.src.port() == port));
        drop(rx);
        own(&mut tx, to, Time::ZERO);
        expect(&mut tx, to);
        let mut other = open(&config(ip));
        let to = other.local_addr();
        for _ in 0..40 {
            own(&mut tx, to, Time::ZERO);
        }
        assert_eq!(receive(&mut other, 40).len(), 40);
    }
}

#[test]
fn a_packet_too_big_for_the_path_is_a_typed_error() {
    too_big(V4);
    too_big(V6);
}

fn too_big(ip: IpAddr) {
    let mut tx = open(&config(ip));
    let mut rx = open(&config(ip));
    let bytes = vec![0; 65_508];
    let report = send(
        &mut tx,
        Time::ZERO,
        &[
            packet(rx.local_addr(), 0, &bytes, &[], &[]),
            packet(rx.local_addr(), 0, b"fits", &[], &[]),
        ],
    );
    assert_eq!((report.sent, report.failed), (2, 1));
    let mut errors = Vec::new();
    tx.take_errors(&mut errors);
    assert!(
        matches!(errors[..], [NetError::TooBig { peer, mtu: 65_535.. }] if peer == rx.local_addr()),
        "{errors:?}"
    );
    assert_eq!(receive(&mut rx, 1)[0].1, b"fits");
    // There are no further errors.
    errors.clear();
    tx.recv_each(Time::ZERO, 1, &mut |_, _| ());
    tx.take_errors(&mut errors);
    assert!(errors.is_empty(), "{errors:?}");
    assert!(!tx.gso_refused());
}

#[test]
fn a_refused_train_goes_packet_by_packet() {
    let mut tx = open(&config(V4));
    let mut rx = open(&config(V4));
    // Linux refuses (EINVAL) to segment for a socket that leaves the UDP checksum out.
    sock::set_option(&tx.endpoint, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
    let bytes: Vec<_> = (0..10).map(|i| pattern(i, 700)).collect();
    let packets: Vec<_> = bytes.iter().map(|b| packet(rx.local_addr(), 0, b, &[], &[])).collect();
    let report = send(&mut tx, Time::ZERO, &packets);
    assert_eq!((report.sent, report.failed, report.trains), (10, 0, 10));
    assert!(tx.gso_refused());
    let got = receive(&mut rx, 10);
    assert!(got.iter().map(|(_, b)| b).eq(&bytes));
    // One refusal is enough: the next batch has no trains.
    let calls = tx.counters().tx_calls;
    send(&mut tx, Time::ZERO, &packets);
    assert_eq!(tx.counters().tx_calls, calls + 1);
    let mut errors = Vec::new();
    tx.take_errors(&mut errors);
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn packets_without_a_udp_checksum_are_received() {
    for ip in [V4, V6] {
        let (tx, mut rx) = (sock::open_plain(&SocketAddr::new(ip, 0)).unwrap(), open(&config(ip)));
        let (level, option) = match ip {
            IpAddr::V4(_) => (libc::SOL_SOCKET, libc::SO_NO_CHECK),
            IpAddr::V6(_) => (libc::SOL_UDP, libc::UDP_NO_CHECK6_TX),
        };
        sock::set_option(&tx, level, option, 1).unwrap();
        tx.send_to(b"no checksum", &rx.local_addr().into()).unwrap();
        let got = receive(&mut rx, 1);
        assert_eq!(got.first().map(|(_, bytes)| &bytes[..]), Some(&b"no checksum"[..]), "{ip}");
    }
}

#[test]
fn a_packet_of_too_many_pieces_is_refused_alone() {
    let mut tx = open(&config(V4));
    let mut rx = open(&config(V4));
    let to = rx.local_addr();
    let many = vec![&b"z"[..]; MAX_PIECES + 1];
    let fine = &many[1..];
    let batch = [
        packet(to, 0, b"first", &[], &[]),
        packet(to, 0, b"", &many, b""),
        packet(to, 0, b"h", fine, b"t"),
    ];
    let report = send(&mut tx, Time::ZERO, &batch);
    assert_eq!((report.sent, report.failed), (3, 1));
    let got = receive(&mut rx, 2);
    assert_eq!((got[0].1.len(), got[1].1.len()), (5, 256));
}

#[test]
fn datagrams_dropped_by_the_socket_are_counted() {
    let mut tx = open(&config(V4));
    let mut rx = open(&PortConfig { rcvbuf: 4096, ..config(V4) });
    let bytes = [0; 1000];
    let one = packet(rx.local_addr(), 0, &bytes, &[], &[]);
    for _ in 0..100 {
        assert_eq!(send(&mut tx, Time::ZERO, &[one]).sent, 1);
    }
    let before = receive(&mut rx, 1).len();
    while !rx.recv_each(Time::ZERO, 1000, &mut |_, _| ()).empty {}
    // The count travels with the packets that are queued from now on.
    for _ in 0..3 {
        send(&mut tx, Time::ZERO, &[one]);
        let got = receive(&mut rx, 1);
        assert_eq!(got.len(), before);
        assert_eq!(u64::from(got[0].0.overflow), rx.counters().rx_overflow);
    }
    let counters = rx.counters();
    assert!(counters.rx_overflow > 50, "{counters:?}");
    assert_eq!(counters.rx_packets + counters.rx_overflow, 103);
}

#[test]
fn buffers_are_read_back() {
    let (_, report) =
        UdpPort::open(&PortConfig { rcvbuf: 1 << 20, sndbuf: 65_536, ..config(V4) }).unwrap();
    assert_eq!((report.rcvbuf, report.sndbuf), (1 << 20, 65_536));
    let (_, report) = UdpPort::open(&PortConfig { rcvbuf: 1 << 31, ..config(V4) }).unwrap();
    assert!(report.rcvbuf < 1 << 31);
    assert!(report.warnings[0].contains("sysctl -w net.core.rmem_max=2147483648"), "{report:?}");
}

#[test]
fn path_mtu_and_payload() {
    let mut port = open(&config(V4));
    // The kernel limits the reported MTU of loopback to 65536 bytes.
    assert!(port.path_mtu("127.0.0.1:9".parse().unwrap()).unwrap() >= 65_535);
    assert!(port.path_mtu("[::1]:9".parse().unwrap()).is_err());
    let mut port = open(&config(V6));
    assert_eq!(port.path_mtu("[::1]:9".parse().unwrap()).unwrap(), 65_536);
    assert_eq!(UdpPort::payload_limit(65_536, false), 65_507);
    assert_eq!(UdpPort::payload_limit(1500, false), 1472);
    assert_eq!(UdpPort::payload_limit(1500, true), 1452);
}

#[test]
fn the_budget_bounds_a_call_and_an_empty_port_is_reported() {
    let mut tx = open(&PortConfig { gso: false, ..config(V4) });
    let mut rx = open(&config(V4));
    assert!(rx.recv_each(Time::ZERO, 8, &mut |_, _| ()).empty);
    let one = packet(rx.local_addr(), 0, b"0123456789", &[], &[]);
    send(&mut tx, Time::ZERO, &[one; 100]);
    let mut got = 0;
    loop {
        let report = rx.recv_each(Time::ZERO, 8, &mut |_, _| ());
        assert!(report.packets <= 8);
        got += report.packets;
        if report.empty {
            break;
        }
    }
    assert_eq!(got, 100);
    let calls = rx.counters().rx_calls;
    assert!(calls < 40, "100 small packets took {calls} calls");
}

#[test]
fn fds_become_readable() {
    let mut tx = open(&config(V4));
    let mut rx = open(&config(V4));
    let mut fds = Vec::new();
    rx.fds(&mut fds);
    let mut poll = libc::pollfd { fd: fds[0], events: libc::POLLIN, revents: 0 };
    // SAFETY: poll(2) reads and writes the one pollfd that it is given, a local variable.
    assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 0) }, 0);
    send(&mut tx, Time::ZERO, &[packet(rx.local_addr(), 1, b"x", &[], &[])]);
    // SAFETY: poll(2) reads and writes the one pollfd that it is given, a local variable.
    assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 2000) }, 1);
    assert_eq!(receive(&mut rx, 1).len(), 1);
}

/// Returns how a socket treats packets that are longer than the path MTU.
fn discovery(port: &UdpPort) -> i32 {
    if port.local_addr().is_ipv6() {
        sock::get_option(&port.endpoint, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER).unwrap()
    } else {
        sock::get_option(&port.endpoint, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER).unwrap()
    }
}

#[test]
fn packets_that_may_be_fragmented_go_one_by_one_and_the_others_in_trains() {
    for ip in [V4, V6] {
        let (mut tx, mut rx) = (open(&config(ip)), open(&config(ip)));
        let before = discovery(&tx);
        let mut batch = crate::base::Batch::default();
        let data: Vec<_> = (0..12).map(|n| pattern(n, 3000)).collect();
        for (n, bytes) in data.iter().enumerate() {
            batch.push((rx.local_addr(), 0, TrafficClass::Data), bytes, [], b"");
            batch.packets[n].fragment = (4..8).contains(&n);
        }
        let report = tx.send(Time::ZERO, Burst::from_copies(&batch));
        assert_eq!((report.sent, report.failed, report.trains), (12, 0, 1 + 4 + 1));
        let got: Vec<_> = receive(&mut rx, 12).into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(got, data);
        assert_eq!((discovery(&tx), tx.gso_refused()), (before, false), "as it was");
        assert_eq!(before, libc::IP_PMTUDISC_DO);
    }
}

#[test]
fn a_run_is_split_into_trains_that_are_not_too_long() {
    let (mut tx, mut rx) = (open(&config(V4)), open(&config(V4)));
    // 44 packets of 1472 bytes leave room for 739 more bytes; the socket would refuse 740.
    for (last, trains) in [(739, 1), (740, 2)] {
        let mut batch = crate::base::Batch::default();
        let data: Vec<_> = (0..45).map(|n| pattern(n, if n < 44 { 1472 } else { last })).collect();
        for bytes in &data {
            batch.push((rx.local_addr(), 0, TrafficClass::Data), bytes, [], b"");
        }
        batch.mark_runs(0);
        let report = tx.send(Time::ZERO, Burst::from_copies(&batch));
        assert_eq!((report.sent, report.trains, tx.gso_refused()), (45, trains, false), "{last}");
        let got: Vec<_> = receive(&mut rx, 45).into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(got, data);
    }
}

#[test]
fn single_packets_are_combined_into_trains() {
    let apart = PortConfig { gso: false, gro: false, ..config(V4) };
    let (mut tx, mut rx) = (open(&apart), open(&apart));
    // A shorter packet ends a train; a longer one and an empty one begin another.
    let lens = [9, 1000, 1000, 1000, 400, 1000, 1000, 1200, 0, 700, 700];
    let data: Vec<_> = lens.iter().enumerate().map(|(n, len)| pattern(n, *len)).collect();
    let to = rx.local_addr();
    let packets: Vec<_> = data.iter().map(|bytes| packet(to, 0, bytes, &[], &[])).collect();
    let marked = |n: usize| if n == 6 { TrafficClass::Control } else { TrafficClass::Data };
    let packets: Vec<_> =
        (0..).zip(packets).map(|(n, packet)| Sample { class: marked(n), ..packet }).collect();
    assert_eq!(send(&mut tx, Time::ZERO, &packets).sent, lens.len());
    let (mut trains, mut got) = (Vec::new(), Vec::new());
    let (end, mut bytes) = (deadline(), 0);
    while got.len() < lens.len() && before(end) {
        let report = rx.recv(Time::ZERO, 64, &mut |_, train| {
            trains.push(train.count());
            got.extend(train.map(<[u8]>::to_vec));
        });
        bytes += report.bytes;
    }
    assert_eq!(got, data);
    // The first call reads one message, and the second call begins with one.
    assert_eq!(trains, [1, 1, 3, 1, 1, 1, 1, 2]);
    let counters = rx.counters();
    assert_eq!((counters.rx_packets, counters.rx_trains), (11, 11));
    let sum = lens.iter().sum::<usize>() as u64;
    assert_eq!((bytes, counters.rx_bytes), (sum, sum));
}
