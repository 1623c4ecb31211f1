//! The relay in virtual time: it reads the packets and waits of processes, advances the network,
//! and resumes the processes that may go on.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use squall_base::{Rate, Span, Time};
use squall_net::emulator::frame::{
    Deviation, DeviationKind, FrameKind, Hello, MOST_ENDPOINTS, MOST_RANKS, PacketFrame,
    VirtualTimeRules, Wait, encode, encode_address, port_of_rank,
};
use squall_net::emulator::host_overhead::HostOverhead;
use squall_net::emulator::peer_process;
use squall_net::emulator::shared::{Doorbell, SharedStream};
use squall_netsim::Picos;

use super::card::CardModel;
use super::client::{Client, Role};
use super::clock::{clock, timespec};
use super::coordinator::{Activity, BrokenPromise, Coordinator, Pace, Process};
use super::emulation::{Delivery, Emulation, Route};
use super::relay::{JOB_IS_STUCK, Relay};
use running_processes::{CHECK_INTERVAL, ThreadActivity, read_thread_activity};

/// Time from the first attachment of a process to the clock that applications see at the origin of virtual time. The
/// processes of a job attach within it, so that no clock goes back when virtual time begins.
const BEFORE_ORIGIN: Span = Span::secs(2);
/// Virtual time after which the emulator ends a job in which all processes poll and find nothing
/// and no packet is in flight.
const DEADLOCK: Span = Span::secs(10);
/// Real time after which the job begins although a rank waits for something outside of the network,
/// perhaps for a rank that waits for the network.
const START_PATIENCE: Span = Span::secs(1);
/// Real time by which [`START_PATIENCE`] grows for each rank: a launcher takes longer to let many ranks go on.
const START_PATIENCE_OF_RANK: Span = Span::millis(10);
/// Largest number of ranks that the message about a deadlock lists.
const MOST_LINES: usize = 32;
/// Interval in real time at which the relay looks at its sockets, and for packets of processes that run. Processes that
/// wait wake the relay.
const LOOK_INTERVAL: Span = Span::millis(1);
/// Largest number of processes that run at a time, for each processor. The fewer run, the further each can advance before
/// it has to wait for the others, but too few leave processors idle. The limit does not hold when no process has
/// written anything for [`LOOK_INTERVAL`].
const MAX_RUNNING_PER_PROCESSOR: usize = 4;
/// Real time that a process may take to read an answer for which it waits.
const WRITE_TIMEOUT: Span = Span::secs(30);
/// Real time for which the relay waits for a process to read before it looks again.
const WRITE_PAUSE: Duration = Duration::from_micros(50);

/// The rules of virtual time, as the user chooses them.
#[derive(Clone, Debug, PartialEq)]
pub struct VirtualTimeConfig {
    /// Number of ranks that must attach before time passes; `None`: the number that launchers
    /// report.
    pub ranks: Option<u32>,
    /// Factor from CPU time of the application to virtual time; 0: computation takes no time.
    pub cpu_scale: f64,
    /// Virtual times that the provider's calls take (send, receive, poll, reading the clock).
    pub overhead: HostOverhead,
    /// Longest jump of the virtual clock of a process that polls and finds nothing.
    pub longest_idle: Span,
    /// Times of the network cards of hosts, before scaling.
    pub card: CardModel,
}

impl Default for VirtualTimeConfig {
    fn default() -> Self {
        Self {
            ranks: None,
            cpu_scale: 1.0,
            overhead: HostOverhead::default(),
            longest_idle: Span::millis(1),
            card: CardModel::default(),
        }
    }
}

/// Times for which a rank computed, called and waited, in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankTimes {
    /// Rank, or the process ID if no launcher reported a rank.
    pub rank: u32,
    /// Virtual time for which the application computed.
    pub computed: Span,
    /// Virtual time that calls of the provider took.
    pub overhead: Span,
    /// Virtual time for which the rank waited for the network or other ranks, or slept.
    pub waited: Span,
}

/// The times and counts of a job that ran in virtual time.
#[derive(Clone, Debug, PartialEq)]
pub struct VirtualTimeReport {
    /// Virtual time from the start of the job to the last end of a rank.
    pub virtual_time: Span,
    /// Real time from the start of the job to the last end of a rank.
    pub real_time: Span,
    /// Events that the network processed.
    pub events: u64,
    /// Number of times that a process resumed after a wait.
    pub hand_overs: u64,
    /// Packets that arrived at a host.
    pub deliveries: u64,
    /// Smallest virtual time in which one host can affect another.
    pub lookahead: Picos,
    /// Hash of the time, source, destination host and length of each packet that arrived before the
    /// first rank entered MPI_Finalize.
    pub hash: u64,
    /// The deviations that made the times of ranks depend on the machine, so that the hash is not the same in each run: at
    /// most one of each kind for a rank, by ascending rank.
    pub deviations: Vec<(u32, Deviation)>,
    /// Virtual times of each rank, by ascending rank.
    pub ranks: Vec<RankTimes>,
}

