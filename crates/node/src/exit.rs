//! The ends of sessions, as values with their causes.

use std::time::Duration;

use rollhouse_engine::{ConfigError, StepError};
use rollhouse_policy::{ActError, ModelError};
use rollhouse_wire::EndCause;

use crate::Report;

/// The end of a session, with its cause.
#[derive(Debug)]
pub enum Exit {
    /// It did what it was asked to do.
    Finished(Box<Report>),
    /// It was asked to end; with what it had done by then.
    Cancelled(Box<Report>),
    /// It could not go on, for this reason.
    Failed(RolloutError),
    /// Its thread panicked outside an env (the engine contains panics inside); with the panic's message.
    Panicked(String),
    /// It made no progress for this long. Its thread and its engine are abandoned.
    Hung(Duration),
    /// Its actor failed too often to be made anew, so nobody watched it any more and it was asked to end.
    Unwatched,
}

/// Why a session of the cluster can be stepped no more.
#[derive(Debug, Clone)]
pub struct Gone {
    /// The cause, as the coordinator and the owner are told it.
    pub cause: EndCause,
    /// What happened, in words; empty where the cause says all.
    pub detail: String,
}

/// Why a rollout could not go on.
#[derive(Debug, thiserror::Error)]
pub enum RolloutError {
    /// The lanes could not be made.
    #[error(transparent)]
    Engine(ConfigError),
    /// The policy cannot play in this action space.
    #[error("the policy cannot play here: {0}")]
    Policy(ModelError),
    /// The policy could not act.
    #[error("the policy could not act: {0}")]
    Act(ActError),
    /// A step was refused.
    #[error("{0}")]
    Step(StepError),
    /// Lanes failed too often to be restarted, and no other lane had anything left to do.
    #[error("{lanes} lanes failed too often to be restarted and have not played what they should")]
    LanesFailed {
        /// Number of lanes that failed for good.
        lanes: usize,
        /// The results up to then.
        report: Box<Report>,
    },
    /// The stepping thread could not be started.
    #[error("the session's thread could not be started")]
    Thread(#[source] std::io::Error),
}
