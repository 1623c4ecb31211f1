//! Tests of the bounds on what a peer outside the job can make an endpoint hold. Such a peer receives at its address,
//! so it passes the handshake, but the application has not inserted its address. All such peers together have a bounded
//! share of each resource, and what is left is enough for the job. There is a test for each resource of the table in
//! SECURITY.md.

use std::hash::Hasher;
use std::net::SocketAddr;

use crate::world::*;
use siphasher::sip::SipHasher24;
use squall_base::{Instance, Psn, Span};
use squall_engine::*;
use squall_wire::{
    Ack, Dest, Extension, Handshake, Mode, NextHeader, Opcode, Packet, Reason, Request, Ses, Stage,
    StdBody, StdRequest, WIRE_VERSION, parse,
};

const VICTIM: usize = 1;
const DONE: Span = Span::secs(5);
/// Virtual time in which the victim answers the handshakes that a test begins between two pauses.
const PAUSE: Span = Span::millis(200);

/// An attacker that builds its own packets, at an address where no host of the test's network is.
struct Outsider {
    addr: SocketAddr,
    instance: u32,
    nonce: u64,
    cookie: u64,
    /// The turn and the number of the next context.
    turn: u32,
}

/// A context that the attacker has opened at the victim.
struct OpenContext {
    number: u16,
    start: Psn,
    /// The victim's number for this context, once the victim has sent it.
    theirs: Option<u16>,
    next: Psn,
}

impl Outsider {
    /// Performs the handshake with the victim. Returns `None` when the victim has no room for the attacker.
    fn meet(w: &mut World, n: u32) -> Option<Self> {
        let ports = 60_000;
        let host = [10, 0, 1 + (n / ports) as u8, 99];
        let addr = SocketAddr::from((host, (n % ports) as u16 + 1000));
        let mut it = Self { addr, instance: n + 1, nonce: 77 + u64::from(n), cookie: 0, turn: 0 };
        let answers = it.introduce(w, Stage::Hello);
        let challenge = answers.iter().find(|intro| intro.stage == Stage::Challenge);
        it.cookie = challenge.expect("every question gets a challenge").cookie;
        let answers = it.introduce(w, Stage::Confirm);
        let welcome = answers.iter().any(|intro| intro.stage == Stage::Welcome);
        let crowded = answers.iter().any(|intro| intro.reason == Reason::Crowded);
        assert!(welcome != crowded, "{answers:?}");
        welcome.then_some(it)
    }

    fn introduce(&self, w: &mut World, stage: Stage) -> Vec<Handshake> {
        let intro = Handshake {
            stage,
            version: WIRE_VERSION,
            port: self.addr.port(),
            reason: Reason::None,
            nonce: self.nonce,
            instance: self.instance,
            expected: 0,
            cookie: self.cookie,
            job_id: 1,
            capabilities: 0,
            proof: [0; 16],
        };
        let mut bytes = vec![0; Handshake::LEN];
        let len = intro.emit(&mut bytes);
        let seen = self.exchange(w, &bytes[..len]);
        let read = |bytes: &Vec<u8>| match parse(bytes) {
            Ok(Packet::Negotiation { values, .. }) => Handshake::read(values).ok().flatten(),
            _ => None,
        };
        seen.iter().filter_map(read).collect()
    }

    /// Sends a packet, and returns the victim's answers.
    fn exchange(&self, w: &mut World, bytes: &[u8]) -> Vec<Vec<u8>> {
        let dst = w.hosts[VICTIM].addr;
        w.tap = Some(vec![]);
        w.inject(self.addr, dst, PacketMarks::default(), bytes);
        w.transmit_once(VICTIM);
        let seen = w.tap.take().expect("the tap was set");
        seen.into_iter().filter(|seen| seen.dst == self.addr).map(|seen| seen.bytes).collect()
    }

    /// Opens a context with an empty message, or with the request that `change` makes of it.
    fn open(&mut self, w: &mut World, change: impl Fn(&mut StdRequest)) -> OpenContext {
        let number = self.turn as u16 + 1;
        let mut hasher = SipHasher24::new_with_keys(self.cookie, self.nonce);
        hasher.write_u64(u64::from(self.turn) << 32 | u64::from(number) << 16 | 1);
        let start = Psn((hasher.finish() >> 32) as u32);
        self.turn += 1;
        let mut opened = OpenContext { number, start, theirs: None, next: start };
        self.send(w, &mut opened, &[], change);
        opened
    }

