//! Ports in virtual time against an emulator that the test plays. The clock is one for the process, so
//! that this file has one test.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use squall_net::emulator::frame::{
    Frame, FrameKind, Hello, JobRank, PACKET_HEAD, PacketFrame, Resume, VirtualTimeRules, Wait,
    WaitReason, Welcome, encode, encode_address,
};
use squall_net::emulator::host_overhead::HostOverhead;
use squall_net::emulator::shared::{Doorbell, SharedStream};
use squall_net::emulator::virtual_time::{self, Progress};
use squall_net::emulator::{AttachedPort, attach};
use squall_net::{
    Burst, EmulatorSpec, HostChoice, NetError, Port, PortConfig, RxMeta, UnreachableReason,
    VirtualPort,
};
use squall_wire::base::{Batch, Rate, Span, Time, TrafficClass};

const ORIGIN: u64 = 1 << 50;
/// An endpoint of rank 1, on another host.
const PEER: &str = "192.0.2.9:1032";
/// An endpoint of rank 2, on the host of the process.
const NEIGHBOUR: &str = "192.0.2.9:1040";

/// Returns a time of the job.
fn at(ns: u64) -> Time {
    Time(ORIGIN + ns)
}

/// The emulator's side of the connection.
struct Emulator {
    stream: UnixStream,
    doorbell: (Arc<Doorbell>, OwnedFd),
    /// The memory that the process shares, once it has attached.
    shared: Option<SharedStream>,
    read: Vec<u8>,
}

impl Emulator {
    /// Returns the next frame of the process.
    fn frame(&mut self) -> Vec<u8> {
        loop {
            if let Some(frame) = Frame::first(&self.read).expect("frames") {
                let len = frame.bytes.len();
                return self.read.drain(..len).collect();
            }
            let mut chunk = [0; 4096];
            let n = match &mut self.shared {
                None => self.stream.read(&mut chunk).expect("a process"),
                Some(shared) => shared.read(&mut chunk).expect("a process"),
            };
            assert!(n > 0 || self.shared.is_some(), "the process has closed the connection");
            if n == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            self.read.extend_from_slice(&chunk[..n]);
        }
    }

    /// Writes frames to the process.
    fn write(&mut self, bytes: &[u8]) {
        let shared = self.shared.as_mut().expect("an endpoint has attached");
        assert_eq!(shared.write(bytes), bytes.len());
        shared.wake();
    }

    /// Accepts an endpoint and gives it a port.
    fn welcome(&mut self, port: u16) {
        let bytes = self.frame();
        let hello = Frame::first(&bytes).expect("a frame").expect("whole");
        let hello = Hello::decode(hello.body()).expect("a hello");
        assert_eq!((hello.addr.port(), hello.job_rank.rank), (0, Some(3)));
        let mut overhead = HostOverhead::default();
        overhead.byte = 500;
        let rules = VirtualTimeRules {
            origin: at(0),
            start: at(0),
            shown_origin: at(0),
            calendar: 7,
            seed: 1,
            cpu_scale: 0,
            overhead,
            longest_idle: Span::millis(1),
            port,
            inner_rate: Rate::gbps(10),
        };
        let welcome = Welcome {
            host: 3,
            hosts: 8,
            rate: Rate::gbps(100),
            base_rtt: Span::micros(4),
            mtu: 4096,
            trimming: true,
            virtual_time: Some(rules),
        };
        if self.shared.is_some() {
            return self.write(&welcome.encode());
        }
        self.stream.write_all(&welcome.encode()).expect("a process");
        let (doorbell, memory) = &self.doorbell;
        self.shared =
            Some(SharedStream::offer(&self.stream, 0, (doorbell, memory)).expect("memory"));
    }

