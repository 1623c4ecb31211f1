//! A sender whose peer is the test.

#![allow(dead_code)] // no test uses all of it

use squall_reliability::base::{Psn, Span, Time};
use squall_reliability::cc::Hops;
use squall_reliability::wire::{
    Ack, AckCc, AckExt, AckRequest, CcState, Nack, NackCode, NextHeader, NsccState, Request,
};
use squall_reliability::{Config, ControlPacket, Event, NewPacket, PdcId, Pdcs, SendError};

use crate::link::PEER;

/// A connected sender whose peer is the test.
pub(crate) struct Sender {
    pub(crate) pdcs: Pdcs<u32>,
    pub(crate) id: PdcId,
    pub(crate) now: Time,
    pub(crate) start: Psn,
    pub(crate) sent: u32,
}

/// A peer's ACK_CC up to `cack`, with a SACK map that begins one after it, or later.
#[derive(Clone, Copy)]
pub(crate) struct Says {
    pub(crate) cack: i32,
    pub(crate) map: u64,
    /// The first packet of the SACK map; 0 for the one after `cack`.
    pub(crate) map_at: i32,
    pub(crate) ooo: u16,
    pub(crate) about: i32,
    pub(crate) ce: bool,
    pub(crate) retx: bool,
    pub(crate) service: u16,
    pub(crate) probe: Option<u16>,
}

pub(crate) const PLAIN: Says = Says {
    cack: 0,
    map: 0,
    map_at: 0,
    ooo: 0,
    about: 0,
    ce: false,
    retx: false,
    service: 1,
    probe: None,
};

impl Sender {
    /// Makes a connected sender with packet 0 acknowledged.
    pub(crate) fn new(config: Config) -> Self {
        let mut pdcs = Pdcs::new(config);
        let now = Time(1_000_000);
        let id = pdcs.open(now, PEER).unwrap();
        let mut sender = Self { pdcs, id, now, start: Psn(0), sent: 0 };
        let grant = sender.send(1)[0];
        sender.start = grant.psn;
        sender.now += Span::micros(20);
        assert!(sender.ack(PLAIN));
        assert_eq!(sender.pdcs.poll_event(), Some(Event::Acked { id, desc: 0, count: 1 }));
        assert_eq!(sender.pdcs.poll_event(), None);
        sender
    }

    pub(crate) fn try_send(&mut self, bytes: u32) -> Result<Request, SendError> {
        let packet = NewPacket { desc: self.sent, bytes, last: false, prompt: false, backlog: 0 };
        let grant = self.pdcs.next_packet(self.now, self.id, &packet)?;
        self.sent += 1;
        Ok(grant.pds)
    }

    pub(crate) fn send(&mut self, count: u32) -> Vec<Request> {
        (0..count).map(|_| self.try_send(4096).unwrap()).collect()
    }

    /// Sends all retransmissions that may leave now. Returns their numbers.
    pub(crate) fn resent(&mut self) -> Vec<u32> {
        let mut all = Vec::new();
        while let Some((grant, desc)) = self.pdcs.poll_retransmit(self.now, self.id) {
            assert!(grant.pds.retx && grant.pds.ack_request);
            assert_eq!(grant.psn, self.start.plus(desc));
            all.push(desc);
        }
        all
    }

    pub(crate) fn ack(&mut self, says: Says) -> bool {
        let at = |n: i32| self.start.0.wrapping_add_signed(n);
        let about = i16::try_from(says.about - says.cack).unwrap();
        let ack = Ack {
            next: NextHeader::None,
            ce: says.ce,
            retx: says.retx,
            probe: says.probe.is_some(),
            request: AckRequest::None,
            ack_psn_offset: says.probe.map_or(about, u16::cast_signed),
            cack_psn: Psn(at(says.cack)),
            spdcid: 9,
            dpdcid: 1,
            ext: AckExt::Cc(AckCc {
                mpr: 16,
                sack_psn_offset: i16::try_from((says.map_at - says.cack).max(1)).unwrap(),
                sack_bitmap: says.map,
                state: CcState::Nscc(NsccState {
                    service_time: says.service,
                    ooo_count: says.ooo,
                    ..NsccState::default()
                }),
            }),
        };
        // The first ACK is about the packet whose number is the start.
        self.pdcs.rx_ack(self.now, PEER, &ack, None, Hops::NONE)
    }

    pub(crate) fn nack(&mut self, n: u32, code: NackCode, retx: bool) -> bool {
        let nack = Nack {
            ce: false,
            retx,
            rudi: false,
            code,
            vendor_code: 0,
            psn: self.start.plus(n),
            spdcid: 9,
            dpdcid: 1,
            payload: 0,
            ccx: None,
        };
        self.pdcs.rx_nack(self.now, PEER, &nack)
    }

    pub(crate) fn events(&mut self) -> Vec<Event<u32>> {
        core::iter::from_fn(|| self.pdcs.poll_event()).collect()
    }

    pub(crate) fn ready(&mut self) -> bool {
        self.events().contains(&Event::Ready { id: self.id })
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.pdcs.info(self.id).unwrap().in_flight
    }

    pub(crate) fn wait(&mut self, span: Span) {
        let end = self.now + span;
        while let Some(when) = self.pdcs.poll_timeout().filter(|when| *when <= end) {
            self.now = self.now.max(when);
            self.pdcs.handle_timeout(self.now);
        }
        self.now = end;
        self.pdcs.handle_timeout(self.now);
    }

    /// Sends a probe if one is due. Returns its opaque number.
    pub(crate) fn probe(&mut self) -> Option<u16> {
        match self.pdcs.poll_control(self.now)?.packet {
            ControlPacket::Control(control) => Some(control.probe_opaque),
            other => panic!("{other:?}"),
        }
    }
}
