// Properties of every file that the simulator reads. The fuzz target includes this file, and so do
// `tests/files` and `examples/files.rs`, which mutate files without a fuzzer.

use std::path::Path;

use squall_netsim::formats::{self, cm, topo};
use squall_netsim::workload::chakra::system::{self, CollectiveSettings};
use squall_netsim::workload::chakra::{self, ChakraOptions};
use squall_netsim::workload::{Placement, Schedule, Workload, goal, trace};

/// Number of hosts of the network on which jobs are placed.
const HOSTS: u32 = 8;
/// Networks with more hosts than this are read, and not built.
const MOST_BUILT: u32 = 1 << 12;

/// Kind of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileKind {
    /// Chakra traces of all ranks: a byte of options, and each trace behind its length (16 bits).
    Chakra,
    /// A GOAL schedule in the text form or the binary form.
    Goal,
    /// A network.
    Network,
    /// A connection matrix of htsim.
    Matrix,
    /// Messages as CSV.
    Messages,
    /// A system file of ASTRA-sim.
    System,
}

impl FileKind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Chakra, Self::Goal, Self::Network, Self::Matrix, Self::Messages, Self::System];
}

/// Reads a file whose kind is in the first byte.
#[allow(dead_code)] // for the fuzz target
pub(crate) fn check_any(bytes: &[u8]) {
    if let Some((kind, file)) = bytes.split_first() {
        check(FileKind::ALL[usize::from(*kind) % FileKind::ALL.len()], file);
    }
}

/// Reads a file, and panics if a property of the reader does not hold.
pub(crate) fn check(kind: FileKind, bytes: &[u8]) {
    let text = || String::from_utf8_lossy(bytes);
    match kind {
        FileKind::Chakra => check_chakra(bytes),
        FileKind::Goal => {
            if let Ok(schedule) = goal::parse_bytes("x.goal", bytes.to_vec()) {
                // Every operation takes a part of the file, so that a short file needs little memory.
                assert!(schedule.len() <= bytes.len(), "{} operations", schedule.len());
                place(schedule, Placement::default());
            }
        }
        FileKind::Network => check_network(&text()),
        FileKind::Matrix => {
            if let Ok(workload) = cm::read("x.cm", &text()) {
                check_workload(&workload);
                let written = cm::write(&workload);
                assert_eq!(cm::read("x.cm", &written).as_ref(), Ok(&workload), "{written}");
            }
        }
        FileKind::System => {
            if let Ok(system) = system::parse("x.json", &text()) {
                assert!(system.settings.splits > 0 && system.settings.active_splits > 0);
            }
        }
        FileKind::Messages => {
            if let Ok(workload) = trace::parse(bytes, Path::new("x.csv"), HOSTS) {
                check_workload(&workload);
            }
        }
    }
}

fn check_chakra(bytes: &[u8]) {
    let Some((&options, mut rest)) = bytes.split_first() else { return };
    let mut traces = Vec::new();
    while let (Some((length, behind)), true) = (rest.split_first_chunk(), traces.len() < 8) {
        let length = usize::from(u16::from_le_bytes(*length)).min(behind.len());
        let (trace, next) = behind.split_at(length);
        traces.push(trace);
        rest = next;
    }
    let ranks_per_host = 1 + u32::from(options & 3);
    let placement = Placement { ranks_per_host, ..Placement::default() };
    let algorithms = ["", "all-reduce=tree", "all-reduce=hierarchical", "all-reduce=direct"];
    let algorithms = algorithms[usize::from(options >> 2 & 3)].parse().expect("a choice");
    let settings = CollectiveSettings {
        splits: 1 + u32::from(options >> 4 & 3),
        ..CollectiveSettings::default()
    };
    let options = ChakraOptions { placement, algorithms, settings, ..ChakraOptions::default() };
    if let Ok(schedule) = chakra::parse("x.%d.et", &traces, &options) {
        // Bounds memory: one node can expand to a few hundred messages (8 ranks, 4 splits).
        assert!(schedule.len() <= 256 * bytes.len(), "{} operations", schedule.len());
        place(schedule, placement);
    }
}

fn check_network(text: &str) {
    if let Ok(tree) = topo::read("x.topo", text) {
        assert_eq!(topo::read("x.topo", &topo::write(&tree)).as_ref(), Ok(&tree));
        // A network of millions of hosts is possible, and takes long to build.
        if tree.hosts > MOST_BUILT || tree.tiers.iter().any(|tier| tier.radix_up > 256) {
            return;
        }
    } else if !formats::is_graph(text)
        && text.split(|c: char| !c.is_ascii_digit()).any(|n| n.len() > 3)
    {
        return;
    }
    let Ok(topology) = formats::topology("x", text) else { return };
    assert!(topology.hosts < MOST_BUILT || formats::is_graph(text));
    if topology.check().is_ok() && topology.links.iter().all(|link| link.rate.0 % 1_000_000 == 0) {
        let written = formats::graph::write(&topology);
        assert_eq!(formats::topology("x", &written).as_ref(), Ok(&topology), "{written}");
    }
}

/// Places a job on a network. An error is a valid result; a panic is not.
fn place(schedule: Schedule, placement: Placement) {
    if let Ok((_, workload)) = schedule.place(placement, HOSTS) {
        check_workload(&workload);
    }
}

/// Checks that every message of a workload that was read starts.
fn check_workload(workload: &Workload) {
    assert_eq!(workload.check(), Ok(()));
}
