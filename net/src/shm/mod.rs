//! Records through memory that two processes of one host share.
//!
//! Each port listens at an abstract Unix socket, whose name nobody has to clean up. Who connects brings a segment, a
//! memfd that is sealed against every change of its size, with a ring for each direction (`ring.rs`) and room for
//! copies (`copy.rs`), and an eventfd by which it is woken; who accepts answers with an eventfd of its own. Both ask
//! the kernel who is there (SO_PEERCRED, SO_PEERPIDFD), and talk to their own user alone. Whether it is the endpoint
//! they mean, the greetings have to prove: they are the caller's.
//!
//! The connection stays open for as long as the rings are used. Who closes it says so by one more datagram, and shuts the socket
//! down, for a child of fork may hold it. When it is hung up, or the peer's process is gone (pidfd, for the same reason), what
//! the ring still has is handed out, and then the end.
//!
//! A child of fork also keeps descriptors in this port's epoll set: closing a descriptor removes it from the set only
//! with its last copy. So the port removes the descriptors of a connection before it closes them, an event names its
//! connection by number and generation, and a process counts as dead only when its process descriptor reports that.
//!
//! The port checks everything that it reads from the segment: see `ring.rs`. A ring is bounded, and so are the pages of
//! a pair: they are added as traffic needs them.

mod copy;
mod fetch;
#[cfg(test)]
mod hostile;
mod ring;
pub(crate) mod segment;
mod socket;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::base::UserSlice;
use crate::message::{
    ChannelEvent, EndReason, MAX_RECORD, MessagePort, MessageRoom, OutgoingRecord, RecordSink,
    RecordVerdict, ReferenceOutcome, ShmChannelId,
};
use copy::{BOUNCE, Copier, Progress};
use fetch::{Lender, Lent, MOST_BYTES, MOST_PIECES, Process, refuse_references};
use ring::{CONTROL, FIRST, Found, LEAST, MOST, Place, Reader, Writer};
use segment::{Segment, check};

pub use fetch::PayloadSource;

/// Bytes before the rings: what stands beside them.
const FRONT: usize = 4096;
/// What closes a connection.
const FAREWELL: &[u8] = b"closed";
/// Connections that are being made.
const MOST_GREETING: usize = 256;
/// What epoll says of the listening socket and of the eventfd; connections have numbers below.
const LISTENER: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;
/// The bit in epoll's data that says that an event is about a connection's process, not its socket. The connection's
/// number is below this bit, and its generation above.
const PROCESS: u64 = 1 << 32;
/// The number of generations of connections. With one more, the event number of a connection could equal [`LISTENER`]
/// or [`BELL`].
const GENERATIONS: u32 = (1 << 31) - 1;

/// Returns the bytes of a segment with rings of `ring` bytes.
const fn segment_size(ring: usize) -> usize {
    FRONT + 2 * (ring + BOUNCE)
}

/// How to open a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShmConfig {
    /// The name it is found under, unique on the host.
    pub name: String,
    /// Bytes of a ring, one direction of a connection: a power of two from 64 KiB to 16 MiB.
    pub ring: usize,
}

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The peer is to say who it is.
    AwaitingHello,
    /// It did, and is to be answered.
    Requested,
    /// We did, and are to be answered.
    AwaitingWelcome,
    Open,
    /// Nothing more comes. Its owner was told.
    Ended,
}

/// The shared memory of a connection.
struct Rings {
    segment: Segment,
    writer: Writer,
    reader: Reader,
    lender: Lender,
    /// The copy of a payload by the peer.
    copier: Copier,
    /// Wakes the peer.
    bell: Option<OwnedFd>,
    /// What the peer said to have taken, when it was last asked.
    taken: u64,
    /// In the list of those that are.
    touched: bool,
}

/// A connection.
struct Connection {
    stage: Stage,
    /// The generation tells this connection from earlier ones with the same number.
    generation: u32,
    socket: OwnedFd,
    process: Option<Process>,
    /// Nobody is at the other end any more.
    hung_up: Option<EndReason>,
    rings: Option<Rings>,
}

