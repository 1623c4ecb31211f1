//! An attacker that sees every packet. It replays, damages, truncates and reflects packets, and
//! forges others from their values.

use std::net::SocketAddr;

use squall_base::{Psn, Rng};
use squall_engine::PacketMarks;
use squall_wire::*;

use crate::world::{Seen, World};

/// An address of the attacker, where no host of the network is.
pub(super) const ATTACKER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9)), 4000);

/// Number of bytes that contain a packet's headers.
const HEADERS: u32 = 72;

pub(super) struct OnPath {
    rng: Rng,
    /// The attacker returns and forwards handshakes, and has an address of its own.
    relays: bool,
}

impl OnPath {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), relays: false }
    }

    /// Returns the attacker that returns and forwards handshakes, or does not.
    pub(super) const fn relays(self, relays: bool) -> Self {
        Self { relays, ..self }
    }

    /// Builds a packet from one that was seen, if any was.
    pub(super) fn strike(&mut self, world: &World) -> Option<(Seen, PacketMarks)> {
        self.vary(world.tap.as_ref()?, world)
    }

    /// Builds a packet from one of those in `tap`, if there are any.
    pub(super) fn vary(&mut self, tap: &[Seen], world: &World) -> Option<(Seen, PacketMarks)> {
        let last = (tap.len() as u32).checked_sub(1)?;
        let model = &tap[self.rng.below(last + 1) as usize];
        if self.relays
            && self.rng.chance(0.3)
            && let Some(packet) = relayed(&mut self.rng, model, world)
        {
            return Some((packet, PacketMarks::default()));
        }
        let sender = world.hosts.iter().find(|host| host.addr.ip() == model.src.ip())?.addr;
        let back = Seen {
            src: SocketAddr::new(model.dst.ip(), 40_001),
            dst: sender,
            bytes: model.bytes.clone(),
        };
        let mut packet = model.clone();
        if self.rng.chance(0.3)
            && let Some((forward, bytes)) = self.companion(&model.bytes)
        {
            packet = if forward { packet } else { back };
            packet.bytes = bytes;
        } else {
            if self.rng.chance(0.05) {
                packet = back;
            }
            packet.bytes = self.variation(&model.bytes);
            if self.rng.chance(0.05) {
                packet.src = SocketAddr::from(([10, 0, 0, 9], 7));
            }
        }
        let marks = PacketMarks { ce: self.rng.chance(0.1), trimmed: self.rng.chance(0.08) };
        if marks.trimmed {
            packet.bytes.truncate(12 + self.rng.below(90) as usize);
        }
        Some((packet, marks))
    }

    /// Builds an acknowledgement, a refusal or a control packet of the same context from a data
    /// packet. Returns with it whether it goes in the same direction.
    fn companion(&mut self, bytes: &[u8]) -> Option<(bool, Vec<u8>)> {
        let Ok(Packet::Request { pds, .. }) = parse(bytes) else { return None };
        let rng = &mut self.rng;
        let target = match pds.dest {
            Dest::Pdc(number) => number,
            Dest::Syn { .. } => 1 + rng.below(3) as u16,
        };
        let forward = rng.chance(0.5);
        let (spdcid, dpdcid) = if forward { (pds.spdcid, target) } else { (target, pds.spdcid) };
        let psn = Psn(near(rng, pds.psn.0));
        let packet = match rng.below(3) {
            0 => {
                Packet::Ack { pds: any_ack(rng, psn, spdcid, dpdcid), ses: Ses::None, payload: &[] }
            }
            1 => Packet::Nack(any_nack(rng, psn, spdcid, dpdcid)?),
            _ => Packet::Control(any_control(rng, psn, spdcid, dpdcid)?),
        };
        Some((forward, emit(&packet)))
    }

    /// Builds a packet that is equal to another one or differs little from it.
    fn variation(&mut self, bytes: &[u8]) -> Vec<u8> {
        let rng = &mut self.rng;
        let mut copy = bytes.to_vec();
        match rng.below(100) {
            0..=9 => return copy,
            10..=32 => {
                for _ in 0..1 + rng.below(4) {
                    let at = rng.below(HEADERS.min(copy.len() as u32)) as usize;
                    copy[at] ^= 1 << rng.below(8);
                }
                return copy;
            }
            33..=35 => {
                copy.truncate(rng.below(copy.len() as u32 + 1) as usize);
                return copy;
            }
            _ => {}
        }
        match parse(bytes) {
            Ok(Packet::Request { pds, ses, payload }) => {
                let (pds, ses, payload) = request(rng, pds, ses, payload);
                emit(&Packet::Request { pds, ses, payload: &payload })
            }
            Ok(Packet::Ack { mut pds, mut ses, payload }) => {
                vary_ack(rng, &mut pds);
                if rng.chance(0.2) {
                    pds.next = NextHeader::Response;
                    ses = Ses::Response(response(rng));
                }
                emit(&Packet::Ack { pds, ses, payload })
            }
            Ok(Packet::Nack(mut nack)) => {
                match rng.below(4) {
                    0 => nack.psn = Psn(near(rng, nack.psn.0)),
                    1 => nack.code = nack_code(rng).unwrap_or(nack.code),
                    2 => nack.payload = rng.next_u32(),
                    _ => nack.retx ^= true,
                }
                emit(&Packet::Nack(nack))
            }
            Ok(Packet::Control(mut control)) => {
                for _ in 0..2 {
                    match rng.below(4) {
                        0 => control.psn = Psn(near(rng, control.psn.0)),
                        1 => control.kind = control_kind(rng).unwrap_or(control.kind),
                        2 => control.payload = near(rng, control.payload),
                        _ => control.spdcid = id(rng, control.spdcid),
                    }
                }
                emit(&Packet::Control(control))
            }
            _ => copy,
        }
    }
}

