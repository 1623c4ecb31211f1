//! Queue between a host's transport and its network card: packets without data come first, then the
//! contexts that may have something to send, in turn.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::flows::RunningFlow;
use super::host::{Adapter, Sizes};
use super::packet::Body;
use crate::Picos;
use crate::model::{Class, MessagePacket, NetworkFeature, PacketHeader, PacketOptions};
use squall_base::Psn;
use squall_cc::{Hops, RatePacket};
use squall_reliability::speculation_of;

/// Hashes two numbers to 32 bits.
const fn hash(a: u32, b: u32) -> u32 {
    let z = ((a as u64) << 32 | b as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
}

/// The card's state of a context: where its packets go, and whether it waits for its turn.
#[derive(Debug)]
pub(super) struct Lane {
    dst: u32,
    /// Hash that stands for the addresses of the connection, which switches hash together with the
    /// entropy.
    hash: u32,
    /// True if the context is in [`Outbox::active`].
    active: bool,
}

impl Lane {
    /// Creates the state of connection `connection` from host `src` to host `dst`.
    pub(super) const fn new(src: u32, dst: u32, connection: u32) -> Self {
        Self { dst, hash: hash(hash(src, dst), connection), active: false }
    }

    /// Returns the header of a rate packet of `bytes` on the wire, which takes the route of data.
    pub(super) fn rate_header(&self, entropy: u32, bytes: u32) -> PacketHeader {
        PacketHeader { class: Class::Rate, ..self.header(entropy, bytes) }
    }

    /// Returns the header of a data packet of `bytes` on the wire.
    pub(super) fn header(&self, entropy: u32, bytes: u32) -> PacketHeader {
        let (dst, flow) = (self.dst, self.hash);
        PacketHeader { dst, flow, entropy, bytes, class: Class::Data, ..PacketHeader::default() }
    }
}

/// Parts of packets, in addition to their bodies, that congestion control or a switch feature
/// needs.
#[derive(Debug)]
pub(super) struct Extra {
    /// Acknowledgements carry the telemetry of data packets back to the sender.
    echo: Option<Echo>,
    /// True if the transport sends rate packets, and sends data before it has a rate.
    rates: bool,
    /// Data packets carry the number of their message.
    messages: Option<Messages>,
    /// Options of the last packet that was handed to the card.
    options: PacketOptions,
}

/// Telemetry that acknowledgements carry back to the sender.
#[derive(Debug, Default)]
struct Echo {
    /// Telemetry of the waiting packets without data, one entry each.
    waiting: VecDeque<Hops>,
    /// Telemetry of the last packet that was handed to the card; empty for data packets.
    last: Hops,
}

/// Writes into packets which message they belong to: each flow is one message.
#[derive(Debug)]
struct Messages {
    features: Vec<Arc<dyn NetworkFeature>>,
    /// The number of each flow's first packet; the numbers of the others follow.
    first: HashMap<u32, Psn>,
}

impl Messages {
    fn write(
        &mut self,
        body: &Body,
        sizes: Sizes,
        flows: &[RunningFlow],
        options: &mut PacketOptions,
    ) {
        let &Body::Data { ref pds, flow, .. } = body else { return };
        let first = *self.first.entry(flow).or_insert(pds.psn);
        let bytes = flows[flow as usize].bytes;
        let nth = u64::from(pds.psn.0.wrapping_sub(first.0));
        let packet = MessagePacket {
            message: flow.into(),
            bytes,
            first: nth == 0,
            last: nth + 1 == bytes.div_ceil(sizes.payload().into()),
        };
        self.features.iter().for_each(|feature| feature.on_send(&packet, options));
    }
}

impl Extra {
    /// Creates what packets carry besides their bodies; `None` if nothing is needed.
    pub(super) fn new(
        echo: bool,
        rates: bool,
        features: &[Arc<dyn NetworkFeature>],
    ) -> Option<Self> {
        let messages = features.iter().filter(|feature| feature.needs().messages);
        let messages: Vec<_> = messages.cloned().collect();
        let messages =
            (!messages.is_empty()).then(|| Messages { features: messages, first: HashMap::new() });
        let any = echo || rates || messages.is_some();
        let echo = echo.then(Echo::default);
        any.then(|| Self { echo, rates, messages, options: PacketOptions::EMPTY })
    }

    /// Returns the options of the last packet that was handed to the card.
    pub(super) const fn options(&self) -> &PacketOptions {
        &self.options
    }

    /// Returns the telemetry that the last packet handed to the card carries back.
    pub(super) fn echo(&self) -> Option<&Hops> {
        self.echo.as_ref().map(|echo| &echo.last)
    }
}

/// Packets without data and contexts that wait for the card of a host.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Number of the host.
    host: u32,
    /// Packets without data that wait: destination, entropy and packet of each.
    control: VecDeque<(u32, u32, Body)>,
    extra: Option<Box<Extra>>,
    /// Contexts that may have something to send, by the transport's numbers.
    active: VecDeque<u32>,
}

impl Outbox {
    /// Creates the queue of host `host`, whose packets carry `extra`.
    pub(super) fn new(host: u32, extra: Option<Extra>) -> Self {
        let extra = extra.map(Box::new);
        Self { host, control: VecDeque::new(), extra, active: VecDeque::new() }
    }