/// See the module's documentation.
pub struct ShmPort {
    ring: usize,
    listener: OwnedFd,
    bell: OwnedFd,
    epoll: OwnedFd,
    connections: Vec<Option<Connection>>,
    /// The generation of the next connection.
    generation: u32,
    events: VecDeque<ChannelEvent>,
    /// See [`MessagePort::touched_channels`].
    touched: Vec<ShmChannelId>,
    /// Where a record is copied to before anybody looks at it.
    record: Box<[u8; MAX_RECORD]>,
}

impl Rings {
    /// Creates both ends of a segment's rings of `ring` bytes, for the creator of the segment or for its peer.
    ///
    /// # Errors
    /// There is no memory for the parts that are used from the beginning.
    fn new(
        segment: Segment,
        ring: usize,
        creator: bool,
        bell: Option<OwnedFd>,
    ) -> io::Result<Self> {
        let place = |n: usize| Place { control: n * CONTROL, base: FRONT + n * ring, size: ring };
        let bounce = |n: usize| FRONT + 2 * ring + n * BOUNCE;
        let parts = [(0, FRONT), (place(0).base, FIRST), (place(1).base, FIRST)];
        if !parts.into_iter().all(|(at, len)| segment.populate(at, len)) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let (ours, theirs) = if creator { (0, 1) } else { (1, 0) };
        let (writer, reader) = (Writer::new(place(ours)), Reader::new(place(theirs)));
        let lender = Lender::new(place(ours), bounce(ours));
        let copier = Copier::new(place(theirs), bounce(theirs));
        lender.show_probe(&segment);
        Ok(Self { segment, writer, reader, lender, copier, bell, taken: 0, touched: false })
    }

    /// Something was sent or taken.
    #[inline]
    fn touch(&mut self, channel: ShmChannelId, touched: &mut Vec<ShmChannelId>) {
        if !core::mem::replace(&mut self.touched, true) {
            touched.push(channel);
        }
    }

    /// Wakes the peer if it sleeps and has got something.
    #[inline]
    fn wake_peer(&mut self) {
        if (self.writer.must_ring() | self.reader.must_ring()) && self.reader.wakes(&self.segment) {
            self.bell.iter().for_each(wake);
        }
    }
}

/// Returns whether the error of a socket is temporary.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Wakes whoever sleeps on an eventfd.
#[cold]
fn wake(bell: &OwnedFd) {
    let one = 1u64;
    // SAFETY: write(2) reads the eight bytes of `one`, a local variable. (It fails when the counter is full, which
    // wakes as well, or when a peer sent something else than an eventfd, to its own harm.)
    unsafe { libc::write(bell.as_raw_fd(), (&raw const one).cast(), 8) };
}

