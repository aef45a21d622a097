//! The engine as its owner uses it: lockstep, and work between frames.

mod calling;
mod handing_over;
mod in_parts;
mod interrupting;
mod late_options;
mod looking;
mod moving;
mod noting;
mod refusals;
mod resume;
mod sending;
mod sleeping;

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rollhouse_arena::{Arena, BatchColumns, Frame, Patience, Placement, Rows};
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{
    AutoresetMode, ColumnMut, ColumnSpec, Interruption, LaneState, SeedSchedule, StepColumns,
};
use rollhouse_env::{ActionCheck, BlockEnv, EnvEntry, MakeError, Target};
use rollhouse_replay::{Backlog, RunRecorder};

use crate::block::{Block, BlockStatus, Turn};
use crate::calls::Rates;
use crate::clock::Clock;
use crate::config::EngineConfig;
use crate::crew::{Job, Order};
use crate::crews::Crews;
use crate::error::{ConfigError, StepError};
use crate::first_done::FirstDone;
use crate::options::Change;
use crate::reset::Reset;
use crate::setup::{Setup, check_sizes, options_per_lane, split, time_limit};
use crate::stats::Stats;
use crate::timings::Timings;

/// A batch of lanes of one env, which steps them and begins and ends their episodes.
///
/// Not cancellable within a call; every call returns within the env's own time, or within the configured
/// deadline where other threads are waited for. Time in which the recorder takes nothing comes on top of both. After
/// [`StepError::Hung`] every call that needs the lanes returns `Hung`.
///
/// ```
/// use rollhouse_engine::{Engine, EngineConfig, Reset};
/// use rollhouse_env::Registry;
///
/// let entry = Registry::builtin().get("CartPole-v1")?;
/// let mut engine = Engine::new(&entry, EngineConfig::new(4), None)?;
/// engine.reset(&Reset::seeded(7, 4))?;
/// for _ in 0..100 {
///     if let Some(actions) = engine.actions()?.as_i64_mut() {
///         actions.fill(1);
///     }
///     let frame = engine.step()?;
///     assert_eq!(frame.rewards().len(), 4);
/// }
/// assert!(engine.stats()?.finished() > 0);
/// engine.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine {
    pub(crate) entry: Arc<EnvEntry>,
    pub(crate) config: EngineConfig,
    pub(crate) arena: Arena,
    pub(crate) crews: Crews,
    status: Vec<Arc<BlockStatus>>,
    check: ActionCheck,
    action: ColumnSpec,
    first_done: Option<FirstDone>,
    /// Turn of a step or a reset of late lanes that was begun and has not ended.
    in_parts: Option<Turn>,
    stage: Stage,
    hung: bool,
    clock: Clock,
    pub(crate) recording: Recording,
    log: Log,
    /// How often lanes have been called by methods whose rate is limited.
    rates: Rates,
}

/// What an engine knows of its recorder.
pub(crate) struct Recording {
    /// Queue, which tells whether crews wait for it; `None` if nothing is recorded.
    pub(crate) backlog: Option<Backlog>,
    /// Columns in which something is noted of each step.
    step_columns: StepColumns,
}

/// The stage of an engine's lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The lanes have done nothing, and have to be reset.
    New,
    /// The lanes have done what they did elsewhere, and nothing of their own.
    Replaying,
    /// The lanes were reset or stepped.
    Playing,
}

/// Whether an engine says what begins and how states hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Log {
    Off,
    Kept,
    /// Options or states were set: starts and actions alone do not tell what the lanes did.
    Spoilt,
}

impl Engine {
    /// Makes the lanes, without resetting them, and starts the threads.
    ///
    /// # Errors
    /// See [`ConfigError`]; nothing is left running then.
    pub fn new(
        entry: &Arc<EnvEntry>,
        config: EngineConfig,
        recording: Option<&RunRecorder>,
    ) -> Result<Self, ConfigError> {
        Self::on(Placement::heap(), entry, config, recording)
    }

    /// Makes an engine like [`Engine::new`], with its batch in the memory that `placement` stands for. The memory is
    /// laid out for [`Engine::columns`] and as many lanes.
    ///
    /// # Errors
    /// As [`Engine::new`], and [`ConfigError::Arena`] if the memory was laid out for another batch.
    pub fn on(
        placement: Placement,
        entry: &Arc<EnvEntry>,
        config: EngineConfig,
        recording: Option<&RunRecorder>,
    ) -> Result<Self, ConfigError> {
        Self::made_of(None, placement, entry, config, recording)
    }

