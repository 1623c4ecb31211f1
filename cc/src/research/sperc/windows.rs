//! 1RC's window table of a link: the number of speculative packets of each epoch that it lets
//! through (Snyder's thesis, section 5.2, algorithms 4 and 5).

use squall_base::{Span, Time};

use super::link::LinkVisit;
use crate::controller::{RatePacket, Speculation};

/// Number of epochs whose entry a link remembers. Of each older epoch one packet passes.
const REMEMBERED: usize = 64;

/// Parameters of 1RC that all window tables of a network share.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WindowTableParameters {
    /// Length of an epoch: the longest unloaded round trip of the network.
    pub epoch: Span,
    /// Size of a full packet in bytes.
    pub mtu: u32,
    /// Largest number of speculative packets that an epoch's entry allows: a bandwidth-delay
    /// product.
    pub most: u16,
    /// Time by which the clocks of hosts, which count the epochs, are ahead of the network's.
    pub ahead: Span,
}

/// A link's table of the speculative packets that it lets through, by epoch.
#[derive(Clone, Debug)]
pub struct WindowTable {
    parameters: WindowTableParameters,
    /// Epoch and number of packets that pass, indexed by the epoch modulo the length.
    entries: [(u32, u16); REMEMBERED],
}

impl WindowTable {
    /// Creates a table without entries for any epoch.
    #[must_use]
    pub const fn new(parameters: WindowTableParameters) -> Self {
        Self { parameters, entries: [(u32::MAX, 0); REMEMBERED] }
    }

    /// Processes a rate packet after the link's `visit`: its epoch has an entry from now on, and
    /// the packet reports the entry to a new flow. Returns false if the epoch is no longer
    /// remembered or has not begun; one packet of it passes.
    pub fn grant(&mut self, now: Time, visit: LinkVisit, packet: &mut RatePacket) -> bool {
        let epoch = packet.started.epoch;
        if !self.is_current(now, epoch) {
            packet.let_through = 1;
            return false;
        }
        let window = self.window(visit.bottleneck);
        let entry = &mut self.entries[epoch as usize % REMEMBERED];
        if entry.0 != epoch {
            // The entry is final, because flows that received it rely on it.
            *entry = (epoch, window);
        }
        if visit.is_new {
            let through = entry.1 / packet.started.weight.max(1);
            packet.let_through = packet.let_through.min(through).max(1);
        }
        true
    }

    /// Returns whether a speculative packet passes; `None` if its epoch is unknown, in which case
    /// the first packet of its host passes.
    #[must_use]
    pub fn passes(&self, now: Time, packet: Speculation) -> Option<bool> {
        let epoch = self.epoch_of(now, packet.epoch)?;
        let (of, window) = self.entries[epoch as usize % REMEMBERED];
        (of == epoch).then(|| packet.number < (window / packet.weight.max(1)).max(1))
    }

    /// Returns the number of full packets that `rate` b/s sends in an epoch.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates, not negative
    fn window(&self, rate: f64) -> u16 {
        let WindowTableParameters { epoch, mtu, most, .. } = self.parameters;
        let packets = rate * epoch.as_f64() / (8e9 * f64::from(mtu.max(1)));
        ((packets + 1e-6) as u16).min(most)
    }

    fn clock(&self, now: Time) -> u32 {
        // The epoch number wraps.
        (now + self.parameters.ahead).0.checked_div(self.parameters.epoch.0).unwrap_or(0) as u32
    }

    /// Returns whether an epoch is remembered; clocks may be one epoch apart.
    fn is_current(&self, now: Time, epoch: u32) -> bool {
        let age = self.clock(now).wrapping_add(1).wrapping_sub(epoch);
        age < REMEMBERED as u32
    }

    /// Returns the remembered epoch whose number has these low 7 bits, if there is one.
    fn epoch_of(&self, now: Time, low: u8) -> Option<u32> {
        let next = self.clock(now).wrapping_add(1);
        // The number of low bits' values divides 256.
        let age = (next as u8).wrapping_sub(low) % Speculation::EPOCHS;
        let epoch = next.wrapping_sub(age.into());
        self.is_current(now, epoch).then_some(epoch)
    }
}
