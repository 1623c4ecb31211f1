//! Parameters of SMaRTT and where their defaults come from.

use squall_base::{Rate, Span};

use crate::controller::SenderParameters;
use crate::error::{ConfigError, within};
use crate::network::{LONGEST, NetworkProfile};

/// Bandwidth-delay product in bytes of the network on which the constants were tuned: 100 Gb/s
/// times 12 us (section 3.5 "Scaling").
const REFERENCE_BDP: f64 = 150_000.0;

/// Parameters of [`crate::Smartt`]. [`SmarttConfig::new`] derives the defaults of section 3.5;
/// every field may be changed afterwards, and its check validates the result.
///
/// "MTU" is a whole packet in nominal bytes, as [`crate::Feedback::bytes`] counts them.
#[derive(Clone, PartialEq, Debug)]
pub struct SmarttConfig {
    /// Rate of the slower of the two ends' links.
    pub line: Rate,
    /// Round-trip time of a full packet over the longest path of the idle network (`brtt`).
    pub base_rtt: Span,
    /// Size of a full packet in nominal bytes (UDP payload and 48 bytes for headers).
    pub mtu: u32,
    /// Floor of the measured base round-trip time in the bandwidth-delay product. Zero for none;
    /// hosts whose own jitter exceeds the network's delay need one.
    pub min_base_rtt: Span,
    /// Lower bound of the largest congestion window, in bytes. Zero for none.
    pub min_max_wnd: u64,
    /// Smallest congestion window in bytes: one MTU.
    pub min_wnd: f32,
    /// Largest (and initial) congestion window over the bandwidth-delay product: 1.25 (section
    /// 3.5).
    pub max_wnd_bdp: f32,
    /// Target round-trip time over the base round-trip time (`trtt / brtt`): 1.5 (section 3.5).
    pub target: f32,
    /// Strength of the fair decrease (`fd`): 0.8, whatever the network (section 3.5).
    pub fd: f32,
    /// Strength of the multiplicative decrease (`md`): 2 with trimming, 4 without (sections 3.2.2
    /// and 3.3).
    pub md: f32,
    /// Fair increase (`fi`): 0.25 times the network's bandwidth-delay product over that of 100 Gb/s
    /// and 12 us (section 3.5).
    pub fi: f32,
    /// Strength of the multiplicative increase (`mi`): `brtt / (trtt - brtt)` (section 3.2.4),
    /// scaled like `fi`.
    pub mi: f32,
    /// MTUs of window per MTU acknowledged without congestion in FastIncrease: 2 (section 3.4).
    pub k: f32,
    /// Queueing delay below which a round-trip time is "close to the base RTT" (algorithm 3 line 2):
    /// 1 us (uet-htsim), a quarter of the base RTT on hosts with jitter.
    pub near: Span,
    /// Window after QuickAdapt, as a multiple of the bytes that got through: 0.8 (section 3.5).
    pub qa_scaling: f32,
    /// Weight of one packet in the moving average of the share of marked packets: 0.05 (uet-htsim
    /// `exp_avg_alpha`).
    pub wtd_alpha: f32,
    /// Share of marked packets from which the window may shrink: 0.25 (section 3.6.1). Zero switches
    /// wait-to-decrease off.
    pub wtd_threshold: f32,
    /// Marks are evaluated; without them a packet delayed beyond the target counts as marked.
    pub ecn: bool,
    /// Delay is evaluated; without it a marked packet counts as delayed by four thirds of the
    /// target.
    pub delay: bool,
    /// QuickAdapt is on, which sets the window to the bytes that got through in a round trip: yes.
    pub quick_adapt: bool,
    /// QuickAdapt ignores the ACKs of packets that were in flight (algorithm 2 line 8): yes.
    pub ignore: bool,
    /// QuickAdapt also ignores the trimmed packets among those in flight: no (algorithm 1 line 29).
    pub ignore_trims: bool,
    /// FastIncrease is on, which raises the window quickly while paths are empty: yes.
    pub fast_increase: bool,
}

