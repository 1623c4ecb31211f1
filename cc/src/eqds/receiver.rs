//! The receiver's part of receiver-driven credits: one pull pacer per port.

mod core;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use squall_base::{Rate, Span, Time};

use self::core::CoreCapacity;
use crate::controller::{
    AckSignals, CREDIT_UNIT, CreditConfig, ReceivedPacket, ReceiverAction, ReceiverCc, RxFlow,
};

/// Smallest number of bytes whose transmission time separates two pulls, even if a pull grants less
/// (uet-htsim).
const LEAST: u64 = 1024;

/// List in which the pull pacer keeps a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PullList {
    Neither,
    /// The flow has bytes waiting at its sender, or asked for credit.
    Active,
    /// The flow has nothing waiting, but can use some credit for later.
    Idle,
}

/// State of one flow at the receiver's pull pacer.
#[derive(Clone, Copy, Debug)]
struct FlowAccount {
    /// Number of the flow ([`RxFlow::id`]).
    flow: u32,
    listed: PullList,
    /// Bytes of credit granted to the flow since it opened, a multiple of [`CREDIT_UNIT`].
    granted: u64,
    /// Total credit that the flow wants since it opened, in bytes, as far as the pacer knows.
    target: u64,
}

/// The receiver of EQDS and RCCC (uet-htsim `UecPullPacer` and `UecSink`): it counts bytes as
/// [`crate::NsccReceiver`] does and grants its line to the flows that want it.
///
/// Flows with demand get one pull each in turn, so they share the line evenly, and the pacer spaces
/// pulls so that the granted packets arrive at line rate. When no flow has demand, flows that had
/// some receive credit for later, at the same pace. A flow that never reports its demand gets no
/// credit, and its ACKs carry none.
///
/// Memory grows with the largest number of flows open at a time; there is no allocation per packet.
#[derive(Clone, Debug)]
pub struct CreditReceiver {
    config: CreditConfig,
    /// Rate at which the pacer grants credit to all flows together.
    rate: Rate,
    /// Credit accounts of the flows, by slot; [`RxFlow`] remembers its own slot.
    accounts: Vec<FlowAccount>,
    free: Vec<u32>,
    active: VecDeque<u32>,
    idle: VecDeque<u32>,
    /// Earliest time at which the pacer may grant the next pull.
    next: Time,
    core: Option<CoreCapacity>,
}

impl CreditReceiver {
    /// Creates a receiver without flows. `config` must have passed [`CreditConfig::check`].
    #[must_use]
    pub fn new(config: CreditConfig) -> Self {
        let core = (config.core_period > Span::ZERO).then(|| CoreCapacity::new(config.core_period));
        Self {
            rate: grant_rate(&config, 1.0),
            core,
            config,
            accounts: Vec::new(),
            free: Vec::new(),
            active: VecDeque::new(),
            idle: VecDeque::new(),
            next: Time::ZERO,
        }
    }

