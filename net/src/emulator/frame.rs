//! The protocol between endpoints and the emulator.
//!
//! Both sides send a stream of frames, little endian. Every frame begins with the same eight bytes:
//! kind, flags, a 16-bit number, and the length of the rest. Packets ([`PacketFrame`]) have a header of
//! [`PACKET_HEAD`] bytes; the other frames have a short body. Flags and number are zero where the
//! diagram does not give them a meaning.
//!
//! ```text
//!  0      1      2             4                           8
//!  +------+------+-------------+---------------------------+
//!  | kind | flags| number      | bytes that follow         |
//!  +------+------+-------------+---------------------------+
//!  PACKET:  number = the UDP source port it would have (its entropy)
//!           flags: bits 0 and 1 the ECN field, bit 2 control class, bit 3 trimmed
//!   8  sent: CLOCK_MONOTONIC nanoseconds (u64)
//!  16  overflow: datagrams the emulator dropped because this endpoint did not read (u32)
//!  20  DSCP (u8), 21 zero
//!  22  number of the endpoint in its process (u16; zero unless the network is in virtual time)
//!  24  address (20 bytes: IP as IPv6 or IPv4-mapped 16, port 2, 4 or 6, zero)
//!  44  the UDP payload
//!  WAIT:    flags = the reason of the wait ([`WaitReason`])
//!  DEVIATION: flags = its kind ([`DeviationKind`])
//! ```
//!
//! In a packet to the emulator the address is the destination. In a packet from the emulator it is the
//! source, with the entropy as its port. Both ends live on one host, so they share the monotonic clock.
//!
//! In virtual time all endpoints of a process share one connection, whose frames pass through shared memory
//! ([`shared`](super::shared)) once the first endpoint has its WELCOME, and `sent` is a virtual time: of the
//! packet's departure, or of its arrival. The emulator sends nothing but answers: a WELCOME to a hello,
//! and after a WAIT the packets that have arrived, followed by a RESUME.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::host_overhead::HostOverhead;
use crate::base::{Rate, Span, Time};

/// First bytes of a hello and a welcome. They detect other programs and other versions.
pub const MAGIC: [u8; 8] = *b"squallf8";
/// Number of bytes of the header with which every frame of the emulator protocol begins.
pub const HEAD: usize = 8;
/// Number of bytes before the UDP payload in the frame of a packet.
pub const PACKET_HEAD: usize = 44;
/// Number of bytes of an encoded socket address in a frame of the emulator protocol.
pub const ADDRESS: usize = 20;
/// Largest length of a frame: a UDP datagram and its header.
pub const MAX_FRAME: usize = PACKET_HEAD + 65_535;
/// UDP port of the first endpoint of rank 0 in virtual time.
const FIRST_PORT: u16 = 1024;
/// Largest number of endpoints that a process in virtual time may open in its life. A closed one keeps its number
/// and its port.
pub const MOST_ENDPOINTS: u16 = 8;
/// Largest number of ranks of a job in virtual time: more have no UDP ports.
pub const MOST_RANKS: u16 = (u16::MAX - FIRST_PORT) / MOST_ENDPOINTS + 1;

/// Returns the UDP port of an endpoint in virtual time, which depends on its rank and its number in its process;
/// `None` if there are too many ranks or endpoints.
#[must_use]
pub fn port_of_rank(rank: u32, endpoint: usize) -> Option<u16> {
    let rank = u16::try_from(rank).ok().filter(|rank| *rank < MOST_RANKS)?;
    let endpoint = u16::try_from(endpoint).ok().filter(|endpoint| *endpoint < MOST_ENDPOINTS)?;
    Some(FIRST_PORT + rank * MOST_ENDPOINTS + endpoint)
}

/// Returns the rank to which a UDP port belongs in virtual time; `None` if it belongs to none.
#[must_use]
pub fn rank_of_port(port: u16) -> Option<u32> {
    port.checked_sub(FIRST_PORT).map(|offset| u32::from(offset / MOST_ENDPOINTS))
}

