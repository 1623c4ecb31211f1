//! Shared-memory channels to endpoints of this host, and the records that travel through them.
//!
//! When the engine has verified a peer, the endpoint that began the handshake looks for the other one on this host, by
//! a name that follows from its port and instance. Both prove their identity by what they know from the handshake, so
//! that no other process of the same user can speak for either. If a step fails, the two exchange packets.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;

use squall_base::{Instance, Span, Time, UserSlice};
use squall_engine::{
    Access, Buf, Engine, KeyError, Memory, PeerId, RecordOutcome, RecordOutput, RecordPayload,
    ReferenceResult, Room, ShmCloseReason, ShmId, VerifiedPeer, WIRE_VERSION,
};
use squall_net::{
    ChannelEvent, EndReason, MessagePort, MessageRoom, OutgoingRecord, PayloadSource,
    RecordVerdict, ReferenceOutcome, ShmChannelId, ShmConfig, ShmPort,
};

use crate::device_memory::Bounce;
use crate::host::param::Params;
use crate::mr::{Regions, UserMemory};
use crate::network::addr::Name;
use crate::waiting::endpoint_lock::EndpointLock;

/// Largest number of records of a shared-memory channel that a turn handles.
const BUDGET: usize = 64;
/// The interval at which an endpoint looks for new connections and ends of shared-memory channels.
const MAINTAIN_EVERY: Span = Span::millis(1);
/// The interval at which it looks while a connection is being made.
const MAINTAIN_SOON: Span = Span::micros(20);
/// Time after its verification within which a peer is expected to connect through shared memory.
const CONNECT_WINDOW: Span = Span::millis(200);
/// Numbers that separate the proofs of connection requests (hello) from those of answers (welcome).
const HELLO: u64 = 1;
const WELCOME: u64 = 2;
/// The version of the connection requests, of the shared memory's layout, and of the records in it.
const VERSION: u8 = 5;

/// An open shared-memory channel to a peer.
struct Channel {
    id: ShmId,
    /// Number of records of this endpoint that the peer has taken, as the engine was last told.
    taken: u64,
    /// Number of times that the peer deferred a record of this endpoint, as the engine last knew.
    held_back: u64,
}

/// A shared-memory connection that this endpoint requested and the peer has not accepted yet.
struct PendingConnection {
    no: ShmChannelId,
    peer: PeerId,
}

/// The shared-memory channels of an endpoint, and the port for them.
struct OpenChannels {
    port: ShmPort,
    name: Name,
    /// The open channels, indexed by the port's number, [`ShmChannelId`].
    channels: Vec<Option<Channel>>,
    /// Number of open shared-memory channels.
    count: usize,
    /// The port's number of each channel, indexed by the engine's number, [`ShmId::index`].
    numbers: Vec<Option<ShmChannelId>>,
    pending: Vec<PendingConnection>,
    next_maintenance: Time,
    connecting_until: Time,
    /// Channels whose peers were notified that this endpoint has no room for their messages.
    full: Vec<ShmChannelId>,
    /// Number of threads that sleep, or are about to sleep, until something arrives.
    sleepers: u32,
    /// The reason why a peer was not reached through shared memory was logged.
    warned: bool,
}

/// The shared-memory channels of an endpoint, if it may have any.
pub(crate) struct ShmChannels(Option<Box<OpenChannels>>);

/// Returns the name under which other processes of this host find an endpoint. Every user can list it, so it contains
/// only the half of the instance on which no protection relies. The other half protects from attackers that see no
/// packets (SECURITY.md).
fn name_of(port: u16, instance: Instance) -> String {
    format!("squall-{port}-{:04x}", instance.get() >> 16)
}

/// Returns whether the parameters allow shared-memory channels.
pub(crate) fn is_enabled(params: &Params) -> bool {
    if !params.shm {
        return false;
    }
    let others = [("EMULATOR", &params.emulator), ("FAULT", &params.fault), ("PCAP", &params.pcap)];
    match others.iter().find(|(_, value)| !value.is_empty()) {
        Some((name, _)) => {
            log::info!(
                "FI_SQUALL_{name} needs packets: squall reaches endpoints of this host by packets, too"
            );
            false
        }
        None => true,
    }
}

