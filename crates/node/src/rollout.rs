//! A rollout: lanes stepped by a node-side policy until a goal is reached.

mod first_done;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_core::limits::HANG_DEADLINE;
use rollhouse_core::{
    AutoresetMode, Determinism, EnvSource, Goal, Interruption, Options, RecordRule, RunId, SeedSchedule,
};
use rollhouse_engine::{Engine, EngineConfig, Glance, PlayError, Reset, Stats, StepError, Timings};
use rollhouse_env::EnvEntry;
use rollhouse_host::ConnectWatch;
use rollhouse_policy::{Model, Policy};
use rollhouse_replay::{PolicyInfo, RunHeader, RunRecorder};
use rollhouse_wire::limits::MAX_STANDING_LANES;
use rollhouse_wire::{LaneStanding, Standing};

use self::first_done::FirstDone;
use crate::executor::Crew;
use crate::live::Camera;
use crate::urgency::Urgency;
use crate::{Cancel, Exit, Progress, RolloutError, Tally};

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
    /// Where the lanes stood elsewhere, if they go on from there.
    pub resume: Option<Arc<Standing>>,
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
        Self {
            env,
            run_lanes,
            engine,
            seed,
            policy,
            goal,
            hang_deadline: HANG_DEADLINE,
            connecting,
            resume: None,
        }
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
}

/// A rollout under way: a value that does a part of the work whenever it has a turn.
///
/// ```text
/// New --lanes are made--> Resetting --all show their first frame--> Playing --goal reached, end asked for, error--> Closing --> over
/// ```
pub(crate) struct Playing {
    rollout: Rollout,
    recording: Option<Arc<RunRecorder>>,
    progress: Arc<Progress>,
    cancel: Cancel,
    stage: Stage,
}

enum Stage {
    New,
    /// Lanes begin their first episodes.
    Resetting(Box<Lanes>),
    Playing(Box<Lanes>),
    /// Lanes have done what they should, or cannot go on.
    Closing(Box<Lanes>, Result<(), Ended>),
    Over,
}

/// The lanes of a rollout, with all that their stepping needs.
struct Lanes {
    engine: Engine,
    policy: Box<dyn Policy>,
    camera: Camera,
    began: Instant,
    /// When the statistics were last published, and when it was last shown where the lanes stand.
    shown: Instant,
    stood: Instant,
    way: Way,
}

/// The way in which lanes are stepped.
enum Way {
    /// Each by itself until it has come to where all lanes were together elsewhere: from there on together.
    CatchingUp(FirstDone),
    /// Together: so often already, and perhaps once more just now.
    Together { batch: u64, under_way: bool },
    /// Each as soon as its row is there.
    Each(FirstDone),
}

/// What came of stepping for a while.
enum Stepped {
    /// Others have their turns.
    Paused,
    /// Nothing is to be done before rows of late lanes come, or lost lanes come back.
    Waits,
    /// Nothing is to be done before that time has passed.
    WaitsFor(Duration),
    /// The goal is reached, or the end was asked for.
    Reached,
}

/// What follows a turn.
#[derive(Debug)]
pub(crate) enum Next {
    /// Another turn.
    Again,
    /// Another turn, in which nothing can be done before that time has passed.
    After(Duration),
    /// Another turn, in which nothing can be done before the descriptor is readable or that time has come.
    Sleep(Option<Instant>),
    /// Nothing.
    Over(Exit),
}

impl std::fmt::Debug for Playing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Playing").field("rollout", &self.rollout).finish_non_exhaustive()
    }
}

impl Playing {
    pub(crate) const fn new(
        rollout: Rollout,
        recording: Option<Arc<RunRecorder>>,
        progress: Arc<Progress>,
        cancel: Cancel,
    ) -> Self {
        Self { rollout, recording, progress, cancel, stage: Stage::New }
    }

    /// Steps until the goal is reached or the end is asked for. Blocks for as long as that takes.
    pub(crate) fn run(mut self) -> Exit {
        loop {
            match self.turn(LOOK_FOR_END) {
                Next::Again | Next::Sleep(_) => {}
                Next::After(pause) => std::thread::sleep(pause),
                Next::Over(exit) => return exit,
            }
        }
    }

