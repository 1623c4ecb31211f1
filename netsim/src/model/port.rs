//! An output port: a data queue, a control queue, and the wire behind them. The port serves the
//! control queue first, or by weights ([`super::NetworkOptions::weights`]). Where rate packets are
//! enabled, they have a queue that is served before both.

use super::config::{HEADER_BYTES, Weights};
use super::header::{Class, PacketHeader};
use super::lane;
use super::queue::{Entry, Queue, Queues};
use crate::Picos;
use squall_base::{Rate, Rng};

/// Configuration of an output port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortConfig {
    /// Rate of the port's link.
    pub rate: Rate,
    /// Capacity of the data queue in bytes; the packet being sent counts.
    pub queue: u64,
    /// Capacity of the control queue in bytes.
    pub control_queue: u64,
    /// Lower ECN marking threshold: see [`super::NetworkConfig::ecn_min`].
    pub ecn_min: u64,
    /// Upper ECN marking threshold: see [`super::NetworkConfig::ecn_max`].
    pub ecn_max: u64,
    /// Bytes that trimming leaves of a packet: see [`super::NetworkConfig::trim`].
    pub trim: Option<u32>,
    /// True if the link leads to a host.
    pub last_hop: bool,
    /// Weights of the control and the data queue: see [`super::NetworkOptions::weights`].
    pub weights: Option<Weights>,
    /// True if rate packets have a queue of their own: see [`super::HostSupport::rates`].
    pub rates: bool,
    /// Number of virtual lanes for data, at least one.
    pub lanes: u8,
}

impl PortConfig {
    /// Returns the configuration of a host's port: it accepts every packet, and neither marks nor
    /// trims.
    #[must_use]
    pub const fn of_host(rate: Rate) -> Self {
        Self {
            rate,
            queue: u64::MAX,
            control_queue: u64::MAX,
            ecn_min: u64::MAX,
            ecn_max: u64::MAX,
            trim: None,
            last_hop: false,
            weights: None,
            rates: false,
            lanes: 1,
        }
    }

    /// Sets another rate, and scales queue capacities and marking thresholds in proportion.
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

/// Reason why a packet was lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Drop {
    /// The data queue was full, and the port does not trim.
    QueueFull,
    /// The control queue was full.
    ControlFull,
    /// The link or switch was down.
    Down,
    /// The link discards packets without any indication (a black hole).
    BlackHole,
    /// A bit error on the link, or the link's random loss.
    Corrupt,
    /// A program of the switch dropped the packet.
    Program,
    /// There is no route to the packet's destination.
    NoRoute,
    /// The receive buffer of the host was full.
    HostFull,
}

/// Outcome of offering a packet to a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnqueueOutcome {
    /// The packet waits in a queue of the port.
    Queued,
    /// The packet waits without its payload; the port changed its header.
    Trimmed,
    /// The port dropped the packet.
    Dropped(Drop),
}

/// A packet that leaves a port, and its timing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Departure<T> {
    /// The packet that leaves.
    pub item: T,
    /// True if the caller must mark the packet Congestion Experienced.
    pub mark: bool,
    /// Length of the packet on the wire, bytes.
    pub bytes: u32,
    /// Time at which the last bit has left, and the next packet may be sent.
    pub free_at: Picos,
    /// Time at which the packet is at the other end: its last bit has arrived and, if a switch is
    /// there, the latency of the switch has passed. A switch that [cuts through](super::Switching) has
    /// received the header then. A [`Port`] outside of a [`super::Network`] has
    /// no link behind it: the value is then `free_at`.
    pub arrives: Picos,
    /// True if the packet is of [`Class::Data`], and not a control or rate packet.
    pub data: bool,
    /// The ingress port of the packet, as given to [`Port::enqueue`].
    pub(super) ingress: u32,
}

/// Counters of what a port sent and lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounters {
    /// Packets that the port sent, of all classes.
    pub packets: u64,
    /// Bytes that the port sent.
    pub bytes: u64,
    /// Packets that the port marked Congestion Experienced.
    pub marked: u64,
    /// Packets that the port trimmed.
    pub trimmed: u64,
    /// Packets that the port dropped, or that its link lost.
    pub dropped: u64,
    /// Largest length of the data queue so far, in bytes.
    pub max_queue: u64,
    /// Number of times that a lane of the port was paused.
    pub pauses: u64,
}

