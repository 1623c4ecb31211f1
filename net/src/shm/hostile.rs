//! Tests of a port against a process of the same user that violates the protocol in everything that the two share: the
//! socket and its messages, the segment and each of its fields, and the memory that references name.
//!
//! Each round of the attacker begins with honest records and an honest reference, which the port must take, so that the
//! attack that follows meets an open connection. A neighbour exchanges records with the same port all the time, and must
//! not be affected.

#![allow(clippy::disallowed_methods)] // a test may read the clock, and sends commands to the process that it starts

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::copy::{ANSWER, COPIED, FROM, REFERENCE, REQUEST};
use super::tests::{config, join, port};
use super::*;
use crate::base::Rng;

/// The environment variable that says what a child process of these tests does: `attack` a port of some name with a
/// seed for a number of rounds, connect to a port that will `refuse`, or `survive` an attack with a seed while children
/// of fork exist.
const ORDERS: &str = "SQUALL_TEST_ATTACKER";
/// The number of honest records at the beginning of a round.
const HONEST: u64 = 16;
/// Bytes of the payload to which a reference of an honest peer refers.
const PAYLOAD: usize = 4096;
/// Bytes of memory that the attacked port lends to the attacker.
const LENT: usize = 3000;
const LENT_BYTE: u8 = 0x5a;
/// The number of kinds of attacks in this test.
const KINDS: u32 = 9;
/// The time for which either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(60);

/// The offsets of the control words of the ring that the attacker writes, and of the ring that the victim writes.
const OURS: usize = 0;
const THEIRS: usize = CONTROL_SIZE;

fn payload() -> Vec<u8> {
    (0..PAYLOAD).map(|n| (n * 7) as u8).collect()
}

