//! An attacker without privileges that sends forged packets to endpoints as fast as it can.
//!
//! ```text
//! forged_packets SECONDS TARGET..
//! ```
//!
//! The process runs on a host of the job, so its address is that of a rank. It claims to listen where the
//! ranks do, and knows the format, the default job ID, and the tags and keys that programs use; it
//! guesses all other numbers. At the end it prints how much it sent and received.
#![allow(clippy::disallowed_methods, clippy::print_stdout)] // it reads the clock and prints

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use squall_net::base::{Psn, Rng};
use squall_wire::{
    Ack, AckExt, AckRequest, Control, ControlKind, Dest, Extension, Handshake, Mode, Nack,
    NackCode, NextHeader, Opcode, Reason, Request, Stage, StdBody, StdRequest, UDP_PORT,
    WIRE_VERSION,
};

/// Payload that must not appear in any buffer of a rank.
const JUNK: [u8; 1200] = [0xba; 1200];

fn main() {
    let mut words = std::env::args().skip(1);
    let seconds: u64 = words.next().and_then(|word| word.parse().ok()).expect("seconds");
    let targets: Vec<SocketAddr> =
        words.map(|word| word.parse().expect("an address and a port")).collect();
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.set_nonblocking(true).expect("a socket that does not wait");
    let own = socket.local_addr().expect("an address").port();
    let mut rng = Rng::new(std::process::id().into());
    let (mut sent, mut got) = ((0u64, 0u64), (0u64, 0u64));
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut out, mut into) = ([0; 2048], [0; 65_536]);
    while Instant::now() < end {
        for target in &targets {
            let port = if rng.chance(0.7) { UDP_PORT } else { own };
            let len = forge(&mut rng, port, &mut out);
            if socket.send_to(&out[..len], target).is_ok() {
                sent = (sent.0 + 1, sent.1 + len as u64);
            }
        }
        while let Ok(len) = socket.recv(&mut into) {
            got = (got.0 + 1, got.1 + len as u64);
        }
    }
    println!("sent {} packets, {} bytes; got {} packets, {} bytes", sent.0, sent.1, got.0, got.1);
}

/// Builds a packet of an endpoint that claims to listen at `port`, and returns its length.
fn forge(rng: &mut Rng, port: u16, out: &mut [u8]) -> usize {
    let (psn, most) = (Psn(rng.next_u32()), if rng.chance(0.5) { 8 } else { 65_535 });
    let (spdcid, dpdcid) = (1 + rng.below(most) as u16, 1 + rng.below(most) as u16);
    match rng.below(8) {
        0 => Ack {
            next: NextHeader::None,
            ce: false,
            retx: false,
            probe: false,
            request: AckRequest::None,
            ack_psn_offset: 0,
            cack_psn: psn,
            spdcid,
            dpdcid,
            ext: AckExt::None,
        }
        .emit(out),
        1 => Nack {
            ce: false,
            retx: false,
            rudi: false,
            code: NackCode::InvDpdcid,
            vendor_code: 0,
            psn,
            spdcid: 0,
            dpdcid,
            payload: 0,
            ccx: None,
        }
        .emit(out),
        2 => Control {
            kind: ControlKind::CloseCommand,
            isrod: false,
            retx: false,
            ack_request: true,
            probe_opaque: 0,
            psn,
            spdcid,
            dest: Dest::Pdc(dpdcid),
            payload: 0,
        }
        .emit(out),
        3 => Handshake {
            stage: [Stage::Hello, Stage::Confirm, Stage::Challenge][rng.below(3) as usize],
            version: WIRE_VERSION,
            port,
            reason: Reason::None,
            nonce: rng.next_u64(),
            instance: rng.next_u32() | 1,
            expected: 0,
            cookie: rng.next_u64(),
            job_id: 1,
            capabilities: 0,
            proof: core::array::from_fn(|_| rng.next_u32() as u8),
        }
        .emit(out),
        _ => request(rng, port, (psn, spdcid, dpdcid), out),
    }
}

/// Builds a message, a write, a read, or a packet that only reports a restart.
fn request(
    rng: &mut Rng,
    port: u16,
    (psn, spdcid, dpdcid): (Psn, u16, u16),
    out: &mut [u8],
) -> usize {
    let kinds = [Opcode::TaggedSend, Opcode::Send, Opcode::Write, Opcode::Read, Opcode::NoOp];
    let opcode = kinds[rng.below(5) as usize];
    let len = match opcode {
        Opcode::Read | Opcode::NoOp => 0,
        _ => rng.below(JUNK.len() as u32) as usize,
    };
    let asked = if opcode == Opcode::Read { 1 << 20 } else { len as u32 };
    let pds = Request {
        mode: Mode::Rud,
        next: NextHeader::RequestStd,
        retx: false,
        ack_request: true,
        clear_psn_offset: 0,
        psn,
        spdcid,
        dest: if rng.chance(0.7) {
            Dest::Syn { use_rsv_pdc: false, psn_offset: 0 }
        } else {
            Dest::Pdc(dpdcid)
        },
        ccc: None,
    };
    let ses = StdRequest {
        opcode,
        delivery_complete: false,
        initiator_error: false,
        relative: false,
        header_data_present: rng.chance(0.5),
        eom: true,
        som: true,
        message_id: rng.below(4) as u16,
        ri_generation: 0,
        job_id: 1,
        pid_on_fep: 0,
        resource_index: 0,
        buffer_offset: 0,
        initiator: rng.next_u32() << 16 | u32::from(port),
        match_bits: u64::from(rng.below(16)),
        body: StdBody::First { header_data: u64::from(rng.below(4)) },
        request_length: asked,
        extension: Extension::None,
    };
    let at = pds.emit(out);
    let at = at + ses.emit(&mut out[at..]);
    out[at..at + len].copy_from_slice(&JUNK[..len]);
    at + len
}
