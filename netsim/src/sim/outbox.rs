//! What waits at a host for its card, whichever transport made it: packets without data first, then the
//! contexts that may have something to send, in turn.

use std::collections::{HashMap, VecDeque};

use super::flows::Running;
use super::host::{Adapter, Sizes};
use super::packet::Body;
use crate::Picos;
use crate::model::{Class, DeflectionParameters, Head, Message, Note};
use squall_base::Psn;
use squall_cc::Hops;
use squall_reliability::speculation_of;

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

    /// The head of a rate packet of `bytes` on the wire, which goes the way of data.
    pub(super) fn rate_head(&self, entropy: u32, bytes: u32) -> Head {
        Head { class: Class::Rate, ..self.head(entropy, bytes) }
    }

    /// The head of a data packet of `bytes` on the wire.
    pub(super) fn head(&self, entropy: u32, bytes: u32) -> Head {
        let (dst, flow) = (self.dst, self.hash);
        Head { dst, flow, entropy, bytes, class: Class::Data, ..Head::default() }
    }
}

/// What packets of a host carry besides their bodies, where congestion control wants anything of the kind.
#[derive(Debug)]
pub(super) enum Extra {
    /// Acknowledgements send switches' records back: of each that waits, and of the packet handed out last.
    Echo {
        /// As many as there are packets without data.
        waiting: VecDeque<Hops>,
        /// Data packets send nothing back.
        last: Hops,
    },
    /// Rate packets, and data that was sent before there was a rate: of the packet handed out last.
    Rates(Note),
    /// Which packet of which message each is, for switches that deflect.
    Messages(Messages),
}

/// Says of packets which message they are of: a flow is one.
#[derive(Debug)]
pub(super) struct Messages {
    parameters: DeflectionParameters,
    /// The number of each flow's first packet; those behind it follow.
    first: HashMap<u32, Psn>,
    /// Of the packet handed out last.
    note: Note,
}

impl Messages {
    /// What a packet of a flow says; others say nothing.
    fn note_of(&mut self, body: &Body, sizes: Sizes, flows: &[Running]) -> Note {
        let &Body::Data { ref pds, flow, .. } = body else { return Note::default() };
        let first = *self.first.entry(flow).or_insert(pds.psn);
        let bytes = flows[flow as usize].bytes;
        let nth = u64::from(pds.psn.0.wrapping_sub(first.0));
        Note::Message(Message {
            id: flow.into(),
            first: nth == 0,
            last: nth + 1 == bytes.div_ceil(sizes.payload().into()),
            tokens: self.parameters.tokens(bytes),
            ..Message::default()
        })
    }
}

impl Extra {
    /// Records that are sent back.
    pub(super) fn echo() -> Self {
        Self::Echo { waiting: VecDeque::new(), last: Hops::default() }
    }

    /// Marks of messages for switches that deflect.
    pub(super) fn messages(parameters: DeflectionParameters) -> Self {
        Self::Messages(Messages { parameters, first: HashMap::new(), note: Note::default() })
    }

    /// What switch programs read of the packet handed out last.
    pub(super) const fn note(&self) -> Option<&Note> {
        match self {
            Self::Echo { .. } => None,
            Self::Rates(note) | Self::Messages(Messages { note, .. }) => Some(note),
        }
    }
}

/// Packets without data and contexts that wait for the card of a host.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Number of the host.
    host: u32,
    /// Destination, entropy and packet.
    control: VecDeque<(u32, u32, Body)>,
    extra: Option<Box<Extra>>,
    /// Contexts that may have something to send, by the adapter's numbers.
    active: VecDeque<u32>,
}

impl Outbox {
    /// Of host `host`, whose packets carry `extra`.
    pub(super) fn new(host: u32, extra: Option<Extra>) -> Self {
        let extra = extra.map(Box::new);
        Self { host, control: VecDeque::new(), extra, active: VecDeque::new() }
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
    pub(super) fn answer(&mut self, dst: u32, entropy: u32, body: Body, echo: &Hops) {
        self.control.push_back((dst, entropy, body));
        if let Some(Extra::Echo { waiting, .. }) = self.extra.as_deref_mut() {
            waiting.push_back(*echo);
        }
    }

    /// What the packet that [`Outbox::next`] gave last carries besides; `None` where nobody wants anything.
    pub(super) fn extra(&self) -> Option<&Extra> {
        self.extra.as_deref()
    }

    /// The head of a rate packet of `bytes` that goes back to host `dst`.
    pub(super) fn head_back(&self, dst: u32, bytes: u32) -> Head {
        let flow = hash(self.host, dst);
        Head { dst, flow, bytes, class: Class::Rate, ..Head::default() }
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
        match self.extra.as_deref_mut() {
            None => {}
            Some(Extra::Echo { waiting, last }) => *last = waiting.pop_front().unwrap_or_default(),
            Some(Extra::Rates(_)) => return self.next_rated(contexts, now, sizes, paused, flows),
            Some(Extra::Messages(_)) => {
                return self.next_message(contexts, now, sizes, paused, flows);
            }
        }
        self.next_of_all(contexts, now, sizes, paused, flows)
    }

    /// The same, where packets say which message they are of.
    #[cold]
    fn next_message(
        &mut self,
        contexts: &mut impl Adapter,
        now: Picos,
        sizes: Sizes,
        paused: bool,
        flows: &mut [Running],
    ) -> Option<(Head, Body)> {
        let packet = self.next_of_all(contexts, now, sizes, paused, flows)?;
        if let Some(Extra::Messages(messages)) = self.extra.as_deref_mut() {
            messages.note = messages.note_of(&packet.1, sizes, flows);
        }
        Some(packet)
    }

    /// The same, where rate packets come before all others.
    #[cold]
    fn next_rated(
        &mut self,
        contexts: &mut impl Adapter,
        now: Picos,
        sizes: Sizes,
        paused: bool,
        flows: &mut [Running],
    ) -> Option<(Head, Body)> {
        let (head, body, note) = match contexts.next_rate_packet(now.time(), self, sizes) {
            Some((head, packet)) => (head, Body::Rates, Note::Rates(packet)),
            None => match self.next_of_all(contexts, now, sizes, paused, flows) {
                Some((head, body)) => (head, body, note_of(&body)),
                // Who wanted to send may have asked for a rate instead.
                None => {
                    let (head, packet) = contexts.next_rate_packet(now.time(), self, sizes)?;
                    (head, Body::Rates, Note::Rates(packet))
                }
            },
        };
        if let Some(Extra::Rates(last)) = self.extra.as_deref_mut() {
            *last = note;
        }
        Some((head, body))
    }

    fn next_of_all(
        &mut self,
        contexts: &mut impl Adapter,
        now: Picos,
        sizes: Sizes,
        paused: bool,
        flows: &mut [Running],
    ) -> Option<(Head, Body)> {
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

/// What a packet with such a body says to switches.
fn note_of(body: &Body) -> Note {
    match body {
        Body::Data { pds, .. } => speculation_of(pds).map_or(Note::default(), Note::Speculation),
        _ => Note::default(),
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
