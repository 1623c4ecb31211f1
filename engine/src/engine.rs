//! The endpoint's state machine. It routes calls, packets and events to the parts of the engine.

mod holdings;
mod packet_sizes;
mod rates;
mod receive;
mod shm;
mod shutdown;
mod teardown;
mod verified_peers;

use core::net::SocketAddr;

pub use receive::PacketMarks;
pub use shm::{ShmCloseReason, ShmInterface, VerifiedPeer};
pub use shutdown::Shutdown;

use crate::base::{Batch, Datagram, Instance, RegionId, SecretRng, Span, Time};
use crate::completion::{Completion, Notice, OpError, WaitLimit};
use crate::config::Config;
use crate::contexts::Contexts;
use crate::counters::Counters;
use crate::foreign_wire::{ForeignWire, PeerAddress};
use crate::handshake::{Handshakes, SecretEvent, SilentPeer, UnknownReply};
use crate::inbox::{Inbox, SendRequest};
use crate::liveness::Liveness;
use crate::memory::Memory;
use crate::message_ids::MessageIds;
use crate::operation::{MatchSpace, Operation, PeerId, RecvOp, SubmitError, Submitted};
use crate::ops::TxOp;
use crate::outbound::{Answer, Outbound, emit_control, prepend_bytes, push_control, push_echo};
use crate::part::Part;
use crate::peers::{DestinationError, Peers};
use crate::reliability::{self, Contact, Event, FlowRecord, PdcInfo, Pdcs, PeerKey, TARDY};
use crate::report::Report;
use crate::shm::{RecordOutput, ShmChannels};
use crate::slab::Key;
use crate::target::Target;
use crate::unmatched_packets::UnmatchedPackets;
use crate::wire::ResponseOpcode;
use packet_sizes::paths;

/// The messages of one endpoint. The crate's documentation describes the contract.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    pdcs: Pdcs<Part>,
    contexts: Contexts,
    shm: ShmChannels,
    peers: Peers,
    outbound: Outbound,
    inbox: Inbox,
    target: Target,
    report: Report,
    liveness: Liveness,
    handshakes: Handshakes,
    unmatched: UnmatchedPackets,
    /// Numbers for the messages of peers of another implementation, whose ids carry no order.
    message_ids: MessageIds,
    /// Numbers for the RMA writes of peers of another implementation, whose ids carry no order.
    write_ids: MessageIds,
}

/// Builds a [`crate::step::Step`], which borrows the parts of an engine, from the engine's fields.
macro_rules! step {
    ($engine:expr, $now:expr) => {
        crate::step::Step {
            now: $now,
            config: &$engine.config,
            peers: &$engine.peers,
            pdcs: &mut $engine.pdcs,
            contexts: &mut $engine.contexts,
            shm: &mut $engine.shm,
            report: &mut $engine.report,
            liveness: &mut $engine.liveness,
            handshakes: &mut $engine.handshakes,
        }
    };
}
use step;

impl Engine {
    /// Creates an endpoint without peers. Contexts always require a verified peer, whatever `pdc`
    /// says.
    ///
    /// # Panics
    /// Panics if there is a job key, but the endpoint's address is not known ([`Config::host`]).
    #[must_use]
    pub fn new(config: Config, mut pdc: reliability::Config) -> Self {
        assert!(config.key.is_none() || config.host.is_some(), "proofs cover the address");
        let mut secret = SecretRng::new(&config.secret);
        pdc.contact = Contact::Introduced(secret.seed());
        if let Some(wire) = &config.wire {
            receive::foreign::adapt_transport(&mut pdc, wire);
        }
        let mut part = || SecretRng::new(&secret.seed());
        let (handshakes, outbound, mut hashes) = (part(), part(), part());
        let (posted, unexpected) = (hashes.next_u64(), hashes.next_u64());
        Self {
            pdcs: Pdcs::new(pdc),
            contexts: Contexts::default(),
            shm: ShmChannels::default(),
            peers: Peers::new(config.max_packet),
            outbound: Outbound::new(outbound, config.order),
            inbox: Inbox::new(posted, unexpected),
            target: Target::default(),
            report: Report::default(),
            liveness: Liveness::new(config.keepalive),
            handshakes: Handshakes::new(handshakes),
            unmatched: UnmatchedPackets::default(),
            message_ids: MessageIds::default(),
            write_ids: MessageIds::default(),
            config,
        }
    }

