//! Packet and message I/O for Squall. Linux only.
//!
//! A packet port, [`Port`], sends and receives datagrams in batches, with what a transport needs to know
//! of them (ECN, DSCP, path). Packet delivery contexts use it.
//!
//! - [`UdpPort`] is the kernel's UDP, with GSO trains, GRO and one source port for each path.
//! - [`RailPort`] makes one port of several network cards, each with a [`UdpPort`].
//! - [`XdpPort`] sends and receives whole Ethernet frames (AF_XDP), over a [`UdpPort`].
//! - [`EmulatorPort`] attaches to an emulated network, and [`VirtualPort`] to one whose clock is virtual.
//! - [`CrcPort`], [`FaultPort`], [`PcapPort`] and [`SealPort`] wrap another port ([`PortLayer`]).
//!
//! A message port, [`MessagePort`], exchanges reliable, ordered records between processes of one host.
//! [`ShmPort`] does so through shared memory.
//!
//! A [`WordFile`] is a file of numbers that other processes may read while it is written. [`child`] has what the
//! standard library lacks to start a process.
//!
//! Order of calls: open a port, then call [`Port::send`], [`Port::recv`] and [`Port::take_errors`] in
//! any order, from one thread at a time (a port is `Send`, not `Sync`). To sleep, wait for input on
//! [`Port::fds`], no longer than until [`Port::next_deadline`].

mod burst;
pub mod child;
mod config;
#[cfg(test)]
mod conformance;
mod crc;
pub mod emulator;
pub mod fault;
pub mod iface;
mod layer;
mod message;
#[cfg(test)]
mod mock;
pub mod pcap;
mod port;
pub mod rails;
mod rtnetlink;
mod seal;
pub mod shm;
pub mod udp;
mod word_file;
pub mod xdp;

pub use burst::Burst;
pub use config::{Feature, OpenReport, PortConfig};
pub use crc::{CRC_LEN, CrcForm, CrcPort};
pub use emulator::{
    AttachedPort, EmulatorPort, EmulatorSpec, EmulatorSpecError, HostChoice, HostList,
    HostListError, VirtualPort,
};
pub use fault::{FaultPort, FaultSpec, FaultSpecError};
pub use layer::{LayeredPort, PortLayer};
pub use message::{
    ChannelEvent, EndReason, MAX_RECORD, MessagePort, MessageRoom, OutgoingRecord, RecordSink,
    RecordVerdict, ReferenceOutcome, ShmChannelId,
};
pub use pcap::{Direction, PcapPort, PcapSpec};
pub use port::{
    Counters, MAX_PIECES, NetError, Port, RailReport, RecvReport, RxMeta, SendReport,
    UnreachableReason,
};
pub use rails::{RailConfig, RailPort};
pub use seal::SealPort;
pub use shm::{PayloadSource, ShmConfig, ShmPort};
pub use squall_wire::base;
pub use udp::{ArrivalSocket, UdpPort, offer_train};
pub use word_file::WordFile;
pub use xdp::{XdpError, XdpPort, XdpReport};
