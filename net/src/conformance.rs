//! Tests of what every packet port must do. They run for each kind of port and for each wrapper,
//! with a port that sends to itself.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::base::{Batch, Time, TrafficClass, entropy_count};
use crate::burst::tests::{Sample, lend, send};
use crate::emulator::tests::mirror;
use crate::{
    Burst, CrcForm, CrcPort, FaultPort, FaultSpec, MAX_PIECES, NetError, PcapPort, Port,
    PortConfig, RxMeta, UdpPort,
};

const PATHS: u16 = 4;

fn config(ip: impl Into<std::net::IpAddr>) -> PortConfig {
    let bind = SocketAddr::new(ip.into(), 0);
    PortConfig { bind, paths: PATHS, dscp_data: 10, ..PortConfig::default() }
}

fn udp(config: &PortConfig) -> UdpPort {
    UdpPort::open(config).expect("a loopback port").0
}

fn plain() -> PortConfig {
    config(Ipv4Addr::LOCALHOST)
}

/// Returns all kinds of ports with their names, which appear in failures.
fn every() -> Vec<(&'static str, Box<dyn Port>)> {
    let bare = PortConfig { gso: false, gro: false, ..plain() };
    let calm: FaultSpec = "seed=1".parse().expect("no faults");
    // Tests run in parallel, so each capture needs a file of its own.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, n) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let file = std::env::temp_dir().join(format!("squall-conformance-{process}-{n}.pcap"));
    let spec = file.to_str().expect("a name").parse().expect("a capture");
    let captured = PcapPort::create(udp(&plain()), &spec, 0, &plain()).expect("a file");
    // The test does not read the capture.
    std::fs::remove_file(captured.path()).expect("it is there");
    vec![
        ("udp, IPv4", Box::new(udp(&plain()))),
        ("udp, IPv6", Box::new(udp(&config(Ipv6Addr::LOCALHOST)))),
        ("udp without offloads", Box::new(udp(&bare))),
        ("emulator", Box::new(mirror(&plain()))),
        ("crc", Box::new(CrcPort::new(udp(&plain()), None, CrcForm::Payload))),
        ("fault", Box::new(FaultPort::new(udp(&plain()), calm.clone(), &plain()))),
        ("capture", Box::new(captured)),
        (
            "crc, fault",
            Box::new(CrcPort::new(
                FaultPort::new(udp(&plain()), calm, &plain()),
                None,
                CrcForm::Headers,
            )),
        ),
    ]
}

/// Sends all packets, however many the port takes at a time, and receives until as many have
/// arrived.
fn exchange(name: &str, port: &mut dyn Port, samples: &[Sample<'_>]) -> Vec<(RxMeta, Vec<u8>)> {
    let (mut sent, mut got) = (0, Vec::new());
    for _ in 0..100_000 {
        let part = &samples[sent..samples.len().min(sent + 32)];
        if !part.is_empty() {
            let report = send(port, Time::ZERO, part);
            assert!(report.sent <= part.len() && report.failed == 0, "{name}: {report:?}");
            sent += report.sent;
        }
        port.recv_each(Time::ZERO, 64, &mut |meta, bytes| got.push((*meta, bytes.to_vec())));
        if got.len() >= samples.len() {
            return got;
        }
        std::thread::yield_now();
    }
    panic!("{name}: {} of {} packets came back", got.len(), samples.len());
}

#[test]
fn packets_arrive_whole_each_path_in_order_and_from_its_own_source_port() {
    for (name, mut port) in every() {
        let dst = port.local_addr();
        let data: Vec<u8> = (0..20_000u32).map(|i| (i * 7) as u8).collect();
        // The packets are sent alone and in trains, without payload and with several pieces.
        let sizes: Vec<usize> =
            (0..240).map(|n| [0, 1, 64, 1400, 1400, 1400, 4000][n % 7]).collect();
        let pieces: Vec<[&[u8]; 2]> =
            sizes.iter().map(|n| [&data[..n / 3], &data[n / 3..*n]]).collect();
        let headers: Vec<[u8; 40]> = (0..240).map(|n| [n as u8; 40]).collect();
        let samples: Vec<Sample<'_>> = (0..240usize)
            .map(|n| Sample {
                dst,
                path: (n / 8) as u16 % (entropy_count(PATHS) + 1),
                class: if n % 11 == 0 { TrafficClass::Control } else { TrafficClass::Data },
                header: &headers[n],
                payload: if sizes[n] == 0 { &[] } else { &pieces[n] },
                trailer: &data[..n % 2 * 4],
            })
            .collect();
        let got = exchange(name, &mut *port, &samples);
        let ports: Vec<u16> =
            (0..entropy_count(PATHS)).map(|path| port.source_port(path)).collect();
        let mut unique = ports.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), ports.len(), "{name}");
        let mut newest = vec![None; ports.len()];
        for (meta, bytes) in got {
            let n = usize::from(bytes[0]);
            let sample = &samples[n];
            let mut want = sample.header.to_vec();
            sample.payload.iter().for_each(|piece| want.extend_from_slice(piece));
            want.extend_from_slice(sample.trailer);
            assert!(bytes == want, "{name}: packet {n}");
            let path = usize::from(sample.path) % ports.len();
            assert_eq!(meta.src, SocketAddr::new(dst.ip(), ports[path]), "{name}: packet {n}");
            assert!(newest[path] < Some(n), "{name}: packet {n} behind {:?}", newest[path]);
            newest[path] = Some(n);
            let marks = if n % 11 == 0 { (46, 0) } else { (10, 2) };
            assert_eq!(
                (meta.dscp, meta.ecn, meta.ce()),
                (marks.0, marks.1, false),
                "{name}: packet {n}"
            );
        }
        let counters = port.counters();
        assert_eq!((counters.tx_packets, counters.rx_packets), (240, 240), "{name}");
        assert_eq!((counters.tx_bytes, counters.tx_failed), (counters.rx_bytes, 0), "{name}");
        let mut errors: Vec<NetError> = Vec::new();
        port.take_errors(&mut errors);
        assert!(errors.is_empty(), "{name}: {errors:?}");
    }
}

