//! A block of lanes, with its env, its episodes and its recorder.

mod calling;
mod containing;
mod lane;
mod lanes;
mod late;
mod losing;
mod recording;
mod replay;
mod reports;
mod settling;
mod standing;
mod starts;
mod status;

use std::ops::Range;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_arena::{BlockRows, ObsRefs, Rows};
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{
    AutoresetMode, ColumnMut, ColumnRef, ColumnSpec, Interruption, LaneDeadlines, LaneSet, LaneState, Role,
    SeedSchedule, Start, per_episode_seed,
};
use rollhouse_env::{BlockEnv, BlockStep, Target};
use rollhouse_replay::BlockRecorder;

use crate::episodes::Episodes;
use crate::flags::spread;
use crate::reset::Reset;
use crate::restart::{Maker, Restarts};
use crate::stats::Stats;
use crate::timings::{Laps, Phase};

pub(crate) use lane::Remade;
pub(crate) use lanes::BlockLanes;
pub(crate) use replay::BlockPast;
pub(crate) use settling::{arm, flush, note_time, settle, wait};
pub(crate) use status::BlockStatus;

use containing::contain;
use late::UnderWay;
use reports::RowReports;
use standing::Standing;
use starts::Starts;

/// A block of lanes that are stepped together.
pub(crate) struct Block {
    lanes: BlockLanes,
    maker: Maker,
    /// Env of the lanes; `None` while the whole block is lost.
    env: Option<BlockEnv>,
    autoreset: AutoresetMode,
    starts: Starts,
    episodes: Episodes,
    standing: Standing,
    restarts: Restarts,
    recorder: Option<BlockRecorder>,
    /// State hashes of lanes whose episodes are interrupted, and of those whose hash is due.
    hashes: Box<[u32; BLOCK_LANES]>,
    stats: Stats,
    says: Says,
    /// True if the log of begun episodes and hashes is kept.
    logs: bool,
    status: Arc<BlockStatus>,
    /// What lanes are doing that finish when they finish; `None` if the env's lanes finish within the call.
    under_way: Option<Box<UnderWay>>,
}

/// What the env says beside its rows.
#[derive(Debug, Clone, Copy)]
struct Says {
    /// True if it may say how an episode ended.
    verdicts: bool,
    /// True if it has infos in rows that began an episode, and no late side that writes them there.
    first_infos: bool,
    /// Number of its info channels that are recorded as such.
    recorded_infos: usize,
    /// True if some of them are recorded as step columns.
    notes: bool,
}

/// Time of a batch and the policy's version, as the owner tells them to the crews.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    /// Wall clock, milliseconds since 1970.
    pub(crate) now_ms: u64,
    /// Time since the engine was made.
    pub(crate) since_start: Duration,
    /// Version of the policy that chose the actions; 0 if nobody has said it.
    pub(crate) policy_version: u64,
}

/// Parts of which a block is made.
pub(crate) struct BlockParts {
    pub(crate) lanes: BlockLanes,
    pub(crate) maker: Maker,
    pub(crate) env: BlockEnv,
    /// What the env answers to [`LaneBlock::has_verdicts`](rollhouse_env::LaneBlock::has_verdicts).
    pub(crate) has_verdicts: bool,
    /// What the env answers to [`LaneBlock::words_per_reset`](rollhouse_env::LaneBlock::words_per_reset).
    pub(crate) words_per_reset: Option<u32>,
    pub(crate) autoreset: AutoresetMode,
    pub(crate) schedule: SeedSchedule,
    pub(crate) limit: Option<u64>,
    pub(crate) target: Target,
    pub(crate) recorder: Option<BlockRecorder>,
    pub(crate) status: Arc<BlockStatus>,
    /// Times that a lane may be under way, and the time, if lanes finish when they finish.
    pub(crate) late: Option<(LaneDeadlines, Instant)>,
}

