//! Fault injection: a port that drops, duplicates, reorders, corrupts, delays and trims received
//! packets, and drops what it sends on some paths. The faults follow from a seed.
//!
//! Except for the black hole, all faults happen on the receiving side, packet by packet behind GRO.
//! So they work alike on loopback and on a real network.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::base::{Datagram, Rng, Span, Time, Train};
use crate::{
    Burst, Counters, LayeredPort, Port, PortConfig, PortLayer, RecvReport, RxMeta, SendReport,
};

mod spec;
#[cfg(test)]
mod tests;

pub use spec::{FaultSpec, FaultSpecError};

/// Largest number of delayed packets. The layer drops further ones, as a full queue does.
const MAX_DELAYED: usize = 1 << 16;
/// Longest time for which a reordered packet waits to be overtaken. The limit keeps the last packet of a burst from
/// waiting for ever.
const HOLD_TIMEOUT: Span = Span::millis(1);
/// Largest number of packets that overtake a reordered packet; the number is uniform from 1 on.
const MAX_OVERTAKING: u32 = 8;

/// A port that injects faults into the packets that it receives.
pub type FaultPort<P> = LayeredPort<P, FaultLayer>;

/// The [`PortLayer`] of [`FaultPort`], which injects the faults.
pub struct FaultLayer {
    spec: FaultSpec,
    paths: u16,
    dscp_control: u8,
    dscp_trimmed: u8,
    rng: Rng,
    /// Delayed packets, ordered by the times at which they are handed out.
    delayed: BinaryHeap<Reverse<DelayedPacket>>,
    /// Reordered packets that wait until others have overtaken them, oldest first.
    passed: Vec<OvertakenPacket>,
    next_order: u64,
    /// Buffers for reuse, so that the steady state allocates nothing.
    spare: Vec<Vec<u8>>,
    scratch: Vec<u8>,
    counters: Counters,
}

struct HeldPacket {
    meta: RxMeta,
    bytes: Vec<u8>,
}

struct DelayedPacket {
    due: Time,
    order: u64,
    held: HeldPacket,
}

struct OvertakenPacket {
    due: Time,
    /// Number of packets that have yet to overtake this one before it is handed out.
    left: u32,
    held: HeldPacket,
}

