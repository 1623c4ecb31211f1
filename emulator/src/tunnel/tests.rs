//! Tests of an emulator, a tunnel to it over the loopback interface, and endpoints at both ends.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use squall_net::emulator::frame::{
    Frame, FrameKind, Hello, JobRank, MAX_FRAME, PacketFrame, Welcome, decode_address,
};

use super::*;
use crate::clock::clock;
use crate::{Command, Relay, RelayConfig, Status, ask};
use squall_base::{Rate, Span};
use squall_netsim::Picos;
use squall_netsim::topology::Topology;

/// A folder for sockets, which is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let name = format!("squall-tunnel-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that runs in a thread until it is stopped or dropped.
struct Served<R> {
    stop: UnixStream,
    thread: Option<JoinHandle<R>>,
}

impl<R: Send + 'static> Served<R> {
    fn new(serve: impl FnOnce(UnixStream) -> R + Send + 'static) -> Self {
        let (stop, stopped) = UnixStream::pair().unwrap();
        Self { stop, thread: Some(thread::spawn(move || serve(stopped))) }
    }

    fn end(mut self) -> R {
        let _ = self.stop.write_all(b".");
        self.wait()
    }

    fn wait(&mut self) -> R {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl<R> Drop for Served<R> {
    fn drop(&mut self) {
        let _ = self.stop.write_all(b".");
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn emulator(socket: &Path) -> Served<()> {
    let rate = Rate::gbps(100);
    let topology = Topology::leaf_spine(2, 2, 2, rate, rate, Picos::micros(1), Picos::ZERO);
    let mut relay = Relay::open(RelayConfig::new(socket.to_owned(), topology)).unwrap();
    Served::new(move |stop| relay.run(&stop, &mut |_| {}).unwrap())
}

fn near(socket: &Path, far: SocketAddr) -> Served<Result<(), String>> {
    let listener = listen(socket).unwrap();
    Served::new(move |stop| End::near(listener, far).unwrap().run(&stop, &mut |_| {}))
}

/// An endpoint that speaks the emulator's protocol by itself.
struct Endpoint {
    addr: SocketAddr,
    stream: UnixStream,
    bytes: Vec<u8>,
}

impl Endpoint {
    fn greet(socket: &Path, port: u16, host: u32) -> Self {
        let addr = SocketAddr::from(([10, 0, 0, 1], port));
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut endpoint = Self { addr, stream, bytes: Vec::new() };
        let hello = Hello { addr, host: Some(host), process: 7, job_rank: JobRank::default() };
        endpoint.stream.write_all(&hello.encode()).unwrap();
        endpoint
    }

    fn attach(socket: &Path, port: u16, host: u32) -> Self {
        let mut endpoint = Self::greet(socket, port, host);
        let (kind, bytes) = endpoint.next();
        assert_eq!(kind, FrameKind::Welcome, "{}", String::from_utf8_lossy(&bytes));
        assert_eq!(Welcome::decode(&bytes[8..]).unwrap().host, host);
        endpoint
    }

    /// Returns the next frame.
    fn next(&mut self) -> (FrameKind, Vec<u8>) {
        loop {
            if let Some(frame) = Frame::first(&self.bytes).unwrap() {
                let (kind, len) = (frame.kind, frame.bytes.len());
                let rest = self.bytes.split_off(len);
                return (kind, std::mem::replace(&mut self.bytes, rest));
            }
            let mut chunk = vec![0; MAX_FRAME];
            let len = self.stream.read(&mut chunk).unwrap();
            assert!(len > 0, "it hung up");
            self.bytes.extend_from_slice(&chunk[..len]);
        }
    }

    fn send(&mut self, to: SocketAddr, payload: &[u8]) {
        let head = PacketFrame {
            addr: to,
            entropy: 50_000,
            ecn: 2,
            dscp: 0,
            control: false,
            trimmed: false,
            sent: clock(),
            overflow: 0,
            endpoint: 0,
        };
        self.stream.write_all(&head.encode(payload.len())).unwrap();
        self.stream.write_all(payload).unwrap();
    }

    /// Returns the next packet.
    fn packet(&mut self) -> (PacketFrame, Vec<u8>) {
        let (kind, bytes) = self.next();
        assert_eq!(kind, FrameKind::Packet);
        let frame = Frame::first(&bytes).unwrap().unwrap();
        let (head, payload) = PacketFrame::decode(&frame).unwrap();
        (head, payload.to_vec())
    }
}

#[test]
fn an_endpoint_behind_a_tunnel_is_one_like_the_others() {
    let folder = Folder::new("like-others");
    let (here, there) = (folder.0.join("here"), folder.0.join("there"));
    let emulator = emulator(&here);
    let far = FarEnd::open(([127, 0, 0, 1], 0).into(), &here, |_| {}).unwrap();
    let tunnel = near(&there, far.addr());

    let mut local = Endpoint::attach(&here, 1, 0);
    let mut remote = Endpoint::attach(&there, 2, 3);
    for len in [0, 1, 1408, 4096] {
        let payload: Vec<u8> = (0..len as u32).map(|i| (i * 3) as u8).collect();
        local.send(remote.addr, &payload);
        let (head, got) = remote.packet();
        assert_eq!((head.addr.ip(), &got), (local.addr.ip(), &payload));
        remote.send(local.addr, &payload);
        let (head, got) = local.packet();
        assert_eq!((head.ecn, &got), (2, &payload));
        // The send time is a recent one by the clock of the machine where the emulator is.
        assert!(head.sent <= clock() && head.sent + Span::millis(5000) > clock());
    }
    // No endpoint has this address, which is reported through the tunnel, too.
    let nobody = SocketAddr::from(([10, 0, 0, 9], 9));
    remote.send(nobody, b"?");
    let (kind, bytes) = remote.next();
    assert_eq!((kind, decode_address(&bytes[8..]).unwrap()), (FrameKind::Nobody, nobody));

    // One command has an answer of several pieces, and one is refused.
    let status = ask(&there, &Command::Status).unwrap();
    assert!(status.len() > 2 * 1200, "{} bytes", status.len());
    let status: Status = serde_json::from_str(&status).unwrap();
    let hosts: Vec<u32> = status.endpoints.iter().map(|endpoint| endpoint.host).collect();
    assert_eq!((hosts, status.attached), (vec![0, 3], 2));
    let error = ask(&there, &Command::FailLink("leaf9-spine9".into())).unwrap_err();
    assert!(error.to_string().contains("leaf9-spine9"), "{error}");

    // A refused endpoint learns the reason, and an endpoint that closes its connection is detached.
    let (kind, bytes) = Endpoint::greet(&there, 2, 1).next();
    assert_eq!(kind, FrameKind::Refused);
    assert!(String::from_utf8_lossy(&bytes).contains("attached already"));
    drop(remote);
    for round in 0.. {
        let status: Status = serde_json::from_str(&ask(&here, &Command::Status).unwrap()).unwrap();
        if status.endpoints.len() == 1 {
            break;
        }
        assert!(round < 500, "it is still there");
        thread::sleep(Duration::from_millis(10));
    }

    tunnel.end().unwrap();
    drop(far);
    emulator.end();
}

#[test]
fn endpoints_learn_that_their_emulator_is_gone() {
    let folder = Folder::new("gone");
    let (here, there) = (folder.0.join("here"), folder.0.join("there"));
    let emulator = emulator(&here);
    let far = FarEnd::open(([127, 0, 0, 1], 0).into(), &here, |_| {}).unwrap();
    let tunnel = near(&there, far.addr());
    let mut remote = Endpoint::attach(&there, 2, 1);
    emulator.end();
    let mut rest = Vec::new();
    assert_eq!(remote.stream.read_to_end(&mut rest).unwrap(), 0, "its connection ends");
    tunnel.end().unwrap();
}

#[test]
fn a_tunnel_to_nowhere_says_so() {
    let folder = Folder::new("nowhere");
    let there = folder.0.join("there");
    // A process has the port and sends no answer.
    let silent = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let why = near(&there, silent.local_addr().unwrap()).wait().unwrap_err();
    assert!(why.contains("no emulator answers at 127.0.0.1:"), "{why}");
}

#[test]
fn unverified_senders_and_repeated_datagrams_open_no_session() {
    use super::datagram::{Content, Name};
    let folder = Folder::new("unverified");
    let here = folder.0.join("here");
    let emulator = emulator(&here);
    let far = FarEnd::open(([127, 0, 0, 1], 0).into(), &here, |_| {}).unwrap();
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let (mut out, mut buffer) = (Vec::new(), vec![0; 65_536]);
    let name = Name { session: 5, number: 1 };
    let mut say = |name: Name, what: Content<'_>| {
        what.write(name, &mut out);
        socket.send_to(&out, far.addr()).unwrap();
    };
    let mut hear = || {
        let len = socket.recv(&mut buffer).unwrap();
        let (name, what) = Content::read(&buffer[..len]).unwrap();
        (name, format!("{what:?}"))
    };
    let attached =
        || -> Status { serde_json::from_str(&ask(&here, &Command::Status).unwrap()).unwrap() };
    let addr = SocketAddr::from(([10, 0, 0, 1], 1));
    let hello = Hello { addr, host: None, process: 7, job_rank: JobRank::default() }.encode();

    // The far end accepts no session that has not asked first.
    say(name, Content::Piece(0, &hello));
    let whole = Name { number: 0, ..name };
    say(whole, Content::Keepalive);
    assert_eq!(hear(), (whole, "Keepalive".to_owned()));
    assert_eq!(attached().attached, 0);
    // The connection of these packets was never opened.
    say(name, Content::Frame(b"x"));
    assert_eq!(hear(), (name, "Closed".to_owned()));
    // The connection is opened and closed.
    say(name, Content::Piece(0, &hello));
    assert_eq!(hear(), (name, "Acknowledged(0)".to_owned()));
    let (_, welcome) = hear();
    assert!(welcome.starts_with("Piece(0, ["), "{welcome}");
    say(name, Content::Acknowledged(0));
    say(name, Content::Piece(1, b""));
    assert_eq!(hear(), (name, "Acknowledged(1)".to_owned()));
    assert_eq!(attached().attached, 1);
    // A piece that arrives late does not open the connection again. While the far end still closes
    // the connection, it acknowledges the copy; then it answers that the connection is closed.
    let mut ended = false;
    for _ in 0..6000 {
        say(name, Content::Piece(0, &hello));
        let (answered, answer) = hear();
        assert_eq!(answered, name);
        if answer == "Closed" {
            ended = true;
            break;
        }
        assert_eq!(answer, "Acknowledged(0)");
        thread::sleep(Duration::from_millis(10));
    }
    assert!(ended, "the connection does not end");
    say(name, Content::Piece(0, &hello));
    assert_eq!(hear(), (name, "Closed".to_owned()));
    assert_eq!(attached().attached, 1);
    drop(far);
    emulator.end();
}