impl ShmPort {
    /// Opens a port.
    ///
    /// # Errors
    /// `AddrInUse` when somebody has the name; `InvalidInput` for a ring of another size; what the system says when
    /// descriptors are short.
    pub fn open(config: &ShmConfig) -> io::Result<Self> {
        if !config.ring.is_power_of_two() || !(LEAST..=MOST).contains(&config.ring) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let listener = socket::listen(&config.name)?;
        // SAFETY: both calls take numbers and return new descriptors, which go nowhere but into the `OwnedFd`s.
        let (bell, epoll) = unsafe {
            let bell = check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?;
            let bell = OwnedFd::from_raw_fd(bell);
            (bell, OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?))
        };
        let port = Self {
            ring: config.ring,
            listener,
            bell,
            epoll,
            connections: Vec::new(),
            generation: 0,
            events: VecDeque::new(),
            touched: Vec::new(),
            record: Box::new([0; MAX_RECORD]),
        };
        port.watch(port.listener.as_raw_fd(), LISTENER)?;
        port.watch(port.bell.as_raw_fd(), BELL)?;
        Ok(port)
    }

    /// Waits for input at `fd`, too, under this number.
    fn watch(&self, fd: RawFd, number: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: number };
        // SAFETY: epoll_ctl(2) reads `event`, a local variable, and touches no other memory.
        let rc = unsafe {
            libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event)
        };
        check(rc).map(drop)
    }

    /// Keeps a connection.
    fn add(
        &mut self,
        stage: Stage,
        socket: OwnedFd,
        rings: Option<Rings>,
    ) -> io::Result<ShmChannelId> {
        let who = socket::credentials(socket.as_raw_fd())?;
        if who.uid != socket::user() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if !socket::spares(socket.as_raw_fd()) {
            return Err(io::Error::other("descriptors are short, and left to the application"));
        }
        let free = self.connections.iter().position(Option::is_none);
        let at = free.unwrap_or(self.connections.len());
        let number = u32::try_from(at).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let process = Process::of_peer(socket.as_raw_fd(), who.pid)?;
        let generation = self.generation;
        self.generation = (generation + 1) % GENERATIONS;
        let connection = Connection { stage, generation, socket, process, hung_up: None, rings };
        let name = u64::from(generation) << 33 | u64::from(number);
        let watched = self.watch(connection.socket.as_raw_fd(), name).and_then(|()| {
            let process = connection.process.as_ref().map(Process::fd);
            process.map_or(Ok(()), |process| self.watch(process, name | PROCESS))
        });
        if let Err(error) = watched {
            connection.unwatch(&self.epoll);
            return Err(error);
        }
        if at == self.connections.len() {
            self.connections.push(None);
        }
        self.connections[at] = Some(connection);
        Ok(ShmChannelId(number))
    }

    /// Returns the connection that an event is about, unless that connection has been closed.
    fn named(&self, event: u64) -> Option<ShmChannelId> {
        // Connection numbers have 32 bits.
        let channel = ShmChannelId(event as u32);
        let connection = self.connections.get(channel.0 as usize)?.as_ref()?;
        (u64::from(connection.generation) == event >> 33).then_some(channel)
    }

    #[inline]
    fn get_mut(&mut self, channel: ShmChannelId) -> Option<&mut Connection> {
        self.connections.get_mut(channel.0 as usize)?.as_mut()
    }

    /// The rings of a connection on which records may travel; it is touched.
    #[inline]
    fn rings(&mut self, channel: ShmChannelId) -> Option<&mut Rings> {
        let Self { connections, touched, .. } = self;
        match connections.get_mut(channel.0 as usize) {
            Some(Some(Connection { stage: Stage::Open, rings: Some(rings), .. })) => {
                rings.touch(channel, touched);
                Some(rings)
            }
            _ => None,
        }
    }

    /// Takes connections that wait at the listening socket.
    fn take_incoming(&mut self) {
        while let Ok(socket) = socket::accept(self.listener.as_raw_fd()) {
            let greeting =
                |c: &&Connection| matches!(c.stage, Stage::AwaitingHello | Stage::Requested);
            let many = self.connections.iter().flatten().filter(greeting).count();
            if many >= MOST_GREETING {
                // It is told by the end of the connection.
                continue;
            }
            if let Err(error) = self.add(Stage::AwaitingHello, socket, None) {
                log::info!("a connection through shared memory is refused: {error}");
            }
        }
    }

    /// Something is to be read from a connection's socket, or it is at its end.
    fn hear(&mut self, channel: ShmChannelId) {
        let Some(connection) = self.get_mut(channel) else { return };
        let stage = connection.stage;
        let heard = match socket::receive(connection.socket.as_raw_fd()) {
            Err(error) if is_passing(&error) => return,
            Ok((text, fds)) if !text.is_empty() => Some((text, fds)),
            Ok(_) | Err(_) => None,
        };
        let greeting = match (stage, heard) {
            // Whatever is said after the greetings is that it is closed.
            (Stage::Open, Some(_)) => return self.hang_up(channel, EndReason::Closed),
            (_, Some((text, fds))) => connection.greet(fds).is_ok().then_some(text),
            (_, None) => None,
        };
        match (stage, greeting) {
            (Stage::AwaitingHello, Some(text)) => {
                self.events.push_back(ChannelEvent::Requested(channel, text));
            }
            (_, Some(text)) => self.events.push_back(ChannelEvent::Accepted(channel, text)),
            (Stage::AwaitingHello, None) => self.close(channel),
            (_, None) => self.hang_up(channel, EndReason::PeerDied),
        }
    }

    /// The process at the other end is gone. It may have closed the connection before.
    fn bereave(&mut self, channel: ShmChannelId) {
        let Some(connection) = self.get_mut(channel) else { return };
        if connection.process.as_ref().is_none_or(Process::lives) {
            return;
        }
        match socket::receive(connection.socket.as_raw_fd()) {
            Ok((text, _)) if !text.is_empty() && connection.stage == Stage::Open => {
                self.hang_up(channel, EndReason::Closed);
            }
            // The socket may have nothing to read, not even an end: a child of the peer's process may hold it.
            _ => self.hang_up(channel, EndReason::PeerDied),
        }
    }

    /// Nobody is at the other end any more.
    fn hang_up(&mut self, channel: ShmChannelId, ending: EndReason) {
        let Self { connections, epoll, .. } = self;
        let Some(Some(connection)) = connections.get_mut(channel.0 as usize) else { return };
        connection.hung_up = Some(ending);
        if let Some(rings) = &mut connection.rings {
            rings.reader.end();
        }
        connection.unwatch(epoll);
        if connection.stage != Stage::Open {
            connection.stage = Stage::Ended;
            self.events.push_back(ChannelEvent::Ended(channel, ending));
        }
    }
}

