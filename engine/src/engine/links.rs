//! Links, as whoever carries their frames drives them.
//!
//! When [`Engine::poll_acquaintance`] tells of a peer, two endpoints of one host may find each other; each checks the
//! other's [`Engine::link_proof`], and both call [`Engine::link`]. From then on: [`Engine::handle_frame`] for each frame, in order;
//! then [`Engine::handle_taken`] with the count that the peer showed before those frames were looked for;
//! [`Engine::transmit_frames`] wherever [`Engine::poll_transmit`] is called, and after it the peer is shown
//! [`Engine::frames_taken`]. [`Engine::handle_link_end`] ends a link from outside, [`Engine::poll_link_end`]
//! tells of one that ended inside.

use core::net::SocketAddr;

use super::packets::{Arriving, is_ours};
use super::{Engine, step};
use crate::api::{OpError, PeerId};
use crate::base::{Instance, Time};
use crate::channel::{ChannelId, LinkId};
use crate::links::frame::{Frame, MAX_PAYLOAD};
use crate::links::{Farewell, FrameSink, FrameTaken};
use crate::memory::{Memory, Payload};
use crate::reliability::PeerKey;
use crate::taken::Taken;

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
    /// The peer closed the link, or cannot be understood; it lives.
    Closed,
}

impl Engine {
    /// The next peer that was introduced.
    pub fn poll_acquaintance(&mut self) -> Option<Acquaintance> {
        loop {
            let (peer, asked) = self.links.next_acquainted()?;
            let state = self.peers.get(peer);
            // It may have gone since.
            if let (Some(instance), true) = (state.instance(), state.is_met()) {
                return Some(Acquaintance { peer, addr: state.addr(), instance, asked });
            }
        }
    }

    /// The peer that was introduced as this instance at this address.
    #[must_use]
    pub fn introduced(&self, addr: SocketAddr, instance: Instance) -> Option<PeerId> {
        self.peers.at(addr).find(|peer| {
            let state = self.peers.get(*peer);
            state.is_met() && state.instance() == Some(instance)
        })
    }

    /// 128 bits that only this peer and we know, others for each `purpose`: they follow from the introduction that
    /// we `asked` for, or the peer.
    #[must_use]
    pub fn link_proof(&mut self, peer: PeerId, asked: bool, purpose: u64) -> Option<[u64; 2]> {
        let association = self.pdcs.admissions().association(PeerKey(peer.0), asked)?;
        Some(association.proof(purpose))
    }