    /// Returns the threads that the next turn is for.
    pub(crate) fn crew(&self) -> Crew {
        let is_behind = || self.recording.as_ref().is_some_and(|run| run.is_behind());
        match &self.stage {
            Stage::Resetting(_) | Stage::Playing(_) if self.rollout.env.is_late() => Crew::Tending,
            Stage::Resetting(_) | Stage::Playing(_) if self.rollout.env.is_bounded() && !is_behind() => {
                Crew::Playing
            }
            _ => Crew::Lingering,
        }
    }

    /// Has a turn on a thread that others have theirs on, in which it waits for no row. The processes in which lanes are stepped
    /// get that urgency.
    pub(crate) fn turn_as(&mut self, urgency: Urgency) -> Next {
        if !matches!(self.stage, Stage::New) || !self.rollout.env.is_late() {
            return match self.turn(Duration::ZERO) {
                Next::Sleep(_) => self.arm(),
                next => next,
            };
        }
        // Processes have it from the thread that begins them, and a thread never gets back what it gave up.
        std::thread::scope(|scope| {
            // Task: rollout.
            let begun = scope.spawn(|| {
                urgency.apply();
                self.turn(Duration::ZERO)
            });
            begun.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Announces that nobody looks at the lanes before their descriptor is readable.
    fn arm(&mut self) -> Next {
        let (Stage::Resetting(lanes) | Stage::Playing(lanes)) = &mut self.stage else { return Next::Again };
        if lanes.engine.descriptor().is_none() {
            return Next::After(POLL);
        }
        let now = Instant::now();
        match lanes.engine.arm(now) {
            Ok(Some(at)) if at <= now => Next::Again,
            Ok(at) => Next::Sleep(at),
            // The next turn says so.
            Err(_) => Next::Again,
        }
    }

    /// Returns a descriptor that is readable when a turn may have something to do, after [`Next::Sleep`].
    pub(crate) fn descriptor(&mut self) -> Option<OwnedFd> {
        let (Stage::Resetting(lanes) | Stage::Playing(lanes)) = &mut self.stage else { return None };
        // One that cannot be duplicated is done without: the lanes are looked at now and then.
        lanes.engine.descriptor()?.try_clone_to_owned().ok()
    }

    /// Does a part of the work: what is left of a short time is waited for rows of late lanes, `patience` at most. Making
    /// lanes and ending them may take long, and so may a step of an env that is not bounded.
    pub(crate) fn turn(&mut self, patience: Duration) -> Next {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::New => self.begin(),
            Stage::Resetting(mut lanes) => match lanes.engine.finish(patience) {
                Ok(_) if self.cancel.is_cancelled() => self.go_on(Stage::Closing(lanes, Ok(()))),
                Ok(false) => self.stay(Stage::Resetting(lanes), Next::Sleep(None)),
                Ok(true) => match lanes.begin(&self.rollout) {
                    Ok(()) => self.go_on(Stage::Playing(lanes)),
                    Err(ended) => self.go_on(Stage::Closing(lanes, Err(ended))),
                },
                Err(error) => self.go_on(Stage::Closing(lanes, Err(error.into()))),
            },
            Stage::Playing(mut lanes) => match self.play(&mut lanes, patience) {
                Ok(Stepped::Reached) => self.go_on(Stage::Closing(lanes, Ok(()))),
                Ok(Stepped::Paused) => self.go_on(Stage::Playing(lanes)),
                Ok(Stepped::Waits) => self.stay(Stage::Playing(lanes), Next::Sleep(None)),
                Ok(Stepped::WaitsFor(pause)) => self.stay(Stage::Playing(lanes), Next::After(pause)),
                Err(ended) => self.go_on(Stage::Closing(lanes, Err(ended))),
            },
            Stage::Closing(lanes, ended) => self.over(self.close(*lanes, ended)),
            // Nobody asks again.
            Stage::Over => Next::Over(Exit::Unwatched),
        }
    }

    fn go_on(&mut self, stage: Stage) -> Next {
        self.stage = stage;
        Next::Again
    }

    fn stay(&mut self, stage: Stage, next: Next) -> Next {
        self.stage = stage;
        next
    }

    /// Makes the lanes, and has them begin their first episodes.
    fn begin(&mut self) -> Next {
        self.progress.beat();
        if let Some(recording) = &self.recording {
            recording.end_with(self.cancel.flag());
        }
        if self.cancel.is_cancelled() {
            // It was asked to end before its turn: no lane is made for it.
            return self.over(Ok(Report::default()));
        }
        match self.rollout.make(self.recording.as_deref(), &self.progress) {
            Ok(lanes) => self.go_on(Stage::Resetting(Box::new(lanes))),
            Err(error) => self.over(Err(error)),
        }
    }

    /// Steps for a while.
    fn play(&self, lanes: &mut Lanes, patience: Duration) -> Result<Stepped, Ended> {
        let Lanes { engine, policy, camera, shown, stood, way, .. } = lanes;
        let until = Instant::now() + SLICE;
        let (progress, cancel) = (&*self.progress, &self.cancel);
        let mut turn = Turn { policy: &mut **policy, progress, cancel, camera, until, patience };
        let stepped = match way {
            Way::Together { batch, under_way } => {
                self.rollout.step_together(engine, (batch, under_way), &mut turn)?
            }
            Way::Each(first_done) => first_done.play(engine, &mut turn)?,
            Way::CatchingUp(first_done) => match first_done.play(engine, &mut turn)? {
                Stepped::Reached if !cancel.is_cancelled() => {
                    let batch = self.rollout.resume.as_ref().map_or(0, |standing| standing.batch);
                    *way = Way::Together { batch, under_way: false };
                    Stepped::Paused
                }
                stepped => stepped,
            },
        };
        if stood.elapsed() >= STAND_EVERY && self.rollout.stands() {
            if let Some(standing) = stand(engine, way)? {
                progress.stand(standing);
            }
            *stood = Instant::now();
        }
        if matches!(stepped, Stepped::Waits) || shown.elapsed() >= PUBLISH_EVERY {
            publish(engine, progress)?;
            *shown = Instant::now();
        }
        Ok(stepped)
    }

    fn over(&self, result: Result<Report, RolloutError>) -> Next {
        Next::Over(match result {
            Ok(report) if self.cancel.is_cancelled() => Exit::Cancelled(Box::new(report)),
            Ok(report) => Exit::Finished(Box::new(report)),
            // One of several stepping threads did not answer.
            Err(RolloutError::Step(StepError::Hung)) => {
                if let Some(run) = &self.recording {
                    run.cut_short(Interruption::Hung);
                }
                Exit::Hung(self.rollout.engine.step_deadline)
            }
            Err(error) => Exit::Failed(error),
        })
    }

    /// Ends the lanes, and returns what they have done.
    fn close(&self, lanes: Lanes, ended: Result<(), Ended>) -> Result<Report, RolloutError> {
        let report = close(lanes.engine, &self.progress, lanes.began, self.cancel.interruption());
        match ended {
            Ok(()) => report.map_err(RolloutError::Step),
            Err(Ended::Lanes(lanes)) => {
                let report = Box::new(report.map_err(RolloutError::Step)?);
                Err(RolloutError::LanesFailed { lanes, report })
            }
            Err(Ended::Error(error)) => Err(error),
        }
    }
}

/// What a turn of stepping has beside the lanes.
struct Turn<'a> {
    policy: &'a mut dyn Policy,
    progress: &'a Progress,
    cancel: &'a Cancel,
    camera: &'a mut Camera,
    /// When others have their turns.
    until: Instant,
    /// Longest time to wait for rows of late lanes.
    patience: Duration,
}

impl Lanes {
    /// Takes lanes that show their first frame.
    fn begin(&mut self, rollout: &Rollout) -> Result<(), Ended> {
        let (first_lane, goal) = (rollout.engine.first_lane, rollout.goal);
        let rows = match &rollout.resume {
            Some(standing) => standing.lanes.iter().map(|LaneStanding(_, rows, _)| *rows).collect(),
            None => vec![0; self.engine.lanes()],
        };
        let (engine, policy) = (&mut self.engine, &mut *self.policy);
        if rollout.env.is_late() && !rollout.env.spec().source.steps_together() {
            self.way = Way::Each(FirstDone::begin(engine, policy, rows, first_lane, goal)?);
        } else if let Some(standing) = &rollout.resume {
            let together = Goal::Batches(standing.batch);
            self.way = Way::CatchingUp(FirstDone::begin(engine, policy, rows, first_lane, together)?);
        }
        Ok(())
    }
}

/// Returns where the lanes stand, after everything was handed to the recorder; `None` where that is not known just now.
fn stand(engine: &mut Engine, way: &Way) -> Result<Option<Standing>, StepError> {
    let (batch, each) = match way {
        Way::Together { batch, under_way: false } => (*batch, None),
        Way::Each(first_done) => (0, Some(first_done.rows())),
        Way::Together { .. } | Way::CatchingUp(_) => return Ok(None),
    };
    engine.flush()?;
    let mut done = Tally::from(&engine.stats()?).counts();
    let glances = engine.glances()?;
    let stand = |(lane, glance): (usize, Glance)| {
        // Of a lane without an open episode the next one begins now; one that is sent has had its row, which comes once it has begun.
        let Glance { number, steps, open, .. } = glance;
        done.steps = done.steps.saturating_sub(steps);
        let ending = u64::from(!open && engine.is_outstanding(lane));
        let rows = each.map_or(batch, |rows| rows[lane] + ending);
        LaneStanding(number, rows.saturating_sub(steps), open)
    };
    let lanes = glances.into_iter().enumerate().map(stand).collect();
    Ok(Some(Standing { batch, lanes, done }))
}

impl Rollout {
    /// Makes the lanes, and has them begin their first episodes. May take long.
    fn make(&self, recording: Option<&RunRecorder>, progress: &Progress) -> Result<Lanes, RolloutError> {
        let policy = self.policy.make(self.env.spec(), self.seed).map_err(RolloutError::Policy)?;
        let engine = Engine::new(&self.env, self.engine.clone(), recording);
        progress.launch(false);
        let mut engine = engine.map_err(RolloutError::Engine)?;
        progress.beat();
        if let Some(standing) = self.resume.clone() {
            // What is not deterministic is not played again.
            let next = self.env.spec().determinism == Determinism::NonDeterministic;
            let number = move |row: usize| {
                let LaneStanding(number, _, open) = standing.lanes[row];
                number + u64::from(next && open)
            };
            engine.begin_with(number).map_err(RolloutError::Step)?;
        }
        if let Goal::Episodes(episodes) = self.goal {
            let (first_lane, lanes) = (u64::from(self.engine.first_lane), self.run_lanes as u64);
            let quota =
                move |row: usize| episodes / lanes + u64::from(first_lane + (row as u64) < episodes % lanes);
            engine.limit_episodes(quota).map_err(RolloutError::Step)?;
        }
        let began = Instant::now();
        let together = self.env.spec().source.steps_together();
        let seed = self.seed.wrapping_add(u64::from(self.engine.first_lane));
        // Those are seeded once.
        let reset = if together { Reset::seeded(seed, self.engine.lanes) } else { Reset::all() };
        engine.begin_reset(&reset).map_err(RolloutError::Step)?;
        let way = Way::Together { batch: 0, under_way: false };
        Ok(Lanes { engine, policy, camera: Camera::default(), began, shown: began, stood: began, way })
    }

