//! What an endpoint shows of itself while it runs.
//!
//! A *statistics page* is a small file in memory: the endpoint writes its counters into it now and then ([`StatisticsPage`]), and
//! whoever may read the file takes a [`Snapshot`] of it. It says itself what its values are called ([`Description`]), so
//! that a reader of another build understands it. Who dies leaves its page behind, with what was written last.
//!
//! The layout, in words of 64 bits and the byte order of the machine:
//!
//! | word | what |
//! |---|---|
//! | 0 | [`MAGIC`] |
//! | 1 | [`VERSION`] |
//! | 2 | sequence: odd while values are being written |
//! | 3 | bytes of the description |
//! | 4, 5, 6 | counters, words of a flow, places for flows |
//! | 7 | when the values were written, ns since 1970 |
//! | 8 | flows there are, perhaps more than places |
//! | 9 | flows written |
//! | 10.. | counters, then flows, then the description as JSON |
//!
//! Besides, an endpoint may write a [`trace`] of what its application does, for those who replay it.
//!
//! This crate does no I/O: a page is a slice of atomic words, and [`StatisticsPage::publish`] decides in which order they go
//! into a file.
#![forbid(unsafe_code)]

mod description;
mod page;
mod page_files;
mod paths;
mod snapshot;
pub mod trace;

pub use description::{Counter, Description, JobPlace};
pub use page::{PageLayout, StatisticsPage, StatisticsPageError};
pub use page_files::{
    ADDRESS, address_of, address_words, directory, file_name, process_of, start_ticks,
};
pub use paths::{COLLECTED_FLOWS, PATH, PathValues, is_path_word, path_words};
pub use snapshot::{Flow, Snapshot, SnapshotError};

/// The first word of a page.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"sqlboard");
/// Changes whenever the words before the description mean something else.
pub const VERSION: u64 = 1;

/// Places of the words.
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
