//! Admission of contexts: the secrets that two endpoints share after a handshake, and the start
//! PSNs that follow from them.
//!
//! Both ends know an [`Association`], which only an attacker on the path between them can have
//! seen. The start PSN of a context is a keyed function of it, of the context's number, and of a
//! turn that counts the contexts opened one after the other. A packet that opens a context
//! therefore proves that its sender is verified, and a replayed one opens nothing.

use std::collections::BTreeMap;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::base::Psn;
use crate::types::{Association, PeerKey};

/// The number of turns that the check of a start PSN covers. A turn is skipped when a context was
/// opened and given up before any packet of it arrived.
const LOOKAHEAD: u32 = 4;

/// A start PSN keeps at least this distance from the last PSN used under the same number (UE 1.0
/// section 3.5.8.2).
pub(super) const START_DISTANCE: u32 = 1 << 16;

impl Association {
    /// Returns the start PSN of context `number`, opened in `turn` by the end that began the
    /// handshake (`by_asker`) or by the other one.
    fn start(self, by_asker: bool, number: u16, turn: u32) -> Psn {
        let [low, high] = self.0;
        let mut hasher = SipHasher24::new_with_keys(low, high);
        hasher.write_u64(u64::from(turn) << 32 | u64::from(number) << 16 | u64::from(by_asker));
        // Either half of a keyed hash is as good as the other.
        Psn((hasher.finish() >> 32) as u32)
    }

    /// Returns 128 bits that only holders of the association can compute; they differ for each
    /// `purpose`. They reveal nothing of start PSNs: those hash eight bytes, these sixteen.
    #[must_use]
    pub fn proof(self, purpose: u64) -> [u64; 2] {
        let [low, high] = self.0;
        [0, 1].map(|half| {
            let mut hasher = SipHasher24::new_with_keys(low, high);
            hasher.write_u64(purpose);
            hasher.write_u64(half);
            hasher.finish()
        })
    }
}

/// A completed handshake with a peer, from which the start PSNs of contexts follow.
#[derive(Clone, Copy, Debug)]
struct Handshake {
    association: Association,
    /// The turn of this end's next context: a count that enters its start PSN.
    turn: u32,
    /// The turn of the peer's next context, as far as this end knows.
    expected: u32,
}

/// The completed handshakes with one peer, at most one begun by each end.
#[derive(Clone, Copy, Debug, Default)]
struct PeerHandshakes {
    /// The completed handshake that this end began, and the one that the peer began.
    known: [Option<Handshake>; 2],
    /// The last forgotten handshake that the peer began. It cannot be learned again, or its
    /// contexts could be opened a second time.
    over: Option<Association>,
    /// The peer does not belong to this endpoint's job.
    outside: bool,
}

/// Permission to open one context: the index of the handshake, and the turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admission {
    exchange: usize,
    turn: u32,
}

/// The verified peers of an endpoint: the completed handshakes with each of them.
#[derive(Debug, Default)]
pub struct Admissions {
    peers: BTreeMap<PeerKey, PeerHandshakes>,
}

impl Admissions {
    /// Records a handshake in which both ends have proven that they receive at their addresses;
    /// `asked` when this end began it. From now on each may open contexts to the other. Returns
    /// `false` when the handshake is one that was forgotten.
    pub fn record_handshake(
        &mut self,
        peer: PeerKey,
        association: Association,
        asked: bool,
    ) -> bool {
        let exchanges = self.peers.entry(peer).or_default();
        if exchanges.over == Some(association) {
            return false;
        }
        let known = &mut exchanges.known[usize::from(!asked)];
        if known.is_none_or(|exchange| exchange.association != association) {
            *known = Some(Handshake { association, turn: 0, expected: 0 });
        }
        true
    }

    /// Returns whether a handshake with the peer is complete.
    #[must_use]
    pub fn is_verified(&self, peer: PeerKey) -> bool {
        self.peers.get(&peer).is_some_and(|exchanges| exchanges.known.iter().any(Option::is_some))
    }

    /// Returns the shared secret of the last handshake that this end began (`asked`), or the peer.
    #[must_use]
    pub fn association(&self, peer: PeerKey, asked: bool) -> Option<Association> {
        let exchange = self.peers.get(&peer)?.known[usize::from(!asked)];
        exchange.map(|exchange| exchange.association)
    }

