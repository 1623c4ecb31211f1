//! The error that a build without the feature `parquet` returns instead of a Parquet file.

use std::io::{self, ErrorKind, Write};

use super::Table;

impl Table {
    /// Returns an error, because this build lacks the library that writes Parquet files.
    ///
    /// # Errors
    /// Always.
    pub fn parquet(&self, _: &mut dyn Write) -> io::Result<()> {
        Self::check_parquet()
    }

    /// Returns an error if this build cannot write Parquet files.
    ///
    /// # Errors
    /// Always in this build.
    pub fn check_parquet() -> io::Result<()> {
        let what = "no Parquet file can be written: this program was built without the feature `parquet`; \
                    build it with `cargo build --features parquet`, or use CSV";
        Err(io::Error::new(ErrorKind::Unsupported, what))
    }
}
