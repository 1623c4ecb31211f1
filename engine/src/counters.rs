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
        /// Atomic operations started.
        tx_atomics: sum "operations",
        /// Operations that had to wait for others to the same peer: fenced, or ordered, or behind such a one.
        tx_parked: sum "operations",
        /// Payload bytes of messages, writes and read responses given to packets the first time.
        tx_payload_bytes: sum "bytes",
        /// Messages matched by a receive that was already posted.
        rx_expected: sum "messages",
        /// Messages that had to wait for a receive.
        rx_unexpected: sum "messages",
        /// Payload bytes placed in user memory or stashed.
        rx_payload_bytes: sum "bytes",
        /// Atomic operations of peers that were carried out.
        rx_atomics: sum "operations",
        /// Packets that were taken together with one before them, because they differed in their numbers alone or ended its message.
        rx_run_packets: sum "packets",
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
        /// Introductions sent: questions, and answers to those of others.
        tx_introductions: sum "packets",
        /// Introductions not sent, because too many waited to be.
        tx_introductions_dropped: sum "packets",
        /// Introductions received.
        rx_introductions: sum "packets",
        /// Introductions that prove nothing or answer nothing that we asked: late, or forged.
        rx_bad_introductions: sum "packets",
        /// Introductions of endpoints that do not know the job's key, or proved that they know another.
        rx_unauthorised: sum "introductions",
        /// Introductions of endpoints that the user did not name, where only named ones are talked to.
        rx_unlisted: sum "introductions",
        /// Strangers that were not introduced, because there are too many peers already that the user never
        /// named.
        rx_crowded: sum "introductions",
        /// Peers that the user does not mean and that were forgotten because they had been silent for long.
        peers_forgotten: sum "peers",
        /// Packets of strangers that were not answered, because too many had been in too short a time.
        rx_unanswered: sum "packets",
        /// Packets that contradict the message they claim to belong to.
        rx_inconsistent: sum "packets",
        /// Reads and fetching atomics refused for now, because the peer has too many answers to acknowledge.
        rx_unanswerable: sum "requests",
        /// Remote accesses refused, for one of the three reasons below; the peer is not told which.
        rx_access_refused: sum "accesses",
        /// Remote accesses with a key that no region has.
        rx_key_unknown: sum "accesses",
        /// Remote accesses beyond the end of their region.
        rx_out_of_range: sum "accesses",
        /// Remote accesses to a region that was registered for others.
        rx_not_permitted: sum "accesses",
        /// Atomic operations of peers that there are not, or not on what lies there.
        rx_atomics_refused: sum "operations",
        /// Operations that ended in an error; a peek that found nothing is none.
        op_errors: sum "operations",
        /// Operations that were complete when they were copied, and were lost afterwards.
        lost_after_completion: sum "operations",
        /// Answers to peers' reads that were cut off because their memory was given back.
        tx_answers_cut: sum "answers",
        /// Signs of life asked of silent peers.
        hellos: sum "packets",
        /// Times the packets to a host had to become smaller.
        path_shrunk: sum "times",
        /// Frames sent on links to endpoints of this host.
        tx_frames: sum "frames",
        /// Frames received on links, and taken.
        rx_frames: sum "frames",
        /// Links to endpoints of this host that were made.
        links: sum "links",
        /// Atomics sent with DF clear, so that routers may fragment them, because they are longer than the path carries
        /// by now.
        tx_fragmentable: sum "packets",
        /// Fragments of packets that were sent before and were longer than the path carries by now.
        tx_fragments: sum "packets",
        /// Fragments whose bytes had arrived before, in the packet that they replace.
        rx_fragments_repeated: sum "packets",
        /// Late copies of packets that were dropped because fragments had replaced them.
        rx_originals_replaced: sum "packets",
    }
}
