//! New packets that follow one another without anything of their own to decide.

use super::route::insisted;
use super::{Departure, Tx, nominal};
use crate::base::Time;
use crate::cc;
use crate::deadlines::Deadlines;
use crate::shared::Shared;
use crate::types::NewPacket;

/// The packets of a run behind the one that was sent last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunPackets {
    /// UDP payload length of each.
    pub(crate) bytes: u32,
    /// How many there are.
    pub(crate) count: u16,
}

/// The last packet that was sent of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunEnd {
    /// The path of those before it.
    pub(crate) along: u16,
    pub(crate) departure: Departure,
}

/// Sends new packets behind the one that has just left: those that may go now, in the same train, until one
/// asks for an acknowledgement or goes another way. Others wait behind each, so none is limited by the
/// application. How many, and the last of them; `None` for none, or where each has to be looked at by itself:
/// those that need credit say how much, and those without a rate which they are.
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
    let (sent, stamp, full) = pass(tx, now, (&sending, count), shared)?;
    let delivered = tx.flow.total_delivered(&shared.groups);
    let along = tx.route.join(bytes, sent);
    let path = insisted(&stamp, along, shared.paths);
    tx.ring.push_run(now, (bytes, along, delivered), (0..sent).map(desc));
    tx.ring.stamp(tx.ring.len() - 1, path, delivered);
    let departure = depart(tx, (bytes, sent), (path, full), shared);
    Some((sent, RunEnd { along, departure }))
}

/// Sends the packet behind the one that has just left, in the same train, as [`Tx::send`] would; the engine may have nothing
/// behind it. `None` as for [`send_run`].
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
    let (_, stamp, full) = pass(tx, now, (&sending, count), shared)?;
    let delivered = tx.flow.total_delivered(&shared.groups);
    let path = insisted(&stamp, tx.route.join(bytes, 1), shared.paths);
    let (_, at) = tx.ring.push(now, desc, bytes, path);
    tx.ring.stamp(at, path, delivered);
    let departure = depart(tx, (bytes, 1), (path, full), shared);
    if last {
        // Otherwise the silence after it is that after the packet before it.
        tx.prober.set_patient(!prompt);
        if !departure.ask {
            tx.ring.limit_newest();
        }
        tx.prober.begin_silence(now + tx.probe_interval(shared), timers);
    }
    Some(Departure { ask: last && prompt || departure.ask, ..departure })
}

/// How many packets of `bytes` there is room for behind the newest, in its train, that need nothing of their own.
#[inline]
fn room<D: Copy>(tx: &Tx<D>, bytes: u32, shared: &Shared<D>) -> u16 {
    let config = &shared.config;
    if config.tells_backlog() || tx.ring.queued() > 0 || tx.ring.is_empty() {
        return 0;
    }
    tx.ring.room(config.max_window_packets).min(tx.route.room(bytes))
}

/// Of `count` packets those that congestion control lets go; what rides on the last, and whether there is room for another
/// behind it. `None` for none.
#[inline]
fn pass<D: Copy>(
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

/// The newest `sent` packets of `bytes` left, the last by `path`: that one. It asks for an acknowledgement where it is `full`.
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
