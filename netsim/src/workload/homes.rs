//! Hosts of triggers: where triggers are activated, and where they take effect. Events that follow
//! from each other with no time in between must be simulated in the same part of the network.

use core::ops::Range;

use super::{Start, Workload};

/// Sets of triggers that are joined, and the hosts of each.
struct Sets {
    /// Parent of each trigger in its set; the top of a set is its own parent.
    above: Vec<u32>,
    /// Range of hosts of each set, at the trigger that is its top.
    hosts: Vec<Range<u32>>,
}

impl Sets {
    fn top(&mut self, mut of: u32) -> u32 {
        while self.above[of as usize] != of {
            let above = self.above[of as usize];
            self.above[of as usize] = self.above[above as usize];
            of = above;
        }
        of
    }

    fn join(&mut self, one: u32, other: u32) {
        let (one, other) = (self.top(one), self.top(other));
        if one != other {
            self.above[other as usize] = one;
            let Range { start, end } = self.hosts[other as usize].clone();
            self.widen(one, start..end);
        }
    }

    fn widen(&mut self, of: u32, hosts: Range<u32>) {
        let top = self.top(of) as usize;
        let all = &mut self.hosts[top];
        *all = all.start.min(hosts.start)..all.end.max(hosts.end);
    }
}

/// Returns the range of hosts of each trigger: see [`Workload::homes`].
pub(super) fn of(workload: &Workload) -> Vec<Range<u32>> {
    // There are fewer than 2^32 triggers.
    let count = workload.triggers.len() as u32;
    // The hosts of a set widen its range.
    let nowhere = Range { start: u32::MAX, end: 0 };
    let mut sets =
        Sets { above: (0..count).collect(), hosts: vec![nowhere; workload.triggers.len()] };
    for flow in &workload.flows {
        let starts = match flow.start {
            Start::Trigger(trigger) => Some(trigger),
            Start::At(_) => None,
        };
        let at_source = [starts, flow.on_started, flow.on_sent];
        for trigger in at_source.into_iter().flatten() {
            sets.widen(trigger, flow.src..flow.src + 1);
        }
        if let Some(trigger) = flow.on_received {
            sets.widen(trigger, flow.dst..flow.dst + 1);
        }
    }
    for dependency in &workload.dependencies {
        sets.join(dependency.from, dependency.to);
    }
    let mut busy = std::collections::HashMap::new();
    for (index, trigger) in (0..count).zip(&workload.triggers) {
        if let Some(processor) = trigger.processor {
            let first = *busy.entry(processor).or_insert(index);
            sets.join(first, index);
        }
    }
    let home = |trigger| {
        let top = sets.top(trigger) as usize;
        let hosts = sets.hosts[top].clone();
        if hosts.is_empty() { 0..1 } else { hosts }
    };
    (0..count).map(home).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Flow, Trigger, TriggerDependency, TriggerKind};

    fn flow(src: u32, dst: u32, start: Start, on_received: Option<u32>) -> Flow {
        let (on_started, on_sent) = (None, None);
        let id = src + 1;
        Flow { id, src, dst, bytes: 1, start, on_started, on_sent, on_received, job: 0, level: 0 }
    }

    #[test]
    fn a_trigger_is_at_home_where_it_is_pulled_and_where_it_starts_flows() {
        let trigger =
            |processor| Trigger { id: 1, kind: TriggerKind::OneShot, delay: 0, processor };
        let mut workload = Workload {
            hosts: 9,
            flows: vec![
                flow(0, 5, Start::At(0), Some(0)),
                flow(5, 7, Start::Trigger(0), Some(1)),
                flow(8, 1, Start::Trigger(1), None),
            ],
            triggers: vec![trigger(None), trigger(None), trigger(Some(3)), trigger(Some(3))],
            dependencies: Vec::new(),
        };
        // The second trigger is activated at host 7 and makes host 8 send.
        assert_eq!(workload.homes(), [5..6, 7..9, 0..1, 0..1]);
        workload.dependencies = vec![TriggerDependency { from: 3, to: 0 }];
        assert_eq!(workload.homes(), [5..6, 7..9, 5..6, 5..6], "two of one processor");
        workload.dependencies.push(TriggerDependency { from: 2, to: 1 });
        assert_eq!(workload.homes(), vec![5..9; 4]);
    }
}
