//! The protocol between endpoints and the emulator.
//!
//! Both sides send a stream of frames, little endian. Every frame begins with the same eight bytes:
//! kind, flags, a 16-bit number, and the length of the rest. Packets ([`PacketFrame`]) have a header of
//! [`PACKET_HEAD`] bytes; the other frames have a short body.
//!
//! ```text
//!  0      1      2             4                           8
//!  +------+------+-------------+---------------------------+
//!  | kind | flags| number      | bytes that follow         |
//!  +------+------+-------------+---------------------------+
//!  PACKET:  number = the UDP source port it would have (its entropy)
//!   8  sent: CLOCK_MONOTONIC nanoseconds (u64)
//!  16  overflow: datagrams the emulator dropped because this endpoint did not read (u32)
//!  20  DSCP (u8), 21 zero, 22 zero
//!  24  address (20 bytes: IP as IPv6 or IPv4-mapped 16, port 2, 4 or 6, zero)
//!  44  the UDP payload
//! ```
//!
//! In a packet to the emulator the address is the destination. In a packet from the emulator it is the
//! source, with the entropy as its port. Both ends live on one host, so they share the monotonic clock.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::base::{Rate, Span, Time};

/// First bytes of a hello and a welcome. They detect other programs and other versions.
pub const MAGIC: [u8; 8] = *b"squallf2";
/// Number of bytes with which every frame begins.
pub const HEAD: usize = 8;
/// Number of bytes before the UDP payload in the frame of a packet.
pub const PACKET_HEAD: usize = 44;
/// Number of bytes of an encoded address.
pub const ADDRESS: usize = 20;
/// Largest length of a frame: a UDP datagram and its header.
pub const MAX_FRAME: usize = PACKET_HEAD + 65_535;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// First frame from the endpoint to the emulator: [`Hello`].
    Hello = 1,
    /// The emulator's answer to a hello: [`Welcome`].
    Welcome = 2,
    /// The emulator's refusal, with the reason as text. The connection ends.
    Refused = 3,
    /// A packet in either direction: [`PacketFrame`].
    Packet = 4,
    /// Frame from the emulator to an endpoint: no endpoint has this address.
    Nobody = 5,
    /// First frame from a command line to the emulator: a command as text.
    Command = 6,
    /// The emulator's answer to a command, as text. The connection ends.
    Reply = 7,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<Self> {
        use FrameKind::{Command, Hello, Nobody, Packet, Refused, Reply, Welcome};
        [Hello, Welcome, Refused, Packet, Nobody, Command, Reply]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// The reason why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// No frame begins with this byte.
    Kind(u8),
    /// A frame of this kind cannot have this length.
    Length(FrameKind, usize),
    /// The conversation does not begin with [`MAGIC`]: the other side is another program or another
    /// version.
    Magic,
    /// The bytes are not an IP address.
    Address,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(byte) => write!(f, "no frame begins with {byte:#04x}"),
            Self::Length(kind, len) => write!(f, "a {kind:?} frame cannot have {len} bytes"),
            Self::Magic => f.write_str("the other side is not an emulator of this version"),
            Self::Address => f.write_str("a frame has an invalid IP address"),
        }
    }
}

impl std::error::Error for FrameError {}

/// A complete frame whose contents have not been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// All bytes of the frame, including the first eight.
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

    /// Returns the bytes behind the first eight.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[HEAD..]
    }
}

/// Encodes a frame that is not a packet.
#[must_use]
pub fn encode(kind: FrameKind, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind as u8, 0, 0, 0];
    let len = body.len().min(MAX_FRAME - HEAD);
    frame.extend_from_slice(&(len as u32).to_le_bytes());
    frame.extend_from_slice(&body[..len]);
    frame
}

/// Encodes an address.
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