    /// Sets whether a peer that has passed the handshake is outside the job. All such peers together have a bounded
    /// share of the contexts. By default no peer is outside the job.
    pub fn set_outside(&mut self, peer: PeerKey, outside: bool) {
        if let Some(exchanges) = self.peers.get_mut(&peer) {
            exchanges.outside = outside;
        }
    }

    /// Adds a peer that need not pass a handshake, and sets whether it is outside the job.
    pub fn add_unverified(&mut self, peer: PeerKey, outside: bool) {
        self.peers.entry(peer).or_default().outside = outside;
    }

    /// Returns whether the peer does not belong to this endpoint's job.
    pub(super) fn is_outside(&self, peer: PeerKey) -> bool {
        self.peers.get(&peer).is_some_and(|exchanges| exchanges.outside)
    }

    /// Makes the peer unverified again. The last handshake that it began is remembered, so that it
    /// cannot be learned again.
    pub fn forget(&mut self, peer: PeerKey) {
        if let Some(exchanges) = self.peers.get_mut(&peer) {
            let theirs = exchanges.known[1].map(|exchange| exchange.association);
            *exchanges =
                PeerHandshakes { known: [None; 2], over: theirs.or(exchanges.over), ..*exchanges };
        }
    }

    /// Discards everything about the peer, even which handshake was its last.
    pub(super) fn remove(&mut self, peer: PeerKey) {
        self.peers.remove(&peer);
    }

    /// Returns whether `start` is one of the last start PSNs that this end's context `number` was
    /// given.
    pub(super) fn allows(&self, peer: PeerKey, number: u16, start: Psn) -> bool {
        let Some(exchanges) = self.peers.get(&peer) else { return false };
        [true, false].into_iter().zip(&exchanges.known).any(|(by_asker, exchange)| {
            exchange.is_some_and(|Handshake { association, turn, .. }| {
                let mut lately = turn.saturating_sub(LOOKAHEAD)..turn;
                lately.any(|turn| association.start(by_asker, number, turn) == start)
            })
        })
    }

    /// Returns the start PSN of this end's next context to a peer, under `number`, whose last PSN
    /// was `last`; `None` for an unverified peer.
    pub(super) fn start(&mut self, peer: PeerKey, (number, last): (u16, Psn)) -> Option<Psn> {
        let exchanges = &mut self.peers.get_mut(&peer)?.known;
        let by_asker = exchanges[0].is_some();
        let exchange = exchanges.iter_mut().flatten().next()?;
        loop {
            let start = exchange.association.start(by_asker, number, exchange.turn);
            // The turn does not wrap: 2^32 contexts are not opened within one handshake.
            exchange.turn = exchange.turn.wrapping_add(1);
            if start.distance(last).unsigned_abs() >= START_DISTANCE {
                return Some(start);
            }
        }
    }

    /// Returns the permission for the peer to open the context with its `number` at `start`, if it
    /// may.
    pub(super) fn check(&self, peer: PeerKey, number: u16, start: Psn) -> Option<Admission> {
        let exchanges = self.peers.get(&peer)?;
        // The peer began the handshake at index 1.
        for (exchange, by_asker) in [(1, true), (0, false)] {
            let Some(known) = &exchanges.known[exchange] else { continue };
            for ahead in 0..LOOKAHEAD {
                let turn = known.expected.wrapping_add(ahead);
                if known.association.start(by_asker, number, turn) == start {
                    return Some(Admission { exchange, turn });
                }
            }
        }
        None
    }

