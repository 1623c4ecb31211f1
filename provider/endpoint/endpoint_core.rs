//! The moving part of an endpoint: engine and port, and the order in which they are served.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use squall_base::{RegionId, Span, Time, Train};
use squall_engine::{
    Completion, Engine, Notice, OpError, OpKind, PacketMarks, Patience, PeerId, ReceiveBuffer,
    Trouble, Visibility,
};
use squall_net::{NetError, Port, RxMeta, UdpPort, UnreachableReason};

use crate::addr::Name;
use crate::background;
use crate::clock;
use crate::endpoint::Endpoint;
use crate::endpoint::bindings::Bindings;
use crate::endpoint::delivery::entry::{entry_of, error_entry_of};
use crate::endpoint::peer_cache::Peers;
use crate::endpoint::poller::outbox::Outbox;
use crate::endpoint::poller::shared_memory::Links;
use crate::endpoint::poller::socket_buffer::SocketBuffer;
use crate::endpoint_lock::EndpointLock;
use crate::fault;
use crate::flags::ADDR_UNSPEC;
use crate::monitor::Monitor;
use crate::mr::{Regions, UserMemory};
use crate::optional::collectives::Collectives;
use crate::optional::device_memory::staging::Staging;
use crate::optional::peer_provider::receives::PeerReceives;
use crate::optional::triggered_work::operations::Begun;
use crate::stats::{Statistics, Turns};
use crate::trace::Tracer;

/// Packets received per turn before transmitting, so that acknowledgements keep flowing.
const RX_BUDGET: usize = 64;
/// Turns after which timers are served even if packets keep coming.
const TIMER_TURNS: u64 = 16;
/// How long a closing endpoint waits for acknowledgements of what it sent, after it last heard one of those who owe
/// them; and after that for peers that may not know yet that what they sent arrived.
const CLOSE_PATIENCE: Span = Span::secs(2);
/// How long it waits at most, whatever it hears.
const CLOSE_DEADLINE: Span = Span::secs(60);
/// How long sends of a closing endpoint may wait for receives of their peers: who has posted one asks for the message
/// within moments.
const UNTAKEN_PATIENCE: Span = Span::millis(100);
/// How long no packet must come before it goes although contexts are open that no peer needs.
const TIME_WAIT: Span = Span::millis(20);

/// Where there are links, the sockets are not looked at more often than this when they were found empty.
const PACKETS_EVERY: Span = Span::micros(5);
/// ... unless a packet came within this time.
const PACKETS_LATELY: Span = Span::micros(200);

/// Engine, ports, and what travels between them.
pub(crate) struct Core {
    pub(crate) engine: Engine,
    pub(crate) peers: Peers,
    pub(crate) regions: Arc<EndpointLock<Regions>>,
    port: Box<dyn Port + Send>,
    receive_buffer: SocketBuffer,
    /// Deferred work that has begun.
    pub(crate) begun: Begun,
    /// Receives that belong to a peer-provider owner.
    pub(crate) shared: PeerReceives,
    /// Groups and their operations, since the first was joined.
    pub(crate) collectives: Option<Box<Collectives>>,
    /// Operations on memory of devices, where there may be such (FI_HMEM).
    pub(crate) staging: Option<Box<Staging>>,
    /// Links to endpoints of this host.
    pub(crate) links: Links,
    /// When the sockets were last looked at.
    packets_at: Time,
    name: Name,
    /// Name of the interface that has the local address.
    interface: Box<str>,
    dscp_trimmed: Option<u8>,
    /// Bytes that the port adds behind each packet.
    trailer: u32,
    outbox: Outbox,
    errors: Vec<NetError>,
    last_arrival: Time,
    closing_since: Option<Time>,
    /// The time until which a thread sleeps that no other thread wakes for a timer.
    sleeps_until: Option<Time>,
    turns: Turns,
    warned: Warned,
    /// What is shown of it while it is open.
    pub(crate) monitor: Monitor,
    /// What its application does with it, if that is written down.
    pub(crate) trace: Tracer,
}

/// What was logged already.
#[derive(Default)]
struct Warned {
    other_mode: bool,
    /// When an operation that had completed was last said to be lost, and how many since.
    lost: Option<Time>,
    lost_since: u64,
}

