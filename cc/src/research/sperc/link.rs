//! What a link knows of all flows on it, and what it makes of a rate packet (s-PERC; Snyder's thesis, section 5.1.1,
//! algorithm 3, with the weights of algorithm 4).
//!
//! A flow is counted among those that are limited elsewhere (`E`), by what it has, or among those that this link limits (`B`),
//! by its weight. No flow is remembered: how it is counted stands in its packet.

use squall_base::{Span, Time};

use crate::controller::{LinkEntry, LinkState, RatePacket};

/// Rates that differ by less are the same: packets carry single precision.
const SAME: f64 = 1e-6;
/// A link that is full gives this part of its rate nevertheless: who has no rate cannot learn of a better one.
const LEAST: f64 = 1e-4;

/// What all links of a switch have in common.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SpercLinkParameters {
    /// For how long a link remembers, and then once more, the largest rate of a flow that is limited elsewhere: a round trip of
    /// rate packets at least.
    pub round: Span,
    /// Who sent no rate packet for so long, and then once more, is counted no longer; so what lost packets left behind is
    /// forgotten. Zero for never, as published.
    pub forget: Span,
}

/// The flows that a link counts.
#[derive(Clone, Copy, Debug, Default)]
struct FlowSums {
    /// Rates of those limited elsewhere: `SumE`.
    elsewhere: f64,
    /// Weights of those limited here: `NumB`.
    here: f64,
}

impl FlowSums {
    /// What a flow counts here.
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

    /// What is left of rounding is nobody's.
    fn remove(&mut self, part: Self) {
        self.elsewhere = (self.elsewhere - part.elsewhere).max(0.0);
        self.here = (self.here - part.here).max(0.0);
    }
}

/// A time that is divided into parts of one length.
#[derive(Clone, Copy, Debug, Default)]
struct PeriodCounter(u64);

impl PeriodCounter {
    /// How many parts further `now` is; nothing goes back.
    fn advance(&mut self, now: Time, length: Span) -> u64 {
        let at = now.0.checked_div(length.0).unwrap_or(0).max(self.0);
        at - core::mem::replace(&mut self.0, at)
    }
}

/// One link.
#[derive(Clone, Debug)]
pub struct SpercLink {
    parameters: SpercLinkParameters,
    /// `c`: b/s for data.
    capacity: f64,
    sums: FlowSums,
    /// Those that were counted in this sweep; in the next one there are no others.
    seen: FlowSums,
    sweep: PeriodCounter,
    /// The largest rate of a flow limited elsewhere, since the last round began, and since this one did: `MaxE`, `MaxE'`.
    most: f64,
    most_of_round: f64,
    round: PeriodCounter,
}

/// What a link said to a rate packet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkVisit {
    /// What it has for a flow that it limits, b/s of weight one: `b`.
    pub bottleneck: f64,
    /// It did not count the flow before.
    pub is_new: bool,
}

impl SpercLink {
    /// A link with `capacity` b/s for data, without flows.
    #[must_use]
    pub fn new(capacity: f64, parameters: SpercLinkParameters) -> Self {
        Self {
            parameters,
            capacity,
            sums: FlowSums::default(),
            seen: FlowSums::default(),
            sweep: PeriodCounter::default(),
            most: 0.0,
            most_of_round: 0.0,
            round: PeriodCounter::default(),
        }
    }

    /// A rate packet passes that is known as `link` here. `None` if the flow is leaving, or the packet has no room.
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
        // While `b` is found, the flow is one of those limited here.
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
        // The low bits.
        entry.sweep = self.sweep.0 as u16;
        self.sums.add(FlowSums::contribution(&entry));
        self.seen.add(FlowSums::contribution(&entry));
        packet.links.set(at, entry);
        Some(LinkVisit { bottleneck, is_new })
    }

    /// Rounds and sweeps that are over.
    fn pass_time(&mut self, now: Time) {
        match self.round.advance(now, self.parameters.round) {
            0 => {}
            1 => self.most = core::mem::take(&mut self.most_of_round),
            _ => (self.most, self.most_of_round) = (0.0, 0.0),
        }
        match self.sweep.advance(now, self.parameters.forget) {
            0 => {}
            1 => self.sums = core::mem::take(&mut self.seen),
            _ => (self.sums, self.seen) = (FlowSums::default(), FlowSums::default()),
        }
    }

    /// Takes a flow out of the sums; whether it was not in them.
    fn forget(&mut self, entry: &LinkEntry) -> bool {
        let age = (self.sweep.0 as u16).wrapping_sub(entry.sweep);
        if entry.state == LinkState::New || age > 1 {
            return true;
        }
        self.sums.remove(FlowSums::contribution(entry));
        if age == 0 {
            self.seen.remove(FlowSums::contribution(entry));
        }
        false
    }
}

/// As packets carry it.
#[allow(clippy::cast_possible_truncation)] // a rate
const fn single(rate: f64) -> f32 {
    rate as f32
}