/// State of a process that the relay needs and the coordinator does not.
#[derive(Clone)]
struct ProcessInfo {
    /// Index of the process's connection among the clients of the relay.
    slot: usize,
    pid: u32,
    rank: Option<u32>,
    /// The number that the ports of its endpoints follow from: its rank, unless a process of that rank is still there,
    /// as one that a job spawns finds it.
    place: u32,
    /// Threads of the process at the last check since it resumed; `None` before the first check.
    last_check: Option<ThreadActivity>,
    /// The process ran at an earlier check since it resumed. Only then its threads are looked at: reading their state takes
    /// longer than most processes run.
    ran_before: bool,
    /// CPU times of its threads at the first check after it resumed; `None` before that check.
    first_cpu: Option<BTreeMap<u32, Span>>,
    /// Virtual time at which the process last resumed.
    resumed: Time,
    /// True while the program is in MPI_Finalize.
    ending: bool,
    /// Real time since which the process waits for something outside of the network; `None` if it does not, or if the
    /// run need not be repeatable.
    outside_since: Option<Time>,
    /// The deviations that made the times of the process depend on the machine, by kind.
    deviations: BTreeMap<DeviationKind, Span>,
}

impl ProcessInfo {
    /// Notes what made the times of the process depend on the machine.
    fn note_deviation(&mut self, Deviation { kind, time }: Deviation) {
        let before = self.deviations.get(&kind).copied().unwrap_or(Span::ZERO);
        self.deviations.insert(kind, kind.sum(before, time));
    }

    /// Notes at the real time `now` that the process no longer waits for something outside of the network.
    fn return_from_outside(&mut self, now: Time) {
        if let Some(since) = self.outside_since.take() {
            self.note_deviation(Deviation { kind: DeviationKind::Outside, time: now.since(since) });
        }
    }
}

/// A packet that a process sent, and its sender.
struct SentPacket {
    /// Virtual time at which the packet enters the network card of its host.
    at: Picos,
    source: SocketAddr,
    /// Host of the process that sent the packet.
    from: u32,
    head: PacketFrame,
    payload: Vec<u8>,
    /// Index of the sender's connection among the clients of the relay.
    slot: usize,
}

/// The start of a pace, at which virtual time passes no faster than real time.
#[derive(Clone, Copy)]
struct PaceStart {
    virtual_time: Time,
    real_time: Time,
    /// Number of packets that had entered the network.
    entered: u64,
}

/// The processes of a job in virtual time, and what the relay knows about them.
pub(super) struct VirtualProcesses {
    rules: VirtualTimeRules,
    ranks: Option<u32>,
    coordinator: Coordinator,
    processes: Vec<ProcessInfo>,
    /// Memory in which processes tell the relay that they have written something, and its descriptor.
    doorbell: Arc<Doorbell>,
    doorbell_memory: OwnedFd,
    /// Packets that processes sent before the job began, by process. They are held, because their
    /// destinations may not be attached yet, and the order of attachments depends on real time.
    early: BTreeMap<u32, Vec<SentPacket>>,
    /// Real time at which the job began.
    began: Option<Time>,
    /// Real time at which the job ended.
    ended: Option<Time>,
    /// Real time at which the last check of the processes that run ended, and the time that it took.
    checked_at: Time,
    check_time: Span,
    /// True if a warning was printed that a rank computed for too long.
    warned: bool,
    /// The start of the current pace; `None` without one.
    paced_since: Option<PaceStart>,
    /// Start of the time that counts towards [`DEADLOCK`]: the number of packets that had entered
    /// the network, and the virtual time. The number is `None` while a process is outside, so that
    /// the time starts anew afterwards.
    quiet_since: (Option<u64>, Time),
    /// Real time since which no process runs before the job has begun; `None` while one runs.
    settled_since: Option<Time>,
    /// Real time until the pace lets the next process resume.
    poll_timeout: Span,
}

impl VirtualProcesses {
    pub(super) fn new(
        config: &VirtualTimeConfig,
        origin: Time,
        emulation: &Emulation,
        seed: u64,
    ) -> io::Result<Self> {
        let (doorbell, doorbell_memory) = Doorbell::create()?;
        let rules = VirtualTimeRules {
            origin,
            start: origin,
            shown_origin: shown_origin(clock()),
            calendar: realtime_offset(),
            seed,
            // The caller has checked the range.
            cpu_scale: (config.cpu_scale * 1e6) as u32,
            overhead: config.overhead.clone(),
            longest_idle: config.longest_idle,
            port: 0,
            inner_rate: emulation.inner_path().map_or(Rate(0), |path| path.rate),
        };
        Ok(Self {
            rules,
            ranks: config.ranks,
            coordinator: Coordinator::new(origin, emulation),
            processes: Vec::new(),
            doorbell: Arc::new(doorbell),
            doorbell_memory,
            early: BTreeMap::new(),
            began: None,
            ended: None,
            checked_at: clock(),
            check_time: Span::ZERO,
            warned: false,
            paced_since: None,
            quiet_since: (None, origin),
            settled_since: None,
            poll_timeout: CHECK_INTERVAL,
        })
    }

