//! Packets that follow each other and differ in their numbers alone, sent and taken together.

use super::Pdc;
use crate::base::{Psn, Time};
use crate::rx::Received;
use crate::shared::Shared;
use crate::tx::{Following, send_run};
use crate::types::{Arrival, RunGrant};

impl<D: Copy> Pdc<D> {
    /// As accepting each of `count` packets in a row from `first` on, that ask for nothing, are all like
    /// `arrival`, and follow what was accepted last. Whether they do.
    #[inline]
    pub(crate) fn accept_run(
        &mut self,
        now: Time,
        (first, count): (Psn, u16),
        arrival: &Arrival,
        shared: &mut Shared<D>,
    ) -> bool {
        if !self.rx.goes_on_at(first) {
            return false;
        }
        self.life.on_data(now);
        let (packets, counters) = (u64::from(count), &mut shared.counters);
        counters.rx_packets += packets;
        counters.rx_bytes += packets * u64::from(arrival.bytes);
        counters.rx_ce += if arrival.ce { packets } else { 0 };
        counters.rx_accepted += packets;
        for _ in 0..count {
            self.count_arrival(now, arrival, false, None, shared);
        }
        let Arrival { bytes, ce, .. } = *arrival;
        let received = Received { psn: first, bytes, ce, retx: false, ask: false, prompt: false };
        self.rx.record_run(now, &received, count, &shared.config, &mut self.timers);
        true
    }

    /// As [`Pdc::send`] for the packets that follow the one sent last, as far as they may go now.
    #[inline]
    pub(crate) fn send_run(
        &mut self,
        now: Time,
        following: Following,
        desc: impl FnMut(u16) -> D,
        shared: &mut Shared<D>,
    ) -> Option<RunGrant> {
        let (count, last) = send_run(&mut self.tx, now, following, desc, shared)?;
        self.life.on_use(now);
        let record = shared.flows.at(self.record);
        for _ in 1..count {
            record.on_sent(following.bytes, last.along, false);
        }
        record.on_sent(following.bytes, last.departure.path, false);
        Some(RunGrant { count, path: last.along, last: self.numbers.grant(&last.departure) })
    }
}
