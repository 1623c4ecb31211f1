//! Reads topologies and workloads from a word: `fat-tree:128:4`, `incast:32x2MiB`,
//! `poisson:websearch:0.5,duration_us=1000`.
//!
//! A word is a kind, then the values that every one of that kind needs, then further keys of the
//! plan's table as `key=value`. So a word can express everything that a plan can.

use thiserror::Error;
use toml::Table;

use super::SceneError;
use super::topology::TopologyTable;
use super::workload::WorkloadTable;
use crate::shipped;

/// A kind of topology or workload, and the keys whose values follow it in a word, in this order.
type Kind = (&'static str, &'static [&'static str]);

const TOPOLOGIES: &[Kind] = &[
    ("fat-tree", &["hosts", "oversubscription"]),
    ("leaf-spine", &["leaves", "spines", "rack"]),
    ("star", &["hosts"]),
    ("dumbbell", &["hosts"]),
    ("mc", &["hosts"]),
];

const WORKLOADS: &[Kind] = &[
    ("permutation", &["bytes"]),
    ("incast", &["senders", "bytes"]),
    ("all-to-all", &["bytes", "window"]),
    ("all-reduce", &["algorithm", "bytes"]),
    ("poisson", &["sizes", "load", "duration_us"]),
    ("training", &["data"]),
];

/// The reason why a word describes no topology or workload.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{word}: {what}")]
pub struct WordError {
    word: String,
    what: String,
}

impl WordError {
    /// Creates the error for text that is neither the name of a file nor such a word.
    fn neither(word: &str, words: &str) -> Self {
        let what = format!("there is no such file; expected a file or one of {words}");
        Self { word: word.to_owned(), what }
    }
}

impl TopologyTable {
    /// Creates the error for text that is neither the name of a file nor a topology in a word.
    #[must_use]
    pub fn neither(word: &str) -> WordError {
        let names = shipped::topologies().collect::<Vec<_>>().join(", ");
        WordError::neither(word, &format!("{}, {names}", forms(TOPOLOGIES)))
    }

    /// Returns the topology that a word names: one of a kind, or one that the program contains
    /// (`fat-320`). Returns `None` for any other text, which may be a file.
    ///
    /// # Errors
    /// The mistake in the values behind the kind.
    pub fn from_word(word: &str) -> Option<Result<Self, WordError>> {
        read(word, TOPOLOGIES, Self::read)
            .or_else(|| shipped::topology(word).map(|file| Ok(Self::File(file))))
    }
}

impl WorkloadTable {
    /// Creates the error for text that is neither the name of a file nor a workload in a word.
    #[must_use]
    pub fn neither(word: &str) -> WordError {
        WordError::neither(word, &forms(WORKLOADS))
    }

    /// Returns the workload that a word names; `None` for text that begins with no kind.
    ///
    /// # Errors
    /// The mistake in the values behind the kind.
    pub fn from_word(word: &str) -> Option<Result<Self, WordError>> {
        read(word, WORKLOADS, Self::read)
    }
}

fn forms(kinds: &[Kind]) -> String {
    let form = |(kind, keys): &Kind| format!("{kind}:{}", keys.join(":").to_uppercase());
    kinds.iter().map(form).collect::<Vec<_>>().join(", ")
}

/// Splits the text behind a kind into values. They are separated by `:` or, behind a number, by
/// `x`: `32x2MiB` are two values, `4x2x2` three.
fn values(text: &str) -> Vec<&str> {
    let mut values = Vec::new();
    for mut part in text.split(':').filter(|part| !part.is_empty()) {
        while let Some((number, rest)) = part.split_once('x')
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
        {
            values.push(number);
            part = rest;
        }
        values.push(part);
    }
    values
}

fn read<T>(
    word: &str,
    kinds: &[Kind],
    table_of: impl Fn(Table) -> Result<T, SceneError>,
) -> Option<Result<T, WordError>> {
    let (front, keyed) = word.split_once(',').unwrap_or((word, ""));
    let (name, behind) = front.split_once(':').unwrap_or((front, ""));
    let (kind, keys) = kinds.iter().find(|(kind, _)| *kind == name)?;
    let fault = |what: String| WordError { word: word.to_owned(), what };
    let mut table = Table::new();
    table.insert("kind".to_owned(), (*kind).into());
    let given = values(behind);
    if given.len() > keys.len() {
        return Some(Err(fault(format!("expected {}", forms(&[(kind, keys)])))));
    }
    let pairs = keys.iter().copied().zip(given);
    let pairs = pairs
        .map(Some)
        .chain(keyed.split(',').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=')));
    for pair in pairs {
        let Some((key, text)) = pair else {
            return Some(Err(fault("expected key=value behind a comma".to_owned())));
        };
        if table.insert(key.to_owned(), value(text)).is_some() {
            return Some(Err(fault(format!("{key} is given twice; keep one"))));
        }
    }
    Some(table_of(table).map_err(|error| fault(error.to_string())))
}

/// Returns a value in a word as TOML has it: a number, a boolean or a text.
fn value(text: &str) -> toml::Value {
    let number = text.parse::<i64>().map(toml::Value::from);
    let number = number.or_else(|_| text.parse::<f64>().map(toml::Value::from));
    number.unwrap_or_else(|_| match text {
        "true" => true.into(),
        "false" => false.into(),
        _ => text.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{LinkTable, TopologyKind};
    use squall_netsim::Bytes;
    use squall_netsim::workload::{Distribution, JobOptions, Pattern, Spec};

    #[test]
    fn words_are_what_plans_say() {
        let tree = TopologyTable::from_word("fat-tree:128:4,tiers=2,gbps=400").expect("a kind");
        let kind = TopologyKind::FatTree {
            hosts: 128,
            oversubscription: 4,
            tiers: 2,
            rack: None,
            pod: None,
        };
        let links = LinkTable { gbps: Some(400), ..LinkTable::default() };
        assert_eq!(tree, Ok(TopologyTable::Built { kind, links }));
        let built = |kind| Some(Ok(TopologyTable::Built { kind, links: LinkTable::default() }));
        let star = TopologyKind::Star { hosts: 17, far_link_ns: None };
        assert_eq!(TopologyTable::from_word("star:17"), built(star));
        let leaves = |rails| TopologyKind::LeafSpine {
            leaves: 4,
            spines: 2,
            rack: 8,
            uplink_gbps: None,
            rails,
        };
        assert_eq!(TopologyTable::from_word("leaf-spine:4x2x8"), built(leaves(None)));
        let rails = "leaf-spine:4x2x8,rails=2,planes=4";
        let links = LinkTable { planes: Some(4), ..LinkTable::default() };
        let table = TopologyTable::Built { kind: leaves(Some(2)), links };
        assert_eq!(TopologyTable::from_word(rails), Some(Ok(table.clone())));
        let built_rails = table.build(std::path::Path::new("")).expect("possible");
        assert_eq!((built_rails.hosts, built_rails.planes()), (16, 8));
        let incast = Pattern::Incast { senders: 32, bytes: Bytes(2 << 20), larger: None };
        let incast = Some(Ok(WorkloadTable::Generated(Spec::new(incast))));
        assert_eq!(WorkloadTable::from_word("incast:32x2MiB"), incast);
        assert_eq!(WorkloadTable::from_word("incast:32:2MiB"), incast);
        assert_eq!(WorkloadTable::from_word("incast:32x2M"), incast);
        let word = "poisson:websearch:0.5,duration_us=1000,random=true";
        let poisson = Pattern::Poisson {
            sizes: Distribution::by_name("websearch").expect("a name"),
            load: 0.5,
            duration_us: 1000,
            split: None,
            bdp: None,
            rtt_us: None,
        };
        let options = JobOptions { random: true, ..JobOptions::default() };
        let poisson = WorkloadTable::Generated(Spec { pattern: poisson, options });
        assert_eq!(WorkloadTable::from_word(word), Some(Ok(poisson)));
    }

    /// Hosts, links and base round trip of the papers' networks.
    #[test]
    fn networks_of_papers_have_names() {
        use squall_netsim::topology::Topology;
        let built = |word: &str| -> Topology {
            let table = TopologyTable::from_word(word).expect("a name").expect("sound");
            table.build(std::path::Path::new("")).expect(word)
        };
        // Snyder's thesis, Fig. 3.2: 480 links, and 12.24 us between the farthest hosts.
        let fat = built("fat-320");
        assert_eq!((fat.hosts, fat.links.len(), fat.switches.len()), (320, 480, 56));
        assert_eq!(fat.longest_route().links, 6);
        // Dart, VI-A: oversubscribed by four, 5.8 links between two hosts on average.
        for (word, hosts, links) in [("dart-1024", 1024, 6), ("dart-64", 64, 4)] {
            let clos = built(word);
            let uplinks = clos.links.len() - hosts;
            assert_eq!((clos.hosts as usize, clos.longest_route().links), (hosts, links));
            let tiers = if hosts == 64 { 1 } else { 2 };
            assert_eq!(uplinks, tiers * hosts / 4, "{word}");
        }
        assert_eq!(TopologyTable::from_word("fat-321"), None);
        assert!(TopologyTable::neither("fat-321").to_string().contains("dart-64"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(TopologyTable::from_word("tree.topo"), None);
        assert_eq!(WorkloadTable::from_word("./incast.cm"), None);
        let said = |word: &str| {
            WorkloadTable::from_word(word).expect("a kind").expect_err(word).to_string()
        };
        assert!(said("incast:32x2MiB:9").contains("expected incast:SENDERS:BYTES"));
        let unknown = said("incast:32,lenght=2");
        assert!(unknown.contains("workload.lenght: `incast` has no key `lenght`"), "{unknown}");
        let missing = said("incast:32");
        assert!(missing.contains("workload.bytes: missing, and needed by `incast`"), "{missing}");
        assert!(said("permutation:much").contains("much"), "{}", said("permutation:much"));
        assert!(said("permutation:1MiB,bytes=3").contains("bytes is given twice"));
        assert!(said("permutation,x").contains("key=value"));
        let neither = TopologyTable::neither("fattree:9").to_string();
        assert!(neither.contains("one of fat-tree:HOSTS:OVERSUBSCRIPTION, "), "{neither}");
    }
}
