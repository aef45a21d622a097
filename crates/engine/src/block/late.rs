//! The lanes of a block that finish when they finish: what each is doing, and how its row is accounted for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use rollhouse_arena::{BlockRows, Rows};
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnData, ColumnRef, ColumnSpec, Interruption, LaneDeadlines, LaneSet};
use rollhouse_env::{Collected, LateRows, Post};
use rollhouse_replay::limits::{CHUNK_AGE_MS, PACKED_AGE_MS};

use super::reports::RowReports;
use super::{Block, Done, Moves, Turn, copy_rows, keep_observations, show_rest};
use crate::timings::{Laps, Phase};

/// What the lanes of a late block are doing.
pub(super) struct UnderWay {
    /// Lanes that step, each with its row of `actions`.
    stepping: LaneSet,
    /// Lanes that begin an episode instead of stepping.
    resetting: LaneSet,
    /// Lanes that begin an episode beside their row: where the owner asked for it, or after the end in the same step.
    renewing: LaneSet,
    /// Lanes that have finished and were not accounted for yet.
    finished: Collected,
    /// Lanes whose rows are complete.
    ready: LaneSet,
    /// True if the lanes belong to one frame, and are accounted for together: first those that move, then those that are
    /// renewed.
    frame: bool,
    /// Actions with which lanes were posted. Lanes may be posted while those of others are accounted for.
    actions: Arc<ColumnData>,
    /// Rewards of the steps after which lanes are renewed.
    rewards: [f64; BLOCK_LANES],
    /// What is known of the lanes that were posted when none was under way.
    together: Posted,
    /// Lanes that were posted while others were under way.
    apart: LaneSet,
    /// What is known of each of these.
    posted_apart: [Posted; BLOCK_LANES],
    /// What rows report of their steps; `None` if they report nothing.
    pub(super) reports: Option<Box<RowReports>>,
    /// Times that a lane may be under way.
    deadlines: LaneDeadlines,
    /// Time as the block is given it.
    now: Instant,
    /// Time at which lanes were last posted, and the time after that at which the recording is handed over if lanes are
    /// still waited for.
    stirred: (Instant, Duration),
}

/// When a lane was posted, and the version of the policy that chose its action.
#[derive(Debug, Clone, Copy)]
struct Posted {
    at: Instant,
    version: u64,
}

impl UnderWay {
    /// Makes one at the time `now`, of that many lanes, none of which is doing anything.
    pub(super) fn new(action: &ColumnSpec, lanes: usize, (deadlines, now): (LaneDeadlines, Instant)) -> Self {
        let never = Posted { at: now, version: 0 };
        Self {
            stepping: LaneSet::NONE,
            resetting: LaneSet::NONE,
            renewing: LaneSet::NONE,
            finished: Collected::default(),
            ready: LaneSet::NONE,
            frame: false,
            actions: Arc::new(ColumnData::zeros(action.dtype, lanes * action.elements())),
            rewards: [0.0; BLOCK_LANES],
            together: never,
            apart: LaneSet::NONE,
            posted_apart: [never; BLOCK_LANES],
            reports: None,
            deadlines,
            now,
            stirred: (now, HAND_OVER_AFTER),
        }
    }

    /// Sets the times that a lane may be under way from now on.
    pub(super) const fn set_deadlines(&mut self, deadlines: LaneDeadlines) {
        self.deadlines = deadlines;
    }

    /// Returns the lanes that have not finished.
    fn lanes(&self) -> LaneSet {
        let Collected { done, lost, hung, .. } = self.finished;
        (self.stepping | self.resetting | self.renewing) & !(done | lost | hung)
    }

    /// Notes that `lanes` are posted.
    fn post(&mut self, lanes: LaneSet, posted: Posted) {
        self.stirred = (posted.at, HAND_OVER_AFTER);
        if self.lanes().is_empty() {
            (self.together, self.apart) = (posted, LaneSet::NONE);
        } else {
            self.apart |= lanes;
            lanes.into_iter().for_each(|lane| self.posted_apart[lane] = posted);
        }
    }