    fn made_of(
        envs: Option<Vec<BlockEnv>>,
        placement: Placement,
        entry: &Arc<EnvEntry>,
        config: EngineConfig,
        recording: Option<&RunRecorder>,
    ) -> Result<Self, ConfigError> {
        let lanes = config.lanes;
        check_sizes(&config)?;
        let options = options_per_lane(entry, &config)?;
        let set = config.instruction_set;
        let target = Target::new(set).ok_or(MakeError::InstructionSet { set }).map_err(ConfigError::Make)?;
        let spec = entry.spec();
        let columns = Self::columns(entry, config.autoreset);
        let ranges = split(lanes, config.threads, entry.is_late());
        let patience = Patience::among(ranges.len() + placement.peers());
        let (arena, shares) =
            Arena::new(&columns, lanes, &ranges, patience, placement).map_err(ConfigError::Arena)?;
        let status: Vec<Arc<BlockStatus>> =
            (0..lanes.div_ceil(BLOCK_LANES)).map(|_| Arc::default()).collect();
        let mut setup =
            Setup { entry, config: &config, target, options: &options, status: &status, recording, envs };
        let crews = shares.into_iter().map(|share| setup.crew(share)).collect::<Result<Vec<_>, _>>()?;
        let started = Instant::now();
        let crews = Crews::start(crews, patience, started)?;
        let mut engine = Self {
            entry: Arc::clone(entry),
            check: ActionCheck::on(target, &spec.action_space).with_counted_of(spec),
            action: columns.action,
            config,
            arena,
            crews,
            status,
            first_done: None,
            in_parts: None,
            stage: Stage::New,
            hung: false,
            clock: Clock::start(started),
            recording: Recording {
                backlog: recording.map(RunRecorder::backlog),
                step_columns: StepColumns::default(),
            },
            log: Log::Off,
            rates: Rates::default(),
        };
        recording.into_iter().for_each(|run| engine.begin_noting(run));
        Ok(engine)
    }

    /// Returns the columns of the batches of an env's engines.
    pub fn columns(entry: &EnvEntry, autoreset: AutoresetMode) -> BatchColumns {
        BatchColumns::of(entry.spec(), autoreset == AutoresetMode::SameStep)
    }

    /// Returns the number of frames written by resets and steps.
    pub const fn frames(&self) -> u64 {
        self.arena.frames()
    }

    /// Returns the number of rows in the batch.
    pub const fn lanes(&self) -> usize {
        self.config.lanes
    }

    /// Returns the rule by which the next episode begins.
    pub const fn autoreset(&self) -> AutoresetMode {
        self.config.autoreset
    }

    /// Returns the time limit in steps; `None` if there is none.
    pub fn time_limit(&self) -> Option<u64> {
        time_limit(&self.config, self.entry.spec()).map(u64::from)
    }

    /// Returns the number of threads that step, with the caller's.
    pub fn threads(&self) -> usize {
        1 + self.crews.others.len()
    }

    /// Returns a handle that keeps the memory of frames alive, for callers that hold addresses of it. The memory never
    /// moves. A read through such an address sees what a frame of the same parity shows, and unspecified numbers while
    /// one is being written.
    pub fn memory(&self) -> Arc<dyn Any + Send + Sync> {
        self.arena.memory()
    }

    /// Returns the addresses of that memory, for callers that pin its pages.
    pub fn addresses(&self) -> Range<usize> {
        self.arena.addresses()
    }

    /// Records everything from now on, as if the engine had been made with `run`. It is meant for callers that want the
    /// recorder's buffers only once there is something to record.
    ///
    /// # Errors
    /// [`StepError::Begun`] after the first reset, [`StepError::Hung`]; nothing is recorded then.
    ///
    /// # Panics
    /// If the engine's lanes are not lanes of the run.
    pub fn record_with(&mut self, run: &RunRecorder) -> Result<(), StepError> {
        self.lockstep()?;
        if self.stage != Stage::New {
            return Err(StepError::Begun);
        }
        let block = |first: usize| {
            let lanes = BLOCK_LANES.min(self.lanes() - first);
            Some(run.block(self.config.first_lane + first as u32, lanes))
        };
        let recorders: Vec<_> = (0..self.lanes()).step_by(BLOCK_LANES).map(block).collect();
        let recorders = Mutex::new(recorders);
        self.on_blocks(false, move |block, _| {
            let mut recorders = recorders.lock();
            if let Some(recorder) = recorders[block.rows().start / BLOCK_LANES].take() {
                block.record_with(recorder);
            }
        })?;
        self.recording.backlog = Some(run.backlog());
        self.begin_noting(run);
        Ok(())
    }

