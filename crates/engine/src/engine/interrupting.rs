//! Episodes that are cut off from outside.

use std::sync::Arc;

use parking_lot::Mutex;
use rollhouse_core::{Interruption, LaneSet};

use super::Engine;
use crate::StepError;

impl Engine {
    /// Ends every open episode with that outcome; their lanes wait for a reset, which autoreset gives them.
    ///
    /// # Errors
    /// Only [`StepError::Hung`].
    pub fn interrupt(&mut self, cause: Interruption) -> Result<(), StepError> {
        self.lockstep()?;
        self.on_blocks(false, move |block, _| block.interrupt(LaneSet::ALL, cause))
    }

    /// Marks rows of the newest frame as truncated, for owners whose lanes' episodes were cut from outside.
    ///
    /// # Errors
    /// Only [`StepError::Hung`].
    pub fn mark_truncated(&mut self, lanes: &[u32]) -> Result<(), StepError> {
        self.lockstep()?;
        let lanes = lanes.to_vec();
        self.on_blocks(false, move |block, rows| {
            let range = block.rows().clone();
            rows.with_block(&range, |rows| {
                let here = lanes.iter().map(|&lane| lane as usize).filter(|lane| range.contains(lane));
                here.for_each(|lane| rows.truncated[lane - range.start] = 1);
            });
        })
    }

    /// Ends the open episodes of some lanes with that outcome; they wait for a reset, which autoreset gives them. Returns those
    /// that had one, ascending. Late lanes that were sent stay so, and are not among `lanes`.
    ///
    /// # Errors
    /// Only [`StepError::Hung`].
    #[cold]
    pub fn interrupt_lanes(&mut self, lanes: &[u32], cause: Interruption) -> Result<Vec<u32>, StepError> {
        if self.first_done.is_some() && self.crews.own.late {
            let blocks = self.crews.own.blocks.iter_mut();
            return Ok(blocks.flat_map(|block| block.interrupt_rows(lanes, cause)).collect());
        }
        self.lockstep()?;
        let (rows, interrupted) = (lanes.to_vec(), Arc::new(Mutex::new(Vec::new())));
        let collect = Arc::clone(&interrupted);
        self.on_blocks(false, move |block, _| collect.lock().extend(block.interrupt_rows(&rows, cause)))?;
        let mut interrupted = std::mem::take(&mut *interrupted.lock());
        interrupted.sort_unstable();
        Ok(interrupted)
    }
}
