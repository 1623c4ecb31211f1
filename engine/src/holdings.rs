//! Entry counts of the tables of an engine, by which tests and statistics detect leaks.

/// The number of entries in each table of an engine whose entries belong to something that has not ended.
///
/// All of these are zero for an endpoint whose operations have all ended, that has no posted receive and no unmatched
/// message, and whose channels have closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holdings {
    /// Outbound operations: those of the application, of the engine itself, and answers to peers.
    pub operations: usize,
    /// Unfinished outbound operations of the application, which [`crate::Config::max_outstanding`]
    /// limits.
    pub outstanding: u64,
    /// Bytes of payload copies that the engine keeps until they are sent and acknowledged.
    pub copied_bytes: u64,
    /// Answers to peers' reads and atomics that the peers have not acknowledged.
    pub answers: u64,
    /// The number of [`Self::answers`] that go to peers outside the job.
    pub answers_outside: u64,
    /// Packets that were cut into fragments, plus the fragments that wait to be sent.
    pub fragments: usize,
    /// Operations in the tables of fences: those that have begun, counted once for each class, and those that wait.
    pub fenced: u64,
    /// Slots in which operations wait for answers of peers, summed over all channels.
    pub slots: usize,
    /// Operations queued on channels, plus rendezvous that peers have not read to their end.
    pub queued: usize,
    /// Inbound messages that have arrived in part, or that wait for a receive or for their data.
    pub messages: usize,
    /// Inbound messages whose senders wait for a read or a confirmation, beyond acknowledgements.
    pub awaited: usize,
    /// Messages that have arrived and wait for a matching receive.
    pub unexpected: usize,
    /// Receives of the application that wait for a matching message.
    pub posted: usize,
    /// Message ids that are open in the ordering tables, summed over all channels.
    pub open_ids: usize,
    /// Bytes of received messages that the engine buffers until a receive matches.
    pub kept_bytes: u64,
    /// Headers of received messages that count against the peers' budgets.
    pub headers: u64,
    /// Bytes of messages that are charged to peers, plus the ring bytes that shared-memory channels took beyond their
    /// limits.
    pub message_bytes: u64,
    /// True if the accounts of single peers add up to the account of all peers, and the account of
    /// peers outside the job is part of it.
    pub budget_is_consistent: bool,
    /// Writes of peers that are reported when all their packets have arrived, and are still incomplete.
    pub partial_writes: usize,
    /// Ids of incomplete messages and writes of peers of other implementations.
    pub foreign_ids: usize,
    /// Operations of peers on several ranges that are reported when all their requests have ended, and are still
    /// incomplete.
    pub access_groups: usize,
    /// Requests from the receiving half to the sending half, plus the reads of messages that have ended.
    pub send_requests: usize,
    /// Open channels: packet delivery contexts plus shared-memory channels.
    pub channels: usize,
    /// Completions that wait for the application to take them.
    pub completions: usize,
}
