//! What can go wrong, by operation.

use std::fmt;

use rollhouse_arena::ArenaError;
use rollhouse_core::limits::{MAX_LANES, MAX_THREADS};
use rollhouse_env::{MakeError, RenderError, StateError};

use crate::options::OptionsError;

/// Why an engine could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not 1 to [`MAX_LANES`] lanes.
    #[error("{0} lanes asked for; a session has 1 to {MAX_LANES}")]
    Lanes(usize),
    /// The run would have more lanes than can be numbered.
    #[error("{lanes} lanes from lane {first_lane} on are more than can be numbered")]
    FirstLane {
        /// Lane of the run that row 0 was to be.
        first_lane: u32,
        /// Rows of the batch.
        lanes: usize,
    },
    /// Not 1 to [`MAX_THREADS`] threads.
    #[error("{0} threads asked for; an engine has 1 to {MAX_THREADS}")]
    Threads(usize),
    /// Neither one set of options nor one per lane.
    #[error("{given} sets of options given; one for all or one for each of {lanes} lanes is wanted")]
    Options {
        /// Sets given.
        given: usize,
        /// Lanes of the engine.
        lanes: usize,
    },
    /// The env refused its options.
    #[error("the environment could not be made")]
    Make(#[source] MakeError),
    /// The env panicked while it was made.
    #[error("the environment panicked while it was made: {0}")]
    MakePanicked(String),
    /// The batch cannot be laid out.
    #[error("the batch cannot be laid out")]
    Arena(#[source] ArenaError),
    /// A thread could not be started.
    #[error("a stepping thread could not be started")]
    Thread(#[source] std::io::Error),
}

/// Why a step, a reset, a send or a receive was refused. Nothing has moved, unless it says so.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum StepError {
    /// The caller's fault: an action outside the space.
    Action(BadAction),
    /// The caller's fault: the episode of this lane is over and DISABLED leaves the reset to the caller.
    NeedsReset {
        /// The lane.
        lane: usize,
    },
    /// The caller's fault: no reset yet.
    NotReset,
    /// The caller's fault: recording was to begin after the first reset.
    Begun,
    /// The caller's fault: a seed was given although the engine's schedule seeds every episode.
    SeedsScheduled,
    /// The caller's fault: a list has another length than the batch.
    Length {
        /// What the list holds.
        what: &'static str,
        /// Its length.
        given: usize,
        /// The length it should have.
        wanted: usize,
    },
    /// The caller's fault: a lane the batch does not have.
    NoSuchLane {
        /// As given.
        lane: usize,
        /// Lanes of the batch.
        lanes: usize,
    },
    /// The caller's fault: the lane was sent and its result has not been received, or it was named twice.
    LaneOutstanding {
        /// The lane.
        lane: usize,
    },
    /// The caller's fault: nothing (or less than asked for) has been sent that could be received.
    NothingOutstanding {
        /// Lanes asked for.
        wanted: usize,
        /// Lanes that are on their way or ready.
        outstanding: usize,
    },
    /// The lane has failed too often or waits for its restart; others go on.
    LaneLost {
        /// The lane.
        lane: usize,
    },
    /// Options were not changed.
    Options(OptionsError),
    /// A lane's state cannot be read or put back.
    State {
        /// The lane.
        lane: usize,
        /// Why.
        source: StateError,
    },
    /// There is no image of a lane.
    Render {
        /// The lane.
        lane: usize,
        /// Why.
        source: RenderError,
    },
    /// The work queue is full: receive, then send again.
    Busy {
        /// When a place is likely to be free.
        retry_after_ms: u64,
    },
    /// Not enough lanes were ready in time; they stay outstanding.
    TimedOut,
    /// A stepping thread did not answer within the deadline. The engine cannot be used any more.
    Hung,
}

/// An action that the space does not contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadAction {
    /// Row of the batch.
    pub lane: usize,
    /// What was given.
    pub value: String,
    /// What the space takes.
    pub wanted: String,
}

impl fmt::Display for BadAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "action {} of lane {} is not {}", self.value, self.lane, self.wanted)
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Action(bad) => bad.fmt(f),
            Self::NeedsReset { lane } => {
                write!(
                    f,
                    "the episode of lane {lane} is over; with autoreset disabled, reset it before stepping"
                )
            }
            Self::NotReset => f.write_str("step before the first reset"),
            Self::Begun => f.write_str("recording has to begin before the first reset"),
            Self::SeedsScheduled => f.write_str("a seed was given, but the schedule seeds every episode"),
            Self::Length { what, given, wanted } => write!(f, "{given} {what} given, {wanted} wanted"),
            Self::NoSuchLane { lane, lanes } => write!(f, "lane {lane} of a batch of {lanes}"),
            Self::LaneOutstanding { lane } => {
                write!(f, "lane {lane} was sent already and its result has not been received")
            }
            Self::NothingOutstanding { wanted, outstanding } => {
                write!(f, "{wanted} lanes asked for while {outstanding} are outstanding")
            }
            Self::LaneLost { lane } => write!(f, "lane {lane} has failed and waits for its restart"),
            Self::Options(error) => error.fmt(f),
            Self::State { lane, source } => write!(f, "state of lane {lane}: {source}"),
            Self::Render { lane, source } => write!(f, "image of lane {lane}: {source}"),
            Self::Busy { retry_after_ms } => {
                write!(f, "the work queue is full; receive, or try again in {retry_after_ms} ms")
            }
            Self::TimedOut => f.write_str("not enough lanes were ready in time"),
            Self::Hung => {
                f.write_str("a stepping thread did not answer within its deadline; the engine is lost")
            }
        }
    }
}

impl std::error::Error for StepError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Options(error) => error.source(),
            // Their own words are in this error's text.
            _ => None,
        }
    }
}
