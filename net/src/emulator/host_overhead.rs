//! Virtual times of a host's work, as in the LogGP model: by kind of work, and by size of the message in pieces, as
//! SMPI's options smpi/os and smpi/or have them.

use crate::base::Span;

/// Largest number of pieces of a cost.
pub const MOST_PIECES: usize = 8;

/// Work of a host whose virtual time may depend on the size of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HostWork {
    /// A call posts a message.
    Send = 0,
    /// A call posts a message or a write whose buffer is free when the call returns (FI_INJECT).
    Inject = 1,
    /// A call posts a write of remote memory.
    Write = 2,
    /// A call posts a read of remote memory.
    Read = 3,
    /// A call posts an atomic operation.
    Atomic = 4,
    /// The application reads the completion of a received message or of an access by a peer.
    Receive = 5,
    /// The application reads the completion of an operation of its own.
    Sent = 6,
    /// A call that receives finds its message, which has arrived before.
    Unexpected = 7,
}

impl HostWork {
    /// All kinds of work, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Send,
        Self::Inject,
        Self::Write,
        Self::Read,
        Self::Atomic,
        Self::Receive,
        Self::Sent,
        Self::Unexpected,
    ];

    /// Returns the name of the work in options and settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Inject => "inject",
            Self::Write => "write",
            Self::Read => "read",
            Self::Atomic => "atomic",
            Self::Receive => "receive",
            Self::Sent => "sent",
            Self::Unexpected => "unexpected",
        }
    }

    /// Returns the work whose cost this one has unless it is given its own; `None` if it then takes no time.
    #[must_use]
    pub const fn stand_in(self) -> Option<Self> {
        match self {
            Self::Send | Self::Receive | Self::Unexpected => None,
            Self::Inject | Self::Write | Self::Read | Self::Atomic => Some(Self::Send),
            Self::Sent => Some(Self::Receive),
        }
    }
}

/// The time of a host's work for messages of at least `from` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostPiece {
    /// Smallest size of a message, in bytes, to which the piece applies.
    pub from: u32,
    /// Time that does not depend on the size, in nanoseconds.
    pub ns: u32,
    /// Time of each byte of the message, in picoseconds.
    pub byte_ps: u32,
}

/// The virtual time of a host's work by the size of a message: one number, or a line in each of several pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkCost {
    /// Time in nanoseconds if there are no pieces.
    ns: u32,
    /// Pieces by ascending sizes, of which the first begins at 0. Empty if the cost is one number.
    pieces: Box<[CostPiece]>,
}

impl WorkCost {
    /// Creates a cost that does not depend on the size.
    #[must_use]
    pub fn constant(ns: u32) -> Self {
        Self { ns, pieces: Box::default() }
    }

    /// Creates a cost of one or more pieces. Returns `None` if there are more than [`MOST_PIECES`], the first does not
    /// begin at 0, or the sizes do not ascend.
    #[must_use]
    pub fn of_pieces(pieces: &[CostPiece]) -> Option<Self> {
        let first = pieces.first().filter(|first| first.from == 0)?;
        if pieces.len() > MOST_PIECES || !pieces.is_sorted_by(|one, next| one.from < next.from) {
            return None;
        }
        match pieces {
            [only] if only.byte_ps == 0 => Some(Self::constant(only.ns)),
            _ => Some(Self { ns: first.ns, pieces: pieces.into() }),
        }
    }

    /// Returns the pieces of the cost. A cost that is one number has one.
    #[must_use]
    pub fn pieces(&self) -> Vec<CostPiece> {
        match &*self.pieces {
            [] => vec![CostPiece { from: 0, ns: self.ns, byte_ps: 0 }],
            pieces => pieces.to_vec(),
        }
    }

    /// Returns the time for a message of `bytes`, rounded down to nanoseconds.
    #[inline]
    #[must_use]
    pub fn time(&self, bytes: u64) -> Span {
        if self.pieces.is_empty() { Span(self.ns.into()) } else { self.time_in_pieces(bytes) }
    }

    fn time_in_pieces(&self, bytes: u64) -> Span {
        let after = self.pieces.partition_point(|piece| u64::from(piece.from) <= bytes);
        let Some(piece) = after.checked_sub(1).and_then(|index| self.pieces.get(index)) else {
            return Span(self.ns.into());
        };
        Span(u64::from(piece.ns) + bytes.saturating_mul(piece.byte_ps.into()) / 1000)
    }
}

/// Virtual times of a host's work, as in the LogGP model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostOverhead {
    /// Virtual time of a call that reads a queue, in nanoseconds.
    pub poll: u32,
    /// Virtual time for each payload byte that an endpoint sends or receives, in picoseconds.
    pub byte: u32,
    /// Virtual time of a call that reads the clock, in nanoseconds.
    pub clock: u32,
    /// Cost of each kind of work, by its number.
    works: [WorkCost; HostWork::ALL.len()],
}

impl Default for HostOverhead {
    /// Returns the times of a network card that places payload in memory by itself: 100 ns for a descriptor and the
    /// doorbell, 100 ns for a completion, 50 ns for an empty poll.
    fn default() -> Self {
        let mut default = Self { poll: 50, clock: 20, ..Self::free() };
        default.set(HostWork::Send, &WorkCost::constant(100));
        default.set(HostWork::Receive, &WorkCost::constant(100));
        default
    }
}

