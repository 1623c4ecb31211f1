//! What hangs on the network: an accelerator that answers, and perhaps sends.

use std::collections::VecDeque;

use super::{Packet, is_write};
use squall_cc::{FlitClass, Injection};

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) injection: Injection,
    /// Requests that the memory works at, each with the cycle of its answer.
    memory: VecDeque<(u64, Packet)>,
    /// What it sends, if it does.
    pub(super) sends: Option<Sends>,
}

/// The part of a sender in the all-reduce.
#[derive(Clone, Debug)]
pub(super) struct Sends {
    /// Number of its first operation.
    first: u32,
    transactions: u32,
    pub(super) start: u64,
    /// Reads that left.
    reads: u32,
    /// Writes whose reads were answered, in that order.
    writes: VecDeque<u32>,
    /// Writes that were answered.
    written: u32,
}

impl Member {
    /// With a memory that holds up to so many requests.
    pub(super) fn new(injection: Injection, requests: u32, sends: Option<Sends>) -> Self {
        Self { injection, memory: VecDeque::with_capacity(requests as usize + 1), sends }
    }

    /// A request reaches the memory, which answers at `ready`.
    pub(super) fn remember(&mut self, ready: u64, packet: Packet) {
        self.memory.push_back((ready, packet));
    }

    /// The request that is to be answered next, if it is time.
    pub(super) fn to_answer(&self, now: u64) -> Option<Packet> {
        self.memory.front().filter(|(ready, _)| *ready <= now).map(|(_, packet)| *packet)
    }

    pub(super) fn answered(&mut self) {
        self.memory.pop_front();
    }

    /// The next read, or write, that may leave.
    pub(super) fn next(&self, now: u64, write: bool) -> Option<u32> {
        let sends = self.sends.as_ref().filter(|sends| sends.start <= now)?;
        let op = if write { sends.writes.front().copied()? } else { sends.next_read()? };
        let class = if write { FlitClass::Request } else { FlitClass::Response };
        (self.injection.ready_at(class) <= now).then_some(op)
    }
}

impl Sends {
    /// Of sender number `sender`.
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

    /// An operation left.
    pub(super) fn sent(&mut self, op: u32) {
        if is_write(op) {
            self.writes.pop_front();
        } else {
            self.reads += 1;
        }
    }

    /// An operation was answered: what a read brought is to be written. Whether that was all.
    pub(super) fn done(&mut self, op: u32) -> bool {
        if is_write(op) {
            self.written += 1;
        } else {
            self.writes.push_back(op + 1);
        }
        self.written == self.transactions
    }
}
