//! `[[failure]]`: links and switches that fail, slow down or recover.

use serde::{Deserialize, Serialize};
use toml::Table;

use super::SceneError;
use super::keys::{Keys, state};
use super::scene::{fault, picos};
use squall_base::{Rate, Rng};
use squall_netsim::model::{Failure, FailureEvent};
use squall_netsim::settings::Settings;
use squall_netsim::topology::{Link, Node, Topology};

/// A table `[[failure]]` of a plan.
#[derive(Clone, PartialEq, Debug)]
pub struct FailureTable {
    /// The failure, and the links or switches that it concerns.
    pub what: FailureKind,
    /// Time at which the failure happens.
    pub at: FailureTime,
}

/// Time at which a failure of a plan happens.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct FailureTime {
    /// Time of the failure, microseconds (default 0).
    pub at_us: f64,
}

/// A failure of chosen links, or another failure.
#[derive(Clone, PartialEq, Debug)]
pub enum FailureKind {
    /// Links fail that are named, or random ones.
    Links(LinkChoice, LinkFailure),
    /// Switches fail, or links of the top tier.
    Place(PlaceFailure),
}

/// A failure or repair of the links that a [`LinkChoice`] chooses.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkFailure {
    /// The link carries nothing, and routing learns of it.
    LinkDown,
    /// The link works again.
    LinkUp,
    /// The link loses every packet, and routing does not learn of it.
    BlackHole,
    /// The link has another rate.
    Rate {
        /// Rate from then on, Gb/s.
        gbps: u64,
    },
    /// The link damages packets.
    BitErrors {
        /// Probability that a bit is wrong.
        probability: f64,
    },
}

/// The failure of switches, or of links of the top tier.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlaceFailure {
    /// The first links of the top tier are slow downwards (uet-htsim's -failed).
    Slow {
        /// Links.
        links: u32,
        /// Share of its rate that a link keeps, its queue and thresholds with it (default 0.25).
        #[serde(default = "share")]
        share: f64,
    },
    /// The switch loses every packet, and routing learns of it.
    SwitchDown {
        /// Its name: `spine1`.
        switch: String,
    },
    /// The switch works again.
    SwitchUp {
        /// Its name: `spine1`.
        switch: String,
    },
    /// All switches of a plane lose every packet. Hosts learn of it by lost packets alone.
    PlaneDown {
        /// The plane, counted from 0.
        plane: u32,
    },
    /// All switches of the plane work again.
    PlaneUp {
        /// The plane, counted from 0.
        plane: u32,
    },
    /// The links between switches of a plane are slow in both directions, as if other traffic had
    /// the rest.
    PlaneSlow {
        /// The plane, counted from 0.
        plane: u32,
        /// Share of its rate that a link keeps, its queue and thresholds with it (default 0.25).
        #[serde(default = "share")]
        share: f64,
    },
}

const fn share() -> f64 {
    PlaceFailure::SHARE
}

/// A link by its name, or so many random ones.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct LinkChoice {
    /// A link by its ends: `tor0-agg1`.
    pub link: Option<String>,
    /// Instead so many random links between switches.
    pub links: Option<u32>,
    /// Top-of-rack switches that these links leave, as many from each (default any).
    pub of_racks: Option<u32>,
}

impl FailureTable {
    /// Reads the table `[[failure]]` number `index` of a plan.
    pub(super) fn read(table: Table, index: usize) -> Result<Self, SceneError> {
        let mut keys = Keys::new(format!("failure[{index}]"), table);
        let at = keys.take()?;
        let what = match keys.try_kind("what")? {
            Some(place) => FailureKind::Place(place),
            None => FailureKind::Links(keys.take()?, keys.take_kind("what")?),
        };
        keys.finish()?;
        Ok(Self { what, at })
    }

    /// Adds the failure, its place and its time to the settings of the run.
    pub(super) fn state(&self, settings: &mut Settings, index: usize) {
        let path = format!("failure.{index}");
        settings.set_table(&path, &self.at);
        match &self.what {
            FailureKind::Links(links, failure) => {
                settings.set_table(&path, links);
                state(settings, &path, "what", failure);
            }
            FailureKind::Place(failure) => state(settings, &path, "what", failure),
        }
    }

    /// Returns the failure as events for the simulator. `rng` chooses random links.
    pub(super) fn build(
        &self,
        topology: &Topology,
        rng: &mut Rng,
        index: usize,
    ) -> Result<Vec<FailureEvent>, SceneError> {
        let key = |name: &str| format!("failure[{index}].{name}");
        let at_us = self.at.at_us;
        if !(0.0..1e12).contains(&at_us) {
            return fault(key("at_us"), format!("{at_us} us, expected 0 to 1e12"));
        }
        let failures = match &self.what {
            FailureKind::Links(choice, failure) => {
                failure.check(key)?;
                let links = choice.pick(topology, rng, key)?;
                links.into_iter().map(|link| failure.on(link)).collect()
            }
            FailureKind::Place(failure) => failure.build(topology, key)?,
        };
        let at = picos(at_us);
        Ok(failures.into_iter().map(|what| FailureEvent { at, what }).collect())
    }
}

