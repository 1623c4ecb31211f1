//! Delivery of operations that have ended to completion queues, with the text of errors, and warnings of the engine.

pub(crate) mod entry;

use squall_base::{Span, Time};
use squall_engine::{Completion, Engine, Notice, OpError, OpKind, PeerId, Visibility, WaitLimit};

use super::bindings::Bindings;
use super::peer_cache::PeerCache;
use crate::abi::flags::ADDR_UNSPEC;
use crate::network::addr::Name;
use crate::reports::fault;
use entry::{entry_of, error_entry_of};

/// Shortest time between two warnings that operations were lost after their completion.
const WARN_EVERY: Span = Span::secs(1);

/// The state that limits how often warnings of an endpoint are logged.
#[derive(Default)]
struct WarningLog {
    other_mode: bool,
    /// The time of the last warning that operations were lost after their completion, and the number lost since.
    lost: Option<Time>,
    lost_since: u64,
}

/// Delivers the completions of an endpoint to its queues, and logs the engine's notices.
pub(crate) struct Delivery {
    /// The endpoint's address and instance, for error messages.
    local: Name,
    /// Name of the network interface that has the endpoint's address.
    interface: Box<str>,
    /// Completions of receives name the source of the message (FI_SOURCE).
    names_source: bool,
    warnings: WarningLog,
}

impl Delivery {
    /// Creates the delivery of an endpoint at `local` on `interface`.
    pub(crate) fn new(local: Name, interface: &str, names_source: bool) -> Self {
        let warnings = WarningLog::default();
        Self { local, interface: interface.into(), names_source, warnings }
    }

    /// Writes the completion of an operation into its completion queue.
    #[inline]
    pub(crate) fn report_completion(
        &self,
        bindings: &Bindings,
        peers: &mut PeerCache,
        engine: &mut Engine,
        done: &Completion,
    ) {
        match (done.status, done.visibility) {
            (Ok(()), Visibility::Entry) => {
                if let Some(cq) = bindings.queue(done.kind) {
                    cq.push(entry_of(done, self.source_addr(bindings, peers, engine, done)));
                }
            }
            (Ok(()), _) => {}
            (Err(error), _) => self.report_error(bindings, peers, engine, done, error),
        }
    }

    /// Returns the `fi_addr_t` that a completion names as its source.
    #[inline]
    fn source_addr(
        &self,
        bindings: &Bindings,
        peers: &mut PeerCache,
        engine: &mut Engine,
        done: &Completion,
    ) -> u64 {
        let received = matches!(done.kind, OpKind::Recv | OpKind::Peek);
        match (&bindings.av, done.peer) {
            (Some(av), Some(peer)) if received && self.names_source => {
                peers.fi_addr(av, engine, peer)
            }
            _ => ADDR_UNSPEC,
        }
    }

    /// Reports the error of an operation in the completion queue. This includes injected operations (fi_cq(3)), whose
    /// entry has no context: without the entry an application could wait for ever for an answer to a lost message.
    /// There is one exception: the loss of an operation without context is only logged if the peer has closed its
    /// endpoint in good order. No one waits for such a message, and applications that end connections one by one
    /// (`MPI_Comm_disconnect`) send some although nothing is wrong, and give up when they see an error.
    #[cold]
    fn report_error(
        &self,
        bindings: &Bindings,
        peers: &mut PeerCache,
        engine: &mut Engine,
        done: &Completion,
        error: OpError,
    ) {
        let source = self.source_addr(bindings, peers, engine, done);
        let parted = |peer: PeerId| engine.peers().get(peer).has_closed();
        let shown = done.visibility != Visibility::CountOnly
            || error.excludes()
            || !done.peer.is_some_and(parted);
        let queue = bindings.queue(done.kind).filter(|_| shown);
        match queue {
            Some(cq) => {
                // Errors that applications provoke themselves need no detail.
                let expected = matches!(
                    error,
                    OpError::Cancelled | OpError::NoMessage | OpError::Truncated { .. }
                );
                let detail = (!expected).then(|| self.describe_end(engine, error, done));
                cq.push_error(error_entry_of(done, error, source, detail));
            }
            None => log::warn!(
                "an operation failed, and no completion queue for it is bound: {}",
                self.describe_end(engine, error, done)
            ),
        }
    }

