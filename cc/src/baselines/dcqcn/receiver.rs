//! DCQCN's notification point (Zhu et al., SIGCOMM 2015, section 3.1 and figure 6).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use squall_base::{Span, Time};

use crate::controller::{AckSignals, ReceivedPacket, ReceiverAction, ReceiverCc, RxFlow};
use crate::nscc::NsccReceiver;

/// State of a flow whose sender was notified less than an interval ago.
#[derive(Clone, Copy, Debug)]
struct FlowSlot {
    /// Number of the flow, [`RxFlow::id`]; `None` when the slot is free.
    flow: Option<u32>,
    /// Time at which the flow's notification interval ends.
    until: Time,
    /// A marked packet of the flow arrived in the interval, so another notification follows.
    marked: bool,
}

/// A receiver that notifies a sender of marked packets, at most once per interval and flow: at once
/// for the first mark, then at the end of each interval in which another marked packet arrived. It
/// counts bytes as any receiver does.
///
/// Memory grows with the number of flows notified within one interval, never with packets.
#[derive(Clone, Debug)]
pub struct NotifyReceiver {
    interval: Span,
    counts: NsccReceiver,
    slots: Vec<FlowSlot>,
    free: Vec<u32>,
    /// Slots whose interval runs. All intervals are equally long, so they end in the order in which
    /// they began.
    running: VecDeque<u32>,
    /// Flows whose senders must be notified now.
    due: VecDeque<u32>,
}

impl NotifyReceiver {
    /// Creates a receiver that notifies a flow at most once per `interval` (50 us in section 3.1).
    #[must_use]
    pub fn new(interval: Span) -> Self {
        Self {
            interval,
            counts: NsccReceiver::default(),
            slots: Vec::new(),
            free: Vec::new(),
            running: VecDeque::new(),
            due: VecDeque::new(),
        }
    }

    /// Returns the slot of `flow` while its interval runs. A flow may remember a slot that now
    /// belongs to another flow.
    fn slot(&mut self, flow: &RxFlow) -> Option<&mut FlowSlot> {
        let slot = self.slots.get_mut(flow.slot()? as usize)?;
        Some(slot).filter(|slot| slot.flow == Some(flow.id()))
    }

    /// Queues a congestion notification for `flow`, and begins its notification interval.
    fn notify(&mut self, now: Time, flow: &mut RxFlow) {
        let slot = FlowSlot { flow: Some(flow.id()), until: now + self.interval, marked: false };
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                // The number of flows fits, because flow numbers have 32 bits.
                (self.slots.len() - 1) as u32
            }
        };
        flow.set_slot(Some(index));
        self.running.push_back(index);
        self.due.push_back(flow.id());
    }

    /// Ends the intervals that are over at `now`. An interval with a marked packet is followed by
    /// another notification and interval.
    fn expire(&mut self, now: Time) {
        while let Some(&index) = self.running.front() {
            let slot = &mut self.slots[index as usize];
            if slot.flow.is_some() && slot.until > now {
                break;
            }
            self.running.pop_front();
            match slot.flow {
                Some(flow) if slot.marked => {
                    slot.marked = false;
                    slot.until = now + self.interval;
                    self.running.push_back(index);
                    self.due.push_back(flow);
                }
                _ => {
                    slot.flow = None;
                    self.free.push(index);
                }
            }
        }
    }
}

impl ReceiverCc for NotifyReceiver {
    fn on_rx(&mut self, now: Time, flow: &mut RxFlow, meta: &ReceivedPacket) {
        self.counts.on_rx(now, flow, meta);
        if meta.ecn {
            self.expire(now);
            match self.slot(flow) {
                Some(slot) => slot.marked = true,
                None => self.notify(now, flow),
            }
        }
    }

    fn fill_ack(&mut self, now: Time, flow: &mut RxFlow, signals: &mut AckSignals) {
        self.counts.fill_ack(now, flow, signals);
    }

    fn on_close(&mut self, _now: Time, flow: &mut RxFlow) {
        if let Some(slot) = self.slot(flow) {
            slot.flow = None; // `expire` frees the slot at its turn
        }
        flow.set_slot(None);
        self.due.retain(|&due| due != flow.id());
    }

    fn poll(&mut self, now: Time) -> Option<ReceiverAction> {
        self.expire(now);
        self.due.pop_front().map(|flow| ReceiverAction::Notify { flow })
    }

