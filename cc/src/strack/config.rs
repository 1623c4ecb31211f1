//! Parameters of STrack (table 1 of Le et al., "STrack").

use squall_base::{Rate, Span};

use crate::controller::{AckStyle, LossThreshold, SenderParameters};
use crate::error::{ConfigError, within};
use crate::fair::{FairParameters, VaiConfig};
use crate::network::{LONGEST, NetworkProfile};
use crate::tuning::Parameter;

/// Bandwidth-delay product in bytes of the network that table 1 scales from: 100 Gb/s times 12 us.
const REFERENCE_BDP: f64 = 150_000.0;
/// Base round-trip time of the network that table 1 scales from, in nanoseconds.
const REFERENCE_RTT: f64 = 12_000.0;

/// Parameters of [`crate::Strack`]. [`StrackConfig::new`] derives the defaults of table 1; every
/// field may be changed afterwards, and its check validates the result.
///
/// "MTU" is a whole packet in nominal bytes, as [`crate::Feedback::bytes`] counts them.
#[derive(Clone, PartialEq, Debug)]
pub struct StrackConfig {
    /// Rate of the slower of the two ends' links.
    pub line: Rate,
    /// Round-trip time of a full packet over the longest path of the idle network (`net_base_rtt`).
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
    /// Largest (and initial) congestion window over the bandwidth-delay product: 1 ("roughly the
    /// BDP", section 3).
    pub max_wnd_bdp: f32,
    /// Queueing delay at which the algorithm aims (`target_Qdelay`): one base RTT.
    pub target_qdelay: Span,
    /// Queueing delay that counts as heavy congestion (`target_Qhigh`): three target delays.
    pub target_qhigh: Span,
    /// Weight of one ACK in the moving average of the queueing delay (`ewma`): 0.125.
    pub ewma: f32,
    /// Bytes a full window adds when its packets were delayed but not marked (`beta`): `5 MTU bdp_sf`.
    pub beta: f32,
    /// Bytes that the window grows by every base RTT: `0.15 MTU bdp_sf` (`eta`).
    pub eta: f32,
    /// Gain of the increase below the target delay, in bytes per nanosecond (`alpha`):
    /// `4 bdp_sf delay_sf MTU / base_rtt`.
    pub alpha: f32,
    /// Weight of the delay above the target in the multiplicative decrease (`gamma`): 0.8.
    pub gamma: f32,
    /// Smallest factor of one multiplicative decrease: 0.5 (algorithm 3 line 14).
    pub max_md_jump: f32,
    /// The window becomes the achieved bytes only below this part of the largest window: 1/8
    /// (algorithm 3 line 10).
    pub achieved_gate: f32,
    /// Queueing delay that a trimmed or lost packet counts as: 5 base RTTs, the queue at which the
    /// paper's switches drop (section 4.1). Zero: it does not count, as in algorithm 3.
    pub loss_delay: Span,
    /// Packets out of order after which the overtaken ones count as lost: one and a half windows,
    /// as with other algorithms. The paper has one window, at least five packets (section 3.3.2).
    pub threshold: LossThreshold,
    /// Silence of the peer after which the sender probes it: 3 base RTTs (algorithm 1 line 12).
    /// [`Span::MAX`] for never.
    pub probe_after: Span,
}

/// Loss threshold of the STrack paper (section 3.3.2).
const PAPER: LossThreshold = LossThreshold { windows: 1.0, packets: 5 };

/// Our default beyond the paper: losses shrink the window, and the loss threshold is that of other
/// algorithms. Off, the algorithm is the paper's to the letter.
const LOSS_REACTION: Parameter<StrackConfig> = Parameter {
    name: "loss_reaction",
    what: "a loss counts as a delay of 5 base RTTs, and is inferred after 1.5 windows (0: neither, as in the paper): 1",
    allowed: "0 or 1",
    get: |c| f64::from(u8::from(c.loss_delay > Span::ZERO)),
    set: |c, v| {
        let on = v != 0.0;
        // The paper's switches drop at a queue of 5 base RTTs (section 4.1).
        c.loss_delay = if on { c.base_rtt * 5 } else { Span::ZERO };
        c.threshold = if on { LossThreshold::default() } else { PAPER };
    },
};

const OOO_WINDOWS: Parameter<StrackConfig> = Parameter {
    name: "ooo_windows",
    what: "windows of packets out of order that mean a loss: 1.5, or 1 with loss_reaction=0",
    allowed: "0 to 100",
    get: |c| f64::from(c.threshold.windows),
    set: |c, v| c.threshold.windows = v as f32,
};

const OOO_PACKETS: Parameter<StrackConfig> = Parameter {
    name: "ooo_packets",
    what: "fewest packets out of order that mean a loss: 5",
    allowed: "0 to 4095, whole",
    get: |c| f64::from(c.threshold.packets),
    set: |c, v| c.threshold.packets = v as u16,
};

