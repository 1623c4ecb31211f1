//! A host: a transport, and the network card that takes packets out of it.

use super::endpoint::Endpoint;
use super::flows::RunningFlow;
use super::outbox::{Extra, Lane, Outbox};
use super::packet::Body;
use super::roce::Roce;
use crate::Picos;
use crate::model::PacketHeader;
use squall_base::Time;
use squall_cc::{Hops, RatePacket};

/// Packet sizes that all hosts share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Bytes of a full data packet on the wire.
    pub(super) mtu: u32,
    /// Bytes of headers in a full data packet.
    pub(super) header: u32,
    /// Bytes of a packet without data on the wire.
    pub(super) control: u32,
}

impl Sizes {
    /// Returns the payload bytes of a full data packet.
    pub(super) const fn payload(self) -> u32 {
        self.mtu - self.header
    }
}

/// Progress of a flow, reported while a host handles an event. The number is the flow's index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// All bytes of the flow were acknowledged.
    Done(u32),
    /// All bytes of the flow arrived.
    Arrived(u32),
    /// The flow will never finish.
    Failed(u32),
}

/// State that a transport reads and changes while it handles an event.
#[derive(Debug)]
pub(super) struct Work<'a> {
    pub(super) now: Picos,
    pub(super) flows: &'a mut [RunningFlow],
    pub(super) news: &'a mut Vec<News>,
    pub(super) outbox: &'a mut Outbox,
    /// Telemetry that switches wrote into the packet that arrived, or into the data packet that it
    /// acknowledges.
    pub(super) telemetry: &'a Hops,
}

impl Work<'_> {
    /// Records that `payload` bytes of a flow arrived for the first time.
    pub(super) fn arrived(&mut self, flow: u32, payload: u32) {
        let running = &mut self.flows[flow as usize];
        running.received += u64::from(payload);
        if running.received == running.bytes {
            running.arrived = self.now;
            self.news.push(News::Arrived(flow));
        }
    }

    /// Records that the sender of a flow learned of the arrival of `payload` more bytes.
    pub(super) fn acknowledged(&mut self, flow: u32, payload: u64) {
        let running = &mut self.flows[flow as usize];
        running.acked += payload;
        if running.acked == running.bytes {
            running.done = self.now;
            self.news.push(News::Done(flow));
        }
    }

    /// Records that the sender of a flow gave up.
    pub(super) fn given_up(&mut self, flow: u32) {
        let running = &mut self.flows[flow as usize];
        if !running.failed && running.done == Picos::NEVER {
            running.failed = true;
            self.news.push(News::Failed(flow));
        }
    }
}

/// Sending limits that congestion control sets for a context; a value is zero if it sets none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Allowance {
    /// Congestion window of the context, bytes.
    pub(super) window: u64,
    /// Bytes of the context that are in flight.
    pub(super) in_flight: u64,
    /// Rate that congestion control allows the context, bits per second.
    pub(super) rate: u64,
}

