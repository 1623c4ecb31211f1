//! Dart's sender (Xue et al., "Dart: Divide and Specialize for Fast Response to Congestion in
//! RDMA-based Datacenter Networks", ToN 2020): the rate is the smaller of the share of its line
//! that the receiver assigns (DASR, section III-B) and DCQCN's rate (section III-C). The receiver
//! is [`crate::DartReceiver`].
//!
//! **Chosen by name, never by default.** US 11,190,454 B2 ("Receiver-directed computer network
//! congestion control system") has claims on a receiver's set of active senders, the share that
//! acknowledgements return, and the rate set from it. Users must decide for themselves whether that
//! concerns their use of this file.

mod active_senders;
mod config;
mod receiver;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::sync::Arc;

use squall_base::{Rate, Time};

use crate::baselines::Dcqcn;
use crate::controller::{
    Budget, Feedback, FeedbackExtension, FlowEvent, SenderCc, SenderMetrics, SentPacket, Stamp,
    WHOLE_SHARE,
};
pub use config::{DartConfig, DartParameters};
pub use receiver::DartReceiver;

/// One congestion-control context of Dart; contexts share the parameters.
#[derive(Clone, Debug)]
pub struct Dart(Box<DartContext>);

#[derive(Clone, Debug)]
struct DartContext {
    config: Arc<DartConfig>,
    dcqcn: Dcqcn,
    /// Share of the receiver's line that the receiver assigned, in units of 1/[`WHOLE_SHARE`].
    share: u16,
}

impl Dart {
    /// Creates a congestion-control context that starts at line rate. `config` must have passed
    /// [`crate::Tunable::check`].
    #[must_use]
    pub fn new(config: Arc<DartConfig>, now: Time) -> Self {
        let dcqcn = Dcqcn::new(Arc::clone(&config.dcqcn), now);
        Self(Box::new(DartContext { config, dcqcn, share: WHOLE_SHARE }))
    }

    /// Returns the bytes of state that a context keeps on the heap.
    #[cfg(test)]
    const fn boxed_bytes() -> usize {
        size_of::<DartContext>()
    }
}

impl DartContext {
    /// Returns the sending rate that the receiver's share allows.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // eta is positive
    fn share_rate(&self) -> Rate {
        let line = self.config.dcqcn.line;
        if self.share == WHOLE_SHARE {
            return line;
        }
        let whole = line.0 as f64 * f64::from(self.config.own.eta);
        Rate((whole * f64::from(self.share) / f64::from(WHOLE_SHARE)) as u64).max(Rate(1))
    }

    fn rate(&self, now: Time) -> Rate {
        let dcqcn = self.dcqcn.budget(now).rate;
        dcqcn.map_or_else(|| self.share_rate(), |dcqcn| dcqcn.min(self.share_rate()))
    }
}

impl SenderCc for Dart {
    fn budget(&self, now: Time) -> Budget {
        let state = &*self.0;
        Budget {
            rate: Some(state.rate(now)),
            window: state.config.window_bytes(),
            burst: state.config.dcqcn.burst,
            ..Budget::default()
        }
    }

    fn on_send(&mut self, now: Time, sending: &SentPacket) -> Stamp {
        self.0.dcqcn.on_send(now, sending)
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        if let FeedbackExtension::Share(share) = feedback.extension {
            self.0.share = share.share();
        }
        self.0.dcqcn.on_feedback(feedback);
    }

    fn on_event(&mut self, now: Time, event: FlowEvent) {
        // A flow starts at line rate (section III-B): the share from before a pause no longer
        // applies.
        if event == FlowEvent::Idle {
            self.0.share = WHOLE_SHARE;
        }
        self.0.dcqcn.on_event(now, event);
    }

    fn on_timer(&mut self, now: Time) {
        self.0.dcqcn.on_timer(now);
    }

    fn next_timer(&self) -> Option<Time> {
        self.0.dcqcn.next_timer()
    }

    fn metrics(&self) -> SenderMetrics {
        let state = &*self.0;
        let (window, now) = (state.config.window_bytes(), Time::ZERO);
        SenderMetrics {
            cwnd: window,
            max_cwnd: window,
            rate: Some(state.rate(now)),
            ..state.dcqcn.metrics()
        }
    }

    fn state_bytes(&self) -> usize {
        size_of_val(self) + size_of_val(&*self.0)
    }
}
