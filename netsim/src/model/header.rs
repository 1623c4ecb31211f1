//! The part of a packet that a switch reads.

/// Which queue a packet joins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Class {
    /// Data: the ordinary queue, may be marked and trimmed.
    #[default]
    Data,
    /// Acknowledgements, control packets and trimmed packets: the strict-priority queue.
    Control,
    /// Rate packets: a queue of their own before all others, which loses nothing.
    Rate,
}

/// The part of a packet that a switch reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketHeader {
    /// Destination host.
    pub dst: u32,
    /// What the flow hashes to without its entropy: addresses and the like.
    pub flow: u32,
    /// The entropy: what would be the UDP source port.
    pub entropy: u32,
    /// Bytes on the wire, headers included; shrinks when trimmed.
    pub bytes: u32,
    /// Its queue.
    pub class: Class,
    /// Marked Congestion Experienced.
    pub ce: bool,
    /// Its payload was cut off.
    pub trimmed: bool,
    /// ... at the port that leads to its destination.
    pub last_hop: bool,
}
