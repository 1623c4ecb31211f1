//! What an endpoint counts. Always on; plain fields, read at any time.

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

impl DerefMut for NackCounts {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0.get_or_insert_with(|| Box::new([0; NACK_CODES]))
    }
}

/// Counts since the endpoint opened. "Packets" are UDP datagrams, bytes are UDP payload bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Counters {
    /// Data packets granted, first transmissions and retransmissions.
    pub tx_packets: u64,
    /// Bytes of those.
    pub tx_bytes: u64,
    /// Trains: runs of data packets that share one path.
    pub tx_trains: u64,
    /// Data packets that arrived whole on a known or new context, duplicates included.
    pub rx_packets: u64,
    /// Bytes of those.
    pub rx_bytes: u64,
    /// Data packets the engine accepted.
    pub rx_accepted: u64,
    /// Data packets that the engine dropped as malformed; their senders try again.
    pub rx_malformed: u64,
    /// Acknowledgements sent.
    pub tx_acks: u64,
    /// Acknowledgements received and believed.
    pub rx_acks: u64,
    /// Packets sent again because a trimmed packet was reported.
    pub retx_trimmed: u64,
    /// ... because the peer refused the packet for another reason.
    pub retx_nacked: u64,
    /// ... because the out-of-order count told of a loss.
    pub retx_out_of_order: u64,
    /// ... because the answer to a probe did not show them.
    pub retx_probe: u64,
    /// ... because the retransmission timer fired.
    pub retx_timeout: u64,
    /// Retransmission timer expiries, each of which may cover many packets.
    pub timeouts: u64,
    /// Probes sent.
    pub tx_probes: u64,
    /// Probes received.
    pub rx_probes: u64,
    /// Probe answers received and believed.
    pub rx_probe_answers: u64,
    /// Data packets received again.
    pub rx_duplicates: u64,
    /// Data packets that arrived ahead of a missing one.
    pub rx_out_of_order: u64,
    /// Data packets that arrived marked Congestion Experienced.
    pub rx_ce: u64,
    /// ACKs that echoed Congestion Experienced.
    pub rx_ce_echoes: u64,
    /// Trimmed data packets that arrived.
    pub rx_trimmed: u64,
    /// NACKs sent, by code.
    pub tx_nacks: NackCounts,
    /// NACKs received and believed, by code.
    pub rx_nacks: NackCounts,
    /// Data packets outside the receive window, dropped or refused.
    pub rx_out_of_window: u64,
    /// Packets for a context that does not exist.
    pub rx_unknown_context: u64,
    /// Packets whose peer, context numbers or mode do not fit the context they name.
    pub rx_mismatch: u64,
    /// SYN packets of a context that was already closed (late or replayed), dropped.
    pub rx_replayed_syn: u64,
    /// SYN packets refused because there was no room for another context.
    pub rx_no_context: u64,
    /// ACKs, NACKs and control packets about PSNs that are not outstanding: late, or forged.
    pub rx_stale: u64,
    /// ACKs that acknowledge what was never sent: forged, or broken.
    pub rx_bad_ack: u64,
    /// Credit updates sent on their own (not in ACKs).
    pub tx_credits: u64,
    /// Credit updates received on their own and believed.
    pub rx_credits: u64,
    /// Requests for credit sent.
    pub tx_credit_requests: u64,
    /// Congestion notification packets sent.
    pub tx_notifications: u64,
    /// Credit updates and congestion notifications not sent, because their context was gone or its peer
    /// not yet heard of.
    pub tx_unsent: u64,
    /// Congestion notification packets received and believed.
    pub rx_notifications: u64,
    /// Contexts whose peer's receiver works in another mode.
    pub other_mode: u64,
    /// Contexts opened as initiator.
    pub opened: u64,
    /// Contexts accepted as target.
    pub accepted: u64,
    /// Contexts closed in an orderly way, at either end.
    pub closed: u64,
    /// Contexts that failed.
    pub failed: u64,
    /// Times a path selector froze its choice after a timeout.
    pub path_freezes: u64,
    /// Valid round-trip samples.
    pub rtt_samples: u64,
    /// Sum of those, nanoseconds.
    pub rtt_sum_ns: u64,
    /// Smallest of those, nanoseconds; `u64::MAX` before the first.
    pub rtt_min_ns: u64,
    /// Largest of those, nanoseconds.
    pub rtt_max_ns: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            tx_packets: 0,
            tx_bytes: 0,
            tx_trains: 0,
            rx_packets: 0,
            rx_bytes: 0,
            rx_accepted: 0,
            rx_malformed: 0,
            tx_acks: 0,
            rx_acks: 0,
            retx_trimmed: 0,
            retx_nacked: 0,
            retx_out_of_order: 0,
            retx_probe: 0,
            retx_timeout: 0,
            timeouts: 0,
            tx_probes: 0,
            rx_probes: 0,
            rx_probe_answers: 0,
            rx_duplicates: 0,
            rx_out_of_order: 0,
            rx_ce: 0,
            rx_ce_echoes: 0,
            rx_trimmed: 0,
            tx_nacks: NackCounts::default(),
            rx_nacks: NackCounts::default(),
            rx_out_of_window: 0,
            rx_unknown_context: 0,
            rx_mismatch: 0,
            rx_replayed_syn: 0,
            rx_no_context: 0,
            rx_stale: 0,
            rx_bad_ack: 0,
            tx_credits: 0,
            rx_credits: 0,
            tx_credit_requests: 0,
            tx_notifications: 0,
            tx_unsent: 0,
            rx_notifications: 0,
            other_mode: 0,
            opened: 0,
            accepted: 0,
            closed: 0,
            failed: 0,
            path_freezes: 0,
            rtt_samples: 0,
            rtt_sum_ns: 0,
            rtt_min_ns: u64::MAX,
            rtt_max_ns: 0,
        }
    }
}

impl Counters {
    /// Retransmissions of every cause.
    #[must_use]
    pub const fn retransmissions(&self) -> u64 {
        self.retx_trimmed
            + self.retx_nacked
            + self.retx_out_of_order
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