impl LinkFailure {
    fn check(&self, key: impl Fn(&str) -> String) -> Result<(), SceneError> {
        match self {
            Self::Rate { gbps } if !(1..=100_000).contains(gbps) => {
                fault(key("gbps"), format!("{gbps} Gb/s, expected 1 to 100000"))
            }
            Self::BitErrors { probability: p } if !(0.0..=1.0).contains(p) => {
                fault(key("probability"), format!("probability {p}, expected 0 to 1"))
            }
            _ => Ok(()),
        }
    }

    fn on(&self, link: u32) -> Failure {
        match *self {
            Self::LinkDown => Failure::LinkDown(link),
            Self::LinkUp => Failure::LinkUp(link),
            Self::BlackHole => Failure::BlackHole(link),
            Self::Rate { gbps } => Failure::Rate(link, Rate::gbps(gbps)),
            Self::BitErrors { probability } => Failure::BitErrors(link, probability),
        }
    }
}

impl PlaceFailure {
    /// Share of its rate that a slow link keeps by default, as in uet-htsim.
    pub const SHARE: f64 = 0.25;

    fn build(
        &self,
        topology: &Topology,
        key: impl Fn(&str) -> String,
    ) -> Result<Vec<Failure>, SceneError> {
        let find = |name: &str| -> Result<u32, SceneError> {
            let found = topology.switches.iter().position(|known| known.name == *name);
            let found = found.ok_or_else(|| {
                let example = topology.switches.last().map_or("", |switch| &switch.name);
                let what = format!("no switch is called `{name}`; the last is `{example}`");
                SceneError { key: key("switch"), what }
            })?;
            Ok(u32::try_from(found).unwrap_or(u32::MAX))
        };
        match self {
            Self::SwitchDown { switch } => Ok(vec![Failure::SwitchDown(find(switch)?)]),
            Self::SwitchUp { switch } => Ok(vec![Failure::SwitchUp(find(switch)?)]),
            Self::PlaneDown { plane } | Self::PlaneUp { plane } => {
                let switches = plane_switches(topology, *plane);
                let switches = switches.or_else(|what| fault(key("plane"), what))?;
                let fail = match self {
                    Self::PlaneDown { .. } => Failure::SwitchDown,
                    _ => Failure::SwitchUp,
                };
                Ok(switches.into_iter().map(fail).collect())
            }
            Self::Slow { share, .. } | Self::PlaneSlow { share, .. }
                if !(*share > 0.0 && *share < 1.0) =>
            {
                fault(key("share"), format!("share {share}, expected a number between 0 and 1"))
            }
            Self::Slow { links, share } => {
                slow_links(topology, *links, *share).or_else(|what| fault(key("links"), what))
            }
            Self::PlaneSlow { plane, share } => {
                slow_plane(topology, *plane, *share).or_else(|what| fault(key("plane"), what))
            }
        }
    }
}

impl LinkChoice {
    /// Returns the links that fail: the named one, or random ones between switches.
    fn pick(
        &self,
        topology: &Topology,
        rng: &mut Rng,
        key: impl Fn(&str) -> String,
    ) -> Result<Vec<u32>, SceneError> {
        match (&self.link, self.links) {
            (Some(name), None) => {
                let named = |link: &Link| {
                    let (a, b) = (topology.name(link.a), topology.name(link.b));
                    *name == format!("{a}-{b}") || *name == format!("{b}-{a}")
                };
                match (0u32..).zip(&topology.links).find(|(_, link)| named(link)) {
                    Some((index, _)) => Ok(vec![index]),
                    None => {
                        let example = topology.links.last().map_or(String::new(), |link| {
                            format!("{}-{}", topology.name(link.a), topology.name(link.b))
                        });
                        let what = format!("no link is called `{name}`; the last is `{example}`");
                        fault(key("link"), what)
                    }
                }
            }
            (None, Some(count)) => {
                let picked = random_links(topology, count, self.of_racks, rng);
                picked.or_else(|what| fault(key("links"), what))
            }
            _ => fault(key("link"), "expected either `link` (by its ends) or `links` (how many)"),
        }
    }
}

/// Slows the first `count` links of the top tier downwards, to `share` of their rate, as uet-htsim's `-failed` does.
///
/// # Errors
/// `count` is larger than the number of such links, which the error names.
pub fn slow_links(topology: &Topology, count: u32, share: f64) -> Result<Vec<Failure>, String> {
    let tier = |node: Node| match node {
        Node::Switch(at) => topology.switches[at as usize].tier,
        Node::Host(_) => 0,
    };
    let top = topology.links.iter().map(|link| tier(link.b)).max().unwrap_or(0);
    let links = (0u32..).zip(&topology.links).filter(|(_, link)| tier(link.b) == top && top > 0);
    let links: Vec<(u32, Rate)> = links.map(|(index, link)| (index, link.rate)).collect();
    if count as usize > links.len() {
        return Err(format!("{count} links, but the top tier has {}", links.len()));
    }
    let slow = |rate: Rate| Rate(((rate.0 as f64 * share) as u64).max(1));
    let chosen = links.into_iter().take(count as usize);
    Ok(chosen.map(|(link, rate)| Failure::Degrade(link * 2 + 1, slow(rate))).collect())
}

