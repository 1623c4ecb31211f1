//! The poller: it moves packets, and records of shared-memory channels, between the engine and the ports.

pub(crate) mod outbox;
pub(crate) mod shared_memory;
pub(crate) mod socket_buffer;

use std::net::SocketAddr;
use std::os::fd::RawFd;

use squall_base::{Span, Time, Train};
use squall_engine::{DestinationError, Engine, PacketMarks, SecretEvent, SharedSecret};
use squall_net::{Counters, NetError, Port, RailReport, RxMeta, UdpPort, UnreachableReason};
use squall_seal::{KeyRing, Pair};

use super::peer_cache::PeerCache;
use crate::clock;
use crate::mr::{Regions, UserMemory};
use crate::reports::key_log::KeyLog;
use crate::waiting::endpoint_lock::EndpointLock;
use outbox::Outbox;
use shared_memory::ShmChannels;
use socket_buffer::SocketBuffer;

/// Number of packets that a turn receives before it transmits, so that acknowledgements keep flowing.
const RX_BUDGET: usize = 64;
/// Time after which a turn tries again to send what found no room: a full socket drains soon, and no event announces
/// when.
const RETRY_AFTER: Span = Span::micros(50);
/// Time after a packet for which every turn polls the sockets, although there are shared-memory channels.
const SOCKETS_BUSY: Span = Span::micros(200);
/// Divisor of the time since the last packet that gives the interval at which the sockets are polled later. Polling
/// them costs a system call, which takes longer than the rest of a turn; with a divisor of 100 a packet waits for at
/// most 1% more.
const SILENCE_PART: u64 = 100;
/// Bounds of that interval. The longer one is about as long as a processor takes to come back from other threads.
const SHORTEST_INTERVAL: Span = Span::micros(5);
const LONGEST_INTERVAL: Span = Span::micros(50);

/// Returns the interval at which the sockets are polled while there are shared-memory channels and no packet was sent or
/// received for `silence`.
fn sockets_interval(silence: Span) -> Span {
    Span(silence.0 / SILENCE_PART).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
}

/// The result of polling the packet port and the shared-memory channels.
pub(crate) struct PollResult {
    /// The time at which the packets arrived, or of the poll if there were none.
    pub(crate) now: Time,
    /// At least one packet or record arrived.
    pub(crate) busy: bool,
    /// The poll left no packet in the sockets.
    pub(crate) drained: bool,
    /// The sockets were polled, and not the shared-memory channels alone.
    pub(crate) sockets_polled: bool,
}

/// The packet port and shared-memory channels of an endpoint, and the packets between them and the engine.
pub(crate) struct Poller {
    port: Box<dyn Port + Send>,
    receive_buffer: SocketBuffer,
    pub(super) channels: ShmChannels,
    outbox: Outbox,
    /// Time at which the sockets were last polled, while there are shared-memory channels.
    sockets_polled_at: Time,
    last_arrival: Time,
    /// The DSCP of packets that switches trimmed, if switches trim.
    dscp_trimmed: Option<u8>,
    /// Bytes that the port adds behind each packet (checksum or authentication tag).
    trailer: u32,
    /// Network errors that the port has reported and the engine has not seen yet.
    errors: Vec<NetError>,
    /// The time until which a thread sleeps that no other thread wakes for a timer.
    sleeps_until: Option<Time>,
    /// The log of the secrets from handshakes, if the user wants one.
    key_log: Option<KeyLog>,
}

/// Gives the key ring the secrets that the engine shares with peers, and logs those that are new.
fn update_keys(engine: &mut Engine, keys: &mut KeyRing, mut log: Option<&mut KeyLog>) {
    while let Some(event) = engine.poll_secret() {
        match event {
            SecretEvent::Shared(SharedSecret { peer, instance, secret, asked }) => {
                let own = engine.shm().instance();
                let pair =
                    Pair::from_handshake(engine.job_id(), own, (peer, instance), secret, asked);
                // A replayed confirmation yields a known secret, so it adds nothing to the log.
                if let (true, Some(log)) = (keys.install(&pair), &mut log) {
                    log.append(&pair);
                }
            }
            SecretEvent::Confirmed(peer) => keys.confirm(peer),
            SecretEvent::Ended(peer) => keys.remove(peer),
        }
    }
}

impl Poller {
    /// Creates a poller of `port`, whose receive buffer has `receive_buffer` bytes and which adds `trailer` bytes to
    /// each packet. It writes the secrets of handshakes into `key_log`.
    pub(crate) fn new(
        port: Box<dyn Port + Send>,
        receive_buffer: u64,
        channels: ShmChannels,
        dscp_trimmed: Option<u8>,
        trailer: u32,
        key_log: Option<KeyLog>,
    ) -> Self {
        Self {
            port,
            receive_buffer: SocketBuffer::new(receive_buffer),
            channels,
            outbox: Outbox::default(),
            sockets_polled_at: Time::ZERO,
            last_arrival: Time::ZERO,
            dscp_trimmed,
            trailer,
            errors: Vec::new(),
            sleeps_until: None,
            key_log,
        }
    }

