//! Looks at lanes between two steps.

use std::ops::Range;

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{Interruption, LaneSet};

use super::Engine;
use crate::block::Block;
use crate::error::StepError;
use crate::first_done::Received;
use crate::glance::Glance;
use crate::words::LaneWords;

impl Engine {
    /// Returns whether the env of lane `lane` has failed and is not back yet. Such a lane's rows show its last
    /// observation.
    pub fn is_lost(&self, lane: usize) -> bool {
        self.loss(lane).is_some()
    }

    /// Returns how a lane was lost whose env has failed and is not back: it crashed or hung.
    pub fn loss(&self, lane: usize) -> Option<Interruption> {
        let (status, lane) = (self.status.get(lane / BLOCK_LANES)?, lane % BLOCK_LANES);
        let hung = status.hung().has(lane);
        status.lost().has(lane).then_some(if hung { Interruption::Hung } else { Interruption::Crashed })
    }

    /// Returns whether a lane has played its quota, and stands still.
    pub fn has_played(&self, lane: usize) -> bool {
        self.status.get(lane / BLOCK_LANES).is_some_and(|status| status.retired().has(lane % BLOCK_LANES))
    }

    /// Returns what a lane says in words. Lanes that finish when they finish do so, also while others are under way.
    ///
    /// # Errors
    /// [`StepError::NoSuchLane`], [`StepError::Hung`], [`StepError::LaneOutstanding`] while the lane is sent.
    pub fn words(&mut self, lane: usize) -> Result<LaneWords, StepError> {
        let lanes = self.lanes();
        if lane >= lanes {
            return Err(StepError::NoSuchLane { lane, lanes });
        }
        if self.hung {
            return Err(StepError::Hung);
        }
        if self.is_outstanding(lane) {
            return Err(StepError::LaneOutstanding { lane });
        }
        let own = &mut self.crews.own;
        let block = own.blocks.get_mut(lane / BLOCK_LANES).filter(|_| own.late);
        Ok(block.map(|block| block.words(lane % BLOCK_LANES)).unwrap_or_default())
    }

    /// Returns the number of lanes whose env has failed and is not back yet.
    pub fn lost(&self) -> usize {
        self.status.iter().map(|status| status.lost().len()).sum()
    }

    /// Returns the newest row of a late lane while others are sent and not received; `None` if it is itself, or none is.
    pub fn row_beside(&mut self, lane: usize) -> Option<Received> {
        let beside = self.outstanding() > 0 && !self.is_outstanding(lane);
        if beside && self.crews.own.late { self.crews.own.row(lane) } else { None }
    }

    /// Notes from now on the starts of those lanes' episodes, and of no others. The generator is read once for each of
    /// their episodes.
    ///
    /// # Errors
    /// [`StepError::NoSuchLane`] and [`StepError::Hung`]; [`StepError::LaneOutstanding`] in first-done mode, unless lanes
    /// are late.
    pub fn watch(&mut self, lanes: &[usize]) -> Result<(), StepError> {
        let of = |rows: &Range<usize>| {
            let here = lanes.iter().filter(|lane| rows.contains(lane));
            here.map(|lane| lane % BLOCK_LANES).collect::<LaneSet>()
        };
        if let Some(lane) = lanes.iter().copied().find(|&lane| lane >= self.lanes()) {
            return Err(StepError::NoSuchLane { lane, lanes: self.lanes() });
        }
        if let Some(blocks) = self.blocks_beside() {
            blocks.iter_mut().for_each(|block| block.watch(of(&block.rows().clone())));
            return Ok(());
        }
        self.check_lanes(&(0..self.lanes()))?;
        let lanes = lanes.to_vec();
        self.on_blocks(false, move |block, _| {
            let rows = block.rows().clone();
            let here = lanes.iter().filter(|lane| rows.contains(lane));
            block.watch(here.map(|lane| lane % BLOCK_LANES).collect());
        })
    }

