//! Telemetry and credit in front of outbound packets. They cost nothing unless the congestion control uses them.

use crate::base::Batch;
use crate::reliability::cc::Hops;
use crate::reliability::{CREDIT_HEADER, record_of};
use crate::step::Step;
use crate::wire::{Telemetry, TelemetryKind};

/// Returns the number of bytes (telemetry and credit) that the congestion control puts before the
/// headers of every packet.
#[inline]
pub(super) fn extra_bytes(step: &Step<'_>) -> u32 {
    let config = step.pdcs.config();
    let telemetry = if config.acks.telemetry { Telemetry::LEN as u32 } else { 0 };
    telemetry + if config.needs_backlog() { CREDIT_HEADER } else { 0 }
}

/// Adds the telemetry echo that precedes an acknowledgement to a batch. Returns the position of the
/// echo, unless there is none.
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

/// Extends the packet that was added last by the bytes put in front of it, from `start` on.
#[inline]
pub(crate) fn prepend_bytes(batch: &mut Batch, start: Option<usize>) {
    if let (Some(start), Some(packet)) = (start, batch.packets.last_mut()) {
        let start = start as u32;
        packet.len += packet.header.start - start;
        packet.header.start = start;
    }
}
