//! State of a link about all flows on it, and its processing of a rate packet (s-PERC; Snyder's
//! thesis, section 5.1.1, algorithm 3, with the weights of algorithm 4).
//!
//! A link counts a flow either among those that are limited elsewhere (`E`), by its rate, or among
//! those that this link limits (`B`), by its weight. The link keeps no state per flow: the flow's
//! rate packet carries it.

use squall_base::{Span, Time};

use crate::controller::{LinkEntry, LinkState, RatePacket};

/// Relative difference up to which rates count as equal, because packets carry single precision.
const SAME: f64 = 1e-6;
/// Part of its rate that a full link still offers: a flow without any rate could not learn of a
/// better one.
const LEAST: f64 = 1e-4;

/// Parameters of s-PERC that all links of a switch share.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SpercLinkParameters {
    /// Length of a round: at least a round trip of rate packets. A link remembers the largest rate
    /// of a flow that is limited elsewhere for the current round and one more.
    pub round: Span,
    /// Length of a sweep. A link forgets a flow that sent no rate packet in the current and the
    /// previous sweep, so that lost packets leave no traces. Zero for never, as in the published
    /// algorithm.
    pub forget: Span,
}

/// Sums over the flows that one link counts.
#[derive(Clone, Copy, Debug, Default)]
struct FlowSums {
    /// Sum of the rates, in b/s, of the flows that other links limit: `SumE`.
    elsewhere: f64,
    /// Sum of the weights of the flows that this link limits: `NumB`.
    here: f64,
}

impl FlowSums {
    /// Returns the part of the sums that a flow with this entry contributes.
    fn contribution(entry: &LinkEntry) -> Self {
        let share = 1.0 / f64::from(entry.weight.max(1));
        match entry.state {
            LinkState::New => Self::default(),
            LinkState::Elsewhere => {
                Self { elsewhere: f64::from(entry.allocated) * share, here: 0.0 }
            }
            LinkState::Here => Self { elsewhere: 0.0, here: share },
        }
    }

    fn add(&mut self, part: Self) {
        self.elsewhere += part.elsewhere;
        self.here += part.here;
    }

    /// Subtracts a flow's contribution from the sums. Rounding may leave a negative rest, which
    /// becomes zero.
    fn remove(&mut self, part: Self) {
        self.elsewhere = (self.elsewhere - part.elsewhere).max(0.0);
        self.here = (self.here - part.here).max(0.0);
    }
}

/// Index of the current period, in time divided into periods of one length.
#[derive(Clone, Copy, Debug, Default)]
struct PeriodCounter(u64);

impl PeriodCounter {
    /// Moves on to the period of `now`, never backwards, and returns by how many periods.
    fn advance(&mut self, now: Time, length: Span) -> u64 {
        let at = now.0.checked_div(length.0).unwrap_or(0).max(self.0);
        at - core::mem::replace(&mut self.0, at)
    }
}

/// A link's state of s-PERC: sums over its flows, from which it computes rates.
#[derive(Clone, Debug)]
pub struct SpercLink {
    parameters: SpercLinkParameters,
    /// Capacity of the link for data in b/s: `c`.
    capacity: f64,
    sums: FlowSums,
    /// Sums over the flows counted so far in this sweep. They replace `sums` when the next sweep
    /// begins.
    next_sums: FlowSums,
    sweep: PeriodCounter,
    /// Largest rate of a flow limited elsewhere, since the start of the previous round and since
    /// the start of this one: `MaxE`, `MaxE'`.
    most: f64,
    most_of_round: f64,
    round: PeriodCounter,
}

/// Result of processing a rate packet at a link.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkVisit {
    /// Rate that the link offers a flow that it limits, in b/s of weight one: `b`.
    pub bottleneck: f64,
    /// The link did not count the flow before this rate packet.
    pub is_new: bool,
}

impl SpercLink {
    /// Creates a link with `capacity` b/s for data, without flows.
    #[must_use]
    pub fn new(capacity: f64, parameters: SpercLinkParameters) -> Self {
        Self {
            parameters,
            capacity,
            sums: FlowSums::default(),
            next_sums: FlowSums::default(),
            sweep: PeriodCounter::default(),
            most: 0.0,
            most_of_round: 0.0,
            round: PeriodCounter::default(),
        }
    }

    /// Processes a rate packet, in which this link has the number `link`. Returns `None` if the
    /// flow is leaving or the packet has no room.
    pub fn visit(&mut self, now: Time, link: u32, packet: &mut RatePacket) -> Option<LinkVisit> {
        self.pass_time(now);
        let at = packet.links.place(link)?;
        let mut entry = packet.links.get(at);
        let is_new = self.forget(&entry);
        entry.state = LinkState::New;
        if packet.leaving {
            packet.links.set(at, entry);
            return None;
        }
        entry.fresh = true;
        entry.weight = packet.weight.max(1);
        // While `b` is computed, the flow counts among those limited here.
        let here = self.sums.here + 1.0 / f64::from(entry.weight);
        let least = self.capacity * LEAST;
        let bottleneck = ((self.capacity - self.sums.elsewhere) / here).max(least);
        let elsewhere = f64::from(packet.elsewhere(at));
        entry.bottleneck = single(bottleneck);
        entry.allocated = single(bottleneck.min(elsewhere));
        entry.ignore = bottleneck < self.most * (1.0 - SAME);
        entry.state = if elsewhere < bottleneck * (1.0 - SAME) {
            let rate = f64::from(entry.allocated);
            self.most = self.most.max(rate);
            self.most_of_round = self.most_of_round.max(rate);
            LinkState::Elsewhere
        } else {
            LinkState::Here
        };
        // The entry carries the low bits.
        entry.sweep = self.sweep.0 as u16;
        self.sums.add(FlowSums::contribution(&entry));
        self.next_sums.add(FlowSums::contribution(&entry));
        packet.links.set(at, entry);
        Some(LinkVisit { bottleneck, is_new })
    }

    /// Starts new rounds and sweeps whose time has come.
    fn pass_time(&mut self, now: Time) {
        match self.round.advance(now, self.parameters.round) {
            0 => {}
            1 => self.most = core::mem::take(&mut self.most_of_round),
            _ => (self.most, self.most_of_round) = (0.0, 0.0),
        }
        match self.sweep.advance(now, self.parameters.forget) {
            0 => {}
            1 => self.sums = core::mem::take(&mut self.next_sums),
            _ => (self.sums, self.next_sums) = (FlowSums::default(), FlowSums::default()),
        }
    }

    /// Removes a flow from the link's sums. Returns true if it was not in them.
    fn forget(&mut self, entry: &LinkEntry) -> bool {
        let age = (self.sweep.0 as u16).wrapping_sub(entry.sweep);
        if entry.state == LinkState::New || age > 1 {
            return true;
        }
        self.sums.remove(FlowSums::contribution(entry));
        if age == 0 {
            self.next_sums.remove(FlowSums::contribution(entry));
        }
        false
    }
}

/// Rounds a rate to the precision with which rate packets carry it.
#[allow(clippy::cast_possible_truncation)] // a rate
const fn single(rate: f64) -> f32 {
    rate as f32
}
