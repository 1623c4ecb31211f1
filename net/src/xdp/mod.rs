//! AF_XDP as a [`Port`]: the port writes whole Ethernet frames, which the network card, or the
//! kernel on the way to it, sends unchanged. They bypass the kernel's UDP and IP.
//!
//! The port lies over a [`UdpPort`], which holds the endpoint's address and the source ports of the
//! paths and reads ICMP errors. The UDP port also carries what AF_XDP cannot: packets to this host,
//! packets that leave by other interfaces, packets to be fragmented, packets to a neighbour that
//! the kernel has not resolved yet, and packets that arrive by a queue without a socket. So the
//! sockets work whatever fails here. Every packet in a frame has its own entropy, DSCP and ECN,
//! whereas a GSO train has one of each.
//!
//! The kernel answers ARP and neighbour discovery, and this port asks the kernel for the results
//! (`neighbour`). A queue of an interface accepts one AF_XDP socket, and an interface one program.
//! A second endpoint of a host that asks for AF_XDP gets an error and uses sockets.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use ::xdp::Packet;
use ::xdp::nic::NicIndex;

use crate::base::{Datagram, Span, Time, TrafficClass, Train};
use crate::rtnetlink::RouteSocket;
use crate::udp::{UdpPort, tos};
use crate::{Burst, Counters, NetError, Port, PortConfig, RecvReport, RxMeta, SendReport};

mod frame;
mod neighbour;
mod program;
mod queue;
#[cfg(test)]
mod tests;

use frame::{FrameAddresses, FrameContents, Mac};
use neighbour::Neighbours;
use program::XdpProgram;
use queue::{FlushOutcome, XdpQueue};

/// Largest number of queues of an interface that get a socket. Each socket locks 6 MiB of memory.
const QUEUES: u32 = 16;
/// Shortest time between two receives on the UDP sockets below while no frames arrive. Each receive is a system call.
const LOOK_BELOW: Span = Span::micros(5);
/// Shortest time between two receives on the UDP sockets below while frames arrive.
const BESIDE_FRAMES: Span = Span::micros(100);
/// Time after a packet from the UDP sockets below during which the port receives from them in every call.
const BELOW_LATELY: Span = Span::micros(200);
/// Time between two reads of the kernel's count of dropped frames.
const COUNT_OVERFLOW: Span = Span::millis(1);
/// Time for which the port uses UDP sockets after the interface refused frames.
const DOWN: Span = Span::secs(1);
/// Time after which the port retries when the kernel had no room for frames.
const RETRY: Span = Span::micros(50);

/// The reason why an endpoint gets no AF_XDP socket and uses UDP sockets instead.
#[derive(Debug)]
#[non_exhaustive]
pub enum XdpError {
    /// No Ethernet interface has the address of the port.
    NoInterface(IpAddr),
    /// Packets of the interface's MTU do not fit into a frame of AF_XDP memory.
    Mtu {
        /// MTU of the interface in bytes.
        mtu: u32,
        /// Largest MTU, in bytes, whose packets fit into a frame.
        most: u32,
    },
    /// The system refused a step of opening the AF_XDP socket.
    System {
        /// The step that the system refused.
        step: &'static str,
        /// Hint at a remedy, if the error number suggests one.
        hint: &'static str,
        /// Error with which the system refused the step.
        error: io::Error,
    },
}

impl fmt::Display for XdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInterface(ip) => write!(f, "no Ethernet interface has address {ip}"),
            Self::Mtu { mtu, most } => {
                write!(
                    f,
                    "MTU {mtu} is too large: a frame holds packets of at most {most} bytes; lower the MTU"
                )
            }
            Self::System { step, hint, error } => write!(f, "{step}: {error}{hint}"),
        }
    }
}

impl std::error::Error for XdpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl XdpError {
    fn system(step: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| {
            let hint = match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => {
                    " (it needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF)"
                }
                Some(libc::EBUSY) => {
                    " (another endpoint of this host, or another program, uses it)"
                }
                Some(libc::ERANGE) => " (its driver supports XDP programs only with a smaller MTU)",
                Some(libc::ENOBUFS | libc::ENOMEM) => {
                    " (raise the limit of locked memory, ulimit -l)"
                }
                _ => "",
            };
            Self::System { step, hint, error }
        }
    }
}

