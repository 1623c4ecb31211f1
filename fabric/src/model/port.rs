//! One output port: a data queue, a strict-priority control queue, and the wire behind them.

use std::collections::VecDeque;

use super::head::{Class, Head};
use crate::Picos;
use crate::base::{Rate, Rng};

/// What a port is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortConfig {
    /// Rate of the link.
    pub rate: Rate,
    /// Data bytes it holds, the packet being sent included.
    pub queue: u64,
    /// Control bytes it holds.
    pub control_queue: u64,
    /// See [`super::NetworkConfig::ecn_min`].
    pub ecn_min: u64,
    /// See [`super::NetworkConfig::ecn_max`].
    pub ecn_max: u64,
    /// See [`super::NetworkConfig::trim`].
    pub trim: Option<u32>,
    /// It leads to a host.
    pub last_hop: bool,
}

impl PortConfig {
    /// Another rate, queue and thresholds in proportion.
    pub fn degrade(&mut self, rate: Rate) {
        let before = u128::from(self.rate.0.max(1));
        let scale = |bytes: u64| match bytes {
            u64::MAX => u64::MAX,
            bytes => {
                u64::try_from(u128::from(bytes) * u128::from(rate.0) / before).unwrap_or(u64::MAX)
            }
        };
        self.queue = scale(self.queue);
        self.control_queue = scale(self.control_queue);
        self.ecn_min = scale(self.ecn_min);
        self.ecn_max = scale(self.ecn_max);
        self.rate = rate;
    }
}

/// Why a packet is gone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Drop {
    /// The data queue was full, and the port does not trim.
    QueueFull,
    /// The control queue was full.
    ControlFull,
    /// The link or switch was down.
    Down,
    /// The link swallows packets without anybody noticing.
    BlackHole,
    /// A bit error.
    Corrupt,
    /// There is no way to the destination.
    NoRoute,
}

/// What became of a packet that was offered to a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Enqueued {
    /// It waits.
    Queued,
    /// It waits, without its payload; its head was changed.
    Trimmed,
    /// It is gone.
    Dropped(Drop),
}

/// A packet that leaves a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Departure<T> {
    /// Which.
    pub item: T,
    /// Mark it Congestion Experienced.
    pub mark: bool,
    /// Bytes on the wire.
    pub bytes: u32,
    /// When its last bit left, and the next packet may go.
    pub free_at: Picos,
    /// When it is at the other end: its last bit arrived and, if that is a switch, the switch's latency
    /// has passed. A [`Port`] outside of a [`super::Network`] has no link behind it: then `free_at`.
    pub arrives: Picos,
    /// It is of [`Class::Data`].
    pub data: bool,
    /// The port it came in by, as told to [`Port::enqueue`].
    pub(super) ingress: u32,
}

/// What a port counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounters {
    /// Packets sent, of either class.
    pub packets: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets marked.
    pub marked: u64,
    /// Packets trimmed.
    pub trimmed: u64,
    /// Packets dropped here, or lost on the link behind.
    pub dropped: u64,
    /// Most data bytes that ever waited.
    pub max_queue: u64,
    /// Times it was paused.
    pub pauses: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    item: T,
    bytes: u32,
    ingress: u32,
}

/// An output port with packets `T`. What an idle port needs is in one cache line; the rest is behind a
/// pointer.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Port<T> {
    /// Until when the wire is taken.
    free_at: Picos,
    /// Picoseconds a byte, times 2^16, rounded up.
    byte_time: u64,
    /// Of the link and the switch behind.
    pub(super) latency: Picos,
    /// Bytes and packets sent.
    bytes: u64,
    packets: u64,
    queues: Box<Queues<T>>,
    /// Data bytes on the wire until `free_at`.
    sending: u32,
    /// What is behind the link, as the network encodes it.
    pub(super) to: u32,
    /// Data stays.
    paused: bool,
    /// Something is in the queues.
    waits: bool,
    /// The driver will come when the wire is free.
    pub(super) armed: bool,
}

/// What waits at a port, and what is seldom looked at.
#[derive(Clone, Debug)]
struct Queues<T> {
    /// Data bytes waiting.
    waiting: u64,
    control_waiting: u64,
    data: VecDeque<Entry<T>>,
    control: VecDeque<Entry<T>>,
    config: PortConfig,
    /// All but packets and bytes.
    counters: PortCounters,
}

