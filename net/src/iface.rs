//! Network interfaces: which there are, and which of them an expression selects.

use std::net::IpAddr;

/// One address of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iface {
    /// Interface name, `eth0`.
    pub name: String,
    /// Kernel's interface index; the scope of a link-local IPv6 address.
    pub index: u32,
    /// The address.
    pub addr: IpAddr,
    /// Length of its network prefix, bits.
    pub prefix: u8,
    /// Administratively up and running.
    pub up: bool,
    /// The loopback interface.
    pub loopback: bool,
    /// Largest IP packet, bytes; 0 when unknown.
    pub mtu: u32,
    /// Link speed, megabits a second, when the driver says.
    pub speed_mbps: Option<u32>,
}

/// A verdict of [`select`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The interface and address.
    pub iface: Iface,
    /// Selected?
    pub kept: bool,
    /// Why (not), for the log: "eth0 10.0.0.1: kept (matches 10.0.0.0/8)" is `iface` plus this.
    pub reason: String,
}
