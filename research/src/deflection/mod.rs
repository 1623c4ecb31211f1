//! In-order flow deflection (IOFD): switches send short messages around a full queue and keep their
//! packets in order. Source: Xue et al., "Dart: Divide and Specialize for Fast Response to
//! Congestion in RDMA-based Datacenter Networks", ToN 2020, section IV.
//!
//! When the first packet of a message would join a long queue towards another switch, the switch
//! sends it by another port, which it chooses at random, and stores that port in its deflected-flow
//! table until the last packet of the message has followed. Each deflection costs a packet one of
//! its few tokens; packets of long messages have none.
//!
//! The paper leaves open, and this feature chooses:
//!
//! - *A message returns to a switch*: it counts as a different message, because the switch looks up
//!   both message and tokens in its table. All packets of a message have the same tokens at a
//!   switch, since each deflection takes one from each of them, so they also use the same lane there.
//! - *Virtual lanes*: the paper has two classes, escape and not, and gives no number of lanes. Here
//!   a packet's lane is its number of tokens. A packet goes up and then down on one lane; when it
//!   is deflected, a link down still has the lane on which the packet came and a link up the next
//!   lower lane. Within a lane no packet goes up after it went down, and no lane waits for itself or
//!   a higher one, so nothing deadlocks. The lane of packets without tokens is the escape lane.
//! - *The random port* leads to a switch from which there is a route to the destination, and is not
//!   the port by which the packet came.
//! - *An entry whose last packet never comes*, because it was lost or its sender died, may be
//!   replaced when the table is full and the entry was not used for a second
//!   ([`DeflectionParameters::forget`]), longer than a transport waits for a packet.

use std::sync::Arc;

use squall_base::Rng;
use squall_netsim::Picos;
use squall_netsim::model::{
    Class, Decoder, Encoder, FeatureArguments, FeatureContext, FeatureMetric, FeatureParameter,
    HostSupport, IncomingPacket, MOST_LANES, MessagePacket, NetworkFeature, NetworkOptions,
    PacketOption, PacketOptions, Place, ReceivedPacket, SwitchFeature, SwitchProgram, Verdict,
};
use squall_netsim::output::Run;
use squall_netsim::topology::Node;

/// The switch feature "deflection", as users choose it by name.
#[derive(Debug)]
pub struct Deflection;

/// Parameters of flow deflection as the user sets them, with their defaults.
struct Parameters {
    threshold: Option<u64>,
    tokens: u8,
    entries: u16,
    short: u64,
}

impl Parameters {
    fn parse(given: &FeatureArguments<'_>) -> Result<Self, String> {
        Ok(Self {
            threshold: given.bytes("threshold")?,
            tokens: given.number("tokens", 1..=MOST_LANES - 1)?.unwrap_or(4),
            entries: given.number("entries", 1..=1024)?.unwrap_or(8),
            short: given.bytes("short")?.unwrap_or(8 << 10),
        })
    }
}

