//! What an endpoint's message layer counts, always, one row a counter.

crate::base::counters! {
    /// Counters of one endpoint. Plain numbers: one engine is used by one thread at a time.
    #[derive(Clone, Copy, Debug)]
    #[non_exhaustive]
    pub struct Counters {
        /// Messages sent in one inline packet (injected).
        tx_inline: sum "messages",
        /// Messages sent eagerly.
        tx_eager: sum "messages",
        /// Messages offered by rendezvous.
        tx_rendezvous: sum "messages",
        /// Messages sent eagerly for which the peer had no room: offered by rendezvous then.
        tx_deferred: sum "messages",
        /// RMA writes started.
        tx_writes: sum "operations",
        /// RMA reads started (not those of rendezvous).
        tx_reads: sum "operations",
        /// Payload bytes of messages, writes and read responses given to packets the first time.
        tx_payload_bytes: sum "bytes",
        /// Messages matched by a receive that was already posted.
        rx_expected: sum "messages",
        /// Messages that had to wait for a receive.
        rx_unexpected: sum "messages",
        /// Payload bytes placed in user memory or stashed.
        rx_payload_bytes: sum "bytes",
        /// Bytes of unexpected and early messages held now.
        unexpected_bytes: sum "bytes",
        /// The most that were ever held.
        unexpected_bytes_peak: max "bytes",
        /// Messages of which the header alone was kept, because the unexpected budget was spent.
        rx_deferred: sum "messages",
        /// Packets refused because too many messages wait for a receive.
        rx_held_back: sum "packets",
        /// Packets that did not parse.
        rx_malformed: sum "packets",
        /// Packets for another JobID or PIDonFEP, or from an address that does not own the context.
        rx_foreign: sum "packets",
        /// Packets that contradict the message they claim to belong to.
        rx_inconsistent: sum "packets",
        /// Remote accesses refused: bad key, range or permission.
        rx_access_refused: sum "accesses",
        /// Operations that ended in an error; a peek that found nothing is none.
        op_errors: sum "operations",
        /// Operations that were complete when they were copied, and were lost afterwards.
        lost_after_completion: sum "operations",
        /// Answers to peers' reads that were cut off because their memory was given back.
        tx_answers_cut: sum "answers",
        /// Signs of life asked of silent peers.
        hellos: sum "packets",
    }
}
