//! The begins and ends of a block's episodes, which are counted, recorded and logged here.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rollhouse_arena::{BlockRows, ObsRefs};
use rollhouse_core::{Began, ColumnMut, GameResult, Interruption, LaneSet, Outcome};
use rollhouse_replay::{BlockRecorder, End, Finish, Frame, Row};

use super::{Block, Done, Moves, Turn, refs};
use crate::episodes::Finished;
use crate::past::LogEvent;

impl Block {
    /// Ends the open episodes of `lanes` as interrupted; they wait for a reset.
    pub(crate) fn interrupt(&mut self, lanes: LaneSet, cause: Interruption) {
        let _interrupted = self.interrupt_open(lanes, cause);
    }

    /// Does the same, and returns the lanes that had an open episode.
    fn interrupt_open(&mut self, lanes: LaneSet, cause: Interruption) -> LaneSet {
        let open = lanes & self.episodes.open();
        let failed = if self.recorder.is_some() { self.take_hashes(open) } else { LaneSet::NONE };
        if !failed.is_empty() {
            self.lose_failed(failed);
        }
        for lane in open & self.episodes.open() {
            self.interrupt_episode(lane, cause);
        }
        self.standing.waiting |= open & !self.restarts.lost();
        self.show();
        open
    }

    /// Does the same for rows of the batch, of which some are here, and returns the rows.
    pub(crate) fn interrupt_rows(
        &mut self,
        rows: &[u32],
        cause: Interruption,
    ) -> impl Iterator<Item = u32> + use<> {
        let first = self.lanes.row(0) as u32;
        let here = rows.iter().filter(|&&row| self.lanes.rows().contains(&(row as usize)));
        let here = here.map(|&row| (row - first) as usize).collect();
        self.interrupt_open(here, cause).into_iter().map(move |lane| first + lane as u32)
    }

    /// Sets whether the block logs begun episodes and state hashes from now on.
    pub(crate) const fn keep_log(&mut self, logs: bool) {
        self.logs = logs;
    }

    /// Passes everything from now on to `recorder`; no episode has begun yet.
    pub(crate) fn record_with(&mut self, mut recorder: BlockRecorder) {
        if let Some(words) = self.starts.words_per_reset {
            recorder.follow(words);
        }
        self.recorder = Some(recorder);
        self.starts.untouched = LaneSet::NONE;
        self.record_options(self.starts.given);
    }

    /// Tells the recorder which options `lanes` have from their next episodes on.
    #[cold]
    pub(super) fn record_options(&mut self, lanes: LaneSet) {
        let Some(recorder) = &mut self.recorder else { return };
        for lane in lanes & self.lanes.all() {
            recorder.options(lane, self.episodes.next_number(lane), &self.maker.options[lane]);
        }
    }

    /// Hands to the writer what may not wait any longer once stepping has paused for so long. Returns whether something
    /// stays.
    pub(crate) fn hand_over(&mut self, paused: Duration) -> bool {
        self.recorder.as_mut().is_some_and(|recorder| recorder.hand_over(paused))
    }

    /// Passes one row to the recorder. The starts of the episodes that begin in it follow.
    #[inline]
    pub(super) fn record_row(&mut self, columns: &BlockRows<'_, '_>, moves: Moves<'_>, turn: Turn) {
        let Some(recorder) = &mut self.recorder else { return };
        let Moves { actions, stepped, reset } = moves;
        let begun = reset & self.starts.untouched;
        let (mut obs, mut infos) = (ObsRefs::new(), ObsRefs::new());
        if recorder.wants_observations() {
            // Reports and remarks, which come last, are not recorded as infos.
            (obs, infos) = (refs(columns.obs), refs(&columns.infos[..self.says.recorded_infos]));
        }
        let now_ms = turn.now_ms;
        let rewards = &*columns.rewards;
        recorder.policy_version(turn.policy_version);
        if self.says.notes {
            self.status.noted.set_of_env(columns.infos, stepped, self.lanes.count());
        }
        self.status.noted.take(|columns| recorder.note(columns));
        recorder.row(Row { stepped, begun, actions, obs: &obs, rewards, infos: &infos, now_ms });
        if self.under_way.is_some() {
            self.record_pictures(stepped, false);
        }
    }

    /// Passes the pictures that came with the rows of late lanes to the recorder.
    fn record_pictures(&mut self, lanes: LaneSet, begun: bool) {
        let pictures = self.with_late(|env| env.take_pictures(lanes, begun)).unwrap_or_default();
        let Some(recorder) = &mut self.recorder else { return };
        for (lane, packed) in pictures {
            // What is no picture is none: it came from another process.
            if let Ok(frame) = Frame::of_bytes(packed) {
                recorder.frame(lane, begun, frame);
            }
        }
    }

    /// Passes the hashes of lanes that have just stepped, which were taken, to the recorder, and those of lanes that play on
    /// to the log.
    #[inline(never)]
    pub(super) fn show_hashes(&mut self, due: LaneSet, over: LaneSet) {
        if let Some(recorder) = &mut self.recorder {
            (due).into_iter().for_each(|lane| recorder.window(lane, self.hashes[lane]));
        }
        if self.logs {
            let hash = |lane| LogEvent::Hash { lane: self.lanes.row(lane) as u32, hash: self.hashes[lane] };
            self.status.log((due & !over).into_iter().map(hash));
        }
    }

