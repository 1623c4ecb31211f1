//! s-PERC (Jose et al., "A Distributed Algorithm to Calculate Max-Min Fair Rates Without Per-Flow State", SIGMETRICS 2019): links
//! compute the rates. Once a round trip a flow sends a [`RatePacket`] the way of its data, in which each [`SpercLink`] writes what
//! it has for it; the receiver sends it back, and the flow sends at the least of it. As J. Snyder's thesis has it (section 5.1.1),
//! with the thesis' own additions: 1RC (section 5.2), with which flows need not wait for their first rate, and weights by the
//! connections of a host (section 5.3).

mod config;
mod link;
mod starts;
#[cfg(test)]
mod tests;
mod windows;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use squall_base::{Rate, Span, Time};

use crate::controller::{
    Budget, Feedback, FeedbackKind, FlowEvent, Grant, LinkEntries, RatePacket, RequestState,
    SenderAction, SenderCc, SenderMetrics, SentPacket, Speculation, Stamp, StartEpoch,
};
pub use config::SpercConfig;
pub use link::{LinkVisit, SpercLink, SpercLinkParameters};
use starts::epoch_of;
pub use windows::{WindowTable, WindowTableParameters};

/// Nominal bytes of a rate packet on the wire, for how often they may leave.
const PACKET: u64 = 64;
/// Rate packets without an answer after which a flow does not wait for one; and, if meanwhile its peer acknowledged data,
/// after which it asks no more.
const PATIENCE: u8 = 8;
/// What a flow may send at the least, of the line.
const LEAST: u64 = 10_000;

/// How far a flow is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SpercPhase {
    /// There is nothing to send.
    Idle,
    /// It is short, and sends at the rate of the line.
    Exempt,
    /// It waits for its first rate.
    Waiting,
    /// It sends speculative packets until it has a rate (1RC).
    Speculating,
    /// It has a rate.
    Rated,
    /// Nobody has answered for long, perhaps for want of a processor: it sends a bandwidth-delay product at a time, and goes on
    /// asking.
    Unanswered,
    /// Its peer answers no rate packets, or no link writes anything: it sends a bandwidth-delay product at a time.
    Unsupported,
}

/// A flow under s-PERC, parameters shared.
#[derive(Clone, Debug)]
pub struct Sperc(Box<SpercState>);

#[derive(Clone, Debug)]
struct SpercState {
    config: Arc<SpercConfig>,
    phase: SpercPhase,
    /// As it was when it came back last.
    packet: RatePacket,
    /// When the one left that is on its way.
    asked: Option<Time>,
    /// When the next one may leave.
    next: Time,
    /// One wants to leave now.
    due: bool,
    /// The flow is over as soon as the answer tells which links count it.
    leaves: bool,
    unanswered: u8,
    /// Data was acknowledged since the one that is on its way left; and of those unanswered, so many went that way.
    heard: bool,
    ignored: u8,
    rate: Rate,
    /// Bytes that wait to be sent, and those of the packet sent last.
    backlog: u64,
    /// The numbers of the speculative packets; nothing once it has a rate.
    numbers: Vec<u32>,
    /// Packets to be taken back.
    rewind: u32,
}

impl Sperc {
    /// A flow with nothing to send. `config` must have passed [`crate::Tunable::check`].
    #[must_use]
    pub fn new(config: Arc<SpercConfig>, _now: Time) -> Self {
        let rate = config.line;
        Self(Box::new(SpercState {
            config,
            phase: SpercPhase::Idle,
            packet: RatePacket::default(),
            asked: None,
            next: Time::ZERO,
            due: false,
            leaves: false,
            unanswered: 0,
            heard: false,
            ignored: 0,
            rate,
            backlog: 0,
            numbers: Vec::new(),
            rewind: 0,
        }))
    }
}

impl SpercState {
    /// There are `bytes` to send, after nothing.
    fn start_flow(&mut self, now: Time, bytes: u64) {
        let epoch = epoch_of(now, self.config.base_rtt);
        let started = self.config.starts.start(epoch);
        (self.backlog, self.leaves) = (bytes, false);
        (self.unanswered, self.ignored) = (0, 0);
        self.rate = self.config.line;
        if !self.config.one_rtt && bytes <= self.config.exempt {
            self.phase = SpercPhase::Exempt;
            return;
        }
        let weight =
            if self.config.weights { started.weight.min(Speculation::MOST_WEIGHT) } else { 1 };
        self.packet.started = StartEpoch { weight, ..started };
        self.packet.let_through = u16::MAX;
        // One that is on its way from before has its answer yet to come, which says nothing of this start.
        let speculates = self.config.one_rtt && self.asked.is_none();
        self.phase = if speculates { SpercPhase::Speculating } else { SpercPhase::Waiting };
        if self.phase == SpercPhase::Speculating {
            let packets = self.config.window() / u64::from(self.config.mtu) + 1;
            self.numbers = Vec::with_capacity(usize::try_from(packets).unwrap_or(0));
        }
        if self.asked.is_none() {
            self.request_rate(now);
        }
    }

