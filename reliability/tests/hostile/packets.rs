//! Forged packets: of any kind, with numbers near the real ones, and copies of real ones with few
//! changes or none.

use squall_reliability::base::{Psn, Rng};
use squall_reliability::wire::{
    Ack, AckCc, AckExt, AckRequest, CcState, Ccc, Control, ControlKind, Dest, Mode, Nack, NackCode,
    NextHeader, NsccState, Request,
};
use squall_reliability::{Arrival, ControlPacket};

use crate::link::{Wire, response as answer};

/// Returns a packet of any kind, near the PSN `about`.
pub(super) fn any(rng: &mut Rng, about: Psn) -> Wire {
    match rng.below(12) {
        0..=3 => Wire::Data { pds: request(rng, about), number: 0, meta: arrival(rng) },
        4..=7 => {
            let response = rng.chance(0.5).then(|| answer(1));
            Wire::Control(ControlPacket::Ack { pds: ack(rng, about), response })
        }
        8..=9 => Wire::Control(ControlPacket::Nack(nack(rng, about))),
        _ => Wire::Control(ControlPacket::Control(control(rng, about))),
    }
}

/// Returns a packet like a real one.
pub(super) fn like(rng: &mut Rng, seen: Wire) -> Wire {
    match seen {
        Wire::Data { mut pds, number, .. } => {
            let meta = arrival(rng);
            match rng.below(6) {
                0 => pds.psn = near(rng, pds.psn),
                1 => pds.dest = dest(rng),
                2 => pds.retx ^= true,
                3 => pds.clear_psn_offset = -(rng.below(0x8000).cast_signed()) as i16,
                4 => {
                    // An answer that its receiver would send.
                    let Dest::Pdc(target) = pds.dest else { return any(rng, pds.psn) };
                    let mut ack = ack(rng, pds.psn);
                    (ack.spdcid, ack.dpdcid) = (target, pds.spdcid);
                    let response = rng.chance(0.2).then(|| answer(number));
                    return Wire::Control(ControlPacket::Ack { pds: ack, response });
                }
                _ => {}
            }
            Wire::Data { pds, number, meta }
        }
        Wire::Control(ControlPacket::Ack { mut pds, mut response }) => {
            match rng.below(7) {
                0 => pds.cack_psn = near(rng, pds.cack_psn),
                1 => pds.ack_psn_offset = offset(rng),
                2 => pds.ext = ack_ext(rng),
                3 => pds.request = ack_request(rng),
                4 => pds.probe ^= true,
                5 => response = response.is_none().then(|| answer(rng.next_u32())),
                _ => {}
            }
            Wire::Control(ControlPacket::Ack { pds, response })
        }
        Wire::Control(ControlPacket::Nack(mut nack)) => {
            match rng.below(5) {
                0 => nack.psn = near(rng, nack.psn),
                1 => nack.code = nack_code(rng),
                2 => nack.payload = rng.next_u32(),
                3 => nack.retx ^= true,
                _ => {}
            }
            Wire::Control(ControlPacket::Nack(nack))
        }
        Wire::Control(ControlPacket::Control(mut control)) => {
            match rng.below(5) {
                0 => control.psn = near(rng, control.psn),
                1 => control.kind = control_kind(rng),
                2 => control.payload = near(rng, Psn(control.payload)).0,
                3 => control.probe_opaque = rng.next_u32() as u16,
                _ => {}
            }
            Wire::Control(ControlPacket::Control(control))
        }
    }
}

/// Returns a PSN near another one.
fn near(rng: &mut Rng, about: Psn) -> Psn {
    let ahead = match rng.below(7) {
        0..=3 => rng.below(70),
        4..=5 => rng.below(5000).wrapping_neg(),
        _ => rng.next_u32(),
    };
    about.plus(ahead)
}

/// Returns a distance for a field of an ACK.
fn offset(rng: &mut Rng) -> i16 {
    if rng.chance(0.5) { rng.next_u32() as i16 } else { rng.below(160).cast_signed() as i16 - 80 }
}

fn id(rng: &mut Rng) -> u16 {
    rng.below(4) as u16
}

