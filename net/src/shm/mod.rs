//! Shared-memory channels: records between two processes of one host.
//!
//! Each port listens at an abstract Unix socket, whose name disappears with the process. The
//! connecting process creates a segment: a memfd that is sealed against changes of its size, with a
//! ring for each direction (`ring.rs`) and buffers for copies (`copy.rs`). It sends the segment and
//! an eventfd, by which it is woken. The accepting process answers with its own eventfd. Both ask
//! the kernel for the other process's user (SO_PEERCRED, SO_PEERPIDFD) and refuse other users. The
//! greetings prove that the peer is the intended endpoint; the caller provides and checks them.
//!
//! The connection stays open as long as the rings are used. A process that closes the connection
//! sends one more datagram and shuts the socket down, because a child of fork may still hold the
//! descriptor. When the connection is shut down, or the peer's process has ended (which a pidfd
//! reports, for the same reason), the port hands out the records that are left, and then the end of
//! the channel.
//!
//! A child of fork also keeps descriptors in this port's epoll set, because closing a descriptor
//! removes it from the set only with its last copy. So the port removes the descriptors of a
//! connection before it closes them. An event names its connection by number and generation. A
//! process counts as ended only when its pidfd reports that.
//!
//! The port checks everything that it reads from the segment; see `ring.rs`. Rings are bounded, and
//! their pages are allocated as the traffic needs them.

mod copy;
mod fetch;
#[cfg(test)]
mod hostile;
mod ring;
pub(crate) mod segment;
pub(crate) mod socket;
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
use copy::{BOUNCE_SIZE, CopyProgress, CopyReceiver};
use fetch::{
    Lender, MAX_DESCRIPTION, MAX_REFERENCE_PIECES, PeerProcess, ReferencedPayload,
    refuse_references,
};
use ring::{
    CONTROL_SIZE, INITIAL_SIZE, MAX_SIZE, MIN_SIZE, PeekOutcome, RingLayout, RingReader, RingWriter,
};
use segment::{Segment, check};

pub use fetch::PayloadSource;

/// Size in bytes of the control words at the beginning of a segment.
const CONTROL_PAGE: usize = 4096;
/// Datagram by which an end of a channel notifies the other that it closes the connection.
const CLOSE_NOTIFICATION: &[u8] = b"closed";
/// Largest number of connections whose handshake is not complete. It bounds the descriptors that
/// other processes of the user can take.
const MAX_HANDSHAKES: usize = 256;
/// Event numbers of the listening socket and of the eventfd. The numbers of connections are
/// smaller.
const LISTENER: u64 = u64::MAX;
const WAKEUP: u64 = u64::MAX - 1;
/// Bit of an event number that marks an event of the connection's process, not of its socket. The
/// number of the connection is below this bit, its generation above.
const PROCESS_EVENT: u64 = 1 << 32;
/// Number of generations. With one more, the event number of a connection could equal [`LISTENER`]
/// or [`WAKEUP`].
const GENERATIONS: u32 = (1 << 31) - 1;

/// Returns the size in bytes of a segment whose rings have `ring` bytes each.
const fn segment_size(ring: usize) -> usize {
    CONTROL_PAGE + 2 * (ring + BOUNCE_SIZE)
}

/// The configuration of a shared-memory port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShmConfig {
    /// Name of the port, unique on the host, by which peers connect.
    pub name: String,
    /// Size of a ring in bytes, for one direction of a channel: a power of two from 64 KiB to 16
    /// MiB.
    pub ring: usize,
}

/// The stage of a connection between two shared-memory ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The peer has connected and is to send its hello.
    AwaitingHello,
    /// The peer's hello was handed to the owner, who is to answer it.
    Requested,
    /// This port has sent a hello and waits for the welcome.
    AwaitingWelcome,
    Open,
    /// The channel has ended, and the owner has been notified.
    Ended,
}

