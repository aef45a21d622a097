//! What can be asked of lanes between two steps, by name.
//!
//! A method is one struct with a [`Method`] impl and its name in [`dispatch`]. How params and answers travel is the
//! affair of those who carry them: this crate hands types to a [`Dispatch`].

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::Engine;
use crate::error::StepError;
use crate::methods::{GetAttributes, ResetLanes, Schema, SetAttributes, SetOptions, Statistics};
use crate::render::Render;

/// Something that can be asked of lanes between two steps.
pub trait Method: 'static {
    /// Its name in envelopes.
    const NAME: &'static str;

    /// Whether doing it twice is as good as doing it once, so that it may be asked again when its answer got lost.
    const REPEATABLE: bool;

    /// What it does to the lanes.
    const EFFECT: Effect;

    /// What it is given.
    type Params: Serialize + DeserializeOwned + Send;

    /// What it gives.
    type Answer: Serialize + DeserializeOwned + Send;

    /// Does it. Takes as long as the lanes' envs do.
    ///
    /// # Errors
    /// See [`CommandError`].
    fn run(lanes: &mut CommandLanes<'_>, params: Self::Params) -> Result<Self::Answer, CommandError>;
}

/// What a command does to lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// They are as before.
    None,
    /// Episodes begin, which the next frame shows.
    Begins,
    /// They are not any more what their starts and actions say, so that a log of those ends
    /// ([`Engine::keep_log`]). Refused of recorded lanes.
    Changes,
}

/// The lanes that commands are about.
pub struct CommandLanes<'a> {
    pub(crate) engine: &'a mut Engine,
    record: Option<&'a mut BeginRecording<'a>>,
}

/// Begins the recording of an engine's lanes.
pub type BeginRecording<'a> = dyn FnMut(&mut Engine) -> Result<(), CommandError> + 'a;

impl<'a> CommandLanes<'a> {
    /// Those of an engine.
    pub fn of(engine: &'a mut Engine) -> Self {
        Self { engine, record: None }
    }

    /// Those of an engine that is not recording yet and will be: `record` is called before the first episode begins.
    pub fn recorded_by(engine: &'a mut Engine, record: &'a mut BeginRecording<'a>) -> Self {
        Self { engine, record: Some(record) }
    }

    /// Whether their episodes are recorded, or will be: their options and states stay as they are.
    pub(crate) fn are_recorded(&self) -> bool {
        self.record.is_some() || self.engine.is_recording()
    }

    /// Begins what is to be recorded.
    pub(crate) fn begin_recording(&mut self) -> Result<(), CommandError> {
        self.record.take().map_or(Ok(()), |record| record(self.engine))
    }
}

/// Does something with the type of a method.
pub trait Dispatch {
    /// What comes of it.
    type Output;

    /// Does it with `M`.
    fn with<M: Method>(self) -> Self::Output;
}

macro_rules! methods {
    ($($method:ty),* $(,)?) => {
        /// Names of all methods.
        pub const METHODS: &[&str] = &[$(<$method as Method>::NAME),*];

        /// Has `dispatch` do what it does with the method of that name; `None` if there is none.
        pub fn dispatch<D: Dispatch>(name: &str, dispatch: D) -> Option<D::Output> {
            $(if name == <$method as Method>::NAME {
                return Some(dispatch.with::<$method>());
            })*
            None
        }
    };
}

methods![GetAttributes, Render, ResetLanes, Schema, SetAttributes, SetOptions, Statistics];

/// Why a command was not done. Nothing has changed, unless it says so.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The engine refused.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The lanes have no attribute of that name.
    #[error("the lanes have no attribute `{name}`; they have {known}", known = .known.join(", "))]
    UnknownAttribute {
        /// As given.
        name: String,
        /// What they have.
        known: Vec<String>,
    },
    /// The attribute can be read only.
    #[error("attribute `{name}` can be read only")]
    ReadOnly {
        /// Its name.
        name: String,
    },
    /// A value is not of the attribute's kind.
    #[error("attribute `{name}` takes {wanted}")]
    Value {
        /// The attribute.
        name: String,
        /// What it takes.
        wanted: &'static str,
    },
    /// Neither one value nor one for each lane.
    #[error("{given} values of `{name}` given, 1 or one for each of {lanes} lanes is wanted")]
    Length {
        /// The attribute.
        name: String,
        /// Values given.
        given: usize,
        /// Lanes they are for.
        lanes: usize,
    },
    /// The recording could not be begun.
    #[error("{message}")]
    Recording {
        /// Why.
        message: String,
        /// When to try again, if that makes sense.
        retry_after_ms: Option<u64>,
    },
}

/// Whose fault a [`CommandError`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandFault {
    /// The caller's.
    Caller,
    /// The lanes cannot do it.
    Unsupported,
    /// Too much is under way; asking again may help.
    Busy,
    /// The lanes', or the process's.
    Lanes,
}

impl CommandError {
    /// Whose fault it is.
    pub const fn fault(&self) -> CommandFault {
        use rollhouse_env::{RenderError, StateError};
        match self {
            Self::Step(StepError::Hung | StepError::TimedOut | StepError::Begun) => CommandFault::Lanes,
            Self::Step(StepError::Busy { .. }) => CommandFault::Busy,
            Self::Step(
                StepError::Render { source: RenderError::Unsupported, .. }
                | StepError::State { source: StateError::Unsupported, .. }
                | StepError::Options(crate::OptionsError::Recorded | crate::OptionsError::State { .. }),
            )
            | Self::ReadOnly { .. } => CommandFault::Unsupported,
            Self::Recording { retry_after_ms, .. } => {
                if retry_after_ms.is_some() {
                    CommandFault::Busy
                } else {
                    CommandFault::Lanes
                }
            }
            Self::Step(_) | Self::UnknownAttribute { .. } | Self::Value { .. } | Self::Length { .. } => {
                CommandFault::Caller
            }
        }
    }

    /// When to ask again, if that makes sense.
    pub const fn retry_after_ms(&self) -> Option<u64> {
        match self {
            Self::Step(StepError::Busy { retry_after_ms }) => Some(*retry_after_ms),
            Self::Recording { retry_after_ms, .. } => *retry_after_ms,
            _ => None,
        }
    }
}
