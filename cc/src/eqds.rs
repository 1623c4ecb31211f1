//! Receiver-driven credits, the sender's part: Olteanu et al., "An edge-queued datagram service for
//! all datacenter traffic" (EQDS), NSDI 2022, as UE 1.0 specifies it (RCCC) and uet-htsim runs it.
//!
//! A flow starts with speculative credit, so that a short flow need not wait. From the first answer
//! on it sends only what its receiver granted: every packet carries the total credit that the flow
//! wants, and the receiver's one pull pacer ([`crate::CreditReceiver`]) grants its line to all
//! flows that ask, in turn.
//!
//! Credit is cumulative in both directions. A lost, late or repeated number does no harm, because
//! the next one contains it.

mod config;
mod credited;
mod receiver;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use squall_base::Time;

use crate::controller::{
    Budget, Feedback, FeedbackExtension, FeedbackKind, FlowEvent, RequestState, SenderAction,
    SenderCc, SenderMetrics, SentPacket, Stamp,
};
pub use config::EqdsConfig;
pub use credited::{CreditWindow, CreditedConfig, CreditedSender};
pub use receiver::CreditReceiver;

/// A sender that depends on credit: 64 bytes, parameters shared.
///
/// # When no credit comes
///
/// A flow that is blocked asks for credit, and repeats the request
/// ([`SenderAction::RequestCredit`]) at intervals that double. A granting receiver answers each
/// request. A receiver that acknowledges but never answers runs another mode; the flow then
/// continues with a plain window and sets [`SenderMetrics::ungranted`] until a grant arrives. With
/// `in_acks` the flow concludes this from the first ACK without credit.
///
/// A receiver that granted before and now sends nothing may have failed. After the same number of
/// requests one packet leaves without credit, so that loss detection can find out.
#[derive(Clone, Debug)]
pub struct Eqds {
    config: Arc<EqdsConfig>,
    /// Credit received since the flow opened, in bytes (`_pull` of uet-htsim).
    granted: u64,
    /// Unspent credit in bytes; below zero when the last packet was larger than the rest of the
    /// credit.
    balance: i64,
    /// Largest total credit that the flow has asked for since it opened, in bytes (`_pull_target`).
    max_target: u64,
    /// Bytes that wait to be sent, as far as this sender knows.
    backlog: u64,
    /// Time at which the next credit request is due; [`Time::NEVER`] while no data waits for
    /// credit.
    request_at: Time,
    /// Credit requests sent since the last grant arrived.
    requests: u8,
    /// No answer of the receiver arrived yet, so the flow may spend its speculative credit.
    speculating: bool,
    /// The peer has sent a grant of credit, even if of zero bytes.
    granting: bool,
    /// The peer has acknowledged a packet of the flow.
    acked: bool,
    /// The peer grants no credit, so the sender uses a plain window instead.
    plain: bool,
    /// A credit request must be sent.
    request_due: bool,
    /// Data was reported as waiting for credit since the last packet or grant.
    waiting: bool,
}

