//! The elements of an observation, which a screen shows in lines.

use rollhouse_core::ColumnSpec;
use rollhouse_replay::PlayedStep;

use crate::numbers::plain;

/// An element of an observation that is shown in a line.
#[derive(Debug)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) column: usize,
    pub(crate) index: usize,
}

impl Element {
    pub(crate) fn value(&self, step: &PlayedStep) -> f64 {
        step.obs.get(self.column).map_or(f64::NAN, |column| column.number(self.index))
    }
}

/// Returns the elements that are shown: the first ones of columns that are no images.
pub(crate) fn elements_of(columns: &[ColumnSpec]) -> Vec<Element> {
    let columns = columns.iter().enumerate().filter(|(_, spec)| spec.shape.len() < 2);
    let all = columns.flat_map(|(column, spec)| {
        (0..spec.elements()).map(move |index| {
            let path = if spec.path.is_empty() || spec.names.is_empty() { "" } else { &spec.path };
            let dot = if path.is_empty() { "" } else { "." };
            Element { name: plain(&format!("{path}{dot}{}", spec.element_name(index))), column, index }
        })
    });
    all.take(MAX_ELEMENTS).collect()
}

/// Most elements of an observation that can be shown.
const MAX_ELEMENTS: usize = 256;
