//! What endpoints and the emulator say to each other over the socket.
//!
//! A stream of frames, little endian. Every frame begins with the same eight bytes: kind, flags, a
//! 16-bit number, and the length of what follows. Packets ([`PacketFrame`]) have a head of
//! [`PACKET_HEAD`] bytes; the other frames carry a short body.
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
//! To the emulator the address is the destination; from the emulator it is the source, with the entropy
//! as its port. Both ends live on one host, so the clock is one clock.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::base::{Rate, Span, Time};

/// First word of a conversation, so that neither side takes something else for the other.
pub const MAGIC: [u8; 8] = *b"squallf2";
/// Bytes every frame begins with.
pub const HEAD: usize = 8;
/// Bytes before the UDP payload of a packet's frame.
pub const PACKET_HEAD: usize = 44;
/// Bytes of an encoded address.
pub const ADDRESS: usize = 20;
/// Longest frame: a UDP datagram and its head.
pub const MAX_FRAME: usize = PACKET_HEAD + 65_535;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Endpoint to emulator, first: [`Hello`].
    Hello = 1,
    /// Emulator to endpoint, the answer: [`Welcome`].
    Welcome = 2,
    /// Emulator to anyone: no, with the reason as text. The connection ends.
    Refused = 3,
    /// Either way: [`PacketFrame`].
    Packet = 4,
    /// Emulator to endpoint: nobody is attached under this address.
    Nobody = 5,
    /// Command line to emulator, first: a command as text.
    Command = 6,
    /// Emulator to command line: the answer as text. The connection ends.
    Reply = 7,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        use Kind::{Command, Hello, Nobody, Packet, Refused, Reply, Welcome};
        [Hello, Welcome, Refused, Packet, Nobody, Command, Reply]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// No frame begins with this byte.
    Kind(u8),
    /// A frame of this kind is not this long.
    Length(Kind, usize),
    /// The conversation does not begin with [`MAGIC`]: another program, or another version.
    Magic,
    /// Not an IP address.
    Address,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(byte) => write!(f, "no frame begins with {byte:#04x}"),
            Self::Length(kind, len) => write!(f, "a {kind:?} frame cannot have {len} bytes"),
            Self::Magic => f.write_str("the other side is no emulator of this version"),
            Self::Address => f.write_str("a frame holds something that is no IP address"),
        }
    }
}

impl std::error::Error for FrameError {}

/// A frame that is complete, not yet looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it is.
    pub kind: Kind,
    /// All of its bytes, the common eight included.
    pub bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The frame at the front of `bytes`; `None` while it is not complete.
    ///
    /// # Errors
    /// What begins there is no frame; the conversation cannot go on.
    pub fn first(bytes: &'a [u8]) -> Result<Option<Self>, FrameError> {
        let Some(&byte) = bytes.first() else { return Ok(None) };
        let kind = Kind::from_byte(byte).ok_or(FrameError::Kind(byte))?;
        let Some(len) = bytes.get(4..8) else { return Ok(None) };
        let len = u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize;
        let whole = HEAD.saturating_add(len);
        let least = if kind == Kind::Packet { PACKET_HEAD } else { HEAD };
        if whole < least || whole > MAX_FRAME {
            return Err(FrameError::Length(kind, whole));
        }
        Ok(bytes.get(..whole).map(|bytes| Self { kind, bytes }))
    }

    /// What follows the common eight bytes.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[HEAD..]
    }
}

/// A frame of another kind than a packet.
#[must_use]
pub fn encode(kind: Kind, body: &[u8]) -> Vec<u8> {
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
/// Too short, or of an unknown family.
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

/// The head of a packet's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketFrame {
    /// Destination (to the emulator) or source with the entropy as port (from it).
    pub addr: SocketAddr,
    /// What would be the UDP source port.
    pub entropy: u16,
    /// ECN field of the IP header.
    pub ecn: u8,
    /// DSCP of the IP header.
    pub dscp: u8,
    /// Of the control class: the switches' priority lane, never trimmed.
    pub control: bool,
    /// A switch cut its payload.
    pub trimmed: bool,
    /// When the sender handed it over (CLOCK_MONOTONIC).
    pub sent: Time,
    /// Datagrams dropped because the receiver did not read, modulo 2^32.
    pub overflow: u32,
}

const CONTROL: u8 = 1 << 2;
const TRIMMED: u8 = 1 << 3;