impl PortCounters {
    /// Adds up what two parts of a network counted at one port.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            marked: self.marked + other.marked,
            trimmed: self.trimmed + other.trimmed,
            dropped: self.dropped + other.dropped,
            max_queue: self.max_queue.max(other.max_queue),
            pauses: self.pauses + other.pauses,
        }
    }
}

/// Bit of [`Port::to`] which marks a node that belongs to another part of the network.
pub(super) const ELSEWHERE: u32 = 1 << 30;

/// An output port. The fields that an idle port needs are in one cache line, and those that a port
/// with waiting packets needs are in the next. The rest is behind a pointer, and the waiting
/// packets are in [`Queues`].
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Port {
    /// Time until which the wire is busy with the packet being sent.
    free_at: Picos,
    /// Transmission time of a byte in picoseconds, times 2^16, rounded up.
    byte_time: u64,
    /// Latency of the link and of the switch behind it.
    pub(super) latency: Picos,
    /// Bytes that the port sent, and (next field) packets that it sent.
    bytes: u64,
    packets: u64,
    /// Lower ECN marking threshold: a copy of [`PortConfig::ecn_min`] in this cache line.
    ecn_min: u64,
    /// Data bytes of the packet that is on the wire until `free_at`.
    sending: u32,
    /// The node behind the link, as the network encodes it.
    pub(super) to: u32,
    /// Number of waiting packets of all classes.
    len: u32,
    /// True if some lane is paused.
    paused: bool,
    /// True if the driver will serve this port when the wire is free.
    pub(super) armed: bool,
    /// True if the link leads to a switch that sends packets on before they have arrived.
    pub(super) cuts_through: bool,

    // The second cache line begins here.
    /// Waiting data packets.
    data: Queue,
    control: Queue,
    /// Data bytes that wait in the queue, without the packet being sent.
    waiting: u64,
    control_waiting: u64,
    /// Capacity of the data queue: a copy of [`PortConfig::queue`] in this cache line.
    limit: u64,
    /// Largest length of the data queue so far, in bytes.
    max_queue: u64,
    order: Order,
    /// Number of packets that have left in the current turn of the weighted round robin.
    turn: u16,
    rare: Box<ColdState>,
}

/// Order in which a port serves its control, data and rate queues.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// The port sends control packets before data.
    Strict,
    /// Control and data packets leave in turn, by their weights.
    Turns(Weights),
    /// The port sends rate packets before all others, which it serves in the order of
    /// [`PortConfig::weights`].
    RatesFirst,
}

impl Order {
    const fn of(config: &PortConfig) -> Self {
        match config.weights {
            _ if config.rates => Self::RatesFirst,
            Some(weights) => Self::Turns(weights),
            None => Self::Strict,
        }
    }
}

/// State of a port that is seldom read, kept apart from what every packet needs.
#[derive(Clone, Debug)]
struct ColdState {
    config: PortConfig,
    /// All counters except packets, bytes and the longest queue, which [`Port`] holds.
    counters: PortCounters,
    /// Waiting rate packets.
    rates: Queue,
    /// The paused lanes, one bit each.
    stopped: u8,
}

/// Returns the transmission time of a byte at `rate` in picoseconds, times 2^16, rounded up.
const fn byte_time(rate: Rate) -> u64 {
    let ps = (8_000_000_000_000u128 << 16).div_ceil(if rate.0 == 0 { 1 } else { rate.0 as u128 });
    // The rate is at least 1 b/s, which gives 2^59, so the cast does not truncate.
    ps as u64
}

impl Port {
    /// Creates an idle, empty port.
    #[must_use]
    pub fn new(config: PortConfig) -> Self {
        Self {
            free_at: Picos::ZERO,
            byte_time: byte_time(config.rate),
            latency: Picos::ZERO,
            bytes: 0,
            packets: 0,
            ecn_min: config.ecn_min,
            sending: 0,
            to: u32::MAX,
            len: 0,
            paused: false,
            armed: false,
            cuts_through: false,
            data: Queue::EMPTY,
            control: Queue::EMPTY,
            waiting: 0,
            control_waiting: 0,
            limit: config.queue,
            max_queue: 0,
            order: Order::of(&config),
            turn: 0,
            rare: Box::new(ColdState {
                config,
                counters: PortCounters::default(),
                rates: Queue::EMPTY,
                stopped: 0,
            }),
        }
    }

    /// Returns the configuration of the port.
    #[must_use]
    pub fn config(&self) -> &PortConfig {
        &self.rare.config
    }

    pub(super) fn reconfigure(&mut self, config: PortConfig) {
        self.rare.config = config;
        self.limit = config.queue;
        self.ecn_min = config.ecn_min;
        self.order = Order::of(&config);
        self.byte_time = byte_time(config.rate);
    }

