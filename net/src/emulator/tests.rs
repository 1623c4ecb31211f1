//! Tests against an emulator of a few lines: a thread that answers the hello and then treats the
//! frames as the test demands.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use super::frame::encode;
use super::*;
use crate::base::{Rate, Span};
use crate::burst::tests::{Sample, send};

const WELCOME: Welcome = Welcome {
    host: 2,
    hosts: 8,
    rate: Rate::gbps(1),
    base_rtt: Span::micros(40),
    mtu: 4096,
    trimming: true,
    virtual_time: None,
};

/// Returns a socket path that no other test uses.
fn path() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("squall-emulator-{}-{n}", std::process::id()))
}

fn config() -> PortConfig {
    PortConfig { bind: "127.0.0.1:0".parse().unwrap(), ..PortConfig::default() }
}

/// Starts an emulator that accepts one endpoint, answers with `answer`, and then runs `then`.
fn emulator<T: Send + 'static>(
    answer: Vec<u8>,
    then: impl FnOnce(UnixStream, Hello) -> T + Send + 'static,
) -> (EmulatorSpec, JoinHandle<T>) {
    let path = path();
    let listener = UnixListener::bind(&path).unwrap();
    let spec =
        EmulatorSpec { path: path.clone(), host: HostChoice::Number(2), virtual_time: false };
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::fs::remove_file(path).unwrap();
        let mut bytes =
            vec![
                0;
                Hello { addr: config().bind, host: None, process: 0, job_rank: JobRank::default() }
                    .encode()
                    .len()
            ];
        stream.read_exact(&mut bytes).unwrap();
        let hello = Hello::decode(Frame::first(&bytes).unwrap().unwrap().body()).unwrap();
        stream.write_all(&answer).unwrap();
        then(stream, hello)
    });
    (spec, thread)
}

