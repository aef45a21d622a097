//! What those who chose the actions noted of one step.

use rollhouse_core::{ColumnData, ColumnSpec};
use rollhouse_replay::Episode;

/// Returns what was noted of the step after `before` others: one row of each step column.
pub(crate) fn noted_of(episode: &Episode, before: u64) -> Vec<(&ColumnSpec, ColumnData)> {
    let columns = episode.info.run.step_columns.specs().iter().zip(&episode.step_columns);
    let row = |(spec, column): (&'_ ColumnSpec, &ColumnData)| {
        column.row(before as usize, spec.elements()).map(ColumnData::from)
    };
    columns.filter_map(|column| Some((column.0, row(column)?))).collect()
}
