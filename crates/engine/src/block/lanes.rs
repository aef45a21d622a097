//! Where the lanes of a block lie in the batch and in the run.

use std::ops::Range;

use rollhouse_core::LaneSet;

/// The lanes of a block, which are counted from 0, and where they lie in the batch and in the run.
#[derive(Debug)]
pub(crate) struct BlockLanes {
    rows: Range<usize>,
    first: u32,
    all: LaneSet,
}

impl BlockLanes {
    /// Makes the lanes in `rows` of the batch, the first of which is lane `first` of the run.
    pub(crate) fn new(rows: Range<usize>, first: u32) -> Self {
        Self { all: LaneSet::first(rows.len()), rows, first }
    }

    /// Returns the rows of the batch that belong to the block.
    #[inline]
    pub(crate) const fn rows(&self) -> &Range<usize> {
        &self.rows
    }

    #[inline]
    pub(super) const fn all(&self) -> LaneSet {
        self.all
    }

    #[inline]
    pub(super) const fn count(&self) -> usize {
        self.rows.end - self.rows.start
    }

    /// Returns the row of the batch that a lane has.
    #[inline]
    pub(super) const fn row(&self, lane: usize) -> usize {
        self.rows.start + lane
    }

    /// Returns the number that a lane has in the run.
    #[inline]
    pub(super) const fn in_run(&self, lane: usize) -> u32 {
        self.first + lane as u32
    }

    /// Returns the lanes whose rows are `wanted`.
    pub(super) fn in_rows(&self, wanted: impl Fn(usize) -> bool) -> LaneSet {
        (0..self.count()).filter(|&lane| wanted(self.row(lane))).collect()
    }
}
