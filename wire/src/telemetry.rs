//! Telemetry headers. Switches write records into the header before a data packet, and the receiver
//! returns the records before the acknowledgement. UE has no such header; `docs/wire.md` gives its
//! layout, and [`TelemetryRecord`] the fields of a record in their order.
//!
//! An endpoint whose congestion control uses telemetry puts an empty header before each data packet,
//! and each switch that runs the telemetry program adds its record. The header before an
//! acknowledgement repeats the records of the packet that it acknowledges.

use crate::error::ParseError;

/// The packet that telemetry records describe.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum TelemetryKind {
    /// The records describe the packet behind them, and switches may add more.
    Own = 0,
    /// The records describe the data packet that the acknowledgement behind them acknowledges.
    Echo = 1,
}

/// Record that one switch wrote when the packet left it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TelemetryRecord {
    /// Number of the queue that the packet left: switch and port.
    pub queue_name: u32,
    /// Time at which the packet left the queue, by the clock of the switches, in nanoseconds.
    pub at: u64,
    /// Bytes that the switch port had sent until then.
    pub tx_bytes: u64,
    /// Bytes that remained in the queue behind the packet.
    pub queue: u32,
    /// Rate of the switch port's link in kb/s.
    pub rate_kbps: u32,
}

impl TelemetryRecord {
    /// Length of a telemetry record in bytes.
    pub const LEN: usize = 28;

    /// Returns the telemetry record as bytes on the wire.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[0..4].copy_from_slice(&self.queue_name.to_be_bytes());
        out[4..12].copy_from_slice(&self.at.to_be_bytes());
        out[12..20].copy_from_slice(&self.tx_bytes.to_be_bytes());
        out[20..24].copy_from_slice(&self.queue.to_be_bytes());
        out[24..28].copy_from_slice(&self.rate_kbps.to_be_bytes());
        out
    }

    fn read(bytes: &[u8; Self::LEN]) -> Self {
        let word = |at: usize| {
            bytes[at..].first_chunk().map_or(0, |bytes: &[u8; 4]| u32::from_be_bytes(*bytes))
        };
        let long = |at: usize| {
            bytes[at..].first_chunk().map_or(0, |bytes: &[u8; 8]| u64::from_be_bytes(*bytes))
        };
        Self {
            queue_name: word(0),
            at: long(4),
            tx_bytes: long(12),
            queue: word(20),
            rate_kbps: word(24),
        }
    }
}

/// Length of the telemetry header before the records in bytes.
const HEAD: usize = 4;

/// The telemetry before a packet, whose rules have been checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Telemetry<'a> {
    /// The packet that the records describe.
    pub kind: TelemetryKind,
    records: &'a [u8],
    /// Bytes of the packet behind the telemetry.
    pub packet: &'a [u8],
}

impl<'a> Telemetry<'a> {
    /// PDS type by which a UDP payload shows that it begins with telemetry.
    pub const TYPE: u8 = 31;
    /// Length of telemetry without records in bytes.
    pub const LEN: usize = HEAD;
    /// Largest number of telemetry records in a packet.
    pub const MOST: usize = 8;

    /// Returns whether a UDP payload begins with telemetry, by its first byte.
    #[inline]
    #[must_use]
    pub const fn is_before(bytes: &[u8]) -> bool {
        matches!(bytes, [first, ..] if *first >> 3 == Self::TYPE)
    }

    /// Returns the header of telemetry with `count` records that follow.
    #[must_use]
    pub const fn head(kind: TelemetryKind, count: u8) -> [u8; HEAD] {
        [Self::TYPE << 3 | kind as u8, count, 0, 0]
    }

    /// Reads the telemetry at the beginning of a UDP payload and checks its rules.
    ///
    /// # Errors
    /// Returns the rule that it breaks: another type, an unknown kind, more than [`Self::MOST`]
    /// records or missing bytes.
    pub fn read(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (&[first, count, reserved @ ..], rest) =
            bytes.split_first_chunk::<HEAD>().ok_or(ParseError::Truncated)?;
        if first >> 3 != Self::TYPE {
            return Err(ParseError::Type);
        }
        let kind = match first & 7 {
            0 => TelemetryKind::Own,
            1 => TelemetryKind::Echo,
            _ => return Err(ParseError::Type),
        };
        if reserved != [0, 0] || usize::from(count) > Self::MOST {
            return Err(ParseError::Reserved);
        }
        let len = usize::from(count) * TelemetryRecord::LEN;
        let (records, packet) = rest.split_at_checked(len).ok_or(ParseError::Truncated)?;
        Ok(Self { kind, records, packet })
    }

    /// Returns an iterator over the telemetry records, in path order.
    pub fn records(&self) -> impl Iterator<Item = TelemetryRecord> {
        let (records, _) = self.records.as_chunks::<{ TelemetryRecord::LEN }>();
        records.iter().map(TelemetryRecord::read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const RECORD: TelemetryRecord = TelemetryRecord {
        queue_name: 0x0102_0304,
        at: 0x1112_1314_1516_1718,
        tx_bytes: 0x2122_2324_2526_2728,
        queue: 0x3132_3334,
        rate_kbps: 0x4142_4344,
    };

    fn written(count: u8) -> Vec<u8> {
        let mut bytes = Vec::from(Telemetry::head(TelemetryKind::Echo, count));
        for _ in 0..count {
            bytes.extend_from_slice(&RECORD.to_bytes());
        }
        bytes.extend_from_slice(b"packet");
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(RECORD.to_bytes()[..6], [1, 2, 3, 4, 0x11, 0x12]);
        for count in 0..=8 {
            let bytes = written(count);
            assert!(Telemetry::is_before(&bytes));
            let read = Telemetry::read(&bytes).expect("well formed");
            assert_eq!((read.kind, read.packet), (TelemetryKind::Echo, &b"packet"[..]));
            assert_eq!(read.records().count(), usize::from(count));
            assert!(read.records().all(|record| record == RECORD));
        }
        assert!(!Telemetry::is_before(&[]) && !Telemetry::is_before(&[0x10]));
    }

    #[test]
    fn what_is_malformed_is_refused() {
        let good = written(2);
        for n in 0..4 + 2 * TelemetryRecord::LEN {
            assert_eq!(Telemetry::read(&good[..n]), Err(ParseError::Truncated), "{n} bytes");
        }
        let with = |at: usize, byte: u8| {
            let mut bad = good.clone();
            bad[at] = byte;
            Telemetry::read(&bad).map(|_| ())
        };
        assert_eq!(with(0, 30 << 3), Err(ParseError::Type));
        assert_eq!(with(0, 31 << 3 | 2), Err(ParseError::Type));
        assert_eq!(with(1, 9), Err(ParseError::Reserved));
        assert_eq!(with(2, 1), Err(ParseError::Reserved));
        assert_eq!(with(3, 1), Err(ParseError::Reserved));
        // Nothing else takes it for a packet.
        assert_eq!(crate::parse(&good), Err(ParseError::Type));
    }
}
