//! HPCC (Li et al., "HPCC: High Precision Congestion Control", SIGCOMM 2019): a rate and a window from what
//! switches say of their queues, after its algorithm 1. Names are that algorithm's.
//!
//! Each packet brings back a record a switch ([`crate::IntHop`]): when it left, how many bytes its port had sent until
//! then and how many it left behind. Two records of one queue tell how busy its link was in between.
//!
//! - Records are compared by queue, not by their place in the list: sprayed packets meet different queues at the same
//!   distance. A queue that was not met before, or was forgotten, says nothing until it is met again.
//! - The paper's network loses nothing. Here a loss of any kind halves the rate, at most once a round trip.
//! - Where no switch writes records the round trip stands for them: a link is full when one takes four thirds of `T`.
//!   [`Metrics::ungranted`] says that this is so.

mod config;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::sync::Arc;

use squall_base::{Rate, Span, Time};

use crate::budget::{Budget, Metrics};
use crate::fair::{Fairness, Seen, Turn};
use crate::feedback::{Feedback, IntHop, Kind};
use crate::math::{clock, up_to};
use crate::sender::SenderCc;
pub use config::HpccConfig;

/// What the last record of a queue said: 12 bytes. Times and bytes are the low 32 bits, for differences.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    at: u32,
    tx_bytes: u32,
    /// The low bits of the queue's name.
    hop: u16,
    /// Bytes left behind, in units of [`UNIT`].
    queue: u16,
}

/// Bytes in a unit of [`Last::queue`].
const UNIT: u32 = 128;

/// A whole `T`, in [`Hpcc::least`].
const WHOLE: u16 = u16::MAX;

/// One HPCC context: 40 bytes and 12 a queue, parameters shared.
#[derive(Clone, Debug)]
pub struct Hpcc {
    config: Arc<HpccConfig>,
    /// By the place in the path, while that is always the same; unused ones are at the end.
    last: Box<[Last]>,
    /// Reference rate, bits per second (`W^c` over `T`).
    reference: f32,
    /// Rate, bits per second (`W` over `T`).
    rate: f32,
    /// `U`: bytes in flight over the bandwidth-delay product, smoothed over `T`.
    utilisation: f32,
    /// The least round trip, as a share of the base one; zero until something was acknowledged.
    least: u16,
    /// `incStage`.
    stage: u8,
    /// Something was lost in this round trip.
    lost: bool,
}

impl Last {
    #[inline(always)]
    fn of(hop: &IntHop) -> Self {
        Self {
            at: clock(hop.at),
            tx_bytes: (hop.tx_bytes & 0xffff_ffff) as u32,
            hop: (hop.hop & 0xffff) as u16,
            // At most 16 bits.
            queue: (hop.queue / UNIT).min(u16::MAX.into()) as u16,
        }
    }
}

/// The busiest link of those whose records were compared.
#[derive(Clone, Copy, Debug, Default)]
struct Busiest {
    /// One over `T`, of nanoseconds.
    in_base: f32,
    /// `u`.
    utilisation: f32,
    /// Time between its records in nanoseconds; zero where none was compared.
    between: u32,
}

impl Busiest {
    /// A record says `now`, and the one of the same queue before it said `last`.
    #[inline(always)]
    fn compare(&mut self, hop: &IntHop, now: Last, last: Last) {
        let between = now.at.wrapping_sub(last.at);
        // Packets overtake one another where they are sprayed; what is older says nothing new, nor does the same
        // moment: zero wraps.
        if between.wrapping_sub(1) > u32::MAX / 2 {
            return;
        }
        let sent = now.tx_bytes.wrapping_sub(last.tx_bytes);
        let waiting = u32::from(now.queue.min(last.queue)) * UNIT;
        // Bytes that the link carries in a nanosecond; no rate has 64 bits.
        let carries = larger(number(hop.line), 1.0) * 1.25e-10;
        let flows = exact(sent) / exact(between) + exact(waiting) * self.in_base;
        let utilisation = flows / carries;
        // None is less than nothing.
        if self.between == 0 || utilisation > self.utilisation {
            (self.utilisation, self.between) = (utilisation, between);
        }
    }
}

/// What the records of one packet say.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    /// `u` of the busiest link.
    utilisation: f32,
    /// Time between its records in nanoseconds.
    between: f32,
    /// Bytes in the longest queue.
    longest: u32,
}