    /// Returns the flow's slot; a flow that states its demand for the first time gets one.
    fn slot(&mut self, flow: &mut RxFlow) -> u32 {
        if let Some(slot) = flow.slot() {
            return slot;
        }
        let fresh =
            FlowAccount { flow: flow.id(), listed: PullList::Neither, granted: 0, target: 0 };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.accounts[slot as usize] = fresh;
                slot
            }
            None => {
                self.accounts.push(fresh);
                let flows = self.accounts.len();
                // Reserves room for every flow in each list, so that lists never grow later.
                self.active.reserve(flows - self.active.len());
                self.idle.reserve(flows - self.idle.len());
                u32::try_from(flows - 1).unwrap_or(u32::MAX)
            }
        };
        flow.set_slot(Some(slot));
        slot
    }

    /// Records that the flow wants `target` bytes in all. `answer` is true if the flow asked and
    /// waits for an answer.
    fn raise_demand(&mut self, now: Time, slot: u32, target: u64, answer: bool) {
        let account = &mut self.accounts[slot as usize];
        account.target = account.target.max(target);
        if account.target > account.granted || answer {
            self.activate(now, slot);
        }
    }

    fn activate(&mut self, now: Time, slot: u32) {
        if self.accounts[slot as usize].listed == PullList::Active {
            return;
        }
        self.remove_from_list(slot);
        self.resume_pacing(now);
        self.accounts[slot as usize].listed = PullList::Active;
        self.active.push_back(slot);
    }

    /// Moves the schedule of an idle pacer up to now: idle time earns no credit.
    fn resume_pacing(&mut self, now: Time) {
        if self.active.is_empty() && self.idle.is_empty() {
            self.next = self.next.max(now);
        }
    }

    fn remove_from_list(&mut self, slot: u32) {
        let account = &mut self.accounts[slot as usize];
        match account.listed {
            PullList::Neither => return,
            PullList::Active => self.active.retain(|&other| other != slot),
            PullList::Idle => self.idle.retain(|&other| other != slot),
        }
        account.listed = PullList::Neither;
    }

    /// Performs one pull for `slot`, which was just taken off its list, and puts the flow on its
    /// next list. Returns the bytes granted.
    fn pull(&mut self, slot: u32, list: PullList) -> u64 {
        let pull = u64::from(self.config.pull);
        let account = &mut self.accounts[slot as usize];
        let wanted = match list {
            PullList::Active => account.target.saturating_sub(account.granted).min(pull),
            PullList::Idle | PullList::Neither => pull,
        };
        let granted = wanted.next_multiple_of(CREDIT_UNIT);
        account.granted = account.granted.saturating_add(granted);
        account.listed = if account.target > account.granted {
            self.active.push_back(slot);
            PullList::Active
        } else if account.granted - account.target < self.config.idle {
            self.idle.push_back(slot);
            PullList::Idle
        } else {
            PullList::Neither
        };
        granted
    }
}

impl ReceiverCc for CreditReceiver {
    fn on_rx(&mut self, now: Time, flow: &mut RxFlow, meta: &ReceivedPacket) {
        if let Some(core) = &mut self.core
            && !meta.last_hop
            && let Some(share) = core.on_rx(now, meta.trimmed)
        {
            self.rate = grant_rate(&self.config, share);
        }
        if !meta.trimmed && !meta.duplicate {
            flow.count(meta.bytes);
        }
        let Some(target) = meta.demand else { return };
        let slot = self.slot(flow);
        self.raise_demand(now, slot, target, false);
        if meta.trimmed && !meta.duplicate {
            // The packet must be retransmitted, which the sender knows only later. Its next target
            // is absolute and contains the packet, so nothing is granted twice.
            let again = self.accounts[slot as usize].target.saturating_add(self.config.mtu.into());
            self.raise_demand(now, slot, again, false);
        }
    }

    fn on_request(&mut self, now: Time, flow: &mut RxFlow, target: u64) {
        let slot = self.slot(flow);
        self.raise_demand(now, slot, target, true);
    }

    fn fill_ack(&mut self, _now: Time, flow: &mut RxFlow, signals: &mut AckSignals) {
        signals.received = flow.received();
        signals.credit = match flow.slot() {
            Some(slot) if self.config.in_acks => Some(self.accounts[slot as usize].granted),
            Some(_) | None => None,
        };
    }

    fn on_close(&mut self, _now: Time, flow: &mut RxFlow) {
        if let Some(slot) = flow.slot() {
            self.remove_from_list(slot);
            self.free.push(slot);
            flow.set_slot(None);
        }
    }

    fn poll(&mut self, now: Time) -> Option<ReceiverAction> {
        if now < self.next {
            return None;
        }
        let (slot, list) = match self.active.pop_front() {
            Some(slot) => (slot, PullList::Active),
            None => (self.idle.pop_front()?, PullList::Idle),
        };
        let granted = self.pull(slot, list);
        let earliest = Time(now.0.saturating_sub(self.config.catch_up.0));
        self.next = self.next.max(earliest) + self.rate.transmit_time(granted.max(LEAST));
        let account = &self.accounts[slot as usize];
        Some(ReceiverAction::Credit { flow: account.flow, cumulative: account.granted })
    }

    fn next_timer(&self) -> Option<Time> {
        (!self.active.is_empty() || !self.idle.is_empty()).then_some(self.next)
    }
}

/// Returns the rate of grants, with `share` the part of the port's capacity that gets through the
/// network.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share of a rate
fn grant_rate(config: &CreditConfig, share: f64) -> Rate {
    Rate((config.line.0 as f64 * config.share * share) as u64)
}
