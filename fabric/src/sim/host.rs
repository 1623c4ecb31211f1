//! A host: a transport, and the card that pulls packets out of it.

use super::endpoint::Endpoint;
use super::flows::Running;
use super::packet::Body;
use super::roce::Roce;
use crate::Picos;
use crate::model::Head;

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

/// Mixes two numbers into 32 bits.
pub(super) const fn hash(a: u32, b: u32) -> u32 {
    let z = ((a as u64) << 32 | b as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
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
    stack: Stack,
}

/// Hands a call to the transport inside.
macro_rules! each {
    ($host:expr, $stack:ident => $call:expr) => {
        match &mut $host.stack {
            Stack::Squall($stack) => $call,
            Stack::Roce($stack) => $call,
        }
    };
}

impl Host {
    pub(super) fn new(port: u32, stack: Stack) -> Self {
        Self {
            port,
            card_at: Picos::NEVER,
            busy_until: Picos::ZERO,
            wake_at: Picos::NEVER,
            seen_at: Picos::ZERO,
            stack,
        }
    }

    /// Reads what will be needed of it; the value means nothing.
    pub(super) fn glance(&self) -> u64 {
        self.busy_until.0
            ^ match &self.stack {
                Stack::Squall(stack) => stack.glance(),
                Stack::Roce(_) => 0,
            }
    }

    /// Starts flow `index` on its `connection`; false if there is no room for it.
    pub(super) fn start(
        &mut self,
        now: Picos,
        index: u32,
        connection: u64,
        flow: &mut Running,
    ) -> bool {
        each!(self, stack => stack.start(now, index, connection, flow))
    }

    /// A packet arrived from host `source`.
    pub(super) fn receive(
        &mut self,
        now: Picos,
        source: u32,
        head: &Head,
        body: &Body,
        flows: &mut [Running],
        news: &mut Vec<News>,
    ) {
        each!(self, stack => stack.receive(now, source, head, body, flows, news));
    }

    /// After anything happened: what the transport wants sent or told.
    pub(super) fn attend(&mut self, now: Picos, flows: &mut [Running], news: &mut Vec<News>) {
        each!(self, stack => stack.attend(now, flows, news));
    }

    /// Whether the card has anything to try.
    pub(super) fn eager(&mut self) -> bool {
        each!(self, stack => stack.eager())
    }

    /// The next packet for the card: packets without data first; only those when data is `paused`.
    pub(super) fn next(
        &mut self,
        now: Picos,
        sizes: Sizes,
        paused: bool,
        flows: &mut [Running],
    ) -> Option<(Head, Body)> {
        each!(self, stack => stack.next(now, sizes, paused, flows))
    }

    /// When [`Host::handle_timeout`] wants to be called.
    pub(super) fn poll_timeout(&mut self) -> Option<Picos> {
        each!(self, stack => stack.poll_timeout())
    }

    /// Time passed.
    pub(super) fn handle_timeout(&mut self, now: Picos, flows: &mut [Running]) {
        each!(self, stack => stack.handle_timeout(now, flows));
    }

    /// Window and bytes in flight of a flow's context; zero when there are none.
    pub(super) fn window(&self, context: u32) -> (u64, u64) {
        match &self.stack {
            Stack::Squall(stack) => stack.window(context),
            Stack::Roce(stack) => stack.window(context),
        }
    }

    /// Acknowledgements and negative ones sent.
    pub(super) fn answers(&self) -> (u64, u64) {
        match &self.stack {
            Stack::Squall(stack) => stack.answers(),
            Stack::Roce(stack) => stack.answers(),
        }
    }
}
