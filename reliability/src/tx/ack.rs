//! Handling of the ACKs that arrive for a sending half.

use super::overtaken::{OvertakenPackets, PathOrder};
use super::recovery::{OutstandingPackets, reordering};
use super::ring::{RetransmitCause, Ring, SlotState};
use super::{LossEvent, Slot, Tx};
use crate::base::{Psn, Span, Time};
use crate::cc::{self, PathSignal};
use crate::config::{MPR_UNIT, nominal};
use crate::deadlines::{Deadlines, Timer};
use crate::rx::service_span;
use crate::shared::Shared;
use crate::types::{Event, PdcId};
use crate::wire::{Ack, AckExt, CcState, DartState, NsccState, Response, ResponseOpcode};

/// How far before the oldest outstanding packet, in PSNs, a late ACK may end and still be valid.
const LATE_ACK: i32 = 2 * 4096;

/// The content of an ACK that arrived, as a sending half needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckFacts<'a> {
    cack: Psn,
    /// The PSN of the packet that the ACK is about; `None` in the answer to a probe.
    ack_psn: Option<Psn>,
    probe: Option<u16>,
    sack_base: Psn,
    sack_map: u64,
    mpr: u8,
    state: Option<NsccState>,
    /// Number of packets that the peer has received out of order, if the peer counts them.
    ooo: Option<u16>,
    ce: bool,
    retx: bool,
    response: Option<&'a Response>,
    extension: AlgorithmFacts<'a>,
}

/// Signal of an ACK that only some congestion controls read.
#[derive(Clone, Copy, Debug)]
enum AlgorithmFacts<'a> {
    None,
    /// Total credit that the peer granted, as the low bits of a number in the wire's unit.
    Credit(u32),
    /// The number of senders that share the peer's line, and this flow's share of the line.
    Share(u16, u16),
    /// The telemetry records of the packet that the ACK is about.
    Telemetry(&'a cc::Hops),
}

/// Whether an ACK can be about packets that were sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Credible,
    /// The ACK ends so long before the oldest outstanding packet that it is ignored.
    Stale,
    /// The ACK acknowledges a packet that was never sent, so it is forged or broken.
    Impossible,
}

impl<'a> AckFacts<'a> {
    #[inline]
    pub(crate) fn new(ack: &Ack, response: Option<&'a Response>, telemetry: &'a cc::Hops) -> Self {
        let (sack_base, sack_map) = ack.sack().unwrap_or((ack.cack_psn, 0));
        let mut extension = AlgorithmFacts::None;
        if !telemetry.is_empty() {
            extension = AlgorithmFacts::Telemetry(telemetry);
        }
        let (mpr, state, ooo) = match ack.ext {
            AckExt::None | AckExt::ExpectedPsn(_) => (0, None, None),
            AckExt::Cc(ext) => match ext.state {
                CcState::Nscc(state) => (ext.mpr, Some(state), Some(state.ooo_count)),
                CcState::Credit { credit, ooo_count } => {
                    extension = AlgorithmFacts::Credit(credit);
                    (ext.mpr, None, Some(ooo_count))
                }
            },
            AckExt::Ccx(ext) => {
                let dart = DartState::read(&ext.state).ok();
                let dart = dart.filter(|_| ext.cc_type == DartState::CC_TYPE);
                if let Some(dart) = dart {
                    extension = AlgorithmFacts::Share(dart.senders, dart.share);
                }
                let state = dart.map(|dart| NsccState {
                    service_time: dart.service_time,
                    ooo_count: dart.ooo_count,
                    ..NsccState::default()
                });
                (ext.mpr, state, state.map(|state| state.ooo_count))
            }
        };
        Self {
            cack: ack.cack_psn,
            ack_psn: ack.ack_psn(),
            probe: ack.probe_opaque(),
            sack_base,
            sack_map,
            mpr,
            state,
            // This value means that the peer does not count.
            ooo: ooo.filter(|&count| count != u16::MAX),
            ce: ack.ce,
            retx: ack.retx,
            response,
            extension,
        }
    }

    /// Returns whether the ACK carries a SES response.
    #[inline]
    pub(crate) const fn is_answer(&self) -> bool {
        self.response.is_some()
    }

