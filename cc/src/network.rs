//! Properties of an endpoint's network: the one input from which every algorithm derives its
//! defaults.

use squall_base::{Rate, Span};

use crate::error::{ConfigError, within};

/// Longest time that algorithms accept: times kept in 32 bits of nanoseconds must stay well below
/// 2^32.
pub(crate) const LONGEST: Span = Span::secs(1);

/// Properties of the network to which an endpoint is attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetworkProfile {
    /// Rate of the slower of the two ends' links.
    pub line: Rate,
    /// Round-trip time of a full packet over the longest path of the idle network.
    pub base_rtt: Span,
    /// Size of a full packet in nominal bytes, as [`crate::Feedback::bytes`] counts them.
    pub mtu: u32,
    /// Switches trim packets instead of dropping them.
    pub trimming: bool,
    /// Lower bound of the largest congestion window in bytes, for hosts that need more than the
    /// bandwidth-delay product.
    pub min_window: Option<u64>,
    /// Lower bound of the measured base round-trip time, for hosts whose own jitter exceeds the
    /// network's delay.
    pub min_base_rtt: Option<Span>,
}

impl NetworkProfile {
    /// Creates a network whose hosts need no floors of window and round-trip time.
    #[must_use]
    pub const fn new(line: Rate, base_rtt: Span, mtu: u32, trimming: bool) -> Self {
        Self { line, base_rtt, mtu, trimming, min_window: None, min_base_rtt: None }
    }

    /// Returns the bandwidth-delay product of the network in bytes.
    #[must_use]
    pub fn bdp(&self) -> f64 {
        self.line.0 as f64 * self.base_rtt.as_f64() / 8e9
    }

    /// Checks that algorithms can run on such a network.
    ///
    /// # Errors
    /// Returns the first value that is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let longest = LONGEST.as_f64();
        within("link rate", self.line.0 as f64, 1e6, 1e14, "1 Mb/s to 100 Tb/s")?;
        within("base RTT", self.base_rtt.as_f64(), 1.0, longest, "1 ns to 1 s")?;
        within("MTU", f64::from(self.mtu), 64.0, 1e6, "64 to 1000000 bytes")?;
        let (window, rtt) = (self.min_window.unwrap_or(0), self.min_base_rtt.unwrap_or(Span::ZERO));
        within("smallest window", window as f64, 0.0, 2e9, "up to 2 GB")?;
        within("smallest base RTT", rtt.as_f64(), 0.0, longest, "up to 1 s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_out_of_range_is_refused() {
        let network = NetworkProfile::new(Rate::gbps(100), Span::micros(12), 4096, true);
        assert_eq!((network.check(), network.bdp()), (Ok(()), 150_000.0));
        for (bad, what) in [
            (NetworkProfile { line: Rate(0), ..network }, "link rate"),
            (NetworkProfile { base_rtt: Span::ZERO, ..network }, "base RTT"),
            (NetworkProfile { mtu: 63, ..network }, "MTU"),
            (NetworkProfile { min_window: Some(u64::MAX), ..network }, "smallest window"),
            (NetworkProfile { min_base_rtt: Some(Span::secs(2)), ..network }, "smallest base RTT"),
        ] {
            assert_eq!(bad.check().expect_err(what).parameter, what);
        }
    }
}
