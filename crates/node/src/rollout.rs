//! A rollout: lanes stepped by a node-side policy until a goal is reached.

mod first_done;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_core::{
    AutoresetMode, EnvSource, Goal, Interruption, Options, RecordRule, RunId, SeedSchedule,
};
use rollhouse_engine::{Engine, EngineConfig, Reset, Stats, StepError, Timings};
use rollhouse_env::EnvEntry;
use rollhouse_host::ConnectWatch;
use rollhouse_policy::{Act, Model, Policy};
use rollhouse_replay::{PolicyInfo, RunHeader, RunRecorder};

use self::first_done::FirstDone;
use crate::live::Camera;
use crate::{Cancel, Progress, RolloutError};

/// A rollout that is to be done: what to step, how, and until when.
#[derive(Debug, Clone)]
pub struct Rollout {
    /// The env to step.
    pub env: Arc<EnvEntry>,
    /// The lanes, threads, options and so on of the engine. Its schedule decides what episodes start from;
    /// [`Rollout::new`] seeds each episode from the run's seed, if the env's lanes do not step together.
    pub engine: EngineConfig,
    /// Lanes of the whole run: more than the engine's when other engines play its other lanes.
    pub run_lanes: usize,
    /// The seed of random actions, and of the episodes under `per_episode`.
    pub seed: u64,
    /// The policy that chooses actions.
    pub policy: Arc<dyn Model>,
    /// The goal at which the rollout ends.
    pub goal: Goal,
    /// Time that the session may make no progress before it counts as hung.
    pub hang_deadline: Duration,
    /// Connecting of the lanes' workers: while they try, the session does not count as hung.
    pub connecting: ConnectWatch,
}

/// The result of a rollout.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// Steps, episodes, returns and lengths.
    pub stats: Stats,
    /// The parts that a batch's time was spent on.
    pub timings: Timings,
    /// Number of threads that stepped.
    pub threads: usize,
    /// Time from before the first reset to after the last step; making the lanes does not count.
    pub took: Duration,
}

impl Rollout {
    /// Describes a rollout of a whole run in which every episode is seeded from `seed`, its lane and its number. Its
    /// hang deadline is [`HANG_DEADLINE`].
    pub fn new(
        env: Arc<EnvEntry>,
        engine: EngineConfig,
        seed: u64,
        policy: Arc<dyn Model>,
        goal: Goal,
    ) -> Self {
        let (autoreset, schedule) = Self::modes(&env.spec().source, engine.autoreset, seed);
        let engine = EngineConfig { autoreset, schedule, ..engine };
        let (run_lanes, connecting) = (engine.lanes, ConnectWatch::default());
        Self { env, run_lanes, engine, seed, policy, goal, hang_deadline: HANG_DEADLINE, connecting }
    }

    /// Returns how lanes of an env are reset in a rollout that would be in that mode, and what their episodes start from: a seed
    /// of each episode's own. Lanes that step together are reset by their env, in its next step, and draw on.
    pub fn modes(env: &EnvSource, mode: AutoresetMode, run_seed: u64) -> (AutoresetMode, SeedSchedule) {
        if env.steps_together() {
            return (AutoresetMode::NextStep, SeedSchedule::Continue);
        }
        (mode, SeedSchedule::PerEpisode { run_seed })
    }

    /// Returns the header of its run, for a recorder.
    pub fn header(&self, run: RunId, record: RecordRule, program: String, started_ms: u64) -> RunHeader {
        let spec = self.env.spec().clone();
        let options = match self.engine.options.as_slice() {
            // The defaults of a schema always pass its own check.
            [] => vec![Options::check(&spec.options, &[]).unwrap_or_default()],
            given => given.to_vec(),
        };
        RunHeader {
            run,
            options,
            lanes: self.run_lanes as u32,
            schedule: self.engine.schedule,
            autoreset: self.engine.autoreset.name().to_owned(),
            max_episode_steps: match self.engine.max_episode_steps {
                None => spec.max_episode_steps,
                Some(limit) => (limit > 0).then_some(limit),
            },
            policy: PolicyInfo { name: self.policy.name().to_owned(), version: self.policy.version() },
            record,
            program,
            started_ms,
            parent: None,
            arguments: self.env.arguments().to_owned(),
            spec,
        }
    }

    /// Steps until the goal is reached or the end is asked for. Blocks for as long as that takes.
    pub(crate) fn run(
        &self,
        recording: Option<&RunRecorder>,
        progress: &Progress,
        cancel: &Cancel,
    ) -> Result<Report, RolloutError> {
        progress.beat();
        if let Some(recording) = recording {
            recording.end_with(cancel.flag());
        }
        if cancel.is_cancelled() {
            // It was asked to end before its thread had begun: no lane is made for it.
            return Ok(Report::default());
        }
        let mut policy = self.policy.make(self.env.spec(), self.seed).map_err(RolloutError::Policy)?;
        let engine = Engine::new(&self.env, self.engine.clone(), recording);
        progress.launch(false);
        let mut engine = engine.map_err(RolloutError::Engine)?;
        progress.beat();
        if let Goal::Episodes(episodes) = self.goal {
            let (first_lane, lanes) = (u64::from(self.engine.first_lane), self.run_lanes as u64);
            let quota =
                move |row: usize| episodes / lanes + u64::from(first_lane + (row as u64) < episodes % lanes);
            engine.limit_episodes(quota).map_err(RolloutError::Step)?;
        }
        let began = Instant::now();
        let ended = self.steps(&mut engine, &mut *policy, progress, cancel);
        let report = close(engine, progress, began, cancel.interruption());
        match ended {
            Ok(()) => report.map_err(RolloutError::Step),
            Err(Ended::Lanes(lanes)) => {
                let report = Box::new(report.map_err(RolloutError::Step)?);
                Err(RolloutError::LanesFailed { lanes, report })
            }
            Err(Ended::Error(error)) => Err(error),
        }
    }

