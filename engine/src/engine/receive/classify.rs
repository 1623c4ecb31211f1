//! The second step of receiving: the sender of a packet, its context, and whether the packet is
//! new. A packet is looked up once; the transport gets the result.

use super::PacketReceiver;
use super::parse::DataPacket;
use crate::completion::OpError;
use crate::config::Config;
use crate::engine::step;
use crate::memory::Memory;
use crate::operation::PeerId;
use crate::packet_form::PacketForm;
use crate::peers::{Initiator, PeerState};
use crate::reliability::{
    Arrival, Delivery, NamedContext, Origin, PdcId, PeerKey, Refusal, RxVerdict, cc,
};
use crate::wire::{self, Dest, Packet, Ses, StdRequest};

impl<M: Memory> PacketReceiver<'_, M> {
    /// Finds the sender of a data packet, and the context that the packet names.
    #[inline]
    pub(super) fn find_origin(&mut self, data: &DataPacket<'_>) -> Option<Origin> {
        match data.pds.dest {
            Dest::Pdc(number) => match self.engine.pdcs.find_context(number) {
                Some(context) => self.check_source(context).map(Into::into),
                None => {
                    self.reject(data.pds, data.ses);
                    None
                }
            },
            Dest::Syn { .. } => self.find_initiator(data.pds, data.ses),
        }
    }

    /// Returns the peer that sent a data packet, and the transport's token, if the packet is new and
    /// the engine must process it.
    #[inline]
    pub(super) fn classify(
        &mut self,
        origin: Origin,
        data: &DataPacket<'_>,
        arrival: &Arrival,
    ) -> Option<(PeerId, Delivery)> {
        let &DataPacket { pds, ses, .. } = data;
        let peer = PeerId(origin.peer().0);
        if let Ses::Std(request) = ses
            && !is_addressed_to_us(&self.engine.config, self.engine.peers.get(peer), request)
        {
            self.engine.report.counters.rx_foreign += 1;
            if !self.engine.peers.get(peer).is_verified() {
                // The peer has a context to an earlier endpoint at this address.
                self.reject(pds, ses);
            }
            return None;
        }
        match self.engine.pdcs.rx_request(self.now, origin, pds, arrival) {
            RxVerdict::Deliver(delivery) => {
                self.record_rx(peer);
                if self.engine.contexts.get(delivery.id().into()).is_none() {
                    self.register_context(delivery.id(), peer);
                }
                return Some((peer, delivery));
            }
            RxVerdict::Duplicate | RxVerdict::Trimmed => self.record_rx(peer),
            RxVerdict::Refused(Refusal::Unverified) => self.reject(pds, ses),
            // The number names different contexts at the two ends, so one of them has restarted.
            RxVerdict::Refused(Refusal::Mismatch) if matches!(pds.dest, Dest::Pdc(_)) => {
                self.reject(pds, ses);
            }
            RxVerdict::Refused(_) => {}
        }
        None
    }

    /// Handles a packet that is no data packet. The telemetry records of switches describe the
    /// packet that an acknowledgement is about.
    #[inline]
    pub(super) fn handle_packet_without_data(
        &mut self,
        packet: Result<Packet<'_>, wire::ParseError>,
        telemetry: &cc::Hops,
    ) {
        let (context, accepted) = match packet {
            Ok(Packet::Ack { pds, ses, .. }) => {
                let Some(context) = self.find_context(pds.dpdcid) else { return };
                let response = match &ses {
                    Ses::Response(response) => Some(response),
                    _ => None,
                };
                let pdcs = &mut self.engine.pdcs;
                (context, pdcs.rx_ack(self.now, context, &pds, response, telemetry))
            }
            Ok(Packet::Nack(nack)) => {
                let Some(context) = self.find_context(nack.dpdcid) else { return };
                (context, self.engine.pdcs.rx_nack(self.now, context, &nack))
            }
            Ok(Packet::Control(control)) => {
                let Dest::Pdc(number) = control.dest else {
                    // Control packets never open a context.
                    self.engine.report.counters.rx_foreign += 1;
                    return;
                };
                let Some(context) = self.find_context(number) else { return };
                (context, self.engine.pdcs.rx_control(self.now, context, &control))
            }
            Ok(Packet::Negotiation { values, .. }) => return self.handle_negotiation(values),
            Ok(Packet::Rates(packet)) => return self.handle_rates(&packet),
            // RUDI and UUD are not used between our endpoints. The driver of an endpoint that encrypts
            // opens TSS packets before the engine gets them.
            Ok(_) => {
                self.engine.report.counters.rx_foreign += 1;
                return;
            }
            Err(_) => {
                self.engine.report.counters.rx_malformed += 1;
                return;
            }
        };
        if accepted {
            self.record_rx(PeerId(context.peer.0));
        }
    }

    /// Returns the context that a packet names by `number`, if the packet came from its peer's
    /// address.
    #[inline]
    pub(super) fn find_context(&mut self, number: u16) -> Option<NamedContext> {
        match self.engine.pdcs.find_context(number) {
            Some(context) => self.check_source(context),
            None => {
                self.engine.report.counters.rx_foreign += 1;
                None
            }
        }
    }

    /// Returns the context if the packet came from its peer's address, and counts the packet
    /// otherwise.
    #[inline]
    fn check_source(&mut self, context: NamedContext) -> Option<NamedContext> {
        let is_from = self.is_from(context);
        self.engine.report.counters.rx_foreign += u64::from(!is_from);
        is_from.then_some(context)
    }

    /// Returns whether the packet came from the address of the context's peer.
    #[inline]
    pub(super) fn is_from(&self, context: NamedContext) -> bool {
        let peer = self.engine.peers.get(PeerId(context.peer.0));
        peer.addr().ip() == self.src.ip()
    }

    /// Returns the verified peer that sent a SYN, identified by its address, the port that it claims
    /// to listen on, and its instance. An unverified peer is sent a rejection.
    #[cold]
    pub(super) fn find_initiator(&mut self, pds: &wire::Request, ses: &Ses) -> Option<Origin> {
        let request = match ses {
            Ses::Std(request) if request.job_id == self.engine.config.job_id => request,
            _ => {
                self.engine.report.counters.rx_foreign += 1;
                return None;
            }
        };
        let who = Initiator::from_field(request.initiator);
        let peer = self.engine.peers.find_verified(self.src.ip(), who);
        if peer.is_none() {
            self.reject(pds, ses);
        }
        peer.map(|peer| PeerKey(peer.0).into())
    }

    /// Sends the source of a packet the NACK that its context, or the source itself, is unknown
    /// here.
    #[cold]
    fn reject(&mut self, pds: &wire::Request, ses: &Ses) {
        let step = &mut step!(self.engine, self.now);
        self.engine.unmatched.send_nack(step, self.src, (pds, ses));
    }

    /// Records that a packet of a peer was accepted, which shows that the peer is alive.
    #[inline]
    pub(in crate::engine) fn record_rx(&mut self, peer: PeerId) {
        if self.engine.peers.get_mut(peer).record_rx(self.now) {
            self.engine.outbound.complete_short_sends(
                &mut step!(self.engine, self.now),
                self.mem,
                peer,
            );
        }
    }

    /// Registers a context that a peer has opened. An initiator has only one open context at a
    /// time, so messages that are incomplete on the previous one fail.
    #[cold]
    pub(super) fn register_context(&mut self, id: PdcId, peer: PeerId) {
        let state = self.engine.peers.get(peer);
        let addr = state.addr();
        let form = PacketForm::new(&self.engine.config, state, false);
        let former = self.engine.contexts.add(
            id.into(),
            peer,
            (addr, self.engine.peers.paths.get(addr.ip()), form),
            false,
        );
        self.engine.inbox.open_stream(id.into());
        if let Some(former) = former {
            let (step, former) = (&mut step!(self.engine, self.now), former.into());
            self.engine.inbox.abort_incomplete(step, former, OpError::Closed);
        }
    }
}

/// Returns whether a request is meant for this endpoint and comes from the instance that owns the
/// context.
#[inline]
pub(in crate::engine) fn is_addressed_to_us(
    config: &Config,
    peer: &PeerState,
    request: &StdRequest,
) -> bool {
    request.job_id == config.job_id
        && request.pid_on_fep == config.pid_on_fep
        && peer.is_instance(Initiator::from_field(request.initiator))
}