impl ShmChannels {
    /// Returns no channels, for an endpoint that may have none.
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// Opens the shared-memory port of an endpoint, for connections of other endpoints on this host.
    pub(crate) fn open(params: &Params, name: Name) -> Self {
        let Some(instance) = name.instance else { return Self::none() };
        let ring = params.shm_ring.unwrap_or(256 << 10).clamp(64 << 10, 16 << 20);
        let ring = usize::try_from(ring.next_power_of_two()).unwrap_or(256 << 10);
        match ShmPort::open(&ShmConfig { name: name_of(name.addr.port(), instance), ring }) {
            Ok(port) => Self(Some(Box::new(OpenChannels {
                port,
                name,
                channels: Vec::new(),
                count: 0,
                numbers: Vec::new(),
                pending: Vec::new(),
                next_maintenance: Time::ZERO,
                connecting_until: Time::ZERO,
                full: Vec::new(),
                sleepers: 0,
                warned: false,
            }))),
            Err(error) => {
                log::warn!(
                    "no shared memory, endpoints of this host are reached by packets: {error}"
                );
                Self::none()
            }
        }
    }

    /// Returns whether any shared-memory channel is open.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.0.as_ref().is_some_and(|open| open.count > 0)
    }

    /// Returns the descriptor that becomes readable when records arrive on shared-memory channels.
    pub(crate) fn fd(&self) -> Option<RawFd> {
        self.0.as_ref().map(|open| open.port.fd())
    }

    /// Gives the engine the records that arrived on shared-memory channels. Returns whether there were any.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        now: Time,
        engine: &mut Engine,
        regions: &EndpointLock<Regions>,
    ) -> bool {
        let Some(open) = &mut self.0 else { return false };
        if now >= open.next_maintenance || open.sleepers > 0 {
            open.maintain(now, engine);
        }
        open.count > 0 && open.receive(now, engine, regions)
    }

    /// Returns the output for records on shared-memory channels, if any channel is open.
    #[inline]
    pub(crate) fn sink(&mut self) -> Option<ChannelSink<'_>> {
        let OpenChannels { port, numbers, .. } =
            self.0.as_deref_mut().filter(|open| open.count > 0)?;
        Some(ChannelSink { port, numbers })
    }

    /// Publishes to peers that records were sent, and how many of theirs were taken.
    #[inline]
    pub(crate) fn publish_state(&mut self, engine: &mut Engine) {
        if let Some(open) = &mut self.0 {
            open.publish_state(engine);
        }
    }

    /// Sends records on shared-memory channels, and publishes what was taken. Returns whether any record was sent.
    #[inline]
    pub(crate) fn flush(&mut self, now: Time, engine: &mut Engine) -> bool {
        let Some(open) = &mut self.0 else { return false };
        open.count > 0 && open.flush(now, engine)
    }

    /// Prepares for a thread to sleep until something arrives. Returns false when something has arrived already.
    pub(crate) fn prepare_sleep(&mut self, now: Time, engine: &mut Engine) -> bool {
        let Some(open) = &mut self.0 else { return true };
        // An event that woke other threads must not wake this one.
        open.maintain(now, engine);
        let quiet = open.port.announce_sleep();
        open.sleepers += u32::from(quiet);
        quiet
    }

    /// Notes that a thread which slept until a record arrived sleeps no more.
    pub(crate) fn end_sleep(&mut self) {
        if let Some(open) = &mut self.0 {
            open.sleepers = open.sleepers.saturating_sub(1);
        }
    }

    /// Makes the next record wake the threads that sleep, or wakes them now if something has arrived.
    #[inline]
    pub(crate) fn rearm(&mut self) {
        if let Some(open) = &mut self.0
            && open.sleepers > 0
            && !open.port.announce_sleep()
        {
            open.port.wake_sleeper();
        }
    }
}

