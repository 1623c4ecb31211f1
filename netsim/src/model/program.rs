//! Programs of switches: one trait, whose implementations run in the switches of the simulator and
//! of the emulator.
//!
//! A program holds the state of one switch for one feature. The network calls it when a packet
//! arrives, when a packet leaves a queue, and at the time that the program asked for. It sees the
//! ports of its switch, may write into the packet's [`PacketOptions`], and returns a [`Verdict`]. A
//! switch may have several programs: each sees the port that the ones before it chose, and the
//! first verdict other than [`Verdict::Forward`] is final.

use core::fmt;
use core::ops::Range;

use super::feature::{FEATURE_COUNTERS, FeatureCounters};
use super::header::PacketHeader;
use super::packet_options::PacketOptions;
use super::switches::Switches;
use super::totals::TelemetryTotals;
use crate::Picos;
use crate::topology::Node;
use squall_base::Rate;

/// Decision of a program about a packet that came in. Ports are those of
/// [`crate::topology::Topology`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The packet leaves by this port, which must be one of the switch's; `None` means that there
    /// is no route.
    Forward(Option<u32>),
    /// The switch drops the packet, and counts it as dropped by a program.
    Drop,
    /// The packet leaves by this port without its payload, as if it had met a full queue. Where the
    /// network does not trim, it is dropped.
    Trim(u32),
    /// Copies of the packet leave by each of the ports in [`IncomingPacket::copies`].
    Replicate,
    /// The packet was for the switch itself and ends there.
    Consume,
}

/// A packet at a switch, as a program sees it.
#[derive(Debug)]
pub struct Packet<'a> {
    /// The header that switches read. A program may change every field; when the packet leaves,
    /// however, it may not change length and class.
    pub header: &'a mut PacketHeader,
    /// The options of the packet, which programs read and write.
    pub options: &'a mut PacketOptions,
}

/// Time and switch at which a program is called.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The current time; all switches have one clock.
    pub now: Picos,
    /// Number of the switch.
    pub switch: u32,
    switches: &'a Switches<u32>,
}

impl<'a> Place<'a> {
    /// Creates a place at switch `switch`.
    #[must_use]
    pub const fn new(now: Picos, switch: u32, switches: &'a Switches<u32>) -> Self {
        Self { now, switch, switches }
    }

    /// Returns the ports of equally short routes towards a host.
    #[must_use]
    pub fn ports_to(&self, host: u32) -> &'a [u32] {
        self.switches.routes().ports(self.switch, host)
    }

    /// Returns the ports of the switch that lead to other switches.
    pub fn network_ports(&self) -> impl Iterator<Item = u32> + use<'a> {
        let (switches, switch) = (self.switches, self.switch);
        (0..switches.len()).filter(move |&port| {
            let to = switches.topology().to(port);
            switches.leads_from(port, switch) && matches!(to, Node::Switch(_))
        })
    }

    /// Returns the number of switches that a packet passes on its route from here to a host, this
    /// one included.
    #[must_use]
    pub fn switches_to(&self, host: u32) -> u8 {
        let (mut at, mut count) = (self.switch, 1u8);
        // Each switch is nearer to the host than the one before, so the loop ends.
        while let Some(&port) = self.switches.routes().ports(at, host).first()
            && let Node::Switch(next) = self.switches.behind(port)
        {
            (at, count) = (next, count.saturating_add(1));
        }
        count
    }

    /// Returns whether a port leads to a switch from which there is a route to a host, by a link
    /// that routing treats as up.
    #[must_use]
    pub fn leads(&self, port: u32, host: u32) -> bool {
        match self.behind(port) {
            Node::Switch(next) => {
                let routes = self.switches.routes();
                self.switches.is_assumed_up(port) && !routes.ports(next, host).is_empty()
            }
            Node::Host(_) => false,
        }
    }

    /// Returns whether a port leads to a higher tier, away from the hosts.
    #[must_use]
    pub fn goes_up(&self, port: u32) -> bool {
        let tier = |switch: u32| self.switches.topology().switches[switch as usize].tier;
        match self.behind(port) {
            Node::Switch(next) => tier(next) > tier(self.switch),
            Node::Host(_) => false,
        }
    }

    /// Returns the node at this end of a port's link: the sender of packets that came in by it.
    #[must_use]
    pub fn before(&self, port: u32) -> Node {
        self.switches.topology().from(port)
    }

    /// Returns the node at the other end of a port's link.
    #[must_use]
    pub fn behind(&self, port: u32) -> Node {
        self.switches.behind(port)
    }

    /// Returns the data bytes that wait at a port, without those on the wire.
    #[must_use]
    pub fn waiting(&self, port: u32) -> u64 {
        self.switches.port(port).waiting()
    }

    /// Returns the number of bytes that left by a port since the beginning.
    #[must_use]
    pub fn sent(&self, port: u32) -> u64 {
        self.switches.port(port).counters().bytes
    }

    /// Returns the rate of a port's link, in bits per second.
    #[must_use]
    pub fn rate(&self, port: u32) -> Rate {
        self.switches.port(port).config().rate
    }
}

