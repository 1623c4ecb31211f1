//! The relay process: it moves packets between the endpoints' sockets and the emulated network, by
//! the real clock.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::set_current_timer_slack;
use squall_net::emulator::frame::{
    FrameKind, Hello, MAGIC, PACKET_HEAD, PacketFrame, Welcome, encode, encode_address,
};
use squall_net::emulator::peer_process;

use super::attendance::Attendance;
use super::card::CardModel;
use super::client::{Client, Endpoint, Role};
use super::clock::{clock, timespec};
use super::command::Command;
use super::emulation::{Delivery, Emulation, Route};
use super::emulation_delay::EmulationDelay;
use super::inner_path::InnerPath;
use super::processor_wait::{ProcessorWaitReport, ProcessorWaits, measured_process, read_wait};
use super::recorder::{EVERY, EVERY_VIRTUAL};
use super::run_state::RunState;
use super::scale::scale;
use super::status::{EndpointStatus, PortStatus, Status, Totals};
use super::timeline::Timeline;
use super::virtual_relay::{VirtualProcesses, VirtualTimeConfig, first_origin};
use squall_base::{Rate, Span, Time};
use squall_netsim::Picos;
use squall_netsim::model::{Ground, NetworkOptions, OptionError};
use squall_netsim::output::Run;
use squall_netsim::topology::{Topology, TopologyError};
use squall_reliability::NOMINAL_OVERHEAD;

/// UDP payload bytes that trimming leaves: delivery and message headers.
const TRIMMED: u32 = 64;
/// Data bytes in a host's network card above which the relay stops reading from the host's
/// endpoints.
const MOST_BACKLOG: u64 = 1 << 20;
/// Longest unloaded round trip, after scaling. Congestion control accepts no longer one.
const MOST_RTT: Picos = Picos::micros(1_000_000);
/// Largest number of connections to the emulator at a time.
const MOST_CLIENTS: usize = 4096;
/// Bytes of an acknowledgement on the wire, by which the unloaded round trip is computed.
const ACK: u32 = 64 + NOMINAL_OVERHEAD;
/// Time from a failure until routing learns of it, before scaling, microseconds.
const REROUTE_US: f64 = 100.0;
/// Shortest time in which hosts may affect one another in virtual time, whose unit it is.
const LEAST_LOOKAHEAD: Picos = Picos::nanos(1);
/// Message about a job that waits for an endpoint that the emulator refused.
pub(super) const JOB_IS_STUCK: &str = "the emulator ends the job: it refused an endpoint, and no packet has entered the network since";
/// Number of characters that are kept of the reason for which a process has no host for its endpoint.
const LONGEST_REASON: usize = 400;
/// Packets that a queue holds at least, however short the round trip is.
const LEAST_QUEUE: u64 = 8;

/// Configuration of an emulator that is to be started.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Path of the Unix socket to which endpoints and commands connect.
    pub socket: PathBuf,
    /// The network as built, before scaling.
    pub topology: Topology,
    /// Factor by which all rates of the network are multiplied.
    pub rate_scale: f64,
    /// Factor by which all latencies of the network are multiplied.
    pub latency_scale: f64,
    /// Largest UDP payload of a packet, bytes.
    pub mtu: u32,
    /// The options of ports and switches, before scaling.
    pub network: NetworkOptions,
    /// Time that endpoints may add to the round-trip time, including the scheduling delays of this
    /// host.
    pub host_delay: Span,
    /// Seed of ECMP hashing and ECN marking.
    pub seed: u64,
    /// The rules of virtual time, if the network's clock is virtual.
    pub virtual_time: Option<VirtualTimeConfig>,
    /// The path of messages between ranks of one host, before scaling; `None` if they cross the network, too.
    pub inner_path: Option<InnerPath>,
    /// Number of ranks that have a host, if the user has placed them. Endpoints of larger jobs are refused.
    pub places: Option<u32>,
}

impl RelayConfig {
    /// Returns the defaults: rates a hundred times lower and latencies a hundred times longer.
    #[must_use]
    pub fn new(socket: PathBuf, topology: Topology) -> Self {
        Self {
            socket,
            topology,
            rate_scale: 0.01,
            latency_scale: 100.0,
            mtu: 4096,
            network: NetworkOptions::default(),
            host_delay: Span::micros(200),
            seed: 1,
            virtual_time: None,
            inner_path: None,
            places: None,
        }
    }
}