/// Picoseconds a byte at `rate`, times 2^16, rounded up.
const fn byte_time(rate: Rate) -> u64 {
    let ps = (8_000_000_000_000u128 << 16).div_ceil(if rate.0 == 0 { 1 } else { rate.0 as u128 });
    // At least 1 b/s: 2^59.
    ps as u64
}

impl<T: Copy> Port<T> {
    /// An idle, empty port.
    #[must_use]
    pub fn new(config: PortConfig) -> Self {
        let queues = Queues {
            waiting: 0,
            control_waiting: 0,
            data: VecDeque::new(),
            control: VecDeque::new(),
            config,
            counters: PortCounters::default(),
        };
        Self {
            free_at: Picos::ZERO,
            byte_time: byte_time(config.rate),
            latency: Picos::ZERO,
            bytes: 0,
            packets: 0,
            queues: Box::new(queues),
            sending: 0,
            to: u32::MAX,
            paused: false,
            waits: false,
            armed: false,
        }
    }

    /// What it is like.
    #[must_use]
    pub fn config(&self) -> &PortConfig {
        &self.queues.config
    }

    pub(super) fn reconfigure(&mut self, config: PortConfig) {
        self.queues.config = config;
        self.byte_time = byte_time(config.rate);
    }

    /// Another rate, from the next packet on.
    pub fn set_rate(&mut self, rate: Rate) {
        self.queues.config.rate = rate;
        self.byte_time = byte_time(rate);
    }

    /// Stops data (`true`) or lets it go on. Control packets are not concerned.
    pub fn pause(&mut self, pause: bool) {
        self.queues.counters.pauses += u64::from(pause && !self.paused);
        self.paused = pause;
    }

    /// Whether data is stopped.
    #[must_use]
    pub const fn is_paused(&self) -> bool {
        self.paused
    }

    /// Data bytes that wait or are being sent at `now`.
    #[must_use]
    pub fn queued(&self, now: Picos) -> u64 {
        self.queues.waiting + if now < self.free_at { u64::from(self.sending) } else { 0 }
    }

    /// Data bytes that wait, without those being sent.
    pub(super) fn waiting(&self) -> u64 {
        self.queues.waiting
    }