    /// There is nothing to send any more.
    fn end_flow(&mut self, now: Time) {
        if self.phase == SpercPhase::Idle {
            return;
        }
        self.config.starts.end(epoch_of(now, self.config.base_rtt));
        self.phase = SpercPhase::Idle;
        self.numbers = Vec::new();
        if self.asked.is_some() {
            self.leaves = true;
        } else if !self.packet.links.as_slice().is_empty() {
            self.leave();
        }
    }

    /// The links that count the flow need no longer.
    fn leave(&mut self) {
        self.leaves = false;
        self.packet.leaving = true;
        self.due = true;
    }

    fn request_rate(&mut self, now: Time) {
        (self.due, self.asked, self.heard) = (true, Some(now), false);
    }

    /// The time from one rate packet to the next: a round trip, or what all flows of the host need for theirs.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates, not negative
    fn interval(&self) -> Span {
        let share = self.config.line.0 as f64 * f64::from(self.config.control);
        let all = u64::from(self.config.starts.open()) * PACKET * 8;
        self.config.base_rtt.max(Span((all as f64 * 1e9 / share) as u64))
    }

    /// How long an answer may take.
    fn answer_timeout(&self) -> Span {
        (self.config.base_rtt * 4).max(self.interval() * 2)
    }

    /// What the flow has to send, b/s of weight one: no more than what is left, in a round trip.
    #[allow(clippy::cast_possible_truncation)] // a rate
    fn demand(&self, weight: u16) -> f32 {
        let bytes = self.backlog.max(self.config.mtu.into());
        let rate = bytes as f64 * 8e9 / self.config.base_rtt.as_f64();
        (rate * f64::from(weight)) as f32
    }

    /// A rate packet is back.
    fn on_answer(&mut self, now: Time, answer: &RatePacket) {
        let Some(asked) = self.asked.filter(|_| answer.serial == self.packet.serial) else {
            return;
        };
        (self.asked, self.unanswered, self.ignored) = (None, 0, 0);
        self.packet = RatePacket { back: false, path: self.packet.path, ..*answer };
        self.packet.links.arrive();
        if self.leaves {
            return self.leave();
        }
        let Some(rate) = self.packet.rate() else { return self.fall_back(SpercPhase::Unsupported) };
        if self.phase == SpercPhase::Speculating {
            // Those with higher numbers were dropped, or will be where they are (algorithm 5).
            let through = u32::from(answer.let_through);
            let dropped = self.numbers.iter().filter(|number| **number >= through).count();
            self.rewind = u32::try_from(dropped).unwrap_or(u32::MAX);
            self.numbers = Vec::new();
        }
        self.phase = SpercPhase::Rated;
        self.rate = self.clamp_rate(rate);
        self.next = (asked + self.interval()).max(now);
        if self.next <= now {
            self.request_rate(now);
        }
    }

    /// There is no rate to be had now, or at all.
    fn fall_back(&mut self, phase: SpercPhase) {
        (self.phase, self.rate, self.numbers) = (phase, self.config.line, Vec::new());
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates; not a number is 0
    fn clamp_rate(&self, rate: f32) -> Rate {
        let line = self.config.line;
        Rate(rate as u64).max(Rate(line.0 / LEAST)).max(Rate(1)).min(line)
    }

    /// Whether the flow wants rates.
    const fn wants_rates(&self) -> bool {
        matches!(
            self.phase,
            SpercPhase::Waiting
                | SpercPhase::Speculating
                | SpercPhase::Rated
                | SpercPhase::Unanswered
        )
    }

    /// The one on its way is lost.
    fn on_answer_timeout(&mut self, now: Time) {
        self.unanswered = self.unanswered.saturating_add(1);
        self.ignored = self.ignored.saturating_add(self.heard.into());
        self.asked = None;
        if self.leaves {
            // Which links count it is not known: they forget it, or nobody does.
            self.leaves = false;
            self.packet.links = LinkEntries::default();
        } else if self.ignored > PATIENCE {
            self.fall_back(SpercPhase::Unsupported);
        } else if self.wants_rates() {
            if self.unanswered > PATIENCE {
                self.fall_back(SpercPhase::Unanswered);
            }
            self.request_rate(now);
        }
    }

    /// The packet that wants to leave.
    fn next_rate_packet(&mut self, now: Time) -> RatePacket {
        let epoch = epoch_of(now, self.config.base_rtt);
        let weight = if self.config.weights { self.config.starts.open() } else { 1 };
        self.packet.serial = self.packet.serial.wrapping_add(1);
        self.packet.weight = weight;
        self.packet.demand = self.demand(weight);
        if self.phase == SpercPhase::Rated {
            self.packet.started = StartEpoch { epoch, weight };
        }
        self.packet.links.depart();
        let leaves = self.packet;
        if leaves.leaving {
            self.packet.leaving = false;
            self.packet.links = LinkEntries::default();
        }
        leaves
    }

    /// The number of a speculative packet that leaves now.
    fn next_speculation(&mut self) -> Option<Speculation> {
        let StartEpoch { epoch, weight } = self.packet.started;
        let number = if self.config.together {
            self.config.starts.number(epoch)?
        } else {
            u32::try_from(self.numbers.len()).unwrap_or(u32::MAX)
        };
        self.numbers.push(number);
        let number = u16::try_from(number).unwrap_or(u16::MAX).min(Speculation::MOST_NUMBER);
        // The low bits.
        let epoch = epoch as u8 % Speculation::EPOCHS;
        Some(Speculation { epoch, number, weight })
    }
}

/// What every packet asks for is out of line: inlined beside the other algorithms', it would have them save its registers, too.
impl SenderCc for Sperc {
    #[inline(never)]
    fn budget(&self, _now: Time) -> Budget {
        let SpercState { config, phase, rate, .. } = &*self.0;
        let waits = matches!(phase, SpercPhase::Idle | SpercPhase::Waiting);
        let bounded = matches!(
            phase,
            SpercPhase::Speculating | SpercPhase::Unanswered | SpercPhase::Unsupported
        );
        Budget {
            credit: waits.then_some(0),
            window: bounded.then(|| config.window()),
            rate: Some(*rate),
            burst: config.mtu,
            ..Budget::default()
        }
    }

