//! What waits at a host for its card, whichever transport made it: packets without data first, then the
//! contexts that may have something to send, in turn.

use std::collections::VecDeque;

use super::flows::Running;
use super::host::{Adapter, Sizes};
use super::packet::Body;
use crate::Picos;
use crate::cc::{Hops, IntHop};
use crate::model::{Class, Head};

/// Mixes two numbers into 32 bits.
const fn hash(a: u32, b: u32) -> u32 {
    let z = ((a as u64) << 32 | b as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
}

/// What the card knows of a context: where its packets go, and whether it is its turn some time.
#[derive(Debug)]
pub(super) struct Lane {
    dst: u32,
    /// What switches hash besides the entropy.
    hash: u32,
    /// It is in [`Outbox::active`].
    active: bool,
}

impl Lane {
    /// Connection `connection` from host `src` to host `dst`.
    pub(super) const fn new(src: u32, dst: u32, connection: u32) -> Self {
        Self { dst, hash: hash(hash(src, dst), connection), active: false }
    }

    /// The head of a data packet of `bytes` on the wire.
    pub(super) fn head(&self, entropy: u32, bytes: u32) -> Head {
        let (dst, flow) = (self.dst, self.hash);
        Head { dst, flow, entropy, bytes, class: Class::Data, ..Head::default() }
    }
}

/// Packets without data and contexts that wait for the card of a host.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Number of the host.
    host: u32,
    /// Destination, entropy and packet.
    control: VecDeque<(u32, u32, Body)>,
    /// What each of them sends back of switches' records, where that is wanted.
    echoes: Option<VecDeque<Hops>>,
    /// The same of the packet handed out last.
    echo: Hops,
    /// Contexts that may have something to send, by the adapter's numbers.
    active: VecDeque<u32>,
}

impl Outbox {
    /// Of host `host`, whose acknowledgements send switches' records back if they `echo`.
    pub(super) fn new(host: u32, echo: bool) -> Self {
        Self {
            host,
            control: VecDeque::new(),
            echoes: echo.then(VecDeque::new),
            echo: Hops::default(),
            active: VecDeque::new(),
        }
    }

    /// Number of the host.
    pub(super) const fn host(&self) -> u32 {
        self.host
    }

    /// How much waits; the value means nothing.
    pub(super) fn glance(&self) -> u64 {
        self.active.len() as u64 ^ self.control.len() as u64
    }

    /// The context whose turn it is.
    pub(super) fn turn(&self) -> Option<u32> {
        self.active.front().copied()
    }

    /// A packet without data to host `dst`, which sends back `echo`.
    pub(super) fn answer(&mut self, dst: u32, entropy: u32, body: Body, echo: &[IntHop]) {
        self.control.push_back((dst, entropy, body));
        if let Some(echoes) = &mut self.echoes {
            let mut hops = Hops::default();
            hops.set(echo);
            echoes.push_back(hops);
        }
    }

    /// What the packet that [`Outbox::next`] gave last sends back; `None` where nobody wants it.
    pub(super) fn echo(&self) -> Option<Hops> {
        self.echoes.is_some().then_some(self.echo)
    }

    /// Context `place` may have something to send.
    pub(super) fn activate(&mut self, place: u32, lane: &mut Lane) {
        if !lane.active {
            lane.active = true;
            self.active.push_back(place);
        }
    }

    /// Whether the card has anything to try.
    pub(super) fn eager(&self) -> bool {
        !self.control.is_empty() || !self.active.is_empty()
    }

    /// The next packet for the card; only one without data when data is `paused`.
    pub(super) fn next(
        &mut self,
        contexts: &mut impl Adapter,
        now: Picos,
        sizes: Sizes,
        paused: bool,
        flows: &mut [Running],
    ) -> Option<(Head, Body)> {
        if let Some(echoes) = &mut self.echoes {
            // Data packets send nothing back; of the others there are as many.
            self.echo = echoes.pop_front().unwrap_or_default();
        }
        if let Some((dst, entropy, body)) = self.control.pop_front() {
            if self.control.is_empty() {
                // Begins again where it is in the cache.
                self.control.clear();
            }
            let (flow, bytes) = (hash(self.host, dst), sizes.control);
            let head = Head { dst, flow, entropy, bytes, class: Class::Control, ..Head::default() };
            return Some((head, body));
        }
        if paused {
            return None;
        }
        while let Some(place) = self.active.pop_front() {
            let packet = contexts.pull(now.time(), place, sizes, flows);
            if packet.is_some() {
                self.active.push_back(place);
                return packet;
            }
            contexts.lane(place).active = false;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_and_connections_hash_apart() {
        let of = |src, dst, connection| Lane::new(src, dst, connection).hash;
        assert_ne!(of(1, 2, 3), of(2, 1, 3));
        assert_ne!(of(1, 2, 3), of(1, 2, 4));
        assert_eq!(of(1, 2, 3), of(1, 2, 3));
    }

    #[test]
    fn a_context_waits_once() {
        let (mut outbox, mut lane) = (Outbox::new(0, false), Lane::new(0, 1, 2));
        outbox.activate(7, &mut lane);
        outbox.activate(7, &mut lane);
        assert_eq!(outbox.active, [7]);
    }
}
