//! Path selection: which entropy, hence which way through the network, the next packet or train
//! takes. UE 1.0 section 3.6.16 mandates no scheme; these are the common ones.

use squall_base::Time;

use crate::error::{ConfigError, within};
use crate::tuning::Tunable;

/// What became of a packet on a path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PathSignal {
    /// Acknowledged, not marked.
    Good,
    /// Acknowledged, marked Congestion Experienced (or refused for its receiver's sake, and marked).
    Ecn,
    /// Trimmed inside the network.
    Nack,
    /// Gone without a word, as the receiver's reports tell: overtaken by many, or missing although a
    /// probe that was sent later came through.
    Lost,
    /// Its retransmission timer fired.
    Timeout,
}

/// What a selector looks like, for counters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PathMetrics {
    /// It restricts itself to paths known to work, after one failed.
    pub frozen: bool,
    /// Times that happened.
    pub freezes: u32,
    /// Times a flow of one path changed it.
    pub changes: u32,
    /// Good paths it remembers.
    pub remembered: u16,
    /// Paths it keeps off because they swallowed packets, a bit each: bit `n` for all paths `n` modulo 32.
    pub avoided: u32,
}

/// Chooses paths for one flow.
pub trait PathSelector {
    /// The path for the next packet or train: an index below the number of paths configured.
    /// `cwnd_packets` is the window in packets, for schemes that explore one window's worth.
    fn pick(&mut self, now: Time, cwnd_packets: u32) -> u16;

    /// What became of a packet sent on `path`. A path out of range is ignored.
    fn on_feedback(&mut self, now: Time, path: u16, signal: PathSignal);

    /// Nothing is in flight and nothing waits.
    fn on_idle(&mut self, now: Time) {
        let _ = now;
    }

    /// What it looks like.
    fn metrics(&self) -> PathMetrics;

    /// Bytes of state of this selector, in boxes too; without what it shares with others.
    fn state_bytes(&self) -> usize {
        size_of_val(self)
    }
}

/// Parameters of a path selector. Besides the method here it has `new(paths: u16) -> Self`, its
/// defaults over that many paths, and the selector `new(Arc<Self>, Rng)`.
pub trait PathParameters: Tunable {
    /// Number of paths it chooses from.
    fn paths(&self) -> u16;

    /// Whether it avoids paths that seem broken, and so needs somebody who can tell.
    fn freezes(&self) -> bool {
        false
    }

    /// What it is called with these parameters, if not what it is called with its defaults.
    fn preset(&self) -> Option<&'static str> {
        None
    }
}

/// A number of paths that schemes which shuffle by exclusive or can take.
pub(crate) fn power_of_two(paths: u16) -> Result<(), ConfigError> {
    let refused =
        ConfigError { parameter: "paths", value: paths.into(), allowed: "a power of two" };
    if paths.is_power_of_two() { Ok(()) } else { Err(refused) }
}

/// At least one path.
pub(crate) fn some_paths(paths: u16) -> Result<(), ConfigError> {
    within("paths", f64::from(paths), 1.0, f64::from(u16::MAX), "1 to 65535")
}
