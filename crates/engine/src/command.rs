//! Commands, which are methods that are called by name on lanes between two steps.
//!
//! A method is one struct with a [`Method`] impl and its name in [`dispatch`](crate::dispatch). Params and answers are
//! encoded by the code that carries them: this crate hands types to a [`Dispatch`](crate::Dispatch).

use std::time::Duration;

use rollhouse_core::msgpack::Message;
use serde::{Deserialize, Serialize};

use crate::calls::{CallFault, CallRefused};
use crate::engine::Engine;
use crate::error::StepError;
use crate::paced::PacedLanes;

/// Method that can be called on lanes between two steps.
pub trait Method: 'static {
    /// Name of the method in messages.
    const NAME: &'static str;

    /// True if calling it twice has the same result as calling it once, so that it may be called again when its answer
    /// got lost.
    const REPEATABLE: bool;

    /// Effect of the method on the lanes.
    const EFFECT: Effect;

    /// Parameters of the method.
    type Params: Message + Send;

    /// Answer of the method.
    type Answer: Message + Send;

    /// Carries the method out. Takes as long as the lanes' envs do.
    ///
    /// # Errors
    /// See [`CommandError`].
    fn run(lanes: &mut CommandLanes<'_>, params: Self::Params) -> Result<Self::Answer, CommandError>;
}

/// Effect of a command on lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The lanes are as before.
    None,
    /// Episodes begin, which the next frame shows. With options a log ends, as by [`Effect::Changes`].
    Begins,
    /// A lane may be changed by a call, which is part of its past: whoever keeps a log of it adds the call
    /// ([`PastEvent::Called`](rollhouse_core::PastEvent::Called)), and recordings have it.
    Calls,
    /// The lanes no longer follow from their starts and actions alone, so that a log of those ends
    /// ([`Engine::keep_log`]). Recorded lanes refuse such a command.
    Changes,
}

/// Lanes on which commands are carried out.
pub struct CommandLanes<'a> {
    pub(crate) engine: &'a mut Engine,
    record: Option<&'a mut BeginRecording<'a>>,
    /// The lanes' clocks, and the time by them, if the lanes are live.
    paced: Option<(&'a mut PacedLanes, Duration)>,
}

/// Function that begins the recording of an engine's lanes.
pub type BeginRecording<'a> = dyn FnMut(&mut Engine) -> Result<(), CommandError> + 'a;

impl<'a> CommandLanes<'a> {
    /// Returns the lanes of an engine.
    pub fn of(engine: &'a mut Engine) -> Self {
        Self { engine, record: None, paced: None }
    }

    /// Returns the lanes of an engine that is not recording yet and will be: `record` is called before the first
    /// episode begins.
    pub fn recorded_by(engine: &'a mut Engine, record: &'a mut BeginRecording<'a>) -> Self {
        Self { engine, record: Some(record), paced: None }
    }

    /// Returns the lanes as live ones: with their clocks, and the time by them.
    #[must_use]
    pub fn paced_by(self, paced: Option<(&'a mut PacedLanes, Duration)>) -> Self {
        Self { paced, ..self }
    }

    /// Returns the lanes' clocks, and the time by them, if the lanes are live.
    pub(crate) fn paced(&mut self) -> Option<(&mut PacedLanes, Duration)> {
        self.paced.as_mut().map(|(paced, now)| (&mut **paced, *now))
    }

    /// Returns whether the lanes' episodes are recorded, or will be. The options and states of recorded lanes stay as
    /// they are.
    pub(crate) fn are_recorded(&self) -> bool {
        self.record.is_some() || self.engine.is_recording()
    }

    /// Begins the recording, if there is one to begin.
    pub(crate) fn begin_recording(&mut self) -> Result<(), CommandError> {
        self.record.take().map_or(Ok(()), |record| record(self.engine))
    }
}

/// Params of a method without params, or an answer without content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Nothing {}

/// Reason for which a command was not carried out. Nothing has changed, unless it says so.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The engine refused.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The lanes have no attribute of that name.
    #[error("the lanes have no attribute `{name}`; they have {known}", known = .known.join(", "))]
    UnknownAttribute {
        /// Name that was given.
        name: String,
        /// Names of the attributes that the lanes have.
        known: Vec<String>,
    },
    /// The attribute can only be read.
    #[error("attribute `{name}` is read-only")]
    ReadOnly {
        /// Name of the attribute.
        name: String,
    },
    /// The value is not of the attribute's kind.
    #[error("attribute `{name}` takes {wanted}")]
    Value {
        /// Name of the attribute.
        name: String,
        /// Kind of value that the attribute takes.
        wanted: &'static str,
    },
    /// The number of values is neither one nor that of the lanes.
    #[error("{given} values of `{name}` given, 1 or one for each of {lanes} lanes is wanted")]
    Length {
        /// Name of the attribute.
        name: String,
        /// Number of values that were given.
        given: usize,
        /// Number of lanes for which they were given.
        lanes: usize,
    },
    /// A call of a method of the env came to nothing.
    #[error(transparent)]
    Call(#[from] CallRefused),
    /// The recording could not be begun.
    #[error("{message}")]
    Recording {
        /// Reason, as the recorder gave it.
        message: String,
        /// Time after which to try again, if that makes sense.
        retry_after_ms: Option<u64>,
    },
}

/// Party at fault for a [`CommandError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandFault {
    /// The caller is at fault, or names a lane that is lost where nothing has changed by it.
    Caller,
    /// The lanes do not support the command.
    Unsupported,
    /// Too much is under way; asking again may help.
    Busy,
    /// The lanes are at fault, or the process in which they run.
    Lanes,
}

impl CommandError {
    /// Returns the party at fault.
    pub const fn fault(&self) -> CommandFault {
        use rollhouse_env::{CallError, RenderError, StateError};
        match self {
            Self::Step(StepError::Hung | StepError::TimedOut | StepError::Begun) => CommandFault::Lanes,
            Self::Step(StepError::Busy { .. }) => CommandFault::Busy,
            Self::Step(
                StepError::Render { source: RenderError::Unsupported, .. }
                | StepError::State { source: StateError::Unsupported, .. }
                | StepError::Options(crate::OptionsError::Recorded | crate::OptionsError::State { .. }),
            )
            | Self::ReadOnly { .. } => CommandFault::Unsupported,
            Self::Call(CallRefused::Lane { source: CallFault::Lost | CallFault::Answer { .. }, .. }) => {
                CommandFault::Lanes
            }
            Self::Call(CallRefused::Lane { source: CallFault::Env(CallError::Unsupported), .. }) => {
                CommandFault::Unsupported
            }
            Self::Recording { retry_after_ms, .. } => {
                if retry_after_ms.is_some() {
                    CommandFault::Busy
                } else {
                    CommandFault::Lanes
                }
            }
            Self::Step(_)
            | Self::Call(_)
            | Self::UnknownAttribute { .. }
            | Self::Value { .. }
            | Self::Length { .. } => CommandFault::Caller,
        }
    }

    /// Returns the time after which to ask again, if that makes sense.
    pub const fn retry_after_ms(&self) -> Option<u64> {
        match self {
            Self::Step(StepError::Busy { retry_after_ms }) => Some(*retry_after_ms),
            Self::Recording { retry_after_ms, .. } => *retry_after_ms,
            Self::Call(CallRefused::TooOften { retry_after_ms, .. }) => Some(*retry_after_ms),
            _ => None,
        }
    }
}
