//! One end of a tunnel: connections of this machine, and datagrams to the other end.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use squall_net::emulator::frame::{Frame, FrameKind, PacketFrame};

use super::datagram::{MOST, Name, Say};
use super::pieces::{PieceKind, Pieces};
use crate::client::{Client, Role};
use crate::clock::{clock, timespec};
use squall_base::{Span, Time};

/// How often the near end asks whether the far one is there, before it has answered and since.
const ASK_FIRST: Span = Span::millis(100);
const ASK: Span = Span::millis(1000);
/// After so much silence the other end is gone.
const SILENCE: Span = Span::millis(10_000);
/// Until the first answer.
const FIRST: Span = Span::millis(5000);
/// Buffers of the UDP socket, bytes, as far as the system grants them.
const BUFFER: usize = 4 << 20;
/// Datagrams read before connections get their turn.
const BATCH: usize = 256;
/// Sessions and connections that a far end has at most; what an emulator takes.
const MOST_OPEN: usize = 4096;

/// Where lines go that are worth telling.
pub(super) type Teller<'a> = &'a mut dyn FnMut(fmt::Arguments<'_>);

/// A connection that goes through the tunnel.
struct Connection {
    client: Client,
    pieces: Pieces,
    /// It has nothing more to say.
    ended: bool,
}

impl Connection {
    fn new(stream: UnixStream) -> io::Result<Self> {
        Ok(Self { client: Client::new(stream)?, pieces: Pieces::default(), ended: false })
    }

    /// Bytes of the other end. Whether there was room for them.
    fn give(&mut self, bytes: &[u8]) -> bool {
        let room = self.client.has_room(bytes.len());
        if room {
            self.client.push(bytes);
        }
        room
    }

    /// The other end has nothing more to say: what it said goes out, then the connection ends.
    fn leave(&mut self) {
        self.client.role = Role::Leaving;
    }

    /// Whether nothing more is to be done for it.
    fn is_over(&self) -> bool {
        self.client.is_done() || self.ended && self.pieces.is_done()
    }
}

/// Which end it is.
enum Side {
    /// On the machine of the endpoints.
    Near(Near),
    /// On the emulator's.
    Far(Far),
}

struct Near {
    listener: UnixListener,
    /// Until when no connection is taken, because the system refused one.
    shut_until: Time,
    far: SocketAddr,
    session: u64,
    /// The number of the last connection.
    last: u32,
    began: Time,
    asked: Option<Time>,
    heard: Option<Time>,
}

impl Near {
    /// When it asks again whether the far end is there.
    fn asks_at(&self) -> Time {
        let every = if self.heard.is_some() { ASK } else { ASK_FIRST };
        self.asked.map_or(self.began, |asked| asked + every)
    }
}

struct Far {
    /// The emulator's socket.
    emulator: PathBuf,
    sessions: HashMap<u64, Session>,
}

/// A near end, as the far one knows it.
struct Session {
    peer: SocketAddr,
    heard: Time,
    /// Connections that it opened: a datagram that comes twice opens none again.
    opened: HashSet<u32>,
}

/// One end of a tunnel.
pub(super) struct End {
    socket: UdpSocket,
    side: Side,
    connections: HashMap<Name, Connection>,
    out: Vec<u8>,
    /// Packets for which a connection or the socket had no room.
    lost: u64,
}

/// A UDP socket that does not block.
fn bound(addr: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(addr)?;
    socket.set_nonblocking(true)?;
    // As much as the system grants: what is lost otherwise, the transport sends again.
    let _ = set_socket_recv_buffer_size(&socket, BUFFER);
    let _ = set_socket_send_buffer_size(&socket, BUFFER);
    Ok(socket)
}

impl End {
    /// The end where endpoints are, whose connections `listener` takes; `far` is the other one.
    pub(super) fn near(listener: UnixListener, far: SocketAddr) -> io::Result<Self> {
        let any: SocketAddr =
            if far.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 16], 0).into() };
        let socket = bound(any)?;
        // So that the system says when nobody is there.
        socket.connect(far)?;
        let session = getrandom::u64().map_err(io::Error::other)?;
        let near = Near {
            listener,
            shut_until: Time::ZERO,
            far,
            session,
            last: 0,
            began: clock(),
            asked: None,
            heard: None,
        };
        Ok(Self::new(socket, Side::Near(near)))
    }

    /// The end beside the emulator whose socket is `emulator`, at `addr`.
    pub(super) fn far(addr: SocketAddr, emulator: PathBuf) -> io::Result<Self> {
        Ok(Self::new(bound(addr)?, Side::Far(Far { emulator, sessions: HashMap::new() })))
    }

    fn new(socket: UdpSocket, side: Side) -> Self {
        Self { socket, side, connections: HashMap::new(), out: Vec::new(), lost: 0 }
    }

    /// Where it is.
    pub(super) fn addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves until `stop` becomes readable or, at the near end, the far one is gone.
    ///
    /// # Errors
    /// Why it cannot go on.
    pub(super) fn run(&mut self, stop: &UnixStream, say: Teller<'_>) -> Result<(), String> {
        let ended = self.turn(stop, say);
        if self.lost > 0 {
            let lost = self.lost;
            say(format_args!(
                "{lost} packets were lost at this end of the tunnel: no room for them"
            ));
        }
        ended
    }

    fn turn(&mut self, stop: &UnixStream, say: Teller<'_>) -> Result<(), String> {
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
            self.look_after(now, say);
            self.look_after_sessions(now, say)?;
        }
    }

    /// Sleeps until there is something to do.
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
            Side::Near(near) => near.asks_at(),
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
            // One that ended would be ready for ever.
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

    /// Somebody of this machine connects.
    fn accept(&mut self, say: Teller<'_>) {
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

    /// Reads datagrams.
    fn receive(&mut self, now: Time, buffer: &mut [u8], say: Teller<'_>) {
        for _ in 0..BATCH {
            match self.socket.recv_from(buffer) {
                Ok((len, from)) => {
                    if let Some((name, what)) = Say::read(&buffer[..len]) {
                        self.hear(from, name, what, now, say);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The system says that nobody took an earlier one; silence says the same.
                Err(_) => {}
            }
        }
    }

    /// The other end says something.
    fn hear(&mut self, from: SocketAddr, name: Name, what: Say<'_>, now: Time, say: Teller<'_>) {
        if !self.knows(from, name, what, now, say) {
            return;
        }
        let Some(connection) = self.connections.get_mut(&name) else {
            // Said to whoever still believes in it; never in answer to itself.
            if matches!(what, Say::Frame(_) | Say::Piece(..)) {
                self.tell(name, Say::Gone);
            }
            return;
        };
        match what {
            Say::Alive => {}
            Say::Frame(bytes) => {
                let far = matches!(self.side, Side::Far(_));
                if connection.pieces.has_begun()
                    && let Some((kind, frame)) = arrived(bytes, now)
                    && (kind == FrameKind::Packet || kind == FrameKind::Nobody && !far)
                    && !connection.give(&frame)
                {
                    self.lost += 1;
                }
            }
            // It comes again.
            Say::Piece(_, bytes) if !connection.client.has_room(bytes.len()) => {}
            Say::Piece(number, bytes) => {
                let taken = connection.pieces.take(number);
                if taken == PieceKind::New && bytes.is_empty() {
                    connection.leave();
                } else if taken == PieceKind::New {
                    connection.client.push(bytes);
                }
                if taken != PieceKind::OutOfTurn {
                    self.tell(name, Say::Came(number));
                }
            }
            Say::Came(number) => connection.pieces.came(number),
            Say::Gone => {
                self.connections.remove(&name);
            }
        }
    }

    /// Whether a session is one of ours. A far end takes those that come, and the connections that they open.
    fn knows(
        &mut self,
        from: SocketAddr,
        name: Name,
        what: Say<'_>,
        now: Time,
        say: Teller<'_>,
    ) -> bool {
        match &mut self.side {
            Side::Near(near) => {
                if name.session != near.session {
                    return false;
                }
                if near.heard.replace(now).is_none() {
                    say(format_args!("the emulator at {from} answers"));
                }
                true
            }
            Side::Far(far) => {
                let full = far.sessions.len() >= MOST_OPEN;
                let is_new = !far.sessions.contains_key(&name.session);
                if is_new && (full || what != Say::Alive) {
                    // It asks first whether anybody is here.
                    return false;
                }
                if is_new {
                    say(format_args!("{from} has a tunnel to here"));
                }
                let session = far.sessions.entry(name.session).or_insert_with(|| Session {
                    peer: from,
                    heard: now,
                    opened: HashSet::new(),
                });
                (session.peer, session.heard) = (from, now);
                if what == Say::Alive {
                    self.tell(name, Say::Alive);
                    return false;
                }
                let opens = matches!(what, Say::Piece(0, [_, ..]))
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

    /// Sends a datagram to the other end. What the system does not take is lost.
    fn tell(&mut self, name: Name, what: Say<'_>) {
        what.write(name, &mut self.out);
        send(&self.socket, &self.side, name, &self.out);
    }

    /// Reads from a connection of this machine, and carries over what it says.
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
                        Say::Frame(&departing).write(name, out);
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

    /// Sends what is due, and forgets connections that are over.
    fn look_after(&mut self, now: Time, say: Teller<'_>) {
        let Self { socket, side, connections, out, .. } = self;
        connections.retain(|name, connection| {
            if let Some((number, bytes)) = connection.pieces.due(now) {
                Say::Piece(number, bytes).write(*name, out);
                send(socket, side, *name, out);
            }
            let broken = connection.client.flush().is_err();
            let given_up = connection.pieces.is_given_up(now);
            if given_up {
                say(format_args!(
                    "connection {} is given up: the other end does not take what it said",
                    name.number
                ));
            }
            !(given_up || broken && connection.ended || connection.is_over())
        });
    }

    /// Asks whether the other end is there, and gives up what is not.
    fn look_after_sessions(&mut self, now: Time, say: Teller<'_>) -> Result<(), String> {
        match &mut self.side {
            Side::Near(near) => {
                match near.heard {
                    None if near.began + FIRST <= now => {
                        return Err(format!(
                            "no emulator answers at {}: is it up with --listen, and do firewalls let its UDP port through?",
                            near.far
                        ));
                    }
                    Some(heard) if heard + SILENCE <= now => {
                        return Err(format!(
                            "the emulator at {} has not answered for {SILENCE}: it is gone, or the way there",
                            near.far
                        ));
                    }
                    _ => {}
                }
                if near.asks_at() <= now {
                    near.asked = Some(now);
                    let name = Name { session: near.session, number: 0 };
                    self.tell(name, Say::Alive);
                }
            }
            Side::Far(far) => {
                let connections = &mut self.connections;
                far.sessions.retain(|session, seen| {
                    let alive = seen.heard + SILENCE > now;
                    if !alive {
                        connections.retain(|name, _| name.session != *session);
                        say(format_args!("the tunnel of {} is gone", seen.peer));
                    }
                    alive
                });
            }
        }
        Ok(())
    }
}

/// Result of a wait.
struct WaitResult {
    stop: bool,
    socket: bool,
    listener: bool,
    names: Vec<Name>,
}

/// Sends a datagram to the other end of a session. Whether the system took it: a packet that it did not is lost, and a
/// piece goes again.
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

/// A frame as it travels, if it may get lost: a packet's has its age in the place of the time it was sent at, for
/// clocks of two machines are two clocks.
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

/// The frame that a datagram carried, and of what kind; `None` where it is not one whole frame.
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

/// A packet's frame with another time.
fn restamped(head: PacketFrame, payload: &[u8], sent: Time) -> Vec<u8> {
    let head = PacketFrame { sent, ..head }.encode(payload.len());
    [&head[..], payload].concat()
}
