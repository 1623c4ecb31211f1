//! Who may open contexts to whom: what two endpoints agreed on when they introduced themselves, and the
//! start PSNs that follow from it.
//!
//! Both ends know an [`Association`], which nobody has seen who is not on the path between them. The start
//! PSN of a context is a keyed function of it, of the context's number and of a turn that counts the contexts
//! opened one after the other. So a packet that opens a context proves that its sender was introduced, and
//! one that was seen before opens nothing a second time.

use std::collections::BTreeMap;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::base::Psn;
use crate::types::{Association, PeerKey};

/// Turns that may be skipped: contexts that were opened, and given up before any packet of them arrived.
const LOOKAHEAD: u32 = 4;

/// A start PSN keeps at least this distance from the last PSN used under the same number (UE 1.0
/// section 3.5.8.2).
pub(super) const START_DISTANCE: u32 = 1 << 16;

impl Association {
    /// The start PSN of context `number`, opened in `turn` by the end that asked to be introduced, or by
    /// the other one.
    fn start(self, by_asker: bool, number: u16, turn: u32) -> Psn {
        let [low, high] = self.0;
        let mut hasher = SipHasher24::new_with_keys(low, high);
        hasher.write_u64(u64::from(turn) << 32 | u64::from(number) << 16 | u64::from(by_asker));
        // Either half of a keyed hash is as good as the other.
        Psn((hasher.finish() >> 32) as u32)
    }

    /// 128 bits that nobody else can name who does not know the association, others for each `purpose`. They say
    /// nothing of start PSNs: those hash eight bytes, these sixteen.
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

/// One handshake with a peer.
#[derive(Clone, Copy, Debug)]
struct Handshake {
    association: Association,
    /// This end's next turn.
    turn: u32,
    /// The peer's next turn, as far as seen.
    expected: u32,
}

/// The handshakes with one peer.
#[derive(Clone, Copy, Debug, Default)]
struct PeerHandshakes {
    /// The exchange that this end asked for, and the one the peer asked for.
    known: [Option<Handshake>; 2],
    /// The last one that the peer asked for and that was forgotten: it does not come back, or contexts could
    /// be opened a second time with it.
    over: Option<Association>,
    /// The peer is outside the job.
    outside: bool,
}

/// Leave to open one context: which exchange, and whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admission {
    exchange: usize,
    turn: u32,
}

/// The exchanges with all peers.
#[derive(Debug, Default)]
pub struct Admissions {
    peers: BTreeMap<PeerKey, PeerHandshakes>,
}

