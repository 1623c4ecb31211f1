//! A measurement of the sockets below the transport, as the limit of what the transport can reach. It
//! sends the same trains through [`UdpPort`] and nothing else: no order, no matching, and no
//! acknowledgement but a few that keep a stream from overrunning the receiver. A lost packet ends the
//! program.
//!
//! ```text
//! port_limit [-a ADDRESS,ADDRESS] [-n NETNS,NETNS] [-s SEGMENT] MEASURE..
//! ```
//!
//! MEASURE is `lat:SIZE:ROUNDS`: half a round trip in microseconds, with a message of SIZE bytes in each
//! direction; or `bw:SIZE:ROUNDS`: GB/s of 16 messages of SIZE bytes a round. The program prints a line `MEASURE VALUE` for each. SEGMENT is the length of a packet, UDP
//! payload with 56 bytes of headers (default 1472). Both sides copy the payload to the user's buffer.
//! Each side is a process on its own processor, in its NETNS (a file such as those in /run/netns) if one
//! is given.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio, exit};
use std::time::{Duration, Instant};

use squall_net::base::{Batch, Time, TrafficClass, UserSlice};
use squall_net::{Burst, Port, PortConfig, UdpPort};

/// Bytes that the transport puts in front of a payload.
const HEADERS: usize = 56;
/// Largest length of a message in bytes.
const MOST: usize = 16 << 20;
/// Largest number of packets in one call of the port.
const PACKETS: usize = 64;
/// Number of rounds before the measurement.
const WARM_UP: usize = 20;
/// Longest time without a packet before the program gives up.
const PATIENCE: Duration = Duration::from_millis(500);
/// Messages of a stream in a round.
const BURST: usize = 16;
/// Bytes of a stream after which its receiver sends an empty message, as rarely as squall acknowledges.
const STRIDE: usize = 160 << 10;
/// Bytes of a stream that may be on their way.
const WINDOW: usize = 1 << 20;
/// Path that is used. It has a socket of its own, as most paths do.
const PATH: u16 = 1;

/// A measurement of the command line.
struct Measure {
    word: String,
    stream: bool,
    size: usize,
    rounds: usize,
}

/// The options of the command line.
struct Options {
    addresses: [IpAddr; 2],
    namespaces: Vec<String>,
    segment: usize,
    measures: Vec<Measure>,
}

fn options(args: &[String]) -> Option<Options> {
    let mut found = Options {
        addresses: [IpAddr::V4(Ipv4Addr::LOCALHOST); 2],
        namespaces: Vec::new(),
        segment: 1472,
        measures: Vec::new(),
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-a" => {
                let (one, other) = args.next()?.split_once(',')?;
                found.addresses = [one.parse().ok()?, other.parse().ok()?];
            }
            "-n" => found.namespaces = args.next()?.split(',').map(str::to_owned).collect(),
            "-s" => found.segment = args.next()?.parse().ok().filter(|s| *s > HEADERS)?,
            word => {
                let [kind, size, rounds] = word.split(':').collect::<Vec<_>>()[..] else {
                    return None;
                };
                let stream = kind == "bw";
                if !stream && kind != "lat" {
                    return None;
                }
                let size =
                    size.parse().ok().filter(|size| *size <= MOST && !(stream && *size == 0))?;
                let rounds = rounds.parse().ok().filter(|rounds| *rounds > 0)?;
                found.measures.push(Measure { word: word.to_owned(), stream, size, rounds });
            }
        }
    }
    (found.namespaces.is_empty() || found.namespaces.len() == 2).then_some(found)
}

