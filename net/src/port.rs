//! The packet port: the trait, and the types that pass between the transport and packet I/O.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::os::fd::RawFd;

use squall_seal::KeyRing;

use crate::Burst;
use crate::base::{Time, Train};

/// Largest number of payload pieces in a packet. The port drops a packet with more pieces and
/// counts it as failed. With header and trailer that is 256 pieces, far below the 1024 that the
/// kernel takes in a message (`UIO_MAXIOV`).
pub const MAX_PIECES: usize = 254;

/// Facts about a received datagram besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxMeta {
    /// Address of the sender. The port number is the entropy of the packet; answers go to the
    /// peer's endpoint address instead.
    pub src: SocketAddr,
    /// ECN field of the IP header: 0 not-ECT, 1 ECT(1), 2 ECT(0), 3 CE.
    pub ecn: u8,
    /// DSCP of the received packet's IP header, 6 bits.
    pub dscp: u8,
    /// Number of datagrams that the socket has dropped for lack of buffer since it was opened,
    /// modulo 2^32 (`SO_RXQ_OVFL`).
    pub overflow: u32,
}

impl RxMeta {
    /// Returns whether a switch marked the packet Congestion Experienced.
    #[must_use]
    pub const fn ce(&self) -> bool {
        self.ecn == 3
    }
}

/// The result of [`Port::send`]: numbers of packets, trains and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendReport {
    /// Number of packets handed over, from the front of the burst. If it is smaller than the burst,
    /// the socket is full and the caller offers the rest again later.
    pub sent: usize,
    /// Number of packets among `sent` that the kernel refused for good (see [`Port::take_errors`]).
    /// They are lost, as on a wire.
    pub failed: usize,
    /// Number of messages in system calls. A GSO train counts once.
    pub trains: usize,
    /// UDP payload bytes that were handed to the kernel.
    pub bytes: u64,
}

impl AddAssign for SendReport {
    /// Adds the report of another part of the same burst.
    fn add_assign(&mut self, part: Self) {
        self.sent += part.sent;
        self.failed += part.failed;
        self.trains += part.trains;
        self.bytes += part.bytes;
    }
}

/// The result of [`Port::recv`]: numbers of packets, trains and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecvReport {
    /// Number of packets that were given to the caller's sink.
    pub packets: usize,
    /// Number of messages that carried the packets. A GRO train counts once.
    pub trains: usize,
    /// UDP payload bytes that were given to the caller's sink.
    pub bytes: u64,
    /// The socket had nothing more to read. False does not mean that there is more.
    pub empty: bool,
}

/// Totals of one network card of a port with several, since it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailReport {
    /// Name of the card's interface.
    pub name: String,
    /// Address of the card.
    pub ip: std::net::IpAddr,
    /// Packets sent through the card.
    pub tx_packets: u64,
    /// UDP payload bytes of the packets sent through the card.
    pub tx_bytes: u64,
    /// Packets received through the card.
    pub rx_packets: u64,
    /// UDP payload bytes of the packets received through the card.
    pub rx_bytes: u64,
}

/// The reason why a destination cannot be reached, from ICMP (RFC 792, RFC 4443) or the local
/// routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreachableReason {
    /// The host answers, but no process listens on the UDP port.
    Port,
    /// The host does not answer.
    Host,
    /// The router has no route to the network of the destination.
    Network,
    /// A filter on the way refused the packet.
    Prohibited,
    /// The packet's hop limit, or the time for its reassembly, was exceeded.
    TimeExceeded,
    /// The network sent an ICMP message of another type.
    Other {
        /// Type of the ICMP message.
        kind: u8,
        /// Code of the ICMP message.
        code: u8,
    },
}

