//! The lanes behind a gate, wherever they are stepped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rollhouse_client::{MethodError, OpenError};
use rollhouse_core::{AutoresetMode, ColumnRef, EnvSpec, Interruption, OptionError, OptionValue, Options};
use rollhouse_engine::{CallRefused, ConfigError, Engine, EngineConfig, Frame, Reset, StepError};
use rollhouse_env::EnvEntry;
use rollhouse_replay::{BeginError, RunRecorder};

/// Reason for which a lane cannot be had or has failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaneError {
    /// Options are not the env's.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// It could not be made.
    #[error("the lane could not be made")]
    Make(#[from] ConfigError),
    /// It cannot be recorded.
    #[error("the lane cannot be recorded")]
    Record(#[from] BeginError),
    /// It could not be stepped.
    #[error(transparent)]
    Step(#[from] StepError),
    /// A method was refused.
    #[error(transparent)]
    Call(#[from] CallRefused),
    /// A cluster has no place for it.
    #[error("no pool was opened for the lane")]
    Open(#[from] Box<OpenError>),
    /// A cluster could not step it.
    #[error(transparent)]
    Stepped(#[from] Box<rollhouse_client::StepError>),
    /// A method was not called on a cluster.
    #[error(transparent)]
    Called(#[from] Box<MethodError>),
    /// The env failed in the lane.
    #[error("the environment has failed")]
    Lost,
}

/// What a lane shows.
#[derive(Debug, Clone, Copy)]
pub struct LaneRow<'a> {
    /// Columns of the observation.
    pub obs: &'a [ColumnRef<'a>],
    /// Info channels.
    pub infos: &'a [ColumnRef<'a>],
    /// Reward of the step.
    pub reward: f64,
    /// Whether the episode terminated.
    pub terminated: bool,
    /// Whether it was truncated.
    pub truncated: bool,
}

impl LaneError {
    /// Returns whether the lane is of no use any more; else the caller broke a rule, and nothing has moved.
    pub(crate) fn is_end(&self) -> bool {
        use rollhouse_client::StepError as Stepped;
        match self {
            Self::Lost => true,
            Self::Step(error) => {
                matches!(error, StepError::LaneLost { .. } | StepError::TimedOut | StepError::Hung)
            }
            Self::Stepped(error) => !matches!(**error, Stepped::Rules(_) | Stepped::Refused { .. }),
            _ => false,
        }
    }

    /// Returns the error with its causes, in one line.
    pub(crate) fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }
}

/// Calls what may panic, as a world of somebody else's may.
pub(crate) fn contained<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

impl LaneRow<'_> {
    /// Has `look` see the only row of a frame with so many info channels.
    pub(crate) fn look(frame: &Frame<'_>, channels: usize, look: &mut dyn FnMut(&LaneRow<'_>)) {
        let obs = frame.obs_columns();
        let infos: Vec<_> = (0..channels).map(|channel| frame.info(channel)).collect();
        let (terminated, truncated) = (frame.terminated()[0] == 1, frame.truncated()[0] == 1);
        look(&LaneRow { obs: &obs, infos: &infos, reward: frame.rewards()[0], terminated, truncated });
    }
}

/// One lane. Its calls block for as long as its world takes.
pub trait Lane: Send {
    /// Begins an episode; one that is open is ended as cancelled. Without a seed it begins anyhow. The lane has the options
    /// from here on.
    ///
    /// # Errors
    /// If an option is none of the env's, or the env refuses or fails.
    fn begin(&mut self, seed: Option<u64>, options: &[(String, OptionValue)]) -> Result<(), LaneError>;

