//! How to open a port, and what came of it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

/// How to open a port. Start from [`PortConfig::default`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// The endpoint's address; port 0 lets the kernel choose. Which port to try first is the
    /// caller's business.
    pub bind: SocketAddr,
    /// Number of paths of a set = source ports = entropies, at least 1; there are
    /// [further sets](crate::base::PATH_SETS). Sockets beyond the first are opened when first used.
    pub paths: u16,
    /// Source ports the paths beyond the first may use; `None`: the kernel's ephemeral range. A
    /// range with fewer ports than `paths - 1` is refused; the further sets have what it has besides.
    pub source_ports: Option<RangeInclusive<u16>>,
    /// Receive buffer of the endpoint socket, bytes of packet memory as `SO_RCVBUF` counts before
    /// the kernel doubles it; 0 leaves the system's default.
    pub rcvbuf: usize,
    /// Send buffer of each socket, likewise.
    pub sndbuf: usize,
    /// Use GSO when the kernel has it.
    pub gso: bool,
    /// Use GRO when the kernel has it.
    pub gro: bool,
    /// DSCP of data packets, 0 to 63.
    pub dscp_data: u8,
    /// DSCP of control packets.
    pub dscp_control: u8,
    /// DSCP of trimmed packets: what the [`FaultPort`](crate::FaultPort) wrapper marks a packet with that
    /// it trims.
    pub dscp_trimmed: u8,
    /// Send data packets as ECT(0).
    pub ecn: bool,
    /// Most packets in a GSO train, 1 to 64.
    pub train: usize,
    /// Most small messages per receive system call, 1 to 64; each costs 64 KiB of (lazily touched)
    /// memory.
    pub batch: usize,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            bind: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
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

/// Whether a kernel feature is used, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Probed and in use.
    On,
    /// The configuration says no.
    Off,
    /// The kernel refused; the reason in words, with the kernel version that would have it.
    Absent(String),
}

impl Feature {
    /// In use?
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

/// What was found when a port was opened; to be logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenReport {
    /// The endpoint's address with the port in use.
    pub local: SocketAddr,
    /// Segmentation offload (trains out).
    pub gso: Feature,
    /// Receive offload (trains in).
    pub gro: Feature,
    /// ECN and DSCP of received packets.
    pub tos: Feature,
    /// Don't Fragment with path MTU discovery.
    pub df: Feature,
    /// ICMP errors.
    pub errors: Feature,
    /// Count of datagrams dropped by the socket.
    pub overflow: Feature,
    /// Receive buffer in effect, in `SO_RCVBUF`'s units before doubling.
    pub rcvbuf: usize,
    /// Send buffer in effect, likewise.
    pub sndbuf: usize,
    /// What the administrator should know, one sentence each, with the cure (a sysctl line).
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
