//! A port on an emulated network. Packets travel over a Unix socket to the emulator's process
//! instead of the kernel's network, and come back from its switches.
//!
//! The endpoint keeps an ordinary address. A UDP socket is bound to it and never read, so that no
//! other endpoint of the host gets the same address. The entropy of a path, which would be its UDP
//! source port, travels in the frame ([`frame`]).

pub mod frame;
pub mod host_overhead;
pub mod shared;
mod spec;
#[cfg(test)]
pub(crate) mod tests;
pub mod virtual_time;

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use socket2::{SockRef, Socket};

use crate::base::{Datagram, Time, TrafficClass, Train, entropy_count};
use crate::shm::socket::credentials;
use crate::udp::{bound_address, open_plain, tos};
use crate::{
    Burst, Counters, NetError, Port, PortConfig, RecvReport, RxMeta, SendReport, UnreachableReason,
};
use frame::{Frame, FrameKind, Hello, JobRank, MAX_FRAME, PACKET_HEAD, PacketFrame, Welcome};
pub use spec::{EmulatorSpec, EmulatorSpecError, HostChoice, HostList, HostListError};
pub use virtual_time::VirtualPort;

/// Returns the process ID, in this process's PID namespace, of the process that connected `stream`. Returns `None` if it
/// has none here, or the system does not say.
#[must_use]
pub fn peer_process(stream: &UnixStream) -> Option<u32> {
    let who = credentials(stream.as_raw_fd()).ok()?;
    u32::try_from(who.pid).ok().filter(|pid| *pid != 0)
}

/// Number of bytes that may wait for an endpoint that does not read, like the receive buffer of a
/// socket.
pub const RECEIVE_BUFFER: usize = 8 << 20;

/// Time for which an endpoint waits for the emulator's answer to its hello.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(5);
/// Time like [`ATTACH_TIMEOUT`] in virtual time, where jobs have many more ranks than the machine has processors.
const VIRTUAL_ATTACH_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest length in bytes of the emulator's answer to a hello.
const LONGEST_ANSWER: usize = 4096;
/// Number of bytes that one system call reads at most.
const READ: usize = 256 << 10;
/// Largest number of errors that are kept between two calls of [`Port::take_errors`].
const MOST_ERRORS: usize = 64;
/// Number of bytes that the kernel may buffer in either direction. Some tens of packets, so that an
/// endpoint that is faster than its link soon finds the socket full.
const BUFFER: usize = 512 << 10;

/// The port by which one endpoint sends and receives on an emulated network, in real time.
pub struct EmulatorPort {
    spec: EmulatorSpec,
    config: PortConfig,
    local: SocketAddr,
    /// The UDP socket that reserves the endpoint's address on this host.
    _reserved: Socket,
    stream: UnixStream,
    alive: bool,
    /// A pair of connected sockets on which nothing happens. The first one replaces the stream when
    /// the emulator has gone.
    placeholder: (UnixStream, UnixStream),
    welcome: Welcome,
    /// Bytes received from the emulator; `inbox[start..end]` has not been handed out.
    inbox: Box<[u8]>,
    start: usize,
    end: usize,
    /// The end of a packet whose beginning the emulator's socket has accepted.
    rest: Vec<u8>,
    /// Buffer for the frames that one system call sends to the emulator.
    frames: Vec<u8>,
    errors: Vec<NetError>,
    counters: Counters,
    last_overflow: u32,
}

/// Returns the monotonic time, which both ends of the emulator's socket share because they are on one machine.
fn now() -> Time {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime(2) writes one timespec, into a local variable. Every Linux has this clock, so it
    // does not fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut ts) };
    let seconds = u64::try_from(ts.tv_sec).unwrap_or(0);
    Time(seconds * 1_000_000_000 + u64::try_from(ts.tv_nsec).unwrap_or(0))
}

/// A port on an emulated network, whose clock is real or virtual.
pub enum AttachedPort {
    /// The clock of the emulated network is the real one.
    Real(Box<EmulatorPort>),
    /// The clock of the emulated network is virtual.
    Virtual(Box<VirtualPort>),
}

