//! Path selection: the entropy, and thereby the route through the network, of the next packet or
//! train. UE 1.0 section 3.6.16 mandates no scheme; these are the common ones.

use squall_base::Time;

use crate::error::{ConfigError, within};
use crate::tuning::Tunable;

/// Outcome of a packet, as its path's selector learns it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PathSignal {
    /// The packet was acknowledged, and was not marked.
    Good,
    /// The packet was acknowledged and marked Congestion Experienced (or refused by the receiver,
    /// and marked).
    Ecn,
    /// A switch inside the network trimmed the packet.
    Nack,
    /// The receiver's reports show that the packet is lost: many later packets overtook it, or it
    /// is missing although a later probe arrived.
    Lost,
    /// The retransmission timer of the packet expired.
    Timeout,
}

/// State of a path selector, for statistics.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PathMetrics {
    /// The selector uses only paths known to work at present, because one failed.
    pub frozen: bool,
    /// Number of times that the selector froze: restricted itself to paths known to work.
    pub freezes: u32,
    /// Number of times that a flow which uses one path changed it.
    pub changes: u32,
    /// Number of good paths that the selector remembers.
    pub remembered: u16,
    /// Paths that the selector avoids because they lost packets: bit `n` stands for all paths that
    /// are `n` modulo 32.
    pub avoided: u32,
}

/// Chooses paths for one flow.
pub trait PathSelector {
    /// Returns the path for the next packet or train: an index below the configured number of
    /// paths. `cwnd_packets` is the window in packets, for schemes that explore one window's worth.
    fn pick(&mut self, now: Time, cwnd_packets: u32) -> u16;

    /// Processes the outcome of a packet sent on `path`. A path out of range is ignored.
    fn on_feedback(&mut self, now: Time, path: u16, signal: PathSignal);

    /// Reports that the flow has nothing in flight and nothing to send.
    fn on_idle(&mut self, now: Time) {
        let _ = now;
    }

    /// Returns the state of the path selector, for statistics.
    fn metrics(&self) -> PathMetrics;

    /// Returns the bytes of state of this selector: including heap memory, but not the state that it
    /// shares with others.
    fn state_bytes(&self) -> usize {
        size_of_val(self)
    }
}

/// Parameters of a path selector. Besides these methods the type has `new(paths: u16) -> Self`,
/// which returns the defaults over that many paths, and the selector has `new(Arc<Self>, Rng)`.
pub trait PathParameters: Tunable {
    /// Returns the number of paths among which the selector chooses.
    fn paths(&self) -> u16;

    /// Returns whether the selector avoids paths that seem broken. It then needs a caller that
    /// reports [`PathSignal::Lost`] and [`PathSignal::Timeout`] reliably.
    fn freezes(&self) -> bool {
        false
    }

    /// Returns whether all packets of a flow take one path for as long as the flow lives. Networks
    /// that keep the packets of a message in order need such a selector.
    fn is_single_path(&self) -> bool {
        false
    }

    /// Returns the name of the preset that these parameters are, if they are one.
    fn preset(&self) -> Option<&'static str> {
        None
    }
}

/// Checks that the number of paths is a power of two, for a selector that shuffles by exclusive or.
pub(crate) fn power_of_two(paths: u16) -> Result<(), ConfigError> {
    let refused =
        ConfigError { parameter: "paths", value: paths.into(), allowed: "a power of two" };
    if paths.is_power_of_two() { Ok(()) } else { Err(refused) }
}

/// Checks that the number of paths is not zero.
pub(crate) fn some_paths(paths: u16) -> Result<(), ConfigError> {
    within("paths", f64::from(paths), 1.0, f64::from(u16::MAX), "1 to 65535")
}