impl Connection {
    /// Takes the connection's descriptors out of an epoll set. Closing them does not, while a child of fork holds them.
    fn unwatch(&self, epoll: &OwnedFd) {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let process = self.process.as_ref().map(Process::fd);
        for fd in [Some(self.socket.as_raw_fd()), process].into_iter().flatten() {
            // SAFETY: epoll_ctl(2) reads at most `event`, a local variable; a descriptor that is not watched is
            // refused.
            unsafe {
                libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, &raw mut event);
            };
        }
    }

    /// Finds out whether we can read the peer's memory, and says so to it.
    fn probe(&self) {
        let (Some(rings), Some(process)) = (&self.rings, &self.process) else { return };
        if !process.probe(&rings.segment, rings.reader.place()) {
            log::debug!(
                "a peer's memory cannot be read (process_vm_readv: another PID namespace, or ptrace is restricted): \
                 its long messages are copied through shared memory, twice"
            );
        }
    }

    /// Takes what comes with a peer's greeting.
    fn greet(&mut self, fds: Vec<OwnedFd>) -> io::Result<()> {
        let unexpected = || io::Error::other("the peer's greeting is not what it should be");
        let mut fds = fds.into_iter();
        match (self.stage, &mut self.rings) {
            (Stage::AwaitingHello, None) => {
                let (memory, bell) = (fds.next(), fds.next());
                let memory = memory.ok_or_else(unexpected)?;
                let (least, most) = (segment_size(LEAST), segment_size(MOST));
                let segment = Segment::open(memory.as_fd(), least, most)?;
                let size = (segment.len() - FRONT) / 2 - BOUNCE;
                if !size.is_power_of_two() || segment.len() != segment_size(size) {
                    return Err(unexpected());
                }
                self.rings = Some(Rings::new(segment, size, false, bell)?);
                self.stage = Stage::Requested;
                Ok(())
            }
            (Stage::AwaitingWelcome, Some(rings)) => {
                rings.bell = fds.next();
                self.stage = Stage::Open;
                self.probe();
                Ok(())
            }
            _ => Err(unexpected()),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(rings) = &mut self.rings {
            rings.lender.revoke(&rings.segment, None);
        }
        // Who was not accepted is told by the end of the socket: it would take this for a welcome.
        if !matches!(self.stage, Stage::AwaitingHello | Stage::Requested) {
            let _gone = socket::send(self.socket.as_raw_fd(), FAREWELL, &[]);
        }
        socket::shut_down(self.socket.as_raw_fd());
    }
}

impl Drop for ShmPort {
    fn drop(&mut self) {
        // A child of fork may hold the listening socket, and a process that connects to it then would wait for an answer.
        socket::shut_down(self.listener.as_raw_fd());
    }
}

