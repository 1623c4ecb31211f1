//! Prints how long it takes to seal and to open a packet, in ns: medians over trains of 64 packets.
//!
//! Usage: `cipher_speed BYTES..`, the bytes that are encrypted in each packet.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark, and no part of the transport"
)]

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::Instant;

use squall_base::{Instance, PairSecret};
use squall_seal::{KeyRing, OVERHEAD, OuterHeader, Pair, SourceId};

/// Packets in a row, as in a train.
const TRAIN: usize = 64;
const ROUNDS: usize = 201;

fn main() {
    for word in std::env::args().skip(1) {
        match word.parse::<usize>() {
            Ok(bytes) => measure(bytes),
            Err(error) => {
                eprintln!("cipher_speed {word}: {error}; give numbers of bytes");
                std::process::exit(2);
            }
        }
    }
}

/// Two rings that share a secret, and the addresses of packets from the first to the second.
fn rings() -> (KeyRing, KeyRing, OuterHeader) {
    let [a, b] = [("10.0.0.1:4793", 1), ("10.0.0.2:4793", 2)].map(|(addr, number)| {
        let addr: SocketAddr = addr.parse().expect("an address");
        (addr, SourceId::new(Instance::new(number).expect("not 0"), number == 1))
    });
    let pair = |peer, own, theirs| Pair {
        peer,
        secret: PairSecret::new([7; 32]),
        domain: 1,
        own,
        theirs,
        confirmed: true,
    };
    let (mut sender, mut receiver) = (KeyRing::new(), KeyRing::new());
    sender.install(&pair(b.0, a.1, b.1));
    receiver.install(&pair(a.0, b.1, a.1));
    (sender, receiver, OuterHeader { source: a.0, destination: b.0 })
}

fn measure(bytes: usize) {
    let (mut sender, mut receiver, outer) = rings();
    let (mut seal, mut open, mut scratch) = (Vec::new(), Vec::new(), Vec::new());
    let mut train = vec![vec![1; bytes + OVERHEAD]; TRAIN];
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        for packet in &mut train {
            sender.seal(&outer, black_box(packet)).expect("a secret is shared");
        }
        let between = Instant::now();
        for packet in &mut train {
            black_box(receiver.open(&outer, packet, &mut scratch)).expect("the tag is right");
        }
        seal.push((between - begin).as_nanos() as f64 / TRAIN as f64);
        open.push(between.elapsed().as_nanos() as f64 / TRAIN as f64);
    }
    println!("{bytes} {:.0} {:.0}", median(seal), median(open));
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
