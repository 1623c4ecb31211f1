//! Records of capture files, in the two formats that `squall_net::pcap` and tcpdump write: [pcap]
//! and [pcapng], in either byte order.
//!
//! A record that is not changed is written as it was read. So times and comments stay, and what
//! this module does not know.
//!
//! [pcap]: https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-04.html
//! [pcapng]: https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-03.html

use std::io::{self, Read};
use std::ops::Range;

use thiserror::Error;

/// Longest record that is read, in bytes: far more than any packet. A longer one is damaged.
const LONGEST: usize = 16 << 20;
/// Bytes of the file header of pcap, and of the header before each of its packets.
const PCAP_HEADER: usize = 24;
const PCAP_RECORD: usize = 16;
/// Types of blocks of pcapng (section header, interface, packet), and the bytes of a packet's block
/// before the packet itself.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const PACKET_HEADER: usize = 28;
/// Byte order mark of a pcapng section, as a number in the byte order of the program that wrote it.
const ORDER: u32 = 0x1a2b_3c4d;

/// The reason why a file cannot be read as a capture.
#[derive(Debug, Error)]
pub(super) enum CaptureError {
    /// The operating system reports an error.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// The file begins neither like pcap nor like pcapng.
    #[error("this is neither pcap nor pcapng; name a file that FI_SQUALL_PCAP or tcpdump wrote")]
    Format,
    /// A length in the file contradicts the format.
    #[error("the record at byte {0} has an impossible length; copy the file again")]
    Damaged(u64),
}

/// The header that the frames of an interface begin with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinkType {
    /// Frames begin with an IP header, as in captures of FI_SQUALL_PCAP.
    Ip,
    /// Frames begin with an Ethernet header.
    Ethernet,
    /// Frames begin with a header that this program does not read.
    Other,
}

impl LinkType {
    /// Returns the link type of a number in the registry of tcpdump.org (LINKTYPE_ values).
    const fn of(number: u32) -> Self {
        // The upper half of the field of pcap describes the frame check sequence.
        match number & 0xffff {
            1 => Self::Ethernet,
            101 | 228 | 229 => Self::Ip,
            _ => Self::Other,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Pcap,
    Pcapng,
}

/// A record of a capture file: a packet, or anything else.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// Bytes of the whole record, headers and padding included.
    pub(super) bytes: Vec<u8>,
    frame: Option<Frame>,
    format: Format,
    big_endian: bool,
}

/// Where a record holds the bytes of its packet.
#[derive(Clone, Debug)]
struct Frame {
    range: Range<usize>,
    link: LinkType,
}

impl Record {
    /// Returns the captured frame and its link type, if the record is a packet. The end of the
    /// frame may be missing.
    pub(super) fn frame(&self) -> Option<(LinkType, &[u8])> {
        let Frame { range, link } = self.frame.as_ref()?;
        Some((*link, &self.bytes[range.clone()]))
    }

    /// Replaces the frame that [`Self::frame`] returns, and adapts the lengths in the record.
    pub(super) fn replace_frame(&mut self, new: &[u8]) {
        let Some(Frame { range, .. }) = &mut self.frame else { return };
        let padding = |len: usize| len.next_multiple_of(4) - len;
        let (from, mut to) = (range.start, range.end);
        *range = from..from + new.len();
        let Self { bytes, format, big_endian, .. } = self;
        let put = |bytes: &mut [u8], at: usize, value: usize| {
            // The new frame is not longer than the former, whose length has 32 bits.
            let value = value as u32;
            let value = if *big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
            bytes[at..at + 4].copy_from_slice(&value);
        };
        let mut put_in = new.to_vec();
        if *format == Format::Pcapng {
            to += padding(to - from);
            put_in.resize(new.len() + padding(new.len()), 0);
        }
        bytes.splice(from..to, put_in);
        put(bytes, from - 8, new.len());
        put(bytes, from - 4, new.len());
        if *format == Format::Pcapng {
            let total = bytes.len();
            put(bytes, 4, total);
            put(bytes, total - 4, total);
        }
    }
}

/// A reader of the records of a capture file.
pub(super) struct CaptureReader<R> {
    input: R,
    format: Format,
    big_endian: bool,
    /// Link types of the interfaces in the file, by number; pcap has one.
    links: Vec<LinkType>,
    /// Number of bytes that were read from the file.
    position: u64,
    /// First record of the file, which was read to recognise the format and not returned yet.
    first: Option<Record>,
    /// True if the file ends within a record.
    pub(super) cut: bool,
}

impl<R: Read> CaptureReader<R> {
    /// Reads the beginning of a capture.
    ///
    /// # Errors
    /// The input cannot be read, or is no capture.
    pub(super) fn new(input: R) -> Result<Self, CaptureError> {
        let mut reader = Self {
            input,
            format: Format::Pcap,
            big_endian: false,
            links: Vec::new(),
            position: 0,
            first: None,
            cut: false,
        };
        let mut bytes = Vec::new();
        if !reader.read(&mut bytes, 12)? {
            return Err(CaptureError::Format);
        }
        if reader.word(&bytes, 0) == SECTION {
            reader.format = Format::Pcapng;
            let section = reader.read_block(bytes)?;
            reader.first = section;
            return Ok(reader);
        }
        // Timestamps in microseconds or nanoseconds.
        let magic = [0xa1b2_c3d4, 0xa1b2_3c4d];
        reader.big_endian = magic.map(u32::swap_bytes).contains(&reader.word(&bytes, 0));
        if !magic.contains(&reader.word(&bytes, 0)) || !reader.read(&mut bytes, PCAP_HEADER - 12)? {
            return Err(CaptureError::Format);
        }
        reader.links = vec![LinkType::of(reader.word(&bytes, 20))];
        reader.first = Some(reader.record(bytes, None));
        Ok(reader)
    }

