//! What an endpoint counts, one row a counter. Always on; plain fields, read at any time.

use core::ops::{Deref, DerefMut};

/// Number of NACK codes (UE 1.0 table 3-58: eight bits).
pub const NACK_CODES: usize = 256;

/// NACKs by code, as an array of [`NACK_CODES`] counts. It takes its 2 KiB once there is a first one, so
/// that what is counted for each packet lies close together: a simulator has thousands of these.
#[derive(Clone, Debug, Default)]
pub struct NackCounts(Option<Box<[u64; NACK_CODES]>>);

impl Deref for NackCounts {
    type Target = [u64; NACK_CODES];
    fn deref(&self) -> &Self::Target {
        const NONE: &[u64; NACK_CODES] = &[0; NACK_CODES];
        self.0.as_deref().unwrap_or(NONE)
    }
}

impl NackCounts {
    /// Adds `other` to this.
    pub fn merge(&mut self, other: &Self) {
        if let Some(theirs) = &other.0 {
            for (mine, more) in self.iter_mut().zip(theirs.iter()) {
                *mine = mine.saturating_add(*more);
            }
        }
    }
}

impl DerefMut for NackCounts {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0.get_or_insert_with(|| Box::new([0; NACK_CODES]))
    }
}

crate::base::counters! {
    /// Counts since the endpoint opened. "Packets" are UDP datagrams, bytes are UDP payload bytes.
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub struct Counters {
        /// Data packets granted, first transmissions and retransmissions.
        tx_packets: sum "packets" as "data_packets",
        /// UDP payload bytes of the data packets granted.
        tx_bytes: sum "bytes" as "data_bytes",
        /// Trains: runs of data packets that share one path.
        tx_trains: sum "trains" as "data_trains",
        /// Data packets that arrived whole on a known or new context, duplicates included.
        rx_packets: sum "packets" as "rx_data_packets",
        /// UDP payload bytes of the data packets that arrived whole.
        rx_bytes: sum "bytes" as "rx_data_bytes",
        /// Data packets the engine accepted.
        rx_accepted: sum "packets",
        /// Data packets that contradict themselves or what came before; they end their contexts.
        rx_malformed: sum "packets" as "rx_data_malformed",
        /// Acknowledgements sent.
        tx_acks: sum "packets",
        /// Acknowledgements received and believed.
        rx_acks: sum "packets",
        /// Packets sent again because a trimmed packet was reported.
        retx_trimmed: sum "packets",
        /// Packets sent again because the peer refused them for another reason.
        retx_nacked: sum "packets",
        /// Packets sent again because the out-of-order count told of a loss.
        retx_out_of_order: sum "packets",
        /// Packets sent again because later ones on their path arrived.
        retx_overtaken: sum "packets",
        /// Packets sent again because the answer to a probe did not show them.
        retx_probe: sum "packets",
        /// Packets sent again because the retransmission timer fired.
        retx_timeout: sum "packets",
        /// Packets sent again that switches dropped because their flow had no rate yet (1RC).
        retx_speculative: sum "packets",
        /// Retransmission timer expiries, each of which may cover many packets.
        timeouts: sum "expiries",
        /// Times a context went over to other source ports, because its peer answered on none of those it had.
        detours: sum "times",
        /// Probes sent.
        tx_probes: sum "packets",
        /// Probes received.
        rx_probes: sum "packets",
        /// Probe answers received and believed.
        rx_probe_answers: sum "packets",
        /// Data packets received again.
        rx_duplicates: sum "packets",
        /// Data packets that arrived ahead of a missing one.
        rx_out_of_order: sum "packets",
        /// Data packets that arrived marked Congestion Experienced.
        rx_ce: sum "packets",
        /// ACKs that echoed Congestion Experienced.
        rx_ce_echoes: sum "packets",
        /// ACKs that asked for less: the host of the peer is slower than what comes to it.
        rx_penalties: sum "packets",
        /// Trimmed data packets that arrived.
        rx_trimmed: sum "packets",
        /// Data packets outside the receive window, dropped or refused.
        rx_out_of_window: sum "packets",
        /// Packets for a context that does not exist.
        rx_unknown_context: sum "packets",
        /// Packets whose peer, context numbers or mode do not fit the context they name.
        rx_mismatch: sum "packets",
        /// Lists of senders of an incast that named strangers, too few or too many, or of a round that is over: ignored.
        rx_bad_lists: sum "lists",
        /// SYN packets of a context that was already closed (late or replayed), dropped.
        rx_replayed_syn: sum "packets",
        /// SYN packets of peers that were not introduced, or that do not prove it, refused.
        rx_unverified: sum "packets",
        /// SYN packets refused because there was no room for another context.
        rx_no_context: sum "packets",
        /// ACKs, NACKs and control packets about PSNs that are not outstanding: late, or forged.
        rx_stale: sum "packets",
        /// ACKs that acknowledge what was never sent: forged, or broken.
        rx_bad_ack: sum "packets",
        /// Acknowledgements with a share of the peer's line that cannot be: of nobody, or more than all; the share was ignored.
        rx_bad_share: sum "packets",
        /// Credit updates sent on their own (not in ACKs).
        tx_credits: sum "packets",
        /// Credit updates received on their own and believed.
        rx_credits: sum "packets",
        /// Requests for credit sent.
        tx_credit_requests: sum "packets",
        /// Congestion notification packets sent.
        tx_notifications: sum "packets",
        /// Credit updates and congestion notifications not sent, because their context was gone or its peer
        /// not yet heard of.
        tx_unsent: sum "packets",
        /// Congestion notification packets received and believed.
        rx_notifications: sum "packets",
        /// Contexts whose peer's receiver works in another mode.
        other_mode: sum "contexts",
        /// Contexts opened as initiator.
        opened: sum "contexts" as "contexts_opened",
        /// Contexts accepted as target.
        accepted: sum "contexts" as "contexts_accepted",
        /// Contexts closed in an orderly way, at either end.
        closed: sum "contexts" as "contexts_closed",
        /// Contexts that failed.
        failed: sum "contexts" as "contexts_failed",
        /// Times a path selector froze its choice after a timeout.
        path_freezes: sum "freezes",
        /// Valid round-trip samples.
        rtt_samples: sum "samples",
        /// Sum of the round-trip samples.
        rtt_sum_ns: sum "ns",
        /// Smallest round-trip sample; `u64::MAX` before the first, which statistics show as 0.
        rtt_min_ns: min "ns",
        /// Largest round-trip sample.
        rtt_max_ns: max "ns",
    }
    also {
        /// NACKs sent, by code.
        tx_nacks: NackCounts,
        /// NACKs received and believed, by code.
        rx_nacks: NackCounts,
    }
}

