//! The defaults of a scene's tables: each is filled in where the kind has a use for it, and stated nowhere else.

use super::tables::{Scene, TopologyTable, WorkloadTable};
use squall_netsim::Bytes;
use squall_netsim::settings::Settings;

impl TopologyTable {
    /// With the defaults of what was left out.
    pub(super) fn filled(&self) -> Self {
        if self.file.is_some() {
            return self.clone();
        }
        let tree = self.kind.as_deref() == Some("fat-tree");
        // As htsim's; and section 6.1.4 of Snyder's thesis, where 150 cycles of 16 bytes are 96 ns.
        let (gbps, link_ns, switch_ns) = match self.kind.as_deref() {
            Some("mc") => (200, 0, 96),
            _ => (100, 1000, 0),
        };
        Self {
            tiers: self.tiers.or(tree.then_some(3)),
            oversubscription: self.oversubscription.or(tree.then_some(1)),
            gbps: self.gbps.or(Some(gbps)),
            link_ns: self.link_ns.or(Some(link_ns)),
            switch_ns: self.switch_ns.or(Some(switch_ns)),
            ..self.clone()
        }
    }
}

impl WorkloadTable {
    /// With the defaults of what was left out.
    pub(super) fn filled(&self) -> Self {
        if self.file.is_some() {
            return self.clone();
        }
        let of = |kinds: &[&str]| self.kind.as_deref().is_some_and(|kind| kinds.contains(&kind));
        let attack = of(&["parallel", "staggered"]);
        Self {
            parallel: self.parallel.or(of(&["permutation"]).then_some(1)),
            apart: self.apart.clone().or(of(&["permutation"]).then(|| "hosts".to_owned())),
            window: self.window.or(of(&["all-to-all"]).then_some(1)),
            // As STrack, section 4.3.
            chunk: self.chunk.or(of(&["all-reduce"]).then_some(Bytes(128 << 10))),
            short_share: self.short_share.or(of(&["incast-mix"]).then_some(0.4)),
            degree: self.degree.or(of(&["incast-mix"]).then_some(16)),
            bytes: self.bytes.or(of(&["incast-mix"]).then_some(Bytes(1_000_000))),
            victims: self.victims.or(attack.then_some(1)),
            victim_bytes: self.victim_bytes.or(self.bytes.filter(|_| attack)),
            receivers: self.receivers.or(attack.then_some(1)),
            jobs: self.jobs.or(Some(1)),
            levels: self.levels.or(Some(1)),
            together: self.together.or(self.stagger_us.is_some().then_some(1)),
            ..self.clone()
        }
    }
}

impl Scene {
    /// What it says of topology, load, failures and what is recorded, defaults and all.
    pub(super) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.set_table("topology", &self.topology.filled());
        settings.set_table("workload", &self.workload.filled());
        if !self.failure.is_empty() {
            settings.set_table("failure", &self.failure);
        }
        settings.set_table("observe", &self.observe);
        settings
    }
}