/// A packet that arrived at a switch, and the port that routing chose.
#[derive(Debug)]
pub struct IncomingPacket<'a> {
    /// The port of the upstream node by which the packet left.
    pub ingress: u32,
    /// The port by which routing would let the packet leave, if there is a route.
    pub route: Option<u32>,
    /// The packet, with its header and options.
    pub packet: Packet<'a>,
    /// Empty on entry; the program adds the ports of [`Verdict::Replicate`].
    pub copies: &'a mut Vec<u32>,
    /// Number of options that programs ignored because their content was invalid; a program adds
    /// its own.
    pub ignored: &'a mut u64,
    /// Counters of the program's feature, in the order of [`super::NetworkFeature::counters`]; a
    /// program adds its own.
    pub counters: &'a mut [u64],
}

/// A switch program: what the switch does beyond queueing, marking and trimming. An implementation
/// must not allocate memory for each packet.
pub trait SwitchProgram: fmt::Debug + Send {
    /// Handles a packet that came in, and returns what becomes of it.
    fn ingress(&mut self, place: &Place<'_>, incoming: &mut IncomingPacket<'_>) -> Verdict {
        let _ = place;
        Verdict::Forward(incoming.route)
    }

    /// Handles a packet that leaves by `port`: its first bit is on the wire, and it no longer waits
    /// in the queue.
    fn dequeue(&mut self, place: &Place<'_>, port: u32, packet: &mut Packet<'_>) {
        let _ = (place, port, packet);
    }

    /// Handles the timer: the time that [`SwitchProgram::poll_timeout`] returned has come.
    fn timer(&mut self, place: &Place<'_>) {
        let _ = place;
    }

    /// Returns the time of the next call of [`SwitchProgram::timer`]. The network asks after each
    /// other call.
    fn poll_timeout(&self) -> Option<Picos> {
        None
    }
}

/// A switch program of a feature, and the range of the feature's counters.
#[derive(Debug)]
pub(super) struct FeatureProgram {
    pub(super) program: Box<dyn SwitchProgram>,
    pub(super) counters: Range<usize>,
}

impl FeatureProgram {
    /// Wraps a program that belongs to no feature of the configuration; it may use all counters.
    pub(super) fn without_feature(program: Box<dyn SwitchProgram>) -> Self {
        Self { program, counters: 0..FEATURE_COUNTERS }
    }
}

/// The programs of one switch.
#[derive(Debug)]
struct SwitchPrograms {
    programs: Vec<FeatureProgram>,
    /// Time of the earliest timer event of the switch that is in the network's event queue.
    armed: Picos,
}

/// The programs of a network's switches, and the options of the packets in flight.
#[derive(Debug)]
pub(super) struct Programs {
    /// The programs of each switch, by switch number.
    switches: Vec<SwitchPrograms>,
    /// The options of each packet, by packet number.
    options: Vec<PacketOptions>,
    copies: Vec<u32>,
    ignored: u64,
    counters: FeatureCounters,
}

impl Programs {
    /// Loads the programs of each switch; `None` if no switch has one.
    pub(super) fn load(
        switches: u32,
        programs: impl Fn(u32) -> Vec<FeatureProgram>,
    ) -> Option<Self> {
        let switches: Vec<SwitchPrograms> = (0..switches)
            .map(|at| SwitchPrograms { programs: programs(at), armed: Picos::NEVER })
            .collect();
        let any = switches.iter().any(|switch| !switch.programs.is_empty());
        any.then(|| Self {
            switches,
            options: Vec::new(),
            copies: Vec::new(),
            ignored: 0,
            counters: FeatureCounters::default(),
        })
    }

