//! `cargo +nightly fuzz run files` from this directory, with the kind of file in the first byte: no
//! file makes a reader panic, and every accepted one can be used. `cargo run --example files -- --samples
//! fuzz/corpus/files` in the crate's directory writes files to begin with.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../properties.rs"]
mod properties;

fuzz_target!(|bytes: &[u8]| properties::check_any(bytes));
