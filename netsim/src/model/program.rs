//! Switches that can be programmed: one trait, which the simulator's switches and the live relay's run alike.
//!
//! A program is the state of one switch. It is asked when a packet came in, told when one leaves a queue, and
//! woken by its own timer; it sees the ports of its switch and may write into the packet's [`Note`], the part that
//! only programs read. What it decides is one of the [`Verdict`]s.

use core::fmt;

use super::deflection::Message;
use super::head::Head;
use super::switches::Switches;
use super::totals::{Deflections, Seen};
use crate::Picos;
use crate::topology::Node;
use squall_base::Rate;
use squall_cc::{Hops, IntHop, RatePacket, Speculation};

/// What becomes of a packet that came in. Ports are those of [`crate::topology::Topology`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It goes on by this port, which must be one of the switch's; there is no way if `None`.
    Forward(Option<u32>),
    /// It is dropped, and counted as such.
    Drop,
    /// It goes on by this port without its payload, as where it met a full queue; where the network does not trim,
    /// it is dropped.
    Trim(u32),
    /// It goes on by each of the ports that [`Incoming::copies`] names, as copies of one another.
    Replicate,
    /// It was for the switch.
    Consume,
}

/// What a packet carries for switch programs, and what they write into it, for programs further on and for its destination.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Note {
    /// Telemetry: a record a switch.
    Telemetry(Hops),
    /// It asks the links on its way for a rate.
    Rates(RatePacket),
    /// It was sent before its flow had a rate.
    Speculation(Speculation),
    /// Which packet of which message it is.
    Message(Message),
}

impl Default for Note {
    /// Nothing.
    fn default() -> Self {
        Self::Telemetry(Hops::default())
    }
}

impl Note {
    /// Records of telemetry.
    #[must_use]
    pub fn hops(&self) -> &Hops {
        match self {
            Self::Telemetry(hops) => hops,
            Self::Rates(_) | Self::Speculation(_) | Self::Message(_) => Hops::NONE,
        }
    }

    /// The lane of the link that the packet is on, or of the one it leaves by.
    #[must_use]
    pub const fn lane(&self) -> u8 {
        match self {
            Self::Message(message) => message.lane,
            Self::Telemetry(_) | Self::Rates(_) | Self::Speculation(_) => 0,
        }
    }

    /// Adds one, where it is telemetry and there is room for it.
    pub fn push_hop(&mut self, hop: IntHop) {
        if let Self::Telemetry(hops) = self {
            hops.push(hop);
        }
    }
}

/// A packet at a switch.
#[derive(Debug)]
pub struct Packet<'a> {
    /// What switches read. A program may change all of it but, where the packet leaves, its length and class.
    pub head: &'a mut Head,
    /// What programs write.
    pub note: &'a mut Note,
}

/// Where and when a program is called.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Now: one clock for all switches.
    pub now: Picos,
    /// The switch.
    pub switch: u32,
    switches: &'a Switches<u32>,
}

impl<'a> Place<'a> {
    pub(super) const fn new(now: Picos, switch: u32, switches: &'a Switches<u32>) -> Self {
        Self { now, switch, switches }
    }

    /// The equally good ports towards a host.
    #[must_use]
    pub fn ways(&self, host: u32) -> &'a [u32] {
        self.switches.routes().ports(self.switch, host)
    }

    /// The ports of the switch that lead to other switches.
    pub fn network_ports(&self) -> impl Iterator<Item = u32> + use<'a> {
        let (switches, switch) = (self.switches, self.switch);
        (0..switches.len()).filter(move |&port| {
            let to = switches.topology().to(port);
            switches.leads_from(port, switch) && matches!(to, Node::Switch(_))
        })
    }

    /// How many switches a packet comes to on its way to a host from here, this one included.
    #[must_use]
    pub fn switches_to(&self, host: u32) -> u8 {
        let (mut at, mut count) = (self.switch, 1u8);
        // Each is nearer than the one before.
        while let Some(&port) = self.switches.routes().ports(at, host).first()
            && let Node::Switch(next) = self.switches.behind(port)
        {
            (at, count) = (next, count.saturating_add(1));
        }
        count
    }

    /// Whether a port leads to a switch, as far as routing knows by a link that works, from which there is a way to a host.
    #[must_use]
    pub fn leads(&self, port: u32, host: u32) -> bool {
        match self.behind(port) {
            Node::Switch(next) => {
                let routes = self.switches.routes();
                self.switches.is_believed(port) && !routes.ports(next, host).is_empty()
            }
            Node::Host(_) => false,
        }
    }

    /// Whether a port leads away from the hosts.
    #[must_use]
    pub fn goes_up(&self, port: u32) -> bool {
        let tier = |switch: u32| self.switches.topology().switches[switch as usize].tier;
        match self.behind(port) {
            Node::Switch(next) => tier(next) > tier(self.switch),
            Node::Host(_) => false,
        }
    }

    /// What is at this end of a port's link: the sender of what came in by it.
    #[must_use]
    pub fn before(&self, port: u32) -> Node {
        self.switches.topology().from(port)
    }

    /// What is at the other end of a port's link.
    #[must_use]
    pub fn behind(&self, port: u32) -> Node {
        self.switches.behind(port)
    }

    /// Data bytes that wait at a port, without those on the wire.
    #[must_use]
    pub fn waiting(&self, port: u32) -> u64 {
        self.switches.port(port).waiting()
    }

    /// Bytes that left by a port since the beginning.
    #[must_use]
    pub fn sent(&self, port: u32) -> u64 {
        self.switches.port(port).counters().bytes
    }

    /// Rate of a port's link.
    #[must_use]
    pub fn rate(&self, port: u32) -> Rate {
        self.switches.port(port).config().rate
    }
}

