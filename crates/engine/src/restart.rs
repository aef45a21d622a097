//! The restart of lanes that failed, and its schedule.

use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::limits::PER_EPISODE_SEED_BOUND;
use rollhouse_core::{BackOff, LaneEvent, LaneSet, LaneState, Options, RestartDecision, split_mix64};
use rollhouse_env::{BlockEnv, EnvEntry, InstructionSet, MakeError};

/// Makes a block's env, and makes it again.
pub(crate) struct Maker {
    pub(crate) entry: Arc<EnvEntry>,
    pub(crate) options: Vec<Options>,
    pub(crate) set: InstructionSet,
}

/// Lanes of a block that are lost, and the times of their restarts. Lanes that fail together are started again
/// together.
#[derive(Debug)]
pub(crate) struct Restarts {
    lost: LaneSet,
    units: Vec<Unit>,
    seed: u64,
}

#[derive(Debug)]
struct Unit {
    lanes: LaneSet,
    state: LaneState,
    back_off: BackOff,
    /// Time at which to try again; `None` until the failure has been handled, or when it is for good.
    retry_at: Option<Duration>,
}

impl Restarts {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { lost: LaneSet::NONE, units: Vec::new(), seed }
    }

    /// Returns the lanes that are lost now.
    #[inline]
    pub(crate) const fn lost(&self) -> LaneSet {
        self.lost
    }

    /// Notes that `lanes` failed while they were playing.
    pub(crate) fn fail(&mut self, lanes: LaneSet) {
        if lanes.is_empty() {
            return;
        }
        self.lost |= lanes;
        // Units inside the new one are part of it now; its own history goes on.
        self.units.retain(|unit| unit.lanes == lanes || (unit.lanes & lanes).is_empty());
        let seed = split_mix64(self.seed ^ lanes.bits());
        let known = self.units.iter().position(|unit| unit.lanes == lanes);
        let index = known.unwrap_or_else(|| {
            let back_off = BackOff::new(seed);
            self.units.push(Unit { lanes, state: LaneState::Playing, back_off, retry_at: None });
            self.units.len() - 1
        });
        let unit = &mut self.units[index];
        unit.retry_at = None;
        unit.state = unit.state.on(LaneEvent::Fail).unwrap_or(LaneState::BackOff);
    }

    /// Returns the lanes whose back-off is over at `now`, and those that are launching since an earlier call. Schedules the restart of those that
    /// have just failed.
    pub(crate) fn due(&mut self, now: Duration) -> LaneSet {
        let mut due = LaneSet::NONE;
        for unit in &mut self.units {
            if unit.state == LaneState::Launching {
                // It was not back when it was last asked for.
                due |= unit.lanes;
            }
            if unit.state != LaneState::BackOff {
                continue;
            }
            match unit.retry_at {
                None => match unit.back_off.failed(now) {
                    RestartDecision::RetryAfter(wait) => unit.retry_at = Some(now + wait),
                    RestartDecision::GiveUp => unit.advance(&[LaneEvent::GiveUp]),
                },
                Some(at) if at <= now => {
                    unit.advance(&[LaneEvent::Retry]);
                    due |= unit.lanes;
                }
                Some(_) => {}
            }
        }
        due
    }

    /// Returns the time at which [`Restarts::due`] has something to do next, but for lanes that are launching.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let waiting = self.units.iter().filter(|unit| unit.state == LaneState::BackOff);
        waiting.map(|unit| unit.retry_at.unwrap_or_default()).min()
    }

    /// Notes which of the lanes in `due`, which were launching, have an env again: those in `back`. The others have
    /// failed once more. Lanes that need more time are in neither.
    pub(crate) fn restarted(&mut self, due: LaneSet, back: LaneSet) {
        for unit in self.units.iter_mut().filter(|unit| unit.lanes & due == unit.lanes) {
            if unit.lanes & back == unit.lanes {
                use LaneEvent as E;
                unit.advance(&[E::Launched, E::Loaded, E::Connected, E::EpisodeStarted]);
                self.lost &= !unit.lanes;
            } else {
                unit.advance(&[LaneEvent::Fail]);
                unit.retry_at = None;
            }
        }
    }

    /// Returns the state of a lane that is lost; `None` for one that is not.
    pub(crate) fn state(&self, lane: usize) -> Option<LaneState> {
        let unit = self.units.iter().find(|unit| unit.lanes.has(lane))?;
        (self.lost.has(lane)).then_some(unit.state)
    }
}

