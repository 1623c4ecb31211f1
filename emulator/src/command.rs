//! Commands to a running emulator, each one line of text.

use std::fmt;
use std::str::FromStr;

use squall_base::{Rate, quantity};
use squall_netsim::model::Failure;
use squall_netsim::topology::{Node, Topology};

/// A command to a running emulator. Links are named by their ends, as in `leaf0-spine1` or
/// `h3-leaf1`, or by number.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// `status`: the emulator answers with a [`super::Status`] as JSON.
    Status,
    /// `down`: the emulator stops.
    Down,
    /// `fail-link LINK`: the link goes down in both directions. Routing learns of it after the time
    /// to reroute.
    FailLink(String),
    /// `restore-link LINK`: the link is up again, at its own rate and without bit errors.
    RestoreLink(String),
    /// `set-rate LINK RATE`: changes the link's rate. The rate, such as 40G, is the one before
    /// scaling.
    SetRate(String, Rate),
    /// `black-hole LINK`: the link discards every packet, and routing does not notice.
    BlackHole(String),
    /// `bit-errors LINK PROBABILITY`: flips each bit with this probability.
    BitErrors(String, f64),
    /// `loss LINK SHARE`: loses each packet with this probability, such as `0.01` or `1%`.
    Loss(String, f64),
    /// `fail-switch SWITCH`: all links of the switch go down.
    FailSwitch(String),
    /// `restore-switch SWITCH`: the switch and its links are up again.
    RestoreSwitch(String),
    /// `fail-plane PLANE`: all links of the plane's switches go down. Planes are counted from 0.
    FailPlane(String),
    /// `restore-plane PLANE`: the plane's switches and their links are up again.
    RestorePlane(String),
}

/// The reason why a command is refused, and what would be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError(pub String);

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CommandError {}

fn error<T>(text: String) -> Result<T, CommandError> {
    Err(CommandError(text))
}

/// Parses a rate such as `40G`, `2.5G` or `100M`.
///
/// # Errors
/// The text is no rate; the error shows what one looks like.
pub fn parse_rate(text: &str) -> Result<Rate, CommandError> {
    // Ten petabits per second are far above any link, and zero would never send.
    let allowed = |rate: &Rate| (1..10_000_000_000_000_000).contains(&rate.0);
    quantity::parse_rate(text).filter(allowed).ok_or_else(|| {
        CommandError(format!("'{text}' where a rate such as 100M, 2.5G or 40G was expected"))
    })
}

/// Parses a share of packets such as `0.01` or `1%`.
///
/// # Errors
/// The text is no share; the error shows what one looks like.
pub fn parse_share(text: &str) -> Result<f64, CommandError> {
    quantity::parse_probability(text).ok_or_else(|| {
        CommandError(format!("'{text}' where a share such as 0.01 or 1% was expected"))
    })
}

impl FromStr for Command {
    type Err = CommandError;
    fn from_str(text: &str) -> Result<Self, CommandError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let own = |text: &str| text.to_owned();
        Ok(match *words.as_slice() {
            ["status"] => Self::Status,
            ["down"] => Self::Down,
            ["fail-link", link] => Self::FailLink(own(link)),
            ["restore-link", link] => Self::RestoreLink(own(link)),
            ["set-rate", link, rate] => Self::SetRate(own(link), parse_rate(rate)?),
            ["black-hole", link] => Self::BlackHole(own(link)),
            ["bit-errors", link, rate] => match rate.parse() {
                Ok(rate) if (0.0..=1.0).contains(&rate) => Self::BitErrors(own(link), rate),
                _ => {
                    return error(format!("'{rate}' where a probability from 0 to 1 was expected"));
                }
            },
            ["loss", link, share] => Self::Loss(own(link), parse_share(share)?),
            ["fail-switch", switch] => Self::FailSwitch(own(switch)),
            ["restore-switch", switch] => Self::RestoreSwitch(own(switch)),
            ["fail-plane", plane] => Self::FailPlane(own(plane)),
            ["restore-plane", plane] => Self::RestorePlane(own(plane)),
            _ => {
                return error(format!(
                    "'{text}' is not one of: status, down, fail-link LINK, restore-link LINK, \
                     set-rate LINK RATE, black-hole LINK, bit-errors LINK PROBABILITY, loss LINK SHARE, \
                     fail-switch SWITCH, restore-switch SWITCH, fail-plane PLANE, restore-plane PLANE"
                ));
            }
        })
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status => f.write_str("status"),
            Self::Down => f.write_str("down"),
            Self::FailLink(link) => write!(f, "fail-link {link}"),
            Self::RestoreLink(link) => write!(f, "restore-link {link}"),
            Self::SetRate(link, rate) => write!(f, "set-rate {link} {}M", rate.0 as f64 / 1e6),
            Self::BlackHole(link) => write!(f, "black-hole {link}"),
            Self::BitErrors(link, rate) => write!(f, "bit-errors {link} {rate}"),
            Self::Loss(link, share) => write!(f, "loss {link} {share}"),
            Self::FailSwitch(switch) => write!(f, "fail-switch {switch}"),
            Self::RestoreSwitch(switch) => write!(f, "restore-switch {switch}"),
            Self::FailPlane(plane) => write!(f, "fail-plane {plane}"),
            Self::RestorePlane(plane) => write!(f, "restore-plane {plane}"),
        }
    }
}