impl Hpcc {
    /// A context that starts at line rate. `config` must have passed [`crate::Tunable::check`].
    #[must_use]
    pub fn new(config: Arc<HpccConfig>, _now: Time) -> Self {
        let line = config.line.0 as f32;
        Self {
            last: alloc::vec![Last::default(); usize::from(config.queues)].into_boxed_slice(),
            reference: line,
            rate: line,
            utilisation: 1.0,
            least: 0,
            stage: 0,
            lost: false,
            config,
        }
    }

    /// `T` in nanoseconds.
    fn base(&self) -> f32 {
        let base = self.config.base_rtt.0.cast_signed() as f32;
        if self.config.global_t || self.least == 0 {
            base
        } else {
            base * (f32::from(self.least) / f32::from(WHOLE))
        }
    }

    /// `MeasureInflight`: what the records say compared with the last of the same queues; `None` if none of them was
    /// met before. `base` is `T`.
    #[inline(always)]
    fn measure(&mut self, hops: &[IntHop], base: f32) -> Option<Measured> {
        let mut busiest = Busiest { in_base: 1.0 / base, ..Busiest::default() };
        let mut place = 0;
        while let Some(rest) = hops.get(place..).filter(|rest| !rest.is_empty()) {
            // A queue's place in the path is where it is, but where packets are sprayed.
            let known = self.last.get_mut(place..).unwrap_or_default();
            for (hop, last) in rest.iter().zip(known) {
                if last.hop != (hop.hop & 0xffff) as u16 || last.at == 0 {
                    break;
                }
                let now = Last::of(hop);
                busiest.compare(hop, now, core::mem::replace(last, now));
                place += 1;
            }
            if let Some(hop) = hops.get(place) {
                let now = Last::of(hop);
                if let Some(last) = self.exchange(place, now) {
                    busiest.compare(hop, now, last);
                }
                place += 1;
            }
        }
        (busiest.between > 0).then(|| Measured {
            utilisation: busiest.utilisation,
            between: exact(busiest.between),
            longest: hops.iter().fold(0, |longest, hop| longest.max(hop.queue)),
        })
    }

    /// Remembers a record that is not at its place; what the last one of the same queue was.
    #[cold]
    fn exchange(&mut self, place: usize, now: Last) -> Option<Last> {
        let place = match self.last.get(place) {
            Some(last) if last.at == 0 => place,
            _ => self.find(now),
        };
        let last = core::mem::replace(&mut self.last[place], now);
        (last.at != 0 && last.hop == now.hop).then_some(last)
    }

    /// Where the queue of a record is remembered, or else the one that was not met for longest.
    fn find(&self, now: Last) -> usize {
        let known = self.last.iter().position(|last| last.hop == now.hop && last.at != 0);
        let age = |place: &usize| match self.last[*place].at {
            0 => u32::MAX,
            at => now.at.wrapping_sub(at),
        };
        known.or_else(|| (0..self.last.len()).max_by_key(age)).unwrap_or(0)
    }

    /// The least round trip, where this is one.
    fn shortest(&self, rtt: Span) -> u16 {
        let base = self.config.base_rtt.0;
        // A clock may have said anything.
        let trip = rtt.0.saturating_mul(WHOLE.into());
        // Nothing is divided for the many that are no shorter.
        if self.least != 0 && trip >= base.saturating_mul(self.least.into()) {
            return self.least;
        }
        // At most a whole.
        (trip / base.max(1)).clamp(1, WHOLE.into()) as u16
    }

    #[inline(always)]
    fn on_ack(&mut self, feedback: &Feedback<'_>, fairness: Option<&mut Fairness>) {
        if feedback.round_end {
            self.lost = false;
        }
        let first = self.least == 0;
        self.least = match feedback.rtt {
            Some(rtt) => self.shortest(rtt),
            None if first => WHOLE,
            None => self.least,
        };
        let base = self.base();
        let measured = match feedback.int {
            [] => {
                // Less than it, or the smallest delay of a host were a full link.
                let Some(rtt) = feedback.rtt else { return };
                let utilisation = rtt.0 as f32 / base * 0.75;
                let longest = larger(rtt.0 as f32 - base, 0.0) * number(self.config.line) / 8e9;
                Measured { utilisation, between: base, longest: longest as u32 }
            }
            hops => {
                let measured = self.measure(hops, base);
                match measured {
                    Some(measured) if !first => measured,
                    _ => return,
                }
            }
        };
        let weight = smaller(measured.between, base) / base;
        self.utilisation += (measured.utilisation - self.utilisation) * weight;
        self.react(feedback, measured.longest, fairness);
    }