    /// Begins the time of `lanes` again.
    fn renew(&mut self, lanes: LaneSet, now: Instant) {
        for lane in lanes {
            self.posted_apart[lane] = Posted { at: now, ..self.posted(lane) };
        }
        self.apart |= lanes;
    }

    /// Returns what is known of a lane that was posted.
    fn posted(&self, lane: usize) -> Posted {
        if self.apart.has(lane) { self.posted_apart[lane] } else { self.together }
    }

    /// Splits lanes by the version of the policy that chose their actions.
    fn by_version(&self, mut lanes: LaneSet) -> ArrayVec<(LaneSet, u64), BLOCK_LANES> {
        let mut rows = ArrayVec::new();
        while let Some(first) = lanes.lowest() {
            let version = self.posted(first).version;
            let of_it = |&lane: &usize| self.posted_apart[lane].version == version;
            let mut row: LaneSet = (lanes & self.apart).into_iter().filter(of_it).collect();
            if self.together.version == version {
                row |= lanes & !self.apart;
            }
            rows.push((row, version));
            lanes &= !row;
        }
        rows
    }

    /// Returns a time before which no lane has been under way for too long; `None` if none is under way.
    fn due(&self) -> Option<Instant> {
        let lanes = self.lanes();
        let (together, begin) = (lanes & !self.apart, self.resetting | self.renewing);
        let LaneDeadlines { step, reset, .. } = self.deadlines;
        let kinds = [(together & !begin, step), (together & begin, reset)];
        let together = kinds.into_iter().filter(|(lanes, _)| !lanes.is_empty());
        let together = together.map(|(_, time)| self.together.at + time);
        together.chain((lanes & self.apart).into_iter().map(|lane| self.due_of(lane))).min()
    }

    /// Returns when a lane under way has been so for too long.
    fn due_of(&self, lane: usize) -> Instant {
        let LaneDeadlines { step, reset, .. } = self.deadlines;
        self.posted(lane).at + if self.begins(lane) { reset } else { step }
    }

    /// Returns whether a lane under way begins an episode.
    fn begins(&self, lane: usize) -> bool {
        (self.resetting | self.renewing).has(lane)
    }

    /// Returns the lanes that have been under way for too long.
    fn overdue(&self, now: Instant) -> LaneSet {
        if self.due().is_none_or(|due| now < due) {
            return LaneSet::NONE;
        }
        self.lanes().into_iter().filter(|&lane| self.due_of(lane) <= now).collect()
    }

    fn merge(&mut self, collected: Collected) {
        let under_way = self.lanes();
        self.finished.done |= collected.done & under_way;
        self.finished.terminated |= collected.terminated & collected.done & under_way;
        self.finished.truncated |= collected.truncated & collected.done & under_way;
        self.finished.lost |= collected.lost & under_way & !collected.done;
        self.finished.hung |= collected.hung & under_way & !(collected.done | collected.lost);
    }
}

impl Block {
    /// Gives the block the time, by which it decides from now on. It reads no clock.
    pub(crate) fn note_time(&mut self, now: Instant) {
        if let Some(under_way) = &mut self.under_way {
            under_way.now = now;
        }
    }

    /// Posts a step of every lane. Rows of lanes that do not move repeat the frame before.
    pub(crate) fn post_frame(&mut self, rows: &mut Rows<'_>, turn: Turn) {
        rows.with_block(&self.lanes.rows().clone(), |columns| {
            self.post(columns, columns.actions, self.lanes.all(), turn, true);
        });
    }

    /// Posts a step of the lanes of `subset`, with the actions in `actions`, a column of the block's rows. Other lanes
    /// stand still.
    pub(crate) fn post_some(
        &mut self,
        rows: &mut Rows<'_>,
        actions: ColumnRef<'_>,
        subset: LaneSet,
        turn: Turn,
    ) {
        rows.with_block(&self.lanes.rows().clone(), |columns| {
            self.post(columns, actions, subset & self.lanes.all(), turn, false);
        });
    }

