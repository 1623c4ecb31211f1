//! What the engine keeps beside the packet delivery contexts, and of links: which one leads to whom, and which
//! operations wait on it. Of a link the same is kept as of a context that both ends opened.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use crate::api::PeerId;
use crate::base::Time;
use crate::channel::{ChannelId, LinkId};
use crate::ops::Part;
use crate::reliability::{PdcId, Pdcs};
use crate::slab::Key;

/// The operations that wait for response data, by the slot that the peer names in it.
#[derive(Debug, Default)]
pub(crate) struct ResponseSlots {
    ops: Vec<Option<Key>>,
    free: Vec<u16>,
}

impl ResponseSlots {
    /// Whether [`ResponseSlots::take`] has one to give.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.ops.len() <= usize::from(u16::MAX)
    }

    /// A slot that no other operation waits in.
    ///
    /// # Panics
    /// When all are taken ([`ResponseSlots::has_room`]).
    pub(crate) fn take(&mut self, op: Key) -> u16 {
        if let Some(slot) = self.free.pop() {
            self.ops[usize::from(slot)] = Some(op);
            return slot;
        }
        let slot = u16::try_from(self.ops.len()).expect("there is room");
        self.ops.push(Some(op));
        slot
    }

    /// Who waits in a slot.
    #[inline]
    pub(crate) fn get(&self, slot: u16) -> Option<Key> {
        self.ops.get(usize::from(slot)).copied().flatten()
    }

    /// Gives a slot back, if it is this operation's. Whether it was.
    fn release(&mut self, slot: u16, op: Key) -> bool {
        match self.ops.get_mut(usize::from(slot)) {
            Some(entry) if *entry == Some(op) => {
                *entry = None;
                self.free.push(slot);
                true
            }
            _ => false,
        }
    }

    fn is_empty(&self) -> bool {
        self.free.len() == self.ops.len()
    }

    /// Returns the number of slots in use.
    pub(crate) const fn taken(&self) -> usize {
        self.ops.len() - self.free.len()
    }
}

/// What the engine keeps beside a packet delivery context, or of a link.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) id: ChannelId,
    pub(crate) peer: PeerId,
    /// The peer's address.
    pub(crate) dst: SocketAddr,
    /// Longest packet that goes there in one piece, as [`crate::Config::max_packet`] counts.
    pub(crate) max_packet: u32,
    pub(crate) initiator: bool,
    /// Operations with packets still to build, in order.
    pub(crate) queue: VecDeque<Key>,
    /// Operations that may not begin yet, and that operations in the queue may overtake. They are older than those in
    /// the queue, except for one at the head that has sent some of its packets. Only shared-memory channels have any.
    set_aside: VecDeque<Key>,
    /// At least one operation was set aside only because no slot was free.
    starved: bool,
    /// Something sent since the queue was last empty waits for its acknowledgement.
    pub(crate) prompt: bool,
    /// In the list of contexts that may have something to send.
    active: bool,
    next_ids: [u16; 2],
    pub(crate) slots: ResponseSlots,
    /// Rendezvous sends whose header went out and that were not read to their end.
    pub(crate) offers: u32,
    hold: CloseBlocker,
}

/// A reason why a context must not close now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct CloseBlocker {
    /// The operation at the head of the queue has sent some of its packets: it cannot move.
    half_way: bool,
    /// Fragments of packets that were too long for their path have no PSN yet.
    fragments_wait: bool,
    /// What the transport was told.
    held: bool,
}

/// Which ids an operation counts with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdSpace {
    /// Two-sided messages, matched in this order.
    Message,
    /// One-sided operations and answers.
    OneSided,
}

impl Context {
    /// What [`Self::next_id`] will say.
    #[inline]
    pub(crate) const fn peek_id(&self, space: IdSpace) -> u16 {
        self.next_ids[space as usize]
    }

