//! Files that the simulator reads, with random mistakes in them.

#[path = "../../fuzz/properties.rs"]
mod properties;
mod samples;

use properties::FileKind;
pub(crate) use properties::check;
use squall_base::Rng;

/// Numbers at which readers have limits.
const NUMBERS: [&str; 10] = [
    "0",
    "1",
    "-1",
    "17",
    "65536",
    "16777216",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "1e300",
];

/// Returns the mutated sample of a seed, after its kind.
pub(crate) fn mutated_sample(seed: u64) -> (FileKind, Vec<u8>) {
    let mut rng = Rng::new(seed);
    let mut below =
        |limit: usize| rng.below(u32::try_from(limit.max(1)).unwrap_or(u32::MAX)) as usize;
    let samples = samples::all();
    let (kind, sample) = &samples[below(samples.len())];
    let (_, other) = &samples[below(samples.len())];
    let mut bytes = sample.clone();
    for _ in 0..below(8) {
        let (at, length) = (below(bytes.len() + 1), 1 + below(24));
        let end = (at + length).min(bytes.len());
        match below(10) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let part = bytes[at..end].to_vec();
                let to = below(bytes.len() + 1);
                bytes.splice(to..to, part);
            }
            3 => {
                let from = below(other.len());
                let part = other[from..(from + length).min(other.len())].to_vec();
                bytes.splice(at..end, part);
            }
            4 | 5 => replace_number(&mut bytes, at, NUMBERS[below(NUMBERS.len())]),
            6 if at < bytes.len() => bytes[at] ^= 1 << below(8),
            7 if at < bytes.len() => bytes[at] = [0, 1, 8, 127, 128, 255][below(6)],
            8 if at < bytes.len() => bytes[at] = bytes[at].wrapping_add(1),
            9 if at < bytes.len() => bytes[at] = bytes[at].wrapping_sub(1),
            _ => {}
        }
    }
    (*kind, bytes)
}

/// Returns the samples as the fuzz target reads them, with their kind in front.
#[allow(dead_code)] // for the example
pub(crate) fn fuzz_samples() -> Vec<Vec<u8>> {
    let kind = |kind| FileKind::ALL.iter().position(|of| *of == kind).unwrap_or(0) as u8;
    samples::all().into_iter().map(|(of, file)| [vec![kind(of)], file].concat()).collect()
}

/// Replaces the first number behind a place.
fn replace_number(bytes: &mut Vec<u8>, at: usize, number: &str) {
    let digit = |byte: &u8| byte.is_ascii_digit();
    if let Some(first) = bytes[at..].iter().position(digit) {
        let first = at + first;
        let length = bytes[first..].iter().position(|byte| !digit(byte));
        let end = length.map_or(bytes.len(), |length| first + length);
        bytes.splice(first..end, number.bytes());
    }
}

/// `ci/run suite fuzz --mode files` reads many more.
#[test]
fn malformed_files_do_not_panic() {
    for seed in 0..20_000 {
        let (kind, bytes) = mutated_sample(seed);
        check(kind, &bytes);
    }
}
