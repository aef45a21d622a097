//! The interface of lanes that finish when they finish.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use rollhouse_core::{ColumnMut, ColumnRef, LaneSet};

use crate::LaneBlock;

/// A block of lanes that are stepped elsewhere and finish when they finish: in worker processes, in games, in simulators
/// with a loop of their own.
///
/// What a lane is to do is posted, and its row is collected once it is there; lanes finish in any order. Neither call
/// blocks, and no thread waits for a lane. A lane that was posted is *under way* until it is collected or given up, and
/// nothing else is asked of it meanwhile.
///
/// Blocks that were made together ([`EnvEntry::late`](crate::EnvEntry::late)) may share what steps them:
/// [`LateLanes::flush`] and [`LateLanes::wait`] of any of them are for all of them. A panic in any method loses the
/// block, as it does in other methods of its env.
pub trait LateLanes: LaneBlock {
    /// Takes what lanes are to do next. A reset draws from the generator that
    /// [`LaneBlock::seed`] set or that the last episode left. Nothing has to begin before
    /// [`LateLanes::flush`].
    fn post(&mut self, post: Post<'_>);

    /// Lets everything begin that was posted to the blocks made together.
    fn flush(&mut self);

    /// Waits awake for a moment, of microseconds, if this block's lanes are about to finish. Called before
    /// [`LateLanes::collect`] where all lanes have to finish before anything else is done.
    fn linger(&mut self) {}

    /// Waits until a lane of the blocks made together may have finished, at most until `deadline`. It may return
    /// early and without a reason.
    fn wait(&mut self, deadline: Instant);

    /// Returns the descriptor that is readable when a lane of the blocks made together may have finished, or when what steps
    /// them has to be looked after; `None` if there is none, and [`LateLanes::wait`] alone can wait.
    ///
    /// The blocks made together have one, which stays the same for as long as they live, whatever is started again
    /// meanwhile; it is theirs. A duplicate of it stays valid after them and is never readable again. Nobody reads from it:
    /// it is readable until the lanes are flushed and collected, or waited for.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Announces that the caller sleeps on [`LateLanes::descriptor`], and looks once more for what it waits for: what
    /// happens from now on makes the descriptor readable, until any other method of the blocks made together is called.
    ///
    /// Returns the time at which the caller has to flush and collect at the latest: `now` if there may be something to
    /// collect, `None` if nothing is due by itself. The deadlines of lanes are the caller's. Does not block.
    fn arm(&mut self, now: Instant) -> Option<Instant> {
        Some(now)
    }

    /// Writes the rows of this block's lanes that have finished since the last call, and returns which they are. Rows
    /// of other lanes are left alone.
    fn collect(&mut self, rows: LateRows<'_, '_>) -> Collected;

    /// Gives up lanes that have been under way for too long, for the reason `why`. They are lost until
    /// [`LaneBlock::revive`] has made them anew, and what they still do is not heard.
    ///
    /// Returns all lanes of this block that are lost by it: where lanes live in one process, its end takes others along
    /// that are under way. Lanes of other blocks that are lost by it are collected there.
    fn give_up(&mut self, lanes: LaneSet, why: &str) -> LaneSet;

    /// Takes a lane out of use whose last row was refused, for the reason `why`, which [`LateLanes::why_lost`] returns then.
    /// It is lost until [`LaneBlock::revive`] has restarted it; other lanes go on. Lanes that
    /// report nothing have no such rows.
    fn refuse(&mut self, lane: usize, why: &str) {
        let _ = (lane, why);
    }

    /// Returns the lanes under way that wait for something to which their env tries to connect. They are not given up at the
    /// time that lanes have; it is asked when that is over, and each time once more. How long it goes on is bounded here.
    fn connecting(&mut self) -> LaneSet {
        LaneSet::NONE
    }

    /// Returns the lanes that were lost while nothing was posted to them, among `lost` and `hung`, if that is known before
    /// they are posted again.
    fn gone(&self) -> Collected {
        Collected::default()
    }

    /// Returns what is known of the reason for which a lane was lost the last time; `None` if nothing ever is. May wait for
    /// a second until it is told.
    fn why_lost(&mut self, lane: usize) -> Option<String> {
        let _ = lane;
        None
    }

    /// Returns the numbers in the infos of a lane's last row that have no column, as JSON; `None` if there are none. Asks
    /// nobody.
    fn further_infos(&mut self, lane: usize) -> Option<String> {
        let _ = lane;
        None
    }

    /// Takes the pictures that came with the last rows of these lanes, each packed as recordings have it: of the row
    /// that a step gave, or of what a lane shows that has `begun` an episode. It is asked once for each row that is
    /// recorded.
    fn take_pictures(&mut self, lanes: LaneSet, begun: bool) -> Vec<(usize, Vec<u8>)> {
        let _ = (lanes, begun);
        Vec::new()
    }

    /// Returns which of the lanes that [`LaneBlock::revive`] was asked for are being made anew
    /// and are neither back nor lost again. They are asked for again later.
    fn coming(&self) -> LaneSet {
        LaneSet::NONE
    }
}

/// What lanes of a late block are to do.
#[derive(Debug, Clone, Copy)]
pub struct Post<'a> {
    /// Lanes that step with their action.
    pub step: LaneSet,
    /// Lanes that begin an episode; disjoint from `step`.
    pub reset: LaneSet,
    /// Actions, one for each lane of the block, checked as those of [`BlockStep`](crate::BlockStep). Lanes that are under
    /// way have those with which they were posted; those of others that do not step are arbitrary.
    pub actions: ColumnRef<'a>,
    /// Whether lanes that step and report what they take do again what they did: a lane that chooses its action by itself
    /// takes the one that it is given here, which is the one that it took then.
    pub repeats: bool,
}