fn dest(rng: &mut Rng) -> Dest {
    if rng.chance(0.8) {
        Dest::Pdc(1 + rng.below(3) as u16)
    } else {
        Dest::Syn { use_rsv_pdc: false, psn_offset: rng.below(4096) as u16 }
    }
}

fn arrival(rng: &mut Rng) -> Arrival {
    let (ce, trimmed) = (rng.chance(0.5), rng.chance(0.1));
    Arrival { ce, trimmed, bytes: 500, ..Arrival::default() }
}

fn request(rng: &mut Rng, about: Psn) -> Request {
    let target = rng.chance(0.5).then(|| rng.next_u32() & 0xff_ffff);
    Request {
        mode: Mode::Rud,
        next: NextHeader::RequestStd,
        retx: rng.chance(0.5),
        ack_request: rng.chance(0.5),
        clear_psn_offset: (rng.below(5050).cast_signed() - 5000) as i16,
        psn: near(rng, about),
        spdcid: id(rng),
        dest: dest(rng),
        ccc: target.map(|credit_target| Ccc { ccc_id: 0, credit_target }),
    }
}

fn ack_request(rng: &mut Rng) -> AckRequest {
    [AckRequest::None, AckRequest::Clear, AckRequest::Close][rng.below(3) as usize]
}

fn ack_ext(rng: &mut Rng) -> AckExt {
    if rng.chance(0.125) {
        // A congestion notification, or an ACK without state.
        return AckExt::None;
    }
    let sack_bitmap = match rng.below(3) {
        0 => 0,
        1 => u64::from(rng.below(256)),
        _ => rng.next_u64(),
    };
    let state = if rng.chance(0.5) {
        let credit = rng.next_u32() & 0xff_ffff;
        CcState::Credit { credit, ooo_count: rng.next_u32() as u16 }
    } else {
        CcState::Nscc(NsccState {
            service_time: rng.next_u32() as u16,
            restore_cwnd: rng.chance(0.5),
            rcv_cwnd_pend: rng.below(0x80) as u8,
            rcvd_bytes: rng.next_u32() & 0xff_ffff,
            ooo_count: rng.next_u32() as u16,
        })
    };
    let (mpr, sack_psn_offset) = (rng.next_u32() as u8, offset(rng));
    AckExt::Cc(AckCc { mpr, sack_psn_offset, sack_bitmap, state })
}

fn ack(rng: &mut Rng, about: Psn) -> Ack {
    Ack {
        next: NextHeader::None,
        ce: rng.chance(0.5),
        retx: rng.chance(0.5),
        probe: rng.chance(0.3),
        request: ack_request(rng),
        ack_psn_offset: offset(rng),
        cack_psn: near(rng, about),
        spdcid: id(rng),
        dpdcid: 1 + rng.below(3) as u16,
        ext: ack_ext(rng),
    }
}

fn nack_code(rng: &mut Rng) -> NackCode {
    loop {
        if let Some(code) = NackCode::from_u8(rng.below(28) as u8) {
            return code;
        }
    }
}

fn nack(rng: &mut Rng, about: Psn) -> Nack {
    Nack {
        ce: rng.chance(0.3),
        retx: rng.chance(0.5),
        rudi: false,
        code: nack_code(rng),
        vendor_code: 0,
        psn: near(rng, about),
        spdcid: id(rng),
        dpdcid: 1 + rng.below(3) as u16,
        payload: if rng.chance(0.5) { near(rng, about).0 } else { rng.next_u32() },
        ccx: None,
    }
}

fn control_kind(rng: &mut Rng) -> ControlKind {
    loop {
        if let Some(kind) = ControlKind::from_u8(rng.below(10) as u8) {
            return kind;
        }
    }
}

fn control(rng: &mut Rng, about: Psn) -> Control {
    Control {
        kind: control_kind(rng),
        isrod: false,
        retx: rng.chance(0.2),
        ack_request: rng.chance(0.8),
        probe_opaque: rng.next_u32() as u16,
        psn: near(rng, about),
        spdcid: id(rng),
        dest: dest(rng),
        payload: near(rng, about).0,
    }
}