impl Block {
    pub(crate) fn new(parts: BlockParts) -> Self {
        let spec = parts.maker.entry.spec();
        let is_recorded = |channel: &&ColumnSpec| !channel.role.is_remark() && !channel.role.is_report();
        let under_way = parts.late.map(|late| {
            let mut under_way = UnderWay::new(&spec.action_column(), parts.lanes.count(), late);
            under_way.reports = RowReports::of(spec);
            Box::new(under_way)
        });
        let says = Says {
            verdicts: parts.has_verdicts,
            first_infos: parts.late.is_none() && spec.has_first_infos(),
            recorded_infos: spec.info_channels.iter().filter(is_recorded).count(),
            notes: spec.channel(Role::StepColumn).is_some(),
        };
        let mut block = Self {
            maker: parts.maker,
            starts: Starts::new(parts.schedule, parts.words_per_reset),
            says,
            env: Some(parts.env),
            autoreset: parts.autoreset,
            episodes: Episodes::new(parts.limit, parts.target),
            standing: Standing::default(),
            restarts: Restarts::new(u64::from(parts.lanes.in_run(0))),
            recorder: None,
            hashes: Box::new([0; BLOCK_LANES]),
            stats: Stats::default(),
            logs: false,
            status: parts.status,
            under_way,
            lanes: parts.lanes,
        };
        block.note_drawn();
        if let Some(recorder) = parts.recorder {
            block.record_with(recorder);
        }
        block
    }

    /// Returns the rows of the batch that belong to the block.
    pub(crate) const fn rows(&self) -> &Range<usize> {
        self.lanes.rows()
    }