    pub(super) const fn rules(&self) -> &VirtualTimeRules {
        &self.rules
    }

    /// Returns the name by which messages call a process: `rank 3`.
    fn name(&self, process: u32) -> String {
        let info = &self.processes[process as usize];
        info.rank.map_or_else(|| format!("process {}", info.pid), |rank| format!("rank {rank}"))
    }

    /// Returns whether the times of a process are to be the same in each run: from the start of the job until its program
    /// enters MPI_Finalize.
    fn is_repeatable(&self, process: u32) -> bool {
        self.coordinator.is_started() && !self.processes[process as usize].ending
    }

    /// Notes at the real time `now` that a process waits for something outside of the network.
    fn set_outside(&mut self, process: u32, now: Time) {
        self.coordinator.set_absent(process, Activity::Outside);
        if self.is_repeatable(process) {
            self.processes[process as usize].outside_since = Some(now);
        }
    }

    /// Returns what made the times of ranks depend on the machine, with waits outside of the network up to `now`.
    fn deviations(&self, now: Time) -> Vec<(u32, Deviation)> {
        let mut all = Vec::new();
        for info in &self.processes {
            let rank = info.rank.unwrap_or(info.pid);
            let mut info = info.clone();
            info.return_from_outside(now);
            let each = info.deviations.into_iter();
            all.extend(each.map(|(kind, time)| (rank, Deviation { kind, time })));
        }
        all.sort_by_key(|(rank, deviation)| (*rank, deviation.kind));
        all
    }

    /// Returns the number that the ports of a new process of this rank follow from: its rank, or the next number
    /// after those of all processes that are there if one of these has it.
    fn free_place(&self, rank: u32) -> u32 {
        let present = self.processes.iter().zip(&self.coordinator.processes);
        let places = present
            .filter(|(_, process)| process.activity != Activity::Ended)
            .map(|(info, _)| info.place);
        let taken: Vec<u32> = places.collect();
        let next = taken.iter().max().map_or(0, |most| most + 1);
        if taken.contains(&rank) { next } else { rank }
    }

    /// Returns a time as seconds since the origin of virtual time.
    fn seconds(&self, at: Time) -> f64 {
        at.since(self.rules.origin).0 as f64 / 1e9
    }

    /// Returns the reason why a job ends in which all ranks wait for each other, with a line for
    /// each rank.
    fn explain_deadlock(&self) -> String {
        let mut text = format!(
            "deadlock, because no rank computed and no packet entered the network for {DEADLOCK} of virtual \
             time; look for a receive without a send among the ranks that wait:"
        );
        let processes = &self.coordinator.processes;
        for (number, process) in (0..).zip(processes).take(MOST_LINES) {
            let what = if process.activity == Activity::Ended { "has ended" } else { "waits" };
            let seconds = self.seconds(process.now);
            text += &format!("\n  {} {what}; its clock shows {seconds:.6} s", self.name(number));
        }
        if processes.len() > MOST_LINES {
            text += &format!("\n  and {} more ranks", processes.len() - MOST_LINES);
        }
        text
    }

    /// Describes a packet that the network cannot carry any more, because the sender had promised
    /// to send none that early.
    fn explain_broken_promise(&self, broken: BrokenPromise) -> String {
        let name = self.name(broken.process);
        let sent = self.seconds(broken.sent);
        let promise = match broken.promised {
            Time::NEVER => "while it waited for the emulator".to_owned(),
            at => format!("but had promised to send none before {:.9} s", self.seconds(at)),
        };
        format!(
            "{name} sent a packet at {sent:.9} s of virtual time, {promise}: this is a defect of squall, please \
             report it"
        )
    }
}

/// Returns the origin of virtual time for an emulator that starts at `now`. The transport rounds some
/// times to units of up to 2^36 ns, and keeps the low 32 bits of others. So that runs are alike, the
/// origin is the same multiple of such units in all of them, and later than the clock of a process
/// that attaches.
pub(super) fn first_origin(now: Time) -> Time {
    Time(now.0.next_multiple_of(1 << 53))
}

/// Returns the time of CLOCK_MONOTONIC that applications see at the origin. It is a whole second, so
/// that a program which reads the clock knows how much virtual time has passed.
fn shown_origin(now: Time) -> Time {
    Time((now + BEFORE_ORIGIN).0.next_multiple_of(Span::secs(1).0))
}

/// Returns CLOCK_REALTIME minus CLOCK_MONOTONIC, in nanoseconds.
fn realtime_offset() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    (seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)).saturating_sub(clock().0)
}

