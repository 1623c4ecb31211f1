//! The part of a sending half in its congestion-control context: the bytes in flight and delivered,
//! the budget, the pacer.

use crate::base::{Psn, Span, Time};
use crate::cc::{self, SenderCc};
use crate::context::{Context, Groups};

/// A flow and its congestion-control context. In a shared context, the sums over its flows change
/// with this flow's own counts.
#[derive(Debug)]
pub(crate) struct Flow {
    context: Context,
    /// Nominal bytes of this flow's packets in flight; at most those of 4095 packets of 64 KiB.
    in_flight: u32,
    /// Nominal bytes of this flow that were acknowledged, which wrap.
    delivered: u32,
    /// The end of the current round: the round ends when all packets before this PSN are
    /// acknowledged.
    round: Psn,
    /// True once it was reported that the peer's receiver works in another congestion-control mode
    /// than this sender needs.
    other_mode: bool,
}

impl Flow {
    /// Creates a flow without packets in flight; the first packet gets PSN `start`.
    pub(super) const fn new(context: Context, start: Psn) -> Self {
        Self { context, in_flight: 0, delivered: 0, round: start, other_mode: false }
    }

    #[inline]
    pub(crate) const fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the nominal bytes of this flow that are in flight.
    #[inline]
    pub(crate) const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the nominal bytes in flight of all flows that share the congestion-control context.
    #[inline]
    pub(super) fn total_in_flight(&self, groups: &Groups) -> u64 {
        self.context.in_flight(self.in_flight, groups)
    }

    /// Returns the nominal bytes delivered by all flows that share the congestion-control context,
    /// which wrap.
    #[inline]
    pub(super) fn total_delivered(&self, groups: &Groups) -> u32 {
        self.context.delivered(self.delivered, groups)
    }

    /// Returns whether it is known that the peer's receiver works in another congestion-control
    /// mode.
    #[inline]
    pub(crate) const fn is_other_mode(&self) -> bool {
        self.other_mode
    }

    /// Records that the peer's receiver works in another congestion-control mode. Returns whether
    /// that was not known before.
    #[inline]
    pub(super) fn set_other_mode(&mut self) -> bool {
        !core::mem::replace(&mut self.other_mode, true)
    }

    /// Returns the limits that the congestion control sets on sending at `now`.
    #[inline]
    pub(super) fn budget(&self, now: Time, groups: &Groups) -> cc::Budget {
        self.context.cc(groups).budget(now)
    }

    #[inline]
    pub(crate) fn metrics(&self, groups: &Groups) -> cc::SenderMetrics {
        self.context.cc(groups).metrics()
    }

    /// Returns the round-trip time without queues that the congestion control assumes.
    #[inline]
    pub(super) fn base_rtt(&self, groups: &Groups) -> Option<Span> {
        self.context.cc(groups).base_rtt()
    }

    /// Returns whether window, credit and pacing let a packet of `nominal` bytes leave, in trains
    /// of `train` bytes. One packet may always be in flight, because a window smaller than a packet
    /// would otherwise stop the flow for good.
    #[inline]
    pub(super) fn allows(&self, now: Time, nominal: u32, train: u32, groups: &Groups) -> bool {
        let budget = self.context.cc(groups).budget(now);
        self.fits(now, nominal, (&budget, train), groups)
    }

    /// Returns the result of [`Flow::allows`] for a budget that is already known.
    #[inline]
    pub(super) fn fits(
        &self,
        now: Time,
        nominal: u32,
        (budget, train): (&cc::Budget, u32),
        groups: &Groups,
    ) -> bool {
        if let Some(rate) = budget.rate {
            let lead = rate.transmit_time(u64::from(budget.burst.min(train)));
            if self.context.pace_at(groups) > now + lead {
                return false;
            }
        }
        let in_flight = self.total_in_flight(groups);
        if in_flight == 0 {
            let credit = budget.credit.is_none_or(|credit| credit >= u64::from(nominal));
            return credit && now >= budget.not_before;
        }
        budget.allows(now, in_flight, nominal)
    }

