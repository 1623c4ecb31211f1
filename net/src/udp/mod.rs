//! The kernel's UDP as a [`Port`].
//!
//! The *endpoint* socket receives and sends the packets of path 0. Each further *path* socket only
//! sends, from its own source port. Networks that hash the ports (ECMP) so spread the paths; UET
//! carries the entropy in the UDP source port. Path sockets are opened when they are first used.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use socket2::Socket;

use crate::base::{Datagram, Span, Time, Train, entropy_count};
use crate::{
    Burst, Counters, NetError, OpenReport, Port, PortConfig, RecvReport, RxMeta, SendReport,
};

mod addr;
mod arrival;
mod cmsg;
mod errq;
mod offer;
mod path;
mod rx;
mod sock;
#[cfg(test)]
mod tests;
mod tx;

pub use arrival::ArrivalSocket;
use errq::ErrorQueue;
pub use offer::offer_train;
use path::PathSocket;
use rx::UdpReceiver;
pub(crate) use sock::{bound_address, open_plain, set_option, tos};
use tx::{SendOutcome, TxLimits, UdpSender};

/// Shortest time between two checks of the path sockets for ICMP errors. A check costs one system
/// call for each socket, and errors only speed up what a timeout would find as well.
const ERROR_CHECK: Span = Span::millis(1);

/// The UDP sockets of one endpoint: the endpoint socket and those of its further paths.
pub struct UdpPort {
    config: PortConfig,
    local: SocketAddr,
    endpoint: Socket,
    /// The sockets of the paths from 1 on, of all path sets.
    paths: Vec<PathState>,
    tx: UdpSender,
    rx: UdpReceiver,
    counters: Counters,
    errors: ErrorQueue,
    /// A path socket has sent since the last check for errors.
    unchecked: bool,
    next_check: Time,
    /// Source port to try next, as an offset into the configured range.
    next_port: u32,
}

/// The state of a path's own socket.
enum PathState {
    /// The path has not been used, so its socket is not open.
    Closed,
    /// The path sends from this socket of its own.
    Open(PathSocket),
    /// The socket could not be opened, and the reason was logged. The path sends from the
    /// endpoint's socket; a path of a further set sends from its counterpart in the first set.
    Shared,
}

impl UdpPort {
    /// Opens the endpoint socket and probes the kernel's features. The caller logs the report.
    ///
    /// # Errors
    /// `InvalidInput` for an impossible configuration, with the reason; otherwise the error of the
    /// system: `AddrInUse`, `AddrNotAvailable`, `PermissionDenied`.
    pub fn open(config: &PortConfig) -> io::Result<(Self, OpenReport)> {
        check(config)?;
        let (endpoint, report) = sock::open_endpoint(config)?;
        let v6 = config.bind.is_ipv6();
        let limits = TxLimits {
            segments: if report.gso.is_on() { config.train } else { 1 },
            train_bytes: max_payload(v6),
            v6,
            tos_data: sock::tos(config.dscp_data, config.ecn),
            // Control packets are not ECN-capable, because the transport would ignore a mark on an
            // ACK.
            tos_control: sock::tos(config.dscp_control, false),
        };
        let port = Self {
            config: config.clone(),
            local: report.local,
            endpoint,
            paths: (1..entropy_count(config.paths)).map(|_| PathState::Closed).collect(),
            tx: UdpSender::new(limits),
            rx: UdpReceiver::new(config.batch),
            counters: Counters::default(),
            errors: ErrorQueue::default(),
            unchecked: false,
            next_check: Time::ZERO,
            next_port: 0,
        };
        Ok((port, report))
    }

    /// Returns the longest UDP payload that fits into a path MTU (IP header included), limited to
    /// what UDP can carry.
    #[must_use]
    pub fn payload_limit(path_mtu: u32, v6: bool) -> usize {
        let headers = if v6 { 48 } else { 28 };
        (path_mtu as usize).saturating_sub(headers).min(max_payload(v6))
    }

    /// Returns whether the port has stopped sending trains because the kernel or the device refused
    /// one.
    #[must_use]
    pub const fn gso_refused(&self) -> bool {
        self.tx.gso_refused()
    }

