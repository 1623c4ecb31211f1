//! Results: what is kept of a run ([`Run`]), what is computed from it ([`Metric`]), and how it is
//! written: JSON and CSV for programs ([`files`]), a timeline for Perfetto ([`perfetto()`]), tables for people ([`text`]).
//!
//! A [`Run`] is plain data that is read back as it was written, so reports are made from files and
//! never need the simulator again.

pub mod files;
mod metrics;
mod perfetto;
mod provenance;
mod record;
pub(crate) mod samples;
mod sizes;
pub mod text;

pub use metrics::{Metric, UnknownMetric};
pub use perfetto::perfetto;
pub use provenance::{Origin, Provenance};
pub use record::{
    Event, FlowResult, LinkLoad, NetworkFacts, Operations, Run, Series, SeriesKind, Totals,
};
pub use sizes::Sizes;

#[cfg(test)]
mod tests;