    /// Returns when the pacer lets the next packet leave, in trains of `train` bytes.
    #[inline]
    pub(super) fn pace_end(&self, budget: &cc::Budget, train: u32, groups: &Groups) -> Time {
        let Some(rate) = budget.rate else { return Time::ZERO };
        let lead = rate.transmit_time(u64::from(budget.burst.min(train)));
        self.context.pace_at(groups) - lead
    }

    /// Returns the congestion window in packets of `size` nominal bytes, at least one and at most
    /// `most`.
    #[inline]
    pub(super) fn window_packets(&self, now: Time, size: u32, most: u16, groups: &Groups) -> u32 {
        let window = self.budget(now, groups).window.unwrap_or(u64::MAX);
        let packets = window / u64::from(size.max(1));
        u32::try_from(packets).unwrap_or(u32::MAX).clamp(1, u32::from(most))
    }

    // Packets.

    /// Counts a packet that leaves as in flight and in the pacer. Returns the congestion control's
    /// stamp for the packet, and the budget after it.
    #[inline]
    pub(super) fn send(
        &mut self,
        now: Time,
        sending: &cc::SentPacket,
        groups: &mut Groups,
    ) -> (cc::Stamp, cc::Budget) {
        let cc = self.context.cc_mut(groups);
        let stamp = cc.on_send(now, sending);
        let budget = cc.budget(now);
        if let Some(rate) = budget.rate {
            let sent = rate.transmit_time(u64::from(sending.bytes));
            let pace_at = self.context.pace_at_mut(groups);
            *pace_at = (*pace_at).max(now) + sent;
        }
        self.add_in_flight(sending.bytes, groups);
        (stamp, budget)
    }

    /// Counts up to `count` packets, each as `sending` describes, that leave behind one that is in
    /// flight, in trains of `train` bytes. Stops when a packet may not leave, when the congestion
    /// control chooses a path for one, or when there is no room for another one of `most` bytes.
    /// Returns the number of packets, the stamp of the last one, and whether there is no more room.
    #[inline]
    pub(super) fn send_run(
        &mut self,
        now: Time,
        (sending, count): (&cc::SentPacket, u16),
        (train, most): (u32, u32),
        groups: &mut Groups,
    ) -> (u16, cc::Stamp, bool) {
        let mut budget = self.budget(now, groups);
        if let cc::Budget { rate: None, credit: None, .. } = budget {
            // The room of a window is known without asking again after each packet.
            let fits = budget.run(now, self.total_in_flight(groups), sending.bytes, most);
            let count = count.min(fits);
            if count == 0 {
                return (0, cc::Stamp::default(), false);
            }
            let cc = self.context.cc_mut(groups);
            let (sent, stamp) = cc.on_send_run(now, sending, count);
            self.add_in_flight(u32::from(sent) * sending.bytes, groups);
            let room = budget.room(self.total_in_flight(groups));
            return (sent, stamp, room < u64::from(most));
        }
        let (mut sent, mut stamp, mut full) = (0, cc::Stamp::default(), false);
        while sent < count && stamp.path.is_none() && !full {
            if !self.fits(now, sending.bytes, (&budget, train), groups) {
                break;
            }
            (stamp, budget) = self.send(now, sending, groups);
            full = budget.room(self.total_in_flight(groups)) < u64::from(most);
            sent += 1;
        }
        (sent, stamp, full)
    }

    /// Adds `bytes` to the flow's, and its group's, nominal bytes in flight.
    #[inline]
    fn add_in_flight(&mut self, bytes: u32, groups: &mut Groups) {
        self.in_flight += bytes;
        if let Some(group) = self.context.group(groups) {
            group.in_flight += u64::from(bytes);
        }
    }