    /// Returns the number of the host.
    pub(super) const fn host(&self) -> u32 {
        self.host
    }

    /// Prefetches the lengths of the queues. The returned value has no meaning.
    pub(super) fn prefetch(&self) -> u64 {
        self.active.len() as u64 ^ self.control.len() as u64
    }

    /// Returns the context whose turn it is.
    pub(super) fn turn(&self) -> Option<u32> {
        self.active.front().copied()
    }

    /// Queues a packet without data to host `dst`, which carries `echo` back.
    pub(super) fn answer(&mut self, dst: u32, entropy: u32, body: Body, echo: &Hops) {
        self.control.push_back((dst, entropy, body));
        if let Some(Extra { echo: Some(queue), .. }) = self.extra.as_deref_mut() {
            queue.waiting.push_back(*echo);
        }
    }

    /// Returns what the last packet of [`Outbox::next`] carries besides its body; `None` if packets
    /// carry nothing else.
    pub(super) fn extra(&self) -> Option<&Extra> {
        self.extra.as_deref()
    }

    /// Returns the header of a rate packet of `bytes` that goes back to host `dst`.
    pub(super) fn header_back(&self, dst: u32, bytes: u32) -> PacketHeader {
        let flow = hash(self.host, dst);
        PacketHeader { dst, flow, bytes, class: Class::Rate, ..PacketHeader::default() }
    }

    /// Queues context `place`, which may have something to send, unless it waits already.
    pub(super) fn activate(&mut self, place: u32, lane: &mut Lane) {
        if !lane.active {
            lane.active = true;
            self.active.push_back(place);
        }
    }

    /// Returns whether a packet without data or a context waits for the card.
    pub(super) fn eager(&self) -> bool {
        !self.control.is_empty() || !self.active.is_empty()
    }

    /// Returns the next packet for the card; only one without data while data is `paused`.
    pub(super) fn next(
        &mut self,
        contexts: &mut impl Adapter,
        now: Picos,
        sizes: Sizes,
        paused: bool,
        flows: &mut [RunningFlow],
    ) -> Option<(PacketHeader, Body)> {
        if self.extra.is_none() {
            return self.next_of_all(contexts, now, sizes, paused, flows);
        }
        self.next_with_options(contexts, now, sizes, paused, flows)
    }

    /// Returns the next packet where packets carry options or telemetry. Rate packets leave before
    /// all others.
    #[cold]
    fn next_with_options(
        &mut self,
        contexts: &mut impl Adapter,
        now: Picos,
        sizes: Sizes,
        paused: bool,
        flows: &mut [RunningFlow],
    ) -> Option<(PacketHeader, Body)> {
        let mut extra = self.extra.take()?;
        extra.options.clear();
        let mut next = if extra.rates { self.next_rate_packet(contexts, now, sizes) } else { None };
        if next.is_none() {
            if let Some(echo) = &mut extra.echo {
                echo.last = echo.waiting.pop_front().unwrap_or_default();
            }
            next =
                self.next_of_all(contexts, now, sizes, paused, flows).map(|packet| (packet, None));
        }
        if next.is_none() && extra.rates {
            // A context that wanted to send may have asked for a rate instead.
            next = self.next_rate_packet(contexts, now, sizes);
        }
        if let Some(((_, body), rate)) = &next {
            if let Some(packet) = rate {
                extra.options.write(packet);
            } else if extra.rates
                && let Body::Data { pds, .. } = body
                && let Some(speculation) = speculation_of(pds)
            {
                extra.options.write(&speculation);
            }
            if let Some(messages) = &mut extra.messages {
                messages.write(body, sizes, flows, &mut extra.options);
            }
        }
        self.extra = Some(extra);
        next.map(|(packet, _)| packet)
    }

    fn next_rate_packet(
        &mut self,
        contexts: &mut impl Adapter,
        now: Picos,
        sizes: Sizes,
    ) -> Option<((PacketHeader, Body), Option<RatePacket>)> {
        let (header, packet) = contexts.next_rate_packet(now.time(), self, sizes)?;
        Some(((header, Body::Rates), Some(packet)))
    }

    fn next_of_all(
        &mut self,
        contexts: &mut impl Adapter,
        now: Picos,
        sizes: Sizes,
        paused: bool,
        flows: &mut [RunningFlow],
    ) -> Option<(PacketHeader, Body)> {
        if let Some((dst, entropy, body)) = self.control.pop_front() {
            if self.control.is_empty() {
                // The queue starts again at the front of its buffer, which is in the cache.
                self.control.clear();
            }
            let (flow, bytes) = (hash(self.host, dst), sizes.control);
            let header = PacketHeader {
                dst,
                flow,
                entropy,
                bytes,
                class: Class::Control,
                ..PacketHeader::default()
            };
            return Some((header, body));
        }
        if paused {
            return None;
        }
        while let Some(place) = self.active.pop_front() {
            let packet = contexts.next_packet(now.time(), place, sizes, flows);
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
        let (mut outbox, mut lane) = (Outbox::new(0, None), Lane::new(0, 1, 2));
        outbox.activate(7, &mut lane);
        outbox.activate(7, &mut lane);
        assert_eq!(outbox.active, [7]);
    }
}
