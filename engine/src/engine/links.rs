//! Links, as whoever carries their frames drives them.
//!
//! When [`Linking::poll_acquaintance`] tells of a peer, two endpoints of one host may find each other; each checks the
//! other's [`Linking::proof`], and both call [`Linking::link`]. From then on: [`Linking::handle_frame`] for each frame,
//! in order, and before it, and where there is none, [`Linking::handle_taken`] with the count that the peer shows by then;
//! [`Linking::handle_held_back`] when it showed that it has no room;
//! [`Linking::transmit`] wherever [`Engine::poll_transmit`] is called, and after it the peer is shown
//! [`Linking::taken`] and [`Linking::room`]. [`Linking::handle_end`] ends a link from outside,
//! [`Linking::poll_end`] reports one that ended inside.

use core::net::SocketAddr;

use super::packets::{PacketReceiver, is_ours};
use super::{Engine, step};
use crate::api::{OpError, PeerId};
use crate::base::{Instance, Time};
use crate::channel::{ChannelId, LinkId};
use crate::links::frame::{Frame, MAX_PAYLOAD};
use crate::links::{ClosingState, FrameSink, FrameTaken, InFlight, Room};
use crate::memory::{Memory, Payload};
use crate::outbound::{has_arrived, transmit_frames};
use crate::packet_outcome::PacketOutcome;
use crate::reliability::PeerKey;

/// A peer that was introduced: if it lives on this host, there may be a link to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acquaintance {
    /// The peer.
    pub peer: PeerId,
    /// Its address.
    pub addr: SocketAddr,
    /// Its instance.
    pub instance: Instance,
    /// We asked to be introduced. The other end is to make the link, for it knows that both know each other.
    pub asked: bool,
}

/// How a link ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEnd {
    /// The peer's process died.
    Died,
    /// The peer says that it closed the link, or cannot be understood; it lives.
    Closed,
}

/// The links of an engine: see the module's documentation.
#[derive(Debug)]
pub struct Linking<'a> {
    engine: &'a mut Engine,
}

impl Engine {
    /// Its links.
    #[inline]
    pub const fn links(&mut self) -> Linking<'_> {
        Linking { engine: self }
    }
}