/// The reason why an emulator cannot be started.
#[derive(Debug)]
pub enum RelayError {
    /// The topology is invalid.
    Topology(TopologyError),
    /// An option of the network is invalid.
    Network(OptionError),
    /// Another parameter is out of range. The text names it and the allowed range.
    Parameter(String),
    /// The socket cannot be opened.
    Socket(PathBuf, io::Error),
    /// There is no memory to share with processes in virtual time.
    Memory(io::Error),
}

impl fmt::Display for RelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topology(error) => write!(f, "the topology is invalid: {error}"),
            Self::Network(error) => error.fmt(f),
            Self::Parameter(text) => f.write_str(text),
            Self::Socket(path, error) => {
                write!(f, "cannot open the socket {}: {error}", path.display())
            }
            Self::Memory(error) => {
                write!(
                    f,
                    "cannot create memory to share with processes: {error}; look at /dev/shm and `ulimit -f`"
                )
            }
        }
    }
}

impl std::error::Error for RelayError {}

/// A running emulator: its sockets, the network and the state of its job.
pub struct Relay {
    pub(super) config: RelayConfig,
    pub(super) listener: UnixListener,
    pub(super) accepting: bool,
    /// Connections by slot. The tag of a packet contains the slot and the serial number of the
    /// connection in it.
    pub(super) clients: Vec<Option<Client>>,
    serials: Vec<u32>,
    pub(super) by_addr: HashMap<SocketAddr, (u64, u32)>,
    pub(super) emulation: Emulation,
    started: Time,
    /// Rate at which a host sends, as scaled.
    line: Rate,
    base_rtt: Span,
    /// Time that hosts add to the unloaded round trip.
    hosts_rtt: Span,
    pub(super) totals: Totals,
    failures: Vec<Command>,
    pub(super) attendance: Attendance,
    pub(super) run_state: RunState,
    delay: EmulationDelay,
    delay_now: EmulationDelay,
    delay_last: EmulationDelay,
    second: u64,
    late_seconds: u64,
    processor_waits: ProcessorWaits,
    /// Times at which the packets delivered in this turn were due.
    due: Vec<Time>,
    pub(super) stopped: bool,
    /// The processes in virtual time, if the network's clock is virtual.
    pub(super) virtual_time: Option<Box<VirtualProcesses>>,
}

fn tag(slot: usize, serial: u32) -> u64 {
    slot as u64 | u64::from(serial) << 32
}

impl Relay {
    /// Builds the network and opens the socket. A socket that a dead emulator left behind is
    /// replaced.
    ///
    /// # Errors
    /// See [`RelayError`]. If an emulator is already running there, the error is `AddrInUse`.
    pub fn open(config: RelayConfig) -> Result<Self, RelayError> {
        config.topology.check().map_err(RelayError::Topology)?;
        check(&config)?;
        let topology = scale(&config.topology, config.rate_scale, config.latency_scale);
        let link = topology.host_rate();
        let line = config.network.card(link, config.rate_scale).unwrap_or(link);
        let packet = config.mtu + NOMINAL_OVERHEAD;
        let rtt =
            topology.longest_route().round_trip(line, packet, ACK, config.network.switching());
        if rtt > MOST_RTT {
            let text = format!(
                "the round trip after scaling is {rtt}, at most {MOST_RTT} is allowed: use a smaller latency scale or a larger rate scale"
            );
            return Err(RelayError::Parameter(text));
        }
        let bdp = line.bytes_in(rtt.span());
        let card = scale_card(&config);
        let hosts_rtt = card.round_trip(config.mtu as usize).span() + config.host_delay;
        let started = match config.virtual_time {
            Some(_) => first_origin(clock()),
            None => clock(),
        };
        let ground = Ground {
            bdp_packets: bdp.div_ceil(packet.into()),
            bdp_bytes: &|| bdp as f64,
            packet,
            trimmed: TRIMMED + NOMINAL_OVERHEAD,
            least: LEAST_QUEUE,
            line: link,
            rtt: rtt.span() + hosts_rtt,
            ahead: started.since(Time::ZERO),
            rates: config.rate_scale,
            times: config.latency_scale,
            reroute_us: REROUTE_US,
            seed: config.seed,
        };
        let network = config.network.settle(&ground).map_err(RelayError::Network)?;
        if config.virtual_time.is_some() && network.lossless.is_some() {
            return Err(RelayError::Parameter(
                "a lossless network cannot be in virtual time, because the cards of its hosts do not pause: \
                 choose one of the two"
                    .to_owned(),
            ));
        }
        let mut emulation =
            Emulation::new(topology, network, NOMINAL_OVERHEAD).map_err(RelayError::Parameter)?;
        if config.virtual_time.is_some() && emulation.lookahead() < LEAST_LOOKAHEAD {
            return Err(RelayError::Parameter(format!(
                "virtual time cannot pass: the latency of a host's link and its switch is {}; give links \
                 {LEAST_LOOKAHEAD} or more",
                emulation.lookahead()
            )));
        }
        if let Some(path) = config.inner_path {
            emulation.use_inner_paths(scale_inner_path(&config, path)?);
        }
        let virtual_time = config.virtual_time.as_ref().map(|rules| {
            emulation.use_cards(card);
            VirtualProcesses::new(rules, started, &emulation, config.seed).map(Box::new)
        });
        let virtual_time = virtual_time.transpose().map_err(RelayError::Memory)?;
        let listener =
            listen(&config.socket).map_err(|e| RelayError::Socket(config.socket.clone(), e))?;
        Ok(Self {
            emulation,
            virtual_time,
            config,
            listener,
            accepting: true,
            clients: Vec::new(),
            serials: Vec::new(),
            by_addr: HashMap::new(),
            started,
            line: card.pcie.map_or(line, |pcie| Rate(pcie.0.min(line.0))),
            base_rtt: rtt.span(),
            hosts_rtt,
            totals: Totals::default(),
            failures: Vec::new(),
            attendance: Attendance::default(),
            run_state: RunState::default(),
            delay: EmulationDelay::default(),
            delay_now: EmulationDelay::default(),
            delay_last: EmulationDelay::default(),
            second: 0,
            late_seconds: 0,
            processor_waits: ProcessorWaits::default(),
            due: Vec::new(),
            stopped: false,
        })
    }

