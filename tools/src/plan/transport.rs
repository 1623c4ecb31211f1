//! `[transport]`: the stack that hosts run, and their properties.

use serde::Deserialize;
use toml::Table;

use super::keys::Keys;
use super::scene::{HEADER, SceneError, fault};
use squall_base::Rate;
use squall_netsim::sim::{Contexts, Intake, RoceConfig, SimConfig, SquallConfig, Transport};
use squall_netsim::{Bytes, Picos};

/// Default size of the receive buffer of hosts with limited intake, bytes.
const RECEIVE_BUFFER: u64 = 4 << 20;
/// Largest packet that a plan may set, bytes.
const MOST_MTU: u32 = 65_000;

/// The table `[transport]` of a plan.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TransportTable {
    /// Keys that are the same for every stack.
    pub host: HostTable,
    /// Transport stack of the hosts, with its keys.
    pub stack: Stack,
}

/// The kind of transport stack that hosts run.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stack {
    /// This project's. The stack may be left out.
    Squall(SquallTable),
    /// RoCEv2 with go-back-N, one path and one congestion control a queue pair.
    Roce {
        /// Queue pairs of a connection (default 1).
        qps: Option<u16>,
    },
}

impl Default for Stack {
    fn default() -> Self {
        Self::Squall(SquallTable::default())
    }
}

/// Keys of this project's transport stack.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SquallTable {
    /// Path selection (default `reps-avoid`).
    pub lb: Option<String>,
    /// Loss detection (default `all`).
    pub loss: Option<String>,
    /// Contexts that share one congestion control, as `squall sim --scope help` lists them (default `auto`).
    pub scope: Option<String>,
    /// Entropies (default 64).
    pub paths: Option<u16>,
    /// A receiver acknowledges after so many bytes (default 16384).
    pub ack_bytes: Option<u32>,
    /// Most bytes in a row on one path (default a packet).
    pub train_bytes: Option<u32>,
    /// Hosts with several links: a context, and so a window, for each plane that a flow uses; a packet
    /// goes to the plane whose window has room. Otherwise one for all planes.
    pub per_plane: bool,
    /// Dart's look-ahead: flows to one host that begin within so many microseconds are an incast,
    /// and the first packet of each names all senders (default off).
    pub look_ahead_us: Option<u64>,
}

/// Keys of `[transport]` that are the same for every stack.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct HostTable {
    /// Congestion control (default `nscc`, of a RoCE host `dcqcn`).
    pub cc: Option<String>,
    /// Bytes of a full packet on the wire, 64 of them headers (default 4096, as htsim's).
    pub mtu: Option<u32>,
    /// Smallest retransmission timeout, microseconds.
    pub rto_us: Option<u64>,
    /// Flows between two hosts share a context, or the queue pairs of a connection, one after
    /// another.
    pub per_pair: bool,
    /// Delay of each packet at the receiver, ns.
    pub host_delay_ns: u64,
    /// Further delay of each packet, at random, up to this, ns.
    pub host_jitter_ns: u64,
    /// Hosts take in no more than this, Gb/s (default: whatever arrives).
    pub host_gbps: Option<u64>,
    /// Receive buffer of such a host, bytes; it drops what finds no room (default 4 MiB).
    pub host_buffer: Option<Bytes>,
}

impl HostTable {
    /// Returns the rate at which hosts take in packets, and their buffer, if the plan limits them.
    fn intake(&self, mtu: u32) -> Result<Option<Intake>, SceneError> {
        match (self.host_gbps, self.host_buffer) {
            (None, None) => Ok(None),
            (None, Some(_)) => fault(
                "transport.host_buffer",
                "needs `host_gbps`, the rate at which a host takes packets in",
            ),
            (Some(0), _) => fault("transport.host_gbps", "a rate of 0, expected 1 Gb/s or more"),
            (Some(gbps), buffer) => {
                let buffer = buffer.map_or(RECEIVE_BUFFER, |buffer| buffer.0);
                if buffer < mtu.into() {
                    return fault("transport.host_buffer", "at least a packet is expected");
                }
                Ok(Some(Intake { rate: Rate::gbps(gbps), buffer }))
            }
        }
    }
}

impl TransportTable {
    /// Reads the table `[transport]` from a plan.
    pub(super) fn read(table: Table) -> Result<Self, SceneError> {
        let mut keys = Keys::new("transport", table);
        if !keys.has("stack") {
            keys.set("stack", "squall");
        }
        let read = Self { host: keys.take()?, stack: keys.take_kind("stack")? };
        keys.finish()?;
        Ok(read)
    }

    /// Returns the bytes of a full packet on the wire.
    pub(super) fn mtu(&self) -> Result<u32, SceneError> {
        match self.host.mtu.unwrap_or(4096) {
            mtu if (256..=MOST_MTU).contains(&mtu) => Ok(mtu),
            mtu => fault("transport.mtu", format!("{mtu} bytes, expected 256 to {MOST_MTU}")),
        }
    }

    pub(super) fn apply(&self, config: &mut SimConfig, mtu: u32) -> Result<(), SceneError> {
        let table = &self.host;
        if table.rto_us == Some(0) {
            return fault("transport.rto_us", "a timeout of 0, expected 1 microsecond or more");
        }
        let host = &mut config.host;
        (host.mtu, host.header) = (mtu, HEADER);
        host.delay = Picos::nanos(table.host_delay_ns);
        host.jitter = Picos::nanos(table.host_jitter_ns);
        host.intake = table.intake(mtu)?;
        let text = |given: &Option<String>, default: &str| {
            given.clone().unwrap_or_else(|| default.to_owned())
        };
        let contexts = if table.per_pair { Contexts::PerPair } else { Contexts::PerFlow };
        host.transport = match &self.stack {
            Stack::Squall(squall) => {
                let default = SquallConfig::default();
                Transport::Squall(SquallConfig {
                    cc: text(&table.cc, &default.cc),
                    lb: text(&squall.lb, &default.lb),
                    loss: text(&squall.loss, &default.loss),
                    scope: text(&squall.scope, &default.scope),
                    paths: squall.paths.unwrap_or(default.paths),
                    rto_min: table.rto_us.map(Picos::micros).or(default.rto_min),
                    ack_bytes: squall.ack_bytes.unwrap_or(default.ack_bytes),
                    train_bytes: squall.train_bytes.unwrap_or(default.train_bytes),
                    per_plane: squall.per_plane,
                    look_ahead: squall.look_ahead_us.map(Picos::micros),
                    contexts,
                    ..default
                })
            }
            Stack::Roce { qps } => {
                let default = RoceConfig::default();
                Transport::Roce(RoceConfig {
                    cc: text(&table.cc, &default.cc),
                    qps: qps.unwrap_or(default.qps),
                    rto: table.rto_us.map_or(default.rto, Picos::micros),
                    contexts,
                })
            }
        };
        Ok(())
    }
}
