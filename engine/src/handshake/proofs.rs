//! What two endpoints prove to each other, and what follows for them from an exchange of handshakes.

use crate::base::{Instance, JobKey, Proof, Purpose};
use crate::reliability::Association;
use crate::wire::Handshake;

/// The values of a handshake that both ends see.
pub(super) struct Transcript([u64; 3]);

impl Transcript {
    /// The exchange between two instances that a challenge, or what confirms it, belongs to.
    pub(super) fn new(asker: Instance, answerer: Instance, intro: &Handshake) -> Self {
        let who = u64::from(asker.get()) << 32 | u64::from(answerer.get());
        Self([who, intro.nonce, intro.cookie])
    }

    /// That we know the job's key.
    pub(super) fn prove(&self, key: &JobKey, purpose: Purpose) -> Proof {
        key.prove(purpose, &self.0)
    }

    /// Whether the other end, which sent `intro`, knows the key of our job. Where the job has none, everybody
    /// is believed: what a peer proves to others is nothing to us.
    pub(super) fn is_proven(
        &self,
        key: Option<&JobKey>,
        purpose: Purpose,
        intro: &Handshake,
    ) -> bool {
        key.is_none_or(|key| key.verify(purpose, &self.0, &intro.proof))
    }

    /// What both know from now on: with a key nobody else does, not even who has seen the exchange.
    pub(super) fn association(&self, key: Option<&JobKey>) -> Association {
        let Some(key) = key else {
            let [_, nonce, cookie] = self.0;
            return Association::new(cookie, nonce);
        };
        let whole = u128::from_be_bytes(key.prove(Purpose::Association, &self.0));
        // Both halves.
        Association::new((whole >> 64) as u64, whole as u64)
    }
}