/// An error with packets to one peer. The packets are lost; the transport recovers or gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetError {
    /// The network, or this host, reports that the peer cannot be reached.
    Unreachable {
        /// Address of the peer that cannot be reached, as in [`Datagram::dst`](crate::base::Datagram::dst).
        peer: SocketAddr,
        /// The reason that the network reported.
        kind: UnreachableReason,
        /// Router or host that sent the ICMP message, if it was one.
        offender: Option<std::net::IpAddr>,
    },
    /// A packet with Don't Fragment set was longer than the path MTU.
    TooBig {
        /// Address of the peer to which the packet was sent.
        peer: SocketAddr,
        /// MTU of the path, IP header included; 0 when unknown.
        mtu: u32,
    },
    /// This host refused the packet. `ENOTCONN` means that the port has lost its network for good.
    Local {
        /// Address of the peer, or the port's own address if no packet was involved.
        peer: SocketAddr,
        /// Error number of the system call (errno).
        errno: i32,
    },
}

impl NetError {
    /// Returns the address of the peer to which the failed packet was sent.
    #[must_use]
    pub const fn peer(&self) -> SocketAddr {
        match *self {
            Self::Unreachable { peer, .. }
            | Self::TooBig { peer, .. }
            | Self::Local { peer, .. } => peer,
        }
    }
}

