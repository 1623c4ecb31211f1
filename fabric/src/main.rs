//! The `squall` command line.
#![forbid(unsafe_code)]

fn main() {}
