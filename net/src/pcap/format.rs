//! The two formats of a capture: [pcap] with nanoseconds and [pcapng], which says more of each packet.
//!
//! [pcap]: https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-04.html
//! [pcapng]: https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-03.html

use std::io::{self, Write};
use std::path::Path;

/// Link type of both capture formats: the packets begin with their IP header.
const RAW_IP: u32 = 101;
/// Snapshot length in the file header, in bytes: longer than any packet.
const LONGEST: u32 = 0x0004_0000;

/// The format of a packet capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CaptureFormat {
    /// The classic pcap format: packets and their times.
    Pcap,
    /// The pcapng format: packets with direction and comments.
    Pcapng,
}

/// Facts about a captured packet that are not in its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remark {
    /// The port under capture sent the packet.
    Sent {
        /// Number of the path on which the packet was sent.
        path: u16,
        /// The packet was sent with the control traffic class.
        control: bool,
    },
    /// The port under capture received the packet.
    Received {
        /// A switch marked the packet Congestion Experienced (ECN).
        marked: bool,
        /// A switch cut off the packet's payload (trimmed it).
        trimmed: bool,
    },
}

impl Remark {
    /// Returns a comment on the packet for the capture file, if there is something to note.
    fn comment(self) -> Option<String> {
        match self {
            Self::Sent { path, control: false } => Some(format!("path {path}")),
            Self::Sent { path, control: true } => Some(format!("path {path}, control")),
            Self::Received { marked: false, trimmed: false } => None,
            Self::Received { marked: true, trimmed: false } => {
                Some("congestion experienced".into())
            }
            Self::Received { marked: false, trimmed: true } => Some("trimmed by a switch".into()),
            Self::Received { marked: true, trimmed: true } => {
                Some("congestion experienced, trimmed by a switch".into())
            }
        }
    }

    /// Returns the packet's direction in the encoding of the pcapng option `epb_flags`.
    const fn direction(self) -> u32 {
        match self {
            Self::Received { .. } => 1,
            Self::Sent { .. } => 2,
        }
    }
}

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const OPT_COMMENT: u16 = 1;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;

impl CaptureFormat {
    /// Returns the capture format that the extension of a file name selects.
    pub(super) fn of_file(path: &Path) -> Self {
        match path.extension() {
            Some(extension) if extension == "pcapng" => Self::Pcapng,
            _ => Self::Pcap,
        }
    }

    /// Writes the header of the capture file; `whose` describes the endpoint.
    pub(super) fn write_header(self, whose: &str, to: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Pcap => {
                // Magic number of the nanosecond format, version 2.4, time zone 0, accuracy 0.
                for field in [0xa1b2_3c4d, 0x0004_0002, 0, 0, LONGEST, RAW_IP] {
                    to.write_all(&field.to_le_bytes())?;
                }
                Ok(())
            }
            Self::Pcapng => {
                let mut section = Block::new(SECTION);
                // Byte order mark, version 1.0, section of unknown length.
                section.words(&[0x1a2b_3c4d, 0x0000_0001, u32::MAX, u32::MAX]);
                let program = concat!("squall ", env!("CARGO_PKG_VERSION"));
                section.option(SHB_USERAPPL, program.as_bytes());
                section.option(OPT_COMMENT, whose.as_bytes());
                section.write(to)?;
                let mut interface = Block::new(INTERFACE);
                interface.words(&[RAW_IP, LONGEST]);
                interface.option(IF_NAME, b"squall");
                // The resolution of timestamps is 10^-9 s.
                interface.option(IF_TSRESOL, &[9]);
                interface.write(to)
            }
        }
    }

    /// Writes a packet that consists of `headers` and `payload`, at `at` nanoseconds since 1970.
    pub(super) fn write_packet(
        self,
        at: u64,
        (headers, payload): (&[u8], &[u8]),
        remark: Remark,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        let total = (headers.len() + payload.len()) as u32;
        match self {
            Self::Pcap => {
                let (seconds, rest) = ((at / 1_000_000_000) as u32, (at % 1_000_000_000) as u32);
                for field in [seconds, rest, total, total] {
                    to.write_all(&field.to_le_bytes())?;
                }
                to.write_all(headers)?;
                to.write_all(payload)
            }
            Self::Pcapng => {
                let mut block = Block::new(PACKET);
                block.words(&[0, (at >> 32) as u32, at as u32, total, total]);
                block.bytes(&[headers, payload]);
                block.option(EPB_FLAGS, &remark.direction().to_le_bytes());
                if let Some(comment) = remark.comment() {
                    block.option(OPT_COMMENT, comment.as_bytes());
                }
                block.write(to)
            }
        }
    }
}

/// A block of a pcapng file: type, length, contents, options, and the length again.
struct Block {
    bytes: Vec<u8>,
    options: bool,
}

impl Block {
    fn new(kind: u32) -> Self {
        // The length is filled in when the block is complete.
        let mut block = Self { bytes: Vec::with_capacity(128), options: false };
        block.words(&[kind, 0]);
        block
    }

    fn words(&mut self, words: &[u32]) {
        words.iter().for_each(|word| self.bytes.extend_from_slice(&word.to_le_bytes()));
    }

    /// Appends bytes to a pcapng block, padded to a multiple of four.
    fn bytes(&mut self, parts: &[&[u8]]) {
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.options = true;
        // The length of an option has 16 bits, and a command line may be longer.
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        self.bytes.extend_from_slice(&code.to_le_bytes());
        self.bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.bytes(&[value]);
    }

    fn write(mut self, to: &mut dyn Write) -> io::Result<()> {
        if self.options {
            self.words(&[0]);
        }
        let length = (self.bytes.len() + 4) as u32;
        self.words(&[length]);
        self.bytes[4..8].copy_from_slice(&length.to_le_bytes());
        to.write_all(&self.bytes)
    }
}
