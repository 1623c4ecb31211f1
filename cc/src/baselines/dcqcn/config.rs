//! Parameters of DCQCN and where their defaults come from.

use squall_base::{Rate, Span};

use crate::controller::{ReceiverConfig, SenderParameters};
use crate::error::{ConfigError, within};
use crate::network::NetworkProfile;
use crate::tuning::Parameter;

/// The two published sets of DCQCN's rules and constants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DcqcnVariant {
    /// The paper's variant: each notification cuts the rate, and `alpha` grows at a notification.
    #[default]
    Paper,
    /// The network cards' variant: `alpha` is updated in fixed periods, cuts keep a distance, and
    /// time alone raises the rate.
    Vendor,
}

/// Parameters of [`crate::Dcqcn`], with their values in the two variants.
///
/// | | paper (sections 3.1 and 5) | vendor (NVIDIA, "DCQCN CC parameters") |
/// |---|---|---|
/// | `g` | 1/256 | 5/1024 (`dce_tcp_g` 1019) |
/// | `alpha_period` | 55 us | 1 us (`dce_tcp_rtt`) |
/// | `decrease_period` | 0 | 4 us (`rate_reduce_monitor_period`) |
/// | `increase_period` | 55 us | 300 us (`rpg_time_reset`) |
/// | `byte_counter` | 10 MB | none, as the simulations of HPCC have it |
/// | `stages` | 5 | 1 (`rpg_threshold`) |
/// | `additive_step` | 40 Mb/s of 40 Gb/s | 5 Mb/s of 25 Gb/s (`rpg_ai_rate`) |
/// | `hyper_step` | ten times that | 50 Mb/s of 25 Gb/s (`rpg_hai_rate`) |
/// | `clamp_target` | yes | no (`clamp_tgt_rate`) |
/// | `cnp_interval` | 50 us | 4 us (`min_time_between_cnps`) |
#[derive(Clone, PartialEq, Debug)]
pub struct DcqcnConfig {
    /// Rate of the sender's link.
    pub line: Rate,
    /// Bandwidth-delay product of the network in bytes.
    pub bdp: f32,
    /// Variant of DCQCN, on which the defaults of the other fields depend.
    pub form: DcqcnVariant,
    /// Weight of one notification in the congestion estimate `alpha` (`g`).
    pub g: f32,
    /// Period in which the congestion estimate `alpha` decays once without notifications (`K`); the
    /// vendor variant updates it once per period.
    pub alpha_period: Span,
    /// Shortest time between two cuts of the rate.
    pub decrease_period: Span,
    /// Period of the timer that raises the rate (`T`).
    pub increase_period: Span,
    /// Bytes sent per expiry of the byte counter (`B`), which raises the rate; zero for no byte
    /// counter.
    pub byte_counter: u32,
    /// Number of timer or byte-counter expiries after a cut before additive increase begins (`F`).
    pub stages: u8,
    /// Amount by which additive increase raises the target rate (`R_AI`).
    pub additive_step: Rate,
    /// Amount by which hyper increase raises the target rate (`R_HAI`).
    pub hyper_step: Rate,
    /// Smallest sending rate: a thousandth of the link's.
    pub min_rate: Rate,
    /// Each cut lowers the target rate, too; otherwise only the first cut after an increase does.
    pub clamp_target: bool,
    /// Shortest time between two congestion notifications to one flow (`N`); the receiver enforces
    /// it.
    pub cnp_interval: Span,
    /// A packet loss counts as a congestion notification: yes (see [`crate::Dcqcn`]).
    pub react_to_loss: bool,
    /// Bytes that the sender may send back to back: one packet.
    pub burst: u32,
    /// Limit of the bytes in flight in bandwidth-delay products: 0 for none.
    pub window: f32,
}

impl DcqcnConfig {
    /// Returns DCQCN's parameters for `network`, with the paper's constants.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // single precision is the rates'
    pub fn new(network: &NetworkProfile) -> Self {
        let mut config = Self {
            line: network.line,
            bdp: network.bdp() as f32,
            form: DcqcnVariant::Paper,
            g: 0.0,
            alpha_period: Span::ZERO,
            decrease_period: Span::ZERO,
            increase_period: Span::ZERO,
            byte_counter: 0,
            stages: 0,
            additive_step: Rate(0),
            hyper_step: Rate(0),
            min_rate: Rate((network.line.0 / 1000).max(1000)),
            clamp_target: true,
            cnp_interval: Span::ZERO,
            react_to_loss: true,
            burst: network.mtu,
            window: 0.0,
        };
        config.set_form(DcqcnVariant::Paper);
        config
    }

