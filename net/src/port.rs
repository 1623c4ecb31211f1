//! What a port is: the types that cross between the transport and the packet I/O.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::os::fd::RawFd;

use crate::Burst;
use crate::base::{Time, Train};

/// Most payload pieces in a packet; one with more is dropped and counted as failed.
pub const MAX_PIECES: usize = 254;

/// What came with a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxMeta {
    /// Sender's address; its port is the sender's entropy, not where to send the answer.
    pub src: SocketAddr,
    /// ECN field of the IP header: 0 not-ECT, 1 ECT(1), 2 ECT(0), 3 CE.
    pub ecn: u8,
    /// DSCP of the IP header, 6 bits.
    pub dscp: u8,
    /// Datagrams the socket has dropped for want of buffer since it was opened, modulo 2^32
    /// (`SO_RXQ_OVFL`).
    pub overflow: u32,
}

impl RxMeta {
    /// True when a switch marked the packet Congestion Experienced.
    #[must_use]
    pub const fn ce(&self) -> bool {
        self.ecn == 3
    }
}

/// What [`Port::send`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendReport {
    /// Packets handed over, from the front of the batch. Fewer than given: the socket is full, offer
    /// the rest again later.
    pub sent: usize,
    /// Of `sent`, those the kernel refused for good (see [`Port::take_errors`]): lost, as on a wire.
    pub failed: usize,
    /// System-call messages they took: a train counts once.
    pub trains: usize,
    /// UDP payload bytes handed over.
    pub bytes: u64,
}

impl AddAssign for SendReport {
    /// What a further part of the same burst came to.
    fn add_assign(&mut self, part: Self) {
        self.sent += part.sent;
        self.failed += part.failed;
        self.trains += part.trains;
        self.bytes += part.bytes;
    }
}

/// What [`Port::recv`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecvReport {
    /// Packets given to the sink.
    pub packets: usize,
    /// Messages they came in: a GRO train counts once.
    pub trains: usize,
    /// UDP payload bytes given to the sink.
    pub bytes: u64,
    /// The socket was seen empty: nothing more to read now. False does not promise more.
    pub empty: bool,
}

/// Why a destination cannot be reached, from ICMP (RFC 792, RFC 4443) or the local routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// Nobody listens on the port: the process is gone, or was never there.
    Port,
    /// The host does not answer.
    Host,
    /// No route to the network.
    Network,
    /// A filter refused it.
    Prohibited,
    /// Hop limit or reassembly time exceeded.
    TimeExceeded,
    /// Another ICMP message.
    Other {
        /// ICMP type.
        kind: u8,
        /// ICMP code.
        code: u8,
    },
}

/// Something went wrong with packets to one peer. The packets are lost; the transport recovers or
/// gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetError {
    /// The network (or this host) says the peer cannot be reached.
    Unreachable {
        /// The peer's address, as in [`Datagram::dst`](crate::base::Datagram::dst).
        peer: SocketAddr,
        /// What it says.
        kind: Unreachable,
        /// Router or host that said so, when it was an ICMP message.
        offender: Option<std::net::IpAddr>,
    },
    /// A packet was longer than the path carries, and DF is set.
    TooBig {
        /// The peer's address.
        peer: SocketAddr,
        /// The path's MTU, IP header included; 0 when unknown.
        mtu: u32,
    },
    /// This host refused the packet. With ENOTCONN the port has lost its network for good.
    Local {
        /// The peer's address; the port's own when it noticed the loss without a packet.
        peer: SocketAddr,
        /// The system's error number.
        errno: i32,
    },
}

impl NetError {
    /// Whom it is about.
    #[must_use]
    pub const fn peer(&self) -> SocketAddr {
        match *self {
            Self::Unreachable { peer, .. }
            | Self::TooBig { peer, .. }
            | Self::Local { peer, .. } => peer,
        }
    }
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unreachable { peer, kind, offender } => {
                let what = match kind {
                    Unreachable::Port => "port unreachable",
                    Unreachable::Host => "host unreachable",
                    Unreachable::Network => "network unreachable",
                    Unreachable::Prohibited => "administratively prohibited",
                    Unreachable::TimeExceeded => "time exceeded",
                    Unreachable::Other { kind, code } => {
                        write!(f, "{peer}: ICMP type {kind} code {code}")?;
                        return offender.map_or(Ok(()), |by| write!(f, " (from {by})"));
                    }
                };
                write!(f, "{peer}: {what}")?;
                offender.map_or(Ok(()), |by| write!(f, " (from {by})"))
            }
            Self::TooBig { peer, mtu } => {
                write!(f, "{peer}: packet longer than the path MTU {mtu}")
            }
            Self::Local { peer, errno } => {
                write!(f, "{peer}: {}", io::Error::from_raw_os_error(errno))
            }
        }
    }
}

