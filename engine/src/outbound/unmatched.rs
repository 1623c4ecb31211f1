//! Messages that a peer of another implementation has acknowledged and keeps until a receive matches
//! them (NO_RESPONSE). The peer sends its response once, when a receive has matched. It may be lost, so
//! this endpoint repeats the first packet of the message, which the peer answers with its response, if
//! there is one by then.

use super::Outbound;
use super::transmit::emit_packet;
use crate::base::{Batch, Psn, Span, Time};
use crate::channel::ChannelId;
use crate::completion::OpError;
use crate::ops::{OpWork, Ops};
use crate::part::Part;
use crate::slab::Key;
use crate::step::Step;
use crate::wire::{Response, ResponseOpcode, ReturnCode};

/// The wait before the first packet of an unmatched message is first repeated. It doubles up to the
/// longest.
const FIRST_WAIT: Span = Span::millis(10);
const LONGEST_WAIT: Span = Span::secs(1);

/// A sent message that its receiver, an endpoint of another implementation, keeps because no posted
/// receive has matched it yet.
#[derive(Clone, Copy, Debug)]
struct UnmatchedMessage {
    op: Key,
    /// The time at which the first packet of the message is repeated.
    at: Time,
    wait: Span,
    /// Number of payload bytes in the first packet of the message.
    len: u32,
}

/// The messages that foreign peers keep because no receive has matched them yet.
#[derive(Debug, Default)]
pub(super) struct UnmatchedMessages {
    all: Vec<UnmatchedMessage>,
    /// The first packets of messages that must be repeated now.
    due: Vec<Part>,
}

impl Outbound {
    /// Waits for a receive to match a message, whose first packet had this PSN.
    #[cold]
    pub(crate) fn await_match(&mut self, step: &mut Step<'_>, part: Part, psn: Psn) {
        let Some(op) = self.ops.get_mut(part.op).filter(|op| op.work == OpWork::Eager) else {
            return;
        };
        op.work = OpWork::Unmatched { matched: false, psn };
        step.start_liveness_timer();
        let at = step.now + FIRST_WAIT;
        let message = UnmatchedMessage { op: part.op, at, wait: FIRST_WAIT, len: part.len };
        self.unmatched.all.push(message);
    }

    /// Returns the message that waits for a response to the packet with this PSN.
    pub(crate) fn find_unmatched(&self, id: ChannelId, psn: Psn) -> Option<Key> {
        let awaited = OpWork::Unmatched { matched: false, psn };
        let is_it = |key: Key| {
            self.ops.get(key).is_some_and(|op| op.context == Some(id) && op.work == awaited)
        };
        self.unmatched.all.iter().map(|message| message.op).find(|key| is_it(*key))
    }

    /// Handles the response to a message that was acknowledged before and that a receive has matched
    /// now.
    pub(crate) fn handle_late_response(
        &mut self,
        step: &mut Step<'_>,
        key: Key,
        response: &Response,
    ) {
        let Some(op) = self.ops.get_mut(key) else { return };
        let OpWork::Unmatched { matched, .. } = &mut op.work else { return };
        if response.opcode == ResponseOpcode::NoResponse {
            return;
        }
        *matched = true;
        let code = response.return_code;
        if !matches!(code, ReturnCode::Ok | ReturnCode::Null) {
            op.error = op.error.or(Some(OpError::Remote(code)));
        }
        if op.progress.in_flight == 0 && op.progress.all_packed {
            let error = op.error;
            self.finish(step, key, error);
        }
        let ops = &self.ops;
        self.unmatched.all.retain(|message| is_unmatched(ops, message.op));
    }

    /// Returns the time at which a message, or the first packet of one, must be sent again for want
    /// of a receive at the peer.
    #[inline]
    pub(crate) fn repeat_deadline(&self) -> Option<Time> {
        let unmatched = self.unmatched.all.iter().map(|message| message.at).min();
        self.refused.deadline().into_iter().chain(unmatched).min()
    }

    /// Handles the timer of unmatched messages: sends refused messages again, and marks the first
    /// packets that are due to be repeated.
    #[cold]
    pub(crate) fn handle_repeat_timer(&mut self, step: &mut Step<'_>) {
        self.resend_refused(step);
        let Self { ops, unmatched: UnmatchedMessages { all, due }, .. } = self;
        all.retain(|message| is_unmatched(ops, message.op));
        for message in all.iter_mut().filter(|message| message.at <= step.now) {
            message.wait = (message.wait * 2).min(LONGEST_WAIT);
            message.at = step.now + message.wait;
            due.push(Part { op: message.op, offset: 0, len: message.len });
        }
    }

    /// Returns whether first packets of unmatched messages must be repeated now.
    #[inline]
    pub(crate) const fn has_repeats(&self) -> bool {
        !self.unmatched.due.is_empty()
    }

    /// Repeats the first packets of messages that no receive has matched.
    #[cold]
    pub(crate) fn send_repeats(&mut self, step: &mut Step<'_>, batch: &mut Batch) {
        for part in core::mem::take(&mut self.unmatched.due) {
            let Some(op) = self.ops.get(part.op) else { continue };
            let OpWork::Unmatched { matched: false, psn } = op.work else { continue };
            let Some(ChannelId::Context(id)) = op.context else { continue };
            let Some(context) = step.contexts.get(id.into()) else { continue };
            let Some(grant) = step.pdcs.repeat(id, psn) else { continue };
            emit_packet(&context.form, batch, context.dst, op, &grant, part);
            step.report.counters.hellos += 1;
        }
    }
}

/// Returns whether an operation is a message that no receive has matched.
fn is_unmatched(ops: &Ops, key: Key) -> bool {
    ops.get(key).is_some_and(|op| op.is_unmatched())
}