    /// The next id of a space.
    #[inline]
    pub(crate) fn next_id(&mut self, space: IdSpace) -> u16 {
        let next = &mut self.next_ids[space as usize];
        let id = *next;
        *next = next.wrapping_add(1);
        id
    }

    /// Whether the operation at the head of the queue is half-way now.
    #[inline]
    pub(crate) const fn set_half_way(&mut self, half_way: bool) {
        self.hold.half_way = half_way;
    }

    /// Records whether fragments wait for PSNs.
    pub(crate) const fn set_fragments_wait(&mut self, wait: bool) {
        self.hold.fragments_wait = wait;
    }

    /// Returns whether no operation waits to begin.
    #[inline]
    pub(crate) fn is_clear(&self) -> bool {
        self.queue.is_empty() && self.set_aside.is_empty()
    }

    /// Sets the first operation of the queue aside, so that the operations behind it may overtake it. `for_slot` says
    /// that it waits for a slot and for nothing else.
    pub(crate) fn set_first_aside(&mut self, for_slot: bool) {
        self.starved |= for_slot;
        self.set_aside.extend(self.queue.pop_front());
    }

    /// Returns the number of operations that are queued or set aside, plus the rendezvous that the peer has not read to
    /// their end.
    pub(crate) fn open_operations(&self) -> usize {
        self.queue.len() + self.set_aside.len() + self.offers as usize
    }

    /// Returns whether an operation that was set aside waits for a slot, and none is free.
    pub(crate) fn waits_for_slot(&self) -> bool {
        self.starved && !self.slots.has_room()
    }

    /// Returns whether an operation was set aside for want of a slot, and a slot is free now.
    pub(crate) fn has_slot_for_set_aside(&self) -> bool {
        self.starved && self.slots.has_room()
    }

    /// Returns whether any operation was set aside.
    #[inline]
    pub(crate) fn has_set_aside(&self) -> bool {
        !self.set_aside.is_empty()
    }

    /// Puts the operations that were set aside back in front of the operations that could overtake them.
    #[cold]
    pub(crate) fn restore(&mut self) {
        let at = usize::from(self.hold.half_way).min(self.queue.len());
        self.starved = false;
        let mut behind = self.queue.split_off(at);
        self.queue.append(&mut self.set_aside);
        self.queue.append(&mut behind);
    }

    /// Keeps the transport from closing the context while the peer still owes something on it (data of a
    /// read, a confirmation, the reads of a rendezvous: if it closed meanwhile, a restart of the peer would
    /// go unnoticed), an operation is half-way or fragments wait; lets it otherwise.
    #[inline]
    pub(crate) fn update_hold(&mut self, now: Time, pdcs: &mut Pdcs<Part>) {
        let begun = self.hold.half_way || self.hold.fragments_wait;
        let hold = begun || self.offers > 0 || !self.slots.is_empty();
        if hold != self.hold.held
            && let ChannelId::Context(id) = self.id
        {
            self.hold.held = hold;
            pdcs.set_busy(now, id, hold);
        }
    }

    /// The peer owes one answer less; `slot` is where a read or a confirmation waited.
    pub(crate) fn answered(&mut self, slot: Option<u16>, op: Key) {
        match slot {
            None => self.offers = self.offers.saturating_sub(1),
            Some(slot) => {
                self.slots.release(slot, op);
            }
        }
    }
}

/// The channels that lead to a peer and from it.
#[derive(Clone, Copy, Debug, Default)]
struct PeerRoute {
    /// The link between us.
    link: Option<LinkId>,
    /// The context we opened to it.
    ours: Option<PdcId>,
    /// The context it opened to us.
    theirs: Option<PdcId>,
    /// A NO_OP that asks for a sign of life is on its way.
    asked: bool,
}

/// All contexts of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    /// By [`ChannelId::index`].
    table: Vec<Option<Box<Context>>>,
    /// Contexts that may have something to send, in turn.
    active: VecDeque<PdcId>,
    /// Links that may have something to send, in turn.
    active_links: VecDeque<LinkId>,
    /// By peer.
    routes: Vec<PeerRoute>,
}