crate::base::counters! {
    /// Totals since the port was opened.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Counters {
        /// Packets handed to the kernel.
        tx_packets: sum "packets",
        /// UDP payload bytes of those.
        tx_bytes: sum "bytes",
        /// Messages they went in (a GSO train is one).
        tx_trains: sum "trains",
        /// System calls that sent.
        tx_calls: sum "calls",
        /// Times the socket was full.
        tx_blocked: sum "times",
        /// Packets that the kernel dropped before they left: a full queue, a policy, or a device whose link takes only
        /// shorter ones.
        tx_dropped: sum "packets",
        /// Packets the kernel refused for good.
        tx_failed: sum "packets",
        /// Packets of those that left as frames through AF_XDP (FI_SQUALL_PORT_KIND=xdp), past the sockets.
        tx_xdp_packets: sum "packets",
        /// Packets received.
        rx_packets: sum "packets",
        /// Packets of those that came as frames through AF_XDP.
        rx_xdp_packets: sum "packets",
        /// Frames through AF_XDP that were thrown away because their lengths or checksums were wrong.
        rx_xdp_damaged: sum "packets",
        /// UDP payload bytes of those.
        rx_bytes: sum "bytes",
        /// Messages they came in (a GRO train is one).
        rx_trains: sum "trains",
        /// System calls that received something.
        rx_calls: sum "calls",
        /// System calls that found nothing.
        rx_empty: sum "calls",
        /// Datagrams the socket dropped for want of buffer.
        rx_overflow: sum "packets",
        /// Messages the kernel had to cut (longer than any UDP datagram: never, unless it is broken).
        rx_truncated: sum "packets",
        /// Packets that came with CE.
        rx_ce: sum "packets" as "rx_ce_marks",
        /// Packets whose CRC was wrong or missing.
        crc_errors: sum "packets",
        /// ICMP and local errors read.
        errors: sum "errors" as "icmp_errors",
        /// Injected faults: packets dropped on purpose.
        fault_dropped: sum "packets",
        /// Injected faults: packets delivered twice.
        fault_duplicated: sum "packets",
        /// Injected faults: packets held back behind later ones.
        fault_reordered: sum "packets",
        /// Injected faults: packets with flipped bits.
        fault_corrupted: sum "packets",
        /// Injected faults: packets delayed.
        fault_delayed: sum "packets",
        /// Injected faults: packets cut to their header.
        fault_trimmed: sum "packets",
        /// Injected faults: packets sent into a black hole.
        fault_blackholed: sum "packets",
    }
}

/// Datagrams in and out. One thread at a time.
///
/// `now` is the driver's time; a plain socket ignores it, the wrappers need it.
pub trait Port {
    /// Sends packets in order, as many as the socket takes. Never blocks.
    ///
    /// Neighbours with equal `dst`, `path` and `class` and equal length (the last may be shorter)
    /// travel as one train: sort a batch that way.
    fn send(&mut self, now: Time, burst: Burst<'_>) -> SendReport;

    /// Hands at most about `budget` packets to `sink`, those that came together as one train (which is not
    /// cut, so up to 127 more). Never blocks; an empty port costs one system call.
    fn recv(
        &mut self,
        now: Time,
        budget: usize,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) -> RecvReport;

    /// As [`Port::recv`], packet by packet.
    fn recv_each(
        &mut self,
        now: Time,
        budget: usize,
        sink: &mut dyn FnMut(&RxMeta, &[u8]),
    ) -> RecvReport {
        self.recv(now, budget, &mut |meta, train| train.for_each(|packet| sink(meta, packet)))
    }

    /// The endpoint's address: where peers must send. The address part is unspecified when the
    /// port was bound so.
    fn local_addr(&self) -> SocketAddr;

    /// UDP source port of the packets of a path. Until a path has sent, it may be the endpoint's.
    fn source_port(&self, path: u16) -> u16;

    /// Appends the descriptors that become readable when there is something to receive (for
    /// `epoll`). The set is fixed when the port is opened.
    fn fds(&self, into: &mut Vec<RawFd>);

    /// Appends the ICMP and local errors seen since the last call. At most 64 are kept between
    /// calls, the oldest.
    fn take_errors(&mut self, into: &mut Vec<NetError>);

    /// MTU of the path to `dst` as the kernel knows it now, IP header included. Not for the data
    /// path: it opens a socket.
    ///
    /// # Errors
    /// No route, or `dst` of the other address family.
    fn path_mtu(&mut self, dst: SocketAddr) -> io::Result<u32>;

    /// When [`Port::recv`] will have something without the network's doing (a delayed packet).
    fn next_deadline(&self) -> Option<Time>;

    /// Totals so far.
    fn counters(&self) -> Counters;
}

impl<P: Port + ?Sized> Port for Box<P> {
    fn send(&mut self, now: Time, burst: Burst<'_>) -> SendReport {
        (**self).send(now, burst)
    }
    fn recv(
        &mut self,
        now: Time,
        budget: usize,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) -> RecvReport {
        (**self).recv(now, budget, sink)
    }
    fn local_addr(&self) -> SocketAddr {
        (**self).local_addr()
    }
    fn source_port(&self, path: u16) -> u16 {
        (**self).source_port(path)
    }
    fn fds(&self, into: &mut Vec<RawFd>) {
        (**self).fds(into);
    }
    fn take_errors(&mut self, into: &mut Vec<NetError>) {
        (**self).take_errors(into);
    }
    fn path_mtu(&mut self, dst: SocketAddr) -> io::Result<u32> {
        (**self).path_mtu(dst)
    }
    fn next_deadline(&self) -> Option<Time> {
        (**self).next_deadline()
    }
    fn counters(&self) -> Counters {
        (**self).counters()
    }
}