impl Unit {
    /// Applies events that the table allows by construction of this file. A refused event leaves the state, and the
    /// tests below would see it.
    fn advance(&mut self, events: &[LaneEvent]) {
        for &event in events {
            let next = self.state.on(event);
            debug_assert!(next.is_ok(), "{next:?}");
            self.state = next.unwrap_or(self.state);
        }
    }
}

impl Maker {
    /// Makes an env of the block with other options, which have been tried if they are drawn. Panics of the env are not
    /// caught.
    pub(crate) fn make_with(&self, options: &[Options]) -> Result<BlockEnv, MakeError> {
        let first: Vec<_> = options.iter().map(Options::before_episodes).collect();
        self.entry.check_drawn_of(options)?;
        self.entry.make_block_on(self.set, &first).map(BlockEnv::Kernel)
    }

    /// Makes the block's env with other options, which have been tried; `None` if that fails or panics, and for late lanes,
    /// whose blocks are made together.
    pub(crate) fn make_anew(&self, options: &[Options]) -> Option<BlockEnv> {
        if self.entry.is_late() {
            return None;
        }
        catch_unwind(AssertUnwindSafe(|| self.make_with(options))).ok()?.ok()
    }

    /// Makes the block's env anew; `None` if that fails or panics, and for late lanes, whose blocks are made together.
    pub(crate) fn make(&self) -> Option<BlockEnv> {
        self.make_anew(&self.options)
    }

    /// Replaces the envs of single lanes and returns the lanes that are back.
    pub(crate) fn revive(&self, env: &mut BlockEnv, lanes: LaneSet) -> LaneSet {
        catch_unwind(AssertUnwindSafe(|| env.revive(lanes))).unwrap_or_default()
    }

    /// Returns a seed from the operating system, for a lane that no one has seeded.
    pub(crate) fn entropy(&self, lane: usize) -> u64 {
        RandomState::new().hash_one(lane) % PER_EPISODE_SEED_BOUND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANES: LaneSet = LaneSet::of_bits(0b110);

    #[test]
    fn a_failed_unit_waits_is_launched_and_plays_again() {
        let mut restarts = Restarts::new(0);
        restarts.fail(LANES);
        assert_eq!((restarts.lost(), restarts.state(1)), (LANES, Some(LaneState::BackOff)));
        assert_eq!(restarts.due(Duration::ZERO), LaneSet::NONE);
        assert_eq!(restarts.due(Duration::from_millis(620)), LaneSet::NONE);
        assert_eq!(restarts.due(Duration::from_millis(880)), LANES);
        restarts.restarted(LANES, LANES);
        assert_eq!((restarts.lost(), restarts.state(1)), (LaneSet::NONE, None));
    }

    #[test]
    fn a_unit_that_keeps_failing_is_given_up_for_good() {
        let mut restarts = Restarts::new(0);
        let mut now = Duration::ZERO;
        let mut launches = 0;
        restarts.fail(LANES);
        for _ in 0..1_000 {
            now += Duration::from_millis(100);
            if !restarts.due(now).is_empty() {
                launches += 1;
                restarts.restarted(LANES, LaneSet::NONE);
            }
        }
        assert_eq!(launches, 5);
        assert_eq!(restarts.state(2), Some(LaneState::Failed));
        assert_eq!(restarts.due(now + Duration::from_secs(10_000)), LaneSet::NONE);
    }

    #[test]
    fn a_lane_that_is_back_can_fail_again_and_its_neighbour_is_left_alone() {
        let mut restarts = Restarts::new(0);
        restarts.fail(LaneSet::one(0));
        assert_eq!(restarts.due(Duration::ZERO), LaneSet::NONE);
        assert_eq!(restarts.due(Duration::from_secs(2)), LaneSet::one(0));
        restarts.restarted(LaneSet::one(0), LaneSet::one(0));
        restarts.fail(LaneSet::one(1));
        restarts.fail(LaneSet::one(0));
        assert_eq!(restarts.lost(), LaneSet::first(2));
    }
}
