//! A member of the network: an accelerator whose memory answers requests and that may send
//! operations of its own.

use std::collections::VecDeque;

use super::{Packet, is_write};
use squall_cc::{FlitClass, Injection};

/// An accelerator on the network, with its memory and its own operations.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) injection: Injection,
    /// Requests in the memory, each with the cycle in which its answer is ready.
    memory: VecDeque<(u64, Packet)>,
    /// The operations that the member sends, if it is a sender.
    pub(super) sends: Option<Sends>,
}

/// The reads and writes by which one sender does its part of the all-reduce.
#[derive(Clone, Debug)]
pub(super) struct Sends {
    /// Number of the first operation of this sender.
    first: u32,
    transactions: u32,
    pub(super) start: u64,
    /// Number of reads that this sender has sent.
    reads: u32,
    /// Writes whose reads were answered, in the order of the answers.
    writes: VecDeque<u32>,
    /// Number of writes of this sender that were answered.
    written: u32,
}

impl Member {
    /// Creates a member whose memory holds up to `requests` requests.
    pub(super) fn new(injection: Injection, requests: u32, sends: Option<Sends>) -> Self {
        Self { injection, memory: VecDeque::with_capacity(requests as usize + 1), sends }
    }

    /// Adds a request to the memory, whose answer is ready at cycle `ready`.
    pub(super) fn remember(&mut self, ready: u64, packet: Packet) {
        self.memory.push_back((ready, packet));
    }

    /// Returns the oldest request in the memory, if its answer is ready.
    pub(super) fn to_answer(&self, now: u64) -> Option<Packet> {
        self.memory.front().filter(|(ready, _)| *ready <= now).map(|(_, packet)| *packet)
    }

    pub(super) fn answered(&mut self) {
        self.memory.pop_front();
    }

    /// Returns the next read, or the next write if `write` is set, that may leave at `now`.
    pub(super) fn next(&self, now: u64, write: bool) -> Option<u32> {
        let sends = self.sends.as_ref().filter(|sends| sends.start <= now)?;
        let op = if write { sends.writes.front().copied()? } else { sends.next_read()? };
        let class = if write { FlitClass::Request } else { FlitClass::Response };
        (self.injection.ready_at(class) <= now).then_some(op)
    }
}

impl Sends {
    /// Creates the operations of sender number `sender`, which begins at cycle `start`.
    pub(super) fn new(sender: u32, transactions: u32, start: u64) -> Self {
        Self {
            first: sender * 2 * transactions,
            transactions,
            start,
            reads: 0,
            writes: VecDeque::with_capacity(transactions as usize),
            written: 0,
        }
    }

    fn next_read(&self) -> Option<u32> {
        (self.reads < self.transactions).then(|| self.first + 2 * self.reads)
    }

    /// Records that the sender's operation `op` was sent.
    pub(super) fn sent(&mut self, op: u32) {
        if is_write(op) {
            self.writes.pop_front();
        } else {
            self.reads += 1;
        }
    }

    /// Notes the answer to an operation: the data of a read is to be written next. Returns whether
    /// all writes were answered.
    pub(super) fn done(&mut self, op: u32) -> bool {
        if is_write(op) {
            self.written += 1;
        } else {
            self.writes.push_back(op + 1);
        }
        self.written == self.transactions
    }
}
