//! What acknowledgements say.

use super::{Cause, Fate, Slot, Tx};
use crate::base::{Psn, Span, Time};
use crate::cc::{self, PathSelector, PathSignal};
use crate::config::{Config, MPR_UNIT};
use crate::rx::service_span;
use crate::shared::Shared;
use crate::types::{Event, PdcId};
use crate::wire::{Ack, AckExt, CcState, NsccState, Response};

/// How many PSNs before the oldest outstanding packet a late ACK may end and still mean something.
const LATE: i32 = 2 * 4096;

/// An ACK, taken apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckIn<'a> {
    pub(crate) cack: Psn,
    /// The packet it is about; absent in the answer to a probe.
    pub(crate) ack_psn: Option<Psn>,
    pub(crate) probe: Option<u16>,
    pub(crate) sack_base: Psn,
    pub(crate) sack_map: u64,
    pub(crate) mpr: u8,
    pub(crate) state: Option<NsccState>,
    /// Packets out of order, if the peer counts them.
    ooo: Option<u16>,
    /// The low bits of the credit granted in all.
    credit: Option<u32>,
    pub(crate) ce: bool,
    pub(crate) retx: bool,
    pub(crate) response: Option<&'a Response>,
}

impl<'a> AckIn<'a> {
    pub(crate) fn new(ack: &Ack, response: Option<&'a Response>) -> Self {
        let (sack_base, sack_map) = ack.sack().unwrap_or((ack.cack_psn, 0));
        let (mpr, state, ooo, credit) = match ack.ext {
            AckExt::None => (0, None, None, None),
            AckExt::Cc(ext) => match ext.state {
                CcState::Nscc(state) => (ext.mpr, Some(state), Some(state.ooo_count), None),
                CcState::Credit { credit, ooo_count } => {
                    (ext.mpr, None, Some(ooo_count), Some(credit))
                }
            },
            AckExt::Ccx(ext) => (ext.mpr, None, None, None),
        };
        Self {
            cack: ack.cack_psn,
            ack_psn: ack.ack_psn(),
            probe: ack.probe_opaque(),
            sack_base,
            sack_map,
            mpr,
            state,
            // Not computed.
            ooo: ooo.filter(|&count| count != u16::MAX),
            credit,
            ce: ack.ce,
            retx: ack.retx,
            response,
        }
    }
}

impl AckIn<'_> {
    /// The round trip from `sent_at` to `now` without the peer's service time and with it. The former is
    /// what congestion control can use; an ACK without NSCC's state has but the latter, good enough for
    /// a timer. `None` when the service time makes no sense.
    fn times(&self, sent_at: Time, now: Time) -> Option<(Option<Span>, Span)> {
        let whole = now.since(sent_at);
        let Some(state) = self.state else { return Some((None, whole)) };
        let rtt = round_trip(whole, service_span(state.service_time)?)?;
        Some((Some(rtt), whole))
    }
}

/// Whether an ACK can be true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Credible,
    /// Too old to mean anything.
    Stale,
    /// Acknowledges what was never sent.
    Impossible,
}

/// What one ACK newly acknowledged.
#[derive(Default)]
struct Gain {
    bytes: u32,
    packets: u16,
    /// The path already told to be good.
    credited: Option<u16>,
}

impl<D: Copy> Tx<D> {
    /// Checks an ACK against what was sent; nothing changes.
    pub(crate) fn judge(&self, ack: &AckIn<'_>) -> Verdict {
        let sent = |psn: Psn| psn.is_before(self.next);
        let newest_sack = match ack.sack_map {
            0 => None,
            map => Some(ack.sack_base.plus(63 - map.leading_zeros())),
        };
        if !sent(ack.cack) || !ack.ack_psn.is_none_or(sent) || !newest_sack.is_none_or(sent) {
            return Verdict::Impossible;
        }
        if ack.cack.distance(self.base) < -LATE { Verdict::Stale } else { Verdict::Credible }
    }

