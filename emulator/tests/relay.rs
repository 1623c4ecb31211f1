//! A relay in a thread, real sockets, real time.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use squall_base::{Batch, Rate, Rng, Span, Time, TrafficClass};
use squall_emulator::{
    Command, InnerPath, Relay, RelayConfig, Status, Timeline, VirtualTimeConfig, ask,
};
use squall_net::emulator::frame::JobRank;
use squall_net::{
    Burst, EmulatorPort, EmulatorSpec, HostChoice, NetError, Port, PortConfig, RxMeta,
    UnreachableReason,
};
use squall_netsim::Picos;
use squall_netsim::model::{Marks, NetworkOptions};
use squall_netsim::topology::Topology;

/// An emulator of two leaves, two spines and four hosts, for one test.
struct Emulator {
    path: PathBuf,
    stop: UnixStream,
    /// What it said; and itself, if it records: another takes its socket away when it is over.
    thread: Option<JoinHandle<(Vec<String>, Option<Relay>)>>,
}

fn path() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("squall-live-{}-{n}", std::process::id()))
}

fn config(path: PathBuf) -> RelayConfig {
    let rate = Rate::gbps(100);
    let topology = Topology::leaf_spine(2, 2, 2, rate, rate, Picos::micros(1), Picos::ZERO);
    let network = NetworkOptions { reroute_us: Some(0.0), ..NetworkOptions::default() };
    RelayConfig { network, ..RelayConfig::new(path, topology) }
}

impl Emulator {
    fn up() -> Self {
        Self::with("", false)
    }

    /// With a timeline, and perhaps a record.
    fn with(timeline: &str, record: bool) -> Self {
        Self::of(config(path()), timeline, record)
    }

    fn of(config: RelayConfig, timeline: &str, record: bool) -> Self {
        let path = config.socket.clone();
        let mut relay = Relay::open(config).unwrap();
        relay.serve_job(Timeline::parse("test", timeline, relay.topology()).unwrap(), record);
        let (stop, inner) = UnixStream::pair().unwrap();
        let thread = thread::spawn(move || {
            let mut lines = Vec::new();
            relay.run(&inner, &mut |line| lines.push(line.to_string())).unwrap();
            (lines, record.then_some(relay))
        });
        Self { path, stop, thread: Some(thread) }
    }

    fn attach(&self, host: Option<u32>) -> std::io::Result<EmulatorPort> {
        self.enter(host.map_or(HostChoice::Free, HostChoice::Number), JobRank::default())
    }

    fn enter(&self, host: HostChoice, job_rank: JobRank) -> std::io::Result<EmulatorPort> {
        // So many that no choice of ports hashes all of them to one spine.
        let bind = "127.0.0.1:0".parse().unwrap();
        let config = PortConfig { bind, paths: 64, ..PortConfig::default() };
        let spec = EmulatorSpec { path: self.path.clone(), host, virtual_time: false };
        EmulatorPort::attach(&spec, job_rank, &config)
    }

    fn command(&self, text: &str) -> std::io::Result<String> {
        ask(&self.path, &text.parse::<Command>().unwrap())
    }

    fn status(&self) -> Status {
        serde_json::from_str(&self.command("status").unwrap()).unwrap()
    }

    /// Ends the emulator and returns the lines that it reported.
    fn down(self) -> Vec<String> {
        self.finish().0
    }

    /// Ends the emulator. Returns the lines that it reported, and the relay if it records.
    fn finish(mut self) -> (Vec<String>, Option<Relay>) {
        self.stop.write_all(b".").unwrap();
        self.thread.take().unwrap().join().unwrap()
    }
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("ten seconds without: {what}");
}

fn send(port: &mut EmulatorPort, dst: SocketAddr, path: u16, bytes: &[u8]) {
    let mut batch = Batch::default();
    batch.push((dst, path, TrafficClass::Data), bytes, [], &[]);
    wait_until("room in the socket", || {
        port.send(Time::ZERO, Burst::from_copies(&batch)).sent == 1
    });
}

fn receive(port: &mut EmulatorPort, into: &mut Vec<(RxMeta, Vec<u8>)>) {
    port.recv_each(Time::ZERO, 64, &mut |meta, bytes| into.push((*meta, bytes.to_vec())));
}