    /// Takes a step with one row of the action column.
    ///
    /// # Errors
    /// If the action is none of the env, or the env fails: the lane is of no use then.
    fn step(&mut self, action: ColumnRef<'_>) -> Result<(), LaneError>;

    /// Calls a method of the env.
    ///
    /// # Errors
    /// If the env has none such, or refuses.
    fn call(&mut self, method: &str, payload: &str) -> Result<String, LaneError>;

    /// Has `look` see what the lane shows.
    ///
    /// # Errors
    /// If it shows nothing, as it has not begun.
    fn look(&mut self, look: &mut dyn FnMut(&LaneRow<'_>)) -> Result<(), LaneError>;

    /// Ends it; an open episode counts as cancelled.
    fn close(self: Box<Self>);
}

/// Returns the reset of a lane that begins an episode.
pub(crate) fn reset(seed: Option<u64>, options: &[(String, OptionValue)]) -> Reset {
    let options = options.iter().map(|(name, value)| (name.clone(), vec![value.clone()])).collect();
    Reset { seeds: seed.map(Some).into_iter().collect(), options, ..Reset::all() }
}

/// Where lanes come from.
pub trait Lanes: Send + Sync {
    /// Returns what the env of all lanes is.
    fn spec(&self) -> &EnvSpec;

    /// Makes a lane with those options and the usual ones beside. Blocks.
    ///
    /// # Errors
    /// If an option is none of the env's, or the lane cannot be made or recorded.
    fn make(&self, options: &[(String, OptionValue)]) -> Result<Box<dyn Lane>, LaneError>;
}

/// Begins the recording of a lane that an engine of that configuration steps.
pub type BeginRecording = dyn Fn(&EnvEntry, &EngineConfig) -> Result<RunRecorder, BeginError> + Send + Sync;

/// Lanes that this process steps: each has an engine of its own.
pub struct EmbeddedLanes {
    entry: Arc<EnvEntry>,
    options: Vec<(String, OptionValue)>,
    record: Option<Box<BeginRecording>>,
}

impl EmbeddedLanes {
    /// Takes the env, the options that its lanes have unless others are given, and how they are recorded, if they are.
    ///
    /// # Errors
    /// If the env has no such options.
    pub fn new(
        entry: Arc<EnvEntry>,
        options: Vec<(String, OptionValue)>,
        record: Option<Box<BeginRecording>>,
    ) -> Result<Self, OptionError> {
        Options::check(&entry.spec().options, &options)?;
        Ok(Self { entry, options, record })
    }
}

impl Lanes for EmbeddedLanes {
    fn spec(&self) -> &EnvSpec {
        self.entry.spec()
    }

    fn make(&self, options: &[(String, OptionValue)]) -> Result<Box<dyn Lane>, LaneError> {
        let is_given = |name: &str| options.iter().any(|(given, _)| given == name);
        let usual = self.options.iter().filter(|(name, _)| !is_given(name));
        let all: Vec<_> = usual.chain(options).cloned().collect();
        let options = Options::check(&self.spec().options, &all)?;
        let autoreset = AutoresetMode::Disabled;
        let config = EngineConfig { autoreset, options: vec![options], ..EngineConfig::new(1) };
        let recording = self.record.as_ref().map(|record| record(&self.entry, &config)).transpose()?;
        let engine = Engine::new(&self.entry, config, recording.as_ref())?;
        Ok(Box::new(EmbeddedLane { engine, _recording: recording }))
    }
}

struct EmbeddedLane {
    engine: Engine,
    _recording: Option<RunRecorder>,
}

impl Lane for EmbeddedLane {
    fn begin(&mut self, seed: Option<u64>, options: &[(String, OptionValue)]) -> Result<(), LaneError> {
        self.engine.reset(&reset(seed, options))?;
        if self.engine.is_lost(0) { Err(LaneError::Lost) } else { Ok(()) }
    }

    fn step(&mut self, action: ColumnRef<'_>) -> Result<(), LaneError> {
        if !self.engine.actions()?.copy_from(action) {
            let wanted = self.engine.entry().spec().action_space.elements();
            let (what, given) = ("action elements", action.len());
            return Err(StepError::Length { what, given, wanted }.into());
        }
        self.engine.step()?;
        if self.engine.is_lost(0) { Err(LaneError::Lost) } else { Ok(()) }
    }

    fn call(&mut self, method: &str, payload: &str) -> Result<String, LaneError> {
        Ok(self.engine.call(0, method, payload)?)
    }

    fn look(&mut self, look: &mut dyn FnMut(&LaneRow<'_>)) -> Result<(), LaneError> {
        let channels = self.engine.entry().spec().info_channels.len();
        LaneRow::look(&self.engine.frame()?, channels, look);
        Ok(())
    }

    fn close(mut self: Box<Self>) {
        // An engine that hung has nothing more to say.
        let _ended = self.engine.interrupt(Interruption::Cancelled).and_then(|()| self.engine.flush());
    }
}