    /// Acts on a credible ACK.
    pub(crate) fn on_ack(&mut self, now: Time, id: PdcId, ack: &AckIn<'_>, shared: &mut Shared<D>) {
        shared.counters.rx_acks += 1;
        shared.counters.rx_ce_echoes += u64::from(ack.ce);
        let probed = self.probe_answered(ack);
        let rtt = if probed {
            shared.counters.rx_probe_answers += 1;
            self.probe_sample(now, ack)
        } else {
            self.sample(now, ack)
        };
        let (rtt, whole) = rtt.unzip();
        let rtt = rtt.flatten();
        let subject = ack.ack_psn.and_then(|psn| self.index(psn));
        let live = subject.is_some();
        let about = subject.map(|at| self.ring[at]);
        let path = about.map_or(self.train_path, |slot| slot.path);

        let mut gain = Gain::default();
        if let (Some(response), Some(at)) = (ack.response, subject) {
            self.answer(now, id, at, response, &mut gain, shared);
        }
        self.take_cumulative(now, id, ack, &mut gain, shared);
        self.take_sack(now, id, ack, &mut gain, shared);
        self.advance();
        self.open_window(ack);

        // A probe overtakes what waits in queues, so it says nothing about how long data take.
        if let Some(whole) = whole
            && (!probed || self.srtt_ns == 0)
        {
            self.measured(rtt.unwrap_or(whole), shared);
        }
        if ack.ce && live {
            self.paths.on_feedback(now, path, PathSignal::Ecn);
        }
        if gain.packets > 0 || probed {
            self.heard(now, &shared.config);
        }
        if gain.packets > 0 {
            self.progressed(now, shared);
        }
        let grant = ack.credit.map(|units| self.credit(units));
        if gain.packets > 0 || probed || rtt.is_some() || grant.is_some() {
            let round_end = self.round_ends(about.as_ref(), shared);
            let delivered = about
                .filter(|slot| slot.tries == 0)
                .map(|slot| u64::from(self.delivered_since(&slot, shared)));
            let feedback = cc::Feedback {
                now,
                kind: if probed { cc::Kind::ProbeAnswered } else { cc::Kind::Acked },
                path,
                bytes: gain.bytes,
                packets: gain.packets,
                ecn: ack.ce,
                // A mark makes the peer acknowledge at once, so that every marked packet is the
                // subject of an ACK, unless several came in one batch.
                marked: u16::from(ack.ce && live).min(gain.packets),
                rtt,
                delivered,
                ooo: ack.ooo,
                penalty: ack.state.map(|state| state.rcv_cwnd_pend),
                restore_cwnd: ack.state.is_some_and(|state| state.restore_cwnd),
                grant,
                round_end,
                app_limited: about.is_some_and(|slot| slot.app_limited),
                retransmitted: about.is_some_and(|slot| slot.tries > 0),
                ..cc::Feedback::default()
            };
            self.tell(&feedback, shared);
        }
        self.compare_modes(id, ack, shared);
        if self.ring.is_empty() {
            if gain.packets > 0 {
                self.rest(now, shared);
            }
            return;
        }
        if probed && shared.config.loss.probe {
            self.sweep_probed(now, ack, shared);
        } else if let (Some(slot), true) = (about, whole.is_some())
            && slot.tries > 0
            && self.overtook(&slot, shared)
        {
            self.rare().arrived = slot.sent_at;
            self.ask(now, shared);
        }
        if let Some(ooo) = ack.ooo {
            self.sleek(now, ooo, shared);
        }
    }

    /// Reports, once, that the peer's receiver works in another mode than the congestion control here
    /// lives on. What is missing is made up for: credit by a plain window (the algorithm's doing), the
    /// service time by doing without round-trip samples.
    fn compare_modes(&mut self, id: PdcId, ack: &AckIn<'_>, shared: &mut Shared<D>) {
        let odd = if shared.config.credits() {
            self.metrics(&shared.groups).ungranted
        } else {
            // Marked and without state it is a congestion notification.
            ack.state.is_none() && !ack.ce
        };
        if odd && !self.odd_peer {
            self.odd_peer = true;
            shared.counters.other_mode += 1;
            shared.events.push_back(Event::OtherMode { id });
        }
    }

    /// Whether everything that was sent before the previous round's end is acknowledged. Flows that
    /// share a context share its rounds: one ends when a packet is acknowledged that was sent after the
    /// previous one's end.
    fn round_ends(&mut self, about: Option<&Slot<D>>, shared: &mut Shared<D>) -> bool {
        if let Some(group) = self.context.group(&mut shared.groups) {
            let ends =
                about.is_some_and(|slot| slot.delivered.wrapping_sub(group.round) < u32::MAX / 2);
            if ends {
                group.round = group.delivered;
            }
            return ends;
        }
        let ends = !self.base.is_before(self.round);
        if ends {
            self.round = self.next;
        }
        ends
    }

    /// Nominal bytes the context delivered since `slot` was last sent.
    fn delivered_since(&self, slot: &Slot<D>, shared: &Shared<D>) -> u32 {
        self.context.delivered(self.delivered, &shared.groups).wrapping_sub(slot.delivered)
    }

    /// Whether the ACK answers the probe that is out.
    fn probe_answered(&self, ack: &AckIn<'_>) -> bool {
        ack.probe == Some(self.probe_opaque) && self.probe_sent != Time::NEVER
    }