/// Binds the address (port 0: any) and attaches to the emulator under it, with the rank `job_rank`.
/// Waits for the emulator's answer for at most five seconds.
///
/// # Errors
/// The error of the system for the address, such as `AddrInUse`. For the emulator, an error that
/// names the socket and the reason: nobody listens, the emulator refused, the other side is not an
/// emulator, or its clock is not of the kind that `spec` says.
pub fn attach(
    spec: &EmulatorSpec,
    job_rank: JobRank,
    config: &PortConfig,
) -> io::Result<AttachedPort> {
    if config.bind.ip().is_unspecified() {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            "an endpoint on an emulator cannot be bound to the unspecified address",
        ));
    }
    let host = spec.host_of(job_rank);
    let hello = |addr, host| Hello { addr, host, process: std::process::id(), job_rank }.encode();
    let attached = host.map_err(|text| {
        report_refusal(spec, &text);
        io::Error::new(ErrorKind::InvalidInput, text)
    });
    let attached = attached.and_then(|host| {
        if spec.virtual_time {
            let addr = SocketAddr::new(config.bind.ip(), 0);
            let port = VirtualPort::open(spec, &hello(addr, host), addr, config)?;
            return Ok(AttachedPort::Virtual(Box::new(port)));
        }
        // The socket is bound before the hello is sent, because the hello contains the port number.
        let reserved = open_plain(&config.bind)?;
        reserved.bind(&config.bind.into())?;
        let local = bound_address(&reserved)?;
        let port = EmulatorPort::open(spec, &hello(local, host), (reserved, local), config)?;
        Ok(AttachedPort::Real(Box::new(port)))
    });
    attached.map_err(|error| {
        let cure = match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                "; is it running? (squall emulate up)"
            }
            _ => "",
        };
        io::Error::new(error.kind(), format!("emulator {}: {error}{cure}", spec.path.display()))
    })
}

/// Reports to the emulator that an endpoint of this process has no host, so that the summary of the job has the reason.
fn report_refusal(spec: &EmulatorSpec, why: &str) {
    let report = frame::encode(FrameKind::Refused, why.as_bytes());
    // The process fails with the same reason, whether or not the emulator learns of it.
    let _ = UnixStream::connect(&spec.path).and_then(|mut stream| stream.write_all(&report));
}

impl EmulatorPort {
    /// Attaches to an emulator whose clock is real; see [`attach`].
    ///
    /// # Errors
    /// See [`attach`].
    pub fn attach(spec: &EmulatorSpec, job_rank: JobRank, config: &PortConfig) -> io::Result<Self> {
        match attach(&EmulatorSpec { virtual_time: false, ..spec.clone() }, job_rank, config)? {
            AttachedPort::Real(port) => Ok(*port),
            AttachedPort::Virtual(_) => Err(ErrorKind::InvalidInput.into()),
        }
    }

    /// Attaches an endpoint to an emulator. The socket `reserved` is bound to the endpoint's address.
    fn open(
        spec: &EmulatorSpec,
        hello: &[u8],
        (reserved, local): (Socket, SocketAddr),
        config: &PortConfig,
    ) -> io::Result<Self> {
        let (stream, welcome) = greet(spec, hello, local)?;
        if welcome.virtual_time.is_some() {
            return Err(invalid(
                "its clock is virtual, and the endpoint asks for a real one: write \",virtual\" behind the path".to_owned(),
            ));
        }
        Ok(Self {
            spec: spec.clone(),
            config: config.clone(),
            local,
            _reserved: reserved,
            stream,
            alive: true,
            placeholder: UnixStream::pair()?,
            welcome,
            inbox: vec![0; READ + MAX_FRAME].into_boxed_slice(),
            start: 0,
            end: 0,
            rest: Vec::new(),
            frames: Vec::new(),
            errors: Vec::new(),
            counters: Counters::default(),
            last_overflow: 0,
        })
    }

    /// Returns the description of the emulated network that the emulator sent.
    #[must_use]
    pub const fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Returns whether the emulator still runs and is connected.
    #[must_use]
    pub const fn is_alive(&self) -> bool {
        self.alive
    }

