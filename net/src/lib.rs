//! Packet I/O for Squall.
//!
//! Two traits. A packet port, [`Port`]: datagrams in and out in batches, with what a transport needs to know of
//! them (ECN, DSCP, which path); it lies under packet delivery contexts. And a message port, [`MessagePort`]: frames in
//! and out, reliable and in order, between processes of one host; it lies beside them. [`ShmPort`] is one through
//! shared memory. [`UdpPort`] is the kernel's UDP with GSO trains, GRO and one source
//! port a path; [`XdpPort`] lies over one and sends and receives whole frames; [`EmulatorPort`] is a place on a network made of software; [`CrcPort`], [`FaultPort`] and
//! [`PcapPort`] are ports wrapped round a port. A [`WordFile`] is a file of numbers that other processes may read while it
//! is written.
//!
//! Order of calls: open, then any mixture of [`Port::send`], [`Port::recv`] and
//! [`Port::take_errors`] from one thread at a time (a port is `Send`, not `Sync`). To sleep, wait
//! for input on [`Port::fds`] and no longer than [`Port::next_deadline`].
//!
//! Linux only.

mod burst;
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
mod rtnetlink;
pub mod shm;
pub mod udp;
mod word_file;
pub mod xdp;

pub use burst::Burst;
pub use config::{Feature, OpenReport, PortConfig};
pub use crc::{CRC_LEN, CrcPort};
pub use emulator::{
    EmulatorPort, EmulatorSpec, EmulatorSpecError, HostChoice, HostList, HostListError,
};
pub use fault::{FaultPort, FaultSpec, FaultSpecError};
pub use layer::{LayeredPort, PortLayer};
pub use message::{
    ChannelEvent, EndReason, MAX_RECORD, MessagePort, MessageRoom, OutgoingRecord, RecordSink,
    RecordVerdict, ReferenceOutcome, ShmChannelId,
};
pub use pcap::{Direction, PcapPort, PcapSpec};
pub use port::{Counters, MAX_PIECES, NetError, Port, RecvReport, RxMeta, SendReport, Unreachable};
pub use shm::{PayloadSource, ShmConfig, ShmPort};
pub use squall_wire::base;
pub use udp::UdpPort;
pub use word_file::WordFile;
pub use xdp::{XdpError, XdpPort, XdpReport};
