//! A port on a network whose clock is virtual, and the clock of its process.
//!
//! Time passes for a process while its application computes, while its calls work, and while it
//! waits. To wait, the process asks the emulator ([`VirtualClock::advance`]). The emulator answers
//! once no packet that another process may still send can arrive earlier. All endpoints of a
//! process share the clock and one connection.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use socket2::SockRef;

use super::frame::{
    self, Deviation, Frame, FrameError, FrameKind, MAX_FRAME, PacketFrame, Resume,
    VirtualTimeRules, Wait, WaitReason, Welcome, encode,
};
use super::shared::SharedStream;
use super::{
    EmulatorSpec, MOST_ERRORS, READ, UnreachableReason, VIRTUAL_ATTACH_TIMEOUT, frame_of, greet,
    invalid, meta_of,
};
use crate::base::{Rate, Span, Time, TrafficClass, Train, entropy_count};
use crate::{Burst, Counters, NetError, Port, PortConfig, RecvReport, RxMeta, SendReport};

/// The virtual time of this process, in nanoseconds; zero while the process is in real time.
static NOW: AtomicU64 = AtomicU64::new(0);
/// The virtual clock of this process, from its first attachment to an emulator on.
static CLOCK: OnceLock<VirtualClock> = OnceLock::new();

/// Number of bytes of packets that a process collects before it writes them for the emulator.
const MOST_UNWRITTEN: usize = 64 << 10;
/// Real time after which a process that sleeps looks whether the emulator is still there.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// Real time for which a process waits for the emulator to read before it looks again.
const PAUSE: Duration = Duration::from_micros(50);
/// Number of bytes of a packet on the emulated wire beyond its UDP payload.
const OVERHEAD: u32 = 48;
/// Smallest backlog of the host's wire, in picoseconds, up to which a port accepts data packets. A process resumes late
/// by the time that its calls take, and the wire must stay busy meanwhile.
const LEAST_AHEAD: u64 = 200_000;
/// Number of packets of the largest size up to which a port accepts a backlog of the host's wire,
/// if their transmission takes longer than [`LEAST_AHEAD`].
const PACKETS_AHEAD: u64 = 2;
/// Smallest source port of a path, the first of the dynamic range.
const FIRST_SOURCE_PORT: u16 = 0xC000;

/// Returns the virtual time of this process, or `None` while its time is real.
#[inline]
#[must_use]
pub fn now() -> Option<Time> {
    match NOW.load(Ordering::Relaxed) {
        0 => None,
        time => Some(Time(time)),
    }
}

/// Returns the clock of this process, or `None` while its time is real.
#[inline]
#[must_use]
pub fn clock() -> Option<&'static VirtualClock> {
    now().and_then(|_| CLOCK.get())
}

/// The virtual clock of a process, and its connection to the emulator.
pub struct VirtualClock {
    spec: EmulatorSpec,
    rules: VirtualTimeRules,
    /// The job has begun: all ranks have attached.
    begun: AtomicBool,
    /// Nanoseconds for which the process has computed since its last wait.
    computed: AtomicU64,
    /// Nanoseconds that the calls of the process have taken since its last wait.
    overhead: AtomicU64,
    state: Mutex<State>,
}

/// A packet that has arrived in virtual time, or that will arrive at the time in its header.
struct Arrival {
    head: PacketFrame,
    payload: Vec<u8>,
}

/// The packets that an endpoint has not received yet, by ascending times of arrival.
#[derive(Default)]
struct Mailbox {
    arrivals: VecDeque<Arrival>,
    /// Destinations of sent packets at which no endpoint has attached.
    missing: Vec<SocketAddr>,
}

