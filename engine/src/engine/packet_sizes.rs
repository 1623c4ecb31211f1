//! The packet sizes of paths, as they shrink and are tried again.

use core::net::{IpAddr, SocketAddr};

use super::Engine;
use crate::api::Notice;
use crate::base::Time;
use crate::contexts::Contexts;
use crate::peers::Peers;
use crate::reliability::PdcId;
use crate::report::Report;

/// What [`PathSizeUpdate`] borrows of an engine.
macro_rules! paths {
    ($engine:expr) => {
        crate::engine::packet_sizes::PathSizeUpdate {
            peers: &mut $engine.peers,
            contexts: &mut $engine.contexts,
            report: &mut $engine.report,
        }
    };
}
pub(super) use paths;

impl Engine {
    /// The network, or this host, said that UDP payloads to `dst` longer than `bytes` (without CRC trailer) do not
    /// pass. A value that is not smaller than the present one, or that no path has, changes nothing: ICMP
    /// can be forged. Packets that were sent before and must be sent again are cut into fragments; in ten minutes the
    /// configured size is tried again.
    pub fn handle_packet_size(&mut self, now: Time, dst: SocketAddr, bytes: u32) {
        // Nothing is kept of hosts that nobody sends to.
        if self.peers.has_host(dst.ip())
            && let Some(size) = self.peers.paths.tell(now, dst.ip(), bytes)
        {
            paths!(self).shrink(dst.ip(), size, false);
        }
    }

    /// The longest UDP payload, without CRC trailer, that goes to `dst` in one piece.
    #[must_use]
    pub fn packet_size(&self, dst: SocketAddr) -> u32 {
        self.peers.paths.get(dst.ip())
    }
}

/// Times that the first packets to a peer are sent before their length is blamed although it answers nothing at all: a
/// third of a second with the timeouts of [`crate::reliability::Config`]. The question whether it is there may wait
/// behind packets as long as they are.
const PATIENCE: u8 = 8;

/// The parts of an engine that change with the packet size of a path.
pub(super) struct PathSizeUpdate<'a> {
    pub(super) peers: &'a mut Peers,
    pub(super) contexts: &'a mut Contexts,
    pub(super) report: &'a mut Report,
}

impl PathSizeUpdate<'_> {
    /// A packet does not arrive however often it is sent. That is the path's fault only if the peer has answered
    /// something since: one that answers nothing may compute, or be gone. Who never answered on the context has
    /// introduced itself just before, but may not have had a processor since: true when it is to be asked by a short
    /// packet whether it has.
    pub(super) fn stuck(
        &mut self,
        now: Time,
        id: PdcId,
        bytes: u32,
        (sent_at, times, connected): (Time, u8, bool),
    ) -> bool {
        let Some(context) = self.contexts.get(id.into()) else { return false };
        let to = context.dst.ip();
        let silent = self.peers.get(context.peer).last_rx() <= sent_at;
        match (silent, connected) {
            (true, true) => return false,
            (true, false) if times < PATIENCE => return true,
            _ => {}
        }
        if let Some(size) = self.peers.paths.guess(now, to, bytes) {
            self.shrink(to, size, true);
        }
        false
    }

    fn shrink(&mut self, to: IpAddr, size: u32, guessed: bool) {
        self.report.counters.path_shrunk += 1;
        self.resize(to, size, guessed);
    }

    fn resize(&mut self, to: IpAddr, size: u32, guessed: bool) {
        self.contexts.resize(to, size);
        self.report.notice(Notice::PacketSize { host: to, bytes: size, guessed });
    }

    /// Tries the configured size again where it is time to. No timer runs for that: whoever sends has others.
    pub(super) fn widen(&mut self, now: Time) {
        while let Some((to, size)) = self.peers.paths.raise(now) {
            self.resize(to, size, true);
        }
    }
}