/// The result of opening AF_XDP sockets on the interface, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpReport {
    /// Number of queues of the interface that have a socket.
    pub queues: u32,
    /// The driver of the interface sends and receives frames without copying them (zero copy).
    pub zero_copy: bool,
    /// Largest number of bytes that can wait in the queues for the port to read them.
    pub receive_buffer: u64,
}

impl fmt::Display for XdpReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let copies = if self.zero_copy { "zero-copy" } else { "copied" };
        write!(f, "xdp: {} queues, frames {copies}", self.queues)
    }
}

/// The AF_XDP sockets of one endpoint, over its UDP sockets.
pub struct XdpPort {
    // The field comes first, so that the program is detached before its sockets are closed.
    _program: XdpProgram,
    queues: Vec<XdpQueue>,
    /// Index of the queue that the port reads first, in turn.
    turn: usize,
    udp: UdpPort,
    neighbours: Neighbours,
    local: SocketAddr,
    mac: Mac,
    mtu: usize,
    index: u32,
    virtual_cable: bool,
    tos_data: u8,
    tos_control: u8,
    counters: Counters,
    /// The port uses UDP sockets for everything until this time, because the interface was down or gone.
    down_until: Time,
    /// Time at which the port must ask the kernel again, if the kernel had no room for frames.
    retry_at: Option<Time>,
    looked_below: Time,
    came_below: Time,
    count_at: Time,
    /// Number of packets dropped for lack of room, in the queues and by the sockets below.
    overflow: u64,
    overflow_below: u32,
}

impl XdpPort {
    /// Opens AF_XDP sockets on the queues of the interface that has the port's address.
    ///
    /// # Errors
    /// The unchanged UDP port and the reason.
    pub fn open(
        udp: UdpPort,
        config: &PortConfig,
    ) -> Result<(Self, XdpReport), Box<(UdpPort, XdpError)>> {
        match OpenedInterface::open(udp.local_addr(), config) {
            Err(error) => Err(Box::new((udp, error))),
            Ok(OpenedInterface { program, queues, tables, link, index }) => {
                let local = udp.local_addr();
                let buffer: usize =
                    queues.iter().map(|q| q.frame() * queue::RX_FRAMES as usize).sum();
                let report = XdpReport {
                    queues: queues.len() as u32,
                    zero_copy: queues.iter().all(XdpQueue::is_zero_copy),
                    receive_buffer: buffer as u64,
                };
                let port = Self {
                    _program: program,
                    queues,
                    turn: 0,
                    udp,
                    neighbours: Neighbours::new(tables, index),
                    local,
                    mac: link.mac,
                    mtu: link.mtu as usize,
                    index,
                    virtual_cable: link.virtual_cable,
                    tos_data: tos(config.dscp_data, config.ecn) as u8,
                    tos_control: tos(config.dscp_control, false) as u8,
                    counters: Counters::default(),
                    down_until: Time::ZERO,
                    retry_at: None,
                    looked_below: Time::ZERO,
                    came_below: Time::ZERO,
                    count_at: Time::ZERO,
                    overflow: 0,
                    overflow_below: 0,
                };
                Ok((port, report))
            }
        }
    }

    /// Returns the hardware address of the next hop, if the packet is to be sent as a frame.
    #[inline]
    fn next_hop(&mut self, now: Time, packet: &Datagram) -> Option<Mac> {
        // Packets longer than the interface's MTU need fragmentation, which only the kernel does.
        let framed = now >= self.down_until && !packet.fragment && self.length(packet) <= self.mtu;
        if framed { self.neighbours.hop_to(now, packet.dst) } else { None }
    }

    /// Returns the length in bytes of a packet with its IP header.
    const fn length(&self, packet: &Datagram) -> usize {
        packet.len as usize + frame::headers(self.local.is_ipv6()) - frame::ETHERNET
    }

