//! The discrete-event driver: virtual time in picoseconds, hosts that run the real transport, and
//! the network of [`crate::model`] between them.

mod config;
mod endpoint;
mod flows;
mod host;
mod incasts;
mod lockstep;
mod memory;
mod outbox;
mod packet;
mod part;
mod results;
mod roce;
mod run;
mod run_settings;
mod series;
mod setup;

pub use config::{
    Contexts, HostConfig, Intake, Observe, RoceConfig, SimConfig, SimError, SquallConfig, Transport,
};
pub use results::{
    End, FlowResult, Observer, PortLoad, PortSeries, Results, Series, Totals, UnfinishedReason,
    WindowSeries,
};
pub use run::{Simulation, divide};
pub use run_settings::RunSettings;

#[cfg(test)]
mod tests;
