//! All contexts of one endpoint: the calls that name a context, and the polls for the next thing to
//! do.

mod admission;
mod fragments;
mod joint;
mod numbering;
mod rate_packets;
mod receive;
mod runs;
mod table;
mod telemetry;

use std::sync::Arc;

use crate::Counters;
use crate::base::{Psn, SecretRng, Span, Time};
use crate::cc::{self, ReceiverCc};
use crate::config::{Config, MAX_WINDOW};
use crate::flows::FlowRecord;
use crate::pdc::{Outcome, Pdc, Pending, recv_window};
use crate::shared::Shared;
use crate::types::{
    Contact, ControlOut, Event, Label, NewPacket, PdcFailure, PdcId, PdcInfo, PeerKey, SendError,
    Target, TxGrant,
};
pub use admission::Admissions;
pub(crate) use fragments::Originals;
use numbering::ContextNumbers;
pub use rate_packets::RatePacketOut;
use table::Table;

/// Delay after the time of [`Pdcs::poll_timeout`] beyond which this process was absent. It is far
/// longer than a busy process delays its timers, and far shorter than any deadline of a context.
pub const TARDY: Span = Span::millis(500);

/// All packet delivery contexts of one endpoint. `D` is the engine's descriptor of a packet. The
/// crate documentation gives the order of calls.
#[derive(Debug)]
pub struct Pdcs<D> {
    table: Table<D>,
    admissions: Admissions,
    /// Secret generator of start PSNs, for endpoints whose peers pass no handshake.
    starts: Option<SecretRng>,
    /// The data packet that was handed to the engine last, until the engine spends its token.
    pending: Option<Pending>,
    shared: Shared<D>,
}