    /// The round-trip time of the packet the ACK is about, without the peer's service time, if that is
    /// known, and with it. Karn's rule: a packet sent twice only counts if the ACK echoes RETX and there
    /// was one retransmission (UE 1.0 section 3.6.13.1).
    fn sample(&self, now: Time, ack: &AckIn<'_>) -> Option<(Option<Span>, Span)> {
        let slot = &self.ring[self.index(ack.ack_psn?)?];
        let unambiguous = match slot.tries {
            0 => !ack.retx,
            1 => ack.retx,
            _ => false,
        };
        if unambiguous && slot.fate == Fate::InFlight { ack.times(slot.sent_at, now) } else { None }
    }

    fn probe_sample(&self, now: Time, ack: &AckIn<'_>) -> Option<(Option<Span>, Span)> {
        ack.times(self.probe_sent, now)
    }

    /// RFC 6298, section 2.
    fn measured(&mut self, rtt: Span, shared: &mut Shared<D>) {
        shared.counters.rtt(rtt.0);
        let rtt = u32::try_from(rtt.0).unwrap_or(u32::MAX);
        if self.srtt_ns == 0 {
            self.srtt_ns = rtt;
            self.rttvar_ns = rtt / 2;
            return;
        }
        let (srtt, rttvar, rtt) =
            (u64::from(self.srtt_ns), u64::from(self.rttvar_ns), u64::from(rtt));
        // Means of 32-bit numbers have 32 bits.
        self.rttvar_ns = ((rttvar * 3 + srtt.abs_diff(rtt)) / 4) as u32;
        self.srtt_ns = (((srtt * 7 + rtt) / 8) as u32).max(1);
    }

    /// One packet got its non-default response.
    fn answer(
        &mut self,
        now: Time,
        id: PdcId,
        at: usize,
        response: &Response,
        gain: &mut Gain,
        shared: &mut Shared<D>,
    ) {
        if self.ring[at].fate == Fate::Acked {
            return;
        }
        let psn = self.base.plus(at as u32); // an index below 4096
        let desc = self.book(now, at, false, gain, shared);
        shared.events.push_back(Event::Responded { id, desc, response: *response });
        self.clear_by(now + shared.config.ack_delay, psn);
    }

    /// Packets the peer has although earlier ones are missing: the SACK bitmap, and the packet the
    /// ACK is about.
    fn take_sack(
        &mut self,
        now: Time,
        id: PdcId,
        ack: &AckIn<'_>,
        gain: &mut Gain,
        shared: &mut Shared<D>,
    ) {
        let mut map = ack.sack_map;
        while map != 0 {
            let psn = ack.sack_base.plus(map.trailing_zeros());
            map &= map - 1;
            self.take_one(now, id, psn, ack.ce, gain, shared);
        }
        if let (Some(psn), None) = (ack.ack_psn, ack.response) {
            self.take_one(now, id, psn, ack.ce, gain, shared);
        }
    }

    fn take_one(
        &mut self,
        now: Time,
        id: PdcId,
        psn: Psn,
        ce: bool,
        gain: &mut Gain,
        shared: &mut Shared<D>,
    ) {
        let Some(at) = self.index(psn) else { return };
        if self.ring[at].fate != Fate::Acked {
            let desc = self.book(now, at, ce, gain, shared);
            shared.events.push_back(Event::Acked { id, desc });
        }
    }

    /// Everything up to the cumulative acknowledgement.
    fn take_cumulative(
        &mut self,
        now: Time,
        id: PdcId,
        ack: &AckIn<'_>,
        gain: &mut Gain,
        shared: &mut Shared<D>,
    ) {
        while !self.ring.is_empty() && !self.base.is_after(ack.cack) {
            if self.ring[0].fate != Fate::Acked {
                let desc = self.book(now, 0, ack.ce, gain, shared);
                shared.events.push_back(Event::Acked { id, desc });
            }
            self.drop_oldest();
        }
    }

    /// The oldest outstanding packet is one that was not acknowledged.
    fn advance(&mut self) {
        while self.ring.front().is_some_and(|slot| slot.fate == Fate::Acked) {
            self.drop_oldest();
        }
        for psn in [&mut self.cursor, &mut self.swept, &mut self.top] {
            if psn.is_before(self.base) {
                *psn = self.base;
            }
        }
    }

    fn drop_oldest(&mut self) {
        self.ring.pop_front();
        self.base = self.base.plus(1);
    }

