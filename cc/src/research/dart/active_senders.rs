//! The active upstream senders of a receiver (Dart, section III-B): senders with a message under
//! way, each counted once.

use alloc::vec::Vec;

use squall_base::{Span, Time};

/// A sender that has a message to this receiver under way.
#[derive(Clone, Copy, Debug)]
struct ActiveSender {
    source: u32,
    /// Messages of the sender that began and have not ended.
    messages: u32,
    /// Time at which a packet of this sender, or a list with it, last arrived.
    last_seen: Time,
}

/// The senders that have a message under way. Memory grows with their number, never with packets.
#[derive(Clone, Debug)]
pub(super) struct ActiveSenders {
    /// Active senders in ascending order of their number.
    list: Vec<ActiveSender>,
    /// Silence after which a sender is removed: its last packet may have been lost.
    idle: Span,
    /// Earliest time at which a sender can have been silent for `idle`.
    sweep_at: Time,
    /// Number of each group whose sender list was accepted, and the latest round of its incasts.
    rounds: Vec<(u32, u32)>,
}

/// Number of groups whose latest round of incasts is remembered; the oldest is forgotten first.
const GROUPS: usize = 64;

impl ActiveSenders {
    pub(super) const fn new(idle: Span) -> Self {
        Self { list: Vec::new(), idle, sweep_at: Time::NEVER, rounds: Vec::new() }
    }

    /// Returns the number of senders with a message under way.
    pub(super) const fn len(&self) -> usize {
        self.list.len()
    }

    /// Processes a packet of `source`, which may begin or end a message.
    pub(super) fn on_packet(&mut self, now: Time, source: u32, begins: bool, ends: bool) {
        let at = self.add(now, source);
        let sender = &mut self.list[at];
        sender.last_seen = now;
        sender.messages = sender.messages.saturating_add(begins.into());
        if ends {
            sender.messages = sender.messages.saturating_sub(1);
            if sender.messages == 0 {
                self.list.remove(at);
            }
        }
    }

    /// Adds the `sources` of a list for `round` of an incast of `group`. Each sender of the incast
    /// may send the list; only the first copy counts. Returns false if the round is over.
    pub(super) fn add_list(
        &mut self,
        now: Time,
        (group, round): (u32, u32),
        sources: &[u32],
    ) -> bool {
        let known = self.rounds.iter().position(|(of, _)| *of == group);
        if let Some(at) = known {
            // A list of an older round is in a packet that arrives late.
            match round.wrapping_sub(self.rounds[at].1) {
                0 => return true,
                ahead if ahead > u32::MAX / 2 => return false,
                _ => {}
            }
            self.rounds.remove(at);
        } else if self.rounds.len() >= GROUPS {
            self.rounds.remove(0);
        }
        self.rounds.push((group, round));
        for &source in sources {
            self.add(now, source);
        }
        true
    }

    /// Adds `source` to the active senders if it is not among them, and returns its index.
    fn add(&mut self, now: Time, source: u32) -> usize {
        if self.list.is_empty() {
            self.sweep_at = now + self.idle;
        }
        match self.list.binary_search_by_key(&source, |sender| sender.source) {
            Ok(at) => at,
            Err(at) => {
                self.list.insert(at, ActiveSender { source, messages: 0, last_seen: now });
                at
            }
        }
    }

    /// Removes the senders that have been silent for longer than `idle`.
    pub(super) fn sweep(&mut self, now: Time) {
        if now < self.sweep_at {
            return;
        }
        let idle = self.idle;
        self.list.retain(|sender| now.since(sender.last_seen) < idle);
        let oldest = self.list.iter().map(|sender| sender.last_seen).min();
        self.sweep_at = oldest.map_or(Time::NEVER, |last_seen| last_seen + idle);
    }