    fn post(
        &mut self,
        columns: &mut BlockRows<'_, '_>,
        actions: ColumnRef<'_>,
        subset: LaneSet,
        turn: Turn,
        frame: bool,
    ) {
        if !self.restarts.lost().is_empty() {
            self.restart(turn.since_start);
        }
        let moving = self.standing.let_go(subset);
        let reset = self.take_starts(moving & self.standing.waiting & !self.standing.retired);
        let stepped = moving & self.episodes.open();
        if frame {
            let still = self.lanes.all() & !(stepped | reset);
            if !still.is_empty() {
                keep_observations(columns, still, self.lanes.count());
                show_rest(columns, LaneSet::NONE);
            }
        } else {
            let still = subset & !(stepped | reset);
            show_still(columns, still);
        }
        let Some(under_way) = &mut self.under_way else { return };
        debug_assert!(!frame || under_way.lanes().is_empty(), "no lane is under way when a frame is posted");
        // Rows of lanes that are not under way may be anything.
        let copied = if frame { self.lanes.all() } else { stepped };
        copy_rows(&mut Arc::make_mut(&mut under_way.actions).as_mut(), actions, copied, self.lanes.count());
        let posted = Posted { at: under_way.now, version: turn.policy_version };
        under_way.post(stepped | reset, posted);
        under_way.frame = frame;
        under_way.ready |= subset & !(stepped | reset);
        under_way.stepping |= stepped;
        under_way.resetting |= reset;
        self.post_to_env(stepped, reset);
        self.show();
    }

    /// Says that the lanes that are posted next belong to one frame, in which none has a reward yet.
    pub(super) fn begin_frame(&mut self, columns: &mut BlockRows<'_, '_>) {
        if let Some(under_way) = &mut self.under_way {
            under_way.frame = true;
            columns.rewards.fill(0.0);
        }
    }

    /// Posts the beginning of an episode in `lanes`, whose starts have been taken, beside their rows.
    pub(super) fn post_resets(&mut self, lanes: LaneSet, columns: &BlockRows<'_, '_>) {
        let Some(under_way) = &mut self.under_way else { return };
        // No action begins them.
        under_way.post(lanes, Posted { at: under_way.now, version: 0 });
        under_way.renewing |= lanes;
        lanes.into_iter().for_each(|lane| under_way.rewards[lane] = columns.rewards[lane]);
        self.post_to_env(LaneSet::NONE, lanes);
    }

    fn post_to_env(&mut self, step: LaneSet, reset: LaneSet) {
        let Some(under_way) = self.under_way.take() else { return };
        let repeats = under_way.reports.as_ref().is_some_and(|reports| reports.repeats);
        let post = Post { step, reset, actions: (*under_way.actions).as_ref(), repeats };
        self.with_late(|env| env.post(post));
        self.under_way = Some(under_way);
    }

    /// Takes the lanes that have finished and gives up those that are overdue. Returns those whose rows are complete
    /// since the last call; of a frame all lanes are complete together.
    pub(crate) fn collect(&mut self, rows: &mut Rows<'_>, turn: Turn, laps: &mut Laps) -> LaneSet {
        rows.with_block(&self.lanes.rows().clone(), |columns| self.collect_columns(columns, turn, laps));
        self.under_way.as_mut().map_or(LaneSet::NONE, |under_way| std::mem::take(&mut under_way.ready))
    }

