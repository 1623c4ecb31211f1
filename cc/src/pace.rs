//! Pacing below one packet a round trip, for every algorithm with a window.
//!
//! When more flows share a port than packets fit into its bandwidth-delay product, no window of whole
//! packets is small enough. Swift's answer (Kumar et al., SIGCOMM 2020) serves all: let
//! the window fall below one packet, and then send one packet every `rtt / cwnd`.

use alloc::boxed::Box;
use alloc::sync::Arc;

use squall_base::{Span, Time};

use crate::controller::{
    Budget, Feedback, FeedbackKind, SenderCc, SentPacket, Stamp, forward_to_inner,
};
use crate::math::nanos;
use crate::network::{LONGEST, NetworkProfile};
use crate::registry::{Sender, SenderConfig};

/// Divisor of the packet size that gives a paced window's floor: it allows 64 times as many flows
/// as packets in flight.
const SMALLEST: u32 = 64;

/// Configuration of an algorithm with a window, and the properties of the network that its pacer
/// needs.
#[derive(Clone, Debug)]
pub struct PacedConfig {
    pub(crate) inner: SenderConfig,
    mtu: u32,
    base_rtt: Span,
}

impl PacedConfig {
    /// Wraps `inner`, whose window may then fall below one packet. Returns `None` if the algorithm
    /// does not offer it.
    #[must_use]
    pub fn new(mut inner: SenderConfig, network: &NetworkProfile) -> Option<Self> {
        let floor = (network.mtu / SMALLEST).max(1);
        inner.set_floor(floor).then_some(Self {
            inner,
            mtu: network.mtu,
            base_rtt: network.base_rtt,
        })
    }

    /// Returns the configuration without pacing; the window is again at least one packet.
    #[must_use]
    pub fn unpaced(&self) -> SenderConfig {
        let mut inner = self.inner.clone();
        inner.set_floor(self.mtu);
        inner
    }
}

/// A congestion-control context whose window may be less than a packet.
#[derive(Clone, Debug)]
pub struct PacedSender {
    inner: Sender,
    /// Departure time of the latest packet, and its size in bytes.
    sent: Time,
    sent_bytes: u32,
    mtu: u32,
    /// Moving average of the round-trip time in nanoseconds.
    rtt: u32,
}

impl PacedSender {
    /// Creates a congestion-control context that paces below one packet, opened at `now`.
    #[must_use]
    pub fn new(config: &Arc<PacedConfig>, now: Time) -> Box<Self> {
        Box::new(Self {
            inner: Sender::new(&config.inner, now),
            sent: Time::ZERO,
            sent_bytes: 0,
            mtu: config.mtu,
            rtt: nanos(config.base_rtt),
        })
    }
}

impl SenderCc for PacedSender {
    fn budget(&self, now: Time) -> Budget {
        let budget = self.inner.budget(now);
        match budget.window {
            Some(window) if window < u64::from(self.mtu) => {
                let gap = u64::from(self.rtt) * u64::from(self.sent_bytes) / window.max(1);
                // Bounds the gap, so that one sample of a stalled host does not silence a flow.
                let gap = Span(gap).min(LONGEST);
                let not_before = budget.not_before.max(self.sent + gap);
                Budget { window: Some(self.mtu.into()), not_before, burst: self.mtu, ..budget }
            }
            _ => budget,
        }
    }

    fn on_send(&mut self, now: Time, sending: &SentPacket) -> Stamp {
        (self.sent, self.sent_bytes) = (now, sending.bytes);
        self.inner.on_send(now, sending)
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        if let (FeedbackKind::Acked, Some(rtt)) = (feedback.kind, feedback.rtt) {
            // Weights the new sample with an eighth, as TCP smooths (RFC 6298); in 64 bits, so that
            // nothing wraps.
            let smoothed = (u64::from(self.rtt) * 7 + u64::from(nanos(rtt))) / 8;
            self.rtt = nanos(Span(smoothed)).max(1);
        }
        self.inner.on_feedback(feedback);
    }

    forward_to_inner!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_base::Rate;

    const BASE: Span = Span::micros(12);

    fn paced() -> (SenderConfig, Sender) {
        let network = NetworkProfile::new(Rate::gbps(100), BASE, 4096, true);
        let config = SenderConfig::by_name("nscc:pace=1", &network).expect("NSCC has a window");
        let sender = Sender::new(&config, Time::ZERO);
        (config, sender)
    }

    #[test]
    fn a_window_of_more_than_a_packet_is_left_alone() {
        let (config, sender) = paced();
        assert_eq!(config.name(), "nscc");
        let free = Budget { window: Some(225_000), ..Budget::default() };
        assert_eq!(sender.budget(Time::ZERO), free);
    }

    /// Trims of 4096 bytes take 225000 B below one packet: 225000 / 4096 = 54.9, so 54 of them leave
    /// 3816 B. Then a packet of 4096 B waits 12000 ns * 4096 / 3816 = 12880 ns after the one before.
    #[test]
    fn below_a_packet_one_leaves_every_rtt_over_cwnd() {
        let (_, mut sender) = paced();
        let sent = Time(10_000);
        let _ = sender.on_send(sent, &SentPacket { bytes: 4096, ..SentPacket::default() });
        for _ in 0..54 {
            let kind = FeedbackKind::Nacked { trimmed: true, last_hop: false };
            sender.on_feedback(&Feedback { now: sent, kind, bytes: 4096, ..Feedback::default() });
        }
        assert_eq!(sender.metrics().cwnd, Some(3816));
        let budget = sender.budget(sent);
        assert_eq!((budget.window, budget.burst), (Some(4096), 4096));
        assert_eq!(budget.not_before, sent + Span(12_880));
        // A short packet earns a short gap: 12000 * 512 / 3816 = 1610 ns.
        let _ = sender.on_send(sent, &SentPacket { bytes: 512, ..SentPacket::default() });
        assert_eq!(sender.budget(sent).not_before, sent + Span(1_610));
        // Samples move the round-trip time by an eighth: (7 * 12000 + 20000) / 8 = 13000 ns.
        let (kind, rtt) = (FeedbackKind::Acked, Some(Span::micros(20)));
        sender.on_feedback(&Feedback { now: sent, kind, rtt, ecn: true, ..Feedback::default() });
        assert_eq!(sender.budget(sent).not_before, sent + Span(13_000 * 512 / 3816));
    }

    #[test]
    fn pacing_can_be_turned_on_and_off() {
        let network = NetworkProfile::new(Rate::gbps(100), BASE, 4096, true);
        let value = |text: &str| {
            let config = SenderConfig::by_name(text, &network).expect("allowed");
            let settings = config.settings();
            let value = |name| settings.iter().find(|s| s.name == name).map(|s| s.value);
            (value("pace"), value("min_wnd"))
        };
        assert_eq!(value("nscc"), (Some(0.0), Some(4096.0)));
        assert_eq!(value("nscc:pace=1"), (Some(1.0), Some(64.0)));
        assert_eq!(value("nscc:pace=1,pace=1"), (Some(1.0), Some(64.0)));
        assert_eq!(value("nscc:pace=1,min_wnd=1024"), (Some(1.0), Some(1024.0)));
        assert_eq!(value("nscc:pace=1,pace=0"), (Some(0.0), Some(4096.0)));
        assert!(SenderConfig::by_name("nscc:pace=2", &network).is_err());
        assert!(SenderConfig::by_name("none:pace=1", &network).is_err());
    }
}