    /// Serves until the command `down` arrives or `stop` becomes readable. `say` gets a line for
    /// each event: endpoints that attach and leave, failures, and seconds in which the relay fell
    /// behind real time.
    ///
    /// # Errors
    /// The error of the operating system if it refuses to wait for the sockets.
    pub fn run(
        &mut self,
        stop: &UnixStream,
        say: &mut dyn FnMut(fmt::Arguments<'_>),
    ) -> io::Result<()> {
        if self.virtual_time.is_some() {
            return self.run_in_virtual_time(stop, say);
        }
        // The kernel may otherwise wake this thread 50 us late. Where it refuses, the delay is reported.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let served = self.serve_until(stop, say);
        self.processor_waits.sample(clock(), read_wait);
        // A job may last less than a second.
        self.judge_delay(say);
        served
    }

    /// Serves in real time until the command `down` arrives or `stop` becomes readable.
    fn serve_until(
        &mut self,
        stop: &UnixStream,
        say: &mut dyn FnMut(fmt::Arguments<'_>),
    ) -> io::Result<()> {
        while !self.stopped {
            self.apply_due_commands(clock(), say);
            if self.run_state.is_stuck(clock()) {
                say(format_args!("{JOB_IS_STUCK}"));
                break;
            }
            let ready = self.wait(stop)?;
            if ready.stop {
                break;
            }
            if ready.listener {
                self.accept(say);
            }
            let now = clock();
            for slot in ready.slots {
                self.serve(slot, now, say);
            }
            self.deliver(clock(), say);
        }
        Ok(())
    }

    /// Prepares the emulator for one job, with which it ends. From now on the relay applies the
    /// events of `timeline`, keeps a record if `record` is set, and stops when the job waits for an
    /// endpoint that was refused. Call this before [`Relay::run`].
    pub fn serve_job(&mut self, timeline: Timeline, record: bool) {
        let every = if self.virtual_time.is_some() { EVERY_VIRTUAL } else { EVERY };
        self.run_state = RunState::new(timeline, record.then_some(every));
    }

    /// Applies the events of the timeline that are due, and takes a sample if one is due.
    pub(super) fn apply_due_commands(
        &mut self,
        now: Time,
        say: &mut dyn FnMut(fmt::Arguments<'_>),
    ) {
        while let Some(command) = self.run_state.due(now) {
            if let Err(why) = self.apply(&command, now, say) {
                say(format_args!("{command}: {why}"));
            }
        }
        let model = self.model(now);
        self.run_state.sample_if_due(now, model, self.emulation.network().switches());
    }

    /// Returns which endpoints and ranks have attached so far.
    #[must_use]
    pub const fn attendance(&self) -> &Attendance {
        &self.attendance
    }

    /// Returns how long ranks have waited for a processor so far. None is measured in virtual time.
    #[must_use]
    pub fn processor_waits(&self) -> ProcessorWaitReport {
        self.processor_waits.report()
    }

    /// Returns the commands applied to links and switches so far, with times since the first
    /// packet.
    #[must_use]
    pub const fn history(&self) -> &Timeline {
        self.run_state.history()
    }

    /// Returns the record of the job, if [`Relay::serve_job`] asked for one.
    #[must_use]
    pub fn record(&self) -> Option<Run> {
        let recorder = self.run_state.recorder()?;
        Some(recorder.run(&self.status(), self.topology(), self.history()))
    }

    /// Returns the time now, real or virtual, on the clock of the network.
    pub(super) fn now(&self) -> Time {
        match &self.virtual_time {
            Some(_) => self.started + self.emulation.network().now().span(),
            None => clock(),
        }
    }

    /// Converts a time of the network's clock to model time.
    pub(super) fn model(&self, at: Time) -> Picos {
        Picos::from_span(at.since(self.started))
    }

    /// Sleeps until a socket is ready or an event is due.
    fn wait(&self, stop: &UnixStream) -> io::Result<WaitResult> {
        let mut slots = Vec::with_capacity(self.clients.len());
        let mut fds = Vec::with_capacity(self.clients.len() + 2);
        fds.push(PollFd::new(stop, PollFlags::IN));
        let listen = if self.accepting { PollFlags::IN } else { PollFlags::empty() };
        fds.push(PollFd::new(&self.listener, listen));
        for (slot, client) in self.clients.iter().enumerate() {
            let Some(client) = client else { continue };
            let mut events = PollFlags::IN;
            if let Role::Endpoint(endpoint) = &client.role
                && self.emulation.backlog(endpoint.host) > MOST_BACKLOG
            {
                // The host's network card is full, so the relay does not read from its endpoints.
                // They notice once their sockets are full.
                events = PollFlags::empty();
            }
            if client.is_pending() {
                events |= PollFlags::OUT;
            }
            slots.push(slot);
            fds.push(PollFd::new(&client.stream, events));
        }
        let event = self.emulation.next_event();
        let event = event.map(|at| Time(self.started.0.saturating_add(at.span().0)));
        let timeout = event.into_iter().chain(self.run_state.next()).min();
        let timeout = timeout.map(|at| timespec(at.since(clock())));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let happened = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let (stop, listener) = (happened(&fds[0]), happened(&fds[1]));
        let mut ready = fds[2..].iter().map(happened);
        slots.retain(|_| ready.next() == Some(true));
        Ok(WaitResult { stop, listener, slots })
    }

    /// Accepts a connection. Returns its slot, or `None` if there was none or no room for it.
    pub(super) fn accept(&mut self, say: &mut dyn FnMut(fmt::Arguments<'_>)) -> Option<usize> {
        let accepted = self.listener.accept().and_then(|(stream, _)| {
            let client = Client::new(stream)?;
            let slot = match self.clients.iter().position(Option::is_none) {
                Some(slot) => slot,
                None if self.clients.len() < MOST_CLIENTS => {
                    self.clients.push(None);
                    self.serials.push(0);
                    self.clients.len() - 1
                }
                None => return Err(io::Error::other("too many connections")),
            };
            self.serials[slot] = self.serials[slot].wrapping_add(1);
            self.clients[slot] = Some(client);
            Ok(slot)
        });
        if let Err(error) = &accepted
            && error.kind() != ErrorKind::WouldBlock
        {
            say(format_args!("cannot accept a connection: {error}; waiting for one to end"));
            self.accepting = false;
        }
        accepted.ok()
    }

    /// Reads from a connection that is ready, and handles the frames that arrived.
    fn serve(&mut self, slot: usize, now: Time, say: &mut dyn FnMut(fmt::Arguments<'_>)) {
        let Some(mut client) = self.clients[slot].take() else { return };
        let gone = client.read().is_err();
        // Frames that arrived before the peer closed the connection count.
        let fine = self.handle_frames(&mut client, slot, now, say);
        let flushed = client.flush().is_ok();
        if gone || !fine || !flushed || client.is_done() {
            self.handle_disconnect(&client, say);
        } else {
            self.clients[slot] = Some(client);
        }
    }

    /// Handles the end of a connection: frees the endpoint's address, and accepts connections
    /// again.
    pub(super) fn handle_disconnect(
        &mut self,
        client: &Client,
        say: &mut dyn FnMut(fmt::Arguments<'_>),
    ) {
        self.accepting = true;
        for endpoint in client.role.endpoints() {
            self.by_addr.remove(&endpoint.addr);
            if let Some(process) = endpoint.measured {
                self.processor_waits.leave(process, clock(), read_wait);
            }
            say(format_args!("endpoint {} left host {}", endpoint.addr, endpoint.host));
        }
    }

    /// Handles every complete frame that a connection has received. Returns false if the peer
    /// violates the protocol.
    fn handle_frames(
        &mut self,
        client: &mut Client,
        slot: usize,
        now: Time,
        say: &mut dyn FnMut(fmt::Arguments<'_>),
    ) -> bool {
        loop {
            let frame = match client.next() {
                Ok(None) => return true,
                Ok(Some(frame)) => frame,
                Err(error) => {
                    say(format_args!("the emulator closes a connection: {error}"));
                    return false;
                }
            };
            let len = frame.bytes.len();
            match (frame.kind, &client.role) {
                (FrameKind::Packet, Role::Endpoint(from)) => {
                    let Ok((header, payload)) = PacketFrame::decode(&frame) else { return false };
                    let missing = self.send(now, slot, (from.addr, from.host), header, payload);
                    let bytes = payload.len() as u64;
                    client.handled(len);
                    if let Role::Endpoint(from) = &mut client.role {
                        from.sent += 1;
                        from.sent_bytes += bytes;
                    }
                    if let Some(nobody) = missing {
                        client.push(&encode(FrameKind::Nobody, &encode_address(nobody)));
                    }
                }
                (FrameKind::Hello, Role::Unknown) => {
                    let hello = Hello::decode(frame.body());
                    client.handled(len);
                    let attached = hello.map_err(|e| e.to_string()).and_then(|hello| {
                        Ok((self.attach(&hello, tag(slot, self.serials[slot]))?, hello))
                    });
                    match attached {
                        Ok(((mut endpoint, welcome), hello)) => {
                            self.attendance.attached(&hello);
                            endpoint.measured =
                                measured_process(hello.process, peer_process(&client.stream));
                            if let Some(process) = endpoint.measured {
                                let rank = hello.job_rank.rank;
                                self.processor_waits.attach(process, rank, now, read_wait);
                            }
                            let who = hello.job_rank.rank.map(|rank| format!(", rank {rank},"));
                            let who = who.unwrap_or_default();
                            say(format_args!("{}{who} is host {}", endpoint.addr, endpoint.host));
                            client.role = Role::Endpoint(endpoint);
                            client.push(&welcome.encode());
                        }
                        Err(why) => {
                            self.note_refusal(&why, now, say);
                            client.answer(FrameKind::Refused, &why);
                        }
                    }
                }
                (FrameKind::Refused, Role::Unknown) => {
                    self.handle_refusal(client, now, say);
                }
                (FrameKind::Command, Role::Unknown) => {
                    if let Err(why) = self.handle_command(client, say) {
                        say(format_args!("the emulator closes a connection: {why}"));
                        return false;
                    }
                }
                (_, Role::Leaving) => client.handled(len),
                (kind, _) => {
                    say(format_args!(
                        "the emulator closes a connection: unexpected {kind:?} frame"
                    ));
                    return false;
                }
            }
        }
    }

    /// Notes why an endpoint of the job has no place on the network.
    pub(super) fn note_refusal(
        &mut self,
        why: &str,
        now: Time,
        say: &mut dyn FnMut(fmt::Arguments<'_>),
    ) {
        self.attendance.refused(why);
        self.run_state.refused(now);
        say(format_args!("an endpoint was refused: {why}"));
    }

    /// Handles the report of a process that it has no host for an endpoint, the next frame of its connection.
    pub(super) fn handle_refusal(
        &mut self,
        client: &mut Client,
        now: Time,
        say: &mut dyn FnMut(fmt::Arguments<'_>),
    ) {
        let Ok(Some(frame)) = client.next() else { return };
        let text = String::from_utf8_lossy(frame.body());
        let why: String = text.chars().take(LONGEST_REASON).collect();
        let len = frame.bytes.len();
        client.handled(len);
        self.note_refusal(&why, now, say);
    }

    /// Handles the command that is the next frame of a connection, and answers it.
    ///
    /// # Errors
    /// The frame is none of a command line of this version.
    pub(super) fn handle_command(
        &mut self,
        client: &mut Client,
        say: &mut dyn FnMut(fmt::Arguments<'_>),
    ) -> Result<(), String> {
        let frame = client.next().ok().flatten().ok_or("an incomplete command")?;
        let text = frame.body().strip_prefix(&MAGIC).map(String::from_utf8_lossy);
        let text = text.map(|text| text.into_owned());
        let len = frame.bytes.len();
        client.handled(len);
        let text = text.ok_or("a command of another version")?;
        let command = text.parse().map_err(|e: super::CommandError| e.to_string());
        let now = self.now();
        match command.and_then(|command: Command| self.apply(&command, now, say)) {
            Ok(answer) => client.answer(FrameKind::Reply, &answer),
            Err(why) => client.answer(FrameKind::Refused, &why),
        }
        Ok(())
    }

    /// Attaches an endpoint to the host that it asks for, or else to the host with the fewest
    /// endpoints.
    pub(super) fn attach(
        &mut self,
        hello: &Hello,
        tag: u64,
    ) -> Result<(Endpoint, Welcome), String> {
        let topology = self.emulation.network().switches().topology();
        let hosts = topology.hosts;
        if let (Some(places), Some(ranks)) = (self.config.places, hello.job_rank.ranks)
            && ranks > places
        {
            return Err(format!(
                "the job has {ranks} ranks, and hosts were named for {places}: name more hosts, or start fewer ranks"
            ));
        }
        let host = match hello.host {
            Some(host) if host < hosts => host,
            Some(host) => {
                let who = hello.job_rank.rank.filter(|rank| *rank == host);
                let who = who.map_or_else(String::new, |rank| format!("rank {rank} wants to be "));
                return Err(format!("{who}host {host}; the hosts are 0 to {}", hosts - 1));
            }
            // Choose the host with the fewest endpoints, the first of several.
            None => {
                let mut crowd = vec![0u32; hosts as usize];
                self.by_addr.values().for_each(|&(_, host)| crowd[host as usize] += 1);
                let least = crowd.iter().min().copied().unwrap_or(0);
                crowd.iter().position(|&n| n == least).unwrap_or(0) as u32
            }
        };
        if self.by_addr.contains_key(&hello.addr) {
            return Err(format!("an endpoint at {} is attached already", hello.addr));
        }
        self.by_addr.insert(hello.addr, (tag, host));
        let endpoint = Endpoint {
            addr: hello.addr,
            host,
            process: hello.process,
            rank: hello.job_rank.rank,
            measured: None,
            sent: 0,
            sent_bytes: 0,
            received: 0,
            received_bytes: 0,
            overflow: 0,
        };
        let welcome = Welcome {
            host,
            hosts,
            rate: self.line,
            base_rtt: self.base_rtt + self.hosts_rtt,
            mtu: self.config.mtu,
            trimming: self.config.network.trims(),
            virtual_time: self.virtual_time.as_ref().map(|all| all.rules().clone()),
        };
        Ok((endpoint, welcome))
    }

    /// Passes an endpoint's packet to the network. Returns the destination if no endpoint is
    /// attached there.
    fn send(
        &mut self,
        now: Time,
        slot: usize,
        (source, from): (SocketAddr, u32),
        mut header: PacketFrame,
        payload: &[u8],
    ) -> Option<SocketAddr> {
        let dst = header.addr;
        let Some(&(tag, to)) = self.by_addr.get(&dst) else {
            self.totals.nobody += 1;
            return Some(dst);
        };
        // A CRC trailer of 4 bytes may come on top of the MTU.
        if payload.len() > self.config.mtu as usize + 4 {
            self.totals.oversize += 1;
            return None;
        }
        self.totals.entered += 1;
        self.run_state.entered(now, (from, to), payload.len() as u64);
        // Rewrite the header as the receiver will see it.
        header.addr = SocketAddr::new(source.ip(), header.entropy);
        header.trimmed = false;
        // Endpoints of this machine use the same clock. A time in the future, which the clock of another
        // machine may show, counts as now, and one that the network has passed as the network's time.
        let at = self.model(header.sent.min(now));
        let route = Route { from, to, flow: Route::flow(source, dst), sender: slot as u32 };
        self.emulation.send(at, route, header, payload, tag);
        None
    }

    /// Processes the network's events up to now, and passes packets that arrived to their
    /// endpoints.
    fn deliver(&mut self, now: Time, say: &mut dyn FnMut(fmt::Arguments<'_>)) {
        let until = self.model(now);
        let Self { emulation, clients, serials, totals, due, started, .. } = self;
        due.clear();
        emulation.run(until, &mut |arrived: &Delivery<'_>| {
            due.push(Time(started.0.saturating_add(arrived.at.time().0)));
            let (slot, serial) = (arrived.tag as u32 as usize, (arrived.tag >> 32) as u32);
            let Some(Some(client)) = clients.get_mut(slot) else { return };
            // Another connection may have the slot by now.
            if serials[slot] != serial {
                return;
            }
            let room = client.has_room(PACKET_HEAD + arrived.payload.len());
            let Role::Endpoint(endpoint) = &mut client.role else { return };
            if !room {
                totals.overflow += 1;
                endpoint.overflow += 1;
                return;
            }
            endpoint.received += 1;
            endpoint.received_bytes += arrived.payload.len() as u64;
            totals.delivered += 1;
            totals.delivered_bytes += arrived.payload.len() as u64;
            let overflow = endpoint.overflow as u32;
            let frame = PacketFrame { overflow, ..*arrived.frame };
            client.push(&frame.encode(arrived.payload.len()));
            client.push(arrived.payload);
        });
        for slot in 0..self.clients.len() {
            let Some(client) = &mut self.clients[slot] else { continue };
            let gone = client.is_pending() && client.flush().is_err();
            if (gone || client.is_done())
                && let Some(client) = self.clients[slot].take()
            {
                self.handle_disconnect(&client, say);
            }
        }
        self.measure_delay(say);
    }

    /// Measures how late the packets of this turn were delivered, and once a second judges it.
    fn measure_delay(&mut self, say: &mut dyn FnMut(fmt::Arguments<'_>)) {
        let now = clock();
        let second = now.since(self.started).0 / 1_000_000_000;
        if second != self.second {
            self.second = second;
            self.judge_delay(say);
            self.processor_waits.sample(now, read_wait);
        }
        for due in &self.due {
            self.delay_now.add(now.since(*due));
        }
    }

    /// Ends the second in which delays are measured, and warns if the relay fell behind real time in it.
    fn judge_delay(&mut self, say: &mut dyn FnMut(fmt::Arguments<'_>)) {
        self.delay.merge(&self.delay_now);
        self.delay_last = std::mem::take(&mut self.delay_now);
        let report = self.delay_last.report();
        if report.p99_ns > self.base_rtt.0 / 4 {
            self.late_seconds += 1;
            say(format_args!(
                "the emulator is behind real time: of {} packets in the last second, 1 % arrived \
                 more than {} late and one {} late, at an unloaded round trip of {}; use a \
                 smaller --rate-scale",
                report.packets,
                Span(report.p99_ns),
                Span(report.max_ns),
                self.base_rtt
            ));
        }
    }

    /// Applies a command of a user or of the timeline. Returns the answer to it.
    pub(super) fn apply(
        &mut self,
        command: &Command,
        now: Time,
        say: &mut dyn FnMut(fmt::Arguments<'_>),
    ) -> Result<String, String> {
        let topology = self.emulation.network().switches().topology();
        let failures =
            command.failures(topology, self.config.rate_scale).map_err(|e| e.to_string())?;
        let at = self.model(now);
        for failure in failures {
            self.emulation.fail(at, failure);
        }
        match command {
            Command::Status => {
                return serde_json::to_string(&self.status()).map_err(|e| e.to_string());
            }
            Command::Down => self.stopped = true,
            Command::RestoreLink(link) => self.failures.retain(|f| f.target() != Some(link)),
            Command::RestoreSwitch(switch) => {
                self.failures.retain(|f| f.target() != Some(switch));
            }
            Command::RestorePlane(plane) => {
                let failure = Command::FailPlane(plane.clone());
                self.failures.retain(|f| *f != failure);
            }
            failure => {
                self.failures.retain(|f| f != failure);
                self.failures.push(failure.clone());
            }
        }
        if command.target().is_some() {
            self.run_state.record_command(now, command.clone());
        }
        say(format_args!("{command}"));
        Ok(format!("{command}: done"))
    }

    /// Returns the topology of the network with scaled rates and latencies.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        self.emulation.network().switches().topology()
    }

    /// Returns the complete status of the emulator.
    #[must_use]
    pub fn status(&self) -> Status {
        let network = self.emulation.network();
        let (switches, topology) = (network.switches(), network.switches().topology());
        let mut delay = self.delay;
        delay.merge(&self.delay_now);
        let (lost, telemetry) = (network.totals().lost(), network.totals().telemetry);
        let mut totals = Totals {
            in_flight: self.emulation.in_flight() as u64,
            queue_full: lost.queue_full + lost.control_full,
            down: lost.down,
            black_hole: lost.black_hole,
            corrupt: lost.corrupt,
            no_route: lost.no_route,
            program: lost.program,
            consumed: network.totals().consumed,
            copied: network.totals().copied,
            telemetry: telemetry.packets,
            telemetry_records: telemetry.records,
            telemetry_queued: telemetry.queued,
            telemetry_longest: telemetry.longest,
            rated: telemetry.rated,
            ignored: network.totals().ignored,
            ..self.totals
        };
        let now = self.model(self.now());
        let ports: Vec<PortStatus> = (0..switches.len())
            .map(|number| {
                let port = switches.port(number);
                let counters = port.counters();
                totals.marked += counters.marked;
                totals.trimmed += counters.trimmed;
                PortStatus {
                    name: topology.port_name(number),
                    rate: port.config().rate.0,
                    packets: counters.packets,
                    bytes: counters.bytes,
                    marked: counters.marked,
                    trimmed: counters.trimmed,
                    dropped: counters.dropped,
                    queue: port.queued(now),
                    max_queue: counters.max_queue,
                }
            })
            .collect();
        let names = switches.config().counter_names();
        let features = names.zip(network.totals().features).collect();
        let endpoint = |e: &Endpoint| EndpointStatus {
            address: e.addr.to_string(),
            host: e.host,
            process: e.process,
            rank: e.rank,
            sent: e.sent,
            sent_bytes: e.sent_bytes,
            received: e.received,
            received_bytes: e.received_bytes,
            overflow: e.overflow,
        };
        let attached = self.clients.iter().flatten().flat_map(|client| client.role.endpoints());
        let mut endpoints: Vec<EndpointStatus> = attached.map(endpoint).collect();
        endpoints.sort_by_key(|e| e.host);
        Status {
            uptime_s: self.now().since(self.started).0 as f64 / 1e9,
            hosts: switches.topology().hosts,
            host_rate: self.line.0,
            base_rtt_ns: self.base_rtt.0,
            rate_scale: self.config.rate_scale,
            latency_scale: self.config.latency_scale,
            mtu: self.config.mtu,
            network: switches.config().options.clone(),
            emulation_delay: delay.report(),
            emulation_delay_last: self.delay_last.report(),
            late_seconds: self.late_seconds,
            endpoints,
            attached: self.attendance.endpoints(),
            totals,
            features,
            failures: self.failures.iter().map(ToString::to_string).collect(),
            ports,
        }
    }
}

impl std::ops::Drop for Relay {
    fn drop(&mut self) {
        // Best effort: another process may have removed the socket.
        let _ = std::fs::remove_file(&self.config.socket);
    }
}

/// Sockets that became ready while the relay waited.
struct WaitResult {
    stop: bool,
    listener: bool,
    slots: Vec<usize>,
}

/// Opens the Unix socket of the emulator, which only this user can access.
fn listen(path: &std::path::Path) -> io::Result<UnixListener> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            // A regular file refuses connections just like the socket of a dead emulator. Only
            // sockets are replaced.
            if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
                return Err(io::Error::new(
                    error.kind(),
                    "a file that is no socket is there; remove it, or name another path",
                ));
            }
            match UnixStream::connect(path) {
                Ok(_) => {
                    return Err(io::Error::new(
                        error.kind(),
                        "an emulator is running there already",
                    ));
                }
                Err(e) if e.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
                Err(_) => return Err(error),
            }
            UnixListener::bind(path)?
        }
        other => other?,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Returns the cards of hosts in slow motion like the network.
fn scale_card(config: &RelayConfig) -> CardModel {
    let Some(rules) = &config.virtual_time else { return CardModel::default() };
    let CardModel { dma, message_interval, pcie } = rules.card;
    let slower = |time: Picos, factor: f64| Picos((time.0 as f64 * factor) as u64);
    CardModel {
        dma: slower(dma, config.latency_scale),
        message_interval: slower(message_interval, 1.0 / config.rate_scale),
        pcie: pcie.map(|rate| Rate((rate.0 as f64 * config.rate_scale) as u64)),
    }
}

/// Returns the inner path in slow motion like the network.
fn scale_inner_path(config: &RelayConfig, path: InnerPath) -> Result<InnerPath, RelayError> {
    let rate = Rate((path.rate.0 as f64 * config.rate_scale) as u64);
    let latency = Picos((path.latency.0 as f64 * config.latency_scale) as u64);
    if rate.0 == 0 || config.virtual_time.is_some() && latency < LEAST_LOOKAHEAD {
        return Err(RelayError::Parameter(format!(
            "messages within a host cannot have {} b/s and {latency}: give them 1 b/s and {LEAST_LOOKAHEAD} or more",
            rate.0
        )));
    }
    Ok(InnerPath { rate, latency })
}

fn check(config: &RelayConfig) -> Result<(), RelayError> {
    let bad = |text: String| Err(RelayError::Parameter(text));
    for (name, value) in
        [("rate scale", config.rate_scale), ("latency scale", config.latency_scale)]
    {
        if !(1e-6..=1e6).contains(&value) {
            return bad(format!("{name} {value} is out of range 0.000001..=1000000"));
        }
    }
    if config.topology.planes() > 1 {
        let planes = config.topology.planes();
        return bad(format!(
            "hosts of {planes} links: endpoints of the emulator have one; give a network of one plane"
        ));
    }
    if !(576..=65_000).contains(&config.mtu) {
        return bad(format!("mtu {} is out of range 576..=65000", config.mtu));
    }
    Ok(())
}
