//! An end of a tunnel: local connections on one side, datagrams to the other end on the other.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use squall_net::emulator::frame::{Frame, FrameKind, PacketFrame};

use super::datagram::{Content, MOST, Name};
use super::pieces::{PieceKind, Pieces};
use crate::client::{Client, Role};
use crate::clock::{clock, timespec};
use squall_base::{Span, Time};

/// Interval at which the near end asks whether the far end is there, until the first answer. It is
/// short so that a tunnel opens quickly; [`ASK`] applies from then on.
const ASK_FIRST: Span = Span::millis(100);
const ASK: Span = Span::millis(1000);
/// Time without a datagram after which an end assumes that the other end has failed: ten questions
/// ([`ASK`]) without an answer.
const SILENCE: Span = Span::millis(10_000);
/// Time to wait for the first answer.
const FIRST: Span = Span::millis(5000);
/// Buffer sizes of the UDP socket, bytes, as far as the system grants them.
const BUFFER: usize = 4 << 20;
/// Number of datagrams to read before connections get their turn, so that a fast sender does not
/// starve them.
const BATCH: usize = 256;
/// Largest number of sessions, and of connections, at a far end. The emulator accepts as many
/// connections.
const MOST_OPEN: usize = 4096;

/// Receives a line for each event that a user may want to know.
pub(super) type EventLog<'a> = &'a mut dyn FnMut(fmt::Arguments<'_>);

/// A local connection that goes through the tunnel.
struct Connection {
    client: Client,
    pieces: Pieces,
    /// True if the local side has closed the connection, so that nothing more is to be sent.
    ended: bool,
}

impl Connection {
    fn new(stream: UnixStream) -> io::Result<Self> {
        Ok(Self { client: Client::new(stream)?, pieces: Pieces::default(), ended: false })
    }

    /// Queues bytes from the other end for the local side. Returns false if there was no room for
    /// them.
    fn queue(&mut self, bytes: &[u8]) -> bool {
        let room = self.client.has_room(bytes.len());
        if room {
            self.client.push(bytes);
        }
        room
    }

    /// Closes the connection once everything that the other end sent is written.
    fn close_when_sent(&mut self) {
        self.client.role = Role::Leaving;
    }

    /// Returns whether the connection is finished and can be removed.
    fn is_finished(&self) -> bool {
        self.client.is_done() || self.ended && self.pieces.is_done()
    }
}

/// The two kinds of ends, with their state.
enum Side {
    /// The end on the machine of the endpoints.
    Near(Near),
    /// The end on the emulator's machine.
    Far(Far),
}

struct Near {
    listener: UnixListener,
    /// Time until which no connections are accepted, because the system refused one.
    shut_until: Time,
    far: SocketAddr,
    session: u64,
    /// Number of the last connection.
    last: u32,
    began: Time,
    asked_at: Option<Time>,
    heard_at: Option<Time>,
}

impl Near {
    /// Returns when the near end asks again whether the far end is there.
    fn next_question(&self) -> Time {
        let every = if self.heard_at.is_some() { ASK } else { ASK_FIRST };
        self.asked_at.map_or(self.began, |asked_at| asked_at + every)
    }
}

struct Far {
    /// Path of the emulator's socket.
    emulator: PathBuf,
    sessions: HashMap<u64, Session>,
}

/// A near end as the far end knows it.
struct Session {
    peer: SocketAddr,
    heard_at: Time,
    /// Connections that the near end opened. A duplicate datagram does not open one again.
    opened: HashSet<u32>,
}

/// An end of a tunnel.
pub(super) struct End {
    socket: UdpSocket,
    side: Side,
    connections: HashMap<Name, Connection>,
    out: Vec<u8>,
    /// Packets lost because a connection or the socket had no room.
    lost: u64,
}

/// Binds a nonblocking UDP socket.
fn bound(addr: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(addr)?;
    socket.set_nonblocking(true)?;
    // Larger buffers are best effort: the transport retransmits packets that are lost.
    let _ = set_socket_recv_buffer_size(&socket, BUFFER);
    let _ = set_socket_send_buffer_size(&socket, BUFFER);
    Ok(socket)
}

impl End {
    /// Creates the end where endpoints are. `listener` accepts their connections; `far` is the
    /// other end.
    pub(super) fn near(listener: UnixListener, far: SocketAddr) -> io::Result<Self> {
        let any: SocketAddr =
            if far.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 16], 0).into() };
        let socket = bound(any)?;
        // On a connected socket, the system reports that no process listens at the far end.
        socket.connect(far)?;
        let session = getrandom::u64().map_err(io::Error::other)?;
        let near = Near {
            listener,
            shut_until: Time::ZERO,
            far,
            session,
            last: 0,
            began: clock(),
            asked_at: None,
            heard_at: None,
        };
        Ok(Self::new(socket, Side::Near(near)))
    }

    /// Creates the end at `addr` beside the emulator whose socket is `emulator`.
    pub(super) fn far(addr: SocketAddr, emulator: PathBuf) -> io::Result<Self> {
        Ok(Self::new(bound(addr)?, Side::Far(Far { emulator, sessions: HashMap::new() })))
    }

    fn new(socket: UdpSocket, side: Side) -> Self {
        Self { socket, side, connections: HashMap::new(), out: Vec::new(), lost: 0 }
    }

    /// Returns the local address.
    pub(super) fn addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves until `stop` becomes readable or, at the near end, until the far end is gone.
    ///
    /// # Errors
    /// The reason why the end cannot go on.
    pub(super) fn run(&mut self, stop: &UnixStream, say: EventLog<'_>) -> Result<(), String> {
        let ended = self.turn(stop, say);
        if self.lost > 0 {
            let lost = self.lost;
            say(format_args!(
                "{lost} packets were lost at this end of the tunnel: its buffers were full"
            ));
        }
        ended
    }

    fn turn(&mut self, stop: &UnixStream, say: EventLog<'_>) -> Result<(), String> {
        let mut buffer = vec![0; MOST];
        loop {
            let ready = self.wait(stop).map_err(|error| error.to_string())?;
            if ready.stop {
                return Ok(());
            }
            let now = clock();
            if ready.listener {
                self.accept(say);
            }
            if ready.socket {
                self.receive(now, &mut buffer, say);
            }
            for name in ready.names {
                self.serve(name, now);
            }
            self.serve_connections(now, say);
            self.check_sessions(now, say)?;
        }
    }

    /// Sleeps until a socket is ready or a piece or question is due.
    fn wait(&self, stop: &UnixStream) -> io::Result<WaitResult> {
        let mut fds =
            vec![PollFd::new(stop, PollFlags::IN), PollFd::new(&self.socket, PollFlags::IN)];
        let listens = if let Side::Near(near) = &self.side {
            let shut = clock() < near.shut_until;
            let events = if shut { PollFlags::empty() } else { PollFlags::IN };
            fds.push(PollFd::new(&near.listener, events));
            true
        } else {
            false
        };
        let first = fds.len();
        let mut names = Vec::with_capacity(self.connections.len());
        let mut when = match &self.side {
            Side::Near(near) => near.next_question(),
            Side::Far(_) => clock() + ASK,
        };
        for (name, connection) in &self.connections {
            let mut events = PollFlags::empty();
            if !connection.ended {
                events |= PollFlags::IN;
            }
            if connection.client.is_pending() {
                events |= PollFlags::OUT;
            }
            if let Some(at) = connection.pieces.when() {
                when = when.min(at);
            }
            // A connection that ended would always be ready.
            if !events.is_empty() {
                names.push(*name);
                fds.push(PollFd::new(&connection.client.stream, events));
            }
        }
        match poll(&mut fds, Some(&timespec(when.since(clock())))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let happened = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let mut ready = fds[first..].iter().map(happened);
        names.retain(|_| ready.next() == Some(true));
        Ok(WaitResult {
            stop: happened(&fds[0]),
            socket: happened(&fds[1]),
            listener: listens && happened(&fds[2]),
            names,
        })
    }

    /// Accepts a local connection and gives it a number.
    fn accept(&mut self, say: EventLog<'_>) {
        let Side::Near(near) = &mut self.side else { return };
        match near.listener.accept().and_then(|(stream, _)| Connection::new(stream)) {
            Ok(connection) => {
                near.last = near.last.wrapping_add(1);
                let name = Name { session: near.session, number: near.last };
                self.connections.insert(name, connection);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => {
                say(format_args!("cannot accept a connection: {error}; trying again"));
                near.shut_until = clock() + ASK;
            }
        }
    }

    /// Reads datagrams, at most [`BATCH`].
    fn receive(&mut self, now: Time, buffer: &mut [u8], say: EventLog<'_>) {
        for _ in 0..BATCH {
            match self.socket.recv_from(buffer) {
                Ok((len, from)) => {
                    if let Some((name, what)) = Content::read(&buffer[..len]) {
                        self.handle_datagram(from, name, what, now, say);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The system reports that no process received an earlier datagram. The timeout
                // covers that case.
                Err(_) => {}
            }
        }
    }

    /// Handles a datagram of the other end.
    fn handle_datagram(
        &mut self,
        from: SocketAddr,
        name: Name,
        what: Content<'_>,
        now: Time,
        say: EventLog<'_>,
    ) {
        if !self.knows(from, name, what, now, say) {
            return;
        }
        let Some(connection) = self.connections.get_mut(&name) else {
            // An end that still uses the connection gets an answer. `Closed` itself is never
            // answered.
            if matches!(what, Content::Frame(_) | Content::Piece(..)) {
                self.send_content(name, Content::Closed);
            }
            return;
        };
        match what {
            Content::Keepalive => {}
            Content::Frame(bytes) => {
                let far = matches!(self.side, Side::Far(_));
                if connection.pieces.has_begun()
                    && let Some((kind, frame)) = arrived(bytes, now)
                    && (kind == FrameKind::Packet || kind == FrameKind::Nobody && !far)
                    && !connection.queue(&frame)
                {
                    self.lost += 1;
                }
            }
            // There is no room, so the piece is not acknowledged. The other end sends it again.
            Content::Piece(_, bytes) if !connection.client.has_room(bytes.len()) => {}
            Content::Piece(number, bytes) => {
                let kind = connection.pieces.take(number);
                if kind == PieceKind::New && bytes.is_empty() {
                    connection.close_when_sent();
                } else if kind == PieceKind::New {
                    connection.client.push(bytes);
                }
                if kind != PieceKind::OutOfTurn {
                    self.send_content(name, Content::Acknowledged(number));
                }
            }
            Content::Acknowledged(number) => connection.pieces.acknowledge(number),
            Content::Closed => {
                self.connections.remove(&name);
            }
        }
    }

    /// Returns whether the datagram belongs to a known session. A far end also accepts new
    /// sessions, and the connections that they open.
    fn knows(
        &mut self,
        from: SocketAddr,
        name: Name,
        what: Content<'_>,
        now: Time,
        say: EventLog<'_>,
    ) -> bool {
        match &mut self.side {
            Side::Near(near) => {
                if name.session != near.session {
                    return false;
                }
                if near.heard_at.replace(now).is_none() {
                    say(format_args!("the emulator at {from} answers"));
                }
                true
            }
            Side::Far(far) => {
                let full = far.sessions.len() >= MOST_OPEN;
                let is_new = !far.sessions.contains_key(&name.session);
                if is_new && (full || what != Content::Keepalive) {
                    // A near end must first ask whether an emulator is here.
                    return false;
                }
                if is_new {
                    say(format_args!("a tunnel from {from} was opened"));
                }
                let session = far.sessions.entry(name.session).or_insert_with(|| Session {
                    peer: from,
                    heard_at: now,
                    opened: HashSet::new(),
                });
                (session.peer, session.heard_at) = (from, now);
                if what == Content::Keepalive {
                    self.send_content(name, Content::Keepalive);
                    return false;
                }
                let opens = matches!(what, Content::Piece(0, [_, ..]))
                    && self.connections.len() < MOST_OPEN
                    && session.opened.insert(name.number);
                if opens {
                    match UnixStream::connect(&far.emulator).and_then(Connection::new) {
                        Ok(connection) => {
                            self.connections.insert(name, connection);
                        }
                        Err(error) => say(format_args!("{}: {error}", far.emulator.display())),
                    }
                }
                true
            }
        }
    }

    /// Sends a datagram to the other end. A datagram that the system refuses is lost.
    fn send_content(&mut self, name: Name, what: Content<'_>) {
        what.write(name, &mut self.out);
        send(&self.socket, &self.side, name, &self.out);
    }

    /// Reads from a local connection and passes its frames to the other end.
    fn serve(&mut self, name: Name, now: Time) {
        let Self { socket, side, connections, out, lost } = self;
        let Some(connection) = connections.get_mut(&name) else { return };
        let gone = connection.client.read().is_err();
        let broken = loop {
            match connection.client.next() {
                Ok(None) => break false,
                Err(_) => break true,
                Ok(Some(frame)) => {
                    let len = frame.bytes.len();
                    if let Some(departing) = departing(&frame, now) {
                        Content::Frame(&departing).write(name, out);
                        *lost += u64::from(!send(socket, side, name, out));
                    } else {
                        connection.pieces.push(frame.bytes);
                    }
                    connection.client.handled(len);
                }
            }
        };
        if (gone || broken) && !connection.ended {
            connection.ended = true;
            connection.pieces.end();
        }
    }

    /// Sends pieces that are due, and removes connections that are finished or whose other end does
    /// not answer.
    fn serve_connections(&mut self, now: Time, say: EventLog<'_>) {
        let Self { socket, side, connections, out, .. } = self;
        connections.retain(|name, connection| {
            if let Some((number, bytes)) = connection.pieces.due(now) {
                Content::Piece(number, bytes).write(*name, out);
                send(socket, side, *name, out);
            }
            let broken = connection.client.flush().is_err();
            let given_up = connection.pieces.is_given_up(now);
            if given_up {
                say(format_args!(
                    "connection {} is closed: the other end of the tunnel did not acknowledge its data",
                    name.number
                ));
            }
            !(given_up || broken && connection.ended || connection.is_finished())
        });
    }

    /// Asks whether the far end is there, and closes sessions whose other end was silent for too
    /// long.
    fn check_sessions(&mut self, now: Time, say: EventLog<'_>) -> Result<(), String> {
        match &mut self.side {
            Side::Near(near) => {
                match near.heard_at {
                    None if near.began + FIRST <= now => {
                        return Err(format!(
                            "no emulator answers at {}: is it up with --listen, and do firewalls let its UDP port through?",
                            near.far
                        ));
                    }
                    Some(heard_at) if heard_at + SILENCE <= now => {
                        return Err(format!(
                            "the emulator at {} has not answered for {SILENCE}: it has ended, or the network is down",
                            near.far
                        ));
                    }
                    _ => {}
                }
                if near.next_question() <= now {
                    near.asked_at = Some(now);
                    let name = Name { session: near.session, number: 0 };
                    self.send_content(name, Content::Keepalive);
                }
            }
            Side::Far(far) => {
                let connections = &mut self.connections;
                far.sessions.retain(|session, state| {
                    let alive = state.heard_at + SILENCE > now;
                    if !alive {
                        connections.retain(|name, _| name.session != *session);
                        say(format_args!(
                            "the tunnel from {} is closed: nothing arrived for {SILENCE}",
                            state.peer
                        ));
                    }
                    alive
                });
            }
        }
        Ok(())
    }
}

/// The sockets that became ready during a wait.
struct WaitResult {
    stop: bool,
    socket: bool,
    listener: bool,
    names: Vec<Name>,
}

/// Sends a datagram to the other end of a session. Returns whether the system accepted it: a packet
/// that it refused is lost, and a piece is sent again.
fn send(socket: &UdpSocket, side: &Side, name: Name, bytes: &[u8]) -> bool {
    let sent = match side {
        Side::Near(_) => socket.send(bytes),
        Side::Far(far) => match far.sessions.get(&name.session) {
            Some(session) => socket.send_to(bytes, session.peer),
            None => return false,
        },
    };
    sent.is_ok()
}

/// Returns the frame to send as a datagram if it may get lost. The header of a packet carries its
/// age in place of its send time, because the two machines have different clocks.
fn departing(frame: &Frame<'_>, now: Time) -> Option<Vec<u8>> {
    match frame.kind {
        FrameKind::Packet => {
            let (head, payload) = PacketFrame::decode(frame).ok()?;
            let age = now.since(head.sent);
            Some(restamped(head, payload, Time(age.0)))
        }
        FrameKind::Nobody => Some(frame.bytes.to_vec()),
        _ => None,
    }
}

/// Returns the frame that a datagram carried and its kind, or `None` if it is not exactly one
/// frame.
fn arrived(bytes: &[u8], now: Time) -> Option<(FrameKind, Vec<u8>)> {
    let frame =
        Frame::first(bytes).ok().flatten().filter(|frame| frame.bytes.len() == bytes.len())?;
    if frame.kind != FrameKind::Packet {
        return Some((frame.kind, bytes.to_vec()));
    }
    let (head, payload) = PacketFrame::decode(&frame).ok()?;
    let age = Span(head.sent.0);
    Some((frame.kind, restamped(head, payload, Time(now.0.saturating_sub(age.0)))))
}

/// Returns a packet's frame with another send time.
fn restamped(head: PacketFrame, payload: &[u8], sent: Time) -> Vec<u8> {
    let head = PacketFrame { sent, ..head }.encode(payload.len());
    [&head[..], payload].concat()
}
