//! The errors of the engine, one type for each operation.

use std::fmt;

use rollhouse_arena::ArenaError;
use rollhouse_core::limits::{MAX_LANES, MAX_THREADS};
use rollhouse_core::{DType, NotNow};
use rollhouse_env::{BadAction, MakeError, RenderError, StateError};

use crate::options::OptionsError;

/// Reason for which an engine could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The number of lanes is not 1 to [`MAX_LANES`].
    #[error("{0} lanes asked for; a session has 1 to {MAX_LANES}")]
    Lanes(usize),
    /// The run would have more lanes than can be numbered.
    #[error("{lanes} lanes from lane {first_lane} on are more than can be numbered")]
    FirstLane {
        /// Lane of the run that was to be in row 0.
        first_lane: u32,
        /// Number of rows in the batch.
        lanes: usize,
    },
    /// The number of threads is not 1 to [`MAX_THREADS`].
    #[error("{0} threads asked for; an engine has 1 to {MAX_THREADS}")]
    Threads(usize),
    /// The number of option sets is neither one nor that of the lanes.
    #[error("{given} sets of options given; one for all or one for each of {lanes} lanes is wanted")]
    Options {
        /// Number of option sets that were given.
        given: usize,
        /// Number of lanes of the engine.
        lanes: usize,
    },
    /// The lanes were to be moved after their first reset, which is the caller's fault.
    #[error("the lanes were reset before, and stay where they are")]
    Begun,
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

/// Reason for which a step, a reset, a send or a receive was refused. Nothing has moved, unless it says so.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum StepError {
    /// An action lies outside the space, which is the caller's fault.
    Action(BadAction),
    /// The episode of the lane is over, and DISABLED leaves the reset to the caller, whose fault this is.
    NeedsReset {
        /// Lane that needs the reset.
        lane: usize,
    },
    /// There was no reset yet, which is the caller's fault.
    NotReset,
    /// Lanes are to play, and follow no policy yet, which is the caller's fault.
    NoPolicy,
    /// The lanes have no clock that could be stopped, which is the caller's fault.
    NoPace,
    /// A live lane cannot do that as it stands, which is the caller's fault.
    NotNow {
        /// The lane.
        lane: usize,
        /// Why not.
        why: NotNow,
    },
    /// A recording, a log or a past came after the first reset, or a log after options were set, which is the caller's fault.
    Begun,
    /// A seed was given although the engine's schedule seeds every episode, which is the caller's fault.
    SeedsScheduled,
    /// A list has another length than the batch, which is the caller's fault.
    Length {
        /// Name of the list.
        what: &'static str,
        /// Length of the list.
        given: usize,
        /// Length that the list should have.
        wanted: usize,
    },
    /// There is no such step column, or none of that type, which is the caller's fault.
    StepColumn {
        /// Place of the column among those of the run.
        column: usize,
        /// Type of the values that were noted.
        dtype: DType,
    },
    /// The batch does not have the lane, which is the caller's fault.
    NoSuchLane {
        /// Lane that was named.
        lane: usize,
        /// Number of lanes in the batch.
        lanes: usize,
    },
    /// The lane was sent and its result has not been received, or it was named twice, which is the caller's fault.
    LaneOutstanding {
        /// Lane that is outstanding.
        lane: usize,
    },
    /// Nothing, or less than asked for, has been sent that could be received, which is the caller's fault.
    NothingOutstanding {
        /// Number of lanes asked for.
        wanted: usize,
        /// Number of lanes that are on their way or ready.
        outstanding: usize,
    },
    /// The lane has failed too often or waits for its restart; others go on.
    LaneLost {
        /// Lane that is lost.
        lane: usize,
    },
    /// Options were not changed.
    Options(OptionsError),
    /// A lane's state cannot be read or put back.
    State {
        /// Lane whose state it is.
        lane: usize,
        /// Reason that the env gave.
        source: StateError,
    },
    /// The lane has no image.
    Render {
        /// Lane that was to be drawn.
        lane: usize,
        /// Reason that the env gave.
        source: RenderError,
    },
    /// The work queue is full: receive, then send again.
    Busy {
        /// Time after which a place is likely to be free.
        retry_after_ms: u64,
    },
    /// Not enough lanes were ready in time; they stay outstanding.
    TimedOut,
    /// A stepping thread did not answer within the deadline. The engine cannot be used any more.
    Hung,
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
            Self::NoPace => f.write_str("the lanes have no pace: they wait for whoever steps them"),
            Self::NotNow { lane, why } => write!(f, "lane {lane}: {why}"),
            Self::NoPolicy => {
                f.write_str("the lanes follow no policy; give them one before they are to play")
            }
            Self::Begun => {
                f.write_str("the lanes have begun: a recording, a log and a past come before the first reset")
            }
            Self::SeedsScheduled => f.write_str("a seed was given, but the schedule seeds every episode"),
            Self::Length { what, given, wanted } => write!(f, "{given} {what} given, {wanted} wanted"),
            Self::StepColumn { column, dtype } => {
                write!(f, "{dtype} values noted in step column {column}; the run has none such")
            }
            Self::NoSuchLane { lane, lanes } => write!(f, "lane {lane} of a batch of {lanes}"),
            Self::LaneOutstanding { lane } => {
                write!(f, "lane {lane} was sent already and its result has not been received")
            }
            Self::NothingOutstanding { outstanding: 0, .. } => {
                f.write_str("no lane was sent that could be received: send lanes first")
            }
            Self::NothingOutstanding { wanted, outstanding } => {
                write!(
                    f,
                    "at least {wanted} lanes are to be received, but only {outstanding} were sent and not received yet"
                )
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