    /// Checks the ACK against the packets that were sent, without changing anything.
    #[inline]
    pub(crate) fn check<D: Copy>(&self, ring: &Ring<D>) -> Verdict {
        let sent = |psn: Psn| psn.is_before(ring.next());
        let newest_sack = match self.sack_map {
            0 => None,
            map => Some(self.sack_base.plus(63 - map.leading_zeros())),
        };
        if !sent(self.cack) || !self.ack_psn.is_none_or(sent) || !newest_sack.is_none_or(sent) {
            return Verdict::Impossible;
        }
        if self.cack.distance(ring.base()) < -LATE_ACK { Verdict::Stale } else { Verdict::Credible }
    }

    /// Returns the round trip from `sent_at` to `now`, without and with the peer's service time.
    /// Congestion control can only use the former. An ACK without NSCC's state has only the latter,
    /// which is good enough for a timer. Returns `None` when the service time is not plausible.
    #[inline]
    fn round_trip(&self, sent_at: Time, now: Time) -> Option<RoundTrip> {
        let whole = now.since(sent_at);
        let Some(state) = self.state else { return Some(RoundTrip { net: None, whole }) };
        let net = without_service(whole, service_span(state.service_time)?)?;
        Some(RoundTrip { net: Some(net), whole })
    }
}

/// A round-trip time that an ACK measured.
#[derive(Clone, Copy, Debug)]
struct RoundTrip {
    /// The round-trip time without the peer's service time, if that is known.
    net: Option<Span>,
    whole: Span,
}

/// The packets that one ACK acknowledged for the first time.
#[derive(Debug, Default)]
pub(crate) struct AckGain {
    /// Nominal bytes of the newly acknowledged packets.
    pub(crate) bytes: u32,
    pub(crate) packets: u16,
    /// True when a round trip, as congestion control counts them, ended with the ACK.
    pub(crate) round_end: bool,
    /// The path of the probe that the ACK answers, which therefore works.
    pub(crate) open_path: Option<u16>,
    /// The path of the packet that the ACK reports as marked.
    pub(crate) marked: Option<u16>,
    /// The path about which the path selector was last told that it is good.
    credited: Option<u16>,
}

/// Handles a valid ACK for the sending half `tx` of context `id`. Returns what the ACK
/// acknowledged.
#[inline]
pub(crate) fn on_ack<D: Copy>(
    tx: &mut Tx<D>,
    now: Time,
    id: PdcId,
    ack: &AckFacts<'_>,
    timers: &mut Deadlines,
    shared: &mut Shared<D>,
) -> AckGain {
    let mut one = Acknowledgement { tx, now, id, ack, timers, shared, gain: AckGain::default() };
    one.process();
    one.gain
}

/// Everything that the handling of one ACK reads or changes.
struct Acknowledgement<'a, D> {
    tx: &'a mut Tx<D>,
    now: Time,
    id: PdcId,
    ack: &'a AckFacts<'a>,
    timers: &'a mut Deadlines,
    shared: &'a mut Shared<D>,
    gain: AckGain,
}