impl StrackConfig {
    /// Returns STrack's default parameters (table 1 of its paper) for `network`.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // gains are single precision by choice
    pub fn new(network: &NetworkProfile) -> Self {
        let base_rtt = network.base_rtt;
        let packet = f64::from(network.mtu);
        let bdp_sf = network.line.0 as f64 * base_rtt.as_f64() / 8e9 / REFERENCE_BDP;
        let delay_sf = base_rtt.as_f64() / REFERENCE_RTT;
        Self {
            line: network.line,
            base_rtt,
            mtu: network.mtu,
            min_base_rtt: network.min_base_rtt.unwrap_or(Span::ZERO),
            min_max_wnd: network.min_window.unwrap_or(0),
            min_wnd: network.mtu as f32,
            max_wnd_bdp: 1.0,
            target_qdelay: base_rtt,
            target_qhigh: base_rtt * 3,
            ewma: 0.125,
            beta: (5.0 * packet * bdp_sf) as f32,
            eta: (0.15 * packet * bdp_sf) as f32,
            alpha: (4.0 * bdp_sf * delay_sf * packet / base_rtt.as_f64()) as f32,
            gamma: 0.8,
            max_md_jump: 0.5,
            achieved_gate: 0.125,
            loss_delay: base_rtt * 5,
            threshold: LossThreshold::default(),
            probe_after: base_rtt * 3,
        }
    }

    fn check_whole(&self) -> Result<(), ConfigError> {
        let longest = LONGEST.as_f64();
        within("line", self.line.0 as f64, 1e6, 1e14, "1 Mb/s to 100 Tb/s")?;
        within("base_rtt", self.base_rtt.as_f64(), 1.0, longest, "1 ns to 1 s")?;
        within("mtu", f64::from(self.mtu), 64.0, 1e6, "64 to 1000000 bytes")?;
        within("min_base_rtt", self.min_base_rtt.as_f64(), 0.0, longest, "up to 1 s")?;
        let LossThreshold { windows, packets } = self.threshold;
        within("ooo_windows", f64::from(windows), 0.0, 100.0, "0 to 100")?;
        within("ooo_packets", f64::from(packets), 0.0, 4095.0, "0 to 4095, whole")?;
        within("loss_delay", self.loss_delay.as_f64(), 0.0, 5.0 * longest, "up to 5 s")?;
        within("min_max_wnd", self.min_max_wnd as f64, 0.0, 2e9, "up to 2 GB")
    }
}

tunable! {
    StrackConfig, special: [LOSS_REACTION, OOO_WINDOWS, OOO_PACKETS], also: Self::check_whole;
    number min_wnd "min_wnd" (1.0, 1e6, "1 to 1000000 bytes")
        "floor of the window in bytes: one MTU";
    number max_wnd_bdp "max_wnd_bdp" (0.1, 100.0, "0.1 to 100")
        "largest and first window over the bandwidth-delay product: 1";
    time target_qdelay "target_us" (0.001, 1e6, "0.001 to 1000000 (1 s)")
        "target queueing delay: one base RTT";
    time target_qhigh "high_us" (0.001, 4e6, "0.001 to 4000000 (4 s)")
        "queueing delay of heavy congestion: three target delays";
    number ewma "ewma" (0.0, 1.0, "0 to 1")
        "weight of one ACK in the average queueing delay: 0.125";
    number beta "beta" (0.0, 1e12, "0 to 1e12 bytes")
        "bytes a full window adds if delayed but not marked: 5 MTU times BDP over 150000 B";
    number eta "eta" (0.0, 1e9, "0 to 1e9 bytes")
        "bytes added every base RTT: 0.15 MTU times BDP over 150000 B";
    number alpha "alpha" (0.0, 1e6, "0 to 1000000 bytes a nanosecond")
        "gain of the increase below the target delay: table 1";
    number gamma "gamma" (0.0, 1.0, "0 to 1")
        "weight of the excess delay in the multiplicative decrease: 0.8";
    number max_md_jump "max_md_jump" (0.0, 1.0, "0 to 1")
        "smallest factor of one multiplicative decrease: 0.5";
    number achieved_gate "achieved_gate" (0.0, 1.0, "0 to 1")
        "part of the largest window below which the achieved bytes become the window: 0.125";
    time probe_after "probe_us" (0.001, f64::INFINITY, "0.001 or more, or inf")
        "silence before a probe: 3 base RTTs";
}

impl SenderParameters for StrackConfig {
    /// Returns how STrack's receivers acknowledge (section 3.3.1).
    fn acks(&self) -> AckStyle {
        AckStyle { lowest_segment: true, ..AckStyle::default() }
    }

    fn loss_threshold(&self) -> LossThreshold {
        self.threshold
    }

    fn set_floor(&mut self, bytes: u32) -> bool {
        self.min_wnd = bytes as f32;
        true
    }
}

impl FairParameters for StrackConfig {
    fn vai(&self) -> VaiConfig {
        let bdp = self.line.0 as f64 / 8e9 * self.base_rtt.as_f64();
        let target = self.base_rtt.as_f64() + self.target_qdelay.as_f64();
        VaiConfig::of_delay(self.base_rtt, bdp, target, self.eta)
    }
}