    /// Ends the episodes of `over`, as `done` says, and tells the recorder.
    #[inline]
    pub(super) fn end_each(&mut self, over: LaneSet, done: Done) {
        if self.says.verdicts && !over.is_empty() {
            self.end_judged(over, done);
        } else if (done.truncated & over).is_empty() {
            // The usual case, for which nothing is asked lane by lane.
            self.end_by(over, |_| (true, false));
        } else {
            self.end_truncated(over, done);
        }
        self.retire(over);
    }

    #[inline(never)]
    fn end_truncated(&mut self, over: LaneSet, done: Done) {
        self.end_by(over, |lane| (done.terminated.has(lane), done.truncated.has(lane)));
    }

    /// Ends the episodes of `over`, and tells recorder and statistics with those of which the env says something what it
    /// says.
    #[inline(never)]
    fn end_judged(&mut self, over: LaneSet, done: Done) {
        let mut unsaid = over;
        for lane in over {
            let env = self.env.as_ref();
            // One that panics says nothing.
            let verdict = catch_unwind(AssertUnwindSafe(|| env.map(|env| env.verdict(lane))));
            let verdict = verdict.ok().flatten().unwrap_or_default();
            if verdict.is_none() {
                continue;
            }
            unsaid &= !LaneSet::one(lane);
            let (terminated, truncated) = (done.terminated.has(lane), done.truncated.has(lane));
            let outcome = Outcome::Finished { terminated, truncated };
            let finished = self.episodes.end(lane);
            self.stats.episode(outcome, finished);
            self.stats.verdict(verdict);
            if let Some(recorder) = &mut self.recorder {
                let hash = self.hashes[lane];
                let total_reward = finished.total_reward;
                let (result, score) = (verdict.result(), verdict.score());
                recorder.end(lane, End { outcome, total_reward, hash, result, score });
            }
        }
        self.end_by(unsaid, |lane| (done.terminated.has(lane), done.truncated.has(lane)));
    }

    /// Ends the episodes of `over` and tells the recorder. `flags` returns for each lane whether its episode was
    /// terminated and whether it was truncated.
    #[inline(always)]
    fn end_by(&mut self, over: LaneSet, flags: impl Fn(usize) -> (bool, bool)) {
        let Self { hashes, recorder, episodes, stats, .. } = self;
        episodes.close(over);
        let mut end = |lane| {
            let ((terminated, truncated), finished) = (flags(lane), episodes.finish(lane));
            stats.episode(Outcome::Finished { terminated, truncated }, finished);
            finished
        };
        match recorder {
            Some(recorder) => recorder.finish_each(over, |lane| {
                let hash = hashes[lane];
                let (terminated, truncated) = flags(lane);
                let Finished { length, total_reward } = end(lane);
                Finish { terminated, truncated, length, total_reward, hash }
            }),
            None => {
                for lane in over {
                    end(lane);
                }
            }
        }
    }

    /// Ends an episode from outside and tells the recorder.
    pub(super) fn interrupt_episode(&mut self, lane: usize, cause: Interruption) {
        let outcome = Outcome::Interrupted(cause);
        let (total_reward, hash) = (self.episodes.returns()[lane], self.hashes[lane]);
        if let Some(recorder) = &mut self.recorder {
            recorder.end(lane, End { outcome, total_reward, hash, result: GameResult::None, score: None });
        }
        let finished = self.episodes.end(lane);
        self.stats.episode(outcome, finished);
        self.retire(LaneSet::one(lane));
    }

    /// Retires those of `lanes` that have played their quota. The episodes of `lanes` are over.
    #[inline]
    fn retire(&mut self, lanes: LaneSet) {
        let Some(quota) = &self.standing.quota else { return };
        for lane in lanes {
            self.standing.retired.insert_if(lane, self.episodes.next_number(lane) >= quota[lane]);
        }
    }

    /// Begins an episode in each of `lanes`. The recorder already knows the episodes of the lanes in `recorded`.
    #[inline]
    pub(super) fn begin_episodes(&mut self, lanes: LaneSet, recorded: LaneSet, obs: &[ColumnMut<'_>]) {
        self.episodes.begin_each(lanes);
        if self.recorder.is_some() && !(lanes & !recorded).is_empty() {
            self.record_begins(lanes & !recorded, obs);
        }
        if self.logs && !lanes.is_empty() {
            self.status.log((lanes).into_iter().map(|lane| {
                let number = self.episodes.next_number(lane).wrapping_sub(1);
                let (lane, start) = (self.lanes.row(lane) as u32, self.starts.of[lane]);
                LogEvent::Began(Began { lane, number, start })
            }));
        }
    }

    /// Passes the episodes that begin to the recorder.
    #[inline(never)]
    fn record_begins(&mut self, lanes: LaneSet, obs: &[ColumnMut<'_>]) {
        let Some(recorder) = &mut self.recorder else { return };
        let obs = if recorder.wants_observations() { refs(obs) } else { ObsRefs::new() };
        let (following, others) = (lanes & self.starts.untouched, lanes & !self.starts.untouched);
        if !following.is_empty() {
            recorder.begin_following(following, &obs);
        }
        if !others.is_empty() {
            recorder.begin_each(others, &self.starts.of, &obs);
            if self.starts.words_per_reset.is_some() {
                // A half that is buffered stays so, and is part of every start.
                let whole = (others).into_iter().filter(|&lane| self.starts.of[lane].half.is_none());
                self.starts.untouched |= whole.collect();
            }
        }
        if self.under_way.is_some() {
            self.record_pictures(lanes, true);
        }
    }
}
