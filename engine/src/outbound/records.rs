//! Sending of shared-memory records, channel by channel in turn: answers first, then records of the
//! queued operations.

use super::Outbound;
use super::packet::{write_record_head, write_reference_head};
use super::transmit::assign_message_id;
use crate::channel::{ChannelId, ShmId};
use crate::config::Config;
use crate::contexts::Context;
use crate::liveness::LONG_SILENCE;
use crate::operation::PeerId;
use crate::ops::{OpWork, Ops, ReadOwner, TxOp};
use crate::packet_form::PacketForm;
use crate::part::Part;
use crate::shm::record::{self, MAX_HEAD, MAX_PAYLOAD, MAX_REFERENCE, MAX_WHOLE};
use crate::shm::{ClosingState, InFlight, RecordOutput, RecordPayload, ReferenceResult};
use crate::step::Step;

/// Number of records that a shared-memory channel may send before the next one gets its turn.
const QUANTUM: usize = 64;

/// The outcome of an attempt to send a record on a shared-memory channel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SendOutcome {
    Yes,
    /// No record of the channel may be sent now.
    Nothing,
    /// The ring of the channel has no room for the record.
    Full,
}

/// Gives each shared-memory channel that may send its turn to write records to `sink`, as many as it
/// accepts. Returns whether any left.
pub(crate) fn transmit_records(
    outbound: &mut Outbound,
    step: &mut Step<'_>,
    sink: &mut impl RecordOutput,
) -> bool {
    let mut busy = false;
    for _ in 0..step.contexts.scheduled_shm() {
        let Some(id) = step.contexts.pop_scheduled_shm() else { break };
        let mut sent = SendOutcome::Yes;
        for _ in 0..QUANTUM {
            sent = outbound.ops.send_next_record(step, id, sink);
            if sent != SendOutcome::Yes {
                break;
            }
            busy = true;
        }
        step.contexts.end_turn(ChannelId::Shm(id), sent != SendOutcome::Nothing);
    }
    if busy {
        schedule_check(step);
    }
    busy
}

/// Schedules the check whether peers take the records that were just sent.
#[inline]
pub(super) fn schedule_check(step: &mut Step<'_>) {
    step.shm.schedule_check(step.now, LONG_SILENCE.min(step.pdcs.config().progress_deadline));
}

/// Returns the index of an operation that was started on a context to a peer and is not acknowledged. If there is none,
/// later operations may use a shared-memory channel. The search begins at index `from`.
pub(crate) fn find_unacknowledged(outbound: &Outbound, peer: PeerId, from: u32) -> Option<u32> {
    let on_its_way = |op: &TxOp| {
        let progress = op.progress;
        op.peer == peer
            && op.context.is_some_and(|id| id.context().is_some())
            && !(progress.all_packed && progress.in_flight == 0)
            && !matches!(
                op.work,
                OpWork::Response { .. } | OpWork::Question { .. } | OpWork::Group { .. }
            )
    };
    outbound.ops.position_from(from, on_its_way)
}

impl Ops {
    /// Sends the next record of a channel: an answer, a close notification or a part of an
    /// operation.
    #[inline]
    fn send_next_record(
        &mut self,
        step: &mut Step<'_>,
        id: ShmId,
        sink: &mut impl RecordOutput,
    ) -> SendOutcome {
        let Some(shm) = step.shm.get_mut(id) else { return SendOutcome::Nothing };
        if let Some((number, response)) = shm.next_answer() {
            let mut head = [0; MAX_HEAD];
            let len = record::write_answer(*number, response, &mut head);
            if !sink.send(id, &head[..len], RecordPayload::Copied(&[])) {
                return SendOutcome::Full;
            }
            shm.mark_answer_sent(step.now);
            return SendOutcome::Yes;
        }
        let channel = ChannelId::Shm(id);
        let Some(context) = step.contexts.get_mut(channel) else { return SendOutcome::Nothing };
        if context.has_set_aside()
            && !shm.held
            && (context.has_slot_for_set_aside() || sink.has_message_room(id))
        {
            context.restore_set_aside();
        }
        while let Some(&first) = context.queue.front() {
            let Some(op) = self.get(first) else { break };
            if !must_wait(step.config, op, (shm.held, context), || sink.has_message_room(id)) {
                break;
            }
            let for_slot = op.work.slot().is_some() && !context.slots.has_room();
            context.set_first_aside(op.classes, for_slot);
        }
        let Some(&key) = context.queue.front() else {
            if context.has_set_aside() {
                // The channel becomes active again when an answer arrives, or when the operations
                // on contexts have ended. The peer shows by itself when it takes messages again, as
                // it shows when there is room in the ring.
                let woken = shm.held || context.waits_for_slot();
                return if woken { SendOutcome::Nothing } else { SendOutcome::Full };
            }
            if shm.closing != ClosingState::Due {
                return SendOutcome::Nothing;
            }
            if !sink.send(id, &record::close_notification(), RecordPayload::Copied(&[])) {
                return SendOutcome::Full;
            }
            shm.push_in_flight(step.now, InFlight::Unowned);
            shm.closing = ClosingState::Sent;
            return SendOutcome::Nothing;
        };
        let Some(op) = self.get_mut(key) else {
            // The operation ended while it was queued.
            context.queue.pop_front();
            return SendOutcome::Yes;
        };
        if op.progress.message_id.is_none() {
            op.progress.message_id = Some(assign_message_id(context, &mut op.work, key));
        }
        let form = context.form;
        let left = op.payload_len() - op.progress.packed;
        let is_whole = op.progress.packed == 0 && left <= MAX_WHOLE.into();
        let mut len = match op.work {
            OpWork::Response { .. } => left.min(MAX_PAYLOAD.into()),
            _ if is_whole => left,
            _ => left.min(MAX_PAYLOAD.into()),
        };
        // `request_length` has 32 bits.
        let mut part = Part { op: key, offset: op.progress.packed as u32, len: len as u32 };
        if let Some(all) = offer_len(op) {
            // If a receive waits for the message, the peer copies it at once.
            let whole = Part { len: all, ..part };
            match send_reference(&form, op, whole, id, sink) {
                ReferenceResult::Yes => {}
                ReferenceResult::Never => {
                    if !send_part(&form, op, part, id, sink) {
                        return SendOutcome::Full;
                    }
                }
                ReferenceResult::Full => return SendOutcome::Full,
            }
        } else if left > len && op.lends() {
            let all = left.min(MAX_REFERENCE.into());
            match send_reference(&form, op, Part { len: all as u32, ..part }, id, sink) {
                ReferenceResult::Never => {
                    if !send_part(&form, op, part, id, sink) {
                        return SendOutcome::Full;
                    }
                }
                ReferenceResult::Yes => (len, part.len) = (all, all as u32),
                ReferenceResult::Full => return SendOutcome::Full,
            }
        } else if !send_part(&form, op, part, id, sink) {
            return SendOutcome::Full;
        }
        let ends = len == left;
        step.report.counters.tx_payload_bytes += len;
        step.report.counters.shm_tx_records += 1;
        shm.push_in_flight(step.now, InFlight::Part(part));
        op.progress.packed += len;
        op.progress.in_flight += 1;
        context.set_half_way(!ends);
        if ends {
            op.progress.all_packed = true;
            context.queue.pop_front();
        }
        SendOutcome::Yes
    }
}

