//! The state of an enabled endpoint, and the order in which its parts are served.

use std::os::fd::RawFd;
use std::sync::Arc;

use squall_base::{RegionId, Span, Time};
use squall_engine::{Completion, Engine, Operation, PeerId, SubmitError, Submitted, Visibility};

use super::Settings;
use super::bindings::Bindings;
use super::delivery::Delivery;
use super::peer_cache::PeerCache;
use super::poller::{PollResult, Poller};
use crate::clock::hooks;
use crate::mr::{Regions, UserMemory};
use crate::network::addr::Name;
use crate::optional::Facilities;
use crate::reports::monitor::Monitor;
use crate::reports::stats::{Statistics, Turns};
use crate::reports::trace::Tracer;
use crate::waiting::backoff;
use crate::waiting::endpoint_lock::EndpointLock;

/// Number of turns after which timers are served even if packets keep arriving.
const TIMER_TURNS: u64 = 16;
/// Number of turns after which the contention for the processor is checked again.
const CONTENTION_TURNS: u64 = 64;

/// The parts of an enabled endpoint: its engine, ports, peers and reports.
pub(crate) struct Core {
    pub(crate) engine: Engine,
    pub(crate) peers: PeerCache,
    pub(crate) regions: Arc<EndpointLock<Regions>>,
    pub(crate) optional: Facilities,
    /// Writes calls of the application to a file, if FI_SQUALL_TRACE asks for it.
    pub(crate) trace: Tracer,
    poller: Poller,
    delivery: Delivery,
    name: Name,
    turns: Turns,
    monitor: Monitor,
    ack_delays: AckDelays,
    /// The engine uses the acknowledgement delay for a contended processor.
    contended: bool,
}

/// The longest delays of acknowledgements that neither the number of bytes received nor the sender's request makes due
/// earlier.
pub(crate) struct AckDelays {
    pub(crate) usual: Span,
    /// The delay while other threads want the processor of the thread that polls. Each acknowledgement then costs both
    /// ends a turn on a processor that they wait for, and a loss that is found later costs less than that.
    pub(crate) contended: Span,
}

/// The parts of an endpoint that [`super::setup`] opens.
pub(crate) struct EndpointParts {
    pub(crate) engine: Engine,
    pub(crate) ack_delays: AckDelays,
    pub(crate) poller: Poller,
    pub(crate) name: Name,
    /// Number of the endpoint in its process, from 0 on.
    pub(crate) number: u32,
    /// The endpoint talks only to peers in its address vector.
    pub(crate) named_only: bool,
}

impl Core {
    /// Assembles an endpoint on the network interface with this name.
    pub(crate) fn new(
        opened: EndpointParts,
        regions: Arc<EndpointLock<Regions>>,
        settings: &Settings,
        interface: &str,
    ) -> Self {
        let EndpointParts { engine, ack_delays, poller, name, number, named_only } = opened;
        let mut core = Self {
            engine,
            peers: PeerCache::new(named_only),
            regions,
            optional: Facilities::new(settings.devices),
            trace: Tracer::open(number, name.addr),
            poller,
            delivery: Delivery::new(name, interface, settings.names_source),
            name,
            turns: Turns::default(),
            monitor: Monitor::disabled(number),
            ack_delays,
            contended: false,
        };
        core.monitor = Monitor::for_endpoint(number, interface, &core.statistics());
        core
    }

    /// Returns the address and instance of a peer.
    pub(crate) fn name_of(&self, peer: PeerId) -> Name {
        let state = self.engine.peers().get(peer);
        Name { instance: state.instance(), ..state.addr().into() }
    }

    /// Returns the endpoint's address and instance.
    pub(crate) fn name(&self) -> Name {
        self.name
    }

    /// Returns the descriptors that become readable when packets arrive.
    pub(crate) fn sockets(&self) -> Vec<RawFd> {
        self.poller.sockets()
    }

    /// Returns the time at which the last packet arrived.
    pub(crate) fn last_arrival(&self) -> Time {
        self.poller.last_arrival()
    }

