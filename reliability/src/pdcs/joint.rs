//! Actions of contexts on behalf of state that several of them share: the receiver's part of
//! congestion control, or a congestion-control context.

use super::table::Table;
use crate::base::Time;
use crate::cc::{ReceiverAction, ReceiverCc};
use crate::shared::Shared;
use crate::types::{ControlOut, PdcId};

impl<D: Copy> Table<D> {
    /// Returns the next packet that the receiver's part of congestion control sends to a peer.
    pub(super) fn poll_receiver(&self, now: Time, shared: &mut Shared<D>) -> Option<ControlOut> {
        while let Some(action) = shared.receiver.poll(now) {
            let (flow, credit) = match action {
                ReceiverAction::Credit { flow, cumulative } => (flow, Some(cumulative)),
                ReceiverAction::Notify { flow } => (flow, None),
            };
            let pdc = self.get(PdcId::from_u32(flow)).filter(|pdc| pdc.numbers().is_connected());
            let Some(pdc) = pdc else {
                shared.counters.tx_unsent += 1;
                continue;
            };
            match credit {
                Some(_) => shared.counters.tx_credits += 1,
                None => shared.counters.tx_notifications += 1,
            }
            return Some(pdc.receiver_out(credit));
        }
        None
    }

    /// Wakes the flows that wait for room in shared context `group`, the longest waiting first, as
    /// many as there is room for.
    pub(super) fn wake_waiting_flows(&mut self, now: Time, group: u16, shared: &mut Shared<D>) {
        let mut line = shared.groups.take_waiting(group);
        let mut room = shared.groups.room(group, now);
        for _ in 0..line.len() {
            let Some(slot) = line.pop_front() else { break };
            let Some(pdc) = self.at_mut(slot) else { continue };
            let (id, wants) = (pdc.numbers().id, pdc.tx().next_packet_size());
            if wants == 0 || room > 0 && pdc.tx_mut().wake(now, id, shared) {
                pdc.tx_mut().ready_mut().stop_waiting_for_room();
                room = room.saturating_sub(u64::from(wants));
            } else {
                line.push_back(slot);
            }
        }
        shared.groups.put_waiting(group, line);
    }
}
