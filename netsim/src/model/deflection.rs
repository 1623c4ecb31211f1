//! Switches that send short messages round a full queue, each of them in order: in-order flow deflection (IOFD) of Xue et
//! al., "Dart: Divide and Specialize for Fast Response to Congestion in RDMA-based Datacenter Networks", ToN 2020, section IV.
//!
//! The first packet of a message that would join a long queue towards another switch takes a random other way, and the
//! switch remembers that in its deflected-flow table until the last packet has followed. A packet has a few tokens, as many
//! as its message may be deflected times; long messages have none.
//!
//! What the paper leaves open, and what is chosen here:
//!
//! - *A message comes to a switch again*: it is another to the table, which goes by message and tokens. All packets of a
//!   message have as many at a switch, for each deflection takes one of each; so they also take one lane there.
//! - *Virtual lanes*: the paper has two classes, escape and not, and no number of lanes. Here a packet's lane is its number of
//!   tokens. It goes up and then down by one lane; when it is deflected, a link down is still of the lane it came by and one
//!   up already of the next lower. So within a lane nothing goes up behind a link down, no lane waits for itself or for a
//!   higher one, and nothing deadlocks. The lane of no tokens, which long messages have from the start, is the escape lane.
//! - *Random other port*: of those to switches from which there is a way, but the one by which the packet came.
//! - *Entries whose last packet never comes*, because it was lost or its sender died: they are another's when the table is full
//!   and they were not used for a second ([`DeflectionParameters::forget`]), longer than a transport waits for a packet.

use serde::{Deserialize, Serialize};

use super::config::{Ground, NetworkOptions, OptionError, fault};
use super::head::Class;
use super::lane;
use super::program::{Incoming, Note, Place, SwitchProgram, Verdict};
use super::totals::Deflections;
use crate::topology::Node;
use crate::{Bytes, Picos};
use squall_base::Rng;

/// What a packet says of its message to switches that deflect, and what they write into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Message {
    /// Names it, apart from all others under way.
    pub id: u64,
    /// The packet is its first.
    pub first: bool,
    /// The packet is its last.
    pub last: bool,
    /// How often the packet may be deflected yet.
    pub tokens: u8,
    /// Lane of the link that it is on.
    pub lane: u8,
    /// Switches that the packet came to.
    pub switches: u8,
    /// .. and to how many it would come at least.
    pub fewest: u8,
}

/// What the packets of a flow passed, where switches deflect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Journey {
    /// Links, of all packets together.
    pub links: u64,
    /// .. and the fewest that were possible.
    pub fewest: u64,
    /// The same times the bytes of each packet on the wire.
    pub byte_links: u64,
    /// .. and the fewest.
    pub byte_fewest: u64,
    /// Deflections of all packets together.
    pub deflections: u64,
    /// .. of the packet that had most.
    pub most_deflections: u8,
    /// Packets that came after one that was sent later.
    pub late: u64,
}

impl Journey {
    /// A packet of `bytes` on the wire arrived, of a message that began with so many tokens.
    pub fn passed(&mut self, message: &Message, bytes: u32, tokens: u8) {
        // The host's link is one more.
        let (links, fewest) = (u64::from(message.switches) + 1, u64::from(message.fewest) + 1);
        self.links += links;
        self.fewest += fewest;
        self.byte_links += links * u64::from(bytes);
        self.byte_fewest += fewest * u64::from(bytes);
        let deflections = tokens.saturating_sub(message.tokens);
        self.deflections += u64::from(deflections);
        self.most_deflections = self.most_deflections.max(deflections);
    }
}

/// What all switches of a network have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeflectionParameters {
    /// Bytes that wait at a port from which on messages are sent round it.
    pub threshold: u64,
    /// Deflections of a short message at most.
    pub tokens: u8,
    /// Messages that a switch remembers at a time.
    pub entries: u16,
    /// Bytes of the longest message that is deflected.
    pub short: u64,
    /// When an entry that is not used any more may be another's.
    pub forget: Picos,
    /// Seed of the choice of ports.
    pub seed: u64,
}

impl DeflectionParameters {
    /// What comes of the options, where marks begin at `marks` bytes.
    pub(super) fn new(
        options: &NetworkOptions,
        marks: u64,
        ground: &Ground<'_>,
    ) -> Result<Self, OptionError> {
        let given = options.deflection_threshold.map(|bytes| bytes.0);
        let threshold = match given {
            Some(bytes) if bytes >= marks => {
                // Who deflects later than he marks has told the sender first.
                let what = format!("{bytes}, expected less than where marks begin, {marks}");
                return fault("deflection_threshold", what);
            }
            None if marks == u64::MAX => {
                let what = "missing, and there are no marks that it could be a part of";
                return fault("deflection_threshold", what);
            }
            given => given.unwrap_or(marks / 3 * 2),
        };
        Ok(Self {
            threshold,
            tokens: options.deflection_tokens.unwrap_or(4),
            entries: options.deflection_entries.unwrap_or(8),
            short: options.deflection_short.map_or(8 << 10, |bytes| bytes.0),
            // Longer than a transport waits for a packet that pauses hold up.
            forget: Picos::micros(1_000_000),
            seed: ground.seed,
        })
    }

