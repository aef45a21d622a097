//! One block of lanes: its env, its episodes, its recorder.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rollhouse_arena::{BlockRows, ObsRefs, Rows};
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{
    ColumnMut, ColumnRef, GameResult, Interruption, LaneState, Lanes, Outcome, SeedSchedule, Start,
    lane_bits, per_episode_seed,
};
use rollhouse_env::{BatchEnv, BlockStep};
use rollhouse_replay::{BlockRecorder, End, Row};

use crate::config::Autoreset;
use crate::episodes::Episodes;
use crate::flags::spread;
use crate::restart::{Maker, Restarts};
use crate::stats::Stats;
use crate::timings::{Laps, Phase};

/// One block of lanes.
pub(crate) struct Block {
    /// Rows of the batch.
    rows: Range<usize>,
    all: u64,
    maker: Maker,
    /// `None` while the whole block is lost.
    env: Option<Box<dyn BatchEnv>>,
    autoreset: Autoreset,
    schedule: SeedSchedule,
    /// Lanes that have been given a seed.
    seeded: u64,
    starts: Box<[Start; BLOCK_LANES]>,
    episodes: Episodes,
    /// Lanes whose episode is over and whose next one has not begun.
    waiting: u64,
    /// Lanes that have played their quota.
    retired: u64,
    /// Episodes each lane may play.
    quota: Option<Box<[u64; BLOCK_LANES]>>,
    restarts: Restarts,
    recorder: Option<BlockRecorder>,
    stats: Stats,
    shown: Arc<Shown>,
}

/// What a block shows to the owner's thread; read when no step is in flight.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Shown {
    waiting: AtomicU64,
    lost: AtomicU64,
    retired: AtomicU64,
}

/// What the owner says of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    /// Wall clock, milliseconds since 1970.
    pub(crate) now_ms: u64,
    /// Since the engine was made.
    pub(crate) since_start: Duration,
}

/// A block's parts at the beginning.
pub(crate) struct BlockParts {
    pub(crate) rows: Range<usize>,
    pub(crate) maker: Maker,
    pub(crate) env: Box<dyn BatchEnv>,
    pub(crate) autoreset: Autoreset,
    pub(crate) schedule: SeedSchedule,
    pub(crate) limit: Option<u64>,
    pub(crate) recorder: Option<BlockRecorder>,
    pub(crate) shown: Arc<Shown>,
}

impl Block {
    pub(crate) fn new(parts: BlockParts) -> Self {
        let first_lane = parts.rows.start;
        Self {
            all: lane_bits(parts.rows.len()),
            rows: parts.rows,
            maker: parts.maker,
            env: Some(parts.env),
            autoreset: parts.autoreset,
            schedule: parts.schedule,
            seeded: 0,
            starts: Box::new([Start::default(); BLOCK_LANES]),
            episodes: Episodes::new(parts.limit),
            waiting: 0,
            retired: 0,
            quota: None,
            restarts: Restarts::new(first_lane as u64),
            recorder: parts.recorder,
            stats: Stats::default(),
            shown: parts.shown,
        }
    }

    /// Rows of the batch.
    pub(crate) const fn rows(&self) -> &Range<usize> {
        &self.rows
    }

    /// Where a lane is in its life.
    pub(crate) fn lane_state(&self, lane: usize) -> LaneState {
        let (open, waiting) = (self.episodes.open() >> lane & 1 == 1, self.waiting >> lane & 1 == 1);
        match self.restarts.state(lane) {
            Some(state) => state,
            None if open => LaneState::Playing,
            None if waiting => LaneState::Over,
            // Made, and asked for nothing yet: the first reset is what it waits for.
            None => LaneState::Streaming,
        }
    }

    pub(crate) const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// One step of every lane with the actions of the batch: those with an open episode take theirs, those
    /// that wait begin the next one.
    #[inline]
    pub(crate) fn step(&mut self, rows: &mut Rows<'_>, turn: Turn, laps: &mut Laps) {
        let columns = rows.block(&self.rows);
        self.step_columns(columns, self.all, turn, laps);
        self.finish_step(rows);
    }

    /// The same for the lanes of `subset` with other actions, a column of the block's rows; lanes outside
    /// stand still.
    pub(crate) fn step_some(
        &mut self,
        rows: &mut Rows<'_>,
        actions: ColumnRef<'_>,
        subset: u64,
        turn: Turn,
        laps: &mut Laps,
    ) {
        let mut columns = rows.block(&self.rows);
        columns.actions = actions;
        self.step_columns(columns, subset & self.all, turn, laps);
        self.finish_step(rows);
    }

