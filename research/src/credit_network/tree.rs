//! The route of an operation: from its sender up to one switch of the upper tier, from there to all
//! members. The answers take the same route back to that switch.

use super::CreditNetworkError;
use squall_netsim::topology::{Node, Topology};

/// Positions of members and switches in a network of two tiers. Channels are the ports of the
/// topology.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// The channel on which each member sends. The channel on which it receives is its sibling.
    out: Vec<u32>,
    /// The lower switch to which each member is attached.
    lower: Vec<u16>,
    /// The members attached to each lower switch.
    members: Vec<Vec<u16>>,
    /// The channels upwards of each lower switch. The n-th channel of every lower switch leads to
    /// the same upper switch.
    up: Vec<Vec<u32>>,
}

/// The node at the receiving end of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Behind {
    /// The lower switch with this number; the channel comes from a member.
    LowerFromMember(u16),
    /// The lower switch with this number; the channel comes from an upper switch.
    LowerFromUpper(u16),
    /// A switch of the upper tier.
    Upper,
    /// The member with this number.
    Member(u16),
}

/// Largest number of members of a lower switch, and of lower switches: copies are tracked in a bit
/// mask of 32 bits.
const MOST: usize = 32;

impl Tree {
    /// Builds the tables from a topology, or returns the reason why it has not two tiers as needed.
    pub(super) fn new(topology: &Topology) -> Result<Self, CreditNetworkError> {
        topology.check().map_err(|error| fault(&error.0))?;
        let lower_switches: Vec<usize> =
            (0..topology.switches.len()).filter(|&s| topology.switches[s].tier == 0).collect();
        let number = |switch: u32| lower_switches.iter().position(|&s| s == switch as usize);
        let hosts = topology.hosts as usize;
        let mut tree = Self {
            out: vec![0; hosts],
            lower: vec![0; hosts],
            members: vec![Vec::new(); lower_switches.len()],
            up: vec![Vec::new(); lower_switches.len()],
        };
        // Upward channels of each lower switch, with the upper switch that each leads to.
        let mut ways: Vec<Vec<(u32, u32)>> = vec![Vec::new(); lower_switches.len()];
        for port in 0..2 * topology.links.len() as u32 {
            match (topology.from(port), topology.to(port)) {
                (Node::Host(member), Node::Switch(switch)) => {
                    let at = number(switch).ok_or_else(|| fault("a member at an upper switch"))?;
                    tree.out[member as usize] = port;
                    tree.lower[member as usize] = at as u16;
                    tree.members[at].push(member as u16);
                }
                (Node::Switch(from), Node::Switch(to)) => match (number(from), number(to)) {
                    (Some(at), None) => ways[at].push((to, port)),
                    (None, Some(_)) => {}
                    _ => return Err(fault("a link between switches of one tier")),
                },
                _ => {}
            }
        }
        for (up, route) in tree.up.iter_mut().zip(&mut ways) {
            route.sort_unstable();
            *up = route.iter().map(|(_, port)| *port).collect();
        }
        let alike = |a: &[(u32, u32)], b: &[(u32, u32)]| {
            a.iter().map(|route| route.0).eq(b.iter().map(|route| route.0))
        };
        let first = ways.first().ok_or_else(|| fault("no lower switch"))?;
        if first.is_empty() || ways.iter().any(|route| !alike(route, first)) {
            return Err(fault("lower switches that lead to different upper switches, or to none"));
        }
        if tree.members.iter().any(|members| members.is_empty() || members.len() > MOST)
            || ways.len() > MOST
        {
            return Err(fault(
                "more than 32 members at a lower switch, or none, or more than 32 lower switches",
            ));
        }
        Ok(tree)
    }

    pub(super) fn lower_of(&self, member: u16) -> u16 {
        self.lower[usize::from(member)]
    }

    pub(super) fn members_of(&self, lower: u16) -> &[u16] {
        &self.members[usize::from(lower)]
    }

    /// Returns the number of switches of the lower tier.
    pub(super) fn lowers(&self) -> u16 {
        self.members.len() as u16
    }

    /// Returns the number of links from each lower switch to upper switches.
    pub(super) fn ways(&self) -> u32 {
        self.up[0].len() as u32
    }

    /// Returns the channel on which a member sends.
    pub(super) fn out_of(&self, member: u16) -> usize {
        self.out[usize::from(member)] as usize
    }

    /// Returns the channel on which a member receives.
    pub(super) fn to(&self, member: u16) -> usize {
        self.out_of(member) ^ 1
    }

    /// Returns the channel by which a lower switch sends up on its link number `route`. Links of one
    /// number lead to the same upper switch from every lower switch.
    pub(super) fn up(&self, lower: u16, route: u32) -> usize {
        self.up[usize::from(lower)][route as usize] as usize
    }

    /// Returns the channel by which a lower switch receives from above on its link number `route`.
    pub(super) fn down(&self, lower: u16, route: u32) -> usize {
        self.up(lower, route) ^ 1
    }

    /// Returns the node at the receiving end of each channel.
    pub(super) fn behind(&self, channels: usize) -> Vec<Behind> {
        let mut behind = vec![Behind::Upper; channels];
        for (member, &lower) in (0u16..).zip(&self.lower) {
            behind[self.out_of(member)] = Behind::LowerFromMember(lower);
            behind[self.to(member)] = Behind::Member(member);
        }
        for lower in 0..self.lowers() {
            for route in 0..self.ways() {
                behind[self.down(lower, route)] = Behind::LowerFromUpper(lower);
            }
        }
        behind
    }
}

fn fault(what: &str) -> CreditNetworkError {
    let what = format!(
        "{what}; use two tiers of switches, with every lower switch connected to every upper one"
    );
    CreditNetworkError { field: "topology", what }
}