impl PacketFrame {
    /// The head of a frame that carries `payload` bytes.
    #[must_use]
    pub fn encode(&self, payload: usize) -> [u8; PACKET_HEAD] {
        let mut out = [0; PACKET_HEAD];
        out[0] = Kind::Packet as u8;
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

    /// Head and UDP payload of a [`Kind::Packet`] frame.
    ///
    /// # Errors
    /// The address is none.
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

/// An endpoint's first words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Its address, where peers send to.
    pub addr: SocketAddr,
    /// The host of the topology it wants to be, or the next free one.
    pub host: Option<u32>,
    /// Its process, for the listing.
    pub process: u32,
    /// Where in its job it is, as far as a launcher says so.
    pub member: Member,
}

/// Where in a job an endpoint is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Member {
    /// The rank of its process.
    pub rank: Option<u32>,
    /// How many ranks there are.
    pub ranks: Option<u32>,
}

impl Hello {
    /// As a frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = MAGIC.to_vec();
        body.extend_from_slice(&encode_address(self.addr));
        let known = |number: Option<u32>| number.unwrap_or(u32::MAX);
        let Member { rank, ranks } = self.member;
        for word in [known(self.host), self.process, known(rank), known(ranks)] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        encode(Kind::Hello, &body)
    }

    /// From a frame's body.
    ///
    /// # Errors
    /// Another version's, or not a greeting at all.
    pub fn decode(body: &[u8]) -> Result<Self, FrameError> {
        let rest = body.strip_prefix(&MAGIC).ok_or(FrameError::Magic)?;
        let addr = decode_address(rest)?;
        let words: &[u8; 16] = rest[ADDRESS..]
            .first_chunk()
            .ok_or(FrameError::Length(Kind::Hello, HEAD + body.len()))?;
        let word = |at: usize| {
            u32::from_le_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]])
        };
        let known = |at: usize| Some(word(at)).filter(|number| *number != u32::MAX);
        let member = Member { rank: known(8), ranks: known(12) };
        Ok(Self { addr, host: known(0), process: word(4), member })
    }
}

/// What the emulator tells an endpoint that it takes: what the endpoint may know of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Which host of the topology it is now.
    pub host: u32,
    /// How many hosts there are.
    pub hosts: u32,
    /// Rate of the host's link, as scaled.
    pub rate: Rate,
    /// Unloaded round-trip time between the farthest hosts.
    pub base_rtt: Span,
    /// Largest UDP payload of a packet.
    pub mtu: u32,
    /// Switches trim packets instead of dropping them.
    pub trimming: bool,
}

impl Welcome {
    /// As a frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = MAGIC.to_vec();
        for word in [self.host, self.hosts, self.mtu, u32::from(self.trimming)] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        for word in [self.rate.0, self.base_rtt.0] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        encode(Kind::Welcome, &body)
    }

    /// From a frame's body.
    ///
    /// # Errors
    /// Another version's, or something else.
    pub fn decode(body: &[u8]) -> Result<Self, FrameError> {
        let rest = body.strip_prefix(&MAGIC).ok_or(FrameError::Magic)?;
        let rest: &[u8; 32] =
            rest.first_chunk().ok_or(FrameError::Length(Kind::Welcome, HEAD + body.len()))?;
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
            assert_eq!((frame.kind, frame.bytes.len()), (Kind::Packet, PACKET_HEAD + 5));
            assert_eq!(PacketFrame::decode(&frame), Ok((head, &b"hello"[..])));
        }
    }

    #[test]
    fn greetings_survive_the_round_trip() {
        let addr = "127.0.0.1:4793".parse().unwrap();
        for host in [None, Some(3)] {
            let member = Member { rank: host, ranks: Some(4) };
            let hello = Hello { addr, host, process: 9, member };
            let bytes = hello.encode();
            let frame = Frame::first(&bytes).unwrap().unwrap();
            assert_eq!(frame.kind, Kind::Hello);
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
    fn what_is_cut_short_waits_and_what_is_no_frame_is_refused() {
        let bytes = packet("10.0.0.1:1").encode(0);
        for n in 0..bytes.len() {
            assert_eq!(Frame::first(&bytes[..n]), Ok(None), "{n} bytes");
        }
        assert_eq!(Frame::first(b"GET / HTTP/1.1"), Err(FrameError::Kind(b'G')));
        let mut long = bytes;
        long[4..8].copy_from_slice(&70_000u32.to_le_bytes());
        assert_eq!(Frame::first(&long), Err(FrameError::Length(Kind::Packet, 70_008)));
        let mut short = bytes;
        short[4..8].copy_from_slice(&35u32.to_le_bytes());
        assert_eq!(Frame::first(&short), Err(FrameError::Length(Kind::Packet, 43)));
        assert_eq!(Hello::decode(b"squallf0........"), Err(FrameError::Magic));
        assert_eq!(Hello::decode(&MAGIC), Err(FrameError::Address));
        let hello = Hello {
            addr: "10.0.0.1:1".parse().unwrap(),
            host: None,
            process: 1,
            member: Member::default(),
        };
        let hello = hello.encode();
        assert!(matches!(
            Hello::decode(&hello[HEAD..hello.len() - 1]),
            Err(FrameError::Length(Kind::Hello, _))
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
