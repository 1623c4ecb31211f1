//! A host: a transport, and the card that pulls packets out of it.

use super::endpoint::Endpoint;
use super::flows::RunningFlow;
use super::outbox::{Extra, Lane, Outbox};
use super::packet::Body;
use super::roce::Roce;
use crate::Picos;
use crate::model::PacketHeader;
use squall_base::Time;
use squall_cc::{Hops, RatePacket};

/// What all hosts share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Bytes of a full packet on the wire.
    pub(super) mtu: u32,
    /// ... of which are headers.
    pub(super) header: u32,
    /// Bytes of a packet without data on the wire.
    pub(super) control: u32,
}

impl Sizes {
    /// Payload bytes of a full packet.
    pub(super) const fn payload(self) -> u32 {
        self.mtu - self.header
    }
}

/// What happened to flows while a host was worked on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// Everything was acknowledged.
    Done(u32),
    /// Everything arrived.
    Arrived(u32),
    /// It will never be done.
    Failed(u32),
}

/// What a transport works on and with.
#[derive(Debug)]
pub(super) struct Work<'a> {
    pub(super) now: Picos,
    pub(super) flows: &'a mut [RunningFlow],
    pub(super) news: &'a mut Vec<News>,
    pub(super) outbox: &'a mut Outbox,
    /// What switches wrote into the packet that arrived, or into the one it answers.
    pub(super) telemetry: &'a Hops,
}

impl Work<'_> {
    /// `payload` bytes of a flow arrived, for the first time.
    pub(super) fn arrived(&mut self, flow: u32, payload: u32) {
        let running = &mut self.flows[flow as usize];
        running.received += u64::from(payload);
        if running.received == running.bytes {
            running.arrived = self.now;
            self.news.push(News::Arrived(flow));
        }
    }

    /// The sender of a flow learned that `payload` bytes more arrived.
    pub(super) fn acknowledged(&mut self, flow: u32, payload: u64) {
        let running = &mut self.flows[flow as usize];
        running.acked += payload;
        if running.acked == running.bytes {
            running.done = self.now;
            self.news.push(News::Done(flow));
        }
    }

    /// The sender of a flow will not get any further.
    pub(super) fn given_up(&mut self, flow: u32) {
        let running = &mut self.flows[flow as usize];
        if !running.failed && running.done == Picos::NEVER {
            running.failed = true;
            self.news.push(News::Failed(flow));
        }
    }
}

/// What congestion control allows a context; zero what it says nothing of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Allowance {
    /// Window, bytes.
    pub(super) window: u64,
    /// Bytes in flight.
    pub(super) in_flight: u64,
    /// Bits a second.
    pub(super) rate: u64,
}

