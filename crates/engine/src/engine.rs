//! The engine as its owner uses it: lockstep, and work between frames.

mod resume;
mod sending;

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rollhouse_arena::{Arena, BatchColumns, Frame, Placement, Rows, Spin};
use rollhouse_core::limits::{BLOCK_LANES, MAX_LANES, MAX_THREADS};
use rollhouse_core::{ColumnMut, ColumnSpec, Interruption, LaneState, SeedSchedule};
use rollhouse_env::{EnvEntry, MakeError, Target};
use rollhouse_replay::{Backlog, RunRecorder};

use crate::actions::ActionCheck;
use crate::block::{Block, BlockStatus, Turn};
use crate::config::{Autoreset, EngineConfig};
use crate::crew::{Crew, Job, Order, Orders};
use crate::error::{ConfigError, StepError};
use crate::first_done::{FirstDone, Received};
use crate::options::{Change, LaneOptions};
use crate::setup::{Worker, make_crew, options_per_lane, split, start_threads, time_limit};
use crate::stats::Stats;
use crate::timings::{SAMPLE_EVERY, Timings};

/// A batch of lanes of one env, which steps them and begins and ends their episodes.
///
/// Not cancellable within a call; every call returns within the env's own time, or within the configured
/// deadline where other threads are waited for. After [`StepError::Hung`] every call returns `Hung`.
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
    config: EngineConfig,
    pub(crate) arena: Arena,
    own: Crew,
    others: Vec<Worker>,
    results: Receiver<(usize, Received)>,
    spin: Spin,
    orders: Arc<Orders>,
    statuses: Vec<Arc<BlockStatus>>,
    check: ActionCheck,
    action: ColumnSpec,
    first_done: Option<FirstDone>,
    has_reset: bool,
    hung: bool,
    started: Instant,
    /// Wall clock when the engine was made, in milliseconds since 1970.
    started_ms: u64,
    /// Time of the last batch that looked at the clock.
    turn: Turn,
    last_sample: Duration,
    /// True if batches follow so slowly that each looks at the clock.
    unhurried: bool,
    pub(crate) recording: bool,
    /// Queue of the recorder, which tells whether crews wait for it.
    backlog: Option<Backlog>,
    /// True while lanes are being put where others stood, and have done nothing by themselves.
    replaying: bool,
    pub(crate) logs: bool,
    /// True if options or states were set: starts and actions alone do not tell what the lanes did.
    changed: bool,
    timings: Timings,
}

/// Lanes to reset, and their seeds and options.
#[derive(Debug, Clone, Default)]
pub struct Reset {
    /// Seed of each lane, or empty for none. A lane without a seed draws on, or is seeded by the schedule; a schedule
    /// that seeds every episode takes no other seed.
    pub seeds: Vec<Option<u64>>,
    /// Flag of each lane that is reset, or empty for all lanes. Lanes left out keep their state and observation.
    pub mask: Vec<bool>,
    /// Options that lanes have from this reset on, until they are given others: one value for all lanes that are reset,
    /// or one for each lane of the batch. Recorded lanes keep theirs.
    pub options: LaneOptions,
}

impl Reset {
    /// Returns whether the lane of that row is reset.
    fn resets(&self, row: usize) -> bool {
        self.mask.get(row).copied().unwrap_or(true)
    }

    /// Resets all lanes without seeds.
    pub fn all() -> Self {
        Self::default()
    }

