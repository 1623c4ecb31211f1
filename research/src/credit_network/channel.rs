//! One direction of a link, with the queues before it and the buffers behind it.

use std::collections::VecDeque;

use super::Packet;

/// Virtual channel of requests. Out of a member it carries reads only: its writes have a virtual
/// channel of their own, lest reads that wait for tokens hold them up (section 6.2.5).
pub(super) const REQUEST: usize = 0;
/// Virtual channel of writes. Only links from a member to its switch use it.
pub(super) const WRITES: usize = 1;
/// Virtual channel of answers to reads and writes.
pub(super) const RESPONSE: usize = 2;

/// One direction of a link, from the output queues before it to the buffers behind it.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    /// Cycles from the departure of a packet's first flit until the packet may leave the buffer
    /// behind the link.
    latency: u64,
    /// True if the node behind the link needs the whole packet before it can use it.
    whole: bool,
    busy_until: u64,
    pub(super) virtuals: [Virtual; 3],
    /// Virtual channels in the order of service; the one that was served longest ago comes first.
    order: [u8; 3],
    /// Number of packets that were sent on this direction of the link.
    pub(super) packets: u64,
}

/// One of the three virtual channels of a link's direction.
#[derive(Clone, Debug)]
pub(super) struct Virtual {
    queue: VecDeque<Packet>,
    /// Flits in the queue before the link. A packet may join while they are fewer than `room`.
    queued: u32,
    room: u32,
    /// Flits for which the buffer behind the link has room.
    credits: u32,
    /// Packets on the link and in the buffer behind it, each with the first cycle in which it may
    /// leave.
    far: VecDeque<(u64, Packet)>,
    /// Bit mask of the outputs that already have their copy of the first packet in the buffer.
    pub(super) copied: u32,
}

impl Virtual {
    fn new(buffer: u32) -> Self {
        // No packet is shorter than one flit, so this many places suffice.
        let places = buffer as usize + 1;
        Self {
            queue: VecDeque::with_capacity(places),
            queued: 0,
            room: buffer,
            credits: buffer,
            far: VecDeque::with_capacity(places),
            copied: 0,
        }
    }

    /// Returns whether the queue accepts another packet. Room for one flit suffices, because
    /// packets are cut through: flits leave the queue as fast as others enter it.
    pub(super) const fn has_room(&self) -> bool {
        self.queued < self.room
    }

    /// Appends a packet to the queue before the link.
    pub(super) fn push(&mut self, packet: Packet) {
        self.queued += packet.flits();
        self.queue.push_back(packet);
    }

    /// Returns whether the buffer behind the link has room for `flits` more flits.
    pub(super) const fn may_send(&self, flits: u32) -> bool {
        self.credits >= flits
    }

    /// Returns the first packet of the queue before the link, if the buffer behind the link has
    /// room for it.
    fn first(&self) -> Option<Packet> {
        self.queue.front().copied().filter(|packet| self.may_send(packet.flits()))
    }

    /// Returns the first packet in the buffer behind the link, if it may leave the buffer now.
    pub(super) fn arrived(&self, now: u64) -> Option<Packet> {
        self.far.front().filter(|(ready, _)| *ready <= now).map(|(_, packet)| *packet)
    }

    /// Removes the first packet from the buffer behind the link. Its credits are not returned.
    pub(super) fn take(&mut self) {
        self.far.pop_front();
        self.copied = 0;
    }

    /// Gives back the credits of `flits` flits that left the buffer behind the link.
    pub(super) const fn give_back(&mut self, flits: u32) {
        self.credits += flits;
    }

    #[cfg(test)]
    pub(super) fn idle(&self, buffer: u32) -> bool {
        let empty = self.queue.is_empty() && self.far.is_empty() && self.queued == 0;
        empty && self.credits == buffer
    }
}

impl Channel {
    /// Creates a channel whose packets may leave the buffer behind it `latency` cycles after their
    /// first flit left, or, with `whole`, after their last.
    pub(super) fn new(latency: u64, whole: bool, buffer: u32) -> Self {
        let virtuals = core::array::from_fn(|_| Virtual::new(buffer));
        Self { latency, whole, busy_until: 0, virtuals, order: [0, 1, 2], packets: 0 }
    }

    /// Sets how many flits of answers may wait in the queue before the link; `None` for no limit.
    pub(super) const fn with_answers(mut self, most: Option<u32>) -> Self {
        self.virtuals[RESPONSE].room = match most {
            Some(most) => most,
            None => u32::MAX,
        };
        self
    }

    /// Returns the next cycle in which a packet may leave the buffers behind the link, if nothing
    /// is sent until then.
    pub(super) fn quiet_until(&self, now: u64) -> u64 {
        let first = self.virtuals.iter().filter_map(|lane| lane.far.front());
        first.map(|(ready, _)| *ready).min().unwrap_or(u64::MAX).max(now + 1)
    }

    /// Returns whether the link is idle in cycle `now`, so that it can take a packet.
    pub(super) const fn is_free(&self, now: u64) -> bool {
        self.busy_until <= now
    }

    /// Returns the virtual channel to serve: of those for which `may` is true, the one that was
    /// served longest ago (section 6.2.5).
    pub(super) fn next(&self, may: impl Fn(usize) -> bool) -> Option<usize> {
        self.order.iter().map(|&vc| usize::from(vc)).find(|&vc| may(vc))
    }

    /// Sends the first packet of one queue, if any queue has a packet that may leave.
    pub(super) fn serve(&mut self, now: u64) {
        let virtuals = &self.virtuals;
        if let Some(vc) = self.next(|vc| virtuals[vc].first().is_some()) {
            self.serve_queue(now, vc);
        }
    }

    /// Sends the first packet of queue `vc`, for which the buffer behind the link must have room.
    pub(super) fn serve_queue(&mut self, now: u64, vc: usize) {
        if let Some(packet) = self.virtuals[vc].queue.pop_front() {
            self.virtuals[vc].queued -= packet.flits();
            self.send(now, vc, packet);
        }
    }

    /// Returns whether the first packet of queue `vc` may be sent: the buffer behind the link has
    /// room.
    pub(super) fn queue_may(&self, vc: usize) -> bool {
        self.virtuals[vc].first().is_some()
    }

    /// Sends a packet on virtual channel `vc`, whose buffer behind the link has room for it.
    pub(super) fn send(&mut self, now: u64, vc: usize, packet: Packet) {
        let flits = packet.flits();
        let lane = &mut self.virtuals[vc];
        lane.credits -= flits;
        let last = if self.whole { u64::from(flits) } else { 0 };
        lane.far.push_back((now + self.latency + last, packet));
        self.busy_until = now + u64::from(flits);
        self.packets += 1;
        // Move the served channel to the end of the order.
        let at = self.order.iter().position(|&served| usize::from(served) == vc).unwrap_or(0);
        self.order[at..].rotate_left(1);
    }
}
