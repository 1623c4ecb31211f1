//! s-PERC (Jose et al., "A Distributed Algorithm to Calculate Max-Min Fair Rates Without Per-Flow
//! State", SIGMETRICS 2019): links compute the rates. Once a round trip a flow sends a
//! [`RatePacket`] on the path of its data, in which each [`SpercLink`] writes the rate that it
//! offers; the receiver returns the packet, and the flow sends at the smallest rate in it.
//!
//! The algorithm is that of J. Snyder's thesis (section 5.1.1), with the thesis' own additions: 1RC
//! (section 5.2), with which flows need not wait for their first rate, and weights by the
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
    Budget, Feedback, FeedbackExtension, FeedbackKind, FlowEvent, LinkEntries, RatePacket,
    RequestState, SenderAction, SenderCc, SenderMetrics, SentPacket, Speculation, Stamp,
    StartEpoch,
};
pub use config::SpercConfig;
pub use link::{LinkVisit, SpercLink, SpercLinkParameters};
use starts::epoch_of;
pub use windows::{WindowTable, WindowTableParameters};

/// Nominal bytes of a rate packet on the wire, which limit how often rate packets may leave.
const PACKET: u64 = 64;
/// Number of unanswered rate packets after which a flow stops waiting for a rate. If its peer
/// acknowledged data meanwhile, the flow also stops asking.
const PATIENCE: u8 = 8;
/// Divisor of the line rate that gives the smallest rate of a flow.
const LEAST: u64 = 10_000;

/// Phase of a flow: how it obtains its sending rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SpercPhase {
    /// The flow has nothing to send.
    Idle,
    /// The flow is short and sends at line rate without a rate packet.
    Exempt,
    /// The flow waits for the first rate that the links compute, and sends nothing.
    Waiting,
    /// The flow sends speculative packets until it has a rate (1RC).
    Speculating,
    /// The flow sends at the rate that the links computed.
    Rated,
    /// The peer has not answered for long, perhaps for lack of a processor: the flow sends a
    /// bandwidth-delay product at a time, and keeps asking.
    Unanswered,
    /// The peer answers no rate packets, or no link writes anything: the flow sends a
    /// bandwidth-delay product at a time.
    Unsupported,
}

/// One flow under s-PERC; flows share the parameters.
#[derive(Clone, Debug)]
pub struct Sperc(Box<SpercState>);

#[derive(Clone, Debug)]
struct SpercState {
    config: Arc<SpercConfig>,
    phase: SpercPhase,
    /// The latest rate packet that the receiver returned, which the next one continues.
    packet: RatePacket,
    /// Departure time of the rate packet that has not come back yet, if there is one.
    asked_at: Option<Time>,
    /// Earliest time at which the next rate packet may leave.
    next: Time,
    /// A rate packet must leave at once.
    due: bool,
    /// The flow has ended, and leaves the links as soon as the answer shows which links count it.
    leaves: bool,
    unanswered: u8,
    /// The peer acknowledged data since the unanswered rate packet left. `ignored` counts the
    /// unanswered rate packets for which this was so.
    data_acked: bool,
    ignored: u8,
    rate: Rate,
    /// Bytes that wait to be sent, including those of the last packet.
    backlog: u64,
    /// Numbers of the speculative packets that the flow sent (1RC); empty once there is a rate.
    numbers: Vec<u32>,
    /// Number of newest packets that switches dropped, to be retransmitted.
    rewind: u32,
}

impl Sperc {
    /// Creates a flow with nothing to send. `config` must have passed [`crate::Tunable::check`].
    #[must_use]
    pub fn new(config: Arc<SpercConfig>, _now: Time) -> Self {
        let rate = config.line;
        Self(Box::new(SpercState {
            config,
            phase: SpercPhase::Idle,
            packet: RatePacket::default(),
            asked_at: None,
            next: Time::ZERO,
            due: false,
            leaves: false,
            unanswered: 0,
            data_acked: false,
            ignored: 0,
            rate,
            backlog: 0,
            numbers: Vec::new(),
            rewind: 0,
        }))
    }
}