/// Losses of operations that had completed are not logged more often than this.
const WARN_EVERY: Span = Span::secs(1);

/// What a look at the socket found.
struct Received {
    /// When the packets arrived, or when none was there.
    now: Time,
    /// Packets arrived.
    busy: bool,
    /// None is left.
    drained: bool,
    /// The sockets were looked at, not links alone.
    looked: bool,
}

/// What [`super::setup`] opens.
pub(crate) struct Opened {
    pub(crate) engine: Engine,
    pub(crate) port: Box<dyn Port + Send>,
    /// Bytes that wait at most until the port is looked at.
    pub(crate) receive_buffer: u64,
    pub(crate) links: Links,
    pub(crate) name: Name,
    pub(crate) dscp_trimmed: Option<u8>,
    /// The endpoint's number in the process.
    pub(crate) number: u32,
    /// Bytes that the port adds behind each packet.
    pub(crate) trailer: u32,
    /// Only those in the address vector are talked to.
    pub(crate) named_only: bool,
}

impl Core {
    /// With `devices` operations may be on memory of devices.
    pub(crate) fn new(
        opened: Opened,
        regions: Arc<EndpointLock<Regions>>,
        devices: bool,
        interface: &str,
    ) -> Self {
        let number = opened.number;
        let mut core = Self {
            engine: opened.engine,
            peers: Peers::new(opened.named_only),
            regions,
            begun: Begun::default(),
            shared: PeerReceives::default(),
            collectives: None,
            staging: devices.then(Box::default),
            port: opened.port,
            receive_buffer: SocketBuffer::new(opened.receive_buffer),
            links: opened.links,
            packets_at: Time::ZERO,
            name: opened.name,
            interface: interface.into(),
            dscp_trimmed: opened.dscp_trimmed,
            trailer: opened.trailer,
            outbox: Outbox::default(),
            errors: Vec::new(),
            last_arrival: Time::ZERO,
            closing_since: None,
            sleeps_until: None,
            turns: Turns::default(),
            warned: Warned::default(),
            monitor: Monitor::off(number),
            trace: Tracer::open(number, opened.name.addr),
        };
        core.monitor = Monitor::of(number, interface, &core.statistics());
        core
    }

    /// What a peer is called.
    pub(crate) fn name_of(&self, peer: PeerId) -> Name {
        let state = self.engine.peers().get(peer);
        Name { addr: state.addr(), instance: state.instance() }
    }

    /// The endpoint's address and instance.
    pub(crate) fn name(&self) -> Name {
        self.name
    }

    /// The sockets to watch.
    pub(crate) fn sockets(&self) -> Vec<RawFd> {
        let mut fds = Vec::new();
        self.port.fds(&mut fds);
        fds.extend(self.links.fd());
        fds
    }