impl HostOverhead {
    /// Returns the times of a host whose work takes no time.
    #[must_use]
    pub fn free() -> Self {
        Self { poll: 0, byte: 0, clock: 0, works: Default::default() }
    }

    /// Returns the cost of a kind of work.
    #[inline]
    #[must_use]
    pub const fn cost(&self, work: HostWork) -> &WorkCost {
        &self.works[work as usize]
    }

    /// Sets the cost of a kind of work, and of each work for which it is the [stand-in](HostWork::stand_in).
    pub fn set(&mut self, work: HostWork, cost: &WorkCost) {
        for other in HostWork::ALL {
            if other == work || other.stand_in() == Some(work) {
                self.works[other as usize] = cost.clone();
            }
        }
    }

    /// Encodes the times for the rules of virtual time.
    pub(super) fn encode(&self, into: &mut Vec<u8>) {
        let mut put = |words: [u32; 3]| {
            into.extend(words.into_iter().flat_map(u32::to_le_bytes));
        };
        put([self.poll, self.byte, self.clock]);
        for cost in &self.works {
            let pieces = cost.pieces();
            put([u32::try_from(pieces.len()).unwrap_or(u32::MAX), 0, 0]);
            for CostPiece { from, ns, byte_ps } in pieces {
                put([from, ns, byte_ps]);
            }
        }
    }

    /// Decodes times that [`Self::encode`] wrote, which are all of `bytes`. Returns `None` if they are not valid.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let mut take = || {
            let (words, after) = rest.split_first_chunk::<12>()?;
            rest = after;
            let word = |at: usize| {
                u32::from_le_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]])
            };
            Some([word(0), word(4), word(8)])
        };
        let [poll, byte, clock] = take()?;
        let mut times = Self { poll, byte, clock, ..Self::free() };
        for cost in &mut times.works {
            let [count, ..] = take()?;
            let count = usize::try_from(count).ok().filter(|count| *count <= MOST_PIECES)?;
            let piece = |[from, ns, byte_ps]: [u32; 3]| CostPiece { from, ns, byte_ps };
            let pieces: Option<Vec<CostPiece>> = (0..count).map(|_| take().map(piece)).collect();
            *cost = WorkCost::of_pieces(&pieces?)?;
        }
        rest.is_empty().then_some(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECES: [CostPiece; 2] = [
        CostPiece { from: 0, ns: 120, byte_ps: 0 },
        CostPiece { from: 4096, ns: 900, byte_ps: 35 },
    ];

    #[test]
    fn a_piece_begins_at_its_size() {
        let cost = WorkCost::of_pieces(&PIECES).expect("valid");
        // 900 ns and 35 ps for each of 4096 bytes are 1043.36 ns.
        let times = [0, 4095, 4096, 100_000].map(|bytes| cost.time(bytes).0);
        assert_eq!(times, [120, 120, 1043, 4400]);
        assert_eq!(WorkCost::constant(7).time(u64::MAX), Span(7));
        assert_eq!(cost.time(u64::MAX).0, 900 + u64::MAX / 1000, "no overflow");
    }

    #[test]
    fn pieces_begin_at_zero_and_ascend() {
        let piece = |from| CostPiece { from, ns: 1, byte_ps: 1 };
        let valid = |starts: &[u32]| {
            let pieces: Vec<_> = starts.iter().map(|from| piece(*from)).collect();
            WorkCost::of_pieces(&pieces).is_some()
        };
        assert!(valid(&[0]) && valid(&[0, 1, 9]) && valid(&[0, 1, 2, 3, 4, 5, 6, 7]));
        for bad in [&[][..], &[1], &[0, 5, 5], &[0, 9, 5], &[0, 1, 2, 3, 4, 5, 6, 7, 8]] {
            assert!(!valid(bad), "{bad:?}");
        }
        let constant = CostPiece { from: 0, ns: 5, byte_ps: 0 };
        assert_eq!(WorkCost::of_pieces(&[constant]), Some(WorkCost::constant(5)));
    }

    #[test]
    fn works_without_a_cost_of_their_own_have_that_of_their_stand_in() {
        let mut times = HostOverhead::default();
        let each = |times: &HostOverhead| HostWork::ALL.map(|work| times.cost(work).time(8).0);
        assert_eq!(each(&times), [100, 100, 100, 100, 100, 100, 100, 0]);
        times.set(HostWork::Send, &WorkCost::constant(7));
        times.set(HostWork::Receive, &WorkCost::constant(9));
        times.set(HostWork::Read, &WorkCost::constant(3));
        assert_eq!(each(&times), [7, 7, 7, 3, 7, 9, 9, 0]);
    }

    #[test]
    fn times_survive_the_round_trip_and_invalid_ones_are_refused() {
        let mut times = HostOverhead { poll: 3, byte: 4, clock: 5, ..HostOverhead::default() };
        times.set(HostWork::Write, &WorkCost::of_pieces(&PIECES).expect("valid"));
        let mut bytes = Vec::new();
        times.encode(&mut bytes);
        assert_eq!(HostOverhead::decode(&bytes), Some(times));
        for length in 0..bytes.len() {
            assert_eq!(HostOverhead::decode(&bytes[..length]), None, "{length} bytes");
        }
        bytes[12] = 9;
        assert_eq!(HostOverhead::decode(&bytes), None, "more pieces than are allowed");
        bytes[12] = 0;
        assert_eq!(HostOverhead::decode(&bytes), None, "no piece");
    }
}