impl SwitchFeature for Deflection {
    fn name(&self) -> &'static str {
        "deflection"
    }

    fn help(&self) -> &'static str {
        "Switches send short messages around a full queue and keep each of them in order (IOFD: Dart, section IV); needs `lossless`"
    }

    fn parameters(&self) -> &'static [FeatureParameter] {
        &[
            FeatureParameter {
                name: "threshold",
                value: "BYTES",
                help: "bytes in a port's queue from which on messages are sent around it (default two thirds of where marks \
                       begin)",
            },
            FeatureParameter {
                name: "tokens",
                value: "TIMES",
                help: "how often a message is deflected at most, 1 to 7 (default 4)",
            },
            FeatureParameter {
                name: "entries",
                value: "MESSAGES",
                help: "messages that a switch remembers at a time, 1 to 1024 (default 8)",
            },
            FeatureParameter {
                name: "short",
                value: "BYTES",
                help: "longest message that is deflected (default 8 KiB)",
            },
        ]
    }

    fn metrics(&self) -> &'static [FeatureMetric] {
        METRICS
    }

    fn check(&self, given: &FeatureArguments<'_>, options: &NetworkOptions) -> Result<(), String> {
        Parameters::parse(given)?;
        if options.adaptive {
            return Err(
                "use it without `adaptive`: the packets of a message must take one path".into()
            );
        }
        if !options.lossless {
            return Err("use it with `lossless`: a message whose last packet is lost would stay in the switch's table".into());
        }
        Ok(())
    }

    fn build(
        &self,
        given: &FeatureArguments<'_>,
        context: &FeatureContext<'_>,
    ) -> Result<Arc<dyn NetworkFeature>, String> {
        let Parameters { threshold, tokens, entries, short } = Parameters::parse(given)?;
        let marks = context.marks_from;
        let threshold = match threshold {
            // A switch that deflects later than it marks has slowed the sender already.
            Some(bytes) if bytes >= marks => {
                return Err(format!(
                    "threshold {bytes} is too large: give less than where marks begin, {marks}"
                ));
            }
            None if marks == u64::MAX => {
                return Err(
                    "threshold has no default, because there are no marks; give threshold=BYTES"
                        .into(),
                );
            }
            given => given.unwrap_or(marks / 3 * 2),
        };
        // A transport does not wait longer than this for a packet that pauses delay.
        let forget = Picos::micros(1_000_000);
        let seed = context.ground.seed;
        Ok(Arc::new(DeflectionParameters { threshold, tokens, entries, short, forget, seed }))
    }
}

/// The parameters of flow deflection, which all switches of a network share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeflectionParameters {
    /// Bytes in a port's queue beyond which messages are deflected to another port.
    pub threshold: u64,
    /// Largest number of times that a packet of a short message may be deflected.
    pub tokens: u8,
    /// Largest number of deflected messages that a switch remembers at a time.
    pub entries: u16,
    /// Length in bytes of the longest message that is deflected.
    pub short: u64,
    /// Time for which an entry of the deflected-flow table must be unused before another message
    /// may replace it.
    pub forget: Picos,
    /// Seed of the random choice of ports for deflected messages.
    pub seed: u64,
}

impl DeflectionParameters {
    /// Returns how often each packet of a message of `bytes` bytes may be deflected.
    #[must_use]
    pub const fn tokens(&self, bytes: u64) -> u8 {
        if bytes <= self.short { self.tokens } else { 0 }
    }
}

/// Indices of the deflection counters in [`NetworkFeature::counters`].
const PACKETS: usize = 0;
const MESSAGES: usize = 1;
const TABLE_FULL: usize = 2;

impl NetworkFeature for DeflectionParameters {
    fn name(&self) -> &'static str {
        Deflection.name()
    }

    fn program(&self, switch: u32) -> Option<Box<dyn SwitchProgram>> {
        Some(Box::new(DeflectionProgram::new(*self, switch)))
    }

    fn lanes(&self) -> u8 {
        self.tokens + 1
    }

    fn needs(&self) -> HostSupport {
        HostSupport { messages: true, ..HostSupport::default() }
    }

    fn counters(&self) -> &'static [&'static str] {
        &["packets", "messages", "table_full"]
    }

    fn flow_counters(&self) -> &'static [&'static str] {
        &[
            "links",
            "fewest_links",
            "byte_links",
            "fewest_byte_links",
            "deflections",
            "most_deflections",
            "late",
        ]
    }

    fn on_send(&self, packet: &MessagePacket, options: &mut PacketOptions) {
        let &MessagePacket { message, bytes, first, last } = packet;
        let tokens = self.tokens(bytes);
        let header =
            DeflectionHeader { message, first, last, tokens, ..DeflectionHeader::default() };
        // The write cannot fail: the area has room for all options of netsim and this one.
        let _ = options.write(&header);
    }

    fn on_receive(&self, packet: &ReceivedPacket<'_>, counters: &mut [u64]) {
        let Some(header) = packet.options.read::<DeflectionHeader>() else { return };
        let [links, fewest, byte_links, byte_fewest, deflections, most, late] = counters else {
            return;
        };
        // The number of links is one more than that of switches, because of the host's link.
        let passed = (u64::from(header.switches) + 1, u64::from(header.fewest) + 1);
        *links += passed.0;
        *fewest += passed.1;
        *byte_links += passed.0 * u64::from(packet.bytes);
        *byte_fewest += passed.1 * u64::from(packet.bytes);
        let deflected = u64::from(self.tokens(packet.message_bytes).saturating_sub(header.tokens));
        *deflections += deflected;
        *most = deflected.max(*most);
        *late += u64::from(packet.late);
    }
}

