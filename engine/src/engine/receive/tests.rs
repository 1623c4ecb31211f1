//! Header prediction changes nothing: two receivers get the same packets, and one of them predicts
//! none.

use core::net::SocketAddr;

use super::{PacketMarks, PacketReceiver};
use crate::base::{Batch, Rng, SecretRng, Span, Time, UserSlice};
use crate::reliability::cc::{PathsConfig, SenderConfig};
use crate::shm::NoChannels;
use crate::{
    Access, Action, Buf, Config, Engine, KeyError, Level, MatchSpace, Memory, Operation, Options,
    PeerId, RecvMode, RecvOp, TransportConfig, Visibility,
};

const RECEIVER: usize = 0;
const SENDERS: [usize; 2] = [1, 2];
/// Length of every receive's buffer.
const BUFFER: u64 = 3000;

/// The memory of an endpoint, with a buffer for each of the last receives.
struct FlatMemory(Vec<u8>);

impl Memory for FlatMemory {
    fn write(&mut self, to: UserSlice, data: &[u8]) {
        self.0[to.base as usize..][..data.len()].copy_from_slice(data);
    }

    fn read(&self, from: UserSlice, out: &mut [u8]) {
        out.copy_from_slice(&self.0[from.base as usize..][..out.len()]);
    }

    fn update(
        &mut self,
        _: UserSlice,
        _: &mut [u8],
        _: &mut dyn FnMut(&[u8], &mut [u8]) -> bool,
    ) -> bool {
        false
    }

    fn resolve(&self, _: u64, _: u64, _: u64, _: Access) -> Result<UserSlice, KeyError> {
        Err(KeyError::BadKey)
    }
}

struct End {
    engine: Engine,
    memory: FlatMemory,
}

impl End {
    fn new(seed: u64, n: usize) -> Self {
        let mut bytes = [n as u8; 32];
        bytes[..8].copy_from_slice(&seed.to_ne_bytes());
        let mut secret = SecretRng::from_seed(bytes);
        let config = Config { max_packet: 1000, ..Config::new(secret.instance(), secret.seed()) };
        let paths = PathsConfig::reps(4).expect("a power of two");
        let transport = TransportConfig::new(1000, SenderConfig::fixed(1 << 16), paths, seed);
        let memory = (0..=u8::MAX).cycle().take(1 << 16).collect();
        Self { engine: Engine::new(config, transport), memory: FlatMemory(memory) }
    }

    /// Forgets the headers that predict those of the next packets.
    fn clear_templates(&mut self) {
        let ids: Vec<_> = self.engine.contexts.iter().map(|context| context.id).collect();
        for id in ids {
            self.engine.contexts.get_mut(id).expect("it was listed").template = None;
        }
    }

    /// Returns all that can be seen of the endpoint, and takes its completions and notices.
    fn outputs(&mut self) -> String {
        let mut seen = format!("{:?} {:?}", self.engine.counters(), self.engine.poll_timeout());
        while let Some(completion) = self.engine.poll_completion() {
            seen += &format!("{completion:?}");
        }
        while let Some(notice) = self.engine.poll_notice() {
            seen += &format!("{notice:?}");
        }
        seen
    }
}

fn address(n: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1 + n as u8], crate::UET_PORT))
}

/// A packet on its way, with its sender and its receiver.
struct Flying {
    from: usize,
    to: usize,
    bytes: Vec<u8>,
}