#[test]
fn an_emulator_that_is_too_slow_reports_it_however_short_the_job_is() {
    // A round trip of less than a microsecond, which no relay of packets through sockets keeps.
    let rate = Rate::gbps(800);
    let topology = Topology::leaf_spine(2, 2, 2, rate, rate, Picos::ZERO, Picos::ZERO);
    let scales = RelayConfig { rate_scale: 1.0, latency_scale: 1.0, ..config(path()) };
    let config = RelayConfig { topology, host_delay: Span::ZERO, ..scales };
    let emulator = Emulator::of(config, "", true);
    let mut ports = [emulator.attach(Some(0)).unwrap(), emulator.attach(Some(3)).unwrap()];
    let to = ports[1].local_addr();
    send(&mut ports[0], to, 1, b"late");
    let mut packets = Vec::new();
    wait_until("a packet", || {
        receive(&mut ports[1], &mut packets);
        packets.len() == 1
    });
    drop(ports);
    let (lines, relay) = emulator.finish();
    assert!(
        lines.iter().any(|line| line.contains("is behind real time: of 1 packets")),
        "{lines:?}"
    );
    assert_eq!(relay.unwrap().status().late_seconds, 1);
}

#[test]
fn endpoints_become_hosts_and_packets_cross_the_network() {
    let emulator = Emulator::up();
    let mut ports: Vec<EmulatorPort> = (0..4).map(|_| emulator.attach(None).unwrap()).collect();
    for (n, port) in ports.iter().enumerate() {
        let welcome = port.welcome();
        assert_eq!((welcome.host as usize, welcome.hosts, welcome.mtu), (n, 4, 4096));
        // 100 Gb/s by a hundred; (4 * 2 us + 4 packets of 4144 B and 112 B at 100 Gb/s) times a hundred,
        // and 200 us of the hosts.
        assert_eq!(welcome.rate, Rate::gbps(1));
        assert_eq!(welcome.base_rtt.0 / 1000, 800 + 4 * 34 + 200);
        assert!(welcome.trimming);
    }
    let addrs: Vec<SocketAddr> = ports.iter().map(Port::local_addr).collect();
    for n in 0..200u32 {
        let bytes: Vec<u8> = (0..n * 20).map(|i| (i * n) as u8).collect();
        send(&mut ports[0], addrs[3], (n % 64) as u16, &bytes);
    }
    let mut packets = Vec::new();
    wait_until("200 packets", || {
        receive(&mut ports[3], &mut packets);
        packets.len() == 200
    });
    for (meta, bytes) in &packets {
        let n = bytes.len() as u32 / 20;
        assert!(bytes.iter().zip(0u32..).all(|(b, i)| *b == (i * n) as u8), "packet {n}");
        let port = ports[0].source_port((n % 64) as u16);
        assert_eq!(meta.src, SocketAddr::new(addrs[0].ip(), port));
        assert!(meta.ecn == 2 || meta.ecn == 3);
    }
    let status = emulator.status();
    assert_eq!((status.totals.entered, status.totals.delivered), (200, 200));
    assert_eq!(status.endpoints.len(), 4);
    assert_eq!((status.endpoints[0].sent, status.endpoints[3].received), (200, 200));
    let by_name = |name: &str| status.ports.iter().find(|p| p.name == name).unwrap();
    assert_eq!(by_name("h0->leaf0").packets, 200);
    let (one, other) = (by_name("leaf0->spine0").packets, by_name("leaf0->spine1").packets);
    assert!(one > 0 && other > 0 && one + other == 200, "64 entropies use both spines");
    assert_eq!(status.emulation_delay.packets, 200);
    assert!(status.emulation_delay.max_ns > 0);
    assert!(status.to_string().contains("leaf0->spine1"));
    drop(ports);
    wait_until("all to leave", || emulator.status().endpoints.is_empty());
    let lines = emulator.down();
    assert!(lines.iter().any(|l| l.contains("is host 3")), "{lines:?}");
    assert!(lines.iter().any(|l| l.contains("left host 3")), "{lines:?}");
}

#[test]
fn nobody_there_is_answered() {
    let emulator = Emulator::up();
    let mut port = emulator.attach(None).unwrap();
    let nobody = "127.0.0.1:1".parse().unwrap();
    send(&mut port, nobody, 0, b"hello?");
    let mut errors = Vec::new();
    wait_until("an error", || {
        receive(&mut port, &mut Vec::new());
        port.take_errors(&mut errors);
        !errors.is_empty()
    });
    let kind = UnreachableReason::Port;
    assert_eq!(errors, [NetError::Unreachable { peer: nobody, kind, offender: None }]);
    assert_eq!(emulator.status().totals.nobody, 1);
}