    /// Opens the socket of a path if necessary. Returns the index of the socket that the path sends
    /// from, 0 for the endpoint's.
    #[inline]
    fn prepare_socket(&mut self, path: u16) -> usize {
        let index = usize::from(path) % (self.paths.len() + 1);
        if index > 0 && matches!(self.paths[index - 1], PathState::Closed) {
            self.open_path(index);
        }
        let index = self.socket_index(path);
        if index > 0 && matches!(self.paths[index - 1], PathState::Closed) {
            self.open_path(index);
        }
        index
    }

    /// Returns the index of the socket that a path sends from, 0 for the endpoint's.
    #[inline]
    fn socket_index(&self, path: u16) -> usize {
        let index = usize::from(path) % (self.paths.len() + 1);
        let shared = index > 0 && matches!(self.paths[index - 1], PathState::Shared);
        if shared { index % usize::from(self.config.paths) } else { index }
    }

    /// Opens the socket of path `index`, which is 1 or more, or marks the path as shared.
    fn open_path(&mut self, index: usize) {
        let opened = match &self.config.source_ports {
            None => PathSocket::open(&self.config, self.local, 0),
            Some(range) => {
                let (first, ports) = (*range.start(), u32::from(*range.end() - *range.start()) + 1);
                let mut last = io::Error::from_raw_os_error(libc::EADDRINUSE);
                let mut found = None;
                for _ in 0..ports {
                    // The search continues behind the port that was tried last, so ports that are
                    // in use are not tried again for every path.
                    let port = u32::from(first) + self.next_port % ports;
                    self.next_port = self.next_port.wrapping_add(1);
                    match PathSocket::open(&self.config, self.local, port as u16) {
                        Ok(socket) => {
                            found = Some(socket);
                            break;
                        }
                        Err(e) => {
                            let busy = e.raw_os_error() == Some(libc::EADDRINUSE);
                            last = e;
                            if !busy {
                                break;
                            }
                        }
                    }
                }
                found.ok_or(last)
            }
        };
        self.paths[index - 1] = match opened {
            Ok(socket) => PathState::Open(socket),
            Err(e) => {
                let further = index >= usize::from(self.config.paths);
                // A warning is given for the first set only. The further sets are a fallback, and
                // most endpoints never need them.
                let level = if further { log::Level::Debug } else { log::Level::Warn };
                log::log!(
                    level,
                    "path {index} of {} has no source port of its own: {e}; it shares another path's",
                    self.local
                );
                PathState::Shared
            }
        };
    }

    /// Opens the socket of a path with a certain source port, or closes the former one and opens it anew.
    ///
    /// # Errors
    /// The error of the system, `AddrInUse` if another socket has the port.
    pub(crate) fn open_path_at(&mut self, path: u16, port: u16) -> io::Result<()> {
        let index = usize::from(path) % (self.paths.len() + 1);
        let Some(index) = index.checked_sub(1) else {
            return Err(io::Error::from_raw_os_error(libc::EADDRINUSE));
        };
        self.paths[index] = PathState::Open(PathSocket::open(&self.config, self.local, port)?);
        Ok(())
    }

    /// Reads the ICMP errors of the path sockets. No receive call reports them, because path
    /// sockets never receive.
    fn check_paths(&mut self) {
        for path in &self.paths {
            if let PathState::Open(path) = path {
                let socket = path.socket();
                let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: 0, revents: 0 };
                // SAFETY: poll(2) reads and writes the one pollfd that it is given, a local variable.
                let rc = unsafe { libc::poll(&raw mut poll, 1, 0) };
                if rc > 0 {
                    self.errors.drain(socket.as_fd());
                    // The queue is empty now, so the pending error of the socket is cleared, too.
                    let _ = socket.take_error();
                }
            }
        }
        self.unchecked = false;
    }
}