struct State {
    /// The connection by which either side learns of the other's end.
    socket: UnixStream,
    /// The connection to the emulator still works.
    alive: bool,
    /// All packets that arrive before this time are in the mailboxes.
    horizon: Time,
    /// Frames that the process has not written for the emulator yet.
    outgoing: Vec<u8>,
    /// The memory by which the process and the emulator exchange frames.
    shared: SharedStream,
    /// Bytes received from the emulator; `inbox[start..end]` is not decoded yet.
    inbox: Box<[u8]>,
    start: usize,
    end: usize,
    mailboxes: Vec<Option<Mailbox>>,
    /// Number of packets that were put into the mailboxes of endpoints since the process attached.
    arrived: u64,
    /// Earliest arrival among the packets of the emulator's last answer.
    earliest: Time,
    /// Buffers in which received payloads were kept, for reuse.
    spare: Vec<Vec<u8>>,
    /// Virtual time at which the host's wire has sent all packets of this process, in picoseconds.
    wire_free: u64,
    /// Virtual time at which this process has copied all packets for processes of its own host, in picoseconds.
    copied_at: u64,
}

impl State {
    fn new(socket: UnixStream, shared: SharedStream, start: Time) -> Self {
        Self {
            socket,
            shared,
            alive: true,
            horizon: start,
            outgoing: Vec::new(),
            inbox: vec![0; READ + MAX_FRAME].into_boxed_slice(),
            start: 0,
            end: 0,
            mailboxes: vec![Some(Mailbox::default())],
            arrived: 0,
            earliest: Time::NEVER,
            spare: Vec::new(),
            wire_free: 0,
            copied_at: 0,
        }
    }

    /// Returns the earliest arrival after `now` that the process knows of.
    fn next_arrival(&self, now: Time) -> Option<Time> {
        let later = |mailbox: &Mailbox| {
            let first = mailbox.arrivals.iter().find(|arrival| arrival.head.sent > now);
            first.map(|arrival| arrival.head.sent)
        };
        self.mailboxes.iter().flatten().filter_map(later).min()
    }

    /// Writes all collected frames. If the process needs an answer, it is `urgent`.
    fn write(&mut self, urgent: bool) -> io::Result<()> {
        let mut at = 0;
        loop {
            at += self.shared.write(&self.outgoing[at..]);
            let is_full = at < self.outgoing.len();
            self.shared.notify(&self.socket, urgent || is_full)?;
            if !is_full {
                self.outgoing.clear();
                return Ok(());
            }
            self.check_emulator()?;
            self.shared.pause(PAUSE);
        }
    }

    /// Returns an error if the emulator has closed the connection. It sends nothing over the socket but the memory.
    fn check_emulator(&self) -> io::Result<()> {
        let socket = SockRef::from(&self.socket);
        match socket.recv_with_flags(&mut [std::mem::MaybeUninit::uninit()], libc::MSG_DONTWAIT) {
            Ok(0) => {
                Err(io::Error::new(ErrorKind::UnexpectedEof, "the emulator closed the connection"))
            }
            Err(e) if !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Err(e),
            _ => Ok(()),
        }
    }