impl Relay {
    /// Serves one job in virtual time, as [`Relay::run`] does in real time.
    pub(super) fn run_in_virtual_time(
        &mut self,
        stop: &UnixStream,
        report: &mut dyn FnMut(fmt::Arguments<'_>),
    ) -> io::Result<()> {
        const STOP: u64 = u64::MAX;
        const LISTENER: u64 = u64::MAX - 1;
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&set, stop, EventData::new_u64(STOP), EventFlags::IN)?;
        epoll::add(&set, &self.listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        let mut events = Vec::with_capacity(64);
        let (mut rung, mut looked_at) = (Vec::new(), Time::ZERO);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let few = processors * MAX_RUNNING_PER_PROCESSOR;
        while !self.stopped {
            if self.run_state.is_stuck(clock()) {
                report(format_args!("{JOB_IS_STUCK}"));
                break;
            }
            let is_busy = self.serve_rung(&mut rung, report);
            if is_busy && clock().since(looked_at) < LOOK_INTERVAL {
                if let Err(why) = self.advance(few, report) {
                    report(format_args!("the emulator ends the job: {why}"));
                    break;
                }
                continue;
            }
            events.clear();
            let wait = if is_busy { Span::ZERO } else { self.prepare_sleep() };
            let wait = timespec(wait);
            match epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.end_sleep();
            looked_at = clock();
            let ready: Vec<u64> = events.iter().map(|event| event.data.u64()).collect();
            for key in ready {
                match key {
                    STOP => self.stopped = true,
                    LISTENER => {
                        // All that wait: the ranks of a job come at once, and give up after a while.
                        let mut accepted = 0;
                        while let Some(slot) = self.accept(report) {
                            accepted += 1;
                            if let Some(client) = &self.clients[slot] {
                                let data = EventData::new_u64(slot as u64);
                                epoll::add(&set, &client.stream, data, EventFlags::IN)?;
                            }
                        }
                        if accepted == 0 {
                            // Perhaps for lack of descriptors: do not spin on the listener.
                            std::thread::sleep(Duration::from_millis(10));
                        }
                    }
                    slot => self.serve_process(slot as usize, true, report),
                }
            }
            let is_busy = self.serve_rung(&mut rung, report) || is_busy;
            if let Some(all) = &mut self.virtual_time {
                all.check_running_processes(clock(), &read_thread_activity, report);
            }
            // The processes that run may compute for long, or wait in shared memory for one that the limit holds back.
            let max_running = if is_busy { few } else { usize::MAX };
            if let Err(why) = self.advance(max_running, report) {
                report(format_args!("the emulator ends the job: {why}"));
                break;
            }
        }
        if let Some(all) = &mut self.virtual_time {
            all.ended.get_or_insert_with(clock);
        }
        Ok(())
    }

    /// Asks processes to wake the relay, and returns for how long it may sleep.
    fn prepare_sleep(&self) -> Span {
        let Some(all) = &self.virtual_time else { return CHECK_INTERVAL };
        if !all.doorbell.prepare_sleep() {
            return Span::ZERO;
        }
        let runs = |process: &Process| matches!(process.activity, Activity::Running(_));
        let longest = match all.coordinator.processes.iter().any(runs) {
            true => LOOK_INTERVAL,
            false => CHECK_INTERVAL,
        };
        all.poll_timeout.min(longest)
    }

    /// Notes that the relay sleeps no more.
    fn end_sleep(&self) {
        if let Some(all) = &self.virtual_time {
            all.doorbell.end_sleep();
        }
    }

    /// Serves the processes that have written something, whose numbers `rung` holds afterwards. Returns whether there
    /// were any.
    fn serve_rung(
        &mut self,
        rung: &mut Vec<usize>,
        report: &mut dyn FnMut(fmt::Arguments<'_>),
    ) -> bool {
        let Some(all) = &self.virtual_time else { return false };
        all.doorbell.take(rung);
        for &first in &*rung {
            let mut number = first;
            while let Some(info) =
                self.virtual_time.as_ref().and_then(|all| all.processes.get(number))
            {
                self.serve_process(info.slot, false, report);
                number += Doorbell::MOST;
            }
        }
        !rung.is_empty()
    }

    /// Reads from a connection, handles its frames, and closes it if it has ended or broken. With `socket`, looks at the
    /// socket of a process as well.
    fn serve_process(
        &mut self,
        slot: usize,
        socket: bool,
        report: &mut dyn FnMut(fmt::Arguments<'_>),
    ) {
        let Some(mut client) = self.clients.get_mut(slot).and_then(Option::take) else { return };
        // A process may have written something before it ended.
        let ended = socket && client.shared.is_some() && client.read_wakeups().is_err();
        let gone = client.read().is_err() || ended;
        let fine = match self.handle_process_frames(&mut client, slot, report) {
            Ok(()) => true,
            Err(why) => {
                report(format_args!("the emulator closes a connection: {why}"));
                false
            }
        };
        let flushed = client.flush().is_ok();
        if gone || !fine || !flushed || client.is_done() {
            self.end_process(&client, report);
            self.handle_disconnect(&client, report);
        } else {
            self.clients[slot] = Some(client);
        }
    }

    /// Handles the end of a process of the job.
    fn end_process(&mut self, client: &Client, report: &mut dyn FnMut(fmt::Arguments<'_>)) {
        if let (Role::Process { number, .. }, Some(all)) = (&client.role, &mut self.virtual_time) {
            if client.role.endpoints().next().is_some() {
                let process = &all.coordinator.processes[*number as usize];
                let at = process.now.since(all.rules.origin).0 as f64 / 1e9;
                let name = all.name(*number);
                report(format_args!(
                    "{name} left at {at:.6} s without closing its endpoint: it was killed, or ended without \
                     MPI_Finalize; messages of others to it fail"
                ));
            }
            all.coordinator.set_absent(*number, Activity::Ended);
            all.processes[*number as usize].return_from_outside(clock());
            if all.coordinator.processes.iter().all(|p| p.activity == Activity::Ended) {
                all.ended = Some(clock());
            }
        }
    }

    fn handle_process_frames(
        &mut self,
        client: &mut Client,
        slot: usize,
        report: &mut dyn FnMut(fmt::Arguments<'_>),
    ) -> Result<(), String> {
        loop {
            let frame = match client.next() {
                Ok(None) => return Ok(()),
                Ok(Some(frame)) => frame,
                Err(error) => return Err(error.to_string()),
            };
            let len = frame.bytes.len();
            match (frame.kind, &client.role) {
                (FrameKind::Packet, Role::Process { number, endpoints }) => {
                    let (head, payload) =
                        PacketFrame::decode(&frame).map_err(|error| error.to_string())?;
                    let index = usize::from(head.endpoint);
                    let from = endpoints.get(index).and_then(Option::as_ref);
                    let from = from.ok_or_else(|| {
                        format!("packet from endpoint {index}, which is not attached")
                    })?;
                    let (addr, host) = (from.addr, from.host);
                    let sent = self.send_from_process(*number, (addr, host), head, payload);
                    let missing = sent.map_err(|broken| {
                        // The network may be past the packet's time: the job's results are wrong.
                        self.stopped = true;
                        let all = self.virtual_time.as_ref();
                        all.map_or_else(String::new, |all| all.explain_broken_promise(broken))
                    })?;
                    let bytes = payload.len() as u64;
                    client.handled(len);
                    if let Role::Process { endpoints, .. } = &mut client.role
                        && let Some(Some(from)) = endpoints.get_mut(index)
                    {
                        from.sent += 1;
                        from.sent_bytes += bytes;
                    }
                    if let Some(nobody) = missing {
                        client.push(&encode(FrameKind::Nobody, &encode_address(nobody)));
                    }
                }
                (FrameKind::Wait, Role::Process { number, .. }) => {
                    let wait = Wait::decode(&frame).map_err(|error| error.to_string())?;
                    let number = *number;
                    client.handled(len);
                    if let Some(all) = &mut self.virtual_time {
                        all.coordinator.note_wait(number, wait);
                        let info = &mut all.processes[number as usize];
                        info.last_check = None;
                        if info.outside_since.is_some() {
                            info.return_from_outside(clock());
                        }
                    }
                }
                (FrameKind::Ending, Role::Process { number, .. }) => {
                    let (number, body) = (*number, frame.body().first_chunk().copied());
                    let at = body.map(u64::from_le_bytes).ok_or("Ending frame without a time")?;
                    client.handled(len);
                    if let Some(all) = &mut self.virtual_time {
                        all.processes[number as usize].ending = true;
                        all.coordinator.note_end(Time(at));
                    }
                }
                (FrameKind::Deviation, Role::Process { number, .. }) => {
                    let deviation = Deviation::decode(&frame).map_err(|error| error.to_string())?;
                    let number = *number;
                    client.handled(len);
                    if let Some(all) = &mut self.virtual_time {
                        all.processes[number as usize].note_deviation(deviation);
                    }
                }
                (FrameKind::Close, Role::Process { .. }) => {
                    let number = frame.body().first_chunk().copied().map(u16::from_le_bytes);
                    let number =
                        usize::from(number.ok_or("Close frame without an endpoint number")?);
                    client.handled(len);
                    if let Role::Process { endpoints, .. } = &mut client.role
                        && let Some(closed) = endpoints.get_mut(number).and_then(Option::take)
                    {
                        self.by_addr.remove(&closed.addr);
                    }
                }
                (FrameKind::Hello, Role::Unknown | Role::Process { .. }) => {
                    let hello = Hello::decode(frame.body()).map_err(|error| error.to_string());
                    client.handled(len);
                    self.attach_to_process(client, slot, hello, report);
                }
                (FrameKind::Command, Role::Unknown) => self.handle_command(client, report)?,
                (FrameKind::Refused, Role::Unknown) => self.handle_refusal(client, clock(), report),
                (_, Role::Leaving) => client.handled(len),
                (kind, _) => return Err(format!("unexpected {kind:?} frame")),
            }
        }
    }

    /// Attaches an endpoint to a process, which is new if this is its first one.
    fn attach_to_process(
        &mut self,
        client: &mut Client,
        slot: usize,
        hello: Result<Hello, String>,
        report: &mut dyn FnMut(fmt::Arguments<'_>),
    ) {
        let (known, endpoints) = match &client.role {
            Role::Process { number, endpoints } => (Some(*number), endpoints.len()),
            _ => (None, 0),
        };
        let next = self.virtual_time.as_ref().map_or(0, |all| all.processes.len());
        let number = known.unwrap_or_else(|| u32::try_from(next).unwrap_or(u32::MAX));
        if let (true, Some(all)) = (next == 0, &mut self.virtual_time) {
            all.rules.shown_origin = shown_origin(clock());
        }
        let attached = hello.and_then(|mut hello| {
            let tag = u64::from(number) | (endpoints as u64) << 32;
            let all = self.virtual_time.as_ref().ok_or("the clock of the network is real")?;
            let place = known.map_or_else(
                || all.free_place(hello.job_rank.rank.unwrap_or(number)),
                |number| all.processes[number as usize].place,
            );
            let start = all.coordinator.start_of_next();
            let port = port_of(place, endpoints)?;
            hello.addr.set_port(port);
            let (endpoint, mut welcome) = self.attach(&hello, tag)?;
            if let Some(rules) = &mut welcome.virtual_time {
                (rules.port, rules.start) = (port, start);
            }
            Ok(((endpoint, welcome), hello, place))
        });
        let ((endpoint, welcome), hello, place) = match attached {
            Ok(attached) => attached,
            Err(why) => {
                self.note_refusal(&why, clock(), report);
                match known {
                    // The process keeps its other endpoints.
                    Some(_) => {
                        client.push(&encode(FrameKind::Refused, why.as_bytes()));
                        wake_for_answer(client);
                    }
                    None => client.answer(FrameKind::Refused, &why),
                }
                return;
            }
        };
        self.attendance.attached(&hello);
        if let (None, Some(all)) = (known, &mut self.virtual_time) {
            all.coordinator.add();
            all.processes.push(ProcessInfo {
                slot,
                // In another PID namespace, such as a container's, the number in the greeting is that of another
                // process here.
                pid: peer_process(&client.stream).unwrap_or(hello.process),
                rank: hello.job_rank.rank,
                place,
                last_check: None,
                ran_before: false,
                first_cpu: None,
                resumed: all.rules.origin,
                ending: false,
                outside_since: None,
                deviations: BTreeMap::new(),
            });
            client.role = Role::Process { number, endpoints: Vec::new() };
        }
        client.push(&welcome.encode());
        if let (None, Some(all)) = (known, &mut self.virtual_time) {
            // The socket is empty: it has room for these two.
            let doorbell = (&all.doorbell, &all.doorbell_memory);
            let shared =
                client.flush().and_then(|()| SharedStream::offer(&client.stream, number, doorbell));
            match shared {
                Ok(shared) => client.shared = Some(shared),
                Err(error) => {
                    report(format_args!(
                        "cannot share memory with {}: {error}; look at `ulimit -n` and at the free memory",
                        all.name(number)
                    ));
                    all.coordinator.set_absent(number, Activity::Ended);
                    client.role = Role::Leaving;
                }
            }
        }
        if let Role::Process { endpoints, .. } = &mut client.role {
            endpoints.push(Some(endpoint));
        }
        wake_for_answer(client);
    }

    /// Hands a packet of a process to its card, or keeps it until the job begins. Returns the
    /// destination if no endpoint is attached there.
    fn send_from_process(
        &mut self,
        process: u32,
        (source, from): (SocketAddr, u32),
        head: PacketFrame,
        payload: &[u8],
    ) -> Result<Option<SocketAddr>, BrokenPromise> {
        let Some(all) = &mut self.virtual_time else { return Ok(None) };
        let at = all.coordinator.check_sent(process, head.sent)?;
        if !all.coordinator.is_started() {
            let slot = all.processes[process as usize].slot;
            let packet = SentPacket { at, source, from, head, payload: payload.to_vec(), slot };
            all.early.entry(process).or_default().push(packet);
            return Ok(None);
        }
        Ok(self.enter_network(at, process, (source, from), head, payload))
    }

    /// Hands the packets of the time before the job began to their cards.
    fn send_early_packets(&mut self) {
        let early = self.virtual_time.as_mut().map(|all| std::mem::take(&mut all.early));
        for (process, packets) in early.into_iter().flatten() {
            for SentPacket { at, source, from, head, payload, slot } in packets {
                let missing = self.enter_network(at, process, (source, from), head, &payload);
                if let (Some(nobody), Some(Some(client))) = (missing, self.clients.get_mut(slot)) {
                    client.push(&encode(FrameKind::Nobody, &encode_address(nobody)));
                }
            }
        }
    }

    /// Hands a packet of a process to the card of its host `from` at `at`, or to the inner path. Returns the
    /// destination if no endpoint is attached there.
    fn enter_network(
        &mut self,
        at: Picos,
        sender: u32,
        (source, from): (SocketAddr, u32),
        mut head: PacketFrame,
        payload: &[u8],
    ) -> Option<SocketAddr> {
        let dst = head.addr;
        let Some(&(tag, to)) = self.by_addr.get(&dst) else {
            self.totals.nobody += 1;
            return Some(dst);
        };
        // A CRC trailer of 4 bytes may come on top of the MTU, and an authentication tag.
        if payload.len() > self.config.mtu as usize + 64 {
            self.totals.oversize += 1;
            return None;
        }
        self.totals.entered += 1;
        self.run_state.entered(head.sent, (from, to), payload.len() as u64);
        // Hash hosts and ports, not IP addresses, which depend on the machine.
        let flow = flow(from, to, source.port(), dst.port());
        head.addr = SocketAddr::new(source.ip(), head.entropy);
        head.trimmed = false;
        self.emulation.send(at, Route { from, to, flow, sender }, head, payload, tag);
        None
    }

    /// Starts the job if it is complete, advances the network as far as it may, and resumes the
    /// processes that may go on, until `max_running` processes run.
    ///
    /// # Errors
    /// The job is in a deadlock; the text describes it.
    fn advance(
        &mut self,
        max_running: usize,
        report: &mut dyn FnMut(fmt::Arguments<'_>),
    ) -> Result<(), String> {
        self.start_if_complete(report);
        loop {
            let Some(all) = &mut self.virtual_time else { return Ok(()) };
            if !all.coordinator.is_started() {
                return Ok(());
            }
            // The network stops at the next command of the timeline, or sample of the recorder.
            let next = self.run_state.next();
            let limit = next.map(|at| all.coordinator.limit_before(at));
            let (clients, totals) = (&mut self.clients, &mut self.totals);
            let processes = &all.processes;
            all.coordinator.run(&mut self.emulation, limit, &mut |at, delivery: &Delivery<'_>| {
                let (number, endpoint) = (delivery.tag as u32, (delivery.tag >> 32) as u32);
                let info = processes.get(number as usize)?;
                let client = clients.get_mut(info.slot)?.as_mut()?;
                let Role::Process { number: present, endpoints } = &mut client.role else {
                    return None;
                };
                // Another process may have the slot by now.
                if *present != number {
                    return None;
                }
                let receiver = endpoints.get_mut(endpoint as usize)?.as_mut()?;
                receiver.received += 1;
                receiver.received_bytes += delivery.payload.len() as u64;
                totals.delivered += 1;
                totals.delivered_bytes += delivery.payload.len() as u64;
                let frame = PacketFrame { sent: at, endpoint: endpoint as u16, ..*delivery.frame };
                client.push(&frame.encode(delivery.payload.len()));
                client.push(delivery.payload);
                Some(number)
            });
            if let (Some(next), Some(limit)) = (next, limit)
                && all.coordinator.has_reached(limit, &self.emulation)
            {
                self.emulation.advance_to(self.model(next));
                self.apply_due_commands(next, report);
                continue;
            }
            let pace = self.pace()?;
            let Some(all) = &mut self.virtual_time else { return Ok(()) };
            let (woken, held) = all.coordinator.wake(limit, pace, max_running);
            all.poll_timeout = match (held, pace) {
                (Some(held), Some(pace)) => held.since(pace.latest),
                _ => CHECK_INTERVAL,
            };
            if woken.is_empty() {
                return Ok(());
            }
            for (number, resume) in woken {
                let info = &mut all.processes[number as usize];
                (info.first_cpu, info.ran_before, info.resumed) = (None, false, resume.now);
                let slot = info.slot;
                if let Some(Some(client)) = self.clients.get_mut(slot) {
                    client.push(&resume.encode());
                    // The next read of the connection reports an error.
                    let _ = write_all(client);
                }
            }
            return Ok(());
        }
    }

    /// Starts the job once all ranks are attached and wait.
    fn start_if_complete(&mut self, report: &mut dyn FnMut(fmt::Arguments<'_>)) {
        let (present, reported) = self.attendance.ranks();
        let Some(all) = &mut self.virtual_time else { return };
        if all.coordinator.is_started() || all.processes.is_empty() {
            return;
        }
        let expected = all.ranks.unwrap_or(reported) as usize;
        let there = if present > 0 { present } else { all.processes.len() };
        let all_are = |wanted: fn(&Activity) -> bool| {
            all.coordinator.processes.iter().all(|process| wanted(&process.activity))
        };
        // Begin when all ranks wait for the network, because only then the run can be repeated. But
        // one of them may wait outside, in its launcher, for a rank that waits for the network: so
        // begin after a while in any case.
        let ready = all_are(|activity| matches!(activity, Activity::Waiting(_)));
        let settled = all_are(|activity| !matches!(activity, Activity::Running(_)));
        let since = *all.settled_since.get_or_insert_with(clock);
        if !settled {
            all.settled_since = None;
        }
        let patience = Span(START_PATIENCE.0 + START_PATIENCE_OF_RANK.0 * there as u64);
        let patient = settled && clock().since(since) >= patience;
        if there < expected.max(1) || !(ready || patient) {
            return;
        }
        all.coordinator.start();
        let began = clock();
        all.began = Some(began);
        for (info, process) in all.processes.iter_mut().zip(&all.coordinator.processes) {
            info.outside_since = (process.activity == Activity::Outside).then_some(began);
        }
        self.send_early_packets();
        report(format_args!("{there} ranks have attached; virtual time begins"));
    }

    /// Returns a pace if virtual time must not pass faster than real time. That is so while a
    /// process waits for something outside of the network, and while no packet is in flight and all
    /// processes poll and find nothing, because they may be waiting for their launcher.
    ///
    /// # Errors
    /// All processes have waited for [`DEADLOCK`].
    fn pace(&mut self) -> Result<Option<Pace>, String> {
        let empty = self.emulation.is_empty();
        let Some(all) = &mut self.virtual_time else { return Ok(None) };
        let outside = all.coordinator.processes.iter().any(|p| p.activity == Activity::Outside);
        let stuck = empty && all.coordinator.is_idle();
        let bound = all.coordinator.bound();
        let busy = all.coordinator.processes.iter().any(|p| p.activity.is_busy());
        // Time in which a process sleeps, computes or waits for its launcher does not count towards
        // a deadlock.
        if all.quiet_since.0 != Some(self.totals.entered) || busy || outside {
            let entered = (!outside && bound != Time::NEVER).then_some(self.totals.entered);
            all.quiet_since = (entered, bound);
        }
        let moved = all.paced_since.is_some_and(|since| since.entered != self.totals.entered);
        if bound == Time::NEVER || busy || moved {
            all.paced_since = None;
        }
        if bound == Time::NEVER || !(outside || stuck) {
            return Ok(None);
        }
        if stuck && !outside && bound.since(all.quiet_since.1) >= DEADLOCK {
            return Err(all.explain_deadlock());
        }
        // The pace begins at the time of the processes before they asked to wait, and goes on while they run without
        // sending: otherwise each wait would begin another pace, and pass at once.
        let slowest = all.coordinator.slowest().unwrap_or(bound);
        let entered = self.totals.entered;
        let since = all.paced_since.get_or_insert(PaceStart {
            virtual_time: slowest,
            real_time: clock(),
            entered,
        });
        let latest = since.virtual_time + clock().since(since.real_time);
        Ok(Some(Pace { latest, for_all: outside }))
    }

    /// Returns what the job did in virtual time; `None` if the network's clock is real.
    #[must_use]
    pub fn virtual_time_report(&self) -> Option<VirtualTimeReport> {
        let all = self.virtual_time.as_ref()?;
        let coordinator = &all.coordinator;
        let ended = all.ended.unwrap_or_else(clock);
        let mut ranks: Vec<RankTimes> = all
            .processes
            .iter()
            .zip(&coordinator.processes)
            .map(|(info, process)| {
                let total = process.now.since(all.coordinator.origin);
                RankTimes {
                    rank: info.rank.unwrap_or(info.pid),
                    computed: process.computed,
                    overhead: process.overhead,
                    waited: total.saturating_sub(Span(process.computed.0 + process.overhead.0)),
                }
            })
            .collect();
        ranks.sort_by_key(|times| times.rank);
        Some(VirtualTimeReport {
            virtual_time: coordinator.last_time().since(coordinator.origin),
            real_time: all.began.map_or(Span::ZERO, |began| ended.since(began)),
            events: self.emulation.network().events(),
            hand_overs: coordinator.hand_overs,
            deliveries: coordinator.deliveries,
            lookahead: Picos::from_span(coordinator.process_latency()),
            hash: coordinator.hash(),
            deviations: all.deviations(ended),
            ranks,
        })
    }
}

/// Returns the UDP port of an endpoint, which depends on its rank and its number in its process.
///
/// # Errors
/// There are too many endpoints.
fn port_of(rank: u32, endpoint: usize) -> Result<u16, String> {
    port_of_rank(rank, endpoint).ok_or_else(|| {
        format!(
            "endpoint {endpoint} of rank {rank} has no UDP port: in virtual time a rank can open \
             {MOST_ENDPOINTS} endpoints, closed ones included, and a job can have {MOST_RANKS} ranks"
        )
    })
}

/// Returns the part of the ECMP hash that all packets between two endpoints share. Unlike
/// [`Route::flow`] it hashes no IP addresses, so that runs on different machines are equal.
fn flow(from: u32, to: u32, source: u16, destination: u16) -> u32 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for word in [from, to, source.into(), destination.into()] {
        hash = (hash ^ u64::from(word)).wrapping_mul(0x0100_0000_01b3);
        hash ^= hash >> 32;
    }
    (hash >> 16) as u32
}

/// Wakes a process that waits for the answer to a hello, of which there is room for the beginning at least.
fn wake_for_answer(client: &mut Client) {
    // The next read of the connection reports an error.
    let _ = client.flush();
    if let Some(shared) = &client.shared {
        shared.wake();
    }
}

/// Writes everything that is pending for a process. The process waits for it and therefore reads.
///
/// # Errors
/// The connection is broken, or the process did not read for [`WRITE_TIMEOUT`].
fn write_all(client: &mut Client) -> io::Result<()> {
    let began = clock();
    loop {
        client.flush()?;
        if let Some(shared) = &client.shared {
            shared.wake();
        }
        if !client.is_pending() {
            return Ok(());
        }
        if clock().since(began) > WRITE_TIMEOUT {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(WRITE_PAUSE);
    }
}

mod running_processes;
#[cfg(test)]
mod tests;
