//! Parameters of NSCC and where their defaults come from.

use squall_base::{Rate, Span};

use crate::controller::SenderParameters;
use crate::error::{ConfigError, within};
use crate::fair::{FairParameters, VaiConfig};
use crate::network::{LONGEST, NetworkProfile};
use crate::tuning::{Parameter, Tunable, number, switch, time, to_micros};

/// Bandwidth-delay product in bytes of the network on which the constants of UE 1.0 were tuned: 100
/// Gb/s times 12 us (section 3.6.13.3).
const REFERENCE_BDP: f64 = 150_000.0;
/// Base round-trip time in nanoseconds of the network on which UE 1.0's constants were tuned.
const REFERENCE_RTT: f64 = 12_000.0;

/// The base round-trip time by which the gains are scaled. The target delay is the network's in
/// either case, because it stands for the queues of its switches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Scaling {
    /// The configured base round-trip time, the same for every flow (UE 1.0 section 3.6.13.3).
    #[default]
    Network,
    /// Each flow's measured base round-trip time, so that flows of different length grow alike in the
    /// same time (SMaRTT v2 section III-J "Scaling", Fig. 6).
    Path,
}

/// Weight of one report in the moving average of the queueing delay.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Averaging {
    /// Each report weighs as its bytes do in the window, so that the mean covers about one round
    /// trip whatever the flow's share (UE 1.0 section 3.6.13.6 asks for about one base RTT).
    #[default]
    Window,
    /// Each packet has this weight; uet-htsim uses 0.0125. A flow with few packets a round trip
    /// then averages over many round trips, keeps decreasing after its competitors stopped, and
    /// starves for milliseconds.
    Packet(f32),
}

/// Parameters of [`crate::Nscc`]. [`NsccConfig::new`] derives the defaults of UE 1.0 section
/// 3.6.13.3; every field may be changed afterwards, and [`NsccConfig::check`] validates the result.
///
/// "MTU" is a whole packet in nominal bytes, as [`crate::Feedback::bytes`] counts them.
#[derive(Clone, PartialEq, Debug)]
pub struct NsccConfig {
    /// Rate of the slower of the two ends' links.
    pub link_rate: Rate,
    /// Round-trip time of a full packet over the longest path of the idle network.
    pub base_rtt: Span,
    /// Size of a full packet in nominal bytes (UDP payload and 48 bytes for headers).
    pub mtu: u32,
    /// Switches trim packets instead of dropping them.
    pub trimming: bool,
    /// The receiver's credits also run (RCCC) and handle trims at the last hop.
    pub rccc: bool,
    /// Ask for one probe on the control class after the first report of a context while more is in
    /// flight, to measure a base RTT without queues (section 3.6.13.7): yes.
    pub probe: bool,
    /// Base round-trip time by which the gains are scaled: the network's or the flow's own.
    pub scaling: Scaling,
    /// Floor of the measured base round-trip time in the bandwidth-delay product. Zero for none;
    /// hosts whose own jitter exceeds the network's delay need one.
    pub min_base_rtt: Span,
    /// Lower bound of the largest congestion window, in bytes. Zero for none.
    pub min_max_wnd: u64,
    /// Smallest congestion window in bytes: one MTU.
    pub min_wnd: f32,
    /// Largest (and initial) congestion window over the bandwidth-delay product: 1.5 (SMaRTT v2
    /// section III-J).
    pub max_wnd_bdp: f32,
    /// Queueing delay at which the algorithm aims: 0.75 base RTTs with trimming, 1.0 without.
    pub target_qdelay: Span,
    /// Gain of the proportional increase: `4 a b MTU / target_qdelay`, in bytes per nanosecond.
    pub alpha: f32,
    /// Gain of the fair increase: `5 MTU a`, in bytes of window.
    pub fi: f32,
    /// Bytes of window per byte acknowledged without congestion in fast increase: `0.25 a`.
    pub fi_scale: f32,
    /// Bytes that each adjustment period adds to the window in any case: `0.15 MTU a`.
    pub eta: f32,
    /// Weight of the delay above the target in the multiplicative decrease: 0.8 (SMaRTT v2 eq. 1).
    pub gamma: f32,
    /// Smallest factor of one multiplicative decrease: 0.5 (SMaRTT v2 eq. 1).
    pub max_md_jump: f32,
    /// QuickAdapt is on, which sets the window to the bytes that got through in a round trip: yes.
    pub quick_adapt: bool,
    /// QuickAdapt applies only if fewer than `max_wnd >> qa_gate` bytes got through: 3.
    pub qa_gate: u8,
    /// Window after QuickAdapt, as a multiple of the bytes that got through: 1 (SMaRTT v2 section
    /// III-E).
    pub qa_scaling: f32,
    /// Queueing delay that alone triggers QuickAdapt: 4 target delays without trimming, never with
    /// it ([`Span::MAX`]).
    pub qa_threshold: Span,
    /// Bytes acknowledged between two adjustments of the window: 8 MTU.
    pub adjust_bytes: u32,
    /// Time between two adjustments of the window: one base RTT.
    pub adjust_period: Span,
    /// Weight of one report in the moving average of the queueing delay.
    pub averaging: Averaging,
    /// Queueing delay below which a path counts as empty for fast increase: 1 us (uet-htsim; the
    /// sources say "close to zero"). Hosts whose jitter needs a floor of the base round-trip time
    /// would never measure so little; their default is a quarter of that floor.
    pub fast_increase_below: Span,
    /// React to one acknowledgement in this many, on behalf of all of them (SMaRTT v2 section
    /// III-G): 1; 8 costs little accuracy. To accumulate over a round trip instead, raise
    /// `adjust_bytes`.
    pub sample: u8,
    /// Parts for the ablations of the paper's figures, and for its differences from UE 1.0.
    pub parts: NsccParts,
}

