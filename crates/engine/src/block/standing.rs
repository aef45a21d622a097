//! The lanes of a block that wait, stand still, or have played their quota.

use rollhouse_core::LaneSet;
use rollhouse_core::limits::BLOCK_LANES;

/// Lanes without an open episode, by what they wait for.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// Lanes whose episode is over and whose next one has not begun.
    pub(super) waiting: LaneSet,
    /// Lanes that stand still in the next batch.
    pub(super) held: LaneSet,
    /// Lanes that have played their quota.
    pub(super) retired: LaneSet,
    /// Number of episodes that each lane may play; `None` if there is no limit.
    pub(super) quota: Option<Box<[u64; BLOCK_LANES]>>,
}

impl Standing {
    /// Returns the lanes that begin an episode in the next batch.
    #[inline]
    pub(super) fn may_begin(&self) -> LaneSet {
        self.waiting & !self.retired & !self.held
    }

    /// Returns the lanes of `subset` that are not held, and lets the held ones go after this batch.
    #[inline]
    pub(super) fn let_go(&mut self, subset: LaneSet) -> LaneSet {
        let moving = subset & !self.held;
        self.held &= !subset;
        moving
    }
}