impl SpercState {
    /// Starts the flow when there are `bytes` to send after a pause.
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
        // The answer to a rate packet from before the pause is still on its way and does not apply
        // to this start.
        let speculates = self.config.one_rtt && self.asked_at.is_none();
        self.phase = if speculates { SpercPhase::Speculating } else { SpercPhase::Waiting };
        if self.phase == SpercPhase::Speculating {
            let packets = self.config.window() / u64::from(self.config.mtu) + 1;
            self.numbers = Vec::with_capacity(usize::try_from(packets).unwrap_or(0));
        }
        if self.asked_at.is_none() {
            self.request_rate(now);
        }
    }

    /// Ends the flow when there is nothing more to send.
    fn end_flow(&mut self, now: Time) {
        if self.phase == SpercPhase::Idle {
            return;
        }
        self.config.starts.end(epoch_of(now, self.config.base_rtt));
        self.phase = SpercPhase::Idle;
        self.numbers = Vec::new();
        if self.asked_at.is_some() {
            self.leaves = true;
        } else if !self.packet.links.as_slice().is_empty() {
            self.leave();
        }
    }

    /// Sends a rate packet that asks the links to stop counting the flow.
    fn leave(&mut self) {
        self.leaves = false;
        self.packet.leaving = true;
        self.due = true;
    }

    fn request_rate(&mut self, now: Time) {
        (self.due, self.asked_at, self.data_acked) = (true, Some(now), false);
    }

    /// Returns the time between two rate packets: a round trip, or longer if the rate packets of
    /// all flows of the host would otherwise exceed their part of the line.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates, not negative
    fn interval(&self) -> Span {
        let share = self.config.line.0 as f64 * f64::from(self.config.control);
        let all = u64::from(self.config.starts.open()) * PACKET * 8;
        self.config.base_rtt.max(Span((all as f64 * 1e9 / share) as u64))
    }

    /// Returns how long the flow waits for a rate packet to come back.
    fn answer_timeout(&self) -> Span {
        (self.config.base_rtt * 4).max(self.interval() * 2)
    }

    /// Returns the rate that the flow can use, in b/s of weight one: its remaining bytes in a round
    /// trip.
    #[allow(clippy::cast_possible_truncation)] // a rate
    fn demand(&self, weight: u16) -> f32 {
        let bytes = self.backlog.max(self.config.mtu.into());
        let rate = bytes as f64 * 8e9 / self.config.base_rtt.as_f64();
        (rate * f64::from(weight)) as f32
    }

    /// Processes a rate packet that came back from the receiver.
    fn on_answer(&mut self, now: Time, answer: &RatePacket) {
        let Some(asked_at) = self.asked_at.filter(|_| answer.serial == self.packet.serial) else {
            return;
        };
        (self.asked_at, self.unanswered, self.ignored) = (None, 0, 0);
        self.packet = RatePacket { back: false, path: self.packet.path, ..*answer };
        self.packet.links.arrive();
        if self.leaves {
            return self.leave();
        }
        let Some(rate) = self.packet.rate() else { return self.fall_back(SpercPhase::Unsupported) };
        if self.phase == SpercPhase::Speculating {
            // Switches dropped the packets with higher numbers, or will drop them (algorithm 5).
            let through = u32::from(answer.let_through);
            let dropped = self.numbers.iter().filter(|number| **number >= through).count();
            self.rewind = u32::try_from(dropped).unwrap_or(u32::MAX);
            self.numbers = Vec::new();
        }
        self.phase = SpercPhase::Rated;
        self.rate = self.clamp_rate(rate);
        self.next = (asked_at + self.interval()).max(now);
        if self.next <= now {
            self.request_rate(now);
        }
    }

    /// Continues at line rate with a limited window, in `phase`, because no link gives a rate.
    fn fall_back(&mut self, phase: SpercPhase) {
        (self.phase, self.rate, self.numbers) = (phase, self.config.line, Vec::new());
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates; NaN becomes 0
    fn clamp_rate(&self, rate: f32) -> Rate {
        let line = self.config.line;
        Rate(rate as u64).max(Rate(line.0 / LEAST)).max(Rate(1)).min(line)
    }

    /// Returns whether the flow sends rate packets in its phase.
    const fn wants_rates(&self) -> bool {
        matches!(
            self.phase,
            SpercPhase::Waiting
                | SpercPhase::Speculating
                | SpercPhase::Rated
                | SpercPhase::Unanswered
        )
    }

    /// Processes that the rate packet in flight did not come back in time.
    fn on_answer_timeout(&mut self, now: Time) {
        self.unanswered = self.unanswered.saturating_add(1);
        self.ignored = self.ignored.saturating_add(self.data_acked.into());
        self.asked_at = None;
        if self.leaves {
            // The flow does not know which links count it, so it cannot ask them to stop. Links
            // that forget flows without rate packets do so by themselves.
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

    /// Returns the rate packet to send now, with its next serial number.
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

    /// Returns the header fields of a speculative packet that leaves now.
    fn next_speculation(&mut self) -> Option<Speculation> {
        let StartEpoch { epoch, weight } = self.packet.started;
        let number = if self.config.together {
            self.config.starts.number(epoch)?
        } else {
            u32::try_from(self.numbers.len()).unwrap_or(u32::MAX)
        };
        self.numbers.push(number);
        let number = u16::try_from(number).unwrap_or(u16::MAX).min(Speculation::MOST_NUMBER);
        // The wire format carries the low bits.
        let epoch = epoch as u8 % Speculation::EPOCHS;
        Some(Speculation { epoch, number, weight })
    }
}

/// The methods that run for every packet are out of line: inlined beside those of the other
/// algorithms they would make all of them save their registers.
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
        // Rates are valid for one path, so the flow's data must take it.
        let path = Some(state.packet.path);
        let speculates = state.phase == SpercPhase::Speculating && !sending.retransmitted;
        let speculation = if speculates { state.next_speculation() } else { None };
        Stamp { path, state: speculation.map(RequestState::Speculative) }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        match (feedback.kind, feedback.extension) {
            (FeedbackKind::Control, FeedbackExtension::Rates(answer)) => {
                self.0.on_answer(feedback.now, answer);
            }
            (FeedbackKind::TimedOut, _) => {
                // The path may be broken, so the flow tries the next one. Links that are not on it
                // forget the flow.
                self.0.packet.path = self.0.packet.path.wrapping_add(1);
            }
            (FeedbackKind::Acked, _) => self.0.data_acked = true,
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
        match state.asked_at {
            Some(asked_at) if now >= asked_at + state.answer_timeout() => {
                state.on_answer_timeout(now);
            }
            None if state.phase == SpercPhase::Rated && now >= state.next => {
                state.request_rate(now);
            }
            _ => {}
        }
    }

    fn next_timer(&self) -> Option<Time> {
        let state = &*self.0;
        match state.asked_at {
            Some(asked_at) => Some(asked_at + state.answer_timeout()),
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
