//! Messages of one shared-memory record, written in the call that sends them.
//!
//! An operation that can start at once and fits into one record needs no entry in the operation
//! table. Its bytes go from the user's buffer into the channel, and only its completion is left to
//! report. The list of records that the peer has not taken ([`InFlight`]) keeps it, unless the
//! completion was reported in the call. All other operations, and messages for which the channel
//! has no room now, are queued.

use super::{Outbound, plan_operation, records};
use crate::channel::ChannelId;
use crate::completion::OpError;
use crate::contexts::IdSpace;
use crate::fences::OperationClasses;
use crate::operation::{Action, MatchSpace, Operation, PeerId, Visibility};
use crate::policy::{CompletionTime, Copy, OpClass, Protocol};
use crate::shm::record::{MAX_HEAD, MAX_SHORT, MAX_WHOLE, Short};
use crate::shm::{InFlight, RecordOutput, RecordPayload, ShortSend};
use crate::step::Step;

impl Outbound {
    /// Sends an operation of the user as one record, if it is a message that fits and nothing must
    /// go before it. Returns whether it was sent; otherwise nothing has changed.
    #[inline]
    pub(crate) fn send_short(
        &mut self,
        step: &mut Step<'_>,
        op: &Operation,
        sink: &mut impl RecordOutput,
    ) -> bool {
        let (peer, len) = (op.peer, op.buf.len());
        let Action::Message { space, tag } = op.action else { return false };
        let known = matches!(space, MatchSpace::Untagged | MatchSpace::Tagged);
        if len > MAX_WHOLE.into() || op.options.visibility == Visibility::Kept || !known {
            return false;
        }
        let Some(id) = step.contexts.shm_channel_to(peer) else { return false };
        let channel = ChannelId::Shm(id);
        let before =
            self.fences.order_constraints(channel, OperationClasses::SEND, op.options.fence).before;
        if !self.fences.can_start(peer, before) {
            return false;
        }
        // Refusals are left to `submit`.
        let plan = plan_operation(step, self.ops.copied(), op, OpClass::Message);
        let Ok(plan) = plan else { return false };
        let send =
            ShortSend { context: op.context, visibility: op.options.visibility, space, tag, len };
        let record = match (plan.protocol, plan.complete) {
            (Protocol::Eager, CompletionTime::Call) => InFlight::Reported,
            (Protocol::Eager, CompletionTime::End) => InFlight::Short(send),
            _ => return false,
        };
        let (Some(shm), Some(context)) = (step.shm.get_mut(id), step.contexts.get_mut(channel))
        else {
            return false;
        };
        if !shm.is_clear() || !context.is_clear() {
            return false;
        }
        let mut head = [0; MAX_HEAD];
        let job_id = step.config.job_id;
        let number = context.peek_id(IdSpace::Message);
        let short = Short { id: number, job_id, space, tag, data: op.data };
        let payload = RecordPayload::Lent { buf: &op.buf, offset: 0, len };
        let sent = if len <= MAX_SHORT as u64 {
            let head_len = short.write(&mut head);
            sink.send_message(id, &head[..head_len], payload)
        } else {
            // The length is at most `MAX_WHOLE`.
            let head_len = short.write_split(len as u32, &mut head);
            sink.send_split(id, &head[..head_len], payload)
        };
        if !sent {
            return false;
        }
        context.next_id(IdSpace::Message);
        shm.push_in_flight(step.now, record);
        records::schedule_check(step);
        let counters = &mut step.report.counters;
        match plan.copy {
            Copy::Call => counters.tx_inline += 1,
            _ => counters.tx_eager += 1,
        }
        counters.tx_payload_bytes += len;
        counters.shm_tx_records += 1;
        if record == InFlight::Reported {
            step.report.complete(send.completion(peer, None));
        }
        true
    }
}

/// Reports the loss of short messages that the peer had not taken when their channel ended.
pub(crate) fn report_lost_short(
    step: &mut Step<'_>,
    peer: PeerId,
    lost: impl Iterator<Item = InFlight>,
    error: OpError,
) {
    for record in lost {
        match record {
            InFlight::Short(send) => step.report.complete(send.completion(peer, Some(error))),
            InFlight::Reported => step.report.record_loss(peer, error),
            // The operation itself reports its failure.
            InFlight::Unowned | InFlight::Part(_) => {}
        }
    }
}