impl<D: Copy> Pdcs<D> {
    /// Creates an endpoint without contexts. Windows beyond their limits are cut to them.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let seed = config.seed;
        Self::with(Arc::new(config), seed)
    }

    /// Creates an endpoint like [`Pdcs::new`], with parameters that several endpoints share except
    /// for this `seed`.
    #[must_use]
    pub fn with(mut config: Arc<Config>, seed: u64) -> Self {
        let window = config.max_window_packets.clamp(1, MAX_WINDOW);
        let receive = recv_window(&config);
        if (window, receive) != (config.max_window_packets, config.recv_window_packets) {
            let config = Arc::make_mut(&mut config);
            (config.max_window_packets, config.recv_window_packets) = (window, receive);
        }
        if let Some(cc) = config.cc.of_another_host() {
            Arc::make_mut(&mut config).cc = cc;
        }
        let numbering = match &config.contact {
            Contact::Open => ContextNumbers::sequential(),
            Contact::Introduced(seed) | Contact::Unverified(seed) => {
                ContextNumbers::secret(&mut SecretRng::new(seed))
            }
        };
        let starts = match &config.contact {
            Contact::Unverified(seed) => {
                let mut secret = SecretRng::new(seed);
                // The first numbers of the seed made the context numbers.
                Some(SecretRng::new(&secret.seed()))
            }
            Contact::Open | Contact::Introduced(_) => None,
        };
        Self {
            table: Table::new(numbering),
            admissions: Admissions::default(),
            starts,
            pending: None,
            shared: Shared::new(config, seed),
        }
    }

    // Commands.

    /// Opens a context to a peer as its initiator, perhaps with a label. Packets may be sent at
    /// once (0-RTT); the peer learns of the context from the first of them. If peers must be
    /// verified and this one is not, its packets wait until [`Pdcs::release`]. Returns `None` when
    /// [`Config::max_contexts`] exist, or when the peer is outside the job and such peers have
    /// their share of the contexts, opened by either end.
    pub fn open(&mut self, now: Time, to: impl Into<Target>) -> Option<PdcId> {
        let Target { peer, label } = to.into();
        let outside = self.admissions.is_outside(peer);
        if outside && !self.has_room_outside() {
            return None;
        }
        let slot = self.table.free_slot(self.shared.config.max_contexts)?;
        let start = match self.shared.config.contact {
            Contact::Open | Contact::Unverified(_) => {
                let (starts, rng) = (&mut self.starts, &mut self.shared.rng);
                let draw = || starts.as_mut().map_or_else(|| rng.next_u32(), SecretRng::next_u32);
                Some(self.table.start_psn(slot, draw))
            }
            Contact::Introduced(_) => {
                self.admissions.start(peer, self.table.number_and_last_psn(slot))
            }
        };
        let id = self.insert_context(now, slot, (peer, label), 0, start);
        if outside {
            self.table.count_outside(slot);
        }
        self.shared.counters.opened += 1;
        self.apply_outcome(now, slot, Outcome::Alive);
        Some(id)
    }

    /// Returns the verified peers: those that may open contexts here and to which contexts may be
    /// opened.
    pub const fn admissions(&mut self) -> &mut Admissions {
        &mut self.admissions
    }

    /// Releases a context that waited for the handshake with its peer; [`Event::Ready`] follows.
    pub fn release(&mut self, now: Time, id: PdcId) {
        let Some(pdc) = self.table.get(id).filter(|pdc| pdc.life().awaits_handshake()) else {
            return;
        };
        let (peer, number, start) = (pdc.numbers().peer, pdc.numbers().local, pdc.numbers().start);
        // Under another start PSN the target could accept packets twice that it accepted under this
        // one.
        let fresh = if self.admissions.allows(peer, number, start) {
            None
        } else {
            let start =
                self.admissions.start(peer, self.table.number_and_last_psn(id.slot_number()));
            if start.is_none() {
                return;
            }
            start
        };
        if let Some(pdc) = self.table.get_mut(id) {
            pdc.release(now, fresh, &mut self.shared);
            self.shared.events.push_back(Event::Ready { id });
            self.apply_outcome(now, id.slot_number(), Outcome::Alive);
        }
    }

    /// Closes a context in an orderly way once everything sent on it is acknowledged;
    /// [`Event::Closed`] follows. From now on the context takes no new packets. A target requests
    /// the close from its initiator.
    pub fn close(&mut self, now: Time, id: PdcId) {
        if let Some(pdc) = self.table.get_mut(id) {
            let outcome = pdc.drain(now);
            self.apply_outcome(now, id.slot_number(), outcome);
        }
    }

    /// Ends a context at once: [`Event::Lost`] for each outstanding packet, then [`Event::Failed`].
    pub fn abort(&mut self, id: PdcId) {
        if self.table.get(id).is_some() {
            self.remove_context(id.slot_number(), Outcome::Failed(PdcFailure::Aborted));
        }
    }

    /// Sets the host on which `peer` lives, for congestion-control contexts that are shared by
    /// host. Until then each peer counts as a host of its own. The caller chooses the numbers of
    /// hosts.
    pub fn set_host(&mut self, peer: PeerKey, host: u32) {
        self.shared.groups.set_host(peer, host);
    }

    /// Keeps a context from being closed as idle while it is `busy`: the engine still expects
    /// something on it, such as response data.
    pub fn set_busy(&mut self, now: Time, id: PdcId, busy: bool) {
        if let Some(pdc) = self.table.get_mut(id) {
            let outcome = pdc.set_busy(now, busy);
            // Only the end of a context that has nothing outstanding can become due sooner by this.
            // Each message of several packets makes its context busy for a while, so the other
            // cases skip the work.
            let quiet = !busy && pdc.tx().ring().is_empty();
            if quiet || outcome != Outcome::Alive {
                self.apply_outcome(now, id.slot_number(), outcome);
            }
        }
    }

    /// Makes context `id` wait for the answers of a connected peer for `patience`, if that is longer than
    /// [`Config::progress_deadline`]. The caller knows that the peer's process is probably only stopped.
    pub fn set_patience(&mut self, now: Time, id: PdcId, patience: Span) {
        if let Some(pdc) = self.table.get_mut(id) {
            pdc.tx_mut().rare_mut().patience = patience;
            self.apply_outcome(now, id.slot_number(), Outcome::Alive);
        }
    }

    /// Handles that `peer` restarted as another instance: all its contexts fail, and all state
    /// about it is forgotten.
    pub fn peer_restarted(&mut self, peer: PeerKey) {
        for slot in 0..self.table.places() {
            let slot = slot as u16; // there are at most 65535
            if self.table.at(slot).is_some_and(|pdc| pdc.numbers().peer == peer) {
                self.remove_context(slot, Outcome::Failed(PdcFailure::PeerRestarted));
            }
        }
        self.table.forget(peer);
        self.admissions.forget(peer);
    }

    /// Forgets a peer that has no context, because another peer may get its key.
    pub fn forget_peer(&mut self, peer: PeerKey) {
        self.table.forget(peer);
        self.admissions.remove(peer);
        self.shared.flows.forget(peer);
        self.shared.groups.forget(self.shared.config.scope, peer);
    }

    /// Asks to send a packet for the first time on context `id`, from either end.
    ///
    /// # Errors
    /// Returns the reason why the packet may not be sent now.
    // New packets and fragments both call this function, and new packets must not pay for
    // fragments.
    #[inline(always)]
    pub fn next_packet(
        &mut self,
        now: Time,
        id: PdcId,
        packet: &NewPacket<D>,
    ) -> Result<TxGrant, SendError> {
        let pdc = self.table.get_mut(id).ok_or(SendError::Gone)?;
        let shared = &mut self.shared;
        if pdc.is_stale(now, &shared.config) {
            let outcome = pdc.drain(now);
            self.apply_outcome(now, id.slot_number(), outcome);
            return Err(SendError::Closing);
        }
        if pdc.life().refuses_new_packets() {
            return Err(SendError::Closing);
        }
        if pdc.life().awaits_handshake() {
            return Err(SendError::Wait);
        }
        let sent = pdc.send(now, packet, shared);
        let when = match &sent {
            Ok(_) => pdc.deadline_after_send(shared),
            Err(_) => {
                // `conclude` would also report the readiness that this very error returns.
                pdc.list_control(now, shared);
                pdc.next_deadline(now, shared)
            }
        };
        shared.schedule.schedule_by(id.slot_number(), when);
        sent.map_err(|first| if first { SendError::Retransmit } else { SendError::Wait })
    }

    /// Returns the next packet of context `id` that must be retransmitted, if it may leave now.
    /// Retransmissions come before new packets.
    pub fn poll_retransmit(&mut self, now: Time, id: PdcId) -> Option<(TxGrant, D)> {
        let pdc = self.table.get_mut(id).filter(|pdc| !pdc.life().awaits_handshake())?;
        let shared = &mut self.shared;
        if pdc.tx().ring().queued() == 0 {
            pdc.tx_mut().ready_mut().on_engine_request();
            return None;
        }
        let sent = pdc.resend(now, shared);
        if sent.is_none() {
            let id = pdc.numbers().id;
            pdc.tx_mut().queue_for_room(id, shared);
            pdc.on_blocked(now, shared);
            pdc.list_control(now, shared);
        }
        let when = pdc.next_deadline(now, shared);
        shared.schedule.schedule_by(id.slot_number(), when);
        sent
    }

    // Output.

    /// Returns whether [`Pdcs::poll_control`] may have a packet to send.
    #[must_use]
    #[inline]
    pub fn has_control(&self) -> bool {
        let shared = &self.shared;
        shared.control.has_packets() || !matches!(shared.config.receiver, cc::ReceiverConfig::Plain)
    }

    /// Returns the next packet without data to send. Acknowledgements of one context are coalesced
    /// since the last round of calls.
    pub fn poll_control(&mut self, now: Time) -> Option<ControlOut> {
        self.shared.echo.clear();
        if let Some(out) = self.shared.control.next_out() {
            return Some(out);
        }
        if self.shared.config.receiver != cc::ReceiverConfig::Plain
            && let Some(out) = self.table.poll_receiver(now, &mut self.shared)
        {
            return Some(out);
        }
        if self.shared.control.slots.is_empty() {
            return None;
        }
        next_listed(&mut self.table, &mut self.shared, now)
    }

    /// Returns the next event for the engine, if there is one.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event<D>> {
        let event = self.shared.events.pop_front();
        if event.is_some() && self.shared.events.is_empty() {
            // Restart the queue at its first slots, which are in the cache.
            self.shared.events.clear();
        }
        if let Some(Event::Ready { id }) = event
            && let Some(pdc) = self.table.get_mut(id)
        {
            pdc.tx_mut().ready_mut().on_polled();
        }
        event
    }

    /// Returns the time at which [`Pdcs::handle_timeout`] must be called; `None` for never. The
    /// time may be early.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let receiver = self.shared.receiver.next_timer();
        match (self.shared.schedule.next(), receiver) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Returns whether a timer is overdue by more than [`TARDY`], so that this process must have
    /// been stopped or busy with something else.
    #[must_use]
    #[inline]
    pub fn is_overdue(&self, now: Time) -> bool {
        let due = self.shared.schedule.next();
        due.is_some_and(|due| due.max(self.shared.resumed) + TARDY < now)
    }

    /// Excludes an absence of this process from the time that counts against peers. Since `since`,
    /// when a timer was due, packets were neither sent nor received. [`Pdcs::handle_timeout`]
    /// detects absences by its own timers; the caller may know of an absence earlier, or by a timer
    /// of its own. Returns the length of the absence.
    #[cold]
    pub fn exclude_absence(&mut self, now: Time, since: Time) -> Span {
        let absent = now.since(since.max(self.shared.resumed));
        self.shared.resumed = now;
        for slot in 0..self.table.places() {
            let slot = slot as u16; // there are at most 65535
            if let Some(pdc) = self.table.at_mut(slot) {
                pdc.exclude_absence(now, absent);
            }
        }
        absent
    }

    /// Handles all timers of all contexts that are due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.is_overdue(now)
            && let Some(due) = self.shared.schedule.next()
        {
            self.exclude_absence(now, due);
        }
        while let Some(slot) = self.shared.schedule.pop(now) {
            if let Some(pdc) = self.table.at_mut(slot) {
                let outcome = pdc.on_timer(now, &mut self.shared);
                self.apply_outcome(now, slot, outcome);
            }
        }
    }

    // Getters.

    /// Returns the counters of the endpoint.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Returns the parameters with which the endpoint was opened.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Returns the header fields for sending an acknowledged packet of an initiator's context once more,
    /// so that the peer repeats its response. The packet counts neither as sent nor as in flight,
    /// because it is acknowledged already.
    #[must_use]
    pub fn repeat(&self, id: PdcId, psn: Psn) -> Option<TxGrant> {
        self.table.get(id).map(|pdc| pdc.repeat(psn))
    }

    /// Returns whether every packet that was sent on a context is acknowledged.
    #[must_use]
    pub fn is_all_acknowledged(&self, id: PdcId) -> bool {
        self.table.get(id).is_none_or(|pdc| pdc.tx().ring().is_empty())
    }

    /// Returns when a packet was last sent or a valid one received on a context; `None` when the
    /// context is gone.
    #[must_use]
    pub fn last_used(&self, id: PdcId) -> Option<Time> {
        Some(self.table.get(id)?.life().last_used())
    }

    /// Returns the number of packet delivery contexts that exist.
    #[must_use]
    pub fn count(&self) -> usize {
        self.table.len()
    }

    /// Returns the state of context `id` for statistics; `None` when the context is gone.
    #[must_use]
    pub fn info(&self, id: PdcId) -> Option<PdcInfo> {
        let pdc = self.table.get(id)?;
        let (tx, flow) = (pdc.tx(), pdc.tx().flow());
        let metrics = flow.metrics(&self.shared.groups);
        Some(PdcInfo {
            peer: pdc.numbers().peer,
            initiator: pdc.life().is_initiator(),
            outstanding: tx.ring().len(),
            in_flight: u64::from(flow.in_flight()),
            cwnd: metrics.cwnd,
            rate: metrics.rate,
            avg_delay: metrics.avg_delay,
            other_mode: flow.is_other_mode(),
            srtt: tx.rtt().srtt(),
            base_rtt: metrics.base_rtt,
        })
    }

    /// Returns the records of all contexts, living and past, up to date: one record for each peer
    /// and direction, in the order of first contact.
    #[must_use]
    pub fn flows(&self) -> Vec<FlowRecord> {
        let mut flows = self.shared.flows.list().to_vec();
        for pdc in self.table.iter() {
            pdc.sample(&mut flows, &self.shared.groups);
        }
        flows.retain(|record| !record.is_vacant());
        flows
    }

    // The end of every call.

    /// Creates a context in a free slot; `remote` is the peer's number, zero for an initiator.
    fn insert_context(
        &mut self,
        now: Time,
        slot: u16,
        peer: (PeerKey, Label),
        remote: u16,
        start: Option<Psn>,
    ) -> PdcId {
        let id = self.table.id(slot);
        let numbers = (self.table.number_and_last_psn(slot).0, remote);
        self.table.insert(Pdc::new(now, id, peer, numbers, start, &mut self.shared));
        id
    }

    /// Finishes every call that changed the context in `slot`: ends the context, or updates its
    /// control packets, its readiness and its timer.
    fn apply_outcome(&mut self, now: Time, slot: u16, outcome: Outcome) {
        self.shared.now = now;
        if outcome != Outcome::Alive {
            return self.remove_context(slot, outcome);
        }
        let Some(pdc) = self.table.at_mut(slot) else { return };
        let shared = &mut self.shared;
        let id = pdc.numbers().id;
        if !pdc.tx_mut().wake(now, id, shared) {
            // The engine does not ask for packets that were not reported as ready, so this informs
            // congestion control of missing credit.
            pdc.on_blocked(now, shared);
        }
        pdc.list_control(now, shared);
        // The timer is never in the past, because due work has just been done or waits to be
        // polled.
        let when = pdc.next_deadline(now, shared).max(now + Span::nanos(1));
        shared.schedule.schedule_by(slot, when);
        if let Some(group) = pdc.tx().flow().context().index() {
            self.table.wake_waiting_flows(now, group, shared);
        }
    }

    /// Removes the context in `slot` from the table and reports its end to the engine.
    fn remove_context(&mut self, slot: u16, outcome: Outcome) {
        let Some(mut pdc) = self.table.remove(slot) else { return };
        let shared = &mut self.shared;
        let (id, peer) = (pdc.numbers().id, pdc.numbers().peer);
        pdc.release_resources(shared);
        let successor = shared.groups.leave(pdc.tx().flow().context(), slot);
        self.table.release(slot, pdc.tx().ring().next());
        shared.schedule.remove(slot);
        let parting = pdc.life().is_peer_closing();
        match outcome {
            Outcome::Failed(why) => {
                shared.counters.failed += 1;
                shared.events.push_back(Event::Failed { id, peer, why, parting });
            }
            _ => {
                shared.counters.closed += 1;
                shared.events.push_back(Event::Closed { id, peer, parting });
            }
        }
        if let Some(successor) = successor {
            // The successor may have room now, and must watch the timer of the shared
            // congestion-control context.
            shared.schedule.schedule_by(successor, shared.now);
        }
    }
}