    /// Steps all lanes together for a while.
    fn step_together(
        &self,
        engine: &mut Engine,
        (batch, under_way): (&mut u64, &mut bool),
        turn: &mut Turn<'_>,
    ) -> Result<Stepped, Ended> {
        let live = turn.progress.live();
        let (mut looked, mut look_in) = (Instant::now(), 1);
        while *under_way || !self.is_reached(*batch, engine) {
            if turn.cancel.is_cancelled() {
                break;
            }
            if !*under_way {
                if engine.lost() > 0 && are_all_lost(engine)? {
                    return Ok(Stepped::WaitsFor(RESTART_PAUSE));
                }
                engine.act(turn.policy, *batch)?;
                note(engine, turn.policy, None)?;
                engine.begin_step()?;
            }
            *under_way = !engine.finish(turn.patience)?;
            if *under_way {
                return Ok(Stepped::Waits);
            }
            if live.is_watched() {
                turn.camera.after_step(engine, live);
            }
            turn.progress.beat();
            *batch += 1;
            look_in -= 1;
            if look_in == 0 {
                let now = Instant::now();
                if now >= turn.until {
                    return Ok(Stepped::Paused);
                }
                look_in = if now - looked < QUICK { LOOK_EVERY } else { 1 };
                looked = now;
            }
        }
        Ok(Stepped::Reached)
    }

