//! Measures the cost of a known, idle peer: one engine and many peers, each of which is verified,
//! exchanges a message in each direction, and then stays silent. Prints the growth of this
//! process's resident memory per peer, with the contexts between them open.
//!
//! A peer's own engine is dropped after the exchange, so the result is the memory of the one
//! engine.
#![allow(clippy::print_stdout)] // this program prints its result
#![allow(missing_docs)]

#[path = "../tests/world/mod.rs"]
mod world;

use std::net::SocketAddr;

use squall_base::{Batch, Span, Time};
use squall_cc::{NetworkProfile, PathsConfig, SenderConfig};
use squall_engine::{
    Action, Buf, Engine, Level, MatchSpace, NoChannels, Operation, Options, PacketMarks, PeerId,
    RecvMode, RecvOp, TransportConfig, Visibility,
};
use world::{VecMemory, engine_config};

const PEERS: u32 = 10_000;
/// Number of peers after which the baseline is measured, so that one-time allocations do not count.
const WARM_UP: u32 = 500;

struct End {
    engine: Engine,
    memory: VecMemory,
    addr: SocketAddr,
}

fn transport(seed: u64) -> TransportConfig {
    let network = NetworkProfile::new(squall_base::Rate::gbps(10), Span::micros(50), 1400, false);
    let cc = SenderConfig::by_name("nscc", &network).expect("the algorithm is in the registry");
    TransportConfig::new(1400, cc, PathsConfig::reps(8).expect("8 is a power of two"), seed)
}

fn end(seed: u64, addr: SocketAddr) -> End {
    let engine = Engine::new(engine_config(seed, addr.port()), transport(seed));
    End { engine, memory: VecMemory::default(), addr }
}

/// Carries packets between two endpoints until neither sends any.
fn carry(now: &mut Time, ends: [&mut End; 2]) {
    let mut batch = Batch::default();
    let [one, other] = ends;
    let mut quiet = 0;
    while quiet < 4 {
        quiet += 1;
        for (from, to) in [(0, 1), (1, 0)] {
            let (from, to) =
                if from < to { (&mut *one, &mut *other) } else { (&mut *other, &mut *one) };
            batch.clear();
            from.engine.poll_transmit(*now, &mut batch);
            for packet in &batch.packets {
                quiet = 0;
                let mut bytes = batch.header(packet).to_vec();
                for piece in batch.payload(packet) {
                    bytes.extend_from_slice(from.memory.get(piece.base, piece.len));
                }
                let marks = PacketMarks::default();
                to.engine.handle_packet(*now, &mut to.memory, from.addr, marks, &bytes);
            }
            while from.engine.poll_completion().is_some() {}
            *now += Span::micros(20);
            if from.engine.poll_timeout().is_some_and(|at| at <= *now) {
                from.engine.handle_timeout(*now);
            }
        }
    }
}

fn message(now: Time, from: &mut End, to: PeerId, base: u64) {
    let op = Operation {
        peer: to,
        action: Action::Message { space: MatchSpace::Tagged, tag: 1 },
        buf: Buf::new(base, 64),
        data: None,
        context: 0,
        options: Options { level: Level::Transmit, ..Options::default() },
    };
    from.engine.submit(now, &from.memory, op, None::<&mut NoChannels>).expect("there is room");
}

fn receive(now: Time, at: &mut End, base: u64) {
    let op = RecvOp {
        source: None,
        space: MatchSpace::Tagged,
        tag: 1,
        ignore: 0,
        buf: Buf::new(base, 64),
        context: 0,
        visibility: Visibility::Entry,
        mode: RecvMode::Post,
    };
    at.engine.receive(now, &mut at.memory, op).expect("there is room");
}

/// Returns the resident memory of this process in bytes.
#[allow(clippy::disallowed_methods)] // a measurement reads what it measures
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it is there");
    let kib = line.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
    kib.expect("a number") * 1024
}

fn main() {
    let mut now = Time(1_000_000);
    let mut hub = end(1, SocketAddr::from(([10, 0, 0, 1], 4793)));
    let base = hub.memory.alloc(64);
    let mut before = 0;
    for n in 0..WARM_UP + PEERS {
        if n == WARM_UP {
            before = resident();
        }
        let host = 2 + n;
        let addr =
            SocketAddr::from(([10, (host >> 16) as u8, (host >> 8) as u8, host as u8], 4793));
        let mut peer = end(u64::from(host), addr);
        let there = peer.memory.alloc(64);
        let (id, hub_id) = (hub.engine.peer(addr), peer.engine.peer(hub.addr));
        receive(now, &mut hub, base);
        receive(now, &mut peer, there);
        message(now, &mut hub, id, base);
        message(now, &mut peer, hub_id, there);
        carry(&mut now, [&mut hub, &mut peer]);
        assert!(
            hub.engine.is_idle() && peer.engine.is_idle(),
            "no message was exchanged with peer {n}"
        );
    }
    let contexts = hub.engine.contexts().count();
    let live = resident().saturating_sub(before) / u64::from(PEERS);
    println!("{PEERS} idle peers, {contexts} contexts with them: {live} bytes a peer");
}
