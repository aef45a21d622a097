//! The last observations of episodes that ended in a step, as SAME_STEP tells them.
//!
//! A batch of short episodes has some in almost every step, and making a NumPy array costs as much as stepping dozens of
//! lanes. So what was handed out earlier is filled anew once nobody holds it any more, which [`Spare`] finds out by its
//! reference count: whoever keeps an array keeps its numbers.

use pyo3::prelude::*;
use rollhouse_core::{ColumnRef, DType};

use crate::arrays::{RowShape, Spare, SpareObjects, fill_flags, read_flags};

/// What is handed out in turns, so that one step's may still be held while the next one's is made.
#[derive(Default)]
pub(crate) struct Finals {
    turns: [Made; 2],
    newest: usize,
    over_rows: Vec<usize>,
}

#[derive(Default)]
struct Made {
    last: SpareObjects,
    over: Spare,
    /// One per episode that ended in the step with most of them so far.
    rows: Vec<Spare>,
}

impl Finals {
    /// Object array [`rows`] with an observation where an episode ended and None elsewhere, and the mask of that.
    ///
    /// `last` has `obs`-shaped rows; `terminated` and `truncated` have one flag for each.
    pub(crate) fn make<'py>(
        &mut self,
        py: Python<'py>,
        last: ColumnRef<'_>,
        obs: &RowShape,
        terminated: &[u8],
        truncated: &[u8],
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        self.newest ^= 1;
        let made = &mut self.turns[self.newest];
        let (rows, elements) = (terminated.len(), obs.elements());
        let over = made.over.take(py, &RowShape::scalar(DType::Bool), Some(rows))?;
        fill_flags(&over, rows, |flags| write_over(flags, terminated, truncated));
        let spares = &mut made.rows;
        set_rows(read_flags(&over, rows), &mut self.over_rows);
        let values = self.over_rows.iter().enumerate().map(|(nth, &row)| {
            let column = last.slice(row * elements, (row + 1) * elements);
            if obs.shape.is_empty() {
                return Ok((row, obs.copy_row(py, column)?));
            }
            if nth == spares.len() {
                spares.push(Spare::default());
            }
            Ok((row, spares[nth].copy(py, obs, column)?))
        });
        Ok((made.last.take(py, rows, values)?, over))
    }
}

/// Writes where an episode ended.
pub(crate) fn write_over(flags: &mut [u8], terminated: &[u8], truncated: &[u8]) {
    let over = terminated.iter().zip(truncated);
    flags.iter_mut().zip(over).for_each(|(flag, (a, b))| *flag = a | b);
}

/// Writes the rows whose flag, 0 or 1, is set; of those that are not, eight are looked at together.
pub(crate) fn set_rows(flags: &[u8], rows: &mut Vec<usize>) {
    rows.clear();
    for (at, eight) in flags.chunks(8).enumerate() {
        let mut bytes = [0; 8];
        bytes[..eight.len()].copy_from_slice(eight);
        let mut word = u64::from_le_bytes(bytes);
        while word != 0 {
            rows.push(at * 8 + word.trailing_zeros() as usize / 8);
            // No flag has more than its lowest bit.
            word &= word - 1;
        }
    }
}
