//! The plan of a session that is to be opened, checked.

use std::sync::Arc;

use rollhouse_core::{
    AutoresetMode, Claimant, ColumnSpec, DROPPED, EnvSpec, Goal, LATE, Options, Pace, RecordRule, RunId,
    SeedSchedule, StepColumns, TICKS,
};
use rollhouse_engine::EngineConfig;
use rollhouse_env::{EnvEntry, Registry};
use rollhouse_host::ConnectWatch;
use rollhouse_policy::Model;
use rollhouse_replay::{BeginError, Beside, PolicyInfo, Recorder, RunHeader, RunRecorder};
use rollhouse_wire::{FrameLayout, Incarnation, LaneSettings, OpenSession, Refusal, RefusalCode, Standing};

use crate::Rollout;
use crate::causes::with_causes;
use crate::deadlines::Deadlines;
use crate::session_places::claimant;

/// A session as the coordinator asked for it, with its env found and everything checked that this node needs.
#[derive(Debug)]
pub struct SessionPlan {
    pub(crate) entry: Arc<EnvEntry>,
    pub(crate) engine: EngineConfig,
    pub(crate) pool: RunId,
    pub(crate) incarnation: Incarnation,
    pub(crate) pool_lanes: u32,
    /// A number that differs for each placement of a session.
    placement: u64,
    /// The episodes that are recorded, and how much of each.
    pub(crate) record: RecordRule,
    /// Columns in which the owner notes something of each step.
    step_columns: StepColumns,
    /// Of every how many-th step a picture is recorded; 0 for none.
    frames_every: u64,
    /// The policy, the seed and the goal, if the session plays by itself.
    pub(crate) collect: Option<(Arc<dyn Model>, u64, Goal)>,
    /// How the lanes' worlds tick, if they are live.
    pub(crate) pace: Option<Pace>,
    /// Where such lanes stood elsewhere.
    resume: Option<Arc<Standing>>,
    /// Connecting of the lanes' workers.
    pub(crate) connecting: ConnectWatch,
    program: String,
    /// The owner to whose share of the node's spool its recording counts.
    pub(crate) owner: Claimant,
}

impl SessionPlan {
    /// Makes the plan of lanes that their owner steps: finds the env, and checks options and bounds.
    ///
    /// # Errors
    /// The part that is missing or out of bounds, by name.
    pub fn of(open: &OpenSession, registry: &Registry, program: &str) -> Result<Self, Refusal> {
        Self::with(registered(open, registry)?, open, None, program)
    }

    /// Makes the plan for lanes of an env that was found: checks options and bounds. Lanes that play by themselves do so by
    /// `model`.
    ///
    /// # Errors
    /// As [`SessionPlan::of`].
    pub(crate) fn with(
        entry: Arc<EnvEntry>,
        open: &OpenSession,
        model: Option<Arc<dyn Model>>,
        program: &str,
    ) -> Result<Self, Refusal> {
        let bad = |message: String| Refusal::new(RefusalCode::BadRequest, message);
        let settings = &open.settings;
        check_lanes(open)?;
        let given: Vec<_> =
            settings.options.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let options =
            Options::check(&entry.spec().options, &given).map_err(|error| bad(error.to_string()))?;
        let engine = engine_config(open, options);
        let pace = pace_of(settings, entry.spec())?;
        let layout = FrameLayout::of(entry.spec());
        let same_step = engine.autoreset == AutoresetMode::SameStep;
        if layout.rows(engine.lanes, same_step).is_none() {
            return Err(bad(format!("a batch of {} lanes of this env is larger than a frame", engine.lanes)));
        }
        let record = record_rule(settings)?;
        let collect =
            settings.collect.as_ref().zip(model).map(|(collect, model)| (model, collect.seed, collect.goal));
        let step_columns = match &collect {
            None if pace.is_some() => {
                let columns = settings.step_columns.and_of_pace();
                columns.map_err(|error| bad(format!("pace: {error}")))?
            }
            None => settings.step_columns.clone(),
            Some((model, seed, _)) => {
                model.make(entry.spec(), *seed).map_err(|error| bad_policy(model.name(), &error))?;
                model.columns(entry.spec())
            }
        };
        check_infos(&entry, settings)?;
        Ok(Self {
            entry,
            engine,
            pool: open.session.pool,
            incarnation: open.incarnation,
            pool_lanes: open.pool_lanes,
            placement: open.incarnation.term.rotate_left(32) ^ open.incarnation.counter,
            record,
            step_columns,
            frames_every: settings.infos.frames_every,
            collect,
            pace,
            resume: resume_of(open)?,
            connecting: ConnectWatch::default(),
            program: program.to_owned(),
            owner: claimant(&open.owner, open.operates),
        })
    }

