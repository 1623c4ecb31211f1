//! Results: the record of a run ([`Run`]), numbers that are computed from it ([`Metric`]), and
//! files: JSON for programs ([`files`]), CSV and (with the feature `parquet`) Parquet of
//! [`Table`]s, a timeline for Perfetto ([`perfetto()`]), tables for people ([`text`]).
//!
//! A [`Run`] is plain data that is read back as it was written, so reports are made from files and
//! do not need the simulator again.

mod bottleneck;
pub mod files;
mod metrics;
#[cfg(feature = "parquet")]
mod parquet;
mod perfetto;
mod provenance;
mod record;
mod sizes;
mod table;
pub mod text;
#[cfg(not(feature = "parquet"))]
mod without_parquet;

pub use bottleneck::Bottleneck;
pub use metrics::{Metric, UnknownMetric};
pub use perfetto::perfetto;
pub use provenance::{Origin, Provenance};
pub use record::{
    Event, FlowResult, LinkLoad, NetworkFacts, Operations, Run, Series, SeriesKind, Totals,
};
pub use sizes::Sizes;
pub use table::{Cells, Column, Table};

#[cfg(test)]
mod tests;