    /// Reads until a frame is complete, and returns its kind and length. Its bytes begin at `inbox[start]`. With `limit`,
    /// the emulator must write something within this time.
    fn read_frame(&mut self, limit: Option<Duration>) -> io::Result<(FrameKind, usize)> {
        let mut silent = Duration::ZERO;
        loop {
            let first = Frame::first(&self.inbox[self.start..self.end]);
            if let Some(frame) = first.map_err(|error| invalid(error.to_string()))? {
                return Ok((frame.kind, frame.bytes.len()));
            }
            if self.start == self.end {
                (self.start, self.end) = (0, 0);
            } else if self.inbox.len() - self.end < READ {
                self.inbox.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            self.shared.prepare_sleep();
            match self.shared.read(&mut self.inbox[self.end..])? {
                0 if limit.is_some_and(|limit| silent >= limit) => {
                    return Err(io::Error::new(
                        ErrorKind::TimedOut,
                        "the emulator did not answer: it is stopped or has no processor; look at its process",
                    ));
                }
                0 if self.shared.sleep(LONGEST_SLEEP) => {}
                // Nothing came for long.
                0 => {
                    silent += LONGEST_SLEEP;
                    self.check_emulator()?;
                }
                n => self.end += n,
            }
        }
    }

    /// Puts packets into mailboxes until the emulator resumes the process. There is no timeout,
    /// because other processes may compute for long; if the emulator exits, the read fails.
    fn read_answer(&mut self) -> io::Result<Resume> {
        let bad = |error: FrameError| invalid(error.to_string());
        self.earliest = Time::NEVER;
        loop {
            let (kind, len) = self.read_frame(None)?;
            let bytes = &self.inbox[self.start..self.start + len];
            let frame = Frame { kind, bytes };
            self.start += len;
            match kind {
                FrameKind::Packet => {
                    let (head, payload) = PacketFrame::decode(&frame).map_err(bad)?;
                    // Drop packets for an endpoint that has closed.
                    if let Some(Some(mailbox)) = self.mailboxes.get_mut(usize::from(head.endpoint))
                    {
                        let mut copy = self.spare.pop().unwrap_or_default();
                        copy.clear();
                        copy.extend_from_slice(payload);
                        self.arrived += 1;
                        self.earliest = self.earliest.min(head.sent);
                        mailbox.arrivals.push_back(Arrival { head, payload: copy });
                    }
                }
                FrameKind::Nobody => {
                    let peer = frame::decode_address(frame.body()).map_err(bad)?;
                    for mailbox in self.mailboxes.iter_mut().flatten() {
                        if mailbox.missing.len() < MOST_ERRORS && !mailbox.missing.contains(&peer) {
                            mailbox.missing.push(peer);
                        }
                    }
                }
                FrameKind::Resume => return Resume::decode(&frame).map_err(bad),
                other => return Err(bad(FrameError::Kind(other as u8))),
            }
        }
    }
}

/// The reason why [`VirtualClock::advance`] returned to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A packet has arrived before the virtual time that was asked for.
    Arrival,
    /// The virtual time that was asked for was reached.
    Time,
}

