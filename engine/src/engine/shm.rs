//! The driver's interface to shared-memory channels and their records.
//!
//! When [`ShmInterface::poll_verified_peer`] reports a verified peer, the drivers of the two endpoints
//! may connect if both are on one host. Each checks the other's [`ShmInterface::proof`], and both call
//! [`ShmInterface::open_channel`]. From then on the driver calls:
//!
//! - [`ShmInterface::handle_taken`] with the count that the peer shows, before each record and when there
//!   is none;
//! - [`ShmInterface::handle_record`] for each record, in order;
//! - [`ShmInterface::handle_deferral`] when the peer shows that it has no room;
//! - [`ShmInterface::transmit`] wherever it calls [`Engine::poll_transmit`], after which it shows the
//!   peer [`ShmInterface::taken`] and [`ShmInterface::room`].
//!
//! [`ShmInterface::handle_end`] reports an end from outside to the engine, and [`ShmInterface::poll_ended`]
//! returns channels that the engine ended.

use core::net::SocketAddr;

use super::receive::{PacketReceiver, is_addressed_to_us};
use super::{Engine, step};
use crate::base::{Instance, Time};
use crate::channel::{ChannelId, ShmId};
use crate::completion::OpError;
use crate::memory::{Memory, Payload};
use crate::operation::PeerId;
use crate::outbound::{find_unacknowledged, transmit_records};
use crate::packet_form::PacketForm;
use crate::packet_outcome::PacketOutcome;
use crate::reliability::PeerKey;
use crate::shm::record::{MAX_PAYLOAD, Record};
use crate::shm::{ClosingState, InFlight, RecordOutcome, RecordOutput, Room};

/// A verified peer. If it is on this host, a shared-memory channel to it may be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VerifiedPeer {
    /// The peer that passed the handshake.
    pub peer: PeerId,
    /// Socket address of the verified peer.
    pub addr: SocketAddr,
    /// Instance of the peer that was verified.
    pub instance: Instance,
    /// True if this endpoint started the handshake. The other end then opens the channel, because
    /// it knows that both have verified each other.
    pub asked: bool,
}

/// The way in which a shared-memory channel ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShmCloseReason {
    /// The process at the other end of the channel exited.
    Died,
    /// The peer closed the channel or sent something invalid; its process lives.
    Closed,
}

/// The shared-memory channels of an engine. The module's documentation describes the calls.
#[derive(Debug)]
pub struct ShmInterface<'a> {
    engine: &'a mut Engine,
}

impl Engine {
    /// Returns the interface by which the driver operates the shared-memory channels.
    #[inline]
    pub const fn shm(&mut self) -> ShmInterface<'_> {
        ShmInterface { engine: self }
    }
}