    /// Packets that wait, of both classes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queues.data.len() + self.queues.control.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        !self.waits
    }

    /// Until when the wire is taken.
    #[must_use]
    pub const fn free_at(&self) -> Picos {
        self.free_at
    }

    /// Whether [`Port::depart`] would give a packet at `now`.
    #[must_use]
    pub fn ready(&self, now: Picos) -> bool {
        self.free_at <= now && self.sendable()
    }

    /// Whether anything waits that may go once the wire is free.
    #[must_use]
    pub fn sendable(&self) -> bool {
        self.waits && (!self.paused || !self.queues.control.is_empty())
    }

    /// What it counted.
    #[must_use]
    pub fn counters(&self) -> PortCounters {
        PortCounters { packets: self.packets, bytes: self.bytes, ..self.queues.counters }
    }

    pub(super) fn count_drop(&mut self) {
        self.queues.counters.dropped += 1;
    }

    /// How long `bytes` take.
    #[must_use]
    pub fn transmit_time(&self, bytes: u32) -> Picos {
        // 64 KiB at 1 Mb/s are 2^55 scaled; what is slower or larger saturates.
        Picos(self.byte_time.saturating_mul(u64::from(bytes)).saturating_add(0xffff) >> 16)
    }

    /// Offers a packet at `now` that came in by port `ingress` (`u32::MAX`: from this host).
    pub fn enqueue(&mut self, now: Picos, item: T, head: &mut Head, ingress: u32) -> Enqueued {
        let mut verdict = Enqueued::Queued;
        let queued = self.queued(now) + u64::from(head.bytes);
        let queues = &mut *self.queues;
        if head.class == Class::Data {
            if queued <= queues.config.queue {
                queues.waiting += u64::from(head.bytes);
                queues.data.push_back(Entry { item, bytes: head.bytes, ingress });
                queues.counters.max_queue = queues.counters.max_queue.max(queued);
                self.waits = true;
                return Enqueued::Queued;
            }
            let Some(rest) = queues.config.trim else {
                queues.counters.dropped += 1;
                return Enqueued::Dropped(Drop::QueueFull);
            };
            head.bytes = head.bytes.min(rest);
            head.class = Class::Control;
            head.trimmed = true;
            head.last_hop = queues.config.last_hop;
            queues.counters.trimmed += 1;
            verdict = Enqueued::Trimmed;
        }
        if queues.control_waiting + u64::from(head.bytes) > queues.config.control_queue {
            queues.counters.dropped += 1;
            return Enqueued::Dropped(Drop::ControlFull);
        }
        queues.control_waiting += u64::from(head.bytes);
        queues.control.push_back(Entry { item, bytes: head.bytes, ingress });
        self.waits = true;
        verdict
    }

    /// Sends a packet at once, if the port is idle and empty at `now`: the same as [`Port::enqueue`]
    /// and [`Port::depart`].
    pub fn pass(&mut self, now: Picos, item: T, head: &Head, ingress: u32) -> Option<Departure<T>> {
        let data = head.class == Class::Data;
        if self.waits || self.free_at > now || self.paused && data {
            return None;
        }
        self.sending = if data { head.bytes } else { 0 };
        Some(self.leave(now, Entry { item, bytes: head.bytes, ingress }, false, data))
    }

    /// The next packet, if the wire is free at `now`: control before data. Data is marked by the queue
    /// it leaves behind (RED on the instantaneous length, at dequeue).
    pub fn depart(&mut self, now: Picos, rng: &mut Rng) -> Option<Departure<T>> {
        if self.free_at > now || !self.waits {
            return None;
        }
        let queues = &mut *self.queues;
        let (entry, mark, data) = if let Some(entry) = queues.control.pop_front() {
            queues.control_waiting -= u64::from(entry.bytes);
            self.sending = 0;
            (entry, false, false)
        } else {
            if self.paused {
                return None;
            }
            let entry = queues.data.pop_front()?;
            queues.waiting -= u64::from(entry.bytes);
            self.sending = entry.bytes;
            let mark = queues.marks(rng);
            queues.counters.marked += u64::from(mark);
            (entry, mark, true)
        };
        self.waits = !queues.data.is_empty() || !queues.control.is_empty();
        if !self.waits {
            // They begin again where they are in the cache.
            queues.data.clear();
            queues.control.clear();
        }
        Some(self.leave(now, entry, mark, data))
    }

    fn leave(&mut self, now: Picos, entry: Entry<T>, mark: bool, data: bool) -> Departure<T> {
        let Entry { item, bytes, ingress } = entry;
        let free_at = now + self.transmit_time(bytes);
        self.free_at = free_at;
        self.packets += 1;
        self.bytes += u64::from(bytes);
        let arrives = free_at + self.latency;
        Departure { item, mark, bytes, free_at, arrives, data, ingress }
    }

    /// The packet that leaves next, if nothing of the other class comes before.
    pub(super) fn front(&self) -> Option<T> {
        let entry = self.queues.control.front().or_else(|| self.queues.data.front());
        entry.map(|entry| entry.item)
    }

    /// Sends `bytes` from outside the queues, for a driver that plays the network card itself and calls
    /// this only when the wire is free; returns when it will be free again.
    pub fn transmit(&mut self, now: Picos, bytes: u32) -> Picos {
        self.sending = 0;
        self.free_at = now.max(self.free_at) + self.transmit_time(bytes);
        self.packets += 1;
        self.bytes += u64::from(bytes);
        self.free_at
    }
}

impl<T> Queues<T> {
    /// Whether the queue left behind marks the departing packet.
    fn marks(&self, rng: &mut Rng) -> bool {
        let (low, high) = (self.config.ecn_min, self.config.ecn_max);
        if self.waiting <= low {
            return false;
        }
        if self.waiting >= high {
            return true;
        }
        let share = u128::from(self.waiting - low) << 32;
        // Below 2^32, since waiting < high.
        u128::from(rng.next_u32()) < share / u128::from(high - low)
    }
}
