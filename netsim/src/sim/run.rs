//! A simulation: its parts, which run in parallel, and its results.

use std::sync::Arc;
use std::time::Instant;

use super::config::{SimConfig, SimError, Transport};
use super::flows::FlowGraph;
use super::lockstep::{Lockstep, Rule, Watch};
use super::part::Part;
use super::results::{End, FlowResult, Observer, PortLoad, Results, Totals, UnfinishedReason};
use super::run_settings::RunSettings;
use super::setup::Setup;
use crate::model::{Partition, PortCounters, Totals as NetworkTotals};
use crate::topology::Node;
use crate::workload::{Flow, Workload};

/// A network, its hosts and a workload, ready to run.
///
/// ```
/// use squall_base::Rate;
/// use squall_netsim::sim::{SimConfig, Simulation};
/// use squall_netsim::topology::Topology;
/// use squall_netsim::{Picos, formats};
///
/// let topology = Topology::star(2, Rate::gbps(100), Picos::micros(1), Picos::ZERO);
/// let workload = formats::cm::read("example", "Nodes 2\nConnections 1\n0->1 start 0 size 100000\n")?;
/// let results = Simulation::new(&SimConfig::new(topology), &workload)?.run(&mut ());
/// assert!(results.flows[0].fct.is_some_and(|fct| fct < Picos::micros(20)));
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Simulation {
    run_settings: RunSettings,
    partition: Partition,
    rule: Rule,
    /// Parts of the simulation, at least one.
    parts: Vec<Part>,
    per_port: bool,
    /// True if the workload describes what ranks compute.
    computes: bool,
}

impl Simulation {
    /// Creates a simulation of a workload.
    ///
    /// # Errors
    /// Returns what is impossible about the topology, the workload, the algorithms or other
    /// parameters.
    pub fn new(config: &SimConfig, workload: &Workload) -> Result<Self, SimError> {
        Self::from_shared(config, &Arc::new(workload.clone()))
    }

    /// Like [`Simulation::new`], but shares the workload instead of copying it.
    ///
    /// # Errors
    /// See [`Simulation::new`].
    pub fn from_shared(config: &SimConfig, workload: &Arc<Workload>) -> Result<Self, SimError> {
        let setup = Setup::new(config, workload)?;
        let topology = &config.topology;
        let whole = |_| Partition::new(topology, 1, &[]);
        let partition = divide(config, workload).unwrap_or_else(whole);
        let graph = Arc::new(FlowGraph::new(Arc::clone(workload)));
        let parts = (0..partition.parts())
            .map(|part| Part::new(config, (&setup, workload, &graph), (&partition, part)));
        Ok(Self {
            run_settings: RunSettings::of(config, &setup),
            rule: Rule::new(workload.flows.len(), config.until, Partition::ahead(topology)),
            parts: parts.collect::<Result<_, _>>()?,
            partition,
            per_port: config.observe.ports,
            computes: !workload.dependencies.is_empty(),
        })
    }

    /// Returns the settings of the simulation.
    #[must_use]
    pub const fn run_settings(&self) -> &RunSettings {
        &self.run_settings
    }

    /// Returns the number of parts that run in parallel: [`SimConfig::threads`], or fewer if the
    /// network cannot be divided so often.
    #[must_use]
    pub fn parts(&self) -> u32 {
        self.partition.parts()
    }

    /// Runs until all flows are finished, no event is left, the time is up, or the observer stops
    /// the simulation.
    ///
    /// # Panics
    /// Panics if the thread of a part panics.
    pub fn run(mut self, observer: &mut dyn Observer) -> Results {
        // This is the only real clock; the elapsed time is not part of what is simulated.
        #[allow(clippy::disallowed_methods)]
        let started = Instant::now();
        let end = self.go(observer);
        self.finish(end, started.elapsed().as_secs_f64())
    }

    fn go(&mut self, observer: &mut dyn Observer) -> End {
        let lockstep = Lockstep::new(&self.partition, self.rule);
        let lockstep = &lockstep;
        std::thread::scope(|scope| {
            let mut parts = (0..).zip(&mut self.parts);
            let first = parts.next();
            for (number, part) in parts {
                scope.spawn(move || lockstep.run(part, number, None));
            }
            // All parts return the same end; one that panics makes the scope panic at its end.
            let watch = Some(Watch::new(observer));
            first.map_or(End::Done, |(number, part)| lockstep.run(part, number, watch))
        })
    }

    /// Returns the part that contains a host.
    fn of(&self, host: u32) -> &Part {
        &self.parts[self.partition.of(Node::Host(host)) as usize]
    }