impl<'a, D: Copy> Acknowledgement<'a, D> {
    #[inline]
    fn process(&mut self) {
        let (now, ack) = (self.now, self.ack);
        self.shared.counters.rx_acks += 1;
        self.shared.counters.rx_ce_echoes += u64::from(ack.ce);
        let penalty = ack.state.is_some_and(|state| state.rcv_cwnd_pend > 0);
        self.shared.counters.rx_penalties += u64::from(penalty);
        let newest = self.tx.rare.as_ref().map(|rare| rare.probe);
        let open_path = newest.and_then(|probe| probe.answered(ack.probe));
        let sent_probe = newest.filter(|_| open_path.is_some());
        let probed = sent_probe.is_some();
        if let Some(path) = open_path {
            self.tx.route.record_proven_path(path);
            self.gain.open_path = open_path;
        }
        let trip = match sent_probe {
            Some(probe) => {
                self.shared.counters.rx_probe_answers += 1;
                self.tx.rare_mut().probe.reset_urgency();
                let timely = probe.sent_at() >= self.shared.resumed;
                timely.then(|| ack.round_trip(probe.sent_at(), now)).flatten()
            }
            None => self.sample(),
        };
        let rtt = trip.and_then(|trip| trip.net);
        let subject = ack.ack_psn.and_then(|psn| self.tx.ring.index(psn));
        let live = subject.is_some();
        let about = subject.map(|at| *self.tx.ring.slot(at));
        let path = about.map_or(self.tx.route.path(), |slot| slot.path);
        if !ack.retx && about.is_some_and(|slot| slot.tries > 0 && slot.is_in_flight()) {
            self.tx.rare_mut().order.on_spurious();
        }

        let oldest = self.tx.ring.base();
        if let (Some(response), Some(psn)) = (ack.response, ack.ack_psn) {
            self.hold_clear(psn, response);
            if let Some(at) = subject {
                self.take_response(at, response);
            }
        }
        self.take_cumulative();
        self.take_sack();
        self.tx.ring.advance();
        self.tx.recovery.advance(self.tx.ring.base());
        let window = match ack.mpr {
            // Peers that send plain ACKs have a window which never changes.
            0 if !self.shared.config.dialect.ack_state => {
                self.shared.config.max_window_packets.into()
            }
            mpr => u32::from(mpr) * u32::from(MPR_UNIT),
        };
        if window > 0 {
            self.tx.ring.open_window(ack.cack.plus(window));
        }

        // A probe overtakes the data in queues, so its round trip does not show how long data take.
        if let Some(trip) = trip
            && (!probed || !self.tx.rtt.is_measured())
        {
            let rtt = rtt.unwrap_or(trip.whole);
            self.shared.counters.rtt(rtt.0);
            self.tx.rtt.sample(rtt);
        }
        if ack.ce && live {
            self.gain.marked = Some(path);
            self.tx.route.on_feedback(now, path, PathSignal::Ecn);
        }
        let gained = self.gain.packets > 0;
        if gained || probed {
            let config = &self.shared.config;
            self.tx.loss_timer.on_answer(now, &self.tx.rtt, self.timers, config);
        }
        if gained {
            self.on_progress(self.tx.ring.base() != oldest);
        }
        let extension = self.take_extension();
        let granted =
            matches!(extension, cc::FeedbackExtension::Credit(_) | cc::FeedbackExtension::Share(_));
        if gained || probed || rtt.is_some() || granted {
            self.gain.round_end = self.round_ends(about.as_ref());
            let feedback = cc::Feedback {
                now,
                kind: if probed {
                    cc::FeedbackKind::ProbeAnswered
                } else {
                    cc::FeedbackKind::Acked
                },
                path,
                bytes: self.gain.bytes,
                packets: self.gain.packets,
                ecn: ack.ce,
                // A mark makes the peer acknowledge at once, so every marked packet is the subject
                // of an ACK, unless several arrived in one batch.
                marked: u16::from(ack.ce && live).min(self.gain.packets),
                rtt,
                delivered: about
                    .filter(|slot| slot.is_last(ack.retx))
                    .map(|slot| u64::from(self.delivered_since(&slot))),
                ooo: ack.ooo,
                penalty: ack.state.map(|state| state.rcv_cwnd_pend),
                restore_cwnd: ack.state.is_some_and(|state| state.restore_cwnd),
                extension,
                round_end: self.gain.round_end,
                app_limited: about.is_some_and(|slot| slot.app_limited),
                retransmitted: about.is_some_and(|slot| slot.tries > 0),
                ..cc::Feedback::default()
            };
            self.tx.on_feedback(&feedback, self.timers, self.shared);
        }
        self.compare_modes();
        if self.tx.ring.is_empty() {
            if gained {
                self.tx.on_idle(now, self.timers, self.shared);
                if self.shared.config.dialect.serial {
                    self.shared.events.push_back(Event::Ready { id: self.id });
                }
            }
            return;
        }
        if let Some(probe) = sent_probe
            && self.shared.config.loss.probe
        {
            self.sweep_probed(probe.sent_at());
        } else if let (Some(slot), true) = (about, trip.is_some())
            && slot.tries > 0
            && self.overtook(&slot)
        {
            self.tx.rare_mut().arrived = slot.sent_at;
            LossEvent::new(self.tx, now, self.timers, self.shared).request_probe();
        }
        if gained && self.shared.config.loss.overtaken {
            self.sweep_overtaken();
        }
        if let Some(ooo) = ack.ooo {
            self.recover(ooo);
        }
    }

