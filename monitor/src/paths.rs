//! The values of each path of a flow: words named `path0_packets`, `path0_marks`, `path0_lost`,
//! `path1_packets` and so on.

use crate::Snapshot;

/// Name and meaning of each value that a page has for a path of a flow.
pub const PATH: [(&str, &str); 3] = [
    ("packets", "Data packets sent on the path."),
    (
        "marks",
        "Acknowledgements of packets on the path that reported a mark (Congestion Experienced).",
    ),
    ("lost", "Packets sent on the path that were retransmitted, on this or another path."),
];

/// Number of flows of an endpoint, those with the most bytes, whose paths are exported to
/// collectors such as Prometheus. The bound keeps the number of exported series small.
pub const COLLECTED_FLOWS: usize = 16;

/// The values of a path, in the order of [`PATH`].
pub type PathValues = [u64; PATH.len()];

/// Returns the names of the words that a flow with `paths` paths has on a page for them.
pub fn path_words(paths: usize) -> impl Iterator<Item = String> {
    (0..paths).flat_map(|path| PATH.iter().map(move |(name, _)| word(path, name)))
}

/// Returns whether the word of a flow with this name belongs to one of its paths.
#[must_use]
pub fn is_path_word(name: &str) -> bool {
    let rest = name.strip_prefix("path").and_then(|rest| rest.split_once('_'));
    rest.is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn word(path: usize, name: &str) -> String {
    format!("path{path}_{name}")
}

impl Snapshot {
    /// Returns the values of each path of a flow, in the order of the paths.
    #[must_use]
    pub fn path_values(&self, flow: &[u64]) -> Vec<PathValues> {
        let of = |path: usize| {
            let mut values = [0; PATH.len()];
            for (value, (name, _)) in values.iter_mut().zip(PATH) {
                *value = self.flow_value(flow, &word(path, name))?;
            }
            Some(values)
        };
        (0..).map_while(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Description, JobPlace};

    #[test]
    fn words_of_paths_are_found_again() {
        let words: Vec<String> = path_words(2).collect();
        let expected = [
            "path0_packets",
            "path0_marks",
            "path0_lost",
            "path1_packets",
            "path1_marks",
            "path1_lost",
        ];
        assert_eq!(words, expected);
        assert!(words.iter().all(|word| is_path_word(word)));
        assert!(!["paths", "path_bits", "pathx_lost", "peer"].into_iter().any(is_path_word));
        let description = Description {
            pid: 1,
            started: 1,
            endpoint: 0,
            local: String::new(),
            interface: String::new(),
            host: String::new(),
            program: String::new(),
            version: String::new(),
            made: 0,
            choices: Vec::new(),
            place: JobPlace::default(),
            counters: Vec::new(),
            flow: std::iter::once("peer".to_owned()).chain(words).collect(),
        };
        let shown = Snapshot {
            description,
            written: 1,
            counters: Vec::new(),
            flow_count: 1,
            flows: vec![vec![9, 1, 2, 3, 4, 5, 6]],
            torn: false,
        };
        assert_eq!(shown.path_values(&shown.flows[0]), [[1, 2, 3], [4, 5, 6]]);
    }
}