/// Rows of a late block, into which those of finished lanes are written.
#[derive(Debug)]
pub struct LateRows<'a, 'b> {
    /// Observation columns in the spec's order.
    pub obs: &'a mut [ColumnMut<'b>],
    /// Info columns in the spec's order. Of lanes that began an episode those are written that are there in such rows
    /// ([`Role::is_in_first_rows`](rollhouse_core::Role::is_in_first_rows)); what the others have means nothing.
    ///
    /// Of lanes that stepped, channels that report what was done
    /// ([`Role::is_report`](rollhouse_core::Role::is_report)) are written as well. What they have is recorded. A lane is
    /// lost that reports an action outside of the space or another one than it was to repeat, a version of the policy
    /// that goes back, or a boolean that is none.
    pub infos: &'a mut [ColumnMut<'b>],
    /// Rewards, one for each lane; 0 for a lane that began an episode.
    pub rewards: &'a mut [f64],
}

/// Lanes of a late block that are no longer under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use = "lanes that have finished or are lost are reported once"]
pub struct Collected {
    /// Lanes that did what was posted; their rows are written.
    pub done: LaneSet,
    /// Those of `done` that reached a terminal state.
    pub terminated: LaneSet,
    /// Those of `done` that a limit of the env's own cut; the engine adds the time limit.
    pub truncated: LaneSet,
    /// Lanes that failed; disjoint from `done`. They cannot be used again until they are revived.
    pub lost: LaneSet,
    /// Lanes that were lost because something that they share did not answer in time; disjoint from both.
    pub hung: LaneSet,
}

impl Collected {
    /// Returns the lanes that are no longer under way.
    pub fn lanes(&self) -> LaneSet {
        self.done | self.lost | self.hung
    }

    /// Adds what was collected later, of other lanes.
    pub fn add(&mut self, later: Self) {
        let Self { done, terminated, truncated, lost, hung } = later;
        self.done |= done;
        self.terminated |= terminated;
        self.truncated |= truncated;
        self.lost |= lost;
        self.hung |= hung;
    }
}
