//! The ceiling of the sockets below the transport: bandwidth, round trip and packet rate of two
//! processes over loopback through [`UdpPort`], with a header of 64 bytes in front of each payload.
//!
//! ```text
//! cargo run --release -p squall-net --example udp_bw            # the whole table
//! cargo run --release -p squall-net --example udp_bw bw 16312 copy 64
//! ```
//!
//! How the payload gets from the socket to the user's buffer: `drop` leaves it where the port put
//! it, `copy` moves it by `memcpy`, `scatter` lets `recvmsg` place it there (header, payload, header,
//! payload, ... as one train's iovec; a guess that is right only while the same message comes in).
//!
//! Beside the rate by the wall clock stands what the calls cost each side in processor time: on a busy
//! machine the dearer of the two tells what a quiet one would reach.
#![allow(clippy::print_stdout, clippy::disallowed_methods)]

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use squall_net::base::Time;
use squall_net::base::{Batch, TrafficClass, UserSlice};
use squall_net::{Burst, Port, PortConfig, UdpPort};

const HEADER: usize = 64;
/// The user's buffer on each side: one large message, sent again and again.
const MESSAGE: usize = 1 << 20;
/// Bytes in flight: less than the receive buffer.
const WINDOW: u64 = 1 << 20;
/// The receiver reports after so many bytes.
const CREDIT: u64 = 1 << 17;

fn open(train: usize, gro: bool) -> UdpPort {
    let config = PortConfig {
        bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        train,
        gro,
        gso: train > 1,
        ..PortConfig::default()
    };
    UdpPort::open(&config).expect("a loopback port").0
}

/// Adds a packet of a header and a piece of memory to a batch.
fn push(batch: &mut Batch, dst: SocketAddr, header: &[u8], payload: &[u8]) {
    let lent = (!payload.is_empty()).then(|| {
        UserSlice::lent(payload.as_ptr().expose_provenance() as u64, payload.len() as u64)
    });
    batch.push((dst, 0, TrafficClass::Data), header, lent, &[]);
}

/// Sends one packet of a few bytes although the socket may be full.
fn send_one(port: &mut UdpPort, dst: SocketAddr, bytes: &[u8]) {
    let mut batch = Batch::default();
    push(&mut batch, dst, bytes, &[]);
    while port.send(Time::ZERO, Burst::of_copies(&batch)).sent == 0 {}
}

/// Processor time this thread has used.
fn cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime(2) writes one timespec, into a local variable.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Gigabytes a second of processor time.
fn per_cpu(bytes: u64, cpu: Duration) -> f64 {
    bytes as f64 / cpu.as_nanos() as f64
}

fn main() {
    // RUST_LOG=info shows what the port found of the kernel's features.
    env_logger::init();
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<usize>().expect("a number");
    match args[..] {
        ["peer", "bw", payload, how, train] => {
            bandwidth_peer(number(payload), how, number(train) > 1);
        }
        ["peer", "pp"] => ping_pong_peer(),
        ["bw", payload, how, train] => bandwidth(number(payload), how, number(train)),
        ["pp"] => ping_pong(),
        [] => {
            ping_pong();
            for train in [1, 64] {
                bandwidth(64, "drop", train);
            }
            for payload in [1408, 4032, 8124, 16_312, 32_688, 65_440] {
                for how in ["drop", "copy", "scatter"] {
                    bandwidth(payload, how, 64);
                }
            }
            bandwidth(16_312, "copy", 1);
        }
        _ => println!("udp_bw [pp | bw PAYLOAD drop|copy|scatter TRAIN]"),
    }
}

/// Starts this program as the other process and reads its address.
fn peer(args: &[&str]) -> (Child, SocketAddr) {
    let exe = env::current_exe().expect("our own path");
    let mut child = Command::new(exe)
        .arg("peer")
        .args(args)
        .stdout(Stdio::piped())
        .stdin(Stdio::piped())
        .spawn()
        .expect("a child process");
    let mut line = String::new();
    let out = child.stdout.as_mut().expect("a pipe");
    BufReader::new(out).read_line(&mut line).expect("its address");
    (child, line.trim().parse().expect("its address"))
}

fn announce(port: &UdpPort) {
    println!("{}", port.local_addr());
    io::stdout().flush().expect("standard output");
}

