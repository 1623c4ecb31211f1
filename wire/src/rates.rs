//! Rate packets (s-PERC). An endpoint sends one along the path of a flow, each link on the path
//! writes an entry into it, and the receiver sends it back. UE has no such packet; `docs/wire.md`
//! gives its layout, and [`RateHead`] and [`RateEntry`] the fields in their order.
//!
//! Links write into packets on the path of the data ([`RateStage::Asks`], [`RateStage::Leaves`]) and
//! do not change those on the way back.

use core::fmt;

use crate::codes::PdsType;
use crate::error::ParseError;
use crate::view::{be16, be32};

/// A rate in a rate packet: b/s in single precision (IEEE 754 binary32), neither negative nor NaN.
/// It may be infinite where the field's documentation says so.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LinkRate(u32);

impl LinkRate {
    /// An infinite rate: no link limits the flow.
    pub const UNLIMITED: Self = Self(0x7f80_0000);

    /// Creates a rate from a number of b/s; negative numbers and NaN become zero.
    #[must_use]
    pub const fn new(rate: f32) -> Self {
        if rate > 0.0 { Self(rate.to_bits()) } else { Self(0) }
    }

    /// Returns the rate in bits per second.
    #[must_use]
    pub const fn get(self) -> f32 {
        f32::from_bits(self.0)
    }

    /// Reads a rate that is neither negative nor NaN. The bits of such rates sort like the rates.
    const fn read(bits: u32) -> Result<Self, ParseError> {
        if bits <= Self::UNLIMITED.0 { Ok(Self(bits)) } else { Err(ParseError::Rate) }
    }
}

impl fmt::Debug for LinkRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} b/s", self.get())
    }
}

/// Direction and purpose of a rate packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum RateStage {
    /// The packet travels on the path of the flow's data and asks for a rate.
    Asks = 0,
    /// The packet is on its way back to the flow's sender.
    Back = 1,
    /// The packet travels on the path of the data and reports that the flow has ended; it gets no
    /// answer.
    Leaves = 2,
}

/// How a link counts a flow when it computes rates.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum RateState {
    /// The link does not count the flow in its sums.
    #[default]
    New = 0,
    /// The link counts the flow as limited by another link.
    Elsewhere = 1,
    /// The link counts the flow as limited by this link.
    Here = 2,
}

/// Entry of one link. Byte 16 has the state from bit 2 on, `ignore` in bit 1 and `fresh` in bit 0;
/// the three bytes behind it are 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RateEntry {
    /// Number that identifies the link.
    pub link: u32,
    /// Rate that the link offers a flow of weight one that it limits; finite.
    pub bottleneck: LinkRate,
    /// Rate that the link allocated to the flow, of weight one; finite.
    pub allocated: LinkRate,
    /// Number of connections by which the flow's share was divided.
    pub weight: u16,
    /// Number of the link's sweep in which the link counted the flow; wraps. A sweep is the
    /// interval after which a link forgets flows that sent no rate packet.
    pub sweep: u16,
    /// How the link counted the flow when it wrote the entry.
    pub state: RateState,
    /// Other links must ignore this entry's bottleneck rate, because it is unfairly low at the
    /// moment.
    pub ignore: bool,
    /// The link wrote the entry on this trip of the packet.
    pub fresh: bool,
}

impl RateEntry {
    /// Length of a link's entry in bytes.
    pub const LEN: usize = 20;

    /// Returns the link's entry as bytes on the wire.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[0..4].copy_from_slice(&self.link.to_be_bytes());
        out[4..8].copy_from_slice(&self.bottleneck.0.to_be_bytes());
        out[8..12].copy_from_slice(&self.allocated.0.to_be_bytes());
        out[12..14].copy_from_slice(&self.weight.to_be_bytes());
        out[14..16].copy_from_slice(&self.sweep.to_be_bytes());
        out[16] = (self.state as u8) << 2 | u8::from(self.ignore) << 1 | u8::from(self.fresh);
        out
    }

    fn read(bytes: &[u8; Self::LEN]) -> Result<Self, ParseError> {
        let finite = |at: usize| match LinkRate::read(be32(bytes, at))? {
            LinkRate::UNLIMITED => Err(ParseError::Rate),
            rate => Ok(rate),
        };
        let state = match bytes[16] >> 2 {
            0 => RateState::New,
            1 => RateState::Elsewhere,
            2 => RateState::Here,
            _ => return Err(ParseError::Reserved),
        };
        if bytes[17..] != [0; 3] {
            return Err(ParseError::Reserved);
        }
        Ok(Self {
            link: be32(bytes, 0),
            bottleneck: finite(4)?,
            allocated: finite(8)?,
            weight: be16(bytes, 12),
            sweep: be16(bytes, 14),
            state,
            ignore: bytes[16] & 2 != 0,
            fresh: bytes[16] & 1 != 0,
        })
    }
}