    #[inline(never)]
    fn on_send(&mut self, _now: Time, sending: &SentPacket) -> Stamp {
        let state = &mut *self.0;
        state.backlog = sending.backlog;
        // Rates hold for one path.
        let path = Some(state.packet.path);
        let speculates = state.phase == SpercPhase::Speculating && !sending.retransmitted;
        let speculation = if speculates { state.next_speculation() } else { None };
        Stamp { path, state: speculation.map(RequestState::Speculative) }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        match (feedback.kind, feedback.grant) {
            (FeedbackKind::Control, Some(Grant::Rates(answer))) => {
                self.0.on_answer(feedback.now, answer);
            }
            (FeedbackKind::TimedOut, _) => {
                // Perhaps the path is broken. Links that are not on the next one forget the flow.
                self.0.packet.path = self.0.packet.path.wrapping_add(1);
            }
            (FeedbackKind::Acked, _) => self.0.heard = true,
            _ => {}
        }
    }

    fn on_event(&mut self, now: Time, event: FlowEvent) {
        let state = &mut *self.0;
        match event {
            FlowEvent::Opened { flow } => state.packet.flow = flow,
            FlowEvent::Blocked { backlog } if state.phase == SpercPhase::Idle => {
                state.start_flow(now, backlog);
            }
            FlowEvent::Blocked { backlog } => state.backlog = backlog,
            FlowEvent::Idle | FlowEvent::Closed => state.end_flow(now),
            FlowEvent::Resumed => {}
        }
    }

    fn on_timer(&mut self, now: Time) {
        let state = &mut *self.0;
        match state.asked {
            Some(asked) if now >= asked + state.answer_timeout() => state.on_answer_timeout(now),
            None if state.phase == SpercPhase::Rated && now >= state.next => {
                state.request_rate(now);
            }
            _ => {}
        }
    }

    fn next_timer(&self) -> Option<Time> {
        let state = &*self.0;
        match state.asked {
            Some(asked) => Some(asked + state.answer_timeout()),
            None => (state.phase == SpercPhase::Rated).then_some(state.next),
        }
    }

    fn poll(&mut self, _now: Time) -> Option<SenderAction> {
        let state = &mut *self.0;
        match core::mem::take(&mut state.rewind) {
            0 => core::mem::take(&mut state.due).then_some(SenderAction::SendRatePacket),
            packets => Some(SenderAction::Rewind { packets }),
        }
    }

    fn rate_packet(&mut self, now: Time) -> Option<RatePacket> {
        Some(self.0.next_rate_packet(now))
    }

    fn metrics(&self) -> SenderMetrics {
        let SpercState { config, phase, rate, .. } = &*self.0;
        SenderMetrics {
            rate: Some(*rate),
            base_rtt: Some(config.base_rtt),
            ungranted: *phase == SpercPhase::Unsupported,
            ..SenderMetrics::default()
        }
    }

    fn base_rtt(&self) -> Option<Span> {
        Some(self.0.config.base_rtt)
    }

    fn state_bytes(&self) -> usize {
        size_of_val(self) + size_of_val(&*self.0)
    }
}