    fn collect_columns(&mut self, columns: &mut BlockRows<'_, '_>, turn: Turn, laps: &mut Laps) {
        let Some(mut under_way) = self.under_way.take() else { return };
        let lanes = under_way.lanes();
        if !lanes.is_empty() {
            let collected = self.with_late(|env| {
                let rows = LateRows { obs: columns.obs, infos: columns.infos, rewards: columns.rewards };
                let mut collected = env.collect(rows);
                if (lanes & !collected.lanes()).is_empty() {
                    return collected;
                }
                let now = under_way.now;
                let overdue = under_way.overdue(now) & !collected.lanes();
                if !overdue.is_empty() {
                    let connecting = overdue & env.connecting();
                    under_way.renew(connecting, now);
                    let late = overdue & !connecting;
                    let begins: LaneSet = late.into_iter().filter(|&lane| under_way.begins(lane)).collect();
                    for (lanes, resetting) in [(late & !begins, false), (begins, true)] {
                        if !lanes.is_empty() {
                            let why = under_way.deadlines.why_hung(resetting);
                            collected.hung |= lanes | env.give_up(lanes, &why);
                        }
                    }
                }
                collected
            });
            // Without an env the whole block is lost.
            let mut collected = collected.unwrap_or(Collected { lost: lanes, ..Collected::default() });
            if under_way.reports.is_some() {
                self.take_reports(columns, &mut under_way, &mut collected);
            }
            under_way.merge(collected);
        }
        let complete = !under_way.frame || under_way.lanes().is_empty();
        self.under_way = Some(under_way);
        laps.lap(Phase::Step);
        if complete {
            self.account_finished(columns, turn, laps);
        }
    }

    /// Takes what the rows of lanes that have stepped report, and loses those whose rows are refused.
    #[inline(never)]
    fn take_reports(
        &mut self,
        columns: &BlockRows<'_, '_>,
        under_way: &mut UnderWay,
        collected: &mut Collected,
    ) {
        for lane in collected.done & under_way.stepping {
            let Some(reports) = &mut under_way.reports else { return };
            let posted = Arc::make_mut(&mut under_way.actions);
            let spec = self.maker.entry.spec();
            match reports.take(lane, &self.lanes, columns, posted, spec) {
                Ok(None) => {}
                Ok(Some(version)) => {
                    under_way.posted_apart[lane] = Posted { version, ..under_way.posted(lane) };
                    under_way.apart.insert(lane);
                }
                Err(fault) => {
                    collected.done &= !LaneSet::one(lane);
                    collected.lost.insert(lane);
                    self.with_late(|env| env.refuse(lane, &fault.to_string()));
                }
            }
        }
    }

    /// Accounts for lanes that have finished: as a row those that stepped or began an episode in it, and beside it those
    /// that were renewed.
    fn account_finished(&mut self, columns: &mut BlockRows<'_, '_>, turn: Turn, laps: &mut Laps) {
        let Some(under_way) = &mut self.under_way else { return };
        let Collected { done, terminated, truncated, lost, hung } = std::mem::take(&mut under_way.finished);
        let finished = done | lost | hung;
        if finished.is_empty() {
            return;
        }
        let moved = under_way.stepping | under_way.resetting;
        let (stepped, reset) = (under_way.stepping & finished, under_way.resetting & finished);
        let renewed = under_way.renewing & finished;
        under_way.stepping &= !finished;
        under_way.resetting &= !finished;
        under_way.renewing &= !finished;
        let (frame, rewards) = (under_way.frame, under_way.rewards);
        // Lanes that were posted under different versions of the policy are rows of their own.
        let rows = under_way.by_version(stepped | reset);
        let actions = Arc::clone(&under_way.actions);
        // A block that is lost as a whole has lost its lanes already.
        let known = self.restarts.lost();
        self.lose_each(lost & !known, Interruption::Crashed);
        self.lose_each(hung & !known, Interruption::Hung);
        for (row, policy_version) in rows {
            let (stepped, reset, lost) = (stepped & row, reset & row, lost | hung);
            let moves = Moves { actions: (*actions).as_ref(), stepped, reset };
            let done = Done { terminated: terminated & stepped, truncated: truncated & stepped, lost };
            self.account(columns, moves, done, Turn { policy_version, ..turn }, laps);
        }
        self.standing.waiting &= !renewed;
        self.begin_episodes(renewed & done, LaneSet::NONE, columns.obs);
        for lane in renewed {
            // That of the step before, which a row that begins an episode has overwritten.
            columns.rewards[lane] = rewards[lane];
        }
        self.show_lost(columns, (lost | hung) & !renewed, (lost | hung) & renewed, frame);
        if let Some(under_way) = &mut self.under_way {
            under_way.ready |= finished & !under_way.renewing;
        }
        debug_assert!((renewed & moved).is_empty(), "a lane does one thing at a time");
        self.show();
    }