    /// Gives a new packet its options: a copy of those of packet `of`, or none.
    #[cold]
    #[inline(never)]
    pub(super) fn make(&mut self, packet: u32, of: Option<u32>) {
        let packet = packet as usize;
        if packet >= self.options.len() {
            // Packet numbers have no gaps, so a new number is the next one.
            self.options.push(PacketOptions::EMPTY);
        }
        match of {
            None => self.options[packet].clear(),
            Some(other) => {
                let options = self.options[other as usize];
                self.options[packet].copy_from(&options);
            }
        }
    }

    /// Counts the telemetry and rates of a packet that arrived.
    #[cold]
    #[inline(never)]
    pub(super) fn count(&self, packet: u32, totals: &mut TelemetryTotals) {
        totals.add(self.options(packet));
    }

    /// Sets the options of a new packet to a copy of `options`.
    pub(super) fn set(&mut self, packet: u32, options: &PacketOptions) {
        self.options[packet as usize].copy_from(options);
    }

    /// Returns the number of packet options that programs ignored because their content was
    /// invalid.
    pub(super) const fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Returns the counters of the features of all switches together.
    pub(super) const fn counters(&self) -> FeatureCounters {
        self.counters
    }

    /// Returns the options of a packet.
    pub(super) fn options(&self, packet: u32) -> &PacketOptions {
        &self.options[packet as usize]
    }

    /// Asks the programs of the switch what becomes of `packet`. After [`Verdict::Replicate`],
    /// [`Programs::next_copy`] returns the ports.
    pub(super) fn ingress(
        &mut self,
        place: &Place<'_>,
        (ingress, mut route): (u32, Option<u32>),
        packet: u32,
        header: &mut PacketHeader,
    ) -> Verdict {
        self.copies.clear();
        for loaded in &mut self.switches[place.switch as usize].programs {
            let packet = Packet { header, options: &mut self.options[packet as usize] };
            let (copies, ignored) = (&mut self.copies, &mut self.ignored);
            let counters = self.counters.get_mut(loaded.counters.clone()).unwrap_or_default();
            let mut incoming = IncomingPacket { ingress, route, packet, copies, ignored, counters };
            match loaded.program.ingress(place, &mut incoming) {
                Verdict::Forward(next) => route = next,
                verdict => return verdict,
            }
        }
        Verdict::Forward(route)
    }

    /// Returns the next port to which a packet is copied after [`Verdict::Replicate`]; `None` after
    /// the last one.
    pub(super) fn next_copy(&mut self) -> Option<u32> {
        self.copies.pop()
    }

    /// Notifies the programs of the switch that `packet` leaves by `port`.
    pub(super) fn dequeue(
        &mut self,
        place: &Place<'_>,
        port: u32,
        packet: u32,
        header: &mut PacketHeader,
    ) {
        for loaded in &mut self.switches[place.switch as usize].programs {
            let mut packet = Packet { header, options: &mut self.options[packet as usize] };
            loaded.program.dequeue(place, port, &mut packet);
        }
    }

    /// Handles a timer event of the switch.
    pub(super) fn timer(&mut self, place: &Place<'_>) {
        let switch = &mut self.switches[place.switch as usize];
        // An earlier event replaced the one that has another time.
        if switch.armed != place.now {
            return;
        }
        switch.armed = Picos::NEVER;
        for loaded in &mut switch.programs {
            if loaded.program.poll_timeout().is_some_and(|at| at <= place.now) {
                loaded.program.timer(place);
            }
        }
    }

