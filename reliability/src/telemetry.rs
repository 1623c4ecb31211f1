//! Conversion of telemetry records between congestion control's form and the wire's.

use crate::base::{Rate, Time};
use crate::cc::{IntHop, MOST_HOPS};
use crate::wire::{Telemetry, TelemetryRecord};

// All records that congestion control keeps of a packet fit in a packet's telemetry.
const _: () = assert!(MOST_HOPS <= Telemetry::MOST);

/// Returns the wire's form of a switch's record. Rates are rounded down to kb/s; rates above 4.29
/// Tb/s become the largest value.
#[must_use]
pub fn record_of(hop: &IntHop) -> TelemetryRecord {
    TelemetryRecord {
        queue_name: hop.hop,
        at: hop.at.0,
        tx_bytes: hop.tx_bytes,
        queue: hop.queue,
        rate_kbps: u32::try_from(hop.line.0 / 1000).unwrap_or(u32::MAX),
    }
}

/// Returns a telemetry record from the wire in congestion control's form.
#[must_use]
pub const fn hop_of(record: &TelemetryRecord) -> IntHop {
    IntHop {
        hop: record.queue_name,
        at: Time(record.at),
        tx_bytes: record.tx_bytes,
        queue: record.queue,
        line: Rate(record.rate_kbps as u64 * 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_the_wire() {
        let line = Rate::gbps(100);
        let hop = IntHop { hop: 7, at: Time(1 << 40), tx_bytes: 1 << 50, queue: 9, line };
        assert_eq!(hop_of(&record_of(&hop)), hop);
    }
}