impl ShmInterface<'_> {
    /// Returns the next peer that passed the handshake, for the driver to open a channel to.
    pub fn poll_verified_peer(&mut self) -> Option<VerifiedPeer> {
        loop {
            let (peer, asked) = self.engine.shm.next_verified_peer()?;
            let state = self.engine.peers.get(peer);
            // The peer may have disconnected since.
            if let (Some(instance), true) = (state.instance(), state.is_verified()) {
                return Some(VerifiedPeer { peer, addr: state.addr(), instance, asked });
            }
        }
    }

    /// Returns this endpoint's instance, which distinguishes it from earlier and later ones at its
    /// address.
    #[must_use]
    pub const fn instance(&self) -> Instance {
        self.engine.config.instance
    }

    /// Returns the peer that was verified as this instance at this address.
    #[must_use]
    pub fn find_verified_peer(&self, addr: SocketAddr, instance: Instance) -> Option<PeerId> {
        self.engine.peers.at(addr).find(|peer| {
            let state = self.engine.peers.get(*peer);
            state.is_verified() && state.instance() == Some(instance)
        })
    }

    /// Returns 128 bits that only this peer and this endpoint can compute, different for each
    /// `purpose`. They are derived from the handshake that this endpoint (`asked`) or the peer
    /// started. Returns `None` if there is no such handshake.
    #[must_use]
    pub fn proof(&mut self, peer: PeerId, asked: bool, purpose: u64) -> Option<[u64; 2]> {
        let association = self.engine.pdcs.admissions().association(PeerKey(peer.0), asked)?;
        Some(association.proof(purpose))
    }

    /// Opens a shared-memory channel to a peer. Returns `None` if there is one already, or if the
    /// peer is no longer verified.
    pub fn open_channel(&mut self, now: Time, peer: PeerId) -> Option<ShmId> {
        if self.engine.contexts.shm_channel_to(peer).is_some()
            || !self.engine.peers.get(peer).is_verified()
        {
            return None;
        }
        let id = self.engine.shm.add(now, peer);
        let channel = ChannelId::Shm(id);
        self.engine.contexts.add(
            channel,
            peer,
            (
                self.engine.peers.get(peer).addr(),
                MAX_PAYLOAD,
                PacketForm::new(&self.engine.config, self.engine.peers.get(peer), true),
            ),
            true,
        );
        self.engine.inbox.open_stream(channel);
        self.engine.report.counters.shm_channels += 1;
        Some(id)
    }

    /// Records that the kernel will report the end of the peer's process ([`ShmInterface::handle_end`]). Until then the
    /// engine waits for the peer, however long it takes no records, because its process may be stopped.
    pub fn watch_process(&mut self, id: ShmId) {
        if let Some(shm) = self.engine.shm.get_mut(id) {
            shm.watched = true;
        }
    }

    /// Handles a record that arrived on a shared-memory channel.
    #[inline]
    pub fn handle_record<M: Memory>(
        &mut self,
        now: Time,
        mem: &mut M,
        id: ShmId,
        bytes: &[u8],
    ) -> RecordOutcome {
        let taken = self.process_record(now, mem, id, bytes);
        if taken == RecordOutcome::Yes {
            self.engine.report.counters.shm_rx_records += 1;
        } else if taken == RecordOutcome::Never {
            self.engine.report.counters.rx_malformed += 1;
            self.engine.shm.schedule_end(id);
        }
        self.engine.drain_events(now);
        taken
    }

    #[inline]
    fn process_record<M: Memory>(
        &mut self,
        now: Time,
        mem: &mut M,
        id: ShmId,
        bytes: &[u8],
    ) -> RecordOutcome {
        let Some(shm) = self.engine.shm.get_mut(id) else { return RecordOutcome::Never };
        let (peer, channel) = (shm.peer, ChannelId::Shm(id));
        let src = self.engine.peers.get(peer).addr();
        let taken = match Record::read(bytes) {
            Some(Record::Request(request, payload)) => {
                if !is_addressed_to_us(&self.engine.config, self.engine.peers.get(peer), &request) {
                    return RecordOutcome::Never;
                }
                let mut arriving = PacketReceiver { engine: &mut *self.engine, mem, now, src };
                arriving.record_rx(peer);
                arriving.handle_initiator_request((channel, peer), &request, payload)
            }
            Some(Record::Short(short, payload)) => {
                let mut arriving = PacketReceiver { engine: &mut *self.engine, mem, now, src };
                arriving.record_rx(peer);
                let (step, mem) = (&mut step!(arriving.engine, now), arriving.mem);
                arriving.engine.inbox.handle_short_message(
                    step,
                    mem,
                    (channel, peer),
                    &short,
                    payload,
                )
            }
            Some(Record::Write(request, len)) => {
                if !is_addressed_to_us(&self.engine.config, self.engine.peers.get(peer), &request) {
                    return RecordOutcome::Never;
                }
                let mut arriving = PacketReceiver { engine: &mut *self.engine, mem, now, src };
                arriving.record_rx(peer);
                arriving.handle_write((channel, peer), &request, Payload::Elsewhere(len.into()))
            }
            Some(Record::Offer(request, len)) => {
                if !is_addressed_to_us(&self.engine.config, self.engine.peers.get(peer), &request) {
                    return RecordOutcome::Never;
                }
                let mut arriving = PacketReceiver { engine: &mut *self.engine, mem, now, src };
                arriving.record_rx(peer);
                let (step, payload) =
                    (&mut step!(arriving.engine, now), Payload::Elsewhere(len.into()));
                let inbox = &mut arriving.engine.inbox;
                inbox.handle_message_packet(step, arriving.mem, (channel, peer), &request, payload)
            }
            Some(Record::Data(header, payload)) => {
                let step = &mut step!(self.engine, now);
                let payload = Payload::Here(payload);
                self.engine.outbound.handle_response_data(step, mem, channel, &header, payload)
            }
            Some(Record::Reference(header, len)) => {
                let step = &mut step!(self.engine, now);
                let payload = Payload::Elsewhere(len.into());
                self.engine.outbound.handle_response_data(step, mem, channel, &header, payload)
            }
            Some(Record::Answer(number, response)) => {
                let Some(part) = shm.mark_answered(number) else { return RecordOutcome::Never };
                self.engine.outbound.handle_response(&mut step!(self.engine, now), part, &response);
                PacketOutcome::Yes(None)
            }
            Some(Record::CloseNotification) => {
                shm.peer_closed = true;
                PacketOutcome::Yes(None)
            }
            None => return RecordOutcome::Never,
        };
        let answer = match taken {
            PacketOutcome::Yes(answer) => answer,
            PacketOutcome::Later(_) => {
                self.engine.report.counters.rx_held_back += 1;
                // Behind this record there may be an answer for which the peer waits, and the peer
                // does not count answered records as taken. Start the wait anew.
                if let Some(shm) = self.engine.shm.get_mut(id) {
                    shm.begin_wait(now);
                }
                return RecordOutcome::Later;
            }
            PacketOutcome::No => {
                self.engine.report.counters.rx_inconsistent += 1;
                return RecordOutcome::Never;
            }
        };
        if answer.is_some() {
            self.engine.contexts.activate(channel);
        }
        if let Some(shm) = self.engine.shm.get_mut(id) {
            shm.record_taken(answer);
        }
        RecordOutcome::Yes
    }

    /// Handles the peer's report that it has taken `count` of our records in all. The peer shows
    /// the count only after we have received every answer to those records.
    #[inline]
    pub fn handle_taken(&mut self, now: Time, id: ShmId, count: u64) {
        let Some(shm) = self.engine.shm.get_mut(id) else { return };
        if !shm.is_valid_ack(count) {
            self.engine.shm.schedule_end(id);
            self.engine.drain_events(now);
            return;
        }
        let peer = shm.peer;
        if shm.is_new_ack(count) {
            self.restart_wait(now, id);
        }
        while let Some(record) = self.engine.shm.get_mut(id).and_then(|shm| shm.pop_acked(count)) {
            match record {
                InFlight::Part(part) => {
                    self.engine.outbound.handle_ack(&mut step!(self.engine, now), part, 1);
                }
                InFlight::Short(send) => self.engine.report.complete(send.completion(peer, None)),
                InFlight::Unowned | InFlight::Reported => {}
            }
        }
        self.engine.drain_events(now);
    }

    /// Handles the peer's report that it has examined the first record that it has not taken and
    /// has no room for it.
    #[cold]
    pub fn handle_deferral(&mut self, now: Time, id: ShmId) {
        self.restart_wait(now, id);
    }

    /// Restarts the wait for the peer, after a sign that it processes records.
    #[inline]
    fn restart_wait(&mut self, now: Time, id: ShmId) {
        if let Some(shm) = self.engine.shm.get_mut(id) {
            shm.begin_wait(now);
            self.engine.peers.get_mut(shm.peer).record_rx(now);
        }
    }

    /// Returns the number of the peer's records on a channel that the peer may consider taken.
    #[must_use]
    #[inline]
    pub fn taken(&self, id: ShmId) -> u64 {
        self.engine.shm.acknowledged(id)
    }

    /// Returns the room for messages of the peer that no receive matches yet. Show it to the peer after every call that
    /// may change it: the calls that handle the peer's records, and the application's own calls.
    #[must_use]
    #[inline]
    pub fn room(&self, id: ShmId) -> Room {
        let Engine { shm, inbox, config, peers, .. } = &*self.engine;
        shm.get(id).map_or(Room::Ample, |shm| inbox.room(shm.peer, config, peers))
    }

    /// Returns whether [`ShmInterface::transmit`] may have records to send.
    #[must_use]
    #[inline]
    pub fn has_records(&self) -> bool {
        self.engine.contexts.scheduled_shm() > 0 || self.engine.shm.has_held()
    }

    /// Returns whether [`Engine::poll_transmit`] may have data packets to send as well.
    #[must_use]
    #[inline]
    pub fn has_packets(&self) -> bool {
        !self.engine.contexts.is_idle()
    }

    /// Writes records that may leave now to `sink`, as many as it accepts. Returns whether any
    /// left.
    pub fn transmit(&mut self, now: Time, sink: &mut impl RecordOutput) -> bool {
        if self.engine.shm.has_held() {
            self.release_held_channels();
        }
        let step = &mut step!(self.engine, now);
        transmit_records(&mut self.engine.outbound, step, sink)
    }

    /// Starts the shared-memory channels whose peers have received everything that was sent to them
    /// as packets.
    #[cold]
    fn release_held_channels(&mut self) {
        for id in self.engine.shm.held_channels() {
            let Some(shm) = self.engine.shm.get_mut(id) else { continue };
            // Nearly always the operation of the last search, so that not every turn looks at all operations.
            match find_unacknowledged(&self.engine.outbound, shm.peer, shm.held_by) {
                Some(operation) => shm.held_by = operation,
                None => {
                    self.engine.shm.release(id);
                    self.engine.contexts.activate(ChannelId::Shm(id));
                }
            }
        }
    }

    /// Handles the end of a shared-memory channel, which the driver reports.
    pub fn handle_end(&mut self, now: Time, id: ShmId, how: ShmCloseReason) {
        let Some(shm) = self.engine.shm.get(id) else { return };
        let died = how == ShmCloseReason::Died && !shm.peer_closed;
        self.engine
            .teardown(now)
            .handle_shm_end(id, if died { OpError::TimedOut } else { OpError::Closed });
        self.engine.drain_events(now);
    }

    /// Returns the channel and tag of the next reference to user memory that the driver must revoke
    /// before it does anything else that may return memory to the user.
    #[inline]
    pub fn poll_revoked(&mut self) -> Option<(ShmId, u64)> {
        self.engine.shm.next_revoked()
    }

    /// Returns the next channel that ended and whose records the driver must no longer carry.
    pub fn poll_ended(&mut self) -> Option<ShmId> {
        self.engine.shm.next_ended()
    }

    /// Sends a close notification on a shared-memory channel, because this endpoint shuts down.
    pub(super) fn send_close_notification(&mut self, id: ShmId) {
        if let Some(shm) = self.engine.shm.get_mut(id)
            && shm.closing == ClosingState::NotNeeded
        {
            shm.closing = ClosingState::Due;
            self.engine.contexts.activate(ChannelId::Shm(id));
        }
    }
}