/// The parts of the algorithm that the figures of SMaRTT v2 switch off one at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NsccParts {
    /// Marks distinguish the four cases of the algorithm (Fig. 5). Without them a packet whose
    /// delay exceeds the target counts as marked.
    pub ecn: bool,
    /// Delays distinguish the four cases of the algorithm (Fig. 5). Without them a marked packet
    /// counts as delayed by two targets and an unmarked one as not delayed. The window is then in
    /// balance when half of the packets are marked, as with RED whose thresholds lie on both sides
    /// of the target.
    pub delay: bool,
    /// QuickAdapt is followed by a phase that ignores the congestion signals of packets sent before
    /// it (Fig. 9).
    pub ignore: bool,
    /// FastIncrease, which raises the window quickly while paths are empty, is on (Fig. 10).
    pub fast_increase: bool,
    /// The decrease tests the average delay and follows it. Without this part it uses the delay of
    /// the packet that triggered it, still once a base round trip.
    pub wait_to_decrease: bool,
    /// A mark at low delay takes half its packet off the window at once, as in MPRDMA, instead of
    /// leaving the reaction to the path selector (Fig. 11).
    pub early_decrease: bool,
    /// FastIncrease needs a window of consecutive bytes that were neither marked nor delayed, as in
    /// algorithm 3. UE 1.0 section 3.6.13.5 does not evaluate it for a packet that is marked at low
    /// delay, or late without a mark: such a packet neither counts nor interrupts the sequence.
    pub fast_in_a_row: bool,
}

impl NsccParts {
    /// The parts of the algorithm that UE 1.0 publishes.
    pub const PUBLISHED: Self = Self {
        ecn: true,
        delay: true,
        ignore: true,
        fast_increase: true,
        wait_to_decrease: true,
        early_decrease: false,
        fast_in_a_row: false,
    };
}