/// The fields of a rate packet before the entries of the links.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RateHead {
    /// Whether the packet travels towards the receiver or back, and whether the flow has ended.
    pub stage: RateStage,
    /// Number of connections by which the flow's share is divided, at least one.
    pub weight: u16,
    /// Endpoint that sends the rate packet, as in [`crate::StdRequest::initiator`].
    pub initiator: u32,
    /// The asking endpoint's own number for the flow; only that endpoint reads it.
    pub flow: u32,
    /// Path that the rate packet takes, and that of the flow's data.
    pub path: u16,
    /// Number of the rate packet within its flow; wraps.
    pub serial: u16,
    /// Rate that the sender can use, of a flow of weight one; may be unlimited.
    pub demand: LinkRate,
    /// Number of the epoch in which the flow started.
    pub epoch: u32,
    /// Number of connections that the flow's host had when the epoch began, at least one.
    pub epoch_weight: u16,
    /// Smallest number of speculative packets of the epoch that any switch on the path lets
    /// through.
    pub let_through: u16,
}

/// A rate packet whose rules have been checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RatePacket<'a> {
    /// Fields before the entries, which the sender wrote.
    pub head: RateHead,
    entries: &'a [[u8; RateEntry::LEN]],
}

/// Length of the fields before the entries in bytes.
const HEAD: usize = 32;

impl<'a> RatePacket<'a> {
    /// Largest number of link entries in a rate packet.
    pub const MOST: usize = 8;
    /// Length of the longest rate packet in bytes.
    pub const MAX_LEN: usize = HEAD + Self::MOST * RateEntry::LEN;

    /// Creates a rate packet with the first [`Self::MOST`] of these entries
    /// ([`RateEntry::to_bytes`]).
    #[must_use]
    pub fn new(head: RateHead, entries: &'a [[u8; RateEntry::LEN]]) -> Self {
        Self { head, entries: &entries[..entries.len().min(Self::MOST)] }
    }