/// A transport, as a host sees it: contexts that the card takes packets from. A context is named by
/// its place in the transport's list.
pub(super) trait Adapter {
    /// Starts flow `index` on its `connection`. Returns false if there is no room for it.
    fn start(&mut self, index: u32, connection: u64, work: &mut Work<'_>) -> bool;

    /// Handles a packet that arrived from host `source`.
    fn receive(&mut self, source: u32, header: &PacketHeader, body: &Body, work: &mut Work<'_>);

    /// Handles a loss in the receive buffer of this host, of `buffer` bytes, which had no room for
    /// packets of `lost` bytes in total.
    fn handle_overflow(&mut self, _lost: u64, _buffer: u64) {}

    /// Handles the end of an overflow: the receive buffer is empty again.
    fn handle_drained(&mut self) {}

    /// Handles the timers that have expired.
    fn handle_timeout(&mut self, work: &mut Work<'_>);

    /// Collects what the transport wants to send or report. The host calls this after each of the
    /// calls above.
    fn collect_output(&mut self, work: &mut Work<'_>);

    /// Returns the next packet that a context has to send; `None` if it may send none now.
    fn next_packet(
        &mut self,
        now: Time,
        context: u32,
        sizes: Sizes,
        flows: &mut [RunningFlow],
    ) -> Option<(PacketHeader, Body)>;

    /// Returns the next rate packet, which leaves before all other packets that are sent from now
    /// on.
    fn next_rate_packet(
        &mut self,
        _now: Time,
        _outbox: &mut Outbox,
        _sizes: Sizes,
    ) -> Option<(PacketHeader, RatePacket)> {
        None
    }

    /// Returns whether a rate packet waits to be sent.
    fn has_rate_packet(&self) -> bool {
        false
    }

    /// Handles a rate packet that arrived from host `source`.
    fn rated(&mut self, _source: u32, _packet: &RatePacket, _work: &mut Work<'_>) {}

    /// Returns what the network card knows about a context: where its packets go, and whether it
    /// waits for its turn.
    fn lane(&mut self, context: u32) -> &mut Lane;

    /// Returns the time at which the host must call [`Adapter::handle_timeout`].
    fn poll_timeout(&self) -> Option<Picos>;

    /// Returns the current sending limits of a context.
    fn allowance(&self, context: u32) -> Allowance;

    /// Returns how many acknowledgements and how many negative acknowledgements the transport has
    /// sent.
    fn answers(&self) -> (u64, u64);

    /// Prefetches the memory of the transport. The returned value has no meaning.
    fn prefetch(&self) -> u64;

    /// Prefetches the context of a packet with `body`, if that context is easily found.
    fn prefetch_packet(&self, _body: &Body, _flows: &[RunningFlow]) -> u64 {
        0
    }

    /// Prefetches a context that sends.
    fn prefetch_context(&self, _context: u32, _flows: &[RunningFlow]) -> u64 {
        0
    }
}

/// The transport of a host. All hosts of a simulation run the same kind.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
pub(super) enum Stack {
    /// The transport of this project.
    Squall(Endpoint),
    /// The RoCEv2 baseline.
    Roce(Roce),
}

/// State of the receive buffer of a host that is slower than its link.
#[derive(Debug, Default)]
pub(super) struct IntakeQueue {
    /// Time at which the host will have taken in all waiting packets.
    pub(super) taken_in_at: Picos,
    /// Bytes that found no room, and that were not yet reported to the transport.
    pub(super) lost: u64,
    /// True if the buffer was full and, as far as the transport knows, has not been empty since.
    full: bool,
}

/// A host: its transport, its network card and its timers.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) port: u32,
    /// Time of the event that will serve the card; other events of the card are ignored.
    pub(super) card_at: Picos,
    /// Time until which the network card is busy with a packet.
    pub(super) busy_until: Picos,
    /// Time of the host's earliest timer event that is scheduled.
    pub(super) wake_at: Picos,
    /// Time at which the last packet reaches the transport; the host's own delay does not reorder
    /// packets.
    pub(super) delivered_at: Picos,
    pub(super) intake: IntakeQueue,
    outbox: Outbox,
    stack: Stack,
}

/// Calls a method of the transport that a [`Stack`] holds.
macro_rules! each {
    ($of:expr, $stack:ident => $call:expr) => {
        match $of {
            Stack::Squall($stack) => $call,
            Stack::Roce($stack) => $call,
        }
    };
}

impl Host {
    /// Creates host `number`, which sends by `port`, and whose packets carry `extra`.
    pub(super) fn new(number: u32, port: u32, stack: Stack, extra: Option<Extra>) -> Self {
        Self {
            port,
            card_at: Picos::NEVER,
            busy_until: Picos::ZERO,
            wake_at: Picos::NEVER,
            delivered_at: Picos::ZERO,
            intake: IntakeQueue::default(),
            outbox: Outbox::new(number, extra),
            stack,
        }
    }

    /// Prefetches the memory of the transport. The returned value has no meaning.
    pub(super) fn prefetch(&self) -> u64 {
        self.busy_until.0 ^ self.outbox.prefetch() ^ each!(&self.stack, stack => stack.prefetch())
    }

    /// Prefetches what a packet that arrives with `body` will need, or, without one, what the next
    /// packet to be sent will need. The returned value has no meaning.
    pub(super) fn prefetch_packet(&self, body: Option<&Body>, flows: &[RunningFlow]) -> u64 {
        each!(&self.stack, stack => match (body, self.outbox.turn()) {
            (Some(body), _) => stack.prefetch_packet(body, flows),
            (None, Some(context)) => stack.prefetch_context(context, flows),
            (None, None) => 0,
        })
    }

    /// Starts flow `index` on its `connection`, or reports it as failed if there is no room for it.
    pub(super) fn start(
        &mut self,
        now: Picos,
        index: u32,
        connection: u64,
        flows: &mut [RunningFlow],
        news: &mut Vec<News>,
    ) {
        let work = &mut Work { now, flows, news, outbox: &mut self.outbox, telemetry: Hops::NONE };
        if !each!(&mut self.stack, stack => stack.start(index, connection, work)) {
            work.given_up(index);
        }
    }

    /// Handles a packet that arrived from host `source`.
    pub(super) fn receive(
        &mut self,
        now: Picos,
        source: u32,
        header: &PacketHeader,
        (body, telemetry): (&Body, &Hops),
        flows: &mut [RunningFlow],
        news: &mut Vec<News>,
    ) {
        let work = &mut Work { now, flows, news, outbox: &mut self.outbox, telemetry };
        each!(&mut self.stack, stack => stack.receive(source, header, body, work));
    }

    /// Reports overflows of the receive buffer, of `buffer` bytes, to the transport. As with a
    /// socket, the transport learns of lost packets together with the next packet that it receives.
    pub(super) fn report_overflow(&mut self, now: Picos, buffer: u64) {
        let lost = core::mem::take(&mut self.intake.lost);
        if lost > 0 {
            self.intake.full = true;
            each!(&mut self.stack, stack => stack.handle_overflow(lost, buffer));
        }
        if self.intake.full && self.intake.taken_in_at <= now {
            self.intake.full = false;
            each!(&mut self.stack, stack => stack.handle_drained());
        }
    }

    /// Handles a rate packet that arrived from host `source`.
    pub(super) fn rated(
        &mut self,
        now: Picos,
        (source, packet): (u32, &RatePacket),
        flows: &mut [RunningFlow],
        news: &mut Vec<News>,
    ) {
        let work = &mut Work { now, flows, news, outbox: &mut self.outbox, telemetry: Hops::NONE };
        each!(&mut self.stack, stack => stack.rated(source, packet, work));
    }

    /// Handles the timers that have expired.
    pub(super) fn handle_timeout(
        &mut self,
        now: Picos,
        flows: &mut [RunningFlow],
        news: &mut Vec<News>,
    ) {
        let work = &mut Work { now, flows, news, outbox: &mut self.outbox, telemetry: Hops::NONE };
        each!(&mut self.stack, stack => stack.handle_timeout(work));
    }

    /// Collects what the transport wants to send or report. Call this after each event of the host.
    pub(super) fn collect_output(
        &mut self,
        now: Picos,
        flows: &mut [RunningFlow],
        news: &mut Vec<News>,
    ) {
        let work = &mut Work { now, flows, news, outbox: &mut self.outbox, telemetry: Hops::NONE };
        each!(&mut self.stack, stack => stack.collect_output(work));
    }

    /// Returns whether the card may find a packet to send.
    pub(super) fn eager(&self) -> bool {
        self.outbox.eager() || each!(&self.stack, stack => stack.has_rate_packet())
    }

    /// Returns the next packet for the card. Packets without data come first; only those come while
    /// data is `paused`.
    pub(super) fn next(
        &mut self,
        now: Picos,
        sizes: Sizes,
        paused: bool,
        flows: &mut [RunningFlow],
    ) -> Option<(PacketHeader, Body)> {
        let outbox = &mut self.outbox;
        each!(&mut self.stack, stack => outbox.next(stack, now, sizes, paused, flows))
    }

    /// Returns what the last packet of [`Host::next`] carries besides its body; `None` if packets
    /// carry nothing else.
    pub(super) fn extra(&self) -> Option<&Extra> {
        self.outbox.extra()
    }

    /// Returns the time at which the host's timers must be handled next.
    pub(super) fn poll_timeout(&self) -> Option<Picos> {
        each!(&self.stack, stack => stack.poll_timeout())
    }

    /// Returns the current sending limits of a context.
    pub(super) fn allowance(&self, context: u32) -> Allowance {
        each!(&self.stack, stack => stack.allowance(context))
    }

    /// Returns how many acknowledgements and how many negative acknowledgements the host has sent.
    pub(super) fn answers(&self) -> (u64, u64) {
        each!(&self.stack, stack => stack.answers())
    }
}
