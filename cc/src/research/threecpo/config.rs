//! Parameters of 3CPO and where their defaults come from.

/// Parameters of [`crate::ThreeCpo`], in cycles, flits and units of the watermark. The defaults are those of sections 6.1.4 and
/// 6.2.2.
#[derive(Clone, PartialEq, Debug)]
pub struct ThreeCpoConfig {
    /// Largest watermark (`WM_MAX`), at which a token arrives every cycle: 2468.
    pub wm_max: f64,
    /// Smallest watermark (`WM_MIN`), in the unit of `wm_max`: 100.
    pub wm_min: f64,
    /// Amount by which a watermark rises per probe without congestion (`WM_AI`): 50.
    pub ai: f64,
    /// Latency of a probe above which the network counts as congested (`lat_thresh`): 2000 cycles.
    pub latency: f64,
    /// Latency at which the decrease of a watermark is largest (`max_lat_thresh`): 5000 cycles.
    pub max_latency: f64,
    /// Largest share of itself by which a watermark decreases at once (`base_md`): 0.5.
    pub md: f64,
    /// Tokens that a matched flit costs while operations take up to `low_latency` (section 6.2.2,
    /// multiplicative increase): 0.8.
    pub low_cost: f64,
    /// Latency of operations up to which a matched flit costs `low_cost`: 1000 cycles.
    pub low_latency: f64,
    /// Tokens that a matched flit costs while operations take at least `high_latency`: 1.
    pub high_cost: f64,
    /// Latency of operations from which a matched flit costs `high_cost`: 2000 cycles.
    pub high_latency: f64,
    /// Number of flits by which a packet with data is longer than one without (`write_size -
    /// write_ack`): 8.
    pub size_diff: f64,
    /// Largest number of tokens of a class saved while those of the other are missing: 1. The
    /// thesis gives no value; its figures have one class, and never show more.
    pub saved: f64,
    /// Operations of other members cost tokens: on. Off leaves the throttling of section 6.1.4.
    pub multicast: bool,
    /// Flits that left the network are not matched with others any more (section 6.2.2, Fig. 6.6
    /// and 6.7): on.
    pub forget: bool,
    /// Decreases are smaller at a low watermark (flow-based scaling, section 6.2.3): on.
    pub fbs: bool,
}

impl ThreeCpoConfig {
    /// Returns the values that Snyder's thesis uses (sections 6.1.4 and 6.2.2), and the value 1 for
    /// [`Self::saved`], for which the thesis gives none.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            wm_max: 2468.0,
            wm_min: 100.0,
            ai: 50.0,
            latency: 2000.0,
            max_latency: 5000.0,
            md: 0.5,
            low_cost: 0.8,
            low_latency: 1000.0,
            high_cost: 1.0,
            high_latency: 2000.0,
            size_diff: 8.0,
            saved: 1.0,
            multicast: true,
            forget: true,
            fbs: true,
        }
    }

    /// Returns the parameters of the rival AIMD of Snyder's thesis (section 6.1.4), in which only
    /// probe packets move the watermark.
    #[must_use]
    pub const fn aimd() -> Self {
        Self { multicast: false, fbs: false, ..Self::new() }
    }

    /// Returns the tokens that a matched flit costs while operations take `latency` cycles.
    pub(super) fn cost(&self, latency: f64) -> f64 {
        let span = self.high_latency - self.low_latency;
        let far = ((latency - self.low_latency) / span.max(1.0)).clamp(0.0, 1.0);
        self.low_cost + far * (self.high_cost - self.low_cost)
    }
}

impl Default for ThreeCpoConfig {
    fn default() -> Self {
        Self::new()
    }
}

/// Checks that the lower of two related parameters is not above the other.
fn ordered(config: &ThreeCpoConfig) -> Result<(), crate::ConfigError> {
    let pairs = [
        ("wm_min", config.wm_min, config.wm_max, "at most wm_max"),
        ("latency", config.latency, config.max_latency, "at most max_latency"),
        ("low_latency", config.low_latency, config.high_latency, "at most high_latency"),
    ];
    pairs.into_iter().try_for_each(|(name, low, high, allowed)| {
        crate::error::within(name, low, 0.0, high, allowed)
    })
}

tunable! {
    ThreeCpoConfig, special: [], also: ordered;
    number wm_max "wm_max" (1.0, 1e6, "1 to 1000000")
        "watermark at which a token arrives every cycle: 2468";
    number wm_min "wm_min" (1.0, 1e6, "1 to wm_max")
        "smallest watermark: 100";
    number ai "ai" (0.0, 1e6, "0 to 1000000")
        "increase of a watermark per probe without congestion: 50";
    number latency "latency" (1.0, 1e9, "1 cycle to max_latency")
        "latency in cycles above which there is congestion: 2000";
    number max_latency "max_latency" (1.0, 1e9, "1 to 1e9 cycles")
        "latency in cycles at which the decrease is largest: 5000";
    number md "md" (0.0, 1.0, "0 to 1")
        "largest relative decrease of a watermark: 0.5";
    number low_cost "low_cost" (0.0, 10.0, "0 to 10")
        "cost of a matched flit up to low_latency: 0.8";
    number low_latency "low_latency" (0.0, 1e9, "0 cycles to high_latency")
        "latency in cycles up to which low_cost applies: 1000";
    number high_cost "high_cost" (0.0, 10.0, "0 to 10")
        "cost of a matched flit from high_latency: 1";
    number high_latency "high_latency" (0.0, 1e9, "0 to 1e9 cycles")
        "latency in cycles from which high_cost applies: 2000";
    number size_diff "size_diff" (0.0, 1000.0, "0 to 1000 flits")
        "flits by which a packet with data exceeds one without: 8";
    number saved "saved" (1.0, 1e9, "1 to 1e9 tokens")
        "largest number of tokens saved while those of the other class are missing: 1";
    switch multicast "multicast" (0.0, 1.0, "0 or 1")
        "operations of others cost tokens: 1";
    switch forget "forget" (0.0, 1.0, "0 or 1")
        "flits that left the network match nothing: 1";
    switch fbs "fbs" (0.0, 1.0, "0 or 1")
        "decreases are smaller at a low watermark: 1";
}
