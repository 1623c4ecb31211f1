//! Tests with ports at both ends of a cable between network namespaces. Without the rights to
//! create namespaces the tests print a message and do nothing.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::process::Command;

use super::*;
use crate::burst::tests::{Sample, send};

/// A network namespace of this process.
struct Place(File);

impl Place {
    /// Creates a namespace, which ends with its last socket. Returns `None` without the rights.
    fn new() -> Option<Self> {
        std::thread::spawn(|| {
            // SAFETY: unshare(2) takes a number, and changes what network this thread is in, which ends with the closure.
            let rc = unsafe { libc::unshare(libc::CLONE_NEWNET) };
            (rc == 0).then(|| Self(File::open("/proc/thread-self/ns/net").expect("procfs")))
        })
        .join()
        .expect("a thread")
    }

    /// Runs `act` on a thread in the namespace.
    fn within<R: Send>(&self, act: impl FnOnce() -> R + Send) -> R {
        std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                // SAFETY: setns(2) takes a descriptor, ours, and a number, and changes what network this thread is in.
                let rc = unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(rc, 0, "setns: {}", io::Error::last_os_error());
                act()
            });
            there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn ip(&self, words: &str) {
        self.within(|| {
            let done = Command::new("ip").args(words.split(' ')).output().expect("iproute2");
            assert!(done.status.success(), "ip {words}: {}", String::from_utf8_lossy(&done.stderr));
        });
    }
}

/// Two hosts and the cable between them.
struct Cable {
    hosts: [Place; 2],
}

const ADDRESSES: [[&str; 2]; 2] = [["10.91.0.1", "fd91::1"], ["10.91.0.2", "fd91::2"]];

impl Cable {
    fn new(mtu: u32) -> Option<Self> {
        let (Some(a), Some(b)) = (Place::new(), Place::new()) else {
            eprintln!("not tested: no right to make network namespaces");
            return None;
        };
        if Command::new("ip").arg("-V").output().is_err() {
            eprintln!("not tested: no ip(8) to join network namespaces");
            return None;
        }
        // A namespace is named by a process or thread in it.
        let peer = format!("/proc/{}/fd/{}", std::process::id(), b.0.as_raw_fd());
        a.ip(&format!("link add e0 mtu {mtu} type veth peer name e0 mtu {mtu} netns {peer}"));
        for (host, addresses) in [&a, &b].into_iter().zip(ADDRESSES) {
            host.ip("link set lo up");
            host.ip("link set e0 up");
            host.ip(&format!("addr add {}/24 dev e0", addresses[0]));
            host.ip(&format!("addr add {}/64 dev e0 nodad", addresses[1]));
        }
        Some(Self { hosts: [a, b] })
    }

    fn config(host: usize, v6: bool, port: u16) -> PortConfig {
        let bind = SocketAddr::new(ADDRESSES[host][usize::from(v6)].parse().unwrap(), port);
        PortConfig { bind, paths: 4, dscp_data: 10, ..PortConfig::default() }
    }

    fn udp(&self, host: usize, v6: bool, port: u16) -> UdpPort {
        let config = Self::config(host, v6, port);
        // A process that another test starts holds this process's descriptors from its fork to its
        // exec, and so a port that is closed.
        let open = || {
            let opened = (0..1000).find_map(|_| match UdpPort::open(&config) {
                Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                    None
                }
                opened => Some(opened),
            });
            opened.expect("a free port").expect("a port").0
        };
        self.hosts[host].within(open)
    }

    fn xdp(&self, host: usize, v6: bool) -> Result<XdpPort, XdpError> {
        let udp = self.udp(host, v6, 4793);
        let config = Self::config(host, v6, 4793);
        self.hosts[host]
            .within(|| XdpPort::open(udp, &config))
            .map(|(port, report)| {
                assert!(report.queues >= 1 && !report.zero_copy, "{report}");
                port
            })
            .map_err(|refused| refused.1)
    }

    fn send(&self, host: usize, now: Time, port: &mut (impl Port + Send), samples: &[Sample<'_>]) {
        self.hosts[host].within(|| {
            let report = send(port, now, samples);
            assert_eq!((report.sent, report.failed), (samples.len(), 0));
        });
    }
}