    /// Returns an iterator over the entries of the links, in path order.
    pub fn entries(&self) -> impl Iterator<Item = RateEntry> + 'a {
        // The entries were checked, or created from valid ones.
        self.entries.iter().filter_map(|bytes| RateEntry::read(bytes).ok())
    }

    /// Reads a packet that fills `bytes`.
    ///
    /// # Errors
    /// Returns the rule that the packet breaks.
    #[cold]
    pub fn read(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (head, rest) = bytes.split_first_chunk::<HEAD>().ok_or(ParseError::Truncated)?;
        if head[0] >> 3 != PdsType::Rates.to_u8() {
            return Err(ParseError::Type);
        }
        let stage = match head[0] & 7 {
            0 => RateStage::Asks,
            1 => RateStage::Back,
            2 => RateStage::Leaves,
            _ => return Err(ParseError::Reserved),
        };
        let (count, weight, epoch_weight) = (usize::from(head[1]), be16(head, 2), be16(head, 24));
        if count > Self::MOST || weight == 0 || epoch_weight == 0 || head[28..] != [0; 4] {
            return Err(ParseError::Reserved);
        }
        let (entries, rest) = rest.as_chunks::<{ RateEntry::LEN }>();
        if entries.len() < count {
            return Err(ParseError::Truncated);
        }
        if entries.len() > count || !rest.is_empty() {
            return Err(ParseError::Trailing);
        }
        for entry in entries {
            RateEntry::read(entry)?;
        }
        let head = RateHead {
            stage,
            weight,
            initiator: be32(head, 4),
            flow: be32(head, 8),
            path: be16(head, 12),
            serial: be16(head, 14),
            demand: LinkRate::read(be32(head, 16))?,
            epoch: be32(head, 20),
            epoch_weight,
            let_through: be16(head, 26),
        };
        Ok(Self { head, entries })
    }

    /// Returns the length of the rate packet in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a packet is never empty
    pub const fn len(&self) -> usize {
        HEAD + self.entries.len() * RateEntry::LEN
    }

    /// Writes the packet and returns its length.
    ///
    /// # Panics
    /// Panics if `out` is shorter than [`Self::len`].
    #[cold]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let (len, head) = (self.len(), &self.head);
        out[0] = PdsType::Rates.to_u8() << 3 | head.stage as u8;
        // There are at most eight entries.
        out[1] = self.entries.len() as u8;
        out[2..4].copy_from_slice(&head.weight.to_be_bytes());
        out[4..8].copy_from_slice(&head.initiator.to_be_bytes());
        out[8..12].copy_from_slice(&head.flow.to_be_bytes());
        out[12..14].copy_from_slice(&head.path.to_be_bytes());
        out[14..16].copy_from_slice(&head.serial.to_be_bytes());
        out[16..20].copy_from_slice(&head.demand.0.to_be_bytes());
        out[20..24].copy_from_slice(&head.epoch.to_be_bytes());
        out[24..26].copy_from_slice(&head.epoch_weight.to_be_bytes());
        out[26..28].copy_from_slice(&head.let_through.to_be_bytes());
        out[28..HEAD].fill(0);
        out[HEAD..len].copy_from_slice(self.entries.as_flattened());
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const HEADER: RateHead = RateHead {
        stage: RateStage::Back,
        weight: 0x0203,
        initiator: 0x0405_0607,
        flow: 0x0809_0a0b,
        path: 0x0c0d,
        serial: 0x0e0f,
        demand: LinkRate::UNLIMITED,
        epoch: 0x1415_1617,
        epoch_weight: 0x1819,
        let_through: 0x1a1b,
    };

    fn entry() -> RateEntry {
        RateEntry {
            link: 0x2122_2324,
            bottleneck: LinkRate::new(9.6e10),
            allocated: LinkRate::new(4.8e10),
            weight: 3,
            sweep: 0x2526,
            state: RateState::Here,
            ignore: true,
            fresh: true,
        }
    }

    fn written(count: usize) -> Vec<u8> {
        let entries = [entry().to_bytes(); RatePacket::MOST];
        let packet = RatePacket::new(HEADER, &entries[..count]);
        let mut bytes = [0xee; RatePacket::MAX_LEN];
        let len = packet.emit(&mut bytes);
        Vec::from(&bytes[..len])
    }

    #[test]
    fn what_is_written_is_read() {
        for count in 0..=RatePacket::MOST {
            let bytes = written(count);
            assert_eq!(bytes[..5], [30 << 3 | 1, count as u8, 2, 3, 4]);
            let read = RatePacket::read(&bytes).expect("well formed");
            assert_eq!((read.head, read.len()), (HEADER, bytes.len()));
            assert_eq!(read.entries().count(), count);
            assert!(read.entries().all(|read| read == entry()));
        }
        assert_eq!(entry().to_bytes()[16], 0b1011);
    }

    #[test]
    fn what_is_malformed_is_refused() {
        let good = written(2);
        for n in 0..good.len() {
            assert_eq!(RatePacket::read(&good[..n]), Err(ParseError::Truncated), "{n} bytes");
        }
        let longer = [&good[..], &[0]].concat();
        assert_eq!(RatePacket::read(&longer), Err(ParseError::Trailing));
        let with = |at: usize, bytes: &[u8]| {
            let mut bad = good.clone();
            bad[at..at + bytes.len()].copy_from_slice(bytes);
            RatePacket::read(&bad).map(|_| ())
        };
        assert_eq!(with(0, &[29 << 3]), Err(ParseError::Type));
        assert_eq!(with(0, &[30 << 3 | 3]), Err(ParseError::Reserved));
        assert_eq!(with(1, &[9]), Err(ParseError::Reserved));
        assert_eq!(with(1, &[1]), Err(ParseError::Trailing));
        assert_eq!(with(2, &[0, 0]), Err(ParseError::Reserved));
        assert_eq!(with(24, &[0, 0]), Err(ParseError::Reserved));
        assert_eq!(with(31, &[1]), Err(ParseError::Reserved));
        // Demand may be unlimited, but no more than that; what links say may not.
        assert_eq!(with(16, &[0x7f, 0x80, 0, 1]), Err(ParseError::Rate));
        assert_eq!(with(16, &[0x80, 0, 0, 0]), Err(ParseError::Rate));
        for at in [HEAD + 4, HEAD + 8, HEAD + RateEntry::LEN + 8] {
            assert_eq!(with(at, &[0x7f, 0x80, 0, 0]), Err(ParseError::Rate), "at {at}");
            assert_eq!(with(at, &[0xbf, 0x80, 0, 0]), Err(ParseError::Rate), "at {at}");
        }
        assert_eq!(with(HEAD + 16, &[3 << 2]), Err(ParseError::Reserved));
        assert_eq!(with(HEAD + 17, &[1]), Err(ParseError::Reserved));
    }

    #[test]
    fn a_rate_is_a_number_that_is_not_negative() {
        for rate in [0.0, 1.0, 9.6e10, f32::MAX, f32::INFINITY] {
            assert_eq!(LinkRate::new(rate).get(), rate);
        }
        for rate in [-0.0, -1.0, f32::NAN, f32::NEG_INFINITY] {
            assert_eq!(LinkRate::new(rate), LinkRate::default());
        }
    }
}
