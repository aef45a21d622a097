//! Lanes of a block that fail, and that are made anew.

use std::time::Duration;

use rollhouse_arena::BlockRows;
use rollhouse_core::{Interruption, LaneSet, per_episode_seed};
use rollhouse_env::Collected;

use super::containing::{Called, contain};
use super::{Block, RowsOf, copy_rows, keep_observations};

impl Block {
    /// Notes the loss of lanes whose env fails one by one.
    #[inline]
    pub(super) fn lose_each(&mut self, lanes: LaneSet, cause: Interruption) {
        for lane in lanes {
            self.lose(LaneSet::one(lane), cause);
        }
    }

    /// Notes the loss of `lanes`, whose env has failed as one: their episodes end with that cause, and a restart is
    /// scheduled.
    #[cold]
    pub(super) fn lose(&mut self, lanes: LaneSet, cause: Interruption) {
        for lane in lanes & self.episodes.open() {
            self.interrupt_episode(lane, cause);
        }
        self.status.lose(lanes, cause == Interruption::Hung);
        self.standing.waiting &= !lanes;
        self.starts.untouched &= !lanes;
        self.restarts.fail(lanes);
    }

    /// Makes the envs of lanes anew whose back-off is over. The lanes wait for a reset, which autoreset gives them. Late
    /// lanes may need some time to come back, in which nothing waits for them.
    #[cold]
    pub(super) fn restart(&mut self, since_start: Duration) {
        let due = self.restarts.due(since_start);
        if due.is_empty() {
            return;
        }
        let back = match &mut self.env {
            Some(env) => self.maker.revive(env, due),
            None => self.remake(),
        };
        let coming = self.with_late(|env| env.coming()).unwrap_or_default() & due & !back;
        self.restarts.restarted(due & !coming, back);
        if let Some(under_way) = &mut self.under_way {
            if let Some(reports) = &mut under_way.reports {
                reports.forget(back);
            }
            let seeded = self.seed_anew(back);
            self.heed(seeded);
        }
        self.stats.restarts += back.len() as u64;
        self.standing.waiting |= back & !self.restarts.lost();
    }

    /// Notes which late lanes were lost while they did nothing, and makes the envs of lost lanes anew whose back-off is
    /// over.
    pub(crate) fn restart_now(&mut self, since_start: Duration) {
        let Collected { lost, hung, .. } = self.with_late(|env| env.gone()).unwrap_or_default();
        let known = self.restarts.lost();
        self.lose_each(lost & self.lanes.all() & !known, Interruption::Crashed);
        self.lose_each(hung & self.lanes.all() & !known, Interruption::Hung);
        if !self.restarts.lost().is_empty() {
            self.restart(since_start);
            self.show();
        }
    }

    /// Returns when [`Block::restart_now`] has something to do next by itself.
    pub(crate) fn restart_at(&self) -> Option<Duration> {
        self.restarts.next_due()
    }

    /// Makes the whole block anew. Its new generators are seeded from each lane's last start and episode
    /// count, so that a seeded run which loses its block at the same step goes on in the same way.
    fn remake(&mut self) -> LaneSet {
        let Some(env) = self.maker.make() else { return LaneSet::NONE };
        self.env = Some(env);
        match self.seed_anew(self.lanes.all()) {
            Called::Answered(()) => self.lanes.all(),
            // The next attempt comes after another back-off.
            Called::Panicked | Called::Gone => LaneSet::NONE,
        }
    }

    /// Seeds `lanes`, whose generators are new: those that had been seeded by that, the others anyhow.
    fn seed_anew(&mut self, lanes: LaneSet) -> Called<()> {
        let Self { env, starts, episodes, maker, .. } = self;
        contain(env, |env| {
            for lane in lanes {
                let number = episodes.next_number(lane);
                let seed = if starts.seeded.has(lane) {
                    per_episode_seed(starts.of[lane].seed, self.lanes.in_run(lane), number)
                } else {
                    maker.entropy(lane)
                };
                env.seed(lane, seed);
            }
        })
    }

    /// Shows the last observations of lost lanes in their rows, and no reward. Lanes that have `stepped` before they were
    /// lost show what the step gave.
    #[cold]
    pub(super) fn keep_lost_rows(&mut self, columns: &mut BlockRows<'_, '_>, stepped: LaneSet, rows: RowsOf) {
        let lost = self.restarts.lost() & !stepped;
        if rows == RowsOf::NextFrame {
            keep_observations(columns, lost, self.lanes.count());
        }
        for lane in lost {
            columns.rewards[lane] = 0.0;
        }
    }

    /// Shows the last observations of lanes whose episodes ended in this step and whose next ones do not begin.
    pub(super) fn show_last(&self, columns: &mut BlockRows<'_, '_>, lanes: LaneSet) {
        if lanes.is_empty() {
            return;
        }
        for (obs, last) in columns.obs.iter_mut().zip(&*columns.final_obs) {
            copy_rows(obs, last.as_ref(), lanes, self.lanes.count());
        }
    }
}