    /// There is a link to a peer. `None` when there was one already, or the peer is not introduced any more.
    pub fn link(&mut self, peer: PeerId) -> Option<LinkId> {
        if self.contexts.link_to(peer).is_some() || !self.peers.get(peer).is_met() {
            return None;
        }
        let id = self.links.add(peer);
        let channel = ChannelId::Link(id);
        self.contexts.add(channel, peer, (self.peers.get(peer).addr(), MAX_PAYLOAD), true);
        self.inbox.open(channel);
        self.report.counters.links += 1;
        Some(id)
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
            self.report.counters.rx_frames += 1;
        } else if taken == FrameTaken::Never {
            self.report.counters.rx_malformed += 1;
            self.links.give_up(id);
        }
        self.drain_events(now);
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
        let Some(link) = self.links.get_mut(id) else { return FrameTaken::Never };
        let (peer, channel) = (link.peer, ChannelId::Link(id));
        let src = self.peers.get(peer).addr();
        let taken = match Frame::read(bytes) {
            Some(Frame::Request(request, payload)) => {
                if !is_ours(&self.config, self.peers.get(peer), &request) {
                    return FrameTaken::Never;
                }
                let mut arriving = Arriving { engine: self, mem, now, src };
                arriving.note_rx(peer);
                arriving.take_request((channel, peer), &request, payload)
            }
            Some(Frame::Data(header, payload)) => {
                let step = &mut step!(self, now);
                let payload = Payload::Here(payload);
                self.outbound.response_data(step, mem, channel, &header, payload)
            }
            Some(Frame::Reference(header, len)) => {
                let step = &mut step!(self, now);
                let payload = Payload::Elsewhere(len.into());
                self.outbound.response_data(step, mem, channel, &header, payload)
            }
            Some(Frame::Answer(number, response)) => {
                let Some(part) = link.answered(number) else { return FrameTaken::Never };
                self.outbound.responded(&mut step!(self, now), part, &response);
                Taken::Yes(None)
            }
            Some(Frame::Farewell) => {
                link.parted = true;
                Taken::Yes(None)
            }
            None => return FrameTaken::Never,
        };
        let answer = match taken {
            Taken::Yes(answer) => answer,
            Taken::Later(_) => {
                self.report.counters.rx_held_back += 1;
                return FrameTaken::Later;
            }
            Taken::No => {
                self.report.counters.rx_inconsistent += 1;
                return FrameTaken::Never;
            }
        };
        if answer.is_some() {
            self.contexts.activate(channel);
        }
        if let Some(link) = self.links.get_mut(id) {
            link.take(answer);
        }
        FrameTaken::Yes
    }

    /// The peer has taken `count` of our frames in all, and whatever it had to say to them has been handled.
    #[inline]
    pub fn handle_taken(&mut self, now: Time, id: LinkId, count: u64) {
        let Some(link) = self.links.get_mut(id) else { return };
        if !link.is_told(count) {
            self.links.give_up(id);
            self.drain_events(now);
            return;
        }
        while let Some(part) = self.links.get_mut(id).and_then(|link| link.next_acked(count)) {
            if let Some(part) = part {
                self.outbound.acked(&mut step!(self, now), part);
            }
        }
        self.drain_events(now);
    }

    /// Frames of the peer that it may know to be taken.
    #[must_use]
    #[inline]
    pub fn frames_taken(&self, id: LinkId) -> u64 {
        self.links.acknowledged(id)
    }

    /// Whether [`Engine::transmit_frames`] may have something to do.
    #[must_use]
    #[inline]
    pub fn has_frames(&self) -> bool {
        self.contexts.active_links() > 0 || self.links.is_holding()
    }

    /// Puts frames that may leave now into `sink`, as many as it takes. Whether any left.
    pub fn transmit_frames(&mut self, now: Time, sink: &mut impl FrameSink) -> bool {
        if self.links.is_holding() {
            self.release_links();
        }
        self.outbound.transmit_frames(&mut step!(self, now), sink)
    }

    /// Lets links go on whose peers have got all that was sent to them as packets.
    #[cold]
    fn release_links(&mut self) {
        for id in self.links.held() {
            let Some(peer) = self.links.get(id).map(|link| link.peer) else { continue };
            if self.outbound.has_arrived(peer) {
                self.links.release(id);
                self.contexts.activate(ChannelId::Link(id));
            }
        }
    }

    /// A link is gone.
    pub fn handle_link_end(&mut self, now: Time, id: LinkId, how: LinkEnd) {
        let Some(link) = self.links.get(id) else { return };
        let died = how == LinkEnd::Died && !link.parted;
        self.ending(now).link_over(id, if died { OpError::TimedOut } else { OpError::Closed });
        self.drain_events(now);
    }

    /// The next reference that is to be revoked, by link and tag, before anything else is done that may give memory back.
    #[inline]
    pub fn poll_revoked(&mut self) -> Option<(LinkId, u64)> {
        self.links.next_revoked()
    }

    /// The next link that ended, of which no frames are to be carried any more.
    pub fn poll_link_end(&mut self) -> Option<LinkId> {
        self.links.next_ended()
    }

    /// This end closes: says farewell.
    pub(super) fn part_from_link(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(id)
            && link.farewell == Farewell::No
        {
            link.farewell = Farewell::Due;
            self.contexts.activate(ChannelId::Link(id));
        }
    }
}