#[test]
fn the_datagrams_of_a_run_arrive_as_they_would_alone() {
    let data: Vec<u8> = (0..90_000u32).map(|i| (i * 7) as u8).collect();
    // Each row has the number of packets, the length of each payload and of the last one, and
    // whether the payload is copied. The rows exceed a train by number and by bytes. The last
    // packet fits into the train in one row, does not fit in another, and has full length in a
    // third.
    let trains = [
        (2, 100, 1, false),
        (64, 1344, 1344, false),
        (70, 600, 17, true),
        (48, 1384, 700, false),
        (45, 1416, 500, true),
        (46, 1416, 1416, true),
        (3, 30_000, 30_000, false),
    ];
    for (name, mut port) in every() {
        let (dst, mut batch, mut want) = (port.local_addr(), Batch::default(), Vec::new());
        for (train, &(count, len, last, copied)) in trains.iter().enumerate() {
            let front = batch.packets.len();
            for n in 0..count {
                let (from, len) = (n * len, if n + 1 == count { last } else { len });
                // The last packets of some trains take another path.
                let path = if train % 2 == 1 && n + 2 > count { 3 } else { 1 };
                let mut header = [n as u8; 56].to_vec();
                header[0] = train as u8;
                let payload = &data[from % 1000..][..len];
                want.push((path, [&header[..], payload].concat()));
                if copied {
                    header.extend_from_slice(payload);
                }
                let lent = (!copied).then(|| lend(payload));
                batch.push((dst, path, TrafficClass::Data), &header, lent, b"");
            }
            batch.mark_runs(front);
        }
        // A call that takes only a part, or is offered only a part, makes the next call begin in
        // the middle of a run.
        let (mut sent, mut got) = (0, Vec::new());
        for turn in 0..100_000 {
            let end = batch.packets.len().min(sent + 1 + turn % 50);
            if sent < end {
                // SAFETY: `lend` exposed the addresses of parts of `data`, which lives to the end of the test.
                let report = port.send(Time::ZERO, unsafe { Burst::new(&batch, sent..end) });
                assert_eq!(report.failed, 0, "{name}");
                sent += report.sent;
            }
            port.recv_each(Time::ZERO, 64, &mut |_, bytes| got.push(bytes.to_vec()));
            if got.len() == want.len() {
                break;
            }
            std::thread::yield_now();
        }
        for path in [1, 3] {
            let want = want.iter().filter(|(way, _)| *way == path).map(|(_, bytes)| bytes);
            let of_path = |bytes: &&Vec<u8>| want.clone().any(|other| other == *bytes);
            assert!(want.clone().eq(got.iter().filter(of_path)), "{name}: path {path}");
        }
        assert_eq!(got.len(), want.len(), "{name}");
    }
}