/// Returns whether an operation on a shared-memory channel may not begin now, although operations behind it may
/// overtake it. Without the overtaking, an answer that the peer waits for would wait for a request that the peer does
/// not take before it has that answer.
#[inline]
fn must_wait(
    config: &Config,
    op: &TxOp,
    (held, context): (bool, &Context),
    has_message_room: impl FnOnce() -> bool,
) -> bool {
    match op.work {
        OpWork::Response { .. } => return false,
        _ if op.progress.message_id.is_some() => return false,
        _ => {}
    }
    let starved = !context.slots.has_room();
    // Requests of the engine itself, such as the read of bytes that the peer offered, were not begun before, and no
    // order is promised for them.
    let of_engine = matches!(op.work, OpWork::Question { .. })
        || matches!(
            op.work,
            OpWork::Read { owner: ReadOwner::Message(_) | ReadOwner::End { .. }, .. }
        );
    if of_engine {
        return op.work.slot().is_some() && starved;
    }
    let follows = || {
        context.has_set_aside()
            && (starved || config.order.follows(op.classes, context.aside_classes()))
    };
    held || starved && op.work.slot().is_some()
        || match op.work {
            OpWork::Eager | OpWork::Confirmed { .. } | OpWork::Rendezvous { .. } => {
                context.has_set_aside() || !has_message_room()
            }
            _ => follows(),
        }
}

/// Returns the length of a rendezvous message if its offer can refer to it.
#[inline]
fn offer_len(op: &TxOp) -> Option<u32> {
    let offer = matches!(op.work, OpWork::Rendezvous { .. }) && op.lends();
    let len = u32::try_from(op.label.len).ok().filter(|len| (1..=MAX_REFERENCE).contains(len));
    len.filter(|_| offer)
}

/// Sends a record that refers to a part of an operation, or to the message that it offers.
fn send_reference(
    form: &PacketForm,
    op: &TxOp,
    part: Part,
    id: ShmId,
    sink: &mut impl RecordOutput,
) -> ReferenceResult {
    let mut head = [0; MAX_HEAD];
    let Some(len) = write_reference_head(form, op, part, &mut head) else {
        return ReferenceResult::Never;
    };
    let lent = (&op.bytes.buf, op.bytes.offset + u64::from(part.offset), u64::from(part.len));
    sink.send_reference(id, &head[..len], lent, part.op.to_u64())
}

/// Sends a part of an operation as a record. Returns whether the channel had room.
#[inline]
fn send_part(
    form: &PacketForm,
    op: &TxOp,
    part: Part,
    id: ShmId,
    sink: &mut impl RecordOutput,
) -> bool {
    let mut head = [0; MAX_HEAD];
    let head_len = write_record_head(form, op, part, &mut head);
    let payload = match &op.bytes.copied {
        Some(copied) => {
            let from = part.offset as usize;
            RecordPayload::Copied(&copied[from..from + part.len as usize])
        }
        None if op.lends() => {
            let offset = op.bytes.offset + u64::from(part.offset);
            RecordPayload::Lent { buf: &op.bytes.buf, offset, len: part.len.into() }
        }
        None => RecordPayload::Copied(&[]),
    };
    sink.send(id, &head[..head_len], payload)
}