    /// Begins episodes. Episodes that are open in those lanes end as `cancelled`; results that were not
    /// received are dropped.
    ///
    /// # Errors
    /// If a list has another length than the batch, or a seed is given where the schedule gives them;
    /// [`StepError::Options`], or [`StepError::Hung`].
    pub fn reset(&mut self, reset: &Reset) -> Result<Frame<'_>, StepError> {
        let reset = self.prepare_reset(reset)?;
        self.on_blocks(true, move |block, rows| block.reset_as(&reset, rows))?;
        Ok(self.arena.frame())
    }

    /// Returns the column of actions, to be filled before [`Engine::step`].
    ///
    /// # Errors
    /// Only [`StepError::Hung`].
    #[inline]
    pub fn actions(&mut self) -> Result<ColumnMut<'_>, StepError> {
        self.lockstep()?;
        Ok(self.arena.actions_mut())
    }

    /// Steps every lane once with the actions in [`Engine::actions`].
    ///
    /// # Errors
    /// See [`StepError`]; nothing has moved, except with [`StepError::Hung`].
    #[inline]
    pub fn step(&mut self) -> Result<Frame<'_>, StepError> {
        self.prepare_step()?;
        let exact = self.lost() > 0;
        let (turn, sampled) = self.clock.begin_batch(self.recording.backlog.is_some(), exact);
        if !self.crews.others.is_empty() {
            self.crews.orders.give(Order::Step, turn, sampled);
        }
        self.arena.start();
        self.crews.own.step(turn, sampled);
        if self.entry.is_bounded() {
            self.crews.step_late(turn, sampled);
        }
        self.wait()?;
        if sampled {
            self.clock.end_sampled(turn);
        }
        Ok(self.arena.frame())
    }

    /// Says which version of the policy chooses the actions from now on, for recordings: each step has the version that
    /// acted. 0 stands for one that nobody has said. Lanes that were sent have the version of before.
    pub const fn set_policy_version(&mut self, version: u64) {
        self.clock.set_policy_version(version);
    }

    /// Returns the newest frame.
    ///
    /// # Errors
    /// [`StepError::NotReset`] before the first reset, [`StepError::Hung`].
    pub fn frame(&mut self) -> Result<Frame<'_>, StepError> {
        self.lockstep()?;
        if self.stage != Stage::New { Ok(self.arena.frame()) } else { Err(StepError::NotReset) }
    }

    /// Returns the newest frame, and the column of actions to be filled from it before [`Engine::step`].
    ///
    /// # Errors
    /// As [`Engine::frame`].
    #[inline]
    pub fn frame_and_actions(&mut self) -> Result<(Frame<'_>, ColumnMut<'_>), StepError> {
        self.lockstep()?;
        if self.stage != Stage::New { Ok(self.arena.frame_and_actions()) } else { Err(StepError::NotReset) }
    }

    /// Lets the lane of each row play `quota(row)` episodes in all. A lane that has played them is not reset any more,
    /// and stands still.
    ///
    /// # Errors
    /// Only [`StepError::Hung`].
    pub fn limit_episodes(
        &mut self,
        quota: impl Fn(usize) -> u64 + Send + Sync + 'static,
    ) -> Result<(), StepError> {
        self.lockstep()?;
        self.on_blocks(false, move |block, _| block.limit_episodes(&quota))
    }

    /// Returns the number of lanes that have not played their quota.
    pub fn playing(&self) -> usize {
        self.lanes() - self.status.iter().map(|status| status.retired().len()).sum::<usize>()
    }

    /// Returns the stage of every lane's life.
    ///
    /// # Errors
    /// Only [`StepError::Hung`].
    pub fn lane_states(&mut self) -> Result<Vec<LaneState>, StepError> {
        self.lockstep()?;
        let states = Arc::new(Mutex::new(vec![LaneState::Idle; self.lanes()]));
        let collect = Arc::clone(&states);
        self.on_blocks(false, move |block, _| {
            let mut states = collect.lock();
            for row in block.rows().clone() {
                states[row] = block.lane_state(row - block.rows().start);
            }
        })?;
        let states = states.lock();
        Ok(states.clone())
    }

    /// Returns the statistics so far. Late lanes that were sent stay so.
    ///
    /// # Errors
    /// Only [`StepError::Hung`].
    pub fn stats(&mut self) -> Result<Stats, StepError> {
        if let Some(blocks) = self.blocks_beside() {
            let mut stats = Stats::default();
            blocks.iter().for_each(|block| stats.merge(block.stats()));
            return Ok(stats);
        }
        self.lockstep()?;
        // In the order of blocks, so that sums of returns do not depend on the number of threads.
        let parts = Arc::new(Mutex::new(vec![Stats::default(); self.status.len()]));
        let collect = Arc::clone(&parts);
        self.on_blocks(false, move |block, _| {
            collect.lock()[block.rows().start / BLOCK_LANES] = *block.stats();
        })?;
        let mut stats = Stats::default();
        parts.lock().iter().for_each(|part| stats.merge(part));
        Ok(stats)
    }

    /// Returns how the time of the batches was spent so far.
    ///
    /// # Errors
    /// Only [`StepError::Hung`].
    pub fn timings(&mut self) -> Result<Timings, StepError> {
        self.lockstep()?;
        self.pass_turn(Order::Report)?;
        let mut timings = self.clock.timings;
        timings.merge(&self.crews.timings());
        Ok(timings)
    }

    /// Ends the threads and returns the timings of all of them. Open episodes end as `cancelled`.
    ///
    /// # Errors
    /// [`StepError::Hung`] if a thread does not end within the deadline; it is abandoned then.
    pub fn close(mut self) -> Result<Timings, StepError> {
        self.interrupt(Interruption::Cancelled)?;
        self.flush()?;
        self.pass_turn(Order::Stop)?;
        let mut timings = self.clock.timings;
        timings.merge(&self.crews.join()?);
        Ok(timings)
    }

    /// Refuses a step that cannot be made, before anything moves.
    #[inline]
    fn prepare_step(&mut self) -> Result<(), StepError> {
        self.lockstep()?;
        if self.stage == Stage::New {
            return Err(StepError::NotReset);
        }
        if self.config.autoreset == AutoresetMode::Disabled {
            self.refuse_waiting()?;
        }
        if !self.check.all_good(self.arena.actions()) {
            self.refuse_bad_actions()?;
        }
        self.begin_turn();
        Ok(())
    }

    /// Refuses a reset that cannot be made, and gives the lanes their options.
    fn prepare_reset(&mut self, reset: &Reset) -> Result<Arc<Reset>, StepError> {
        let lanes = self.lanes();
        for (what, given) in [("seeds", reset.seeds.len()), ("mask flags", reset.mask.len())] {
            if given != 0 && given != lanes {
                return Err(StepError::Length { what, given, wanted: lanes });
            }
        }
        let scheduled = matches!(self.config.schedule, SeedSchedule::PerEpisode { .. });
        if scheduled && reset.seeds.iter().any(Option::is_some) {
            return Err(StepError::SeedsScheduled);
        }
        if !reset.options.is_empty() {
            Change::check(&reset.options, lanes)?;
        }
        self.lockstep()?;
        let reset = Arc::new(reset.clone());
        if !reset.options.is_empty() {
            let asked = Arc::clone(&reset);
            let wanted = Box::new(move |row| asked.resets(row));
            self.change_options(Change { values: reset.options.clone(), first: 0, wanted, begins: true })?;
        }
        self.stage = Stage::Playing;
        self.begin_turn();
        Ok(reset)
    }

    /// Gives the other crews a turn in which the own one has nothing to do, and waits for them.
    fn pass_turn(&mut self, order: Order) -> Result<(), StepError> {
        let turn = self.clock.now();
        self.crews.give(order, turn);
        self.arena.start_housekeeping();
        self.crews.pass(turn);
        self.wait()
    }

    /// Does `job` on every block, each on its crew's thread. If `frame` is true, the job writes the next frame.
    pub(crate) fn on_blocks(
        &mut self,
        frame: bool,
        job: impl Fn(&mut Block, &mut Rows<'_>) + Send + Sync + 'static,
    ) -> Result<(), StepError> {
        let job: Arc<Job> = Arc::new(job);
        let turn = self.clock.now();
        if !self.crews.others.is_empty() {
            self.crews.orders.set_job(Some(Arc::clone(&job)));
            self.crews.orders.give(Order::Job, turn, false);
        }
        if frame {
            self.arena.start()
        } else {
            self.arena.start_housekeeping()
        }
        self.crews.own.run(&*job, turn);
        let result = self.wait();
        self.crews.orders.set_job(None);
        result
    }

    /// Notes that lanes now do something by themselves, and drops the log entries that nobody took.
    #[inline]
    fn begin_turn(&mut self) {
        self.stage = Stage::Playing;
        if self.log == Log::Kept {
            self.status.iter().for_each(|status| status.clear_log());
        }
    }

    /// Waits for the other crews.
    #[inline]
    fn wait(&mut self) -> Result<(), StepError> {
        let deadline = (!self.crews.others.is_empty()).then(|| Instant::now() + self.look_every());
        if self.arena.wait(deadline).is_ok() { Ok(()) } else { self.wait_long() }
    }

    /// Waits for crews that take long. A crew hangs if it has not answered for the deadline and did not wait for the
    /// recorder; waiting for a full queue is no hang.
    #[cold]
    fn wait_long(&mut self) -> Result<(), StepError> {
        let mut still = self.look_every();
        loop {
            if self.recording.backlog.as_ref().is_some_and(Backlog::is_behind) {
                still = Duration::ZERO;
            }
            if still >= self.config.step_deadline {
                self.hung = true;
                return Err(StepError::Hung);
            }
            let pause = self.look_every().min(self.config.step_deadline - still);
            if self.arena.wait(Some(Instant::now() + pause)).is_ok() {
                return Ok(());
            }
            still += pause;
        }
    }

    fn look_every(&self) -> Duration {
        LOOK_EVERY.min(self.config.step_deadline)
    }

    /// Ends what was begun in parts, and first-done mode, if it is on. Results that were not received are dropped.
    #[inline]
    pub(crate) fn lockstep(&mut self) -> Result<(), StepError> {
        if self.hung {
            return Err(StepError::Hung);
        }
        if self.in_parts.is_some() {
            self.finish_parts()?;
        }
        if self.first_done.is_some() { self.leave_first_done() } else { Ok(()) }
    }
}