    /// Handles the loss of the emulator. From now on everything that is sent is lost, and nothing
    /// arrives.
    #[cold]
    fn handle_emulator_exit(&mut self, why: &dyn fmt::Display) {
        if !std::mem::replace(&mut self.alive, false) {
            return;
        }
        log::error!(
            "emulator {}: {why}; endpoint {} has lost its network, and its operations fail",
            self.spec.path.display(),
            self.local
        );
        // The call may fail, because the emulator is gone already.
        let _ = self.stream.shutdown(Shutdown::Both);
        // The end of the stream would make the descriptor readable for ever and wake whoever polls
        // it. Another socket takes over the descriptor, which also removes the old one from epoll
        // sets.
        let (placeholder, old) = (self.placeholder.0.as_raw_fd(), self.stream.as_raw_fd());
        // SAFETY: `self.placeholder` and `self.stream` own the two descriptors, which are therefore open and
        // nobody else's. `old` stays open and `stream`'s, with another file behind it, a stream socket as
        // well, so that whatever `stream` may do with it is still defined; `placeholder` keeps its own.
        if unsafe { libc::dup3(placeholder, old, libc::O_CLOEXEC) } < 0 {
            log::warn!("dup3: {}", io::Error::last_os_error());
        }
        (self.start, self.end) = (0, 0);
        self.rest.clear();
        // The error names this endpoint itself, because an endpoint that only receives must learn
        // of the loss, too.
        self.push_error(NetError::Local { peer: self.local, errno: libc::ENOTCONN });
    }