    fn next_timer(&self) -> Option<Time> {
        if self.due.is_empty() {
            self.running.front().map(|&index| self.slots[index as usize].until)
        } else {
            Some(Time::ZERO)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::ReceiverConfig;
    use crate::registry::Receiver;

    fn receiver() -> Receiver {
        Receiver::new(&ReceiverConfig::Notifying { interval: Span::micros(50) })
    }

    fn arrive(receiver: &mut Receiver, at: u64, flow: &mut RxFlow, ecn: bool) {
        let now = Time::ZERO + Span::micros(at);
        receiver.on_rx(
            now,
            flow,
            &ReceivedPacket { bytes: 4096, ecn, ..ReceivedPacket::default() },
        );
    }

    /// Returns the flows that the receiver notifies when it is polled at `at` microseconds.
    fn notified_flows(receiver: &mut Receiver, at: u64) -> Vec<u32> {
        let now = Time::ZERO + Span::micros(at);
        core::iter::from_fn(|| receiver.poll(now))
            .map(|action| match action {
                ReceiverAction::Notify { flow } => flow,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn the_first_mark_is_notified_at_once_the_next_at_the_end_of_the_interval() {
        let (mut receiver, mut flow) = (receiver(), RxFlow::new(7));
        arrive(&mut receiver, 0, &mut flow, false);
        assert_eq!(
            (notified_flows(&mut receiver, 0), receiver.next_timer()),
            (alloc::vec![], None)
        );
        arrive(&mut receiver, 10, &mut flow, true);
        assert_eq!(receiver.next_timer(), Some(Time::ZERO), "something is due");
        assert_eq!(notified_flows(&mut receiver, 10), [7]);
        // The interval lasts until 60 us; any number of marks in it make one notification.
        assert_eq!(receiver.next_timer(), Some(Time::ZERO + Span::micros(60)));
        arrive(&mut receiver, 20, &mut flow, true);
        arrive(&mut receiver, 30, &mut flow, true);
        assert_eq!(notified_flows(&mut receiver, 59), []);
        assert_eq!(notified_flows(&mut receiver, 60), [7]);
        assert_eq!(receiver.next_timer(), Some(Time::ZERO + Span::micros(110)));
        // No mark came until 110 us, so the interval is over and the receiver reports the next mark
        // at once.
        assert_eq!(notified_flows(&mut receiver, 110), []);
        assert_eq!(receiver.next_timer(), None);
        arrive(&mut receiver, 111, &mut flow, true);
        assert_eq!(notified_flows(&mut receiver, 111), [7]);
    }

    #[test]
    fn a_mark_after_an_expired_interval_is_notified_at_once() {
        let (mut receiver, mut flow) = (receiver(), RxFlow::new(1));
        arrive(&mut receiver, 0, &mut flow, true);
        assert_eq!(notified_flows(&mut receiver, 0), [1]);
        arrive(&mut receiver, 70, &mut flow, true);
        assert_eq!(notified_flows(&mut receiver, 70), [1]);
    }

    #[test]
    fn flows_have_their_own_intervals_and_slots_are_used_again() {
        let mut receiver = receiver();
        let mut flows: Vec<RxFlow> = (0..3).map(RxFlow::new).collect();
        for (at, flow) in (0..).step_by(20).zip(&mut flows) {
            arrive(&mut receiver, at, flow, true);
            assert_eq!(notified_flows(&mut receiver, at), [flow.id()]);
        }
        arrive(&mut receiver, 41, &mut flows[2], true);
        arrive(&mut receiver, 42, &mut flows[0], true);
        assert_eq!(
            notified_flows(&mut receiver, 60),
            [0],
            "flow 0 at 50, no mark for flow 1 at 70"
        );
        assert_eq!(notified_flows(&mut receiver, 95), [2]);
        // Flow 1 lost its slot at 70 us; a new flow may get it, and flow 1 must not find it.
        let mut late = RxFlow::new(9);
        arrive(&mut receiver, 96, &mut late, true);
        assert_eq!(notified_flows(&mut receiver, 96), [9]);
        arrive(&mut receiver, 97, &mut flows[1], true);
        assert_eq!(notified_flows(&mut receiver, 97), [1]);
    }

    #[test]
    fn a_closed_flow_is_not_notified() {
        let (mut receiver, mut flow) = (receiver(), RxFlow::new(4));
        arrive(&mut receiver, 0, &mut flow, true);
        receiver.on_close(Time::ZERO, &mut flow);
        assert_eq!(notified_flows(&mut receiver, 0), []);
        arrive(&mut receiver, 1, &mut flow, true);
        assert_eq!(notified_flows(&mut receiver, 1), [4]);
        arrive(&mut receiver, 2, &mut flow, true);
        receiver.on_close(Time::ZERO + Span::micros(3), &mut flow);
        assert_eq!(notified_flows(&mut receiver, 200), []);
        assert_eq!(receiver.next_timer(), None);
    }

    #[test]
    fn bytes_are_counted_as_everywhere() {
        let (mut receiver, mut flow) = (receiver(), RxFlow::new(4));
        arrive(&mut receiver, 0, &mut flow, true);
        let mut ack = AckSignals::default();
        receiver.fill_ack(Time::ZERO, &mut flow, &mut ack);
        assert_eq!(ack.received, 4096);
    }
}
