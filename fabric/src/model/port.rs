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
    /// has passed. [`Port::depart`] alone leaves it at `free_at`; [`super::Network::depart`] adds the link.
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

/// An output port with packets `T`.
#[derive(Clone, Debug)]
pub struct Port<T> {
    /// Until when the wire is taken.
    free_at: Picos,
    /// Picoseconds a byte, times 2^16, rounded up.
    byte_time: u64,
    /// Data bytes waiting.
    waiting: u64,
    /// Data bytes on the wire until `free_at`.
    sending: u32,
    control_waiting: u64,
    /// Data stays.
    paused: bool,
    data: VecDeque<Entry<T>>,
    control: VecDeque<Entry<T>>,
    config: PortConfig,
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
        Self {
            free_at: Picos::ZERO,
            byte_time: byte_time(config.rate),
            waiting: 0,
            sending: 0,
            control_waiting: 0,
            paused: false,
            data: VecDeque::new(),
            control: VecDeque::new(),
            config,
            counters: PortCounters::default(),
        }
    }

    /// What it is like.
    #[must_use]
    pub const fn config(&self) -> &PortConfig {
        &self.config
    }

    pub(super) fn reconfigure(&mut self, config: PortConfig) {
        self.config = config;
        self.byte_time = byte_time(config.rate);
    }

    /// Another rate, from the next packet on.
    pub fn set_rate(&mut self, rate: Rate) {
        self.config.rate = rate;
        self.byte_time = byte_time(rate);
    }

    /// Stops data (`true`) or lets it go on. Control packets are not concerned.
    pub fn pause(&mut self, pause: bool) {
        self.counters.pauses += u64::from(pause && !self.paused);
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
        self.waiting + if now < self.free_at { u64::from(self.sending) } else { 0 }
    }

    /// Packets that wait, of both classes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.data.len() + self.control.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.data.is_empty() && self.control.is_empty()
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
        !self.control.is_empty() || !self.paused && !self.data.is_empty()
    }

    /// What it counted.
    #[must_use]
    pub const fn counters(&self) -> &PortCounters {
        &self.counters
    }

    pub(super) fn count_drop(&mut self) {
        self.counters.dropped += 1;
    }

    /// How long `bytes` take.
    #[must_use]
    pub fn transmit_time(&self, bytes: u32) -> Picos {
        let scaled = u128::from(self.byte_time) * u128::from(bytes);
        // At 1 b/s, 4 GiB take 2^75 scaled.
        Picos(u64::try_from((scaled + 0xffff) >> 16).unwrap_or(u64::MAX))
    }

    /// Offers a packet at `now` that came in by port `ingress` (`u32::MAX`: from this host).
    pub fn enqueue(&mut self, now: Picos, item: T, head: &mut Head, ingress: u32) -> Enqueued {
        let mut verdict = Enqueued::Queued;
        if head.class == Class::Data {
            let queued = self.queued(now) + u64::from(head.bytes);
            if queued <= self.config.queue {
                self.waiting += u64::from(head.bytes);
                self.data.push_back(Entry { item, bytes: head.bytes, ingress });
                self.counters.max_queue = self.counters.max_queue.max(queued);
                return Enqueued::Queued;
            }
            let Some(rest) = self.config.trim else {
                self.counters.dropped += 1;
                return Enqueued::Dropped(Drop::QueueFull);
            };
            head.bytes = head.bytes.min(rest);
            head.class = Class::Control;
            head.trimmed = true;
            head.last_hop = self.config.last_hop;
            self.counters.trimmed += 1;
            verdict = Enqueued::Trimmed;
        }
        if self.control_waiting + u64::from(head.bytes) > self.config.control_queue {
            self.counters.dropped += 1;
            return Enqueued::Dropped(Drop::ControlFull);
        }
        self.control_waiting += u64::from(head.bytes);
        self.control.push_back(Entry { item, bytes: head.bytes, ingress });
        verdict
    }

    /// The next packet, if the wire is free at `now`: control before data. Data is marked by the queue
    /// it leaves behind (RED on the instantaneous length, at dequeue).
    pub fn depart(&mut self, now: Picos, rng: &mut Rng) -> Option<Departure<T>> {
        if self.free_at > now {
            return None;
        }
        let (entry, mark, data) = if let Some(entry) = self.control.pop_front() {
            self.control_waiting -= u64::from(entry.bytes);
            self.sending = 0;
            (entry, false, false)
        } else {
            if self.paused {
                return None;
            }
            let entry = self.data.pop_front()?;
            self.waiting -= u64::from(entry.bytes);
            self.sending = entry.bytes;
            let mark = self.marks(rng);
            self.counters.marked += u64::from(mark);
            (entry, mark, true)
        };
        let free_at = now + self.transmit_time(entry.bytes);
        self.free_at = free_at;
        self.counters.packets += 1;
        self.counters.bytes += u64::from(entry.bytes);
        let Entry { item, bytes, ingress } = entry;
        Some(Departure { item, mark, bytes, free_at, arrives: free_at, data, ingress })
    }

    /// Sends `bytes` from outside the queues, for a driver that plays the network card itself and calls
    /// this only when the wire is free; returns when it will be free again.
    pub fn transmit(&mut self, now: Picos, bytes: u32) -> Picos {
        self.sending = 0;
        self.free_at = now.max(self.free_at) + self.transmit_time(bytes);
        self.counters.packets += 1;
        self.counters.bytes += u64::from(bytes);
        self.free_at
    }

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
