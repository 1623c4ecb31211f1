//! The application's receive calls: post, peek, claim and cancel.

use super::Inbox;
use crate::base::RegionId;
use crate::completion::{Completion, OpError, OpKind};
use crate::matching::{CancelOutcome, MatchRequest, MultiRecvState, PostedRecv};
use crate::memory::Memory;
use crate::messages::{MessageBuffer, Target};
use crate::operation::{RecvMode, RecvOp, SubmitError};
use crate::step::Step;

impl Inbox {
    /// Executes a receive call. Returns whether the receive only waits now.
    ///
    /// # Errors
    /// [`SubmitError::NotClaimed`].
    #[inline]
    pub(crate) fn receive<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        op: RecvOp,
    ) -> Result<bool, SubmitError> {
        match op.mode {
            RecvMode::Post => return Ok(self.post(step, mem, op)),
            RecvMode::Multi { least } => self.post_multi(step, mem, op, least),
            RecvMode::Peek | RecvMode::PeekClaim | RecvMode::PeekDiscard => {
                self.peek(step, mem, &op);
            }
            RecvMode::Claim => {
                let message = self.messages.take_claimed(op.context)?;
                self.assign_receive(step, mem, message, MessageBuffer::User(target_of(op)));
            }
            RecvMode::ClaimDiscard => {
                let message = self.messages.take_claimed(op.context)?;
                if let Some(message) = self.messages.get(message) {
                    let (context, visibility) = (op.context, op.visibility);
                    let completion =
                        Completion { context, visibility, ..message.head.completion() };
                    step.report.complete(completion);
                }
                self.assign_receive(step, mem, message, MessageBuffer::Discard);
            }
        }
        Ok(false)
    }

    /// Posts a receive buffer. Returns whether the buffer waits for a message.
    #[inline]
    fn post<M: Memory>(&mut self, step: &mut Step<'_>, mem: &mut M, op: RecvOp) -> bool {
        let wanted = match_request(&op);
        let waiting = self.unexpected.find(&wanted).and_then(|number| self.unexpected.take(number));
        match waiting {
            Some(waiting) => {
                self.assign_receive(step, mem, waiting.message, MessageBuffer::User(target_of(op)));
                false
            }
            None => {
                let recv = posted_recv(wanted, op, None);
                if self.unreported.report_to(step, &recv) {
                    return false;
                }
                if recv.wanted.source.is_some() {
                    step.start_liveness_timer();
                }
                self.posted.post(recv);
                true
            }
        }
    }

    fn post_multi<M: Memory>(&mut self, step: &mut Step<'_>, mem: &mut M, op: RecvOp, least: u64) {
        let wanted = match_request(&op);
        let recv = posted_recv(wanted, op, Some(MultiRecvState::new(least)));
        if self.unreported.report_to(step, &recv) {
            return;
        }
        if recv.wanted.source.is_some() {
            step.start_liveness_timer();
        }
        let slot = self.posted.post(recv);
        while self.posted.accepts(slot, &wanted) {
            let Some(number) = self.unexpected.find(&wanted) else { break };
            let Some(waiting) = self.unexpected.take(number) else { break };
            let total = self.messages.get(waiting.message).map_or(0, |m| m.head.extent.total);
            let Some(target) = self.posted.claim(slot, total) else { break };
            self.assign_receive(step, mem, waiting.message, MessageBuffer::User(target));
        }
    }

    /// Searches for an unexpected message without receiving it. The completion describes the
    /// message or has the status [`OpError::NoMessage`]; no data moves.
    fn peek<M: Memory>(&mut self, step: &mut Step<'_>, mem: &mut M, op: &RecvOp) {
        let found = self.unexpected.find(&match_request(op));
        let waiting = found.and_then(|number| match op.mode {
            RecvMode::PeekClaim | RecvMode::PeekDiscard => self.unexpected.take(number),
            _ => self.unexpected.get(number),
        });
        let message = waiting.and_then(|w| self.messages.get_mut(w.message));
        let (context, visibility, kind) = (op.context, op.visibility, OpKind::Peek);
        let (Some(message), Some(waiting)) = (message, waiting) else {
            step.report.complete(Completion {
                region: RegionId::LENT,
                context,
                kind,
                space: op.space,
                len: 0,
                buf: 0,
                data: None,
                tag: op.tag,
                peer: op.source,
                visibility,
                released: false,
                status: Err(OpError::NoMessage),
            });
            return;
        };
        if op.mode == RecvMode::PeekClaim {
            message.claimed = Some(op.context);
        }
        step.report.complete(Completion { context, kind, visibility, ..message.head.completion() });
        if op.mode == RecvMode::PeekDiscard {
            self.assign_receive(step, mem, waiting.message, MessageBuffer::Discard);
        }
    }

    /// Cancels the oldest posted receive with this context that has not matched. Its completion has
    /// the status [`OpError::Cancelled`]. Returns false if there is none.
    pub(crate) fn cancel(&mut self, step: &mut Step<'_>, context: u64) -> bool {
        match self.posted.cancel(context) {
            CancelOutcome::Now(recv) => step.report.complete(cancelled_completion(&recv)),
            CancelOutcome::Later => {}
            CancelOutcome::Unknown => return false,
        }
        true
    }
}

/// Returns the completion of a receive that the application cancelled.
pub(super) fn cancelled_completion(recv: &PostedRecv) -> Completion {
    failed_completion(recv, OpError::Cancelled)
}

/// Returns the completion of a receive that ends without a message.
pub(super) fn failed_completion(recv: &PostedRecv, error: OpError) -> Completion {
    Completion {
        region: RegionId::LENT,
        context: recv.context,
        kind: OpKind::Recv,
        space: recv.wanted.space,
        len: 0,
        buf: recv.buf.base(),
        data: None,
        tag: recv.wanted.tag,
        peer: recv.wanted.source,
        visibility: recv.visibility,
        released: recv.multi.is_some(),
        status: Err(error),
    }
}

#[inline]
fn match_request(op: &RecvOp) -> MatchRequest {
    MatchRequest { space: op.space, source: op.source, tag: op.tag, ignore: op.ignore }
}

fn target_of(op: RecvOp) -> Target {
    let room = op.buf.len();
    let (context, visibility) = (op.context, op.visibility);
    Target { buf: op.buf, at: 0, room, context, visibility, multi: None }
}

#[inline]
fn posted_recv(wanted: MatchRequest, op: RecvOp, multi: Option<MultiRecvState>) -> PostedRecv {
    let (context, visibility) = (op.context, op.visibility);
    PostedRecv { wanted, buf: op.buf, context, visibility, multi }
}
