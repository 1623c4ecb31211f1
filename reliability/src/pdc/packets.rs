//! The headers of what a context sends.

use super::{Pdc, Phase, mpr};
use crate::base::{Psn, Time};
use crate::cc::{self, ReceiverCc};
use crate::rx::AckBody;
use crate::shared::Shared;
use crate::tx::Departure;
use crate::types::{ControlPacket, TxGrant};
use crate::wire::{
    Ack, AckCc, AckExt, AckRequest, CcState, Ccc, Control, ControlKind, Dest, Mode, Nack, NackCode,
    NextHeader, NsccState, Request,
};

impl<D: Copy> Pdc<D> {
    /// This end's number on the wire. Slots are below 65535; 0 names no context.
    #[inline]
    const fn local(&self) -> u16 {
        self.id.slot_number() + 1
    }

    /// The header of a departing packet.
    #[inline]
    pub(super) fn grant(&self, departure: &Departure) -> TxGrant {
        let psn = departure.psn;
        let dest = if self.is_connected() {
            Dest::Pdc(self.remote)
        } else {
            // Unconnected, the window starts at `start`, and is at most 4095 packets.
            let psn_offset = psn.distance(self.start).clamp(0, 4095) as u16;
            Dest::Syn { use_rsv_pdc: false, psn_offset }
        };
        TxGrant {
            psn,
            path: departure.path,
            pds: Request {
                mode: Mode::Rud,
                next: NextHeader::None,
                retx: departure.retx,
                ack_request: departure.ask,
                clear_psn_offset: departure.clear_psn_offset,
                psn,
                spdcid: self.local(),
                dest,
                ccc: departure
                    .demand
                    .map(|target| Ccc { ccc_id: 0, credit_target: cc::credit_units(target) }),
            },
        }
    }

    /// A NACK for the packet `psn`.
    pub(super) fn nack(&self, psn: Psn, retx: bool, ce: bool, code: NackCode) -> ControlPacket {
        ControlPacket::Nack(Nack {
            ce,
            retx,
            rudi: false,
            code,
            vendor_code: 0,
            psn,
            spdcid: self.local(),
            dpdcid: self.remote,
            payload: self.rx.window().end().0,
            ccx: None,
        })
    }

    /// Tells the peer that it may have sent `cumulative` bytes in all.
    pub(crate) fn credit(&self, cumulative: u64) -> ControlPacket {
        let units = cc::credit_units(cumulative);
        ControlPacket::Control(self.control(
            ControlKind::Credit,
            self.tx.ring().next().minus(1),
            units,
        ))
    }

    /// A congestion notification packet: an ACK that is marked and carries no congestion-control state.
    pub(crate) fn notification(&self) -> ControlPacket {
        ControlPacket::Ack {
            pds: Ack {
                next: NextHeader::None,
                ce: true,
                retx: false,
                probe: false,
                request: AckRequest::None,
                ack_psn_offset: 0,
                cack_psn: self.rx.cack(),
                spdcid: self.local(),
                dpdcid: self.remote,
                ext: AckExt::None,
            },
            response: None,
        }
    }

    pub(super) const fn control(&self, kind: ControlKind, psn: Psn, payload: u32) -> Control {
        Control {
            kind,
            isrod: false,
            retx: false,
            ack_request: false,
            probe_opaque: 0,
            psn,
            spdcid: self.local(),
            dest: Dest::Pdc(self.remote),
            payload,
        }
    }

    #[inline]
    pub(super) fn ack(
        &mut self,
        now: Time,
        body: &AckBody,
        shared: &mut Shared<D>,
    ) -> ControlPacket {
        let mut signals =
            cc::AckSignals { ooo: Some(self.rx.window().ahead()), ..cc::AckSignals::default() };
        shared.receiver.fill_ack(now, self.rx.flow_mut(), &mut signals);
        // Offsets reach at most two windows.
        let offset = |psn: Psn| i16::try_from(psn.distance(body.cack)).unwrap_or(0);
        let request = match self.life.phase() {
            Phase::Draining if !self.life.is_initiator() => AckRequest::Close,
            // The initiator clears of its own accord when it gets a response.
            _ if self.rx.wants_clear() && body.response.is_none() => AckRequest::Clear,
            _ => AckRequest::None,
        };
        let ooo_count = signals.ooo.unwrap_or(u16::MAX);
        let state = match signals.credit {
            Some(credit) => CcState::Credit { credit: cc::credit_units(credit), ooo_count },
            None => CcState::Nscc(NsccState {
                service_time: body.service_time,
                restore_cwnd: signals.restore_cwnd,
                rcv_cwnd_pend: signals.penalty,
                rcvd_bytes: signals.received_units(),
                ooo_count,
            }),
        };
        let pds = Ack {
            next: if body.response.is_some() { NextHeader::Response } else { NextHeader::None },
            ce: signals.echo_ecn.unwrap_or(body.ce),
            retx: body.retx,
            probe: body.probe.is_some(),
            request: if self.life.is_initiator() { AckRequest::None } else { request },
            ack_psn_offset: match body.probe {
                Some(opaque) => opaque.cast_signed(),
                None => offset(body.ack_psn),
            },
            cack_psn: body.cack,
            spdcid: self.local(),
            dpdcid: self.remote,
            ext: AckExt::Cc(AckCc {
                mpr: mpr(&shared.config),
                sack_psn_offset: offset(body.sack_base),
                sack_bitmap: body.bitmap,
                state,
            }),
        };
        ControlPacket::Ack { pds, response: body.response }
    }

    /// The acknowledgement of a Close Command, with which the context ends.
    pub(super) fn last_ack(
        &mut self,
        now: Time,
        psn: Psn,
        shared: &mut Shared<D>,
    ) -> ControlPacket {
        let body = AckBody {
            cack: psn,
            ack_psn: psn,
            probe: None,
            sack_base: psn.plus(1),
            bitmap: 0,
            service_time: 1,
            ce: false,
            retx: false,
            response: None,
        };
        shared.counters.tx_acks += 1;
        self.ack(now, &body, shared)
    }
}