fn ping_pong() {
    let mut port = open(64, true);
    let (mut child, to) = peer(&["pp"]);
    let bytes = [7; 64];
    let mut halves = Vec::new();
    for _ in 0..5 {
        const ROUNDS: u32 = 20_000;
        let start = Instant::now();
        for _ in 0..ROUNDS {
            send_one(&mut port, to, &bytes);
            let mut got = false;
            while !got {
                port.recv_each(Time::ZERO, 16, &mut |_, _| got = true);
            }
        }
        halves.push(start.elapsed().as_nanos() as f64 / f64::from(ROUNDS) / 2e3);
    }
    // Without the scheduler: this process alone sends and receives.
    let mut own = open(64, true);
    let start = cpu();
    for _ in 0..20_000 {
        send_one(&mut port, own.local_addr(), &bytes);
        while own.recv_each(Time::ZERO, 16, &mut |_, _| ()).packets == 0 {}
    }
    let alone = (cpu() - start).as_nanos() as f64 / 20_000.0;
    println!("send + receive of 64 B: {alone:.0} ns processor time");
    halves.sort_by(f64::total_cmp);
    println!("ping-pong 64 B: {:.2} us half round trip (best {:.2})", halves[2], halves[0]);
    // What a poll costs that finds nothing.
    let start = Instant::now();
    for _ in 0..200_000 {
        port.recv_each(Time::ZERO, 16, &mut |_, _| ());
    }
    println!("empty poll: {:.0} ns", start.elapsed().as_nanos() as f64 / 2e5);
    child.kill().expect("our child");
    child.wait().expect("our child");
}

fn ping_pong_peer() {
    let mut port = open(64, true);
    announce(&port);
    loop {
        let mut from = None;
        let mut bytes = [0; 64];
        while from.is_none() {
            port.recv_each(Time::ZERO, 16, &mut |meta, packet| {
                bytes.copy_from_slice(packet);
                from = Some(meta.src);
            });
        }
        if let Some(to) = from {
            send_one(&mut port, to, &bytes);
        }
    }
}

fn bandwidth(payload: usize, how: &str, train: usize) {
    let mut port = open(train, true);
    let (mut child, to) = peer(&["bw", &payload.to_string(), how, &train.to_string()]);
    let message = vec![5_u8; MESSAGE.max(payload)];
    let header = [9; HEADER];
    // Packets of one message, in batches of about 256 KiB.
    let pieces: Vec<&[u8]> = message.chunks_exact(payload).collect();
    let batch = ((1 << 18) / payload).clamp(1, 256);
    let size = (payload + HEADER) as u64;
    let mut packets = Batch::default();
    let mut rates = Vec::new();
    let (mut sent, mut acked, mut moved, mut tx_cpu, mut rx_cpu) =
        (0_u64, 0_u64, 0_u64, Duration::ZERO, Duration::ZERO);
    let mut next = 0;
    for _ in 0..5 {
        let start = Instant::now();
        let before = acked;
        let mut last = start;
        while start.elapsed() < Duration::from_millis(100) {
            let room = ((WINDOW - (sent - acked)) / size) as usize;
            let n = room.min(batch).min(pieces.len() - next);
            if n > 0 {
                packets.clear();
                pieces[next..next + n].iter().for_each(|p| push(&mut packets, to, &header, p));
                let before = cpu();
                // SAFETY: the batch names parts of `message`, whose addresses were exposed when they were cut
                // and which lives as long as this function.
                let done = port.send(Time::ZERO, unsafe { Burst::new(&packets, 0..n) }).sent;
                tx_cpu += cpu() - before;
                moved += done as u64 * size;
                sent += done as u64 * size;
                next = (next + done) % pieces.len();
            }
            let seen = acked;
            port.recv_each(Time::ZERO, 64, &mut |_, bytes| {
                if let Some((total, cpu)) = parse(bytes) {
                    acked = acked.max(total);
                    rx_cpu = cpu;
                }
            });
            if acked > seen {
                last = Instant::now();
            } else if last.elapsed() > Duration::from_millis(20) {
                // Lost in the receiver's socket: go on as if it had arrived.
                sent = acked;
                last = Instant::now();
            }
        }
        rates.push((acked - before) as f64 / start.elapsed().as_secs_f64());
    }
    rates.sort_by(f64::total_cmp);
    let goodput = rates[2] * payload as f64 / size as f64;
    let c = port.counters();
    println!(
        "payload {payload:5} {how:7} train {train:2}: {:5.2} GB/s (processor: tx {:5.2} rx {:5.2})  \
         {:6.3} Mpkt/s  {:.1} packets/train",
        goodput / 1e9,
        per_cpu(moved, tx_cpu),
        per_cpu(acked, rx_cpu),
        rates[2] / size as f64 / 1e6,
        c.tx_packets as f64 / c.tx_trains as f64
    );
    child.kill().expect("our child");
    child.wait().expect("our child");
}

