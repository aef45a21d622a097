//! Which columns a batch has and where they lie.

use std::ops::Range;

use rollhouse_core::{ColumnSpec, DType, Role};

use crate::memory::{ALIGNMENT, Span};

/// The columns of a batch beside rewards and flags, which every batch has.
#[derive(Debug, Clone)]
pub struct BatchColumns {
    /// The action.
    pub action: ColumnSpec,
    /// The observation, in the space's own order.
    pub obs: Vec<ColumnSpec>,
    /// Per-step info channels.
    pub infos: Vec<ColumnSpec>,
    /// Whether there is a second set of observation columns for the last observation of an episode that
    /// ended in this row (SAME_STEP).
    pub final_obs: bool,
}

/// One column's place: where its rows start and how long they are.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    offset: usize,
    row_elements: usize,
    dtype: DType,
}

impl Place {
    /// Rows `rows` of the column.
    #[inline]
    pub(crate) fn rows(&self, rows: &Range<usize>) -> Span {
        Span {
            offset: self.offset + rows.start * self.row_elements * self.dtype.size(),
            elements: (rows.end - rows.start) * self.row_elements,
            dtype: self.dtype,
        }
    }
}

/// Places of the columns one step writes.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) obs: Vec<Place>,
    pub(crate) infos: Vec<Place>,
    pub(crate) final_obs: Vec<Place>,
    pub(crate) rewards: Place,
    pub(crate) terminated: Place,
    pub(crate) truncated: Place,
    pub(crate) reset: Place,
}

/// Places of everything.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) lanes: usize,
    pub(crate) action: Place,
    pub(crate) slots: [Slot; 2],
    pub(crate) bytes: usize,
}

impl Layout {
    /// Lays the columns out one after the other, each aligned; `None` when the size overflows.
    pub(crate) fn new(columns: &BatchColumns, lanes: usize) -> Option<Self> {
        let mut next = Allocator { lanes, bytes: 0 };
        let action = next.place(&columns.action)?;
        let slots = [next.slot(columns)?, next.slot(columns)?];
        Some(Self { lanes, action, slots, bytes: next.bytes })
    }
}

struct Allocator {
    lanes: usize,
    bytes: usize,
}

impl Allocator {
    fn slot(&mut self, columns: &BatchColumns) -> Option<Slot> {
        let flag =
            |role| ColumnSpec { path: String::new(), dtype: DType::Bool, shape: vec![], names: vec![], role };
        let reward = ColumnSpec { dtype: DType::F64, ..flag(Role::Reward) };
        let final_obs = if columns.final_obs { columns.obs.as_slice() } else { &[] };
        Some(Slot {
            obs: columns.obs.iter().map(|c| self.place(c)).collect::<Option<_>>()?,
            infos: columns.infos.iter().map(|c| self.place(c)).collect::<Option<_>>()?,
            final_obs: final_obs.iter().map(|c| self.place(c)).collect::<Option<_>>()?,
            rewards: self.place(&reward)?,
            terminated: self.place(&flag(Role::Terminated))?,
            truncated: self.place(&flag(Role::Truncated))?,
            reset: self.place(&flag(Role::Reset))?,
        })
    }

    fn place(&mut self, column: &ColumnSpec) -> Option<Place> {
        let row_elements = column.shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n))?;
        let bytes = row_elements.checked_mul(column.dtype.size())?.checked_mul(self.lanes)?;
        let offset = self.bytes;
        self.bytes = offset.checked_add(bytes)?.checked_next_multiple_of(ALIGNMENT)?;
        Some(Place { offset, row_elements, dtype: column.dtype })
    }
}