#[test]
fn links_fail_and_recover_on_command() {
    let emulator = Emulator::up();
    let (mut a, mut b) = (emulator.attach(Some(0)).unwrap(), emulator.attach(Some(2)).unwrap());
    let dst = b.local_addr();
    let mut burst = |emulator: &Emulator| {
        let before = emulator.status().totals;
        for path in 0..64 {
            send(&mut a, dst, path, &[7; 100]);
        }
        wait_until("an end of all packets", || {
            let now = emulator.status().totals;
            now.entered - before.entered == 64 && now.in_flight == 0
        });
        let mut packets = Vec::new();
        thread::sleep(Duration::from_millis(5));
        receive(&mut b, &mut packets);
        packets.len()
    };
    assert_eq!(burst(&emulator), 64);
    assert!(emulator.command("black-hole leaf0-spine0").unwrap().contains("done"));
    let left = burst(&emulator);
    assert!(left < 64, "{left}");
    assert_eq!(emulator.status().failures, ["black-hole leaf0-spine0"]);
    assert_eq!(emulator.status().totals.black_hole, 64 - left as u64);
    // Down, routing goes round it.
    emulator.command("fail-link leaf0-spine0").unwrap();
    assert_eq!(burst(&emulator), 64);
    emulator.command("fail-switch spine1").unwrap();
    assert_eq!(burst(&emulator), 0);
    assert_eq!(emulator.status().totals.no_route, 64);
    emulator.command("restore-switch spine1").unwrap();
    emulator.command("restore-link leaf0-spine0").unwrap();
    assert_eq!(burst(&emulator), 64);
    assert!(emulator.status().failures.is_empty());
    emulator.command("set-rate leaf0-spine1 10G").unwrap();
    let slow = emulator.status();
    let port = slow.ports.iter().find(|p| p.name == "spine1->leaf0").unwrap();
    assert_eq!(port.rate, 100_000_000, "10 Gb/s, scaled by a hundred");
    let error = emulator.command("fail-link leaf0-spine5").unwrap_err().to_string();
    assert!(error.contains("leaf0-spine1"), "{error}");
    let path = emulator.path.clone();
    emulator.command("down").unwrap();
    wait_until("the end", || !path.exists());
    assert!(emulator.command("status").unwrap_err().to_string().contains("squall emulate up"));
}

#[test]
fn ranks_are_hosts_of_a_list() {
    let emulator = Emulator::with("", true);
    let job_rank = |rank| JobRank { rank: Some(rank), ranks: Some(4) };
    let list = || HostChoice::List("3,1x2".parse().unwrap());
    let ports: Vec<_> =
        (0..3).map(|rank| emulator.enter(list(), job_rank(rank)).unwrap()).collect();
    let hosts: Vec<_> = ports.iter().map(|port| port.welcome().host).collect();
    assert_eq!(hosts, [3, 1, 1]);
    let error = emulator.enter(list(), job_rank(3)).err().unwrap().to_string();
    assert!(
        error.contains("rank 3 has no host: the list of hosts 3,1x2 has 3 ranks; name more hosts"),
        "{error}"
    );
    let far = HostChoice::List("0,9".parse().unwrap());
    let error = emulator.enter(far, job_rank(1)).err().unwrap().to_string();
    assert!(error.contains("host 9; the hosts are 0 to"), "{error}");
    // The process of rank 3 refused its own endpoint. The summary of the job needs the reason all the same.
    let relay = emulator.finish().1.unwrap();
    let [own, other] = relay.attendance().refusals() else { panic!("two reasons") };
    assert!(own.starts_with("rank 3 has no host: the list of hosts 3,1x2"), "{own}");
    assert!(other.starts_with("host 9;"), "{other}");
}