/// The shared memory of a channel, as one of its ends uses it.
struct Rings {
    segment: Segment,
    writer: RingWriter,
    reader: RingReader,
    lender: Lender,
    /// Receiver of a payload that the peer copies into shared memory.
    copier: CopyReceiver,
    /// Eventfd of the peer, by which this end wakes it.
    wakeup: Option<OwnedFd>,
    /// Number of this end's records that the peer had taken when the port last looked.
    taken: u64,
    /// The channel is in the list of channels that had records since the last wake-up of peers.
    touched: bool,
}

/// A connection of a shared-memory port to a peer.
struct Connection {
    stage: Stage,
    /// Number that distinguishes this connection from earlier ones with the same channel number.
    generation: u32,
    socket: OwnedFd,
    process: Option<PeerProcess>,
    /// Set when the peer has closed the connection or ended.
    hung_up: Option<EndReason>,
    rings: Option<Rings>,
}

/// The port for shared-memory channels; see the documentation of the module.
pub struct ShmPort {
    ring: usize,
    listener: OwnedFd,
    wakeup: OwnedFd,
    epoll: OwnedFd,
    connections: Vec<Option<Connection>>,
    /// Generation number that the next connection gets.
    generation: u32,
    events: VecDeque<ChannelEvent>,
    /// Channels that [`MessagePort::touched_channels`] returns.
    touched: Vec<ShmChannelId>,
    /// Buffer to which a record is copied before it is checked, because the peer may change the
    /// original at any time.
    record: Box<[u8; MAX_RECORD]>,
}

impl Rings {
    /// Creates this process's ends of the rings of a segment, either as the creator of the segment
    /// or as its peer. `ring` is the size of a ring.
    ///
    /// # Errors
    /// There is no memory for the parts that are used from the beginning.
    fn new(
        segment: Segment,
        ring: usize,
        creator: bool,
        wakeup: Option<OwnedFd>,
    ) -> io::Result<Self> {
        let place = |n: usize| RingLayout {
            control: n * CONTROL_SIZE,
            base: CONTROL_PAGE + n * ring,
            size: ring,
        };
        let bounce = |n: usize| CONTROL_PAGE + 2 * ring + n * BOUNCE_SIZE;
        let parts =
            [(0, CONTROL_PAGE), (place(0).base, INITIAL_SIZE), (place(1).base, INITIAL_SIZE)];
        if !parts.into_iter().all(|(at, len)| segment.populate(at, len)) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let (ours, theirs) = if creator { (0, 1) } else { (1, 0) };
        // Each process writes one ring and reads the other; the control words of a ring are shared
        // by its reader and its writer.
        let (writer, reader) = (RingWriter::new(place(ours)), RingReader::new(place(theirs)));
        let lender = Lender::new(place(ours), bounce(ours));
        let copier = CopyReceiver::new(place(theirs), bounce(theirs));
        lender.publish_probe(&segment);
        Ok(Self { segment, writer, reader, lender, copier, wakeup, taken: 0, touched: false })
    }

    /// Adds the channel to the list of channels that had records, unless it is there.
    #[inline]
    fn touch(&mut self, channel: ShmChannelId, touched: &mut Vec<ShmChannelId>) {
        if !core::mem::replace(&mut self.touched, true) {
            touched.push(channel);
        }
    }

    /// Wakes the peer if it sleeps and has something to read.
    #[inline]
    fn wake_peer(&mut self) {
        if (self.writer.take_pending_wakeup() | self.reader.take_pending_wakeup())
            && self.reader.take_sleep_flag(&self.segment)
        {
            self.wakeup.iter().for_each(signal_eventfd);
        }
    }
}

/// Returns whether the error of a socket is temporary (nothing to read, or interrupted).
fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Increments an eventfd, which wakes the process that sleeps on it.
#[cold]
fn signal_eventfd(wakeup: &OwnedFd) {
    let one = 1u64;
    // SAFETY: write(2) reads the eight bytes of `one`, a local variable. (It fails when the counter is full, which
    // wakes as well, or when a peer sent something else than an eventfd, to its own harm.)
    unsafe { libc::write(wakeup.as_raw_fd(), (&raw const one).cast(), 8) };
}

