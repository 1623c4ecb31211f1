//! Translation of the user's configuration into that of the parts of a simulation.

use std::sync::Arc;

use super::config::{Contexts, RoceConfig, SimConfig, SimError, SquallConfig, Transport};
use super::endpoint::Endpoint;
use super::host::{Sizes, Stack};
use super::incasts::Incasts;
use super::outbox::Extra;
use super::roce::{Roce, RoceParameters};
use crate::Picos;
use crate::facts::base_rtt;
use crate::model::{Ground, NetworkConfig, Planes};
use crate::workload::Workload;
use squall_base::{Rate, Span};
use squall_cc::Scope;
use squall_reliability::{Config, NOMINAL_OVERHEAD, UnknownDetector};

/// Configuration that all parts of a simulation share.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) network: NetworkConfig,
    pub(super) sizes: Sizes,
    pub(super) per_pair: bool,
    stack: StackConfig,
    seed: u64,
}

/// Configuration of the hosts' transport.
#[derive(Debug)]
enum StackConfig {
    /// The transport of this project, with the incasts that senders announce, and the planes of
    /// which each has contexts of its own.
    Squall(Arc<Config>, Option<Arc<Incasts>>, Planes),
    Roce(Arc<RoceParameters>),
}

impl Setup {
    /// Returns which contexts share one instance of congestion control; `None` for the baseline,
    /// which has no choice.
    pub(super) fn scope(&self) -> Option<Scope> {
        match &self.stack {
            StackConfig::Squall(config, ..) => Some(config.scope),
            StackConfig::Roce(_) => None,
        }
    }

    pub(super) fn new(config: &SimConfig, workload: &Workload) -> Result<Self, SimError> {
        config.topology.check().map_err(|error| SimError::Topology(error.to_string()))?;
        workload.check()?;
        let hosts = config.topology.hosts;
        if workload.hosts > hosts {
            let text =
                format!("the workload needs {} hosts, the topology has {hosts}", workload.hosts);
            return Err(SimError::Topology(text));
        }
        let host = &config.host;
        if host.control < 64
            || host.header < NOMINAL_OVERHEAD
            || host.mtu <= host.header
            || host.mtu > 65_000
        {
            return Err(SimError::Parameter(format!(
                "packets of {} bytes with {} of headers, and of {} without data; at least {NOMINAL_OVERHEAD} of headers, \
                 at least 64 without data, and at most 65000 in all are possible",
                host.mtu, host.header, host.control
            )));
        }
        if config.topology.longest_route().links == 0 {
            let text = "no two hosts are connected; a simulation needs two that are";
            return Err(SimError::Topology(text.into()));
        }
        let (topology, options) = (&config.topology, &config.network);
        let link = options.card(topology.host_rate(), 1.0).unwrap_or_else(|| topology.host_rate());
        let rtt =
            topology.longest_route().round_trip(link, host.mtu, host.control, options.switching());
        // The product is in whole packets, as htsim counts (`calculate_bdp_pkt`). Queues of ports
        // relate to a link, and windows of hosts to all links of a host.
        let bdp = link.bytes_in(rtt.span()).div_ceil(host.mtu.into());
        let line = Rate(link.0.saturating_mul(topology.planes().into()));
        let network = options.settle(&Ground {
            bdp_packets: bdp,
            bdp_bytes: &|| {
                link.0 as f64 / 8e12 * base_rtt(topology, host.mtu, options.switching()).0 as f64
            },
            packet: host.mtu,
            trimmed: host.control,
            least: 0,
            line: topology.host_rate(),
            rtt: rtt.span(),
            ahead: Span::ZERO,
            rates: 1.0,
            times: 1.0,
            reroute_us: 0.0,
            seed: config.seed,
        })?;
        if topology.planes() > 1 && (network.lossless.is_some() || !network.features.is_empty()) {
            return Err(SimError::Parameter(format!(
                "hosts of {} links in a lossless network, or with switch features: cards that pause and features \
                 know one link a host; expected neither, or hosts of one link",
                topology.planes()
            )));
        }
        let sizes = Sizes { mtu: host.mtu, header: host.header, control: host.control };
        let stack = match &host.transport {
            Transport::Squall(squall) => {
                let transport = transport(config, squall, (link, line), rtt, &network)?;
                let incasts =
                    squall.look_ahead.map(|spread| Arc::new(Incasts::of(workload, spread)));
                let planes =
                    if squall.per_plane { Planes::of(topology) } else { Planes::default() };
                StackConfig::Squall(Arc::new(transport), incasts, planes)
            }
            Transport::Roce(roce) => {
                StackConfig::Roce(Arc::new(baseline(config, roce, line, rtt, &network)?))
            }
        };
        let contexts = match &host.transport {
            Transport::Squall(squall) => squall.contexts,
            Transport::Roce(roce) => roce.contexts,
        };
        let per_pair = contexts == Contexts::PerPair;
        Ok(Self { network, sizes, per_pair, stack, seed: config.seed })
    }