/// Returns the number of the link between two named nodes, or checks a link number. Of parallel
/// links, the first one counts.
///
/// # Errors
/// There is no such link; the error lists those that exist.
pub fn find_link(topology: &Topology, name: &str) -> Result<u32, CommandError> {
    let count = topology.links.len();
    if let Ok(number) = name.parse::<u32>() {
        if (number as usize) < count {
            return Ok(number);
        }
        return error(format!("there is no link {number}: the links are 0 to {}", count - 1));
    }
    let ends = name.split_once("->").or_else(|| name.split_once('-'));
    let found = ends.and_then(|(a, b)| {
        let names = |node: Node| topology.name(node);
        topology.links.iter().position(|link| {
            let (x, y) = (names(link.a), names(link.b));
            (x == a && y == b) || (x == b && y == a)
        })
    });
    match found {
        // A topology whose links fit into memory has fewer than 2^32 of them.
        Some(link) => Ok(link as u32),
        None => {
            let links = topology.links.iter();
            let name_of = |l: &squall_netsim::topology::Link| {
                format!("{}-{}", topology.name(l.a), topology.name(l.b))
            };
            let mut names: Vec<String> = links.take(40).map(name_of).collect();
            if count > names.len() {
                names.push("..".into());
            }
            error(format!("no link '{name}'; there are: {}", names.join(" ")))
        }
    }
}

/// Returns the number of a switch by its name.
///
/// # Errors
/// There is no such switch; the error lists those that exist.
pub fn find_switch(topology: &Topology, name: &str) -> Result<u32, CommandError> {
    match topology.switches.iter().position(|switch| switch.name == name) {
        Some(switch) => Ok(switch as u32),
        None => {
            let names: Vec<&str> =
                topology.switches.iter().take(40).map(|s| s.name.as_str()).collect();
            error(format!("no switch '{name}'; there are: {}", names.join(" ")))
        }
    }
}

/// Returns the switches of a plane by its number.
fn find_plane(topology: &Topology, plane: &str) -> Result<Vec<u32>, CommandError> {
    let last = topology.planes() - 1;
    match plane.parse::<u32>().ok().filter(|plane| *plane <= last) {
        Some(plane) => Ok(topology.switches_of_plane(plane)),
        None => error(format!("no plane '{plane}'; the planes are 0 to {last}")),
    }
}

impl Command {
    /// Returns the link or switch that the command concerns, as the user named it.
    #[must_use]
    pub const fn target(&self) -> Option<&String> {
        match self {
            Self::Status | Self::Down => None,
            Self::FailLink(name)
            | Self::RestoreLink(name)
            | Self::SetRate(name, _)
            | Self::BlackHole(name)
            | Self::BitErrors(name, _)
            | Self::Loss(name, _)
            | Self::FailSwitch(name)
            | Self::RestoreSwitch(name)
            | Self::FailPlane(name)
            | Self::RestorePlane(name) => Some(name),
        }
    }

