//! The begins and ends of a block's episodes, which are counted, recorded and logged here.

use rollhouse_arena::{BlockRows, ObsRefs};
use rollhouse_core::{ColumnMut, GameResult, Interruption, Lanes, Outcome};
use rollhouse_replay::{BlockRecorder, End, Finish, Row};

use super::{Block, Done, Moves, Turn, refs};
use crate::episodes::Finished;
use crate::past::LogEvent;

impl Block {
    /// Ends the open episodes of `lanes` as interrupted; they wait for a reset.
    pub(crate) fn interrupt(&mut self, lanes: u64, cause: Interruption) {
        let open = lanes & self.episodes.open();
        if let (Some(env), true) = (&self.env, self.recorder.is_some()) {
            env.state_hashes(open, &mut self.hashes);
        }
        for lane in Lanes(open) {
            self.interrupt_episode(lane, cause);
        }
        self.standing.waiting |= open;
        self.show();
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
        self.starts.untouched = 0;
    }

    /// Hands everything recorded so far to the writer.
    pub(crate) fn flush(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.flush();
        }
    }

    /// Passes one row to the recorder. The starts of the episodes that begin in it follow.
    #[inline]
    pub(super) fn record_row(&mut self, columns: &BlockRows<'_, '_>, moves: Moves<'_>, turn: Turn) {
        let Some(recorder) = &mut self.recorder else { return };
        let Moves { actions, stepped, reset } = moves;
        let begun = reset & self.starts.untouched;
        let (mut obs, mut infos) = (ObsRefs::new(), ObsRefs::new());
        if recorder.wants_observations() {
            (obs, infos) = (refs(columns.obs), refs(columns.infos));
        }
        let now_ms = turn.now_ms;
        let rewards = &*columns.rewards;
        recorder.row(Row { stepped, begun, actions, obs: &obs, rewards, infos: &infos, now_ms });
    }

    /// Passes the hashes of lanes that have just stepped to the recorder, and those of lanes that play on to the log.
    #[inline(never)]
    pub(super) fn show_hashes(&mut self, due: u64, over: u64) {
        let Some(env) = &self.env else { return };
        env.state_hashes(due, &mut self.hashes);
        if let Some(recorder) = &mut self.recorder {
            Lanes(due).for_each(|lane| recorder.window(lane, self.hashes[lane]));
        }
        if self.logs {
            let hash =
                |lane| LogEvent::Hash { lane: (self.rows.start + lane) as u32, hash: self.hashes[lane] };
            self.status.log(Lanes(due & !over).map(hash));
        }
    }

    /// Ends the episodes of `over`, as `done` says, and tells the recorder.
    #[inline]
    pub(super) fn end_each(&mut self, over: u64, done: Done) {
        if done.truncated & over == 0 {
            // The usual case, for which nothing is asked lane by lane.
            self.end_by(over, |_| (true, false));
        } else {
            self.end_truncated(over, done);
        }
        self.retire(over);
    }

    #[inline(never)]
    fn end_truncated(&mut self, over: u64, done: Done) {
        self.end_by(over, |lane| (done.terminated >> lane & 1 == 1, done.truncated >> lane & 1 == 1));
    }

    /// Ends the episodes of `over` and tells the recorder. `flags` returns for each lane whether its episode was
    /// terminated and whether it was truncated.
    #[inline(always)]
    fn end_by(&mut self, over: u64, flags: impl Fn(usize) -> (bool, bool)) {
        let Self { env, recorder, episodes, stats, .. } = self;
        episodes.close(over);
        let mut end = |lane| {
            let ((terminated, truncated), finished) = (flags(lane), episodes.finish(lane));
            stats.episode(Outcome::Finished { terminated, truncated }, finished);
            finished
        };
        match (recorder, env) {
            (Some(recorder), Some(env)) => recorder.finish_each(over, |lane| {
                let hash = env.state_hash(lane);
                let (terminated, truncated) = flags(lane);
                let Finished { length, total_reward } = end(lane);
                Finish { terminated, truncated, length, total_reward, hash }
            }),
            _ => {
                for lane in Lanes(over) {
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
        self.retire(1 << lane);
    }

    /// Retires those of `lanes` that have played their quota. The episodes of `lanes` are over.
    #[inline]
    fn retire(&mut self, lanes: u64) {
        let Some(quota) = &self.standing.quota else { return };
        for lane in Lanes(lanes) {
            self.standing.retired |= u64::from(self.episodes.next_number(lane) >= quota[lane]) << lane;
        }
    }

    /// Begins an episode in each of `lanes`. The recorder already knows the episodes of the lanes in `recorded`.
    #[inline]
    pub(super) fn begin_episodes(&mut self, lanes: u64, recorded: u64, obs: &[ColumnMut<'_>]) {
        self.episodes.begin_each(lanes);
        if self.recorder.is_some() && lanes & !recorded != 0 {
            self.record_begins(lanes & !recorded, obs);
        }
        if self.logs && lanes != 0 {
            self.status.log(Lanes(lanes).map(|lane| {
                let number = self.episodes.next_number(lane).wrapping_sub(1);
                LogEvent::Began { lane: (self.rows.start + lane) as u32, number, start: self.starts.of[lane] }
            }));
        }
    }

    /// Passes the episodes that begin to the recorder.
    #[inline(never)]
    fn record_begins(&mut self, lanes: u64, obs: &[ColumnMut<'_>]) {
        let Some(recorder) = &mut self.recorder else { return };
        let obs = if recorder.wants_observations() { refs(obs) } else { ObsRefs::new() };
        let (following, others) = (lanes & self.starts.untouched, lanes & !self.starts.untouched);
        if following != 0 {
            recorder.begin_following(following, &obs);
        }
        if others != 0 {
            recorder.begin_each(others, &self.starts.of, &obs);
            if self.starts.words_per_reset.is_some() {
                // A half that is buffered stays so, and is part of every start.
                let whole = Lanes(others).filter(|&lane| self.starts.of[lane].half.is_none());
                self.starts.untouched |= whole.fold(0, |mask, lane| mask | 1 << lane);
            }
        }
    }
}