/// Senders and two receivers at one address, which get the same packets.
struct World {
    now: Time,
    rng: Rng,
    ends: [End; 3],
    /// The receiver that predicts no headers.
    plain: End,
    flying: Vec<Flying>,
    batch: Batch,
    received: u64,
    predicted: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            now: Time(1_000_000),
            rng: Rng::new(seed),
            ends: [0, 1, 2].map(|n| End::new(seed, n)),
            plain: End::new(seed, RECEIVER),
            flying: Vec::new(),
            batch: Batch::default(),
            received: 0,
            predicted: 0,
        }
    }

    fn post_receive(&mut self) {
        let slot = self.received % 16;
        self.received += 1;
        let space = self.pick(&[MatchSpace::Tagged, MatchSpace::Tagged, MatchSpace::Untagged]);
        for end in [&mut self.ends[RECEIVER], &mut self.plain] {
            let op = RecvOp {
                source: None,
                space,
                tag: 0,
                ignore: if space == MatchSpace::Tagged { 3 } else { 0 },
                buf: Buf::new(slot * BUFFER, BUFFER),
                context: self.received,
                visibility: Visibility::Entry,
                mode: RecvMode::Post,
            };
            end.engine.receive(self.now, &mut end.memory, op).expect("there is room");
        }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.below(from.len() as u32) as usize]
    }

    fn send(&mut self, from: usize) {
        let space = self.pick(&[MatchSpace::Tagged, MatchSpace::Tagged, MatchSpace::Untagged]);
        let tag = if space == MatchSpace::Tagged { self.rng.below(4).into() } else { 0 };
        let len = self.pick(&[0, 1, 64, 64, 64, 500, 900, 2500]);
        let level = self.pick(&[Level::Transmit, Level::Transmit, Level::Delivery]);
        let op = Operation {
            peer: PeerId(0),
            action: Action::Message { space, tag },
            buf: Buf::new(u64::from(self.rng.below(1000)), len),
            data: self.rng.chance(0.1).then_some(7),
            context: 1,
            options: Options { level, ..Options::default() },
        };
        let End { engine, memory } = &mut self.ends[from];
        let op = Operation { peer: engine.peer(address(RECEIVER)), ..op };
        let _ = engine.submit(self.now, memory, op, None::<&mut NoChannels>);
    }

    /// Puts the packets that an endpoint sends on their way. Some of them are lost, doubled,
    /// overtaken or damaged.
    fn collect(&mut self, from: usize) {
        self.batch.clear();
        self.ends[from].engine.poll_transmit(self.now, &mut self.batch);
        if from == RECEIVER {
            let mut other = Batch::default();
            self.plain.engine.poll_transmit(self.now, &mut other);
            assert_eq!(format!("{:?}", self.batch), format!("{other:?}"));
        }
        for packet in &self.batch.packets {
            let mut bytes = self.batch.header(packet).to_vec();
            for piece in self.batch.payload(packet) {
                let at = bytes.len();
                bytes.resize(at + piece.len as usize, 0);
                self.ends[from].memory.read(*piece, &mut bytes[at..]);
            }
            // A damaged packet may have named another port.
            let Some(to) = (0..3).find(|n| address(*n) == packet.dst) else { continue };
            if self.rng.chance(0.03) {
                continue;
            }
            if self.rng.chance(0.05) {
                self.flying.push(Flying { from, to, bytes: bytes.clone() });
            }
            if self.rng.chance(0.02) {
                let at = self.rng.below(bytes.len().min(60) as u32) as usize;
                bytes[at] ^= 1 << self.rng.below(8);
            }
            let from = if self.rng.chance(0.01) { 3 - from } else { from };
            self.flying.push(Flying { from: from.min(2), to, bytes });
        }
        if self.flying.len() > 1 && self.rng.chance(0.1) {
            let last = self.flying.len() - 1;
            self.flying.swap(last, last - 1);
        }
    }

    fn deliver(&mut self) {
        for Flying { from, to, bytes } in core::mem::take(&mut self.flying) {
            let marks = PacketMarks { ce: self.rng.chance(0.05), trimmed: false };
            let (now, src) = (self.now, address(from));
            let End { engine, memory } = &mut self.ends[to];
            if to == RECEIVER {
                let mut receiver = PacketReceiver { engine, mem: memory, now, src };
                self.predicted += u64::from(receiver.predict(&bytes).is_some());
                self.plain.clear_templates();
                let End { engine, memory } = &mut self.plain;
                engine.handle_packet(now, memory, src, marks, &bytes);
            }
            let End { engine, memory } = &mut self.ends[to];
            engine.handle_packet(now, memory, src, marks, &bytes);
        }
    }

    fn step(&mut self) {
        if self.rng.chance(0.6) {
            self.post_receive();
        }
        for from in SENDERS {
            if self.rng.chance(0.4) {
                self.send(from);
            }
            self.collect(from);
        }
        self.deliver();
        let pause = self.pick(&[5, 40, 400]);
        self.now += Span::micros(pause);
        for end in self.ends.iter_mut().chain([&mut self.plain]) {
            if end.engine.poll_timeout().is_some_and(|at| at <= self.now) {
                end.engine.handle_timeout(self.now);
            }
        }
        self.collect(RECEIVER);
        self.deliver();
        assert_eq!(self.ends[RECEIVER].outputs(), self.plain.outputs());
    }
}

#[test]
fn prediction_changes_no_output_and_no_counter() {
    let (mut predicted, mut received) = (0, 0);
    for seed in 0..40 {
        let mut world = World::new(seed);
        for _ in 0..300 {
            world.step();
        }
        assert!(world.ends[RECEIVER].memory.0 == world.plain.memory.0);
        predicted += world.predicted;
        received += world.plain.engine.counters().1.rx_packets;
    }
    assert!(predicted * 4 > received, "{predicted} of {received} packets were predicted");
}
