//! The columns of a batch, and their places in memory.

use std::ops::Range;

use rollhouse_core::{ColumnSpec, DType, EnvSpec, Role};

use crate::memory::{ALIGNMENT, Span};

/// Columns of a batch, without rewards and flags, which every batch has.
#[derive(Debug, Clone)]
pub struct BatchColumns {
    /// Column of the action.
    pub action: ColumnSpec,
    /// Columns of the observation, in the space's own order.
    pub obs: Vec<ColumnSpec>,
    /// Columns of info that each step writes.
    pub infos: Vec<ColumnSpec>,
    /// Whether there is a second set of observation columns for the last observation of an episode that
    /// ended in this row (SAME_STEP).
    pub final_obs: bool,
}

impl BatchColumns {
    /// Returns the columns of an env's batches, with last observations of their own if `final_obs`.
    pub fn of(spec: &EnvSpec, final_obs: bool) -> Self {
        Self {
            action: spec.action_column(),
            obs: spec.obs_columns(),
            infos: spec.info_channels.clone(),
            final_obs,
        }
    }

    /// Returns the columns of one slot in the order in which they lie there.
    pub(crate) fn of_slot(&self) -> Vec<ColumnSpec> {
        let flag =
            |role| ColumnSpec { path: String::new(), dtype: DType::Bool, shape: vec![], names: vec![], role };
        let last: &[ColumnSpec] = if self.final_obs { &self.obs } else { &[] };
        let last = last.iter().map(|column| ColumnSpec { role: Role::FinalObs, ..column.clone() });
        let mut columns: Vec<_> = self.obs.iter().chain(&self.infos).cloned().chain(last).collect();
        columns.push(ColumnSpec { dtype: DType::F64, ..flag(Role::Reward) });
        columns.extend([Role::Terminated, Role::Truncated, Role::Reset].map(flag));
        columns
    }
}

/// Place of one column: the offset of its rows and their length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: usize,
    pub(crate) row_elements: usize,
    row_bytes: usize,
    pub(crate) dtype: DType,
}

impl Place {
    /// Returns the place at `offset` of a column whose rows have that many elements.
    pub(crate) const fn new(offset: usize, row_elements: usize, dtype: DType) -> Self {
        Self { offset, row_elements, row_bytes: row_elements * dtype.size(), dtype }
    }

    /// Returns the span of the rows `rows` of the column.
    #[inline]
    pub(crate) fn rows(&self, rows: &Range<usize>) -> Span {
        Span {
            offset: self.offset + rows.start * self.row_bytes,
            elements: (rows.end - rows.start) * self.row_elements,
            dtype: self.dtype,
        }
    }
}

/// Places of the columns one step writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) obs: Vec<Place>,
    pub(crate) infos: Vec<Place>,
    pub(crate) final_obs: Vec<Place>,
    pub(crate) rewards: Place,
    pub(crate) terminated: Place,
    pub(crate) truncated: Place,
    pub(crate) reset: Place,
}

impl Slot {
    /// Returns the places in the order of [`BatchColumns::of_slot`].
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        let flags = [&self.rewards, &self.terminated, &self.truncated, &self.reset];
        self.obs.iter().chain(&self.infos).chain(&self.final_obs).chain(flags)
    }

    /// Returns the places of the flags.
    pub(crate) const fn flags(&self) -> [&Place; 3] {
        [&self.terminated, &self.truncated, &self.reset]
    }

    /// Makes a slot of places in that order; `None` if their number is wrong.
    pub(crate) fn from_places(columns: &BatchColumns, places: Vec<Place>) -> Option<Self> {
        let (obs, infos) = (columns.obs.len(), columns.infos.len());
        let last = if columns.final_obs { obs } else { 0 };
        if places.len() != obs + infos + last + FLAG_COLUMNS {
            return None;
        }
        let mut places = places.into_iter();
        Some(Self {
            obs: places.by_ref().take(obs).collect(),
            infos: places.by_ref().take(infos).collect(),
            final_obs: places.by_ref().take(last).collect(),
            rewards: places.next()?,
            terminated: places.next()?,
            truncated: places.next()?,
            reset: places.next()?,
        })
    }
}

/// Places of all columns of an [`Arena`](crate::Arena).
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// Hands out places, each on a cache line of its own.
pub(crate) struct Allocator {
    pub(crate) lanes: usize,
    pub(crate) bytes: usize,
}

impl Allocator {
    pub(crate) fn slot(&mut self, columns: &BatchColumns) -> Option<Slot> {
        let places = columns.of_slot().iter().map(|column| self.place(column)).collect::<Option<_>>()?;
        Slot::from_places(columns, places)
    }

    pub(crate) fn place(&mut self, column: &ColumnSpec) -> Option<Place> {
        let row_elements = column.shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n))?;
        let bytes = row_elements.checked_mul(column.dtype.size())?.checked_mul(self.lanes)?;
        Some(Place::new(self.take(bytes)?, row_elements, column.dtype))
    }

    /// Takes `bytes` bytes and returns their aligned offset.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<usize> {
        let offset = self.bytes;
        self.bytes = offset.checked_add(bytes)?.checked_next_multiple_of(ALIGNMENT)?;
        Some(offset)
    }
}

/// Number of columns that are not the env's: rewards and the three flags.
const FLAG_COLUMNS: usize = 4;

/// Returns the slot in which a frame lies: frames alternate between the two.
pub(crate) const fn slot_of(step: u64) -> usize {
    (step & 1) as usize
}