    /// Reads the next record. Returns `None` at the end of the file.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged here.
    pub(super) fn next(&mut self) -> Result<Option<Record>, CaptureError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let mut bytes = Vec::new();
        match self.format {
            Format::Pcapng => {
                let more = self.read(&mut bytes, 12)?;
                if more { self.read_block(bytes) } else { Ok(None) }
            }
            Format::Pcap => {
                if !self.read(&mut bytes, PCAP_RECORD)? {
                    return Ok(None);
                }
                let len = self.checked(self.word(&bytes, 8) as usize)?;
                if !self.read(&mut bytes, len)? {
                    return Ok(None);
                }
                let range = PCAP_RECORD..PCAP_RECORD + len;
                let frame = Frame { range, link: self.links[0] };
                Ok(Some(self.record(bytes, Some(frame))))
            }
        }
    }

    /// Reads the rest of a block of pcapng, of which `bytes` are the first 12.
    fn read_block(&mut self, mut bytes: Vec<u8>) -> Result<Option<Record>, CaptureError> {
        let kind = self.word(&bytes, 0);
        if kind == SECTION {
            let order = [bytes[8], bytes[9], bytes[10], bytes[11]];
            self.big_endian = u32::from_be_bytes(order) == ORDER;
            if self.word(&bytes, 8) != ORDER {
                return Err(CaptureError::Format);
            }
            self.links.clear();
        }
        let len = self.checked(self.word(&bytes, 4) as usize)?;
        let least = match kind {
            SECTION => 28,
            INTERFACE => 20,
            PACKET => PACKET_HEADER + 4,
            _ => 12,
        };
        if len < least || len % 4 != 0 {
            return Err(CaptureError::Damaged(self.position));
        }
        if !self.read(&mut bytes, len - 12)? {
            return Ok(None);
        }
        if kind == SECTION {
            // The length of the section is unknown from here on, because its packets may change.
            bytes[16..24].fill(0xff);
        }
        if kind == INTERFACE {
            let half = [bytes[8], bytes[9]];
            let number =
                if self.big_endian { u16::from_be_bytes(half) } else { u16::from_le_bytes(half) };
            self.links.push(LinkType::of(number.into()));
        }
        if kind != PACKET {
            return Ok(Some(self.record(bytes, None)));
        }
        let (interface, captured) = (self.word(&bytes, 8), self.word(&bytes, 20) as usize);
        if captured > len - PACKET_HEADER - 4 {
            return Err(CaptureError::Damaged(self.position));
        }
        let link = self.links.get(interface as usize).copied();
        let link = link.ok_or(CaptureError::Damaged(self.position))?;
        let range = PACKET_HEADER..PACKET_HEADER + captured;
        Ok(Some(self.record(bytes, Some(Frame { range, link }))))
    }

    fn record(&self, bytes: Vec<u8>, frame: Option<Frame>) -> Record {
        Record { bytes, frame, format: self.format, big_endian: self.big_endian }
    }

    fn checked(&self, len: usize) -> Result<usize, CaptureError> {
        if len <= LONGEST { Ok(len) } else { Err(CaptureError::Damaged(self.position)) }
    }

    /// Appends the next `len` bytes to `bytes`. Returns false at the end of the file, and notes
    /// whether it ends within a record.
    fn read(&mut self, bytes: &mut Vec<u8>, len: usize) -> io::Result<bool> {
        let got = self.input.by_ref().take(len as u64).read_to_end(bytes)?;
        self.position += got as u64;
        self.cut |= got < len && !bytes.is_empty();
        Ok(got == len)
    }