/// A packet that came in, and what routing would do.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// The port of the sender upstream that it left by.
    pub ingress: u32,
    /// The port by which it would leave, if there is a way.
    pub way: Option<u32>,
    /// It.
    pub packet: Packet<'a>,
    /// Empty: for the ports of [`Verdict::Replicate`].
    pub copies: &'a mut Vec<u32>,
    /// What programs read and ignored, because it made no sense: to be counted on.
    pub ignored: &'a mut u64,
    /// Packets and messages that programs deflected: to be counted on.
    pub deflections: &'a mut Deflections,
}

/// What a switch does beyond queueing, marking and trimming. Nothing may be allocated a packet.
pub trait SwitchProgram: fmt::Debug + Send {
    /// A packet came in.
    fn ingress(&mut self, place: &Place<'_>, incoming: &mut Incoming<'_>) -> Verdict {
        let _ = place;
        Verdict::Forward(incoming.way)
    }

    /// A packet leaves by `port`: its first bit is on the wire, and it waits no more.
    fn dequeue(&mut self, place: &Place<'_>, port: u32, packet: &mut Packet<'_>) {
        let _ = (place, port, packet);
    }

    /// The moment that [`SwitchProgram::poll_timeout`] named has come.
    fn timer(&mut self, place: &Place<'_>) {
        let _ = place;
    }

    /// When [`SwitchProgram::timer`] wants to be called next; asked after each other call.
    fn poll_timeout(&self) -> Option<Picos> {
        None
    }
}

/// A program and the timer that was set for it.
#[derive(Debug)]
struct Loaded {
    program: Box<dyn SwitchProgram>,
    /// The earliest timer event there is.
    armed: Picos,
}

/// The programs of a network's switches, and what they wrote into the packets on their way.
#[derive(Debug)]
pub(super) struct Programs {
    /// By switch.
    loaded: Vec<Option<Loaded>>,
    /// By packet.
    notes: Vec<Note>,
    copies: Vec<u32>,
    ignored: u64,
    deflections: Deflections,
}

impl Programs {
    /// Loads `program` for each switch, if it makes one; `None` if there is none at all.
    pub(super) fn load(
        switches: u32,
        program: impl Fn(u32) -> Option<Box<dyn SwitchProgram>>,
    ) -> Option<Self> {
        let loaded: Vec<Option<Loaded>> = (0..switches)
            .map(|at| program(at).map(|program| Loaded { program, armed: Picos::NEVER }))
            .collect();
        let any = loaded.iter().any(Option::is_some);
        any.then(|| Self {
            loaded,
            notes: Vec::new(),
            copies: Vec::new(),
            ignored: 0,
            deflections: Deflections::default(),
        })
    }

    /// A new packet has nothing in it, or what another has.
    #[cold]
    #[inline(never)]
    pub(super) fn made(&mut self, packet: u32, of: Option<u32>) {
        let note = of.map_or_else(Note::default, |other| self.notes[other as usize]);
        match self.notes.get_mut(packet as usize) {
            Some(place) => *place = note,
            // Packets are counted without gaps.
            None => self.notes.push(note),
        }
    }

    /// Counts what programs wrote into a packet that arrived.
    #[cold]
    #[inline(never)]
    pub(super) fn read(&self, packet: u32, seen: &mut Seen) {
        seen.add(self.note(packet));
    }

    /// A packet that was made says this to the programs on its way.
    pub(super) fn write(&mut self, packet: u32, note: Note) {
        self.notes[packet as usize] = note;
    }

    /// What all of them ignored.
    pub(super) const fn ignored(&self) -> u64 {
        self.ignored
    }

    /// What all of them deflected.
    pub(super) const fn deflections(&self) -> Deflections {
        self.deflections
    }

    /// What programs wrote into a packet.
    pub(super) fn note(&self, packet: u32) -> &Note {
        &self.notes[packet as usize]
    }

