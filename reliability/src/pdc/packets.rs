//! The acknowledgements of a context, and the packets of its receiver's congestion control.

use super::{Pdc, Phase, mpr};
use crate::base::{Psn, Time};
use crate::cc::{self, ReceiverCc};
use crate::rx::AckBody;
use crate::shared::Shared;
use crate::types::{ControlOut, ControlPacket};
use crate::wire::{
    Ack, AckCc, AckCcx, AckExt, AckRequest, CcState, ControlKind, DartState, NextHeader, NsccState,
};

impl<D: Copy> Pdc<D> {
    /// Returns the packet that the receiver's congestion control sends to the peer: a grant of
    /// `credit` bytes in all, or a congestion notification.
    pub(crate) fn receiver_out(&self, credit: Option<u64>) -> ControlOut {
        let packet = match credit {
            Some(cumulative) => {
                let (newest, units) =
                    (self.tx.ring().next().minus(1), cc::credit_units(cumulative));
                ControlPacket::Control(self.numbers.control(ControlKind::Credit, newest, units))
            }
            None => self.numbers.notification(self.rx.cack()),
        };
        self.control_path.control_out(self.numbers.peer, packet)
    }

    /// Returns an ACK packet with the content of `body` and the signals of the receiver's
    /// congestion control.
    #[inline]
    pub(super) fn ack(
        &mut self,
        now: Time,
        body: &AckBody,
        shared: &mut Shared<D>,
    ) -> ControlPacket {
        shared.counters.tx_acks += 1;
        let mut signals =
            cc::AckSignals { ooo: Some(self.rx.window().ahead()), ..cc::AckSignals::default() };
        shared.receiver.fill_ack(now, self.rx.flow_mut(), &mut signals);
        if shared.config.acks.telemetry {
            shared.echo = *self.rx.rare_mut().telemetry();
        }
        // Offsets reach at most two windows.
        let offset = |psn: Psn| i16::try_from(psn.distance(body.cack)).unwrap_or(0);
        let request = match self.life.phase() {
            Phase::Draining if !self.life.is_initiator() => AckRequest::Close,
            // The initiator clears a response without being asked when it receives it.
            _ if self.rx.should_request_clear()
                && (body.response.is_none() || shared.config.dialect.answers) =>
            {
                AckRequest::Clear
            }
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
        let (mpr, sack_psn_offset) = (mpr(&shared.config), offset(body.sack_base));
        let pds = Ack {
            next: if body.response.is_some() { NextHeader::Response } else { NextHeader::None },
            ce: body.ce && !signals.hide_marks,
            retx: body.retx,
            probe: body.probe.is_some(),
            request: if self.life.is_initiator() { AckRequest::None } else { request },
            ack_psn_offset: match body.probe {
                Some(opaque) => opaque.cast_signed(),
                None => offset(body.ack_psn),
            },
            cack_psn: body.cack,
            spdcid: self.numbers.local,
            dpdcid: self.numbers.remote,
            ext: match signals.share {
                _ if !shared.config.dialect.ack_state => AckExt::None,
                None => AckExt::Cc(AckCc { mpr, sack_psn_offset, sack_bitmap: body.bitmap, state }),
                Some(share) => {
                    let state = DartState {
                        service_time: body.service_time,
                        congestion: signals.state as u8,
                        senders: share.senders(),
                        share: share.share(),
                        ooo_count,
                    };
                    let (cc_type, state) = (DartState::CC_TYPE, state.pack());
                    let sack_bitmap = body.bitmap;
                    AckExt::Ccx(AckCcx { cc_type, mpr, sack_psn_offset, sack_bitmap, state })
                }
            },
        };
        ControlPacket::Ack { pds, response: body.response }
    }
}
