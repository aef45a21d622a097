//! The method that notes values of step columns.

use rollhouse_core::limits::MAX_STEP_COLUMNS;
use rollhouse_core::{ColumnData, DType, bounded_list, messages};
use serde::{Deserialize, Serialize};

use crate::command::{CommandError, CommandLanes, Effect, Method, Nothing};
use crate::error::StepError;

/// Method that notes what step columns have in the steps that lanes take from now on, for recordings.
#[derive(Debug, Clone, Copy)]
pub struct NoteSteps;

/// Params of [`NoteSteps`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteParams {
    /// Lanes that are meant.
    pub lanes: Vec<u32>,
    /// Columns that are noted.
    #[serde(deserialize_with = "bounded_list::<_, MAX_STEP_COLUMNS, _>")]
    pub columns: Vec<NotedColumn>,
}

/// Rows of a step column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedColumn {
    /// Place of the column among those of the run.
    pub column: u32,
    /// A row for each of the lanes: little-endian elements.
    #[serde(with = "serde_bytes")]
    pub values: Vec<u8>,
}

impl Method for NoteSteps {
    const NAME: &'static str = "note";
    const REPEATABLE: bool = true;
    const EFFECT: Effect = Effect::None;
    type Params = NoteParams;
    type Answer = Nothing;

    fn run(lanes: &mut CommandLanes<'_>, params: NoteParams) -> Result<Nothing, CommandError> {
        if lanes.are_recorded() && !lanes.engine.is_recording() {
            // Their columns come with the recording.
            return Err(StepError::NotReset.into());
        }
        let read = params.columns.into_iter().map(|NotedColumn { column, values }| {
            let column = column as usize;
            let dtype = lanes.engine.step_columns().specs().get(column).map_or(DType::U8, |spec| spec.dtype);
            let mut rows = ColumnData::zeros(dtype, 0);
            if rows.extend_le(&values) {
                Ok((column, rows))
            } else {
                Err(StepError::StepColumn { column, dtype })
            }
        });
        let read = read.collect::<Result<Vec<_>, _>>()?;
        // All are looked at before the first is noted.
        for (column, rows) in &read {
            lanes.engine.check_note(*column, Some(&params.lanes), rows.as_ref())?;
        }
        for (column, rows) in &read {
            lanes.engine.note(*column, Some(&params.lanes), rows.as_ref())?;
        }
        Ok(Nothing {})
    }
}

messages!(NoteParams);
