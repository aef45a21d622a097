//! What is noted of the steps of a block's lanes.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rollhouse_core::{ColumnData, ColumnMut, ColumnRef, LaneSet};

/// What the owner has noted of the steps that a block's lanes take next. The thread that records them takes it from
/// here; the owner writes no row of a lane that is under way.
#[derive(Debug, Default)]
pub(crate) struct NoteBoard {
    /// True if something was noted since it was last taken. It needs no ordering of its own: what starts a turn or sends
    /// a task releases it.
    changed: AtomicBool,
    /// One row for each lane of the block, of each of the run's step columns.
    columns: Mutex<Vec<ColumnData>>,
    /// Of each step column that the env notes: its info channel, and its place among the columns.
    of_env: Mutex<Vec<(usize, usize)>>,
}

impl NoteBoard {
    /// Begins with columns of which nobody has noted anything.
    pub(crate) fn begin(&self, unknown: Vec<ColumnData>, of_env: Vec<(usize, usize)>) {
        (*self.columns.lock(), *self.of_env.lock()) = (unknown, of_env);
    }

    /// Writes what the env noted of a step that `stepped` have made, lanes of a block of `lanes`.
    pub(crate) fn set_of_env(&self, infos: &[ColumnMut<'_>], stepped: LaneSet, lanes: usize) {
        let mut columns = self.columns.lock();
        for &(channel, place) in &*self.of_env.lock() {
            let values = infos[channel].as_ref();
            let elements = values.len() / lanes;
            for lane in stepped {
                let row = values.slice(lane * elements, (lane + 1) * elements);
                let set = columns[place].set_row(lane, elements, row);
                debug_assert!(set, "both are columns of one type");
            }
            self.changed.store(true, Ordering::Relaxed);
        }
    }

    /// Writes row `row` of a column, of as many elements as there are values: that of a lane, or row 0 of all lanes.
    /// Returns false if there is none of that type and length.
    pub(crate) fn set(&self, column: usize, row: usize, values: ColumnRef<'_>) -> bool {
        let mut columns = self.columns.lock();
        let Some(column) = columns.get_mut(column) else { return false };
        self.changed.store(true, Ordering::Relaxed);
        column.set_row(row, values.len(), values)
    }

    /// Shows all columns, if something was noted since the last call.
    #[inline]
    pub(crate) fn take(&self, show: impl FnOnce(&[ColumnRef<'_>])) {
        if self.changed.load(Ordering::Relaxed) {
            self.changed.store(false, Ordering::Relaxed);
            let columns = self.columns.lock();
            show(&columns.iter().map(ColumnData::as_ref).collect::<Vec<_>>());
        }
    }
}