impl Admissions {
    /// `peer` has proven that it receives at its address, and so have we; `asked` when we asked for the
    /// exchange. From now on it may open contexts, and so may we. `false` when the exchange is one that was
    /// forgotten.
    pub fn learn(&mut self, peer: PeerKey, association: Association, asked: bool) -> bool {
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

    /// Whether the peer and we were introduced.
    #[must_use]
    pub fn knows(&self, peer: PeerKey) -> bool {
        self.peers.get(&peer).is_some_and(|exchanges| exchanges.known.iter().any(Option::is_some))
    }

    /// What follows from the last exchange that we asked for, or the peer.
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

    /// Returns whether a peer is outside the job.
    pub(super) fn is_outside(&self, peer: PeerKey) -> bool {
        self.peers.get(&peer).is_some_and(|exchanges| exchanges.outside)
    }

    /// The peer is a stranger again.
    pub fn forget(&mut self, peer: PeerKey) {
        if let Some(exchanges) = self.peers.get_mut(&peer) {
            let theirs = exchanges.known[1].map(|exchange| exchange.association);
            *exchanges =
                PeerHandshakes { known: [None; 2], over: theirs.or(exchanges.over), ..*exchanges };
        }
    }

    /// Nothing is remembered of the peer, not even which exchange was its last.
    pub(super) fn erase(&mut self, peer: PeerKey) {
        self.peers.remove(&peer);
    }

    /// Whether our context `number` may begin at `start`, which it was given before.
    pub(super) fn allows(&self, peer: PeerKey, number: u16, start: Psn) -> bool {
        let Some(exchanges) = self.peers.get(&peer) else { return false };
        [true, false].into_iter().zip(&exchanges.known).any(|(by_asker, exchange)| {
            exchange.is_some_and(|Handshake { association, turn, .. }| {
                let mut lately = turn.saturating_sub(LOOKAHEAD)..turn;
                lately.any(|turn| association.start(by_asker, number, turn) == start)
            })
        })
    }

    /// The start PSN of our next context to a peer, under `number`, whose last PSN was `last`; `None` for a
    /// stranger.
    pub(super) fn start(&mut self, peer: PeerKey, (number, last): (u16, Psn)) -> Option<Psn> {
        let exchanges = &mut self.peers.get_mut(&peer)?.known;
        let by_asker = exchanges[0].is_some();
        let exchange = exchanges.iter_mut().flatten().next()?;
        loop {
            let start = exchange.association.start(by_asker, number, exchange.turn);
            // 2^32 contexts are not opened within one exchange.
            exchange.turn = exchange.turn.wrapping_add(1);
            if start.distance(last).unsigned_abs() >= START_DISTANCE {
                return Some(start);
            }
        }
    }

    /// Whether the peer may open the context with its `number` at `start`.
    pub(super) fn check(&self, peer: PeerKey, number: u16, start: Psn) -> Option<Admission> {
        let exchanges = self.peers.get(&peer)?;
        // The peer was the asker in the second one.
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

    /// The context that was admitted has been opened: its turn, and those before it, are over.
    pub(super) fn spend(&mut self, peer: PeerKey, admission: Admission) {
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

    /// Two ends that were introduced, because the first one asked.
    fn introduced() -> [Admissions; 2] {
        let mut ends = [Admissions::default(), Admissions::default()];
        let association = Association::new(1, 2);
        ends[0].learn(PEER, association, true);
        ends[1].learn(PEER, association, false);
        ends
    }

    fn opens(from: &mut Admissions, to: &mut Admissions, number: u16) -> bool {
        let start = from.start(PEER, (number, Psn(0))).expect("introduced");
        let admission = to.check(PEER, number, start);
        admission.inspect(|admission| to.spend(PEER, *admission)).is_some()
    }

    #[test]
    fn both_ends_may_open_contexts_in_turn() {
        let [mut a, mut b] = introduced();
        for number in [1, 1, 2, 900, 1] {
            assert!(opens(&mut a, &mut b, number));
            assert!(opens(&mut b, &mut a, number));
        }
    }

    #[test]
    fn a_start_opens_one_context_and_no_earlier_one_afterwards() {
        let [mut a, mut b] = introduced();
        let starts: Vec<Psn> = (0..3).map(|_| a.start(PEER, (5, Psn(0))).expect("known")).collect();
        let second = b.check(PEER, 5, starts[1]).expect("a turn may be skipped");
        b.spend(PEER, second);
        assert!(b.check(PEER, 5, starts[0]).is_none() && b.check(PEER, 5, starts[1]).is_none());
        assert!(b.check(PEER, 5, starts[2]).is_some());
        assert!(b.check(PEER, 6, starts[2]).is_none(), "another number");
        assert!(b.check(PeerKey(8), 5, starts[2]).is_none(), "another peer");
        assert!(b.check(PEER, 5, starts[2].plus(1)).is_none());
        // Our own direction is not the peer's.
        assert!(a.check(PEER, 5, starts[2]).is_none());
    }

    #[test]
    fn strangers_open_nothing_and_a_new_exchange_begins_anew() {
        let [mut a, mut b] = introduced();
        assert_eq!(Admissions::default().start(PEER, (1, Psn(0))), None);
        assert!(opens(&mut a, &mut b, 1));
        // The same again changes nothing: a Confirm may come twice.
        b.learn(PEER, Association::new(1, 2), false);
        let first = Association::new(1, 2).start(true, 1, 0);
        assert!(b.check(PEER, 1, first).is_none());
        b.forget(PEER);
        assert!(!b.knows(PEER) && b.check(PEER, 1, first).is_none());
        // A Confirm that comes late does not bring it back.
        assert!(!b.learn(PEER, Association::new(1, 2), false) && !b.knows(PEER));
        b.learn(PEER, Association::new(1, 3), false);
        a.learn(PEER, Association::new(1, 3), true);
        assert!(opens(&mut a, &mut b, 1));
    }

    #[test]
    fn both_may_have_asked() {
        let (mut a, mut b) = (Admissions::default(), Admissions::default());
        let (one, two) = (Association::new(1, 2), Association::new(3, 4));
        a.learn(PEER, one, true);
        a.learn(PEER, two, false);
        b.learn(PEER, two, true);
        assert!(opens(&mut b, &mut a, 4));
        b.learn(PEER, one, false);
        assert!(opens(&mut a, &mut b, 4) && opens(&mut b, &mut a, 4));
    }

    #[test]
    fn a_start_psn_near_the_last_one_is_not_taken() {
        let association = Association::new(1, 2);
        let near = association.start(true, 9, 0);
        for offset in [0, 1, START_DISTANCE - 1] {
            for last in [near.plus(offset), near.minus(offset)] {
                let mut a = Admissions::default();
                a.learn(PEER, association, true);
                assert_eq!(a.start(PEER, (9, last)), Some(association.start(true, 9, 1)));
            }
        }
    }
}
