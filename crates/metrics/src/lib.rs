//! The answers of a process to an operator's tools: its metrics, whether it lives, and whether it is ready.
//!
//! Every metric is a [`Family`] in a table of its subject; a process states its figures as plain numbers when it is
//! asked ([`NodeSample`], [`CoordinatorSample`], [`ArchiveSample`], [`TransportSample`], [`ProcessFigures`]), and an
//! [`Exporter`] holds them in a registry of the `prometheus` crate and prints them, as Prometheus' text or as
//! OpenMetrics. A [`MetricsServer`] answers `/metrics`, `/healthz` and `/readyz` over plain HTTP, read-only, on a
//! thread of its own, so that it answers while every worker is inside a step. `docs/metrics.md` lists each metric with
//! its meaning.
//!
//! | thread or task | runs on | on cancel | on error |
//! |---|---|---|---|
//! | metrics | own thread `rollhouse-metrics`, tokio | drops its listener and connections | its listener is taken up again after 100 ms |
//! | connection | metrics | dropped | that connection ends |
//!
//! Not a goal: counting. Figures are counted where things happen, in atomics or state machines, and only read
//! here; nor pushing them anywhere. Start reading at [`Exporter`].
#![forbid(unsafe_code)]

mod archive;
mod coordinator;
mod exemplar;
mod exporter;
mod family;
mod head;
mod node;
mod open_metrics;
mod process;
mod server;
mod transport;

pub use archive::ArchiveSample;
pub use coordinator::CoordinatorSample;
pub use exemplar::Exemplar;
pub use exporter::{Exporter, ExporterError, Figures};
pub use family::{Family, Histogram, Kind, Page};
pub use node::{
    BudgetSample, EnvSample, LinkSample, NodeSample, PoliciesSample, PolicySample, RecorderSample,
    SessionSample, SpoolSample, ThreadSample, VerdictSample, WatcherSample,
};
pub use process::{ProcessFigures, ProcessSample};
pub use server::{Health, MetricsListener, MetricsServer, ServeError};
pub use transport::{Links, TransportSample};
