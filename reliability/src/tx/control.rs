//! The interface of a sending half: waking the engine, events and actions of congestion control,
//! credit, and Clear Commands.

use super::{LossEvent, Tx};
use crate::base::{Psn, Span, Time};
use crate::cc;
use crate::config::{Config, nominal};
use crate::deadlines::{Deadlines, Timer};
use crate::shared::Shared;
use crate::types::{Event, PdcId};

impl<D: Copy> Tx<D> {
    /// Notifies the engine, once, that a packet may be sent. A flow that must wait for room in a
    /// shared context is queued there. Returns whether the engine has been notified.
    #[inline]
    pub(crate) fn wake(&mut self, now: Time, id: PdcId, shared: &mut Shared<D>) -> bool {
        if self.ready.is_reported() {
            return true;
        }
        let wanted = self.ready.wanted();
        let resend = self.may_retransmit(now, shared);
        let send = wanted > 0 && self.may_send(now, wanted, shared);
        if resend || send {
            self.ready.report();
            shared.events.push_back(Event::Ready { id });
        } else {
            self.queue_for_room(id, shared);
        }
        self.ready.is_reported()
    }

    /// Queues the flow for room in its shared context, if it has one and has a packet to send.
    #[inline]
    pub(crate) fn queue_for_room(&mut self, id: PdcId, shared: &mut Shared<D>) {
        if self.ready.is_waiting_for_room() || self.next_packet_size() == 0 {
            return;
        }
        if self.flow.queue_for_room(id.slot_number(), &mut shared.groups) {
            self.ready.start_waiting_for_room();
        }
    }

    /// Returns the nominal bytes of the packet that the flow would send next; zero for none.
    #[inline]
    pub(crate) fn next_packet_size(&self) -> u32 {
        if self.ring.queued() == 0 { self.ready.wanted() } else { self.ring.queued_nominal() }
    }

    /// Returns when the next packet, which must wait now, may be sent ([`Timer::Departure`]).
    #[inline]
    pub(crate) fn departure_at(&self, now: Time, shared: &Shared<D>) -> Time {
        if self.ready.is_reported() || self.ring.queued() == 0 && self.ready.wanted() == 0 {
            return Time::NEVER;
        }
        let budget = self.flow.budget(now, &shared.groups);
        let pause = self.rare.as_ref().map_or(Time::ZERO, |rare| rare.pause.until());
        let pace = self.flow.pace_end(&budget, shared.config.train_bytes, &shared.groups);
        let after = |when: Time| if when > now { when } else { Time::NEVER };
        after(pause).min(after(pace)).min(after(budget.not_before))
    }

    /// Returns when a peer is given up that does not acknowledge the oldest packet, or does not
    /// open its window for the first; [`Timer::Progress`].
    #[inline]
    pub(crate) fn progress_deadline(&self, connected: bool, config: &Config) -> Time {
        if self.ring.is_empty() && !self.is_blocked_by_peer() {
            return Time::NEVER;
        }
        let longer = self.rare.as_ref().map_or(Span::ZERO, |rare| rare.patience);
        self.loss_timer.deadline(connected, longer, config)
    }

    /// Returns how long the peer has owed an answer about the oldest packet.
    pub(crate) fn waiting_time(&self, now: Time) -> Span {
        self.loss_timer.waiting_time(now)
    }

    /// Excludes the last `absent`, in which this process did not run, from the time without
    /// progress.
    pub(crate) fn exclude_absence(&mut self, now: Time, absent: Span) {
        self.loss_timer.exclude_absence(now, absent);
    }

    // Congestion control.

    /// Passes feedback to the congestion control and runs its actions.
    #[inline]
    pub(crate) fn on_feedback(
        &mut self,
        feedback: &cc::Feedback<'_>,
        timers: &mut Deadlines,
        shared: &mut Shared<D>,
    ) {
        self.flow.on_feedback(feedback, &mut shared.groups);
        self.run_actions(feedback.now, timers, shared);
    }

    /// Passes an event of the flow's traffic to the congestion control and runs its actions.
    pub(crate) fn on_event(
        &mut self,
        now: Time,
        event: cc::FlowEvent,
        timers: &mut Deadlines,
        shared: &mut Shared<D>,
    ) {
        self.flow.on_event(now, event, &mut shared.groups);
        self.run_actions(now, timers, shared);
    }

    /// Runs the timer of the congestion control, which is due ([`Timer::Congestion`]).
    pub(crate) fn on_congestion_timer(
        &mut self,
        now: Time,
        timers: &mut Deadlines,
        shared: &mut Shared<D>,
    ) {
        self.flow.on_timer(now, &mut shared.groups);
        self.run_actions(now, timers, shared);
    }

    /// Runs the actions that the congestion control requests, such as a probe.
    #[inline]
    fn run_actions(&mut self, now: Time, timers: &mut Deadlines, shared: &mut Shared<D>) {
        while let Some(action) = self.flow.poll_action(now, &mut shared.groups) {
            match action {
                // With nothing in flight there is nothing to ask.
                cc::SenderAction::Probe if self.ring.is_empty() => {}
                cc::SenderAction::Probe => {
                    // This probe also answers what the timer's would ask, so that one is put off.
                    self.prober.measure();
                    if timers.is_running(Timer::Probe) {
                        let next = now + self.probe_interval(shared);
                        timers.set(Timer::Probe, timers.get(Timer::Probe).max(next));
                    }
                }
                cc::SenderAction::RequestCredit { target } => {
                    self.rare_mut().credit.request(target);
                }
                cc::SenderAction::Rewind { packets } => {
                    LossEvent::new(self, now, timers, shared).rewind(packets);
                }
                cc::SenderAction::SendRatePacket => {
                    let packet = self.flow.poll_rate_packet(now, &mut shared.groups);
                    packet.inspect(|packet| shared.send_rate_packet(None, *packet));
                }
            }
        }
    }

