//! One endpoint that talks to a peer which the test plays.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use squall_base::{Batch, Span, Time};
use squall_engine::{
    Action, Buf, Completion, Config, Engine, ForeignWire, Level, MatchSpace, NoChannels, Operation,
    Options, PacketMarks, PeerId, RecvMode, RecvOp, RemoteIov, RemoteSeg, SubmitError,
    TransportConfig, Visibility,
};

use crate::world::{VecMemory, engine_config, pdc_config};

/// An endpoint of this project, its memory and what it has sent.
pub(crate) struct Endpoint {
    pub(crate) engine: Engine,
    pub(crate) memory: VecMemory,
    pub(crate) now: Time,
    /// The packets that left since they were last taken, with their destinations.
    pub(crate) sent: Vec<(SocketAddr, Vec<u8>)>,
    /// The paths of all packets that left. Each is a source port.
    pub(crate) paths: BTreeSet<u16>,
    pub(crate) done: Vec<Completion>,
}

impl Endpoint {
    /// Creates an endpoint that speaks `wire`.
    pub(crate) fn new(seed: u64, wire: ForeignWire) -> Self {
        Self::with(seed, wire, |_, _| {})
    }

    pub(crate) fn with(
        seed: u64,
        wire: ForeignWire,
        adjust: impl Fn(&mut Config, &mut TransportConfig),
    ) -> Self {
        let config = Config {
            max_packet: u32::from(wire.payload + ForeignWire::HEADERS),
            wire: Some(wire),
            job_id: u32::from(wire.checks_job),
            shm: false,
            ..engine_config(seed, 4793)
        };
        let (mut config, mut pdc) = (config, pdc_config(seed));
        pdc.mtu = config.max_packet;
        adjust(&mut config, &mut pdc);
        Self {
            engine: Engine::new(config, pdc),
            memory: VecMemory::default(),
            now: Time(1_000_000),
            sent: vec![],
            paths: BTreeSet::new(),
            done: vec![],
        }
    }

    /// Delivers a packet and sends what follows from it.
    pub(crate) fn feed(&mut self, src: SocketAddr, bytes: &[u8]) {
        let marks = PacketMarks::default();
        self.engine.handle_packet(self.now, &mut self.memory, src, marks, bytes);
    }

    /// Sends everything that may leave now, and takes the completions.
    pub(crate) fn poll(&mut self) {
        loop {
            let mut batch = Batch::default();
            let more = self.engine.poll_transmit(self.now, &mut batch);
            for packet in &batch.packets {
                let mut bytes = batch.header(packet).to_vec();
                for piece in batch.payload(packet) {
                    bytes.extend_from_slice(self.memory.get(piece.base, piece.len));
                }
                assert_eq!(bytes.len(), packet.len as usize, "the packet's length is its parts'");
                self.sent.push((packet.dst, bytes));
                self.paths.insert(packet.path);
            }
            if !more && batch.packets.is_empty() {
                break;
            }
        }
        while let Some(completion) = self.engine.poll_completion() {
            self.done.push(completion);
        }
    }

    /// Returns the packets that left, in order.
    pub(crate) fn take_sent(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        self.poll();
        std::mem::take(&mut self.sent)
    }

    /// Lets `span` pass, with all timers in it.
    pub(crate) fn pass(&mut self, span: Span) {
        let end = self.now + span;
        self.poll();
        while let Some(due) = self.engine.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.engine.handle_timeout(self.now);
            self.poll();
        }
        self.now = end;
    }

    /// Sends a message. A tag makes it a tagged one.
    pub(crate) fn send(
        &mut self,
        peer: PeerId,
        tag: Option<u64>,
        data: Option<u64>,
        payload: &[u8],
    ) -> Result<(), SubmitError> {
        let base = self.memory.put(payload);
        let space = if tag.is_some() { MatchSpace::Tagged } else { MatchSpace::Untagged };
        let op = Operation {
            peer,
            action: Action::Message { space, tag: tag.unwrap_or(0) },
            buf: Buf::new(base, payload.len() as u64),
            data,
            context: base + 1,
            options: Options { level: Level::Delivery, ..Options::default() },
        };
        self.engine.submit(self.now, &self.memory, op, None::<&mut NoChannels>).map(|_| ())
    }

    /// Reads memory of a peer and returns the buffer.
    pub(crate) fn read(
        &mut self,
        peer: PeerId,
        address: u64,
        key: u64,
        len: u64,
    ) -> Result<u64, SubmitError> {
        let base = self.memory.alloc(len as usize);
        let op = Operation {
            peer,
            action: Action::Read(RemoteIov::One(RemoteSeg { address, len, key })),
            buf: Buf::new(base, len),
            data: None,
            context: base + 1,
            options: Options::default(),
        };
        self.engine.submit(self.now, &self.memory, op, None::<&mut NoChannels>).map(|_| base)
    }

    /// Posts a receive and returns its buffer.
    pub(crate) fn receive(&mut self, tag: Option<u64>, len: usize) -> u64 {
        let base = self.memory.alloc(len);
        let space = if tag.is_some() { MatchSpace::Tagged } else { MatchSpace::Untagged };
        let op = RecvOp {
            source: None,
            space,
            tag: tag.unwrap_or(0),
            ignore: 0,
            buf: Buf::new(base, len as u64),
            context: base + 1,
            visibility: Visibility::Entry,
            mode: RecvMode::Post,
        };
        self.engine.receive(self.now, &mut self.memory, op).expect("a receive is always taken");
        base
    }

    /// Returns the completion of the operation with this buffer.
    pub(crate) fn completion(&self, base: u64) -> Option<&Completion> {
        self.done.iter().find(|completion| completion.context == base + 1)
    }
}
