//! Which flows there are, and when each of them starts: at a time, or when others are done.

use core::fmt;

/// When a flow starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// At this time, picoseconds.
    At(u64),
    /// When this trigger fires: an index into [`Workload::triggers`].
    Trigger(u32),
}

/// How often a trigger must be pulled before it fires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TriggerKind {
    /// At the first pull starts all its flows; further pulls do nothing.
    OneShot,
    /// Each pull starts the next one of its flows, in the order of [`Workload::flows`].
    MultiShot,
    /// At the pull of this number starts all its flows.
    Barrier(u32),
}

/// What flows pull when they are done, and what starts others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trigger {
    /// Its number in a connection matrix.
    pub id: u32,
    /// How often it must be pulled.
    pub kind: TriggerKind,
}

/// So many bytes from one host to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Its number in a connection matrix: unique, above zero.
    pub id: u32,
    /// The sending host.
    pub src: u32,
    /// The receiving host.
    pub dst: u32,
    /// Payload bytes.
    pub bytes: u64,
    /// When it starts.
    pub start: Start,
    /// Pulled when the sender knows that everything arrived: an index into [`Workload::triggers`].
    pub on_sent: Option<u32>,
    /// Pulled when everything arrived: an index into [`Workload::triggers`].
    pub on_received: Option<u32>,
    /// Which job it belongs to, for reports.
    pub job: u16,
}

/// Flows between hosts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Workload {
    /// Hosts there must at least be.
    pub hosts: u32,
    /// All flows.
    pub flows: Vec<Flow>,
    /// All triggers.
    pub triggers: Vec<Trigger>,
}

/// Why a workload makes no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkloadError {
    /// A flow's end is not a host.
    NoSuchHost {
        /// The flow's number.
        flow: u32,
        /// The host it names.
        host: u32,
        /// Hosts there are.
        hosts: u32,
    },
    /// A flow goes from a host to itself.
    ToItself {
        /// The flow's number.
        flow: u32,
    },
    /// A flow of no bytes.
    Empty {
        /// The flow's number.
        flow: u32,
    },
    /// A flow names a trigger that does not exist.
    NoSuchTrigger {
        /// The flow's number.
        flow: u32,
        /// The index it names.
        trigger: u32,
    },
    /// Two flows of one number.
    Twice {
        /// The number.
        flow: u32,
    },
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoSuchHost { flow, host, hosts } => {
                write!(f, "flow {flow} names host {host}; hosts are 0 to {}", i64::from(hosts) - 1)
            }
            Self::ToItself { flow } => write!(f, "flow {flow} goes from a host to itself"),
            Self::Empty { flow } => write!(f, "flow {flow} has no bytes; 1 or more are needed"),
            Self::NoSuchTrigger { flow, trigger } => {
                write!(f, "flow {flow} names trigger number {trigger} of the list, which has fewer")
            }
            Self::Twice { flow } => write!(f, "two flows have the number {flow}"),
        }
    }
}

impl core::error::Error for WorkloadError {}

impl Workload {
    /// Whether it makes sense.
    ///
    /// # Errors
    /// The first thing that does not.
    pub fn check(&self) -> Result<(), WorkloadError> {
        let mut seen = std::collections::HashSet::with_capacity(self.flows.len());
        for flow in &self.flows {
            let id = flow.id;
            for host in [flow.src, flow.dst] {
                if host >= self.hosts {
                    return Err(WorkloadError::NoSuchHost { flow: id, host, hosts: self.hosts });
                }
            }
            if flow.src == flow.dst {
                return Err(WorkloadError::ToItself { flow: id });
            }
            if flow.bytes == 0 {
                return Err(WorkloadError::Empty { flow: id });
            }
            let start = match flow.start {
                Start::At(_) => None,
                Start::Trigger(trigger) => Some(trigger),
            };
            for trigger in [start, flow.on_sent, flow.on_received].into_iter().flatten() {
                if trigger as usize >= self.triggers.len() {
                    return Err(WorkloadError::NoSuchTrigger { flow: id, trigger });
                }
            }
            if !seen.insert(id) {
                return Err(WorkloadError::Twice { flow: id });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(id: u32, src: u32, dst: u32) -> Flow {
        let start = Start::At(0);
        Flow { id, src, dst, bytes: 1, start, on_sent: None, on_received: None, job: 0 }
    }

    #[test]
    fn nonsense_is_named() {
        let good = Workload { hosts: 2, flows: vec![flow(1, 0, 1)], triggers: Vec::new() };
        assert_eq!(good.check(), Ok(()));
        let bad = |flows: Vec<Flow>| Workload { flows, ..good.clone() }.check().unwrap_err();
        assert_eq!(bad(vec![flow(3, 0, 2)]).to_string(), "flow 3 names host 2; hosts are 0 to 1");
        assert_eq!(bad(vec![flow(3, 1, 1)]), WorkloadError::ToItself { flow: 3 });
        assert_eq!(bad(vec![flow(3, 0, 1), flow(3, 1, 0)]), WorkloadError::Twice { flow: 3 });
        let empty = Flow { bytes: 0, ..flow(3, 0, 1) };
        assert_eq!(bad(vec![empty]), WorkloadError::Empty { flow: 3 });
        let lost = Flow { start: Start::Trigger(0), ..flow(3, 0, 1) };
        assert_eq!(bad(vec![lost]), WorkloadError::NoSuchTrigger { flow: 3, trigger: 0 });
    }
}
