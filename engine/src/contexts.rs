//! The engine's state for each packet delivery context and shared-memory channel: which peer it
//! leads to, and which operations wait on it. A shared-memory channel is treated like a context
//! that both ends opened.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use crate::base::Time;
use crate::channel::{ChannelId, ShmId};
use crate::fences::OperationClasses;
use crate::operation::PeerId;
use crate::packet_form::PacketForm;
use crate::part::Part;
use crate::reliability::{PdcId, Pdcs};
use crate::slab::Key;
use crate::wire::{MessageHeaders, MessageTemplate};

/// Table of the operations that wait for response data, indexed by the slot number that the
/// response carries.
#[derive(Debug, Default)]
pub(crate) struct ResponseSlots {
    ops: Vec<Option<Key>>,
    free: Vec<u16>,
}

impl ResponseSlots {
    /// Returns whether [`ResponseSlots::take`] can allocate another slot.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.ops.len() <= usize::from(u16::MAX)
    }

    /// Allocates a slot to an operation.
    ///
    /// # Panics
    /// Panics if all slots are in use; see [`ResponseSlots::has_room`].
    pub(crate) fn take(&mut self, op: Key) -> u16 {
        if let Some(slot) = self.free.pop() {
            self.ops[usize::from(slot)] = Some(op);
            return slot;
        }
        let slot = u16::try_from(self.ops.len()).expect("there is room");
        self.ops.push(Some(op));
        slot
    }

    /// Returns the operation that waits for response data in a slot.
    #[inline]
    pub(crate) fn get(&self, slot: u16) -> Option<Key> {
        self.ops.get(usize::from(slot)).copied().flatten()
    }

    /// Frees a slot if this operation waits in it, and returns whether it did.
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

    /// Returns the number of slots in which operations wait for response data.
    pub(crate) const fn used(&self) -> usize {
        self.ops.len() - self.free.len()
    }
}

/// State of one packet delivery context or shared-memory channel, with the operations that wait on
/// it.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) id: ChannelId,
    pub(crate) peer: PeerId,
    /// Address of the peer to which the channel leads.
    pub(crate) dst: SocketAddr,
    /// Longest packet that reaches the peer unfragmented, in bytes, counted like
    /// [`crate::Config::max_packet`].
    pub(crate) max_packet: u32,
    /// The fields and sizes of packets that follow from the wire.
    pub(crate) form: PacketForm,
    /// The headers of ordinary messages on a packet delivery context that has sent one.
    pub(crate) headers: Option<MessageHeaders>,
    pub(crate) initiator: bool,
    /// The headers of the peer's last ordinary message, from which those of the next are predicted.
    pub(crate) template: Option<Box<MessageTemplate>>,
    /// Operations of which packets are still to be built, in sending order.
    pub(crate) queue: VecDeque<Key>,
    /// Operations that may not begin yet, and that operations in the queue may overtake. They are older than those in
    /// the queue, except for one at the head that has sent some of its packets. Only shared-memory channels have any.
    set_aside: VecDeque<Key>,
    /// The ordering classes of the operations that were set aside, so that later ones may overtake
    /// them.
    aside_classes: OperationClasses,
    /// At least one operation was set aside only because no slot for an answer was free.
    starved: bool,
    /// A packet sent since the queue was last empty is still unacknowledged.
    pub(crate) prompt: bool,
    /// The context is in the list of contexts that may have something to send.
    active: bool,
    next_ids: [u16; 2],
    pub(crate) slots: ResponseSlots,
    /// Number of rendezvous sends whose header was sent and that the peer has not read completely.
    pub(crate) offers: u32,
    hold: CloseBlocker,
}

/// The reasons why a context must not close now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct CloseBlocker {
    /// The operation at the head of the queue has sent some of its packets and must stay there.
    half_way: bool,
    /// Fragments of packets that were too long for their path have no PSN yet.
    fragments_wait: bool,
    /// A message that no receive of the peer matched must be sent again before all others.
    message_waits: bool,
    /// True if the last report to the transport was that the context must stay open.
    held: bool,
}