impl OpenChannels {
    fn receive(&mut self, now: Time, engine: &mut Engine, regions: &EndpointLock<Regions>) -> bool {
        let Self { port, channels, .. } = self;
        let mut sink =
            |(no, taken): (ShmChannelId, u64), bytes: &[u8], source: Option<&PayloadSource<'_>>| {
                let mut memory = RecordMemory { user: UserMemory(regions), source };
                let Some(channel) = channel_of(channels, no) else { return RecordVerdict::Broken };
                // What the peer sent in answer comes behind the end of what it answers.
                if taken != channel.taken {
                    channel.taken = taken;
                    engine.shm().handle_taken(now, channel.id, taken);
                }
                match engine.shm().handle_record(now, &mut memory, channel.id, bytes) {
                    RecordOutcome::Yes => RecordVerdict::Consumed,
                    RecordOutcome::Later => RecordVerdict::Deferred,
                    RecordOutcome::Never => RecordVerdict::Broken,
                }
            };
        let mut busy = port.recv(BUDGET, &mut sink) > 0;
        for no in self.port.touched_channels() {
            let Some(channel) = channel_of(&mut self.channels, *no) else { continue };
            let taken = self.port.peer_taken(*no);
            if taken != channel.taken {
                channel.taken = taken;
                engine.shm().handle_taken(now, channel.id, taken);
                busy = true;
            }
        }
        busy | self.handle_events(now, engine)
    }

    fn flush(&mut self, now: Time, engine: &mut Engine) -> bool {
        self.revoke(engine);
        let Self { port, numbers, .. } = self;
        let busy = engine.shm().has_records()
            && engine.shm().transmit(now, &mut ChannelSink { port, numbers });
        self.publish_state(engine);
        // Memory that is lent to a channel that ended must not be read after its completions are reported.
        self.handle_events(now, engine) | busy
    }

    /// Revokes the memory that ended operations had lent to peers.
    #[inline]
    fn revoke(&mut self, engine: &mut Engine) {
        while let Some((id, tag)) = engine.shm().poll_revoked() {
            if let Some(Some(no)) = self.numbers.get(id.index()) {
                self.port.revoke_memory(*no, tag);
            }
        }
    }

    /// Publishes to peers how many of their records were taken, and wakes those that sleep and have something to read.
    #[inline]
    fn publish_state(&mut self, engine: &mut Engine) {
        for at in 0..self.port.touched_channels().len() {
            let Some(&no) = self.port.touched_channels().get(at) else { break };
            if let Some(channel) = channel_of(&mut self.channels, no) {
                let room = engine.shm().room(channel.id);
                self.port.publish_room(no, message_room(room));
                if room == Room::None && !self.full.contains(&no) {
                    self.full.push(no);
                }
                self.port.publish_taken(no, engine.shm().taken(channel.id));
            }
        }
        if !self.full.is_empty() {
            self.resume_peers(engine);
        }
        self.port.wake_peers();
    }

    /// Publishes to the peers that were told to send no messages that there is room again.
    #[cold]
    fn resume_peers(&mut self, engine: &mut Engine) {
        let Self { port, channels, full, .. } = self;
        full.retain(|&no| {
            let Some(channel) = channel_of(channels, no) else { return false };
            let room = engine.shm().room(channel.id);
            if room != Room::None {
                port.publish_room(no, message_room(room));
            }
            room == Room::None
        });
    }

    /// Maintains connections: begins them for verified peers, and handles their events.
    #[cold]
    fn maintain(&mut self, now: Time, engine: &mut Engine) {
        while let Some(met) = engine.shm().poll_verified_peer() {
            self.connecting_until = now + CONNECT_WINDOW;
            if !met.asked {
                self.request(engine, met);
            }
        }
        // The port copies lent memory for peers, so all memory of operations that have ended must be revoked first.
        self.revoke(engine);
        self.handle_events(now, engine);
        self.port.poll_connections();
        for (channel, no) in self.channels.iter_mut().zip(0..) {
            let Some(channel) = channel else { continue };
            let held_back = self.port.peer_deferrals(ShmChannelId(no));
            if held_back != channel.held_back {
                channel.held_back = held_back;
                engine.shm().handle_deferral(now, channel.id);
            }
        }
        self.handle_events(now, engine);
        let soon = now < self.connecting_until || !self.pending.is_empty();
        self.next_maintenance = now + if soon { MAINTAIN_SOON } else { MAINTAIN_EVERY };
    }

    /// Handles events of connections, and closes channels that the engine has ended. Returns whether there were any.
    #[inline]
    fn handle_events(&mut self, now: Time, engine: &mut Engine) -> bool {
        let mut busy = false;
        while let Some(event) = self.port.next_event() {
            busy = true;
            match event {
                ChannelEvent::Requested(no, text) => self.handle_request(now, engine, no, &text),
                ChannelEvent::Accepted(no, text) => self.handle_accept(now, engine, no, &text),
                ChannelEvent::Ended(no, ending) => self.handle_end(now, engine, no, ending),
            }
        }
        while let Some(id) = engine.shm().poll_ended() {
            busy = true;
            let Some(no) = self.numbers.get_mut(id.index()).and_then(Option::take) else {
                continue;
            };
            if self.channels.get_mut(no.0 as usize).and_then(Option::take).is_some() {
                self.count -= 1;
            }
            self.full.retain(|full| *full != no);
            self.port.close(no);
        }
        busy
    }

    /// Requests a shared-memory connection from a verified peer, if it is on this host.
    fn request(&mut self, engine: &mut Engine, met: VerifiedPeer) {
        let (Some(proof), Some(instance)) =
            (engine.shm().proof(met.peer, false, HELLO), self.name.instance)
        else {
            return;
        };
        let hello = Hello { addr: self.name.addr, instance, expected: met.instance, proof };
        let name = name_of(met.addr.port(), met.instance);
        match self.port.connect(&name, &hello.write()) {
            Ok(no) => self.pending.push(PendingConnection { no, peer: met.peer }),
            // The peer is on another host or in another network namespace, or its parameters forbid channels.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => self.warn_once(&format!("{}: {error}", met.addr)),
        }
    }

    /// Logs, once, why peers are not reached through shared memory.
    fn warn_once(&mut self, why: &str) {
        if !core::mem::replace(&mut self.warned, true) {
            log::warn!(
                "a peer on this host is reached by packets, not through shared memory: {why} (others are not reported)"
            );
        }
    }

    /// Handles a request for a shared-memory connection by a process of the same user.
    fn handle_request(&mut self, now: Time, engine: &mut Engine, no: ShmChannelId, text: &[u8]) {
        let welcome = Hello::read(text).and_then(|hello| {
            let peer = engine.shm().find_verified_peer(hello.addr, hello.instance)?;
            let ours = self.name.instance?;
            let known = engine.shm().proof(peer, true, HELLO) == Some(hello.proof);
            if !known || hello.expected != ours {
                return None;
            }
            if let Some(at) = self.pending.iter().position(|asked| asked.peer == peer) {
                // Both ends have requested a connection. Either would do; the one of the smaller instance is kept.
                if ours < hello.instance {
                    return None;
                }
                let asked = self.pending.swap_remove(at);
                self.port.close(asked.no);
            }
            Some((peer, engine.shm().proof(peer, true, WELCOME)?))
        });
        let Some((peer, proof)) = welcome else {
            log::debug!(
                "a connection through shared memory is refused: no verified peer requests it"
            );
            self.port.close(no);
            return;
        };
        match self.port.accept(no, &write_proof(proof)) {
            Ok(()) => self.add_channel(now, engine, no, peer),
            Err(error) => self.warn_once(&error.to_string()),
        }
    }

    /// Handles a peer's acceptance of a shared-memory connection that this endpoint requested.
    fn handle_accept(&mut self, now: Time, engine: &mut Engine, no: ShmChannelId, text: &[u8]) {
        let at = self.pending.iter().position(|asked| asked.no == no);
        let Some(asked) = at.map(|at| self.pending.swap_remove(at)) else {
            self.port.close(no);
            return;
        };
        let known = engine.shm().proof(asked.peer, false, WELCOME).map(write_proof);
        if known.is_some_and(|proof| proof == text) {
            self.add_channel(now, engine, no, asked.peer);
        } else {
            self.port.close(no);
        }
    }

    /// Adds the channel of a new connection to a peer.
    fn add_channel(&mut self, now: Time, engine: &mut Engine, no: ShmChannelId, peer: PeerId) {
        let Some(id) = engine.shm().open_channel(now, peer) else {
            self.port.close(no);
            return;
        };
        if self.numbers.len() <= id.index() {
            self.numbers.resize(id.index() + 1, None);
        }
        self.numbers[id.index()] = Some(no);
        let at = no.0 as usize;
        if self.channels.len() <= at {
            self.channels.resize_with(at + 1, || None);
        }
        self.channels[at] = Some(Channel { id, taken: 0, held_back: 0 });
        self.count += 1;
        if self.port.is_process_watched(no) {
            engine.shm().watch_process(id);
        }
        log::debug!("messages to {} go through shared memory", engine.peers().get(peer).addr());
    }

    /// Handles the end of a shared-memory connection.
    fn handle_end(&mut self, now: Time, engine: &mut Engine, no: ShmChannelId, ending: EndReason) {
        self.pending.retain(|asked| asked.no != no);
        match channel_of(&mut self.channels, no) {
            // The engine reports the end of the channel when it is done with it; then it is closed.
            Some(channel) => {
                let how = match ending {
                    EndReason::Closed => ShmCloseReason::Closed,
                    EndReason::PeerDied => ShmCloseReason::Died,
                };
                engine.shm().handle_end(now, channel.id, how);
            }
            None => self.port.close(no),
        }
    }
}

