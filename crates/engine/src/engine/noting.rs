//! What owners and envs note of each step.

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnRef, DType, Role, StepColumns};
use rollhouse_replay::RunRecorder;

use super::Engine;
use crate::error::StepError;

impl Engine {
    /// Returns the columns in which something can be noted of each step: those of the run that is recorded.
    pub const fn step_columns(&self) -> &StepColumns {
        &self.recording.step_columns
    }

    /// Notes what step column `column` has in the steps that lanes take from now on, for recordings: one row of `values`
    /// for each of `lanes`, or without them for each lane of the batch. It stays so until something else is noted. Of
    /// lanes that were never noted, columns of floats have NaN and others 0.
    ///
    /// # Errors
    /// [`StepError::StepColumn`], [`StepError::Length`], [`StepError::NoSuchLane`], [`StepError::Hung`], and
    /// [`StepError::LaneOutstanding`] for a lane that was sent and not received. Nothing is noted then.
    pub fn note(
        &mut self,
        column: usize,
        lanes: Option<&[u32]>,
        values: ColumnRef<'_>,
    ) -> Result<(), StepError> {
        if self.hung {
            return Err(StepError::Hung);
        }
        if self.in_parts.is_some() {
            self.finish_parts()?;
        }
        let elements = self.check_note(column, lanes, values)?;
        let of_rows = |from: usize, to: usize| values.slice(from * elements, to * elements);
        let Some(lanes) = lanes else {
            let rows = self.lanes();
            for (block, status) in self.status.iter().enumerate() {
                let first = block * BLOCK_LANES;
                let set = status.noted.set(column, 0, of_rows(first, rows.min(first + BLOCK_LANES)));
                debug_assert!(set, "the board has the run's columns");
            }
            return Ok(());
        };
        for (row, &lane) in lanes.iter().enumerate() {
            let (block, lane) = (lane as usize / BLOCK_LANES, lane as usize % BLOCK_LANES);
            let set = self.status[block].noted.set(column, lane, of_rows(row, row + 1));
            debug_assert!(set, "the board has the run's columns");
        }
        Ok(())
    }

    /// Refuses what [`Engine::note`] does, and returns the number of elements in a row of the column.
    pub(crate) fn check_note(
        &self,
        column: usize,
        lanes: Option<&[u32]>,
        values: ColumnRef<'_>,
    ) -> Result<usize, StepError> {
        let Some(spec) =
            self.recording.step_columns.specs().get(column).filter(|spec| holds(spec.dtype, values))
        else {
            return Err(StepError::StepColumn { column, dtype: values.dtype() });
        };
        let (elements, rows) = (spec.elements(), lanes.map_or(self.lanes(), <[u32]>::len));
        if values.len() != rows * elements {
            let (what, given) = ("elements of a step column", values.len());
            return Err(StepError::Length { what, given, wanted: rows * elements });
        }
        match lanes {
            None => self.refuse_outstanding()?,
            Some(lanes) => lanes.iter().try_for_each(|&lane| self.refuse_note(lane as usize))?,
        }
        Ok(elements)
    }

    fn refuse_note(&self, lane: usize) -> Result<(), StepError> {
        if lane >= self.lanes() {
            return Err(StepError::NoSuchLane { lane, lanes: self.lanes() });
        }
        match &self.first_done {
            Some(books) if books.outstanding[lane] => Err(StepError::LaneOutstanding { lane }),
            _ => Ok(()),
        }
    }

    /// Takes over the step columns of a run that is recorded from now on.
    pub(super) fn begin_noting(&mut self, run: &RunRecorder) {
        self.recording.step_columns = run.step_columns().clone();
        let columns = &self.recording.step_columns;
        let channels = self.entry.spec().info_channels.iter().enumerate();
        let noted = channels.filter(|(_, channel)| channel.role == Role::StepColumn);
        let of_env = noted.filter_map(|(at, channel)| Some((at, columns.place(&channel.path)?)));
        let of_env: Vec<_> = of_env.collect();
        for (block, status) in self.status.iter().enumerate() {
            let lanes = BLOCK_LANES.min(self.config.lanes - block * BLOCK_LANES);
            status.noted.begin(self.recording.step_columns.unknown(lanes), of_env.clone());
        }
    }
}

/// Returns whether a column of that type takes the values. Booleans are bytes that are 0 or 1.
fn holds(dtype: DType, values: ColumnRef<'_>) -> bool {
    match (dtype, values) {
        (DType::Bool, ColumnRef::U8(values)) => values.iter().all(|&value| value <= 1),
        (dtype, values) => dtype == values.dtype(),
    }
}
