//! Reads files with random mistakes (`tests/files`):
//!
//! ```text
//! files [--mode files] [--from SEED] [--histories N] [--one SEED]
//! files --samples FOLDER           write files without mistakes, with which `fuzz` begins
//! ```
//!
//! See `reliability/tests/histories/program.rs`.
#![allow(missing_docs)]

#[path = "../../reliability/tests/histories/mod.rs"]
mod histories;
#[path = "../tests/files/mod.rs"]
mod malformed;

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use histories::Amount;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    if let [option, folder] = words.as_slice()
        && option == "--samples"
    {
        for (number, bytes) in malformed::fuzz_samples().iter().enumerate() {
            fs::write(Path::new(folder).join(number.to_string()), bytes).expect("a folder");
        }
        return ExitCode::SUCCESS;
    }
    histories::program::run(&["files"], |_, seed| {
        histories::guard::play(|| {
            let (kind, bytes) = malformed::mutated_sample(seed);
            malformed::check(kind, &bytes);
            Ok(Amount { operations: bytes.len() as u64, ..Amount::default() })
        })
    })
}