    /// Writes packets for one destination into frames. Counts them in `report` and returns whether
    /// there was room for all.
    fn write_frames(
        &mut self,
        now: Time,
        burst: Burst<'_>,
        to: Mac,
        report: &mut SendReport,
    ) -> bool {
        let headers = frame::headers(self.local.is_ipv6());
        let (mut ports, mut all) = (None, true);
        for packet in burst.packets() {
            let port = match ports {
                Some((path, port)) if path == packet.path => port,
                _ => self.udp.open_source_port(packet.path),
            };
            ports = Some((packet.path, port));
            let mut source = self.local;
            source.set_port(port);
            let ends = FrameAddresses { from: self.mac, to, source, destination: packet.dst };
            let tos = match packet.class {
                TrafficClass::Control => self.tos_control,
                _ => self.tos_data,
            };
            // A single sender needs only one queue. Several queues exist because the card spreads
            // received packets over processors.
            let queue = &mut self.queues[0];
            let written = queue.write(headers + packet.len as usize, |frame| {
                burst.copy_into(packet, &mut frame[headers..]);
                frame::write_headers(frame, &ends, tos);
            });
            if written.is_none() {
                self.counters.tx_blocked += 1;
                all = false;
                break;
            }
            report.sent += 1;
            report.trains += 1;
            report.bytes += u64::from(packet.len);
            self.counters.tx_packets += 1;
            self.counters.tx_xdp_packets += 1;
            self.counters.tx_trains += 1;
            self.counters.tx_bytes += u64::from(packet.len);
            // The batch is full; the kernel starts to send while the next frames are written.
            if queue.is_batch() {
                self.flush(now);
            }
        }
        self.flush(now);
        all
    }

    fn flush(&mut self, now: Time) {
        if self.retry_at.is_none() && !self.queues[0].has_written() {
            return;
        }
        self.counters.tx_calls += 1;
        match self.queues[0].flush() {
            Ok(FlushOutcome::All) => self.retry_at = None,
            Ok(FlushOutcome::Full) => self.retry_at = Some(now + RETRY),
            Err(error) => self.fall_back_to_sockets(now, &error),
        }
    }

    /// Switches to the UDP sockets for a while, because the interface refuses frames. Frames that were written are lost
    /// or delayed, as on a wire.
    #[cold]
    fn fall_back_to_sockets(&mut self, now: Time, error: &io::Error) {
        log::warn!(
            "AF_XDP of {} accepts no frames: {error}; packets take UDP sockets for {DOWN}",
            self.local
        );
        (self.down_until, self.retry_at) = (now + DOWN, None);
    }

    /// Hands out the frames that wait in the queues. Returns true if there were none.
    fn receive_frames(
        &mut self,
        budget: usize,
        report: &mut RecvReport,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) -> bool {
        let reader = FrameReader {
            scope: self.index,
            virtual_cable: self.virtual_cable,
            overflow: (self.overflow as u32).wrapping_add(self.overflow_below),
        };
        // The queues take turns to be first, since a busy queue could otherwise use up every
        // budget.
        let queues = self.queues.len();
        self.turn = (self.turn + 1) % queues;
        let mut drained = true;
        for n in 0..queues {
            if report.packets >= budget {
                return false;
            }
            let queue = &mut self.queues[(self.turn + n) % queues];
            let (frame, counters) = (queue.frame(), &mut self.counters);
            let count = queue
                .receive(|frames| reader.deliver_frames(frames, frame, counters, report, sink));
            drained &= count == 0;
            self.counters.rx_calls += u64::from(count > 0);
        }
        drained
    }

    /// Hands out the packets of the sockets below. Returns true if there are no more.
    fn receive_below(
        &mut self,
        now: Time,
        budget: usize,
        report: &mut RecvReport,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) -> bool {
        self.looked_below = now;
        let (above, newest) = (self.overflow as u32, &mut self.overflow_below);
        let below = self.udp.recv(now, budget, &mut |meta, train| {
            *newest = meta.overflow;
            sink(&RxMeta { overflow: meta.overflow.wrapping_add(above), ..*meta }, train);
        });
        if below.packets > 0 {
            self.came_below = now;
        }
        report.packets += below.packets;
        report.trains += below.trains;
        report.bytes += below.bytes;
        below.empty
    }

    /// Reads the kernel's count of dropped frames. It is reported with the packets that arrive.
    #[cold]
    fn count_overflow(&mut self, now: Time) {
        self.count_at = now + COUNT_OVERFLOW;
        self.overflow = self.queues.iter().map(XdpQueue::overflow).sum();
        self.counters.rx_overflow = self.overflow;
    }
}