    /// Sends a request on a context. Returns whether the victim took it.
    fn send(
        &self,
        w: &mut World,
        on: &mut OpenContext,
        payload: &[u8],
        change: impl Fn(&mut StdRequest),
    ) -> bool {
        let dest = match on.theirs {
            Some(number) => Dest::Pdc(number),
            None => Dest::Syn { use_rsv_pdc: false, psn_offset: on.next.distance(on.start) as u16 },
        };
        let pds = Request {
            mode: Mode::Rud,
            next: NextHeader::RequestStd,
            retx: false,
            ack_request: true,
            clear_psn_offset: 0,
            psn: on.next,
            spdcid: on.number,
            dest,
            ccc: None,
        };
        let mut ses = StdRequest {
            opcode: Opcode::TaggedSend,
            delivery_complete: false,
            initiator_error: false,
            relative: false,
            header_data_present: false,
            eom: true,
            som: true,
            message_id: on.next.distance(on.start) as u16,
            ri_generation: 0,
            job_id: 1,
            pid_on_fep: 0,
            resource_index: 0,
            buffer_offset: 0,
            initiator: (self.instance & 0xffff) << 16 | u32::from(self.addr.port()),
            match_bits: 0xdead,
            body: StdBody::First { header_data: 0 },
            request_length: payload.len() as u32,
            extension: Extension::None,
        };
        change(&mut ses);
        let packet = Packet::Request { pds, ses: Ses::Std(ses), payload };
        let mut bytes = vec![0; packet.len()];
        packet.emit(&mut bytes);
        let mut taken = false;
        for seen in self.exchange(w, &bytes) {
            match parse(&seen) {
                Ok(Packet::Ack { pds: Ack { spdcid, .. }, .. }) => {
                    on.theirs = Some(spdcid);
                    taken = true;
                }
                Ok(Packet::Nack(_)) => return false,
                _ => {}
            }
        }
        if taken {
            on.next = on.next.plus(1);
        }
        taken
    }
}

fn world_without_faults(adjust: impl Fn(&mut Config, &mut TransportConfig)) -> World {
    World::with(2, 5, Faults::default(), adjust)
}

/// Lets host 0, which belongs to the victim's job, and the victim exchange their first messages in both directions.
fn check_the_job_communicates(w: &mut World) {
    let addr = w.hosts[0].addr;
    w.hosts[VICTIM].engine.add_addresses([addr], true);
    for from in [0, VICTIM] {
        let to = 1 - from;
        let base = w.hosts[to].memory.alloc(5000);
        let op = RecvOp {
            source: None,
            space: MatchSpace::Tagged,
            tag: 7,
            ignore: 0,
            buf: Buf::new(base, 5000),
            context: 70,
            visibility: Visibility::Entry,
            mode: RecvMode::Post,
        };
        // This message is sent before its receive is posted, so that it is unexpected.
        let (data, peer) = (vec![7; 5000], 1 - from);
        let base_of_data = w.hosts[from].memory.put(&data);
        let peer = w.peer(from, peer);
        let send = Operation {
            peer,
            action: Action::Message { space: MatchSpace::Tagged, tag: 7 },
            buf: Buf::new(base_of_data, 5000),
            data: None,
            context: 71,
            options: Options { level: Level::Transmit, ..Options::default() },
        };
        w.submit(from, send).expect("there is room for the job's own");
        w.run(Span::millis(50), |_| false);
        let host = &mut w.hosts[to];
        host.engine.receive(w.now, &mut host.memory, op).expect("it may be posted");
        let got = |w: &World| w.hosts[to].done.iter().any(|c| c.context == 70);
        assert!(w.run(DONE, got), "from {from}");
        assert!(w.hosts[to].done.iter().all(|c| c.status.is_ok()));
        assert_eq!(w.hosts[to].memory.get(base, 5000), data);
        assert!(w.run(DONE, |w| w.hosts[from].done.iter().any(|c| c.context == 71)));
    }
}

