//! The reader of a statistics page, which an endpoint writes.

use thiserror::Error;

use crate::description::{Counter, Description};
use crate::{MAGIC, VERSION, at};

/// The reason why bytes cannot be read as a statistics page.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SnapshotError {
    /// The first word of the file is not [`MAGIC`], so it is no statistics page.
    #[error("the file is not a statistics page")]
    Foreign,
    /// The page has the layout of another version of this crate.
    #[error(
        "the statistics page has layout {0}, but this build reads layout {VERSION}; use the `squall` command of the job's version"
    )]
    Version(u64),
    /// The page ends before its values do, or its sizes contradict each other.
    #[error("the statistics page is damaged: {0}")]
    Damaged(&'static str),
    /// The writer changed the page during every attempt to read it.
    #[error("the statistics page changed during every attempt to read it; try again")]
    Busy,
}

/// The values of a flow, in the order of [`Description::flow`].
pub type FlowValues = Vec<u64>;

/// The contents of a statistics page at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    /// Identity of the endpoint and names of the values on the page.
    pub description: Description,
    /// Time at which the values were written, in ns since 1970; 0 before the first values.
    pub written: u64,
    /// Values of the counters, in the order of the description.
    pub counters: Vec<u64>,
    /// Number of flows of the endpoint, which may exceed the room on the page.
    pub flow_count: u64,
    /// Values of the flows that had room on the page.
    pub flows: Vec<FlowValues>,
    /// The writer died while it was writing, so the values may be of two different times.
    pub torn: bool,
}

/// The bytes of a statistics page, read as words of 64 bits.
struct PageWords<'a>(&'a [u8]);

impl PageWords<'_> {
    fn get(&self, index: usize) -> Option<u64> {
        let bytes = self.0.get(index.checked_mul(8)?..)?.first_chunk()?;
        Some(u64::from_ne_bytes(*bytes))
    }

    fn size(&self, index: usize) -> Result<usize, SnapshotError> {
        let value =
            self.get(index).ok_or(SnapshotError::Damaged("it is shorter than its header"))?;
        // No page has more than 2^24 words. The bound keeps the arithmetic below from overflowing.
        if value > 1 << 24 {
            return Err(SnapshotError::Damaged("a size exceeds 2^24"));
        }
        Ok(value as usize)
    }
}

impl Snapshot {
    /// Calls `read` for the bytes of a page until two calls in a row return the same even sequence
    /// number, so that all values are of one moment. After `tries` attempts the result is `Busy`.
    /// If the writer is `dead`, the result is then the torn page instead.
    ///
    /// # Errors
    /// The error of `read`, or the reason why the bytes are not a page.
    pub fn take<E: From<SnapshotError>>(
        mut read: impl FnMut() -> Result<Vec<u8>, E>,
        tries: u32,
        dead: bool,
    ) -> Result<Self, E> {
        // Two equal even sequence numbers around the values show that no write happened between the
        // two reads.
        let mut before = read()?;
        for _ in 0..tries {
            let after = read()?;
            let sequence = PageWords(&before).get(at::SEQUENCE);
            let whole = sequence.is_some_and(|s| s.is_multiple_of(2));
            // A file without a sequence word is too short; parsing it reports that.
            if sequence.is_none() || (whole && sequence == PageWords(&after).get(at::SEQUENCE)) {
                return Ok(Self::parse(&before)?);
            }
            before = after;
        }
        if !dead {
            return Err(SnapshotError::Busy.into());
        }
        Ok(Self { torn: true, ..Self::parse(&before)? })
    }

    /// Parses the bytes of a page.
    ///
    /// # Errors
    /// The reason why they are not a page.
    pub fn parse(bytes: &[u8]) -> Result<Self, SnapshotError> {
        use SnapshotError::Damaged;
        let words = PageWords(bytes);
        if words.get(at::MAGIC) != Some(MAGIC) {
            return Err(SnapshotError::Foreign);
        }
        match words.get(at::VERSION) {
            Some(VERSION) => {}
            other => return Err(SnapshotError::Version(other.unwrap_or(0))),
        }
        let [text, n, flow_words, places, here] =
            [at::TEXT, at::COUNTERS, at::FLOW_WORDS, at::FLOW_PLACES, at::FLOWS_HERE]
                .map(|place| words.size(place));
        let (text, n, flow_words, places, here) = (text?, n?, flow_words?, places?, here?);
        let values = (at::VALUES + n)
            .checked_add(flow_words.checked_mul(places).ok_or(Damaged("its sizes overflow"))?)
            .ok_or(Damaged("its sizes overflow"))?;
        let begin = values.checked_mul(8).ok_or(Damaged("its sizes overflow"))?;
        let text = bytes.get(begin..).and_then(|rest| rest.get(..text));
        let text = text.ok_or(Damaged("it ends before its description does"))?;
        let description: Description =
            serde_json::from_slice(text).map_err(|_| Damaged("its description cannot be read"))?;
        // The numbers of the header are used for positions, so the description must have as many
        // names.
        if description.counters.len() != n || description.flow.len() != flow_words || here > places
        {
            return Err(Damaged("its description does not match its values"));
        }
        let value = |index: usize| words.get(index).unwrap_or(0);
        let first = at::VALUES + n;
        Ok(Self {
            description,
            written: value(at::WRITTEN),
            counters: (at::VALUES..first).map(value).collect(),
            flow_count: value(at::FLOWS),
            flows: (0..here)
                .map(|i| (0..flow_words).map(|j| value(first + i * flow_words + j)).collect())
                .collect(),
            torn: false,
        })
    }