impl NsccConfig {
    /// Returns the defaults of UE 1.0 section 3.6.13.3 for `network`.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // gains are single precision by choice
    pub fn new(network: &NetworkProfile) -> Self {
        let &NetworkProfile { line: link_rate, base_rtt, mtu, trimming, .. } = network;
        let bdp = network.bdp();
        let packet = f64::from(mtu);
        let target_qdelay = if trimming { base_rtt * 3 / 4 } else { base_rtt };
        let target = target_qdelay.as_f64();
        let scaling_a = bdp / REFERENCE_BDP;
        let scaling_b = target / REFERENCE_RTT;
        Self {
            link_rate,
            base_rtt,
            mtu,
            trimming,
            rccc: false,
            probe: true,
            scaling: Scaling::Network,
            min_base_rtt: network.min_base_rtt.unwrap_or(Span::ZERO),
            min_max_wnd: network.min_window.unwrap_or(0),
            min_wnd: mtu as f32,
            max_wnd_bdp: 1.5,
            target_qdelay,
            alpha: (4.0 * scaling_a * scaling_b * packet / target) as f32,
            fi: (5.0 * packet * scaling_a) as f32,
            fi_scale: (0.25 * scaling_a) as f32,
            eta: (0.15 * packet * scaling_a) as f32,
            gamma: 0.8,
            max_md_jump: 0.5,
            quick_adapt: true,
            qa_gate: 3,
            qa_scaling: 1.0,
            qa_threshold: if trimming { Span::MAX } else { target_qdelay * 4 },
            adjust_bytes: mtu.saturating_mul(8),
            adjust_period: base_rtt,
            averaging: Averaging::Window,
            fast_increase_below: network.min_base_rtt.map_or(Span::micros(1), |floor| floor / 4),
            sample: 1,
            parts: NsccParts::PUBLISHED,
        }
    }
}

/// Defines a parameter of NSCC that is a switch in [`NsccParts`].
macro_rules! part {
    ($name:literal, $field:ident, $what:literal) => {
        Parameter {
            name: $name,
            what: $what,
            allowed: "0 or 1",
            get: |c| f64::from(u8::from(c.parts.$field)),
            set: |c, v| c.parts.$field = v != 0.0,
        }
    };
}

const GAIN: &str = "a finite gain, not negative";
const PART: &str = "0 to 1";
const TIME: &str = "up to 1000000 (1 s)";