/// Returns the open channel of a shared-memory connection.
#[inline]
fn channel_of(channels: &mut [Option<Channel>], no: ShmChannelId) -> Option<&mut Channel> {
    channels.get_mut(no.0 as usize)?.as_mut()
}

/// Converts the room for messages in the engine's form to the port's form.
#[inline]
const fn message_room(room: Room) -> MessageRoom {
    match room {
        Room::Ample => MessageRoom::Ample,
        Room::Little => MessageRoom::Little,
        Room::None => MessageRoom::None,
    }
}

/// The output through which the engine sends records on shared-memory channels.
pub(crate) struct ChannelSink<'a> {
    port: &'a mut ShmPort,
    numbers: &'a [Option<ShmChannelId>],
}

impl ChannelSink<'_> {
    /// Sends a record on a shared-memory channel by the function `send`. Returns whether there was room.
    #[inline]
    fn send_record(
        &mut self,
        shm: ShmId,
        head: &[u8],
        payload: RecordPayload<'_>,
        send: impl Fn(&mut ShmPort, ShmChannelId, OutgoingRecord<'_>) -> bool,
    ) -> bool {
        // A record for a channel that has ended is lost.
        let Some(Some(no)) = self.numbers.get(shm.index()) else { return true };
        let lent = |port: &mut ShmPort, pieces: &[UserSlice]| {
            // SAFETY: the engine names only memory whose operation has not completed (`transmit`'s contract keeps it
            // mapped until then), or of a region that is not closed (closing it waits for the endpoint lock, which
            // this thread holds); `endpoint/buffer.rs` and `mr/mod.rs` exposed the addresses. The record is copied before
            // `send` returns.
            send(port, *no, unsafe { OutgoingRecord::new(head, pieces) })
        };
        match payload {
            RecordPayload::Copied(bytes) => {
                send(self.port, *no, OutgoingRecord::from_copies(head, bytes))
            }
            RecordPayload::Lent { buf: Buf::One(slice), offset, len } => {
                lent(self.port, &[slice.part(offset, len)])
            }
            RecordPayload::Lent { buf, offset, len } => {
                lent(self.port, buf.part(offset, len).slices())
            }
        }
    }
}

