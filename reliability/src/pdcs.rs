//! All contexts of one endpoint: the table, and the calls that name a context.

mod receive;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::Counters;
use crate::base::{Psn, Span, Time};
use crate::cc::{self, ReceiverCc};
use crate::config::{Config, MAX_WINDOW};
use crate::pdc::{Life, Pdc, recv_window};
use crate::shared::Shared;
use crate::types::{
    Blocked, ControlOut, ControlPacket, Event, Failure, PdcId, PdcInfo, PeerKey, TxGrant, TxPacket,
};
use receive::{Graves, Pending};

/// Slots of closed contexts that rest before one of them is used again, so that late packets of the
/// old context do not meet a new one under its number.
const RESTING: usize = 64;

/// A start PSN keeps at least this distance from the last PSN used under the same number (UE 1.0
/// section 3.5.8.2).
const START_DISTANCE: u32 = 1 << 16;

/// A place for a context.
#[derive(Debug)]
struct Entry<D> {
    /// How often the place was used.
    generation: u16,
    /// The last PSN sent from here.
    last: Psn,
    pdc: Option<Box<Pdc<D>>>,
}

/// All packet delivery contexts of one endpoint. `D` is the engine's descriptor of a packet. The
/// crate documentation gives the order of calls.
#[derive(Debug)]
pub struct Pdcs<D> {
    entries: Vec<Entry<D>>,
    /// Free entries, the longest free first.
    free: VecDeque<u16>,
    /// Accepted contexts by peer and the peer's number.
    accepted: BTreeMap<(PeerKey, u16), u16>,
    /// What was closed lately, by peer.
    graves: BTreeMap<PeerKey, Graves>,
    /// The packet delivered last.
    pending: Option<Pending>,
    shared: Shared<D>,
}

