//! Simulation of a credit network, cycle by cycle.

use core::ops::ControlFlow;

use super::channel::{Channel, REQUEST, RESPONSE, WRITES};
use super::member::{Member, Sends};
use super::tree::{Behind, Tree};
use super::{
    CreditNetworkConfig, CreditNetworkError, CreditNetworkResults, Packet, SenderResult, flits_of,
};
use squall_base::Rng;
use squall_cc::Injection;
use squall_netsim::Picos;
use squall_netsim::sim::Observer;

/// Largest number of operations in a run: they are numbered in 31 bits.
const MOST_OPERATIONS: u64 = 1 << 31;
/// Cycles without an answer after which the run stops, because nothing can happen any more.
const PATIENCE: u64 = 2_000_000;
/// Cycles between two calls of the observer of a run.
const LOOK: u64 = 1 << 14;

/// The members, switches and links of a credit network.
#[derive(Clone, Debug)]
pub struct CreditNetwork {
    tree: Tree,
    channels: Vec<Channel>,
    /// For each channel, the cycle before which no packet can leave the buffers behind it.
    quiet_until: Vec<u64>,
    behind: Vec<Behind>,
    members: Vec<Member>,
    /// Number of answers to each operation that each lower switch has reduced. The next field holds
    /// the number that the upper switch has reduced.
    at_lower: Vec<u8>,
    at_upper: Vec<u8>,
    /// The cycle in which each operation left its sender.
    sent: Vec<u64>,
    /// The member number of each sender, by sender number.
    senders: Vec<u16>,
    transactions: u32,
    buffer: u32,
    memory: u64,
    cycle: Picos,
    now: u64,
    last_done: u64,
    open: usize,
    results: CreditNetworkResults,
}

impl CreditNetwork {
    /// Creates a network in which nothing has been sent.
    ///
    /// # Errors
    /// Returns the field that is invalid, and what is allowed.
    pub fn new(config: &CreditNetworkConfig) -> Result<Self, CreditNetworkError> {
        let tree = Tree::new(&config.topology)?;
        let hosts = config.topology.hosts as u16;
        let fault = |field, what| Err(CreditNetworkError { field, what });
        if !(1..=hosts).contains(&config.senders) {
            let what = format!("{}, expected 1 to {hosts}, the number of members", config.senders);
            return fault("senders", what);
        }
        let operations = u64::from(config.senders) * u64::from(config.transactions) * 2;
        if !(1..MOST_OPERATIONS).contains(&operations) {
            let most = MOST_OPERATIONS / 2 / 64;
            let what = format!("{}, expected 1 to {most} reads per sender", config.transactions);
            return fault("transactions", what);
        }
        let cycle = config.cycle();
        let cycles = |latency: Picos| latency.0.div_ceil(cycle.0.max(1));
        let slowest = config.topology.switches.iter().map(|switch| switch.latency).max();
        let link = config.topology.links.iter().map(|link| link.latency).max();
        let (link, switch) =
            (cycles(link.unwrap_or_default()), cycles(slowest.unwrap_or_default()));
        let hop = (link + switch).max(1);
        let buffer =
            config.buffer.unwrap_or_else(|| u32::try_from(2 * hop + 9).unwrap_or(u32::MAX));
        if !(9..=1 << 20).contains(&buffer) {
            return fault("buffer", format!("{buffer}, expected 9 (one packet) to 1048576 flits"));
        }
        if config.answers == Some(0) {
            return fault("answers", "0, expected at least 1 flit, or no limit".to_owned());
        }
        let behind = tree.behind(2 * config.topology.links.len());
        let channels = behind.iter().map(|behind| match behind {
            Behind::Member(_) => Channel::new(link, true, buffer),
            Behind::LowerFromMember(_) => {
                Channel::new(hop, false, buffer).with_answers(config.answers)
            }
            _ => Channel::new(hop, false, buffer),
        });
        let channels = channels.collect();
        let (senders, mut starts) = draw(config, hosts);
        let members = (0..hosts).map(|member| {
            let sends = senders.iter().zip(0u32..).find(|(sender, _)| **sender == member).map(
                |(_, number)| Sends::new(number, config.transactions, starts[number as usize]),
            );
            let injection = config.injection.tuned_for(config.senders.into());
            Member::new(Injection::new(&injection, hosts, member), buffer, sends)
        });
        let members: Vec<Member> = members.collect();
        // The count is below 2^31, as checked above.
        let operations = operations as usize;
        let results = CreditNetworkResults {
            senders: senders
                .iter()
                .zip(starts.drain(..))
                .map(|(&member, start)| SenderResult { member, start, end: None })
                .collect(),
            ..CreditNetworkResults::default()
        };
        Ok(Self {
            at_lower: vec![0; operations * usize::from(tree.lowers())],
            at_upper: vec![0; operations],
            sent: vec![0; operations],
            open: senders.len(),
            senders,
            tree,
            quiet_until: vec![0; behind.len()],
            channels,
            behind,
            members,
            transactions: config.transactions,
            buffer,
            memory: config.memory.into(),
            cycle,
            now: 0,
            last_done: 0,
            results,
        })
    }

