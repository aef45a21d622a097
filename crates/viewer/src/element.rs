//! The elements of an observation and of infos, which a screen shows in lines.

use rollhouse_core::{ColumnData, ColumnSpec, Role};
use rollhouse_replay::PlayedStep;

use crate::numbers::plain;

/// An element that is shown in a line.
#[derive(Debug)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) place: ElementPlace,
}

/// The place of an element in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ElementPlace {
    pub(crate) part: StepPart,
    pub(crate) column: usize,
    pub(crate) index: usize,
}

/// What a step shows in columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepPart {
    Observation,
    Infos,
}

impl Element {
    pub(crate) fn value(&self, step: &PlayedStep) -> f64 {
        self.place.value(step).unwrap_or(f64::NAN)
    }
}

impl ElementPlace {
    /// Returns its value in a step; `None` where the step does not have the column.
    pub(crate) fn value(self, step: &PlayedStep) -> Option<f64> {
        let columns: &[ColumnData] = match self.part {
            StepPart::Observation => &step.obs,
            StepPart::Infos => &step.infos,
        };
        columns.get(self.column).map(|column| column.number(self.index))
    }
}

/// Returns the elements that are shown: the first ones of columns that are no images, and then those of infos, which are
/// called `info/` and their path.
pub(crate) fn elements_of(observation: &[ColumnSpec], infos: &[ColumnSpec]) -> Vec<Element> {
    let observation = elements_in(StepPart::Observation, "", observation);
    let all = observation.chain(elements_in(StepPart::Infos, "info/", infos));
    all.take(MAX_ELEMENTS).collect()
}

fn elements_in<'a>(
    part: StepPart,
    before: &'static str,
    columns: &'a [ColumnSpec],
) -> impl Iterator<Item = Element> + 'a {
    let is_shown = |spec: &ColumnSpec| spec.shape.len() < 2 && spec.role != Role::ActionMask;
    let columns = columns.iter().enumerate().filter(move |(_, spec)| is_shown(spec));
    columns.flat_map(move |(column, spec)| {
        (0..spec.elements()).map(move |index| {
            let path = if spec.path.is_empty() || spec.names.is_empty() { "" } else { &spec.path };
            let dot = if path.is_empty() { "" } else { "." };
            let name = plain(&format!("{before}{path}{dot}{}", spec.element_name(index)));
            Element { name, place: ElementPlace { part, column, index } }
        })
    })
}

/// Most elements that can be shown.
const MAX_ELEMENTS: usize = 256;