    /// Shows lanes that were lost, while they `moved` or were `renewed`: no episode that begins, and in a frame the
    /// observation of the one before. A lane whose episode ended in the same step shows what that step gave; others have no
    /// reward.
    fn show_lost(&self, columns: &mut BlockRows<'_, '_>, moved: LaneSet, renewed: LaneSet, frame: bool) {
        for lane in moved {
            (columns.rewards[lane], columns.terminated[lane], columns.truncated[lane]) = (0.0, 0, 0);
        }
        let over = |&lane: &usize| columns.terminated[lane] | columns.truncated[lane] == 1;
        let stepped: LaneSet = renewed.into_iter().filter(over).collect();
        (moved | renewed).into_iter().for_each(|lane| columns.reset[lane] = 0);
        let still = (moved | renewed) & !stepped;
        if frame && !still.is_empty() {
            keep_observations(columns, still, self.lanes.count());
        }
        self.show_last(columns, stepped);
    }

    /// Waits awake for a moment if lanes are about to finish.
    pub(crate) fn linger(&mut self) {
        if self.under_way.as_ref().is_some_and(|under_way| !under_way.lanes().is_empty()) {
            self.with_late(|env| env.linger());
        }
    }

    /// Sets the times that a late lane may be under way from now on.
    pub(crate) fn set_lane_deadlines(&mut self, deadlines: LaneDeadlines) {
        if let Some(under_way) = &mut self.under_way {
            under_way.set_deadlines(deadlines);
        }
    }

    /// Returns a time before which no lane has been under way for too long; `None` if none is under way.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.under_way.as_ref().and_then(|under_way| under_way.due())
    }

    /// Returns whether rows are complete that were not taken.
    pub(crate) fn is_ready(&self) -> bool {
        self.under_way.as_ref().is_some_and(|under_way| !under_way.ready.is_empty())
    }

    /// Returns the time at which the block hands over what it has recorded, if its lanes are still waited for then; `None` if
    /// none is under way or nothing is recorded.
    pub(crate) fn hand_over_at(&self) -> Option<Instant> {
        let under_way = self.under_way.as_ref().filter(|under_way| !under_way.lanes().is_empty())?;
        self.recorder.is_some().then(|| under_way.stirred.0 + under_way.stirred.1)
    }

    /// Hands over what the block has recorded, if it is time.
    pub(crate) fn hand_over_if_due(&mut self) {
        let Some(now) = self.under_way.as_ref().map(|under_way| under_way.now) else { return };
        if self.hand_over_at().is_none_or(|at| at > now) {
            return;
        }
        let since = self.under_way.as_ref().map_or(now, |under_way| under_way.stirred.0);
        let paused = now.saturating_duration_since(since);
        let stays = self.hand_over(paused);
        if let Some(under_way) = &mut self.under_way {
            under_way.stirred.1 = if stays { HAND_OVER_REST_AFTER } else { paused + HAND_OVER_AFTER };
        }
    }
}

/// Clears rewards and flags of the rows of `lanes`, which do not move.
fn show_still(columns: &mut BlockRows<'_, '_>, lanes: LaneSet) {
    for lane in lanes {
        columns.rewards[lane] = 0.0;
        (columns.terminated[lane], columns.truncated[lane], columns.reset[lane]) = (0, 0, 0);
    }
}

/// Writes the flags of `lanes`, and leaves those of others alone.
pub(super) fn flag(columns: &mut BlockRows<'_, '_>, lanes: LaneSet, done: Done, reset: LaneSet) {
    for lane in lanes {
        columns.terminated[lane] = u8::from(done.terminated.has(lane));
        columns.truncated[lane] = u8::from(done.truncated.has(lane));
        columns.reset[lane] = u8::from(reset.has(lane));
    }
}