    /// Records that the admitted context was opened, which ends its turn and those before it.
    pub(super) fn consume(&mut self, peer: PeerKey, admission: Admission) {
        if let Some(exchanges) = self.peers.get_mut(&peer)
            && let Some(exchange) = &mut exchanges.known[admission.exchange]
        {
            exchange.expected = admission.turn.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PeerKey = PeerKey(7);

    /// Returns two ends after a handshake that the first one began.
    fn verified_ends() -> [Admissions; 2] {
        let mut ends = [Admissions::default(), Admissions::default()];
        let association = Association::new(1, 2);
        ends[0].record_handshake(PEER, association, true);
        ends[1].record_handshake(PEER, association, false);
        ends
    }

    /// The numbers are the test vector of `docs/wire.md`, computed by an independent SipHash.
    #[test]
    fn start_psns_are_those_of_the_test_vector() {
        let with_key = Association::new(0x1e01_e06c_0ac8_854b, 0x3014_1f7c_cc34_90d8);
        let without = Association::new(0x3132_3334_3536_3738, 0x0102_0304_0506_0708);
        for (association, starts) in [
            (with_key, [0x04cf_ac13, 0x000e_5810, 0x78c6_b862]),
            (without, [0xcb53_1cdc, 0x4f95_45cd, 0x2bdb_39c5]),
        ] {
            let of = |(by_asker, turn)| association.start(by_asker, 5, turn);
            assert_eq!([(true, 0), (true, 1), (false, 0)].map(of), starts.map(Psn));
        }
    }

    fn opens(from: &mut Admissions, to: &mut Admissions, number: u16) -> bool {
        let start = from.start(PEER, (number, Psn(0))).expect("verified");
        let admission = to.check(PEER, number, start);
        admission.inspect(|admission| to.consume(PEER, *admission)).is_some()
    }

    #[test]
    fn both_ends_may_open_contexts_in_turn() {
        let [mut a, mut b] = verified_ends();
        for number in [1, 1, 2, 900, 1] {
            assert!(opens(&mut a, &mut b, number));
            assert!(opens(&mut b, &mut a, number));
        }
    }

    #[test]
    fn a_start_psn_opens_one_context_and_invalidates_earlier_ones() {
        let [mut a, mut b] = verified_ends();
        let starts: Vec<Psn> = (0..3).map(|_| a.start(PEER, (5, Psn(0))).expect("known")).collect();
        let second = b.check(PEER, 5, starts[1]).expect("a turn may be skipped");
        b.consume(PEER, second);
        assert!(b.check(PEER, 5, starts[0]).is_none() && b.check(PEER, 5, starts[1]).is_none());
        assert!(b.check(PEER, 5, starts[2]).is_some());
        assert!(b.check(PEER, 6, starts[2]).is_none(), "another number");
        assert!(b.check(PeerKey(8), 5, starts[2]).is_none(), "another peer");
        assert!(b.check(PEER, 5, starts[2].plus(1)).is_none());
        // The start PSNs of this end's direction are not valid for the peer's.
        assert!(a.check(PEER, 5, starts[2]).is_none());
    }

    #[test]
    fn unverified_peers_open_no_context_and_a_new_handshake_starts_over() {
        let [mut a, mut b] = verified_ends();
        assert_eq!(Admissions::default().start(PEER, (1, Psn(0))), None);
        assert!(opens(&mut a, &mut b, 1));
        // The same handshake again changes nothing, because a Confirm may arrive twice.
        b.record_handshake(PEER, Association::new(1, 2), false);
        let first = Association::new(1, 2).start(true, 1, 0);
        assert!(b.check(PEER, 1, first).is_none());
        b.forget(PEER);
        assert!(!b.is_verified(PEER) && b.check(PEER, 1, first).is_none());
        // A late Confirm does not bring the handshake back.
        assert!(!b.record_handshake(PEER, Association::new(1, 2), false) && !b.is_verified(PEER));
        b.record_handshake(PEER, Association::new(1, 3), false);
        a.record_handshake(PEER, Association::new(1, 3), true);
        assert!(opens(&mut a, &mut b, 1));
    }

    #[test]
    fn both_ends_may_begin_a_handshake() {
        let (mut a, mut b) = (Admissions::default(), Admissions::default());
        let (one, two) = (Association::new(1, 2), Association::new(3, 4));
        a.record_handshake(PEER, one, true);
        a.record_handshake(PEER, two, false);
        b.record_handshake(PEER, two, true);
        assert!(opens(&mut b, &mut a, 4));
        b.record_handshake(PEER, one, false);
        assert!(opens(&mut a, &mut b, 4) && opens(&mut b, &mut a, 4));
    }

    #[test]
    fn a_start_psn_near_the_last_one_is_not_taken() {
        let association = Association::new(1, 2);
        let near = association.start(true, 9, 0);
        for offset in [0, 1, START_DISTANCE - 1] {
            for last in [near.plus(offset), near.minus(offset)] {
                let mut a = Admissions::default();
                a.record_handshake(PEER, association, true);
                assert_eq!(a.start(PEER, (9, last)), Some(association.start(true, 9, 1)));
            }
        }
    }
}