impl RecordOutput for ChannelSink<'_> {
    #[inline]
    fn send(&mut self, shm: ShmId, head: &[u8], payload: RecordPayload<'_>) -> bool {
        self.send_record(shm, head, payload, ShmPort::send)
    }

    #[inline]
    fn has_message_room(&mut self, shm: ShmId) -> bool {
        let no = self.numbers.get(shm.index()).copied().flatten();
        no.is_none_or(|no| self.port.has_message_room(no))
    }

    #[inline]
    fn send_message(&mut self, shm: ShmId, head: &[u8], payload: RecordPayload<'_>) -> bool {
        self.send_record(shm, head, payload, ShmPort::send_message)
    }

    #[inline]
    fn send_split(&mut self, shm: ShmId, head: &[u8], payload: RecordPayload<'_>) -> bool {
        let no = self.numbers.get(shm.index()).copied().flatten();
        if no.is_some_and(|no| self.port.peer_room(no) != MessageRoom::Ample) {
            return false;
        }
        self.send_record(shm, head, payload, ShmPort::send_split)
    }

    fn send_reference(
        &mut self,
        shm: ShmId,
        head: &[u8],
        (buf, offset, len): (&Buf, u64, u64),
        tag: u64,
    ) -> ReferenceResult {
        let Some(Some(no)) = self.numbers.get(shm.index()) else { return ReferenceResult::Yes };
        // No process can read a device's memory by its address.
        if !buf.is_host() {
            return ReferenceResult::Never;
        }
        let part = buf.part(offset, len);
        // SAFETY: as for records that are copied (`send_record`): the engine names only memory whose operation has not
        // completed, or of a region that is not closed, with addresses that were exposed. When an operation ends, or a
        // region is closed, before the record was taken, the engine revokes `tag`, and `OpenChannels::revoke` does
        // before the port looks again.
        match unsafe { self.port.send_reference(*no, head, part.slices(), tag) } {
            ReferenceOutcome::Sent => ReferenceResult::Yes,
            ReferenceOutcome::Full => ReferenceResult::Full,
            ReferenceOutcome::Impossible => ReferenceResult::Never,
        }
    }
}

