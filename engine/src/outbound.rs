//! The sending half of the engine: the life of user operations, engine operations and answers to
//! peers.

mod acks;
mod atomic;
mod ends;
mod fragments;
mod group_numbers;
mod no_match;
mod packet;
mod questions;
mod records;
mod runs;
mod short;
mod submit;
mod telemetry;
mod train;
mod transmit;
mod unmatched;

use std::collections::VecDeque;

use crate::access_groups::GroupTag;
use crate::base::{RegionId, SecretRng};
use crate::channel::ChannelId;
use crate::completion::OpError;
use crate::fences::{Fences, Order};
use crate::holdings::Holdings;
use crate::memory::Buf;
use crate::operation::PeerId;
use crate::ops::{OfferedPart, OpBytes, OpWork, Ops, ReadPart, TxOp};
use crate::slab::Key;
use crate::step::Step;
use group_numbers::GroupNumbers;
use no_match::RefusedMessages;
use questions::QuestionQueue;
use unmatched::UnmatchedMessages;

pub(crate) use ends::drop_untaken;
pub(crate) use packet::emit_control;
pub(crate) use questions::PeerQuestion;
pub(crate) use records::{find_unacknowledged, transmit_records};
pub(crate) use short::report_lost_short;
pub(crate) use telemetry::{prepend_bytes, push_echo};
pub(crate) use transmit::{push_control, push_whole};

/// The end of the RMA read by which the receiver fetches a rendezvous message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PullEnd {
    pub(crate) message: Key,
    pub(crate) error: Option<OpError>,
}

/// The answer to a peer's READ request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) read_id: u16,
    pub(crate) bytes: Buf,
    /// Copy of the bytes that the answer carries, if they were copied.
    pub(crate) copied: Option<Vec<u8>>,
    pub(crate) len: u64,
    pub(crate) region: RegionId,
    pub(crate) offered: Option<OfferedPart>,
    /// The user must be notified when the answer has arrived at the peer.
    pub(crate) counts: bool,
    /// The group of requests to which the peer's read belongs.
    pub(crate) group: GroupTag,
    /// The range of the read that these bytes cover; `None` if they are the whole read.
    pub(crate) part: Option<ReadPart>,
}

impl Answer {
    /// Creates the confirmation for a sender that waits in this slot for a receive to take its
    /// message: an answer without payload.
    pub(crate) const fn confirmation(slot: u16) -> Self {
        let (bytes, region) = (Buf::Empty, RegionId::LENT);
        Self {
            read_id: slot,
            bytes,
            copied: None,
            len: 0,
            region,
            offered: None,
            counts: false,
            group: GroupTag::NONE,
            part: None,
        }
    }
}

/// The sending half of an endpoint: its outbound operations and their order.
#[derive(Debug)]
pub(crate) struct Outbound {
    ops: Ops,
    /// Reads of rendezvous messages that have ended and that the receiving half has not handled
    /// yet.
    pull_ends: VecDeque<PullEnd>,
    /// Number of the user's outbound operations that have not ended.
    outstanding: u32,
    /// Generator of the random nonces in the memory keys of rendezvous sends.
    nonces: SecretRng,
    questions: QuestionQueue,
    fences: Fences,
    refused: RefusedMessages,
    unmatched: UnmatchedMessages,
    group_numbers: GroupNumbers,
}

impl Outbound {
    pub(crate) fn new(nonces: SecretRng, order: Order) -> Self {
        Self {
            ops: Ops::default(),
            pull_ends: VecDeque::new(),
            outstanding: 0,
            nonces,
            questions: QuestionQueue::default(),
            fences: Fences::new(order),
            refused: RefusedMessages::default(),
            unmatched: UnmatchedMessages::default(),
            group_numbers: GroupNumbers::default(),
        }
    }