#[test]
fn number_of_known_peers_is_bounded() {
    let mut w = world_without_faults(|_, _| {});
    let mut met = 0;
    for n in 0..70_000 {
        if n % 1000 == 0 {
            w.now += PAUSE;
        }
        match Outsider::meet(&mut w, n) {
            Some(_) => met += 1,
            None => break,
        }
    }
    assert_eq!(met, 1 << 16);
    check_the_job_communicates(&mut w);
}

#[test]
fn number_of_contexts_is_bounded() {
    let mut w = world_without_faults(|_, transport| transport.max_contexts = 2000);
    let mut opened = 0;
    for n in 0..100 {
        let mut it = Outsider::meet(&mut w, n).expect("they are few");
        let mine = (0..70).take_while(|_| it.open(&mut w, |_| ()).theirs.is_some()).count();
        assert!(mine <= 16, "{mine} of one");
        opened += mine;
    }
    assert_eq!((opened, w.hosts[VICTIM].engine.contexts().count()), (500, 500));
    check_the_job_communicates(&mut w);
}

#[test]
fn number_of_message_headers_is_bounded() {
    let mut w = world_without_faults(|config, _| config.max_unexpected = 1600);
    let mut all = 0;
    for n in 0..8 {
        let mut it = Outsider::meet(&mut w, n).expect("they are few");
        let mut on = it.open(&mut w, |_| ());
        if on.theirs.is_none() {
            break;
        }
        let mine = 1 + (0..200).take_while(|_| it.send(&mut w, &mut on, &[], |_| ())).count();
        assert!(mine <= 100, "{mine} empty messages of one");
        all += mine;
    }
    assert_eq!((all, w.hosts[VICTIM].engine.unexpected_messages()), (400, 400));
    check_the_job_communicates(&mut w);
}

#[test]
fn number_of_message_bytes_is_bounded() {
    let mut w = world_without_faults(|config, _| config.unexpected_bytes = 1_600_000);
    for n in 0..8 {
        let mut it = Outsider::meet(&mut w, n).expect("they are few");
        let mut on = it.open(&mut w, |_| ());
        // The victim drops the bytes when there is no room for them, and takes the messages.
        assert!((0..200).all(|_| it.send(&mut w, &mut on, &[1; 1200], |_| ())));
        let held = w.hosts[VICTIM].engine.counters().0.unexpected_bytes;
        assert!(held <= 100_000 * u64::from(n + 1) && held <= 400_000, "{held} bytes");
    }
    assert!(w.hosts[VICTIM].engine.counters().0.unexpected_bytes > 390_000);
    assert!(w.hosts[VICTIM].engine.counters().0.rx_deferred > 1000);
    check_the_job_communicates(&mut w);
}

/// Every id before an early message takes room in the order of its context.
#[test]
fn number_of_ids_before_early_messages_is_bounded() {
    let mut w = world_without_faults(|_, _| {});
    let mut it = Outsider::meet(&mut w, 0).expect("it is alone");
    for (ahead, taken) in [(256, true), (257, false), (16_000, false), (16_384, false)] {
        let mut on = it.open(&mut w, |_| ());
        let id = on.next.distance(on.start) as u16 + ahead;
        assert_eq!(it.send(&mut w, &mut on, &[], |ses| ses.message_id = id), taken, "{ahead}");
    }
    // A peer of the job may be as far ahead as its window allows.
    let addr = it.addr;
    w.hosts[VICTIM].engine.add_addresses([addr], true);
    let mut on = it.open(&mut w, |_| ());
    assert!(it.send(&mut w, &mut on, &[], |ses| ses.message_id = 16_000));
    check_the_job_communicates(&mut w);
}

/// Registers a region at the victim that any peer with the key may read and write.
fn region(w: &mut World) {
    let base = w.hosts[VICTIM].memory.alloc(4096);
    w.hosts[VICTIM].memory.register(9, base, 4096, true, true);
}