    /// Takes one packet out of the flight. `marked` says that its path, or another one the ACK covers,
    /// is congested: then no path is called good.
    fn book(
        &mut self,
        now: Time,
        at: usize,
        marked: bool,
        gain: &mut Gain,
        shared: &mut Shared<D>,
    ) -> D {
        let nominal = self.ring[at].nominal();
        match self.ring[at].fate {
            Fate::InFlight => self.lands(nominal, shared),
            Fate::Queued(_) => self.queued -= 1,
            Fate::Acked => {}
        }
        self.delivered = self.delivered.wrapping_add(nominal);
        if let Some(group) = self.context.group(&mut shared.groups) {
            group.delivered = group.delivered.wrapping_add(nominal);
        }
        let slot = &mut self.ring[at];
        slot.fate = Fate::Acked;
        gain.bytes += nominal;
        gain.packets += 1;
        if !marked && gain.credited != Some(slot.path) {
            gain.credited = Some(slot.path);
            self.paths.on_feedback(now, slot.path, PathSignal::Good);
        }
        let desc = slot.desc;
        let end = self.base.plus(at as u32 + 1); // an index below 4096
        if end.is_after(self.top) {
            self.top = end;
        }
        desc
    }

    /// The peer's window.
    fn open_window(&mut self, ack: &AckIn<'_>) {
        if ack.mpr > 0 {
            let limit = ack.cack.plus(u32::from(ack.mpr) * u32::from(MPR_UNIT));
            if limit.is_after(self.limit) {
                self.limit = limit;
            }
        }
    }

    /// The peer answers: timeouts in a row are over.
    pub(super) fn heard(&mut self, now: Time, config: &Config) {
        if self.backoff > 0 {
            self.backoff = 0;
            self.lifeline = false;
            self.rto_at = now + self.loss_timeout(config);
        }
    }

    /// The peer took something: all clocks that count its silence start again.
    fn progressed(&mut self, now: Time, shared: &Shared<D>) {
        self.stalled_since = now;
        if let Some(rare) = &mut self.rare {
            rare.rnr_doublings = 0;
        }
        self.probes = 0;
        self.probe_due = false;
        self.probe_at = now + self.probe_interval(shared);
    }

    /// The oldest packet left more than a round trip before `slot`, which arrived. That queued behind it,
    /// so it is probably lost, and others with it.
    fn overtook(&self, slot: &Slot<D>, shared: &Shared<D>) -> bool {
        self.ring.front().is_some_and(|oldest| {
            let apart = slot.sent_at.since(oldest.sent_at);
            oldest.fate == Fate::InFlight && apart > self.unloaded(shared)
        })
    }

    /// The answer to a probe. The probe overtook the queues, so only what cannot be in them any more is
    /// lost if it did not arrive: what left as long before the probe as a round trip may take, or an
    /// unloaded round trip, for paths differ, before a packet that did arrive.
    ///
    /// That is said where it is known what arrived: in the 64 packets that the answer shows, or everywhere if
    /// as many are acknowledged as the peer has received out of order. Everywhere includes the tail, which no
    /// bitmap shows: nothing comes after it, and counted as in flight it would keep all else from being
    /// sent again (STrack section 3.3.2 subtracts what is lost from the bytes in flight).
    fn sweep_probed(&mut self, now: Time, ack: &AckIn<'_>, shared: &mut Shared<D>) {
        let arrived = self.ring.iter().filter(|slot| slot.fate == Fate::Acked);
        let known = arrived.clone().count();
        // Of a packet sent twice one does not know which of them arrived.
        let newest = arrived.filter(|slot| slot.tries == 0).map(|slot| slot.sent_at).max();
        let newest = newest.max(self.rare.as_ref().map(|rare| rare.arrived)).unwrap_or(Time::ZERO);
        // Nothing else was heard since the timer asked (STrack algorithm 1 line 13): the queues are not full
        // of this flow's packets.
        let silent = self.probes > 0;
        let trip = if silent { Span(u64::from(self.srtt_ns)) } else { self.longest_trip() };
        let late = self.probe_sent - trip;
        let sent_before = late.max(newest - self.unloaded(shared));
        let all = ack.ooo.is_some_and(|ooo| usize::from(ooo) <= known);
        let (first, end) =
            if all { (self.base, self.next) } else { (ack.sack_base, ack.sack_base.plus(64)) };
        if all {
            self.probe_sent = Time::NEVER;
            // More than a window may have been lost, so what is sent again has to keep to the window.
            self.recovering = false;
        }
        self.lose(now, first, end, Cause::Probe, shared, |slot| slot.sent_at <= sent_before);
    }
}

/// A sample, unless the peer claims to have taken longer than it all took: its clock stood still while
/// the packet waited, or it lies. A round trip of nothing would make every other one seem congested.
fn round_trip(elapsed: Span, service: Span) -> Option<Span> {
    (elapsed > service).then(|| elapsed.saturating_sub(service))
}