impl VirtualClock {
    /// Returns the rules by which the virtual clock advances.
    #[must_use]
    pub const fn rules(&self) -> &VirtualTimeRules {
        &self.rules
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is valid at every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the virtual time of this process.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Time {
        Time(NOW.load(Ordering::Relaxed))
    }

    /// Returns whether the job has begun. Before that the clock stands still, because the time
    /// until the last rank attaches depends on the launcher and the machine.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Advances the virtual clock by the time that a call takes.
    pub fn charge(&self, span: Span) {
        if !self.has_begun() {
            return;
        }
        NOW.fetch_add(span.0, Ordering::Relaxed);
        self.overhead.fetch_add(span.0, Ordering::Relaxed);
    }

    /// Counts a time for which the application has computed. The caller advances the clock.
    pub fn count_computation(&self, span: Span) {
        self.computed.fetch_add(span.0, Ordering::Relaxed);
    }

    /// Asks the emulator for all packets that have arrived up to now, unless the process has them.
    pub fn sync(&self) {
        let mut state = self.lock();
        let now = self.now();
        if now >= state.horizon && state.alive {
            self.request_resume(&mut state, Wait { now, until: now, ..Wait::of(WaitReason::Sync) });
        }
    }

    /// Returns whether a packet has arrived that no endpoint has received.
    #[must_use]
    pub fn has_arrival(&self) -> bool {
        let state = self.lock();
        let now = self.now();
        let mut first =
            state.mailboxes.iter().flatten().filter_map(|mailbox| mailbox.arrivals.front());
        first.any(|arrival| arrival.head.sent <= now)
    }

    /// Advances the clock to the next arrival of a packet, or to `until` if none arrives before.
    /// Blocks until the emulator knows which comes first. If the emulator has exited, advances the
    /// clock at once.
    pub fn advance(&self, until: Time, reason: WaitReason) -> Progress {
        let mut state = self.lock();
        loop {
            let now = self.now();
            let arrival = state.next_arrival(now);
            let next = arrival.map_or(until, |at| at.min(until)).max(now);
            if next < state.horizon || !state.alive {
                NOW.store(next.0, Ordering::Relaxed);
                return if arrival == Some(next) { Progress::Arrival } else { Progress::Time };
            }
            let before = state.arrived;
            // Ask for `next`, not `until`: a known arrival may lie at or after the horizon, and the
            // emulator, which has already announced it, would let the process pass it.
            self.request_resume(&mut state, Wait { now, until: next, ..Wait::of(reason) });
            // The clock has reached a known arrival, or it had passed one that was unknown.
            let due = state.next_arrival(now).is_some_and(|at| at <= self.now());
            if due || state.arrived > before && state.earliest <= self.now() {
                return Progress::Arrival;
            }
        }
    }

    /// Sends a wait to the emulator, reads its answer, and sets the clock to the time in it.
    fn request_resume(&self, state: &mut State, wait: Wait) {
        let wait = Wait {
            computed: Span(self.computed.swap(0, Ordering::Relaxed)),
            overhead: Span(self.overhead.swap(0, Ordering::Relaxed)),
            ..wait
        };
        state.outgoing.extend_from_slice(&wait.encode());
        match state.write(true).and_then(|()| state.read_answer()) {
            Ok(resume) => {
                // After a wait for something outside of the network the process resumes late.
                NOW.fetch_max(resume.now.0, Ordering::Relaxed);
                state.horizon = resume.horizon;
                self.begun.store(true, Ordering::Relaxed);
            }
            Err(error) => self.handle_emulator_exit(state, &error),
        }
    }

    /// Handles the exit of the emulator: no packet arrives any more, and waits end at once.
    #[cold]
    fn handle_emulator_exit(&self, state: &mut State, why: &dyn fmt::Display) {
        if std::mem::replace(&mut state.alive, false) {
            log::error!(
                "emulator {}: {why}; this process has lost its network, and its operations fail",
                self.spec.path.display()
            );
        }
    }

    /// Reports to the emulator what makes the times of the process depend on the machine.
    pub fn announce_deviation(&self, deviation: Deviation) {
        self.lock().outgoing.extend_from_slice(&deviation.encode());
    }

    /// Reports to the emulator that the program ends. From now on the run need not be repeatable.
    pub fn announce_end(&self) {
        let ending = encode(FrameKind::Ending, &self.now().0.to_le_bytes());
        self.lock().outgoing.extend_from_slice(&ending);
        self.flush();
    }

    /// Writes the packets that the process has buffered. Each call does so when it ends, because the next call may be
    /// far away. The emulator looks for them before it lets virtual time pass.
    pub fn flush(&self) {
        let mut state = self.lock();
        if state.alive
            && !state.outgoing.is_empty()
            && let Err(error) = state.write(false)
        {
            self.handle_emulator_exit(&mut state, &error);
        }
    }

    /// Attaches a further endpoint of this process. Returns its number.
    fn attach(&self, hello: &[u8]) -> io::Result<(u16, Welcome)> {
        let mut state = self.lock();
        state.outgoing.extend_from_slice(hello);
        state.write(true)?;
        let (kind, len) = state.read_frame(Some(VIRTUAL_ATTACH_TIMEOUT))?;
        let (start, end) = (state.start, state.start + len);
        state.start = end;
        let body = &state.inbox[start + frame::HEAD..end];
        match kind {
            FrameKind::Welcome => {
                let welcome = Welcome::decode(body).map_err(|error| invalid(error.to_string()))?;
                state.mailboxes.push(Some(Mailbox::default()));
                let number = state.mailboxes.len() - 1;
                Ok((u16::try_from(number).map_err(io::Error::other)?, welcome))
            }
            FrameKind::Refused => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("the emulator refused the endpoint: {}", String::from_utf8_lossy(body)),
            )),
            other => Err(invalid(format!(
                "the answer to a hello is a frame of kind {other:?}; start the emulator of this version"
            ))),
        }
    }
}

