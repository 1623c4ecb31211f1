//! Samples of the queues and flows of a simulation over time.

use super::config::Observe;
use super::flows::Flows;
use super::host::{Allowance, Host};
use super::results::{PortSeries, Series, WindowSeries};
use crate::Picos;
use crate::model::Switches;
use crate::topology::Node;

/// Collects samples of queues and flows when the simulation calls it.
#[derive(Debug)]
pub(super) struct Recorder {
    observe: Observe,
    series: Series,
}

impl Recorder {
    pub(super) fn new(observe: &Observe, network: &Switches<u32>) -> Self {
        let mut series = Series::default();
        if observe.queues.is_some() {
            let topology = network.topology();
            let of_switches =
                (0..network.len()).filter(|&port| matches!(topology.from(port), Node::Switch(_)));
            series.queues = of_switches
                .map(|port| PortSeries { port, name: topology.port_name(port), bytes: Vec::new() })
                .collect();
        }
        Self { observe: *observe, series }
    }

    /// Takes a sample of all queues. Returns the time until the next sample.
    pub(super) fn queues(&mut self, now: Picos, network: &Switches<u32>) -> Picos {
        self.series.queue_times.push(now);
        for series in &mut self.series.queues {
            series.bytes.push(network.port(series.port).queued(now));
        }
        self.observe.queues.unwrap_or(Picos::NEVER).max(Picos(1))
    }

    /// Takes a sample of all flows. Returns the time until the next sample.
    pub(super) fn windows(&mut self, now: Picos, hosts: &[Host], flows: &Flows) -> Picos {
        let windows = &mut self.series.windows;
        if windows.is_empty() {
            windows.extend(flows.graph.flows().iter().map(|flow| WindowSeries {
                flow: flow.id,
                cwnd: Vec::new(),
                in_flight: Vec::new(),
                rate: Vec::new(),
                delivered: Vec::new(),
            }));
        }
        self.series.window_times.push(now);
        for (series, flow) in windows.iter_mut().zip(&flows.running) {
            let host = &hosts[flow.src as usize];
            let running = flow.start <= now && flow.done > now;
            let allowance =
                if running { host.allowance(flow.context) } else { Allowance::default() };
            series.cwnd.push(allowance.window);
            series.in_flight.push(allowance.in_flight);
            series.rate.push(allowance.rate);
            series.delivered.push(flow.received);
        }
        self.observe.windows.unwrap_or(Picos::NEVER).max(Picos(1))
    }

    /// Returns all samples. Ports whose data queue was always empty are left out.
    pub(super) fn finish(mut self) -> Series {
        self.series.queues.retain(|series| series.bytes.iter().any(|&bytes| bytes > 0));
        self.series
    }
}
