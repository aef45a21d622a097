//! The placement of an arena, which says in which memory its columns lie.

use std::ops::Range;

use rollhouse_core::limits::MAX_OBS_COLUMNS;

use crate::columns::{Allocator, BatchColumns, Layout, Place, Slot};
use crate::memory::Memory;

/// The memory of one [`Arena`](crate::Arena), to be handed in where it is made.
#[derive(Debug)]
pub struct Placement(Option<Box<Published>>);

/// Slots laid out in memory that another process maps.
#[derive(Debug)]
struct Published {
    layout: Layout,
    columns: Memory,
}

impl Placement {
    /// Returns a placement in one allocation on the heap.
    pub const fn heap() -> Self {
        Self(None)
    }

    /// Returns the number of processes that work on the memory beside this one, and need a core of their own.
    pub const fn peers(&self) -> usize {
        if self.0.is_some() { 1 } else { 0 }
    }

    /// Returns a placement in two slots of memory that is published to another process; actions lie on the heap.
    ///
    /// The caller makes one placement of a memory only, laid out by [`Places::new`].
    pub(crate) fn published(places: &Places, columns: Memory) -> Self {
        let Places { lanes, own_action, slots: [even, odd, _], bytes, .. } = places;
        let (action, slots) = (own_action.clone(), [even.clone(), odd.clone()]);
        let layout = Layout { lanes: *lanes, action, slots, bytes: *bytes };
        Self(Some(Box::new(Published { layout, columns })))
    }

    /// Returns the layout, the memory and, if actions lie apart, the memory of actions.
    pub(crate) fn take(
        self,
        columns: &BatchColumns,
        lanes: usize,
    ) -> Result<(Layout, Memory, Option<Memory>), ArenaError> {
        let Some(published) = self.0 else {
            let layout = Layout::new(columns, lanes).filter(|layout| layout.bytes <= MAX_ARENA_BYTES);
            let layout = layout.ok_or(ArenaError::Size)?;
            let memory = Memory::zeroed(layout.bytes);
            return Ok((layout, memory, None));
        };
        let Published { layout, columns: memory } = *published;
        let start = layout.slots[0].places().map(|place| place.offset).min().unwrap_or(0);
        let wanted = Places::new(columns, lanes, start).ok_or(ArenaError::Size)?;
        let same = wanted.own_action == layout.action && wanted.slots[..2] == layout.slots;
        if lanes != layout.lanes || !same {
            return Err(ArenaError::Placement);
        }
        let actions = Memory::zeroed(wanted.action_bytes);
        Ok((layout, memory, Some(actions)))
    }
}

/// Places of the columns that a node publishes: two slots for frames, and one for rows of single lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) lanes: usize,
    /// Place of the action column, at offset 0 of a memory of its own.
    pub(crate) own_action: Place,
    pub(crate) action_bytes: usize,
    pub(crate) slots: [Slot; 3],
    /// Offset at which the third slot begins.
    pub(crate) lane_rows_at: usize,
    /// Offset at which the third slot ends.
    pub(crate) bytes: usize,
}

impl Places {
    /// Lays the slots out from offset `start` on; `None` if they would be larger than [`MAX_ARENA_BYTES`].
    pub(crate) fn new(columns: &BatchColumns, lanes: usize, start: usize) -> Option<Self> {
        let mut action = Allocator { lanes, bytes: 0 };
        let own_action = action.place(&columns.action)?;
        let mut next = Allocator { lanes, bytes: start };
        let (even, odd) = (next.slot(columns)?, next.slot(columns)?);
        let lane_rows_at = next.bytes;
        let slots = [even, odd, next.slot(columns)?];
        let bytes = next.bytes;
        let within = bytes <= MAX_ARENA_BYTES && action.bytes <= MAX_ARENA_BYTES;
        within.then_some(Self { lanes, own_action, action_bytes: action.bytes, slots, lane_rows_at, bytes })
    }
}

/// Reason for which an arena could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArenaError {
    /// There are more columns than [`MAX_OBS_COLUMNS`]; this is their number.
    #[error("{0} columns, at most {MAX_OBS_COLUMNS} allowed")]
    Columns(usize),
    /// The range of a share overlaps another, or does not lie in the batch.
    #[error("lanes {0:?} overlap another share or leave the batch")]
    Ranges(Range<usize>),
    /// The batch would be larger than [`MAX_ARENA_BYTES`].
    #[error("the batch needs more than {MAX_ARENA_BYTES} bytes")]
    Size,
    /// The memory was laid out for other columns or another number of lanes.
    #[error("the shared memory was laid out for another batch")]
    Placement,
}

/// Maximum number of bytes of one arena.
pub const MAX_ARENA_BYTES: usize = 16 << 30;