impl Wait {
    /// Returns a wait for this reason, whose times the caller must set.
    const fn of(reason: WaitReason) -> Self {
        let (now, until) = (Time::ZERO, Time::ZERO);
        Self { now, until, reason, computed: Span::ZERO, overhead: Span::ZERO }
    }
}

/// Returns a forked child to real time. The connection to the emulator stays its parent's.
extern "C" fn end_in_child() {
    NOW.store(0, Ordering::Relaxed);
}

/// A path over which a process sends packets one after the other: the wire of its host, or the inner path of the host.
struct SendPath {
    rate: Rate,
    /// Number of bytes of a packet on the path beyond its UDP payload.
    overhead: u32,
    /// Backlog in picoseconds above which the port accepts no data packet. A transport measures round trips from the
    /// hand-over of a packet, so packets must not wait long behind others.
    max_backlog: u64,
}

impl SendPath {
    fn new(rate: Rate, overhead: u32, mtu: u32) -> Self {
        let path = Self { rate, overhead, max_backlog: 0 };
        let max_backlog = path.time(mtu).saturating_mul(PACKETS_AHEAD).max(LEAST_AHEAD);
        Self { max_backlog, ..path }
    }

    /// Returns how long the path is busy with a packet of `len` bytes, in picoseconds.
    fn time(&self, len: u32) -> u64 {
        let bit_ps = (u128::from(len) + u128::from(self.overhead)) * 8_000_000_000_000;
        u64::try_from(bit_ps.div_ceil(self.rate.0.max(1).into())).unwrap_or(u64::MAX)
    }
}

/// The attachment of one endpoint to an emulator whose clock is virtual.
pub struct VirtualPort {
    clock: &'static VirtualClock,
    config: PortConfig,
    local: SocketAddr,
    number: u16,
    welcome: Welcome,
    wire: SendPath,
    /// The path to processes of the same host. Its rate is zero if they are reached over the network.
    inner: SendPath,
    errors: Vec<NetError>,
    reported_exit: bool,
    /// Time at which the emulated wire accepts the packet for which it was too busy.
    room_at: Option<Time>,
    counters: Counters,
}