/// The sequence of message ids from which an operation takes its id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdSpace {
    /// Ids of two-sided messages. The receiver matches messages in the order of these ids.
    Message,
    /// Ids of one-sided operations and of answers to requests.
    OneSided,
}

impl Context {
    /// Returns the message id that the next call of [`Self::next_id`] will return.
    #[inline]
    pub(crate) const fn peek_id(&self, space: IdSpace) -> u16 {
        self.next_ids[space as usize]
    }

    /// Allocates the next message id of one of the two id sequences.
    #[inline]
    pub(crate) fn next_id(&mut self, space: IdSpace) -> u16 {
        let next = &mut self.next_ids[space as usize];
        let id = *next;
        *next = next.wrapping_add(1);
        id
    }

    /// Records whether the operation at the head of the queue has sent only some of its packets.
    #[inline]
    pub(crate) const fn set_half_way(&mut self, half_way: bool) {
        self.hold.half_way = half_way;
    }

    /// Records whether a message must be sent again before any other operation begins.
    pub(crate) const fn set_held(&mut self, held: bool) {
        self.hold.message_waits = held;
    }

    /// Returns whether the next operation may begin on a context that carries one operation at a time.
    /// `idle` is true if everything sent is acknowledged.
    pub(crate) const fn may_begin(&self, idle: bool) -> bool {
        idle && !self.hold.message_waits
    }

    /// Records whether fragments of cut packets wait for packet sequence numbers (PSNs).
    pub(crate) const fn set_fragments_wait(&mut self, wait: bool) {
        self.hold.fragments_wait = wait;
    }

    /// Returns whether no operation waits on this channel to begin.
    #[inline]
    pub(crate) fn is_clear(&self) -> bool {
        self.queue.is_empty() && self.set_aside.is_empty()
    }

    /// Sets the first operation of the queue aside, so that the operations behind it may overtake it. `for_slot` says
    /// that it waits for a slot and for nothing else.
    pub(crate) fn set_first_aside(&mut self, classes: OperationClasses, for_slot: bool) {
        self.starved |= for_slot;
        self.aside_classes = self.aside_classes.or(classes);
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

    /// Returns whether any operation was set aside so that later ones may overtake it.
    #[inline]
    pub(crate) fn has_set_aside(&self) -> bool {
        !self.set_aside.is_empty()
    }

    /// Returns the ordering classes of the operations that were set aside.
    pub(crate) const fn aside_classes(&self) -> OperationClasses {
        self.aside_classes
    }

    /// Puts the operations that were set aside back in front of the operations that could overtake them.
    #[cold]
    pub(crate) fn restore_set_aside(&mut self) {
        let at = usize::from(self.hold.half_way).min(self.queue.len());
        self.starved = false;
        self.aside_classes = OperationClasses::NONE;
        let mut behind = self.queue.split_off(at);
        self.queue.append(&mut self.set_aside);
        self.queue.append(&mut behind);
    }

    /// Reports to the transport whether the context is busy and must not be closed. It is busy
    /// while the peer owes something on it (read data, a confirmation, the reads of a rendezvous),
    /// an operation is half-way, or fragments wait. If it closed while the peer owes an answer, a
    /// restart of the peer would go unnoticed.
    #[inline]
    pub(crate) fn update_busy(&mut self, now: Time, pdcs: &mut Pdcs<Part>) {
        let begun = self.hold.half_way || self.hold.fragments_wait || self.hold.message_waits;
        let hold = begun || self.offers > 0 || !self.slots.is_empty();
        if hold != self.hold.held
            && let ChannelId::Context(id) = self.id
        {
            self.hold.held = hold;
            pdcs.set_busy(now, id, hold);
        }
    }

    /// Records that the peer owes one answer fewer. `slot` is the slot in which a read or a
    /// confirmation waited, or `None` for a rendezvous.
    pub(crate) fn end_owed_answer(&mut self, slot: Option<u16>, op: Key) {
        match slot {
            None => self.offers = self.offers.saturating_sub(1),
            Some(slot) => {
                self.slots.release(slot, op);
            }
        }
    }
}

/// The shared-memory channel and the contexts between this endpoint and one peer.
#[derive(Clone, Copy, Debug, Default)]
struct PeerRoute {
    /// The shared-memory channel to the peer.
    shm: Option<ShmId>,
    /// The context that this endpoint opened to the peer.
    ours: Option<PdcId>,
    /// The context that the peer opened to this endpoint.
    theirs: Option<PdcId>,
    /// A NO_OP that asks the peer for a sign of life is unanswered.
    asked: bool,
}

/// All packet delivery contexts and shared-memory channels of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    /// Contexts and shared-memory channels, indexed by [`ChannelId::index`].
    table: Vec<Option<Box<Context>>>,
    /// Contexts that may have something to send, in the order of their turns.
    active: VecDeque<PdcId>,
    /// Shared-memory channels that may have something to send, in the order of their turns.
    active_links: VecDeque<ShmId>,
    /// The channels to each peer, indexed by peer.
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

