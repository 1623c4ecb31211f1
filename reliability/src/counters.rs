//! Counters of an endpoint, one row each. They are plain fields that are always updated and can be
//! read at any time.

use core::ops::{Deref, DerefMut};

/// Number of possible NACK codes (UE 1.0 table 3-58: eight bits).
pub const NACK_CODES: usize = 256;

/// NACKs by code, as an array of [`NACK_CODES`] counts. The array of 2 KiB is allocated with the
/// first NACK, so that the counters that change for each packet lie close together: a simulator has
/// thousands of these.
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
    /// Adds the counts of `other` to these, code by code.
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
    /// Counts since the endpoint opened. "Packets" are UDP datagrams; bytes are UDP payload bytes.
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub struct Counters {
        /// Data packets granted, retransmissions included.
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
        /// Data packets that contradict themselves or earlier packets; they end their contexts.
        rx_malformed: sum "packets" as "rx_data_malformed",
        /// Acknowledgements sent.
        tx_acks: sum "packets",
        /// Valid acknowledgements received.
        rx_acks: sum "packets",
        /// Packets retransmitted because a NACK reported them trimmed.
        retx_trimmed: sum "packets",
        /// Packets retransmitted because the peer refused them for another reason than trimming.
        retx_nacked: sum "packets",
        /// Packets retransmitted because the receiver's out-of-order count showed a loss.
        retx_out_of_order: sum "packets",
        /// Packets retransmitted because later packets on the same path arrived.
        retx_overtaken: sum "packets",
        /// Packets retransmitted because the answer to a probe did not show them.
        retx_probe: sum "packets",
        /// Packets retransmitted because the retransmission timer expired.
        retx_timeout: sum "packets",
        /// Packets retransmitted that switches dropped because their flow had no rate yet (1RC).
        retx_speculative: sum "packets",
        /// Retransmission timer expiries, each of which may cover many packets.
        timeouts: sum "expiries",
        /// Times that a context changed its source ports because its peer answered on no path.
        detours: sum "times",
        /// Probes sent.
        tx_probes: sum "packets",
        /// Probes received.
        rx_probes: sum "packets",
        /// Valid probe answers received.
        rx_probe_answers: sum "packets",
        /// Duplicate data packets received.
        rx_duplicates: sum "packets",
        /// Data packets that arrived ahead of a missing one.
        rx_out_of_order: sum "packets",
        /// Data packets received with the Congestion Experienced mark.
        rx_ce: sum "packets",
        /// ACKs that echoed Congestion Experienced.
        rx_ce_echoes: sum "packets",
        /// ACKs that asked for a smaller window because the peer's host cannot keep up.
        rx_penalties: sum "packets",
        /// Trimmed data packets received.
        rx_trimmed: sum "packets",
        /// Data packets outside the receive window, dropped or refused.
        rx_out_of_window: sum "packets",
        /// Data packets refused because an earlier one is missing and their sender wants them in order.
        rx_gaps: sum "packets",
        /// Packets for a context that does not exist.
        rx_unknown_context: sum "packets",
        /// Packets whose peer, context numbers or mode do not match the context they name.
        rx_mismatch: sum "packets",
        /// Sender lists of an incast that were ignored: of a wrong length, with unverified peers,
        /// or late.
        rx_bad_lists: sum "lists",
        /// SYN packets dropped because their context was already closed.
        rx_replayed_syn: sum "packets",
        /// SYN packets refused because their peer was not verified, or their start PSN did not
        /// prove it.
        rx_unverified: sum "packets",
        /// SYN packets refused because no further context was available.
        rx_no_context: sum "packets",
        /// ACKs, NACKs and control packets about PSNs that are not outstanding.
        rx_stale: sum "packets",
        /// ACKs of packets that were never sent: forged or broken.
        rx_bad_ack: sum "packets",
        /// Acknowledgements with an impossible share of the peer's line, which was ignored.
        rx_bad_share: sum "packets",
        /// Credit updates sent outside of ACKs.
        tx_credits: sum "packets",
        /// Valid credit updates received outside of ACKs.
        rx_credits: sum "packets",
        /// Credit requests sent.
        tx_credit_requests: sum "packets",
        /// Congestion notification packets sent.
        tx_notifications: sum "packets",
        /// Credit updates and congestion notifications not sent, because their context was gone or
        /// not yet answered.
        tx_unsent: sum "packets",
        /// Valid congestion notification packets received.
        rx_notifications: sum "packets",
        /// Contexts whose peer's receiver works in another congestion-control mode.
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
        /// Smallest round-trip sample; statistics show 0 before the first.
        rtt_min_ns: min "ns",
        /// Largest round-trip sample.
        rtt_max_ns: max "ns",
    }
    also {
        /// NACKs sent, by code.
        tx_nacks: NackCounts,
        /// NACKs received and accepted as valid, by code.
        rx_nacks: NackCounts,
    }
}

impl Counters {
    /// Returns the number of retransmissions of all causes but 1RC's speculative packets.
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
    fn counters_have_unique_names_and_a_line_of_help() {
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
    fn counters_of_two_endpoints_are_merged() {
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
