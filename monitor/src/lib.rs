//! The statistics page of an endpoint: its layout, a writer and a reader.
//!
//! A *statistics page* is a small file in memory. The endpoint writes its counters into it a few
//! times a second ([`StatisticsPage`]), and a process with permission to read the file takes a
//! [`Snapshot`] of it. The page contains the names of its values ([`Description`]), so that a
//! reader of another build understands it. When a process crashes, its page stays behind with the
//! values that it wrote last.
//!
//! The layout, in words of 64 bits and the byte order of the machine:
//!
//! | word | contents |
//! |---|---|
//! | 0 | [`MAGIC`] |
//! | 1 | [`VERSION`] |
//! | 2 | sequence number, odd while values are being written |
//! | 3 | length of the description in bytes |
//! | 4, 5, 6 | number of counters, words per flow, room for flows |
//! | 7 | time of the values, ns since 1970 |
//! | 8 | number of flows, which may exceed the room |
//! | 9 | number of flows written |
//! | 10.. | counters, then flows, then the description as JSON |
//!
//! Two other formats are here: the events of an application, for replays ([`trace`]), and the report
//! of a process at its end ([`ProcessReport`]).
//!
//! This crate does no I/O. A page is a slice of atomic words, and [`StatisticsPage::publish`] decides
//! in which order the caller writes them into a file.
#![forbid(unsafe_code)]

mod cards;
mod description;
mod page;
mod page_files;
mod paths;
mod process_report;
mod snapshot;
pub mod trace;

pub use cards::{CARD, CARDS, CardValues, card_counter, card_counters};
pub use description::{Counter, Description, JobPlace};
pub use page::{PageLayout, StatisticsPage, StatisticsPageError};
pub use page_files::{
    ADDRESS, address_from_words, address_words, directory, file_name, process_of_file, start_ticks,
};
pub use paths::{COLLECTED_FLOWS, PATH, PathValues, is_path_word, path_words};
pub use process_report::{ProcessReport, REPORT_MARK};
pub use snapshot::{FlowValues, Snapshot, SnapshotError};

/// First word of every statistics page, by which a reader recognises one.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"sqlboard");
/// Version of the layout. Change it whenever the words before the description change their meaning.
pub const VERSION: u64 = 1;

/// Positions of the words of a statistics page, counted from its beginning.
mod at {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION: usize = 1;
    pub(crate) const SEQUENCE: usize = 2;
    pub(crate) const TEXT: usize = 3;
    pub(crate) const COUNTERS: usize = 4;
    pub(crate) const FLOW_WORDS: usize = 5;
    pub(crate) const FLOW_PLACES: usize = 6;
    pub(crate) const WRITTEN: usize = 7;
    pub(crate) const FLOWS: usize = 8;
    pub(crate) const FLOWS_HERE: usize = 9;
    pub(crate) const VALUES: usize = 10;
}