/// Time for which lanes are waited for before what was recorded before them is handed over: a row would close the chunk by
/// then.
const HAND_OVER_AFTER: Duration = Duration::from_millis(CHUNK_AGE_MS);

/// The same for what is not handed over by then, because its rows are packed and no episode has ended in them.
const HAND_OVER_REST_AFTER: Duration = Duration::from_millis(PACKED_AGE_MS);

#[cfg(test)]
mod tests {
    use rollhouse_core::{DType, Role};

    use super::*;

    #[test]
    fn lanes_posted_while_others_are_under_way_have_times_and_versions_of_their_own() {
        let action = ColumnSpec {
            path: String::new(),
            dtype: DType::I64,
            shape: Vec::new(),
            names: Vec::new(),
            role: Role::Action,
        };
        let lanes = |lanes: &[usize]| lanes.iter().copied().collect::<LaneSet>();
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut under_way = UnderWay::new(&action, 8, (LaneDeadlines::both(2 * second), start));
        let mut post = |posted: LaneSet, at: u32, version: u64| {
            under_way.post(posted, Posted { at: start + at * second, version });
            under_way.stepping |= posted;
        };
        post(lanes(&[0, 1, 2]), 0, 7);
        post(lanes(&[3, 4]), 1, 8);
        post(lanes(&[5]), 1, 7);
        let rows = under_way.by_version(lanes(&[0, 2, 3, 5]));
        assert_eq!(rows.as_slice(), [(lanes(&[0, 2, 5]), 7), (lanes(&[3]), 8)]);
        assert_eq!(under_way.overdue(start + second), LaneSet::NONE);
        under_way.renew(lanes(&[1]), start + second);
        assert_eq!(under_way.overdue(start + 2 * second), lanes(&[0, 2]));
        assert_eq!(under_way.overdue(start + 3 * second), lanes(&[0, 1, 2, 3, 4, 5]));
        assert_eq!(under_way.by_version(lanes(&[1])).as_slice(), [(lanes(&[1]), 7)]);
    }

    /// Symptom: a reset that took longer than a step may was given up, whatever was set. Cause: one time for both. Fix: a
    /// time for each.
    #[test]
    fn a_lane_that_resets_has_another_time_than_one_that_steps_whenever_they_were_posted() {
        let second = Duration::from_secs;
        let (path, shape, names) = (String::new(), Vec::new(), Vec::new());
        let action = ColumnSpec { path, dtype: DType::I64, shape, names, role: Role::Action };
        let times = LaneDeadlines { step: second(1), reset: second(3600), ..LaneDeadlines::default() };
        let begun = Instant::now();
        let mut under_way = UnderWay::new(&action, 3, (times, begun));
        let lane = LaneSet::one;
        assert_eq!(under_way.due(), None);
        under_way.post(lane(0) | lane(1), Posted { at: begun, version: 0 });
        (under_way.stepping, under_way.resetting) = (lane(0), lane(1));
        under_way.post(lane(2), Posted { at: begun + second(7200), version: 0 });
        under_way.stepping |= lane(2);
        assert_eq!(under_way.due(), Some(begun + second(1)));
        assert_eq!(under_way.overdue(begun + second(1)), lane(0));
        under_way.merge(Collected { hung: lane(0), ..Collected::default() });
        assert_eq!(under_way.due(), Some(begun + second(3600)));
        assert_eq!(under_way.overdue(begun + second(3599)), LaneSet::NONE);
        assert_eq!(under_way.overdue(begun + second(3600)), lane(1));
        under_way.renew(lane(1), begun + second(3600));
        assert_eq!(under_way.due(), Some(begun + second(7200)));
        under_way.merge(Collected { done: lane(1), ..Collected::default() });
        assert_eq!(under_way.overdue(begun + second(7201)), lane(2));
    }
}