/// The device drops every packet that its other end does not take, and the kernel reports that with `ENOBUFS`. Such
/// packets are lost, but packets to other peers behind them leave.
#[test]
fn dropped_packets_do_not_hold_up_other_peers() {
    let Some(cable) = Cable::new(9000) else { return };
    cable.hosts[1].ip("link set e0 mtu 1500");
    for v6 in [false, true] {
        let (mut a, mut b) = (cable.udp(0, v6, 0), cable.udp(1, v6, 0));
        let (long, short) = ([7; 8000], [8; 1000]);
        let to = b.local_addr();
        let mut receive = |count: usize| {
            let mut lengths = vec![];
            cable.hosts[1].within(|| {
                for _ in 0..1_000_000 {
                    b.recv_each(Time::ZERO, 64, &mut |_, bytes| lengths.push(bytes.len()));
                    if lengths.len() >= count {
                        break;
                    }
                    std::thread::yield_now();
                }
            });
            lengths
        };
        // The kernel silently drops packets that wait for the neighbour's link-layer address, so the address is
        // resolved first. On a busy machine it also drops the first packets of a device that has just been set up.
        let arrives = (0..10).any(|_| {
            cable.send(0, Time::ZERO, &mut a, &[sample(to, 0, &short)]);
            receive(1) == [1000]
        });
        assert!(arrives);
        // One packet is sent alone, then some in a batch, the last of which is long.
        for lengths in [&[true][..], &[true, false, true, false, true]] {
            let payload = |long_one: bool| if long_one { &long[..] } else { &short[..] };
            let samples: Vec<_> =
                (0..).zip(lengths).map(|(n, long)| sample(to, n % 4, payload(*long))).collect();
            cable.send(0, Time::ZERO, &mut a, &samples);
        }
        let counters = a.counters();
        assert_eq!((counters.tx_dropped, counters.tx_blocked, counters.tx_failed), (4, 0, 0));
        assert_eq!(receive(2), [1000; 2], "v6: {v6}");
    }
}

fn sample(dst: SocketAddr, path: u16, payload: &[u8]) -> Sample<'_> {
    let class = TrafficClass::Data;
    Sample { dst, path, class, header: payload, payload: &[], trailer: &[] }
}

