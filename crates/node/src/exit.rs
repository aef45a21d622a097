//! How a session ended.

use std::fmt;
use std::time::Duration;

use rollhouse_engine::{ConfigError, StepError};
use rollhouse_policy::{ActError, SpaceError};

use crate::Report;

/// How a session ended: a value with its cause.
#[derive(Debug)]
pub enum Exit {
    /// It did what it was asked to.
    Finished(Box<Report>),
    /// It was asked to end; what it had done by then.
    Cancelled(Box<Report>),
    /// It could not go on.
    Failed(RolloutError),
    /// Its thread panicked outside an env, which the engine contains; the panic's message.
    Panicked(String),
    /// It made no progress for this long. Its thread and its engine are abandoned.
    Hung(Duration),
    /// Its actor failed too often to be made anew, so nobody watched it any more and it was asked to end.
    Unwatched,
}

/// Why a rollout could not go on.
#[derive(Debug)]
pub enum RolloutError {
    /// The lanes could not be made.
    Engine(ConfigError),
    /// The policy cannot play in this action space.
    Space(SpaceError),
    /// The policy could not act.
    Act(ActError),
    /// A step was refused.
    Step(StepError),
    /// Lanes failed too often to be restarted, and no other lane had anything left to do.
    LanesFailed {
        /// How many.
        lanes: usize,
        /// What was done by then.
        report: Box<Report>,
    },
    /// The stepping thread could not be started.
    Thread(std::io::Error),
}

impl fmt::Display for RolloutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(error) => error.fmt(f),
            Self::Space(error) => write!(f, "the policy cannot play here: {error}"),
            Self::Act(error) => write!(f, "the policy could not act: {error}"),
            Self::Step(error) => error.fmt(f),
            Self::LanesFailed { lanes, .. } => {
                write!(
                    f,
                    "{lanes} lanes failed too often to be restarted and have not played what they should"
                )
            }
            Self::Thread(_) => f.write_str("the session's thread could not be started"),
        }
    }
}

impl std::error::Error for RolloutError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Engine(error) => error.source(),
            Self::Thread(error) => Some(error),
            Self::Space(_) | Self::Act(_) | Self::Step(_) | Self::LanesFailed { .. } => None,
        }
    }
}