/// User memory, and the peer's memory to which the current record refers.
struct RecordMemory<'a> {
    user: UserMemory<'a>,
    source: Option<&'a PayloadSource<'a>>,
}

impl RecordMemory<'_> {
    /// Fetches a peer's bytes as [`Memory::fetch`] does, but into device memory. They go through a bounce buffer,
    /// because no process reads another's memory into a device's.
    #[cold]
    fn fetch_to_device(&mut self, to: UserSlice, at: u64) -> bool {
        let Some((source, len)) = self.source.zip(usize::try_from(to.len).ok()) else {
            return false;
        };
        let Some(bounce) = Bounce::pinned(len, to.space) else { return false };
        // SAFETY: the bounce buffer has `len` bytes, and is this function's own; its address is exposed by `slice`.
        // When all were fetched, all are initialised, and read.
        unsafe {
            source.fetch(bounce.slice(len), at)
                && self.user.write_any(to, core::slice::from_raw_parts(bounce.at(0), len))
        }
    }
}

impl Memory for RecordMemory<'_> {
    #[inline]
    fn write(&mut self, to: UserSlice, data: &[u8]) {
        self.user.write(to, data);
    }

    #[inline]
    fn read(&self, from: UserSlice, out: &mut [u8]) {
        self.user.read(from, out);
    }

    fn write_any(&mut self, to: UserSlice, data: &[u8]) -> bool {
        self.user.write_any(to, data)
    }

    fn copy_device_memory(&self, from: &Buf) -> Result<Option<Vec<u8>>, KeyError> {
        self.user.copy_device_memory(from)
    }

    fn fetch(&mut self, to: UserSlice, at: u64) -> bool {
        if !to.space.is_host() {
            return self.fetch_to_device(to, at);
        }
        // SAFETY: the engine fetches into the buffer of an operation that has not completed: `endpoint/buffer.rs`
        // exposed its address, and the contract of `Endpoint::receive` and `transmit` lets us write there until the
        // completion, which cannot be handed out before this returns. Or into what `resolve` has just found of a region
        // that peers may write to, whose address `mr/mod.rs` exposed, and which cannot be closed before the endpoint lock
        // is released.
        self.source.is_some_and(|source| unsafe { source.fetch(to, at) })
    }

    fn fetch_out(&mut self, out: &mut [u8], at: u64) -> bool {
        self.source.is_some_and(|source| source.copy(out, at))
    }

    fn is_delayed(&self) -> bool {
        self.source.is_some_and(PayloadSource::is_delayed)
    }

    fn update(
        &mut self,
        at: UserSlice,
        old: &mut [u8],
        next: &mut dyn FnMut(&[u8], &mut [u8]) -> bool,
    ) -> bool {
        self.user.update(at, old, next)
    }

    #[inline]
    fn resolve(
        &self,
        key: u64,
        address: u64,
        len: u64,
        access: Access,
    ) -> Result<UserSlice, KeyError> {
        self.user.resolve(key, address, len, access)
    }
}

