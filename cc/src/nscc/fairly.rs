//! NSCC as VAI and SF need it (Snyder's thesis, section 4.2). The reference is the window as NSCC moves it, but for eq. 1: that
//! lowers the windows of single acknowledgements, each made from the reference, and the reference where a turn says so. Additive
//! increase, which VAI raises, is `eta`: what NSCC adds a base round trip whatever happens.

use crate::fair::{FairCc, Fairness, Reference, Seen};
use crate::feedback::{Feedback, Kind};
use crate::math::{clock, float, least, most, nanos};
use crate::sender::SenderCc;

use super::{Nscc, left_by};

impl FairCc for Nscc {
    type Reference = Reference;

    fn on_feedback_fairly(&mut self, feedback: &Feedback<'_>, fairness: &mut Fairness<Reference>) {
        let (flow, config) = (&mut self.flow, &*self.config);
        flow.cwnd = fairness.reference(flow.cwnd);
        let (Kind::Acked, Some(rtt)) = (feedback.kind, feedback.rtt) else {
            self.on_any(feedback);
            fairness.set_reference(self.flow.cwnd);
            return;
        };
        let delay = flow.sample(config, rtt);
        let seen = Seen {
            measure: nanos(rtt) as f32,
            decrease: feedback.ecn && delay >= config.target_qdelay,
            packets: feedback.packets,
            round_end: feedback.round_end,
            window: flow.cwnd,
            largest: flow.max_wnd,
        };
        let turn = fairness.turn(&seen);
        let before = flow.cwnd;
        // Not once a base round trip, but by turns.
        let last_decrease = core::mem::replace(&mut flow.last_decrease, clock(feedback.now));
        self.on_feedback(feedback);
        let (flow, config) = (&mut self.flow, &*self.config);
        flow.last_decrease = last_decrease;
        // What QuickAdapt, and the receiver's penalty, make of the window is no matter of turns.
        let reference = flow.cwnd;
        fairness.set_reference(reference);
        let Some(turn) = turn.filter(|_| reference >= before) else { return };
        let lowers =
            seen.decrease && !flow.ignores(true) && flow.avg_delay > float(config.target_qdelay.0);
        let left = if lowers { left_by(config, flow.avg_delay) } else { 1.0 };
        let more = config.eta * flow.scale(config) * (turn.gain - 1.0);
        flow.cwnd = most(least(reference * left + more, flow.max_wnd), config.min_wnd);
        if turn.commit {
            fairness.set_reference(flow.cwnd);
        }
    }
}
