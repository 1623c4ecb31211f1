//! `cargo +nightly fuzz run parse ../corpus` from this directory: no byte string panics, and what is
//! accepted is written back as it came.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../properties.rs"]
mod properties;

fuzz_target!(|bytes: &[u8]| properties::check(bytes));