    /// Removes `bytes` from the flow's, and its group's, nominal bytes in flight.
    #[inline]
    pub(super) fn remove_in_flight(&mut self, bytes: u32, groups: &mut Groups) {
        self.in_flight -= bytes;
        if let Some(group) = self.context.group(groups) {
            group.in_flight -= u64::from(bytes);
        }
    }

    /// Adds `bytes` to the flow's, and its group's, nominal bytes delivered.
    #[inline]
    pub(super) fn add_delivered(&mut self, bytes: u32, groups: &mut Groups) {
        self.delivered = self.delivered.wrapping_add(bytes);
        if let Some(group) = self.context.group(groups) {
            group.delivered = group.delivered.wrapping_add(bytes);
        }
    }

    // Rounds.

    /// Begins a round trip, which ends when all packets before `next` are acknowledged.
    #[inline]
    pub(super) fn begin_round(&mut self, next: Psn) {
        self.round = next;
    }

    /// Returns whether a round ends: everything that was sent before the previous round's end is
    /// acknowledged when `base` is the oldest outstanding packet. The next round then ends with the
    /// packet before `next`. Flows that split a context share its rounds: a round ends when a
    /// packet is acknowledged that was sent after the previous one's end. `delivered`, the bytes
    /// delivered when the packet left, shows that.
    #[inline]
    pub(super) fn round_ends(
        &mut self,
        base: Psn,
        next: Psn,
        delivered: Option<u32>,
        groups: &mut Groups,
    ) -> bool {
        if let Some(group) = self.context.group(groups) {
            let ends = delivered.is_some_and(|at| at.wrapping_sub(group.round) < u32::MAX / 2);
            if ends {
                group.round = group.delivered;
            }
            return ends;
        }
        let ends = !base.is_before(self.round);
        if ends {
            self.round = next;
        }
        ends
    }

    // Feedback and events.

    /// Passes feedback to the congestion control, with the bytes in flight filled in.
    #[inline]
    pub(super) fn on_feedback(&mut self, feedback: &cc::Feedback<'_>, groups: &mut Groups) {
        let in_flight = self.total_in_flight(groups);
        let cc = self.context.cc_mut(groups);
        cc.on_feedback(&cc::Feedback { in_flight, ..*feedback });
    }

    /// Passes an event of the traffic to the congestion control.
    #[inline]
    pub(super) fn on_event(&mut self, now: Time, event: cc::FlowEvent, groups: &mut Groups) {
        self.context.cc_mut(groups).on_event(now, event);
    }

    /// Returns the next action that the congestion control requests of this flow, if any.
    #[inline]
    pub(super) fn poll_action(
        &mut self,
        now: Time,
        groups: &mut Groups,
    ) -> Option<cc::SenderAction> {
        self.context.cc_mut(groups).poll(now)
    }

    /// Returns the rate packet that the congestion control wants to send.
    pub(super) fn poll_rate_packet(
        &mut self,
        now: Time,
        groups: &mut Groups,
    ) -> Option<cc::RatePacket> {
        self.context.cc_mut(groups).rate_packet(now)
    }

    /// Returns when the timer of the congestion control is due; `NEVER` if it is stopped.
    #[inline]
    pub(crate) fn next_timer(&self, groups: &Groups) -> Time {
        self.context.cc(groups).next_timer().unwrap_or(Time::NEVER)
    }

    /// Runs the timer of the congestion control, which is due.
    pub(super) fn on_timer(&mut self, now: Time, groups: &mut Groups) {
        self.context.cc_mut(groups).on_timer(now);
    }

    // Other flows in the context.

    /// Records that the flow has packets outstanding again. Returns whether no other flow of the
    /// congestion-control context had any.
    #[inline]
    pub(super) fn resume(&self, groups: &mut Groups) -> bool {
        let Some(group) = self.context.shared_group(groups) else { return true };
        group.active += 1;
        group.active == 1
    }

    /// Records that the flow has no packets outstanding any more. Returns whether the whole context
    /// is idle.
    #[inline]
    pub(super) fn pause(&self, groups: &mut Groups) -> bool {
        let Some(group) = self.context.shared_group(groups) else { return true };
        group.active -= 1;
        group.active == 0 && group.waiting.is_empty()
    }

