//! The past of lanes, which lets them go on in another engine.
//!
//! An engine that keeps a log says after each reset, step or send which episodes began, and the states' hashes from
//! time to time. An owner that keeps this log together with the actions can make another engine do the same again
//! ([`Engine::replay`](crate::Engine::replay)): its lanes then stand where those of the first engine stood.

use rollhouse_core::Began;

use crate::calls::CallFault;
use crate::error::StepError;
use crate::options::OptionsError;
use rollhouse_env::BadAction;

/// Entry of the log that an owner needs to resume lanes elsewhere. Lanes are rows of the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogEvent {
    /// An episode began.
    Began(Began),
    /// The steps of the lane's episode are a multiple of
    /// [`HASH_WINDOW_STEPS`](rollhouse_core::limits::HASH_WINDOW_STEPS), and this is the hash of its state.
    Hash {
        /// Lane whose state it is.
        lane: u32,
        /// Hash of the exact bits of the lane's state.
        hash: u32,
    },
}

/// Reason for which lanes could not be put where they stood. The engine is of no further use.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// A call of the engine failed; [`StepError::Begun`] if the engine has stepped or reset lanes by itself.
    #[error("{0}")]
    Engine(StepError),
    /// The batch does not have the lane.
    #[error("the past is of lane {lane}, but the batch has {lanes} lanes")]
    NoSuchLane {
        /// Lane that was named.
        lane: usize,
        /// Number of lanes in the batch.
        lanes: usize,
    },
    /// The actions have another type or width than the env's.
    #[error("past actions of lane {lane} are not those of the env")]
    Column {
        /// Lane whose actions they are.
        lane: usize,
    },
    /// An action is not contained in the space. Its lane is that of the batch.
    #[error("past {0}")]
    Action(BadAction),
    /// An event needs an open episode, and the lane has none.
    #[error("lane {lane} cannot play on before its episode {next} began")]
    NotPlaying {
        /// Lane that has no open episode.
        lane: usize,
        /// Number of the lane's next episode.
        next: u64,
    },
    /// The lane does not take a call that it took elsewhere.
    #[error("the past call of `{method}` on lane {lane}: {source}")]
    Call {
        /// Lane that was called.
        lane: usize,
        /// Name of the method.
        method: String,
        /// Reason.
        source: CallFault,
    },
    /// The lanes do not take the options that they were given elsewhere.
    #[error("the past options: {0}")]
    Options(#[from] OptionsError),
    /// The lane came to another state than it did elsewhere.
    #[error("lane {lane} has state {found:08x} after step {step} of episode {number}, it had {wanted:08x}")]
    Differs {
        /// Lane whose state differs.
        lane: usize,
        /// Number of the episode in the lane.
        number: u64,
        /// Number of steps of the episode so far.
        step: u64,
        /// Hash of the state elsewhere.
        wanted: u32,
        /// Hash of the state here.
        found: u32,
    },
    /// The env failed on the way.
    #[error("the env of lane {lane} failed while episode {number} was played again")]
    Crashed {
        /// Lane whose env failed.
        lane: usize,
        /// Number of the episode in the lane.
        number: u64,
    },
}

impl From<StepError> for ResumeError {
    fn from(error: StepError) -> Self {
        Self::Engine(error)
    }
}
