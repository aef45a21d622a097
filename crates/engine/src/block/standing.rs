//! The lanes of a block that wait, stand still, have played their quota or were called.

use rollhouse_core::LaneSet;
use rollhouse_core::limits::BLOCK_LANES;

/// What is known of lanes beside their episodes.
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
    /// How often lanes were changed by calls since their last steps.
    pub(super) called: CallCounts,
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

/// How often lanes were changed by calls since their last steps: an entry for each lane that ever was.
#[derive(Debug, Default)]
pub(super) struct CallCounts(Vec<Called>);

/// Calls of a lane between two of its steps.
#[derive(Debug)]
struct Called {
    lane: usize,
    /// Number of the lane's next episode, and steps of the present one.
    at: (u64, u64),
    calls: usize,
}

impl CallCounts {
    /// Returns the count of a lane that stands there now.
    pub(super) fn of(&mut self, lane: usize, at: (u64, u64)) -> &mut usize {
        let known = self.0.iter().position(|called| called.lane == lane);
        let index = known.unwrap_or_else(|| {
            self.0.push(Called { lane, at, calls: 0 });
            self.0.len() - 1
        });
        let called = &mut self.0[index];
        if called.at != at {
            (called.at, called.calls) = (at, 0);
        }
        &mut called.calls
    }
}
