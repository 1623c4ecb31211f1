//! Entry counts of the tables of an engine, by which tests and statistics detect leaks.

/// The number of entries in each table of an engine whose entries belong to something that has not ended.
///
/// All of these are zero for an endpoint whose operations have all ended, that has no posted receive and no unmatched
/// message, and whose channels have closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holdings {
    /// Outbound operations: those of the application, of the engine itself, and answers to peers.
    pub operations: usize,
    /// Outbound operations of the application, as [`crate::Config::max_outstanding`] counts them.
    pub outstanding: u64,
    /// Bytes of payload that were copied and are still being sent.
    pub copied_bytes: u64,
    /// Answers that no peer has acknowledged.
    pub answers: u64,
    /// The part of [`Self::answers`] that goes to peers outside the job.
    pub answers_outside: u64,
    /// Packets that were cut into fragments, plus the fragments that wait to be sent.
    pub fragments: usize,
    /// Operations in the tables of fences: those that have begun, counted once for each class, and those that wait.
    pub fenced: u64,
    /// Slots in which operations wait for answers, summed over all channels.
    pub slots: usize,
    /// Operations queued on channels, plus rendezvous that peers have not read to their end.
    pub queued: usize,
    /// Inbound messages that are not finished.
    pub messages: usize,
    /// Inbound messages whose senders wait for a further notification about them.
    pub awaited: usize,
    /// Messages that wait for a receive.
    pub unexpected: usize,
    /// Receives that wait for a message.
    pub posted: usize,
    /// Message ids that are open in the ordering tables of contexts.
    pub open_ids: usize,
    /// Bytes of messages that the engine buffers.
    pub kept_bytes: u64,
    /// Message headers that are charged to peers.
    pub headers: u64,
    /// Bytes of messages that are charged to peers, plus the ring bytes that shared-memory channels took beyond their
    /// limits.
    pub message_bytes: u64,
    /// The accounts of single peers add up to the account of all peers, and the account of peers
    /// outside the job is part of it.
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
    /// Channels: packet contexts plus shared-memory channels.
    pub channels: usize,
    /// Completions that the application has not taken.
    pub completions: usize,
}
