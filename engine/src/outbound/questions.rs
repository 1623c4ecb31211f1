//! Operations that have arrived and that only their peer can end: a read whose data, a rendezvous whose reads, a
//! send whose match is to come. They wait for as long as the peer knows of them, and so it is asked, of each by name.
//!
//! The question is a NO_OP on the operation's own context. `resource_index` says what it is about; the answer is
//! the default response where the peer knows of it, and BAD_INDEX where it does not:
//!
//! | `resource_index` | about | `buffer_offset` | `match_bits` | known while |
//! |---|---|---|---|---|
//! | 0 | nothing: are you there? | 0 | 0 | always |
//! | 1 | a read, or a fetching atomic | the read's id | 0 | its data are not all acknowledged |
//! | 2 | a send with DC | the message's id; from bit 16 on the slot | 0 | no receive has taken it, or word of that is not acknowledged |
//! | 3 | a rendezvous | the message's id | the offered key | it is not read to its end |
//!
//! Who is asked has acknowledged the operation, and what ends it is acknowledged here. So an honest peer knows of
//! each operation that waits; one that does not has forgotten it, or somebody else acknowledged in its name.

use super::packet::rendezvous_key;
use super::{Outbound, RESOURCE_RENDEZVOUS};
use crate::api::PeerId;
use crate::channel::ChannelId;
use crate::ops::{OpWork, Ops, QuestionState, QuestionSubject, TxOp};
use crate::slab::Key;
use crate::step::Step;
use crate::wire::StdRequest;

/// Questions an interval of [`crate::Config::keepalive`], at most; operations take turns.
const QUESTIONS: usize = 64;

/// The subject of a peer's question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PeerQuestion {
    /// Whether we are there.
    Nothing,
    /// Its read, or fetching atomic, with this id.
    Read(u16),
    /// Its message with this id, and the slot for word of a match.
    Send(u16, u16),
    /// Its message with this id, and the key under which it is read.
    Rendezvous(u16, u64),
    /// Nothing that we know of.
    Unknown,
}

impl PeerQuestion {
    /// What a NO_OP asks.
    pub(crate) const fn read(request: &StdRequest) -> Self {
        // Cut to their fields.
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

/// What a question about an operation names.
fn subject(key: Key, op: &TxOp) -> QuestionSubject {
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

/// The operations that wait for their peer, in the order in which to ask about them.
#[derive(Debug, Default)]
pub(super) struct QuestionQueue {
    /// The place of the operation to ask about next.
    next: u32,
}

impl QuestionQueue {
    /// Asks about operations that have been waiting for an interval at least.
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
                    let (about, subject) = (Some(key), subject(key, op));
                    let question = TxOp::internal(OpWork::Question { about, subject }, peer);
                    ops.start(step, id, question);
                    step.report.counters.hellos += 1;
                }
                _ => {}
            }
        }
    }
}

/// Asks a context's peer whether it is there and still has the context.
pub(super) fn ask(ops: &mut Ops, step: &mut Step<'_>, id: ChannelId) {
    let Some(peer) = step.contexts.get(id).map(|context| context.peer) else { return };
    if step.contexts.set_asked(peer, true) {
        return;
    }
    let work = OpWork::Question { about: None, subject: QuestionSubject::default() };
    ops.start(step, id, TxOp::internal(work, peer));
    step.report.counters.hellos += 1;
}

/// A question was answered: the peer is there, and knows.
pub(super) fn answered(ops: &mut Ops, step: &mut Step<'_>, question: Key, about: Option<Key>) {
    match about {
        Some(about) => {
            if let Some(op) = ops.get_mut(about) {
                op.asked = QuestionState::Soon;
            }
        }
        None => {
            if let Some(op) = ops.get(question) {
                step.contexts.set_asked(op.peer, false);
            }
        }
    }
    ops.remove(question);
}

impl Outbound {
    /// Asks about operations that have been waiting for an interval at least.
    pub(crate) fn ask_about_owed(&mut self, step: &mut Step<'_>) {
        self.questions.ask_about_owed(&mut self.ops, step);
    }

    /// The peer says that it does not know of an operation: it acknowledged what it never got, or forgot what it
    /// got.
    #[cold]
    pub(super) fn disowned(&mut self, step: &mut Step<'_>, question: Key, about: Key) {
        let asked_on = self.ops.get(question).and_then(|op| op.context);
        answered(&mut self.ops, step, question, Some(about));
        let Some(op) = self.ops.get(about).filter(|op| op.is_owed()) else { return };
        let Some(id) = op.context.filter(|_| op.context == asked_on) else { return };
        match op.work {
            // What answers its reads is under way, and ends it, or its context.
            OpWork::Rendezvous { answers: 1.., .. } => {}
            // What was acknowledged may still come, and must not meet another operation in its slot; and later
            // messages wait for one that never came.
            _ => step.abort(id),
        }
    }

    /// Whether we are about to answer a peer's read, or to say that its message was taken, on this context.
    pub(crate) fn answers(&self, id: ChannelId, read_id: u16) -> bool {
        let answers = |op: &TxOp| {
            op.context == Some(id)
                && matches!(op.work, OpWork::Response { read_id: of, .. } if of == read_id)
        };
        self.ops.any(answers)
    }

    /// Whether we read, or are about to read to its end, what a peer offered under this key.
    pub(crate) fn reads(&self, peer: PeerId, key: u64) -> bool {
        let reads = |op: &TxOp| {
            let OpWork::Read { remote, resource, .. } = op.work else { return false };
            op.peer == peer && resource == RESOURCE_RENDEZVOUS && remote.key == key
        };
        self.ops.any(reads)
    }
}
