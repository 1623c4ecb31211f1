//! A measurement of the sockets below the transport, as the limit of what the transport can reach. It
//! sends the same trains through [`UdpPort`] and nothing else: no acknowledgement, no order, no
//! matching. A lost packet ends the program.
//!
//! ```text
//! port_limit [-a ADDRESS,ADDRESS] [-n NETNS,NETNS] [-s SEGMENT] MEASURE..
//! ```
//!
//! MEASURE is `lat:SIZE:ROUNDS`: half a round trip in microseconds, with a message of SIZE bytes in each
//! direction. The program prints a line `MEASURE VALUE` for each. SEGMENT is the length of a packet, UDP
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
/// Path that is used. It has a socket of its own, as most paths do.
const PATH: u16 = 1;

/// A measurement of the command line.
struct Measure {
    word: String,
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
                if kind != "lat" {
                    return None;
                }
                let size = size.parse().ok().filter(|size| *size <= MOST)?;
                let rounds = rounds.parse().ok().filter(|rounds| *rounds > 0)?;
                found.measures.push(Measure { word: word.to_owned(), size, rounds });
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
        let mut from = 0;
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
        let (mut got, mut packets, mut quiet) = (0, 0, None);
        while got < len || packets == 0 {
            let into = &mut self.into;
            let report = self.port.recv_each(Time::ZERO, PACKETS, &mut |_, packet| {
                let body = &packet[HEADERS..];
                into[got..got + body.len()].copy_from_slice(body);
                got += body.len();
                packets += 1;
            });
            if report.packets > 0 {
                quiet = None;
            } else if quiet.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                eprintln!("port_limit: packets were lost: {got} of {len} bytes arrived");
                exit(1);
            }
        }
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
            "port_limit [-a ADDRESS,ADDRESS] [-n NETNS,NETNS] [-s SEGMENT] lat:SIZE:ROUNDS.."
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
    for Measure { word, size, rounds } in &options.measures {
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
    for Measure { size, rounds, .. } in &options.measures {
        for _ in 0..WARM_UP + rounds {
            side.receive(*size);
            side.send(*size);
        }
    }
    Ok(())
}