    /// Queues the parked operations to a peer that need not wait for earlier ones any more.
    #[cold]
    pub(crate) fn start_unblocked(&mut self, step: &mut Step<'_>, peer: PeerId) {
        while let Some(id) = step.context_to(peer) {
            let Some(key) = self.fences.start_next(peer) else { return };
            if let Some(op) = self.ops.get_mut(key) {
                op.context = Some(id);
                step.contexts.enqueue(id, key);
            }
        }
    }

    /// Retries the parked operations to all peers that found no room for a context.
    pub(crate) fn start_all_unblocked(&mut self, step: &mut Step<'_>) {
        for peer in self.fences.waiting_peers() {
            self.start_unblocked(step, peer);
        }
    }

    /// Queues an operation of the engine itself on the channel to its peer. Returns false, and
    /// changes nothing, if there is no room for a context.
    pub(crate) fn start_internal(&mut self, step: &mut Step<'_>, op: TxOp) -> bool {
        let Some(id) = step.context_to(op.peer) else { return false };
        step.start(&mut self.ops, id, op);
        true
    }

    /// Queues the answer to a READ on the channel on which the READ arrived.
    pub(crate) fn queue_answer(
        &mut self,
        step: &mut Step<'_>,
        id: ChannelId,
        peer: PeerId,
        answer: Answer,
    ) {
        let Answer { read_id, bytes, copied, len, region, offered, counts, group, part } = answer;
        let outside = counts_outside(step, id, peer);
        // A read has 32 bits of length.
        let whole = part.unwrap_or(ReadPart { offset: 0, total: len as u32 });
        let work =
            OpWork::Response { read_id, offered, region, counts, group, cut: None, outside, whole };
        let mut op = TxOp::new_internal(work, peer);
        // The parts of an answer share the id of the read.
        op.progress.message_id = part.map(|_| read_id);
        op.bytes = OpBytes { buf: bytes, offset: 0, copied };
        op.label.len = len;
        if let Some(OpWork::Rendezvous { answers, .. }) =
            offered.and_then(|offered| self.ops.get_mut(offered.op)).map(|op| &mut op.work)
        {
            *answers += 1;
        }
        step.start(&mut self.ops, id, op);
    }

    /// Returns whether the answer to another request of a peer has room on the channel.
    #[inline]
    pub(crate) fn may_answer(&self, step: &Step<'_>, id: ChannelId, peer: PeerId) -> bool {
        self.ops.may_answer(peer, counts_outside(step, id, peer))
    }

    /// Asks a channel's peer for a sign of life, and whether it still has the channel.
    pub(crate) fn ask_for_sign_of_life(&mut self, step: &mut Step<'_>, id: ChannelId) {
        // Other implementations do not answer the question.
        if step.config.wire.is_none() {
            questions::ask_for_sign_of_life(&mut self.ops, step, id);
        }
    }

    /// Returns all outbound operations that have not ended.
    pub(crate) const fn ops(&self) -> &Ops {
        &self.ops
    }

    /// Counts the entries of the tables for operations that have not ended.
    pub(crate) fn count_holdings(&self, holdings: &mut Holdings) {
        holdings.operations = self.ops.len();
        holdings.outstanding = self.outstanding.into();
        holdings.copied_bytes = self.ops.copied();
        (holdings.answers, holdings.answers_outside) = self.ops.answer_counts();
        holdings.fragments = self.ops.fragments.len();
        holdings.fenced = self.fences.len();
        holdings.send_requests += self.pull_ends.len();
    }

    /// Returns the reads of rendezvous messages that have ended, for the receiving half to handle.
    #[inline]
    pub(crate) const fn pull_ends(&mut self) -> &mut VecDeque<PullEnd> {
        &mut self.pull_ends
    }
}

/// Returns whether answers to a peer count as answers to peers outside the job. Answers on a shared-memory channel
/// never do: a request that waited in the ring for room could hold up answers of the peer that this endpoint's answers
/// wait for.
#[inline]
fn counts_outside(step: &Step<'_>, id: ChannelId, peer: PeerId) -> bool {
    id.context().is_some() && step.is_outside(peer)
}