/// The kind of a frame on the connection between a process and an emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// The first frame of an endpoint, which asks to be attached: [`Hello`].
    Hello = 1,
    /// The emulator's answer to a hello that it accepts: [`Welcome`].
    Welcome = 2,
    /// The emulator's refusal of an endpoint, with the reason as text. The emulator then closes the
    /// connection, unless a process in virtual time has attached another endpoint on it. As the first frame of a
    /// process: an endpoint asks for no host, because the process found none for it.
    Refused = 3,
    /// A packet from or to an endpoint: [`PacketFrame`].
    Packet = 4,
    /// Frame from the emulator to an endpoint: no endpoint has this address.
    Nobody = 5,
    /// First frame from a command line to the emulator: a command as text.
    Command = 6,
    /// The emulator's answer to a command, as text. The connection ends.
    Reply = 7,
    /// A process in virtual time waits until the emulator resumes it: [`Wait`].
    Wait = 8,
    /// The emulator's answer to a process that waits in virtual time: [`Resume`].
    Resume = 9,
    /// A process in virtual time closes an endpoint. The body is the endpoint's number in the
    /// process (u16).
    Close = 10,
    /// A process in virtual time enters MPI_Finalize. The body is its time in nanoseconds (u64).
    Ending = 11,
    /// A process in virtual time reports what makes its times depend on the machine: [`Deviation`].
    Deviation = 12,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<Self> {
        use FrameKind::{
            Close, Command, Deviation, Ending, Hello, Nobody, Packet, Refused, Reply, Resume, Wait,
            Welcome,
        };
        let all = [
            Hello, Welcome, Refused, Packet, Nobody, Command, Reply, Wait, Resume, Close, Ending,
            Deviation,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The reason why received bytes are not a valid frame of the emulator protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The first byte is no known kind of frame, the receiver does not expect that kind now, or the reason of a wait or the kind
    /// of a deviation is unknown.
    Kind(u8),
    /// A frame of this kind cannot have this length in bytes.
    Length(FrameKind, usize),
    /// The conversation does not begin with [`MAGIC`]: the other side is another program or another
    /// version.
    Magic,
    /// The bytes are too few for a socket address, or its family is unknown.
    Address,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(byte) => {
                write!(f, "unexpected kind of frame, wait or deviation {byte:#04x}")
            }
            Self::Length(kind, len) => write!(f, "a {kind:?} frame cannot have {len} bytes"),
            Self::Magic => {
                f.write_str("the other side is another program or another version of squall")
            }
            Self::Address => f.write_str("a frame has an invalid IP address"),
        }
    }
}

impl std::error::Error for FrameError {}

/// A complete frame of the emulator protocol whose contents have not been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Kind of the frame, from its first byte.
    pub kind: FrameKind,
    /// All bytes of the frame, including the header of eight bytes.
    pub bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Returns the frame at the front of `bytes`, or `None` while it is incomplete.
    ///
    /// # Errors
    /// The bytes are not the beginning of a frame, so the conversation cannot continue.
    pub fn first(bytes: &'a [u8]) -> Result<Option<Self>, FrameError> {
        let Some(&byte) = bytes.first() else { return Ok(None) };
        let kind = FrameKind::from_byte(byte).ok_or(FrameError::Kind(byte))?;
        let Some(len) = bytes.get(4..8) else { return Ok(None) };
        let len = u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize;
        let whole = HEAD.saturating_add(len);
        let least = if kind == FrameKind::Packet { PACKET_HEAD } else { HEAD };
        if whole < least || whole > MAX_FRAME {
            return Err(FrameError::Length(kind, whole));
        }
        Ok(bytes.get(..whole).map(|bytes| Self { kind, bytes }))
    }

    /// Returns the bytes of the frame behind its header of eight bytes.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[HEAD..]
    }
}

/// Encodes a frame of a kind other than a packet.
#[must_use]
pub fn encode(kind: FrameKind, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind as u8, 0, 0, 0];
    let len = body.len().min(MAX_FRAME - HEAD);
    frame.extend_from_slice(&(len as u32).to_le_bytes());
    frame.extend_from_slice(&body[..len]);
    frame
}