    #[inline]
    fn step_columns(&mut self, mut columns: BlockRows<'_>, subset: u64, turn: Turn, laps: &mut Laps) {
        if self.restarts.lost() != 0 {
            self.restart(turn.since_start);
        }
        let stepped = subset & self.episodes.open();
        let reset = subset & self.waiting & !self.retired;
        if reset != 0 {
            self.take_starts(reset);
        }
        match self.step_env(&mut columns, stepped, reset, laps) {
            Some(done) => self.account(&mut columns, stepped, reset, done, turn, laps),
            None => self.stand_still(&mut columns),
        }
    }

    #[inline]
    fn finish_step(&mut self, rows: &mut Rows<'_>) {
        self.show();
        if self.restarts.lost() != 0 {
            self.keep_lost_rows(rows);
        }
    }

    /// Steps and resets the env. `None` if the whole block was or is lost.
    ///
    /// In a sampled batch the two are called apart, which gives the same results, to be timed apart.
    #[inline]
    fn step_env(
        &mut self,
        columns: &mut BlockRows<'_>,
        stepped: u64,
        reset: u64,
        laps: &mut Laps,
    ) -> Option<Done> {
        let env = self.env.as_mut()?;
        let apart = laps.sampled();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut ended = env.step(BlockStep {
                skip: if apart { !stepped } else { !(stepped | reset) },
                reset: if apart { 0 } else { reset },
                actions: columns.actions,
                obs: &mut columns.obs,
                infos: &mut columns.infos,
                rewards: columns.rewards,
            });
            laps.lap(Phase::Step);
            if apart && reset != 0 {
                ended.lost |= env.reset(reset, &mut columns.obs);
                laps.lap(Phase::Reset);
            }
            ended
        }));
        let Ok(ended) = outcome else {
            self.env = None;
            self.lose(self.all);
            return None;
        };
        self.lose_each(ended.lost & (stepped | reset));
        let alive = stepped & !ended.lost;
        Some(Done {
            terminated: ended.terminated & alive,
            truncated: ended.truncated & alive,
            lost: ended.lost,
        })
    }

    /// Books a step that the env has made: episodes, flags, recording, autoreset.
    #[inline]
    fn account(
        &mut self,
        columns: &mut BlockRows<'_>,
        stepped: u64,
        reset: u64,
        mut done: Done,
        turn: Turn,
        laps: &mut Laps,
    ) {
        let (stepped, reset) = (stepped & !done.lost, reset & !done.lost);
        done.truncated |= self.episodes.advance(stepped, columns.rewards) & stepped;
        self.stats.steps += u64::from(stepped.count_ones());
        let over = done.terminated | done.truncated;
        spread(done.terminated, columns.terminated);
        spread(done.truncated, columns.truncated);
        spread(reset, columns.reset);

        laps.lap(Phase::Step);
        let mut hashes = [0; BLOCK_LANES];
        if self.recorder.is_some() {
            self.record(columns, stepped, over, turn, &mut hashes);
        }
        for lane in Lanes(over) {
            let outcome = Outcome::Finished {
                terminated: done.terminated >> lane & 1 == 1,
                truncated: done.truncated >> lane & 1 == 1,
            };
            self.end_episode(lane, outcome, hashes[lane]);
        }
        laps.lap(Phase::Record);
        self.waiting = self.waiting & !reset | over;
        self.begin_episodes(reset, &columns.obs);
        if self.autoreset == Autoreset::SameStep && over & !self.retired != 0 {
            self.reset_in_same_step(columns, over & !self.retired);
        }
        laps.lap(Phase::Reset);
    }

    /// SAME_STEP: keeps the last observations and begins the next episodes in the very step.
    fn reset_in_same_step(&mut self, columns: &mut BlockRows<'_>, lanes: u64) {
        for (last, obs) in columns.final_obs.iter_mut().zip(&columns.obs) {
            copy_rows(last, obs.as_ref(), lanes, self.rows.len());
        }
        self.take_starts(lanes);
        self.reset_env(lanes, columns);
    }

    /// Begins an episode in each of `lanes`, ending any that is open as `cancelled`; other lanes keep their
    /// observation. `seeds` are for the rows of the batch.
    pub(crate) fn reset(&mut self, rows: &mut Rows<'_>, lanes: u64, seeds: &dyn Fn(usize) -> Option<u64>) {
        let range = self.rows.clone();
        self.interrupt(lanes, Interruption::Cancelled);
        let lanes = lanes & self.all & !self.retired & !self.restarts.lost();
        if let Some(env) = &mut self.env {
            for lane in Lanes(lanes) {
                if let Some(seed) = seeds(range.start + lane) {
                    env.seed(lane, seed);
                    self.seeded |= 1 << lane;
                }
            }
        }
        let (mut columns, previous) = rows.block_with_previous(&range);
        for (obs, previous) in columns.obs.iter_mut().zip(previous) {
            copy_rows(obs, previous, !lanes, range.len());
        }
        self.take_starts(lanes);
        self.reset_env(lanes, &mut columns);
        columns.rewards.fill(0.0);
        spread(0, columns.terminated);
        spread(0, columns.truncated);
        spread(lanes & !self.restarts.lost(), columns.reset);
        self.show();
    }

    /// Ends the open episodes of `lanes` as interrupted; they wait for a reset.
    pub(crate) fn interrupt(&mut self, lanes: u64, cause: Interruption) {
        let open = lanes & self.episodes.open();
        let mut hashes = [0; BLOCK_LANES];
        if let (Some(env), true) = (&self.env, self.recorder.is_some()) {
            env.state_hashes(open, &mut hashes);
        }
        for lane in Lanes(open) {
            self.end_episode(lane, Outcome::Interrupted(cause), hashes[lane]);
        }
        self.waiting |= open;
        self.show();
    }

    /// Lets each lane play `quota(row of the batch)` episodes in all; one that has is not reset any more.
    pub(crate) fn limit_episodes(&mut self, quota: &dyn Fn(usize) -> u64) {
        let limits = Box::new(std::array::from_fn(|lane| quota(self.rows.start + lane)));
        self.retired = Lanes(self.all & !self.episodes.open())
            .filter(|&lane| self.episodes.next_number(lane) >= limits[lane])
            .fold(0, |mask, lane| mask | 1 << lane);
        self.quota = Some(limits);
        self.show();
    }

    /// Hands what was recorded to the writer.
    pub(crate) fn flush(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.flush();
        }
    }

    #[inline]
    fn record(
        &mut self,
        columns: &BlockRows<'_>,
        stepped: u64,
        over: u64,
        turn: Turn,
        hashes: &mut [u32; BLOCK_LANES],
    ) {
        let (Some(recorder), Some(env)) = (&mut self.recorder, &self.env) else { return };
        let (obs, infos) = (refs(&columns.obs), refs(&columns.infos));
        recorder.row(Row {
            stepped,
            actions: columns.actions,
            obs: &obs,
            rewards: columns.rewards,
            infos: &infos,
            now_ms: turn.now_ms,
        });
        let due = self.episodes.window_due(stepped);
        if due | over != 0 {
            env.state_hashes(due | over, hashes);
        }
        for lane in Lanes(due) {
            recorder.window(lane, hashes[lane]);
        }
    }

    #[inline]
    fn end_episode(&mut self, lane: usize, outcome: Outcome, hash: u32) {
        let finished = self.episodes.end(lane);
        self.stats.episode(outcome, finished);
        if let Some(recorder) = &mut self.recorder {
            let total_reward = finished.total_reward;
            recorder.end(lane, End { outcome, total_reward, hash, result: GameResult::None, score: None });
        }
        if let Some(quota) = &self.quota
            && self.episodes.next_number(lane) >= quota[lane]
        {
            self.retired |= 1 << lane;
        }
    }

    /// Seeds the generators of `lanes` as the schedule says and notes where their next episodes start.
    #[inline]
    fn take_starts(&mut self, lanes: u64) {
        let Some(env) = &mut self.env else { return };
        match self.schedule {
            SeedSchedule::PerEpisode { run_seed } => {
                for lane in Lanes(lanes) {
                    let row = (self.rows.start + lane) as u32;
                    let seed = per_episode_seed(run_seed, row, self.episodes.next_number(lane));
                    env.seed(lane, seed);
                    self.starts[lane] = Start::seeded(seed);
                }
                self.seeded |= lanes;
            }
            SeedSchedule::Continue => {
                for lane in Lanes(lanes & !self.seeded) {
                    env.seed(lane, self.maker.entropy(lane));
                }
                self.seeded |= lanes;
                if self.recorder.is_some() {
                    for lane in Lanes(lanes) {
                        self.starts[lane] = env.position(lane);
                    }
                }
            }
        }
    }

    /// Resets the env in `lanes`, whose starts have been taken, and begins their episodes.
    fn reset_env(&mut self, lanes: u64, columns: &mut BlockRows<'_>) {
        let Some(env) = &mut self.env else { return };
        let lost = catch_unwind(AssertUnwindSafe(|| env.reset(lanes, &mut columns.obs)));
        match lost {
            Ok(lost) => {
                self.lose_each(lost & lanes);
                self.waiting &= !lanes;
                self.begin_episodes(lanes & !lost, &columns.obs);
            }
            Err(_) => {
                self.env = None;
                self.lose(self.all);
            }
        }
    }

    #[inline]
    fn begin_episodes(&mut self, lanes: u64, obs: &[ColumnMut<'_>]) {
        for lane in Lanes(lanes) {
            self.episodes.begin(lane);
        }
        if let Some(recorder) = &mut self.recorder
            && lanes != 0
        {
            let obs = refs(obs);
            for lane in Lanes(lanes) {
                recorder.begin(lane, self.starts[lane], &obs);
            }
        }
    }

    /// Loses lanes whose env fails one by one.
    #[inline]
    fn lose_each(&mut self, lanes: u64) {
        for lane in Lanes(lanes) {
            self.lose(1 << lane);
        }
    }

    /// The env of `lanes` has failed as one: their episodes end as `crashed`, and a restart is scheduled.
    #[cold]
    fn lose(&mut self, lanes: u64) {
        for lane in Lanes(lanes & self.episodes.open()) {
            self.end_episode(lane, Outcome::Interrupted(Interruption::Crashed), 0);
        }
        self.waiting &= !lanes;
        self.restarts.fail(lanes);
    }

    /// Re-creates lanes whose back-off is over; they wait for a reset, which autoreset gives them.
    #[cold]
    fn restart(&mut self, since_start: Duration) {
        let due = self.restarts.due(since_start);
        if due == 0 {
            return;
        }
        let back = match &mut self.env {
            Some(env) => self.maker.revive(env.as_mut(), due),
            None => self.remake(),
        };
        self.restarts.restarted(due, back);
        self.stats.restarts += u64::from(back.count_ones());
        self.waiting |= back;
    }

    /// Makes the whole block anew. Its new generators are seeded from each lane's last start and episode
    /// count, so that a seeded run which loses its block at the same step goes on in the same way.
    fn remake(&mut self) -> u64 {
        let Some(mut env) = self.maker.make() else { return 0 };
        for lane in Lanes(self.all & self.seeded) {
            let row = (self.rows.start + lane) as u32;
            env.seed(lane, per_episode_seed(self.starts[lane].seed, row, self.episodes.next_number(lane)));
        }
        self.env = Some(env);
        self.all
    }

    /// The whole block is lost: nothing moves.
    #[cold]
    fn stand_still(&mut self, columns: &mut BlockRows<'_>) {
        columns.rewards.fill(0.0);
        spread(0, columns.terminated);
        spread(0, columns.truncated);
        spread(0, columns.reset);
    }

    /// Lost lanes show their last observation.
    #[cold]
    fn keep_lost_rows(&mut self, rows: &mut Rows<'_>) {
        let lost = self.restarts.lost();
        let (mut columns, previous) = rows.block_with_previous(&self.rows);
        for (obs, previous) in columns.obs.iter_mut().zip(previous) {
            copy_rows(obs, previous, lost, self.rows.len());
        }
        for lane in Lanes(lost) {
            columns.rewards[lane] = 0.0;
        }
    }

    #[inline]
    fn show(&self) {
        self.shown.waiting.store(self.waiting & !self.retired, Ordering::Relaxed);
        self.shown.lost.store(self.restarts.lost(), Ordering::Relaxed);
        self.shown.retired.store(self.retired, Ordering::Relaxed);
    }
}

