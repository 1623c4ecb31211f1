//! Replays the fuzzer's corpus. `sample_pcap --corpus` writes the samples among its files; the
//! others were found by a fuzzer.

use crate::{checks, samples};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Returns name and bytes of every file.
fn corpus() -> BTreeMap<String, Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let files = fs::read_dir(dir).expect("the corpus");
    files
        .map(|file| {
            let file = file.expect("a file");
            let name = file.file_name().into_string().expect("a name");
            (name, fs::read(file.path()).expect("its bytes"))
        })
        .collect()
}

#[test]
fn no_file_shows_a_fault() {
    let corpus = corpus();
    assert!(corpus.len() > 200, "{} files", corpus.len());
    corpus.values().for_each(|bytes| checks::check(bytes));
}

#[test]
fn the_samples_are_in_the_corpus_as_they_are_built() {
    let corpus = corpus();
    for (name, bytes) in samples::all() {
        assert_eq!(corpus.get(&name), Some(&bytes), "{name}: write the corpus anew");
    }
}

#[test]
fn every_sample_is_accepted() {
    for (name, bytes) in samples::all() {
        assert!(squall_wire::parse(&bytes).is_ok(), "{name}: {:?}", squall_wire::parse(&bytes));
        checks::check(&bytes);
    }
}