/// Encodes a socket address as frames contain it.
#[must_use]
pub fn encode_address(addr: SocketAddr) -> [u8; ADDRESS] {
    let mut out = [0; ADDRESS];
    let ip = match addr.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    out[..16].copy_from_slice(&ip.octets());
    out[16..18].copy_from_slice(&addr.port().to_le_bytes());
    out[18] = if addr.is_ipv4() { 4 } else { 6 };
    out
}

/// Decodes an address from the front of `bytes`.
///
/// # Errors
/// The bytes are too few, or the family is unknown.
pub fn decode_address(bytes: &[u8]) -> Result<SocketAddr, FrameError> {
    let bytes: &[u8; ADDRESS] = bytes.first_chunk::<ADDRESS>().ok_or(FrameError::Address)?;
    let mut ip = [0; 16];
    ip.copy_from_slice(&bytes[..16]);
    let ip = Ipv6Addr::from(ip);
    let port = u16::from_le_bytes([bytes[16], bytes[17]]);
    match bytes[18] {
        4 => {
            let ip = ip.to_ipv4_mapped().ok_or(FrameError::Address)?;
            Ok(SocketAddr::from((ip, port)))
        }
        6 => Ok(SocketAddr::from((ip, port))),
        _ => Err(FrameError::Address),
    }
}

/// The header of a packet in a frame of the emulator protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketFrame {
    /// Destination of a packet to the emulator, or source of a packet from it, with the entropy as UDP port.
    pub addr: SocketAddr,
    /// Entropy of the packet, which would be its UDP source port.
    pub entropy: u16,
    /// ECN field of the packet's IP header.
    pub ecn: u8,
    /// DSCP of the packet's IP header.
    pub dscp: u8,
    /// The packet has the control class: switches queue it with priority and never trim it.
    pub control: bool,
    /// A switch of the emulated network cut off the packet's payload.
    pub trimmed: bool,
    /// Time at which the sender sent the packet, in nanoseconds of CLOCK_MONOTONIC. In virtual
    /// time: the departure in a packet to the emulator, the arrival in a packet from it.
    pub sent: Time,
    /// Number of datagrams dropped because the receiver did not read, modulo 2^32.
    pub overflow: u32,
    /// In virtual time, the number of the endpoint in its process.
    pub endpoint: u16,
}

const CONTROL: u8 = 1 << 2;
const TRIMMED: u8 = 1 << 3;

impl PacketFrame {
    /// Encodes the header of a frame with a packet of `payload` payload bytes.
    #[must_use]
    pub fn encode(&self, payload: usize) -> [u8; PACKET_HEAD] {
        let mut out = [0; PACKET_HEAD];
        out[0] = FrameKind::Packet as u8;
        out[1] = self.ecn & 3
            | if self.control { CONTROL } else { 0 }
            | if self.trimmed { TRIMMED } else { 0 };
        out[2..4].copy_from_slice(&self.entropy.to_le_bytes());
        let len = u32::try_from(PACKET_HEAD - HEAD + payload).unwrap_or(u32::MAX);
        out[4..8].copy_from_slice(&len.to_le_bytes());
        out[8..16].copy_from_slice(&self.sent.0.to_le_bytes());
        out[16..20].copy_from_slice(&self.overflow.to_le_bytes());
        out[20] = self.dscp & 0x3f;
        out[22..24].copy_from_slice(&self.endpoint.to_le_bytes());
        out[24..].copy_from_slice(&encode_address(self.addr));
        out
    }

    /// Decodes the header and returns it with the UDP payload of a [`FrameKind::Packet`] frame.
    ///
    /// # Errors
    /// The address is invalid.
    pub fn decode<'a>(frame: &Frame<'a>) -> Result<(Self, &'a [u8]), FrameError> {
        let (head, payload) = frame
            .bytes
            .split_first_chunk::<PACKET_HEAD>()
            .ok_or(FrameError::Length(frame.kind, frame.bytes.len()))?;
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let decoded = Self {
            addr: decode_address(&head[24..])?,
            entropy: u16::from_le_bytes([head[2], head[3]]),
            ecn: head[1] & 3,
            dscp: head[20] & 0x3f,
            control: head[1] & CONTROL != 0,
            trimmed: head[1] & TRIMMED != 0,
            sent: Time(u64::from(word(8)) | u64::from(word(12)) << 32),
            overflow: word(16),
            endpoint: u16::from_le_bytes([head[22], head[23]]),
        };
        Ok((decoded, payload))
    }
}

