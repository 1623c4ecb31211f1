//! The kernel's UDP as a [`Port`].
//!
//! One *endpoint* socket receives, and sends path 0; further *path* sockets only send, each from its
//! own source port, so that networks that hash the ports spread the paths (UET carries the entropy
//! in the UDP source port). Path sockets are opened when first used.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use socket2::Socket;

use crate::base::{Datagram, Span, Time, Train, entropies};
use crate::{
    Burst, Counters, NetError, OpenReport, Port, PortConfig, RecvReport, RxMeta, SendReport,
};

mod addr;
mod cmsg;
mod errq;
mod path;
mod rx;
mod sock;
#[cfg(test)]
mod tests;
mod tx;

use errq::Errors;
use path::PathSocket;
use rx::Rx;
pub(crate) use sock::{bound, plain, set, tos};
use tx::{Outcome, Tx, TxLimits};

/// How often, at most, the path sockets are asked for ICMP errors.
const ERROR_CHECK: Span = Span::millis(1);

/// UDP sockets of one endpoint.
pub struct UdpPort {
    config: PortConfig,
    local: SocketAddr,
    endpoint: Socket,
    /// Paths from 1 on, of all sets.
    paths: Vec<Path>,
    tx: Tx,
    rx: Rx,
    counters: Counters,
    errors: Errors,
    /// A path socket has sent since they were last asked for errors.
    unchecked: bool,
    next_check: Time,
    /// Next source port to try, as an offset into the configured range.
    next_port: u32,
}

/// What a path sends from.
enum Path {
    /// Not used yet.
    Closed,
    /// A socket of its own.
    Open(PathSocket),
    /// Could not be opened (the reason was logged): the path leaves from the endpoint's port, or, of a further set, from
    /// that of its like in the first.
    Shared,
}

impl UdpPort {
    /// Opens the endpoint socket and probes what the kernel can do. The report is to be logged.
    ///
    /// # Errors
    /// `InvalidInput` for an impossible configuration, with the reason; otherwise what the system
    /// says: `AddrInUse`, `AddrNotAvailable`, `PermissionDenied`.
    pub fn open(config: &PortConfig) -> io::Result<(Self, OpenReport)> {
        check(config)?;
        let (endpoint, report) = sock::endpoint(config)?;
        let v6 = config.bind.is_ipv6();
        let limits = TxLimits {
            segments: if report.gso.is_on() { config.train } else { 1 },
            train_bytes: max_payload(v6),
            v6,
            tos_data: sock::tos(config.dscp_data, config.ecn),
            // Control packets are not ECN-capable: a mark on an ACK has no meaning.
            tos_control: sock::tos(config.dscp_control, false),
        };
        let port = Self {
            config: config.clone(),
            local: report.local,
            endpoint,
            paths: (1..entropies(config.paths)).map(|_| Path::Closed).collect(),
            tx: Tx::new(limits),
            rx: Rx::new(config.batch),
            counters: Counters::default(),
            errors: Errors::default(),
            unchecked: false,
            next_check: Time::ZERO,
            next_port: 0,
        };
        Ok((port, report))
    }

    /// Longest UDP payload a packet may have to fit into a path MTU (IP header included), capped by
    /// what UDP itself can carry.
    #[must_use]
    pub fn payload_limit(path_mtu: u32, v6: bool) -> usize {
        let headers = if v6 { 48 } else { 28 };
        (path_mtu as usize).saturating_sub(headers).min(max_payload(v6))
    }

    /// True once trains have been given up because the kernel or device refused one.
    #[must_use]
    pub const fn gso_refused(&self) -> bool {
        self.tx.gso_refused()
    }

    /// The source port of a path, whose socket is opened if it was not: for one who sends from there by other means, and has
    /// the errors that come back read here.
    pub(crate) fn port_of(&mut self, path: u16) -> u16 {
        self.unchecked |= self.ready(path) > 0;
        self.source_port(path)
    }

    /// The index of what a path sends from, which is open: 0 for the endpoint's socket.
    #[inline]
    fn ready(&mut self, path: u16) -> usize {
        let index = usize::from(path) % (self.paths.len() + 1);
        if index > 0 && matches!(self.paths[index - 1], Path::Closed) {
            self.open_path(index);
        }
        let index = self.place(path);
        if index > 0 && matches!(self.paths[index - 1], Path::Closed) {
            self.open_path(index);
        }
        index
    }