    /// Does everything between the first reset and the last step.
    fn steps(
        &self,
        engine: &mut Engine,
        policy: &mut dyn Policy,
        progress: &Progress,
        cancel: &Cancel,
    ) -> Result<(), Ended> {
        if !cancel.is_cancelled() {
            let together = self.env.spec().source.steps_together();
            let seed = self.seed.wrapping_add(u64::from(self.engine.first_lane));
            // Those are seeded once.
            engine.reset(&if together { Reset::seeded(seed, self.engine.lanes) } else { Reset::all() })?;
        }
        if self.env.is_late() && !self.env.spec().source.steps_together() {
            let (first_lane, goal) = (self.engine.first_lane, self.goal);
            return FirstDone::new(engine, policy, first_lane, goal)?.play(progress, cancel);
        }
        let (live, mut camera) = (progress.live(), Camera::default());
        let mut shown = Instant::now();
        let mut batch = 0;
        while !self.is_reached(batch, engine) && !cancel.is_cancelled() {
            if engine.lost() > 0 {
                wait_for_restarts(engine)?;
            }
            act(engine, self.engine.first_lane, policy, batch)?;
            engine.step()?;
            if live.is_watched() {
                camera.after_step(engine, live);
            }
            progress.beat();
            batch += 1;
            if batch % LOOK_EVERY == 0 && shown.elapsed() >= PUBLISH_EVERY {
                publish(engine, progress)?;
                shown = Instant::now();
            }
        }
        Ok(())
    }

    fn is_reached(&self, batch: u64, engine: &Engine) -> bool {
        match self.goal {
            Goal::Batches(batches) => batch >= batches,
            Goal::Episodes(_) => engine.playing() == 0,
        }
    }
}

/// Why stepping ended before the goal.
enum Ended {
    /// This many lanes have failed for good, and no other lane plays.
    Lanes(usize),
    Error(RolloutError),
}

impl From<StepError> for Ended {
    fn from(error: StepError) -> Self {
        Self::Error(RolloutError::Step(error))
    }
}

/// Has the policy choose every lane's next action from the newest frame.
fn act(engine: &mut Engine, first_lane: u32, policy: &mut dyn Policy, batch: u64) -> Result<(), Ended> {
    let masked = engine.entry().spec().action_mask();
    let (frame, actions) = engine.frame_and_actions()?;
    let obs = frame.obs_columns();
    let mask = masked.and_then(|column| frame.info(column).as_u8());
    let request = Act { first_lane, step: batch, obs: &obs, mask, actions };
    policy.act(request).map_err(|error| Ended::Error(RolloutError::Act(error)))?;
    drop(obs);
    Ok(note(engine, policy, None)?)
}

/// Notes what the policy says of the actions that it chose last, of `lanes` or of all, if that is recorded.
fn note(engine: &mut Engine, policy: &dyn Policy, lanes: Option<&[u32]>) -> Result<(), StepError> {
    let columns = engine.step_columns().specs().len();
    let mut notes = policy.notes().iter().enumerate().take(columns);
    notes.try_for_each(|(column, values)| engine.note(column, lanes, values.as_ref()))
}

/// Is called when lanes are lost. If no other lane plays, it pauses for a moment, since stepping nothing would only
/// burn a core until a restart is due; when none is due, it ends the stepping.
#[cold]
fn wait_for_restarts(engine: &mut Engine) -> Result<(), Ended> {
    let playing = engine.playing();
    if engine.lost() < playing {
        return Ok(());
    }
    let states = engine.lane_states()?;
    let failed = states.iter().filter(|&&state| state == rollhouse_core::LaneState::Failed).count();
    if failed >= playing {
        return Err(Ended::Lanes(failed));
    }
    std::thread::sleep(RESTART_PAUSE);
    Ok(())
}

/// Ends open episodes, hands everything to the recorder and collects the statistics.
fn close(
    mut engine: Engine,
    progress: &Progress,
    began: Instant,
    cause: Interruption,
) -> Result<Report, StepError> {
    progress.beat();
    engine.interrupt(cause)?;
    let took = began.elapsed();
    engine.flush()?;
    publish(&mut engine, progress)?;
    let (stats, threads) = (engine.stats()?, engine.threads());
    let timings = engine.close()?;
    progress.beat();
    Ok(Report { stats, timings, threads, took })
}

fn publish(engine: &mut Engine, progress: &Progress) -> Result<(), StepError> {
    let stats = engine.stats()?;
    progress.publish(&stats);
    Ok(())
}

/// Default time that a session may make no progress. It is longer than any batch of an env that is alive. An engine
/// with more than one thread notices a thread that hangs after its own `step_deadline`, which may be shorter.
pub const HANG_DEADLINE: Duration = Duration::from_secs(60);

/// Batches between two looks at the clock: reading it for each would cost a small batch a tenth of its time.
const LOOK_EVERY: u64 = 16;

/// Greatest age of what a progress bar shows.
const PUBLISH_EVERY: Duration = Duration::from_millis(50);

/// Pause of a session without a playing lane: a fraction of the shortest back-off of a lane.
const RESTART_PAUSE: Duration = Duration::from_millis(20);
