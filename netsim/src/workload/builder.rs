//! Builder of workloads: numbers flows and triggers, and maps the ranks of a job to hosts.

use super::{Flow, Start, Trigger, TriggerKind, Workload, WorkloadError};

/// A workload that is being built. Ranks are indices in `placement`, which holds their hosts.
pub(super) struct Builder {
    workload: Workload,
    placement: Vec<u32>,
    job: u16,
    /// Service levels that flows take in turn, at least one.
    levels: u8,
}

impl Builder {
    pub(super) fn new(hosts: u32, levels: u8) -> Self {
        let workload = Workload { hosts, ..Workload::default() };
        Self { workload, placement: (0..hosts).collect(), job: 0, levels: levels.max(1) }
    }

    /// Places the ranks of further flows on these hosts, and assigns these flows to `job`.
    pub(super) fn place(&mut self, job: u16, placement: Vec<u32>) {
        (self.job, self.placement) = (job, placement);
    }

    /// Assigns further flows to `job`, on the same hosts.
    pub(super) fn set_job(&mut self, job: u16) {
        self.job = job;
    }

    /// Adds a flow between ranks. Returns its index in the workload.
    pub(super) fn flow(&mut self, src: u32, dst: u32, bytes: u64, start: Start) -> usize {
        let index = self.workload.flows.len();
        let id = u32::try_from(index + 1).unwrap_or(u32::MAX);
        self.workload.flows.push(Flow {
            id,
            src: self.placement[src as usize],
            dst: self.placement[dst as usize],
            bytes,
            start,
            on_started: None,
            on_sent: None,
            on_received: None,
            job: self.job,
            // The remainder is below `levels`.
            level: (index % usize::from(self.levels)) as u8,
        });
        index
    }

    /// Adds a trigger. Returns its index.
    pub(super) fn trigger(&mut self, kind: TriggerKind) -> u32 {
        let index = u32::try_from(self.workload.triggers.len()).unwrap_or(u32::MAX);
        self.workload.triggers.push(Trigger {
            id: index.saturating_add(1),
            kind,
            delay: 0,
            processor: None,
        });
        index
    }

    /// Makes flow `index` activate `trigger` when it is sent.
    pub(super) fn on_sent(&mut self, index: usize, trigger: u32) {
        self.workload.flows[index].on_sent = Some(trigger);
    }

    /// Makes flow `index` activate `trigger` when it is received.
    pub(super) fn on_received(&mut self, index: usize, trigger: u32) {
        self.workload.flows[index].on_received = Some(trigger);
    }

    pub(super) fn finish(self) -> Workload {
        self.workload
    }
}

/// Returns the error that `value` of `parameter` is not among the `allowed` ones.
pub(super) fn refuse(
    parameter: &'static str,
    value: &impl ToString,
    allowed: impl Into<String>,
) -> WorkloadError {
    WorkloadError::Parameter { parameter, given: value.to_string(), allowed: allowed.into() }
}