impl Port for UdpPort {
    fn send(&mut self, _now: Time, burst: Burst<'_>) -> SendReport {
        let Counters { tx_failed, tx_trains, tx_bytes, .. } = self.counters;
        let mut report = SendReport::default();
        let packets = burst.packets();
        while report.sent < packets.len() {
            let rest = burst.part(report.sent..packets.len());
            let &Datagram { path, fragment, dst, .. } = &packets[report.sent];
            // One call of the sender handles the packets of one path, all with or all without
            // fragmentation.
            let (mut run, mut alone) = (0, true);
            for (packet, count) in rest.groups() {
                if packet.path != path || packet.fragment != fragment {
                    break;
                }
                alone &= packet.dst == dst;
                run += count;
            }
            let (socket, connected) =
                match self.prepare_socket(path).checked_sub(1).map(|i| &mut self.paths[i]) {
                    Some(PathState::Open(path)) => {
                        self.unchecked = true;
                        let connected = path.select_peer(alone.then_some(dst));
                        (path.socket(), connected)
                    }
                    _ => (&self.endpoint, false),
                };
            if fragment {
                self.tx.allow_fragments(socket, true);
            }
            let outcome = self.tx.send(
                (socket.as_fd(), connected),
                rest.part(0..run),
                &mut self.counters,
                &mut self.errors,
                &mut report.sent,
            );
            if fragment {
                self.tx.allow_fragments(socket, false);
            }
            // The packets of other paths wait as well, because a report counts packets from the
            // front of the burst.
            if let SendOutcome::Full = outcome {
                break;
            }
        }
        report.failed = (self.counters.tx_failed - tx_failed) as usize;
        report.trains = (self.counters.tx_trains - tx_trains) as usize;
        report.bytes = self.counters.tx_bytes - tx_bytes;
        report
    }

    fn recv(
        &mut self,
        now: Time,
        budget: usize,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) -> RecvReport {
        let report =
            self.rx.recv(self.endpoint.as_fd(), budget, &mut self.counters, &mut self.errors, sink);
        // Errors are looked for only when there is nothing else to do.
        if report.empty && self.unchecked && now >= self.next_check {
            self.next_check = now + ERROR_CHECK;
            self.check_paths();
        }
        report
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn source_port(&self, path: u16) -> u16 {
        match self.socket_index(path).checked_sub(1).map(|i| &self.paths[i]) {
            Some(PathState::Open(path)) => path.port(),
            _ => self.local.port(),
        }
    }

    fn open_source_port(&mut self, path: u16) -> u16 {
        // AF_XDP sends from this port by other means, and this port reads the ICMP errors that come
        // back.
        self.unchecked |= self.prepare_socket(path) > 0;
        self.source_port(path)
    }

    fn fds(&self, into: &mut Vec<RawFd>) {
        into.push(self.endpoint.as_raw_fd());
    }

    fn take_errors(&mut self, into: &mut Vec<NetError>) {
        self.errors.take(into);
    }

    fn path_mtu(&mut self, dst: SocketAddr) -> io::Result<u32> {
        // A connected socket is the only one whose IP_MTU the kernel reports. The endpoint's own
        // socket must stay unconnected.
        let socket = sock::open_plain(&self.local)?;
        sock::send_from_interface(&socket, &self.config);
        let mut bind = self.local;
        bind.set_port(0);
        socket.bind(&bind.into())?;
        socket.connect(&dst.into())?;
        let mtu = if dst.is_ipv6() {
            sock::get_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU)?
        } else {
            sock::get_option(&socket, libc::IPPROTO_IP, libc::IP_MTU)?
        };
        u32::try_from(mtu).map_err(|_| io::Error::other("the kernel reports a negative path MTU"))
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn counters(&self) -> Counters {
        Counters { errors: self.counters.errors + self.errors.seen, ..self.counters }
    }
}

/// Returns the longest UDP payload. The IPv4 total length and the IPv6 payload length have 16 bits.
/// The IPv6 value also leaves out the 40-byte header, so that a packet fits the loopback MTU of
/// 65536.
const fn max_payload(v6: bool) -> usize {
    if v6 { 65_535 - 40 - 8 } else { 65_535 - 20 - 8 }
}

fn check(config: &PortConfig) -> io::Result<()> {
    let invalid = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    if config.paths == 0 {
        return invalid("paths 0 is out of range 1..=65535".into());
    }
    if !(1..=64).contains(&config.train) {
        return invalid(format!("train length {} is out of range 1..=64", config.train));
    }
    for dscp in [config.dscp_data, config.dscp_control, config.dscp_trimmed] {
        if dscp > 63 {
            return invalid(format!("DSCP {dscp} is out of range 0..=63"));
        }
    }
    if let Some(range) = &config.source_ports {
        let ports = (u32::from(*range.end()) + 1).saturating_sub(u32::from(*range.start()));
        let needed = u32::from(config.paths) - 1;
        if *range.start() == 0 || ports < needed {
            return invalid(format!(
                "{} paths need {needed} source ports besides the endpoint's, but {}-{} has {ports}{}",
                config.paths,
                range.start(),
                range.end(),
                if *range.start() == 0 { " (and 0 is not a port)" } else { "" },
            ));
        }
    }
    Ok(())
}
