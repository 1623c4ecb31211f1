//! Which keys of a table belong to which kind: a key that decides nothing is a mistake, and is refused.

use super::SceneError;
use super::tables::{FailureTable, TopologyTable, WorkloadTable};

/// The first key that is given and that `kind` has no use for.
fn check(
    key: impl Fn(&str) -> String,
    kind: &str,
    given: &[(&str, bool)],
    used: &[&str],
) -> Result<(), SceneError> {
    match given.iter().find(|(name, given)| *given && !used.contains(name)) {
        None => Ok(()),
        Some((name, _)) => {
            let what = format!("`{kind}` has no use for it; it has for {}", used.join(", "));
            Err(SceneError { key: key(name), what })
        }
    }
}

impl TopologyTable {
    /// Refuses keys that decide nothing.
    pub(super) fn only_what_is_used(&self) -> Result<(), SceneError> {
        let given = [
            ("hosts", self.hosts.is_some()),
            ("tiers", self.tiers.is_some()),
            ("rack", self.rack.is_some()),
            ("pod", self.pod.is_some()),
            ("oversubscription", self.oversubscription.is_some()),
            ("leaves", self.leaves.is_some()),
            ("spines", self.spines.is_some()),
            ("gbps", self.gbps.is_some()),
            ("uplink_gbps", self.uplink_gbps.is_some()),
            ("link_ns", self.link_ns.is_some()),
            ("switch_ns", self.switch_ns.is_some()),
            ("far_link_ns", self.far_link_ns.is_some()),
        ];
        let kind = self.kind.as_deref().unwrap_or("file");
        let used: &[&str] = match kind {
            "fat-tree" => {
                let tree = ["hosts", "tiers", "rack", "oversubscription", "gbps"];
                let three = ["link_ns", "switch_ns", "pod"];
                let used =
                    [&tree[..], &three[..if self.tiers == Some(2) { 2 } else { 3 }]].concat();
                return check(|name| format!("topology.{name}"), kind, &given, &used);
            }
            "leaf-spine" => {
                &["leaves", "spines", "rack", "gbps", "uplink_gbps", "link_ns", "switch_ns"]
            }
            "star" => &["hosts", "gbps", "link_ns", "switch_ns", "far_link_ns"],
            "dumbbell" => &["hosts", "gbps", "uplink_gbps", "link_ns", "switch_ns", "far_link_ns"],
            "mc" => &["hosts", "gbps", "link_ns", "switch_ns"],
            "file" => &["file"],
            // Refused elsewhere.
            _ => return Ok(()),
        };
        check(|name| format!("topology.{name}"), kind, &given, used)
    }
}

impl WorkloadTable {
    /// Refuses keys that decide nothing.
    pub(super) fn only_what_is_used(&self) -> Result<(), SceneError> {
        let given = [
            ("cm_unit", self.cm_unit.is_some()),
            ("bytes", self.bytes.is_some()),
            ("larger", self.larger.is_some()),
            ("parallel", self.parallel.is_some()),
            ("apart", self.apart.is_some()),
            ("senders", self.senders.is_some()),
            ("outcast", self.outcast.is_some()),
            ("incast", self.incast.is_some()),
            ("window", self.window.is_some()),
            ("algorithm", self.algorithm.is_some()),
            ("chunk", self.chunk.is_some()),
            ("sizes", self.sizes.is_some()),
            ("points", self.points.is_some()),
            ("load", self.load.is_some()),
            ("duration_us", self.duration_us.is_some()),
            ("qps", self.qps.is_some()),
            ("bdp", self.bdp.is_some()),
            ("rtt_us", self.rtt_us.is_some()),
            ("victims", self.victims.is_some()),
            ("victim_bytes", self.victim_bytes.is_some()),
            ("receivers", self.receivers.is_some()),
            ("split", self.split.is_some()),
            ("degree", self.degree.is_some()),
            ("short_share", self.short_share.is_some()),
            ("levels", self.levels.is_some()),
            ("ranks", self.ranks.is_some()),
            ("jobs", self.jobs.is_some()),
            ("random", self.random),
            ("start_us", self.start_us > 0),
            ("jitter_ns", self.jitter_ns > 0),
            ("stagger_us", self.stagger_us.is_some()),
            ("together", self.together.is_some()),
        ];
        let file = if self.file.is_some() { "matrix" } else { "" };
        let kind = self.kind.as_deref().unwrap_or(file);
        let own: &[&str] = match kind {
            "permutation" => &["bytes", "larger", "parallel", "apart"],
            "incast" => &["bytes", "larger", "senders"],
            "outcast-incast" => &["bytes", "outcast", "incast"],
            "all-to-all" => &["bytes", "window"],
            "all-reduce" => &["bytes", "algorithm", "chunk"],
            "poisson" if self.split.is_none() => &["sizes", "points", "load", "duration_us"],
            "poisson" => &["sizes", "points", "load", "duration_us", "split", "bdp", "rtt_us"],
            "incast-mix" => &["bytes", "load", "duration_us", "degree", "short_share"],
            "parallel" => &["bytes", "qps", "victims", "victim_bytes", "receivers"],
            "staggered" => &["bytes", "bdp", "rtt_us", "victims", "victim_bytes", "receivers"],
            "shuffled-overlay" => &["bytes", "bdp", "rtt_us"],
            "trace" | "job" | "goal" => {
                return check(|name| format!("workload.{name}"), kind, &given, &["file"]);
            }
            "matrix" => {
                let used = ["file", "cm_unit"];
                return check(|name| format!("workload.{name}"), kind, &given, &used);
            }
            // Refused elsewhere.
            _ => return Ok(()),
        };
        let turns = ["stagger_us", "together"];
        let turns = &turns[..if self.stagger_us.is_some() { 2 } else { 1 }];
        let used =
            [own, &["ranks", "jobs", "levels", "random", "start_us", "jitter_ns"], turns].concat();
        check(|name| format!("workload.{name}"), kind, &given, &used)
    }
}

impl FailureTable {
    /// Refuses keys that decide nothing.
    pub(super) fn only_what_is_used(&self, key: impl Fn(&str) -> String) -> Result<(), SceneError> {
        let given = [
            ("link", self.link.is_some()),
            ("links", self.links.is_some()),
            ("of_racks", self.of_racks.is_some()),
            ("switch", self.switch.is_some()),
            ("gbps", self.gbps.is_some()),
            ("share", self.share.is_some()),
            ("probability", self.probability.is_some()),
        ];
        let kind = self.what.as_str();
        let used: &[&str] = match kind {
            "link-down" | "link-up" | "black-hole" => &["link", "links", "of_racks"],
            "rate" => &["link", "links", "of_racks", "gbps"],
            "bit-errors" => &["link", "links", "of_racks", "probability"],
            "slow" => &["links", "share"],
            "switch-down" | "switch-up" => &["switch"],
            // Refused elsewhere.
            _ => return Ok(()),
        };
        check(key, kind, &given, used)
    }
}
