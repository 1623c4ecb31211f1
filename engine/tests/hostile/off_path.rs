//! An attacker that sees no packet. It knows addresses, ports, formats and the job, can forge any
//! source address, and guesses numbers at random or in sequence.

use std::net::SocketAddr;

use squall_base::{Psn, Rng};
use squall_engine::PacketMarks;
use squall_wire::*;

use super::on_path::{any_ack, any_control, any_nack};
use crate::world::{Seen, World};

/// The content of the attacker's messages.
const JUNK: [u8; 1300] = [0xba; 1300];

pub(super) struct OffPath {
    rng: Rng,
    /// The next number to try in sequence.
    psn: u32,
    epoch: u16,
}

impl OffPath {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let (psn, epoch) = (rng.next_u32(), rng.next_u32() as u16);
        Self { rng, psn, epoch }
    }

    pub(super) fn strike(&mut self, world: &World) -> (Seen, PacketMarks) {
        let victim = self.rng.below(2) as usize;
        let dst = world.hosts[victim].addr;
        let own = SocketAddr::from(([10, 0, 0, 9], 4000));
        let claimed = if self.rng.chance(0.7) { world.hosts[1 - victim].addr } else { own };
        let src = SocketAddr::new(claimed.ip(), 40_000 + self.rng.below(20) as u16);
        let marks = PacketMarks { ce: self.rng.chance(0.1), trimmed: self.rng.chance(0.05) };
        let bytes = self.packet(claimed.port());
        (Seen { src, dst, bytes }, marks)
    }

    fn packet(&mut self, port: u16) -> Vec<u8> {
        let psn = Psn(self.psn());
        let rng = &mut self.rng;
        // The guess does not depend on the order in which contexts are numbered.
        let most = if rng.chance(0.5) { 4 } else { 65_535 };
        let (spdcid, dpdcid) = (1 + rng.below(most) as u16, 1 + rng.below(most) as u16);
        let packet = match rng.below(12) {
            10.. => return self.introduction(port),
            0 => Some(Packet::Ack {
                pds: any_ack(rng, psn, spdcid, dpdcid),
                ses: Ses::None,
                payload: &[],
            }),
            1 => any_nack(rng, psn, spdcid, dpdcid).map(Packet::Nack),
            2 => any_control(rng, psn, spdcid, dpdcid).map(Packet::Control),
            3 => None,
            _ => Some(self.request(psn, port, (spdcid, dpdcid))),
        };
        let Some(packet) = packet else {
            return (0..self.rng.below(200)).map(|_| self.rng.next_u32() as u8).collect();
        };
        let mut out = vec![0; packet.len()];
        let len = packet.emit(&mut out);
        out.truncate(len);
        out
    }

    /// Builds a handshake packet, of an endpoint that listens at the given port or of an impostor.
    fn introduction(&mut self, port: u16) -> Vec<u8> {
        let rng = &mut self.rng;
        let stages =
            [Stage::Hello, Stage::Challenge, Stage::Confirm, Stage::Welcome, Stage::Refuse];
        let reasons = [
            Reason::None,
            Reason::Version,
            Reason::Job,
            Reason::Stale,
            Reason::Key,
            Reason::Unlisted,
        ];
        let intro = Handshake {
            stage: stages[rng.below(5) as usize],
            version: if rng.chance(0.9) { WIRE_VERSION } else { 9 },
            port,
            reason: reasons[rng.below(6) as usize],
            nonce: rng.next_u64(),
            instance: rng.next_u32() | 1,
            expected: 0,
            cookie: if rng.chance(0.5) { rng.next_u64() } else { 0 },
            job_id: u32::from(rng.chance(0.9)),
            capabilities: 0,
            proof: [0; 16],
        };
        let mut out = vec![0; Handshake::LEN];
        let len = intro.emit(&mut out);
        out.truncate(len);
        out
    }

    fn psn(&mut self) -> u32 {
        self.psn = self.psn.wrapping_add(1);
        if self.rng.chance(0.5) { self.rng.next_u32() } else { self.psn }
    }

    fn epoch(&mut self) -> u16 {
        self.epoch = self.epoch.wrapping_add(u16::from(self.rng.chance(0.1)));
        if self.rng.chance(0.5) { self.rng.next_u32() as u16 } else { self.epoch }
    }

    /// Builds a data packet of a message, a write or a read.
    fn request(&mut self, psn: Psn, port: u16, (spdcid, dpdcid): (u16, u16)) -> Packet<'static> {
        let epoch = self.epoch();
        let rng = &mut self.rng;
        let dest = if rng.chance(0.6) {
            Dest::Syn { use_rsv_pdc: false, psn_offset: rng.below(3) as u16 }
        } else {
            Dest::Pdc(dpdcid)
        };
        let len = rng.below(JUNK.len() as u32) as usize;
        let opcode = [
            Opcode::TaggedSend,
            Opcode::Send,
            Opcode::Write,
            Opcode::Read,
            Opcode::NoOp,
            Opcode::RendezvousTsend,
        ][rng.below(6) as usize];
        let offer = Rendezvous {
            eager_length: len as u32,
            ri_generation: 0,
            pid_on_fep: 0,
            resource_index: 1,
            read_offset: 0,
            memory_key: rng.next_u64(),
        };
        let rendezvous = opcode.is_rendezvous();
        let whole = opcode != Opcode::TaggedSend || rng.chance(0.7);
        let payload: &[u8] = if opcode == Opcode::Read { &[] } else { &JUNK[..len] };
        let more = if whole { 0 } else { 1 + rng.below(1 << 20) };
        let ses = StdRequest {
            opcode,
            delivery_complete: rng.chance(0.2),
            initiator_error: false,
            relative: false,
            header_data_present: rng.chance(0.5),
            eom: whole,
            som: true,
            message_id: rng.below(12) as u16,
            ri_generation: 0,
            job_id: 1,
            pid_on_fep: 0,
            resource_index: 0,
            buffer_offset: u64::from(rng.below(1000)),
            initiator: u32::from(epoch) << 16 | u32::from(port),
            // The tags and keys are in use.
            match_bits: u64::from(rng.below(12)),
            body: StdBody::First { header_data: u64::from(rng.below(40)) },
            request_length: len as u32 + if rendezvous { 50_000 } else { more },
            extension: if rendezvous { Extension::Rendezvous(offer) } else { Extension::None },
        };
        let pds = Request {
            mode: Mode::Rud,
            next: NextHeader::RequestStd,
            retx: rng.chance(0.3),
            ack_request: true,
            clear_psn_offset: 0,
            psn,
            spdcid,
            dest,
            ccc: None,
        };
        Packet::Request { pds, ses: Ses::Std(ses), payload }
    }
}
