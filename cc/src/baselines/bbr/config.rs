//! Parameters of BBR and where their defaults come from.

use squall_base::{Rate, Span};

use crate::controller::SenderParameters;
use crate::error::{ConfigError, within};
use crate::network::NetworkProfile;

/// Parameters of [`crate::Bbr`]. The draft's times are for round trips of tens of milliseconds;
/// they are scaled to the network's.
#[derive(Clone, PartialEq, Debug)]
pub struct BbrConfig {
    /// Rate of the sender's link: no sample of the bandwidth may exceed it.
    pub line: Rate,
    /// Size of a full packet in nominal bytes (UDP payload and 48 bytes for headers).
    pub mtu: u32,
    /// Round-trip time of the idle network, from which the initial sending rate follows.
    pub base_rtt: Span,
    /// Gain of the pacing rate in Startup, and its inverse in Drain: 2/ln 2 (`BBRHighGain`).
    pub high_gain: f32,
    /// Congestion window in ProbeBW, in bandwidth-delay products: 2.
    pub cwnd_gain: f32,
    /// Number of round trips over which the largest measured bandwidth counts: 10
    /// (`BtlBwFilterLen`).
    pub bw_rounds: u8,
    /// Age at which the estimated propagation time is measured anew: 1000 base RTTs
    /// (`RTpropFilterLen`, 10 s).
    pub min_rtt_window: Span,
    /// Duration of ProbeRTT: a fiftieth of `min_rtt_window`, as the draft's 200 ms are of its 10 s.
    pub probe_rtt: Span,
    /// Initial congestion window in packets: 10 (`InitialCwnd`, RFC 6928).
    pub start_cwnd: f32,
    /// Packets that BBR keeps in flight in ProbeRTT: 4 (`BBRMinPipeCwnd`).
    pub min_pipe: f32,
    /// Largest congestion window in packets: five bandwidth-delay products, more than any gain
    /// reaches.
    pub max_cwnd: f32,
    /// Bytes sent back to back (`BBR.send_quantum`): one packet. The draft's 64 KiB are half of
    /// this network's pipe, and the draft adds three quanta to each window.
    pub quantum: u32,
}

impl BbrConfig {
    /// Returns BBR's default parameters for `network`.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // windows are in single precision
    pub fn new(network: &NetworkProfile) -> Self {
        let base_rtt = network.base_rtt.max(network.min_base_rtt.unwrap_or(Span::ZERO));
        let largest = (5.0 * network.bdp()).max(network.min_window.unwrap_or(0) as f64);
        let min_rtt_window = (base_rtt * 1000).min(Span::secs(10));
        Self {
            line: network.line,
            mtu: network.mtu,
            base_rtt,
            high_gain: 2.0 * core::f32::consts::LOG2_E,
            cwnd_gain: 2.0,
            bw_rounds: 10,
            min_rtt_window,
            probe_rtt: min_rtt_window / 50,
            start_cwnd: 10.0,
            min_pipe: 4.0,
            max_cwnd: ((largest / f64::from(network.mtu)) as f32).max(10.0),
            quantum: network.mtu,
        }
    }

    /// Returns the initial congestion window in bytes.
    pub(super) fn start_bytes(&self) -> u64 {
        self.bytes(self.start_cwnd)
    }

    /// Returns the congestion window of ProbeRTT in bytes, which is also the smallest one without
    /// losses.
    pub(super) fn min_pipe_bytes(&self) -> u64 {
        self.bytes(self.min_pipe)
    }

    /// Returns the largest congestion window in bytes.
    pub(super) fn max_bytes(&self) -> u64 {
        self.bytes(self.max_cwnd)
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates, not negative
    fn bytes(&self, packets: f32) -> u64 {
        (packets * self.mtu as f32) as u64
    }

    fn check_whole(&self) -> Result<(), ConfigError> {
        within("line", self.line.0 as f64, 1e6, 1e14, "1 Mb/s to 100 Tb/s")?;
        within("mtu", f64::from(self.mtu), 64.0, 1e6, "64 to 1000000 bytes")?;
        within("base_rtt", self.base_rtt.as_f64(), 1.0, 1e9, "1 ns to 1 s")?;
        let most = f64::from(self.max_cwnd);
        within("start_cwnd", f64::from(self.start_cwnd), 1.0, most, "at most max_cwnd")?;
        within("min_pipe", f64::from(self.min_pipe), 1.0, most, "at most max_cwnd")
    }
}

tunable! {
    BbrConfig, special: [], also: Self::check_whole;
    number high_gain "high_gain" (1.0, 10.0, "1 to 10")
        "gain in Startup, and its inverse in Drain: 2/ln 2";
    number cwnd_gain "cwnd_gain" (1.0, 10.0, "1 to 10")
        "window over the bandwidth-delay product in ProbeBW: 2";
    number bw_rounds "bw_rounds" (1.0, 255.0, "1 to 255, whole")
        "rounds over which the largest bandwidth counts: 10";
    time min_rtt_window "min_rtt_window_us" (1.0, 1e8, "1 to 100000000")
        "age at which the propagation time is measured again: 1000 base RTTs";
    time probe_rtt "probe_rtt_us" (0.0, 1e7, "0 to 10000000")
        "duration of ProbeRTT: 20 base RTTs";
    number start_cwnd "start_cwnd" (1.0, 1e6, "1 to 1000000, at most max_cwnd")
        "first window in packets: 10";
    number min_pipe "min_pipe" (1.0, 1e6, "1 to 1000000, at most max_cwnd")
        "packets in flight in ProbeRTT: 4";
    number max_cwnd "max_cwnd" (1.0, 1e6, "1 to 1000000")
        "largest window in packets: 5 BDPs";
    number quantum "quantum" (64.0, 1e6, "64 to 1000000, whole")
        "bytes sent back to back: one packet";
}

impl SenderParameters for BbrConfig {}