    /// Returns the peer at this address, adding it if it is new. Any instance is accepted there.
    pub fn peer(&mut self, addr: SocketAddr) -> PeerId {
        self.peer_at(addr, None)
    }

    /// Returns the peer at this address, adding it if it is new. If `instance` is given, only that
    /// instance is accepted; another one that answers there is an error
    /// ([`crate::OpError::OtherInstance`]).
    pub fn peer_at(&mut self, addr: SocketAddr, instance: Option<Instance>) -> PeerId {
        let (peer, fresh) = self.peers.resolve(addr, instance);
        match fresh {
            Some(host) => {
                self.pdcs.set_host(PeerKey(peer.0), host);
                if self.config.wire.is_some() {
                    self.pdcs.admissions().add_unverified(PeerKey(peer.0), false);
                }
            }
            None => self.pdcs.admissions().set_outside(PeerKey(peer.0), false),
        }
        peer
    }

    /// Returns the foreign peer at this socket address, and adds it if it is new. Requests to it carry
    /// the fields of `address`; `None` stands for the defaults of the wire.
    pub fn foreign_peer(&mut self, addr: SocketAddr, address: Option<PeerAddress>) -> PeerId {
        let peer = self.peer_at(addr, None);
        let usual = self.config.wire.as_ref().map(|wire| wire.peer);
        if let Some(address) = address.or(usual) {
            self.peers.get_mut(peer).set_address(address);
        }
        peer
    }

    /// Returns the table of the peers that this endpoint knows.
    #[must_use]
    #[inline]
    pub const fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Returns the configuration of the packet delivery contexts below the engine.
    #[must_use]
    pub fn transport(&self) -> &reliability::Config {
        self.pdcs.config()
    }

    /// Returns the wire of the peers, if they are of another implementation.
    #[must_use]
    pub const fn foreign_wire(&self) -> Option<&ForeignWire> {
        self.config.wire.as_ref()
    }

    /// Returns the JobID that this endpoint's requests carry.
    #[must_use]
    pub const fn job_id(&self) -> u32 {
        self.config.job_id
    }

    /// Accepts an outbound operation; every operation that sends enters here. Its buffer must stay
    /// unchanged until the completion. The buffer of an injected operation may be reused when this
    /// returns.
    ///
    /// `channels` are the shared-memory channels of the endpoint. A message that fits into one
    /// record leaves in this call, if its peer has such a channel and no earlier operation must go
    /// before it. Every other operation is queued.
    ///
    /// # Errors
    /// [`SubmitError`]; the engine's state is unchanged then.
    #[inline]
    pub fn submit<M: Memory, S: RecordOutput>(
        &mut self,
        now: Time,
        mem: &M,
        op: Operation,
        channels: Option<&mut S>,
    ) -> Result<Submitted, SubmitError> {
        self.outbound.submit(&mut step!(self, now), mem, op, channels)
    }

    /// Accepts a receive call, which posts a buffer or searches the unexpected messages. Returns
    /// whether the receive only waits now, so that there is nothing to send or to report.
    ///
    /// # Errors
    /// [`SubmitError::NotClaimed`]. The number of receives is limited only by memory.
    #[inline]
    pub fn receive<M: Memory>(
        &mut self,
        now: Time,
        mem: &mut M,
        op: RecvOp,
    ) -> Result<bool, SubmitError> {
        let waits = self.inbox.receive(&mut step!(self, now), mem, op)?;
        self.drain_events(now);
        Ok(waits)
    }

    /// Cancels the oldest posted receive with this context that has not matched. Its completion has
    /// the status [`crate::OpError::Cancelled`]. A multi-receive buffer completes after all
    /// messages that are arriving in it have ended. Returns false if there is no such receive.
    pub fn cancel(&mut self, now: Time, context: u64) -> bool {
        self.inbox.cancel(&mut step!(self, now), context)
    }

    /// Makes the engine report every finished access of peers to registered regions, not only
    /// writes with remote CQ data, by completions that only count.
    pub const fn report_accesses(&mut self) {
        self.target.reports = true;
    }

    /// Ends every use of a registered region. When this returns, nothing in the engine refers to
    /// the region, and [`Engine::may_send`] returns false for packets of earlier batches that do.
    pub fn release_region(&mut self, now: Time, region: RegionId) {
        self.outbound.release_region(&mut step!(self, now), region);
    }