impl PartialEq for DelayedPacket {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl Eq for DelayedPacket {}
impl PartialOrd for DelayedPacket {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for DelayedPacket {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

impl<P: Port> FaultPort<P> {
    /// Wraps `inner`, which was opened with `config` (number of paths, DSCPs).
    pub fn new(inner: P, spec: FaultSpec, config: &PortConfig) -> Self {
        let layer = FaultLayer {
            paths: config.paths.max(1),
            dscp_control: config.dscp_control,
            dscp_trimmed: config.dscp_trimmed,
            rng: Rng::new(spec.seed),
            delayed: BinaryHeap::new(),
            passed: Vec::new(),
            next_order: 0,
            spare: Vec::new(),
            scratch: Vec::new(),
            counters: Counters::default(),
            spec,
        };
        Self { inner, layer }
    }
}

type Sink<'a> = &'a mut dyn FnMut(&RxMeta, &[u8]);

impl FaultLayer {
    /// Handles one received packet. All random numbers are drawn in a fixed order, whether they are
    /// used or not, so that the rate of one fault does not change which packets another fault hits.
    fn handle_packet(&mut self, now: Time, meta: &RxMeta, bytes: &[u8], sink: Sink<'_>) {
        let spec = &self.spec;
        let lost = self.rng.chance(spec.loss);
        let twice = self.rng.chance(spec.dup);
        let passed = self.rng.chance(spec.reorder);
        let corrupt = self.rng.chance(spec.corrupt);
        let trim = self.rng.chance(spec.trim);
        // Drawn here even if nothing is corrupted or reordered; see above.
        let place = self.rng.next_u64();
        let wait = self.rng.unit();

        if lost {
            self.counters.fault_dropped += 1;
            return;
        }
        let mut meta = *meta;
        let mut bytes = bytes;
        // Control packets are not trimmed, as in a switch that queues them with priority.
        if trim && meta.dscp != self.dscp_control && bytes.len() > spec.trimsize {
            bytes = &bytes[..spec.trimsize];
            meta.dscp = self.dscp_trimmed;
            self.counters.fault_trimmed += 1;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        if corrupt && !bytes.is_empty() {
            scratch.clear();
            scratch.extend_from_slice(bytes);
            flip_bits(&mut scratch, place);
            bytes = &scratch;
            self.counters.fault_corrupted += 1;
        }
        if twice {
            self.counters.fault_duplicated += 1;
        }
        for _ in 0..1 + usize::from(twice) {
            if let Some((low, high)) = self.spec.delay {
                let delay = low + Span::nanos((high.saturating_sub(low).as_f64() * wait) as u64);
                self.delay(now + delay, meta, bytes);
            // A delay reorders by itself, so the two faults are not combined.
            } else if passed {
                self.reorder(now, place, meta, bytes);
            } else {
                sink(&meta, bytes);
                self.count_overtaking(sink);
            }
        }
        self.scratch = scratch;
    }

    fn store(&mut self, meta: RxMeta, bytes: &[u8]) -> HeldPacket {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        HeldPacket { meta, bytes: buffer }
    }

    fn delay(&mut self, due: Time, meta: RxMeta, bytes: &[u8]) {
        if self.delayed.len() >= MAX_DELAYED {
            self.counters.fault_dropped += 1;
            return;
        }
        let held = self.store(meta, bytes);
        self.delayed.push(Reverse(DelayedPacket { due, order: self.next_order, held }));
        // The order breaks ties between packets that are due at the same time: they keep their
        // order.
        self.next_order += 1;
        self.counters.fault_delayed += 1;
    }

    fn reorder(&mut self, now: Time, place: u64, meta: RxMeta, bytes: &[u8]) {
        let held = self.store(meta, bytes);
        let left = 1 + (place >> 32) as u32 % MAX_OVERTAKING;
        self.passed.push(OvertakenPacket { due: now + HOLD_TIMEOUT, left, held });
        self.counters.fault_reordered += 1;
    }

    fn deliver(&mut self, held: HeldPacket, sink: Sink<'_>) {
        sink(&held.meta, &held.bytes);
        // The bound keeps a burst of delayed packets from holding memory for ever.
        if self.spare.len() < 256 {
            self.spare.push(held.bytes);
        }
    }

    /// Counts one packet that overtakes the reordered ones, and hands out those that have been
    /// overtaken often enough.
    fn count_overtaking(&mut self, sink: Sink<'_>) {
        for packet in &mut self.passed {
            packet.left -= 1;
        }
        while let Some(i) = self.passed.iter().position(|p| p.left == 0) {
            let packet = self.passed.remove(i);
            self.deliver(packet.held, sink);
        }
    }

    /// Hands out the delayed and the reordered packets whose waiting time is over.
    fn release_due(&mut self, now: Time, sink: Sink<'_>) {
        while self.delayed.peek().is_some_and(|p| p.0.due <= now) {
            if let Some(Reverse(packet)) = self.delayed.pop() {
                self.deliver(packet.held, sink);
            }
        }
        while let Some(i) = self.passed.iter().position(|p| p.due <= now) {
            let packet = self.passed.remove(i);
            self.deliver(packet.held, sink);
        }
    }
}

/// Flips 1 to 4 different bits of a packet, chosen by `seed`.
fn flip_bits(bytes: &mut [u8], seed: u64) {
    let mut rng = Rng::new(seed);
    let bits = u32::try_from(bytes.len().saturating_mul(8)).unwrap_or(u32::MAX);
    let first = rng.below(bits);
    for i in 0..=rng.below(4).min(bits - 1) {
        // The bits are neighbours, so no bit is flipped back.
        let bit = (first as usize + i as usize) % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

impl PortLayer for FaultLayer {
    fn send<P: Port>(&mut self, inner: &mut P, now: Time, burst: Burst<'_>) -> SendReport {
        // Without a black hole the burst passes through as a whole.
        if self.spec.blackhole.is_empty() {
            return inner.send(now, burst);
        }
        let paths = self.paths;
        let holes = &self.spec.blackhole;
        let swallowed = |p: &Datagram| holes.iter().any(|h| h % paths == p.path % paths);
        let packets = burst.packets();
        let mut total = SendReport::default();
        while total.sent < packets.len() {
            let rest = &packets[total.sent..];
            let gone = rest.iter().position(|p| !swallowed(p)).unwrap_or(rest.len());
            total.sent += gone;
            self.counters.fault_blackholed += gone as u64;
            let rest = &rest[gone..];
            let run = rest.iter().position(swallowed).unwrap_or(rest.len());
            if run > 0 {
                let report = inner.send(now, burst.part(total.sent..total.sent + run));
                total += report;
                if report.sent < run {
                    break;
                }
            }
        }
        total
    }

    fn recv<P: Port>(
        &mut self,
        inner: &mut P,
        now: Time,
        budget: usize,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) -> RecvReport {
        let (mut packets, mut bytes) = (0, 0);
        // The report counts the packets that are handed out, not those that arrived.
        let mut counting = |meta: &RxMeta, packet: &[u8]| {
            packets += 1;
            bytes += packet.len() as u64;
            sink(meta, Train::single(packet));
        };
        // Packets whose time has come are handed out before those that arrive now.
        self.release_due(now, &mut counting);
        let report = inner.recv_each(now, budget, &mut |meta, packet| {
            self.handle_packet(now, meta, packet, &mut counting);
        });
        self.release_due(now, &mut counting);
        RecvReport { packets, bytes, ..report }
    }

    fn next_deadline(&self) -> Option<Time> {
        let delayed = self.delayed.peek().map(|p| p.0.due);
        let passed = self.passed.iter().map(|p| p.due).min();
        [delayed, passed].into_iter().flatten().min()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