/// Enters the namespace and the processor of a side, 0 or 1.
fn settle(options: &Options, side: usize) -> io::Result<()> {
    if let Some(path) = options.namespaces.get(side) {
        let file = File::open(path)?;
        // SAFETY: setns(2) takes a descriptor, which lives until after the call, and a number; this process has
        // one thread.
        if unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: a `cpu_set_t` is plain integers, for which zero is a value; CPU_SET writes into it, a local variable,
    // and sched_setaffinity(2) reads as many bytes as its second argument says, its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(side, &mut set);
        // The call may fail: with one processor there is nothing to choose.
        let _ = libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
    Ok(())
}

/// One side of the measurement.
struct Side {
    port: UdpPort,
    peer: SocketAddr,
    payload: usize,
    batch: Batch,
    /// Messages that leave, and the buffer for those that arrive.
    out: Vec<u8>,
    into: Vec<u8>,
}

impl Side {
    fn new(port: UdpPort, peer: SocketAddr, segment: usize) -> Self {
        let (out, into) = (vec![7; MOST], vec![0; MOST]);
        Self { port, peer, payload: segment - HEADERS, batch: Batch::default(), out, into }
    }

    /// Sends a message of `len` bytes.
    fn send(&mut self, len: usize) {
        self.send_part(0, len);
    }

    /// Sends the bytes of a message from `from` to `len`.
    fn send_part(&mut self, mut from: usize, len: usize) {
        loop {
            self.batch.clear();
            while self.batch.packets.len() < PACKETS {
                let stop = len.min(from + self.payload);
                let piece = &self.out[from..stop];
                let lent = (!piece.is_empty()).then(|| {
                    UserSlice::lent(piece.as_ptr().expose_provenance() as u64, piece.len() as u64)
                });
                self.batch.push((self.peer, PATH, TrafficClass::Data), &[9; HEADERS], lent, &[]);
                from = stop;
                if from == len {
                    break;
                }
            }
            let all = self.batch.packets.len();
            if all > 1 {
                self.batch.mark_runs(0);
            }
            let mut sent = 0;
            while sent < all {
                // SAFETY: the batch names parts of `out`, whose addresses were exposed when they were cut, and
                // which is neither written to nor moved before the call returns.
                let burst = unsafe { Burst::new(&self.batch, sent..all) };
                sent += self.port.send(Time::ZERO, burst).sent;
            }
            if from == len {
                return;
            }
        }
    }

    /// Receives a message of `len` bytes.
    fn receive(&mut self, len: usize) {
        let (mut got, mut packets) = (0, 0);
        while got < len || packets == 0 {
            let (bytes, count) = self.poll(|_| got);
            got += bytes;
            packets += count;
        }
    }

    /// Receives what has arrived, and waits for it. `place` returns where in the buffer the payload goes that arrives
    /// behind so many bytes of this call. Returns the bytes and packets.
    fn poll(&mut self, place: impl Fn(usize) -> usize) -> (usize, usize) {
        let since = Instant::now();
        loop {
            let (mut bytes, into) = (0, &mut self.into);
            let report = self.port.recv_each(Time::ZERO, PACKETS, &mut |_, packet| {
                let body = &packet[HEADERS..];
                let at = place(bytes);
                into[at..at + body.len()].copy_from_slice(body);
                bytes += body.len();
            });
            if report.packets > 0 {
                return (bytes, report.packets);
            }
            if since.elapsed() > PATIENCE {
                eprintln!("port_limit: packets were lost: nothing arrives any more");
                exit(1);
            }
        }
    }

    /// Sends a stream of messages of `len` bytes, and waits until all have arrived.
    fn send_stream(&mut self, len: usize, count: usize) {
        let (mut sent, mut answers) = (0, 0);
        let part = PACKETS * self.payload;
        for _ in 0..count {
            for from in (0..len).step_by(part) {
                while sent > answers * STRIDE + WINDOW {
                    answers += self.poll(|_| 0).1;
                }
                let stop = len.min(from + part);
                self.send_part(from, stop);
                sent += stop - from;
            }
        }
        while answers < sent / STRIDE + 1 {
            answers += self.poll(|_| 0).1;
        }
    }

    /// Receives a stream of messages of `len` bytes.
    fn receive_stream(&mut self, len: usize, count: usize) {
        let (mut got, mut answers) = (0, 0);
        while got < len * count {
            got += self.poll(|bytes| (got + bytes) % len).0;
            while answers < got / STRIDE {
                self.send(0);
                answers += 1;
            }
        }
        self.send(0);
    }
}

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let (peer, args) = match args.split_first() {
        Some((word, rest)) if word == "peer-of" => {
            (rest.first().cloned(), rest.get(1..).unwrap_or_default())
        }
        _ => (None, &args[..]),
    };
    let Some(options) = options(args).filter(|options| !options.measures.is_empty()) else {
        eprintln!(
            "port_limit [-a ADDRESS,ADDRESS] [-n NETNS,NETNS] [-s SEGMENT] lat|bw:SIZE:ROUNDS.."
        );
        exit(2);
    };
    let done = match peer {
        None => measure(&options, args),
        Some(peer) => answer(&options, peer.parse().expect("the address of the other side")),
    };
    if let Err(e) = done {
        eprintln!("port_limit: {e}");
        exit(1);
    }
}

fn open(options: &Options, side: usize) -> io::Result<UdpPort> {
    settle(options, side)?;
    let bind = SocketAddr::new(options.addresses[side], 0);
    Ok(UdpPort::open(&PortConfig { bind, ..PortConfig::default() })?.0)
}

fn measure(options: &Options, args: &[String]) -> io::Result<()> {
    let port = open(options, 0)?;
    let mut child = Command::new(env::current_exe()?)
        .arg("peer-of")
        .arg(port.local_addr().to_string())
        .args(args)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line)?;
    let peer = line.trim().parse().map_err(|_| io::Error::other("the other side did not start"))?;
    let mut side = Side::new(port, peer, options.segment);
    for Measure { word, stream, size, rounds } in &options.measures {
        if *stream {
            side.send_stream(*size, BURST);
            let start = Instant::now();
            side.send_stream(*size, BURST * rounds);
            let bytes = (*size * BURST * rounds) as f64;
            println!("{word} {:.4}", bytes / start.elapsed().as_secs_f64() * 1e-9);
            continue;
        }
        let mut start = Instant::now();
        for round in 0..WARM_UP + rounds {
            if round == WARM_UP {
                start = Instant::now();
            }
            side.send(*size);
            side.receive(*size);
        }
        let took = start.elapsed().as_secs_f64() / *rounds as f64;
        println!("{word} {:.4}", took * 1e6 / 2.0);
    }
    child.wait()?;
    Ok(())
}

fn answer(options: &Options, peer: SocketAddr) -> io::Result<()> {
    let port = open(options, 1)?;
    println!("{}", port.local_addr());
    io::stdout().flush()?;
    let mut side = Side::new(port, peer, options.segment);
    for Measure { stream, size, rounds, .. } in &options.measures {
        if *stream {
            side.receive_stream(*size, BURST);
            side.receive_stream(*size, BURST * rounds);
            continue;
        }
        for _ in 0..WARM_UP + rounds {
            side.receive(*size);
            side.send(*size);
        }
    }
    Ok(())
}