    /// Sets another rate of the link, from the next packet on.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rare.config.rate = rate;
        self.byte_time = byte_time(rate);
    }

    /// Stops data of a lane (`true`) or resumes it (`false`). Control packets are not affected.
    pub fn pause(&mut self, lane: u8, pause: bool) {
        let ColdState { stopped, counters, .. } = &mut *self.rare;
        let bit = 1 << lane;
        counters.pauses += u64::from(pause && *stopped & bit == 0);
        *stopped = if pause { *stopped | bit } else { *stopped & !bit };
        self.paused = *stopped != 0;
    }

    /// Returns whether a packet that came in by `ingress` must stay because its egress lane is
    /// paused.
    #[cold]
    fn stops(&self, ingress: u32) -> bool {
        self.rare.stopped >> lane::leaves(ingress) & 1 != 0
    }

    /// Returns whether data of any lane is paused.
    #[must_use]
    pub const fn is_paused(&self) -> bool {
        self.paused
    }

    /// Returns the data bytes of this port that wait or are being sent at `now`.
    #[must_use]
    pub const fn queued(&self, now: Picos) -> u64 {
        self.waiting() + if now.0 < self.free_at.0 { self.sending as u64 } else { 0 }
    }

    /// Returns the data bytes that wait at this port, without those being sent.
    pub(super) const fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Returns whether no packet waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of packets of all classes that wait at this port.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the time until which the wire is busy.
    #[must_use]
    pub const fn free_at(&self) -> Picos {
        self.free_at
    }

    /// Returns whether [`Port::depart`] would return a packet at `now`.
    #[must_use]
    pub fn ready<T: Copy>(&self, queues: &Queues<T>, now: Picos) -> bool {
        self.free_at <= now && self.sendable(queues)
    }

    /// Returns whether a packet waits that may leave once the wire is free.
    #[must_use]
    #[inline]
    pub fn sendable<T: Copy>(&self, queues: &Queues<T>) -> bool {
        self.len > 0 && (!self.paused || self.sendable_paused(queues))
    }

    /// Returns the result of [`Port::sendable`] while some lane is stopped.
    #[cold]
    #[inline(never)]
    fn sendable_paused<T: Copy>(&self, queues: &Queues<T>) -> bool {
        !self.control.is_empty()
            || !self.rare.rates.is_empty()
            || self.rare.config.lanes > 1
                && queues.any(self.data, |entry| !self.stops(entry.ingress))
    }

    /// Returns the counters of this port.
    #[must_use]
    pub fn counters(&self) -> PortCounters {
        let Self { packets, bytes, max_queue, .. } = *self;
        PortCounters { packets, bytes, max_queue, ..self.rare.counters }
    }

    pub(super) fn count_drop(&mut self) {
        self.rare.counters.dropped += 1;
    }

    /// Returns whether the node behind the link belongs to another part of the network.
    pub(super) const fn leads_elsewhere(&self) -> bool {
        self.to & ELSEWHERE != 0
    }

    /// Returns how long the transmission of `bytes` bytes takes.
    #[must_use]
    pub fn transmit_time(&self, bytes: u32) -> Picos {
        // The scaled time of 64 KiB at 1 Mb/s is 2^55; slower rates and larger packets saturate.
        Picos(self.byte_time.saturating_mul(u64::from(bytes)).saturating_add(0xffff) >> 16)
    }

    /// Offers a packet at `now` that came in by port `ingress` (`u32::MAX`: from this host). The
    /// packet waits in `queues`, which must always be the same object for a port.
    pub fn enqueue<T: Copy>(
        &mut self,
        queues: &mut Queues<T>,
        now: Picos,
        item: T,
        header: &mut PacketHeader,
        ingress: u32,
    ) -> EnqueueOutcome {
        let mut verdict = EnqueueOutcome::Queued;
        let queued = self.queued(now) + u64::from(header.bytes);
        if header.class == Class::Data {
            if queued <= self.limit {
                self.waiting += u64::from(header.bytes);
                queues.push(&mut self.data, Entry { item, bytes: header.bytes, ingress });
                self.max_queue = self.max_queue.max(queued);
                self.len += 1;
                return EnqueueOutcome::Queued;
            }
            if !self.trim(header) {
                self.rare.counters.dropped += 1;
                return EnqueueOutcome::Dropped(Drop::QueueFull);
            }
            verdict = EnqueueOutcome::Trimmed;
        }
        if header.class == Class::Rate {
            queues.push(&mut self.rare.rates, Entry { item, bytes: header.bytes, ingress });
            self.len += 1;
            return EnqueueOutcome::Queued;
        }
        if self.control_waiting + u64::from(header.bytes) > self.rare.config.control_queue {
            self.rare.counters.dropped += 1;
            return EnqueueOutcome::Dropped(Drop::ControlFull);
        }
        self.control_waiting += u64::from(header.bytes);
        queues.push(&mut self.control, Entry { item, bytes: header.bytes, ingress });
        self.len += 1;
        verdict
    }

    /// Cuts off the payload of a packet that will leave by this port. Returns false if the port
    /// does not trim.
    pub(super) fn trim(&mut self, header: &mut PacketHeader) -> bool {
        let ColdState { config, counters, .. } = &mut *self.rare;
        let Some(rest) = config.trim else { return false };
        header.bytes = header.bytes.min(rest);
        header.class = Class::Control;
        header.trimmed = true;
        header.last_hop = config.last_hop;
        counters.trimmed += 1;
        true
    }

    /// Sends a packet at once if the port is idle and empty at `now`. The result is that of
    /// [`Port::enqueue`] followed by [`Port::depart`]. Returns `None` if the packet must be queued.
    pub fn pass<T: Copy>(
        &mut self,
        now: Picos,
        item: T,
        header: &PacketHeader,
        ingress: u32,
    ) -> Option<Departure<T>> {
        let data = header.class == Class::Data;
        if self.len > 0 || self.free_at > now || self.paused && data && self.stops(ingress) {
            return None;
        }
        self.sending = if data { header.bytes } else { 0 };
        Some(self.leave(now, Entry { item, bytes: header.bytes, ingress }, false, data))
    }

    /// Returns the next packet if the wire is free at `now`: control before data, unless they have
    /// weights. The data queue that a data packet leaves behind decides whether it is marked (RED
    /// on the instantaneous length, at dequeue).
    pub fn depart<T: Copy>(
        &mut self,
        queues: &mut Queues<T>,
        now: Picos,
        rng: &mut Rng,
    ) -> Option<Departure<T>> {
        if self.free_at > now || self.len == 0 {
            return None;
        }
        let (entry, mark, data) = if let Some(entry) = self.pop_control(queues) {
            self.sending = 0;
            (entry, false, false)
        } else {
            let entry = self.pop_data(queues)?;
            self.waiting -= u64::from(entry.bytes);
            self.sending = entry.bytes;
            let mark = self.marks(rng);
            if mark {
                self.rare.counters.marked += 1;
            }
            (entry, mark, true)
        };
        self.len -= 1;
        Some(self.leave(now, entry, mark, data))
    }

    /// Removes the first data packet whose lane is not stopped.
    #[inline]
    fn pop_data<T: Copy>(&mut self, queues: &mut Queues<T>) -> Option<Entry<T>> {
        if self.paused { self.pop_paused(queues) } else { queues.pop(&mut self.data) }
    }

    /// Removes the first data packet whose lane is not stopped, while some lane is.
    #[cold]
    #[inline(never)]
    fn pop_paused<T: Copy>(&mut self, queues: &mut Queues<T>) -> Option<Entry<T>> {
        if self.rare.config.lanes == 1 {
            return None;
        }
        let stopped = self.rare.stopped;
        let goes = |entry: &Entry<T>| stopped >> lane::leaves(entry.ingress) & 1 == 0;
        queues.pop_first(&mut self.data, goes)
    }

    /// Removes the next rate or control packet, unless it is the turn of data.
    #[inline]
    fn pop_control<T: Copy>(&mut self, queues: &mut Queues<T>) -> Option<Entry<T>> {
        let turns = match self.order {
            Order::Strict => None,
            Order::Turns(weights) => Some(weights),
            Order::RatesFirst => match queues.pop(&mut self.rare.rates) {
                None => self.rare.config.weights,
                entry => return entry,
            },
        };
        if let Some(weights) = turns
            && self.is_turn_of_data(weights)
        {
            return None;
        }
        let entry = queues.pop(&mut self.control)?;
        self.control_waiting -= u64::from(entry.bytes);
        Some(entry)
    }

    /// Returns whether both classes wait and it is the turn of data, and advances the turn.
    #[inline]
    fn is_turn_of_data(&mut self, Weights(control, data): Weights) -> bool {
        if self.control.is_empty() || self.data.is_empty() || self.paused {
            return false;
        }
        let turn = self.turn;
        self.turn = (turn + 1) % (control + data);
        turn >= control
    }

    fn leave<T>(&mut self, now: Picos, entry: Entry<T>, mark: bool, data: bool) -> Departure<T> {
        let Entry { item, bytes, ingress } = entry;
        let free_at = now + self.transmit_time(bytes);
        self.free_at = free_at;
        self.packets += 1;
        self.bytes += u64::from(bytes);
        let arrives = self.arrival(now, bytes, free_at);
        Departure { item, mark, bytes, free_at, arrives, data, ingress }
    }

    /// Returns the time at which a packet that left at `start` is at the other end: [`Departure::arrives`].
    pub(super) fn arrival(&self, start: Picos, bytes: u32, free_at: Picos) -> Picos {
        if self.cuts_through {
            return start + self.transmit_time(bytes.min(HEADER_BYTES)) + self.latency;
        }
        free_at + self.latency
    }

    /// Returns the packet that leaves next, unless a packet of another class overtakes it.
    pub(super) fn front<T: Copy>(&self, queues: &Queues<T>) -> Option<T> {
        let express = match self.order {
            Order::RatesFirst => queues.front(self.rare.rates),
            Order::Strict | Order::Turns(_) => None,
        };
        express.or_else(|| queues.front(self.control)).or_else(|| queues.front(self.data))
    }

    /// Sends `bytes` bytes that never were in the queues, for a driver that acts as the network
    /// card itself and calls this only when the wire is free. Returns the time at which the wire
    /// will be free again.
    pub fn transmit(&mut self, now: Picos, bytes: u32) -> Picos {
        self.sending = 0;
        self.free_at = now.max(self.free_at) + self.transmit_time(bytes);
        self.packets += 1;
        self.bytes += u64::from(bytes);
        self.free_at
    }

    /// Returns whether the departing packet is marked, by the data bytes that it leaves behind.
    fn marks(&self, rng: &mut Rng) -> bool {
        let low = self.ecn_min;
        if self.waiting <= low {
            return false;
        }
        let high = self.rare.config.ecn_max;
        if self.waiting >= high {
            return true;
        }
        let share = u128::from(self.waiting - low) << 32;
        // The quotient is below 2^32, since waiting < high.
        u128::from(rng.next_u32()) < share / u128::from(high - low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the classes of the packets that leave a port where ten of each wait, as `c` and `d`.
    fn order(weights: Option<&str>, paused: bool) -> String {
        let weights = weights.map(|text| text.parse().expect("weights"));
        let mut port = Port::new(PortConfig { weights, ..PortConfig::of_host(Rate::gbps(100)) });
        let mut queues = Queues::default();
        for item in 0..20 {
            let class = if item < 10 { Class::Data } else { Class::Control };
            let mut header = PacketHeader { bytes: 1000, class, ..PacketHeader::default() };
            port.enqueue(&mut queues, Picos::ZERO, item, &mut header, 0);
        }
        port.pause(0, paused);
        let mut now = Picos::ZERO;
        let mut order = String::new();
        while let Some(left) = port.depart(&mut queues, now, &mut Rng::new(1)) {
            order.push(if left.data { 'd' } else { 'c' });
            now = left.free_at;
        }
        order
    }

    #[test]
    fn rate_packets_come_first_and_are_never_lost() {
        let config =
            PortConfig { rates: true, control_queue: 100, ..PortConfig::of_host(Rate::gbps(100)) };
        for weights in [None, Some("1,1".parse().expect("weights"))] {
            let mut port = Port::new(PortConfig { weights, ..config });
            let mut queues = Queues::default();
            let mut offer = |port: &mut Port, item, class| {
                let mut header = PacketHeader { bytes: 64, class, ..PacketHeader::default() };
                port.enqueue(&mut queues, Picos::ZERO, item, &mut header, 0)
            };
            assert_eq!(offer(&mut port, 1, Class::Data), EnqueueOutcome::Queued);
            assert_eq!(offer(&mut port, 2, Class::Control), EnqueueOutcome::Queued);
            let full = EnqueueOutcome::Dropped(Drop::ControlFull);
            assert_eq!(offer(&mut port, 3, Class::Control), full);
            for item in 10..20 {
                assert_eq!(offer(&mut port, item, Class::Rate), EnqueueOutcome::Queued);
            }
            port.pause(0, true);
            let (mut now, mut left) = (Picos::ZERO, Vec::new());
            while port.sendable(&queues) {
                let next = port.front(&queues);
                let gone = port.depart(&mut queues, now, &mut Rng::new(1)).expect("sendable");
                assert_eq!(next, Some(gone.item));
                left.push(gone.item);
                now = gone.free_at;
            }
            assert_eq!(left, [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 2]);
            port.pause(0, false);
            let last = port.depart(&mut queues, now, &mut Rng::new(1));
            assert_eq!(last.map(|gone| (gone.item, gone.data)), Some((1, true)));
        }
    }

    /// Compares marks with delays while a queue drains (SMaRTT v2, Fig. 4): a mark depends on the
    /// queue that the packet leaves behind, its delay on the queue that it found on arrival.
    #[test]
    fn after_an_incast_marks_end_with_the_queue_and_delays_with_its_last_packet() {
        let config = PortConfig {
            queue: 5000,
            ecn_min: 1000,
            ecn_max: 2000,
            ..PortConfig::of_host(Rate::gbps(100))
        };
        let (mut port, mut queues) = (Port::new(config), Queues::default());
        let (mut now, mut came, mut left) = (Picos::ZERO, Vec::new(), Vec::new());
        for step in 0..40 {
            // For 20 steps, two senders send at the rate of the link each; then none sends.
            for _ in 0..if step < 20 { 2 } else { 0 } {
                let mut header = PacketHeader { bytes: 1000, ..PacketHeader::default() };
                port.enqueue(&mut queues, now, came.len() as u32, &mut header, 0);
                came.push(now);
            }
            if let Some(gone) = port.depart(&mut queues, now, &mut Rng::new(1)) {
                left.push(((now - came[gone.item as usize]).0 / 80_000, gone.mark));
            }
            now += Picos::nanos(80);
        }
        let full = left[left.len() - 5].0;
        assert!(full >= 3, "the queue was full: {left:?}");
        let tail: Vec<_> = left[left.len() - 4..].to_vec();
        assert_eq!(tail, [(full, true), (full, true), (full, false), (full, false)]);
        assert!(left[10..].iter().all(|&(delay, _)| delay == full), "{left:?}");
    }

    #[test]
    fn a_stopped_lane_lets_the_others_pass_in_order() {
        let config = PortConfig { lanes: 3, ..PortConfig::of_host(Rate::gbps(100)) };
        let (mut port, mut queues) = (Port::new(config), Queues::default());
        // A packet of a stopped lane does not leave an idle port; packets of other lanes do.
        let header = PacketHeader { bytes: 1000, ..PacketHeader::default() };
        port.pause(2, true);
        assert_eq!(port.pass(Picos::ZERO, 99, &header, lane::ingress(7, 0, 2)), None);
        let mut now =
            port.pass(Picos::ZERO, 98, &header, lane::ingress(7, 2, 1)).expect("goes").free_at;
        for item in 0..9u32 {
            let ingress = lane::ingress(7, 0, (item % 3) as u8);
            port.enqueue(&mut queues, Picos::ZERO, item, &mut { header }, ingress);
        }
        port.pause(1, true);
        let mut left = Vec::new();
        let mut drain = |port: &mut Port, queues: &mut Queues<u32>| {
            while port.sendable(queues) {
                let gone = port.depart(queues, now, &mut Rng::new(1)).expect("sendable");
                left.push(gone.item);
                now = gone.free_at;
            }
        };
        drain(&mut port, &mut queues);
        port.pause(2, false);
        drain(&mut port, &mut queues);
        assert!(port.is_paused() && port.len() == 3);
        port.pause(1, false);
        drain(&mut port, &mut queues);
        assert_eq!(left, [0, 3, 6, 2, 5, 8, 1, 4, 7]);
        assert_eq!((port.waiting(), port.counters().pauses), (0, 2));
    }

    #[test]
    fn classes_take_turns_by_weight() {
        assert_eq!(order(None, false), "ccccccccccdddddddddd");
        assert_eq!(order(Some("1,1"), false), "cdcdcdcdcdcdcdcdcdcd");
        // When one class has no packet left, the other has the wire to itself.
        assert_eq!(order(Some("3,1"), false), "cccdcccdcccdcddddddd");
        assert_eq!(order(Some("1,4"), false), "cddddcddddcddccccccc");
        // Paused data does not delay control packets.
        assert_eq!(order(Some("1,1"), true), "cccccccccc");
        for nonsense in ["0,1", "1", "1,0", "x,1", "2000,1"] {
            assert!(nonsense.parse::<Weights>().is_err(), "{nonsense}");
        }
    }
}