    fn finish(self, end: End, wall_s: f64) -> Results {
        let flows = self.flows();
        let lost = |flow: &FlowResult| {
            flow.unfinished.is_none_or(|why| {
                matches!(why, UnfinishedReason::Disconnected | UnfinishedReason::Failed)
            })
        };
        let end = match end {
            // The remaining flows will never finish, however long the simulation runs.
            End::TimeUp | End::Done
                if flows.iter().any(|flow| flow.fct.is_none()) && flows.iter().all(lost) =>
            {
                End::Stuck
            }
            other => other,
        };
        let ports = if self.per_port { self.loads() } else { Vec::new() };
        let whole = end == End::Done && flows.iter().all(|flow| flow.fct.is_some());
        let ended = self.parts.iter().map(|part| part.computed.ended).max();
        let makespan = ended.filter(|_| self.computes && whole);
        let totals = Totals { wall_s, ..self.totals(end) };
        // Samples and the bytes of jobs exist only for networks that are in one part; see
        // [`divide`].
        let job_bytes = self.parts[0].ends.flows.job_bytes().to_vec();
        let config = self.parts[0].network.switches().config();
        let counter_names = config.counter_names().collect();
        let flow_counter_names = config.flow_counter_names().collect();
        let series = self.parts.into_iter().next().map(|part| part.recorder.finish());
        let series = series.unwrap_or_default();
        Results {
            end,
            flows,
            totals,
            ports,
            series,
            job_bytes,
            counter_names,
            flow_counter_names,
            makespan,
        }
    }

    /// Returns the result of each flow, one half of which the part of its sender knows, and the
    /// other that of its receiver.
    fn flows(&self) -> Vec<FlowResult> {
        let flows = &self.parts[0].ends.flows;
        let routes = self.parts[0].network.switches().routes();
        let result = |(index, flow): (usize, &Flow)| {
            let reachable = routes.connected(flow.src, flow.dst);
            let [from, to] = [flow.src, flow.dst].map(|host| &self.of(host).ends.flows);
            from.result(index, to, reachable)
        };
        flows.graph.flows().iter().enumerate().map(result).collect()
    }

    fn totals(&self, end: End) -> Totals {
        let mut network = NetworkTotals::default();
        let mut totals = Totals::default();
        for part in &self.parts {
            network = network.plus(part.network.totals());
            totals.delivered += part.delivered;
            totals.events += part.network.events();
            totals.under_way += part.network.flights().data();
            // Events after the last flow has finished do not count.
            let at = if end == End::Done { part.last } else { part.network.now() };
            totals.end = totals.end.max(at);
            for flow in &part.ends.flows.running {
                totals.packets += flow.packets;
                totals.retransmitted += flow.retransmitted;
            }
            for host in &part.ends.hosts.all {
                let (acks, nacks) = host.answers();
                totals.acks += acks;
                totals.nacks += nacks;
            }
        }
        totals.trimmed = network.trimmed;
        totals.marked = network.marked;
        totals.dropped = network.data.total();
        totals.dropped_host = network.data.host_full;
        totals.dropped_dead = network.data.down + network.data.black_hole;
        totals.control_dropped = network.control.total();
        totals.last_loss = network.last_loss;
        totals.pauses = network.pauses;
        totals.telemetry = network.telemetry;
        totals.ignored = network.ignored;
        totals.features = network.features;
        totals.peak_bytes = super::memory::peak_bytes();
        totals
    }

    fn loads(&self) -> Vec<PortLoad> {
        let switches = self.parts[0].network.switches();
        let topology = switches.topology();
        let tier = |node: Node| match node {
            Node::Host(_) => None,
            Node::Switch(switch) => Some(topology.switches[switch as usize].tier),
        };
        (0..switches.len())
            .map(|port| {
                let of = |part: &Part| part.network.switches().port(port).counters();
                let counters =
                    self.parts.iter().map(of).reduce(PortCounters::plus).unwrap_or_default();
                let (from, to) = (tier(topology.from(port)), tier(topology.to(port)));
                PortLoad {
                    port,
                    name: topology.port_name(port),
                    tier: from,
                    up: from < to,
                    rate: topology.links[port as usize / 2].rate,
                    bytes: counters.bytes,
                    packets: counters.packets,
                    marked: counters.marked,
                    trimmed: counters.trimmed,
                    dropped: counters.dropped,
                    max_queue: counters.max_queue,
                }
            })
            .collect()
    }
}

/// Divides a network among the threads of a simulation: into [`SimConfig::threads`] parts, or fewer
/// if too many hosts share a switch or make each other send without a packet in between. The
/// topology and the workload must have passed their checks.
///
/// # Errors
/// Returns the reason why the network must stay in one part, whatever the number of threads.
pub fn divide(config: &SimConfig, workload: &Workload) -> Result<Partition, &'static str> {
    let topology = &config.topology;
    if config.threads <= 1 {
        return Ok(Partition::new(topology, 1, &[]));
    }
    let looks_ahead = match &config.host.transport {
        Transport::Squall(squall) => squall.look_ahead.is_some(),
        Transport::Roce(_) => false,
    };
    if Partition::ahead(topology).is_none() {
        return Err("no two switches are connected by a link with latency");
    }
    if config.observe.queues.is_some() || config.observe.windows.is_some() {
        return Err("samples are taken of the whole network at once");
    }
    if workload.jobs() > 1 {
        return Err("the progress of all jobs is compared when the first of them ends");
    }
    if looks_ahead {
        return Err("receivers read lists of senders that are not in packets here");
    }
    let partition = Partition::new(topology, config.threads, &workload.homes());
    if partition.parts() == 1 {
        return Err(
            "all hosts hang on one switch, or make each other send without a packet between",
        );
    }
    Ok(partition)
}
