//! What an endpoint's message layer counts, always.

/// Counters of one endpoint. Plain numbers: one engine is used by one thread at a time.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Messages sent in one inline packet (injected).
    pub tx_inline: u64,
    /// Messages sent eagerly.
    pub tx_eager: u64,
    /// Messages offered by rendezvous.
    pub tx_rendezvous: u64,
    /// RMA writes started.
    pub tx_writes: u64,
    /// RMA reads started (not those of rendezvous).
    pub tx_reads: u64,
    /// Payload bytes of messages, writes and read responses given to packets the first time.
    pub tx_payload_bytes: u64,
    /// Messages matched by a receive that was already posted.
    pub rx_expected: u64,
    /// Messages that had to wait for a receive.
    pub rx_unexpected: u64,
    /// Payload bytes placed in user memory or stashed.
    pub rx_payload_bytes: u64,
    /// Bytes of unexpected and early messages held now.
    pub unexpected_bytes: u64,
    /// The most that were ever held.
    pub unexpected_bytes_peak: u64,
    /// Packets refused because the unexpected budget was spent.
    pub rx_held_back: u64,
    /// Packets that did not parse.
    pub rx_malformed: u64,
    /// Packets for another JobID or PIDonFEP, or from an address that does not own the context.
    pub rx_foreign: u64,
    /// Packets that contradict the message they claim to belong to.
    pub rx_inconsistent: u64,
    /// Remote accesses refused: bad key, range or permission.
    pub rx_access_refused: u64,
    /// Operations that ended in an error; a peek that found nothing is none.
    pub op_errors: u64,
    /// Operations that were complete when they were copied, and were lost afterwards.
    pub lost_after_completion: u64,
    /// Answers to peers' reads that were cut off because their memory was given back.
    pub tx_answers_cut: u64,
    /// Signs of life asked of silent peers.
    pub hellos: u64,
}
