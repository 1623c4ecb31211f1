//! The discrete-event driver: virtual time in picoseconds, hosts that run the real transport, and the
//! network of [`crate::model`] between them.

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
mod series;
mod setup;
mod told;

pub use config::{
    Contexts, HostConfig, Intake, Observe, RoceConfig, SimConfig, SimError, SquallConfig, Transport,
};
pub use results::{
    End, FlowResult, Observer, PortLoad, PortSeries, Results, Series, Totals, Unfinished,
    WindowSeries,
};
pub use run::{Simulation, divide};
pub use told::Told;

#[cfg(test)]
mod tests;