    /// Sets all constants that differ between the variants to those of `form`.
    pub fn set_form(&mut self, form: DcqcnVariant) {
        let line = self.line.0;
        self.form = form;
        match form {
            DcqcnVariant::Paper => {
                self.g = 1.0 / 256.0;
                self.alpha_period = Span::micros(55);
                self.decrease_period = Span::ZERO;
                self.increase_period = Span::micros(55);
                self.byte_counter = 10_000_000;
                self.stages = 5;
                self.additive_step = Rate(line / 1000);
                self.hyper_step = Rate(line / 100);
                self.clamp_target = true;
                self.cnp_interval = Span::micros(50);
            }
            DcqcnVariant::Vendor => {
                self.g = 5.0 / 1024.0;
                self.alpha_period = Span::micros(1);
                self.decrease_period = Span::micros(4);
                self.increase_period = Span::micros(300);
                self.byte_counter = 0;
                self.stages = 1;
                self.additive_step = Rate(line / 5000);
                self.hyper_step = Rate(line / 500);
                self.clamp_target = false;
                self.cnp_interval = Span::micros(4);
            }
        }
    }

    /// Returns the limit of the bytes in flight; `None` if there is none.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates, not negative
    pub(super) fn window_bytes(&self) -> Option<u64> {
        (self.window > 0.0).then_some((self.window * self.bdp) as u64)
    }

    fn check_whole(&self) -> Result<(), ConfigError> {
        within("line", self.line.0 as f64, 1e6, 1e14, "1 Mb/s to 100 Tb/s")
    }
}

tunable! {
    DcqcnConfig,
    special: [Parameter {
        name: "vendor",
        what: "the network cards' variant and constants: 0, the paper's; sets others, so put it first",
        allowed: "0 or 1",
        get: |c| f64::from(c.form == DcqcnVariant::Vendor),
        set: |c, v| c.set_form(if v != 0.0 { DcqcnVariant::Vendor } else { DcqcnVariant::Paper }),
    }],
    also: Self::check_whole;
    number g "g" (0.0, 1.0, "0 to 1")
        "weight of a notification in alpha: 1/256, vendor 5/1024";
    time alpha_period "alpha_period_us" (0.001, 1e8, "0.001 to 100000000 (100 s)")
        "time without notification in which alpha decays once: 55, vendor 1";
    time decrease_period "decrease_period_us" (0.0, 1e8, "0 to 100000000 (100 s)")
        "shortest time between two cuts: 0, vendor 4";
    time increase_period "increase_period_us" (0.001, 1e8, "0.001 to 100000000 (100 s)")
        "expiry of the increase timer: 55, vendor 300";
    number byte_counter "byte_counter" (0.0, 4_294_967_295.0, "0 to 4294967295, whole")
        "bytes that count as an expiry too, 0 for none: 10000000, vendor 0";
    number stages "stages" (1.0, 200.0, "1 to 200, whole")
        "expiries of fast recovery: 5, vendor 1";
    rate additive_step "additive_mbps" (0.0, 1e8, "0 to 100000000")
        "additive increase in Mb/s: a 1000th of the line, vendor a 5000th";
    rate hyper_step "hyper_mbps" (0.0, 1e8, "0 to 100000000")
        "hyper increase in Mb/s: a 100th of the line, vendor a 500th";
    rate min_rate "min_rate_mbps" (0.001, 1e8, "0.001 to 100000000")
        "smallest rate in Mb/s: a 1000th of the line";
    switch clamp_target "clamp_target" (0.0, 1.0, "0 or 1")
        "each cut lowers the target, not only the first: 1, vendor 0";
    time cnp_interval "cnp_interval_us" (0.0, 1e8, "0 to 100000000 (100 s)")
        "shortest time between two notifications of a flow: 50, vendor 4";
    switch react_to_loss "react_to_loss" (0.0, 1.0, "0 or 1")
        "a loss counts as a notification: 1";
    number burst "burst" (64.0, 1e6, "64 to 1000000, whole")
        "bytes sent back to back: one packet";
    number window "window" (0.0, 1000.0, "0 to 1000")
        "limit of the bytes in flight in BDPs, 0 for none: 0";
}

impl SenderParameters for DcqcnConfig {
    fn receiver(&self, _network: &NetworkProfile) -> ReceiverConfig {
        ReceiverConfig::Notifying { interval: self.cnp_interval }
    }
}
