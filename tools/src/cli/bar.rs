//! The progress bar, drawn on a terminal only.

use core::fmt::Write;

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

use crate::plan::Progress;
use squall_netsim::Picos;

/// A progress bar over the runs of a plan, or over the flows of a single run.
pub(super) struct Bar {
    bar: ProgressBar,
    single: bool,
}

/// Number of steps in which the progress bar of a single run advances.
const STEPS: u64 = 1000;

impl Bar {
    /// Creates the bar for `runs` runs. Nothing is drawn if `quiet` is set or standard error is no
    /// terminal.
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

    /// Removes the bar from the terminal.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// Writes the estimated time left, once there is some progress to estimate it from.
fn left(state: &ProgressState, to: &mut dyn Write) {
    if state.pos() > 0 {
        // Writing to the bar's text cannot fail.
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