impl<D: Copy> Pdcs<D> {
    /// No contexts yet. Windows beyond their limits are cut to them.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let seed = config.seed;
        Self::with(Arc::new(config), seed)
    }

    /// As [`Pdcs::new`], with parameters that several endpoints share, but for this `seed`.
    #[must_use]
    pub fn with(mut config: Arc<Config>, seed: u64) -> Self {
        let window = config.max_window_packets.clamp(1, MAX_WINDOW);
        let receive = recv_window(&config);
        if (window, receive) != (config.max_window_packets, config.recv_window_packets) {
            let config = Arc::make_mut(&mut config);
            (config.max_window_packets, config.recv_window_packets) = (window, receive);
        }
        Self {
            entries: Vec::new(),
            free: VecDeque::new(),
            accepted: BTreeMap::new(),
            graves: BTreeMap::new(),
            pending: None,
            shared: Shared::new(config, seed),
        }
    }

    // Commands.

    /// Opens a context to `peer` as its initiator. Packets may be sent at once (0-RTT); the peer learns
    /// of the context from the first of them. `None` when [`Config::max_contexts`] exist.
    pub fn open(&mut self, now: Time, peer: PeerKey) -> Option<PdcId> {
        let slot = self.vacancy()?;
        let start = self.start_psn(slot);
        let id = self.install(now, slot, peer, 0, start);
        self.shared.counters.opened += 1;
        self.settle(now, slot, Life::Alive);
        Some(id)
    }

    /// Closes a context in an orderly way once everything sent on it is acknowledged; then
    /// [`Event::Closed`]. From now on it takes no new packets. At the target's end, asks the initiator
    /// to do so.
    pub fn close(&mut self, now: Time, id: PdcId) {
        if let Some(pdc) = self.get(id) {
            pdc.drain(now);
            let life = pdc.step(now);
            self.settle(now, id.slot_number(), life);
        }
    }

    /// Forgets a context at once: [`Event::Lost`] for what is outstanding, then [`Event::Failed`].
    pub fn abort(&mut self, id: PdcId) {
        if self.get(id).is_some() {
            self.end(id.slot_number(), Life::Failed(Failure::Aborted));
        }
    }

    /// Says on which host `peer` lives, for contexts that are shared by host and for receivers that
    /// count hosts; until then each peer is a host of its own. Numbers are the caller's.
    pub fn set_host(&mut self, peer: PeerKey, host: u32) {
        let hosts = &mut self.shared.hosts;
        let at = peer.0 as usize;
        for unknown in hosts.len()..=at {
            // Not above `peer`, which has 32 bits.
            hosts.push(unknown as u32);
        }
        hosts[at] = host;
    }

    /// Keeps a context from being closed as idle (`busy`), because something is still to come on it
    /// that only the engine knows of, such as response data; or no longer.
    pub fn set_busy(&mut self, now: Time, id: PdcId, busy: bool) {
        if let Some(pdc) = self.get(id) {
            pdc.set_busy(now, busy);
            let life = pdc.step(now);
            self.settle(now, id.slot_number(), life);
        }
    }

    /// `peer` is another epoch now: all its contexts fail, and what was remembered about it is
    /// forgotten.
    pub fn peer_restarted(&mut self, peer: PeerKey) {
        for slot in 0..self.entries.len() {
            let theirs = self.entries[slot].pdc.as_ref().is_some_and(|pdc| pdc.peer == peer);
            if theirs {
                // There are at most 65535 entries.
                self.end(slot as u16, Life::Failed(Failure::PeerRestarted));
            }
        }
        self.graves.remove(&peer);
    }

    /// Asks to send a packet for the first time on context `id`, from whichever end this is.
    ///
    /// # Errors
    /// Why it may not be sent now.
    pub fn next_packet(
        &mut self,
        now: Time,
        id: PdcId,
        packet: &TxPacket<D>,
    ) -> Result<TxGrant, Blocked> {
        let entry = self.entries.get_mut(id.slot()).ok_or(Blocked::Gone)?;
        if entry.generation != id.generation() {
            return Err(Blocked::Gone);
        }
        let pdc = entry.pdc.as_mut().ok_or(Blocked::Gone)?;
        let shared = &mut self.shared;
        if pdc.stale(now, &shared.config) {
            pdc.drain(now);
            let life = pdc.step(now);
            self.settle(now, id.slot_number(), life);
            return Err(Blocked::Closing);
        }
        if pdc.refuses() {
            return Err(Blocked::Closing);
        }
        if !pdc.tx.admit(now, packet.bytes, shared) {
            let first = pdc.tx.must_retransmit() && pdc.tx.may_retransmit(now, shared);
            pdc.tx.line_up(pdc.id, shared);
            let behind = packet.backlog + u64::from(packet.bytes);
            pdc.tx.blocked(now, Some(behind), shared);
            // Not through `settle`, which would tell the engine what it learns by this answer.
            talk(now, pdc, shared);
            let when = pdc.timer(now, shared);
            shared.timers.at_latest(id.slot_number(), when);
            return Err(if first { Blocked::Retransmit } else { Blocked::Wait });
        }
        let departure = pdc.tx.send(now, packet, shared);
        pdc.used(now);
        let when = pdc.tx.timer_after_send(shared).unwrap_or_else(|| pdc.timer(now, shared));
        shared.timers.at_latest(id.slot_number(), when);
        Ok(pdc.grant(&departure))
    }

    /// The next packet of context `id` that must be sent again, if it may go now. Retransmissions come
    /// before new packets.
    pub fn poll_retransmit(&mut self, now: Time, id: PdcId) -> Option<(TxGrant, D)> {
        let entry = self.entries.get_mut(id.slot())?;
        if entry.generation != id.generation() {
            return None;
        }
        let pdc = entry.pdc.as_mut()?;
        let shared = &mut self.shared;
        let sent = pdc.tx.resend(now, shared);
        if pdc.tx.must_retransmit() || sent.is_some() {
            if sent.is_none() {
                pdc.tx.line_up(pdc.id, shared);
                pdc.tx.blocked(now, None, shared);
                talk(now, pdc, shared);
            }
            let when = pdc.timer(now, shared);
            shared.timers.at_latest(id.slot_number(), when);
        }
        let (departure, desc) = sent?;
        Some((pdc.grant(&departure), desc))
    }

    // What to do next.

    /// The next packet without data to send; acknowledgements of one context are coalesced since the
    /// last round.
    pub fn poll_control(&mut self, now: Time) -> Option<ControlOut> {
        if let Some(out) = self.shared.out.pop_front() {
            return Some(out);
        }
        if self.shared.config.receiver != cc::ReceiverConfig::Plain
            && let Some(out) = self.poll_receiver(now)
        {
            return Some(out);
        }
        while let Some(&slot) = self.shared.talkative.front() {
            if let Some(pdc) = self.entries.get_mut(usize::from(slot)).and_then(|e| e.pdc.as_mut())
                && pdc.talking
            {
                if let Some(packet) = pdc.say(now, &mut self.shared) {
                    return Some(ControlOut { peer: pdc.peer, path: pdc.control_path(), packet });
                }
                pdc.talking = false;
                let when = pdc.timer(now, &self.shared);
                self.shared.timers.at_latest(slot, when);
            }
            self.shared.talkative.pop_front();
        }
        // Begins again where it is in the cache.
        self.shared.talkative.clear();
        None
    }

    /// What the receiver's part of congestion control wants to tell a peer.
    fn poll_receiver(&mut self, now: Time) -> Option<ControlOut> {
        while let Some(action) = self.shared.receiver.poll(now) {
            let flow = match action {
                cc::ReceiverAction::Credit { flow, .. } | cc::ReceiverAction::Notify { flow } => {
                    flow
                }
                // Nothing that is configurable asks for these.
                cc::ReceiverAction::Bounce { .. } | cc::ReceiverAction::RemoteGroup(_) => continue,
            };
            let id = PdcId::from_u32(flow);
            let Some(pdc) = self.get(id).filter(|pdc| pdc.connected()) else {
                self.shared.counters.tx_unsent += 1;
                continue;
            };
            let (peer, path) = (pdc.peer, pdc.control_path());
            let packet = match action {
                cc::ReceiverAction::Credit { cumulative, .. } => pdc.credit(cumulative),
                _ => pdc.notification(),
            };
            let counters = &mut self.shared.counters;
            match packet {
                ControlPacket::Control(_) => counters.tx_credits += 1,
                _ => counters.tx_notifications += 1,
            }
            return Some(ControlOut { peer, path, packet });
        }
        None
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event<D>> {
        let event = self.shared.events.pop_front();
        if event.is_none() {
            // Begins again where it is in the cache.
            self.shared.events.clear();
        }
        if let Some(Event::Ready { id }) = event
            && let Some(pdc) = self.get(id)
        {
            pdc.tx.woken();
        }
        event
    }

    /// When [`Pdcs::handle_timeout`] wants to be called; `None` for never. May be early.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let receiver = self.shared.receiver.next_timer();
        match (self.shared.timers.next(), receiver) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(slot) = self.shared.timers.pop(now) {
            if let Some(pdc) = self.entries[usize::from(slot)].pdc.as_mut() {
                let life = pdc.on_timer(now, &mut self.shared);
                self.settle(now, slot, life);
            }
        }
    }

    // Getters.

    /// What was counted so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// The parameters.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// When something was last sent or believed on a context; `None` when it is gone.
    #[must_use]
    pub fn last_used(&self, id: PdcId) -> Option<Time> {
        let entry = self.entries.get(id.slot())?;
        entry.pdc.as_ref().filter(|pdc| pdc.id == id).map(|pdc| pdc.last_used())
    }

    /// Contexts that exist.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether none exists.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A context as seen from outside; `None` when it is gone.
    #[must_use]
    pub fn info(&self, id: PdcId) -> Option<PdcInfo> {
        let entry = self.entries.get(id.slot())?;
        let pdc = entry.pdc.as_ref().filter(|_| entry.generation == id.generation())?;
        let metrics = pdc.tx.metrics(&self.shared.groups);
        Some(PdcInfo {
            peer: pdc.peer,
            initiator: pdc.initiator,
            outstanding: pdc.tx.outstanding(),
            in_flight: u64::from(pdc.tx.in_flight()),
            cwnd: metrics.cwnd,
            rate: metrics.rate,
            avg_delay: metrics.avg_delay,
            other_mode: pdc.tx.is_odd(),
            srtt: pdc.tx.srtt(),
            base_rtt: metrics.base_rtt,
        })
    }

    /// Reads what the next packet from or for the context in place `index` ([`PdcId::index`]; on the wire
    /// the number above it) will need: for a simulator with more contexts than the processor's caches
    /// hold, which can wait for the memory of many of them at once. The value means nothing.
    #[must_use]
    pub fn glance(&self, index: usize) -> u64 {
        let pdc = self.entries.get(index).and_then(|entry| entry.pdc.as_deref());
        pdc.map_or(0, Pdc::glance)
    }

    // The table.

    fn get(&mut self, id: PdcId) -> Option<&mut Pdc<D>> {
        let entry = self.entries.get_mut(id.slot())?;
        if entry.generation != id.generation() {
            return None;
        }
        entry.pdc.as_deref_mut()
    }

    /// A free slot; a fresh one while few have been used.
    fn vacancy(&mut self) -> Option<u16> {
        let full = self.entries.len() >= usize::from(self.shared.config.max_contexts);
        if self.free.len() > RESTING || full {
            return self.free.pop_front();
        }
        let slot = u16::try_from(self.entries.len()).ok()?;
        self.entries.push(Entry { generation: 0, last: Psn(0), pdc: None });
        Some(slot)
    }

    fn start_psn(&mut self, slot: u16) -> Psn {
        let last = self.entries[usize::from(slot)].last;
        loop {
            let start = Psn(self.shared.rng.next_u32());
            if start.distance(last).unsigned_abs() >= START_DISTANCE {
                return start;
            }
        }
    }

    fn install(&mut self, now: Time, slot: u16, peer: PeerKey, remote: u16, start: Psn) -> PdcId {
        let entry = &mut self.entries[usize::from(slot)];
        let id = PdcId::new(slot, entry.generation);
        // Slots are below 65535; 0 names no context.
        let local = slot + 1;
        let pdc = Pdc::new(now, id, local, peer, remote, start, &mut self.shared);
        entry.pdc = Some(Box::new(pdc));
        id
    }

    /// After anything happened to the context in `slot`: it ends, or its words, its wake-up and its
    /// timer are looked after.
    fn settle(&mut self, now: Time, slot: u16, life: Life) {
        self.shared.now = now;
        if life != Life::Alive {
            return self.end(slot, life);
        }
        let Some(entry) = self.entries.get_mut(usize::from(slot)) else { return };
        let Some(pdc) = entry.pdc.as_deref_mut() else { return };
        let shared = &mut self.shared;
        if !pdc.tx.wake(now, pdc.id, shared) {
            // The engine does not ask for what it was not told of, so nobody else says what is missing.
            pdc.tx.blocked(now, None, shared);
        }
        talk(now, pdc, shared);
        // Never in the past: what is due has just been done, or waits to be polled.
        let when = pdc.timer(now, shared).max(now + Span::nanos(1));
        shared.timers.at_latest(slot, when);
        if let Some(group) = pdc.tx.context.index() {
            self.wake_line(now, group);
        }
    }

    /// Wakes flows that wait for room in shared context `group`, the longest waiting first, as many as
    /// there is room for.
    fn wake_line(&mut self, now: Time, group: u16) {
        let shared = &mut self.shared;
        let mut line = shared.groups.take_waiting(group);
        let mut room = shared.groups.room(group, now);
        for _ in 0..line.len() {
            let Some(slot) = line.pop_front() else { break };
            let entry = self.entries.get_mut(usize::from(slot));
            let Some(pdc) = entry.and_then(|entry| entry.pdc.as_deref_mut()) else { continue };
            let wants = pdc.tx.wants();
            if wants == 0 || room > 0 && pdc.tx.wake(now, pdc.id, shared) {
                pdc.tx.left_line();
                room = room.saturating_sub(u64::from(wants));
            } else {
                line.push_back(slot);
            }
        }
        shared.groups.put_waiting(group, line);
    }

    /// Takes the context out of the table, and says so.
    fn end(&mut self, slot: u16, life: Life) {
        let Some(entry) = self.entries.get_mut(usize::from(slot)) else { return };
        let Some(mut pdc) = entry.pdc.take() else { return };
        let shared = &mut self.shared;
        let (id, peer) = (pdc.id, pdc.peer);
        if !pdc.initiator {
            self.accepted.remove(&(peer, pdc.remote));
            self.graves.entry(peer).or_default().bury(pdc.remote, pdc.start);
        }
        pdc.dismantle(shared);
        let now = shared.now;
        pdc.tx.event(now, cc::FlowEvent::Closed, shared);
        let successor = shared.groups.leave(&pdc.tx.context, slot);
        entry.last = pdc.tx.next();
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push_back(slot);
        shared.timers.remove(slot);
        match life {
            Life::Failed(why) => {
                shared.counters.failed += 1;
                shared.events.push_back(Event::Failed { id, peer, why });
            }
            _ => {
                shared.counters.closed += 1;
                shared.events.push_back(Event::Closed { id, peer });
            }
        }
        if let Some(successor) = successor {
            // It may have room now, and must watch the timer of what they shared.
            shared.timers.at_latest(successor, shared.now);
        }
    }
}

