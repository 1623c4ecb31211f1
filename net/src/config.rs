//! The configuration of a port, and the report of what the kernel granted.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

/// The configuration of a packet port. Start from [`PortConfig::default`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Address of the endpoint. Port 0 lets the kernel choose. The caller decides which port to try
    /// first.
    pub bind: SocketAddr,
    /// Kernel's index of the interface from which packets leave, where the address alone does not decide it; for an
    /// endpoint with several network cards.
    pub interface: Option<u32>,
    /// Number of paths in a set, which equals the number of source ports (entropies), at least 1.
    /// There are [further sets](crate::base::PATH_SETS). The port opens the sockets beyond the
    /// first when they are first used.
    pub paths: u16,
    /// Source ports of the paths beyond the first; `None` means the kernel's ephemeral range. The
    /// port refuses a range with fewer ports than `paths - 1`. Further sets use the ports that are
    /// left.
    pub source_ports: Option<RangeInclusive<u16>>,
    /// Receive buffer of the endpoint socket in bytes, as passed to `SO_RCVBUF` (the kernel doubles
    /// the value). 0 keeps the system's default.
    pub rcvbuf: usize,
    /// Send buffer of each socket in bytes, as passed to `SO_SNDBUF`. 0 keeps the system's default.
    pub sndbuf: usize,
    /// The port sends trains of packets in one message (GSO) if the kernel supports that.
    pub gso: bool,
    /// The port receives trains of packets as one message (GRO) if the kernel supports that.
    pub gro: bool,
    /// DSCP (IP header) of data packets that the port sends, 0 to 63.
    pub dscp_data: u8,
    /// DSCP (IP header) of control packets that the port sends, 0 to 63.
    pub dscp_control: u8,
    /// DSCP of trimmed packets, 0 to 63. [`FaultPort`](crate::FaultPort) sets it on packets that it
    /// trims.
    pub dscp_trimmed: u8,
    /// The port sends data packets as ECN-capable, with ECT(0), so that switches can mark them.
    pub ecn: bool,
    /// Largest number of packets in a GSO train, 1 to 64.
    pub train: usize,
    /// Largest number of small messages that one receive system call reads, 1 to 64. Each costs 64 KiB of memory, which
    /// is allocated on first use.
    pub batch: usize,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            bind: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
            interface: None,
            paths: 16,
            source_ports: None,
            rcvbuf: 4 << 20,
            sndbuf: 4 << 20,
            gso: true,
            gro: true,
            dscp_data: 0,
            dscp_control: 46,
            dscp_trimmed: 5,
            ecn: true,
            train: 64,
            batch: 16,
        }
    }
}

/// The state of a kernel feature that a port may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feature {
    /// The kernel supports the feature, and the port uses it.
    On,
    /// The configuration of the port disables the feature.
    Off,
    /// The kernel refused the feature. The text has the reason and the kernel version that supports
    /// it.
    Absent(String),
}

impl Feature {
    /// Returns whether the port uses the kernel feature.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        matches!(self, Self::On)
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::On => f.write_str("on"),
            Self::Off => f.write_str("off"),
            Self::Absent(why) => write!(f, "absent ({why})"),
        }
    }
}

/// The features and buffer sizes of an opened port, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenReport {
    /// Address of the endpoint socket, with the port number that the kernel assigned.
    pub local: SocketAddr,
    /// State of generic segmentation offload: sending trains of packets in one message.
    pub gso: Feature,
    /// State of generic receive offload: receiving trains of packets as one message.
    pub gro: Feature,
    /// State of reading the ECN and DSCP bits of received packets.
    pub tos: Feature,
    /// State of sending with Don't Fragment and path MTU discovery.
    pub df: Feature,
    /// State of reading the ICMP errors that sent packets caused.
    pub errors: Feature,
    /// State of reading how many datagrams the socket dropped for lack of buffer.
    pub overflow: Feature,
    /// Receive buffer in effect, in bytes before the kernel's doubling.
    pub rcvbuf: usize,
    /// Send buffer in effect, in bytes before the kernel's doubling.
    pub sndbuf: usize,
    /// Warnings for the administrator, one sentence each, with a remedy such as a sysctl command.
    pub warnings: Vec<String>,
}

impl fmt::Display for OpenReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "udp {}: gso {}, gro {}, ecn+dscp {}, df {}, icmp {}, overflow {}, rcvbuf {}, sndbuf {}",
            self.local,
            self.gso,
            self.gro,
            self.tos,
            self.df,
            self.errors,
            self.overflow,
            self.rcvbuf,
            self.sndbuf
        )
    }
}