    /// Returns the plan of lanes that are given up at these times.
    #[must_use]
    pub(crate) fn giving_up_after(mut self, deadlines: Deadlines) -> Self {
        self.engine.lane_deadlines = deadlines.of_lanes();
        self.engine.step_deadline = self.engine.step_deadline.max(deadlines.of_session(self.entry.is_late()));
        self
    }

    /// Returns the plan of lanes whose workers' connecting that watch shows.
    #[must_use]
    pub(crate) fn connecting_by(self, watch: ConnectWatch) -> Self {
        Self { connecting: watch, ..self }
    }

    /// Begins the recording of the session's lanes. May wait for the recorder's writer.
    ///
    /// # Errors
    /// The reason for which it cannot be recorded.
    pub(crate) fn record_on(&self, recorder: &Recorder) -> Result<RunRecorder, Refusal> {
        let first = self.engine.first_lane;
        let lanes = first..first + self.engine.lanes as u32;
        let (placement, step_columns) = (self.placement, self.step_columns.clone());
        let owner = Some(self.owner.clone());
        let beside = Beside { placement, frames_every: self.frames_every, step_columns, owner };
        let begun = recorder.begin_lanes_with(self.run_header(), lanes, beside);
        begun.map_err(|error| match error {
            BeginError::TooManyRuns => Refusal::busy(error.to_string(), RUNS_RETRY_MS),
            BeginError::Probability(_)
            | BeginError::Options { .. }
            | BeginError::RowTooLarge { .. }
            | BeginError::SamePath(_)
            | BeginError::StepColumns(_)
            | BeginError::Header(_) => Refusal::new(RefusalCode::BadRequest, error.to_string()),
            BeginError::WriterGone => Refusal::new(RefusalCode::Internal, error.to_string()),
        })
    }

    /// Returns whether episodes are recorded.
    pub(crate) fn is_recorded(&self) -> bool {
        self.record != RecordRule::None
    }

    /// Returns the header that a recorder needs of the pool, the same on every node.
    fn run_header(&self) -> RunHeader {
        let spec = self.entry.spec().clone();
        let external = PolicyInfo { name: "external".to_owned(), version: 0 };
        let policy = self.collect.as_ref().map_or(external, |(model, ..)| PolicyInfo {
            name: model.name().to_owned(),
            version: model.version(),
        });
        RunHeader {
            run: self.pool,
            options: self.engine.options.clone(),
            lanes: self.pool_lanes,
            schedule: self.engine.schedule,
            autoreset: self.engine.autoreset.name().to_owned(),
            max_episode_steps: match self.engine.max_episode_steps {
                None => spec.max_episode_steps,
                Some(limit) => (limit > 0).then_some(limit),
            },
            policy,
            record: self.record,
            program: self.program.clone(),
            started_ms: run_began_ms(self.pool),
            parent: None,
            arguments: self.entry.arguments().to_owned(),
            spec,
        }
    }

    /// Returns the rollout of a session that plays by itself.
    pub(crate) fn rollout(&self, deadlines: Deadlines) -> Option<Rollout> {
        let (policy, seed, goal) = self.collect.clone()?;
        Some(Rollout {
            env: Arc::clone(&self.entry),
            engine: self.engine.clone(),
            run_lanes: self.pool_lanes as usize,
            seed,
            policy,
            goal,
            hang_deadline: deadlines.of_session(self.entry.is_late()),
            connecting: self.connecting.clone(),
            resume: self.resume.clone(),
        })
    }
}

/// Returns the env of a session, of those that a node knows beforehand.
pub(crate) fn registered(open: &OpenSession, registry: &Registry) -> Result<Arc<EnvEntry>, Refusal> {
    let entry = registry.get(&open.settings.env);
    entry.map_err(|error| Refusal::new(RefusalCode::NotFound, error.to_string()))
}

fn check_lanes(open: &OpenSession) -> Result<(), Refusal> {
    let OpenSession { first_lane, lanes, pool_lanes, .. } = *open;
    if lanes == 0 || lanes > MAX_SESSION_LANES {
        let message = format!("lanes = {lanes}; a session has 1 to {MAX_SESSION_LANES}");
        return Err(Refusal::new(RefusalCode::BadRequest, message));
    }
    if first_lane.checked_add(lanes).is_none_or(|end| end > pool_lanes) {
        let message = format!("lanes {first_lane} and {lanes} from there on of a pool of {pool_lanes}");
        return Err(Refusal::new(RefusalCode::BadRequest, message));
    }
    Ok(())
}