/// Puts a context on the list of those that have something to say, if it has.
fn talk<D: Copy>(now: Time, pdc: &mut Pdc<D>, shared: &mut Shared<D>) {
    if !pdc.talking && pdc.connected() && pdc.has_words(now) {
        pdc.talking = true;
        shared.talkative.push_back(pdc.id.slot_number());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tx::Slot;

    /// A descriptor as large as they come.
    type Desc = [u64; 2];

    #[test]
    fn a_start_psn_near_the_last_one_is_not_taken() {
        let cc = crate::cc::SenderConfig::fixed(1);
        let paths = crate::cc::PathsConfig::single(1).expect("one path");
        let mut pdcs: Pdcs<Desc> = Pdcs::new(Config::new(4096, cc, paths, 1));
        let slot = pdcs.vacancy().expect("room");
        for offset in [0, 1, START_DISTANCE - 1] {
            for last in [|psn: Psn, n| psn.plus(n), |psn: Psn, n| psn.minus(n)] {
                let mut rng = pdcs.shared.rng.clone();
                let (near, next) = (Psn(rng.next_u32()), Psn(rng.next_u32()));
                pdcs.entries[0].last = last(near, offset);
                assert_eq!(pdcs.start_psn(slot), next);
            }
        }
    }

    /// Of twenty times that `pdc` leaves a path other than `good`, how often that is for `good`.
    fn returns(pdc: &mut Pdc<Desc>, good: u16, shared: &mut Shared<Desc>) -> u32 {
        let (mut returns, mut turns) = (0, 0);
        while turns < 20 {
            let other = pdc.control_path() != good;
            pdc.turn(shared);
            turns += u32::from(other);
            returns += u32::from(other && pdc.control_path() == good);
        }
        returns
    }

    #[test]
    fn a_proven_path_of_acknowledgements_is_returned_to_until_it_loses_one() {
        let cc = crate::cc::SenderConfig::fixed(1);
        let paths = crate::cc::PathsConfig::oblivious(16).expect("16 paths");
        let mut pdcs: Pdcs<Desc> = Pdcs::new(Config::new(4096, cc, paths, 1));
        let id = pdcs.open(Time(1), PeerKey(0)).expect("room");
        let Pdcs { entries, shared, .. } = &mut pdcs;
        let pdc = entries[id.slot()].pdc.as_deref_mut().expect("just opened");
        let start = pdc.start;
        // That the peer knows what was acknowledged before says nothing about this path.
        let path = pdc.control_path();
        pdc.confirmed(start.minus(1));
        assert!(returns(pdc, path, shared) < 10);
        let good = pdc.control_path();
        pdc.confirmed(start);
        assert_eq!(returns(pdc, good, shared), 20);
        // The peer asks, but for what did not arrive; then for what this path should have told.
        assert_eq!(pdc.control_path(), good);
        pdc.turn_away(start, shared);
        assert_eq!(returns(pdc, good, shared), 20);
        pdc.turn_away(start.minus(1), shared);
        assert!(returns(pdc, good, shared) < 10);
    }

    #[test]
    fn what_a_context_that_is_gone_cannot_say_is_counted() {
        let network =
            crate::cc::Network::new(crate::base::Rate::gbps(10), Span::micros(20), 4096, true);
        let cc = crate::cc::SenderConfig::by_name("dcqcn", &network).expect("a listed name");
        let paths = crate::cc::PathsConfig::single(1).expect("one path");
        let config = Config::new(4096, cc, paths, 1).reciprocal(&network);
        let mut pdcs: Pdcs<Desc> = Pdcs::new(config);
        let now = Time(1);
        let id = pdcs.open(now, PeerKey(0)).expect("room");
        let seen = cc::RxMeta { bytes: 4096, ecn: true, ..cc::RxMeta::default() };
        // Its peer was not yet heard of; of the other one nothing is known.
        for (n, flow) in [(1, id.to_u32()), (2, 77)] {
            pdcs.shared.receiver.on_rx(now, &mut cc::RxFlow::new(flow), &seen);
            assert_eq!(pdcs.poll_control(now), None);
            assert_eq!((pdcs.counters().tx_unsent, pdcs.counters().tx_notifications), (n, 0));
        }
    }

    #[test]
    fn an_idle_context_takes_at_most_512_bytes() {
        let context = size_of::<Pdc<Desc>>();
        // The allocator's header, its place in the table, its timer, its key among the accepted ones
        // (12 bytes, and a B-tree node is at least half full).
        let around = 16 + size_of::<Entry<Desc>>() + 16 + 4 + 24;
        assert!(context + around <= 512, "{context} + {around}");
        // Idle, it owns nothing else: rings and bitmaps are back in their pools.
        assert!(size_of::<Slot<Desc>>() <= 40);
    }
}