impl Port for XdpPort {
    fn send(&mut self, now: Time, burst: Burst<'_>) -> SendReport {
        let mut report = SendReport::default();
        let packets = burst.packets();
        while let Some(first) = packets.get(report.sent) {
            let begin = report.sent;
            let same = |packet: &&Datagram| packet.dst == first.dst;
            if let Some(mac) = self.next_hop(now, first) {
                // All packets of a group have the destination of the first, so one lookup of the
                // next hop serves them.
                let fits = |packet: &&Datagram| {
                    same(packet) && !packet.fragment && self.length(packet) <= self.mtu
                };
                let run = packets[begin..].iter().take_while(fits).count();
                if !self.write_frames(now, burst.part(begin..begin + run), mac, &mut report) {
                    break;
                }
            } else {
                // Packets for one destination stay on one way in a call, so that they are not
                // reordered.
                let run = packets[begin..].iter().take_while(same).count();
                let below = self.udp.send(now, burst.part(begin..begin + run));
                report += below;
                if below.sent < run {
                    break;
                }
            }
        }
        report
    }

    fn recv(
        &mut self,
        now: Time,
        budget: usize,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) -> RecvReport {
        // A caller that only receives must also push out frames that the kernel had no room for.
        if self.retry_at.is_some_and(|at| at <= now) {
            self.flush(now);
        }
        let mut report = RecvReport::default();
        let drained = self.receive_frames(budget, &mut report, sink);
        // The count is reported in `RxMeta`, so reading it makes sense only when packets arrive.
        if report.packets > 0 && now >= self.count_at {
            self.count_overflow(now);
        }
        // A receive on the sockets is a system call. While frames arrive it happens rarely. Shortly
        // after a packet came by a socket it always happens, because more are likely to follow.
        let every = match drained {
            false => BESIDE_FRAMES,
            true if now.since(self.came_below) < BELOW_LATELY => Span::ZERO,
            true => LOOK_BELOW,
        };
        if now.since(self.looked_below) >= every {
            report.empty = self.receive_below(now, budget, &mut report, sink) && drained;
        }
        report
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn source_port(&self, path: u16) -> u16 {
        self.udp.source_port(path)
    }

    fn open_source_port(&mut self, path: u16) -> u16 {
        self.udp.open_source_port(path)
    }

    fn fds(&self, into: &mut Vec<RawFd>) {
        self.udp.fds(into);
        into.extend(self.queues.iter().map(XdpQueue::fd));
    }

    fn take_errors(&mut self, into: &mut Vec<NetError>) {
        self.udp.take_errors(into);
    }

    fn path_mtu(&mut self, dst: SocketAddr) -> io::Result<u32> {
        self.udp.path_mtu(dst)
    }

    fn next_deadline(&self) -> Option<Time> {
        self.retry_at
    }

    fn counters(&self) -> Counters {
        let mut counters = self.udp.counters();
        counters.merge(&self.counters);
        counters
    }
}

/// Reader of the frames that arrived together on a queue.
struct FrameReader {
    scope: u32,
    virtual_cable: bool,
    overflow: u32,
}

impl FrameReader {
    /// Hands the contents of frames to the sink. Neighbouring frames of one kind are handed out as
    /// a train; `stride` is the distance between two frames.
    fn deliver_frames(
        &self,
        frames: &[Packet],
        stride: usize,
        counters: &mut Counters,
        report: &mut RecvReport,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) {
        let mut waiting: Option<FrameGroup<'_>> = None;
        for frame in frames {
            let bytes: &[u8] = frame;
            let Some(contents) = frame::parse(bytes, self.scope, self.virtual_cable) else {
                counters.rx_xdp_damaged += 1;
                continue;
            };
            let FrameContents { source, tos, payload } = contents;
            let meta =
                RxMeta { src: source, ecn: tos & 3, dscp: tos >> 2, overflow: self.overflow };
            let next =
                FrameGroup { meta, first: &bytes[payload.clone()], last: payload.len(), count: 1 };
            waiting = Some(match waiting.take() {
                Some(group) if group.continues_with(&next, stride) => {
                    FrameGroup { count: group.count + 1, last: next.last, ..group }
                }
                Some(group) => {
                    group.deliver_frames(stride, counters, report, sink);
                    next
                }
                None => next,
            });
        }
        if let Some(group) = waiting {
            group.deliver_frames(stride, counters, report, sink);
        }
    }
}

/// A group of packets from neighbouring frames that are handed out together.
struct FrameGroup<'a> {
    meta: RxMeta,
    first: &'a [u8],
    /// Number of packets in the group, and length of the last one in bytes.
    count: usize,
    last: usize,
}