    /// Returns the descriptors that become readable when packets arrive.
    pub(crate) fn sockets(&self) -> Vec<RawFd> {
        let mut fds = Vec::new();
        self.port.fds(&mut fds);
        fds.extend(self.channels.fd());
        fds
    }

    /// Returns the number of bytes that the port adds behind each packet.
    pub(crate) const fn trailer(&self) -> u32 {
        self.trailer
    }

    /// Returns the time at which the last packet arrived.
    pub(crate) const fn last_arrival(&self) -> Time {
        self.last_arrival
    }

    /// Returns the counters of the packet port.
    pub(crate) fn counters(&self) -> Counters {
        self.port.counters()
    }

    /// Returns what each network card has carried, if the endpoint has several.
    pub(crate) fn rails(&self) -> Vec<RailReport> {
        self.port.rails()
    }

    /// Returns the number of packets that were dropped because their memory had been released before they were sent.
    pub(crate) fn revoked(&self) -> u64 {
        self.outbox.revoked()
    }

    /// Returns the time at which a turn is needed although nothing arrives. `retry` says that other work waits for
    /// room, too.
    pub(crate) fn next_timeout(&self, engine: &Engine, retry: bool) -> Option<Time> {
        let soon = (self.outbox.has_unsent() || retry)
            .then(|| Time(clock::now().0.saturating_add(RETRY_AFTER.0)));
        // Not the minimum of the times that are there: the compiler would compare absent times before it checks that
        // they are there, which memcheck takes for a decision by uninitialised memory.
        let times = [engine.poll_timeout(), self.port.next_deadline(), soon];
        let first = times.map(|time| time.unwrap_or(Time::NEVER)).into_iter().min();
        first.filter(|time| *time < Time::NEVER)
    }

    /// Returns the time until which a thread sleeps that no other thread wakes for a timer.
    #[inline]
    pub(crate) const fn sleeps_until(&self) -> Option<Time> {
        self.sleeps_until
    }

    /// Sets the time until which a thread sleeps that no other thread wakes for a timer.
    pub(crate) fn set_sleeps_until(&mut self, until: Option<Time>) {
        self.sleeps_until = until;
    }

    /// Prepares for a thread to sleep on the descriptors: peers on this host must wake it. Returns false if something
    /// has arrived already.
    pub(crate) fn prepare_sleep(&mut self, engine: &mut Engine) -> bool {
        self.channels.prepare_sleep(clock::now(), engine)
    }

    /// Notes that a thread which slept until something arrived sleeps no more.
    pub(crate) fn end_sleep(&mut self) {
        self.channels.end_sleep();
    }

    /// Makes peers on this host wake the threads of this endpoint that still sleep.
    #[inline]
    pub(crate) fn rearm(&mut self) {
        self.channels.rearm();
    }

