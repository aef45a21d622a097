//! The summary of a figure that a bench measured several times.

use serde::Serialize;

#[derive(Debug, Serialize)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

impl Spread {
    pub(crate) fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let at = |index: usize| figures.get(index).copied().unwrap_or(f64::NAN);
        let last = figures.len().saturating_sub(1);
        Self { min: at(0), median: (at(figures.len() / 2) + at(last / 2)) / 2.0, max: at(last) }
    }

    pub(crate) fn row(&self, what: &str, scale: f64, decimals: usize, unit: &str) -> Vec<String> {
        let figure = |value: f64| format!("{:.decimals$}", value * scale);
        vec![what.to_owned(), figure(self.min), figure(self.median), figure(self.max), unit.to_owned()]
    }
}
