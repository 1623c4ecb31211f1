//! The time of each context's next timer: a binary heap that knows the position of every context in
//! it, so that a context has one entry however often its deadline moves.

use crate::base::Time;

/// Value that stands for a context without an entry in the heap.
const NOT_QUEUED: u32 = u32::MAX;

/// A min-heap of deadlines `(when, slot)` with at most one entry for the context in each slot.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    heap: Vec<(Time, u16)>,
    /// The position of each context's entry in `heap`, by slot.
    place: Vec<u32>,
}

impl Schedule {
    /// Returns the earliest time at which a context has a timer, if any has.
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.first().map(|&(when, _)| when)
    }

    /// Removes and returns the slot of the context with the earliest deadline, if that is due at
    /// `now`.
    pub(crate) fn pop(&mut self, now: Time) -> Option<u16> {
        let &(when, slot) = self.heap.first()?;
        if when > now {
            return None;
        }
        self.remove(slot);
        Some(slot)
    }

    /// Schedules `slot` at `when`, unless it is scheduled earlier already. A later time is not
    /// worth moving the entry: when the entry comes up, its context finds nothing due and sets the
    /// time anew.
    pub(crate) fn schedule_by(&mut self, slot: u16, when: Time) {
        if when == Time::NEVER {
            return;
        }
        let index = usize::from(slot);
        if index >= self.place.len() {
            self.place.resize(index + 1, NOT_QUEUED);
        }
        let place = self.place[index];
        if place == NOT_QUEUED {
            self.heap.push((when, slot));
            self.sift_up(self.heap.len() - 1);
        } else if when < self.heap[place as usize].0 {
            self.heap[place as usize].0 = when;
            self.sift_up(place as usize);
        }
    }

    /// Removes the entry of the context in `slot` from the heap.
    pub(crate) fn remove(&mut self, slot: u16) {
        let Some(place) = self.place.get_mut(usize::from(slot)) else { return };
        let at = core::mem::replace(place, NOT_QUEUED) as usize;
        if at == NOT_QUEUED as usize {
            return;
        }
        self.heap.swap_remove(at);
        if at < self.heap.len() {
            self.place_at(at);
            self.sift_down(at);
            self.sift_up(at);
        }
    }

    /// Records the position `at` of the entry that is there. Positions of at most 65535 slots fit
    /// 32 bits.
    fn place_at(&mut self, at: usize) {
        let slot = self.heap[at].1;
        self.place[usize::from(slot)] = at as u32;
    }

    fn sift_up(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.heap[parent].0 <= self.heap[at].0 {
                break;
            }
            self.heap.swap(parent, at);
            self.place_at(at);
            at = parent;
        }
        self.place_at(at);
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let left = 2 * at + 1;
            if left >= self.heap.len() {
                break;
            }
            let right = left + 1;
            let child = if right < self.heap.len() && self.heap[right].0 < self.heap[left].0 {
                right
            } else {
                left
            };
            if self.heap[at].0 <= self.heap[child].0 {
                break;
            }
            self.heap.swap(at, child);
            self.place_at(at);
            at = child;
        }
        self.place_at(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Rng;

    #[test]
    fn agrees_with_a_sorted_list() {
        let mut rng = Rng::new(11);
        let mut schedule = Schedule::default();
        let mut model = vec![Time::NEVER; 100];
        for step in 0..20_000u64 {
            let slot = u16::try_from(rng.below(100)).unwrap();
            let index = usize::from(slot);
            match rng.below(4) {
                0 => {
                    schedule.remove(slot);
                    model[index] = Time::NEVER;
                }
                1 => {
                    let now = Time(step / 2);
                    let earliest = *model.iter().min().unwrap();
                    match schedule.pop(now) {
                        Some(slot) => {
                            assert_eq!(model[usize::from(slot)], earliest);
                            assert!(earliest <= now);
                            model[usize::from(slot)] = Time::NEVER;
                        }
                        None => assert!(earliest > now),
                    }
                }
                _ => {
                    let when = Time(step / 2 + u64::from(rng.below(1000)));
                    schedule.schedule_by(slot, when);
                    model[index] = model[index].min(when);
                }
            }
            let earliest = *model.iter().min().unwrap();
            assert_eq!(schedule.next().unwrap_or(Time::NEVER), earliest);
        }
    }
}
