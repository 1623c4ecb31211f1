//! Sending packet runs (`wire/src/packet_run.rs`): new packets that leave behind one another and for
//! which nothing has to be decided but the path and the end.

use super::route::stamped_path;
use super::{Departure, Tx};
use crate::base::Time;
use crate::cc;
use crate::config::nominal;
use crate::deadlines::Deadlines;
use crate::shared::Shared;
use crate::types::NewPacket;

/// The packets of a run that are to follow the packet sent last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunPackets {
    /// Length of each packet's UDP payload in bytes.
    pub(crate) bytes: u32,
    /// The number of packets to send.
    pub(crate) count: u16,
}

/// The last packet that was sent of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunEnd {
    /// The path of the run's packets before the last.
    pub(crate) along: u16,
    pub(crate) departure: Departure,
}

/// Sends new packets behind the one that has just left, in the same train: those that may leave
/// now, until one asks for an acknowledgement or takes another path. Packets wait behind each, so
/// none is limited by the application. Returns the number of packets and the last of them. Returns
/// `None` when none may leave, or when each needs decisions of its own: where congestion control
/// uses credit or rates of switches, requests carry its state.
#[inline]
pub(crate) fn send_run<D: Copy>(
    tx: &mut Tx<D>,
    now: Time,
    following: RunPackets,
    desc: impl FnMut(u16) -> D,
    shared: &mut Shared<D>,
) -> Option<(u16, RunEnd)> {
    let bytes = following.bytes;
    let count = following.count.min(room(tx, bytes, shared));
    let sending = cc::SentPacket { bytes: nominal(bytes), ..cc::SentPacket::default() };
    let (sent, stamp, full) = send_allowed(tx, now, (&sending, count), shared)?;
    let delivered = tx.flow.total_delivered(&shared.groups);
    let along = tx.route.join(bytes, sent);
    let path = stamped_path(&stamp, along, shared.paths);
    tx.ring.push_run(now, (bytes, along, delivered), (0..sent).map(desc));
    tx.ring.stamp(tx.ring.len() - 1, path, delivered);
    let departure = depart(tx, (bytes, sent), (path, full), shared);
    Some((sent, RunEnd { along, departure }))
}

/// Sends the packet behind the one that has just left, in the same train, as [`Tx::send`] would;
/// the engine may have no packet behind it. Returns `None` in the same cases as [`send_run`].
#[inline]
pub(crate) fn send_end<D: Copy>(
    tx: &mut Tx<D>,
    now: Time,
    packet: &NewPacket<D>,
    timers: &mut Deadlines,
    shared: &mut Shared<D>,
) -> Option<Departure> {
    let NewPacket { bytes, last, prompt, desc, .. } = *packet;
    let sending =
        cc::SentPacket { bytes: nominal(bytes), app_limited: last, ..cc::SentPacket::default() };
    let count = room(tx, bytes, shared).min(1);
    let (_, stamp, full) = send_allowed(tx, now, (&sending, count), shared)?;
    let delivered = tx.flow.total_delivered(&shared.groups);
    let path = stamped_path(&stamp, tx.route.join(bytes, 1), shared.paths);
    let (_, at) = tx.ring.push(now, desc, bytes, path);
    tx.ring.stamp(at, path, delivered);
    let departure = depart(tx, (bytes, 1), (path, full), shared);
    if last {
        // Otherwise the silence that the packet before it began goes on.
        tx.prober.set_delayed_ack(!prompt);
        if !departure.ask {
            tx.ring.mark_app_limited();
        }
        tx.prober.begin_silence(now + tx.probe_interval(shared), timers);
    }
    Some(Departure { ask: last && prompt || departure.ask, ..departure })
}

/// Returns how many packets of `bytes` there is room for behind the newest, in its train, that need
/// no decisions of their own.
#[inline]
fn room<D: Copy>(tx: &Tx<D>, bytes: u32, shared: &Shared<D>) -> u16 {
    let config = &shared.config;
    if config.needs_backlog() || tx.ring.queued() > 0 || tx.ring.is_empty() {
        return 0;
    }
    tx.ring.room(config.max_window_packets).min(tx.route.room(bytes))
}

/// Sends those of `count` packets that congestion control lets leave. Returns their number, the
/// stamp of the last one, and whether there is no room for another behind it; `None` if none may
/// leave.
#[inline]
fn send_allowed<D: Copy>(
    tx: &mut Tx<D>,
    now: Time,
    (sending, count): (&cc::SentPacket, u16),
    shared: &mut Shared<D>,
) -> Option<(u16, cc::Stamp, bool)> {
    if count == 0 {
        return None;
    }
    let sizes = (shared.config.train_bytes, nominal(shared.config.mtu));
    let passed = tx.flow.send_run(now, (sending, count), sizes, &mut shared.groups);
    (passed.0 > 0).then_some(passed)
}

/// Handles that the newest `sent` packets of `bytes` leave, the last on `path`. Returns the
/// departure of the last one, which asks for an acknowledgement where there is no more room
/// (`full`).
#[inline]
fn depart<D: Copy>(
    tx: &Tx<D>,
    (bytes, sent): (u32, u16),
    (path, full): (u16, bool),
    shared: &mut Shared<D>,
) -> Departure {
    shared.counters.tx_packets += u64::from(sent);
    shared.counters.tx_bytes += u64::from(sent) * u64::from(bytes);
    let (psn, clear) = (tx.ring.next().minus(1), tx.ring.base().minus(1));
    Departure {
        psn,
        path,
        bytes,
        ask: full || tx.ring.is_full(shared.config.max_window_packets),
        retx: false,
        clear_psn_offset: i16::try_from(clear.distance(psn)).unwrap_or(0),
        state: None,
    }
}
