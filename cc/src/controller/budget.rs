//! What a congestion control answers: how much may be sent, and what rides along.

use squall_base::{Rate, Span, Time};

use crate::controller::Speculation;

/// What may be sent now. All limits apply together; the default limits nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Upper bound of the bytes in flight.
    pub window: Option<u64>,
    /// Upper bound of the sending rate; the caller paces.
    pub rate: Option<Rate>,
    /// Bytes that may still be sent before the receiver grants more.
    pub credit: Option<u64>,
    /// Nothing may leave before this moment.
    pub not_before: Time,
    /// Most bytes that may leave back to back.
    pub burst: u32,
}

impl Default for Budget {
    fn default() -> Self {
        Self { window: None, rate: None, credit: None, not_before: Time::ZERO, burst: u32::MAX }
    }
}

impl Budget {
    /// Whether a packet of `bytes` may join `in_flight` bytes at `now`, as far as window, credit and
    /// departure time say (UE 1.0 section 3.6.13: `inflight + MTU <= cwnd`). The rate is the pacer's,
    /// and one packet is no burst.
    #[must_use]
    pub fn allows(&self, now: Time, in_flight: u64, bytes: u32) -> bool {
        self.unsent(in_flight) >= u64::from(bytes) && now >= self.not_before
    }

    /// Bytes that may leave back to back when `in_flight` bytes are on their way: what window and
    /// credit leave, at most a burst.
    #[must_use]
    pub fn room(&self, in_flight: u64) -> u64 {
        self.unsent(in_flight).min(u64::from(self.burst))
    }

    /// How many packets of `bytes` may leave one after the other at `now`, as far as window, credit and departure
    /// time say, when `in_flight` bytes are on their way: until one finds no room, or leaves none for `most` bytes.
    #[must_use]
    pub fn run(&self, now: Time, in_flight: u64, bytes: u32, most: u32) -> u16 {
        let (room, bytes) = (self.unsent(in_flight), u64::from(bytes.max(1)));
        if now < self.not_before || room < bytes {
            return 0;
        }
        // One leaves, and others while there is room for `most` before them.
        let others = if self.burst < most { 0 } else { room.saturating_sub(most.into()) / bytes };
        u16::try_from((1 + others).min(room / bytes)).unwrap_or(u16::MAX)
    }

    fn unsent(&self, in_flight: u64) -> u64 {
        let window = self.window.map_or(u64::MAX, |window| window.saturating_sub(in_flight));
        window.min(self.credit.unwrap_or(u64::MAX))
    }
}

/// Which flows share one congestion-control context: its window, its rate and the pacer. A choice of the endpoint, independent
/// of the algorithm: the isolation results of Snyder's thesis (table 3.2) are a table of scopes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Scope {
    /// Every packet delivery context has its own (InfiniBand's, a queue pair).
    #[default]
    PerFlow,
    /// One for all flows of this host at a service level (InfiniBand's other choice). What an endpoint sends has one level.
    PerServiceLevel,
    /// One for all flows between a local and a remote endpoint (source and destination, split).
    PerPair,
    /// One for all flows to a remote host.
    PerDestination,
    /// One for all flows to a remote host, too, but not divided among them: each has the whole window and sends at the whole
    /// rate that is computed from what all of them hear (ConnectX-5's, thesis section 3.6.1).
    ///
    /// The thesis cites a patent of Mellanox on congestion control by destination. It is chosen by name, never by default.
    PerDestinationUnsplit,
    /// One for this host (Seawall's, a source).
    PerHost,
    /// One for all flows of a group: of a job. An endpoint is of one job.
    PerGroup,
}

/// What the caller says about a packet that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SentPacket {
    /// Its nominal bytes.
    pub bytes: u32,
    /// It was sent before.
    pub retransmitted: bool,
    /// Nothing more waits behind it.
    pub app_limited: bool,
    /// Nominal bytes that wait behind it, new or to be sent again.
    pub backlog: u64,
}

/// What an algorithm wants to ride on a packet that leaves; the default is nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    /// The path it insists on (MPRDMA's ACK-clocked path); otherwise the path selector's.
    pub path: Option<u16>,
    /// What it says of the flow.
    pub state: Option<RequestState>,
}

/// Congestion-control state of a request (UET's CCC).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestState {
    /// Credit the flow wants in all, in bytes since it opened (UET's `credit_target`).
    Demand(u64),
    /// The packet is one of those that switches may drop (1RC).
    Speculative(Speculation),
}

impl Stamp {
    /// Credit that the flow wants in all, if it says so.
    #[must_use]
    pub const fn demand(&self) -> Option<u64> {
        match self.state {
            Some(RequestState::Demand(target)) => Some(target),
            _ => None,
        }
    }
}

/// What happened to the traffic a context carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowEvent {
    /// A flow joined the context.
    Opened {
        /// The caller's own number for it, which a [`crate::RatePacket`] brings back.
        flow: u32,
    },
    /// There is nothing to send and nothing in flight.
    Idle,
    /// After [`FlowEvent::Idle`], there is work again.
    Resumed,
    /// Work waits, and [`Budget::credit`] is what keeps it back. Saying so again does no harm.
    Blocked {
        /// Nominal bytes that wait, new or to be sent again.
        backlog: u64,
    },
    /// A flow left the context.
    Closed,
}

/// What an algorithm asks of the datapath besides limiting it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SenderAction {
    /// Send a probe, to sample the round trip or to find losses.
    Probe,
    /// Ask the receiver for credit (UET's Credit Request).
    RequestCredit {
        /// Credit the flow wants in all, in bytes since it opened.
        target: u64,
    },
    /// The newest packets were dropped, as is known without a word about them: send them again (1RC).
    Rewind {
        /// How many of those that were sent for the first time.
        packets: u32,
    },
    /// Send what [`crate::SenderCc::rate_packet`] says the way of the flow's data, before any of them that is sent from now on
    /// (s-PERC).
    SendRatePacket,
}

/// What a context looks like from outside, for counters and figures.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SenderMetrics {
    /// Congestion window in bytes; `None` when the algorithm has none.
    pub cwnd: Option<u64>,
    /// Largest window now possible.
    pub max_cwnd: Option<u64>,
    /// Rate limit.
    pub rate: Option<Rate>,
    /// Smallest round-trip time believed possible.
    pub base_rtt: Option<Span>,
    /// Average delay above the base round-trip time.
    pub avg_delay: Option<Span>,
    /// The algorithm lives on what the receiver says (credit, notifications), the peer says nothing of
    /// it, and the sender makes do without.
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
