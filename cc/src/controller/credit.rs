//! Credit that a receiver grants: its encoding on the wire, and the parameters of a granting
//! receiver.

use squall_base::{Rate, Span};

use crate::error::{ConfigError, within};
use crate::network::NetworkProfile;

/// Unit of credit on the wire, in bytes (uet-htsim `UEC_PULL_QUANTUM`).
pub const CREDIT_UNIT: u64 = 256;
const CREDIT_BITS: u32 = 24;
const CREDIT_MASK: u64 = (1 << CREDIT_BITS) - 1;

/// Returns cumulative `bytes` as the 24 bits of UET's `credit` and `credit_target`, rounded up.
/// Grants are whole units already; rounding a request down would ask for too little.
#[must_use]
pub const fn credit_units(bytes: u64) -> u32 {
    (bytes.div_ceil(CREDIT_UNIT) & CREDIT_MASK) as u32
}

/// Returns the cumulative bytes that `units` of the wire stand for: of all numbers with these low
/// bits the one nearest to `near`, an earlier number of the same flow.
#[must_use]
pub const fn credit_bytes(near: u64, units: u32) -> u64 {
    let known = near / CREDIT_UNIT;
    let ahead = (units as u64).wrapping_sub(known) & CREDIT_MASK;
    let half = 1 << (CREDIT_BITS - 1);
    let behind = (CREDIT_MASK + 1) - ahead;
    // Numbers below zero do not exist, so the candidate ahead is the only one.
    let nearest = if ahead < half || behind > known { known + ahead } else { known - behind };
    nearest.saturating_mul(CREDIT_UNIT)
}

/// Parameters of [`crate::CreditReceiver`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CreditConfig {
    /// Rate of the receiver's port.
    pub line: Rate,
    /// Size of a full packet in nominal bytes (UDP payload and 48 bytes for headers).
    pub mtu: u32,
    /// Share of the receiver's line that is granted as credit: 0.99, so that a standing queue
    /// drains.
    pub share: f64,
    /// Bytes of credit that the pacer grants a flow at a time (a pull): 4 packets.
    pub pull: u32,
    /// Credit in bytes that a flow without demand receives while no other flow asks, so that it can
    /// resume without asking: the largest window. Zero for none.
    pub idle: u64,
    /// Delay behind its schedule that the pacer makes up for: one base round-trip time. Without it
    /// a host that wakes late would not fill its line.
    pub catch_up: Span,
    /// ACKs carry the credit; otherwise it travels in packets of its own.
    pub in_acks: bool,
    /// Period of one base round-trip time at whose end the receiver looks at the share of arriving
    /// packets that switches inside the network trimmed, and grants less of its line if that was
    /// large. Zero for never, as in EQDS.
    pub core_period: Span,
}

impl CreditConfig {
    pub(crate) const SHARE: &'static str = "0.01 to 1 of the line";
    pub(crate) const PULL: &'static str = "256 to 10000000 bytes";
    pub(crate) const IDLE: &'static str = "0 to 2 GB";
    pub(crate) const CATCH_UP: &'static str = "0 to 1000000 (1 s)";

    /// Returns the default parameters of a credit-granting receiver on `network`.
    #[must_use]
    pub fn new(network: &NetworkProfile) -> Self {
        let rtt = network.base_rtt.max(network.min_base_rtt.unwrap_or(Span::ZERO));
        Self {
            line: network.line,
            mtu: network.mtu,
            share: 0.99,
            pull: network.mtu.saturating_mul(4),
            idle: network.line.bytes_in(rtt).saturating_mul(3) / 2,
            catch_up: rtt,
            in_acks: true,
            core_period: Span::ZERO,
        }
    }

    /// Checks that a receiver can run on these values.
    ///
    /// # Errors
    /// Returns the first parameter that is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        within("line", self.line.0 as f64, 1e6, 1e14, "1 Mb/s to 100 Tb/s")?;
        within("mtu", f64::from(self.mtu), 64.0, 1e6, "64 to 1000000 bytes")?;
        within("share", self.share, 0.01, 1.0, Self::SHARE)?;
        within("pull", f64::from(self.pull), 256.0, 1e7, Self::PULL)?;
        within("idle", self.idle as f64, 0.0, 2e9, Self::IDLE)?;
        within("catch_up_us", self.catch_up.as_f64() / 1e3, 0.0, 1e6, Self::CATCH_UP)
    }
}
