//! Questions about operations that have arrived and that only their peer can end: a read that waits
//! for data, a rendezvous that waits for reads, or a send that waits for a match. They wait as long
//! as the peer knows them, so the engine asks the peer about each.
//!
//! The question is a NO_OP on the operation's own context; `docs/wire.md` gives its fields.
//!
//! The peer has acknowledged the operation, and this endpoint acknowledges what ends it. So an
//! honest peer knows every operation that still waits. A peer that does not know it has forgotten
//! it, or an attacker has acknowledged it in the peer's name.

use super::Outbound;
use super::packet::rendezvous_key;
use crate::channel::ChannelId;
use crate::operation::PeerId;
use crate::ops::{OpWork, Ops, QuestionState, QuestionSubject, RESOURCE_RENDEZVOUS, TxOp};
use crate::slab::Key;
use crate::step::Step;
use crate::wire::StdRequest;

/// Largest number of questions per interval of [`crate::Config::keepalive`]. Operations take turns.
const QUESTIONS: usize = 64;

/// The operation that a peer's NO_OP asks about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PeerQuestion {
    /// No operation: the peer asks only for a sign of life.
    Nothing,
    /// The peer's read or fetching atomic that waits in this slot.
    Read(u16),
    /// The peer's message with this id, and the slot for its confirmation.
    Send(u16, u16),
    /// The peer's message with this id, and the key under which this endpoint reads it.
    Rendezvous(u16, u64),
    /// A kind of operation that this endpoint does not know.
    Unknown,
}

impl PeerQuestion {
    /// Parses a NO_OP of a peer: the operation that it asks about.
    pub(crate) const fn read(request: &StdRequest) -> Self {
        // The casts truncate the number to its fields.
        let (low, high) = (request.buffer_offset as u16, (request.buffer_offset >> 16) as u16);
        match request.resource_index {
            0 => Self::Nothing,
            1 => Self::Read(low),
            2 => Self::Send(low, high),
            3 => Self::Rendezvous(low, request.match_bits),
            _ => Self::Unknown,
        }
    }
}

/// Returns the header fields by which a question names an operation.
fn subject_of(key: Key, op: &TxOp) -> QuestionSubject {
    let id = u64::from(op.progress.message_id.unwrap_or(0));
    match op.work {
        OpWork::Read { slot, .. } | OpWork::Fetch { slot, .. } => {
            QuestionSubject { kind: 1, number: u64::from(slot), key: 0 }
        }
        OpWork::Confirmed { slot, .. } => {
            QuestionSubject { kind: 2, number: id | u64::from(slot) << 16, key: 0 }
        }
        OpWork::Rendezvous { nonce, .. } => {
            QuestionSubject { kind: 3, number: id, key: rendezvous_key(nonce, key) }
        }
        _ => QuestionSubject::default(),
    }
}

/// The progress of asking peers about operations that wait for them, some operations at a time.
#[derive(Debug, Default)]
pub(super) struct QuestionQueue {
    /// Index of the operation that the next question is about.
    next: u32,
}

impl QuestionQueue {
    /// Asks peers about operations that have waited for their answer for at least one interval.
    fn ask_about_owed(&mut self, ops: &mut Ops, step: &mut Step<'_>) {
        let owed = ops.select(TxOp::is_owed);
        let from = owed.partition_point(|key| key.index < self.next);
        let mut left = QUESTIONS;
        for &key in owed[from..].iter().chain(&owed[..from]) {
            let Some(op) = ops.get_mut(key) else { continue };
            let (peer, context) = (op.peer, op.context);
            match (op.asked, context.filter(|id| step.contexts.get(*id).is_some())) {
                (QuestionState::No, _) => op.asked = QuestionState::Soon,
                (QuestionState::Soon, Some(id)) if left > 0 => {
                    op.asked = QuestionState::Now;
                    left -= 1;
                    self.next = key.index.wrapping_add(1);
                    let (about, subject) = (Some(key), subject_of(key, op));
                    let question = TxOp::new_internal(OpWork::Question { about, subject }, peer);
                    step.start(ops, id, question);
                    step.report.counters.hellos += 1;
                }
                _ => {}
            }
        }
    }
}

/// Asks a channel's peer for a sign of life, and whether it still has the channel.
pub(super) fn ask_for_sign_of_life(ops: &mut Ops, step: &mut Step<'_>, id: ChannelId) {
    let Some(peer) = step.contexts.get(id).map(|context| context.peer) else { return };
    if step.contexts.set_question_open(peer, true) {
        return;
    }
    let work = OpWork::Question { about: None, subject: QuestionSubject::default() };
    step.start(ops, id, TxOp::new_internal(work, peer));
    step.report.counters.hellos += 1;
}

/// Handles a peer's positive answer to a question: the peer is alive and knows the operation.
pub(super) fn handle_positive_answer(
    ops: &mut Ops,
    step: &mut Step<'_>,
    question: Key,
    about: Option<Key>,
) {
    match about {
        Some(about) => {
            if let Some(op) = ops.get_mut(about) {
                op.asked = QuestionState::Soon;
            }
        }
        None => {
            if let Some(op) = ops.get(question) {
                step.contexts.set_question_open(op.peer, false);
            }
        }
    }
    ops.remove(question);
}

impl Outbound {
    /// Asks peers about operations that have waited for their answer for at least one interval.
    pub(crate) fn ask_about_owed(&mut self, step: &mut Step<'_>) {
        if step.config.wire.is_none() {
            self.questions.ask_about_owed(&mut self.ops, step);
        }
    }

    /// Handles the answer of a peer that does not know an operation: it has forgotten the
    /// operation, or the acknowledgement did not come from the peer.
    #[cold]
    pub(super) fn handle_unknown_operation(
        &mut self,
        step: &mut Step<'_>,
        question: Key,
        about: Key,
    ) {
        let asked_on = self.ops.get(question).and_then(|op| op.context);
        handle_positive_answer(&mut self.ops, step, question, Some(about));
        let Some(op) = self.ops.get(about).filter(|op| op.is_owed()) else { return };
        let Some(id) = op.context.filter(|_| op.context == asked_on) else { return };
        match op.work {
            // An answer to one of its reads is in flight, and will end the operation or its
            // context.
            OpWork::Rendezvous { answers: 1.., .. } => {}
            // The answer may still arrive and must not reach another operation in the same slot. If
            // the peer never received a message, later messages wait for it. So the whole channel
            // ends.
            _ => step.abort(id),
        }
    }

    /// Returns whether this endpoint is sending an answer or a confirmation to slot `read_id` of a
    /// peer on this channel.
    pub(crate) fn is_answering(&self, id: ChannelId, read_id: u16) -> bool {
        let answers = |op: &TxOp| {
            op.context == Some(id)
                && matches!(op.work, OpWork::Response { read_id: of, .. } if of == read_id)
        };
        self.ops.any(answers)
    }

    /// Returns whether this endpoint reads, or will report the end of reading, the message that a
    /// peer offered under this key.
    pub(crate) fn is_reading(&self, peer: PeerId, key: u64) -> bool {
        let reads = |op: &TxOp| {
            let OpWork::Read { remote, resource, .. } = op.work else { return false };
            op.peer == peer && resource == RESOURCE_RENDEZVOUS && remote.key == key
        };
        self.ops.any(reads)
    }
}
