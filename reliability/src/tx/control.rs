//! Between a sending half and those around it: whom to wake, what the congestion control learns and wants
//! done, credit, Clear Commands.

use super::{LossEvent, Tx, nominal};
use crate::base::{Psn, Span, Time};
use crate::cc;
use crate::config::Config;
use crate::deadlines::{Deadlines, Timer};
use crate::shared::Shared;
use crate::types::{Event, PdcId};

impl<D: Copy> Tx<D> {
    /// Notifies the engine, once, that something may be sent. A flow that must wait for room in a shared
    /// context gets in line. True when it knows.
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
            self.line_up(id, shared);
        }
        self.ready.is_reported()
    }

    /// Gets in line for room in the shared context, if that is where the flow is and it wants to send.
    #[inline]
    pub(crate) fn line_up(&mut self, id: PdcId, shared: &mut Shared<D>) {
        if self.ready.is_in_line() || self.wants() == 0 {
            return;
        }
        if self.flow.wait(id.slot_number(), &mut shared.groups) {
            self.ready.join_line();
        }
    }

    /// Nominal bytes of the packet it would send; zero for none.
    #[inline]
    pub(crate) fn wants(&self) -> u32 {
        if self.ring.queued() == 0 { self.ready.wanted() } else { self.ring.queued_nominal() }
    }

    /// When something may be sent that must wait now; [`Timer::Departure`].
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

    /// When a peer that does not answer the oldest packet, or does not open its window for the first, is
    /// given up; [`Timer::Progress`].
    #[inline]
    pub(crate) fn progress_deadline(&self, connected: bool, config: &Config) -> Time {
        if self.ring.is_empty() && !self.is_shut_out() {
            return Time::NEVER;
        }
        let longer = self.rare.as_ref().map_or(Span::ZERO, |rare| rare.patience);
        self.loss_timer.deadline(connected, longer, config)
    }

    /// For how long the oldest packet has waited for an answer.
    pub(crate) fn waited(&self, now: Time) -> Span {
        self.loss_timer.waited(now)
    }

    /// Nobody was here to listen for `absent`, until now.
    pub(crate) fn excuse(&mut self, now: Time, absent: Span) {
        self.loss_timer.excuse(now, absent);
    }

    // Congestion control.

    /// The congestion control learns something, and gets done what it wants.
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

    /// The congestion control learns what happened to the traffic.
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

    /// The congestion control's time has come; [`Timer::Congestion`].
    pub(crate) fn on_congestion_timer(
        &mut self,
        now: Time,
        timers: &mut Deadlines,
        shared: &mut Shared<D>,
    ) {
        self.flow.on_timer(now, &mut shared.groups);
        self.run_actions(now, timers, shared);
    }

    /// What the congestion control wants done besides.
    #[inline]
    fn run_actions(&mut self, now: Time, timers: &mut Deadlines, shared: &mut Shared<D>) {
        while let Some(action) = self.flow.poll_action(now, &mut shared.groups) {
            match action {
                // Never two: one that is out already answers the question.
                cc::SenderAction::Probe if self.ring.is_empty() => {}
                cc::SenderAction::Probe => {
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
                    let packet = self.flow.rate_packet(now, &mut shared.groups);
                    packet.inspect(|packet| shared.send_rate_packet(None, *packet));
                }
            }
        }
    }

    /// A control packet says something to the congestion control: a grant, or (`Kind::Notified`) that a
    /// packet of this flow was marked.
    pub(crate) fn on_control(
        &mut self,
        now: Time,
        kind: cc::FeedbackKind,
        grant: Option<u32>,
        timers: &mut Deadlines,
        shared: &mut Shared<D>,
    ) {
        let grant = grant.map(|units| self.rare_mut().credit.on_grant(units));
        let feedback = cc::Feedback {
            now,
            kind,
            path: self.route.path(),
            ecn: kind == cc::FeedbackKind::Notified,
            grant,
            ..cc::Feedback::default()
        };
        self.on_feedback(&feedback, timers, shared);
    }

    // Credit.

    /// Nominal bytes that wait to be sent, where anybody asks: those not yet sent as the engine reported
    /// last, and those to be sent again, counted as whole packets.
    #[inline]
    pub(super) fn backlog(&self, shared: &Shared<D>) -> u64 {
        let Some(rare) = self.rare.as_ref().filter(|_| shared.config.tells_backlog()) else {
            return 0;
        };
        let again = u64::from(self.ring.queued()) * u64::from(nominal(shared.config.mtu));
        rare.credit.backlog() + again
    }

    /// The engine wants to send a packet and what is behind it, `waiting` bytes, or again what is queued,
    /// and may not. If credit is what is missing, the congestion control learns it.
    #[inline]
    pub(crate) fn on_blocked(
        &mut self,
        now: Time,
        waiting: Option<u64>,
        timers: &mut Deadlines,
        shared: &mut Shared<D>,
    ) {
        if !shared.config.tells_backlog() {
            return;
        }
        if let Some(waiting) = waiting {
            self.rare_mut().credit.set_backlog(waiting);
        }
        let credit = self.flow.budget(now, &shared.groups).credit;
        if credit.is_some_and(|credit| credit < u64::from(self.wants())) {
            let backlog = self.backlog(shared);
            self.on_event(now, cc::FlowEvent::Blocked { backlog }, timers, shared);
        }
    }

    /// Whether a packet without data waits to be sent: a probe or a request for credit.
    #[inline]
    pub(crate) fn is_control_due(&self) -> bool {
        self.prober.is_due() || self.rare.as_ref().is_some_and(|rare| rare.credit.is_requested())
    }

    // Guaranteed delivery.

    /// The peer asks for a Clear Command.
    pub(crate) fn on_clear_request(&mut self, now: Time, timers: &mut Deadlines, config: &Config) {
        let (psn, rto) = (self.ring.base().minus(1), self.loss_timer.rto(&self.rtt, config));
        self.rare_mut().clear.on_request(now, psn, rto, timers);
    }

    /// The newest copy of the newest probe leaves by `path`.
    pub(crate) fn probe_went_by(&mut self, path: u16) {
        self.rare_mut().probe.went_by(path);
    }

    /// The next packet without data to send, if one is due.
    #[inline]
    pub(crate) fn next_control(
        &mut self,
        now: Time,
        timers: &mut Deadlines,
        config: &Config,
    ) -> Option<TxControl> {
        if timers.is_due(Timer::Clear, now) {
            timers.stop(Timer::Clear);
            if self.is_shut_out() {
                // Repeated while the peer's window is shut.
                timers.set(Timer::Clear, now + self.loss_timer.rto(&self.rtt, config));
            }
            let clear = self.ring.base().minus(1);
            self.rare_mut().clear.on_sent(clear);
            return Some(TxControl::Clear(clear));
        }
        if self.prober.is_due() {
            let waits = !self.ring.is_empty();
            let probe = &mut self.rare_mut().probe;
            let opaque = waits.then(|| probe.next_copy().unwrap_or_else(|| probe.send(now)));
            if opaque.is_none() || probe.left() == 0 {
                self.prober.done();
            }
            if let Some(opaque) = opaque {
                return Some(TxControl::Probe(opaque));
            }
        }
        self.rare.as_mut()?.credit.take_request().map(TxControl::CreditRequest)
    }
}

/// A packet without data that a sending half sends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TxControl {
    /// Responses up to this PSN arrived.
    Clear(Psn),
    /// What arrived? The opaque number of the question.
    Probe(u16),
    /// So much credit is wanted in all.
    CreditRequest(u64),
}