impl VirtualPort {
    /// Attaches an endpoint at the IP address of `place`. The first one of a process connects to the
    /// emulator and begins the process's virtual time.
    ///
    /// # Errors
    /// The emulator cannot be reached, refuses the endpoint, or is another one than the process's.
    pub(super) fn open(
        spec: &EmulatorSpec,
        hello: &[u8],
        place: SocketAddr,
        config: &PortConfig,
    ) -> io::Result<Self> {
        let (clock, number, welcome) = if let Some(clock) = CLOCK.get() {
            if clock.spec.path != spec.path {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!(
                        "the process has attached to emulator {}; in virtual time all its endpoints must use \
                         that one",
                        clock.spec.path.display()
                    ),
                ));
            }
            let (number, welcome) = clock.attach(hello)?;
            (clock, number, welcome)
        } else {
            let (stream, welcome) = greet(spec, hello, place)?;
            let rules = welcome.virtual_time.clone().ok_or_else(|| {
                invalid(
                    "its clock is real, and \",virtual\" asks for a virtual one: leave the word out, or \
                     start the job with squall run --virtual"
                        .to_owned(),
                )
            })?;
            stream.set_nonblocking(false)?;
            stream.set_read_timeout(Some(VIRTUAL_ATTACH_TIMEOUT))?;
            let shared = SharedStream::accept(&stream)?;
            let start = rules.start;
            let state = Mutex::new(State::new(stream, shared, start));
            let clock = CLOCK.get_or_init(|| VirtualClock {
                spec: spec.clone(),
                rules,
                begun: AtomicBool::new(false),
                computed: AtomicU64::new(0),
                overhead: AtomicU64::new(0),
                state,
            });
            // SAFETY: pthread_atfork(3) keeps the function, which is never unloaded: the provider's library
            // stays loaded while it has objects, and only stores a number into a static of this crate.
            unsafe { libc::pthread_atfork(None, None, Some(end_in_child)) };
            NOW.store(start.0, Ordering::Relaxed);
            (clock, 0, welcome)
        };
        let port = welcome.virtual_time.as_ref().map_or(0, |rules| rules.port);
        let mtu = welcome.mtu;
        Ok(Self {
            clock,
            config: config.clone(),
            local: SocketAddr::new(place.ip(), port),
            number,
            wire: SendPath::new(welcome.rate, OVERHEAD, mtu),
            welcome,
            inner: SendPath::new(clock.rules.inner_rate, 0, mtu),
            errors: Vec::new(),
            reported_exit: false,
            room_at: None,
            counters: Counters::default(),
        })
    }

    /// Returns the description of the emulated network that the emulator sent.
    #[must_use]
    pub const fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Returns the number by which the emulator tells the endpoints of this process apart.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// Returns whether packets to `dst` take the inner path of this endpoint's host. The packets of a process that a job
    /// spawned are paced as if they crossed the network.
    fn is_inner(&self, dst: SocketAddr) -> bool {
        self.inner.rate.0 > 0
            && frame::rank_of_port(dst.port())
                .is_some_and(|rank| self.clock.spec.host.has(self.welcome.host, rank))
    }

    fn push_error(&mut self, error: NetError) {
        self.counters.errors += 1;
        if self.errors.len() < MOST_ERRORS && !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    /// Advances the virtual clock by the time that the host needs for `bytes` of payload.
    fn charge_bytes(&self, bytes: u64) {
        let picos = bytes.saturating_mul(self.clock.rules.overhead.byte.into());
        if picos >= 1000 {
            self.clock.charge(Span(picos / 1000));
        }
    }
}

impl Drop for VirtualPort {
    fn drop(&mut self) {
        let mut state = self.clock.lock();
        if let Some(mailbox) = state.mailboxes.get_mut(usize::from(self.number)) {
            *mailbox = None;
        }
        let close = encode(FrameKind::Close, &self.number.to_le_bytes());
        // In a forked child the connection is the parent's.
        if state.alive && now().is_some() {
            state.outgoing.extend_from_slice(&close);
            if let Err(error) = state.write(true) {
                self.clock.handle_emulator_exit(&mut state, &error);
            }
        }
    }
}

impl Port for VirtualPort {
    fn send(&mut self, _now: Time, burst: Burst<'_>) -> SendReport {
        let mut report = SendReport::default();
        let mut state = self.clock.lock();
        let (sent, alive) = (self.clock.now(), state.alive);
        let now_ps = sent.0.saturating_mul(1000);
        self.room_at = None;
        for packet in burst.packets() {
            let control = packet.class == TrafficClass::Control;
            let is_inner = self.is_inner(packet.dst);
            let (path, free_at) = if is_inner {
                (&self.inner, &mut state.copied_at)
            } else {
                (&self.wire, &mut state.wire_free)
            };
            if alive && !control && *free_at > now_ps + path.max_backlog {
                self.room_at = Some(Time((*free_at - path.max_backlog).div_ceil(1000)));
                self.counters.tx_blocked += 1;
                break;
            }
            report.sent += 1;
            if !alive {
                report.failed += 1;
                continue;
            }
            *free_at = (*free_at).max(now_ps).saturating_add(path.time(packet.len));
            let entropy = self.source_port(packet.path);
            let head = frame_of(packet, &self.config, entropy, sent);
            let head = PacketFrame { endpoint: self.number, ..head };
            state.outgoing.extend_from_slice(&head.encode(packet.len as usize));
            burst.copy(packet, &mut state.outgoing);
            report.trains += 1;
            report.bytes += u64::from(packet.len);
        }
        if alive
            && state.outgoing.len() > MOST_UNWRITTEN
            && let Err(error) = state.write(false)
        {
            self.clock.handle_emulator_exit(&mut state, &error);
        }
        drop(state);
        self.counters.tx_calls += 1;
        self.counters.tx_trains += report.trains as u64;
        self.counters.tx_packets += report.trains as u64;
        self.counters.tx_bytes += report.bytes;
        self.counters.tx_failed += report.failed as u64;
        self.charge_bytes(report.bytes);
        report
    }