    /// Returns the counters of the page with their descriptions.
    pub fn counters(&self) -> impl Iterator<Item = (&Counter, u64)> {
        self.description.counters.iter().zip(self.counters.iter().copied())
    }

    /// Returns the value of a counter by its name, or 0 if the page has no such counter.
    #[must_use]
    pub fn counter(&self, name: &str) -> u64 {
        self.counters().find(|(row, _)| row.name == name).map_or(0, |(_, value)| value)
    }

    /// Returns the value of a flow with this name; `None` if the page has no such value.
    #[must_use]
    pub fn flow_value(&self, flow: &[u64], name: &str) -> Option<u64> {
        let at = self.description.flow.iter().position(|known| known == name)?;
        flow.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use squall_base::{CounterRow, Merge};

    use super::*;
    use crate::{JobPlace, PageLayout, StatisticsPage, StatisticsPageError};

    fn counter(name: &'static str, unit: &'static str, merge: Merge) -> Counter {
        Counter::new(&CounterRow { name, unit, merge, help: "It is \"counted\"." })
    }

    fn description() -> Description {
        Description {
            pid: 7,
            started: 99,
            endpoint: 1,
            local: "[fe80::1%2]:4793".to_owned(),
            interface: "eth0".to_owned(),
            host: "n1".to_owned(),
            program: "a \"quoted\" name".to_owned(),
            version: "0.1.0".to_owned(),
            made: 5,
            choices: vec![("cc".to_owned(), "nscc".to_owned())],
            place: JobPlace { job: "j".to_owned(), rank: Some(3), ranks: None },
            counters: vec![
                counter("tx_packets", "packets", Merge::Sum),
                counter("rtt_min_ns", "ns", Merge::Min),
            ],
            flow: ["peer", "bytes", "cwnd"].map(str::to_owned).to_vec(),
        }
    }

    fn memory(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    fn bytes(words: &[AtomicU64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.load(Ordering::SeqCst).to_ne_bytes()).collect()
    }

    #[test]
    fn written_values_are_read_back() {
        let layout = PageLayout::new(&description(), 2);
        let words = memory(layout.words());
        let page = StatisticsPage::create(layout.clone(), &words).expect("room");
        let empty = Snapshot::parse(&bytes(&words)).expect("a page");
        assert_eq!((empty.written, empty.flows.len(), empty.counter("tx_packets")), (0, 0, 0));
        assert_eq!(empty.description, description());
        let flows = vec![vec![1, 2, 3], vec![4, 5, 6], vec![7, 8, 9]];
        page.write(&words, 1234, [10, 20], (3, flows));
        let shown = Snapshot::parse(&bytes(&words)).expect("a page");
        assert_eq!((shown.written, shown.flow_count, shown.torn), (1234, 3, false));
        assert_eq!(shown.flows, [vec![1, 2, 3], vec![4, 5, 6]], "as many as there are places");
        assert_eq!((shown.counter("tx_packets"), shown.counter("rtt_min_ns")), (10, 20));
        assert_eq!(
            (shown.counter("other"), shown.flow_value(&shown.flows[1], "cwnd")),
            (0, Some(6))
        );
        page.write(&words, 1235, [11, 20], (0, Vec::<Vec<u64>>::new()));
        assert!(Snapshot::parse(&bytes(&words)).expect("a page").flows.is_empty());
        let small = memory(layout.words() - 1);
        let refused = StatisticsPage::create(layout, &small).expect_err("no room");
        assert_eq!(
            refused,
            StatisticsPageError::TooSmall { needed: words.len(), there: small.len() }
        );
    }

    #[test]
    fn damaged_pages_are_refused() {
        let layout = PageLayout::new(&description(), 2);
        let words = memory(layout.words());
        StatisticsPage::create(layout, &words).expect("room").write(
            &words,
            1,
            [1, 2],
            (1, [[1, 2, 3]]),
        );
        let good = bytes(&words);
        assert!(Snapshot::parse(&good).is_ok());
        for end in 0..good.len() - 8 {
            assert!(Snapshot::parse(&good[..end]).is_err(), "cut at {end}");
        }
        for word in [at::TEXT, at::COUNTERS, at::FLOW_WORDS, at::FLOW_PLACES, at::FLOWS_HERE] {
            for value in [4, 1 << 20, 1 << 40, u64::MAX] {
                let mut bad = good.clone();
                bad[word * 8..word * 8 + 8].copy_from_slice(&value.to_ne_bytes());
                assert!(Snapshot::parse(&bad).is_err(), "{value} at {word}");
            }
        }
        assert_eq!(Snapshot::parse(&[0; 4096]), Err(SnapshotError::Foreign));
        let mut other = good;
        other[8..16].copy_from_slice(&9u64.to_ne_bytes());
        assert_eq!(Snapshot::parse(&other), Err(SnapshotError::Version(9)));
    }

    /// A writer that never stops, and a reader: counters that are written as equals are read as equals.
    #[test]
    fn a_snapshot_is_of_one_moment() {
        let layout = PageLayout::new(&description(), 2);
        let words = Arc::new(memory(layout.words()));
        let page = StatisticsPage::create(layout, &words).expect("room");
        let stop = Arc::new(AtomicBool::new(false));
        let writer = std::thread::spawn({
            let (words, stop) = (Arc::clone(&words), Arc::clone(&stop));
            move || {
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    page.write(&words, n, [n, n], (1, [[n, n, n]]));
                    if n.is_multiple_of(64) {
                        std::thread::yield_now();
                    }
                }
            }
        });
        let mut snapshots = 0;
        for _ in 0..2000 {
            let read = || Ok::<_, SnapshotError>(bytes(&words));
            if let Ok(shown) = Snapshot::take(read, 100, false) {
                snapshots += 1;
                let n = shown.written;
                assert_eq!(shown.counters, [n, n]);
                assert!(shown.flows.iter().all(|flow| flow == &[n, n, n]), "{shown:?}");
            }
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("no panic");
        assert!(snapshots > 0);
    }

    /// A reader in the middle of a publication finds the old values, the new ones, or that they are being written.
    #[test]
    fn a_file_is_never_read_half_published() {
        fn whole(file: &[u64]) -> Vec<u8> {
            file.iter().flat_map(|word| word.to_ne_bytes()).collect()
        }
        let layout = PageLayout::new(&description(), 2);
        let words = memory(layout.words());
        let page = StatisticsPage::create(layout, &words).expect("room");
        let mut file = vec![0u64; words.len()];
        for n in 1..4 {
            page.write(&words, n, [n, n], (1, [[n, n, n]]));
            let mut steps = vec![file.clone()];
            let put = |at: usize, part: &[u64]| {
                // The words are written one after the other.
                for (to, word) in part.iter().enumerate() {
                    file[at + to] = *word;
                    steps.push(file.clone());
                }
                Ok::<_, ()>(())
            };
            assert_eq!(StatisticsPage::publish(&words, put), Ok(()));
            assert_eq!(whole(&file), bytes(&words));
            for step in &steps {
                let read = || Ok::<_, SnapshotError>(whole(step));
                let Ok(shown) = Snapshot::take(read, 1, false) else { continue };
                assert!(shown.written == n || shown.written == n - 1);
                let written = shown.written;
                assert_eq!(shown.counters, [written, written]);
                assert!(shown.flows.iter().all(|flow| flow == &[written, written, written]));
            }
        }
    }

    #[test]
    fn a_page_whose_writer_died_while_writing_is_torn() {
        let layout = PageLayout::new(&description(), 1);
        let words = memory(layout.words());
        StatisticsPage::create(layout, &words).expect("room").write(
            &words,
            1,
            [1, 2],
            (1, [[1, 2, 3]]),
        );
        words[at::SEQUENCE].store(7, Ordering::Relaxed);
        let read = || Ok::<_, SnapshotError>(bytes(&words));
        assert_eq!(Snapshot::take(read, 3, false), Err(SnapshotError::Busy));
        let shown = Snapshot::take(read, 3, true).expect("what is there");
        assert!(shown.torn && shown.counter("tx_packets") == 1);
    }
}
