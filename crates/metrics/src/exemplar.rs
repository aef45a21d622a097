//! Exemplars: single observations that histograms show, with the id of their trace.

use std::collections::BTreeMap;

/// Observation about which logs and traces know more.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar {
    /// Id by which logs and traces name the observation; at most 100 characters.
    pub trace_id: String,
    /// Value of the observation, in the metric's unit.
    pub value: f64,
    /// Time of the observation, in seconds since 1970.
    pub at: f64,
}

/// Exemplars of histograms, by name and values of labels: one place for each bucket, in the order of their bounds.
pub(crate) type Exemplars = BTreeMap<(String, Vec<String>), Vec<Option<Exemplar>>>;
