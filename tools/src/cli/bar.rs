//! Progress on the terminal; silent elsewhere.

use core::fmt::Write;

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

use crate::plan::Progress;
use squall_netsim::Picos;

/// A bar over the runs of a plan, or over the flows of one run.
pub(super) struct Bar {
    bar: ProgressBar,
    single: bool,
}

/// Steps of the bar of a single run.
const STEPS: u64 = 1000;

impl Bar {
    /// For `runs` runs; nothing is drawn when `quiet` or when standard error is no terminal.
    pub(super) fn new(runs: usize, quiet: bool) -> Self {
        let single = runs == 1;
        let length = if single { STEPS } else { runs as u64 };
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(length) };
        let template = if single {
            "{bar:40} {percent}% of flows, {msg}, {elapsed}{left}"
        } else {
            "{bar:40} {pos}/{len} runs, {elapsed}{left}"
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.with_key("left", left));
        }
        Self { bar, single }
    }

    /// Takes the bar away.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// What is said of the time to come, once there is something to tell it by.
fn left(state: &ProgressState, to: &mut dyn Write) {
    if state.pos() > 0 {
        // What is written for the terminal cannot fail.
        let _ = write!(to, " (about {:#} left)", HumanDuration(state.eta()));
    }
}

impl Progress for Bar {
    fn running(&self, _run: usize, share: f64, now: Picos) {
        if self.single {
            self.bar.set_position((share * STEPS as f64) as u64);
            self.bar.set_message(format!("{now} simulated"));
        } else {
            self.bar.tick();
        }
    }

    fn finished(&self, _run: usize) {
        if !self.single {
            self.bar.inc(1);
        }
    }
}
