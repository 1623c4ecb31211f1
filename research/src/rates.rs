//! Switches that compute the rates of flows (s-PERC). With 1RC, they also drop what flows send
//! beyond their rate before they know it. Source: J. Snyder's thesis (Duke 2022), chapter 5.

use std::sync::Arc;

use squall_base::Span;
use squall_cc::{
    RatePacket, Speculation, SpercLink, SpercLinkParameters, WindowTable, WindowTableParameters,
};
use squall_netsim::model::{
    FeatureArguments, FeatureContext, FeatureParameter, HostSupport, IncomingPacket,
    NetworkFeature, NetworkOptions, Place, SwitchFeature, SwitchProgram, Verdict,
};
use squall_netsim::topology::Node;

/// The switch feature that computes rates, as users choose it by name.
#[derive(Debug)]
pub struct Rates;

/// Parameters of the rate computation as the user gives them.
struct Parameters {
    forget_us: Option<f64>,
    capacity: f64,
}

impl Parameters {
    fn parse(given: &FeatureArguments<'_>) -> Result<Self, String> {
        Ok(Self {
            forget_us: given.number("forget_us", 0.0..=1e9)?,
            capacity: given.number("capacity", 0.01..=1.0)?.unwrap_or(RateParameters::CAPACITY),
        })
    }
}

impl SwitchFeature for Rates {
    fn name(&self) -> &'static str {
        "rates"
    }

    fn help(&self) -> &'static str {
        "Switches compute the rates of flows that ask for one (s-PERC), and drop what flows send beyond their rate before they \
         have it (1RC)"
    }

    fn parameters(&self) -> &'static [FeatureParameter] {
        &[
            FeatureParameter {
                name: "forget_us",
                value: "US",
                help: "microseconds without a rate packet after which a flow is no longer counted; 0 for never (default 64 base \
                       round trips)",
            },
            FeatureParameter {
                name: "capacity",
                value: "SHARE",
                help: "share of each link's rate that flows are given; the rest empties queues (default 0.96)",
            },
        ]
    }

    fn check(&self, given: &FeatureArguments<'_>, options: &NetworkOptions) -> Result<(), String> {
        Parameters::parse(given)?;
        if options.adaptive {
            return Err("use it without `adaptive`: the rate of a flow is for one path".into());
        }
        Ok(())
    }

    fn build(
        &self,
        given: &FeatureArguments<'_>,
        context: &FeatureContext<'_>,
    ) -> Result<Arc<dyn NetworkFeature>, String> {
        let Parameters { forget_us, capacity } = Parameters::parse(given)?;
        let ground = context.ground;
        let forget = forget_us.map(|us| Span((us * ground.times * 1e3) as u64));
        let mtu = ground.packet;
        let card = context.options.card(ground.line, ground.rates).unwrap_or(ground.line);
        let packets = card.bytes_in(ground.rtt).div_ceil(mtu.into());
        // The wire format does not tell larger numbers apart.
        let most = packets.clamp(1, Speculation::MOST_NUMBER.into()) as u16;
        let round = ground.rtt * 2;
        Ok(Arc::new(RateParameters {
            capacity,
            link: SpercLinkParameters { round, forget: forget.unwrap_or(ground.rtt * 64) },
            windows: WindowTableParameters { epoch: ground.rtt, mtu, most, ahead: ground.ahead },
        }))
    }
}

/// The parameters of the rate computation, which all switches of a network share.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RateParameters {
    /// Share of a link's rate that is divided among the flows.
    pub capacity: f64,
    /// Parameters by which links compute rates (s-PERC).
    pub link: SpercLinkParameters,
    /// Parameters of the links' tables of speculative packets (1RC).
    pub windows: WindowTableParameters,
}

impl RateParameters {
    /// Default of [`RateParameters::capacity`]. Of the rest, 2 % are for rate packets, and 2 % make
    /// up for rates that are computed too late.
    pub const CAPACITY: f64 = 0.96;
}

impl NetworkFeature for RateParameters {
    fn name(&self) -> &'static str {
        Rates.name()
    }

    fn program(&self, _switch: u32) -> Option<Box<dyn SwitchProgram>> {
        Some(Box::new(RatesProgram::new(*self)))
    }

    fn needs(&self) -> HostSupport {
        HostSupport { rates: true, ..HostSupport::default() }
    }
}

/// The link behind a port, with its rate computation and its table of speculative packets.
#[derive(Clone, Debug)]
struct Egress {
    port: u32,
    link: SpercLink,
    windows: WindowTable,
}

/// The program of one switch. It handles the links that leave the switch, and those by which hosts
/// send to it, because the network cards of hosts do not compute rates.
#[derive(Clone, Debug)]
pub struct RatesProgram {
    parameters: RateParameters,
    /// The links on which the switch has seen a rate packet or a speculative packet, sorted by
    /// port.
    links: Vec<Egress>,
}

impl RatesProgram {
    /// Creates the program of a switch that has seen no flows yet.
    #[must_use]
    pub const fn new(parameters: RateParameters) -> Self {
        Self { parameters, links: Vec::new() }
    }

    fn link(&mut self, place: &Place<'_>, port: u32) -> &mut Egress {
        let at = match self.links.binary_search_by_key(&port, |egress| egress.port) {
            Ok(at) => at,
            Err(at) => {
                let RateParameters { capacity, link, windows } = self.parameters;
                let capacity = place.rate(port).0 as f64 * capacity;
                let (link, windows) = (SpercLink::new(capacity, link), WindowTable::new(windows));
                self.links.insert(at, Egress { port, link, windows });
                at
            }
        };
        &mut self.links[at]
    }

    /// Updates a rate packet that came in by `ingress` and will leave by `route`. Returns whether
    /// its content is valid.
    fn visit(
        &mut self,
        place: &Place<'_>,
        (ingress, route): (u32, u32),
        packet: &mut RatePacket,
    ) -> bool {
        let now = place.now.time();
        if let Node::Host(_) = place.before(ingress) {
            // A host cannot exceed the rate of its own link, so that link needs no window table.
            self.link(place, ingress).link.visit(now, ingress, packet);
        }
        let egress = self.link(place, route);
        let visit = egress.link.visit(now, route, packet);
        visit.is_none_or(|visit| egress.windows.grant(now, visit, packet))
    }
}

impl SwitchProgram for RatesProgram {
    fn ingress(&mut self, place: &Place<'_>, incoming: &mut IncomingPacket<'_>) -> Verdict {
        let Some(route) = incoming.route else { return Verdict::Forward(None) };
        let options = &mut *incoming.packet.options;
        let ways = (incoming.ingress, route);
        let sensible = options
            .update(|packet: &mut RatePacket| packet.back || self.visit(place, ways, packet));
        *incoming.ignored += u64::from(sensible == Some(false));
        if let Some(packet) = options.read::<Speculation>() {
            let passes = self.link(place, route).windows.passes(place.now.time(), packet);
            *incoming.ignored += u64::from(passes.is_none());
            // If the switch has no entry for the host, one packet of each epoch passes.
            if !passes.unwrap_or(packet.number == 0) {
                return Verdict::Drop;
            }
        }
        Verdict::Forward(Some(route))
    }
}