fn engine_config(open: &OpenSession, options: Options) -> EngineConfig {
    let settings = &open.settings;
    EngineConfig {
        first_lane: open.first_lane,
        autoreset: settings.autoreset,
        max_episode_steps: settings.max_episode_steps,
        schedule: settings.seeds,
        options: vec![options],
        ..EngineConfig::new(open.lanes as usize)
    }
}

/// Refuses infos and pictures of envs that give none.
fn check_infos(entry: &EnvEntry, settings: &LaneSettings) -> Result<(), Refusal> {
    let bad = |message: String| Err(Refusal::new(RefusalCode::BadRequest, message));
    let env = settings.env.escape_debug();
    if !entry.spec().source.is_learned() && !settings.infos.record.is_empty() {
        return bad(format!("infos.record: `{env}` is no Python env; what it says of a step is recorded"));
    }
    if settings.infos.frames_every > 0 && entry.render_size().is_none() {
        return bad(format!(
            "infos.frames_every: `{env}` draws no pictures of itself; a Python env needs render_mode=\"rgb_array\" in env_kwargs"
        ));
    }
    Ok(())
}

/// Returns the pace of the lanes, checked.
fn pace_of(settings: &LaneSettings, spec: &EnvSpec) -> Result<Option<Pace>, Refusal> {
    let bad = |message: String| Refusal::new(RefusalCode::BadRequest, message);
    let Some(pace) = settings.pace else { return Ok(None) };
    if settings.collect.is_some() {
        return Err(bad("pace: the lanes play by themselves, and wait for nobody".to_owned()));
    }
    let pace = pace.check().map_err(|error| bad(format!("pace: {error}")))?;
    let ours = |channel: &&ColumnSpec| [TICKS, DROPPED, LATE].contains(&&*channel.path);
    match spec.info_channels.iter().find(ours) {
        Some(taken) => Err(bad(format!(
            "pace: the env has an info `{}`, by which live lanes say what went by",
            taken.path
        ))),
        None => Ok(Some(pace)),
    }
}

fn record_rule(settings: &LaneSettings) -> Result<RecordRule, Refusal> {
    match settings.record {
        RecordRule::Sample { probability } if !(0.0..=1.0).contains(&probability) => {
            let message = format!("record.probability = {probability}; it is from 0 to 1");
            Err(Refusal::new(RefusalCode::BadRequest, message))
        }
        rule => Ok(rule),
    }
}

/// Returns the refusal of a policy that cannot play here.
pub(crate) fn bad_policy(name: &str, error: &dyn std::error::Error) -> Refusal {
    let message = format!("policy `{}` cannot play here: {}", name.escape_debug(), with_causes(error));
    Refusal::new(RefusalCode::BadRequest, message)
}

/// Returns where the lanes go on, checked.
fn resume_of(open: &OpenSession) -> Result<Option<Arc<Standing>>, Refusal> {
    let Some(standing) = &open.resume else { return Ok(None) };
    let of_episodes = matches!(open.settings.seeds, SeedSchedule::PerEpisode { .. });
    if open.settings.collect.is_none() || !of_episodes || standing.lanes.len() != open.lanes as usize {
        let message = format!("resume: {} lanes of a session of {}", standing.lanes.len(), open.lanes);
        return Err(Refusal::new(RefusalCode::BadRequest, message));
    }
    Ok(Some(Arc::new((**standing).clone())))
}

/// Returns when a run's id was drawn, in milliseconds since 1970: the upper 48 bits of a UUIDv7.
const fn run_began_ms(run: RunId) -> u64 {
    (run.as_u128() >> 80) as u64
}

/// Pause after which a coordinator may try again: runs end with their sessions, which takes seconds at least.
const RUNS_RETRY_MS: u64 = 1_000;

/// Most lanes of one session: the notes of an answer in which all of them are lost still fit its sidecar.
pub const MAX_SESSION_LANES: u32 = 32_768;

const _: () =
    assert!(MAX_SESSION_LANES as usize * LOST_LANE_BYTES <= rollhouse_wire::limits::MAX_SIDECAR_BYTES);

/// Bytes of a lost lane in a sidecar: a map of two names with a number each.
const LOST_LANE_BYTES: usize = 24;
