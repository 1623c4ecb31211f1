//! Switches that compute the rates of flows (s-PERC), and drop what flows send beyond them before they have one (1RC).

use super::program::{Incoming, Note, Place, SwitchProgram, Verdict};
use crate::base::Time;
use crate::cc::{Link, LinkParameters, RatePacket, Speculation, WindowParameters, Windows};
use crate::topology::Node;

/// Part of a link's rate that data has: 2 % are for rate packets, 2 % for what was computed too late.
const CAPACITY: f64 = 0.96;

/// What all switches of a network have in common.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RateParameters {
    /// Of the links.
    pub link: LinkParameters,
    /// Of their window tables.
    pub windows: WindowParameters,
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
                let RateParameters { link, windows } = self.parameters;
                let capacity = place.rate(port).0 as f64 * CAPACITY;
                let (link, windows) = (Link::new(capacity, link), Windows::new(windows));
                self.links.insert(at, Egress { port, link, windows });
                at
            }
        };
        &mut self.links[at]
    }

    /// A rate packet that came in by `ingress` will leave by `way`.
    fn visit(&mut self, place: &Place<'_>, ingress: u32, way: u32, packet: &mut RatePacket) {
        let now = place.now.time();
        if let Node::Host(_) = place.before(ingress) {
            // Who sends less than a window anyway needs no table.
            self.link(place, ingress).link.visit(now, ingress, packet);
        }
        let egress = self.link(place, way);
        if let Some(visit) = egress.link.visit(now, way, packet) {
            egress.windows.grant(now, visit, packet);
        }
    }

    fn passes(&mut self, place: &Place<'_>, way: u32, packet: Speculation) -> bool {
        let now: Time = place.now.time();
        self.link(place, way).windows.passes(now, packet)
    }
}

impl SwitchProgram for Rates {
    fn ingress(&mut self, place: &Place<'_>, incoming: &mut Incoming<'_>) -> Verdict {
        let Some(way) = incoming.way else { return Verdict::Forward(None) };
        match incoming.packet.note {
            Note::Rates(packet) if !packet.back => self.visit(place, incoming.ingress, way, packet),
            Note::Speculation(packet) if !self.passes(place, way, *packet) => return Verdict::Drop,
            Note::Rates(_) | Note::Speculation(_) | Note::Telemetry(_) => {}
        }
        Verdict::Forward(Some(way))
    }

    fn ignored(&self) -> u64 {
        self.links.iter().map(|egress| egress.windows.ignored()).sum()
    }
}