/// The first frame of an endpoint. In virtual time the port of its address is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Address of the endpoint, to which peers on the emulated network send.
    pub addr: SocketAddr,
    /// Host of the topology that the endpoint asks for; `None` means the next free host.
    pub host: Option<u32>,
    /// ID of the endpoint's process, for listings.
    pub process: u32,
    /// Rank of the process, as far as its launcher reports it.
    pub job_rank: JobRank,
}

/// Rank of an endpoint's process in its job, and the size of the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JobRank {
    /// Rank of the process in its job, if the launcher reports it.
    pub rank: Option<u32>,
    /// Number of ranks of the job, if the launcher reports it.
    pub ranks: Option<u32>,
}

impl Hello {
    /// Encodes the hello as a frame of the emulator protocol.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = MAGIC.to_vec();
        body.extend_from_slice(&encode_address(self.addr));
        let known = |number: Option<u32>| number.unwrap_or(u32::MAX);
        let JobRank { rank, ranks } = self.job_rank;
        for word in [known(self.host), self.process, known(rank), known(ranks)] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        encode(FrameKind::Hello, &body)
    }

    /// Decodes a hello from the body of a frame.
    ///
    /// # Errors
    /// The body is of another version, or is not a hello.
    pub fn decode(body: &[u8]) -> Result<Self, FrameError> {
        let rest = body.strip_prefix(&MAGIC).ok_or(FrameError::Magic)?;
        let addr = decode_address(rest)?;
        let words: &[u8; 16] = rest[ADDRESS..]
            .first_chunk()
            .ok_or(FrameError::Length(FrameKind::Hello, HEAD + body.len()))?;
        let word = |at: usize| {
            u32::from_le_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]])
        };
        let known = |at: usize| Some(word(at)).filter(|number| *number != u32::MAX);
        let job_rank = JobRank { rank: known(8), ranks: known(12) };
        Ok(Self { addr, host: known(0), process: word(4), job_rank })
    }
}

/// The emulator's answer to an endpoint that it accepts: a description of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Number of the emulated host that the endpoint has become.
    pub host: u32,
    /// Number of hosts of the emulated network.
    pub hosts: u32,
    /// Rate of the emulated host's link, after scaling to what the machine can carry.
    pub rate: Rate,
    /// Round-trip time between the farthest hosts of the emulated network without load.
    pub base_rtt: Span,
    /// Largest UDP payload of a packet on the emulated network, in bytes.
    pub mtu: u32,
    /// Switches of the emulated network trim packets instead of dropping them.
    pub trimming: bool,
    /// The rules of virtual time, if the network's clock is virtual.
    pub virtual_time: Option<VirtualTimeRules>,
}

/// The rules by which the virtual clock of a process advances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualTimeRules {
    /// Time that the virtual clock shows at the beginning of the job.
    pub origin: Time,
    /// Time that the clock of this process shows when it attaches: the origin, or a later time if the job has begun.
    pub start: Time,
    /// Time of CLOCK_MONOTONIC that the application sees when the clock begins.
    pub shown_origin: Time,
    /// Nanoseconds from CLOCK_MONOTONIC to CLOCK_REALTIME in virtual time.
    pub calendar: u64,
    /// Seed of the random numbers that endpoints in virtual time use.
    pub seed: u64,
    /// Factor from CPU time of the application to virtual time, in millionths. Zero: computation
    /// takes no time.
    pub cpu_scale: u32,
    /// The virtual times that calls of the application take.
    pub overhead: HostOverhead,
    /// Longest jump of the clock of a process that polls and finds nothing.
    pub longest_idle: Span,
    /// The UDP port of the endpoint. The emulator chooses it, so that it is the same in each run.
    pub port: u16,
    /// Rate at which a process copies messages for processes of its own host; zero if these cross the network, too.
    pub inner_rate: Rate,
}

impl VirtualTimeRules {
    /// Number of bytes of the encoded rules of virtual time without the times of a host's work.
    const LEN: usize = 9 * 8;