impl MessagePort for ShmPort {
    fn connect(&mut self, name: &str, hello: &[u8]) -> io::Result<ShmChannelId> {
        let socket = socket::connect(name)?;
        let (segment, memory) = Segment::create(segment_size(self.ring))?;
        let raw = socket.as_raw_fd();
        let rings = Rings::new(segment, self.ring, true, None)?;
        // Who it is we look at before we say anything.
        let channel = self.add(Stage::AwaitingWelcome, socket, Some(rings))?;
        if let Err(error) = socket::send(raw, hello, &[memory.as_fd(), self.bell.as_fd()]) {
            self.close(channel);
            return Err(error);
        }
        Ok(channel)
    }

    fn accept(&mut self, channel: ShmChannelId, welcome: &[u8]) -> io::Result<()> {
        let bell = self.bell.try_clone()?;
        let connection = self.get_mut(channel).filter(|c| c.stage == Stage::Requested);
        let connection = connection.ok_or(io::ErrorKind::NotConnected)?;
        connection.stage = Stage::Open;
        connection.probe();
        let sent = socket::send(connection.socket.as_raw_fd(), welcome, &[bell.as_fd()]);
        if sent.is_err() {
            self.close(channel);
        }
        sent
    }

    fn close(&mut self, channel: ShmChannelId) {
        if let Some(place) = self.connections.get_mut(channel.0 as usize)
            && let Some(connection) = place.take()
        {
            connection.unwatch(&self.epoll);
        }
        // Its number may be another's soon.
        self.touched.retain(|touched| *touched != channel);
        self.events.retain(|event| {
            !matches!(event, ChannelEvent::Requested(it, _) | ChannelEvent::Accepted(it, _) | ChannelEvent::Ended(it, _) if *it == channel)
        });
    }

    fn watches_process(&self, channel: ShmChannelId) -> bool {
        let connection = self.connections.get(channel.0 as usize).and_then(Option::as_ref);
        connection.is_some_and(|connection| connection.process.is_some())
    }

