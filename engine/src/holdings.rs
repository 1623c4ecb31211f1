//! What an engine holds, by table: for tests and statistics that want to see that nothing is left behind.

/// The number of entries of each table of an engine whose entries belong to something that has not ended.
///
/// An endpoint whose operations have all ended, that has no posted receive and no message without one, and whose channels
/// have closed holds nothing: all of these are zero then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holdings {
    /// Outbound operations: those of the user, of the engine itself, and answers to peers.
    pub operations: usize,
    /// Outbound operations of the user, as [`crate::Config::max_outstanding`] counts them.
    pub outstanding: u64,
    /// Bytes of copies of what is sent.
    pub copied_bytes: u64,
    /// Answers that no peer has acknowledged, and those among them to peers outside the job.
    pub answers: u64,
    /// The second part of [`Self::answers`].
    pub answers_outside: u64,
    /// Packets that were cut again, and their fragments that wait.
    pub fragments: usize,
    /// Operations that fences know of: those that have begun, by class, and those that wait.
    pub fenced: u64,
    /// Slots in which operations wait for answers, over all channels.
    pub slots: usize,
    /// Operations queued on channels, and rendezvous that peers have not read to their end.
    pub queued: usize,
    /// Inbound messages that are not finished.
    pub messages: usize,
    /// Inbound messages whose senders wait for word of them.
    pub awaited: usize,
    /// Messages that wait for a receive.
    pub unexpected: usize,
    /// Receives that wait for a message.
    pub posted: usize,
    /// Message ids that are open in the orders of contexts.
    pub open_ids: usize,
    /// Bytes of messages that are kept here.
    pub kept_bytes: u64,
    /// Headers of messages that are charged to peers.
    pub headers: u64,
    /// Bytes of messages that are charged to peers, and what shared-memory channels exceed their limits by.
    pub message_bytes: u64,
    /// Whether the accounts of single peers add up to those of all, and those of peers outside the job are part of them.
    pub budget_is_consistent: bool,
    /// Writes of peers that are reported when they are whole, and are not.
    pub partial_writes: usize,
    /// What the receiving half asks of the sending half, and the reads of messages that ended.
    pub asks: usize,
    /// Channels: contexts and shared-memory channels.
    pub channels: usize,
    /// Completions that the user has not taken.
    pub completions: usize,
}
