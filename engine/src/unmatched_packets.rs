//! Packets for contexts that are not here, and what their senders are told.

use core::net::SocketAddr;
use std::collections::VecDeque;

use crate::peers::Initiator;
use crate::reliability::PeerKey;
use crate::step::Step;
use crate::wire::{self, Nack, Ses};

/// Bounded, so that a flood of forged packets costs no memory.
const MAX_STRAYS: usize = 64;

/// The NACKs that answer packets which match no context.
#[derive(Debug, Default)]
pub(crate) struct UnmatchedPackets {
    nacks: VecDeque<(SocketAddr, Nack)>,
}

impl UnmatchedPackets {
    /// Tells the sender of a packet that we do not know its context, or it, if it said where it listens.
    #[cold]
    pub(crate) fn reject(
        &mut self,
        step: &mut Step<'_>,
        src: SocketAddr,
        (pds, ses): (&wire::Request, &Ses),
    ) {
        let Ses::Std(request) = ses else { return };
        let port = Initiator::from_field(request.initiator).port;
        if port == 0 || request.job_id != step.config.job_id {
            return;
        }
        if self.nacks.len() >= MAX_STRAYS || !step.handshakes.may_answer(step.now) {
            step.report.counters.rx_unanswered += 1;
            return;
        }
        let listens = SocketAddr::new(src.ip(), port);
        let key = step.peers.find(listens).map(|peer| PeerKey(peer.0));
        if let Some(nack) = step.pdcs.reject(key, pds) {
            self.nacks.push_back((listens, nack));
        }
    }

    /// The next NACK, and to whom.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<(SocketAddr, Nack)> {
        self.nacks.pop_front()
    }
}