impl<'a> FrameGroup<'a> {
    /// Returns whether `next` continues the group: it lies in the next frame and has the same
    /// source, mark and length. Only the last packet may be shorter.
    fn continues_with(&self, next: &Self, stride: usize) -> bool {
        let behind = self.first.as_ptr().wrapping_add(self.count * stride);
        self.last == self.first.len()
            && (1..=self.last).contains(&next.last)
            && next.first.as_ptr() == behind
            && next.meta == self.meta
    }

    fn deliver_frames(
        self,
        stride: usize,
        counters: &mut Counters,
        report: &mut RecvReport,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) {
        let segment = self.first.len();
        let train = if self.count == 1 {
            Train::single(self.first)
        } else {
            let span = (self.count - 1) * stride + self.last;
            // SAFETY: from the first packet on, `count` frames lie one behind the other in one mapping (`continues_with`), and
            // all of them were received and not given back yet, so that nobody writes to them: the caller borrows them.
            // Behind the last packet's end nothing is named.
            let bytes: &'a [u8] = unsafe { std::slice::from_raw_parts(self.first.as_ptr(), span) };
            Train::spaced(bytes, segment, stride)
        };
        sink(&self.meta, train);
        let bytes = ((self.count - 1) * segment + self.last) as u64;
        counters.rx_packets += self.count as u64;
        counters.rx_xdp_packets += self.count as u64;
        counters.rx_trains += 1;
        counters.rx_bytes += bytes;
        if self.meta.ce() {
            counters.rx_ce += self.count as u64;
        }
        report.packets += self.count;
        report.trains += 1;
        report.bytes += bytes;
    }
}

/// The parts of an interface that was opened for AF_XDP.
struct OpenedInterface {
    program: XdpProgram,
    queues: Vec<XdpQueue>,
    tables: RouteSocket,
    link: neighbour::InterfaceProperties,
    index: u32,
}

impl OpenedInterface {
    fn open(local: SocketAddr, config: &PortConfig) -> Result<Self, XdpError> {
        let interfaces = crate::iface::list().map_err(XdpError::system("list the interfaces"))?;
        // Loopback is excluded, because its packets are never frames of a card.
        let interface = interfaces.iter().find(|i| i.addr == local.ip() && !i.loopback);
        let index = interface.ok_or(XdpError::NoInterface(local.ip()))?.index;
        let mut tables =
            RouteSocket::open().map_err(XdpError::system("open an rtnetlink socket"))?;
        let link =
            tables.link(index).map_err(XdpError::system("read the properties of the interface"))?;
        let most = 4096 - 256 - frame::ETHERNET as u32;
        let Some(frame) = queue::frame_bytes(link.mtu) else {
            return Err(XdpError::Mtu { mtu: link.mtu, most });
        };
        let count = NicIndex(index).queue_counts().map_or(1, |queues| queues.rx_count());
        // Queues beyond the limit have no socket; their packets arrive by the UDP socket.
        let count = count.clamp(1, QUEUES);
        let mut queues = Vec::new();
        for number in 0..count {
            let queue = XdpQueue::open(index, number, frame, config.sndbuf);
            queues.push(queue.map_err(XdpError::system("open an AF_XDP socket on a queue"))?);
        }
        let program = XdpProgram::attach(index, local, count)
            .map_err(XdpError::system("attach an XDP program"))?;
        for (queue, number) in queues.iter().zip(0..) {
            program
                .redirect_queue(number, queue.fd())
                .map_err(XdpError::system("add a socket to the program's map"))?;
        }
        Ok(Self { program, queues, tables, link, index })
    }
}