    fn word(&self, bytes: &[u8], at: usize) -> u32 {
        let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(value: u32, big: bool) -> [u8; 4] {
        if big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn words(values: &[u32], big: bool) -> Vec<u8> {
        values.iter().flat_map(|value| word(*value, big)).collect()
    }

    /// A capture with one packet of six bytes and one of which one byte was captured.
    fn pcap(big: bool) -> Vec<u8> {
        let mut file = words(&[0xa1b2_c3d4, 0, 0, 0, 0x4_0000, 101, 7, 8, 6, 6], big);
        file.extend_from_slice(b"packet");
        file.extend(words(&[7, 8, 1, 6], big));
        file.push(b'p');
        file
    }

    /// A capture with a packet of six bytes, with options behind it, and a block of unknown type.
    fn pcapng(big: bool) -> Vec<u8> {
        let mut file = words(&[SECTION, 28, ORDER, 1, u32::MAX, u32::MAX, 28], big);
        file.extend(words(&[INTERFACE, 20], big));
        file.extend(if big { [0, 1, 0, 0] } else { [1, 0, 0, 0] });
        file.extend(words(&[0, 20], big));
        file.extend(words(&[PACKET, 48, 0, 1, 2, 6, 6], big));
        file.extend_from_slice(b"packet\0\0");
        file.extend_from_slice(b"options!");
        file.extend(words(&[48, 0xbad, 12, 12], big));
        file
    }

    fn records(file: &[u8]) -> (Vec<Record>, bool) {
        let mut reader = CaptureReader::new(file).unwrap();
        let mut records = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            records.push(record);
        }
        (records, reader.cut)
    }

    #[test]
    fn records_are_written_as_they_were_read() {
        for big in [false, true] {
            let files = [
                (pcap(big), 3, vec![(LinkType::Ip, &b"packet"[..]), (LinkType::Ip, b"p")]),
                (pcapng(big), 4, vec![(LinkType::Ethernet, b"packet")]),
            ];
            for (file, count, expected) in files {
                let (records, cut) = records(&file);
                let all: Vec<u8> = records.iter().flat_map(|r| r.bytes.clone()).collect();
                assert_eq!((all == file, records.len(), cut), (true, count, false));
                let frames: Vec<_> = records.iter().filter_map(Record::frame).collect();
                assert_eq!(frames, expected);
            }
        }
    }

    #[test]
    fn a_frame_is_replaced_with_its_lengths() {
        for big in [false, true] {
            for (file, at) in [(pcap(big), 1), (pcapng(big), 2)] {
                let (mut records, _) = records(&file);
                for new in [&b"new"[..], b"", b"12345"] {
                    records[at].replace_frame(new);
                    let changed: Vec<u8> = records.iter().flat_map(|r| r.bytes.clone()).collect();
                    let (again, cut) = self::records(&changed);
                    assert_eq!((again.len(), cut), (records.len(), false));
                    assert_eq!(again[at].frame().unwrap().1, new);
                    let options = changed.windows(8).any(|part| part == b"options!");
                    assert_eq!(options, file.len() > 100);
                }
            }
        }
    }

    #[test]
    fn a_file_that_ends_early_is_read_as_far_as_it_goes() {
        for file in [pcap(false), pcapng(true)] {
            let (whole, _) = records(&file);
            let mut boundaries = vec![0];
            whole.iter().for_each(|r| boundaries.push(boundaries.last().unwrap() + r.bytes.len()));
            for len in boundaries[1]..file.len() {
                let (records, cut) = records(&file[..len]);
                let complete = boundaries[1..].iter().filter(|end| **end <= len).count();
                assert_eq!((records.len(), cut), (complete, !boundaries.contains(&len)), "{len}");
            }
        }
    }

    #[test]
    fn other_files_and_impossible_lengths_are_refused() {
        for other in [&b""[..], b"no", b"#!/bin/sh and more text", &pcap(false)[..20]] {
            assert!(matches!(CaptureReader::new(other), Err(CaptureError::Format)));
        }
        let mut file = pcap(false);
        file[32..36].fill(0xff);
        let mut reader = CaptureReader::new(&file[..]).unwrap();
        reader.next().unwrap();
        assert!(matches!(reader.next(), Err(CaptureError::Damaged(40))));
        // Lengths of the interface and the packet, the packet's interface, and the captured length.
        for (at, value) in [(32, 16), (32, 21), (52, 24), (56, 1), (68, 20)] {
            let mut file = pcapng(false);
            file[at..at + 4].copy_from_slice(&word(value, false));
            let mut reader = CaptureReader::new(&file[..]).unwrap();
            let end = (0..4).find_map(|_| reader.next().err());
            assert!(matches!(end, Some(CaptureError::Damaged(_))), "{at}");
        }
    }
}