/// Returns the sum of a deflection counter over all flows; `None` if no flow has the counter.
fn sum(run: &Run, counter: &str) -> Option<f64> {
    let name = format!("deflection.{counter}");
    let counts = run.flows.iter().filter_map(|flow| flow.features.get(&name));
    counts.copied().reduce(|a, b| a + b).map(|sum| sum as f64)
}

/// Returns the excess of the sum of one counter over that of another, as a share of the latter.
fn excess(run: &Run, counter: &str, least: &str) -> Option<f64> {
    let (count, least) = (sum(run, counter)?, sum(run, least)?);
    (least > 0.0).then(|| (count - least) / least)
}

const METRICS: &[FeatureMetric] = &[
    FeatureMetric {
        name: "dilation",
        unit: "",
        help: "links that packets passed beyond the fewest, over those; where switches deflect",
        compute: |run| excess(run, "links", "fewest_links"),
    },
    FeatureMetric {
        name: "load_increase",
        unit: "",
        help: "bytes on links beyond those on the fewest links, over those; where switches deflect",
        compute: |run| excess(run, "byte_links", "fewest_byte_links"),
    },
    FeatureMetric {
        name: "deflections",
        unit: "",
        help: "deflections of packets, each switch counts; where switches deflect",
        compute: |run| sum(run, "deflections"),
    },
    FeatureMetric {
        name: "most_deflections",
        unit: "",
        help: "most deflections of a packet; where switches deflect",
        compute: |run| {
            let of = |flow: &squall_netsim::output::FlowResult| {
                flow.features.get("deflection.most_deflections").copied()
            };
            run.flows.iter().filter_map(of).max().map(|most| most as f64)
        },
    },
    FeatureMetric {
        name: "reordered",
        unit: "",
        help: "packets that arrived after one of their message that was sent later; where switches deflect",
        compute: |run| sum(run, "late"),
    },
    FeatureMetric {
        name: "table_full",
        unit: "",
        help: "messages not deflected because a switch's table was full",
        compute: |run| Some(run.features.get("deflection.table_full").copied().unwrap_or(0) as f64),
    },
];

/// The option of data packets: it describes the packet's message to switches, and switches write
/// into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeflectionHeader {
    /// Identifies the message among all that are in the network.
    pub message: u64,
    /// The packet is the first of its message.
    pub first: bool,
    /// The packet is the last of its message.
    pub last: bool,
    /// The number of times that the packet may still be deflected.
    pub tokens: u8,
    /// Number of switches that the packet has passed.
    pub switches: u8,
    /// Number of switches on the shortest route from the first switch to the destination.
    pub fewest: u8,
}

impl PacketOption for DeflectionHeader {
    const KIND: u8 = 32;
    const LEN: usize = 12;

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u64(self.message);
        to.u8(u8::from(self.first) | u8::from(self.last) << 1);
        to.u8(self.tokens);
        to.u8(self.switches);
        to.u8(self.fewest);
    }

    fn decode(from: &mut Decoder<'_>) -> Self {
        let (message, flags) = (from.u64(), from.u8());
        let (first, last) = (flags & 1 != 0, flags & 2 != 0);
        Self { message, first, last, tokens: from.u8(), switches: from.u8(), fewest: from.u8() }
    }
}

/// A deflected message that a switch remembers: an entry of the deflected-flow table.
#[derive(Clone, Copy, Debug)]
struct TableEntry {
    message: u64,
    /// Tokens with which the packets of the message arrive at this switch: deflections left to
    /// them.
    tokens: u8,
    port: u32,
    used: Picos,
}