impl Counters {
    /// Retransmissions of every cause.
    #[must_use]
    pub const fn retransmissions(&self) -> u64 {
        self.retx_trimmed
            + self.retx_nacked
            + self.retx_out_of_order
            + self.retx_overtaken
            + self.retx_probe
            + self.retx_timeout
    }

    pub(crate) fn rtt(&mut self, ns: u64) {
        self.rtt_samples += 1;
        self.rtt_sum_ns = self.rtt_sum_ns.saturating_add(ns);
        self.rtt_min_ns = self.rtt_min_ns.min(ns);
        self.rtt_max_ns = self.rtt_max_ns.max(ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_names_of_their_own_and_a_line_of_help() {
        for (i, row) in Counters::ROWS.iter().enumerate() {
            assert!(
                !Counters::ROWS[..i].iter().any(|other| other.name == row.name),
                "{}",
                row.name
            );
            assert!(row.help.ends_with('.') && !row.unit.is_empty(), "{row:?}");
        }
    }

    #[test]
    fn counts_of_two_endpoints_become_one() {
        let (mut one, mut other) = (Counters::default(), Counters::default());
        one.rtt(500);
        other.rtt(300);
        other.rtt(900);
        other.rx_nacks[3] = 7;
        one.rx_nacks[3] = 1;
        one.merge(&other);
        assert_eq!((one.rtt_samples, one.rtt_sum_ns), (3, 1700));
        assert_eq!((one.rtt_min_ns, one.rtt_max_ns, one.rx_nacks[3]), (300, 900, 8));
        let value = |name| one.iter().find(|(shown, ..)| *shown == name);
        assert_eq!(value("rtt_min_ns"), Some(("rtt_min_ns", "ns", 300)));
        let empty = Counters::default();
        assert_eq!(empty.iter().map(|(_, _, value)| value).sum::<u64>(), 0);
    }
}