impl Contexts {
    #[inline]
    pub(crate) fn get(&self, id: ChannelId) -> Option<&Context> {
        self.table.get(id.index())?.as_deref().filter(|c| c.id == id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: ChannelId) -> Option<&mut Context> {
        self.table.get_mut(id.index())?.as_deref_mut().filter(|c| c.id == id)
    }

    fn route(&mut self, peer: PeerId) -> &mut PeerRoute {
        let at = peer.0 as usize;
        if self.routes.len() <= at {
            self.routes.resize(at + 1, PeerRoute::default());
        }
        &mut self.routes[at]
    }

    /// What the next operation to a peer travels on: the link, if there is one, or else the context we opened.
    #[inline]
    pub(crate) fn to(&self, peer: PeerId) -> Option<ChannelId> {
        let route = self.routes.get(peer.0 as usize)?;
        route.link.map(ChannelId::Link).or(route.ours.map(ChannelId::Context))
    }

    /// The link to a peer.
    pub(crate) fn link_to(&self, peer: PeerId) -> Option<LinkId> {
        self.routes.get(peer.0 as usize)?.link
    }

    /// The context that we opened to a peer, and that operations may use.
    pub(crate) fn opened_to(&self, peer: PeerId) -> Option<PdcId> {
        self.routes.get(peer.0 as usize)?.ours
    }

    /// We opened a context to a peer, or it opened one to us, in which case the one it opened before; or there is a
    /// link.
    pub(crate) fn add(
        &mut self,
        id: ChannelId,
        peer: PeerId,
        (dst, max_packet): (SocketAddr, u32),
        initiator: bool,
    ) -> Option<PdcId> {
        if self.table.len() <= id.index() {
            self.table.resize_with(id.index() + 1, || None);
        }
        self.table[id.index()] = Some(Box::new(Context {
            id,
            peer,
            dst,
            max_packet,
            initiator,
            queue: VecDeque::new(),
            set_aside: VecDeque::new(),
            starved: false,
            prompt: false,
            active: false,
            next_ids: [0; 2],
            slots: ResponseSlots::default(),
            offers: 0,
            hold: CloseBlocker::default(),
        }));
        let route = self.route(peer);
        match id {
            ChannelId::Link(id) => {
                route.link = Some(id);
                None
            }
            ChannelId::Context(id) if initiator => {
                route.ours = Some(id);
                None
            }
            ChannelId::Context(id) => route.theirs.replace(id),
        }
    }

    /// Takes a context out.
    pub(crate) fn remove(&mut self, id: ChannelId) -> Option<Box<Context>> {
        self.get(id)?;
        let mut context = self.table[id.index()].take()?;
        context.restore();
        let route = self.route(context.peer);
        match id {
            ChannelId::Link(id) => {
                route.link.take_if(|link| *link == id);
            }
            ChannelId::Context(id) => {
                route.ours.take_if(|ours| *ours == id);
                route.theirs.take_if(|theirs| *theirs == id);
            }
        }
        Some(context)
    }

    /// New operations to the peer go on another context; this one is not ours to use any more. Its queue.
    pub(crate) fn retire(&mut self, id: PdcId) -> Option<(PeerId, VecDeque<Key>)> {
        let context = self.get_mut(id.into()).filter(|context| context.initiator)?;
        let queue = core::mem::take(&mut context.queue);
        let peer = context.peer;
        self.route(peer).ours.take_if(|ours| *ours == id);
        Some((peer, queue))
    }

    /// Puts an operation behind those already queued on a context.
    #[inline]
    pub(crate) fn enqueue(&mut self, id: ChannelId, op: Key) {
        if let Some(context) = self.get_mut(id) {
            context.queue.push_back(op);
            if !context.active {
                context.active = true;
                self.line_up(id);
            }
        }
    }

    /// Puts operations that were begun before those on a link that is held in front of them; else behind those
    /// already queued.
    pub(crate) fn enqueue_all(&mut self, id: ChannelId, mut ops: VecDeque<Key>) {
        let Some(context) = self.get_mut(id) else { return };
        if id.context().is_none() {
            context.restore();
            core::mem::swap(&mut context.queue, &mut ops);
        }
        context.queue.append(&mut ops);
        self.activate(id);
    }

    /// A channel waits for its turn.
    #[inline]
    fn line_up(&mut self, id: ChannelId) {
        match id {
            ChannelId::Context(id) => self.active.push_back(id),
            ChannelId::Link(id) => self.active_links.push_back(id),
        }
    }

    /// Puts an operation before those queued on a context, but behind one that is half-way.
    pub(crate) fn enqueue_first(&mut self, id: ChannelId, op: Key) {
        if let Some(context) = self.get_mut(id) {
            let at = usize::from(context.hold.half_way).min(context.queue.len());
            context.queue.insert(at, op);
            self.activate(id);
        }
    }

    /// A context may have something to send.
    pub(crate) fn activate(&mut self, id: ChannelId) {
        if let Some(context) = self.get_mut(id)
            && !context.active
        {
            context.active = true;
            self.line_up(id);
        }
    }

    /// The context whose turn it is to send.
    #[inline]
    pub(crate) fn next_turn(&mut self) -> Option<PdcId> {
        self.active.pop_front()
    }

    /// The link whose turn it is to send.
    #[inline]
    pub(crate) fn next_link_turn(&mut self) -> Option<LinkId> {
        self.active_links.pop_front()
    }

    /// Links that may have something to send.
    #[inline]
    pub(crate) fn active_links(&self) -> usize {
        self.active_links.len()
    }

    /// Ends a turn; `more` when it may have more to send.
    #[inline]
    pub(crate) fn end_turn(&mut self, id: ChannelId, more: bool) {
        if more {
            self.line_up(id);
        } else if let Some(context) = self.get_mut(id) {
            context.active = false;
        }
    }

    /// Lets our contexts to a peer go on that waited for it to be introduced.
    pub(crate) fn release(&self, now: Time, peer: PeerId, pdcs: &mut Pdcs<Part>) {
        for context in self.iter().filter(|c| c.peer == peer && c.initiator) {
            if let ChannelId::Context(id) = context.id {
                pdcs.release(now, id);
            }
        }
    }

    /// Limits packets to a host to `max_packet` bytes from now on. Longer packets that must be sent again are cut then.
    pub(crate) fn resize(&mut self, to: IpAddr, max_packet: u32) {
        let contexts = self.table.iter_mut().flatten().filter(|c| c.id.context().is_some());
        for context in contexts.filter(|c| c.dst.ip() == to) {
            context.max_packet = max_packet;
        }
    }

    /// Whether no context has anything to send.
    pub(crate) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// Notes that a NO_OP asks `peer` for a sign of life, or that none does any more. What was noted.
    pub(crate) fn set_asked(&mut self, peer: PeerId, asked: bool) -> bool {
        core::mem::replace(&mut self.route(peer).asked, asked)
    }

    /// All of them, and links.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Context> {
        self.table.iter().flatten().map(|context| &**context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    #[test]
    fn slots_are_given_back_by_their_owner_alone() {
        let mut slab = Slab::default();
        let (a, b) = (slab.add(()), slab.add(()));
        let mut slots = ResponseSlots::default();
        assert!(slots.is_empty());
        let (one, two) = (slots.take(a), slots.take(b));
        assert_eq!((slots.get(one), slots.get(two), slots.get(9)), (Some(a), Some(b), None));
        assert!(!slots.release(one, b));
        assert!(slots.release(one, a) && !slots.release(one, a));
        assert_eq!(slots.take(b), one);
        assert!(!slots.is_empty());
        for _ in 2..=u16::MAX {
            slots.take(a);
        }
        assert!(!slots.has_room());
        assert!(slots.release(two, b) && slots.has_room());
        assert_eq!(slots.take(a), two);
    }
}
