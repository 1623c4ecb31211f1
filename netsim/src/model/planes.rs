//! Planes: hosts with several links have an address in the network behind each of them.
//!
//! A host's links are numbered in the order in which the topology lists them, and link `k` of every
//! host is in plane `k`. A packet leaves by the link of its plane and is addressed to the link of
//! the same plane of its destination, as if each link were a network card with an IP address of its
//! own. The plane follows from the entropy ([`Planes::plane`]), so that path selectors, which choose
//! entropies, choose planes without knowing of them. An acknowledgement has an entropy too, and
//! returns in its plane.
//!
//! With one plane, the address of a host is its number, and its plane is 0.

use crate::Picos;
use crate::topology::{Node, Topology};

/// Number of low bits of an entropy within which consecutive entropies take the planes in turn.
const TURN_BITS: u32 = 6;

/// Number of bytes that may wait at a link of a host that has several. The card takes packets from
/// the transport one after the other, so a packet for a busy link holds up those behind it: with
/// fewer bytes, random entropies leave other links idle. As much as a GSO train of a live endpoint.
const BACKLOG: u64 = 65_536;

/// The planes of a network as numbers: how entropies, addresses and planes follow from each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Planes {
    /// Binary logarithm of the number of planes.
    shift: u32,
    /// Number of planes minus one; the number is a power of two.
    mask: u32,
}

impl Planes {
    /// Returns the planes of `topology`, which must have passed [`Topology::check`].
    #[must_use]
    pub fn of(topology: &Topology) -> Self {
        let planes = topology.planes();
        Self { shift: planes.ilog2(), mask: planes - 1 }
    }

    /// Returns the number of planes.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.mask + 1
    }

    /// Returns the plane of a packet with this entropy: the exclusive or of the entropy and its
    /// 64th part, modulo the number of planes. So the first 64 entropies take the planes in turn, and
    /// of a context that changes to the next 64 because its peer answers on none of its paths, each
    /// path is in another plane than before.
    #[inline]
    #[must_use]
    pub const fn plane(self, entropy: u32) -> u32 {
        (entropy ^ entropy >> TURN_BITS) & self.mask
    }

    /// Returns the entropy of path `path` among those of plane `plane`. It is the path itself if
    /// there is one plane.
    #[inline]
    #[must_use]
    pub const fn entropy(self, path: u32, plane: u32) -> u32 {
        let first = path << self.shift;
        first | (plane ^ first >> TURN_BITS) & self.mask
    }

    /// Returns the address of `host` in the plane of `entropy`.
    #[inline]
    #[must_use]
    pub const fn address(self, host: u32, entropy: u32) -> u32 {
        host << self.shift | self.plane(entropy)
    }

    /// Returns the host and the plane of an address.
    #[inline]
    #[must_use]
    pub const fn host_and_plane(self, address: u32) -> (u32, u32) {
        (address >> self.shift, address & self.mask)
    }
}

/// The cards of all hosts: the port of each address, and the pace at which a card takes packets.
#[derive(Clone, Debug)]
pub(super) struct HostPorts {
    pub(super) planes: Planes,
    /// Port by which a host sends from each of its addresses.
    ports: Vec<u32>,
    /// Time that [`BACKLOG`] takes on a host's link; zero if hosts have one link.
    backlog: Picos,
}

impl HostPorts {
    pub(super) fn of(topology: &Topology) -> Self {
        let planes = Planes::of(topology);
        let mut ports = vec![u32::MAX; (topology.hosts as usize) << planes.shift];
        for (link, plane) in (0u32..).zip(topology.link_planes()) {
            let ends = topology.links[link as usize];
            let (Some(plane), (Node::Host(host), _) | (_, Node::Host(host))) =
                (plane, (ends.a, ends.b))
            else {
                continue;
            };
            let up = u32::from(ends.b == Node::Host(host));
            ports[(host << planes.shift | plane) as usize] = link * 2 + up;
        }
        let backlog = match planes.mask {
            0 => Picos::ZERO,
            _ => Picos::transmit(topology.host_rate(), BACKLOG),
        };
        Self { planes, ports, backlog }
    }

    /// Returns the port by which a host sends from one of its addresses.
    #[inline]
    pub(super) fn port(&self, address: u32) -> u32 {
        self.ports[address as usize]
    }

    /// Returns the first port by which `host` sends.
    pub(super) fn first(&self, host: u32) -> u32 {
        self.port(host << self.planes.shift)
    }

    /// Returns the time from which a card may take the next packet, after one whose link is busy
    /// until `free_at`. A host with one link has no backlog, so that its card waits for the link.
    #[inline]
    pub(super) const fn next_at(&self, now: Picos, free_at: Picos) -> Picos {
        let room_at = Picos(free_at.0.saturating_sub(self.backlog.0));
        if room_at.0 > now.0 { room_at } else { now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_base::Rate;

    fn planes(count: u32) -> Planes {
        let rate = Rate::gbps(100);
        let topology = Topology::star(2, rate, Picos::ZERO, Picos::ZERO).in_planes(count);
        Planes::of(&topology.expect("a power of two"))
    }

    #[test]
    fn sixty_four_entropies_take_planes_in_turn_and_the_next_ones_change_them() {
        for count in [1, 2, 4, 8, 16] {
            let planes = planes(count);
            assert!((0..64).all(|entropy| planes.plane(entropy) == entropy % count));
            // A detour leads to other planes, if there are any.
            let moves = (0..64).filter(|&path| planes.plane(path) != planes.plane(path + 64));
            assert_eq!(moves.count(), if count == 1 { 0 } else { 64 });
            let share = (0..64).filter(|&path| planes.plane(path + 64) == 0).count();
            assert_eq!(share as u32, 64 / count);
        }
    }

    #[test]
    fn entropies_of_a_plane_are_in_it_and_differ() {
        for count in [1, 2, 4, 8, 16] {
            let planes = planes(count);
            let mut all = Vec::new();
            for plane in 0..count {
                for path in 0..256 {
                    let entropy = planes.entropy(path, plane);
                    assert_eq!(planes.plane(entropy), plane);
                    all.push(entropy);
                }
            }
            all.sort_unstable();
            assert!(all.iter().zip(0..).all(|(&entropy, expected)| entropy == expected));
            assert_eq!(planes.host_and_plane(planes.address(5, 3)), (5, 3 % count));
        }
        assert_eq!((planes(1).entropy(777, 0), planes(1).address(9, 777)), (777, 9));
    }

    #[test]
    fn the_card_of_several_links_lets_a_bounded_backlog_wait() {
        let (rate, now) = (Rate::gbps(100), Picos::micros(10));
        let star = |count| {
            let star = Topology::star(2, rate, Picos::ZERO, Picos::ZERO).in_planes(count);
            HostPorts::of(&star.expect("a power of two"))
        };
        let packet = Picos::transmit(rate, 4096);
        assert_eq!(star(1).next_at(now, now + packet), now + packet);
        let backlog = Picos::transmit(rate, BACKLOG);
        assert_eq!(star(2).next_at(now, now + packet), now);
        assert_eq!(star(2).next_at(now, now + backlog), now);
        assert_eq!(star(2).next_at(now, now + backlog + packet), now + packet);
        let ports = star(4);
        assert_eq!([0, 1, 2, 3, 4].map(|address| ports.port(address)), [0, 4, 8, 12, 2]);
    }
}