    /// Whether what is said of deflection is in range, and goes with the rest.
    pub(super) fn check(options: &NetworkOptions) -> Result<(), OptionError> {
        if !options.deflection {
            let given = [
                ("deflection_threshold", options.deflection_threshold.is_some()),
                ("deflection_tokens", options.deflection_tokens.is_some()),
                ("deflection_entries", options.deflection_entries.is_some()),
                ("deflection_short", options.deflection_short.is_some()),
            ];
            return match given.iter().find(|(_, given)| *given) {
                Some((key, _)) => fault(key, "expected with `deflection` only"),
                None => Ok(()),
            };
        }
        if options.rates || options.telemetry {
            let what = "expected without `rates` and `telemetry`: a switch has one program";
            return fault("deflection", what);
        }
        if options.adaptive {
            let what = "expected without `adaptive`: the packets of a message take one path";
            return fault("deflection", what);
        }
        if !options.lossless {
            let what = "expected with `lossless`: a message whose last packet is lost keeps its place in the switch";
            return fault("deflection", what);
        }
        let most = lane::MOST - 1;
        if let Some(tokens) =
            options.deflection_tokens.filter(|tokens| !(1..=most).contains(tokens))
        {
            return fault("deflection_tokens", format!("{tokens}, expected 1 to {most}"));
        }
        if let Some(entries) = options.deflection_entries.filter(|n| !(1..=1024).contains(n)) {
            return fault("deflection_entries", format!("{entries}, expected 1 to 1024"));
        }
        if options.deflection_short == Some(Bytes(0)) {
            return fault("deflection_short", "0, expected one byte at least");
        }
        Ok(())
    }

    /// Tokens of the packets of a message of so many bytes.
    #[must_use]
    pub const fn tokens(&self, bytes: u64) -> u8 {
        if bytes <= self.short { self.tokens } else { 0 }
    }
}

/// A message that was deflected here.
#[derive(Clone, Copy, Debug)]
struct Deflected {
    id: u64,
    /// That its packets come with.
    tokens: u8,
    port: u32,
    used: Picos,
}

/// The program of one switch.
#[derive(Clone, Debug)]
pub struct Deflection {
    parameters: DeflectionParameters,
    /// The deflected-flow table.
    table: Vec<Deflected>,
    /// Ports to other switches; found out when they are needed first.
    ports: Option<Vec<u32>>,
    rng: Rng,
}

impl Deflection {
    /// The program of switch `switch`, with an empty table.
    #[must_use]
    pub fn new(parameters: DeflectionParameters, switch: u32) -> Self {
        let seed = parameters.seed ^ u64::from(switch).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            parameters,
            table: Vec::with_capacity(parameters.entries.into()),
            ports: None,
            rng: Rng::new(seed ^ 0x6465_666c_6563_7400),
        }
    }

    /// The port by which a packet follows its message, that was deflected here.
    fn follow(&mut self, now: Picos, message: &Message) -> Option<u32> {
        let of = |entry: &Deflected| (entry.id, entry.tokens) == (message.id, message.tokens);
        let at = self.table.iter().position(of)?;
        self.table[at].used = now;
        let port = self.table[at].port;
        if message.last {
            self.table.swap_remove(at);
        }
        Some(port)
    }

    /// Whether there is room for one more message in the table.
    fn has_room(&mut self, now: Picos) -> bool {
        if self.table.len() < self.parameters.entries.into() {
            return true;
        }
        let forget = self.parameters.forget;
        let old = self.table.iter().position(|entry| now.since(entry.used) > forget);
        old.map(|at| self.table.swap_remove(at)).is_some()
    }

    /// The first packet of a message would leave by `way`: the port by which it goes round it instead.
    fn deflect(
        &mut self,
        place: &Place<'_>,
        (ingress, way, host): (u32, u32, u32),
        message: &Message,
        count: &mut Deflections,
    ) -> Option<u32> {
        let full = message.first
            && message.tokens > 0
            && matches!(place.behind(way), Node::Switch(_))
            && place.waiting(way) > self.parameters.threshold;
        if !full {
            return None;
        }
        // Who has but one packet is not remembered.
        if !message.last && !self.has_room(place.now) {
            count.full += 1;
            return None;
        }
        let ports = self.ports.get_or_insert_with(|| place.network_ports().collect());
        // The other direction of a link is the port beside it.
        let other = |port: &&u32| ![way, ingress ^ 1].contains(port) && place.leads(**port, host);
        let others = ports.iter().filter(other).count() as u32;
        if others == 0 {
            return None;
        }
        let &port = ports.iter().filter(other).nth(self.rng.below(others) as usize)?;
        if !message.last {
            let Message { id, tokens, .. } = *message;
            self.table.push(Deflected { id, tokens, port, used: place.now });
        }
        count.messages += 1;
        Some(port)
    }
}

impl SwitchProgram for Deflection {
    fn ingress(&mut self, place: &Place<'_>, incoming: &mut Incoming<'_>) -> Verdict {
        let Note::Message(message) = incoming.packet.note else {
            return Verdict::Forward(incoming.way);
        };
        let host = incoming.packet.head.dst;
        if message.switches == 0 {
            message.fewest = place.switches_to(host);
        }
        message.switches = message.switches.saturating_add(1);
        message.lane = message.tokens;
        let Some(way) = incoming.way else { return Verdict::Forward(None) };
        // What was trimmed has a queue of its own.
        if incoming.packet.head.class != Class::Data {
            return Verdict::Forward(Some(way));
        }
        let known = self.follow(place.now, message);
        let ways = (incoming.ingress, way, host);
        let other = known.or_else(|| self.deflect(place, ways, message, incoming.deflections));
        if let Some(port) = other {
            message.tokens -= 1;
            incoming.deflections.packets += 1;
            if place.goes_up(port) {
                message.lane = message.tokens;
            }
        }
        Verdict::Forward(other.or(Some(way)))
    }
}

#[cfg(test)]
mod tests;