impl ShmPort {
    /// Opens a port.
    ///
    /// # Errors
    /// `AddrInUse` if another port has the name; `InvalidInput` for an invalid size of the ring;
    /// the error of the system if descriptors are short.
    pub fn open(config: &ShmConfig) -> io::Result<Self> {
        if !config.ring.is_power_of_two() || !(MIN_SIZE..=MAX_SIZE).contains(&config.ring) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let listener = socket::listen(&config.name)?;
        // SAFETY: both calls take numbers and return new descriptors, which go nowhere but into the `OwnedFd`s.
        let (wakeup, epoll) = unsafe {
            let wakeup = check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?;
            let wakeup = OwnedFd::from_raw_fd(wakeup);
            (wakeup, OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?))
        };
        let port = Self {
            ring: config.ring,
            listener,
            wakeup,
            epoll,
            connections: Vec::new(),
            generation: 0,
            events: VecDeque::new(),
            touched: Vec::new(),
            record: Box::new([0; MAX_RECORD]),
        };
        port.watch(port.listener.as_raw_fd(), LISTENER)?;
        port.watch(port.wakeup.as_raw_fd(), WAKEUP)?;
        Ok(port)
    }

    /// Adds a descriptor to the epoll set, with this event number.
    fn watch(&self, fd: RawFd, number: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: number };
        // SAFETY: epoll_ctl(2) reads `event`, a local variable, and touches no other memory.
        let rc = unsafe {
            libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event)
        };
        check(rc).map(drop)
    }

    /// Adds a connection, if its process belongs to this user.
    ///
    /// # Errors
    /// `PermissionDenied` for another user; the error of the system; too few descriptors are left.
    fn add_connection(
        &mut self,
        stage: Stage,
        socket: OwnedFd,
        rings: Option<Rings>,
    ) -> io::Result<ShmChannelId> {
        let who = socket::credentials(socket.as_raw_fd())?;
        if who.uid != socket::current_user() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if !socket::has_spare_descriptors(socket.as_raw_fd()) {
            return Err(io::Error::other(
                "no shared-memory channel: more than half of the file descriptors are in use; raise `ulimit -n`",
            ));
        }
        // Numbers are reused, so the list never grows beyond the largest number of simultaneous
        // connections.
        let free = self.connections.iter().position(Option::is_none);
        let at = free.unwrap_or(self.connections.len());
        let number = u32::try_from(at).map_err(|_| io::ErrorKind::OutOfMemory)?;
        // The descriptor is opened at once. On kernels without SO_PEERPIDFD the process is found by
        // its ID, which may be reused after its end.
        let process = PeerProcess::of_peer(socket.as_raw_fd(), who.pid)?;
        let generation = self.generation;
        self.generation = (generation + 1) % GENERATIONS;
        let connection = Connection { stage, generation, socket, process, hung_up: None, rings };
        let name = u64::from(generation) << 33 | u64::from(number);
        let watched = self.watch(connection.socket.as_raw_fd(), name).and_then(|()| {
            let process = connection.process.as_ref().map(PeerProcess::fd);
            process.map_or(Ok(()), |process| self.watch(process, name | PROCESS_EVENT))
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

    /// Returns the channel of an event, unless its connection has been closed.
    fn channel_of_event(&self, event: u64) -> Option<ShmChannelId> {
        // The lower 32 bits are the channel number.
        let channel = ShmChannelId(event as u32);
        let connection = self.connections.get(channel.0 as usize)?.as_ref()?;
        (u64::from(connection.generation) == event >> 33).then_some(channel)
    }

    #[inline]
    fn get_mut(&mut self, channel: ShmChannelId) -> Option<&mut Connection> {
        self.connections.get_mut(channel.0 as usize)?.as_mut()
    }

    /// Returns the rings of an open channel and marks the channel as touched (it has news for its peer).
    #[inline]
    fn open_rings(&mut self, channel: ShmChannelId) -> Option<&mut Rings> {
        let Self { connections, touched, .. } = self;
        match connections.get_mut(channel.0 as usize) {
            Some(Some(Connection { stage: Stage::Open, rings: Some(rings), .. })) => {
                rings.touch(channel, touched);
                Some(rings)
            }
            _ => None,
        }
    }

    /// Accepts the connections of peers that wait at the listening socket.
    fn accept_incoming(&mut self) {
        while let Ok(socket) = socket::accept(self.listener.as_raw_fd()) {
            let greeting =
                |c: &&Connection| matches!(c.stage, Stage::AwaitingHello | Stage::Requested);
            let many = self.connections.iter().flatten().filter(greeting).count();
            if many >= MAX_HANDSHAKES {
                // The peer learns of the refusal because its socket is closed.
                continue;
            }
            if let Err(error) = self.add_connection(Stage::AwaitingHello, socket, None) {
                log::info!("shared-memory channel refused: {error}");
            }
        }
    }

    /// Handles an event on a connection's socket: a greeting, a close notification, or the end of
    /// the connection.
    fn read_socket(&mut self, channel: ShmChannelId) {
        let Some(connection) = self.get_mut(channel) else { return };
        let stage = connection.stage;
        let heard = match socket::receive(connection.socket.as_raw_fd()) {
            Err(error) if is_temporary(&error) => return,
            Ok((text, fds)) if !text.is_empty() => Some((text, fds)),
            Ok(_) | Err(_) => None,
        };
        let greeting = match (stage, heard) {
            // Every datagram after the greetings means that the peer has closed the connection.
            (Stage::Open, Some(_)) => return self.end_connection(channel, EndReason::Closed),
            (_, Some((text, fds))) => connection.accept_greeting(fds).is_ok().then_some(text),
            (_, None) => None,
        };
        match (stage, greeting) {
            (Stage::AwaitingHello, Some(text)) => {
                self.events.push_back(ChannelEvent::Requested(channel, text));
            }
            (_, Some(text)) => self.events.push_back(ChannelEvent::Accepted(channel, text)),
            (Stage::AwaitingHello, None) => self.close(channel),
            (_, None) => self.end_connection(channel, EndReason::PeerDied),
        }
    }

    /// Handles an event of the peer's process. The process may have closed the connection before it
    /// ended.
    fn handle_process_event(&mut self, channel: ShmChannelId) {
        let Some(connection) = self.get_mut(channel) else { return };
        if connection.process.as_ref().is_none_or(PeerProcess::is_alive) {
            return;
        }
        match socket::receive(connection.socket.as_raw_fd()) {
            Ok((text, _)) if !text.is_empty() && connection.stage == Stage::Open => {
                self.end_connection(channel, EndReason::Closed);
            }
            // A child of the peer's process may hold the socket open, so it may have neither data
            // nor an end.
            _ => self.end_connection(channel, EndReason::PeerDied),
        }
    }

    /// Marks a connection whose peer has closed it or ended. An open channel ends when its records
    /// have been handed out; others end now.
    fn end_connection(&mut self, channel: ShmChannelId, ending: EndReason) {
        let Self { connections, epoll, .. } = self;
        let Some(Some(connection)) = connections.get_mut(channel.0 as usize) else { return };
        connection.hung_up = Some(ending);
        if let Some(rings) = &mut connection.rings {
            rings.reader.handle_writer_exit();
        }
        connection.unwatch(epoll);
        if connection.stage != Stage::Open {
            connection.stage = Stage::Ended;
            self.events.push_back(ChannelEvent::Ended(channel, ending));
        }
    }
}

impl Connection {
    /// Removes the connection's descriptors from an epoll set. Closing them does not remove them
    /// while a child of fork holds copies.
    fn unwatch(&self, epoll: &OwnedFd) {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let process = self.process.as_ref().map(PeerProcess::fd);
        for fd in [Some(self.socket.as_raw_fd()), process].into_iter().flatten() {
            // SAFETY: epoll_ctl(2) reads at most `event`, a local variable; a descriptor that is not watched is
            // refused.
            unsafe {
                libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, &raw mut event);
            };
        }
    }

    /// Tests whether this process can read the peer's memory, and publishes the result to the peer.
    fn probe_peer_memory(&self) {
        let (Some(rings), Some(process)) = (&self.rings, &self.process) else { return };
        if !process.probe(&rings.segment, rings.reader.place()) {
            log::debug!(
                "a peer's memory cannot be read (process_vm_readv: another PID namespace, or ptrace is restricted): \
                 its long messages are copied through shared memory, twice"
            );
        }
    }

    /// Checks the descriptors that come with a greeting, and maps the segment.
    fn accept_greeting(&mut self, fds: Vec<OwnedFd>) -> io::Result<()> {
        let unexpected = || {
            io::Error::other(
                "the peer's greeting is refused: its descriptors are not those of the protocol",
            )
        };
        let mut fds = fds.into_iter();
        match (self.stage, &mut self.rings) {
            (Stage::AwaitingHello, None) => {
                let (memory, wakeup) = (fds.next(), fds.next());
                let memory = memory.ok_or_else(unexpected)?;
                let (least, most) = (segment_size(MIN_SIZE), segment_size(MAX_SIZE));
                let segment = Segment::open(memory.as_fd(), least, most)?;
                let size = (segment.len() - CONTROL_PAGE) / 2 - BOUNCE_SIZE;
                if !size.is_power_of_two() || segment.len() != segment_size(size) {
                    return Err(unexpected());
                }
                self.rings = Some(Rings::new(segment, size, false, wakeup)?);
                self.stage = Stage::Requested;
                Ok(())
            }
            (Stage::AwaitingWelcome, Some(rings)) => {
                rings.wakeup = fds.next();
                self.stage = Stage::Open;
                self.probe_peer_memory();
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
        // A peer that was not accepted learns it from the end of the connection; it would take a
        // datagram for a welcome.
        if !matches!(self.stage, Stage::AwaitingHello | Stage::Requested) {
            let _gone = socket::send(self.socket.as_raw_fd(), CLOSE_NOTIFICATION, &[]);
        }
        socket::shut_down(self.socket.as_raw_fd());
    }
}

impl Drop for ShmPort {
    fn drop(&mut self) {
        // A child of fork may hold the listening socket. Without the shutdown, processes that
        // connect to it would wait for an answer.
        socket::shut_down(self.listener.as_raw_fd());
    }
}

impl MessagePort for ShmPort {
    fn connect(&mut self, name: &str, hello: &[u8]) -> io::Result<ShmChannelId> {
        let socket = socket::connect(name)?;
        let (segment, memory) = Segment::create(segment_size(self.ring))?;
        let raw = socket.as_raw_fd();
        let rings = Rings::new(segment, self.ring, true, None)?;
        // The user of the peer is checked before anything is sent to it.
        let channel = self.add_connection(Stage::AwaitingWelcome, socket, Some(rings))?;
        if let Err(error) = socket::send(raw, hello, &[memory.as_fd(), self.wakeup.as_fd()]) {
            self.close(channel);
            return Err(error);
        }
        Ok(channel)
    }

    fn accept(&mut self, channel: ShmChannelId, welcome: &[u8]) -> io::Result<()> {
        let wakeup = self.wakeup.try_clone()?;
        let connection = self.get_mut(channel).filter(|c| c.stage == Stage::Requested);
        let connection = connection.ok_or(io::ErrorKind::NotConnected)?;
        connection.stage = Stage::Open;
        connection.probe_peer_memory();
        let sent = socket::send(connection.socket.as_raw_fd(), welcome, &[wakeup.as_fd()]);
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
        // The number may soon belong to another channel.
        self.touched.retain(|touched| *touched != channel);
        self.events.retain(|event| {
            !matches!(event, ChannelEvent::Requested(it, _) | ChannelEvent::Accepted(it, _) | ChannelEvent::Ended(it, _) if *it == channel)
        });
    }

    fn is_process_watched(&self, channel: ShmChannelId) -> bool {
        let connection = self.connections.get(channel.0 as usize).and_then(Option::as_ref);
        connection.is_some_and(|connection| connection.process.is_some())
    }

    fn poll_connections(&mut self) {
        // More events are found by the next call.
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
        // SAFETY: epoll_wait(2) writes at most 32 events, which a local array has room for.
        let n = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), 32, 0) };
        for event in events.iter().take(usize::try_from(n).unwrap_or(0)) {
            let number = event.u64;
            match number {
                LISTENER => self.accept_incoming(),
                WAKEUP => {
                    let mut count = 0u64;
                    // SAFETY: read(2) writes at most the eight bytes of `count`, a local variable.
                    unsafe {
                        libc::read(self.wakeup.as_raw_fd(), (&raw mut count).cast(), 8);
                    }
                }
                _ => match self.channel_of_event(number) {
                    Some(channel) if number & PROCESS_EVENT != 0 => {
                        self.handle_process_event(channel);
                    }
                    Some(channel) => self.read_socket(channel),
                    // The connection has been closed in the meantime.
                    None => {}
                },
            }
        }
        for connection in self.connections.iter_mut().flatten() {
            if let Connection { stage: Stage::Open, rings: Some(rings), .. } = connection {
                // SAFETY: `send_reference`'s contract: what its records refer to is readable until they were taken, as `recv`
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
        self.open_rings(channel).is_none_or(|rings| rings.writer.send(&rings.segment, record))
    }

    #[inline]
    fn send_split(&mut self, channel: ShmChannelId, record: OutgoingRecord<'_>) -> bool {
        self.open_rings(channel).is_none_or(|rings| rings.writer.send_split(&rings.segment, record))
    }

    #[inline]
    fn peer_room(&self, channel: ShmChannelId) -> MessageRoom {
        match self.connections.get(channel.0 as usize) {
            Some(Some(Connection { rings: Some(rings), .. })) => rings.writer.room(&rings.segment),
            _ => MessageRoom::Ample,
        }
    }

    #[inline]
    fn has_message_room(&mut self, channel: ShmChannelId) -> bool {
        match self.get_mut(channel) {
            Some(Connection { rings: Some(rings), .. }) => {
                rings.writer.has_message_room(&rings.segment)
            }
            _ => true,
        }
    }

    #[inline]
    fn send_message(&mut self, channel: ShmChannelId, record: OutgoingRecord<'_>) -> bool {
        self.open_rings(channel).is_none_or(|rings| {
            rings.writer.has_message_room(&rings.segment)
                && rings.writer.send(&rings.segment, record)
        })
    }

    #[inline]
    fn publish_room(&mut self, channel: ShmChannelId, room: MessageRoom) {
        let Self { connections, touched, .. } = self;
        if let Some(Some(Connection { rings: Some(rings), .. })) =
            connections.get_mut(channel.0 as usize)
        {
            rings.reader.publish_room(&rings.segment, room);
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
        let Some(rings) = self.open_rings(channel) else { return ReferenceOutcome::Sent };
        if pieces.len() > MAX_REFERENCE_PIECES || !rings.lender.peer_can_read(&rings.segment) {
            return ReferenceOutcome::Impossible;
        }
        // The reference becomes the record with this number.
        let now = (rings.writer.records_written(), rings.taken);
        let Some((text, len)) = rings.lender.describe(&rings.segment, now, pieces, tag) else {
            return ReferenceOutcome::Full;
        };
        let mut first = [0; MAX_DESCRIPTION];
        first[..len].copy_from_slice(&text[..len]);
        if rings
            .writer
            .send_reference(&rings.segment, OutgoingRecord::from_copies(&first[..len], head))
        {
            ReferenceOutcome::Sent
        } else {
            rings.lender.withdraw_last();
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
            // If the peer has taken all records, the count cannot have changed, and the read of its
            // cache line is saved.
            let all_taken = rings.taken == rings.writer.records_written();
            let mut left = budget;
            let over = loop {
                if left == 0 {
                    break None;
                }
                if hung_up.is_some() && rings.reader.is_exhausted() {
                    break *hung_up;
                }
                let found = rings.reader.peek(&rings.segment, &mut self.record);
                // The count is read after the record, so it includes everything that the peer had
                // taken when it wrote the record.
                let taken =
                    if all_taken { rings.taken } else { rings.writer.taken(&rings.segment) };
                // A change of the count is news for the owner, even without a record.
                if rings.taken != taken {
                    rings.taken = taken;
                    rings.touch(ShmChannelId(number), &mut self.touched);
                }
                match found {
                    PeekOutcome::Record(waiting) => {
                        let record = &self.record[..waiting.shown];
                        let channel = (ShmChannelId(number), taken);
                        let verdict = if waiting.refers {
                            let peer = (process.as_ref(), hung_up.is_some());
                            let verdict = deliver_reference(peer, rings, channel, record, sink);
                            if rings.copier.is_open() {
                                rings.touch(ShmChannelId(number), &mut self.touched);
                            }
                            verdict
                        } else if waiting.shown < waiting.len {
                            let (at, rest) =
                                (rings.reader.rest(waiting), waiting.len - waiting.shown);
                            let source = PayloadSource::from_ring(&rings.segment, at, rest as u64);
                            sink(channel, record, Some(&source))
                        } else {
                            sink(channel, record, None)
                        };
                        match verdict {
                            RecordVerdict::Consumed => {
                                rings.reader.consume(&rings.segment, waiting.len);
                                left -= 1;
                            }
                            // Later records wait behind a deferred one, so their order is kept.
                            RecordVerdict::Deferred => {
                                rings.reader.count_deferral(&rings.segment);
                                break None;
                            }
                            RecordVerdict::Broken => break Some(EndReason::Closed),
                        }
                    }
                    PeekOutcome::Empty => break *hung_up,
                    PeekOutcome::Invalid => break Some(EndReason::Closed),
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
            rings.reader.publish_taken(&rings.segment, count);
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
                rings.writer.deferrals(&rings.segment)
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
                rings.writer.set_sleep_flag(&rings.segment);
            }
        }
        // The fence pairs with the one in `take_sleep_flag`: either this process finds what a peer
        // wrote, or the peer finds the flag.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.events.is_empty()
            && self.connections.iter_mut().flatten().all(|connection| match connection {
                Connection { stage: Stage::Open, rings: Some(rings), .. } => {
                    rings.reader.is_empty(&rings.segment)
                        && !rings.writer.take_new_room(&rings.segment)
                        && rings.writer.taken(&rings.segment) == rings.taken
                }
                _ => true,
            })
    }

    fn wake_sleeper(&mut self) {
        signal_eventfd(&self.wakeup);
    }

    fn fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

/// Hands out a record that begins with the description of a payload. `over` means that the peer's
/// process has ended.
#[cold]
fn deliver_reference(
    (process, over): (Option<&PeerProcess>, bool),
    rings: &mut Rings,
    channel: (ShmChannelId, u64),
    record: &[u8],
    sink: &mut RecordSink<'_>,
) -> RecordVerdict {
    let Rings { segment, reader, copier, .. } = rings;
    let (segment, place) = (&*segment, reader.place());
    let lent = process.and_then(|process| ReferencedPayload::read(process, segment, place, record));
    let Some((lent, len)) = lent else { return RecordVerdict::Broken };
    let head = &record[len..];
    if copier.is_open() {
        let source = match copier.poll(segment) {
            CopyProgress::Pending if !over => {
                reader.request_wakeup();
                return RecordVerdict::Deferred;
            }
            CopyProgress::Complete => PayloadSource::copied(copier.bytes()),
            CopyProgress::Pending | CopyProgress::Aborted => PayloadSource::unavailable(),
        };
        let verdict = sink(channel, head, Some(&source));
        if verdict != RecordVerdict::Deferred {
            copier.end();
        }
        return verdict;
    }
    // If the peer has ended or has revoked everything, no process is left that could copy an
    // unreadable payload.
    let source = if over { PayloadSource::unavailable() } else { PayloadSource::referenced(lent) };
    let verdict = sink(channel, head, Some(&source));
    if source.is_delayed() {
        refuse_references(segment, place);
        log::info!(
            "a peer's memory cannot be read any more: process_vm_readv failed, because its privileges have changed or other \
             processes cannot read a mapping; its long messages are copied twice, through shared memory"
        );
        if verdict == RecordVerdict::Deferred
            && let Some(wanted) =
                source.as_referenced().and_then(ReferencedPayload::payload_to_copy)
        {
            copier.begin(segment, wanted);
            reader.request_wakeup();
        }
    }
    verdict
}
