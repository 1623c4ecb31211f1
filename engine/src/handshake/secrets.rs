//! Secrets that handshakes yield, for drivers that encrypt packets with them.

use core::net::SocketAddr;

use super::Handshakes;
use super::proofs::Transcript;
use crate::base::{Instance, PairSecret};
use crate::config::Config;

/// A secret that this endpoint and a peer have derived in a handshake.
#[derive(Clone, Debug)]
pub struct SharedSecret {
    /// Address of the peer that shares the secret.
    pub peer: SocketAddr,
    /// Instance number of the peer that shares the secret.
    pub instance: Instance,
    /// Secret from the handshake that only holders of the job's key can derive.
    pub secret: PairSecret,
    /// This endpoint began the handshake. The peer has the secret only after
    /// [`SecretEvent::Confirmed`].
    pub asked: bool,
}

/// A change of the secrets that this endpoint shares with its peers.
#[derive(Clone, Debug)]
pub enum SecretEvent {
    /// A handshake has yielded a new secret.
    Shared(SharedSecret),
    /// The peer at this address has the last secret that was shared with it.
    Confirmed(SocketAddr),
    /// The peer at this address was forgotten, or another instance has taken its place.
    Ended(SocketAddr),
}

impl Handshakes {
    /// Derives the secret of a handshake with a peer. Does nothing if the driver does not encrypt.
    pub(super) fn share_secret(
        &mut self,
        config: &Config,
        (peer, instance): (SocketAddr, Instance),
        exchange: &Transcript,
        asked: bool,
    ) {
        if let (true, Some(key)) = (config.encrypts, &config.key) {
            let secret = exchange.secret(key);
            self.secrets.push_back(SecretEvent::Shared(SharedSecret {
                peer,
                instance,
                secret,
                asked,
            }));
        }
    }

    /// Notifies the driver that a peer has welcomed this endpoint, and so has the secret.
    pub(super) fn confirm_secret(&mut self, config: &Config, peer: SocketAddr) {
        if config.encrypts {
            self.secrets.push_back(SecretEvent::Confirmed(peer));
        }
    }

    /// Notifies the driver that the secrets of a peer are of no more use.
    pub(crate) fn end_secrets(&mut self, config: &Config, peer: SocketAddr) {
        if config.encrypts {
            self.secrets.push_back(SecretEvent::Ended(peer));
        }
    }

    /// Returns the next change of shared secrets and removes it from the queue.
    #[inline]
    pub(crate) fn pop_secret(&mut self) -> Option<SecretEvent> {
        self.secrets.pop_front()
    }
}