    /// When a turn is needed without anything arriving.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        // A full socket drains soon; nothing announces when.
        let blocked = self.collectives.as_ref().is_some_and(|all| all.is_blocked());
        let soon = (self.outbox.has_unsent() || self.is_copying() || blocked)
            .then(|| Time(clock::now().0.saturating_add(50_000)));
        // Not the least of what is there: the compiler compares what is not there, too, before it looks, and
        // memcheck takes that for a decision.
        let times = [self.engine.poll_timeout(), self.port.next_deadline(), soon];
        let first = times.map(|time| time.unwrap_or(Time::NEVER)).into_iter().min();
        first.filter(|time| *time < Time::NEVER)
    }

    /// Returns the next timer as [`Core::next_timeout`] does, for a thread that is about to sleep until then.
    pub(crate) fn next_timeout_of_sleeper(&mut self) -> Option<Time> {
        let at = self.next_timeout();
        self.sleeps_until = (!background::is_available()).then(|| at.unwrap_or(Time::NEVER));
        at
    }

    /// Wakes a sleeping thread if an operation has set a timer that is earlier than the end of its sleep.
    #[inline]
    pub(crate) fn rouse(&mut self, bindings: &Bindings) {
        if let Some(until) = self.sleeps_until {
            self.rouse_before(until, bindings);
        }
    }

    #[cold]
    fn rouse_before(&mut self, until: Time, bindings: &Bindings) {
        if self.next_timeout().is_some_and(|at| at < until) {
            self.sleeps_until = None;
            bindings.wake();
        }
    }

    /// One turn: receive, time, transmit, complete. Whether anything happened.
    pub(crate) fn turn(&mut self, ep: &Endpoint, bindings: &Bindings) -> bool {
        self.turns.all += 1;
        self.peers.follow(bindings.av.as_ref().map(|av| &***av), &mut self.engine);
        let Received { now, mut busy, drained, looked } = self.receive_all();
        // What looks overdue may be answered by packets that still wait in the socket; a stream of
        // them does not put timers off for ever, though.
        let timely = drained || self.turns.all.is_multiple_of(TIMER_TURNS);
        if timely && self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
            busy = true;
        }
        // Where nothing came by a link, and the sockets' turn is another one, it is theirs to send as well.
        if looked || busy || self.has_work() {
            busy |= self.flush(now);
        }
        busy |= self.complete(ep, bindings);
        if self.is_copying() {
            busy |= self.advance(ep, bindings);
        }
        if self.collectives.as_ref().is_some_and(|all| all.is_due()) {
            self.collect(ep, bindings);
        }
        self.links.rearm();
        if self.monitor.is_due(now) {
            self.show(now);
        }
        if busy {
            self.rouse(bindings);
            while let Some(notice) = self.engine.poll_notice() {
                self.log(now, notice);
            }
        } else {
            self.turns.idle += 1;
        }
        busy
    }

    /// Logs what belongs to no operation of the application.
    #[cold]
    fn log(&mut self, now: Time, notice: Notice) {
        match notice {
            Notice::OtherMode { peer } => self.log_other_mode(peer),
            Notice::PacketSize { host, bytes, guessed } => {
                let (bytes, v6) = (bytes + self.trailer, host.is_ipv6());
                let why = if guessed { " (tried, nobody said so)" } else { "" };
                let mtu = bytes + if v6 { 48 } else { 28 };
                log::info!("the path to {host} carries packets of {bytes} bytes, MTU {mtu}{why}");
            }
            Notice::TooManyUnexpected { peer, tag } => {
                let addr = self.engine.peers().get(peer).addr();
                let count = self.engine.unexpected_messages();
                log::warn!(
                    "{count} messages wait here for receives; more are held back at their senders, first one \
                     of {addr} with tag {tag:#x}: post receives, or let senders wait for answers"
                );
            }
            Notice::Silent { peer, since, patience } => {
                let until = match patience {
                    Patience::Deadline => "until FI_SQUALL_DEADLINE",
                    Patience::HostAnswers => {
                        "until FI_SQUALL_STOPPED_DEADLINE, because its host answers: is its process stopped?"
                    }
                    Patience::ProcessLives => "as long as its process lives: is it stopped?",
                };
                let state = self.engine.peers().get(peer);
                let cause = state.trouble().map(|trouble| {
                    format!(
                        ", last network error: {}",
                        std::io::Error::from_raw_os_error(trouble.errno)
                    )
                });
                log::warn!(
                    "peer {} has not answered for {since}{}; squall waits for it {until} [local {} on {}; \
                     FI_SQUALL_IFACE chooses the interface]",
                    state.addr(),
                    cause.unwrap_or_default(),
                    self.name.addr,
                    self.interface
                );
            }
            Notice::NotListed { peer, since } => log::warn!(
                "peer {} has said for {since} that this endpoint is not in its address vector \
                 (FI_SQUALL_PEERS=av there); it is asked again until FI_SQUALL_DEADLINE [local {}]",
                self.engine.peers().get(peer).addr(),
                self.name.addr
            ),
            Notice::LostAfterCompletion { peer, error } => {
                self.warned.lost_since += 1;
                if self.warned.lost.is_none_or(|last| now.since(last) >= WARN_EVERY) {
                    let n = core::mem::take(&mut self.warned.lost_since);
                    self.warned.lost = Some(now);
                    let detail = self.describe(error, Some(peer));
                    log::warn!("{n} operations that were complete when copied are lost: {detail}");
                }
            }
        }
    }

    /// What an error means for an operation that ended with it.
    fn describe_end(&self, error: OpError, done: &Completion) -> String {
        let mut text = self.describe(error, done.peer);
        let atomic = matches!(done.kind, OpKind::Update | OpKind::Fetch);
        if atomic && !matches!(error, OpError::Remote(_)) {
            text.push_str("; whether the atomic operation was carried out is not known");
        }
        text
    }

    /// What an error means for operations with `peer`.
    fn describe(&self, error: OpError, peer: Option<PeerId>) -> String {
        let state = peer.map(|peer| self.engine.peers().get(peer));
        let trouble = state.and_then(|state| state.trouble());
        let meant = state.and_then(|state| state.instance());
        let own = (self.name.addr, &*self.interface);
        let mut text = fault::describe(error, state.map(|state| state.addr()), own, trouble);
        if let (OpError::OtherInstance { .. }, Some(meant)) = (error, meant) {
            text.push_str(&format!(" meant was instance {meant}"));
        }
        text
    }

    /// Says, once an endpoint, that a peer's receiver works in another mode.
    fn log_other_mode(&mut self, peer: PeerId) {
        if !core::mem::replace(&mut self.warned.other_mode, true) {
            let addr = self.engine.peers().get(peer).addr();
            let cc = &self.engine.transport().cc;
            if cc.acks().telemetry {
                return log::warn!(
                    "FI_SQUALL_CC={} lives on what switches write into packets, and nothing of it came back from {addr}: \
                     round trips must do; it needs an emulated network with telemetry (squall emulate up --telemetry), and \
                     the same FI_SQUALL_CC at all endpoints (others are not reported)",
                    cc.name()
                );
            }
            if self.engine.transport().rates() {
                return log::warn!(
                    "FI_SQUALL_CC={} has the rates that switches compute, and none came for what is sent to {addr}: a plain \
                     window must do; it needs an emulated network that computes them (squall emulate up --rates), and the \
                     same FI_SQUALL_CC at all endpoints (others are not reported)",
                    cc.name()
                );
            }
            log::warn!(
                "the receiver of {addr} works in another mode than FI_SQUALL_CC={} here lives on: a plain \
                 window, or none of its signals, must do; set the same FI_SQUALL_CC at all endpoints \
                 (others are not reported)",
                cc.name()
            );
        }
    }

    /// Runs a turn without the application: completions stay in the engine until the application's next call, but
    /// collective operations go on. Threads that sleep on the sockets are woken when this turn has taken packets from
    /// those, or when an operation has ended, for instance by its timeout. Returns whether packets had arrived.
    pub(crate) fn background_turn(&mut self, bindings: &Bindings) -> bool {
        self.turns.stand_ins += 1;
        let waiting = self.engine.completions();
        self.peers.follow(bindings.av.as_ref().map(|av| &***av), &mut self.engine);
        let Received { now, busy: arrived, .. } = self.receive_all();
        if self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
        }
        self.flush(now);
        if self.collectives.as_ref().is_some_and(|all| all.is_running()) {
            self.go_round(bindings);
        }
        self.links.rearm();
        if self.monitor.is_due(now) {
            self.show(now);
        }
        if arrived || self.engine.completions() > waiting {
            bindings.wake();
        }
        arrived
    }

    /// Writes what it counted where others see it.
    #[cold]
    fn show(&mut self, now: Time) {
        let mut monitor = self.monitor.take();
        monitor.write(now, &self.engine, &self.statistics());
        self.monitor = monitor;
        self.trace.write();
    }

    /// Somebody is going to sleep until something comes. False when something is there already.
    pub(crate) fn doze(&mut self) -> bool {
        self.links.doze(clock::now(), &mut self.engine)
    }

    /// Hands what arrived by links and by packets to the engine. While links have something, or packets do not come,
    /// the sockets are looked at now and then.
    #[inline]
    fn receive_all(&mut self) -> Received {
        if !self.links.any() {
            let received = self.receive();
            let linked = self.links.receive(received.now, &mut self.engine, &self.regions);
            return Received { busy: received.busy | linked, ..received };
        }
        let now = clock::now();
        let linked = self.links.receive(now, &mut self.engine, &self.regions);
        let lately = now.since(self.last_arrival) < PACKETS_LATELY;
        let due = now.since(self.packets_at) >= PACKETS_EVERY;
        if due || lately && !linked {
            let received = self.receive();
            self.packets_at = received.now;
            return Received { busy: received.busy | linked, ..received };
        }
        Received { now, busy: linked, drained: false, looked: false }
    }

    /// Whether there is something to send that waits for nothing but a turn.
    #[inline]
    fn has_work(&mut self) -> bool {
        let links = self.engine.links();
        links.has_frames() || links.has_packets()
    }

    /// Hands what arrived to the engine.
    fn receive(&mut self) -> Received {
        let now = clock::now();
        let Self { engine, port, receive_buffer, regions, dscp_trimmed, .. } = self;
        let mut memory = UserMemory(regions);
        // Read when the first packet is here: the process may have slept since the turn began, and
        // round trips would seem shorter than they were.
        let mut arrived = None;
        let mut sink = |meta: &RxMeta, train: Train<'_>| {
            let at = *arrived.get_or_insert_with(clock::now);
            if let Some(lost) = receive_buffer.heard(meta.overflow, train) {
                ReceiveBuffer::of(engine).overflowed(lost, receive_buffer.bytes());
            }
            let trimmed = *dscp_trimmed == Some(meta.dscp);
            let marks = PacketMarks { ce: meta.ce(), trimmed };
            engine.handle_train(at, &mut memory, meta.src, marks, train);
        };
        let report = port.recv(now, RX_BUDGET, &mut sink);
        if receive_buffer.looked(report.empty) {
            ReceiveBuffer::of(engine).drained();
        }
        self.port.take_errors(&mut self.errors);
        if !self.errors.is_empty() {
            self.report_errors(now);
        }
        self.last_arrival = arrived.unwrap_or(self.last_arrival);
        let (busy, drained) = (report.packets > 0, report.empty);
        Received { now: arrived.unwrap_or(now), busy, drained, looked: true }
    }

    /// Hands the engine the errors that the network reported.
    #[cold]
    fn report_errors(&mut self, now: Time) {
        for error in core::mem::take(&mut self.errors) {
            let errno = match error {
                NetError::Unreachable { kind, .. } => match kind {
                    UnreachableReason::Port => libc::ECONNREFUSED,
                    UnreachableReason::Network => libc::ENETUNREACH,
                    UnreachableReason::Prohibited => libc::EACCES,
                    _ => libc::EHOSTUNREACH,
                },
                // Not worth a word when an operation fails later, for another reason.
                NetError::TooBig { peer, mtu } if self.fit(now, peer, (mtu > 0).then_some(mtu)) => {
                    log::debug!("{error}");
                    continue;
                }
                NetError::TooBig { .. } => libc::EMSGSIZE,
                NetError::Local { errno, .. } => errno,
            };
            log::debug!("{error}");
            if errno == libc::ENOTCONN {
                self.engine.handle_isolation(clock::now(), errno);
                continue;
            }
            self.engine.handle_trouble(clock::now(), Trouble { errno, peer: error.peer() });
        }
    }

    /// Packets to `peer` must fit into an MTU, or the one that this host knows of its path. Whether they do.
    #[cold]
    fn fit(&mut self, now: Time, peer: SocketAddr, mtu: Option<u32>) -> bool {
        let Ok(mtu) = mtu.map_or_else(|| self.port.path_mtu(peer), Ok) else { return false };
        let payload = UdpPort::payload_limit(mtu, peer.is_ipv6());
        let bytes = u32::try_from(payload).unwrap_or(u32::MAX).saturating_sub(self.trailer);
        self.engine.handle_packet_size(now, peer, bytes);
        self.engine.packet_size(peer) <= bytes
    }

    /// Asks this host's routes how much they carry to hosts that were not spoken to before.
    #[cold]
    fn fit_new_hosts(&mut self, now: Time) {
        while let Some(peer) = self.peers.next_new_host() {
            self.fit(now, peer, None);
        }
    }

    /// An operation of `bytes` was posted: sends it now, or defers it, to go with others.
    #[inline]
    pub(crate) fn posted(&mut self, now: Time, bytes: u64, more: bool) {
        if self.engine.links().has_frames() {
            self.links.flush(now, &mut self.engine);
        }
        if !self.engine.links().has_packets() {
            return;
        }
        if self.outbox.defer(now, bytes, more) {
            self.flush(now);
        }
    }

    /// Sends what the engine wants to send. Whether anything left.
    pub(crate) fn flush(&mut self, now: Time) -> bool {
        if self.peers.has_new_hosts() {
            self.fit_new_hosts(now);
        }
        let linked = self.links.flush(now, &mut self.engine);
        self.outbox.flush(now, &mut self.engine, &mut *self.port) | linked
    }

    /// Moves finished operations to queues and counters.
    pub(crate) fn complete(&mut self, ep: &Endpoint, bindings: &Bindings) -> bool {
        let mut busy = false;
        while let Some(done) = self.engine.poll_completion() {
            busy = true;
            if self.staging.is_some() {
                if let Some(done) = self.unstage(done) {
                    self.deliver(ep, bindings, &done);
                }
                continue;
            }
            self.deliver(ep, bindings, &done);
        }
        busy
    }

    /// Whether bytes are on their way between memory of devices and the host's.
    #[inline]
    fn is_copying(&self) -> bool {
        self.staging.as_ref().is_some_and(|staging| staging.is_busy())
    }

    #[inline]
    pub(crate) fn deliver(&mut self, ep: &Endpoint, bindings: &Bindings, done: &Completion) {
        if self.trace.is_on() {
            self.trace.ended(&self.engine, done, bindings.counts(done.kind));
        }
        if done.visibility == Visibility::Kept {
            return self.end_work(ep, bindings, done);
        }
        bindings.count(done.kind, done.status.is_ok());
        if done.region != RegionId::LENT {
            self.regions.lock().count(done.kind, done.region);
        }
        match (done.status, done.visibility) {
            (Ok(()), Visibility::Entry) => {
                if let Some(cq) = bindings.queue(done.kind) {
                    cq.push(entry_of(done, self.source(ep, bindings, done)));
                }
            }
            (Ok(()), _) => {}
            (Err(error), visibility) => self.fail(ep, bindings, done, error, visibility),
        }
    }

    /// The end of what we keep for ourselves: a look at messages for another provider, or deferred work, which shows it
    /// only if it is to.
    #[cold]
    #[inline(never)]
    fn end_work(&mut self, ep: &Endpoint, bindings: &Bindings, done: &Completion) {
        if PeerReceives::owns(done.context) {
            let source = match (&bindings.av, done.peer) {
                (Some(av), Some(peer)) => self.peers.fi_addr(av, &mut self.engine, peer),
                _ => ADDR_UNSPEC,
            };
            return self.shared.handle_end(done, source);
        }
        if self.collectives.as_mut().is_some_and(|all| all.end(done)) {
            return;
        }
        let Some(done) = &self.begun.end(done) else { return };
        match (done.status, bindings.queue(done.kind)) {
            (Ok(()), Some(cq)) => cq.push(entry_of(done, self.source(ep, bindings, done))),
            (Ok(()), None) => {}
            (Err(error), _) => self.fail(ep, bindings, done, error, done.visibility),
        }
    }

    /// Whom a completion names as its source.
    #[inline]
    fn source(&mut self, ep: &Endpoint, bindings: &Bindings, done: &Completion) -> u64 {
        let received = matches!(done.kind, OpKind::Recv | OpKind::Peek);
        match (&bindings.av, done.peer) {
            (Some(av), Some(peer)) if received && ep.settings.names_source => {
                self.peers.fi_addr(av, &mut self.engine, peer)
            }
            _ => ADDR_UNSPEC,
        }
    }

    /// Reports the error of an operation in the completion queue. This includes injected operations (fi_cq(3)), whose
    /// entry has no context: without the entry an application could wait for ever for an answer to a lost message.
    /// There is one exception: the loss of an operation without context is only logged if the peer has closed its
    /// endpoint in good order. No one waits for such a message, and applications that end connections one by one
    /// (`MPI_Comm_disconnect`) send some although nothing is wrong, and give up when they see an error.
    #[cold]
    fn fail(
        &mut self,
        ep: &Endpoint,
        bindings: &Bindings,
        done: &Completion,
        error: OpError,
        visibility: Visibility,
    ) {
        let source = self.source(ep, bindings, done);
        let parted = |peer: PeerId| self.engine.peers().get(peer).has_parted();
        let shown = visibility != Visibility::CountOnly
            || error.excludes()
            || !done.peer.is_some_and(parted);
        let queue = bindings.queue(done.kind).filter(|_| shown);
        match queue {
            Some(cq) => {
                // What applications provoke themselves needs no detail.
                let expected = matches!(
                    error,
                    OpError::Cancelled | OpError::NoMessage | OpError::Truncated { .. }
                );
                let detail = (!expected).then(|| self.describe_end(error, done));
                cq.fail(error_entry_of(done, error, source, detail));
            }
            None => log::warn!(
                "an operation that no completion queue shows failed: {}",
                self.describe_end(error, done)
            ),
        }
    }

    /// A step of closing. Whether there is nothing more to wait for.
    pub(crate) fn close_step(&mut self, start: Time) -> bool {
        let now = clock::now();
        match self.closing_since {
            None => {
                if now.since(start) >= UNTAKEN_PATIENCE {
                    self.engine.closing(now).drop_untaken();
                }
                let idle = self.engine.idle() && !self.is_copying();
                if idle || self.is_in_vain(now, start) {
                    self.log_forsaken();
                    self.engine.closing(now).step();
                    self.flush(now);
                    self.closing_since = Some(now);
                }
                false
            }
            // Peers' contexts count as well: whoever opened one may still wait for our answer.
            Some(since) => {
                let asked = self.engine.closing(now).step();
                let needed = asked && now.since(since) < CLOSE_PATIENCE;
                if asked && !needed {
                    log::info!(
                        "the endpoint ended although peers did not close their contexts within {CLOSE_PATIENCE}: what \
                         they sent last may look lost to them [local {}]",
                        self.name.addr
                    );
                }
                self.flush(now);
                let quiet = self.engine.contexts().next().is_none()
                    || now.since(since.max(self.last_arrival)) >= TIME_WAIT
                    || self.is_in_vain(now, start.max(since) + TIME_WAIT);
                quiet && !needed
            }
        }
    }

    /// Whether what has been waited for since `start` will not come any more.
    fn is_in_vain(&mut self, now: Time, start: Time) -> bool {
        let heard = start.max(self.engine.closing(now).last_sign());
        now.since(heard) >= CLOSE_PATIENCE || now.since(start) >= CLOSE_DEADLINE
    }

    /// The process ends with this endpoint open. Whether all that it believes sent has arrived, or will not any
    /// more.
    pub(crate) fn is_drained(&mut self, start: Time) -> bool {
        let over = self.engine.copied_bytes() == 0 && !self.is_copying()
            || self.is_in_vain(clock::now(), start);
        if over {
            self.log_forsaken();
        }
        over
    }

    /// Says what was not acknowledged although the application was told that it is sent.
    fn log_forsaken(&self) {
        let bytes = self.engine.copied_bytes();
        if bytes > 0 {
            log::warn!(
                "{bytes} bytes that were complete when copied were not acknowledged before the endpoint ended: the \
                 peers were silent for {CLOSE_PATIENCE}, or took longer than {CLOSE_DEADLINE} [local {}]",
                self.name.addr
            );
        }
    }

    /// Everything that was counted.
    pub(crate) fn statistics(&self) -> Statistics<'_> {
        let (engine, reliability) = self.engine.counters();
        Statistics {
            local: self.name.addr,
            engine,
            reliability,
            transport: self.engine.transport(),
            net: self.port.counters(),
            flows: self.engine.flows(),
            turns: Turns { revoked: self.outbox.revoked(), ..self.turns },
            open: self.monitor.open(),
        }
    }
}
