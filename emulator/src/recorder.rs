//! Samples of the queues, links and flows of a running emulator over time.

use std::collections::BTreeMap;

use super::{Status, Timeline};
use squall_base::Span;
use squall_netsim::Picos;
use squall_netsim::model::Switches;
use squall_netsim::output::{Event, LinkLoad, NetworkFacts, Run, Series, SeriesKind, Totals};
use squall_netsim::topology::{Node, Topology};

/// Initial interval between two samples of a network in real time.
pub(super) const EVERY: Span = Span::millis(10);
/// Initial interval between two samples of a network in virtual time.
pub(super) const EVERY_VIRTUAL: Span = Span::micros(10);
/// Largest number of samples, which bounds the memory of a long job. When it is reached, every
/// second sample is dropped and the interval doubles.
const MOST: usize = 4096;

/// Samples of a network's queues and flows. Time zero is when the first packet enters the network.
#[derive(Clone, Debug)]
pub(super) struct Recorder {
    /// Interval between two samples of the queues and flows.
    every: Span,
    due: Span,
    times: Vec<Span>,
    /// Samples of each port, in order of port numbers: the data bytes that wait, and the bytes sent
    /// so far.
    ports: Vec<Vec<(u64, u64)>>,
    /// Bytes that entered the network, by sending and receiving host.
    flows: BTreeMap<(u32, u32), Flow>,
}

/// Bytes that one host sent to another, and their samples.
#[derive(Clone, Debug, Default)]
struct Flow {
    bytes: u64,
    /// Bytes that the host had sent so far, one value per sample.
    samples: Vec<u64>,
}

/// Drops every second item of a list of samples.
fn halve<T>(items: &mut Vec<T>) {
    let mut index = 0;
    items.retain(|_| {
        index += 1;
        index % 2 == 1
    });
}

impl Recorder {
    /// Creates a recorder that first takes a sample `every` so often.
    pub(super) fn new(every: Span) -> Self {
        Self {
            every,
            due: Span::ZERO,
            times: Vec::new(),
            ports: Vec::new(),
            flows: BTreeMap::new(),
        }
    }

    /// Counts a packet of `bytes` bytes that entered the network between a pair of hosts.
    pub(super) fn entered(&mut self, pair: (u32, u32), bytes: u64) {
        let samples = self.times.len();
        let flow =
            self.flows.entry(pair).or_insert_with(|| Flow { bytes: 0, samples: vec![0; samples] });
        flow.bytes += bytes;
    }

    /// Returns when the next sample is to be taken, from the first packet on.
    pub(super) const fn due(&self) -> Span {
        self.due
    }

    /// Takes a sample of all ports and flows at `at`.
    pub(super) fn sample(&mut self, at: Span, model: Picos, switches: &Switches<u32>) {
        self.ports.resize(switches.len() as usize, Vec::new());
        self.times.push(at);
        for (number, samples) in (0..switches.len()).zip(&mut self.ports) {
            let port = switches.port(number);
            samples.push((port.queued(model), port.counters().bytes));
        }
        for flow in self.flows.values_mut() {
            flow.samples.push(flow.bytes);
        }
        if self.times.len() >= MOST {
            self.every = self.every + self.every;
            halve(&mut self.times);
            self.ports.iter_mut().for_each(halve);
            self.flows.values_mut().for_each(|flow| halve(&mut flow.samples));
        }
        self.due = at + self.every;
    }

    /// Converts cumulative byte counts, one per sample, to rates between samples: (time in us,
    /// Gb/s).
    fn rates(&self, bytes: impl Iterator<Item = u64>) -> Vec<(f64, f64)> {
        let values: Vec<(Span, u64)> = self.times.iter().copied().zip(bytes).collect();
        let pairs = values.windows(2).filter(|pair| pair[1].0 > pair[0].0);
        pairs
            .map(|pair| {
                let (took, more) = ((pair[1].0.0 - pair[0].0.0) as f64, pair[1].1 - pair[0].1);
                (micros(pair[1].0), more as f64 * 8.0 / took)
            })
            .collect()
    }

