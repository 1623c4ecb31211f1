//! Switches that compute the rates of flows (s-PERC), and drop what flows send beyond them before they have one (1RC).

use super::config::{Ground, NetworkOptions, OptionError, fault};
use super::program::{Incoming, Note, Place, SwitchProgram, Verdict};
use crate::topology::Node;
use squall_base::Span;
use squall_cc::{Link, LinkParameters, RatePacket, Speculation, WindowParameters, Windows};

/// What all switches of a network have in common.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RateParameters {
    /// Part of a link's rate that flows are given.
    pub capacity: f64,
    /// Of the links.
    pub link: LinkParameters,
    /// Of their window tables.
    pub windows: WindowParameters,
}

impl RateParameters {
    /// What is usual of [`RateParameters::capacity`]: 2 % are for rate packets, 2 % for what was computed too late.
    pub const CAPACITY: f64 = 0.96;

    /// What comes of the options.
    pub(super) fn new(options: &NetworkOptions, ground: &Ground<'_>) -> Self {
        let default = ground.rtt * 64;
        let forget = options.rates_forget_us.map(|us| Span((us * ground.times * 1e3) as u64));
        let mtu = ground.packet;
        let card = options.card(ground.line, ground.rates).unwrap_or(ground.line);
        let packets = card.bytes_in(ground.rtt).div_ceil(mtu.into());
        // Numbers beyond are not told apart.
        let most = packets.clamp(1, Speculation::MOST_NUMBER.into()) as u16;
        Self {
            capacity: options.rates_capacity.unwrap_or(Self::CAPACITY),
            link: LinkParameters { round: ground.rtt * 2, forget: forget.unwrap_or(default) },
            windows: WindowParameters { epoch: ground.rtt, mtu, most, ahead: ground.ahead },
        }
    }

    /// Whether what is said of switches that compute rates is in range, and goes with the rest.
    pub(super) fn check(options: &NetworkOptions) -> Result<(), OptionError> {
        if options.rates && options.telemetry {
            return fault(
                "rates",
                "expected `rates` or `telemetry`, not both: a switch has one program",
            );
        }
        if options.rates && options.adaptive {
            return fault(
                "rates",
                "expected without `adaptive`: the rates of a flow hold for one path",
            );
        }
        for (key, given) in [
            ("rates_forget_us", options.rates_forget_us),
            ("rates_capacity", options.rates_capacity),
        ] {
            if !options.rates && given.is_some() {
                return fault(key, "expected with `rates` only");
            }
        }
        if let Some(us) = options.rates_forget_us.filter(|us| !(0.0..=1e9).contains(us)) {
            return fault("rates_forget_us", format!("{us}, expected 0 to 1e9 microseconds"));
        }
        if let Some(share) = options.rates_capacity.filter(|share| !(0.01..=1.0).contains(share)) {
            return fault("rates_capacity", format!("{share}, expected 0.01 to 1"));
        }
        Ok(())
    }
}

/// A port's link.
#[derive(Clone, Debug)]
struct Egress {
    port: u32,
    link: Link,
    windows: Windows,
}

/// The program of one switch. It sees to the links that leave the switch, and to those by which hosts send to it: their cards know
/// nothing of rates.
#[derive(Clone, Debug)]
pub struct Rates {
    parameters: RateParameters,
    /// By port, in order; those that were used.
    links: Vec<Egress>,
}

impl Rates {
    /// Without flows.
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
                let (link, windows) = (Link::new(capacity, link), Windows::new(windows));
                self.links.insert(at, Egress { port, link, windows });
                at
            }
        };
        &mut self.links[at]
    }

    /// A rate packet that came in by `ingress` will leave by `way`. Whether it makes sense.
    fn visit(
        &mut self,
        place: &Place<'_>,
        (ingress, way): (u32, u32),
        packet: &mut RatePacket,
    ) -> bool {
        let now = place.now.time();
        if let Node::Host(_) = place.before(ingress) {
            // A host does not outrun its own link, so that needs no table.
            self.link(place, ingress).link.visit(now, ingress, packet);
        }
        let egress = self.link(place, way);
        let visit = egress.link.visit(now, way, packet);
        visit.is_none_or(|visit| egress.windows.grant(now, visit, packet))
    }
}

impl SwitchProgram for Rates {
    fn ingress(&mut self, place: &Place<'_>, incoming: &mut Incoming<'_>) -> Verdict {
        let Some(way) = incoming.way else { return Verdict::Forward(None) };
        match incoming.packet.note {
            Note::Rates(packet) if !packet.back => {
                let sensible = self.visit(place, (incoming.ingress, way), packet);
                *incoming.ignored += u64::from(!sensible);
            }
            Note::Speculation(packet) => {
                let passes = self.link(place, way).windows.passes(place.now.time(), *packet);
                *incoming.ignored += u64::from(passes.is_none());
                // Of a host of which nothing is known, one packet of an epoch.
                if !passes.unwrap_or(packet.number == 0) {
                    return Verdict::Drop;
                }
            }
            Note::Rates(_) | Note::Telemetry(_) | Note::Message(_) => {}
        }
        Verdict::Forward(Some(way))
    }
}
