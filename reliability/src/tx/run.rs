//! New packets that follow one another without anything of their own to decide.

use super::route::insisted;
use super::{Departure, Tx, nominal};
use crate::base::Time;
use crate::cc;
use crate::shared::Shared;

/// Packets that follow the one sent last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Following {
    /// UDP payload length of each.
    pub(crate) bytes: u32,
    /// How many there are.
    pub(crate) count: u16,
}

/// The last packet that was sent of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Last {
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
    following: Following,
    desc: impl FnMut(u16) -> D,
    shared: &mut Shared<D>,
) -> Option<(u16, Last)> {
    let bytes = following.bytes;
    let config = &shared.config;
    if config.tells_backlog() || tx.ring.queued() > 0 || tx.ring.is_empty() {
        return None;
    }
    let fits = tx.ring.room(config.max_window_packets).min(tx.route.room(bytes));
    let count = following.count.min(fits);
    if count == 0 {
        return None;
    }
    let sending = cc::Sending { bytes: nominal(bytes), ..cc::Sending::default() };
    let sizes = (config.train_bytes, nominal(config.mtu));
    let delivered = tx.flow.total_delivered(&shared.groups);
    let (sent, stamp, full) = tx.flow.send_run(now, (&sending, count), sizes, &mut shared.groups);
    if sent == 0 {
        return None;
    }
    let along = tx.route.join(bytes, sent);
    let path = insisted(&stamp, along, shared.paths);
    tx.ring.push_run(now, (bytes, along, delivered), (0..sent).map(desc));
    tx.ring.stamp(tx.ring.len() - 1, path, delivered);
    shared.counters.tx_packets += u64::from(sent);
    shared.counters.tx_bytes += u64::from(sent) * u64::from(bytes);
    let (psn, clear) = (tx.ring.next().minus(1), tx.ring.base().minus(1));
    let departure = Departure {
        psn,
        path,
        bytes,
        ask: full || tx.ring.is_full(shared.config.max_window_packets),
        retx: false,
        clear_psn_offset: i16::try_from(clear.distance(psn)).unwrap_or(0),
        state: None,
    };
    Some((sent, Last { along, departure }))
}