    /// Returns everything as a run from which reports are made. `history` lists the changes to the
    /// network.
    pub(super) fn run(&self, status: &Status, topology: &Topology, history: &Timeline) -> Run {
        let tier = |node: Node| match node {
            Node::Host(_) => None,
            Node::Switch(switch) => Some(topology.switches[switch as usize].tier),
        };
        let ends = |port: u32| (tier(topology.from(port)), tier(topology.to(port)));
        let links = (0u32..).zip(&status.ports).map(|(number, port)| {
            let (from, to) = ends(number);
            LinkLoad {
                name: port.name.clone(),
                tier: from.map_or(0, |tier| tier + u8::from(from < to)),
                up: from < to,
                gbps: 0.0,
                bytes: port.bytes,
                dropped: port.dropped,
                trimmed: port.trimmed,
            }
        });
        let events = history.events().iter();
        let events =
            events.map(|(at, command)| Event { at_us: micros(*at), what: command.to_string() });
        let totals = &status.totals;
        Run {
            name: "live".to_owned(),
            totals: Totals {
                packets: totals.entered,
                trimmed: totals.trimmed,
                wall_s: status.uptime_s,
                ..Totals::default()
            },
            network: NetworkFacts {
                hosts: topology.hosts,
                line_gbps: status.host_rate as f64 / 1e9,
                base_rtt_us: status.base_rtt_ns as f64 / 1e3,
                dropped: totals.queue_full + totals.down + totals.black_hole + totals.corrupt,
                dropped_dead: totals.down + totals.black_hole,
                marked: totals.marked,
                ..NetworkFacts::default()
            },
            series: self.series(topology),
            links: links.collect(),
            events: events.collect(),
            ..Run::default()
        }
    }

    /// Returns the queues of switches that ever held data (the longest first), the rates of links
    /// between switches, and the rates of flows.
    fn series(&self, topology: &Topology) -> Vec<Series> {
        let series = |kind, name, points| Series { kind, name, points };
        let is_switch = |node| matches!(node, Node::Switch(_));
        let ports = (0u32..).zip(&self.ports).filter(|(port, _)| is_switch(topology.from(*port)));
        let ports: Vec<_> = ports.collect();
        let mut queues: Vec<_> = ports
            .iter()
            .map(|(port, samples)| {
                (samples.iter().map(|(queue, _)| queue).sum::<u64>(), *port, samples)
            })
            .filter(|(sum, ..)| *sum > 0)
            .collect();
        queues.sort_by_key(|(sum, port, _)| (std::cmp::Reverse(*sum), *port));
        let queues = queues.into_iter().map(|(_, port, samples)| {
            let times = self.times.iter().map(|at| micros(*at));
            let points = times.zip(samples.iter().map(|(queue, _)| *queue as f64)).collect();
            series(SeriesKind::Queue, topology.port_name(port), points)
        });
        let between = ports.iter().filter(|(port, _)| is_switch(topology.to(*port)));
        let links = between.map(|(port, samples)| {
            let points = self.rates(samples.iter().map(|(_, bytes)| *bytes));
            series(SeriesKind::Load, topology.port_name(*port), points)
        });
        let flows = self.flows.iter().map(|((from, to), flow)| {
            let points = self.rates(flow.samples.iter().copied());
            series(SeriesKind::Throughput, format!("h{from}->h{to}"), points)
        });
        queues.chain(links).chain(flows).collect()
    }
}

fn micros(at: Span) -> f64 {
    at.0 as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Emulation;
    use squall_base::Rate;
    use squall_netsim::model::NetworkConfig;

    fn idle() -> Emulation {
        let rate = Rate::gbps(1);
        let topology = Topology::leaf_spine(2, 2, 1, rate, rate, Picos::micros(1), Picos::ZERO);
        Emulation::new(topology, NetworkConfig::new(10_000, true, 1), 48).expect("small")
    }

    #[test]
    fn samples_become_rates_and_flows_that_come_late_begin_at_nothing() {
        let emulation = idle();
        let switches = emulation.network().switches();
        let mut recorder = Recorder::new(EVERY);
        for turn in 0..4u64 {
            if turn > 0 {
                recorder.entered((0, 1), 1_250_000);
            }
            let at = recorder.due();
            assert_eq!(at, Span::millis(10 * turn));
            recorder.sample(at, Picos::ZERO, switches);
        }
        // 1.25 MB in 10 ms are 1 Gb/s.
        let rates = recorder.rates(recorder.flows[&(0, 1)].samples.iter().copied());
        assert_eq!(rates, [(10_000.0, 1.0), (20_000.0, 1.0), (30_000.0, 1.0)]);
        let series = recorder.series(switches.topology());
        let names: Vec<_> = series.iter().map(|s| (s.kind, s.name.as_str())).collect();
        assert_eq!(names.len(), 9, "eight directions of four links, and the flow: {names:?}");
        assert_eq!(names[8], (SeriesKind::Throughput, "h0->h1"));
    }

    #[test]
    fn a_long_record_gets_coarser_and_keeps_its_length() {
        let emulation = idle();
        let mut recorder = Recorder::new(EVERY);
        let mut at = Span::ZERO;
        for _ in 0..3 * MOST {
            at = recorder.due();
            recorder.entered((0, 1), 10);
            recorder.sample(at, Picos::ZERO, emulation.network().switches());
        }
        assert!(
            recorder.times.len() < MOST && recorder.every == Span(EVERY.0 << 5),
            "{}",
            recorder.every
        );
        assert_eq!(recorder.times.len(), recorder.ports[0].len());
        assert_eq!(recorder.times.len(), recorder.flows[&(0, 1)].samples.len());
        assert!(at > Span::secs(100) && recorder.times.is_sorted());
    }
}
