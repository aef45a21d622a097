//! Reasons for which recordings cannot be read, as exceptions.

use pyo3::prelude::*;
use rollhouse_replay::{ReadError, RecomputeError};

use crate::failure::{chain, exception};

/// Why recordings could not be read.
#[derive(Debug)]
pub(crate) enum Failure {
    Read(ReadError),
    Recompute(RecomputeError),
    Nothing,
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl From<RecomputeError> for Failure {
    fn from(error: RecomputeError) -> Self {
        Self::Recompute(error)
    }
}

impl Failure {
    /// Returns the class of `rollhouse.errors` that is raised for it.
    pub(crate) const fn class(&self) -> &'static str {
        match self {
            Self::Read(ReadError::NoFolder(_)) => "RecordingsNotFoundError",
            Self::Read(ReadError::NoEpisode(_)) => "EpisodeNotFoundError",
            Self::Read(ReadError::Ambiguous { .. } | ReadError::InSeveralFolders { .. }) => {
                "AmbiguousEpisodeError"
            }
            Self::Read(ReadError::Incomplete { .. } | ReadError::Malformed { .. }) => "DamagedRecordingError",
            Self::Read(ReadError::Disk(_)) => "ReplayDiskError",
            Self::Recompute(_) => "RecomputeError",
            Self::Read(ReadError::TooManyFolders { .. } | ReadError::Archived { .. }) | Self::Nothing => {
                "ReplayError"
            }
        }
    }

    /// Returns its message.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Read(error) => chain(error),
            Self::Recompute(error) => chain(error),
            Self::Nothing => "no episode to read".to_owned(),
        }
    }

    pub(crate) fn into_py(self, py: Python<'_>) -> PyErr {
        exception(py, self.class(), self.message())
    }
}