    /// Passes a control packet's information to the congestion control: a grant, or
    /// (`Kind::Notified`) that a packet of this flow was marked.
    pub(crate) fn on_control(
        &mut self,
        now: Time,
        kind: cc::FeedbackKind,
        grant: Option<u32>,
        timers: &mut Deadlines,
        shared: &mut Shared<D>,
    ) {
        let extension = grant
            .map_or(cc::FeedbackExtension::None, |units| self.rare_mut().credit.on_grant(units));
        let feedback = cc::Feedback {
            now,
            kind,
            path: self.route.path(),
            ecn: kind == cc::FeedbackKind::Notified,
            extension,
            ..cc::Feedback::default()
        };
        self.on_feedback(&feedback, timers, shared);
    }

    // Credit.

    /// Returns the nominal bytes that wait to be sent, if congestion control uses them: those not
    /// yet sent as the engine reported last, and those to be retransmitted, counted as whole
    /// packets.
    #[inline]
    pub(super) fn backlog(&self, shared: &Shared<D>) -> u64 {
        let Some(rare) = self.rare.as_ref().filter(|_| shared.config.needs_backlog()) else {
            return 0;
        };
        let again = u64::from(self.ring.queued()) * u64::from(nominal(shared.config.mtu));
        rare.credit.backlog() + again
    }

    /// Informs the congestion control if missing credit blocks a packet: a new one and those behind
    /// it, `waiting` bytes, or one to be retransmitted.
    #[inline]
    pub(crate) fn on_blocked(
        &mut self,
        now: Time,
        waiting: Option<u64>,
        timers: &mut Deadlines,
        shared: &mut Shared<D>,
    ) {
        if !shared.config.needs_backlog() {
            return;
        }
        if let Some(waiting) = waiting {
            self.rare_mut().credit.set_backlog(waiting);
        }
        let credit = self.flow.budget(now, &shared.groups).credit;
        if credit.is_some_and(|credit| credit < u64::from(self.next_packet_size())) {
            let backlog = self.backlog(shared);
            self.on_event(now, cc::FlowEvent::Blocked { backlog }, timers, shared);
        }
    }

    /// Returns whether a control packet of the sending half is due: a probe or a credit request.
    #[inline]
    pub(crate) fn is_control_due(&self) -> bool {
        self.prober.is_due() || self.rare.as_ref().is_some_and(|rare| rare.credit.is_requested())
    }

    // Guaranteed delivery.

    /// Handles the peer's request to tell it which responses arrived (by a Clear Command).
    pub(crate) fn on_clear_request(&mut self, now: Time, timers: &mut Deadlines, config: &Config) {
        let (psn, rto) = (self.ring.base().minus(1), self.loss_timer.rto(&self.rtt, config));
        let clear = &mut self.rare_mut().clear;
        if clear.limit(psn) == psn {
            clear.on_request(now, psn, rto, timers);
        }
    }

    /// Records the path on which the newest copy of the newest probe leaves.
    pub(crate) fn set_probe_path(&mut self, path: u16) {
        self.rare_mut().probe.set_copy_path(path);
    }

    /// Returns the next control packet of the sending half, if one is due.
    #[inline]
    pub(crate) fn next_control(
        &mut self,
        now: Time,
        timers: &mut Deadlines,
        config: &Config,
    ) -> Option<TxControl> {
        if timers.is_due(Timer::Clear, now) {
            timers.stop(Timer::Clear);
            if self.is_blocked_by_peer() {
                // The command is repeated while the peer's window is closed.
                timers.set(Timer::Clear, now + self.loss_timer.rto(&self.rtt, config));
            }
            let psn = self.ring.base().minus(1);
            let rare = self.rare_mut();
            let clear = rare.clear.limit(psn);
            rare.clear.on_sent(clear);
            return Some(TxControl::Clear(clear));
        }
        if self.prober.is_due() && !config.dialect.probes {
            self.prober.clear_request();
        }
        if self.prober.is_due() {
            let waits = !self.ring.is_empty();
            let probe = &mut self.rare_mut().probe;
            let opaque = waits.then(|| probe.next_copy().unwrap_or_else(|| probe.send(now)));
            if opaque.is_none() || probe.remaining_copies() == 0 {
                self.prober.clear_request();
            }
            if let Some(opaque) = opaque {
                return Some(TxControl::Probe(opaque));
            }
        }
        self.rare.as_mut()?.credit.take_request().map(TxControl::CreditRequest)
    }
}

/// A control packet that a sending half sends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TxControl {
    /// A Clear Command: the peer may forget its responses up to this PSN.
    Clear(Psn),
    /// A probe that asks the peer what arrived, with the opaque number that its answer echoes.
    Probe(u16),
    /// A request for credit: the total in bytes that the sender wants since the context opened.
    CreditRequest(u64),
}