/// Returns a number of bytes as a signed number; more than 2^63 do not occur.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl Eqds {
    /// Creates a flow that holds its speculative credit. `config` must have passed its check.
    #[must_use]
    pub fn new(config: Arc<EqdsConfig>, _now: Time) -> Self {
        let balance = signed(config.start_credit);
        Self {
            config,
            granted: 0,
            balance,
            max_target: 0,
            backlog: 0,
            request_at: Time::NEVER,
            requests: 0,
            speculating: true,
            granting: false,
            acked: false,
            plain: false,
            request_due: false,
            waiting: false,
        }
    }

    /// Returns whether a plain window replaces the credit that the peer does not grant.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.plain
    }

    /// Returns the nominal bytes of a full packet.
    fn packet(&self) -> u64 {
        u64::from(self.config.mtu)
    }

    /// Returns the credit: any positive balance allows one packet (uet-htsim `can_send_RCCC`), and
    /// the balance then goes below zero by the excess.
    fn credit(&self) -> u64 {
        match u64::try_from(self.balance) {
            Ok(0) | Err(_) => 0,
            Ok(balance) => balance.max(self.packet()),
        }
    }

    /// Returns the total credit that the flow wants when `backlog` bytes wait and at most `most`
    /// may be in flight (uet-htsim `computePullTarget`).
    fn target(&self, backlog: u64, most: u64) -> u64 {
        let wanted = signed(backlog.min(most).min(self.config.max_credit));
        let target = signed(self.granted).saturating_sub(self.balance).saturating_add(wanted);
        // A short flow asks for at least one packet's worth, in case all of it is trimmed.
        let least = if self.speculating && backlog > 0 {
            signed(self.granted.saturating_add(self.packet()))
        } else {
            0
        };
        u64::try_from(target.max(least)).unwrap_or(0)
    }

    /// Subtracts a packet that leaves from the credit, and returns the total credit that the packet
    /// asks for.
    fn spend(&mut self, now: Time, sending: &SentPacket, most: u64) -> u64 {
        if !self.plain {
            self.balance = self.balance.saturating_sub(i64::from(sending.bytes));
        }
        self.backlog = sending.backlog;
        self.waiting = false;
        self.request_at = Time::NEVER;
        self.arm_request_timer(now);
        let target = self.target(self.backlog, most);
        self.max_target = self.max_target.max(target);
        target
    }

    /// Starts the request timer if work waits for credit, and stops it otherwise. Returns whether
    /// work waits.
    fn arm_request_timer(&mut self, now: Time) -> bool {
        let starved = !self.plain && self.balance <= 0 && self.backlog > 0;
        if !starved {
            self.request_at = Time::NEVER;
        } else if self.request_at == Time::NEVER {
            self.request_at = now + self.config.ask_after;
        }
        starved
    }

    /// Adds the credit that a report brings.
    fn on_credit_feedback(&mut self, feedback: &Feedback<'_>) {
        let granted = match feedback.extension {
            FeedbackExtension::Credit(cumulative) => Some(cumulative),
            _ => None,
        };
        match feedback.kind {
            FeedbackKind::Acked => {
                self.stop_speculating();
                self.acked = true;
                if self.config.in_acks && granted.is_none() && !self.granting {
                    self.fall_back();
                }
            }
            FeedbackKind::ProbeAnswered => self.stop_speculating(),
            FeedbackKind::Nacked { .. } => {
                self.stop_speculating();
                // A receiver that got none of the packets has no flow to grant credit to.
                if feedback.in_flight == 0 && !self.granting {
                    self.balance = self.balance.max(i64::from(feedback.bytes));
                }
            }
            // A packet that was sent before any grant must not wait for a grant when it is lost.
            FeedbackKind::TimedOut if !self.granting => {
                self.balance = self.balance.max(i64::from(feedback.bytes));
            }
            FeedbackKind::TimedOut
            | FeedbackKind::Lost
            | FeedbackKind::Notified
            | FeedbackKind::Control => {}
        }
        if let Some(cumulative) = granted {
            self.stop_speculating();
            self.grant(cumulative);
        }
        if matches!(
            feedback.kind,
            FeedbackKind::Nacked { .. } | FeedbackKind::Lost | FeedbackKind::TimedOut
        ) {
            // The packet must be retransmitted, which the receiver may not know.
            self.backlog = self.backlog.saturating_add(u64::from(feedback.bytes));
            self.arm_request_timer(feedback.now);
        }
    }

    /// Ends speculation: credit not spent by the time of the first answer expires.
    fn stop_speculating(&mut self) {
        if self.speculating {
            self.speculating = false;
            self.balance = self.balance.min(0);
        }
    }

    fn grant(&mut self, cumulative: u64) {
        self.granting = true;
        self.requests = 0;
        self.waiting = false;
        if self.plain {
            self.plain = false;
            self.balance = 0;
        }
        if cumulative > self.granted {
            let more = signed(cumulative - self.granted);
            let most = signed(self.config.max_credit);
            self.balance = self.balance.saturating_add(more).min(most);
            self.granted = cumulative;
        }
        if self.balance > 0 {
            self.request_at = Time::NEVER;
            self.request_due = false;
        }
    }

    const fn fall_back(&mut self) {
        self.plain = true;
        self.request_due = false;
        self.request_at = Time::NEVER;
    }

    /// Processes the report that work waits for credit. It asks for credit at once if the receiver
    /// cannot know about the work, and later in any case.
    fn on_blocked(&mut self, now: Time, backlog: u64) {
        self.backlog = backlog;
        if self.arm_request_timer(now) && !self.waiting {
            self.waiting = true;
            self.request_due = self.target(backlog, u64::MAX) > self.max_target;
        }
    }

    fn on_request_timer(&mut self, now: Time) {
        if now < self.request_at {
            return;
        }
        if !self.arm_request_timer(now) {
            return;
        }
        if self.requests >= self.config.patience {
            if self.acked && !self.granting {
                self.fall_back();
                return;
            }
            self.balance = 1; // one packet, for the loss detection
        }
        self.requests = self.requests.saturating_add(1);
        self.request_due = true;
        self.request_at = now + self.config.ask_after * (1 << self.requests.min(6));
    }

    fn poll_request(&mut self) -> Option<SenderAction> {
        if !core::mem::take(&mut self.request_due) {
            return None;
        }
        let target = self.target(self.backlog, u64::MAX);
        self.max_target = self.max_target.max(target);
        Some(SenderAction::RequestCredit { target })
    }

    fn on_flow_event(&mut self, now: Time, event: FlowEvent) {
        match event {
            FlowEvent::Blocked { backlog } => self.on_blocked(now, backlog),
            FlowEvent::Idle | FlowEvent::Closed => {
                self.backlog = 0;
                self.request_due = false;
                self.request_at = Time::NEVER;
            }
            FlowEvent::Opened { .. } | FlowEvent::Resumed => {}
        }
    }

    fn request_timer(&self) -> Option<Time> {
        (self.request_at != Time::NEVER).then_some(self.request_at)
    }
}

impl SenderCc for Eqds {
    fn budget(&self, _now: Time) -> Budget {
        if self.plain {
            Budget { window: Some(self.config.max_credit), ..Budget::default() }
        } else {
            Budget { credit: Some(self.credit()), ..Budget::default() }
        }
    }

    fn on_send(&mut self, now: Time, sending: &SentPacket) -> Stamp {
        let target = self.spend(now, sending, u64::MAX);
        Stamp { state: Some(RequestState::Demand(target)), ..Stamp::default() }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.on_credit_feedback(feedback);
    }

    fn on_event(&mut self, now: Time, event: FlowEvent) {
        self.on_flow_event(now, event);
    }

    fn on_timer(&mut self, now: Time) {
        self.on_request_timer(now);
    }

    fn next_timer(&self) -> Option<Time> {
        self.request_timer()
    }

    fn poll(&mut self, _now: Time) -> Option<SenderAction> {
        self.poll_request()
    }

    fn metrics(&self) -> SenderMetrics {
        SenderMetrics {
            cwnd: self.plain.then_some(self.config.max_credit),
            max_cwnd: Some(self.config.max_credit),
            base_rtt: Some(self.config.base_rtt),
            ungranted: self.plain,
            ..SenderMetrics::default()
        }
    }
}