    /// Asks the program of the switch what becomes of `packet`; for [`Verdict::Replicate`] see
    /// [`Programs::copies`].
    pub(super) fn ingress(
        &mut self,
        place: &Place<'_>,
        (ingress, way): (u32, Option<u32>),
        packet: u32,
        head: &mut Head,
    ) -> Verdict {
        let Some(loaded) = &mut self.loaded[place.switch as usize] else {
            return Verdict::Forward(way);
        };
        self.copies.clear();
        let packet = Packet { head, note: &mut self.notes[packet as usize] };
        let (copies, ignored) = (&mut self.copies, &mut self.ignored);
        let deflections = &mut self.deflections;
        let mut incoming = Incoming { ingress, way, packet, copies, ignored, deflections };
        loaded.program.ingress(place, &mut incoming)
    }

    /// The next port of a [`Verdict::Replicate`].
    pub(super) fn next_copy(&mut self) -> Option<u32> {
        self.copies.pop()
    }

    /// Tells the program of the switch that `packet` leaves by `port`.
    pub(super) fn dequeue(&mut self, place: &Place<'_>, port: u32, packet: u32, head: &mut Head) {
        if let Some(loaded) = &mut self.loaded[place.switch as usize] {
            let mut packet = Packet { head, note: &mut self.notes[packet as usize] };
            loaded.program.dequeue(place, port, &mut packet);
        }
    }

    /// A timer event of the switch came.
    pub(super) fn timer(&mut self, place: &Place<'_>) {
        if let Some(loaded) = &mut self.loaded[place.switch as usize]
            // Else a later one, which an earlier one replaced.
            && loaded.armed == place.now
        {
            loaded.armed = Picos::NEVER;
            loaded.program.timer(place);
        }
    }

    /// If the program of `switch` wants to be woken, and no event comes for it yet: when.
    pub(super) fn arm(&mut self, now: Picos, switch: u32) -> Option<Picos> {
        let loaded = self.loaded[switch as usize].as_mut()?;
        // A timer that is over comes again with the next picosecond, so that time goes on.
        let at = loaded.program.poll_timeout()?.max(now + Picos(1));
        (at < loaded.armed).then(|| {
            loaded.armed = at;
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
    use squall_cc::MOST_HOPS;

    /// Does what the packet's entropy says, and counts how often its timer came.
    #[derive(Debug)]
    struct Obedient {
        ticks: Arc<AtomicU32>,
        next: Picos,
    }

    impl SwitchProgram for Obedient {
        fn ingress(&mut self, place: &Place<'_>, incoming: &mut Incoming<'_>) -> Verdict {
            match incoming.packet.head.entropy {
                0 => Verdict::Forward(incoming.way),
                1 => Verdict::Drop,
                2 => incoming.way.map_or(Verdict::Drop, Verdict::Trim),
                3 => {
                    // To hosts 1, 2 and 3.
                    incoming.copies.extend((1..4).flat_map(|host| place.ways(host)));
                    Verdict::Replicate
                }
                4 => Verdict::Consume,
                5 => Verdict::Forward(place.ways(2).first().copied()),
                6 => Verdict::Replicate,
                // No port of this switch: it leads to it.
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

    /// Where the packets of entropy `entropy` to host 1 of a star end, with their lengths, and what was counted.
    fn sent(entropy: u32, trimming: bool) -> (Vec<(u32, u32)>, Totals, u32) {
        let topology = Topology::star(4, Rate::gbps(100), Picos::micros(1), Picos::ZERO);
        let config = NetworkConfig::new(100_000, trimming, 1);
        let mut network =
            Network::new(topology, config, Picos(1 << 10), Share::WHOLE).expect("small");
        let ticks = Arc::new(AtomicU32::new(0));
        network.program(|_| {
            Some(Box::new(Obedient { ticks: Arc::clone(&ticks), next: Picos::micros(10) }))
        });
        let head = Head { dst: 1, entropy, bytes: 4096, class: Class::Data, ..Head::default() };
        network.enter(Picos::ZERO, 0, head, None);
        let mut ends = Vec::new();
        while let Some(step) = network.step(Picos::micros(100), &mut ()) {
            if let Step::Arrived { host, packet } = step {
                let (head, source) = network.take(packet);
                assert_eq!(source, 0);
                ends.push((host, head.bytes));
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
        // Nobody trims there.
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

    #[test]
    fn a_note_holds_so_many_records() {
        let mut note = Note::default();
        for hop in 0..20 {
            note.push_hop(IntHop { hop, ..IntHop::default() });
        }
        let hops = note.hops();
        assert_eq!(usize::from(hops.len()), MOST_HOPS);
        assert_eq!(hops.get(7).map(|hop| hop.hop), Some(7));
    }
}