    /// Returns how many flits of each virtual channel may wait behind a link, and as many before
    /// it.
    #[must_use]
    pub const fn buffer(&self) -> u32 {
        self.buffer
    }

    /// Runs until every operation is answered or the observer interrupts the run.
    pub fn run(mut self, observer: &mut dyn Observer) -> CreditNetworkResults {
        while self.open > 0 {
            if self.now.is_multiple_of(LOOK) {
                let done = self.senders.len() - self.open;
                let now = Picos(self.now * self.cycle.0);
                if let ControlFlow::Break(()) = observer.progress(now, done, self.now) {
                    self.results.stopped = Some("interrupted");
                    break;
                }
                if self.now > self.last_done + PATIENCE {
                    self.results.stopped = Some("no operation was answered for 2000000 cycles");
                    break;
                }
            }
            self.step();
        }
        self.close()
    }

    fn close(mut self) -> CreditNetworkResults {
        let first = self.results.senders.iter().map(|sender| sender.start).min().unwrap_or(0);
        self.results.cycles = self.last_done.saturating_sub(first);
        self.results.packets = self.channels.iter().map(|channel| channel.packets).sum();
        self.results
    }

    /// Simulates one cycle of all links, switches and members.
    pub(super) fn step(&mut self) {
        let count = self.channels.len();
        // The channel that is served first changes from cycle to cycle, also among neighbours: XOR
        // permutes the channel numbers.
        let width = count.next_power_of_two();
        let turned = (self.now.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & (width - 1);
        for at in 0..width {
            let channel = at ^ turned;
            if channel < count && self.quiet_until[channel] <= self.now {
                self.deliver(channel);
                self.quiet_until[channel] = self.channels[channel].quiet_until(self.now);
            }
        }
        for member in 0..self.members.len() {
            self.answer(member);
        }
        for channel in 0..count {
            self.transmit(channel);
        }
        self.now += 1;
    }

    /// Hands on the packets that may leave the buffers behind a channel.
    fn deliver(&mut self, channel: usize) {
        for vc in [REQUEST, WRITES, RESPONSE] {
            while let Some(packet) = self.channels[channel].virtuals[vc].arrived(self.now) {
                let gone = match (self.behind[channel], packet.response) {
                    (Behind::Member(member), false) => {
                        self.receive_request(member, packet);
                        // The memory is the buffer: its credits return with the answer.
                        self.channels[channel].virtuals[vc].take();
                        continue;
                    }
                    (Behind::Member(member), true) => self.done(member, packet.op),
                    (Behind::LowerFromMember(lower), false) => {
                        let up = self.tree.up(lower, self.route(packet.op));
                        self.pass(up, REQUEST, packet)
                    }
                    (Behind::Upper, false) => self.copy_down(channel, vc, packet),
                    (Behind::LowerFromUpper(lower), false) => {
                        self.copy_to_members(channel, vc, lower, packet)
                    }
                    (Behind::LowerFromMember(lower), true) => self.reduce_lower(lower, packet),
                    (Behind::Upper, true) => self.reduce_upper(packet),
                    (Behind::LowerFromUpper(_), true) => {
                        let to = self.tree.to(self.sender_of(packet.op));
                        self.pass(to, RESPONSE, packet)
                    }
                };
                if !gone {
                    break;
                }
                let left = &mut self.channels[channel].virtuals[vc];
                left.take();
                left.give_back(packet.flits());
            }
        }
    }

    /// Moves a packet into the queue of another channel. Returns false if that queue has no room.
    fn pass(&mut self, to: usize, vc: usize, packet: Packet) -> bool {
        let queue = &mut self.channels[to].virtuals[vc];
        let room = queue.has_room();
        if room {
            queue.push(packet);
        }
        room
    }

    /// Copies a request from the upper switch to each lower switch. Returns whether all have their
    /// copy.
    fn copy_down(&mut self, from: usize, vc: usize, packet: Packet) -> bool {
        let route = self.route(packet.op);
        let mut whole = true;
        for lower in 0..self.tree.lowers() {
            let to = self.tree.down(lower, route);
            whole &= self.copy(from, vc, to, lower.into(), packet);
        }
        whole
    }

    /// Copies a request to each member of a lower switch. Returns whether all have their copy.
    fn copy_to_members(&mut self, from: usize, vc: usize, lower: u16, packet: Packet) -> bool {
        let mut whole = true;
        for at in 0..self.tree.members_of(lower).len() {
            let to = self.tree.to(self.tree.members_of(lower)[at]);
            whole &= self.copy(from, vc, to, at as u32, packet);
        }
        whole
    }

    /// Makes the copy for output number `output`, unless it has one. Returns whether it has one
    /// now.
    fn copy(&mut self, from: usize, vc: usize, to: usize, output: u32, packet: Packet) -> bool {
        if self.channels[from].virtuals[vc].copied & 1 << output != 0 {
            return true;
        }
        let copied = self.pass(to, REQUEST, packet);
        if copied {
            self.channels[from].virtuals[vc].copied |= 1 << output;
        }
        copied
    }

    /// Reduces a member's answer at its lower switch. When the last answer of the switch has
    /// arrived, the switch sends the reduced answer to the upper switch. Returns whether the answer
    /// was accepted.
    fn reduce_lower(&mut self, lower: u16, packet: Packet) -> bool {
        let place = packet.op as usize * usize::from(self.tree.lowers()) + usize::from(lower);
        if usize::from(self.at_lower[place]) + 1 == self.tree.members_of(lower).len() {
            let up = self.tree.up(lower, self.route(packet.op));
            if !self.pass(up, RESPONSE, packet) {
                return false;
            }
        }
        self.at_lower[place] += 1;
        true
    }

    /// Reduces a lower switch's answer at the upper switch. When the last answer has arrived, the
    /// upper switch sends the reduced answer to the requester. Returns whether the answer was
    /// accepted.
    fn reduce_upper(&mut self, packet: Packet) -> bool {
        let op = packet.op as usize;
        if u16::from(self.at_upper[op]) + 1 == self.tree.lowers() {
            let lower = self.tree.lower_of(self.sender_of(packet.op));
            let down = self.tree.down(lower, self.route(packet.op));
            if !self.pass(down, RESPONSE, packet) {
                return false;
            }
        }
        self.at_upper[op] += 1;
        true
    }

    /// Hands a request that arrived at a member to the member's memory.
    fn receive_request(&mut self, member: u16, packet: Packet) {
        let from = self.sender_of(packet.op);
        let here = &mut self.members[usize::from(member)];
        if from != member {
            here.injection.on_remote(self.now, from, flits_of(packet.op));
        }
        here.remember(self.now + self.memory, packet);
    }

    /// Completes operation `op` of a member, whose answer has arrived there.
    fn done(&mut self, member: u16, op: u32) -> bool {
        let here = &mut self.members[usize::from(member)];
        let sent = self.sent[op as usize];
        here.injection.on_done(self.now, sent, flits_of(op), true);
        let all = here.sends.as_mut().is_some_and(|sends| sends.done(op));
        let flits = flits_of(op);
        let results = &mut self.results;
        let latency = self.now - sent;
        results.operations += 1;
        results.effective_flits += u64::from(flits.request) + u64::from(flits.response);
        results.latency_sum += latency;
        results.latency_max = results.latency_max.max(latency);
        self.last_done = self.now;
        if all {
            results.senders[(op / (2 * self.transactions)) as usize].end = Some(self.now);
            self.open -= 1;
        }
        true
    }

    /// Sends the answers that are ready in a member's memory.
    fn answer(&mut self, member: usize) {
        let here = &mut self.members[member];
        let out = self.tree.out_of(member as u16);
        while let Some(packet) = here.to_answer(self.now) {
            let queue = &mut self.channels[out].virtuals[RESPONSE];
            if !queue.has_room() {
                break;
            }
            queue.push(Packet::response(packet.op));
            here.answered();
            let to = &mut self.channels[out ^ 1].virtuals[REQUEST];
            to.give_back(packet.flits());
        }
    }

    /// Sends one packet on a channel, if one may leave.
    fn transmit(&mut self, channel: usize) {
        let here = &mut self.channels[channel];
        if !here.is_free(self.now) {
            return;
        }
        // The member before the channel. Channels out of switches are served above.
        let member = match self.behind[channel ^ 1] {
            Behind::Member(member) => member,
            _ => {
                here.serve(self.now);
                self.quiet_until[channel] = here.quiet_until(self.now);
                return;
            }
        };
        let member = &mut self.members[usize::from(member)];
        let next = |vc| match vc {
            RESPONSE => None,
            vc => member.next(self.now, vc == WRITES).map(Packet::request),
        };
        let may = |vc| match vc {
            RESPONSE => here.queue_may(vc),
            vc => next(vc).is_some_and(|packet| here.virtuals[vc].may_send(packet.flits())),
        };
        let Some(vc) = here.next(may) else { return };
        match next(vc) {
            None => here.serve_queue(self.now, vc),
            Some(packet) => {
                here.send(self.now, vc, packet);
                self.sent[packet.op as usize] = self.now;
                member.injection.on_send(self.now, flits_of(packet.op), true);
                member.sends.iter_mut().for_each(|sends| sends.sent(packet.op));
            }
        }
        self.quiet_until[channel] = here.quiet_until(self.now);
    }

    /// Returns the member that sent operation `op`.
    fn sender_of(&self, op: u32) -> u16 {
        self.senders[(op / (2 * self.transactions)) as usize]
    }

    /// Returns the upward route of an operation. The transactions of a sender use all routes in
    /// turn.
    fn route(&self, op: u32) -> u32 {
        (op / 2 % self.transactions + u32::from(self.sender_of(op))) % self.tree.ways()
    }

    #[cfg(test)]
    pub(super) fn channels(&self) -> &[Channel] {
        &self.channels
    }

    #[cfg(test)]
    pub(super) const fn tree(&self) -> &Tree {
        &self.tree
    }

    #[cfg(test)]
    pub(super) const fn open(&self) -> usize {
        self.open
    }
}

/// Draws the senders, in ascending order, and the cycles in which they start.
fn draw(config: &CreditNetworkConfig, hosts: u16) -> (Vec<u16>, Vec<u64>) {
    let mut rng = Rng::new(config.seed ^ 0x666c_6974);
    let mut all: Vec<u16> = (0..hosts).collect();
    let mut senders: Vec<u16> = (0..config.senders)
        .map(|_| all.swap_remove(rng.below(all.len() as u32) as usize))
        .collect();
    senders.sort_unstable();
    let starts = senders.iter().map(|_| rng.below(config.skew.saturating_add(1)).into()).collect();
    (senders, starts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_base::Rate;
    use squall_cc::InjectionConfig;
    use squall_netsim::topology::Topology;

    /// Checks that a switch passes on one answer, after the last of the answers that it reduces.
    #[test]
    fn answers_are_reduced_when_the_last_is_there() {
        let topology = Topology::mc(64, Rate::gbps(200), Picos::ZERO, Picos::nanos(96));
        let config = CreditNetworkConfig {
            topology: topology.expect("one of its sizes"),
            injection: InjectionConfig::None,
            senders: 1,
            transactions: 1,
            skew: 0,
            memory: 180,
            answers: None,
            buffer: None,
            seed: 1,
        };
        let mut network = CreditNetwork::new(&config).expect("possible");
        let answer = Packet::response(0);
        let (up, lower) = (network.tree.up(3, network.route(0)), network.sender_of(0));
        let down = network.tree.down(network.tree.lower_of(lower), network.route(0));
        for last in [false, false, false, false, false, false, false, true] {
            assert!(network.reduce_lower(3, answer) && network.reduce_upper(answer));
            let passed = [up, down].map(|to| network.channels[to].queue_may(RESPONSE));
            assert_eq!(passed, [last; 2]);
        }
    }
}
