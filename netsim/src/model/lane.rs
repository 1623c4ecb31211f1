//! Virtual lanes: what of the data on a link is paused apart from the rest, as InfiniBand's virtual lanes and the classes of PFC
//! are. Packets wait in one queue, whatever their lane, and leave it in the order they came; but for those whose lane the
//! next switch stopped.
//!
//! Most networks have one lane. Where a switch program needs more, it sets the lane that the packet leaves by
//! ([`super::PacketOptions::lane`]). What waits names the port and lane it came by and the lane it leaves by in one number, so that a
//! packet of a network with one lane is no larger for it.

/// Lanes at most: as many as PFC has classes.
pub const MOST: u8 = 8;

/// Bits of a port's number.
const PORT: u32 = 24;
/// Bits of a lane's.
const LANE: u32 = 4;

/// From the host whose port it is: no port.
pub(super) const HOST: u32 = u32::MAX;

/// By which port and lane a packet came in, and the lane that it leaves by.
pub(super) const fn ingress(port: u32, came: u8, leaves: u8) -> u32 {
    port | (came as u32) << PORT | (leaves as u32) << (PORT + LANE)
}

/// The port it came in by.
pub(super) const fn port(ingress: u32) -> u32 {
    ingress & ((1 << PORT) - 1)
}

/// The lane it came in by.
pub(super) const fn came(ingress: u32) -> u8 {
    (ingress >> PORT) as u8 & ((1 << LANE) - 1)
}

/// The lane it leaves by; hosts have one.
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