    /// Returns the time for which the network must schedule a timer event of `switch`; `None` if
    /// there is one already.
    pub(super) fn arm(&mut self, now: Picos, switch: u32) -> Option<Picos> {
        let switch = &mut self.switches[switch as usize];
        let next =
            switch.programs.iter().filter_map(|loaded| loaded.program.poll_timeout()).min()?;
        // A timer that has already expired is called in the next picosecond, so that time advances.
        let at = next.max(now + Picos(1));
        (at < switch.armed).then(|| {
            switch.armed = at;
            at
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::model::{Class, Network, NetworkConfig, Share, Step, Totals};
    use crate::topology::Topology;

    /// A program that acts by the packet's entropy, and counts the calls of its timer.
    #[derive(Debug)]
    struct Obedient {
        ticks: Arc<AtomicU32>,
        next: Picos,
    }

    impl SwitchProgram for Obedient {
        fn ingress(&mut self, place: &Place<'_>, incoming: &mut IncomingPacket<'_>) -> Verdict {
            match incoming.packet.header.entropy {
                0 => Verdict::Forward(incoming.route),
                1 => Verdict::Drop,
                2 => incoming.route.map_or(Verdict::Drop, Verdict::Trim),
                3 => {
                    // The copies go to hosts 1, 2 and 3.
                    incoming.copies.extend((1..4).flat_map(|host| place.ports_to(host)));
                    Verdict::Replicate
                }
                4 => Verdict::Consume,
                5 => Verdict::Forward(place.ports_to(2).first().copied()),
                6 => Verdict::Replicate,
                // This is no port of this switch: it leads to it.
                _ => Verdict::Forward(Some(0)),
            }
        }

        fn timer(&mut self, place: &Place<'_>) {
            assert_eq!(place.now, self.next);
            self.ticks.fetch_add(1, Ordering::Relaxed);
            self.next = place.now + Picos::micros(10);
        }

        fn poll_timeout(&self) -> Option<Picos> {
            (self.next < Picos::micros(50)).then_some(self.next)
        }
    }

    /// Sends packets of entropy `entropy` to host 1 of a star. Returns the hosts where they end
    /// with their lengths, the totals, and the calls of the timer.
    fn sent(entropy: u32, trimming: bool) -> (Vec<(u32, u32)>, Totals, u32) {
        let topology = Topology::star(4, Rate::gbps(100), Picos::micros(1), Picos::ZERO);
        let config = NetworkConfig::new(100_000, trimming, 1);
        let mut network =
            Network::new(topology, config, Picos(1 << 10), Share::WHOLE).expect("small");
        let ticks = Arc::new(AtomicU32::new(0));
        network.program(|_| {
            Some(Box::new(Obedient { ticks: Arc::clone(&ticks), next: Picos::micros(10) }))
        });
        let header = PacketHeader {
            dst: 1,
            entropy,
            bytes: 4096,
            class: Class::Data,
            ..PacketHeader::default()
        };
        network.enter(Picos::ZERO, 0, header, None);
        let mut ends = Vec::new();
        while let Some(step) = network.step(Picos::micros(100), &mut ()) {
            if let Step::Arrived { host, packet } = step {
                let (header, source) = network.take(packet);
                assert_eq!(source, 0);
                ends.push((host, header.bytes));
            }
        }
        assert_eq!(network.in_flight(), 0);
        ends.sort_unstable();
        (ends, *network.totals(), ticks.load(Ordering::Relaxed))
    }

    #[test]
    fn what_a_program_decides_is_done() {
        assert_eq!(sent(0, true).0, [(1, 4096)]);
        let (ends, totals, _) = sent(1, true);
        assert_eq!((ends.len(), totals.data.program, totals.last_loss > Picos::ZERO), (0, 1, true));
        let (ends, totals, _) = sent(2, true);
        assert_eq!((ends, totals.trimmed), (vec![(1, 64)], 1));
        // This network does not trim.
        assert_eq!(sent(2, false).1.data.program, 1);
        let (ends, totals, _) = sent(3, true);
        assert_eq!((ends, totals.copied), (vec![(1, 4096), (2, 4096), (3, 4096)], 2));
        let (ends, totals, _) = sent(4, true);
        assert_eq!((ends.len(), totals.consumed, totals.lost().total()), (0, 1, 0));
        assert_eq!(sent(5, true).0, [(2, 4096)]);
        assert_eq!(sent(6, true).1.consumed, 1);
        assert_eq!(sent(7, true).1.data.program, 1);
    }

    #[test]
    fn a_timer_comes_when_it_was_asked_for() {
        assert_eq!(sent(0, true).2, 4, "at 10, 20, 30 and 40 us");
    }
}