    fn encode(&self) -> Vec<u8> {
        let words = [
            self.origin.0,
            self.calendar,
            self.seed,
            self.longest_idle.0,
            self.cpu_scale.into(),
            self.port.into(),
            self.shown_origin.0,
            self.start.0,
            self.inner_rate.0,
        ];
        let mut bytes = words.into_iter().flat_map(u64::to_le_bytes).collect();
        self.overhead.encode(&mut bytes);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (bytes, overhead) = bytes.split_first_chunk::<{ Self::LEN }>()?;
        let long = |at: usize| u64_at(bytes, at * 8);
        Some(Self {
            origin: Time(long(0)),
            calendar: long(1),
            seed: long(2),
            longest_idle: Span(long(3)),
            cpu_scale: long(4) as u32,
            overhead: HostOverhead::decode(overhead)?,
            port: long(5) as u16,
            shown_origin: Time(long(6)),
            start: Time(long(7)),
            inner_rate: Rate(long(8)),
        })
    }
}

/// Returns the number at the offset `at` of `bytes`, which are long enough.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// The reason why a process in virtual time waits for the emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WaitReason {
    /// The process polls and finds nothing. It resumes at `until` although nothing arrived, because
    /// it may also poll for something outside of the network.
    Idle = 0,
    /// The process needs all packets that arrive up to its own time, and resumes at that time.
    Sync = 1,
    /// The application computes or sleeps until `until`. An arrival resumes the process earlier,
    /// but only so that its transport can answer.
    Busy = 2,
    /// The process polls and finds nothing, and a timer of its transport expires at `until`, or
    /// later if a timeout of the application ends at `until`.
    Timer = 3,
}

/// Body of a [`FrameKind::Wait`] frame. The process sends nothing until the emulator's answer,
/// which comes when the clock may advance to `until` or to the arrival of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The virtual time of the process when it begins to wait.
    pub now: Time,
    /// The virtual time at which the process resumes although nothing arrived.
    pub until: Time,
    /// The reason why the process waits.
    pub reason: WaitReason,
    /// The virtual time for which the process has computed since its last wait.
    pub computed: Span,
    /// The virtual time that calls of the process have taken since its last wait.
    pub overhead: Span,
}

impl Wait {
    /// Encodes the wait as a frame of the emulator protocol.
    #[must_use]
    pub fn encode(&self) -> [u8; HEAD + 32] {
        let mut frame = [0; HEAD + 32];
        frame[0] = FrameKind::Wait as u8;
        frame[1] = self.reason as u8;
        frame[4] = 32;
        let words = [self.now.0, self.until.0, self.computed.0, self.overhead.0];
        for (place, word) in frame[HEAD..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        frame
    }

    /// Decodes a [`FrameKind::Wait`] frame.
    ///
    /// # Errors
    /// The frame has another length, or an unknown reason.
    pub fn decode(frame: &Frame<'_>) -> Result<Self, FrameError> {
        let bytes: &[u8; HEAD + 32] = frame
            .bytes
            .try_into()
            .map_err(|_| FrameError::Length(frame.kind, frame.bytes.len()))?;
        let reasons = [WaitReason::Idle, WaitReason::Sync, WaitReason::Busy, WaitReason::Timer];
        let reason = reasons.into_iter().find(|reason| *reason as u8 == bytes[1]);
        let long = |at: usize| u64_at(bytes, HEAD + at * 8);
        Ok(Self {
            now: Time(long(0)),
            until: Time(long(1)),
            reason: reason.ok_or(FrameError::Kind(bytes[1]))?,
            computed: Span(long(2)),
            overhead: Span(long(3)),
        })
    }
}

/// Body of a [`FrameKind::Resume`] frame: the emulator resumes a process in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The virtual time at which the process resumes.
    pub now: Time,
    /// The emulator has passed all packets on to the process that arrive before this virtual time.
    pub horizon: Time,
}

impl Resume {
    /// Encodes the resumption as a frame of the emulator protocol.
    #[must_use]
    pub fn encode(&self) -> [u8; HEAD + 16] {
        let mut frame = [0; HEAD + 16];
        (frame[0], frame[4]) = (FrameKind::Resume as u8, 16);
        frame[HEAD..HEAD + 8].copy_from_slice(&self.now.0.to_le_bytes());
        frame[HEAD + 8..].copy_from_slice(&self.horizon.0.to_le_bytes());
        frame
    }