    /// Returns whether it can go on elsewhere from where it stands. In other modes than SAME_STEP a lane may be between two episodes,
    /// in a row that no lane that begins anew has. Stepping the open episode again restores what a policy remembers of the lane.
    fn stands(&self) -> bool {
        self.engine.autoreset == AutoresetMode::SameStep
            && matches!(self.engine.schedule, SeedSchedule::PerEpisode { .. })
            && self.engine.lanes <= MAX_STANDING_LANES
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

impl From<PlayError> for Ended {
    fn from(error: PlayError) -> Self {
        match error {
            PlayError::Step(error) => error.into(),
            PlayError::Act(error) => Self::Error(RolloutError::Act(error)),
        }
    }
}

/// Notes what the policy says of the actions that it chose last, of `lanes` or of all, if that is recorded.
fn note(engine: &mut Engine, policy: &dyn Policy, lanes: Option<&[u32]>) -> Result<(), StepError> {
    let columns = engine.step_columns().specs().len();
    let mut notes = policy.notes().iter().enumerate().take(columns);
    notes.try_for_each(|(column, values)| engine.note(column, lanes, values.as_ref()))
}

/// Is called when lanes are lost. Returns whether no other lane plays, so that stepping would only burn a core until a restart
/// is due; when none is due, it ends the stepping.
#[cold]
fn are_all_lost(engine: &mut Engine) -> Result<bool, Ended> {
    let playing = engine.playing();
    if engine.lost() < playing {
        return Ok(false);
    }
    let states = engine.lane_states()?;
    let failed = states.iter().filter(|&&state| state == rollhouse_core::LaneState::Failed).count();
    if failed >= playing {
        return Err(Ended::Lanes(failed));
    }
    engine.restart_lost()?;
    Ok(engine.lost() >= playing)
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

/// Time after which a rollout lets others have their turns: a wake-up costs it a five-hundredth of that.
const SLICE: Duration = Duration::from_millis(10);

/// Batches between two looks at the clock: reading it for each would cost a small batch a tenth of its time.
const LOOK_EVERY: u64 = 16;

/// Time between two looks at the clock for which batches are small.
const QUICK: Duration = Duration::from_micros(500);

/// Greatest time after which a session with a thread of its own notices that it is to end, while its lanes are under way.
const LOOK_FOR_END: Duration = Duration::from_millis(50);

/// Time between two looks at late lanes that have no descriptor.
pub(crate) const POLL: Duration = Duration::from_millis(5);

/// Interval at which it is shown where the lanes stand: so much is at most played again elsewhere, and what is on its way to the
/// store. It costs an early chunk each time.
const STAND_EVERY: Duration = Duration::from_secs(1);

/// Greatest age of what a progress bar shows.
const PUBLISH_EVERY: Duration = Duration::from_millis(50);

/// Pause of a session without a playing lane: a fraction of the shortest back-off of a lane.
const RESTART_PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rollhouse_core::{ColumnRef, EnvSpec, split_mix64};
    use rollhouse_env::Registry;
    use rollhouse_env::testing::{Timing, late};
    use rollhouse_policy::{Act, ActError, Builtin, ModelError};

    use super::*;

    fn rollout(env: &Arc<EnvEntry>, episodes: u64) -> Rollout {
        by(env, episodes, Arc::new(Builtin::Random))
    }

    fn by(env: &Arc<EnvEntry>, episodes: u64, model: Arc<dyn Model>) -> Rollout {
        let engine = EngineConfig { autoreset: AutoresetMode::SameStep, ..EngineConfig::new(6) };
        Rollout::new(Arc::clone(env), engine, 7, model, Goal::Episodes(episodes))
    }

    /// A model whose actions depend on all that a lane has shown in its episode.
    #[derive(Debug)]
    struct Remembering;

    #[derive(Default)]
    struct Remembered(HashMap<u32, u64>);

    impl Model for Remembering {
        fn name(&self) -> &'static str {
            "remembering"
        }

        fn version(&self) -> u64 {
            0
        }

        fn is_recurrent(&self, _: &EnvSpec) -> bool {
            true
        }

        fn make(&self, _: &EnvSpec, _: u64) -> Result<Box<dyn Policy>, ModelError> {
            Ok(Box::<Remembered>::default())
        }
    }

    impl Policy for Remembered {
        fn name(&self) -> &'static str {
            "remembering"
        }

        fn version(&self) -> u64 {
            0
        }

        fn act(&mut self, mut request: Act<'_>) -> Result<(), ActError> {
            let shown = request.obs[0].as_f32().unwrap().chunks(4);
            let actions: Vec<i64> = (request.first_lane..)
                .zip(shown)
                .map(|(lane, shown)| {
                    let state = self.0.entry(lane).or_default();
                    *state = split_mix64(*state ^ u64::from(shown[1].to_bits()));
                    (*state % 2).cast_signed()
                })
                .collect();
            assert!(request.actions.copy_from(ColumnRef::I64(&actions)));
            Ok(())
        }

        fn is_recurrent(&self) -> bool {
            true
        }

        fn begin(&mut self, lane: u32) {
            self.0.remove(&lane);
        }
    }

