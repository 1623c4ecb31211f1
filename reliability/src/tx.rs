//! The sending half of a context: it coordinates its parts. The [`Ring`] holds the outstanding
//! packets, and the [`Flow`] what congestion control allows. The acknowledgements, the NACKs and
//! the timers in the other files find the losses.

mod ack;
mod control;
mod flow;
mod loss;
mod loss_timer;
mod overtaken;
mod prober;
mod question_count;
mod rare;
mod readiness;
mod recovery;
mod ring;
mod route;
mod rtt;
mod run;
mod stuck_packet;

use crate::base::{Psn, Rng, Time};
use crate::cc;
use crate::config::{Config, nominal};
use crate::context::Context;
use crate::deadlines::{Deadlines, Timer};
use crate::shared::Shared;
use crate::types::{Event, NewPacket, PdcId, QueuedPacket};

pub(crate) use ack::{AckFacts, Verdict, on_ack};
pub(crate) use control::TxControl;
pub(crate) use flow::Flow;
pub(crate) use loss::{Expiry, LossEvent, NackFlags};
use loss_timer::LossTimer;
use prober::Prober;
pub(crate) use rare::RareTx;
pub(crate) use readiness::ReadyState;
use recovery::Recovery;
pub(crate) use ring::{RetransmitCause, Ring, Slot};
use route::{Route, stamped_path};
pub(crate) use route::{forget_route, path_metrics};
pub(crate) use rtt::RttEstimator;
pub(crate) use run::{RunPackets, send_end, send_run};

/// Properties of a packet that leaves, from which its header is built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    pub(crate) psn: Psn,
    pub(crate) path: u16,
    /// Length of the packet's UDP payload in bytes.
    pub(crate) bytes: u32,
    /// The packet asks for a prompt acknowledgement (flag AR).
    pub(crate) ask: bool,
    pub(crate) retx: bool,
    pub(crate) clear_psn_offset: i16,
    /// Congestion-control state to write into the packet's header.
    pub(crate) state: Option<cc::RequestState>,
}

/// The sending half of a packet delivery context.
#[derive(Debug)]
pub(crate) struct Tx<D> {
    ring: Ring<D>,
    flow: Flow,
    rtt: RttEstimator,
    loss_timer: LossTimer,
    recovery: Recovery,
    prober: Prober,
    route: Route,
    ready: ReadyState,
    /// The state of the sending half that most contexts never need.
    rare: Option<Box<RareTx>>,
}

impl<D: Copy> Tx<D> {
    /// Creates a sending half whose flow uses the congestion-control context `context`; the first
    /// packet gets PSN `start`.
    pub(crate) fn new(
        start: Psn,
        now: Time,
        context: Context,
        config: &Config,
        rng: &mut Rng,
    ) -> Self {
        Self {
            ring: Ring::new(start, config.max_window_packets),
            flow: Flow::new(context, start),
            rtt: RttEstimator::default(),
            loss_timer: LossTimer::new(now),
            recovery: Recovery::new(start),
            prober: Prober::default(),
            route: Route::new(&config.paths, Rng::new(rng.next_u64())),
            ready: ReadyState::default(),
            rare: None,
        }
    }

    /// Returns the PSN up to which the peer may discard its guaranteed responses.
    pub(crate) fn clear_limit(&self) -> Psn {
        let acknowledged = self.ring.base().minus(1);
        self.rare.as_ref().map_or(acknowledged, |rare| rare.clear.limit(acknowledged))
    }

    /// Returns the packets that were sent and are not yet acknowledged.
    #[inline]
    pub(crate) const fn ring(&self) -> &Ring<D> {
        &self.ring
    }

    /// Returns the flow: its congestion-control context, and its bytes in flight and delivered.
    #[inline]
    pub(crate) const fn flow(&self) -> &Flow {
        &self.flow
    }

    #[inline]
    pub(crate) const fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    #[inline]
    pub(crate) fn ready_mut(&mut self) -> &mut ReadyState {
        &mut self.ready
    }

