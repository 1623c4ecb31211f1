//! Messages that a peer of another implementation refused because no receive matched them, and that
//! it did not keep. They are sent again, whole and under the same id, until a receive matches.

use super::Outbound;
use crate::base::{Span, Time};
use crate::completion::OpError;
use crate::ops::OpWork;
use crate::slab::Key;
use crate::step::Step;
use crate::wire::ReturnCode;

/// The first wait before a refused message is sent again, which doubles up to the longest. The
/// reference provider waits for 50 to 100 ms at first.
const FIRST_WAIT: Span = Span::millis(50);
const LONGEST_WAIT: Span = Span::secs(1);

/// A message that a foreign peer refused because none of its receives matched.
#[derive(Clone, Copy, Debug)]
struct RefusedMessage {
    op: Key,
    /// Time at which the message is sent again; `None` while its packets are in flight.
    at: Option<Time>,
    /// The wait before the message is sent again, after the next refusal.
    wait: Span,
    /// Time at which the peer first refused the message.
    since: Time,
}

/// The messages that foreign peers refused because none of their receives matched.
#[derive(Debug, Default)]
pub(super) struct RefusedMessages {
    all: Vec<RefusedMessage>,
}

impl RefusedMessages {
    /// Returns the time at which the next refused message must be sent again; `None` if there is
    /// none.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.all.iter().filter_map(|message| message.at).min()
    }
}

impl Outbound {
    /// Schedules a message that no receive matched, none of whose packets is in flight any more, to
    /// be sent again. Nothing else is sent on its context before, because messages stay in order.
    pub(super) fn schedule_resend(&mut self, step: &mut Step<'_>, key: Key) {
        let ops = &self.ops;
        self.refused.all.retain(|message| ops.get(message.op).is_some());
        let now = step.now;
        let at = self.refused.all.iter().position(|message| message.op == key);
        let at = at.unwrap_or_else(|| {
            let fresh = RefusedMessage { op: key, at: None, wait: FIRST_WAIT, since: now };
            self.refused.all.push(fresh);
            self.refused.all.len() - 1
        });
        let message = &mut self.refused.all[at];
        let deadline = step.pdcs.config().progress_deadline;
        if now.since(message.since) >= deadline {
            self.refused.all.swap_remove(at);
            self.finish(step, key, Some(OpError::Remote(ReturnCode::NoMatch)));
            return;
        }
        message.at = Some(now + message.wait);
        message.wait = (message.wait * 2).min(LONGEST_WAIT);
        step.report.counters.tx_no_match += 1;
        if let Some(context) = self.ops.get(key).and_then(|op| step.contexts.get_mut(op.context?)) {
            context.set_held(true);
            context.update_busy(step.now, step.pdcs);
        }
    }

    /// Sends the refused messages again whose waiting time is over.
    pub(super) fn resend_refused(&mut self, step: &mut Step<'_>) {
        for message in &mut self.refused.all {
            if message.at.is_none_or(|at| at > step.now) {
                continue;
            }
            message.at = None;
            let Some(op) = self.ops.get_mut(message.op) else { continue };
            op.work = OpWork::Eager;
            (op.progress.packed, op.progress.all_packed) = (0, false);
            let Some(id) = op.context else { continue };
            if let Some(context) = step.contexts.get_mut(id) {
                context.set_held(false);
            }
            step.contexts.enqueue_first(id, message.op);
            if let Some(context) = step.contexts.get_mut(id) {
                context.update_busy(step.now, step.pdcs);
            }
        }
    }
}
