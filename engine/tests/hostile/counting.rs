//! Atomics on counters of the other side, checked against a reference: a successful one is executed
//! exactly once, a failed one at most once.
//!
//! A counter is a number of 32 digits to the base 4. Each atomic adds one to a digit of its own, so
//! the counter shows how often each atomic was executed. One atomic that was executed twice cannot
//! hide another that never was.

use squall_base::Rng;
use squall_engine::*;

use super::Finding;
use super::application::{Application, Op, What};
use crate::world::{VecMemory, World};

/// The key of a process's counters, relative to the first number of its life.
const KEY: u64 = 1;
/// Number of digits of a counter.
const DIGITS: u32 = 32;
/// Number of counters that one process adds to, and number of successive processes with counters of
/// their own.
const OWN: u32 = 2;
const LIVES: u32 = 8;
/// Number of all counters of a region.
const COUNTERS: u32 = OWN * LIVES;

/// The counters of one process, and those that its peers add to.
pub(super) struct Counting {
    rng: Rng,
    /// Ordinal number of the process at its host.
    life: u32,
    /// Number of used digits, by counter.
    taken: [u32; OWN as usize],
    /// Address of the process's own counters.
    pub(super) base: u64,
    /// Key of the process's own counters.
    pub(super) key: u64,
}

/// An atomic that adds one to a digit of a counter.
#[derive(Clone, Copy)]
pub(super) struct Count {
    pub(super) key: u64,
    counter: u32,
    digit: u32,
    /// The atomic returns the previous value.
    pub(super) fetches: bool,
}

impl Count {
    fn add(self) -> u64 {
        1 << (2 * self.digit)
    }

    /// Returns how often the atomic was executed according to `value`.
    fn times(self, value: u64) -> u64 {
        value >> (2 * self.digit) & 3
    }
}

impl Counting {
    /// Creates the state of the `life`th process of a host, whose numbers start at `first`.
    pub(super) fn new(host: &mut VecMemory, first: u64, life: u64, seed: u64) -> Self {
        let len = 8 * COUNTERS as usize;
        let (base, key) = (host.alloc(len), first + KEY);
        host.register(key, base, len as u64, true, true);
        let life = (life % u64::from(LIVES)) as u32;
        Self { rng: Rng::new(seed), life, taken: [0; OWN as usize], base, key }
    }

    /// Draws the next atomic; `None` if the application does something else.
    pub(super) fn turn(&mut self, key: u64) -> Option<Count> {
        if !self.rng.chance(0.3) {
            return None;
        }
        let own = self.rng.below(OWN);
        let taken = &mut self.taken[own as usize];
        let digit = *taken;
        if digit == DIGITS {
            return None;
        }
        *taken += 1;
        let counter = self.life * OWN + own;
        Some(Count { key, counter, digit, fetches: self.rng.chance(0.6) })
    }
}

/// Returns the key of a host's current counters.
pub(super) fn key_of(world: &World, host: usize, life: u64) -> Option<u64> {
    let keys = world.hosts[host].memory.regions.keys();
    keys.copied().filter(|key| key % life == KEY).max()
}

/// Returns the operation and the address of its result. Its operand is in memory of `world`, which
/// the engine does not read after submission.
pub(super) fn operation(world: &mut World, at: usize, count: Count) -> (Operation, u64, u64) {
    let memory = &mut world.hosts[at].memory;
    let operand = memory.put(&count.add().to_ne_bytes());
    let result = memory.alloc(8);
    let remote = RemoteSeg { address: u64::from(count.counter) * 8, len: 8, key: count.key };
    let atomic = Atomic {
        op: AmoOp::Sum,
        data_type: AmoType::Uint64,
        remote: RemoteIov::One(remote),
        compare: None,
        result: count.fetches.then(|| Buf::new(result, 8)),
    };
    let op = Operation {
        peer: world.peer(at, 1 - at),
        action: Action::Atomic(Box::new(atomic)),
        buf: Buf::new(operand, 8),
        data: None,
        context: 0,
        options: Options::default(),
    };
    (op, operand, result)
}

fn word(memory: &VecMemory, base: u64) -> u64 {
    memory.get(base, 8).iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// Judges whether the atomics of an application were executed as often as reported. `counters`
/// returns the counters with a key, and their owner.
pub(super) fn judge<'a>(
    memory: &VecMemory,
    side: &Application,
    counters: impl Fn(u64) -> Option<(&'a VecMemory, &'a Counting)>,
) -> Result<(), Finding> {
    let counts = |op: &Op| if let What::Count(count) = op.what { Some(count) } else { None };
    let all = || side.ops.iter().enumerate().filter_map(|(n, op)| Some((n, op, counts(op)?)));
    for (context, op, count) in all() {
        let told = |kind: &str, value: u64| {
            let text =
                format!("host {}: operation {context}, {:?}: {value:#x}", side.at, op.status);
            Err(Finding::new(kind, text))
        };
        let Some((theirs, counting)) = counters(count.key) else { continue };
        let value = word(theirs, counting.base + u64::from(count.counter) * 8);
        let succeeded = op.ended > 0 && op.status.is_ok();
        match count.times(value) {
            0 if succeeded => return told("an atomic succeeded that was not carried out", value),
            0 | 1 => {}
            _ => return told("an atomic was carried out twice", value),
        }
        if !(succeeded && count.fetches) {
            continue;
        }
        // The previous value lacks this atomic, includes all that had ended before, and none that
        // started later.
        let before = word(memory, op.base);
        let same = |other: Count| (other.key, other.counter) == (count.key, count.counter);
        let fits = all().filter(|(.., other)| same(*other)).all(|(n, other, its)| {
            let (least, most) = if n == context {
                (0, 0)
            } else {
                let over = other.ended > 0 && other.status.is_ok() && other.over < op.begun;
                (u64::from(over), u64::from(other.begun <= op.over))
            };
            (least..=most).contains(&its.times(before))
        });
        if !fits {
            return told("an atomic brought back what was not there", before);
        }
    }
    Ok(())
}