/// The deflection program that runs in one switch.
#[derive(Clone, Debug)]
pub struct DeflectionProgram {
    parameters: DeflectionParameters,
    /// The deflected-flow table: the messages that this switch deflected, with their ports.
    table: Vec<TableEntry>,
    /// Ports that lead to other switches; looked up when they are first needed.
    ports: Option<Vec<u32>>,
    rng: Rng,
}

impl DeflectionProgram {
    /// Creates the program of switch `switch`, with an empty table.
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

    /// Returns the port by which a packet follows its message, if this switch deflected the
    /// message.
    fn deflected_port(&mut self, now: Picos, header: &DeflectionHeader) -> Option<u32> {
        let key = (header.message, header.tokens);
        let at = self.table.iter().position(|entry| (entry.message, entry.tokens) == key)?;
        self.table[at].used = now;
        let port = self.table[at].port;
        if header.last {
            self.table.swap_remove(at);
        }
        Some(port)
    }

    /// Makes room for one more message in the deflected-flow table; returns false if it is full.
    fn make_room(&mut self, now: Picos) -> bool {
        if self.table.len() < self.parameters.entries.into() {
            return true;
        }
        let forget = self.parameters.forget;
        let old = self.table.iter().position(|entry| now.since(entry.used) > forget);
        old.map(|at| self.table.swap_remove(at)).is_some()
    }

    /// Returns the port by which the first packet of a message leaves instead of by `route`, if it
    /// is deflected.
    fn deflect(
        &mut self,
        place: &Place<'_>,
        (ingress, route, host): (u32, u32, u32),
        header: &DeflectionHeader,
        counters: &mut [u64],
    ) -> Option<u32> {
        let full = header.first
            && header.tokens > 0
            && matches!(place.behind(route), Node::Switch(_))
            && place.waiting(route) > self.parameters.threshold;
        if !full {
            return None;
        }
        // A message of one packet needs no entry.
        if !header.last && !self.make_room(place.now) {
            counters[TABLE_FULL] += 1;
            return None;
        }
        let ports = self.ports.get_or_insert_with(|| place.network_ports().collect());
        // The other direction of a link is the port beside it.
        let other = |port: &&u32| ![route, ingress ^ 1].contains(port) && place.leads(**port, host);
        let others = ports.iter().filter(other).count() as u32;
        if others == 0 {
            return None;
        }
        let &port = ports.iter().filter(other).nth(self.rng.below(others) as usize)?;
        if !header.last {
            let DeflectionHeader { message, tokens, .. } = *header;
            self.table.push(TableEntry { message, tokens, port, used: place.now });
        }
        counters[MESSAGES] += 1;
        Some(port)
    }

    /// Decides by which port a packet leaves the switch, and writes the packet's header and lane.
    fn pass(
        &mut self,
        place: &Place<'_>,
        incoming: &mut IncomingPacket<'_>,
        header: &mut DeflectionHeader,
    ) -> Option<u32> {
        let host = incoming.packet.header.dst;
        if header.switches == 0 {
            header.fewest = place.switches_to(host);
        }
        header.switches = header.switches.saturating_add(1);
        incoming.packet.options.lane = header.tokens;
        let route = incoming.route?;
        // Trimmed packets have a queue of their own.
        if incoming.packet.header.class != Class::Data {
            return Some(route);
        }
        let known = self.deflected_port(place.now, header);
        let ways = (incoming.ingress, route, host);
        let other = known.or_else(|| self.deflect(place, ways, header, incoming.counters));
        if let Some(port) = other {
            header.tokens -= 1;
            incoming.counters[PACKETS] += 1;
            if place.goes_up(port) {
                incoming.packet.options.lane = header.tokens;
            }
        }
        Some(other.unwrap_or(route))
    }
}

impl SwitchProgram for DeflectionProgram {
    fn ingress(&mut self, place: &Place<'_>, incoming: &mut IncomingPacket<'_>) -> Verdict {
        let Some(mut header) = incoming.packet.options.read::<DeflectionHeader>() else {
            return Verdict::Forward(incoming.route);
        };
        let route = self.pass(place, incoming, &mut header);
        let _ = incoming.packet.options.write(&header);
        Verdict::Forward(route)
    }
}

#[cfg(test)]
mod tests;