/// Slows the links between switches of a plane, to `share` of their rate, in both directions.
fn slow_plane(topology: &Topology, plane: u32, share: f64) -> Result<Vec<Failure>, String> {
    let switches = plane_switches(topology, plane)?;
    let ends = |link: &Link| match (link.a, link.b) {
        (Node::Switch(a), Node::Switch(b)) => switches.contains(&a) || switches.contains(&b),
        _ => false,
    };
    let links = (0u32..).zip(&topology.links).filter(|(_, link)| ends(link));
    let slow = |rate: Rate| Rate(((rate.0 as f64 * share) as u64).max(1));
    let ports =
        links.flat_map(|(index, link)| [(index * 2, link.rate), (index * 2 + 1, link.rate)]);
    Ok(ports.map(|(port, rate)| Failure::Degrade(port, slow(rate))).collect())
}

/// Returns the switches of a plane.
fn plane_switches(topology: &Topology, plane: u32) -> Result<Vec<u32>, String> {
    let planes = topology.planes();
    if plane >= planes {
        return Err(format!("plane {plane} is out of range 0..={}", planes - 1));
    }
    Ok(topology.switches_of_plane(plane))
}

/// `count` random links between switches; with `racks`, of so many random top-of-rack switches, the
/// same number of each.
fn random_links(
    topology: &Topology,
    count: u32,
    racks: Option<u32>,
    rng: &mut Rng,
) -> Result<Vec<u32>, String> {
    let mut up: Vec<Vec<u32>> = vec![Vec::new(); topology.switches.len()];
    for (index, link) in (0u32..).zip(&topology.links) {
        if let (Node::Switch(a), Node::Switch(_)) = (link.a, link.b) {
            up[a as usize].push(index);
        }
    }
    let mut groups: Vec<Vec<u32>> = match racks {
        None => vec![up.concat()],
        Some(_) => {
            let tiers = topology.switches.iter().map(|switch| switch.tier);
            let tors = up.into_iter().zip(tiers).filter(|(up, tier)| *tier == 0 && !up.is_empty());
            tors.map(|(up, _)| up).collect()
        }
    };
    let wanted = racks.unwrap_or(1);
    if wanted == 0 || wanted as usize > groups.len() || !count.is_multiple_of(wanted) {
        return Err(format!(
            "{count} links of {wanted} racks, expected a multiple of the racks, of which there \
             are {}",
            groups.len()
        ));
    }
    let each = (count / wanted) as usize;
    let mut picked = Vec::new();
    for _ in 0..wanted {
        let mut group = groups.swap_remove(rng.below(groups.len() as u32) as usize);
        if each > group.len() {
            return Err(format!("{count} links, but there are {} to choose from", group.len()));
        }
        for _ in 0..each {
            picked.push(group.swap_remove(rng.below(group.len() as u32) as usize));
        }
    }
    picked.sort_unstable();
    Ok(picked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_netsim::Picos;

    fn build(text: &str) -> Result<Vec<Failure>, String> {
        let rate = Rate::gbps(100);
        let topology = Topology::leaf_spine(2, 1, 2, rate, rate, Picos::ZERO, Picos::ZERO);
        let topology = topology.in_planes(2).expect("two planes");
        let table = FailureTable::read(text.parse().expect("TOML"), 0);
        let failures = table.and_then(|table| table.build(&topology, &mut Rng::new(1), 0));
        let failures = failures.map_err(|error| error.to_string())?;
        Ok(failures.into_iter().map(|failure| failure.what).collect())
    }

    #[test]
    fn a_plane_fails_slows_down_and_recovers() {
        let of_plane = [3, 4, 5];
        assert_eq!(
            build("what = \"plane-down\"\nplane = 1"),
            Ok(of_plane.map(Failure::SwitchDown).to_vec())
        );
        assert_eq!(
            build("what = \"plane-up\"\nplane = 1"),
            Ok(of_plane.map(Failure::SwitchUp).to_vec())
        );
        // Links 0 to 3 and 6 to 9 are those of hosts.
        let slow = Rate::gbps(25);
        assert_eq!(
            build("what = \"plane-slow\"\nplane = 1"),
            Ok((20..24).map(|port| Failure::Degrade(port, slow)).collect())
        );
        let error = build("what = \"plane-down\"\nplane = 2").expect_err("two planes");
        assert_eq!(error, "failure[0].plane: plane 2 is out of range 0..=1");
        assert!(build("what = \"plane-slow\"\nplane = 0\nshare = 1.0").is_err());
    }
}