/// Receives until `wanted` packets have arrived.
fn take(port: &mut impl Port, wanted: usize) -> Vec<(RxMeta, Vec<u8>)> {
    let mut got = Vec::new();
    for turn in 1..20_000 {
        port.recv_each(Time(turn * 100_000), 64, &mut |meta, bytes| {
            got.push((*meta, bytes.to_vec()));
        });
        if got.len() >= wanted {
            break;
        }
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    assert_eq!(got.len(), wanted);
    got
}

/// Makes the kernel of `host` resolve the neighbour, by a packet on the sockets.
fn introduce(cable: &Cable, host: usize, from: &mut XdpPort, to: &mut impl Port) {
    for attempt in 0..3 {
        let dst = to.local_addr();
        cable.send(host, Time(attempt * 10_000_000), from, &[sample(dst, 0, b"who has")]);
        take(to, 1);
    }
}

#[test]
fn packets_cross_a_cable_by_xdp_and_by_sockets() {
    let Some(cable) = Cable::new(1500) else { return };
    for v6 in [false, true] {
        for (xdp_sends, xdp_receives) in [(true, true), (true, false), (false, true)] {
            let mut sender: Box<dyn Port + Send> = if xdp_sends {
                Box::new(cable.xdp(0, v6).expect("AF_XDP over veth"))
            } else {
                Box::new(cable.udp(0, v6, 4793))
            };
            let mut receiver: Box<dyn Port> = if xdp_receives {
                Box::new(cable.xdp(1, v6).expect("AF_XDP over veth"))
            } else {
                Box::new(cable.udp(1, v6, 4793))
            };
            let dst = receiver.local_addr();
            let bytes: Vec<u8> = (0..1400).map(|n| (n * 7) as u8).collect();
            let sizes = [1400, 1400, 1400, 1400, 900, 0, 1, 64];
            let pieces: Vec<[&[u8]; 2]> =
                sizes.iter().map(|n| [&bytes[..n / 3], &bytes[n / 3..*n]]).collect();
            let mut numbers = Vec::new();
            for n in 0..240_u16 {
                numbers.push(n.to_be_bytes());
            }
            let samples: Vec<Sample<'_>> = (0..240)
                .map(|n| Sample {
                    dst,
                    path: n as u16 / 16 % 4,
                    class: if n % 40 == 0 { TrafficClass::Control } else { TrafficClass::Data },
                    header: &numbers[n],
                    payload: &pieces[n % 8],
                    trailer: &bytes[..n % 2 * 4],
                })
                .collect();
            for (turn, part) in samples.chunks(48).enumerate() {
                let now = Time(turn as u64 * 10_000_000);
                cable.send(0, now, &mut sender, part);
                let ports: Vec<u16> = (0..4).map(|path| sender.source_port(path)).collect();
                for (meta, got) in take(&mut receiver, part.len()) {
                    let n = usize::from(u16::from_be_bytes([got[0], got[1]]));
                    let sample = &samples[n];
                    let mut want = numbers[n].to_vec();
                    pieces[n % 8].iter().for_each(|piece| want.extend_from_slice(piece));
                    want.extend_from_slice(sample.trailer);
                    assert!(got == want, "packet {n}");
                    assert_eq!(meta.src.ip(), sender.local_addr().ip());
                    assert_eq!(meta.src.port(), ports[usize::from(sample.path)], "packet {n}");
                    let marks = if n % 40 == 0 { (46, 0) } else { (10, 2) };
                    assert_eq!((meta.dscp, meta.ecn), marks, "packet {n}");
                }
            }
            let (sent, got) = (sender.counters(), receiver.counters());
            assert_eq!((sent.tx_packets, got.rx_packets), (240, 240));
            assert_eq!(sent.tx_bytes, got.rx_bytes);
            assert_eq!(got.rx_overflow, 0);
        }
    }
}

#[test]
fn a_neighbour_that_is_known_is_sent_frames_which_come_as_trains() {
    let Some(cable) = Cable::new(1500) else { return };
    let mut a = cable.xdp(0, false).unwrap();
    let mut b = cable.xdp(1, false).unwrap();
    introduce(&cable, 0, &mut a, &mut b);
    let (dst, below) = (b.local_addr(), a.udp.counters().tx_packets);
    assert!(below >= 1, "the kernel finds the neighbour");
    let framed = a.counters.tx_packets;
    let bytes = [7; 1000];
    // More packets than there are frames, so that frames are reused.
    for _ in 0..100 {
        cable.send(0, Time(20_000_001), &mut a, &[sample(dst, 1, &bytes); 40]);
        assert!(take(&mut b, 40).iter().all(|(_, got)| got == &bytes));
    }
    assert_eq!((a.counters.tx_packets - framed, a.udp.counters().tx_packets), (4000, below));
    assert!(b.counters.rx_trains * 10 < b.counters.rx_packets, "{:?}", b.counters);
    // A second later the port asks the kernel again, and the packet takes the sockets.
    cable.send(0, Time(3_000_000_000), &mut a, &[sample(dst, 1, &bytes)]);
    assert_eq!(a.udp.counters().tx_packets, below + 1);
    take(&mut b, 1);
    // This packet does not fit a frame.
    let long = [sample(dst, 1, &[7; 1473])];
    let report = cable.hosts[0].within(|| send(&mut a, Time(3_000_000_001), &long));
    assert_eq!(report.failed, 1, "too long for the cable, as the kernel says");
    assert_eq!(a.counters.tx_packets - framed, 4000);
}

#[test]
fn a_full_ring_is_no_error_and_drops_are_counted() {
    let Some(cable) = Cable::new(1500) else { return };
    let mut a = cable.xdp(0, false).unwrap();
    let mut b = cable.xdp(1, false).unwrap();
    introduce(&cable, 0, &mut a, &mut b);
    let (dst, now) = (b.local_addr(), Time(20_000_001));
    let count = queue::RX_FRAMES as usize + 500;
    for n in 0..count as u32 {
        cable.send(0, now, &mut a, &[sample(dst, 1, &n.to_be_bytes())]);
    }
    let mut got = Vec::new();
    let mut overflow = 0;
    for turn in 1..200 {
        b.recv_each(Time(turn * 100_000), 64, &mut |meta, bytes| {
            overflow = meta.overflow;
            got.push(u32::from_be_bytes(bytes.try_into().unwrap()));
        });
    }
    assert!(got.iter().copied().eq(0..queue::RX_FRAMES), "the first, in order: {}", got.len());
    assert_eq!(overflow, 500, "heard of with what came");
    assert_eq!(b.counters().rx_overflow, 500);
    // The port continues on the sockets.
    cable.send(0, now, &mut a, &[sample(dst, 1, b"on")]);
    assert_eq!(take(&mut b, 1)[0].1, b"on");
}

#[test]
fn other_sockets_are_unaffected_and_a_second_endpoint_gets_an_error() {
    let Some(cable) = Cable::new(1500) else { return };
    let first = cable.xdp(0, false).unwrap();
    let refused = {
        let udp = cable.udp(0, false, 4794);
        let config = Cable::config(0, false, 4794);
        cable.hosts[0].within(|| XdpPort::open(udp, &config)).map(|_| ()).unwrap_err()
    };
    let (mut second, why) = *refused;
    assert!(why.to_string().contains("another endpoint"), "{why}");
    // The packets of this peer go through the kernel.
    let mut peer = cable.udp(1, false, 4793);
    cable.send(1, Time(1), &mut peer, &[sample(second.local_addr(), 1, b"hello")]);
    assert_eq!(take(&mut second, 1)[0].1, b"hello");
    drop(first);
    // The interface can be opened again, so nothing was left behind.
    let mut again = cable.xdp(0, false).unwrap();
    cable.send(1, Time(1), &mut peer, &[sample(again.local_addr(), 1, b"again")]);
    assert_eq!(take(&mut again, 1)[0].1, b"again");
    assert_eq!(again.counters.rx_packets, 1);
}

#[test]
fn packets_take_the_sockets_while_the_interface_is_down() {
    let Some(cable) = Cable::new(1500) else { return };
    let mut a = cable.xdp(0, false).unwrap();
    let mut b = cable.xdp(1, false).unwrap();
    introduce(&cable, 0, &mut a, &mut b);
    let (dst, at) = (b.local_addr(), Time(20_000_001));
    cable.hosts[0].ip("link set e0 down");
    cable.hosts[0].within(|| {
        send(&mut a, at, &[sample(dst, 1, b"lost")]);
        send(&mut a, at, &[sample(dst, 1, b"refused")]);
    });
    let mut errors = Vec::new();
    a.take_errors(&mut errors);
    assert!(!errors.is_empty(), "the sockets say that there is no network");
    cable.hosts[0].ip("link set e0 up");
    let mut framed = 0;
    for n in 0..200 {
        let now = Time(at.0 + 2_000_000_000 + n * 10_000_000);
        cable.hosts[0].within(|| send(&mut a, now, &[sample(dst, 1, b"back")]));
        framed += usize::from(a.counters.tx_packets > 0);
        b.recv_each(now, 64, &mut |_, _| ());
        if b.counters.rx_packets > 2 && framed > 3 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("{:?} {:?}", a.counters, b.counters);
}

#[test]
fn impossible_configurations_are_refused() {
    let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let config = PortConfig { bind: loopback, ..PortConfig::default() };
    let (udp, _) = UdpPort::open(&config).unwrap();
    let (_, why) = *XdpPort::open(udp, &config).map(|_| ()).unwrap_err();
    assert_eq!(why.to_string(), "no Ethernet interface has address 127.0.0.1");
    let Some(cable) = Cable::new(9000) else { return };
    let why = cable.xdp(0, false).map(|_| ()).unwrap_err();
    assert_eq!(
        why.to_string(),
        "MTU 9000 is too large: a frame holds packets of at most 3826 bytes; lower the MTU"
    );
}