    /// Logs a notice of the engine, which belongs to no operation of the application. `trailer` is the number of bytes
    /// that the port adds behind each packet.
    #[cold]
    pub(crate) fn log(&mut self, now: Time, engine: &Engine, trailer: u32, notice: Notice) {
        match notice {
            Notice::OtherMode { peer } => self.log_other_mode(engine, peer),
            Notice::PacketSize { host, bytes, guessed } => {
                let (bytes, v6) = (bytes + trailer, host.is_ipv6());
                let why = if guessed { " (found by trial; no router reported it)" } else { "" };
                let mtu = bytes + if v6 { 48 } else { 28 };
                log::info!("the path to {host} carries packets of {bytes} bytes, MTU {mtu}{why}");
            }
            Notice::TooManyUnexpected { peer, tag } => {
                let addr = engine.peers().get(peer).addr();
                let count = engine.unexpected_messages();
                log::warn!(
                    "{count} messages wait here for receives; more are held back at their senders, first one \
                     of {addr} with tag {tag:#x}: post receives, or let senders wait for answers"
                );
            }
            Notice::Silent { peer, since, limit } => {
                let until = match limit {
                    WaitLimit::Deadline => "until FI_SQUALL_DEADLINE",
                    WaitLimit::HostAnswers => {
                        "until FI_SQUALL_STOPPED_DEADLINE, because its host answers: is its process stopped?"
                    }
                    WaitLimit::ProcessLives => "as long as its process lives: is it stopped?",
                };
                let state = engine.peers().get(peer);
                let cause = state.last_destination_error().map(|trouble| {
                    format!(
                        ", last network error: {}",
                        std::io::Error::from_raw_os_error(trouble.errno)
                    )
                });
                log::warn!(
                    "peer {} has not answered for {since}{}; squall waits for it {until} [local {} on {}; \
                     FI_SQUALL_IFACE chooses the interface]",
                    state.addr(),
                    cause.unwrap_or_default(),
                    self.local.addr,
                    self.interface
                );
            }
            Notice::NotListed { peer, since } => log::warn!(
                "peer {} has refused this endpoint for {since}: it is not in the peer's address vector \
                 (FI_SQUALL_PEERS=av there); squall retries until FI_SQUALL_DEADLINE [local {}]",
                engine.peers().get(peer).addr(),
                self.local.addr
            ),
            Notice::LostAfterCompletion { peer, error } => {
                self.warnings.lost_since += 1;
                if self.warnings.lost.is_none_or(|last| now.since(last) >= WARN_EVERY) {
                    let n = core::mem::take(&mut self.warnings.lost_since);
                    self.warnings.lost = Some(now);
                    let detail = self.describe(engine, error, Some(peer));
                    log::warn!(
                        "{n} operations that had completed when their data was copied were lost afterwards: {detail}"
                    );
                }
            }
        }
    }

    /// Describes an error for the operation that ended with it.
    fn describe_end(&self, engine: &Engine, error: OpError, done: &Completion) -> String {
        let mut text = self.describe(engine, error, done.peer);
        let atomic = matches!(done.kind, OpKind::Update | OpKind::Fetch);
        if atomic && !matches!(error, OpError::Remote(_)) {
            text.push_str("; whether the atomic operation was carried out is not known");
        }
        text
    }

    /// Returns the text about an error of operations with `peer`.
    fn describe(&self, engine: &Engine, error: OpError, peer: Option<PeerId>) -> String {
        let state = peer.map(|peer| engine.peers().get(peer));
        let trouble = state.and_then(|state| state.last_destination_error());
        let meant = state.and_then(|state| state.instance());
        let own = (self.local.addr, &*self.interface);
        let mut text = fault::describe(error, state.map(|state| state.addr()), own, trouble);
        if let (OpError::OtherInstance { .. }, Some(meant)) = (error, meant) {
            text.push_str(&format!("; the operation was for instance {meant}"));
        }
        text
    }

    /// Warns, once per endpoint, that a peer's receiver works in another mode.
    fn log_other_mode(&mut self, engine: &Engine, peer: PeerId) {
        if !core::mem::replace(&mut self.warnings.other_mode, true) {
            let addr = engine.peers().get(peer).addr();
            let cc = &engine.transport().cc;
            if cc.acks().telemetry {
                return log::warn!(
                    "FI_SQUALL_CC={} needs what switches write into packets, and none of it came back from {addr}: it uses \
                     round-trip times instead; run it on an emulated network with telemetry (squall emulate up \
                     --telemetry), with the same FI_SQUALL_CC at all endpoints (other peers are not reported)",
                    cc.name()
                );
            }
            if engine.transport().uses_rates() {
                return log::warn!(
                    "FI_SQUALL_CC={} needs the rates that switches compute, and none came for packets to {addr}: it uses a \
                     plain window instead; run it on an emulated network that computes them (squall emulate up --features \
                     rates), with the same FI_SQUALL_CC at all endpoints (other peers are not reported)",
                    cc.name()
                );
            }
            log::warn!(
                "the receiver at {addr} does not send the signals that FI_SQUALL_CC={} needs: the sender uses a plain \
                 window, or goes without them; set the same FI_SQUALL_CC at all endpoints (other peers are not \
                 reported)",
                cc.name()
            );
        }
    }
}