    #[inline]
    pub(crate) fn rare_mut(&mut self) -> &mut RareTx {
        self.rare.get_or_insert_default()
    }

    // Sending.

    /// Returns whether a new packet of `nominal` bytes may leave. Packets to retransmit go first,
    /// so new packets wait with them until the receiver is ready.
    #[inline]
    fn may_send(&self, now: Time, nominal: u32, shared: &Shared<D>) -> bool {
        self.ring.queued() == 0
            && !self.ring.is_full(shared.config.max_window_packets)
            && self.flow.allows(now, nominal, shared.config.train_bytes, &shared.groups)
    }

    /// Returns whether a packet may be retransmitted. While losses are being recovered it may
    /// exceed the window. After a timeout a single packet may be, and no other before the peer
    /// answers: a silent peer then costs one packet per timeout, not a window.
    #[inline]
    fn may_resend(&self, now: Time, nominal: u32, shared: &Shared<D>) -> bool {
        if self.rare.as_ref().is_some_and(|rare| now < rare.pause.until()) {
            return false;
        }
        if self.loss_timer.is_backing_off() {
            return self.loss_timer.may_resend();
        }
        if self.recovery.is_active() {
            let credit = self.flow.budget(now, &shared.groups).credit;
            return credit.is_none_or(|credit| credit >= u64::from(nominal));
        }
        self.flow.allows(now, nominal, shared.config.train_bytes, &shared.groups)
    }

    /// Returns whether a packet waits to be retransmitted and may leave now.
    #[inline]
    pub(crate) fn may_retransmit(&self, now: Time, shared: &Shared<D>) -> bool {
        self.ring.queued() > 0 && self.may_resend(now, self.next_packet_size(), shared)
    }

    /// Returns whether a new packet of `bytes` may leave now. If not, remembers to report when it
    /// may.
    #[inline(always)]
    pub(crate) fn admit(
        &mut self,
        now: Time,
        bytes: u32,
        timers: &mut Deadlines,
        shared: &Shared<D>,
    ) -> bool {
        self.ready.on_engine_request();
        let nominal = nominal(bytes);
        if self.may_send(now, nominal, shared) {
            self.ready.set_wanted(0);
            return true;
        }
        if self.ready.wanted() == 0 && self.ring.is_empty() {
            self.loss_timer.begin_wait(now);
        }
        self.ready.set_wanted(nominal);
        if self.is_blocked_by_peer() && !timers.is_running(Timer::Clear) {
            let rto = self.loss_timer.rto(&self.rtt, &shared.config);
            let psn = self.ring.base().minus(1);
            self.rare_mut().clear.send_by(now + rto, psn, timers);
        }
        false
    }

    /// Returns whether the peer's window is closed although nothing is outstanding: the peer waits
    /// for a Clear Command, or its ACK that opened the window was lost. Only this end can break the
    /// silence.
    fn is_blocked_by_peer(&self) -> bool {
        self.ready.wanted() > 0 && self.ring.is_empty() && self.ring.is_window_closed()
    }