/// The header of a packet's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketFrame {
    /// Destination of a packet to the emulator; source of a packet from it, with the entropy as
    /// port.
    pub addr: SocketAddr,
    /// Entropy of the packet, which would be its UDP source port.
    pub entropy: u16,
    /// ECN field of the IP header.
    pub ecn: u8,
    /// DSCP of the IP header.
    pub dscp: u8,
    /// The packet has the control class: switches queue it with priority and never trim it.
    pub control: bool,
    /// A switch cut off the payload.
    pub trimmed: bool,
    /// Time at which the sender sent the packet (CLOCK_MONOTONIC).
    pub sent: Time,
    /// Number of datagrams dropped because the receiver did not read, modulo 2^32.
    pub overflow: u32,
}

const CONTROL: u8 = 1 << 2;
const TRIMMED: u8 = 1 << 3;

impl PacketFrame {
    /// Encodes the header of a frame with `payload` bytes.
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
        };
        Ok((decoded, payload))
    }
}

/// The first frame of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Address of the endpoint, to which peers send.
    pub addr: SocketAddr,
    /// Host of the topology that the endpoint asks for; `None` means the next free host.
    pub host: Option<u32>,
    /// Process ID, for listings.
    pub process: u32,
    /// Rank of the process, as far as its launcher reports it.
    pub member: JobRank,
}

/// Rank of an endpoint's process in a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JobRank {
    /// Rank of the process.
    pub rank: Option<u32>,
    /// Number of ranks of the job.
    pub ranks: Option<u32>,
}

impl Hello {
    /// Encodes the hello as a frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = MAGIC.to_vec();
        body.extend_from_slice(&encode_address(self.addr));
        let known = |number: Option<u32>| number.unwrap_or(u32::MAX);
        let JobRank { rank, ranks } = self.member;
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
        let member = JobRank { rank: known(8), ranks: known(12) };
        Ok(Self { addr, host: known(0), process: word(4), member })
    }
}

/// The emulator's answer to an endpoint that it accepts: a description of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Host of the topology that the endpoint has become.
    pub host: u32,
    /// Number of hosts.
    pub hosts: u32,
    /// Rate of the host's link, after scaling.
    pub rate: Rate,
    /// Round-trip time between the farthest hosts without load.
    pub base_rtt: Span,
    /// Largest UDP payload of a packet, in bytes.
    pub mtu: u32,
    /// Switches trim packets instead of dropping them.
    pub trimming: bool,
}

impl Welcome {
    /// Encodes the welcome as a frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = MAGIC.to_vec();
        for word in [self.host, self.hosts, self.mtu, u32::from(self.trimming)] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        for word in [self.rate.0, self.base_rtt.0] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        encode(FrameKind::Welcome, &body)
    }

    /// Decodes a welcome from the body of a frame.
    ///
    /// # Errors
    /// The body is of another version, or is not a welcome.
    pub fn decode(body: &[u8]) -> Result<Self, FrameError> {
        let rest = body.strip_prefix(&MAGIC).ok_or(FrameError::Magic)?;
        let rest: &[u8; 32] =
            rest.first_chunk().ok_or(FrameError::Length(FrameKind::Welcome, HEAD + body.len()))?;
        let word =
            |at: usize| u32::from_le_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Ok(Self {
            host: word(0),
            hosts: word(4),
            mtu: word(8),
            trimming: word(12) != 0,
            rate: Rate(long(16)),
            base_rtt: Span(long(24)),
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
            let member = JobRank { rank: host, ranks: Some(4) };
            let hello = Hello { addr, host, process: 9, member };
            let bytes = hello.encode();
            let frame = Frame::first(&bytes).unwrap().unwrap();
            assert_eq!(frame.kind, FrameKind::Hello);
            assert_eq!(Hello::decode(frame.body()), Ok(hello));
        }
        let welcome = Welcome {
            host: 1,
            hosts: 8,
            rate: Rate(1 << 40),
            base_rtt: Span(5_000_000_000),
            mtu: 4096,
            trimming: true,
        };
        let bytes = welcome.encode();
        assert_eq!(Welcome::decode(Frame::first(&bytes).unwrap().unwrap().body()), Ok(welcome));
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
            member: JobRank::default(),
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