/// Waits until a condition is true, for at most [`PATIENCE`].
fn wait_for(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// The attacker's end of a shared-memory connection.
struct Attacker {
    socket: OwnedFd,
    rings: Rings,
    payload: Vec<u8>,
    /// Number of records that the attacker has sent.
    sent: u64,
}

fn event_descriptor() -> OwnedFd {
    // SAFETY: eventfd(2) takes numbers and returns a new descriptor, which goes nowhere but into the `OwnedFd`.
    unsafe { OwnedFd::from_raw_fd(check(libc::eventfd(0, libc::EFD_CLOEXEC)).expect("one")) }
}

/// Returns the victim's next message, which is empty if the victim has ended the connection, or `None` if there is none
/// yet.
fn heard(socket: &OwnedFd) -> Option<Vec<u8>> {
    match socket::receive(socket.as_raw_fd()) {
        Ok((text, _)) => Some(text),
        Err(error) if is_temporary(&error) => None,
        Err(_) => Some(Vec::new()),
    }
}

impl Attacker {
    /// Connects the attacker to the port as an honest peer does.
    fn connect(name: &str) -> Self {
        let socket = socket::connect(name).expect("the victim listens");
        let (segment, memory) = Segment::create(segment_size(MIN_SIZE)).expect("memory");
        let rings = Rings::new(segment, MIN_SIZE, true, None).expect("memory");
        // This is the piece that the attacker wants to be lent.
        let place = RingLayout { control: THEIRS, base: CONTROL_PAGE + MIN_SIZE, size: MIN_SIZE };
        fetch::allow_references(&rings.segment, place);
        let wakeup = event_descriptor();
        socket::send(socket.as_raw_fd(), b"hello", &[memory.as_fd(), wakeup.as_fd()])
            .expect("room");
        wait_for("the victim says welcome", || {
            heard(&socket).is_some_and(|text| {
                assert_eq!(text, b"welcome");
                true
            })
        });
        Self { socket, rings, payload: payload(), sent: 0 }
    }

    /// Sends a record of the attacker. Returns whether the channel had room.
    fn send(&mut self, bytes: &[u8]) -> bool {
        let Rings { segment, writer, .. } = &mut self.rings;
        let sent = writer.send(segment, OutgoingRecord::from_copies(bytes, &[]));
        self.sent += u64::from(sent);
        sent
    }

    /// Sends a record that begins with this description of a payload. Returns whether there was room.
    fn refer(&mut self, description: &[u8], head: &[u8]) -> bool {
        let Rings { segment, writer, .. } = &mut self.rings;
        let sent = writer.send_reference(segment, OutgoingRecord::from_copies(description, head));
        self.sent += u64::from(sent);
        sent
    }

    /// Describes a piece of memory for a reference. Returns `None` when all slots are in use.
    fn describe(&mut self, piece: UserSlice, tag: u64) -> Option<Vec<u8>> {
        let Rings { segment, writer, lender, .. } = &mut self.rings;
        let now = (writer.records_written(), writer.taken(segment));
        let (text, len) = lender.describe(segment, now, &[piece], tag)?;
        Some(text[..len].to_vec())
    }

    /// Sends what an honest peer sends, and checks that the victim takes all of it.
    fn send_honest_records(&mut self) {
        for n in 0..HONEST {
            assert!(self.send(&[&b"honest"[..], &n.to_le_bytes()].concat()), "there is room");
        }
        let base = self.payload.as_ptr().expose_provenance() as u64;
        if self.rings.lender.peer_can_read(&self.rings.segment) {
            let piece = UserSlice::lent(base, PAYLOAD as u64);
            let description = self.describe(piece, 1).expect("there are slots");
            assert!(self.refer(&description, b"lent"), "there is room");
        } else {
            // This system does not let the victim read the attacker's memory.
            assert!(self.send(b"lent"), "there is room");
        }
        let (rings, sent) = (&self.rings, self.sent);
        wait_for("the victim takes honest records", || rings.writer.taken(&rings.segment) == sent);
    }

    fn word(&self, at: usize, value: u64) {
        self.rings.segment.word(at).store(value, Ordering::Release);
    }

    fn attack(&mut self, kind: u32, name: &str, rng: &mut Rng) {
        match kind {
            0 => self.scribble(rng),
            1 => self.send_bad_record(rng),
            2 => self.refer_to_nothing(rng),
            3 => self.refer_to_revoked_memory(),
            4 => self.send_bad_messages(rng),
            5 => self.answer_with_random_values(rng),
            6 => self.ask_for_copies(rng),
            7 => send_bad_greetings(name, rng),
            _ => socket::shut_down(self.socket.as_raw_fd()),
        }
        std::thread::sleep(Duration::from_millis(2));
    }

    /// Writes random values to random control words while records are in flight.
    fn scribble(&mut self, rng: &mut Rng) {
        for _ in 0..300 {
            let value = [rng.next_u64(), 0, 1, u64::MAX][rng.below(4) as usize];
            self.word(rng.below(2 * CONTROL_SIZE as u32 / 8) as usize * 8, value);
            self.send(&[7; 300]);
            if rng.chance(0.1) {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }

    /// Writes a record that no honest writer writes to the position where the victim reads next.
    fn send_bad_record(&self, rng: &mut Rng) {
        const REFERS: u64 = 1 << 32;
        const PARTED: u64 = 1 << 33;
        // The victim has taken everything, and published its position before its count.
        let consumed = self.rings.segment.word(OURS).load(Ordering::Acquire);
        let at = |n: usize| CONTROL_PAGE + (consumed as usize + 8 * n) % MIN_SIZE;
        for n in 1..40 {
            let value = [rng.next_u64(), u64::MAX, u64::from(rng.below(80))];
            self.word(at(n), value[rng.below(3) as usize]);
        }
        let words = [
            MAX_RECORD as u64 + 1,
            0xffff_ffff,
            REFERS,
            REFERS | 5,
            REFERS | 12,
            REFERS | 40,
            REFERS | PARTED | 1 << 40 | 40,
            PARTED | 40,
            PARTED | 200 << 40 | 100,
            1 << 34 | 40,
            u64::MAX,
            MAX_RECORD as u64,
            40,
            rng.next_u64(),
        ];
        if rng.chance(0.5) {
            // The word that skips the rest of the ring leads here.
            self.word(CONTROL_PAGE, u64::MAX);
        }
        self.word(at(0), words[rng.below(words.len() as u32) as usize]);
    }

    /// Sends references to memory that does not exist, with valid and invalid descriptions.
    fn refer_to_nothing(&mut self, rng: &mut Rng) {
        let addresses = [0, 8, 0xffff_8000_0000_0000, u64::MAX, u64::MAX - 4095, 1 << 46];
        let lengths = [0, 1, PAYLOAD as u64, 1 << 20, 1 << 63, u64::MAX];
        for _ in 0..20 {
            let number = |rng: &mut Rng, good: u32| {
                let other = rng.below(70);
                if rng.chance(0.7) { good } else { other }
            };
            let (slot, generation) = (number(rng, 9), number(rng, 0));
            let count = [1, 2, 4, 5, u32::MAX][rng.below(5) as usize];
            let mut text = Vec::new();
            for word in [slot, generation, count] {
                text.extend(word.to_le_bytes());
            }
            for _ in 0..count.min(4) {
                text.extend(addresses[rng.below(6) as usize].to_le_bytes());
                text.extend(lengths[rng.below(6) as usize].to_le_bytes());
            }
            if rng.chance(0.2) {
                text.truncate(rng.below(text.len() as u32) as usize + 1);
            }
            self.refer(&text, b"");
        }
    }

    /// Sends a reference to memory that the attacker has taken back: the victim can read it, and must not use it.
    fn refer_to_revoked_memory(&mut self) {
        let base = self.payload.as_ptr().expose_provenance() as u64;
        let description = self.describe(UserSlice::lent(base, PAYLOAD as u64), 77);
        self.rings.lender.revoke(&self.rings.segment, Some(77));
        assert!(self.refer(&description.expect("there are slots"), b"revoked"));
        let (rings, sent) = (&self.rings, self.sent);
        wait_for("it is taken", || rings.writer.taken(&rings.segment) == sent);
    }

    /// Sends messages on the socket that are no close notification, or more messages after one, with descriptors that
    /// the protocol does not provide for.
    fn send_bad_messages(&mut self, rng: &mut Rng) {
        let (one, two) = (event_descriptor(), event_descriptor());
        for _ in 0..1 + rng.below(6) {
            let len = [0, 1, CLOSE_NOTIFICATION.len(), socket::MAX_GREETING][rng.below(4) as usize];
            let fds = [one.as_fd(), two.as_fd()];
            let count = rng.below(3) as usize;
            // The victim may have closed the connection.
            let _ = socket::send(self.socket.as_raw_fd(), &vec![b'c'; len], &fds[..count]);
            self.send(b"go on");
        }
    }

    /// Sends a reference to memory that the victim cannot read, and answers the victim's request for a copy with random
    /// values.
    fn answer_with_random_values(&mut self, rng: &mut Rng) {
        let description = self.describe(UserSlice::lent(8, PAYLOAD as u64), 5);
        assert!(self.refer(&description.expect("there are slots"), b"unreadable"));
        for n in 0..40 {
            let request = self.rings.segment.word(OURS + REQUEST).load(Ordering::Acquire);
            let copied = [rng.next_u64(), u64::MAX, 0, PAYLOAD as u64 + 1, 1 << 20];
            self.word(OURS + COPIED, copied[rng.below(5) as usize]);
            self.word(OURS + ANSWER, if n < 20 { rng.next_u64() } else { request });
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Asks for copies of memory that the victim lends, and of other memory, and pretends to have taken any number of
    /// records.
    fn ask_for_copies(&mut self, rng: &mut Rng) {
        // This is the first slot that is given out.
        let slot = 63u64 << 32;
        let bounce = CONTROL_PAGE + 2 * MIN_SIZE + BOUNCE_SIZE;
        self.word(THEIRS + REFERENCE, slot);
        self.word(THEIRS + FROM, 0);
        self.word(THEIRS + REQUEST, 1);
        let rings = &self.rings;
        let word = |at: usize| rings.segment.word(THEIRS + at).load(Ordering::Acquire);
        wait_for("what is lent is copied", || word(ANSWER) == 1);
        assert_eq!(word(COPIED), LENT as u64);
        for n in 2..60 {
            let from = [0, 1, LENT as u64, rng.next_u64(), u64::MAX][rng.below(5) as usize];
            let reference = [slot, slot | 1, 62 << 32, 64 << 32, rng.next_u64()];
            self.word(THEIRS + REFERENCE, reference[rng.below(5) as usize]);
            self.word(THEIRS + FROM, from);
            self.word(THEIRS + REQUEST, n);
            if n > 30 {
                // The offsets are those of consumed bytes, taken records, records held back, and the room for messages.
                let at = [0, 8, 24, 32][rng.below(4) as usize];
                self.word(THEIRS + at, rng.next_u64());
            }
            std::thread::sleep(Duration::from_micros(300));
        }
        let mut found = vec![0; BOUNCE_SIZE];
        self.rings.segment.read(bounce, &mut found);
        assert!(found.iter().all(|byte| [0, LENT_BYTE].contains(byte)), "others' memory");
    }
}

/// Connects with invalid greetings, and checks that each is refused.
fn send_bad_greetings(name: &str, rng: &mut Rng) {
    let (whole, good) = Segment::create(segment_size(MIN_SIZE)).expect("memory");
    let (_, other_size) = Segment::create(segment_size(MIN_SIZE) + 4096).expect("memory");
    // SAFETY: memfd_create(2) reads a literal and returns a new descriptor, which goes nowhere but into the `OwnedFd`.
    let unsealed = unsafe {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        OwnedFd::from_raw_fd(check(libc::memfd_create(c"test".as_ptr(), flags)).expect("memory"))
    };
    let nothing = std::fs::File::open("/dev/null").expect("it is there");
    let wakeup = event_descriptor();
    let long = [b'x'; socket::MAX_GREETING];
    let greetings: [(&[u8], &[BorrowedFd<'_>]); 8] = [
        (b"hello", &[]),
        (b"hello", &[wakeup.as_fd()]),
        (b"hello", &[wakeup.as_fd(), good.as_fd()]),
        (b"hello", &[unsealed.as_fd(), wakeup.as_fd()]),
        (b"hello", &[other_size.as_fd(), wakeup.as_fd()]),
        (b"hello", &[nothing.as_fd(), wakeup.as_fd()]),
        (b"", &[good.as_fd(), wakeup.as_fd()]),
        (&long, &[good.as_fd(), wakeup.as_fd()]),
    ];
    for _ in 0..4 {
        let (text, fds) = greetings[rng.below(8) as usize];
        let socket = socket::connect(name).expect("the victim listens");
        socket::send(socket.as_raw_fd(), text, fds).expect("room");
        wait_for("the victim hangs up", || heard(&socket).is_some_and(|text| text.is_empty()));
    }
    drop(whole);
}

/// Attacks a port of shared memory, with one connection in each round.
fn attack(name: &str, seed: u64, rounds: u32) {
    for round in 0..rounds {
        let mut rng = Rng::new(seed << 16 | u64::from(round));
        let mut attacker = Attacker::connect(name);
        attacker.send_honest_records();
        attacker.attack(round % KINDS, name, &mut rng);
    }
}

/// Connects to a port of another user, which refuses it every time.
fn be_refused(name: &str) {
    for _ in 0..20 {
        let socket = socket::connect(name).expect("every user may connect");
        let (_, memory) = Segment::create(segment_size(MIN_SIZE)).expect("memory");
        let wakeup = event_descriptor();
        // The victim may have refused the connection by now.
        let _ = socket::send(socket.as_raw_fd(), b"hello", &[memory.as_fd(), wakeup.as_fd()]);
        wait_for("it is refused", || heard(&socket).is_some_and(|text| text.is_empty()));
    }
}

/// Runs the part of a test that needs a process of its own. Other tests start it.
#[test]
#[ignore = "other tests of this module start it in a process of its own"]
fn child_process() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let number = |text: &str| text.parse::<u32>().expect("a number");
    let words: Vec<&str> = orders.split(' ').collect();
    match *words.as_slice() {
        ["attack", name, seed, rounds] => attack(name, number(seed).into(), number(rounds)),
        ["refuse", name] => be_refused(name),
        ["survive", seed, rounds] => survive(number(seed).into(), number(rounds), true),
        _ => panic!("orders: {orders}"),
    }
}

/// Starts a process with these orders, as another user if there is one.
fn start(orders: &str, user: Option<u32>) -> Child {
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["--exact", "shm::hostile::child_process", "--ignored", "--nocapture"])
        .env(ORDERS, orders)
        .current_dir("/")
        .stdout(Stdio::null());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command.spawn().expect("the test's own program")
}

/// A child of fork, which holds all descriptors until this value is dropped.
struct Holder(libc::pid_t);

impl Holder {
    fn new() -> Self {
        // SAFETY: the child of this process with several threads makes system calls alone, and never returns from here.
        let pid = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
                loop {
                    libc::pause();
                }
            }
            pid
        };
        assert!(pid > 0, "a process");
        Self(pid)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let mut status = 0;
        // SAFETY: kill(2) takes numbers; waitpid(2) writes one into `status`, a local variable. The child is this
        // value's own and was not waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, &raw mut status, 0);
        }
    }
}

/// The number of records that the attacked port has taken, by kind.
#[derive(Debug, Default)]
struct Counts {
    honest: u64,
    /// Number of honest records taken with a reference to a payload.
    references: u64,
    revoked: u64,
    /// Number of the attacker's other records that were taken.
    others: u64,
    /// Records whose payload the victim could not read where it was.
    delayed: u64,
}

/// A port whose peers are the attacker and a neighbour.
struct Victim {
    port: ShmPort,
    /// The number of records taken, by connection of the attacker.
    taken: HashMap<ShmChannelId, u64>,
    counts: Counts,
    neighbour: ShmChannelId,
    from_neighbour: u64,
    /// The buffer for payload, with a guard area of the same length before it and behind it.
    place: Vec<u8>,
    /// The payload to which references of honest peers refer.
    payload: Vec<u8>,
    lent: Vec<u8>,
}

impl Victim {
    fn turn(&mut self) {
        self.port.poll_connections();
        while let Some(event) = self.port.next_event() {
            match event {
                ChannelEvent::Requested(channel, text) if text == b"hello" => self.accept(channel),
                ChannelEvent::Requested(channel, _) => self.port.close(channel),
                ChannelEvent::Ended(channel, _) => {
                    assert_ne!(channel, self.neighbour, "the neighbour lives");
                    self.taken.remove(&channel);
                    self.port.close(channel);
                }
                ChannelEvent::Accepted(..) => panic!("the victim asked for nothing"),
            }
        }
        self.receive();
        for (channel, taken) in &self.taken {
            self.port.publish_taken(*channel, *taken);
            // There may be no room for the record.
            let _ = self.port.send(*channel, OutgoingRecord::from_copies(b"from the victim", &[]));
        }
        self.port.publish_taken(self.neighbour, self.from_neighbour);
        self.port.wake_peers();
    }

    fn accept(&mut self, channel: ShmChannelId) {
        if self.port.accept(channel, b"welcome").is_err() {
            return;
        }
        self.taken.insert(channel, 0);
        let base = self.lent.as_ptr().expose_provenance() as u64;
        let piece = UserSlice::lent(base, LENT as u64);
        // SAFETY: the piece is `lent`, whose address was just exposed, and which lives longer than the port.
        let sent = unsafe { self.port.send_reference(channel, b"lent", &[piece], 1) };
        assert_eq!(sent, ReferenceOutcome::Sent);
    }

    fn receive(&mut self) {
        let Self { port, taken, counts, neighbour, from_neighbour, place, payload, .. } = self;
        let middle = place.as_mut_ptr().wrapping_add(PAYLOAD);
        let to = UserSlice::lent(middle.expose_provenance() as u64, PAYLOAD as u64);
        port.recv(32, &mut |(channel, _), record, source| {
            if channel == *neighbour {
                assert_eq!(record, from_neighbour.to_le_bytes());
                *from_neighbour += 1;
                return RecordVerdict::Consumed;
            }
            // SAFETY: `place` has three times as many bytes, of which these are the middle, and no reference to it is
            // left.
            let had = source.map(|source| unsafe { source.fetch(to, 0) });
            if source.is_some_and(PayloadSource::is_delayed) {
                assert_eq!(had, Some(false));
                counts.delayed += 1;
                return RecordVerdict::Deferred;
            }
            let number = taken.entry(channel).or_default();
            match record {
                // A damaged ring may deliver earlier records again, which count as attacks.
                [b'h', b'o', b'n', b'e', b's', b't', n @ ..] if n == number.to_le_bytes() => {
                    counts.honest += 1;
                }
                b"lent" if had == Some(true) && place[PAYLOAD..2 * PAYLOAD] == *payload => {
                    counts.references += 1;
                }
                b"revoked" => {
                    assert_eq!(had, Some(false), "it was taken back");
                    counts.revoked += 1;
                }
                _ => counts.others += 1,
            }
            *number += 1;
            RecordVerdict::Consumed
        });
        let edges = [&self.place[..PAYLOAD], &self.place[2 * PAYLOAD..]];
        assert!(edges.into_iter().flatten().all(|byte| *byte == 0), "beside the payload");
    }
}

/// Lets a process attack a port for some rounds. With `forks`, children of fork hold the port's descriptors meanwhile.
fn survive(seed: u64, rounds: u32, forks: bool) {
    let (name, beside) = (format!("hostile-{seed}"), format!("beside-{seed}"));
    let (mut victim, mut friend) = (port(&name), port(&beside));
    let [to_victim, neighbour] = join(&mut friend, (&mut victim, name.as_str()));
    let mut victim = Victim {
        port: victim,
        taken: HashMap::new(),
        counts: Counts::default(),
        neighbour,
        from_neighbour: 0,
        place: vec![0; 3 * PAYLOAD],
        payload: payload(),
        lent: vec![LENT_BYTE; LENT],
    };
    let mut holders: Vec<Holder> = forks.then(Holder::new).into_iter().collect();
    let mut attacker = start(&format!("attack {} {seed} {rounds}", config(&name).name), None);
    let (mut sent, end) = (0u64, Instant::now() + 2 * PATIENCE);
    // The test harness shows this line when the test fails.
    eprintln!("seed {seed}, {rounds} rounds");
    let status = loop {
        if friend.send(to_victim, OutgoingRecord::from_copies(&sent.to_le_bytes(), &[])) {
            sent += 1;
        }
        victim.turn();
        friend.recv(32, &mut |_, _, _| RecordVerdict::Consumed);
        friend.poll_connections();
        assert_eq!(friend.next_event(), None, "seed {seed}: the victim lives");
        // The second child holds connections of the attacker, too.
        if forks && holders.len() == 1 && victim.counts.honest > 10 * HONEST {
            holders.push(Holder::new());
        }
        if let Some(status) = attacker.try_wait().expect("a child of ours") {
            break status;
        }
        if Instant::now() > end {
            let _ = attacker.kill();
        }
        std::thread::yield_now();
    };
    assert!(status.success(), "seed {seed}: the attacker found a fault, or did not come to an end");
    wait_for("all connections of the attacker are over", || {
        victim.turn();
        victim.port.connections.iter().flatten().count() == 1
    });
    assert_eq!(victim.from_neighbour, sent, "seed {seed}: records of the neighbour");
    let Counts { honest, references, revoked, others, delayed } = victim.counts;
    let rounds = u64::from(rounds);
    assert_eq!(honest, rounds * HONEST, "seed {seed}: honest records");
    // A damaged ring may deliver some of them again.
    assert!(references >= rounds, "seed {seed}: {references} honest references in {rounds} rounds");
    assert!(revoked >= rounds / u64::from(KINDS), "seed {seed}: {revoked} were taken back");
    assert!(others > rounds && delayed > 0, "seed {seed}: {others} of others, {delayed} delayed");
}

#[test]
fn a_hostile_process_affects_no_other_peer() {
    for seed in 1..4 {
        survive(seed, 7 * KINDS, false);
    }
}

/// The victim is a process of its own here, because the children would also hold the descriptors of other tests.
#[test]
fn forks_that_hold_descriptors_do_not_help_a_hostile_process() {
    let mut victim = start(&format!("survive 4 {}", 7 * KINDS), None);
    assert!(victim.wait().expect("a child of ours").success());
}

#[test]
fn a_process_of_another_user_is_refused() {
    if socket::current_user() != 0 {
        // Without root the test cannot run as another user.
        return;
    }
    let (name, beside) = ("hostile-user", "beside-user");
    let (mut victim, mut friend) = (port(name), port(beside));
    let [to_victim, _] = join(&mut friend, (&mut victim, name));
    let mut attacker = start(&format!("refuse {}", config(name).name), Some(65534));
    let (mut sent, mut taken, end) = (0, 0, Instant::now() + 2 * PATIENCE);
    let status = loop {
        victim.poll_connections();
        assert_eq!(victim.next_event(), None, "nobody asks");
        sent += usize::from(friend.send(to_victim, OutgoingRecord::from_copies(b"neighbour", &[])));
        taken += victim.recv(32, &mut |_, _, _| RecordVerdict::Consumed);
        if let Some(status) = attacker.try_wait().expect("a child of ours") {
            break status;
        }
        if Instant::now() > end {
            let _ = attacker.kill();
        }
        std::thread::sleep(Duration::from_micros(200));
    };
    assert!(status.success(), "it was not refused, or not at once");
    assert_eq!(victim.connections.iter().flatten().count(), 1);
    assert!(sent > 0 && sent == taken, "{taken} of {sent} records of the neighbour");
}