/// Delivers a handshake packet that was seen to any host, as if an endpoint at another host's address
/// or at the attacker's own had sent it. Returns `None` for other packets.
pub(super) fn relayed(rng: &mut Rng, packet: &Seen, world: &World) -> Option<Seen> {
    let Ok(Packet::Negotiation { values, .. }) = parse(&packet.bytes) else { return None };
    let handshake = Handshake::read(values).ok().flatten()?;
    let hosts = world.hosts.len() as u32;
    let any = |rng: &mut Rng| world.hosts[rng.below(hosts) as usize].addr;
    let from = if rng.chance(0.7) { ATTACKER } else { any(rng) };
    let dst = any(rng);
    let mut bytes = vec![0; Handshake::LEN];
    let len = Handshake { port: from.port(), ..handshake }.emit(&mut bytes);
    bytes.truncate(len);
    Some(Seen { src: SocketAddr::new(from.ip(), 40_002), dst, bytes })
}

fn emit(packet: &Packet<'_>) -> Vec<u8> {
    let mut out = vec![0; packet.len()];
    let len = packet.emit(&mut out);
    out.truncate(len);
    out
}

/// Builds a data packet with other numbers, lengths or flags, often consistent with each other.
fn request(
    rng: &mut Rng,
    mut pds: Request,
    mut ses: Ses,
    payload: &[u8],
) -> (Request, Ses, Vec<u8>) {
    let mut payload = payload.to_vec();
    if rng.chance(0.2) {
        payload.truncate(rng.below(payload.len() as u32 + 1) as usize);
    }
    if rng.chance(0.1) {
        payload.resize(rng.below(1300) as usize, 0xee);
    }
    match rng.below(10) {
        0..=2 => pds.psn = Psn(near(rng, pds.psn.0)),
        3 => pds.spdcid = id(rng, pds.spdcid),
        4 if rng.chance(0.5) => pds.dest = Dest::Pdc(rng.below(5) as u16),
        4 => pds.dest = Dest::Syn { use_rsv_pdc: false, psn_offset: rng.below(64) as u16 },
        5 => pds.clear_psn_offset = -(rng.below(0x8000).cast_signed()) as i16,
        6 => pds.ccc = Some(Ccc { ccc_id: 0, credit_target: rng.next_u32() & 0xff_ffff }),
        _ => {}
    }
    match &mut ses {
        Ses::Std(ses) => {
            if rng.chance(0.8) {
                for _ in 0..1 + rng.below(3) {
                    vary_standard(rng, ses, payload.len());
                }
            }
            if rng.chance(0.7) {
                agree(rng, ses, payload.len() as u32);
            }
        }
        Ses::ResponseData(data) => {
            match rng.below(6) {
                0 => data.read_request_message_id = id(rng, data.read_request_message_id),
                1 => data.message_offset = length(rng, data.message_offset),
                2 => data.modified_length = length(rng, data.modified_length),
                3 => data.response_message_id = id(rng, data.response_message_id),
                4 => data.return_code = return_code(rng),
                _ => {}
            }
            data.payload_length = payload.len() as u16;
        }
        _ => {}
    }
    (pds, ses, payload)
}