    /// Returns the packets that the process has sent, and its wait.
    fn wait(&mut self) -> (Vec<PacketFrame>, Wait) {
        let mut packets = Vec::new();
        loop {
            let bytes = self.frame();
            let frame = Frame::first(&bytes).expect("a frame").expect("whole");
            match frame.kind {
                FrameKind::Packet => packets.push(PacketFrame::decode(&frame).expect("a packet").0),
                FrameKind::Wait => return (packets, Wait::decode(&frame).expect("a wait")),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Delivers packets of one byte, each with a time and the number of an endpoint, and lets the process
    /// go on.
    fn resume(&mut self, packets: &[(u64, u16)], now: u64, horizon: u64) {
        for &(arrives, endpoint) in packets {
            self.write(&packet(arrives, endpoint));
            self.write(b"x");
        }
        self.write(&Resume { now: at(now), horizon: at(horizon) }.encode());
    }
}

/// Returns the header of a packet of one byte.
fn packet(arrives: u64, endpoint: u16) -> [u8; PACKET_HEAD] {
    let head = PacketFrame {
        addr: PEER.parse().expect("literal"),
        entropy: 1032,
        ecn: 3,
        dscp: 10,
        control: false,
        trimmed: false,
        sent: at(arrives),
        overflow: 0,
        endpoint,
    };
    head.encode(1)
}

type Script = Box<dyn FnOnce(&mut Emulator) + Send>;

/// Starts the emulator, which runs the scripts that it is sent, and says after each that it is done.
fn emulator(listener: UnixListener) -> (Sender<Script>, Receiver<()>) {
    let (scripts, inbox) = channel::<Script>();
    let (done, results) = channel();
    thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a process");
        let (doorbell, memory) = Doorbell::create().expect("memory");
        let doorbell = (Arc::new(doorbell), memory);
        let mut emulator = Emulator { stream, doorbell, shared: None, read: Vec::new() };
        emulator.welcome(1048);
        for script in inbox {
            script(&mut emulator);
            done.send(()).expect("the test");
        }
    });
    (scripts, results)
}

fn open(spec: &EmulatorSpec) -> VirtualPort {
    let bind = "127.0.0.1:0".parse().expect("literal");
    let job_rank = JobRank { rank: Some(3), ranks: Some(4) };
    let config = PortConfig { bind, ..PortConfig::default() };
    match attach(spec, job_rank, &config).expect("an emulator") {
        AttachedPort::Virtual(port) => *port,
        AttachedPort::Real(_) => panic!("the clock is virtual"),
    }
}

/// Offers data packets of 4000 bytes to a port, or a control packet. Returns how many it took.
fn send(port: &mut VirtualPort, to: &str, class: TrafficClass, packets: usize) -> usize {
    let mut batch = Batch::default();
    for _ in 0..packets {
        let dst: SocketAddr = to.parse().expect("literal");
        let len = if class == TrafficClass::Data { 4000 } else { 16 };
        batch.push((dst, 1, class), &vec![7; len], [], &[]);
    }
    port.send(Time::ZERO, Burst::from_copies(&batch)).sent
}

/// Receives what has arrived at a port. Returns the number of packets.
fn receive(port: &mut VirtualPort) -> usize {
    let peer: SocketAddr = PEER.parse().expect("literal");
    let mut check = |meta: &RxMeta, bytes: &[u8]| {
        assert_eq!((meta.src, meta.ecn, bytes), (peer, 3, &b"x"[..]));
    };
    port.recv_each(Time::ZERO, 64, &mut check).packets
}

#[test]
fn a_process_in_virtual_time() {
    assert!(virtual_time::now().is_none() && virtual_time::clock().is_none());
    let path = std::env::temp_dir().join(format!("squall-virtual-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).expect("a socket");
    let (scripts, done) = emulator(listener);
    let spec = EmulatorSpec {
        path: path.clone(),
        host: HostChoice::List("0,1,3x2".parse().expect("a list")),
        virtual_time: true,
    };
    let mut port = open(&spec);
    let clock = virtual_time::clock().expect("virtual time has begun");
    let play = |script: Script| scripts.send(script).expect("an emulator");
    assert_eq!((port.local_addr().port(), port.number(), clock.now()), (1048, 0, at(0)));

    // Before the job begins the clock stands still.
    clock.charge(Span(100));
    assert!(!clock.has_begun() && clock.now() == at(0));
    play(Box::new(|emulator| {
        let (_, wait) = emulator.wait();
        assert_eq!((wait.now, wait.until, wait.reason), (at(0), at(500), WaitReason::Idle));
        emulator.resume(&[(300, 0), (800, 0)], 300, 1000);
    }));
    assert_eq!(clock.advance(at(500), WaitReason::Idle), Progress::Arrival);
    done.recv().expect("played");
    assert!(clock.has_begun() && clock.has_arrival());
    assert_eq!((clock.now(), receive(&mut port), receive(&mut port)), (at(300), 1, 0));

    // Up to the horizon it need not ask. It stops at arrivals that it knows.
    assert_eq!(port.next_deadline(), Some(at(800)));
    assert_eq!(clock.advance(at(700), WaitReason::Busy), Progress::Time);
    assert_eq!(
        (clock.advance(at(900), WaitReason::Busy), clock.now()),
        (Progress::Arrival, at(800))
    );
    assert_eq!(receive(&mut port), 1);

    // The clock passes an arrival that is unknown: the port asks, or the wait ends at once.
    clock.charge(Span(400));
    play(Box::new(|emulator| {
        let (_, wait) = emulator.wait();
        assert_eq!((wait.now, wait.until, wait.reason), (at(1200), at(1200), WaitReason::Sync));
        assert_eq!(wait.overhead, Span(400));
        emulator.resume(&[(1100, 0)], 1200, 1300);
    }));
    assert_eq!(receive(&mut port), 1);
    done.recv().expect("played");
    clock.charge(Span(300));
    play(Box::new(|emulator| {
        let (_, wait) = emulator.wait();
        assert_eq!((wait.now, wait.until), (at(1500), at(2000)));
        emulator.resume(&[(1400, 0)], 1500, 1600);
    }));
    assert_eq!(clock.advance(at(2000), WaitReason::Timer), Progress::Arrival);
    done.recv().expect("played");
    assert_eq!((clock.now(), receive(&mut port)), (at(1500), 1));

    // A packet that arrives at the horizon, and was known before, ends the wait: the emulator does not
    // announce it again.
    play(Box::new(|emulator| {
        emulator.wait();
        emulator.resume(&[(1900, 0)], 1800, 1900);
        let (_, wait) = emulator.wait();
        assert_eq!(wait.until, at(1900));
        emulator.resume(&[], 1900, 2000);
    }));
    assert_eq!(clock.advance(at(1800), WaitReason::Timer), Progress::Time);
    assert_eq!(clock.advance(at(5000), WaitReason::Timer), Progress::Arrival);
    done.recv().expect("played");
    assert_eq!((clock.now(), receive(&mut port)), (at(1900), 1));

    // The wire takes 323.84 ns for a packet, so that the port takes three, and control packets always.
    assert_eq!(send(&mut port, PEER, TrafficClass::Data, 5), 3);
    // Their bytes took 0.5 ns each.
    assert_eq!(clock.now(), at(1900 + 6000));
    assert_eq!(send(&mut port, PEER, TrafficClass::Data, 5), 3);
    assert_eq!(send(&mut port, PEER, TrafficClass::Control, 1), 1);
    play(Box::new(|emulator| {
        let (packets, wait) = emulator.wait();
        let sent: Vec<_> = packets.iter().map(|head| (head.sent, head.control)).collect();
        let (first, second) = (at(1900), at(7900));
        let data = [first, first, first, second, second, second].map(|sent| (sent, false));
        assert_eq!(sent, [&data[..], &[(at(13_900), true)]].concat());
        assert_eq!(wait.overhead, Span(12_008));
        let peer = encode_address(PEER.parse().expect("literal"));
        emulator.write(&encode(FrameKind::Nobody, &peer));
        emulator.resume(&[], 13_908, 20_000);
    }));
    assert_eq!(receive(&mut port), 0);
    done.recv().expect("played");
    let mut errors = Vec::new();
    port.take_errors(&mut errors);
    let peer = PEER.parse().expect("literal");
    let nobody = NetError::Unreachable { peer, kind: UnreachableReason::Port, offender: None };
    assert_eq!(errors, [nobody]);

    // A second endpoint has its own packets and the same clock.
    play(Box::new(|emulator| emulator.welcome(1049)));
    let mut second = open(&spec);
    done.recv().expect("played");
    assert_eq!((second.local_addr().port(), second.number()), (1049, 1));
    assert_ne!(second.source_port(0), port.source_port(0));
    play(Box::new(|emulator| {
        emulator.wait();
        emulator.resume(&[(21_000, 1)], 21_000, 22_000);
    }));
    assert_eq!(clock.advance(at(30_000), WaitReason::Idle), Progress::Arrival);
    done.recv().expect("played");
    assert_eq!((receive(&mut port), receive(&mut second)), (0, 1));
    drop(second);
    play(Box::new(|emulator| {
        let bytes = emulator.frame();
        let frame = Frame::first(&bytes).expect("a frame").expect("whole");
        assert_eq!((frame.kind, frame.body()), (FrameKind::Close, &[1, 0][..]));
        // What comes for a closed endpoint is dropped.
        emulator.wait();
        emulator.resume(&[(22_500, 1)], 23_000, 24_000);
    }));
    assert_eq!(clock.advance(at(23_000), WaitReason::Busy), Progress::Time);
    done.recv().expect("played");

    // The inner path takes 3200 ns for a packet, and accepts what waits for less than 6553.6 ns. The wire is free
    // meanwhile.
    assert_eq!(send(&mut port, NEIGHBOUR, TrafficClass::Data, 5), 3);
    assert_eq!(port.next_deadline(), Some(at(26_047)));
    assert_eq!(send(&mut port, PEER, TrafficClass::Data, 5), 3);

    // Another emulator cannot have the process, too.
    let other = EmulatorSpec { path: path.with_extension("other"), ..spec.clone() };
    let config =
        PortConfig { bind: "127.0.0.1:0".parse().expect("literal"), ..PortConfig::default() };
    let refused = attach(&other, JobRank { rank: Some(3), ranks: None }, &config).err();
    let refused = refused.expect("one emulator a process").to_string();
    assert!(refused.contains("all its endpoints must use that one"), "{refused}");

    // Without the emulator, waits end at once, and the loss is reported once.
    drop(scripts);
    while done.recv().is_ok() {}
    assert_eq!(
        (clock.advance(at(50_000), WaitReason::Idle), clock.now()),
        (Progress::Time, at(50_000))
    );
    assert_eq!((receive(&mut port), receive(&mut port)), (0, 0));
    errors.clear();
    port.take_errors(&mut errors);
    assert_eq!(errors, [NetError::Local { peer: port.local_addr(), errno: libc::ENOTCONN }]);
    assert_eq!(send(&mut port, PEER, TrafficClass::Data, 2), 2, "they are lost");
    let _ = std::fs::remove_file(&path);
}
