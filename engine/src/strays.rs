//! Packets for contexts that are not here, and what their senders are told.

use core::net::SocketAddr;
use std::collections::VecDeque;

use crate::config::Config;
use crate::ops::Part;
use crate::peers::{Initiator, Peers};
use crate::reliability::{Pdcs, PeerKey};
use crate::wire::{self, Nack, Ses};

/// Bounded, so that a flood of forged packets costs no memory.
const MAX_STRAYS: usize = 64;

/// NACKs to send.
#[derive(Debug, Default)]
pub(crate) struct Strays {
    nacks: VecDeque<(SocketAddr, Nack)>,
}

impl Strays {
    /// Answers a packet for a context that is not here, if its sender said where it listens.
    pub(crate) fn reject(
        &mut self,
        config: &Config,
        peers: &Peers,
        pdcs: &mut Pdcs<Part>,
        src: SocketAddr,
        (pds, ses): (&wire::Request, &Ses),
    ) {
        let Ses::Std(request) = ses else { return };
        let port = Initiator::from_field(request.initiator).port;
        let listens = SocketAddr::new(src.ip(), port);
        let key = peers.find(listens).map(|peer| PeerKey(peer.0));
        let Some(nack) = pdcs.reject(key, pds) else { return };
        if port != 0 && request.job_id == config.job_id && self.nacks.len() < MAX_STRAYS {
            self.nacks.push_back((listens, nack));
        }
    }

    /// The next NACK, and to whom.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<(SocketAddr, Nack)> {
        self.nacks.pop_front()
    }
}