fn vary_standard(rng: &mut Rng, ses: &mut StdRequest, payload: usize) {
    match rng.below(14) {
        0 => {
            ses.opcode = Opcode::from_u8(rng.below(0x10) as u8).unwrap_or(ses.opcode);
            ses.extension = Extension::None;
            if ses.opcode.is_rendezvous() {
                ses.extension = Extension::Rendezvous(Rendezvous {
                    eager_length: length(rng, ses.request_length),
                    ri_generation: 0,
                    pid_on_fep: 0,
                    resource_index: rng.below(3) as u16,
                    read_offset: number(rng, 0),
                    memory_key: number(rng, ses.match_bits),
                });
            }
        }
        1 => ses.message_id = id(rng, ses.message_id),
        2 => ses.request_length = length(rng, ses.request_length),
        3 => {
            let message_offset = length(rng, 1344);
            ses.body = StdBody::Next { payload_length: payload as u16, message_offset };
            ses.som = false;
        }
        4 => {
            ses.body = StdBody::First { header_data: number(rng, 0) };
            ses.som = true;
        }
        5 => ses.eom ^= true,
        6 => ses.delivery_complete ^= true,
        7 => ses.header_data_present ^= true,
        8 => ses.initiator_error ^= true,
        9 => ses.match_bits = number(rng, ses.match_bits),
        10 => ses.buffer_offset = number(rng, ses.buffer_offset),
        11 if rng.chance(0.15) => ses.initiator ^= 1 << rng.below(32),
        11 | 12 => ses.resource_index = rng.below(3) as u16,
        _ => {
            if let Extension::Rendezvous(offer) = &mut ses.extension {
                match rng.below(4) {
                    0 => offer.eager_length = length(rng, ses.request_length.min(1000)),
                    1 => offer.read_offset = number(rng, offer.read_offset),
                    2 => offer.memory_key = number(rng, offer.memory_key),
                    _ => offer.resource_index = rng.below(4) as u16,
                }
            }
        }
    }
}

/// Makes lengths and flags consistent with a payload, so that the packet passes the parser.
fn agree(rng: &mut Rng, ses: &mut StdRequest, payload: u32) {
    if let StdBody::Next { message_offset, .. } = ses.body {
        let far = message_offset > 200_000 && rng.chance(0.5);
        let offset = if far { rng.below(5000) } else { message_offset };
        ses.body = StdBody::Next { payload_length: payload as u16, message_offset: offset };
        let end = offset.wrapping_add(payload);
        ses.eom = end >= ses.request_length && rng.chance(0.5);
        if end >= ses.request_length {
            ses.request_length = end.wrapping_add(u32::from(!ses.eom));
        }
        return;
    }
    ses.eom = payload >= ses.request_length;
    if ses.eom {
        ses.request_length = payload;
    }
    if let Extension::Rendezvous(offer) = &mut ses.extension {
        ses.request_length = ses.request_length.max(payload + 2);
        ses.eom = rng.chance(0.5);
        let more = 1 + rng.below(ses.request_length - payload - 1);
        offer.eager_length = payload + if ses.eom { 0 } else { more };
    }
}

fn vary_ack(rng: &mut Rng, ack: &mut Ack) {
    for _ in 0..1 + rng.below(2) {
        let psn = Psn(near(rng, ack.cack_psn.0));
        let other = any_ack(rng, psn, ack.spdcid, ack.dpdcid);
        match rng.below(9) {
            0 => ack.cack_psn = other.cack_psn,
            1 => ack.ack_psn_offset = (rng.next_u32() as i16) >> rng.below(14),
            2 => ack.probe ^= true,
            3 => ack.ce ^= true,
            4 => ack.request = other.request,
            5 => ack.spdcid = id(rng, ack.spdcid),
            6 => ack.dpdcid = id(rng, ack.dpdcid),
            _ => ack.ext = other.ext,
        }
    }
}