    /// Returns the changes that the command makes to the network, if any. Rates are multiplied by
    /// `rate_scale`; `topology` is the one with scaled rates.
    ///
    /// # Errors
    /// The link or switch does not exist.
    pub fn failures(
        &self,
        topology: &Topology,
        rate_scale: f64,
    ) -> Result<Vec<Failure>, CommandError> {
        Ok(match self {
            Self::Status | Self::Down => vec![],
            Self::FailLink(link) => vec![Failure::LinkDown(find_link(topology, link)?)],
            Self::RestoreLink(link) => {
                let link = find_link(topology, link)?;
                let rate = topology.links[link as usize].rate;
                vec![Failure::LinkUp(link), Failure::Rate(link, rate)]
            }
            Self::SetRate(link, rate) => {
                let scaled = Rate(((rate.0 as f64 * rate_scale) as u64).max(1));
                vec![Failure::Rate(find_link(topology, link)?, scaled)]
            }
            Self::BlackHole(link) => vec![Failure::BlackHole(find_link(topology, link)?)],
            Self::BitErrors(link, rate) => {
                vec![Failure::BitErrors(find_link(topology, link)?, *rate)]
            }
            Self::Loss(link, share) => vec![Failure::Loss(find_link(topology, link)?, *share)],
            Self::FailSwitch(switch) => vec![Failure::SwitchDown(find_switch(topology, switch)?)],
            Self::RestoreSwitch(switch) => vec![Failure::SwitchUp(find_switch(topology, switch)?)],
            Self::FailPlane(plane) => {
                find_plane(topology, plane)?.into_iter().map(Failure::SwitchDown).collect()
            }
            Self::RestorePlane(plane) => {
                find_plane(topology, plane)?.into_iter().map(Failure::SwitchUp).collect()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_netsim::Picos;

    fn topology() -> Topology {
        let rate = Rate::gbps(1);
        Topology::leaf_spine(2, 2, 1, rate, rate, Picos::ZERO, Picos::ZERO)
    }

    #[test]
    fn commands_survive_the_round_trip() {
        for text in [
            "status",
            "down",
            "fail-link leaf0-spine1",
            "restore-link 3",
            "set-rate h0-leaf0 2500M",
            "black-hole leaf1-spine0",
            "bit-errors leaf1-spine0 0.000001",
            "loss leaf1-spine0 0.01",
            "fail-switch spine0",
            "restore-switch spine0",
            "fail-plane 1",
            "restore-plane 1",
        ] {
            let command: Command = text.parse().unwrap();
            assert_eq!(command.to_string(), text);
        }
    }

    #[test]
    fn links_are_found_by_either_end_and_by_number() {
        let topology = topology();
        // h0-leaf0, h1-leaf1, leaf0-spine0, leaf0-spine1, leaf1-spine0, leaf1-spine1.
        for name in ["leaf0-spine1", "spine1-leaf0", "leaf0->spine1", "3"] {
            assert_eq!(find_link(&topology, name), Ok(3), "{name}");
        }
        let down = "fail-link h1-leaf1".parse::<Command>().unwrap();
        assert_eq!(down.failures(&topology, 0.1), Ok(vec![Failure::LinkDown(1)]));
        let slow = "set-rate 1 10G".parse::<Command>().unwrap();
        let rate = Failure::Rate(1, Rate::gbps(1));
        assert_eq!(slow.failures(&topology, 0.1), Ok(vec![rate]));
        let again = "restore-link 1".parse::<Command>().unwrap();
        assert_eq!(again.failures(&topology, 0.1), Ok(vec![Failure::LinkUp(1), rate]));
        let lossy = "loss 1 1.5%".parse::<Command>().unwrap();
        assert_eq!(lossy.failures(&topology, 0.1), Ok(vec![Failure::Loss(1, 0.015)]));
        assert_eq!(parse_rate("2.5Gb/s"), parse_rate("2.5Gbit/s"));
        let switch = "fail-switch spine1".parse::<Command>().unwrap();
        assert_eq!(switch.failures(&topology, 0.1), Ok(vec![Failure::SwitchDown(3)]));
    }

    #[test]
    fn planes_are_all_of_their_switches() {
        let planes = topology().in_planes(2).expect("two planes");
        let of = |text: &str| text.parse::<Command>().unwrap().failures(&planes, 1.0);
        assert_eq!(of("fail-plane 1"), Ok((4..8).map(Failure::SwitchDown).collect()));
        assert_eq!(of("restore-plane 0"), Ok((0..4).map(Failure::SwitchUp).collect()));
        for text in ["fail-plane 2", "restore-plane p1"] {
            assert!(of(text).unwrap_err().0.ends_with("the planes are 0 to 1"));
        }
    }

    #[test]
    fn what_is_not_there_is_answered_by_what_is() {
        let topology = topology();
        for (text, says) in [
            ("explode", "fail-link LINK"),
            ("fail-plane", "fail-plane PLANE"),
            ("fail-link", "fail-link LINK"),
            ("set-rate 1 fast", "a rate such as"),
            ("set-rate 1 0G", "a rate such as"),
            ("bit-errors 1 2", "from 0 to 1"),
            ("loss 1 101%", "0.01 or 1%"),
        ] {
            let error = text.parse::<Command>().unwrap_err().0;
            assert!(error.contains(says), "{error}");
        }
        for (text, says) in [
            ("fail-link leaf0-spine7", "h0-leaf0 h1-leaf1 leaf0-spine0"),
            ("fail-link 6", "0 to 5"),
            ("fail-switch leaf9", "leaf0 leaf1 spine0 spine1"),
        ] {
            let error = text.parse::<Command>().unwrap().failures(&topology, 1.0).unwrap_err().0;
            assert!(error.contains(says), "{error}");
        }
    }
}