    fn push_error(&mut self, error: NetError) {
        self.counters.errors += 1;
        if self.errors.len() < MOST_ERRORS && !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    /// Sends the rest of a packet. Returns whether all of it is sent.
    fn send_rest(&mut self) -> io::Result<bool> {
        while !self.rest.is_empty() {
            match self.stream.write(&self.rest) {
                Ok(n) => {
                    self.rest.drain(..n);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Sends as many packets as fit with one system call. Returns how many the kernel accepted and
    /// their UDP payload bytes. The rest of a packet that was accepted in part is kept in `rest`.
    fn write_packets(&mut self, burst: Burst<'_>) -> io::Result<(usize, u64)> {
        // The emulator lets the packet enter the network at this time, so the time that it waits in
        // the socket does not count.
        let sent = now();
        let mut frames = std::mem::take(&mut self.frames);
        frames.clear();
        for packet in burst.packets() {
            // A call never offers more than the socket's buffer, so little is copied in vain when
            // the socket is full.
            if !frames.is_empty() && frames.len() + PACKET_HEAD + packet.len as usize > BUFFER {
                break;
            }
            let head = frame_of(packet, &self.config, self.source_port(packet.path), sent);
            frames.extend_from_slice(&head.encode(packet.len as usize));
            burst.copy(packet, &mut frames);
        }
        let result = loop {
            match self.stream.write(&frames) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let mut done = (0, 0);
        if let Ok(taken) = result {
            let mut end = 0;
            for packet in burst.packets() {
                if end >= taken {
                    break;
                }
                done = (done.0 + 1, done.1 + u64::from(packet.len));
                end += PACKET_HEAD + packet.len as usize;
            }
            // A stream socket may accept a part of a frame. The port must send the rest before
            // anything else.
            self.rest.extend_from_slice(&frames[taken..end.max(taken)]);
        }
        self.frames = frames;
        result.map(|_| done)
    }

    /// Reads once from the socket. Returns whether there was anything.
    fn read_socket(&mut self) -> io::Result<bool> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        // The incomplete frame moves to the front, so that a read always has room for READ bytes.
        } else if self.inbox.len() - self.end < READ {
            self.inbox.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        loop {
            match self.stream.read(&mut self.inbox[self.end..]) {
                Ok(0) => {
                    return Err(io::Error::new(
                        ErrorKind::UnexpectedEof,
                        "the emulator closed the connection",
                    ));
                }
                Ok(n) => {
                    self.end += n;
                    return Ok(true);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Hands out the packets of the complete frames that were read, about `budget` packets.
    fn deliver_frames(
        &mut self,
        budget: usize,
        report: &mut RecvReport,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) -> Result<(), frame::FrameError> {
        while report.packets < budget {
            let Some(frame) = Frame::first(&self.inbox[self.start..self.end])? else { break };
            let len = frame.bytes.len();
            match frame.kind {
                FrameKind::Packet => {
                    let (head, payload) = PacketFrame::decode(&frame)?;
                    let meta = meta_of(&head, &self.config);
                    let overflow = head.overflow;
                    sink(&meta, Train::single(payload));
                    report.packets += 1;
                    report.bytes += payload.len() as u64;
                    self.counters.rx_ce += u64::from(meta.ce());
                    self.counters.rx_overflow +=
                        u64::from(overflow.wrapping_sub(self.last_overflow));
                    self.last_overflow = overflow;
                }
                FrameKind::Nobody => {
                    let peer = frame::decode_address(frame.body())?;
                    let kind = UnreachableReason::Port;
                    self.push_error(NetError::Unreachable { peer, kind, offender: None });
                }
                other => return Err(frame::FrameError::Kind(other as u8)),
            }
            self.start += len;
        }
        Ok(())
    }

    fn has_frame(&self) -> bool {
        !matches!(Frame::first(&self.inbox[self.start..self.end]), Ok(None))
    }
}

/// Returns the header of a packet to the emulator, which leaves at `sent`.
fn frame_of(packet: &Datagram, config: &PortConfig, entropy: u16, sent: Time) -> PacketFrame {
    let control = packet.class == TrafficClass::Control;
    PacketFrame {
        addr: packet.dst,
        entropy,
        ecn: tos(0, config.ecn && !control) as u8,
        dscp: if control { config.dscp_control } else { config.dscp_data },
        control,
        trimmed: false,
        sent,
        overflow: 0,
        endpoint: 0,
    }
}

/// Returns what a receiver learns of a packet from the emulator. A trimmed packet arrives with the DSCP
/// that the endpoint is configured for, whatever the emulator uses.
const fn meta_of(head: &PacketFrame, config: &PortConfig) -> RxMeta {
    let dscp = if head.trimmed { config.dscp_trimmed } else { head.dscp };
    RxMeta { src: head.addr, ecn: head.ecn, dscp, overflow: head.overflow }
}

/// Returns the error that the other side of a connection violates the protocol.
fn invalid(text: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}

/// Connects to the emulator, sends the hello and reads the answer.
fn greet(
    spec: &EmulatorSpec,
    hello: &[u8],
    local: SocketAddr,
) -> io::Result<(UnixStream, Welcome)> {
    let mut stream = UnixStream::connect(&spec.path)?;
    let patience = if spec.virtual_time { VIRTUAL_ATTACH_TIMEOUT } else { ATTACH_TIMEOUT };
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let mut bytes = Vec::new();
    stream.write_all(hello)?;
    loop {
        // Only the answer is read here. Packets may follow at once, and they belong to the port.
        let wanted = match bytes.get(4..8) {
            Some(len) => {
                frame::HEAD + u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize
            }
            None => frame::HEAD,
        };
        if wanted > LONGEST_ANSWER {
            return Err(invalid(format!(
                "the answer to a hello has {wanted} bytes, at most {LONGEST_ANSWER} are valid; start the emulator of this version"
            )));
        }
        let mut chunk = vec![0; wanted - bytes.len()];
        stream.read_exact(&mut chunk).map_err(|e| match e.kind() {
            ErrorKind::WouldBlock => io::Error::new(
                ErrorKind::TimedOut,
                format!(
                    "the emulator did not answer within {patience:?}: it is stopped or has no \
                     processor; look at its process, or start it anew with `squall emulate up`"
                ),
            ),
            ErrorKind::UnexpectedEof => invalid("the emulator closed the connection".to_owned()),
            _ => e,
        })?;
        bytes.extend_from_slice(&chunk);
        let Some(frame) = Frame::first(&bytes).map_err(|e| invalid(e.to_string()))? else {
            continue;
        };
        match frame.kind {
            FrameKind::Welcome => {
                let welcome = Welcome::decode(frame.body()).map_err(|e| invalid(e.to_string()))?;
                stream.set_read_timeout(None)?;
                stream.set_write_timeout(None)?;
                stream.set_nonblocking(true)?;
                // With a smaller buffer the port is slower, but not wrong.
                let socket = SockRef::from(&stream);
                let _ = socket.set_send_buffer_size(BUFFER);
                return Ok((stream, welcome));
            }
            FrameKind::Refused => {
                let why = String::from_utf8_lossy(frame.body());
                return Err(io::Error::new(
                    ErrorKind::PermissionDenied,
                    format!("the emulator refused endpoint {local}: {why}"),
                ));
            }
            other => {
                return Err(invalid(format!(
                    "the answer to a hello is a frame of kind {other:?}; start the emulator of this version"
                )));
            }
        }
    }
}

impl Port for EmulatorPort {
    fn send(&mut self, _now: Time, burst: Burst<'_>) -> SendReport {
        let packets = burst.packets();
        let mut report = SendReport::default();
        while self.is_alive() && report.sent < packets.len() {
            let outcome = match self.send_rest() {
                Ok(true) => self.write_packets(burst.part(report.sent..packets.len())),
                Ok(false) => Err(ErrorKind::WouldBlock.into()),
                Err(e) => Err(e),
            };
            match outcome {
                Ok((n, bytes)) => {
                    report.sent += n;
                    report.trains += 1;
                    report.bytes += bytes;
                    self.counters.tx_calls += 1;
                    self.counters.tx_trains += 1;
                    self.counters.tx_packets += n as u64;
                    self.counters.tx_bytes += bytes;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.counters.tx_blocked += 1;
                    return report;
                }
                Err(e) => self.handle_emulator_exit(&e),
            }
        }
        // Without an emulator there is no network, so the packets are lost.
        for packet in &packets[report.sent..] {
            report.sent += 1;
            report.failed += 1;
            self.counters.tx_failed += 1;
            self.push_error(NetError::Local { peer: packet.dst, errno: libc::ENOTCONN });
        }
        report
    }

    fn recv(
        &mut self,
        _now: Time,
        budget: usize,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) -> RecvReport {
        let mut report = RecvReport::default();
        while self.is_alive() && report.packets < budget {
            if let Err(error) = self.deliver_frames(budget, &mut report, sink) {
                self.handle_emulator_exit(&error);
                break;
            }
            if report.packets >= budget {
                break;
            }
            match self.read_socket() {
                // The frames are handed out at the beginning of the next round.
                Ok(true) => {
                    self.counters.rx_calls += 1;
                    report.trains += 1;
                }
                Ok(false) => {
                    self.counters.rx_empty += 1;
                    report.empty = true;
                    break;
                }
                Err(error) => self.handle_emulator_exit(&error),
            }
        }
        report.empty |= !self.is_alive();
        self.counters.rx_packets += report.packets as u64;
        self.counters.rx_bytes += report.bytes;
        self.counters.rx_trains += report.trains as u64;
        report
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns the UDP port of the dynamic range that stands for a path. Multiples of an odd number are distinct modulo
    /// 16384, so paths below 16384 have different ports.
    fn source_port(&self, path: u16) -> u16 {
        let path = path % entropy_count(self.config.paths);
        if path == 0 {
            return self.local.port();
        }
        0xC000
            | (self.local.port().wrapping_mul(40_503).wrapping_add(path.wrapping_mul(331)) & 0x3FFF)
    }

    fn fds(&self, into: &mut Vec<RawFd>) {
        into.push(self.stream.as_raw_fd());
    }

    fn take_errors(&mut self, into: &mut Vec<NetError>) {
        into.append(&mut self.errors);
    }

    fn path_mtu(&mut self, _dst: SocketAddr) -> io::Result<u32> {
        let headers = if self.local.is_ipv6() { 48 } else { 28 };
        Ok(self.welcome.mtu.saturating_add(headers))
    }

    fn next_deadline(&self) -> Option<Time> {
        // Bytes that were read but not handed out do not make the descriptor readable.
        self.has_frame().then_some(Time::ZERO)
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