impl SmarttConfig {
    /// Returns SMaRTT's default parameters (section 3.5) for `network`.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // gains are single precision by choice
    pub fn new(network: &NetworkProfile) -> Self {
        let base_rtt = network.base_rtt;
        let bdp = network.line.0 as f64 * base_rtt.as_f64() / 8e9;
        let gamma = bdp / REFERENCE_BDP;
        let target = 1.5;
        Self {
            line: network.line,
            base_rtt,
            mtu: network.mtu,
            min_base_rtt: network.min_base_rtt.unwrap_or(Span::ZERO),
            min_max_wnd: network.min_window.unwrap_or(0),
            min_wnd: network.mtu as f32,
            max_wnd_bdp: 1.25,
            target,
            fd: 0.8,
            md: if network.trimming { 2.0 } else { 4.0 },
            fi: (0.25 * gamma) as f32,
            mi: (gamma / (f64::from(target) - 1.0)) as f32,
            k: 2.0,
            near: network.min_base_rtt.map_or(Span::micros(1), |_| base_rtt / 4),
            qa_scaling: 0.8,
            wtd_alpha: 0.05,
            wtd_threshold: 0.25,
            ecn: true,
            delay: true,
            quick_adapt: true,
            ignore: true,
            ignore_trims: false,
            fast_increase: true,
        }
    }

    /// Returns whether no part of the algorithm is switched off.
    pub(super) const fn is_published(&self) -> bool {
        self.ecn && self.delay && self.quick_adapt && self.ignore && self.fast_increase
    }

    fn check_whole(&self) -> Result<(), ConfigError> {
        let longest = LONGEST.as_f64();
        within("line", self.line.0 as f64, 1e6, 1e14, "1 Mb/s to 100 Tb/s")?;
        within("base_rtt", self.base_rtt.as_f64(), 1.0, longest, "1 ns to 1 s")?;
        within("mtu", f64::from(self.mtu), 64.0, 1e6, "64 to 1000000 bytes")?;
        within("min_base_rtt", self.min_base_rtt.as_f64(), 0.0, longest, "up to 1 s")?;
        within("min_max_wnd", self.min_max_wnd as f64, 0.0, 2e9, "up to 2 GB")
    }
}

tunable! {
    SmarttConfig, special: [], also: Self::check_whole;
    number min_wnd "min_wnd" (1.0, 1e6, "1 to 1000000 bytes")
        "floor of the window in bytes: one MTU";
    number max_wnd_bdp "max_wnd_bdp" (0.1, 100.0, "0.1 to 100")
        "largest and first window over the bandwidth-delay product: 1.25";
    number target "target" (1.01, 10.0, "1.01 to 10")
        "target round-trip time over the base round-trip time: 1.5";
    number fd "fd" (0.0, 1.0, "0 to 1")
        "fair decrease: 0.8";
    number md "md" (0.0, 100.0, "0 to 100")
        "multiplicative decrease: 2 if switches trim, else 4";
    number fi "fi" (0.0, 1e6, "0 to 1000000")
        "fair increase in MTUs a round trip: 0.25 times BDP over 150000 B";
    number mi "mi" (0.0, 1e6, "0 to 1000000")
        "multiplicative increase: brtt / (trtt - brtt), scaled like fi";
    number k "k" (0.0, 100.0, "0 to 100")
        "MTUs of window per uncongested MTU in FastIncrease: 2";
    time near "near_us" (0.0, 1e6, "0 to 1000000 (1 s)")
        "queueing delay that still counts as an empty path: 1";
    number qa_scaling "qa_scaling" (0.0, 100.0, "0 to 100")
        "window after QuickAdapt over the bytes that got through: 0.8";
    number wtd_alpha "wtd_alpha" (0.0, 1.0, "0 to 1")
        "weight of one packet in the share of marked packets: 0.05";
    number wtd_threshold "wait_to_decrease" (0.0, 1.0, "0 to 1")
        "share of marked packets from which the window may shrink, 0 for at once: 0.25";
    switch ecn "ecn" (0.0, 1.0, "0 or 1")
        "marks are evaluated: 1";
    switch delay "delay" (0.0, 1.0, "0 or 1")
        "delay is evaluated: 1";
    switch quick_adapt "quick_adapt" (0.0, 1.0, "0 or 1")
        "QuickAdapt is on: 1";
    switch ignore "ignore" (0.0, 1.0, "0 or 1")
        "QuickAdapt ignores the ACKs of packets that were in flight: 1";
    switch ignore_trims "ignore_trims" (0.0, 1.0, "0 or 1")
        "QuickAdapt also ignores the trims of packets that were in flight: 0";
    switch fast_increase "fast_increase" (0.0, 1.0, "0 or 1")
        "FastIncrease is on: 1";
}

impl SenderParameters for SmarttConfig {
    fn set_floor(&mut self, bytes: u32) -> bool {
        self.min_wnd = bytes as f32;
        true
    }
}