    /// Returns the channel for the next operation to a peer: the shared-memory channel if there is
    /// one, or else the context that this endpoint opened.
    #[inline]
    pub(crate) fn channel_to(&self, peer: PeerId) -> Option<ChannelId> {
        let route = self.routes.get(peer.0 as usize)?;
        route.shm.map(ChannelId::Shm).or(route.ours.map(ChannelId::Context))
    }

    /// Returns the open shared-memory channel to a peer, if there is one.
    pub(crate) fn shm_channel_to(&self, peer: PeerId) -> Option<ShmId> {
        self.routes.get(peer.0 as usize)?.shm
    }

    /// Returns the context that this endpoint opened to a peer, if operations may still use it.
    pub(crate) fn opened_context_to(&self, peer: PeerId) -> Option<PdcId> {
        self.routes.get(peer.0 as usize)?.ours
    }

    /// Adds a channel to a peer; `initiator` says that this endpoint opened it. If the peer opened
    /// it, returns the context that the peer had opened before.
    pub(crate) fn add(
        &mut self,
        id: ChannelId,
        peer: PeerId,
        (dst, max_packet, form): (SocketAddr, u32, PacketForm),
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
            form,
            headers: None,
            initiator,
            template: None,
            queue: VecDeque::new(),
            set_aside: VecDeque::new(),
            aside_classes: OperationClasses::NONE,
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
            ChannelId::Shm(id) => {
                route.shm = Some(id);
                None
            }
            ChannelId::Context(id) if initiator => {
                route.ours = Some(id);
                None
            }
            ChannelId::Context(id) => route.theirs.replace(id),
        }
    }

    /// Removes a channel and returns its state.
    pub(crate) fn remove(&mut self, id: ChannelId) -> Option<Box<Context>> {
        self.get(id)?;
        let mut context = self.table[id.index()].take()?;
        context.restore_set_aside();
        let route = self.route(context.peer);
        match id {
            ChannelId::Shm(id) => {
                route.shm.take_if(|shm| *shm == id);
            }
            ChannelId::Context(id) => {
                route.ours.take_if(|ours| *ours == id);
                route.theirs.take_if(|theirs| *theirs == id);
            }
        }
        Some(context)
    }

    /// Takes a context that this endpoint opened out of use, so that new operations to its peer
    /// take another channel. Returns the peer and the operations that were queued.
    pub(crate) fn retire(&mut self, id: PdcId) -> Option<(PeerId, VecDeque<Key>)> {
        let context = self.get_mut(id.into()).filter(|context| context.initiator)?;
        let queue = core::mem::take(&mut context.queue);
        let peer = context.peer;
        self.route(peer).ours.take_if(|ours| *ours == id);
        Some((peer, queue))
    }

    /// Appends an operation to the queue of a channel and gives the channel a turn to send.
    #[inline]
    pub(crate) fn enqueue(&mut self, id: ChannelId, op: Key) {
        if let Some(context) = self.get_mut(id) {
            context.queue.push_back(op);
            if !context.active {
                context.active = true;
                self.schedule_turn(id);
            }
        }
    }

    /// Queues operations that are older than those queued on a channel. On a shared-memory channel
    /// they go in front of the latter, and on a context behind them.
    pub(crate) fn enqueue_all(&mut self, id: ChannelId, mut ops: VecDeque<Key>) {
        let Some(context) = self.get_mut(id) else { return };
        if id.context().is_none() {
            context.restore_set_aside();
            core::mem::swap(&mut context.queue, &mut ops);
        }
        context.queue.append(&mut ops);
        self.activate(id);
    }

    /// Appends a channel to the list of channels that wait for their turn to send.
    #[inline]
    fn schedule_turn(&mut self, id: ChannelId) {
        match id {
            ChannelId::Context(id) => self.active.push_back(id),
            ChannelId::Shm(id) => self.active_links.push_back(id),
        }
    }

    /// Queues an operation before all others on a channel, except one that has sent some of its
    /// packets.
    pub(crate) fn enqueue_first(&mut self, id: ChannelId, op: Key) {
        if let Some(context) = self.get_mut(id) {
            let at = usize::from(context.hold.half_way).min(context.queue.len());
            context.queue.insert(at, op);
            self.activate(id);
        }
    }

    /// Records that a channel may have something to send, and gives it a turn.
    pub(crate) fn activate(&mut self, id: ChannelId) {
        if let Some(context) = self.get_mut(id)
            && !context.active
        {
            context.active = true;
            self.schedule_turn(id);
        }
    }

    /// Takes the packet delivery context whose turn it is to send.
    #[inline]
    pub(crate) fn pop_scheduled_context(&mut self) -> Option<PdcId> {
        self.active.pop_front()
    }

    /// Takes the shared-memory channel whose turn it is to send.
    #[inline]
    pub(crate) fn pop_scheduled_shm(&mut self) -> Option<ShmId> {
        self.active_links.pop_front()
    }

    /// Returns the number of shared-memory channels that may have something to send.
    #[inline]
    pub(crate) fn scheduled_shm(&self) -> usize {
        self.active_links.len()
    }

    /// Ends a channel's turn to send. `more` says that the channel may have more to send.
    #[inline]
    pub(crate) fn end_turn(&mut self, id: ChannelId, more: bool) {
        if more {
            self.schedule_turn(id);
        } else if let Some(context) = self.get_mut(id) {
            context.active = false;
        }
    }

    /// Starts the contexts to a peer that waited for the end of the handshake.
    pub(crate) fn release_peer(&self, now: Time, peer: PeerId, pdcs: &mut Pdcs<Part>) {
        for context in self.iter().filter(|c| c.peer == peer && c.initiator) {
            if let ChannelId::Context(id) = context.id {
                pdcs.release(now, id);
            }
        }
    }

    /// Limits packets to a host to `max_packet` bytes from now on. Longer packets that must be
    /// retransmitted are cut into fragments then.
    pub(crate) fn resize(&mut self, to: IpAddr, max_packet: u32) {
        let contexts = self.table.iter_mut().flatten().filter(|c| c.id.context().is_some());
        for context in contexts.filter(|c| c.dst.ip() == to) {
            context.max_packet = max_packet;
        }
    }

    /// Returns whether no packet delivery context has anything to send.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// Records whether a NO_OP that asks `peer` for a sign of life is unanswered. Returns the
    /// previous value.
    pub(crate) fn set_question_open(&mut self, peer: PeerId, asked: bool) -> bool {
        core::mem::replace(&mut self.route(peer).asked, asked)
    }

    /// Returns all packet delivery contexts and shared-memory channels.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Context> {
        self.table.iter().flatten().map(|context| &**context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    #[test]
    fn only_the_owner_of_a_slot_frees_it() {
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
