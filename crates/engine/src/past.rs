//! What lanes did elsewhere, so that they can go on here.
//!
//! An engine that keeps a log says after each reset, step or send which episodes began, and the states' hashes from
//! time to time. Whoever keeps that together with the actions can have another engine do the same again
//! ([`Engine::replay`](crate::Engine::replay)): its lanes then stand where those of the first stood.

use rollhouse_core::{ColumnData, Start};

use crate::error::{BadAction, StepError};

/// Something that whoever wants to resume lanes elsewhere has to know. Lanes are rows of the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogEvent {
    /// An episode began.
    Began {
        /// Its lane.
        lane: u32,
        /// Its number in the lane.
        number: u64,
        /// Where its randomness starts.
        start: Start,
    },
    /// The steps of the lane's episode are a multiple of
    /// [`HASH_WINDOW_STEPS`](rollhouse_core::limits::HASH_WINDOW_STEPS), and this is the hash of its state.
    Hash {
        /// The lane.
        lane: u32,
        /// Of the exact bits of its state.
        hash: u32,
    },
}

/// Something that happened in a lane.
#[derive(Debug, Clone, PartialEq)]
pub struct Past {
    /// Row of the batch.
    pub lane: u32,
    /// What happened.
    pub what: Happened,
}

/// What happened in a lane.
#[derive(Debug, Clone, PartialEq)]
pub enum Happened {
    /// An episode began; one that was open ended as `cancelled`.
    Began {
        /// Its number.
        number: u64,
        /// Where its randomness starts; follows from the number where the schedule seeds every episode.
        start: Start,
    },
    /// It took these actions, one row of the action space's column each.
    Played(ColumnData),
    /// Its state had this hash then.
    Stood(u32),
    /// Its episode is lost: the next one has the number `next`, and is seeded as `start` and the schedule say. It
    /// waits for its reset, which autoreset gives it; if it is `held`, it stands still in the next batch first.
    Lost {
        /// Number of the lane's next episode.
        next: u64,
        /// What the lane's generator is seeded from.
        start: Start,
        /// Whether it stands still in the next batch.
        held: bool,
    },
}

/// Why lanes could not be put where they stood. The engine is of no further use.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// As any other call; [`StepError::Begun`] if the engine has stepped or reset lanes by itself.
    #[error("{0}")]
    Engine(StepError),
    /// A lane the batch does not have.
    #[error("the past of lane {lane} of a batch of {lanes}")]
    NoSuchLane {
        /// As given.
        lane: usize,
        /// Lanes of the batch.
        lanes: usize,
    },
    /// Actions of another type or width than the env's.
    #[error("past actions of lane {lane} are not those of the env")]
    Column {
        /// The lane.
        lane: usize,
    },
    /// An action that the space does not contain. Its lane is that of the batch.
    #[error("past {0}")]
    Action(BadAction),
    /// Something happened that needs an open episode, and none was.
    #[error("lane {lane} is said to have played on before its episode {next} began")]
    NotPlaying {
        /// The lane.
        lane: usize,
        /// Number of its next episode.
        next: u64,
    },
    /// The lane came to another state than it did elsewhere.
    #[error("lane {lane} has state {found:08x} after step {step} of episode {number}, it had {wanted:08x}")]
    Differs {
        /// The lane.
        lane: usize,
        /// Number of its episode.
        number: u64,
        /// Steps of it.
        step: u64,
        /// The hash it had elsewhere.
        wanted: u32,
        /// The hash here.
        found: u32,
    },
    /// The env failed on the way.
    #[error("the env of lane {lane} failed while episode {number} was played again")]
    Crashed {
        /// The lane.
        lane: usize,
        /// Number of its episode.
        number: u64,
    },
}

impl From<StepError> for ResumeError {
    fn from(error: StepError) -> Self {
        Self::Engine(error)
    }
}