impl Linking<'_> {
    /// The next peer that was introduced.
    pub fn poll_acquaintance(&mut self) -> Option<Acquaintance> {
        loop {
            let (peer, asked) = self.engine.links.next_acquainted()?;
            let state = self.engine.peers.get(peer);
            // It may have gone since.
            if let (Some(instance), true) = (state.instance(), state.is_met()) {
                return Some(Acquaintance { peer, addr: state.addr(), instance, asked });
            }
        }
    }

    /// Tells this endpoint from others that had, or have, its address.
    #[must_use]
    pub const fn instance(&self) -> Instance {
        self.engine.config.instance
    }

    /// The peer that was introduced as this instance at this address.
    #[must_use]
    pub fn introduced(&self, addr: SocketAddr, instance: Instance) -> Option<PeerId> {
        self.engine.peers.at(addr).find(|peer| {
            let state = self.engine.peers.get(*peer);
            state.is_met() && state.instance() == Some(instance)
        })
    }

    /// 128 bits that only this peer and we know, others for each `purpose`: they follow from the introduction that
    /// we `asked` for, or the peer.
    #[must_use]
    pub fn proof(&mut self, peer: PeerId, asked: bool, purpose: u64) -> Option<[u64; 2]> {
        let association = self.engine.pdcs.admissions().association(PeerKey(peer.0), asked)?;
        Some(association.proof(purpose))
    }

    /// There is a link to a peer. `None` when there was one already, or the peer is not introduced any more.
    pub fn link(&mut self, now: Time, peer: PeerId) -> Option<LinkId> {
        if self.engine.contexts.link_to(peer).is_some() || !self.engine.peers.get(peer).is_met() {
            return None;
        }
        let id = self.engine.links.add(now, peer);
        let channel = ChannelId::Link(id);
        self.engine.contexts.add(
            channel,
            peer,
            (self.engine.peers.get(peer).addr(), MAX_PAYLOAD),
            true,
        );
        self.engine.inbox.open(channel);
        self.engine.report.counters.links += 1;
        Some(id)
    }

    /// Records that the kernel will report the end of the peer's process ([`Linking::handle_end`]). Until then the
    /// engine waits for the peer, however long it takes no frames, because its process may be stopped.
    pub fn watch_process(&mut self, id: LinkId) {
        if let Some(link) = self.engine.links.get_mut(id) {
            link.watched = true;
        }
    }

    /// A frame arrived.
    #[inline]
    pub fn handle_frame<M: Memory>(
        &mut self,
        now: Time,
        mem: &mut M,
        id: LinkId,
        bytes: &[u8],
    ) -> FrameTaken {
        let taken = self.take_frame(now, mem, id, bytes);
        if taken == FrameTaken::Yes {
            self.engine.report.counters.rx_frames += 1;
        } else if taken == FrameTaken::Never {
            self.engine.report.counters.rx_malformed += 1;
            self.engine.links.give_up(id);
        }
        self.engine.drain_events(now);
        taken
    }

    #[inline]
    fn take_frame<M: Memory>(
        &mut self,
        now: Time,
        mem: &mut M,
        id: LinkId,
        bytes: &[u8],
    ) -> FrameTaken {
        let Some(link) = self.engine.links.get_mut(id) else { return FrameTaken::Never };
        let (peer, channel) = (link.peer, ChannelId::Link(id));
        let src = self.engine.peers.get(peer).addr();
        let taken = match Frame::read(bytes) {
            Some(Frame::Request(request, payload)) => {
                if !is_ours(&self.engine.config, self.engine.peers.get(peer), &request) {
                    return FrameTaken::Never;
                }
                let mut arriving = PacketReceiver::new(&mut *self.engine, mem, now, src);
                arriving.note_rx(peer);
                arriving.take_request((channel, peer), &request, payload)
            }
            Some(Frame::Short(short, payload)) => {
                let mut arriving = PacketReceiver::new(&mut *self.engine, mem, now, src);
                arriving.note_rx(peer);
                let (step, mem) = (&mut step!(arriving.engine, now), arriving.mem);
                arriving.engine.inbox.take_short(step, mem, (channel, peer), &short, payload)
            }
            Some(Frame::Write(request, len)) => {
                if !is_ours(&self.engine.config, self.engine.peers.get(peer), &request) {
                    return FrameTaken::Never;
                }
                let mut arriving = PacketReceiver::new(&mut *self.engine, mem, now, src);
                arriving.note_rx(peer);
                arriving.take_write((channel, peer), &request, Payload::Elsewhere(len.into()))
            }
            Some(Frame::Offer(request, len)) => {
                if !is_ours(&self.engine.config, self.engine.peers.get(peer), &request) {
                    return FrameTaken::Never;
                }
                let mut arriving = PacketReceiver::new(&mut *self.engine, mem, now, src);
                arriving.note_rx(peer);
                let (step, payload) =
                    (&mut step!(arriving.engine, now), Payload::Elsewhere(len.into()));
                let inbox = &mut arriving.engine.inbox;
                inbox.take_message(step, arriving.mem, (channel, peer), &request, payload)
            }
            Some(Frame::Data(header, payload)) => {
                let step = &mut step!(self.engine, now);
                let payload = Payload::Here(payload);
                self.engine.outbound.response_data(step, mem, channel, &header, payload)
            }
            Some(Frame::Reference(header, len)) => {
                let step = &mut step!(self.engine, now);
                let payload = Payload::Elsewhere(len.into());
                self.engine.outbound.response_data(step, mem, channel, &header, payload)
            }
            Some(Frame::Answer(number, response)) => {
                let Some(part) = link.answered(number) else { return FrameTaken::Never };
                self.engine.outbound.responded(&mut step!(self.engine, now), part, &response);
                PacketOutcome::Yes(None)
            }
            Some(Frame::Farewell) => {
                link.parted = true;
                PacketOutcome::Yes(None)
            }
            None => return FrameTaken::Never,
        };
        let answer = match taken {
            PacketOutcome::Yes(answer) => answer,
            PacketOutcome::Later(_) => {
                self.engine.report.counters.rx_held_back += 1;
                // An answer that the peer waits for us to take may be behind it, and it does not count what it answered.
                if let Some(link) = self.engine.links.get_mut(id) {
                    link.begin_wait(now);
                }
                return FrameTaken::Later;
            }
            PacketOutcome::No => {
                self.engine.report.counters.rx_inconsistent += 1;
                return FrameTaken::Never;
            }
        };
        if answer.is_some() {
            self.engine.contexts.activate(channel);
        }
        if let Some(link) = self.engine.links.get_mut(id) {
            link.take(answer);
        }
        FrameTaken::Yes
    }

    /// The peer has taken `count` of our frames in all, and we whatever it had to say to them: it does not show them before.
    #[inline]
    pub fn handle_taken(&mut self, now: Time, id: LinkId, count: u64) {
        let Some(link) = self.engine.links.get_mut(id) else { return };
        if !link.is_told(count) {
            self.engine.links.give_up(id);
            self.engine.drain_events(now);
            return;
        }
        let peer = link.peer;
        if link.tells(count) {
            self.wait_anew(now, id);
        }
        while let Some(frame) =
            self.engine.links.get_mut(id).and_then(|link| link.next_acked(count))
        {
            match frame {
                InFlight::Part(part) => {
                    self.engine.outbound.acked(&mut step!(self.engine, now), part, 1);
                }
                InFlight::Short(send) => self.engine.report.complete(send.completion(peer, None)),
                InFlight::Nobody | InFlight::Told => {}
            }
        }
        self.engine.drain_events(now);
    }

    /// The peer says that it has looked at the first frame that it has not taken, and has no room for it.
    #[cold]
    pub fn handle_held_back(&mut self, now: Time, id: LinkId) {
        self.wait_anew(now, id);
    }

    /// The peer has said something about the first frame that it had not taken.
    #[inline]
    fn wait_anew(&mut self, now: Time, id: LinkId) {
        if let Some(link) = self.engine.links.get_mut(id) {
            link.begin_wait(now);
            self.engine.peers.get_mut(link.peer).note_rx(now);
        }
    }

    /// Frames of the peer that it may know to be taken.
    #[must_use]
    #[inline]
    pub fn taken(&self, id: LinkId) -> u64 {
        self.engine.links.acknowledged(id)
    }

    /// Returns the room for messages of the peer that no receive matches yet. Show it to the peer after every call that
    /// may change it: the calls that handle the peer's frames, and the application's own calls.
    #[must_use]
    #[inline]
    pub fn room(&self, id: LinkId) -> Room {
        let Engine { links, inbox, config, peers, .. } = &*self.engine;
        links.get(id).map_or(Room::Ample, |link| inbox.room(link.peer, config, peers))
    }

    /// Whether [`Linking::transmit`] may have something to do.
    #[must_use]
    #[inline]
    pub fn has_frames(&self) -> bool {
        self.engine.contexts.active_links() > 0 || self.engine.links.is_holding()
    }

    /// Whether [`Engine::poll_transmit`] may have data packets to send, too.
    #[must_use]
    #[inline]
    pub fn has_packets(&self) -> bool {
        !self.engine.contexts.is_idle()
    }

    /// Puts frames that may leave now into `sink`, as many as it takes. Whether any left.
    pub fn transmit(&mut self, now: Time, sink: &mut impl FrameSink) -> bool {
        if self.engine.links.is_holding() {
            self.release_links();
        }
        let step = &mut step!(self.engine, now);
        transmit_frames(&mut self.engine.outbound, step, sink)
    }

    /// Lets links go on whose peers have got all that was sent to them as packets.
    #[cold]
    fn release_links(&mut self) {
        for id in self.engine.links.held() {
            let Some(peer) = self.engine.links.get(id).map(|link| link.peer) else { continue };
            if has_arrived(&self.engine.outbound, peer) {
                self.engine.links.release(id);
                self.engine.contexts.activate(ChannelId::Link(id));
            }
        }
    }

    /// A link is gone.
    pub fn handle_end(&mut self, now: Time, id: LinkId, how: LinkEnd) {
        let Some(link) = self.engine.links.get(id) else { return };
        let died = how == LinkEnd::Died && !link.parted;
        self.engine
            .ending(now)
            .link_over(id, if died { OpError::TimedOut } else { OpError::Closed });
        self.engine.drain_events(now);
    }

    /// The next reference that is to be revoked, by link and tag, before anything else is done that may give memory back.
    #[inline]
    pub fn poll_revoked(&mut self) -> Option<(LinkId, u64)> {
        self.engine.links.next_revoked()
    }

    /// The next link that ended, of which no frames are to be carried any more.
    pub fn poll_end(&mut self) -> Option<LinkId> {
        self.engine.links.next_ended()
    }

    /// This end closes: says farewell.
    pub(super) fn part(&mut self, id: LinkId) {
        if let Some(link) = self.engine.links.get_mut(id)
            && link.farewell == ClosingState::No
        {
            link.farewell = ClosingState::Due;
            self.engine.contexts.activate(ChannelId::Link(id));
        }
    }
}
