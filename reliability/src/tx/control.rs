//! Between a sending half and its congestion-control context: whom to wake, what it wants done, credit.

use super::{Slot, Tx, nominal};
use crate::base::Time;
use crate::cc::{self, SenderCc};
use crate::shared::Shared;
use crate::types::{Event, PdcId};

impl<D: Copy> Tx<D> {
    /// Tells the engine, once, that something may be sent. A flow that must wait for room in a shared
    /// context gets in line. True when it knows.
    pub(crate) fn wake(&mut self, now: Time, id: PdcId, shared: &mut Shared<D>) -> bool {
        if self.ready_said {
            return true;
        }
        let resend = self.may_retransmit(now, shared);
        let send = self.wanted > 0 && self.may_send(now, self.wanted, shared);
        if resend || send {
            self.ready_said = true;
            shared.events.push_back(Event::Ready { id });
        } else {
            self.line_up(id, shared);
        }
        self.ready_said
    }

    /// Gets in line for room in the shared context, if that is where the flow is and it wants to send.
    pub(crate) fn line_up(&mut self, id: PdcId, shared: &mut Shared<D>) {
        if self.waiting || self.wanted == 0 && self.queued == 0 {
            return;
        }
        if let Some(group) = self.context.group(&mut shared.groups) {
            group.waiting.push_back(id.slot_number());
            self.waiting = true;
        }
    }

    /// Nominal bytes of the packet it would send; zero for none.
    pub(crate) fn wants(&self) -> u32 {
        if self.queued == 0 {
            return self.wanted;
        }
        let at = self.index(self.cursor).unwrap_or(0);
        self.ring.get(at).map_or(0, Slot::nominal)
    }

    /// It is no longer in line.
    pub(crate) fn left_line(&mut self) {
        self.waiting = false;
    }

    /// The engine learnt it.
    pub(crate) fn woken(&mut self) {
        self.ready_said = false;
    }

    /// Tells the congestion control what was learnt, and does what it wants done.
    pub(super) fn tell(&mut self, feedback: &cc::Feedback<'_>, shared: &mut Shared<D>) {
        let in_flight = self.context_in_flight(shared);
        let cc = &mut self.context.get_mut(&mut shared.groups).cc;
        cc.on_feedback(&cc::Feedback { in_flight, ..*feedback });
        self.act(feedback.now, shared);
    }

    /// What the congestion control wants done besides.
    pub(super) fn act(&mut self, now: Time, shared: &mut Shared<D>) {
        while let Some(action) = self.context.get_mut(&mut shared.groups).cc.poll(now) {
            match action {
                // Never two: one that is out already answers the question.
                cc::Action::Probe if self.ring.is_empty() => {}
                cc::Action::Probe => {
                    self.probe_due = true;
                    if self.probe_at != Time::NEVER {
                        self.probe_at = self.probe_at.max(now + self.probe_interval(shared));
                    }
                }
                cc::Action::RequestCredit { target } => self.rare().request = Some(target),
                // Nothing that is configurable asks for these.
                cc::Action::Rewind { .. } | cc::Action::Control { .. } => {}
            }
        }
    }

    /// Something is outstanding again.
    pub(super) fn resume(&mut self, now: Time, shared: &mut Shared<D>) {
        if let Some(group) = self.context.group(&mut shared.groups) {
            group.active += 1;
            if group.active > 1 {
                return;
            }
        }
        self.event(now, cc::FlowEvent::Resumed, shared);
    }

    /// Tells the congestion control what happened to the traffic.
    pub(crate) fn event(&mut self, now: Time, event: cc::FlowEvent, shared: &mut Shared<D>) {
        self.context.get_mut(&mut shared.groups).cc.on_event(now, event);
        self.act(now, shared);
    }

    /// Nominal bytes that wait to be sent, where anybody asks: those not yet sent as the engine said
    /// last, and those to be sent again, counted as whole packets.
    pub(super) fn backlog(&self, shared: &Shared<D>) -> u64 {
        let Some(rare) = self.rare.as_ref().filter(|_| shared.config.credits()) else { return 0 };
        rare.backlog + u64::from(self.queued) * u64::from(nominal(shared.config.mtu))
    }

    /// The engine wants to send `bytes` with `behind` more behind them, or again what is queued, and
    /// may not. If credit is what is missing, says so.
    pub(crate) fn blocked(&mut self, now: Time, waiting: Option<u64>, shared: &mut Shared<D>) {
        if !shared.config.credits() {
            return;
        }
        if let Some(waiting) = waiting {
            self.rare().backlog = waiting;
        }
        let credit = self.budget(now, shared).credit;
        if credit.is_some_and(|credit| credit < u64::from(self.wants())) {
            let backlog = self.backlog(shared);
            self.event(now, cc::FlowEvent::Blocked { backlog }, shared);
        }
    }

    /// The peer granted credit: `units` are the low bits of the sum.
    pub(crate) fn granted(&mut self, now: Time, units: u32, shared: &mut Shared<D>) {
        let grant = self.credit(units);
        let feedback = cc::Feedback {
            now,
            kind: cc::Kind::Control,
            path: self.train_path,
            grant: Some(grant),
            ..cc::Feedback::default()
        };
        self.tell(&feedback, shared);
    }

    /// The grant that `units` on the wire stand for.
    pub(super) fn credit(&mut self, units: u32) -> cc::Grant {
        let rare = self.rare();
        let cumulative = cc::credit_bytes(rare.granted, units);
        rare.granted = rare.granted.max(cumulative);
        cc::Grant::Credit(cumulative)
    }

    /// The credit that `units` of the wire ask for in all, for the peer's packets. Kept here because this
    /// half has a place for what is rare.
    pub(crate) fn demand(&mut self, units: u32) -> u64 {
        let rare = self.rare();
        let wanted = cc::credit_bytes(rare.wanted, units);
        rare.wanted = rare.wanted.max(wanted);
        wanted
    }

    /// A congestion notification packet arrived.
    pub(crate) fn notified(&mut self, now: Time, shared: &mut Shared<D>) {
        let feedback = cc::Feedback {
            now,
            kind: cc::Kind::Notified,
            path: self.train_path,
            ecn: true,
            ..cc::Feedback::default()
        };
        self.tell(&feedback, shared);
    }

    /// Whether a request for credit waits.
    pub(crate) fn request_due(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.request.is_some())
    }

    /// The credit to ask for, in all.
    pub(crate) fn take_request(&mut self) -> Option<u64> {
        self.rare.as_mut()?.request.take()
    }
}
