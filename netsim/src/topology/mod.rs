//! Hosts, switches and the links between them.

mod build;
mod fat_tree;
mod planes;
mod route;

use core::fmt;

use crate::Picos;
use squall_base::Rate;

pub use fat_tree::{FatTree, Tier};
pub use planes::MOST_PLANES;
pub use route::Route;

/// An end of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Node {
    /// Host of this number, counted from zero.
    Host(u32),
    /// Switch of this number, counted from zero.
    Switch(u32),
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(n) => write!(f, "h{n}"),
            Self::Switch(n) => write!(f, "s{n}"),
        }
    }
}

/// A switch, with its place in the topology.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Switch {
    /// Name of the switch for people: `tor3`, `agg0`, `core7`, `leaf1` ..
    pub name: String,
    /// Latency from the arrival of a packet to its place in an output queue.
    pub latency: Picos,
    /// Tier of the switch, counted from the hosts: 0 for switches with hosts.
    pub tier: u8,
}

/// A link; both directions have the same rate and latency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// The lower end: the host, or the switch nearer to hosts.
    pub a: Node,
    /// The upper end: the switch nearer to the core.
    pub b: Node,
    /// Rate of each direction, bits per second.
    pub rate: Rate,
    /// Propagation delay of the link.
    pub latency: Picos,
}

/// The topology of a network: its hosts, switches and links, with rates and latencies. Every host
/// has one link, or as many as there are [planes](Topology::planes).
///
/// Link `i` has two directions, which the model calls ports: port `2 i` sends from `a` to `b`, port
/// `2 i + 1` from `b` to `a`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Topology {
    /// Number of hosts.
    pub hosts: u32,
    /// All switches of the network.
    pub switches: Vec<Switch>,
    /// All links of the network.
    pub links: Vec<Link>,
}

/// Maximum number of hosts, and of links.
pub const MOST_HOSTS: u32 = (1 << 24) - 1;

/// Error of an impossible topology.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopologyError(pub String);

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for TopologyError {}

impl Topology {
    /// Checks that `links` links are possible, before they are created.
    ///
    /// # Errors
    /// Returns an error that names the maximum.
    pub fn fits(links: u64) -> Result<(), TopologyError> {
        if links > u64::from(MOST_HOSTS) {
            return Err(TopologyError(format!("{links} links; at most {MOST_HOSTS} are possible")));
        }
        Ok(())
    }

    /// Checks that links end at nodes that exist, and that all hosts have as many links: one, or
    /// another power of two up to [`MOST_PLANES`].
    ///
    /// # Errors
    /// Returns the first error.
    pub fn check(&self) -> Result<(), TopologyError> {
        let error = |text: String| Err(TopologyError(text));
        if self.hosts < 2 {
            return error(format!("a network of {} hosts; at least 2 are needed", self.hosts));
        }
        if self.hosts > MOST_HOSTS {
            return error(format!(
                "a network of {} hosts; at most {MOST_HOSTS} are possible",
                self.hosts
            ));
        }
        let mut degree = vec![0u32; self.hosts as usize];
        for (index, link) in self.links.iter().enumerate() {
            for node in [link.a, link.b] {
                match node {
                    Node::Host(host) => match degree.get_mut(host as usize) {
                        Some(count) => *count += 1,
                        None => {
                            return error(format!(
                                "link {index} ends at {node}, but the topology has {} hosts",
                                self.hosts
                            ));
                        }
                    },
                    Node::Switch(switch) if switch as usize >= self.switches.len() => {
                        let count = self.switches.len();
                        return error(format!(
                            "link {index} ends at {node}, but the topology has {count} switches"
                        ));
                    }
                    Node::Switch(_) => {}
                }
            }
            if link.a == link.b {
                return error(format!(
                    "link {index} connects {} with itself; name two nodes",
                    link.a
                ));
            }
            if let (Node::Host(_), Node::Host(_)) = (link.a, link.b) {
                let (a, b) = (link.a, link.b);
                return error(format!(
                    "link {index} connects hosts {a} and {b} directly; connect each to a switch"
                ));
            }
            if link.rate.0 == 0 {
                return error(format!(
                    "link {index} ({} to {}) has no rate; give it one above zero",
                    link.a, link.b
                ));
            }
        }
        planes::check(&degree)
    }

    /// Returns the sending end of port `port`.
    #[must_use]
    pub fn from(&self, port: u32) -> Node {
        let link = &self.links[port as usize / 2];
        if port.is_multiple_of(2) { link.a } else { link.b }
    }

    /// Returns the receiving end of port `port`.
    #[must_use]
    pub fn to(&self, port: u32) -> Node {
        self.from(port ^ 1)
    }

    /// Returns a node's name for people.
    #[must_use]
    pub fn name(&self, node: Node) -> String {
        match node {
            Node::Host(_) => node.to_string(),
            Node::Switch(switch) => self.switches[switch as usize].name.clone(),
        }
    }

    /// Returns a port's name for people, such as `tor0->agg1`.
    #[must_use]
    pub fn port_name(&self, port: u32) -> String {
        format!("{}->{}", self.name(self.from(port)), self.name(self.to(port)))
    }

    /// Returns the rate of the slowest host link, which an endpoint may assume for its own links.
    #[must_use]
    pub fn host_rate(&self) -> Rate {
        let of_hosts = self
            .links
            .iter()
            .filter(|link| matches!(link.a, Node::Host(_)) || matches!(link.b, Node::Host(_)));
        of_hosts.map(|link| link.rate).min().unwrap_or_default()
    }
}
