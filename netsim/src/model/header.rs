//! The part of a packet that a switch reads.

/// Class of a packet, which determines its queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Class {
    /// Data packets use the ordinary queue; ports may mark and trim them.
    #[default]
    Data,
    /// Acknowledgements, control packets and trimmed packets use the strict-priority queue.
    Control,
    /// Rate packets use a queue of their own, which is served before all others and loses nothing.
    Rate,
}

/// The part of a packet that a switch reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketHeader {
    /// Number of the destination host. In the network it is the host's address in the plane of the
    /// packet: see [`super::Planes`].
    pub dst: u32,
    /// Hash of the addresses of source and destination, which all packets of the flow share.
    /// Switches hash it together with the entropy (ECMP).
    pub flow: u32,
    /// Entropy of the packet, which corresponds to a UDP source port.
    pub entropy: u32,
    /// Length of the packet on the wire in bytes, headers included. Trimming reduces it.
    pub bytes: u32,
    /// Class of the packet.
    pub class: Class,
    /// True if the packet is marked Congestion Experienced.
    pub ce: bool,
    /// True if a port has cut off the payload.
    pub trimmed: bool,
    /// True if the port that cut off the payload is the one to the destination host.
    pub last_hop: bool,
}
