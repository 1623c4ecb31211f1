//! Settings of a simulation, by the keys of a plan and with all defaults, to be stored with its
//! results.

use super::config::{Contexts, SimConfig, Transport};
use super::setup::Setup;
use crate::settings::Settings;
use squall_cc::{PathsConfig, Setting};

/// Settings of one simulation, and the values derived from them.
#[derive(Clone, Debug, Default)]
pub struct RunSettings {
    /// Settings that a user can choose.
    pub settings: Settings,
    /// Values derived from the settings.
    pub derived: Settings,
}

impl RunSettings {
    pub(super) fn of(config: &SimConfig, setup: &Setup) -> Self {
        let mut all = Self::default();
        all.settings.set("seed", config.seed);
        all.settings.set("observe.until_us", config.until.as_micros());
        all.settings.set_table("network", &config.network);
        all.settings.set("network.trimming", config.network.trims());
        all.transport(config, setup);
        all.derived(config, setup);
        all
    }

    fn transport(&mut self, config: &SimConfig, setup: &Setup) {
        let (host, to) = (&config.host, &mut self.settings);
        let mut set = |key: &str, value: String| to.set(format!("transport.{key}"), value);
        set("mtu", host.mtu.to_string());
        set("host_delay_ns", host.delay.span().0.to_string());
        set("host_jitter_ns", host.jitter.span().0.to_string());
        if let Some(intake) = host.intake {
            set("host_gbps", (intake.rate.0 / 1_000_000_000).to_string());
            set("host_buffer", intake.buffer.to_string());
        }
        let contexts = match &host.transport {
            Transport::Squall(squall) => {
                set("stack", "squall".to_owned());
                set("cc", squall.cc.clone());
                set("lb", squall.lb.clone());
                set("loss", squall.loss.clone());
                set("scope", setup.scope().unwrap_or_default().to_string());
                set("paths", squall.paths.to_string());
                set("ack_bytes", squall.ack_bytes.to_string());
                set("train_bytes", squall.train_bytes.to_string());
                if squall.per_plane {
                    set("per_plane", true.to_string());
                }
                if let Some(spread) = squall.look_ahead {
                    set("look_ahead_us", spread.as_micros().to_string());
                }
                if let Some(rto) = squall.rto_min {
                    set("rto_us", rto.as_micros().to_string());
                }
                squall.contexts
            }
            Transport::Roce(roce) => {
                set("stack", "roce".to_owned());
                set("cc", roce.cc.clone());
                set("qps", roce.qps.to_string());
                set("rto_us", roce.rto.as_micros().to_string());
                roce.contexts
            }
        };
        set("per_pair", (contexts == Contexts::PerPair).to_string());
    }

    fn derived(&mut self, config: &SimConfig, setup: &Setup) {
        let to = &mut self.derived;
        let (topology, network) = (&config.topology, &setup.network);
        to.set("topology.hosts", topology.hosts);
        to.set("topology.switches", topology.switches.len());
        to.set("topology.links", topology.links.len());
        if topology.planes() > 1 {
            to.set("topology.planes", topology.planes());
            to.set("topology.link_gbps", topology.host_rate().0 as f64 / 1e9);
        }
        to.set("network.queue_bytes", network.queue);
        if network.ecn_max < u64::MAX {
            to.set("network.ecn_from_bytes", network.ecn_min);
            to.set("network.ecn_to_bytes", network.ecn_max);
        }
        to.set("transport.rto_us", setup.rto().as_micros());
        let mut algorithm = |name: &str, settings: Vec<Setting>| {
            for setting in settings {
                to.set(format!("{name}.{}", setting.name), setting.value);
            }
        };
        algorithm("transport.cc", setup.sender().settings());
        algorithm("transport.lb", setup.paths().map_or_else(Vec::new, PathsConfig::settings));
    }
}