    /// Returns the ACK's signal that only some congestion controls read.
    #[inline]
    fn take_extension(&mut self) -> cc::FeedbackExtension<'a> {
        match self.ack.extension {
            AlgorithmFacts::None => cc::FeedbackExtension::None,
            AlgorithmFacts::Credit(units) => self.tx.rare_mut().credit.on_grant(units),
            AlgorithmFacts::Share(senders, share) => {
                let share = cc::LineShare::new(senders, share);
                self.shared.counters.rx_bad_share += u64::from(share.is_none());
                share.map_or(cc::FeedbackExtension::None, cc::FeedbackExtension::Share)
            }
            AlgorithmFacts::Telemetry(hops) => cc::FeedbackExtension::Telemetry(hops),
        }
    }

    /// Returns the round-trip time of the packet that the ACK is about, if the ACK can only be
    /// about the last transmission.
    #[inline]
    fn sample(&self) -> Option<RoundTrip> {
        let ring = &self.tx.ring;
        let slot = ring.slot(ring.index(self.ack.ack_psn?)?);
        if !slot.is_last(self.ack.retx)
            || !slot.is_in_flight()
            || !slot.is_timely(self.shared.resumed)
        {
            return None;
        }
        let trip = self.ack.round_trip(slot.sent_at, self.now)?;
        let base = || self.tx.flow.base_rtt(&self.shared.groups);
        (slot.tries < 2 || self.tx.rtt.is_plausible(trip.whole, base())).then_some(trip)
    }

    // Acknowledged packets.

    /// Holds back the clearing of a packet that the peer acknowledged with NO_RESPONSE. The peer sends
    /// the packet's response later, and would not keep it if the packet were cleared before.
    fn hold_clear(&mut self, psn: Psn, response: &Response) {
        if response.opcode == ResponseOpcode::NoResponse {
            self.tx.rare_mut().clear.hold(psn);
        } else if let Some(rare) = &mut self.tx.rare {
            rare.clear.release(psn);
        }
    }

    /// Handles that the peer answered the packet at place `at` of the ring with a response of its
    /// own.
    fn take_response(&mut self, at: usize, response: &Response) {
        if self.tx.ring.slot(at).is_acked() {
            return;
        }
        let psn = self.tx.ring.psn(at);
        let desc = self.take(at, false);
        let event = Event::Responded { id: self.id, desc, psn, response: *response };
        self.shared.events.push_back(event);
        if response.opcode == ResponseOpcode::NoResponse {
            return;
        }
        let when = self.now + self.shared.config.ack_delay;
        self.tx.rare_mut().clear.send_by(when, psn, self.timers);
    }

    /// Marks all packets up to the ACK's cumulative PSN as acknowledged.
    #[inline]
    fn take_cumulative(&mut self) {
        while !self.tx.ring.is_empty() && !self.tx.ring.base().is_after(self.ack.cack) {
            let most = self.ack.cack.plus(1).distance(self.tx.ring.base());
            match self.tx.ring.run_length(usize::try_from(most).unwrap_or(1)) {
                0 | 1 => {
                    self.take_default(0);
                    self.tx.ring.pop_oldest();
                }
                count => self.take_oldest(count),
            }
        }
    }

    /// Marks the oldest `count` packets, which left as a run and are in flight, as acknowledged.
    #[inline]
    fn take_oldest(&mut self, count: usize) {
        let slot = self.tx.ring.slot(0);
        let (nominal, path, desc) = (slot.nominal(), slot.path, slot.desc);
        self.tx.ring.acknowledge_oldest(count);
        let count = count as u16; // a ring has fewer than 4096 places
        let bytes = nominal * u32::from(count);
        self.tx.flow.remove_in_flight(bytes, &mut self.shared.groups);
        self.count((bytes, count), path, self.ack.ce);
        self.shared.events.push_back(Event::Acked { id: self.id, desc, count });
    }

    /// Marks packets as acknowledged that the peer has although earlier ones are missing: those of
    /// the SACK bitmap, and the packet that the ACK is about.
    #[inline]
    fn take_sack(&mut self) {
        let mut map = self.ack.sack_map;
        while map != 0 {
            let psn = self.ack.sack_base.plus(map.trailing_zeros());
            map &= map - 1;
            if let Some(at) = self.tx.ring.index(psn) {
                self.take_default(at);
            }
        }
        if let (Some(psn), None) = (self.ack.ack_psn, self.ack.response)
            && let Some(at) = self.tx.ring.index(psn)
        {
            self.take_default(at);
        }
    }

    /// Marks the packet at place `at` of the ring, which the peer answered with the default
    /// response, as acknowledged.
    #[inline]
    fn take_default(&mut self, at: usize) {
        if !self.tx.ring.slot(at).is_acked() {
            let desc = self.take(at, self.ack.ce);
            self.shared.events.push_back(Event::Acked { id: self.id, desc, count: 1 });
        }
    }

    /// Takes the packet at `at` unless it was acknowledged before, and returns its descriptor.
    /// `marked` means that its path, or another one that the ACK covers, is congested, so that no
    /// path is reported as good.
    #[inline]
    fn take(&mut self, at: usize, marked: bool) -> D {
        let (tx, groups) = (&mut *self.tx, &mut self.shared.groups);
        let slot = tx.ring.slot(at);
        let (nominal, path, desc) = (slot.nominal(), slot.path, slot.desc);
        if tx.ring.acknowledge(at) == SlotState::InFlight {
            tx.flow.remove_in_flight(nominal, groups);
        }
        self.count((nominal, 1), path, marked);
        desc
    }

    /// Counts nominal bytes and packets that the ACK newly acknowledges and that left on `path`.
    #[inline]
    fn count(&mut self, (bytes, packets): (u32, u16), path: u16, marked: bool) {
        self.tx.flow.add_delivered(bytes, &mut self.shared.groups);
        self.gain.bytes += bytes;
        self.gain.packets += packets;
        if !marked && self.gain.credited != Some(path) {
            self.gain.credited = Some(path);
            self.tx.route.on_feedback(self.now, path, PathSignal::Good);
        }
    }

    // Consequences of an acknowledgement.

    /// Restarts the timers of the peer's silence, because it acknowledged something. If that was
    /// the `oldest` packet, also the time without progress.
    #[inline]
    fn on_progress(&mut self, oldest: bool) {
        let tx = &mut *self.tx;
        tx.loss_timer.on_progress(self.now);
        if oldest {
            tx.loss_timer.begin_wait(self.now);
        }
        if let Some(rare) = &mut tx.rare {
            rare.pause.on_progress();
            rare.probe.reset_urgency();
        }
        tx.prober.on_progress();
        self.timers.set(Timer::Probe, self.now + tx.probe_interval(self.shared));
    }

    /// Returns whether a round ends with this ACK. The packet that the ACK is about was as `about`.
    #[inline]
    fn round_ends(&mut self, about: Option<&Slot<D>>) -> bool {
        let (base, next) = (self.tx.ring.base(), self.tx.ring.next());
        let delivered = about.map(|slot| slot.delivered);
        self.tx.flow.round_ends(base, next, delivered, &mut self.shared.groups)
    }

    /// Returns the nominal bytes that were delivered in the congestion-control context since `slot`
    /// was last sent.
    #[inline]
    fn delivered_since(&self, slot: &Slot<D>) -> u32 {
        self.tx.flow.total_delivered(&self.shared.groups).wrapping_sub(slot.delivered)
    }

    /// Returns whether congestion control needs telemetry from switches and has received none.
    #[cold]
    fn lacks_telemetry(&self) -> bool {
        self.tx.flow.metrics(&self.shared.groups).ungranted
    }

    /// Reports, once, that the peer's receiver works in another mode than the congestion control
    /// here needs. The algorithm replaces missing credit by a plain window. Without service times
    /// there are no round-trip samples for congestion control.
    #[inline]
    fn compare_modes(&mut self) {
        let other = if self.shared.config.needs_backlog() {
            self.tx.flow.metrics(&self.shared.groups).ungranted
        } else {
            // A marked ACK without state is a congestion notification.
            let silent = self.ack.state.is_none() && !self.ack.ce;
            silent || self.shared.config.acks.telemetry && self.lacks_telemetry()
        };
        if other && self.tx.flow.set_other_mode() {
            self.shared.counters.other_mode += 1;
            self.shared.events.push_back(Event::OtherMode { id: self.id });
        }
    }

    // Losses.

    /// Declares the oldest missing packets, up to a window, lost if more packets are out of order
    /// than spraying explains.
    #[inline]
    fn recover(&mut self, ooo: u16) {
        let (tx, shared) = (&mut *self.tx, &mut *self.shared);
        if !shared.config.loss.out_of_order {
            return;
        }
        let ring = &tx.ring;
        let outstanding =
            OutstandingPackets { base: ring.base(), top: ring.top(), next: ring.next() };
        // Windows are in bytes; the oldest missing packet shows the current length of packets.
        let size = ring.oldest().map_or(nominal(shared.config.mtu), Slot::nominal);
        let most = shared.config.max_window_packets;
        if !tx.recovery.continue_recovery(outstanding.base) {
            let window = tx.flow.window_packets(self.now, size, most, &shared.groups);
            let max_cwnd = tx.flow.metrics(&shared.groups).max_cwnd;
            let most = max_cwnd.unwrap_or(u64::MAX) / u64::from(size);
            let explained = reordering(window, most, shared.paths, &shared.config);
            // The count is also no sign of loss while the oldest packet, which the others wait for,
            // is being retransmitted.
            let repaired = tx.ring.oldest().is_some_and(|oldest| oldest.tries > 0);
            if u32::from(ooo) < explained || tx.ring.queued() > 0 || repaired {
                return;
            }
            tx.recovery.begin(outstanding);
        }
        let window = tx.flow.window_packets(self.now, size, most, &shared.groups);
        if let Some(range) = tx.recovery.sweep(outstanding, window) {
            let once = |_, slot: &Slot<D>| slot.tries == 0;
            LossEvent::new(tx, self.now, self.timers, shared).mark_lost(
                range,
                RetransmitCause::OutOfOrder,
                once,
            );
        }
    }

    /// Declares packets lost that several later packets on the same path overtook.
    #[inline]
    fn sweep_overtaken(&mut self) {
        let order = self.tx.rare.as_ref().map_or_else(PathOrder::default, |rare| rare.order);
        let Some(overtaken) = OvertakenPackets::examine(&self.tx.ring, order) else { return };
        let (range, config) = (overtaken.range(&self.tx.ring), self.shared.config.clone());
        let now = self.now;
        let which = |psn, slot: &Slot<D>| overtaken.was_overtaken(psn, slot, now, &config);
        LossEvent::new(self.tx, now, self.timers, self.shared).mark_lost(
            range,
            RetransmitCause::Overtaken,
            which,
        );
    }

    /// Returns the round-trip time to the peer without time in queues.
    #[inline]
    fn unloaded_rtt(&self) -> Span {
        self.tx.rtt.unloaded_rtt(self.tx.flow.metrics(&self.shared.groups).base_rtt)
    }

    /// Returns whether the oldest packet left more than an unloaded round trip before `slot`, which
    /// arrived. It is then probably lost, and others with it, because `slot` queued behind it.
    fn overtook(&self, slot: &Slot<D>) -> bool {
        self.tx.ring.oldest().is_some_and(|oldest| {
            let apart = slot.sent_at.since(oldest.sent_at);
            oldest.is_in_flight() && apart > self.unloaded_rtt()
        })
    }

    /// Handles the answer to a probe. The probe overtook the queues, so only packets that cannot be
    /// in them any more are lost if they did not arrive. Such a packet left before the probe by as
    /// long as a round trip may take. Or it left before a packet that did arrive by an unloaded
    /// round trip and [`Config::path_skew`](crate::Config::path_skew), because paths differ.
    ///
    /// Only packets whose arrival is known are judged: the 64 that the answer shows, or all if as
    /// many are acknowledged as the peer has received out of order. All includes the tail, which no
    /// bitmap shows because nothing comes after it. Counted as in flight, it would keep all else
    /// from being retransmitted (STrack section 3.3.2 subtracts lost packets from the bytes in
    /// flight).
    fn sweep_probed(&mut self, sent_at: Time) {
        let apart = self.unloaded_rtt() + self.shared.config.path_skew;
        let (tx, ack) = (&mut *self.tx, self.ack);
        let arrived = tx.ring.iter().filter(|slot| slot.is_acked());
        let known = arrived.clone().count();
        // Which transmission of a retransmitted packet arrived is unknown.
        let newest = arrived.filter(|slot| slot.tries == 0).map(|slot| slot.sent_at).max();
        let newest = newest.max(tx.rare.as_ref().map(|rare| rare.arrived)).unwrap_or(Time::ZERO);
        // No packet arrived since the timer made the sender probe (STrack algorithm 1 line 13), so
        // the queues are not full of this flow's packets.
        let silent = tx.prober.unanswered() > 0;
        let trip = if silent { tx.rtt.mean() } else { tx.rtt.longest() };
        let late = sent_at - trip.max(self.shared.config.path_skew);
        let sent_before = late.max(newest - apart);
        let all = ack.ooo.is_some_and(|ooo| usize::from(ooo) <= known);
        let range = if all {
            (tx.ring.base(), tx.ring.next())
        } else {
            (ack.sack_base, ack.sack_base.plus(64))
        };
        if all {
            tx.rare_mut().probe.retire();
            tx.prober.reset_interval();
            // More than a window may be lost, so retransmissions have to keep to the window.
            tx.recovery.stop();
        }
        let (now, config) = (self.now, self.shared.config.clone());
        let before =
            |_, slot: &Slot<D>| slot.sent_at <= sent_before && slot.loss_allowed_at(&config) <= now;
        LossEvent::new(self.tx, self.now, self.timers, self.shared).mark_lost(
            range,
            RetransmitCause::Probe,
            before,
        );
    }
}