    /// Gives the engine the packets and records that arrived at the sockets and in shared-memory channels. The sockets
    /// are polled less often while the channels are busy or no packets arrive.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        engine: &mut Engine,
        regions: &EndpointLock<Regions>,
    ) -> PollResult {
        if !self.channels.any() {
            let received = self.receive(engine, regions);
            let linked = self.channels.receive(received.now, engine, regions);
            return PollResult { busy: received.busy | linked, ..received };
        }
        let now = clock::now();
        let linked = self.channels.receive(now, engine, regions);
        let silence = now.since(self.last_arrival.max(self.outbox.last_flush()));
        let lately = silence < SOCKETS_BUSY;
        let due = now.since(self.sockets_polled_at) >= sockets_interval(silence);
        if due || lately && !linked {
            let received = self.receive(engine, regions);
            self.sockets_polled_at = received.now;
            return PollResult { busy: received.busy | linked, ..received };
        }
        PollResult { now, busy: linked, drained: false, sockets_polled: false }
    }

    /// Gives the engine the packets that arrived at the sockets.
    fn receive(&mut self, engine: &mut Engine, regions: &EndpointLock<Regions>) -> PollResult {
        let now = clock::now();
        let Self { port, receive_buffer, dscp_trimmed, .. } = self;
        let mut memory = UserMemory(regions);
        // Read when the first packet is here: the process may have slept since the turn began, and
        // round trips would seem shorter than they were.
        let mut arrived = None;
        let mut sink = |meta: &RxMeta, train: Train<'_>| {
            let at = *arrived.get_or_insert_with(clock::now);
            if let Some(lost) = receive_buffer.record_overflow(meta.overflow, train) {
                engine.handle_buffer_overflow(lost, receive_buffer.bytes());
            }
            let trimmed = *dscp_trimmed == Some(meta.dscp);
            let marks = PacketMarks { ce: meta.ce(), trimmed };
            engine.handle_train(at, &mut memory, meta.src, marks, train);
        };
        let report = port.recv(now, RX_BUDGET, &mut sink);
        if let (true, Some(keys)) = (report.packets > 0, port.keys()) {
            update_keys(engine, keys, self.key_log.as_mut());
        }
        if receive_buffer.record_poll(report.empty) {
            engine.handle_buffer_drained();
        }
        self.port.take_errors(&mut self.errors);
        if !self.errors.is_empty() {
            self.report_errors(now, engine);
        }
        self.last_arrival = arrived.unwrap_or(self.last_arrival);
        let (busy, drained) = (report.packets > 0, report.empty);
        PollResult { now: arrived.unwrap_or(now), busy, drained, sockets_polled: true }
    }

    /// Gives the engine the errors that the network reported for sent packets.
    #[cold]
    fn report_errors(&mut self, now: Time, engine: &mut Engine) {
        for error in core::mem::take(&mut self.errors) {
            let errno = match error {
                NetError::Unreachable { kind, .. } => match kind {
                    UnreachableReason::Port => libc::ECONNREFUSED,
                    UnreachableReason::Network => libc::ENETUNREACH,
                    UnreachableReason::Prohibited => libc::EACCES,
                    _ => libc::EHOSTUNREACH,
                },
                // Not reported: if an operation fails later, it fails for another reason.
                NetError::TooBig { peer, mtu }
                    if self.limit_packet_size(now, engine, peer, (mtu > 0).then_some(mtu)) =>
                {
                    log::debug!("{error}");
                    continue;
                }
                NetError::TooBig { .. } => libc::EMSGSIZE,
                NetError::Local { errno, .. } => errno,
            };
            log::debug!("{error}");
            if errno == libc::ENOTCONN {
                engine.handle_isolation(clock::now(), errno);
                continue;
            }
            engine.handle_destination_error(
                clock::now(),
                DestinationError { errno, peer: error.peer() },
            );
        }
    }

    /// Limits packets to `peer` to an MTU, or to the MTU that this host knows of the path. Returns whether they fit.
    #[cold]
    fn limit_packet_size(
        &mut self,
        now: Time,
        engine: &mut Engine,
        peer: SocketAddr,
        mtu: Option<u32>,
    ) -> bool {
        let Ok(mtu) = mtu.map_or_else(|| self.port.path_mtu(peer), Ok) else { return false };
        let payload = UdpPort::payload_limit(mtu, peer.is_ipv6());
        let bytes = u32::try_from(payload).unwrap_or(u32::MAX).saturating_sub(self.trailer);
        engine.handle_packet_size(now, peer, bytes);
        engine.packet_size(peer) <= bytes
    }

    /// Limits packets to hosts that were not met before to the MTU of this host's routes to them.
    #[cold]
    fn limit_new_hosts(&mut self, now: Time, engine: &mut Engine, peers: &mut PeerCache) {
        while let Some(peer) = peers.next_new_host() {
            self.limit_packet_size(now, engine, peer, None);
        }
    }

    /// Sends a posted operation of `bytes` bytes, or defers it to send it with others. `more` says that the application
    /// has announced another one.
    #[inline]
    pub(crate) fn handle_posted(
        &mut self,
        now: Time,
        engine: &mut Engine,
        peers: &mut PeerCache,
        bytes: u64,
        more: bool,
    ) {
        if engine.shm().has_records() {
            self.channels.flush(now, engine);
        }
        if !engine.shm().has_packets() {
            return;
        }
        if self.outbox.defer(now, bytes, more) {
            self.flush(now, engine, peers);
        }
    }

    /// Sends the packets and records that the engine has ready. Returns whether anything was sent.
    pub(crate) fn flush(&mut self, now: Time, engine: &mut Engine, peers: &mut PeerCache) -> bool {
        if peers.has_new_hosts() {
            self.limit_new_hosts(now, engine, peers);
        }
        let linked = self.channels.flush(now, engine);
        self.outbox.flush(now, engine, &mut *self.port) | linked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_polled_less_often_the_longer_they_are_silent() {
        let intervals = [0, 200, 500, 1_000, 4_000, 5_000, 1_000_000]
            .map(|silence| sockets_interval(Span::micros(silence)));
        assert_eq!(intervals, [5, 5, 5, 10, 40, 50, 50].map(Span::micros));
    }
}
