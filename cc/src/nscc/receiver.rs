//! The penalty for senders to a host that is slower than the network (UE 1.0 section 3.6.13.7,
//! `rcv_cwnd_pend`): it makes their windows smaller while the receive buffer overflows.
//!
//! Senders learn little about a full receive buffer: no switch has a queue whose packets it could
//! mark, and lost packets bring no round-trip time. The specification defines the effect of a
//! penalty at the sender and leaves it to the receiver when to raise one.
//!
//! Here the penalty begins when the buffer overflowed, with the share of the arriving bytes that
//! found no room, and ends when the buffer is empty. So it lasts as long as the host is behind,
//! whatever its rate and the round trip. The penalty cannot end after a fixed number of bytes, such
//! as the size of the buffer: with windows of one packet these bytes take very long to arrive, and
//! no window grows under a penalty.
//!
//! Afterwards senders restore their windows, because the receiver only knows that the host keeps up
//! now. If the host falls behind again, delay has shrunk the windows in the meantime, or the next
//! overflow shrinks them.

use squall_base::Time;

use crate::controller::{AckSignals, ReceivedPacket, ReceiverCc, RxFlow};

/// The destination of NSCC (UE 1.0 section 3.6.13.6): it counts bytes and echoes marks that the
/// packet delivery context recorded. Its penalty (section 3.6.13.7's `rcv_cwnd_pend`) applies to
/// the whole receiver; it is raised when the host, not the network, is the bottleneck.
#[derive(Clone, Debug, Default)]
pub struct NsccReceiver {
    host: SlowHost,
}

impl ReceiverCc for NsccReceiver {
    fn on_rx(&mut self, _now: Time, flow: &mut RxFlow, meta: &ReceivedPacket) {
        // "rcvd_bytes += nominal_pktsize for each new, untrimmed, non-duplicate data packet"
        if !meta.trimmed && !meta.duplicate {
            flow.count(meta.bytes);
        }
    }

    #[inline]
    fn on_rx_run(&mut self, now: Time, flow: &mut RxFlow, meta: &ReceivedPacket, count: u16) {
        let bytes = meta.bytes.saturating_mul(u32::from(count));
        self.on_rx(now, flow, &ReceivedPacket { bytes, ..*meta });
    }

    fn on_overflow(&mut self, lost: u64, buffer: u64) {
        self.host.on_overflow(lost, buffer);
    }

    fn on_drained(&mut self) {
        self.host.on_drained();
    }

    fn fill_ack(&mut self, _now: Time, flow: &mut RxFlow, signals: &mut AckSignals) {
        signals.received = flow.received();
        (signals.penalty, signals.restore_cwnd) = self.host.penalty();
    }
}

/// Part of the acknowledged bytes, in 128ths, that the sender subtracts from its window.
type Penalty = u8;

/// Largest penalty: windows halve in a round trip. When a buffer overflows, most packets in flight
/// are lost in the burst that filled it, and the next burst need not be as large.
const MOST: Penalty = 64;

/// Penalty state of a host that is slower than the network, see the module documentation.
#[derive(Clone, Debug, Default)]
struct SlowHost {
    penalty: Penalty,
    restore: bool,
}

impl SlowHost {
    /// Reports that the receive buffer of `buffer` bytes had no room for packets of `lost` bytes.
    fn on_overflow(&mut self, lost: u64, buffer: u64) {
        let (lost, buffer) = (u128::from(lost), u128::from(buffer));
        // The share is at most 128.
        let share = lost * 128 / (lost + buffer).max(1);
        self.penalty = self.penalty.max((share as Penalty).clamp(1, MOST));
        self.restore = false;
    }

    /// Reports that this host's receive buffer is empty, which ends the penalty.
    const fn on_drained(&mut self) {
        self.restore |= self.penalty > 0;
        self.penalty = 0;
    }

    /// Returns the penalty, and whether senders should restore the window from before it.
    const fn penalty(&self) -> (Penalty, bool) {
        (self.penalty, self.restore)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_that_found_no_room_is_taken_off_until_the_buffer_is_empty() {
        let mut host = SlowHost::default();
        host.on_drained();
        assert_eq!(host.penalty(), (0, false));
        // A tenth.
        host.on_overflow(100_000, 900_000);
        assert_eq!(host.penalty(), (12, false));
        // A burst of less changes nothing, one of more does.
        host.on_overflow(1, 900_000);
        assert_eq!(host.penalty(), (12, false));
        host.on_overflow(900_000, 900_000);
        assert_eq!(host.penalty(), (64, false));
        host.on_drained();
        assert_eq!(host.penalty(), (0, true));
        // The flag stays set until the next penalty, because a flow may not have sent an
        // acknowledgement since.
        host.on_drained();
        assert_eq!(host.penalty(), (0, true));
        host.on_overflow(1, 900_000);
        assert_eq!(host.penalty(), (1, false));
    }

    #[test]
    fn a_penalty_is_no_more_than_half_and_never_none() {
        for (lost, buffer, penalty) in
            [(u64::MAX, 1, 64), (1, u64::MAX, 1), (0, 0, 1), (u64::MAX, u64::MAX, 64), (1, 0, 64)]
        {
            let mut host = SlowHost::default();
            host.on_overflow(lost, buffer);
            assert_eq!(host.penalty(), (penalty, false), "{lost} {buffer}");
        }
    }

    #[test]
    fn counts_new_whole_packets_only() {
        let mut receiver = NsccReceiver::default();
        let mut flow = RxFlow::default();
        for meta in [
            ReceivedPacket { bytes: 4200, ..ReceivedPacket::default() },
            ReceivedPacket { bytes: 4200, duplicate: true, ..ReceivedPacket::default() },
            ReceivedPacket { bytes: 150, trimmed: true, ..ReceivedPacket::default() },
            ReceivedPacket { bytes: 100, ..ReceivedPacket::default() },
        ] {
            receiver.on_rx(Time::ZERO, &mut flow, &meta);
        }
        let mut ack = AckSignals { ooo: Some(3), ..AckSignals::default() };
        receiver.fill_ack(Time::ZERO, &mut flow, &mut ack);
        assert_eq!(ack.received, 4300);
        // 4300 / 256 = 16.8
        assert_eq!(ack.received_units(), 17);
        assert_eq!((ack.ooo, ack.penalty, ack.restore_cwnd), (Some(3), 0, false));
    }
}
