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

/// Sends new packets behind the one that has just left: those that may go now, in the same train, until one asks
/// for an acknowledgement or goes another way. Others wait behind each, so none is limited by the application. How
/// many, and the last of them; `None` for none, or where each has to be looked at by itself: those that lack credit say so.
#[inline]
pub(crate) fn send_run<D: Copy>(
    tx: &mut Tx<D>,
    now: Time,
    following: Following,
    mut desc: impl FnMut(u16) -> D,
    shared: &mut Shared<D>,
) -> Option<(u16, Last)> {
    let (bytes, size) = (following.bytes, nominal(following.bytes));
    if shared.config.credits() || tx.ring.queued() > 0 || tx.ring.is_empty() {
        return None;
    }
    let (window, mtu) = (shared.config.max_window_packets, nominal(shared.config.mtu));
    let delivered = tx.flow.total_delivered(&shared.groups);
    let mut budget = tx.flow.budget(now, &shared.groups);
    let along = tx.route.path();
    let (mut sent, mut path, mut full) = (0, along, tx.ring.is_full(window));
    while sent < following.count && path == along && !full {
        let train = shared.config.train_bytes;
        if tx.route.is_over(bytes, None)
            || !tx.flow.fits(now, size, (&budget, train), &shared.groups)
        {
            break;
        }
        let chosen = tx.route.join(bytes);
        let (_, at) = tx.ring.push(now, desc(sent), bytes, chosen);
        let sending = cc::Sending { bytes: size, ..cc::Sending::default() };
        let stamp;
        (stamp, budget) = tx.flow.send(now, &sending, &mut shared.groups);
        path = insisted(&stamp, chosen, shared.paths);
        tx.ring.stamp(at, path, delivered);
        let room = budget.room(tx.flow.total_in_flight(&shared.groups));
        full = room < u64::from(mtu) || tx.ring.is_full(window);
        sent += 1;
    }
    if sent == 0 {
        return None;
    }
    shared.counters.tx_packets += u64::from(sent);
    shared.counters.tx_bytes += u64::from(sent) * u64::from(bytes);
    let (psn, clear) = (tx.ring.next().minus(1), tx.ring.base().minus(1));
    let departure = Departure {
        psn,
        path,
        bytes,
        ask: full,
        retx: false,
        clear_psn_offset: i16::try_from(clear.distance(psn)).unwrap_or(0),
        demand: None,
    };
    Some((sent, Last { along, departure }))
}