/// A transport, as a host sees it: contexts that the card takes packets from. A context goes by its place
/// in the transport's list.
pub(super) trait Adapter {
    /// Starts flow `index` on its `connection`; false if there is no room for it.
    fn start(&mut self, index: u32, connection: u64, work: &mut Work<'_>) -> bool;

    /// A packet arrived from host `source`.
    fn receive(&mut self, source: u32, header: &PacketHeader, body: &Body, work: &mut Work<'_>);

    /// The receive buffer of this host, of `buffer` bytes, had no room for packets of `lost` bytes.
    fn handle_overflow(&mut self, _lost: u64, _buffer: u64) {}

    /// Nothing waits in it any more.
    fn handle_drained(&mut self) {}

    /// Time passed.
    fn handle_timeout(&mut self, work: &mut Work<'_>);

    /// After any of these: what the transport wants sent or told.
    fn attend(&mut self, work: &mut Work<'_>);

    /// The next packet of a context that is active.
    fn next_packet(
        &mut self,
        now: Time,
        context: u32,
        sizes: Sizes,
        flows: &mut [RunningFlow],
    ) -> Option<(PacketHeader, Body)>;

    /// The next rate packet, which goes before all else that is sent from now on.
    fn next_rate_packet(
        &mut self,
        _now: Time,
        _outbox: &mut Outbox,
        _sizes: Sizes,
    ) -> Option<(PacketHeader, RatePacket)> {
        None
    }

    /// Whether there is one.
    fn has_rate_packet(&self) -> bool {
        false
    }

    /// A rate packet arrived from host `source`.
    fn rated(&mut self, _source: u32, _packet: &RatePacket, _work: &mut Work<'_>) {}

    /// What the card knows of a context.
    fn lane(&mut self, context: u32) -> &mut Lane;

    /// When [`Adapter::handle_timeout`] wants to be called.
    fn poll_timeout(&self) -> Option<Picos>;

    /// What congestion control allows a context now.
    fn allowance(&self, context: u32) -> Allowance;

    /// Acknowledgements and negative ones sent.
    fn answers(&self) -> (u64, u64);

    /// Prefetches the memory of the transport; the value means nothing.
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

/// The transport of a host. All hosts of a simulation have the same kind.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
pub(super) enum Stack {
    /// This project's.
    Squall(Endpoint),
    /// The baseline.
    Roce(Roce),
}

/// Packets that wait in a host that is slower than its link.
#[derive(Debug, Default)]
pub(super) struct IntakeQueue {
    /// When it has taken in all that waits.
    pub(super) taken_in_at: Picos,
    /// Bytes that found no room, and the transport was not told of yet.
    pub(super) lost: u64,
    /// The buffer was full, and has not been empty since, as far as the transport knows.
    full: bool,
}

/// A host.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) port: u32,
    /// When an event will look at the card; others of its events mean nothing.
    pub(super) card_at: Picos,
    /// Until when the card is busy.
    pub(super) busy_until: Picos,
    /// The earliest timer event there is.
    pub(super) wake_at: Picos,
    /// The host's own delay keeps order.
    pub(super) seen_at: Picos,
    pub(super) intake: IntakeQueue,
    outbox: Outbox,
    stack: Stack,
}

/// Hands a call to the transport inside.
macro_rules! each {
    ($of:expr, $stack:ident => $call:expr) => {
        match $of {
            Stack::Squall($stack) => $call,
            Stack::Roce($stack) => $call,
        }
    };
}

impl Host {
    /// Host `number`, which sends by `port`, and whose packets carry `extra`.
    pub(super) fn new(number: u32, port: u32, stack: Stack, extra: Option<Extra>) -> Self {
        Self {
            port,
            card_at: Picos::NEVER,
            busy_until: Picos::ZERO,
            wake_at: Picos::NEVER,
            seen_at: Picos::ZERO,
            intake: IntakeQueue::default(),
            outbox: Outbox::new(number, extra),
            stack,
        }
    }

    /// Prefetches the memory of the transport; the value means nothing.
    pub(super) fn prefetch(&self) -> u64 {
        self.busy_until.0 ^ self.outbox.prefetch() ^ each!(&self.stack, stack => stack.prefetch())
    }

    /// Reads what a packet that arrives with `body`, or else the next one to be sent, will need; the value
    /// means nothing.
    pub(super) fn prefetch_packet(&self, body: Option<&Body>, flows: &[RunningFlow]) -> u64 {
        each!(&self.stack, stack => match (body, self.outbox.turn()) {
            (Some(body), _) => stack.prefetch_packet(body, flows),
            (None, Some(context)) => stack.prefetch_context(context, flows),
            (None, None) => 0,
        })
    }

    /// Starts flow `index` on its `connection`, or says that there is no room for it.
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

    /// A packet arrived from host `source`.
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

    /// With the packet that it sees next, the transport learns of those that its receive buffer, of so many bytes, had no
    /// room for, as from a socket.
    pub(super) fn tell_overflow(&mut self, now: Picos, buffer: u64) {
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

    /// A rate packet arrived from host `source`.
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

    /// Time passed.
    pub(super) fn handle_timeout(
        &mut self,
        now: Picos,
        flows: &mut [RunningFlow],
        news: &mut Vec<News>,
    ) {
        let work = &mut Work { now, flows, news, outbox: &mut self.outbox, telemetry: Hops::NONE };
        each!(&mut self.stack, stack => stack.handle_timeout(work));
    }

    /// After anything happened: what the transport wants sent or told.
    pub(super) fn attend(&mut self, now: Picos, flows: &mut [RunningFlow], news: &mut Vec<News>) {
        let work = &mut Work { now, flows, news, outbox: &mut self.outbox, telemetry: Hops::NONE };
        each!(&mut self.stack, stack => stack.attend(work));
    }

    /// Whether the card has anything to try.
    pub(super) fn eager(&self) -> bool {
        self.outbox.eager() || each!(&self.stack, stack => stack.has_rate_packet())
    }

    /// The next packet for the card: packets without data first; only those when data is `paused`.
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

    /// What the packet that [`Host::next`] gave last carries besides, where anything of the kind is wanted.
    pub(super) fn extra(&self) -> Option<&Extra> {
        self.outbox.extra()
    }

    /// When [`Host::handle_timeout`] wants to be called.
    pub(super) fn poll_timeout(&self) -> Option<Picos> {
        each!(&self.stack, stack => stack.poll_timeout())
    }

    /// What congestion control allows a context.
    pub(super) fn allowance(&self, context: u32) -> Allowance {
        each!(&self.stack, stack => stack.allowance(context))
    }

    /// Acknowledgements and negative ones sent.
    pub(super) fn answers(&self) -> (u64, u64) {
        each!(&self.stack, stack => stack.answers())
    }
}