    /// Resets all lanes, lane i with `seed + i`, as Gymnasium's vector envs do.
    pub fn seeded(seed: u64, lanes: usize) -> Self {
        Self { seeds: (0..lanes as u64).map(|i| Some(seed.wrapping_add(i))).collect(), ..Self::default() }
    }
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
        let lanes = config.lanes;
        if lanes == 0 || lanes > MAX_LANES {
            return Err(ConfigError::Lanes(lanes));
        }
        if u32::try_from(lanes).ok().and_then(|lanes| config.first_lane.checked_add(lanes)).is_none() {
            return Err(ConfigError::FirstLane { first_lane: config.first_lane, lanes });
        }
        if config.threads == 0 || config.threads > MAX_THREADS {
            return Err(ConfigError::Threads(config.threads));
        }
        let options = options_per_lane(entry, &config)?;
        let set = config.instruction_set;
        let target = Target::new(set).ok_or(MakeError::InstructionSet { set }).map_err(ConfigError::Make)?;
        let spec = entry.spec();
        let columns = Self::columns(entry, config.autoreset);
        let ranges = split(lanes, config.threads);
        let spin = Spin::among(ranges.len() + placement.peers());
        let (arena, shares) =
            Arena::new(&columns, lanes, &ranges, spin, placement).map_err(ConfigError::Arena)?;
        let statuses: Vec<Arc<BlockStatus>> =
            (0..lanes.div_ceil(BLOCK_LANES)).map(|_| Arc::default()).collect();
        let crews = shares
            .into_iter()
            .map(|share| make_crew(entry, &config, target, &options, &statuses, recording, share))
            .collect::<Result<Vec<_>, _>>()?;
        let (started, orders) = (Instant::now(), Arc::new(Orders::default()));
        let (own, others, results) = start_threads(crews, &orders, spin, started)?;
        let started_ms = wall_ms();
        Ok(Self {
            entry: Arc::clone(entry),
            check: ActionCheck::new(&spec.action_space, target),
            action: columns.action,
            config,
            arena,
            own,
            others,
            results,
            spin,
            orders,
            statuses,
            first_done: None,
            has_reset: false,
            hung: false,
            started,
            started_ms,
            turn: Turn { now_ms: started_ms, since_start: Duration::ZERO },
            last_sample: Duration::ZERO,
            unhurried: false,
            recording: recording.is_some(),
            backlog: recording.map(RunRecorder::backlog),
            replaying: false,
            logs: false,
            changed: false,
            timings: Timings::default(),
        })
    }

    /// Returns the columns of the batches of an env's engines.
    pub fn columns(entry: &EnvEntry, autoreset: Autoreset) -> BatchColumns {
        BatchColumns::of(entry.spec(), autoreset == Autoreset::SameStep)
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
    pub const fn autoreset(&self) -> Autoreset {
        self.config.autoreset
    }

    /// Returns the time limit in steps; `None` if there is none.
    pub fn time_limit(&self) -> Option<u64> {
        time_limit(&self.config, self.entry.spec()).map(u64::from)
    }

    /// Returns the number of threads that step, with the caller's.
    pub fn threads(&self) -> usize {
        1 + self.others.len()
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
        if self.has_reset {
            return Err(StepError::Begun);
        }
        let block = |first: usize| {
            let lanes = BLOCK_LANES.min(self.lanes() - first);
            Some(run.block(self.config.first_lane + first as u32, lanes))
        };
        let recorders: Vec<_> = (0..self.lanes()).step_by(BLOCK_LANES).map(block).collect();
        let recorders = Mutex::new(recorders);
        self.on_blocks(false, move |block, _| {
            let mut recorders = recorders.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(recorder) = recorders[block.rows().start / BLOCK_LANES].take() {
                block.record_with(recorder);
            }
        })?;
        self.recording = true;
        self.backlog = Some(run.backlog());
        Ok(())
    }

    /// Begins episodes. Episodes that are open in those lanes end as `cancelled`; results that were not
    /// received are dropped.
    ///
    /// # Errors
    /// If a list has another length than the batch, or a seed is given where the schedule gives them;
    /// [`StepError::Options`], or [`StepError::Hung`].
    pub fn reset(&mut self, reset: &Reset) -> Result<Frame<'_>, StepError> {
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
            self.change_options(Change { values: reset.options.clone(), first: 0, wanted, forget: true })?;
        }
        self.has_reset = true;
        self.begin_turn();
        self.on_blocks(true, move |block, rows| {
            let first = block.rows().start;
            let wanted = block.rows().clone().filter(|&row| reset.resets(row));
            let mask = wanted.fold(0, |mask, row| mask | 1 << (row - first));
            block.reset(rows, mask, &|row| reset.seeds.get(row).copied().flatten());
        })?;
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
        self.lockstep()?;
        if !self.has_reset {
            return Err(StepError::NotReset);
        }
        if self.config.autoreset == Autoreset::Disabled {
            self.refuse_waiting()?;
        }
        if !self.check.all_good(self.arena.actions()) {
            self.refuse_bad_actions()?;
        }
        self.begin_turn();
        let sampled = self.timings.batches.is_multiple_of(SAMPLE_EVERY);
        self.timings.batches += 1;
        // The clock costs a tenth of a small batch: while batches follow fast, every sampled one is enough.
        if sampled {
            self.turn = self.turn_now();
            let since = self.turn.since_start.saturating_sub(self.last_sample);
            self.last_sample = self.turn.since_start;
            self.unhurried = since > UNHURRIED * SAMPLE_EVERY as u32;
        } else if (self.recording && self.unhurried) || self.lost() > 0 {
            self.turn = self.turn_now();
        }
        let turn = self.turn;
        if !self.others.is_empty() {
            self.orders.give(Order::Step, turn, sampled);
        }
        self.arena.start();
        self.own.step(turn, sampled);
        self.step_for_late(turn, sampled);
        self.wait()?;
        if sampled {
            self.timings.batch.add(self.started.elapsed().saturating_sub(turn.since_start));
        }
        Ok(self.arena.frame())
    }

    /// Returns the newest frame.
    ///
    /// # Errors
    /// [`StepError::NotReset`] before the first reset, [`StepError::Hung`].
    pub fn frame(&mut self) -> Result<Frame<'_>, StepError> {
        self.lockstep()?;
        if self.has_reset { Ok(self.arena.frame()) } else { Err(StepError::NotReset) }
    }

    /// Returns the newest frame, and the column of actions to be filled from it before [`Engine::step`].
    ///
    /// # Errors
    /// As [`Engine::frame`].
    #[inline]
    pub fn frame_and_actions(&mut self) -> Result<(Frame<'_>, ColumnMut<'_>), StepError> {
        self.lockstep()?;
        if self.has_reset { Ok(self.arena.frame_and_actions()) } else { Err(StepError::NotReset) }
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
        let retired: u32 = self.statuses.iter().map(|status| status.retired().count_ones()).sum();
        self.lanes() - retired as usize
    }

    /// Returns whether the env of lane `lane` has failed and is not back yet. Such a lane's rows show its last
    /// observation.
    pub fn is_lost(&self, lane: usize) -> bool {
        self.statuses
            .get(lane / BLOCK_LANES)
            .is_some_and(|status| status.lost() >> (lane % BLOCK_LANES) & 1 == 1)
    }

    /// Returns the number of lanes whose env has failed and is not back yet.
    pub fn lost(&self) -> usize {
        self.statuses.iter().map(|status| status.lost().count_ones() as usize).sum()
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
            let mut states = collect.lock().unwrap_or_else(PoisonError::into_inner);
            for row in block.rows().clone() {
                states[row] = block.lane_state(row - block.rows().start);
            }
        })?;
        let states = states.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(states.clone())
    }

    /// Ends every open episode with that outcome; their lanes have to be reset.
    ///
    /// # Errors
    /// Only [`StepError::Hung`].
    pub fn interrupt(&mut self, cause: Interruption) -> Result<(), StepError> {
        self.lockstep()?;
        self.on_blocks(false, move |block, _| block.interrupt(u64::MAX, cause))
    }

    /// Marks rows of the newest frame as truncated, for owners whose lanes' episodes were cut from outside.
    ///
    /// # Errors
    /// Only [`StepError::Hung`].
    pub fn mark_truncated(&mut self, lanes: &[u32]) -> Result<(), StepError> {
        self.lockstep()?;
        let lanes = lanes.to_vec();
        self.on_blocks(false, move |block, rows| {
            let range = block.rows().clone();
            rows.with_block(&range, |rows| {
                let here = lanes.iter().map(|&lane| lane as usize).filter(|lane| range.contains(lane));
                here.for_each(|lane| rows.truncated[lane - range.start] = 1);
            });
        })
    }

    /// Hands everything recorded so far to the recorder's writer. May wait for it.
    ///
    /// # Errors
    /// Only [`StepError::Hung`].
    pub fn flush(&mut self) -> Result<(), StepError> {
        self.lockstep()?;
        self.on_blocks(false, |block, _| block.flush())
    }

    /// Returns the statistics so far.
    ///
    /// # Errors
    /// Only [`StepError::Hung`].
    pub fn stats(&mut self) -> Result<Stats, StepError> {
        self.lockstep()?;
        // In the order of blocks, so that sums of returns do not depend on the number of threads.
        let parts = Arc::new(Mutex::new(vec![Stats::default(); self.statuses.len()]));
        let collect = Arc::clone(&parts);
        self.on_blocks(false, move |block, _| {
            collect.lock().unwrap_or_else(PoisonError::into_inner)[block.rows().start / BLOCK_LANES] =
                *block.stats();
        })?;
        let mut stats = Stats::default();
        parts.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|part| stats.merge(part));
        Ok(stats)
    }

    /// Returns how the time of the batches was spent so far.
    ///
    /// # Errors
    /// Only [`StepError::Hung`].
    pub fn timings(&mut self) -> Result<Timings, StepError> {
        self.lockstep()?;
        self.orders.give(Order::Report, self.turn_now(), false);
        self.arena.start_housekeeping();
        drop(self.own.share.begin());
        self.wait()?;
        let mut timings = self.timings;
        timings.merge(&self.own.timings);
        timings.merge(&self.orders.take_report());
        Ok(timings)
    }

    /// Ends the threads and returns the timings of all of them. Open episodes end as `cancelled`.
    ///
    /// # Errors
    /// [`StepError::Hung`] if a thread does not end within the deadline; it is abandoned then.
    pub fn close(mut self) -> Result<Timings, StepError> {
        self.interrupt(Interruption::Cancelled)?;
        self.flush()?;
        self.orders.give(Order::Stop, self.turn_now(), false);
        self.arena.start_housekeeping();
        drop(self.own.share.begin());
        self.wait()?;
        let mut timings = self.timings;
        timings.merge(&self.own.timings);
        for worker in &mut self.others {
            worker.thread.take().and_then(|thread| thread.join().ok()).ok_or(StepError::Hung)?;
            timings.merge(&worker.crew.lock().unwrap_or_else(PoisonError::into_inner).timings);
        }
        Ok(timings)
    }

    /// Does `job` on every block, each on its crew's thread. If `frame` is true, the job writes the next frame.
    pub(crate) fn on_blocks(
        &mut self,
        frame: bool,
        job: impl Fn(&mut Block, &mut Rows<'_>) + Send + Sync + 'static,
    ) -> Result<(), StepError> {
        let job: Arc<Job> = Arc::new(job);
        if !self.others.is_empty() {
            self.orders.set_job(Some(Arc::clone(&job)));
            self.orders.give(Order::Job, self.turn_now(), false);
        }
        if frame {
            self.arena.start()
        } else {
            self.arena.start_housekeeping()
        }
        self.own.run(&*job);
        let result = self.wait();
        self.orders.set_job(None);
        result
    }

    /// Notes that lanes now do something by themselves, and drops the log entries that nobody took.
    #[inline]
    fn begin_turn(&mut self) {
        self.replaying = false;
        if self.logs {
            self.statuses.iter().for_each(|status| status.clear_log());
        }
    }

    /// Steps the crews whose threads have not begun to step: a thread whose core is taken by something else may not
    /// begin for milliseconds. Envs that may hang are left to their threads, because only those can be given up.
    #[inline]
    fn step_for_late(&self, turn: Turn, sampled: bool) {
        if self.entry.is_bounded() {
            for worker in &self.others {
                if let Ok(mut crew) = worker.crew.try_lock() {
                    crew.step(turn, sampled);
                }
            }
        }
    }

    /// Waits for the other crews.
    #[inline]
    fn wait(&mut self) -> Result<(), StepError> {
        let deadline = (!self.others.is_empty()).then(|| Instant::now() + self.look_every());
        if self.arena.wait(deadline).is_ok() { Ok(()) } else { self.wait_long() }
    }

    /// Waits for crews that take long. A crew hangs if it has not answered for the deadline and did not wait for the
    /// recorder; waiting for a full queue is no hang.
    #[cold]
    fn wait_long(&mut self) -> Result<(), StepError> {
        let mut still = self.look_every();
        loop {
            if self.backlog.as_ref().is_some_and(Backlog::is_behind) {
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

    #[inline]
    fn turn_now(&self) -> Turn {
        let since_start = self.started.elapsed();
        Turn { now_ms: self.started_ms + since_start.as_millis() as u64, since_start }
    }

    /// Ends first-done mode, if it is on. Results that were not received are dropped.
    #[inline]
    pub(crate) fn lockstep(&mut self) -> Result<(), StepError> {
        if self.hung {
            return Err(StepError::Hung);
        }
        if self.first_done.is_some() { self.leave_first_done() } else { Ok(()) }
    }

    /// Refuses while lanes are sent that have not been received.
    pub(crate) fn refuse_outstanding(&self) -> Result<(), StepError> {
        let outstanding = self.first_done.as_ref().filter(|books| books.outstanding_lanes > 0);
        match outstanding.and_then(|books| books.outstanding.iter().position(|&sent| sent)) {
            Some(lane) => Err(StepError::LaneOutstanding { lane }),
            None => Ok(()),
        }
    }

    #[cold]
    fn refuse_bad_actions(&self) -> Result<(), StepError> {
        // The action of a lane that is reset or stands still is ignored, whatever it is.
        let stepping = |lane: usize| {
            let (status, bit) = (&self.statuses[lane / BLOCK_LANES], lane % BLOCK_LANES);
            (status.waiting() | status.lost() | status.retired()) >> bit & 1 == 0
        };
        match self.check.first_bad(self.arena.actions(), stepping) {
            Some(bad) => Err(StepError::Action(bad)),
            None => Ok(()),
        }
    }

    fn refuse_waiting(&self) -> Result<(), StepError> {
        match (0..).zip(&self.statuses).find(|(_, status)| status.waiting() != 0) {
            Some((block, status)) => {
                let lane = block * BLOCK_LANES + status.waiting().trailing_zeros() as usize;
                Err(StepError::NeedsReset { lane })
            }
            None => Ok(()),
        }
    }
}

impl Drop for Engine {
    /// Ends the threads without waiting for them. A crew that is inside an env ends after it.
    fn drop(&mut self) {
        if self.hung || self.others.iter().all(|worker| worker.thread.is_none()) {
            return;
        }
        if self.lockstep().is_ok() {
            self.orders.give(Order::Stop, self.turn_now(), false);
            self.arena.start_housekeeping();
        }
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

fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Time between two batches above which each looks at the clock. Batches that follow each other faster may be told a
/// time up to [`SAMPLE_EVERY`] batches old, which is then at most about 2 ms: recordings close their chunks by it, at
/// about 100 ms.
const UNHURRIED: Duration = Duration::from_micros(25);

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
        assert_eq!(two.others.len(), 1);
        two.orders.give(Order::Stop, two.turn_now(), false);
        two.arena.start_housekeeping();
        drop(two.own.share.begin());
        two.wait().unwrap();
        two.others[0].thread.take().unwrap().join().unwrap();
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
