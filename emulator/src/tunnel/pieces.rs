//! Reliable transfer of a connection's bytes over datagrams: one piece at a time, sent again until
//! it is acknowledged.
//!
//! Only a greeting and its answer, or a command and its answer, go this way. Packets do not: the
//! transport between endpoints recovers their losses.

use std::collections::VecDeque;

use squall_base::{Span, Time};

/// Bytes of a piece, small enough for every path to carry without fragmentation.
const PIECE: usize = 1200;
/// Time after which a piece is sent again.
const AGAIN: Span = Span::millis(100);
/// Time after which the connection is closed if the other end has not acknowledged a piece, counted
/// from the piece's first transmission: 50 transmissions.
const PATIENCE: Span = Span::millis(5000);

/// State of both directions of one connection.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// Pieces to send; the first may be in flight. An empty piece marks the end.
    waiting: VecDeque<Vec<u8>>,
    /// Number of the first piece in `waiting`.
    number: u32,
    /// Times at which the first piece was first sent and is sent again; `None` before the first
    /// transmission.
    sent: Option<(Time, Time)>,
    /// Number of the next piece expected from the other end.
    next: u32,
}

impl Pieces {
    /// Appends bytes to send.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.waiting.extend(bytes.chunks(PIECE).map(<[u8]>::to_vec));
    }

    /// Marks the end of the bytes to send.
    pub(super) fn end(&mut self) {
        self.waiting.push_back(Vec::new());
    }

    /// Returns whether the other end has acknowledged every piece.
    pub(super) fn is_done(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns whether any piece arrived.
    pub(super) const fn has_begun(&self) -> bool {
        self.next > 0
    }

    /// Returns the number and bytes of the piece to send now, if one is due.
    pub(super) fn due(&mut self, now: Time) -> Option<(u32, &[u8])> {
        let first = self.waiting.front()?;
        if self.sent.is_some_and(|(_, again)| now < again) {
            return None;
        }
        let begun = self.sent.map_or(now, |(begun, _)| begun);
        self.sent = Some((begun, now + AGAIN));
        Some((self.number, first))
    }

    /// Returns when [`Self::due`] will have a piece to send.
    pub(super) fn when(&self) -> Option<Time> {
        let first = self.waiting.front();
        first.map(|_| self.sent.map_or(Time::ZERO, |(_, again)| again))
    }

    /// Returns whether the other end has not acknowledged a piece for too long.
    pub(super) fn is_given_up(&self, now: Time) -> bool {
        self.sent.is_some_and(|(begun, _)| begun + PATIENCE <= now)
    }

    /// Handles the acknowledgement of piece `number`.
    pub(super) fn acknowledge(&mut self, number: u32) {
        if self.sent.is_some() && number == self.number {
            self.waiting.pop_front();
            self.number = self.number.wrapping_add(1);
            self.sent = None;
        }
    }

    /// Classifies piece `number`, which arrived. The caller acknowledges earlier pieces again. No
    /// correct end sends a piece ahead of its turn.
    pub(super) fn take(&mut self, number: u32) -> PieceKind {
        if number == self.next {
            self.next = self.next.wrapping_add(1);
            PieceKind::New
        } else if number.wrapping_sub(self.next) > u32::MAX / 2 {
            PieceKind::Again
        } else {
            PieceKind::OutOfTurn
        }
    }
}

/// Position of a piece that arrived, relative to the next expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceKind {
    /// The next expected piece.
    New,
    /// An earlier piece, which arrived before.
    Again,
    /// A piece ahead of its turn.
    OutOfTurn,
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_base::Rng;

    #[test]
    fn all_arrives_once_and_in_order_whatever_is_lost_or_comes_twice() {
        let text: Vec<u8> = (0..10_000u32).map(|i| (i * 7) as u8).collect();
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let (mut here, mut there) = (Pieces::default(), Pieces::default());
            here.push(&text[..1]);
            here.push(&text[1..]);
            here.end();
            let (mut now, mut got, mut ended, mut rounds) = (Time(1), Vec::new(), 0, 0);
            while !here.is_done() {
                now = now.max(here.when().expect("it waits"));
                let (number, bytes) = here.due(now).expect("it is due");
                let bytes = bytes.to_vec();
                assert_eq!(here.due(now), None, "not again at once");
                for _ in 0..rng.below(3) {
                    match there.take(number) {
                        PieceKind::New if bytes.is_empty() => ended += 1,
                        PieceKind::New => got.extend_from_slice(&bytes),
                        PieceKind::Again => {}
                        PieceKind::OutOfTurn => panic!("piece {number} out of turn"),
                    }
                    if rng.below(2) == 0 {
                        here.acknowledge(number);
                    }
                }
                rounds += 1;
                assert!(rounds < 10_000, "seed {seed}: it never ends");
            }
            assert_eq!((got.as_slice(), ended), (text.as_slice(), 1), "seed {seed}");
        }
    }

    #[test]
    fn a_silent_end_is_given_up_after_five_seconds_and_strange_numbers_change_nothing() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.when(), None);
        pieces.push(b"hello");
        pieces.acknowledge(0);
        assert!(!pieces.is_done(), "it was not sent");
        let begun = Time(1_000);
        assert_eq!(pieces.due(begun), Some((0, &b"hello"[..])));
        assert!(pieces.due(begun + Span::millis(99)).is_none());
        assert!(pieces.due(begun + Span::millis(100)).is_some());
        assert!(!pieces.is_given_up(begun + Span::millis(4999)));
        assert!(pieces.is_given_up(begun + Span::millis(5000)));
        pieces.acknowledge(1);
        assert!(!pieces.is_done());
        assert_eq!(pieces.take(5), PieceKind::OutOfTurn);
        assert!(!pieces.has_begun());
        assert_eq!((pieces.take(0), pieces.take(0)), (PieceKind::New, PieceKind::Again));
        assert!(pieces.has_begun());
    }
}
