//! Sending and accepting the packets of a packet run (`wire/src/packet_run.rs`) together.

use super::Pdc;
use crate::base::{Psn, Time};
use crate::rx::ReceivedPsn;
use crate::shared::Shared;
use crate::tx::{self, RunPackets};
use crate::types::{Arrival, EndArrival, NewPacket, RunArrival, RunGrant, TxGrant};

/// Accepts the packets of `run`, which are all like `arrival` except for the end, as if each were
/// accepted. Returns whether they continue the packets that arrived and fit the window; otherwise
/// nothing changes.
#[inline]
pub(crate) fn accept_run<D: Copy>(
    pdc: &mut Pdc<D>,
    now: Time,
    run: RunArrival,
    arrival: &Arrival,
    shared: &mut Shared<D>,
) -> bool {
    let RunArrival { first, count, end } = run;
    if !pdc.rx.takes_run(first, run.packets(), shared.config.recv_window_packets) {
        return false;
    }
    pdc.life.on_data(now);
    if count > 0 {
        take(pdc, now, (first, count, false), arrival, shared);
    }
    if let Some(EndArrival { bytes, ask }) = end {
        let psn = first.plus(count.into());
        take(pdc, now, (psn, 1, ask), &Arrival { bytes, ..*arrival }, shared);
    }
    true
}

/// Accepts `count` packets that are alike, of which the last may ask for an acknowledgement.
#[inline]
fn take<D: Copy>(
    pdc: &mut Pdc<D>,
    now: Time,
    (psn, count, ask): (Psn, u16, bool),
    arrival: &Arrival,
    shared: &mut Shared<D>,
) {
    let (packets, counters) = (u64::from(count), &mut shared.counters);
    counters.rx_packets += packets;
    counters.rx_bytes += packets * u64::from(arrival.bytes);
    counters.rx_ce += if arrival.ce { packets } else { 0 };
    counters.rx_accepted += packets;
    pdc.count_arrivals(now, (arrival, count), shared);
    if !pdc.rx.has_no_gaps() {
        shared.counters.rx_out_of_order += packets;
    }
    let Arrival { bytes, ce, .. } = *arrival;
    let received = ReceivedPsn { psn, bytes, ce, retx: false, ask, prompt: false };
    pdc.rx.record_run(now, &received, count, &shared.config, &mut pdc.timers);
}

/// Sends a packet in the train of the one sent last, as [`Pdc::send`] would, if it may leave now.
#[inline]
pub(crate) fn send_end<D: Copy>(
    pdc: &mut Pdc<D>,
    now: Time,
    packet: &NewPacket<D>,
    shared: &mut Shared<D>,
) -> Option<TxGrant> {
    let departure = tx::send_end(&mut pdc.tx, now, packet, &mut pdc.timers, shared)?;
    pdc.life.on_use(now);
    shared.flows.at(pdc.record).on_sent(departure.bytes, departure.path);
    Some(pdc.numbers.grant(&departure, pdc.control_path.detour(), pdc.life.mode()))
}

/// Sends the packets that follow the one sent last, as [`Pdc::send`] would, as far as they may
/// leave now.
#[inline]
pub(crate) fn send_run<D: Copy>(
    pdc: &mut Pdc<D>,
    now: Time,
    following: RunPackets,
    desc: impl FnMut(u16) -> D,
    shared: &mut Shared<D>,
) -> Option<RunGrant> {
    let (count, last) = tx::send_run(&mut pdc.tx, now, following, desc, shared)?;
    pdc.life.on_use(now);
    let record = shared.flows.at(pdc.record);
    for _ in 1..count {
        record.on_sent(following.bytes, last.along);
    }
    record.on_sent(following.bytes, last.departure.path);
    let detour = pdc.control_path.detour();
    let end = pdc.numbers.grant(&last.departure, detour, pdc.life.mode());
    Some(RunGrant { count, path: detour.entropy(last.along), last: end })
}