    /// The index of what a path sends from, 0 for the endpoint's socket.
    #[inline]
    fn place(&self, path: u16) -> usize {
        let index = usize::from(path) % (self.paths.len() + 1);
        let shared = index > 0 && matches!(self.paths[index - 1], Path::Shared);
        if shared { index % usize::from(self.config.paths) } else { index }
    }

    /// Makes sure that path `index` (from 1 on) has a socket, or shares the endpoint's.
    fn open_path(&mut self, index: usize) {
        let opened = match &self.config.source_ports {
            None => PathSocket::open(&self.config, self.local, 0),
            Some(range) => {
                let (first, ports) = (*range.start(), u32::from(*range.end() - *range.start()) + 1);
                let mut last = io::Error::from_raw_os_error(libc::EADDRINUSE);
                let mut found = None;
                for _ in 0..ports {
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
            Ok(socket) => Path::Open(socket),
            Err(e) => {
                let further = index >= usize::from(self.config.paths);
                // The first set can do without the others, and usually does.
                let level = if further { log::Level::Debug } else { log::Level::Warn };
                log::log!(
                    level,
                    "path {index} of {} gets no source port of its own: {e}",
                    self.local
                );
                Path::Shared
            }
        };
    }

    /// Reads ICMP errors of the path sockets, which no receive call would notice.
    fn check_paths(&mut self) {
        for path in &self.paths {
            if let Path::Open(path) = path {
                let socket = path.socket();
                let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: 0, revents: 0 };
                // SAFETY: poll(2) reads and writes the one pollfd that it is told of, a local variable.
                let rc = unsafe { libc::poll(&raw mut poll, 1, 0) };
                if rc > 0 {
                    self.errors.drain(socket.as_fd());
                    // Clears the pending error that goes with the queue.
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
            let (mut run, mut alone) = (0, true);
            for (packet, count) in rest.groups() {
                if packet.path != path || packet.fragment != fragment {
                    break;
                }
                alone &= packet.dst == dst;
                run += count;
            }
            let (socket, connected) =
                match self.ready(path).checked_sub(1).map(|i| &mut self.paths[i]) {
                    Some(Path::Open(path)) => {
                        self.unchecked = true;
                        let connected = path.aim(alone.then_some(dst));
                        (path.socket(), connected)
                    }
                    _ => (&self.endpoint, false),
                };
            if fragment {
                self.tx.let_fragment(socket, true);
            }
            let outcome = self.tx.send(
                (socket.as_fd(), connected),
                rest.part(0..run),
                &mut self.counters,
                &mut self.errors,
                &mut report.sent,
            );
            if fragment {
                self.tx.let_fragment(socket, false);
            }
            if let Outcome::Full = outcome {
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
        match self.place(path).checked_sub(1).map(|i| &self.paths[i]) {
            Some(Path::Open(path)) => path.port(),
            _ => self.local.port(),
        }
    }

    fn fds(&self, into: &mut Vec<RawFd>) {
        into.push(self.endpoint.as_raw_fd());
    }

    fn take_errors(&mut self, into: &mut Vec<NetError>) {
        self.errors.take(into);
    }

    fn path_mtu(&mut self, dst: SocketAddr) -> io::Result<u32> {
        let socket = sock::plain(&self.local)?;
        let mut bind = self.local;
        bind.set_port(0);
        socket.bind(&bind.into())?;
        socket.connect(&dst.into())?;
        let mtu = if dst.is_ipv6() {
            sock::get(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU)?
        } else {
            sock::get(&socket, libc::IPPROTO_IP, libc::IP_MTU)?
        };
        u32::try_from(mtu).map_err(|_| io::Error::other("the kernel reports a negative MTU"))
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn counters(&self) -> Counters {
        Counters { errors: self.counters.errors + self.errors.seen, ..self.counters }
    }
}

/// Longest UDP payload: the IPv4 total length or IPv6 payload length field has 16 bits; the IPv6
/// value leaves its 40-byte header out too, so that a packet fits the loopback MTU of 65536.
const fn max_payload(v6: bool) -> usize {
    if v6 { 65_535 - 40 - 8 } else { 65_535 - 20 - 8 }
}

fn check(config: &PortConfig) -> io::Result<()> {
    let invalid = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    if config.paths == 0 {
        return invalid("paths must be at least 1".into());
    }
    if !(1..=64).contains(&config.train) {
        return invalid(format!("train length {} is not between 1 and 64", config.train));
    }
    for dscp in [config.dscp_data, config.dscp_control, config.dscp_trimmed] {
        if dscp > 63 {
            return invalid(format!("DSCP {dscp} is not between 0 and 63"));
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
