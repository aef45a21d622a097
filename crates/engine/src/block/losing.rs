//! Lanes of a block that fail, and that are made anew.

use std::time::Duration;

use rollhouse_arena::BlockRows;
use rollhouse_core::{Interruption, LaneSet, per_episode_seed};

use super::{Block, keep_observations};

impl Block {
    /// Notes the loss of lanes whose env fails one by one.
    #[inline]
    pub(super) fn lose_each(&mut self, lanes: LaneSet) {
        for lane in lanes {
            self.lose(LaneSet::one(lane));
        }
    }

    /// Notes the loss of `lanes`, whose env has failed as one: their episodes end as `crashed`, and a restart is
    /// scheduled.
    #[cold]
    pub(super) fn lose(&mut self, lanes: LaneSet) {
        for lane in lanes & self.episodes.open() {
            self.interrupt_episode(lane, Interruption::Crashed);
        }
        self.standing.waiting &= !lanes;
        self.starts.untouched &= !lanes;
        self.restarts.fail(lanes);
    }

    /// Makes the envs of lanes anew whose back-off is over. The lanes wait for a reset, which autoreset gives them.
    #[cold]
    pub(super) fn restart(&mut self, since_start: Duration) {
        let due = self.restarts.due(since_start);
        if due.is_empty() {
            return;
        }
        let back = match &mut self.env {
            Some(env) => self.maker.revive(env.as_mut(), due),
            None => self.remake(),
        };
        self.restarts.restarted(due, back);
        self.stats.restarts += back.len() as u64;
        self.standing.waiting |= back;
    }

    /// Makes the whole block anew. Its new generators are seeded from each lane's last start and episode
    /// count, so that a seeded run which loses its block at the same step goes on in the same way.
    fn remake(&mut self) -> LaneSet {
        let Some(mut env) = self.maker.make() else { return LaneSet::NONE };
        for lane in self.all & self.starts.seeded {
            let number = self.episodes.next_number(lane);
            env.seed(
                lane,
                per_episode_seed(self.starts.of[lane].seed, self.first_lane + lane as u32, number),
            );
        }
        self.env = Some(env);
        self.all
    }

    /// Keeps the last observations of lost lanes in their rows.
    #[cold]
    pub(super) fn keep_lost_rows(&mut self, columns: &mut BlockRows<'_, '_>) {
        let lost = self.restarts.lost();
        keep_observations(columns, lost, self.rows.len());
        for lane in lost {
            columns.rewards[lane] = 0.0;
        }
    }
}
