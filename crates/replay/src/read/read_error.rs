//! The error [`ReadError`]: recordings could not be read.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rollhouse_core::EpisodeName;

use crate::disk_error::DiskError;

/// An error: a folder could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// A file operation failed.
    Disk(DiskError),
    /// The folder is not there.
    NoFolder(PathBuf),
    /// There is no episode of that name, or its end is damaged.
    NoEpisode(EpisodeName),
    /// Several folders that are read together have different episodes of that name.
    InSeveralFolders {
        /// The name.
        name: EpisodeName,
        /// The folders.
        folders: Vec<PathBuf>,
    },
    /// More folders in this one hold recordings than can be read together.
    TooManyFolders {
        /// The folder.
        dir: PathBuf,
        /// Most folders that are read together.
        most: usize,
    },
    /// Some segments of a store are only in its archive.
    Archived {
        /// The store.
        dir: PathBuf,
        /// Number of segments that are only in the archive.
        segments: u64,
        /// The archive.
        target: String,
    },
    /// Several runs of the folder share the short id in the name.
    Ambiguous {
        /// The name.
        name: EpisodeName,
        /// Full ids of the runs that have such an episode.
        runs: Vec<String>,
    },
    /// Part of the episode is damaged or was dropped.
    Incomplete {
        /// The episode.
        name: EpisodeName,
        /// Number of steps at its beginning that cannot be read.
        missing_steps: u64,
    },
    /// A chunk cannot be decoded although its checksum is right.
    Malformed {
        /// The episode.
        name: EpisodeName,
        /// Description of what is wrong.
        what: String,
    },
}

impl ReadError {
    pub(crate) fn disk(operation: &'static str, path: &Path, error: io::Error) -> Self {
        Self::Disk(DiskError::new(operation, path, error))
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(error) => error.fmt(f),
            Self::NoFolder(dir) => write!(f, "there are no recordings at {}", dir.display()),
            Self::NoEpisode(name) => write!(f, "no episode {name} is recorded here"),
            Self::Ambiguous { name, runs } => {
                write!(f, "{name} names episodes of {} runs: {}", runs.len(), runs.join(", "))
            }
            Self::InSeveralFolders { name, folders } => {
                let named = folders.iter().take(MOST_NAMED).map(|folder| folder.display().to_string());
                let named: Vec<String> = named.collect();
                let count = folders.len();
                write!(
                    f,
                    "{name} is recorded with different contents in {count} folders: {}",
                    named.join(", ")
                )?;
                let more = folders.len() - named.len();
                if more > 0 { write!(f, " and {more} more") } else { Ok(()) }
            }
            Self::TooManyFolders { dir, most } => {
                write!(f, "{} holds more than {most} folders of recordings", dir.display())
            }
            Self::Archived { dir, segments, target } => {
                write!(f, "{segments} of the segments of {} are in the archive {target} only", dir.display())
            }
            Self::Incomplete { name, missing_steps } => {
                write!(f, "the first {missing_steps} steps of {name} cannot be read")
            }
            Self::Malformed { name, what } => write!(f, "the recording of {name} is damaged: {what}"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Disk(error) => error.source(),
            _ => None,
        }
    }
}

/// Most folders that a message names.
const MOST_NAMED: usize = 8;