    /// Returns the stage of a lane's life.
    pub(crate) fn lane_state(&self, lane: usize) -> LaneState {
        let (open, waiting) = (self.episodes.open().has(lane), self.standing.waiting.has(lane));
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

    /// Steps every lane once with the actions of the batch: lanes with an open episode take their actions, lanes that
    /// wait begin their next episode.
    #[inline]
    pub(crate) fn step(&mut self, rows: &mut Rows<'_>, turn: Turn, laps: &mut Laps) {
        rows.with_block(&self.lanes.rows().clone(), |columns| {
            self.step_columns(columns, columns.actions, self.lanes.all(), RowsOf::NextFrame, turn, laps);
        });
    }

    /// Steps the lanes of `subset` as [`Block::step`] does, with the actions in `actions`, a column of the block's
    /// rows. Other lanes stand still.
    pub(crate) fn step_some(
        &mut self,
        rows: &mut Rows<'_>,
        actions: ColumnRef<'_>,
        subset: LaneSet,
        turn: Turn,
        laps: &mut Laps,
    ) {
        if self.under_way.is_some() {
            self.post_some(rows, actions, subset, turn);
            settle(slice::from_mut(self), rows, turn, laps, None);
            return;
        }
        rows.with_block(&self.lanes.rows().clone(), |columns| {
            self.step_columns(columns, actions, subset & self.lanes.all(), RowsOf::Newest, turn, laps);
        });
    }

    #[inline]
    fn step_columns(
        &mut self,
        columns: &mut BlockRows<'_, '_>,
        actions: ColumnRef<'_>,
        subset: LaneSet,
        rows: RowsOf,
        turn: Turn,
        laps: &mut Laps,
    ) {
        if !self.restarts.lost().is_empty() {
            self.restart(turn.since_start);
        }
        let subset = self.standing.let_go(subset);
        let stepped = subset & self.episodes.open();
        let mut reset = subset & self.standing.waiting & !self.standing.retired;
        if !reset.is_empty() {
            reset = self.take_starts(reset);
        }
        let still = self.lanes.all() & !(stepped | reset);
        if rows == RowsOf::NextFrame && !still.is_empty() {
            keep_observations(columns, still, self.lanes.count());
        }
        let moves = Moves { actions, stepped, reset };
        let accounted = match self.step_env(columns, moves, laps) {
            Some(done) => {
                self.account(columns, moves, done, turn, laps);
                stepped & !done.lost
            }
            None => {
                show_rest(columns, LaneSet::NONE);
                LaneSet::NONE
            }
        };
        self.show();
        if !self.restarts.lost().is_empty() {
            self.keep_lost_rows(columns, accounted, rows);
        }
    }

    /// Steps and resets the env. Returns `None` if the whole block was or is lost.
    ///
    /// In a sampled batch the env is stepped and reset by two calls, so that each can be timed. The results are the
    /// same.
    #[inline]
    fn step_env(
        &mut self,
        columns: &mut BlockRows<'_, '_>,
        moves: Moves<'_>,
        laps: &mut Laps,
    ) -> Option<Done> {
        let first_infos = self.says.first_infos;
        let Moves { actions, stepped, reset } = moves;
        let apart = laps.sampled();
        let called = contain(&mut self.env, |env| {
            let env = env.kernel()?;
            let mut ended = env.step(BlockStep {
                skip: if apart { !stepped } else { !(stepped | reset) },
                reset: if apart { LaneSet::NONE } else { reset },
                actions,
                obs: columns.obs,
                infos: columns.infos,
                rewards: columns.rewards,
            });
            laps.lap(Phase::Step);
            if apart && !reset.is_empty() {
                ended.lost |= env.reset(reset, columns.obs);
                laps.lap(Phase::Reset);
            }
            if first_infos && !reset.is_empty() {
                ended.lost |= env.first_infos(reset & !ended.lost, columns.infos);
            }
            Some(ended)
        });
        let ended = self.heed(called).flatten()?;
        self.lose_each(ended.lost & (stepped | reset), Interruption::Crashed);
        let alive = stepped & !ended.lost;
        Some(Done {
            terminated: ended.terminated & alive,
            truncated: ended.truncated & alive,
            lost: ended.lost,
        })
    }

    /// Accounts for a step that the env has made: episodes, flags, recording, autoreset.
    #[inline]
    fn account(
        &mut self,
        columns: &mut BlockRows<'_, '_>,
        moves: Moves<'_>,
        mut done: Done,
        turn: Turn,
        laps: &mut Laps,
    ) {
        let (stepped, mut reset) = (moves.stepped & !done.lost, moves.reset & !done.lost);
        done.truncated |= self.episodes.advance(stepped, columns.rewards) & stepped;
        self.stats.steps += stepped.len() as u64;
        let shows = self.recorder.is_some() || self.logs;
        let due = if shows { self.episodes.window_due(stepped) } else { LaneSet::NONE };
        let ends = if self.recorder.is_some() { done.terminated | done.truncated } else { LaneSet::NONE };
        let failed = if (due | ends).is_empty() { LaneSet::NONE } else { self.take_hashes(due | ends) };
        if !failed.is_empty() {
            (done.terminated, done.truncated) = (done.terminated & !failed, done.truncated & !failed);
            reset &= !failed;
        }
        let over = done.terminated | done.truncated;
        if self.under_way.is_some() && stepped | reset != self.lanes.all() {
            late::flag(columns, stepped | reset, done, reset);
        } else {
            spread(done.terminated, columns.terminated);
            spread(done.truncated, columns.truncated);
            spread(reset, columns.reset);
        }
        laps.lap(Phase::Step);
        if self.recorder.is_some() {
            self.record_row(columns, Moves { stepped, reset, ..moves }, turn);
        }
        if !due.is_empty() {
            self.show_hashes(due & !failed, over);
        }
        self.end_each(over, done);
        if !failed.is_empty() {
            self.lose_failed(failed);
        }
        laps.lap(Phase::Record);
        self.standing.waiting = self.standing.waiting & !reset | over;
        self.begin_episodes(reset, self.starts.untouched, columns.obs);
        if self.autoreset == AutoresetMode::SameStep && !(over & !self.standing.retired).is_empty() {
            self.reset_in_same_step(columns, over & !self.standing.retired);
        }
        laps.lap(Phase::Reset);
    }

    /// Keeps the last observations of `over` and begins the lanes' next episodes in the very step, as SAME_STEP has it.
    fn reset_in_same_step(&mut self, columns: &mut BlockRows<'_, '_>, over: LaneSet) {
        for (last, obs) in columns.final_obs.iter_mut().zip(&*columns.obs) {
            copy_rows(last, obs.as_ref(), over, self.lanes.count());
        }
        let lanes = self.take_starts(over);
        self.reset_env(lanes, columns);
        self.show_last(columns, over & self.restarts.lost());
    }

    /// Begins episodes in the lanes of the block of which a reset says so.
    pub(crate) fn reset_as(&mut self, reset: &Reset, rows: &mut Rows<'_>) {
        let lanes = self.lanes.in_rows(|row| reset.resets(row));
        self.reset(rows, lanes, &|row| reset.seeds.get(row).copied().flatten());
    }

    /// Begins an episode in each of `lanes`, ending any that is open as `cancelled`; other lanes keep their
    /// observation. `seeds` gives the seed for a row of the batch.
    pub(crate) fn reset(
        &mut self,
        rows: &mut Rows<'_>,
        lanes: LaneSet,
        seeds: &dyn Fn(usize) -> Option<u64>,
    ) {
        let range = self.lanes.rows().clone();
        self.interrupt(lanes, Interruption::Cancelled);
        self.standing.held &= !lanes;
        let lanes = lanes & self.lanes.all() & !self.standing.retired & !self.restarts.lost();
        let seeded: LaneSet = lanes.into_iter().filter(|&lane| seeds(range.start + lane).is_some()).collect();
        if !seeded.is_empty() {
            self.ask(|env| {
                for lane in seeded {
                    env.seed(lane, seeds(range.start + lane).unwrap_or_default());
                }
            });
            self.starts.seed(seeded);
        }
        rows.with_block(&range, |columns| {
            let lanes = self.take_starts(lanes & !self.restarts.lost());
            keep_observations(columns, !lanes, range.len());
            self.begin_frame(columns);
            self.reset_env(lanes, columns);
            let lost = self.restarts.lost();
            show_rest(columns, lanes & !lost);
            if !(lanes & lost).is_empty() {
                keep_observations(columns, lanes & lost, range.len());
            }
        });
        self.show();
    }

    /// Lets each lane play `quota(row of the batch)` episodes in all. A lane that has played them is not reset any
    /// more.
    pub(crate) fn limit_episodes(&mut self, quota: &dyn Fn(usize) -> u64) {
        let limits = Box::new(std::array::from_fn(|lane| quota(self.lanes.row(lane))));
        self.standing.retired = (self.lanes.all() & !self.episodes.open())
            .into_iter()
            .filter(|&lane| self.episodes.next_number(lane) >= limits[lane])
            .collect();
        self.standing.quota = Some(limits);
        self.show();
    }

    /// Seeds the generators of `lanes` as the schedule says, notes where their next episodes start and draws their
    /// options. Returns the lanes that can begin: all but those that the env loses by their options.
    #[inline]
    fn take_starts(&mut self, lanes: LaneSet) -> LaneSet {
        let (logged, recorded) = (self.logs, self.recorder.is_some());
        let Self { env, starts, episodes, maker, .. } = self;
        let called = contain(env, |env| {
            match starts.schedule {
                SeedSchedule::PerEpisode { run_seed } => {
                    for lane in lanes {
                        let number = episodes.next_number(lane);
                        let seed = per_episode_seed(run_seed, self.lanes.in_run(lane), number);
                        env.seed(lane, seed);
                        starts.of[lane] = Start::seeded(seed);
                    }
                    starts.seed(lanes);
                }
                SeedSchedule::Continue => {
                    let unseeded = starts.unseeded(lanes, maker.entry.seeds_itself(), logged, recorded);
                    for lane in unseeded {
                        env.seed(lane, maker.entropy(lane));
                    }
                    starts.seed(unseeded);
                    let asked = starts.unknown(lanes, logged, recorded);
                    if !asked.is_empty() {
                        env.positions(asked, &mut starts.of);
                    }
                }
            }
            env.take_failed()
        });
        let Some(failed) = self.heed(called) else { return LaneSet::NONE };
        if !failed.is_empty() {
            self.lose_failed(failed);
        }
        let lanes = lanes & !failed;
        let drawing = lanes & self.starts.drawing;
        if drawing.is_empty() { lanes } else { lanes & !self.draw_options(drawing) }
    }

    /// Resets the env in `lanes`, whose starts have been taken, and begins their episodes; those of late lanes begin when
    /// they have finished.
    fn reset_env(&mut self, lanes: LaneSet, columns: &mut BlockRows<'_, '_>) {
        if self.under_way.is_some() {
            return self.post_resets(lanes, columns);
        }
        let first_infos = self.says.first_infos;
        let called = contain(&mut self.env, |env| {
            let env = env.kernel()?;
            let lost = env.reset(lanes, columns.obs);
            Some(if first_infos { lost | env.first_infos(lanes & !lost, columns.infos) } else { lost })
        });
        let Some(lost) = self.heed(called).flatten() else { return };
        self.lose_each(lost & lanes, Interruption::Crashed);
        self.standing.waiting &= !lanes;
        self.begin_episodes(lanes & !lost, LaneSet::NONE, columns.obs);
    }

    #[inline]
    fn show(&self) {
        let Standing { retired, .. } = self.standing;
        self.status.show(self.standing.may_begin(), self.restarts.lost(), retired);
    }
}

/// What lies in the rows that a step writes, before it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowsOf {
    /// The second last frame: lanes that do not move take their observation from the last one.
    NextFrame,
    /// The newest rows: what is not written stays.
    Newest,
}

