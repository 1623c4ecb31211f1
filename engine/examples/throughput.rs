//! Measures the cost of the engine itself: two engines joined by memory copies, without sockets.
//! Prints messages per second for injected 64-byte messages and bytes per second for eager and
//! rendezvous messages, on one core for both ends together.
#![allow(clippy::disallowed_methods, clippy::print_stdout)] // a benchmark reads the clock and prints
#![allow(missing_docs)]

#[path = "../tests/world/mod.rs"]
mod world;

use std::time::Instant;

use squall_base::{Batch, Span};
use squall_engine::*;
use world::*;

/// Carries all packets until nothing more happens. Returns the number of completions of `kind` at
/// host 1.
fn pump(w: &mut World, batch: &mut Batch, packet: &mut Vec<u8>, received: &mut usize) {
    loop {
        let mut moved = false;
        for (from, to) in [(0, 1), (1, 0)] {
            batch.clear();
            w.hosts[from].engine.poll_transmit(w.now, batch);
            for p in &batch.packets {
                packet.clear();
                packet.extend_from_slice(batch.header(p));
                for seg in batch.payload(p) {
                    packet.extend_from_slice(w.hosts[from].memory.get(seg.base, seg.len));
                }
                let src = w.hosts[from].addr;
                let host = &mut w.hosts[to];
                host.engine.handle_packet(
                    w.now,
                    &mut host.memory,
                    src,
                    PacketMarks::default(),
                    packet,
                );
                moved = true;
            }
            w.now += Span::nanos(500);
        }
        for n in 0..2 {
            while let Some(c) = w.hosts[n].engine.poll_completion() {
                *received += usize::from(n == 1 && c.kind == OpKind::Recv);
            }
            if w.hosts[n].engine.poll_timeout().is_some_and(|at| at <= w.now) {
                w.hosts[n].engine.handle_timeout(w.now);
            }
        }
        if !moved {
            return;
        }
    }
}

fn run(len: u64, rounds: usize, window: usize, threshold: u64) {
    let mut w = World::with(2, 1, Faults::default(), |config, pdc| {
        config.max_packet = 16_312;
        config.rendezvous_threshold = threshold;
        pdc.mtu = 16_312;
    });
    let peer = w.peer(0, 1);
    let from = w.hosts[0].memory.alloc(len as usize);
    let to = w.hosts[1].memory.alloc(len as usize);
    let (mut batch, mut packet, mut received) = (Batch::default(), Vec::new(), 0);
    let start = Instant::now();
    for _ in 0..rounds {
        for n in 0..window as u64 {
            let host = &mut w.hosts[1];
            let op = RecvOp {
                source: None,
                space: MatchSpace::Tagged,
                tag: n,
                ignore: 0,
                buf: Buf::new(to, len),
                context: n,
                visibility: Visibility::Entry,
                mode: RecvMode::Post,
            };
            host.engine.receive(w.now, &mut host.memory, op).expect("posted");
        }
        for n in 0..window as u64 {
            let buf = Buf::new(from, len);
            let op = if len <= 256 {
                injected(peer, MatchSpace::Tagged, n, buf, None)
            } else {
                Operation {
                    peer,
                    action: Action::Message { space: MatchSpace::Tagged, tag: n },
                    buf,
                    data: None,
                    context: n,
                    options: Options { level: Level::Transmit, ..Options::default() },
                }
            };
            w.submit(0, op).expect("queued");
        }
        pump(&mut w, &mut batch, &mut packet, &mut received);
    }
    let took = start.elapsed().as_secs_f64();
    assert_eq!(received, rounds * window, "all arrived");
    println!(
        "{len:>8} B  {:>8.3} M messages/s  {:>8.3} GB/s",
        received as f64 / took / 1e6,
        received as f64 * len as f64 / took / 1e9
    );
}

fn main() {
    run(64, 20_000, 64, 65_536);
    run(4_096, 5_000, 64, 65_536);
    run(65_536, 500, 32, 65_536);
    run(1 << 20, 100, 16, 65_536);
    run(1 << 20, 100, 16, u64::MAX);
}