    /// Returns the earliest time at which [`ActiveSenders::sweep`] may remove a sender.
    pub(super) fn next_sweep(&self) -> Option<Time> {
        (!self.list.is_empty()).then_some(self.sweep_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Span = Span::micros(600);

    const fn at(micros: u64) -> Time {
        Time(micros * 1000)
    }

    /// Each row: source, begins, ends, and how many there are then.
    fn play(senders: &mut ActiveSenders, rows: &[(u32, bool, bool, usize)]) {
        for (step, &(source, begins, ends, count)) in rows.iter().enumerate() {
            senders.on_packet(at(step as u64), source, begins, ends);
            assert_eq!(senders.len(), count, "step {step}");
        }
    }

    /// Section III-B, fig. 4: two incasts overlap, and sender 2 is in both.
    #[test]
    fn a_sender_counts_once_however_many_messages_it_has() {
        let mut senders = ActiveSenders::new(IDLE);
        play(
            &mut senders,
            &[
                (1, true, false, 1),
                (2, true, false, 2),
                (2, true, false, 2), // the other incast
                (3, true, false, 3),
                (2, false, false, 3),
                (2, false, true, 3), // one of its two
                (1, false, true, 2),
                (2, false, true, 1),
                (3, false, true, 0),
                (7, true, true, 0), // a message of one packet
            ],
        );
    }

    /// Against a model: the set of those with a message under way, after every event of a thousand.
    #[test]
    fn the_count_is_the_size_of_the_set_at_every_event() {
        let mut rng = squall_base::Rng::new(7);
        let mut senders = ActiveSenders::new(IDLE);
        let mut model: alloc::collections::BTreeMap<u32, u32> = alloc::collections::BTreeMap::new();
        for step in 0..1000 {
            let source = rng.below(8);
            let under_way = model.get(&source).copied().unwrap_or(0);
            let begins = under_way == 0 || rng.below(3) == 0;
            let ends = !begins && rng.below(2) == 0;
            senders.on_packet(Time(step), source, begins, ends);
            let now = under_way + u32::from(begins) - u32::from(ends);
            if now == 0 {
                model.remove(&source)
            } else {
                model.insert(source, now)
            };
            assert_eq!(senders.len(), model.len(), "{step}");
        }
    }

    #[test]
    fn a_list_counts_once_for_all_its_copies() {
        let mut senders = ActiveSenders::new(IDLE);
        senders.on_packet(at(0), 9, true, false);
        let list = [1, 2, 3, 2, 9];
        for _ in 0..4 {
            senders.add_list(at(1), (5, 1), &list);
            assert_eq!(senders.len(), 4);
        }
        // One that is done does not come back with a late copy, but with the next round.
        senders.on_packet(at(2), 1, true, true);
        senders.add_list(at(3), (5, 1), &list);
        assert_eq!(senders.len(), 3);
        senders.add_list(at(4), (5, 2), &list);
        assert_eq!(senders.len(), 4);
        senders.on_packet(at(5), 1, true, true);
        senders.add_list(at(5), (5, 1), &list);
        assert_eq!(senders.len(), 3, "an older round");
        // Rounds wrap.
        senders.add_list(at(6), (6, u32::MAX), &[1]);
        senders.on_packet(at(7), 1, true, true);
        senders.add_list(at(8), (6, 0), &[1]);
        assert_eq!(senders.len(), 4);
    }

    #[test]
    fn the_silent_leave_and_nobody_else() {
        let mut senders = ActiveSenders::new(IDLE);
        assert_eq!(senders.next_sweep(), None);
        senders.on_packet(at(0), 1, true, false);
        senders.add_list(at(100), (1, 1), &[2]);
        senders.on_packet(at(200), 3, true, false);
        assert_eq!(senders.next_sweep(), Some(at(600)));
        senders.on_packet(at(300), 1, false, false);
        senders.sweep(at(699));
        // The announced one never came.
        assert_eq!((senders.len(), senders.next_sweep()), (3, Some(at(700))));
        senders.sweep(at(700));
        assert_eq!((senders.len(), senders.next_sweep()), (2, Some(at(800))));
        senders.sweep(at(900));
        assert_eq!((senders.len(), senders.next_sweep()), (0, None));
    }

    #[test]
    fn groups_are_remembered_within_bounds() {
        let mut senders = ActiveSenders::new(IDLE);
        for group in 0..1000 {
            senders.add_list(at(0), (group, 1), &[1]);
        }
        assert_eq!(senders.rounds.len(), GROUPS);
    }
}