    /// Sends a new packet that [`Tx::admit`] allowed.
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        now: Time,
        packet: &NewPacket<D>,
        timers: &mut Deadlines,
        shared: &mut Shared<D>,
    ) -> Departure {
        if self.ring.is_empty() {
            self.ring.borrow(&mut shared.pools.rings);
            self.loss_timer.on_progress(now);
            self.loss_timer.begin_wait(now);
            self.flow.begin_round(self.ring.next());
            if self.flow.resume(&mut shared.groups) {
                self.on_event(now, cc::FlowEvent::Resumed, timers, shared);
            }
        }
        if shared.config.needs_backlog() {
            self.rare_mut().credit.set_backlog(packet.backlog);
        }
        let path = self.choose_path(now, packet.bytes, None, shared);
        let (psn, at) = self.ring.push(now, packet.desc, packet.bytes, path);
        self.prober.set_delayed_ack(packet.last && !packet.prompt);
        let (mut departure, full) = self.depart(now, at, packet.last, timers, shared);
        // The flow is limited by the application, not by its budget.
        if packet.last && !full {
            self.ring.mark_app_limited();
        }
        self.prober.begin_silence(now + self.probe_interval(shared), timers);
        departure.ask = packet.last && packet.prompt || full;
        debug_assert_eq!(psn, departure.psn);
        departure
    }

    /// Returns the packet that [`Tx::resend`] would send next, if it may.
    pub(crate) fn next_queued(&mut self) -> Option<QueuedPacket<D>> {
        let (at, _) = self.ring.next_queued()?;
        let Slot { bytes, desc, .. } = *self.ring.slot(at);
        Some(QueuedPacket { psn: self.ring.psn(at), bytes, desc })
    }

    /// Shortens a packet that waits to be sent again. Its bytes are not in flight, so no other counter has to change.
    pub(crate) fn shorten(&mut self, psn: Psn, desc: D, bytes: u32) {
        if let Some(at) = self.ring.index(psn) {
            self.ring.shorten(at, desc, bytes);
        }
    }

    /// Retransmits the next packet that waits, if it may leave. `who` is the context and whether it
    /// is connected. Also returns the path that the packet took before.
    #[inline]
    pub(crate) fn resend(
        &mut self,
        now: Time,
        who: (PdcId, bool),
        timers: &mut Deadlines,
        shared: &mut Shared<D>,
    ) -> Option<(Departure, u16, D)> {
        self.ready.on_engine_request();
        let (at, cause) = self.ring.next_queued()?;
        let Slot { bytes, path: old_path, desc, .. } = *self.ring.slot(at);
        if !self.may_resend(now, nominal(bytes), shared) {
            return None;
        }
        let counters = &mut shared.counters;
        let (counter, avoid) = match cause {
            RetransmitCause::Trimmed => (&mut counters.retx_trimmed, None),
            RetransmitCause::Nacked => (&mut counters.retx_nacked, None),
            RetransmitCause::OutOfOrder => (&mut counters.retx_out_of_order, Some(old_path)),
            // The path works, because later packets on it arrived.
            RetransmitCause::Overtaken => (&mut counters.retx_overtaken, None),
            RetransmitCause::Speculative => (&mut counters.retx_speculative, None),
            RetransmitCause::Probe => (&mut counters.retx_probe, Some(old_path)),
            RetransmitCause::Timeout => (&mut counters.retx_timeout, Some(old_path)),
        };
        *counter += 1;
        self.report_stuck(now, who, at, cause, shared);
        self.loss_timer.on_resend();
        let path = self.choose_path(now, bytes, avoid, shared);
        self.ring.send_again(at, now, path);
        self.prober.set_delayed_ack(false);
        let (departure, _) = self.depart(now, at, false, timers, shared);
        self.prober.begin_silence(now + self.probe_interval(shared), timers);
        Some((Departure { ask: true, retx: true, ..departure }, old_path, desc))
    }

    /// Handles that the packet at `at`, whose slot is up to date, leaves. Congestion control may
    /// choose another path for it, which the slot then holds. Also returns whether no further
    /// packet fits after this one: its acknowledgement is then what the flow waits for (UE 1.0
    /// section 3.6.12: `cwnd - inflight < MTU`).
    #[inline]
    fn depart(
        &mut self,
        now: Time,
        at: usize,
        last: bool,
        timers: &mut Deadlines,
        shared: &mut Shared<D>,
    ) -> (Departure, bool) {
        let slot = self.ring.slot(at);
        let (bytes, chosen) = (slot.bytes, slot.path);
        let sending = cc::SentPacket {
            bytes: slot.nominal(),
            retransmitted: slot.tries > 0,
            app_limited: last,
            backlog: self.backlog(shared),
        };
        let delivered = self.flow.total_delivered(&shared.groups);
        let (stamp, budget) = self.flow.send(now, &sending, &mut shared.groups);
        let path = stamped_path(&stamp, chosen, shared.paths);
        self.ring.stamp(at, path, delivered);
        shared.counters.tx_packets += 1;
        shared.counters.tx_bytes += u64::from(bytes);
        let config = &shared.config;
        if !timers.is_running(Timer::Retransmit) {
            timers.set(Timer::Retransmit, now + self.loss_timer.timeout(&self.rtt, config));
        }
        let room = budget.room(self.flow.total_in_flight(&shared.groups));
        let full =
            room < u64::from(nominal(config.mtu)) || self.ring.is_full(config.max_window_packets);
        // All packets before the oldest outstanding one were acknowledged, and their responses have
        // arrived.
        let (psn, mut clear) = (self.ring.psn(at), self.ring.base().minus(1));
        if let Some(rare) = &self.rare {
            clear = rare.clear.limit(clear);
            rare.clear.on_cleared(clear, timers);
        }
        let departure = Departure {
            psn,
            path,
            bytes,
            ask: false,
            retx: false,
            clear_psn_offset: i16::try_from(clear.distance(psn)).unwrap_or(0),
            state: stamp.state,
        };
        (departure, full)
    }

    /// Returns the path of the current train or of a new one; never `avoid` if there is another.
    #[inline]
    fn choose_path(
        &mut self,
        now: Time,
        bytes: u32,
        avoid: Option<u16>,
        shared: &mut Shared<D>,
    ) -> u16 {
        if self.route.needs_train(bytes, avoid) || self.flow.in_flight() == 0 {
            let config = &shared.config;
            let (size, most) = (nominal(config.mtu), config.max_window_packets);
            let window = self.flow.window_packets(now, size, most, &shared.groups);
            self.route.begin(now, bytes, avoid, window, shared.paths, config);
            shared.counters.tx_trains += 1;
        }
        self.route.join(bytes, 1)
    }

    /// Ends the first pause for a receiver that is not ready, because the handshake is complete.
    pub(crate) fn on_verified(&mut self) {
        if let Some(rare) = &mut self.rare {
            rare.pause.end_first();
        }
    }

    // The end of the context.

    /// Handles that nothing is outstanding any more: stops the timers and returns the ring's memory
    /// to the pool.
    fn on_idle(&mut self, now: Time, timers: &mut Deadlines, shared: &mut Shared<D>) {
        timers.stop(Timer::Retransmit);
        timers.stop(Timer::Probe);
        self.prober.on_progress();
        self.loss_timer.on_idle();
        self.recovery.stop();
        let all = self.flow.pause(&mut shared.groups);
        if self.ready.wanted() == 0 {
            self.route.on_idle(now);
            if all {
                self.on_event(now, cc::FlowEvent::Idle, timers, shared);
            }
        }
        shared.pools.release_ring(self.ring.release());
    }

    /// Discards all outstanding packets: one [`Event::Lost`] for each that the peer may not have.
    pub(crate) fn abandon(&mut self, id: PdcId, shared: &mut Shared<D>) {
        if !self.ring.is_empty() {
            self.flow.pause(&mut shared.groups);
        }
        self.flow.remove_in_flight(self.flow.in_flight(), &mut shared.groups);
        for slot in self.ring.drain() {
            if !slot.is_acked() {
                shared.events.push_back(Event::Lost { id, desc: slot.desc });
            }
        }
        shared.pools.release_ring(self.ring.release());
    }

    /// Renumbers the outstanding packets from PSN `start` on (NEW_START_PSN). Only valid before any
    /// packet was acknowledged.
    pub(crate) fn restart(&mut self, start: Psn, shared: &mut Shared<D>) {
        for at in 0..self.ring.len() {
            if self.ring.slot(at).is_in_flight() {
                self.enqueue(at, RetransmitCause::Nacked, shared);
            }
        }
        self.ring.restart(start, shared.config.max_window_packets);
        self.flow.begin_round(start);
        self.recovery.restart(start);
    }
}
