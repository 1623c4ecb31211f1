//! A host that is slower than the network: its receive buffer overflows, and the penalty of UE 1.0
//! (section 3.6.13.7, `rcv_cwnd_pend`) makes its senders' windows smaller.
//!
//! Senders learn little of a full receive buffer: no switch has a queue whose packets it could mark, and what
//! is lost brings no round-trip time. The specification says what a penalty does at the sender and leaves it to the
//! receiver when to raise one. Here it begins when the buffer overflowed, with the share of what was under way that
//! found no room, and ends when all that waited was taken in. So it lasts as long as the host is behind, whatever
//! its rate and the round trip; a fixed number of bytes, say the buffer's, does not do: windows of a packet
//! take ages to bring it, and no window grows under a penalty. Afterwards windows are restored: that the host keeps up now is
//! all that is known, and where it does not, delay has shrunk them or the next overflow will.

use squall_base::Time;

use crate::controller::{AckSignals, ReceivedPacket, ReceiverCc, RxFlow};

/// The destination of NSCC (UE 1.0 section 3.6.13.6): it counts bytes and echoes what the packet
/// delivery context knows. Its penalty (section 3.6.13.7's `rcv_cwnd_pend`) is one of the whole
/// receiver, raised when the host, not the network, is the bottleneck.
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

/// Of 128 parts of what is acknowledged, those taken off the window.
type Penalty = u8;

/// The largest: windows halve in a round trip. What is under way when a buffer overflows is mostly lost in the burst
/// that filled it, which need not be so large again.
const MOST: Penalty = 64;

/// The penalty of a host that is slower than the network: see the module's documentation.
#[derive(Clone, Debug, Default)]
struct SlowHost {
    penalty: Penalty,
    restore: bool,
}

impl SlowHost {
    /// Packets of `lost` bytes found no room in the receive buffer, which holds `buffer`.
    fn on_overflow(&mut self, lost: u64, buffer: u64) {
        let (lost, buffer) = (u128::from(lost), u128::from(buffer));
        // At most 128.
        let share = lost * 128 / (lost + buffer).max(1);
        self.penalty = self.penalty.max((share as Penalty).clamp(1, MOST));
        self.restore = false;
    }

    /// All that waited was taken in.
    const fn on_drained(&mut self) {
        self.restore |= self.penalty > 0;
        self.penalty = 0;
    }

    /// What senders are told: the penalty, and whether to restore the window from before one.
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
        // Said until the next one, for a flow may not have had an acknowledgement since.
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