#[test]
fn number_of_unacknowledged_answers_is_bounded() {
    let mut w = world_without_faults(|_, transport| transport.max_contexts = 4000);
    region(&mut w);
    let mut all = 0;
    let mut refused = 0;
    for n in 0..12 {
        let mut it = Outsider::meet(&mut w, n).expect("they are few");
        let mut mine = 0;
        // The attacker acknowledges no answer. A context takes one window of requests, so the attacker uses several.
        for _ in 0..16 {
            let mut on = it.open(&mut w, |_| ());
            let ask = |ses: &mut StdRequest| {
                (ses.opcode, ses.match_bits, ses.request_length) = (Opcode::Read, 9, 8);
            };
            let taken = (0..1000).take_while(|_| it.send(&mut w, &mut on, &[], ask)).count();
            mine += taken;
            if taken < 1000 {
                refused += 1;
                break;
            }
        }
        assert!(mine <= 4096, "{mine} answers to one");
        all += mine;
    }
    assert_eq!((all, refused), (8 * 4096, 12));
    assert!(w.hosts[VICTIM].engine.counters().0.rx_unanswerable > 0);
    check_the_job_communicates(&mut w);
}

#[test]
fn number_of_incomplete_writes_is_bounded() {
    let mut w = world_without_faults(|_, transport| transport.max_contexts = 4000);
    region(&mut w);
    let part = |ses: &mut StdRequest| {
        (ses.opcode, ses.match_bits, ses.request_length) = (Opcode::Write, 9, 4000);
        (ses.header_data_present, ses.eom) = (true, false);
    };
    let mut all = 0;
    'all: for n in 0..200 {
        let mut it = Outsider::meet(&mut w, n).expect("they are few");
        for _ in 0..4 {
            let mut on = it.open(&mut w, |_| ());
            for _ in 0..1000 {
                if !it.send(&mut w, &mut on, &[1; 1000], part) {
                    break 'all;
                }
                all += 1;
            }
        }
    }
    // The last context had some entries by then, so it gets a few more.
    assert!(((1 << 16)..(1 << 16) + 1000).contains(&all), "{all}");
    check_the_job_communicates(&mut w);
}

/// A peer that ignores the lack of room for its messages on a shared-memory channel loses the channel.
#[test]
fn excess_messages_on_a_channel_end_it() {
    for len in [0, 16_384] {
        let mut w = world_without_faults(|config, _| {
            (config.shm, config.max_unexpected) = (true, 1000);
            config.unexpected_bytes = 1 << 20;
        });
        w.shm.refused = true;
        let mut it = Outsider::meet(&mut w, 0).expect("it is alone");
        it.open(&mut w, |_| ());
        let now = w.now;
        let host = &mut w.hosts[VICTIM];
        let instance = Instance::new(it.instance).expect("not 0");
        let peer = host.engine.shm().find_verified_peer(it.addr, instance).expect("it was");
        let shm =
            host.engine.shm().open_channel(now, peer).expect("the attacker has no channel yet");
        host.memory.source = Some(vec![1; len]);
        let mut taken = 0u64;
        loop {
            // The record is a short message, or a longer one whose bytes follow its head in the ring.
            let mut record = vec![if len == 0 { 7 } else { 9 }, 1];
            record.extend((taken as u16).to_le_bytes());
            record.extend(1u32.to_le_bytes());
            record.extend(0xdeadu64.to_le_bytes());
            if len > 0 {
                record.extend((len as u32).to_le_bytes());
            }
            match host.engine.shm().handle_record(now, &mut host.memory, shm, &record) {
                RecordOutcome::Yes => taken += 1,
                RecordOutcome::Later => panic!("nothing waits behind a message"),
                RecordOutcome::Never => break,
            }
            let room = host.engine.shm().room(shm);
            let expected = if taken + 1 >= 63 { Room::None } else { Room::Ample };
            assert!(len > 0 || room == expected, "{taken}: {room:?}");
            assert!(taken < 1_000_000);
        }
        // The total is twice the longest ring, in records of 64 bytes or of a little more than 16 KiB.
        let most = (32 << 20) / if len == 0 { 64 } else { 16_384 } + 64;
        assert!(taken <= most && taken > most / 2, "{taken} of {len} bytes");
        w.run(Span::millis(10), |_| false);
        check_the_job_communicates(&mut w);
    }
}