    fn playing(rollout: Rollout) -> Playing {
        Playing::new(rollout, None, Arc::default(), Cancel::default())
    }

    fn finished(rollout: Rollout) -> Stats {
        match playing(rollout).run() {
            Exit::Finished(report) => report.stats,
            other => panic!("{other:?}"),
        }
    }

    /// Plays for so many turns, and returns where the lanes stand then; `None` if they have reached the goal before.
    fn cut(rollout: Rollout, turns: usize) -> Option<Standing> {
        let mut playing = playing(rollout);
        while !matches!(playing.stage, Stage::Playing(_)) {
            playing.turn(LOOK_FOR_END);
        }
        for _ in 0..turns {
            playing.turn(LOOK_FOR_END);
        }
        let Stage::Playing(mut lanes) = playing.stage else { return None };
        let Lanes { engine, way, .. } = &mut *lanes;
        stand(engine, way).unwrap()
    }

    /// Plays to the goal with a cut after so many turns each. Returns the steps and episodes of all parts, and how many there were.
    fn in_parts(rollout: &Rollout, turns: usize) -> (u64, u64, f64, usize) {
        let (mut steps, mut episodes, mut length, mut parts) = (0, 0, 0.0, 1);
        let mut part = rollout.clone();
        while let Some(standing) = cut(part.clone(), turns).filter(|_| parts < 20) {
            steps += standing.done.steps;
            episodes += standing.done.episodes;
            length += standing.done.detail.length_sum;
            parts += 1;
            part.resume = Some(Arc::new(standing));
        }
        let rest = finished(part);
        (steps + rest.steps, episodes + rest.finished(), length + rest.lengths.sum(), parts)
    }