/// Ranks 0 and 1 are on host 0: their packets pass no switch, and take 1 ms. Those to rank 2 do.
#[test]
fn ranks_of_a_host_exchange_packets_by_its_inner_path() {
    let inner = InnerPath { rate: Rate::gbps(100), latency: Picos::micros(10) };
    let config = RelayConfig { inner_path: Some(inner), places: Some(3), ..config(path()) };
    let emulator = Emulator::of(config, "", false);
    let list = || HostChoice::List("0x2,3".parse().unwrap());
    let job_rank = |rank| JobRank { rank: Some(rank), ranks: Some(3) };
    let mut ports: Vec<_> =
        (0..3).map(|rank| emulator.enter(list(), job_rank(rank)).unwrap()).collect();
    let (near, far) = (ports[1].local_addr(), ports[2].local_addr());
    send(&mut ports[0], near, 0, b"near");
    send(&mut ports[0], far, 0, b"far");
    for (index, expected) in [(1, b"near".as_slice()), (2, b"far")] {
        let mut received = Vec::new();
        wait_until("a packet", || {
            receive(&mut ports[index], &mut received);
            !received.is_empty()
        });
        assert_eq!(received[0].1, expected);
        assert_eq!(received[0].0.ecn, 2);
    }
    let status = emulator.status();
    assert_eq!((status.totals.entered, status.totals.delivered), (2, 2));
    // Four links for the second packet.
    assert_eq!(status.ports.iter().map(|port| port.packets).sum::<u64>(), 4);
    let many = JobRank { rank: Some(0), ranks: Some(4) };
    let error = emulator.enter(list(), many).err().unwrap().to_string();
    assert!(
        error.ends_with(
            "the job has 4 ranks, and hosts were named for 3: name more hosts, or start fewer ranks"
        ),
        "{error}"
    );
}

#[test]
fn ranks_are_hosts_of_their_numbers() {
    let emulator = Emulator::with("", true);
    let rank = |rank| JobRank { rank: Some(rank), ranks: Some(4) };
    let two = emulator.enter(HostChoice::Rank, rank(2)).unwrap();
    let zero = emulator.enter(HostChoice::Rank, rank(0)).unwrap();
    let again = emulator.enter(HostChoice::Rank, rank(2)).unwrap();
    let hosts = [&two, &zero, &again].map(|port| port.welcome().host);
    assert_eq!(hosts, [2, 0, 2], "two endpoints of a rank share its host");
    let error = emulator.enter(HostChoice::Rank, rank(4)).err().unwrap().to_string();
    assert!(error.contains("rank 4 wants to be host 4; the hosts are 0 to 3"), "{error}");
    // An endpoint without a rank takes a free host.
    assert_eq!(emulator.enter(HostChoice::Rank, JobRank::default()).unwrap().welcome().host, 1);
    let lines: Vec<_> = emulator.status().endpoints.iter().map(|e| (e.host, e.rank)).collect();
    assert_eq!(lines, [(0, Some(0)), (2, Some(2)), (2, Some(2))]);
    assert_eq!(emulator.status().attached, 4);
    let relay = emulator.finish().1.unwrap();
    assert_eq!((relay.attendance().endpoints(), relay.attendance().ranks()), (4, (2, 4)));
    assert_eq!(relay.attendance().missing(), [1, 3]);
    assert_eq!(relay.attendance().refusals().len(), 1);
}

#[test]
fn a_timeline_begins_with_the_first_packet_and_stands_in_the_record() {
    let timeline =
        "60ms restore-link leaf0-spine1\n0s set-rate leaf0-spine0 25G\n20ms fail-link leaf0-spine1";
    let emulator = Emulator::with(timeline, true);
    wait_until("what is to happen at once", || emulator.status().failures.len() == 1);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(emulator.status().failures, ["set-rate leaf0-spine0 25000M"], "nothing was sent");
    let mut ports: Vec<EmulatorPort> =
        [0, 2].iter().map(|host| emulator.attach(Some(*host)).unwrap()).collect();
    let to = ports[1].local_addr();
    for path in 0..64 {
        send(&mut ports[0], to, path, &[7; 1000]);
    }
    wait_until("the link's failure", || emulator.status().failures.len() == 2);
    wait_until("the link's recovery", || emulator.status().failures.len() == 1);
    thread::sleep(Duration::from_millis(30));
    let (lines, relay) = emulator.finish();
    assert!(lines.iter().any(|line| line == "fail-link leaf0-spine1"), "{lines:?}");
    let run = relay.unwrap().record().unwrap();
    let events: Vec<&str> = run.events.iter().map(|event| event.what.as_str()).collect();
    assert_eq!(
        events,
        ["set-rate leaf0-spine0 25000M", "fail-link leaf0-spine1", "restore-link leaf0-spine1"]
    );
    let at: Vec<f64> = run.events.iter().map(|event| event.at_us).collect();
    assert!(at[0] == 0.0 && at[1] >= 20_000.0 && at[2] >= 60_000.0, "{at:?}");
    let flow = run.series.iter().find(|series| series.name == "h0->h2").unwrap();
    // Gb/s by us: the bits that were sent.
    let bits: f64 = flow
        .points
        .windows(2)
        .map(|pair| (pair[1].0 - pair[0].0) * pair[1].1 * 1e3)
        .chain([flow.points[0].0 * flow.points[0].1 * 1e3])
        .sum();
    assert!((0.0..=64.0 * 8000.0 * 1.01).contains(&bits) && run.totals.packets == 64, "{bits}");
}

