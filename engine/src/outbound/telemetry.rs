//! Telemetry before packets that leave: what it needs where congestion control lives on it, and nothing elsewhere.

use crate::base::Batch;
use crate::reliability::cc::Hops;
use crate::reliability::record_of;
use crate::wire::{Telemetry, TelemetryKind};

/// Adds what an acknowledgement sends back to the bytes of a batch, before it; where that begins, if there is anything.
pub(crate) fn push_echo(batch: &mut Batch, hops: &Hops) -> Option<usize> {
    if hops.is_empty() {
        return None;
    }
    let start = batch.bytes.len();
    batch.bytes.extend_from_slice(&Telemetry::head(TelemetryKind::Echo, hops.len()));
    for hop in hops.iter() {
        batch.bytes.extend_from_slice(&record_of(&hop).to_bytes());
    }
    Some(start)
}

/// Adds empty telemetry to a batch before a data packet, if `wanted`. Returns the position of the telemetry.
#[inline]
pub(super) fn push_empty(batch: &mut Batch, wanted: bool) -> Option<usize> {
    wanted.then(|| {
        let start = batch.bytes.len();
        batch.bytes.extend_from_slice(&Telemetry::head(TelemetryKind::Own, 0));
        start
    })
}

/// The packet added last begins with what was put before it, at `start`.
#[inline]
pub(crate) fn include(batch: &mut Batch, start: Option<usize>) {
    if let (Some(start), Some(packet)) = (start, batch.packets.last_mut()) {
        let start = start as u32;
        packet.len += packet.header.start - start;
        packet.header.start = start;
    }
}
