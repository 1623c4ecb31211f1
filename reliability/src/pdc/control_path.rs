//! The path of packets without data, which changes when it seems to lose them, and the entropies
//! that all packets of a context carry.

use super::detour::Detour;
use crate::base::Psn;
use crate::types::{ControlOut, ControlPacket, PeerKey};

/// Number of paths besides the first on which the answer to a probe is sent when earlier answers
/// were lost.
const COPIES: u8 = 2;

/// Value that stands for no path; paths have smaller numbers.
const NO_PATH: u16 = u16::MAX;

/// The path of a context's control packets, and whether some wait.
#[derive(Debug)]
pub(crate) struct ControlPath {
    path: u16,
    /// The last path on which an acknowledgement certainly arrived; [`NO_PATH`] if it was abandoned
    /// since for losing one.
    proven: u16,
    /// The set of source-port values (entropies) that all packets of the context use.
    detour: Detour,
    /// The first received packet that was acknowledged only on the current path, never on an
    /// earlier one.
    since: Psn,
    /// Number of consecutive times that the peer asked about packets whose acknowledgement should
    /// have reached it.
    unheard: u8,
    /// The context is in the list of those with control packets to send
    /// ([`crate::shared::ControlQueue`]).
    listed: bool,
}

impl ControlPath {
    /// Starts with control packets on `path`; `start` is the first PSN that the peer will send.
    pub(super) fn new(path: u16, start: Psn) -> Self {
        let detour = Detour::default();
        Self { path, proven: NO_PATH, detour, since: start, unheard: 0, listed: false }
    }

    /// Returns a control packet for `peer`, to be sent on the current path.
    #[inline]
    pub(super) const fn control_out(&self, peer: PeerKey, packet: ControlPacket) -> ControlOut {
        ControlOut { peer, path: self.detour.entropy(self.path), packet }
    }

    /// Returns the set of source-port values (entropies) that the context's packets use.
    #[inline]
    pub(super) const fn detour(&self) -> Detour {
        self.detour
    }

    /// Changes to another set of source-port values (entropies), because the peer answers on none
    /// of the paths.
    pub(super) fn take_detour(&mut self, paths: u16) {
        self.detour.advance(paths);
        self.proven = NO_PATH;
    }

    /// Returns the path on which control packets are sent at present.
    pub(super) const fn path(&self) -> u16 {
        self.path
    }

    /// Sends control packets on `path` from now on, because a probe of the peer arrived over it.
    pub(super) fn set_path(&mut self, path: u16) {
        self.path = path;
    }

    /// Returns whether the context is in the endpoint's list of those with control packets to send.
    #[inline]
    pub(crate) const fn is_listed(&self) -> bool {
        self.listed
    }

    #[inline]
    pub(super) fn set_listed(&mut self, listed: bool) {
        self.listed = listed;
    }

    /// Sends control packets on another path because they seem to be lost. Every other time it is
    /// the path on which they last certainly arrived, because the sign may have been wrong or due
    /// to another loss; otherwise it is the one that `any` draws. `received` is the oldest packet
    /// not received. Returns whether no packet was received since the previous sign.
    pub(super) fn change_path(&mut self, received: Psn, any: impl FnOnce() -> u16) -> bool {
        self.path = match self.proven {
            NO_PATH => any(),
            path if path == self.path => any(),
            path => path,
        };
        core::mem::replace(&mut self.since, received) == received
    }

    /// Handles that the peer asks about its packets from `asked` on. If an acknowledgement should
    /// have reported that one, the path loses packets. Otherwise like [`Self::change_path`].
    pub(super) fn leave_silent_path(
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
        self.change_path(received, any)
    }

    /// Returns the number of further paths for the answer to a probe. Paths may have failed in both
    /// directions, and to try one after the other takes long.
    pub(super) const fn copies(&self) -> u8 {
        if self.unheard > 1 { COPIES } else { 0 }
    }

    /// Records that the peer knows that everything up to `psn` arrived here.
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

    /// Returns how many of twenty changes away from another path than `good` lead to `good`.
    fn returns(control: &mut ControlPath, good: u16, received: Psn, rng: &mut Rng) -> u32 {
        let (mut returns, mut turns) = (0, 0);
        while turns < 20 {
            let other = control.path != good;
            control.change_path(received, || u16::try_from(rng.below(16)).expect("small"));
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
        // An acknowledgement of earlier packets proves nothing about this path.
        control.confirm(start.minus(1));
        assert!(returns(&mut control, 3, start, &mut rng) < 10);
        let good = control.path;
        control.confirm(start);
        assert_eq!(returns(&mut control, good, start, &mut rng), 20);
        // The peer first asks about packets that did not arrive, then about one that this path
        // should have reported.
        assert_eq!(control.path, good);
        control.leave_silent_path(start, start, &mut any);
        assert_eq!(returns(&mut control, good, start, &mut rng), 20);
        control.leave_silent_path(start.minus(1), start, &mut any);
        assert!(returns(&mut control, good, start, &mut rng) < 10);
    }
}