    /// Sets the longest delay of acknowledgements that neither the number of bytes received nor the
    /// sender's request makes due earlier
    /// ([`TransportConfig::ack_delay`](crate::TransportConfig::ack_delay)). The engine assumes the
    /// same delay of its peers before it probes them.
    pub fn set_ack_delay(&mut self, delay: Span) {
        self.pdcs.set_ack_delay(delay);
    }

    /// Handles the loss of packets of `lost` bytes that found no room in this host's receive buffer
    /// (of the socket, for example), which has `buffer` bytes.
    #[cold]
    pub fn handle_buffer_overflow(&mut self, lost: u64, buffer: u64) {
        self.pdcs.handle_buffer_overflow(lost, buffer);
    }

    /// Records that the host's receive buffer was found empty, for the first time after an
    /// overflow.
    #[cold]
    pub fn handle_buffer_drained(&mut self) {
        self.pdcs.handle_buffer_drained();
    }

    /// Records that the network reported a destination as unreachable. The error text of later
    /// failures includes the report. The engine gives up earlier on a silent peer whose host
    /// reports that no socket is bound to the port.
    pub fn handle_destination_error(&mut self, now: Time, trouble: DestinationError) {
        self.peers.record_destination_error(now, trouble);
    }

    /// Returns the completion that [`Self::poll_completion`] will return last, if one waits.
    #[must_use]
    pub fn last_completion(&self) -> Option<&Completion> {
        self.report.last_completion()
    }

    /// Returns the number of finished operations that wait to be taken by [`Self::poll_completion`].
    #[must_use]
    #[inline]
    pub fn completions(&self) -> usize {
        self.report.completions()
    }

