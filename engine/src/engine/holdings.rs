//! Counts of the entries that the engine keeps for operations, messages and channels that have not
//! ended.

use core::fmt::Write as _;

use super::Engine;
use crate::holdings::Holdings;
use crate::reliability::PeerKey;

impl Engine {
    /// Returns the number of entries in every table of the engine. The call walks all tables, so do not use it on the
    /// data path.
    #[must_use]
    pub fn holdings(&self) -> Holdings {
        let mut holdings = Holdings {
            completions: self.report.completions(),
            partial_writes: self.target.partial_writes(),
            foreign_ids: self.message_ids.len() + self.write_ids.len(),
            access_groups: self.report.open_access_groups(),
            ..Holdings::default()
        };
        self.outbound.count_holdings(&mut holdings);
        self.inbox.count_holdings(&mut holdings);
        for channel in self.contexts.iter() {
            holdings.channels += 1;
            holdings.slots += channel.slots.used();
            holdings.queued += channel.open_operations();
        }
        holdings
    }

    /// Returns the handshakes under way, and what earlier ones have left of each peer, as text. Two endpoints that
    /// differ in nothing else react alike to all packets of handshakes. The call is for tests that search all states.
    #[must_use]
    pub fn handshake_state(&mut self) -> String {
        let mut text = self.handshakes.describe_pending();
        for peer in self.peers.ids() {
            let mut secrets = |asked| {
                let association = self.pdcs.admissions().association(PeerKey(peer.0), asked);
                association.map(|association| association.proof(0))
            };
            let known = [secrets(true), secrets(false)];
            // Writing to a String cannot fail.
            let _ = write!(text, "{:?} {known:?}", self.peers.get(peer));
        }
        text
    }
}