impl NetError {
    /// Returns the same error for another address of the peer.
    #[must_use]
    pub(crate) const fn with_peer(self, peer: SocketAddr) -> Self {
        match self {
            Self::Unreachable { kind, offender, .. } => Self::Unreachable { peer, kind, offender },
            Self::TooBig { mtu, .. } => Self::TooBig { peer, mtu },
            Self::Local { errno, .. } => Self::Local { peer, errno },
        }
    }
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unreachable { peer, kind, offender } => {
                let what = match kind {
                    UnreachableReason::Port => "port unreachable",
                    UnreachableReason::Host => "host unreachable",
                    UnreachableReason::Network => "network unreachable",
                    UnreachableReason::Prohibited => "administratively prohibited",
                    UnreachableReason::TimeExceeded => "time exceeded",
                    UnreachableReason::Other { kind, code } => {
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
        /// UDP payload bytes of the sent packets.
        tx_bytes: sum "bytes",
        /// Messages in system calls that sent; a GSO train is one message.
        tx_trains: sum "trains",
        /// System calls that sent packets.
        tx_calls: sum "calls",
        /// Times that the socket was full.
        tx_blocked: sum "times",
        /// Packets that the kernel dropped before they left: a full queue, a policy, or a device
        /// with a smaller MTU.
        tx_dropped: sum "packets",
        /// Packets that the kernel refused for good.
        tx_failed: sum "packets",
        /// Packets sent as frames through AF_XDP.
        tx_xdp_packets: sum "packets",
        /// Packets received.
        rx_packets: sum "packets",
        /// Packets received as frames through AF_XDP.
        rx_xdp_packets: sum "packets",
        /// Frames of AF_XDP dropped because a length or checksum was wrong.
        rx_xdp_damaged: sum "packets",
        /// UDP payload bytes of the received packets.
        rx_bytes: sum "bytes",
        /// Messages of received packets; a GRO train is one message.
        rx_trains: sum "trains",
        /// System calls that received packets.
        rx_calls: sum "calls",
        /// System calls that found no packet.
        rx_empty: sum "calls",
        /// Datagrams that the socket dropped for lack of buffer.
        rx_overflow: sum "packets",
        /// Messages that the kernel truncated; none is expected.
        rx_truncated: sum "packets",
        /// Received packets with a mark (Congestion Experienced).
        rx_ce: sum "packets" as "rx_ce_marks",
        /// Received packets whose CRC was wrong or missing.
        crc_errors: sum "packets",
        /// Packets encrypted and sent.
        tx_sealed: sum "packets",
        /// Packets dropped because no secret is shared with their destination, or the secret's
        /// counter has ended.
        tx_unsealable: sum "packets",
        /// Received packets that were decrypted.
        rx_opened: sum "packets",
        /// Packets dropped because their authentication tag was wrong.
        rx_bad_tag: sum "packets",
        /// Packets dropped because they had arrived before, or very late.
        rx_replayed: sum "packets",
        /// Packets dropped because no secret is shared with their sender.
        rx_unknown_sender: sum "packets",
        /// Packets dropped because they were not encrypted.
        rx_clear: sum "packets",
        /// Encrypted packets dropped because a switch had trimmed them.
        rx_sealed_trimmed: sum "packets",
        /// Packets about network cards that were refused: of another job, or of an address that is not the sender's.
        rx_rails_refused: sum "packets",
        /// Packets of the exchange about network cards that were dropped because too many waited to be sent.
        tx_rails_dropped: sum "packets",
        /// ICMP and local errors that were read.
        errors: sum "errors" as "icmp_errors",
        /// Injected faults: packets dropped.
        fault_dropped: sum "packets",
        /// Injected faults: packets delivered twice.
        fault_duplicated: sum "packets",
        /// Injected faults: packets delivered behind later ones.
        fault_reordered: sum "packets",
        /// Injected faults: packets with flipped bits.
        fault_corrupted: sum "packets",
        /// Injected faults: packets delayed.
        fault_delayed: sum "packets",
        /// Injected faults: packets trimmed to their header.
        fault_trimmed: sum "packets",
        /// Injected faults: packets dropped on a black-hole path.
        fault_blackholed: sum "packets",
    }
}

/// A port that sends and receives datagrams. One thread at a time may use it.
///
/// `now` is the driver's time. Sockets ignore it; delayed packets and captures need it.
pub trait Port {
    /// Sends packets in order, as many as the socket takes. The call never blocks.
    ///
    /// Neighbours with equal `dst`, `path`, `class` and length travel as one train; the last may be
    /// shorter. Sort a batch accordingly.
    fn send(&mut self, now: Time, burst: Burst<'_>) -> SendReport;

    /// Hands about `budget` packets at most to `sink`. Packets that arrived together are handed out
    /// as one train, which is not split, so there may be up to 127 packets more. The call never
    /// blocks. An empty port costs one system call.
    fn recv(
        &mut self,
        now: Time,
        budget: usize,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) -> RecvReport;

    /// Receives as [`Port::recv`] does, but hands out packet by packet.
    fn recv_each(
        &mut self,
        now: Time,
        budget: usize,
        sink: &mut dyn FnMut(&RxMeta, &[u8]),
    ) -> RecvReport {
        self.recv(now, budget, &mut |meta, train| train.for_each(|packet| sink(meta, packet)))
    }

    /// Returns the address of the endpoint, to which peers send. The IP address is unspecified if
    /// the port was bound to the unspecified address.
    fn local_addr(&self) -> SocketAddr;

    /// Returns the UDP source port of the packets of a path. Before the path has sent, the result
    /// may be the port of the endpoint.
    fn source_port(&self, path: u16) -> u16;

    /// Returns the UDP source port of the packets of a path, which stays the same from then on.
    fn open_source_port(&mut self, path: u16) -> u16 {
        self.source_port(path)
    }

    /// Returns the keys with which the port encrypts packets, if it does.
    fn keys(&mut self) -> Option<&mut KeyRing> {
        None
    }

    /// Appends the descriptors that become readable when there is something to receive, for
    /// `epoll`. The set does not change while the port is open.
    fn fds(&self, into: &mut Vec<RawFd>);

    /// Appends the ICMP and local errors since the last call. The port keeps the 64 oldest ones
    /// between two calls.
    fn take_errors(&mut self, into: &mut Vec<NetError>);

    /// Returns the MTU of the path to `dst` that the kernel knows now, IP header included. The call
    /// opens a socket, so the data path must not use it.
    ///
    /// # Errors
    /// There is no route, or `dst` has the other address family.
    fn path_mtu(&mut self, dst: SocketAddr) -> io::Result<u32>;

    /// Returns when [`Port::recv`] will have a packet without activity of the network, such as a
    /// delayed packet.
    fn next_deadline(&self) -> Option<Time>;

    /// Returns the port's counters since it was opened.
    fn counters(&self) -> Counters;

    /// Returns what each network card of the port has carried, if it has several.
    fn rails(&self) -> Vec<RailReport> {
        Vec::new()
    }
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
    fn open_source_port(&mut self, path: u16) -> u16 {
        (**self).open_source_port(path)
    }
    fn keys(&mut self) -> Option<&mut KeyRing> {
        (**self).keys()
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
    fn rails(&self) -> Vec<RailReport> {
        (**self).rails()
    }
}
