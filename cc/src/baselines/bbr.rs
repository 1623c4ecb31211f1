//! BBR, the first version (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue
//! 14(5), 2016; draft-cardwell-iccrg-bbr-congestion-control-00, whose section and function names
//! are used below): a model of the path (bottleneck bandwidth and round-trip propagation time) from
//! which rate and window follow. SMaRTT v1 compares with it (section 4).

mod config;
mod filter;
mod model;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::sync::Arc;

use squall_base::Time;

use crate::controller::{Budget, Feedback, FlowEvent, SenderCc, SenderMetrics};
pub use config::BbrConfig;
use model::Model;

/// One BBR context. Its state lives in a box, because inside [`crate::Sender`] it would enlarge the
/// many small contexts of other algorithms.
#[derive(Clone, Debug)]
pub struct Bbr(Box<Model>);

impl Bbr {
    /// Creates a context in Startup at `now`. `config` must have passed [`crate::Tunable::check`].
    #[must_use]
    pub fn new(config: Arc<BbrConfig>, now: Time) -> Self {
        Self(Box::new(Model::new(config, now)))
    }
}

impl SenderCc for Bbr {
    fn budget(&self, now: Time) -> Budget {
        self.0.budget(now)
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.0.on_feedback(feedback);
    }

    fn on_event(&mut self, now: Time, event: FlowEvent) {
        self.0.on_event(now, event);
    }

    fn state_bytes(&self) -> usize {
        size_of_val(self) + size_of_val(&*self.0)
    }

    fn metrics(&self) -> SenderMetrics {
        self.0.metrics()
    }
}
