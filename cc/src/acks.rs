//! How a receiver acknowledges for the sake of an algorithm at its peers.

/// What an algorithm wants of its peers' acknowledgements, beyond what every packet delivery context
/// does. Endpoints of a job run the same algorithm, so each does for its peers what it wants itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AckStyle {
    /// Acknowledge as soon as one packet arrived, instead of after some bytes (MP-RDMA). Packets that
    /// arrive together still share an ACK.
    pub each_packet: bool,
    /// Show the segment of the receive bitmap in which the lowest packet lies that arrived since the
    /// last ACK, instead of the newest packets (STrack section 3.3.1).
    pub lowest_segment: bool,
    /// Send back what switches wrote into the packet that the ACK is about ([`crate::IntHop`]), and ask them to write it
    /// into packets that leave (HPCC).
    pub telemetry: bool,
}

/// How many packets the receiver may report out of order before an algorithm takes what they overtook for lost: so
/// many windows, and so many packets at least.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LossThreshold {
    /// Congestion windows.
    pub windows: f32,
    /// Packets.
    pub packets: u16,
}

impl Default for LossThreshold {
    /// uet-htsim's SLEEK: one and a half windows, five packets.
    fn default() -> Self {
        Self { windows: 1.5, packets: 5 }
    }
}