    /// Returns a view of each lane as it is now, without state, hash and position. Late lanes that were sent stay so.
    ///
    /// # Errors
    /// [`StepError::Hung`]; [`StepError::LaneOutstanding`] while any lane is sent, unless lanes are late.
    pub fn glances(&mut self) -> Result<Vec<Glance>, StepError> {
        if let Some(blocks) = self.blocks_beside() {
            let of_block = |block: &Block| {
                (0..block.rows().len()).map(|lane| block.glance_beside(lane)).collect::<Vec<_>>()
            };
            return Ok(blocks.iter().flat_map(of_block).collect());
        }
        self.each_lane(0..self.lanes(), |block, lane| block.glance_beside(lane))
    }

    /// Returns a view of a lane as it is now; without state, hash and position while other lanes are sent that are late.
    ///
    /// # Errors
    /// [`StepError::NoSuchLane`], [`StepError::Hung`]; [`StepError::LaneOutstanding`] while the lane is sent, or, unless
    /// lanes are late, any other is.
    pub fn glance(&mut self, lane: usize) -> Result<Glance, StepError> {
        if !self.is_outstanding(lane)
            && let Some(blocks) = self.blocks_beside()
            && let Some(block) = blocks.get(lane / BLOCK_LANES).filter(|block| block.rows().contains(&lane))
        {
            return Ok(block.glance_beside(lane % BLOCK_LANES));
        }
        let seen = self.each_lane(lane..lane + 1, |block, lane| block.glance(lane))?;
        let lanes = self.lanes();
        seen.into_iter().next().ok_or(StepError::NoSuchLane { lane, lanes })
    }
}

#[cfg(test)]
mod tests {
    use rollhouse_core::Start;
    use rollhouse_env::Registry;

    use super::*;
    use crate::{EngineConfig, Reset};

    /// An engine of 70 lanes that has been stepped `steps` times, lane 66 watched from the beginning or not.
    fn stepped(watched: bool, steps: usize) -> Engine {
        let entry = Registry::builtin().get("CartPole-v1").unwrap();
        let mut engine = Engine::new(&entry, EngineConfig::new(70), None).unwrap();
        if watched {
            engine.watch(&[66]).unwrap();
        }
        engine.reset(&Reset::seeded(5, 70)).unwrap();
        for step in 0..steps {
            engine.actions().unwrap().as_i64_mut().unwrap().fill((step / 3 % 2) as i64);
            engine.step().unwrap();
        }
        engine
    }

    #[test]
    fn a_watched_lane_tells_where_its_episode_started_and_steps_as_it_would_unwatched() {
        let (mut watched, mut other) = (stepped(true, 200), stepped(false, 200));
        let (seen, unseen) = (watched.glance(66).unwrap(), other.glance(66).unwrap());
        assert_eq!(seen.state, unseen.state);
        assert_eq!((seen.number, seen.steps, seen.hash), (unseen.number, unseen.steps, unseen.hash));
        assert!(seen.number > 0 && seen.open, "{seen:?}");
        assert!(seen.start.words > 0, "the seed is that of the first reset: {seen:?}");
        assert_eq!(seen.start.seed, 71);
    }

    /// Symptom: while one lane was watched, the generators of all lanes were read for each of their episodes.
    /// Cause: that some lane is watched counted for each. Fix: a start is noted of the lanes that are.
    #[test]
    fn of_lanes_that_are_not_watched_no_start_is_noted() {
        let mut engine = stepped(true, 200);
        assert_ne!(engine.glance(66).unwrap().start, Start::default());
        for lane in [3, 67] {
            assert_eq!(engine.glance(lane).unwrap().start, Start::default(), "lane {lane}");
        }
    }

    #[test]
    fn a_lane_that_there_is_not_cannot_be_watched() {
        let mut engine = stepped(false, 1);
        assert!(matches!(engine.watch(&[70]), Err(StepError::NoSuchLane { .. })));
        assert!(matches!(engine.glance(70), Err(StepError::NoSuchLane { .. })));
    }
}
