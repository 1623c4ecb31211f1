//! This module plays operations whose order is judged: writes, each to a place of its own in a region of the other side,
//! reads of those places, and messages. Some of them are fenced, and some endpoints promise an order.

use squall_base::Rng;
use squall_engine::{OperationClasses, Order};

use super::application::Region;
use crate::world::{VecMemory, World};

/// The key of a process's region, behind the first number of its life.
const KEY: u64 = 2;
/// Places of a region, each written once, and how long they are: several packets.
const PLACES: u64 = 16;
const PLACE: u64 = 6000;

/// Returns the order that some endpoints promise: a later operation finds earlier writes and atomics in place, and a write changes
/// nothing that an earlier read still reads.
pub(super) fn promise() -> Order {
    let changes = OperationClasses::WRITE | OperationClasses::UPDATE | OperationClasses::FETCH;
    Order::NONE
        .with(OperationClasses::ALL, changes)
        .with(OperationClasses::WRITE, OperationClasses::READ)
}

/// The state of one process: its region, and which places of the other side's region it has written.
pub(super) struct Ordered {
    rng: Rng,
    /// The other side writes and reads here.
    pub(super) region: Region,
    /// Whether the endpoint promises [`promise`].
    pub(super) promised: bool,
    /// The number of places of the other side's region that were written.
    written: u64,
}

#[derive(Clone, Copy)]
pub(super) enum Doing {
    /// Writes to the next place, with remote CQ data or without.
    Write { reports: bool },
    /// Reads a place.
    Read,
    /// Sends a message.
    Send,
}

/// An operation on `len` bytes `at` an offset of the other side's region.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub(super) doing: Doing,
    pub(super) at: u64,
    pub(super) len: u64,
    pub(super) fence: bool,
}

impl Ordered {
    /// Creates the state of a process whose numbers begin at `first`.
    pub(super) fn new(host: &mut VecMemory, first: u64, promised: bool, seed: u64) -> Self {
        let (len, key) = (PLACES * PLACE, first + KEY);
        let base = host.alloc(len as usize);
        host.register(key, base, len, true, true);
        let region = Region { key, base, closed: false, bytes: vec![0; len as usize] };
        Self { rng: Rng::new(seed), region, promised, written: 0 }
    }

    /// Draws the next operation; `None` when the application does something else.
    pub(super) fn turn(&mut self) -> Option<Turn> {
        if !self.rng.chance(0.4) || self.written == PLACES {
            return None;
        }
        let fence = self.rng.chance(0.3);
        let most = [40, 1300, PLACE as u32][self.rng.below(3) as usize];
        let len = u64::from(1 + self.rng.below(most));
        let (next, last) = (self.written, self.written.saturating_sub(1));
        let (doing, place) = match self.rng.below(8) {
            0..=3 => (Doing::Write { reports: true }, next),
            4 => (Doing::Write { reports: false }, next),
            5 => (Doing::Read, last),
            6 => (Doing::Read, next),
            _ => (Doing::Send, next),
        };
        self.written += u64::from(matches!(doing, Doing::Write { .. }));
        Some(Turn { doing, at: place * PLACE, len, fence })
    }
}

/// Returns the key of the region that a host has now.
pub(super) fn key_of(world: &World, host: usize, life: u64) -> Option<u64> {
    let keys = world.hosts[host].memory.regions.keys();
    keys.copied().filter(|key| key % life == KEY).max()
}
