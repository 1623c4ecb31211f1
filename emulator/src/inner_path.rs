//! The inner path of hosts, by which the ranks of one host exchange messages: copies through memory, which
//! pass neither a card nor a switch.

use std::collections::BTreeMap;

use squall_base::Rate;
use squall_netsim::Picos;

/// Rate and latency of messages between ranks of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerPath {
    /// Rate at which a rank copies its messages, whichever rank of the host receives them.
    pub rate: Rate,
    /// Time from the last copied byte until the receiver sees the packet.
    pub latency: Picos,
}

/// The inner paths of all hosts. A sender copies one packet after the other;
/// senders do not slow one another down.
pub(super) struct InnerPaths {
    path: InnerPath,
    /// Time at which each sender has copied its packets.
    free_at: BTreeMap<u32, Picos>,
}

impl InnerPaths {
    pub(super) const fn new(path: InnerPath) -> Self {
        Self { path, free_at: BTreeMap::new() }
    }

    pub(super) const fn path(&self) -> InnerPath {
        self.path
    }

    /// Hands a packet of a sender with a payload of `bytes` to the inner path of its host at `at`. Returns the time at which it
    /// arrives.
    pub(super) fn push(&mut self, at: Picos, sender: u32, bytes: usize) -> Picos {
        let free_at = self.free_at.entry(sender).or_default();
        *free_at = at.max(*free_at) + Picos::transmit(self.path.rate, bytes as u64);
        *free_at + self.path.latency
    }
}