/// Returns the next control packet of the contexts that are listed as having some.
fn next_listed<D: Copy>(
    table: &mut Table<D>,
    shared: &mut Shared<D>,
    now: Time,
) -> Option<ControlOut> {
    while let Some(&slot) = shared.control.slots.front() {
        if let Some(pdc) = table.at_mut(slot)
            && pdc.control_path().is_listed()
        {
            if let Some(out) = pdc.next_control(now, shared) {
                return Some(out);
            }
            let when = pdc.next_deadline(now, shared);
            shared.schedule.schedule_by(slot, when);
        }
        shared.control.slots.pop_front();
    }
    // Restart the queue at its first slots, which are in the cache.
    shared.control.slots.clear();
    None
}

#[cfg(test)]
mod tests {
    use super::table::Entry;
    use super::*;
    use crate::tx::Slot;

    /// A descriptor of the largest size in use.
    type Desc = [u64; 2];

    #[test]
    fn credits_and_notifications_of_unconnected_contexts_are_counted_as_unsent() {
        let network = crate::cc::NetworkProfile::new(
            crate::base::Rate::gbps(10),
            Span::micros(20),
            4096,
            true,
        );
        let cc = crate::cc::SenderConfig::by_name("dcqcn", &network).expect("a listed name");
        let paths = crate::cc::PathsConfig::single(1).expect("one path");
        let config = Config::new(4096, cc, paths, 1).reciprocal(&network);
        let mut pdcs: Pdcs<Desc> = Pdcs::new(config);
        let now = Time(1);
        let id = pdcs.open(now, PeerKey(0)).expect("room");
        let seen = cc::ReceivedPacket { bytes: 4096, ecn: true, ..cc::ReceivedPacket::default() };
        // The peer of the first flow has not answered yet; the second flow is unknown.
        for (n, flow) in [(1, id.to_u32()), (2, 77)] {
            pdcs.shared.receiver.on_rx(now, &mut cc::RxFlow::new(flow), &seen);
            assert_eq!(pdcs.poll_control(now), None);
            assert_eq!((pdcs.counters().tx_unsent, pdcs.counters().tx_notifications), (n, 0));
        }
    }

    #[test]
    fn an_idle_context_takes_at_most_512_bytes() {
        let context = size_of::<Pdc<Desc>>();
        // Overhead outside of the context: the allocator's header, its place in the table, its
        // timer, and its key among the accepted ones (12 bytes, in a B-tree node that is at least
        // half full).
        let around = 16 + size_of::<Entry<Desc>>() + 16 + 4 + 24;
        assert!(context + around <= 512, "{context} + {around}");
        // An idle context owns nothing else: rings and bitmaps are back in their pools.
        assert!(size_of::<Slot<Desc>>() <= 40);
    }
}