fn wait_until(mut over: impl FnMut() -> bool) {
    for _ in 0..5_000 {
        if over() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("nothing happened for five seconds");
}

/// Turns the frame of a packet round: its source is the destination, with the entropy as port.
fn bounced(frame: &Frame<'_>, edit: impl Fn(&mut PacketFrame)) -> Vec<u8> {
    let (mut head, payload) = PacketFrame::decode(frame).unwrap();
    head.addr.set_port(head.entropy);
    edit(&mut head);
    let mut out = head.encode(payload.len()).to_vec();
    out.extend_from_slice(payload);
    out
}

/// Opens a port on an emulator that sends everything back.
pub(crate) fn mirror(config: &PortConfig) -> EmulatorPort {
    let (spec, _) = emulator(WELCOME.encode(), reflect);
    EmulatorPort::attach(&spec, JobRank::default(), config).unwrap()
}

/// Sends every packet back, read in pieces of odd length, until the port is gone.
fn reflect(mut stream: UnixStream, hello: Hello) -> Hello {
    let (mut seen, mut chunk) = (Vec::new(), vec![0; 10_007]);
    loop {
        let n = stream.read(&mut chunk).unwrap();
        if n == 0 {
            return hello;
        }
        seen.extend_from_slice(&chunk[..n]);
        let mut at = 0;
        while let Some(frame) = Frame::first(&seen[at..]).unwrap() {
            stream.write_all(&bounced(&frame, |_| ())).unwrap();
            at += frame.bytes.len();
        }
        seen.drain(..at);
    }
}

#[test]
fn packets_of_every_size_go_and_come_whatever_the_socket_takes_at_a_time() {
    // Half a megabyte of packets is sent at a time and read in pieces of odd length, so frames are
    // cut at all positions.
    let (spec, thread) = emulator(WELCOME.encode(), reflect);
    let mut port = EmulatorPort::attach(&spec, JobRank::default(), &config()).unwrap();
    assert_eq!(*port.welcome(), WELCOME);
    let dst = "127.0.0.1:9".parse().unwrap();
    let data: Vec<u8> = (0..70_000u32).map(|i| (i * 7) as u8).collect();
    let sizes: Vec<usize> = (0..600).map(|i| i * 109 % 9_001).collect();
    let payloads: Vec<[&'_ [u8]; 2]> =
        sizes.iter().map(|n| [&data[..n / 3], &data[n / 3..*n]]).collect();
    let packets: Vec<Sample<'_>> = (0..600u16)
        .map(|i| Sample {
            dst,
            path: i % 5,
            class: if i % 7 == 0 { TrafficClass::Control } else { TrafficClass::Data },
            header: &data[usize::from(i)..usize::from(i) + 40],
            payload: &payloads[usize::from(i)],
            trailer: &data[..usize::from(i % 2) * 4],
        })
        .collect();
    let (mut sent, mut got) = (0, 0);
    wait_until(|| {
        sent += send(&mut port, Time::ZERO, &packets[sent..]).sent;
        let ports: Vec<u16> = (0..5).map(|p| port.source_port(p)).collect();
        port.recv_each(Time::ZERO, 64, &mut |meta, bytes| {
            let i = got as u16;
            let mut want = data[got..got + 40].to_vec();
            want.extend_from_slice(&data[..sizes[got]]);
            want.extend_from_slice(&data[..(got % 2) * 4]);
            assert!(bytes == want, "packet {got}");
            let control = got % 7 == 0;
            assert_eq!((meta.ecn, meta.dscp), if control { (0, 46) } else { (2, 0) });
            assert_eq!(meta.src, SocketAddr::new(dst.ip(), ports[usize::from(i % 5)]));
            got += 1;
        });
        got == 600
    });
    let counters = port.counters();
    assert_eq!((counters.tx_packets, counters.rx_packets), (600, 600));
    assert_eq!(counters.tx_bytes, counters.rx_bytes);
    assert!(counters.tx_blocked > 0, "the socket was full at least once");
    let local = port.local_addr();
    drop(port);
    let hello = thread.join().unwrap();
    assert_eq!((hello.addr, hello.host, hello.process), (local, Some(2), std::process::id()));
}

#[test]
fn marks_trims_and_overflow_reach_the_transport() {
    let (spec, thread) = emulator(WELCOME.encode(), |mut stream, _| {
        let mut seen = vec![0; PACKET_HEAD + 4];
        stream.read_exact(&mut seen).unwrap();
        let frame = Frame::first(&seen).unwrap().unwrap();
        let edit = |head: &mut PacketFrame| {
            (head.ecn, head.trimmed, head.overflow) = (3, true, 12);
        };
        stream.write_all(&bounced(&frame, edit)).unwrap();
        stream
            .write_all(&encode(
                FrameKind::Nobody,
                &frame::encode_address("10.0.0.9:8".parse().unwrap()),
            ))
            .unwrap();
        stream
    });
    let mut port = EmulatorPort::attach(&spec, JobRank::default(), &config()).unwrap();
    let dst = "127.0.0.1:9".parse().unwrap();
    let packet = Sample {
        dst,
        path: 1,
        class: TrafficClass::Data,
        header: b"abcd",
        payload: &[],
        trailer: &[],
    };
    assert_eq!(send(&mut port, Time::ZERO, &[packet]).sent, 1);
    let (mut seen, mut errors) = (None, Vec::new());
    wait_until(|| {
        port.recv_each(Time::ZERO, 64, &mut |meta, bytes| seen = Some((*meta, bytes.to_vec())));
        port.take_errors(&mut errors);
        seen.is_some() && !errors.is_empty()
    });
    let (meta, bytes) = seen.unwrap();
    assert_eq!((meta.ecn, meta.dscp, meta.overflow), (3, config().dscp_trimmed, 12));
    assert_eq!(bytes, b"abcd");
    let counters = port.counters();
    assert_eq!((counters.rx_ce, counters.rx_overflow, counters.errors), (1, 12, 1));
    let peer = "10.0.0.9:8".parse().unwrap();
    assert_eq!(
        errors,
        [NetError::Unreachable { peer, kind: UnreachableReason::Port, offender: None }]
    );
    drop(thread.join().unwrap());
}

#[test]
fn unread_bytes_in_the_port_make_a_deadline() {
    let (spec, thread) = emulator(WELCOME.encode(), |mut stream, _| {
        let head = PacketFrame {
            addr: "127.0.0.1:7".parse().unwrap(),
            entropy: 0,
            ecn: 0,
            dscp: 0,
            control: false,
            trimmed: false,
            sent: Time::ZERO,
            overflow: 0,
            endpoint: 0,
        };
        stream.write_all(&[head.encode(0), head.encode(0), head.encode(0)].concat()).unwrap();
        stream
    });
    let mut port = EmulatorPort::attach(&spec, JobRank::default(), &config()).unwrap();
    let stream = thread.join().unwrap();
    assert_eq!(port.next_deadline(), None);
    let mut n = 0;
    let report = port.recv_each(Time::ZERO, 1, &mut |_, _| n += 1);
    assert_eq!((report.packets, report.empty, port.next_deadline()), (1, false, Some(Time::ZERO)));
    let report = port.recv_each(Time::ZERO, 10, &mut |_, _| n += 1);
    assert_eq!((report.packets, report.empty, port.next_deadline()), (2, true, None));
    assert_eq!(n, 3);
    drop(stream);
}

/// Returns whether a descriptor would wake a sleeping thread.
fn readable(fd: RawFd) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: poll(2) reads and writes the one pollfd that it is given, a local variable.
    unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
}

#[test]
fn the_loss_of_the_emulator_is_reported_once_and_wakes_no_sleeper_again() {
    let (spec, thread) = emulator(WELCOME.encode(), |stream, _| drop(stream));
    let mut port = EmulatorPort::attach(&spec, JobRank::default(), &config()).unwrap();
    thread.join().unwrap();
    let mut fds = Vec::new();
    port.fds(&mut fds);
    assert!(readable(fds[0]), "its end is news");
    let report = port.recv_each(Time::ZERO, 64, &mut |_, _| panic!("nothing was sent"));
    assert!(report.empty && !port.is_alive());
    assert!(!readable(fds[0]), "once");
    let mut errors = Vec::new();
    port.take_errors(&mut errors);
    let cut_off = NetError::Local { peer: port.local_addr(), errno: libc::ENOTCONN };
    assert_eq!(errors, [cut_off], "whoever only receives learns it, too");
    errors.clear();
    let dst = "127.0.0.1:9".parse().unwrap();
    let packet = Sample {
        dst,
        path: 0,
        class: TrafficClass::Data,
        header: b"x",
        payload: &[],
        trailer: &[],
    };
    let report = send(&mut port, Time::ZERO, &[packet; 3]);
    assert_eq!((report.sent, report.failed), (3, 3));
    port.take_errors(&mut errors);
    assert_eq!(errors, [NetError::Local { peer: dst, errno: libc::ENOTCONN }]);
    assert!(port.recv_each(Time::ZERO, 64, &mut |_, _| ()).empty);
}

#[test]
fn invalid_data_from_the_emulator_ends_the_connection() {
    let (spec, thread) = emulator(WELCOME.encode(), |mut stream, _| {
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap();
        stream
    });
    let mut port = EmulatorPort::attach(&spec, JobRank::default(), &config()).unwrap();
    let stream = thread.join().unwrap();
    port.recv_each(Time::ZERO, 64, &mut |_, _| panic!("that is no packet"));
    assert!(!port.is_alive());
    drop(stream);
}

#[test]
fn errors_of_attaching_name_the_cause() {
    let nowhere = EmulatorSpec { path: path(), host: HostChoice::Free, virtual_time: false };
    let error = EmulatorPort::attach(&nowhere, JobRank::default(), &config()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let text = error.to_string();
    assert!(text.contains("squall emulate up") && text.contains("squall-emulator-"), "{text}");

    let (spec, _) = emulator(encode(FrameKind::Refused, b"host 2 is taken"), |_, _| ());
    let error =
        EmulatorPort::attach(&spec, JobRank::default(), &config()).err().unwrap().to_string();
    assert!(
        error.contains("the emulator refused endpoint") && error.contains(": host 2 is taken"),
        "{error}"
    );

    let (spec, _) = emulator(encode(FrameKind::Packet, &[0; 64]), |_, _| ());
    let error =
        EmulatorPort::attach(&spec, JobRank::default(), &config()).err().unwrap().to_string();
    assert!(error.contains("frame of kind Packet"), "{error}");

    let (spec, _) = emulator(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), |_, _| ());
    let error =
        EmulatorPort::attach(&spec, JobRank::default(), &config()).err().unwrap().to_string();
    assert!(error.contains("unexpected kind of frame, wait or deviation 0x53"), "{error}");

    let anywhere = PortConfig { bind: "0.0.0.0:0".parse().unwrap(), ..config() };
    let error =
        EmulatorPort::attach(&nowhere, JobRank::default(), &anywhere).err().unwrap().to_string();
    assert!(error.contains("unspecified address"), "{error}");
}

#[test]
fn paths_have_source_ports_of_their_own() {
    let (spec, thread) = emulator(WELCOME.encode(), |stream, _| stream);
    let config = PortConfig { paths: 256, ..config() };
    let port = EmulatorPort::attach(&spec, JobRank::default(), &config).unwrap();
    let mut ports: Vec<u16> = (0..256).map(|p| port.source_port(p)).collect();
    assert_eq!(ports[0], port.local_addr().port());
    ports.sort_unstable();
    ports[1..].windows(2).for_each(|w| assert!(w[0] < w[1]));
    drop(thread.join().unwrap());
}