    fn poll_connections(&mut self) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
        // SAFETY: epoll_wait(2) writes at most the 32 events that it is told of, into a local array.
        let n = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), 32, 0) };
        for event in events.iter().take(usize::try_from(n).unwrap_or(0)) {
            let number = event.u64;
            match number {
                LISTENER => self.take_incoming(),
                BELL => {
                    let mut count = 0u64;
                    // SAFETY: read(2) writes at most the eight bytes of `count`, a local variable.
                    unsafe {
                        libc::read(self.bell.as_raw_fd(), (&raw mut count).cast(), 8);
                    }
                }
                _ => match self.named(number) {
                    Some(channel) if number & PROCESS != 0 => self.bereave(channel),
                    Some(channel) => self.hear(channel),
                    // The connection was closed meanwhile.
                    None => {}
                },
            }
        }
        for connection in self.connections.iter_mut().flatten() {
            if let Connection { stage: Stage::Open, rings: Some(rings), .. } = connection {
                // SAFETY: `refer`'s contract: what its records refer to is readable until they were taken, as `recv`
                // last saw it, or their tag was revoked.
                unsafe { rings.lender.copy_out(&rings.segment, rings.taken) };
            }
        }
    }

    fn next_event(&mut self) -> Option<ChannelEvent> {
        self.events.pop_front()
    }

    #[inline]
    fn send(&mut self, channel: ShmChannelId, record: OutgoingRecord<'_>) -> bool {
        self.rings(channel).is_none_or(|rings| rings.writer.send(&rings.segment, record))
    }

    #[inline]
    fn send_split(&mut self, channel: ShmChannelId, record: OutgoingRecord<'_>) -> bool {
        self.rings(channel).is_none_or(|rings| rings.writer.send_parted(&rings.segment, record))
    }

    #[inline]
    fn peer_room(&self, channel: ShmChannelId) -> MessageRoom {
        match self.connections.get(channel.0 as usize) {
            Some(Some(Connection { rings: Some(rings), .. })) => rings.writer.room(&rings.segment),
            _ => MessageRoom::Ample,
        }
    }

    #[inline]
    fn takes_messages(&mut self, channel: ShmChannelId) -> bool {
        match self.get_mut(channel) {
            Some(Connection { rings: Some(rings), .. }) => {
                rings.writer.takes_messages(&rings.segment)
            }
            _ => true,
        }
    }

    #[inline]
    fn send_message(&mut self, channel: ShmChannelId, record: OutgoingRecord<'_>) -> bool {
        self.rings(channel).is_none_or(|rings| {
            rings.writer.takes_messages(&rings.segment) && rings.writer.send(&rings.segment, record)
        })
    }

    #[inline]
    fn publish_room(&mut self, channel: ShmChannelId, room: MessageRoom) {
        let Self { connections, touched, .. } = self;
        if let Some(Some(Connection { rings: Some(rings), .. })) =
            connections.get_mut(channel.0 as usize)
        {
            rings.reader.show_room(&rings.segment, room);
            rings.touch(channel, touched);
        }
    }

    unsafe fn send_reference(
        &mut self,
        channel: ShmChannelId,
        head: &[u8],
        pieces: &[UserSlice],
        tag: u64,
    ) -> ReferenceOutcome {
        let Some(rings) = self.rings(channel) else { return ReferenceOutcome::Sent };
        if pieces.len() > MOST_PIECES || !rings.lender.is_wanted(&rings.segment) {
            return ReferenceOutcome::Impossible;
        }
        let now = (rings.writer.records(), rings.taken);
        let Some((text, len)) = rings.lender.describe(&rings.segment, now, pieces, tag) else {
            return ReferenceOutcome::Full;
        };
        let mut first = [0; MOST_BYTES];
        first[..len].copy_from_slice(&text[..len]);
        if rings.writer.refer(&rings.segment, OutgoingRecord::of_copies(&first[..len], head)) {
            ReferenceOutcome::Sent
        } else {
            rings.lender.withdraw();
            ReferenceOutcome::Full
        }
    }

    fn revoke_memory(&mut self, channel: ShmChannelId, tag: u64) {
        if let Some(Connection { rings: Some(rings), .. }) = self.get_mut(channel) {
            rings.lender.revoke(&rings.segment, Some(tag));
        }
    }

    #[inline]
    fn recv(&mut self, budget: usize, sink: &mut RecordSink<'_>) -> usize {
        let mut all = 0;
        for (connection, number) in self.connections.iter_mut().zip(0u32..) {
            let Some(Connection { stage, rings: Some(rings), hung_up, process, .. }) = connection
            else {
                continue;
            };
            if *stage != Stage::Open {
                continue;
            }
            // Where it has taken all there is nothing to look at.
            let all_taken = rings.taken == rings.writer.records();
            let mut left = budget;
            let over = loop {
                if left == 0 {
                    break None;
                }
                if hung_up.is_some() && rings.reader.is_exhausted() {
                    break *hung_up;
                }
                let found = rings.reader.peek(&rings.segment, &mut self.record);
                // Behind the record: what the peer had taken when it wrote that is among this.
                let taken =
                    if all_taken { rings.taken } else { rings.writer.taken(&rings.segment) };
                if rings.taken != taken {
                    rings.taken = taken;
                    rings.touch(ShmChannelId(number), &mut self.touched);
                }
                match found {
                    Found::Record(waiting) => {
                        let record = &self.record[..waiting.shown];
                        let channel = (ShmChannelId(number), taken);
                        let verdict = if waiting.refers {
                            let peer = (process.as_ref(), hung_up.is_some());
                            let verdict = referring(peer, rings, channel, record, sink);
                            if rings.copier.is_open() {
                                rings.touch(ShmChannelId(number), &mut self.touched);
                            }
                            verdict
                        } else if waiting.shown < waiting.len {
                            let (at, rest) =
                                (rings.reader.rest(waiting), waiting.len - waiting.shown);
                            let source = PayloadSource::rest(&rings.segment, at, rest as u64);
                            sink(channel, record, Some(&source))
                        } else {
                            sink(channel, record, None)
                        };
                        match verdict {
                            RecordVerdict::Consumed => {
                                rings.reader.consume(&rings.segment, waiting.len);
                                left -= 1;
                            }
                            RecordVerdict::Deferred => {
                                rings.reader.hold_back(&rings.segment);
                                break None;
                            }
                            RecordVerdict::Broken => break Some(EndReason::Closed),
                        }
                    }
                    Found::Nothing => break *hung_up,
                    Found::Nonsense => break Some(EndReason::Closed),
                }
            };
            if left < budget {
                rings.touch(ShmChannelId(number), &mut self.touched);
                all += budget - left;
            }
            if let Some(ending) = over {
                *stage = Stage::Ended;
                self.events.push_back(ChannelEvent::Ended(ShmChannelId(number), ending));
            }
        }
        all
    }

    #[inline]
    fn publish_taken(&mut self, channel: ShmChannelId, count: u64) {
        if let Some(Connection { rings: Some(rings), .. }) = self.get_mut(channel) {
            rings.reader.show_taken(&rings.segment, count);
        }
    }

    #[inline]
    fn peer_taken(&self, channel: ShmChannelId) -> u64 {
        match self.connections.get(channel.0 as usize) {
            Some(Some(Connection { rings: Some(rings), .. })) => rings.taken,
            _ => 0,
        }
    }

    #[inline]
    fn touched_channels(&self) -> &[ShmChannelId] {
        &self.touched
    }

    fn peer_deferrals(&self, channel: ShmChannelId) -> u64 {
        match self.connections.get(channel.0 as usize) {
            Some(Some(Connection { rings: Some(rings), .. })) => {
                rings.writer.held_back(&rings.segment)
            }
            _ => 0,
        }
    }

    #[inline]
    fn wake_peers(&mut self) {
        for channel in self.touched.drain(..) {
            let connection = self.connections.get_mut(channel.0 as usize);
            if let Some(Some(Connection { stage, rings: Some(rings), .. })) = connection {
                rings.touched = false;
                if *stage == Stage::Open {
                    rings.wake_peer();
                }
            }
        }
    }

    fn announce_sleep(&mut self) -> bool {
        for connection in self.connections.iter().flatten() {
            if let Connection { stage: Stage::Open, rings: Some(rings), .. } = connection {
                rings.writer.fall_asleep(&rings.segment);
            }
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.events.is_empty()
            && self.connections.iter().flatten().all(|connection| match connection {
                Connection { stage: Stage::Open, rings: Some(rings), .. } => {
                    rings.reader.is_empty(&rings.segment)
                        && !rings.writer.may_resume(&rings.segment)
                        && rings.writer.taken(&rings.segment) == rings.taken
                }
                _ => true,
            })
    }

    fn wake_sleeper(&mut self) {
        wake(&self.bell);
    }

    fn fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

/// Hands out a record that begins with the description of a payload. `over` says that the process at the other end has
/// gone.
#[cold]
fn referring(
    (process, over): (Option<&Process>, bool),
    rings: &mut Rings,
    channel: (ShmChannelId, u64),
    record: &[u8],
    sink: &mut RecordSink<'_>,
) -> RecordVerdict {
    let Rings { segment, reader, copier, .. } = rings;
    let (segment, place) = (&*segment, reader.place());
    let lent = process.and_then(|process| Lent::read(process, segment, place, record));
    let Some((lent, len)) = lent else { return RecordVerdict::Broken };
    let head = &record[len..];
    if copier.is_open() {
        let source = match copier.poll(segment) {
            Progress::Waiting if !over => {
                reader.alert();
                return RecordVerdict::Deferred;
            }
            Progress::Whole => PayloadSource::copied(copier.bytes()),
            Progress::Waiting | Progress::Gone => PayloadSource::gone(),
        };
        let verdict = sink(channel, head, Some(&source));
        if verdict != RecordVerdict::Deferred {
            copier.end();
        }
        return verdict;
    }
    // No process is left that could copy an unreadable payload: the peer has ended, or has taken back all that it lent.
    let source = if over { PayloadSource::gone() } else { PayloadSource::lent(lent) };
    let verdict = sink(channel, head, Some(&source));
    if source.is_delayed() {
        refuse_references(segment, place);
        log::info!(
            "a peer's memory cannot be read any more: process_vm_readv failed, because its privileges have changed or other \
             processes cannot read a mapping; its long messages are copied twice, through shared memory"
        );
        if verdict == RecordVerdict::Deferred
            && let Some(wanted) = source.as_lent().and_then(Lent::wanted)
        {
            copier.begin(segment, wanted);
            reader.alert();
        }
    }
    verdict
}