    fn recv(
        &mut self,
        _now: Time,
        budget: usize,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) -> RecvReport {
        let mut report = RecvReport::default();
        let clock = self.clock;
        // The clock may have advanced past the horizon.
        clock.sync();
        let mut state = clock.lock();
        let (now, alive) = (clock.now(), state.alive);
        let mut received = Vec::new();
        let mut missing = Vec::new();
        if let Some(Some(mailbox)) = state.mailboxes.get_mut(usize::from(self.number)) {
            let due = mailbox.arrivals.iter().take(budget);
            let due = due.take_while(|arrival| arrival.head.sent <= now).count();
            received.extend(mailbox.arrivals.drain(..due));
            report.empty = mailbox.arrivals.front().is_none_or(|arrival| arrival.head.sent > now);
            std::mem::swap(&mut missing, &mut mailbox.missing);
        }
        // The sink may send, which takes the lock.
        drop(state);
        for Arrival { head, payload } in &received {
            let meta = meta_of(head, &self.config);
            sink(&meta, Train::single(payload));
            report.packets += 1;
            report.bytes += payload.len() as u64;
            self.counters.rx_ce += u64::from(meta.ce());
        }
        self.charge_bytes(report.bytes);
        if !received.is_empty() {
            let spare = received.into_iter().map(|arrival| arrival.payload);
            self.clock.lock().spare.extend(spare);
            report.trains = report.packets;
            self.counters.rx_calls += 1;
        } else {
            self.counters.rx_empty += 1;
        }
        for peer in missing {
            let kind = UnreachableReason::Port;
            self.push_error(NetError::Unreachable { peer, kind, offender: None });
        }
        if !alive && !std::mem::replace(&mut self.reported_exit, true) {
            self.push_error(NetError::Local { peer: self.local, errno: libc::ENOTCONN });
        }
        self.counters.rx_packets += report.packets as u64;
        self.counters.rx_trains += report.trains as u64;
        self.counters.rx_bytes += report.bytes;
        report
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns the UDP port of the dynamic range that stands for a path, which depends on the endpoint's own port.
    /// Multiples of an odd number are distinct modulo 16384, so paths below 16384 have different ports.
    fn source_port(&self, path: u16) -> u16 {
        let path = path % entropy_count(self.config.paths);
        let offset = self.local.port().wrapping_mul(40_503).wrapping_add(path.wrapping_mul(331));
        FIRST_SOURCE_PORT | (offset & 0x3FFF)
    }

    fn fds(&self, _into: &mut Vec<RawFd>) {
        // The emulator sends nothing but answers, so no descriptor announces a packet.
    }

    fn take_errors(&mut self, into: &mut Vec<NetError>) {
        into.append(&mut self.errors);
    }

    fn path_mtu(&mut self, _dst: SocketAddr) -> io::Result<u32> {
        let headers = if self.local.is_ipv6() { 48 } else { 28 };
        Ok(self.welcome.mtu.saturating_add(headers))
    }

    fn next_deadline(&self) -> Option<Time> {
        let state = self.clock.lock();
        let mailbox = state.mailboxes.get(usize::from(self.number))?.as_ref()?;
        let arrival = mailbox.arrivals.front().map(|arrival| arrival.head.sent);
        [arrival, self.room_at].into_iter().flatten().min()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
