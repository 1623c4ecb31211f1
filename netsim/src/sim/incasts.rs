//! Incasts that senders announce: flows that begin together and end at one host (Dart, section
//! III-D).

use crate::Picos;
use crate::workload::{Start, Workload};
use squall_cc::SenderList;

/// Bytes of an empty sender list in a packet: group and round.
const HEAD: u32 = 8;
/// Bytes of each sender in a sender list.
const EACH: u32 = 2;
/// Maximum number of senders of an incast that is announced.
const MOST: usize = 256;
/// Marks flows that belong to no incast.
const NONE: u32 = u32::MAX;

/// Flows to one host that begin together, of two senders or more.
#[derive(Debug)]
pub(super) struct Incasts {
    /// Number of the incast that each flow belongs to, or [`NONE`], by the index of the flow.
    of: Vec<u32>,
    /// Sending hosts of each incast, by its number.
    senders: Vec<Vec<u32>>,
}

impl Incasts {
    /// Finds the incasts of a workload: flows that begin within `spread` of the first of them.
    /// Flows that a trigger starts belong to none.
    pub(super) fn of(workload: &Workload, spread: Picos) -> Self {
        let mut begins: Vec<(u32, u64, u32)> = (0u32..)
            .zip(&workload.flows)
            .filter_map(|(index, flow)| match flow.start {
                Start::At(at) => Some((flow.dst, at, index)),
                Start::Trigger(_) => None,
            })
            .collect();
        begins.sort_unstable();
        let mut all = Self { of: vec![NONE; workload.flows.len()], senders: Vec::new() };
        let mut rest = &begins[..];
        while let [(dst, first, _), ..] = *rest {
            let together = |(to, at, _): &(u32, u64, u32)| *to == dst && at - first <= spread.0;
            let (incast, others) =
                rest.split_at(rest.iter().take_while(|one| together(one)).count());
            all.add(workload, incast);
            rest = others;
        }
        all
    }

    fn add(&mut self, workload: &Workload, incast: &[(u32, u64, u32)]) {
        let flows = || incast.iter().map(|(.., flow)| *flow as usize);
        let mut senders: Vec<u32> = flows().map(|flow| workload.flows[flow].src).collect();
        senders.sort_unstable();
        senders.dedup();
        if (2..=MOST).contains(&senders.len()) {
            // The number of incasts is below that of flows.
            let number = self.senders.len() as u32;
            flows().for_each(|flow| self.of[flow] = number);
            self.senders.push(senders);
        }
    }

    /// Returns the list of senders that the first packet of a flow carries; `None` if the flow
    /// belongs to no incast.
    pub(super) fn list(&self, flow: u32) -> Option<SenderList<'_>> {
        let group = self.of[flow as usize];
        let sources = self.senders.get(group as usize)?;
        // Each incast happens once, so the round is always 1.
        Some(SenderList { group, round: 1, sources })
    }

    /// Returns the bytes of the sender list that the first packet of a flow carries; 0 if it
    /// carries none.
    pub(super) fn bytes(&self, flow: u32) -> u32 {
        let list = self.list(flow);
        // The list has at most 256 senders.
        list.map_or(0, |list| HEAD + EACH * list.sources.len() as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Flow;

    #[test]
    fn flows_that_begin_together_at_one_host_are_an_incast() {
        // Of the other flows, one begins later, and two to another host have a single sender.
        let rows = [(1, 0, 5), (2, 0, 7), (3, 0, 10), (4, 5, 5), (4, 5, 5), (2, 0, 8)];
        let flows = rows.map(|(src, dst, at)| Flow {
            id: 1,
            src,
            dst,
            bytes: 10,
            start: Start::At(at),
            on_started: None,
            on_sent: None,
            on_received: None,
            job: 0,
            level: 0,
        });
        let workload = Workload { hosts: 6, flows: flows.to_vec(), ..Workload::default() };
        let incasts = Incasts::of(&workload, Picos(3));
        for at in [0, 1, 5] {
            let list = incasts.list(at).expect("an incast");
            assert_eq!((list.sources, incasts.bytes(at)), (&[1, 2][..], 12));
        }
        for at in 2..5 {
            assert_eq!((incasts.list(at), incasts.bytes(at)), (None, 0));
        }
    }
}