impl Tunable for NsccConfig {
    const PARAMETERS: &'static [Parameter<Self>] = &[
        part!("ecn", ecn, "marks tell the cases apart, else delay alone: 1"),
        part!("delay", delay, "delays tell the cases apart, else marks alone: 1"),
        part!("fast_increase", fast_increase, "FastIncrease is on: 1"),
        part!("ignore", ignore, "an ignore phase follows QuickAdapt: 1"),
        part!(
            "wait_to_decrease",
            wait_to_decrease,
            "decreases follow the average delay, else the packet's: 1"
        ),
        part!(
            "early_decrease",
            early_decrease,
            "a mark at low delay takes half a packet off the window: 0"
        ),
        part!(
            "fast_in_a_row",
            fast_in_a_row,
            "every mark or delay ends FastIncrease (SMaRTT v2), else some are ignored (UE 1.0): 0"
        ),
        number!(sample: u8, "react to one acknowledgement in this many: 1", "1 to 255, whole"),
        Parameter {
            name: "path_scaling",
            what: "gains follow the flow's own base RTT instead of the network's: 0",
            allowed: "0 or 1",
            get: |c| f64::from(u8::from(c.scaling == Scaling::Path)),
            set: |c, v| c.scaling = if v == 0.0 { Scaling::Network } else { Scaling::Path },
        },
        Parameter {
            name: "avg_weight",
            what: "weight of a packet in the average delay; 0 for its share of the window: 0",
            allowed: PART,
            get: |c| {
                if let Averaging::Packet(weight) = c.averaging { f64::from(weight) } else { 0.0 }
            },
            set: |c, v| {
                c.averaging =
                    if v == 0.0 { Averaging::Window } else { Averaging::Packet(v as f32) };
            },
        },
        switch!("quick_adapt", quick_adapt, "QuickAdapt is on: 1"),
        switch!("probe", probe, "a new context asks for one probe: 1"),
        time!(
            "target_us",
            target_qdelay,
            "target queueing delay: 0.75 base RTT if switches trim, else 1",
            "0.001 to 1000000 (1 s)"
        ),
        number!(gamma: f32, "weight of the excess delay in the multiplicative decrease: 0.8", PART),
        number!(max_md_jump: f32, "smallest factor of one multiplicative decrease: 0.5", PART),
        number!(alpha: f32, "gain of the proportional increase in B/ns: 4ab MTU/target", GAIN),
        number!(fi: f32, "gain of the fair increase in bytes: 5a MTU", GAIN),
        number!(fi_scale: f32, "bytes of window per uncongested byte in fast increase: 0.25a", GAIN),
        number!(eta: f32, "bytes added each adjustment period: 0.15a MTU", GAIN),
        number!(max_wnd_bdp: f32,
            "largest and first window over the bandwidth-delay product: 1.5",
            "0.1 to 100"
        ),
        number!(min_wnd: f32, "floor of the window in bytes: one MTU", "1 to 1000000 bytes"),
        number!(min_max_wnd: u64, "floor of the largest window in bytes", "up to 2 GB"),
        number!(qa_gate: u8, "QuickAdapt applies if less than the largest window >> this got through: 3", "0 to 31, whole"),
        number!(qa_scaling: f32, "window after QuickAdapt over the bytes that got through: 1", "0 to 100"),
        time!(
            "qa_threshold_us",
            qa_threshold,
            "queueing delay that alone triggers QuickAdapt: inf if switches trim, else 4 targets",
            "any time, or inf"
        ),
        number!(adjust_bytes: u32, "bytes acknowledged between adjustments: 8 MTU", "0 to 4294967295, whole"),
        time!("adjust_period_us", adjust_period, "time between adjustments: one base RTT", TIME),
        time!(
            "fast_increase_us",
            fast_increase_below,
            "queueing delay below which a path counts as empty: 1",
            TIME
        ),
        time!(
            "min_base_rtt_us",
            min_base_rtt,
            "floor of the measured base RTT in bandwidth-delay products: 0",
            TIME
        ),
    ];

    fn check(&self) -> Result<(), ConfigError> {
        let second = LONGEST.as_f64();
        let any = f64::from(f32::MAX);
        within("link_rate", self.link_rate.0 as f64, 1e6, 1e14, "1 Mb/s to 100 Tb/s")?;
        within("base_rtt", self.base_rtt.as_f64(), 1.0, second, "1 ns to 1 s")?;
        within("mtu", f64::from(self.mtu), 64.0, 1e6, "64 to 1000000 bytes")?;
        time_within("min_base_rtt_us", self.min_base_rtt, 0.0, TIME)?;
        within("min_max_wnd", self.min_max_wnd as f64, 0.0, 2e9, "up to 2 GB")?;
        within("min_wnd", f64::from(self.min_wnd), 1.0, 1e6, "1 to 1000000 bytes")?;
        within("max_wnd_bdp", f64::from(self.max_wnd_bdp), 0.1, 100.0, "0.1 to 100")?;
        time_within("target_us", self.target_qdelay, 1e-3, "0.001 to 1000000 (1 s)")?;
        within("alpha", f64::from(self.alpha), 0.0, any, GAIN)?;
        within("fi", f64::from(self.fi), 0.0, any, GAIN)?;
        within("fi_scale", f64::from(self.fi_scale), 0.0, any, GAIN)?;
        within("eta", f64::from(self.eta), 0.0, any, GAIN)?;
        within("gamma", f64::from(self.gamma), 0.0, 1.0, PART)?;
        within("max_md_jump", f64::from(self.max_md_jump), 0.0, 1.0, PART)?;
        within("qa_gate", f64::from(self.qa_gate), 0.0, 31.0, "0 to 31, whole")?;
        within("qa_scaling", f64::from(self.qa_scaling), 0.0, 100.0, "0 to 100")?;
        time_within("adjust_period_us", self.adjust_period, 0.0, TIME)?;
        time_within("fast_increase_us", self.fast_increase_below, 0.0, TIME)?;
        within("sample", f64::from(self.sample), 1.0, 255.0, "1 to 255, whole")?;
        match self.averaging {
            Averaging::Window => Ok(()),
            Averaging::Packet(weight) => within("avg_weight", f64::from(weight), 0.0, 1.0, PART),
        }
    }
}

/// Checks that a time lies between `low` microseconds and a second.
fn time_within(
    parameter: &'static str,
    span: Span,
    low: f64,
    allowed: &'static str,
) -> Result<(), ConfigError> {
    within(parameter, to_micros(span), low, to_micros(LONGEST), allowed)
}

impl SenderParameters for NsccConfig {
    fn set_floor(&mut self, bytes: u32) -> bool {
        self.min_wnd = bytes as f32;
        true
    }
}

impl FairParameters for NsccConfig {
    fn vai(&self) -> VaiConfig {
        let bdp = self.link_rate.0 as f64 / 8e9 * self.base_rtt.as_f64();
        let target = self.base_rtt.as_f64() + self.target_qdelay.as_f64();
        VaiConfig::of_delay(self.base_rtt, bdp, target, self.eta)
    }
}