    /// Decodes a [`FrameKind::Resume`] frame.
    ///
    /// # Errors
    /// The frame has another length.
    pub fn decode(frame: &Frame<'_>) -> Result<Self, FrameError> {
        let bytes: &[u8; HEAD + 16] = frame
            .bytes
            .try_into()
            .map_err(|_| FrameError::Length(frame.kind, frame.bytes.len()))?;
        Ok(Self { now: Time(u64_at(bytes, HEAD)), horizon: Time(u64_at(bytes, HEAD + 8)) })
    }
}

/// A reason why the times of a process depend on the machine, although its clock is virtual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum DeviationKind {
    /// More than one thread calls the provider. The time is zero.
    Threads = 0,
    /// A thread that never calls the provider slept while the clock stood still, and advanced the clock by this time.
    HelperSleep = 1,
    /// The application set a timeout of a socket (SO_RCVTIMEO, SO_SNDTIMEO), which passes in real time.
    SocketTimeout = 2,
    /// The process waited for something outside of the network for this real time.
    Outside = 3,
    /// The process used this CPU time without a call, and the others no longer waited for it.
    LongComputation = 4,
    /// A timeout of the application passed in real time, because no function of the time library waits for it.
    RealTimeout = 5,
}

impl DeviationKind {
    const ALL: [Self; 6] = [
        Self::Threads,
        Self::HelperSleep,
        Self::SocketTimeout,
        Self::Outside,
        Self::LongComputation,
        Self::RealTimeout,
    ];

    /// Returns the time of two deviations of this kind together. Timeouts and computations count by the longest, and
    /// others by their sum.
    #[must_use]
    pub fn sum(self, one: Span, other: Span) -> Span {
        match self {
            Self::SocketTimeout | Self::LongComputation | Self::RealTimeout => one.max(other),
            Self::Threads | Self::HelperSleep | Self::Outside => {
                Span(one.0.saturating_add(other.0))
            }
        }
    }
}

/// Body of a [`FrameKind::Deviation`] frame: what makes the times of a process depend on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deviation {
    /// Kind of the deviation, which gives its time a meaning.
    pub kind: DeviationKind,
    /// Time of the deviation, virtual or real.
    pub time: Span,
}

impl Deviation {
    /// Encodes the deviation as a frame of the emulator protocol.
    #[must_use]
    pub fn encode(&self) -> [u8; HEAD + 8] {
        let mut frame = [0; HEAD + 8];
        (frame[0], frame[1], frame[4]) = (FrameKind::Deviation as u8, self.kind as u8, 8);
        frame[HEAD..].copy_from_slice(&self.time.0.to_le_bytes());
        frame
    }

    /// Decodes a [`FrameKind::Deviation`] frame.
    ///
    /// # Errors
    /// The frame has another length, or an unknown kind.
    pub fn decode(frame: &Frame<'_>) -> Result<Self, FrameError> {
        let bytes: &[u8; HEAD + 8] = frame
            .bytes
            .try_into()
            .map_err(|_| FrameError::Length(frame.kind, frame.bytes.len()))?;
        let kind = DeviationKind::ALL.into_iter().find(|kind| *kind as u8 == bytes[1]);
        let kind = kind.ok_or(FrameError::Kind(bytes[1]))?;
        Ok(Self { kind, time: Span(u64_at(bytes, HEAD)) })
    }
}

/// Bit of the welcome's flags: the emulated switches trim packets.
const TRIMS: u32 = 1;
/// Bit of the welcome's flags: the rules of virtual time follow.
const IN_VIRTUAL_TIME: u32 = 2;

