//! The writing side.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use thiserror::Error;

use crate::description::Description;
use crate::{MAGIC, VERSION, at};

/// Why a page cannot be made.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum StatisticsPageError {
    /// The memory is smaller than [`PageLayout::words`] says.
    #[error("a page of {needed} words does not fit into {there}")]
    TooSmall {
        /// Words of the layout.
        needed: usize,
        /// Words there are.
        there: usize,
    },
}

/// How large a page is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageLayout {
    text: Vec<u8>,
    counters: usize,
    flow_words: usize,
    flow_places: usize,
}

impl PageLayout {
    /// Of a page that shows the values named in `description` and has places for so many flows.
    #[must_use]
    pub fn new(description: &Description, flow_places: usize) -> Self {
        // Numbers, texts and lists of them: there is nothing in it that JSON could not hold.
        let text = serde_json::to_vec(description).unwrap_or_default();
        let (counters, flow_words) = (description.counters.len(), description.flow.len());
        Self { text, counters, flow_words, flow_places }
    }

    /// Words before the description.
    const fn values(&self) -> usize {
        at::VALUES + self.counters + self.flow_words * self.flow_places
    }

    /// Words of the whole.
    #[must_use]
    pub const fn words(&self) -> usize {
        self.values() + self.text.len().div_ceil(8)
    }
}

/// A page that its endpoint writes. One at a time may.
#[derive(Debug)]
pub struct StatisticsPage {
    layout: PageLayout,
}

impl StatisticsPage {
    /// Writes what does not change, and no values yet. The first word comes last: before it this is no page.
    ///
    /// # Errors
    /// When there is not enough room.
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

    /// Places for flows.
    #[must_use]
    pub const fn flow_places(&self) -> usize {
        self.layout.flow_places
    }

    /// Writes values of `now`, ns since 1970: the counters in the order of the description, and flows, of which there
    /// are `flows` in all. What does not fit is left out. The words must be those that the page was made of.
    pub fn write<F: IntoIterator<Item = u64>>(
        &self,
        words: &[AtomicU64],
        now: u64,
        counters: impl IntoIterator<Item = u64>,
        (flows, here): (usize, impl IntoIterator<Item = F>),
    ) {
        let PageLayout { counters: n, flow_words, flow_places, .. } = self.layout;
        let sequence = words[at::SEQUENCE].load(Ordering::Relaxed);
        words[at::SEQUENCE].store(sequence | 1, Ordering::Relaxed);
        // Whoever sees a value that follows sees that it is being written.
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
    /// Hands all words to `put`, each part with the position of its first word. The order of the parts is such that the
    /// words may be written to a file that others read meanwhile: while the values change, the file says that they are
    /// being written.
    ///
    /// # Errors
    /// The errors of `put`. After an error the file may say that it is being written until the next call succeeds.
    pub fn publish<E>(
        words: &[AtomicU64],
        mut put: impl FnMut(usize, &[u64]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut all: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        let Some(&sequence) = all.get(at::SEQUENCE) else { return Ok(()) };
        // The number is odd, and differs from the one that the file had the last time.
        let writing = [sequence.wrapping_sub(1)];
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