impl Drop for Engine {
    /// Ends the threads without waiting for them. A crew that is inside an env ends after it. Those of an engine that hung
    /// are abandoned.
    fn drop(&mut self) {
        // Threads that serve what is sent end without an order: nobody is left who could send.
        let serve = self.first_done.is_some();
        if self.hung || serve || self.crews.others.iter().all(|worker| worker.thread.is_none()) {
            return;
        }
        self.crews.orders.give(Order::Stop, self.clock.now(), false);
        self.arena.start_housekeeping();
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("config", &self.config)
            .field("threads", &self.threads())
            .finish_non_exhaustive()
    }
}

/// Time between two checks of why crews take long.
const LOOK_EVERY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use rollhouse_env::Registry;

    use super::*;

    /// Symptom: with a core busy beside it, a batch on two threads took thirty times as long as on one.
    /// Cause: the caller waited until the other thread was given its core again.
    /// Fix: it steps the lanes of a thread that has not begun, which here never does.
    #[test]
    fn lanes_of_a_thread_that_does_not_come_are_stepped_by_the_caller() {
        let entry = Registry::builtin().get("CartPole-v1").unwrap();
        let make = |threads| {
            let config = EngineConfig { threads, ..EngineConfig::new(1024) };
            let mut engine = Engine::new(&entry, config, None).unwrap();
            engine.reset(&Reset::seeded(1, 1024)).unwrap();
            engine
        };
        let (mut one, mut two) = (make(1), make(2));
        assert_eq!(two.crews.others.len(), 1);
        two.pass_turn(Order::Stop).unwrap();
        two.crews.others[0].thread.take().unwrap().join().unwrap();
        for step in 0..100 {
            for engine in [&mut one, &mut two] {
                let ColumnMut::I64(actions) = engine.actions().unwrap() else {
                    panic!("CartPole is discrete")
                };
                actions.fill(step % 2);
                engine.step().unwrap();
            }
            let (one, two) = (one.frame().unwrap(), two.frame().unwrap());
            assert_eq!(one.obs(0), two.obs(0), "step {step}");
            assert_eq!(one.terminated(), two.terminated(), "step {step}");
        }
    }
}