    /// Returns the completion of the next finished operation and removes it from the queue.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.report.pop_completion()
    }

    /// Returns the next notice for the log and removes it from the queue.
    #[inline]
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.report.pop_notice()
    }

    /// Returns the next change of the secrets that this endpoint shares with peers, if it encrypts
    /// its packets ([`Config::encrypts`]). Call this after packets were received, before the next
    /// ones are sent.
    #[inline]
    pub fn poll_secret(&mut self) -> Option<SecretEvent> {
        self.handshakes.pop_secret()
    }

    /// Returns when [`Self::handle_timeout`] must be called. The time may be early, never late.
    #[must_use]
    #[inline]
    pub fn poll_timeout(&self) -> Option<Time> {
        let (liveness, shm) = (self.liveness.deadline(), self.shm.deadline());
        let resend = self.outbound.repeat_deadline();
        let times = [liveness, shm, resend, self.handshakes.deadline(), self.pdcs.poll_timeout()];
        // An explicit minimum of the `Some` values would compare uninitialised payloads of `None`
        // before it tests the tags; memcheck reports that as a decision on uninitialised memory.
        let first = times.map(|time| time.unwrap_or(Time::NEVER)).into_iter().min();
        first.filter(|time| *time < Time::NEVER)
    }

    /// Advances the engine's time. If the call is long overdue, the process was stopped or busy
    /// elsewhere; that time does not count against peers.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.poll_timeout().is_some_and(|due| due + TARDY < now) {
            self.exclude_absence(now);
        }
        self.pdcs.handle_timeout(now);
        self.drain_events(now);
        if self.outbound.repeat_deadline().is_some_and(|at| at <= now) {
            self.outbound.handle_repeat_timer(&mut step!(self, now));
        }
        let deadline = self.pdcs.config().contact_deadline;
        while let Some(silent) =
            self.handshakes.handle_timeout(now, &self.config, &self.peers, deadline)
        {
            match silent {
                SilentPeer::For(peer, since) => {
                    self.teardown(now).report_silence(peer, since, WaitLimit::Deadline);
                }
                SilentPeer::Unlisted(peer, since) => {
                    self.report.push_notice(Notice::NotListed { peer, since });
                }
                SilentPeer::ForGood(peer, error) => self.teardown(now).fail_peer(peer, error),
            }
        }
        self.teardown(now).check_slow_channels();
        self.drain_events(now);
        paths!(self).raise_packet_sizes(now);
        if self.liveness.take_due(now) {
            self.check_silent_peers(now);
        }
    }

    /// Adds packets that may be sent now to `batch`, until it has the configured number of packets
    /// at the end of a train. Returns true if there may be more.
    pub fn poll_transmit(&mut self, now: Time, batch: &mut Batch) -> bool {
        if !self.has_output() {
            return false;
        }
        let limit = batch.packets.len() + self.config.batch_packets;
        self.report.counters.tx_handshakes_dropped += self.handshakes.take_dropped();
        let paths = self.pdcs.config().paths.paths();
        while let Some((dst, intro, path)) = self.handshakes.pop_packet(paths) {
            self.report.counters.tx_handshakes += 1;
            push_control(batch, dst, path, |out| intro.emit(out));
        }
        if self.outbound.has_repeats() {
            self.outbound.send_repeats(&mut step!(self, now), batch);
        }
        while let Some((dst, nack)) = self.unmatched.pop_nack() {
            push_control(batch, dst, 0, |out| nack.emit(out));
        }
        loop {
            while let Some(control) = self.pdcs.poll_control(now) {
                let dst = self.peers.get(PeerId(control.peer.0)).addr();
                let start = push_echo(batch, self.pdcs.telemetry_echo());
                push_control(batch, dst, control.path, |out| emit_control(&control.packet, out));
                prepend_bytes(batch, start);
            }
            if self.pdcs.has_rate_packets() {
                self.poll_rates(now, batch);
            }
            let room = batch.packets.len() < limit;
            if !room || !self.outbound.transmit(&mut step!(self, now), batch, limit) {
                return !self.contexts.is_idle();
            }
            self.drain_events(now);
        }
    }

    /// Returns whether [`Self::poll_transmit`] may have something to send. Drivers call it after
    /// everything that arrived, and usually there is nothing.
    #[inline]
    fn has_output(&self) -> bool {
        !self.contexts.is_idle()
            || self.pdcs.has_control()
            || self.pdcs.has_rate_packets()
            || self.handshakes.has_output()
            || self.outbound.has_repeats()
            || self.unmatched.has_nacks()
    }

    /// Returns whether a packet of an earlier batch may still be sent, that is, whether the memory
    /// it refers to, if any, is still in use. A driver that could not send a packet at once must
    /// ask this before it retries. A packet that may not be sent counts as lost, and the context
    /// recovers from that.
    #[must_use]
    pub fn may_send(&self, packet: &Datagram) -> bool {
        let lends = |tag| self.outbound.ops().get(Key::from_u64(tag)).is_some_and(TxOp::lends);
        packet.payload.is_empty() || lends(packet.tag)
    }

    /// Returns the counters of messages and of the packets below them.
    #[must_use]
    pub const fn counters(&self) -> (&Counters, &reliability::Counters) {
        (&self.report.counters, self.pdcs.counters())
    }

    /// Returns information about all open packet delivery contexts.
    pub fn contexts(&self) -> impl Iterator<Item = PdcInfo> + '_ {
        self.contexts.iter().filter_map(|c| self.pdcs.info(c.id.context()?))
    }

    /// Returns statistics of all contexts, open and closed: one record per peer and direction.
    #[must_use]
    pub fn flows(&self) -> Vec<FlowRecord> {
        self.pdcs.flows()
    }

    /// Returns whether nothing is queued, in flight or unacknowledged from this side.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.outbound.ops().len() == 0 && self.contexts.is_idle() && !self.shm.has_output()
    }

    /// Returns the number of bytes that were copied and that no peer has acknowledged. The user
    /// considers many of them sent.
    #[must_use]
    pub const fn copied_bytes(&self) -> u64 {
        self.outbound.ops().copied()
    }

    /// Returns the number of messages that wait for a receive.
    #[must_use]
    pub const fn unexpected_messages(&self) -> usize {
        self.inbox.unexpected_messages()
    }

    /// Returns the view of the engine that shuts it down.
    pub const fn shutdown(&mut self, now: Time) -> Shutdown<'_> {
        Shutdown::new(self, now)
    }

    /// Returns the next finished message of a matching space, even if other completions precede it.
    /// Callers that own a space use it.
    pub fn poll_completion_of(&mut self, space: MatchSpace) -> Option<Completion> {
        self.report.next_completion_of(space)
    }

    /// Processes the events of the contexts, and the requests between the receiving half and the
    /// sending half.
    #[inline]
    fn drain_events(&mut self, now: Time) {
        let first = self.pdcs.poll_event();
        let asked = !self.inbox.send_requests().is_empty() || !self.outbound.pull_ends().is_empty();
        if first.is_some() || asked || self.shm.has_scheduled_end() {
            self.process_events(now, first);
        }
    }

    fn process_events(&mut self, now: Time, first: Option<Event<Part>>) {
        let mut step = step!(self, now);
        let mut next = first;
        while let Some(event) = next {
            match event {
                Event::Acked { desc, count, .. } => {
                    self.outbound.handle_ack(&mut step, desc, count);
                }
                Event::Responded { desc, psn, response, .. } => {
                    if response.opcode == ResponseOpcode::NoResponse {
                        self.outbound.await_match(&mut step, desc, psn);
                    }
                    self.outbound.handle_response(&mut step, desc, &response);
                }
                Event::Ready { id } => step.contexts.activate(id.into()),
                event => {
                    self.handle_event(now, event);
                    step = step!(self, now);
                }
            }
            next = step.pdcs.poll_event();
        }
        while let Some(id) = self.shm.next_scheduled_end() {
            self.teardown(now).handle_shm_end(id, OpError::Closed);
        }
        loop {
            if let Some(request) = self.inbox.send_requests().pop() {
                self.execute_send_request(now, request);
            } else if let Some(end) = self.outbound.pull_ends().pop_front() {
                self.inbox.handle_pull_end(&mut step!(self, now), end);
            } else {
                return;
            }
        }
    }

    /// Records that a context to a peer has ended. `parting` is set if the peer seems to close its
    /// endpoint.
    fn record_peer_close(&mut self, now: Time, peer: PeerKey, parting: bool) {
        if parting {
            let peer = PeerId(peer.0);
            self.peers.get_mut(peer).record_close(now);
            self.peers.release_address(peer);
        }
    }

    /// Handles an event of the transport that is rarer than a packet or an acknowledgement.
    #[cold]
    fn handle_event(&mut self, now: Time, event: Event<Part>) {
        match event {
            Event::Failed { id, peer, why, parting } => {
                self.record_peer_close(now, peer, parting);
                self.teardown(now).handle_context_failed(id, why);
            }
            Event::Closed { id, peer, parting } => {
                self.record_peer_close(now, peer, parting);
                self.teardown(now).handle_context_closed(id);
            }
            Event::OtherMode { id } => {
                if let Some(peer) = self.contexts.get(id.into()).map(|c| c.peer) {
                    self.report.push_notice(Notice::OtherMode { peer });
                }
            }
            Event::Unknown { peer: key, sent_at } => {
                let peer = PeerId(key.0);
                let state = self.peers.get(peer);
                match self.handshakes.handle_unknown(now, &self.config, (peer, state), sent_at) {
                    UnknownReply::Wait => {}
                    UnknownReply::GoOn => self.contexts.release_peer(now, peer, &mut self.pdcs),
                    UnknownReply::Forget => self.pdcs.admissions().forget(key),
                }
            }
            Event::Waits { id, waited } => self.teardown(now).handle_unanswered_packet(id, waited),
            // The packets to peers of another implementation have one size.
            Event::Stuck { .. } if self.config.wire.is_some() => {}
            Event::Stuck { id, bytes, sent_at, times, connected } => {
                if paths!(self).handle_stuck_packet(now, id, bytes, (sent_at, times, connected)) {
                    self.outbound.ask_for_sign_of_life(&mut step!(self, now), id.into());
                }
            }
            // The `Failed` event that follows ends every operation of the peer.
            Event::Lost { .. } => {}
            Event::Acked { .. } | Event::Responded { .. } | Event::Ready { .. } => {}
        }
    }

    /// Executes a request that the receiving half has for the sending half.
    #[cold]
    fn execute_send_request(&mut self, now: Time, request: SendRequest) {
        let mut step = step!(self, now);
        match request {
            SendRequest::Pull(message) => {
                step.start_liveness_timer();
                if let Some(read) = self.inbox.pull_read(message)
                    && self.outbound.start_internal(&mut step, read)
                {
                    self.inbox.mark_pull_started(message);
                }
            }
            SendRequest::EndPull { peer, offer, total, failed } => {
                let read = SendRequest::end_of_pull_read(peer, offer, total, failed);
                self.outbound.start_internal(&mut step, read);
            }
            SendRequest::WithdrawPull(message) => self.outbound.detach_pull(message),
            SendRequest::Confirm { context: id, slot } => {
                // The confirmation goes on the channel on which the message arrived.
                if let Some(peer) = step.contexts.get(id).map(|context| context.peer) {
                    self.outbound.queue_answer(&mut step, id, peer, Answer::confirmation(slot));
                }
            }
        }
    }
}
