//! Parameters of Variable Additive Increase (VAI) and Sampling Frequency (SF), for every algorithm
//! that supports them.

use alloc::vec::Vec;

use squall_base::Span;

use crate::controller::SenderParameters;
use crate::error::{ConfigError, within};
use crate::tuning::{Setting, Tunable};

/// Parameters of Variable Additive Increase (table 4.1). Congestion is in the algorithm's own unit:
/// nanoseconds of round trip if it reads delay (Swift), bytes of queue if switches report them
/// (HPCC).
#[derive(Clone, PartialEq, Debug)]
pub struct VaiConfig {
    /// Congestion above which VAI creates tokens (`Token_Thresh`): that of a queue of one
    /// bandwidth-delay product.
    pub threshold: f32,
    /// Amount of congestion that creates one token, in the unit of `threshold` (`AI_DIV`).
    pub token: f32,
    /// Largest number of tokens that one increase spends (`AI_Cap`): 100.
    pub cap: f32,
    /// Largest number of tokens that a context holds (`Bank_Cap`): 1000.
    pub bank: f32,
    /// Value of VAI's dampener that halves the extra increase (`Dampener_Constant`): 8.
    pub dampener: f32,
}

impl VaiConfig {
    /// Creates parameters with the thesis' constants and the two that depend on network and
    /// algorithm.
    #[must_use]
    pub const fn new(threshold: f32, token: f32) -> Self {
        Self { threshold, token, cap: 100.0, bank: 1000.0, dampener: 8.0 }
    }

    /// Returns the parameters for an algorithm that reads the delay, on a network with this base
    /// round-trip time and bandwidth-delay product in bytes, whose increase is not the thesis' 50
    /// Mb/s of 100 Gb/s but `increase` bytes a round trip.
    ///
    /// Congestion begins at a base round trip of queue above `target` nanoseconds of round trip. A
    /// token is 30 ns of the thesis' 4.16 us. The cap adds a twentieth of the line, as the thesis'
    /// 100 tokens do.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // the fields are single precision
    pub(crate) fn of_delay(base_rtt: Span, bdp: f64, target: f64, increase: f32) -> Self {
        let base = base_rtt.as_f64();
        let token = (base * 30.0 / 4160.0).max(0.001);
        let cap = (bdp / 20.0 / f64::from(increase).max(1e-3)).clamp(1.0, 1e6);
        Self { cap: cap as f32, ..Self::new((target + base) as f32, token as f32) }
    }
}

tunable! {
    VaiConfig, special: [], also: |_: &VaiConfig| Ok(());
    number threshold "vai_threshold" (1.0, 1e12, "1 to 1e12")
        "congestion above which VAI creates tokens: that of a BDP of queue";
    number token "vai_token" (0.001, 1e12, "0.001 to 1e12")
        "congestion per token: 30 ns or 1 KB where the base RTT is 4.16 us";
    number cap "vai_cap" (1.0, 1e6, "1 to 1000000")
        "largest number of tokens spent at a time: 100, or as many as add a twentieth of the line";
    number bank "vai_bank" (1.0, 1e6, "1 to 1000000")
        "largest number of tokens held: 1000";
    number dampener "vai_dampener" (0.001, 1e6, "0.001 to 1000000")
        "dampener that halves the increase: 8";
}

/// Parameters of an algorithm that supports Variable Additive Increase (VAI) and Sampling Frequency
/// (SF).
pub trait FairParameters: SenderParameters {
    /// Returns the initial parameters of Variable Additive Increase.
    fn vai(&self) -> VaiConfig;
}

/// Settings of Variable Additive Increase (VAI), Sampling Frequency (SF) and random ignoring for
/// one algorithm.
#[derive(Clone, Debug)]
pub struct FairConfig {
    /// Parameters of Variable Additive Increase; `None` if it is off.
    pub(super) vai: Option<VaiConfig>,
    /// Sampling Frequency: packets acknowledged between two decreases; 0 for one decrease per round
    /// trip.
    pub(super) sf: u16,
    /// Decreases are ignored at random, as an ablation (section 3.3.4 of the thesis).
    pub(super) random: bool,
}

const VAI: Setting = Setting {
    name: "vai",
    what: "the additive increase varies with congestion (VAI): 0",
    allowed: "0 or 1",
    value: 0.0,
};

const SF: Setting = Setting {
    name: "sf",
    what: "packets acknowledged between decreases (SF; 30 in the thesis), 0 for one decrease per round trip: 0",
    allowed: "0 to 10000, whole",
    value: 0.0,
};

const RANDOM: Setting = Setting {
    name: "random",
    what: "decreases are ignored at random, more often at a small window: 0",
    allowed: "0 or 1",
    value: 0.0,
};

impl FairConfig {
    /// Settings with VAI, SF and random ignoring off.
    pub(crate) const PLAIN: Self = Self { vai: None, sf: 0, random: false };

    /// Returns whether VAI, SF and random ignoring are all off.
    pub(crate) const fn is_plain(&self) -> bool {
        self.vai.is_none() && self.sf == 0 && !self.random
    }

    /// Returns every parameter of VAI and SF with its value.
    pub(crate) fn settings(&self) -> Vec<Setting> {
        let on = |on: bool| f64::from(u8::from(on));
        let mut all = Vec::from([
            Setting { value: on(self.vai.is_some()), ..VAI },
            Setting { value: f64::from(self.sf), ..SF },
            Setting { value: on(self.random), ..RANDOM },
        ]);
        all.extend(self.vai.iter().flat_map(Tunable::settings));
        all
    }

    /// Sets one parameter of VAI or SF on top of `inner`; returns `None` if there is none of this
    /// name.
    pub(crate) fn set(
        &mut self,
        name: &str,
        value: f64,
        inner: &impl FairParameters,
    ) -> Option<Result<(), ConfigError>> {
        let switch = |setting: &Setting| match value {
            0.0 => Ok(false),
            1.0 => Ok(true),
            _ => Err(ConfigError { parameter: setting.name, value, allowed: setting.allowed }),
        };
        let done = if name == VAI.name {
            switch(&VAI).map(|on| self.vai = on.then(|| inner.vai()))
        } else if name == RANDOM.name {
            switch(&RANDOM).map(|on| self.random = on)
        } else if name == SF.name {
            let whole = value % 1.0 == 0.0;
            let value = if whole { value } else { f64::NAN };
            within(SF.name, value, 0.0, 10_000.0, SF.allowed).map(|()| self.sf = value as u16)
        } else {
            return self.vai.as_mut()?.set(name, value);
        };
        Some(done)
    }
}