    /// Returns the time at which the endpoint needs a turn although nothing arrives.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.poller.next_timeout(&self.engine, self.optional.waits_for_room())
    }

    /// Returns the time until which a thread sleeps that must learn of earlier timers.
    #[inline]
    pub(crate) const fn sleeps_until(&self) -> Option<Time> {
        self.poller.sleeps_until()
    }

    /// Sets the time until which a thread sleeps that must learn of earlier timers.
    pub(crate) fn set_sleeps_until(&mut self, until: Option<Time>) {
        self.poller.set_sleeps_until(until);
    }

    /// Returns whether a thread that sleeps `until` then must wake up for an earlier timer. Once it must, no later call
    /// reports it again.
    pub(crate) fn is_due_before(&mut self, until: Time) -> bool {
        let due = self.next_timeout().is_some_and(|at| at < until);
        if due {
            self.poller.set_sleeps_until(None);
        }
        due
    }

    /// Prepares for a thread to sleep until something arrives. Returns false when something has arrived already.
    pub(crate) fn prepare_sleep(&mut self) -> bool {
        self.poller.prepare_sleep(&mut self.engine)
    }

    /// Notes that the thread, which slept until something arrived, sleeps no more.
    pub(crate) fn end_sleep(&mut self) {
        self.poller.end_sleep();
    }

    /// Runs one turn: receive, timers, transmit, complete. Returns whether anything happened.
    pub(crate) fn run_turn(&mut self, bindings: &Bindings) -> bool {
        self.turns.all += 1;
        self.peers.sync_addresses(bindings.av.as_ref().map(|av| &***av), &mut self.engine);
        let PollResult { now, mut busy, drained, sockets_polled } =
            self.poller.poll(&mut self.engine, &self.regions);
        // What looks overdue may be answered by packets that still wait in the socket; a stream of
        // them does not put timers off for ever, though.
        let timely = drained || self.turns.all.is_multiple_of(TIMER_TURNS);
        if timely && self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
            busy = true;
        }
        // While the sockets are not polled and no record arrived, sending waits for the turn that polls the sockets.
        if sockets_polled || busy || self.has_work() {
            busy |= self.flush(now);
        }
        busy |= self.deliver_completions(bindings);
        busy |= self.advance_facilities(bindings);
        self.poller.rearm();
        if self.monitor.is_due(now) {
            self.publish_statistics(now);
        }
        if busy {
            hooks::note_progress();
            self.peers.sync_peers(&self.engine);
            while let Some(notice) = self.engine.poll_notice() {
                self.delivery.log(now, &self.engine, self.poller.trailer(), notice);
            }
        } else {
            self.turns.idle += 1;
        }
        if self.turns.all.is_multiple_of(CONTENTION_TURNS) {
            self.adapt_ack_delay(now);
        }
        busy
    }

    /// Sets the delay of acknowledgements according to the contention for the processor.
    #[cold]
    fn adapt_ack_delay(&mut self, now: Time) {
        let contended = backoff::check_contention(now);
        if contended != self.contended {
            self.contended = contended;
            let AckDelays { usual, contended: longer } = self.ack_delays;
            self.engine.set_ack_delay(if contended { longer } else { usual });
        }
    }

    /// Runs a turn without the application: completions stay in the engine until the application's next call, but
    /// collective operations go on. Threads that sleep on the sockets are woken if this turn has taken packets from
    /// those, or if an operation has ended, for instance by its timeout. Returns whether packets had arrived.
    pub(crate) fn run_background_turn(&mut self, bindings: &Bindings) -> bool {
        self.turns.stand_ins += 1;
        let waiting = self.engine.completions();
        self.peers.sync_addresses(bindings.av.as_ref().map(|av| &***av), &mut self.engine);
        let PollResult { now, busy: arrived, .. } =
            self.poller.poll(&mut self.engine, &self.regions);
        if self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
        }
        self.flush(now);
        if self.optional.collectives.as_ref().is_some_and(|all| all.is_running()) {
            self.advance_collectives(bindings);
        }
        self.poller.rearm();
        if self.monitor.is_due(now) {
            self.publish_statistics(now);
        }
        self.peers.sync_peers(&self.engine);
        if arrived || self.engine.completions() > waiting {
            bindings.wake();
        }
        arrived
    }

    /// Writes the counters to where `squall top` and other observers read them.
    #[cold]
    fn publish_statistics(&mut self, now: Time) {
        let mut monitor = self.monitor.take();
        monitor.write(now, &self.engine, &self.statistics());
        self.monitor = monitor;
        self.trace.write();
    }

    /// Ends the endpoint's statistics page and trace, because the endpoint closes.
    pub(crate) fn close_reports(&mut self) {
        self.monitor.end();
        self.trace.close();
    }

    /// Returns whether there is something to send that waits for nothing but a turn.
    #[inline]
    fn has_work(&mut self) -> bool {
        let shm = self.engine.shm();
        shm.has_records() || shm.has_packets()
    }

    /// Submits an operation to the engine. All operations that send, including those of optional facilities, enter the
    /// engine by this call. A short message to a peer with a shared-memory channel leaves at once, if nothing is in its
    /// way.
    #[inline]
    pub(crate) fn submit(&mut self, now: Time, op: Operation) -> Result<Submitted, SubmitError> {
        hooks::charge_send(&op);
        let Self { engine, poller, regions, .. } = self;
        let mut channels = poller.channels.sink();
        let submitted = engine.submit(now, &UserMemory(regions), op, channels.as_mut())?;
        if submitted == Submitted::Sent {
            poller.channels.publish_state(engine);
        }
        Ok(submitted)
    }

    /// Sends an operation of `bytes` that was posted, or defers it to send it with others.
    #[inline]
    pub(crate) fn handle_posted(&mut self, now: Time, bytes: u64, more: bool) {
        self.poller.handle_posted(now, &mut self.engine, &mut self.peers, bytes, more);
    }

    /// Sends the packets and records that the engine has ready. Returns whether anything was sent.
    pub(crate) fn flush(&mut self, now: Time) -> bool {
        self.poller.flush(now, &mut self.engine, &mut self.peers)
    }

    /// Moves operations that have ended to queues and counters. Returns whether there were any.
    pub(crate) fn deliver_completions(&mut self, bindings: &Bindings) -> bool {
        let mut busy = false;
        while let Some(done) = self.engine.poll_completion() {
            busy = true;
            match &mut self.optional.staging {
                None => self.deliver_completion(bindings, &done),
                Some(staging) => {
                    if let Some(done) = staging.end(done) {
                        self.deliver_completion(bindings, &done);
                    }
                }
            }
        }
        if busy {
            hooks::note_completion();
        }
        busy
    }

    /// Counts an operation that has ended, and shows its end to the application.
    #[inline]
    pub(crate) fn deliver_completion(&mut self, bindings: &Bindings, done: &Completion) {
        let Self { engine, peers, optional, delivery, .. } = self;
        if self.trace.is_on() {
            self.trace.record_end(engine, done, bindings.counts(done.kind));
        }
        if matches!(done.visibility, Visibility::Kept | Visibility::RegionOnly) {
            if done.visibility == Visibility::RegionOnly {
                self.regions.lock().count(done.kind, done.region);
            } else if let Some(done) = optional.after_completion(bindings, peers, engine, done) {
                delivery.report_completion(bindings, peers, engine, &done);
            }
            return;
        }
        bindings.count(done.kind, done.status.is_ok());
        if done.region != RegionId::LENT {
            self.regions.lock().count(done.kind, done.region);
        }
        delivery.report_completion(bindings, peers, engine, done);
    }

    /// Returns the statistics of the endpoint: everything that was counted.
    pub(crate) fn statistics(&self) -> Statistics<'_> {
        let (engine, reliability) = self.engine.counters();
        Statistics {
            local: self.name.addr,
            engine,
            reliability,
            transport: self.engine.transport(),
            net: self.poller.counters(),
            rails: self.poller.rails(),
            flows: self.engine.flows(),
            turns: Turns { revoked: self.poller.revoked(), ..self.turns },
            open: self.monitor.open(),
        }
    }
}
