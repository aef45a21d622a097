//! An exporter, which prints the figures of a process when it is asked.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::{Registry, TextEncoder, proto};

use crate::exemplar::Exemplars;
use crate::family::{Family, Page};
use crate::open_metrics;

/// Source of figures. It is asked once for each scrape, on the thread of the server: it must not block.
pub trait Figures: Send + Sync {
    /// Returns every metric that it may put on a page.
    fn families(&self) -> Vec<&'static Family>;

    /// Puts its present figures on the page.
    fn put(&self, page: &mut Page);
}

/// Exporter of the metrics of a process.
#[derive(Debug, Default)]
pub struct Exporter {
    registry: Registry,
    /// Exemplars of the last time that figures were asked for, which the registry does not keep.
    exemplars: Arc<Mutex<Exemplars>>,
}

/// Reason for which figures were not added, or not printed.
#[derive(Debug, thiserror::Error)]
pub enum ExporterError {
    /// Two metrics have the same name, or a name is malformed.
    #[error("metrics cannot be registered")]
    Register(#[source] prometheus::Error),
    /// The figures cannot be printed.
    #[error("metrics cannot be printed")]
    Encode(#[source] prometheus::Error),
}

impl Exporter {
    /// Makes an exporter without metrics.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds figures.
    ///
    /// # Errors
    /// If one of their metrics is there already or is malformed.
    pub fn add(&mut self, figures: Arc<dyn Figures>) -> Result<(), ExporterError> {
        let desc = |family: &Family| {
            let labels = family.labels.iter().map(|label| (*label).to_owned()).collect();
            Desc::new(family.name.to_owned(), family.help.to_owned(), labels, HashMap::new())
        };
        let descs = figures.families().into_iter().map(desc).collect::<Result<_, _>>();
        let exemplars = Arc::clone(&self.exemplars);
        let source = Source { figures, descs: descs.map_err(ExporterError::Register)?, exemplars };
        self.registry.register(Box::new(source)).map_err(ExporterError::Register)
    }

    /// Returns the present figures in the text format of Prometheus, version 0.0.4, by name.
    ///
    /// # Errors
    /// If they cannot be printed.
    pub fn print(&self) -> Result<String, ExporterError> {
        TextEncoder::new().encode_to_string(&self.registry.gather()).map_err(ExporterError::Encode)
    }
}

impl Exporter {
    /// Returns the present figures in OpenMetrics, version 1.0, which has units and exemplars too.
    pub fn print_open(&self) -> String {
        let exemplars = || self.exemplars.lock();
        exemplars().clear();
        let families = self.registry.gather();
        open_metrics::print(&families, &exemplars())
    }
}

/// Figures in the form in which the registry takes them.
struct Source {
    exemplars: Arc<Mutex<Exemplars>>,
    figures: Arc<dyn Figures>,
    descs: Vec<Desc>,
}

impl Collector for Source {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let mut page = Page::default();
        self.figures.put(&mut page);
        let (families, exemplars) = page.into_parts();
        self.exemplars.lock().extend(exemplars);
        families
    }
}
