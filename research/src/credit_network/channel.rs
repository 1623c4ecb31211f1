//! One direction of a link.

use std::collections::VecDeque;

use super::Packet;

/// Requests. Out of a member, reads; its writes have a virtual channel of their own, lest reads that wait for tokens hold them up
/// (section 6.2.5).
pub(super) const REQUEST: usize = 0;
/// Writes, out of a member.
pub(super) const WRITES: usize = 1;
/// Answers.
pub(super) const RESPONSE: usize = 2;

/// One direction of a link, from the output queues before it to the buffers behind it.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    /// From the departure of a packet's first flit until it may leave what is behind the link.
    latency: u64,
    /// What is behind needs the whole packet.
    whole: bool,
    busy_until: u64,
    pub(super) virtuals: [Virtual; 3],
    /// Virtual channels, the one that was served longest ago first.
    order: [u8; 3],
    /// Packets that left.
    pub(super) packets: u64,
}

/// A virtual channel of it.
#[derive(Clone, Debug)]
pub(super) struct Virtual {
    queue: VecDeque<Packet>,
    /// Flits in the queue, and how many there may be.
    queued: u32,
    room: u32,
    /// Flits that the buffer behind the link has room for.
    credits: u32,
    /// On the link, and in the buffer: each with the cycle from which on it may leave that.
    far: VecDeque<(u64, Packet)>,
    /// Of the first in the buffer: the outputs that have their copy.
    pub(super) copied: u32,
}

impl Virtual {
    fn new(buffer: u32) -> Self {
        // No packet is shorter than a flit.
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

    /// Whether the queue takes another packet: while there is any room, for as much leaves as comes in.
    pub(super) const fn has_room(&self) -> bool {
        self.queued < self.room
    }

    /// Puts a packet into the queue.
    pub(super) fn push(&mut self, packet: Packet) {
        self.queued += packet.flits();
        self.queue.push_back(packet);
    }

    /// Whether the buffer behind the link takes so many flits.
    pub(super) const fn may_send(&self, flits: u32) -> bool {
        self.credits >= flits
    }

    /// The first in the queue, if it may leave.
    fn first(&self) -> Option<Packet> {
        self.queue.front().copied().filter(|packet| self.may_send(packet.flits()))
    }

    /// The first in the buffer, if it may leave that.
    pub(super) fn arrived(&self, now: u64) -> Option<Packet> {
        self.far.front().filter(|(ready, _)| *ready <= now).map(|(_, packet)| *packet)
    }

    /// Takes the first out of the buffer; its room there is not given back.
    pub(super) fn take(&mut self) {
        self.far.pop_front();
        self.copied = 0;
    }

    /// Gives room in the buffer back.
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
    /// Whose packets may leave what is behind it `latency` cycles after their first flit, or, if that wants the `whole` of
    /// them, after their last.
    pub(super) fn new(latency: u64, whole: bool, buffer: u32) -> Self {
        let virtuals = core::array::from_fn(|_| Virtual::new(buffer));
        Self { latency, whole, busy_until: 0, virtuals, order: [0, 1, 2], packets: 0 }
    }

    /// .. with so many flits of answers before it, or any number.
    pub(super) const fn with_answers(mut self, most: Option<u32>) -> Self {
        self.virtuals[RESPONSE].room = match most {
            Some(most) => most,
            None => u32::MAX,
        };
        self
    }

    /// The next cycle in which something may leave the buffers behind it, if nothing is sent until then.
    pub(super) fn quiet_until(&self, now: u64) -> u64 {
        let first = self.virtuals.iter().filter_map(|lane| lane.far.front());
        first.map(|(ready, _)| *ready).min().unwrap_or(u64::MAX).max(now + 1)
    }

    /// Whether it can take a packet this cycle.
    pub(super) const fn is_free(&self, now: u64) -> bool {
        self.busy_until <= now
    }

    /// The virtual channel that is to be served: of those that `may`, the one that was served longest ago (section 6.2.5).
    pub(super) fn next(&self, may: impl Fn(usize) -> bool) -> Option<usize> {
        self.order.iter().map(|&vc| usize::from(vc)).find(|&vc| may(vc))
    }

    /// Lets the first packet of a queue leave that may.
    pub(super) fn serve(&mut self, now: u64) {
        let virtuals = &self.virtuals;
        if let Some(vc) = self.next(|vc| virtuals[vc].first().is_some()) {
            self.serve_queue(now, vc);
        }
    }

    /// Lets the first packet of this queue leave, which may.
    pub(super) fn serve_queue(&mut self, now: u64, vc: usize) {
        if let Some(packet) = self.virtuals[vc].queue.pop_front() {
            self.virtuals[vc].queued -= packet.flits();
            self.send(now, vc, packet);
        }
    }

    /// Whether a queue has a packet that may leave.
    pub(super) fn queue_may(&self, vc: usize) -> bool {
        self.virtuals[vc].first().is_some()
    }

    /// A packet leaves, for which there are credits.
    pub(super) fn send(&mut self, now: u64, vc: usize, packet: Packet) {
        let flits = packet.flits();
        let lane = &mut self.virtuals[vc];
        lane.credits -= flits;
        let last = if self.whole { u64::from(flits) } else { 0 };
        lane.far.push_back((now + self.latency + last, packet));
        self.busy_until = now + u64::from(flits);
        self.packets += 1;
        // To the end of the order.
        let at = self.order.iter().position(|&served| usize::from(served) == vc).unwrap_or(0);
        self.order[at..].rotate_left(1);
    }
}
