//! The moving part of an endpoint: engine and port, and the order in which they are served.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use squall_engine::base::{Span, Time};
use squall_engine::wire::crc;
use squall_engine::{Batch, Completion, Engine, OpKind, Seg, Trouble};
use squall_net::{Class, NetError, Port, RxMeta, TxPacket, Unreachable};

use super::Endpoint;
use super::bind::Bindings;
use super::flow::{entry_of, failure_of};
use super::peers::Peers;
use crate::clock;
use crate::flags::ADDR_UNSPEC;
use crate::gate::Gate;
use crate::mr::{Regions, UserMemory};
use crate::stats::Statistics;

/// Packets received per turn before transmitting, so that acknowledgements keep flowing.
const RX_BUDGET: usize = 64;
/// Batches sent per turn before receiving.
const TX_BATCHES: usize = 4;
/// Operations that may wait for company before they are sent.
const MOST_DEFERRED: u32 = 32;
/// Turns in a row that find nothing before the processor is offered to others: with more processes
/// than processors, the one that is polled for may be waiting for it.
const PATIENCE: u64 = 64;
/// Turns after which timers are served even if packets keep coming.
const TIMER_TURNS: u64 = 16;
/// Payload that may wait.
const MOST_DEFERRED_BYTES: u64 = 32 * 1024;
/// An operation this soon after the last transmission is one of a burst, and waits for company. The
/// next call for progress sends it.
const BURST: Span = Span::micros(3);
/// How long a closing endpoint waits for acknowledgements of what it sent.
const FAREWELL: Span = Span::secs(1);
/// How long no packet must come before it goes although contexts are open: a peer that missed our last
/// acknowledgement asks again within this time.
const QUIET: Span = Span::millis(20);

/// Engine, port, and what travels between them.
pub(super) struct Core {
    pub(super) engine: Engine,
    pub(super) peers: Peers,
    pub(super) regions: Arc<Gate<Regions>>,
    port: Box<dyn Port + Send>,
    local: SocketAddr,
    crc: bool,
    dscp_trimmed: Option<u8>,
    batch: Batch,
    /// Packets of the batch that are sent.
    sent: usize,
    trailers: Vec<[u8; crc::CRC_LEN]>,
    /// Recycled between sends, so that none allocates.
    packets: Vec<TxPacket<'static>>,
    slices: Vec<IoSlice<'static>>,
    errors: Vec<NetError>,
    deferred: u32,
    deferred_bytes: u64,
    last_flush: Time,
    last_arrival: Time,
    closing_since: Option<Time>,
    turns: u64,
    idle_turns: u64,
    idle_streak: u64,
    /// A peer of another receiver mode was reported.
    mode_told: bool,
    stand_ins: u64,
    crc_errors: u64,
}

/// What a look at the socket found.
struct Received {
    /// When the packets arrived, or when none was there.
    now: Time,
    /// Packets arrived.
    busy: bool,
    /// None is left.
    drained: bool,
}

/// What [`super::setup`] opens.
pub(super) struct Opened {
    pub(super) engine: Engine,
    pub(super) port: Box<dyn Port + Send>,
    pub(super) local: SocketAddr,
    pub(super) crc: bool,
    pub(super) dscp_trimmed: Option<u8>,
}

impl Core {
    pub(super) fn new(opened: Opened, regions: Arc<Gate<Regions>>) -> Self {
        Self {
            engine: opened.engine,
            peers: Peers::default(),
            regions,
            port: opened.port,
            local: opened.local,
            crc: opened.crc,
            dscp_trimmed: opened.dscp_trimmed,
            batch: Batch::default(),
            sent: 0,
            trailers: Vec::new(),
            packets: Vec::new(),
            slices: Vec::new(),
            errors: Vec::new(),
            deferred: 0,
            deferred_bytes: 0,
            last_flush: Time::ZERO,
            last_arrival: Time::ZERO,
            closing_since: None,
            turns: 0,
            idle_turns: 0,
            idle_streak: 0,
            mode_told: false,
            stand_ins: 0,
            crc_errors: 0,
        }
    }

