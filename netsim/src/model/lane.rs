//! Virtual lanes: classes of data on a link that are paused separately, like InfiniBand's virtual
//! lanes and the classes of PFC. Packets of all lanes wait in one queue and leave it in the order
//! in which they came, except for those whose lane the next switch stopped.
//!
//! Most networks have one lane. Where a switch program needs more, it sets the lane that the packet
//! leaves by ([`super::PacketOptions::lane`]). A waiting packet stores its ingress port, its
//! ingress lane and its egress lane in one number, so that packets of networks with one lane need
//! no more memory.

/// Maximum number of lanes: as many as PFC has classes.
pub const MOST: u8 = 8;

/// Number of bits of the port in an encoded ingress.
const PORT: u32 = 24;
/// Number of bits of each lane in an encoded ingress.
const LANE: u32 = 4;

/// Ingress of a packet that its own host sends: the packet came in by no port.
pub(super) const HOST: u32 = u32::MAX;

/// Encodes the port and lane by which a packet came in, and the lane by which it leaves.
pub(super) const fn ingress(port: u32, came: u8, leaves: u8) -> u32 {
    port | (came as u32) << PORT | (leaves as u32) << (PORT + LANE)
}

/// Returns the port by which a packet came in, from its encoded ingress.
pub(super) const fn port(ingress: u32) -> u32 {
    ingress & ((1 << PORT) - 1)
}

/// Returns the lane by which a packet came in, from its encoded ingress.
pub(super) const fn came(ingress: u32) -> u8 {
    (ingress >> PORT) as u8 & ((1 << LANE) - 1)
}

/// Returns the lane by which a packet leaves, from its encoded ingress; hosts have one lane.
pub(super) const fn leaves(ingress: u32) -> u8 {
    if ingress == HOST { 0 } else { (ingress >> (PORT + LANE)) as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_holds_port_and_lanes() {
        for (from, in_lane, out_lane) in [(0, 0, 0), (7, 3, 2), ((1 << 24) - 1, MOST - 1, MOST - 1)]
        {
            let all = ingress(from, in_lane, out_lane);
            assert_eq!((port(all), came(all), leaves(all)), (from, in_lane, out_lane));
            assert_ne!(all, HOST);
        }
        assert_eq!((ingress(9, 0, 0), leaves(HOST)), (9, 0));
    }
}
