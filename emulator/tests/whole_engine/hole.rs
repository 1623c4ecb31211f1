//! A spine of two swallows everything, both ways, and nobody says so.

use squall_base::{Rate, Span};
use squall_cc::{NetworkProfile, PathsConfig, SenderConfig};
use squall_emulator::Emulation;
use squall_engine::{
    Action, Buf, Completion, Config, Level, MatchSpace, Operation, Options, RecvMode, RecvOp,
    Visibility,
};
use squall_netsim::Picos;
use squall_netsim::model::{Failure, NetworkConfig};
use squall_netsim::topology::Topology;
use squall_reliability::NOMINAL_OVERHEAD;

use super::world::{BEGIN, World, configured};

/// Larger than the rendezvous threshold, so that bytes are fetched by reads.
const LEN: u64 = 20_000;

fn world(seed: u64) -> World {
    let rate = Rate::gbps(10);
    let (latency, inside) = (Picos::micros(1), Picos::nanos(300));
    let topology = Topology::leaf_spine(2, 2, 2, rate, rate, latency, inside);
    let mut config = NetworkConfig::new(20_000, true, seed);
    config.queue = config.queue.max(4096 * 8);
    config.control_queue = config.queue * 2;
    config.trim = Some(64 + NOMINAL_OVERHEAD);
    let net = Emulation::new(topology, config, NOMINAL_OVERHEAD).expect("small");
    let known = NetworkProfile::new(rate, Span::micros(30), 4096 + NOMINAL_OVERHEAD, true);
    World::new(net, seed, move |seed, port| {
        let sender = SenderConfig::by_name("nscc", &known).expect("a listed name");
        let paths = PathsConfig::by_name("reps-avoid", 16).expect("a listed name");
        let mut pdc = squall_reliability::Config::new(4096, sender, paths, seed).reciprocal(&known);
        pdc.train_packets = 4;
        let engine =
            Config { max_packet: 4096, rendezvous_threshold: 16 * 1024, port, ..configured(seed) };
        (engine, pdc)
    })
}

/// Posts the receive and the send of host `at`'s next round.
fn exchange(world: &mut World, at: usize) {
    let peer = world.peer(at, (at + 2) % 4);
    let now = world.time();
    let host = &mut world.hosts[at];
    // Each round uses the same buffers.
    let (out, into) = (0, LEN);
    let recv = RecvOp {
        source: Some(peer),
        space: MatchSpace::Tagged,
        tag: 1,
        ignore: 0,
        buf: Buf::new(into, LEN),
        context: 1,
        visibility: Visibility::Entry,
        mode: RecvMode::Post,
    };
    host.engine.receive(now, &mut host.memory, recv).expect("room for operations");
    let send = Operation {
        peer,
        action: Action::Message { space: MatchSpace::Tagged, tag: 1 },
        buf: Buf::new(out, LEN),
        data: None,
        context: 2,
        options: Options { level: Level::Transmit, ..Options::default() },
    };
    world.submit(at, send);
}

/// Two pairs of hosts exchange messages across the spines, the next when the last one has gone and come.
/// One spine is dead for 600 ms; no operation fails, and none waits for long.
#[test]
fn a_dead_spine_fails_nothing() {
    for seed in [0, 2] {
        let mut world = world(seed);
        for host in &mut world.hosts {
            host.memory.alloc(2 * LEN as usize);
        }
        (0..4).for_each(|at| exchange(&mut world, at));
        let (hole, healed) = (BEGIN + Picos::micros(10_000), BEGIN + Picos::micros(610_000));
        let end = healed + Picos::micros(100_000);
        let mut pending = [2u8; 4];
        let mut rounds = [0u32; 4];
        let mut last = [BEGIN; 4];
        let mut stall = Picos::ZERO;
        let mut stage = 0;
        loop {
            let until = [hole, healed, end][stage];
            let mut ended = Vec::new();
            let mut count = |host: usize, done: Completion| ended.push((host, done));
            if !world.step(until, &mut count) {
                world.now = until;
                // Links 4 and 6 lead from the leaves to the first spine.
                for link in [4, 6] {
                    let what =
                        [Failure::BlackHole(link), Failure::LinkUp(link)].get(stage).copied();
                    if let Some(what) = what {
                        world.net.fail(world.now, what);
                    }
                }
                stage += 1;
                if stage == 3 {
                    break;
                }
            }
            for (host, done) in ended {
                assert_eq!(done.status, Ok(()), "seed {seed}, host {host}, round {}", rounds[host]);
                pending[host] -= 1;
                if pending[host] == 0 {
                    stall = stall.max(world.now - last[host]);
                    last[host] = world.now;
                    rounds[host] += 1;
                    pending[host] = 2;
                    exchange(&mut world, host);
                }
            }
        }
        // A round is several packets each way, and each of them may have to look for a path.
        assert!(stall < Picos::micros(500_000), "seed {seed}: {stall:?}");
        assert!(last.iter().all(|last| end - *last < Picos::micros(10_000)), "all go on");
    }
}
