//! Packets that match no context, and the NACKs that answer them.

use core::net::SocketAddr;
use std::collections::VecDeque;

use crate::peers::Initiator;
use crate::reliability::PeerKey;
use crate::step::Step;
use crate::wire::{self, Nack, Ses};

/// Largest number of negative acknowledgements (NACKs) that wait to be sent. The limit keeps a
/// flood of forged packets from using memory.
const MAX_STRAYS: usize = 64;

/// The negative acknowledgements (NACKs) that answer packets which match no context.
#[derive(Debug, Default)]
pub(crate) struct UnmatchedPackets {
    nacks: VecDeque<(SocketAddr, Nack)>,
}

impl UnmatchedPackets {
    /// Sends the source of a packet the NACK that its context, or the source itself, is unknown
    /// here, if the packet names the port on which the source listens.
    #[cold]
    pub(crate) fn send_nack(
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

    /// Queues the NACK that the context of a packet is unknown here. It goes to `listens`, the address
    /// at which the packet's sender listens.
    #[cold]
    pub(crate) fn refuse_context(
        &mut self,
        step: &mut Step<'_>,
        listens: SocketAddr,
        pds: &wire::Request,
    ) {
        if self.nacks.len() >= MAX_STRAYS || !step.handshakes.may_answer(step.now) {
            step.report.counters.rx_unanswered += 1;
            return;
        }
        if let Some(nack) = step.pdcs.reject(None, pds) {
            self.nacks.push_back((listens, nack));
        }
    }

    /// Returns whether a negative acknowledgement (NACK) waits to be sent.
    #[inline]
    pub(crate) fn has_nacks(&self) -> bool {
        !self.nacks.is_empty()
    }

    /// Returns the next negative acknowledgement (NACK) to send, and its destination.
    #[inline]
    pub(crate) fn pop_nack(&mut self) -> Option<(SocketAddr, Nack)> {
        self.nacks.pop_front()
    }
}
