//! `[transport]`: what hosts run, and what they are like.

use super::scene::{HEADER, SceneError, fault};
use super::tables::{Stack, TransportTable};
use squall_base::Rate;
use squall_netsim::Picos;
use squall_netsim::sim::{Contexts, Intake, RoceConfig, SimConfig, SquallConfig, Transport};

/// What a slow host keeps at most, unless it is said.
const RECEIVE_BUFFER: u64 = 4 << 20;

impl TransportTable {
    /// How fast hosts take in what arrives, if that is said.
    fn intake(&self, mtu: u32) -> Result<Option<Intake>, SceneError> {
        match (self.host_gbps, self.host_buffer) {
            (None, None) => Ok(None),
            (None, Some(_)) => fault("transport.host_buffer", "only a host with host_gbps has one"),
            (Some(0), _) => fault("transport.host_gbps", "at least 1 is expected"),
            (Some(gbps), buffer) => {
                let buffer = buffer.map_or(RECEIVE_BUFFER, |buffer| buffer.0);
                if buffer < mtu.into() {
                    return fault("transport.host_buffer", "at least a packet is expected");
                }
                Ok(Some(Intake { rate: Rate::gbps(gbps), buffer }))
            }
        }
    }

    pub(super) fn apply(&self, config: &mut SimConfig, mtu: u32) -> Result<(), SceneError> {
        let host = &mut config.host;
        (host.mtu, host.header) = (mtu, HEADER);
        host.delay = Picos::nanos(self.host_delay_ns);
        host.jitter = Picos::nanos(self.host_jitter_ns);
        host.intake = self.intake(mtu)?;
        let text = |given: &Option<String>, default: &str| {
            given.clone().unwrap_or_else(|| default.to_owned())
        };
        let contexts = if self.per_pair { Contexts::PerPair } else { Contexts::PerFlow };
        host.transport = match self.stack {
            Stack::Squall => {
                if self.qps.is_some() {
                    return fault("transport.qps", "belongs to stack `roce`");
                }
                let default = SquallConfig::default();
                Transport::Squall(SquallConfig {
                    cc: text(&self.cc, &default.cc),
                    lb: text(&self.lb, &default.lb),
                    loss: text(&self.loss, &default.loss),
                    scope: text(&self.scope, &default.scope),
                    paths: self.paths.unwrap_or(default.paths),
                    rto_min: self.rto_us.map(Picos::micros).or(default.rto_min),
                    ack_bytes: self.ack_bytes.unwrap_or(default.ack_bytes),
                    train_bytes: self.train_bytes.unwrap_or(default.train_bytes),
                    look_ahead: self.look_ahead_us.map(Picos::micros),
                    contexts,
                    ..default
                })
            }
            Stack::Roce => {
                let others = [
                    ("lb", self.lb.is_some()),
                    ("loss", self.loss.is_some()),
                    ("scope", self.scope.is_some()),
                    ("paths", self.paths.is_some()),
                    ("ack_bytes", self.ack_bytes.is_some()),
                    ("train_bytes", self.train_bytes.is_some()),
                    ("look_ahead_us", self.look_ahead_us.is_some()),
                ];
                for (key, given) in others {
                    if given {
                        let what = "belongs to stack `squall`; RoCE has go-back-N, and one path and \
                                    one congestion control a queue pair";
                        return fault(format!("transport.{key}"), what);
                    }
                }
                let default = RoceConfig::default();
                Transport::Roce(RoceConfig {
                    cc: text(&self.cc, &default.cc),
                    qps: self.qps.unwrap_or(default.qps),
                    rto: self.rto_us.map_or(default.rto, Picos::micros),
                    contexts,
                })
            }
        };
        Ok(())
    }
}
