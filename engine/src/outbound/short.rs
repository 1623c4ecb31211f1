//! Messages of one shared-memory record, written in the call that sends them.
//!
//! A message that can start at once and fits into one record needs no entry in the operation table. Its bytes go from the user's buffer into the channel, and only its completion is left to
//! report. The list of records that the peer has not taken ([`InFlight`]) keeps it, unless the
//! completion was reported in the call. All other operations, and messages for which the channel
//! has no room now, are queued.

use super::{Outbound, records};
use crate::channel::{ChannelId, ShmId};
use crate::completion::OpError;
use crate::contexts::IdSpace;
use crate::fences::OperationClasses;
use crate::operation::{Action, MatchSpace, Operation, PeerId};
use crate::policy::{CompletionTime, Copy, Plan};
use crate::shm::record::{MAX_HEAD, MAX_SHORT, MAX_WHOLE, Short};
use crate::shm::{InFlight, RecordOutput, RecordPayload, ShortSend};
use crate::step::Step;

impl Outbound {
    /// Writes a message into the shared-memory channel as one record, unless an operation must go before
    /// it or there is no room. Returns whether it was sent; otherwise nothing has changed.
    #[inline]
    pub(super) fn send_record(
        &mut self,
        step: &mut Step<'_>,
        id: ShmId,
        op: &Operation,
        plan: Plan,
        sink: &mut impl RecordOutput,
    ) -> bool {
        let (peer, len, channel) = (op.peer, op.buf.len(), ChannelId::Shm(id));
        let Action::Message { space, tag } = op.action else { return false };
        let turn = self.fences.order_constraints(channel, OperationClasses::SEND, op.options.fence);
        if !self.fences.can_start(peer, turn.before) {
            return false;
        }
        let (Some(shm), Some(context)) = (step.shm.get_mut(id), step.contexts.get_mut(channel))
        else {
            return false;
        };
        if !shm.is_clear() || !context.is_clear() {
            return false;
        }
        let send =
            ShortSend { context: op.context, visibility: op.options.visibility, space, tag, len };
        let record = match plan.complete {
            CompletionTime::Call => InFlight::Reported,
            _ => InFlight::Short(send),
        };
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

/// Returns whether one record of a shared-memory channel has room for an operation of `len` bytes, and a
/// form for it.
#[inline]
pub(super) const fn fits_record(action: &Action, len: u64) -> bool {
    let Action::Message { space, .. } = action else { return false };
    matches!(space, MatchSpace::Untagged | MatchSpace::Tagged) && len <= MAX_WHOLE as u64
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
