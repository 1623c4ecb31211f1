//! The answers of a congestion control: how much may be sent, and what is added to packets.

use squall_base::{Rate, Span, Time};

use crate::controller::Speculation;

/// Limits on sending. All limits apply together; the default limits nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Largest number of nominal bytes in flight; `None` for no limit.
    pub window: Option<u64>,
    /// Largest sending rate, which the caller enforces by pacing; `None` for no limit.
    pub rate: Option<Rate>,
    /// Bytes that may still be sent before the receiver must grant more.
    pub credit: Option<u64>,
    /// Earliest time at which the next packet may leave.
    pub not_before: Time,
    /// Largest number of bytes that may leave back to back.
    pub burst: u32,
}

impl Default for Budget {
    fn default() -> Self {
        Self { window: None, rate: None, credit: None, not_before: Time::ZERO, burst: u32::MAX }
    }
}

impl Budget {
    /// Returns whether a packet of `bytes` may join `in_flight` bytes at `now`, by window, credit
    /// and departure time (UE 1.0 section 3.6.13: `inflight + MTU <= cwnd`).
    ///
    /// The pacer enforces the rate, and a single packet never exceeds a burst.
    #[must_use]
    pub fn allows(&self, now: Time, in_flight: u64, bytes: u32) -> bool {
        self.unsent(in_flight) >= u64::from(bytes) && now >= self.not_before
    }

    /// Returns the bytes that may leave back to back with `in_flight` bytes in flight: what window
    /// and credit leave, at most one burst.
    #[must_use]
    pub fn room(&self, in_flight: u64) -> u64 {
        self.unsent(in_flight).min(u64::from(self.burst))
    }

    /// Returns how many packets of `bytes` may leave one after the other at `now`, by window,
    /// credit and departure time, with `in_flight` bytes in flight. The count ends at the packet
    /// that finds no room, or that leaves less than `most` bytes of room.
    #[must_use]
    pub fn run(&self, now: Time, in_flight: u64, bytes: u32, most: u32) -> u16 {
        let (room, bytes) = (self.unsent(in_flight), u64::from(bytes.max(1)));
        if now < self.not_before || room < bytes {
            return 0;
        }
        // One packet leaves in any case, further ones only while there is room for `most` before
        // them.
        let others = if self.burst < most { 0 } else { room.saturating_sub(most.into()) / bytes };
        u16::try_from((1 + others).min(room / bytes)).unwrap_or(u16::MAX)
    }

    fn unsent(&self, in_flight: u64) -> u64 {
        let window = self.window.map_or(u64::MAX, |window| window.saturating_sub(in_flight));
        window.min(self.credit.unwrap_or(u64::MAX))
    }
}

/// The set of flows that share one congestion-control context: its window, its rate and its pacer.
/// An endpoint chooses it independently of the algorithm: the isolation results of Snyder's thesis
/// (table 3.2) compare scopes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Scope {
    /// Every packet delivery context has a congestion-control context of its own (as InfiniBand's
    /// queue pairs).
    #[default]
    PerFlow,
    /// All flows of this host at one service level share a context (InfiniBand's other choice). All
    /// packets of an endpoint have one level.
    PerServiceLevel,
    /// All flows between a local and a remote endpoint share one context: they divide its window
    /// and rate.
    PerPair,
    /// All flows to a remote host share one context: they divide its window and rate.
    PerDestination,
    /// All flows to a remote host share one context without dividing it: each flow may use the whole
    /// window and the whole rate, which are computed from the feedback to all flows (as in
    /// ConnectX-5, thesis section 3.6.1).
    ///
    /// The thesis cites a patent of Mellanox on congestion control by destination. This scope is
    /// chosen by name, never by default.
    PerDestinationUnsplit,
    /// All flows of this host share one context (as Seawall's sources do).
    PerHost,
    /// All flows of a group, that is, of a job, share a context. An endpoint belongs to one job.
    PerGroup,
}

/// Properties of a packet that leaves, which the caller passes to the sender's algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SentPacket {
    /// Nominal bytes of the packet (UDP payload and 48 bytes for headers).
    pub bytes: u32,
    /// The packet is a retransmission.
    pub retransmitted: bool,
    /// The sender has no more data to send after the packet.
    pub app_limited: bool,
    /// Nominal bytes that wait behind the packet, to be sent for the first time or retransmitted.
    pub backlog: u64,
}

/// Additions of an algorithm to a packet that leaves: a path or header fields. The default is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    /// The path that the packet must take (MPRDMA's ACK-clocked path); `None` leaves the choice to
    /// the path selector.
    pub path: Option<u16>,
    /// Congestion-control state of the flow to write into the packet.
    pub state: Option<RequestState>,
}