    /// Queues the flow in `slot` for room in the shared context; returns `false` if the window is
    /// not shared.
    #[inline]
    pub(super) fn queue_for_room(&self, slot: u16, groups: &mut Groups) -> bool {
        let Some(group) = self.context.group(groups) else { return false };
        group.waiting.push_back(slot);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Label;
    use crate::cc::Scope;

    fn pair(scope: Scope, window: u64) -> (Groups, Flow, Flow) {
        let mut groups = Groups::default();
        let config = cc::SenderConfig::fixed(window);
        let mut flow = |slot| {
            let context = groups.join(
                scope,
                slot,
                (crate::PeerKey(0), Label::default()),
                &config,
                Time::ZERO,
            );
            Flow::new(context, Psn(0))
        };
        let (one, other) = (flow(0), flow(1));
        (groups, one, other)
    }

    fn sending(bytes: u32) -> cc::SentPacket {
        cc::SentPacket { bytes, ..cc::SentPacket::default() }
    }

    #[test]
    fn flows_of_one_context_share_its_window_and_others_do_not() {
        for (scope, shared) in [(Scope::PerPair, true), (Scope::PerFlow, false)] {
            let (mut groups, mut one, other) = pair(scope, 10_000);
            one.send(Time(1), &sending(6000), &mut groups);
            assert_eq!(other.allows(Time(1), 6000, 65_000, &groups), !shared);
            assert_eq!(other.total_in_flight(&groups), if shared { 6000 } else { 0 });
            assert_eq!((one.in_flight(), other.in_flight()), (6000, 0));
            one.remove_in_flight(6000, &mut groups);
            one.add_delivered(6000, &mut groups);
            assert!(other.allows(Time(1), 6000, 65_000, &groups));
            assert_eq!(other.total_delivered(&groups), if shared { 6000 } else { 0 });
        }
    }

    #[test]
    fn one_packet_may_always_be_in_flight() {
        let (mut groups, mut flow, _) = pair(Scope::PerFlow, 100);
        assert!(flow.allows(Time(1), 4000, 65_000, &groups));
        flow.send(Time(1), &sending(4000), &mut groups);
        assert!(!flow.allows(Time(1), 1, 65_000, &groups));
    }

    #[test]
    fn a_context_is_idle_when_its_last_flow_is() {
        let (mut groups, one, other) = pair(Scope::PerPair, 10_000);
        assert!(one.resume(&mut groups));
        assert!(!other.resume(&mut groups));
        assert!(!one.pause(&mut groups));
        assert!(other.queue_for_room(1, &mut groups));
        // A flow that waits for room is not idle.
        assert!(!other.pause(&mut groups));
    }

    #[test]
    fn a_round_ends_when_all_that_was_sent_before_it_is_acknowledged() {
        let (mut groups, mut flow, _) = pair(Scope::PerFlow, 10_000);
        flow.begin_round(Psn(10));
        assert!(!flow.round_ends(Psn(9), Psn(20), None, &mut groups));
        assert!(flow.round_ends(Psn(10), Psn(20), None, &mut groups));
        assert!(!flow.round_ends(Psn(19), Psn(25), None, &mut groups));
        // In a shared context, by the bytes delivered when the packet left.
        let (mut groups, mut one, mut other) = pair(Scope::PerPair, 10_000);
        assert!(!one.round_ends(Psn(5), Psn(9), None, &mut groups));
        assert!(one.round_ends(Psn(0), Psn(9), Some(0), &mut groups));
        one.add_delivered(500, &mut groups);
        assert!(other.round_ends(Psn(0), Psn(9), Some(0), &mut groups));
        assert!(!one.round_ends(Psn(0), Psn(9), Some(499), &mut groups));
        assert!(one.round_ends(Psn(0), Psn(9), Some(500), &mut groups));
    }
}
