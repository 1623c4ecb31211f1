//! Messages that arrived before their receive, indexed by what a receive matches.

use std::collections::VecDeque;

use super::hash::{Map, Seeded};
use super::{ANY, Envelope, Key, MAX_MASKS, MatchRequest};
use crate::slab;

/// A message that waits for a receive: its envelope, and the index of the message in the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UnexpectedMessage {
    pub(crate) envelope: Envelope,
    pub(crate) message: slab::Key,
}

/// The number by which an index refers to a message. Messages are numbered in order of arrival, so a reference to a
/// consumed message is recognised and skipped. When the messages are renumbered, which is rare, all existing indexes
/// are rebuilt.
type Number = u64;

#[derive(Debug)]
struct Table {
    ignore: u64,
    lists: Map<Key, VecDeque<Number>>,
    /// Number of references in `lists`, including those to messages that were consumed.
    references: usize,
}

impl Table {
    fn insert(&mut self, envelope: &Envelope, number: Number) {
        let tag = envelope.tag & !self.ignore;
        for source in [envelope.source.0, ANY] {
            let key = Key { space: envelope.space, source, tag };
            self.lists.entry(key).or_default().push_back(number);
            self.references += 1;
        }
    }
}

/// All unexpected messages of an endpoint, in order of arrival.
#[derive(Debug)]
pub(crate) struct Unexpected {
    /// Messages in order of arrival, from number `first` on; consumed ones are `None`.
    arrived: VecDeque<Option<UnexpectedMessage>>,
    first: Number,
    live: usize,
    tables: Vec<Table>,
    seed: u64,
}

impl Unexpected {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { arrived: VecDeque::new(), first: 0, live: 0, tables: Vec::new(), seed }
    }

    pub(crate) const fn len(&self) -> usize {
        self.live
    }

    /// Appends a message that no posted receive matched.
    pub(crate) fn push(&mut self, waiting: UnexpectedMessage) {
        let number = self.first + self.arrived.len() as u64;
        self.arrived.push_back(Some(waiting));
        self.live += 1;
        for table in &mut self.tables {
            table.insert(&waiting.envelope, number);
        }
    }

    fn at(&self, number: Number) -> Option<UnexpectedMessage> {
        let offset = number.checked_sub(self.first)?;
        self.arrived.get(usize::try_from(offset).ok()?).copied().flatten()
    }

    /// Returns the number of the earliest unexpected message that a receive matches.
    pub(crate) fn find(&mut self, wanted: &MatchRequest) -> Option<Number> {
        if self.live == 0 {
            return None;
        }
        // With few messages, a linear search is cheaper than an index.
        if self.tables.is_empty() && self.arrived.len() <= 16 {
            return self.search(wanted);
        }
        let Some(table) = self.table_for(wanted.ignore) else { return self.search(wanted) };
        let (arrived, first) = (&self.arrived, self.first);
        let alive = |number: Number| {
            number
                .checked_sub(first)
                .and_then(|offset| arrived.get(usize::try_from(offset).ok()?))
                .is_some_and(Option::is_some)
        };
        let t = &mut self.tables[table];
        let list = t.lists.get_mut(&wanted.key())?;
        while let Some(&number) = list.front() {
            if alive(number) {
                return Some(number);
            }
            list.pop_front();
            t.references -= 1;
        }
        t.lists.remove(&wanted.key());
        None
    }

    fn search(&self, wanted: &MatchRequest) -> Option<Number> {
        let hit =
            |w: &Option<UnexpectedMessage>| w.as_ref().is_some_and(|w| wanted.matches(&w.envelope));
        self.arrived.iter().position(hit).map(|offset| self.first + offset as u64)
    }

    fn table_for(&mut self, ignore: u64) -> Option<usize> {
        if let Some(found) = self.tables.iter().position(|t| t.ignore == ignore) {
            return Some(found);
        }
        if self.tables.len() == MAX_MASKS {
            return None;
        }
        self.tables.push(Table {
            ignore,
            lists: Map::with_hasher(Seeded(self.seed)),
            references: 0,
        });
        let ix = self.tables.len() - 1;
        self.rebuild(ix);
        Some(ix)
    }

    fn rebuild(&mut self, ix: usize) {
        let table = &mut self.tables[ix];
        table.lists.clear();
        table.references = 0;
        for (offset, waiting) in self.arrived.iter().enumerate() {
            if let Some(waiting) = waiting {
                table.insert(&waiting.envelope, self.first + offset as u64);
            }
        }
    }

    pub(crate) fn get(&self, number: Number) -> Option<UnexpectedMessage> {
        self.at(number)
    }

    /// Removes an unexpected message that a receive has matched.
    pub(crate) fn take(&mut self, number: Number) -> Option<UnexpectedMessage> {
        let offset = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let taken = self.arrived.get_mut(offset)?.take()?;
        self.live -= 1;
        while let Some(None) = self.arrived.front() {
            self.arrived.pop_front();
            self.first += 1;
        }
        self.compact();
        Some(taken)
    }

    /// Returns whether this message still waits for a matching receive.
    pub(crate) fn contains(&self, message: slab::Key) -> bool {
        self.arrived.iter().flatten().any(|w| w.message == message)
    }

    /// Bounds the memory and time that consumed messages cost. The table is cleared when no message waits, and an index
    /// is rebuilt when most of its entries are consumed. Where most entries behind one unmatched message are empty, the
    /// remaining ones are moved together.
    fn compact(&mut self) {
        if self.arrived.len() > 8 * self.live + 1024 {
            self.first += (self.arrived.len() - self.live) as u64;
            self.arrived.retain(Option::is_some);
            (0..self.tables.len()).for_each(|ix| self.rebuild(ix));
        }
        if self.live == 0 {
            for table in &mut self.tables {
                if table.references > 0 {
                    table.lists.clear();
                    table.references = 0;
                }
            }
            return;
        }
        for ix in 0..self.tables.len() {
            if self.tables[ix].references > 8 * self.live + 1024 {
                self.rebuild(ix);
            }
        }
    }
}

#[cfg(test)]
impl Unexpected {
    /// Returns the number of entries in the table of unexpected messages, those of consumed ones
    /// included.
    pub(super) fn places(&self) -> usize {
        self.arrived.len()
    }

    /// Returns the number of references to messages in all indexes, stale ones included.
    pub(super) fn references(&self) -> usize {
        self.tables.iter().map(|t| t.references).sum()
    }
}
