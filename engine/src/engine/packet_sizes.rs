//! Packet sizes of paths: how they shrink, and when larger sizes are tried again.

use core::net::{IpAddr, SocketAddr};

use super::Engine;
use crate::base::Time;
use crate::completion::Notice;
use crate::contexts::Contexts;
use crate::peers::Peers;
use crate::reliability::PdcId;
use crate::report::Report;

/// Builds a [`PathSizeUpdate`], which changes the packet size of a path, from the fields of an
/// engine.
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
    /// Handles a report of the network or of this host that UDP payloads to `dst` longer than
    /// `bytes` (without CRC trailer) do not pass. ICMP can be forged, so a value that is not
    /// smaller than the present one, or that is smaller than any real path's, changes nothing.
    /// Packets that were sent before and must be retransmitted are fragmented. The configured size
    /// is tried again after ten minutes.
    pub fn handle_packet_size(&mut self, now: Time, dst: SocketAddr, bytes: u32) {
        if self.config.wire.is_some() {
            return self.report_small_path(now, dst, bytes);
        }
        // The engine keeps no state for hosts to which it does not send.
        if self.peers.has_host(dst.ip())
            && let Some(size) = self.peers.paths.lower_reported(now, dst.ip(), bytes)
        {
            paths!(self).lower_packet_size(dst.ip(), size, false);
        }
    }

    /// Returns the longest UDP payload, without CRC trailer, that reaches `dst` unfragmented.
    #[must_use]
    pub fn packet_size(&self, dst: SocketAddr) -> u32 {
        self.peers.paths.get(dst.ip())
    }
}

/// Number of transmissions of the first packets to a peer after which their length is taken as the
/// cause, although the peer has never answered: a third of a second with the timeouts of
/// [`crate::reliability::Config`], a quarter of them in the last two thirds. The probe that asks
/// whether the peer is reachable may be queued behind equally long packets.
const PATIENCE: u8 = 31;

/// The parts of an engine that change when the packet size of a path changes.
pub(super) struct PathSizeUpdate<'a> {
    pub(super) peers: &'a mut Peers,
    pub(super) contexts: &'a mut Contexts,
    pub(super) report: &'a mut Report,
}

impl PathSizeUpdate<'_> {
    /// Handles a packet that does not arrive however often it is sent. The path is at fault only if
    /// the peer has answered something since; a peer that answers nothing may be computing, or
    /// gone. A peer that never answered on the context has just passed the handshake but may not
    /// have been scheduled since. Returns true if the caller should ask such a peer by a short
    /// packet for a sign of life.
    pub(super) fn handle_stuck_packet(
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
        if let Some(size) = self.peers.paths.lower_inferred(now, to, bytes) {
            self.lower_packet_size(to, size, true);
        }
        false
    }

    fn lower_packet_size(&mut self, to: IpAddr, size: u32, guessed: bool) {
        self.report.counters.path_shrunk += 1;
        self.set_packet_size(to, size, guessed);
    }

    fn set_packet_size(&mut self, to: IpAddr, size: u32, guessed: bool) {
        self.contexts.resize(to, size);
        self.report.push_notice(Notice::PacketSize { host: to, bytes: size, guessed });
    }

    /// Tries the configured packet size again on paths where that is due. No timer runs for it,
    /// because a sender has other timers.
    pub(super) fn raise_packet_sizes(&mut self, now: Time) {
        while let Some((to, size)) = self.peers.paths.take_due_raise(now) {
            self.set_packet_size(to, size, true);
        }
    }
}
