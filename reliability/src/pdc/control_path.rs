//! The path of packets without data: another one once there is a sign that it loses them; and which entropies all packets
//! carry.

use super::detour::Detour;
use crate::base::Psn;
use crate::types::{ControlOut, ControlPacket, PeerKey};

/// Copies of an acknowledgement, besides itself, that the peer seems not to have heard.
const COPIES: u8 = 2;

/// Not a path: there are at most so many.
const NO_PATH: u16 = u16::MAX;

/// Where a context's control packets go, and whether some wait.
#[derive(Debug)]
pub(crate) struct ControlPath {
    path: u16,
    /// The path on which an acknowledgement last came through for certain, if it was not left since for
    /// losing one; else [`NO_PATH`].
    proven: u16,
    /// What all its packets do.
    detour: Detour,
    /// The first packet that can only have been acknowledged on `path`.
    since: Psn,
    /// How often in a row the peer asked for what it could know.
    unheard: u8,
    /// Some wait: the context is in [`crate::shared::ControlQueue`].
    listed: bool,
}

impl ControlPath {
    /// `path`, with packets received from `start` on.
    pub(super) fn new(path: u16, start: Psn) -> Self {
        let detour = Detour::default();
        Self { path, proven: NO_PATH, detour, since: start, unheard: 0, listed: false }
    }

    /// A packet without data, on its way to `peer`.
    #[inline]
    pub(super) const fn out(&self, peer: PeerKey, packet: ControlPacket) -> ControlOut {
        ControlOut { peer, path: self.detour.entropy(self.path), packet }
    }

    /// Which entropies packets carry.
    #[inline]
    pub(super) const fn detour(&self) -> Detour {
        self.detour
    }

    /// The peer answers on no path: all are others from here on.
    pub(super) fn turn_off(&mut self, paths: u16) {
        self.detour.turn(paths);
        self.proven = NO_PATH;
    }

    /// Where they go.
    pub(super) const fn path(&self) -> u16 {
        self.path
    }

    /// `path` brought a question through.
    pub(super) fn settle(&mut self, path: u16) {
        self.path = path;
    }

    /// Whether the endpoint knows that some wait.
    #[inline]
    pub(crate) const fn is_listed(&self) -> bool {
        self.listed
    }

    #[inline]
    pub(super) fn set_listed(&mut self, listed: bool) {
        self.listed = listed;
    }

    /// Control packets seem to get lost: send them another way. Every other time that is the path on
    /// which they came through last, for the sign may have been a false one, or another loss's; else what
    /// `any` draws. `received` is the oldest packet not received.
    pub(super) fn turn(&mut self, received: Psn, any: impl FnOnce() -> u16) {
        self.path = match self.proven {
            NO_PATH => any(),
            path if path == self.path => any(),
            path => path,
        };
        self.since = received;
    }

    /// The peer asks what became of its packets from `asked` on. If it was told of that one, the path loses what is sent on
    /// it. Whether nothing was received between this and the sign before.
    pub(super) fn turn_away(
        &mut self,
        asked: Psn,
        received: Psn,
        any: impl FnOnce() -> u16,
    ) -> bool {
        if asked.is_before(received) {
            self.unheard = self.unheard.saturating_add(1);
            if self.proven == self.path {
                self.proven = NO_PATH;
            }
        }
        let again = received == self.since;
        self.turn(received, any);
        again
    }

    /// On how many further paths an answer to a question should go: paths may have died in both directions, and to
    /// try one after the other takes long.
    pub(super) const fn copies(&self) -> u8 {
        if self.unheard > 1 { COPIES } else { 0 }
    }

    /// The peer knows that everything up to `psn` arrived.
    #[inline]
    pub(super) fn confirm(&mut self, psn: Psn) {
        if !psn.is_before(self.since) {
            self.proven = self.path;
            self.unheard = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Rng;

    /// Of twenty times that another path than `good` is left, how often that is for `good`.
    fn returns(control: &mut ControlPath, good: u16, received: Psn, rng: &mut Rng) -> u32 {
        let (mut returns, mut turns) = (0, 0);
        while turns < 20 {
            let other = control.path != good;
            control.turn(received, || u16::try_from(rng.below(16)).expect("small"));
            turns += u32::from(other);
            returns += u32::from(other && control.path == good);
        }
        returns
    }

    #[test]
    fn a_proven_path_of_acknowledgements_is_returned_to_until_it_loses_one() {
        let (mut rng, start) = (Rng::new(1), Psn(500));
        let mut any = rng.clone();
        let mut any = || u16::try_from(any.below(16)).expect("small");
        let mut control = ControlPath::new(3, start);
        // That the peer knows what was acknowledged before says nothing about this path.
        control.confirm(start.minus(1));
        assert!(returns(&mut control, 3, start, &mut rng) < 10);
        let good = control.path;
        control.confirm(start);
        assert_eq!(returns(&mut control, good, start, &mut rng), 20);
        // The peer asks, but for what did not arrive; then for what this path should have told.
        assert_eq!(control.path, good);
        control.turn_away(start, start, &mut any);
        assert_eq!(returns(&mut control, good, start, &mut rng), 20);
        control.turn_away(start.minus(1), start, &mut any);
        assert!(returns(&mut control, good, start, &mut rng) < 10);
    }
}