/// Returns the round-trip time without the service time, or `None` if the service time is not
/// shorter than the whole: the peer's clock stood still while the packet waited, or the peer lies.
/// A round trip of zero would make every other one seem congested.
#[inline]
fn without_service(elapsed: Span, service: Span) -> Option<Span> {
    (elapsed > service).then(|| elapsed.saturating_sub(service))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{AckRequest, NextHeader};

    fn ack(cack: Psn, about: i16) -> Ack {
        Ack {
            next: NextHeader::None,
            ce: false,
            retx: false,
            probe: false,
            request: AckRequest::None,
            ack_psn_offset: about,
            cack_psn: cack,
            spdcid: 1,
            dpdcid: 1,
            ext: AckExt::None,
        }
    }

    #[test]
    fn an_ack_of_what_was_never_sent_is_impossible_and_a_very_late_one_stale() {
        let start = Psn(u32::MAX - 1);
        let mut ring = Ring::new(start, 64);
        for desc in 0..4u32 {
            ring.push(Time(1), desc, 100, 0);
        }
        let check =
            |cack: Psn, about| AckFacts::new(&ack(cack, about), None, cc::Hops::NONE).check(&ring);
        assert_eq!(check(start.minus(1), 0), Verdict::Credible);
        assert_eq!(check(start.plus(3), 0), Verdict::Credible);
        assert_eq!(check(start.plus(4), 0), Verdict::Impossible);
        assert_eq!(check(start, 3), Verdict::Credible);
        assert_eq!(check(start, 4), Verdict::Impossible);
        assert_eq!(check(start.minus(8192), 0), Verdict::Credible);
        assert_eq!(check(start.minus(8193), 0), Verdict::Stale);
    }

    #[test]
    fn a_service_time_longer_than_the_whole_round_trip_makes_no_sample() {
        assert_eq!(without_service(Span(100), Span(99)), Some(Span(1)));
        assert_eq!(without_service(Span(100), Span(100)), None);
    }
}