/// Congestion-control state that a request carries (the field CCC of UE 1.0).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestState {
    /// Total credit that the flow wants since it opened, in bytes (UET's `credit_target`).
    Demand(u64),
    /// The packet was sent before its flow had a rate, so switches may drop it (1RC).
    Speculative(Speculation),
}

impl Stamp {
    /// Returns the total credit that the flow wants since it opened, if the state carries it.
    #[must_use]
    pub const fn demand(&self) -> Option<u64> {
        match self.state {
            Some(RequestState::Demand(target)) => Some(target),
            _ => None,
        }
    }
}

/// Event in the traffic of the flows that share a congestion-control context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowEvent {
    /// A flow joined the congestion-control context.
    Opened {
        /// The caller's own number for the flow, which a [`crate::RatePacket`] brings back.
        flow: u32,
    },
    /// The context has nothing to send and nothing in flight.
    Idle,
    /// The context has data to send again after [`FlowEvent::Idle`].
    Resumed,
    /// The sender has data that waits because of [`Budget::credit`]. Repeating the event does no
    /// harm.
    Blocked {
        /// Nominal bytes that wait to be sent, new or to be retransmitted.
        backlog: u64,
    },
    /// A flow left the congestion-control context.
    Closed,
}

/// Requests of an algorithm to the datapath, besides the limits of its budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SenderAction {
    /// Send a probe, to sample the round-trip time or to find losses.
    Probe,
    /// Ask the receiver for credit (Credit Request of UE 1.0).
    RequestCredit {
        /// Total credit that the flow wants since it opened, in bytes.
        target: u64,
    },
    /// Retransmit the newest packets: the algorithm knows that switches dropped them (1RC).
    Rewind {
        /// Number of newest packets to retransmit, counted over first transmissions.
        packets: u32,
    },
    /// Send the packet that [`crate::SenderCc::rate_packet`] returns on the path of the flow's
    /// data, before any data that is sent from now on (s-PERC).
    SendRatePacket,
}

/// State of a congestion-control context for statistics and plots.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SenderMetrics {
    /// Congestion window in bytes; `None` when the algorithm has none.
    pub cwnd: Option<u64>,
    /// Upper bound of the congestion window at present, in bytes.
    pub max_cwnd: Option<u64>,
    /// Sending rate to which the algorithm limits the context; `None` when it sets none.
    pub rate: Option<Rate>,
    /// Smallest round-trip time to the peer, without time in queues.
    pub base_rtt: Option<Span>,
    /// Average delay above the base round-trip time: time in queues.
    pub avg_delay: Option<Span>,
    /// The algorithm depends on signals of the receiver (credit, notifications), the peer sends
    /// none, and the sender runs without them.
    pub ungranted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_limits_apply_together() {
        let free = Budget::default();
        assert!(free.allows(Time::ZERO, u64::MAX, u32::MAX));
        let window = Budget { window: Some(10_000), ..free };
        assert!(
            window.allows(Time::ZERO, 6_000, 4_000) && !window.allows(Time::ZERO, 6_001, 4_000)
        );
        assert_eq!((window.room(6_000), window.room(10_001)), (4_000, 0));
        let credit = Budget { credit: Some(3_000), ..window };
        assert!(
            credit.allows(Time::ZERO, 6_000, 3_000) && !credit.allows(Time::ZERO, 6_000, 3_001)
        );
        let later = Budget { not_before: Time(5), ..free };
        assert!(later.allows(Time(5), 0, 1) && !later.allows(Time(4), 0, 1));
        // A burst bounds a train, not the one packet that must be able to leave.
        let burst = Budget { burst: 1_000, ..window };
        assert_eq!(burst.room(0), 1_000);
        assert!(burst.allows(Time::ZERO, 0, 4_000));
    }

    #[test]
    fn a_run_is_as_long_as_packet_by_packet() {
        for (window, bytes, most, burst) in (0..9000_u64).step_by(7).flat_map(|window| {
            [(100, 100), (100, 150), (150, 100), (1520, 1520), (1000, 4096)].into_iter().flat_map(
                move |(bytes, most)| [u32::MAX, 120].map(|burst| (window, bytes, most, burst)),
            )
        }) {
            let budget = Budget { window: Some(window), burst, ..Budget::default() };
            let (mut in_flight, mut count) = (500, 0);
            while budget.allows(Time(1), in_flight, bytes)
                && (count == 0 || budget.room(in_flight) >= u64::from(most))
            {
                in_flight += u64::from(bytes);
                count += 1;
            }
            let run = budget.run(Time(1), 500, bytes, most);
            assert_eq!(run, count, "{window} {bytes} {most} {burst}");
        }
        let later = Budget { not_before: Time(2), ..Budget::default() };
        assert_eq!(
            (later.run(Time(1), 0, 100, 100), later.run(Time(2), 0, 100, 100)),
            (0, u16::MAX)
        );
    }
}
