//! Pool of the packets that wait at all ports; a port holds only the ends of its lists. A network
//! with a hundred thousand queues, few of them long, thus needs memory only for the packets that
//! wait, and memory that was used last is used next.

/// Marks the end of a list of waiting packets.
const NONE: u32 = u32::MAX;

/// A packet that waits in a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<T> {
    pub(super) item: T,
    pub(super) bytes: u32,
    /// Port and lane by which the packet came in, and the lane by which it leaves: see
    /// [`super::lane`].
    pub(super) ingress: u32,
}

/// A queue: the places of its first and last packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Queue {
    first: u32,
    last: u32,
}

impl Queue {
    pub(super) const EMPTY: Self = Self { first: NONE, last: NONE };

    pub(super) const fn is_empty(self) -> bool {
        self.first == NONE
    }
}

/// The packets that wait at the ports of a network, each with the place of its successor.
#[derive(Clone, Debug)]
pub struct Queues<T> {
    places: Vec<(Entry<T>, u32)>,
    /// Place that became free last, which the next packet takes.
    free: u32,
}

impl<T> Default for Queues<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: NONE }
    }
}

impl<T: Copy> Queues<T> {
    /// Appends a packet to a queue.
    pub(super) fn push(&mut self, queue: &mut Queue, entry: Entry<T>) {
        let mut at = self.free;
        match self.places.get_mut(at as usize) {
            Some(place) => {
                self.free = place.1;
                *place = (entry, NONE);
            }
            None => {
                // The number fits: 2^32 packets exceed the memory.
                at = self.places.len() as u32;
                self.places.push((entry, NONE));
            }
        }
        match self.places.get_mut(queue.last as usize) {
            Some(last) => last.1 = at,
            None => queue.first = at,
        }
        queue.last = at;
    }

    /// Removes the first packet of a queue, and returns it.
    pub(super) fn pop(&mut self, queue: &mut Queue) -> Option<Entry<T>> {
        let at = queue.first;
        let place = self.places.get_mut(at as usize)?;
        queue.first = core::mem::replace(&mut place.1, self.free);
        self.free = at;
        if queue.first == NONE {
            queue.last = NONE;
        }
        Some(place.0)
    }

    /// Removes the first packet of a queue for which `goes` returns true, wherever in the queue it
    /// is.
    pub(super) fn pop_first(
        &mut self,
        queue: &mut Queue,
        goes: impl Fn(&Entry<T>) -> bool,
    ) -> Option<Entry<T>> {
        let (mut before, mut at) = (NONE, queue.first);
        loop {
            let (entry, next) = *self.places.get(at as usize)?;
            if !goes(&entry) {
                (before, at) = (at, next);
                continue;
            }
            if before == NONE {
                return self.pop(queue);
            }
            self.places[before as usize].1 = next;
            if next == NONE {
                queue.last = before;
            }
            self.places[at as usize].1 = self.free;
            self.free = at;
            return Some(entry);
        }
    }

    /// Returns whether `goes` returns true for any packet of a queue.
    pub(super) fn any(&self, queue: Queue, goes: impl Fn(&Entry<T>) -> bool) -> bool {
        let mut at = queue.first;
        while let Some((entry, next)) = self.places.get(at as usize) {
            if goes(entry) {
                return true;
            }
            at = *next;
        }
        false
    }

    /// Returns the first packet of a queue, and leaves it there.
    pub(super) fn front(&self, queue: Queue) -> Option<T> {
        self.places.get(queue.first as usize).map(|place| place.0.item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_base::Rng;
    use std::collections::VecDeque;

    #[test]
    fn packets_are_taken_from_the_middle_in_order() {
        let mut rng = Rng::new(5);
        let (mut queues, mut queue, mut model) = (Queues::default(), Queue::EMPTY, Vec::new());
        for item in 0..5_000u32 {
            if rng.below(2) == 0 {
                queues.push(&mut queue, Entry { item, bytes: 1, ingress: item % 3 });
                model.push(item);
            }
            let kind = rng.below(4);
            let expected = model.iter().position(|item| item % 3 == kind);
            let is = |entry: &Entry<u32>| entry.ingress == kind;
            assert_eq!(queues.any(queue, is), expected.is_some());
            let popped = queues.pop_first(&mut queue, is).map(|entry| entry.item);
            assert_eq!(popped, expected.map(|at| model.remove(at)));
        }
        while let Some(entry) = queues.pop(&mut queue) {
            assert_eq!(entry.item, model.remove(0));
        }
        assert!(model.is_empty() && queue.is_empty());
    }

    #[test]
    fn many_lanes_in_one_pool_agree_with_many_queues() {
        let mut rng = Rng::new(3);
        let mut queues = Queues::default();
        let mut heads = [Queue::EMPTY; 9];
        let mut model = vec![VecDeque::new(); 9];
        let mut most = 0;
        for item in 0..20_000u32 {
            let at = rng.below(9) as usize;
            // The queues fill and drain in turns.
            if rng.below(10) < if item / 500 % 2 == 0 { 7 } else { 3 } {
                queues.push(&mut heads[at], Entry { item, bytes: 1, ingress: 2 });
                model[at].push_back(item);
            } else {
                let expected = model[at].pop_front();
                assert_eq!(queues.pop(&mut heads[at]).map(|entry| entry.item), expected);
            }
            assert_eq!(queues.front(heads[at]), model[at].front().copied());
            assert_eq!(heads[at].is_empty(), model[at].is_empty());
            most = most.max(model.iter().map(VecDeque::len).sum());
        }
        assert_eq!(queues.places.len(), most, "places are used again");
    }
}