#[test]
fn a_lossy_link_loses_its_share_of_packets() {
    let emulator = Emulator::with("0s loss h0-leaf0 50%", false);
    wait_until("the loss", || emulator.status().failures.len() == 1);
    let mut ports: Vec<EmulatorPort> = (0..2).map(|_| emulator.attach(None).unwrap()).collect();
    let to = ports[1].local_addr();
    for n in 0..400u16 {
        send(&mut ports[0], to, n % 64, b"perhaps");
    }
    wait_until("the end of all", || {
        let totals = emulator.status().totals;
        totals.corrupt + totals.delivered == 400
    });
    let lost = emulator.status().totals.corrupt;
    assert!((130..270).contains(&lost), "{lost} of 400, which is 200 but for chance (sigma 10)");
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let emulator = Emulator::up();
    let error = emulator.attach(Some(4)).err().unwrap().to_string();
    assert!(error.contains("hosts are 0 to 3"), "{error}");
    let one = emulator.attach(Some(1)).unwrap();
    // The same host twice is two endpoints of a host; the next without a wish is somewhere else.
    let two = emulator.attach(Some(1)).unwrap();
    assert_eq!((one.welcome().host, two.welcome().host), (1, 1));
    assert_eq!(emulator.attach(None).unwrap().welcome().host, 0);
    // One emulator a socket.
    let error = Relay::open(config(emulator.path.clone())).err().unwrap().to_string();
    assert!(error.contains("running there already"), "{error}");
    let backwards = NetworkOptions { ecn: Some(Marks::between(0.9, 0.1)), ..Default::default() };
    // Scaling multiplies latencies by 100: 900 ps in all.
    let at_once = Topology::star(2, Rate::gbps(100), Picos(4), Picos(5));
    let rules = Some(VirtualTimeConfig::default());
    for (bad, says) in [
        (RelayConfig { rate_scale: 0.0, ..config(path()) }, "rate scale 0"),
        (RelayConfig { mtu: 100, ..config(path()) }, "576..=65000"),
        (RelayConfig { network: backwards, ..config(path()) }, "low <= high"),
        (RelayConfig { topology: Topology::default(), ..config(path()) }, "at least 2"),
        (RelayConfig { latency_scale: 1e6, ..config(path()) }, "at most"),
        (RelayConfig { topology: at_once, virtual_time: rules, ..config(path()) }, "virtual time"),
    ] {
        let error = Relay::open(bad).err().unwrap().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_file_in_the_place_of_the_socket_is_left_alone() {
    let path = path();
    std::fs::write(&path, "somebody's work").unwrap();
    let error = Relay::open(config(path.clone())).err().unwrap().to_string();
    assert!(error.contains("no socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "somebody's work");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_socket_left_behind_is_taken_over() {
    let path = path();
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a listener that is dropped leaves its socket");
    let relay = Relay::open(config(path.clone())).unwrap();
    drop(relay);
    assert!(!path.exists());
}

#[test]
fn rubbish_ends_its_own_connection_alone() {
    let emulator = Emulator::up();
    let (mut a, mut b) = (emulator.attach(None).unwrap(), emulator.attach(None).unwrap());
    let mut rng = Rng::new(11);
    for round in 0..200 {
        let mut stream = UnixStream::connect(&emulator.path).unwrap();
        let mut bytes: Vec<u8> = (0..rng.below(300)).map(|_| rng.next_u32() as u8).collect();
        if round % 2 == 0 && bytes.len() > 8 {
            // Something that begins like a frame: any kind, a length that may be right.
            bytes[0] = 1 + (round % 7) as u8;
            let len = rng.below(300);
            bytes[4..8].copy_from_slice(&len.to_le_bytes());
        }
        stream.write_all(&bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // It answers at most, and hangs up.
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset),
        }
    }
    send(&mut a, b.local_addr(), 0, b"still there");
    let mut packets = Vec::new();
    wait_until("the packet", || {
        receive(&mut b, &mut packets);
        !packets.is_empty()
    });
    assert_eq!(emulator.status().endpoints.len(), 2);
}
