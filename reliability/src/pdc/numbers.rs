//! The numbers that identify a context, and the headers that carry them.

use super::detour::Detour;
use crate::base::Psn;
use crate::cc;
use crate::tx::Departure;
use crate::types::{ControlPacket, PdcId, PeerKey, TxGrant};
use crate::wire::{
    Ack, AckExt, AckRequest, Ccc, Control, ControlKind, Dest, Mode, Nack, NackCode, NextHeader,
    Request, Speculation,
};

/// Returns congestion control's state for a request as the wire's header field CCC.
#[inline]
const fn ccc_of(state: cc::RequestState) -> Ccc {
    match state {
        cc::RequestState::Demand(target) => {
            Ccc { ccc_id: 0, credit_target: cc::credit_units(target) }
        }
        cc::RequestState::Speculative(cc::Speculation { epoch, number, weight }) => {
            Speculation { epoch, number, weight }.pack()
        }
    }
}

/// The numbers that identify a context at this end and in packets.
#[derive(Debug)]
pub(crate) struct Numbers {
    pub(crate) id: PdcId,
    pub(crate) peer: PeerKey,
    /// This end's number of the context on the wire; 0 names no context.
    pub(crate) local: u16,
    /// The peer's number of the context on the wire; zero until the peer has answered.
    pub(crate) remote: u16,
    /// The first PSN of the context, which is the same in both directions.
    pub(crate) start: Psn,
}

impl Numbers {
    /// Returns whether the peer's context number is known: the peer has answered.
    #[inline]
    pub(crate) const fn is_connected(&self) -> bool {
        self.remote != 0
    }

    /// Sets the peer's number of the context, unless it is known already.
    #[inline]
    pub(super) fn connect(&mut self, remote: u16) {
        if !self.is_connected() {
            self.remote = remote;
        }
    }

    /// Returns the permission to send a packet that leaves, with its PDS header.
    #[inline]
    pub(super) fn grant(&self, departure: &Departure, detour: Detour, mode: Mode) -> TxGrant {
        let psn = departure.psn;
        let dest = if self.is_connected() {
            Dest::Pdc(self.remote)
        } else {
            // Before the context is connected, the window starts at `start` and has at most 4095
            // packets.
            let psn_offset = psn.distance(self.start).clamp(0, 4095) as u16;
            Dest::Syn { use_rsv_pdc: false, psn_offset }
        };
        TxGrant {
            psn,
            path: detour.entropy(departure.path),
            pds: Request {
                mode,
                next: NextHeader::None,
                retx: departure.retx,
                ack_request: departure.ask,
                clear_psn_offset: departure.clear_psn_offset,
                psn,
                spdcid: self.local,
                dest,
                ccc: departure.state.map(ccc_of),
            },
        }
    }

    /// Returns a NACK that refuses the packet `psn`; `end` is one past the newest packet received.
    pub(super) fn nack(
        &self,
        psn: Psn,
        retx: bool,
        ce: bool,
        code: NackCode,
        end: Psn,
    ) -> ControlPacket {
        ControlPacket::Nack(Nack {
            ce,
            retx,
            rudi: false,
            code,
            vendor_code: 0,
            psn,
            spdcid: self.local,
            dpdcid: self.remote,
            payload: end.0,
            ccx: None,
        })
    }

    /// Returns a congestion notification packet: an ACK that is marked and carries no
    /// congestion-control state.
    pub(super) const fn notification(&self, cack: Psn) -> ControlPacket {
        ControlPacket::Ack {
            pds: Ack {
                next: NextHeader::None,
                ce: true,
                retx: false,
                probe: false,
                request: AckRequest::None,
                ack_psn_offset: 0,
                cack_psn: cack,
                spdcid: self.local,
                dpdcid: self.remote,
                ext: AckExt::None,
            },
            response: None,
        }
    }

    /// Returns a control packet of this context with the given kind, PSN and payload.
    pub(super) const fn control(&self, kind: ControlKind, psn: Psn, payload: u32) -> Control {
        Control {
            kind,
            isrod: false,
            retx: false,
            ack_request: false,
            probe_opaque: 0,
            psn,
            spdcid: self.local,
            dest: Dest::Pdc(self.remote),
            payload,
        }
    }
}