/// Lanes that step with an action, and lanes that begin an episode instead.
#[derive(Debug, Clone, Copy)]
struct Moves<'a> {
    /// Actions, as a column of the block's rows.
    actions: ColumnRef<'a>,
    stepped: LaneSet,
    reset: LaneSet,
}

/// Lanes whose episodes ended in the step of a block, by the way they ended.
#[derive(Debug, Clone, Copy)]
struct Done {
    terminated: LaneSet,
    truncated: LaneSet,
    lost: LaneSet,
}

/// Clears rewards and flags of all rows, but for the reset flags of the lanes that have `begun`: no lane was stepped.
#[cold]
fn show_rest(columns: &mut BlockRows<'_, '_>, begun: LaneSet) {
    columns.rewards.fill(0.0);
    spread(LaneSet::NONE, columns.terminated);
    spread(LaneSet::NONE, columns.truncated);
    spread(begun, columns.reset);
}

#[inline]
fn refs<'a>(columns: &'a [ColumnMut<'_>]) -> ObsRefs<'a> {
    columns.iter().map(ColumnMut::as_ref).collect()
}

/// Copies the observations of `lanes` from the previous frame: a lane that is lost ends with them.
fn keep_observations(columns: &mut BlockRows<'_, '_>, lanes: LaneSet, rows: usize) {
    for shown in [&mut *columns.obs, &mut *columns.final_obs] {
        for (obs, previous) in shown.iter_mut().zip(columns.previous_obs.columns()) {
            copy_rows(obs, previous, lanes, rows);
        }
    }
}

/// Copies the rows of `lanes` from one column of `rows` rows to another of the same type.
fn copy_rows(to: &mut ColumnMut<'_>, from: ColumnRef<'_>, lanes: LaneSet, rows: usize) {
    fn copy<T: Copy>(to: &mut [T], from: &[T], lanes: LaneSet, rows: usize) {
        if lanes == LaneSet::first(rows) {
            return to.copy_from_slice(from);
        }
        let elements = from.len() / rows;
        for lane in lanes & LaneSet::first(rows) {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use rollhouse_arena::{Arena, BatchColumns, Patience, Share};
    use rollhouse_core::{Determinism, EnvSource, EnvSpec, Options, Outcome, Space};
    use rollhouse_env::{BatchEnv, Ended, EnvEntry, InstructionSet, LaneBlock};

    /// A batch env that panics in the step its first action is 1 in; its observation is the number of
    /// blocks made so far.
    struct Brittle(f32);

    impl LaneBlock for Brittle {
        fn lanes(&self) -> usize {
            2
        }
        fn seed(&mut self, _: usize, _: u64) {}
        fn position(&self, _: usize) -> Start {
            Start::default()
        }
        fn restore(&mut self, _: usize, _: Start) {}
        fn state_hash(&self, _: usize) -> u32 {
            0
        }
    }

    impl BatchEnv for Brittle {
        fn reset(&mut self, lanes: LaneSet, obs: &mut [ColumnMut<'_>]) -> LaneSet {
            for lane in lanes & LaneSet::first(2) {
                obs[0].as_f32_mut().unwrap()[lane] = self.0;
            }
            LaneSet::NONE
        }
        fn step(&mut self, step: BlockStep<'_, '_>) -> Ended {
            assert_ne!(step.actions.as_i64().unwrap()[0], 1, "told to panic");
            step.obs[0].as_f32_mut().unwrap().fill(self.0);
            step.rewards.fill(1.0);
            Ended::default()
        }
    }

    struct Rig {
        arena: Arena,
        share: Share,
        block: Block,
    }

    impl Rig {
        fn new() -> Self {
            let spec = EnvSpec {
                id: "test/Brittle".into(),
                source: EnvSource::BuiltIn,
                summary: String::new(),
                observation_space: Space::f32_box(&[0.0], &[1e9]).into(),
                action_space: Space::discrete(2),
                observation_names: vec![],
                action_names: vec![],
                max_episode_steps: None,
                determinism: Determinism::Deterministic,
                methods: Vec::new(),
                options: vec![],
                info_channels: vec![],
                dynamics_hash: 0,
            };
            let columns = BatchColumns {
                action: spec.action_column(),
                obs: spec.obs_columns(),
                infos: vec![],
                final_obs: false,
            };
            let made = AtomicU64::new(0);
            let entry = Arc::new(EnvEntry::new(spec, move |_, _| {
                Ok(Box::new(Brittle(made.fetch_add(1, Ordering::Relaxed) as f32)))
            }));
            let maker = Maker { entry, options: vec![Options::default(); 2], set: InstructionSet::Portable };
            let rows = 0..2;
            let (arena, mut shares) =
                Arena::on_heap(&columns, 2, std::slice::from_ref(&rows), Patience::NONE).unwrap();
            let block = Block::new(BlockParts {
                env: maker.make().unwrap(),
                has_verdicts: false,
                words_per_reset: None,
                lanes: BlockLanes::new(rows, 0),
                maker,
                autoreset: AutoresetMode::NextStep,
                schedule: SeedSchedule::Continue,
                limit: None,
                target: Target::new(InstructionSet::best()).unwrap(),
                recorder: None,
                status: Arc::default(),
                late: None,
            });
            let mut rig = Self { arena, share: shares.remove(0), block };
            rig.arena.start();
            rig.block.reset(&mut rig.share.begin().unwrap(), LaneSet::first(2), &|_| Some(1));
            rig.arena.wait(None).unwrap();
            rig
        }

        /// One step at `seconds`; returns the observation of lane 0.
        fn step(&mut self, seconds: f64, action: i64) -> f32 {
            self.arena.actions_mut().as_i64_mut().unwrap().fill(action);
            self.arena.start();
            let turn = Turn { now_ms: 0, since_start: Duration::from_secs_f64(seconds), policy_version: 0 };
            self.block.step(&mut self.share.begin().unwrap(), turn, &mut Laps::start(false));
            self.arena.wait(None).unwrap();
            self.arena.frame().obs(0).as_f32().unwrap()[0]
        }
    }

    #[test]
    fn a_block_that_panics_is_made_anew_after_its_back_off_and_begins_new_episodes() {
        let mut rig = Rig::new();
        assert_eq!(rig.step(0.0, 0), 0.0);
        rig.step(0.1, 1);
        assert_eq!(rig.block.restarts.lost(), LaneSet::first(2));
        assert_eq!(rig.block.lane_state(0), LaneState::BackOff);
        let crashed = Outcome::Interrupted(Interruption::Crashed).code();
        assert_eq!(rig.block.stats.outcomes[usize::from(crashed)], 2);
        rig.step(0.2, 0);
        rig.step(0.3, 0);
        assert_eq!(rig.arena.frame().rewards(), [0.0, 0.0]);
        assert_eq!(rig.step(1.3, 0), 1.0);
        assert_eq!(rig.arena.frame().reset(), [1, 1]);
        assert_eq!((rig.block.restarts.lost(), rig.block.stats.restarts), (LaneSet::NONE, 2));
        rig.step(1.4, 0);
        assert_eq!(rig.arena.frame().rewards(), [1.0, 1.0]);
    }

    #[test]
    fn a_block_that_panics_again_and_again_is_left_as_failed() {
        let mut rig = Rig::new();
        for tick in 0..2_000 {
            rig.step(f64::from(tick) / 10.0, 1);
        }
        assert_eq!(rig.block.lane_state(0), LaneState::Failed);
        assert_eq!(rig.block.stats.restarts, 5 * 2);
    }
}
