//! The writer of a statistics page, which `squall top` and other processes read.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use thiserror::Error;

use crate::description::Description;
use crate::{MAGIC, VERSION, at};

/// The reason why a statistics page cannot be created.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum StatisticsPageError {
    /// The memory for the page has fewer words than [`PageLayout::words`].
    #[error("the statistics page needs {needed} words, and the memory for it has {there}")]
    TooSmall {
        /// Number of words that the page's layout needs.
        needed: usize,
        /// Number of words that the memory has.
        there: usize,
    },
}

/// The size of a statistics page and the positions of its parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageLayout {
    text: Vec<u8>,
    counters: usize,
    flow_words: usize,
    flow_places: usize,
}

impl PageLayout {
    /// Creates the layout of a page for the values that `description` names, with room for
    /// `flow_places` flows.
    #[must_use]
    pub fn new(description: &Description, flow_places: usize) -> Self {
        // A description consists of numbers, strings and lists of them, so JSON can represent it
        // and this cannot fail.
        let text = serde_json::to_vec(description).unwrap_or_default();
        let (counters, flow_words) = (description.counters.len(), description.flow.len());
        Self { text, counters, flow_words, flow_places }
    }

    /// Returns the number of words of the page before its description.
    const fn values(&self) -> usize {
        at::VALUES + self.counters + self.flow_words * self.flow_places
    }

    /// Returns the number of words of the whole page.
    #[must_use]
    pub const fn words(&self) -> usize {
        self.values() + self.text.len().div_ceil(8)
    }
}

/// The writer of a statistics page. Only one thread at a time may write.
#[derive(Debug)]
pub struct StatisticsPage {
    layout: PageLayout,
}

impl StatisticsPage {
    /// Writes the layout and the description to zeroed `words`. The magic number in the first word
    /// is stored last, because a reader parses the words as soon as it finds [`MAGIC`] there.
    ///
    /// # Errors
    /// `words` is shorter than the layout.
    pub fn create(layout: PageLayout, words: &[AtomicU64]) -> Result<Self, StatisticsPageError> {
        let (needed, there) = (layout.words(), words.len());
        if there < needed {
            return Err(StatisticsPageError::TooSmall { needed, there });
        }
        let numbers = [
            (at::VERSION, VERSION),
            (at::TEXT, layout.text.len() as u64),
            (at::COUNTERS, layout.counters as u64),
            (at::FLOW_WORDS, layout.flow_words as u64),
            (at::FLOW_PLACES, layout.flow_places as u64),
        ];
        for (place, number) in numbers {
            words[place].store(number, Ordering::Relaxed);
        }
        for (word, bytes) in words[layout.values()..].iter().zip(layout.text.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
        }
        words[at::MAGIC].store(MAGIC, Ordering::Release);
        Ok(Self { layout })
    }

    /// Returns the number of flows for which the page has room.
    #[must_use]
    pub const fn flow_places(&self) -> usize {
        self.layout.flow_places
    }

    /// Writes the values of the time `now`, in ns since 1970: the counters in the order of the
    /// description, and as many of the flows `here` as have room. `flows` is the number of all
    /// flows. `words` must be those that the page was created in.
    pub fn write<F: IntoIterator<Item = u64>>(
        &self,
        words: &[AtomicU64],
        now: u64,
        counters: impl IntoIterator<Item = u64>,
        (flows, here): (usize, impl IntoIterator<Item = F>),
    ) {
        let PageLayout { counters: n, flow_words, flow_places, .. } = self.layout;
        // Only this thread writes the words, so its own loads need no ordering.
        let sequence = words[at::SEQUENCE].load(Ordering::Relaxed);
        words[at::SEQUENCE].store(sequence | 1, Ordering::Relaxed);
        // A reader that sees a value stored after this fence also sees the odd sequence number.
        fence(Ordering::Release);
        words[at::WRITTEN].store(now, Ordering::Relaxed);
        words[at::FLOWS].store(flows as u64, Ordering::Relaxed);
        let (of_counters, of_flows) = words[at::VALUES..].split_at(n);
        fill(of_counters, counters);
        let mut written = 0;
        if flow_words > 0 {
            let places = of_flows.chunks_exact(flow_words).take(flow_places);
            for (place, flow) in places.zip(here) {
                fill(place, flow);
                written += 1;
            }
        }
        words[at::FLOWS_HERE].store(written, Ordering::Relaxed);
        words[at::SEQUENCE].store((sequence | 1).wrapping_add(1), Ordering::Release);
    }
}

impl StatisticsPage {
    /// Passes all words to `put`, in parts with the position of their first word. `put` writes them
    /// to a file that other processes may read at the same time. The sequence number in the file is
    /// odd while its values change.
    ///
    /// # Errors
    /// The error of `put`. The sequence number in the file may then stay odd until the next call
    /// succeeds.
    pub fn publish<E>(
        words: &[AtomicU64],
        mut put: impl FnMut(usize, &[u64]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut all: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        let Some(&sequence) = all.get(at::SEQUENCE) else { return Ok(()) };
        // This number is odd. It also differs from the even number that the file had before, so a
        // reader that started earlier notices the change.
        let writing = [sequence.wrapping_sub(1)];
        // A write of many words to a file is not atomic. So the odd number is written first, and
        // the final one after all values.
        put(at::SEQUENCE, &writing)?;
        all[at::SEQUENCE] = writing[0];
        put(0, &all)?;
        put(at::SEQUENCE, &[sequence])
    }
}

fn fill(words: &[AtomicU64], values: impl IntoIterator<Item = u64>) {
    for (word, value) in words.iter().zip(values) {
        word.store(value, Ordering::Relaxed);
    }
}