impl Shown {
    /// Lanes whose episode is over and that may begin another.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Lanes whose env has failed and is not back.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Lanes that have played their quota.
    pub(crate) fn retired(&self) -> u64 {
        self.retired.load(Ordering::Relaxed)
    }
}

/// How the step of a block ended episodes.
#[derive(Debug, Clone, Copy)]
struct Done {
    terminated: u64,
    truncated: u64,
    lost: u64,
}

#[inline]
fn refs<'a>(columns: &'a [ColumnMut<'_>]) -> ObsRefs<'a> {
    columns.iter().map(ColumnMut::as_ref).collect()
}

/// Copies the rows of `lanes` from one column of `rows` rows to another of the same type.
fn copy_rows(to: &mut ColumnMut<'_>, from: ColumnRef<'_>, lanes: u64, rows: usize) {
    fn copy<T: Copy>(to: &mut [T], from: &[T], lanes: u64, rows: usize) {
        let elements = from.len() / rows;
        for lane in Lanes(lanes & lane_bits(rows)) {
            let row = lane * elements..(lane + 1) * elements;
            to[row.clone()].copy_from_slice(&from[row]);
        }
    }
    match (to, from) {
        (ColumnMut::U8(to), ColumnRef::U8(from)) => copy(to, from, lanes, rows),
        (ColumnMut::I32(to), ColumnRef::I32(from)) => copy(to, from, lanes, rows),
        (ColumnMut::I64(to), ColumnRef::I64(from)) => copy(to, from, lanes, rows),
        (ColumnMut::F32(to), ColumnRef::F32(from)) => copy(to, from, lanes, rows),
        (ColumnMut::F64(to), ColumnRef::F64(from)) => copy(to, from, lanes, rows),
        _ => debug_assert!(false, "columns of one place have one type"),
    }
}
