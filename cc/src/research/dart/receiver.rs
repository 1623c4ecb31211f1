//! Dart's receiver (Xue et al., "Dart: Divide and Specialize for Fast Response to Congestion in
//! RDMA-based Datacenter Networks", ToN 2020, sections III-B to III-D): it counts its active
//! senders, returns to each its share of the line, and hides marks while the receiver itself is the
//! bottleneck.

use squall_base::{Span, Time};

use super::active_senders::ActiveSenders;
use crate::baselines::NotifyReceiver;
use crate::controller::{
    AckSignals, Congestion, LineShare, ReceivedPacket, ReceiverAction, ReceiverCc, RxFlow,
    SenderList, ShareConfig, WHOLE_SHARE,
};

/// Largest number of senders in a valid list. Senders of a larger incast are counted as their
/// packets arrive.
pub(crate) const MAX_LISTED_SENDERS: usize = 256;

/// Bytes and marks that arrived in a measurement window.
#[derive(Clone, Copy, Debug, Default)]
struct WindowCounts {
    bytes: u64,
    marked: bool,
}

/// A receiver that divides its line among its active senders.
#[derive(Clone, Debug)]
pub struct DartReceiver {
    config: ShareConfig,
    notify: NotifyReceiver,
    senders: ActiveSenders,
    state: Congestion,
    /// Congestion observed in the last measurement window, which may differ from the state.
    last_observed: Congestion,
    window_start: Time,
    arrived: WindowCounts,
    /// Bytes that arrived in the previous measurement window, and its duration; zero after a pause.
    before: (u64, Span),
}

impl DartReceiver {
    /// Creates a receiver that knows no senders.
    #[must_use]
    pub fn new(config: ShareConfig) -> Self {
        Self {
            config,
            notify: NotifyReceiver::new(config.cnp_interval),
            senders: ActiveSenders::new(config.idle),
            state: Congestion::None,
            last_observed: Congestion::None,
            window_start: Time::ZERO,
            arrived: WindowCounts::default(),
            before: (0, Span::ZERO),
        }
    }

    /// Returns the place of congestion as this receiver sees it: none, its own port or elsewhere.
    #[must_use]
    pub const fn congestion(&self) -> Congestion {
        self.state
    }

    /// Returns the number of senders that share the line, at least one.
    #[must_use]
    pub fn senders(&self) -> u16 {
        match self.state {
            Congestion::Elsewhere => 1,
            _ => u16::try_from(self.senders.len()).unwrap_or(u16::MAX).max(1),
        }
    }

    /// Returns whether `bytes` that arrived in `time` fill the receiver's line (the part theta of
    /// it).
    fn fills_line(&self, bytes: u64, time: Span) -> bool {
        bytes as f64 * 8e9
            >= f64::from(self.config.theta) * self.config.line.0 as f64 * time.as_f64()
    }

    /// Ends the measurement window if it is over at `now`.
    fn end_window(&mut self, now: Time) {
        let lasted = now.since(self.window_start);
        if lasted < self.config.window {
            return;
        }
        let WindowCounts { bytes, marked } = core::mem::take(&mut self.arrived);
        let observed = match marked {
            false => Congestion::None,
            true if self.fills_line(bytes, lasted) => Congestion::Receiver,
            true => Congestion::Elsewhere,
        };
        // The state changes only after the same observation twice, because one of n senders may
        // pause.
        if observed == self.last_observed || self.state == Congestion::None {
            self.state = observed;
        }
        self.last_observed = observed;
        self.before =
            if lasted < self.config.window * 2 { (bytes, lasted) } else { (0, Span::ZERO) };
        self.window_start = now;
    }

    /// Returns whether ACKs report marks to the sender, or hide them.
    fn reports_marks(&self, now: Time) -> bool {
        match self.state {
            Congestion::Receiver => false,
            Congestion::Elsewhere => true,
            // The first marks are judged by the recent arrivals.
            Congestion::None => {
                let (bytes, lasted) = self.before;
                let since = now.since(self.window_start) + lasted;
                !self.fills_line(self.arrived.bytes + bytes, since)
            }
        }
    }
}

impl ReceiverCc for DartReceiver {
    /// Ignores a list that names an unknown sender, that has fewer than two senders or more than
    /// `MAX_LISTED_SENDERS`, or whose round is over.
    fn on_sender_list(&mut self, now: Time, list: &SenderList<'_>) -> bool {
        let known = |source: &u32| *source < self.config.sources;
        let plausible = (2..=MAX_LISTED_SENDERS).contains(&list.sources.len());
        plausible
            && list.sources.iter().all(known)
            && self.senders.add_list(now, (list.group, list.round), list.sources)
    }

    fn on_rx(&mut self, now: Time, flow: &mut RxFlow, meta: &ReceivedPacket) {
        self.end_window(now);
        self.arrived.bytes += u64::from(meta.bytes);
        self.arrived.marked |= meta.ecn;
        let ecn = meta.ecn && self.reports_marks(now);
        self.notify.on_rx(now, flow, &ReceivedPacket { ecn, ..*meta });
        if !meta.duplicate {
            let whole = !meta.trimmed;
            let (begins, ends) = (whole && meta.message_start, whole && meta.message_end);
            self.senders.on_packet(now, meta.source, begins, ends);
        }
    }

    fn fill_ack(&mut self, now: Time, flow: &mut RxFlow, signals: &mut AckSignals) {
        self.end_window(now);
        self.senders.sweep(now);
        self.notify.fill_ack(now, flow, signals);
        let senders = self.senders();
        signals.share = LineShare::new(senders, (WHOLE_SHARE / senders).max(1));
        signals.state = self.state;
        signals.hide_marks = !self.reports_marks(now);
    }

    fn on_close(&mut self, now: Time, flow: &mut RxFlow) {
        self.notify.on_close(now, flow);
    }

    fn poll(&mut self, now: Time) -> Option<ReceiverAction> {
        self.senders.sweep(now);
        self.notify.poll(now)
    }

    fn next_timer(&self) -> Option<Time> {
        match (self.notify.next_timer(), self.senders.next_sweep()) {
            (Some(notify), Some(sweep)) => Some(notify.min(sweep)),
            (notify, sweep) => notify.or(sweep),
        }
    }
}

#[cfg(test)]
mod tests;