    /// Returns the congestion control of the senders.
    pub(super) fn sender(&self) -> &squall_cc::SenderConfig {
        match &self.stack {
            StackConfig::Squall(config, ..) => &config.cc,
            StackConfig::Roce(config) => &config.sender,
        }
    }

    /// Returns the path selection; `None` for the baseline, which has one path per queue pair.
    pub(super) fn paths(&self) -> Option<&squall_cc::PathsConfig> {
        match &self.stack {
            StackConfig::Squall(config, ..) => Some(&config.paths),
            StackConfig::Roce(_) => None,
        }
    }

    /// Returns the minimum retransmission timeout.
    pub(super) fn rto(&self) -> Picos {
        match &self.stack {
            StackConfig::Squall(config, ..) => Picos::from_span(config.rto_min),
            StackConfig::Roce(config) => config.rto,
        }
    }

    /// Creates what packets must carry in addition to their bodies; `None` if nothing is needed.
    pub(super) fn extra(&self) -> Option<Extra> {
        match &self.stack {
            StackConfig::Squall(config, ..) => {
                Extra::new(config.acks.telemetry, config.uses_rates(), &self.network.features)
            }
            StackConfig::Roce(_) => None,
        }
    }

    /// Creates the transport of `host`.
    pub(super) fn stack(&self, host: u32) -> Stack {
        let seed = (u64::from(host) << 32 ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match &self.stack {
            StackConfig::Squall(config, incasts, planes) => {
                Stack::Squall(Endpoint::new(Arc::clone(config), seed, incasts.clone(), *planes))
            }
            StackConfig::Roce(config) => Stack::Roce(Roce::new(Arc::clone(config), seed)),
        }
    }
}

/// Computes the configuration of this project's transport, for hosts that send at `link` over each
/// of their links, and at `line` over all.
fn transport(
    config: &SimConfig,
    squall: &SquallConfig,
    (link, line): (Rate, Rate),
    rtt: Picos,
    network: &NetworkConfig,
) -> Result<Config, SimError> {
    let refuse = |error: &dyn core::fmt::Display| SimError::Transport(error.to_string());
    // A context has a window for the planes that it uses: all, or one.
    let rate = if squall.per_plane { link } else { line };
    let known =
        squall_cc::NetworkProfile::new(rate, rtt.span(), config.host.mtu, config.network.trims());
    let cc =
        squall_cc::SenderConfig::by_name(&squall.cc, &known).map_err(|error| refuse(&error))?;
    if cc.acks().telemetry && !config.network.telemetry {
        return Err(SimError::Transport(format!(
            "{} needs what switches write into packets, and these write nothing; expected a network with \
             `telemetry`, or another algorithm",
            cc.name()
        )));
    }
    if cc.receiver(&known) == squall_cc::ReceiverConfig::Rates && !network.needs().rates {
        return Err(SimError::Transport(format!(
            "{} has the rate that switches compute, and these compute none; expected a network with a feature that does \
             (`rates`), or another algorithm",
            cc.name()
        )));
    }
    let paths = squall_cc::PathsConfig::by_name(&squall.lb, squall.paths)
        .map_err(|error| refuse(&error))?;
    if let Some(feature) = network.message_feature()
        && !paths.is_single_path()
    {
        return Err(SimError::Transport(format!(
            "{} takes several paths, and a network with `{feature}` keeps messages in order on one; expected {}",
            squall.lb,
            single_path_selectors(squall.paths)
        )));
    }
    let scope = Scope::by_name(&squall.scope, &cc).map_err(|error| refuse(&error))?;
    let mut transport = Config::new(config.host.mtu - NOMINAL_OVERHEAD, cc, paths, 0);
    transport.trim_enabled = config.network.trims();
    transport.loss = squall.loss.parse().map_err(|error: UnknownDetector| refuse(&error))?;
    transport.scope = scope;
    transport = transport.reciprocal(&known);
    match &mut transport.receiver {
        // Only the hosts of the topology can be senders.
        squall_cc::ReceiverConfig::Shares(dart) if !squall.per_plane => {
            dart.sources = config.topology.hosts;
        }
        _ if squall.look_ahead.is_some() => {
            return Err(SimError::Transport(format!(
                "`look_ahead_us` is for receivers that count senders, and those of {} do not; expected dart without \
                 `per_plane`, or none of it",
                transport.cc.name()
            )));
        }
        _ => {}
    }
    transport.ack_trigger = squall.ack_bytes;
    // The default is htsim's: 15 us and six full queues (main_uec.cpp, `_min_rto`).
    let rto = squall
        .rto_min
        .unwrap_or_else(|| Picos::micros(15) + Picos::transmit(link, network.queue) * 6);
    transport.rto_min = rto.span();
    transport.rto_init = rto.span();
    transport.rto_max = transport.rto_max.max(rto.span());
    transport.ack_delay = transport.ack_delay.min(rtt.span()).max(Span(1));
    // A simulated card answers at once; the default of the library allows for processes that are
    // not running.
    transport.probe_min = rtt.span();
    transport.contact_deadline = squall.give_up.span();
    transport.progress_deadline = squall.give_up.span();
    if squall.train_bytes == 0 {
        transport.train_packets = 1;
    } else {
        transport.train_bytes = squall.train_bytes;
    }
    // A simulated host does not limit the contexts of a single peer.
    transport.max_accepted = transport.max_contexts;
    transport.check().map_err(|error| refuse(&error))?;
    Ok(transport)
}

/// Returns the names of the selectors that keep a flow on one of `paths` paths, for a message.
fn single_path_selectors(paths: u16) -> String {
    let known = squall_cc::PathsConfig::NAMES.iter().map(|(name, _)| *name);
    let single = known.filter(|name| {
        squall_cc::PathsConfig::by_name(name, paths).is_ok_and(|paths| paths.is_single_path())
    });
    single.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
}

/// Computes the parameters of the baseline.
fn baseline(
    config: &SimConfig,
    roce: &RoceConfig,
    line: Rate,
    rtt: Picos,
    network: &NetworkConfig,
) -> Result<RoceParameters, SimError> {
    let refuse = |error: &dyn core::fmt::Display| SimError::Transport(error.to_string());
    if let Some(feature) = network.message_feature() {
        return Err(SimError::Transport(format!(
            "a network with `{feature}` needs packets that name their message, and those of RoCEv2 do not; expected \
             stack `squall`"
        )));
    }
    if roce.qps == 0 || roce.rto == Picos::ZERO {
        let text = format!(
            "{} queue pairs and a time-out of {}; both above 0 are possible",
            roce.qps, roce.rto
        );
        return Err(SimError::Parameter(text));
    }
    let known = squall_cc::NetworkProfile::new(line, rtt.span(), config.host.mtu, false);
    let sender =
        squall_cc::SenderConfig::by_name(&roce.cc, &known).map_err(|error| refuse(&error))?;
    if sender.acks().telemetry {
        let text = format!(
            "{} needs what switches write into packets; RoCEv2 sends nothing of it back",
            sender.name()
        );
        return Err(SimError::Transport(text));
    }
    let receiver = sender.receiver(&known);
    if receiver == squall_cc::ReceiverConfig::Rates {
        let text = format!(
            "{} has the rate that switches compute; RoCEv2 asks none for one, stack `squall` does",
            roce.cc
        );
        return Err(SimError::Transport(text));
    }
    if let squall_cc::ReceiverConfig::Shares(_) = receiver {
        let text = format!(
            "{}: RoCE's acknowledgements carry no shares; dart is possible with stack `squall`",
            roce.cc
        );
        return Err(SimError::Transport(text));
    }
    Ok(RoceParameters {
        receiver,
        sender,
        line,
        qps: roce.qps,
        keep: roce.contexts == Contexts::PerPair,
        rto: roce.rto,
        ack_packets: 4,
        sizes: Sizes {
            mtu: config.host.mtu,
            header: config.host.header,
            control: config.host.control,
        },
    })
}
