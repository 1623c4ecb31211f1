//! Inbound two-sided messages that are not finished: arriving, early, unexpected, claimed or being
//! pulled by rendezvous.

use crate::api::{Notify, OpError, PeerId};
use crate::matching::Envelope;
use crate::memory::Buf;
use crate::reliability::PdcId;

/// Where the bytes of a message go.
#[derive(Debug)]
pub(crate) enum Place {
    /// Nowhere yet: only its header is known, and no byte came with it.
    None,
    /// No receive has matched yet: the engine keeps them.
    Stash(Vec<u8>),
    /// A receive has matched.
    User(Target),
    /// The user discarded the message.
    Discard,
}

/// The receive that a message matched.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) buf: Buf,
    /// Where in `buf` the message begins.
    pub(crate) at: u64,
    /// Bytes that fit.
    pub(crate) room: u64,
    pub(crate) context: u64,
    pub(crate) notify: Notify,
    /// The multi-receive buffer it is in.
    pub(crate) multi: Option<u32>,
}

/// What the sender's rendezvous header says about fetching the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    pub(crate) key: u64,
    pub(crate) offset: u64,
    pub(crate) resource: u16,
}

/// Progress of pulling a rendezvous message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pull {
    /// Everything comes by itself.
    No,
    /// The sender waits for a read.
    Offered(Offer),
    /// The bytes the receive has room for are being read.
    Reading(Offer),
    /// Done.
    Done,
}

/// An inbound message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) pdc: PdcId,
    pub(crate) peer: PeerId,
    pub(crate) id: u16,
    pub(crate) envelope: Envelope,
    pub(crate) data: Option<u64>,
    /// Length of the whole message.
    pub(crate) total: u64,
    /// Bytes that come in the sender's own packets (all, or the eager part of a rendezvous).
    pub(crate) eager: u64,
    pub(crate) received: u64,
    /// The first packet has come, so that the envelope is complete.
    pub(crate) started: bool,
    pub(crate) place: Place,
    pub(crate) pull: Pull,
    /// The sender waits for word, in this slot, that a receive has taken it (DC).
    pub(crate) confirm: Option<u16>,
    /// Bytes charged against the unexpected budget.
    pub(crate) charged: u64,
    /// The context that claimed it.
    pub(crate) claimed: Option<u64>,
    /// Its sender is gone; whoever matches it gets this error.
    pub(crate) broken: Option<OpError>,
    alive: bool,
}

impl Message {
    pub(crate) fn new(pdc: PdcId, peer: PeerId, id: u16, envelope: Envelope, total: u64) -> Self {
        Self {
            pdc,
            peer,
            id,
            envelope,
            data: None,
            total,
            eager: total,
            received: 0,
            started: false,
            place: Place::None,
            pull: Pull::No,
            confirm: None,
            charged: 0,
            claimed: None,
            broken: None,
            alive: true,
        }
    }

    /// All packets of its own have come.
    pub(crate) const fn arrived(&self) -> bool {
        self.started && self.received == self.eager
    }
}

/// All unfinished inbound messages of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    slots: Vec<Message>,
    free: Vec<u32>,
}

impl Messages {
    pub(crate) fn add(&mut self, message: Message) -> u32 {
        if let Some(ix) = self.free.pop() {
            self.slots[ix as usize] = message;
            ix
        } else {
            self.slots.push(message);
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 messages")
        }
    }

    pub(crate) fn get(&self, ix: u32) -> Option<&Message> {
        self.slots.get(ix as usize).filter(|m| m.alive)
    }

    pub(crate) fn get_mut(&mut self, ix: u32) -> Option<&mut Message> {
        self.slots.get_mut(ix as usize).filter(|m| m.alive)
    }

    pub(crate) fn remove(&mut self, ix: u32) {
        if let Some(m) = self.get_mut(ix) {
            m.alive = false;
            m.place = Place::None;
            self.free.push(ix);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots.iter().zip(0u32..).filter(|(m, _)| m.alive).map(|(_, ix)| ix)
    }
}