fn response(rng: &mut Rng) -> Response {
    Response {
        list: List::Expected,
        opcode: ResponseOpcode::Response,
        return_code: return_code(rng),
        message_id: rng.below(8) as u16,
        ri_generation: 0,
        job_id: 1,
        modified_length: 0,
    }
}

fn return_code(rng: &mut Rng) -> ReturnCode {
    ReturnCode::from_u8(rng.below(40) as u8).unwrap_or(ReturnCode::Ok)
}

fn nack_code(rng: &mut Rng) -> Option<NackCode> {
    NackCode::from_u8(rng.below(0x1b) as u8)
}

fn control_kind(rng: &mut Rng) -> Option<ControlKind> {
    ControlKind::from_u8(rng.below(12) as u8)
}

pub(super) fn any_ack(rng: &mut Rng, cack_psn: Psn, spdcid: u16, dpdcid: u16) -> Ack {
    let state = CcState::Nscc(NsccState {
        service_time: rng.next_u32() as u16,
        restore_cwnd: rng.chance(0.1),
        rcv_cwnd_pend: rng.next_u32() as u8 & 0x7f,
        rcvd_bytes: rng.next_u32() & 0xff_ffff,
        ooo_count: rng.below(3000) as u16,
    });
    Ack {
        next: NextHeader::None,
        ce: rng.chance(0.3),
        retx: false,
        probe: rng.chance(0.2),
        request: [AckRequest::None, AckRequest::Clear, AckRequest::Close][rng.below(3) as usize],
        ack_psn_offset: 0,
        cack_psn,
        spdcid,
        dpdcid,
        ext: AckExt::Cc(AckCc {
            mpr: rng.next_u32() as u8,
            sack_psn_offset: (rng.next_u32() as i16) >> rng.below(14),
            sack_bitmap: rng.next_u64() & rng.next_u64(),
            state,
        }),
    }
}

pub(super) fn any_nack(rng: &mut Rng, psn: Psn, spdcid: u16, dpdcid: u16) -> Option<Nack> {
    Some(Nack {
        ce: rng.chance(0.2),
        retx: rng.chance(0.3),
        rudi: false,
        code: nack_code(rng)?,
        vendor_code: 0,
        psn,
        spdcid: if rng.chance(0.3) { 0 } else { spdcid },
        dpdcid,
        payload: rng.next_u32(),
        ccx: None,
    })
}

pub(super) fn any_control(rng: &mut Rng, psn: Psn, spdcid: u16, dpdcid: u16) -> Option<Control> {
    Some(Control {
        kind: control_kind(rng)?,
        isrod: false,
        retx: false,
        ack_request: rng.chance(0.5),
        probe_opaque: 0,
        psn,
        spdcid,
        dest: Dest::Pdc(dpdcid),
        payload: near(rng, psn.0),
    })
}

fn near(rng: &mut Rng, value: u32) -> u32 {
    match rng.below(8) {
        0 => value.wrapping_add(rng.below(4)),
        1 => value.wrapping_sub(rng.below(4)),
        2 => value.wrapping_add(rng.below(4096)),
        3 => value.wrapping_sub(rng.below(9000)),
        4 => rng.next_u32(),
        _ => value,
    }
}

fn length(rng: &mut Rng, value: u32) -> u32 {
    match rng.below(10) {
        0 => 0,
        1 => 1,
        2 => u32::MAX,
        3 => 1 << 31,
        4 => value.wrapping_add(1),
        5 => value.wrapping_sub(1),
        6 => rng.below(100_000),
        _ => value,
    }
}

fn number(rng: &mut Rng, value: u64) -> u64 {
    match rng.below(12) {
        0 => 0,
        1 => u64::MAX,
        2 => u64::MAX - u64::from(rng.below(100_000)),
        3 => 8,
        4 => 9,
        5 => value.wrapping_add(u64::from(rng.below(64))),
        6 => u64::from(rng.below(70_000)),
        7 => value ^ 1 << rng.below(64),
        _ => value,
    }
}

fn id(rng: &mut Rng, value: u16) -> u16 {
    match rng.below(8) {
        0 => rng.below(6) as u16,
        1 => value.wrapping_add(1),
        2 => rng.next_u32() as u16,
        3 => value.wrapping_sub(1),
        _ => value,
    }
}