    /// The endpoint's address.
    pub(super) fn local(&self) -> SocketAddr {
        self.local
    }

    /// The sockets to watch.
    pub(super) fn sockets(&self) -> Vec<RawFd> {
        let mut fds = Vec::new();
        self.port.fds(&mut fds);
        fds
    }

    /// When a turn is needed without anything arriving.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let unsent = self.sent < self.batch.packets.len() || self.deferred > 0;
        // A full socket drains soon; nothing tells when.
        let soon = unsent.then(|| Time(clock::now().0.saturating_add(50_000)));
        [self.engine.poll_timeout(), self.port.next_deadline(), soon].into_iter().flatten().min()
    }

    /// One turn: receive, time, transmit, complete. Whether anything happened.
    pub(super) fn turn(&mut self, ep: &Endpoint, bindings: &Bindings) -> bool {
        self.turns += 1;
        let Received { now, mut busy, drained } = self.receive();
        // What looks overdue may be answered by packets that still wait in the socket; a stream of
        // them does not put timers off for ever, though.
        let timely = drained || self.turns.is_multiple_of(TIMER_TURNS);
        if timely && self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
            busy = true;
        }
        busy |= self.flush(now);
        busy |= self.complete(ep, bindings);
        if busy {
            self.idle_streak = 0;
            if let Some(peer) = self.engine.take_other_mode() {
                self.tell_mode(peer);
            }
        } else {
            self.idle_turns += 1;
            self.idle_streak += 1;
            if self.idle_streak.is_multiple_of(PATIENCE) {
                std::thread::yield_now();
            }
        }
        busy
    }

    /// Says, once an endpoint, that a peer's receiver works in another mode.
    #[cold]
    fn tell_mode(&mut self, peer: SocketAddr) {
        if !core::mem::replace(&mut self.mode_told, true) {
            log::warn!(
                "the receiver of {peer} works in another mode than FI_SQUALL_CC={} here lives on: a plain \
                 window, or none of its signals, must do; set the same FI_SQUALL_CC at all endpoints \
                 (others are not reported)",
                self.engine.transport().cc.name()
            );
        }
    }

    /// A turn without the application: completions stay in the engine until it comes back. Whether
    /// packets had arrived.
    pub(super) fn stand_in(&mut self) -> bool {
        self.stand_ins += 1;
        let Received { now, busy: arrived, .. } = self.receive();
        if self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
        }
        self.flush(now);
        arrived
    }

    /// Hands what arrived to the engine.
    fn receive(&mut self) -> Received {
        let now = clock::now();
        let Self { engine, port, regions, crc, dscp_trimmed, crc_errors, .. } = self;
        let mut memory = UserMemory(regions);
        // Read when the first packet is here: the process may have slept since the turn began, and
        // round trips would seem shorter than they were.
        let mut arrived = None;
        let mut sink = |meta: &RxMeta, bytes: &[u8]| {
            let at = *arrived.get_or_insert_with(clock::now);
            let trimmed = *dscp_trimmed == Some(meta.dscp);
            // A switch that trims cuts the trailer off with the payload.
            let packet = if *crc && !trimmed {
                let Some(packet) = crc::check_and_strip_crc(bytes) else {
                    *crc_errors += 1;
                    return;
                };
                packet
            } else {
                bytes
            };
            let what = squall_engine::RxMeta { ce: meta.ce(), trimmed };
            engine.handle_packet(at, &mut memory, meta.src, what, packet);
        };
        let report = port.recv(now, RX_BUDGET, &mut sink);
        self.port.take_errors(&mut self.errors);
        if !self.errors.is_empty() {
            self.learn();
        }
        self.last_arrival = arrived.unwrap_or(self.last_arrival);
        Received { now: arrived.unwrap_or(now), busy: report.packets > 0, drained: report.empty }
    }

    /// Tells the engine what the network said about peers.
    #[cold]
    fn learn(&mut self) {
        for error in self.errors.drain(..) {
            let errno = match error {
                NetError::Unreachable { kind, .. } => match kind {
                    Unreachable::Port => libc::ECONNREFUSED,
                    Unreachable::Network => libc::ENETUNREACH,
                    Unreachable::Prohibited => libc::EACCES,
                    _ => libc::EHOSTUNREACH,
                },
                NetError::TooBig { .. } => {
                    log::warn!("{error}; a smaller FI_SQUALL_MTU avoids the loss");
                    libc::EMSGSIZE
                }
                NetError::Local { errno, .. } => errno,
            };
            log::debug!("{error}");
            self.engine.handle_trouble(Trouble { errno, peer: error.peer() });
        }
    }

    /// An operation of `bytes` was posted: sends it now, or lets it wait for company.
    #[inline]
    pub(super) fn posted(&mut self, now: Time, bytes: u64, more: bool) {
        self.deferred += 1;
        self.deferred_bytes = self.deferred_bytes.saturating_add(bytes);
        let full = self.deferred >= MOST_DEFERRED || self.deferred_bytes >= MOST_DEFERRED_BYTES;
        if full || (!more && now.since(self.last_flush) >= BURST) {
            self.flush(now);
        }
    }

    /// Sends what the engine wants to send. Whether anything left.
    pub(super) fn flush(&mut self, now: Time) -> bool {
        (self.deferred, self.deferred_bytes) = (0, 0);
        let mut busy = false;
        for _ in 0..TX_BATCHES {
            if self.sent == self.batch.packets.len() {
                self.batch.clear();
                self.sent = 0;
                self.engine.poll_transmit(now, &mut self.batch);
                if self.batch.packets.is_empty() {
                    break;
                }
                if self.crc {
                    self.sign();
                }
            }
            busy = true;
            if !self.send(now) {
                break;
            }
        }
        if busy {
            // Sending takes about as long as a burst may last, so it counts from the end.
            self.last_flush = clock::now();
        }
        busy
    }

    /// Computes the CRC trailers of a new batch.
    fn sign(&mut self) {
        self.trailers.clear();
        for packet in &self.batch.packets {
            let mut sum = crc::update(0, self.batch.header(packet));
            for seg in self.batch.payload(packet) {
                let piece = iovec(seg);
                // SAFETY: the engine names parts of buffers that the application lent until their
                // operations complete, and that it does not write meanwhile.
                let bytes = unsafe {
                    core::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len)
                };
                sum = crc::update(sum, bytes);
            }
            self.trailers.push(sum.to_be_bytes());
        }
    }

    /// Offers the rest of the batch to the port. Whether all of it was taken.
    fn send(&mut self, now: Time) -> bool {
        let rest = &self.batch.packets[self.sent..];
        let mut slices: Vec<IoSlice<'_>> = recycle(core::mem::take(&mut self.slices));
        slices.extend(self.batch.segs.iter().map(slice));
        let mut packets: Vec<TxPacket<'_>> = recycle(core::mem::take(&mut self.packets));
        packets.extend(rest.iter().enumerate().map(|(i, packet)| TxPacket {
            dst: packet.dst,
            path: packet.path,
            class: if packet.control { Class::Control } else { Class::Data },
            header: self.batch.header(packet),
            payload: &slices[packet.payload.start as usize..packet.payload.end as usize],
            trailer: self.trailers.get(self.sent + i).map_or(&[][..], |t| &t[..]),
        }));
        let report = self.port.send(now, &packets);
        let all = report.sent == packets.len();
        self.packets = recycle(packets);
        self.slices = recycle(slices);
        self.sent += report.sent;
        all
    }

    /// Moves finished operations to queues and counters.
    pub(super) fn complete(&mut self, ep: &Endpoint, bindings: &Bindings) -> bool {
        let mut busy = false;
        while let Some(done) = self.engine.poll_completion() {
            busy = true;
            self.deliver(ep, bindings, &done, true);
        }
        busy
    }

    /// Delivers what a peek just found. It moves nothing, so counters do not count it.
    pub(super) fn complete_peek(&mut self, ep: &Endpoint, bindings: &Bindings) {
        if let Some(found) = self.engine.poll_completion() {
            self.deliver(ep, bindings, &found, false);
        }
        self.complete(ep, bindings);
    }

    #[inline]
    fn deliver(&mut self, ep: &Endpoint, bindings: &Bindings, done: &Completion, counted: bool) {
        let failed = done.status.is_err();
        if failed {
            // The application may take its buffer back now: packets of it that still wait for the
            // socket must not be read again. If they matter, they count as lost.
            self.sent = self.batch.packets.len();
        }
        if let (Some(counter), true) = (bindings.counter(done.kind), counted) {
            counter.count(!failed);
        }
        let source = match (&bindings.av, done.peer) {
            (Some(av), Some(peer)) if done.kind == OpKind::Recv && ep.settings.tells_source => {
                self.peers.fi_addr(av, &self.engine, peer)
            }
            _ => ADDR_UNSPEC,
        };
        let Some(cq) = bindings.queue(done.kind) else {
            if failed {
                log::warn!("an operation failed, and no completion queue is bound to tell");
            }
            return;
        };
        match done.status {
            Ok(()) => {
                if done.notify == squall_engine::Notify::Entry {
                    cq.push(entry_of(done, source));
                }
            }
            Err(error) => {
                let peer = done.peer.map(|peer| self.engine.peer_addr(peer));
                let trouble = done.peer.and_then(|peer| self.engine.peer_trouble(peer));
                cq.fail(failure_of(done, error, source, peer, self.local, trouble));
            }
        }
    }

    /// A step of closing. Whether there is nothing more to wait for.
    pub(super) fn farewell(&mut self, start: Time) -> bool {
        let now = clock::now();
        match self.closing_since {
            None => {
                if self.engine.idle() || now.since(start) >= FAREWELL {
                    self.engine.close(now);
                    self.flush(now);
                    self.closing_since = Some(now);
                }
                false
            }
            // Peers' contexts count as well: whoever opened one may still wait for our answer.
            Some(since) => {
                self.engine.contexts().next().is_none()
                    || now.since(since.max(self.last_arrival)) >= QUIET
                    || now.since(start) >= FAREWELL + QUIET
            }
        }
    }

    /// Everything that was counted.
    pub(super) fn statistics(&self) -> Statistics<'_> {
        let (engine, reliability) = self.engine.counters();
        Statistics {
            local: self.local,
            engine,
            reliability,
            transport: self.engine.transport(),
            net: self.port.counters(),
            contexts: self.engine.contexts().collect(),
            turns: self.turns,
            idle_turns: self.idle_turns,
            stand_ins: self.stand_ins,
            crc_errors: self.crc_errors,
        }
    }
}

fn iovec(seg: &Seg) -> libc::iovec {
    let at = |n: u64| usize::try_from(n).unwrap_or(0);
    libc::iovec {
        iov_base: core::ptr::with_exposed_provenance_mut(at(seg.base)),
        iov_len: at(seg.len),
    }
}

/// A piece of user memory for the port, without making a reference to it: the application may be
/// changing bytes of it that were acknowledged already.
fn slice<'a>(seg: &Seg) -> IoSlice<'a> {
    // SAFETY: an IoSlice is an iovec on Unix (its documentation guarantees the ABI). The engine names
    // parts of buffers lent by the application; only the kernel reads them.
    unsafe { core::mem::transmute::<libc::iovec, IoSlice<'a>>(iovec(seg)) }
}

/// An empty vector of the same memory whose elements may borrow something else.
fn recycle<A, B>(mut vec: Vec<A>) -> Vec<B> {
    const { assert!(size_of::<A>() == size_of::<B>() && align_of::<A>() == align_of::<B>()) };
    vec.clear();
    vec.into_iter().map(|_| -> B { unreachable!("cleared above") }).collect()
}