/// A credit: bytes received so far, and the processor time that took.
fn parse(bytes: &[u8]) -> Option<(u64, Duration)> {
    let (total, cpu) = bytes.split_first_chunk()?;
    let cpu = cpu.try_into().ok()?;
    Some((u64::from_le_bytes(*total), Duration::from_nanos(u64::from_le_bytes(cpu))))
}

fn bandwidth_peer(payload: usize, how: &str, gro: bool) {
    let mut port = open(64, gro);
    announce(&port);
    let mut message = vec![0_u8; MESSAGE.max(payload) + payload];
    let (mut total, mut told, mut next) = (0_u64, 0_u64, 0);
    let mut from = None;
    let copy = how == "copy";
    let mut scatter = Scatter::new(&port, payload);
    let mut spent = Duration::ZERO;
    loop {
        let (start, before) = (cpu(), total);
        if how == "scatter" {
            let (bytes, src) = scatter.receive(&mut message[next..], payload);
            total += bytes as u64;
            next += bytes / (payload + HEADER) * payload;
            from = src.or(from);
        } else {
            port.recv_each(Time::ZERO, 256, &mut |meta, packet| {
                total += packet.len() as u64;
                if copy {
                    let body = &packet[HEADER..];
                    message[next..next + body.len()].copy_from_slice(body);
                    next = if next + body.len() >= MESSAGE { 0 } else { next + body.len() };
                }
                from = Some(meta.src);
            });
        }
        if total > before {
            spent += cpu() - start;
        }
        if next + 65_536 > message.len() {
            next = 0;
        }
        if let (Some(to), true) = (from, total - told >= CREDIT) {
            told = total;
            let nanos = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
            let mut credit = [0; 16];
            credit[..8].copy_from_slice(&total.to_le_bytes());
            credit[8..].copy_from_slice(&nanos.to_le_bytes());
            send_one(&mut port, to, &credit);
        }
    }
}

/// `recvmsg` straight into the user's buffer.
struct Scatter {
    fd: RawFd,
    headers: Vec<[u8; HEADER]>,
    pieces: Vec<libc::iovec>,
}

impl Scatter {
    fn new(port: &UdpPort, payload: usize) -> Self {
        let mut fds = Vec::new();
        port.fds(&mut fds);
        let packets = (65_507 / (payload + HEADER)).clamp(1, 64);
        Self {
            fd: fds[0],
            headers: vec![[0; HEADER]; packets],
            pieces: Vec::with_capacity(2 * packets),
        }
    }

    /// One train into `buffer`: (bytes, from whom).
    fn receive(&mut self, buffer: &mut [u8], payload: usize) -> (usize, Option<SocketAddr>) {
        self.pieces.clear();
        for (header, body) in self.headers.iter_mut().zip(buffer.chunks_exact_mut(payload)) {
            for piece in [&mut header[..], body] {
                self.pieces.push(libc::iovec {
                    iov_base: piece.as_mut_ptr().cast(),
                    iov_len: piece.len(),
                });
            }
        }
        // SAFETY: a `sockaddr_in` is plain integers, for which zero is a value.
        let mut name: libc::sockaddr_in = unsafe { std::mem::zeroed() };
        let mut control = [0_u64; 16];
        // SAFETY: a `msghdr` is integers and pointers, for which zero is a value.
        let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
        msg.msg_name = (&raw mut name).cast();
        msg.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        msg.msg_iov = self.pieces.as_mut_ptr();
        msg.msg_iovlen = self.pieces.len() as _;
        msg.msg_control = (&raw mut control).cast();
        msg.msg_controllen = size_of_val(&control) as _;
        // SAFETY: the kernel writes to `msg`, and at most the lengths given to `name` and `control`,
        // local variables, and to the pieces, which were just made of `headers` and `buffer`, both
        // borrowed mutably until after the call, without overlap.
        let n = unsafe { libc::recvmsg(self.fd, &raw mut msg, libc::MSG_DONTWAIT) };
        let from = SocketAddr::from((
            Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr)),
            u16::from_be(name.sin_port),
        ));
        match usize::try_from(n) {
            Ok(n) => (n, Some(from)),
            Err(_) => (0, None),
        }
    }
}