impl Welcome {
    /// Encodes the welcome as a frame of the emulator protocol.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = MAGIC.to_vec();
        let flags = if self.trimming { TRIMS } else { 0 }
            | if self.virtual_time.is_some() { IN_VIRTUAL_TIME } else { 0 };
        for word in [self.host, self.hosts, self.mtu, flags] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        for word in [self.rate.0, self.base_rtt.0] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        if let Some(rules) = &self.virtual_time {
            body.extend_from_slice(&rules.encode());
        }
        encode(FrameKind::Welcome, &body)
    }

    /// Decodes a welcome from the body of a frame.
    ///
    /// # Errors
    /// The body is of another version, or is not a welcome.
    pub fn decode(body: &[u8]) -> Result<Self, FrameError> {
        let rest = body.strip_prefix(&MAGIC).ok_or(FrameError::Magic)?;
        let length = FrameError::Length(FrameKind::Welcome, HEAD + body.len());
        let (rest, rules) = rest.split_first_chunk::<32>().ok_or(length)?;
        let word =
            |at: usize| u32::from_le_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
        let virtual_time = match word(12) & IN_VIRTUAL_TIME {
            0 => None,
            _ => Some(VirtualTimeRules::decode(rules).ok_or(length)?),
        };
        Ok(Self {
            host: word(0),
            hosts: word(4),
            mtu: word(8),
            trimming: word(12) & TRIMS != 0,
            rate: Rate(u64_at(rest, 16)),
            base_rtt: Span(u64_at(rest, 24)),
            virtual_time,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(addr: &str) -> PacketFrame {
        PacketFrame {
            addr: addr.parse().unwrap(),
            entropy: 0xBEEF,
            ecn: 3,
            dscp: 46,
            control: true,
            trimmed: false,
            sent: Time(0x0123_4567_89AB_CDEF),
            overflow: 77,
            endpoint: 0x0102,
        }
    }

    #[test]
    fn packets_survive_the_round_trip_in_both_families() {
        for addr in ["10.0.0.1:4793", "[2001:db8::7]:1"] {
            let head = packet(addr);
            let mut bytes = head.encode(5).to_vec();
            bytes.extend_from_slice(b"helloX");
            let frame = Frame::first(&bytes).unwrap().unwrap();
            assert_eq!((frame.kind, frame.bytes.len()), (FrameKind::Packet, PACKET_HEAD + 5));
            assert_eq!(PacketFrame::decode(&frame), Ok((head, &b"hello"[..])));
        }
    }

    #[test]
    fn greetings_survive_the_round_trip() {
        let addr = "127.0.0.1:4793".parse().unwrap();
        for host in [None, Some(3)] {
            let job_rank = JobRank { rank: host, ranks: Some(4) };
            let hello = Hello { addr, host, process: 9, job_rank };
            let bytes = hello.encode();
            let frame = Frame::first(&bytes).unwrap().unwrap();
            assert_eq!(frame.kind, FrameKind::Hello);
            assert_eq!(Hello::decode(frame.body()), Ok(hello));
        }
        let rules = VirtualTimeRules {
            origin: Time(1 << 50),
            start: Time(1 << 51),
            shown_origin: Time(1 << 40),
            calendar: 7,
            seed: 9,
            cpu_scale: 1_500_000,
            overhead: HostOverhead::free(),
            longest_idle: Span::millis(1),
            port: 7,
            inner_rate: Rate::gbps(80),
        };
        for virtual_time in [None, Some(rules)] {
            let welcome = Welcome {
                host: 1,
                hosts: 8,
                rate: Rate(1 << 40),
                base_rtt: Span(5_000_000_000),
                mtu: 4096,
                trimming: true,
                virtual_time: virtual_time.clone(),
            };
            let bytes = welcome.encode();
            let body = Frame::first(&bytes).unwrap().unwrap().body();
            assert_eq!(Welcome::decode(body), Ok(welcome));
            let short = Welcome::decode(&body[..body.len() - 1]);
            assert!(matches!(short, Err(FrameError::Length(FrameKind::Welcome, _))));
        }
    }

    #[test]
    fn ports_belong_to_ranks() {
        assert_eq!((port_of_rank(0, 0), port_of_rank(3, 7)), (Some(1024), Some(1055)));
        let last = u32::from(MOST_RANKS) - 1;
        assert_eq!(port_of_rank(last, 7), Some(u16::MAX));
        assert_eq!((port_of_rank(last + 1, 0), port_of_rank(1 << 16, 0)), (None, None));
        assert_eq!(port_of_rank(0, 8), None);
        let ranks = [1023, 1024, 1031, 1032, u16::MAX].map(rank_of_port);
        assert_eq!(ranks, [None, Some(0), Some(0), Some(1), Some(last)]);
    }

    #[test]
    fn waits_and_answers_survive_the_round_trip() {
        for reason in [WaitReason::Idle, WaitReason::Sync, WaitReason::Busy, WaitReason::Timer] {
            let (now, until) = (Time(1 << 60), Time(u64::MAX));
            let wait = Wait { now, until, reason, computed: Span(3), overhead: Span(1 << 33) };
            let bytes = wait.encode();
            assert_eq!(Wait::decode(&Frame::first(&bytes).unwrap().unwrap()), Ok(wait));
        }
        let resume = Resume { now: Time(u64::MAX - 1), horizon: Time(256) };
        let bytes = resume.encode();
        assert_eq!(Resume::decode(&Frame::first(&bytes).unwrap().unwrap()), Ok(resume));
        let mut wait = encode(FrameKind::Wait, &[0; 32]);
        wait[1] = 4;
        let frame = Frame::first(&wait).unwrap().unwrap();
        assert_eq!(Wait::decode(&frame), Err(FrameError::Kind(4)));
        let short = encode(FrameKind::Resume, &[0; 15]);
        let frame = Frame::first(&short).unwrap().unwrap();
        assert!(matches!(Resume::decode(&frame), Err(FrameError::Length(..))));
    }

    #[test]
    fn deviations_survive_the_round_trip_and_unknown_ones_are_refused() {
        for kind in DeviationKind::ALL {
            let deviation = Deviation { kind, time: Span(1 << 40) };
            let bytes = deviation.encode();
            assert_eq!(Deviation::decode(&Frame::first(&bytes).unwrap().unwrap()), Ok(deviation));
        }
        let mut other = encode(FrameKind::Deviation, &[0; 8]);
        other[1] = DeviationKind::ALL.len() as u8;
        let frame = Frame::first(&other).unwrap().unwrap();
        assert_eq!(Deviation::decode(&frame), Err(FrameError::Kind(6)));
        let short = encode(FrameKind::Deviation, &[0; 7]);
        let frame = Frame::first(&short).unwrap().unwrap();
        assert!(matches!(Deviation::decode(&frame), Err(FrameError::Length(..))));
    }

    #[test]
    fn incomplete_frames_wait_and_invalid_ones_are_refused() {
        let bytes = packet("10.0.0.1:1").encode(0);
        for n in 0..bytes.len() {
            assert_eq!(Frame::first(&bytes[..n]), Ok(None), "{n} bytes");
        }
        assert_eq!(Frame::first(b"GET / HTTP/1.1"), Err(FrameError::Kind(b'G')));
        let mut long = bytes;
        long[4..8].copy_from_slice(&70_000u32.to_le_bytes());
        assert_eq!(Frame::first(&long), Err(FrameError::Length(FrameKind::Packet, 70_008)));
        let mut short = bytes;
        short[4..8].copy_from_slice(&35u32.to_le_bytes());
        assert_eq!(Frame::first(&short), Err(FrameError::Length(FrameKind::Packet, 43)));
        assert_eq!(Hello::decode(b"squallf0........"), Err(FrameError::Magic));
        assert_eq!(Hello::decode(&MAGIC), Err(FrameError::Address));
        let hello = Hello {
            addr: "10.0.0.1:1".parse().unwrap(),
            host: None,
            process: 1,
            job_rank: JobRank::default(),
        };
        let hello = hello.encode();
        assert!(matches!(
            Hello::decode(&hello[HEAD..hello.len() - 1]),
            Err(FrameError::Length(FrameKind::Hello, _))
        ));
        let mut odd = bytes;
        odd[24 + 18] = 5;
        let frame = Frame::first(&odd).unwrap().unwrap();
        assert_eq!(PacketFrame::decode(&frame), Err(FrameError::Address));
        // An IPv4 address that is not one inside.
        odd[24 + 18] = 4;
        odd[24] = 0x20;
        let frame = Frame::first(&odd).unwrap().unwrap();
        assert_eq!(PacketFrame::decode(&frame), Err(FrameError::Address));
    }
}