    /// `ComputeWind`.
    #[inline(always)]
    fn react(&mut self, feedback: &Feedback<'_>, queue: u32, fairness: Option<&mut Fairness>) {
        let config = &*self.config;
        let line = number(config.line);
        let over = self.utilisation / config.eta;
        let decrease = over >= 1.0;
        let turn = match fairness {
            None => Turn::plain(feedback.round_end),
            Some(fairness) => {
                let seen = Seen {
                    measure: queue as f32,
                    decrease,
                    packets: feedback.packets,
                    round_end: feedback.round_end,
                    share: self.reference / line,
                };
                match fairness.turn(&seen) {
                    Some(turn) => turn,
                    None => return,
                }
            }
        };
        let multiply = decrease || self.stage >= config.max_stage;
        let from = if multiply { self.reference / over } else { self.reference };
        let rate = from + number(config.ai) * turn.gain;
        self.rate = smaller(larger(rate, number(config.min_rate)), line);
        if turn.commit {
            self.reference = self.rate;
            self.stage = if multiply { 0 } else { self.stage + 1 };
        }
    }

    fn on_loss(&mut self) {
        if !core::mem::replace(&mut self.lost, true) {
            self.rate = (self.rate.min(self.reference) / 2.0).max(self.config.min_rate.0 as f32);
            self.reference = self.rate;
            self.stage = 0;
        }
    }

    /// Any report, with VAI and SF or without.
    #[inline(always)]
    fn hear(&mut self, feedback: &Feedback<'_>, fairness: Option<&mut Fairness>) {
        if feedback.kind == Kind::Acked {
            self.on_ack(feedback, fairness);
        } else {
            self.hear_others(feedback.kind);
        }
    }

    /// A report of anything but packets that arrived.
    #[inline(never)]
    fn hear_others(&mut self, kind: Kind) {
        match kind {
            Kind::Nacked { trimmed: true, .. } | Kind::Lost | Kind::TimedOut => self.on_loss(),
            // A receiver that is not ready; what overtakes the queues; what is others' business.
            Kind::Acked
            | Kind::Nacked { trimmed: false, .. }
            | Kind::ProbeAnswered
            | Kind::Notified
            | Kind::Control => {}
        }
    }

    /// `W`: what the rate sends in `T`, in bytes.
    fn window(&self) -> u64 {
        (f64::from(self.rate) * f64::from(self.base()) / 8e9 + 0.5) as u64
    }
}

/// The larger of two numbers of which none is not one, for which `max` would look.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// The smaller of two such.
#[inline(always)]
fn smaller(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// A rate as a number: none has 64 bits.
#[inline(always)]
fn number(rate: Rate) -> f32 {
    rate.0.cast_signed() as f32
}

/// By way of 64 bits with a sign, which takes one instruction.
#[inline]
fn exact(number: u32) -> f32 {
    i64::from(number) as f32
}

impl SenderCc for Hpcc {
    fn budget(&self, _now: Time) -> Budget {
        let mtu = self.config.mtu;
        Budget {
            window: Some(self.window().max(mtu.into())),
            rate: Some(up_to(self.rate, self.config.line)),
            burst: mtu,
            ..Budget::default()
        }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.hear(feedback, None);
    }

    fn on_feedback_fairly(&mut self, feedback: &Feedback<'_>, fairness: &mut Fairness) {
        self.hear(feedback, Some(fairness));
    }

    fn metrics(&self) -> Metrics {
        let line = self.config.line;
        let most = line.0 as f64 * self.config.base_rtt.as_f64() / 8e9;
        Metrics {
            cwnd: Some(self.window()),
            max_cwnd: Some((most + 0.5) as u64),
            rate: Some(up_to(self.rate, line)),
            base_rtt: Some(self.config.base_rtt),
            // Something was acknowledged, and there was no record in anything.
            ungranted: self.least != 0 && self.last.iter().all(|last| last.at == 0),
            ..Metrics::default()
        }
    }

    fn base_rtt(&self) -> Option<squall_base::Span> {
        Some(self.config.base_rtt)
    }

    fn state_bytes(&self) -> usize {
        size_of_val(self) + size_of_val(&*self.last)
    }
}