    #[test]
    fn lanes_that_go_on_elsewhere_play_what_they_would_have_played_and_count_each_step_once() {
        let cartpole = Registry::builtin().get("CartPole-v1").unwrap();
        let whole = finished(rollout(&cartpole, 20_000));
        let wanted = |whole: &Stats| (whole.steps, whole.finished(), whole.lengths.sum());
        let (steps, episodes, length, parts) = in_parts(&rollout(&cartpole, 20_000), 1);
        assert_eq!((steps, episodes, length), wanted(&whole));
        assert!(parts > 2, "{parts}");
        let late = late(&cartpole, Timing::default());
        let whole = finished(rollout(&late, 2_000));
        let (steps, episodes, length, parts) = in_parts(&rollout(&late, 2_000), 1);
        assert_eq!((steps, episodes, length), wanted(&whole));
        assert!(parts > 1, "{parts}");
    }

    /// Symptom: rollouts by recurrent nets did not go on elsewhere. Cause: what a net remembers of a lane was not to be had there, and
    /// a lane's last row before it was stepped with the others was seen twice. Fix: the lane plays its open episode again from its
    /// beginning, and each row is seen once.
    #[test]
    fn what_a_policy_remembers_of_lanes_goes_on_elsewhere_too() {
        let cartpole = Registry::builtin().get("CartPole-v1").unwrap();
        let late = late(&cartpole, Timing::default());
        for (env, episodes) in [(cartpole, 20_000), (late, 2_000)] {
            let whole = finished(by(&env, episodes, Arc::new(Remembering)));
            let (steps, done, length, parts) = in_parts(&by(&env, episodes, Arc::new(Remembering)), 1);
            assert_eq!((steps, done, length), (whole.steps, whole.finished(), whole.lengths.sum()));
            assert!(parts > 1, "{parts}");
        }
    }

    #[test]
    fn lanes_that_are_not_deterministic_begin_the_episodes_after_those_that_were_open() {
        let cartpole = Registry::builtin().get("CartPole-v1").unwrap();
        let spec = EnvSpec { determinism: Determinism::NonDeterministic, ..cartpole.spec().clone() };
        let env = EnvEntry::new(spec, move |set, options| cartpole.make_block_on(set, options));
        let env = Arc::new(env);
        let rollout = rollout(&env, 20_000);
        let standing = cut(rollout.clone(), 1).unwrap();
        let (done, open) = (standing.done.episodes, standing.open());
        let rest = finished(Rollout { resume: Some(Arc::new(standing)), ..rollout });
        assert_eq!((open, done + open + rest.finished()), (6, 20_000));
    }
}