#[test]
fn reports_count_the_packets_of_a_call() {
    for (name, mut port) in every() {
        let port = &mut *port;
        let sample = Sample {
            dst: port.local_addr(),
            path: 1,
            class: TrafficClass::Data,
            header: b"header",
            payload: &[b"payload"],
            trailer: &[],
        };
        assert_eq!(send(port, Time::ZERO, &[]), crate::SendReport::default(), "{name}");
        let report = send(port, Time::ZERO, &[sample; 3]);
        assert_eq!((report.sent, report.failed), (3, 0), "{name}");
        assert_eq!(report.bytes, port.counters().tx_bytes, "{name}");
        assert_eq!(report.trains as u64, port.counters().tx_trains, "{name}");
        assert!(report.bytes >= 3 * 13, "{name}");
        let (mut packets, mut bytes) = (0, 0);
        while packets < 3 {
            let report = port.recv_each(Time::ZERO, 64, &mut |_, _| ());
            packets += report.packets;
            bytes += report.bytes;
        }
        assert_eq!((packets, bytes), (3, report.bytes), "{name}");
        // Whatever the port does with the long packet, the next calls return without packets.
        let reports = [(); 2].map(|()| port.recv_each(Time::ZERO, 64, &mut |_, _| ()));
        assert!(reports[1].empty && reports[1].packets == 0, "{name}: {reports:?}");
    }
}

#[test]
fn descriptors_become_readable_when_something_is_there_and_only_then() {
    for (name, mut port) in every() {
        let mut fds = Vec::new();
        port.fds(&mut fds);
        assert!(!fds.is_empty(), "{name}");
        let ready = |wait: i32| {
            let poll = |fd: &i32| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 };
            let mut polled: Vec<libc::pollfd> = fds.iter().map(poll).collect();
            // SAFETY: poll(2) reads and writes as many pollfds as its second argument says, those of a local vector.
            unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, wait) }
        };
        assert_eq!(ready(0), 0, "{name}");
        let sending = &mut *port;
        let sample = Sample {
            dst: sending.local_addr(),
            path: 0,
            class: TrafficClass::Data,
            header: b"wake up",
            payload: &[],
            trailer: &[],
        };
        assert_eq!(send(sending, Time::ZERO, &[sample]).sent, 1, "{name}");
        assert_eq!(ready(2000), 1, "{name}");
        let mut got = 0;
        while got == 0 {
            got = port.recv_each(Time::ZERO, 64, &mut |_, _| ()).packets;
        }
        while !port.recv_each(Time::ZERO, 64, &mut |_, _| ()).empty {}
        assert_eq!((got, ready(0)), (1, 0), "{name}");
        assert_eq!(port.next_deadline(), None, "{name}");
    }
}

#[test]
fn the_budget_bounds_a_call_except_for_its_last_train() {
    for (name, mut port) in every() {
        let port = &mut *port;
        let sample = Sample {
            dst: port.local_addr(),
            path: 0,
            class: TrafficClass::Data,
            header: &[5; 900],
            payload: &[],
            trailer: &[],
        };
        assert_eq!(send(port, Time::ZERO, &[sample; 200]).sent, 200, "{name}");
        let mut all = 0;
        while all < 200 {
            let got = port.recv_each(Time::ZERO, 4, &mut |_, _| ()).packets;
            assert!(got <= 4 + 127, "{name}: {got}");
            all += got;
        }
        assert_eq!(all, 200, "{name}");
    }
}

#[test]
fn a_packet_of_too_many_pieces_does_not_affect_others() {
    for (name, mut port) in every() {
        let port = &mut *port;
        let many = vec![&b"z"[..]; MAX_PIECES + 1];
        let good = Sample {
            dst: port.local_addr(),
            path: 1,
            class: TrafficClass::Data,
            header: b"good",
            payload: &[],
            trailer: &[],
        };
        let bad = Sample { payload: &many, ..good };
        let report = send(port, Time::ZERO, &[good, bad, good]);
        assert_eq!(report.sent, 3, "{name}");
        let (mut short, mut long) = (0, 0);
        for _ in 0..100_000 {
            port.recv_each(Time::ZERO, 64, &mut |_, bytes| {
                *(if bytes == b"good" { &mut short } else { &mut long }) += 1;
            });
            if short == 2 && long + report.failed == 1 {
                break;
            }
            std::thread::yield_now();
        }
        // A port that copies its packets may send the long one.
        assert_eq!((short, long + report.failed), (2, 1), "{name}: {report:?}");
    }
}

#[test]
fn the_path_to_oneself_carries_something() {
    for (name, mut port) in every() {
        let to = port.local_addr();
        assert!(port.path_mtu(to).expect("a route") >= 1280, "{name}");
    }
}