/// The content of a request for a shared-memory connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Hello {
    /// Address and instance of the endpoint that requests the connection.
    addr: SocketAddr,
    instance: Instance,
    /// Instance that the requesting endpoint expects at the other end.
    expected: Instance,
    proof: [u64; 2],
}

impl Hello {
    const LEN: usize = 2 + 16 + 2 + 4 + 4 + 16;

    fn write(&self) -> Vec<u8> {
        let ip = match self.addr.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut out = vec![VERSION, WIRE_VERSION];
        out.extend(ip.octets());
        out.extend(self.addr.port().to_be_bytes());
        out.extend(self.instance.get().to_be_bytes());
        out.extend(self.expected.get().to_be_bytes());
        out.extend(write_proof(self.proof));
        out
    }

    fn read(text: &[u8]) -> Option<Self> {
        if text.len() != Self::LEN || text[..2] != [VERSION, WIRE_VERSION] {
            return None;
        }
        let (ip, rest) = text[2..].split_first_chunk::<16>()?;
        let (port, rest) = rest.split_first_chunk::<2>()?;
        let (instance, rest) = rest.split_first_chunk::<4>()?;
        let (expected, rest) = rest.split_first_chunk::<4>()?;
        let (first, second) = rest.split_first_chunk::<8>()?;
        let ip = Ipv6Addr::from(*ip).to_canonical();
        Some(Self {
            addr: SocketAddr::new(ip, u16::from_be_bytes(*port)),
            instance: Instance::new(u32::from_be_bytes(*instance))?,
            expected: Instance::new(u32::from_be_bytes(*expected))?,
            proof: [u64::from_be_bytes(*first), u64::from_be_bytes(second.try_into().ok()?)],
        })
    }
}

fn write_proof(proof: [u64; 2]) -> [u8; 16] {
    let whole = u128::from(proof[0]) << 64 | u128::from(proof[1]);
    whole.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written() {
        for addr in ["10.0.0.1:4793", "[fd00::1]:5000"] {
            let hello = Hello {
                addr: addr.parse().expect("literal"),
                instance: Instance::new(7).expect("not 0"),
                expected: Instance::new(u32::MAX).expect("not 0"),
                proof: [1 << 63, 5],
            };
            let text = hello.write();
            assert_eq!((text.len(), Hello::read(&text)), (Hello::LEN, Some(hello)));
            assert_eq!(Hello::read(&text[1..]), None);
            let mut other = text.clone();
            other[0] += 1;
            assert_eq!(Hello::read(&other), None, "another version");
        }
    }
}
