//! Counters of an endpoint's message layer, one row each. They are always on.

crate::base::counters! {
    /// Counters of one endpoint. They are not atomic, because only one thread uses an engine at a
    /// time.
    #[derive(Clone, Copy, Debug)]
    #[non_exhaustive]
    pub struct Counters {
        /// Messages sent in one inline packet (injected).
        tx_inline: sum "messages",
        /// Messages sent eagerly.
        tx_eager: sum "messages",
        /// Messages offered by rendezvous.
        tx_rendezvous: sum "messages",
        /// Eager messages for which the peer had no room, and which were then offered by
        /// rendezvous.
        tx_deferred: sum "messages",
        /// Times that a message was sent again to a peer of another implementation, which had no
        /// matching receive.
        tx_no_match: sum "times",
        /// RMA writes started.
        tx_writes: sum "operations",
        /// RMA reads started (not those of rendezvous).
        tx_reads: sum "operations",
        /// Atomic operations started.
        tx_atomics: sum "operations",
        /// Operations that waited for others to the same peer, because of a fence or a promised
        /// order.
        tx_parked: sum "operations",
        /// Payload bytes of messages, writes and read responses, without retransmissions.
        tx_payload_bytes: sum "bytes",
        /// Messages matched by a receive that was already posted.
        rx_expected: sum "messages",
        /// Messages that had to wait for a receive.
        rx_unexpected: sum "messages",
        /// Payload bytes copied into user memory or buffered by the engine.
        rx_payload_bytes: sum "bytes",
        /// Atomic operations of peers that were carried out.
        rx_atomics: sum "operations",
        /// Packets taken as part of a packet run, or as the end of the message behind one.
        rx_run_packets: sum "packets",
        /// Bytes of unexpected and early messages held now.
        unexpected_bytes: sum "bytes",
        /// The largest value of `unexpected_bytes` so far.
        unexpected_bytes_peak: max "bytes",
        /// Messages of which only the header was kept, because the budget for unexpected messages
        /// was spent.
        rx_deferred: sum "messages",
        /// Packets refused because too many messages wait for a receive.
        rx_held_back: sum "packets",
        /// Packets that did not parse.
        rx_malformed: sum "packets",
        /// Packets for another JobID or PIDonFEP, or from an address that does not own the context.
        rx_foreign: sum "packets",
        /// Requests of peers of another implementation, refused because of their JobID or PIDonFEP.
        rx_misaddressed: sum "packets",
        /// Packets of peers of another implementation with another payload size.
        rx_other_payload: sum "packets",
        /// Handshake packets sent, questions and answers.
        tx_handshakes: sum "packets",
        /// Handshake packets not sent, because too many waited.
        tx_handshakes_dropped: sum "packets",
        /// Handshake packets received.
        rx_handshakes: sum "packets",
        /// Handshake packets that prove nothing or answer no open question.
        rx_bad_handshakes: sum "packets",
        /// Handshakes refused because the peer does not know the job's key.
        rx_unauthorised: sum "handshakes",
        /// Handshakes refused because the user admits named peers only.
        rx_unlisted: sum "handshakes",
        /// Handshakes refused because there are too many peers that the user never named.
        rx_crowded: sum "handshakes",
        /// Peers that the user did not name, forgotten after a long silence.
        peers_forgotten: sum "peers",
        /// Packets of unverified peers beyond the limit of answers to such peers.
        rx_unanswered: sum "packets",
        /// Packets that contradict the message they claim to belong to.
        rx_inconsistent: sum "packets",
        /// Reads and fetching atomics refused for now, because the peer has too many answers to acknowledge.
        rx_unanswerable: sum "requests",
        /// Remote accesses refused, for one of the three reasons below.
        rx_access_refused: sum "accesses",
        /// Remote accesses with a key that no region has.
        rx_key_unknown: sum "accesses",
        /// Remote accesses beyond the end of their region.
        rx_out_of_range: sum "accesses",
        /// Remote accesses to a region that was registered for others.
        rx_not_permitted: sum "accesses",
        /// Atomic operations of peers that are not defined, or not for this type, size or alignment.
        rx_atomics_refused: sum "operations",
        /// Operations that ended in an error; a peek that found nothing is none.
        op_errors: sum "operations",
        /// Operations that the application cancelled; `op_errors` counts them, too.
        op_cancelled: sum "operations",
        /// Operations that completed when they were copied and failed afterwards.
        lost_after_completion: sum "operations",
        /// Answers to peers' reads that were cut off because their memory was revoked.
        tx_answers_cut: sum "answers",
        /// Packets that ask silent peers for a sign of life, or foreign peers for the response to a message.
        hellos: sum "packets",
        /// Times the packets to a host had to become smaller.
        path_shrunk: sum "times",
        /// Records sent on shared-memory channels.
        shm_tx_records: sum "records",
        /// Records received on shared-memory channels.
        shm_rx_records: sum "records",
        /// Shared-memory channels opened.
        shm_channels: sum "channels",
        /// Atomics that the path no longer carries whole, sent so that routers may fragment them
        /// (DF clear).
        tx_fragmentable: sum "packets",
        /// Fragments of earlier packets that the path no longer carries whole.
        tx_fragments: sum "packets",
        /// Fragments whose bytes had arrived before, in the packet that they replace.
        rx_fragments_repeated: sum "packets",
        /// Late copies of packets, dropped because fragments had replaced them.
        rx_originals_replaced: sum "packets",
    }
}
