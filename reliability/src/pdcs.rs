//! All contexts of one endpoint.

use std::collections::VecDeque;

use crate::base::{Psn, Time};
use crate::wire;
use crate::{
    Blocked, Config, ControlOut, Counters, Event, PdcId, PdcInfo, PeerKey, RxMeta, RxVerdict,
    TxGrant, TxPacket,
};

/// All packet delivery contexts of one endpoint. `D` is the engine's descriptor of a packet. The
/// crate documentation gives the order of calls.
#[derive(Debug)]
pub struct Pdcs<D> {
    config: Config,
    counters: Counters,
    events: VecDeque<Event<D>>,
}

impl<D: Copy> Pdcs<D> {
    /// No contexts yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config, counters: Counters::default(), events: VecDeque::new() }
    }

    // Commands.

    /// Opens a context to `peer` as its initiator. Packets may be sent at once (0-RTT); the peer learns
    /// of the context from the first of them. `None` when [`Config::max_contexts`] exist.
    pub fn open(&mut self, now: Time, peer: PeerKey) -> Option<PdcId> {
        let (_, _) = (now, peer);
        None
    }

    /// Closes a context in an orderly way once everything sent on it is acknowledged; then
    /// [`Event::Closed`]. From now on it takes no new packets. At the target's end, asks the initiator
    /// to do so.
    pub fn close(&mut self, now: Time, id: PdcId) {
        let (_, _) = (now, id);
    }

    /// Forgets a context at once: [`Event::Lost`] for what is outstanding, then [`Event::Failed`].
    pub fn abort(&mut self, id: PdcId) {
        let _ = id;
    }

    /// Keeps a context from being closed as idle (`busy`), because something is still to come on it
    /// that only the engine knows of, such as response data; or no longer.
    pub fn set_busy(&mut self, now: Time, id: PdcId, busy: bool) {
        let (_, _, _) = (now, id, busy);
    }

    /// `peer` is another epoch now: all its contexts fail, and what was remembered about it is
    /// forgotten.
    pub fn peer_restarted(&mut self, peer: PeerKey) {
        let _ = peer;
    }

    /// Asks to send a packet for the first time on context `id`, from whichever end this is.
    ///
    /// # Errors
    /// Why it may not be sent now.
    pub fn next_packet(
        &mut self,
        now: Time,
        id: PdcId,
        packet: &TxPacket<D>,
    ) -> Result<TxGrant, Blocked> {
        let (_, _, _) = (now, id, packet);
        Err(Blocked::Gone)
    }

    /// The next packet of context `id` that must be sent again, if it may go now. Retransmissions come
    /// before new packets.
    pub fn poll_retransmit(&mut self, now: Time, id: PdcId) -> Option<(TxGrant, D)> {
        let (_, _) = (now, id);
        None
    }

    // What happened.

    /// Whose context a packet without SYN names with `dpdcid`. The engine compares the peer's address
    /// with the packet's source before it hands the packet in.
    #[must_use]
    pub fn peer_of(&self, dpdcid: u16) -> Option<PeerKey> {
        let _ = dpdcid;
        None
    }

    /// A data packet arrived from `peer` (for a SYN, resolved from its address and epoch; else from
    /// [`Pdcs::peer_of`] and compared with its source address).
    pub fn rx_request(
        &mut self,
        now: Time,
        peer: PeerKey,
        pds: &wire::Request,
        meta: &RxMeta,
    ) -> RxVerdict {
        let (_, _, _, _) = (now, peer, pds, meta);
        RxVerdict::Duplicate
    }

    /// What to answer to a data packet for a context that does not exist here ([`Pdcs::peer_of`] said
    /// `None`); counted. The engine sends it to the packet's sender if it can tell the address.
    pub fn reject(&mut self, pds: &wire::Request) -> Option<wire::Nack> {
        let _ = pds;
        None
    }

    /// The engine took the packet that was delivered last. `response`, if any, is delivered with
    /// certainty; without one, the peer learns the default response.
    pub fn accept(&mut self, now: Time, id: PdcId, psn: Psn, response: Option<wire::Response>) {
        let (_, _, _, _) = (now, id, psn, response);
    }

    /// The engine cannot take the packet that was delivered last: the peer is told `code`, and sends
    /// it again later.
    pub fn refuse(&mut self, now: Time, id: PdcId, psn: Psn, code: wire::NackCode) {
        let (_, _, _, _) = (now, id, psn, code);
    }

    /// An ACK arrived from `peer`, with the SES response if it carried one. `false` when it was not
    /// believed.
    pub fn rx_ack(
        &mut self,
        now: Time,
        peer: PeerKey,
        ack: &wire::Ack,
        response: Option<&wire::Response>,
    ) -> bool {
        let (_, _, _, _) = (now, peer, ack, response);
        false
    }

    /// A NACK arrived from `peer`. `false` when it was not believed.
    pub fn rx_nack(&mut self, now: Time, peer: PeerKey, nack: &wire::Nack) -> bool {
        let (_, _, _) = (now, peer, nack);
        false
    }

    /// A control packet arrived from `peer`. `false` when it was not believed.
    pub fn rx_control(&mut self, now: Time, peer: PeerKey, control: &wire::Control) -> bool {
        let (_, _, _) = (now, peer, control);
        false
    }

    // What to do next.

    /// The next packet without data to send; acknowledgements of one context are coalesced since the
    /// last round.
    pub fn poll_control(&mut self, now: Time) -> Option<ControlOut> {
        let _ = now;
        None
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event<D>> {
        self.events.pop_front()
    }

    /// When [`Pdcs::handle_timeout`] wants to be called; `None` for never. May be early.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Time) {
        let _ = now;
    }

    // Getters.

    /// What was counted so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The parameters.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// A context as seen from outside; `None` when it is gone.
    #[must_use]
    pub fn info(&self, id: PdcId) -> Option<PdcInfo> {
        let _ = id;
        None
    }
}
